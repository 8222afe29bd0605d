"""How a join of two DataFrames is cut into parts: by a count and a sample of each side."""

from typing import NamedTuple

import pyarrow as pa

from nearcast.pipeline.truth import join
from nearcast.pipeline.truth.spatial_parts import (
    AREAS,
    POINTS,
    Bounds,
    PartTree,
    area_bounds,
    cut_parts,
    estimate_parts,
    point_bounds,
)
from nearcast.space.motion import FOREVER
from nearcast.spark.columns import Side
from nearcast.spark.part_join import add_constants

SAMPLED = 4_000  # rows of each side
ROWS_PER_PART = 250_000  # a second of work, tens of megabytes
MAX_PARTS = 2_000


class JoinPlan(NamedTuple):
    """The parts, how many there are, and the first and last moment of the points."""

    tree: PartTree
    parts: int
    first: int
    last: int


class Sample(NamedTuple):
    """What a first look at a side tells."""

    size: int  # rows of the whole side
    first: int
    last: int
    keys: int  # about so many distinct ones
    rows: pa.Table


def plan_join(sides: tuple[Side, Side], parts: int | None) -> JoinPlan:
    """Sample the sides that are no streams; a stream is assumed to be where the other side is."""
    areas, points = (None if side.frame.isStreaming else take_sample(side) for side in sides)
    first, last = (-FOREVER, FOREVER) if points is None else (points.first, points.last)
    timed = "t" in sides[POINTS].frame.columns
    boxes = None if areas is None else area_bounds(_with_ends(areas, sides[AREAS]), last)
    places = None if points is None else point_bounds(points.rows)
    if boxes is None:
        assert places is not None
        boxes = places
    if places is None:
        places = Bounds(boxes.low, boxes.low)
    known = [sample.size for sample in (areas, points) if sample is not None]
    counts = known[0], known[-1]
    if parts is None:
        parts = min(estimate_parts(places, boxes, counts, ROWS_PER_PART), MAX_PARTS)
    tree = cut_parts(places, boxes, counts, parts)
    return JoinPlan(tree, parts, *((first, last) if timed else (-FOREVER, FOREVER)))


def take_sample(side: Side) -> Sample:
    """One query, whose answer has at most `SAMPLED` rows."""
    frame = side.frame.where(side.usable)
    carried = {f"_{number}" for number in range(len(side.carried))}
    columns = ", ".join(name for name in frame.columns if name not in carried)
    frame = frame.selectExpr("*", "rand(7) AS chance")
    t = "t" if "t" in frame.columns else "0L"
    answer = frame.selectExpr(
        "count(*) AS size",
        f"coalesce(min({t}), 0L) AS first",
        f"coalesce(max({t}), 0L) AS last",
        f"approx_count_distinct(xxhash64({side.keys})) AS keys",
        f"min_by(struct({columns}), chance, {SAMPLED}) AS rows",
    ).toArrow()
    size, first, last, keys = (answer.column(number)[0].as_py() for number in range(4))
    rows = pa.Table.from_struct_array(answer.column("rows").combine_chunks().flatten())
    return Sample(size, first, last, keys, rows)


def _with_ends(areas: Sample, side: Side) -> pa.Table:
    """The sampled areas. Without a column `end`, each is given the mean time between the rows of
    its key: what counts is how long areas last, not exactly when they end."""
    rows = add_constants(areas.rows, AREAS, side.shape)
    if "t" in rows.column_names and "end" not in areas.rows.column_names:
        mean = (areas.last - areas.first) * areas.keys // max(1, areas.size) + 1
        end = pa.array(join.column_or_zeros(rows, "t") + mean, pa.int64())
        rows = rows.drop_columns("end").append_column("end", end)
    return rows
