"""Windows of traffic and delivery over a trace that still grows, by Structured Streaming.

Event time is the trace's own `t`. A window is written once, complete, when the watermark says that
no row of it can come any more: `late_s` after its end for traffic, twice that for delivery, because
a publication waits `late_s` for its deliveries. When the run ends by itself, all that is left is
written. Rows later than that are left out here; the jobs over finished traces count them.

What has been written, and how far the trace has been read, are kept together under `out`; so a
restart, after a clean stop or a kill, goes on where the last complete batch ended. Read it with
`windows`: files that a killed batch has left are in the folder too, and only Spark's log there
knows them.
"""

import shutil
from collections.abc import Callable
from pathlib import Path
from time import sleep
from typing import TypeAlias

import msgspec
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from nearcast.pipeline.lake import open_traces
from nearcast.pipeline.source import END, NearcastSource
from nearcast.trace.schema import TraceError

# How many subscriptions should have heard each publication: the publications of a batch and all
# interests recorded so far to (run, publication, expected).
ExpectedCounts: TypeAlias = Callable[[DataFrame, DataFrame], DataFrame]

SCHEMAS = {
    "traffic": "run string, start_s double, kind string, messages bigint, bytes bigint",
    "delivery": "run string, start_s double, deliveries bigint, pairs bigint, duplicates bigint,"
    " unheard bigint, latency_mean_ms double, latency_p50_ms double, latency_p90_ms double,"
    " latency_p99_ms double, latency_max_ms double",
}
_EXPECTED = "run string, start_s double, publications bigint, expected bigint"
PATIENCE = 6  # times that a query is started
_PERCENTILES = (0.5, 0.9, 0.99)
_ACCURACY = 10_000  # of approximate percentiles: wrong by at most one rank in so many


def follow(
    spark: SparkSession,
    trace: Path,
    out: Path,
    window_s: float = 1.0,
    late_s: float = 10.0,
    expected_counts: ExpectedCounts | None = None,
) -> list[StreamingQuery]:
    """Start counting a growing trace into `out`, or go on: traffic, delivery[, expected]."""
    if window_s <= 0 or late_s < 0:
        raise ValueError(f"windows of {window_s} s, {late_s} s late: there are no such windows")
    if len(open_traces([trace])) > 1:
        raise TraceError(f"{trace} holds several traces, whose times have nothing in common")
    _claim(trace, out, window_s, late_s)
    spark.dataSource.register(NearcastSource)

    def growing(table: str, columns: str, **options: str) -> DataFrame:
        stream = spark.readStream.format("nearcast").schema(f"run string, t bigint, {columns}")
        return stream.options(table=table, endMark="true", **options).load(str(trace.resolve()))

    messages = growing(
        "messages", "kind string, bytes bigint, copies bigint", sums=str(round(window_s * 1e6))
    )
    made = growing("publications", "publication bigint")
    heard = growing("deliveries", "publication bigint, subscription bigint")
    queries = [
        _written(traffic(messages, window_s, late_s), out, "traffic", window_s),
        _written(delivery(made, heard, window_s, late_s), out, "delivery", window_s),
    ]
    if expected_counts is not None:
        queries.append(_expect(spark, trace, out, window_s, expected_counts))
    return queries


def windows(spark: SparkSession, out: Path, table: str = "delivery") -> DataFrame:
    """What has been written so far of "traffic" or "delivery"; `start_s` is in the trace's time.

    Traffic: messages and bytes for each kind. Delivery: of the publications made in the window, the
    deliveries, the pairs of publication and subscription among them, the duplicates beyond these,
    the publications that nobody heard, and the latency of each pair's first delivery (percentiles
    are approximate). If expected counts were asked for, also how many publications there were and
    how many pairs there should be.
    """
    if table not in SCHEMAS:
        raise ValueError(f"there are windows of {' and '.join(SCHEMAS)}, not of {table!r}")
    found = _rows(spark, out / table, "_spark_metadata/[0-9]*", SCHEMAS[table])
    if table == "delivery" and (out / "expected").exists():
        sums = (
            _rows(spark, out / "expected", "batch=*", _EXPECTED)
            .groupBy("run", "start_s")
            .agg(f.sum("publications").alias("publications"), f.sum("expected").alias("expected"))
        )
        found = found.join(sums, on=["run", "start_s"], how="left")
    return found


def _rows(spark: SparkSession, place: Path, sign: str, schema: str) -> DataFrame:
    """Parquet, or nothing as long as there is no sign of a complete batch."""
    if any(place.glob(sign)):
        return spark.read.schema(schema).parquet(str(place))
    return spark.createDataFrame([], schema)


# The two jobs: from streams (or tables) to windows.


def traffic(messages: DataFrame, window_s: float, late_s: float) -> DataFrame:
    return (
        _timed(messages, late_s)
        .groupBy("run", _window("time", window_s), "kind")
        .agg(f.sum("copies").alias("messages"), f.sum("bytes").alias("bytes"))
        .select("run", _start_s(), "kind", "messages", "bytes")
    )


