"""What an overlay looks like from outside: its links, paths and owners, second by second.

Notes tell what nodes know (linked, unlinked, level, owner, left, crashed), messages what they do.
A note holds until the next one on the same matter. Only seconds in which something happened are
told: in all others everything is as it was in the last one told. So a clock that jumps by years
costs nothing.
"""

from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from nearcast.pipeline.delivery import origins, with_second
from nearcast.pipeline.graphs import graphs

GONE = ("left", "crashed")


def moments(*timed: DataFrame) -> DataFrame:
    """The seconds of each run in which any of these tables has a row.

    They are numbered by `place`, from 1 to `places`.
    """
    run = Window.partitionBy("run")
    everything = run.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    return (
        reduce(DataFrame.unionAll, [rows.select("run", "second") for rows in timed])
        .groupBy("run", "second")
        .agg(f.count(f.lit(1)).alias("rows"))
        .select(
            "run",
            "second",
            f.row_number().over(run.orderBy("second")).alias("place"),
            f.count(f.lit(1)).over(everything).alias("places"),
        )
    )


def last_words(words: DataFrame, *keys: str) -> DataFrame:
    """What holds at the end of each second with words on a matter (its keys).

    Of words at the same microsecond the one of the highest `rank` comes last, then the greatest.
    """
    said = f.max(f.struct("t", "rank", "state"))["state"]
    return (
        words.groupBy("run", *keys, "second")
        .agg(said.alias("state"))
        .select("run", *keys, "second", "state")
    )


def in_force(words: DataFrame, told: DataFrame, *keys: str) -> DataFrame:
    """The state of every matter at the end of every second told; a null state is none.

    It has a row for each matter and second, which is what looking at every second means.
    """
    told = f.broadcast(told)
    in_order = Window.partitionBy("run", *keys).orderBy("place")
    until = f.coalesce(f.lead("place").over(in_order) - 1, f.col("places"))
    holds = f.col("state").isNotNull()
    return (
        last_words(words, *keys)
        .join(told, on=["run", "second"], how="inner")
        .withColumn("until", until)
        .filter(holds)
        .select(
            "run", *keys, "state",
            f.explode(f.sequence("place", "until")).alias("place"),
        )
        .join(told, on=["run", "place"], how="inner")
        .select("run", *keys, "second", "state")
    )  # fmt: skip


def overlay_by_second(notes: DataFrame, messages: DataFrame, publications: DataFrame) -> DataFrame:
    """The graph of the overlay at the end of each second, and its height."""
    begin = origins(publications, messages, notes)
    noted, sent = with_second(notes, begin), with_second(messages, begin)
    told = moments(noted, sent, with_second(publications, begin))
    links = noted_links(noted, told).unionAll(exchanges(noted, sent))
    return (
        told.join(graphs(links, "run", "second"), on=["run", "second"], how="left")
        .join(heights(noted, told), on=["run", "second"], how="left")
        .select(
            "run",
            "second",
            f.coalesce("links", f.lit(0)).cast("bigint").alias("links"),
            f.coalesce("nodes", f.lit(0)).cast("bigint").alias("nodes"),
            f.try_divide(2 * f.col("links"), f.col("nodes")).alias("degree_mean"),
            f.coalesce("degree_max", f.lit(0)).cast("bigint").alias("degree_max"),
            f.try_divide(3 * f.col("triangles"), f.col("triples")).alias("clustering"),
            f.coalesce("components", f.lit(0)).cast("bigint").alias("components"),
            "height",
        )
    )


