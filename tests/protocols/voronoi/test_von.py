"""VON: exact delivery without faults, known walkers, and recovery from faults."""

from math import dist
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.model.commands import Leave, Move, Publish, Subscribe, Tune, Unsubscribe
from nearcast.model.subscription import Formula
from nearcast.protocols.voronoi.von import CASTS, CODEC, Parameters
from nearcast.space.earth_shapes import earth_disc
from nearcast.space.motion import Moving
from nearcast.space.shapes import EVERYWHERE, ball, box, cuboid, disc, point
from support.brute_force import delivered, expected
from support.examples import choices, examples, seeds
from support.message_strategies import messages
from support.peer_worlds import PeerWorld, assert_delivered_exactly, recall, run

STILL = {"motion": "steps", "speed": 1e-6}  # a step shorter than any distance that matters
WAYS = pytest.mark.parametrize("cast", CASTS)


@WAYS
@choices("nodes", [1, 2, 3, 5, 20], [60])
def test_peers_that_stand_still_receive_exactly_what_is_published_near_them(
    nodes: int, cast: str
) -> None:
    trace = run(
        "von",
        "clustering",
        nodes,
        1.5,
        seed=nodes,
        cast=cast,
        rate=2.0,
        radius=250.0,
        sample_ms=0,
        **STILL,
    )
    assert_delivered_exactly(trace, at_least=0 if nodes < 5 else 20)


@choices("cast", ["vorocast"], ["direct"])
def test_three_hundred_peers_that_stand_still_receive_exactly_what_they_want(cast: str) -> None:
    world, rng = PeerWorld("von", cast=cast), Random(6)
    for node in range(300):
        world.join(node, disc(rng.uniform(0, 768), rng.uniform(0, 768), rng.uniform(0, 100)))
    world.pass_seconds(5)
    for node in range(0, 300, 2):
        place = world.simulation.nodes[node].mesh.me.place
        world.obey(node, Publish(node, point(*place)))
    world.pass_seconds(3)
    assert_delivered_exactly(world.trace(), at_least=500)


@WAYS
@seeds([1], [2, 3])
def test_what_is_published_elsewhere_or_to_an_area_is_delivered_exactly(
    cast: str, seed: int
) -> None:
    world, rng = PeerWorld("von", cast=cast), Random(seed)

    def somewhere() -> tuple[float, float]:
        return rng.uniform(-50, 450), rng.uniform(-50, 450)

    for node in range(50):
        here = disc(*somewhere(), rng.uniform(0, 90))
        other = box(*somewhere(), rng.uniform(0, 60), rng.uniform(0, 60))
        world.join(node, *[here, other][: 1 + node % 2], echo=node % 3 == 0)
    world.join(90)  # wants nothing, and publishes from outside the mesh
    world.join(91, EVERYWHERE)
    world.pass_seconds(6)
    for number in range(90):
        shape = (
            point(*somewhere()),
            disc(*somewhere(), rng.uniform(0, 150)),
            box(*somewhere(), rng.uniform(0, 200), rng.uniform(0, 20)),
        )[number % 3]
        world.obey(90 if number % 10 == 0 else number % 50, Publish(number, shape))
        world.pass_seconds(0.05)
    world.pass_seconds(5)
    assert_delivered_exactly(world.trace(), at_least=300)


@WAYS
def test_the_third_dimension_is_a_further_condition(cast: str) -> None:
    world, rng = PeerWorld("von", cast=cast), Random(8)
    for node in range(40):
        x, y, z = (rng.uniform(0, 300) for _ in range(3))
        area = ball(x, y, z, 120) if node % 2 else cuboid(x, y, z, 80, 80, 80)
        world.join(node, area)
    world.pass_seconds(5)
    for number in range(60):
        x, y, z = (rng.uniform(0, 300) for _ in range(3))
        shape = cuboid(x, y, z, 20, 50, 30) if number % 2 else point(x, y, z)
        world.obey(number % 40, Publish(number, shape))
    world.pass_seconds(5)
    assert_delivered_exactly(world.trace())


@WAYS
def test_peers_at_one_place_receive_from_each_other_and_what_is_published_there(cast: str) -> None:
    world = PeerWorld("von", cast=cast)
    for node in range(6):
        world.join(node, disc(10.0, 10.0, 5.0))
    world.join(6, disc(14.0, 10.0, 5.0))
    world.join(7, disc(40.0, 10.0, 1.0))
    world.pass_seconds(5)
    for node in range(8):
        world.obey(node, Publish(node, point(10.0, 10.0)), Publish(50 + node, disc(12, 10, 3)))
    world.pass_seconds(3)
    assert_delivered_exactly(world.trace())


@WAYS
def test_peers_whose_places_differ_by_rounding_alone_receive_what_is_published_beside_them(
    cast: str,
) -> None:
    """As at a pole, where every longitude is the same place."""
    world = PeerWorld("von", cast=cast)
    areas = [earth_disc(lon, 90.0, 50_000) for lon in (10.56, 9.68, 9.22)]
    assert 0 < dist((areas[0].x, areas[0].y), (areas[1].x, areas[1].y)) < 1e-9
    others = [earth_disc(10, 89.857, 50_000), earth_disc(9.5, 89.34, 50_000)]
    for node, area in enumerate([*areas, *others]):
        world.join(node, area)
    world.pass_seconds(5)
    for number in range(30):
        where = earth_disc(10 + number / 30, 89.91 + number / 1000, 5000)
        world.obey(number % 5, Publish(number, where))
    world.pass_seconds(3)
    assert_delivered_exactly(world.trace(), at_least=90)


