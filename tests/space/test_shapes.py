"""Shapes: who touches whom, exactly at the border, against a rational oracle; and what is refused.

The oracle measures the gap between two shapes in fractions, in one formula for all kinds: per axis
what the boxes leave between them, and then the Euclidean length of that against the radii.
"""

from collections.abc import Callable, Iterable
from fractions import Fraction
from itertools import product
from math import inf, nan, nextafter, sqrt
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba import njit

from nearcast.matching import grid_build
from nearcast.space.shapes import (
    EVERYWHERE,
    LARGEST,
    Shape,
    ShapeKind,
    ball,
    box,
    cuboid,
    disc,
    overlap,
    point,
)
from support.examples import examples
from support.strategies import COORDINATES, EXTENTS, shapes

PAIRS = list(product(ShapeKind, ShapeKind))
# Quarters are exact in binary, so the oracle and the floats speak of the very same numbers.
SMALL = st.integers(-16, 16).map(lambda quarters: quarters / 4)
SMALL_EXTENTS = st.integers(0, 12).map(lambda quarters: quarters / 4)
WILD = st.floats(-LARGEST, LARGEST) | COORDINATES
WILD_EXTENTS = st.floats(0, LARGEST) | EXTENTS
BEYOND = nextafter(LARGEST, inf)


def of_kind(
    kind: ShapeKind,
    coordinates: st.SearchStrategy[float] = SMALL,
    extents: st.SearchStrategy[float] = SMALL_EXTENTS,
    sides: st.SearchStrategy[float] | None = None,
    dims: int = 3,
) -> st.SearchStrategy[Shape]:
    """Any shape of this kind; `sides` are a box's half-extents where they differ from a radius."""
    flat = st.just(0.0)
    radii = {ShapeKind.POINT: (flat, flat, flat), ShapeKind.DISC: (extents, flat, flat)}
    rx, ry, rz = radii.get(kind, (extents if sides is None else sides,) * 3)
    z = coordinates if dims == 3 else flat
    return st.builds(
        Shape, st.just(kind), coordinates, coordinates, z, rx, ry, rz if dims == 3 else flat
    )


def gap(a: Shape, b: Shape, axis: str) -> Fraction:
    """What the two leave free between them on one axis, discs counted by their centres alone."""
    sides = [getattr(s, f"r{axis}") for s in (a, b) if s.kind == ShapeKind.BOX]
    if inf in sides:
        return Fraction(0)
    apart = abs(Fraction(getattr(a, axis)) - Fraction(getattr(b, axis)))
    return max(Fraction(0), apart - sum(map(Fraction, sides)))


def really_touch(a: Shape, b: Shape, axes: str = "xyz") -> bool:
    radius = sum((Fraction(s.rx) for s in (a, b) if s.kind == ShapeKind.DISC), Fraction(0))
    return sum(gap(a, b, axis) ** 2 for axis in axes) <= radius**2


# Who touches whom.


@pytest.mark.parametrize(("one", "other"), PAIRS)
@examples(20)
@given(drawn=st.data())
def test_shapes_touch_exactly_when_the_rational_oracle_says_so(
    one: ShapeKind, other: ShapeKind, drawn: st.DataObject
) -> None:
    sides = SMALL_EXTENTS | st.just(inf)
    a = drawn.draw(of_kind(one, sides=sides))
    b = drawn.draw(of_kind(other, sides=sides))
    assert a.touches(b) == really_touch(a, b)


def all_small(kind: ShapeKind, centres: Iterable[tuple[int, int, int]]) -> list[Shape]:
    sizes: dict[ShapeKind, list[tuple[float, float, float]]] = {
        ShapeKind.POINT: [(0, 0, 0)],
        ShapeKind.DISC: [(r, 0, 0) for r in range(5)],
        ShapeKind.BOX: [
            (0, 0, 0),
            (1, 0, 0),
            (2, 1, 0),
            (0, 1, 2),
            (1, 1, 1),
            (inf, 0, 1),
            (1, 2, inf),
        ],
    }
    return [Shape(kind, *centre, *size) for centre in centres for size in sizes[kind]]


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_every_small_pair_touches_exactly_when_the_oracle_says_so(
    one: ShapeKind, other: ShapeKind
) -> None:
    around = list(product(range(-1, 5), range(-1, 4), range(3)))
    answers = [
        (a.touches(b), really_touch(a, b))
        for a in all_small(one, [(0, 0, 0)])
        for b in all_small(other, around)
    ]
    assert all(said == true for said, true in answers)
    assert {True, False} == {true for _, true in answers}, "a sweep without both proves nothing"