def delivery(
    publications: DataFrame, deliveries: DataFrame, window_s: float, late_s: float
) -> DataFrame:
    made = _timed(publications, late_s).select("run", "publication", f.col("time").alias("made"))
    heard = _timed(deliveries, late_s).select(
        f.col("run").alias("heard_run"),
        f.col("publication").alias("heard_publication"),
        "subscription",
        f.col("time").alias("heard"),
    )
    same = (f.col("run") == f.col("heard_run")) & (
        f.col("publication") == f.col("heard_publication")
    )
    wait = f.expr(f"INTERVAL {round(late_s * 1e6)} MICROSECONDS")
    in_time = f.col("heard").between(f.col("made"), f.col("made") + wait)
    latency_ms = (f.unix_micros("heard") - f.unix_micros("made")) / 1000
    pairs = (
        made.join(heard, on=same & in_time, how="leftOuter")
        .select("run", "publication", "subscription", "made", latency_ms.alias("latency_ms"))
        .groupBy("run", _window("made", window_s), "publication", "subscription")
        .agg(f.count("latency_ms").alias("deliveries"), f.min("latency_ms").alias("latency_ms"))
    )
    was_heard = f.col("subscription").isNotNull()
    return (
        pairs.groupBy("run", "window")
        .agg(
            f.sum("deliveries").alias("deliveries"),
            f.count_if(was_heard).alias("pairs"),
            f.count_if(~was_heard).alias("unheard"),
            f.mean("latency_ms").alias("latency_mean_ms"),
            f.percentile_approx("latency_ms", list(_PERCENTILES), _ACCURACY).alias("latency"),
            f.max("latency_ms").alias("latency_max_ms"),
        )
        .select(
            "run",
            _start_s(),
            "deliveries",
            "pairs",
            (f.col("deliveries") - f.col("pairs")).alias("duplicates"),
            "unheard",
            "latency_mean_ms",
            f.col("latency")[0].alias("latency_p50_ms"),
            f.col("latency")[1].alias("latency_p90_ms"),
            f.col("latency")[2].alias("latency_p99_ms"),
            "latency_max_ms",
        )
    )


def _timed(rows: DataFrame, late_s: float) -> DataFrame:
    """With the `time` of each row. An end mark moves the watermark, and goes no further."""
    time = f.timestamp_micros("t")
    return (
        rows.withColumn("time", time)
        .withWatermark("time", f"{round(late_s * 1000)} milliseconds")
        .where(f.col("time") < f.timestamp_micros(f.lit(END)))
    )


def _window(time: str | Column, window_s: float) -> Column:
    return f.window(time, f"{round(window_s * 1e6)} microseconds").alias("window")


def _start_s() -> Column:
    return (f.unix_micros("window.start") / 1e6).alias("start_s")


# Reading and writing.


def _claim(trace: Path, out: Path, window_s: float, late_s: float) -> None:
    """Say under `out` what is counted there: windows of two kinds must not mix."""
    claim = {"trace": str(trace.resolve()), "window_s": float(window_s), "late_s": float(late_s)}
    file = out / "follows.json"
    if file.exists():
        before = msgspec.json.decode(file.read_bytes())
        if before != claim:
            raise TraceError(f"{out} follows {before}; begin another folder for {claim}")
        return
    out.mkdir(parents=True, exist_ok=True)
    hidden = out / ".follows.json"
    hidden.write_bytes(msgspec.json.encode(claim))
    hidden.replace(file)


def begun(rows: DataStreamWriter) -> StreamingQuery:
    """Start a query and wait until its sources are ready.

    Spark gives the process behind a Python source ten seconds to start, which a busy machine may
    need for several at once. Nothing has been read by then, so one that was late is started again.
    """
    for _ in range(PATIENCE):
        query = rows.start()
        while query.isActive and query.status["message"].startswith("Initializing"):
            sleep(0.05)
        if query.isActive or "failed to connect back" not in str(query.exception()):
            break
    return query


def _written(rows: DataFrame, out: Path, table: str, window_s: float) -> StreamingQuery:
    return begun(
        rows.repartition(1)  # windows are few, and each file costs the next reader
        .writeStream.format("parquet")
        .outputMode("append")
        .option("path", str(out / table))
        .option("checkpointLocation", str(out / "checkpoints" / table))
        .trigger(processingTime=_every(window_s))
    )


def _every(window_s: float) -> str:
    return f"{max(round(window_s * 1000), 1)} milliseconds"


def _expect(
    spark: SparkSession, trace: Path, out: Path, window_s: float, expected_counts: ExpectedCounts
) -> StreamingQuery:
    """Count what should be heard of each batch of publications.

    A recorder names the interests of a moment before the publications of it, so all that matter for
    a batch are there. A batch that is done again after a kill replaces what it had left.
    """

    def count(batch: DataFrame, number: int) -> None:
        made = batch.persist()
        interests = spark.read.format("nearcast").option("table", "interests")
        counts = expected_counts(made, interests.load(str(trace.resolve())))
        sums = (
            made.join(counts, on=["run", "publication"], how="left")
            .groupBy("run", _window(f.timestamp_micros("t"), window_s))
            .agg(f.count("t").alias("publications"), f.sum("expected").alias("expected"))
            .select(
                "run",
                _start_s(),
                "publications",
                f.coalesce("expected", f.lit(0)).alias("expected"),
            )
        )
        place = out / "expected" / f"batch={number}"
        hidden = place.with_name(f".{place.name}")
        sums.coalesce(1).write.mode("overwrite").parquet(str(hidden))
        shutil.rmtree(place, ignore_errors=True)
        hidden.replace(place)
        made.unpersist()

    publications = spark.readStream.format("nearcast").option("table", "publications")
    return begun(
        publications.load(str(trace.resolve()))
        .writeStream.foreachBatch(count)
        .option("checkpointLocation", str(out / "checkpoints" / "expected"))
        .trigger(processingTime=_every(window_s))
    )
