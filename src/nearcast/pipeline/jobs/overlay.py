"""The structure of an overlay second by second: links, path lengths, owners of subscriptions.

Nodes note what they know (linked, unlinked, level, owner, left, crashed); messages show what they
do. Tables have rows only for seconds in which something happened; in all others the state is that
of the last row. So a clock that jumps by years costs nothing.
"""

import pyarrow as pa
from pyspark.sql import DataFrame

from nearcast.pipeline.jobs.graphs import measure
from nearcast.pipeline.jobs.note_replay import (
    GRAPH_SCHEMA,
    OWNER_SCHEMA,
    replay_links,
    replay_owners,
)
from nearcast.pipeline.spark.sql import query_sql


def overlay_by_second(
    notes: DataFrame, messages: DataFrame, publications: DataFrame, origins: DataFrame
) -> DataFrame:
    """The graph of the overlay at the end of each second, and its height.

    In runs that note no links, two nodes are linked in a second in which a message went from one to
    the other. A noted link lasts, so all notes of a run are one group; the messages of each second
    are a group of their own. Either fits into one worker.
    """
    inputs = graph_inputs(notes, messages, publications, origins).groupBy("run", "part")
    return query_sql(
        """
        WITH graphs AS (
            SELECT run, second, noted,
                   struct(links, nodes, degree_max, triangles, triples, components, height) AS graph
            FROM   {measured}
        ),
        -- Each second has the graph of its messages and, if it changed then, the noted graph.
        so_far AS (
            SELECT run, second, noted,
                   graph                                                              AS exchanged,
                   last(if(noted, graph, NULL)) IGNORE NULLS OVER in_order            AS state,
                   bool_or(noted AND graph.links IS NOT NULL) OVER (PARTITION BY run) AS notes_links
            FROM   graphs
            WINDOW in_order AS (
                PARTITION BY run ORDER BY second, noted DESC
                ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
            )
        ),
        chosen AS (
            SELECT run, second, state.height, if(notes_links, state, exchanged) AS graph
            FROM   so_far
            WHERE  NOT noted
        )
        SELECT run, second,
               coalesce(graph.links, 0)                       AS links,
               coalesce(graph.nodes, 0)                       AS nodes,
               try_divide(2 * graph.links, graph.nodes)       AS degree_mean,
               coalesce(graph.degree_max, 0)                  AS degree_max,
               try_divide(3 * graph.triangles, graph.triples) AS clustering,
               coalesce(graph.components, 0)                  AS components,
               height
        FROM   chosen
        """,
        measured=inputs.applyInArrow(
            measure_group, f"{spark_columns(GRAPH_SCHEMA)}, noted boolean"
        ),
    )


def graph_inputs(
    notes: DataFrame, messages: DataFrame, publications: DataFrame, origins: DataFrame
) -> DataFrame:
    """All notes about links, levels and departures; and, without a fact, for every second the pairs
    that exchanged a message: at least one row, even if there are none."""
    return query_sql(
        """
        WITH exchanged AS (
            SELECT run, t,
                   if(lost OR node = `to`, NULL, least(node, `to`))    AS low,
                   if(lost OR node = `to`, NULL, greatest(node, `to`)) AS high
            FROM   {messages}
            UNION ALL
            SELECT run, t, NULL, NULL FROM {publications}
            UNION ALL
            SELECT run, t, NULL, NULL FROM {notes}
        ),
        pairs AS (
            SELECT /*+ BROADCAST(origins) */ DISTINCT
                   run, floor((t - origin) / 1e6) AS second, low, high
            FROM   exchanged JOIN {origins} AS origins USING (run)
        )
        SELECT run, second AS part, second, NULL AS t, NULL AS fact,
               low AS node, high AS other, NULL AS value
        FROM   pairs
        UNION ALL
        SELECT /*+ BROADCAST(origins) */
               run, NULL, floor((t - origin) / 1e6), t, fact, node, about, value
        FROM   {notes} JOIN {origins} AS origins USING (run)
        WHERE  fact IN ('linked', 'unlinked') AND about <> node
            OR fact IN ('left', 'crashed')
            OR fact = 'level' AND value IS NOT NULL
        """,
        notes=notes,
        messages=messages,
        publications=publications,
        origins=origins,
    )


