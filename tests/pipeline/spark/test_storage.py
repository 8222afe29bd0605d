"""Where the pipeline reads and writes: broken files are named, the rest is counted all the same."""

from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from nearcast.errors import TraceError
from nearcast.pipeline.spark import storage
from nearcast.scenario import Scenario
from nearcast.sim.run import simulate
from nearcast.trace import reader
from nearcast.trace.schema import TABLES


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    scenario = Scenario(
        protocol="client-server", workload="waypoint", nodes=20, seconds=2.0,
        settings={"matcher": "scan", "size": 200.0},
    )  # fmt: skip
    simulate(scenario, tmp_path / "trace")
    return tmp_path / "trace"


def test_every_sound_row_arrives_with_its_run(spark: SparkSession, trace: Path) -> None:
    (opened,) = storage.open_traces([trace])
    for name in ("interests", "publications", "views"):
        rows = storage.table_frame(spark, [opened], name).collect()
        assert len(rows) == reader.read(trace, name).num_rows > 0
        assert {row.run for row in rows} == {opened.run}
        assert rows[0].asDict().keys() == {"run", *TABLES[name].names}


def test_broken_rows_and_files_are_set_aside_and_named(spark: SparkSession, trace: Path) -> None:
    file = trace / "publications" / "part-00000.parquet"
    rows = pq.read_table(file)
    x = rows.column("x").to_pylist()
    x[3], x[5] = float("nan"), float("inf")
    place = rows.schema.get_field_index("x")
    pq.write_table(rows.set_column(place, rows.schema.field("x"), pa.array(x)), file)
    (trace / "messages" / "part-00000.parquet").write_bytes(b"PAR1garbage")
    pq.write_table(pa.table({"t": [1]}), trace / "notes" / "part-00009.parquet")
    traces = storage.open_traces([trace])
    assert storage.table_frame(spark, traces, "publications").count() == rows.num_rows - 2
    assert storage.table_frame(spark, traces, "messages").count() == 0
    assert storage.table_frame(spark, traces, "notes").count() == 20
    found = {
        (r.table, Path(r.file).name): (r.rows, r.reason)
        for r in storage.rejected_counts(spark, traces).collect()
    }
    assert found["publications", "part-00000.parquet"][0] == 2
    assert found["messages", "part-00000.parquet"][0] == 1
    assert "node" in found["notes", "part-00009.parquet"][1]
    assert len(found) == 3


@pytest.mark.parametrize("small", [False, True])
def test_results_are_replaced_never_doubled(
    spark: SparkSession, tmp_path: Path, small: bool
) -> None:
    write_result = partial(storage.write_result, small=small)
    for numbers in ([1, 2], [3]):
        frame = spark.createDataFrame([("a", n) for n in numbers] + [("b", 9)], "run string, n int")
        write_result(frame, tmp_path, "counted", ["a", "b"])
    assert storage.read_result(tmp_path, "counted", "a") == [{"n": 3}]
    assert storage.read_result(tmp_path, "counted", "b") == [{"n": 9}]
    frame = spark.createDataFrame([("b", 7)], "run string, n int")
    write_result(frame, tmp_path, "counted", ["b"])
    assert storage.read_result(tmp_path, "counted", "a") == [{"n": 3}], "another run's result stays"
    assert storage.read_result(tmp_path, "counted", "b") == [{"n": 7}]
    assert [p.name for p in tmp_path.iterdir()] == ["counted"]


@pytest.mark.parametrize("small", [False, True])
def test_a_failed_job_leaves_the_old_result(
    spark: SparkSession, tmp_path: Path, small: bool
) -> None:
    write_result = partial(storage.write_result, small=small)
    good = spark.createDataFrame([("a", 1)], "run string, n int")
    write_result(good, tmp_path, "counted", ["a"])
    bad = good.selectExpr("run", "CAST(raise_error('broken on purpose') AS INT) AS n")
    with pytest.raises(Exception, match="broken on purpose"):
        write_result(bad, tmp_path, "counted", ["a"])
    assert storage.read_result(tmp_path, "counted", "a") == [{"n": 1}]


def test_paths_without_a_trace_are_refused_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="there is no trace at"):
        storage.open_traces([tmp_path / "nothing"])
    with pytest.raises(TraceError, match="holds neither a trace nor"):
        storage.open_traces([tmp_path])


def test_two_traces_of_one_run_are_refused(trace: Path) -> None:
    twin = trace.with_name("twin")
    twin.mkdir()
    (twin / "scenario.json").write_bytes((trace / "scenario.json").read_bytes())
    with pytest.raises(TraceError, match="traces of the same run"):
        storage.open_traces([trace, twin])
