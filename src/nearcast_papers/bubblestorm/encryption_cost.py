"""What encryption and authentication cost a game update ([Lucas2011] 7), on live links.

The same update is sent over a plain stream, over TLS 1.3 and over QUIC, alone in its packet. A
relay between both ends counts the bytes on the wire in both directions. CPU time is that of both
ends together, without the relay. Headers of IP, UDP and TCP are not counted: they are also needed
without encryption.
"""

import asyncio
from collections.abc import Sequence
from functools import cache
from statistics import median
from time import process_time
from typing import cast

from msgspec import Struct

from nearcast.model.publication import Publication
from nearcast.peer.host import run
from nearcast.protocols.bubblestorm.messages import CODEC, DirectPublication
from nearcast.space.shapes import point
from nearcast.transport.identity import new_identity
from nearcast.transport.links import LinkTransport
from nearcast.transport.quic import QuicTransport
from nearcast.transport.tls import TlsTransport
from nearcast.workloads.planetpi4_reckoning import ShipUpdate, pack

COUNTED, TIMED = 200, 1000  # updates
GAP_S = 0.001  # between two of them: each is a packet of its own
HANDSHAKES = 20
ROUNDS = 3


class Cost(Struct, frozen=True):
    """Of one update, and the bytes of one handshake; on the wire, both ways."""

    bytes: float
    cpu_us: float
    handshake_bytes: float


def update() -> bytes:
    """What a ship says of itself, as it is sent."""
    place = 512.0, 300.5, 77.25
    payload = pack(ShipUpdate(place, (0.5, 0.1, 0.0), (60.0, 20.0, 5.0), (0.0, 0.1, 0.0)))
    publication = Publication(2**40, 15, 10**9, point(*place), payload=payload)
    return CODEC.encode(DirectPublication(publication, True))


class Datagrams(asyncio.DatagramProtocol):
    """Passes on what comes, from the caller to the far end and back."""

    def __init__(self, relay: "Relay") -> None:
        self.relay = relay
        self.caller: tuple[str, int] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        self.relay.passed += len(data)
        far = self.relay.far
        if addr[1] != far[1]:
            self.caller = addr
            self.transport.sendto(data, far)
        elif self.caller is not None:
            self.transport.sendto(data, self.caller)


class Stream(asyncio.Protocol):
    """One side of a relayed stream; what comes before the other side is there waits."""

    def __init__(self, relay: "Relay") -> None:
        self.relay = relay
        self.other: Stream | None = None
        self.transport: asyncio.Transport | None = None
        self.waiting = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        if self.other is None:
            self.relay.dialling = asyncio.ensure_future(self._dial())

    async def _dial(self) -> None:
        _, self.other = await asyncio.get_running_loop().create_connection(
            self._answering, *self.relay.far
        )
        self.other.data_received(b"")
        self.data_received(b"")

    def _answering(self) -> "Stream":
        answering = Stream(self.relay)
        answering.other = self
        return answering

    def data_received(self, data: bytes) -> None:
        self.relay.passed += len(data)
        self.waiting += data
        if self.other is not None and self.other.transport is not None:
            self.other.transport.write(self.waiting)
            self.waiting = b""

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        if self.other is not None and self.other.transport is not None:
            self.other.transport.close()


class Relay:
    """Stands between two ends and counts bytes."""

    def __init__(self, far: tuple[str, int]) -> None:
        self.far, self.passed, self.port = far, 0, 0
        self.dialling: asyncio.Future[None] | None = None
        self._door: asyncio.DatagramTransport | asyncio.Server

    async def open(self, datagrams: bool) -> None:
        loop = asyncio.get_running_loop()
        if datagrams:
            self._door, _ = await loop.create_datagram_endpoint(
                lambda: Datagrams(self), local_addr=("127.0.0.1", 0)
            )
            self.port = self._door.get_extra_info("sockname")[1]
        else:
            self._door = await loop.create_server(lambda: Stream(self), "127.0.0.1", 0)
            self.port = self._door.sockets[0].getsockname()[1]

    def close(self) -> None:
        self._door.close()


