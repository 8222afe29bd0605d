"""How far a growing trace is evaluated, asked of the objects that Spark asks."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from nearcast.errors import TraceError
from nearcast.pipeline.source import END
from nearcast.pipeline.spark.storage import RowGroup, list_row_groups, open_traces
from nearcast.pipeline.stream import stream_source
from nearcast.pipeline.stream.stream_source import EvaluatedTraceReader, EvaluatedTraceSource
from nearcast.pipeline.truth.partitioning import interests_in_force
from nearcast.storage import AnyPath
from support.growing_traces import SECOND, grow, made_up
from support.small_traces import add_part, begin_trace, interest, message, publication

EVERYTHING = ReadAllAvailable()


def reader(trace: AnyPath, tasks: int = 1, begin: int = 0) -> EvaluatedTraceReader:
    options = {
        "path": str(trace), "span": str(SECOND), "late": str(SECOND), "tasks": str(tasks),
        "keep": str(trace.parent / "keep"), "begin": str(begin),
    }  # fmt: skip
    source = EvaluatedTraceSource(options)
    found = source.streamReader(source.schema())
    assert isinstance(found, EvaluatedTraceReader)
    return found


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return begin_trace(tmp_path / "walk")


def test_time_is_evaluated_as_far_as_deliveries_have_come_less_what_may_be_late(
    trace: Path,
) -> None:
    asking = reader(trace)
    begin = asking.initialOffset()
    assert asking.latestOffset(begin, EVERYTHING) == begin
    rows = made_up(1)
    grow(trace, rows, 0, 4)
    last = max(row["t"] for row in rows["deliveries"] if row["t"] < 4 * SECOND)
    assert last > 3 * SECOND, "so that all before 2 s have had their time"
    assert asking.latestOffset(begin, EVERYTHING) == {"t": 2 * SECOND}, "whole windows"
    later = {"t": 5 * SECOND}
    assert asking.latestOffset(later, EVERYTHING) == later, "time does not go back"


def test_without_deliveries_other_tables_give_the_time_one_look_later(
    trace: Path,
) -> None:
    asking = reader(trace)
    begin = asking.initialOffset()
    add_part(trace, "publications", [publication(7 * SECOND, 1)], 0)
    add_part(trace, "messages", [message(9 * SECOND)], 0)
    assert asking.latestOffset(begin, EVERYTHING) == begin, "deliveries may be about to be named"
    assert asking.latestOffset(begin, EVERYTHING) == {"t": 8 * SECOND}


def test_a_complete_trace_is_evaluated_to_the_end(trace: Path) -> None:
    grow(trace, made_up(1), 0, 99)
    (trace / "summary.json").write_text("{}")
    assert reader(trace).latestOffset({"t": 0}, EVERYTHING) == {"t": END}


def test_a_long_trace_comes_in_batches_that_reach_the_end(trace: Path) -> None:
    for second in range(15):
        grow(trace, made_up(1), second, second + 1)
    (trace / "summary.json").write_text("{}")
    asking, offset, batches = reader(trace), {"t": 0}, 0
    while offset["t"] < END:
        later = asking.latestOffset(offset, ReadMaxRows(100))
        assert later["t"] > offset["t"]
        offset, batches = later, batches + 1
        assert offset["t"] == END or offset["t"] % SECOND == 0, "a batch has whole windows"
    assert 3 < batches < 15


def test_a_window_with_more_rows_than_a_batch_should_have_is_one_batch(trace: Path) -> None:
    for quarter in range(8):
        grow(trace, made_up(1), quarter / 4, (quarter + 1) / 4)
    (trace / "summary.json").write_text("{}")
    assert reader(trace).latestOffset({"t": 0}, ReadMaxRows(1)) == {"t": SECOND}


def test_evaluation_begins_where_windows_have_been_written(trace: Path) -> None:
    assert reader(trace, begin=7 * SECOND).initialOffset() == {"t": 7 * SECOND}


def test_tasks_share_a_stretch_without_gap_or_overlap(
    trace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_source, "MIN_ROWS_PER_TASK", 10)
    grow(trace, made_up(1), 0, 99)
    asking = reader(trace, tasks=3)
    assert asking.partitions({"t": 5}, {"t": 5}) == []
    found = [task.value.part for task in asking.partitions({"t": SECOND}, {"t": 9 * SECOND})]
    assert len(found) == 3
    assert found[0].begin == SECOND and found[-1].end == 9 * SECOND
    assert [part.end for part in found[:-1]] == [part.begin for part in found[1:]]


def test_interests_in_force_are_kept_so_that_old_ones_are_not_read_again(
    trace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_source, "ROWS_PER_SNAPSHOT", 20)
    rows = made_up(2)
    rows["interests"] += [
        interest(2, 99, formula="x < 3 + t", since=2, filter="price > 2", channel="c", echo=True)
    ]
    for second in range(0, 12, 2):
        grow(trace, rows, second, second + 2)
    whole = list_row_groups(open_traces([trace]), "interests")[0]
    before, after = reader(trace), reader(trace)
    for second in (4, 8):
        after.commit({"t": second * SECOND})
    assert [file.stem for file in stream_source.snapshot_files(after.keep)] == [str(8 * SECOND)]
    known = stream_source.interests_since_snapshot(after.keep, whole, 9 * SECOND)
    assert sum(piece.rows for piece in known) < sum(piece.rows for piece in whole)
    for moment in (8 * SECOND, 9 * SECOND, 20 * SECOND):
        kept = stream_source.interests_since_snapshot(after.keep, whole, moment)
        assert held(kept, moment) == held(whole, moment) != []
    assert stream_source.interests_since_snapshot(after.keep, whole, 7 * SECOND) == whole, (
        "kept too late for that"
    )
    stretches = {"t": 8 * SECOND}, {"t": END}
    assert added_up(after, after.partitions(*stretches)) == added_up(
        before, whole_partitions(before, whole, *stretches)
    )


def held(some: list[RowGroup], moment: int) -> list[dict[str, Any]]:
    rows = stream_source.with_all_columns(interests_in_force(some, moment)).to_pylist()
    return sorted(rows, key=lambda row: row["subscription"])


def whole_partitions(
    asking: EvaluatedTraceReader, whole: list[RowGroup], *stretch: dict[str, int]
) -> list[InputPartition]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream_source, "interests_since_snapshot", lambda *_: whole)
        return list(asking.partitions(*stretch))


def added_up(asking: EvaluatedTraceReader, tasks: Any) -> list[dict[str, Any]]:
    rows = [row for task in tasks for batch in asking.read(task) for row in batch.to_pylist()]
    return sorted(rows, key=str)


def test_a_folder_of_several_traces_has_no_common_time(tmp_path: Path) -> None:
    for name in "ab":
        begin_trace(tmp_path / "all" / name)
    with pytest.raises(TraceError, match="holds several traces"):
        stream_source.open_single_trace(tmp_path / "all")


def test_a_trace_of_another_schema_is_refused(tmp_path: Path) -> None:
    begin_trace(tmp_path / "later", b'{"schema": 3}')
    with pytest.raises(TraceError, match=r"scenario.json says schema 3; this version reads 1"):
        stream_source.open_single_trace(tmp_path / "later")
