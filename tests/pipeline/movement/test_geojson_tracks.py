"""GeoJSON whose features have times."""

import json
from pathlib import Path
from typing import Any

import pytest

from support.movement_files import SECOND, PlainFix, read_movement

NOON = 1641211200
TEXT = "2022-01-03T12:00:00Z"


def write(folder: Path, *features: Any, **more: Any) -> Path:
    collection = {"type": "FeatureCollection", "features": features, **more}
    (folder / "walk.geojson").write_text(json.dumps(collection))
    return folder / "walk.geojson"


def feature(kind: str, coordinates: Any, **properties: Any) -> dict[str, Any]:
    geometry = {"type": kind, "coordinates": coordinates}
    return {"type": "Feature", "geometry": geometry, "properties": properties}


def test_lines_with_times_and_points_are_fixes(tmp_path: Path) -> None:
    fixes, found = read_movement(write(
        tmp_path,
        feature("LineString", [[8, 47], [9, 47, 30]], name="ann", entity=3, times=[NOON, NOON + 1]),
        feature("MultiPoint", [[179, 1], [-179, 1]], id="b", datetimes=[TEXT, NOON + 2],
                altitudes=[None, 40]),
        {**feature("Point", [1, 2], timestamp=TEXT), "id": "c"},
    ))  # fmt: skip
    assert fixes == [
        PlainFix("ann", NOON * SECOND, 8, 47), PlainFix("ann", (NOON + 1) * SECOND, 9, 47, 30.0),
        PlainFix("b", NOON * SECOND, 179, 1), PlainFix("b", (NOON + 2) * SECOND, -179, 1, 40.0),
        PlainFix("c", NOON * SECOND, 1, 2),
    ]  # fmt: skip
    assert found.skipped == 0


BAD: dict[str, Any] = {
    "neither Point": feature("Polygon", []),
    "it has no times": feature("LineString", [[1, 2]]),
    "1 positions and 2 times": feature("LineString", [[1, 2]], times=[1, 2]),
    "Expected `array`": feature("LineString", 5, times=[]),
    "Expected `float`": feature("Point", ["1", 2], t=1),
    "is no time": feature("Point", [1, 2], t="now"),
    "fewer than two numbers": feature("Point", [1], t=1),
    "beyond ±90": feature("Point", [1, 91], t=1),
    "missing required field `geometry`": {},
}


@pytest.mark.parametrize("why", BAD)
def test_a_bad_feature_is_skipped_and_counted(tmp_path: Path, why: str) -> None:
    file = write(tmp_path, feature("Point", [1, 2], t=5), BAD[why])
    fixes, found = read_movement(file)
    assert len(fixes) == found.skipped == 1
    assert why in found.first_skipped and "feature 1" in found.first_skipped


@pytest.mark.parametrize(("text", "why"), [
    ("{", "no GeoJSON FeatureCollection"), ('{"type": "Feature"}', "no GeoJSON FeatureColl"),
    ('{"type": "FeatureCollection", "features": []}', "no usable fixes"),
    ('{"type": "FeatureCollection", "features": [], "crs": null}', "places of a plane"),
])  # fmt: skip
def test_a_file_of_another_kind_is_refused(tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "walk.geojson").write_text(text)
    with pytest.raises(ValueError, match=why):
        read_movement(tmp_path / "walk.geojson")
