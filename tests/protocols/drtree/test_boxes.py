"""The box of an interest contains all that it wants meanwhile."""

from hypothesis import given
from hypothesis import strategies as st

from nearcast.model.publication import Publication, wants
from nearcast.model.subscription import Formula, Subscription
from nearcast.protocols.drtree.boxes import box_of_publication, box_of_subscription
from nearcast.space.boxes import overlaps
from nearcast.space.motion import SECOND, Moving
from nearcast.space.shapes import EVERYWHERE, point
from support.evolving_cases import evolving
from support.examples import examples

COORDINATES = st.floats(-12, 12) | st.integers(-12, 12).map(float)
WEIGHTS = st.integers(-3, 15) | st.floats(-3, 15) | st.just("heavy") | st.booleans()
MOMENTS = st.integers(0, 12 * SECOND)
# Areas of other kinds are tested where they are defined.
WANTED = evolving().filter(
    lambda one: (
        isinstance(one.region, Formula)
        or (isinstance(one.region, Moving) and one.region.shape == EVERYWHERE)
    )
)
DIMENSIONS = st.sampled_from([("x", "y"), ("x", "y", "z"), ("x", "weight"), ("weight",)])


@examples(1000)
@given(
    WANTED, st.tuples(COORDINATES, COORDINATES, COORDINATES), st.none() | WEIGHTS,
    st.lists(MOMENTS, min_size=3, max_size=3).map(sorted), DIMENSIONS,
)  # fmt: skip
def test_whatever_is_wanted_at_some_moment_touches_the_box(
    wanted: Subscription,
    place: tuple[float, float, float],
    weight: float | str | None,
    moments: list[int],
    dimensions: tuple[str, ...],
) -> None:
    begin, t, end = moments
    attributes = {"kind": "apple", "ripe": True} | ({} if weight is None else {"weight": weight})
    made = Publication(1, 99, t, point(*place), wanted.channel, attributes)
    if wants(wanted, made, t):
        box = box_of_subscription(wanted, dimensions, begin, end)
        assert box is not None
        assert overlaps(box, box_of_publication(made, dimensions))
