"""How well publications were delivered: what came, what did not, how late and in what order.

`pairs` judges every (run, publication, subscription) once, against the exact truth; all tables here
are small aggregations of it. Latencies and hops are those of the first delivery of a correct pair:
what nobody should have heard has no delay worth knowing. Sums are taken over integers, or over
doubles in a fixed order, so that counting twice gives the same bytes.
"""

from collections.abc import Sequence
from functools import partial, reduce

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
    and t. Of two first deliveries at one instant, the one with fewer hops counts. A pair is
    overtaken if a later publication of the same publisher came first to the same subscription; what
    comes in the same microsecond is in order.
    """
    due = expected.select(*PAIR, f.lit(True).alias("due"))
    heard = deliveries.select(*PAIR, f.struct("t", "hops", "node").alias("delivery"))
    published = publications.select(
        "run", "publication", "t", "channel", f.col("node").alias("publisher")
    )
    subscribers = interests.groupBy("run", "subscription").agg(f.min("node").alias("subscriber"))
    was_due, was_heard = f.col("due").isNotNull(), f.col("rows") > 0
    outcome = f.when(was_due & was_heard, "correct").when(was_due, "missed").otherwise("spurious")
    before = (
        Window.partitionBy("run", "subscription", "publisher")
        .orderBy("first", "t")
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    overtaken = f.max(f.when(f.col("first").isNotNull(), f.col("t"))).over(before) > f.col("t")
    return (
        due.unionByName(heard, allowMissingColumns=True)
        .repartition("run", "publication")  # as the next two steps both like it
        .groupBy(*PAIR)
        .agg(
            f.bool_or("due").alias("due"),
            f.min("delivery").alias("first"),
            f.count("delivery").alias("rows"),
        )
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
            f.greatest(f.col("rows") - 1, f.lit(0)).alias("duplicates"),
        )
        .withColumn("overtaken", f.coalesce(overtaken, f.lit(False)))
    )


# What the tables share.


def origins(*tables: DataFrame) -> DataFrame:
    """Where each run's seconds begin: with the first row of its first table that has any."""
    firsts = [
        table.groupBy("run").agg(f.struct(f.lit(rank), f.min("t").alias("t")).alias("first"))
        for rank, table in enumerate(tables)
    ]
    together = reduce(DataFrame.unionByName, firsts)
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
    as numpy has it. Equal values are counted, then sorted, on disk if need be: a group may be of
    any size, which `percentile` with its table in memory could not promise.
    """
    in_order = Window.partitionBy(*by).orderBy(value)
    up_to_here = in_order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    all_in_order = in_order.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    here, next_place, last = f.col(value), f.col("next_place"), f.col("last")
    total = f.sum("times").over(all_in_order)
    place = f.col("percent") * last / 100
    rest = f.greatest(place - (next_place - 1), f.lit(0)) * (f.col("following") - here)
    return (
        values.where(here.isNotNull())
        .groupBy(*by, value)
        .agg(f.count(f.lit(1)).alias("times"))
        .select(
            *by,
            value,
            f.lead(value).over(in_order).alias("following"),
            f.sum("times").over(up_to_here).alias("next_place"),
            (total - 1).alias("last"),
            (f.sum(here * f.col("times")).over(all_in_order) / total).alias("mean"),
        )
        # A value answers for all percents that lie before the place of the following one.
        .withColumn(
            "end", f.when(next_place > last, 101).otherwise(f.ceil(100 * next_place / last))
        )
        .withColumn("begin", f.lag("end", 1, 0).over(in_order))
        .where(f.col("begin") < f.col("end"))
        .withColumn("percent", f.explode(f.sequence("begin", f.col("end") - 1)))
        .select(*by, "percent", (here + f.coalesce(rest, f.lit(0))).alias(value), "mean")
    )


def ratio(part: str, *wholes: str) -> Column:
    """Part over the sum of the wholes; null where there is no whole."""
    return f.try_divide(f.col(part), reduce(Column.__add__, map(f.col, wholes)))


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


COUNTS = ["expected", "correct", "missed", "spurious", "duplicates"]


def _counted(pairs: DataFrame, by: Sequence[str], *beside: DataFrame) -> DataFrame:
    """Counts and mean latency of pairs, beside the sums of all other columns of other tables.

    A key may be null, so that sums over groups are those of the run.
    """
    outcome = f.col("outcome")
    correct = outcome == "correct"
    late = f.when(correct, f.col("first") - f.col("t"))
    rows = reduce(partial(DataFrame.unionByName, allowMissingColumns=True), beside, pairs)
    more = [name for table in beside for name in table.columns if name not in by]
    return rows.groupBy(*by).agg(
        f.count_if(outcome != "spurious").alias("expected"),
        f.count_if(correct).alias("correct"),
        f.count_if(outcome == "missed").alias("missed"),
        f.count_if(outcome == "spurious").alias("spurious"),
        f.coalesce(f.sum("duplicates"), f.lit(0)).alias("duplicates"),
        f.count("first").alias("heard"),
        f.count_if("overtaken").alias("order_violations"),
        f.try_divide(f.sum(late), 1000 * f.count(late)).alias("latency_mean_ms"),
        (f.max(late) / 1000).alias("latency_max_ms"),
        f.try_divide(f.sum(f.when(correct, f.col("hops"))), f.count_if(correct)).alias("hops_mean"),
        *(f.coalesce(f.sum(name), f.lit(0)).alias(name) for name in more),
    )


def _with_ratios(counted: DataFrame, pairs: DataFrame, by: Sequence[str]) -> DataFrame:
    """The counts with precision, recall and the latency's percents."""
    percents = {"latency_p50_ms": 50, "latency_p90_ms": 90, "latency_p99_ms": 99}
    latencies = percentiles(pairs.where(f.col("outcome") == "correct"), by, "latency_ms")
    return (
        counted.join(chosen(latencies, by, "latency_ms", percents), on=list(by), how="left")
        .withColumn("precision", ratio("correct", "correct", "spurious"))
        .withColumn("recall", ratio("correct", "expected"))
    )


