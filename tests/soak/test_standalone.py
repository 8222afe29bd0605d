"""Clusters of real processes that share no folder with the driver: the same rows, whatever dies.

Each worker of a standalone master has mounts of its own, in which neither the sources nor any
folder of the driver exists. Traces and results are in S3.
"""

import json
import os
import signal
import sys
import tarfile
import time
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.request import Request, urlopen
from uuid import uuid4

import pytest

from nearcast.pipeline.spark.storage import RESULT_FILE
from nearcast.scenario import Scenario
from nearcast.sim.run import simulate
from nearcast.storage import RemotePath
from nearcast.trace.reader import digest
from support.object_store import FaultyProxy, in_bucket
from support.spark_clusters import (
    AS_IF_LARGE,
    NEARCAST,
    PATIENCE_S,
    ROOT,
    SPARK,
    Cluster,
    Machine,
    begin,
    can_unshare,
    connect_server,
    contents,
    finished,
    first_table,
    kill_one,
    standalone_cluster,
)

pytestmark = pytest.mark.soak
HERE = ("--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.driver.bindAddress=127.0.0.1")
ENTRY = ROOT / "src" / "nearcast" / "cli" / "__main__.py"


LIBRARIES = ("llvmlite", "msgspec", "numba", "numpy", "numpy.libs", "pyarrow")


class World(NamedTuple):
    """A trace in S3, and what an analysis on this machine makes of it."""

    trace: RemotePath
    rows: dict[str, bytes]
    printed: dict[str, object]


@pytest.fixture(scope="module")
def world(endpoint: str, tmp_path_factory: pytest.TempPathFactory) -> World:
    trace = in_bucket(endpoint, uuid4().hex) / "world"
    settings = {"loss": 0.05, "jitter_ms": 20.0}
    scenario = Scenario(
        protocol="client-server", workload="hotspots", nodes=200, seconds=20.0, settings=settings
    )
    simulate(scenario, trace)
    out = tmp_path_factory.mktemp("here") / "here"
    command = [*NEARCAST, "analyse", trace, "--json", "--out", out, "--master", "local[2]"]
    printed = json.loads(finished(begin(command)))
    assert printed["missed"] > 0
    return World(trace, contents(out), printed)


