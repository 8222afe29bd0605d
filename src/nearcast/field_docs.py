"""Reads what the fields of settings and parameters mean from the comments beside them.

A field is documented once, by the comment on its line or on the lines above it. `nearcast config`,
`nearcast simulate --settings` and the reference show that text.
"""

import inspect
import re

from msgspec import Struct
from msgspec.structs import fields

# A name that is a word of Python's own is set as vars()["name"].
FIELD = re.compile(r'^    (?:vars\(\)\[")?(\w+)(?:"\] |: )[^#]*(?:# (.*))?$')


def field_comments(kind: type[Struct]) -> dict[str, str]:
    """Each field's comment: the one on its line, else the ones on the lines above."""
    found: dict[str, str] = {}
    text = ""
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
                text = found[field[1]] = field[2] or " ".join(above)
            elif field and field[1] not in found:
                found[field[1]] = text  # fields that share one comment
            above = []
    names = {field.name for field in fields(kind)}
    return {name: text for name, text in found.items() if name in names}


def documented_fields(kind: type[Struct]) -> list[tuple[str, str, str]]:
    """Name, default and explanation of every field."""
    texts = field_comments(kind)
    return [(field.name, str(field.default), texts[field.name]) for field in fields(kind)]
