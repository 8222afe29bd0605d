"""The whole pipeline in S3: the same rows as in folders of this machine, whatever is killed."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from nearcast.cli.main import fail, main
from nearcast.pipeline.analyse import analyse
from nearcast.pipeline.jobs import awareness, delivery, hotspots, traffic
from nearcast.pipeline.report.reports import write_report
from nearcast.pipeline.report.results import read_folder
from nearcast.pipeline.source import NearcastSource
from nearcast.pipeline.spark import storage
from nearcast.pipeline.spark.storage import open_traces, read_result, write_result
from nearcast.pipeline.stream.streaming import follow, read_windows
from nearcast.pipeline.sweeps import sweep
from nearcast.pipeline.truth.partitioning import interests_in_force, split_along_x
from nearcast.scenario import Scenario
from nearcast.sim.run import simulate
from nearcast.storage import (
    RemotePath,
    list_names,
    remove_tree,
    write_whole,
)
from nearcast.trace.reader import digest, files, read
from nearcast.trace.sinks import SUMMARY
from nearcast.trace.validate import validate
from support.growing_traces import flush_rows, made_up, windows_of
from support.object_store import Fault, FaultyProxy, in_bucket
from support.small_traces import interest, publication

WORLD = Scenario(
    protocol="client-server", workload="waypoint", nodes=20, seconds=4.0,
    settings={"matcher": "scan", "loss": 0.05},
)  # fmt: skip


JOBS = (
    delivery.delivery_totals, delivery.delivery_by_second, traffic.traffic_totals,
    hotspots.world_positions, awareness.awareness_totals,
)  # fmt: skip


def test_simulate_validate_and_analyse_in_s3_as_on_this_machine(
    spark: SparkSession, tmp_path: Path, remote: RemotePath
) -> None:
    for root in (tmp_path, remote):
        simulate(WORLD, root / "t")
    assert validate(remote / "t").problems == ()
    traces = open_traces([remote])  # a folder of traces
    assert [trace.path for trace in traces] == [str(remote / "t")]
    out, local_out = remote / "t-analysis", tmp_path / "t-analysis"
    analyse(spark, open_traces([tmp_path / "t"]), local_out, jobs=JOBS)
    (headline,) = analyse(spark, traces, out, jobs=JOBS)
    assert headline.expected and headline.missed
    assert list_names(out) == list_names(local_out)
    for name in list_names(out):
        here = read_folder(local_out / name / f"run={traces[0].run}")
        assert read_folder(out / name / f"run={traces[0].run}").equals(here), name
    page = write_report(out, out, [traces[0].run], {})
    assert page.read_bytes().startswith(b"<!doctype html>")
    assert len(list_names(out / "plots")) > 2


def test_a_large_table_is_written_by_workers_and_replaces_the_old_one(
    spark: SparkSession, remote: RemotePath, tmp_path: Path
) -> None:
    rows = [("a", n, f"{n}", {"x": n / 2}) for n in range(50)] + [("b", 7, None, {"x": None})]
    frame = spark.createDataFrame(rows, "run string, n long, text string, deep struct<x: double>")
    for out in (remote, tmp_path):
        old = out / "table" / "run=a" / "part-00000-of-an-earlier-version.parquet"
        old.parent.mkdir(parents=True, exist_ok=True)
        write_whole(old, b"")
        for small in (True, False):
            write_result(frame, out, "table", ["a", "b"], small=small)
            assert list_names(out / "table") == ["_SUCCESS", "run=a", "run=b"]
            assert list_names(out / "table" / "run=a") == [storage.RESULT_FILE]
            assert [row["n"] for row in read_result(out, "table", "a")] == list(range(50))
            assert read_result(out, "table", "b") == [{"n": 7, "text": None, "deep": {"x": None}}]
        write_result(frame.filter("run = 'a'"), out, "table", ["a", "b"])
        assert read_result(out, "table", "b") == []
        assert len(read_result(out, "table", "a")) == 50


def test_parts_of_a_trace_are_read_where_the_environment_says(
    remote: RemotePath, endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = {
        "interests": [interest(t, 5) for t in range(3)],
        "publications": [publication(t, t, x=float(t)) for t in range(8)],
    }
    write_whole(remote / "t" / "scenario.json", b'{"schema": 1}')
    flush_rows(remote / "t", rows, 0, 1)
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    traces = open_traces([f"s3://nearcast/{remote.key}/t"])
    interests, publications = (
        storage.list_row_groups(traces, name)[0] for name in ("interests", "publications")
    )
    assert interests_in_force(interests, 2).column("t").to_pylist() == [1]
    assert split_along_x(publications, 2)[0][1] == 3.5


def test_the_data_source_reads_and_appends_in_s3(spark: SparkSession, remote: RemotePath) -> None:
    simulate(WORLD, remote / "t")
    spark.dataSource.register(NearcastSource)
    positions = spark.read.format("nearcast").option("table", "positions").load(str(remote / "t"))
    here = read(remote / "t", "positions")
    assert positions.count() == len(here) > 0
    for _ in range(2):
        rows = positions.drop("run").repartition(2)
        rows.write.format("nearcast").option("table", "positions").mode("append").save(
            str(remote / "u")
        )
    assert len(files(remote / "u", "positions")) == 4
    assert read(remote / "u", "positions").num_rows == 2 * len(here)
    assert all(not name.startswith(".") for name in list_names(remote / "u" / "positions"))
    assert validate(remote / "u").problems == ()


def test_a_sweep_in_s3_runs_what_is_missing(
    spark: SparkSession, remote: RemotePath, tmp_path: Path
) -> None:
    text = (
        'protocol = "client-server"\nworkload = "waypoint"\nnodes = 4\nseconds = 1\n'
        'seed = [1, 2, 3]\n[settings]\nmatcher = "scan"\n'
    )
    file = remote / "sweep.toml"
    write_whole(file, text.encode())
    summary = sweep(spark, file, remote)
    assert (summary.done, summary.failed) == (3, 0)
    first, second, third = summary.runs
    before = digest(remote / "traces" / second)
    (remote / "traces" / second / SUMMARY).unlink()  # as if it had been killed while uploading
    remove_tree(remote / "traces" / third)
    again = sweep(spark, file, remote)
    assert (again.done, again.skipped, again.failed) == (2, 1, 0)
    assert digest(remote / "traces" / second) == before
    (tmp_path / "sweep.toml").write_text(text)
    sweep(spark, tmp_path / "sweep.toml", tmp_path)
    for run in summary.runs:
        assert validate(remote / "traces" / run).finished
        assert digest(remote / "traces" / run) == digest(tmp_path / "traces" / run)
    assert first in list_names(remote / "traces")


# A growing trace.

FOLLOW = [sys.executable, "-m", "nearcast.cli", "analyse", "--json", "--follow"]


def kill_follow(trace: RemotePath, out: RemotePath, temporary: Path) -> float:
    """Follows in a process that is killed after its first window, whose second it returns."""
    child = subprocess.Popen(
        [*FOLLOW, str(trace), "--out", str(out)],
        stdout=subprocess.PIPE, start_new_session=True,
        env=os.environ | {"TMPDIR": str(temporary)},
    )  # fmt: skip
    try:
        assert child.stdout is not None
        first = json.loads(child.stdout.readline())
    finally:
        os.killpg(child.pid, signal.SIGKILL)  # Spark's Java too
        child.communicate()
    second: float = first["second"]
    return second


# `tests/pipeline/stream/test_streaming.py` kills a process that follows a local trace.
@pytest.mark.parametrize("killed", [False, pytest.param(True, marks=pytest.mark.soak)])
def test_a_trace_in_s3_is_followed_where_it_was_left(
    spark: SparkSession, remote: RemotePath, tmp_path: Path, killed: bool
) -> None:
    rows, trace, out = made_up(1, seconds=16), remote / "walk", remote / "out"
    write_whole(trace / "scenario.json", b'{"schema": 1}')
    flush_rows(trace, rows, 0, 12)
    if killed:
        assert kill_follow(trace, out, tmp_path) == 0.0
    else:
        first: list[float] = []
        assert not follow(
            spark, trace, out, on_windows=lambda some: first.extend(w.second for w in some),
            stopped=lambda: bool(first),
        )  # fmt: skip
        assert first[0] == 0.0
    kept = [window.second for window in read_windows(out, "walk")]
    assert kept[:3] == [0.0, 1.0, 2.0]
    flush_rows(trace, rows, 12, 99)
    write_whole(trace / SUMMARY, b"{}")
    later: list[float] = []
    assert follow(spark, trace, out, on_windows=lambda some: later.extend(w.second for w in some))
    truth = windows_of(rows, 1.0, 5.0)
    windows = read_windows(out, "walk")
    assert [window.second for window in windows] == kept + later == sorted(truth)
    for window in windows:
        assert window.expected == truth[window.second]["expected"]
        assert window.delivered == truth[window.second]["delivered"]
        assert window.messages == truth[window.second]["messages"]
    assert follow(spark, trace, out, on_windows=lambda _: pytest.fail("nothing was left"))


# Commands, and stores that fail.


def test_commands_take_uris_and_results_stand_beside_their_trace(
    remote: RemotePath, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
    endpoint: str, tmp_path: Path,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "")  # so that what the file sets is undone at the end
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    (tmp_path / "nearcast.toml").write_text(f'[storage]\nendpoint = "{endpoint}"\n')
    uri = f"s3://nearcast/{remote.key}/walk"
    small = ["--nodes", "4", "--seconds", "1", "--set", "matcher=scan"]
    assert main(["simulate", "client-server", *small, "--trace", uri]) == 0
    assert f"next: nearcast validate {uri}" in capsys.readouterr().out
    assert main(["validate", uri]) == 0
    assert main(["validate", f"{uri}-2"]) == 1
    assert "there is no trace at s3://" in capsys.readouterr().err
    assert main(["import", f"{uri}.csv", "--trace", f"{uri}-3"]) == 2
    assert capsys.readouterr().err == f"nearcast: there is no {uri}.csv\n"


@pytest.mark.parametrize(
    ("uri", "why"),
    [
        ("ftp://host/a", "no storage 'ftp'"),
        ("s3://key:secret@bucket/a", "no credentials in it"),
    ],
)
def test_a_wrong_uri_is_wrong_use(uri: str, why: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["validate", uri])
    assert ended.value.code == 2
    printed = capsys.readouterr().err
    assert why in printed and printed.count("\n") == 1 and "key:secret" not in printed


def test_a_store_that_fails_ends_commands_with_one_line(
    endpoint: str, remote: RemotePath, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("NEARCAST_STORAGE_TIMEOUT_S", "3")
    monkeypatch.setenv("NEARCAST_STORAGE_ATTEMPTS", "1")
    simulate(WORLD, remote / "t")
    proxy = FaultyProxy(endpoint)
    uri = str(in_bucket(proxy.endpoint, remote.key) / "t")
    commands = (
        ["validate", uri],
        ["analyse", uri],
        ["merge", uri, uri, "--trace", uri + "-merged"],
        ["simulate", "client-server", "--nodes", "2", "--seconds", "1", "--trace", uri + "-2"],
    )
    faults: tuple[Fault, ...] = ("error", "silence", "away")
    for fault in faults:
        proxy.break_with(fault)
        for command in commands if fault == "away" else commands[:1]:
            assert main(command) == 1
            printed = capsys.readouterr()
            assert printed.err.count("\n") == 1 and printed.out == ""
            assert f"s3://nearcast/{remote.key}" in printed.err and "AWS Error" in printed.err


def test_a_store_that_goes_away_during_a_job_fails_it_and_rejects_nothing(
    spark: SparkSession, endpoint: str, remote: RemotePath,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    simulate(WORLD, remote / "t")
    proxy = FaultyProxy(endpoint)
    traces = open_traces([in_bucket(proxy.endpoint, remote.key) / "t"])
    frame = storage.rejected_counts(spark, traces)
    proxy.break_with("away")
    with pytest.raises(Exception, match="StorageError") as caught:
        frame.collect()
    assert fail(1, caught.value) == 1
    printed = capsys.readouterr().err
    assert printed.startswith(f"nearcast: s3://nearcast/{remote.key}/t/") and len(printed) < 400
