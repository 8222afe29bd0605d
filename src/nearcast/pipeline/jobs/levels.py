"""Traffic and structure of a tree by level, where a node's level is the last one that it noted."""

from pyspark.sql import DataFrame

from nearcast.pipeline.spark.sql import query_sql


def traffic_by_level(messages: DataFrame, notes: DataFrame) -> DataFrame:
    """Messages with publications, received and sent by each node of a level: mean, spread, most.

    A node without messages counts too. Squares are summed as integers, so that the result does not
    depend on the order.
    """
    return query_sql(
        """
        WITH levels AS (
            SELECT run, node, max(struct(t, value)).value AS level
            FROM {notes} WHERE fact = 'level' GROUP BY run, node
        ), ends AS (
            SELECT run, node, copies AS sent, 0L AS received
            FROM {messages} WHERE publication IS NOT NULL
            UNION ALL
            SELECT run, `to`, 0L, copies FROM {messages} WHERE publication IS NOT NULL AND NOT lost
        ), loads AS (
            SELECT run, node, max(level) AS level,
                   coalesce(sum(sent), 0L) AS sent, coalesce(sum(received), 0L) AS received
            FROM (
                SELECT run, node, NULL AS level, sent, received FROM ends
                UNION ALL SELECT run, node, level, NULL, NULL FROM levels
            )
            GROUP BY run, node
        ), sums AS (
            SELECT run, level, count(*) AS nodes,
                   sum(received) AS r, sum(CAST(received AS DECIMAL(19)) * received) AS rr,
                   sum(sent) AS s, sum(CAST(sent AS DECIMAL(19)) * sent) AS ss,
                   max(sent + received) AS load_max
            FROM loads WHERE level IS NOT NULL GROUP BY run, level
        )
        SELECT run, level, nodes,
               r / nodes                                                        AS received_mean,
               sqrt(greatest(CAST(rr AS DOUBLE) / nodes - pow(r / nodes, 2), 0)) AS received_std,
               s / nodes                                                        AS sent_mean,
               sqrt(greatest(CAST(ss AS DOUBLE) / nodes - pow(s / nodes, 2), 0)) AS sent_std,
               load_max
        FROM sums
        """,
        messages=messages,
        notes=notes,
    )


def returned(messages: DataFrame) -> DataFrame:
    """Messages that carried a publication, and those that returned it to the node it came from."""
    return query_sql(
        """
        WITH carried AS (
            SELECT run, publication, node, `to`, copies
            FROM {messages} WHERE publication IS NOT NULL
        ), paired AS (
            SELECT run, publication, least(node, `to`) AS one, greatest(node, `to`) AS other,
                   sum(copies) AS copies,
                   least(sum(CASE WHEN node < `to` THEN copies ELSE 0 END),
                         sum(CASE WHEN node > `to` THEN copies ELSE 0 END)) AS returned
            FROM carried GROUP BY ALL
        )
        SELECT run, sum(copies) AS carried, coalesce(sum(returned), 0L) AS returned
        FROM paired GROUP BY run
        """,
        messages=messages,
    )


def tree(notes: DataFrame) -> DataFrame:
    """According to the last notes: each peer's highest level, and the owner of the node above."""
    return query_sql(
        """
        WITH latest AS (
            SELECT run, node,
                   max(struct(t, value)) FILTER (WHERE fact = 'level')    AS stands,
                   max(struct(t, about)) FILTER (WHERE fact = 'linked')   AS linked,
                   max(struct(t, about)) FILTER (WHERE fact = 'unlinked') AS unlinked
            FROM {notes} WHERE fact IN ('level', 'linked', 'unlinked') GROUP BY run, node
        )
        SELECT run, node, stands.value AS top,
               CASE WHEN unlinked IS NULL OR unlinked.t < linked.t
                         OR unlinked.about <> linked.about THEN linked.about END AS father
        FROM latest
        """,
        notes=notes,
    )


def fanout_by_level(notes: DataFrame) -> DataFrame:
    """How many children the nodes of a tree have, by level, from whom each peer was linked to last.

    A peer links to the owner of the node above its highest one. The owner of a node also owns one
    of its children, without a link.
    """
    return query_sql(
        """
        WITH parents AS (
            SELECT run, father AS parent, top + 1 AS level, count(*) + 1 AS children
            FROM {tree} WHERE father IS NOT NULL GROUP BY ALL
        )
        SELECT run, level, count(*) AS nodes, min(children) AS least, max(children) AS most,
               sum(children) / count(*) AS mean
        FROM parents GROUP BY run, level
        """,
        tree=tree(notes),
    )


def traffic_by_tree_level(notes: DataFrame, pairs: DataFrame) -> DataFrame:
    """Messages with publications between the nodes of a tree, whichever peers own them.

    A peer that notes level 2 owns a node on each of the levels 0, 1 and 2. The receiver notes from
    which level a message left and at which it arrived.
    """
    return query_sql(
        """
        WITH tops AS (
            SELECT run, node, CAST(max(struct(t, value)).value AS INT) AS top
            FROM {notes} WHERE fact = 'level' GROUP BY run, node
        ), tree AS (
            SELECT run, level, count(*) AS nodes
            FROM (SELECT run, explode(sequence(0, top)) AS level FROM tops) GROUP BY run, level
        ), wanted AS (
            SELECT DISTINCT run, publication AS about, node, TRUE AS wanted
            FROM {pairs} WHERE outcome <> 'spurious'
        ), passed AS (
            SELECT run, CAST(value AS INT) AS level,
                   count_if(fact = 'arrives')                    AS received,
                   count_if(fact = 'leaves')                     AS sent,
                   count_if(fact = 'arrives' AND wanted IS NULL) AS unwanted
            FROM {notes} LEFT JOIN wanted USING (run, about, node)
            WHERE fact IN ('leaves', 'arrives') GROUP BY run, level
        )
        SELECT run, level, nodes,
               coalesce(received, 0L) AS received,
               coalesce(sent, 0L)     AS sent,
               coalesce(unwanted, 0L) AS unwanted
        FROM tree LEFT JOIN passed USING (run, level)
        """,
        notes=notes,
        pairs=pairs,
    )
