"""The error of the positions that receivers know of others, without and with dead reckoning.

A receiver knows the position in the last update of a ship that it received within MEMORY_S seconds.
It either uses that position, or extrapolates it ([Lucas2011] 4.4) with the velocity that the ship's
area of interest had at that time. Both are compared with the true positions at the sampled
instants. Every publication must have been recorded.

Rings are those of the outlook of [Lucas2011]: the thirds of the area of interest.
"""

from pyspark.sql import DataFrame

from nearcast.pipeline.spark.sql import query_sql

MEMORY_S = 3
RINGS = ("near", "medium", "far")


def _distance_sql(seconds: str) -> str:
    """SQL: the distance between a ship and where it is believed to be after so many seconds."""
    parts = (f"pow(last.{a} + last.v{a} * {seconds} - truth.{a}, 2)" for a in "xyz")
    return f"sqrt({' + '.join(parts)})"


def _beliefs_sql() -> str:
    """SQL: for each (instant, receiver, ship) how far the last update was wrong."""
    return f"""
    updates AS (
        SELECT run, node AS ship, publication, t, x, y, z, motion
        FROM (
            SELECT run, node, publication, t, x, y, z,
                   last_value(motion, TRUE) OVER (
                       PARTITION BY run, node ORDER BY t, publication NULLS FIRST
                       ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS motion
            FROM (
                SELECT run, node, NULL AS publication, t, x, y, z,
                       struct(vx, vy, vz, until) AS motion
                FROM {{interests}}
                WHERE channel = '' AND formula IS NULL AND NOT ended
                UNION ALL
                SELECT run, node, publication, t, x, y, z, NULL
                FROM {{publications}}
                WHERE channel = '' AND attributes IS NULL
            )
        )
        WHERE publication IS NOT NULL
    ),
    received AS (
        SELECT run, received.node AS receiver, ship, received.t AS known,
               struct(publication, updates.t AS made, x, y, z, coalesce(motion.vx, 0) AS vx,
                      coalesce(motion.vy, 0) AS vy, coalesce(motion.vz, 0) AS vz,
                      motion.until AS until) AS update
        FROM {{deliveries}} AS received JOIN updates USING (run, publication)
        WHERE received.node != ship
    ),
    last AS (
        SELECT received.run, receiver, ship, truth.t AS t, first(truth.x) AS x, first(truth.y) AS y,
               first(truth.z) AS z, max_by(update, update.made) AS last
        FROM (
            SELECT *, explode(sequence(floor(known / 1e6), floor(known / 1e6) + {MEMORY_S}))
                      AS second
            FROM received
        ) AS received
        JOIN {{positions}} AS truth
          ON truth.run = received.run AND truth.node = received.ship
         AND floor(truth.t / 1e6) = received.second
         AND truth.t BETWEEN received.known AND received.known + {MEMORY_S} * 1000000L
        GROUP BY ALL
    ),
    aged AS (
        SELECT truth.*, mine.x AS mine_x, mine.y AS mine_y, mine.z AS mine_z
        FROM last AS truth
        JOIN {{positions}} AS mine
          ON mine.run = truth.run AND mine.t = truth.t AND mine.node = truth.receiver
    ),
    beliefs AS (
        SELECT run, t, receiver, ship,
               sqrt(pow(mine_x - x, 2) + pow(mine_y - y, 2) + pow(mine_z - z, 2)) AS distance,
               {_distance_sql("0")} AS plain,
               {_distance_sql("(least(t, coalesce(last.until, t)) - last.made) / 1e6")} AS reckoned
        FROM aged AS truth
    )"""


def position_difference(
    publications: DataFrame, interests: DataFrame, deliveries: DataFrame, positions: DataFrame
) -> DataFrame:
    """Mean and 90th percentile of the errors, by thirds of the area of interest and for `all`.

    Ships outside the largest area of interest do not count, because receivers get no more updates
    from them.
    """
    return query_sql(
        f"""
        WITH {_beliefs_sql()},
        areas AS (
            SELECT run, max(rx) AS radius FROM {{interests}} WHERE channel = '' GROUP BY run
        ),
        ringed AS (
            SELECT /*+ BROADCAST(areas) */ *,
                   CASE WHEN distance <= radius / 3 THEN '{RINGS[0]}'
                        WHEN distance <= radius * 2 / 3 THEN '{RINGS[1]}'
                        ELSE '{RINGS[2]}' END AS third
            FROM beliefs JOIN areas USING (run)
            WHERE distance <= radius
        )
        SELECT run,
               coalesce(third, 'all')    AS ring,
               count(*)                  AS beliefs,
               avg(plain)                AS plain_mean,
               percentile(plain, 0.9)    AS plain_p90,
               avg(reckoned)             AS reckoned_mean,
               percentile(reckoned, 0.9) AS reckoned_p90
        FROM ringed
        GROUP BY GROUPING SETS ((run, third), (run))
        """,
        publications=publications,
        interests=interests,
        deliveries=deliveries,
        positions=positions,
    )
