"""Parts of a trace, chunk by chunk, against brute force; no Spark, so many examples."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.pipeline.spark import storage
from nearcast.pipeline.truth import join, partitioning, row_groups
from nearcast.pipeline.truth.block_codec import decode_block, encode_block
from nearcast.pipeline.truth.partitioning import TracePart
from nearcast.space.motion import FOREVER
from nearcast.trace.rules import rejected
from nearcast.trace.schema import TABLES
from support.brute_force import expected
from support.examples import examples
from support.small_traces import add_part, begin_trace, interest, publication

STEP = 1_000


@st.composite
def lives(draw: st.DrawFn) -> tuple[list[dict], list[dict]]:
    """Interests that change, end and come back, of few subscriptions at few moments."""
    moments = st.integers(0, 12)
    changes = draw(
        st.lists(
            st.tuples(moments, st.integers(0, 5), st.integers(-2, 2), st.booleans()), max_size=40
        )
    )
    once = {(t, who): (x, ended) for t, who, x, ended in changes}
    wanted = [
        interest(t * STEP, who, node=who, x=float(x), y=0.0, z=0.0, ended=ended)
        for (t, who), (x, ended) in sorted(once.items())
    ]
    publications = [
        publication(t * STEP, number, x=float(x), y=0.0, z=0.0, node=9)
        for number, (t, x) in enumerate(
            sorted(draw(st.lists(st.tuples(moments, st.integers(-4, 4)), max_size=30)))
        )
    ]
    return wanted, publications


def pieces_of(root: Path, table: str, rows: list[dict], size: int) -> list[storage.RowGroup]:
    for number, first in enumerate(range(0, len(rows), size)):
        add_part(root, table, rows[first : first + size], number)
    trace = storage.OpenedTrace(str(root), "run", None)
    return storage.list_row_groups([trace], table)[0]


def pairs_in(part: TracePart) -> list[tuple[int, int]]:
    found = []
    for held, publications in partitioning.read_chunks(part):
        ids = join.column_or_zeros(publications, "publication")
        for which, subscription in join.find_pairs(held, publications):
            found += zip(ids[which].tolist(), subscription.tolist(), strict=True)
    return found


@examples(60)
@given(
    life=lives(),
    size=st.integers(1, 9),
    cut=st.integers(0, 13),
    x=st.integers(-2, 2),
    chunk=st.integers(1, 20),
)
def test_parts_of_time_and_space_find_together_what_brute_force_finds(
    tmp_path_factory: pytest.TempPathFactory, life: tuple[list[dict], list[dict]],
    size: int, cut: int, x: int, chunk: int,
) -> None:  # fmt: skip
    wanted, published = life
    root = begin_trace(tmp_path_factory.mktemp("life") / "trace")
    interests = pieces_of(root, "interests", wanted, size)
    publications = pieces_of(root, "publications", published, size)
    found = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partitioning, "ROWS_PER_CHUNK", chunk)
        patch.setattr(partitioning, "GROUPS_PER_FOLD", 1)
        patch.setattr(join, "MIN_CHANGED_ROWS", 2)
        for begin, end in ((-FOREVER, cut * STEP), (cut * STEP, FOREVER)):
            for low, high in ((-partitioning.MAX_X, float(x)), (float(x), partitioning.MAX_X)):
                found += pairs_in(TracePart("run", begin, end, publications, interests, low, high))
    tables = (pa.Table.from_pylist(rows, TABLES[name]) for rows, name in (
        (wanted, "interests"), (published, "publications")))  # fmt: skip
    assert sorted(found) == sorted(expected(*tables))


def test_rows_in_force_are_found_without_reading_further_back_than_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = begin_trace(tmp_path / "trace")
    rows = [interest(t * STEP, who) for t in range(10) for who in range(4)]
    interests = pieces_of(root, "interests", rows, 4)
    seen: list[storage.RowGroup] = []

    def watched(piece: storage.RowGroup) -> pa.Table:
        seen.append(piece)
        return row_groups.read_row_group(piece)

    monkeypatch.setattr(partitioning, "read_row_group", watched)
    monkeypatch.setattr(partitioning, "GROUPS_PER_FOLD", 1)
    held = partitioning.interests_in_force(interests, 8 * STEP)
    assert join.column_or_zeros(held, "t").tolist() == [7 * STEP] * 4
    assert [piece.first for piece in seen] == [7 * STEP]


BROKEN = [
    {"x": float("nan")}, {"y": 1e200}, {"rx": -1.0}, {"rx": float("inf"), "shape": "disc"},
    {"shape": "ring"}, {"shape": "point"}, {"shape": "disc"}, {"vx": 1e200}, {"until": 0},
    {"filter": "price >"}, {"formula": "x <"}, {"node": -1}, {"subscription": 2**60}, {"t": -1},
    {"channel": None}, {"gz": float("nan")}, {"rz": 1e200},
]  # fmt: skip


@pytest.mark.parametrize("broken", BROKEN, ids=str)
def test_broken_rows_are_set_aside_by_the_rules_and_sound_ones_are_kept(
    tmp_path: Path, broken: dict
) -> None:
    root = begin_trace(tmp_path / "trace")
    round_one = interest(6, 3, shape="disc", ry=0.0, rz=0.0)
    rows = [interest(5, 1), interest(5, 2) | broken, round_one]
    (piece,) = pieces_of(root, "interests", rows, 9)
    assert rejected("interests", pq.read_table(piece.file)).null_count == 2
    assert join.column_or_zeros(row_groups.read_row_group(piece), "subscription").tolist() == [1, 3]


def test_a_table_leaves_out_default_columns_and_tables_come_together_again(
    tmp_path: Path,
) -> None:
    root = begin_trace(tmp_path / "trace")
    plain = [interest(1, 1, z=0.0)]
    rich = [interest(2, 2, z=4.0, channel="chat", echo=True, filter="price > 2", until=7, vx=1.0)]
    tables = [
        row_groups.read_row_group(piece) for piece in pieces_of(root, "interests", plain + rich, 1)
    ]
    assert "vx" not in tables[0].column_names and "channel" not in tables[0].column_names
    both = row_groups.concat_rows(tables, "interests")
    for name in ("z", "vx", "channel", "echo", "filter", "until", "x", "shape"):
        assert both.column(name).to_pylist() == [row[name] for row in plain + rich]


@examples(60)
@given(
    numbers=st.lists(st.integers(0, 2**53 - 1), min_size=1, max_size=9),
    spread=st.sampled_from([1, 200, 60_000, 2**31, 2**53]),
    texts=st.sampled_from([["a"], ["", "a"], ["b", None]]),
)
def test_a_packed_table_is_the_same_when_unpacked(
    numbers: list[int], spread: int, texts: list[str | None]
) -> None:
    count = len(numbers)
    rows = pa.table(
        {
            "t": np.array(numbers) % spread + 2**40,
            "x": np.array(numbers) / 3,
            "rx": np.full(count, 2.5),
            "ended": np.arange(count) % 2 == 0,
            "until": pa.array([None if n % 2 else n for n in numbers], pa.int64()),
            "channel": pa.array([texts[n % len(texts)] for n in numbers]).dictionary_encode(),
        }
    )
    back = decode_block(encode_block(rows))
    assert sorted(back.column_names) == sorted(rows.column_names)
    assert back.select(rows.column_names).to_pylist() == rows.to_pylist()


def test_integers_of_any_range_are_the_same_when_unpacked() -> None:
    """The difference of two numbers may be more than a column of them can hold."""
    for ends in ([-(2**63), 2**63 - 1], [-(2**62), 2**62 + 5], [2**63 - 200, 2**63 - 1]):
        rows = pa.table({"key": pa.array([*ends, ends[0] + 7], pa.int64())})
        assert decode_block(encode_block(rows)).equals(rows)