@pytest.mark.parametrize(("one", "other"), PAIRS)
@examples(12)
@given(drawn=st.data())
def test_touching_is_mutual_however_extreme_the_shapes(
    one: ShapeKind, other: ShapeKind, drawn: st.DataObject
) -> None:
    sides = WILD_EXTENTS | st.just(inf)
    a = drawn.draw(of_kind(one, WILD, WILD_EXTENTS, sides))
    b = drawn.draw(of_kind(other, WILD, WILD_EXTENTS, sides))
    assert a.touches(b) == b.touches(a)
    assert a.touches(a), "a shape shares all its points with itself"


@examples(50)
@given(drawn=st.data(), kinds=st.sampled_from(PAIRS))
def test_in_two_dimensions_z_plays_no_part(
    drawn: st.DataObject, kinds: tuple[ShapeKind, ShapeKind]
) -> None:
    a, b = (drawn.draw(of_kind(kind, dims=2)) for kind in kinds)
    assert a.touches(b) == really_touch(a, b, axes="xy")


def test_the_short_names_of_two_dimensions_mean_shapes_at_height_0() -> None:
    assert point(1, 2) == point(1, 2, 0) == Shape(ShapeKind.POINT, 1, 2, 0, 0, 0, 0)
    assert disc(1, 2, 3) == ball(1, 2, 0, 3) == Shape(ShapeKind.DISC, 1, 2, 0, 3, 0, 0)
    assert box(1, 2, 3, 4) == cuboid(1, 2, 0, 3, 4, 0) == Shape(ShapeKind.BOX, 1, 2, 0, 3, 4, 0)
    assert ball(1, 2, 3, 4) == Shape(ShapeKind.DISC, 1, 2, 3, 4, 0, 0)
    assert cuboid(1, 2, 3, 4, 5, 6) == Shape(ShapeKind.BOX, 1, 2, 3, 4, 5, 6)


@pytest.mark.parametrize(
    ("whole", "broken"),
    [
        (point(3, 4), point(3.0, 4.0)),
        (point(3, 4, 5), point(3.0, 4.0, 5.0)),
        (disc(3, 4, 5), disc(3.0, 4.0, 5.0)),
        (ball(3, 4, 5, 6), ball(3.0, 4.0, 5.0, 6.0)),
        (box(3, 4, 5, 6), box(3.0, 4.0, 5.0, 6.0)),
        (cuboid(3, 4, 5, 6, 7, 8), cuboid(3.0, 4.0, 5.0, 6.0, 7.0, 8.0)),
    ],
)
def test_shapes_of_whole_numbers_take_as_many_bytes_as_the_same_shapes_of_floats(
    whole: Shape, broken: Shape
) -> None:
    assert msgspec.msgpack.encode(whole) == msgspec.msgpack.encode(broken)
    _, *measures, _ = msgspec.structs.astuple(whole)
    assert {type(number) for number in measures} == {float}


# The border.

SIZED: dict[ShapeKind, Callable[[float], Shape]] = {
    ShapeKind.POINT: lambda _: point(0, 0, 0),
    ShapeKind.DISC: lambda r: ball(0, 0, 0, r),
    ShapeKind.BOX: lambda r: cuboid(0, 0, 0, r, r, r),
}


def beside(shape: Shape, axis: str, distance: float) -> Shape:
    return msgspec.structs.replace(shape, **{axis: distance})


