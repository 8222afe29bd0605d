"""Targets: bytes that arrive on ports, of clients and of other nodes."""

import asyncio
import logging
import socket
from contextlib import suppress
from functools import cache
from typing import Any

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from nearcast.node import Priority
from nearcast.server.config import LimitSettings, Settings
from nearcast.server.http.protocol import HEAD
from nearcast.server.server import Server
from nearcast.transport.address_book import sign_record
from nearcast.transport.identity import Identity, new_identity
from nearcast.transport.links import (
    HELLO,
    CallerHello,
    Link,
    LinkTransport,
    make_frame,
)
from nearcast.transport.quic import QuicTransport

from .socketless import Wire

UPGRADE = (
    b"GET /ws HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)


class Faults(logging.Handler):
    """What a node logs as its own mistake."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.told: list[str] = []
        logging.getLogger("nearcast").addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        self.told.append(self.format(record))


class Ports:
    """A real service, whose connections are made without sockets."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.faults = Faults()
        self.loop.set_exception_handler(lambda _, what: self.faults.told.append(str(what)))
        limits = LimitSettings(requests=10**9, join_s=1e6)
        self.service = Server(Settings(port=0, record=False, limits=limits))
        self.loop.run_until_complete(self.service.start())
        with socket.create_server(("127.0.0.1", 0)) as listening:
            self.near = socket.create_connection(listening.getsockname())
            self.far, _ = listening.accept()
        for one in (self.near, self.far):
            one.setblocking(False)

    def connect(self, parts: list[bytes]) -> bytes:
        """What a connection that says this is answered."""
        return self.loop.run_until_complete(self._connect(parts))

    async def _connect(self, parts: list[bytes]) -> bytes:
        connection: Any = Socket(self.near)
        connection.protocol = self.service._front()
        connection.protocol.connection_made(connection)
        for part in parts:
            if not connection.closed and part:
                connection.receive(part)
                await asyncio.sleep(0)
        for _ in range(5):
            await asyncio.sleep(0)
        connection.close()
        connection.protocol.connection_lost(None)
        await asyncio.sleep(0)
        with suppress(BlockingIOError):
            connection.write(self.far.recv(2**20))
        told, self.faults.told = self.faults.told, []
        assert not told, told[0]
        return bytes(connection.written)


class Socket(Wire):
    """A transport whose protocol may be exchanged."""

    protocol: Any

    def __init__(self, beneath: socket.socket) -> None:
        super().__init__()
        self._beneath = beneath  # picows sets its options, and writes to it by its number

    def set_protocol(self, protocol: Any) -> None:
        self.protocol = protocol

    def get_protocol(self) -> Any:
        return self.protocol

    def get_extra_info(self, name: str, _default: Any = None) -> Any:
        if name == "socket":
            return self._beneath
        return ("127.0.0.1", 1) if name in ("peername", "sockname") else None

    def get_write_buffer_size(self) -> int:
        return 0

    def receive(self, part: bytes) -> None:
        if hasattr(self.protocol, "data_received"):
            self.protocol.data_received(part)
            return
        unread = memoryview(part)
        while unread and not self.closed:
            room = self.protocol.get_buffer(len(unread))
            size = min(len(room), len(unread))
            room[:size] = unread[:size]
            unread = unread[size:]
            self.protocol.buffer_updated(size)


@cache
def ports() -> Ports:
    return Ports()


def _in_two(data: bytes) -> list[bytes]:
    """The first byte says where the rest is parted."""
    if not data:
        return []
    place, rest = data[0] * len(data) // 256, data[1:]
    return [rest[:place], rest[place:]]


def http(data: bytes) -> None:
    """Any bytes on the clients' port: answered by HTTP or not at all, never by 500."""
    written = ports().connect(_in_two(data))
    assert written == b"" or written.startswith((b"HTTP/1.1 ", b"\x81", b"\x82", b"\x88"))
    assert b"HTTP/1.1 500" not in written
    assert len(written) < 100 * HEAD + 2**20


def websocket(data: bytes) -> None:
    """Any bytes after a handshake: frames, or the end of the connection."""
    written = ports().connect([UPGRADE, *_in_two(data)])
    assert b"HTTP/1.1 500" not in written


class Strangers(LinkTransport):
    """Links without a network."""

    async def listen(self) -> int:
        return 9

    async def unlisten(self) -> None:
        """There is nothing."""

    async def dial(self, host: str, port: int) -> Link:
        raise ConnectionError(f"nobody is at {host}:{port}")


class Line:
    """In place of an encrypted connection."""

    longest_alone = 1000

    def __init__(self) -> None:
        self.ended = False

    def write(self, *_: Any) -> None:
        """It goes nowhere."""

    write_alone = write_lossy = write

    def unsent(self) -> int:
        return 0

    def end(self) -> None:
        self.ended = True

    cut = end


@cache
def identities() -> tuple[Identity, Identity]:
    """Of this node and of another: always the same, so that inputs keep their meaning."""
    here, other = (Ed25519PrivateKey.from_private_bytes(bytes([n]) * 32) for n in (1, 2))
    return Identity(here), Identity(other)


@cache
def link_loop() -> asyncio.AbstractEventLoop:
    return asyncio.new_event_loop()


def links(data: bytes) -> None:
    """Any bytes on a link of nodes: of a stranger, of one who has greeted, and of one we called."""
    logging.getLogger("nearcast.transport.links").setLevel(
        logging.ERROR
    )  # it tells of each link cut
    link_loop().run_until_complete(_links(data))


async def _links(data: bytes) -> None:
    if not data:
        return
    here, other = identities()
    transport = Strangers(here)
    heard: list[bytes] = []
    await transport.open(lambda _, frames: heard.extend(frames))
    stage = data[0] % 3
    line = Line()
    link = Link(line, called=stage == 2)
    card = sign_record(other, "127.0.0.1", 9, 1)
    if stage == 2:
        link.key = other.key
        transport._links[link] = None
    else:
        transport.accept(link)
    if stage == 1:
        proof = other.sign(CallerHello.signed_bytes(here.key))
        greeting = msgspec.msgpack.encode(CallerHello(card, proof))
        transport.data_received(link, b"".join(make_frame(HELLO, greeting)))
        assert link.peer == other.name
    for part in _in_two(data[1:]):
        for stream in Priority:
            if not line.ended:
                transport.data_received(link, part, stream)
        for lossy in (False, True):
            if not line.ended:
                transport.frame_received(link, part, lossy)
    assert sum(map(len, heard)) <= (len(Priority) + 2) * len(data)
    transport._links.clear()
    await transport.close()
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()


class Door:
    """A QUIC port without a network: datagrams go in, and what goes out is dropped."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.loop.run_until_complete(self._open())

    async def _open(self) -> None:
        self.quic = QuicTransport(new_identity())
        await self.quic.open(lambda _sender, _frames: None)
        listening: Any = self.quic._listening
        self.door = listening.get_protocol() if hasattr(listening, "get_protocol") else None

    async def receive(self, datagram: bytes) -> None:
        assert self.door is not None
        self.door.datagram_received(datagram, ("127.0.0.1", 9))
        await asyncio.sleep(0)


@cache
def door() -> Door:
    return Door()


def quic(data: bytes) -> None:
    """Any datagram on a QUIC port."""
    here = door()
    here.loop.run_until_complete(here.receive(data))
