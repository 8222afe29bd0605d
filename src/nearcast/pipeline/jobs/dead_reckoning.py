"""How far from the truth receivers believe others to be, without dead reckoning and with.

Somebody's last word tells where it was. A receiver either leaves it there, or lets it move on as it
did then (seed 002, 4.4): its velocity is that of its area of interest at that moment. A receiver
believes what was said last of all that it heard within the last MEMORY_S seconds. Both beliefs are
compared with true positions at the instants when these were sampled. Every publication must have
been recorded: the job takes what it does not find for what was not said.

Rings are the thesis' outlook: who is near is told everything, who is farther away less. What each
would believe then follows from what it did hear, by passing over what it would not have.
"""

from pyspark.sql import DataFrame

from nearcast.pipeline.spark.sql import query_sql

MEMORY_S = 3
ONE_UPDATE_IN = {"near": 1, "medium": 5, "far": 10}  # one update in so many, by thirds of the area


def _distance_sql(belief: str, seconds: str) -> str:
    """The distance between a ship and where it is believed to be, so many seconds after."""
    parts = (f"pow({belief}.{a} + {belief}.v{a} * {seconds} - truly.{a}, 2)" for a in "xyz")
    return f"sqrt({' + '.join(parts)})"


def _beliefs_sql() -> str:
    """Each (instant, receiver, ship): the last word of all, and of one in so many."""
    last = ",\n".join(
        f"max_by(word, word.said) FILTER (WHERE word.publication % {one_in} = 0) AS {ring}"
        for ring, one_in in ONE_UPDATE_IN.items()
    )
    return f"""
    said AS (
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
    heard AS (
        SELECT run, heard.node AS receiver, ship, heard.t AS known,
               struct(publication, said.t AS said, x, y, z, coalesce(motion.vx, 0) AS vx,
                      coalesce(motion.vy, 0) AS vy, coalesce(motion.vz, 0) AS vz,
                      motion.until AS until) AS word
        FROM {{deliveries}} AS heard JOIN said USING (run, publication)
        WHERE heard.node != ship
    ),
    last AS (
        SELECT heard.run, receiver, ship, truly.t AS t, first(truly.x) AS x, first(truly.y) AS y,
               first(truly.z) AS z, {last}
        FROM (
            SELECT *, explode(sequence(floor(known / 1e6), floor(known / 1e6) + {MEMORY_S}))
                      AS second
            FROM heard
        ) AS heard
        JOIN {{positions}} AS truly
          ON truly.run = heard.run AND truly.node = heard.ship
         AND floor(truly.t / 1e6) = heard.second
         AND truly.t BETWEEN heard.known AND heard.known + {MEMORY_S} * 1000000L
        GROUP BY ALL
    ),
    aged AS (
        SELECT truly.*, mine.x AS mine_x, mine.y AS mine_y, mine.z AS mine_z
        FROM last AS truly
        JOIN {{positions}} AS mine
          ON mine.run = truly.run AND mine.t = truly.t AND mine.node = truly.receiver
    ),
    beliefs AS (
        SELECT run, t, receiver, ship,
               sqrt(pow(mine_x - x, 2) + pow(mine_y - y, 2) + pow(mine_z - z, 2)) AS distance,
               {_difference_columns()}
        FROM aged AS truly
    )"""


def _difference_columns() -> str:
    columns = []
    for ring in ONE_UPDATE_IN:
        flown = f"(least(t, coalesce({ring}.until, t)) - {ring}.said) / 1e6"
        columns += [
            f"{_distance_sql(ring, '0')} AS {ring}_plain",
            f"{_distance_sql(ring, flown)} AS {ring}_reckoned",
        ]
    return ",\n".join(columns)


def position_difference(
    publications: DataFrame, interests: DataFrame, deliveries: DataFrame, positions: DataFrame
) -> DataFrame:
    """Mean and ninetieth percentile of a run's differences, by thirds of the area and of `all`.

    `thinned` ones are as if each ring were told one update in `one_in`. Who is truly outside the
    largest area that there is does not count: nobody tells the receiver of it any more.
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
