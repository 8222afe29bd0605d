"""The game played by real clients: one connection per character, in a process of its own.

Each character has one evolving subscription, which it moves once per walk, and says where it is a
few times a second (retained). The director is a client too: pages give it orders on one channel and
hear from it on another how the five engines do on the same movement. All of it travels as any other
message does, so what the node counts is what clients cause.

    python -m nearcast.demo.mammoth_bots ws://127.0.0.1:8470/ws 300
"""

import asyncio
import logging
import sys
import time
from random import Random
from typing import Any

import msgspec
import uvloop
from msgspec import Raw, Struct
from picows import WSFrame, WSListener, WSMsgType, WSTransport, ws_connect

from nearcast.client_protocol import messages
from nearcast.client_protocol.geometry_json import Area
from nearcast.client_protocol.messages import MSGPACK
from nearcast.demo.engine_comparison import INTERVAL, EngineComparison, warm
from nearcast.demo.mammoth_game import Character, CharacterAction, MammothGame, MammothRules
from nearcast.model.publication import Publication
from nearcast.space.motion import SECOND, Time
from nearcast.space.shapes import point
from nearcast.workloads.mammoth import APPLE

LOG = logging.getLogger("nearcast.monitor")
REQUESTS_CHANNEL, STATUS_CHANNEL = "orders", "news"  # channels: to the director, and from it
TICK = 0.05  # seconds between two steps of the game
NEWS_EVERY = 10  # steps
STORM = 15.0  # seconds that a storm lasts
COMPARED = 300  # characters whose movement the engines follow: the node shares this machine
CONNECTING = 50  # connections that are opened at the same time
SUBSCRIPTION = 1  # a character has but one
PERSONS = 2  # the director's subscription to those who are no bots


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
    """To the page that gave an order, by its entity."""

    to: int
    answer: str


def unix_now() -> Time:
    return time.time_ns() // 1000


