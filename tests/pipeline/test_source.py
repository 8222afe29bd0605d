"""The data source against the rows that were written, and against everything that goes wrong."""

import json
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.datasource import EqualTo, GreaterThanOrEqual, In, InputPartition, LessThan
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxFiles
from pyspark.sql.types import StructType

from nearcast.errors import TraceError
from nearcast.pipeline.source import END, NearcastSource, decode_names, encode_names
from nearcast.pipeline.spark.storage import RUN
from nearcast.pipeline.stream.streaming import start_query
from nearcast.pipeline.writer import TraceWriter
from nearcast.scenario import Scenario, to_json
from nearcast.trace import reader
from nearcast.trace.schema import TABLES
from nearcast.trace.validate import validate
from support.examples import examples
from support.small_traces import (
    Row,
    a_bit_of_everything,
    add_part,
    as_table,
    begin_trace,
    delivery,
    message,
    write_trace,
)

OURS = Scenario(protocol="client-server", workload="waypoint", nodes=3, seconds=1)


def load(spark: SparkSession, path: Any, table: str, **options: str) -> DataFrame:
    spark.dataSource.register(NearcastSource)
    return spark.read.format("nearcast").options(table=table, **options).load(path)


def rows_of(frame: DataFrame) -> list[Row]:
    return [row.asDict() for row in frame.collect()]


def times(frame: DataFrame) -> list[tuple[str, int]]:
    return sorted((row.run, row.t) for row in frame.select("run", "t").collect())


def source(trace: Path, **options: str) -> NearcastSource:
    lower = {name.lower(): value for name, value in options.items()}
    return NearcastSource({"path": str(trace), "table": "deliveries"} | lower)


# Rows and runs.


def test_every_table_comes_back_as_it_was_written_with_its_run_in_front(tmp_path: Path) -> None:
    """All tables, by the objects that Spark's tasks call; then, below, by Spark."""
    everything = a_bit_of_everything()
    trace = tmp_path / "walk"
    for table, rows in everything.items():
        asking = source(trace, table=table)
        plain = StructType([field for field in table_schema(table) if field.name != "run"])
        writer = asking.writer(plain, overwrite=False)
        assert isinstance(writer, TraceWriter)
        writer.commit([writer.write(iter(as_table(table, [row]).to_batches())) for row in rows])
        assert asking.schema() == table_schema(table)
        planned = asking.reader(asking.schema())
        found = [batch for task in planned.partitions() for batch in planned.read(task)]
        assert [row for batch in found for row in batch.to_pylist()] == [
            {"run": "walk", **row} for row in rows
        ]
    assert validate(trace).problems == ()


def table_schema(table: str) -> StructType:
    return from_arrow_schema(pa.schema([RUN, *TABLES[table]]))


