"""Very many fences: found as if each had been asked alone, however they were put."""

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nearcast.fences.areas import Fence, FenceColumns, columns_of, polygon_columns
from nearcast.fences.areas import join_columns as join_blocks
from nearcast.fences.coarse_rings import MOST_EDGES
from nearcast.fences.events import fixes_of
from nearcast.fences.fence_index import FenceIndex, order_by_place
from nearcast.fences.last_fixes import LastFixes
from nearcast.space.earth import ecef
from nearcast.space.earth_shapes import earth_bounds, earth_disc
from nearcast.space.motion import Moving
from nearcast.space.outline_shapes import earth_polygon
from nearcast.space.shapes import EVERYWHERE, ball, box, cuboid, disc
from support.examples import examples, seeds
from support.fence_worlds import join_columns, visits_alone, visits_found

Degrees = tuple[float, float]  # longitude and latitude


def star_columns(
    rng: np.random.Generator, numbers: Any, side: float, size: float, most: int = 40
) -> FenceColumns:
    """Polygons whose vertices are at random distances from their centres."""
    counts = rng.integers(3, most, len(numbers))
    first = np.cumsum(counts) - counts
    turn = (np.arange(counts.sum()) - np.repeat(first, counts)) / np.repeat(counts, counts)
    radius = (
        size
        * rng.uniform(0.1, 1, len(turn))
        * np.repeat(4.0 ** rng.integers(-2, 3, len(numbers)), counts)
    )
    middle = np.repeat(rng.uniform(0, side, (len(numbers), 2)), counts, axis=0)
    angle = 2 * np.pi * turn
    vertices = middle + radius[:, None] * np.c_[np.cos(angle), np.sin(angle)]
    return polygon_columns(numbers, vertices, first, np.ones(len(numbers), int), 63)


def ways(rng: np.random.Generator, count: int, side: float, step: float) -> Any:
    last = LastFixes()
    places = rng.uniform(0, side, (count, 2))
    last.take(fixes_of(np.arange(count), np.zeros(count), places))
    return last.take(
        fixes_of(np.arange(count), np.full(count, 1000), places + rng.normal(0, step, (count, 2)))
    )


@seeds(range(3), range(3, 30))
def test_a_grid_finds_what_every_pair_alone_says(seed: int) -> None:
    """Short ways and long ones, small fences and large ones, with few vertices and with many."""
    rng = np.random.default_rng(seed)
    fences = join_blocks([
        star_columns(rng, np.arange(120), 100.0, 6.0),
        star_columns(rng, np.arange(120, 140), 100.0, 6.0, 2 * MOST_EDGES),
    ])  # fmt: skip
    index = FenceIndex()
    index.put(fences, 0)
    assert {0} < set(index.areas["edges"][:140].tolist())
    for step in (0.5, 20.0, 500.0):
        rows = ways(rng, 60, 100.0, step)
        assert visits_found(index, rows) == visits_alone(fences, rows)


@seeds(range(2), range(2, 20))
def test_fences_may_be_put_and_removed_in_any_portions(seed: int) -> None:
    rng = np.random.default_rng(seed)
    index, kept = FenceIndex(), {}
    rows = ways(rng, 80, 100.0, 5.0)
    for step in range(25):
        numbers = np.array(list(range(step * 10, step * 10 + rng.integers(1, 10))))
        fences = star_columns(rng, numbers, 100.0, 8.0)
        index.put(fences, 0)
        for number in numbers.tolist():
            kept[number] = fences
        gone = rng.permutation(list(kept))[: rng.integers(0, 8)]
        index.remove(gone)
        for number in gone.tolist():
            del kept[number]
        if step % 3 == 0:
            visits_found(index, rows)  # sorts in what was put
    expected = join_columns([
        fences._replace(areas=fences.areas[fences.areas["number"] == number])
        for number, fences in kept.items()
    ])  # fmt: skip
    assert visits_found(index, rows) == visits_alone(expected, rows)
    assert len(index) == len(kept)


