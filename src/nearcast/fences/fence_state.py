"""The state machine of fence events: fences, fixes and moments in, events out.

Every input returns the events that it decides, in order. An entity stands at its last fix until
the next one, so whatever becomes due meanwhile (dwell, linger, ttl, an area that moves) is decided
without a fix, when `advance` is called. Call it after all fixes up to that moment have been given:
then the events depend on the data alone, not on how it was cut into batches.

The time of a transition on a way is interpolated, also if something about the same fence was
decided at a later moment; then it is that moment. Events of an entity come in the order in which
they are decided (`fix_t`), then by time.
"""

from collections.abc import Iterable, Sequence
from copy import copy
from heapq import heapify, heappop, heappush
from math import nan
from typing import Any

import numpy as np

from nearcast.fences.areas import NEVER, Fence, FenceColumns, columns_of
from nearcast.fences.event_columns import (
    EventLog,
    outside_events,
    spots_of,
    write_events,
)
from nearcast.fences.events import (
    CROSS,
    EXPIRED,
    FENCE_ADDED,
    FENCE_REMOVED,
    GONE,
    INSIDE,
    LEAVE,
    LEFT,
    NONE,
    OUTSIDE,
    FenceEvents,
    FixColumns,
    Integers,
    in_order,
)
from nearcast.fences.fence_index import COMES, DISAPPEARS, VISIT, FenceIndex, find_inside
from nearcast.fences.last_fixes import LastFixes
from nearcast.fences.moving_fences import MovingFences, PairVisit, place_shape
from nearcast.fences.visits import NO_PLACE, FenceVisit, due, fire_due, follow_visit, settle_row
from nearcast.space.motion import SECOND, Time

_NO_VISITS = np.empty(0, VISIT)
ONLY = np.zeros(1, np.int64)  # the slot of an area in a table of its own
LOOK_AHEAD = SECOND // 20  # while areas move, `due` is at most so far away


