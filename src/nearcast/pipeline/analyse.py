"""Runs the analysis jobs over traces and writes their result tables.

A job is a function that has the name of its result table; its parameters name the tables that it
reads (`traces`: where they are). So the list below is all the wiring there is.
"""

import inspect
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from threading import Lock
from typing import Any, TypeAlias

from msgspec import Struct
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession

from nearcast.pipeline.jobs import (
    awareness,
    delivery,
    direct,
    fences,
    hotspots,
    misses,
    overlay,
    traffic,
)
from nearcast.pipeline.spark import storage
from nearcast.pipeline.spark.session import LEAN_ROWS, runs_here
from nearcast.pipeline.spark.sql import drop_used_views, drop_view, keep_view
from nearcast.pipeline.spark.storage import OpenedTrace
from nearcast.pipeline.truth.expected import expected_deliveries
from nearcast.storage import AnyPath
from nearcast.trace.schema import TABLES

Job: TypeAlias = Callable[..., DataFrame]

# The result tables, by the words that `--only` takes for several of them.
GROUPS: dict[str, tuple[Job, ...]] = {
    "delivery": (
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
    ),
    "traffic": (
        traffic.traffic_totals,
        traffic.traffic_by_kind,
        traffic.traffic_by_second,
        traffic.traffic_by_node,
        traffic.traffic_quantiles,
    ),
    "awareness": (
        awareness.awareness_totals,
        awareness.awareness_by_second,
        awareness.awareness_by_node,
    ),
    "overlay": (
        overlay.overlay_by_second,
        overlay.overlay_links,
        overlay.overlay_paths,
        overlay.ownership,
    ),
    "world": (
        hotspots.world_density,
        hotspots.world_movement,
        hotspots.world_positions,
    ),
    "fences": (
        fences.fence_totals,
        fences.fence_lateness,
        fences.fence_examples,
    ),
    "direct": (direct.direct_totals,),
}
# Groups of which a trace without rows in this table has nothing to say.
OPTIONAL_GROUPS = {"fences": "fence_interests", "direct": "direct_messages"}
JOBS: tuple[Job, ...] = tuple(job for jobs in GROUPS.values() for job in jobs)


# Tables that several jobs read, and that are not results.
INTERMEDIATE_TABLES: dict[str, Job] = {
    "origins": delivery.origins,
    "pairs": delivery.pairs,
    "judged_misses": misses.judged_misses,
    "awareness_pairs": awareness.awareness_pairs,
    "judged_fence_events": fences.judged_fence_events,
}
CONCURRENT_JOBS = 4
FENCE_OUTCOMES = ("expected", "told", "missed", "spurious", "unsettled")
COUNTED = (
    "expected", "delivered", "correct", "missed", "spurious", "duplicates", "messages", "bytes"
)  # fmt: skip


class AnalysisSummary(Struct, frozen=True, kw_only=True):
    """What `analyse --json` prints for each run; null for what was not asked for."""

    run: str
    trace: str
    expected: int | None
    delivered: int | None
    correct: int | None
    missed: int | None
    spurious: int | None
    duplicates: int | None
    precision: float | None
    recall: float | None
    latency_ms: dict[str, float | None]
    messages: int | None
    bytes: int | None
    fence_events: dict[str, int] | None = None  # also if there are no fences
    rejected: int


class Tables:
    """The DataFrames that jobs read, by name; each is made once and kept while jobs run.

    Threads may ask for the same table, and make different ones at the same time. `small`: the
    traces have few rows.
    """

    def __init__(
        self, spark: SparkSession, traces: Sequence[OpenedTrace], *, small: bool = False
    ) -> None:
        self._spark, self.traces = spark, traces
        self._made: dict[str, DataFrame] = {}
        self._origins: list[DataFrame] = []  # Spark updates their counters while they are made
        self._making: dict[str, Lock] = {}
        self._looking = Lock()
        # Of a table that was checkpointed Spark forgets how it was made. So it need not plan that
        # again for each job, but could not make it again if an executor were lost.
        self._forgets = small and runs_here(spark)

    def __getitem__(self, name: str) -> DataFrame:
        with self._looking:
            making = self._making.setdefault(name, Lock())
        with making:
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
        # Each before those that it was made from: a Connect server reads their views again.
        for frame in reversed(self._made.values()):
            frame.unpersist()
            drop_view(frame)
        self._made.clear()
        drop_used_views()


