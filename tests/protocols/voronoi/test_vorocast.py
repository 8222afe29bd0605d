"""A VoroCast over the true diagram reaches every site that its area touches, each exactly once."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from nearcast.protocols.voronoi.vorocast import forward
from nearcast.space import voronoi
from nearcast.space.shapes import BOX, Shape, ShapeKind, box, disc, point
from support.examples import examples

GRID = st.tuples(st.integers(0, 7).map(float), st.integers(0, 7).map(float))
# Millionths: sites are at one place or farther apart than the rounding of a border.
LENGTHS = st.integers(0, 100_000_000).map(lambda millionths: millionths / 1e6)
FREE = st.tuples(LENGTHS, LENGTHS)
PLACES = st.one_of(st.lists(GRID, min_size=1, max_size=30), st.lists(FREE, min_size=1, max_size=30))
LENGTH = st.one_of(st.integers(0, 8).map(float), st.floats(0, 120))
INFINITE = st.one_of(LENGTH, st.just(float("inf")))


@st.composite
def areas(draw: st.DrawFn) -> Shape:
    x, y = draw(st.one_of(GRID, FREE))
    kind = draw(st.sampled_from(list(ShapeKind)))
    if kind is ShapeKind.POINT:
        return point(x, y)
    return (
        disc(x, y, draw(LENGTH))
        if kind is ShapeKind.DISC
        else box(x, y, draw(LENGTH), draw(INFINITE))
    )


def touches(sites: voronoi.Sites, site: int, area: Shape, more: float = 0.0) -> bool:
    here = sites[site]
    owner = min(other for other, place in sites.items() if place == here)
    if area.kind == BOX:
        return voronoi.touches_box(sites, owner, area.x, area.y, area.rx + more, area.ry + more)
    return voronoi.touches_disc(sites, owner, area.x, area.y, area.rx + more)


def vorocast_counts(sites: voronoi.Sites, root: tuple[float, float], area: Shape) -> Counter[int]:
    """Play it, with what each site knows taken from the whole diagram."""
    around = {s: {n: sites[n] for n in voronoi.enclosing(sites, s)} for s in sites}
    first = voronoi.nearest(sites, *root)
    counts, waiting = Counter([first]), [(first, None)]
    while waiting:
        site, sender = waiting.pop()
        rings = {n: around[n] for n in around[site]}
        for other in forward(site, sites[site], around[site], rings, root, area, sender):
            counts[other] += 1
            assert counts[other] < 3, "it goes round in circles"
            waiting.append((other, site))
    return counts


def assert_once_each(sites: voronoi.Sites, root: tuple[float, float], area: Shape) -> None:
    counts = vorocast_counts(sites, root, area)
    assert max(counts.values()) == 1
    assert [s for s in sites if touches(sites, s, area) and s not in counts] == []
    assert [s for s in counts if not touches(sites, s, area, more=1e-5)] == []


@given(places=PLACES, area=areas())
@examples(150)
def test_every_touched_site_receives_exactly_once_from_the_areas_centre(
    places: list[tuple[float, float]], area: Shape
) -> None:
    assert_once_each(dict(enumerate(places)), (area.x, area.y), area)


@given(places=PLACES, area=areas(), share=st.tuples(st.floats(-1, 1), st.floats(-1, 1)))
@examples(100)
def test_the_root_may_be_any_point_of_the_area(
    places: list[tuple[float, float]], area: Shape, share: tuple[float, float]
) -> None:
    part = 0.7 if area.kind == ShapeKind.DISC else 1.0
    high = area.rx if area.kind == ShapeKind.DISC else min(area.ry, 1000.0)
    root = area.x + part * share[0] * area.rx, area.y + part * share[1] * high
    assert_once_each(dict(enumerate(places)), root, area)


def test_sites_outside_a_rectangle_relay_into_it() -> None:
    """Both of its ends are far from each other, and the sites between lie beside it."""
    sites = {0: (0.0, 0.0), 1: (10.0, 4.0), 2: (20.0, -4.0), 3: (30.0, 0.0), 4: (15.0, 40.0)}
    area = box(15.0, 0.0, 15.0, 0.5)
    assert vorocast_counts(sites, (0.0, 0.0), area) == Counter([0, 1, 2, 3])


def test_of_two_sites_equally_near_the_root_the_smaller_id_forwards() -> None:
    sites = {5: (0.0, 0.0), 2: (4.0, 3.0), 1: (4.0, -3.0), 9: (8.0, 0.0)}
    area = disc(0.0, 0.0, 9.0)
    around = {s: {n: sites[n] for n in voronoi.enclosing(sites, s)} for s in sites}
    tells = {s: forward(s, sites[s], around[s], around, (0.0, 0.0), area) for s in sites}
    assert tells == {5: [1, 2], 1: [9], 2: [], 9: []}


def test_a_site_whose_surroundings_are_not_known_receives_it_to_be_safe() -> None:
    sites = {5: (0.0, 0.0), 2: (4.0, 3.0), 1: (4.0, -3.0), 9: (8.0, 0.0)}
    around = {n: sites[n] for n in voronoi.enclosing(sites, 2)}
    area = disc(0.0, 0.0, 9.0)
    assert 9 in forward(2, sites[2], around, {}, (0.0, 0.0), area, sender=5)


def test_if_two_sites_are_nearly_equal_both_forward() -> None:
    sites = {5: (0.0, 0.0), 2: (4.0, 3.1), 1: (4.0, -3.0), 9: (8.0, 0.0)}
    around = {s: {n: sites[n] for n in voronoi.enclosing(sites, s)} for s in sites}
    area = disc(0.0, 0.0, 9.0)
    sure = forward(2, sites[2], around[2], around, (0.0, 0.0), area, 5)
    unsure = forward(2, sites[2], around[2], around, (0.0, 0.0), area, 5, position_error=0.2)
    assert 9 not in sure
    assert 9 in unsure
