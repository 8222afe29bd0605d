"""What an overlay looks like from outside: its links, paths and owners, second by second.

Notes tell what nodes know (linked, unlinked, level, owner, left, crashed), messages what they do.
Only seconds in which something happened are told: in all others everything is as it was in the last
one told. So a clock that jumps by years costs nothing.
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

    In runs that note no links, two are linked in a second if a message went from one to the other.
    Links noted hold on, so all notes of a run are one group; messages of each second are their own.
    Either fits one worker.
    """
    told = graph_inputs(notes, messages, publications, origins).groupBy("run", "part")
    return query_sql(
        """
        WITH told AS (
            SELECT run, second, noted,
                   struct(links, nodes, degree_max, triangles, triples, components, height) AS graph
            FROM   {told}
        ),
        -- Each second has one graph that messages draw and, if it changed then, the one noted.
        so_far AS (
            SELECT run, second, noted,
                   graph                                                              AS exchanged,
                   last(if(noted, graph, NULL)) IGNORE NULLS OVER in_order            AS state,
                   bool_or(noted AND graph.links IS NOT NULL) OVER (PARTITION BY run) AS notes_links
            FROM   told
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
        told=told.applyInArrow(measure_group, f"{spark_columns(GRAPH_SCHEMA)}, noted boolean"),
    )


def graph_inputs(
    notes: DataFrame, messages: DataFrame, publications: DataFrame, origins: DataFrame
) -> DataFrame:
    """All that is noted of links, levels and goings; and, without a fact, of every second the pairs
    that exchanged a message, and at least one row, even if nobody did."""
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
    """What the notes of a run tell, wherever it changes, or the graph of one second's messages."""
    noted = not group["part"][0].is_valid
    told = replay_links(group) if noted else message_graph(group)
    return with_run(group, told.append_column("noted", pa.repeat(noted, len(told))))


def message_graph(words: pa.Table) -> pa.Table:
    """The graph of one second's messages."""
    pairs = words.filter(words["node"].is_valid())
    graph = measure(pairs["node"].to_numpy(), pairs["other"].to_numpy())
    return pa.Table.from_pylist([{"second": words["second"][0].as_py(), **graph}], GRAPH_SCHEMA)


def with_run(group: pa.Table, rows: pa.Table) -> pa.Table:
    """What is told of a group, with its run."""
    return rows.add_column(0, "run", pa.repeat(group["run"][0], len(rows)))


def spark_columns(schema: pa.Schema) -> str:
    """These columns after the run, as Spark wants to be told them."""
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
    """How many messages deliveries took, and how much longer than the direct way."""
    return query_sql(
        """
        WITH ways AS (
            -- The last word of either end on the latency between the two.
            SELECT run, least(node, about) AS low, greatest(node, about) AS high,
                   max(struct(t, value)).value AS direct_ms
            FROM   {notes}
            WHERE  fact = 'latency' AND about <> node AND value > 0
            GROUP  BY ALL
        ),
        heard AS (
            SELECT run, hops,
                   (heard.t - said.t) / 1e3        AS took_ms,
                   least(heard.node, said.node)    AS low,
                   greatest(heard.node, said.node) AS high
            FROM   {deliveries} AS heard LEFT JOIN {publications} AS said USING (run, publication)
        )
        SELECT run, hops,
               count(*) AS deliveries,
               -- Decimals add up to the same in any order, so the mean is the same on any cluster.
               CAST(avg(try_cast(took_ms / direct_ms AS DECIMAL(28, 9))) AS DOUBLE) AS stretch_mean
        FROM   heard LEFT JOIN ways USING (run, low, high)
        GROUP  BY run, hops
        """,
        deliveries=deliveries,
        publications=publications,
        notes=notes,
    )


def ownership(notes: DataFrame, interests: DataFrame, origins: DataFrame) -> DataFrame:
    """Who owns how many subscriptions at the end of each second in which any of that may change.

    A subscription is owned by the last to note so, until it ends. `changes` counts how often this
    owner took one over from another in that second.
    """
    claims = query_sql(
        """
        WITH words AS (
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
        FROM   words JOIN {origins} AS origins USING (run)
        """,
        notes=notes,
        interests=interests,
        origins=origins,
    )
    return claims.groupBy("run").applyInArrow(owners_of_run, spark_columns(OWNER_SCHEMA))


def owners_of_run(group: pa.Table) -> pa.Table:
    return with_run(group, replay_owners(group))
