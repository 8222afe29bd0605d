"""Columns of fixes and of fence events."""

from enum import IntEnum
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from nearcast.columns import writable
from nearcast.space.motion import FOREVER

Integers: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]
FenceEvents: TypeAlias = Any  # an array of EVENT


class FenceKind(IntEnum):
    """What happened. At one moment, events of one entity come in this order."""

    LEAVE = 0
    CROSS = 1  # in and out on one way between two fixes
    ENTER = 2
    DWELL = 3  # inside for the fence's `dwell`, once for each visit
    INSIDE = 4  # at every fix; and once for whoever is in a fence that is new
    OUTSIDE = 5  # at every fix


class LeaveReason(IntEnum):
    """Why an entity is no longer inside, or (FENCE_ADDED) why it is reported as inside."""

    NONE = 0
    LEFT = 1
    EXPIRED = 2  # its last fix has outlived its ttl
    GONE = 3  # it was withdrawn
    FENCE_REMOVED = 4
    FENCE_ADDED = 5


# Plain integers beside the enums: numba and tight loops compare these.
LEAVE, CROSS, ENTER, DWELL, INSIDE, OUTSIDE = range(6)
NONE, LEFT, EXPIRED, GONE, FENCE_REMOVED, FENCE_ADDED = range(6)

# `t` is when it happened and `fix_t` when that was decided: the time of the fix, or the moment at
# which nothing more was to be waited for. (x, y, z) is the place. A crossing also has the time and
# place of its end. `direction` is that of the way, in degrees within [0, 360): in the plane
# counter-clockwise from +x, on Earth the bearing, clockwise from north. NaN: there was no way.
EVENT = np.dtype(
    [("t", np.int64), ("fix_t", np.int64), ("entity", np.int64), ("fence", np.int64)]
    + [("kind", np.int8), ("reason", np.int8)]
    + [(name, np.float64) for name in ("x", "y", "z", "direction")]
    + [("t_out", np.int64)]
    + [(name, np.float64) for name in ("x_out", "y_out", "z_out")]
)


class FixColumns(NamedTuple):
    """Columns of fixes, in the order in which they arrived."""

    entity: Integers
    t: Integers  # microseconds
    place: Floats  # (n, 3); on Earth on the surface, in metres
    height: Floats  # metres above the ellipsoid; NaN: unknown. Of no meaning in a plane
    ttl: Integers  # microseconds for which the fix holds; FOREVER: until the next

    def part(self, which: Any) -> "FixColumns":
        """Some of them, by any index of a numpy column."""
        return FixColumns(
            self.entity[which], self.t[which], self.place[which], self.height[which],
            self.ttl[which],
        )  # fmt: skip


def fixes_of(entity: Any, t: Any, place: Any, height: Any = None, ttl: Any = None) -> FixColumns:
    """Columns of fixes from anything that numpy reads; places have two or three numbers."""
    entities, times = writable(entity, np.int64), writable(t, np.int64)
    given = np.asarray(place, np.float64).reshape(len(entities), -1)
    places = np.zeros((len(entities), 3))
    places[:, : given.shape[1]] = given
    heights = np.full(len(entities), np.nan) if height is None else writable(height, np.float64)
    lives = np.full(len(entities), FOREVER) if ttl is None else writable(ttl, np.int64)
    if not len(entities) == len(times) == len(heights) == len(lives):
        raise ValueError("columns of fixes must have the same length")
    if not np.isfinite(places).all():
        raise ValueError("places of fixes must be finite numbers")
    return FixColumns(entities, times, places, heights, lives)


def no_events() -> FenceEvents:
    return np.empty(0, EVENT)


def in_order(events: FenceEvents) -> FenceEvents:
    """Sorted by when they were decided, then entity, time and fence; of one moment in the order in
    which they were found, because one may enter and leave then. Where an entity is, comes last."""
    if len(events) < 2:
        return events
    where = np.where(events["kind"] >= INSIDE, events["kind"], 0)
    return events.take(
        np.lexsort((where, events["fence"], events["t"], events["entity"], events["fix_t"]))
    )
