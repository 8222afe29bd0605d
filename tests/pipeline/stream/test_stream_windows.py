"""Sums of any stretches, however time is cut into them, against plain Python."""

from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.pipeline.spark import storage
from nearcast.pipeline.stream import stream_windows
from nearcast.pipeline.stream.stream_windows import StreamSlice, slice_sums
from nearcast.pipeline.truth.partitioning import TracePart
from support.examples import examples
from support.growing_traces import COUNTS, SECOND, Windows, grow, made_up, windows_of
from support.small_traces import begin_trace

LATE = 1 * SECOND


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = begin_trace(tmp_path_factory.mktemp("stretches") / "walk")
    for second in range(0, 16, 2):
        grow(root, made_up(3), second, second + 2)
    return root


def stretch(trace: Path, begin: int, end: int) -> StreamSlice:
    publications, wanted, deliveries, noted, sent = (
        storage.list_row_groups([storage.OpenedTrace(str(trace), "walk", None)], name)[0]
        for name in ("publications", "interests", "deliveries", "notes", "messages")
    )
    return StreamSlice(
        TracePart("walk", begin, end, publications, wanted),
        deliveries,
        noted,
        sent,
        LATE,
        SECOND // 2,
    )


def added(rows: list[dict[str, Any]]) -> Windows:
    found: Windows = defaultdict(
        lambda: {**dict.fromkeys(COUNTS, 0), "late": [], "kinds": Counter()}
    )
    for row in rows:
        one = found[row["t"] / SECOND]
        correct, spurious, duplicates = row["correct"], row["spurious"], row["duplicates"]
        one["expected"] += correct + row["missed"]
        one["delivered"] += correct + spurious + duplicates
        for name in set(COUNTS) - {"expected", "delivered"}:
            one[name] += row[name]
        if row["late"] is not None:
            assert row["late_sum"] == row["late"] * correct and row["late_max"] == row["late"]
            one["late"] += [row["late"] / 1000] * correct
        if row["kind"] is not None:
            one["kinds"][row["kind"]] += row["messages"]
    return dict(found)


@examples(25)
@given(
    edges=st.lists(st.integers(1, 16 * SECOND), max_size=4).map(sorted),
    asked=st.sampled_from([7, 100_000]),
)
def test_stretches_add_up_to_what_plain_python_counts(
    trace: Path, edges: list[int], asked: int
) -> None:
    cut = list(zip([0, *edges], [*edges, 99 * SECOND], strict=True))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream_windows, "PUBLICATIONS_PER_JOIN", asked)
        rows = [
            row
            for begin, end in cut
            for batch in slice_sums(stretch(trace, begin, end))
            for row in batch.to_pylist()
        ]
    found = added(rows)
    truth = windows_of(made_up(3), 0.5, LATE / SECOND)
    for one in (*found.values(), *truth.values()):
        one["late"].sort()
    assert found == truth
    totals = {name: sum(one[name] for one in truth.values()) for name in COUNTS}
    assert all(totals.values()), "a world in which everything happens"


def test_equal_rows_of_a_slice_are_summed_to_one(trace: Path) -> None:
    batches = list(slice_sums(stretch(trace, 0, 99 * SECOND)))
    assert all(batch.schema == stream_windows.SUM_SCHEMA for batch in batches)
    rows = pa.Table.from_batches(batches).num_rows
    assert rows < 200 < sum(len(part) for part in made_up(3).values())
