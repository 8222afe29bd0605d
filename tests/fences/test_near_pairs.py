"""Pairs that come close, against all pairs and fractions."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.fences.events import (
    CROSS,
    ENTER,
    EXPIRED,
    GONE,
    INSIDE,
    LEAVE,
    LEFT,
    NONE,
    fixes_of,
)
from nearcast.fences.near_pairs import NearPairs
from nearcast.space.earth import ecef
from nearcast.space.motion import FOREVER
from support.examples import examples
from support.fence_oracle import Disc

Told = tuple[int, int, int, int, int]  # time, who, the other, kind, reason


class Oracle:
    """All pairs at every fix."""

    def __init__(self, distance: int) -> None:
        self.distance = distance
        self.last: dict[int, tuple[int, tuple[int, int], int]] = {}  # t, place, expires

    def near(self, a: int, b: int) -> bool:
        disc = Disc(*self.last[b][1], self.distance)
        return disc.contains(*self.last[a][1])

    def fix(self, who: int, t: int, place: tuple[int, int], ttl: int) -> list[Told]:
        told = self.expire(t - 1)
        before = self.last.get(who)
        for other, (since, there, _) in self.last.items():
            disc = Disc(*there, self.distance)
            inside = disc.contains(*place)
            if other == who:
                continue
            if before is None:
                if inside:
                    told.append((t, who, other, ENTER, NONE))
                continue
            t0, start, _ = before
            was = disc.contains(*start)
            for low, high in disc.spans(start, place):
                times = [max(t0 + round(s * (t - t0)), since) for s in (low, high)]
                if not was and not inside:
                    told.append((times[0], who, other, CROSS, NONE))
                elif not was:
                    told.append((times[0], who, other, ENTER, NONE))
                elif not inside:
                    told.append((times[1], who, other, LEAVE, LEFT))
        self.last[who] = t, place, t + ttl
        return told

    def end(self, who: int, now: int, reason: int) -> list[Told]:
        if who not in self.last:
            return []
        others = [one for one in self.last if one != who and self.near(who, one)]
        del self.last[who]
        return [(now, who, other, LEAVE, reason) for other in others]

    def expire(self, until: int) -> list[Told]:
        told = []
        for who, (_, _, expires) in sorted(self.last.items(), key=lambda one: (one[1][2], one[0])):
            if expires <= until:
                told += self.end(who, expires, EXPIRED)
        return told


def told(events: Any) -> list[Told]:
    return [
        (int(e["t"]), int(e["entity"]), int(e["fence"]), int(e["kind"]), int(e["reason"]))
        for e in events
    ]


def by_pair(events: list[Told]) -> dict[tuple[int, int], list[Told]]:
    """What happened to each pair, in order; who of the two ended first does not matter."""
    found: dict[tuple[int, int], list[Told]] = {}
    for event in events:
        t, who, other, kind, reason = event
        pair = min(who, other), max(who, other)
        found.setdefault(pair, []).append(event if reason != EXPIRED else (t, *pair, kind, reason))
    return found


STEPS = st.lists(
    st.tuples(
        st.integers(1, 5), st.integers(0, 3), st.integers(-6, 6), st.integers(-6, 6),
        st.sampled_from(["fix"] * 6 + ["withdraw", "advance", "expiring"]),
    ),
    max_size=40,
)  # fmt: skip


@given(STEPS, st.integers(1, 5), st.integers(1, 4))
@examples(300)
def test_pairs_are_told_as_by_the_definition(steps: Any, distance: int, batch: int) -> None:
    engine, oracle = NearPairs(float(distance), 1000), Oracle(distance)
    found: list[Told] = []
    expected: list[Told] = []
    waiting: list[tuple[int, int, tuple[int, int], int]] = []
    now = 0

    def give() -> None:
        if waiting:
            columns = zip(*waiting, strict=True)
            who, t, place, ttl = (list(column) for column in columns)
            found.extend(told(engine.fixes(fixes_of(who, t, place, ttl=ttl))))
            waiting.clear()

    for who, later, x, y, what in steps:
        now += later * 1000
        if what in ("fix", "expiring"):
            ttl = FOREVER if what == "fix" else 4500
            expected += oracle.fix(who, now, (x, y), ttl)
            waiting.append((who, now, (x, y), ttl))
            if len(waiting) == batch:
                give()
            continue
        give()
        if what == "withdraw":
            expected += oracle.expire(now) + oracle.end(who, now, GONE)
            found += told(engine.advance(now)) + told(engine.withdraw([who], now))
        else:
            expected += oracle.expire(now)
            found += told(engine.advance(now))
    give()
    assert by_pair(found) == by_pair(expected)
    pairs = {(a, b) for a in oracle.last for b in oracle.last if a < b and oracle.near(a, b)}
    assert {(one[1], one[2]) for one in told(engine.current(now))} == pairs
    assert all(one[3] == INSIDE for one in told(engine.current(now)))
    assert engine.near == len(pairs)


def test_far_and_fast_ones_are_found_in_a_crowd() -> None:
    random = np.random.default_rng(5)
    count, distance = 1_500, 2.0
    engine = NearPairs(distance, 100_000)
    first = random.uniform(-300, 300, (count, 2))
    engine.fixes(fixes_of(range(count), np.zeros(count), first))
    second = first + random.normal(0, 40, (count, 2))
    second[0] = 1e150, -1e150
    events = told(engine.fixes(fixes_of(range(count), np.full(count, 10), second)))
    places, expected = first.copy(), set()
    for k in range(count):
        way, gone = second[k] - places[k], places[k] - places
        with np.errstate(over="ignore", invalid="ignore"):
            s = np.clip(-(gone @ way) / (way @ way), 0, 1)
            nearest = np.linalg.norm(gone + s[:, None] * way, axis=1)
            apart = np.linalg.norm(gone, axis=1), np.linalg.norm(second[k] - places, axis=1)
        for other in np.flatnonzero(nearest <= distance).tolist():
            if other != k and not (apart[0][other] <= distance and apart[1][other] <= distance):
                expected.add((k, other))
        places[k] = second[k]
    found = [(who, other) for _, who, other, _, _ in events]
    assert len(found) == len(set(found))
    assert {pair for pair in found if 0 not in pair} == {one for one in expected if 0 not in one}


def test_too_many_pairs_end_it() -> None:
    engine = NearPairs(1.0, 3)
    engine.fixes(fixes_of([1, 2, 3], [0, 0, 0], [(0, 0)] * 3))
    assert (engine.near, engine.overflowed) == (3, False)
    assert len(engine.fixes(fixes_of([4], [1], [(0, 0)]))) == 0
    assert engine.overflowed
    assert len(engine.fixes(fixes_of([1], [2], [(9, 9)]))) == 0
    assert len(engine.current(3)) == 0


def test_on_earth_distances_are_metres() -> None:
    engine = NearPairs(1000.0, 10, earth=True)
    places = [ecef(179.999, 50.0), ecef(-179.999, 50.0)]  # 143 m apart
    events = engine.fixes(fixes_of([1, 2], [0, 0], places))
    assert told(events) == [(0, 2, 1, ENTER, NONE)]


def test_a_distance_is_above_0() -> None:
    with pytest.raises(ValueError, match="above 0"):
        NearPairs(0.0, 1)
