"""The subscription cache, against a dictionary of places on random histories."""

from math import dist

from hypothesis import given
from hypothesis import strategies as st

from nearcast.protocols.bubblestorm.cache import FIRST_ROOM, SubscriptionCache
from nearcast.protocols.bubblestorm.layouts import PeerPosition

coordinates = st.integers(-5, 5).map(float)  # few, so that borders are hit exactly
nodes = st.integers(0, 3 * FIRST_ROOM)
places = st.tuples(coordinates, coordinates, coordinates)
histories = st.lists(st.tuples(nodes, st.none() | places), max_size=4 * FIRST_ROOM)


@given(histories, nodes, places, st.integers(0, 6))
def test_the_cache_finds_exactly_the_peers_last_seen_in_the_area(
    history: list[tuple[int, tuple[float, float, float] | None]],
    asks: int,
    around: tuple[float, float, float],
    radius: int,
) -> None:
    cache, known = SubscriptionCache(timeout=1000), dict[int, tuple[float, float, float]]()
    for stamp, (node, place) in enumerate(history):
        if place is not None:
            cache.update(PeerPosition(node, *place, 1.0, stamp), 0, False, ())
            known[node] = place
        elif node in known:
            cache.drop(node)
            del known[node]
    found = cache.inside(PeerPosition(asks, *around, float(radius), 0))
    assert sorted(found) == sorted(
        node for node, place in known.items() if node != asks and dist(place, around) <= radius
    )


def test_entries_that_are_not_renewed_time_out_and_leave_their_room_to_others() -> None:
    cache = SubscriptionCache(timeout=10)
    for node in range(2 * FIRST_ROOM):
        cache.update(
            PeerPosition(node, float(node), 0.0, 0.0, 1.0, 0), now=node, managed=False, wanted=()
        )
    cache.clean(now=2 * FIRST_ROOM)
    everywhere = PeerPosition(-1, 0.0, 0.0, 0.0, 1e6, 0)
    assert sorted(cache.inside(everywhere)) == list(range(2 * FIRST_ROOM - 10, 2 * FIRST_ROOM))
    cache.update(PeerPosition(7, 0.5, 0.0, 0.0, 1.0, 0), now=200, managed=False, wanted=())
    assert cache.inside(PeerPosition(-1, 0.0, 0.0, 0.0, 1.0, 0)) == [7]
