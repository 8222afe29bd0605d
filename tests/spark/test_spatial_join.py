"""The join of any two DataFrames on Spark: against brute force, SQL and other engines' tests."""

from datetime import UTC, datetime, timedelta
from math import inf, nan
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from nearcast.spark import AreaColumns, ColumnsError, PointColumns, spatial_join
from support.spatial_rows import Row, touching, with_ends

DISCS = AreaColumns(keys="area", radius="r")
PLAIN = PointColumns(keys="point")


def frame(spark: SparkSession, rows: list[Row]) -> DataFrame:
    return spark.createDataFrame(pa.Table.from_pylist(rows))


def pairs(found: DataFrame) -> list[tuple[Any, ...]]:
    return sorted(map(tuple, found.collect()))


def random_rows(seed: int, count: int) -> tuple[list[Row], list[Row]]:
    """Half of all rows in a crowd; places of one digit, so that many points are on borders."""
    rng = np.random.default_rng(seed)

    def place() -> Row:
        middle, spread = ((0, 60), (40, 2))[rng.integers(2)]
        return {axis: round(middle + spread * rng.uniform(-1, 1), 1) for axis in "xyz"}

    areas = []
    for number in range(count):
        shape = str(rng.choice(["disc", "box", "point"]))
        sides = [round(float(side), 1) for side in rng.uniform(0, 6, 3)]
        extents = {"box": sides, "disc": [sides[0], 0.0, 0.0], "point": [0.0] * 3}[shape]
        velocity = rng.integers(-2, 3, 3).tolist() if rng.integers(2) else [0, 0, 0]
        areas.append(
            {"area": number // 3, "shape": shape, **place(),
             **dict(zip(("rx", "ry", "rz"), extents, strict=True)),
             **{f"v{axis}": float(v) for axis, v in zip("xyz", velocity, strict=True)},
             "t": int(number % 3 * 2_000_000 + rng.integers(1_000_000)),
             "ended": bool(rng.integers(8) == 0),
             "channel": int(rng.integers(2)), "owner": int(rng.integers(3))}
        )  # fmt: skip
    points = [
        {"point": f"p{number}", **place(), "t": int(rng.integers(8_000_000)),
         "channel": int(rng.integers(2)), "owner": int(rng.integers(3))}
        for number in range(count)
    ]  # fmt: skip
    return areas, points


EVERYTHING = (
    AreaColumns(
        keys="area", keep="t", z="z", shape="shape", radius="rx", half_extents=("rx", "ry", "rz"),
        t="t", ended="ended", velocity=("vx", "vy", "vz"), channel="channel", owner="owner",
    ),
    PointColumns(keys="point", z="z", t="t", channel="channel", owner="owner"),
)  # fmt: skip


@pytest.mark.parametrize("parts", [None, 11])
def test_a_join_in_space_and_time_finds_what_brute_force_finds(
    spark: SparkSession, parts: int | None
) -> None:
    areas, points = random_rows(5, 300)
    found = spatial_join(frame(spark, areas), frame(spark, points), *EVERYTHING, parts=parts)
    assert found.columns == ["area", "t", "point"]
    due = touching(with_ends(areas), points)
    assert len(due) > 200
    assert sorted((area, point) for area, _, point in pairs(found)) == due


def test_boxes_and_discs_agree_with_sql(spark: SparkSession) -> None:
    areas, points = random_rows(6, 400)
    held, made = frame(spark, areas).drop("t"), frame(spark, points).drop("t")
    held.createOrReplaceTempView("held")
    made.createOrReplaceTempView("made")
    by_shape = {
        "abs(held.x - made.x) <= rx AND abs(held.y - made.y) <= ry": AreaColumns(
            keys="number", half_extents=("rx", "ry")
        ),
        "sqrt(pow(held.x - made.x, 2) + pow(held.y - made.y, 2)) <= rx": AreaColumns(
            keys="number", radius="rx"
        ),
    }
    numbered = spark.sql("SELECT *, monotonically_increasing_id() AS number FROM held").cache()
    for condition, columns in by_shape.items():
        query = f"SELECT number, point FROM {{held}} AS held JOIN made ON {condition}"
        due = pairs(spark.sql(query, held=numbered))
        assert len(due) > 100
        assert pairs(spatial_join(numbered, made, columns, PLAIN, parts=5)) == due
    numbered.unpersist()


def test_rows_that_cannot_be_placed_match_nothing_and_infinite_areas_everything(
    spark: SparkSession,
) -> None:
    usual = {"x": 0.0, "y": 0.0, "r": 1.0, "h": 1.0}
    strange: list[Row] = [
        {}, {"x": None}, {"x": nan}, {"x": inf}, {"y": -inf}, {"y": 1e151}, {"r": None, "h": None},
        {"r": nan, "h": nan}, {"r": -1.0, "h": -1.0}, {"r": inf, "h": inf},
        {"r": 1e151, "h": 1e151},
    ]  # fmt: skip
    areas = [{"area": n, **usual, **row} for n, row in enumerate(strange)]
    some = [row for row in strange if not {"r", "h"} & row.keys()]
    points = [{"point": n, "x": 0.0, "y": 1.0, **row} for n, row in enumerate(some)]
    points.append({"point": 99, "x": -1e150, "y": 1e150})
    held, made = frame(spark, areas), frame(spark, points)
    due = [(0, 0), (9, 0), (9, 99)]
    assert pairs(spatial_join(held, made, DISCS, PLAIN, parts=3)) == due
    boxes = AreaColumns(keys="area", half_extents=("h", "h"))
    assert pairs(spatial_join(held, made, boxes, PLAIN)) == due
    everywhere = AreaColumns(keys="area", radius=inf)
    assert pairs(spatial_join(held.where("area = 0"), made, everywhere, PLAIN)) == [(0, 0), (0, 99)]
    nowhere = held.where("area < 0")
    assert pairs(spatial_join(nowhere, made, DISCS, PLAIN)) == []
    assert pairs(spatial_join(held, made.where("point < 0"), DISCS, PLAIN)) == []
    assert pairs(spatial_join(nowhere, made.where("point < 0"), DISCS, PLAIN, parts=2)) == []


