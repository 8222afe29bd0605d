"""Areas and places on Earth: what a client writes is what a node reads, and what is refused."""

from math import dist
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from nearcast.client_protocol.earth_json import (
    altitude_outline,
    count_positions,
    degrees_of,
    earth_place_shape,
    line_length,
)
from nearcast.client_protocol.geometry_json import (
    EARTH,
    PLANE,
    Area,
    area_from_region,
    place_shape,
    publication_fields,
    region_from_area,
)
from nearcast.client_protocol.limits import (
    Limits,
    checked_region,
    earth_publication_shape,
    publication_shape,
)
from nearcast.client_protocol.messages import JSON, MSGPACK, Encoding, PublishRequest
from nearcast.errors import Refused
from nearcast.space.earth import ecef, height_ratio
from nearcast.space.earth_shapes import earth_disc, earth_point, great_circle_path
from nearcast.space.motion import SECOND, Moving, Path
from nearcast.space.outlines import numbers
from nearcast.space.shapes import Shape, ball, box, disc, point
from support.earth_areas import EarthAreas, PlaneAreas
from support.examples import examples

SQUARE: dict[str, Any] = {"type": "Polygon", "coordinates": [[[0, 0], [1, 0], [1, 1], [0, 0]]]}
LINE: dict[str, Any] = {"type": "LineString", "coordinates": [[0, 0], [1, 1]]}
longitudes, latitudes = st.floats(-180, 180), st.floats(-90, 90)


def through(encoding: Encoding, area: Area) -> Area:
    """An area as it arrives."""
    module: Any = msgspec.msgpack if encoding.binary else msgspec.json
    arrived: Area = module.decode(module.encode(area), type=Area)
    return arrived


def assert_same(one: Shape, other: Shape, within: float) -> None:
    assert one.kind == other.kind
    a, b = ((s.x, s.y, s.z, s.rx, s.ry, s.rz) for s in (one, other))
    assert max(abs(p - q) for p, q in zip(a, b, strict=True)) <= within
    if one.outline is None or other.outline is None:
        assert one.outline is other.outline
        return
    assert (one.outline.form, one.outline.low, one.outline.high, one.outline.starts) == (
        other.outline.form, other.outline.low, other.outline.high, other.outline.starts,
    )  # fmt: skip
    assert one.outline.size == pytest.approx(other.outline.size, abs=within)
    pairs = zip(numbers(one.outline), numbers(other.outline), strict=True)
    assert max((abs(p - q) for p, q in pairs), default=0.0) <= within


@pytest.mark.parametrize("encoding", [JSON, MSGPACK])
@pytest.mark.parametrize(("lon", "lat"), [(8.5, 47.4), (180, 0), (-179.9, -60), (0, 90), (30, -90)])
def test_a_node_reads_the_shape_on_earth_that_was_meant(
    encoding: Encoding, lon: float, lat: float
) -> None:
    areas = EarthAreas(Random(f"{lon} {lat}"), lon, lat)
    for _ in range(40):
        shape = areas.area()
        area = through(encoding, area_from_region(Moving(shape), EARTH))
        read = checked_region(area, Limits(), EARTH)
        assert isinstance(read, Moving)
        assert_same(read.shape, shape, 3e-6)  # boxes are a micrometre wider than they must be


@pytest.mark.parametrize("encoding", [JSON, MSGPACK])
def test_a_node_reads_the_shape_in_a_plane_that_was_meant(encoding: Encoding) -> None:
    areas = PlaneAreas(Random(1))
    for _ in range(100):
        shape = areas.area()
        for moving in (Moving(shape), Moving(shape, velocity=(1, 2, 0), duration=SECOND)):
            area = through(encoding, area_from_region(moving))
            read = checked_region(area, Limits(), PLANE)
            assert isinstance(read, Moving)
            assert_same(read.shape, shape, 1e-12)
            assert (read.velocity, read.duration) == (moving.velocity, moving.duration)


@given(longitudes, latitudes, st.none() | st.floats(-1000, 1e5), st.none() | st.floats(0, 1e6))
def test_a_node_reads_the_place_that_was_meant(
    lon: float, lat: float, alt: float | None, metres: float | None
) -> None:
    shape = earth_place_shape(lon, lat, alt, metres)
    read = place_shape(PublishRequest(**publication_fields(shape, EARTH)))
    assert_same(read, shape, 1e-6)
    fields = earth_publication_shape(PublishRequest(lon=lon, lat=lat, alt=alt, r=metres), Limits())
    assert fields == (shape.kind, shape.x, shape.y, shape.z, shape.rx, shape.ry, shape.rz)
    assert altitude_outline(alt) == shape.outline


@given(st.integers(-180_000_000, 180_000_000), st.integers(-89_000_000, 89_000_000))
def test_degrees_of_few_decimals_stay_as_they_are(lon: int, lat: int) -> None:
    given_degrees = lon / 1e6, lat / 1e6
    assert degrees_of(ecef(*given_degrees)) == given_degrees