def run_job(job: Job, tables: Tables) -> DataFrame:
    names = inspect.signature(job).parameters
    return job(**{name: tables.traces if name == "traces" else tables[name] for name in names})


def analyse(
    spark: SparkSession,
    traces: Sequence[OpenedTrace],
    out: AnyPath,
    show: Callable[[str, int, int], None] | None = None,
    jobs: Sequence[Job] = JOBS,
) -> list[AnalysisSummary]:
    """Run these jobs over these traces and write the results into `out`.

    Rejected rows are always counted. `show` is told which table is begun, how many are complete,
    and how many there are.
    """
    out.mkdir(parents=True, exist_ok=True)
    for group, table in OPTIONAL_GROUPS.items():
        if not storage.list_row_groups(traces, table)[0]:
            jobs = [job for job in jobs if job not in GROUPS[group]]
    runs = [trace.run for trace in traces]
    small = storage.count_rows(traces) < LEAN_ROWS
    tables = Tables(spark, traces, small=small)
    progress = TableProgress(len(jobs) + 1, show)

    def write_table(job: Job | None) -> None:
        name = "rejected" if job is None else job.__name__
        with progress.of(name):
            frame = run_job(job, tables) if job else storage.rejected_counts(spark, traces)
            storage.write_result(frame, out, name, runs, small=small)

    try:
        # Planning a small job takes longer than running it, and both mostly wait.
        with ThreadPoolExecutor(CONCURRENT_JOBS) as pool:
            # Rejected rows first: they need Python workers, which start while others are planned.
            for written in as_completed([pool.submit(write_table, job) for job in (None, *jobs)]):
                written.result()
    finally:
        tables.unpersist()
    names = {job.__name__ for job in jobs}
    return [summarise_run(trace, out, names) for trace in traces]


class TableProgress:
    """Tells which table is begun. Threads write tables concurrently, but report one by one."""

    def __init__(self, whole: int, show: Callable[[str, int, int], None] | None) -> None:
        self._whole, self._show = whole, show
        self._begun = self._done = 0
        self._telling = Lock()

    @contextmanager
    def of(self, name: str) -> Iterator[None]:
        with self._telling:
            self._begun += 1
            if self._show is not None:
                what = f"table {self._begun} of {self._whole}: {name}"
                self._show(what, self._done, self._whole)
        yield
        with self._telling:
            self._done += 1


def select_jobs(names: Sequence[str]) -> tuple[Job, ...]:
    """The jobs of these result tables or groups of them, in the usual order."""
    known = {job.__name__: (job,) for job in JOBS} | GROUPS
    if unknown := [name for name in names if name not in known]:
        groups = (f"{group} ({', '.join(j.__name__ for j in jobs)})"
                  for group, jobs in GROUPS.items())  # fmt: skip
        raise ValueError(f"there is no result table {unknown[0]!r}, only {', '.join(groups)}")
    wanted = {job for name in names for job in known[name]}
    return tuple(job for job in JOBS if job in wanted)


def summarise_run(trace: OpenedTrace, out: AnyPath, names: Collection[str]) -> AnalysisSummary:
    """The most important measures of a run, from those of its result tables that were written."""

    def first_row(name: str) -> dict[str, Any]:
        """Nothing if the table was not asked for; zeros if it has no row."""
        if name not in names:
            return {}
        rows = storage.read_result(out, name, trace.run)
        return rows[0] if rows else dict.fromkeys(COUNTED, 0)

    first, traffic_ = first_row("delivery_totals"), first_row("traffic_totals")
    kinds = storage.read_result(out, "fence_totals", trace.run) if "fence_totals" in names else []
    latency = {
        name: first.get(f"latency_{name}_ms") for name in ("mean", "p50", "p90", "p99", "max")
    }
    return AnalysisSummary(
        run=trace.run,
        trace=trace.path,
        expected=first.get("expected"),
        delivered=first.get("delivered"),
        correct=first.get("correct"),
        missed=first.get("missed"),
        spurious=first.get("spurious"),
        duplicates=first.get("duplicates"),
        precision=first.get("precision"),
        recall=first.get("recall"),
        latency_ms=latency,
        messages=traffic_.get("messages"),
        bytes=traffic_.get("bytes"),
        fence_events={name: sum(row[name] for row in kinds) for name in FENCE_OUTCOMES}
        if kinds
        else None,
        rejected=sum(row["rows"] for row in storage.read_result(out, "rejected", trace.run)),
    )
