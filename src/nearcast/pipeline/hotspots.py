"""What a world is like: where its entities crowd, how they move, how many hear each other.

This is what one wants to know of a recorded world before choosing an overlay for it. Places are
cells of a 64 x 64 grid over the box that bounds all positions of the run.
"""

from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from nearcast.pipeline.delivery import chosen, origins, percentiles, with_second
from nearcast.pipeline.graphs import graphs

CELLS = 64
CROWDED = 10  # one in so many of the occupied cells: the fullest


def world_density(positions: DataFrame, publications: DataFrame, messages: DataFrame) -> DataFrame:
    """How many entities each occupied cell held; each counts once a second, where it was last."""
    timed = with_second(positions, origins(publications, messages, positions))
    return occupied(timed, grids(positions)).select(
        "run", "second", "cell_x", "cell_y", "entities",
        "x_low", "y_low", "cell_width", "cell_height",
    )  # fmt: skip


def occupied(timed: DataFrame, grid: DataFrame) -> DataFrame:
    """The cells in which entities were at the end of a `second`, and how many."""
    latest = f.max(f.struct("t", "x", "y"))
    return (
        timed.groupBy("run", "second", "node")
        .agg(latest.alias("latest"))
        .select("run", "second", "latest.x", "latest.y")
        .join(f.broadcast(grid), on="run", how="inner")
        .select("*", cell("x").alias("cell_x"), cell("y").alias("cell_y"))
        .groupBy("run", "second", "cell_x", "cell_y", *(c for c in grid.columns if c != "run"))
        .agg(f.count(f.lit(1)).alias("entities"))
    )


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
    share = f.coalesce(f.try_divide(f.col(axis) - low, high - low), f.lit(0.0))
    return f.least(f.floor(share * CELLS), f.lit(CELLS - 1)).cast("bigint")


def world_movement(
    positions: DataFrame,
    interests: DataFrame,
    publications: DataFrame,
    notes: DataFrame,
    expected: DataFrame,
) -> DataFrame:
    """One row about each world."""
    heard = hearers(expected, publications, interests)
    values = [steps(positions, notes), regions(interests), neighbours(heard)]
    by = ["run", "measure"]
    spreads = percentiles(reduce(DataFrame.unionAll, values), by, "value")
    told = [
        chosen(spreads, by, "value", {"p50": 50, "p90": 90, "max": 100}),
        entities(positions, interests, publications),
        crowding(positions),
        clustering(heard),
    ]

    def of(measure: str, column: str) -> Column:
        return f.max(f.when(f.col("measure") == measure, f.col(column)))

    # A world in which no region has a height is flat, and its regions have areas, not volumes.
    flat = of("height", "max") == 0
    return (
        reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), told)
        .groupBy("run")
        .agg(
            of("entities", "mean").cast("bigint").alias("entities"),
            of("speed", "mean").alias("speed_mean"),
            of("speed", "p50").alias("speed_p50"),
            of("speed", "p90").alias("speed_p90"),
            of("speed", "max").alias("speed_max"),
            of("still", "mean").alias("still_share"),
            of("dwell_s", "mean").alias("dwell_mean_s"),
            of("dwell_s", "p90").alias("dwell_p90_s"),
            f.when(flat, of("area", "mean")).otherwise(of("volume", "mean")).alias("area_mean"),
            of("neighbours", "mean").alias("neighbours_mean"),
            of("neighbours", "max").cast("bigint").alias("neighbours_max"),
            of("clustering", "mean").alias("clustering"),
            of("crowding", "mean").alias("crowding"),
        )
        .select(
            "run", "entities", "speed_mean", "speed_p50", "speed_p90", "speed_max", "still_share",
            "dwell_mean_s", "dwell_p90_s", "area_mean", "neighbours_mean", "neighbours_max",
            "clustering", "crowding",
        )
    )  # fmt: skip


# What follows tells (run, measure, value), or (run, measure, mean) where there is but one value.


def long(rows: DataFrame, **values: Column) -> DataFrame:
    """Several values of each row as rows of their own, with the names of their measures."""
    each = [
        f.struct(f.lit(name).alias("measure"), value.cast("double").alias("value"))
        for name, value in values.items()
    ]
    return rows.select("run", f.inline(f.array(*each)))


