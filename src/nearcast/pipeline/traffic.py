"""What the overlay sent: messages and bytes by kind, second and node, and how fairly shared.

A row of `messages` stands for `copies` messages of `bytes` bytes in all. A lost message was sent
and never received. A message is received in the second of its arrival, or, where the trace does not
know it, of its sending. Messages that carry no publication are called subscription traffic; where
sums were recorded, that is all of it, for a sum does not say what it carried.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from nearcast.pipeline.delivery import origins, percentiles, ratio, with_second


def _ends(messages: DataFrame) -> DataFrame:
    """Each message twice: as its sender's, and, unless lost, as its receiver's."""
    sent = f.struct(f.lit("sent").alias("direction"), "node", f.col("to").alias("other"), "t")
    received = f.struct(
        f.lit("received").alias("direction"),
        f.col("to").alias("node"),
        f.col("node").alias("other"),
        f.coalesce("arrived", "t").alias("t"),
    )
    ends = f.when(f.col("lost"), f.array(sent)).otherwise(f.array(sent, received))
    carries = f.col("publication").isNotNull()
    return messages.select(
        "run", "bytes", "copies", "lost", carries.alias("carries"), f.explode(ends).alias("end")
    ).select("run", "end.*", "bytes", "copies", "lost", "carries")


def _is(direction: str) -> Column:
    return f.col("direction") == direction


def _total(column: str, *conditions: Column) -> Column:
    """The sum of a column where all conditions hold: 0, not null, where none does."""
    value = f.col(column)
    for condition in conditions:
        value = f.when(condition, value)
    return f.coalesce(f.sum(value), f.lit(0))


def traffic_totals(messages: DataFrame) -> DataFrame:
    """One row for each run with messages. Shares are over all nodes that sent or received.

    Gini: 0 if all carry the same, towards 1 if one carries all; null if nobody carries a byte.
    """
    sent, lost, carries = _is("sent"), f.col("lost"), f.col("carries")
    sums = {
        "messages": _total("copies", sent),
        "bytes": _total("bytes", sent),
        "lost": _total("copies", sent, lost),
        "publication_messages": _total("copies", sent, carries),
        "publication_bytes": _total("bytes", sent, carries),
        "subscription_messages": _total("copies", sent, ~carries),
        "subscription_bytes": _total("bytes", sent, ~carries),
    }
    loads = (
        _ends(messages)
        .groupBy("run", "node")
        .agg(
            *(total.alias(name) for name, total in sums.items()),
            _total("bytes", sent).alias("sent"),
            _total("bytes", _is("received")).alias("received"),
        )
    )
    return (
        loads.withColumn("sent_rank", _rank("sent"))
        .withColumn("received_rank", _rank("received"))
        .groupBy("run")
        .agg(
            *(f.sum(name).alias(name) for name in sums),
            _gini("sent").alias("gini_sent"),
            _gini("received").alias("gini_received"),
            _max_over_mean("sent").alias("max_over_mean_sent"),
            _max_over_mean("received").alias("max_over_mean_received"),
        )
        .select(
            "run",
            *sums,
            "gini_sent",
            "gini_received",
            "max_over_mean_sent",
            "max_over_mean_received",
        )
    )


def _rank(load: str) -> Column:
    lightest_first = Window.partitionBy("run").orderBy(load, "node")
    return f.row_number().over(
        lightest_first.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )


def _gini(load: str) -> Column:
    """2 Σ i·xᵢ / (n Σ xᵢ) − (n + 1) / n, for loads x₁ ≤ x₂ ≤ … ≤ xₙ.

    The weighted sum of integers outgrows 64 bits in large runs; decimals add up exactly, too.
    """
    weighted = f.sum(f.col(f"{load}_rank").cast("decimal(12,0)") * f.col(load)).cast("double")
    n, whole = f.count(f.lit(1)), f.sum(load).cast("double")
    return f.try_divide(2 * weighted, n * whole) - (n + 1) / n


def _max_over_mean(load: str) -> Column:
    return f.try_divide(f.max(load).cast("double") * f.count(f.lit(1)), f.sum(load))


def traffic_by_kind(messages: DataFrame) -> DataFrame:
    return (
        messages.groupBy("run", "kind")
        .agg(
            f.sum("copies").alias("messages"),
            f.sum("bytes").alias("bytes"),
            _total("copies", f.col("lost")).alias("lost"),
            _total("copies", f.col("publication").isNotNull()).alias("carrying"),
        )
        .select(
            "run",
            "kind",
            "messages",
            "bytes",
            "lost",
            ratio("carrying", "messages").alias("carries"),
        )
    )


def traffic_by_second(messages: DataFrame, publications: DataFrame) -> DataFrame:
    """By the second of sending; what an overlay sends before the first publication is below 0."""
    return (
        with_second(messages, origins(publications, messages))
        .groupBy("run", "second", "kind")
        .agg(f.sum("copies").alias("messages"), f.sum("bytes").alias("bytes"))
        .select("run", "second", "kind", "messages", "bytes")
    )


def traffic_by_node(messages: DataFrame, publications: DataFrame) -> DataFrame:
    """All nodes that sent or received. Whom a node sent to counts even if all of it was lost."""
    peers = (
        _ends(messages)
        .groupBy("run", "node", "direction", "other")
        .agg(f.count(f.lit(1)).alias("rows"))
        .groupBy("run", "node")
        .agg(f.count_if(_is("sent")).alias("fan_out"), f.count_if(_is("received")).alias("fan_in"))
    )
    return (
        _loads(messages, publications)
        .join(peers, on=["run", "node"], how="inner")
        .select(
            "run",
            "node",
            "sent_messages",
            "sent_bytes",
            "received_messages",
            "received_bytes",
            "fan_out",
            "fan_in",
            "peak_sent_bytes_per_s",
            "peak_received_bytes_per_s",
        )
    )


def traffic_quantiles(messages: DataFrame, publications: DataFrame) -> DataFrame:
    """The distribution of load over nodes: exact quantiles 0, .01 … 1.

    A node's mean is over all seconds from the run's first message to its last arrival; its peak is
    its busiest second. Nodes that only send are there with 0 received, and the other way round.
    """
    run = Window.partitionBy("run").rowsBetween(
        Window.unboundedPreceding, Window.unboundedFollowing
    )
    seconds = f.max("last").over(run) - f.min("first").over(run) + 1
    each = [
        f.struct(
            f.lit(direction).alias("direction"),
            f.lit(measure).alias("measure"),
            rate.cast("double").alias("bytes_per_s"),
        )
        for direction in ("sent", "received")
        for measure, rate in (
            ("mean", f.col(f"{direction}_bytes") / f.col("seconds")),
            ("peak", f.col(f"peak_{direction}_bytes_per_s")),
        )
    ]
    rates = (
        _loads(messages, publications)
        .withColumn("seconds", seconds)
        .select("run", f.explode(f.array(*each)).alias("load"))
        .select("run", "load.*")
    )
    return percentiles(rates, ["run", "direction", "measure"], "bytes_per_s").select(
        "run", "direction", "measure", (f.col("percent") / 100).alias("quantile"), "bytes_per_s"
    )


def _loads(messages: DataFrame, publications: DataFrame) -> DataFrame:
    """What each node sent and received, in all and in its busiest second."""
    peaks = {
        f"peak_{direction}_bytes_per_s": f.max(f.when(_is(direction), f.col("bytes")))
        for direction in ("sent", "received")
    }
    return (
        with_second(_ends(messages), origins(publications, messages))
        .groupBy("run", "node", "direction", "second")
        .agg(f.sum("copies").alias("messages"), f.sum("bytes").alias("bytes"))
        .groupBy("run", "node")
        .agg(
            _total("messages", _is("sent")).alias("sent_messages"),
            _total("bytes", _is("sent")).alias("sent_bytes"),
            _total("messages", _is("received")).alias("received_messages"),
            _total("bytes", _is("received")).alias("received_bytes"),
            *(f.coalesce(peak, f.lit(0)).alias(name) for name, peak in peaks.items()),
            f.min("second").alias("first"),
            f.max("second").alias("last"),
        )
    )
