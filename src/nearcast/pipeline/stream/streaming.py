"""Windows of delivery, latency and traffic over a trace that still grows, by Structured Streaming.

Event time is the trace's own `t`. What was published is judged by the exact truth when it has had
`late_s` seconds to be heard; the source (`judged`) hands it out in sums, stretch after stretch of
time. A mark at the end of a stretch moves Spark's watermark there, so each window is written once,
complete. When the run has ended by itself, all that is left is written. Rows later than `late_s`
are left out here; the jobs over finished traces count them.

How far the trace has been judged, and the sums of windows that are still open, are kept under
`out`; so a restart, after a clean stop or a kill, goes on where the last complete batch ended.
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
from nearcast.pipeline.spark.storage import TraceFolder
from nearcast.pipeline.stream.stream_source import EvaluatedTraceSource, open_single_trace
from nearcast.trace.sinks import SUMMARY

TABLE = "windows"
MONITOR_WINDOWS = 300  # windows that a monitor sees
START_ATTEMPTS = 6  # times that a query is started


class Window(msgspec.Struct, frozen=True):
    """What became of the publications made in a window, and what was sent in it."""

    second: float  # when it begins, in the trace's time
    publications: int
    expected: int
    delivered: int  # whatever came, duplicates too
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
    tell: OnWindows = lambda _: None,
    stopped: Callable[[], bool] = lambda: False,
) -> bool:
    """Count a growing trace into `out`, or go on; windows are told when they are kept.

    It ends when the trace has ended and all is told (true), or when it is stopped (false); then the
    batch under way is finished first.
    """
    if window_s <= 0 or late_s < 0:
        raise ValueError(f"windows of {window_s} s, {late_s} s late: there are no such windows")
    opened = open_single_trace(trace)
    place = out / TABLE / f"run={opened.run}"
    _claim_folder(opened, out, place, window_s, late_s)
    latest = deque[Window](maxlen=MONITOR_WINDOWS)

    def show(found: Sequence[Window]) -> None:
        latest.extend(found)
        live = msgspec.json.encode({"windows": list(latest)})
        _write_atomically(out / "live.json", lambda hidden: hidden.write_bytes(live))

    def keep(batch: DataFrame, number: int) -> None:
        if stopped():
            raise StoppedError
        part = place / f"part-{number:08}.parquet"
        try:
            rows = batch.drop("run").toArrow().sort_by("second")
        except Exception as why:
            # Spark looks through a long report with a pattern for which its stack is too small.
            raise RuntimeError(str(why)) from None
        # A batch that is done again after a kill has been kept already, if it was kept at all.
        if len(rows) and not part.exists():
            _write_atomically(part, lambda hidden: pq.write_table(rows, hidden))
            found = msgspec.convert(rows.to_pylist(), list[Window])
            show(found)
            tell(found)

    show(_read_windows(window_files(place)[-MONITOR_WINDOWS:]))
    spark.dataSource.register(EvaluatedTraceSource)
    judged = (
        spark.readStream.format("nearcast-judged")
        .options(span=str(round(window_s * 1e6)), late=str(round(late_s * 1e6)))
        .option("tasks", str(spark.sparkContext.defaultParallelism))
        .option("keep", str((out / "following").resolve()))
        .load(str(trace.resolve()))
    )
    query = start_query(
        aggregate_windows(judged, round(window_s * 1e6))
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
        # Between two batches, or else at the beginning of the next, which refuses.
        while query.isActive and query.status["isTriggerActive"]:
            sleep(0.05)
        query.stop()
    failure = query.exception()
    if failure is not None and not stopped():
        raise failure
    return not stopped()


def read_windows(out: Path, run: str) -> list[Window]:
    """What has been kept so far of a run."""
    return _read_windows(window_files(out / TABLE / f"run={run}"))


def aggregate_windows(judged: DataFrame, span: int) -> DataFrame:
    """Sums of spans to windows of a span each. Marks have no counts, and give no window."""
    timed = judged.withColumn("time", f.timestamp_micros("t")).withWatermark("time", "0 seconds")
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


# Keeping.


def _claim_folder(
    trace: TraceFolder, out: Path, place: Path, window_s: float, late_s: float
) -> None:
    """Say under `out` what is counted there: windows of two kinds must not mix.

    Whoever begins anew begins without what was kept before.
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
    _write_atomically(file, lambda hidden: hidden.write_bytes(msgspec.json.encode(claim)))


def _write_atomically(file: Path, write: Callable[[Path], object]) -> None:
    """Complete or not at all."""
    hidden = file.with_name(f".{file.name}.unfinished")
    write(hidden)
    hidden.replace(file)


def window_files(place: Path) -> list[Path]:
    return sorted(place.glob("part-*.parquet"))


def _read_windows(parts: Sequence[Path]) -> list[Window]:
    rows = [row for part in parts for row in pq.ParquetFile(part).read().to_pylist()]
    return msgspec.convert(rows, list[Window])


def start_query(rows: DataStreamWriter) -> StreamingQuery:
    """Start a query and wait until its sources are ready.

    Spark gives the process behind a Python source ten seconds to start, which a busy machine may
    need for several at once. Nothing has been read by then, so one that was late is started again.
    """
    for _ in range(START_ATTEMPTS):
        query = rows.start()
        while query.isActive and query.status["message"].startswith("Initializing"):
            sleep(0.05)
        if query.isActive or "failed to connect back" not in str(query.exception()):
            break
    return query
