"""Jobs for the measures of [Lehn], by second since the workload began.

The demand of a peer is what it sent, with the headers of every packet, and what it withheld for
lack of capacity: each withheld piece counts as the smallest packet of its run, without a header,
because it could have been sent together with others. True positions are first recorded when the
workload begins.
"""

from pyspark.sql import DataFrame

from nearcast.pipeline.spark.sql import query_sql
from nearcast.protocols.overlay import FIRST_SERVER
from nearcast.protocols.relays.uplink import HEADERS

BEGINS = "(SELECT run, min(t) AS begin FROM {positions} GROUP BY run)"
SECOND = "CAST(floor((t - begin) / 1e6) AS INT)"

# What each peer was to send in each second, in bytes; also where that was nothing.
DEMANDS = f"""
    begins AS {BEGINS},
    least AS (
        SELECT run, min(bytes / copies) AS piece FROM {{messages}}
        WHERE kind = 'relays.Update' AND publication IS NOT NULL GROUP BY run
    ),
    acts AS (
        SELECT run, node, t, bytes + {HEADERS} * copies AS sent, 0 AS withheld
        FROM {{messages}} WHERE node < {FIRST_SERVER}
        UNION ALL
        SELECT run, node, t, 0, 1 FROM {{notes}} WHERE fact = 'withheld'
    ),
    demands AS (
        SELECT /*+ BROADCAST(begins, least) */
               run, node, {SECOND} AS second,
               sum(sent) + sum(withheld) * max(piece) AS demand, sum(withheld) AS withheld
        FROM acts JOIN begins USING (run) JOIN least USING (run)
        WHERE t >= begin
        GROUP BY ALL
    ),
    uplinks AS (
        SELECT run, node, max(value) / 8 AS capacity, min(t) AS came
        FROM {{notes}} WHERE fact = 'uplink' GROUP BY run, node
    )"""


def utilisation_by_node(messages: DataFrame, notes: DataFrame, positions: DataFrame) -> DataFrame:
    """Of each peer and second: the share of its uplink that it would need."""
    return query_sql(
        f"""
        WITH {DEMANDS}
        SELECT /*+ BROADCAST(uplinks) */
               run, node, second, demand / capacity AS utilisation, withheld
        FROM demands JOIN uplinks USING (run, node)
        """,
        messages=messages,
        notes=notes,
        positions=positions,
    )


def heard_by_second(pairs: DataFrame, positions: DataFrame) -> DataFrame:
    """What should have been heard, by the second of its publication: hops and latencies of it."""
    return query_sql(
        f"""
        SELECT /*+ BROADCAST(begins) */
               run, {SECOND} AS second,
               count_if(outcome != 'spurious')                      AS expected,
               count_if(outcome = 'correct')                        AS correct,
               count_if(outcome = 'missed')                         AS missed,
               sum(duplicates)                                      AS duplicates,
               sum(hops) FILTER (WHERE outcome = 'correct')         AS hops,
               sum(first - t) FILTER (WHERE outcome = 'correct')    AS late_us
        FROM {{pairs}} JOIN {BEGINS} AS begins USING (run)
        WHERE t >= begin
        GROUP BY ALL
        """,
        pairs=pairs,
        positions=positions,
    )


def operations_by_second(notes: DataFrame, positions: DataFrame) -> DataFrame:
    """How often peers redirected a flow, took themselves out of one, or repaired one."""
    return query_sql(
        f"""
        SELECT /*+ BROADCAST(begins) */
               run, {SECOND} AS second,
               count_if(fact = 'redirected') AS redirected,
               count_if(fact = 'shortened')  AS shortened,
               count_if(fact = 'repaired')   AS repaired,
               count_if(fact = 'crashed')    AS crashed
        FROM {{notes}} JOIN {BEGINS} AS begins USING (run)
        WHERE fact IN ('redirected', 'shortened', 'repaired', 'crashed') AND t >= begin
        GROUP BY ALL
        """,
        notes=notes,
        positions=positions,
    )
