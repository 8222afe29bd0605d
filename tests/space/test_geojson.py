"""Shapes from and to GeoJSON."""

from typing import Any

import msgspec
import pytest

from nearcast.space.earth_shapes import earth_ball, earth_bounds, earth_disc, earth_point
from nearcast.space.geojson import geojson_from_shape, shape_from_geojson
from nearcast.space.outline_drawing import drawing_rings
from nearcast.space.outline_shapes import (
    corridor,
    earth_corridor,
    earth_multipolygon,
    earth_sector,
    multipolygon,
    polygon,
    sector,
)
from nearcast.space.outlines import numbers
from nearcast.space.shapes import EVERYWHERE, Shape, ball, box, cuboid, disc, point

SQUARE = [[0.0, 0.0], [9.0, 0.0], [9.0, 9.0], [0.0, 9.0]]
HOLE = [[1.0, 1.0], [1.0, 2.0], [2.0, 2.0]]
FAR = [[20.1, 0.3], [30.7, 0.1], [25.2, 8.8]]
PARTS = [[SQUARE, HOLE], [FAR]]


def same(one: Shape, other: Shape) -> bool:
    """But for the last digits."""

    def flat(shape: Shape) -> list[float]:
        o = shape.outline
        more = [] if o is None else [*numbers(o), *o.starts, o.form, o.size, o.low, o.high]
        return [shape.kind, shape.x, shape.y, shape.z, shape.rx, shape.ry, shape.rz, *more]

    return flat(one) == pytest.approx(flat(other), rel=1e-9, abs=1e-5)


@pytest.mark.parametrize(
    ("shape", "earth"),
    [
        (point(1, 2), False),
        (point(1, 2, 3), False),
        (disc(1, 2, 3), False),
        (ball(1, 2, 3, 4), False),
        (polygon([SQUARE, HOLE]), False),
        (multipolygon(PARTS, z=5, rz=1), False),
        (corridor([(0.1, 0.7), (3, 4), (7, 5)], 0.3), False),
        (sector(0.3, 0.4, 20, 50, 7), False),
        (earth_point(10, 50), True),
        (earth_point(10, 50, 300), True),
        (earth_disc(10, 50, 3000), True),
        (earth_disc(10, 50, 3000, low=5, high=5), True),
        (earth_ball(10, 50, 100, 3000), True),
        (earth_bounds(170, 0, -170, 10, high=500), True),
        (earth_multipolygon(PARTS, low=1), True),
        (earth_corridor([(10, 50), (10.01, 50)], 50), True),
        (earth_sector(10, 50, 20, 50, 7000, low=3, high=4), True),
    ],
)
def test_a_shape_comes_back(shape: Shape, earth: bool) -> None:
    feature = geojson_from_shape(shape, earth)
    sent = msgspec.json.decode(msgspec.json.encode(feature))
    assert same(shape_from_geojson(sent, earth), shape)


def test_a_box_comes_back_as_a_polygon() -> None:
    for shape in (box(1, 2, 3, 4), cuboid(1, 2, 3, 4, 5, 6)):
        back = shape_from_geojson(geojson_from_shape(shape), False)
        assert same(Shape(back.kind, back.x, back.y, back.z, back.rx, back.ry, back.rz), shape)
        assert drawing_rings(back) == drawing_rings(shape)


def test_geometries_and_features_are_read_alike() -> None:
    geometry = {"type": "Polygon", "coordinates": [[*SQUARE, SQUARE[0]]]}
    feature = {"type": "Feature", "geometry": geometry, "properties": None, "id": 7}
    assert shape_from_geojson(geometry, False) == shape_from_geojson(feature, False)
    assert shape_from_geojson(geometry, False) == polygon([SQUARE])


def test_the_width_of_a_line_is_twice_its_half_width() -> None:
    geometry = {"type": "LineString", "coordinates": [[0, 0], [1, 1]]}
    made = [
        shape_from_geojson({"type": "Feature", "geometry": geometry, "properties": p}, False)
        for p in ({"width": 4}, {"half_width": 2.0})
    ]
    assert made[0] == made[1] == corridor([(0, 0), (1, 1)], 2)


def test_rings_come_out_in_the_winding_of_the_standard() -> None:
    geometry = geojson_from_shape(multipolygon([[ring[::-1] for ring in part] for part in PARTS]))[
        "geometry"
    ]
    assert geometry["type"] == "MultiPolygon"
    assert [len(part) for part in geometry["coordinates"]] == [2, 1]
    assert all(ring[0] == ring[-1] for part in geometry["coordinates"] for ring in part)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({}, "not None"),
        ([], "object"),
        ({"type": "Feature"}, "object"),
        ({"type": "Feature", "geometry": None}, "object"),
        ({"type": "FeatureCollection", "features": []}, "FeatureCollection"),
        ({"type": "Point"}, "Point"),
        ({"type": "Point", "coordinates": [1]}, "Point"),
        ({"type": "Point", "coordinates": ["1", "2"]}, "Point"),
        ({"type": "LineString", "coordinates": [[0, 0], [1, 1]]}, "half_width"),
        ({"type": "Polygon", "coordinates": [SQUARE]}, "the last as the first"),
        ({"type": "Polygon", "coordinates": [[]]}, "4 or more"),
        ({"type": "Polygon", "coordinates": []}, "no ring"),
        ({"type": "MultiPolygon", "coordinates": []}, "part"),
        ({"type": "Polygon", "coordinates": SQUARE}, "Polygon"),
        (
            {
                "type": "Feature",
                "geometry": {"type": "Point", "coordinates": [0, 0]},
                "properties": {"radius": "wide"},
            },
            "radius",
        ),
    ],
)
def test_what_is_no_shape_is_refused(value: Any, message: str) -> None:
    for earth in (False, True):
        with pytest.raises(ValueError, match=message):
            shape_from_geojson(value, earth)


def test_what_has_no_place_cannot_be_written() -> None:
    with pytest.raises(ValueError, match="unbounded"):
        geojson_from_shape(EVERYWHERE)
    with pytest.raises(ValueError, match="no place on Earth"):
        geojson_from_shape(EVERYWHERE, earth=True)