def test_spark_reads_what_was_recorded_and_every_reader_what_spark_writes(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = a_bit_of_everything()["interests"]
    trace = write_trace(tmp_path / "walk", {"interests": rows}, to_json(OURS))
    found = load(spark, str(trace), "interests")
    assert rows_of(found.orderBy("t")) == [{"run": OURS.run, **row} for row in rows]
    save(found.drop("run").repartition(2), tmp_path / "copy", "interests")
    assert reader.digest(tmp_path / "copy") == reader.digest(trace)


def test_a_path_is_a_trace_or_a_folder_of_traces_or_several(
    spark: SparkSession, tmp_path: Path
) -> None:
    for number, name in enumerate(["a", "b", "with, comma"]):
        add_part(begin_trace(tmp_path / "all" / name), "deliveries", [delivery(number, 1, 1)], 0)
    write_trace(tmp_path / "ours", {"deliveries": [delivery(9, 1, 1)]}, to_json(OURS))
    of_folder = [("a", 0), ("b", 1), ("with--comma", 2)]
    several = f"{tmp_path}/all, {tmp_path}/ours"
    comma = str(tmp_path / "all" / "with, comma")
    assert times(load(spark, several, "deliveries")) == sorted([*of_folder, (OURS.run, 9)])
    assert times(load(spark, [comma, f"{tmp_path}/ours"], "deliveries")) == sorted(
        [of_folder[2], (OURS.run, 9)]
    )
    assert times(load(spark, comma, "deliveries")) == of_folder[2:]


def test_a_growing_table_shows_its_finished_parts_and_no_others(
    spark: SparkSession, tmp_path: Path
) -> None:
    trace = begin_trace(tmp_path / "walk")
    assert load(spark, str(trace), "deliveries").isEmpty()
    add_part(trace, "deliveries", [delivery(1, 1, 1)], 0)
    add_part(trace, "deliveries", [delivery(2, 2, 1)], ".part-00001.parquet")
    assert times(load(spark, str(trace), "deliveries")) == [("walk", 1)]
    add_part(trace, "deliveries", [delivery(2, 2, 1)], 1)
    assert times(load(spark, str(trace), "deliveries")) == [("walk", 1), ("walk", 2)]


def test_a_schema_chooses_columns(spark: SparkSession, tmp_path: Path) -> None:
    trace = write_trace(tmp_path / "walk", a_bit_of_everything())
    spark.dataSource.register(NearcastSource)
    narrow = spark.read.format("nearcast").schema("kind string, t bigint")
    frame = narrow.option("table", "messages").load(str(trace))
    assert frame.orderBy("t").collect() == [("publish", 4), ("publish", 5)]


def test_messages_alike_are_added_up_where_they_lie(tmp_path: Path) -> None:
    rng = Random(7)
    rows = [
        message(
            rng.randrange(400), kind=rng.choice(["ping", "ack"]), copies=rng.choice([1, 3]),
            bytes=rng.randrange(99), publication=rng.choice([None, 1]),
        )
        for _ in range(500)
    ]  # fmt: skip
    trace = write_trace(tmp_path / "walk", {"messages": [*rows, message(5, copies=0)]})
    asking = source(trace, table="messages", sums="100")
    known = table_schema("messages")
    columns = StructType([known[name] for name in ("t", "publication", "copies", "run", "bytes")])
    planned = asking.reader(columns)
    batches = [batch for task in planned.partitions() for batch in planned.read(task)]
    assert sum(batch.num_rows for batch in batches) < 100
    found: Counter[tuple[Any, ...]] = Counter()
    truth: Counter[tuple[Any, ...]] = Counter()
    for row in (row for batch in batches for row in batch.to_pylist()):
        for name in ("copies", "bytes"):
            found[row["run"], row["t"], row["publication"], name] += row[name]
    for row in rows:
        for name in ("copies", "bytes"):
            truth["walk", row["t"] // 100 * 100, row["publication"], name] += row[name]
    assert found == truth


# What is broken.


def broken_trace(root: Path) -> Path:
    """One good part among others of all sorts."""
    trace = begin_trace(root / "walk")
    sound = [delivery(t, 1, 1) for t in range(120)]
    add_part(trace, "deliveries", [*sound, delivery(-1, 1, 1), delivery(7, 1, 1, hops=None)], 0)
    (trace / "deliveries" / "part-00001.parquet").write_bytes(b"PAR1 but no more")
    pq.write_table(pa.table({"t": [1]}), trace / "deliveries" / "part-00002.parquet")
    damaged = trace / "deliveries" / "part-00003.parquet"
    rows = as_table("deliveries", sound)
    pq.write_table(rows, damaged, row_group_size=60, write_page_checksum=True, use_dictionary=False)
    content = bytearray(damaged.read_bytes())
    at = pq.ParquetFile(damaged).metadata.row_group(1).column(0)
    content[at.data_page_offset + at.total_compressed_size - 1] ^= 1
    damaged.write_bytes(content)
    other = begin_trace(root / "later", b'{"schema": 3}')
    add_part(other, "deliveries", sound, 0)
    return trace


def test_broken_rows_and_files_are_set_aside_with_their_reasons(
    spark: SparkSession, tmp_path: Path
) -> None:
    broken_trace(tmp_path)
    good = load(spark, str(tmp_path), "deliveries")
    assert times(good) == sorted([("walk", t) for t in [*range(120), *range(60)]])
    aside = load(spark, str(tmp_path), "deliveries", rejected="true")
    assert aside.columns == ["run", "table", "file", "row", "reason"]
    set_aside = sorted((row.run, row.file, row.row or -1, row.reason) for row in aside.collect())
    assert {row.table for row in aside.select("table").collect()} == {"deliveries"}
    assert set_aside == [
        ("later", "scenario.json", -1, "says schema 3; this version reads 1 and 2"),
        ("walk", "deliveries/part-00000.parquet", 120, "t is below 0"),
        ("walk", "deliveries/part-00000.parquet", 121, "hops is null"),
        ("walk", "deliveries/part-00001.parquet", -1, set_aside[3][3]),
        ("walk", "deliveries/part-00002.parquet", -1, set_aside[4][3]),
        ("walk", "deliveries/part-00003.parquet", -1, set_aside[5][3]),
    ]
    assert set_aside[3][3].startswith("cannot be read: ")
    assert "column hops is missing" in set_aside[4][3]
    assert set_aside[5][3].startswith("rows 60 to 119: cannot be read: ")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"table": "delivery"}, "there is no table 'delivery'"),
        ({"colour": "red"}, "option colour is unknown"),
        ({"rejected": "yes"}, "option rejected must be true or false, not 'yes'"),
        ({"maxFilesPerTrigger": "0"}, "must be a whole number above 0, not '0'"),
        ({"path": "/nowhere"}, "there is no trace at /nowhere"),
        ({"path": " , "}, "no trace is named"),
        ({"path": "/proc/self/fd"}, "/proc/self/fd holds"),
        ({"rejected": "true", "endMark": "true"}, "option rejected goes neither with endMark"),
        ({"sums": "1000"}, "rows of deliveries cannot be added up"),
    ],
)
def test_what_makes_no_sense_is_refused_in_a_sentence(
    tmp_path: Path, options: dict[str, str], sentence: str
) -> None:
    with pytest.raises(TraceError) as refusal:
        source(begin_trace(tmp_path / "walk"), **options).schema()
    assert sentence in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_errors_of_the_source_reach_the_caller_through_spark(
    spark: SparkSession, tmp_path: Path
) -> None:
    trace = begin_trace(tmp_path / "walk")
    with pytest.raises(AnalysisException, match="there is no table 'delivery'"):
        load(spark, str(trace), "delivery")
    spark.dataSource.register(NearcastSource)
    strange = spark.read.format("nearcast").option("table", "notes").schema("fact bigint")
    with pytest.raises(PySparkException, match="column fact of notes is string, not bigint"):
        strange.load(str(trace)).collect()


