"""A shape as a function of time: it stands still, moves, grows, or follows a path of legs.

Regions are written relative to the moment they are submitted (`since` = 0); the process that
accepts one stamps it with its own clock, and from then on everybody computes the same place for
the same microsecond. A region never runs backwards: before `since` it stands where it begins.
"""

from collections.abc import Sequence
from math import sqrt
from typing import Annotated, TypeAlias

from msgspec import Meta, Struct
from msgspec.structs import replace

from nearcast.space.outline_pairs import touches_outline
from nearcast.space.outlines import check_motion
from nearcast.space.shapes import BOX, DISC, Shape, Vector, overlap

Time: TypeAlias = Annotated[int, Meta(ge=0, lt=2**53)]  # microseconds, everywhere
SECOND: Time = 1_000_000
LATEST: Time = 2**53  # no moment and no duration reaches this
FASTEST = 1e100  # units per second: nothing travels beyond all numbers before LATEST
MOST_LEGS = 1_000
STILL: Vector = (0.0, 0.0, 0.0)


def elapsed(t: Time, since: Time, until: Time) -> float:
    """Seconds of motion behind us at `t`: the design's (min(p, until) − t) / 1e6, never below 0."""
    end = t if t < until else until
    return (end - since) / 1e6 if end > since else 0.0


def grow_extent(extent: float, growth: float, seconds: float) -> float:
    """A half-extent after so many seconds; it shrinks to nothing, never below."""
    now = extent + growth * seconds
    return now if now > 0.0 else 0.0


FOREVER: Time = 2**62  # later than any time of a run; keeps `elapsed` free of None


class Moving(Struct, frozen=True, array_like=True, tag=1):
    """A shape that moves at `velocity` and grows by `growth` per axis, both in units per second.

    The motion ends `duration` after `since` (None: never); the region then stays where it is.
    A fixed region is one with neither velocity nor growth. A disc grows by growth[0] alone.
    """

    shape: Shape
    velocity: Vector = STILL
    growth: Vector = STILL
    duration: Time | None = None
    since: Time = 0

    def __post_init__(self) -> None:
        for number in (*self.velocity, *self.growth):
            if not -FASTEST <= number <= FASTEST:
                raise ValueError(f"velocity and growth must be within ±{FASTEST}, not {number}")
        if self.duration is not None and not 0 <= self.duration < LATEST:
            raise ValueError(f"a motion cannot last {self.duration} microseconds")
        if not 0 <= self.since < LATEST:
            raise ValueError(f"a region cannot begin at {self.since}")
        if self.shape.kind != BOX and any(
            self.growth[1:] if self.shape.kind == DISC else self.growth
        ):
            raise ValueError("a point does not grow, and a disc grows by its first number alone")
        if self.shape.outline is not None:
            check_motion(self.shape.outline, any(self.velocity), any(self.growth))

    @property
    def until(self) -> Time:
        return FOREVER if self.duration is None else self.since + self.duration

    @property
    def moves(self) -> bool:
        return any(self.velocity) or any(self.growth)

    @property
    def axis_growth(self) -> Vector:
        """Of the half-extent along each axis; a disc's radius grows by one number."""
        return (self.growth[0],) * 3 if self.shape.kind == DISC else self.growth

    def stamped(self, now: Time) -> "Moving":
        return replace(self, since=now)

    def at(self, t: Time) -> Shape:
        """The shape at that moment."""
        s, (vx, vy, vz), (gx, gy, gz) = self.shape, self.velocity, self.growth
        dt = elapsed(t, self.since, self.until)
        return Shape(
            s.kind, s.x + vx * dt, s.y + vy * dt, s.z + vz * dt,
            grow_extent(s.rx, gx, dt), grow_extent(s.ry, gy, dt), grow_extent(s.rz, gz, dt),
            s.outline,
        )  # fmt: skip

    def centre(self, t: Time) -> Vector:
        """Of the shape at that moment."""
        s, (vx, vy, vz) = self.shape, self.velocity
        dt = elapsed(t, self.since, self.until)
        return s.x + vx * dt, s.y + vy * dt, s.z + vz * dt

    def touches(self, other: Shape, t: Time) -> bool:
        """Does the region, as it is at `t`, share a point with that shape?"""
        if self.velocity == STILL == self.growth:
            return self.shape.touches(other)
        s, (vx, vy, vz), (gx, gy, gz) = self.shape, self.velocity, self.growth
        if s.kind == DISC and other.kind != BOX:
            # `elapsed` and `overlap` written out: half of all simulated time would go to calls.
            passed, duration = t - self.since, self.duration
            if duration is not None and passed > duration:
                passed = duration
            dt = passed / 1e6 if passed > 0 else 0.0
            dx = s.x + vx * dt - other.x
            dy = s.y + vy * dt - other.y
            dz = s.z + vz * dt - other.z
            reach = grow_extent(s.rx, gx, dt) if gx else s.rx
            near = sqrt(dx * dx + dy * dy + dz * dz) <= reach + other.rx
        else:
            dt = elapsed(t, self.since, self.until)
            near = overlap(
                s.kind, s.x + vx * dt, s.y + vy * dt, s.z + vz * dt,
                grow_extent(s.rx, gx, dt), grow_extent(s.ry, gy, dt), grow_extent(s.rz, gz, dt),
                other.kind, other.x, other.y, other.z, other.rx, other.ry, other.rz,
            )  # fmt: skip
        if not near or (s.outline is None and other.outline is None):
            return near
        return touches_outline(self.at(t), other)