class FenceEngine:
    """Holds fences, the last fix of each entity, and the visits whose end is awaited.

    `earth`: places are on Earth, so directions of ways are bearings.
    """

    def __init__(self, earth: bool = False) -> None:
        self.index = FenceIndex(earth)
        self.moving = MovingFences(earth)
        self.last = LastFixes()
        self._visits: dict[int, dict[int, FenceVisit]] = {}  # by fence and entity
        self._due: list[tuple[Time, int, int]] = []  # a heap of moment, fence, entity; some void
        self._asking_outside: set[int] = set()  # fences that want `outside`

    def __len__(self) -> int:
        return len(self.index) + len(self.moving.fences)

    @property
    def refused(self) -> int:
        """Fixes that were older than the last one of their entity."""
        return self.last.refused

    def without_entities(self) -> "FenceEngine":
        """Another engine with the same fences, which both then share, and nobody in them."""
        other = copy(self)
        other.last, other._visits, other._due = LastFixes(), {}, []
        return other

    # Fences

    def put_fences(self, fences: FenceColumns, now: Time) -> FenceEvents:
        """Add fences, or replace those that have the same numbers.

        Who is inside of a new one is reported as `inside`, with the reason FENCE_ADDED, and counts
        as having entered now. One that is replaced is entered and left as its area changes; but one
        that moved is removed first.
        """
        numbers = fences.areas["number"]
        if len(np.unique(numbers)) < len(numbers):
            raise ValueError("a fence's number occurs twice in one request")
        log = EventLog()
        log.add(self.remove_fences(self.moving.fences.keys() & set(numbers.tolist()), now))
        known = np.array([n in self.index.slots for n in numbers.tolist()], np.bool_)
        gone, before, old = self._find_inside(numbers[known], DISAPPEARS, LEFT, now)
        self.index.remove(numbers[known])
        slots = self.index.put(fences, now)
        self._asking_outside.difference_update(numbers.tolist())
        asking = fences.areas["kinds"] & (1 << OUTSIDE) != 0
        self._asking_outside.update(numbers[asking].tolist())
        come, after, areas = self._find_inside(numbers[known], COMES, NONE, now)
        stayed = np.intersect1d(_pairs(gone, before, old), _pairs(come, after, areas))
        before = before[~np.isin(_pairs(gone, before, old), stayed)]
        after = after[~np.isin(_pairs(come, after, areas), stayed)]
        self._decide(gone, before, old, log)
        self._decide(come, after, areas, log)
        if not known.all():
            new = self.last.everybody(COMES, FENCE_ADDED, now)
            self._decide(new, self.index.find_among(new, slots[~known]), self.index.areas, log)
        return in_order(log.events())

    def move_fences(self, fences: FenceColumns, times: Integers) -> FenceEvents:
        """Fences that stand still have other areas, each since its own moment; nobody has moved
        since the first. All entities are looked at for each: this is for some fences, not for very
        many."""
        numbers = fences.areas["number"]
        slots = np.array([self.index.slots[number] for number in numbers.tolist()], np.int64)
        before = find_inside(slots, self.index.table, self.last.fixes)
        self.index.remove(numbers)
        slots = self.index.put(fences, times)
        after = find_inside(slots, self.index.table, self.last.fixes)
        log, areas = EventLog(), self.index.areas[slots]
        self._change(before & ~after, DISAPPEARS, LEFT, times, areas, log)
        self._change(after & ~before, COMES, NONE, times, areas, log)
        return in_order(log.events())

    def put_moving(self, fences: Sequence[Fence], now: Time) -> FenceEvents:
        """As `put_fences`, for fences that move or grow; one that stood still is removed first."""
        log = EventLog()
        log.add(self.remove_fences([f.number for f in fences if f.number in self.index.slots], now))
        for fence in fences:
            known = self.moving.fences.get(fence.number)
            before = np.zeros(len(self.last.fixes), np.bool_)
            if known is not None:
                standing = self.last.everybody(COMES, NONE, now)
                moved = self.moving.find_standing(standing, [fence.number], settles=True)
                self._follow(moved, log)
                before = find_inside(ONLY, self.moving.area_at(known, now), self.last.fixes)[0]
            self.moving.put(fence, now)
            table = self.moving.area_at(fence, now)
            after = find_inside(ONLY, table, self.last.fixes)[0]
            added = NONE if known is not None else FENCE_ADDED
            self._change(before & ~after, DISAPPEARS, LEFT, now, table[0], log)
            self._change(after & ~before, COMES, added, now, table[0], log)
        return in_order(log.events())

    def _change(
        self, changed: Any, what: int, reason: int, times: Any, areas: Any, log: EventLog
    ) -> None:
        """Some of the last fixes come into, or disappear from, one of these areas: a column of
        `changed` for each fix, and if they are several, a row for each area."""
        which, where = np.nonzero(np.atleast_2d(changed))
        rows = self.last.rows(where, what, reason, np.broadcast_to(times, len(areas))[which])
        visits = np.zeros(len(rows), VISIT)
        visits["row"], visits["slot"] = np.arange(len(rows)), which
        visits["t_in"] = visits["t_out"] = rows["t1"]
        visits["begins"], visits["ends"] = what == COMES, what == DISAPPEARS
        self._decide(rows, visits, areas, log)

    def entities_inside(self, number: int, now: Time) -> Integers:
        """Who is in this fence now."""
        table, slots = self.index.table, np.array([self.index.slots.get(number, 0)])
        if number in self.moving.fences:
            table, slots = self.moving.area_at(self.moving.fences[number], now), ONLY
        fixes = self.last.fixes
        entities: Integers = fixes["entity"][find_inside(slots, table, fixes)[0]]
        return entities

    def remove_fences(self, numbers: Iterable[int], now: Time) -> FenceEvents:
        """Remove fences; whoever is inside leaves. Unknown numbers do not matter."""
        wanted = set(numbers)
        known = np.array([n for n in wanted if n in self.index.slots], np.int64)
        moving = [n for n in wanted if n in self.moving.fences]
        log = EventLog()
        rows, visits, areas = self._find_inside(known, DISAPPEARS, FENCE_REMOVED, now)
        self._decide(rows, visits, areas, log)
        if moving:
            rows = self.last.everybody(DISAPPEARS, FENCE_REMOVED, now)
            self._follow(self.moving.find(rows, moving), log)
        for number in [*known.tolist(), *moving]:
            area = self._area(number, now)
            for entity, visit in self._visits.pop(number, {}).items():  # they linger
                report = log.reporter(number, int(area["kinds"]), entity)
                if fire_due(visit, int(area["dwell"]), int(area["linger"]), now, report):
                    report(LEAVE, visit.left, now, LEFT, visit.left_place, 0, NO_PLACE)
        for number in moving:
            self.moving.remove(number)
        self._asking_outside.difference_update(known.tolist())
        self.index.remove(known)
        return in_order(log.events())

    def _find_inside(self, numbers: Integers, what: int, reason: int, now: Time) -> Any:
        """Everybody as rows, who of them is inside of these fences, and the fences' areas."""
        rows = self.last.everybody(what, reason, now)
        slots = np.array([self.index.slots[number] for number in numbers.tolist()], np.int64)
        if not len(slots):
            return rows, _NO_VISITS, self.index.areas
        visits = self.index.find_among(rows, slots)
        areas = self.index.areas[visits["slot"]]  # a copy: slots are used again
        visits["slot"] = np.arange(len(visits))
        return rows, visits, areas

    # Fixes

    def fixes(self, fixes: FixColumns) -> FenceEvents:
        """Where entities are. A fix that is older than the last one of its entity is refused."""
        log = EventLog()
        rows = self.last.take(fixes)
        self._decide_rows(rows, log)
        if self._asking_outside:
            slots = np.array([self.index.slots[n] for n in sorted(self._asking_outside)])
            log.add(outside_events(rows, slots, self.index.table))
        for fence in self.moving.fences.values():
            if fence.kinds & (1 << INSIDE | 1 << OUTSIDE):
                self._report_positions(fence, rows[rows["what"] != DISAPPEARS], log)
        return in_order(log.events())

    def _report_positions(self, fence: Fence, rows: Any, log: EventLog) -> None:
        """`inside` and `outside` of a fence that moves."""
        for row in rows:
            t = int(row["t1"])
            inside = fence.region.touches(place_shape(row["p1"].tolist()), t)
            report = log.reporter(fence.number, fence.kinds, int(row["entity"]))
            spot = (*row["p1"][:3].tolist(), nan)
            report(INSIDE if inside else OUTSIDE, t, t, NONE, spot, 0, NO_PLACE)

    def withdraw(self, entities: Iterable[int], now: Time, reason: int = GONE) -> FenceEvents:
        """These entities leave all fences. Unknown ones do not matter."""
        log = EventLog()
        self._decide_rows(self.last.withdraw(np.fromiter(entities, np.int64), reason, now), log)
        return in_order(log.events())

    def advance(self, now: Time) -> FenceEvents:
        """What becomes due up to and including this moment without a fix."""
        log = EventLog()
        self._decide_rows(self.last.expire(EXPIRED, now), log)
        if self.moving.fences:
            self._follow(self.moving.find_standing(self.last.everybody(COMES, NONE, now)), log)
        self.moving.told_until = max(self.moving.told_until, now)
        while self._due and self._due[0][0] <= now:
            _, number, entity = heappop(self._due)
            visit = self._visits.get(number, {}).get(entity)
            if visit is not None:
                area = self._area(number, now)
                dwell, linger = int(area["dwell"]), int(area["linger"])
                report = log.reporter(number, int(area["kinds"]), entity)
                visit = fire_due(visit, dwell, linger, now, report)
                self._keep(number, dwell, linger, entity, visit, NEVER)
        return in_order(log.events())

    def due(self) -> Time:
        """The next moment at which `advance` may have something to do; NEVER: there is none."""
        moment = min(self._due[0][0] if self._due else NEVER, self.last.next_expiry)
        if self.moving.in_motion:
            moment = min(moment, self.moving.told_until + LOOK_AHEAD)
        return moment

    def _area(self, number: int, now: Time) -> Any:
        if number in self.moving.fences:
            return columns_of([self.moving.fences[number]], now).areas[0]
        return self.index.areas[self.index.slots[number]]

    # Visits

    def _decide_rows(self, rows: Any, log: EventLog) -> None:
        if len(rows):
            self._decide(rows, self.index.find(rows), self.index.areas, log)
            self._follow(self.moving.find(rows), log)

    def _decide(self, rows: Any, visits: Any, areas: Any, log: EventLog) -> None:
        """Report what visits mean: in columns, but for fences with dwell or linger."""
        if not len(visits):
            return
        dwelling = areas["dwell"][visits["slot"]] < NEVER
        lingering = (areas["linger"][visits["slot"]] > 0) & ~dwelling
        if lingering.any():
            some = _in_order_of_rows(visits[lingering])
            visited = areas[some["slot"]]
            rules = zip(visited["linger"].tolist(), visited["kinds"].tolist(), strict=True)
            options = dict(zip(visited["number"].tolist(), rules, strict=True))
            changes = (some["begins"] != 0) | (some["ends"] != 0)
            changes &= rows["reason"][some["row"]] != FENCE_ADDED
            events = write_events(rows, some, areas)
            which = some["row"][changes]
            stays = rows["what"][which] != DISAPPEARS
            self._linger(
                events, list(zip(which.tolist(), stays.tolist(), strict=True)), options, log
            )
            visits, dwelling = visits[~lingering], dwelling[~lingering]
        log.add(write_events(rows, visits, areas))
        some = _in_order_of_rows(visits[dwelling])
        once = {row: rows[row] for row in some["row"].tolist()}
        self._follow(
            [PairVisit(once[int(visit["row"])], areas[visit["slot"]], visit) for visit in some], log
        )

    def _linger(
        self, events: FenceEvents, rows: list[tuple[int, bool]],
        options: dict[int, tuple[Time, int]], log: EventLog,
    ) -> None:  # fmt: skip
        """Report what events mean to fences with linger and these kinds of events, and without
        dwell; in order of time for each pair. `rows`: of each event that is not of a fix alone, its
        row, and whether the entity is still there."""
        at_fixes = events["kind"] >= INSIDE
        log.add(events[at_fixes])
        pairs = [
            (row, *event[2:4], stays, event)
            for (row, stays), event in zip(rows, events[~at_fixes].tolist(), strict=True)
        ]
        for k, (*_, stays, event) in enumerate(pairs):
            t, decided, entity, number, kind, reason, x, y, z, direction, t_out, *out = event
            linger, kinds = options[number]
            report = log.reporter(number, kinds, entity)
            visit = self._visits.get(number, {}).get(entity)
            before = NEVER if visit is None else due(visit, NEVER, linger)
            if k == 0 or pairs[k - 1][:3] != pairs[k][:3]:
                visit = fire_due(visit, NEVER, linger, decided - stays, report)
            here = t, (x, y, z, direction)
            if kind == LEAVE:
                visit = visit or FenceVisit(0)  # it is inside, and not remembered
                visit = follow_visit(visit, NEVER, linger, decided, None, here, reason, report)
            else:
                leaving = (t_out, (out[0], out[1], out[2], direction)) if kind == CROSS else None
                visit = follow_visit(visit, NEVER, linger, decided, here, leaving, LEFT, report)
            if k + 1 == len(pairs) or pairs[k + 1][:3] != pairs[k][:3]:
                visit = settle_row(visit, NEVER, linger, decided, report)
            self._keep(number, NEVER, linger, entity, visit, before)

    def _follow(self, pairs: list[PairVisit], log: EventLog) -> None:
        """Report what visits mean to fences with a memory; in order of time for each pair."""
        earliest = -NEVER
        for k, (row, area, found) in enumerate(pairs):
            number, entity, decided = int(area["number"]), int(row["entity"]), int(row["t1"])
            dwell, linger = int(area["dwell"]), int(area["linger"])
            added = int(row["reason"]) == FENCE_ADDED
            report = log.reporter(number, int(area["kinds"]), entity, added)
            visit = self._visits.get(number, {}).get(entity)
            if visit is None and dwell == NEVER and not found["begins"]:
                visit = FenceVisit(0)  # it is inside, and not remembered
            before = NEVER if visit is None else due(visit, dwell, linger)
            disappears = int(row["what"]) == DISAPPEARS
            if k == 0 or not _same_row(pairs[k - 1], pairs[k]):
                visit = fire_due(visit, dwell, linger, decided - (not disappears), report)
                # What was decided while it stood there is not followed by something earlier.
                earliest = visit.entered + dwell if visit is not None and visit.dwelt else -NEVER
            entering, leaving = spots_of(row, area, found)
            visit = follow_visit(
                visit, dwell, linger, decided,
                (max(int(found["t_in"]), earliest), entering) if found["begins"] else None,
                (max(int(found["t_out"]), earliest), leaving) if found["ends"] else None,
                int(row["reason"]) if disappears else LEFT, report,
            )  # fmt: skip
            if k + 1 == len(pairs) or not _same_row(pairs[k], pairs[k + 1]):
                visit = settle_row(visit, dwell, linger, decided, report)
            self._keep(number, dwell, linger, entity, visit, before)

    def _keep(
        self, number: int, dwell: Time, linger: Time, entity: int, visit: FenceVisit | None,
        before: Time,
    ) -> None:  # fmt: skip
        """Remember the visit if more than being inside matters about it, and the moment at which
        it needs attention unless it is `before`."""
        if visit is None or (visit.left == NEVER and dwell == NEVER):
            inside = self._visits.get(number)
            if inside is not None and inside.pop(entity, None) is not None and not inside:
                del self._visits[number]
            return
        self._visits.setdefault(number, {})[entity] = visit
        moment = due(visit, dwell, linger)
        if moment < NEVER and moment != before:
            heappush(self._due, (moment, number, entity))
        if len(self._due) > 1024 and len(self._due) > 8 * sum(map(len, self._visits.values())):
            self._drop_void_moments()

    def _drop_void_moments(self) -> None:
        """Visits that ended early have left their moments behind."""
        self._due = [
            (moment, number, entity)
            for number, inside in self._visits.items()
            for area in (self._area(number, 0),)
            for entity, visit in inside.items()
            if (moment := due(visit, int(area["dwell"]), int(area["linger"]))) < NEVER
        ]
        heapify(self._due)


def _in_order_of_rows(visits: Any) -> Any:
    return visits[np.argsort(visits["row"], kind="stable")]


def _same_row(one: PairVisit, other: PairVisit) -> bool:
    return one.row is other.row and bool(one.area["number"] == other.area["number"])


def _pairs(rows: Any, visits: Any, areas: Any) -> Any:
    """Fence and entity of each visit, as values that can be compared."""
    pairs = np.empty(len(visits), [("fence", np.int64), ("entity", np.int64)])
    pairs["fence"] = areas["number"][visits["slot"]]
    pairs["entity"] = rows["entity"][visits["row"]]
    return pairs