def noted_links(noted: DataFrame, told: DataFrame) -> DataFrame:
    """Pairs of which at least one says that it is linked to the other, and both are there.

    Neighbourhoods need not be mutual, so each side's word counts for itself. Who has gone says
    nothing any more, and nothing said of it before counts.
    """
    between_two = f.col("about").isNotNull() & (f.col("about") != f.col("node"))
    linked = f.col("fact") == "linked"
    words = noted.filter(f.col("fact").isin("linked", "unlinked") & between_two).select(
        "run", "node", f.col("about").alias("other"), "t", "second",
        linked.cast("int").alias("rank"), f.when(linked, True).alias("state"),
    )  # fmt: skip
    gone = departures(noted).withColumnRenamed("node", "who")
    matters = words.groupBy("run", "node", "other").agg(f.count(f.lit(1)).alias("words"))
    ends = [
        matters.withColumn("who", f.col(end)).join(gone, on=["run", "who"], how="inner").select(
            "run", "node", "other", "t", "second", "rank", f.lit(None).cast("boolean"),
        )
        for end in ("node", "other")
    ]  # fmt: skip
    held = in_force(reduce(DataFrame.unionAll, [words, *ends]), told, "node", "other")
    return undirected(held, f.col("node"), f.col("other"))


def departures(noted: DataFrame) -> DataFrame:
    """When nodes left or crashed: the last word of its microsecond."""
    return noted.filter(f.col("fact").isin(*GONE)).select(
        "run", "node", "t", "second", f.lit(2).alias("rank")
    )


def exchanges(noted: DataFrame, sent: DataFrame) -> DataFrame:
    """Pairs of which one sent the other a message that second, in runs that note no links."""
    telling = noted.filter(f.col("fact") == "linked").groupBy("run").agg(f.count(f.lit(1)))
    received = ~f.col("lost") & (f.col("node") != f.col("to"))
    exchanged = sent.filter(received).join(f.broadcast(telling), on="run", how="left_anti")
    return undirected(exchanged, f.col("node"), f.col("to"))


def undirected(pairs: DataFrame, one: Column, other: Column) -> DataFrame:
    """Each link of each second once, whoever named it."""
    return (
        pairs.groupBy(
            "run",
            "second",
            f.least(one, other).alias("low"),
            f.greatest(one, other).alias("high"),
        )
        .agg(f.count(f.lit(1)).alias("times"))
        .select("run", "second", "low", "high")
    )


def heights(noted: DataFrame, told: DataFrame) -> DataFrame:
    """The highest level that any node which is still there has last told."""
    words = noted.filter((f.col("fact") == "level") & f.col("value").isNotNull()).select(
        "run", "node", "t", "second", f.lit(0).alias("rank"), f.col("value").alias("state")
    )
    gone = departures(noted).withColumn("state", f.lit(None).cast("double"))
    return (
        in_force(words.unionByName(gone), told, "node")
        .groupBy("run", "second")
        .agg(f.max("state").alias("height"))
        .select("run", "second", "height")
    )


def overlay_links(messages: DataFrame, publications: DataFrame) -> DataFrame:
    """How much each link was used: messages from `node` to `to`, lost ones too."""
    since_begin = (f.col("t") - f.col("origin")) / 1e6
    return (
        messages.join(f.broadcast(origins(publications, messages)), on="run", how="inner")
        .groupBy("run", "node", "to")
        .agg(
            f.sum("copies").alias("messages"),
            f.sum("bytes").alias("bytes"),
            f.min(since_begin).alias("first_s"),
            f.max(since_begin).alias("last_s"),
        )
        .select("run", "node", "to", "messages", "bytes", "first_s", "last_s")
    )


def overlay_paths(deliveries: DataFrame, publications: DataFrame, notes: DataFrame) -> DataFrame:
    """How many messages deliveries took, and how much longer than the direct way."""
    said = publications.select(
        "run", "publication", f.col("node").alias("publisher"), f.col("t").alias("published")
    )
    ways = direct_latencies(notes)
    took_ms = (f.col("t") - f.col("published")) / 1e3
    # Decimals add up to the same in any order, so the mean is the same on any cluster.
    stretch = (took_ms / f.col("direct_ms")).try_cast("decimal(28, 9)")
    return (
        deliveries.join(said, on=["run", "publication"], how="left")
        .withColumn("low", f.least("node", "publisher"))
        .withColumn("high", f.greatest("node", "publisher"))
        .join(ways, on=["run", "low", "high"], how="left")
        .groupBy("run", "hops")
        .agg(
            f.count(f.lit(1)).alias("deliveries"),
            f.avg(stretch).cast("double").alias("stretch_mean"),
        )
        .select("run", "hops", "deliveries", "stretch_mean")
    )


