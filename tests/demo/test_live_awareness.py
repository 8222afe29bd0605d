"""What peers know of the ships in their sight, counted as the words say it."""

from math import dist

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.demo.live_awareness import (
    KNOWN_FOR,
    ReceivedUpdates,
    ShipsInSight,
    accuracy,
    known_share,
)
from nearcast.space.motion import SECOND
from support.examples import examples

NAMES = range(6)
COORDINATES = st.integers(0, 10).map(float)
PLACES = st.dictionaries(st.sampled_from(NAMES), st.tuples(*[COORDINATES] * 3))
UPDATES = st.lists(
    st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES), st.integers(0, 3 * SECOND))
)
NOW = 3 * SECOND


@given(PLACES, UPDATES, st.integers(0, 12))
@examples(200)
def test_a_ship_in_sight_is_known_if_an_update_came_within_the_last_second(
    places: dict[int, tuple[float, float, float]], updates: list[tuple[int, int, int]], sight: int
) -> None:
    received = ReceivedUpdates()
    for peer, ship, t in sorted(updates, key=lambda one: one[2]):
        received.add(peer, ship, t)
    found = received.awareness(NOW, places, sight)
    assert found.keys() == places.keys()
    for peer, (known, in_sight, wrong, judged) in found.items():
        others = [o for o in places if o != peer and dist(places[o], places[peer]) <= sight]
        mine = [(ship, t) for who, ship, t in updates if who == peer != ship]
        recent = {ship for ship, t in mine if NOW - t <= KNOWN_FOR}
        assert (known, in_sight) == (len(recent.intersection(others)), len(others))
        assert wrong == len(recent.difference(others))
        assert judged == len((places.keys() | recent) - {peer})


def test_who_has_left_knows_nobody() -> None:
    received = ReceivedUpdates()
    received.add(1, 2, NOW)
    received.forget(1)
    places = {1: (0.0, 0.0, 0.0), 2: (1.0, 0.0, 0.0)}
    assert received.awareness(NOW, places, 5.0)[1] == (0, 1, 0, 1)


def test_the_share_is_that_of_all_pairs() -> None:
    assert known_share({}) is None
    assert accuracy({}) is None
    alone = {1: ShipsInSight(0, 0, 0, 0)}
    assert (known_share(alone), accuracy(alone)) == (None, None)
    # Of five pairs, two are missed; the second knows one that is out of sight.
    found = {1: ShipsInSight(1, 3, 0, 3), 2: ShipsInSight(1, 1, 1, 2)}
    assert known_share(found) == pytest.approx(0.5)
    assert accuracy(found) == pytest.approx(0.4)