@given(longitudes, latitudes)
def test_degrees_are_those_of_the_very_place(lon: float, lat: float) -> None:
    assert dist(ecef(*degrees_of(ecef(lon, lat))), ecef(lon, lat)) < 1e-8


WAYS = [
    [(9.0, 47.37), (9.0, 46.0), (12.0, 46.5)],
    [(8.54, 57.0)],
    [(-170.0, 50.0), (170.0, 60.0)],
    [(100.0, -10.0)],
]


@pytest.mark.parametrize("waypoints", WAYS)
def test_a_way_is_told_by_its_corners(waypoints: list[tuple[float, float]]) -> None:
    way = great_circle_path(earth_disc(8.54, 47.37, 500), waypoints, 250.0)
    area = area_from_region(way, EARTH)
    assert area.to is not None and len(area.to) == len(waypoints)
    read = region_from_area(through(JSON, area), EARTH)
    assert isinstance(read, Path)
    end = way.legs[-1].until
    for t in (0, end // 3, end // 2, end, end + SECOND):
        one, other = read.at(t), way.at(t)
        assert dist((one.x, one.y, one.z), (other.x, other.y, other.z)) < 0.1


def test_a_way_of_another_kind_has_no_area_on_earth() -> None:
    with pytest.raises(ValueError, match="follows great circles at one speed"):
        area_from_region(Moving(earth_disc(8, 47, 5), (100.0, 0, 0), duration=9 * SECOND), EARTH)


@pytest.mark.parametrize(
    ("area", "reason"),
    [
        (Area(x=1, y=2), "this world is the Earth: an area has lon and lat there, not x"),
        (Area(x=0, y=0), "this world is the Earth: an area has lon and lat there, not x and y"),
        (Area(lon=1, lat=2, z=3), "has alt there, not z"),
        (Area(lon=1, lat=2, rx=3, ry=3), "has r there, not rx"),
        (Area(lon=1, lat=2, r=3, vx=1), "has to and speed there, not vx"),
        (Area(lon=1, lat=2, r=3, gx=1), "a radius that stays there, not gx"),
        (Area(lon=1), "needs lon and lat"),
        (Area(lat=1), "either lon and lat, bounds or a geometry"),
        (Area(r=5), "either lon and lat, bounds or a geometry"),
        (Area(lon=1, lat=2, bounds=(1, 2, 3, 4)), "either lon and lat, bounds or a geometry"),
        (Area(bounds=(1, 2, 3, 4), r=5), "an area with bounds has no r beside it"),
        (Area(geometry=SQUARE, sector=(1, 2)), "an area with geometry has no sector beside it"),
        (Area(geometry=SQUARE, half_width=2), "only a LineString has a half_width"),
        (Area(geometry=LINE), "a LineString needs the property half_width"),
        (Area(lon=1, lat=2, half_width=3), "a half_width needs a geometry"),
        (Area(lon=1, lat=2, sector=(0, 9)), "a sector has a radius r"),
        (Area(lon=1, lat=2, low=3), "a place on Earth has alt, not low or high"),
        (Area(lon=1, lat=2, alt=3, r=9, low=3), "an area with alt is a ball"),
        (Area(lon=200, lat=2), "a longitude must be within"),
        (Area(lon=1, lat=91), "a latitude must be within"),
        (Area(lon=1, lat=2, r=1e9), "a radius on Earth must be"),
        (Area(lon=1, lat=2, speed=3), r"a speed needs a path \(to\)"),
        (Area(lon=1, lat=2, to=[[3, 4]]), "a path needs a speed"),
        (Area(lon=1, lat=2, to=[[3, 4, 5]], speed=1), "a longitude and a latitude"),
        (Area(geometry=SQUARE, to=[[3, 4]], speed=1), "stay where they are"),
        (Area(bounds=(1, 2, 3, 4), to=[[3, 4]], speed=1), "stay where they are"),
        (Area(formula="x > 3"), "a world on Earth has no formulas"),
        (Area(geometry={"type": "Circle"}), "not 'Circle'"),
        (Area(geometry={"type": "Polygon", "coordinates": [[["a"]]]}), "coordinates of a Polygon"),
        (Area(geometry={"type": "Feature", "geometry": 3}), "GeoJSON is an object with a type"),
    ],
)  # fmt: skip
def test_what_cannot_be_on_earth_is_refused_by_a_sentence(area: Area, reason: str) -> None:
    with pytest.raises((ValueError, Refused), match=reason):
        checked_region(area, Limits(), EARTH)


@pytest.mark.parametrize(
    ("area", "reason"),
    [
        (Area(lon=1, lat=2), "this world is a plane: an area has x and y there, not lon"),
        (Area(bounds=(1, 2, 3, 4)), "an area has x, y, rx and ry there, not bounds"),
        (Area(x=1, y=2, r=3, low=1), "an area has z and rz there, not low"),
        (Area(x=1, y=2, alt=3), "an area has z there, not alt"),
        (Area(x=1, y=2, geometry=SQUARE), "an area with a geometry has no x"),
        (Area(geometry=SQUARE, gx=1), "a shape with an outline does not grow"),
        (Area(geometry=SQUARE, half_width=2), "only a LineString has a half_width"),
        (Area(geometry=LINE, half_width=-2), "half-width"),
        (Area(x=1, y=2, sector=(0, 9)), "a sector has a radius r"),
        (Area(x=1, y=2, r=5, sector=(0, 999)), "an angle must be above 0"),
    ],
)
def test_what_cannot_be_in_a_plane_is_refused_by_a_sentence(area: Area, reason: str) -> None:
    with pytest.raises((ValueError, Refused), match=reason):
        checked_region(area, Limits(), PLANE)


def test_vertices_and_lengths_are_limited_before_anything_is_computed() -> None:
    ring = [[k, k * k] for k in range(1001)]
    many = {"type": "Polygon", "coordinates": [[*ring, ring[0]]]}
    with pytest.raises(Refused, match="an area has at most 1000 vertices"):
        checked_region(Area(geometry=many), Limits(), PLANE)
    feature = {"type": "Feature", "geometry": many, "properties": None}
    assert count_positions(feature) == 1002
    there_and_back = {"type": "LineString", "coordinates": [[0, 0], [40, 0]] * 2}
    assert line_length(there_and_back) == pytest.approx(3 * 40 * 111_319.5, rel=1e-3)
    with pytest.raises(Refused, match="a line on Earth is at most 5000 km long"):
        checked_region(Area(geometry=there_and_back, half_width=9), Limits(), EARTH)
    assert count_positions({"type": "Polygon", "coordinates": "no"}) == 0
    assert line_length({"type": "LineString", "coordinates": [[0, float("inf")]]}) == 0


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (PublishRequest(1, 2), "a publication has lon and lat there, not x"),
        (PublishRequest(lon=1), "a publication on Earth needs lon and lat"),
        (PublishRequest(), "a publication on Earth needs lon and lat"),
        (PublishRequest(lon=1, lat=2, rx=3, ry=4), "a publication has r there, not rx"),
        (PublishRequest(lon=1, lat=200), "a latitude must be within"),
    ],
)
def test_a_publication_on_earth_is_refused_by_a_sentence(
    request_: PublishRequest, reason: str
) -> None:
    with pytest.raises(ValueError, match=reason):
        earth_publication_shape(request_, Limits())


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (PublishRequest(lon=1, lat=2), "this world is a plane: a publication has x and y there"),
        (PublishRequest(1, 2, lat=3), "this world is a plane: a publication has x and y there"),
        (PublishRequest(1, 2, alt=3, r=1), "this world is a plane: a publication has z there"),
        (PublishRequest(1), "a publication needs x and y"),
        (PublishRequest(), "a publication needs x and y"),
    ],
)
def test_a_publication_in_a_plane_is_refused_by_a_sentence(
    request_: PublishRequest, reason: str
) -> None:
    with pytest.raises(ValueError, match=reason):
        publication_shape(request_, Limits())


