"""Links by TLS 1.3 over TCP: the cheapest bytes, for nodes close to each other.

All frames share one stream, lossy ones too, until a slow peer makes it worth while to drop them.
"""

import asyncio
import os
import ssl
import tempfile
from typing import cast

from nearcast.live.identity import Identity, key_of_certificate
from nearcast.live.links import Limits, Link, Links

# Bytes that a connection is handed at once. What it has taken it hides from us, so it gets no more
# than this before it says whether it can go on.
MOUTHFUL = 1 << 16


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


class _Wire(asyncio.Protocol):
    def __init__(self, links: Links, *, called: bool) -> None:
        self.link = Link(self, called=called)
        self._links = links
        self._paused = False
        self._held = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's has no such base
        self._transport.set_write_buffer_limits(MOUTHFUL)
        if self.link.called:
            certificate = transport.get_extra_info("ssl_object").getpeercert(binary_form=True)
            try:
                self.link.key = key_of_certificate(certificate)
            except ValueError:
                self.cut()
        else:
            self._links.called_by(self.link)

    def data_received(self, data: bytes) -> None:
        self._links.heard(self.link, data)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._links.lost(self.link)

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        held, self._held = self._held, bytearray()
        self.write(bytes(held))

    def write(self, part: bytes) -> None:
        at = 0
        while at < len(part) and not self._paused:
            self._transport.write(part[at : at + MOUTHFUL])
            at += MOUTHFUL
        self._held += part[at:]

    def unsent(self) -> int:
        return len(self._held) + self._transport.get_write_buffer_size()

    def datagram(self, frame: bytes) -> bool:  # noqa: ARG002
        return False

    def end(self) -> None:
        self._transport.close()

    def cut(self) -> None:
        self._transport.abort()


class Tls(Links):
    def __init__(
        self,
        identity: Identity,
        host: str = "127.0.0.1",
        port: int = 0,
        limits: Limits | None = None,
    ) -> None:
        super().__init__(identity, host, port, limits)
        self._accepting, self._calling = _contexts(identity)
        self._server: asyncio.Server | None = None

    async def listen(self) -> int:
        self._server = await asyncio.get_running_loop().create_server(
            lambda: _Wire(self, called=False), self.host, self.port, ssl=self._accepting
        )
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def unlisten(self) -> None:
        if self._server is not None:
            self._server.close()

    async def dial(self, host: str, port: int) -> Link:
        _, wire = await asyncio.get_running_loop().create_connection(
            lambda: _Wire(self, called=True), host, port, ssl=self._calling
        )
        return wire.link
