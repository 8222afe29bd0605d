"""Visits of ways to areas of every form: against many places on the way, and against shapely."""

import itertools
from math import hypot, nan

import numpy as np
import pytest
import shapely
from hypothesis import assume, given
from hypothesis import strategies as st

from nearcast.fences.areas import Fence, columns_of
from nearcast.fences.crossings import (
    contains,
    find_visits,
    place_on_way,
    spans_room,
    way_direction,
)
from nearcast.space.earth import ecef, lon_lat
from nearcast.space.earth_shapes import earth_ball, earth_bounds, earth_disc, earth_point
from nearcast.space.motion import Moving
from nearcast.space.outline_shapes import (
    corridor,
    earth_corridor,
    earth_polygon,
    earth_sector,
    polygon,
    sector,
)
from nearcast.space.outlines import POLYGON, WHOLE, Outline
from nearcast.space.shapes import Shape, ShapeKind, ball, box, cuboid, disc, point
from support.examples import examples

Place = tuple[float, float, float, float]
numbers = st.floats(-10, 10).map(lambda x: round(x, 3))
places = st.tuples(numbers, numbers)


def visits(shape: Shape, p0: Place, p1: Place) -> list[tuple[float, float]]:
    areas, coordinates, starts = columns_of([Fence(0, Moving(shape))], 0)
    spans = np.empty((spans_room(areas), 2))
    inside = [bool(contains(areas[0], coordinates, starts, p)) for p in (p0, p1)]
    count = find_visits(areas[0], coordinates, starts, p0, p1, *inside, spans)
    return [(low, high) for low, high in spans[:count].tolist()]


def at_place(place: Place) -> Shape:
    x, y, z, height = place
    outline = None if np.isnan(height) else Outline(WHOLE, True, low=height, high=height)
    return Shape(ShapeKind.POINT, x, y, z, outline=outline)


def check_visits(shape: Shape, p0: Place, p1: Place, count: int = 300) -> None:
    """What lies between is inside where visits say so, but for rounding at their ends."""
    spans = visits(shape, p0, p1)
    assert spans == sorted(spans)
    area = columns_of([Fence(0, Moving(shape))], 0).areas[0]
    for s in np.linspace(0, 1, count).tolist():
        if all(abs(s - end) > 1e-7 for span in spans for end in span):
            x, y, z = place_on_way(area, p0, p1, s)
            expected = any(low < s < high for low, high in spans)
            height = p0[3] + s * (p1[3] - p0[3])
            assert shape.touches(at_place((x, y, z, height))) == expected, s
    assert bool(spans and spans[0][0] == 0.0) >= shape.touches(at_place(p0))
    assert bool(spans and spans[-1][1] == 1.0) >= shape.touches(at_place(p1))


def flat(place: tuple[float, float]) -> Place:
    x, y = map(float, place)  # for whole numbers, all kernels would be compiled once more
    return x, y, 0.0, nan


convex = st.one_of(
    st.builds(disc, numbers, numbers, st.floats(0.1, 8)),
    st.builds(box, numbers, numbers, st.floats(0, 8), st.floats(0, 8)),
    st.builds(sector, numbers, numbers, st.floats(0, 359), st.floats(1, 360), st.floats(0.5, 9)),
    st.lists(places, min_size=2, max_size=5, unique=True)
    .filter(lambda line: all(hypot(a[0] - b[0], a[1] - b[1]) > 0.01
                             for a, b in itertools.pairwise(line)))
    .flatmap(lambda line: st.builds(corridor, st.just(line), st.floats(0.1, 4))),
)  # fmt: skip


@given(convex, places, places)
@examples(300)
def test_discs_boxes_sectors_and_corridors(
    shape: Shape, p: tuple[float, float], q: tuple[float, float]
) -> None:
    check_visits(shape, flat(p), flat(q))


@given(st.lists(st.floats(0.2, 1.0), min_size=3, max_size=12), st.booleans(), places, places)
@examples(150)
def test_polygons_with_holes_against_shapely(
    radii: list[float], holed: bool, p: tuple[float, float], q: tuple[float, float]
) -> None:
    angles = np.arange(len(radii)) * 2 * np.pi / len(radii)
    outer = 9 * np.array(radii)[:, None] * np.c_[np.cos(angles), np.sin(angles)]
    rings = [outer.tolist()] + ([(outer * 0.4).tolist()] if holed else [])
    shape = polygon(rings)
    check_visits(shape, flat(p), flat(q), 100)
    length = hypot(q[0] - p[0], q[1] - p[1])
    inside = shapely.LineString([p, q]).intersection(shapely.Polygon(rings[0], rings[1:])).length
    ours = sum(high - low for low, high in visits(shape, flat(p), flat(q))) * length
    assert ours == pytest.approx(inside, abs=1e-6)


@given(st.tuples(numbers, numbers, numbers), st.tuples(numbers, numbers, numbers))
@examples(60)
def test_space_of_three_dimensions(p: tuple[float, ...], q: tuple[float, ...]) -> None:
    square = [[(-4, -4), (4, -4), (4, 4), (0, 0), (-4, 4)]]
    for shape in (ball(1, 1, 1, 5), cuboid(0, 1, 2, 3, 4, 5), polygon(square, 1.0, 3.0)):
        check_visits(shape, (*p, nan), (*q, nan))


degrees = st.tuples(st.floats(-12, 12), st.floats(-12, 12))
HEIGHTS = st.sampled_from([nan, 0.0, 50.0, 150.0])


@given(degrees, degrees, st.sampled_from([0.0, 170.0, -175.0, 90.0]),
       st.sampled_from([0.0, 60.0, -70.0]), HEIGHTS, HEIGHTS)  # fmt: skip
