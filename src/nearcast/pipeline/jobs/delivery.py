"""How well publications were delivered: correct, missed and spurious, latency and order.

`pairs` compares every (run, publication, subscription) with the exact truth; all tables here are
small aggregations of it. Latencies and hops are those of the first delivery of a correct pair.
Sums are taken over integers, or over doubles in a fixed order, so that repeating an analysis gives
the same bytes. Percentiles of latencies are exact: Spark's table of equal values cannot have more
entries than the longest latency has microseconds.
"""

from pyspark.sql import DataFrame

from nearcast.pipeline.spark.sql import query_sql

MISSED_PLACES = 20_000  # more cannot be seen on a map


# Which entity has which subscription.
SUBSCRIBERS = """
    SELECT run, subscription, min(node) AS subscriber FROM {interests} GROUP BY run, subscription
"""
# What says something of a pair: that it was due, a delivery, that it was withheld.
PAIR_ROWS = f"""
    SELECT run, publication, subscription,
           TRUE AS due, NULL AS delivery, NULL AS made, NULL AS withheld
    FROM {{expected}}
    UNION ALL
    SELECT run, publication, subscription, NULL, struct(t, hops, node), NULL, NULL
    FROM {{deliveries}}
    UNION ALL  -- as a row without subscription: cheaper than a join
    SELECT run, publication, NULL, NULL, NULL, struct(t, node, channel), NULL
    FROM {{publications}}
    UNION ALL
    SELECT run, about, subscription, NULL, NULL, NULL, TRUE
    FROM {{notes}} JOIN ({SUBSCRIBERS}) USING (run)
    WHERE fact = 'withheld' AND CAST(value AS BIGINT) = subscriber
"""


def pairs(
    expected: DataFrame,
    publications: DataFrame,
    interests: DataFrame,
    deliveries: DataFrame,
    notes: DataFrame,
) -> DataFrame:
    """Each pair that was expected or delivered: correct, missed or spurious.

    What was withheld because the subscriber asked for that is not expected, unless it was delivered
    nevertheless: a note `withheld` whose value is the subscriber says so.

    A delivery of a publication that the trace does not have is spurious, without publisher, channel
    and t. Of two first deliveries in the same microsecond, the one with fewer hops counts. A pair
    is overtaken if a later publication of the same publisher reached the same subscription first;
    deliveries in the same microsecond are in order.
    """
    # Without WITH: with it, Spark does not recognise the persisted table in other queries.
    return query_sql(
        f"""
        SELECT run,
               publication,
               subscription,
               made.node                           AS publisher,
               coalesce(subscriber, delivery.node) AS node,
               made.channel                        AS channel,
               made.t                              AS t,
               CASE WHEN due AND deliveries > 0 THEN 'correct'
                    WHEN due               THEN 'missed'
                    ELSE 'spurious' END            AS outcome,
               delivery.t                          AS first,
               (delivery.t - made.t) / 1000        AS latency_ms,
               delivery.hops                       AS hops,
               greatest(deliveries - 1, 0)         AS duplicates,
               coalesce(max(made.t) FILTER (WHERE deliveries > 0) OVER (
                   PARTITION BY run, subscription, made.node
                   ORDER BY delivery.t, made.t
                   ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
               ) > made.t, FALSE)                  AS overtaken
        FROM (
            SELECT run, publication, subscription, due, delivery, deliveries, withheld,
                   min(made) OVER (PARTITION BY run, publication) AS made
            FROM (
                SELECT run, publication, subscription,
                       bool_or(due)    AS due,
                       min(delivery)   AS delivery,
                       count(delivery) AS deliveries,
                       min(made)       AS made,
                       bool_or(withheld) AS withheld
                FROM (
                    {PAIR_ROWS}
                    DISTRIBUTE BY run, publication
                )
                GROUP BY run, publication, subscription
            )
        )
        LEFT JOIN ({SUBSCRIBERS}) USING (run, subscription)
        WHERE subscription IS NOT NULL AND (deliveries > 0 OR due AND withheld IS NULL)
        """,
        expected=expected,
        publications=publications,
        interests=interests,
        deliveries=deliveries,
        notes=notes,
    )


def first_moments(*tables: DataFrame) -> DataFrame:
    """The time at which each run's seconds begin: the first row of the first table with rows."""
    named = {f"table_{number}": table for number, table in enumerate(tables)}
    rows = (f"SELECT run, t, '{name}' AS name FROM {{{name}}}" for name in named)
    firsts = (f"min(t) FILTER (WHERE name = '{name}')" for name in named)
    return query_sql(
        f"""
        SELECT run, coalesce({", ".join(firsts)}) AS origin
        FROM ({" UNION ALL ".join(rows)})
        GROUP BY run
        """,
        **named,
    )


def origins(
    publications: DataFrame,
    messages: DataFrame,
    positions: DataFrame,
    notes: DataFrame,
    interests: DataFrame,
) -> DataFrame:
    """The time at which the seconds of all tables begin: the first publication, if there is any."""
    return first_moments(publications, messages, positions, notes, interests)


