"""How well publications were delivered: what came, what did not, how late and in what order.

`pairs` judges every (run, publication, subscription) once, against the exact truth; all tables here
are small aggregations of it. Latencies and hops are those of the first delivery of a correct pair:
what nobody should have heard has no delay worth knowing. Sums are taken over integers, or over
doubles in a fixed order, so that counting twice gives the same bytes.
"""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

MISSED_PLACES = 20_000  # what a map can show, and a report can carry
SHARDS = 64

PAIR = ["run", "publication", "subscription"]


def pairs(
    expected: DataFrame, publications: DataFrame, interests: DataFrame, deliveries: DataFrame
) -> DataFrame:
    """Each pair that should have been heard or was: correct, missed or spurious.

    A delivery of a publication that the trace does not have is spurious, without publisher, channel
    and t. Of two first deliveries at one instant, the one with fewer hops counts.
    """
    heard = deliveries.groupBy(*PAIR).agg(
        f.min(f.struct("t", "hops", "node")).alias("first"), f.count(f.lit(1)).alias("rows")
    )
    published = publications.select(
        "run", "publication", "t", "channel", f.col("node").alias("publisher")
    )
    subscribers = interests.groupBy("run", "subscription").agg(f.min("node").alias("subscriber"))
    was_due, was_heard = f.col("due").isNotNull(), f.col("rows").isNotNull()
    outcome = f.when(was_due & was_heard, "correct").when(was_due, "missed").otherwise("spurious")
    return (
        expected.withColumn("due", f.lit(True))
        .join(heard, on=PAIR, how="full")
        .join(published, on=["run", "publication"], how="left")
        .join(subscribers, on=["run", "subscription"], how="left")
        .select(
            *PAIR,
            "publisher",
            f.coalesce("subscriber", "first.node").alias("node"),
            "channel",
            "t",
            outcome.alias("outcome"),
            f.col("first.t").alias("first"),
            ((f.col("first.t") - f.col("t")) / 1000).alias("latency_ms"),
            f.col("first.hops").alias("hops"),
            f.coalesce(f.col("rows") - 1, f.lit(0)).alias("duplicates"),
        )
    )


# What the tables share.


def origins(*tables: DataFrame) -> DataFrame:
    """Where each run's seconds begin: with the first row of its first table that has any."""
    firsts = [
        table.groupBy("run").agg(f.struct(f.lit(rank), f.min("t").alias("t")).alias("first"))
        for rank, table in enumerate(tables)
    ]
    together = firsts[0]
    for more in firsts[1:]:
        together = together.unionByName(more)
    return together.groupBy("run").agg(f.min("first").getField("t").alias("origin"))


def with_second(rows: DataFrame, origin: DataFrame) -> DataFrame:
    """The rows with the whole `second` of their run at which `t` lies."""
    since = f.col("t") - f.col("origin")
    return (
        rows.join(f.broadcast(origin), on="run", how="left")
        .withColumn("second", f.floor(since / 1_000_000))
        .drop("origin")
    )


def percentiles(values: DataFrame, by: Sequence[str], value: str) -> DataFrame:
    """(*by, percent 0 … 100, value, mean) for each group that has values: exact, not estimated.

    Percent p lies at place p/100 · (n − 1) of the sorted values, between two of them in proportion,
    as numpy has it. Equal values are counted first and then sorted, on disk if need be: a group of
    any size has room, which `percentile` with its table in memory could not promise.
    """
    in_order = Window.partitionBy(*by).orderBy(value)
    up_to_here = in_order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    all_in_order = in_order.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    here, times, places, last = f.col(value), f.col("times"), f.col("places"), f.col("last")
    placed = (
        values.where(here.isNotNull())
        .groupBy(*by, value)
        .agg(f.count(f.lit(1)).alias("times"))
        .withColumn("places", f.sum("times").over(up_to_here))
        .withColumn("last", f.sum("times").over(all_in_order) - 1)
        .withColumn("mean", f.sum(here * times).over(all_in_order) / (last + 1))
        .withColumn("following", f.lead(value).over(in_order))
        # This value answers for the percents from the one after its predecessor's last.
        .withColumn("end", f.when(places > last, 101).otherwise(f.ceil(100 * places / last)))
        .withColumn("begin", f.lag("end", 1, 0).over(in_order))
    )
    place = f.col("percent") * last / 100
    within = f.floor(place)
    between = (place > within) & (within + 1 == places)
    rest = f.when(between, (place - within) * (f.col("following") - here)).otherwise(0)
    return (
        placed.where(f.col("begin") < f.col("end"))
        .withColumn("percent", f.explode(f.sequence("begin", f.col("end") - 1)))
        .select(*by, "percent", (here + rest).alias(value), "mean")
    )


