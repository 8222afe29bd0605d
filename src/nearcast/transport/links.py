"""Links between nodes over any encrypted connection: what TLS and QUIC have in common.

caller                                   acceptor
  │── encrypted handshake ─────────────────▶│  proves the acceptor's key to the caller
  │── Hello: record, proof, then frames ───▶│  proves the caller's key to the acceptor
  │◀─────────────────── Records, frames ────│
  │── Records, frames ─────────────────────▶│

A frame is four bytes, its kind and length, and then itself. A connection may have several streams,
one for each priority; greetings and records travel on the first. It may also carry single frames
without a header, each on a stream of its own or in a datagram. Python's TLS asks callers for no
certificate that it could not trace to an authority, so callers prove their key inside the
connection: they sign the acceptor's key. Nobody but the acceptor ever sees that signature, and it
means nothing to anybody else, so it needs no further challenge and no further round trip.

Links are made when somebody has something to say, and again when they have broken. Two nodes that
call each other at once settle it so: whoever hears the other's greeting before its own call is
answered gives up its call. If both calls were answered first, both links stay, and each side goes
on to send on its own: moving would let frames overtake each other.
"""

import asyncio
import logging
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from struct import Struct as Packing
from typing import Annotated, Protocol, TypeAlias

import msgspec
from msgspec import Meta, Struct

from nearcast.model.subscription import NodeId
from nearcast.node import Priority
from nearcast.space.motion import Time
from nearcast.transport.address_book import AddressBook, PeerRecord, sign_record
from nearcast.transport.identity import Identity, verify_signature
from nearcast.transport.transport import Receive
from nearcast.wire import LONGEST

log = logging.getLogger(__name__)

HEADER = Packing(">I")  # the kind in the upper eight bits, the length in the rest
MESSAGE, HELLO, RECORDS = range(3)
LONGEST_HELLO = 4096
RECORDS_PER_FRAME = 1000
RECORDS_ARRIVE_S = 1.0  # in which they usually have, even if they had to be sent again
MOST_EARLY = 1 << 17  # bytes of a connection that may overtake its greeting
MAX_UNIDENTIFIED = 256  # connections in their handshake, and as many that have not greeted yet
MAX_PEERS = 100_000  # beyond that, those without a link are forgotten
HANDSHAKE_S = 10.0  # for an encrypted handshake
PATIENCE_S = 5.0  # for a record, an answer or a greeting
REST_S = 0.5  # after a call that nobody has answered
CLOSING_S = 1.0  # for the last words of a transport that closes


PeerRecords: TypeAlias = Annotated[list[PeerRecord], Meta(max_length=RECORDS_PER_FRAME)]


class LinkLimits(Struct, frozen=True):
    """Of what may wait for one peer that reads slowly, in bytes."""

    lossy: int = 1 << 18  # beyond that, lossy frames are dropped
    all: int = 1 << 23  # beyond that, the link is cut and what waits is gone

    def __post_init__(self) -> None:
        assert 0 <= self.lossy <= self.all


class LinkConnection(Protocol):
    """One encrypted connection; it calls `heard` and `lost` of its links."""

    # The longest frame that it carries by itself, apart from its streams; negative: none.
    longest_alone: int

    def write(self, part: bytes, priority: Priority = Priority.UPKEEP) -> None:
        """Whole frames with their headers, behind all others of this priority."""
        ...

    def write_alone(self, frame: bytes, priority: Priority) -> None:
        """One frame that waits for no other, and no other for it; at most `longest_alone`."""
        ...

    def write_lossy(self, frame: bytes, priority: Priority) -> None:
        """One frame that may be lost; at most `longest_alone`."""
        ...

    def unsent(self) -> int:
        """Bytes written that have not left yet."""
        ...

    def end(self) -> None: ...

    def cut(self) -> None:
        """End it without a word more."""
        ...


