"""Links by TLS 1.3 over TCP: the cheapest bytes, for nodes close to each other.

All frames share one stream, lossy ones too, until a slow peer makes it worth while to drop them.
While the system takes no more, frames wait by their priorities; what it has taken keeps its turn.
"""

import asyncio
import logging
import os
import socket
import ssl
import tempfile
from contextlib import suppress
from typing import cast

from nearcast.node import Priority
from nearcast.transport import links as bounds
from nearcast.transport.backlog import LinkBacklog, WaitingPart
from nearcast.transport.identity import Identity, key_of_certificate
from nearcast.transport.links import Link, LinkTransport

log = logging.getLogger(__name__)

# Bytes that a connection is handed at once. What it has taken it hides from us, so it gets no more
# than this before it says whether it can go on.
WRITE_CHUNK = 1 << 16
BACKLOG = 512  # connections that the system holds until they are accepted
AGAIN_S = 0.5  # after which somebody is accepted again if the system could not, for want of files


def _contexts(identity: Identity) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """For those who call us, and for calling. No authority vouches for anybody: keys do."""
    accepting = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    calling = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    calling.check_hostname = False
    calling.verify_mode = ssl.CERT_NONE  # the proven key is compared with the name's instead
    for context in (accepting, calling):
        context.minimum_version = ssl.TLSVersion.TLSv1_3
    accepting.num_tickets = 0  # sessions are never resumed
    # OpenSSL reads keys from files alone; this one is readable for its owner and soon gone.
    handle, name = tempfile.mkstemp()
    try:
        with open(handle, "wb") as file:
            file.write(identity.certificate_pem() + identity.private_pem())
        accepting.load_cert_chain(name)
    finally:
        os.unlink(name)
    return accepting, calling


class _TlsConnection(asyncio.Protocol):
    longest_alone = -1

    def __init__(self, links: LinkTransport, *, called: bool) -> None:
        self.link = Link(self, called=called)
        self._links = links
        self._paused = False
        self._backlog = LinkBacklog()
        self._begun = memoryview(b"")  # what is left of the part that is being written

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's has no such base
        self._transport.set_write_buffer_limits(WRITE_CHUNK)
        if self.link.called:
            certificate = transport.get_extra_info("ssl_object").getpeercert(binary_form=True)
            try:
                self.link.key = key_of_certificate(certificate)
            except ValueError:
                self.cut()
        else:
            self._links.accept(self.link)

    def data_received(self, data: bytes) -> None:
        self._links.data_received(self.link, data)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._links.connection_lost(self.link)

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self._send_waiting()

    def write(self, part: bytes, priority: Priority = Priority.UPKEEP) -> None:
        if len(part) <= WRITE_CHUNK and not (self._paused or self._begun or self._backlog.parts):
            self._transport.write(part)
        else:
            self._backlog.put(WaitingPart(part, priority))
            self._send_waiting()

    def _send_waiting(self) -> None:
        while not self._paused and (self._begun or self._backlog.parts):
            part = self._begun or memoryview(self._backlog.take().part)
            self._begun = part[WRITE_CHUNK:]  # nothing may come between, whatever its priority
            self._transport.write(part[:WRITE_CHUNK])

    def write_alone(self, frame: bytes, priority: Priority) -> None:
        raise AssertionError(
            f"{len(frame)} bytes of {priority!r} by themselves: TLS has one stream"
        )

    write_lossy = write_alone

    def unsent(self) -> int:
        return self._backlog.bytes + len(self._begun) + self._transport.get_write_buffer_size()

    def end(self) -> None:
        self._transport.close()

    def cut(self) -> None:
        self._transport.abort()


class TlsTransport(LinkTransport):
    """Links over TLS 1.3 and TCP."""

    def prepare(self) -> None:
        self._accepting, self._calling = _contexts(self.identity)
        self._listening: socket.socket | None = None
        self._handshakes: dict[asyncio.Task[None], None] = {}  # oldest first

    async def listen(self) -> int:
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(
            self.host or None, self.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        family, _, _, _, address = found[0]
        listening = socket.create_server(address, family=family, backlog=BACKLOG)
        listening.setblocking(False)
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # for all it accepts
        self._listening = listening
        self._accept_on()
        port: int = listening.getsockname()[1]
        return port

    async def unlisten(self) -> None:
        if self._listening is not None:
            asyncio.get_running_loop().remove_reader(self._listening)
            self._listening.close()
            self._listening = None
            handshakes = list(self._handshakes)
            for handshake in handshakes:
                handshake.cancel()
            await asyncio.gather(*handshakes, return_exceptions=True)

    def _accept_on(self) -> None:
        if self._listening is not None:
            asyncio.get_running_loop().add_reader(self._listening, self._accept, self._listening)

    def _accept(self, listening: socket.socket) -> None:
        """An asyncio server would accept any number of connections and let each take its time."""
        loop = asyncio.get_running_loop()
        try:
            connection, _ = listening.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError as why:
            log.warning("node %d cannot accept a connection: %s", self.name, why)
            loop.remove_reader(listening)
            loop.call_later(AGAIN_S, self._accept_on)
            return
        connection.setblocking(False)
        while len(self._handshakes) >= bounds.MAX_UNIDENTIFIED:
            # It has had the most time: silent connections keep no honest caller out.
            oldest = next(iter(self._handshakes))
            del self._handshakes[oldest]
            oldest.cancel()
        handshake = loop.create_task(self._shake_hands(connection))
        self._handshakes[handshake] = None

        def ended(task: asyncio.Task[None]) -> None:
            self._handshakes.pop(task, None)
            if task.cancelled():
                connection.close()  # also if it was never begun

        handshake.add_done_callback(ended)

    async def _shake_hands(self, connection: socket.socket) -> None:
        with suppress(OSError):  # it has hung up, is too slow, or does not speak TLS
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: _TlsConnection(self, called=False), connection, ssl=self._accepting,
                ssl_handshake_timeout=bounds.HANDSHAKE_S,
            )  # fmt: skip

    async def dial(self, host: str, port: int) -> Link:
        _, connection = await asyncio.get_running_loop().create_connection(
            lambda: _TlsConnection(self, called=True), host, port, ssl=self._calling
        )
        return connection.link
