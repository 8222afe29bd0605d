"""A live node inside a program: the same clients, without sockets.

    async with nearcast.World() as world:
        alice = await world.join("alice")
        bob = await world.join("bob")

Requests and notices are passed as objects. Only payloads are encoded, once by the publisher, so
that nobody can change them afterwards.
"""

import asyncio
import time
from contextlib import suppress
from itertools import count, groupby
from operator import itemgetter
from os import PathLike
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from nearcast.client.client import Client
from nearcast.client.websocket import ConnectionLost, OnMessage
from nearcast.client_protocol import messages
from nearcast.client_protocol.limits import Limits
from nearcast.errors import Refused
from nearcast.matching import MATCHERS
from nearcast.server.clock import clock
from nearcast.server.gateway import INTERNAL_ERROR, LOG, TICK_S
from nearcast.server.server import ENGINE, warm_up
from nearcast.service.realm import (
    AcceptedPublication,
    ClientState,
    FlushDeliveries,
    Realm,
    flush_isolating_failures,
)
from nearcast.space.motion import Time
from nearcast.trace.live_recording import ROTATE_S, LiveRecording

SAMPLED = 10  # ticks between two samples of where everybody is: a second


class World:
    """A node of one's own. With `trace` it records everything into that folder."""

    def __init__(
        self, *, trace: str | PathLike[str] | None = None, limits: Limits | None = None
    ) -> None:
        self._trace = trace
        self._limits = limits or Limits()
        self._links: dict[int, _InProcessLink] = {}  # by entity
        self._states: dict[int, AcceptedPublication] = {}  # by entity: its retained state
        self._recording: LiveRecording | None = None
        self._now = clock()
        self._realm: Realm
        self._ticking: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "World":
        warm_up()
        if self._trace is not None:
            self._recording = LiveRecording(self._trace, self._now(), {"engine": ENGINE})
        recorder = self._recording.recorder if self._recording else None
        self._realm = Realm(MATCHERS[ENGINE](), self._limits, recorder)
        self._ticking = asyncio.ensure_future(self._tick())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def join(self, name: str = "", *, trace: str | PathLike[str] | None = None) -> Client:
        """A client of this world. It leaves by `close`, or with the world.

        `trace` is a folder in which it records what it hears itself.
        """
        return await Client(_InProcessLink(self), name, trace=trace).open()

    async def close(self) -> None:
        """Everyone leaves, and the trace is complete."""
        if self._ticking is None:
            return
        self._ticking.cancel()
        with suppress(asyncio.CancelledError):
            await self._ticking
        self._ticking = None
        while self._realm.waiting:
            self._flush()
        for link in list(self._links.values()):
            link.leave("the world has ended")
        if self._recording:
            self._recording.close({"t": self._realm.now})

    # What clients ask for.

    def handle(self, link: "_InProcessLink", request: Any) -> None:
        try:
            self._handle(link, request)
        except Refused as why:
            link.receive(messages.ErrorNotice(str(why), request.id))

    def _handle(self, link: "_InProcessLink", request: Any) -> None:
        realm, now = self._realm, self._now()
        if isinstance(request, messages.JoinRequest):
            link.client = realm.join(now, request.name, messages.MSGPACK)
            self._links[link.client.entity] = link
            limits = {name: float(limit) for name, limit in asdict(self._limits).items()}
            link.receive(
                messages.WelcomeNotice(link.client.entity, realm.now, limits=limits, id=request.id)
            )
            return
        client = link.joined_client()
        if isinstance(request, messages.PublishRequest):
            realm.publish(client, request, messages.MSGPACK)
            if realm.waiting == 1:
                asyncio.get_running_loop().call_soon(self._flush)
            return  # it is done when it is flushed
        if isinstance(request, messages.NearbyRequest):
            link.receive(
                messages.NearbyNotice(realm.nearby(now, request, messages.MSGPACK), request.id)
            )
            return
        if isinstance(request, messages.LeaveRequest):
            link.leave("")
            return
        traced = None
        if isinstance(request, messages.SubscribeRequest):
            for notice in realm.subscribe(now, client, request):
                link.receive(notice)
            traced = client.subscriptions[request.subscription].subscription.id
        elif isinstance(request, messages.MoveRequest):
            realm.move(now, client, request)
        elif isinstance(request, messages.TuneRequest):
            realm.tune(now, client, request)
        elif isinstance(request, messages.WithdrawRequest):
            realm.withdraw(now, client, request)
            self._states.pop(client.entity, None)
        else:
            realm.unsubscribe(now, client, request)
        link.receive(messages.DoneNotice(request.id, realm.now, subscription=traced))

    def remove_client(self, client: ClientState) -> None:
        del self._links[client.entity]
        self._states.pop(client.entity, None)
        self._realm.leave(self._now(), client)

    # What happens by itself.

    def _flush(self) -> None:
        """All that was published since the last time, in one go: once each time the loop turns."""
        if self._realm.waiting:
            for flushed in flush_isolating_failures(self._realm, self._now, self._match_failed):
                self._deliver(flushed)

    def _match_failed(self, accepted: AcceptedPublication | None) -> None:
        """Matching failed: of all publications that waited (None), and then of this one alone."""
        if accepted is None:
            LOG.exception("publications could not be matched; each is tried by itself")
        else:
            link = self._links.get((accepted.client.owner or accepted.client).entity)
            if link is not None and accepted.request.id is not None:
                link.receive(messages.ErrorNotice(INTERNAL_ERROR, accepted.request.id))

    def _deliver(self, flushed: FlushDeliveries) -> None:
        columns = (flushed.client, flushed.publication, self._realm.numbers[flushed.subscription])
        pairs = zip(*(column.tolist() for column in columns), strict=True)
        for (place, index), alike in groupby(pairs, itemgetter(0, 1)):
            to = [number for _, _, number in alike]
            client = self._realm.clients[place]
            if client is not None:
                self._links[client.entity].receive(
                    _message(flushed.publications[index], flushed.t, to)
                )
        self._realm.record_deliveries(self._now(), flushed)
        for accepted in flushed.publications:
            owner, asked = accepted.client.owner or accepted.client, accepted.request.id
            link = self._links.get(owner.entity)
            if accepted.request.retain:
                self._states[accepted.client.entity] = accepted
            if asked is not None and link is not None:
                link.receive(messages.DoneNotice(asked, flushed.t, accepted.id))
        if self._realm.waiting:
            asyncio.get_running_loop().call_soon(self._flush)

    async def _tick(self) -> None:
        rotated = time.monotonic()
        for tick in count(1):
            await asyncio.sleep(TICK_S)
            for client, notice in self._realm.tick(self._now()):
                self._links[client.entity].receive(notice)
            if self._recording and tick % SAMPLED == 0:
                t = self._now()
                self._states = {
                    e: accepted for e, accepted in self._states.items() if not accepted.client.left
                }
                for entity, accepted in self._states.items():
                    where = accepted.request
                    self._recording.recorder.position(t, entity, where.x, where.y, where.z)
                # Two rows of one subscription at one moment must not be parted.
                if time.monotonic() - rotated > ROTATE_S and t > self._realm.now:
                    rotated = time.monotonic()
                    self._recording.rotate()


