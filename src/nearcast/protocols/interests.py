"""The present and recent subscriptions of a peer, and the ball around all of them.

A publication is matched with the version of a subscription that was in force when it was made, and
it arrives later. So a version is kept for a while after the next one. The peer's position is the
centre of its first subscription; its vision radius is that of a ball around it that contains all.
"""

from math import hypot, inf, sqrt
from typing import NamedTuple, TypeAlias

from nearcast.model import predicates
from nearcast.model.interests import (
    ActiveInterests,
    InterestCommand,
    InterestVersion,
    version_at,
)
from nearcast.model.publication import Publication, wants
from nearcast.model.subscription import (
    Formula,
    NodeId,
    Region,
    Subscription,
    SubscriptionId,
    seconds_since,
)
from nearcast.space.motion import SECOND, Moving, Time
from nearcast.space.shapes import BOX, DISC, LARGEST, Shape, Vector

KEPT: Time = 10 * SECOND  # no publication is under way for longer


# Place, radius, velocity, since and until of a disc or point that does not grow.
BallMotion: TypeAlias = tuple[float, float, float, float, float, float, float, Time, Time]


class Ball(NamedTuple):
    """A ball: where a peer is, and how far it wants to see."""

    x: float
    y: float
    z: float
    radius: float

    @property
    def place(self) -> Vector:
        return self.x, self.y, self.z

    def away(self, x: float, y: float, z: float) -> float:
        dx, dy, dz = self.x - x, self.y - y, self.z - z
        return sqrt(dx * dx + dy * dy + dz * dz)


