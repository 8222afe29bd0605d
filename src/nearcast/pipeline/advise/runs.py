"""Where simulations run and are measured: sweeps and analyses on Spark."""

from collections.abc import Callable, Sequence
from threading import Timer
from typing import Protocol

import msgspec
from msgspec import Struct
from pyspark.sql import SparkSession

from nearcast.pipeline.advise.measures import Measures, measure_runs, read_measures
from nearcast.pipeline.spark import storage
from nearcast.pipeline.spark.session import parallel_tasks
from nearcast.pipeline.sweeps import (
    NOT_BEGUN,
    NOT_IN_TIME,
    SweepMember,
    SweepProgress,
    complete_runs,
    failure_file,
    run_members,
)
from nearcast.scenario import Scenario
from nearcast.storage import AnyPath
from nearcast.trace.sinks import SUMMARY


class RunOutcome(Struct, frozen=True, kw_only=True):
    """How a simulation ended, and how long it took until then."""

    took_s: float = 0.0
    failure: str = ""
    is_late: bool = False  # it was ended because its time was over
    was_begun: bool = True


class Runs(Protocol):
    """Simulates and measures. Scenarios are resolved, and name their runs."""

    slots: int  # simulations at one time

    def complete(self) -> set[str]:
        """The runs that are there already."""
        ...

    def simulate(self, scenarios: Sequence[Scenario], until: float) -> dict[str, RunOutcome]:
        """Simulate what is not there yet; what is not complete at `until` (Unix time) is ended."""
        ...

    def measure(
        self, runs: Sequence[str], within_s: float, warm_up_s: float
    ) -> dict[str, Measures]:
        """The measures of complete runs; those of some only, if the time does not suffice."""
        ...


class SparkRuns:
    """Runs on Spark: traces in OUT/traces, measures in OUT/results."""

    def __init__(
        self,
        spark: SparkSession,
        out: AnyPath,
        show: Callable[[SweepProgress], None] | None = None,
    ) -> None:
        self._spark, self._out, self._show = spark, out, show
        self.slots = parallel_tasks(spark)

    def complete(self) -> set[str]:
        return complete_runs(self._out / "traces")

    def simulate(self, scenarios: Sequence[Scenario], until: float) -> dict[str, RunOutcome]:
        members = [SweepMember(each.run, {}, each) for each in scenarios]
        run_members(self._spark, members, "nearcast advise", self._out, self._show, until)
        there = self.complete()
        return {each.run: self._outcome(each.run, each.run in there) for each in scenarios}

    def _outcome(self, run: str, is_complete: bool) -> RunOutcome:
        if is_complete:
            summary = msgspec.json.decode((self._out / "traces" / run / SUMMARY).read_bytes())
            return RunOutcome(took_s=summary["wall_s"])
        failure = msgspec.json.decode(failure_file(self._out, run).read_bytes())
        message: str = failure["message"]
        return RunOutcome(
            took_s=failure["took_s"],
            failure=message,
            is_late=message.startswith(NOT_IN_TIME),
            was_begun=message != NOT_BEGUN,
        )

    def measure(
        self, runs: Sequence[str], within_s: float, warm_up_s: float
    ) -> dict[str, Measures]:
        found = {run: self._read(run) for run in runs if self._was_measured(run)}
        fresh = [run for run in runs if run not in found]
        if not fresh:
            return found
        late: list[bool] = []

        def end() -> None:
            late.append(True)
            self._spark.interruptAll()

        timer = Timer(max(1.0, within_s), end)
        timer.daemon = True
        timer.start()
        try:
            measure_runs(self._spark, fresh, self._out, warm_up_s)
        except Exception:
            if not late:
                raise
            return found
        finally:
            timer.cancel()
        return found | {run: self._read(run) for run in fresh}

    def _was_measured(self, run: str) -> bool:
        return all(
            storage.read_result(self._out / "results", name, run)
            for name in ("advice_delivery", "advice_traffic")
        )

    def _read(self, run: str) -> Measures:
        (trace,) = storage.open_traces([self._out / "traces" / run])
        return read_measures(self._out, trace)
