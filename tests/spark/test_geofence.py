"""Fence events of DataFrames: against the definition, and with planted crossings."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from math import inf, nan
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, Observation, SparkSession

from nearcast.pipeline.geofence import packed_fences
from nearcast.space.outline_shapes import earth_polygon, polygon
from nearcast.space.shapes import Shape, disc
from nearcast.spark import ColumnsError, geofence
from support.fence_oracle import Disc, Fix, Polygon, pair_events, transitions
from support.fence_worlds import STEP

BOX = [[(4.0, -1.0), (6.0, -1.0), (6.0, 1.0), (4.0, 1.0)]]


def frame(spark: SparkSession, rows: list[dict[str, Any]]) -> DataFrame:
    return spark.createDataFrame(pa.Table.from_pylist(rows))


def random_world(seed: int) -> tuple[list[Polygon | Disc], dict[str, list[Fix]]]:
    """Small whole numbers, so that ways often touch borders."""
    random = Random(seed)

    def place() -> tuple[int, int]:
        return random.randint(-9, 9), random.randint(-9, 9)

    shapes: list[Polygon | Disc] = [Disc(*place(), random.randint(0, 4)) for _ in range(8)]
    while len(shapes) < 16:
        (x, y), width, height = place(), random.randint(1, 6), random.randint(1, 6)
        middle = (x + random.randint(1, width), y + random.randint(1, height))
        shapes.append(Polygon([[(x, y), (x + width, y), middle, (x, y + height)]]))
    times = range(0, 60 * STEP, STEP)
    return shapes, {
        f"e{n}": [Fix(t, place()) for t in sorted(random.sample(times, 30))] for n in range(20)
    }


def shape_of(area: Polygon | Disc) -> Shape:
    if isinstance(area, Disc):
        return disc(area.x, area.y, area.r)
    return polygon([[(float(x), float(y)) for x, y in ring] for ring in area.rings])


@pytest.mark.parametrize("partitions", [1, 5])
def test_events_are_those_of_the_definition_in_any_order_and_partitioning(
    spark: SparkSession, partitions: int
) -> None:
    areas, entities = random_world(7)
    areas = [area for area in areas if is_simple(area)]
    fences = [(f"f{n}", shape_of(area)) for n, area in enumerate(areas)]
    rows = [
        {"who": who, "at": fix.t, "x": float(fix.place[0]), "y": float(fix.place[1])}
        for who, fixes in entities.items()
        for fix in fixes
    ]
    Random(partitions).shuffle(rows)
    before = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", partitions)
    try:
        found = geofence(
            frame(spark, rows).repartition(3), fences, entity="who", t="at",
            events=("enter", "leave", "cross"), dwell=2 * STEP / 1e6, linger=STEP / 1e6,
        ).collect()  # fmt: skip
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", before)
    last = max(row["at"] for row in rows)
    due = Counter[Any]()
    for who, fixes in entities.items():
        for n, area in enumerate(areas):
            moves = transitions(area, fixes, last)
            for told in pair_events(moves, 2 * STEP, STEP, last):
                due[who, f"f{n}", told.known, told.t, told.t_out or None] += 1
    assert len(due) > 500
    assert Counter((row.entity, row.fence, row.fix_t, row.t, row.t_out) for row in found) == due


def is_simple(area: Polygon | Disc) -> bool:
    try:
        shape_of(area)
    except ValueError:
        return False
    return True


def test_planted_crossings_are_found_with_times_places_and_directions(spark: SparkSession) -> None:
    began = datetime(2026, 3, 29, 2, 30, tzinfo=UTC)
    rows = [
        {"entity": n, "t": began + timedelta(seconds=second), "x": x, "y": 0.0}
        for n in range(50)
        for second, x in ((100, 10.0), (0, 0.0))  # out of order
    ]
    found = geofence(
        frame(spark, rows), [("box", polygon(BOX))], events=["cross"]
    ).toArrow()  # fmt: skip
    assert found.num_rows == 50
    assert sorted(found["entity"].to_pylist()) == list(range(50))
    row = found.drop_columns("entity").to_pylist()[0]
    assert all(other == row for other in found.drop_columns("entity").to_pylist())
    assert row == {
        "fence": "box", "kind": "cross", "t": began + timedelta(seconds=40),
        "fix_t": began + timedelta(seconds=100), "x": 4.0, "y": 0.0,
        "t_out": began + timedelta(seconds=60), "x_out": 6.0, "y_out": 0.0, "direction": 0.0,
        "reason": None,
    }  # fmt: skip


def test_a_ship_crosses_the_antimeridian_into_a_polygon_of_a_file(
    spark: SparkSession, tmp_path: Path
) -> None:
    ring = [[179.0, -20.0], [181.0, -20.0], [181.0, -16.0], [179.0, -16.0], [179.0, -20.0]]
    features = [
        {"type": "Feature", "id": 1, "properties": {"name": "Fiji"},
         "geometry": {"type": "Polygon", "coordinates": [ring]}},
        {"type": "Feature", "id": 2, "properties": {"radius": 1000, "name": "Buoy"},
         "geometry": {"type": "Point", "coordinates": [-178.5, -18.0]}},
    ]  # fmt: skip
    file = tmp_path / "fences.geojson"
    file.write_bytes(msgspec.json.encode({"type": "FeatureCollection", "features": features}))
    ship = [(0, 178.5), (10, -179.5), (20, -178.5)]
    rows = [{"mmsi": 1, "t": t * 1_000_000, "lon": lon, "lat": -18.0} for t, lon in ship]
    found = geofence(
        frame(spark, rows), file, entity="mmsi", lon="lon", lat="lat", keep="name", ttl=30
    ).sort("t")
    assert [(r.fence, r["name"], r.kind, r.t / 1e6) for r in found.collect()] == [
        ("1", "Fiji", "enter", 2.5), ("1", "Fiji", "leave", 15.0),
        ("2", "Buoy", "enter", pytest.approx(19.9, abs=0.1)),
    ]  # fmt: skip
    entered = found.first()
    assert entered is not None
    assert (entered.lon, entered.lat) == (pytest.approx(179.0), pytest.approx(-18.0))
    assert entered.direction == pytest.approx(90, abs=1)


def test_many_fences_go_as_a_file_of_the_session(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packed_fences, "FEW_BYTES", 100)
    rows = [{"entity": n % 3, "t": n, "x": n / 10, "y": 0.0} for n in range(100)]
    for y, entered in ((0, 6), (0, 6), (5, 0)):
        fences = [(n, disc(2 * n, y, 0.3)) for n in range(1, 3)]
        found = geofence(frame(spark, rows), fences, events="enter")
        assert found.count() == entered


def test_fixes_that_cannot_be_used_are_left_out_and_counted(spark: SparkSession) -> None:
    usual = {"entity": "a", "t": 1, "x": 5.0, "y": 0.0}
    strange: list[dict[str, Any]] = [
        {}, {"entity": None}, {"t": None}, {"x": None}, {"x": nan}, {"y": inf}, {"y": -1e151},
    ]  # fmt: skip
    counts = Observation()
    rows = [{**usual, **row} for row in strange]
    found = geofence(
        frame(spark, rows), [("box", polygon(BOX))], linger=1, observation=counts
    ).collect()
    assert [(row.entity, row.kind) for row in found] == [("a", "enter")]
    assert counts.get == {"fixes": 7, "skipped": 6}


def test_fixes_of_one_moment_are_taken_in_the_order_of_a_column(spark: SparkSession) -> None:
    rows = [
        {"entity": "a", "t": 0, "x": x, "y": 0.0, "n": n} for n, x in ((2, 5.0), (1, 0.0), (3, 3.0))
    ]
    fences = [("box", polygon(BOX))]
    for order, kinds in (("n", ["enter", "leave"]), (None, ["enter"])):
        found = geofence(frame(spark, rows), fences, order=order)
        assert sorted(row.kind for row in found.collect()) == kinds


def test_an_expired_fix_is_left_and_the_last_fix_ends_the_history(spark: SparkSession) -> None:
    rows = [
        {"entity": "a", "t": 0, "x": 5.0, "y": 0.0, "life": 2.0},
        {"entity": "b", "t": 1_000_000, "x": 5.0, "y": 0.0, "life": None},
        {"entity": "c", "t": 3_000_000, "x": 5.0, "y": 0.0, "life": 2.0},
    ]
    found = geofence(frame(spark, rows), [("box", polygon(BOX))], ttl="life", dwell=1.5)
    told = sorted((row.t, row.entity, row.kind, row.reason) for row in found.collect())
    assert told == [
        (0, "a", "enter", None), (1_000_000, "b", "enter", None), (1_500_000, "a", "dwell", None),
        (2_000_000, "a", "leave", "expired"), (2_500_000, "b", "dwell", None),
        (3_000_000, "c", "enter", None),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"x": "easting"}, "fixes have no column 'easting'; there are: entity, t, x, y"),
        ({"t": "x"}, "column 't' of fixes must be"),
        ({"lon": "x"}, "fixes on Earth need the columns lon and lat"),
        ({"alt": "x"}, "only fixes on Earth"),
        ({"lon": "x", "lat": "y", "z": "x"}, "fixes on Earth have a column alt, not z"),
        ({"keep": "name"}, "shapes have no properties to keep"),
        ({"events": "entry"}, "no event 'entry'"),
        ({"ttl": -1.0}, "ttl must be 0 or more seconds"),
        ({"lon": "x", "lat": "y"}, "fence 'box' is in a plane, the fixes are on Earth"),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(
    spark: SparkSession, given: dict[str, Any], why: str
) -> None:
    rows = spark.createDataFrame(pa.table({"entity": ["a"], "t": [0], "x": [0.0], "y": [0.0]}))
    with pytest.raises(ValueError, match=why.replace("'t'", "'[tx]'")):
        geofence(rows, [("box", polygon(BOX))], **given)


def test_a_stream_is_refused(spark: SparkSession) -> None:
    stream = spark.readStream.format("rate").load().selectExpr("value AS entity", "timestamp AS t")
    with pytest.raises(ColumnsError, match="must not be a stream"):
        geofence(stream, [("box", earth_polygon(BOX))])
