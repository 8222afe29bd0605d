"""Windows of delivery, latency and traffic over a growing trace, by Structured Streaming.

Event time is the trace's own `t`. Publications are compared with the exact truth when they have had
`late_s` seconds to be delivered. The source (`stream_source`) emits sums; a batch has all sums of
its windows, so each window is written once, complete. When the run has ended by itself, the
remaining windows are written. Rows later than `late_s` are left out here; the jobs over finished
traces count them.

A file of windows is named by the time at which its last window ends. That is all that a restart,
after a clean stop or a kill, needs to know: it continues there. What Spark itself writes down about
the stream is of no use later.
"""

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from time import sleep
from typing import Any

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from nearcast.errors import StoppedError, TraceError
from nearcast.pipeline.spark.session import is_connect, parallel_tasks
from nearcast.pipeline.spark.sql import query_sql
from nearcast.pipeline.spark.storage import OpenedTrace
from nearcast.pipeline.stream.stream_source import EvaluatedTraceSource, open_single_trace
from nearcast.storage import (
    AnyPath,
    encode_parquet,
    list_names,
    locate,
    map_files,
    open_parquet,
    remove_tree,
    write_whole,
)
from nearcast.trace.sinks import SUMMARY

TABLE = "windows"
MONITOR_WINDOWS = 300  # the latest windows, for a monitor
START_ATTEMPTS = 30
# The process in which a server (of Spark 4.3) runs such functions does not get the package.
NOT_ON_CONNECT = (
    "a Spark Connect server cannot follow a trace: it runs functions that handle the batches of a"
    " stream without the package that it was sent; use --master, or analyse the trace when it ends"
)


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
    trace: AnyPath,
    out: AnyPath,
    window_s: float = 1.0,
    late_s: float = 5.0,
    on_windows: OnWindows = lambda _: None,
    stopped: Callable[[], bool] = lambda: False,
) -> bool:
    """Evaluate a growing trace into `out`, or continue; `on_windows` gets windows once written.

    Returns true when the run has ended and all windows are written, false when `stopped` says so;
    the current batch is finished first.
    """
    if is_connect(spark):
        raise ValueError(NOT_ON_CONNECT)
    span = round(window_s * 1e6)
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

    def keep(batch: DataFrame, _: int) -> None:
        if stopped():
            raise StoppedError
        try:
            # A row for each window of the batch, which has about BATCH_ROWS rows or one window.
            rows = add_up_windows(batch).drop("run").toArrow().sort_by("second")
        except Exception as why:
            # Spark searches the message by a pattern, and its stack is too small for a long one.
            raise RuntimeError(str(why)) from None
        if len(rows):
            end = round(rows["second"][-1].as_py() * 1e6) + span
            write_whole(window_file(place, end), encode_parquet(rows))
            found = msgspec.convert(rows.to_pylist(), list[Window])
            show(found)
            on_windows(found)

    written = window_files(place)
    show(_read_windows(written[-MONITOR_WINDOWS:]))
    spark.dataSource.register(EvaluatedTraceSource)
    evaluated = (
        spark.readStream.format("nearcast-evaluated")
        .options(span=str(span), late=str(round(late_s * 1e6)))
        .option("begin", str(max(map(window_end, written), default=0)))
        .option("tasks", str(parallel_tasks(spark)))
        .option("keep", str((out / "following").resolve()))
        .load(str(trace.resolve()))
    )
    with TemporaryDirectory(prefix="nearcast-stream-") as scratch:
        query = start_query(
            evaluated.writeStream.foreachBatch(keep)
            .option("checkpointLocation", Path(scratch).as_uri())
            .trigger(processingTime=f"{max(round(window_s * 1000), 1)} milliseconds")
        )
        return _wait_for_end(query, trace, stopped)


def _wait_for_end(query: StreamingQuery, trace: AnyPath, stopped: Callable[[], bool]) -> bool:
    pause_s = 0.1 if isinstance(trace, Path) else 1.0  # a store is not asked that often
    with ThreadPoolExecutor(1) as pool:
        ending = None
        while query.isActive and not stopped() and not (ending and ending.done()):
            if ending is None and (trace / SUMMARY).exists():
                ending = pool.submit(query.processAllAvailable)
            sleep(pause_s)
        # Wait for the end of the current batch. If the next one begins meanwhile, it refuses.
        while query.isActive and query.status["isTriggerActive"]:
            sleep(0.05)
        query.stop()
    failure = query.exception()
    if failure is not None and not stopped():
        raise failure
    return not stopped()


def read_windows(out: AnyPath, run: str) -> list[Window]:
    """The windows of a run that have been written so far."""
    return _read_windows(window_files(out / TABLE / f"run={run}"))


def add_up_windows(sums: DataFrame) -> DataFrame:
    """Windows from the sums of a batch, which has all sums of its windows."""
    return query_sql(
        """
        SELECT run,
               t / 1e6                         AS second,
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
                   t,
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
            FROM {sums}
            GROUP BY run, t
        )
        """,
        sums=sums,
    )


# Files.


def _claim_folder(
    trace: OpenedTrace, out: AnyPath, place: AnyPath, window_s: float, late_s: float
) -> None:
    """Write into `out` what it holds, so that no other windows are mixed in.

    A new start removes the windows of an earlier one.
    """
    claim = {
        "version": 2,  # of the names of files
        "trace": str(locate(trace.path).resolve()),
        "run": trace.run,
        "window_s": float(window_s),
        "late_s": float(late_s),
    }
    file = out / "following" / "claim.json"
    place.mkdir(parents=True, exist_ok=True)
    if file.exists():
        before = msgspec.json.decode(file.read_bytes())
        if before != claim:
            raise TraceError(f"{out} follows {before}; begin another folder for {claim}")
        return
    remove_tree(place)
    for folder in (place, file.parent):
        folder.mkdir(parents=True, exist_ok=True)
    write_whole(file, msgspec.json.encode(claim))


def window_file(place: AnyPath, end: int) -> AnyPath:
    """The file whose last window ends at this time, in microseconds."""
    return place / f"part-{end:018}.parquet"


def window_end(file: AnyPath) -> int:
    return int(file.stem.removeprefix("part-"))


def window_files(place: AnyPath) -> list[AnyPath]:
    return [place / name for name in list_names(place) if name.startswith("part-")]


def _read_windows(parts: Sequence[AnyPath]) -> list[Window]:
    rows = [row for some in map_files(_read_rows, parts) for row in some]
    return msgspec.convert(rows, list[Window])


def _read_rows(part: AnyPath) -> list[dict[str, Any]]:
    with open_parquet(part) as file:
        rows: list[dict[str, Any]] = file.read().to_pylist()
        return rows


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
