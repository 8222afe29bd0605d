"""Jobs for the measures of [Lucas2011], by second and by peer.

A run has settled fifteen seconds after its workload has begun and its last peer has joined: by then
connections that linger for five seconds have closed. Which entities a node knows and should know is
computed by `awareness.awareness_pairs`; the jobs here add that up.
"""

from pyspark.sql import DataFrame

from nearcast.pipeline.spark.sql import query_sql
from nearcast_papers.bubblestorm.scenarios import RADIUS

SETTLING_S = 15
NODE = 15  # whose curves the thesis prints

SETTLED = f"""
    settled AS (
        SELECT run, greatest(begin, coalesce(joined, begin)) + {SETTLING_S} * 1000000L AS since
        FROM (SELECT run, min(t) AS begin FROM {{positions}} GROUP BY run)
        LEFT JOIN (
            SELECT run, max(t) AS joined FROM {{notes}} WHERE fact = 'joined' GROUP BY run
        ) USING (run)
    )"""

# One look of one node: whom it knew, whom it should have known, and how that agrees (5.2.1).
LOOKS = """
    looks AS (
        SELECT run, t, node,
               count_if(knew)                   AS known,
               count_if(due)                    AS should,
               count_if(knew AND due)           AS true_positives,
               count_if(knew AND NOT due)       AS false_positives,
               count_if(due AND NOT knew)       AS false_negatives,
               sum(others) - count_if(present)  AS true_negatives,
               sum(difference)                  AS differences,
               count(difference)                AS believed
        FROM {awareness_pairs}
        GROUP BY run, t, node
    )"""
SUMS = """
    sum(known)             AS known,
    sum(should)            AS should,
    sum(true_positives)    AS true_positives,
    sum(false_positives)   AS false_positives,
    sum(false_negatives)   AS false_negatives,
    sum(true_negatives)    AS true_negatives"""


def running_by_second(notes: DataFrame, origins: DataFrame) -> DataFrame:
    """How many peers run from this second on, wherever that changes (figures 5.2 and 5.9)."""
    return query_sql(
        """
        SELECT DISTINCT run, second, sum(step) OVER (PARTITION BY run ORDER BY second) AS running
        FROM (
            SELECT /*+ BROADCAST(origins) */
                   run, floor((t - origin) / 1e6) AS second, if(fact = 'joined', 1, -1) AS step
            FROM {notes} JOIN {origins} AS origins USING (run)
            WHERE fact IN ('joined', 'left', 'crashed')
        )
        """,
        notes=notes,
        origins=origins,
    )


def settled_since(positions: DataFrame, notes: DataFrame, origins: DataFrame) -> DataFrame:
    """From which second on a run is judged."""
    return query_sql(
        f"""
        WITH {SETTLED}
        SELECT run, CAST(ceil((since - origin) / 1e6) AS INT) AS second
        FROM settled JOIN {{origins}} AS origins USING (run)
        """,
        positions=positions,
        notes=notes,
        origins=origins,
    )


def sights_by_second(awareness_pairs: DataFrame, origins: DataFrame) -> DataFrame:
    """What all nodes together knew in each second, and how far from the truth that was."""
    return query_sql(
        f"""
        WITH {LOOKS}
        SELECT /*+ BROADCAST(origins) */
               run, floor((t - origin) / 1e6) AS second, count(*) AS looks, {SUMS},
               try_divide(sum(differences), sum(believed)) AS difference
        FROM looks JOIN {{origins}} AS origins USING (run)
        GROUP BY ALL
        """,
        awareness_pairs=awareness_pairs,
        origins=origins,
    )


def sights_by_node(awareness_pairs: DataFrame, positions: DataFrame, notes: DataFrame) -> DataFrame:
    """What each node knew once the run had settled; `follows`: how well that follows the truth."""
    return query_sql(
        f"""
        WITH {LOOKS}, {SETTLED}
        SELECT /*+ BROADCAST(settled) */
               run, node, count(*) AS looks, {SUMS},
               corr(CAST(looks.known AS DOUBLE), CAST(looks.should AS DOUBLE)) AS follows
        FROM looks JOIN settled USING (run)
        WHERE t >= since
        GROUP BY run, node
        """,
        awareness_pairs=awareness_pairs,
        positions=positions,
        notes=notes,
    )


def sights_of_one(awareness_pairs: DataFrame, origins: DataFrame) -> DataFrame:
    """Node 15, as figures 5.7, 5.8 and 5.12 to 5.15 show it."""
    return query_sql(
        f"""
        WITH {LOOKS}
        SELECT /*+ BROADCAST(origins) */
               run, floor((t - origin) / 1e6) AS second, {SUMS}
        FROM looks JOIN {{origins}} AS origins USING (run)
        WHERE node = {NODE}
        GROUP BY ALL
        """,
        awareness_pairs=awareness_pairs,
        origins=origins,
    )


def inner_circle(awareness_pairs: DataFrame, positions: DataFrame, notes: DataFrame) -> DataFrame:
    """Who is truly within the mobility model's radius, and how many of them are known.

    Where areas reach farther than that, whoever comes in was known before.
    """
    return query_sql(
        f"""
        WITH {SETTLED}
        SELECT /*+ BROADCAST(settled) */
               met.run, count(*) AS within, count_if(knew) AS known
        FROM {{awareness_pairs}} AS met
        JOIN settled USING (run)
        JOIN {{positions}} AS mine USING (run, t, node)
        JOIN {{positions}} AS theirs ON theirs.run = met.run AND theirs.t = met.t
                                    AND theirs.node = met.other
        WHERE met.t >= since AND due
          AND sqrt(pow(mine.x - theirs.x, 2) + pow(mine.y - theirs.y, 2)
                   + pow(mine.z - theirs.z, 2)) <= {RADIUS}
        GROUP BY met.run
        """,
        awareness_pairs=awareness_pairs,
        positions=positions,
        notes=notes,
    )


def meetings(notes: DataFrame) -> DataFrame:
    """How often connections were opened, which is where a handshake would be."""
    return query_sql(
        "SELECT run, count(*) AS met FROM {notes} WHERE fact = 'met' GROUP BY run",
        notes=notes,
    )
