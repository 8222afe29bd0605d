"""Whom nodes knew, against whom they should have known, at the instants when a run was sampled.

A node should know every other entity whose true position lies in one of the closed regions that the
node's subscriptions have at that instant, moving and growing as their rows say. Regions by formula
are left out: they would need the expression parser for every pair. Only runs that recorded views
are judged, since a protocol without views has nothing to be judged by; and only nodes that have a
position at the instant. Whom nobody can see, because it has no position, is known wrongly.
"""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from nearcast.pipeline.delivery import chosen, origins, percentiles, ratio, with_second

SIGHT = ["run", "t", "node", "other"]
AXES = ("x", "y", "z")
FINEST = 1024  # cells along the world's longer side, at most
# Rounding may let the exact test accept what lies this far outside of the bounds it computes.
ROUNDING, UNDERFLOW = 2.0**-50, 1e-150

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
    places = _places(positions)
    sampled = places.select("run", "t", "node")
    truly = places.select(
        "run",
        "t",
        f.col("node").alias("other"),
        *(f.col(axis).alias(f"true_{axis}") for axis in AXES),
    )
    off = [f.col(axis) - f.col(f"true_{axis}") for axis in AXES]
    difference = f.sqrt(off[0] * off[0] + off[1] * off[1] + off[2] * off[2])
    known = (
        views.where(f.col("node") != f.col("other"))
        .join(sampled, on=["run", "t", "node"], how="left_semi")
        .join(truly, on=["run", "t", "other"], how="left")
        .select(
            *SIGHT,
            f.lit(True).alias("known"),
            f.lit(False).alias("should"),
            f.col("true_x").isNotNull().alias("exists"),
            difference.alias("difference"),
        )
    )
    due = _due(places, interests).select(
        *SIGHT,
        f.lit(False).alias("known"),
        f.lit(True).alias("should"),
        f.lit(True).alias("exists"),
        f.lit(None).cast("double").alias("difference"),
    )
    return (
        known.unionByName(due)
        .groupBy(*SIGHT)
        .agg(
            f.bool_or("known").alias("known"),
            f.bool_or("should").alias("should"),
            f.bool_or("exists").alias("exists"),
            f.min("difference").alias("difference"),
        )
        .select(*SIGHT, "known", "should", "exists", "difference")
    )


def _places(positions: DataFrame) -> DataFrame:
    """One place for each entity at each instant, even if the trace repeats itself."""
    place = f.min(f.struct(*AXES)).alias("place")
    return positions.groupBy("run", "t", "node").agg(place).select("run", "t", "node", "place.*")


def _due(places: DataFrame, interests: DataFrame) -> DataFrame:
    """(run, t, node, other): the other is inside of a region of the node.

    Candidates meet in the cells of a grid that is as coarse as the region is large, so a region
    touches at most three cells along each axis, and an entity is in one cell of each coarseness
    that its run needs. The grid spans x and y; the test that follows is exact in all three.
    """
    bounds = places.groupBy("run").agg(
        *(f.min(a).alias(f"low_{a}") for a in "xy"), *(f.max(a).alias(f"high_{a}") for a in "xy")
    )
    regions = _in_cells(_in_force(places, interests), bounds)
    levels = regions.groupBy("run", "level").agg(f.count(f.lit(1)).alias("regions"))
    others = (
        places.join(f.broadcast(bounds), on="run", how="inner")
        .join(f.broadcast(levels), on="run", how="inner")
        .select(
            "run",
            "t",
            "level",
            *(_cell(f.col(a), a).alias(f"cell_{a}") for a in "xy"),
            f.col("node").alias("other"),
            *AXES,
        )
    )
    away = {a: f.abs(f.col(a) - f.col(f"centre_{a}")) for a in AXES}
    squares = away["x"] * away["x"] + away["y"] * away["y"] + away["z"] * away["z"]
    in_box = (away["x"] <= f.col("rx")) & (away["y"] <= f.col("ry")) & (away["z"] <= f.col("rz"))
    in_disc = f.sqrt(squares) <= f.col("rx")
    inside = f.when(f.col("shape") == "disc", in_disc).otherwise(in_box)
    cell = ["run", "t", "level", "cell_x", "cell_y"]
    return (
        regions.join(others, on=cell, how="inner")
        .where((f.col("node") != f.col("other")) & inside)
        .select(*SIGHT)
    )


def _in_force(places: DataFrame, interests: DataFrame) -> DataFrame:
    """The region of each subscription at each instant at which it is in force.

    Interests and instants meet in slices of time about as long as the time between two instants,
    so that an interest that holds for a moment is not compared with all of them.
    """
    instants = places.groupBy("run", "t").agg(f.count(f.lit(1)).alias("entities"))
    spans = instants.groupBy("run").agg(
        f.min("t").alias("earliest"),
        f.max("t").alias("latest"),
        f.greatest(f.lit(1), f.floor((f.max("t") - f.min("t")) / f.count(f.lit(1)))).alias(
            "length"
        ),
    )

    def slice_of(t: Column) -> Column:
        return f.floor((t - f.col("earliest")) / f.col("length"))

    sliced = instants.join(f.broadcast(spans), on="run", how="inner").select(
        "run", f.col("t").alias("now"), slice_of(f.col("t")).alias("slice")
    )
    of_subscription = Window.partitionBy("run", "subscription").orderBy("t")
    begin, end = f.greatest("t", "earliest"), f.least("end", f.col("latest") + 1)
    holding = (
        interests.withColumn("end", f.lead("t").over(of_subscription))
        .where(~f.col("ended") & f.col("formula").isNull())
        .join(f.broadcast(spans), on="run", how="inner")
        .where(begin < end)
        .withColumn("slice", f.explode(f.sequence(slice_of(begin), slice_of(end - 1))))
    )
    begun = f.col("t") <= f.col("now")
    not_over = f.col("end").isNull() | (f.col("now") < f.col("end"))
    moved = (f.least("now", "until") - f.col("t")) / 1e6
    return (
        holding.join(f.broadcast(sliced), on=["run", "slice"], how="inner")
        .where(begun & not_over)
        .withColumn("moved", moved)
        .select(
            "run",
            f.col("now").alias("t"),
            "node",
            "shape",
            *((f.col(a) + f.col(f"v{a}") * f.col("moved")).alias(f"centre_{a}") for a in AXES),
            *(
                f.greatest(f.col(f"r{a}") + f.col(f"g{a}") * f.col("moved"), f.lit(0.0)).alias(
                    f"r{a}"
                )
                for a in AXES
            ),
        )
    )