def test_conditions_on_time_and_run_pass_over_row_groups(tmp_path: Path) -> None:
    for name in "ab":
        rows = [delivery(t, 1, 1) for t in range(500)]  # row groups of 50
        add_part(begin_trace(tmp_path / name), "deliveries", rows, 0)
    asking = source(tmp_path, pushdown="true")

    def groups(*conditions: Any) -> list[tuple[str, int]]:
        planned = asking.reader(asking.schema())
        assert list(planned.pushFilters(list(conditions))) == list(conditions)
        tasks = [task.value for task in planned.partitions()]
        return [(group.run, group.first) for task in tasks for group in task]

    assert len(groups()) == 20
    since, before = GreaterThanOrEqual(("t",), 149), LessThan(("t",), 150)
    assert groups(since, before, EqualTo(("run",), "b")) == [("b", 100), ("b", 150)]
    assert groups(EqualTo(("t",), 50), In(("run",), ("a", "c"))) == [("a", 50)]
    assert groups(EqualTo(("run",), "a"), EqualTo(("run",), "b")) == []


def test_pushing_conditions_changes_no_answer(spark: SparkSession, tmp_path: Path) -> None:
    rows = [delivery(t, 1, 1) for t in range(500)]
    trace = write_trace(tmp_path / "walk", {"deliveries": rows})
    setting = "spark.sql.python.filterPushdown.enabled"
    spark.conf.set(setting, "true")
    try:
        pushed = load(spark, str(trace), "deliveries", pushdown="true")
        found = times(pushed.where("t > 99 and t < 103 and run = 'walk'"))
    finally:
        spark.conf.unset(setting)
    assert found == [("walk", 100), ("walk", 101), ("walk", 102)]


# Streams.


@given(st.sets(st.one_of(st.integers(0, 300_000), st.sampled_from(["x", "part-1", "part-000007"]))))
@examples(100)
def test_offsets_keep_every_name(parts: set[int | str]) -> None:
    names = {f"part-{p:05}.parquet" if isinstance(p, int) else f"{p}.parquet" for p in parts}
    assert decode_names(encode_names(names)) == names
    assert json.loads(json.dumps(encode_names(names))) == encode_names(names)


