"""A live node inside a program: the same clients, without sockets.

    async with nearcast.World() as world:
        alice = await world.join("alice")
        bob = await world.join("bob")

Requests and notices are passed as objects. Only payloads are encoded, once by the publisher, so
that nobody can change them afterwards.
"""

import asyncio
import time
from collections.abc import Callable
from itertools import groupby
from operator import itemgetter
from os import PathLike
from random import SystemRandom
from typing import Any

from msgspec import Struct

from nearcast.client.client import Client
from nearcast.client.websocket import ConnectionLost, OnMessage
from nearcast.client_protocol import messages
from nearcast.client_protocol.geometry_json import EARTH, PLANE, Geometry
from nearcast.client_protocol.limits import Limits
from nearcast.errors import Refused
from nearcast.matching import MATCHERS
from nearcast.server.clock import clock
from nearcast.server.server import ENGINE, NODE_NUMBER, geometry_setting, warm_up
from nearcast.server.service_host import ServiceHost
from nearcast.service.access.grants import Grant
from nearcast.service.client_state import AcceptedPublication
from nearcast.service.connection import Connection
from nearcast.service.effects import (
    CloseConnection,
    DeliverDirect,
    DeliverFlush,
    Notify,
    Refuse,
    Reply,
)
from nearcast.service.realm import Realm
from nearcast.service.service import FLUSH, Service
from nearcast.space.motion import SECOND, Time
from nearcast.trace.live_recording import ROTATE_S, LiveRecording

SAMPLE_S = 1.0  # between two samples of where everybody is
EVERYTHING = Grant()
NO_RATE = 1_000_000_000  # requests a second: nobody outside of this process can ask


class World:
    """A node of one's own. With `trace` it records everything into that folder.

    `geometry`: "plane", or "earth" for longitude, latitude and metres.
    """

    def __init__(
        self,
        *,
        trace: str | PathLike[str] | None = None,
        limits: Limits | None = None,
        geometry: Geometry = PLANE,
    ) -> None:
        if geometry not in (PLANE, EARTH):
            raise ValueError(f"a world's geometry is {PLANE!r} or {EARTH!r}, not {geometry!r}")
        self._trace, self._geometry = trace, geometry
        self._limits = limits or Limits()
        self._host: _InProcessHost | None = None

    async def __aenter__(self) -> "World":
        warm_up()
        now = clock()
        recording = None
        if self._trace is not None:
            settings = {"engine": ENGINE, **geometry_setting(self._geometry)}
            recording = LiveRecording(self._trace, now(), settings)
        recorder = recording.recorder if recording else None
        realm = Realm(MATCHERS[ENGINE](), self._limits, recorder, geometry=self._geometry)
        service = Service(NODE_NUMBER, SystemRandom(), realm, self._limits)
        self._host = _InProcessHost(service, now, recording)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def join(self, name: str = "", *, trace: str | PathLike[str] | None = None) -> Client:
        """A client of this world. It leaves by `close`, or with the world.

        `trace` is a folder in which it records what it hears itself.
        """
        assert self._host is not None
        return await Client(_InProcessLink(self._host), name, trace=trace).open()

    async def close(self) -> None:
        """Everyone leaves, and the trace is complete."""
        host, self._host = self._host, None
        if host is not None:
            host.close()