def chosen(
    quantiles: DataFrame, by: Sequence[str], value: str, percents: dict[str, int]
) -> DataFrame:
    """Of `percentiles`, a row for each group: its mean, and some percents as columns so named."""
    percent = f.col("percent")
    return (
        quantiles.where(percent.isin(*percents.values()))
        .groupBy(*by)
        .agg(
            f.max("mean").alias("mean"),
            *(f.max(f.when(percent == p, f.col(value))).alias(n) for n, p in percents.items()),
        )
    )


def ratio(part: str, *wholes: str) -> Column:
    """Part over the sum of the wholes; null where there is no whole."""
    whole = f.col(wholes[0])
    for more in wholes[1:]:
        whole = whole + f.col(more)
    return f.try_divide(f.col(part), whole)


COUNTS = ["expected", "correct", "missed", "spurious", "duplicates"]


def _counts() -> list[Column]:
    outcome = f.col("outcome")
    return [
        f.count_if(outcome != "spurious").alias("expected"),
        f.count_if(outcome == "correct").alias("correct"),
        f.count_if(outcome == "missed").alias("missed"),
        f.count_if(outcome == "spurious").alias("spurious"),
        f.sum("duplicates").alias("duplicates"),
    ]


def _latency() -> Column:
    """In microseconds, where a pair is correct: integers add up alike in any order."""
    return f.when(f.col("outcome") == "correct", f.col("first") - f.col("t"))


def _mean_latency_ms() -> Column:
    return f.try_divide(f.sum(_latency()), 1000 * f.count(_latency()))


def _latency_percents(rows: DataFrame, by: Sequence[str], percents: dict[str, int]) -> DataFrame:
    milliseconds = rows.select(*by, (_latency() / 1000).alias("latency_ms"))
    return chosen(percentiles(milliseconds, by, "latency_ms"), by, "latency_ms", percents)


def _by(pairs: DataFrame, publications: DataFrame, key: str) -> DataFrame:
    """Counts of pairs beside the number of publications. A key may be null: nothing is lost."""
    published = publications.groupBy("run", key).agg(f.count(f.lit(1)).alias("publications"))
    judged = pairs.groupBy("run", key).agg(*_counts())
    return (
        published.unionByName(judged, allowMissingColumns=True)
        .groupBy("run", key)
        .agg(*(f.coalesce(f.sum(c), f.lit(0)).alias(c) for c in ("publications", *COUNTS)))
    )


# The tables.


def delivery_totals(pairs: DataFrame, publications: DataFrame, notes: DataFrame) -> DataFrame:
    """One row for each run that published, heard or noted anything.

    `order_violations` counts publications that a subscription first got after a later one of the
    same publisher; what arrives in the same microsecond is in order.
    """
    correct = f.col("outcome") == "correct"
    counted = pairs.groupBy("run").agg(
        *_counts(),
        f.count("first").alias("heard"),
        _mean_latency_ms().alias("latency_mean_ms"),
        (f.max(_latency()) / 1000).alias("latency_max_ms"),
        f.try_divide(f.sum(f.when(correct, f.col("hops"))), f.count_if(correct)).alias("hops_mean"),
    )
    percents = {"latency_p50_ms": 50, "latency_p90_ms": 90, "latency_p99_ms": 99}
    published = publications.groupBy("run").agg(f.count(f.lit(1)).alias("publications"))
    noted = notes.groupBy("run").agg(f.count_if(f.col("fact") == "withheld").alias("withheld"))
    return (
        published.join(noted, on="run", how="full")
        .join(counted, on="run", how="full")
        .join(_order_violations(pairs), on="run", how="left")
        .join(_latency_percents(pairs, ["run"], percents), on="run", how="left")
        .fillna(0, subset=[*COUNTS, "heard", "order_violations", "withheld"])
        .select(
            "run",
            "expected",
            (f.col("heard") + f.col("duplicates")).alias("delivered"),
            "correct",
            "missed",
            "spurious",
            "duplicates",
            ratio("correct", "correct", "spurious").alias("precision"),
            ratio("correct", "expected").alias("recall"),
            "latency_mean_ms",
            *percents,
            "latency_max_ms",
            "hops_mean",
            "order_violations",
            "withheld",
        )
    )