def test_offsets_of_long_traces_stay_short() -> None:
    names = [f"part-{number:05}.parquet" for number in range(123_456)]
    assert encode_names(names) == "0-123455"
    assert encode_names([*names, "a.parquet", "part-200000.parquet"]) == "0-123455/200000/a.parquet"


@given(
    st.lists(
        st.tuples(
            st.sets(st.sampled_from(["a0", "a1", "a2", "a3", "b0", "b1", "b7", "ax"])),
            st.integers(0, 3),
            st.booleans(),
        ),
        max_size=6,
    )
)
@examples(40)
def test_each_file_is_in_one_batch_however_it_arrives_and_whoever_asks(
    tmp_path_factory: pytest.TempPathFactory, story: list[tuple[set[str], int, bool]]
) -> None:
    """At each step files appear, at most so many are taken, and the reader may be a new one."""
    root = tmp_path_factory.mktemp("growing")
    for trace in "ab":
        begin_trace(root / trace)
    asking = source(root)
    stream = asking.streamReader(asking.schema())
    arrived: set[str] = set()
    read: list[str] = []
    offset: dict[str, Any] = stream.initialOffset()
    for fresh, most, restarted in [*story, (set[str](), 0, True)]:
        for name in sorted(fresh - arrived):
            number = name[1:] + ".parquet" if name[1:] == "x" else int(name[1:])
            add_part(root / name[0], "deliveries", [delivery(1, 1, 1)], number)
        arrived |= fresh
        if restarted:
            offset = json.loads(json.dumps(offset))
            stream = asking.streamReader(asking.schema())
        limit: ReadLimit = ReadMaxFiles(most) if most else ReadAllAvailable()
        later = stream.latestOffset(offset, limit)
        batch = [group for task in stream.partitions(offset, later) for group in task.value]
        assert not most or len(batch) <= most
        assert stream.partitions(later, later) == []
        read += [f"{group.run}/{Path(group.file).name}" for group in batch]
        offset = later
    assert len(read) == len(set(read)) == len(arrived)


def stream_to(spark: SparkSession, trace: Path, out: Path, **options: str) -> list[int]:
    """Read what is new into `out`, until there is no more; then everything that is there."""
    spark.dataSource.register(NearcastSource)
    rows = spark.readStream.format("nearcast").options(table="deliveries", **options)
    query = start_query(
        rows.load(str(trace))
        .writeStream.format("parquet")
        .option("path", str(out / "rows"))
        .option("checkpointLocation", str(out / "checkpoint"))
        .trigger(availableNow=True)
    )
    query.awaitTermination()
    return sorted(row.t for row in spark.read.parquet(str(out / "rows")).select("t").collect())


def test_a_stream_reads_each_row_once_and_goes_on_after_a_restart(
    spark: SparkSession, tmp_path: Path
) -> None:
    trace, out = begin_trace(tmp_path / "walk"), tmp_path / "out"
    for number in (0, 1, 3):
        add_part(trace, "deliveries", [delivery(number, 1, 1), delivery(-1, 1, 1)], number)
    assert stream_to(spark, trace, out, maxFilesPerTrigger="2") == [0, 1, 3]
    add_part(trace, "deliveries", [delivery(2, 1, 1)], 2)  # late, and with a lower number
    add_part(trace, "deliveries", [delivery(9, 1, 1)], "from elsewhere.parquet")
    (trace / "deliveries" / "part-00004.parquet").write_bytes(b"garbage")
    assert stream_to(spark, trace, out) == [0, 1, 2, 3, 9]
    (trace / "summary.json").write_text("{}")
    assert stream_to(spark, trace, out, endMark="true") == [0, 1, 2, 3, 9, END]


def test_the_end_mark_waits_for_all_runs_and_all_files(tmp_path: Path) -> None:
    for name in "ab":
        add_part(begin_trace(tmp_path / name), "deliveries", [delivery(1, 1, 1)], 0)
    asking = source(tmp_path, endMark="true")
    stream = asking.streamReader(asking.schema())
    (tmp_path / "a" / "summary.json").write_text("{}")
    assert "end" not in stream.latestOffset({}, ReadAllAvailable())
    (tmp_path / "b" / "summary.json").write_text("{}")
    first = stream.latestOffset({}, ReadMaxFiles(1))
    assert "end" not in first
    last = stream.latestOffset(first, ReadMaxFiles(1))
    *_, mark = stream.partitions(first, last)
    assert next(stream.read(mark)).to_pylist() == [
        {"run": "", "t": END, "node": 0, "publication": 0, "subscription": 0, "hops": 0}
    ]
    assert stream.partitions(last, stream.latestOffset(last, ReadMaxFiles(1))) == []


