"""Pairs of entities that come close to each other and go apart, and when exactly.

Each entity has a disc around its last fix, which is a fence for all others (`fence_index`): so an
event of a pair is that of the entity that moves, at the disc of the other one, which stands. Its
time is interpolated on the way, but not before the other one came to where it stands. Distances are
straight, on Earth through it. A pair is near if its last fixes are, so there is nothing else to
remember about it.

Entities lie in a hashed grid whose cells are as wide as the distance. Fixes are taken one after the
other in one compiled loop, because each changes what the next one meets.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numba import njit

from nearcast.columns import SlotAllocator, grow
from nearcast.fences.areas import AREA, NEVER, NO_FORM
from nearcast.fences.event_columns import write_events
from nearcast.fences.events import (
    CROSS,
    ENTER,
    EXPIRED,
    FENCE_ADDED,
    GONE,
    LEAVE,
    FenceEvents,
    FixColumns,
    no_events,
)
from nearcast.fences.fence_index import COMES, DISAPPEARS, VISIT, room_for, visit_area
from nearcast.fences.last_fixes import LastFixes
from nearcast.space.motion import Time
from nearcast.space.shapes import DISC

PAIR_EVENTS = 1 << ENTER | 1 << LEAVE | 1 << CROSS
NO_SLOT = -1
FARTHEST_CELL = 1e15  # what lies beyond is in the last cell
ROUNDING = 1e-9  # by so much, of coordinates and distances, more cells are looked at
ROOM = 8  # spans of one way and one disc
# The chains of the grid, by slot: the cell, the next one of the bucket, and whether it is there.
CHAIN = np.dtype([("cell", np.int64, 3), ("next", np.int64), ("there", np.int8)])


class NearPairs:
    """Which entities are within a distance of each other.

    `most`: if more pairs than that are near at one time, it ends (`overflowed`) and has no events
    any more. `kinds`: which events, as bits; a crossing is a pair that was near between two fixes.
    """

    def __init__(
        self, distance: float, most: int, kinds: int = PAIR_EVENTS, earth: bool = False
    ) -> None:
        if not distance > 0:
            raise ValueError(f"a distance of pairs must be above 0, not {distance}")
        self.distance, self._most = distance, most
        self._kinds, self._earth = kinds, earth
        self.overflowed = False
        self._clear()

    def _clear(self) -> None:
        self.near = 0  # pairs
        self.last = LastFixes()
        self._slots: dict[int, int] = {}  # by entity
        self._allocator = SlotAllocator()
        self._areas: Any = np.zeros(16, AREA)
        self._chains: Any = np.zeros(16, CHAIN)
        self._heads = np.full(64, NO_SLOT, np.int64)

    def fixes(self, fixes: FixColumns) -> FenceEvents:
        """Where entities are. The event of a pair has the one that moved as its entity, and the
        other one in place of a fence. Events of one pair are in order."""
        if self.overflowed or not len(fixes.entity):
            return no_events()
        if min(self.last.next_expiry, (fixes.t + fixes.ttl).min()) >= fixes.t.max():
            return self._decide(self.last.take(fixes))
        found = []
        for k in range(len(fixes.entity)):  # fixes of others may end in between
            found.append(self.advance(int(fixes.t[k]) - 1))
            found.append(self._decide(self.last.take(fixes.part(slice(k, k + 1)))))
        return np.concatenate(found)

    def withdraw(self, entities: Iterable[int], now: Time, reason: int = GONE) -> FenceEvents:
        """These entities are near nobody any more. Unknown ones do not matter."""
        return self._decide(self.last.withdraw(np.fromiter(entities, np.int64), reason, now))

    def advance(self, now: Time) -> FenceEvents:
        """What ends up to and including this moment without a fix."""
        return self._decide(self.last.expire(EXPIRED, now))

    def due(self) -> Time:
        return self.last.next_expiry

    def current(self, now: Time) -> FenceEvents:
        """All pairs that are near, as if they were inside of a fence that is new: each once."""
        if self.overflowed:
            return no_events()
        rows = self.last.everybody(COMES, FENCE_ADDED, now)
        slots = np.array([self._slots[entity] for entity in rows["entity"].tolist()], np.int64)
        visits, _ = self._walk(rows, slots, False)
        once = rows["entity"][visits["row"]] < self._areas["number"][visits["slot"]]
        return self._write(rows, visits[once])

    def _decide(self, rows: Any) -> FenceEvents:
        if self.overflowed or not len(rows):
            return no_events()
        slots = np.array([self._slot(entity) for entity in rows["entity"].tolist()], np.int64)
        visits, self.near = self._walk(rows, slots, True)
        if self.near > self._most:
            self.overflowed = True
            self._clear()
            return no_events()
        events = self._write(rows, visits)
        for entity in rows["entity"][rows["what"] == DISAPPEARS].tolist():
            slot = self._slots.get(entity)
            if slot is not None and not self._chains["there"][slot]:
                del self._slots[entity]
                self._allocator.give(slot)
        return events

    def _write(self, rows: Any, visits: Any) -> FenceEvents:
        """In the order of rows, then of time."""
        t = np.where(visits["begins"] != 0, visits["t_in"], visits["t_out"])
        numbers = self._areas["number"][visits["slot"]]
        visits = visits[np.lexsort((numbers, t, visits["row"]))]
        return write_events(rows, visits, self._areas)

    def _slot(self, entity: int) -> int:
        slot = self._slots.get(entity)
        if slot is None:
            slot = self._slots[entity] = self._allocator.take()
            self._areas, self._chains = grow(self._areas, slot + 1), grow(self._chains, slot + 1)
            area = self._areas[slot]
            area["number"], area["kind"], area["form"] = entity, DISC, NO_FORM
            area["rx"], area["kinds"], area["earth"] = self.distance, self._kinds, self._earth
            area["low"], area["high"], area["dwell"] = -np.inf, np.inf, NEVER
            self._chains[slot] = 0
        return slot

    def _walk(self, rows: Any, slots: Any, move: bool) -> Any:
        used = self._allocator.used
        if used > len(self._heads):
            self._heads = np.full(4 * len(self._heads), NO_SLOT, np.int64)
            refill_chains(self._chains, used, self._heads)
        table = self._areas, *_NO_VERTICES
        grid = self._chains, self._heads, self.distance, used
        return walk_rows(rows, slots, table, grid, move, self.near, self._most)


_NO_VERTICES = (
    np.empty(0), np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int32),
    np.empty(0, np.int16),
)  # fmt: skip


@njit(cache=True)
def cell_of(coordinate: float, width: float) -> int:
    return int(np.floor(min(max(coordinate / width, -FARTHEST_CELL), FARTHEST_CELL)))


@njit(cache=True)
def bucket_of(x: int, y: int, z: int, heads: Any) -> int:
    mixed = x * 0x9E3779B1 + y * 0x85EBCA77 + z * 0xC2B2AE3D
    return (mixed ^ (mixed >> 29)) & (len(heads) - 1)


@njit(cache=True)
def enter_chain(slot: int, chains: Any, heads: Any) -> None:
    chain = chains[slot]
    head = bucket_of(chain.cell[0], chain.cell[1], chain.cell[2], heads)
    chain.next, chain.there = heads[head], 1
    heads[head] = slot


@njit(cache=True)
def leave_chain(slot: int, chains: Any, heads: Any) -> None:
    chain = chains[slot]
    head = bucket_of(chain.cell[0], chain.cell[1], chain.cell[2], heads)
    chain.there = 0
    if heads[head] == slot:
        heads[head] = chain.next
        return
    before = heads[head]
    while chains[before].next != slot:
        before = chains[before].next
    chains[before].next = chain.next


@njit(cache=True)
def refill_chains(chains: Any, used: int, heads: Any) -> None:
    for slot in range(used):
        if chains[slot].there:
            enter_chain(slot, chains, heads)


@njit(cache=True)
def range_of(a: float, b: float, width: float) -> Any:
    """The cells that may have what is within the width of a way along one axis."""
    more = width * (1.0 + ROUNDING) + max(abs(a), abs(b)) * ROUNDING
    return cell_of(min(a, b) - more, width), cell_of(max(a, b) + more, width)


@njit(cache=True)
def visit_around(
    move: Any, row: int, own: int, table: Any, grid: Any, spans: Any, found: Any, n: int
) -> Any:
    """Append the visits of a row to the discs of all others."""
    chains, heads, width, used = grid
    begin = move.p1 if move.what == COMES else move.p0
    end = move.p0 if move.what == DISAPPEARS else move.p1
    x0, x1 = range_of(begin[0], end[0], width)
    y0, y1 = range_of(begin[1], end[1], width)
    z0, z1 = range_of(begin[2], end[2], width)
    if float(x1 - x0 + 1) * float(y1 - y0 + 1) * float(z1 - z0 + 1) > used:
        for slot in range(used):
            if chains[slot].there and slot != own:
                found = room_for(found, n, ROOM)
                n = visit_area(move, row, slot, table, spans, found, n)
        return found, n
    for x in range(x0, x1 + 1):
        for y in range(y0, y1 + 1):
            for z in range(z0, z1 + 1):
                slot = heads[bucket_of(x, y, z, heads)]
                while slot != NO_SLOT:
                    chain = chains[slot]
                    here = chain.cell[0] == x and chain.cell[1] == y and chain.cell[2] == z
                    if here and slot != own:
                        found = room_for(found, n, ROOM)
                        n = visit_area(move, row, slot, table, spans, found, n)
                    slot = chain.next
    return found, n


@njit(cache=True)
def walk_rows(
    rows: Any, slots: Any, table: Any, grid: Any, move: bool, near: int, most: int
) -> Any:
    """The visits of all rows, each to the discs as they are by then; if they `move`, and until more
    than `most` pairs are near. Also how many are near then."""
    areas = table[0]
    chains, heads, width, _ = grid
    spans = np.empty((ROOM, 2))
    found = np.empty(ROOM + len(rows), VISIT)
    n = 0
    for i in range(len(rows)):
        row, slot = rows[i], slots[i]
        first = n
        found, n = visit_around(row, i, slot, table, grid, spans, found, n)
        if not move:
            continue
        for k in range(first, n):
            near += found[k].begins - found[k].ends
        if near > most:
            break
        if chains[slot].there:
            leave_chain(slot, chains, heads)
        if row.what != DISAPPEARS:
            area = areas[slot]
            area.x, area.y, area.z, area.since = row.p1[0], row.p1[1], row.p1[2], row.t1
            for axis in range(3):
                chains[slot].cell[axis] = cell_of(row.p1[axis], width)
            enter_chain(slot, chains, heads)
    return found[:n], near
