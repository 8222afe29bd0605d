"""Relays as an overlay of its own: delivery under load, with faults and malformed messages."""

from collections import Counter
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from nearcast.model.commands import Leave, Publish, Subscribe
from nearcast.model.publication import Publication
from nearcast.model.subscription import Subscription
from nearcast.node import Node, Note, Send
from nearcast.protocols import PROTOCOLS
from nearcast.protocols.overlay import FIRST_SERVER
from nearcast.protocols.relays.deployment import KIND
from nearcast.protocols.relays.directory import CODEC, NeighbourhoodUpdate, RelayDirectory
from nearcast.protocols.relays.messages import (
    MESSAGES,
    Accept,
    FlowList,
    PeerStatus,
    Redirect,
    RelayedPublication,
    Shorten,
    Status,
    StopForwarding,
    Update,
)
from nearcast.protocols.relays.parameters import Parameters as RelaysParameters
from nearcast.protocols.relays.peer import Parameters, RelayPeer
from nearcast.protocols.relays.relays import OptimiseFlows
from nearcast.protocols.relays.uplink import HEADERS, Uplink, size_of
from nearcast.scenario import Scenario
from nearcast.sim.checkers import DeliveredOnce, NotBeforePublished
from nearcast.sim.network import ConstantDelay
from nearcast.sim.world import SimulatedWorld
from nearcast.space.motion import SECOND, Moving
from nearcast.space.shapes import disc, point
from nearcast.trace.recorder import Recorder
from nearcast.trace.sinks import MemoryTrace
from support.brute_force import delivered, expected
from support.examples import examples
from support.message_strategies import messages
from support.peer_worlds import PeerWorld, assert_delivered_exactly
from support.relay_peers import RelayNetwork, RelayNode

PLENTY = {"uplink_min": 1e5, "uplink_max": 1e5}


def run(
    nodes: int, seconds: float, workload: str = "virtual-reality", **chosen: object
) -> MemoryTrace:
    memory = MemoryTrace()
    scenario = Scenario(
        protocol="relays", workload=workload, nodes=nodes, seconds=seconds, settings=chosen
    )
    world = SimulatedWorld(
        scenario, lambda _: Recorder(memory), (DeliveredOnce(), NotBeforePublished())
    )
    world.run()
    world.recorder.close()
    return memory


def outcome(trace: MemoryTrace) -> tuple[set, set]:
    received = delivered(trace.table("deliveries"))
    should = expected(trace.table("interests"), trace.table("publications"))
    assert len(should) > 100, "a world without deliveries proves nothing"
    assert len(received) == len(set(received))
    return set(received), should


def facts(trace: MemoryTrace) -> Counter:
    return Counter(row["fact"] for row in trace.table("notes").to_pylist())


def test_it_is_a_protocol_by_name() -> None:
    assert PROTOCOLS["relays"] is KIND


@pytest.mark.parametrize(
    ("workload", "directory"),
    [("virtual-reality", "central"), ("interest-graph", "central"), ("virtual-reality", "mesh")],
)
def test_with_bandwidth_in_plenty_all_is_delivered_directly_and_nothing_else(
    workload: str, directory: str
) -> None:
    trace = run(20, 2.0, workload, rate=4.0, directory=directory, **PLENTY)
    received, should = outcome(trace)
    assert received == should
    assert facts(trace)["redirected"] == 0
    assert {row["hops"] for row in trace.table("deliveries").to_pylist()} == {1}


@pytest.mark.parametrize("directory", ["central", "mesh"])
def test_walkers_receive_all_they_should_although_interests_change(directory: str) -> None:
    trace = run(25, 5.0, walking=1.0, speed=15.0, rate=4.0, directory=directory, **PLENTY)
    received, should = outcome(trace)
    assert received <= should
    # An interest that begins to move is known a moment later.
    assert len(should - received) <= 0.005 * len(should)


