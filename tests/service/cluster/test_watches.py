"""Who is there, in a cluster as on one node: the same script for both, and the same is told."""

import asyncio
import json
import urllib.request
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any, TypeAlias

import nearcast
from nearcast.client.client import Client
from nearcast.client.subscription import Entered, Subscription
from nearcast.client_protocol import messages
from nearcast.client_protocol.geometry_json import Area
from nearcast.model.subscription import Value
from nearcast.server.config import ClusterSettings, Settings
from nearcast.server.server import Server
from nearcast.space.motion import Moving
from nearcast.space.shapes import disc, point
from support.join_targets import address, run
from support.patience import PATIENCE_S

NAMES = ["anna", "bert", "cleo", "dora", "egon", "fred"]
STEPS = 12
STEP_S = 0.25  # two ticks
Log: TypeAlias = list[list[tuple[Any, ...]]]


@asynccontextmanager
async def nodes(folder: Path, count: int) -> AsyncIterator[list[Server]]:
    """So many, of which each knows the others."""
    async with AsyncExitStack() as stack:
        found: list[Server] = []
        for _ in range(count):
            first = found[0].cluster_host if found else None
            join = f"{first.links.host}:{first.links.port}" if first else ""
            key = str(folder / "key") if count > 1 else ""
            cluster = ClusterSettings(key=key, join=join)
            service = Server(Settings(port=0, record=False, cluster=cluster))
            found.append(await stack.enter_async_context(service))
        while any(one.cluster and len(one.cluster.nodes) < count - 1 for one in found):
            await asyncio.sleep(0.02)
        yield found


async def counted(service: Server, said: dict[str, Any]) -> dict[str, Any]:
    """`POST /publish`."""
    url = address(service).replace("ws", "http") + "/publish"
    asked = urllib.request.Request(url, json.dumps(said).encode(), method="POST")
    with await asyncio.to_thread(urllib.request.urlopen, asked) as answer:
        told: dict[str, Any] = json.loads(answer.read())
    return told


class Player:
    """Everybody watches around itself, and says where it is."""

    def __init__(self, client: Client, watch: Subscription, random: Random) -> None:
        self.client, self.watch, self.random = client, watch, random
        self.told: list[tuple[Any, ...]] = []

    async def act(self) -> list[tuple[Any, ...]]:
        random, client = self.random, self.client
        x, y = random.uniform(0, 300), random.uniform(0, 300)
        match random.randrange(5):
            case 0:
                await self.watch.move(disc(x, y, random.uniform(30, 200)))
            case 1:
                await self.watch.move(Moving(disc(x, y, 60), (400.0, 0.0, 0.0), duration=250_000))
            case 2:
                level: dict[str, Value] = {"level": random.randrange(5)}
                await client.publish(point(x, y), round(x), retain=True, attributes=level)
            case 3:
                await client.publish(disc(x, y, 5), "here", retain=True, channel="chat")
            case 4:
                channel = random.choice(["", "chat"])
                near = await client.nearby(disc(x, y, 250), channel=channel)
                return [("near", [(one.name, one.x, one.payload) for one in near])]
        return []

    async def listen(self) -> None:
        """Sorted, since who is looked at first is nobody's business."""
        changes = self.watch.changes()
        while len(changes):
            change = await anext(changes)
            who = change.entity
            way = "enter" if isinstance(change, Entered) else f"leave {change.gone}"
            self.told.append((way, who.name, who.x, who.y, str(who.payload)))
        self.told.sort()


