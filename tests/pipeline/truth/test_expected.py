"""The truth on Spark: many little worlds in one query, against brute force and against SQL."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray
from pyspark.sql import SparkSession

from nearcast.pipeline.spark import storage
from nearcast.pipeline.spark.storage import RowGroup
from nearcast.pipeline.truth.expected import (
    JoinStrategy,
    choose_strategy,
    expected_deliveries,
    part_edges,
)
from nearcast.pipeline.truth.partitioning import TracePart
from nearcast.scenario import Scenario
from nearcast.sim.run import simulate
from nearcast.trace import reader
from nearcast.trace.schema import TABLES
from nearcast.trace.sinks import TraceFolder
from support.brute_force import expected as brute_force


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("worlds")
    for seed, (workload, settings) in enumerate(
        [
            ("waypoint", {"size": 300.0, "motion": "line"}),
            ("waypoint", {"size": 300.0, "motion": "steps", "dims": 3}),
            ("waypoint", {"size": 200.0, "motion": "path"}),
            ("hotspots", {"hotspots": "burning", "rate": 4.0}),
            ("clustering", {"churn_rate": 5.0, "churn_by": "crash"}),
        ]
    ):
        scenario = Scenario(
            protocol="client-server", workload=workload, nodes=30, seconds=3.0, seed=seed,
            settings={**settings, "matcher": "scan"},
        )  # fmt: skip
        simulate(scenario, folder / f"world-{seed}")
    return folder


@pytest.mark.parametrize("strategy", ["direct", "shuffle"])
@pytest.mark.parametrize("part", [400_000, 50])
def test_spark_finds_exactly_what_brute_force_finds(
    spark: SparkSession,
    worlds: Path,
    strategy: JoinStrategy,
    part: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("nearcast.pipeline.truth.expected.PUBLICATIONS_PER_PART", part)
    monkeypatch.setattr("nearcast.pipeline.truth.expected.INTERESTS_PER_BUCKET", part)
    traces = storage.open_traces([worlds])
    assert len(traces) == 5
    rows = expected_deliveries(spark, traces, strategy).collect()
    found = {(r.run, r.publication, r.subscription) for r in rows}
    assert len(found) == len(rows)
    should = set()
    for trace in traces:
        interests, publications = (
            reader.read(trace.path, n) for n in ("interests", "publications")
        )
        should |= {(trace.run, p, s) for p, s in brute_force(interests, publications)}
    assert len(should) > 1000
    assert found == should


def piece(number: int, first: int, last: int, rows: int = 1_000_000) -> RowGroup:
    return RowGroup("run", "publications", "file", number, rows, first, last)


def test_a_trace_in_order_is_read_directly_and_one_without_order_is_shuffled() -> None:
    early, late = piece(0, 0, 9), piece(1, 10, 19)
    assert (
        choose_strategy(
            [TracePart("run", 0, 10, [early], []), TracePart("run", 10, 20, [late], [])]
        )
        == "direct"
    )
    both = [piece(0, 0, 19), piece(1, 0, 19)]
    assert (
        choose_strategy([TracePart("run", 0, 10, both, []), TracePart("run", 10, 20, both, [])])
        == "shuffle"
    )


def test_stripes_of_one_moment_are_read_directly_unless_they_are_many() -> None:
    stripes = [TracePart("run", 0, 10, [piece(0, 5, 5)], [], x, x + 1.0) for x in (0.0, 1.0)]
    assert choose_strategy(stripes) == "direct"
    assert choose_strategy(stripes * 3) == "shuffle"


def publications_at(t: NDArray[np.int64]) -> pa.Table:
    columns = {"t": t, "publication": np.arange(len(t)), "shape": ["point"] * len(t)}
    empty = {
        field.name: [""] * len(t) if field.type == pa.string() else np.zeros(len(t))
        for field in TABLES["publications"]
        if not field.nullable
    }
    absent = pa.nulls(len(t), pa.string())
    publications = {**empty, **columns, "attributes": absent, "outline": absent}
    return pa.table(publications, schema=TABLES["publications"])


def largest_part(trace: Path, t: NDArray[np.int64]) -> int:
    """How many of these publications are in the part that has most."""
    pieces, _ = storage.list_row_groups(storage.open_traces([trace]), "publications")
    return int(np.bincount(np.searchsorted(part_edges(pieces), t, "right")).max())


def test_parts_of_a_trace_in_no_order_have_as_much_to_do_each_however_busy_some_moments_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(1)
    t = rng.permutation(np.concatenate([rng.integers(0, 1_000, 9_000), [10**9] * 1_000]))
    sink = TraceFolder(tmp_path / "busy", b'{"schema": 1}')
    sink.write({"publications": publications_at(t)})
    monkeypatch.setattr("nearcast.pipeline.truth.expected.PUBLICATIONS_PER_PART", 1_000)
    assert largest_part(tmp_path / "busy", t) <= 1_100


def test_so_have_they_if_every_file_is_in_order_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a sample of row groups at equal distances has the first ones of all files."""
    t = np.sort(np.random.default_rng(1).integers(0, 10**9, 800))
    folder = tmp_path / "files" / "publications"
    folder.mkdir(parents=True)
    (tmp_path / "files" / "scenario.json").write_bytes(b'{"schema": 1}')
    for file in range(16):
        pq.write_table(publications_at(t), folder / f"part-{file:05}.parquet", row_group_size=100)
    monkeypatch.setattr("nearcast.pipeline.truth.expected.PUBLICATIONS_PER_PART", 1_600)
    assert largest_part(tmp_path / "files", t) <= 150
