"""Less than everything, for those who ask for it: by distance, the closest alone, by budget.

`rates`: of each publisher beyond a distance from the region's centre, at most so many messages a
second, which is to say that they are so far apart. `closest`: messages of the N publishers alone
whose last known place is closest to the centre, among those whose latest words were for here.
`budget`: bytes a second, a bucket that holds those of one second; the nearest come first, and one
that overdraws it is paid for by those who come later. What is withheld is counted, by the first of
these three that stands against it.

Only subscriptions that ask for it pay. All of a batch is decided in columns; a subscription that
spares and a voice make one number, by which is kept what must be known about the two.
"""

from math import ceil, inf
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from nearcast.matching.matcher import Floats, Integers
from nearcast.model.subscription import Formula, Region
from nearcast.service.client_state import SlotAllocator, Wish
from nearcast.service.retained_state import BITS, VOICE, RetainedStates, Said, among
from nearcast.space.motion import FOREVER, SECOND, Path, Time
from nearcast.space.shapes import EVERYWHERE

ENVELOPE = 64  # bytes that a message costs beside its payload, about
RULES = 4  # of one subscription's rates
SLOWEST = 0.01  # messages a second, unless none
NEVER = -FOREVER  # before everything, and still no overflow
NEVER_AGAIN = 2**63 - 1
EVERYBODY = 2**31
KEPT, RATE, CLOSEST, BUDGET = 0, 1, 2, 3
Verdicts: TypeAlias = NDArray[np.uint8]


def check_wish(wish: Wish, region: Region | str) -> None:
    """ValueError if it is none, or speaks of the centre of what has none."""
    if len(wish.rates) > RULES:
        raise ValueError(f"a subscription has at most {RULES} rates")
    for beyond, most in wish.rates:
        if not 0 <= beyond < inf:
            raise ValueError(f"a rate holds beyond a distance of 0 or more, not {beyond}")
        if most != 0 and not SLOWEST <= most < inf:
            raise ValueError(f"a rate is 0 or at least {SLOWEST} messages a second, not {most}")
    if wish.closest is not None and wish.closest < 1:
        raise ValueError(f"the closest publishers are at least one, not {wish.closest}")
    if wish.budget is not None and not 0 < wish.budget < inf:
        raise ValueError(f"a budget is above 0 bytes a second, not {wish.budget}")
    if (wish.rates or wish.closest is not None) and not has_centre(region):
        raise ValueError("rates and closest need an area with a centre")


def has_centre(region: Region | str) -> bool:
    if isinstance(region, str | Formula):
        return False
    return isinstance(region, Path) or region.shape != EVERYWHERE


