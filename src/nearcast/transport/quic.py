"""Links by QUIC: for peers far from each other, as CUSP was for the papers' authors.

Encryption takes one round trip, and what is lost holds up nothing but its own stream. Each side has
one stream for each priority. A small frame that needs no order has a stream of its own, opened and
ended in one packet ([Lucas2011] 2.3); a small lossy frame is a datagram. Larger ones, and those for
which there is no further stream in this round trip, take the stream of their priority.

qh3 shares what it may send evenly among its streams, and puts no bound on datagrams that wait. So
it is handed no more than may leave now, the most urgent first, and the rest waits here.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import cast

from qh3.asyncio._transport import create_optimized_datagram_transport
from qh3.asyncio.protocol import QuicConnectionProtocol
from qh3.asyncio.server import QuicServer
from qh3.quic.configuration import QuicConfiguration
from qh3.quic.connection import NetworkAddress, QuicConnection, QuicConnectionError
from qh3.quic.events import (
    ConnectionTerminated,
    DatagramFrameReceived,
    HandshakeCompleted,
    QuicEvent,
    StreamDataReceived,
)
from qh3.tls import SignatureAlgorithm

from nearcast.errors import TraceError
from nearcast.node import Priority
from nearcast.transport import links as bounds
from nearcast.transport.backlog import LinkBacklog, WaitingPart
from nearcast.transport.identity import Identity, key_of_certificate
from nearcast.transport.links import MESSAGE, Link, LinkTransport, make_frame

LONGEST_ALONE = 1100  # bytes that fit a packet on any path, with all its headers
MOST_STREAMS = 512  # of single frames that have not arrived completely
AHEAD = 1 << 16  # bytes that qh3 is handed at once
PER_PACKET = 40  # bytes of a packet that are not ours
IDLE_S = 30.0  # without a word, after which a link is forgotten
PROTOCOL = "nearcast"

log = logging.getLogger(__name__)
logging.getLogger("quic").setLevel(logging.ERROR)  # qh3 warns of every ordinary goodbye


def _configurations(identity: Identity) -> tuple[QuicConfiguration, QuicConfiguration]:
    """For those who call us, and for calling. No authority vouches for anybody: keys do."""
    accepting, calling = (
        QuicConfiguration(
            is_client=calls,
            alpn_protocols=[PROTOCOL],
            idle_timeout=IDLE_S,
            max_datagram_frame_size=65536,
        )
        for calls in (False, True)
    )
    accepting.load_cert_chain(identity.certificate_pem(), identity.private_pem())
    calling.verify_mode = ssl.CERT_NONE  # the proven key is compared with the name's instead
    calling.signature_algorithms = [SignatureAlgorithm.ED25519]
    calling.server_name = PROTOCOL
    return accepting, calling


class _QuicConnection(QuicConnectionProtocol):
    longest_alone = LONGEST_ALONE

    def __init__(self, links: "QuicTransport", quic: QuicConnection, *, called: bool) -> None:
        super().__init__(quic)
        self.link = Link(self, called=called)
        self._links = links
        # Unidirectional streams of one side have every fourth number; the first are those of
        # the priorities, in their order.
        first = quic.get_next_available_stream_id(is_unidirectional=True)
        self._own = tuple(first + 4 * priority for priority in Priority)
        self._next_alone = first + 4 * len(Priority)
        self._theirs = {(first ^ 1) + 4 * priority: priority for priority in Priority}
        self._alone: dict[int, bytes] = {}  # by stream: frames of which a part has arrived
        self._backlog = LinkBacklog()
        self._room: int | None = None  # see _may_hand_over; None: not known
        self._ended = False

    def quic_event_received(self, event: QuicEvent) -> None:
        if isinstance(event, StreamDataReceived):
            self._stream_received(event)
        elif isinstance(event, DatagramFrameReceived):
            self._links.frame_received(self.link, event.data, lossy=True)
        elif isinstance(event, HandshakeCompleted):
            if not self.link.called:
                self._links.handshake_ended(self)
                self._links.accept(self.link)
        elif isinstance(event, ConnectionTerminated):
            self._hang_up()

    def _stream_received(self, event: StreamDataReceived) -> None:
        stream = event.stream_id
        priority = self._theirs.get(stream)
        if priority is not None:
            self._links.data_received(self.link, event.data, priority)
            return
        frame = self._alone.pop(stream, b"") + event.data
        is_single = stream & 2 and (stream ^ self._own[0]) & 1
        if not is_single or len(frame) > LONGEST_ALONE or len(self._alone) >= MOST_STREAMS:
            self.cut()
        elif event.end_stream:
            self._links.frame_received(self.link, frame, lossy=False)
        else:
            self._alone[stream] = frame

    def datagram_received(self, data: bytes | str, addr: NetworkAddress) -> None:
        """An exception that gets out of here would end the socket, and with it all other links."""
        try:
            super().datagram_received(data, addr)
        except TraceError:
            raise
        except Exception as why:
            log.warning("node %d cuts a link: %r", self._links.name, why)
            self.cut()

    def transmit(self) -> None:
        """What may leave now, by priority."""
        while not self._ended:
            super().transmit()
            self._room = None
            if not self._backlog.parts or self._may_hand_over() <= 0:
                return
            while self._backlog.parts and self._may_hand_over() > 0 and not self._ended:
                self._hand_over(self._backlog.take())

    def _may_hand_over(self) -> int:
        """Bytes that qh3 may be handed before it sends what it has."""
        if self._room is None:
            core = self._quic._core  # qh3 tells its window nowhere else
            window = core.congestion_window - core.bytes_in_flight if core is not None else 0
            unsent = self._quic.get_send_buffer_size()
            self._room = min(AHEAD, window) - unsent
            if unsent and self._quic.get_send_buffer_size(self._own[Priority.UPKEEP]):
                self._room = 0  # datagrams would leave before it, and starve it
        return self._room

    def _hand_over(self, one: WaitingPart) -> None:
        part, room = one.part, self._may_hand_over()
        self._room = room - len(part) - PER_PACKET * (one.lossy or one.alone)
        # Between the other's goodbye and the end that qh3 reports lie some round trips, in which it
        # refuses to send.
        try:
            if one.lossy:
                self._quic.send_datagram_frame(bytes(part))
            elif one.alone and self._quic._stream_can_send(self._next_alone):
                self._quic.send_stream_data(self._next_alone, part, end_stream=True)
                self._next_alone += 4
            else:
                if one.alone:  # the other side admits no further stream in this round trip
                    part = b"".join(make_frame(MESSAGE, bytes(part)))
                elif len(part) > room:
                    self._backlog.put_back(WaitingPart(memoryview(part)[room:], one.priority))
                    part = memoryview(part)[:room]
                self._quic.send_stream_data(self._own[one.priority], part)
        except QuicConnectionError:
            self._hang_up()

    def write(self, part: bytes, priority: Priority = Priority.UPKEEP) -> None:
        self._put(WaitingPart(part, priority))

    def write_alone(self, frame: bytes, priority: Priority) -> None:
        self._put(WaitingPart(frame, priority, alone=True))

    def write_lossy(self, frame: bytes, priority: Priority) -> None:
        self._put(WaitingPart(frame, priority, lossy=True))

    def _put(self, one: WaitingPart) -> None:
        if self._ended:
            return
        if not self._backlog.parts and self._may_hand_over() > 0:
            self._hand_over(one)
        elif one.lossy:
            self._backlog.put_lossy(one, self._links.limits.lossy)
        else:
            self._backlog.put(one)
        if not self._ended:
            self._transmit_soon()

    def unsent(self) -> int:
        if self._ended:
            return 0
        waiting = self._backlog.bytes + self._backlog.lossy_bytes
        return waiting + self._quic.get_send_buffer_size()

    def end(self) -> None:
        if not self._ended:
            self._backlog = LinkBacklog()  # what is left would keep the goodbye from leaving
            self.close()
            self._hang_up()

    cut = end

    def _hang_up(self) -> None:
        self._ended = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._transmit_task is not None:
            self._transmit_task.cancel()
        if not self.link.called:
            self._links.handshake_ended(self)
            self._connection_terminated_handler()  # the server forgets it
        elif self._transport is not None:
            self._transport.close()  # only a caller has a socket of its own
        self._links.connection_lost(self.link)


class _QuicListener(QuicServer):
    """The socket that accepts connections."""

    def __init__(
        self,
        closed: asyncio.Event,
        configuration: QuicConfiguration,
        accept: Callable[..., _QuicConnection],
    ) -> None:
        super().__init__(configuration=configuration, create_protocol=accept)
        self._closed = closed

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._closed.set()


class QuicTransport(LinkTransport):
    """Links over QUIC."""

    def prepare(self) -> None:
        self._accepting, self._calling = _configurations(self.identity)
        self._listening: asyncio.DatagramTransport | None = None
        self._closed = asyncio.Event()
        # Callers in their handshake, oldest first, and what cuts them when they are too slow.
        self._handshakes: dict[_QuicConnection, asyncio.TimerHandle] = {}

    async def listen(self) -> int:
        def accept(quic: QuicConnection, **_: object) -> _QuicConnection:
            while len(self._handshakes) >= bounds.MAX_UNIDENTIFIED:
                next(iter(self._handshakes)).cut()
            connection = _QuicConnection(self, quic, called=False)
            self._handshakes[connection] = loop.call_later(bounds.HANDSHAKE_S, connection.cut)
            return connection

        loop = asyncio.get_running_loop()

        self._listening, _ = await loop.create_datagram_endpoint(
            lambda: _QuicListener(self._closed, self._accepting, accept),
            local_addr=(self.host, self.port),
        )
        port: int = self._listening.get_extra_info("sockname")[1]
        return port

    def handshake_ended(self, connection: _QuicConnection) -> None:
        """Its handshake is complete, or has ended."""
        handle = self._handshakes.pop(connection, None)
        if handle is not None:
            handle.cancel()

    async def unlisten(self) -> None:
        for connection in list(self._handshakes):
            connection.cut()
        if self._listening is not None:
            self._listening.close()
            await self._closed.wait()

    async def dial(self, host: str, port: int) -> Link:
        loop = asyncio.get_running_loop()
        family, _, _, _, address = (await loop.getaddrinfo(host, port, type=socket.SOCK_DGRAM))[0]
        own = socket.socket(family, socket.SOCK_DGRAM)
        own.bind(("", 0))
        quic = QuicConnection(configuration=self._calling)
        _, protocol = await create_optimized_datagram_transport(
            loop, lambda: _QuicConnection(self, quic, called=True), sock=own
        )
        connection = cast(_QuicConnection, protocol)
        try:
            connection.connect(address)
            await connection.wait_connected()
            certificate = quic.get_peercert()
            if certificate is not None:
                with suppress(ValueError):
                    connection.link.key = key_of_certificate(certificate.public_bytes())
        except QuicConnectionError as why:
            connection.cut()
            raise ConnectionError(str(why)) from why
        except BaseException:
            connection.cut()
            raise
        return connection.link
