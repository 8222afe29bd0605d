"""The exact join in space, and if asked for in time, of any two DataFrames.

Both sides are read twice: a first query counts rows and takes a sample, by which the join is cut
into parts (`planning`). The join sends blocks of columns through Spark's shuffle to their parts and
runs the kernels of the pipeline there (`part_join`). No row is collected but those of the sample.
"""

from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from nearcast.errors import ColumnsError
from nearcast.pipeline.truth.spatial_parts import AREAS, POINTS, is_dealt
from nearcast.spark.columns import (
    AreaColumns,
    PointColumns,
    Side,
    add_ends,
    check_sides,
    select_areas,
    select_points,
)
from nearcast.spark.part_join import (
    BLOCK,
    MERGED,
    emit_carried,
    encode_rows,
    join_blocks,
    join_merged,
    merge_blocks,
)
from nearcast.spark.planning import MAX_PARTS, JoinPlan, plan_join


def spatial_join(
    areas: DataFrame,
    points: DataFrame,
    of_areas: AreaColumns,
    of_points: PointColumns,
    *,
    parts: int | None = None,
) -> DataFrame:
    """Every pair of an area and a point in it: the keys and kept columns of the area, then those of
    the point. Areas are closed: a point on a border is in the area.

    The pairs are found when they are asked for; only the sample is taken at once. Both sides must
    have the same rows each time they are read. `parts`: into how many the work is cut, if not into
    as many as the rows need. One of the sides may be a stream, unless its areas end with the next
    row of their keys. Each batch of the stream is joined with all of the other side, which Spark
    reads anew for each batch unless it is persisted.
    """
    sides = select_areas(areas, of_areas), select_points(points, of_points)
    check_sides(areas, points, of_areas, of_points)
    if parts is not None and not 1 <= parts <= MAX_PARTS:
        raise ValueError(f"parts must be 1 to {MAX_PARTS}, not {parts}")
    streaming = areas.isStreaming, points.isStreaming
    if all(streaming):
        raise ColumnsError("areas and points are both streams: one of them must be static")
    if streaming[AREAS] and of_areas.t and not of_areas.end:
        raise ColumnsError("a stream of areas needs a column `end`: no next row ends them")
    plan = plan_join(sides, parts)
    blocks = _blocks(sides, plan)
    names = [[field.name for field in side.carried] for side in sides]
    emit = emit_carried(*names)
    schema = StructType([field for side in sides for field in side.carried])
    if not any(streaming):
        together = blocks[AREAS].unionAll(blocks[POINTS]).repartitionById(plan.parts, "part")
        return together.mapInArrow(join_blocks(emit), schema)
    # Spark has no union of a stream and a table, but it joins them.
    merged = [
        side.repartitionById(plan.parts, "part")
        .mapInArrow(merge_blocks, from_arrow_schema(MERGED))
        .withColumnRenamed("blocks", name)
        for side, name in zip(blocks, ("areas", "points"), strict=True)
    ]
    return merged[AREAS].join(merged[POINTS], "part").mapInArrow(join_merged(emit), schema)


def _blocks(sides: tuple[Side, Side], plan: JoinPlan) -> list[DataFrame]:
    """The rows of each side, encoded for the parts that need them."""
    frames = [add_ends(sides[AREAS]), sides[POINTS].frame]
    if "t" in frames[AREAS].columns:
        frames[AREAS] = frames[AREAS].where(f"t <= {plan.last} AND end > {plan.first}")
    if is_dealt(plan.tree):
        # By the row alone: a task that is repeated must deal its rows in the same way.
        frames = [
            frame.selectExpr("*", f"xxhash64({side.keys}, x, y) AS chance")
            for frame, side in zip(frames, sides, strict=True)
        ]
    return [
        frame.mapInArrow(
            encode_rows(plan.tree, number, sides[number].shape, plan.last), from_arrow_schema(BLOCK)
        )
        for number, frame in enumerate(frames)
    ]
