"""Links by QUIC: for peers far from each other, as CUSP was for the papers' authors.

Encryption takes one round trip, and what is lost holds up nothing but its own stream. Each side has
one stream for all its reliable frames, since a stream of its own for each would cost more than the
frame. Lossy frames travel as datagrams if they fit one, and in the stream if they do not.
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
from nearcast.transport import links as bounds
from nearcast.transport.identity import Identity, key_of_certificate
from nearcast.transport.links import Link, LinkTransport

DATAGRAM = 1100  # bytes that fit a packet on any path, with all its headers
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
    def __init__(self, links: "QuicTransport", quic: QuicConnection, *, called: bool) -> None:
        super().__init__(quic)
        self.link = Link(self, called=called)
        self._links = links
        self._own = quic.get_next_available_stream_id(is_unidirectional=True)
        self._ended = False

    def quic_event_received(self, event: QuicEvent) -> None:
        if isinstance(event, StreamDataReceived):
            # Either side opens one stream, the first of its kind.
            if event.stream_id == self._own ^ 1:
                self._links.data_received(self.link, event.data)
            else:
                self.cut()
        elif isinstance(event, DatagramFrameReceived):
            self._links.datagram_received(self.link, event.data)
        elif isinstance(event, HandshakeCompleted):
            if not self.link.called:
                self._links.handshake_ended(self)
                self._links.accept(self.link)
        elif isinstance(event, ConnectionTerminated):
            self._hang_up()

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
        if not self._ended:
            super().transmit()

    def write(self, part: bytes) -> None:
        if not self._ended:
            # Between the other's goodbye and the end that qh3 reports lie some round trips, in
            # which it refuses to send.
            try:
                self._quic.send_stream_data(self._own, part)
            except QuicConnectionError:
                self._hang_up()
            else:
                self.transmit()

    def unsent(self) -> int:
        return 0 if self._ended else self._quic.get_send_buffer_size()

    def datagram(self, frame: bytes) -> bool:
        if len(frame) > DATAGRAM or self._ended:
            return False
        with suppress(QuicConnectionError):
            self._quic.send_datagram_frame(frame)
            self._transmit_soon()
        return True

    def end(self) -> None:
        if not self._ended:
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