# One who spares: where its centre is and goes, what it asked for, and what it has left.
SPARER = np.dtype(
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
    """What was withheld from one of them since it was last told."""

    sparer: int
    rate: int
    closest: int
    budget: int


class Throttle:
    def __init__(self) -> None:
        self._numbers = SlotAllocator()
        self._rows = np.zeros(64, SPARER)
        self._walks: dict[int, Path] = {}
        self._ended: list[int] = []
        self._pairs: Integers = np.empty(0, np.int64)  # of sparer and voice, sorted
        self._near: NDArray[np.bool_] = np.empty(0, np.bool_)  # was its latest word for here?
        self._last: Integers = np.empty(0, np.int64)  # when it was last heard

    def __len__(self) -> int:
        """Those that have ended count until the next tick."""
        return len(self._numbers)

    def begin(self, t: Time, wish: Wish, region: Region) -> int:
        """One more, with a full bucket."""
        sparer = self._numbers.take()
        if sparer == len(self._rows):
            self._rows = np.concatenate((self._rows, np.zeros_like(self._rows)))
        row, rates = self._rows[sparer], sorted(wish.rates)
        row["beyond"] = [beyond for beyond, _ in rates] + [inf] * (RULES - len(rates))
        row["apart"] = [0] + [_apart(most) for _, most in rates] + [0] * (RULES - len(rates))
        row["longest"] = max((a for a in row["apart"].tolist() if a < NEVER_AGAIN), default=0)
        row["closest"] = EVERYBODY if wish.closest is None else min(wish.closest, EVERYBODY)
        row["budget"] = row["left"] = inf if wish.budget is None else wish.budget
        row["filled"] = row["told"] = t
        row["withheld"] = 0
        self.move(t, sparer, region)
        return sparer

    def move(self, t: Time, sparer: int, region: Region) -> None:
        """From `t` on its centre is there, and goes where the region goes."""
        self._walks.pop(sparer, None)
        row = self._rows[sparer]
        row["centred"], row["next_leg"] = has_centre(region), FOREVER
        if isinstance(region, Formula):
            return
        leg = region.leg(t) if isinstance(region, Path) else region
        if isinstance(region, Path):
            self._walks[sparer] = region
            later = (further.since for further in region.legs if further.since > t)
            row["next_leg"] = next(later, FOREVER)
        row["centre"] = leg.shape.x, leg.shape.y, leg.shape.z
        row["velocity"], row["since"], row["until"] = leg.velocity, leg.since, leg.until

    def end(self, sparer: int) -> None:
        self._walks.pop(sparer, None)
        self._rows[sparer]["withheld"], self._rows[sparer]["next_leg"] = 0, FOREVER
        self._ended.append(sparer)

    def spare(
        self, t: Time, sparer: Integers, publication: Integers, said: Said, voices: RetainedStates
    ) -> Verdicts:
        """KEPT, or why not, for each pair of one who spares and a publication it could hear."""
        for number in np.flatnonzero(self._rows["next_leg"][: self._numbers.used] <= t).tolist():
            self.move(t, number, self._walks[number])
        voice, centre = said["voice"][publication], said["centre"][publication]
        pair = (sparer << BITS) | voice
        met = self._met(pair)
        distance = self._distance(t, sparer, centre)
        verdict = np.zeros(len(pair), np.uint8)
        verdict[~self._rare(t, sparer, pair, met, distance)] = RATE
        self._note_near(said["voice"], met[self._rows["closest"][sparer] < EVERYBODY], voices.left)
        verdict[(verdict == KEPT) & ~self._close(t, sparer, met, voices.places)] = CLOSEST
        size = said["size"][publication] + ENVELOPE
        kept = np.flatnonzero((verdict == KEPT) & (self._rows["budget"][sparer] < inf))
        verdict[kept[~self._paid(t, sparer[kept], distance[kept], size[kept])]] = BUDGET
        self._last[met[verdict == KEPT]] = t
        for reason in (RATE, CLOSEST, BUDGET):
            counts = np.bincount(sparer[verdict == reason], minlength=len(self._rows))
            self._rows["withheld"][:, reason - 1] += counts
        return verdict

    def _met(self, pair: Integers) -> Integers:
        """Where in the table they are; those who meet for the first time get a place there."""
        fresh = _distinct(pair[~among(pair, self._pairs)])
        if len(fresh):
            pairs = np.concatenate((self._pairs, fresh))
            order = np.argsort(pairs, kind="stable")
            self._pairs = pairs[order]
            self._near = np.concatenate((self._near, np.zeros(len(fresh), np.bool_)))[order]
            self._last = np.concatenate((self._last, np.full(len(fresh), NEVER)))[order]
        return np.searchsorted(self._pairs, pair)

    def _distance(self, t: Time, sparer: Integers, place: Floats) -> Floats:
        """From the centre, which is where `Moving.at` says. What has none is close to everybody."""
        rows = self._rows
        ran = np.maximum(np.minimum(t, rows["until"][sparer]) - rows["since"][sparer], 0) / 1e6
        away = rows["centre"][sparer] + rows["velocity"][sparer] * ran[:, None] - place
        x, y, z = away.T
        with np.errstate(over="ignore"):  # beyond all numbers is far enough
            distance = np.sqrt(x * x + y * y + z * z)
        return np.where(rows["centred"][sparer], distance, 0.0)

    def _rare(
        self, t: Time, sparer: Integers, pair: Integers, met: Integers, distance: Floats
    ) -> NDArray[np.bool_]:
        """Which are far enough apart, in time, from what was heard of the same publisher?"""
        rule = np.sum(distance[:, None] > self._rows["beyond"][sparer], axis=1)
        apart = self._rows["apart"][sparer, rule]
        ready = t - self._last[met] >= apart
        candidates = np.flatnonzero(ready)
        first = np.zeros(len(pair), np.bool_)
        first[candidates[np.unique(pair[candidates], return_index=True)[1]]] = True
        rare: NDArray[np.bool_] = ready & (first | (apart == 0))
        return rare

    def _note_near(self, spoke: Integers, met: Integers, left: Integers) -> None:
        """Who has spoken is near those alone who could hear it; who has left, near nobody."""
        voice = self._pairs & VOICE
        self._near[np.isin(voice, spoke)] = False
        self._near[met] = True
        self._near[np.isin(voice, left)] = False

    def _close(self, t: Time, sparer: Integers, met: Integers, places: Floats) -> NDArray[np.bool_]:
        """Whose publisher is among the closest? Of two as far away, the lower voice is closer."""
        closest = self._rows["closest"]
        near = np.flatnonzero(self._near)
        who = self._pairs[near] >> BITS
        crowds = np.bincount(who, minlength=len(closest)) > closest
        crowds &= np.isin(np.arange(len(closest)), sparer)
        crowded = crowds[who]
        near, who = near[crowded], who[crowded]
        distance = self._distance(t, who, places[self._pairs[near] & VOICE])
        order = np.lexsort((distance, who))
        near, who = near[order], who[order]
        rank = np.arange(len(who)) - _begins(who)
        far = np.zeros(len(self._pairs), np.bool_)
        far[near[rank >= closest[who]]] = True
        return ~far[met]

    def _paid(
        self, t: Time, sparer: Integers, distance: Floats, size: Integers
    ) -> NDArray[np.bool_]:
        """Which does the bucket pay for? The nearest first, as long as it is not empty."""
        rows, spenders = self._rows, _distinct(sparer)
        budget, left = rows["budget"][spenders], rows["left"][spenders]
        filled = left + budget * ((t - rows["filled"][spenders]) / 1e6)
        rows["left"][spenders], rows["filled"][spenders] = np.minimum(filled, budget), t
        order = np.lexsort((distance, sparer))
        who, cost = sparer[order], size[order]
        before = np.cumsum(cost) - cost
        before -= before[_begins(who)]
        paid = np.zeros(len(sparer), np.bool_)
        paid[order] = before < rows["left"][who]
        rows["left"] -= np.bincount(sparer[paid], size[paid], len(rows))
        return paid

    def told(self, now: Time) -> list[ThrottleCounts]:
        """Once a second for each: what was withheld. It is counted from 0 again."""
        rows = self._rows[: self._numbers.used]
        due = np.flatnonzero((now - rows["told"] >= SECOND) & rows["withheld"].any(axis=1))
        counts = [
            ThrottleCounts(sparer, *withheld)
            for sparer, withheld in zip(due.tolist(), rows["withheld"][due].tolist(), strict=True)
        ]
        rows["withheld"][due], rows["told"][due] = 0, now
        return counts

    def forget(self, now: Time, left: Integers) -> None:
        """What need not be known any more: of the ended, of voices that left, of long ago."""
        who = self._pairs >> BITS
        kept = self._near | (self._last > now - self._rows["longest"][who])
        kept &= ~np.isin(who, self._ended) & ~np.isin(self._pairs & VOICE, left)
        self._pairs, self._near, self._last = self._pairs[kept], self._near[kept], self._last[kept]
        for sparer in self._ended:
            self._numbers.give(sparer)
        self._ended.clear()


def _distinct(column: Integers) -> Integers:
    """As `np.unique`, which hashes, and takes twenty times as long."""
    ordered = np.sort(column)
    first: NDArray[np.bool_] = _begins(ordered) == np.arange(len(ordered))
    return np.compress(first, ordered)


def _begins(who: Integers) -> Integers:
    """For each of a sorted column, where the run of its equals begins."""
    places = np.arange(len(who))
    places[1:][who[1:] == who[:-1]] = 0
    return np.maximum.accumulate(places)


def _apart(most: float) -> Time:
    """Microseconds between two messages, so that there are at most so many a second."""
    return NEVER_AGAIN if most == 0 else ceil(SECOND / most)
