"""Rough regions in floats agree with the exact ones, and err on the safe side alone."""

from hypothesis import given
from hypothesis import strategies as st

from nearcast.protocols.voronoi.local_diagram import LocalDiagram
from nearcast.space import voronoi
from support.examples import examples

MILLIONTHS = st.integers(0, 100_000_000).map(lambda millionths: millionths / 1e6)
PLACES = st.one_of(
    st.lists(st.tuples(MILLIONTHS, MILLIONTHS), min_size=1, max_size=14, unique=True),
    st.lists(
        st.tuples(st.integers(0, 4).map(float), st.integers(0, 4).map(float)),
        min_size=1,
        max_size=14,
        unique=True,
    ),
)


def reaching(sites: voronoi.Sites, reaches: list[float], one: int, more: float) -> list[int]:
    """Those whose region the site's disc touches, or whose disc touches its region."""
    return [
        other
        for other in sites
        if other != one
        and (
            voronoi.touches_disc(sites, other, *sites[one], reaches[one] + more)
            or voronoi.touches_disc(sites, one, *sites[other], reaches[other] + more)
        )
    ]


@given(places=PLACES, reaches=st.lists(st.floats(0, 60), min_size=14, max_size=14))
@examples(80)
def test_sites_are_related_that_reach_or_enclose_each_other(
    places: list[tuple[float, float]], reaches: list[float]
) -> None:
    sites, diagram = dict(enumerate(places)), LocalDiagram()
    for site, place in sites.items():
        diagram.put(site, place, reaches[site])
    for site in sites:
        found = diagram.related(site, 0.0)
        assert found == diagram.related_with({site: (*sites[site], reaches[site])}, site, 0.0)
        assert set(found) >= set(reaching(sites, reaches, site, 0.0))
        near = {*reaching(sites, reaches, site, 1e-3), *voronoi.enclosing(sites, site)}
        assert {other for other in found if other not in near} <= almost_enclosing(sites, site)


def almost_enclosing(sites: voronoi.Sites, site: int) -> set[int]:
    """Those that would enclose the site if they were a little nearer to it."""
    x, y = sites[site]
    found = set()
    for other, (a, b) in sites.items():
        nearer = {**sites, other: (a + (x - a) * 1e-4, b + (y - b) * 1e-4)}
        if other != site and other in voronoi.enclosing(nearer, site):
            found.add(other)
    return found


@given(places=PLACES, reach=st.floats(0.5, 80))
@examples(80)
def test_boundary_neighbours_are_those_whose_regions_leave_the_disc(
    places: list[tuple[float, float]], reach: float
) -> None:
    sites, diagram = dict(enumerate(places)), LocalDiagram()
    for site, place in sites.items():
        diagram.put(site, place, 0.0)
    found = set(diagram.bordering(0, reach))
    assert found >= set(voronoi.boundary(sites, 0, reach * (1 - 1e-6))) & set(
        voronoi.boundary(sites, 0, reach * (1 + 1e-6))
    )
    assert found <= set(voronoi.boundary(sites, 0, reach * (1 - 1e-6))) | set(
        voronoi.boundary(sites, 0, reach * (1 + 1e-6))
    )