class Path(Struct, frozen=True, array_like=True, tag=2):
    """Legs one after the other; it stops where the last one arrives. See `path`."""

    legs: tuple[Moving, ...]

    def __post_init__(self) -> None:
        if not self.legs:
            raise ValueError("a path needs at least one leg")
        if len(self.legs) > MOST_LEGS:
            raise ValueError(f"a path has at most {MOST_LEGS} legs, not {len(self.legs)}")
        if any(
            later.since < leg.until for leg, later in zip(self.legs, self.legs[1:], strict=False)
        ):
            raise ValueError("a leg of a path begins before the leg before it has arrived")

    @property
    def since(self) -> Time:
        return self.legs[0].since

    def stamped(self, now: Time) -> "Path":
        shift = now - self.since
        return Path(tuple(leg.stamped(leg.since + shift) for leg in self.legs))

    def leg(self, t: Time) -> Moving:
        """The leg under way at `t`: the last one that has begun."""
        under_way = self.legs[0]
        for leg in self.legs[1:]:
            if leg.since > t:
                break
            under_way = leg
        return under_way

    def at(self, t: Time) -> Shape:
        return self.leg(t).at(t)

    def centre(self, t: Time) -> Vector:
        return self.leg(t).centre(t)

    def touches(self, other: Shape, t: Time) -> bool:
        return self.leg(t).touches(other, t)


def line(shape: Shape, to: Sequence[float], speed: float) -> Moving:
    """From where the shape stands straight to `to`, at `speed` units per second, and stop.

    `to` is two or three numbers; without z, the shape keeps its own.
    """
    if not 2 <= len(to) <= 3:
        raise ValueError(f"a place to go to is two or three numbers, not {len(to)}")
    if not 0 < speed <= FASTEST:
        raise ValueError(f"a speed must be above 0 and at most {FASTEST}, not {speed}")
    x, y, z = (*to, shape.z)[:3]
    arrived = replace(shape, x=float(x), y=float(y), z=float(z))
    dx, dy, dz = arrived.x - shape.x, arrived.y - shape.y, arrived.z - shape.z
    seconds = sqrt(dx * dx + dy * dy + dz * dz) / speed
    if not seconds * SECOND < LATEST:
        raise ValueError(f"at {speed} units per second it would take {seconds:g} s to arrive")
    duration = round(seconds * SECOND)
    if duration == 0:
        return Moving(arrived, duration=0)
    per_second = SECOND / duration
    return Moving(shape, (dx * per_second, dy * per_second, dz * per_second), STILL, duration)


def path(shape: Shape, waypoints: Sequence[Sequence[float]], speed: float) -> Path:
    """Through the waypoints in order, at one speed, stopping at the last."""
    legs: list[Moving] = []
    since = 0
    for place in waypoints:
        leg = line(shape, place, speed).stamped(since)
        legs.append(leg)
        since += leg.duration or 0
        x, y, z = (*place, shape.z)[:3]
        shape = replace(shape, x=float(x), y=float(y), z=float(z))
    return Path(tuple(legs))