@pytest.mark.parametrize("directory", ["central", "mesh"])
def test_what_is_published_elsewhere_reaches_its_subscribers(directory: str) -> None:
    sides = {"side_min": 100.0, "side_max": 200.0}
    received, should = outcome(
        run(30, 4.0, "hotspots", rate=8.0, directory=directory, **sides, **PLENTY)
    )
    assert received == should


def test_on_short_uplinks_relays_miss_fewer_updates_than_direct_sending() -> None:
    missed, withheld = {}, {}
    for relays in ("on", "off"):
        trace = run(32, 5.0, radius=340.0, uplink_min=60.0, uplink_max=300.0, relays=relays)
        received, should = outcome(trace)
        assert received <= should
        missed[relays] = len(should - received)
        withheld[relays] = facts(trace)["withheld"]
    assert withheld["off"] > 500
    assert missed["off"] >= withheld["off"]
    assert missed["on"] < 0.7 * missed["off"]


@pytest.mark.parametrize("directory", ["central", "mesh"])
def test_with_faults_most_is_delivered_and_nothing_twice_or_unwanted(directory: str) -> None:
    trace = run(
        25, 6.0, radius=300.0, uplink_min=100.0, uplink_max=400.0, walking=0.5, rate=4.0,
        loss=0.05, duplicate=0.1, reorder=0.1, crash=0.01, restart_s=2.0, network="embedding",
        directory=directory,
    )  # fmt: skip
    received, should = outcome(trace)
    assert received <= should
    assert len(received) > 0.8 * len(should)


@pytest.mark.parametrize("dead", [1, 4])
def test_without_a_directory_no_peer_is_needed_by_all(dead: int) -> None:
    """The first peer, or a later one, crashes; a newcomer joins through whoever is left."""
    world = PeerWorld("relays", directory="mesh", interval_ms=125.0, **PLENTY)
    for node in range(1, 9):
        world.join(node, disc(20 * node, 0, 90))
    world.pass_seconds(8)
    world.simulation.crash(dead)
    world.overlay.contacts.remove(dead)
    world.pass_seconds(1)
    world.join(9, disc(30, 30, 90))
    world.pass_seconds(12)
    left = [peer.id for peer in world.peers()]
    assert len(left) == 8
    for number, node in enumerate(left, 1):
        world.obey(node, Publish(number, point(20 * node if node < 9 else 30, 0)))
        world.obey(node, Publish(100 + number, point(150, 10)))  # elsewhere
    world.pass_seconds(3)
    assert_delivered_exactly(world.trace())


# The uplink.


def piece(number: int, source: int = 1, payload: int = 100) -> RelayedPublication:
    publication = Publication(number, source, 0, point(0, 0), payload=bytes(payload))
    return RelayedPublication(source, publication, 0, 0)


def test_an_uplink_never_sends_more_than_its_rate_and_a_burst() -> None:
    uplink = Uplink(10_000.0)
    sent = 0
    for step in range(100):
        for to in range(10):
            uplink.put(to, piece(step * 10 + to), 0.5, step * 50_000, 0)
        packets, _ = uplink.serve(step * 50_000, lambda _: None)
        sent += sum(size_of(update) for _, update in packets)
    assert sent <= 10_000 * 5 + 10_000 * 0.2 + 300
    assert sent >= 10_000 * 5 * 0.9
    assert uplink.demand == pytest.approx(1000 * size_of(Update((piece(1),))), rel=0.25)


def test_a_greater_interest_is_served_more_often_and_a_small_one_sometimes() -> None:
    uplink, served = Uplink(4_000.0), Counter()
    for step in range(200):
        for to, interest in enumerate((1.0, 0.5, 0.2, 0.1)):
            uplink.put(to, piece(step * 4 + to), interest, step * 50_000, 0)
        packets, _ = uplink.serve(step * 50_000, lambda _: None)
        served.update(to for to, _ in packets)
    assert served[0] > served[1] > served[2] >= served[3] > 5


