"""Whatever is wrong with a trace is found, and nothing else."""

from math import inf, nan
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from nearcast.errors import TraceError
from nearcast.trace.recorder import Recorder
from nearcast.trace.rules import rejected
from nearcast.trace.schema import TABLES
from nearcast.trace.sinks import TraceFolder
from nearcast.trace.validate import TableSummary, ValidationReport, validate
from support.trace_rows import columns, interest, publication, sound, write_part, write_trace

DISC = {"shape": "disc", "ry": 0.0, "rz": 0.0}
POINT = {"shape": "point", "rx": 0.0, "ry": 0.0, "rz": 0.0}

# A table, what to change in its last row, and the reason by which that row is set aside.
BROKEN_ROWS: list[tuple[str, dict[str, Any], str]] = [
    *((name, {"t": -1}, "t is below 0") for name in TABLES if name != "deliveries"),
    *(
        (name, {column: number}, f"{column} is not in [0, 2**53)")
        for name, column in (
            ("interests", "node"),
            ("interests", "subscription"),
            ("publications", "node"),
            ("publications", "publication"),
            ("deliveries", "node"),
            ("deliveries", "publication"),
            ("deliveries", "subscription"),
            ("messages", "node"),
            ("messages", "to"),
            ("messages", "publication"),
            ("positions", "node"),
            ("views", "node"),
            ("views", "other"),
            ("notes", "node"),
            ("states", "publication"),
            ("fence_interests", "subscription"),
            ("fence_events", "subscription"),
            ("fence_events", "entity"),
        )
        for number in (-1, 2**53)
    ),
    *(
        (name, {axis: number}, f"{axis} is not finite, or beyond ±1e+150")
        for name in ("interests", "publications", "positions", "views", "fence_events")
        for axis in "xyz"
        for number in (nan, inf, -inf, 1.01e150, -1e200)
    ),
    *(
        ("interests", {column: number}, f"{column} is not finite, or beyond ±1e+100")
        for column in ("vx", "vy", "vz", "gx", "gy", "gz")
        for number in (nan, inf, 1.01e100, -1e200)
    ),
    *(
        (name, {"shape": "box", column: number}, f"{column} is negative or NaN")
        for name in ("interests", "publications")
        for column in ("rx", "ry", "rz")
        for number in (nan, -1e-300, -inf)
    ),
    ("interests", {"shape": "sphere"}, "unknown shape"),
    ("publications", {"shape": ""}, "unknown shape"),
    ("interests", {**DISC, "rx": inf}, "infinite extent of a point or disc"),
    ("publications", {**DISC, "rx": inf}, "infinite extent of a point or disc"),
    ("interests", {**DISC, "rx": 1.0, "ry": 1.0}, "a disc with ry or rz"),
    ("publications", {**DISC, "rx": 1.0, "rz": 1.0}, "a disc with ry or rz"),
    ("interests", {**POINT, "rz": 1.0}, "a point with extents"),
    ("publications", {**POINT, "rx": 1.0}, "a point with extents"),
    ("interests", {**POINT, "gx": 1.0}, "a point that grows"),
    ("interests", {**DISC, "rx": 1.0, "gx": 1.0, "gy": 1.0}, "a disc that grows by gy or gz"),
    ("interests", {"vx": 1.0, "until": 2}, "until is before t"),
    ("interests", {"formula": "x > 3", "since": -1}, "since is not in [0, 2**53)"),
    ("interests", {"filter": "price > t", "since": 2**53}, "since is not in [0, 2**53)"),
    ("interests", {"formula": "x > > 3"}, "formula does not parse"),
    ("interests", {"formula": "price > 3"}, "formula does not parse"),
    ("interests", {"formula": ""}, "formula does not parse"),
    ("interests", {"filter": "price >"}, "filter does not parse"),
    ("interests", {"filter": "x > 3"}, "filter does not parse"),
    *(
        ("publications", {"attributes": text}, "attributes are no JSON object")
        for text in ("", "3", "[1]", "null", '{"a":1', '{"a":NaN}', "{'a':1}", '{"a":1} x')
    ),
    ("publications", {"bytes": -1}, "bytes is below 0"),
    ("messages", {"bytes": -1}, "bytes is below 0"),
    ("deliveries", {"hops": -1}, "hops is below 0"),
    ("deliveries", {"t": 3}, "delivered before it was published"),
    ("deliveries", {"publication": 99}, "unknown publication"),
    ("deliveries", {"subscription": 0}, "unknown subscription"),
    ("messages", {"arrived": 4, "lost": False}, "arrived is before t"),
    ("messages", {"arrived": 6}, "both lost and arrived"),
    ("messages", {"copies": 0}, "copies is below 1"),
    ("notes", {"value": nan}, "value is NaN"),
    ("states", {"ttl": -1}, "ttl is below 0"),
    ("fence_interests", {"events": "enter,vanish"}, "events are none"),
    ("fence_interests", {"dwell": -1}, "dwell is below 0"),
    ("fence_interests", {"linger": -1}, "linger is below 0"),
    ("fence_interests", {"filter": "x > 3"}, "filter does not parse"),
    *(
        ("fence_areas", changes, "neither of a subscription nor one of a set")
        for changes in ({"subscription": 5}, {"set": None}, {"fence": None})
    ),
    ("fence_areas", {"until": 2}, "until is before since"),
    ("fence_areas", {"outline": "[]"}, "outline does not parse"),
    ("fence_events", {"kind": "vanish"}, "unknown kind"),
    ("fence_events", {"reason": "bored"}, "unknown reason"),
    *(
        (name, {field.name: None}, f"{field.name} is null")
        for name, schema in TABLES.items()
        for field in schema
        if not field.nullable
    ),
]
NOT_OF_ONE_ROW = {
    "delivered before it was published",
    "unknown publication",
    "unknown subscription",
}


