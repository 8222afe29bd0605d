"""A client of a node: `connect` over a WebSocket, or `World.join` in the same process.

    async with nearcast.connect("ws://127.0.0.1:8470", name="alice") as me:
        here = await me.subscribe(disc(0, 0, 50), watch=True)
        await me.publish(point(3, 4), {"hello": "world"}, retain=True)
        async for message in here:
            ...

The client remembers its subscriptions and retained states. When its connection breaks, it
reconnects, subscribes and publishes its states again; areas that move continue from where they are
by then. A request under way when the connection breaks fails (`ConnectionError`); one made while
there is no connection waits. What the node refuses raises `Refused` with the node's reason.

In a cluster, the client is handed over to the node that is responsible for its part of the world,
and reconnects to another node if its own is dead. The application sees this in `notices` only.

All this is decided by a `ClientCore`, which has no sockets. The client is its host: it opens links,
keeps timers, and gives answers to those who wait for them.
"""

import asyncio
import random
import ssl
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from msgspec import Struct

from nearcast.client import effects as do
from nearcast.client.core import ClientCore
from nearcast.client.effects import ClientEffect, ClientParameters
from nearcast.client.inbox import Inbox
from nearcast.client.received import DirectMessage, Disconnected, Entity, HandedOver, Message
from nearcast.client.request_checks import check_request, checked_attributes, checked_payload
from nearcast.client.subscription import Subscription
from nearcast.client.websocket import ClientLink, WebSocketLink
from nearcast.client_protocol import messages as wire
from nearcast.client_protocol.close_codes import ABNORMAL
from nearcast.client_protocol.geometry_json import (
    EARTH,
    Area,
    AreaLike,
    Geometry,
    area_from_region,
    as_region,
    publication_fields,
)
from nearcast.client_protocol.limits import PAIR_EVENT_NAMES
from nearcast.errors import InvalidRequestError
from nearcast.model.evolution import EvolutionKind
from nearcast.model.subscription import Region, Value
from nearcast.node import ClearTimer, SetTimer, Timer
from nearcast.space.earth_shapes import earth_point
from nearcast.space.motion import SECOND, Time
from nearcast.space.shapes import EVERYWHERE, Shape, point

if TYPE_CHECKING:
    from nearcast.client.client_trace import ClientTrace

__all__ = ["Client", "ClientNotice", "Disconnected", "HandedOver", "Reconnected", "connect"]

PARAMETERS = ClientParameters()
_COUNTS = {2: "two", 3: "two or three"}


def clock() -> Time:
    """The local monotonic clock, in microseconds."""
    return time.monotonic_ns() // 1000