# The tables.

COUNTS = """
    count_if(outcome != 'spurious') AS expected,
    count_if(outcome = 'correct')   AS correct,
    count_if(outcome = 'missed')    AS missed,
    count_if(outcome = 'spurious')  AS spurious,
    coalesce(sum(duplicates), 0)    AS duplicates,
"""


def delivery_totals(pairs: DataFrame, publications: DataFrame, notes: DataFrame) -> DataFrame:
    """One row for each run with publications, deliveries or notes."""
    return query_sql(
        """
        WITH outcomes AS (
            SELECT run, outcome, first, duplicates, overtaken, NULL AS fact,
                   CASE outcome WHEN 'correct' THEN first - t END AS late,
                   CASE outcome WHEN 'correct' THEN hops      END AS far
            FROM {pairs}
            UNION ALL
            SELECT run, NULL, NULL, NULL, NULL, NULL, NULL, NULL FROM {publications}
            UNION ALL
            SELECT run, NULL, NULL, NULL, NULL, fact, NULL, NULL FROM {notes}
        ), counted AS (
            SELECT run,"""
        + COUNTS
        + """
                   count(first)                            AS pairs,
                   try_divide(sum(late), count(late))      AS late_mean,
                   percentile(late, array(0.5, 0.9, 0.99)) AS late_at,
                   max(late)                               AS late_max,
                   try_divide(sum(far), count(far))        AS hops_mean,
                   count_if(overtaken)                     AS order_violations,
                   count_if(fact = 'withheld')             AS withheld
            FROM outcomes
            GROUP BY run
        )
        SELECT run,
               expected,
               pairs + duplicates                      AS delivered,
               correct,
               missed,
               spurious,
               duplicates,
               try_divide(correct, correct + spurious) AS precision,
               try_divide(correct, expected)           AS recall,
               late_mean  / 1000                       AS latency_mean_ms,
               late_at[0] / 1000                       AS latency_p50_ms,
               late_at[1] / 1000                       AS latency_p90_ms,
               late_at[2] / 1000                       AS latency_p99_ms,
               late_max   / 1000                       AS latency_max_ms,
               hops_mean,
               order_violations,
               withheld
        FROM counted
        """,
        pairs=pairs,
        publications=publications,
        notes=notes,
    )


def delivery_by_second(pairs: DataFrame, publications: DataFrame, origins: DataFrame) -> DataFrame:
    """By the second of the publication; null for publications that the trace does not have."""
    return query_sql(
        """
        WITH outcomes AS (
            SELECT run, t, outcome, duplicates, 0 AS published,
                   CASE outcome WHEN 'correct' THEN first - t END AS late
            FROM {pairs}
            UNION ALL
            SELECT run, t, NULL, NULL, 1, NULL FROM {publications}
        ), counted AS (
            SELECT /*+ BROADCAST(origins) */
                   run,
                   floor((t - origin) / 1000000)      AS second,
                   sum(published)                     AS publications,"""
        + COUNTS
        + """
                   percentile(late, array(0.5, 0.99)) AS late_at
            FROM outcomes LEFT JOIN {origins} AS origins USING (run)
            GROUP BY run, second
        )
        SELECT run,
               second,
               publications,
               expected,
               correct,
               missed,
               spurious,
               duplicates,
               try_divide(correct, expected)           AS recall,
               try_divide(correct, correct + spurious) AS precision,
               late_at[0] / 1000                       AS latency_p50_ms,
               late_at[1] / 1000                       AS latency_p99_ms
        FROM counted
        """,
        pairs=pairs,
        publications=publications,
        origins=origins,
    )


def delivery_by_node(pairs: DataFrame) -> DataFrame:
    """By subscriber, for those with expected or actual deliveries."""
    return query_sql(
        """
        SELECT run,
               node,"""
        + COUNTS
        + """
               try_divide(
                   sum(first - t) FILTER (WHERE outcome = 'correct'), 1000 * correct
               ) AS latency_mean_ms
        FROM {pairs}
        GROUP BY run, node
        """,
        pairs=pairs,
    )


def delivery_by_channel(pairs: DataFrame, publications: DataFrame) -> DataFrame:
    """By the publication's channel; null for publications that the trace does not have."""
    return query_sql(
        """
        WITH outcomes AS (
            SELECT run, channel, outcome, duplicates, 0 AS published,
                   CASE outcome WHEN 'correct' THEN first - t END AS late
            FROM {pairs}
            UNION ALL
            SELECT run, channel, NULL, NULL, 1, NULL FROM {publications}
        )
        SELECT run,
               channel,
               sum(published) AS publications,"""
        + COUNTS
        + """
               percentile(late, 0.5) / 1000 AS latency_p50_ms
        FROM outcomes
        GROUP BY run, channel
        """,
        pairs=pairs,
        publications=publications,
    )


QUANTILES = tuple(percent / 100 for percent in range(101))


