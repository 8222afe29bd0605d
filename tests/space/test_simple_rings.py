"""Rings as somebody gives them: what is refused, against a comparison of all edges and shapely."""

from fractions import Fraction
from itertools import combinations
from math import cos, inf, nan, pi, sin

import pytest
import shapely
from hypothesis import example, given
from hypothesis import strategies as st

from nearcast.space.outlines import MOST_VERTICES
from nearcast.space.simple_rings import checked_line, checked_parts, signed_area
from support.examples import examples

Vertex = tuple[float, float]
SQUARE: list[Vertex] = [(0, 0), (9, 0), (9, 9), (0, 9)]
STEPS = st.integers(0, 5)
RINGS = st.lists(st.tuples(STEPS, STEPS), min_size=3, max_size=8, unique=True)


def shifted(ring: list[Vertex], dx: float, dy: float, scale: float = 1) -> list[Vertex]:
    return [(x * scale + dx, y * scale + dy) for x, y in ring]


def cross_or_overlap(rings: list[list[Vertex]]) -> bool:
    """All pairs of edges, in fractions."""
    edges = [
        (tuple(map(Fraction, a)), tuple(map(Fraction, b)))
        for ring in rings
        for a, b in zip(ring, ring[1:] + ring[:1], strict=True)
    ]

    def side(a: tuple[Fraction, ...], b: tuple[Fraction, ...], c: tuple[Fraction, ...]) -> Fraction:
        return (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])

    for (a, b), (c, d) in combinations(edges, 2):
        one, two = side(a, b, c) * side(a, b, d), side(c, d, a) * side(c, d, b)
        if one < 0 and two < 0:
            return True
        if side(a, b, c) == side(a, b, d) == 0:
            (a, b), (c, d) = sorted((a, b)), sorted((c, d))
            if max(a, c) < min(b, d):
                return True
    return False


def is_refused(parts: list[list[list[Vertex]]]) -> bool:
    try:
        checked_parts(parts)
    except ValueError as error:
        assert "\n" not in str(error)
        return True
    return False


@examples(2000)
@given(RINGS)
def test_a_ring_is_refused_if_its_edges_cross_or_lie_on_each_other(ring: list[Vertex]) -> None:
    assert is_refused([[ring]]) == cross_or_overlap([ring])


@examples(1000)
@given(RINGS, STEPS, STEPS)
def test_a_hole_is_refused_if_shapely_finds_the_polygon_invalid(
    hole: list[Vertex], dx: int, dy: int
) -> None:
    """Shapely wants connected interiors, too; a polygon that it accepts is accepted."""
    outer: list[Vertex] = [(0, 0), (5, 2), (9, 0), (9, 9), (4, 7), (0, 9)]
    hole = shifted(hole, dx, dy)
    if not shapely.Polygon(hole).is_valid:  # crosses or touches itself
        return
    fits = shapely.Polygon(outer).covers(shapely.Polygon(hole))
    expected = fits and not cross_or_overlap([outer, hole])
    assert is_refused([[outer, hole]]) == (not expected)


