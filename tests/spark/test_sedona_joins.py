"""The joins of SedonaDB's own test suite, as far as areas are discs or boxes: the same pairs.

Source: apache/sedona-db, python/sedonadb/tests/test_sjoin.py. Taken as values are the generators'
parameters and, where the suite states it, the expected result. Where it compares SedonaDB with
PostGIS, the installed SedonaDB is asked here, and the counts that it gave are written down as well.
"""

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from nearcast.spark import AreaColumns, PointColumns, spatial_join


def test_points_in_buffers_with_the_result_that_the_suite_states(spark: SparkSession) -> None:
    """`test_spatial_join_with_pandas_metadata`: 1,000 points, 10 centres with buffers of 0.1. Its
    buffers are polygons of 64 corners; no point is between a polygon and its circle."""
    rng = np.random.Generator(np.random.MT19937(49791))
    sides = []
    for count in (1_000, 10):
        x, y = rng.uniform(-6, 2, count), rng.uniform(50, 59, count)
        sides.append(pa.table({f"idx{count}": np.arange(count), "x": x, "y": y}))
    points, centres = map(spark.createDataFrame, sides)
    found = spatial_join(
        centres, points,
        AreaColumns(keys="idx10", radius=0.1), PointColumns(keys="idx1000"), parts=4,
    )  # fmt: skip
    assert sorted(row.idx1000 for row in found.collect()) == [304, 342, 490, 705]


def random_geometry(kind: str, seed: int) -> str:
    """The generator's options in `test_spatial_join` and `test_spatial_join_semi_anti`."""
    options = (
        f'{{"geom_type": "{kind}", "polygon_hole_rate": 0.5, "num_parts_range": [2, 10],'
        f' "vertices_per_linestring_range": [2, 10], "seed": {seed}}}'
    )
    return f"sd_random_geometry('{options}') LIMIT 100"


CORNERS = ", ".join(
    f"ST_{axis}{end}(geometry) AS {axis.lower()}{number}"
    for axis in "XY"
    for number, end in enumerate(("Min", "Max"))
)
TABLES = {
    "made": f"SELECT id AS point, dist, {CORNERS} FROM {random_geometry('Point', 42)}",
    "held": f"SELECT id AS area, dist, {CORNERS} FROM {random_geometry('Polygon', 43)}",
    "near": f"SELECT id AS area, dist, {CORNERS} FROM {random_geometry('Point', 43)}",
}
PLACE = ["(x0 + x1) / 2 AS x", "(y0 + y1) / 2 AS y", "(x1 - x0) / 2 AS rx", "(y1 - y0) / 2 AS ry"]
POINT, CENTRE = "ST_Point(made.x0, made.y0)", "ST_Point(near.x0, near.y0)"
ENVELOPE = "ST_Envelope(ST_MakeLine(ST_Point(held.x0, held.y0), ST_Point(held.x1, held.y1)))"
BOXES = AreaColumns(keys="area", half_extents=("rx", "ry"))


@pytest.mark.parametrize(
    ("side", "on", "columns", "count"),
    [
        ("held", f"ST_Intersects({POINT}, {ENVELOPE})", BOXES, 22),
        pytest.param("held", f"ST_Contains({ENVELOPE}, {POINT})", BOXES, 22,
                     marks=pytest.mark.soak),
        ("near", f"ST_DWithin({POINT}, {CENTRE}, 1.0)", AreaColumns(keys="area", radius=1.0), 8),
        ("near", f"ST_DWithin({POINT}, {CENTRE}, near.dist / 10)",
         AreaColumns(keys="area", radius="tenth"), 72),
        pytest.param("near", f"ST_Distance({POINT}, {CENTRE}) <= near.dist / 10",
                     AreaColumns(keys="area", radius="tenth"), 72, marks=pytest.mark.soak),
    ],
)  # fmt: skip
def test_random_geometries_of_the_suite_give_the_pairs_of_sedonadb(
    spark: SparkSession, side: str, on: str, columns: AreaColumns, count: int
) -> None:
    sedonadb = pytest.importorskip("sedonadb")
    base = sedonadb.connect()
    tables = {name: pa.table(base.sql(query)) for name, query in TABLES.items()}
    for name, rows in tables.items():
        base.create_data_frame(rows).to_view(name, overwrite=True)
    answer = pa.table(base.sql(f"SELECT {side}.area, made.point FROM made JOIN {side} ON {on}"))
    due = sorted(zip(*(column.to_pylist() for column in answer.columns), strict=True))
    assert len(due) == count
    areas, points = (
        spark.createDataFrame(tables[name]).selectExpr("*", *PLACE, "dist / 10 AS tenth")
        for name in (side, "made")
    )
    found = spatial_join(areas, points, columns, PointColumns(keys="point"), parts=3)
    assert sorted(map(tuple, found.collect())) == due