class Reconnected(Struct, frozen=True):
    """All retained states are published, and all subscriptions in force again, except `refused`,
    which the node now refuses."""

    refused: list[Subscription]


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
    """A connection to a Nearcast node, or a peer of an overlay. Made by `connect`, `World.join` and
    `join`.

    `entity` is this client's number, under which others see it (`Message.source`, `Entity.entity`).
    `node` is the name of the node that serves it, `nodes` are the addresses of the others in the
    cluster, `limits` what the node allows, and `geometry` what coordinates are: "plane" or "earth".
    """

    def __init__(
        self, link: ClientLink, name: str, token: Token = "", reconnect: bool = False,
        trace: str | PathLike[str] | None = None,
        link_to: Callable[[str], ClientLink] | None = None,
    ) -> None:  # fmt: skip
        self.name = name
        self._core = ClientCore(
            name, random.Random(), reconnects=reconnect, changes_nodes=link_to is not None,
            encoding=link.encoding, parameters=PARAMETERS,
        )  # fmt: skip
        self._first_link = link  # to the address that the application gave
        self._link_to = link_to  # makes a link to another node's address
        self._token = token
        self._trace = trace
        self._client_trace: ClientTrace | None = None
        self._effects: deque[ClientEffect] = deque()  # not done yet
        self._performing = False
        self._links: dict[int, ClientLink] = {}  # by connection
        self._opening: dict[int, asyncio.Task[None]] = {}  # by connection
        self._closing: dict[ClientLink, asyncio.Task[None]] = {}
        self._timers: dict[Timer, asyncio.TimerHandle] = {}
        self._welcome: asyncio.Future[None] | None = None  # while it is opened
        self._answers: dict[int, asyncio.Future[Any]] = {}  # by the request's number
        self._subscriptions: dict[int, Subscription] = {}
        self._all_messages: Inbox[Message] | None = None
        self._notices: Inbox[ClientNotice] = Inbox(1_000)
        self._direct_messages: Inbox[DirectMessage] = Inbox(10_000)

    @property
    def entity(self) -> int:
        return self._core.entity

    @property
    def node(self) -> str:
        return self._core.node

    @property
    def nodes(self) -> list[str]:
        return self._core.nodes

    @property
    def limits(self) -> dict[str, float]:
        return self._core.limits

    @property
    def geometry(self) -> Geometry:
        return self._core.geometry

    async def open(self) -> "Client":
        """Connect and join. OSError or Refused if that fails: only later losses are repaired."""
        if self.entity < 0:
            if self._trace is not None and self._client_trace is None:
                from nearcast.client.client_trace import ClientTrace

                self._client_trace = ClientTrace(self._trace)
            self._welcome = asyncio.get_running_loop().create_future()
            try:
                self._perform(self._core.open(clock()))
                await self._welcome
            except BaseException:
                await self._disconnect()
                raise
        return self

    async def __aenter__(self) -> "Client":
        return await self.open()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Leave the node. All iterations end."""
        await self._disconnect()
        if self._client_trace is not None:
            await asyncio.to_thread(self._client_trace.close)

    async def _disconnect(self) -> None:
        self._perform(self._core.close(clock()))
        while tasks := [*self._opening.values(), *self._closing.values()]:
            await asyncio.wait(tasks)

    async def subscribe(
        self,
        where: AreaLike = EVERYWHERE,
        *,
        filter: str | None = None,  # noqa: A002
        channel: str = "",
        echo: bool = False,
        variables: dict[str, float] | None = None,
        watch: bool = False,
        linger: float | None = None,
        events: Sequence[wire.FenceEventName] = (),
        dwell: float | None = None,
        fences: str = "",
        follow: wire.EntityKey = "",
        follow_channel: str | None = None,
        offset: Sequence[float] = (),
        near: float | None = None,
        evolve: EvolutionKind | Literal[""] = "",
        interval: float | None = None,
        threshold: float | None = None,
        rates: Sequence[tuple[float, float]] = (),
        closest: int | None = None,
        budget: float | None = None,
        inbox: int = 10_000,
    ) -> Subscription:
        """Receive what is published in an area. Iterate over the result for its messages.

        `where`: a shape, a motion (`line`, `Moving`), a path, or a formula as text; without it,
        everywhere. `filter`: predicates over the publication's attributes, e.g. `"level >= 3"`.
        `channel`: only publications on this channel. `echo`: also what this client publishes
        itself. `variables`: values of variables in the formula or filter; `Subscription.tune`
        changes them. `watch`: keep track of the entities in the area: `Subscription.inside` and
        `changes()`. `events`: the area is a fence, and `Subscription.events()` tells these of
        "enter", "leave", "cross" (in and out between two publications), "inside", "outside" (at
        every publication), each at its own time; with `dwell`, also when an entity has been inside
        for so many seconds. `fences`: instead of an area, the fences of this set (`put_fences`);
        events tell which, and no messages are received. `follow`: the area goes where the retained
        state of this entity is, by its name or number, on `follow_channel` (without it, on the same
        channel); it is nowhere while there is none. The area is written relative to the entity: a
        disc around it is `disc(0, 0, r)`, on Earth `earth_disc(0, 0, r)`, beside which `offset` may
        be metres east and north. `near`: instead of an area, `events()` tells which entities with a
        state on this channel come within this distance of each other (`other` is the second one),
        go apart again, or did both between two publications; no messages are received. `linger`:
        seconds that an entity must be outside before it counts as gone: 0.3 with `watch`, 0 with
        `events`. `rates`: pairs (distance, messages per second): publishers farther away than the
        distance are limited to so many messages each. `closest`: only the so many closest
        publishers. `budget`: at most so many bytes per second. `inbox`: how many messages wait
        until they are taken; beyond it the oldest are dropped, and counted in
        `Subscription.dropped`. `evolve`: how brokers (`join("brokers")`) follow what moves: anew
        every `interval` seconds ("periodic"), at each publication ("lazy", "swept"), or if the last
        value is older than `threshold` seconds ("cached"); a node is always exact.
        """
        region = as_region(where)
        request = wire.SubscribeRequest(
            0, self._area(region), filter, channel, echo, variables or {},
            watch, linger, list(rates), closest, budget,
            events=list(events or (() if near is None else PAIR_EVENT_NAMES)), dwell=dwell,
            fences=fences, follow=follow, follow_channel=follow_channel, offset=list(offset),
            near=near, evolve=evolve, interval=interval, threshold=threshold,
        )  # fmt: skip
        check_request(request)
        follows_client = isinstance(where, Shape) and follow == ""
        return await self._subscribe(request, region, follows_client, Inbox(inbox))

    async def _subscribe(
        self, request: wire.SubscribeRequest, region: Region | str, follows_client: bool,
        received: Inbox[Message],
    ) -> Subscription:  # fmt: skip
        await self._writable()
        number, state, effects = self._core.subscribe(clock(), request, region, follows_client)
        subscription = Subscription(state, self.ask, self._change_area, self._forget, received)
        self._subscriptions[subscription.number] = subscription
        try:
            await self._answer(number, effects)
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
        ttl: float | None = None,
        confirm: bool = True,
    ) -> int:
        """Publish to every subscription whose area this point, disc or box touches.

        `where`: a shape, or the coordinates of a point: x, y and perhaps z; on Earth longitude,
        latitude and perhaps altitude.
        `payload`: any value that MessagePack can carry.
        `retain`: this is the state of the entity on the channel from now on, which `nearby` and
        watching subscriptions see.
        `attributes`: booleans, numbers and texts, which filters look at.
        `name`: publish as another entity of this name, which has its own number and states and
        exists from its first publication on. So one connection serves many NPCs or vehicles.
        `ttl`: the state ends by itself after so many seconds; until then it outlives this client's
        connection (but not in a cluster), and others see it.

        Returns the publication's number. With `confirm=False` it does not wait for the node's
        answer and returns 0; a refusal is then an `ErrorNotice` among the `notices`.
        """
        request = wire.PublishRequest(
            payload=checked_payload(self._first_link.encoding, payload), retain=retain,
            attributes=checked_attributes(attributes), channel=channel, name=name, ttl=ttl,
            **_place_fields(where, self._core.geometry),
        )  # fmt: skip
        link = await self._writable()
        if confirm:
            done = await self._answer(*self._core.request(clock(), request))
            return int(done.publication or 0)
        if link is not None:
            link.send(request)
            if retain:
                self._core.published(request)
        else:
            await self._answer(*self._core.request(clock(), request, confirm=False))
        return 0

    async def send(self, to: wire.EntityKey, payload: Any = None, *, name: str = "") -> int:
        """Send a message to one entity, by its name or number, wherever it is.

        All clients that are this entity, or publish for it, find it in their `direct_messages`,
        once each; nobody else hears it. `name`: send it as this entity, for which this client
        publishes. Returns the message's number when it is on its way. Refused if there is no such
        entity.
        """
        check_request(wire.SendRequest(to, name=name))
        packed = checked_payload(self._first_link.encoding, payload)
        await self._writable()
        request = wire.SendRequest(to, packed, name)
        done = await self._answer(*self._core.request(clock(), request))
        return int(done.publication or 0)

    def direct_messages(self) -> Inbox[DirectMessage]:
        """Messages that others have sent to this client alone (`send`), from its opening on. It
        keeps the last 10,000 that were not taken."""
        return self._direct_messages

    async def withdraw(self, channel: str | None = None, *, name: str = "") -> None:
        """End the retained state on this channel, or on all channels.

        With `name`, that of another entity of this client; without a channel, the entity leaves.
        """
        await self.ask(wire.WithdrawRequest(channel, name))

    async def put_fences(self, name: str, features: Mapping[str, Any]) -> None:
        """Make a set of fences have the features of this GeoJSON FeatureCollection and no others.

        Features keep their identity by their ids. Without any, the set ends. It must fit into one
        frame (`limits["frame"]`); larger ones go by HTTP: `PUT /fences/NAME`.
        """
        await self.ask(wire.FencesRequest(name, _feature_list(features), replace=True))

    async def change_fences(
        self,
        name: str,
        features: Mapping[str, Any] | None = None,
        remove: Sequence[wire.FeatureId] = (),
    ) -> None:
        """Put these features into a set of fences by their ids, and remove others."""
        put = [] if features is None else _feature_list(features)
        await self.ask(wire.FencesRequest(name, put, list(remove)))

    async def nearby(self, where: AreaLike, channel: str = "", limit: int = 100) -> list[Entity]:
        """The entities with a retained state in this area now, the closest first."""
        near = await self.ask(wire.NearbyRequest(self._area(as_region(where)), channel, limit))
        return [self._core.entity_of(entity) for entity in near.entities]

    async def move_to(self, place: Sequence[float], speed: float) -> float:
        """Move the area of every subscription that was made with a plain shape to `place`.

        The areas move in a straight line at `speed` units per second, each for one request: the
        node computes where they are. On Earth `place` is a longitude and a latitude, and discs go
        there along great circles, at metres per second; polygons, corridors and sectors stay.
        Subscriptions to a motion, a path, a formula or everywhere stay as they are, and so does
        this client's retained state. Returns the seconds until the last area arrives.
        """
        most = 2 if self._core.geometry == EARTH else 3
        if not 2 <= len(place) <= most:
            raise InvalidRequestError(f"a place to move to is {_COUNTS[most]} numbers")
        walks = self._core.walks(clock(), place, speed)
        await asyncio.gather(*(self._change_area(number, walk, True) for number, walk in walks))
        return max((sum(leg.duration or 0 for leg in w.legs) / SECOND for _, w in walks), default=0)

    def messages(self, inbox: int = 10_000) -> Inbox[Message]:
        """The messages of all subscriptions, each once, from the first call of this on."""
        if self._all_messages is None:
            self._all_messages = Inbox(inbox)
        return self._all_messages

    def notices(self) -> Inbox[ClientNotice]:
        """Events of the connection: `Disconnected`, `Reconnected` and `HandedOver`;
        `WithheldNotice` (messages withheld as asked), `DroppedNotice` (messages dropped because
        this client reads too slowly), and `ErrorNotice` (refusals that no call waits for, such as
        that of a retained state after `Disconnected`)."""
        return self._notices

    def now(self) -> Time:
        """The node's clock as estimated here, in microseconds of Unix time."""
        return self._core.node_time(clock())

    async def ask(self, request: Any) -> Any:
        """Send a request and wait for its answer. Refused says why the node does not accept it."""
        if not isinstance(request, wire.PublishRequest):
            check_request(request)
        await self._writable()
        return await self._answer(*self._core.request(clock(), request))

    # Requests and those who wait for their answers.

    async def _change_area(self, number: int, region: Region | str, follows: bool) -> None:
        request = wire.MoveRequest(number, self._area(region))
        check_request(request)
        await self._writable()
        await self._answer(*self._core.move(clock(), request, region, follows))

    def _area(self, region: Region | str) -> Area:
        return area_from_region(region, self._core.geometry)

    async def _writable(self) -> ClientLink | None:
        """The link to the node that serves us, when it has room; None while requests wait."""
        serving = self._core.serving
        if serving is None:
            return None
        link = self._links[serving]
        await link.writable()
        return link if self._core.serving == serving else None

    async def _answer(self, number: int, effects: list[ClientEffect]) -> Any:
        """Do this, and wait for the answer to the request."""
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        try:
            self._perform(effects)
            return await answer
        finally:
            del self._answers[number]
            if answer.cancelled():
                self._perform(self._core.abandon(clock(), number))

    def _forget(self, subscription: Subscription) -> None:
        self._subscriptions.pop(subscription.number, None)

    # What links and timers call.

    def _receive(self, connection: int, kind: type[Struct], notice: Any) -> None:
        if kind is wire.MessageNotice:  # first: most notices are messages
            if connection in self._links:
                message = self._core.message(connection, notice)
                if type(message) is Message and not self._performing:
                    self._deliver(message)
                elif message is not None:
                    self._perform([message])
            return
        if kind is wire.WelcomeNotice and (link := self._links.get(connection)) is not None:
            link.max_frame_bytes = int(notice.limits.get("frame", link.max_frame_bytes))
        elif kind is wire.DoneNotice and self._client_trace is not None:
            self._client_trace.answered(notice.id, notice.subscription)
        self._perform(self._core.received(clock(), connection, kind, notice))

    def _lost(self, connection: int, reason: str, code: int = ABNORMAL) -> None:
        self._links.pop(connection, None)
        self._perform(self._core.lost(clock(), connection, reason, code))

    def _wake(self, timer: Timer) -> None:
        del self._timers[timer]
        self._perform(self._core.wake(clock(), timer))

    async def _open(self, connection: int, link: ClientLink) -> None:
        try:
            if (closing := self._closing.get(link)) is not None:  # it was used before
                await asyncio.wait([closing])
            token = await self._current_token()  # first: a connection must join within seconds
            await link.open(partial(self._receive, connection), partial(self._lost, connection))
        except Exception as why:
            del self._opening[connection]
            self._links.pop(connection, None)
            self._perform(self._core.connect_failed(clock(), connection, why))
        else:
            del self._opening[connection]
            self._perform(self._core.connected(clock(), connection, token))

    async def _current_token(self) -> str:
        """The token as it is now. Without one, ConnectionError, as if there were no node."""
        if isinstance(self._token, str):
            return self._token
        try:
            token = self._token()
            return token if isinstance(token, str) else await token
        except Exception as why:
            raise ConnectionError(f"there is no token: {why}") from why

    # What the core asks for.

    def _perform(self, effects: Iterable[ClientEffect]) -> None:
        """Do all this. What a link answers at once is done after what was asked for before."""
        self._effects.extend(effects)
        if self._performing:
            return
        self._performing = True
        try:
            while self._effects:
                effect = self._effects.popleft()
                _ACTS[type(effect)](self, effect)
        finally:
            self._performing = False

    def _connect(self, effect: do.Connect) -> None:
        number, link = effect.connection, self._first_link
        if effect.url is not None:
            assert self._link_to is not None
            link = self._link_to(effect.url)
        self._links[number] = link
        self._opening[number] = asyncio.ensure_future(self._open(number, link))

    def _close_link(self, effect: do.Disconnect) -> None:
        link = self._links.pop(effect.connection, None)
        if link is None:
            return  # it was lost in the meantime
        closing = asyncio.ensure_future(
            _close_link(link, self._opening.pop(effect.connection, None))
        )
        self._closing[link] = closing
        closing.add_done_callback(lambda _: self._closing.pop(link, None))

    def _send(self, effect: do.Ask) -> None:
        request, link = effect.request, self._links.get(effect.connection)
        if self._client_trace is not None and isinstance(request, wire.SubscribeRequest):
            self._client_trace.subscribe_requested(effect.number, request.subscription)
        try:
            if link is None:
                raise ConnectionError("there is no connection")
            link.send(request)
        except (ConnectionError, InvalidRequestError) as why:
            self._failed(do.Failed(effect.number, why))
            self._effects.extend(self._core.not_sent(clock(), effect.number, why))

    def _set_timer(self, effect: SetTimer) -> None:
        self._clear_timer(effect)
        self._timers[effect.timer] = asyncio.get_running_loop().call_later(
            effect.delay / SECOND, self._wake, effect.timer
        )

    def _clear_timer(self, effect: SetTimer | ClearTimer) -> None:
        handle = self._timers.pop(effect.timer, None)
        if handle is not None:
            handle.cancel()

    def _answered(self, effect: do.Answered) -> None:
        answer = self._answers.get(effect.number)
        if answer is not None and not answer.done():
            answer.set_result(effect.notice)

    def _failed(self, effect: do.Failed) -> None:
        answer = self._answers.get(effect.number)
        if answer is not None and not answer.done():
            answer.set_exception(effect.why)

    def _deliver(self, message: Message, again: bool = False) -> None:
        if self._client_trace is not None:
            self._client_trace.delivered(
                max(self.now(), message.t), self.entity, message.publication, message.to
            )
        for number in message.to:
            subscription = self._subscriptions.get(number)
            if subscription is not None:
                subscription.messages.put(message)
        if self._all_messages is not None and not again:
            self._all_messages.put(message)

    def _changed(self, effect: do.Changed) -> None:
        subscription = self._subscriptions.get(effect.subscription)
        if subscription is not None:
            subscription.changed(effect.change)

    def _welcomed(self, effect: do.Welcomed) -> None:
        if self._client_trace is not None:
            self._client_trace.joined(self.now(), effect.entity)
        if self._welcome is not None and not self._welcome.done():
            self._welcome.set_result(None)

    def _subscription_ended(self, effect: do.SubscriptionEnded) -> None:
        """It is kept until `Reconnected` names it."""
        subscription = self._subscriptions.get(effect.subscription)
        if subscription is not None:
            subscription.end(effect.why)

    def _served_again(self, effect: do.ServedAgain) -> None:
        refused = [self._subscriptions.pop(number, None) for number in effect.refused]
        self._notices.put(Reconnected([one for one in refused if one is not None]))

    def _ended(self, effect: do.Ended) -> None:
        for handle in self._timers.values():
            handle.cancel()
        self._timers.clear()
        if self._welcome is not None and not self._welcome.done():
            self._welcome.set_exception(effect.why or ConnectionError("this client has left"))
        for subscription in self._subscriptions.values():
            subscription.end(effect.why)
        for inbox in (self._all_messages, self._notices, self._direct_messages):
            if inbox is not None:
                inbox.end(effect.why)


