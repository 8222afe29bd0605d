"""Direct messages, judged: each is to be delivered once, to the entities that it is for."""

from pyspark.sql import DataFrame

from nearcast.pipeline.spark.sql import query_sql


def direct_totals(
    direct_messages: DataFrame, direct_deliveries: DataFrame, notes: DataFrame
) -> DataFrame:
    """What was expected, delivered, missed and withheld (for a slow client); `spurious` is what
    somebody else was given, or was given again; and how long it took."""
    return query_sql(
        """
        WITH due AS (
            SELECT run, publication, `to` AS entity, min(t) AS sent
            FROM {messages} GROUP BY run, publication, `to`
        ), got AS (
            SELECT run, publication, node AS entity, min(t) AS heard, count(*) AS times
            FROM {deliveries} GROUP BY run, publication, node
        ), kept AS (
            SELECT DISTINCT run, about AS publication, node AS entity, true AS withheld
            FROM {notes} WHERE fact = 'withheld'
        )
        SELECT run,
               count(sent)                                              AS expected,
               count_if(sent IS NOT NULL AND heard IS NOT NULL)         AS delivered,
               count_if(heard IS NULL AND withheld IS NULL)             AS missed,
               count_if(heard IS NULL AND withheld)                     AS withheld,
               count_if(sent IS NULL) + coalesce(sum(times - 1), 0)     AS spurious,
               percentile(heard - sent, 0.5) / 1000                     AS delay_p50_ms,
               percentile(heard - sent, 0.99) / 1000                    AS delay_p99_ms
        FROM due FULL OUTER JOIN got USING (run, publication, entity)
             LEFT JOIN kept USING (run, publication, entity)
        GROUP BY run
        """,
        messages=direct_messages,
        deliveries=direct_deliveries,
        notes=notes,
    )
