"""What links cost: TLS over TCP and QUIC against plain asyncio streams without encryption.

One process holds both ends on the loopback interface, on uvloop where there is one, so every figure
is the CPU time of sender and receiver together. `plain` writes the same length-prefixed frames,
joined per flush as our transports do, into an asyncio stream and reads them with `readexactly`. It
has no names, no proofs, no limits. All three take turns; each figure is the median of the rounds.

handshake   a new connection until it may carry frames; for TLS and QUIC with a proven key
bulk        frames of 1,200 bytes, 20 per flush
small       frames of 64 bytes, 20 per flush
lossy       the same 64 bytes, but lossy: datagrams in QUIC

Run: python benchmarks/transport.py [ROUNDS]
"""

import asyncio
import sys
from collections.abc import Sequence
from statistics import median
from time import process_time

from nearcast.peer.host import run
from nearcast.transport.identity import new_identity
from nearcast.transport.links import LinkTransport
from nearcast.transport.quic import QuicTransport
from nearcast.transport.tls import TlsTransport

HANDSHAKES = 40
FLUSH = 20  # frames
WINDOW = 2000  # frames that may be under way; more would be cut as too slow
COUNTS = {"bulk": (1200, 20_000), "small": (64, 60_000), "lossy": (64, 20_000)}


class Plain:
    """Frames over an asyncio stream."""

    received = 0

    async def begin(self) -> None:
        self.server = await asyncio.start_server(self._read, "127.0.0.1", 0)
        self.port = self.server.sockets[0].getsockname()[1]
        _, self.writer = await asyncio.open_connection("127.0.0.1", self.port)

    async def _read(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                await reader.readexactly(size)
                self.received += 1
        except asyncio.IncompleteReadError:
            writer.close()

    async def shake_hands(self) -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.close()

    def send(self, frame: bytes, lossy: bool) -> None:
        assert not lossy
        part = len(frame).to_bytes(4, "big") + frame
        self.writer.write(part * FLUSH)

    async def end(self) -> None:
        self.writer.close()
        self.server.close()


class Ours:
    """Frames over a transport of ours."""

    received = 0

    def __init__(self, kind: type[LinkTransport]) -> None:
        self.near, self.far = kind(new_identity()), kind(new_identity())

    async def begin(self) -> None:
        await self.near.open(lambda *_: None)
        await self.far.open(self._receive)
        await self.near.meet(self.far.host, self.far.port)

    def _receive(self, _sender: int, frames: Sequence[bytes]) -> None:
        self.received += len(frames)

    async def shake_hands(self) -> None:
        link = await self.near.dial(self.far.host, self.far.port)
        link.connection.end()

    def send(self, frame: bytes, lossy: bool) -> None:
        for _ in range(FLUSH):
            self.near.send(self.far.name, frame, lossy)

    async def end(self) -> None:
        await self.near.close()
        await self.far.close()


async def handshake_ms(link: Plain | Ours) -> float:
    await link.shake_hands()
    begin = process_time()
    for _ in range(HANDSHAKES):
        await link.shake_hands()
    await asyncio.sleep(0.05)  # the far ends' last words
    return (process_time() - begin) / HANDSHAKES * 1000


async def frames_per_cpu_second(link: Plain | Ours, what: str) -> float:
    """Of frames that arrive: what is lost does not count."""
    size, count = COUNTS[what]
    frame, lossy, first = bytes(size), what == "lossy", link.received
    begin, idle = process_time(), 0
    for sent in range(FLUSH, count + 1, FLUSH):
        link.send(frame, lossy)
        await asyncio.sleep(0)
        while not lossy and first + sent - link.received > WINDOW:
            await asyncio.sleep(0)
        if lossy:
            await asyncio.sleep(0.0005)
    while link.received - first < count and idle < 50:  # what is lost does not come
        before = link.received
        await asyncio.sleep(0.002)
        idle = idle + 1 if link.received == before else 0
    return (link.received - first) / (process_time() - begin)


async def measure(make: str) -> dict[str, float]:
    link = {"plain": Plain, "tls": lambda: Ours(TlsTransport), "quic": lambda: Ours(QuicTransport)}[
        make
    ]()
    await link.begin()
    figures = {"handshake": await handshake_ms(link)}
    for what in COUNTS:
        if not (make == "plain" and what == "lossy"):
            figures[what] = await frames_per_cpu_second(link, what)
    await link.end()
    return figures


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    figures: dict[tuple[str, str], list[float]] = {}
    for _ in range(rounds):
        for kind in ("plain", "tls", "quic"):
            for what, figure in run(measure(kind)).items():
                figures.setdefault((kind, what), []).append(figure)
    middle = {key: median(values) for key, values in figures.items()}
    print(f"{'both ends together':32}{'plain':>10}{'TLS':>10}{'QUIC':>10}{'QUIC / TLS':>13}")
    for what, unit, scale in (
        ("handshake", "ms CPU", 1.0),
        ("bulk", "MB / CPU-s", COUNTS["bulk"][0] / 1e6),
        ("small", "k frames / CPU-s", 1e-3),
        ("lossy", "k frames / CPU-s", 1e-3),
    ):
        row = [middle.get((kind, what)) for kind in ("plain", "tls", "quic")]
        cells = "".join("         –" if v is None else f"{v * scale:>10.2f}" for v in row)
        ratio = middle["quic", what] / middle["tls", what]
        print(f"{what:12}{unit:20}{cells}{ratio:>13.2f}")


if __name__ == "__main__":
    main()
