"""Areas that move: against every microsecond."""

from itertools import pairwise
from math import hypot, nan
from typing import Any

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

from nearcast.fences.areas import Fence
from nearcast.fences.events import CROSS, DWELL, ENTER, FENCE_ADDED, INSIDE, LEAVE, fixes_of
from nearcast.fences.fence_state import FenceEngine
from nearcast.fences.moving_fences import place_shape, transitions
from nearcast.space.motion import SECOND, Moving, Path
from nearcast.space.outlines import POLYGON, Outline, pack
from nearcast.space.shapes import BOX, Shape, ShapeKind, box, disc
from support.examples import examples
from support.fence_oracle import Fix, grazes, moving_transitions, pair_events
from support.fence_worlds import columns_of_fixes, places, put_area, told

KINDS = 1 << ENTER | 1 << LEAVE | 1 << CROSS | 1 << DWELL
END = 300  # microseconds, in which all happens
whole = st.integers(-4, 4)
speeds = st.integers(-4, 4).map(lambda v: v * 12345.678)  # about a hundredth per microsecond
durations = st.one_of(st.none(), st.integers(0, 200))


def polygon(x: float, y: float, vertices: list[tuple[int, int]]) -> Shape:
    """With vertices relative to its centre."""
    rx, ry = (float(max(abs(v[k]) for v in vertices)) for k in (0, 1))
    outline = Outline(POLYGON, False, pack([float(c) for v in vertices for c in v]), (0,))
    return Shape(ShapeKind(BOX), float(x), float(y), 0.0, rx, ry, 0.0, outline)


discs = st.builds(disc, whole, whole, st.integers(0, 3))
boxes = st.builds(box, whole, whole, st.integers(0, 3), st.integers(0, 3))
polygons = st.builds(polygon, whole, whole, st.lists(places, min_size=3, max_size=6))


@st.composite
def legs(draw: st.DrawFn) -> Moving:
    shape = draw(st.one_of(discs, boxes, polygons))
    growth = (0.0, 0.0, 0.0)
    if shape.outline is None and draw(st.booleans()):
        growth = (draw(speeds), draw(speeds) if shape.kind == BOX else 0.0, 0.0)
    velocity = (draw(speeds), draw(speeds), 0.0)
    # Of a border that stands still while the area moves, rounding decides at each moment.
    assume(all(not g or abs(g) != abs(v) for g, v in zip(growth, velocity, strict=True)))
    return Moving(shape, velocity, growth, draw(durations), draw(st.integers(0, 100)))


@st.composite
def paths(draw: st.DrawFn) -> Path:
    some, since = [], 0
    for _ in range(draw(st.integers(1, 3))):
        duration = draw(st.integers(0, 120))
        shape, velocity = draw(discs), (draw(speeds), draw(speeds), 0.0)
        some.append(Moving(shape, velocity, duration=duration, since=since))
        since += duration + draw(st.integers(0, 10))
    return Path(tuple(some))


@given(st.one_of(legs(), paths()), places)
@examples(300)
def test_transitions_are_those_that_looking_at_every_microsecond_finds(
    region: Moving | Path, place: tuple[int, int]
) -> None:
    numbers = (float(place[0]), float(place[1]), 0.0, float("nan"))
    shape = place_shape(numbers)
    inside = [region.touches(shape, t) for t in range(END + 1)]
    expected = [(t, inside[t]) for t in range(1, END + 1) if inside[t] != inside[t - 1]]
    assume(len(expected) <= 8)  # else the place is on a border that moves along itself: rounding
    assert transitions(region, numbers, 0, 0, END) == (expected, inside[END])


@st.composite
def tangents(draw: st.DrawFn) -> tuple[Moving | Path, tuple[float, float, float, float]]:
    """A disc whose border just touches a place, or nearly, for which rounding decides. On Earth,
    where numbers are large, that may be so for milliseconds."""
    scale, pace = draw(st.sampled_from([(1.0, 1.0), (4e6, 1.0), (1e3, 1e-3)]))
    x, y, vx, vy = (draw(st.floats(-1, 1).map(lambda v: v * scale)) for _ in range(4))
    speed = hypot(vx, vy)
    assume(speed > 0.01 * scale)
    vx, vy, r = vx / speed * pace, vy / speed * pace, draw(st.floats(0.1, 1)) * pace
    seconds = draw(st.floats(0.5, 5))
    place = x + seconds * vx - vy / pace * r, y + seconds * vy + vx / pace * r, 0.0, nan
    leg = Moving(
        disc(x, y, r), (vx, vy, 0.0), duration=draw(st.one_of(st.none(), st.just(6 * SECOND)))
    )
    if leg.duration is None or draw(st.booleans()):
        return leg, place
    back = Moving(leg.at(leg.until), (-vx, -vy, 0.0), duration=leg.duration, since=leg.until)
    return Path((leg, back)), place