def measure_group(group: pa.Table) -> pa.Table:
    """The graphs that a run's notes describe, one for each change; or that of one second's
    messages."""
    noted = not group["part"][0].is_valid
    rows = replay_links(group) if noted else message_graph(group)
    return with_run(group, rows.append_column("noted", pa.repeat(noted, len(rows))))


def message_graph(rows: pa.Table) -> pa.Table:
    """The graph of one second's messages."""
    pairs = rows.filter(rows["node"].is_valid())
    graph = measure(pairs["node"].to_numpy(), pairs["other"].to_numpy())
    return pa.Table.from_pylist([{"second": rows["second"][0].as_py(), **graph}], GRAPH_SCHEMA)


def with_run(group: pa.Table, rows: pa.Table) -> pa.Table:
    """These rows of a group, with its run as the first column."""
    return rows.add_column(0, "run", pa.repeat(group["run"][0], len(rows)))


def spark_columns(schema: pa.Schema) -> str:
    """The run and these columns, in Spark's notation of a schema."""
    kinds = {pa.int64(): "bigint", pa.float64(): "double"}
    return ", ".join(["run string", *(f"{field.name} {kinds[field.type]}" for field in schema)])


def overlay_links(messages: DataFrame, origins: DataFrame) -> DataFrame:
    """How much each link was used: messages from `node` to `to`, lost ones too."""
    return query_sql(
        """
        WITH links AS (
            SELECT run, node, `to`,
                   sum(copies) AS messages,
                   sum(bytes)  AS bytes,
                   min(t)      AS first,
                   max(t)      AS last
            FROM   {messages}
            GROUP  BY run, node, `to`
        )
        SELECT /*+ BROADCAST(origins) */
               run, node, `to`, messages, bytes,
               (first - origin) / 1e6 AS first_s,
               (last  - origin) / 1e6 AS last_s
        FROM   links JOIN {origins} AS origins USING (run)
        """,
        messages=messages,
        origins=origins,
    )


def overlay_paths(deliveries: DataFrame, publications: DataFrame, notes: DataFrame) -> DataFrame:
    """Deliveries by hops, and their latency relative to that of the direct connection."""
    return query_sql(
        """
        WITH direct AS (
            -- The last note of either end about the latency between the two.
            SELECT run, least(node, about) AS low, greatest(node, about) AS high,
                   max(struct(t, value)).value AS direct_ms
            FROM   {notes}
            WHERE  fact = 'latency' AND about <> node AND value > 0
            GROUP  BY ALL
        ),
        paths AS (
            SELECT run, hops,
                   (delivery.t - made.t) / 1e3        AS took_ms,
                   least(delivery.node, made.node)    AS low,
                   greatest(delivery.node, made.node) AS high
            FROM   {deliveries} AS delivery
                   LEFT JOIN {publications} AS made USING (run, publication)
        )
        SELECT run, hops,
               count(*) AS deliveries,
               -- Decimals add up to the same in any order, so the mean is the same on any cluster.
               CAST(avg(try_cast(took_ms / direct_ms AS DECIMAL(28, 9))) AS DOUBLE) AS stretch_mean
        FROM   paths LEFT JOIN direct USING (run, low, high)
        GROUP  BY run, hops
        """,
        deliveries=deliveries,
        publications=publications,
        notes=notes,
    )


def ownership(notes: DataFrame, interests: DataFrame, origins: DataFrame) -> DataFrame:
    """How many subscriptions each node owns, at the end of each second in which that may change.

    A subscription is owned by the last node that notes so, until it ends. `changes` counts how
    often this owner took one over from another in that second.
    """
    claims = query_sql(
        """
        WITH claims AS (
            SELECT run, t, about AS subscription, node AS owner
            FROM   {notes}
            WHERE  fact = 'owner' AND about IS NOT NULL
            UNION ALL
            SELECT run, t, subscription, NULL
            FROM   {interests}
            WHERE  ended
        )
        SELECT /*+ BROADCAST(origins) */
               run, floor((t - origin) / 1e6) AS second, t, subscription, owner
        FROM   claims JOIN {origins} AS origins USING (run)
        """,
        notes=notes,
        interests=interests,
        origins=origins,
    )
    return claims.groupBy("run").applyInArrow(owners_of_run, spark_columns(OWNER_SCHEMA))


def owners_of_run(group: pa.Table) -> pa.Table:
    return with_run(group, replay_owners(group))