class PeerInterests:
    """The subscriptions of one peer, with fast paths for the usual single disc."""

    def __init__(self) -> None:
        self._active = ActiveInterests()
        self._versions: dict[SubscriptionId, list[InterestVersion]] = {}
        # Where there is but one interest: since when, and its region if that is a disc or point.
        self._single: tuple[Time, Subscription] | None = None
        self._only: BallMotion | None = None
        self._plain = False  # is it a disc, and without an outline or a filter?

    def obey(self, command: InterestCommand, node: NodeId, now: Time) -> str | None:
        """Carry out a command of the application. None: done; else the note that says why not."""
        number = command.subscription
        why = self._active.apply(command, node, now)
        if why is None:
            self._add(number, InterestVersion(now, self._active.current.get(number)))
        return why

    def put(self, subscription: Subscription, now: Time) -> None:
        self._add(subscription.id, InterestVersion(now, subscription))

    def end(self, subscription: SubscriptionId, now: Time) -> None:
        self._add(subscription, InterestVersion(now, None))

    def _add(self, subscription: SubscriptionId, version: InterestVersion) -> None:
        versions = self._versions.setdefault(subscription, [])
        if versions and versions[-1].begins == version.begins:
            versions.pop()  # it lasted for no time
        versions.append(version)
        while len(versions) > 1 and versions[1].begins < version.begins - KEPT:
            versions.pop(0)
        present = self.present()
        single = len(present) == 1 and len(self._versions) == 1
        self._single = (version.begins, present[0]) if single else None
        region = present[0].region if len(present) == 1 else None
        plain = isinstance(region, Moving) and region.shape.kind != BOX and not any(region.growth)
        if plain and isinstance(region, Moving):
            s = region.shape
            self._only = s.x, s.y, s.z, s.rx, *region.velocity, region.since, region.until
            wide = s.kind == DISC and s.outline is None
            self._plain = single and wide and present[0].filter is None
        else:
            self._only, self._plain = None, False

    def current(self, subscription: SubscriptionId) -> Subscription | None:
        versions = self._versions.get(subscription)
        return versions[-1].subscription if versions else None

    def present(self) -> list[Subscription]:
        last = [versions[-1].subscription for versions in self._versions.values()]
        return [wanted for wanted in last if wanted is not None]

    def wanting(self, publication: Publication) -> list[SubscriptionId]:
        single, t = self._single, publication.t
        if single is None or single[0] > t:
            return [s for s, versions in self._versions.items() if _wants(versions, publication)]
        wanted, shape, only = single[1], publication.shape, self._only
        if only is None or not self._plain or shape.kind == BOX or shape.outline is not None:
            return [wanted.id] if wants(wanted, publication, t) else []
        # By far the most frequent: `wants` and `Moving.touches`, written out.
        x, y, z, radius, vx, vy, vz, since, until = only
        end = t if t < until else until
        dt = (end - since) / 1e6 if end > since else 0.0
        dx, dy, dz = x + vx * dt - shape.x, y + vy * dt - shape.y, z + vz * dt - shape.z
        if (
            sqrt(dx * dx + dy * dy + dz * dz) <= radius + shape.rx
            and wanted.channel == publication.channel
            and (wanted.echo or wanted.node != publication.node)
        ):
            return [wanted.id]
        return []

    def forget(self, now: Time) -> None:
        """Subscriptions that ended long ago."""
        for subscription, versions in list(self._versions.items()):
            if versions[-1].subscription is None and versions[-1].begins < now - KEPT:
                del self._versions[subscription]

    def area(self, now: Time, flat: bool = False) -> Ball | None:
        """One ball around all, with the centre of the first; None: nothing is wanted.

        `flat`: a disc, of x and y.
        """
        only = self._only
        if only is not None:  # asked with every message
            x, y, z, radius, vx, vy, vz, since, until = only
            end = now if now < until else until
            dt = (end - since) / 1e6 if end > since else 0.0  # `elapsed`, written out
            return Ball(x + vx * dt, y + vy * dt, 0.0 if flat else z + vz * dt, radius)
        areas = [
            area
            for wanted in self.present()
            if (area := ball_around_region(wanted.region, now, flat)) is not None
        ]
        if not areas:
            return None
        first = areas[0]
        radius = max(area.radius + first.away(*area.place) for area in areas)
        return Ball(*first.place, radius)

    def sees(self, x: float, y: float, z: float, now: Time) -> bool:
        """Is this place in that ball? Asked with every message, so `area` is written out."""
        only = self._only
        if only is None:
            area = self.area(now)
            return area is not None and area.away(x, y, z) <= area.radius
        ax, ay, az, radius, vx, vy, vz, since, until = only
        end = now if now < until else until
        dt = (end - since) / 1e6 if end > since else 0.0
        dx, dy, dz = ax + vx * dt - x, ay + vy * dt - y, az + vz * dt - z
        return sqrt(dx * dx + dy * dy + dz * dz) <= radius


def _wants(versions: list[InterestVersion], publication: Publication) -> bool:
    subscription = version_at(versions, publication.t)
    return subscription is not None and wants(subscription, publication, publication.t)


def ball_around_region(region: Region, t: Time, flat: bool = False) -> Ball | None:
    """A ball around a region as it is at `t`; None: it is nowhere."""
    if isinstance(region, Formula):
        zone = predicates.box_at(region.parsed, seconds_since(region.since, t))
        if zone is None:
            return None
        sides = (_middle(side.low, side.high) for side in (zone.x, zone.y, zone.z))
        (x, rx), (y, ry), (z, rz) = sides
        return Ball(x, y, 0.0, hypot(rx, ry)) if flat else Ball(x, y, z, hypot(rx, ry, rz))
    return ball_around(region.at(t), flat)


def ball_around(shape: Shape, flat: bool = False) -> Ball:
    radius = shape.rx if shape.kind == DISC else 0.0
    if shape.kind == BOX:
        radius = hypot(shape.rx, shape.ry, 0.0 if flat else shape.rz)
    return Ball(shape.x, shape.y, 0.0 if flat else shape.z, radius)


def _middle(low: float, high: float) -> tuple[float, float]:
    """The middle of an interval and its half-extent."""
    if low > -inf and high < inf:
        return _bounded(low + (high - low) / 2), (high - low) / 2
    return _bounded(low if low > -inf else high if high < inf else 0.0), inf


def _bounded(value: float) -> float:
    return min(max(value, -LARGEST), LARGEST)
