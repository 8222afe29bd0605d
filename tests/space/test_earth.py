"""WGS84: there and back, and distances, boxes and ways against pyproj's geodesics."""

import sys
from itertools import pairwise
from math import asin, degrees, dist, inf, nan
from random import Random

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from numba import njit
from pyproj import Geod, Transformer

from nearcast.space.earth import (
    BOX_MARGIN,
    EQUATORIAL_RADIUS,
    LEG,
    MEAN_RADIUS,
    MOST_VERTICES,
    POLAR_RADIUS,
    QUARTER_MERIDIAN,
    Ecef,
    arc_of,
    bearing,
    central_angle,
    chord_of,
    densify,
    ecef,
    great_circle,
    height_ratio,
    legs_between,
    lon_lat,
    lon_lat_box,
    require_lon_lat,
    tangent_plane,
    unwrap,
)
from support.examples import examples

WGS84 = Geod(ellps="WGS84")
LONS = st.one_of(
    st.floats(-180, 180),
    st.integers(-4, 4).map(lambda quarter: quarter * 45.0),
    st.sampled_from([1e-12, -1e-12, 179.9999999, -179.9999999]),
)
LATS = st.one_of(
    st.floats(-90, 90),
    st.sampled_from([0.0, 90.0, -90.0, 45.0, 89.9999999, -89.9999999, 1e-12]),
)
PLACES = st.tuples(LONS, LATS)
DIRECTIONS = st.floats(-180, 180)


def random_place(random: Random) -> tuple[float, float]:
    """Anywhere, with equal chances for equal areas."""
    return random.uniform(-180, 180), degrees(asin(random.uniform(-1, 1)))


def turn(a: float, b: float) -> float:
    """The angle between two directions, or longitudes, in degrees."""
    return abs((a - b + 180) % 360 - 180)


def dot(a: Ecef, b: Ecef) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))


def test_places_are_where_proj_has_them() -> None:
    proj = Transformer.from_crs("EPSG:4979", "EPSG:4978", always_xy=True)
    random = Random(1)
    for lon, lat in [*(random_place(random) for _ in range(1_000)), (0, 90), (0, -90), (180, 0)]:
        assert dist(ecef(lon, lat), proj.transform(lon, lat, 0.0)) < 1e-7


@given(PLACES)
@examples(300)
def test_there_and_back(place: tuple[float, float]) -> None:
    """Even at the poles the longitude stays: they are some 1e-10 metres wide."""
    lon, lat = lon_lat(*ecef(*place))
    require_lon_lat(lon, lat)
    assert abs(lon - place[0]) <= 1e-9
    assert abs(lat - place[1]) <= 1e-9


def test_numba_and_python_compute_the_same_bits() -> None:
    random = Random(2)
    compiled_ecef, compiled_lon_lat = njit(ecef), njit(lon_lat)
    compiled_plane = njit(tangent_plane)
    for _ in range(100_000):
        place = random_place(random)
        surface = ecef(*place)
        assert compiled_ecef(*place) == surface
        assert compiled_lon_lat(*surface) == lon_lat(*surface)
        assert compiled_plane(*place) == tangent_plane(*place)


def test_numba_and_python_compute_the_same_bits_at_the_ends() -> None:
    compiled_ecef, compiled_lon_lat = njit(ecef), njit(lon_lat)
    for lon in (-180.0, -90.0, -0.0, 0.0, 90.0, 180.0):
        for lat in (-90.0, -45.0, -0.0, 0.0, 90.0):
            surface = ecef(lon, lat)
            assert str(compiled_ecef(lon, lat)) == str(surface)  # tells 0 and -0 apart
            assert str(compiled_lon_lat(*surface)) == str(lon_lat(*surface))


@pytest.mark.parametrize(
    ("lon", "lat", "sentence"),
    [
        (180.1, 0, "a longitude must be within ±180 degrees, not 180.1"),
        (-540, 0, "a longitude must be within ±180 degrees, not -540"),
        (nan, 0, "a longitude must be within ±180 degrees, not nan"),
        (0, 90.5, "a latitude must be within ±90 degrees, not 90.5"),
        (0, -inf, "a latitude must be within ±90 degrees, not -inf"),
        (0, nan, "a latitude must be within ±90 degrees, not nan"),
    ],
)
def test_what_is_no_place_is_refused(lon: float, lat: float, sentence: str) -> None:
    with pytest.raises(ValueError) as refused:
        require_lon_lat(lon, lat)
    assert str(refused.value) == sentence