def _order_violations(pairs: DataFrame) -> DataFrame:
    earlier = (
        Window.partitionBy("run", "subscription", "publisher")
        .orderBy("first")
        .rangeBetween(Window.unboundedPreceding, -1)
    )
    overtaken = f.max("t").over(earlier) > f.col("t")
    return (
        pairs.where(f.col("first").isNotNull() & f.col("t").isNotNull())
        .withColumn("overtaken", overtaken)
        .groupBy("run")
        .agg(f.count_if("overtaken").alias("order_violations"))
    )


def delivery_by_second(pairs: DataFrame, publications: DataFrame) -> DataFrame:
    """By the second of the publication; null for publications that the trace does not have."""
    origin = origins(publications)
    judged = with_second(pairs, origin)
    percents = {"latency_p50_ms": 50, "latency_p99_ms": 99}
    late = _latency_percents(judged, ["run", "second"], percents)
    return (
        _by(judged, with_second(publications, origin), "second")
        .join(late, on=["run", "second"], how="left")
        .select(
            "run",
            "second",
            "publications",
            *COUNTS,
            ratio("correct", "expected").alias("recall"),
            ratio("correct", "correct", "spurious").alias("precision"),
            *percents,
        )
    )


def delivery_by_node(pairs: DataFrame) -> DataFrame:
    """By subscriber, for those that should have heard or did hear anything."""
    return (
        pairs.groupBy("run", "node")
        .agg(*_counts(), _mean_latency_ms().alias("latency_mean_ms"))
        .select("run", "node", *COUNTS, "latency_mean_ms")
    )


def delivery_by_channel(pairs: DataFrame, publications: DataFrame) -> DataFrame:
    """By the publication's channel; null for publications that the trace does not have."""
    late = _latency_percents(pairs, ["run", "channel"], {"latency_p50_ms": 50})
    return (
        _by(pairs, publications, "channel")
        .join(late, on=["run", "channel"], how="left")
        .select("run", "channel", "publications", *COUNTS, "latency_p50_ms")
    )


def latency_quantiles(pairs: DataFrame) -> DataFrame:
    """The distributions of latency and of hops, each by itself, for runs with a correct pair."""
    heard = pairs.where(f.col("outcome") == "correct")
    late = percentiles(heard, ["run"], "latency_ms").drop("mean")
    far = percentiles(heard, ["run"], "hops").drop("mean")
    return late.join(far, on=["run", "percent"], how="inner").select(
        "run", (f.col("percent") / 100).alias("quantile"), "latency_ms", "hops"
    )