def reasons(report: ValidationReport) -> list[str]:
    return [problem.reason for problem in report.problems]


def test_a_sound_trace_has_no_problem(tmp_path: Path) -> None:
    report = validate(write_trace(tmp_path / "trace", sound()))
    assert report.problems == ()
    assert report.warnings == ()
    assert report.tables["deliveries"] == TableSummary(files=1, rows=2, first=4, last=54)
    assert msgspec.json.decode(msgspec.json.encode(report), type=ValidationReport) == report


def test_a_recorded_trace_and_one_without_rows_have_no_problem(tmp_path: Path) -> None:
    recorder = Recorder(TraceFolder(tmp_path / "trace", b'{"schema":1}'))
    assert reasons(validate(tmp_path / "trace")) == []
    recorder.ended(3, 4, 5)
    recorder.close()
    assert reasons(validate(tmp_path / "trace")) == []


@pytest.mark.parametrize(("table", "changes", "reason"), BROKEN_ROWS)
def test_a_broken_row_is_found_and_no_other(
    tmp_path: Path, table: str, changes: dict[str, Any], reason: str
) -> None:
    rows = sound()
    rows[table][1].update(changes)
    needed = TABLES if table == "deliveries" else [table]
    root = write_trace(tmp_path / "trace", {name: rows[name] for name in needed})
    first, *others = validate(root).problems
    assert (first.table, first.file, first.reason) == (table, f"{table}/part-00000.parquet", reason)
    assert (first.row, first.count) == (1, 1)
    # What cannot be an identifier is also the identifier of nothing.
    assert {other.reason for other in others} <= {f"unknown {column}" for column in changes}
    if reason not in NOT_OF_ONE_ROW:
        batch = columns(table, rows[table])
        assert rejected(table, batch).to_pylist() == [None, reason]
        assert rejected(table, batch.to_batches()[0]).to_pylist() == [None, reason]


def test_a_text_that_does_not_parse_is_shown_with_the_message_of_the_parser(tmp_path: Path) -> None:
    rows = sound()
    rows["interests"] += [interest(9, n, formula="x > > 3") for n in (7, 8)]
    [problem] = validate(write_trace(tmp_path / "trace", rows)).problems
    assert (problem.row, problem.count) == (2, 2)
    assert problem.example.startswith("expected")
    assert "formula='x > > 3'" in problem.example


def test_violations_are_counted_across_row_groups(tmp_path: Path) -> None:
    rows = sound()
    rows["positions"] = rows["positions"] * 40_000
    for number, axis in ((70_001, "x"), (5, "y"), (79_999, "y")):
        rows["positions"][number] = {**rows["positions"][0], axis: nan}
    found = validate(write_trace(tmp_path / "trace", rows)).problems
    assert {(problem.reason, problem.row, problem.count) for problem in found} == {
        ("x is not finite, or beyond ±1e+150", 70_001, 1),
        ("y is not finite, or beyond ±1e+150", 5, 2),
    }


def test_a_row_is_set_aside_for_the_first_reason() -> None:
    row = {**sound()["views"][0], "other": -1, "x": nan, "z": inf}
    assert rejected("views", columns("views", [row])).to_pylist() == ["other is not in [0, 2**53)"]
    assert rejected("views", TABLES["views"].empty_table()).to_pylist() == []


