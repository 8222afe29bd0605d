"""A gateway without sockets: clients' frames go in as bytes, and what is written is kept."""

import asyncio
from random import Random
from typing import Any

from nearcast.client_protocol import messages
from nearcast.matching import MATCHERS
from nearcast.server.access.tokens import AccessControl
from nearcast.server.config import LimitSettings
from nearcast.server.gateway import TICKS_PER_SECOND, Gateway
from nearcast.server.session import Session
from nearcast.service.realm import Realm
from nearcast.service.service import TICK, Service

LIMITS = LimitSettings(requests=10**9, refusals=10**9, join_s=1e6)


class Wire:
    """In place of a transport: it takes all that is written, and keeps it."""

    def __init__(self) -> None:
        self.written = bytearray()
        self.closed = False

    def write(self, data: bytes) -> None:
        self.written += data

    def get_extra_info(self, _name: str) -> Any:
        return self

    def setsockopt(self, *_: int) -> None:
        """As a socket."""

    def set_write_buffer_limits(self, **_: int) -> None:
        """As a transport."""

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self.closed

    def can_write_eof(self) -> bool:
        return False

    def pause_reading(self) -> None:
        """As a transport."""

    resume_reading = pause_reading

    def close(self) -> None:
        self.closed = True

    abort = close

    # As picows' transport, around itself.

    @property
    def underlying_transport(self) -> "Wire":
        return self

    def send_close(self, *_: Any) -> None:
        """What a client is told when it ends is of no interest here."""

    def disconnect(self, *_: Any) -> None:
        self.closed = True

    def notices(self, form: messages.Encoding) -> list[Any]:
        """What was written since the last time."""
        told = [form.read_notice(body) for body in bodies(bytes(self.written))]
        self.written.clear()
        return told


def bodies(frames: bytes) -> list[bytes]:
    """Of WebSocket frames as a server writes them."""
    found, at = [], 0
    while at < len(frames):
        size, head = frames[at + 1], 2
        if size >= 126:
            head = 4 if size == 126 else 10
            size = int.from_bytes(frames[at + 2 : at + head], "big")
        found.append(frames[at + head : at + head + size])
        at += head + size
    assert at == len(frames)
    return found


class Node:
    """A gateway whose time is the test's own."""

    def __init__(self, limits: LimitSettings = LIMITS) -> None:
        self._loop = asyncio.new_event_loop()
        self.t = 1_000_000
        self.gateway = self._loop.run_until_complete(self._made(limits))

    async def _made(self, limits: LimitSettings) -> Gateway:
        realm = Realm(MATCHERS["scan"](), limits, None)
        service = Service(0, Random(0), realm, limits, requests=limits.requests)
        return Gateway(service, limits, AccessControl({}), self.now)

    def now(self) -> int:
        self.t += 1
        return self.t

    def join(self, form: messages.Encoding, name: str = "") -> tuple[Session, Wire]:
        session, wire = self.stranger()
        self.say(session, messages.JoinRequest(name, id=1), form)
        wire.written.clear()
        return session, wire

    def stranger(self) -> tuple[Session, Wire]:
        """Somebody who is connected and has not joined."""
        wire: Any = Wire()
        session = Session(self.gateway)
        session.on_ws_connected(wire)
        return session, wire

    def say(self, session: Session, word: messages.Request, form: messages.Encoding) -> None:
        self.gateway.read(session, form.encode(word), form.binary)

    def run(self) -> None:
        """Publications are made, and time goes on by a second."""
        self.gateway.flush()
        while self.gateway.realm.waiting:
            self.gateway.flush()
        self.t += 1_000_000
        self.gateway.wake(TICK)
        self.gateway._ticks += TICKS_PER_SECOND
        self.gateway._every_second()
        self.gateway._resume_reading()

    def close(self) -> None:
        for session in list(self.gateway.sessions):
            session.on_ws_disconnected(session.transport)
        self.gateway.close("the end")
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()
