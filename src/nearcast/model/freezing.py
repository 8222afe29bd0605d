"""An evolving subscription as it is at one moment: the subscription without motion.

It is what a client says that cannot say how its area moves, and the version that an engine holds
that cannot follow one ([Evolving] section 4).
"""

from typing import TypeVar

from msgspec.structs import replace

from nearcast.model.expressions import MAX_LENGTH
from nearcast.model.predicates import Predicate
from nearcast.model.subscription import Filter, Formula, Region, Subscription, Value, seconds_since
from nearcast.space.motion import Moving, Time

_Text = TypeVar("_Text", Formula, Filter)


def freeze(subscription: Subscription, t: Time) -> Subscription | None:
    """The subscription as it is at `t`, without motion; None: a bound has no value, so that it
    wants nothing then.

    When it was submitted means nothing any more, so all that are frozen alike are equal.
    """
    region, condition = subscription.region, subscription.filter
    still: Region | None = (
        _freeze_text(region, t) if isinstance(region, Formula) else Moving(region.at(t))
    )
    if still is None:
        return None
    if condition is not None:
        condition = _freeze_text(condition, t)
        if condition is None:
            return None
    return replace(subscription, region=still, filter=condition)


def _freeze_text(evolving: _Text, t: Time) -> _Text | None:
    """The predicates with constants for bounds; None: one of them has no value then, and no other
    will do instead.

    A number may be longer than its expression. A filter that would be longer than a text may be
    stays as it is; a region always fits.
    """
    if not evolving.parsed.evolves:
        return replace(evolving, since=0)
    seconds, clauses = seconds_since(evolving.since, t), []
    for clause in evolving.parsed.clauses:
        bounds = [(one, one.evaluate(seconds)) for one in clause]
        written = [write_predicate(one, bound) for one, bound in bounds if bound is not None]
        if not written:
            return None
        clauses.append(" or ".join(written))
    text = ", ".join(clauses)
    return evolving if len(text) > MAX_LENGTH else replace(evolving, text=text, since=0)


def write_predicate(predicate: Predicate, bound: Value) -> str:
    """The text of a predicate that compares with this constant."""
    said = repr(bound)
    if isinstance(bound, bool):
        said = said.lower()
    elif isinstance(bound, str):
        quote = "'" if '"' in bound else '"'
        said = f"{quote}{bound}{quote}"
    return f"{predicate.attribute} {predicate.operator} {said}"
