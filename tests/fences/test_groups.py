"""The rules of fences that share an engine, by examples; random ones are in `test_fence_replay`."""

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nearcast.fences.areas import Fence, columns_of
from nearcast.fences.events import ENTER, LEAVE, LEFT, NONE, FenceEvents, fixes_of
from nearcast.fences.fence_state import FenceEngine
from nearcast.fences.groups import (
    GroupKey,
    entered_or_left,
    give_fixes,
    put_area,
    put_in_set,
    set_group,
    with_options,
)
from nearcast.space.motion import Moving, Path
from nearcast.space.shapes import disc
from support.examples import examples


def told(events: FenceEvents) -> list[tuple[int, int, int, int]]:
    """Entity, kind, reason and time."""
    names = ["entity", "kind", "reason", "t"]
    return [tuple(event) for event in events[names].tolist()]


def two_entities() -> FenceEngine:
    engine = FenceEngine()
    engine.fixes(fixes_of([1, 2], [0, 0], [(0, 0), (10, 0)]))
    return engine


def test_whoever_is_in_only_one_of_two_areas_enters_or_leaves() -> None:
    standing, wide = Moving(disc(0, 0, 1)), Moving(disc(5, 0, 6))
    moving = Moving(disc(10, 0, 1), (1.0, 0, 0), duration=9, since=20)
    for areas, changed in (
        ((standing, wide), [(2, ENTER, NONE, 20)]),
        ((wide, standing), [(2, LEAVE, LEFT, 20)]),
        ((standing, moving), [(1, LEAVE, LEFT, 20), (2, ENTER, NONE, 20)]),
        ((moving, standing), [(1, ENTER, NONE, 20), (2, LEAVE, LEFT, 20)]),
        ((wide, moving), [(1, LEAVE, LEFT, 20)]),
        ((moving, Path((moving,))), []),
    ):
        engine = two_entities()
        before, after = areas
        put_area(engine, 10, Fence(5, before))
        assert sorted(told(entered_or_left(put_area(engine, 20, Fence(5, after))))) == changed


def test_fences_of_a_set_are_entered_by_whoever_is_there() -> None:
    engine, columns = two_entities(), columns_of([Fence(5, Moving(disc(0, 0, 1)))], 0)
    group = set_group("", None, "depots", 1 << ENTER, None, 7)
    assert group != set_group("", None, "depots", 1 << ENTER, 7, 7)
    assert told(put_in_set(engine, 10, with_options(columns, group))) == [(1, ENTER, NONE, 10)]
    assert engine.index.areas[engine.index.slots[5]]["linger"] == 7
    assert len(put_in_set(engine, 10, columns_of([], 0))) == 0
    assert columns.areas["linger"].tolist() == [0], "the set itself asks nothing"


def test_subscriptions_share_an_engine_by_channel_and_filter() -> None:
    assert GroupKey("", None) == GroupKey("", None) != GroupKey("", "weight > 1")


fixes = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(-2, 2), st.booleans()), max_size=12
)


@given(fixes)
@examples(100)
def test_fixes_that_a_filter_refuses_are_left_at_their_own_times(
    rows: list[tuple[int, int, int, bool]],
) -> None:
    """However many are given at once, it is as if each were given alone."""
    some, t = [], 0
    for entity, pause, x, passes in rows:
        t += pause
        some.append((entity, t, (x, 0), passes))
    fence = Fence(5, Moving(disc(0, 0, 1)), 1 << ENTER | 1 << LEAVE)

    def give(parts: list[list[tuple[int, int, tuple[int, int], bool]]]) -> list[Any]:
        engine = FenceEngine()
        put_area(engine, 0, fence)
        found: list[Any] = []
        for part in parts:
            entities, times, places, passing = zip(*part, strict=True)
            given_fixes = fixes_of(entities, times, places)
            for events in give_fixes(engine, given_fixes, np.array(passing)):
                found += told(events)
        return sorted(found)

    assert give([some] if some else []) == give([[one] for one in some])
