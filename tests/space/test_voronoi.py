"""The Voronoi regions against an oracle in fractions that clips a huge square by all bisectors."""

import math
from fractions import Fraction
from itertools import combinations
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.space.voronoi import (
    Point,
    boundary,
    cell,
    enclosing,
    nearest,
    region,
    touches_box,
    touches_disc,
)
from support.examples import examples

Sites = dict[int, Point]
Exact = tuple[Fraction, Fraction]

# Farther away than any corner of the regions below: all floats are multiples of 2^-1074, and the
# coordinates at most 2e9; a corner is at most the cube of the latter over the square of the former.
HUGE = Fraction(10) ** 700
WORLD = ((0.0, 0.0), (8.0, 6.0))


def named(points: list[Point], rng: Random) -> Sites:
    """The points under ids that do not follow their order."""
    ids = rng.sample(range(1000), len(points))
    return dict(zip(ids, points, strict=True))


def made(coordinates: st.SearchStrategy[Point], size: int = 9) -> st.SearchStrategy[Sites]:
    points = st.lists(coordinates, min_size=1, max_size=size)
    return st.builds(named, points, st.randoms(use_true_random=False))


small = st.integers(0, 6)
# Many sites at one position, on one line, on one circle.
grids = made(st.tuples(small.map(float), small.map(float)))
# The same, but rounded: nearly on one line or circle, where plain floats guess.
rounded_grids = st.sampled_from([0.1, 1 / 3, 1e-9, 1e-120, 1e8 + 0.1]).flatmap(
    lambda scale: made(st.tuples(small.map(scale.__mul__), small.map(scale.__mul__)))
)
# Neighbouring floats around a large number, and around one.
crumbs = st.sampled_from([1e9, -1e9, 1.0]).flatmap(
    lambda base: made(
        st.tuples(*[small.map(lambda steps: base + steps * math.ulp(base))] * 2), size=6
    )
)
lines = st.tuples(small, small).flatmap(
    lambda way: made(small.map(lambda step: (0.1 * step * way[0], 0.1 * step * way[1])))
)
far = st.floats(-1e9, 1e9).map(lambda number: round(number, 12))
scattered = made(st.tuples(far, far))
# A handful of sites close together, and others very far.
mixed = st.builds(
    lambda near, wide, rng: named([*near.values(), *wide.values()], rng),
    rounded_grids,
    scattered,
    st.randoms(use_true_random=False),
)
any_sites = st.one_of(grids, rounded_grids, crumbs, lines, scattered, mixed)
halves = st.integers(-6, 18).map(lambda number: number / 2)


def square_distance(a: Point | Exact, b: Point | Exact) -> Fraction:
    return (Fraction(a[0]) - Fraction(b[0])) ** 2 + (Fraction(a[1]) - Fraction(b[1])) ** 2


def exact_owner(sites: Sites, point: Point) -> int:
    return min(sites, key=lambda site: (square_distance(sites[site], point), site))


def half_plane(here: Point, there: Point) -> tuple[Fraction, Fraction, Fraction]:
    """a, b, c of the points a x + b y <= c that are at least as near to here as to there."""
    a, b = Fraction(there[0]) - Fraction(here[0]), Fraction(there[1]) - Fraction(here[1])
    return a, b, a * (Fraction(here[0]) + a / 2) + b * (Fraction(here[1]) + b / 2)


def clip(polygon: list[Exact], a: Fraction, b: Fraction, c: Fraction) -> list[Exact]:
    """The part of a closed convex polygon, maybe a segment or a point, where a x + b y <= c."""
    kept: list[Exact] = []
    for at, (x, y) in enumerate(polygon):
        last_x, last_y = polygon[at - 1]
        over, last_over = a * x + b * y - c, a * last_x + b * last_y - c
        if over * last_over < 0:
            share = last_over / (last_over - over)
            kept.append((last_x + share * (x - last_x), last_y + share * (y - last_y)))
        if over <= 0:
            kept.append((x, y))
    return kept


def exact_region(sites: Sites, site: int) -> list[Exact]:
    """The site's region within the huge square."""
    here = sites[site]
    polygon = [(-HUGE, -HUGE), (HUGE, -HUGE), (HUGE, HUGE), (-HUGE, HUGE)]
    for other, there in sites.items():
        if there != here:
            polygon = clip(polygon, *half_plane(here, there))
        elif other < site:
            return []
    return polygon


