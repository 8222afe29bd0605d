"""The error of the positions that receivers know of others, without and with dead reckoning.

A receiver knows the position in the last update of a ship that it received within MEMORY_S seconds.
It either uses that position, or extrapolates it ([Lucas2011] 4.4) with the velocity that the ship's
area of interest had at that time. Both are compared with the true positions at the sampled
instants. Every publication must have been recorded.

Rings are from the outlook of [Lucas2011]: near receivers get every update, farther ones fewer.
Their error is computed from the updates that they did receive, by leaving out some.
"""

from pyspark.sql import DataFrame

from nearcast.pipeline.spark.sql import query_sql

MEMORY_S = 3
ONE_UPDATE_IN = {"near": 1, "medium": 5, "far": 10}  # one update in so many, by thirds of the area


def _distance_sql(belief: str, seconds: str) -> str:
    """SQL: the distance between a ship and where it is believed to be after so many seconds."""
    parts = (f"pow({belief}.{a} + {belief}.v{a} * {seconds} - truth.{a}, 2)" for a in "xyz")
    return f"sqrt({' + '.join(parts)})"


def _beliefs_sql() -> str:
    """SQL: for each (instant, receiver, ship) the last update, of all and of one in so many."""
    last = ",\n".join(
        f"max_by(update, update.made) FILTER (WHERE update.publication % {one_in} = 0) AS {ring}"
        for ring, one_in in ONE_UPDATE_IN.items()
    )
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
               first(truth.z) AS z, {last}
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
               {_difference_columns()}
        FROM aged AS truth
    )"""


def _difference_columns() -> str:
    columns = []
    for ring in ONE_UPDATE_IN:
        flown = f"(least(t, coalesce({ring}.until, t)) - {ring}.made) / 1e6"
        columns += [
            f"{_distance_sql(ring, '0')} AS {ring}_plain",
            f"{_distance_sql(ring, flown)} AS {ring}_reckoned",
        ]
    return ",\n".join(columns)


def position_difference(
    publications: DataFrame, interests: DataFrame, deliveries: DataFrame, positions: DataFrame
) -> DataFrame:
    """Mean and 90th percentile of the errors, by thirds of the area of interest and for `all`.

    `thinned` columns are as if each ring received one update in `one_in`. Ships outside the largest
    area of interest do not count, because receivers get no more updates from them.
    """
    rings = list(ONE_UPDATE_IN)
    chosen = " ".join(
        f"WHEN '{ring}' THEN struct({ring}_plain AS plain, {ring}_reckoned AS reckoned)"
        for ring in rings
    )
    one_in = " ".join(f"WHEN '{ring}' THEN {number}" for ring, number in ONE_UPDATE_IN.items())
    return query_sql(
        f"""
        WITH {_beliefs_sql()},
        areas AS (
            SELECT run, max(rx) AS radius FROM {{interests}} WHERE channel = '' GROUP BY run
        ),
        ringed AS (
            SELECT *, CASE third {chosen} END AS thinned
            FROM (
                SELECT /*+ BROADCAST(areas) */ *,
                       CASE WHEN distance <= radius / 3 THEN '{rings[0]}'
                            WHEN distance <= radius * 2 / 3 THEN '{rings[1]}'
                            ELSE '{rings[2]}' END AS third
                FROM beliefs JOIN areas USING (run)
                WHERE distance <= radius
            )
        )
        SELECT run, coalesce(third, 'all')    AS ring,
               CASE third {one_in} END        AS one_in,
               count(*)                       AS beliefs,
               avg(near_plain)                AS plain_mean,
               percentile(near_plain, 0.9)    AS plain_p90,
               avg(near_reckoned)             AS reckoned_mean,
               percentile(near_reckoned, 0.9) AS reckoned_p90,
               avg(thinned.plain)             AS thinned_plain_mean,
               avg(thinned.reckoned)          AS thinned_reckoned_mean
        FROM ringed
        GROUP BY GROUPING SETS ((run, third), (run))
        """,
        publications=publications,
        interests=interests,
        deliveries=deliveries,
        positions=positions,
    )
