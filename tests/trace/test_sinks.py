"""Files appear complete, in order, or not at all."""

import os
import subprocess
import sys
from pathlib import Path
from random import Random
from textwrap import dedent
from time import sleep
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from nearcast.errors import TraceError
from nearcast.trace.reader import read
from nearcast.trace.recorder import Recorder
from nearcast.trace.schema import TABLES
from nearcast.trace.sinks import TraceFolder
from nearcast.trace.validate import validate
from support.examples import seeds
from support.trace_rows import columns, sound

SCENARIO = b'{"schema":1}'


def tables() -> dict[str, pa.Table]:
    return {name: columns(name, rows).cast(TABLES[name]) for name, rows in sound().items()}


def names(root: Path) -> set[str]:
    return {str(file.relative_to(root)) for file in root.rglob("*") if file.is_file()}


def test_a_table_is_a_folder_of_numbered_parts(tmp_path: Path) -> None:
    folder = TraceFolder(tmp_path / "new" / "trace", SCENARIO)
    assert names(folder.path) == {"scenario.json"}
    folder.write({"notes": tables()["notes"], "views": TABLES["views"].empty_table()})
    folder.write(tables())
    assert names(folder.path) == {
        "scenario.json",
        "notes/part-00001.parquet",
        *(f"{name}/part-00000.parquet" for name in TABLES),
    }
    assert (folder.path / "scenario.json").read_bytes() == SCENARIO
    assert not validate(folder.path).finished
    folder.finish({"rows": {"notes": 2}})
    assert (folder.path / "summary.json").read_text() == '{\n  "rows": {\n    "notes": 2\n  }\n}'
    assert validate(folder.path).finished


def test_a_part_is_ordered_by_time_in_row_groups_with_statistics(tmp_path: Path) -> None:
    folder = TraceFolder(tmp_path / "trace", SCENARIO)
    recorder = Recorder(folder)
    times = np.random.default_rng(1).integers(0, 1000, 70_000)
    for number, t in enumerate(times.tolist()):
        recorder.note(t, number, "fact")
    recorder.close()
    part = pq.ParquetFile(folder.path / "notes" / "part-00000.parquet")
    groups = [part.metadata.row_group(i) for i in range(part.num_row_groups)]
    assert [group.num_rows for group in groups] == [65_536, 70_000 - 65_536]
    assert groups[0].column(0).statistics.max <= groups[1].column(0).statistics.min
    assert {group.column(i).compression for group in groups for i in range(5)} == {"ZSTD"}
    assert groups[0].column(2).has_dictionary_page
    assert part.schema_arrow.equals(TABLES["notes"])
    found = part.read(["t", "node"])
    order = np.argsort(times, kind="stable")
    assert found["node"].to_pylist() == order.tolist()
    assert found["t"].to_pylist() == times[order].tolist()


def test_referenced_tables_are_written_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = TraceFolder(tmp_path / "trace", SCENARIO)
    named: list[str] = []
    replace = os.replace

    def noted(source: Path, target: Path) -> None:
        # All parts of the flush are complete before the first of them is named.
        hidden = {file.parent.name for file in folder.path.glob("*/.*")}
        assert hidden == TABLES.keys() - set(named)
        named.append(target.parent.name)
        replace(source, target)

    monkeypatch.setattr(os, "replace", noted)
    folder.write(tables())
    assert named == [
        "interests", "fence_interests", "fence_areas", "publications", "states", "notes",
        "positions", "views", "messages", "direct_messages", "deliveries", "fence_events",
        "direct_deliveries",
    ]  # fmt: skip


def test_a_folder_that_holds_a_trace_is_refused_and_left_alone(tmp_path: Path) -> None:
    TraceFolder(tmp_path, SCENARIO)
    with pytest.raises(TraceError, match=r"already holds a trace$"):
        TraceFolder(tmp_path, b"another")
    (tmp_path / "scenario.json").rename(tmp_path / "messages")
    with pytest.raises(TraceError, match=r"already holds a trace$"):
        TraceFolder(tmp_path, b"another")
    assert names(tmp_path) == {"messages"}


def test_a_path_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(TraceError, match=r"cannot create .*file: File exists$"):
        TraceFolder(tmp_path / "file", SCENARIO)
    with pytest.raises(TraceError, match=r"cannot create .*deeper: Not a directory$"):
        TraceFolder(tmp_path / "file" / "deeper", SCENARIO)


