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

In a cluster, a client is handed over to the node in whose part of the world it has gone, and comes
back to another node when its own is dead. Only the notices tell.
"""

import asyncio
import random
import ssl
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from itertools import count
from os import PathLike
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Struct
from msgspec.structs import astuple

from nearcast.client.inbox import Inbox, RecentPublications
from nearcast.client.request_channel import ANSWER_S, RequestChannel, clock
from nearcast.client.request_checks import check_request, checked_attributes, checked_payload
from nearcast.client.subscription import Entity, Message, Subscription
from nearcast.client.websocket import ClientLink, WebSocketLink
from nearcast.client_protocol import messages as wire
from nearcast.client_protocol.close_codes import ABNORMAL
from nearcast.client_protocol.geometry_json import AreaLike, area_from_region, as_region
from nearcast.errors import InvalidRequestError, Refused
from nearcast.model.subscription import Value
from nearcast.space.motion import SECOND, Moving, Path, Time, path
from nearcast.space.shapes import EVERYWHERE, Shape, point

if TYPE_CHECKING:
    from nearcast.client.client_trace import ClientTrace

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 10.0  # before a first and a later attempt to come back
TRY_S = 2.0  # and the pause: for one of several nodes to let us in, before the next is tried
HANDOVER_S = 5.0  # for another node to let us in; after that we stay where we are
FORMER_NODE_S = 10.0  # for a node that we have left to pass on what it still has for us
HOLD_BACK_S = 0.25  # for what the new node says to wait for what the former one had said before
REMEMBERED_PUBLICATIONS = 4_096  # publications, of which we know that we had them


class Disconnected(Struct, frozen=True):
    """The connection has ended. `code` is its WebSocket close code; 1006 if it just broke."""

    reason: str
    code: int = ABNORMAL


class Reconnected(Struct, frozen=True):
    """Everything is subscribed again, but for these, which the node now refuses."""

    refused: list[Subscription]


class HandedOver(Struct, frozen=True, tag_field="is", tag="handed over"):
    """Another node serves us now. We are the same entity, and nothing was lost."""

    node: str  # what it calls itself
    url: str


Token: TypeAlias = str | Callable[[], str | Awaitable[str]]
ClientNotice: TypeAlias = (
    Disconnected
    | Reconnected
    | HandedOver
    | wire.WithheldNotice
    | wire.DroppedNotice
    | wire.ErrorNotice
)


class Client:
    """Whoever has joined a node. See `connect` and `World.join`."""

    def __init__(
        self, link: ClientLink, name: str, token: Token = "", reconnect: bool = False,
        trace: str | PathLike[str] | None = None, elsewhere: Callable[[str],
        ClientLink] | None = None,
    ) -> None:  # fmt: skip
        self.name = name
        self.entity = -1  # until the node has said who we are
        self.node = ""
        self.nodes: list[str] = []  # addresses of others in the cluster
        self.limits: dict[str, float] = {}
        self._elsewhere = elsewhere  # a link to another address
        self._token = token
        self._reconnects = reconnect
        self._trace = trace
        self._diary: ClientTrace | None = None
        self._subscriptions: dict[int, Subscription] = {}
        self._numbers = 0
        self._ids = count(1)
        self._talk = self._conversation(link)  # with the node that serves us, or did last
        self._serving = asyncio.Event()  # not while we join, come back or are handed over
        self._moving = False
        self._former: RequestChannel | None = None  # with the node that we have just left
        self._held: list[tuple[RequestChannel, Any]] = []  # messages that are to come after its own
        self._lately: RecentPublications | None = None
        self._ended: Exception | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._all: Inbox[Message] | None = None
        self._notices: Inbox[ClientNotice] = Inbox(1_000)

    async def open(self) -> "Client":
        """Connect and join. OSError or Refused if that fails; only later losses are made good."""
        if not self._serving.is_set():
            try:
                if self._trace is not None and self._diary is None:
                    from nearcast.client.client_trace import ClientTrace

                    self._diary = ClientTrace(self._trace)
                await self._join(self._talk)
            except BaseException:
                await self._talk.close()
                raise
            self._serving.set()
        return self

    async def __aenter__(self) -> "Client":
        return await self.open()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Leave. All iterations end."""
        while self._tasks:  # one that ends may have begun another
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
        self._end(None, ConnectionError("this client has left"))
        with suppress(ConnectionError):  # it may just have been lost
            self._talk.link.send(wire.LeaveRequest())
        await self._talk.close()
        if self._diary is not None:
            await asyncio.to_thread(self._diary.close)

    async def subscribe(
        self,
        where: AreaLike = EVERYWHERE,
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
        region = as_region(where)
        self._numbers += 1
        request = wire.SubscribeRequest(
            self._numbers, area_from_region(region), filter, channel, echo, variables or {},
            watch, linger, list(rates), closest, budget,
        )  # fmt: skip
        check_request(request)
        await self._ready()
        subscription = Subscription(self.ask, self._forget, request, region, inbox)
        self._subscriptions[subscription.number] = subscription  # its messages may come first
        try:
            done = await self._request(request)
            subscription.placed(region, isinstance(where, Shape), done.t)
            if watch:
                await asyncio.wait_for(subscription.known.wait(), ANSWER_S)
        except TimeoutError:
            self._forget(subscription)
            raise ConnectionError("the node does not say who is inside") from None
        except BaseException:
            self._forget(subscription)
            raise
        return subscription

    async def publish(
        self,
        where: Shape | Sequence[float],
        payload: Any = None,
        *,
        retain: bool = False,
        attributes: dict[str, Value] | None = None,
        channel: str = "",
        name: str = "",
        confirm: bool = True,
    ) -> int:
        """Say something to everyone whose area this point, disc or box touches.

        With `name`, another entity says it, for which this client speaks: it has states of its
        own, and begins with its first publication. So one connection serves many NPCs or vehicles.

        Returns the publication's number. Without `confirm` it does not wait for the node's answer
        and returns 0; a refusal is then an `ErrorNotice` among the `notices`.
        """
        s = where if isinstance(where, Shape) else _point(where)
        a = area_from_region(Moving(s))
        if a.x is None or a.y is None:
            raise ValueError("a publication has a place")
        request = wire.PublishRequest(
            a.x, a.y, checked_payload(self._talk.link.form, payload), retain,
            checked_attributes(attributes), channel, a.z, a.r, a.rx, a.ry, a.rz, name=name,
        )  # fmt: skip
        if confirm:
            done = await self.ask(request)
            return int(done.publication or 0)
        await self._ready()
        self._talk.link.send(request)
        return 0

    async def withdraw(self, channel: str | None = None, *, name: str = "") -> None:
        """Take back the retained state on this channel, or on all channels.

        With `name`, that of an entity for which this client speaks; without a channel it leaves.
        """
        await self.ask(wire.WithdrawRequest(channel, name))

    async def nearby(self, where: AreaLike, channel: str = "", limit: int = 100) -> list[Entity]:
        """Who is in this area now, the closest first."""
        near = await self.ask(
            wire.NearbyRequest(area_from_region(as_region(where)), channel, limit)
        )
        return [self._entity(self._talk, entity) for entity in near.entities]

    async def move_to(self, place: Sequence[float], speed: float) -> float:
        """Walk: every subscription to a shape goes there by itself, at `speed` units per second.

        It takes one request for each, however long the way: the area moves, not the client's
        messages. Returns the seconds until the last one arrives.
        """
        if not 2 <= len(place) <= 3:
            raise InvalidRequestError("a place to go to is two or three numbers")
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

    def notices(self) -> Inbox[ClientNotice]:
        """What the application should know: connection lost and back, handed over, messages
        withheld by request or dropped because it reads too slowly, refusals that nobody awaits."""
        return self._notices

    def now(self) -> Time:
        """The node's clock, as well as we know it: what the fastest of its words implied."""
        return clock() + (self._talk.ahead or 0)

    async def ask(self, request: Any) -> Any:
        """Send a request and wait for its answer."""
        if not isinstance(request, wire.PublishRequest):
            check_request(request)
        await self._ready()
        return await self._request(request)

    def _forget(self, subscription: Subscription) -> None:
        self._subscriptions.pop(subscription.number, None)

    async def _ready(self) -> None:
        while True:
            await self._serving.wait()
            if self._ended is not None:
                raise self._ended
            await self._talk.link.writable()
            if self._serving.is_set():
                return

    async def _request(self, request: Any) -> Any:
        number = next(self._ids)
        if self._diary is not None and isinstance(request, wire.SubscribeRequest):
            self._diary.asks(number, request.subscription)
        return await self._talk.ask(number, request)

    # Coming, coming back, and going on to another node.

    def _conversation(self, link: ClientLink) -> RequestChannel:
        return RequestChannel(link, self._receive, self._lost)

    def _begin(self, act: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(act)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _join(self, talk: RequestChannel, ticket: str = "") -> None:
        """When it is welcomed, this is the conversation with the node that serves us."""
        token = await self._present_token()  # first: a connection must join within seconds
        await talk.open()
        await self._talk.settled()
        await talk.ask(next(self._ids), wire.JoinRequest(self.name, token, ticket=ticket))
        if talk.over is not None:
            raise talk.over
        if self._talk is not talk:
            raise ConnectionError("the node takes us for somebody else")

    async def _present_token(self) -> str:
        """The token as it is now. If it cannot be had, that is as if the node could not be."""
        if isinstance(self._token, str):
            return self._token
        try:
            token = self._token()
            return token if isinstance(token, str) else await token
        except Exception as why:
            raise ConnectionError(f"there is no token: {why}") from why

    def _welcomed(self, talk: RequestChannel, word: Any) -> None:
        talk.link.most = int(word.limits.get("frame", talk.link.most))
        if self._moving and word.entity != self.entity:
            return
        if self._moving:  # the former node goes on until it has nothing left for us
            self._begin(self._talk.ended(FORMER_NODE_S))
            if self._former is not None:
                self._release(self._former)
            self._former = self._talk
            asyncio.get_running_loop().call_later(HOLD_BACK_S, self._release, self._talk)
        self._talk = talk
        self.entity, self.node, self.limits = word.entity, word.node, word.limits
        self._know(word.nodes)
        if self._diary is not None and not self._moving:
            self._diary.joined(self.now(), self.entity)

    def _release(self, former: RequestChannel) -> None:
        """It has said what it had to say: now comes what the other one said meanwhile."""
        if former is self._former:
            held, self._former, self._held = self._held, None, []
            for talk, word in held:
                self._heard(talk, word)

    def _know(self, nodes: list[str]) -> None:
        """A single node never says anything twice: only in a cluster need we remember."""
        self.nodes = nodes
        if nodes and self._lately is None:
            self._lately = RecentPublications(REMEMBERED_PUBLICATIONS)

    def _lost(self, talk: RequestChannel) -> None:
        """If it was not ours, or we are about to leave it, whoever cares looks by himself."""
        self._release(talk)
        why = talk.over
        if why is None or talk is not self._talk or not self._serving.is_set() or self._ended:
            return
        if not self._reconnects:
            self._end(why, why)
            return
        self._serving.clear()
        self._notices.put(Disconnected(why.reason, why.code))
        self._begin(self._return())

    async def _return(self) -> None:
        """Come back: again and again, after growing pauses of random length (no stampede)."""
        pause = FIRST_PAUSE_S
        while True:
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            links, refusals = self._ways(), list[Refused]()
            patience = TRY_S + pause if len(links) > 1 else None
            for link in links:
                talk = self._conversation(link)
                try:
                    async with asyncio.timeout(patience):
                        await self._join(talk)
                    known = list(self._subscriptions.values())
                    refused = [s for s in known if not await self._again(s)]
                    if talk.over is not None:
                        raise talk.over
                except OSError:
                    await talk.close()
                except Refused as why:  # to let us in
                    refusals.append(why)
                    await talk.close()
                else:
                    self._serving.set()
                    self._notices.put(Reconnected(refused))
                    return
            if len(refusals) == len(links):
                self._end(refusals[0], refusals[0])
                return
            pause = min(2 * pause, LONGEST_PAUSE_S)

    def _ways(self) -> list[ClientLink]:
        """To the node that served us last, and to the others that we know, in any order."""
        if self._elsewhere is None:
            return [self._talk.link]
        others = random.sample(self.nodes, len(self.nodes))
        return [self._talk.link, *map(self._elsewhere, others)]

    async def _hand_over(self, link: ClientLink, moved: Any) -> None:
        """Join the other node; until it has welcomed us, nothing has changed.

        Requests wait meanwhile, so that no node obeys a later one before an earlier one. What we
        had from one node and get from the other again is known by its number.
        """
        talk = self._conversation(link)
        self._serving.clear()
        self._moving = True
        try:
            async with asyncio.timeout(HANDOVER_S):
                await self._join(talk, moved.ticket)
        except (OSError, Refused):
            pass
        finally:
            self._moving = False
            if self._talk is not talk:
                await talk.close()
        self._serving.set()
        if self._talk is talk:
            self._notices.put(HandedOver(self.node, moved.to))
        self._lost(self._talk)  # if it was, meanwhile

    async def _again(self, subscription: Subscription) -> bool:
        request, region = subscription.resumed(self.now())
        try:
            done = await self._request(request)
        except Refused as why:
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
            self._serving.set()
            self._talk.fail(later)
            for subscription in self._subscriptions.values():
                subscription.end(why)
            for inbox in (self._all, self._notices):
                if inbox is not None:
                    inbox.end(why)

    # What the node says.

    def _receive(self, talk: RequestChannel, kind: type[Struct], word: Any) -> None:
        if kind is wire.MessageNotice:
            self._heard(talk, word)
        elif kind is wire.WelcomeNotice:
            self._welcomed(talk, word)
        elif kind is wire.DoneNotice:
            if self._diary is not None:
                self._diary.answered(word.id, word.subscription)
        elif kind in (
            wire.InsideNotice,
            wire.EnterNotice,
            wire.LeaveNotice,
            wire.MovedNotice,
            wire.NodesNotice,
        ):
            if talk is self._talk:  # of these, only the node that serves us knows
                self._learn(talk, kind, word)
        elif kind is not wire.NearbyNotice:
            notice: Any = kind(*astuple(word))
            self._notices.put(notice)

    def _learn(self, talk: RequestChannel, kind: type[Struct], word: Any) -> None:
        if kind is wire.NodesNotice:
            self._know(word.nodes)
            return
        if kind is wire.MovedNotice:
            if self._elsewhere is not None and self._serving.is_set():
                self._know(self.nodes or [word.to])
                self._begin(self._hand_over(self._elsewhere(word.to), word))
            return
        subscription = self._subscriptions.get(word.subscription)
        if subscription is None:
            return  # it ended while this was on its way
        if kind is wire.InsideNotice:
            subscription.found([self._entity(talk, entity) for entity in word.entities])
        elif kind is wire.EnterNotice:
            subscription.entered(self._entity(talk, word.entity))
        else:
            subscription.left(word.entity, word.gone)

    def _heard(self, talk: RequestChannel, word: Any) -> None:
        if self._former is not None and talk is not self._former:
            self._held.append((talk, word))
            return
        to, again = word.to, False
        if self._lately is not None:
            to, again = self._lately.new(word.publication, to)
            if again and not to:
                return
        message = Message(
            word.source, word.publication, word.t,
            word.x, word.y, word.z, word.r, word.rx, word.ry, word.rz,
            talk.link.form.try_decode_payload(word.payload), word.attributes, word.channel,
            word.retain, to,
        )  # fmt: skip
        if self._diary is not None:
            self._diary.heard(max(self.now(), word.t), self.entity, word.publication, to)
        for number in to:
            subscription = self._subscriptions.get(number)
            if subscription is not None:
                subscription.seen(message)
                subscription.messages.put(message)
        if self._all is not None and not again:
            self._all.put(message)

    def _entity(self, talk: RequestChannel, e: wire.EntityState) -> Entity:
        payload = talk.link.form.try_decode_payload(e.payload)
        return Entity(e.entity, e.t, e.x, e.y, e.z, e.name, e.attributes, payload)


def _point(place: Sequence[float]) -> Shape:
    if not 2 <= len(place) <= 3:
        raise InvalidRequestError("a place is two or three numbers")
    return point(*place)


def connect(
    url: str,
    *,
    name: str = "",
    token: Token = "",
    reconnect: bool = True,
    tls: ssl.SSLContext | None = None,
    trace: str | PathLike[str] | None = None,
) -> Client:
    """A client of the node at `ws://host:port` or `wss://host:port`, to be used `async with`.

    `token` is a text, or a function that gives one, perhaps by `await`: it is asked each time the
    client joins, so that a client whose token has expired comes back with a new one.
    `tls` is for certificates that this machine does not trust by itself. `trace` is a folder in
    which the client records what it hears; `nearcast merge` puts it into the node's own trace.
    """
    link = WebSocketLink(url, tls)
    return Client(link, name, token, reconnect, trace, lambda other: WebSocketLink(other, tls))
