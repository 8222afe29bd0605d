"""Features in bulk: rows as those of shapes that are read one by one, in the order of the texts."""

import json
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.fences import feature_areas
from nearcast.fences.areas import (
    Fence,
    FenceColumns,
    columns_of,
    join_columns,
    select_columns,
)
from nearcast.fences.feature_areas import areas_of_features
from nearcast.space.geojson import shape_from_geojson
from nearcast.space.motion import Moving
from support.examples import examples

RING = [[0.0, 0.0], [3.0, 0.0], [3.0, 3.0], [0.0, 3.0], [0.0, 0.0]]
HOLE = [[1.0, 1.0], [2.0, 1.0], [2.0, 2.0], [1.0, 1.0]]


def feature(kind: str, coordinates: Any, **properties: Any) -> dict[str, Any]:
    geometry = {"type": kind, "coordinates": coordinates}
    return {"type": "Feature", "geometry": geometry, "properties": properties}


FEATURES = [
    feature("Polygon", [RING]),
    feature("Polygon", [RING, HOLE], low=1, high=2, z=4, rz=1, colour="red"),
    feature("Polygon", [[[*place, 7.0] for place in RING]]),
    feature("Polygon", [[[*place, 7.0, 8.0] for place in RING]]),
    feature("MultiPolygon", [[RING], [[[x + 5, y] for x, y in RING]]]),
    feature("Point", [1, 2], radius=3),
    feature("LineString", [[0, 0], [0.1, 0.1]], width=2),
    feature("Polygon", [[*RING[:2], *RING[1:]]]),  # a vertex twice
    feature("Polygon", [RING, [[0.0, 0.0], [2.0, 1.0], [1.0, 2.0], [0.0, 0.0]]]),  # they touch
    {**feature("Polygon", [RING]), "properties": None},
]
REFUSED = [
    feature("Polygon", [[[0, 0], [1, 1], [1, 0], [0, 1], [0, 0]]]),
    feature("Polygon", [RING[:-1]]),
    feature("Polygon", []),
    feature("MultiPolygon", [[]]),
    feature("Polygon", [[[0], [1], [2], [0]]]),
    feature("Polygon", [RING], low="high", rz="high"),
    feature("Circle", RING),
    {"type": "Feature"},
]


def rows_of(columns: FenceColumns) -> list[Any]:
    """What each row is, wherever its vertices lie."""
    rows = []
    for area in columns.areas:
        flat = columns.coordinates[area["first"] : area["first"] + area["length"]]
        starts = columns.starts[area["ring"] : area["ring"] + area["rings"]]
        plain = area.copy()
        plain["first"] = plain["ring"] = 0
        rows.append((plain.tolist(), flat.tolist(), starts.tolist()))
    return rows


def wanted(features: list[dict[str, Any]], earth: bool) -> list[Any]:
    shapes = [shape_from_geojson(one, earth) for one in features]
    return rows_of(columns_of([Fence(0, Moving(shape)) for shape in shapes], 0))


def read(features: list[dict[str, Any]], earth: bool) -> tuple[list[Any], list[int]]:
    """Rows, and which places were read one by one."""
    alone: list[int] = []

    def read_one(place: int) -> Any:
        alone.append(place)
        return shape_from_geojson(features[place], earth)

    texts = [json.dumps(one).encode() for one in features]
    return rows_of(areas_of_features(texts, earth, read_one)), alone


@examples(60)
@given(st.lists(st.sampled_from(FEATURES), max_size=12), st.booleans(), st.integers(1, 5))
def test_rows_are_those_of_the_shapes_in_order(
    features: list[dict[str, Any]], earth: bool, at_once: int
) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(feature_areas, "AT_ONCE", at_once)
        assert read(features, earth)[0] == wanted(features, earth)


@pytest.mark.parametrize("earth", [False, True])
def test_plain_polygons_are_read_in_bulk_and_others_one_by_one(earth: bool) -> None:
    rows, alone = read(FEATURES, earth)
    assert rows == wanted(FEATURES, earth) and alone == [3, 5, 6, 7, 8]


@pytest.mark.parametrize("one", REFUSED)
def test_what_is_wrong_is_said_by_whoever_reads_one(one: dict[str, Any]) -> None:
    try:
        shape_from_geojson(one, True)
    except ValueError as refused:
        why = str(refused)
    with pytest.raises(ValueError, match=re.escape(why)):
        read([FEATURES[0], one, FEATURES[1]], True)


def test_more_vertices_than_allowed_are_read_one_by_one() -> None:
    text = json.dumps(FEATURES[0]).encode()
    with pytest.raises(ValueError, match="too many"):
        areas_of_features([text], False, lambda _: _too_many(), most_vertices=4)
    assert len(areas_of_features([text], False, lambda _: _too_many(), 5).areas) == 1


def _too_many() -> Any:
    raise ValueError("too many")


@examples(40)
@given(st.lists(st.integers(0, len(FEATURES) - 1), max_size=8))
def test_rows_are_selected_with_their_vertices(chosen: list[int]) -> None:
    shapes = [shape_from_geojson(one, False) for one in FEATURES]
    blocks = [columns_of([Fence(n, Moving(shape))], 0) for n, shape in enumerate(shapes)]
    everything = join_columns(blocks)
    some = select_columns(everything, np.array(chosen, np.int64))
    assert rows_of(some) == [rows_of(everything)[k] for k in chosen]
    assert len(some.coordinates) == some.areas["length"].sum()
