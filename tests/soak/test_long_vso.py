"""VSO in worse weather and for longer: `make soak`."""

from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nearcast.model.commands import Publish
from nearcast.sim.network import ConstantDelay
from nearcast.space.motion import SECOND, Moving
from nearcast.space.shapes import box, disc, point
from support.vso_worlds import (
    BAD,
    EAGER,
    LATENCY,
    VsoWorld,
    consistency,
    join_many,
    lasting_violations,
    plausible_messages,
    run,
)

pytestmark = pytest.mark.soak


@pytest.mark.parametrize("seed", [*range(8, 20), *range(100, 1100)])
def test_a_thousand_seeds_of_bad_networks_heal(seed: int) -> None:
    rng = Random(seed)
    nodes = rng.choice([12, 24, 40])
    extra = rng.choice([{}, {"limit": 6.0, "overload_ms": 1000.0}, {"matchers": 9}])
    world, _ = run(nodes=nodes, seconds=12.0, seed=seed, rate=1.0, sample_ms=0, **BAD, **extra)
    simulation = world.simulation
    simulation.network = ConstantDelay(LATENCY)
    simulation.run(simulation.now + 30 * SECOND)
    assert lasting_violations(simulation, 6) == []


@pytest.mark.parametrize("seed", range(20))
def test_two_hundred_standing_clients_receive_exactly(seed: int) -> None:
    world = VsoWorld(seed=seed, **EAGER)
    rng = world.rng
    for node in range(200):
        x, y = rng.uniform(0, 768), rng.uniform(0, 768)
        world.join(node, Moving(disc(x, y, 60) if node % 2 else box(x, y, 60, 30)))
    world.pass_seconds(4)
    for number in range(1000):
        x, y = rng.uniform(0, 768), rng.uniform(0, 768)
        shape = rng.choice([point(x, y), disc(x, y, 80), box(x, y, 200, 30)])
        world.obey(number % 200, Publish(10**9 + number, shape))
        world.pass_seconds(0.05)
    world.pass_seconds(2)
    assert len(world.sites) > 20
    world.assert_delivered_exactly(at_least=10_000)


@pytest.mark.parametrize("nodes", [50, 100, 200])
def test_walkers_know_those_around_them(nodes: int) -> None:
    world, memory = run(nodes=nodes, seconds=60.0, rate=10.0, fault_free=True)
    assert consistency(memory, 192.0, after=world.begins + 2 * SECOND) >= 0.99


@settings(max_examples=500, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_no_message_breaks_a_member(data: st.DataObject) -> None:
    world = VsoWorld(fault_free=False, **EAGER)
    world.simulation.checkers = []
    join_many(world, 12)
    world.pass_seconds(data.draw(st.sampled_from([1, 5, 15])))
    for _ in range(data.draw(st.integers(1, 40))):
        to, sender, message = data.draw(plausible_messages(world))
        member = world.simulation.nodes.get(to)
        if member is not None:
            world.simulation._apply(member, member.receive(world.simulation.now, sender, message))
        world.pass_seconds(data.draw(st.sampled_from([0.0, 0.05, 1.0])))
    world.pass_seconds(10)