def test_a_newer_publication_replaces_a_waiting_one_and_several_share_a_packet() -> None:
    uplink = Uplink(1_000.0)
    uplink.put(9, piece(0, payload=3000), 1.0, 0, 0)
    assert len(uplink.serve(0, lambda _: None)[0]) == 1
    uplink.put(1, piece(1), 1.0, 0, 0)
    assert uplink.serve(0, lambda _: None) == ([], [])
    assert [one.publication.id for one in uplink.put(1, piece(2), 1.0, 1, 0)] == [1]
    assert uplink.put(1, piece(3, source=2), 1.0, 1, 0) == []
    due = uplink.due(1)
    assert due is not None and due > 2 * SECOND
    assert uplink.serve(SECOND + 2, lambda _: None) == ([], [(1, piece(2)), (1, piece(3, 2))])


def test_a_forwarded_publication_waits_for_others_and_counts_its_age() -> None:
    uplink = Uplink(1e6)
    uplink.put(1, piece(1), 1.0, 0, 40_000)
    assert uplink.serve(30_000, lambda _: None) == ([], [])
    uplink.put(1, piece(2, source=2), 1.0, 30_000, 0)
    ((_, update),) = uplink.serve(30_000, lambda _: None)[0]
    assert [(one.publication.id, one.age) for one in update.pieces] == [(1, 300), (2, 0)]
    assert size_of(update) < size_of(Update((piece(1),))) + size_of(Update((piece(2),))) - HEADERS


# Nonsense.


def receive_neighbourhood(peer: Node, *nodes: int) -> None:
    """The directory says that these are around."""
    wanted = tuple(Subscription(n * 10, n, Moving(disc(0, 0, 9))) for n in nodes)
    peer.receive(peer.now, FIRST_SERVER, NeighbourhoodUpdate(wanted, (), nodes, ()))


def peer_among(*nodes: int) -> RelayPeer:
    peer = RelayPeer(0, Random(1), Parameters(), FIRST_SERVER)
    peer.obey(0, Subscribe(1, Moving(disc(0, 0, 10))))
    receive_neighbourhood(peer, *nodes)
    return peer


SENDERS = st.sampled_from([0, 1, 2, 3, FIRST_SERVER])
ANY = st.one_of(*map(messages, CODEC.messages))


@given(st.lists(st.tuples(SENDERS, ANY), max_size=10))
@examples(40)
def test_no_message_in_any_state_breaks_a_peer_or_the_directory(
    messages: list[tuple[int, Any]],
) -> None:
    nodes = [peer_among(1, 2), RelayDirectory(FIRST_SERVER, Random(1), 5.0)]
    for number, (sender, message) in enumerate(messages, 1):
        now = number * 300_000
        for node in nodes:
            node.receive(now, sender, message)
        nodes[0].obey(now, Publish(number, point(0, 0)))
        nodes[0].wake(now, OptimiseFlows())
    list(nodes[0].known(nodes[0].now))
    nodes[0].obey(nodes[0].now, Leave())


def known_state(peer: RelayPeer) -> str:
    relays = peer.relays
    return repr(
        (
            [(flow, entry.next, entry.listers) for flow, entry in relays.table.entries.items()],
            sorted(relays.neighbours.known), sorted(relays.neighbours.audiences),
            sorted(peer.wanted), sorted(peer.sources), relays.load, relays._received_bytes,
        )
    )  # fmt: skip


WORD = PeerStatus(1000, 10, 1, 1, 0, 0)
PIECE = piece(77, source=1)
STRANGE = [
    Update((PIECE,)), Update((piece(78, source=9),), WORD), Status(WORD),
    Status(PeerStatus(1000, 10, 1, 1, 0, 0, (FlowList(0, (1,)), FlowList(1, (2,))))),
    Redirect(1, 2, 1, 2, 0.5, 0, 1e9), Shorten(0, 1, 1, 2, 0, 1e9), Accept(0, 1, 1, 1),
    StopForwarding(0, 1),
]  # fmt: skip


@pytest.mark.parametrize("message", STRANGE, ids=lambda message: type(message).__name__)
def test_a_packet_of_an_unknown_node_changes_nothing(message: Any) -> None:
    peer = peer_among(1, 2)
    peer.obey(10, Publish(5, point(0, 0)))
    before = known_state(peer)
    effects = peer.receive(20, 9, message)
    assert known_state(peer) == before
    assert all(isinstance(effect, Note) for effect in effects)
    assert set(effects) == {Note("refused", 9)} or isinstance(message, Accept | StopForwarding)