def test_the_border_of_degrees_is_accepted() -> None:
    require_lon_lat(-180, 90)
    require_lon_lat(180, -90)
    require_lon_lat(-360, 0, widest=360)


@pytest.mark.parametrize(
    ("metres", "percent"),
    [(1e3, 1e-4), (1e4, 1e-4), (1e5, 1e-4), (1e6, 1e-3), (QUARTER_MERIDIAN, 0.2)],
)
def test_a_chord_is_as_long_as_the_geodesic_says(metres: float, percent: float) -> None:
    random = Random(3)
    worst = 0.0
    for _ in range(2_000):
        lon, lat = random_place(random)
        there = WGS84.fwd(lon, lat, random.uniform(-180, 180), metres)[:2]
        error = dist(ecef(lon, lat), ecef(*there)) / chord_of(metres, lat) - 1
        worst = max(worst, abs(error))
    sys.stdout.write(f"chord of {metres / 1000:g} km: off by at most {worst:.7%}\n")
    assert worst * 100 < percent


@given(LATS, st.floats(0, QUARTER_MERIDIAN), st.floats(0, QUARTER_MERIDIAN))
@examples(100)
def test_a_longer_way_has_a_longer_chord(lat: float, a: float, b: float) -> None:
    """But for the last bits."""
    near, far = sorted((a, b))
    assert 0 <= chord_of(near, lat) <= chord_of(far, lat) * (1 + 1e-15) + 1e-300
    assert chord_of(far, lat) <= far * (1 + 1e-15) + 1e-300


@pytest.mark.parametrize("metres", [-1.0, nan, inf, QUARTER_MERIDIAN + 1])
def test_no_chord_beyond_half_the_globe(metres: float) -> None:
    with pytest.raises(ValueError, match="from 0 to 10001965 metres"):
        chord_of(metres, 0)


@given(PLACES)
@examples(100)
def test_east_and_north_are_as_on_a_map(place: tuple[float, float]) -> None:
    east, north = tangent_plane(*place)
    assert dot(east, east) == pytest.approx(1)
    assert dot(north, north) == pytest.approx(1)
    assert dot(east, north) == pytest.approx(0, abs=1e-12)
    here = ecef(*place)
    normal = (
        here[0] / EQUATORIAL_RADIUS**2,
        here[1] / EQUATORIAL_RADIUS**2,
        here[2] / POLAR_RADIUS**2,
    )
    assert dot(east, normal) * EQUATORIAL_RADIUS == pytest.approx(0, abs=1e-9)
    assert dot(north, normal) * EQUATORIAL_RADIUS == pytest.approx(0, abs=1e-9)
    assume(abs(place[1]) < 89.9)
    further = ecef(place[0], place[1] + 0.001)
    assert dot(north, further) > dot(north, here)
    assert dot(east, ecef(place[0] + 0.001, place[1])) > dot(east, here)


@given(PLACES, DIRECTIONS, st.floats(1, 1e6))
@examples(200)
def test_a_bearing_is_the_direction_of_the_geodesic(
    place: tuple[float, float], direction: float, metres: float
) -> None:
    assume(abs(place[1]) < 89.9999)  # at a pole every direction is south, or north
    there = WGS84.fwd(*place, direction, metres)[:2]
    way = bearing(ecef(*place), ecef(*there))
    assert 0 <= way < 360
    assert turn(way, direction) < 0.001


def test_bearings_of_the_four_directions() -> None:
    here = ecef(10, 0)
    assert bearing(here, here) == 0
    assert bearing(here, ecef(10, 1)) == 0
    assert bearing(here, ecef(11, 0)) == pytest.approx(90)
    assert bearing(here, ecef(10, -1)) == pytest.approx(180)
    assert bearing(here, ecef(9, 0)) == pytest.approx(270)
    assert bearing(ecef(0, 0), (EQUATORIAL_RADIUS, -1e-300, 1.0)) == 0  # not 360


