"""Variables of the application in predicates: `x <= 3 + visibility`, `price < limit + 0.5 * t`.

The work that followed [Evolving] (ICDCS 2017) lets subscriptions evolve over any variable, time
being one example. Here `t` runs by itself, and all others are numbers that the application sets
when it subscribes and changes when it likes. A variable is bound by writing its number in its
place, so a subscription that others receive has only numbers and `t`.

A name to the left of a comparison is an attribute, a name to the right is a variable: where both
have one name, as in `price < price`, the left one is the publication's and the right one ours.
"""

from collections.abc import Mapping
from math import isfinite

from nearcast.model.expressions import RESERVED, ExpressionParser
from nearcast.model.predicates import parse


def check_variables(variables: Mapping[str, float]) -> None:
    """ValueError if a name is reserved or a value is no finite number."""
    for name, value in variables.items():
        if name in RESERVED:
            raise ValueError(f"{name!r} cannot be a variable: it has a meaning of its own")
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"variable {name!r} must be a number, not {value!a}")
        try:
            finite = isfinite(value)
        except OverflowError:  # an integer beyond all floats
            finite = False
        if not finite:
            raise ValueError(f"variable {name!r} must be finite")


def bind(text: str, variables: Mapping[str, float]) -> str:
    """The same predicates with each variable's number in its place.

    FormulaError if a name is unknown, or if no value is left: `1 / limit` with a limit of 0.
    """
    check_variables(variables)
    known = frozenset(variables)
    parse(text, known)
    cursor, pieces, copied = ExpressionParser(text, known), [], 0
    while cursor.token.kind != "end":
        token = cursor.take()
        is_attribute = cursor.token.kind == "comparison"
        if token.kind == "name" and token.text in known and not is_attribute:
            pieces += [text[copied : token.position], repr(float(variables[token.text]))]
            copied = cursor.taken
    bound = "".join([*pieces, text[copied:]])
    parse(bound)
    return bound
