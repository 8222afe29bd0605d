"""pSense: near nodes are found, bandwidth is kept to, nothing is delivered twice, faults heal."""

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.model.commands import Leave, Move, Publish, Subscribe, Tune, Unsubscribe
from nearcast.model.subscription import Formula
from nearcast.node import Effect, Note, Send, SendMany
from nearcast.protocols.psense import layouts
from nearcast.protocols.psense.layouts import PositionRecord
from nearcast.protocols.psense.messages import CODEC, Position, Request, Response
from nearcast.protocols.psense.parameters import Parameters
from nearcast.protocols.psense.peer import PlayRound, PSensePeer
from nearcast.space.motion import SECOND, Moving
from nearcast.space.shapes import EVERYWHERE, ball, box, disc, point
from support.brute_force import delivered, expected
from support.examples import examples, seeds
from support.peer_worlds import assert_delivered_exactly
from support.psense_peers import PSenseWorld, alone, publish_everywhere

DIMENSIONS = pytest.mark.parametrize("dimensions", [2, 3])


# Calm.


@DIMENSIONS
@seeds([1], [2])
def test_without_faults_all_near_nodes_are_known_and_all_is_delivered(
    dimensions: int, seed: int
) -> None:
    world = PSenseWorld(dimensions=dimensions, limit=20_000, view="near")
    world.join_many(50, 365, 80 if dimensions == 2 else 150, seed)
    world.pass_seconds(5)
    assert world.unknown_near_nodes() == []
    publish_everywhere(world)
    world.pass_seconds(2)
    assert_delivered_exactly(world.trace(), at_least=200)


def test_two_groups_far_apart_know_of_each_other() -> None:
    """Sensors keep the network whole: whoever crosses the gap is found on the other side."""
    world, rng = PSenseWorld(), Random(3)
    for node in range(30):
        away = 5000.0 if node % 2 else 0.0
        world.join(node, disc(away + rng.uniform(0, 200), rng.uniform(0, 200), 60))
    world.pass_seconds(6)
    world.obey(1, Move(1000, Moving(disc(100.0, 100.0, 60.0))))
    world.pass_seconds(8)
    assert world.unknown_near_nodes() == []


def test_a_newcomer_is_found_wherever_its_contacts_are() -> None:
    world = PSenseWorld()
    world.join_many(40, 600, 90, 5)
    world.pass_seconds(6)
    world.join(99, disc(300.0, 300.0, 90.0))
    world.pass_seconds(5)
    assert world.unknown_near_nodes() == []


def test_what_is_published_in_sight_or_to_an_area_nearby_is_delivered() -> None:
    world, rng = PSenseWorld(limit=50_000), Random(2)
    world.join_many(40, 300, 90, 4)
    world.join(90)  # wants nothing, and is where it publishes
    world.join(91, EVERYWHERE, echo=True)
    world.pass_seconds(6)
    for number in range(60):
        publisher = world.simulation.nodes[number % 40]
        (x, y, _), _ = publisher._vision()
        x, y = x + rng.uniform(-40, 40), y + rng.uniform(-40, 40)
        shape = (point(x, y), disc(x, y, 20), box(x, y, 30, 10))[number % 3]
        world.obey(publisher.id, Publish(number, shape))
        world.pass_seconds(0.1)
    world.obey(90, Publish(100, point(150, 150)))
    world.pass_seconds(3)
    world.obey(90, Publish(101, point(150, 150)))
    world.pass_seconds(3)
    assert_delivered_exactly(world.trace(), at_least=300)


def test_in_the_plane_height_is_a_further_condition() -> None:
    world = PSenseWorld(dimensions=2)
    world.join(1, ball(0, 0, 0, 50))
    world.join(2, ball(10, 0, 45, 50))
    world.join(3, ball(10, 0, 200, 50))
    world.pass_seconds(4)
    world.obey(1, Publish(1, point(0, 0, 0)))
    world.pass_seconds(1)
    assert delivered(world.trace().table("deliveries")) == [(1, 2000)]


def test_commands_are_executed_and_invalid_ones_noted() -> None:
    world = PSenseWorld()
    world.join(1, disc(0, 0, 10))
    world.join(2)
    growing = Formula("x >= -3, x <= 3 + t, y >= -2, y <= 2")
    world.obey(
        2,
        Subscribe(7, growing),
        Subscribe(8, "x > v, x < 9, y > 0, y < 9", None, "", False, {"v": 5.0}),
    )
    world.pass_seconds(3)
    world.obey(1, Publish(1, point(4, 1)), Publish(2, point(7, 1)))
    world.pass_seconds(1)
    world.obey(2, Tune(8, {"v": 7.0}), Unsubscribe(7), Tune(9, {}), Move(9, Moving(disc(0, 0, 1))))
    world.pass_seconds(1)
    world.obey(1, Publish(3, point(6.5, 1)), Publish(4, point(8, 1)))
    world.pass_seconds(1)
    world.obey(2, Unsubscribe(8))
    world.pass_seconds(12)
    assert list(world.simulation.nodes[2].known(world.simulation.now)) == []
    assert list(world.simulation.nodes[1].known(world.simulation.now)) == []
    world.obey(2, Publish(5, point(1, 1)))
    world.pass_seconds(1)
    world.obey(2, Leave())
    world.pass_seconds(1)
    trace = world.trace()
    received = delivered(trace.table("deliveries"))
    assert sorted(received) == [(1, 7), (2, 8), (4, 8), (5, 1000)]
    assert set(received) == expected(trace.table("interests"), trace.table("publications"))


