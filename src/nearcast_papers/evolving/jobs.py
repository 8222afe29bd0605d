"""Jobs for the measures of [Evolving], by second since the workload began.

True positions are first recorded when the workload begins, so the set-up is left out. Readers of
the tables know how many seconds a run has, and leave out what happens after its end.
"""

from pyspark.sql import DataFrame

from nearcast.pipeline.spark.sql import query_sql

BEGINS = "(SELECT run, min(t) AS begin FROM {positions} GROUP BY run)"


def words_by_second(messages: DataFrame, positions: DataFrame) -> DataFrame:
    """Messages and their bytes by kind, in the second of sending."""
    return query_sql(
        f"""
        SELECT /*+ BROADCAST(begins) */
               run, CAST(floor((t - begin) / 1e6) AS INT) AS second, kind,
               sum(copies) AS messages, sum(bytes) AS bytes
        FROM {{messages}} JOIN {BEGINS} AS begins USING (run)
        WHERE t >= begin
        GROUP BY ALL
        """,
        messages=messages,
        positions=positions,
    )


def evaluations_by_second(notes: DataFrame, positions: DataFrame) -> DataFrame:
    """How often brokers evaluated something that evolves. A note is about the time before it."""
    return query_sql(
        f"""
        SELECT /*+ BROADCAST(begins) */
               run, CAST(floor((t - 1 - begin) / 1e6) AS INT) AS second,
               CAST(sum(value) AS BIGINT) AS evaluations
        FROM {{notes}} JOIN {BEGINS} AS begins USING (run)
        WHERE fact = 'evaluations' AND t > begin
        GROUP BY ALL
        """,
        notes=notes,
        positions=positions,
    )


def movement_by_second(
    interests: DataFrame, publications: DataFrame, positions: DataFrame
) -> DataFrame:
    """How many interests began to evolve, and for how many seconds interests were evolving.

    One evolves if its region moves or grows, or if its predicates speak of `t`, until its motion
    ends or another word replaces it.
    """
    return query_sql(
        rf"""
        WITH bounds AS (
            SELECT run, begin, last
            FROM {BEGINS} JOIN (
                SELECT run, max(t) + 1000000 AS last FROM {{publications}} GROUP BY run
            ) USING (run)
        ), spells AS (
            SELECT /*+ BROADCAST(bounds) */
                   run, begin, t,
                   least(coalesce(until, last), last, coalesce(
                       lead(t) OVER (PARTITION BY run, subscription ORDER BY t), last)) AS stop,
                   NOT ended AND (
                       vx <> 0 OR vy <> 0 OR vz <> 0 OR gx <> 0 OR gy <> 0 OR gz <> 0
                       OR concat_ws(',', formula, filter) RLIKE '\\bt\\b') AS evolves
            FROM {{interests}} JOIN bounds USING (run)
        ), seconds AS (
            SELECT run, begin, t, greatest(t, begin) AS start, stop,
                   explode(sequence(CAST(floor((greatest(t, begin) - begin) / 1e6) AS INT),
                                    CAST(floor((stop - 1 - begin) / 1e6) AS INT))) AS second
            FROM spells WHERE evolves AND stop > greatest(t, begin)
        )
        SELECT run, second,
               count_if(t >= begin + second * 1000000L) AS moves,
               sum(least(stop, begin + (second + 1) * 1000000L)
                   - greatest(start, begin + second * 1000000L)) / 1e6 AS moving_s
        FROM seconds
        GROUP BY run, second
        """,
        interests=interests,
        publications=publications,
        positions=positions,
    )


def movements(interests: DataFrame, publications: DataFrame, positions: DataFrame) -> DataFrame:
    """One number for all that was wanted and said, where and when: equal for equal movement."""
    return query_sql(
        f"""
        WITH acts AS (
            SELECT run, t, 0 AS published, xxhash64(
                       node, subscription, shape, x, y, z, rx, ry, rz, vx, vy, vz, filter, ended
                   ) AS what
            FROM {{interests}}
            UNION ALL
            SELECT run, t, 1, xxhash64(node, publication, shape, x, y, z, attributes)
            FROM {{publications}}
        )
        SELECT /*+ BROADCAST(begins) */
               run,
               sum(published)                    AS publications,
               sum(1 - published)                AS interests,
               bit_xor(xxhash64(t - begin, what)) AS fingerprint
        FROM acts JOIN {BEGINS} AS begins USING (run)
        WHERE t >= begin
        GROUP BY run
        """,
        interests=interests,
        publications=publications,
        positions=positions,
    )
