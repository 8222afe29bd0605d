"""The last fix of each entity, in columns, and what new fixes mean beside it."""

from typing import Any

import numpy as np
from numba import njit

from nearcast.columns import grow
from nearcast.fences.areas import NEVER
from nearcast.fences.events import EXPIRED, FixColumns, Integers
from nearcast.fences.fence_index import COMES, DISAPPEARS, MOVE, MOVES
from nearcast.space.motion import Time

LAST_FIX = np.dtype([
    ("entity", np.int64), ("t", np.int64), ("expires", np.int64),
    ("place", np.float64, 4), ("known", np.int8),
])  # fmt: skip
UNUSED = -(2**63)  # no entity's number: an empty slot of the hash table


class LastFixes:
    """Where each entity stands, and until when that holds."""

    def __init__(self) -> None:
        self.refused = 0  # fixes that were older than the last one of their entity
        self.next_expiry: Time = NEVER  # of any fix, or earlier
        self._keys, self._places = np.full(1024, UNUSED), np.zeros(1024, np.int64)
        self._last: Any = np.zeros(256, LAST_FIX)
        self._used = 0

    def _locate(self, entities: Integers) -> Integers:
        """The place of each entity in the column; new ones are added."""
        where = np.empty(len(entities), np.int64)
        done = 0
        while True:
            done, self._used = locate(
                entities, done, where, self._keys, self._places, self._last, self._used
            )
            if done == len(entities):
                return where
            self._last = grow(self._last, 2 * len(self._last))
            self._keys = np.full(4 * len(self._last), UNUSED)
            self._places = np.zeros(len(self._keys), np.int64)
            refill(self._last, self._used, self._keys, self._places)

    def take(self, fixes: FixColumns) -> Any:
        """Rows of what the fixes mean, in their order. They are the last ones from now on."""
        rows = np.zeros(2 * len(fixes.entity), MOVE)
        where = self._locate(fixes.entity)
        count, refused, earliest = take_fixes(
            fixes.t, fixes.place, fixes.height, fixes.ttl, where, self._last, rows
        )
        self.refused += refused
        self.next_expiry = min(self.next_expiry, earliest)
        return rows[:count]

    def everybody(self, what: int, reason: int, now: Time) -> Any:
        """A row for each entity that is known, where it stands."""
        return self.rows(np.flatnonzero(self._last["known"][: self._used]), what, reason, now)

    @property
    def fixes(self) -> Any:
        """An array of LAST_FIX; those that are not `known` count no more."""
        return self._last[: self._used]

    def rows(self, where: Integers, what: int, reason: int, t: Any) -> Any:
        """A row for each of these places in `fixes`."""
        rows = np.zeros(len(where), MOVE)
        some = self._last[where]
        rows["entity"], rows["t0"], rows["t1"] = some["entity"], np.minimum(some["t"], t), t
        rows["p0"] = rows["p1"] = some["place"]
        rows["what"], rows["reason"] = what, reason
        return rows

    def withdraw(self, entities: Integers, reason: int, now: Time) -> Any:
        """Forget them; a row for each that was known."""
        where = np.unique(self._locate(entities))
        where = where[self._last["known"][where] != 0]
        self._last["known"][where] = 0
        return self.rows(where, DISAPPEARS, reason, now)

    def expire(self, reason: int, now: Time) -> Any:
        """Forget whose fix holds no longer; a row for each, at the moment at which it ended."""
        if now < self.next_expiry:
            return np.zeros(0, MOVE)
        last = self._last[: self._used]
        expired = (last["known"] != 0) & (last["expires"] <= now)
        where = np.flatnonzero(expired)
        rows = self.rows(where, DISAPPEARS, reason, last["expires"][where])
        last["known"][where] = 0
        self.next_expiry = int(last["expires"][last["known"] != 0].min(initial=NEVER))
        return rows


@njit(inline="always")
def slot_of(keys: Any, key: int) -> int:
    mask = len(keys) - 1
    slot = ((key * 0x9E3779B97F4A7C1) >> 20) & mask
    while keys[slot] != UNUSED and keys[slot] != key:
        slot = (slot + 1) & mask
    return slot


@njit(cache=True)
def locate(
    entities: Any, done: int, where: Any, keys: Any, places: Any, last: Any, used: int
) -> Any:
    """Find the places of entities from `done` on, until there is no room for a new one."""
    for i in range(done, len(entities)):
        slot = slot_of(keys, entities[i])
        if keys[slot] == UNUSED:
            if used == len(last):
                return i, used
            keys[slot], places[slot] = entities[i], used
            last[used].entity = entities[i]
            used += 1
        where[i] = places[slot]
    return len(entities), used


@njit(cache=True)
def refill(last: Any, used: int, keys: Any, places: Any) -> None:
    for i in range(used):
        slot = slot_of(keys, last[i].entity)
        keys[slot], places[slot] = last[i].entity, i


@njit(cache=True)
def take_fixes(t: Any, place: Any, height: Any, ttl: Any, where: Any, last: Any, rows: Any) -> Any:
    """Fill the rows. Returns how many, how many fixes were refused, and the earliest expiry."""
    n = refused = 0
    earliest = NEVER
    for i in range(len(t)):
        old = last[where[i]]
        if old.known and t[i] < old.t:
            refused += 1
            continue
        if old.known and old.expires < t[i]:
            row = rows[n]
            row.entity, row.t0, row.t1 = old.entity, old.t, old.expires
            row.what, row.reason = DISAPPEARS, EXPIRED
            row.p0[:] = old.place
            row.p1[:] = old.place
            old.known = 0
            n += 1
        row = rows[n]
        row.entity, row.t1, row.reason = old.entity, t[i], 0
        row.t0 = old.t if old.known else t[i]
        row.what = MOVES if old.known else COMES
        row.p0[:] = old.place
        old.place[0], old.place[1], old.place[2] = place[i, 0], place[i, 1], place[i, 2]
        old.place[3] = height[i]
        row.p1[:] = old.place
        n += 1
        old.t, old.known = t[i], 1
        old.expires = min(t[i] + ttl[i], NEVER) if ttl[i] < NEVER else NEVER
        earliest = min(earliest, old.expires)
    return n, refused, earliest
