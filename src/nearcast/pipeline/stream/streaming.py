"""Windows of delivery, latency and traffic over a growing trace, by Structured Streaming.

Event time is the trace's own `t`. Publications are compared with the exact truth when they have had
`late_s` seconds to be delivered. The source (`stream_source`) emits sums, one time slice after the
other; a row at the end of a slice moves Spark's watermark there, so each window is written once,
complete. When the run has ended by itself, the remaining windows are written. Rows later than
`late_s` are left out here; the jobs over finished traces count them.

The offset and the sums of open windows are stored under `out`. A restart, after a clean stop or a
kill, continues where the last complete batch ended.
"""

import shutil
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import sleep
from typing import Any

import msgspec
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from nearcast.errors import StoppedError, TraceError
from nearcast.pipeline.spark.sql import query_sql
from nearcast.pipeline.spark.storage import OpenedTrace
from nearcast.pipeline.stream.stream_source import EvaluatedTraceSource, open_single_trace
from nearcast.storage import encode_parquet, write_whole
from nearcast.trace.sinks import SUMMARY

TABLE = "windows"
MONITOR_WINDOWS = 300  # the latest windows, for a monitor
START_ATTEMPTS = 6


class Window(msgspec.Struct, frozen=True):
    """The outcome of the publications made in a time window, and the messages sent in it."""

    second: float  # when it begins, in the trace's time
    publications: int
    expected: int
    delivered: int  # all deliveries, duplicates included
    correct: int
    missed: int
    spurious: int
    duplicates: int
    latency_ms: dict[str, float | None]  # of the first delivery of each correct pair
    messages: int
    bytes: int
    kinds: list[dict[str, Any]]  # of messages, with the messages and bytes of each


OnWindows = Callable[[Sequence[Window]], None]


def follow(
    spark: SparkSession,
    trace: Path,
    out: Path,
    window_s: float = 1.0,
    late_s: float = 5.0,
    on_windows: OnWindows = lambda _: None,
    stopped: Callable[[], bool] = lambda: False,
) -> bool:
    """Evaluate a growing trace into `out`, or continue; `on_windows` gets windows once written.

    Returns true when the run has ended and all windows are written, false when `stopped` says so;
    the current batch is finished first.
    """
    if window_s <= 0 or late_s < 0:
        raise ValueError(f"window_s must be above 0 and late_s not below, not {window_s}, {late_s}")
    opened = open_single_trace(trace)
    place = out / TABLE / f"run={opened.run}"
    _claim_folder(opened, out, place, window_s, late_s)
    latest = deque[Window](maxlen=MONITOR_WINDOWS)

    def show(found: Sequence[Window]) -> None:
        latest.extend(found)
        live = msgspec.json.encode({"windows": list(latest)})
        write_whole(out / "live.json", live)

    def keep(batch: DataFrame, number: int) -> None:
        if stopped():
            raise StoppedError
        part = place / f"part-{number:08}.parquet"
        try:
            rows = batch.drop("run").toArrow().sort_by("second")
        except Exception as why:
            # Spark searches the message by a pattern, and its stack is too small for a long one.
            raise RuntimeError(str(why)) from None
        # After a kill, a batch is repeated; its file may exist already.
        if len(rows) and not part.exists():
            write_whole(part, encode_parquet(rows))
            found = msgspec.convert(rows.to_pylist(), list[Window])
            show(found)
            on_windows(found)

    show(_read_windows(window_files(place)[-MONITOR_WINDOWS:]))
    spark.dataSource.register(EvaluatedTraceSource)
    evaluated = (
        spark.readStream.format("nearcast-evaluated")
        .options(span=str(round(window_s * 1e6)), late=str(round(late_s * 1e6)))
        .option("tasks", str(spark.sparkContext.defaultParallelism))
        .option("keep", str((out / "following").resolve()))
        .load(str(trace.resolve()))
    )
    query = start_query(
        aggregate_windows(evaluated, round(window_s * 1e6))
        .writeStream.foreachBatch(keep)
        .option("checkpointLocation", str(out / "following" / "checkpoint"))
        .trigger(processingTime=f"{max(round(window_s * 1000), 1)} milliseconds")
    )
    return _wait_for_end(query, trace, stopped)


