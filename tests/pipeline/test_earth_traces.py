"""Movement on Earth becomes a trace of the Earth, and goes out as it came in."""

import json
from itertools import pairwise
from math import nan
from pathlib import Path
from typing import Any

import geopandas
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyproj import Geod

from nearcast.errors import TraceError
from nearcast.pipeline import exporters
from nearcast.pipeline.exporters import export_movement
from nearcast.pipeline.importers import ImportSummary, import_movement
from nearcast.space.earth import LEG, chord_of, height_ratio
from nearcast.trace.earth_columns import lon_lat_columns
from nearcast.trace.reader import read, trace_epoch, trace_geometry
from nearcast.trace.validate import validate
from support.examples import examples

SECOND = 1_000_000
NOON = 1641211200
GEOD = Geod(ellps="WGS84")
# Across the antimeridian, over a pole, on the spot.
SHIPS = {
    "timestamp": [NOON, NOON + 60, NOON + 120, NOON, NOON + 90.5, NOON + 30],
    "mmsi": ["west", "west", "west", "pole", "pole", "one"],
    "lon": [179.9, -179.95, -179.9, 10.0, -170.0, 0.0],
    "lat": [-20.0, -20.05, -20.1, 89.99, 89.99, 0.0],
    "alt": [nan, nan, nan, 100.0, -12.25, 0.0],
}


def table(folder: Path, columns: dict[str, Any]) -> Path:
    pq.write_table(pa.table(columns), folder / "ships.parquet")
    return folder / "ships.parquet"


def imported(folder: Path, columns: dict[str, Any] = SHIPS, **options: Any) -> ImportSummary:
    done = import_movement(table(folder, columns), folder / "trace", **options)
    report = validate(done.trace)
    assert (report.problems, report.warnings, report.finished) == ((), (), True)
    return done


def test_a_trace_says_that_it_is_of_the_earth(tmp_path: Path) -> None:
    done = imported(tmp_path, radius=500.0)
    assert (done.geometry, done.entities, done.skipped) == ("earth", 3, 0)
    assert trace_geometry(done.trace) == "earth"
    assert trace_epoch(done.trace) == done.epoch_us == NOON * SECOND
    told = json.loads((tmp_path / "trace" / "scenario.json").read_text())["settings"]
    assert (told["geometry"], told["epoch_us"], told["radius"]) == ("earth", NOON * SECOND, 500.0)
    plane = {"t": [0.0], "entity": ["a"], "x": [1.0], "y": [2.0]}
    pq.write_table(pa.table(plane), tmp_path / "walk.parquet")
    other = import_movement(tmp_path / "walk.parquet", tmp_path / "other")
    assert (other.geometry, trace_geometry(other.trace)) == ("plane", "plane")
    assert trace_epoch(other.trace) is None


def test_fixes_are_places_on_the_surface_with_discs_around_them(tmp_path: Path) -> None:
    done = imported(tmp_path, radius=500.0)
    interests, publications = (read(done.trace, name) for name in ("interests", "publications"))
    for rows in (interests, publications):
        for row in rows.to_pylist():
            assert height_ratio(row["x"], row["y"], row["z"]) == pytest.approx(1, abs=1e-14)
    for row in interests.to_pylist():
        lat = lon_lat_columns(*(np.array([row[axis]]) for axis in "xyz"))[1][0]
        assert (row["shape"], row["rx"], row["outline"]) == ("disc", chord_of(500.0, lat), None)
    outlines = {row["node"]: row["outline"] for row in publications.to_pylist()}
    assert outlines[2] is None  # west
    assert outlines[0] is not None


def test_ways_between_fixes_stay_near_the_surface(tmp_path: Path) -> None:
    columns = {
        "t": [0.0, 3600.0, 3600.000003, 8000.0], "entity": ["a"] * 4,
        "lon": [8.0, 8.5, 9.5, 30.0], "lat": [50.0, 50.0, 50.0, 60.0],
    }  # fmt: skip
    done = imported(tmp_path, columns, radius=100.0, motion="line")
    rows = read(done.trace, "interests").to_pylist()
    assert done.rows["publications"] == 4
    assert len(rows) > 1000  # the last way is longer than 1,000 km, and has 1,000 legs
    jump = [row for row in rows if row["t"] in range(3600 * SECOND, 3600 * SECOND + 3)]
    assert len(jump) == 3  # only so many moments are between two fixes of three microseconds
    for here, there in pairwise(rows):
        seconds = (there["t"] - here["t"]) / SECOND
        assert here["until"] == there["t"]
        for axis in "xyz":
            assert here[axis] + here[f"v{axis}"] * seconds == pytest.approx(there[axis], abs=1e-6)
        if here["t"] < 3600 * SECOND:
            legs = np.array([there[axis] - here[axis] for axis in "xyz"])
            assert np.linalg.norm(legs) <= LEG
            middle = [here[axis] + here[f"v{axis}"] * seconds / 2 for axis in "xyz"]
            assert (1 - height_ratio(*middle)) * 6_378_137 < 0.02


