"""Runs the analysis jobs over traces and writes their result tables.

A job is a function that has the name of its result table; its parameters name the tables that it
reads (`traces`: where they are). So the list below is all the wiring there is.
"""

import inspect
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from threading import RLock
from typing import Any

from msgspec import Struct
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession

from nearcast.pipeline.jobs import awareness, delivery, hotspots, misses, overlay, traffic
from nearcast.pipeline.spark import storage
from nearcast.pipeline.spark.session import LEAN_ROWS, is_local
from nearcast.pipeline.spark.sql import drop_view, keep_view
from nearcast.pipeline.spark.storage import OpenedTrace
from nearcast.pipeline.truth.expected import expected_deliveries
from nearcast.trace.schema import TABLES

JOBS: tuple[Callable[..., DataFrame], ...] = (
    delivery.delivery_totals,
    delivery.delivery_by_second,
    delivery.delivery_by_node,
    delivery.delivery_by_channel,
    delivery.latency_quantiles,
    delivery.popularity,
    delivery.false_positives_by_level,
    delivery.missed_places,
    misses.miss_causes,
    misses.miss_stories,
    traffic.traffic_totals,
    traffic.traffic_by_kind,
    traffic.traffic_by_second,
    traffic.traffic_by_node,
    traffic.traffic_quantiles,
    awareness.awareness_totals,
    awareness.awareness_by_second,
    awareness.awareness_by_node,
    overlay.overlay_by_second,
    overlay.overlay_links,
    overlay.overlay_paths,
    overlay.ownership,
    hotspots.world_density,
    hotspots.world_movement,
    hotspots.world_positions,
)


# Tables that several jobs read, and that are not results.
INTERMEDIATE_TABLES: dict[str, Callable[..., DataFrame]] = {
    "origins": delivery.origins,
    "pairs": delivery.pairs,
    "judged_misses": misses.judged_misses,
    "awareness_pairs": awareness.awareness_pairs,
}
CONCURRENT_JOBS = 4


class AnalysisSummary(Struct, frozen=True, kw_only=True):
    """What `analyse --json` prints for each run."""

    run: str
    trace: str
    expected: int
    delivered: int
    correct: int
    missed: int
    spurious: int
    duplicates: int
    precision: float | None
    recall: float | None
    latency_ms: dict[str, float | None]
    messages: int
    bytes: int
    rejected: int


class Tables:
    """The DataFrames that jobs read, by name; each is made once and kept while jobs run.

    Threads may ask for the same table. `small`: the traces have few rows.
    """

    def __init__(
        self, spark: SparkSession, traces: Sequence[OpenedTrace], *, small: bool = False
    ) -> None:
        self._spark, self.traces = spark, traces
        self._made: dict[str, DataFrame] = {}
        self._origins: list[DataFrame] = []  # Spark updates their counters while they are made
        self._making = RLock()
        # Of a table that was checkpointed Spark forgets how it was made. So it need not plan that
        # again for each job, but could not make it again if an executor were lost.
        self._forgets = small and is_local(spark.sparkContext.master)

    def __getitem__(self, name: str) -> DataFrame:
        with self._making:
            if name not in self._made:
                self._made[name] = self._keep(self._make(name))
                keep_view(self._made[name])
            return self._made[name]

    def _make(self, name: str) -> DataFrame:
        if name in TABLES:
            return storage.table_frame(self._spark, self.traces, name)
        if name == "expected":
            return expected_deliveries(self._spark, self.traces)
        return run_job(INTERMEDIATE_TABLES[name], self)

    def _keep(self, frame: DataFrame) -> DataFrame:
        if self._forgets:
            self._origins.append(frame)
            return frame.localCheckpoint(eager=False)
        # On disk: tables of many long runs do not fit into the heap, and the system's page
        # cache keeps files in memory anyway.
        return frame.persist(StorageLevel.DISK_ONLY)

    def unpersist(self) -> None:
        for frame in self._made.values():
            drop_view(frame)
            frame.unpersist()
        self._made.clear()


def run_job(job: Callable[..., DataFrame], tables: Tables) -> DataFrame:
    names = inspect.signature(job).parameters
    return job(**{name: tables.traces if name == "traces" else tables[name] for name in names})


def analyse(
    spark: SparkSession,
    traces: Sequence[OpenedTrace],
    out: Path,
    show: Callable[[str, int, int], None] | None = None,
    jobs: Sequence[Callable[..., DataFrame]] = JOBS,
) -> list[AnalysisSummary]:
    """Run these jobs over these traces and write the results into `out`."""
    out.mkdir(parents=True, exist_ok=True)
    runs = [trace.run for trace in traces]
    small = storage.count_rows(traces) < LEAN_ROWS
    tables = Tables(spark, traces, small=small)

    def write_table(job: Callable[..., DataFrame] | None) -> str:
        name = "rejected" if job is None else job.__name__
        frame = run_job(job, tables) if job else storage.rejected_counts(spark, traces)
        storage.write_result(frame, out, name, runs, small=small)
        return name

    try:
        # Planning a small job takes longer than running it, and both mostly wait.
        with ThreadPoolExecutor(CONCURRENT_JOBS) as pool:
            writing = [pool.submit(write_table, job) for job in (*jobs, None)]
            for number, written in enumerate(as_completed(writing), 1):
                name = written.result()
                if show is not None:
                    show(name, number, len(writing))
    finally:
        tables.unpersist()
    return [summarise_run(trace, out) for trace in traces]


def summarise_run(trace: OpenedTrace, out: Path) -> AnalysisSummary:
    """The most important measures of a run, from its result tables."""
    delivered = storage.read_result(out, "delivery_totals", trace.run)
    sent = storage.read_result(out, "traffic_totals", trace.run)
    first: dict[str, Any] = delivered[0] if delivered else {}
    traffic_: dict[str, Any] = sent[0] if sent else {}
    latency = {
        name: first.get(f"latency_{name}_ms") for name in ("mean", "p50", "p90", "p99", "max")
    }
    return AnalysisSummary(
        run=trace.run,
        trace=trace.path,
        expected=first.get("expected", 0),
        delivered=first.get("delivered", 0),
        correct=first.get("correct", 0),
        missed=first.get("missed", 0),
        spurious=first.get("spurious", 0),
        duplicates=first.get("duplicates", 0),
        precision=first.get("precision"),
        recall=first.get("recall"),
        latency_ms=latency,
        messages=traffic_.get("messages", 0),
        bytes=traffic_.get("bytes", 0),
        rejected=sum(row["rows"] for row in storage.read_result(out, "rejected", trace.run)),
    )
