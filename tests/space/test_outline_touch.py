"""A point and an outline: exactly at borders, against fractions, compiled and not."""

from collections.abc import Sequence
from fractions import Fraction
from math import cos, inf, nextafter, pi, sin, sqrt
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.matching.compiled import compile_with_callees
from nearcast.space import outline_touch
from nearcast.space.outlines import BALL, CORRIDOR, POLYGON, SECTOR, WHOLE
from support.examples import examples

Point = tuple[float, float]
Ring = list[Point]
compiled = compile_with_callees(outline_touch.contains_point)
# Few values, so that vertices, edges and points often lie on each other; some that rounding hurts.
SCALES = st.sampled_from([1.0, 0.1, 1e-130, 1e140, 1 / 3])
STEPS = st.integers(-4, 4)


def flat(rings: Sequence[Sequence[Sequence[float]]]) -> tuple[list[float], list[int]]:
    starts = [sum(map(len, rings[:k])) for k in range(len(rings))]
    return [number for ring in rings for vertex in ring for number in vertex], starts


def contains(
    form: int, coordinates: Sequence[float], starts: Sequence[int], place: Sequence[float],
    size: float = 0.0, earth: bool = False, centre: Sequence[float] = (0.0, 0.0, 0.0),
    heights: Point = (-inf, inf), altitude: Point = (-inf, inf),
) -> bool:  # fmt: skip
    """Decided twice: as Python and compiled."""
    x, y, z = (*place, 0.0)[:3]
    rest = (size, *heights, *centre, x, y, z, *altitude)
    decided = outline_touch.contains_point(form, earth, coordinates, starts, *rest)
    arrays = np.array(coordinates, float), np.array(starts, np.int64)
    assert compiled(form, earth, *arrays, *rest) == decided
    return decided


def truly_inside(rings: list[Ring], place: Point) -> bool:
    """In fractions: on an edge, or left of an odd number of edges."""
    x, y = map(Fraction, place)
    crossings = 0
    for ring in rings:
        for one, other in zip(ring, ring[1:] + ring[:1], strict=True):
            (ax, ay), (bx, by) = sorted(
                (tuple(map(Fraction, one)), tuple(map(Fraction, other))), key=lambda v: (v[1], v[0])
            )
            side = (bx - ax) * (y - ay) - (by - ay) * (x - ax)
            if side == 0 and ay <= y <= by and min(ax, bx) <= x <= max(ax, bx):
                return True
            crossings += ay <= y < by and side > 0
    return crossings % 2 == 1


RINGS = st.lists(st.lists(st.tuples(STEPS, STEPS), min_size=3, max_size=7), min_size=1, max_size=3)


@examples(1500)
@given(RINGS, SCALES, st.tuples(STEPS, STEPS), st.booleans(), st.sampled_from([-1, 0, 0, 1]))
def test_a_polygon_contains_what_fractions_say(
    steps: list[list[tuple[int, int]]], scale: float, place: Point, between: bool, aside: int
) -> None:
    rings = [[(x * scale, y * scale) for x, y in ring] for ring in steps]
    x, y = place[0] * scale, place[1] * scale
    if between:
        (ax, ay), (bx, by) = rings[0][:2]
        x, y = ax / 2 + bx / 2, ay / 2 + by / 2
    if aside and abs(y) > 1e-134:
        y = nextafter(y, aside * inf)
    assert contains(POLYGON, *flat(rings), (x, y)) == truly_inside(rings, (x, y))


@examples(500)
@given(st.lists(st.floats(-1e150, 1e150), min_size=8, max_size=8), st.integers(0, 2))
def test_a_triangle_of_any_numbers(numbers: list[float], through: int) -> None:
    settled = [0.0 if abs(number) < outline_touch.TINY else number for number in numbers]
    ring = [(settled[k], settled[k + 1]) for k in (0, 2, 4)]
    place = (settled[6], settled[7])
    if through:  # near the middle of an edge
        (ax, ay), (bx, by) = ring[through - 1], ring[through]
        place = (ax / 2 + bx / 2, ay / 2 + by / 2)
        place = tuple(0.0 if abs(number) < outline_touch.TINY else number for number in place)
    assert contains(POLYGON, *flat([ring]), place) == truly_inside([ring], place)


def test_a_point_at_a_vertex_of_a_moved_polygon_is_inside() -> None:
    """Both are rounded alike, so they still meet."""
    centre = (0.1, 0.7, 0.0)
    ring = [(0.3, 0.4), (1.7, 0.6), (0.9, 1.3)]
    relative = [(x - centre[0], y - centre[1]) for x, y in ring]
    for vertex in ring:
        assert contains(POLYGON, *flat([relative]), vertex, centre=centre)


@examples(300)
@given(st.lists(st.tuples(STEPS, STEPS), min_size=2, max_size=5), st.tuples(STEPS, STEPS), STEPS)
def test_a_corridor_contains_what_is_within_its_half_width(
    line: Ring, place: Point, size: int
) -> None:
    def gap(one: Point, other: Point) -> Fraction:
        (ax, ay), (bx, by), (x, y) = (tuple(map(Fraction, p)) for p in (one, other, place))
        ux, uy = bx - ax, by - ay
        length = ux * ux + uy * uy
        s = max(Fraction(0), min(Fraction(1), ((x - ax) * ux + (y - ay) * uy) / (length or 1)))
        return (ax + s * ux - x) ** 2 + (ay + s * uy - y) ** 2

    nearest = min(map(gap, line, line[1:]))
    size = abs(size)
    if nearest == size**2 and nearest.denominator > 1:
        return  # on a border that no floating point number has
    coordinates, starts = flat([line])
    inside = contains(CORRIDOR, coordinates, starts, place, size=float(size))
    if abs(nearest - size**2) > 1e-9 or nearest.denominator == 1:
        assert inside == (nearest <= size**2)