class Link:
    """What both ends know of one connection. `key`: of an acceptor, as its handshake has proven."""

    def __init__(self, connection: LinkConnection, *, called: bool) -> None:
        self.connection = connection
        self.called = called  # by us
        self.key = b""
        self.peer: NodeId | None = None  # once it is proven
        self.life: Time = 0  # of the peer: since when it listens
        self.records_sent = 0  # the number of the last record that the peer was told
        self.records_arrive = 0.0  # until when those that were sent last may be under way
        self.unsent = 0  # when we last looked
        self.unread = [bytearray() for _ in Priority]  # of each stream
        self.early: list[bytes] = []  # single frames that have overtaken the greeting
        self.identified: asyncio.Future[NodeId] | None = None


class CallerHello(Struct, frozen=True, array_like=True):
    """The first frame of a caller: its record, and the acceptor's key signed with its own."""

    record: PeerRecord
    proof: bytes

    @staticmethod
    def signed_bytes(acceptor: bytes) -> bytes:
        return b"nearcast caller" + acceptor


# A frame, its priority, and whether it has to be in order.
WaitingFrame: TypeAlias = tuple[bytes, Priority, bool]


class _Peer:
    """Frames that wait for a link, or for the end of this turn of the loop."""

    __slots__ = ("bytes", "call", "link", "rests_until", "waiting")

    def __init__(self) -> None:
        self.link: Link | None = None
        self.call: asyncio.Task[None] | None = None
        self.waiting: list[WaitingFrame] = []
        self.bytes = 0
        self.rests_until = 0.0

    @property
    def is_busy(self) -> bool:
        return self.link is not None or self.call is not None or bool(self.waiting)

    def take(self) -> list[WaitingFrame]:
        waiting, self.waiting, self.bytes = self.waiting, [], 0
        return waiting


def make_frame(kind: int, frame: bytes) -> tuple[bytes, bytes]:
    return HEADER.pack(kind << 24 | len(frame)), frame


def take_frames(
    unread: bytearray, longest: int, most: int = sys.maxsize
) -> list[tuple[int, bytes]]:
    """Complete frames, which leave the buffer; ValueError if one is too long."""
    frames: list[tuple[int, bytes]] = []
    at, end = 0, len(unread)
    with memoryview(unread) as view:
        while end - at >= HEADER.size and len(frames) < most:
            head: int = HEADER.unpack_from(view, at)[0]
            size, begin = head & 0xFFFFFF, at + HEADER.size
            if size > longest:
                raise ValueError(f"a frame of {size} bytes")
            if end - begin < size:
                break
            at = begin + size
            frames.append((head >> 24, bytes(view[begin:at])))
    del unread[:at]
    return frames


def _take_messages(unread: bytearray, messages: list[bytes]) -> None:
    for kind, frame in take_frames(unread, LONGEST):
        if kind != MESSAGE:
            raise ValueError(f"a frame of kind {kind} on a stream of messages")
        messages.append(frame)


def _limit_early(link: Link) -> None:
    if sum(map(len, link.unread)) + sum(map(len, link.early)) > MOST_EARLY:
        raise ValueError("too much before its greeting")