@pytest.mark.parametrize(("one", "other"), PAIRS)
@pytest.mark.parametrize("axis", ["x", "y", "z"])
@pytest.mark.parametrize("way", [1, -1])
def test_the_border_belongs_to_the_shape_and_nothing_beyond_it_does(
    one: ShapeKind, other: ShapeKind, axis: str, way: int
) -> None:
    for ra, rb in product(range(4), range(4)):
        a, b = SIZED[one](float(ra)), SIZED[other](float(rb))
        reach = a.rx + b.rx
        assert a.touches(beside(b, axis, way * reach))
        assert not a.touches(beside(b, axis, way * (reach + 1)))
        if reach:  # where a distance's square does not vanish, a border is sharp to the last bit
            assert not a.touches(beside(b, axis, way * nextafter(reach, inf)))


@pytest.mark.parametrize(
    ("x", "y", "z", "distance"),
    [(3, 4, 0, 5), (5, 12, 0, 13), (1, 2, 2, 3), (2, 3, 6, 7), (-8, 9, -12, 17), (0, -20, 21, 29)],
)
def test_round_shapes_touch_askew_exactly_where_pythagoras_says(
    x: int, y: int, z: int, distance: int
) -> None:
    for radius in range(distance + 1):
        rest = distance - radius
        a, touching = ball(0, 0, 0, radius), ball(x, y, z, rest)
        assert a.touches(touching)
        if rest:
            assert not a.touches(ball(x, y, z, rest - 1))
    assert not point(0, 0, 0).touches(ball(x, y, z, nextafter(distance, 0)))
    corner = cuboid(x + (3 if x >= 0 else -3), y + (2 if y >= 0 else -2), z, 3, 2, 0)
    assert corner.touches(ball(0, 0, 0, distance))
    assert not corner.touches(ball(0, 0, 0, nextafter(distance, 0)))


@examples(50)
@given(st.data(), st.sampled_from(list(ShapeKind)), SMALL, SMALL, SMALL)
def test_without_size_a_disc_and_a_box_are_points(
    drawn: st.DataObject, kind: ShapeKind, x: float, y: float, z: float
) -> None:
    other = drawn.draw(of_kind(kind))
    expected = really_touch(point(x, y, z), other)
    for nothing in (point(x, y, z), ball(x, y, z, 0), cuboid(x, y, z, 0, 0, 0)):
        assert nothing.touches(other) == other.touches(nothing) == expected


# As far out as shapes may be.


@pytest.mark.parametrize(("one", "other"), list(product([ShapeKind.DISC, ShapeKind.BOX], repeat=2)))
@pytest.mark.parametrize("axis", ["x", "y", "z"])
def test_between_the_ends_of_the_world_a_border_is_still_a_border(
    one: ShapeKind, other: ShapeKind, axis: str
) -> None:
    """Neither a distance nor its square overflows, so no sum of extents equals it by infinity."""
    west, east = SIZED[one](LARGEST), SIZED[other](LARGEST)
    assert beside(west, axis, -LARGEST).touches(beside(east, axis, LARGEST))
    almost = SIZED[other](nextafter(LARGEST, 0))
    assert not beside(west, axis, -LARGEST).touches(beside(almost, axis, LARGEST))
    assert beside(west, axis, -LARGEST).touches(point(0, 0, 0))


def test_a_disc_reaches_from_corner_to_corner_of_the_world_or_it_does_not() -> None:
    corner, far = ball(-LARGEST, -LARGEST, -LARGEST, LARGEST), LARGEST * (sqrt(4 / 3) - 1)
    assert corner.touches(ball(far, far, far, LARGEST))
    assert not corner.touches(ball(far * 1.001, far * 1.001, far * 1.001, LARGEST))
    assert not corner.touches(point(LARGEST, LARGEST, LARGEST))


# Boxes without bounds.


@examples(60)
@given(shapes())
def test_the_shape_everywhere_touches_all(shape: Shape) -> None:
    assert EVERYWHERE.touches(shape)
    assert shape.touches(EVERYWHERE)


@examples(50)
@given(st.data(), st.sampled_from(list(ShapeKind)), st.sampled_from("xyz"))
def test_an_unbounded_axis_is_no_condition(
    drawn: st.DataObject, kind: ShapeKind, axis: str
) -> None:
    other = drawn.draw(of_kind(kind, WILD, WILD_EXTENTS))
    bounded = drawn.draw(of_kind(ShapeKind.BOX, WILD, WILD_EXTENTS))
    unbounded = msgspec.structs.replace(bounded, **{f"r{axis}": inf})
    level = beside(bounded, axis, getattr(other, axis))  # no distance at all on this axis
    assert unbounded.touches(other) == level.touches(other)


