"""Unknown senders, malformed messages, replays, slow uplinks and mass crashes."""

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from nearcast.errors import WireError
from nearcast.model.commands import Leave, Publish
from nearcast.model.subscription import NodeId
from nearcast.node import Message
from nearcast.protocols.bubblestorm import messages
from nearcast.protocols.bubblestorm.congestion import MOST_BYTES, CongestedUplink
from nearcast.protocols.bubblestorm.layouts import MessageType, pack_position
from nearcast.protocols.bubblestorm.messages import CODEC
from nearcast.protocols.bubblestorm.peer import BubbleStormPeer
from nearcast.protocols.bubblestorm.sizes import rendezvous
from nearcast.space.motion import SECOND
from nearcast.space.shapes import disc, point
from nearcast.wire import LONGEST
from support.bubblestorm_peers import joined_world, peer_of, somewhere
from support.bubblestorm_worlds import BubbleStormWorld
from support.examples import examples, seeds
from support.message_strategies import messages as drawn_messages

UNKNOWN = 4242
ANYTHING = st.one_of(*map(drawn_messages, CODEC.messages))


def state(peer: BubbleStormPeer) -> object:
    """All that a peer knows and has decided; what was handed to the application apart."""
    circuit, measurement = peer.overlay.circuit, peer.overlay.measurement
    locations = {
        number: (one.state, one.master, one.slave, one.changing, one.leaver, one.degree)
        for number, one in circuit.locations.items()
    }
    connections = {
        node: (one.place, one.radius, one.last_received, one.soft, one.hard)
        for node, one in peer.connections.open.items()
    }
    return (
        locations,
        connections,
        dict(peer.connections.attempted),
        dict(peer.cache.entries),
        (measurement.round, measurement.network, measurement._weight, measurement._peers),
        peer.holders.nodes,
        dict(peer.tokens),
    )


def small_world(**parameters: Any) -> BubbleStormWorld:
    return joined_world(somewhere(8, 30), 12.0, **parameters)


@pytest.fixture(scope="module")
def calm() -> BubbleStormWorld:
    """Nothing that its tests do changes it."""
    return small_world()


@given(st.lists(ANYTHING, min_size=1, max_size=8))
@examples(30)
def test_invalid_messages_of_an_unknown_node_change_nothing(
    calm: BubbleStormWorld, messages: list[Message]
) -> None:
    peer = peer_of(calm, 3)
    before = state(peer)
    for message in messages:
        peer.receive(calm.simulation.now, UNKNOWN, message)
    assert state(peer) == before


def test_what_is_oversized_is_no_message(calm: BubbleStormWorld) -> None:
    bubble = messages.SubscriptionBubble(1, 1, 1, 1, False, bytes(LONGEST))
    with pytest.raises(WireError):
        CODEC.decode(CODEC.encode(bubble))
    peer = peer_of(calm, 3)
    before = state(peer)
    for packet in (b"", bytes(37), bytes(60_000)):
        for message in (
            messages.Contact(packet),
            messages.Accept(packet),
            messages.Position(packet),
        ):
            assert peer.receive(calm.simulation.now, UNKNOWN, message) == []
        peer.receive(calm.simulation.now, UNKNOWN, messages.Reply(next(iter(peer.tokens)), packet))
    assert state(peer) == before


def test_messages_replayed_by_an_unknown_node_change_nothing() -> None:
    world = small_world()
    overheard: list[Message] = []
    send, send_many = world.simulation._send, world.simulation._send_many

    def spy(source: NodeId, to: NodeId, message: Message) -> None:
        overheard.append(message)
        send(source, to, message)

    def spy_many(source: NodeId, to: Any, message: Message) -> None:
        overheard.append(message)
        send_many(source, to, message)

    world.simulation._send = spy  # its own door, watched
    world.simulation._send_many = spy_many
    world.join(8, disc(15.0, 15.0, 20.0))
    world.obey(0, Publish(1, point(0, 0)), Publish(2, disc(15, 15, 9)))
    world.leave(1)
    world.pass_seconds(20)
    assert {type(message) for message in overheard} >= {
        messages.Join, messages.Walk, messages.Adopt, messages.Insert, messages.InsertAccepted,
        messages.JoinCompleted, messages.Leave, messages.Released,
        messages.Heartbeat, messages.Gossip, messages.SubscriptionBubble,
        messages.PublicationBubble, messages.Reply, messages.Contact, messages.Accept,
        messages.Position, messages.DirectPublication, messages.Close,
    }  # fmt: skip
    for peer in world.peers():
        before = state(peer)
        for message in overheard:
            peer.receive(world.simulation.now, UNKNOWN, message)
        assert state(peer) == before


def test_an_unknown_node_cannot_connect(calm: BubbleStormWorld) -> None:
    peer = peer_of(calm, 3)
    before = state(peer)
    far = pack_position(MessageType.CONTACT, UNKNOWN, (9000.0, 0.0, 0.0), 5.0, calm.simulation.now)
    assert peer.receive(calm.simulation.now, UNKNOWN, messages.Contact(far)) == []
    assert state(peer) == before