class LinkTransport(ABC):
    """A transport over connections. A subclass knows how to listen and how to call."""

    def __init__(
        self,
        identity: Identity,
        host: str = "127.0.0.1",
        port: int = 0,
        limits: LinkLimits | None = None,
    ) -> None:
        self.identity = identity
        self.name = identity.name
        self.host, self.port = host, port
        self.book = AddressBook()
        self.limits = limits or LinkLimits()
        self._receive: Receive | None = None
        self._peers: dict[NodeId, _Peer] = {}
        self._links: dict[Link, None] = {}
        self._dirty: dict[NodeId, None] = {}
        self._awaited_records: dict[NodeId, asyncio.Future[PeerRecord]] = {}
        self.prepare()

    def prepare(self) -> None:  # noqa: B027
        """Make what it takes to listen and to call, as this identity."""

    @abstractmethod
    async def listen(self) -> int:
        """Listen at `host` and `port`; return the port. OSError if that cannot be."""

    @abstractmethod
    async def unlisten(self) -> None:
        """The port is free again."""

    @abstractmethod
    async def dial(self, host: str, port: int) -> Link:
        """A connection with the acceptor's proven key. OSError if nobody answers."""

    # What a host sees.

    async def open(self, on_receive: Receive) -> None:
        if self._receive is None:
            self._loop = asyncio.get_running_loop()
            self.port = await self.listen()
            self.record = sign_record(self.identity, self.host, self.port, time.time_ns() // 1000)
            self.book.add_record(self.record)
        self._receive = on_receive

    def send(
        self,
        to: NodeId,
        frame: bytes,
        lossy: bool,
        priority: Priority = Priority.UPKEEP,
        ordered: bool = True,
    ) -> None:
        if self._receive is None or len(frame) > LONGEST:
            return
        if to == self.name:
            self._loop.call_soon(self._deliver, to, [frame])
            return
        peer = self._peers.get(to)
        if peer is None:
            peer = self._peers[to] = _Peer()
        if lossy and peer.link is not None and len(frame) <= peer.link.connection.longest_alone:
            if peer.link.records_sent != self.book.latest:
                self._write(peer.link, [])  # records: the datagram may mention a name
            peer.link.connection.write_lossy(frame, priority)
            return
        if not self._fits(to, peer, len(frame), lossy):
            return
        peer.waiting.append((frame, priority, ordered))
        peer.bytes += len(frame)
        if to not in self._dirty:
            if not self._dirty:
                self._loop.call_soon(self._flush)
            self._dirty[to] = None

    def knows(self, node: NodeId) -> bool:
        return self.book.record(node) is not None

    async def close(self) -> None:
        if self._receive is None:
            return
        self._flush()
        calls = [peer.call for peer in self._peers.values() if peer.call is not None]
        if calls:
            await asyncio.wait(calls, timeout=CLOSING_S)
        self._receive = None
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        await self._until(lambda: not any(link.connection.unsent() for link in self._links))
        for link in list(self._links):
            link.connection.end()
        await self.unlisten()
        await self._until(lambda: not self._links)
        for link in list(self._links):
            link.connection.cut()
        self._peers.clear()

    async def _until(self, done: Callable[[], bool]) -> None:
        patience = self._loop.time() + CLOSING_S
        while not done() and self._loop.time() < patience:
            await asyncio.sleep(0.005)

    async def meet(self, host: str, port: int, patience_s: float = 10.0) -> NodeId:
        """Call whoever listens there, and learn its name. TimeoutError if nobody answers."""
        async with asyncio.timeout(patience_s):
            while True:
                with suppress(OSError):
                    link = await self.dial(host, port)
                    break
                await asyncio.sleep(0.1)
            self._links[link] = None
            link.identified = self._loop.create_future()
            self._write(link, [], self._caller_hello(link))
            return await link.identified

    def add_record(self, record: PeerRecord) -> bool:
        """Is this record genuine? Then its owner can be reached from now on."""
        known = self.book.add_record(record)
        waiting = self._awaited_records.get(record.name)
        if known and waiting is not None and not waiting.done():
            waiting.set_result(record)
        return known

    # What wires say.

    def accept(self, link: Link) -> None:
        """Somebody has called, and must say who it is."""
        if self._receive is None:
            link.connection.cut()
            return
        # The oldest has had the most time: silent connections keep no honest caller out.
        unidentified = [other for other in self._links if self._is_unidentified(other)]
        for other in unidentified[: max(0, len(unidentified) - MAX_UNIDENTIFIED + 1)]:
            self._cut(other)
        self._links[link] = None
        self._loop.call_later(PATIENCE_S, self._require_hello, link)

    def data_received(self, link: Link, part: bytes, stream: Priority = Priority.UPKEEP) -> None:
        link.unread[stream] += part
        messages: list[bytes] = []
        try:
            if stream is Priority.UPKEEP:
                self._take_first_stream(link, messages)
            elif link.peer is not None:
                _take_messages(link.unread[stream], messages)
            else:
                _limit_early(link)
        except (ValueError, msgspec.MsgspecError, RecursionError) as why:
            self._cut_for(link, why)
        if messages and link.peer is not None:
            self._deliver(link.peer, messages)

    def frame_received(self, link: Link, frame: bytes, lossy: bool) -> None:
        """A frame that has travelled by itself."""
        if link.peer is not None:
            self._deliver(link.peer, [frame])
        elif not lossy:  # else it has overtaken the greeting, and is lost
            link.early.append(frame)
            try:
                _limit_early(link)
            except ValueError as why:
                self._cut_for(link, why)

    def _take_first_stream(self, link: Link, messages: list[bytes]) -> None:
        """Greeting, records, messages; then what has overtaken the greeting on other ways."""
        early, unread = link.peer is None, link.unread[Priority.UPKEEP]
        if early and not link.called:
            for kind, frame in take_frames(unread, LONGEST_HELLO, most=1):
                if kind != HELLO:
                    raise ValueError("who calls must greet first")
                self._identify_caller(link, msgspec.msgpack.decode(frame, type=CallerHello))
            if link.peer is None:
                return
        for kind, frame in take_frames(unread, LONGEST):
            if kind == MESSAGE and link.peer is not None:
                messages.append(frame)
            elif kind == RECORDS:
                self._add_records(link, frame)
            else:
                raise ValueError(f"a frame of kind {kind} out of turn")
        if early and link.peer is not None:
            for other in link.unread[1:]:
                _take_messages(other, messages)
            messages += link.early
            link.early = []

    def _cut_for(self, link: Link, why: Exception) -> None:
        log.warning("node %d cuts a link: %s", self.name, str(why)[:200])
        self._cut(link)

    def connection_lost(self, link: Link) -> None:
        self._links.pop(link, None)
        if link.identified is not None and not link.identified.done():
            link.identified.set_exception(ConnectionError("it has hung up"))
        peer = self._peers.get(link.peer) if link.peer is not None else None
        if peer is not None and peer.link is link:
            peer.link = next((other for other in self._links if other.peer == link.peer), None)

    def _deliver(self, sender: NodeId, frames: Sequence[bytes]) -> None:
        if self._receive is not None:
            self._receive(sender, frames)

    # Sending.

    def _fits(self, to: NodeId, peer: _Peer, size: int, lossy: bool) -> bool:
        limit = self.limits.lossy if lossy else self.limits.all
        link = peer.link
        if size + peer.bytes + (link.unsent if link else 0) <= limit:
            return True
        if link is not None:
            link.unsent = link.connection.unsent()
            if size + peer.bytes + link.unsent <= limit:
                return True
        if not lossy:
            log.warning("node %d cuts its link to %d, which reads too slowly", self.name, to)
            peer.take()
            if link is not None:
                self._cut(link)
        return False

    def _flush(self) -> None:
        dirty, self._dirty = self._dirty, {}
        for name in dirty:
            peer = self._peers.get(name)
            if peer is None or not peer.waiting:
                continue
            if peer.link is not None:
                self._write(peer.link, peer.take())
            elif self._loop.time() < peer.rests_until:
                peer.take()
            elif peer.call is None:
                peer.call = self._loop.create_task(self._call(name, peer))

    def _write(
        self, link: Link, frames: Iterable[WaitingFrame], first: tuple[bytes, ...] = ()
    ) -> None:
        """Frames of one priority at once: one system call, however many frames."""
        connection, parts, stream = link.connection, [*first], Priority.UPKEEP
        link.records_sent, newer = self.book.since(link.records_sent)
        records_sent = [record for record in newer if record.name != link.peer]
        now = self._loop.time()
        if records_sent:
            link.records_arrive = now + RECORDS_ARRIVE_S
        arrived = now >= link.records_arrive
        for i in range(0, len(records_sent), RECORDS_PER_FRAME):
            parts += make_frame(
                RECORDS, msgspec.msgpack.encode(records_sent[i : i + RECORDS_PER_FRAME])
            )
        # In the order in which they were sent: they overtake each other only where some must wait.
        for frame, priority, ordered in frames:
            alone = not ordered and len(frame) <= connection.longest_alone
            if alone and not arrived:  # it stays behind the records of those that it may tell of
                alone, priority = False, Priority.UPKEEP
            if parts and (alone or priority is not stream):
                connection.write(b"".join(parts), stream)
                parts = []
            if alone:
                connection.write_alone(frame, priority)
            else:
                stream = priority
                parts += make_frame(MESSAGE, frame)
        if parts:
            connection.write(b"".join(parts), stream)
        link.unsent = connection.unsent()

    # Calling and being called.

    def _caller_hello(self, link: Link) -> tuple[bytes, bytes]:
        proof = self.identity.sign(CallerHello.signed_bytes(link.key))
        return make_frame(HELLO, msgspec.msgpack.encode(CallerHello(self.record, proof)))

    async def _call(self, name: NodeId, peer: _Peer) -> None:
        try:
            async with asyncio.timeout(PATIENCE_S):
                record = self.book.record(name) or await self._await_record(name)
                link = await self.dial(record.host, record.port)
            if link.key != record.key:
                link.connection.cut()
                raise ConnectionError("somebody else has answered")
        except (OSError, ValueError) as why:  # ValueError: an address that cannot be one
            log.debug("node %d cannot reach %d: %s", self.name, name, why)
            peer.rests_until = self._loop.time() + REST_S
            if peer.link is None:
                peer.take()
            return
        finally:
            peer.call = None
            self._awaited_records.pop(name, None)
        if peer.link is not None:  # it has called us meanwhile, or somebody has met it
            link.connection.end()
            return
        self._links[link] = None
        link.peer, link.life = name, record.t
        peer.link = link
        self._write(link, peer.take(), self._caller_hello(link))

    async def _await_record(self, name: NodeId) -> PeerRecord:
        """The record of a node that we have heard of by a datagram, before its record."""
        self._awaited_records[name] = self._loop.create_future()
        return await self._awaited_records[name]

    def _is_unidentified(self, link: Link) -> bool:
        """Has somebody called, and not yet said who it is?"""
        return link.peer is None and not link.called

    def _require_hello(self, link: Link) -> None:
        if link in self._links and self._is_unidentified(link):
            self._cut(link)

    def _identify_caller(self, link: Link, hello: CallerHello) -> None:
        record = hello.record
        if record.name == self.name or not self.add_record(record):
            raise ValueError(f"a record of {record.name} that is not its own")
        if not verify_signature(
            record.key, hello.proof, CallerHello.signed_bytes(self.identity.key)
        ):
            raise ValueError(f"somebody says to be {record.name} and cannot prove it")
        link.peer, link.life = record.name, record.t
        if len(self._peers) >= MAX_PEERS:
            self._peers = {name: one for name, one in self._peers.items() if one.is_busy}
        peer = self._peers.setdefault(record.name, _Peer())
        former = peer.link
        if former is None:
            peer.link = link
        elif not former.called or former.life < record.t:
            # It calls again, or has begun a new life: it knows nothing of the former link.
            peer.link = link
            self._cut(former)
        self._write(link, peer.take() if peer.link is link else [])

    def _add_records(self, link: Link, frame: bytes) -> None:
        for record in msgspec.msgpack.decode(frame, type=PeerRecords):
            known = self.book.key(record.name)
            if not self.add_record(record) and known in (None, record.key):
                # Nobody honest passes it on; and each one that is checked costs time.
                raise ValueError(f"a record of {record.name} that is not its own")
            if link.peer is None and record.key == link.key and record.is_genuine:
                link.peer, link.life = record.name, record.t
                peer = self._peers.setdefault(record.name, _Peer())
                if peer.link is None:
                    peer.link = link
                    self._write(link, peer.take())
                if link.identified is not None and not link.identified.done():
                    link.identified.set_result(record.name)

    def _cut(self, link: Link) -> None:
        link.connection.cut()
        self.connection_lost(link)
