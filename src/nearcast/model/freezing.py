"""An evolving subscription as it is at one moment: the subscription without motion.

It is what a client says that cannot say how its area moves, and the version that an engine holds
that cannot follow one ([Evolving] section 4).
"""

from msgspec.structs import replace

from nearcast.model import predicates
from nearcast.model.expressions import MAX_LENGTH, evaluator
from nearcast.model.predicates import Predicate
from nearcast.model.subscription import Filter, Formula, Region, Subscription, Value, seconds_since
from nearcast.space.motion import Moving, Time


def freeze(subscription: Subscription, t: Time) -> Subscription | None:
    """The subscription as it is at `t`, without motion; None: a bound has no value, so that it
    wants nothing then.

    When it was submitted means nothing any more, so all that are frozen alike are equal.
    """
    region, condition = subscription.region, subscription.filter
    still: Region
    if isinstance(region, Formula):
        text = _freeze_text(region.text, seconds_since(region.since, t))
        if text is None:
            return None
        still = Formula(text, region.since if predicates.parse(text).evolves else 0)
    else:
        still = Moving(region.at(t))
    if condition is not None:
        text = _freeze_text(condition.text, seconds_since(condition.since, t))
        if text is None:
            return None
        condition = Filter(text, condition.since if predicates.parse(text).evolves else 0)
    return replace(subscription, region=still, filter=condition)


def _freeze_text(text: str, t: float) -> str | None:
    """The predicates with constants for bounds; None: one of them has no value at `t`.

    A number may be longer than its expression. A filter that would be longer than a text may be
    stays as it is; a region always fits.
    """
    parsed = predicates.parse(text)
    if not parsed.evolves:
        return text
    items = []
    for item in parsed.items:
        bound = evaluator(item.expression)(t, predicates.NO_VALUES)
        if bound is None:
            return None
        items.append(write_predicate(item, bound))
    frozen = ", ".join(items)
    return frozen if len(frozen) <= MAX_LENGTH else text


def write_predicate(predicate: Predicate, bound: Value) -> str:
    """The text of a predicate that compares with this constant."""
    said = repr(bound)
    if isinstance(bound, bool):
        said = said.lower()
    elif isinstance(bound, str):
        quote = "'" if '"' in bound else '"'
        said = f"{quote}{bound}{quote}"
    return f"{predicate.attribute} {predicate.operator} {said}"