def popularity(pairs: DataFrame, publications: DataFrame) -> DataFrame:
    """How long a publication took to reach everyone, by how many that was.

    One that nobody should hear is complete at once and has no time.
    """
    due = pairs.where(f.col("outcome") != "spurious").select(
        "run", "publication", f.lit(1).alias("due"), _latency().alias("late")
    )
    fates = (
        publications.select("run", "publication", f.lit(0).alias("due"))
        .unionByName(due, allowMissingColumns=True)
        .groupBy("run", "publication")
        .agg(f.sum("due").alias("interested"), f.count("late").alias("reached"), f.max("late"))
        .withColumn("complete", f.col("reached") == f.col("interested"))
        .withColumn("total_ms", f.when(f.col("complete"), f.col("max(late)") / 1000))
    )
    group = ["run", "interested"]
    times = chosen(
        percentiles(fates, group, "total_ms"), group, "total_ms", {"total_time_p90_ms": 90}
    )
    return (
        fates.groupBy(*group)
        .agg(f.count(f.lit(1)).alias("publications"), f.count_if("complete").alias("complete"))
        .join(times, on=group, how="left")
        .select(
            *group,
            "publications",
            "complete",
            f.col("mean").alias("total_time_mean_ms"),
            "total_time_p90_ms",
        )
    )


def false_positives_by_level(messages: DataFrame, pairs: DataFrame, notes: DataFrame) -> DataFrame:
    """How much of what an overlay carried to a node the node did not want, by the node's level.

    A level counts the nodes that a message with a publication reached; the spread is over them
    (of all, not of a sample). Where sums were recorded, no message tells what it carried.
    """
    reached = f.col("publication").isNotNull() & ~f.col("lost")
    carried = messages.where(reached).select(
        "run", "publication", f.col("to").alias("node"), f.col("copies").alias("carried")
    )
    wanted = pairs.where(f.col("outcome") != "spurious").select(
        "run", "publication", "node", f.lit(True).alias("wanted")
    )
    by_node = (
        carried.unionByName(wanted, allowMissingColumns=True)
        .groupBy("run", "publication", "node")
        .agg(f.sum("carried").alias("carried"), f.count("wanted").alias("wanted"))
        .where(f.col("carried") > 0)
        .withColumn("unwanted", f.when(f.col("wanted") == 0, f.col("carried")).otherwise(0))
        .groupBy("run", "node")
        .agg(f.sum("carried").alias("carried"), f.sum("unwanted").alias("unwanted"))
        .withColumn("rate", ratio("unwanted", "carried"))
    )
    levels = (
        notes.where(f.col("fact") == "level")
        .groupBy("run", "node")
        .agg(f.max(f.struct("t", "value")).getField("value").alias("level"))
    )
    in_order = (
        Window.partitionBy("run", "level")
        .orderBy("rate")
        .rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    )
    return (
        by_node.join(levels, on=["run", "node"], how="left")
        .withColumn("rate_mean", f.avg("rate").over(in_order))
        .withColumn("rate_std", f.stddev_pop("rate").over(in_order))
        .groupBy("run", "level")
        .agg(
            f.count(f.lit(1)).alias("nodes"),
            f.sum("carried").alias("carried"),
            f.sum("unwanted").alias("unwanted"),
            f.max("rate_mean").alias("rate_mean"),
            f.max("rate_std").alias("rate_std"),
        )
        .select("run", "level", "nodes", "carried", "unwanted", "rate_mean", "rate_std")
    )


def missed_places(pairs: DataFrame, publications: DataFrame) -> DataFrame:
    """Where misses happened: all of them, or those 20,000 of a run whose hashes are lowest."""
    by_chance = [f.xxhash64("publication", "subscription"), *map(f.col, PAIR[1:])]

    def lowest(*group: str) -> Column:
        ordered = Window.partitionBy(*group).orderBy(*by_chance)
        return f.row_number().over(
            ordered.rowsBetween(Window.unboundedPreceding, Window.currentRow)
        )

    # First within each shard, so that no one task has to sort all that a run has missed.
    kept = (
        pairs.where(f.col("outcome") == "missed")
        .select(*PAIR, "node", "t", f.pmod("publication", f.lit(SHARDS)).alias("shard"))
        .withColumn("place", lowest("run", "shard"))
        .where(f.col("place") <= MISSED_PLACES)
        .withColumn("place", lowest("run"))
        .where(f.col("place") <= MISSED_PLACES)
    )
    places = publications.select("run", "publication", "x", "y", "z")
    return kept.join(places, on=["run", "publication"], how="inner").select(
        *PAIR, "node", "t", "x", "y", "z"
    )
