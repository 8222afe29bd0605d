"""Shapes and motions on Earth: who is inside by the geodesic, and where one is when."""

import sys
from itertools import pairwise
from math import dist, inf, nan

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pyproj import Geod

from nearcast.space.earth import (
    EQUATORIAL_RADIUS,
    MEAN_RADIUS,
    QUARTER_MERIDIAN,
    central_angle,
    chord_of,
    ecef,
    height_ratio,
    lon_lat,
    lon_lat_box,
)
from nearcast.space.earth_shapes import (
    earth_ball,
    earth_bounds,
    earth_disc,
    earth_point,
    great_circle_line,
    great_circle_path,
)
from nearcast.space.motion import LATEST, MOST_LEGS, SECOND, Moving, Path
from nearcast.space.outlines import BALL, CORRIDOR, POLYGON, SECTOR, WHOLE, Outline, pack
from nearcast.space.shapes import BOX, DISC, POINT, Shape, ShapeKind, Vector, ball, point
from support.examples import examples

WGS84 = Geod(ellps="WGS84")
LONS = st.floats(-180, 180) | st.sampled_from([0.0, 180.0, -180.0, 90.0])
LATS = st.floats(-90, 90) | st.sampled_from([0.0, 90.0, -90.0, 89.999999])
PLACES = st.tuples(LONS, LATS)


def centre(shape: Shape) -> Vector:
    return shape.x, shape.y, shape.z


def test_a_point_has_an_altitude_or_none() -> None:
    plain = earth_point(11.5, 48.1)
    assert (plain.kind, centre(plain), plain.outline) == (POINT, ecef(11.5, 48.1), None)
    high = earth_point(11.5, 48.1, 520)
    assert high.outline == Outline(WHOLE, earth=True, low=520.0, high=520.0)
    assert centre(high) == centre(plain)
    assert msgspec.json.decode(msgspec.json.encode(high)) is not None


def test_a_disc_is_a_ball_with_the_chord_and_perhaps_heights() -> None:
    plain = earth_disc(11.5, 48.1, 5_000)
    assert (plain.kind, plain.rx, plain.outline) == (DISC, chord_of(5_000, 48.1), None)
    assert earth_disc(0, 0, 9, low=-inf, high=inf).outline is None
    above = earth_disc(11.5, 48.1, 5_000, low=100).outline
    assert above == Outline(WHOLE, earth=True, low=100.0, high=inf)
    between = earth_disc(11.5, 48.1, 5_000, 0, 120).outline
    assert between == Outline(WHOLE, earth=True, low=0.0, high=120.0)


@given(PLACES, st.floats(-180, 180), st.floats(0.01, 1e6))
@examples(300)
def test_a_disc_has_the_places_that_the_geodesic_reaches(
    place: tuple[float, float], direction: float, metres: float
) -> None:
    """Over poles and antimeridian, within the error that `chord_of` states."""
    disc = earth_disc(*place, metres)
    slack = metres * 1e-5 + 1e-6
    inside = WGS84.fwd(*place, direction, metres - slack)[:2]
    outside = WGS84.fwd(*place, direction, metres + slack)[:2]
    assert disc.touches(earth_point(*inside))
    assert not disc.touches(earth_point(*outside))


def test_a_ball_has_its_height_and_its_size() -> None:
    drone = earth_ball(11.5, 48.1, 620, 300)
    assert (drone.kind, drone.rx) == (DISC, 300.0)
    assert drone.outline == Outline(BALL, earth=True, size=300.0, low=620.0, high=620.0)


@pytest.mark.parametrize(
    ("bounds", "first", "last"),
    [
        ((-10, 40, 20, 60), -10, 20),
        ((170, -10, -170, 10), 170, 190),
        ((-180, -90, 180, 90), -180, 180),
        ((2, 0, 1, 10), -358, 1),  # almost round the Earth
    ],
)
def test_bounds_are_a_polygon_in_its_box(
    bounds: tuple[float, float, float, float], first: float, last: float
) -> None:
    area = earth_bounds(*bounds, low=10)
    _, south, _, north = bounds
    assert area.kind == BOX
    assert area.outline is not None
    assert area.outline.form == POLYGON
    assert area.outline.earth
    assert area.outline.starts == (0,)
    assert (area.outline.low, area.outline.high) == (10.0, inf)
    ring = list(memoryview(area.outline.coordinates).cast("d"))
    assert ring == [first, south, last, south, last, north, first, north]
    low, high = lon_lat_box(*bounds)
    for here, extent, least, most in zip(
        centre(area), (area.rx, area.ry, area.rz), low, high, strict=True
    ):
        assert here - extent == pytest.approx(least, abs=1e-8)
        assert here + extent == pytest.approx(most, abs=1e-8)