class _InProcessHost(ServiceHost):
    """Hosts the service for clients in the same process."""

    def __init__(
        self, service: Service, now: Callable[[], Time], recording: LiveRecording | None
    ) -> None:
        self._flush_timer: asyncio.Handle | None = None
        super().__init__(service, now, recording)
        self._rotated = time.monotonic()
        self._sampling = self.loop.call_later(SAMPLE_S, self._sample) if recording else None

    def close(self) -> None:
        self.stop_timers()
        if self._sampling is not None:
            self._sampling.cancel()
        while self.realm.waiting:
            self.wake(FLUSH)
        for link in list(self.service.connections.all):
            self.apply(self.service.end(self.now(), link, "the world has ended"))
        if self.recording:
            self.recording.close({"t": self.realm.now})

    def handle(self, link: "_InProcessLink", request: Any) -> None:
        """A request of a client."""
        if isinstance(request, messages.PublishRequest):
            try:
                self.service.publish(link, request, messages.MSGPACK)
            except Refused as why:
                link.receive(messages.ErrorNotice(str(why), request.id))
            else:
                self.schedule_flush()
        elif isinstance(request, messages.SendRequest):
            self.apply(self.service.send(self.now(), link, request, messages.MSGPACK))
        elif isinstance(request, messages.JoinRequest):
            self.apply(self.service.join(self.now(), link, request, EVERYTHING))
        else:
            self.apply(self.service.request(self.now(), link, type(request), request))

    def schedule_flush(self, after: float = 0.0) -> None:
        """All that is published meanwhile is flushed together: once each time the loop turns."""
        if self._flush_timer is None:
            self._flush_timer = self.loop.call_later(after, self._flush)

    def _flush(self) -> None:
        self._flush_timer = None
        self.wake(FLUSH)

    def on_reply(self, reply: Reply) -> None:
        _link(reply.connection).receive(reply.notice)

    def on_refuse(self, refuse: Refuse) -> None:
        _link(refuse.connection).receive(refuse.error)

    def on_notify(self, notify: Notify) -> None:
        for client, notice in notify.notices:
            connection = self.service.connections.of(client)
            if connection is not None:
                _link(connection).receive(notice)

    def on_deliver_flush(self, deliver: DeliverFlush) -> None:
        flushed = deliver.flushed
        columns = (flushed.client, flushed.publication, self.realm.numbers[flushed.subscription])
        pairs = zip(*(column.tolist() for column in columns), strict=True)
        for (place, index), alike in groupby(pairs, itemgetter(0, 1)):
            client = self.realm.clients[place]
            connection = self.service.connections.of(client) if client is not None else None
            if connection is not None:
                to = [number for _, _, number in alike]
                message = _message(flushed.publications[index], flushed.t, to)
                _link(connection).receive(message)
        self.realm.record_deliveries(self.now(), flushed)

    def on_deliver_direct(self, deliver: DeliverDirect) -> None:
        _link(deliver.connection).receive(deliver.notice)
        if self.recording:
            number, now = deliver.notice.number, max(self.now(), deliver.notice.t)
            self.recording.recorder.direct_delivered(now, deliver.client.entity, number)

    def on_close_connection(self, close: CloseConnection) -> None:
        _link(close.connection).lost(close.reason)

    def _sample(self) -> None:
        self._sampling = self.loop.call_later(SAMPLE_S, self._sample)
        self.record_positions()
        # Two rows of one subscription at one moment must not be parted.
        rotates = time.monotonic() - self._rotated > ROTATE_S and self.now() > self.realm.now
        if self.recording and rotates:
            self._rotated = time.monotonic()
            self.recording.rotate()


class _InProcessLink(Connection):
    """A link to a node in the same process; at its other end, a connection."""

    encoding = messages.MSGPACK  # of payloads

    def __init__(self, host: _InProcessHost) -> None:
        super().__init__(NO_RATE, host.now() / SECOND)
        self.encoding = messages.MSGPACK
        self.max_frame_bytes = 0  # there are no frames
        self._host = host
        self._receive: OnMessage
        self._lost: ConnectionLost

    async def open(self, receive: OnMessage, lost: ConnectionLost) -> None:
        self._receive, self._lost = receive, lost
        self._host.apply(self._host.service.open(self._host.now(), self))

    def send(self, request: messages.Request) -> None:
        if self.ended:
            raise ConnectionError("this client has left")
        self._host.handle(self, request)

    async def writable(self) -> None:
        """Always."""

    async def close(self) -> None:
        if not self.ended:
            self._host.apply(self._host.service.close(self._host.now(), self))

    def receive(self, notice: Struct) -> None:
        self._receive(type(notice), notice)

    def lost(self, reason: str) -> None:
        """The service has ended it."""
        self._host.service.connections.all.pop(self, None)
        self._lost(reason)


def _link(connection: Connection) -> _InProcessLink:
    assert isinstance(connection, _InProcessLink)
    return connection


def _message(accepted: AcceptedPublication, t: Time, to: list[int]) -> messages.MessageNotice:
    r = accepted.request
    return messages.MessageNotice(
        to, accepted.client.entity, accepted.id, t, r.x, r.y, r.payload, r.retain,
        r.attributes, r.channel, r.z, r.r, r.rx, r.ry, r.rz, r.lon, r.lat, r.alt,
    )  # fmt: skip