@given(st.lists(st.tuples(st.integers(0, 3), ANYTHING), max_size=6), st.booleans())
@examples(30)
def test_no_message_in_any_state_breaks_a_peer(
    messages: list[tuple[int, Any]], managed: bool
) -> None:
    world = BubbleStormWorld(bubble="managed" if managed else "fading")
    peers = [world.join(0, disc(0, 0, 10)), world.join(1, disc(5, 5, 10)), world.join(2)]
    world.pass_seconds(1.5)
    for sender, message in messages:
        for peer in peers:
            received = [message]
            if hasattr(message, "location"):  # on a link that there is, too
                for number in list(peer.overlay.circuit.locations)[:2]:
                    received.append(replace(message, location=number))
            for one in received:
                effects = peer.receive(world.simulation.now, sender, one)
                world.simulation._apply(peer, effects)
        world.pass_seconds(0.4)
    world.obey(1, Publish(1, disc(0, 0, 9)))
    world.pass_seconds(6)
    for peer in peers:
        list(peer.known(world.simulation.now))
    world.obey(1, Leave())
    world.pass_seconds(21)
    assert 1 not in world.simulation.nodes


# Congestion.


def test_a_free_uplink_sends_at_once_and_a_busy_one_by_priority() -> None:
    sent: list[tuple[NodeId, Any]] = []
    uplink = CongestedUplink(1_000.0, lambda to, message: sent.append((to, message)))
    close = messages.Close()
    uplink.offer(0, 1, 0.1, 30, close)  # takes 30 ms of the line
    assert sent == [(1, close)]
    holding = [messages.ReplicaHeld(number) for number in range(3)]
    for priority, message in zip((0.2, 0.9, 0.5), holding, strict=True):
        uplink.offer(0, 2, priority, 1000, message)
    assert len(sent) == 1
    assert uplink.flush(0) == 10_001
    while (later := uplink.flush(0 if not uplink.waits else uplink._free)) is not None:
        assert later > 0
    assert [message for _, message in sent[1:]] == [holding[1], holding[2], holding[0]]


def test_what_waits_for_one_neighbour_is_bounded_and_the_least_reliable_is_lost() -> None:
    sent: list[Any] = []
    uplink = CongestedUplink(1.0, lambda _, message: sent.append(message))
    uplink.offer(0, 1, 1.0, 1, messages.Close())
    for number in range(200):
        uplink.offer(0, 1, (number * 37 % 200) / 200, 1024, messages.ReplicaHeld(number))
    (queue,) = uplink._queues.values()
    assert queue.bytes == sum(waiting.size for waiting in queue.waiting) <= MOST_BYTES
    assert uplink.lost == 200 - MOST_BYTES // 1024
    assert min(waiting.priority for waiting in queue.waiting) == uplink.lost / 200


def test_a_peer_with_a_slow_uplink_reports_congestion_and_goes_on() -> None:
    world = joined_world(somewhere(12, 30), 40.0, upload_kbit=1.0, **{"lambda": 3.0})
    world.pass_seconds(20)
    assert any(peer.overlay.uplink.waits for peer in world.peers())
    assert sum(len(peer.connections.open) for peer in world.peers()) > 60


# Half of all crash.


def match_rate(world: BubbleStormWorld, rounds: int) -> float:
    """Of all pairs, how many met somewhere within the last round; the mean of several rounds."""
    met = pairs = 0
    for _ in range(rounds):
        world.pass_seconds(1)
        since = world.simulation.now - SECOND
        held: dict[NodeId, set[NodeId]] = {peer.id: {peer.id} for peer in world.peers()}
        for peer in world.peers():
            for node, entry in peer.cache.entries.items():
                if entry.last_received > since and node in held:
                    held[node].add(peer.id)
        nodes = list(held)
        for number, one in enumerate(nodes):
            for other in nodes[number + 1 :]:
                met += not held[one].isdisjoint(held[other])
                pairs += 1
    return met / pairs


def crash_half(count: int, seed: int, wait: int, **parameters: Any) -> tuple[float, float]:
    world = joined_world(somewhere(count, 1e6), 1.0, **parameters)
    world.pass_seconds(40)
    before = match_rate(world, 10)
    for node in Random(seed).sample(range(count), count // 2):
        world.simulation.crash(node)
    world.pass_seconds(wait)
    return before, match_rate(world, 10)


def assert_recovered(before: float, after: float, certainty: float) -> None:
    """Sizes are whole numbers: a small network may have met more often than it was asked to."""
    assert before > rendezvous(certainty) - 0.02
    assert after >= min(before, rendezvous(certainty)) - 0.02


def test_after_half_have_crashed_subscriptions_meet_as_often_as_before() -> None:
    before, after = crash_half(96, 1, 40, beat_s=4.0, dead_s=10.0)
    assert_recovered(before, after, 1.0)


@pytest.mark.soak
@pytest.mark.parametrize("certainty", [1.0, 2.0])
@seeds([1], [2])
def test_within_300_seconds_a_large_network_has_forgotten_that_half_of_it_crashed(
    certainty: float, seed: int
) -> None:
    before, after = crash_half(300, seed, 280, **{"lambda": certainty})
    assert_recovered(before, after, certainty)
