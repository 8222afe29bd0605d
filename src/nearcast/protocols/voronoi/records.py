"""The records of one site as numpy columns: thousands of moving areas in a few operations.

A record has a slot. Columns have its present leg of motion, its owner and its checksum for digests.
The diagram is of x and y; matching checks z.
"""

from collections.abc import Iterable, Iterator, Sequence
from math import inf
from typing import Any, TypeVar

import numpy as np
from numba import njit
from numpy.typing import NDArray

from nearcast.columns import grow
from nearcast.matching.grid_build import elapsed as compiled_elapsed
from nearcast.model.predicates import Interval, box_at
from nearcast.model.subscription import Formula, NodeId, Region, SubscriptionId
from nearcast.protocols.voronoi.vso.messages import Place, Record
from nearcast.space.motion import FOREVER, Moving, Path, Time, elapsed
from nearcast.space.shapes import DISC

FIRST_ROOM = 64
AT_ONCE = 256  # records of one message at most
BYTES_AT_ONCE = 500_000  # of their outlines and paths, unless one alone has more
LEG_BYTES = 150  # of a leg of a path
Element = TypeVar("Element")
NOBODY = -1
NEVER: Time = -1
X, Y, RX, RY, VX, VY, GX, GY = range(8)
Slots = NDArray[np.int64]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

FARTHEST = 1e29  # the diagram is exact a little beyond
_LOW = 2**53 - 1
_WORD = 2**64 - 1
_PRIMES = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0xD6E8FEB86659FD93)


def in_messages(several: Sequence[Element]) -> Iterator[tuple[Element, ...]]:
    """Records, or tuples that may have a region, in parts that fit into one message each."""
    some: list[Element] = []
    size = 0
    for one in several:
        parts = one if isinstance(one, tuple) else (getattr(one, "region", None),)
        bytes_of_one = sum(map(region_bytes, parts))
        if some and (len(some) == AT_ONCE or size + bytes_of_one > BYTES_AT_ONCE):
            yield tuple(some)
            some, size = [], 0
        some.append(one)
        size += bytes_of_one
    if some:
        yield tuple(some)


def region_bytes(region: object) -> int:
    """About how many bytes a region takes in a message, if it is one that may take many."""
    if isinstance(region, Path):
        return LEG_BYTES * len(region.legs)
    outline = region.shape.outline if isinstance(region, Moving) else None
    return 0 if outline is None else len(outline.coordinates) + 3 * len(outline.starts)


def leg(region: Region, now: Time) -> tuple[tuple[float, ...], Time, Time, Time, bool]:
    """The motion under way in x and y; from when, until when it moves, until when it holds;
    and whether it is round.

    A formula may be anywhere at some time, so it reaches everywhere; its centre is that of the
    zone where it began, as far as that has bounds.
    """
    if isinstance(region, Formula):
        began = box_at(region.parsed, 0.0)
        x, y = (0.0, 0.0) if began is None else (_middle(began.x), _middle(began.y))
        return (x, y, inf, inf, 0.0, 0.0, 0.0, 0.0), region.since, FOREVER, FOREVER, False
    holds = FOREVER
    if isinstance(region, Path):
        legs = region.legs
        region = region.leg(now)
        at = legs.index(region)
        if at + 1 < len(legs):
            holds = legs[at + 1].since
    s, (vx, vy, _), (gx, gy, _) = region.shape, region.velocity, region.growth
    if s.kind == DISC:
        return (s.x, s.y, s.rx, s.rx, vx, vy, gx, gx), region.since, region.until, holds, True
    return (s.x, s.y, s.rx, s.ry, vx, vy, gx, gy), region.since, region.until, holds, False


def _middle(interval: Interval) -> float:
    middle = (interval.low + interval.high) / 2
    return middle if abs(middle) < 1e30 else 0.0


def centre(region: Region, now: Time) -> Place:
    """Where it is now, in x and y, as far as the diagram reaches."""
    (x, y, _, _, vx, vy, _, _), since, until, _, _ = leg(region, now)
    dt = elapsed(now, since, until)
    return _bounded(x + vx * dt), _bounded(y + vy * dt)


@njit(cache=True)
def _areas(
    motion: Any, speed: Any, since: Any, until: Any, is_round: Any, slots: Any, now: int, ahead: int
) -> Any:
    """See `Records.areas`."""
    areas = np.empty((len(slots), 4))
    some_round = False
    for slot in slots:
        some_round |= is_round[slot]
    for k in range(len(slots)):
        slot = slots[k]
        m = motion[slot]
        passed = compiled_elapsed(now, since[slot], until[slot])
        for axis in range(4):
            areas[k, axis] = m[axis] + m[4 + axis] * passed
        if ahead:
            further = compiled_elapsed(now + ahead, since[slot], until[slot]) - passed
            for axis in range(2):
                pace = speed[slot] if some_round else abs(m[VX + axis])
                areas[k, 2 + axis] += max(m[GX + axis], 0.0) * further + pace * further
        for axis in range(2):
            areas[k, axis] = min(max(areas[k, axis], -FARTHEST), FARTHEST)
            areas[k, 2 + axis] = max(areas[k, 2 + axis], 0.0)
    return areas


def _bounded(x: float) -> float:
    return min(max(x, -FARTHEST), FARTHEST)