def latency_quantiles(pairs: DataFrame) -> DataFrame:
    """The distributions of latency and of hops, each by itself, for runs with a correct pair."""
    return query_sql(
        """
        WITH spreads AS (
            SELECT run,
                   percentile(first - t, array{quantiles}) AS late,
                   percentile(hops, array{quantiles})      AS hops
            FROM {pairs}
            WHERE outcome = 'correct'
            GROUP BY run
        )
        SELECT run,
               percent / 100        AS quantile,
               late[percent] / 1000 AS latency_ms,
               hops[percent]        AS hops
        FROM spreads LATERAL VIEW explode(sequence(0, 100)) AS percent
        """,
        pairs=pairs,
        quantiles=QUANTILES,
    )


def popularity(pairs: DataFrame, publications: DataFrame) -> DataFrame:
    """How long a publication took to reach all its subscribers, by their number.

    A publication without subscribers is complete at once and has no time.
    """
    return query_sql(
        """
        WITH fates AS (
            SELECT run, publication,
                   sum(due)                                            AS interested,
                   count(late) = sum(due)                              AS complete,
                   CASE WHEN count(late) = sum(due) THEN max(late) END AS total
            FROM (
                SELECT run, publication, 0 AS due, NULL AS late FROM {publications}
                UNION ALL
                SELECT run, publication, 1, first - t FROM {pairs} WHERE outcome != 'spurious'
            )
            GROUP BY run, publication
        )
        SELECT run,
               interested,
               count(*)                                    AS publications,
               count_if(complete)                          AS complete,
               try_divide(sum(total), 1000 * count(total)) AS total_time_mean_ms,
               percentile(total, 0.9) / 1000               AS total_time_p90_ms
        FROM fates
        GROUP BY run, interested
        """,
        pairs=pairs,
        publications=publications,
    )


def false_positives_by_level(messages: DataFrame, pairs: DataFrame, notes: DataFrame) -> DataFrame:
    """Publications that reached nodes without interest in them, by the node's level.

    A level counts the nodes that a message with a publication reached; the standard deviation is
    over them (population, not sample). Runs that recorded only sums have no rows.
    """
    return query_sql(
        """
        WITH reached AS (
            SELECT run, node,
                   sum(carried)                         AS carried,
                   if(bool_or(wanted), 0, sum(carried)) AS unwanted
            FROM (
                SELECT run, publication, to AS node, copies AS carried, NULL AS wanted
                FROM {messages}
                WHERE publication IS NOT NULL AND NOT lost
                UNION ALL
                SELECT run, publication, node, NULL, TRUE FROM {pairs} WHERE outcome != 'spurious'
            )
            GROUP BY run, publication, node
        ), nodes AS (
            SELECT run, node,
                   sum(carried)                 AS carried,
                   sum(unwanted)                AS unwanted,
                   sum(unwanted) / sum(carried) AS rate,
                   max(level)                   AS level
            FROM (
                SELECT run, node, carried, unwanted, NULL AS level FROM reached
                UNION ALL
                SELECT run, node, NULL, NULL, max(struct(t, value)).value
                FROM {notes} WHERE fact = 'level' GROUP BY run, node
            )
            GROUP BY run, node
            HAVING sum(carried) > 0
        ), levels AS (
            SELECT run, level, carried, unwanted,
                   avg(rate)        OVER in_order AS rate_mean,
                   stddev_pop(rate) OVER in_order AS rate_std
            FROM nodes
            WINDOW in_order AS (
                PARTITION BY run, level ORDER BY rate
                ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING
            )
        )
        SELECT run,
               level,
               count(*)       AS nodes,
               sum(carried)   AS carried,
               sum(unwanted)  AS unwanted,
               max(rate_mean) AS rate_mean,
               max(rate_std)  AS rate_std
        FROM levels
        GROUP BY run, level
        """,
        messages=messages,
        pairs=pairs,
        notes=notes,
    )


def missed_places(pairs: DataFrame, publications: DataFrame) -> DataFrame:
    """Where missed publications were made: all of them, or a random sample of 20,000 for a run."""
    return query_sql(
        """
        WITH runs AS (
            -- Each task keeps a bounded number: nobody has to sort all misses of a run.
            SELECT run, min(published) AS origin, min_by(miss, by_chance, {most}) AS misses
            FROM (
                SELECT run, NULL AS published,
                       struct(publication, subscription, node, t) AS miss,
                       struct(xxhash64(publication, subscription), publication, subscription)
                           AS by_chance
                FROM {pairs}
                WHERE outcome = 'missed'
                UNION ALL
                SELECT run, t, NULL, NULL FROM {publications}
            )
            GROUP BY run
        ), kept AS (
            SELECT run, origin, inline(misses) FROM runs
        )
        SELECT run,
               publication,
               subscription,
               kept.node,
               kept.t,
               floor((kept.t - origin) / 1000000) AS second,
               x,
               y,
               z
        FROM kept JOIN {publications} USING (run, publication)
        """,
        pairs=pairs,
        publications=publications,
        most=MISSED_PLACES,
    )
