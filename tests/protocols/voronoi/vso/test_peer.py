"""Peers of VSO, which have no directory in common: each learns from others who the gateway is."""

from random import Random

import pytest

from nearcast.model.commands import Leave, Publish, Subscribe, Unsubscribe
from nearcast.node import Send
from nearcast.protocols.voronoi.vso.messages import (
    Cancel,
    GatewayKnown,
    GatewayQuery,
    Interest,
    Promote,
)
from nearcast.protocols.voronoi.vso.overlay import CODEC, SendAlive
from nearcast.protocols.voronoi.vso.parameters import Parameters
from nearcast.protocols.voronoi.vso.peer import VsoPeer
from nearcast.sim.checkers import DeliveredOnce, NotBeforePublished
from nearcast.sim.network import ConstantDelay
from nearcast.sim.simulation import Simulation
from nearcast.space.motion import SECOND, Moving
from nearcast.space.shapes import disc, point
from nearcast.trace.recorder import Recorder
from nearcast.trace.sinks import MemoryTrace
from support.vso_worlds import EAGER, SIDE, VsoWorld, watch_owners

FIRST = 1  # the peer that begins


class VsoPeerWorld(VsoWorld):
    """The first peer is there; others join through any that they know."""

    def __init__(self, *, fault_free: bool = True, **settings: object) -> None:
        self.memory, self.rng = MemoryTrace(), Random(1)
        self.simulation = Simulation(
            ConstantDelay(50_000), CODEC, Recorder(self.memory),
            (DeliveredOnce(), NotBeforePublished()),
        )  # fmt: skip
        watch_owners(self.simulation, fault_free=fault_free)
        self.parameters = Parameters(**settings)
        self.come(FIRST, FIRST)

    def come(self, node: int, contact: int, *, wants: bool = True) -> VsoPeer:
        peer = VsoPeer(node, Random(node), self.parameters, contact)
        self.simulation.start(peer)
        if wants:
            x, y = self.rng.uniform(0, SIDE), self.rng.uniform(0, SIDE)
            self.obey(node, Subscribe(node * 1000, Moving(disc(x, y, 300.0))))
        return peer

    @property
    def peers(self) -> dict[int, VsoPeer]:
        return {n: node for n, node in self.members.items() if isinstance(node, VsoPeer)}

    def gateways(self) -> set[int]:
        """All whom peers take for the gateway with certainty; 0: some are not certain."""
        return {p.directory.gateway if p.term else 0 for p in self.peers.values()}

    def publish(self, first: int) -> None:
        """Each peer once, anywhere."""
        for number, node in enumerate(self.peers):
            where = point(self.rng.uniform(0, SIDE), self.rng.uniform(0, SIDE))
            self.obey(node, Publish(first + number, where))


def test_peers_that_join_through_any_peer_learn_who_the_gateway_is_and_miss_nothing() -> None:
    world = VsoPeerWorld(least=3)
    for node in range(2, 10):
        world.come(node, node - 1)  # most contacts have only just come themselves
    world.pass_seconds(10)
    assert world.gateways() == {FIRST}
    assert len(world.sites) == 3
    for turn in range(5):
        world.publish(100 * turn)
        world.pass_seconds(1)
    world.assert_delivered_exactly(at_least=100)


def test_clients_become_matchers_when_there_are_many_and_step_down_when_there_are_few() -> None:
    world = VsoPeerWorld(least=2, **EAGER)
    for node in range(2, 30):
        world.come(node, FIRST)
    world.pass_seconds(20)
    assert len(world.sites) > 4
    for node in range(2, 30):
        world.obey(node, Unsubscribe(node * 1000))
    world.pass_seconds(40)
    assert len(world.sites) == 2, "idle ones leave, but never so many that others must be called"
    before = set(world.sites)
    world.pass_seconds(40)
    assert set(world.sites) == before
    assert world.gateways() == {FIRST}


