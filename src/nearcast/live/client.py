"""A client of a live node: `connect` over a WebSocket, or `World.join` in the same process.

    async with nearcast.connect("ws://127.0.0.1:8470", name="alice") as me:
        here = await me.subscribe(disc(0, 0, 50), watch=True)
        await me.publish(point(3, 4), {"hello": "world"}, retain=True)
        async for message in here:
            ...

What was asked for is kept, so that a client whose connection breaks comes back by itself and
subscribes again to what it listened to: areas that move go on from where they are by then. A
request under way when the connection breaks fails (`ConnectionError`); one made while there is
none waits. Whatever the node refuses is a `Refused`, with the node's reason.
"""

import asyncio
import random
import ssl
import time
from collections.abc import Sequence
from contextlib import suppress
from os import PathLike
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Struct
from msgspec.structs import astuple, replace

from nearcast.live import words
from nearcast.live.admission import Refused
from nearcast.live.inbox import Inbox
from nearcast.live.listening import Entity, Message, Subscription
from nearcast.live.regions import Where, area_of, region_of
from nearcast.live.websocket import Link, WebSocket
from nearcast.model.subscription import Value
from nearcast.space.motion import SECOND, Moving, Path, Time, path
from nearcast.space.shapes import EVERYWHERE, Shape, point

if TYPE_CHECKING:
    from nearcast.live.diary import Diary

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 10.0  # before a first and a later attempt to come back
ANSWER_S = 30.0  # a node that has not answered by then is given up


class Disconnected(Struct, frozen=True):
    reason: str


class Reconnected(Struct, frozen=True):
    """Everything is subscribed again, but for these, which the node now refuses."""

    refused: list[Subscription]


Notice: TypeAlias = Disconnected | Reconnected | words.Withheld | words.Dropped | words.Error


