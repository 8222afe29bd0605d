"""Several nodes as one service, each a process of its own: judged by their merged traces."""

import asyncio
import sys
from pathlib import Path
from random import Random

import pytest

from nearcast.trace.reader import read
from nearcast.trace.validate import validate
from support.cluster_processes import (
    Cluster,
    Walker,
    check,
    judge,
    kill_one,
    leave,
    stand_still_now_and_then,
    walkers,
)


def facts(cluster: Cluster, fact: str) -> list[int]:
    """How often each node has noted it."""
    notes = (read(trace, "notes").column("fact").to_pylist() for trace in cluster.traces)
    return [found.count(fact) for found in notes]


def test_in_a_calm_cluster_every_client_receives_everything_once_and_in_order(
    tmp_path: Path,
) -> None:
    async def story() -> tuple[Cluster, list[Walker]]:
        async with Cluster(tmp_path, 3) as cluster:
            crowd = await walkers(cluster, 60)
            is_valid = [walker.live(8.0, 4.0, moves=n % 3 > 0) for n, walker in enumerate(crowd)]
            await asyncio.gather(*is_valid)
            await leave(crowd)
        return cluster, crowd

    cluster, crowd = asyncio.run(story())
    assert check(cluster, crowd, tmp_path).expected > 1_000
    assert sum(facts(cluster, "arrived")) == sum(facts(cluster, "departed")) > 10
    assert all(node.complaints() == [] for node in cluster.nodes)
    assert validate(tmp_path / "merged").problems == ()


def test_nodes_that_stand_still_for_a_moment_lose_nothing_and_keep_the_order(
    tmp_path: Path,
) -> None:
    async def story() -> tuple[Cluster, list[Walker]]:
        async with Cluster(tmp_path, 3) as cluster:
            crowd = await walkers(cluster, 60)
            halts = asyncio.create_task(stand_still_now_and_then(cluster, Random(11)))
            await asyncio.gather(*(walker.live(6.0, 10.0) for walker in crowd))
            halts.cancel()
            await asyncio.gather(halts, return_exceptions=True)
            await leave(crowd)
        return cluster, crowd

    cluster, crowd = asyncio.run(story())
    assert check(cluster, crowd, tmp_path).expected > 1_000


def test_after_a_kill_all_are_served_again_and_nothing_is_repeated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    killed = asyncio.run(kill_one(tmp_path, 3, 60, 14.0))
    with capsys.disabled():
        sys.stdout.write(f"\n{killed.told()}\n")
    killed.check(served_within=5.0, before=4.0)
    assert validate(tmp_path / "merged").problems == ()


def test_a_node_that_is_asked_to_stop_hands_over_all_it_has(tmp_path: Path) -> None:
    async def story() -> tuple[Cluster, list[Walker]]:
        async with Cluster(tmp_path, 3) as cluster:
            crowd = await walkers(cluster, 30)
            walks = [asyncio.create_task(walker.live(8.0, 4.0)) for walker in crowd]
            await asyncio.sleep(3.0)
            cluster.nodes[1].stop()
            assert await cluster.nodes[1].stopped() == 0
            await asyncio.gather(*walks)
            await leave(crowd)
        return cluster, crowd

    cluster, crowd = asyncio.run(story())
    verdict = judge(cluster.traces, tmp_path / "merged")
    assert verdict.missed == []
    assert verdict.duplicates == 0
    assert [walker.lost for walker in crowd if walker.lost] == []
    assert facts(cluster, "left")[1] == 0, "nobody was sent away"