def _in_cells(regions: DataFrame, bounds: DataFrame) -> DataFrame:
    """Each region once for each cell, on the level that suits it, that may hold an entity of it."""

    def reach(axis: str) -> Column:
        extent = f.when(f.col("shape") == "disc", f.col("rx")).otherwise(f.col(f"r{axis}"))
        return extent + (f.abs(f.col(f"centre_{axis}")) + extent) * ROUNDING + UNDERFLOW

    def width(axis: str) -> Column:
        return f.col(f"to_{axis}") - f.col(f"from_{axis}")

    world = f.greatest(*(f.col(f"high_{a}") - f.col(f"low_{a}") for a in "xy"))
    placed = regions.join(f.broadcast(bounds), on="run", how="inner")
    for axis in "xy":
        centre = f.col(f"centre_{axis}")
        placed = placed.withColumn(
            f"from_{axis}", f.greatest(centre - reach(axis), f.col(f"low_{axis}"))
        ).withColumn(f"to_{axis}", f.least(centre + reach(axis), f.col(f"high_{axis}")))
    wide = f.greatest(width("x"), width("y"), world / FINEST)
    # In a world that is a single point there is no logarithm to take, and one cell will do.
    level = f.coalesce(f.ceil(f.log2(wide)), f.lit(0))
    near = (f.col("from_x") <= f.col("to_x")) & (f.col("from_y") <= f.col("to_y"))
    placed = placed.where(near).withColumn("level", level)
    for axis in "xy":
        first, last = (_cell(f.col(f"{end}_{axis}"), axis) for end in ("from", "to"))
        placed = placed.withColumn(f"cell_{axis}", f.explode(f.sequence(first, last)))
    return placed.select(
        "run",
        "t",
        "level",
        "cell_x",
        "cell_y",
        "node",
        "shape",
        *(f"centre_{a}" for a in AXES),
        *(f"r{a}" for a in AXES),
    )


def _cell(coordinate: Column, axis: str) -> Column:
    """Never falls as the coordinate rises: this, and not its precision, keeps the join exact."""
    return f.floor((coordinate - f.col(f"low_{axis}")) / f.pow(f.lit(2.0), f.col("level")))


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
    samples = _samples(positions, views, met)
    if origin is not None:
        met, samples = with_second(met, origin), with_second(samples, origin)
    away = chosen(
        percentiles(met, by, "difference"), by, "difference", {"position_difference_p90": 90}
    )
    return (
        samples.groupBy(*by)
        .agg(
            f.count_distinct("node").alias("nodes"),
            f.try_divide(f.sum("known"), f.count(f.lit(1))).alias("known"),
            f.try_divide(f.sum("should"), f.count(f.lit(1))).alias("should"),
            *(f.sum(fate).alias(fate) for fate in FATES),
        )
        .withColumn("right", f.col("true_positives") + f.col("true_negatives"))
        .withColumn("precision", ratio("true_positives", "true_positives", "false_positives"))
        .withColumn("recall", ratio("true_positives", "true_positives", "false_negatives"))
        .withColumn("accuracy", ratio("right", *FATES))
        .withColumn("specificity", ratio("true_negatives", "true_negatives", "false_positives"))
        .withColumn("consistency", f.col("recall"))
        .join(away, on=list(by), how="left")
        .withColumnRenamed("mean", "position_difference_mean")
    )


def _samples(positions: DataFrame, views: DataFrame, met: DataFrame) -> DataFrame:
    """One row for each node at each instant: how many it knew, rightly and wrongly."""
    known, should, exists = f.col("known"), f.col("should"), f.col("exists")
    counted = met.groupBy("run", "t", "node").agg(
        f.count_if(known).alias("known"),
        f.count_if(should).alias("should"),
        f.count_if(known & should).alias("true_positives"),
        f.count_if(known & ~should).alias("false_positives"),
        f.count_if(should & ~known).alias("false_negatives"),
        f.count_if(exists).alias("judged"),
    )
    with_views = views.groupBy("run").agg(f.count(f.lit(1)).alias("views"))
    places = _places(positions).join(f.broadcast(with_views), on="run", how="left_semi")
    entities = places.groupBy("run", "t").agg(f.count(f.lit(1)).alias("entities"))
    return (
        places.join(f.broadcast(entities), on=["run", "t"], how="inner")
        .join(counted, on=["run", "t", "node"], how="left")
        .fillna(0)
        .withColumn("true_negatives", f.col("entities") - 1 - f.col("judged"))
        .select("run", "t", "node", "known", "should", *FATES)
    )
