"""Random shapes and motions, and how far two shapes differ."""

from hypothesis import strategies as st
from msgspec.structs import astuple

from nearcast.space.motion import Moving, Path, line, path
from nearcast.space.shapes import Shape, ball, box, cuboid, disc, point

places = st.floats(-1e4, 1e4)
extents = st.floats(0, 1e3)
shapes: st.SearchStrategy[Shape] = st.one_of(
    st.builds(point, places, places, places),
    st.builds(disc, places, places, extents),
    st.builds(ball, places, places, places, extents),
    st.builds(box, places, places, extents, extents),
    st.builds(cuboid, places, places, places, extents, extents, extents),
)
speeds = st.floats(0.1, 1e3)
vectors = st.tuples(places, places, places)
motions: st.SearchStrategy[Moving | Path] = st.one_of(
    st.builds(Moving, shapes, st.tuples(speeds, speeds, speeds)),
    st.builds(line, shapes, vectors, speeds),
    st.builds(path, shapes, st.lists(vectors, min_size=1, max_size=4), speeds),
)
moments = st.lists(st.integers(0, 10**10), min_size=1, max_size=5)


def distance(one: Shape, other: Shape) -> float:
    assert one.kind == other.kind
    pairs = zip(astuple(one)[1:-1], astuple(other)[1:-1], strict=True)
    return float(max(abs(a - b) for a, b in pairs))
