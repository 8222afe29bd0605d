"""Fewer deliveries for subscriptions that ask for it: by distance, closest publishers or budget.

`rates`: of each publisher beyond a distance from the region's centre, at most so many messages a
second. `closest`: messages of only those N publishers whose last known position is closest to the
centre, among those whose latest publication matched. `budget`: bytes a second, a token bucket that
holds those of one second; the nearest publishers come first, and a message that overdraws the
bucket is paid for by later ones. What is withheld is counted by the first of the three that
withholds it.

Only throttled subscriptions pay. A flush is decided in columns. A throttled subscription and a feed
make one number, by which the state of the pair is kept.
"""

from math import inf
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from nearcast.columns import SlotAllocator, grow
from nearcast.matching.matcher import Floats, Integers
from nearcast.model.rates import NEVER_AGAIN, RULES, check_rates, has_centre, min_interval
from nearcast.model.subscription import Formula, Region
from nearcast.service.client_state import ThrottleOptions
from nearcast.service.retained_state import (
    FEED_BITS,
    FEED_MASK,
    PublicationTable,
    RetainedStates,
    is_among,
)
from nearcast.space.motion import FOREVER, SECOND, Path, Time

MESSAGE_OVERHEAD = 64  # bytes that a message costs beside its payload, about
NEVER = -FOREVER  # before everything, and still no overflow
EVERYBODY = 2**31
KEPT, RATE, CLOSEST, BUDGET = 0, 1, 2, 3
Decisions: TypeAlias = NDArray[np.uint8]


def check_throttle_options(options: ThrottleOptions, region: Region | str) -> None:
    """ValueError if a value is out of range, or if the region has no centre but needs one."""
    check_rates(options.rates, region)
    if options.closest is not None and options.closest < 1:
        raise ValueError(f"the closest publishers are at least one, not {options.closest}")
    if options.budget is not None and not 0 < options.budget < inf:
        raise ValueError(f"a budget is above 0 bytes a second, not {options.budget}")
    if options.closest is not None and not has_centre(region):
        raise ValueError("rates and closest need an area with a centre")


# A throttled subscription: where its centre is and moves, its options, and what is left.
THROTTLE_DTYPE = np.dtype(
    [
        ("centred", np.bool_), ("centre", np.float64, 3), ("velocity", np.float64, 3),
        ("since", np.int64), ("until", np.int64), ("next_leg", np.int64),
        ("beyond", np.float64, RULES), ("apart", np.int64, RULES + 1), ("longest", np.int64),
        ("closest", np.int64),
        ("budget", np.float64), ("left", np.float64), ("filled", np.int64),
        ("withheld", np.int64, 3), ("told", np.int64),
    ]
)  # fmt: skip


class ThrottleCounts(NamedTuple):
    """Deliveries withheld from one subscription since the last counts."""

    throttled: int
    rate: int
    closest: int
    budget: int


