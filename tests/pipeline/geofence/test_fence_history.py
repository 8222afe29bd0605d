"""What workers do with sorted fixes: against the definition, told naively."""

from itertools import pairwise
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import LongType, StringType

from nearcast.fences.areas import NEVER, join_columns
from nearcast.fences.events import FenceKind, LeaveReason
from nearcast.pipeline.geofence import fence_history
from nearcast.pipeline.geofence.fence_history import (
    PLANE,
    FixPlaces,
    event_schema,
    fence_rules,
    find_events,
)
from nearcast.pipeline.geofence.packed_fences import (
    PackedFences,
    SentFences,
    send_fences,
    texts,
)
from support.examples import examples
from support.fence_oracle import Fix, Polygon, Told, fix_events, pair_events, transitions
from support.fence_worlds import areas, durations, histories, put_area

EVERY_EVENT = ("enter", "leave", "cross", "inside", "outside")
LATE = 2**40


def packed(shapes: list[Any]) -> SentFences:
    columns = join_columns([put_area(number, shape) for number, shape in enumerate(shapes)])
    fences = PackedFences(columns, texts([f"fence {n}" for n in range(len(shapes))]), {})
    spark: Any = None  # nothing is sent
    return send_fences(spark, fences)


def batches(entities: list[list[Fix]], cuts: list[int]) -> list[pa.RecordBatch]:
    """The fixes as Spark hands them over: sorted, and cut anywhere."""
    rows = [
        {"entity": f"entity {number}", "t": fix.t, "x": float(fix.place[0]),
         "y": float(fix.place[1]), "ttl": None if fix.ttl == NEVER else fix.ttl}
        for number, fixes in enumerate(entities) for fix in fixes
    ]  # fmt: skip
    schema = pa.schema([("entity", pa.string()), ("t", pa.int64()), ("x", pa.float64()),
                        ("y", pa.float64()), ("ttl", pa.int64())])  # fmt: skip
    places = [0, *sorted(cut % (len(rows) + 1) for cut in cuts), len(rows)]
    return [pa.RecordBatch.from_pylist(rows[low:high], schema) for low, high in pairwise(places)]


def as_told(rows: list[dict[str, Any]], entity: str, fence: str) -> list[Told]:
    some = [row for row in rows if (row["entity"], row["fence"]) == (entity, fence)]
    return sorted(
        Told(
            row["fix_t"], row["t"], FenceKind[row["kind"].upper()],
            LeaveReason[(row["reason"] or "none").upper()], row["t_out"] or 0,
        )
        for row in some
    )  # fmt: skip


@given(
    st.lists(areas, min_size=1, max_size=4),
    st.lists(histories(), min_size=1, max_size=4),
    st.one_of(st.none(), durations),
    durations,
    st.lists(st.integers(0, 100), max_size=4),
    st.integers(1, 20),
)
@examples(100)
def test_events_are_those_of_the_definition_however_fixes_are_cut(
    shapes: list[Any], entities: list[list[Fix]], dwell: int | None, linger: int,
    cuts: list[int], outside_rows: int,
) -> None:  # fmt: skip
    with patch.object(fence_history, "OUTSIDE_ROWS", outside_rows):
        rows = events_of(shapes, entities, dwell, linger, cuts)
    assert all((row["x_out"] is None) == (row["kind"] != "cross") for row in rows)
    for number, fixes in enumerate(entities):
        for fence, area in enumerate(shapes):
            moves = transitions(area, fixes, LATE)
            due = pair_events(moves, dwell, linger, LATE) + fix_events(area, fixes)
            assert as_told(rows, f"entity {number}", f"fence {fence}") == sorted(due)


def events_of(
    shapes: list[Any], entities: list[list[Fix]], dwell: int | None, linger: int, cuts: list[int]
) -> list[dict[str, Any]]:
    rules = fence_rules(EVERY_EVENT, None if dwell is None else dwell / 1e6, linger / 1e6)
    schema = event_schema(PLANE, StringType(), ())
    work = find_events(packed(shapes), rules, FixPlaces(PLANE, PLANE), schema)
    return [row for batch in work(iter(batches(entities, cuts))) for row in batch.to_pylist()]


def test_a_worker_reads_fences_once(monkeypatch: pytest.MonkeyPatch) -> None:
    received = []
    receive = SentFences.receive
    monkeypatch.setattr(SentFences, "receive", lambda self: received.append(1) or receive(self))
    square, other = ([(0, 0), (4, 0), (4, 4), (0, 4)],), ([(1, 0), (4, 0), (4, 4)],)
    schema = event_schema(PLANE, StringType(), ())
    inside = [[Fix(0, (3, 1))]]
    for shape, count in ((square, 1), (square, 1), (other, 2), (square, 3)):
        work = find_events(
            packed([Polygon(shape)]), fence_rules(("enter",), None, 0), FixPlaces(PLANE, PLANE),
            schema,
        )  # fmt: skip
        found = [row for batch in work(iter(batches(inside, []))) for row in batch.to_pylist()]
        # Nobody is left from the run before, so it is a first fix again.
        assert [row["kind"] for row in found] == ["enter"]
        assert len(received) == count


@pytest.mark.parametrize(
    ("events", "dwell", "linger", "why"),
    [
        (("entre",), None, 0, "no event 'entre'; there are leave, cross, enter"),
        (("dwell",), None, 0, "the event dwell needs the seconds"),
        ((), None, 0, "ask for at least one event"),
        (("enter",), -1, 0, "dwell must be 0 or more seconds"),
        (("enter",), None, float("nan"), "linger must be 0 or more seconds"),
        (("enter",), None, 1e11, "linger must be 0 or more seconds, at most 1e10"),
    ],
)
def test_what_cannot_be_asked_is_said(events: Any, dwell: Any, linger: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        fence_rules(events, dwell, linger)


def test_a_kept_property_must_not_be_a_column_already() -> None:
    assert event_schema(PLANE, LongType(), ("name",)).field("entity").type == pa.int64()
    with pytest.raises(ValueError, match="events have a column 'kind' already"):
        event_schema(PLANE, LongType(), ("kind",))