class _InProcessLink:
    """A link to a node in the same process."""

    encoding = messages.MSGPACK  # of payloads

    def __init__(self, world: World) -> None:
        self.max_frame_bytes = 0  # there are no frames
        self._world = world
        self.client: ClientState | None = None
        self._receive: OnMessage
        self._lost: ConnectionLost

    async def open(self, receive: OnMessage, lost: ConnectionLost) -> None:
        self._receive, self._lost = receive, lost

    def send(self, request: messages.Request) -> None:
        self._world.handle(self, request)

    async def writable(self) -> None:
        """Always."""

    async def close(self) -> None:
        if self.client is not None:
            self.leave("")

    def joined_client(self) -> ClientState:
        if self.client is None:
            raise ConnectionError("this client has left")
        return self.client

    def receive(self, notice: Struct) -> None:
        self._receive(type(notice), notice)

    def leave(self, reason: str) -> None:
        client, self.client = self.joined_client(), None
        self._world.remove_client(client)
        self._lost(reason)


def _message(accepted: AcceptedPublication, t: Time, to: list[int]) -> messages.MessageNotice:
    r = accepted.request
    return messages.MessageNotice(
        to, accepted.client.entity, accepted.id, t, r.x, r.y, r.payload, r.retain,
        r.attributes, r.channel, r.z, r.r, r.rx, r.ry, r.rz,
    )  # fmt: skip
