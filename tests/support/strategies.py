"""Hypothesis strategies for regions, subscriptions and publications of every kind.

To make a strategy takes longer than to draw from it, so each is made once.
"""

from functools import cache
from math import inf

from hypothesis import strategies as st

from nearcast.model.publication import Publication
from nearcast.model.subscription import Filter, Formula, Subscription
from nearcast.space.motion import SECOND, Moving, path
from nearcast.space.outlines import CORRIDOR, POLYGON, Outline, numbers, pack
from nearcast.space.shapes import Shape, ShapeKind

# Small integers make borders touch exactly; the rest make indexes sweat.
COORDINATES = st.one_of(
    st.integers(-8, 8).map(float),
    st.floats(-100, 100),
    st.sampled_from([0.0, -0.0, 1e-200, -3e5, 1e9, -1e9 + 0.125, 1e15, -1e100, 1e150]),
)
EXTENTS = st.one_of(
    st.integers(0, 8).map(float),
    st.floats(0, 20),
    st.sampled_from([0.0, 1e-200, 1e-9, 0.001, 1e6, 1e15, 1e150]),
)
TIMES = st.one_of(st.integers(0, 20 * SECOND), st.sampled_from([0, 1, SECOND, 10 * SECOND]))
SPEEDS = st.one_of(st.just(0.0), st.integers(-3, 3).map(float), st.floats(-50, 50))
KINDS = st.sampled_from(list(ShapeKind))
SIDES = st.one_of(EXTENTS, st.just(inf))
DURATIONS = st.one_of(st.none(), TIMES)
NEAR = st.integers(-30, 30).map(float)
STOPS = st.lists(st.tuples(NEAR, NEAR, st.just(0.0)), min_size=1, max_size=4)
RADII = st.floats(0, 9)
PACES = st.floats(0.5, 20)
DIGITS = st.integers(0, 9)


@cache
@st.composite
def shapes(draw: st.DrawFn, dims: int = 3, bounded: bool = False) -> Shape:
    kind = draw(KINDS)
    x, y = draw(COORDINATES), draw(COORDINATES)
    z = draw(COORDINATES) if dims == 3 else 0.0
    if kind == ShapeKind.POINT:
        return Shape(kind, x, y, z)
    if kind == ShapeKind.DISC:
        return Shape(kind, x, y, z, draw(EXTENTS))
    sides = EXTENTS if bounded else SIDES
    rz = draw(sides) if dims == 3 else 0.0
    return Shape(kind, x, y, z, draw(sides), draw(sides), rz)


RINGS = st.sampled_from(
    [
        [-4.0, -4.0, 4.0, -4.0, 0.0, 4.0],  # a triangle
        [-4.0, -4.0, 4.0, -4.0, 4.0, 4.0, 0.0, 0.0, -4.0, 4.0],  # with a notch
        [-6.0, 0.0, 0.0, -6.0, 6.0, 0.0, 0.0, 6.0],
    ]
)
LINES = st.sampled_from([[-4.0, -4.0, 0.0, 0.0, 4.0, -1.0], [0.0, -7.0, 0.0, 7.0]])


@cache
@st.composite
def outlined_shapes(draw: st.DrawFn, dims: int = 3) -> Shape:
    """Polygons, one of them with a hole, and corridors."""
    choice, x, y = draw(DIGITS), draw(NEAR), draw(NEAR)
    z, rz = (draw(NEAR), draw(RADII)) if dims == 3 else (0.0, 0.0)
    if choice < 3:
        outline = Outline(CORRIDOR, False, pack(draw(LINES)), (0,), size=draw(RADII))
    elif choice < 5:
        hole = [-1.0, -1.0, 1.0, -1.0, 1.0, 1.0, -1.0, 1.0]
        ring = [-8.0, -8.0, 8.0, -8.0, 8.0, 8.0, -8.0, 8.0]
        outline = Outline(POLYGON, False, pack([*ring, *hole]), (0, 4))
    else:
        outline = Outline(POLYGON, False, pack(draw(RINGS)), (0,))
    flat = numbers(outline)
    rx = max(map(abs, flat[::2])) + outline.size
    ry = max(map(abs, flat[1::2])) + outline.size
    return Shape(ShapeKind.BOX, x, y, z, rx, ry, rz, outline)


