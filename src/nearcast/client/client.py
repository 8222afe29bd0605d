"""A client of a node: `connect` over a WebSocket, or `World.join` in the same process.

    async with nearcast.connect("ws://127.0.0.1:8470", name="alice") as me:
        here = await me.subscribe(disc(0, 0, 50), watch=True)
        await me.publish(point(3, 4), {"hello": "world"}, retain=True)
        async for message in here:
            ...

The client remembers its subscriptions. When its connection breaks, it reconnects and subscribes
again; areas that move continue from where they are by then. A request under way when the connection
breaks fails (`ConnectionError`); one made while there is no connection waits. What the node refuses
raises `Refused` with the node's reason.

In a cluster, the client is handed over to the node that is responsible for its part of the world,
and reconnects to another node if its own is dead. The application sees this in `notices` only.
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
from nearcast.client_protocol.geometry_json import (
    AreaLike,
    area_from_region,
    as_region,
    extent_fields,
)
from nearcast.errors import InvalidRequestError, Refused
from nearcast.model.subscription import Value
from nearcast.space.motion import SECOND, Path, Time, path
from nearcast.space.shapes import EVERYWHERE, Shape, point

if TYPE_CHECKING:
    from nearcast.client.client_trace import ClientTrace

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 10.0  # before the first and a later attempt to reconnect
TRY_S = 2.0  # plus the pause: for one of several nodes to answer, before the next is tried
HANDOVER_S = 5.0  # for another node to welcome us; after that we stay with the present one
FORMER_NODE_S = 10.0  # for the former node to send what it still has for us
HOLD_BACK_S = 0.25  # that messages of the new node wait for earlier ones of the former node
REMEMBERED_PUBLICATIONS = 4_096  # to drop duplicates during a handover


class Disconnected(Struct, frozen=True):
    """The connection has ended. `code` is its WebSocket close code; 1006 if it just broke."""

    reason: str
    code: int = ABNORMAL


class Reconnected(Struct, frozen=True):
    """All subscriptions are in force again, except `refused`, which the node now refuses."""

    refused: list[Subscription]


class HandedOver(Struct, frozen=True, tag_field="is", tag="handed over"):
    """Another node serves this client now. It is the same entity, and nothing was lost."""

    node: str  # its name
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
    """A connection to a Nearcast node. Made by `connect` and `World.join`.

    `entity` is this client's number, under which others see it (`Message.source`, `Entity.entity`).
    `node` is the name of the node that serves it, `nodes` are the addresses of the others in the
    cluster, and `limits` what the node allows.
    """

    def __init__(
        self, link: ClientLink, name: str, token: Token = "", reconnect: bool = False,
        trace: str | PathLike[str] | None = None,
        link_to: Callable[[str], ClientLink] | None = None,
    ) -> None:  # fmt: skip
        self.name = name
        self.entity = -1  # until the node has welcomed us
        self.node = ""
        self.nodes: list[str] = []  # addresses
        self.limits: dict[str, float] = {}
        self._link_to = link_to  # makes a link to another node's address
        self._token = token
        self._reconnects = reconnect
        self._trace = trace
        self._client_trace: ClientTrace | None = None
        self._subscriptions: dict[int, Subscription] = {}
        self._numbers = 0
        self._ids = count(1)
        self._current = self._new_channel(link)  # to the node that serves us, or did last
        self._serving = asyncio.Event()  # not set while joining, reconnecting or being handed over
        self._handing_over = False
        self._former: RequestChannel | None = None  # to the node that has just handed us over
        # Messages to deliver after the last ones of the former node.
        self._held_back: list[tuple[RequestChannel, Any]] = []
        self._recent: RecentPublications | None = None
        self._end_error: Exception | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._all_messages: Inbox[Message] | None = None
        self._notices: Inbox[ClientNotice] = Inbox(1_000)

    async def open(self) -> "Client":
        """Connect and join. OSError or Refused if that fails: only later losses are repaired."""
        if not self._serving.is_set():
            try:
                if self._trace is not None and self._client_trace is None:
                    from nearcast.client.client_trace import ClientTrace

                    self._client_trace = ClientTrace(self._trace)
                await self._join(self._current)
            except BaseException:
                await self._current.close()
                raise
            self._serving.set()
        return self

    async def __aenter__(self) -> "Client":
        return await self.open()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Leave the node. All iterations end."""
        while self._tasks:  # one that ends may have started another
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
        self._end(None, ConnectionError("this client has left"))
        with suppress(ConnectionError):  # it may just have been lost
            self._current.link.send(wire.LeaveRequest())
        await self._current.close()
        if self._client_trace is not None:
            await asyncio.to_thread(self._client_trace.close)

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
        """Receive what is published in an area. Iterate over the result for its messages.

        `where`: a shape, a motion (`line`, `Moving`), a path, or a formula as text; without it,
        everywhere. `filter`: predicates over the publication's attributes, e.g. `"level >= 3"`.
        `channel`: only publications on this channel. `echo`: also what this client publishes
        itself. `variables`: values of variables in the formula or filter; `Subscription.tune`
        changes them. `watch`: keep track of the entities in the area: `Subscription.inside` and
        `changes()`. `linger`: seconds that a watched entity must be outside before it counts as
        gone. `rates`: pairs (distance, messages per second): publishers farther away than the
        distance are limited to so many messages each. `closest`: only the so many closest
        publishers. `budget`: at most so many bytes per second. `inbox`: how many messages wait
        until they are taken; beyond it the oldest are dropped, and counted in
        `Subscription.dropped`.
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
            subscription.area_accepted(region, isinstance(where, Shape), done.t)
            if watch:
                await asyncio.wait_for(subscription.inside_known.wait(), ANSWER_S)
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
        """Publish to every subscription whose area this point, disc or box touches.

        `where`: a shape, or the coordinates of a point.
        `payload`: any value that MessagePack can carry.
        `retain`: this is the state of the entity on the channel from now on, which `nearby` and
        watching subscriptions see.
        `attributes`: booleans, numbers and texts, which filters look at.
        `name`: publish as another entity of this name, which has its own number and states and
        exists from its first publication on. So one connection serves many NPCs or vehicles.

        Returns the publication's number. With `confirm=False` it does not wait for the node's
        answer and returns 0; a refusal is then an `ErrorNotice` among the `notices`.
        """
        shape = where if isinstance(where, Shape) else _point(where)
        if shape == EVERYWHERE:
            raise InvalidRequestError("a publication has a place")
        r, rx, ry, rz = extent_fields(shape)
        request = wire.PublishRequest(
            shape.x, shape.y, checked_payload(self._current.link.encoding, payload), retain,
            checked_attributes(attributes), channel, shape.z, r, rx, ry, rz, name=name,
        )  # fmt: skip
        if confirm:
            done = await self.ask(request)
            return int(done.publication or 0)
        await self._ready()
        self._current.link.send(request)
        return 0

    async def withdraw(self, channel: str | None = None, *, name: str = "") -> None:
        """End the retained state on this channel, or on all channels.

        With `name`, that of another entity of this client; without a channel, the entity leaves.
        """
        await self.ask(wire.WithdrawRequest(channel, name))

    async def nearby(self, where: AreaLike, channel: str = "", limit: int = 100) -> list[Entity]:
        """The entities with a retained state in this area now, the closest first."""
        near = await self.ask(
            wire.NearbyRequest(area_from_region(as_region(where)), channel, limit)
        )
        return [self._entity(self._current, entity) for entity in near.entities]

    async def move_to(self, place: Sequence[float], speed: float) -> float:
        """Move the area of every subscription that was made with a plain shape to `place`.

        The areas move in a straight line at `speed` units per second, each for one request: the
        node computes where they are. Subscriptions to a motion, a path, a formula or everywhere
        stay as they are, and so does this client's retained state. Returns the seconds until the
        last area arrives.
        """
        if not 2 <= len(place) <= 3:
            raise InvalidRequestError("a place to move to is two or three numbers")
        now = self.now()
        walks: list[tuple[Subscription, Path]] = []
        for subscription in self._subscriptions.values():
            here = subscription.where(now)
            if subscription.follows_client and here is not None and here != EVERYWHERE:
                x, y, z = (*place, here.z)[:3]
                walks.append((subscription, path(here, [(x, y, z)], speed)))
        await asyncio.gather(
            *(subscription.change_area(walk, True) for subscription, walk in walks)
        )
        return max((sum(leg.duration or 0 for leg in w.legs) / SECOND for _, w in walks), default=0)

    def messages(self, inbox: int = 10_000) -> Inbox[Message]:
        """The messages of all subscriptions, each once, from the first call of this on."""
        if self._all_messages is None:
            self._all_messages = Inbox(inbox)
        return self._all_messages

    def notices(self) -> Inbox[ClientNotice]:
        """Events of the connection: `Disconnected`, `Reconnected` and `HandedOver`;
        `WithheldNotice` (messages withheld as asked), `DroppedNotice` (messages dropped because
        this client reads too slowly), and `ErrorNotice` (refusals that no call waits for)."""
        return self._notices

    def now(self) -> Time:
        """The node's clock as estimated here, in microseconds of Unix time."""
        return clock() + (self._current.clock_offset or 0)

    async def ask(self, request: Any) -> Any:
        """Send a request and wait for its answer. Refused says why the node does not accept it."""
        if not isinstance(request, wire.PublishRequest):
            check_request(request)
        await self._ready()
        return await self._request(request)

    def _forget(self, subscription: Subscription) -> None:
        self._subscriptions.pop(subscription.number, None)

    async def _ready(self) -> None:
        while True:
            await self._serving.wait()
            if self._end_error is not None:
                raise self._end_error
            await self._current.link.writable()
            if self._serving.is_set():
                return

    async def _request(self, request: Any) -> Any:
        number = next(self._ids)
        if self._client_trace is not None and isinstance(request, wire.SubscribeRequest):
            self._client_trace.subscribe_requested(number, request.subscription)
        return await self._current.ask(number, request)

    # Joining, reconnecting, and handover to another node.

    def _new_channel(self, link: ClientLink) -> RequestChannel:
        return RequestChannel(link, self._receive, self._connection_lost)

    def _start_task(self, act: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(act)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _join(self, channel: RequestChannel, ticket: str = "") -> None:
        """Join through this channel; when the node welcomes us, it is the current one."""
        token = await self._current_token()  # first: a connection must join within seconds
        await channel.open()
        await self._current.wait_until_answered()
        await channel.ask(next(self._ids), wire.JoinRequest(self.name, token, ticket=ticket))
        if channel.closed is not None:
            raise channel.closed
        if self._current is not channel:
            raise ConnectionError("the node has welcomed another entity")

    async def _current_token(self) -> str:
        """The token as it is now. Without one, ConnectionError, as if there were no node."""
        if isinstance(self._token, str):
            return self._token
        try:
            token = self._token()
            return token if isinstance(token, str) else await token
        except Exception as why:
            raise ConnectionError(f"there is no token: {why}") from why

    def _welcomed(self, channel: RequestChannel, notice: Any) -> None:
        channel.link.max_frame_bytes = int(notice.limits.get("frame", channel.link.max_frame_bytes))
        if self._handing_over and notice.entity != self.entity:
            return
        if self._handing_over:  # the former node sends until it has nothing left for us
            self._start_task(self._current.drain(FORMER_NODE_S))
            if self._former is not None:
                self._release_held_back(self._former)
            self._former = self._current
            asyncio.get_running_loop().call_later(
                HOLD_BACK_S, self._release_held_back, self._current
            )
        self._current = channel
        self.entity, self.node, self.limits = notice.entity, notice.node, notice.limits
        self._set_nodes(notice.nodes)
        if self._client_trace is not None and not self._handing_over:
            self._client_trace.joined(self.now(), self.entity)

    def _release_held_back(self, former: RequestChannel) -> None:
        """The former node has sent everything: deliver what the new one sent in the meantime."""
        if former is self._former:
            held_back, self._former, self._held_back = self._held_back, None, []
            for channel, notice in held_back:
                self._deliver(channel, notice)

    def _set_nodes(self, nodes: list[str]) -> None:
        """Other nodes of the cluster. Only with several nodes can a publication arrive twice."""
        self.nodes = nodes
        if nodes and self._recent is None:
            self._recent = RecentPublications(REMEMBERED_PUBLICATIONS)

    def _connection_lost(self, channel: RequestChannel) -> None:
        """Reconnect, if it was the current channel and no join or handover is under way."""
        self._release_held_back(channel)
        why = channel.closed
        if (
            why is None
            or channel is not self._current
            or not self._serving.is_set()
            or self._end_error
        ):
            return
        if not self._reconnects:
            self._end(why, why)
            return
        self._serving.clear()
        self._notices.put(Disconnected(why.reason, why.code))
        self._start_task(self._reconnect())

    async def _reconnect(self) -> None:
        """Try until a node welcomes us, with growing pauses of random length (no stampede)."""
        pause = FIRST_PAUSE_S
        while True:
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            links, refusals = self._links_to_try(), list[Refused]()
            patience = TRY_S + pause if len(links) > 1 else None
            for link in links:
                channel = self._new_channel(link)
                try:
                    async with asyncio.timeout(patience):
                        await self._join(channel)
                    known = list(self._subscriptions.values())
                    refused = [s for s in known if not await self._resubscribe(s)]
                    if channel.closed is not None:
                        raise channel.closed
                except OSError:
                    await channel.close()
                except Refused as why:  # of the join
                    refusals.append(why)
                    await channel.close()
                else:
                    self._serving.set()
                    self._notices.put(Reconnected(refused))
                    return
            if len(refusals) == len(links):
                self._end(refusals[0], refusals[0])
                return
            pause = min(2 * pause, LONGEST_PAUSE_S)

    def _links_to_try(self) -> list[ClientLink]:
        """To the last node first, then to the others of the cluster in random order."""
        if self._link_to is None:
            return [self._current.link]
        others = random.sample(self.nodes, len(self.nodes))
        return [self._current.link, *map(self._link_to, others)]

    async def _hand_over(self, link: ClientLink, moved: Any) -> None:
        """Join the other node. Until it welcomes us, the present one serves us.

        Requests wait in the meantime, so that they take effect in order. Publications that both
        nodes send are recognised by their numbers.
        """
        channel = self._new_channel(link)
        self._serving.clear()
        self._handing_over = True
        try:
            async with asyncio.timeout(HANDOVER_S):
                await self._join(channel, moved.ticket)
        except (OSError, Refused):
            pass
        finally:
            self._handing_over = False
            if self._current is not channel:
                await channel.close()
        self._serving.set()
        if self._current is channel:
            self._notices.put(HandedOver(self.node, moved.to))
        self._connection_lost(self._current)  # if it was lost in the meantime

    async def _resubscribe(self, subscription: Subscription) -> bool:
        request, region = subscription.request_at(self.now())
        try:
            done = await self._request(request)
        except Refused as why:
            self._forget(subscription)
            subscription.end(why)
            return False
        if request.area.formula is None:
            subscription.area_accepted(region, subscription.follows_client, done.t)
        return True

    def _end(self, why: Exception | None, later: Exception) -> None:
        """End for good: iterations end, with the error `why` if given; requests raise `later`."""
        if self._end_error is None:
            self._end_error = later
            self._serving.set()
            self._current.fail(later)
            for subscription in self._subscriptions.values():
                subscription.end(why)
            for inbox in (self._all_messages, self._notices):
                if inbox is not None:
                    inbox.end(why)

    # Notices of the node.

    def _receive(self, channel: RequestChannel, kind: type[Struct], notice: Any) -> None:
        if kind is wire.MessageNotice:
            self._deliver(channel, notice)
        elif kind is wire.WelcomeNotice:
            self._welcomed(channel, notice)
        elif kind is wire.DoneNotice:
            if self._client_trace is not None:
                self._client_trace.answered(notice.id, notice.subscription)
        elif kind in (
            wire.InsideNotice,
            wire.EnterNotice,
            wire.LeaveNotice,
            wire.MovedNotice,
            wire.NodesNotice,
        ):
            if channel is self._current:  # a former node's are out of date
                self._apply_notice(channel, kind, notice)
        elif kind is not wire.NearbyNotice:
            event: Any = kind(*astuple(notice))  # the declared class, also after MessagePack
            self._notices.put(event)

    def _apply_notice(self, channel: RequestChannel, kind: type[Struct], notice: Any) -> None:
        if kind is wire.NodesNotice:
            self._set_nodes(notice.nodes)
            return
        if kind is wire.MovedNotice:
            if self._link_to is not None and self._serving.is_set():
                self._set_nodes(self.nodes or [notice.to])
                self._start_task(self._hand_over(self._link_to(notice.to), notice))
            return
        subscription = self._subscriptions.get(notice.subscription)
        if subscription is None:
            return  # it has ended in the meantime
        if kind is wire.InsideNotice:
            subscription.set_inside([self._entity(channel, entity) for entity in notice.entities])
        elif kind is wire.EnterNotice:
            subscription.entity_entered(self._entity(channel, notice.entity))
        else:
            subscription.entity_left(notice.entity, notice.gone)

    def _deliver(self, channel: RequestChannel, notice: Any) -> None:
        if self._former is not None and channel is not self._former:
            self._held_back.append((channel, notice))
            return
        to, again = notice.to, False
        if self._recent is not None:
            to, again = self._recent.add(notice.publication, to)
            if again and not to:
                return
        message = Message(
            notice.source, notice.publication, notice.t,
            notice.x, notice.y, notice.z, notice.r, notice.rx, notice.ry, notice.rz,
            channel.link.encoding.try_decode_payload(notice.payload), notice.attributes,
            notice.channel, notice.retain, to,
        )  # fmt: skip
        if self._client_trace is not None:
            self._client_trace.delivered(
                max(self.now(), notice.t), self.entity, notice.publication, to
            )
        for number in to:
            subscription = self._subscriptions.get(number)
            if subscription is not None:
                subscription.update_entity(message)
                subscription.messages.put(message)
        if self._all_messages is not None and not again:
            self._all_messages.put(message)

    def _entity(self, channel: RequestChannel, e: wire.EntityState) -> Entity:
        payload = channel.link.encoding.try_decode_payload(e.payload)
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

    `name` is what others see. `token` is a text, or a function that returns one or an awaitable of
    one: it is called each time the client joins, so that a client reconnects with a new token when
    the old one has expired. `reconnect=False`: when the connection breaks, iterations and requests
    raise `ConnectionError` instead. `tls` is for certificates that this machine does not trust.
    `trace` is a folder in which the client records what it receives; `nearcast merge` joins it with
    the node's trace.
    """
    link = WebSocketLink(url, tls)
    return Client(link, name, token, reconnect, trace, lambda other: WebSocketLink(other, tls))
