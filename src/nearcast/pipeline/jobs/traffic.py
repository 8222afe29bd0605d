"""The traffic of the overlay: messages and bytes by kind, second and node, and its distribution.

A row of `messages` stands for `copies` messages of `bytes` bytes in all. A lost message was sent
and never received. A message is received in the second of its arrival or, if the trace does not
have it, of its sending. Messages without a publication are called subscription traffic; in runs
that recorded only sums that is all traffic, because sums do not say what messages carried.
"""

from pyspark.sql import DataFrame

from nearcast.pipeline.spark.sql import query_sql

PERCENTS = " ".join(str(percent / 100) for percent in range(101))

# Each message twice: as its sender's, and, unless lost, as its receiver's.
ENDS = """
    ends AS (
        SELECT run, node, `to` AS other, t, TRUE AS sent, bytes, copies, lost, publication
        FROM   {messages}
        UNION ALL
        SELECT run, `to`, node, coalesce(arrived, t), FALSE, bytes, copies, lost, publication
        FROM   {messages}
        WHERE  NOT lost
    )"""

TIMED = """
    timed AS (
        SELECT /*+ BROADCAST(origins) */
               run, node, other, sent, floor((t - origin) / 1e6) AS second, bytes, copies
        FROM   ends JOIN {origins} AS origins USING (run)
    )"""


def _gini(load: str) -> str:
    """2 Σ i·xᵢ / (n Σ xᵢ) − (n + 1) / n, for loads x₁ ≤ x₂ ≤ … ≤ xₙ.

    The weighted sum of integers outgrows 64 bits in large runs; decimals add up exactly, too.
    """
    ordered = f"sort_array(collect_list({load}))"
    weighted = f"transform({ordered}, (x, i) -> (i + 1) * CAST(x AS DECIMAL(20)))"
    return f"""
        try_divide(
            2 * CAST(aggregate(
                {weighted}, CAST(0 AS DECIMAL(38)), (sum, ix) -> CAST(sum + ix AS DECIMAL(38))
            ) AS DOUBLE),
            count(*) * CAST(sum({load}) AS DOUBLE)
        ) - (count(*) + 1) / count(*)"""


def traffic_totals(messages: DataFrame) -> DataFrame:
    """One row for each run with messages. Ratios are over all nodes that sent or received.

    Gini: 0 if all nodes carry the same, near 1 if one carries all; null if there are no bytes.
    """
    return query_sql(
        f"""
        WITH {ENDS},
        sums AS (
            SELECT run, node, sent, lost, publication IS NOT NULL AS carries,
                   sum(copies) AS messages, sum(bytes) AS bytes
            FROM   ends
            GROUP  BY ALL
        ),
        loads AS (
            SELECT run, node,
                   sum(messages) FILTER (WHERE sent)               AS messages,
                   sum(messages) FILTER (WHERE sent AND lost)      AS lost,
                   sum(messages) FILTER (WHERE sent AND carries)   AS carrying,
                   sum(bytes)    FILTER (WHERE sent AND carries)   AS carried,
                   coalesce(sum(bytes) FILTER (WHERE sent), 0)     AS sent,
                   coalesce(sum(bytes) FILTER (WHERE NOT sent), 0) AS received
            FROM   sums
            GROUP  BY run, node
        )
        SELECT run,
               sum(messages)                                    AS messages,
               sum(sent)                                        AS bytes,
               coalesce(sum(lost), 0)                           AS lost,
               coalesce(sum(carrying), 0)                       AS publication_messages,
               coalesce(sum(carried), 0)                        AS publication_bytes,
               sum(messages) - coalesce(sum(carrying), 0)       AS subscription_messages,
               sum(sent) - coalesce(sum(carried), 0)            AS subscription_bytes,
               {_gini("sent")}                                  AS gini_sent,
               {_gini("received")}                              AS gini_received,
               try_divide(count(*) * CAST(max(sent) AS DOUBLE), sum(sent)) AS max_over_mean_sent,
               try_divide(count(*) * CAST(max(received) AS DOUBLE), sum(received))
                   AS max_over_mean_received
        FROM   loads
        GROUP  BY run
        """,
        messages=messages,
    )