class BotConnection(WSListener):
    """One client, from its first word on."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.entity: int | None = None
        self.joined = asyncio.get_running_loop().create_future()
        self.transport: WSTransport | None = None

    def on_ws_connected(self, transport: WSTransport) -> None:
        self.transport = transport
        self.send(messages.JoinRequest(self.name))

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        del transport
        if frame.msg_type != WSMsgType.BINARY:
            return
        if self.entity is not None:
            self.hear(frame)
            return
        notice = MSGPACK.read_notice(frame.get_payload_as_bytes())
        if MSGPACK.message_class(notice) is messages.WelcomeNotice:
            self.entity = notice.entity
            self.joined.set_result(notice.entity)
        elif not self.joined.done():
            reason = getattr(notice, "reason", "no welcome")
            self.joined.set_exception(ConnectionError(reason))

    def hear(self, frame: WSFrame) -> None:
        """A character walks its own way whatever it hears."""

    def on_ws_disconnected(self, transport: WSTransport) -> None:
        del transport
        self.transport = None
        if not self.joined.done():
            self.joined.set_exception(ConnectionError("the node closed the connection"))

    def send(self, request: messages.Request) -> None:
        if self.transport is not None:
            self.transport.send(WSMsgType.BINARY, MSGPACK.encode(request))


class Director(BotConnection):
    """Hears orders, and where persons are."""

    def __init__(self, crowd: "MammothBots") -> None:
        super().__init__("director")
        self._crowd = crowd

    def hear(self, frame: WSFrame) -> None:
        notice = MSGPACK.read_notice(frame.get_payload_as_bytes())
        kind = MSGPACK.message_class(notice)
        game = self._crowd.game
        if kind in (messages.EnterNotice, messages.InsideNotice):
            # Only those of whom the node will say that they have left.
            for one in [notice.entity] if kind is messages.EnterNotice else notice.entities:
                game.strangers[str(one.entity)] = (one.x, one.y, 0.0)
        elif kind is messages.LeaveNotice:
            game.part(unix_now(), str(notice.entity))
        elif kind is messages.MessageNotice and notice.channel == REQUESTS_CHANNEL:
            self._crowd.obey(notice.source, notice.payload)
        elif kind is messages.MessageNotice and str(notice.source) in game.strangers:
            game.strangers[str(notice.source)] = (notice.x, notice.y, 0.0)

    def tell(self, value: Struct) -> None:
        payload = MSGPACK.encode_payload(msgspec.to_builtins(value))
        self.send(messages.PublishRequest(0.0, 0.0, payload, channel=STATUS_CHANNEL))


class MammothBots:
    """The game, the connections of its characters, and the comparison that runs beside it."""

    def __init__(self, url: str, rules: MammothRules, rng: Random) -> None:
        self.url, self.game = url, MammothGame(rules, rng)
        self.comparison = EngineComparison()
        self.director = Director(self)
        self._links: list[BotConnection | None] = []  # by the character's number
        self._said = 0
        self._spawning: asyncio.Task[None] | None = None

    async def run(self, count: int) -> None:
        """Play until the node goes away."""
        warm()  # before anybody is kept waiting
        await self._connect(self.director)
        everywhere = Area()
        self.director.send(
            messages.SubscribeRequest(SUBSCRIPTION, everywhere, channel=REQUESTS_CHANNEL)
        )
        self.director.send(
            messages.SubscribeRequest(PERSONS, everywhere, filter="person == true", watch=True)
        )
        self.spawn(count)
        begun, steps, told = time.monotonic(), 0, 0
        while self.director.transport is not None:
            self._step(unix_now())
            steps += 1
            if steps - told >= NEWS_EVERY:
                told = steps
                self.director.tell(self._news(unix_now()))
            # Late steps are left out rather than made up for: a busy machine must not get busier.
            steps = max(steps, int((time.monotonic() - begun) / TICK))
            await asyncio.sleep(max(0.0, begun + (steps + 1) * TICK - time.monotonic()))

    def spawn(self, count: int) -> int:
        added = self.game.spawn(unix_now(), count)
        self._links += [None] * len(added)
        before = self._spawning

        async def arrive() -> None:
            if before is not None:
                await before
            for first in range(0, len(added), CONNECTING):
                some = map(self._enter, added[first : first + CONNECTING])
                for failure in await asyncio.gather(*some, return_exceptions=True):
                    if failure is not None:
                        LOG.error("a character could not join: %s", failure)

        self._spawning = asyncio.get_running_loop().create_task(arrive())
        return len(added)

    def obey(self, page: int, payload: Raw) -> None:
        try:
            order = msgspec.convert(MSGPACK.decode_payload(payload), DirectorRequest)
        except (msgspec.MsgspecError, ValueError):
            self.director.tell(DirectorReply(page, "this is no order"))
            return
        self.director.tell(DirectorReply(page, self._obeyed(page, order)))

    def _obeyed(self, page: int, order: DirectorRequest) -> str:
        now, game = unix_now(), self.game
        if order.order == "spawn" and order.number > 0:
            added = self.spawn(order.number)
            return f"{added} characters come, {len(game.characters)} in all"
        if order.order == "storm":
            game.storm(now, STORM)
            return f"for {STORM:.0f} seconds everybody walks and nobody pauses"
        if order.order == "gather":
            if str(page) not in game.strangers:
                return "the director does not see you yet"
            return f"{game.gather(now, str(page), order.number)} characters follow you"
        if order.order == "scatter":
            return f"{game.scatter(now)} characters go their own ways"
        return f"the director does not know how to {order.order} {order.number}"

    async def _connect(self, link: BotConnection) -> None:
        await ws_connect(lambda: link, self.url)
        await link.joined

    async def _enter(self, one: Character) -> None:
        link = BotConnection(f"bot {one.number}")
        await self._connect(link)
        link.send(messages.SubscribeRequest(SUBSCRIPTION, _area(one, unix_now())))
        self._links[one.number] = link

    def _step(self, now: Time) -> None:
        walks, said = self.game.step(now)
        for deed in walks:
            link = self._links[deed.number]
            if link is not None:
                area = _area(self.game.characters[deed.number], now)
                link.send(messages.MoveRequest(SUBSCRIPTION, area))
        for deed in said:
            link = self._links[deed.number]
            if link is not None:
                attributes = APPLE if deed.picks_up else {}
                link.send(
                    messages.PublishRequest(
                        deed.x, deed.y, retain=not deed.picks_up, attributes=attributes
                    )
                )
        self._compare(now, walks, said)

    def _compare(
        self, now: Time, walks: list[CharacterAction], said: list[CharacterAction]
    ) -> None:
        newcomers = self.game.characters[self.comparison.members : COMPARED]
        regions = [(one.number, one.move) for one in newcomers]
        regions += [
            (deed.number, deed.move)
            for deed in walks
            if deed.move is not None and deed.number < self.comparison.members
        ]
        publications = []
        for deed in said:
            if deed.number < COMPARED:
                self._said += 1
                attributes = APPLE if deed.picks_up else {}
                where = point(deed.x, deed.y)
                publications.append(
                    Publication(self._said, deed.number, now, where, attributes=attributes)
                )
        self.comparison.step(now, regions, publications)

    def _news(self, now: Time) -> GameStatus:
        return GameStatus(
            now, len(self.game.characters), self.comparison.members,
            self.comparison.publications, INTERVAL / 1000,
            max(0.0, (self.game.storm_until - now) / SECOND), list(self.comparison.tallies()),
        )  # fmt: skip


def _area(one: Character, now: Time) -> Area:
    """Its area of interest from now on: a walk if it is under way."""
    here, move = one.at(now), one.move
    if move.until <= now or not move.moves:
        return Area(here.x, here.y, rx=here.rx, ry=here.ry)
    there = move.at(move.until)
    speed = sum(v * v for v in move.velocity) ** 0.5
    return Area(here.x, here.y, rx=here.rx, ry=here.ry, to=[[there.x, there.y]], speed=speed)


async def play(url: str, count: int) -> None:
    await MammothBots(url, MammothRules(), Random()).run(count)


def main() -> None:
    try:
        uvloop.run(play(sys.argv[1], int(sys.argv[2])))
    except (KeyboardInterrupt, OSError):
        return  # the node has gone, and the game with it


if __name__ == "__main__":
    main()
