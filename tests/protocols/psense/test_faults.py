"""pSense among walkers, under loss, crashes and nonsense."""

from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from nearcast.model.commands import Leave, Publish
from nearcast.node import Note, SetTimer
from nearcast.protocols.psense import layouts
from nearcast.protocols.psense.layouts import PositionRecord
from nearcast.protocols.psense.messages import (
    CODEC,
    Position,
    PublicationMessage,
    Request,
    Response,
)
from nearcast.protocols.psense.peer import PlayRound
from nearcast.sim.network import ConstantDelay, Duplication, Loss
from nearcast.space.motion import SECOND
from nearcast.space.shapes import disc
from support.brute_force import delivered, expected
from support.examples import choices, examples
from support.message_strategies import messages
from support.peer_worlds import recall
from support.psense_peers import PSenseWorld, alone, run


@choices("dimensions", [2], [3])
def test_walkers_know_nearly_all_they_should_and_their_publications_arrive(dimensions: int) -> None:
    trace = run(40, 5.0, dimensions=dimensions, dims=dimensions, radius=300.0, limit=20_000)
    assert recall(trace, 300.0) >= 0.99
    received = set(delivered(trace.table("deliveries")))
    should = expected(trace.table("interests"), trace.table("publications"))
    assert received <= should
    assert len(received) >= 0.98 * len(should)


def test_with_loss_and_crashes_most_is_delivered_and_nothing_twice_or_unwanted() -> None:
    trace = run(
        40, 8.0, loss=0.1, duplicate=0.1, reorder=0.1, crash=0.01, restart_s=3.0, limit=20_000
    )
    received = delivered(trace.table("deliveries"))
    should = expected(trace.table("interests"), trace.table("publications"))
    assert len(received) == len(set(received))
    assert set(received) <= should
    assert len(received) > 0.85 * len(should)
    assert recall(trace, 150.0) > 0.95


def test_after_half_have_crashed_and_under_loss_all_near_nodes_are_known_again() -> None:
    rng = Random(9)
    world = PSenseWorld(Loss(0.1, rng, Duplication(0.1, rng, ConstantDelay(50_000))), silent_s=3.0)
    world.join_many(60, 400, 90, 7)
    world.pass_seconds(6)
    gone = rng.sample(range(60), 30)
    for node in gone:
        world.simulation.crash(node)
    world.pass_seconds(10)
    assert world.unknown_near_nodes() == []
    believed = {node for peer in world.peers() for node, _ in peer.known(world.simulation.now)}
    assert not believed & set(gone)


def test_whose_contacts_have_all_died_begins_anew() -> None:
    world = PSenseWorld(alone_s=3.0, silent_s=3.0)
    world.join(1, disc(0, 0, 10))
    world.pass_seconds(2)
    world.simulation.crash(1)
    peer = world.join(2, disc(0, 0, 10))
    world.pass_seconds(8)
    other = world.join(3, disc(5, 0, 10))
    world.pass_seconds(10)
    assert dict(other.known(world.simulation.now)) == {2: (0.0, 0.0, 0.0)}
    assert dict(peer.known(world.simulation.now)) == {3: (5.0, 0.0, 0.0)}


NUMBERS = st.integers(0, 5)
SIGHTINGS = st.builds(
    PositionRecord,
    NUMBERS,
    st.tuples(st.floats(-1e29, 1e29), st.floats(-20, 20), st.just(0.0)),
    st.floats(0, 1e30),
    st.integers(0, 2**16 - 1),
    st.integers(0, 255),
)
HONEST = st.one_of(
    st.builds(lambda s, r: Position(layouts.pack_position(s, r, 2)), SIGHTINGS, st.lists(NUMBERS)),
    st.builds(lambda s, k: Request(layouts.pack_request(s, k, 2)), SIGHTINGS, st.integers(0, 7)),
    st.builds(
        lambda n, k, s: Response(layouts.pack_response(layouts.SensorSuggestion(n, k, s, 0), 2)),
        NUMBERS, st.integers(0, 7), SIGHTINGS,
    ),
    messages(PublicationMessage).flatmap(
        lambda tell: SIGHTINGS.map(
            lambda s: PublicationMessage(
                layouts.pack_position(s._replace(node=tell.publication.node), (), 2),
                tell.publication,
            )
        )
    ),
)  # fmt: skip


@given(st.lists(st.tuples(NUMBERS, HONEST | st.one_of(*map(messages, CODEC.messages))), max_size=8))
@examples(30)
def test_no_message_in_any_state_breaks_a_peer(messages: list[tuple[int, Any]]) -> None:
    world = PSenseWorld()
    peers = [world.join(0), world.join(1, disc(0, 0, 10)), world.join(2, disc(5, 5, 10))]
    for sender, message in messages:
        for peer in peers:
            world.simulation._apply(peer, peer.receive(world.simulation.now, sender, message))
        world.pass_seconds(0.4)
    world.obey(1, Publish(1, disc(0, 0, 9)))
    world.pass_seconds(1)
    for peer in peers:
        list(peer.known(world.simulation.now))
    world.obey(1, Leave())


@given(st.sampled_from([Position, Request, Response]), st.binary(max_size=60))
@examples(30)
def test_a_malformed_packet_changes_nothing(kind: Any, packet: bytes) -> None:
    peer = alone()
    reads = (layouts.unpack_position, layouts.unpack_request, layouts.unpack_response)
    if any(read(packet, 2) for read in reads):
        return  # by chance a good one
    assert peer.receive(2 * SECOND, 7, kind(packet)) == [Note("refused", 7)]
    assert peer.known_of.seen == {}
    assert 7 not in peer.contacts.some(Random(1), 9, 0)
    effects = peer.wake(3 * SECOND, PlayRound())
    assert effects == [SetTimer(PlayRound(), 333_000)]
