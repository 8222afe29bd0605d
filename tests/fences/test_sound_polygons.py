"""Polygons that are checked in bulk, against those that `space` checks one by one, and shapely."""

from collections.abc import Sequence
from math import cos, pi, sin
from typing import Any

import numpy as np
import pytest
import shapely
from hypothesis import given
from hypothesis import strategies as st

from nearcast.fences.areas import Fence, FenceColumns, columns_of
from nearcast.fences.sound_polygons import GivenPolygon, Position, sound_polygons
from nearcast.space.motion import Moving
from nearcast.space.outline_shapes import earth_multipolygon, multipolygon
from nearcast.space.shapes import Shape
from support.examples import examples

Ring = list[tuple[float, float]]
Parts = list[list[Ring]]
STEPS = st.integers(0, 6)
RINGS = st.lists(st.tuples(STEPS, STEPS), min_size=3, max_size=7)
SCALES = st.sampled_from([1.0, 0.1, 1e-9, 1e-150])
PARTS = st.lists(st.lists(RINGS, min_size=1, max_size=3), min_size=1, max_size=2)


def closed(ring: Sequence[tuple[float, float]]) -> list[Position]:
    return [Position(x, y) for x, y in (*ring, ring[0])]


def as_given(parts: Parts, **heights: float) -> GivenPolygon:
    return GivenPolygon([[closed(ring) for ring in part] for part in parts], **heights)


def shape_of(parts: Parts, earth: bool, **heights: float) -> Shape | None:
    """None: refused."""
    try:
        return (earth_multipolygon if earth else multipolygon)(parts, **heights)
    except ValueError:
        return None


def assert_same(found: FenceColumns, shapes: list[Shape]) -> None:
    wanted = columns_of([Fence(0, Moving(shape)) for shape in shapes], 0)
    for column, due in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(column, due)


def around(x: float, y: float, radius: float, corners: int) -> Ring:
    turns = [2 * pi * k / corners for k in range(corners)]
    return [(x + radius * cos(turn), y + radius * sin(turn)) for turn in turns]


@pytest.mark.parametrize("earth", [False, True])
@examples(300)
@given(st.lists(st.tuples(PARTS, SCALES), max_size=6))
def test_what_is_sound_is_what_space_accepts_with_the_same_numbers(
    earth: bool, worlds: list[tuple[Any, float]]
) -> None:
    many = [
        [[[(x * scale, y * scale) for x, y in ring] for ring in part] for part in parts]
        for parts, scale in worlds
    ]
    sound, found = sound_polygons([as_given(parts) for parts in many], earth)
    shapes = [
        shape_of(parts, earth) for parts, is_sound in zip(many, sound, strict=True) if is_sound
    ]
    assert_same(found, [shape for shape in shapes if shape is not None])
    assert None not in shapes


@examples(500)
@given(RINGS)
def test_a_ring_that_shapely_finds_valid_is_sound(ring: Ring) -> None:
    """A ring that shapely accepts touches itself nowhere, but may repeat a vertex."""
    once = [vertex for k, vertex in enumerate(ring) if vertex != ring[k - 1]]
    if len(once) < 3:
        return
    (sound,), _ = sound_polygons([as_given([[once]])], False)
    assert sound == shapely.Polygon(once).is_valid


@pytest.mark.parametrize("earth", [False, True])
def test_holes_parts_and_collinear_vertices_are_sound(earth: bool) -> None:
    square: Ring = [(0, 0), (4, 0), (9, 0), (9, 9), (0, 9)]
    hole, island = around(4, 4, 3, 24), around(4, 4, 1, 5)
    many: list[Parts] = [
        [[square]],
        [[square[::-1], hole]],
        [[square, around(2, 2, 1, 8), around(6, 6, 1, 8)], [around(20, 20, 3, 64)]],
        [[square, hole], [island]],
    ]
    sound, found = sound_polygons([as_given(parts) for parts in many], earth)
    assert sound.all()
    shapes = [shape_of(parts, earth) for parts in many]
    assert_same(found, [shape for shape in shapes if shape is not None])


@pytest.mark.parametrize(
    "parts",
    [
        [[[(0, 0), (4, 4), (4, 0), (0, 4)]]],  # crosses itself
        [[[(0, 0), (4, 0), (2, 0), (2, 3)]]],  # goes back
        [[around(0, 0, 9, 8), around(20, 0, 1, 8)]],  # the hole is outside
        [[around(0, 0, 9, 8), around(0, 0, 5, 8), around(0, 0, 2, 8)]],  # a hole in a hole
        [[around(0, 0, 9, 8)], [around(0, 0, 5, 8)]],  # a part in a part
        [[[(0, 0), (0, 0), (0, 0)]]],
        [[[(0, 0), (1e200, 0), (0, 9)]]],
    ],
)
def test_what_space_refuses_is_never_sound(parts: Parts) -> None:
    good = [[around(1, 2, 3, 9)]]
    sound, found = sound_polygons([as_given(one) for one in (good, parts, good)], False)
    assert sound.tolist() == [True, False, True] and shape_of(parts, False) is None
    assert_same(found, [multipolygon(good)] * 2)


def test_heights_are_kept_and_bad_ones_left_to_space() -> None:
    ring = around(1, 2, 3, 9)
    bad = [as_given([[ring]], low=3.0, high=2.0), as_given([[[(0, 0), (2, 0), (1, 91)]]])]
    sound, found = sound_polygons([*bad, as_given([[ring]], low=-1.0, high=5.0)], True)
    assert sound.tolist() == [False, False, True]
    assert_same(found, [earth_multipolygon([[ring]], -1.0, 5.0)])
    sound, found = sound_polygons(
        [as_given([[ring]], z=1.0, rz=-1.0), as_given([[ring]], z=1.0, rz=2.0)], False
    )
    assert sound.tolist() == [False, True]
    assert_same(found, [multipolygon([[ring]], 1.0, 2.0)])


def test_a_ring_round_the_earth_or_open_is_left_to_space() -> None:
    band: Ring = [(-180, 0), (180, 0), (180, 10), (-180, 10)]
    opened = GivenPolygon([[closed(around(1, 2, 3, 9))[:-1]]])
    sound, found = sound_polygons([as_given([[band]]), opened], True)
    assert not sound.any() and len(found.areas) == 0
    assert shape_of([[band]], True) is not None