@given(st.integers(0, 10**6))
@examples(20)
def test_shapes_of_every_kind_and_size_are_found_together(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shapes = [EVERYWHERE, box(0, 0, 1e6, 1), cuboid(1, 1, 0, 5, np.inf, 1), ball(3, 3, 1, 4)]
    shapes += [disc(*rng.uniform(0, 50, 2), 10.0 ** rng.integers(-3, 3)) for _ in range(40)]
    fences = columns_of([Fence(k, Moving(shape), 63) for k, shape in enumerate(shapes)], 0)
    index = FenceIndex()
    index.put(fences, 0)
    rows = ways(rng, 30, 50.0, float(rng.choice([0.1, 5.0, 200.0])))
    assert visits_found(index, rows) == visits_alone(fences, rows)


@seeds(range(2), range(2, 20))
def test_ways_on_earth_find_what_is_beside_the_chord(seed: int) -> None:
    """A way along a parallel is far from the straight line through the Earth."""
    rng = np.random.default_rng(seed)
    corners = rng.uniform((-180, -80), (160, 60), (60, 2))
    shapes = [earth_bounds(lon, lat, lon + 9, lat + 9) for lon, lat in corners.tolist()]
    shapes += [earth_disc(lon, lat, 400_000.0) for lon, lat in corners.tolist()]
    fences = columns_of([Fence(k, Moving(shape), 63) for k, shape in enumerate(shapes)], 0)
    index, last = FenceIndex(earth=True), LastFixes()
    index.put(fences, 0)
    for t in (0, 1000):
        places = [ecef(lon, lat) for lon, lat in rng.uniform((-180, -89), (180, 89), (40, 2))]
        rows = last.take(fixes_of(np.arange(40), np.full(40, t), places))
    assert visits_found(index, rows) == visits_alone(fences, rows)


def stars_on_earth(rng: np.random.Generator, around: Degrees, size: float) -> FenceColumns:
    """Polygons with few vertices and with many, some with heights and with holes."""
    shapes = []
    for k, corners in enumerate([3, 9, 40, MOST_EDGES + 5] * 5):
        middle = around + rng.normal(0, size, 2)
        middle[1] = min(middle[1], 90.0 - size)
        turn = 2 * np.pi * np.arange(corners) / corners
        radius = size * 2.0 ** rng.integers(-2, 1) * rng.uniform(0.4, 1, corners)
        ring = middle + radius[:, None] * np.c_[np.cos(turn), np.sin(turn)]
        hole = middle + size / 40 * np.array([(1, 0), (-1, 1), (-1, -1)])
        rings = [list(map(tuple, one.tolist())) for one in (ring, hole)]
        low, high = (0.0, 100.0) if k % 5 == 0 else (None, None)
        shapes.append(earth_polygon(rings[: 1 + k % 3 // 2], low, high))
    return columns_of([Fence(k, Moving(shape), 63) for k, shape in enumerate(shapes)], 0)


AROUND = [(8.0, 47.0), (179.9, -40.0), (-180.0, 10.0), (30.0, 87.5)]


@seeds(range(4), range(4, 80))
def test_ways_through_polygons_on_earth_find_what_every_pair_alone_says(seed: int) -> None:
    """Also at their vertices, across the antimeridian and over a pole."""
    rng, around = np.random.default_rng(seed), AROUND[seed % len(AROUND)]
    size = (0.01, 2.0)[seed // len(AROUND) % 2]
    fences = stars_on_earth(rng, around, size)
    index, last = FenceIndex(earth=True), LastFixes()
    index.put(fences, 0)
    used = index.areas[: len(fences.areas)]
    assert (used["edges"] > 0).any() and (used["slabs"] > 0).any()
    vertices = fences.coordinates.reshape(-1, 2)
    for t in range(3):
        places = around + rng.normal(0, size * (0.5, 2.0)[t % 2], (40, 2))
        if t == 1:  # no way leads along an edge, where rounding decides
            places[:8] = vertices[rng.integers(len(vertices), size=8)]
        places = [ecef(lon, min(lat, 90.0)) for lon, lat in places.tolist()]
        heights = np.where(np.arange(40) % 2, 50.0, np.nan)
        rows = last.take(fixes_of(np.arange(40), np.full(40, 1000 * t), places, heights))
        if t:
            assert visits_found(index, rows) == visits_alone(fences, rows)


def test_neighbours_get_neighbouring_slots_and_answers_are_as_given() -> None:
    rng = np.random.default_rng(1)
    fences = star_columns(rng, rng.permutation(500), 100.0, 1.0)
    index = FenceIndex()
    times = rng.permutation(500)
    slots = index.put(fences, times)
    assert index.areas["number"][slots].tolist() == fences.areas["number"].tolist()
    assert index.areas["since"][slots].tolist() == times.tolist()
    assert [index.slots[n] for n in fences.areas["number"].tolist()] == slots.tolist()
    places = np.c_[index.areas["x"][:500], index.areas["y"][:500]]
    apart = np.hypot(*(places[1:] - places[:-1]).T).mean()
    assert apart < np.hypot(*(places[250:] - places[:250]).T).mean() / 3


def test_the_order_of_places_survives_one_that_is_far_away() -> None:
    x, y = np.meshgrid(np.arange(16.0), np.arange(16.0))
    far = np.r_[x.ravel(), 1e6], np.r_[y.ravel(), -1e6]
    order = order_by_place(*far, np.zeros(257))
    assert sorted(order.tolist()) == list(range(257))
    near = order[order < 256]
    steps = abs(np.diff(far[0][near])) + abs(np.diff(far[1][near]))
    assert steps.mean() < 2.5
