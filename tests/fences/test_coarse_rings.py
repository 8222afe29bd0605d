"""Coarse forms of polygons decide nothing that edges decide otherwise, on borders least of all."""

from typing import Any

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from nearcast.fences.areas import FenceColumns, polygon_columns
from nearcast.fences.coarse_rings import (
    INSIDE_RING,
    MOST_EDGES,
    NEAR_RING,
    build_coarse_rings,
    coarse_box,
    compare_with_ring,
)
from nearcast.fences.events import CROSS, ENTER, LEAVE, fixes_of
from nearcast.fences.fence_index import FenceIndex
from nearcast.fences.last_fixes import LastFixes
from support.examples import examples
from support.fence_worlds import visits_alone, visits_found

CHANGES = 1 << ENTER | 1 << LEAVE | 1 << CROSS


def lattice_polygons(rng: np.random.Generator, count: int, step: float) -> FenceColumns:
    """Vertices are on a lattice, so that many are at one height, and edges meet and repeat."""
    counts = rng.integers(3, 20, count)
    first = np.cumsum(counts) - counts
    vertices = rng.integers(-4, 5, (counts.sum(), 2)) * step
    return polygon_columns(np.arange(count), vertices, first, np.ones(count, int), CHANGES)


def lattice_world(seed: int, step: float) -> tuple[FenceColumns, FenceIndex, Any]:
    """Polygons, and ways between places of a lattice twice as fine."""
    rng = np.random.default_rng(seed)
    fences = lattice_polygons(rng, 12, step)
    index, last = FenceIndex(), LastFixes()
    index.put(fences, 0)
    assert (index.areas["edges"][:12] > 0).all()
    for t in (0, 1000):
        places = rng.integers(-10, 11, (30, 2)) * (step / 2)
        rows = last.take(fixes_of(np.arange(30), np.full(30, t), places))
    return fences, index, rows


# On borders rounding decides, and not the same everywhere: here is none.
EXACT_STEPS = st.sampled_from([1.0, 2.0**-10, 2.0**20])


@given(st.integers(0, 10**6), EXACT_STEPS)
@examples(40)
def test_ways_on_a_lattice_change_what_each_pair_alone_says(seed: int, step: float) -> None:
    fences, index, rows = lattice_world(seed, step)
    assert visits_found(index, rows) == visits_alone(fences, rows, only_changes=True)


@given(st.integers(0, 10**6), st.sampled_from([1e-3, 0.1, 1e7 / 3]))
@examples(40)
@example(2739, 1e-3)  # an edge and a way that are parallel but for rounding
def test_rounding_leaves_visits_that_begin_and_end_on_the_way(seed: int, step: float) -> None:
    fences, index, rows = lattice_world(seed, step)
    for *_, begins, ends in visits_found(index, rows) | visits_alone(fences, rows):
        assert 0.0 <= begins <= ends <= 1.0


def test_a_way_that_meets_no_edge_is_outside_though_its_middle_is_a_vertex() -> None:
    """But for rounding it would."""
    fences, _, rows = lattice_world(179, 1e-3)
    assert not [visit for visit in visits_alone(fences, rows) if visit[:2] == (20, 6)]


def test_most_ways_are_decided_without_an_edge() -> None:
    """In a square, beside it, and where it begins."""
    square = [(0.0, 0.0), (2.0, 0.0), (2.0, 2.0), (0.0, 2.0)]
    fences = polygon_columns([1], square, [0], [1])
    coarse = build_coarse_rings(fences.areas, np.zeros(1, np.int64), fences.coordinates)
    area = fences.areas[0]

    def compare(*way: float) -> int:
        box = coarse_box(area, way[:2], way[2:])
        return int(compare_with_ring(coarse, int(area["coarse"]), int(area["edges"]), box))

    assert compare(0.5, 0.5, 1.5, 1.5) == INSIDE_RING
    assert compare(1.0, 1.0, 1.0, 1.0) == INSIDE_RING
    assert compare(1.0, 1.0, 3.0, 1.0) == NEAR_RING
    assert compare(2.0, 1.0, 2.0, 1.0) == NEAR_RING


def test_polygons_with_holes_or_many_vertices_have_none() -> None:
    turn = np.arange(MOST_EDGES + 1) * (2 * np.pi / (MOST_EDGES + 1))
    circle = np.c_[np.cos(turn), np.sin(turn)]
    vertices = np.concatenate((circle, circle[:-1], circle[:4], circle[:4] / 2))
    firsts = np.cumsum([0, len(circle), len(circle) - 1, 4])
    fences = polygon_columns([1, 2, 3], vertices, firsts, [1, 1, 2])
    coarse = build_coarse_rings(fences.areas, np.arange(3), fences.coordinates)
    assert fences.areas["edges"].tolist() == [0, MOST_EDGES, 0]
    assert len(coarse) == 2 * (MOST_EDGES + 1)
