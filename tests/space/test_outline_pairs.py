"""Pairs of shapes with outlines: shapely is the oracle in the plane, dense sampling on Earth."""

from collections.abc import Callable
from math import atan2, cos, inf, pi, sin
from random import Random

import pytest
import shapely
from hypothesis import assume, given
from hypothesis import strategies as st

from nearcast.space.earth import DEGREE, ecef, lon_lat
from nearcast.space.earth_shapes import earth_ball, earth_bounds, earth_disc, earth_point
from nearcast.space.outline_drawing import drawing_rings
from nearcast.space.outline_shapes import (
    corridor,
    earth_corridor,
    earth_polygon,
    earth_sector,
    multipolygon,
    polygon,
    sector,
)
from nearcast.space.shapes import EVERYWHERE, Shape, ball, box, cuboid, disc, point
from support.examples import examples

UNDECIDED = 2e-3  # as far from a border as the oracle's arcs may be wrong
SQUARE = [(0.0, 0.0), (4.0, 0.0), (4.0, 4.0), (0.0, 4.0)]
HOLE = [(1.0, 1.0), (3.0, 1.0), (3.0, 3.0), (1.0, 3.0)]
FRAME = polygon([SQUARE, HOLE])
Pair = tuple[Shape, shapely.Geometry]


def star(random: Random, x: float, y: float, size: float) -> list[tuple[float, float]]:
    n = random.randint(3, 9)
    return [
        (x + r * cos(2 * pi * k / n), y + r * sin(2 * pi * k / n))
        for k, r in ((k, size * random.uniform(0.2, 1)) for k in range(n))
    ]


def polygon_pair(random: Random, x: float, y: float) -> Pair:
    ring = star(random, x, y, 3.0)
    holes = [[(x + (u - x) / 2, y + (v - y) / 2) for u, v in ring]] if random.random() < 0.5 else []
    return polygon([ring, *holes]), shapely.Polygon(ring, holes)


def multipolygon_pair(random: Random, x: float, y: float) -> Pair:
    rings = [star(random, x + 3 * k, y, 1.4) for k in range(2)]
    return (
        multipolygon([[ring] for ring in rings]),
        shapely.MultiPolygon([(ring, []) for ring in rings]),
    )


def corridor_pair(random: Random, x: float, y: float) -> Pair:
    spread = [random.uniform(-3, 3) for _ in range(8)]
    line = [(x + u, y + v) for u, v in zip(spread[::2], spread[1::2], strict=True)]
    half_width = random.uniform(0.1, 1)
    return corridor(line, half_width), shapely.LineString(line).buffer(half_width, 128)


def sector_pair(random: Random, x: float, y: float) -> Pair:
    direction, angle, size = (
        random.uniform(-360, 360),
        random.uniform(1, 359),
        random.uniform(0.5, 3),
    )
    turns = [(direction + angle * (k / 400 - 0.5)) * pi / 180 for k in range(401)]
    arc = [(x + size * cos(turn), y + size * sin(turn)) for turn in turns]
    return sector(x, y, direction, angle, size), shapely.Polygon([(x, y), *arc])


def disc_pair(random: Random, x: float, y: float) -> Pair:
    r = random.uniform(0.1, 2)
    return disc(x, y, r), shapely.Point(x, y).buffer(r, 128)


def box_pair(random: Random, x: float, y: float) -> Pair:
    rx, ry = random.uniform(0, 2), random.uniform(0, 2)
    return box(x, y, rx, ry), shapely.box(x - rx, y - ry, x + rx, y + ry)


def point_pair(_: Random, x: float, y: float) -> Pair:
    return point(x, y), shapely.Point(x, y)


OUTLINED = [polygon_pair, multipolygon_pair, corridor_pair, sector_pair]
ALL = [*OUTLINED, disc_pair, box_pair, point_pair]


