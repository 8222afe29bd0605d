"""A trace in S3 is the trace that a folder of this machine would hold."""

import json
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from nearcast.errors import StorageError, TraceError
from nearcast.monitor.replay import TraceReplay
from nearcast.pipeline.importers import import_movement
from nearcast.scenario import Scenario
from nearcast.sim.run import simulate
from nearcast.storage import RemotePath, list_names, write_whole
from nearcast.trace import reader
from nearcast.trace.merge import merge
from nearcast.trace.schema import TABLES
from nearcast.trace.sinks import TraceFolder
from nearcast.trace.validate import validate
from support.object_store import FaultyProxy, in_bucket

SMALL = Scenario(
    protocol="client-server", workload="waypoint", nodes=6, seconds=2.0,
    settings={"matcher": "scan"},
)  # fmt: skip


def test_a_simulation_into_s3_leaves_the_same_trace(tmp_path: Path, remote: RemotePath) -> None:
    here = simulate(SMALL, tmp_path / "t")
    there = simulate(SMALL, remote)
    assert there.trace == str(remote) and there.rows == here.rows
    assert list_names(remote) == list_names(tmp_path / "t")
    assert reader.digest(remote) == reader.digest(str(remote)) == reader.digest(tmp_path / "t")
    report = validate(str(remote))
    assert (report.problems, report.finished, report.path) == ((), True, str(remote))
    assert report.tables == validate(tmp_path / "t").tables
    with pytest.raises(TraceError, match=r"^s3://.* already holds a trace$"):
        simulate(SMALL, remote)
    replays = TraceReplay(remote), TraceReplay(tmp_path / "t")
    assert replays[0].bounds() == replays[1].bounds()
    assert replays[0].world(1_000_000) == replays[1].world(1_000_000)


def test_traces_in_s3_are_merged(tmp_path: Path, remote: RemotePath) -> None:
    simulate(SMALL, remote / "node")
    rows = {"notes": [{"t": 0, "node": 3, "fact": "joined", "about": None, "value": None}]}
    client = TraceFolder(remote / "client", b'{"schema": 1}')
    client.write(
        {"notes": TABLES["notes"].empty_table().from_pylist(rows["notes"], TABLES["notes"])}
    )
    summary = merge(remote / "node", [str(remote / "client")], remote / "merged")
    local = merge(remote / "node", [remote / "client"], tmp_path / "merged")
    assert summary == local and summary["clients"] == 1
    assert reader.digest(remote / "merged") == reader.digest(tmp_path / "merged")
    assert 3 not in reader.read(remote / "merged", "deliveries")["node"].to_pylist()


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_movement_is_imported_from_s3_into_s3(
    tmp_path: Path, remote: RemotePath, kind: str
) -> None:
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet as pq

    table = pa.table(
        {"t": [0.0, 1.0, 0.0], "entity": ["a", "a", "b"], "x": [0.0, 1, 2], "y": [3.0, 4, 5]}
    )
    file = tmp_path / f"walk.{kind}"
    (pa.csv.write_csv if kind == "csv" else pq.write_table)(table, file)
    write_whole(remote / file.name, file.read_bytes())
    import_movement(file, tmp_path / "t")
    import_movement(str(remote / file.name), remote / "t")
    assert reader.digest(remote / "t") == reader.digest(tmp_path / "t")
    assert reader.scenario(remote / "t") == reader.scenario(tmp_path / "t")
    assert json.loads((remote / "t" / "names.json").read_bytes()) == ["a", "b"]
    with pytest.raises(FileNotFoundError):
        import_movement(remote / "missing.csv", tmp_path / "u")
    write_whole(remote / "bad.csv", b"t,entity,x,y\n0,a,1,2\n1,a,east,2\n")
    with pytest.raises(ValueError, match=r"s3://.*bad.csv.* has x = 'east' in row 2, not a number"):
        import_movement(remote / "bad.csv", remote / "u")


@pytest.mark.parametrize("name", ["", "missing"])
def test_where_there_is_no_trace_is_said_in_one_line(remote: RemotePath, name: str) -> None:
    write_whole(remote / "other" / "file", b"x")
    where = remote / name if name else remote
    why = "there is no trace at" if name else "holds no trace"
    with pytest.raises(TraceError, match=why):
        validate(where)
    with pytest.raises(TraceError, match="is a file; a trace is a folder"):
        validate(remote / "other" / "file")


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
        recorder.delivered(n, n % 9, n, [n], 1)
        if n % 60 == 59:
            print(n, flush=True)
"""


def test_a_run_killed_at_any_moment_leaves_a_sound_trace_in_s3(remote: RemotePath) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", dedent(RECORDS_FOR_EVER), str(remote)], stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    assert child.stdout.readline(), "it has ended by itself"
    child.kill()
    child.wait()
    child.stdout.close()
    report = validate(remote)
    assert report.problems == () and not report.finished
    assert report.tables["deliveries"].rows > 20


def test_a_store_that_goes_away_ends_the_trace_in_one_line(
    endpoint: str, remote: RemotePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEARCAST_STORAGE_ATTEMPTS", "1")
    proxy = FaultyProxy(endpoint)
    folder = TraceFolder(in_bucket(proxy.endpoint, remote.key), b'{"schema": 1}')
    rows = {"t": 0, "node": 3, "fact": "joined", "about": None, "value": None}
    notes = TABLES["notes"].empty_table().from_pylist([rows], TABLES["notes"])
    folder.write({"notes": notes})
    proxy.break_with("away")
    line = r"^cannot write s3://\S+: AWS Error .*connect.*; what was written before stays readable$"
    for _ in range(2):  # and nothing is tried again: the trace would have a hole
        with pytest.raises(TraceError, match=line):
            folder.write({"notes": notes})
    assert validate(remote).tables["notes"].rows == 1
    with pytest.raises(Exception, match=r"^s3://\S+: AWS Error"):
        validate(folder.path)


def test_a_file_that_a_store_does_not_give_is_not_called_damaged(
    remote: RemotePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulate(SMALL, remote)

    def fail(file: RemotePath, **_: object) -> None:
        raise StorageError(f"{file}: out of reach")

    monkeypatch.setattr("nearcast.trace.validate.open_parquet", fail)
    with pytest.raises(StorageError, match="out of reach"):
        validate(remote)
