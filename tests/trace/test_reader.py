"""A trace read back: any order, any cut, any honest writer."""

from itertools import pairwise
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.errors import TraceError
from nearcast.trace.reader import digest, read, scenario
from nearcast.trace.schema import TABLES
from nearcast.trace.sinks import MemoryTrace
from nearcast.trace.validate import validate
from support.examples import examples
from support.trace_rows import Row, columns, message, sound, write_part, write_trace


def test_rows_come_in_order_of_time_and_within_it_as_they_were_written(tmp_path: Path) -> None:
    root = write_trace(tmp_path / "trace", {})
    for number, (first, second) in ((2, (7, 5)), (100_000, (7, 1)), (99_999, (5, 7))):
        rows = [message(first, bytes=10 * number), message(second, bytes=10 * number + 1)]
        write_part(root, "messages", columns("messages", rows), number)
    found = read(root, "messages")
    assert list(zip(found["t"].to_pylist(), found["bytes"].to_pylist(), strict=True)) == [
        (1, 1_000_001), (5, 21), (5, 999_990), (7, 20), (7, 999_991), (7, 1_000_000),
    ]  # fmt: skip


def test_an_absent_table_is_empty_and_unfinished_files_are_passed_over(tmp_path: Path) -> None:
    root = write_trace(tmp_path / "trace", {"notes": sound()["notes"]})
    (root / "notes" / ".part-00001.parquet.unfinished").write_bytes(b"PAR1")
    (root / "notes" / ".part-00001.parquet").write_bytes(b"PAR1")
    (root / "notes" / "_SUCCESS").write_bytes(b"")
    assert read(root, "notes").to_pylist() == sound()["notes"]
    assert read(root, "views").equals(TABLES["views"].empty_table())


@pytest.mark.parametrize("text", [pa.large_string(), pa.dictionary(pa.int32(), pa.string())])
def test_columns_of_other_writers_are_brought_into_the_schema(
    tmp_path: Path, text: pa.DataType
) -> None:
    root = write_trace(tmp_path / "trace", {})
    foreign = columns("messages", sound()["messages"])
    foreign = foreign.set_column(3, "kind", foreign["kind"].cast(text))
    foreign = foreign.select(foreign.schema.names[::-1]).append_column("more", [[1, 2]])
    write_part(root, "messages", foreign)
    assert read(root, "messages").schema == TABLES["messages"]
    assert read(root, "messages").to_pylist() == sound()["messages"]


def test_what_breaks_the_schema_is_refused_by_its_name(tmp_path: Path) -> None:
    root = write_trace(tmp_path / "trace", sound())
    good = columns("notes", sound()["notes"])
    narrow = good.set_column(0, "t", good["t"].cast(pa.int32()))
    nameless = columns("notes", [{**sound()["notes"][0], "fact": None}])
    for bad, reason in (
        (narrow, "column t is int32, not int64"),
        (good.drop_columns(["about"]), "column about is missing"),
        (nameless, "null"),
    ):
        file = write_part(root, "notes", bad)
        with pytest.raises(TraceError, match=f"cannot read {file}: .*{reason}"):
            read(root, "notes")
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(TraceError, match=f"cannot read {file}: "):
        read(root, "notes")


def test_a_folder_that_is_no_trace_is_reported_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"^there is no trace at .*nowhere: no such folder$"):
        read(tmp_path / "nowhere", "notes")
    with pytest.raises(TraceError, match=r"holds no trace: neither scenario.json nor a table$"):
        digest(tmp_path)
    (tmp_path / "file").write_text("mine")
    with pytest.raises(TraceError, match=r"file is a file; a trace is a folder$"):
        scenario(tmp_path / "file")


def test_the_scenario_is_read_if_its_schema_is_ours(tmp_path: Path) -> None:
    root = write_trace(tmp_path / "trace", sound())
    file = root / "scenario.json"
    file.write_text('{"schema": 1, "nodes": 3}')
    assert scenario(root) == {"schema": 1, "nodes": 3}
    for text, reason in (
        ('{"schema": 3}', "says schema 3; this version reads 1 and 2"),
        ("{}", "says schema None"),
        ("[1]", "cannot read"),
        ('{"schema": 1', "cannot read"),
        ("[" * 100_000, "cannot read"),
    ):
        file.write_text(text)
        with pytest.raises(TraceError, match=reason):
            scenario(root)
    file.unlink()
    with pytest.raises(TraceError, match=r"cannot read .*: No such file"):
        scenario(root)


# The digest.