def exact_touch(sites: Sites, a: int, b: int) -> bool:
    """Whether two regions meet: what other sites leave of the bisector, as an interval."""
    if sites[a] == sites[b]:
        return True
    if any(sites[other] == sites[site] and other < site for site in (a, b) for other in sites):
        return False
    way_x, way_y, _ = half_plane(sites[a], sites[b])
    middle_x = Fraction(sites[a][0]) + way_x / 2
    middle_y = Fraction(sites[a][1]) + way_y / 2
    low, high = -HUGE, HUGE
    for place in sites.values():
        if place not in (sites[a], sites[b]):
            # The point of the bisector is (middle - t way_y, middle + t way_x).
            x, y, c = half_plane(sites[a], place)
            slope, room = y * way_x - x * way_y, c - x * middle_x - y * middle_y
            if slope > 0:
                high = min(high, room / slope)
            elif slope < 0:
                low = max(low, room / slope)
            elif room < 0:
                return False
    return low <= high


def square_distance_to(polygon: list[Exact], point: Point) -> Fraction:
    """The squared distance from a point to a closed, counter-clockwise polygon."""
    x, y = Fraction(point[0]), Fraction(point[1])
    inside = True
    best = HUGE**2
    for at, (ax, ay) in enumerate(polygon):
        bx, by = polygon[at - 1]
        inside = inside and (ax - bx) * (y - by) - (ay - by) * (x - bx) >= 0
        length = square_distance((ax, ay), (bx, by))
        along = ((x - bx) * (ax - bx) + (y - by) * (ay - by)) / length if length else Fraction(0)
        share = min(max(along, Fraction(0)), Fraction(1))
        best = min(best, square_distance((bx + share * (ax - bx), by + share * (ay - by)), (x, y)))
    return Fraction(0) if inside else best


def area(polygon: list[Point]) -> float:
    return (
        math.fsum(
            polygon[at - 1][0] * y - x * polygon[at - 1][1] for at, (x, y) in enumerate(polygon)
        )
        / 2
    )


def greedy(sites: Sites, start: int, point: Point) -> int:
    """Where a message ends that each site hands to the best of itself and those around it."""
    here = start
    for _ in sites:
        around = {other: sites[other] for other in [here, *enclosing(sites, here)]}
        best = nearest(around, *point)
        if best == here:
            break
        here = best
    return here


# The owner of a point


@examples(70)
@given(any_sites, st.data())
def test_nearest_agrees_with_exact_distances_also_at_equal_ones(
    sites: Sites, draw: st.DataObject
) -> None:
    places = st.sampled_from(list(sites.values()))
    (ax, ay), (bx, by) = draw.draw(places), draw.draw(places)
    for point in [(ax, ay), ((ax + bx) / 2, (ay + by) / 2), (bx, ay), (ax + by, bx - ay)]:
        assert nearest(sites, *point) == exact_owner(sites, point)


def test_nearest_sees_a_difference_that_floats_do_not() -> None:
    tie_in_floats = {1: (0.0, 1e-9), 2: (0.0, 0.0)}
    assert math.hypot(1.0, 1e-9) == math.hypot(1.0, 0.0)
    assert nearest(tie_in_floats, 1.0, 0.0) == 2


def test_nearest_of_no_sites_is_refused() -> None:
    with pytest.raises(ValueError):
        nearest({}, 0.0, 0.0)


# Enclosing neighbours


@examples(70)
@given(any_sites)
def test_enclosing_sites_are_those_whose_closed_regions_meet(sites: Sites) -> None:
    found = {site: enclosing(sites, site) for site in sites}
    for site in sites:
        others = sorted(other for other in sites if other != site)
        assert found[site] == [other for other in others if exact_touch(sites, site, other)]