def test_commands_are_executed_and_invalid_ones_noted() -> None:
    world = PeerWorld("von")
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
    world.pass_seconds(1)
    assert world.simulation.nodes[2].mesh.me is None
    assert world.simulation.nodes[1].mesh.neighbours() == {}
    world.obey(2, Publish(5, point(1, 1)))
    world.pass_seconds(1)
    world.obey(2, Leave())
    world.pass_seconds(1)
    trace = world.trace()
    received = delivered(trace.table("deliveries"))
    assert sorted(received) == [(1, 7), (2, 8), (4, 8), (5, 1000)]
    assert set(received) == expected(trace.table("interests"), trace.table("publications"))


@pytest.mark.parametrize("wrong", [{"cast": "x"}, {"step_ms": 0}, {"room": -1}, {"misses": 1}])
def test_wrong_parameters_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Parameters(**wrong)


# Walking.


@pytest.mark.parametrize(
    ("nodes", "seconds"), [(50, 5.0), pytest.param(100, 3.0, marks=pytest.mark.soak)]
)
def test_walkers_know_nearly_all_they_should_and_their_publications_arrive(
    nodes: int, seconds: float
) -> None:
    """[VSO] V: average discovery consistency is always above 99 %."""
    trace = run("von", "clustering", nodes, seconds, latency_ms=100.0)
    assert recall(trace, 192.0) >= 0.99
    received = set(delivered(trace.table("deliveries")))
    should = expected(trace.table("interests"), trace.table("publications"))
    assert received <= should
    assert len(received) >= 0.995 * len(should)


def test_vorocast_among_walkers_reaches_nearly_all() -> None:
    trace = run("von", "clustering", 50, 4.0, latency_ms=100.0, cast="vorocast")
    received = delivered(trace.table("deliveries"))
    should = expected(trace.table("interests"), trace.table("publications"))
    assert set(received) <= should
    assert len(received) == len(set(received))
    assert len(received) >= 0.97 * len(should)


# Weather.


@WAYS
def test_with_loss_and_crashes_most_is_delivered_and_nothing_twice_or_unwanted(cast: str) -> None:
    trace = run(
        "von",
        "clustering",
        40,
        6.0,
        cast=cast,
        loss=0.1,
        duplicate=0.1,
        reorder=0.1,
        crash=0.01,
        restart_s=3.0,
    )
    received = delivered(trace.table("deliveries"))
    should = expected(trace.table("interests"), trace.table("publications"))
    assert len(received) == len(set(received))
    assert set(received) <= should
    assert len(received) > 0.75 * len(should)
    assert recall(trace, 192.0) > 0.95


def test_after_crashes_all_is_delivered_again() -> None:
    world, rng = PeerWorld("von"), Random(4)
    for node in range(60):
        world.join(node, disc(rng.uniform(0, 400), rng.uniform(0, 400), 80))
    world.pass_seconds(5)
    for node in rng.sample(range(60), 15):
        world.simulation.crash(node)
    world.pass_seconds(15)
    for number, peer in enumerate(list(world.peers())):
        assert peer.mesh.me is not None
        world.obey(peer.id, Publish(number, point(*peer.mesh.me.place)))
        world.obey(peer.id, Publish(100 + number, disc(rng.uniform(0, 400), 200, 30)))
    world.pass_seconds(3)
    assert_delivered_exactly(world.trace(), at_least=100)


def test_a_contact_that_has_died_is_replaced_and_a_lone_peer_begins_anew() -> None:
    world = PeerWorld("von")
    world.join(1, disc(0, 0, 10))
    world.pass_seconds(2)
    world.simulation.crash(1)
    peer = world.join(2, disc(0, 0, 10))
    world.pass_seconds(5)
    assert peer.mesh.joined
    other = world.join(3, disc(5, 0, 10))
    world.pass_seconds(3)
    assert other.mesh.neighbours() == {2: (0.0, 0.0)}


@given(
    st.lists(st.tuples(st.integers(0, 4), st.one_of(*map(messages, CODEC.messages))), max_size=6)
)
@examples(60)
def test_no_message_in_any_state_breaks_a_peer(messages: list[tuple[int, Any]]) -> None:
    world = PeerWorld("von", shortcuts=1)
    peers = [world.join(0), world.join(1, disc(0, 0, 10)), world.join(2, disc(5, 5, 10))]
    for sender, message in messages:
        for peer in peers:
            world.simulation._apply(peer, peer.receive(world.simulation.now, sender, message))
            if hasattr(message, "site"):
                by = message.site.id
                world.simulation._apply(peer, peer.receive(world.simulation.now, by, message))
        world.pass_seconds(0.4)
    world.obey(1, Publish(1, disc(0, 0, 9)))
    world.pass_seconds(1)
    for peer in peers:
        list(peer.known(world.simulation.now))
    world.obey(1, Leave())
