"""A hashed grid of several levels, compiled: batches in, columns out, subscriptions that move.

Most puts do not touch the index. A subscription that changed is `fresh`: queries test it one by one
and skip its entry in the index, until so many are fresh that rebuilding is cheaper. Moving regions
are indexed for a slice of time (see `grid_build`), formulas by interval arithmetic. A publication
outside the slice causes a rebuild for a new slice. An unbounded formula is tested every time.
"""

from collections.abc import Iterable
from math import inf
from typing import Any

import numpy as np
from msgspec.structs import replace

from nearcast.columns import grow
from nearcast.matching import formula_vm, grid_build
from nearcast.matching.indexed_engine import IndexedEngine, RowSelection
from nearcast.matching.matcher import Floats, Integers, Matcher
from nearcast.matching.rows import FORMULA
from nearcast.model.subscription import (
    Formula,
    Region,
    Subscription,
    SubscriptionId,
    region_evolves,
)
from nearcast.space.motion import FOREVER, SECOND, Moving, Time

VALID, FRESH, GONE = 0, 1, 2  # of a place: in the index, tested apart, or removed
BOX_SIDES = ("vx", "gx"), ("vy", "gy"), ("vz", "gz")  # where a formula's row has its box
UNBOUNDED = -inf, -inf, -inf, inf, inf, inf


