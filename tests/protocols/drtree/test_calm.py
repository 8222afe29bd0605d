"""Without faults everyone receives what touches their area, once, by every routing strategy."""

import pytest

from nearcast.model.commands import Publish
from nearcast.protocols.drtree.strategies import STRATEGIES
from nearcast.space.rtree import SPLITS, volume
from nearcast.space.shapes import box, point
from support.brute_force import delivered, expected
from support.drtree_worlds import assert_delivered_exactly, faults, members, run, settled_tree
from support.examples import crossed

HEATS = ("cold", "warm", "hot", "burning")


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("split", SPLITS)
def test_every_strategy_on_every_tree_reaches_exactly_who_wants_it(
    strategy: str, split: str
) -> None:
    heat = HEATS[(len(strategy) + len(split)) % 4]
    world, trace = run(nodes=50, seconds=2.0, strategy=strategy, split=split, hotspots=heat)
    assert faults(world.simulation) == []
    assert_delivered_exactly(trace)


@crossed("strategy, heat", STRATEGIES, HEATS)
def test_hotspots_of_every_heat_are_delivered_exactly(strategy: str, heat: str) -> None:
    world, trace = run(nodes=80, seconds=1.5, strategy=strategy, hotspots=heat, seed=2)
    assert faults(world.simulation) == []
    assert_delivered_exactly(trace)


@crossed("strategy, dimensions", STRATEGIES, ["x,y", "x,y,z", "z"])
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
    assert_delivered_exactly(trace)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("nodes", [1, 2, 3, 8, 9, 10])
def test_small_trees_deliver_exactly(strategy: str, nodes: int) -> None:
    world, trace = run(nodes=nodes, strategy=strategy, rate=5.0, size=60.0, seconds=2.0)
    assert faults(world.simulation) == []
    assert_delivered_exactly(trace, at_least=9)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_an_area_can_be_published_to(strategy: str) -> None:
    world = settled_tree(50, strategy=strategy)
    for number in range(60):
        shape = box(7.0 * number, 400 - 6.0 * number, 3.0 * (number % 9), 15.0)
        world.simulation.obey(number % 50, Publish(number, shape if number % 3 else point(90, 80)))
        world.pass_periods(0.01)
    world.pass_periods(1)
    world.simulation.recorder.close()
    assert_delivered_exactly(world.memory)


def test_the_tree_of_the_paper_has_four_levels_above_the_leaves() -> None:
    """[DRtree] VI.A: the RTree height is equal to 4 with 1,024 peers."""
    world, trace = run(nodes=1024, seconds=0.2, sample_ms=0)
    levels = [
        member.top for node in world.simulation.nodes.values() for member in node.members.values()
    ]
    assert max(levels) == 4
    assert_delivered_exactly(trace)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_nobody_receives_its_own_without_echo_and_hops_count_messages(strategy: str) -> None:
    world = settled_tree(30, strategy=strategy)
    for number in range(30):
        world.simulation.obey(number, Publish(number, point(250, 250)))
    world.pass_periods(1)
    world.simulation.recorder.close()
    rows = world.memory.table("deliveries").to_pylist()
    made = {row["publication"]: row["t"] for row in world.memory.table("publications").to_pylist()}
    assert rows
    for row in rows:
        assert row["t"] - made[row["publication"]] == 50_000 * row["hops"]
    assert set(delivered(world.memory.table("deliveries"))) == expected(
        world.memory.table("interests"), world.memory.table("publications")
    )


def test_peers_that_join_at_once_make_no_worse_a_tree_than_slow_ones() -> None:
    """Requests that a split overtakes go on to the other half; else nodes cover each other's."""

    def covered(latency_ms: float) -> float:
        """By the nodes of level 1, in units of the world."""
        world, _ = run(nodes=1000, seconds=0.1, size=1000.0, latency_ms=latency_ms, sample_ms=0.0)
        found = members(world.simulation).values()
        return sum(volume(m.levels[1].box).volume for m in found if m.top) / 1000.0**2

    assert covered(latency_ms=50.0) < 1.5 * covered(latency_ms=1.0)


def test_members_that_join_all_at_once_make_one_legal_tree_that_is_less_well_clustered() -> None:
    areas = []
    for queue in (1.0, 0.0):
        world, trace = run(nodes=300, seconds=1.0, hotspots="cold", join_queue=queue)
        assert faults(world.simulation) == []
        assert_delivered_exactly(trace)
        found = members(world.simulation).values()
        areas.append(sum(volume(m.levels[1].box)[1] for m in found if m.top > 0))
    assert areas[1] > areas[0]


def test_a_queue_that_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="join_queue must be between 0 and 1,000"):
        run(nodes=2, join_queue=-1.0)


def test_all_strategies_have_the_same_tree_if_jitter_begins_with_the_workload() -> None:
    def tree(strategy: str, *, set_up_jitter: bool) -> dict[int, tuple[int, int | None]]:
        world, _ = run(
            nodes=150, seconds=1.0, strategy=strategy, jitter_ms=5.0, set_up_jitter=set_up_jitter
        )
        return {a: (m.top, m.parent) for a, m in members(world.simulation).items()}

    trees = [tree(strategy, set_up_jitter=False) for strategy in STRATEGIES]
    assert all(other == trees[0] for other in trees)
    jittered = [tree(strategy, set_up_jitter=True) for strategy in STRATEGIES]
    assert any(other != jittered[0] for other in jittered)