@examples(1000)
@given(RINGS, RINGS, st.integers(-6, 6), st.integers(-6, 6), st.sampled_from([1, 0.5, 2]))
@example([(0, 0), (0, 1), (2, 0)], [(-1, -1), (-1, 2), (1, 0)], 0, 0, 1)  # they cross at vertices
def test_parts_are_refused_if_they_overlap(
    one: list[Vertex], other: list[Vertex], dx: int, dy: int, scale: float
) -> None:
    other = shifted(other, dx, dy, scale)
    areas = [shapely.Polygon(ring) for ring in (one, other)]
    if not (areas[0].is_valid and areas[1].is_valid):  # one crosses or touches itself
        return
    common = areas[0].intersection(areas[1]).area
    assert is_refused([[one], [other]]) == (common > 1e-9 or cross_or_overlap([one, other]))


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([], "at least one part"),
        ([[]], "part 0 has no ring"),
        ([[[(0, 0), (1, 0)]]], "ring 0 has fewer than 3"),
        ([[[(0, 0), (1, 0), (1, 0), (0, 0)]]], "ring 0 has fewer than 3"),
        ([[[(0, 0), (1, nan), (1, 1)]]], "vertex 1 of ring 0 .* nan"),
        ([[[(0, 0), (1, 0), (inf, 1)]]], "vertex 2 of ring 0"),
        ([[[(0, 0), (1, 0), (1e151, 1)]]], "vertex 2 of ring 0"),
        ([[[(0, 0), (1, 0), (1,)]]], "vertex 2 of ring 0 is no pair"),
        ([[[(0, 0), (1, 0), None]]], "vertex 2 of ring 0 is no pair"),
        ([[[(0, 0), (1, 0), ("a", "b")]]], "vertex 2 of ring 0 is no pair"),
        ([[[(0, 0), (2, 2), (2, 0), (0, 2)]]], "after vertex 0 of ring 0.*crosses.*vertex 2"),
        ([[[(0, 0), (2, 0), (1, 0)]]], "lies on"),
        ([[SQUARE, shifted(SQUARE, 20, 0)]], "vertex 0 of ring 1, a hole, is outside"),
        ([[SQUARE, shifted(SQUARE, 1, 1)]], "crosses the edge after vertex . of ring 1"),
        (
            [[SQUARE, shifted(SQUARE, 1, 1, 0.5), shifted(SQUARE, 2, 2, 0.1)]],
            "ring 2, a hole, is inside ring 1",
        ),
        ([[SQUARE], [SQUARE]], "ring 0 of part [01].*lies on"),
        ([[SQUARE], [shifted(SQUARE, 1, 1, 0.5)]], "part 0 and part 1 overlap"),
        ([[shifted(SQUARE, 1, 1, 0.5)], [SQUARE]], "part 0 and part 1 overlap"),
        ([[[(k, k * k) for k in range(MOST_VERTICES + 2)]]], "10000 vertices"),
    ],
)
def test_what_is_refused_says_where(parts: list[list[list[Vertex]]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        checked_parts(parts)


def test_what_is_a_map_is_accepted() -> None:
    """A part in a hole of another, parts and holes that touch at a vertex, any winding."""
    hole = shifted(SQUARE, 1, 1, 0.5)
    island = shifted(SQUARE, 2, 2, 0.1)
    assert len(checked_parts([[SQUARE, hole], [island]])) == 2
    checked_parts([[SQUARE], [shifted(SQUARE, 9, 9)]])
    checked_parts([[SQUARE, [(0, 0), (3, 2), (2, 3)], [(3, 2), (6, 4), (6, 2)]]])
    for ring in (SQUARE, SQUARE[::-1]):
        ((outer, inner),) = checked_parts([[ring, hole], [island]])[:1]
        assert signed_area(outer) > 0 > signed_area(inner)


def test_a_closing_or_repeated_vertex_is_dropped() -> None:
    assert checked_parts([[[*SQUARE, SQUARE[0]]]]) == [[SQUARE]]
    assert checked_parts([[[SQUARE[0], *SQUARE]]]) == [[SQUARE]]


@pytest.mark.parametrize("inner", [0.1, 0.99])
def test_as_many_vertices_as_are_allowed(inner: float) -> None:
    ring = [
        ((1 if k % 2 else inner) * cos(2 * pi * k / 10_000),
         (1 if k % 2 else inner) * sin(2 * pi * k / 10_000))
        for k in range(10_000)
    ]  # fmt: skip
    assert len(checked_parts([[ring]])[0][0]) == 10_000
    ring[5000], ring[7000] = ring[7000], ring[5000]
    assert is_refused([[ring]])


def test_a_line_has_two_places() -> None:
    assert checked_line([(0, 0), (1, 1), (0, 0)]) == [(0, 0), (1, 1), (0, 0)]
    with pytest.raises(ValueError, match="2 different vertices"):
        checked_line([(1, 1), (1, 1)])
    with pytest.raises(ValueError, match="vertex 1 of the line"):
        checked_line([(1, 1), (1, nan)])
    with pytest.raises(ValueError, match="10000 vertices"):
        checked_line([(k, 0) for k in range(MOST_VERTICES + 1)])
