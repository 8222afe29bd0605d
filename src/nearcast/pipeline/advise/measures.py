"""What is measured of a run, by the pipeline: how well it delivered, and who sent how much.

The first seconds are not judged: in a recorded world nobody has just arrived, but in a simulation
everybody does. Servers and entities are counted apart: a server's line is not a player's.
"""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec import Struct
from pyspark.sql import DataFrame, SparkSession

from nearcast.pipeline.analyse import analyse
from nearcast.pipeline.spark import storage
from nearcast.pipeline.spark.sql import query_sql
from nearcast.protocols.overlay import FIRST_SERVER
from nearcast.storage import AnyPath
from nearcast.trace.sinks import SUMMARY

WARM_UP_S = 10.0  # at most, and at most a third of the window


class Measures(Struct, frozen=True, kw_only=True):
    """The measures of a run; None: there was nothing to measure it by."""

    recall: float | None
    precision: float | None
    expected: int
    missed: int
    spurious: int
    duplicates: int
    p50_ms: float | None
    p99_ms: float | None
    peer_bytes_s: float  # that an entity sends, mean
    peer_p99_bytes_s: float
    peer_max_bytes_s: float  # of the entity that sends most
    peer_received_bytes_s: float  # mean
    server_max_bytes_s: float  # of the server that sends most; 0: there is none
    servers: int
    cpu_s: float  # of the process that simulated, all nodes together
    wall_s: float
    cpu_ms_per_node_s: float
    messages: int


def warm_up(seconds: float) -> float:
    """How many seconds at the beginning of a window are not judged."""
    return min(WARM_UP_S, seconds / 3)


def make_jobs(warm_up_s: float) -> tuple[Callable[..., DataFrame], ...]:
    """The two result tables of an advice; the seconds before `warm_up_s` do not count."""
    later = round(warm_up_s * 1e6)

    def advice_delivery(pairs: DataFrame, publications: DataFrame) -> DataFrame:
        """One row for each run with publications."""
        return query_sql(
            f"""
            SELECT /*+ BROADCAST(begins) */ run,
                   count_if(outcome != 'spurious')   AS expected,
                   count_if(outcome = 'correct')     AS correct,
                   count_if(outcome = 'missed')      AS missed,
                   count_if(outcome = 'spurious')    AS spurious,
                   coalesce(sum(duplicates), 0)      AS duplicates,
                   percentile(latency_ms, 0.5)  FILTER (WHERE outcome = 'correct') AS p50_ms,
                   percentile(latency_ms, 0.99) FILTER (WHERE outcome = 'correct') AS p99_ms
            FROM   {{pairs}} AS pairs
                   JOIN (SELECT run, min(t) + {later} AS begin FROM {{publications}} GROUP BY run)
                   AS begins USING (run)
            WHERE  pairs.t >= begin
            GROUP  BY run
            """,
            pairs=pairs,
            publications=publications,
        )

    def advice_traffic(messages: DataFrame, publications: DataFrame) -> DataFrame:
        """For each run, one row of its entities and one of its servers: bytes sent and received
        in whole seconds between the first and the last publication."""
        return query_sql(
            f"""
            WITH spans AS (
                SELECT run, min(t) + {later} AS begin, greatest(max(t), min(t) + {later} + 1) AS end
                FROM   {{publications}} GROUP BY run
            ),
            ends AS (
                SELECT run, node, bytes AS sent, 0 AS received, copies, t FROM {{messages}}
                UNION ALL
                SELECT run, `to`, 0, bytes, 0, coalesce(arrived, t) FROM {{messages}} WHERE NOT lost
            ),
            loads AS (
                SELECT /*+ BROADCAST(spans) */ run, node, node >= {FIRST_SERVER} AS serves,
                       (any_value(end) - any_value(begin)) / 1e6 AS seconds,
                       sum(sent) AS sent, sum(received) AS received, sum(copies) AS messages
                FROM   ends JOIN spans USING (run)
                WHERE  t >= begin AND t <= end
                GROUP  BY run, node
            )
            SELECT run, serves, count(*) AS nodes, sum(messages) AS messages,
                   sum(sent / seconds)              AS sent_bytes_s,
                   sum(received / seconds)          AS received_bytes_s,
                   percentile(sent / seconds, 0.99) AS p99_bytes_s,
                   max(sent / seconds)              AS max_bytes_s
            FROM   loads
            GROUP  BY run, serves
            """,
            messages=messages,
            publications=publications,
        )

    return advice_delivery, advice_traffic


def measure_runs(spark: SparkSession, runs: Sequence[str], out: AnyPath, warm_up_s: float) -> None:
    """Measure these runs, whose traces are in OUT/traces, in one analysis; see `read_measures`."""
    traces = storage.open_traces([out / "traces" / run for run in runs])
    analyse(spark, traces, out / "results", None, make_jobs(warm_up_s))


def read_measures(out: AnyPath, trace: storage.OpenedTrace) -> Measures:
    """The measures of a run from its result tables and its summary."""
    scenario = trace.scenario
    assert scenario is not None, "traces of a sweep have scenarios"
    results, run = out / "results", trace.run
    delivery = next(iter(storage.read_result(results, "advice_delivery", run)), {})
    traffic = {row["serves"]: row for row in storage.read_result(results, "advice_traffic", run)}
    peers: dict[str, Any] = traffic.get(False, {})
    servers: dict[str, Any] = traffic.get(True, {})
    summary = msgspec.json.decode((out / "traces" / run / SUMMARY).read_bytes())
    expected, correct = delivery.get("expected", 0), delivery.get("correct", 0)
    delivered = correct + delivery.get("spurious", 0)
    nodes = scenario.nodes
    return Measures(
        recall=correct / expected if expected else None,
        precision=correct / delivered if delivered else None,
        expected=expected,
        missed=delivery.get("missed", 0),
        spurious=delivery.get("spurious", 0),
        duplicates=delivery.get("duplicates", 0),
        p50_ms=delivery.get("p50_ms"),
        p99_ms=delivery.get("p99_ms"),
        peer_bytes_s=peers.get("sent_bytes_s", 0.0) / nodes,
        peer_p99_bytes_s=peers.get("p99_bytes_s", 0.0),
        peer_max_bytes_s=peers.get("max_bytes_s", 0.0),
        peer_received_bytes_s=peers.get("received_bytes_s", 0.0) / nodes,
        server_max_bytes_s=servers.get("max_bytes_s", 0.0),
        servers=servers.get("nodes", 0),
        cpu_s=summary["cpu_s"],
        wall_s=summary["wall_s"],
        cpu_ms_per_node_s=1000 * summary["cpu_s"] / nodes / scenario.seconds,
        messages=peers.get("messages", 0) + servers.get("messages", 0),
    )
