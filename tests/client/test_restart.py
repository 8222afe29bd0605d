"""A node by itself that is killed and started again: its clients restore all that it knew."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from time import monotonic
from urllib.parse import urlsplit

import nearcast
from nearcast.client.client import Client, Disconnected, Reconnected
from nearcast.client.subscription import Subscription
from nearcast.space.shapes import disc, point
from support.join_targets import run
from support.node_processes import Running, start
from support.patience import PATIENCE_S
from support.ports import free_port

CLIENTS, ENTITIES = 5, 40
CHANNELS = ("", "talk")


@asynccontextmanager
async def node(port: int) -> AsyncIterator[Running]:
    """In the meantime clients try to reach it."""
    running = await asyncio.to_thread(start, None, "n", None, port)
    try:
        yield running
    finally:
        await asyncio.to_thread(running.stop)


async def publish_states(me: Client, number: int) -> None:
    """Of the client and of others, on two channels; one is withdrawn."""
    for channel in CHANNELS:
        await me.publish(point(number, 0), "first", channel=channel, retain=True)
        await me.publish(point(number, 1), {"of": number}, channel=channel, retain=True)
    for k in range(ENTITIES):
        await me.publish(point(number, k), k, name=f"{number}.{k}", retain=True, confirm=k % 2 == 1)
    await me.withdraw(name=f"{number}.0")


async def states(url: str, channel: str) -> list[tuple[str, float, float, object]]:
    """All that a client that was not there before finds."""
    async with nearcast.connect(url) as other:
        found = await other.nearby(disc(0, 0, 900), channel=channel, limit=1_000)
    return sorted((one.name, one.x, one.y, str(one.payload)) for one in found)


async def next_notice(me: Client) -> object:
    return await asyncio.wait_for(anext(me.notices()), PATIENCE_S)


async def check_subscriptions(url: str, subscriptions: list[Subscription]) -> None:
    async with nearcast.connect(url) as speaker:
        for number, here in enumerate(subscriptions):
            await speaker.publish(point(number, 500), f"to {number}", channel="talk")
            message = await asyncio.wait_for(anext(here), PATIENCE_S)
            assert (message.payload, message.to) == (f"to {number}", [here.number])


def test_subscriptions_and_states_are_there_again_after_a_restart() -> None:
    async def story() -> None:
        async with AsyncExitStack() as stack:
            async with node(free_port()) as first:
                url = first.url
                clients, subscriptions = [], []
                for number in range(CLIENTS):
                    me = await stack.enter_async_context(nearcast.connect(url, name=f"c{number}"))
                    clients.append(me)
                    await publish_states(me, number)
                    here = await me.subscribe(disc(number, 500, 0.4), channel="talk")
                    subscriptions.append(here)
                before = [await states(url, channel) for channel in CHANNELS]
                assert [len(one) for one in before] == [CLIENTS * ENTITIES, CLIENTS]
                first.kill()
                for me in clients:
                    assert isinstance(await next_notice(me), Disconnected)
            async with node(urlsplit(url).port or 0) as again:
                serving = monotonic()
                assert again.url == url
                for me in clients:
                    assert await next_notice(me) == Reconnected([])
                print(f"all is there again after {monotonic() - serving:.2f} s")  # noqa: T201
                assert [await states(url, channel) for channel in CHANNELS] == before
                await check_subscriptions(url, subscriptions)
                assert [len(me.notices()) for me in clients] == [0] * CLIENTS, "nothing is refused"

    run(story())
