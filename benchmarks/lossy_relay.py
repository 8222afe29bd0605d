"""A UDP relay on loopback that delays every packet and loses some: a bad network for real sockets.

It reads a port a line, and answers with the port at which it takes packets for that one; replies
go back the same way. At the end of its input it prints how many packets it took, their bytes, with
28 of UDP and IP around each, and how many it lost, and ends.

Run: python benchmarks/lossy_relay.py DELAY_MS LOSS SEED
"""

import asyncio
import sys
from random import Random

HEADERS = 28
HERE = "127.0.0.1"


class Relay:
    """All fronts of one relay, and what they have in common."""

    def __init__(self, delay_s: float, loss: float, seed: int) -> None:
        self.delay_s, self.loss, self.rng = delay_s, loss, Random(seed)
        self.packets = self.bytes = self.lost = 0

    async def front(self, port: int) -> int:
        """The port at which packets for `port` are taken."""
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_datagram_endpoint(
            lambda: Front(self, port), local_addr=(HERE, 0)
        )
        front: int = transport.get_extra_info("sockname")[1]
        return front

    def carry(self, out: asyncio.DatagramTransport, packet: bytes, to: tuple[str, int]) -> None:
        self.packets += 1
        self.bytes += len(packet) + HEADERS
        if self.rng.random() < self.loss:
            self.lost += 1
        else:
            asyncio.get_running_loop().call_later(self.delay_s, out.sendto, packet, to)


class Front(asyncio.DatagramProtocol):
    """Where callers of one node send to; each gets a socket of its own behind it."""

    def __init__(self, relay: Relay, port: int) -> None:
        self._relay, self._port = relay, port
        self._behind: dict[tuple[str, int], asyncio.Task[asyncio.DatagramTransport]] = {}

    def connection_made(self, transport: asyncio.DatagramTransport) -> None:
        self.out = transport

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        if addr not in self._behind:
            self._behind[addr] = asyncio.create_task(self._open(addr))
        behind = self._behind[addr]
        if behind.done():
            self._relay.carry(behind.result(), data, (HERE, self._port))
        else:
            behind.add_done_callback(
                lambda task: self._relay.carry(task.result(), data, (HERE, self._port))
            )

    async def _open(self, caller: tuple[str, int]) -> asyncio.DatagramTransport:
        transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
            lambda: Back(self._relay, self.out, caller), local_addr=(HERE, 0)
        )
        return transport


class Back(asyncio.DatagramProtocol):
    """Takes what the node answers to one caller."""

    def __init__(
        self, relay: Relay, out: asyncio.DatagramTransport, caller: tuple[str, int]
    ) -> None:
        self._relay, self._out, self._caller = relay, out, caller

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:  # noqa: ARG002
        self._relay.carry(self._out, data, self._caller)


async def main(delay_ms: float, loss: float, seed: int) -> None:
    relay, loop = Relay(delay_ms / 1000, loss, seed), asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        print(await relay.front(int(line)), flush=True)
    print(relay.packets, relay.bytes, relay.lost, flush=True)


if __name__ == "__main__":
    asyncio.run(main(float(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])))
