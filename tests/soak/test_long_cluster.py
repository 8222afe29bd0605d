"""A cluster for longer and with more of everything: four nodes, five hundred clients, a kill."""

import asyncio
import sys
from pathlib import Path

import pytest

from several_nodes import Cluster, Walker, judge, kill_one, leave, walkers

pytestmark = pytest.mark.soak


def test_four_nodes_five_hundred_clients_and_a_kill_in_the_middle(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    killed = asyncio.run(kill_one(tmp_path, 4, 500, 40.0, rate=1.0))
    with capsys.disabled():
        sys.stdout.write(f"\n{killed.told()}\n")
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
    verdict = judge(cluster.traces, tmp_path / "merged")
    assert verdict.missed == []
    assert verdict.spurious == []
    assert verdict.duplicates == 0
    assert [walker.repeated() for walker in crowd if walker.repeated()] == []
    assert [walker.out_of_order() for walker in crowd if walker.out_of_order()] == []
