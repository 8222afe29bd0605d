"""A cluster for longer and with more of everything: four nodes, five hundred clients, a kill."""

import asyncio
import sys
from pathlib import Path
from random import Random

import pytest

from support.cluster_processes import (
    Cluster,
    Walker,
    check,
    kill_one,
    leave,
    stand_still_now_and_then,
    walkers,
)

pytestmark = pytest.mark.soak


def test_four_nodes_five_hundred_clients_and_a_kill_in_the_middle(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    killed = asyncio.run(kill_one(tmp_path, 4, 500, 40.0, rate=1.0))
    with capsys.disabled():
        sys.stdout.write(f"\n{killed.told()}\n")
    assert max(killed.away()) < 5.0, "an aim for a quiet machine with two cores"
    killed.check(served_within=5.0, before=4.0)


@pytest.mark.parametrize("nodes", [2, 3, 5])
def test_a_calm_minute_in_which_nothing_is_missed(tmp_path: Path, nodes: int) -> None:
    async def story() -> tuple[Cluster, list[Walker]]:
        async with Cluster(tmp_path, nodes) as cluster:
            crowd = await walkers(cluster, 100)
            await asyncio.gather(*(walker.live(60.0, 3.0) for walker in crowd))
            await leave(crowd)
        return cluster, crowd

    cluster, crowd = asyncio.run(story())
    check(cluster, crowd, tmp_path)


@pytest.mark.parametrize("seed", range(10))
def test_nodes_that_stall_for_a_moment_lose_nothing_for_others(tmp_path: Path, seed: int) -> None:
    async def story() -> tuple[Cluster, list[Walker]]:
        async with Cluster(tmp_path, 4) as cluster:
            crowd = await walkers(cluster, 80)
            halts = asyncio.create_task(stand_still_now_and_then(cluster, Random(seed)))
            await asyncio.gather(*(walker.live(20.0, 8.0) for walker in crowd))
            halts.cancel()
            await asyncio.gather(halts, return_exceptions=True)
            await leave(crowd)
        return cluster, crowd

    check(*asyncio.run(story()), tmp_path)
