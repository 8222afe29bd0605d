"""What is said of columns that are not there or cannot be used: one line, before any work."""

from typing import Any

import pytest
from msgspec.structs import replace
from pyspark.sql import DataFrame, SparkSession

from nearcast.spark import AreaColumns, ColumnsError, PointColumns, spatial_join

AREAS = AreaColumns(keys="area", radius="r")
POINTS = PointColumns(keys="point")


@pytest.fixture(scope="module")
def sides(spark: SparkSession) -> tuple[DataFrame, DataFrame]:
    return (
        spark.createDataFrame([], "area int, x double, y double, z double, r double, t timestamp,"
                              " text string, whole bigint, local timestamp_ntz, is boolean"),
        spark.createDataFrame([], "point int, area int, x double, y double, z double,"
                              " t timestamp, whole bigint, text string"),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("of_areas", "of_points", "said"),
    [
        ({"x": "lon"}, {}, "areas have no column 'lon'; there are: area, x, y, z, r, t, text"),
        ({}, {"y": "lat"}, "points have no column 'lat'; there are: point, area, x, y, z"),
        ({"keys": "shop"}, {}, "areas have no column 'shop'"),
        ({"keep": ("x", "nope")}, {}, "areas have no column 'nope'"),
        ({"keys": ()}, {}, "areas need at least one key column"),
        ({"keep": "area"}, {}, "areas carry the same column twice: area, area"),
        ({}, {"keep": "area"}, "both sides carry a column 'area' to the result: rename one"),
        ({"x": "text"}, {}, "column 'text' of areas must be numeric, not string"),
        ({"radius": None}, {}, "areas need a radius or half_extents"),
        ({"radius": -1.0}, {}, "must be 0 or more, not -1.0"),
        ({"radius": float("nan")}, {}, "must be 0 or more, not nan"),
        ({"half_extents": ("r", "r")}, {}, "need a column `shape`"),
        ({"shape": "text"}, {}, "need a radius and half_extents"),
        ({"radius": None, "half_extents": ("r",)}, {}, "half_extents must have 2 numbers (x, y)"),
        ({"z": "z"}, {}, "areas have a column z, so points need one, too"),
        ({}, {"t": "t"}, "points have a column t, so areas need one, too"),
        ({"channel": "text"}, {}, "areas have a column channel, so points need one, too"),
        ({"end": "t"}, {}, "areas that end or move need a column `t`"),
        ({"velocity": ("r", "r")}, {}, "areas that end or move need a column `t`"),
        ({"t": "t"}, {"t": "whole"}, "areas.t is timestamp, points.whole bigint: they must be"),
        ({"t": "t", "end": "whole"}, {"t": "t"}, "t is timestamp, end bigint: they must be alike"),
        ({"t": "local"}, {"t": "t"}, "areas.local is timestamp_ntz, points.t timestamp"),
        ({"t": "r"}, {"t": "t"}, "'r' of areas must be integral or timestamp or timestampntz"),
        ({"t": "t", "ended": "text"}, {"t": "t"}, "'text' of areas must be boolean, not string"),
        ({"channel": "r"}, {"channel": "text"}, "'r' of areas must be string or integral or"),
        ({"channel": "whole"}, {"channel": "text"}, "areas.whole is bigint, points.text string"),
        ({"owner": "text"}, {"owner": "whole"}, "'text' of areas must be integral, not string"),
    ],
)  # fmt: skip
def test_wrong_columns_are_one_clear_line(
    sides: tuple[DataFrame, DataFrame],
    of_areas: dict[str, Any],
    of_points: dict[str, Any],
    said: str,
) -> None:
    with pytest.raises(ColumnsError) as error:
        spatial_join(*sides, replace(AREAS, **of_areas), replace(POINTS, **of_points))
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_what_is_no_dataframe_and_names_that_are_there_twice(
    sides: tuple[DataFrame, DataFrame],
) -> None:
    with pytest.raises(ColumnsError, match="areas must be a DataFrame of Spark, not list"):
        spatial_join([], sides[1], AREAS, POINTS)  # what a person may try
    twice = sides[0].select("*", "x")
    with pytest.raises(ColumnsError, match="areas have 2 columns 'x'"):
        spatial_join(twice, sides[1], AREAS, POINTS)
    with pytest.raises(ValueError, match="parts must be 1 to 2000, not 0"):
        spatial_join(*sides, AREAS, POINTS, parts=0)
