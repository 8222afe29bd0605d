"""The publish/subscribe layer: neighbours are found, updated, monitored and dropped."""

from random import Random
from typing import Any

import pytest

from nearcast.model.commands import Leave, Move, Publish, Subscribe, Tune, Unsubscribe
from nearcast.model.subscription import Filter, Formula
from nearcast.node import Note, SendMany
from nearcast.protocols.bubblestorm import messages
from nearcast.protocols.bubblestorm.layouts import MessageType, pack_position, pack_reply
from nearcast.protocols.bubblestorm.peer import BubbleStormPeer
from nearcast.space.motion import SECOND, Moving
from nearcast.space.shapes import ball, box, disc, point
from support.brute_force import delivered, expected
from support.bubblestorm_peers import joined_world, peer_of, somewhere
from support.bubblestorm_worlds import BubbleStormWorld, run


def publish_places(world: BubbleStormWorld, first: int, places: list[tuple[float, float]]) -> None:
    for node, place in enumerate(places):
        if node in world.simulation.nodes:
            world.obey(node, Publish(first + node, point(*place)))


def assert_delivered_exactly(world: BubbleStormWorld, at_least: int) -> None:
    trace = world.trace()
    received = delivered(trace.table("deliveries"))
    should = expected(trace.table("interests"), trace.table("publications"))
    assert len(should) >= at_least
    assert sorted(received) == sorted(should)


@pytest.mark.parametrize(
    "chosen",
    [
        {},
        {"bubble": "managed", "lambda": 3.0},
        {"cast": "flooding"},
        {"interests": "whole"},
        {"split": 1},
    ],
    ids=str,
)
def test_peers_that_stand_still_find_each_other_and_receive_exactly(chosen: dict[str, Any]) -> None:
    places = somewhere(30, 100)
    world = joined_world(places, 25.0, **chosen)
    world.pass_seconds(10)
    publish_places(world, 0, places)
    world.pass_seconds(1)
    assert_delivered_exactly(world, at_least=100)


def test_what_is_known_is_who_is_in_the_area_and_where() -> None:
    places = somewhere(25, 100)
    world = joined_world(places, 30.0)
    world.pass_seconds(10)
    for node, (x, y) in enumerate(places):
        known = dict(peer_of(world, node).known(world.simulation.now))
        near = {
            other: (ox, oy, 0.0)
            for other, (ox, oy) in enumerate(places)
            if other != node and (x - ox) ** 2 + (y - oy) ** 2 <= 900
        }
        assert known.keys() == near.keys()
        for other, place in near.items():
            assert known[other] == pytest.approx(place, abs=1e-4)


def test_the_third_dimension_counts() -> None:
    world = BubbleStormWorld()
    for node, z in enumerate([0.0, 5.0, 50.0]):
        world.join(node, ball(0.0, 0.0, z, 10.0))
    world.pass_seconds(40)
    assert [node for node, _ in peer_of(world, 0).known(world.simulation.now)] == [1]
    assert list(peer_of(world, 2).known(world.simulation.now)) == []


def test_whoever_sees_farther_receives_from_those_who_do_not_see_it() -> None:
    world = BubbleStormWorld()
    world.join(0, disc(0, 0, 100))
    world.join(1, disc(50, 0, 10))
    world.pass_seconds(40)
    world.obey(1, Publish(7, point(50, 0)))
    world.pass_seconds(1)
    assert delivered(world.trace().table("deliveries")) == [(7, 0)]
    assert [n for n, _ in peer_of(world, 0).known(world.simulation.now)] == [1]
    assert list(peer_of(world, 1).known(world.simulation.now)) == []


def test_publications_elsewhere_and_to_areas_meet_the_subscriptions_stored_on_the_way() -> None:
    """By an instant bubble: nearly all at λ = 2, filters and channels included."""
    places = somewhere(40, 300)
    world = joined_world(places, 20.0, **{"lambda": 2.0, "interests": "whole", "cache_s": 10.0})
    world.join(90)  # wants nothing, and is nowhere
    world.obey(3, Subscribe(77, Moving(disc(0, 0, 400)), Filter("level > 3")))
    world.pass_seconds(15)
    rng = Random(2)
    for number in range(60):
        x, y = rng.uniform(0, 300), rng.uniform(0, 300)
        shape = (point(x, y), disc(x, y, 30), box(x, y, 20, 60))[number % 3]
        publisher = 90 if number % 4 == 0 else number % 40
        world.obey(publisher, Publish(number, shape, attributes={"level": number % 6}))
        world.pass_seconds(0.1)
    world.pass_seconds(2)
    trace = world.trace()
    received = delivered(trace.table("deliveries"))
    should = expected(trace.table("interests"), trace.table("publications"))
    assert len(should) > 60
    assert set(received) <= should
    assert len(set(received)) == len(received)
    assert len(received) > 0.95 * len(should)


def test_commands_are_executed_and_invalid_ones_noted() -> None:
    world = BubbleStormWorld()
    world.join(1, disc(0, 0, 10))
    world.join(2)
    world.obey(
        2,
        Subscribe(7, Formula("x >= -3, x <= 3 + t, y >= -2, y <= 2")),
        Subscribe(8, "x > v, x < 9, y > 0, y < 9", None, "", False, {"v": 5.0}),
    )
    world.pass_seconds(30)
    world.obey(1, Publish(1, point(0.5, 0.5)))
    world.pass_seconds(1)
    world.obey(2, Tune(8, {"v": -1.0}), Unsubscribe(7), Tune(9, {}), Move(9, Moving(disc(0, 0, 1))))
    world.pass_seconds(1)
    world.obey(1, Publish(2, point(0.5, 0.5)))
    world.pass_seconds(1)
    world.obey(2, Leave())
    world.pass_seconds(25)
    assert 2 not in world.simulation.nodes
    assert_delivered_exactly(world, at_least=2)


