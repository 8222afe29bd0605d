"""Sweeps: every combination once, complete or absent, whatever fails or is killed meanwhile."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from nearcast.pipeline import sweeps
from nearcast.pipeline.sweeps import SweepProgress, lock_folder, read_sweep, run_in_process, sweep
from nearcast.scenario import Scenario
from nearcast.sim.run import simulate
from nearcast.sim.world import resolve
from nearcast.trace.reader import digest
from nearcast.trace.validate import validate

BASE = 'protocol = "client-server"\nworkload = "waypoint"\nnodes = 4\nseconds = 1\n'


SCAN = '[settings]\nmatcher = "scan"\n'  # needs no compiled kernels, so little worlds start at once


def toml(folder: Path, text: str) -> Path:
    file = folder / "sweep.toml"
    file.write_text(text)
    return file


def folders(out: Path) -> dict[str, int]:
    """All that is in OUT/traces, and what tells a folder from another of the same name."""
    return {path.name: path.stat().st_ino for path in (out / "traces").iterdir()}


# The file.


def test_a_sweep_is_the_grid_of_all_combinations(tmp_path: Path) -> None:
    members = read_sweep(
        toml(
            tmp_path,
            'protocol = "client-server"\nworkload = "waypoint"\nnodes = [4, 5]\nseconds = 1.5\n'
            'seed = [1, 2, 3]\n[settings]\nmatcher = ["grid", "scan"]\nradius = 50\n',
        )
    )
    wanted = []
    for nodes, seed, matcher in product([4, 5], [1, 2, 3], ["grid", "scan"]):
        scenario, _ = resolve(
            Scenario(
                protocol="client-server", workload="waypoint", nodes=nodes, seconds=1.5, seed=seed,
                settings={"matcher": matcher, "radius": 50.0},
            )
        )  # fmt: skip
        values = {"nodes": nodes, "seed": seed, "matcher": matcher}
        wanted.append((scenario.run, values, scenario))
    assert [(each.run, each.values, each.scenario) for each in members] == wanted
    assert len({each.run for each in members}) == 12


def test_equal_scenarios_of_a_sweep_run_once(tmp_path: Path) -> None:
    assert (
        len(read_sweep(toml(tmp_path, BASE + "seed = [1, 1, 2]\n[settings]\nradius = [5, 5.0]")))
        == 2
    )


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (BASE + "sede = 1", "no key 'sede'"),
        (BASE + "[setting]\nradius = 1", "no key 'setting'"),
        (BASE + "settings = 3", "settings must be a table"),
        (BASE.replace("nodes = 4", ""), "has no nodes"),
        (BASE.replace("4", "true"), "nodes must be int or a list of those, not True"),
        (BASE.replace("4", "[4, 5.5]"), "nodes must be int or a list of those, not 5.5"),
        (BASE.replace("4", "0"), "nodes must be between 1"),
        (BASE + "seed = []", "seed is an empty list"),
        (BASE + "seed = 1979-05-27", "seed must be int"),
        (BASE + f"seed = {2**63}", "seed must be a finite number"),
        (BASE + "[settings]\nradius = nan", "settings.radius must be a finite number"),
        (BASE + "[settings]\nradius = [[1]]", r"settings.radius must be .* not \[1\]"),
        (BASE + "[settings]\nradius = [1, 'wide']", "radius must be float, not 'wide'"),
        (BASE + "[settings]\nradious = 1", "no setting 'radious' .* did you mean radius"),
        (BASE + "[settings.radius]\nlow = 1", "settings.radius must be"),
        (BASE + f"seed = {list(range(1001))}\nrecord = {['all'] * 100}", "1,001 seed × 100 record"),
        ("protocol", "is not a TOML file"),
    ],
)
def test_a_wrong_file_is_refused_by_the_name_of_what_is_wrong(
    tmp_path: Path, text: str, why: str
) -> None:
    with pytest.raises(ValueError, match=why):
        read_sweep(toml(tmp_path, text))


def test_nothing_runs_if_any_scenario_is_wrong(spark: SparkSession, tmp_path: Path) -> None:
    file = toml(tmp_path, BASE + '[settings]\nmatcher = ["scan", "guess"]')
    with pytest.raises(ValueError, match="guess"):
        sweep(spark, file, tmp_path / "out")
    assert not (tmp_path / "out").exists()


# Running.


def test_every_run_is_what_simulating_it_alone_would_be(
    spark: SparkSession, tmp_path: Path
) -> None:
    seen: list[SweepProgress] = []
    file = toml(tmp_path, BASE + 'seed = [1, 2]\n[settings]\nmatcher = ["scan", "rtree"]')
    out = tmp_path / "out"
    summary = sweep(spark, file, out, seen.append)
    members = read_sweep(file)
    assert summary == sweeps.SweepSummary(4, 4, 0, 0, tuple(each.run for each in members))
    assert set(folders(out)) == set(summary.runs)
    for each in members:
        trace = out / "traces" / each.run
        assert validate(trace).problems == ()
        alone = tmp_path / each.run
        simulate(each.scenario, alone)
        assert digest(trace) == digest(alone)
        assert (trace / "scenario.json").read_bytes() == (alone / "scenario.json").read_bytes()
        assert json.loads((trace / "summary.json").read_text())["trace"] == str(trace)
    written = json.loads((out / "sweep.json").read_text())
    assert written["scenarios"] == [{"run": each.run, "values": each.values} for each in members]
    assert (seen[0].done, seen[0].total, seen[0].left_s) == (0, 4, None)
    assert (seen[-1].done, seen[-1].failed, seen[-1].left_s) == (4, 0, 0.0)


def test_failures_are_reported_and_lose_nothing_and_are_tried_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    def record(name: str) -> None:
        columns: dict[str, Any] = {"t": [0.0, 1.0], "entity": [1, 1], "x": [0.0, 1.0]}
        pq.write_table(pa.table(columns | {"y": [0.0, 0.0]}), tmp_path / name)

    record("one")
    record("two")
    file = toml(
        tmp_path,
        'protocol = "client-server"\nworkload = "recorded"\nnodes = 1\nseconds = 2\nseed = 7\n'
        + SCAN
        + f"file = {[str(tmp_path / name) for name in ('one', 'missing', 'two')]}",
    )
    one, missing, two = read_sweep(file)
    out = tmp_path / "out"
    summary = sweep(spark, file, out)
    assert summary == sweeps.SweepSummary(3, 2, 0, 1, (one.run, two.run))
    assert set(folders(out)) == {one.run, two.run}
    assert os.listdir(out / "failures") == [f"{missing.run}.json"]
    written = json.loads((out / "failures" / f"{missing.run}.json").read_text())
    assert (written["run"], written["seed"]) == (missing.run, 7)
    assert "No such file or directory" in written["message"]
    assert written["scenario"]["settings"]["file"] == str(tmp_path / "missing")

    before = folders(out)
    record("missing")
    seen: list[SweepProgress] = []
    summary = sweep(spark, file, out, seen.append)
    assert summary == sweeps.SweepSummary(3, 1, 2, 0, (one.run, missing.run, two.run))
    assert (seen[0].skipped, seen[0].failed, seen[-1].done) == (2, 0, 1)
    assert os.listdir(out / "failures") == []
    assert folders(out).items() > before.items()


def test_only_what_is_missing_is_run_again(spark: SparkSession, tmp_path: Path) -> None:
    file, out = toml(tmp_path, BASE + "seed = [1, 2, 3]\n" + SCAN), tmp_path / "out"
    first, second, third = sweep(spark, file, out).runs
    before = folders(out)
    (out / "traces" / second).rename(tmp_path / "gone")
    (out / "traces" / f".{second}.0.unfinished" / "notes").mkdir(parents=True)
    assert sweep(spark, file, out) == sweeps.SweepSummary(3, 1, 2, 0, (first, second, third))
    after = folders(out)
    assert set(after) == {first, second, third}
    assert after[first] == before[first]
    assert after[third] == before[third]
    assert digest(out / "traces" / second) == digest(tmp_path / "gone")


def test_two_sweeps_do_not_share_a_folder(spark: SparkSession, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    with lock_folder(out), pytest.raises(ValueError, match="another sweep is running in"):
        sweep(spark, toml(tmp_path, BASE), out)


def test_a_simulation_that_kills_its_process_is_a_failure_like_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = Scenario(protocol="client-server", workload="waypoint", nodes=1, seconds=1)

    def crash(*_: object, **__: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    monkeypatch.setattr(sweeps, "simulate", crash)
    message, _ = run_in_process(scenario, tmp_path / ".trace", tmp_path / "trace")
    assert message == "the process of the simulation died with exit code -9"


KILLED = """
import sys
from pathlib import Path
from nearcast.pipeline.spark.session import start
from nearcast.pipeline.sweeps import sweep
spark = start("local[2]", lean=True, spark_driver_memory="512m")
sweep(spark, Path(sys.argv[1]), Path(sys.argv[2]))
"""


def test_a_killed_sweep_leaves_whole_traces_and_goes_on_where_it_was(
    spark: SparkSession, tmp_path: Path
) -> None:
    text = BASE.replace("nodes = 4", "nodes = 60").replace("seconds = 1", "seconds = 4")
    file, out = toml(tmp_path, text + f"seed = {list(range(8))}\n" + SCAN), tmp_path / "out"
    killed = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(file), str(out)],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    try:
        begun = time.monotonic()
        while True:
            names = list(folders(out)) if (out / "traces").exists() else []
            whole = [name for name in names if name[0] != "."]
            if len(whole) >= 2 and len(whole) < len(names):
                break
            assert killed.poll() is None, "the sweep ended before it could be killed"
            assert time.monotonic() - begun < 300, "the sweep has not begun"
            time.sleep(0.05)
    finally:
        os.killpg(killed.pid, signal.SIGKILL)  # the driver and its JVM, with no time to say goodbye
        killed.wait()
    whole = {name: inode for name, inode in folders(out).items() if name[0] != "."}
    assert 2 <= len(whole) < 8
    for run in whole:
        assert validate(out / "traces" / run).finished
    summary = sweep(spark, file, out)
    assert (summary.total, summary.failed) == (8, 0)
    assert summary.skipped >= len(whole)
    assert summary.skipped + summary.done == 8
    assert folders(out).items() >= whole.items()
    assert set(folders(out)) == set(summary.runs)
    for run in summary.runs:
        report = validate(out / "traces" / run)
        assert report.finished
        assert report.problems == ()


def test_what_is_removed_cannot_become_a_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that outlives its killed sweep ends its simulation just then."""
    unfinished = tmp_path / ".run.0.unfinished"
    (unfinished / "notes").mkdir(parents=True)

    def remove(folder: Path) -> None:
        with pytest.raises(FileNotFoundError):
            unfinished.rename(tmp_path / "run")
        shutil.rmtree(folder)

    monkeypatch.setattr(sweeps, "remove_tree", remove)
    sweeps.remove_unfinished(tmp_path)
    assert os.listdir(tmp_path) == []