class Client:
    """Whoever has joined a node. See `connect` and `World.join`."""

    def __init__(
        self, link: Link, name: str, token: str = "", reconnect: bool = False,
        trace: str | PathLike[str] | None = None,
    ) -> None:  # fmt: skip
        self.name = name
        self.entity = -1  # until the node has said who we are
        self.node = ""
        self.limits: dict[str, float] = {}
        self._link = link
        self._token = token
        self._reconnects = reconnect
        self._trace = trace
        self._diary: Diary | None = None
        self._subscriptions: dict[int, Subscription] = {}
        self._asked: dict[int, asyncio.Future[Any]] = {}
        self._numbers = 0
        self._ids = 0
        self._ahead: Time | None = None  # of the node's clock over ours
        self._joined = asyncio.Event()
        self._broken = False
        self._ended: Exception | None = None
        self._returning: asyncio.Task[None] | None = None
        self._bye = ""
        self._all: Inbox[Message] | None = None
        self._notices: Inbox[Notice] = Inbox(1_000)

    async def open(self) -> "Client":
        """Connect and join. OSError or Refused if that fails; only later losses are made good."""
        if not self._joined.is_set():
            try:
                if self._trace is not None and self._diary is None:
                    from nearcast.live.diary import Diary

                    self._diary = Diary(self._trace)
                await self._join()
            except BaseException:
                await self._link.close()
                raise
            self._joined.set()
        return self

    async def __aenter__(self) -> "Client":
        return await self.open()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Leave. All iterations end."""
        if self._returning is not None:
            self._returning.cancel()
            await asyncio.gather(self._returning, return_exceptions=True)
        self._end(None, ConnectionError("this client has left"))
        with suppress(ConnectionError):  # it may just have been lost
            self._link.send(words.Leave())
        await self._link.close()
        if self._diary is not None:
            await asyncio.to_thread(self._diary.close)

    async def subscribe(
        self,
        where: Where = EVERYWHERE,
        *,
        filter: str | None = None,  # noqa: A002
        channel: str = "",
        echo: bool = False,
        variables: dict[str, float] | None = None,
        watch: bool = False,
        linger: float = 0.3,
        rates: Sequence[tuple[float, float]] = (),
        closest: int | None = None,
        budget: float | None = None,
        inbox: int = 10_000,
    ) -> Subscription:
        """Listen to an area: a shape, a motion, a path, or a formula as text.

        `inbox` is how many messages wait here to be taken; beyond it the oldest are given up, and
        counted in `dropped`. All else is as in `docs/reference/wire.md`, `subscribe`.
        """
        region = region_of(where)
        await self._ready()
        self._numbers += 1
        request = words.Subscribe(
            self._numbers, area_of(region), filter, channel, echo, variables or {},
            watch, linger, list(rates), closest, budget,
        )  # fmt: skip
        subscription = Subscription(self.ask, self._forget, request, region, inbox)
        self._subscriptions[subscription.number] = subscription  # its messages may come first
        try:
            done = await self._request(request)
        except BaseException:
            self._forget(subscription)
            raise
        subscription.placed(region, isinstance(where, Shape), done.t)
        if watch:
            await subscription.known.wait()
        return subscription

    async def publish(
        self,
        where: Shape | Sequence[float],
        payload: Any = None,
        *,
        retain: bool = False,
        attributes: dict[str, Value] | None = None,
        channel: str = "",
        confirm: bool = True,
    ) -> int:
        """Say something to everyone whose area this point, disc or box touches.

        Returns the publication's number. Without `confirm` it does not wait for the node's answer
        and returns 0; a refusal is then an `Error` among the `notices`.
        """
        s = where if isinstance(where, Shape) else point(*where)
        a = area_of(Moving(s))
        if a.x is None or a.y is None:
            raise ValueError("a publication has a place")
        request = words.Publish(
            a.x, a.y, self._link.form.seal(payload), retain, attributes or {}, channel,
            a.z, a.r, a.rx, a.ry, a.rz,
        )  # fmt: skip
        if confirm:
            done = await self.ask(request)
            return int(done.publication or 0)
        await self._ready()
        self._link.send(request)
        return 0

    async def nearby(self, where: Where, channel: str = "", limit: int = 100) -> list[Entity]:
        """Who is in this area now, the closest first."""
        near = await self.ask(words.Nearby(area_of(region_of(where)), channel, limit))
        return [self._entity(entity) for entity in near.entities]

    async def move_to(self, place: Sequence[float], speed: float) -> float:
        """Walk: every subscription to a shape goes there by itself, at `speed` units per second.

        It takes one request for each, however long the way: the area moves, not the client's
        messages. Returns the seconds until the last one arrives.
        """
        now = self.now()
        walks: list[tuple[Subscription, Path]] = []
        for subscription in self._subscriptions.values():
            here = subscription.where(now)
            if subscription.walks and here is not None and here != EVERYWHERE:
                x, y, z = (*place, here.z)[:3]
                walks.append((subscription, path(here, [(x, y, z)], speed)))
        await asyncio.gather(*(subscription.go(walk, True) for subscription, walk in walks))
        return max((sum(leg.duration or 0 for leg in w.legs) / SECOND for _, w in walks), default=0)

    def messages(self, inbox: int = 10_000) -> Inbox[Message]:
        """All messages of all subscriptions, each once, from the first time this is called."""
        if self._all is None:
            self._all = Inbox(inbox)
        return self._all

    def notices(self) -> Inbox[Notice]:
        """What the application should know: connection lost and back, messages withheld by
        request or dropped because it reads too slowly, refusals that no request waits for."""
        return self._notices

    def now(self) -> Time:
        """The node's clock, as well as we know it: what the fastest of its words implied."""
        return _clock() + (self._ahead or 0)

    async def ask(self, request: Any) -> Any:
        """Send a request and wait for its answer."""
        await self._ready()
        return await self._request(request)

    def _forget(self, subscription: Subscription) -> None:
        self._subscriptions.pop(subscription.number, None)

    async def _ready(self) -> None:
        if not self._joined.is_set():
            await self._joined.wait()
        if self._ended is not None:
            raise self._ended
        await self._link.writable()

    async def _request(self, request: Any) -> Any:
        self._ids += 1
        number = self._ids
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._asked[number] = answer
        if self._diary is not None and isinstance(request, words.Subscribe):
            self._diary.asks(number, request.subscription)
        try:
            self._link.send(replace(request, id=number))
            return await asyncio.wait_for(answer, ANSWER_S)
        except TimeoutError:
            raise ConnectionError("the node does not answer") from None
        finally:
            del self._asked[number]

    async def _join(self) -> None:
        self._ahead, self._broken = None, False
        await self._link.open(self._receive, self._lost)
        welcome = await self._request(words.Join(self.name, self._token))
        self.entity, self.node, self.limits = welcome.entity, welcome.node, welcome.limits
        self._link.most = int(welcome.limits.get("frame", self._link.most))
        if self._diary is not None:
            self._diary.joined(self.now(), self.entity)
        if self._broken:
            raise ConnectionError("the connection is lost")

    def _lost(self, reason: str) -> None:
        if self._ended is not None:
            return
        why = ConnectionError(self._bye or reason or "the connection is lost")
        self._bye, self._broken = "", True
        self._fail(why)
        if not self._joined.is_set():
            return  # whoever is joining learns it from that request
        if not self._reconnects:
            self._end(why, why)
            return
        self._joined.clear()
        self._notices.put(Disconnected(str(why)))
        self._returning = asyncio.ensure_future(self._return())

    async def _return(self) -> None:
        """Come back: again and again, after growing pauses of random length (no stampede)."""
        pause = FIRST_PAUSE_S
        while True:
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(2 * pause, LONGEST_PAUSE_S)
            try:
                await self._join()
                refused = [
                    s for s in list(self._subscriptions.values()) if not await self._again(s)
                ]
                if self._broken:
                    raise ConnectionError("lost again")
            except OSError:
                await self._link.close()
                continue
            except Refused as why:  # to let us in
                self._end(why, why)
                await self._link.close()
                return
            self._joined.set()
            self._notices.put(Reconnected(refused))
            return

    async def _again(self, subscription: Subscription) -> bool:
        request, region = subscription.resumed(self.now())
        try:
            done = await self._request(request)
        except ValueError as why:
            self._forget(subscription)
            subscription.end(why)
            return False
        if request.area.formula is None:
            subscription.placed(region, subscription.walks, done.t)
        return True

    def _end(self, why: Exception | None, later: Exception) -> None:
        """Nothing more comes: iterations end, with `why` if there is one; requests fail."""
        if self._ended is None:
            self._ended = later
            self._joined.set()
            self._fail(later)
            for subscription in self._subscriptions.values():
                subscription.end(why)
            for inbox in (self._all, self._notices):
                if inbox is not None:
                    inbox.end(why)

    def _fail(self, why: Exception) -> None:
        for answer in self._asked.values():
            if not answer.done():
                answer.set_exception(why)

    # What the node says.

    def _receive(self, kind: type[Struct], word: Any) -> None:
        if kind is words.Message:
            self._heard(word)
        elif kind is words.Error and word.id is not None:
            self._answer(word.id, Refused(word.reason))
        elif kind in (words.Done, words.Welcome, words.Near):
            if kind is not words.Near:
                ahead = word.t - _clock()
                self._ahead = ahead if self._ahead is None else max(self._ahead, ahead)
            if self._diary is not None and kind is words.Done:
                self._diary.answered(word.id, word.subscription)
            self._answer(word.id, word)
        elif kind in (words.Inside, words.Enter, words.Left):
            subscription = self._subscriptions.get(word.subscription)
            if subscription is None:
                return  # it ended while this was on its way
            if kind is words.Inside:
                subscription.found([self._entity(entity) for entity in word.entities])
            elif kind is words.Enter:
                subscription.entered(self._entity(word.entity))
            else:
                subscription.left(word.entity, word.gone)
        elif kind is words.Bye:
            self._bye = word.reason
        else:
            notice: Any = kind(*astuple(word))
            self._notices.put(notice)

    def _answer(self, number: int | None, answer: Any) -> None:
        waiting = None if number is None else self._asked.get(number)
        if waiting is None or waiting.done():
            return
        if isinstance(answer, Exception):
            waiting.set_exception(answer)
        else:
            waiting.set_result(answer)

    def _heard(self, word: Any) -> None:
        message = Message(
            word.source, word.publication, word.t,
            word.x, word.y, word.z, word.r, word.rx, word.ry, word.rz,
            self._link.form.open(word.payload), word.attributes, word.channel, word.retain, word.to,
        )  # fmt: skip
        if self._diary is not None:
            self._diary.heard(max(self.now(), word.t), self.entity, word.publication, word.to)
        for number in word.to:
            subscription = self._subscriptions.get(number)
            if subscription is not None:
                subscription.seen(message)
                subscription.messages.put(message)
        if self._all is not None:
            self._all.put(message)

    def _entity(self, e: words.Entity) -> Entity:
        payload = self._link.form.open(e.payload)
        return Entity(e.entity, e.t, e.x, e.y, e.z, e.name, e.attributes, payload)


def connect(
    url: str,
    *,
    name: str = "",
    token: str = "",
    reconnect: bool = True,
    tls: ssl.SSLContext | None = None,
    trace: str | PathLike[str] | None = None,
) -> Client:
    """A client of the node at `ws://host:port` or `wss://host:port`, to be used `async with`.

    `tls` is for certificates that this machine does not trust by itself. `trace` is a folder in
    which the client records what it hears; `nearcast merge` puts it into the node's own trace.
    """
    return Client(WebSocket(url, tls), name, token, reconnect, trace)


def _clock() -> Time:
    return time.monotonic_ns() // 1000