def test_a_slab_holds_all_between_its_faces_and_nothing_else() -> None:
    slab = cuboid(0, 0, 10, inf, inf, 2)
    assert slab.touches(point(LARGEST, -LARGEST, 12))
    assert not slab.touches(point(0, 0, nextafter(12, inf)))
    assert slab.touches(ball(-LARGEST, LARGEST, 15, 3))
    assert not slab.touches(ball(0, 0, 15, nextafter(3, 0)))
    assert slab.touches(cuboid(0, 0, -LARGEST, 0, 0, inf))


# The compiled twin.


def _call_the_kernel(
    a: int, ax: float, ay: float, az: float, arx: float, ary: float, arz: float,
    b: int, bx: float, by: float, bz: float, brx: float, bry: float, brz: float,
) -> Any:  # fmt: skip
    return grid_build.overlap(a, ax, ay, az, arx, ary, arz, b, bx, by, bz, brx, bry, brz)


compiled_overlap = njit(_call_the_kernel)


def numbers(shape: Shape) -> tuple[int, float, float, float, float, float, float]:
    kind, *rest, _ = msgspec.structs.astuple(shape)
    x, y, z, rx, ry, rz = map(float, rest)
    return int(kind), x, y, z, rx, ry, rz


def touch_both_ways(a: Shape, b: Shape) -> bool:
    answer = overlap(*numbers(a), *numbers(b))
    assert bool(compiled_overlap(*numbers(a), *numbers(b))) == answer == a.touches(b)
    return answer


@examples(120)
@given(st.data(), st.sampled_from(PAIRS), st.booleans())
def test_the_compiled_overlap_gives_the_same_answer(
    drawn: st.DataObject, kinds: tuple[ShapeKind, ShapeKind], wild: bool
) -> None:
    coordinates, extents = (WILD, WILD_EXTENTS) if wild else (COORDINATES, EXTENTS)
    a, b = (drawn.draw(of_kind(k, coordinates, extents, extents | st.just(inf))) for k in kinds)
    touch_both_ways(a, b)


@examples(60)
@given(st.tuples(*[st.floats(-1e6, 1e6)] * 6))
def test_the_compiled_overlap_agrees_at_the_last_bit_of_a_radius(
    centres: tuple[float, float, float, float, float, float],
) -> None:
    """A fused multiply-add would round once where Python rounds twice, and show just here."""
    ax, ay, az, bx, by, bz = centres
    dx, dy, dz = ax - bx, ay - by, az - bz
    r = sqrt(dx * dx + dy * dy + dz * dz)
    for other in (point(bx, by, bz), cuboid(bx, by, bz, 0.0, 0.0, 0.0)):
        assert touch_both_ways(ball(ax, ay, az, r), other)
        if r > 0:
            assert not touch_both_ways(ball(ax, ay, az, nextafter(r, 0)), other)


# What is no shape.