def steps(positions: DataFrame, notes: DataFrame) -> DataFrame:
    """From each position to the next: speed, whether it led anywhere, and stays in one cell.

    An entity is where it was seen until it is seen elsewhere. Who leaves or crashes was there until
    then, and goes nowhere from there.
    """
    nowhere = f.lit(None).cast("double")
    gone = notes.filter(f.col("fact").isin("left", "crashed")).select(
        "run", "node", "t", *(nowhere.alias(axis) for axis in "xyz"), f.lit(True).alias("gone")
    )
    seen = positions.select("run", "node", "t", "x", "y", "z", f.lit(False).alias("gone"))
    life = Window.partitionBy("run", "node").orderBy("t", "gone", "x", "y", "z")
    so_far = life.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    dx, dy, dz = (f.lead(axis).over(life) - f.col(axis) for axis in "xyz")
    elsewhere = f.lag("cell").over(life) != f.col("cell")
    arrives = f.coalesce(f.lag("gone").over(life) | elsewhere, f.lit(True))
    arrival = f.last(f.when(f.col("arrives"), f.col("t")), ignorenulls=True).over(so_far)
    ends = f.coalesce(f.lead("gone").over(life) | f.lead("arrives").over(life), f.lit(True))
    passed_s = (f.lead("t").over(life) - f.col("t")) / 1e6
    rows = (
        seen.unionAll(gone)
        .join(f.broadcast(grids(positions)), on="run", how="inner")
        .select(*seen.columns, (cell("x") * CELLS + cell("y")).alias("cell"))
        .select(
            "*",
            f.coalesce(f.lead("t").over(life), f.col("t")).alias("until"),
            f.try_divide(f.sqrt(dx * dx + dy * dy + dz * dz), passed_s).alias("speed"),
            arrives.alias("arrives"),
        )
        .select("*", arrival.alias("arrival"), ends.alias("ends"))
        .filter(~f.col("gone"))
    )
    return long(
        rows,
        speed=f.col("speed"),
        still=f.col("speed") == 0,
        dwell_s=f.when(f.col("ends"), (f.col("until") - f.col("arrival")) / 1e6),
    )


def regions(interests: DataFrame) -> DataFrame:
    """The boxes that bound the regions when they begin; unbounded regions have none."""
    bounded = f.greatest("rx", "ry", "rz") < float("inf")
    told = ~f.col("ended") & f.col("formula").isNull() & bounded
    is_disc = f.col("shape") == "disc"
    rx = f.col("rx")
    ry, rz = (f.when(is_disc, rx).otherwise(f.col(name)) for name in ("ry", "rz"))
    return long(
        interests.filter(told),
        area=4 * rx * ry,
        volume=8 * rx * ry * rz,
        height=f.greatest(f.abs("z"), "rz"),
    )


def hearers(expected: DataFrame, publications: DataFrame, interests: DataFrame) -> DataFrame:
    """Each publication with all other entities that should have heard it."""
    said = publications.select("run", "publication", f.col("node").alias("speaker"))
    listeners = interests.groupBy("run", "subscription").agg(f.min("node").alias("hearer"))
    hearer = f.when(f.col("hearer") != f.col("speaker"), f.col("hearer"))
    return (
        said.join(expected, on=["run", "publication"], how="left")
        .join(listeners, on=["run", "subscription"], how="left")
        .groupBy("run", "publication", "speaker")
        .agg(f.collect_set(hearer).alias("hearers"))
        .select("run", "speaker", "hearers")
    )


def neighbours(heard: DataFrame) -> DataFrame:
    return long(heard, neighbours=f.size("hearers"))


def entities(*tables: DataFrame) -> DataFrame:
    """How many there are in any of these tables."""
    return (
        reduce(DataFrame.unionAll, [table.select("run", "node") for table in tables])
        .groupBy("run")
        .agg(f.count_distinct("node").cast("double").alias("mean"))
        .select("run", f.lit("entities").alias("measure"), "mean")
    )


def crowding(positions: DataFrame) -> DataFrame:
    """The share of entities, over all seconds, in the fullest tenth of each second's cells.

    These are seconds of the clock: where the run's own begin makes no difference here.
    """
    timed = positions.withColumn("second", f.floor(f.col("t") / 1e6))
    second = Window.partitionBy("run", "second")
    everywhere = second.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    fullest = second.orderBy(f.desc("entities"), "cell_x", "cell_y")
    crowded = f.col("place") <= f.ceil(f.col("cells") / CROWDED)
    inside = f.sum(f.when(crowded, f.col("entities")).otherwise(0))
    return (
        occupied(timed, grids(positions))
        .select(
            "run",
            "entities",
            f.row_number().over(fullest).alias("place"),
            f.count(f.lit(1)).over(everywhere).alias("cells"),
        )
        .groupBy("run")
        .agg(f.try_divide(inside, f.sum("entities")).alias("mean"))
        .select("run", f.lit("crowding").alias("measure"), "mean")
    )


def clustering(heard: DataFrame) -> DataFrame:
    """Transitivity of the graph that links two entities if either should ever hear the other."""
    links = (
        heard.select("run", "speaker", f.explode("hearers").alias("hearer"))
        .groupBy(
            "run",
            f.least("speaker", "hearer").alias("low"),
            f.greatest("speaker", "hearer").alias("high"),
        )
        .agg(f.count(f.lit(1)).alias("times"))
        .select("run", "low", "high")
    )
    share = f.try_divide(3 * f.col("triangles"), f.col("triples"))
    return graphs(links, "run").select(
        "run", f.lit("clustering").alias("measure"), share.alias("mean")
    )