def test_what_is_not_complete_in_time_is_ended_and_has_failed(tmp_path: Path) -> None:
    long = Scenario(protocol="client-server", workload="waypoint", nodes=50, seconds=1e6)
    message, _ = run_in_process(long, tmp_path / ".trace", tmp_path / "trace", time.time() + 3)
    assert message.startswith(sweeps.NOT_IN_TIME)
    assert not (tmp_path / "trace").exists()
    assert run_in_process(long, tmp_path / ".b", tmp_path / "b", time.time() - 1) == (
        sweeps.NOT_BEGUN,
        "",
    )


ORPHANED = """
import sys
from pathlib import Path
from nearcast.pipeline.sweeps import run_in_process
from nearcast.scenario import Scenario
world = Scenario(protocol="client-server", workload="waypoint", nodes=50, seconds=1e6,
                 settings={"matcher": "scan"})
run_in_process(world, Path(sys.argv[1]), Path(sys.argv[2]))
"""


def test_a_simulation_ends_with_the_process_that_waits_for_it(tmp_path: Path) -> None:
    """A cancelled task is killed, and its simulation would go on for hours."""
    trace = tmp_path / ".trace"
    parent = subprocess.Popen([sys.executable, "-c", ORPHANED, str(trace), str(tmp_path / "b")])
    try:
        while not trace.exists():
            assert parent.poll() is None
            time.sleep(0.05)
        children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split()
        assert len(children) == 1
    finally:
        parent.kill()
        parent.wait()
    while is_running(int(children[0])):
        time.sleep(0.05)


def is_running(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