class Throttle:
    """The throttled subscriptions of a node, and what each has received of which feed."""

    def __init__(self) -> None:
        self._slots = SlotAllocator()
        self._rows = np.zeros(64, THROTTLE_DTYPE)
        self._paths: dict[int, Path] = {}
        self._ended: list[int] = []
        self._pairs: Integers = np.empty(0, np.int64)  # of throttled subscription and feed, sorted
        self._near: NDArray[np.bool_] = np.empty(0, np.bool_)  # did its latest publication match?
        self._last: Integers = np.empty(0, np.int64)  # when one was last delivered

    def __len__(self) -> int:
        """Those that have ended count until the next tick."""
        return len(self._slots)

    def begin(self, t: Time, options: ThrottleOptions, region: Region) -> int:
        """Adds a throttled subscription, with a full bucket, and returns its slot."""
        throttled = self._slots.take()
        self._rows = grow(self._rows, throttled + 1)
        row, rates = self._rows[throttled], sorted(options.rates)
        row["beyond"] = [beyond for beyond, _ in rates] + [inf] * (RULES - len(rates))
        row["apart"] = [0] + [min_interval(most) for _, most in rates] + [0] * (RULES - len(rates))
        row["longest"] = max((a for a in row["apart"].tolist() if a < NEVER_AGAIN), default=0)
        row["closest"] = EVERYBODY if options.closest is None else min(options.closest, EVERYBODY)
        row["budget"] = row["left"] = inf if options.budget is None else options.budget
        row["filled"] = row["told"] = t
        row["withheld"] = 0
        self.move(t, throttled, region)
        return throttled

    def move(self, t: Time, throttled: int, region: Region) -> None:
        """From `t` on its centre is there, and goes where the region goes."""
        self._paths.pop(throttled, None)
        row = self._rows[throttled]
        row["centred"], row["next_leg"] = has_centre(region), FOREVER
        if isinstance(region, Formula):
            return
        leg = region.leg(t) if isinstance(region, Path) else region
        if isinstance(region, Path):
            self._paths[throttled] = region
            later = (further.since for further in region.legs if further.since > t)
            row["next_leg"] = next(later, FOREVER)
        row["centre"] = leg.shape.x, leg.shape.y, leg.shape.z
        row["velocity"], row["since"], row["until"] = leg.velocity, leg.since, leg.until

    def end(self, throttled: int) -> None:
        self._paths.pop(throttled, None)
        self._rows[throttled]["withheld"], self._rows[throttled]["next_leg"] = 0, FOREVER
        self._ended.append(throttled)

    def decide(
        self,
        t: Time,
        throttled: Integers,
        publication: Integers,
        table: PublicationTable,
        states: RetainedStates,
    ) -> Decisions:
        """KEPT, or why it is withheld, for each pair of subscription and publication."""
        for number in np.flatnonzero(self._rows["next_leg"][: self._slots.used] <= t).tolist():
            self.move(t, number, self._paths[number])
        feed, centre = table["feed"][publication], table["centre"][publication]
        pair = (throttled << FEED_BITS) | feed
        rows_of_pairs = self._pair_rows(pair)
        distance = self._distance(t, throttled, centre)
        decision = np.zeros(len(pair), np.uint8)
        decision[~self._within_rate(t, throttled, pair, rows_of_pairs, distance)] = RATE
        self._note_near(
            table["feed"], rows_of_pairs[self._rows["closest"][throttled] < EVERYBODY], states.left
        )
        decision[
            (decision == KEPT) & ~self._among_closest(t, throttled, rows_of_pairs, states.positions)
        ] = CLOSEST
        size = table["size"][publication] + MESSAGE_OVERHEAD
        kept = np.flatnonzero((decision == KEPT) & (self._rows["budget"][throttled] < inf))
        paid = self._within_budget(t, throttled[kept], distance[kept], size[kept])
        decision[kept[~paid]] = BUDGET
        self._last[rows_of_pairs[decision == KEPT]] = t
        for reason in (RATE, CLOSEST, BUDGET):
            counts = np.bincount(throttled[decision == reason], minlength=len(self._rows))
            self._rows["withheld"][:, reason - 1] += counts
        return decision

    def _pair_rows(self, pair: Integers) -> Integers:
        """The rows of these pairs; new pairs get new rows."""
        fresh = _sorted_unique(pair[~is_among(pair, self._pairs)])
        if len(fresh):
            pairs = np.concatenate((self._pairs, fresh))
            order = np.argsort(pairs, kind="stable")
            self._pairs = pairs[order]
            self._near = np.concatenate((self._near, np.zeros(len(fresh), np.bool_)))[order]
            self._last = np.concatenate((self._last, np.full(len(fresh), NEVER)))[order]
        return np.searchsorted(self._pairs, pair)

    def _distance(self, t: Time, throttled: Integers, place: Floats) -> Floats:
        """Distance from the region's centre, as `Moving.at` computes it; 0 if it has none."""
        rows = self._rows
        since, until = rows["since"][throttled], rows["until"][throttled]
        ran = np.maximum(np.minimum(t, until) - since, 0) / 1e6
        away = rows["centre"][throttled] + rows["velocity"][throttled] * ran[:, None] - place
        x, y, z = away.T
        with np.errstate(over="ignore"):  # beyond all numbers is far enough
            distance = np.sqrt(x * x + y * y + z * z)
        return np.where(rows["centred"][throttled], distance, 0.0)

    def _within_rate(
        self,
        t: Time,
        throttled: Integers,
        pair: Integers,
        rows_of_pairs: Integers,
        distance: Floats,
    ) -> NDArray[np.bool_]:
        """Which come late enough after the last delivery of the same publisher?"""
        rule = np.sum(distance[:, None] > self._rows["beyond"][throttled], axis=1)
        apart = self._rows["apart"][throttled, rule]
        ready = t - self._last[rows_of_pairs] >= apart
        candidates = np.flatnonzero(ready)
        first = np.zeros(len(pair), np.bool_)
        first[candidates[np.unique(pair[candidates], return_index=True)[1]]] = True
        rare: NDArray[np.bool_] = ready & (first | (apart == 0))
        return rare

    def _note_near(self, spoke: Integers, rows_of_pairs: Integers, left: Integers) -> None:
        """A feed that has published is near only where it matched; one that has ended, nowhere."""
        feed = self._pairs & FEED_MASK
        self._near[np.isin(feed, spoke)] = False
        self._near[rows_of_pairs] = True
        self._near[np.isin(feed, left)] = False

    def _among_closest(
        self, t: Time, throttled: Integers, rows_of_pairs: Integers, places: Floats
    ) -> NDArray[np.bool_]:
        """Whose publisher is among the closest? Of two as far away, the lower feed is closer."""
        closest = self._rows["closest"]
        near = np.flatnonzero(self._near)
        who = self._pairs[near] >> FEED_BITS
        crowds = np.bincount(who, minlength=len(closest)) > closest
        crowds &= np.isin(np.arange(len(closest)), throttled)
        crowded = crowds[who]
        near, who = near[crowded], who[crowded]
        distance = self._distance(t, who, places[self._pairs[near] & FEED_MASK])
        order = np.lexsort((distance, who))
        near, who = near[order], who[order]
        rank = np.arange(len(who)) - _run_starts(who)
        far = np.zeros(len(self._pairs), np.bool_)
        far[near[rank >= closest[who]]] = True
        return ~far[rows_of_pairs]

    def _within_budget(
        self, t: Time, throttled: Integers, distance: Floats, size: Integers
    ) -> NDArray[np.bool_]:
        """Which does the bucket pay for? The nearest first, while it is not empty."""
        rows, spenders = self._rows, _sorted_unique(throttled)
        budget, left = rows["budget"][spenders], rows["left"][spenders]
        filled = left + budget * ((t - rows["filled"][spenders]) / 1e6)
        rows["left"][spenders], rows["filled"][spenders] = np.minimum(filled, budget), t
        order = np.lexsort((distance, throttled))
        who, cost = throttled[order], size[order]
        before = np.cumsum(cost) - cost
        before -= before[_run_starts(who)]
        paid = np.zeros(len(throttled), np.bool_)
        paid[order] = before < rows["left"][who]
        rows["left"] -= np.bincount(throttled[paid], size[paid], len(rows))
        return paid

    def take_counts(self, now: Time) -> list[ThrottleCounts]:
        """Counts of what was withheld, at most once a second for each; they begin at 0 again."""
        rows = self._rows[: self._slots.used]
        due = np.flatnonzero((now - rows["told"] >= SECOND) & rows["withheld"].any(axis=1))
        counts = [
            ThrottleCounts(throttled, *withheld)
            for throttled, withheld in zip(
                due.tolist(), rows["withheld"][due].tolist(), strict=True
            )
        ]
        rows["withheld"][due], rows["told"][due] = 0, now
        return counts

    def forget(self, now: Time, left: Integers) -> None:
        """Removes pairs of subscriptions and feeds that have ended, and pairs that are too old."""
        who = self._pairs >> FEED_BITS
        kept = self._near | (self._last > now - self._rows["longest"][who])
        kept &= ~np.isin(who, self._ended) & ~np.isin(self._pairs & FEED_MASK, left)
        self._pairs, self._near, self._last = self._pairs[kept], self._near[kept], self._last[kept]
        for throttled in self._ended:
            self._slots.give(throttled)
        self._ended.clear()


def _sorted_unique(column: Integers) -> Integers:
    """As `np.unique`, which hashes, and takes twenty times as long."""
    ordered = np.sort(column)
    first: NDArray[np.bool_] = _run_starts(ordered) == np.arange(len(ordered))
    return np.compress(first, ordered)


def _run_starts(who: Integers) -> Integers:
    """For each of a sorted column, where the run of its equals begins."""
    places = np.arange(len(who))
    places[1:][who[1:] == who[:-1]] = 0
    return np.maximum.accumulate(places)
