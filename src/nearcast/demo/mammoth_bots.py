"""Bots that play `mammoth_game` on a node, as clients like any other (`nearcast.connect`).

Each character is a client with one evolving subscription, which it moves once per walk. It
publishes its position a few times a second as its retained state. The director is a client too:
pages send it requests on one channel, and it publishes on another how the game goes and what each
of the five engines has cost for the same movement.

    python -m nearcast.demo.mammoth_bots ws://127.0.0.1:8470/ws 300
"""

import asyncio
import logging
import sys
import time
from collections.abc import Coroutine
from contextlib import suppress
from math import hypot
from random import Random
from typing import Any

import msgspec
import uvloop
from msgspec import Struct

from nearcast.client.client import Client, connect
from nearcast.client.subscription import Message, Subscription
from nearcast.demo.engine_comparison import INTERVAL, EngineComparison, warm
from nearcast.demo.mammoth_game import Character, CharacterAction, MammothGame, MammothRules
from nearcast.errors import Refused
from nearcast.model.publication import Publication
from nearcast.model.subscription import Value
from nearcast.space.motion import SECOND, Moving, Time, line
from nearcast.space.shapes import EVERYWHERE, Shape, point
from nearcast.workloads.mammoth import APPLE

LOG = logging.getLogger("nearcast.monitor")
REQUESTS_CHANNEL, STATUS_CHANNEL = "orders", "news"  # to the director, and from it
ORIGIN = point(0.0, 0.0)
TICK_S = 0.05  # between two steps of the game
STATUS_EVERY = 10  # steps
STORM_S = 15.0  # that a storm lasts
COMPARED = 300  # characters whose movement the engines follow: the node shares this machine
CONNECTING = 50  # connections that are opened at the same time


class DirectorRequest(Struct, frozen=True, kw_only=True):
    """What a page asks of the director."""

    order: str
    number: int = 0


class GameStatus(Struct, frozen=True):
    """How the game goes, and what each engine has cost so far."""

    t: Time
    characters: int
    compared: int
    publications: int  # of those compared
    interval_ms: float
    storm_s: float  # that the storm still lasts
    engines: list[Any]


class DirectorReply(Struct, frozen=True):
    """To the page that sent a request, by its entity."""

    to: int
    answer: str


class CharacterClient(Struct, eq=False):
    """The client of one character."""

    client: Client
    subscription: Subscription


def unix_now() -> Time:
    return time.time_ns() // 1000


