"""Bots that are peers, beside the simulation of the same scenario: both counted by the pipeline."""

from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from nearcast.pipeline.analyse import AnalysisSummary, Tables, analyse, run_job
from nearcast.pipeline.jobs import awareness
from nearcast.pipeline.jobs.delivery import delivery_totals, latency_quantiles
from nearcast.pipeline.jobs.traffic import traffic_totals
from nearcast.pipeline.spark import storage
from nearcast.scenario import Scenario
from nearcast.sim.run import simulate

JOBS = (delivery_totals, latency_quantiles, traffic_totals, awareness.awareness_totals)


def simulated(trace: Path, overlay: str, bots: int, seconds: float, **settings: Any) -> None:
    """What `nearcast peer --bots` plays live, on a network as fast as loopback."""
    scenario = Scenario(
        protocol=overlay, workload="planetpi4", nodes=bots, seconds=seconds, seed=1,
        settings={"latency_ms": 1.0, **settings},
    )  # fmt: skip
    simulate(scenario, trace)


def counted(spark: SparkSession, trace: Path, out: Path) -> tuple[AnalysisSummary, dict[str, Any]]:
    """What was heard, and whom peers knew of those whom they should have known."""
    (one,) = traces = storage.open_traces([trace])
    (headline,) = analyse(spark, traces, out, jobs=JOBS)
    (totals,) = storage.read_result(out, "awareness_totals", one.run)
    return headline, totals


def awareness_of(spark: SparkSession, traces: list[Path]) -> list[dict[str, Any]]:
    """The latter alone, of several traces in one query."""
    opened = storage.open_traces(traces)
    tables = Tables(spark, opened, small=True)
    totals = {
        row.run: row.asDict() for row in run_job(awareness.awareness_totals, tables).collect()
    }
    tables.unpersist()
    return [totals[trace.run] for trace in opened]
