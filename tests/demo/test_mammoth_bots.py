"""The game on a real node: connections, orders, and a trace that can be judged."""

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from random import Random
from typing import Any

import nearcast
from nearcast.client.client import Client
from nearcast.demo.mammoth_bots import REQUESTS_CHANNEL, STATUS_CHANNEL, MammothBots
from nearcast.demo.mammoth_game import MammothRules
from nearcast.server.config import Settings
from nearcast.server.server import Server
from nearcast.space.shapes import EVERYWHERE, point
from nearcast.trace.reader import read
from support.brute_force import delivered, expected
from support.patience import PATIENCE_S

BOTS = 12
RULES = MammothRules(size=150.0, stride=60.0, pause=0.3, pickups=0.5)


def run(story: Coroutine[None, None, None]) -> None:
    asyncio.run(asyncio.wait_for(story, 3 * PATIENCE_S))


async def until(known: Any) -> None:
    while not known():
        await asyncio.sleep(0.02)


async def playing(service: Server) -> tuple[MammothBots, "asyncio.Task[None]"]:
    """A crowd of which everybody has arrived."""
    crowd = MammothBots(service.url, RULES, Random(2))
    task = asyncio.create_task(crowd.run(BOTS))
    clients = service.realm.clients
    await until(
        lambda: sum(bool(client and client.subscriptions) for client in clients) == BOTS + 1
    )
    return crowd, task


async def ask(page: Client, order: str, number: int = 0) -> str:
    """What the director answers."""
    status = await page.subscribe(EVERYWHERE, channel=STATUS_CHANNEL)
    await page.publish(
        point(1.0, 1.0), payload={"order": order, "number": number}, channel=REQUESTS_CHANNEL
    )
    async for message in status:
        if message.payload.get("to") == page.entity:
            await status.unsubscribe()
            return str(message.payload["answer"])
    raise AssertionError("the news ended")


async def seen(page: Client) -> None:
    """Somebody who is known to be there."""
    await page.publish(point(75, 75), retain=True, attributes={"person": True})
    while "does not see you" in await ask(page, "gather", 1):
        pass


def test_every_character_has_one_subscription_however_far_it_walks(tmp_path: Path) -> None:
    async def story() -> None:
        async with Server(Settings(port=0, trace=str(tmp_path / "t"))) as service:
            _, task = await playing(service)
            await until(lambda: service.gateway.metrics.publications > 200)
            clients = [
                client for client in service.realm.clients if client and client.name != "director"
            ]
            assert len(clients) == BOTS
            assert {len(client.subscriptions) for client in clients} == {1}
        await task  # the node has gone, and so has the game

    run(story())
    interests, publications, deliveries = (
        read(tmp_path / "t", table) for table in ("interests", "publications", "deliveries")
    )
    received = delivered(deliveries)
    assert len(received) > 200
    assert set(received) == expected(interests, publications) and len(received) == len(
        set(received)
    )
    assert interests.num_rows < publications.num_rows / 2, "walks are said once, not step by step"


def test_pages_send_orders_and_receive_the_comparison_of_engines() -> None:
    async def story() -> None:
        async with Server(Settings(port=0, record=False)) as service:
            _, task = await playing(service)
            address = f"ws://127.0.0.1:{service.port}"
            async with nearcast.connect(address, name="page") as page:
                assert await ask(page, "spawn", 5) == f"5 characters come, {BOTS + 5} in all"
                assert "everybody walks" in await ask(page, "storm")
                assert "does not see you" in await ask(page, "gather", 3)
                await seen(page)
                assert await ask(page, "gather", 3) == "3 characters follow you"
                assert await ask(page, "scatter") == "3 characters go their own ways"
                assert "does not know" in await ask(page, "dance", 1)
                await page.publish(point(0, 0), payload=["no", "order"], channel=REQUESTS_CHANNEL)
                status = await page.subscribe(EVERYWHERE, channel=STATUS_CHANNEL)
                async for message in status:
                    if "engines" in message.payload and message.payload["publications"] > 300:
                        break
                engines = {one["name"]: one for one in message.payload["engines"]}
                assert message.payload["compared"] == BOTS + 5
                walked = engines["resubscribe"]["subscriptions"]
                assert walked > 2 * engines["swept"]["subscriptions"] > 0
        await task

    run(story())


def test_characters_that_followed_a_person_go_on_when_the_person_leaves() -> None:
    async def story() -> None:
        async with Server(Settings(port=0, record=False)) as service:
            crowd, task = await playing(service)
            address = f"ws://127.0.0.1:{service.port}"
            async with nearcast.connect(address, name="page") as page:
                await seen(page)
                assert await ask(page, "gather", BOTS) == f"{BOTS} characters follow you"
            async with nearcast.connect(address, name="another") as page:
                await until(lambda: not crowd.game.persons)
                assert await ask(page, "scatter") == "0 characters go their own ways"
                assert not task.done()
        await task

    run(story())
