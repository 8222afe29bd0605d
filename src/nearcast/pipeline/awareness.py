"""Whom nodes knew, against whom they should have known, at the instants when a run was sampled.

A node should know every other entity whose true position lies in one of the regions that the node's
subscriptions have at that instant: whoever would be heard there, speaking from where it is. So the
truth is that of deliveries, and the same kernel tells it (`join`), formulas included; only channels
and filters do not matter here. Only runs that recorded views are judged, since a protocol without
views has nothing to be judged by; and only nodes that have a position at the instant. Who is known
but has no position is known wrongly.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from nearcast.pipeline import join
from nearcast.pipeline.delivery import chosen, origins, percentiles, ratio, with_second
from nearcast.space.motion import FOREVER

SLICE = 100_000  # positions that one call of the kernel takes, if instants are no larger
SIGHT = ["run", "t", "node", "other"]
AXES = ("x", "y", "z")

FATES = ["true_positives", "false_positives", "false_negatives", "true_negatives"]
MEASURES = [
    "known",
    "should",
    *FATES,
    "precision",
    "recall",
    "accuracy",
    "specificity",
    "consistency",
    "position_difference_mean",
    "position_difference_p90",
]


def acquaintances(positions: DataFrame, views: DataFrame, interests: DataFrame) -> DataFrame:
    """Each (instant, node, other) where the node knew the other or should have, once.

    All tables here begin with it and build the same plan, so whoever writes several of them may
    `persist` it first.
    """
    truly = positions.select(
        "run",
        "t",
        f.col("node").alias("other"),
        *(f.col(axis).alias(f"true_{axis}") for axis in AXES),
    )
    off = [f.col(axis) - f.col(f"true_{axis}") for axis in AXES]
    difference = f.sqrt(off[0] * off[0] + off[1] * off[1] + off[2] * off[2])
    known = (
        views.where(f.col("node") != f.col("other"))
        .join(truly, on=["run", "t", "other"], how="left")
        .select(
            *SIGHT,
            f.lit(True).alias("known"),
            f.lit(False).alias("should"),
            f.col("true_x").isNotNull().alias("exists"),
            difference.alias("difference"),
        )
    )
    due = _due(positions, interests).select(
        *SIGHT,
        f.lit(False).alias("known"),
        f.lit(True).alias("should"),
        f.lit(True).alias("exists"),
        f.lit(None).cast("double").alias("difference"),
    )
    sampled = positions.select("run", "t", "node")
    return (
        known.unionByName(due)
        .join(sampled, on=["run", "t", "node"], how="left_semi")
        .groupBy(*SIGHT)
        .agg(
            f.bool_or("known").alias("known"),
            f.bool_or("should").alias("should"),
            f.bool_or("exists").alias("exists"),
            f.min("difference").alias("difference"),
        )
        .select(*SIGHT, "known", "should", "exists", "difference")
    )


def _due(positions: DataFrame, interests: DataFrame) -> DataFrame:
    """(run, t, node, other) for each region of the node in which the other is.

    A run is cut into slices of time with about so many positions as a worker likes to hold; every
    interest goes to all slices in which it is in force.
    """
    slices = f.ceil(f.count(f.lit(1)) / SLICE)
    cuts = positions.groupBy("run").agg(
        f.min("t").alias("earliest"),
        f.max("t").alias("latest"),
        (f.floor((f.max("t") - f.min("t")) / slices) + 1).alias("length"),
    )

    def slice_of(t: Column) -> Column:
        return f.floor((t - f.col("earliest")) / f.col("length"))

    # Of rows of one subscription at one microsecond that one holds that `join.spans` would choose.
    in_order = Window.partitionBy("run", "subscription").orderBy(
        "t", *map(f.desc, ("ended", "x", "y", "z", "rx"))
    )
    begin, end = f.greatest("t", "earliest"), f.least("end", f.col("latest") + 1)
    held = (
        interests.withColumn("end", f.lead("t", 1, FOREVER).over(in_order))
        .where(~f.col("ended"))
        .join(f.broadcast(cuts), on="run", how="inner")
        .where(begin < end)
        .withColumn("slice", f.explode(f.sequence(slice_of(begin), slice_of(end - 1))))
        .drop("earliest", "latest", "length")
    )
    there = positions.join(f.broadcast(cuts), on="run", how="inner").select(
        "run", slice_of(f.col("t")).alias("slice"), "t", "node", *AXES
    )
    key = ["run", "slice"]
    return (
        there.groupBy(*key)
        .cogroup(held.groupBy(*key))
        .applyInArrow(_inside, "run string, t long, node long, other long")
    )


def _inside(there: pa.Table, held: pa.Table) -> pa.Table:
    """`_due` for one slice: everyone speaks at a point, on a channel on which all listen."""
    there = there.sort_by("t")
    silence = pa.nulls(len(there), pa.string())
    nowhere = pa.array(np.zeros(len(there)))
    said = there.append_column("channel", pa.repeat("", len(there)))
    said = said.append_column("shape", pa.repeat("point", len(there)))
    said = said.append_column("attributes", silence)
    for extent in ("rx", "ry", "rz"):
        said = said.append_column(extent, nowhere)
    replaced = {
        "channel": pa.repeat("", len(held)),
        "filter": pa.nulls(len(held), pa.string()),
        "echo": pa.repeat(False, len(held)),
    }
    for name, column in replaced.items():
        held = held.set_column(held.column_names.index(name), name, column)
    nobody = np.empty(0, np.int64)
    found = list(join.join(held, said)) or [(nobody, nobody)]
    which, subscription = (np.concatenate(column) for column in zip(*found, strict=True))
    subscriptions, first = np.unique(join.column(held, "subscription"), return_index=True)
    owner = join.column(held, "node")[first]
    return pa.table(
        {
            "run": there.column("run").take(pa.array(which)),
            "t": join.column(there, "t")[which],
            "node": owner[np.searchsorted(subscriptions, subscription)],
            "other": join.column(there, "node")[which],
        }
    )


# The tables.


def awareness_by_second(
    positions: DataFrame,
    views: DataFrame,
    interests: DataFrame,
    publications: DataFrame,
    messages: DataFrame,
) -> DataFrame:
    """All samples of a second together; a run without publications and messages counts from its
    first position."""
    origin = origins(publications, messages, positions)
    by = ["run", "second"]
    return _measured(positions, views, interests, by, origin).select(*by, "nodes", *MEASURES)


def awareness_by_node(positions: DataFrame, views: DataFrame, interests: DataFrame) -> DataFrame:
    by = ["run", "node"]
    return _measured(positions, views, interests, by).select(*by, *MEASURES)


def awareness_totals(positions: DataFrame, views: DataFrame, interests: DataFrame) -> DataFrame:
    return _measured(positions, views, interests, ["run"]).select("run", "nodes", *MEASURES)


def _measured(
    positions: DataFrame,
    views: DataFrame,
    interests: DataFrame,
    by: Sequence[str],
    origin: DataFrame | None = None,
) -> DataFrame:
    """Means of whom a node knew and should know, and the ratios of the sums of all samples.

    Consistency is VAST's: all that is seen over all that should be. That is recall, under the name
    that the papers on Voronoi overlays know. Position differences are of all that are known and
    exist; their percentile is exact.
    """
    met = acquaintances(positions, views, interests)
    samples = _samples(positions, views)
    if origin is not None:
        met, samples = with_second(met, origin), with_second(samples, origin)
    known, should = f.col("known"), f.col("should")
    counts = {
        "all_known": known,
        "all_should": should,
        "true_positives": known & should,
        "false_positives": known & ~should,
        "false_negatives": should & ~known,
        "judged": f.col("exists"),
    }
    seen = met.groupBy(*by).agg(*(f.count_if(c).alias(name) for name, c in counts.items()))
    away = chosen(
        percentiles(met, by, "difference"), by, "difference", {"position_difference_p90": 90}
    )
    return (
        samples.groupBy(*by)
        .agg(
            f.count_distinct("node").alias("nodes"),
            f.count(f.lit(1)).alias("samples"),
            f.sum("others").alias("others"),
        )
        .join(seen, on=list(by), how="left")
        .join(away, on=list(by), how="left")
        .fillna(0, subset=list(counts))
        .withColumn("true_negatives", f.col("others") - f.col("judged"))
        .withColumn("right", f.col("true_positives") + f.col("true_negatives"))
        .withColumns(
            {
                "known": ratio("all_known", "samples"),
                "should": ratio("all_should", "samples"),
                "precision": ratio("true_positives", "true_positives", "false_positives"),
                "recall": ratio("true_positives", "true_positives", "false_negatives"),
                "accuracy": ratio("right", *FATES),
                "specificity": ratio("true_negatives", "true_negatives", "false_positives"),
                "consistency": ratio("true_positives", "true_positives", "false_negatives"),
                "position_difference_mean": f.col("mean"),
            }
        )
    )


def _samples(positions: DataFrame, views: DataFrame) -> DataFrame:
    """One row for each node at each instant: how many others there were."""
    with_views = views.groupBy("run").agg(f.count(f.lit(1)).alias("views"))
    entities = positions.groupBy("run", "t").agg((f.count(f.lit(1)) - 1).alias("others"))
    return (
        positions.join(f.broadcast(with_views), on="run", how="left_semi")
        .join(f.broadcast(entities), on=["run", "t"], how="inner")
        .select("run", "t", "node", "others")
    )
