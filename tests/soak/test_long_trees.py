"""DR-trees of a thousand and more, and ten times as much garbage: `make soak`."""

from random import Random

import pytest

from nearcast.protocols.drtree.strategies import STRATEGIES
from nearcast.space.rtree import SPLITS
from support.drtree_worlds import assert_delivered_exactly, faults, run, settled_tree

pytestmark = pytest.mark.soak


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("heat", ["cold", "warm", "hot", "burning"])
@pytest.mark.parametrize("dims", [2, 3])
def test_two_thousand_peers_receive_exactly(
    strategy: str, split: str, heat: str, dims: int
) -> None:
    world, trace = run(
        nodes=2000, seconds=0.5, sample_ms=0, strategy=strategy, split=split, hotspots=heat,
        dims=dims, dimensions="x,y,z"[: 2 * dims - 1],
    )  # fmt: skip
    assert faults(world.simulation) == []
    assert_delivered_exactly(trace)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("seed", range(5))
def test_a_thousand_peers_outlive_three_hundred(strategy: str, seed: int) -> None:
    world = settled_tree(1000, seed=seed, strategy=strategy, check_ms=1000.0)
    for node in Random(seed).sample(range(1000), 300):
        world.simulation.crash(node)
    world.settle(40)