def test_true_positions_are_on_the_surface_between_the_fixes(tmp_path: Path) -> None:
    columns = {"t": [0.0, 600.0], "entity": [1, 1], "lon": [170.0, -170.0], "lat": [10.0, 20.0]}
    done = imported(tmp_path, columns, sample_s=60.0)
    whole = GEOD.inv(170.0, 10.0, -170.0, 20.0)[2]
    for row in read(done.trace, "positions").to_pylist():
        place = [row[axis] for axis in "xyz"]
        assert height_ratio(*place) == pytest.approx(1, abs=1e-14)
        (lon,), (lat,) = lon_lat_columns(*(np.array([number]) for number in place))
        passed = GEOD.inv(170.0, 10.0, lon, lat)[2]
        left = GEOD.inv(lon, lat, -170.0, 20.0)[2]
        assert passed + left == pytest.approx(whole, rel=1e-5)  # along the shortest way
        assert passed == pytest.approx(whole * row["t"] / 600 / SECOND, rel=0.02, abs=1)


def test_boxes_and_too_large_discs_are_refused(tmp_path: Path) -> None:
    file = table(tmp_path, SHIPS)
    with pytest.raises(ValueError, match="has places on Earth, where areas of interest are discs"):
        import_movement(file, tmp_path / "trace", shape="box")
    with pytest.raises(ValueError, match="a radius on Earth must be"):
        import_movement(file, tmp_path / "trace", radius=2e7)
    assert not (tmp_path / "trace").exists()


# And out again.


def exported_rows(file: Path) -> list[tuple[str, int, float, float, float | None]]:
    """name, Unix microseconds, lon, lat, altitude of GeoParquet as geopandas reads it."""
    frame = geopandas.read_parquet(file)
    assert frame.crs == "OGC:CRS84"
    times = frame["t"].astype("datetime64[us, UTC]").astype("int64")
    heights = [None if height != height else height for height in frame["alt"]]
    points = zip(frame.geometry.x, frame.geometry.y, strict=True)
    return [
        (name, int(t), lon, lat, height)
        for name, t, (lon, lat), height in zip(frame["name"], times, points, heights, strict=True)
    ]


def test_geoparquet_has_every_fix_as_it_came_in(tmp_path: Path) -> None:
    imported(tmp_path)
    done = export_movement(tmp_path / "trace", tmp_path / "out.parquet")
    assert (done.rows, done.geometry, done.calendar, done.areas) == (6, "earth", True, 0)
    wanted = sorted(
        zip(*(SHIPS[name] for name in ("mmsi", "timestamp", "lon", "lat", "alt")), strict=True)
    )
    found = sorted(exported_rows(tmp_path / "out.parquet"))
    for (name, t, lon, lat, height), (who, when, x, y, z) in zip(found, wanted, strict=True):
        assert (name, t) == (who, round(when * SECOND))
        assert (lon, lat) == pytest.approx((x, y), abs=1e-9)
        assert height == (None if z != z else z)
    raw = pq.read_table(tmp_path / "out.parquet")
    assert {len(point) for point in raw["geometry"].to_pylist()} == {21}
    geo = json.loads(raw.schema.metadata[b"geo"])
    assert geo["columns"]["geometry"] == {"encoding": "WKB", "geometry_types": ["Point"]}


def test_geojson_has_a_feature_for_each_entity(tmp_path: Path) -> None:
    imported(tmp_path)
    assert export_movement(tmp_path / "trace", tmp_path / "out.geojson").rows == 6
    frame = geopandas.read_file(tmp_path / "out.geojson").set_index("name")
    assert frame.crs == "EPSG:4326"
    kinds = frame.geometry.geom_type.to_dict()
    assert kinds == {"one": "Point", "pole": "LineString", "west": "MultiPoint"}
    points = [(point.x, point.y) for point in frame.geometry["west"].geoms]
    assert points == [(179.9, -20.0), (-179.95, -20.05), (-179.9, -20.1)]
    assert [str(t) for t in frame["datetimes"]["west"]] == [
        f"2022-01-03T12:{minute:02}:00.000000Z" for minute in range(3)
    ]
    assert list(frame["altitudes"]["pole"]) == [100.0, -12.25]


@pytest.mark.parametrize("form", ["csv", "parquet", "geojson"])
def test_each_form_comes_in_again_as_it_went_out(tmp_path: Path, form: str) -> None:
    imported(tmp_path)
    export_movement(tmp_path / "trace", tmp_path / f"out.{form}")
    again = import_movement(tmp_path / f"out.{form}", tmp_path / "again")
    assert (again.skipped, again.epoch_us) == (0, NOON * SECOND)
    first, second = (read(tmp_path / name, "publications") for name in ("trace", "again"))
    for name in ("t", "node", "outline"):
        assert second[name].to_pylist() == first[name].to_pylist()
    for axis in "xyz":
        gap = np.abs(first[axis].to_numpy() - second[axis].to_numpy())
        assert gap.max() < 1e-3  # metres: degrees are written with nine digits