@given(messages_ := st.one_of(*map(messages, MESSAGES)))
@examples(60)
def test_no_message_of_an_unknown_node_changes_anything(message: Any) -> None:
    peer = peer_among(1, 2)
    peer.obey(10, Publish(5, point(0, 0)))
    before = known_state(peer)
    peer.receive(20, 9, message)
    assert known_state(peer) == before


def test_a_forwarder_is_trusted_only_for_sources_that_have_named_it() -> None:
    network = RelayNetwork(4, ConstantDelay(10_000), optimises=False)
    network.publish_every(100_000, 3 * SECOND)
    network.pass_seconds(1)
    member = network.member(3)
    member.others.remove(2)  # no longer acquainted, but known from 0's filter
    passed_on = replace(piece(500, source=0), hops=1)
    effects = member.receive(member.now, 2, Update((passed_on,)))
    assert [e for e in effects if isinstance(e, Note)] == []
    effects = member.receive(member.now, 99, Update((piece(501, source=0),)))
    assert effects == [Note("refused", 99)]


def test_an_overloaded_peer_requests_and_one_that_would_become_overloaded_refuses() -> None:
    full = RelayNode(1, range(4), RelaysParameters(), capacity=1000.0)
    full.relays.load = 950.0
    full.receive(0, 0, Update((piece(1, source=0),)))
    take = Redirect(0, 2, 7, 2, 0.5, 0, 2.0)
    (answer,) = [e for e in full.receive(10, 0, take) if isinstance(e, Send)]
    assert answer.message.kind == "relays.Accept", "it has not measured what a flow of 0 costs"
    full.relays._rates[0] = 400.0
    (answer,) = [
        e for e in full.receive(20, 0, Redirect(0, 3, 8, 3, 0.5, 0, 2.0)) if isinstance(e, Send)
    ]
    assert answer.message.kind == "relays.Reject"


def test_parameters_out_of_range_are_refused_by_name() -> None:
    for name, value in (
        ("interval_ms", 1.0), ("misses", 1), ("epsilon", -1.0), ("hold_ms", 1e9), ("w_sender", -1),
        ("uplink_min", 900.0), ("uplink_max", 0.0), ("room", float("nan")), ("relays", "maybe"),
        ("directory", "mine"),
        ("target_s", -1.0), ("steps", 0),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=name):
            Parameters(**{name: value})


@pytest.mark.parametrize("steps", [1, 2])
def test_in_an_interval_an_overloaded_peer_asks_for_so_many_operations(steps: int) -> None:
    parameters = RelaysParameters(steps=steps)
    network = RelayNetwork(
        8, ConstantDelay(20_000), (lambda _: DeliveredOnce(),), parameters, capacity=3_000.0
    )
    network.publish_every(125_000, 6 * SECOND)
    network.pass_seconds(6)
    assert network.broken() == []
    network.simulation.recorder.flush()
    requests: dict[int, Counter[int]] = {}
    for row in network.memory.table("messages").to_pylist():
        if row["kind"] in ("relays.Redirect", "relays.Shorten"):
            requests.setdefault(row["node"], Counter())[row["t"]] += 1
    assert sum(map(Counter.total, requests.values())) > 8
    for moments in requests.values():
        assert all(b - a >= 490_000 for a, b in pairwise(sorted(moments)))
    assert max(max(moments.values()) for moments in requests.values()) == steps


def test_a_status_goes_with_an_update_once_in_an_interval() -> None:
    node, moments = RelayNode(0, range(2), RelaysParameters()), list[int]()
    for now in range(0, 3 * SECOND, 100_000):
        for effect in node.obey(now, Publish(now + 1, point(0, 0))):
            if isinstance(effect, Send) and isinstance(effect.message, Update):
                moments += [now] if effect.message.status else []
    assert moments == list(range(0, 3 * SECOND, 500_000))