@pytest.mark.parametrize(
    "points",
    [
        # A hair beside the line, a nearer site does not hide the one behind it.
        [(0.0, 0.0), (1.0, 0.0), (-1.0, 1e-20), (-2.0, 0.0)],
        [(0.0, 0.0), (1.0, 0.0), (-1.0, -1e-20), (-2.0, 0.0), (0.0, 1.0)],
        [(0.0, 0.0), (0.0, 3.0), (-1.0, 0.0), (-2.0, -0.0), (-3.0, 1e-30), (-3.0, -1e-30)],
        # A zero may have a sign.
        [(0.0, 0.0), (-1.0, -0.0), (1.0, 1.0), (1.0, -1.0), (-1.0, 1e-300)],
        [(0.0, 0.0), (-1.0, -0.0), (-1.0, 1.0), (-1.0, -1.0), (2.0, -0.0), (-0.0, 2.0)],
        # Distances whose squares vanish in a float.
        [(0.0, 0.0), (1e-200, 0.0), (0.0, 1e-200), (1e-200, 1e-200), (2e-200, 0.0)],
        [(0.0, 0.0), (5e-324, 0.0), (0.0, 5e-324), (-5e-324, 0.0), (-1e-323, 0.0), (1.0, 1.0)],
        # Two in one direction at distances that are equal in floats: 2^53 + 1 apart and 2^53.
        [(-1.0, 0.0), (2.0**53, 0.0), (2.0**53 - 1, 0.0)],
    ],
)
def test_enclosing_sites_of_a_hard_case_agree_with_the_oracle(points: list[Point]) -> None:
    for order in (1, -1):
        sites = dict(enumerate(points[::order]))
        for site in sites:
            touching = [o for o in sites if o != site and exact_touch(sites, site, o)]
            assert enclosing(sites, site) == touching


def test_enclosing_sites_of_random_sites_agree_with_the_oracle() -> None:
    rng = Random(4)
    sites = {site: (rng.uniform(0, 100), rng.uniform(0, 100)) for site in range(30)}
    links = {(a, b) for a in sites for b in enclosing(sites, a)}
    touching = [pair for pair in combinations(sites, 2) if exact_touch(sites, *pair)]
    assert links == {*touching, *((b, a) for a, b in touching)}


@examples(70)
@given(any_sites)
def test_enclosing_is_symmetric_and_connects_all_sites(sites: Sites) -> None:
    links = {site: enclosing(sites, site) for site in sites}
    for site, others in links.items():
        assert site not in others
        assert all(site in links[other] for other in others)
    reached, frontier = set(sites), [next(iter(sites))]
    reached.discard(frontier[0])
    while frontier:
        for other in links[frontier.pop()]:
            if other in reached:
                reached.discard(other)
                frontier.append(other)
    assert not reached


@examples(70)
@given(any_sites, st.randoms(use_true_random=False))
def test_the_order_in_which_sites_were_learned_does_not_matter(sites: Sites, rng: Random) -> None:
    shuffled = dict(rng.sample(list(sites.items()), len(sites)))
    for site in sites:
        assert enclosing(sites, site) == enclosing(shuffled, site)


@examples(70)
@given(any_sites, st.data())
def test_greedy_forwarding_reaches_the_owner_of_any_point(
    sites: Sites, draw: st.DataObject
) -> None:
    start = draw.draw(st.sampled_from(list(sites)))
    places = st.sampled_from(list(sites.values()))
    (ax, ay), (bx, by) = draw.draw(places), draw.draw(places)
    for point in [(bx, by), ((ax + bx) / 2, (ay + by) / 2), (3 * bx - ax, 2 * by - ay)]:
        assert greedy(sites, start, point) == exact_owner(sites, point)


def test_greedy_forwarding_crosses_a_corner_where_four_regions_meet() -> None:
    # Around the corner (1, 1) the ids 0 and 1 face each other, with larger ids between.
    sites = {0: (0.0, 0.0), 2: (2.0, 0.0), 1: (2.0, 2.0), 3: (0.0, 2.0)}
    assert greedy(sites, 1, (1.0, 1.0)) == 0


def test_an_inner_site_of_a_grid_is_enclosed_by_eight() -> None:
    sites = {10 * x + y: (float(x), float(y)) for x in range(5) for y in range(5)}
    assert enclosing(sites, 22) == [11, 12, 13, 21, 23, 31, 32, 33]
    assert enclosing(sites, 0) == [1, 10, 11]


def test_sites_on_a_line_know_the_next_on_either_side() -> None:
    sites = {3: (0.1, 0.1), 1: (0.2, 0.2), 2: (0.4, 0.4), 0: (0.8, 0.8)}
    assert [enclosing(sites, site) for site in (3, 1, 2, 0)] == [[1], [2, 3], [0, 1], [2]]