@pytest.mark.parametrize("leaves", [True, False])
def test_when_the_gateway_goes_all_find_the_next_and_newcomers_still_join(leaves: bool) -> None:
    world = VsoPeerWorld(fault_free=False, least=3)
    for node in range(2, 12):
        world.come(node, FIRST, wants=node % 3 > 0)
    for node, peer in world.peers.items():
        peer.contacts.update(dict.fromkeys(n for n in world.peers if n != node))
    world.pass_seconds(10)
    if leaves:
        world.obey(FIRST, Leave())
    else:
        world.simulation.crash(FIRST)
    world.come(20, 3)  # which is not a matcher and still believes in the gateway that is gone
    world.pass_seconds(15)
    (gateway,) = world.gateways()
    assert gateway in world.sites
    assert len(world.sites) == 3
    world.come(21, 20)
    world.pass_seconds(5)
    assert world.gateways() == {gateway}
    assert all(peer.client.ready for peer in world.peers.values())
    deliveries_before = len(world.delivered_and_expected()[0])
    world.publish(10_000)
    world.pass_seconds(2)
    received, wanted = world.delivered_and_expected()
    new = {pair for pair in wanted if pair[0] >= 10_000}
    assert len(new) > 20 and {pair for pair in received if pair[0] >= 10_000} == new
    assert len(received) == deliveries_before + len(new)


def test_a_publisher_without_a_subscription_sends_again_what_a_dead_gateway_did_not_forward() -> (
    None
):
    world = VsoPeerWorld(fault_free=False, least=2)
    world.come(2, FIRST)
    world.come(3, FIRST, wants=False)
    world.peers[3].contacts[2] = None
    world.pass_seconds(10)
    assert set(world.sites) == {1, 2}
    world.obey(2, Subscribe(5, Moving(disc(0, 0, 1e6))))
    world.pass_seconds(3)
    world.simulation.crash(FIRST)
    world.obey(3, Publish(77, point(1, 1)))
    world.pass_seconds(20)
    assert world.peers[3].directory.gateway == 2
    assert (77, 5) in world.delivered_and_expected()[0]


def test_a_peer_whose_contact_is_dead_asks_others_that_it_hears_of() -> None:
    world = VsoPeerWorld(fault_free=False)
    newcomer = world.come(2, 99)
    world.pass_seconds(3)
    assert not newcomer.term
    newcomer.contacts.update({98: None, FIRST: None})
    world.pass_seconds(3)
    assert newcomer.directory.gateway == FIRST and newcomer.client.ready
    assert 98 not in newcomer.contacts, "who does not answer is not asked again and again"


def test_a_promoted_peer_that_cannot_join_the_mesh_is_a_candidate_again() -> None:
    world = VsoPeerWorld(fault_free=False)
    peer = world.come(2, FIRST)
    world.pass_seconds(3)
    peer._become_matcher((0.0, 0.0), 99)
    assert peer.matcher is not None and not peer.ready
    world.pass_seconds(9)
    assert peer.matcher is None and peer.ready


def test_when_all_matchers_die_at_once_one_of_the_others_begins_anew() -> None:
    world = VsoPeerWorld(fault_free=False, least=2)
    for node in range(2, 10):
        world.come(node, FIRST)
    for node, peer in world.peers.items():
        peer.contacts.update(dict.fromkeys(n for n in world.peers if n != node))
    world.pass_seconds(10)
    for site in world.sites:
        world.simulation.crash(site)
    lowest = min(world.peers)
    world.come(20, 9)
    world.pass_seconds(40)
    assert world.gateways() == {lowest}
    assert all(peer.client.ready for peer in world.peers.values())
    world.publish(10_000)
    world.pass_seconds(2)
    received, wanted = world.delivered_and_expected()
    assert {p for p in received if p[0] >= 10_000} == {p for p in wanted if p[0] >= 10_000} != set()


def test_a_peer_that_reaches_nobody_waits_and_two_that_reach_each_other_begin_together() -> None:
    world = VsoPeerWorld(fault_free=False, least=1)
    left = world.come(2, FIRST)
    world.pass_seconds(5)
    world.simulation.crash(FIRST)
    world.pass_seconds(60)
    assert left.matcher is None
    world.come(3, 2)
    left.contacts[3] = None  # whom its address book knows now
    world.pass_seconds(30)
    assert world.gateways() == {2}
    assert world.peers[3].client.ready