@pytest.fixture(scope="module")
def hidden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the driver has on its disk, and no machine of the cluster sees."""
    if not can_unshare():
        pytest.skip("this machine gives nobody mounts of their own")
    return tmp_path_factory.getbasetemp()


@pytest.fixture(scope="module")
def cluster(hidden: Path) -> Iterator[Cluster]:
    with standalone_cluster(hidden) as found:
        yield found


@pytest.fixture(scope="module")
def server(cluster: Cluster, hidden: Path) -> Iterator[tuple[str, Machine]]:
    with connect_server(hidden, cluster.url) as found:
        yield found


def assert_apart(machine: Machine, tmp_path: Path) -> None:
    """It sees neither our sources nor what we have written, but its interpreter."""
    (tmp_path / "ours").touch()
    for ours in (ROOT / "src", ROOT / "tests", tmp_path / "ours"):
        assert ours.exists()
        assert not machine.sees(ours)
    assert machine.sees(ROOT / ".venv" / "bin" / "python")


def test_workers_write_what_they_found_and_a_lost_executor_changes_nothing(
    world: World, cluster: Cluster, endpoint: str, tmp_path: Path
) -> None:
    out = world.trace.with_name("there")
    urlopen(Request(f"{endpoint}/moto-api/recorder/start-recording", method="POST")).close()
    process = begin(
        [*AS_IF_LARGE, "analyse", world.trace, "--json", "--out", out, "--master", cluster.url,
         "--conf", "spark.executorEnv.AWS_ACCESS_KEY_ID=executor", *HERE],
        {"AWS_ACCESS_KEY_ID": "driver", "TMPDIR": str(tmp_path)},
    )  # fmt: skip
    try:
        killed = kill_one(cluster.executors, process, out)
        for worker in cluster.workers:
            assert_apart(worker, tmp_path)
        printed, said = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
        urlopen(Request(f"{endpoint}/moto-api/recorder/stop-recording", method="POST")).close()
    assert process.returncode == 0, said
    assert killed not in cluster.executors()
    assert json.loads(printed) == world.printed
    assert contents(out) == world.rows
    assert "Spark shows its work at http://127.0.0.1:" in said
    assert b"<svg" in (out / "report.html").read_bytes()
    written = requests_by_key(endpoint)
    assert {key for key, path in written if path.endswith(f"/{RESULT_FILE}")} == {"executor"}
    assert any(path.endswith("/report.html") for key, path in written if key == "driver")


def requests_by_key(endpoint: str) -> list[tuple[str, str]]:
    """Who has written what: the access key and the path of each recorded PUT."""
    with urlopen(f"{endpoint}/moto-api/recorder/download-recording") as answer:
        recorded = [json.loads(line) for line in answer.read().splitlines()]
    return [
        (one["headers"]["Authorization"].partition("Credential=")[2].partition("/")[0], one["url"])
        for one in recorded
        if one["method"] == "PUT"
    ]


def test_a_lost_python_worker_and_a_killed_driver_lose_and_double_nothing(
    world: World, cluster: Cluster, tmp_path: Path
) -> None:
    out = world.trace.with_name("again")
    command = [
        *AS_IF_LARGE, "analyse", world.trace, "--json", "--out", out, "--master", cluster.url,
        *HERE,
    ]  # fmt: skip
    process = begin(command, {"TMPDIR": str(tmp_path)})
    try:
        kill_one(cluster.python_workers, process, out)
        kill_one(lambda: [process.pid], process, out)
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # its Java too
        process.communicate()
    assert first_table(out), "nothing was there to be doubled"
    assert json.loads(finished(begin(command, {"TMPDIR": str(tmp_path)}))) == world.printed
    assert contents(out) == world.rows


def test_a_store_that_fails_while_results_are_written_costs_only_another_start(
    world: World, endpoint: str
) -> None:
    proxy = FaultyProxy(endpoint)
    out = world.trace.with_name("failing")
    through = in_bucket(proxy.endpoint, out.key)
    command = [*AS_IF_LARGE, "analyse", world.trace, "--out", through, "--master", "local[2]"]
    patience = {"NEARCAST_STORAGE_TIMEOUT_S": "5", "NEARCAST_STORAGE_ATTEMPTS": "1"}
    process = begin(command, patience)
    while not first_table(out):
        assert process.poll() is None
        time.sleep(0.1)
    proxy.break_with("error")
    _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1
    assert said.count("nearcast: ") == 1 and "s3://" in said
    proxy.break_with("none")
    finished(begin(command))
    assert contents(out) == world.rows


def test_spark_submit_starts_our_entry_point_and_its_settings_hold(
    world: World, cluster: Cluster, tmp_path: Path
) -> None:
    out = world.trace.with_name("submitted")
    submit = [
        SPARK / "bin" / "spark-submit", "--master", cluster.url, "--name", "mine",
        "--executor-memory", "900m", "--conf", "spark.ui.port=0",
        "--conf", "spark.eventLog.enabled=true",
        "--conf", f"spark.eventLog.dir={tmp_path.as_uri()}",
        *HERE, ENTRY, "analyse", world.trace, "--json", "--out", out,
    ]  # fmt: skip
    printed = finished(begin(submit, {"PYSPARK_PYTHON": sys.executable}))
    # What a Python program says on standard error, spark-submit writes to standard output.
    assert json.loads(printed[printed.index("{") :]) == world.printed
    assert contents(out) == world.rows
    (log,) = tmp_path.rglob("events_*")
    settings = log.read_text()
    assert f'"spark.master":"{cluster.url}"' in settings
    assert '"spark.executor.memory":"900m"' in settings
    assert '"spark.app.name":"mine"' in settings


def test_a_connect_server_gives_the_same_rows(
    world: World, server: tuple[str, Machine], tmp_path: Path
) -> None:
    url, machine = server
    for program, name in ((NEARCAST, "small"), (AS_IF_LARGE, "large")):
        out = world.trace.with_name(f"connect-{name}")
        command = [*program, "analyse", world.trace, "--json", "--out", out, "--remote", url]
        assert json.loads(finished(begin(command))) == world.printed
        assert contents(out) == world.rows
    assert_apart(machine, tmp_path)


def test_a_sweep_on_a_connect_server_leaves_the_same_traces(
    server: tuple[str, Machine], endpoint: str, tmp_path: Path
) -> None:
    text = (
        'protocol = "client-server"\nworkload = "waypoint"\nnodes = 8\nseconds = 2\n'
        'seed = [1, 2, 3]\n[settings]\nmatcher = "scan"\n'
    )
    (tmp_path / "sweep.toml").write_text(text)
    there, here = in_bucket(endpoint, uuid4().hex), tmp_path / "here"
    sweep = [*NEARCAST, "sweep", tmp_path / "sweep.toml", "--json", "--out"]
    runs = json.loads(finished(begin([*sweep, there, "--remote", server[0]])))["runs"]
    assert json.loads(finished(begin([*sweep, here, "--master", "local[2]"])))["runs"] == runs
    for run in runs:
        assert digest(there / "traces" / run) == digest(here / "traces" / run)


def test_a_packed_environment_is_all_that_bare_executors_need(
    world: World, hidden: Path, tmp_path: Path
) -> None:
    out = world.trace.with_name("packed")
    with standalone_cluster(hidden, workers=1, BARE=str(SPARK.parent)) as bare:
        command = [
            *NEARCAST, "analyse", world.trace, "--only", "traffic_totals", "--out", out,
            "--master", bare.url, *HERE,
        ]  # fmt: skip
        without = begin(command)
        _, said = without.communicate(timeout=PATIENCE_S)
        assert without.returncode == 1
        line = said.splitlines()[-1]
        assert line.startswith("nearcast: executors have no ") and "spark-cluster.md" in line
        archive = pack_environment(tmp_path / "environment.tar")
        more = ["--conf", f"spark.archives={archive}#environment"]
        finished(begin([*command, *more], {"PYSPARK_PYTHON": "./environment/bin/python"}))
    there = contents(out)
    assert there and there.items() <= world.rows.items()


def pack_environment(archive: Path) -> Path:
    """A virtual environment with what executors need, as `tar` packs it."""
    folder = archive.with_suffix("")
    venv.create(folder)  # without links to an interpreter elsewhere, which Spark does not unpack
    (packages,) = folder.glob("lib/python*/site-packages")
    with tarfile.open(archive, "w") as packed:
        for each in folder.iterdir():  # not the folder: Spark unpacks no entry "."
            packed.add(each, each.name)
        for library in LIBRARIES:
            packed.add(SPARK.parent / library, packages.relative_to(folder) / library)
    return archive
