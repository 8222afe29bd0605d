"""`wants` in Python, for pairs that kernels cannot decide. It tells a fault from a plain no.

A fault is a bound without a value at that moment (a division by zero, an overflow, the root of a
negative number) or an attribute of another type than the predicate's. It never matches. Engines
count faults, so that a broker can note them.
"""

from nearcast.model import predicates
from nearcast.model.publication import Publication
from nearcast.model.subscription import Formula, Subscription, seconds_since
from nearcast.space.motion import Time


def check_subscription(wanted: Subscription, publication: Publication, at: Time) -> bool | None:
    """As `wants`; None: no, because of a fault."""
    if wanted.channel != publication.channel:
        return False
    if wanted.node == publication.node and not wanted.echo:
        return False
    region = wanted.region
    if not isinstance(region, Formula) and not region.touches(publication.shape, at):
        return False
    return check_residual(wanted, publication, at)


def check_residual(wanted: Subscription, publication: Publication, at: Time) -> bool | None:
    """Only the formula and the filter, as in `wants`; None: no, because of a fault."""
    region, condition = wanted.region, wanted.filter
    if isinstance(region, Formula):
        seconds = seconds_since(region.since, at)
        zone = predicates.box_at(region.parsed, seconds)
        if zone is None:
            return False if predicates.has_values(region.parsed, seconds) else None
        if not zone.touches_shape(publication.shape):
            return False
    if condition is None:
        return True
    return predicates.test_attributes(
        condition.parsed, publication.attributes, seconds_since(condition.since, at)
    )
