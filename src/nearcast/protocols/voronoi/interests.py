"""What a peer wants and has wanted lately, and the disc around its site that holds it all.

A publication counts for whoever wanted it at its own moment, and it arrives later. So a version of
a subscription is kept for a while after the next one.
"""

from math import hypot, inf
from typing import NamedTuple

from nearcast.model import predicates
from nearcast.model.publication import Publication, wants
from nearcast.model.subscription import Formula, Region, Subscription, SubscriptionId, seconds_since
from nearcast.protocols.voronoi.sites import LARGEST
from nearcast.space.motion import SECOND, Time
from nearcast.space.shapes import DISC
from nearcast.space.voronoi import Point

KEPT: Time = 10 * SECOND  # no publication is under way for longer


class Version(NamedTuple):
    begins: Time
    wanted: Subscription | None  # None: the subscription has ended


class Extent(NamedTuple):
    """A disc around a centre: where an interest is in x and y. Its z is for the receiver."""

    x: float
    y: float
    reach: float


class Interests:
    def __init__(self) -> None:
        self._versions: dict[SubscriptionId, list[Version]] = {}

    def put(self, subscription: Subscription, now: Time) -> None:
        self._add(subscription.id, Version(now, subscription))

    def end(self, subscription: SubscriptionId, now: Time) -> None:
        self._add(subscription, Version(now, None))

    def _add(self, subscription: SubscriptionId, version: Version) -> None:
        versions = self._versions.setdefault(subscription, [])
        if versions and versions[-1].begins == version.begins:
            versions.pop()  # it lasted for no time
        versions.append(version)
        while len(versions) > 1 and versions[1].begins < version.begins - KEPT:
            versions.pop(0)

    def current(self, subscription: SubscriptionId) -> Subscription | None:
        versions = self._versions.get(subscription)
        return versions[-1].wanted if versions else None

    def present(self) -> list[Subscription]:
        last = [versions[-1].wanted for versions in self._versions.values()]
        return [wanted for wanted in last if wanted is not None]

    def wanting(self, publication: Publication) -> list[SubscriptionId]:
        return [s for s, versions in self._versions.items() if _wants(versions, publication)]

    def forget(self, now: Time) -> None:
        """Subscriptions that ended long ago."""
        for subscription, versions in list(self._versions.items()):
            if versions[-1].wanted is None and versions[-1].begins < now - KEPT:
                del self._versions[subscription]

    def extent(self, now: Time) -> Extent | None:
        """One disc around all, with the centre of the first; None: nothing is wanted."""
        extents = [
            extent
            for wanted in self.present()
            if (extent := extent_of(wanted.region, now)) is not None
        ]
        if not extents:
            return None
        x, y, _ = extents[0]
        reach = max(e.reach + hypot(e.x - x, e.y - y) for e in extents)
        return Extent(x, y, reach if reach <= LARGEST else inf)


def _wants(versions: list[Version], publication: Publication) -> bool:
    for begins, wanted in reversed(versions):
        if begins <= publication.t:
            return wanted is not None and wants(wanted, publication, publication.t)
    return False


def extent_of(region: Region, t: Time) -> Extent | None:
    """Where a region is at `t`; None: nowhere."""
    if isinstance(region, Formula):
        zone = predicates.zone(region.parsed, seconds_since(region.since, t))
        if zone is None:
            return None
        (x, rx), (y, ry) = (_middle(side.low, side.high) for side in (zone.x, zone.y))
        reach = hypot(rx, ry)
    else:
        shape = region.at(t)
        x, y = shape.x, shape.y
        reach = shape.rx if shape.kind == DISC else hypot(shape.rx, shape.ry)
    return Extent(_bounded(x), _bounded(y), reach)


def _middle(low: float, high: float) -> Point:
    """The middle of an interval and its half-extent."""
    if low > -inf and high < inf:
        return low + (high - low) / 2, (high - low) / 2
    return (low if low > -inf else high if high < inf else 0.0), inf


def _bounded(value: float) -> float:
    return min(max(value, -LARGEST), LARGEST)