@given(LONS, LATS, LONS, LATS, st.floats(0, 1), st.floats(0, 1))
@examples(200)
def test_the_box_of_bounds_has_all_their_places(
    west: float, a: float, east: float, b: float, u: float, v: float
) -> None:
    south, north = sorted((a, b))
    beyond = east + 360 if west > east else east
    assume(south < north and west < beyond)
    area = earth_bounds(west, south, east, north)
    lon, lat = min(west + u * (beyond - west), beyond), min(south + v * (north - south), north)
    plain = Shape(area.kind, area.x, area.y, area.z, area.rx, area.ry, area.rz)
    assert plain.touches(earth_point(lon - 360 if lon > 180 else lon, lat))


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: earth_point(200, 0), "a longitude must be within ±180 degrees, not 200"),
        (lambda: earth_point(0, nan), "a latitude must be within ±90 degrees, not nan"),
        (lambda: earth_point(0, 0, nan), "an altitude must be a number of metres, not nan"),
        (lambda: earth_point(0, 0, inf), "an altitude must be a number of metres, not inf"),
        (lambda: earth_disc(0, 99, 1), "a latitude must be within ±90 degrees, not 99"),
        (lambda: earth_disc(0, 0, -1), "a radius on Earth must be from 0 to"),
        (lambda: earth_disc(0, 0, QUARTER_MERIDIAN * 2), "half the globe"),
        (lambda: earth_disc(0, 0, 1, 5, 4), "the lower first, not 5, 4"),
        (lambda: earth_disc(0, 0, 1, nan), "the lower first, not nan, None"),
        (lambda: earth_disc(0, 0, 1, inf), "the lower first, not inf, None"),
        (lambda: earth_disc(0, 0, 1, None, -inf), "the lower first, not None, -inf"),
        (lambda: earth_ball(0, 0, inf, 1), "an altitude must be"),
        (lambda: earth_ball(0, 0, 0, nan), "a radius on Earth must be"),
        (lambda: earth_ball(-181, 0, 0, 1), "a longitude must be"),
        (lambda: earth_bounds(0, 0, 0, 1), "enclose no area"),
        (lambda: earth_bounds(0, 1, 1, 1), "enclose no area"),
        (lambda: earth_bounds(0, 2, 1, 1), "the southern latitude 2 is above"),
        (lambda: earth_bounds(0, 0, 1, 1, 3, 2), "the lower first"),
    ],
)
def test_what_is_no_shape_on_earth_is_refused(make: object, sentence: str) -> None:
    assert callable(make)
    with pytest.raises(ValueError, match=sentence):
        make()


def legs_of(way: Moving | Path) -> tuple[Moving, ...]:
    return (way,) if isinstance(way, Moving) else way.legs


def end_of(leg: Moving) -> Vector:
    return leg.centre(leg.until)


@given(PLACES, PLACES, st.floats(0.1, 1e5))
@examples(40)
def test_a_line_arrives_when_the_geodesic_says(
    start: tuple[float, float], end: tuple[float, float], speed: float
) -> None:
    """And its legs hang together. Up to 10,000 km, where the great circle is 20 m longer."""
    metres = WGS84.inv(*start, *end)[2]
    assume(metres < 1e7)
    way = great_circle_line(earth_point(*start), end, speed)
    legs = legs_of(way)
    assert len(legs) <= MOST_LEGS
    assert isinstance(way, Moving) == (len(legs) == 1)
    assert abs(legs[-1].until - metres / speed * SECOND) <= 20 / speed * SECOND + 1
    assert centre(legs[0].shape) == ecef(*start) or legs[0].duration == 0
    assert dist(end_of(legs[-1]), ecef(*end)) < 1e-6
    for leg, later in pairwise(legs):
        assert later.since == leg.until
        assert dist(end_of(leg), later.centre(later.since)) < 1e-6 or later.duration == 0


