"""QUIC transports on a clock and a network that a test plays: no socket, no second is waited for.

The loop's time stands still while anything can be done, and then jumps to the next timer. Packets
take `delay`, leave one after the other at `rate` bytes a second, and those that `drops` chooses
never arrive, nor those that would wait for longer than `QUEUE_S`.
"""

import asyncio
import selectors
from collections.abc import Callable, Coroutine, Sequence
from itertools import count
from typing import Any, TypeVar, cast

from nearcast.transport import quic
from nearcast.transport.identity import Identity, new_identity
from nearcast.transport.links import LinkLimits
from nearcast.transport.quic import QuicTransport

Answer = TypeVar("Answer")
Address = tuple[str, int]
DELAY = 0.05
QUEUE_S = 0.3  # of a line
LATEST = 3600.0  # a scene that lasts so long has lost itself


class _Clock(selectors.SelectSelector):
    """A selector without sockets: to wait is to let the time pass."""

    now = 1000.0

    def select(self, timeout: float | None = None) -> list[Any]:
        assert timeout is not None and self.now < 1000.0 + LATEST, "nothing will ever happen"
        self.now += timeout
        return []


class PlayedLoop(asyncio.SelectorEventLoop):
    """A loop with a time of its own, whose UDP endpoints are those of a played network."""

    def __init__(self) -> None:
        self._clock = _Clock()
        super().__init__(self._clock)
        self.network = PlayedNetwork(self)

    def time(self) -> float:
        return self._clock.now

    async def create_datagram_endpoint(
        self, protocol_factory: Callable[[], Any], **_: Any
    ) -> tuple["_Endpoint", Any]:
        return self.network.open(protocol_factory())

    async def getaddrinfo(self, host: Any, port: Any, **_: Any) -> list[Any]:
        return [(2, 2, 17, "", (host, port))]


class PlayedNetwork:
    """Where packets travel."""

    def __init__(self, loop: PlayedLoop) -> None:
        self.loop = loop
        self.delay, self.rate = DELAY, float("inf")
        self.drops: Callable[[Address, bytes], bool] = lambda _source, _packet: False
        self._ports = count(5000)
        self._ends: dict[Address, Any] = {}
        self._free: dict[Address, float] = {}

    def open(self, protocol: Any) -> tuple["_Endpoint", Any]:
        endpoint = _Endpoint(self, ("127.0.0.1", next(self._ports)))
        self._ends[endpoint.address] = protocol
        protocol.connection_made(endpoint)
        return endpoint, protocol

    def close(self, address: Address) -> None:
        protocol = self._ends.pop(address, None)
        if protocol is not None:
            self.loop.call_soon(protocol.connection_lost, None)

    def carry(self, source: Address, target: Address, packet: bytes) -> None:
        now = self.loop.time()
        begin = max(now, self._free.get(source, 0.0))
        if begin > now + QUEUE_S:
            return
        self._free[source] = sent = begin + len(packet) / self.rate
        if not self.drops(source, packet):
            self.loop.call_at(sent + self.delay, self._arrive, source, target, packet)

    def _arrive(self, source: Address, target: Address, packet: bytes) -> None:
        if target in self._ends:
            self._ends[target].datagram_received(packet, source)


class _Endpoint(asyncio.DatagramTransport):
    """One end of the network, as asyncio shows a socket."""

    def __init__(self, network: PlayedNetwork, address: Address) -> None:
        super().__init__({"sockname": address})
        self._network, self.address = network, address

    def sendto(self, data: Any, addr: Any = None) -> None:
        self._network.carry(self.address, addr, bytes(data))

    def close(self) -> None:
        self._network.close(self.address)


class Arrivals:
    """Frames that one transport receives, and when."""

    def __init__(self, loop: PlayedLoop) -> None:
        self._loop = loop
        self.frames: list[bytes] = []
        self.times: dict[bytes, float] = {}

    def __call__(self, _sender: int, frames: Sequence[bytes]) -> None:
        self.frames += frames
        self.times |= dict.fromkeys(frames, self._loop.time())


class QuicScene:
    """Two transports, ann and ben, on a played network; what arrives at ben is recorded."""

    def __init__(self, kind: type[QuicTransport] = QuicTransport) -> None:
        self._kind = kind
        self.loop = cast(PlayedLoop, asyncio.get_running_loop())
        self.network = self.loop.network
        self.at_ben = Arrivals(self.loop)

    async def open(self, limits: LinkLimits | None = None, *, linked: bool = True) -> None:
        self.ann = await self._transport(new_identity(), limits)
        self.ben = await self._transport(new_identity(), limits, self.at_ben)
        assert self.ann.add_record(self.ben.record) and self.ben.add_record(self.ann.record)
        if linked:
            self.send(b"a link")
            await asyncio.sleep(2.0)
            assert self.at_ben.frames.pop() == b"a link"

    async def _transport(
        self, identity: Identity, limits: LinkLimits | None, hear: Any = lambda *_: None
    ) -> QuicTransport:
        transport = self._kind(identity, limits=limits)
        await transport.open(hear)
        return transport

    def send(self, frame: bytes, lossy: bool = False, *how: Any) -> None:
        self.ann.send(self.ben.name, frame, lossy, *how)

    def lose_next(self, wanted: int = 1, longer_than: int = 0) -> None:
        """The next packets of ann do not arrive, of those that are so long."""
        (link,) = self.ann._links
        source = cast(Any, link.connection)._transport.address
        left = wanted

        def drops(sender: Address, packet: bytes) -> bool:
            nonlocal left
            if sender == source and len(packet) > longer_than and left:
                left -= 1
                return True
            return False

        self.network.drops = drops

    async def close(self) -> None:
        await self.ann.close()
        await self.ben.close()


def run_played(main: Callable[[], Coroutine[Any, Any, Answer]]) -> Answer:
    """Run it on a `PlayedLoop`, on whose network QUIC then is."""

    async def dial(loop: Any, factory: Callable[[], Any], sock: Any) -> tuple[Any, Any]:
        sock.close()
        return loop.network.open(factory())

    before = quic.create_optimized_datagram_transport
    quic.create_optimized_datagram_transport = dial
    try:
        with asyncio.Runner(loop_factory=PlayedLoop) as runner:
            return runner.run(main())
    finally:
        quic.create_optimized_datagram_transport = before


def play(
    scene: Callable[[QuicScene], Coroutine[Any, Any, None]],
    kind: type[QuicTransport] = QuicTransport,
    **opening: Any,
) -> None:
    """A scene from its beginning to its end."""

    async def main() -> None:
        played = QuicScene(kind)
        await played.open(**opening)
        await scene(played)
        await played.close()

    run_played(main)