def test_peers_in_doubt_do_not_ask_each_other_in_circles() -> None:
    world = VsoPeerWorld(fault_free=False)
    world.come(2, FIRST)
    world.come(3, 2)
    world.simulation.crash(FIRST)  # before anybody could learn anything from it
    for node, peer in world.peers.items():
        peer.directory.gateway = 5 - node  # each believes that the other knows more
    world.pass_seconds(10)
    world.simulation.recorder.flush()
    kinds = world.memory.table("messages").column("kind").to_pylist()
    assert kinds.count("vso.GatewayQuery") < 30


def test_overlays_that_have_begun_apart_become_one_when_their_gateways_meet() -> None:
    world = VsoPeerWorld(fault_free=False, least=2)
    world.come(51, 51)
    for node in range(2, 8):
        world.come(node, FIRST)
        world.come(50 + node, 51)
    world.pass_seconds(10)
    assert world.gateways() == {FIRST, 51}
    world.peers[FIRST].contacts[57] = None  # a client of the other
    world.pass_seconds(40)
    assert world.gateways() == {51}
    assert len({frozenset({n, *site.mesh.known}) for n, site in world.sites.items()}) == 1
    world.publish(10_000)
    world.pass_seconds(2)
    received, wanted = world.delivered_and_expected()
    new = {p for p in wanted if p[0] >= 10_000}
    assert {p for p in received if p[0] >= 10_000} == new
    publishers = list(world.peers)
    across = [(p, s) for p, s in new if (publishers[p - 10_000] > 50) != (s > 50_000)]
    assert len(across) > 10


def a_peer(contact: int = 7) -> VsoPeer:
    peer = VsoPeer(5, Random(1), Parameters(), contact)
    peer.start(0)
    return peer


def test_only_the_gateways_own_word_counts_and_of_two_the_later_term() -> None:
    peer = a_peer()
    assert peer.receive(1, 8, GatewayKnown(4, 9, False)) == [Send(9, GatewayQuery())]
    assert (peer.term, peer.directory.gateway) == (0, 7)
    peer.receive(2, 9, GatewayKnown(4, 9, True))
    assert (peer.term, peer.directory.gateway) == (4, 9)
    peer.receive(3, 10, GatewayKnown(3, 10, True))
    peer.receive(3, 8, GatewayKnown(6, 5, True))  # that it is this peer, which knows better
    assert (peer.term, peer.directory.gateway) == (4, 9)
    peer.receive(4, 10, GatewayKnown(5, 10, True))
    assert (peer.term, peer.directory.gateway) == (5, 10)
    peer.receive(5, 10, GatewayKnown(5, 9, False))  # it has stepped down
    assert peer.term == 0
    peer.receive(6, 9, GatewayKnown(4, 9, True))
    assert (peer.term, peer.directory.gateway) == (4, 9)


def test_a_gateway_that_no_matcher_confirms_any_more_is_in_doubt_whatever_its_term() -> None:
    peer = a_peer()
    peer.receive(1, 9, GatewayKnown(2**50, 9, True))
    for beat in range(1, 5):
        peer.wake(beat * 2 * SECOND, SendAlive())
    assert peer.term == 0
    peer.receive(9 * SECOND, 8, GatewayKnown(1, 8, True))
    assert (peer.term, peer.directory.gateway) == (1, 8)


def test_what_only_a_gateway_or_a_client_itself_may_say_is_refused_from_others() -> None:
    peer = a_peer()
    peer.receive(1, 8, Promote((0.0, 0.0), 9))
    assert peer.matcher is None
    first = a_peer(contact=5)
    assert first.matcher is not None
    wanted = Subscribe(1, Moving(disc(0, 0, 5))).stamped(8, 0)
    first.receive(1, 9, Interest(wanted, 1))
    assert first.matcher.site.record(1) is None
    first.receive(2, 8, Interest(wanted, 1))
    first.receive(3, 9, Cancel(8, 1, 2))
    assert first.matcher.site.record(1) is not None
    first.receive(4, 8, Cancel(8, 1, 2))
    assert first.matcher.site.record(1) is None
