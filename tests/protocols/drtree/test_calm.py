"""In a calm network everyone hears what touches their area, once, whatever the way it takes."""

import pytest

from nearcast.model.commands import Publish
from nearcast.protocols.drtree.strategies import STRATEGIES
from nearcast.space.rtree import SPLITS, volume
from nearcast.space.shapes import box, point
from support.brute_force import delivered, expected
from support.drtree_worlds import assert_heard_exactly, faults, grown, members, run

HEATS = ("cold", "warm", "hot", "burning")


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("split", SPLITS)
def test_every_strategy_on_every_tree_reaches_exactly_who_wants_it(
    strategy: str, split: str
) -> None:
    heat = HEATS[(len(strategy) + len(split)) % 4]
    world, trace = run(nodes=50, seconds=2.0, strategy=strategy, split=split, hotspots=heat)
    assert faults(world.simulation) == []
    assert_heard_exactly(trace)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("heat", HEATS)
def test_hotspots_of_every_heat_are_heard_exactly(strategy: str, heat: str) -> None:
    world, trace = run(nodes=80, seconds=1.5, strategy=strategy, hotspots=heat, seed=2)
    assert faults(world.simulation) == []
    assert_heard_exactly(trace)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("dimensions", ["x,y", "x,y,z", "z"])
def test_space_may_have_three_dimensions_and_the_tree_any_of_them(
    strategy: str, dimensions: str
) -> None:
    world, trace = run(
        nodes=30,
        seconds=2.0,
        strategy=strategy,
        dimensions=dimensions,
        dims=3,
        hotspots="burning",
        spread=10.0,
    )
    assert faults(world.simulation) == []
    assert_heard_exactly(trace)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("nodes", [1, 2, 3, 8, 9, 10])
def test_trees_of_a_few_are_trees(strategy: str, nodes: int) -> None:
    world, trace = run(nodes=nodes, strategy=strategy, rate=5.0, size=60.0, seconds=2.0)
    assert faults(world.simulation) == []
    assert_heard_exactly(trace, at_least=9)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_an_area_can_be_published_to(strategy: str) -> None:
    grove = grown(50, strategy=strategy)
    for number in range(60):
        shape = box(7.0 * number, 400 - 6.0 * number, 3.0 * (number % 9), 15.0)
        grove.simulation.obey(number % 50, Publish(number, shape if number % 3 else point(90, 80)))
        grove.pass_periods(0.01)
    grove.pass_periods(1)
    grove.simulation.recorder.close()
    assert_heard_exactly(grove.memory)


def test_the_tree_of_the_paper_has_four_levels_above_the_leaves() -> None:
    """[DRtree] VI.A: the RTree height is equal to 4 with 1,024 peers."""
    world, trace = run(nodes=1024, seconds=0.2, sample_ms=0)
    levels = [
        member.top for node in world.simulation.nodes.values() for member in node.members.values()
    ]
    assert max(levels) == 4
    assert_heard_exactly(trace)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_nobody_hears_itself_without_echo_and_hops_count_messages(strategy: str) -> None:
    grove = grown(30, strategy=strategy)
    for number in range(30):
        grove.simulation.obey(number, Publish(number, point(250, 250)))
    grove.pass_periods(1)
    grove.simulation.recorder.close()
    rows = grove.memory.table("deliveries").to_pylist()
    said = {row["publication"]: row["t"] for row in grove.memory.table("publications").to_pylist()}
    assert rows
    for row in rows:
        assert row["t"] - said[row["publication"]] == 50_000 * row["hops"]
    assert set(delivered(grove.memory.table("deliveries"))) == expected(
        grove.memory.table("interests"), grove.memory.table("publications")
    )


def test_a_crowd_that_joins_at_once_makes_no_worse_a_tree_than_a_slow_one() -> None:
    """Requests that a split overtakes go on to the other half; else nodes cover each other's."""

    def covered(latency_ms: float) -> float:
        """By the nodes of level 1, in units of the world."""
        world, _ = run(nodes=1000, seconds=0.1, size=1000.0, latency_ms=latency_ms, sample_ms=0.0)
        found = members(world.simulation).values()
        return sum(volume(m.levels[1].box).volume for m in found if m.top) / 1000.0**2

    assert covered(latency_ms=50.0) < 1.5 * covered(latency_ms=1.0)
