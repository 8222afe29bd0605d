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
from support.bubblestorm_worlds import BubbleStormWorld
from support.examples import seeds


def world_of(count: int, **parameters: Any) -> BubbleStormWorld:
    world = BubbleStormWorld(checked=True, **parameters)
    for node in range(count):
        world.join(node)
    world.settle(40)
    world.pass_seconds(10)
    return world


def assert_one_walk(world: BubbleStormWorld) -> None:
    """All locations of all peers, and every link known at both ends."""
    assert broken_circuit(world.simulation.nodes, world.simulation.now + 9 * SECOND) == []
    assert world.faults() == []
    assert all(location.is_in for _, location in locations_of(world.simulation.nodes))


def test_the_first_peer_is_a_ring_by_itself() -> None:
    world = world_of(1)
    (peer,) = world.peers()
    assert peer.overlay.circuit.degree == 16
    assert {end[0] for _, end in peer.overlay.circuit.links} == {0}
    assert_one_walk(world)


@pytest.mark.parametrize("count", [2, 5, 40])
def test_peers_that_join_at_once_stand_on_one_closed_walk(count: int) -> None:
    """The checker looks after every change of a pointer."""
    world = world_of(count)
    assert_one_walk(world)
    assert {peer.overlay.circuit.degree for peer in world.peers()} == {16}


def test_degree_grows_with_bandwidth() -> None:
    world = BubbleStormWorld(checked=True)
    for node in range(30):
        world.join(node, strength=4.0 if node % 5 == 0 else 1.0)
    world.settle(60)
    world.pass_seconds(15)
    for peer in world.peers():
        desired = 64 if peer.id % 5 == 0 else 16
        assert abs(peer.overlay.circuit.degree - desired) <= tolerance(desired)
    assert_one_walk(world)


def test_nine_of_ten_leave_at_once_and_the_walk_stays_whole() -> None:
    world = world_of(50)
    for node in Random(2).sample(range(50), 45):
        world.leave(node)
    world.pass_seconds(19)
    assert len(world.peers()) == 5, "all have gone, before their patience ended"
    assert_one_walk(world)


def test_the_last_peer_leaves_without_messages() -> None:
    world = world_of(2)
    world.leave(0)
    world.pass_seconds(5)
    assert [peer.id for peer in world.peers()] == [1]
    assert_one_walk(world)
    world.leave(1)
    assert world.peers() == []


@seeds(range(3), range(3, 6))
def test_joins_and_leaves_keep_one_closed_walk(seed: int) -> None:
    world, rng = BubbleStormWorld(checked=True), Random(seed)
    world.join(0)
    world.join(1)
    world.pass_seconds(2)
    for newcomer in range(2, 22):
        present = [peer.id for peer in world.peers() if not peer.overlay.circuit.leaving]
        if rng.random() < 0.6 or len(present) < 2:
            world.join(newcomer)
        else:
            world.leave(rng.choice(present))
        world.pass_seconds(rng.uniform(0, 0.9))
    world.settle(60)
    world.pass_seconds(40)
    assert_one_walk(world)


# Crashes and bad networks.


@seeds([1], [2, 3])
def test_after_half_of_all_crash_links_are_symmetric_and_the_graph_is_connected(seed: int) -> None:
    world = world_of(60)
    world.simulation.checkers = []
    for node in Random(seed).sample(range(60), 30):
        world.simulation.crash(node)
    world.pass_seconds(60)
    assert world.faults() == []
    for peer in world.peers():
        assert abs(peer.overlay.circuit.degree - 16) <= 1
    missing = [
        end
        for end, location in locations_of(world.simulation.nodes)
        if location.is_in and None in (location.master, location.slave)
    ]
    assert len(missing) <= 4, "the torn ends have found each other"


def test_a_restarted_peer_is_not_taken_for_its_earlier_run() -> None:
    world = world_of(12)
    world.simulation.checkers = []
    world.simulation.crash(5)
    world.pass_seconds(1)
    world.join(5)
    world.pass_seconds(120)
    assert world.faults() == []
    assert {peer.overlay.circuit.degree for peer in world.peers()} <= {15, 16, 17}


def test_a_bad_network_does_not_tear_the_graph_for_good() -> None:
    rng = Random(3)
    network = Loss(0.1, rng, Duplication(0.1, rng, Jitter(40_000, rng, ConstantDelay(50_000))))
    world = BubbleStormWorld(network)
    for node in range(30):
        world.join(node)
    world.pass_seconds(60)
    for node in range(0, 30, 5):
        world.leave(node)
    world.pass_seconds(60)
    world.simulation.network = ConstantDelay(50_000)
    world.pass_seconds(120)
    assert world.faults() == []
    assert len(world.peers()) == 24
    assert all(peer.overlay.circuit.degree >= 14 for peer in world.peers())


def test_a_lone_ring_gives_itself_up_for_another() -> None:
    world = BubbleStormWorld()
    one, other = world.join(1), world.join(2)
    other.overlay.circuit.locations.clear()
    other.overlay.circuit.create()
    world.pass_seconds(15)
    assert len(islands(world.simulation.nodes)) == 1
    assert {end[0] for _, end in one.overlay.circuit.links} >= {2}


def test_a_contact_that_has_died_is_replaced() -> None:
    world = world_of(3)
    world.simulation.checkers = []
    world.simulation.crash(0)
    world.simulation.crash(2)
    peer = world.join(9)
    world.pass_seconds(120)
    assert peer.overlay.circuit.joined


# One step at a time.


def test_a_joiner_stands_between_only_when_its_slave_has_agreed() -> None:
    world = world_of(3)
    peer = world.peers()[0]
    location = peer.overlay.circuit._new(LocationState.JOINING)
    now, me = world.simulation.now, (0, location.number)
    network = peer.overlay.measurement.network
    adopt = Adopt(location.number, (1, 11), (2, 22), network, 1)
    assert peer.receive(now, 1, adopt) == [Send(2, Insert(22, (1, 11), me))]
    assert not location.is_in
    assert peer.receive(now, 1, InsertAccepted(location.number, (1, 11))) == [], "not the slave"
    effects = peer.receive(now, 2, InsertAccepted(location.number, (2, 22)))
    assert Send(1, JoinCompleted(11, me, (2, 22))) in effects
    assert (location.master, location.slave) == ((1, 11), (2, 22))


def test_nobody_can_send_in_the_name_of_another() -> None:
    world = world_of(3)
    peer = world.peers()[0]
    before = [(e, one.master, one.slave) for e, one in locations_of(world.simulation.nodes)]
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
            for effect in peer.receive(world.simulation.now, 99, message):
                assert isinstance(effect, Send)
                assert isinstance(effect.message, LinkRejected)
    assert [(e, o.master, o.slave) for e, o in locations_of(world.simulation.nodes)] == before


def test_the_checker_sees_a_torn_walk_and_a_link_of_one_end() -> None:
    world = world_of(4)
    checker = InvariantChecker(world.simulation.nodes, [ClosedCircuit()])
    checker.passed(world.simulation.now)
    location = next(iter(world.peers()[0].overlay.circuit.locations.values()))
    location.slave = (0, location.number)
    assert asymmetric(world.simulation.nodes)
    with pytest.raises(InvariantError, match="the walk"):
        checker.passed(world.simulation.now)


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
