"""Fences as they are read, packed and sent."""

import pickle
import re
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from nearcast.fences.areas import Fence, columns_of
from nearcast.pipeline.geofence import packed_fences
from nearcast.pipeline.geofence.packed_fences import fences_of_shapes, read_fences
from nearcast.space.geojson import geojson_from_shape
from nearcast.space.motion import Moving
from nearcast.space.outline_shapes import corridor, earth_polygon, polygon
from nearcast.space.shapes import Shape, disc, point

SQUARE = [[(0.0, 0.0), (2.0, 0.0), (2.0, 2.0), (0.0, 2.0)]]
SHAPES: list[Shape] = [
    polygon(SQUARE), disc(5, 5, 1), corridor([(0, 0), (9, 0), (9, 9)], 0.5),
    polygon([[(0.0, 0.0), (9.0, 0.0), (0.0, 9.0)], [(1.0, 1.0), (2.0, 1.0), (1.0, 2.0)]]),
]  # fmt: skip


def feature(shape: Shape, **more: Any) -> dict[str, Any]:
    found = geojson_from_shape(shape)
    properties = {**found["properties"], **more.pop("properties", {})}
    return {**found, "properties": properties, **more}


def written(folder: Path, *features: Any, kind: str = "FeatureCollection") -> Path:
    file = folder / "fences.geojson"
    file.write_bytes(msgspec.json.encode({"type": kind, "features": features}))
    return file


def test_ids_and_properties_are_those_of_the_features(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        feature(SHAPES[0], id="harbour", properties={"name": "Harbour", "speed": 12}),
        feature(SHAPES[1], id=7, properties={"id": "other", "tags": ["a"]}),
        feature(SHAPES[2], properties={"id": "road", "name": None}),
        feature(SHAPES[3]),
    )
    found = read_fences(file, earth=False, keep=("name", "speed", "tags"))
    assert found.ids.to_pylist() == ["harbour", "7", "road", "3"]
    assert {name: column.to_pylist() for name, column in found.kept.items()} == {
        "name": ["Harbour", None, None, None],
        "speed": ["12", None, None, None],
        "tags": [None, '["a"]', None, None],
    }


@pytest.mark.parametrize("at_once", [1, 3, 100])
def test_columns_are_those_of_all_fences_however_many_are_read_at_once(
    at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packed_fences, "AT_ONCE", at_once)
    found = fences_of_shapes(list(enumerate(SHAPES)), earth=False)
    wanted = columns_of([Fence(n, Moving(shape)) for n, shape in enumerate(SHAPES)], 0)
    found.columns.areas["ring"][1] = 0  # a disc has none
    for column, due in zip(found.columns, wanted, strict=True):
        np.testing.assert_array_equal(column, due)


@pytest.mark.parametrize(
    ("features", "why"),
    [
        ([feature(point(1, 2), id="a")], "feature 0 ('a'): a Point needs the property radius"),
        ([feature(SHAPES[1]), 5], "feature 1: it is no Feature: Expected `object`, got `int`"),
        ([{"type": "Feature", "id": [1]}], "feature 0: it is no Feature"),
        ([{"type": "Feature", "geometry": None}], "feature 0: GeoJSON is an object"),
        ([feature(SHAPES[0], id=1), feature(SHAPES[1], id="1")], "two fences have the id '1'"),
    ],
)  # fmt: skip
def test_what_is_no_fence_is_named(features: list[Any], why: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=re.escape(why)):
        read_fences(written(tmp_path, *features), earth=False)


def test_what_is_no_collection_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no GeoJSON FeatureCollection: it is a 'Topology'"):
        read_fences(written(tmp_path, kind="Topology"), earth=False)
    for content in (b"", b"[]", b'{"type":"FeatureCollection"}', b"[" * 100_000, b"\xff"):
        (tmp_path / "other").write_bytes(content)
        with pytest.raises(ValueError, match="other is no GeoJSON FeatureCollection: "):
            read_fences(tmp_path / "other", earth=False)
    with pytest.raises(FileNotFoundError):
        read_fences(tmp_path / "absent", earth=False)


def test_shapes_must_be_where_the_fixes_are() -> None:
    with pytest.raises(ValueError, match="fence 'a' is on Earth, the fixes are in a plane"):
        fences_of_shapes([("a", earth_polygon(SQUARE))], earth=False)
    with pytest.raises(ValueError, match="fence 'a' is in a plane, the fixes are on Earth"):
        fences_of_shapes([("a", polygon(SQUARE))], earth=True)
    with pytest.raises(ValueError, match="fence 'a' must be a Shape, not str"):
        no_shape: Any = "b"
        fences_of_shapes([("a", no_shape)], earth=False)


def test_a_fence_is_sent_in_little_more_than_its_vertices() -> None:
    angles = np.linspace(0, 6, 36)
    ring = list(zip(np.cos(angles).tolist(), np.sin(angles).tolist(), strict=True))
    few, many = (
        len(pickle.dumps(fences_of_shapes([(n, polygon([ring])) for n in range(count)], False)))
        for count in (10, 60)
    )
    assert (many - few) / 50 < 36 * 16 + 256
