"""The ad-hoc network: paths, air time and turns against brute force; overlays that run on it."""

from itertools import pairwise
from math import dist

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.sim.network import NetworkParameters, make_network
from nearcast.sim.radio import LOOK, AirTime, RadioNetwork
from nearcast.space.motion import SECOND
from support.examples import examples
from support.peer_worlds import assert_delivered_exactly, run

RATE, FRAME, QUEUE = 1e6, 300, SECOND
LENGTH = FRAME + 800  # of 100 bytes
LINE = {node: (100.0 * node, 0.0, 0.0) for node in range(6)}


def radio(places: dict, reach: float = 100.0, queue: int = QUEUE) -> RadioNetwork:
    return RadioNetwork(lambda _: places, reach, RATE, FRAME, queue)


def test_a_message_goes_from_hop_to_hop_and_each_takes_its_air_time() -> None:
    assert radio(LINE).route(0, 0, 1, 100) == [LENGTH]
    assert radio(LINE).route(0, 0, 5, 100) == [5 * LENGTH]
    assert radio(LINE).route(0, 0, 5, 0) == [5 * FRAME]


def test_who_hears_either_end_waits_and_who_hears_neither_does_not() -> None:
    for source, target, waits in ((2, 3, True), (3, 2, True), (3, 4, False), (5, 4, False)):
        network = radio(LINE)
        network.route(0, 0, 1, 100)
        assert network.route(0, source, target, 100) == [LENGTH * (1 + waits)]


def test_a_later_message_may_use_air_that_is_free_before_a_hop_that_is_planned() -> None:
    network = radio(LINE)
    assert network.route(0, 0, 5, 100) == [5 * LENGTH]
    assert network.route(0, 5, 4, 100) == [LENGTH], "the first message is still far away"


def test_what_waits_too_long_or_has_no_path_is_lost() -> None:
    network = radio(LINE, queue=3 * LENGTH)
    got = [network.route(0, 0, 1, 100) for _ in range(6)]
    assert got == [[LENGTH * (1 + n)] for n in range(4)] + [[], []]
    assert radio(LINE, reach=99.0).route(0, 0, 1, 100) == []
    assert radio(LINE).route(0, 0, 77, 100) == []


def test_who_moves_apart_loses_the_connection_and_who_comes_is_found() -> None:
    places = {1: (0.0, 0.0, 0.0), 2: (50.0, 0.0, 0.0)}
    network = radio(places)
    assert network.route(0, 1, 2, 100) == [LENGTH]
    places[2] = (500.0, 0.0, 0.0)
    assert network.route(LOOK, 1, 2, 100) == []
    places[3] = (0.0, 90.0, 0.0)
    assert network.route(LOOK + 1, 1, 3, 100) == [LENGTH], "nobody has seen it before"


SPOTS = st.lists(
    st.tuples(st.integers(0, 8), st.integers(0, 8), st.just(0)), min_size=2, max_size=9, unique=True
)


@given(SPOTS, st.integers(1, 4))
@examples(60)
def test_paths_are_as_short_as_by_floyd_and_warshall(spots: list, reach: int) -> None:
    network, many = radio(dict(enumerate(spots)), float(reach)), range(len(spots))
    network.route(0, 0, 1, 100)
    hops = {(a, b): 1.0 if dist(spots[a], spots[b]) <= reach else 1e9 for a in many for b in many}
    for c in many:
        for a in many:
            for b in many:
                hops[a, b] = min(hops[a, b], hops[a, c] + hops[c, b])
    for a in many:
        for b in many:
            path = network.path(a, b)
            assert all(dist(spots[x], spots[y]) <= reach for x, y in pairwise(path))
            if a != b:
                assert len(path) - 1 == (hops[a, b] if hops[a, b] < 1e9 else -1)


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 6)), max_size=20))
@examples(80)
def test_air_time_is_given_once_and_at_the_first_moment_that_is_free(wishes: list) -> None:
    air, taken = AirTime(), set[int]()
    for t, length in wishes:
        first = next(b for b in range(1000) if b >= t and not taken & set(range(b, b + length)))
        assert air.free_from(t, length) == first
        air.take(first, first + length, 0)
        taken |= set(range(first, first + length))


@pytest.mark.parametrize("protocol", ["client-server", "von"])
def test_overlays_deliver_all_where_there_is_air_enough(protocol: str) -> None:
    radios = {"network": "radio", "radio_mbit": 100.0, "frame_us": 10.0, "radio_range": 300.0}
    trace = run(protocol, "virtual-reality", 25, 2.0, rate=2.0, **radios)
    assert_delivered_exactly(trace)
    rows = trace.table("messages").to_pylist()
    delays = [row["arrived"] - row["t"] for row in rows if row["arrived"] is not None]
    assert min(delays) < max(delays) / 2


def test_a_radio_needs_places() -> None:
    with pytest.raises(ValueError, match="network=radio is for overlays"):
        make_network(NetworkParameters(network="radio"), 1)


def test_what_is_under_way_when_the_workload_ends_still_arrives() -> None:
    slow = {"network": "radio", "radio_mbit": 1.0, "frame_us": 3000.0, "radio_range": 400.0}
    trace = run("client-server", "virtual-reality", 12, 1.0, rate=4.0, queue_ms=1e6, **slow)
    assert_delivered_exactly(trace)
    publications = {row["publication"]: row["t"] for row in trace.table("publications").to_pylist()}
    rows = trace.table("deliveries").to_pylist()
    late = [row["t"] - publications[row["publication"]] for row in rows]
    assert max(late) > LOOK, "nobody was still waiting for air"
