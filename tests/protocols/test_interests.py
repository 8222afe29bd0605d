"""What a peer wants, against the plain definition on random histories."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from nearcast.model.publication import Publication, wants
from nearcast.model.subscription import Subscription
from nearcast.protocols.interests import PeerInterests
from nearcast.space.motion import SECOND, STILL, Moving
from nearcast.space.shapes import ball, point
from support.earth_areas import EarthAreas
from support.examples import examples
from support.strategies import COORDINATES, TIMES, publications, subscriptions

ME = 1
# Few subscriptions and one plain disc among them: the shortest way is taken too.
plain = st.builds(
    lambda x, y, r, vx, since, duration, echo: Subscription(
        1,
        ME,
        Moving(ball(x, y, 0.0, r), (vx, 0.0, 0.0), STILL, duration, since),
        echo=echo,
    ),
    *[st.integers(-8, 8).map(float)] * 2,
    st.integers(0, 8).map(float),
    st.integers(-3, 3).map(float),
    TIMES,
    st.none() | TIMES,
    st.booleans(),
)
near = st.builds(
    lambda node, t, x, channel: Publication(1, node, t, point(x, 0.0), channel),
    st.integers(0, ME),
    TIMES,
    st.integers(-8, 8).map(float),
    st.sampled_from(["", "", "chat"]),
)
moments = st.integers(0, 5 * SECOND)
changes = st.lists(st.tuples(moments, plain), min_size=1, max_size=2) | st.lists(
    st.tuples(moments, plain | subscriptions() | st.integers(0, 3)), min_size=1, max_size=4
)
histories = changes.map(lambda several: sorted(several, key=lambda change: change[0]))


@examples(500)
@given(histories, near | publications(), st.tuples(COORDINATES, COORDINATES, COORDINATES), TIMES)
def test_wanted_is_what_the_version_of_its_moment_wants_and_seen_what_is_in_the_ball(
    history: list[tuple[int, Subscription | int]],
    publication: Publication,
    place: tuple[float, float, float],
    now: int,
) -> None:
    interests, in_force = PeerInterests(), dict[int, Subscription | None]()
    for t, change in history:
        if isinstance(change, int):
            interests.end(change, t)
        else:
            interests.put(change, t)
        if t <= publication.t:
            one = change if isinstance(change, int) else change.id
            in_force[one] = None if isinstance(change, int) else change
    subscriptions = [wanted for wanted in in_force.values() if wanted is not None]
    receiving = [wanted.id for wanted in subscriptions if wants(wanted, publication, publication.t)]
    assert sorted(interests.wanting(publication)) == sorted(receiving)
    area = interests.area(now)
    assert interests.sees(*place, now) == (area is not None and area.away(*place) <= area.radius)


@examples(60)
@given(seed=st.integers(0, 10**6))
def test_the_outline_of_the_only_area_counts_too(seed: int) -> None:
    """A disc with heights, or a ball with one, is a disc like others but for its outline."""
    areas = EarthAreas(Random(seed), 179.5, 50.0)
    for number in range(20):
        wanted = Subscription(1, ME, Moving(areas.area()))
        peer = PeerInterests()
        peer.put(wanted, 0)
        for _ in range(5):
            publication = Publication(number, ME + 1, SECOND, areas.place())
            assert peer.wanting(publication) == [1] * wants(wanted, publication, SECOND)