class World:
    """One node or several, and the same players."""

    def __init__(self, services: list[Server]) -> None:
        self.services, self.players = services, list[Player]()

    async def enter(self, stack: AsyncExitStack, number: int) -> None:
        name, x, y = NAMES[number], 40 * number, 50 * number
        url = address(self.services[number % len(self.services)])
        client = await stack.enter_async_context(nearcast.connect(url, name=name))
        await client.publish(point(x, y), name, retain=True, attributes={"level": number})
        watch = await client.subscribe(
            disc(x, y, 120), watch=True, linger=0,
            channel="chat" if number == 4 else "", filter="level < 3" if number == 3 else None,
        )  # fmt: skip
        self.players.append(Player(client, watch, Random(f"2 {name}")))

    async def step(self, step: int) -> list[tuple[Any, ...]]:
        """What somebody is told at once who does something."""
        if step == STEPS - 3:
            await self.players.pop(2).client.close()
            return []
        if step % 4 == 3:
            service = self.services[step % len(self.services)]
            told = await counted(service, {"x": 9 * step, "y": 100})
            return [("heard", told["heard"], "silent" in told)]
        return await self.players[step % len(self.players)].act()

    async def told(self) -> Log:
        for player in self.players:
            await player.listen()
        return [player.told for player in self.players]


async def agree(worlds: list[World]) -> None:
    """In a while, the same has been told in both."""
    await asyncio.sleep(STEP_S)
    loop = asyncio.get_running_loop()
    deadline = loop.time() + PATIENCE_S
    while True:
        logs = [await world.told() for world in worlds]
        if logs[0] == logs[1]:
            return
        assert loop.time() < deadline or logs[1] == logs[0]
        await asyncio.sleep(0.1)


def test_whoever_watches_or_asks_is_told_the_same_by_three_nodes_as_by_one(tmp_path: Path) -> None:
    async def story() -> None:
        async with AsyncExitStack() as stack:
            alone = await stack.enter_async_context(nodes(tmp_path, 1))
            several = await stack.enter_async_context(nodes(tmp_path, 3))
            worlds = [World(alone), World(several)]
            for number in range(len(NAMES)):
                for world in worlds:
                    await world.enter(stack, number)
                await agree(worlds)
            answers = []
            for step in range(STEPS):
                expected, found = [await world.step(step) for world in worlds]
                assert found == expected
                answers += expected
                await agree(worlds)
            assert {answer[0] for answer in answers} == {"near", "heard"}
            assert any(answer[0] == "heard" and answer[1] > 1 for answer in answers)
            told = {one[0] for player in worlds[0].players for one in player.told}
            assert told == {"enter", "leave False", "leave True"}

    run(story())


async def until(services: list[Server], expected: list[str]) -> None:
    """All of them know these states, by the names of those who retain them."""

    def known(service: Server) -> list[str]:
        everywhere = messages.NearbyRequest(Area(), limit=100)
        return sorted(one.name for one in service.realm.nearby(service.gateway.now(), everywhere))

    while not all(known(service) == expected for service in services):
        await asyncio.sleep(0.02)


def test_states_stay_known_while_nodes_and_clients_come_and_go(tmp_path: Path) -> None:
    async def story() -> None:
        async with AsyncExitStack() as stack:
            first, second = await stack.enter_async_context(nodes(tmp_path, 2))
            anna = await nearcast.connect(address(second), name="anna").open()
            bert = await nearcast.connect(address(first), name="bert").open()
            await anna.publish(point(1, 2), retain=True)
            await bert.publish(point(3, 4), retain=True)
            await until([first, second], ["anna", "bert"])
            assert first.cluster is not None
            join = f"{first.cluster_host.links.host}:{first.cluster_host.links.port}"
            cluster = ClusterSettings(key=str(tmp_path / "key"), join=join)
            third = Server(Settings(port=0, record=False, cluster=cluster))
            await stack.enter_async_context(third)
            await until([third], ["anna", "bert"])
            await second.stop()  # anna goes to another node, and says nothing there
            await until([first, third], ["anna", "bert"])
            await asyncio.sleep(0.3)
            await until([first, third], ["anna", "bert"])
            await bert.close()
            await until([first, third], ["anna"])
            await anna.close()
            await until([first, third], [])

    run(story())