DEGREES = st.tuples(st.floats(-180, 180), st.floats(-89.9, 89.9))


@examples(30)
@given(
    places=st.lists(
        st.tuples(
            st.integers(0, 2), st.integers(0, 10**6), DEGREES, st.none() | st.floats(-1e4, 1e5)
        ),
        min_size=1,
        max_size=10,
        unique_by=lambda fix: fix[:2],
    )
)
def test_what_comes_in_goes_out_within_a_ten_millionth_of_a_degree(
    places: list[tuple[int, int, tuple[float, float], float | None]],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("round")
    columns = {
        "id": [f"ship {ship}" for ship, *_ in places],
        "timestamp": pa.array(
            [NOON * SECOND + t for _, t, *_ in places], pa.timestamp("us", "UTC")
        ),
        "longitude": [lon for *_, (lon, _), _ in places],
        "latitude": [lat for *_, (_, lat), _ in places],
        "altitude": pa.array([height for *_, height in places], pa.float64()),
    }
    import_movement(table(folder, columns), folder / "trace", radius=1.0)
    export_movement(folder / "trace", folder / "out.parquet")
    wanted = {(f"ship {ship}", NOON * SECOND + t): rest for ship, t, *rest in places}
    found = exported_rows(folder / "out.parquet")
    assert len(found) == len(wanted)
    for name, t, lon, lat, height in found:
        (x, y), z = wanted[name, t]
        assert abs((lon - x + 180) % 360 - 180) < 1e-7
        assert abs(lat - y) < 1e-7
        assert height == z


def test_a_plane_goes_out_without_a_reference_system(tmp_path: Path) -> None:
    plane = {"t": [0.5, 1.0, 2.25], "entity": ["a", "a", "b"], "x": [1.0, 2.5, 3.0], "y": [0.0] * 3}
    pq.write_table(pa.table(plane | {"z": [5.0, 6.0, 7.0]}), tmp_path / "walk.parquet")
    import_movement(tmp_path / "walk.parquet", tmp_path / "trace")
    done = [
        export_movement(tmp_path / "trace", tmp_path / f"out.{form}")
        for form in ("parquet", "geojson", "csv")
    ]
    assert {(one.rows, one.geometry, one.calendar) for one in done} == {(3, "plane", False)}
    frame = geopandas.read_parquet(tmp_path / "out.parquet")
    assert frame.crs is None
    assert frame.geometry.x.tolist() == [1.0, 2.5, 3.0]
    assert frame["z"].tolist() == [5.0, 6.0, 7.0]
    told = json.loads((tmp_path / "out.geojson").read_text())
    assert told["crs"] is None
    assert told["features"][0]["geometry"]["coordinates"] == [[1.0, 0.0], [2.5, 0.0]]
    import_movement(tmp_path / "out.csv", tmp_path / "again")
    for name in ("t", "node", "x", "y", "z"):
        first, second = (read(tmp_path / at, "publications")[name] for at in ("trace", "again"))
        assert first.to_pylist() == second.to_pylist()


def test_much_is_written_piece_by_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nearcast.pipeline.importers.ROWS_PER_BLOCK", 1000)
    monkeypatch.setattr(exporters, "ROW_GROUP", 300)
    monkeypatch.setattr(exporters, "ROWS_AT_ONCE", 1500)
    rng = np.random.default_rng(3)
    columns = {
        "t": np.arange(4500.0), "entity": rng.integers(0, 40, 4500),
        "lon": rng.uniform(-10, 10, 4500), "lat": rng.uniform(-10, 10, 4500),
    }  # fmt: skip
    imported(tmp_path, columns)
    assert export_movement(tmp_path / "trace", tmp_path / "out.parquet").rows == 4500
    assert pq.ParquetFile(tmp_path / "out.parquet").num_row_groups >= 15
    assert export_movement(tmp_path / "trace", tmp_path / "out.geojson").rows == 4500
    frame = geopandas.read_file(tmp_path / "out.geojson")
    assert sorted(frame["entity"]) == list(range(40))
    assert sum(len(line.coords) for line in frame.geometry) == 4500


def test_what_cannot_be_written_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    imported(tmp_path)
    with pytest.raises(ValueError, match="must end with"):
        export_movement(tmp_path / "trace", tmp_path / "out.shp")
    (tmp_path / "out.csv").write_text("mine")
    with pytest.raises(ValueError, match="exists already"):
        export_movement(tmp_path / "trace", tmp_path / "out.csv")
    assert (tmp_path / "out.csv").read_text() == "mine"
    part = tmp_path / "trace" / "publications" / "part-00000.parquet"
    part.write_bytes(part.read_bytes()[:-40])
    for form in ("parquet", "geojson"):
        with pytest.raises(TraceError, match="cannot read"):
            export_movement(tmp_path / "trace", tmp_path / f"bad.{form}")
    assert [file.name for file in tmp_path.iterdir() if "bad" in file.name] == []
