"""Boxes around shapes and regions: never too small, whatever is rounded."""

from math import inf, nextafter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.matching.rtree import MARGIN
from nearcast.space.boxes import EXACT, BoxBounds, Margin, box_around, contains, overlaps, swept_box
from nearcast.space.motion import SECOND, Moving, Path, path
from nearcast.space.shapes import EVERYWHERE, LARGEST, Shape, box, disc, point
from support.examples import examples
from support.strategies import TIMES, movings, regions, shapes

PATHS = regions(3).filter(lambda region: isinstance(region, Path))


def bounds(shape: Shape) -> BoxBounds:
    return box_around(shape, MARGIN)


def test_without_a_margin_a_box_is_exact() -> None:
    assert box_around(box(1, 2, 3, 4)) == ((-2.0, -2.0, 0.0), (4.0, 6.0, 0.0))
    assert box_around(disc(1, 2, 3)) == ((-2.0, -1.0, -3.0), (4.0, 5.0, 3.0))
    assert box_around(EVERYWHERE) == ((-inf,) * 3, (inf,) * 3)
    walk = Moving(disc(0, 0, 2), (1.0, 0.0, 0.0), (-1.0, 0.0, 0.0), 3 * SECOND, SECOND)
    low, high = swept_box(walk, 0, 9 * SECOND, EXACT)
    assert (low, high) == ((-2.0, -2.0, -2.0), (3.0, 2.0, 2.0))


def test_a_margin_is_of_the_numbers_that_went_in() -> None:
    low, high = box_around(box(100, 0, 20, 1), Margin(0.01, 0.5))
    assert low == pytest.approx((80 - 1.2 - 0.5, -1 - 0.01 - 0.5, -0.5))
    assert high == pytest.approx((120 + 1.2 + 0.5, 1 + 0.01 + 0.5, 0.5))
    assert box_around(EVERYWHERE, MARGIN) == box_around(EVERYWHERE)


@examples(300)
@given(one=shapes(3), other=shapes(3))
def test_shapes_that_touch_have_boxes_that_overlap(one: Shape, other: Shape) -> None:
    if one.touches(other):
        assert overlaps(bounds(one), bounds(other))


@examples(300)
@given(
    x=st.floats(-1e6, 1e6), r=st.floats(0, 1e6), reach=st.floats(0, 1e6),
    y=st.floats(-1e6, 1e6), steps=st.integers(-2, 2), west=st.booleans(),
)  # fmt: skip
def test_boxes_overlap_even_where_shapes_touch_by_rounding_alone(
    x: float, r: float, reach: float, y: float, steps: int, west: bool
) -> None:
    where = x - (r + reach) if west else x + (r + reach)
    for _ in range(abs(steps)):
        where = nextafter(where, inf if steps > 0 else -inf)
    one, other = disc(x, y, r), disc(where, y, reach)
    if one.touches(other):
        assert overlaps(bounds(one), bounds(other))


def test_boxes_overlap_where_the_square_of_the_distance_underflows() -> None:
    one, other = disc(0.0, 0.0, 0.0), point(1e-170, 0.0)
    assert one.touches(other)
    assert overlaps(bounds(one), bounds(other))


@pytest.mark.parametrize("one", [box(LARGEST, 0, LARGEST, 1), disc(LARGEST, 0, LARGEST)])
@pytest.mark.parametrize("other", [box(-LARGEST, 0, LARGEST, 1), disc(-LARGEST, 0, LARGEST)])
def test_boxes_overlap_where_shapes_touch_from_the_ends_of_the_world(
    one: Shape, other: Shape
) -> None:
    assert one.touches(other)
    assert overlaps(bounds(one), bounds(other))


@examples(200)
@given(region=st.one_of(movings(3), PATHS), moments=st.lists(TIMES, min_size=3, max_size=3))
def test_a_swept_box_contains_the_region_at_every_moment_of_the_slice(
    region: Moving | Path, moments: list[int]
) -> None:
    lo, t, hi = sorted(moments)
    assert contains(swept_box(region, lo, hi, MARGIN), bounds(region.at(t)))


def test_a_path_sweeps_only_the_legs_of_the_slice() -> None:
    region = path(disc(0, 0, 1), [(10, 0, 0), (10, 10, 0), (-50, 10, 0)], speed=10.0)
    low, high = swept_box(region, SECOND // 2, SECOND * 3 // 2, MARGIN)
    assert low == pytest.approx((4.0, -1.0, -1.0))
    assert high == pytest.approx((11.0, 6.0, 1.0))
