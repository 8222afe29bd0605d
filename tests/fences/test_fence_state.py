"""The state machine against the definition, told naively for one entity and one fence at a time."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.fences.events import (
    CROSS,
    DWELL,
    ENTER,
    EXPIRED,
    FENCE_ADDED,
    FENCE_REMOVED,
    GONE,
    INSIDE,
    LEAVE,
    LEFT,
    fixes_of,
    in_order,
)
from nearcast.fences.fence_state import FenceEngine
from support.examples import examples
from support.fence_histories import events_of_history
from support.fence_oracle import Disc, Fix, Polygon, Told, fix_events, pair_events, transitions
from support.fence_worlds import (
    areas,
    columns_of_fixes,
    durations,
    histories,
    join_columns,
    places,
    put_area,
    told,
)

fences_with_rules = st.tuples(areas, st.one_of(st.none(), durations), durations)
LATE = 2**40
KINDS = 1 << ENTER | 1 << LEAVE | 1 << CROSS | 1 << DWELL


def by_time(events: list[Told]) -> list[Told]:
    return sorted(events, key=lambda one: (one.known, one.t, one.kind))


@given(
    st.lists(fences_with_rules, min_size=1, max_size=4),
    st.lists(histories(), min_size=1, max_size=3),
    st.data(),
)
@examples(400)
def test_events_are_those_of_the_definition(
    fences: list[Any], entities: list[list[Fix]], data: st.DataObject
) -> None:
    """However fixes are cut into batches and whenever moments are looked at."""
    engine = FenceEngine()
    for number, (area, dwell, linger) in enumerate(fences):
        assert len(engine.put_fences(put_area(number, area, dwell, linger), 0)) == 0
    rows = [(entity, fix) for entity, fixes in enumerate(entities) for fix in fixes]
    rows.sort(key=lambda row: row[1].t)
    collected = []
    while rows:
        size = data.draw(st.integers(1, len(rows)))
        while size < len(rows) and rows[size][1].t == rows[size - 1][1].t:
            size += 1
        collected.append(engine.fixes(columns_of_fixes(rows[:size])))
        last, rows = rows[size - 1][1].t, rows[size:]
        moment = min(engine.due(), rows[0][1].t - 1 if rows else last)
        if moment >= last and data.draw(st.booleans()):
            collected.append(engine.advance(moment))
    collected.append(engine.advance(LATE))
    events = np.concatenate(collected)
    for entity, fixes in enumerate(entities):
        for number, (area, dwell, linger) in enumerate(fences):
            moves = transitions(area, fixes, LATE)
            expected = pair_events(moves, dwell, linger, LATE) + fix_events(area, fixes)
            assert by_time(told(events, entity, number)) == by_time(expected)


def engine_with(*areas: Polygon | Disc, dwell: int | None = None, linger: int = 0) -> FenceEngine:
    engine = FenceEngine()
    for number, area in enumerate(areas):
        engine.put_fences(put_area(number, area, dwell, linger, KINDS), 0)
    return engine


def kinds_and_times(events: Any) -> list[tuple[int, int]]:
    return list(zip(events["kind"].tolist(), events["t"].tolist(), strict=True))


def test_whoever_is_inside_of_a_new_fence_is_reported_and_dwells_from_then_on() -> None:
    engine = FenceEngine()
    engine.fixes(fixes_of([7, 8], [5, 5], [(0, 0), (9, 9)]))
    events = engine.put_fences(put_area(3, Disc(0, 0, 1), dwell=100, kinds=KINDS), 50)
    assert events[["entity", "fence", "kind", "reason", "t"]].tolist() == [
        (7, 3, INSIDE, FENCE_ADDED, 50)
    ]
    assert engine.due() == 150
    assert kinds_and_times(engine.advance(149)) == []
    assert kinds_and_times(engine.advance(150)) == [(DWELL, 150)]
    assert len(engine.advance(1000)) == 0
    left = engine.fixes(fixes_of([7], [45 + 1000], [(2, 0)]))
    assert kinds_and_times(left) == [(LEAVE, 525)]


def test_a_time_is_never_before_the_fence_was_there() -> None:
    engine = FenceEngine()
    engine.fixes(fixes_of([7], [0], [(0, 0)]))
    engine.put_fences(put_area(3, Disc(0, 0, 1), kinds=KINDS), 50)
    assert kinds_and_times(engine.fixes(fixes_of([7], [100], [(10, 0)]))) == [(LEAVE, 50)]


def test_a_fence_that_is_replaced_is_entered_and_left_where_it_differs() -> None:
    engine = engine_with(Disc(0, 0, 1))
    engine.fixes(fixes_of([1, 2, 3], [0, 0, 0], [(0, 0), (1, 0), (2, 0)]))
    events = engine.put_fences(put_area(0, Disc(2, 0, 1), kinds=KINDS), 10)
    assert events[["entity", "kind", "reason", "t"]].tolist() == [
        (1, LEAVE, LEFT, 10), (3, ENTER, 0, 10)
    ]  # fmt: skip
    assert len(engine.index) == 1


@given(
    st.lists(st.tuples(areas, areas, st.sampled_from([0, 3])), min_size=1, max_size=4),
    st.lists(places, min_size=1, max_size=5),
)
@examples(100)
def test_fences_that_move_together_are_those_that_are_replaced_one_by_one(
    fences: list[tuple[Any, Any, int]], where: list[Any]
) -> None:
    engines = FenceEngine(), FenceEngine()
    for engine in engines:
        for number, (area, _, linger) in enumerate(fences):
            engine.put_fences(put_area(number, area, linger=linger), 0)
        engine.fixes(fixes_of(range(len(where)), [0] * len(where), where))
    after = [put_area(k, area, linger=linger) for k, (_, area, linger) in enumerate(fences)]
    times = [10 + 2 * k for k in range(len(fences))]
    one_by_one = [engines[0].put_fences(*both) for both in zip(after, times, strict=True)]
    together = engines[1].move_fences(join_columns(after), np.array(times))
    expected = in_order(np.concatenate([*one_by_one, engines[0].advance(100)]))
    ours = in_order(np.concatenate([together, engines[1].advance(100)]))
    assert repr(ours.tolist()) == repr(expected.tolist())  # directions are not numbers


def test_who_is_inside_leaves_a_fence_that_is_removed() -> None:
    engine = engine_with(Disc(0, 0, 1), Disc(5, 0, 1))
    engine.fixes(fixes_of([1, 2], [0, 0], [(0, 0), (5, 0)]))
    events = engine.remove_fences([1, 99], 10)
    assert events[["entity", "fence", "kind", "reason"]].tolist() == [(2, 1, LEAVE, FENCE_REMOVED)]
    assert len(engine.fixes(fixes_of([2], [20], [(6, 0)]))) == 0


def test_a_fence_that_is_removed_reports_those_who_linger() -> None:
    engine = engine_with(Disc(0, 0, 1), linger=1000)
    engine.fixes(fixes_of([1, 1], [0, 10], [(0, 0), (2, 0)]))
    events = engine.remove_fences([0], 20)
    assert events[["kind", "reason", "t", "fix_t"]].tolist() == [(LEAVE, LEFT, 5, 20)]
    assert len(engine.advance(LATE)) == 0


def test_withdrawn_entities_leave() -> None:
    engine = engine_with(Disc(0, 0, 1))
    engine.fixes(fixes_of([1], [0], [(0, 0)]))
    events = engine.withdraw([1, 2], 30)
    assert events[["entity", "kind", "reason", "t"]].tolist() == [(1, LEAVE, GONE, 30)]
    assert len(engine.withdraw([1], 40)) == 0
    assert kinds_and_times(engine.fixes(fixes_of([1], [50], [(0, 0)]))) == [(ENTER, 50)]


def test_an_older_fix_is_refused_and_changes_nothing() -> None:
    engine = engine_with(Disc(0, 0, 1))
    engine.fixes(fixes_of([1], [100], [(5, 0)]))
    assert len(engine.fixes(fixes_of([1], [99], [(0, 0)]))) == 0
    assert engine.refused == 1
    assert kinds_and_times(engine.fixes(fixes_of([1], [200], [(5, 1)]))) == []


def test_a_fix_expires() -> None:
    engine = engine_with(Disc(0, 0, 1))
    engine.fixes(fixes_of([1, 2], [0, 0], [(0, 0), (0, 0)], ttl=[50, 2**62]))
    assert engine.due() == 50
    events = engine.advance(80)
    assert events[["entity", "kind", "reason", "t"]].tolist() == [(1, LEAVE, EXPIRED, 50)]


def test_a_crossing_is_told_as_enter_and_leave_to_whoever_does_not_ask_for_crossings() -> None:
    engine = FenceEngine()
    both = 1 << ENTER | 1 << LEAVE
    engine.put_fences(put_area(0, Disc(5, 0, 1), kinds=both), 0)
    engine.put_fences(put_area(1, Disc(5, 0, 1), dwell=1000, kinds=both), 0)
    events = engine.fixes(fixes_of([1, 1], [0, 1000], [(0, 0), (10, 0)]))
    for fence in (0, 1):
        assert kinds_and_times(events[events["fence"] == fence]) == [(ENTER, 400), (LEAVE, 600)]


def test_a_crossing_has_both_places_and_a_direction() -> None:
    engine = engine_with(Disc(0, 5, 1))
    (event,) = engine.fixes(fixes_of([1, 1], [0, 1000], [(0, 0), (0, 10)]))
    assert (event["kind"], event["t"], event["t_out"]) == (CROSS, 400, 600)
    assert (event["x"], event["y"], event["x_out"], event["y_out"]) == (0, 4, 0, 6)
    assert event["direction"] == 90.0


@given(st.lists(fences_with_rules, min_size=1, max_size=5), st.lists(histories(), min_size=1))
@examples(30)
def test_history_and_a_live_engine_report_the_same(
    fences: list[Any], entities: list[list[Fix]]
) -> None:
    some = [put_area(number, *fence) for number, fence in enumerate(fences)]
    live = FenceEngine()
    for one in some:
        live.put_fences(one, 0)
    rows = sorted(
        ((entity, fix) for entity, fixes in enumerate(entities) for fix in fixes),
        key=lambda row: row[1].t,
    )
    told_live = [live.fixes(columns_of_fixes([row])) for row in rows]
    told_live.append(live.advance(LATE))
    rows = [(entity, fix) for entity, fixes in enumerate(entities) for fix in fixes]
    told_later = events_of_history(columns_of_fixes(rows), join_columns(some), until=LATE)
    assert in_order(np.concatenate(told_live)).tobytes() == told_later.tobytes()


def test_a_number_twice_in_one_request_is_refused() -> None:
    twice = join_columns([put_area(1, Disc(0, 0, 1)), put_area(1, Disc(3, 0, 1))])
    with pytest.raises(ValueError, match="twice"):
        FenceEngine().put_fences(twice, 0)
