"""What a world is like: where its entities crowd, how they move, how many hear each other.

This is what one wants to know of a recorded world before choosing an overlay for it. Places are
cells of a 64 x 64 grid over the box that bounds all positions of the run.
"""

from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from nearcast.pipeline.delivery import chosen, origins, percentiles, with_second
from nearcast.pipeline.graphs import graphs
from nearcast.pipeline.overlay import GONE

CELLS = 64
CROWDED = 0.1  # the fullest tenth of the occupied cells


def world_density(positions: DataFrame, publications: DataFrame, messages: DataFrame) -> DataFrame:
    """How many entities each occupied cell held; each counts once a second, where it was last."""
    latest = f.max(f.struct("t", "x", "y"))
    return (
        with_second(positions, origins(publications, messages, positions))
        .groupBy("run", "second", "node")
        .agg(latest.alias("latest"))
        .select("run", "second", "latest.x", "latest.y")
        .join(f.broadcast(grids(positions)), on="run", how="inner")
        .groupBy(
            "run",
            "second",
            cell("x").alias("cell_x"),
            cell("y").alias("cell_y"),
            "x_low",
            "y_low",
            "cell_width",
            "cell_height",
        )
        .agg(f.count(f.lit(1)).alias("entities"))
        .select(
            "run", "second", "cell_x", "cell_y", "entities",
            "x_low", "y_low", "cell_width", "cell_height",
        )
    )  # fmt: skip


def grids(positions: DataFrame) -> DataFrame:
    """Each run's grid; without any extent along an axis, all is in its first cell."""
    return (
        positions.groupBy("run")
        .agg(
            f.min("x").alias("x_low"),
            f.max("x").alias("x_high"),
            f.min("y").alias("y_low"),
            f.max("y").alias("y_high"),
        )
        .withColumn("cell_width", (f.col("x_high") - f.col("x_low")) / CELLS)
        .withColumn("cell_height", (f.col("y_high") - f.col("y_low")) / CELLS)
    )


def cell(axis: str) -> Column:
    """The number of the cell along an axis; the far border belongs to the last cell."""
    low, high = f.col(f"{axis}_low"), f.col(f"{axis}_high")
    share = f.try_divide(f.col(axis) - low, high - low)
    return f.coalesce(f.least(f.floor(share * CELLS), f.lit(CELLS - 1)), f.lit(0)).cast("bigint")


def world_movement(
    positions: DataFrame,
    interests: DataFrame,
    publications: DataFrame,
    messages: DataFrame,
    notes: DataFrame,
    expected: DataFrame,
) -> DataFrame:
    """One row about each world."""
    present = [table.select("run", "node") for table in (positions, interests, publications)]
    entities = (
        reduce(DataFrame.unionAll, present)
        .groupBy("run", "node")
        .agg(f.count(f.lit(1)).alias("rows"))
        .groupBy("run")
        .agg(f.count(f.lit(1)).alias("entities"))
    )
    heard = hearers(expected, publications, interests)
    moved = moves(positions, notes)
    measured = [
        spreads(moved, areas(interests, positions)),
        stillness(moved),
        crowding(world_density(positions, publications, messages)),
        neighbours(heard, publications),
        clustering(heard),
    ]
    for table in measured:
        entities = entities.join(table, on="run", how="left")
    return entities.select(
        "run", "entities", "speed_mean", "speed_p50", "speed_p90", "speed_max", "still_share",
        "dwell_mean_s", "dwell_p90_s", "area_mean", "neighbours_mean", "neighbours_max",
        "clustering", "crowding",
    )  # fmt: skip


def moves(positions: DataFrame, notes: DataFrame) -> DataFrame:
    """Each position: how long the entity was there, how fast it went on, and its stay in the cell.

    Who leaves or crashes was there until then, and goes nowhere from there.
    """
    nowhere = f.lit(None).cast("double")
    gone = notes.filter(f.col("fact").isin(*GONE)).select(
        "run", "node", "t", *(nowhere.alias(axis) for axis in "xyz"), f.lit(True).alias("gone")
    )
    seen = positions.select("run", "node", "t", "x", "y", "z", f.lit(False).alias("gone"))
    life = Window.partitionBy("run", "node").orderBy("t", "gone", "x", "y", "z")
    so_far = life.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    dx, dy, dz = (f.lead(axis).over(life) - f.col(axis) for axis in "xyz")
    elsewhere = f.lag("cell").over(life) != f.col("cell")
    arrives = f.coalesce(f.lag("gone").over(life) | elsewhere, f.lit(True))
    return (
        seen.unionAll(gone)
        .join(f.broadcast(grids(positions)), on="run", how="inner")
        .withColumn("cell", cell("x") * CELLS + cell("y"))
        .withColumn("distance", f.sqrt(dx * dx + dy * dy + dz * dz))
        .withColumn("lasting", f.lead("t").over(life) - f.col("t"))
        .withColumn("stay", f.sum(arrives.cast("int")).over(so_far))
        .filter(~f.col("gone"))
        .select(
            "run",
            "node",
            "stay",
            f.coalesce("lasting", f.lit(0)).alias("lasting"),
            f.try_divide(f.col("distance"), f.col("lasting") / 1e6).alias("speed"),
        )
    )