@pytest.mark.parametrize(
    "wrong",
    [
        {"dimensions": 4}, {"view": "x"}, {"round_ms": 0}, {"limit": 10}, {"hops": -1},
        {"silent_s": 0.1}, {"linger_s": 10.0}, {"retry_s": 0.0}, {"alone_s": float("nan")},
    ],
)  # fmt: skip
def test_wrong_parameters_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Parameters(**wrong)


# One peer, by hand.


def sighting(node: int, x: float, y: float, now: int, radius: float = 100.0) -> PositionRecord:
    return PositionRecord(node, (x, y, 0.0), radius, layouts.sequence_at(now), 3)


def sent(effects: list[Effect]) -> list[tuple[int, Any]]:
    pairs: list[tuple[int, Any]] = []
    for effect in effects:
        if isinstance(effect, Send):
            pairs.append((effect.to, effect.message))
        elif isinstance(effect, SendMany):
            pairs += [(to, effect.message) for to in effect.to]
    return pairs


def place(
    peer: PSensePeer, now: int, seen: PositionRecord, already_sent: tuple[int, ...] = ()
) -> list[Effect]:
    return peer.receive(now, seen.node, Position(layouts.pack_position(seen, already_sent, 2)))


def test_a_round_updates_near_nodes_and_sensors_and_asks_sensors() -> None:
    peer = alone()
    place(peer, SECOND, sighting(1, 50, 0, SECOND))
    place(peer, SECOND, sighting(2, 200, 10, SECOND))
    messages = sent(peer.wake(2 * SECOND, PlayRound()))
    opened = [
        (to, layouts.unpack_position(m.packet, 2)) for to, m in messages if type(m) is Position
    ]
    own = [(to, sorted(already_sent)) for to, (seen, already_sent) in opened if seen.node == 0]
    assert own == [(1, [1, 2]), (2, [1, 2])]
    requests = [
        (to, layouts.unpack_request(m.packet, 2)[1]) for to, m in messages if type(m) is Request
    ]
    # Nobody else is known: 2 watches its own sector; the others, whoever is nearest to their edge.
    assert {sector: to for to, sector in requests}[0] == 2
    assert sorted(sector for _, sector in requests) == list(range(8))


@pytest.mark.parametrize(
    ("view", "known", "later"),
    [("near", [], []), ("receivers", [1], [1]), ("connections", [1, 2], [1])],
)
def test_whom_a_peer_knows_are_near_nodes_its_receivers_or_all_its_connections(
    view: str, known: list[int], later: list[int]
) -> None:
    peer = alone(view=view)
    for node, x in ((1, 150.0), (2, 600.0)):  # 1 is the sensor of all sectors, 2 has this for one
        seen = PositionRecord(node, (x, 1.0, 0.0), 100.0, layouts.sequence_at(SECOND), 3)
        peer.receive(SECOND, node, Position(layouts.pack_position(seen, (), 2)))
    peer.wake(SECOND + 333_000, PlayRound())
    for seconds, wanted in ((2, known), (4, later)):
        assert [node for node, _ in peer.known(seconds * SECOND)] == wanted


def test_a_request_is_answered_in_the_next_round_with_the_best_that_is_known() -> None:
    peer = alone()
    place(peer, SECOND, sighting(2, 390, 210, SECOND))
    place(peer, SECOND, sighting(3, 360, 205, SECOND))
    asker = sighting(9, 200, 200, SECOND)
    assert sent(peer.receive(SECOND, 9, Request(layouts.pack_request(asker, 0, 2)))) == []
    messages = sent(peer.wake(2 * SECOND, PlayRound()))
    answers = [
        (to, layouts.unpack_response(m.packet, 2)) for to, m in messages if type(m) is Response
    ]
    assert [(to, a.sender, a.sector, a.sensor.node, a.request_sequence) for to, a in answers] == [
        (9, 0, 0, 3, asker.sequence)
    ]
    assert answers[0][1].sensor.hops == 2, "what others reported is forwarded less often"
    assert not any(type(m) is Response for _, m in sent(peer.wake(3 * SECOND, PlayRound())))