@cache
@st.composite
def movings(draw: st.DrawFn, dims: int = 3) -> Moving:
    shape = draw(shapes(dims))
    vz = draw(SPEEDS) if dims == 3 else 0.0
    growth = [0.0, 0.0, 0.0]
    if shape.kind != ShapeKind.POINT:
        growth[0] = draw(SPEEDS)
    if shape.kind == ShapeKind.BOX:
        growth[1], growth[2] = draw(SPEEDS), draw(SPEEDS) if dims == 3 else 0.0
    duration = draw(DURATIONS)
    velocity = (draw(SPEEDS), draw(SPEEDS), vz)
    return Moving(shape, velocity, (growth[0], growth[1], growth[2]), duration, draw(TIMES))


@cache
@st.composite
def regions(draw: st.DrawFn, dims: int = 3) -> Moving:
    choice = draw(DIGITS)
    if choice < 3:
        return Moving(draw(shapes(dims)), since=draw(TIMES))
    if choice < 4:
        velocity = (draw(SPEEDS), draw(SPEEDS), 0.0)
        return Moving(draw(outlined_shapes(dims)), velocity, since=draw(TIMES))
    if choice < 7:
        return draw(movings(dims))
    if choice < 9:
        stops = draw(STOPS)
        start = Shape(ShapeKind.DISC, draw(NEAR), draw(NEAR), 0.0, draw(RADII))
        return path(start, stops, draw(PACES)).stamped(draw(TIMES))
    return Formula(draw(FORMULA_TEXTS), draw(TIMES))


FORMULAS = [
    "x >= -3 + t, x <= 3 + t, y >= -2 + t, y <= 2 + t",
    "x < 1 + 0.5 * t",
    "x > 0, x < 4, y == 2",
    "y >= 10 / (t - 5)",
    "x >= sqrt(4 - t)",
    "x <= min(3, t), y > sin(t)",
]
FORMULA_TEXTS = st.sampled_from(FORMULAS)
FILTERS = ['kind == "apple"', "weight > 3", "weight <= 5 + t, ripe == true", 'kind != "pear"']
FILTERS += ['kind == "pear" or weight > 5 - t']
FILTER_TEXTS = st.one_of(st.none(), st.none(), st.sampled_from(FILTERS))
CHANNELS = st.sampled_from(["", "chat", "moves"])
SUBSCRIPTION_IDS = st.integers(0, 12)
PUBLICATION_IDS = st.integers(0, 1000)
NODES = st.integers(0, 3)
FLAGS = st.booleans()


@cache
@st.composite
def subscriptions(draw: st.DrawFn, dims: int = 3) -> Subscription:
    text = draw(FILTER_TEXTS)
    return Subscription(
        draw(SUBSCRIPTION_IDS),
        draw(NODES),
        draw(regions(dims)),
        None if text is None else Filter(text, draw(TIMES)),
        draw(CHANNELS),
        draw(FLAGS),
    )


ATTRIBUTES = st.fixed_dictionaries(
    {},
    optional={
        "kind": st.sampled_from(["apple", "pear"]),
        "weight": st.one_of(st.integers(0, 9), st.just("heavy")),
        "ripe": st.booleans(),
    },
)


@cache
@st.composite
def publications(draw: st.DrawFn, dims: int = 3) -> Publication:
    return Publication(
        draw(PUBLICATION_IDS),
        draw(NODES),
        draw(TIMES),
        draw(shapes(dims)) if draw(DIGITS) else draw(outlined_shapes(dims)),
        draw(CHANNELS),
        draw(ATTRIBUTES),
    )