@given(LONS, LATS, LONS, LATS, st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1))
@example(-180, -90, 180, 90, [(0, 0), (0.5, 0.5), (1, 1)])  # the Earth
@example(170, -10, -170, 10, [(0, 0), (0.5, 0.5), (1, 1)])  # across the antimeridian
@example(180, 0, -180, 0, [(0, 0), (1, 1)])  # a single place
@example(1e-113, 0, 1e-174, 1, [(0, 0), (1, 1)])  # round the Earth but for nothing
@examples(300)
def test_a_box_contains_what_is_between_meridians_and_parallels(
    west: float, a: float, east: float, b: float, parts: list[tuple[float, float]]
) -> None:
    south, north = sorted((a, b))
    low, high = lon_lat_box(west, south, east, north)
    west, beyond = unwrap(west, east)
    for u, v in [*parts, (0, 0), (1, 1)]:
        lon = min(west + u * (beyond - west), beyond)
        lat = min(south + v * (north - south), north)
        for there in (ecef(lon, lat), ecef((lon + 180) % 360 - 180, lat)):
            assert all(map(float.__le__, low, there))
            assert all(map(float.__le__, there, high))


@given(LONS, LATS, LONS, LATS)
@example(-180, -90, 180, 90)
@example(170, -10, -170, 10)
@example(-10, 60, 10, 90)
@example(80, -50, 100, -40)
@examples(100)
def test_every_side_of_a_box_is_touched(west: float, a: float, east: float, b: float) -> None:
    """The most that dense sampling can miss is a sagitta: half a degree between samples is 61 m,
    so the places where a side can be touched are sampled too."""
    south, north = sorted((a, b))
    low, high = lon_lat_box(west, south, east, north)
    west, beyond = unwrap(west, east)
    lons = [west, beyond, *(q for q in range(-360, 361, 90) if west <= q <= beyond)]
    lons += [west + (beyond - west) * i / 20 for i in range(21)]
    lats = [south, north, *([0.0] if south <= 0 <= north else [])]
    lats += [south + (north - south) * i / 20 for i in range(21)]
    places = [ecef(lon, lat) for lon in lons for lat in lats]
    for axis in range(3):
        values = [place[axis] for place in places]
        assert low[axis] <= min(values) <= low[axis] + 2 * BOX_MARGIN
        assert high[axis] - 2 * BOX_MARGIN <= max(values) <= high[axis]


def test_a_box_across_the_antimeridian_may_be_written_in_three_ways() -> None:
    assert lon_lat_box(170, 0, -170, 5) == lon_lat_box(170, 0, 190, 5)
    for side, other in zip(
        lon_lat_box(170, 0, -170, 5), lon_lat_box(-190, 0, -170, 5), strict=True
    ):
        assert dist(side, other) < 1e-7


