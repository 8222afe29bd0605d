"""What a well-behaved client notices while others attack the node it is on.

A node is started with a token. One client publishes twenty times a second next to another one that
listens: the good pair. Attacks run in turn, each in a process of its own (`hostile_attacks.py`):

  silent     10,000 connections that never join
  deaf       1,000 clients that hear everything and read nothing
  large      1,000 clients that send the largest publications as fast as they can
  limits     5 clients with 64 filtered subscriptions each that publish 440 times a second
  formulas   20 clients with 64 areas each that are formulas of the longest kind
  watchers   200 clients with 64 subscriptions each that watch everything
  refused    20 clients whose requests are refused
  tokens     20 clients that guess tokens
  slow-http  500 HTTP requests that never end

A row says for each: latency of the good pair (p50, p99, and how many times the calm p99 of this run
that is), the longest answer of /healthz, the node's memory before, at its peak and after it (up to
20 seconds later), what the node did about it (reading paused, requests refused, clients cut, and
connections that attackers saw ended or not let in), and what of the aims does not hold: p99 below
200 ms, /healthz within a second, memory back to within a fifth. The node and its attackers share
the machine: on a small or busy one, latencies are what is left of it.

Run: python benchmarks/hostile.py [--only NAME ...] [--seconds N] [--scale S]
"""

import argparse
import asyncio
import json
import sys
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from time import monotonic
from typing import Any

import msgspec
import uvloop
from hostile_attacks import (
    ATTACKS,
    HANDSHAKE,
    JOIN,
    PUBLISH,
    SUBSCRIBE,
    allow_files,
    framed,
    packed,
)  # fmt: skip

TOKEN = "hostile-benchmark"
NODE = f"""
from nearcast.server.config import LimitSettings, Settings
from nearcast.server.server import serve
serve(
    Settings(port=0, record=False, token={TOKEN!r}, limits=LimitSettings(clients=20_000)),
    lambda node: print(node.port, flush=True),
)
"""
PLACE = 5e5  # far from where attackers are
BINARY, PING, PONG = 2, 9, 10  # of WebSocket
CALM_S = 3.0
AFTER_S = 20.0
P99_MS, HEALTH_S, MEMORY = 200.0, 1.0, 1.2  # aims


@asynccontextmanager
async def node() -> AsyncIterator[tuple[int, int]]:
    """Its process id and its port."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", NODE, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        yield process.pid, int(await process.stdout.readline())
    finally:
        process.terminate()
        try:
            await asyncio.wait_for(process.wait(), 30)
        except TimeoutError:
            process.kill()


class Pair:
    """One who publishes and one who listens; when each was said and how long it took."""

    def __init__(self, port: int) -> None:
        self.waits: list[tuple[float, float]] = []  # when it was said, and seconds
        self._port = port
        self._unheard: dict[int, float] = {}

    async def _join(self, *words: bytes) -> Any:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        writer.write(HANDSHAKE)
        await reader.readuntil(b"\r\n\r\n")
        writer.write(packed(JOIN, "good", TOKEN) + b"".join(words))
        return reader, writer

    async def live(self) -> None:
        speaker = await self._join()
        listener = await self._join(packed(SUBSCRIBE, 1, {"x": PLACE, "y": PLACE, "r": 10.0}))
        await asyncio.gather(self._speak(speaker[1]), self._hear(*listener), self._hear(*speaker))

    async def _speak(self, writer: asyncio.StreamWriter) -> None:
        number = 0
        while True:
            number += 1
            self._unheard[number] = monotonic()
            writer.write(packed(PUBLISH, PLACE, PLACE, number))
            await asyncio.sleep(0.05)

    async def _hear(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = await reader.readexactly(2)
            size = head[1]
            if size >= 126:
                size = int.from_bytes(await reader.readexactly(2 if size == 126 else 8), "big")
            body = await reader.readexactly(size)
            if head[0] & 15 == PING:
                writer.write(framed(body, PONG))
            elif head[0] & 15 == BINARY and (word := msgspec.msgpack.decode(body))[0] == 1:
                said = self._unheard.pop(word[7])
                self.waits.append((said, monotonic() - said))

    def percentiles(self, begin: float, end: float) -> tuple[float, float]:
        """p50 and p99 in milliseconds of what was said meanwhile; what was not heard counts."""
        waits = [wait for said, wait in self.waits if begin <= said < end]
        waits += [monotonic() - said for said in self._unheard.values() if begin <= said < end]
        waits = sorted(waits) or [float("inf")]
        last = len(waits) - 1
        return 1000 * waits[last // 2], 1000 * waits[int(0.99 * last)]


def memory(pid: int) -> float:
    """Resident, in MB."""
    for line in Path(f"/proc/{pid}/status").read_text("ascii").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0


async def get(port: int, path: str, timeout: float = 60.0) -> bytes:
    def ask() -> bytes:
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}{path}", headers={"Authorization": f"Bearer {TOKEN}"}
        )
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            found: bytes = answer.read()
        return found

    return await asyncio.to_thread(ask)


async def counters(port: int) -> dict[str, float]:
    """What the node has counted so far; nothing if it does not answer."""
    lines: list[str] = []
    with suppress(OSError):
        lines = (await get(port, "/metrics")).decode().splitlines()
    pairs = (line.split() for line in lines if line.startswith("nearcast_") and "{" not in line)
    return {name.removeprefix("nearcast_").removesuffix("_total"): float(n) for name, n in pairs}


class Watch:
    """Asks /healthz again and again, and looks at the node's memory."""

    def __init__(self, pid: int, port: int) -> None:
        self.longest = self.peak = 0.0
        self._pid, self._port = pid, port

    async def ask(self) -> None:
        while True:
            began = monotonic()
            try:
                with suppress(OSError):
                    await get(self._port, "/healthz")
            finally:  # also if it has not been answered until the end
                self.longest = max(self.longest, monotonic() - began)
            await asyncio.sleep(0.1)

    async def look(self) -> None:
        while True:
            self.peak = max(self.peak, memory(self._pid))
            await asyncio.sleep(0.1)