def test_rows_that_contradict_each_other_are_found_across_files(tmp_path: Path) -> None:
    root = write_trace(tmp_path / "trace", sound())
    again = [interest(3, 6), interest(4, 6, node=8), interest(8, 5)]
    write_part(root, "interests", columns("interests", again), 1)
    write_part(root, "publications", columns("publications", [publication(9, 2)]), 1)
    assert [(p.count, p.reason, p.example) for p in validate(root).problems] == [
        (1, "two rows of one subscription at the same t", "subscription=6, t=3, node=7"),
        (1, "a subscription of two nodes", "subscription=6, t=3, node=7"),
        (1, "a publication made twice", "publication=2, t=4 and t=9"),
    ]


def test_wrong_columns_are_named_and_other_files_still_checked(tmp_path: Path) -> None:
    root = write_trace(tmp_path / "trace", sound())
    good = columns("positions", sound()["positions"])
    twice = pa.table([*good.columns, good["x"]], names=[*good.schema.names, "x"])
    write_part(root, "positions", good.drop_columns(["z"]), 1)
    write_part(root, "positions", good.set_column(1, "node", good["node"].cast(pa.int32())), 2)
    write_part(root, "positions", good.append_column("colour", [["red", "blue"]]), 3)
    write_part(root, "positions", twice, 4)
    write_part(root, "positions", columns("positions", [{**good.to_pylist()[0], "x": nan}]), 5)
    report = validate(root)
    assert [(p.file, p.reason) for p in report.problems] == [
        ("positions/part-00001.parquet", "column z is missing"),
        ("positions/part-00002.parquet", "column node is int32, not int64"),
        ("positions/part-00003.parquet", "column colour is unknown"),
        ("positions/part-00004.parquet", "column x is given twice"),
        ("positions/part-00005.parquet", "x is not finite, or beyond ±1e+150"),
    ]
    assert report.tables["positions"] == TableSummary(files=6, rows=11, first=0, last=9)


@pytest.mark.parametrize("table", list(TABLES))
def test_a_damaged_file_is_named_and_no_other(tmp_path: Path, table: str) -> None:
    root = write_trace(tmp_path / "trace", sound())
    file = root / table / "part-00000.parquet"
    whole = file.read_bytes()
    for damaged in (b"", whole[:3], whole[: len(whole) // 2], whole[:-1], b"PAR1" * 30):
        file.write_bytes(damaged)
        [problem] = validate(root).problems
        assert (problem.table, problem.file) == (table, f"{table}/part-00000.parquet")
        assert problem.reason.startswith("cannot be read: ")
        assert "\n" not in problem.reason


def test_a_flipped_bit_in_a_recorded_file_is_found(tmp_path: Path) -> None:
    recorder = Recorder(TraceFolder(tmp_path / "trace", b'{"schema":1}'))
    for t in range(20_000):
        recorder.position(t, t, t * 0.1, t**0.5, t / 3)
    recorder.close()
    file = tmp_path / "trace" / "positions" / "part-00000.parquet"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    [problem] = validate(tmp_path / "trace").problems
    assert problem.reason.startswith("cannot be read: ")


@pytest.mark.parametrize("text", [None, "", "{", "[]", '{"schema": 3}', '{"nodes": 3}'])
def test_a_wrong_scenario_is_a_problem_and_the_tables_are_still_checked(
    tmp_path: Path, text: str | None
) -> None:
    rows = sound()
    rows["notes"][1]["value"] = nan
    root = write_trace(tmp_path / "trace", rows)
    (root / "scenario.json").unlink()
    if text is not None:
        (root / "scenario.json").write_text(text)
    first, second = validate(root).problems
    assert (first.table, first.file) == ("scenario", "scenario.json")
    assert second.reason == "value is NaN"


def test_what_is_no_table_is_a_warning(tmp_path: Path) -> None:
    root = write_trace(tmp_path / "trace", {"notes": sound()["notes"]})
    (root / "speeches").mkdir()
    (root / ".hidden").mkdir()
    (root / "views").write_text("a file")
    (root / "report.html").write_text("")
    report = validate(root)
    assert report.problems == ()
    assert report.warnings == (
        "speeches is not the folder of a table and was not looked at",
        "views is not the folder of a table and was not looked at",
    )


def test_what_is_no_trace_at_all_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "empty").mkdir()
    for name in ("nowhere", "file", "empty"):
        with pytest.raises(TraceError, match=f"^[^\n]*{name}[^\n]*$"):
            validate(tmp_path / name)