@pytest.mark.parametrize(
    ("bounds", "sentence"),
    [
        ((0, 10, 1, 9), "the southern latitude 10 is above the northern one, 9"),
        ((0, -91, 1, 0), "a latitude must be within ±90 degrees, not -91"),
        ((0, 0, 1, nan), "a latitude must be within ±90 degrees, not nan"),
        ((-361, 0, 1, 1), "a longitude must be within ±360 degrees, not -361"),
        ((0, 0, nan, 1), "a longitude must be within ±360 degrees, not nan"),
        ((-200, 0, 180, 1), "no part of one way round"),
        ((200, 0, -170, 1), "no part of one way round"),
    ],
)
def test_bounds_that_are_none_are_refused(
    bounds: tuple[float, float, float, float], sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        lon_lat_box(*bounds)


@pytest.mark.parametrize(
    ("metres", "beside", "longer"), [(1e5, 1, 1e-4), (1e6, 80, 0.02), (1e7, 10_000, 20)]
)
def test_a_great_circle_is_near_the_geodesic(metres: float, beside: float, longer: float) -> None:
    random = Random(4)
    worst_beside, worst_longer = 0.0, 0.0
    for _ in range(60):
        start = random_place(random)
        direction = random.uniform(-180, 180)
        end = WGS84.fwd(*start, direction, metres)[:2]
        legs = 400
        places = [ecef(*start), *great_circle(ecef(*start), ecef(*end), legs)]
        length = sum(arc_of(dist(a, b)) for a, b in pairwise(places))
        worst_longer = max(worst_longer, length - metres)
        assert length > metres * (1 - 1e-8) - 1e-6  # the geodesic is the shortest way
        for place in places[50::100]:
            worst_beside = max(worst_beside, beside_geodesic(place, start, direction, metres))
    sys.stdout.write(
        f"{metres / 1000:g} km: {worst_beside:.3f} m beside, {worst_longer:.6f} m longer\n"
    )
    assert worst_beside < beside
    assert worst_longer < longer


def beside_geodesic(
    place: Ecef, start: tuple[float, float], direction: float, metres: float
) -> float:
    """How far a place is from the nearest one of the geodesic, by bisection in three parts."""
    low, high = 0.0, metres
    for _ in range(60):
        a, b = low + (high - low) / 3, high - (high - low) / 3
        to_a, to_b = (dist(place, ecef(*WGS84.fwd(*start, direction, s)[:2])) for s in (a, b))
        low, high = (low, b) if to_a < to_b else (a, high)
    return dist(place, ecef(*WGS84.fwd(*start, direction, low)[:2]))


@given(PLACES, PLACES, st.integers(1, 50))
@example((0.0, 0.0), (1e-167, 0.0), 2)
@example((0.0, 0.0), (1e-12, 0.0), 50)
@examples(200)
def test_legs_of_a_great_circle_are_on_the_surface_and_equal(
    start: tuple[float, float], end: tuple[float, float], legs: int
) -> None:
    a, b = ecef(*start), ecef(*end)
    angle = central_angle(a, b)
    assume(angle < 3.14159)
    places = great_circle(a, b, legs)
    assert len(places) == legs
    assert places[-1] == b
    lengths = [dist(p, q) for p, q in zip([a, *places], places, strict=False)]
    for place, length in zip(places, lengths, strict=True):
        assert height_ratio(*place) == pytest.approx(1, abs=1e-12)
        assert length <= angle * EQUATORIAL_RADIUS / legs * (1 + 1e-9) + 1e-8
    assert max(lengths) <= 1.007 * min(lengths) + 1e-6


def test_there_is_no_one_way_to_the_opposite_place() -> None:
    sentence = "longitude -170.000000, latitude -50.000000 is opposite to longitude 10.000000"
    with pytest.raises(ValueError, match=sentence):
        great_circle(ecef(10, 50), ecef(-170, -50), 10)
    assert len(great_circle(ecef(10, 50), ecef(-170, -49.9999), 10)) == 10


def test_a_line_is_divided_into_legs_of_a_kilometre() -> None:
    line = [(11.5, 48.1), (13.4, 52.5), (13.4, 52.5), (179.9, 60.0), (-179.9, 60.0), (0.0, 90.0)]
    places = densify(line)
    assert [ecef(*stop) in places for stop in line] == [True] * len(line)
    depth = 0.0
    for a, b in pairwise(places):
        assert dist(a, b) <= LEG
        middle = tuple((p + q) / 2 for p, q in zip(a, b, strict=True))
        depth = max(depth, (1 - height_ratio(*middle)) * EQUATORIAL_RADIUS)
    sys.stdout.write(f"segments of {LEG} m: {depth:.4f} m below the surface\n")
    assert depth < 0.0201
    assert depth == pytest.approx(LEG**2 / 8 / MEAN_RADIUS, rel=0.03)
    assert len(densify(line[:1])) == 1
    assert densify([]) == []


def test_a_line_that_is_too_long_or_nowhere_is_refused() -> None:
    with pytest.raises(ValueError, match=f"may have {MOST_VERTICES} vertices"):
        densify([(0, 0), (120, 0), (-120, 0)] * 3)
    with pytest.raises(ValueError, match="a latitude must be"):
        densify([(0, 0), (0, 91)])
    beyond, within = densify([(179, 0), (181, 0)]), densify([(179, 0), (-179, 0)])
    assert max(dist(a, b) for a, b in zip(beyond, within, strict=True)) < 1e-6


@given(st.floats(0, 3.14), st.floats(1, 1e8))
@examples(50)
def test_there_are_legs_enough(angle: float, metres: float) -> None:
    legs = legs_between(angle, metres)
    assert legs >= 1
    assert angle * EQUATORIAL_RADIUS / legs <= metres * (1 + 1e-12)
