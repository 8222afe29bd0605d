"""What an overlay looks like from outside: its links, paths and owners, second by second.

Notes tell what nodes know (linked, unlinked, level, owner, left, crashed), messages what they do.
Only seconds in which something happened are told: in all others everything is as it was in the last
one told. So a clock that jumps by years costs nothing.
"""

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from nearcast.pipeline.delivery import origins, with_second
from nearcast.pipeline.graphs import MEASURES, measure
from nearcast.pipeline.replays import GRAPH, OWNED, replay_links, replay_owners


def overlay_by_second(notes: DataFrame, messages: DataFrame, publications: DataFrame) -> DataFrame:
    """The graph of the overlay at the end of each second, and its height.

    In runs that note no links, two are linked in a second if a message went from one to the other.
    """
    run = Window.partitionBy("run")
    so_far = run.orderBy("second").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    ever = run.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    told = f.struct(*MEASURES, "height")
    noted, exchanged = f.when(f.col("noted"), told), f.when(~f.col("noted"), told)
    notes_links = f.max(f.col("state.links").isNotNull()).over(ever)

    def graph(name: str) -> Column:
        chosen = f.when(f.col("notes_links"), f.col(f"state.{name}"))
        return f.coalesce(chosen.otherwise(f.col(f"exchange.{name}")), f.lit(0))

    return (
        graphs_told(last_words(notes, messages, publications))
        .groupBy("run", "second")
        .agg(f.max(noted).alias("state"), f.max(exchanged).alias("exchange"))
        .withColumn("notes_links", notes_links)
        .withColumn("state", f.last("state", ignorenulls=True).over(so_far))
        .select(
            "run",
            "second",
            graph("links").alias("links"),
            graph("nodes").alias("nodes"),
            f.try_divide(2 * graph("links"), graph("nodes")).alias("degree_mean"),
            graph("degree_max").alias("degree_max"),
            f.try_divide(3 * graph("triangles"), graph("triples")).alias("clustering"),
            graph("components").alias("components"),
            "state.height",
        )
    )


def last_words(notes: DataFrame, messages: DataFrame, publications: DataFrame) -> DataFrame:
    """Of every second the last word on each matter, and at least one row.

    Matters are what a node notes of a link, of its level and of its going; and, without a fact,
    that a message went from one of two to the other. What tells of neither has no nodes.
    """
    fact, node, about, to = (f.col(name) for name in ("fact", "node", "about", "to"))
    of_link = fact.isin("linked", "unlinked") & (about != node)
    of_node = ((fact == "level") & f.col("value").isNotNull()) | fact.isin("left", "crashed")
    received = ~f.col("lost") & (node != to)
    words = notes.select(
        "run",
        "t",
        f.when(of_link | of_node, fact).alias("fact"),
        f.when(of_link | of_node, node).alias("node"),
        f.when(of_link, about).alias("other"),
        "value",
    )
    sent = messages.select(
        "run",
        "t",
        f.when(received, f.least(node, to)).alias("node"),
        f.when(received, f.greatest(node, to)).alias("other"),
    )
    rows = words.unionByName(sent, allowMissingColumns=True).unionByName(
        publications.select("run", "t"), allowMissingColumns=True
    )
    return (
        with_second(rows, origins(publications, messages, notes))
        .groupBy("run", "second", "fact", "node", "other")
        .agg(f.max(f.struct("t", "value")).alias("last"))
        .select("run", "second", "fact", "node", "other", "last.t", "last.value")
    )


def graphs_told(words: DataFrame) -> DataFrame:
    """The graphs that notes tell, wherever they change, and those that messages draw, by second.

    Links noted hold on, so all notes of a run are one group; messages of each second are their own.
    Either fits one worker.
    """

    def told(group: pa.Table) -> pa.Table:
        noted = not group["part"][0].is_valid
        graphs = replay_links(group) if noted else exchange(group)
        return named(group, graphs.append_column("noted", pa.repeat(noted, len(graphs))))

    return (
        words.withColumn("part", f.when(f.col("fact").isNull(), f.col("second")))
        .groupBy("run", "part")
        .applyInArrow(told, f"{ddl(GRAPH)}, noted boolean")
    )


def exchange(words: pa.Table) -> pa.Table:
    """The graph of one second's messages."""
    pairs = words.filter(words["node"].is_valid())
    graph = measure(pairs["node"].to_numpy(), pairs["other"].to_numpy())
    return pa.Table.from_pylist([{"second": words["second"][0].as_py(), **graph}], GRAPH)


def named(group: pa.Table, rows: pa.Table) -> pa.Table:
    """What is told of a group, with its run."""
    return rows.add_column(0, "run", pa.repeat(group["run"][0], len(rows)))


def ddl(schema: pa.Schema) -> str:
    """These columns after the run, as Spark wants to be told them."""
    kinds = {pa.int64(): "bigint", pa.float64(): "double"}
    return ", ".join(["run string", *(f"{field.name} {kinds[field.type]}" for field in schema)])


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
    """Who owns how many subscriptions at the end of each second in which any of that may change.

    A subscription is owned by the last to note so, until it ends. `changes` counts how often this
    owner took one over from another in that second.
    """

    def replayed(group: pa.Table) -> pa.Table:
        return named(group, replay_owners(group))

    claimed = (f.col("fact") == "owner") & f.col("about").isNotNull()
    claims = notes.filter(claimed).select(
        "run", "t", f.col("about").alias("subscription"), f.col("node").alias("owner")
    )
    ends = interests.filter("ended").select(
        "run", "t", "subscription", f.lit(None).cast("bigint").alias("owner")
    )
    return (
        with_second(claims.unionAll(ends), origins(publications, messages, notes, interests))
        .groupBy("run")
        .applyInArrow(replayed, ddl(OWNED))
        .select("run", "second", "owner", "subscriptions", "changes")
    )