class MammothBots:
    """The game, the clients of its characters, and the comparison that runs beside it."""

    def __init__(self, url: str, rules: MammothRules, rng: Random) -> None:
        self.url, self.game = url, MammothGame(rules, rng)
        self.comparison = EngineComparison()
        self._director = connect(url, name="director", reconnect=False)
        self._persons: Subscription
        # By the character's number; None until it has joined.
        self._bots: list[CharacterClient | None] = []
        self._published = 0
        self._spawning: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, count: int) -> None:
        """Play until the node goes away."""
        warm()  # before anybody waits
        async with self._director as director:
            requests = await director.subscribe(EVERYWHERE, channel=REQUESTS_CHANNEL)
            # Their positions are read from `inside`, so their messages need not wait.
            self._persons = await director.subscribe(
                EVERYWHERE, filter="person == true", watch=True, inbox=1
            )
            self._start(self._serve_pages(requests))
            self.spawn(count)
            try:
                await self._play()
            except ConnectionError:
                return
            finally:
                await self._stop()

    async def _play(self) -> None:
        begun, steps, reported = time.monotonic(), 0, 0
        while True:
            await self._step(unix_now())
            steps += 1
            if steps - reported >= STATUS_EVERY:
                reported = steps
                await self._publish_as_director(self._status(unix_now()))
            # Late steps are left out rather than made up for: a busy machine must not get busier.
            steps = max(steps, int((time.monotonic() - begun) / TICK_S))
            await asyncio.sleep(max(0.0, begun + (steps + 1) * TICK_S - time.monotonic()))

    async def _stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(bot.client.close() for bot in self._bots if bot is not None))

    def _start(self, act: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(act)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # What pages ask for.

    async def _serve_pages(self, requests: Subscription) -> None:
        with suppress(ConnectionError):  # the game ends with the node
            async for message in requests:
                reply = DirectorReply(message.source, self._answer(message))
                await self._publish_as_director(reply)

    def _answer(self, message: Message) -> str:
        try:
            request = msgspec.convert(message.payload, DirectorRequest)
        except (msgspec.MsgspecError, ValueError):
            return "this is no order"
        now, game, person = unix_now(), self.game, str(message.source)
        if request.order == "spawn" and request.number > 0:
            added = self.spawn(request.number)
            return f"{added} characters come, {len(game.characters)} in all"
        if request.order == "storm":
            game.storm(now, STORM_S)
            return f"for {STORM_S:.0f} seconds everybody walks and nobody pauses"
        if request.order == "gather":
            self._update_persons(now)
            if person not in game.persons:
                return "the director does not see you yet"
            return f"{game.gather(now, person, request.number)} characters follow you"
        if request.order == "scatter":
            return f"{game.scatter(now)} characters go their own ways"
        return f"the director does not know how to {request.order} {request.number}"

    async def _publish_as_director(self, value: Struct) -> None:
        payload = msgspec.to_builtins(value)
        await self._director.publish(ORIGIN, payload, channel=STATUS_CHANNEL, confirm=False)

    # What characters do.

    def spawn(self, count: int) -> int:
        """Add characters, and connect them in the background. Returns how many were added."""
        added = self.game.spawn(unix_now(), count)
        self._bots += [None] * len(added)
        before = self._spawning

        async def join() -> None:
            if before is not None:
                await before
            for first in range(0, len(added), CONNECTING):
                some = map(self._join, added[first : first + CONNECTING])
                for failure in await asyncio.gather(*some, return_exceptions=True):
                    if failure is not None:
                        LOG.error("a character could not join: %s", failure)

        self._spawning = self._start(join())
        return len(added)

    async def _join(self, character: Character) -> None:
        client = await connect(self.url, name=f"bot {character.number}", reconnect=False).open()
        walk = character.move
        # A character walks its own way, whatever it receives.
        subscription = await client.subscribe(_region(character, unix_now()), inbox=1)
        bot = self._bots[character.number] = CharacterClient(client, subscription)
        if character.move is not walk:  # a new walk has begun in the meantime
            await self._move(bot, _region(character, unix_now()))

    async def _step(self, now: Time) -> None:
        self._update_persons(now)
        walks, publications = self.game.step(now)
        for action in walks:
            bot = self._bots[action.number]
            if bot is not None:
                region = _region(self.game.characters[action.number], now)
                self._start(self._move(bot, region))
        for action in publications:
            bot = self._bots[action.number]
            if bot is not None:
                await self._publish(bot, action)
        self._compare(now, walks, publications)

    def _update_persons(self, now: Time) -> None:
        inside, known = self._persons.inside, self.game.persons
        for person in [person for person in known if int(person) not in inside]:
            self.game.remove_person(now, person)
        for entity in inside.values():
            known[str(entity.entity)] = (entity.x, entity.y, 0.0)

    async def _move(self, bot: CharacterClient, region: Moving | Shape) -> None:
        try:
            await bot.subscription.move(region)
        except (ConnectionError, Refused) as why:
            LOG.debug("a character could not move its area: %s", why)

    async def _publish(self, bot: CharacterClient, action: CharacterAction) -> None:
        with suppress(ConnectionError):  # the others play on
            await bot.client.publish(
                point(action.x, action.y),
                retain=not action.picks_up,
                attributes=_attributes(action),
                confirm=False,
            )

    def _compare(
        self, now: Time, walks: list[CharacterAction], publications: list[CharacterAction]
    ) -> None:
        newcomers = self.game.characters[self.comparison.members : COMPARED]
        regions = [(one.number, one.move) for one in newcomers]
        regions += [
            (action.number, action.move)
            for action in walks
            if action.move is not None and action.number < self.comparison.members
        ]
        compared = []
        for action in publications:
            if action.number < COMPARED:
                self._published += 1
                where, attributes = point(action.x, action.y), _attributes(action)
                compared.append(
                    Publication(self._published, action.number, now, where, attributes=attributes)
                )
        self.comparison.step(now, regions, compared)

    def _status(self, now: Time) -> GameStatus:
        return GameStatus(
            now, len(self.game.characters), self.comparison.members,
            self.comparison.publications, INTERVAL / 1000,
            max(0.0, (self.game.storm_until - now) / SECOND), list(self.comparison.counts()),
        )  # fmt: skip


def _attributes(action: CharacterAction) -> dict[str, Value]:
    return APPLE if action.picks_up else {}


def _region(character: Character, now: Time) -> Moving | Shape:
    """Its area of interest from now on: a motion while it walks."""
    here, move = character.at(now), character.move
    if move.until <= now or not move.moves:
        return here
    there = move.at(move.until)
    return line(here, (there.x, there.y), hypot(*move.velocity))


async def play(url: str, count: int) -> None:
    await MammothBots(url, MammothRules(), Random()).run(count)


def main() -> None:
    try:
        uvloop.run(play(sys.argv[1], int(sys.argv[2])))
    except (KeyboardInterrupt, OSError):
        return  # the node has gone, and the game with it


if __name__ == "__main__":
    main()