def traffic_by_kind(messages: DataFrame) -> DataFrame:
    """Messages and bytes of each kind; `carries` is the share that carried a publication."""
    return query_sql(
        """
        SELECT run, kind,
               sum(copies)                                     AS messages,
               sum(bytes)                                      AS bytes,
               coalesce(sum(copies) FILTER (WHERE lost), 0)    AS lost,
               try_divide(
                   coalesce(sum(copies) FILTER (WHERE publication IS NOT NULL), 0), sum(copies)
               )                                               AS carries
        FROM   {messages}
        GROUP  BY run, kind
        """,
        messages=messages,
    )


def traffic_by_second(messages: DataFrame, origins: DataFrame) -> DataFrame:
    """By the second of sending; seconds before the first publication are negative."""
    return query_sql(
        """
        SELECT /*+ BROADCAST(origins) */
               run, floor((t - origin) / 1e6) AS second, kind,
               sum(copies) AS messages,
               sum(bytes)  AS bytes
        FROM   {messages} JOIN {origins} AS origins USING (run)
        GROUP  BY ALL
        """,
        messages=messages,
        origins=origins,
    )


def traffic_by_node(messages: DataFrame, origins: DataFrame) -> DataFrame:
    """All nodes that sent or received. `fan_out` also counts receivers of lost messages only."""
    return query_sql(
        f"""
        WITH {ENDS}, {TIMED},
        -- What a node did in each second, and, on rows of their own, with each other node.
        parts AS (
            SELECT run, node, sent, other IS NULL AS timed,
                   sum(copies) AS messages,
                   sum(bytes)  AS bytes
            FROM   timed
            GROUP  BY GROUPING SETS ((run, node, sent, second), (run, node, sent, other))
        )
        SELECT run, node,
               coalesce(sum(messages) FILTER (WHERE timed AND sent), 0)     AS sent_messages,
               coalesce(sum(bytes)    FILTER (WHERE timed AND sent), 0)     AS sent_bytes,
               coalesce(sum(messages) FILTER (WHERE timed AND NOT sent), 0) AS received_messages,
               coalesce(sum(bytes)    FILTER (WHERE timed AND NOT sent), 0) AS received_bytes,
               count_if(NOT timed AND sent)                                 AS fan_out,
               count_if(NOT timed AND NOT sent)                             AS fan_in,
               coalesce(max(bytes) FILTER (WHERE timed AND sent), 0)
                   AS peak_sent_bytes_per_s,
               coalesce(max(bytes) FILTER (WHERE timed AND NOT sent), 0)
                   AS peak_received_bytes_per_s
        FROM   parts
        GROUP  BY run, node
        """,
        messages=messages,
        origins=origins,
    )


def traffic_quantiles(messages: DataFrame, origins: DataFrame) -> DataFrame:
    """The distribution of load over nodes: exact quantiles 0, .01 … 1.

    A node's mean is over all seconds from the run's first message to its last arrival; its peak is
    its busiest second. Nodes that only send count with 0 received, and vice versa.
    """
    return query_sql(
        f"""
        WITH {ENDS}, {TIMED},
        seconds AS (
            SELECT run, node, sent, second, sum(bytes) AS bytes
            FROM   timed
            GROUP  BY run, node, sent, second
        ),
        loads AS (
            SELECT run, node,
                   min(second)                                         AS first,
                   max(second)                                         AS last,
                   coalesce(sum(bytes) FILTER (WHERE sent), 0)         AS sent,
                   coalesce(max(bytes) FILTER (WHERE sent), 0)         AS peak_sent,
                   coalesce(sum(bytes) FILTER (WHERE NOT sent), 0)     AS received,
                   coalesce(max(bytes) FILTER (WHERE NOT sent), 0)     AS peak_received
            FROM   seconds
            GROUP  BY run, node
        ),
        spreads AS (
            SELECT run, direction, measure,
                   percentile(load, CAST(split('{{percents}}', ' ') AS ARRAY<DOUBLE>)) AS loads,
                   if(measure = 'mean', max(last) - min(first) + 1, 1) AS seconds
            FROM   loads LATERAL VIEW stack(4,
                       'sent',     'mean', sent,
                       'sent',     'peak', peak_sent,
                       'received', 'mean', received,
                       'received', 'peak', peak_received
                   ) measures AS direction, measure, load
            GROUP  BY run, direction, measure
        )
        SELECT run, direction, measure,
               percent / 100  AS quantile,
               load / seconds AS bytes_per_s
        FROM   spreads LATERAL VIEW posexplode(loads) measures AS percent, load
        """,
        messages=messages,
        origins=origins,
        percents=PERCENTS,
    )