async def attacked(
    name: str, count: int, seconds: float, pid: int, port: int, pair: Pair, calm: float
) -> bool:
    """Run one attack and print its row; gives whether all aims hold."""
    before, counted = memory(pid), await counters(port)
    watch = Watch(pid, port)
    watching = [asyncio.create_task(task) for task in (watch.ask(), watch.look())]
    begin = monotonic()
    asked = {"attack": name, "count": count, "seconds": seconds, "port": port, "token": TOKEN}
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(Path(__file__).with_name("hostile_attacks.py")), json.dumps(asked),
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        answer, _ = await asyncio.wait_for(process.communicate(), 4 * seconds + 120)
    except TimeoutError:
        process.kill()
        answer = b'{"opened": 0, "failed": 0, "ended": 0}'
    end = monotonic()
    told = json.loads(answer)
    deadline = end + AFTER_S
    while monotonic() < deadline and (memory(pid) > MEMORY * before or monotonic() < end + 2):
        await asyncio.sleep(0.25)
    for task in watching:
        task.cancel()
    await asyncio.gather(*watching, return_exceptions=True)
    after = memory(pid)
    p50, p99 = pair.percentiles(begin, end)
    since = await counters(port)
    did = {key: since.get(key, 0) - counted.get(key, 0) for key in since}
    cut = sum(value for key, value in did.items() if key.startswith("cut"))
    missed = [
        aim
        for aim, holds in (
            ("p99", p99 < P99_MS),
            ("healthz", watch.longest < HEALTH_S),
            ("memory", after <= MEMORY * before),
        )
        if not holds
    ]
    print(
        f"{name:10} {count:6,} {p50:8.0f} {p99:8.0f} {p99 / calm:7.1f} {watch.longest:9.2f}"
        f" {before:7.0f} {watch.peak:6.0f} {after:6.0f}"
        f" {did.get('slowed', 0):8,.0f} {did.get('refused', 0):9,.0f} {cut:6,.0f}"
        f" {told['ended']:7,} {told['failed']:7,}  {', '.join(missed) or 'yes'}",
        flush=True,
    )
    return not missed


async def run(names: list[str], seconds: float, scale: float) -> bool:
    most = allow_files(22_000)
    async with node() as (pid, port):
        pair = Pair(port)
        living = asyncio.create_task(pair.live())
        await asyncio.sleep(1.0)
        begin = monotonic()
        await asyncio.sleep(CALM_S)
        p50, calm = pair.percentiles(begin, monotonic())
        print(f"calm: p50 {p50:.1f} ms, p99 {calm:.1f} ms, {memory(pid):.0f} MB")
        print(
            f"{'attack':10} {'by':>6} {'p50 ms':>8} {'p99 ms':>8} {'x calm':>7} {'healthz s':>9}"
            f" {'MB':>7} {'peak':>6} {'after':>6} {'slowed':>8} {'refused':>9} {'cut':>6}"
            f" {'ended':>7} {'not in':>7}  aims hold, or which do not"
        )
        held = []
        for name in names:
            wanted = max(1, round(ATTACKS[name][1] * scale))
            count = min(wanted, most - 500)
            if count < wanted:
                print(f"{name}: this system allows {most:,} open files: {count:,} connections")
            held.append(await attacked(name, count, seconds, pid, port, pair, calm))
            if living.done():
                living.result()
        living.cancel()
    return all(held)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=list(ATTACKS), help="these attacks alone")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each attack (10)")
    parser.add_argument("--scale", type=float, default=1.0, help="of the numbers of attackers (1)")
    asked = parser.parse_args()
    uvloop.run(run(asked.only or list(ATTACKS), asked.seconds, asked.scale))


if __name__ == "__main__":
    main()