@pytest.mark.parametrize("one", OUTLINED)
@pytest.mark.parametrize("other", ALL)
@examples(100)
@given(st.integers(0, 2**32), st.floats(-6, 6), st.floats(-6, 6))
def test_shapes_touch_where_shapely_says_so(
    one: Callable[..., Pair], other: Callable[..., Pair], seed: int, x: float, y: float
) -> None:
    random = Random(seed)
    shape, geometry = one(random, 0.3, -0.2)
    another, other_geometry = other(random, x, y)
    apart = geometry.distance(other_geometry)
    if apart == 0:
        common = geometry.intersection(other_geometry)
        # Something must be left of it without the parts that arcs may add or lose.
        assume(not common.buffer(-UNDECIDED).is_empty or other is point_pair)
        if other is point_pair:
            assume(geometry.boundary.distance(other_geometry) > UNDECIDED)
    else:
        assume(apart > UNDECIDED)
    assert shape.touches(another) == (apart == 0)
    assert another.touches(shape) == (apart == 0)


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (point(0, 0), True),
        (point(1, 1), True),  # the border of the hole
        (point(2, 2), False),
        (point(0.5, 2), True),
        (disc(2, 2, 1), True),
        (disc(2, 2, 0.999), False),
        (disc(-1, 2, 1), True),
        (disc(-1, 2, 0.999), False),
        (disc(-3, -4, 5), True),
        (disc(2, 2, 9), True),
        (box(2, 2, 1, 1), True),
        (box(2, 2, 0.99, 1), True),
        (box(2, 2, 0.99, 0.99), False),
        (box(2, 2, 9, 9), True),
        (box(5, 5, 1, 1), True),
        (box(5, 5, 0.99, 1), False),
        (box(2, 2, inf, 0.5), True),
        (EVERYWHERE, True),
        (polygon([[(4, 4), (5, 4), (5, 5)]]), True),
        (polygon([HOLE]), True),
        (polygon([[(1.5, 1.5), (2, 1.5), (2, 2)]]), False),
        (polygon([[(-9, -9), (9, -9), (9, 9), (-9, 9)]]), True),
        (polygon([[(-9, -9), (9, -9), (9, 9), (-9, 9)], [(-1, -1), (5, -1), (5, 5), (-1, 5)]]), 0),
        (corridor([(2, 1.75), (2, 2.25)], 0.75), True),
        (corridor([(2, 1.75), (2, 2.25)], 0.7499), False),
        (corridor([(-9, 2), (9, 2)], 0.1), True),
        (sector(2, 2, 0, 90, 0.99), False),
        (sector(2, 2, 0, 90, 1), True),
        (sector(2, 2, 45, 10, 1.305), False),  # towards a corner: 1 / cos(40°)
        (sector(2, 2, 45, 10, 1.306), True),
        (sector(5, 2, 0, 90, 9), False),
        (sector(5, 2, 180, 90, 1), True),
    ],
)
def test_borders_are_closed(other: Shape, expected: bool) -> None:
    assert FRAME.touches(other) == expected
    assert other.touches(FRAME) == expected


def test_a_sector_touches_another_by_arcs_alone() -> None:
    one = sector(0, 0, 0, 90, 1)
    assert one.touches(sector(2, 0, 180, 90, 1))
    assert not one.touches(sector(2.01, 0, 180, 90, 1))
    assert not one.touches(sector(2, 0, 0, 90, 1))
    assert one.touches(sector(1.9, 0, 180, 20, 1))
    assert sector(0, 0, 0, 360, 5).touches(sector(1, 1, 0, 20, 1))


def test_an_outline_in_space_is_a_prism() -> None:
    prism = polygon([SQUARE], z=10, rz=2)
    assert prism.touches(point(1, 1, 12)) and not prism.touches(point(1, 1, 12.1))
    assert prism.touches(ball(1, 1, 13, 1)) and not prism.touches(ball(1, 1, 13.1, 1))
    assert prism.touches(cuboid(1, 1, 13, 1, 1, 1))
    # Beside the edge, above the top: 3-4-5.
    assert prism.touches(ball(-3, 1, 16, 5)) and not prism.touches(ball(-3.01, 1, 16, 5))


# On Earth.

PLACES = st.tuples(st.floats(-180, 180), st.floats(-84, 84))


def sampled_edges(shape: Shape, steps: int = 400) -> list[tuple[float, float, float]]:
    (ring,) = drawing_rings(shape)
    return [
        ecef(ax + (bx - ax) * k / steps, ay + (by - ay) * k / steps)
        for (ax, ay), (bx, by) in zip(ring, ring[1:] + ring[:1], strict=True)
        for k in range(steps)
    ]


@examples(60)
@given(PLACES, st.floats(0.1, 3), st.floats(-4, 4), st.floats(-4, 4), st.floats(1e3, 3e5))
def test_a_disc_touches_a_polygon_on_earth(
    place: tuple[float, float], size: float, dx: float, dy: float, metres: float
) -> None:
    lon, lat = place
    area = earth_polygon([[(lon, lat), (lon + size, lat), (lon + size / 3, lat + size)]])
    round_one = earth_disc((lon + dx + 180) % 360 - 180, min(max(lat + dy, -89), 89), metres)
    middle = round_one.x, round_one.y, round_one.z
    apart = min(
        sum((a - b) ** 2 for a, b in zip(middle, vertex, strict=True)) ** 0.5
        for vertex in sampled_edges(area)
    )
    inside = area.touches(earth_point(*lon_lat(*middle)))
    assume(inside or abs(apart - round_one.rx) > 500)
    assert area.touches(round_one) == (inside or apart <= round_one.rx)
    assert round_one.touches(area) == area.touches(round_one)


def test_a_polygon_on_earth_may_lie_across_the_antimeridian() -> None:
    pacific = earth_polygon([[(170, -10), (190, -10), (190, 10), (170, 10)]])
    assert pacific.touches(earth_bounds(-175, -5, -170, 5))
    assert pacific.touches(earth_polygon([[(-200, 0), (-185, 0), (-185, 5)]]))
    assert not pacific.touches(earth_bounds(-169, -5, -160, 5))
    assert pacific.touches(earth_disc(-168, 0, 230_000))
    assert not pacific.touches(earth_disc(-168, 0, 220_000))
    assert pacific.touches(earth_corridor([(-160, 0), (-169.99, 0)], 1200))
    assert not pacific.touches(earth_corridor([(-160, 0), (-169.99, 0)], 1000))
    assert pacific.touches(earth_corridor([(160, 0), (-160, 0)], 1))


