"""What can be set, with its default and its explanation, read from the one place that says so.

Parameters are documented by the comments beside their fields. Whoever changes a field sees its
comment; whoever asks for `--settings` reads the same words.
"""

import inspect
import re

from msgspec import Struct
from msgspec.structs import fields

# A name that is a word of Python's own is set as vars()["name"].
FIELD = re.compile(r'^    (?:vars\(\)\[")?(\w+)(?:"\] |: )[^=#]*(?:= [^#]+)?(?:# (.*))?$')


def field_comments(kind: type[Struct]) -> dict[str, str]:
    """Each field's comment: the one on its line, else the ones on the lines above."""
    found: dict[str, str] = {}
    told = ""
    for each in reversed(kind.__mro__[:-2]):
        if not issubclass(each, Struct) or each is Struct:
            continue
        above: list[str] = []
        for line in inspect.getsource(each).splitlines():
            if line.strip().startswith("#"):
                above.append(line.strip().lstrip("# "))
                continue
            field = FIELD.match(line)
            if field and (field[2] or above):
                told = found[field[1]] = field[2] or " ".join(above)
            elif field and field[1] not in found:
                found[field[1]] = told  # fields that share one comment
            above = []
    return found


def documented_fields(kind: type[Struct]) -> list[tuple[str, str, str]]:
    """Name, default and explanation of every field."""
    told = field_comments(kind)
    return [(field.name, str(field.default), told[field.name]) for field in fields(kind)]