def test_shapes_of_the_other_geometry_are_refused_where_they_are_written() -> None:
    for shape in (disc(0, 0, 5), box(0, 0, 1, 1)):
        with pytest.raises(ValueError, match="this world is the Earth"):
            area_from_region(Moving(shape), EARTH)
        with pytest.raises(ValueError, match="Earth"):
            publication_fields(shape, EARTH)
    with pytest.raises(ValueError, match="this world is a plane"):
        area_from_region(Moving(earth_point(1, 2, 3.0)))
    with pytest.raises(ValueError, match="this world is a plane: a publication has x and y there"):
        publication_fields(earth_point(1, 2, 3.0))


@given(longitudes, latitudes, st.floats(0, 1e6))
@examples(300)
def test_places_on_earth_are_refused_in_a_plane(lon: float, lat: float, metres: float) -> None:
    """Also those without a height, which are points and discs like others."""
    for shape in (earth_point(lon, lat), earth_disc(lon, lat, metres)):
        with pytest.raises(ValueError, match="this world is a plane: an area has x and y there"):
            area_from_region(Moving(shape))
        with pytest.raises(ValueError, match="this world is a plane: a publication has x and y"):
            publication_fields(shape)


def test_ways_on_earth_are_refused_in_a_plane() -> None:
    with pytest.raises(ValueError, match="this world is a plane: an area has x and y there"):
        area_from_region(great_circle_path(earth_disc(8, 47, 50), [(8.1, 47)], 20.0))


@given(st.floats(-1e7, 1e7), st.floats(-1e7, 1e7), st.sampled_from([0.0, 1.0, -4e6]))
@examples(300)
def test_places_of_a_plane_as_large_as_the_earth_are_none(x: float, y: float, z: float) -> None:
    assume(abs(height_ratio(x, y, z) - 1) > 1e-13)  # by more than a micrometre
    assert publication_fields(point(x, y, z))["x"] == x
    assert area_from_region(Moving(ball(x, y, z, 5))).x == x