@pytest.mark.parametrize("failing", list(TABLES))
@pytest.mark.parametrize(
    "failure", [OSError(28, "No space left on device"), pa.ArrowInvalid("bad\nlines")]
)
def test_a_flush_that_fails_leaves_the_trace_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str, failure: Exception
) -> None:
    folder = TraceFolder(tmp_path / "trace", SCENARIO)
    folder.write(tables())
    before = names(folder.path)
    write_table = pq.write_table

    def fail(rows: pa.Table, file: pa.NativeFile, **options: Any) -> None:
        write_table(rows, file, **options)
        if rows.schema.equals(TABLES[failing]):
            raise failure

    monkeypatch.setattr(pq, "write_table", fail)
    reason = "No space left on device" if isinstance(failure, OSError) else "bad"
    line = f"cannot write {folder.path}: {reason}; what was written before stays readable"
    with pytest.raises(TraceError) as caught:
        folder.write(tables())
    assert str(caught.value) == line
    assert names(folder.path) == before
    # A trace with a hole would look sound: nothing more is written, not even that all is well.
    monkeypatch.undo()
    for act in (lambda: folder.write(tables()), lambda: folder.finish({})):
        with pytest.raises(TraceError) as again:
            act()
        assert str(again.value) == line
    assert names(folder.path) == before
    assert validate(folder.path).problems == ()


def test_a_folder_that_was_taken_away_is_reported_in_one_line(tmp_path: Path) -> None:
    folder = TraceFolder(tmp_path / "trace", SCENARIO)
    folder.write(tables())
    folder.path.rename(tmp_path / "elsewhere")
    with pytest.raises(TraceError, match=r"^cannot write .*: No such file or directory; what"):
        folder.write(tables())
    assert validate(tmp_path / "elsewhere").problems == ()


FILLS_THE_DISK = """
    import resource, sys
    from random import Random
    from nearcast.trace.recorder import Recorder
    from nearcast.errors import TraceError
    from nearcast.trace.sinks import TraceFolder

    recorder = Recorder(TraceFolder(sys.argv[1], b'{"schema":1}'))
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
    random = Random(1)
    try:
        for rows in (100, 100, 50_000):
            for t in range(rows):
                recorder.position(t, t, random.random(), random.random(), random.random())
                recorder.note(t, t, "fact")
            recorder.flush()
    except TraceError as error:
        print(error)
"""


def test_a_file_that_the_system_cuts_short_never_gets_its_name(tmp_path: Path) -> None:
    root = tmp_path / "trace"
    child = subprocess.run(
        [sys.executable, "-c", dedent(FILLS_THE_DISK), root], capture_output=True, text=True
    )
    assert child.stderr == ""
    assert child.stdout == (
        f"cannot write {root}: File too large; what was written before stays readable\n"
    )
    assert len(names(root)) == 5
    assert validate(root).problems == ()
    assert read(root, "positions").num_rows == read(root, "notes").num_rows == 200


RECORDS_FOR_EVER = """
    import sys
    from itertools import count
    from nearcast.model.publication import Publication
    from nearcast.model.subscription import Subscription
    from nearcast.space.motion import Moving
    from nearcast.space.shapes import disc, point
    from nearcast.trace.recorder import Recorder
    from nearcast.trace.sinks import TraceFolder

    recorder = Recorder(TraceFolder(sys.argv[1], b'{"schema":1}'), limit=20)
    for n in count():
        recorder.interest(n, Subscription(n, n % 9, Moving(disc(0, 0, 1), since=n)))
        recorder.published(Publication(n, n % 7, n, point(0, 0)))
        recorder.sent_many(n, n % 7, list(range(n % 11)), "publish", 60, n, n + 5)
        recorder.position(n, n % 7, 0, 0, 0)
        recorder.delivered(n, n % 9, n, [n], 1)
"""


@seeds(range(2), range(2, 5))
def test_a_run_killed_at_any_moment_leaves_a_sound_trace(tmp_path: Path, seed: int) -> None:
    root = tmp_path / "trace"
    child = subprocess.Popen([sys.executable, "-c", dedent(RECORDS_FOR_EVER), root])
    try:
        while not (root / "deliveries" / "part-00002.parquet").exists():
            assert child.poll() is None
            sleep(0.01)
        sleep(Random(seed).random() / 10)
    finally:
        child.kill()
        child.wait()
    report = validate(root)
    assert report.problems == ()
    assert not report.finished
    for name, summary in report.tables.items():
        assert read(root, name).num_rows == summary.rows
    assert report.tables["deliveries"].rows > 0