def mixed(record: Record) -> int:
    """A checksum of id, epoch, owner and version; sums of these detect a difference."""
    number = 0
    parts = record.id, record.epoch, record.owner, record.version
    for part, prime in zip(parts, _PRIMES, strict=True):
        number = (number ^ part) * prime & _WORD
        number ^= number >> 29
    return number & _LOW


class Records:
    """Records by subscription, and as columns by slot."""

    def __init__(self) -> None:
        self.slot: dict[SubscriptionId, int] = {}
        self._held: dict[SubscriptionId, Record] = {}
        self.revision = 0  # grows with every change
        self.at: list[Record | None] = [None] * FIRST_ROOM  # by slot
        self.owner: NDArray[np.int64] = np.full(FIRST_ROOM, NOBODY, np.int64)
        self.outside: NDArray[np.int64] = np.full(FIRST_ROOM, NEVER, np.int64)  # since when
        self._free = list(range(FIRST_ROOM - 1, -1, -1))
        self._motion: Floats = np.zeros((FIRST_ROOM, 8))
        self._speed: Floats = np.zeros(FIRST_ROOM)
        self._since: NDArray[np.int64] = np.zeros(FIRST_ROOM, np.int64)
        self._until: NDArray[np.int64] = np.zeros(FIRST_ROOM, np.int64)
        self._holds: NDArray[np.int64] = np.full(FIRST_ROOM, FOREVER, np.int64)
        self._round: Flags = np.zeros(FIRST_ROOM, np.bool_)
        self._mixed: NDArray[np.uint64] = np.zeros(FIRST_ROOM, np.uint64)

    def __len__(self) -> int:
        return len(self.slot)

    def get(self, subscription: SubscriptionId) -> Record | None:
        return self._held.get(subscription)

    def named(self, subscriptions: Iterable[SubscriptionId]) -> list[Record]:
        """Those of these that are here."""
        return [record for record in map(self._held.get, subscriptions) if record is not None]

    def put(self, record: Record, now: Time) -> int:
        """In a slot of its own, or in that of its predecessor."""
        self.revision += 1
        slot = self.slot.get(record.id)
        before = None
        if slot is None:
            if not self._free:
                self._grow()
            slot = self.slot[record.id] = self._free.pop()
            self.outside[slot] = NEVER
        else:
            before = self.at[slot]
        self.at[slot] = self._held[record.id] = record
        self.owner[slot] = record.owner
        self._mixed[slot] = mixed(record)
        if before is None or before.region is not record.region:
            self._follow(slot, record.region, now)
        return slot

    def drop(self, subscription: SubscriptionId) -> None:
        self.revision += 1
        slot = self.slot.pop(subscription)
        del self._held[subscription]
        self.at[slot] = None
        self.owner[slot] = NOBODY
        self._holds[slot] = FOREVER
        self._free.append(slot)

    def owned_by(self, site: NodeId) -> Slots:
        return np.flatnonzero(self.owner == site)

    def owned_by_others(self, site: NodeId) -> Slots:
        return np.flatnonzero((self.owner != site) & (self.owner != NOBODY))

    def of(self, slots: Slots) -> list[Record]:
        found = [self.at[slot] for slot in slots.tolist()]
        return [record for record in found if record is not None]

    def total(self, slots: Slots) -> int:
        """The checksum of these slots: equal for sites that have the same records."""
        return int(self._mixed[slots].sum(dtype=np.uint64)) & _LOW

    def totals(self, slots: Slots, chosen: Flags) -> NDArray[np.uint64]:
        """The same for several choices among the slots, one in each column."""
        parts = np.where(chosen, self._mixed[slots][:, None], np.uint64(0))
        sums: NDArray[np.uint64] = parts.sum(axis=0, dtype=np.uint64) & np.uint64(_LOW)
        return sums

    def advance(self, now: Time) -> None:
        """Paths come to their next leg."""
        for slot in np.flatnonzero(self._holds <= now).tolist():
            record = self.at[slot]
            if record is not None:
                self._follow(slot, record.region, now)

    def centres(self, slots: Slots, now: Time) -> Floats:
        return self.areas(slots, now)[:, :2]

    def areas(self, slots: Slots, now: Time, ahead: Time = 0) -> Floats:
        """Centre and half-extents now: x, y, rx, ry; wide enough for all of the time `ahead`."""
        areas: Floats = _areas(
            self._motion, self._speed, self._since, self._until, self._round, slots, now, ahead
        )
        return areas

    def round(self, slots: Slots) -> Flags:
        """Which of them are discs, with the radius rx?"""
        return self._round[slots]

    def _follow(self, slot: int, region: Region, now: Time) -> None:
        motion, self._since[slot], self._until[slot], self._holds[slot], self._round[slot] = leg(
            region, now
        )
        self._motion[slot] = motion
        vx, vy = motion[VX], motion[VY]
        self._speed[slot] = np.hypot(vx, vy) if vx or vy else 0.0

    def _grow(self) -> None:
        room = len(self.at)
        self.at += [None] * room
        self._free = list(range(2 * room - 1, room - 1, -1))
        for name, fill in _COLUMNS:
            column = getattr(self, name)
            setattr(self, name, grow(column, 2 * room, fill))


_COLUMNS = (
    ("owner", NOBODY), ("outside", NEVER), ("_motion", 0), ("_speed", 0), ("_since", 0),
    ("_until", 0), ("_holds", FOREVER), ("_round", False), ("_mixed", 0),
)  # fmt: skip