def sector(direction: float, angle: float) -> list[float]:
    right, left = (direction - angle / 2) * pi / 180, (direction + angle / 2) * pi / 180
    return [0.0, 0.0, direction, angle, cos(right), sin(right), cos(left), sin(left)]


@examples(500)
@given(
    st.floats(0, 360), st.floats(0.01, 359.9), st.floats(-180, 180), st.floats(0.01, 2),
)  # fmt: skip
def test_a_sector_contains_directions_within_half_its_angle(
    direction: float, angle: float, bearing: float, distance: float
) -> None:
    off = abs((bearing - direction + 180) % 360 - 180)
    if abs(off - angle / 2) < 1e-6 or abs(distance - 1) < 1e-9:
        return
    place = (distance * cos(bearing * pi / 180), distance * sin(bearing * pi / 180))
    inside = contains(SECTOR, sector(direction, angle), [0], place, size=1.0)
    assert inside == (off <= angle / 2 and distance <= 1)


def test_a_sector_is_closed_and_has_its_apex() -> None:
    quarter = [0.0, 0.0, 45.0, 90.0, 1.0, 0.0, 0.0, 1.0]
    for place in [(0.0, 0.0), (1.0, 0.0), (0.0, 1.0), (0.5, 0.0), (0.6, 0.8)]:
        assert contains(SECTOR, quarter, [0], place, size=1.0)
    for place in [(nextafter(1, 2), 0.0), (0.5, -5e-324), (-5e-324, 0.5), (-0.5, -0.5)]:
        assert not contains(SECTOR, quarter, [0], place, size=1.0)


def test_heights_of_an_area_ask_for_an_altitude() -> None:
    nothing: tuple[list[float], list[int]] = ([], [])
    for heights, altitude, expected in [
        ((-inf, inf), (-inf, inf), True),
        ((-inf, inf), (5.0, 5.0), True),
        ((0.0, 5.0), (-inf, inf), False),
        ((0.0, 5.0), (5.0, 5.0), True),
        ((0.0, 5.0), (5.1, 5.1), False),
        ((0.0, inf), (1e9, 1e9), True),
        ((0.0, 5.0), (4.0, 9.0), True),
    ]:
        decided = contains(
            WHOLE, *nothing, (0.0, 0.0), earth=True, heights=heights, altitude=altitude
        )
        assert decided == expected


@pytest.mark.parametrize(
    ("height", "expected"), [(104.0, True), (104.1, False), (96.0, True), (inf, False)]
)
def test_a_ball_takes_height_as_a_dimension(height: float, expected: bool) -> None:
    altitude = (-inf, inf) if height == inf else (height, height)
    inside = contains(
        BALL, [], [], (3.0, 0.0, 0.0), size=5.0, earth=True,
        heights=(100.0, 100.0), altitude=altitude,
    )  # fmt: skip
    assert inside == expected


def surface(lon: float, lat: float) -> tuple[float, float, float]:
    f = 1 / 298.257223563
    e2 = f * (2 - f)
    a, b = lon * pi / 180, lat * pi / 180
    n = 6378137.0 / sqrt(1 - e2 * sin(b) ** 2)
    return n * cos(b) * cos(a), n * cos(b) * sin(a), n * (1 - e2) * sin(b)


def on_earth(rings: list[Ring], lon: float, lat: float) -> bool:
    return contains(POLYGON, *flat(rings), surface(lon, lat), earth=True)


@examples(300)
@given(st.floats(-180, 180), st.integers(-85, 84).map(lambda lat: lat + 0.37))
def test_a_polygon_on_earth_is_one_of_degrees(lon: float, lat: float) -> None:
    """Across the antimeridian too: from 150 east over 180 to 150 west."""
    rings: list[Ring] = [[(150, -20), (210, -40), (200, 80)], [(175, 0), (185, 0), (180, 10)]]
    if any(abs(lon + shift - side) < 1e-9 for shift in (0, 360) for side in (150, 175, 185, 210)):
        return
    expected = any(truly_inside(rings, (lon + shift, lat)) for shift in (0, 360))
    assert on_earth(rings, lon, lat) == expected


@pytest.mark.parametrize("side", [1, -1])
def test_a_polygon_that_touches_a_pole_contains_it(side: int) -> None:
    cap: Ring = [(-180, 60 * side), (180, 60 * side), (180, 90 * side), (-180, 90 * side)]
    for lon in (-180, -90, 0, 17.3, 180):
        assert on_earth([cap], lon, 90 * side)
        assert on_earth([cap], lon, 60.001 * side)
        assert not on_earth([cap], lon, 59.999 * side)
        assert not on_earth([cap], lon, -90 * side)
    short: Ring = [(-180, 60 * side), (180, 60 * side), (0, 89 * side)]
    assert not on_earth([short], 0, 90 * side)


@pytest.mark.parametrize("lon", [180.0, -180.0])
def test_the_antimeridian_is_the_border_of_both_its_sides(lon: float) -> None:
    for west in (170, -180, -190):
        assert on_earth([[(west, 0), (west + 10, 0), (west + 10, 10), (west, 10)]], lon, 5)


def test_kernels_see_arrays_and_python_sees_bytes() -> None:
    arguments: tuple[Any, ...] = (0.0, -inf, inf, 0.0, 0.0, 0.0, 0.5, 0.5, 0.0, -inf, inf)
    packed = np.array([0.0, 0, 1, 0, 1, 1, 0, 1]).tobytes()
    view = memoryview(packed).cast("d")
    assert outline_touch.contains_point(POLYGON, False, view, (0,), *arguments)