def test_one_site_is_alone_and_two_enclose_each_other() -> None:
    assert enclosing({7: (1.0, 2.0)}, 7) == []
    assert enclosing({7: (1.0, 2.0), 8: (1e9, 2.0)}, 8) == [7]


def test_twins_enclose_each_other_and_the_smallest_has_the_neighbours() -> None:
    sites = {5: (0.0, 0.0), 4: (-0.0, 0.0), 9: (0.0, 0.0), 1: (3.0, 0.0), 2: (3.0, 0.0)}
    assert enclosing(sites, 4) == [1, 5, 9]
    assert enclosing(sites, 5) == [4, 9]
    assert enclosing(sites, 9) == [4, 5]
    assert enclosing(sites, 1) == [2, 4]
    assert cell(sites, 9, WORLD) == []
    assert not touches_disc(sites, 9, 0.0, 0.0, 1.0)
    assert not touches_box(sites, 9, 0.0, 0.0, math.inf, math.inf)


# Cells


@examples(70)
@given(
    made(st.one_of(st.tuples(st.floats(0, 8), st.floats(0, 6)), st.tuples(small, small))),
    st.floats(0, 8),
    st.floats(0, 6),
)
def test_cells_tile_the_world_and_hold_the_points_they_own(
    sites: Sites, x: float, y: float
) -> None:
    cells = {site: cell(sites, site, WORLD) for site in sites}
    assert all(area(polygon) >= 0 for polygon in cells.values())
    assert math.fsum(area(polygon) for polygon in cells.values()) == pytest.approx(48, rel=1e-9)
    polygon = cells[nearest(sites, x, y)]
    for at, (bx, by) in enumerate(polygon):
        ax, ay = polygon[at - 1]
        inward = (bx - ax) * (y - ay) - (by - ay) * (x - ax)
        assert inward >= -1e-12 * math.hypot(bx - ax, by - ay)


@examples(70)
@given(rounded_grids)
def test_cells_tile_worlds_of_any_size(sites: Sites) -> None:
    high = max(max(place) for place in sites.values()) * 1.5 or 1.0
    total = math.fsum(area(cell(sites, site, ((0.0, 0.0), (high, high)))) for site in sites)
    assert total == pytest.approx(high * high, rel=1e-9)


def test_the_cell_of_a_single_site_is_the_world() -> None:
    assert cell({1: (8.0, 6.0)}, 1, WORLD) == [(0.0, 0.0), (8.0, 0.0), (8.0, 6.0), (0.0, 6.0)]


def test_a_cell_outside_the_world_is_empty() -> None:
    assert cell({1: (4.0, 3.0), 2: (400.0, 3.0)}, 2, WORLD) == []
    assert cell({1: (-1.0, 3.0), 2: (1.0, 3.0)}, 1, WORLD) == []


# Shapes that touch regions


@examples(70)
@given(grids, halves, halves, st.one_of(st.just(0.0), st.integers(0, 12).map(lambda n: n / 4)))
def test_a_disc_touches_exactly_the_regions_within_its_radius(
    sites: Sites, x: float, y: float, r: float
) -> None:
    for site in sites:
        polygon = exact_region(sites, site)
        within = bool(polygon) and square_distance_to(polygon, (x, y)) <= Fraction(r) ** 2
        assert touches_disc(sites, site, x, y, r) == within


half_extents = st.one_of(st.just(math.inf), st.integers(0, 8).map(lambda number: number / 4))


def box_meets(polygon: list[Exact], x: float, y: float, rx: float, ry: float) -> bool:
    for a, b, centre, extent in [(1, 0, x, rx), (0, 1, y, ry)]:
        for sign in (1, -1):
            reach = HUGE if extent == math.inf else Fraction(extent)
            bound = sign * Fraction(centre) + reach
            polygon = clip(polygon, Fraction(sign * a), Fraction(sign * b), bound)
    return bool(polygon)


@examples(70)
@given(grids, halves, halves, half_extents, half_extents)
def test_a_box_touches_exactly_the_regions_it_meets(
    sites: Sites, x: float, y: float, rx: float, ry: float
) -> None:
    for site in sites:
        meets = box_meets(exact_region(sites, site), x, y, rx, ry)
        assert touches_box(sites, site, x, y, rx, ry) == meets


