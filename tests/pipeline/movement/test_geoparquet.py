"""GeoParquet with points, as exports and other tools write it."""

import json
import struct
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.movement_files import SECOND, PlainFix, read_movement

NOON = 1641211200
MOMENT = pa.timestamp("us", "UTC")


def point(x: float, y: float, *z: float, order: str = "<", kind: int = 1) -> bytes:
    return struct.pack(f"{order}BI{2 + len(z)}d", order == "<", kind, x, y, *z)


def write(folder: Path, points: list[Any], more: dict[str, Any] | None = None, **said: Any) -> Path:
    geometry = {"encoding": "WKB", "geometry_types": ["Point"], **said}
    geo = {"version": "1.1.0", "primary_column": "where", "columns": {"where": geometry}}
    times = pa.array([(NOON + k) * SECOND for k in range(len(points))], pa.int64())
    columns = {"t": times.cast(MOMENT), "where": pa.array(points, pa.binary())}
    columns |= more or {"id": ["a"] * len(points)}
    table = pa.table(columns).replace_schema_metadata({"geo": json.dumps(geo)})
    pq.write_table(table, folder / "walk.parquet")
    return folder / "walk.parquet"


def test_points_are_fixes(tmp_path: Path) -> None:
    fixes, found = read_movement(write(tmp_path, [point(8.5, 47.25), point(-179.5, -1)]))
    assert fixes == [
        PlainFix("a", NOON * SECOND, 8.5, 47.25),
        PlainFix("a", (NOON + 1) * SECOND, -179.5, -1),
    ]
    assert found.skipped == 0


def test_points_of_every_form_are_read_and_others_are_skipped(tmp_path: Path) -> None:
    points = [
        point(8, 47, order=">"), point(8, 47, 300, kind=1001), point(8, 47, 300, kind=0x80000001),
        None, b"", point(8, 47)[:-1], point(8, 47, kind=2), point(8, 470),
        point(float("nan"), float("nan")),
    ]  # fmt: skip
    fixes, found = read_movement(
        write(tmp_path, points, crs={"id": {"authority": "EPSG", "code": 4326}})
    )
    assert [(fix.lon, fix.lat, fix.altitude) for fix in fixes] == [
        (8, 47, None), (8, 47, 300), (8, 47, 300),
    ]  # fmt: skip
    assert (found.skipped, found.first_skipped) == (6, "row 4 has no lon")


def test_columns_of_altitudes_and_names_count_before_heights_and_numbers(tmp_path: Path) -> None:
    more = {"name": ["ann"], "entity": [7], "alt": [5.0]}
    fixes, _ = read_movement(write(tmp_path, [point(8, 47, 300, kind=1001)], more))
    assert fixes == [PlainFix("ann", NOON * SECOND, 8, 47, 5.0)]


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"crs": None}, "places of a plane"),
        ({"crs": {"name": "ETRS89 / UTM 32N", "id": {"authority": "EPSG", "code": 25832}}}, "UTM"),
        ({"crs": {"name": "mine"}}, "'mine'"),
        ({"encoding": "point"}, "'point', not as WKB"),
        ({"encoding": 5}, "no sound metadata"),
    ],
)
def test_what_is_no_place_on_earth_is_refused(tmp_path: Path, said: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        read_movement(write(tmp_path, [point(8, 47)], **said))
