"""Two places to join: a world in this process and a node behind a socket. One contract for both."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import TypeAlias

import pytest

import nearcast
from nearcast.client.client import Client
from nearcast.server.config import Settings, load_settings
from nearcast.server.server import Server
from support.patience import PATIENCE_S

Join: TypeAlias = Callable[[str], Awaitable[Client]]
Place: TypeAlias = Callable[[], AbstractAsyncContextManager[Join]]
Story: TypeAlias = Callable[[Join], Coroutine[None, None, None]]


def quiet(**others: object) -> Settings:
    """Any free port, and no trace."""
    return load_settings(flags={"port": 0, "record": False, **others})


def address(service: Server) -> str:
    return f"ws://127.0.0.1:{service.port}"


@asynccontextmanager
async def world() -> AsyncIterator[Join]:
    async with nearcast.World() as here:
        yield here.join


@asynccontextmanager
async def node() -> AsyncIterator[Join]:
    async with AsyncExitStack() as stack:
        service = await stack.enter_async_context(Server(quiet()))

        async def join(name: str) -> Client:
            return await stack.enter_async_context(
                nearcast.connect(address(service), name=name, reconnect=False)
            )

        yield join


def run(story: Awaitable[None]) -> None:
    mishaps: list[dict[str, object]] = []

    async def told() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, mishap: mishaps.append(mishap))
        await asyncio.wait_for(story, 3 * PATIENCE_S)

    asyncio.run(told())
    assert mishaps == [], "what fails out of sight fails the test"


def in_both(story: Story) -> Callable[[Place], None]:
    """A test of that name for each place."""

    def test(place: Place) -> None:
        async def told() -> None:
            async with place() as join:
                await story(join)

        run(told())

    test.__name__, test.__doc__ = story.__name__, story.__doc__
    return pytest.mark.parametrize("place", [world, node])(test)