_ACTS: dict[type, Callable[[Client, Any], None]] = {
    Message: Client._deliver,
    DirectMessage: lambda client, effect: client._direct_messages.put(effect),
    do.Again: lambda client, effect: client._deliver(effect.message, again=True),
    do.Connect: Client._connect,
    do.Disconnect: Client._close_link,
    do.Ask: Client._send,
    SetTimer: Client._set_timer,
    ClearTimer: Client._clear_timer,
    do.Answered: Client._answered,
    do.Failed: Client._failed,
    do.Changed: Client._changed,
    do.Welcomed: Client._welcomed,
    do.SubscriptionEnded: Client._subscription_ended,
    do.ServedAgain: Client._served_again,
    do.Told: lambda client, effect: client._notices.put(effect.notice),
    do.Ended: Client._ended,
}


async def _close_link(link: ClientLink, opening: "asyncio.Task[None] | None") -> None:
    """Close a link, or give up opening it."""
    if opening is not None:
        opening.cancel()
        await asyncio.wait([opening])
    await link.close()


def _feature_list(collection: Mapping[str, Any]) -> list[Any]:
    """Of a FeatureCollection. What only looks like none would end the set."""
    if isinstance(collection, Mapping) and isinstance(collection.get("features"), list | tuple):
        return list(collection["features"])
    raise InvalidRequestError(
        "fences are a GeoJSON FeatureCollection, an object with a list of features"
    )


def _place_fields(where: Shape | Sequence[float], geometry: Geometry) -> dict[str, Any]:
    """Where a publication is made, as fields of its request."""
    if not isinstance(where, Shape):
        if not 2 <= len(where) <= 3:
            raise InvalidRequestError("a place is two or three numbers")
        if geometry == EARTH:
            earth_point(*where)  # a ValueError, if it is none; degrees are sent as they were given
            return dict(zip(("lon", "lat", "alt"), map(float, where), strict=False))
        where = point(*where)
    if where == EVERYWHERE:
        raise InvalidRequestError("a publication has a place")
    try:
        return publication_fields(where, geometry)
    except ValueError as why:
        raise InvalidRequestError(str(why)) from None


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

    `name` is what others see. `token` is a text, or a function that returns one or an awaitable of
    one: it is called each time the client joins, so that a client reconnects with a new token when
    the old one has expired. `reconnect=False`: when the connection breaks, iterations and requests
    raise `ConnectionError` instead. `tls` is for certificates that this machine does not trust.
    `trace` is a folder in which the client records what it receives; `nearcast merge` joins it with
    the node's trace.
    """
    link = WebSocketLink(url, tls)
    return Client(link, name, token, reconnect, trace, lambda other: WebSocketLink(other, tls))