def _wait_for_end(query: StreamingQuery, trace: Path, stopped: Callable[[], bool]) -> bool:
    with ThreadPoolExecutor(1) as pool:
        ending = None
        while query.isActive and not stopped() and not (ending and ending.done()):
            if ending is None and (trace / SUMMARY).exists():
                ending = pool.submit(query.processAllAvailable)
            sleep(0.1)
        # Wait for the end of the current batch. If the next one begins meanwhile, it refuses.
        while query.isActive and query.status["isTriggerActive"]:
            sleep(0.05)
        query.stop()
    failure = query.exception()
    if failure is not None and not stopped():
        raise failure
    return not stopped()


def read_windows(out: Path, run: str) -> list[Window]:
    """The windows of a run that have been written so far."""
    return _read_windows(window_files(out / TABLE / f"run={run}"))


def aggregate_windows(evaluated: DataFrame, span: int) -> DataFrame:
    """Windows of one span each from their sums. A row without counts gives no window."""
    timed = evaluated.withColumn("time", f.timestamp_micros("t")).withWatermark("time", "0 seconds")
    return query_sql(
        """
        SELECT run,
               unix_micros(window.start) / 1e6 AS second,
               publications,
               correct + missed                AS expected,
               correct + spurious + duplicates AS delivered,
               correct,
               missed,
               spurious,
               duplicates,
               named_struct(
                   'mean', try_divide(late_sum, 1000 * correct),
                   'p50', late[0] / 1000,
                   'p90', late[1] / 1000,
                   'p99', late[2] / 1000,
                   'max', if(correct > 0, late_max / 1000, NULL)
               )                               AS latency_ms,
               messages,
               bytes,
               transform(
                   array_sort(array_distinct(transform(sent, one -> one.kind))),
                   kind -> named_struct(
                       'kind', kind,
                       'messages', aggregate(
                           filter(sent, one -> one.kind = kind), 0L,
                           (sum, one) -> sum + one.messages
                       ),
                       'bytes', aggregate(
                           filter(sent, one -> one.kind = kind), 0L,
                           (sum, one) -> sum + one.bytes
                       )
                   )
               )                               AS kinds
        FROM (
            SELECT run,
                   window(time, '{span} microseconds')             AS window,
                   sum(publications)                               AS publications,
                   sum(correct)                                    AS correct,
                   sum(missed)                                     AS missed,
                   sum(spurious)                                   AS spurious,
                   sum(duplicates)                                 AS duplicates,
                   sum(late_sum)                                   AS late_sum,
                   max(late_max)                                   AS late_max,
                   percentile(late, array(0.5, 0.9, 0.99), correct) AS late,
                   sum(messages)                                   AS messages,
                   sum(bytes)                                      AS bytes,
                   collect_list(
                       if(kind IS NULL, NULL, struct(kind, messages, bytes))
                   )                                               AS sent
            FROM {timed}
            GROUP BY run, window(time, '{span} microseconds')
        )
        WHERE publications IS NOT NULL
        """,
        timed=timed,
        span=span,
    )


# Files.


def _claim_folder(
    trace: OpenedTrace, out: Path, place: Path, window_s: float, late_s: float
) -> None:
    """Write into `out` what it holds, so that no other windows are mixed in.

    A new start removes the windows of an earlier one.
    """
    claim = {
        "trace": str(Path(trace.path).resolve()),
        "run": trace.run,
        "window_s": float(window_s),
        "late_s": float(late_s),
    }
    file = out / "following" / "claim.json"
    if file.exists():
        before = msgspec.json.decode(file.read_bytes())
        if before != claim:
            raise TraceError(f"{out} follows {before}; begin another folder for {claim}")
        return
    shutil.rmtree(place, ignore_errors=True)
    for folder in (place, file.parent):
        folder.mkdir(parents=True, exist_ok=True)
    write_whole(file, msgspec.json.encode(claim))


def window_files(place: Path) -> list[Path]:
    return sorted(place.glob("part-*.parquet"))


def _read_windows(parts: Sequence[Path]) -> list[Window]:
    rows = [row for part in parts for row in pq.ParquetFile(part).read().to_pylist()]
    return msgspec.convert(rows, list[Window])


def start_query(rows: DataStreamWriter) -> StreamingQuery:
    """Start a query and wait until its sources are ready.

    Spark gives the process of a Python source ten seconds to start, which may be too short on a
    busy machine. Nothing has been read by then, so the query can be started again.
    """
    for _ in range(START_ATTEMPTS):
        query = rows.start()
        while query.isActive and query.status["message"].startswith("Initializing"):
            sleep(0.05)
        if query.isActive or "failed to connect back" not in str(query.exception()):
            break
    return query
