"""What the subscriptions of one client may cost together."""

from nearcast.client_protocol.geometry_json import EARTH, Geometry
from nearcast.client_protocol.limits import Limits
from nearcast.errors import Refused
from nearcast.matching.filters import count_steps
from nearcast.model.subscription import Region, Subscription
from nearcast.service.client_state import ActiveSubscription, ClientState
from nearcast.space.motion import Path


def check_cost(
    client: ClientState, before: ActiveSubscription | None, wanted: Subscription, limits: Limits,
    geometry: Geometry,
) -> int:  # fmt: skip
    """How many steps its formula, filter and outline take; Refused if that is too much for a
    client, or if its paths have too many legs."""
    if geometry == EARTH:
        _check_legs(client, before, wanted.region, limits)
    cost = sum(count_steps(wanted))
    if cost > (before.steps if before else 0):
        total = cost + sum(s.steps for s in client.subscriptions.values() if s is not before)
        if total > limits.steps:
            raise Refused(
                f"the formulas, filters and outlines of a client take at most {limits.steps} steps,"
                f" and with this one yours take {total}"
            )
    return cost


def _check_legs(
    client: ClientState, before: ActiveSubscription | None, region: Region, limits: Limits
) -> None:
    """On Earth a path has more legs than places that it goes to."""
    if not isinstance(region, Path):
        return
    most = limits.legs * limits.subscriptions
    others = [s.subscription.region for s in client.subscriptions.values() if s is not before]
    legs = [len(one.legs) for one in (region, *others) if isinstance(one, Path)]
    if sum(legs) > most:
        raise Refused(
            f"the paths of a client on Earth have at most {most} legs of about 1 km, and with this"
            f" one yours have {sum(legs)}"
        )
