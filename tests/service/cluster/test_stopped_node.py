"""Real nodes, of which one is stopped at the moment at which a client is handed over."""

import asyncio
import json
import os
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from signal import SIGCONT, SIGSTOP

import pytest

import nearcast
from nearcast.client.client import Client
from nearcast.client.core import Phase
from nearcast.client.subscription import Subscription
from nearcast.space.shapes import disc, point
from support.node_processes import Running, cluster
from support.patience import PATIENCE_S

STOPPED_S = 3.5  # longer than a node waits for a client that it has asked for


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not await condition():
            await asyncio.sleep(0.01)


async def near(node: Running) -> list[str]:
    """The names of all whose state this node knows."""

    def asked() -> list[str]:
        url = f"{node.page}near?x=0&y=0&r=1000000&limit=100"
        with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
            return sorted(one["name"] for one in json.load(answer)["entities"])

    return await asyncio.to_thread(asked)


async def hears(listener: Subscription, speaker: Client, x: float, y: float) -> None:
    """Somebody speaks there until it is heard."""

    async def listen() -> None:
        async for message in listener:
            if message.source == speaker.entity:
                return

    heard = asyncio.ensure_future(listen())

    async def spoken() -> bool:
        await speaker.publish(point(x, y), "hello")
        return heard.done()

    await until(spoken)


@asynccontextmanager
async def stopped(node: Running) -> AsyncIterator[None]:
    os.kill(node.process.pid, SIGSTOP)
    try:
        yield
    finally:
        os.kill(node.process.pid, SIGCONT)


@pytest.mark.parametrize("stops", [0, 1], ids=["old", "new"])
def test_a_client_is_served_after_a_handover_during_which_a_node_stood_still(
    tmp_path: Path, stops: int
) -> None:
    async def story(nodes: list[Running]) -> None:
        old, new = nodes
        async with (
            nearcast.connect(old.url, name="walker") as walker,
            nearcast.connect(old.url, name="old") as left,
            nearcast.connect(new.url, name="new") as right,
        ):
            here, there = old.site(), new.site()
            around = await walker.subscribe(disc(*here, 1))
            for client, place in ((walker, here), (left, here), (right, there)):
                await client.publish(point(*place), retain=True)
                await client.subscribe(disc(*place, 1))
            who = walker.entity

            async def moving() -> bool:
                return walker._core.phase is Phase.HANDED_OVER

            await around.move(disc(*there, 1))
            await until(moving)
            async with stopped(nodes[stops]):
                await asyncio.sleep(STOPPED_S)

            async def calm() -> bool:
                return [await near(node) for node in nodes] == [["new", "old", "walker"]] * 2

            await until(calm)
            await hears(around, left, *there)
            await hears(around, right, *there)
            assert walker.entity == who, "it was never lost"
        await until(lambda: _empty(nodes))

    with cluster(tmp_path, "old", "new") as nodes:
        asyncio.run(story(nodes))


async def _empty(nodes: list[Running]) -> bool:
    return [await near(node) for node in nodes] == [[], []]
