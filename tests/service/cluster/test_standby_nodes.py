"""Real nodes that stand by: called in when clients come, and standing by again when they leave."""

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import nearcast
from nearcast.cli.nodes import ask_node
from nearcast.trace.reader import read
from nearcast.trace.validate import validate
from support.cluster_processes import Cluster, Walker, check, leave
from support.patience import PATIENCE_S

# The CPU share of a node depends on the machine, so it does not count here.
SETTINGS = """
[cluster]
capacity = 12
cpu_limit = 0.0
high_s = 1.0
low_s = 2.0
"""


def states(cluster: Cluster) -> list[str]:
    """What the first node says of all: its own state first."""
    members = ask_node(cluster.nodes[0].url, "")["cluster"]["members"]
    found = {one["url"]: one["state"] for one in members}
    return [found.get(node.url, "unknown") for node in cluster.nodes]


async def until(cluster: Cluster, condition: Callable[[list[str]], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition(await asyncio.to_thread(states, cluster)):
            await asyncio.sleep(0.1)


async def walkers(cluster: Cluster, numbers: range) -> list[Walker]:
    """All connect to the first node, which hands them over."""
    url, found = cluster.nodes[0].url, []
    for number in numbers:
        client = await nearcast.connect(url, name=f"w{number}").open()
        walker = Walker(client, number, url)
        await walker.begin()
        found.append(walker)
    return found


async def live_until(walker: Walker, end: asyncio.Event) -> None:
    while not end.is_set():
        await walker.live(0.5, 2.0)


async def rise_and_fall(cluster: Cluster) -> list[Walker]:
    await until(cluster, lambda found: found == ["active", "standing by", "standing by"])
    stay, end = await walkers(cluster, range(3)), asyncio.Event()
    walks = [asyncio.create_task(live_until(walker, end)) for walker in stay]
    crowd, gone = await walkers(cluster, range(3, 20)), asyncio.Event()
    walks += [asyncio.create_task(live_until(walker, gone)) for walker in crowd]
    await until(cluster, lambda found: found == ["active"] * 3)
    async with asyncio.timeout(PATIENCE_S):
        while len({walker.home for walker in [*stay, *crowd]}) < 3:  # each serves some of them
            await asyncio.sleep(0.1)
    gone.set()
    await asyncio.gather(*walks[3:])
    await leave(crowd)
    await until(cluster, lambda found: found == ["active", "standing by", "standing by"])
    end.set()
    await asyncio.gather(*walks)
    await leave(stay)
    assert {walker.home for walker in stay} == {cluster.nodes[0].url}
    return [*stay, *crowd]


def test_as_load_rises_and_falls_nodes_are_called_in_and_stand_by_again(tmp_path: Path) -> None:
    settings = tmp_path / "nearcast.toml"
    settings.write_text(SETTINGS)

    async def story() -> tuple[Cluster, list[Walker]]:
        async with Cluster(tmp_path, 1, "--config", str(settings)) as cluster:
            await cluster.add("--standby")
            await cluster.add("--standby")
            return cluster, await rise_and_fall(cluster)

    cluster, crowd = asyncio.run(story())
    assert check(cluster, crowd, tmp_path).expected > 20
    assert [walker.lost for walker in crowd if walker.lost] == []
    notes = [Counter(read(trace, "notes").column("fact").to_pylist()) for trace in cluster.traces]
    assert [found["called in"] for found in notes] == [0, 1, 1]
    assert [found["stood down"] for found in notes] == [0, 1, 1]
    assert sum(found["arrived"] for found in notes) > 5
    assert all(node.complaints() == [] for node in cluster.nodes)
    assert validate(tmp_path / "merged").problems == ()