class Frames(asyncio.Protocol):
    """Counts frames of a length and so many bytes."""

    def __init__(self, plain: "Plain") -> None:
        self.plain, self._held = plain, b""

    def data_received(self, data: bytes) -> None:
        self._held += data
        while len(self._held) >= 4:
            end = 4 + int.from_bytes(self._held[:4], "big")
            if len(self._held) < end:
                return
            self._held = self._held[end:]
            self.plain.received += 1


class Plain:
    """The same frames over a stream without names, proofs or encryption."""

    def __init__(self) -> None:
        self.received = 0

    async def begin(self) -> None:
        self._server = await asyncio.get_running_loop().create_server(
            lambda: Frames(self), "127.0.0.1", 0
        )
        self.port: int = self._server.sockets[0].getsockname()[1]

    async def call(self, port: int) -> None:
        self._transport, _ = await asyncio.get_running_loop().create_connection(
            asyncio.Protocol, "127.0.0.1", port
        )

    def send(self, frame: bytes) -> None:
        self._transport.write(len(frame).to_bytes(4, "big") + frame)

    async def shake(self, port: int) -> None:
        await self.call(port)
        self._transport.close()

    async def end(self) -> None:
        self._transport.close()
        self._server.close()
        await asyncio.sleep(0.01)


class Ours:
    """Over a transport of live nodes."""

    def __init__(self, kind: type[LinkTransport]) -> None:
        self.received = 0
        self._near, self._far = kind(new_identity()), kind(new_identity())

    async def begin(self) -> None:
        await self._near.open(lambda *_: None)
        await self._far.open(self._receive)
        self.port = self._far.port

    def _receive(self, _sender: int, frames: Sequence[bytes]) -> None:
        self.received += len(frames)

    async def call(self, port: int) -> None:
        await self._near.meet("127.0.0.1", port)

    def send(self, frame: bytes) -> None:
        self._near.send(self._far.name, frame, True)

    async def shake(self, port: int) -> None:
        (await self._near.dial("127.0.0.1", port)).connection.end()

    async def end(self) -> None:
        await self._near.close()
        await self._far.close()


async def sent(link: Plain | Ours, many: int) -> None:
    """So many updates, each in a packet of its own; wait for the last."""
    frame, first = update(), link.received
    for _ in range(many):
        link.send(frame)
        await asyncio.sleep(GAP_S)
    for _ in range(200):
        if link.received - first >= many:
            return
        await asyncio.sleep(0.01)


async def shaken(link: Plain | Ours, port: int) -> None:
    for _ in range(HANDSHAKES):
        await link.shake(port)
    await asyncio.sleep(0.05)  # the last words


def ends(name: str) -> Plain | Ours:
    return Plain() if name == "plain" else Ours(TlsTransport if name == "TLS" else QuicTransport)


async def measured(name: str) -> Cost:
    """The cost of one kind of link: bytes through a relay, then CPU time without it."""
    link = ends(name)
    await link.begin()
    relay = Relay(("127.0.0.1", link.port))
    await relay.open(datagrams=name == "QUIC")
    await shaken(link, relay.port)
    handshake = relay.passed / HANDSHAKES
    await link.call(relay.port)
    await asyncio.sleep(0.05)
    before = relay.passed
    await sent(link, COUNTED)
    carried = (relay.passed - before) / COUNTED
    await link.end()
    relay.close()
    link = ends(name)  # anew, and without a relay
    await link.begin()
    await link.call(link.port)
    began = process_time()
    await sent(link, TIMED)
    cpu = process_time() - began
    await link.end()
    return Cost(carried, cpu / TIMED * 1e6, handshake)


@cache
def costs() -> dict[str, Cost]:
    """The middle of some rounds."""
    found = {}
    for name in ("plain", "TLS", "QUIC"):
        tried = [run(measured(name)) for _ in range(ROUNDS)]
        found[name] = Cost(
            *(median(getattr(one, field) for one in tried) for field in Cost.__struct_fields__)
        )
    return found
