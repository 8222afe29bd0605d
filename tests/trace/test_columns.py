"""Rows that come as columns are the rows that would have come one by one."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from nearcast.matching.matcher import make_batch
from nearcast.model.publication import Publication
from nearcast.trace.recorder import Level, Recorder, is_sampled
from nearcast.trace.schema import TABLES
from nearcast.trace.sinks import MemoryTrace
from support.examples import examples
from support.recorders import rows_held
from support.strategies import publications

# Few rows are packed, many stay columns: both sides of that border.
SIZES = st.one_of(st.integers(0, 5), st.integers(510, 514))
IDS = st.integers(0, 2**53 - 1)


def rows(sink: MemoryTrace, table: str) -> list[dict[str, Any]]:
    """In an order of their own: that of files means nothing."""
    return sorted(sink.table(table).to_pylist(), key=repr)


@given(st.lists(st.tuples(IDS, SIZES, IDS), max_size=4), st.sampled_from(["all", "sampled"]))
@examples(60)
def test_deliveries_and_notes(blocks: list[tuple[int, int, int]], level: Level) -> None:
    one_by_one, in_columns = MemoryTrace(), MemoryTrace()
    single, many = Recorder(one_by_one, level), Recorder(in_columns, level)
    for t, size, first in blocks:
        node, publication = np.arange(size), (np.arange(size) * 7 + first) % 2**53
        subscription = node[::-1].copy()
        for n, p, s in zip(*(c.tolist() for c in (node, publication, subscription)), strict=True):
            single.delivered(t, n, p, [s], 2)
            single.note(t, n, "withheld", p)
        many.delivered_many(t, node, publication, subscription, 2)
        many.noted_many(t, node, "withheld", publication)
        many.delivered(t, 1, first, [5], 3)
        single.delivered(t, 1, first, [5], 3)
    held = sum(2 * size + 1 for _, size, _ in blocks)
    assert rows_held(single) == rows_held(many) == held
    single.close()
    many.close()
    for table in ("deliveries", "notes"):
        assert rows(in_columns, table) == rows(one_by_one, table)
        assert in_columns.table(table).schema == TABLES[table]
    assert many.counts == single.counts


@given(st.lists(st.tuples(IDS, SIZES, IDS), max_size=4), st.sampled_from(["all", "sampled"]))
@examples(60)
def test_deliveries_of_one_publication_and_views(
    blocks: list[tuple[int, int, int]], level: Level
) -> None:
    one_by_one, in_columns = MemoryTrace(), MemoryTrace()
    single, many = Recorder(one_by_one, level), Recorder(in_columns, level)
    for t, size, publication in blocks:
        node, other = np.arange(size), np.arange(size)[::-1].copy()
        place = np.arange(3.0 * size).reshape(-1, 3)
        for n, s, (x, y, z) in zip(node.tolist(), other.tolist(), place.tolist(), strict=True):
            single.delivered(t, n, publication, [s], 2)
            single.view(t, n, s, x, y, z)
        many.delivered_many(t, node, publication, other, 2)
        many.view_many(t, node, other, place)
    single.close()
    many.close()
    for table in ("deliveries", "views"):
        assert rows(in_columns, table) == rows(one_by_one, table)
    assert many.counts == single.counts


@given(st.lists(publications(), min_size=1, max_size=6), st.sampled_from([1, 200]), IDS)
@examples(60)
def test_publications(made: list[Publication], times: int, first: int) -> None:
    first = min(first, 2**53 - len(made) * times)
    sizes = [7 * i for i in range(len(made) * times)]
    several = [
        replace(one, id=first + i, t=made[0].t, payload=b"x" * sizes[i])
        for i, one in enumerate(made * times)
    ]
    one_by_one, in_columns = MemoryTrace(), MemoryTrace()
    single, many = Recorder(one_by_one), Recorder(in_columns)
    for one in several:
        single.published(one)
    attributes = [one.attributes for one in several]
    numbers = np.arange(first, first + len(several))
    many.published_many(make_batch(several), numbers, attributes, np.array(sizes))
    many.flush()
    silent = replace(make_batch(several), channel=None)
    many.published_many(silent, numbers - first, None, np.array(sizes))
    single.close()
    many.close()
    written = in_columns.table("publications")
    assert written.schema == TABLES["publications"]
    assert (
        written.slice(0, len(several)).to_pylist() == one_by_one.table("publications").to_pylist()
    )
    plain = written.slice(len(several))
    assert set(plain.column("channel").to_pylist()) == {""}
    assert set(plain.column("attributes").to_pylist()) == {None}


def test_a_full_recorder_hands_over_before_a_block_and_loses_nothing() -> None:
    sink = MemoryTrace()
    recorder = Recorder(sink, limit=800)
    for i in range(5):
        column = np.arange(600) + 600 * i
        recorder.delivered_many(i, column, column, column, 1)
    assert sink.table("deliveries").num_rows >= 1800
    recorder.close()
    assert sink.table("deliveries").column("node").to_pylist() == list(range(3000))


@pytest.mark.parametrize("size", [4, 600])
def test_only_sampled_publications_keep_their_deliveries(size: int) -> None:
    sink = MemoryTrace()
    recorder = Recorder(sink, "sampled", one_in=4)
    column = np.arange(size)
    recorder.delivered_many(0, column, column, column, 1)
    recorder.close()
    kept = sink.table("deliveries").column("publication").to_pylist()
    assert kept == [i for i in range(size) if is_sampled(i, 4)]


def test_nothing_is_kept_at_the_level_none() -> None:
    sink = MemoryTrace()
    recorder = Recorder(sink, "none")
    column = np.arange(600)
    recorder.delivered_many(0, column, column, column, 1)
    recorder.noted_many(0, column, "withheld", column)
    assert rows_held(recorder) == 0