def test_channels_and_owners_that_are_null_equal_none(spark: SparkSession) -> None:
    rows = [("a", 1), ("a", None), (None, 1), ("b", 2)]
    areas = [
        {"area": n, "x": 0, "y": 0, "c": c, "o": o} for n, (c, o) in enumerate([*rows, ("a", -1)])
    ]
    points = [{"point": n, "x": 0, "y": 0, "c": c, "o": o} for n, (c, o) in enumerate(rows)]
    found = spatial_join(
        frame(spark, areas),
        frame(spark, points),
        AreaColumns(keys="area", radius=0, channel="c", owner="o"),
        PointColumns(keys="point", channel="c", owner="o"),
    )
    # By the channel 0, 1 and 4 meet 0 and 1; by the owner 0 does not meet 0.
    assert pairs(found) == [(0, 1), (1, 0), (1, 1), (4, 0), (4, 1)]


def test_keys_and_kept_columns_of_any_type_are_carried(spark: SparkSession) -> None:
    moment = datetime(2026, 3, 29, 2, 30, tzinfo=UTC)
    areas = [
        {"name": f"area {n}", "number": n * 2**61 - 2**62, "x": float(n), "y": 0.0,
         "since": moment + timedelta(seconds=n), "till": moment + timedelta(seconds=n + 2),
         "tags": [n, None], "nothing": None if n else 7, "more": {"a": n}}
        for n in range(4)
    ]  # fmt: skip
    points = [
        {"point": b"%d" % n, "x": 1.5, "y": 0.0, "at": moment + timedelta(seconds=n)}
        for n in range(5)
    ]
    found = spatial_join(
        frame(spark, areas),
        frame(spark, points),
        AreaColumns(keys=("name", "number"), keep=("since", "tags", "nothing", "more"),
                    radius=0.5, t="since", end="till"),
        PointColumns(keys="point", keep="at", t="at"),
        parts=2,
    ).sort("number", "point")  # fmt: skip
    rows = found.toArrow().to_pylist()
    due = [
        {name: area[name] for name in ("name", "number", "since", "tags", "nothing", "more")}
        | {"point": point["point"], "at": point["at"]}
        for area in areas[1:3]
        for point in points
        if area["since"] <= point["at"] < area["till"]
    ]
    assert len(due) == 4
    assert rows == due


def test_of_rows_of_one_key_and_moment_one_holds_whatever_their_order(spark: SparkSession) -> None:
    rows = [(5, 3.0), (5, 1.0), (5, 2.0), (9, 0.0)]
    points = frame(spark, [{"point": n, "x": float(n), "y": 0.0, "at": 7} for n in range(4)])
    columns = AreaColumns(keys="area", radius=0.25, t="t"), PointColumns(keys="point", t="at")
    for order in (rows, rows[::-1]):
        areas = [{"area": 1, "t": t, "x": x, "y": 0.0} for t, x in order]
        assert pairs(spatial_join(frame(spark, areas), points, *columns)) == [(1, 1)]


def run_stream(found: DataFrame, checkpoint: Path) -> list[list[Any]]:
    """The rows of each batch, until all files are read."""
    batches: list[list[Any]] = []
    writer = found.writeStream.foreachBatch(lambda rows, _: batches.append(rows.collect()))
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    query.awaitTermination()
    return batches


def test_a_stream_of_points_or_of_areas_finds_the_pairs_of_a_batch(
    spark: SparkSession, tmp_path: Path
) -> None:
    areas, points = random_rows(7, 150)
    ended = [row | {"end": int(min(row["end"], 2**62))} for row in with_ends(areas)]
    sides = {"areas": frame(spark, ended), "points": frame(spark, points)}
    columns = (
        AreaColumns(keys=("area", "t"), shape="shape", radius="rx", half_extents=("rx", "ry"),
                    t="t", end="end"),
        PointColumns(keys="point", t="t"),
    )  # fmt: skip
    due = pairs(spatial_join(sides["areas"], sides["points"], *columns))
    assert len(due) > 100
    streams: dict[str, DataFrame] = {}
    for name in sides:
        files = tmp_path / name
        sides[name].repartition(2).write.parquet(str(files))
        reader = spark.readStream.schema(sides[name].schema).option("maxFilesPerTrigger", 1)
        streams[name] = reader.parquet(str(files))
        both = {**sides, name: streams[name]}
        found = spatial_join(both["areas"], both["points"], *columns, parts=3)
        assert found.isStreaming
        batches = run_stream(found, tmp_path / f"{name} done")
        assert len(batches) == 2
        assert sorted(tuple(row) for batch in batches for row in batch) == due
    with pytest.raises(ColumnsError, match="both streams"):
        spatial_join(streams["areas"], streams["points"], *columns)
    endless = AreaColumns(keys="area", radius="rx", t="t")
    with pytest.raises(ColumnsError, match="needs a column `end`"):
        spatial_join(streams["areas"], sides["points"], endless, columns[1])