def test_new_positions_are_forwarded_to_those_concerned_while_hops_last() -> None:
    peer = alone()
    place(peer, SECOND, sighting(1, 50, 0, SECOND))
    place(peer, SECOND, sighting(2, 60, 0, SECOND))
    place(peer, SECOND, sighting(3, 90, 0, SECOND))
    peer.wake(2 * SECOND, PlayRound())
    seen = sighting(1, 55, 0, 2 * SECOND)
    place(peer, 2 * SECOND, seen, (0, 2))
    place(peer, 2 * SECOND, seen, (0,))  # again: nothing new
    messages = sent(peer.wake(3 * SECOND, PlayRound()))
    passed = [
        (to, layouts.unpack_position(m.packet, 2)) for to, m in messages if type(m) is Position
    ]
    passed = [(to, opened) for to, opened in passed if opened[0].node == 1]
    assert [(to, opened[0].hops, opened[1]) for to, opened in passed] == [(3, 2, (0, 2, 0, 3))]
    place(peer, 3 * SECOND, sighting(1, 56, 0, 3 * SECOND)._replace(hops=0), (0,))
    messages = sent(peer.wake(4 * SECOND, PlayRound()))
    assert not [m for _, m in messages if type(m) is Position and m.packet[16:20] == b"\x01\0\0\0"]


def test_the_silent_are_dropped_and_a_lone_peer_joins_anew() -> None:
    peer = alone()
    place(peer, SECOND, sighting(1, 50, 0, SECOND))
    now = SECOND
    messages: list[tuple[int, Any]] = []
    while now < 10 * SECOND:
        now += 333_000
        effects = peer.wake(now, PlayRound())
    assert Note("lost", 1) in effects
    assert list(peer.known(now)) == []
    peer.contacts.add(5)
    while now < 32 * SECOND:
        now += 333_000
        messages += sent(peer.wake(now, PlayRound()))
    assert {to for to, _ in messages} == {5}
    assert {type(message) for _, message in messages} == {Position, Request}


def test_positions_of_a_restarted_peer_are_accepted_as_newer() -> None:
    """Its numbers go on with the clock, so its first messages are not taken for old ones."""
    peer = alone()
    place(peer, SECOND, sighting(1, 50, 0, SECOND))
    place(peer, 3 * SECOND, sighting(1, 70, 0, 3 * SECOND))
    place(peer, 3 * SECOND, sighting(1, 50, 0, 2 * SECOND))  # overtaken
    assert dict(peer.known(3 * SECOND)) == {1: (70.0, 0.0, 0.0)}


# Bytes.


@examples(60)
@given(
    limit=st.integers(200, 3000),
    spots=st.lists(st.tuples(st.floats(-300, 300), st.floats(-300, 300)), max_size=40),
    rounds=st.lists(st.integers(0, 8), min_size=1, max_size=6),
    seed=st.integers(0, 100),
)
def test_no_round_sends_more_bytes_than_its_limit(
    limit: int, spots: list[tuple[float, float]], rounds: list[int], seed: int
) -> None:
    peer, now, number = alone(limit=limit), SECOND, 0
    rng = Random(seed)
    for publications in rounds:
        now += 333_000
        effects = peer.wake(now, PlayRound())
        for node, (x, y) in enumerate(spots, 1):
            seen = sighting(node, x + rng.uniform(-5, 5), y, now)
            effects += place(peer, now, seen, (0, rng.randrange(40)))
            packet = layouts.pack_request(seen, rng.randrange(8), 2)
            effects += peer.receive(now, node, Request(packet))
        for _ in range(publications):
            number += 1
            effects += peer.obey(now, Publish(number, point(0, 0), payload=bytes(48)))
        assert sum(CODEC.size(message) + 28 for _, message in sent(effects)) <= limit


def test_a_peer_left_out_by_the_bandwidth_limit_is_not_listed_as_served() -> None:
    peer = alone(limit=1000)
    for node in range(1, 31):
        place(peer, SECOND, sighting(node, node, 0, SECOND), tuple(range(31)))
    messages = sent(peer.wake(2 * SECOND, PlayRound()))
    own = [
        (to, layouts.unpack_position(message.packet, 2)[1])
        for to, message in messages
        if type(message) is Position and layouts.unpack_position(message.packet, 2)[0].node == 0
    ]
    assert 0 < len(own) < 30
    assert all(sorted(already_sent) == sorted(to for to, _ in own) for _, already_sent in own)


def test_under_a_tight_limit_others_help_out() -> None:
    """Receivers that the publisher could not serve receive it from those whom it could."""
    world = PSenseWorld(limit=2500)
    world.join_many(12, 40, 90, 1)
    world.pass_seconds(5)
    world.obey(3, Publish(1, point(20, 20), payload=bytes(100)))
    world.pass_seconds(1)
    trace = world.trace()
    direct = {
        row["to"]
        for row in trace.table("messages").to_pylist()
        if row["kind"] == "psense.PublicationMessage" and row["node"] == 3
    }
    assert 0 < len(direct) < 11
    assert len(delivered(trace.table("deliveries"))) > len(direct)