REFUSED = [
    ((ShapeKind.POINT, nan, 0.0, 0.0), "a centre must be within ±1e+150, not (nan, 0.0, 0.0)"),
    ((ShapeKind.POINT, 0.0, inf, 0.0), "a centre must be within ±1e+150, not (0.0, inf, 0.0)"),
    (
        (ShapeKind.DISC, 0.0, 0.0, -inf, 1.0),
        "a centre must be within ±1e+150, not (0.0, 0.0, -inf)",
    ),
    (
        (ShapeKind.BOX, 0.0, nan, 0.0, inf, inf, inf),
        "a centre must be within ±1e+150, not (0.0, nan, 0.0)",
    ),
    (
        (ShapeKind.POINT, BEYOND, 0.0, 0.0),
        "a centre must be within ±1e+150, not (1.0000000000000002e+150, 0.0, 0.0)",
    ),
    (
        (ShapeKind.DISC, 0.0, -BEYOND, 0.0, 1.0),
        "a centre must be within ±1e+150, not (0.0, -1.0000000000000002e+150, 0.0)",
    ),
    ((ShapeKind.BOX, 0.0, 0.0, 1e308), "a centre must be within ±1e+150, not (0.0, 0.0, 1e+308)"),
    ((ShapeKind.DISC, 0.0, 0.0, 0.0, BEYOND), "extents must be infinite or at most 1e+150"),
    ((ShapeKind.BOX, 0.0, 0.0, 0.0, inf, BEYOND), "extents must be infinite or at most 1e+150"),
    ((ShapeKind.BOX, 0.0, 0.0, 0.0, 1.0, 1.0, 1e308), "extents must be infinite or at most 1e+150"),
    ((ShapeKind.DISC, 0.0, 0.0, 0.0, -1.0), "extents must be 0 or more, not (-1.0, 0.0, 0.0)"),
    ((ShapeKind.DISC, 0.0, 0.0, 0.0, nan), "extents must be 0 or more, not (nan, 0.0, 0.0)"),
    ((ShapeKind.BOX, 0.0, 0.0, 0.0, 1.0, -inf), "extents must be 0 or more, not (1.0, -inf, 0.0)"),
    (
        (ShapeKind.BOX, 0.0, 0.0, 0.0, 1.0, 1.0, nan),
        "extents must be 0 or more, not (1.0, 1.0, nan)",
    ),
    ((ShapeKind.POINT, 0.0, 0.0, 0.0, 1.0), "a point has no extents"),
    ((ShapeKind.POINT, 0.0, 0.0, 0.0, 0.0, 5e-324), "a point has no extents"),
    ((ShapeKind.POINT, 0.0, 0.0, 0.0, 0.0, 0.0, inf), "a point has no extents"),
    ((ShapeKind.DISC, 0.0, 0.0, 0.0, inf), "a disc has one finite radius, rx"),
    ((ShapeKind.DISC, 0.0, 0.0, 0.0, 1.0, 1.0), "a disc has one finite radius, rx"),
    ((ShapeKind.DISC, 0.0, 0.0, 0.0, 1.0, 0.0, 1.0), "a disc has one finite radius, rx"),
]


def received(fields: tuple[Any, ...]) -> Shape:
    """The shape that untrusted bytes make."""
    return msgspec.msgpack.decode(msgspec.msgpack.encode(fields), type=Shape)


@pytest.mark.parametrize(("fields", "sentence"), REFUSED)
def test_invalid_shapes_are_refused_in_one_sentence_in_code_and_from_the_wire(
    fields: tuple[Any, ...], sentence: str
) -> None:
    with pytest.raises(ValueError) as at_home:
        Shape(*fields)
    assert str(at_home.value) == sentence
    with pytest.raises(msgspec.ValidationError) as from_afar:
        received(fields)
    assert str(from_afar.value) == sentence


@pytest.mark.parametrize("kind", [-1, 3, 255, 2**40, "disc", None, 1.5])
def test_an_unknown_kind_is_refused_from_the_wire(kind: object) -> None:
    with pytest.raises(msgspec.ValidationError, match=r"^[^\n]+$"):
        received((kind, 0.0, 0.0))


def makes_sense(kind: ShapeKind, x: float, y: float, z: float, *extents: float) -> bool:
    if not all(-LARGEST <= c <= LARGEST for c in (x, y, z)):
        return False
    if not all(0 <= r <= LARGEST or r == inf for r in extents):
        return False
    if kind == ShapeKind.POINT:
        return extents == (0, 0, 0)
    return kind == ShapeKind.BOX or (extents[0] < inf and extents[1:] == (0, 0))


ANYTHING = st.sampled_from(
    [0.0, -0.0, 1.0, -1.0, LARGEST, -LARGEST, BEYOND, -BEYOND, 1e308, 5e-324, inf, -inf, nan]
)


@examples(60)
@given(st.sampled_from(list(ShapeKind)), st.tuples(*[ANYTHING] * 6))
def test_any_numbers_make_a_sensible_shape_or_none(
    kind: ShapeKind, rest: tuple[float, ...]
) -> None:
    for make in (lambda fields: Shape(*fields), received):
        try:
            shape = make((kind, *rest))
        except ValueError as why:
            assert not makes_sense(kind, *rest)
            assert "\n" not in str(why)
        else:
            assert makes_sense(kind, *rest)
            assert shape == Shape(kind, *rest)