def direct_latencies(notes: DataFrame) -> DataFrame:
    """The last word of either end on the latency between the two."""
    usable = (
        (f.col("fact") == "latency")
        & f.col("about").isNotNull()
        & (f.col("about") != f.col("node"))
        & (f.col("value") > 0)
    )
    return (
        notes.filter(usable)
        .groupBy(
            "run",
            f.least("node", "about").alias("low"),
            f.greatest("node", "about").alias("high"),
        )
        .agg(f.max(f.struct("t", "value"))["value"].alias("direct_ms"))
        .select("run", "low", "high", "direct_ms")
    )


def ownership(
    notes: DataFrame, interests: DataFrame, messages: DataFrame, publications: DataFrame
) -> DataFrame:
    """Who owns how many subscriptions at the end of each second.

    A subscription is owned by the last to note so, until it ends. `changes` counts the notes of
    that second by which this owner took a subscription over from another.
    """
    begin = origins(publications, messages, notes)
    noted, ended = with_second(notes, begin), with_second(interests.filter("ended"), begin)
    told = moments(noted, ended, with_second(messages, begin), with_second(publications, begin))
    claimed = (f.col("fact") == "owner") & f.col("about").isNotNull()
    claims = noted.filter(claimed).select(
        "run", f.col("about").alias("subscription"), "t", "second",
        f.lit(0).alias("rank"), f.col("node").alias("state"),
    )  # fmt: skip
    ends = ended.select(
        "run", "subscription", "t", "second",
        f.lit(1).alias("rank"), f.lit(None).cast("bigint").alias("state"),
    )  # fmt: skip
    words = claims.unionByName(ends)
    owners = claims.groupBy("run", f.col("state").alias("owner")).agg(
        f.min("second").alias("since")
    )
    so_far = (
        Window.partitionBy("run", "owner")
        .orderBy("second")
        .rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    of_note = (f.col("subscriptions") > 0) | (f.col("changes") > 0)
    return (
        told.join(owners, on="run", how="inner")
        .filter(f.col("second") >= f.col("since"))
        .join(gains(words), on=["run", "owner", "second"], how="left")
        .join(take_overs(words), on=["run", "owner", "second"], how="left")
        .withColumn("subscriptions", f.sum(f.coalesce("gained", f.lit(0))).over(so_far))
        .withColumn("changes", f.coalesce("changes", f.lit(0)))
        .filter(of_note)
        .select("run", "second", "owner", "subscriptions", "changes")
    )


def gains(words: DataFrame) -> DataFrame:
    """How many subscriptions more each owner has at the end of a second than before it."""
    in_order = Window.partitionBy("run", "subscription").orderBy("second")
    held = last_words(words, "subscription").withColumn("before", f.lag("state").over(in_order))
    sides = [
        held.select("run", "second", f.col(side).alias("owner"), f.lit(count).alias("gained"))
        for side, count in (("state", 1), ("before", -1))
    ]
    return (
        reduce(DataFrame.unionAll, sides)
        .filter(f.col("owner").isNotNull())
        .groupBy("run", "owner", "second")
        .agg(f.sum("gained").alias("gained"))
        .select("run", "owner", "second", "gained")
    )


def take_overs(words: DataFrame) -> DataFrame:
    """How many subscriptions each owner took from another in a second."""
    in_order = Window.partitionBy("run", "subscription").orderBy("t", "rank", "state")
    from_another = f.col("before") != f.col("state")  # null if either is nobody
    return (
        words.withColumn("before", f.lag("state").over(in_order))
        .filter(from_another)
        .groupBy("run", f.col("state").alias("owner"), "second")
        .agg(f.count(f.lit(1)).alias("changes"))
        .select("run", "owner", "second", "changes")
    )