@examples(70)
@given(any_sites, st.data())
def test_shapes_anywhere_touch_exactly_what_the_oracle_says(
    sites: Sites, draw: st.DataObject
) -> None:
    places = st.sampled_from(list(sites.values()))
    (ax, ay), (bx, by), (cx, cy) = draw.draw(places), draw.draw(places), draw.draw(places)
    x, y, rx, ry = ax + bx - cx, (ay + by) / 2, abs(bx - cx) / 2, abs(by - cy)
    for site in sites:
        polygon = exact_region(sites, site)
        within = bool(polygon) and square_distance_to(polygon, (x, y)) <= Fraction(rx) ** 2
        assert touches_disc(sites, site, x, y, rx) == within
        for extents in [(rx, ry), (math.inf, ry), (rx, math.inf)]:
            assert touches_box(sites, site, x, y, *extents) == box_meets(polygon, x, y, *extents)


@examples(70)
@given(any_sites, st.data())
def test_the_owner_of_a_point_touches_it_without_extent(sites: Sites, draw: st.DataObject) -> None:
    places = st.sampled_from(list(sites.values()))
    (ax, ay), (bx, by) = draw.draw(places), draw.draw(places)
    for x, y in [(ax, by), ((ax + bx) / 2, (ay + by) / 2)]:
        owner = nearest(sites, x, y)
        assert touches_disc(sites, owner, x, y, 0.0)
        assert touches_box(sites, owner, x, y, 0.0, 0.0)


def test_a_strip_misses_a_region_that_ends_below_it() -> None:
    square = {0: (0.0, 0.0), 1: (2.0, 0.0), 2: (-2.0, 0.0), 3: (0.0, 2.0), 4: (0.0, -2.0)}
    assert touches_box(square, 0, 50.0, 2.0, math.inf, 1.0)
    assert not touches_box(square, 0, 50.0, 2.0, math.inf, 0.999)
    assert touches_box(square, 3, 50.0, 2.0, math.inf, 0.0)


def test_infinite_boxes_touch_regions_of_sites_a_hair_apart() -> None:
    sites = {0: (0.0, 0.0), 1: (5e-324, 5e-324), 2: (1.0, 1.0)}
    assert [site for site in sites if touches_box(sites, site, 5.0, 1.0, math.inf, 0.0)] == [
        0,
        1,
        2,
    ]
    assert [site for site in sites if touches_box(sites, site, 2.0, 2.0, 0.5, 0.0)] == [2]
    assert [site for site in sites if touches_box(sites, site, 0.0, 0.0, 0.0, 0.0)] == [0]


# Boundary neighbours


@examples(70)
@given(any_sites, st.data())
def test_boundary_neighbours_are_in_the_circle_with_a_region_that_leaves_it(
    sites: Sites, draw: st.DataObject
) -> None:
    site = draw.draw(st.sampled_from(list(sites)))
    (x, y), (px, py) = sites[site], draw.draw(st.sampled_from(list(sites.values())))
    radius = (abs(px - x) + abs(py - y)) * draw.draw(st.sampled_from([0.5, 1.0, 2.0]))
    square = Fraction(radius) ** 2
    expected = [
        other
        for other, place in sorted(sites.items())
        if other != site and square_distance(place, (x, y)) <= square
        if any(square_distance(corner, (x, y)) > square for corner in exact_region(sites, other))
    ]
    assert boundary(sites, site, radius) == expected


def test_a_region_that_fills_the_circle_to_its_rim_is_inside() -> None:
    sites = {10 * x + y: (2.0 * x, 2.0 * y) for x in range(5) for y in range(5)}
    # Around 22 lie squares of side 2, whose farthest corners are (3, 3) away, and the outermost
    # sites straight ahead, with open regions.
    rim = math.hypot(3.0, 3.0)
    assert boundary(sites, 22, math.nextafter(rim, 9)) == [2, 20, 24, 42]
    assert boundary(sites, 22, math.nextafter(rim, 0)) == [2, 11, 13, 20, 24, 31, 33, 42]


def test_a_region_is_a_value_that_later_moves_do_not_change() -> None:
    sites = {1: (0.0, 0.0), 2: (2.0, 0.0)}
    before = region(sites, 1)
    sites[2] = (20.0, 0.0)
    assert before.enclosing == (2,)
    assert not before.touches_disc(2.0, 0.0, 0.5)
    assert region(sites, 1).touches_disc(2.0, 0.0, 0.5)