class GridMatcher(IndexedEngine, Matcher):
    """The engine for regions: a hashed grid of several levels, rebuilt when it is worth it."""

    def __init__(self) -> None:
        super().__init__()
        self._timed: dict[SubscriptionId, None] = {}  # regions that move or grow
        self._formulas: dict[SubscriptionId, None] = {}  # those of them that are formulas
        self._paces: dict[SubscriptionId, tuple[float, float]] = {}  # and their sizes and speeds
        self._moved: set[SubscriptionId] = set()  # by `move_many`: only their rows say where to
        self._by_id: Integers | None = None  # places of the living in the order of their ids
        self._state = np.zeros(64, np.uint8)
        self._fresh: list[int] = []
        self._apart: Integers | None = None  # tested one by one; None: to be computed
        self._void = 0  # places whose entry in the index is out of date
        self._index: Any = None
        self._slice: tuple[Time, Time] = (0, 0)
        self._reach = 0.0  # how far publications reach, typically
        self._built_for = 0.0
        self._served = 0  # publications since the index was built
        self._stretch = 1.0  # of a slice

    @property
    def fallbacks(self) -> int:
        """How many formulas are unbounded in the present slice: each is tested every time."""
        if self._index is None:
            return 0
        rows = self._rows.array[self._index[3]]
        loose = rows[rows["flags"] & FORMULA != 0]
        bounded = np.zeros(len(loose), bool)
        for low, high in BOX_SIDES:
            bounded |= np.isfinite(loose[low]) & np.isfinite(loose[high])
        return len(loose) - int(np.count_nonzero(bounded))

    def put(self, subscription: Subscription) -> None:
        self._moved.discard(subscription.id)
        before = self._subscriptions.get(subscription.id)
        if before is not None and _differ_in_motion(before, subscription):
            self._put_motion(subscription)
            return
        self.drop(subscription.id)
        self._subscriptions[subscription.id] = subscription
        places = self._places[subscription.id] = self._rows.add(subscription)
        self._by_id = self._apart = None
        region = subscription.region
        if region_evolves(region):
            self._timed[subscription.id] = None
        if isinstance(region, Formula):
            self._put_formula(subscription.id, region)
        self._state = grow(self._state, len(self._rows.array))
        for place in places:
            if self._state[place] != FRESH:
                self._state[place] = FRESH
                self._fresh.append(place)

    def _put_motion(self, subscription: Subscription) -> None:
        """It has moved, as most that are put: it keeps its place."""
        number = subscription.id
        self._subscriptions[number] = subscription
        (place,) = self._places[number]
        self._rows.repack(place, subscription)
        self._apart = None
        if region_evolves(subscription.region):
            self._timed[number] = None
        else:
            self._timed.pop(number, None)
        if self._state[place] != FRESH:
            self._state[place] = FRESH
            self._fresh.append(place)

    def _put_formula(self, subscription: SubscriptionId, formula: Formula) -> None:
        if formula.parsed.evolves:
            self._formulas[subscription] = None
            self._paces[subscription] = self._formula_pace(subscription, formula.since)
        else:
            self._bound([subscription], 0, 0)

    def drop(self, subscription: SubscriptionId) -> None:
        places = self._places.pop(subscription, None)
        if places is None:
            return
        del self._subscriptions[subscription]
        self._moved.discard(subscription)
        self._timed.pop(subscription, None)
        self._formulas.pop(subscription, None)
        self._paces.pop(subscription, None)
        self._rows.remove(places)
        self._by_id = self._apart = None
        for place in places:
            if self._state[place] == VALID:
                self._state[place] = GONE
        self._void += len(places)

    def move_many(self, subscriptions: Integers, centre: Floats, now: Time) -> None:
        """Many puts at once: each of these regions stands still at its centre from `now` on.

        Means a put of each with its shape at the new centre. For regions that are a shape: a path
        or a formula has no single centre to move.
        """
        if self._by_id is None:
            alive = np.flatnonzero(self._rows.array["flags"][: self._rows.used])
            self._by_id = alive[np.argsort(self._rows.array["id"][alive], kind="stable")]
        ids = self._rows.array["id"][self._by_id]
        first = np.searchsorted(ids, subscriptions)
        single = np.searchsorted(ids, subscriptions, "right") - first == 1
        places = self._by_id[first[single]]
        if len(places) < len(subscriptions) or np.any(self._rows.array["flags"][places] & FORMULA):
            raise ValueError("only known subscriptions whose region is one shape can be moved so")
        grid_build.move_rows(self._rows.array, places, centre, now)
        self._moved.update(subscriptions.tolist())
        for subscription in subscriptions.tolist() if self._timed else ():
            self._timed.pop(subscription, None)
        fresh = places[self._state[places] != FRESH]
        self._apart = None
        self._state[fresh] = FRESH
        self._fresh += fresh.tolist()

    def _region(self, subscription: SubscriptionId) -> Region:
        region = super()._region(subscription)
        if subscription not in self._moved or not isinstance(region, Moving):
            return region
        row = self._rows.array[self._places[subscription][0]]
        places = {name: float(row[name]) for name in ("x", "y", "z", "rx", "ry", "rz")}
        return Moving(replace(region.shape, **places))

    def _select_rows(self, count: int, lo: Time, hi: Time, reach: float) -> RowSelection:
        self._prepare(count, lo, hi, reach)
        rows, apart = self._rows.array[: self._rows.used], self._index[3]
        if not self._fresh and not self._void:
            return RowSelection(rows, self._index, apart, self._state[:0])
        if self._apart is None:
            valid = apart[self._state[apart] == VALID]
            self._apart = np.concatenate((valid, np.array(self._fresh, np.int64)))
        return RowSelection(rows, self._index, self._apart, self._state)

    def _prepare(self, count: int, lo: Time, hi: Time, reach: float) -> None:
        """Rebuild the index if it does not cover these moments or too much has changed."""
        self._served += count
        self._reach += (reach - self._reach) * 0.1
        changed = len(self._fresh) + self._void
        tolerable = 32 + 3 * len(self._places) ** 0.5
        covered = self._slice[0] <= lo and hi <= self._slice[1]
        drifted = self._reach > 4 * self._built_for
        if self._index is not None and covered and changed <= tolerable and not drifted:
            return
        used = self._rows.used
        if self._timed and 4 * count < len(self._places):
            # Few publications at a time: a slice that serves many of them. The fewer come, the
            # longer it is: wide boxes cost each of them little, and building costs as ever.
            if not covered and 8 * self._served < len(self._places):
                self._stretch = min(2.0 * self._stretch, 8.0)
            elif not covered and self._served > len(self._places):
                self._stretch = max(0.5 * self._stretch, 1.0)
            ahead = int(min(max(self._stretch * self._calm(), 1e-3), 60.0) * SECOND)
            lo, hi = lo - ahead // 4, hi + ahead
        elif not self._timed:
            lo, hi = -FOREVER, FOREVER - 1
        self._bound(self._formulas, lo, hi)
        self._index = grid_build.build(self._rows.array, used, lo, hi, self._reach)
        self.evaluations += len(self._timed)
        self._slice, self._built_for = (lo, hi), self._reach
        self._state[:] = VALID
        self._apart = None
        self._fresh.clear()
        self._void = self._served = 0

    def _bound(self, formulas: Iterable[SubscriptionId], lo: Time, hi: Time) -> None:
        """Let the rows of these formulas have the boxes that they sweep between two moments."""
        places = np.array([self._places[s][0] for s in formulas], np.int64)
        formula_vm.bound(self._rows.array, places, self._rows.programs.array, lo, hi)

    def _formula_pace(self, subscription: SubscriptionId, since: Time) -> tuple[float, float]:
        """About how large the region is, and how much its box grows in its first second."""
        widths = []
        for lasts in (SECOND, 0):
            self._bound([subscription], since, since + lasts)
            row = self._rows.array[self._places[subscription][0]]
            sides = (row[high] - row[low] for low, high in BOX_SIDES)
            widths.append(max((width for width in sides if 0.0 <= width < inf), default=0.0))
            row["vx"], row["vy"], row["vz"], row["gx"], row["gy"], row["gz"] = UNBOUNDED
        return widths[1] / 2, max(0.0, widths[0] - widths[1])

    def _calm(self) -> float:
        """Seconds in which a typical moving region travels a quarter of its own half-extent.

        Indexing slices of about this length keeps swept boxes tight and rebuilding rare.
        """
        size, speed = grid_build.total_size_and_speed(self._rows.array, self._rows.used)
        size += sum(size for size, _ in self._paces.values())
        speed += sum(speed for _, speed in self._paces.values())
        return 0.25 * size / speed if speed > 0.0 and size > 0.0 else 1.0


def _differ_in_motion(before: Subscription, after: Subscription) -> bool:
    """Are both without filter and outline, on one channel, and in a region of one leg?"""
    return (
        isinstance(before.region, Moving)
        and isinstance(after.region, Moving)
        and before.filter is None
        and after.filter is None
        and before.channel == after.channel
        and before.region.shape.outline is None
        and after.region.shape.outline is None
    )
