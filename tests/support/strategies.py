"""Hypothesis strategies for regions, subscriptions and publications of every kind."""

from math import inf

from hypothesis import strategies as st

from nearcast.model.publication import Publication
from nearcast.model.subscription import Filter, Formula, Subscription
from nearcast.space.motion import SECOND, Moving, path
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


@st.composite
def shapes(draw: st.DrawFn, dims: int = 3, bounded: bool = False) -> Shape:
    kind = draw(st.sampled_from(list(ShapeKind)))
    x, y = draw(COORDINATES), draw(COORDINATES)
    z = draw(COORDINATES) if dims == 3 else 0.0
    if kind == ShapeKind.POINT:
        return Shape(kind, x, y, z)
    if kind == ShapeKind.DISC:
        return Shape(kind, x, y, z, draw(EXTENTS))
    sides = EXTENTS if bounded else st.one_of(EXTENTS, st.just(inf))
    rz = draw(sides) if dims == 3 else 0.0
    return Shape(kind, x, y, z, draw(sides), draw(sides), rz)


@st.composite
def movings(draw: st.DrawFn, dims: int = 3) -> Moving:
    shape = draw(shapes(dims))
    vz = draw(SPEEDS) if dims == 3 else 0.0
    growth = [0.0, 0.0, 0.0]
    if shape.kind != ShapeKind.POINT:
        growth[0] = draw(SPEEDS)
    if shape.kind == ShapeKind.BOX:
        growth[1], growth[2] = draw(SPEEDS), draw(SPEEDS) if dims == 3 else 0.0
    duration = draw(st.one_of(st.none(), TIMES))
    velocity = (draw(SPEEDS), draw(SPEEDS), vz)
    return Moving(shape, velocity, (growth[0], growth[1], growth[2]), duration, draw(TIMES))


@st.composite
def regions(draw: st.DrawFn, dims: int = 3) -> Moving:
    choice = draw(st.integers(0, 9))
    if choice < 4:
        return Moving(draw(shapes(dims)), since=draw(TIMES))
    if choice < 7:
        return draw(movings(dims))
    if choice < 9:
        near = st.integers(-30, 30).map(float)
        stops = draw(st.lists(st.tuples(near, near, st.just(0.0)), min_size=1, max_size=4))
        start = Shape(ShapeKind.DISC, draw(near), draw(near), 0.0, draw(st.floats(0, 9)))
        return path(start, stops, draw(st.floats(0.5, 20))).stamped(draw(TIMES))
    text = draw(st.sampled_from(FORMULAS))
    return Formula(text, draw(TIMES))


FORMULAS = [
    "x >= -3 + t, x <= 3 + t, y >= -2 + t, y <= 2 + t",
    "x < 1 + 0.5 * t",
    "x > 0, x < 4, y == 2",
    "y >= 10 / (t - 5)",
    "x >= sqrt(4 - t)",
    "x <= min(3, t), y > sin(t)",
]
FILTERS = ['kind == "apple"', "weight > 3", "weight <= 5 + t, ripe == true", 'kind != "pear"']
CHANNELS = st.sampled_from(["", "chat", "moves"])


@st.composite
def subscriptions(draw: st.DrawFn, dims: int = 3) -> Subscription:
    text = draw(st.one_of(st.none(), st.none(), st.sampled_from(FILTERS)))
    return Subscription(
        draw(st.integers(0, 12)),
        draw(st.integers(0, 3)),
        draw(regions(dims)),
        None if text is None else Filter(text, draw(TIMES)),
        draw(CHANNELS),
        draw(st.booleans()),
    )


ATTRIBUTES = st.fixed_dictionaries(
    {},
    optional={
        "kind": st.sampled_from(["apple", "pear"]),
        "weight": st.one_of(st.integers(0, 9), st.just("heavy")),
        "ripe": st.booleans(),
    },
)


@st.composite
def publications(draw: st.DrawFn, dims: int = 3) -> Publication:
    return Publication(
        draw(st.integers(0, 1000)),
        draw(st.integers(0, 3)),
        draw(TIMES),
        draw(shapes(dims)),
        draw(CHANNELS),
        draw(ATTRIBUTES),
    )
