"""`nearcast geofence`, in this process with the Spark that all tests share."""

import json
from pathlib import Path

import msgspec
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from nearcast.cli.main import main
from nearcast.pipeline.importers import import_movement
from nearcast.space.geojson import geojson_from_shape
from nearcast.space.outline_shapes import polygon

BOX = polygon([[(4.0, -1.0), (6.0, -1.0), (6.0, 1.0), (4.0, 1.0)]])
WALK = "t,entity,x,y\n105,ann,5,0\n100,ann,0,0\n110,ann,10,0\n100,bob,5,1\n110,bob,5,1\n"


@pytest.fixture
def folder(tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("nearcast.pipeline.spark.session.start", lambda *_, **__: spark)
    monkeypatch.setattr(spark, "stop", lambda: None)
    monkeypatch.chdir(tmp_path)
    features = [{**geojson_from_shape(BOX), "id": "yard"}]
    collection = {"type": "FeatureCollection", "features": features}
    (tmp_path / "fences.geojson").write_bytes(msgspec.json.encode(collection))
    (tmp_path / "walk.csv").write_text(WALK)
    return tmp_path


def test_events_of_a_plane_keep_the_seconds_of_the_file(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["geofence", "fences.geojson", "walk.csv"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "5 fixes, 1 fences, 3 events",
        "events: 2 enter, 1 leave",
        "busiest fences: yard (3)",
        "all events in walk-events.parquet",
    ]
    rows = pq.read_table(folder / "walk-events.parquet").to_pylist()
    assert [(row["entity"], row["kind"], row["t"], row["fix_t"]) for row in rows] == [
        ("bob", "enter", 100.0, 100.0), ("ann", "enter", 104.0, 105.0),
        ("ann", "leave", 106.0, 110.0),
    ]  # fmt: skip
    assert main(["geofence", "fences.geojson", "walk.csv"]) == 2
    assert "walk-events.parquet exists already" in capsys.readouterr().err


def test_a_trace_has_the_events_of_the_file_that_it_is_made_of(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import_movement(folder / "walk.csv", folder / "walk", radius=3.0)
    asked = [
        "--events",
        "enter,leave,cross",
        "--dwell",
        "3",
        "--linger",
        "2",
        "--ttl",
        "8",
        "--json",
    ]
    told = {}
    for source, out in (("walk.csv", "a.csv"), ("walk", "b.csv")):
        assert main(["geofence", "fences.geojson", source, "--out", out, *asked]) == 0
        told[out] = json.loads(capsys.readouterr().out)
    assert told["b.csv"] == {**told["a.csv"], "out": "b.csv"}
    assert told["a.csv"]["events"] == {"enter": 3, "dwell": 2, "leave": 2}
    assert told["a.csv"]["read"]["fixes"] == 5
    ours, theirs = (pyarrow.csv.read_csv(folder / name).to_pylist() for name in told)
    shown = ("entity", "kind", "t", "x", "reason")
    moved = [{**row, "t": row["t"] - 100.0} for row in ours]  # a trace begins at 0
    assert [[row[n] for n in shown] for row in theirs] == [[row[n] for n in shown] for row in moved]


def test_a_folder_and_geojson_have_the_same_events_and_may_be_empty(folder: Path) -> None:
    for out in ("parts", "events.geojson"):
        assert main(["geofence", "fences.geojson", "walk.csv", "--out", out]) == 0
    assert pq.read_table(folder / "parts").num_rows == 3
    features = json.loads((folder / "events.geojson").read_text())["features"]
    assert features[0]["geometry"] == {"type": "Point", "coordinates": [5.0, 1.0]}
    assert [feature["properties"]["kind"] for feature in features] == ["enter", "enter", "leave"]
    (folder / "fences.geojson").write_text('{"type": "FeatureCollection", "features": []}')
    for out in ("no-parts", "none.geojson", "none.csv"):
        assert main(["geofence", "fences.geojson", "walk.csv", "--out", out]) == 0
    assert pq.read_table(folder / "no-parts").num_rows == 0
    assert json.loads((folder / "none.geojson").read_text())["features"] == []
    assert (folder / "none.csv").read_text().startswith('"fence","entity","kind","t"')


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["absent.geojson", "walk.csv"], "there is no absent.geojson"),
        (["fences.geojson", "absent.csv"], "there is no absent.csv"),
        (["fences.geojson", "absent.parquet"], "there is no absent.parquet"),
        (["walk.csv", "walk.csv"], "walk.csv is no GeoJSON FeatureCollection"),
        (["fences.geojson", "."], " holds neither a trace nor folders that do"),
        (["fences.geojson", "walk.csv", "--events", "arrive"], "no event 'arrive'"),
        (["fences.geojson", "walk.csv", "--dwell", "-1"], "dwell must be 0 or more seconds"),
        (["fences.geojson", "walk.csv", "--ttl", "nan"], "ttl must be 0 or more seconds"),
        (["fences.geojson", "walk.csv", "--channel", "a"], "which has no channels"),
    ],
)
def test_what_is_wrong_is_one_line(
    folder: Path, words: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["geofence", *words]) in (1, 2)
    told = capsys.readouterr().err
    assert why in told
    assert told.count("\n") == 1
    assert not list(folder.glob("*-events*"))
