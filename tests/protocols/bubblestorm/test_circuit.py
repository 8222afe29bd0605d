"""The circuit: one closed walk through every join and leave, and whole again after crashes."""

from random import Random
from typing import Any

import pytest

from nearcast.errors import InvariantError
from nearcast.node import Send
from nearcast.protocols.bubblestorm.invariants import (
    ClosedCircuit,
    asymmetric,
    broken_circuit,
    islands,
    locations_of,
)
from nearcast.protocols.bubblestorm.location import LocationState
from nearcast.protocols.bubblestorm.messages import (
    Adopt,
    Heartbeat,
    Insert,
    InsertAccepted,
    JoinCompleted,
    LinkRejected,
    Released,
)
from nearcast.protocols.bubblestorm.parameters import Parameters, tolerance
from nearcast.sim.checkers import InvariantChecker
from nearcast.sim.network import ConstantDelay, Duplication, Jitter, Loss
from nearcast.space.motion import SECOND
from support.bubblestorm_worlds import Crowd


def crowd_of(count: int, **parameters: Any) -> Crowd:
    crowd = Crowd(checked=True, **parameters)
    for node in range(count):
        crowd.come(node)
    crowd.settle(40)
    crowd.pass_seconds(10)
    return crowd


def assert_one_walk(crowd: Crowd) -> None:
    """All locations of all peers, and every link known at both ends."""
    assert broken_circuit(crowd.simulation.nodes, crowd.simulation.now + 9 * SECOND) == []
    assert crowd.faults() == []
    assert all(location.is_in for _, location in locations_of(crowd.simulation.nodes))


def test_the_first_peer_is_a_ring_by_itself() -> None:
    crowd = crowd_of(1)
    (peer,) = crowd.peers()
    assert peer.overlay.circuit.degree == 16
    assert {end[0] for _, end in peer.overlay.circuit.links} == {0}
    assert_one_walk(crowd)


@pytest.mark.parametrize("count", [2, 5, 40])
def test_a_crowd_that_joins_at_once_stands_on_one_closed_walk(count: int) -> None:
    """The checker looks after every change of a pointer."""
    crowd = crowd_of(count)
    assert_one_walk(crowd)
    assert {peer.overlay.circuit.degree for peer in crowd.peers()} == {16}


def test_degree_grows_with_bandwidth() -> None:
    crowd = Crowd(checked=True)
    for node in range(30):
        crowd.come(node, strength=4.0 if node % 5 == 0 else 1.0)
    crowd.settle(60)
    crowd.pass_seconds(15)
    for peer in crowd.peers():
        desired = 64 if peer.id % 5 == 0 else 16
        assert abs(peer.overlay.circuit.degree - desired) <= tolerance(desired)
    assert_one_walk(crowd)


def test_nine_of_ten_leave_at_once_and_the_walk_stays_whole() -> None:
    crowd = crowd_of(50)
    for node in Random(2).sample(range(50), 45):
        crowd.leave(node)
    crowd.pass_seconds(19)
    assert len(crowd.peers()) == 5, "all have gone, before their patience ended"
    assert_one_walk(crowd)


def test_the_last_one_just_goes() -> None:
    crowd = crowd_of(2)
    crowd.leave(0)
    crowd.pass_seconds(5)
    assert [peer.id for peer in crowd.peers()] == [1]
    assert_one_walk(crowd)
    crowd.leave(1)
    assert crowd.peers() == []


@pytest.mark.parametrize("seed", range(6))
def test_whoever_comes_and_goes_the_walk_stays_one(seed: int) -> None:
    crowd, rng = Crowd(checked=True), Random(seed)
    crowd.come(0)
    crowd.come(1)
    crowd.pass_seconds(2)
    for newcomer in range(2, 22):
        present = [peer.id for peer in crowd.peers() if not peer.overlay.circuit.leaving]
        if rng.random() < 0.6 or len(present) < 2:
            crowd.come(newcomer)
        else:
            crowd.leave(rng.choice(present))
        crowd.pass_seconds(rng.uniform(0, 0.9))
    crowd.settle(60)
    crowd.pass_seconds(40)
    assert_one_walk(crowd)


# Crashes and bad networks.


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_after_half_of_all_crash_links_are_symmetric_and_the_graph_is_connected(seed: int) -> None:
    crowd = crowd_of(60)
    crowd.simulation.checkers = []
    for node in Random(seed).sample(range(60), 30):
        crowd.simulation.crash(node)
    crowd.pass_seconds(60)
    assert crowd.faults() == []
    for peer in crowd.peers():
        assert abs(peer.overlay.circuit.degree - 16) <= 1
    missing = [
        end
        for end, location in locations_of(crowd.simulation.nodes)
        if location.is_in and None in (location.master, location.slave)
    ]
    assert len(missing) <= 4, "the torn ends have found each other"