@pytest.mark.parametrize("kilometres", [0.5, 10, 900, 5_000, 10_000])
def test_how_far_a_leg_is_below_the_surface(kilometres: float) -> None:
    for start, direction in (((0.0, 0.0), 90.0), ((11.5, 48.1), 30.0), ((170.0, 80.0), -10.0)):
        end = WGS84.fwd(*start, direction, kilometres * 1000)[:2]
        way = great_circle_line(earth_point(*start), end, 250.0)
        depth = 0.0
        longest = 0.0
        for leg in legs_of(way):
            middle = leg.centre(leg.since + (leg.duration or 0) // 2)
            depth = max(depth, (1 - height_ratio(*middle)) * EQUATORIAL_RADIUS)
            longest = max(longest, dist(centre(leg.shape), end_of(leg)))
        sys.stdout.write(
            f"{kilometres:g} km: legs of {longest:.1f} m, {depth:.4f} m below the surface\n"
        )
        assert depth == pytest.approx(longest**2 / 8 / MEAN_RADIUS, rel=0.03, abs=1e-7)
        assert longest <= max(1_000, kilometres * 1.005)
        assert depth < (0.02 if kilometres <= 900 else 0.5 if kilometres <= 5_000 else 2)


def test_speed_is_along_the_surface() -> None:
    way = great_circle_line(earth_disc(0, 0, 500), (0, 80), 250.0)
    assert isinstance(way, Path)
    for seconds in (10, 1_000, 20_000):
        lon, lat = lon_lat(*way.centre(seconds * SECOND))
        travelled = WGS84.inv(0, 0, lon, lat)[2]
        assert travelled == pytest.approx(250 * seconds, abs=0.1)


def test_a_path_goes_through_its_waypoints_and_keeps_its_shape() -> None:
    stops = [(11.5, 48.1), (11.5, 48.1), (179.9, 60.0), (-179.9, 60.0)]
    disc = earth_disc(8.6, 50.0, 2_000, 100, 300)
    way = great_circle_path(disc, stops, 100)
    assert len(way.legs) <= MOST_LEGS
    assert all(leg.shape.outline == disc.outline for leg in way.legs)
    assert all(leg.shape.rx == disc.rx for leg in way.legs)
    ends = [end_of(leg) for leg in way.legs]
    for stop in stops:
        assert min(dist(end, ecef(*stop)) for end in ends) < 1e-6
    assert way.stamped(77).legs[-1].until == way.legs[-1].until + 77


def test_whole_microseconds_do_not_add_up() -> None:
    """Each leg takes 0.4 µs, so most of them take none, and the last arrives in time."""
    way = great_circle_line(earth_point(0, 0), (5, 0), 2.5e9)
    legs = legs_of(way)
    metres = WGS84.inv(0, 0, 5, 0)[2]
    assert legs[-1].until == round(metres / 2.5e9 * SECOND)
    assert {leg.duration for leg in legs} == {0, 1}


def test_a_line_to_where_it_is_has_arrived() -> None:
    way = great_circle_line(earth_point(5, 5), (5, 5), 1)
    assert isinstance(way, Moving)
    assert way.duration == 0
    assert way.centre(9) == ecef(5, 5)


def test_many_waypoints_share_the_legs() -> None:
    close = [(i / 1000, 0.0) for i in range(1, MOST_LEGS + 1)]
    assert len(great_circle_path(earth_point(0, 0), close, 1).legs) == MOST_LEGS
    apart = [(i / 10, 0.0) for i in range(1, 501)]  # 5,566 km, where each has a part to spare
    way = great_circle_path(earth_point(0, 0), apart, 1)
    assert 500 <= len(way.legs) <= MOST_LEGS
    round_the_world = [(120.0, 0.0), (-120.0, 0.0), (0.0, 0.0)]
    assert len(great_circle_path(earth_point(0, 0), round_the_world, 1).legs) <= MOST_LEGS


AT = earth_point(0, 0)


@pytest.mark.parametrize(
    ("shape", "waypoints", "speed", "sentence"),
    [
        (AT, [], 1, "a path has from 1 to 1000 waypoints, not 0"),
        (AT, [(1, 1)] * 1001, 1, "a path has from 1 to 1000 waypoints, not 1001"),
        (AT, [(1, 1, 1)], 1, "a place on Earth is a longitude and a latitude"),
        (AT, [(1, 91)], 1, "a latitude must be within"),
        (AT, [(1, nan)], 1, "a latitude must be within"),
        (AT, [(1, 1)], 0, "a speed must be above 0"),
        (AT, [(1, 1)], nan, "a speed must be above 0"),
        (AT, [(1, 1)], 1e-300, "it would take too long to arrive"),
        (AT, [(1, 1)], 1e5 / LATEST, "it would take too long to arrive"),
        (AT, [(180, 0)], 1, "opposite to longitude 0.000000, latitude 0.000000"),
        (AT, [(i % 2 * 50, 0) for i in range(1, 30)], 1, "this one is longer: divide it"),
        (AT, [(i % 2 * 5, 0) for i in range(1, 1001)], 1, "this one is longer: divide it"),
        (point(1, 2), [(1, 1)], 1, "is not on the surface of the Earth"),
        (ball(0, 0, 0, 5), [(1, 1)], 1, "is not on the surface of the Earth"),
        (earth_bounds(0, 0, 1, 1), [(1, 1)], 1, "polygons, corridors and sectors stay"),
    ],
)
def test_ways_that_are_none_are_refused(
    shape: Shape, waypoints: list[tuple[float, ...]], speed: float, sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        great_circle_path(shape, waypoints, speed)


@pytest.mark.parametrize(("form", "numbers"), [(POLYGON, 6), (CORRIDOR, 6), (SECTOR, 15)])
def test_outlines_with_coordinates_do_not_move(form: int, numbers: int) -> None:
    outline = Outline(form, True, pack([1.0] * numbers), (0,), 5.0)
    shape = Shape(ShapeKind.BOX, *ecef(0, 0), 5.0, 5.0, 5.0, outline)
    with pytest.raises(ValueError, match="stay where they are"):
        great_circle_line(shape, (1, 1), 1)


def test_balls_move_with_their_height() -> None:
    way = great_circle_line(earth_ball(0, 0, 120, 50), (0.001, 0), 10)
    assert legs_of(way)[0].shape.outline == Outline(BALL, True, size=50.0, low=120.0, high=120.0)


def test_the_longest_line_is_almost_to_the_opposite_place() -> None:
    way = great_circle_line(AT, (179.9, 0.05), 1_000)
    assert len(legs_of(way)) <= MOST_LEGS
    assert central_angle(centre(AT), end_of(legs_of(way)[-1])) > 3.13