@given(tangents(), st.lists(st.integers(0, 12 * SECOND), max_size=6), st.data())
@examples(300)
def test_transitions_do_not_depend_on_when_they_are_asked_for(
    tangent: tuple[Moving | Path, tuple[float, float, float, float]], cuts: list[int],
    data: st.DataObject,
) -> None:  # fmt: skip
    region, place = tangent
    end = 12 * SECOND
    found, inside = transitions(region, place, 0, 0, end)
    moments = [t + data.draw(st.integers(-2, 2)) for t, _ in found]
    times = sorted({0, end, *(min(max(t, 0), end) for t in [*cuts, *moments])})
    parts = [transitions(region, place, 0, begin, t) for begin, t in pairwise(times)]
    assert [one for part, _ in parts for one in part] == found
    assert parts[-1][1] == inside
    for part, state in parts:
        assert not part or part[-1][1] == state
    shape = place_shape(place)
    for t, now in found:
        assert region.touches(shape, t) == now != region.touches(shape, t - 1)


@st.composite
def histories(draw: st.DrawFn) -> list[Fix]:
    times = sorted(draw(st.sets(st.integers(0, END), min_size=1, max_size=4)))
    lives = st.sampled_from([2**62, 2**62, 40])
    return [Fix(t, draw(places), draw(lives)) for t in times]


@given(
    st.builds(Moving, discs, st.tuples(speeds, speeds, st.just(0.0)), duration=durations),
    st.lists(histories(), min_size=1, max_size=2),
    st.one_of(st.none(), st.integers(0, 60)), st.sampled_from([0, 0, 30]), st.data(),
)  # fmt: skip
@examples(120)
def test_events_of_a_moving_fence_are_those_of_the_definition(
    region: Moving, entities: list[list[Fix]], dwell: int | None, linger: int, data: st.DataObject
) -> None:
    assume(any(region.velocity))  # else times are those of a fence that stands
    region = Moving(region.shape, region.velocity, duration=END)
    assume(not any(grazes(region, fixes) for fixes in entities))
    engine = FenceEngine()
    engine.put_moving([Fence(5, region, KINDS, dwell, linger)], 0)
    rows = sorted(
        ((entity, fix) for entity, fixes in enumerate(entities) for fix in fixes),
        key=lambda row: row[1].t,
    )
    collected: list[Any] = []
    for k, row in enumerate(rows):
        collected.append(engine.fixes(columns_of_fixes([row])))
        later = rows[k + 1][1].t if k + 1 < len(rows) else row[1].t + 1
        if later > row[1].t and data.draw(st.booleans()):
            collected.append(engine.advance(data.draw(st.integers(row[1].t, later - 1))))
    collected.append(engine.advance(END))
    events = np.concatenate(collected)
    for entity, fixes in enumerate(entities):
        expected = pair_events(moving_transitions(region, fixes, END), dwell, linger, END)
        ours = sorted(told(events, entity, 5), key=lambda one: (one.known, one.t, one.kind))
        assert ours == expected


def test_a_moving_fence_that_is_put_replaced_and_removed() -> None:
    engine = FenceEngine()
    engine.fixes(fixes_of([1, 2], [0, 0], [(0, 0), (10, 0)]))
    events = engine.put_moving(
        [Fence(5, Moving(disc(0, 0, 1), (1e6, 0, 0), duration=20), KINDS)], 0
    )
    assert events[["entity", "kind", "reason"]].tolist() == [(1, INSIDE, FENCE_ADDED)]
    assert engine.due() < 2**62
    following = Fence(5, Moving(disc(5, 0, 1), since=5), KINDS)
    events = engine.put_moving([following], 5)
    assert events[["entity", "kind", "t"]].tolist() == [(1, LEAVE, 2)]
    assert engine.due() == 2**62
    events = engine.put_moving([Fence(5, Moving(disc(10, 0, 1), since=6), KINDS)], 6)
    assert events[["entity", "kind", "t"]].tolist() == [(2, ENTER, 6)]
    assert engine.remove_fences([5], 9)[["entity", "kind", "t"]].tolist() == [(2, LEAVE, 9)]
    assert len(engine) == 0


def test_a_fence_may_begin_to_move() -> None:
    engine = FenceEngine()
    engine.fixes(fixes_of([1], [0], [(0, 0)]))
    from support.fence_oracle import Disc

    engine.put_fences(put_area(5, Disc(0, 0, 1), kinds=KINDS), 0)
    events = engine.put_moving([Fence(5, Moving(disc(0, 0, 1), (1e6, 0, 0), since=3), KINDS)], 3)
    assert events[["kind", "t"]].tolist() == [(LEAVE, 3), (INSIDE, 3)]
    assert len(engine) == 1