def test_a_crashed_peer_that_returns_is_not_taken_for_its_former_life() -> None:
    crowd = crowd_of(12)
    crowd.simulation.checkers = []
    crowd.simulation.crash(5)
    crowd.pass_seconds(1)
    crowd.come(5)
    crowd.pass_seconds(120)
    assert crowd.faults() == []
    assert {peer.overlay.circuit.degree for peer in crowd.peers()} <= {15, 16, 17}


def test_a_bad_network_does_not_tear_the_graph_for_good() -> None:
    rng = Random(3)
    network = Loss(0.1, rng, Duplication(0.1, rng, Jitter(40_000, rng, ConstantDelay(50_000))))
    crowd = Crowd(network)
    for node in range(30):
        crowd.come(node)
    crowd.pass_seconds(60)
    for node in range(0, 30, 5):
        crowd.leave(node)
    crowd.pass_seconds(60)
    crowd.simulation.network = ConstantDelay(50_000)
    crowd.pass_seconds(120)
    assert crowd.faults() == []
    assert len(crowd.peers()) == 24
    assert all(peer.overlay.circuit.degree >= 14 for peer in crowd.peers())


def test_a_lone_ring_gives_itself_up_for_another() -> None:
    crowd = Crowd()
    one, other = crowd.come(1), crowd.come(2)
    other.overlay.circuit.locations.clear()
    other.overlay.circuit.create()
    crowd.pass_seconds(15)
    assert len(islands(crowd.simulation.nodes)) == 1
    assert {end[0] for _, end in one.overlay.circuit.links} >= {2}


def test_a_contact_that_has_died_is_replaced() -> None:
    crowd = crowd_of(3)
    crowd.simulation.checkers = []
    crowd.simulation.crash(0)
    crowd.simulation.crash(2)
    peer = crowd.come(9)
    crowd.pass_seconds(120)
    assert peer.overlay.circuit.joined


# One step at a time.


def test_a_joiner_stands_between_only_when_its_slave_has_agreed() -> None:
    crowd = crowd_of(3)
    peer = crowd.peers()[0]
    location = peer.overlay.circuit._new(LocationState.JOINING)
    now, me = crowd.simulation.now, (0, location.number)
    network = peer.overlay.measurement.network
    adopt = Adopt(location.number, (1, 11), (2, 22), network, 1)
    assert peer.receive(now, 1, adopt) == [Send(2, Insert(22, (1, 11), me))]
    assert not location.is_in
    assert peer.receive(now, 1, InsertAccepted(location.number, (1, 11))) == [], "not the slave"
    effects = peer.receive(now, 2, InsertAccepted(location.number, (2, 22)))
    assert Send(1, JoinCompleted(11, me, (2, 22))) in effects
    assert (location.master, location.slave) == ((1, 11), (2, 22))


def test_nobody_speaks_for_another() -> None:
    crowd = crowd_of(3)
    peer = crowd.peers()[0]
    before = [(e, one.master, one.slave) for e, one in locations_of(crowd.simulation.nodes)]
    for number, location in list(peer.overlay.circuit.locations.items()):
        master, slave = location.master, location.slave
        assert master is not None
        assert slave is not None
        for message in (
            Insert(number, master, (7, 7)),
            LinkRejected(number, slave, False),
            LinkRejected(number, master, True),
            Heartbeat(number, master, True, 16),
            JoinCompleted(number, (7, 7), slave),
            Released(number),
            InsertAccepted(number, slave),
        ):
            for effect in peer.receive(crowd.simulation.now, 99, message):
                assert isinstance(effect, Send)
                assert isinstance(effect.message, LinkRejected)
    assert [(e, o.master, o.slave) for e, o in locations_of(crowd.simulation.nodes)] == before


def test_the_checker_sees_a_torn_walk_and_a_link_of_one_end() -> None:
    crowd = crowd_of(4)
    checker = InvariantChecker(crowd.simulation.nodes, [ClosedCircuit()])
    checker.passed(crowd.simulation.now)
    location = next(iter(crowd.peers()[0].overlay.circuit.locations.values()))
    location.slave = (0, location.number)
    assert asymmetric(crowd.simulation.nodes)
    with pytest.raises(InvariantError, match="the walk"):
        checker.passed(crowd.simulation.now)


@pytest.mark.parametrize(
    "wrong",
    [
        {"lambda": 0.0}, {"split": 0}, {"cast": "x"}, {"bubble": "soap"}, {"interests": "x"},
        {"dead_s": 3.0}, {"silent_s": 0.5}, {"strong": 2.0}, {"upload_kbit": 0.0},
    ],
)  # fmt: skip
def test_wrong_parameters_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Parameters(**wrong)
