"""The same results wherever Spark runs, whatever happens to an executor, and every time."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from nearcast.pipeline.analyse import analyse
from nearcast.pipeline.spark import storage
from nearcast.scenario import Scenario
from nearcast.sim.run import simulate
from support.spark_clusters import analysing, contents, finished, kill_an_executor


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("clusters") / "world"
    settings = {"loss": 0.05, "jitter_ms": 20.0, "size": 2000.0}
    simulate(
        Scenario(
            protocol="client-server", workload="waypoint", nodes=60, seconds=4.0, settings=settings
        ),
        folder,
    )
    return folder


@pytest.fixture(scope="module")
def here(spark: SparkSession, trace: Path) -> dict[str, bytes]:
    """On the suite's own session, two cores of this machine."""
    analyse(spark, storage.open_traces([trace]), trace.with_name("here"))
    return contents(trace.with_name("here"))


def test_analysed_as_if_it_were_large_and_in_other_partitions_it_has_the_same_rows(
    spark: SparkSession,
    trace: Path,
    here: dict[str, bytes],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = spark.conf.get("spark.sql.shuffle.partitions")
    assert before is not None
    spark.conf.set("spark.sql.shuffle.partitions", int(before) + 1)
    monkeypatch.setattr("nearcast.pipeline.analyse.LEAN_ROWS", 0)
    here_it_runs, write_runs = os.getpid(), storage.write_runs

    def write_elsewhere(*arguments: Any) -> Iterator[str]:
        assert os.getpid() != here_it_runs, "the driver writes"
        return write_runs(*arguments)

    monkeypatch.setattr(storage, "write_runs", write_elsewhere)
    try:
        analyse(spark, storage.open_traces([trace]), tmp_path / "again")
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", before)
    # These were written by workers; those in `here` came to this process.
    assert here
    assert contents(tmp_path / "again") == here


@pytest.mark.soak  # four more Java machines take as long as a fifth of all other tests
def test_the_command_line_on_a_cluster_that_loses_an_executor_gives_the_same_rows(
    trace: Path, here: dict[str, bytes], tmp_path: Path
) -> None:
    process = analysing(trace, tmp_path / "out", "local-cluster[2,1,1024]")
    try:
        kill_an_executor(process, tmp_path / "out")
        printed = json.loads(finished(process))
    finally:
        process.kill()
    assert printed["expected"] == printed["correct"] + printed["missed"] > 0
    assert printed["missed"] > 0
    assert contents(tmp_path / "out") == here
    assert "<svg" in (tmp_path / "out" / "report.html").read_text()