def in_memory(rows: dict[str, list[Row]]) -> MemoryTrace:
    memory = MemoryTrace()
    memory.write({name: columns(name, some).cast(TABLES[name]) for name, some in rows.items()})
    return memory


# Few values, so that rows often differ in one column alone or not at all.
notes = st.lists(
    st.tuples(
        st.just(3),
        st.integers(0, 1),
        st.sampled_from(["", "a"]),
        st.none() | st.integers(-1, 0),
        st.none() | st.sampled_from([0.0, -0.0, float("inf")]),
    ).map(lambda values: dict(zip(TABLES["notes"].names, values, strict=True))),
    max_size=12,
)


@given(notes, st.randoms(use_true_random=False), st.lists(st.integers(0, 12), max_size=3))
@examples(50)
def test_the_digest_does_not_see_cuts_and_order(
    rows: list[Row], random: Random, cuts: list[int]
) -> None:
    memory, shuffled = MemoryTrace(), rows.copy()
    random.shuffle(shuffled)
    ends = [0, *sorted(cuts), len(rows)]
    for start, end in pairwise(ends):
        part = columns("notes", shuffled[start:end]).cast(TABLES["notes"])
        memory.write({"notes": part})
    assert digest(memory) == digest(in_memory({"notes": rows}))


@given(notes, notes, notes)
@examples(80)
def test_two_traces_have_one_digest_only_if_they_have_the_same_rows(
    shared: list[Row], some: list[Row], others: list[Row]
) -> None:
    some, others = shared + some[:1], others[:1] + shared
    alike = sorted(map(repr, some)) == sorted(map(repr, others))
    assert (digest(in_memory({"notes": some})) == digest(in_memory({"notes": others}))) == alike


@pytest.mark.parametrize(
    ("table", "column", "some", "others"),
    [
        ("notes", "value", [0.0], [-0.0]),
        ("notes", "value", [None], [0.0]),
        ("notes", "about", [None], [0]),
        ("publications", "attributes", [None], [""]),
        ("publications", "attributes", [None, "{}"], ["{}", "{}"]),
        ("publications", "channel", ["a", "bc"], ["ab", "c"]),
    ],
)
def test_the_digest_differs_for_nearly_equal_rows(
    table: str, column: str, some: list[object], others: list[object]
) -> None:
    first, second = (
        digest(in_memory({table: [{**sound()[table][0], column: value} for value in values]}))
        for values in (some, others)
    )
    assert first != second


def test_zeros_of_both_signs_have_an_order() -> None:
    rows = [{**sound()["positions"][0], "x": x} for x in (0.0, -0.0)]
    assert digest(in_memory({"positions": rows})) == digest(in_memory({"positions": rows[::-1]}))


def test_the_digest_is_the_same_on_disk_in_any_encoding(tmp_path: Path) -> None:
    root = write_trace(tmp_path / "trace", sound())
    assert digest(root) == digest(in_memory(sound()))
    kinds = columns("messages", sound()["messages"])
    dictionary = kinds["kind"].cast(pa.dictionary(pa.int32(), pa.string()))
    write_part(root, "messages", kinds.set_column(3, "kind", dictionary))
    assert digest(root) == digest(in_memory(sound()))


ANOTHER = {int: 3, float: 2.25, str: "point", bool: True}


@pytest.mark.parametrize(
    ("table", "column"), [(name, column) for name in TABLES for column in TABLES[name].names]
)
def test_the_digest_sees_any_change(table: str, column: str) -> None:
    changed = sound()
    for row in changed[table]:
        present = next((r[column] for r in sound()[table] if r[column] is not None), 0)
        if row[column] != ANOTHER[type(present)]:
            row[column] = ANOTHER[type(present)]
            break
    assert digest(in_memory(changed)) != digest(in_memory(sound()))


def test_the_digest_sees_a_row_more_and_a_row_in_another_table() -> None:
    twice, elsewhere = sound(), sound()
    twice["positions"] *= 2
    elsewhere["positions"] = []
    seen = {digest(in_memory(rows)) for rows in (sound(), twice, elsewhere, {})}
    assert len(seen) == 4


@pytest.mark.parametrize("table", ["interests", "publications"])
def test_a_trace_of_schema_1_has_no_outlines(table: str, tmp_path: Path) -> None:
    rows = [{**row, "outline": None} for row in sound()[table]]
    content = columns(table, rows)
    write_part(tmp_path / "trace", table, content.drop_columns("outline"))
    (tmp_path / "trace" / "scenario.json").write_text('{"schema": 1}')
    assert read(tmp_path / "trace", table).to_pylist() == sorted(rows, key=lambda row: row["t"])
    assert not validate(tmp_path / "trace").problems