def test_polygons_that_touch_a_pole_touch_each_other() -> None:
    one, other = (
        earth_polygon([[(lon, 80), (lon + 10, 80), (lon + 10, 90), (lon, 90)]]) for lon in (0, 90)
    )
    assert one.touches(other)
    assert one.touches(earth_disc(-160, 89.9, 20_000))
    assert not one.touches(earth_disc(-160, 89.9, 10_000))


def test_corridors_and_discs_on_earth_measure_in_metres() -> None:
    road = earth_corridor([(10, 50), (11, 50), (11, 51)], 1000)
    assert road.touches(earth_disc(11.1, 50.5, 7000))
    assert not road.touches(earth_disc(11.1, 50.5, 6000))
    assert road.touches(earth_corridor([(10.5, 49), (10.5, 51.5)], 1))
    assert not road.touches(earth_corridor([(10.5, 51), (10.5, 51.5)], 1))
    assert road.touches(earth_point(11.01, 50.5)) and not road.touches(earth_point(11.02, 50.5))


@examples(60)
@given(PLACES, st.floats(0, 360), st.floats(5, 355), st.floats(-3, 3), st.floats(-3, 3))
def test_a_sector_on_earth_meets_discs_as_it_meets_points(
    apex: tuple[float, float], direction: float, angle: float, dx: float, dy: float
) -> None:
    view = earth_sector(*apex, direction, angle, 200_000)
    lon, lat = (apex[0] + dx + 180) % 360 - 180, apex[1] + dy
    near = [
        view.touches(earth_point(*lon_lat(*ecef(lon + u / cos(lat * pi / 180), lat + v))))
        for u in (0, 1e-3, -1e-3)
        for v in (0, 1e-3, -1e-3)
    ]
    assume(len(set(near)) == 1)  # no border is near
    assert view.touches(earth_disc(lon, lat, 1.0)) == near[0]


def test_a_sector_on_earth_looks_where_its_bearing_points() -> None:
    view = earth_sector(10, 50, 90, 60, 10_000)  # to the east
    assert view.touches(earth_point(10.1, 50)) and not view.touches(earth_point(9.9, 50))
    assert not view.touches(earth_point(10, 50.05)) and not view.touches(earth_point(10.2, 50))
    assert view.touches(earth_bounds(10.1, 49, 11, 51))
    assert not view.touches(earth_bounds(9, 49, 9.99, 51))
    assert view.touches(earth_corridor([(10.05, 49), (10.05, 51)], 1))
    assert view.touches(earth_sector(10.2, 50, 270, 60, 10_000))
    assert not view.touches(earth_sector(10.2, 50, 90, 60, 10_000))


def test_heights_tell_an_area_from_what_is_published() -> None:
    low = earth_bounds(0, 0, 1, 1, low=0, high=100)
    free = earth_bounds(0, 0, 1, 1)
    assert low.touches(earth_point(0.5, 0.5, 100)) and not low.touches(earth_point(0.5, 0.5, 101))
    assert not low.touches(earth_point(0.5, 0.5)) and free.touches(earth_point(0.5, 0.5))
    assert free.touches(earth_point(0.5, 0.5, 5000)) and earth_point(0.5, 0.5).touches(low)
    assert low.touches(earth_disc(0.5, 0.5, 10, low=50, high=900))
    assert not low.touches(earth_disc(0.5, 0.5, 10)) and free.touches(earth_disc(0.5, 0.5, 10))


def test_a_ball_is_narrower_away_from_its_height() -> None:
    area = earth_ball(0, 0, 1000, 500)
    metre = 1 / (pi / 180 * 6378137)  # a degree of longitude at the equator
    assert area.touches(earth_point(300 * metre, 0, 1400))  # 3-4-5
    assert not area.touches(earth_point(301 * metre, 0, 1400))
    assert not area.touches(earth_point(0, 0))
    assert area.touches(earth_ball(0, 0, 1700, 200)) and not area.touches(
        earth_ball(0, 0, 1701, 200)
    )
    flat = earth_bounds(300 * metre, -1, 1, 1, low=1400, high=9000)
    assert flat.touches(earth_ball(0, 0, 1000, 500.1))
    assert not flat.touches(earth_ball(0, 0, 1000, 499.9))
    assert area.touches(earth_disc(400 * metre, 0, 101, low=1400, high=1500))
    assert not area.touches(earth_disc(400 * metre, 0, 99, low=1400, high=1500))
    assert not area.touches(earth_disc(0, 0, 99))
    assert earth_bounds(0, 0, 1, 1).touches(area)


def test_a_bearing_is_measured_as_a_map_does() -> None:
    """The ring that is drawn begins and ends at the apex and is on the side of its direction."""
    (ring,) = drawing_rings(earth_sector(20, 60, 45, 10, 100_000))
    lon, lat = ring[len(ring) // 2]
    angle = atan2((lon - 20) * cos(60.3 * pi / 180), lat - 60) / DEGREE
    assert abs(angle - 45) < 1
