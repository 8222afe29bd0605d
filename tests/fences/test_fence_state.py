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
)
from nearcast.fences.fence_state import FenceEngine
from support.examples import examples
from support.fence_oracle import Disc, Fix, Polygon, Told, fix_events, pair_events
from support.fence_worlds import (
    STEP,
    areas,
    columns_of_fixes,
    durations,
    histories,
    put_area,
    told,
)

fences_with_rules = st.tuples(areas, st.one_of(st.none(), durations), durations)
LATE = 2**40


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
            expected = pair_events(area, fixes, dwell, linger, LATE) + fix_events(area, fixes)
            assert by_time(told(events, entity, number)) == by_time(expected)
