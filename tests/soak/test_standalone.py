"""A real master and two real workers, started from the pyspark package."""

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
import pytest

from nearcast.pipeline.spark.session import java_home
from nearcast.scenario import Scenario
from nearcast.sim.run import simulate
from support.spark_clusters import analysing, contents, finished

pytestmark = pytest.mark.soak


@contextmanager
def daemon(folder: Path, name: str, *arguments: str) -> Iterator[None]:
    program = Path(pyspark.__file__).parent / "bin" / "spark-class"
    environment = {**os.environ, "JAVA_HOME": java_home(), "SPARK_WORKER_DIR": str(folder)}
    with (folder / f"{name}.log").open("w") as log:
        process = subprocess.Popen(
            [program, f"org.apache.spark.deploy.{name}", *arguments],
            stdout=log, stderr=log, env=environment,
        )  # fmt: skip
        try:
            yield
        finally:
            process.terminate()
            process.wait(30)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def test_a_standalone_cluster_gives_the_same_rows_as_this_machine(tmp_path: Path) -> None:
    scenario = Scenario(protocol="client-server", workload="hotspots", nodes=300, seconds=20.0)
    simulate(scenario, tmp_path / "world")
    finished(analysing(tmp_path / "world", tmp_path / "here", "local[2]"))
    port = free_port()
    url = f"spark://127.0.0.1:{port}"
    at = ("--host", "127.0.0.1")
    worker = (*at, "--webui-port", "0", "--cores", "1", "--memory", "1g", url)
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    with daemon(tmp_path, "master.Master", *at, "--port", str(port), "--webui-port", "0"):
        deadline = time.monotonic() + 60
        while not answers(port):
            assert time.monotonic() < deadline, "the master does not answer"
            time.sleep(0.2)
        with (
            daemon(tmp_path / "one", "worker.Worker", *worker),
            daemon(tmp_path / "two", "worker.Worker", *worker),
        ):
            finished(analysing(tmp_path / "world", tmp_path / "there", url))
    for name in ("one", "two"):
        assert any((tmp_path / name).glob("app-*")), "this worker was given nothing to do"
    assert contents(tmp_path / "there") == contents(tmp_path / "here")