def test_a_file_that_vanishes_under_a_stream_is_no_silent_loss(tmp_path: Path) -> None:
    part = add_part(begin_trace(tmp_path / "walk"), "deliveries", [delivery(1, 1, 1)], 0)
    asking = source(tmp_path / "walk")
    stream = asking.streamReader(asking.schema())
    end = stream.latestOffset({}, ReadAllAvailable())
    (planned,) = stream.partitions({}, end)
    part.unlink()
    with pytest.raises(TraceError, match="was deleted"):
        stream.partitions({}, end)
    with pytest.raises(FileNotFoundError):
        list(stream.read(InputPartition(planned.value)))


# Writing.


def save(rows: DataFrame, path: Path, table: str = "deliveries", mode: str = "append") -> None:
    rows.sparkSession.dataSource.register(NearcastSource)
    rows.write.format("nearcast").option("table", table).mode(mode).save(str(path))


DELIVERIES = "t bigint, node bigint, publication bigint, subscription bigint, hops bigint"


def test_rows_are_appended_in_order_of_time_under_the_next_numbers(
    spark: SparkSession, tmp_path: Path
) -> None:
    trace = begin_trace(tmp_path / "walk")
    add_part(trace, "deliveries", [delivery(1, 1, 1)], 7)
    foreign = spark.createDataFrame([(5, 1, 1, 1, 1), (4, 1, 1, 1, 1)], DELIVERIES).coalesce(1)
    save(foreign, trace)
    save(foreign.limit(0), trace)
    names = [file.name for file in sorted((trace / "deliveries").iterdir())]
    assert names == ["part-00007.parquet", "part-00008.parquet"]
    assert pq.read_table(trace / "deliveries" / names[1]).column("t").to_pylist() == [4, 5]
    assert (trace / "scenario.json").read_bytes() == b'{"schema": 1}'


def test_columns_that_may_be_null_may_be_absent(spark: SparkSession, tmp_path: Path) -> None:
    notes = spark.createDataFrame([(1, 2, "joined")], "t bigint, node bigint, fact string")
    save(notes, tmp_path / "new", "notes")
    joined = {"t": 1, "node": 2, "fact": "joined", "about": None, "value": None}
    assert reader.read(tmp_path / "new", "notes").to_pylist() == [joined]
    assert reader.scenario(tmp_path / "new") == {"schema": 2}


def test_a_job_that_fails_leaves_nothing(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.range(0, 4, 1, 2).select(
        f.when(f.col("id") == 3, f.raise_error(f.lit("broken log")))
        .otherwise(f.col("id"))
        .alias("t"),
        *(f.col("id").alias(name) for name in ("node", "publication", "subscription", "hops")),
    )
    rows = rows.withColumn("t", f.col("t").cast("bigint"))
    with pytest.raises(PySparkException, match="broken log"):
        save(rows, tmp_path / "new")
    assert not (tmp_path / "new").exists()
    trace = write_trace(tmp_path / "walk", {"deliveries": [delivery(1, 1, 1)]})
    with pytest.raises(PySparkException, match="broken log"):
        save(rows, trace)
    assert [file.name for file in (trace / "deliveries").iterdir()] == ["part-00000.parquet"]


def test_rows_of_another_schema_are_refused_with_all_reasons(
    spark: SparkSession, tmp_path: Path
) -> None:
    strange = spark.createDataFrame(
        [("x", 1, 1, 1)], "t string, node bigint, to bigint, hops bigint"
    )
    with pytest.raises(PySparkException) as refusal:
        save(strange, tmp_path / "new")
    assert (
        "these rows do not fit deliveries: column to is unknown; column t is string, not bigint;"
        " column publication is missing; column subscription is missing" in str(refusal.value)
    )
    with pytest.raises(PySparkException, match="only be appended"):
        save(spark.createDataFrame([], DELIVERIES), tmp_path / "new", mode="overwrite")
    begin_trace(tmp_path / "all" / "walk")
    with pytest.raises(PySparkException, match="rows are written to one trace"):
        save(spark.createDataFrame([], DELIVERIES), tmp_path / "all")
    assert not (tmp_path / "new").exists()