def areas(interests: DataFrame, positions: DataFrame) -> DataFrame:
    """The area of the box that bounds each region when it begins, or its volume in 3-D.

    A world is 3-D if anything in it has a height. Unbounded regions have no area to speak of.
    """
    told = ~f.col("ended") & f.col("formula").isNull()
    bounded = f.greatest("rx", "ry", "rz") < float("inf")
    regions = interests.filter(told & bounded)
    high = [
        regions.select("run", ((f.col("z") != 0) | (f.col("rz") != 0)).alias("deep")),
        positions.select("run", (f.col("z") != 0).alias("deep")),
    ]
    depths = reduce(DataFrame.unionAll, high).groupBy("run").agg(f.max("deep").alias("deep"))
    is_disc = f.col("shape") == "disc"
    width = 2 * f.col("rx")
    height = f.when(is_disc, width).otherwise(2 * f.col("ry"))
    depth = f.when(is_disc, width).otherwise(2 * f.col("rz"))
    area = width * height * f.when(f.col("deep"), depth).otherwise(1.0)
    return regions.join(f.broadcast(depths), on="run", how="inner").select(
        "run", area.alias("area")
    )


def spreads(moved: DataFrame, area: DataFrame) -> DataFrame:
    """Means and quantiles of speeds, dwells and areas."""
    speeds = moved.select("run", f.lit("speed").alias("measure"), f.col("speed").alias("value"))
    dwells = (
        moved.groupBy("run", "node", "stay")
        .agg((f.sum("lasting") / 1e6).alias("dwell"))
        .select("run", f.lit("dwell"), "dwell")
    )
    values = speeds.unionAll(dwells).unionAll(area.select("run", f.lit("area"), "area"))
    by = ["run", "measure"]
    told = chosen(percentiles(values, by, "value"), by, "value", {"p50": 50, "p90": 90, "max": 100})

    def of(measure: str, column: str) -> Column:
        return f.max(f.when(f.col("measure") == measure, f.col(column)))

    return told.groupBy("run").agg(
        of("speed", "mean").alias("speed_mean"),
        of("speed", "p50").alias("speed_p50"),
        of("speed", "p90").alias("speed_p90"),
        of("speed", "max").alias("speed_max"),
        of("dwell", "mean").alias("dwell_mean_s"),
        of("dwell", "p90").alias("dwell_p90_s"),
        of("area", "mean").alias("area_mean"),
    )


def stillness(moved: DataFrame) -> DataFrame:
    """The share of steps that led nowhere."""
    share = f.try_divide(f.count_if(f.col("speed") == 0), f.count("speed"))
    return moved.groupBy("run").agg(share.alias("still_share"))


def crowding(density: DataFrame) -> DataFrame:
    """The share of entities, over all seconds, in the fullest tenth of each second's cells."""
    second = Window.partitionBy("run", "second")
    everywhere = second.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    fullest = second.orderBy(f.desc("entities"), "cell_x", "cell_y")
    crowded = f.col("place") <= f.ceil(CROWDED * f.col("cells"))
    inside = f.sum(f.when(crowded, f.col("entities")).otherwise(0))
    return (
        density.withColumn("place", f.row_number().over(fullest))
        .withColumn("cells", f.count(f.lit(1)).over(everywhere))
        .groupBy("run")
        .agg(f.try_divide(inside, f.sum("entities")).alias("crowding"))
    )


def hearers(expected: DataFrame, publications: DataFrame, interests: DataFrame) -> DataFrame:
    """Which other entities should have heard each publication; each once."""
    speakers = publications.select("run", "publication", f.col("node").alias("speaker"))
    listeners = interests.groupBy("run", "subscription").agg(f.min("node").alias("hearer"))
    others = f.col("speaker") != f.col("hearer")
    return (
        expected.join(speakers, on=["run", "publication"], how="inner")
        .join(listeners, on=["run", "subscription"], how="inner")
        .filter(others)
        .groupBy("run", "publication", "speaker", "hearer")
        .agg(f.count(f.lit(1)).alias("subscriptions"))
        .select("run", "publication", "speaker", "hearer")
    )


def neighbours(heard: DataFrame, publications: DataFrame) -> DataFrame:
    """How many others should hear a publication; of one that nobody hears it is 0."""
    said = publications.groupBy("run").agg(f.count(f.lit(1)).alias("publications"))
    counts = heard.groupBy("run", "publication").agg(f.count(f.lit(1)).alias("hearers"))
    totals = counts.groupBy("run").agg(
        f.sum("hearers").alias("hearers"), f.max("hearers").alias("most")
    )
    return said.join(totals, on="run", how="left").select(
        "run",
        (f.coalesce("hearers", f.lit(0)) / f.col("publications")).alias("neighbours_mean"),
        f.coalesce("most", f.lit(0)).alias("neighbours_max"),
    )


def clustering(heard: DataFrame) -> DataFrame:
    """Transitivity of the graph that links two entities if either should ever hear the other."""
    links = (
        heard.groupBy(
            "run",
            f.least("speaker", "hearer").alias("low"),
            f.greatest("speaker", "hearer").alias("high"),
        )
        .agg(f.count(f.lit(1)).alias("times"))
        .select("run", "low", "high")
    )
    share = f.try_divide(3 * f.col("triangles"), f.col("triples"))
    return graphs(links, "run").select("run", share.alias("clustering"))