# Watching the area of interest (3.3.4).


def pair() -> tuple[BubbleStormWorld, BubbleStormPeer]:
    world = joined_world([(0.0, 0.0), (5.0, 0.0), (500.0, 0.0)])
    world.pass_seconds(5)
    peer = peer_of(world, 0)
    assert list(peer.connections.open) == [1]
    return world, peer


def step_to(world: BubbleStormWorld, node: int, x: float) -> None:
    world.obey(node, Move(node * 1000, Moving(disc(x, 0, 10))))


def test_who_goes_outside_is_known_for_a_while_and_then_let_go() -> None:
    world, peer = pair()
    step_to(world, 1, 40.0)
    world.pass_seconds(3)
    assert peer.connections.open[1].soft is not None
    assert [node for node, _ in peer.known(world.simulation.now)] == [1]
    world.pass_seconds(6)
    assert peer.connections.open == {}
    assert peer_of(world, 1).connections.open == {}


def test_who_comes_back_in_time_keeps_its_connection() -> None:
    world, peer = pair()
    connection = peer.connections.open[1]
    step_to(world, 1, 40.0)
    world.pass_seconds(3)
    step_to(world, 1, 5.0)
    world.pass_seconds(10)
    assert peer.connections.open[1] is connection
    assert connection.soft is None


def test_a_silent_connection_is_closed() -> None:
    world, peer = pair()
    world.simulation.crash(1)
    world.pass_seconds(8)
    assert peer.connections.open == {}
    assert peer.connections.attempted == {} or list(peer.connections.attempted) == [1]


def test_a_connection_that_sends_invalid_packets_is_closed() -> None:
    world, peer = pair()
    other = pack_position(MessageType.POSITION, 2, (0.0, 0.0, 0.0), 1.0, world.simulation.now)
    assert peer.receive(world.simulation.now, 1, messages.Position(other)) == [Note("refused", 1)]
    assert peer.connections.open[1].hard
    world.pass_seconds(1.01)
    assert 1 not in peer.connections.open or peer.connections.open[1].last_received > 0


def test_whoever_is_named_twice_is_contacted_once_and_later_again() -> None:
    world, peer = pair()
    now, token = world.simulation.now, next(iter(peer.tokens))
    reply = messages.Reply(token, pack_reply(2, [0, 1, 8, 9]))
    first = peer.receive(now, 2, reply)
    assert [effect.to for effect in first if isinstance(effect, SendMany)] == [(8, 9)]
    assert peer.receive(now, 2, reply) == []
    world.pass_seconds(7)
    assert 8 not in peer.connections.attempted, "an attempt without answer expires"


def test_a_cached_subscription_times_out() -> None:
    world = joined_world(somewhere(6, 1000), 1.0)
    world.pass_seconds(2)
    world.simulation.crash(5)
    assert any(5 in peer.cache.entries for peer in world.peers())
    world.pass_seconds(7)
    assert not any(5 in peer.cache.entries for peer in world.peers())


def test_a_managed_bubble_is_held_by_as_many_as_it_should_and_vanishes_with_its_owner() -> None:
    world = joined_world(somewhere(40, 1000), 1.0, bubble="managed")
    world.pass_seconds(30)
    owner = peer_of(world, 0)
    holders = [peer for peer in world.peers() if 0 in peer.cache.entries]
    assert len(holders) >= owner.overlay.holders - 2
    for peer in holders[:3]:
        world.simulation.crash(peer.id)
    world.pass_seconds(25)
    again = [peer for peer in world.peers() if 0 in peer.cache.entries]
    assert len(again) >= owner.overlay.holders - 2
    world.leave(0)
    world.pass_seconds(0.2)
    assert not any(0 in peer.cache.entries for peer in world.peers())


# Walkers, and bad times.


def test_walkers_receive_most_of_what_they_should_and_nothing_else() -> None:
    trace = run(40, 12.0, size=400.0, radius=100.0, rate=5.0)
    received = delivered(trace.table("deliveries"))
    should = expected(trace.table("interests"), trace.table("publications"))
    begun = min(row["t"] for row in trace.table("publications").to_pylist()) + 4 * SECOND
    later = {
        row["publication"] for row in trace.table("publications").to_pylist() if row["t"] > begun
    }
    settled = {pair for pair in should if pair[0] in later}
    assert set(received) <= should
    assert len(settled & set(received)) > 0.85 * len(settled), (
        "a walker is found within a round or two of its coming"
    )


def test_with_faults_nothing_is_delivered_twice_or_unwanted() -> None:
    trace = run(
        30, 10.0, size=300.0, radius=100.0, loss=0.1, duplicate=0.1, reorder=0.1, crash=0.01,
        restart_s=3.0,
    )  # fmt: skip
    received = delivered(trace.table("deliveries"))
    should = expected(trace.table("interests"), trace.table("publications"))
    assert len(received) == len(set(received))
    assert set(received) <= should
    assert len(received) > 0.5 * len(should)