@examples(100)
def test_areas_on_earth(
    p: tuple[float, float], q: tuple[float, float], east: float, north: float, h0: float, h1: float
) -> None:
    """Also across the antimeridian. Both ends have a height, or none has."""
    h1 = nan if np.isnan(h0) else h1 if not np.isnan(h1) else h0

    def moved(lon: float, lat: float) -> tuple[float, float]:
        return lon + east, lat + north

    def wrapped(lon: float, lat: float) -> tuple[float, float]:
        return (lon + 180.0) % 360.0 - 180.0, lat

    rings = [[moved(-8, -8), moved(9, -7), moved(3, 0), moved(8, 8), moved(-7, 9)]]
    lon, lat = wrapped(*moved(1, 1))
    low, high = wrapped(*moved(-5, -5)), wrapped(*moved(6, 4))
    p0 = (*ecef(*wrapped(*moved(*p))), h0)
    p1 = (*ecef(*wrapped(*moved(*q))), h1)
    for shape in (
        earth_polygon(rings), earth_polygon(rings, 20.0, 100.0),
        earth_bounds(low[0], low[1], high[0], high[1]),
    ):  # fmt: skip
        check_visits(shape, p0, p1, 60)
    for shape in (
        earth_disc(lon, lat, 400_000.0), earth_disc(lon, lat, 400_000.0, 20.0, 100.0),
        earth_ball(lon, lat, 60.0, 300_000.0), earth_sector(lon, lat, 40.0, 100.0, 500_000.0),
        earth_corridor([wrapped(*moved(-3, 0)), wrapped(*moved(4, 1))], 90_000.0),
    ):  # fmt: skip
        check_visits(shape, p0, p1, 60)


def test_without_a_height_nobody_is_in_an_area_with_heights() -> None:
    shape = earth_disc(0, 0, 1000, 0, 100)
    here, beyond = ecef(-0.02, 0), ecef(0.02, 0)
    assert visits(shape, (*here, nan), (*beyond, nan)) == []
    assert len(visits(shape, (*here, 50.0), (*beyond, 50.0))) == 1
    assert visits(shape, (*ecef(0, 0), 50.0), (*ecef(0, 0), nan)) == [(0.0, 0.0)]


def test_touching_is_being_inside() -> None:
    square = polygon([[(0, 0), (2, 0), (2, 2), (0, 2)]])
    assert visits(square, flat((-1, 3)), flat((1, 1))) == [(0.5, 1.0)]  # through the corner
    assert visits(square, flat((-1, 1)), flat((1, 3))) == [(0.5, 0.5)]  # only the corner
    assert visits(square, flat((-2, 2)), flat((6, 2))) == [(0.25, 0.5)]  # along an edge
    assert visits(disc(0, 0, 1), flat((-1, 1)), flat((1, 1))) == [(0.5, 0.5)]
    assert visits(box(1, 1, 1, 1), flat((-1, 1)), flat((1, 3))) == [(0.5, 0.5)]


def test_a_way_through_a_notch_leaves_and_enters() -> None:
    notched = polygon([[(0, 0), (4, 0), (4, 4), (2, 1), (0, 4)]])
    assert visits(notched, flat((-4, 2.5)), flat((6, 2.5))) == [(0.4, 0.5), (0.7, 0.8)]


def test_a_way_over_the_antimeridian_is_the_short_one() -> None:
    bounds = earth_bounds(179, -1, -179, 1)
    ((low, high),) = visits(bounds, (*ecef(178, 0), nan), (*ecef(-178, 0), nan))
    assert (low, high) == pytest.approx((0.25, 0.75))
    elsewhere = earth_bounds(-1, -1, 1, 1)
    assert visits(elsewhere, (*ecef(178, 0), nan), (*ecef(-178, 0), nan)) == []


@pytest.mark.parametrize("lat", [90, -90])
def test_a_way_to_a_pole_follows_its_meridian(lat: int) -> None:
    """A pole has no longitude, and what rounding leaves of one decides nothing."""
    west, east = earth_bounds(-100, -80, -90, 80), earth_bounds(80, -80, 90, 80)
    pole, begin = (*ecef(12.0, lat), nan), (*ecef(-95, 0), nan)
    for way, expected in (((begin, pole), (0, 8 / 9)), ((pole, begin), (1 / 9, 1))):
        assert visits(west, *way) == [pytest.approx(expected)]
        assert visits(east, *way) == []


def test_directions() -> None:
    assert way_direction(False, flat((0, 0)), flat((0, 1))) == 90.0
    assert np.isnan(way_direction(False, flat((1, 1)), flat((1, 1))))
    north = way_direction(True, (*ecef(5, 5), nan), (*ecef(5, 5.1), nan))
    assert min(north, 360 - north) < 1e-6
    assert way_direction(True, (*ecef(5, 0), nan), (*ecef(5.1, 0), nan)) == pytest.approx(90.0)


@given(places, places)
@examples(20)
def test_the_place_on_a_way_on_earth_is_on_the_surface(
    p: tuple[float, float], q: tuple[float, float]
) -> None:
    assume(p != q)
    area = columns_of([Fence(0, Moving(earth_bounds(-1, -1, 1, 1)))], 0).areas[0]
    assert area["form"] == POLYGON
    p0, p1 = earth_point(*p), earth_point(*q)
    place = place_on_way(area, (p0.x, p0.y, p0.z, nan), (p1.x, p1.y, p1.z, nan), 0.25)
    lon, lat = lon_lat(*place)
    assert lon == pytest.approx(p[0] + 0.25 * (q[0] - p[0]), abs=1e-9)
    assert lat == pytest.approx(p[1] + 0.25 * (q[1] - p[1]), abs=1e-9)
    assert at_place((*place, nan)).touches(point(*place))
