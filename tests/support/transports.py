"""Transports for tests: of all three kinds, with recorders of the frames that they receive."""

import asyncio
from collections.abc import Sequence

from nearcast.transport.identity import Identity, new_identity
from nearcast.transport.links import LinkLimits, LinkTransport
from nearcast.transport.loopback import LoopbackNetwork, LoopbackTransport
from nearcast.transport.quic import QuicTransport
from nearcast.transport.tls import TlsTransport
from nearcast.transport.transport import Transport
from support.patience import PATIENCE_S

WITH_LINKS = ("tls", "quic")
ALL = ("loopback", *WITH_LINKS)


class FrameRecorder:
    """All frames that one transport has received, in order."""

    def __init__(self) -> None:
        self.frames: list[tuple[int, bytes]] = []

    def __call__(self, sender: int, frames: Sequence[bytes]) -> None:
        self.frames += [(sender, frame) for frame in frames]

    def of(self, sender: Transport) -> list[bytes]:
        return [frame for name, frame in self.frames if name == sender.name]

    async def until(self, count: int) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while len(self.frames) < count:
                await asyncio.sleep(0.005)

    async def until_received(self, frame: bytes) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while all(received != frame for _, received in self.frames):
                await asyncio.sleep(0.005)


class Net:
    """Transports of one kind that can find each other once they have been introduced."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.room = LoopbackNetwork()
        self.opened: list[Transport] = []
        self.complaints: list[object] = []  # of the loop, about what nobody has caught

    def make(
        self, identity: Identity | None = None, port: int = 0, limits: LinkLimits | None = None
    ) -> Transport:
        identity = identity or new_identity()
        if self.kind == "loopback":
            return LoopbackTransport(identity.name, self.room)
        return {"tls": TlsTransport, "quic": QuicTransport}[self.kind](
            identity, port=port, limits=limits
        )

    async def open(
        self, identity: Identity | None = None, port: int = 0, limits: LinkLimits | None = None
    ) -> tuple[Transport, FrameRecorder]:
        transport, recorder = self.make(identity, port, limits), FrameRecorder()
        await transport.open(recorder)
        self.opened.append(transport)
        return transport, recorder

    async def acquaint(self, *transports: Transport) -> None:
        """Everybody knows where everybody listens; there are no links yet."""
        for one in transports:
            for other in transports:
                if isinstance(one, LinkTransport) and isinstance(other, LinkTransport):
                    assert one.add_record(other.record)

    async def __aenter__(self) -> "Net":
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _loop, context: self.complaints.append(context))
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.gather(*(transport.close() for transport in self.opened))
        assert not self.complaints, self.complaints