# The tables.


def delivery_totals(pairs: DataFrame, publications: DataFrame, notes: DataFrame) -> DataFrame:
    """One row for each run that published, heard or noted anything."""
    withheld = f.when(f.col("fact") == "withheld", 1).alias("withheld")
    published = publications.select("run", f.lit(1).alias("publications"))
    counted = _counted(pairs, ["run"], published, notes.select("run", withheld))
    return _with_ratios(counted, pairs, ["run"]).select(
        "run",
        "expected",
        (f.col("heard") + f.col("duplicates")).alias("delivered"),
        "correct",
        "missed",
        "spurious",
        "duplicates",
        "precision",
        "recall",
        "latency_mean_ms",
        "latency_p50_ms",
        "latency_p90_ms",
        "latency_p99_ms",
        "latency_max_ms",
        "hops_mean",
        "order_violations",
        "withheld",
    )


def delivery_by_second(pairs: DataFrame, publications: DataFrame) -> DataFrame:
    """By the second of the publication; null for publications that the trace does not have."""
    origin = origins(publications)
    by = ["run", "second"]
    published = with_second(publications, origin).select(*by, f.lit(1).alias("publications"))
    judged = with_second(pairs, origin)
    return _with_ratios(_counted(judged, by, published), judged, by).select(
        *by, "publications", *COUNTS, "recall", "precision", "latency_p50_ms", "latency_p99_ms"
    )


def delivery_by_node(pairs: DataFrame) -> DataFrame:
    """By subscriber, for those that should have heard or did hear anything."""
    by = ["run", "node"]
    return _counted(pairs, by).select(*by, *COUNTS, "latency_mean_ms")


def delivery_by_channel(pairs: DataFrame, publications: DataFrame) -> DataFrame:
    """By the publication's channel; null for publications that the trace does not have."""
    by = ["run", "channel"]
    published = publications.select(*by, f.lit(1).alias("publications"))
    counted = _counted(pairs, by, published)
    return _with_ratios(counted, pairs, by).select(*by, "publications", *COUNTS, "latency_p50_ms")


def latency_quantiles(pairs: DataFrame) -> DataFrame:
    """The distributions of latency and of hops, each by itself, for runs with a correct pair."""
    measures = ("latency_ms", "hops")
    late, far = (
        f.struct(f.lit(name).alias("measure"), f.col(name).cast("double").alias("value"))
        for name in measures
    )
    values = (
        pairs.where(f.col("outcome") == "correct")
        .select("run", f.explode(f.array(late, far)).alias("one"))
        .select("run", "one.*")
    )
    return (
        percentiles(values, ["run", "measure"], "value")
        .groupBy("run", "percent")
        .agg(*(f.max(f.when(f.col("measure") == m, f.col("value"))).alias(m) for m in measures))
        .select("run", (f.col("percent") / 100).alias("quantile"), *measures)
    )


def popularity(pairs: DataFrame, publications: DataFrame) -> DataFrame:
    """How long a publication took to reach everyone, by how many that was.

    One that nobody should hear is complete at once and has no time.
    """
    due = pairs.where(f.col("outcome") != "spurious").select(
        "run", "publication", f.lit(1).alias("due"), "latency_ms"
    )
    fates = (
        publications.select("run", "publication", f.lit(0).alias("due"))
        .unionByName(due, allowMissingColumns=True)
        .groupBy("run", "publication")
        .agg(
            f.sum("due").alias("interested"),
            (f.count("latency_ms") == f.sum("due")).alias("complete"),
            f.max("latency_ms").alias("last_ms"),
        )
        .withColumn("total_ms", f.when(f.col("complete"), f.col("last_ms")))
    )
    by = ["run", "interested"]
    times = chosen(percentiles(fates, by, "total_ms"), by, "total_ms", {"total_time_p90_ms": 90})
    return (
        fates.groupBy(*by)
        .agg(f.count(f.lit(1)).alias("publications"), f.count_if("complete").alias("complete"))
        .join(times, on=by, how="left")
        .select(
            *by,
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
        .withColumns(
            {
                "rate_mean": f.avg("rate").over(in_order),
                "rate_std": f.stddev_pop("rate").over(in_order),
            }
        )
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
