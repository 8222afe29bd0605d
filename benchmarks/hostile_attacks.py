"""The attackers of `benchmarks/hostile.py`: each attack is a function, run in a process of its own.

Clients speak WebSocket by hand, so that they can stop reading or send nonsense. All of them have
the node's token, except those who guess it: what insiders do within their limits is the subject.
"""

import asyncio
import json
import os
import random
import resource
import socket
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from time import monotonic
from typing import Any

import msgspec
import uvloop

HANDSHAKE = (
    b"GET /ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
PUBLISH, JOIN, SUBSCRIBE = 1, 2, 4
AT_ONCE = 100  # connections that are being opened
FILTER = ", ".join(f"level > {n} - 3 * {n} + {n} * 2 - 1" for n in range(10))[:300].rsplit(",", 1)[
    0
]
FORMULA = ", ".join(f"x > {n} - 3 * {n} + {n} * 2 - 999 * t" for n in range(11))[:400]
FORMULA = FORMULA.rsplit(",", 1)[0]


def framed(body: bytes, opcode: int = 2) -> bytes:
    """A client's frame, with a mask of zeros, which changes nothing."""
    size = len(body)
    if size < 126:
        head = bytes((0x80 | opcode, 0x80 | size))
    elif size < 65_536:
        head = bytes((0x80 | opcode, 0xFE)) + size.to_bytes(2, "big")
    else:
        head = bytes((0x80 | opcode, 0xFF)) + size.to_bytes(8, "big")
    return head + bytes(4) + body


def packed(*word: Any) -> bytes:
    return framed(msgspec.msgpack.encode(word))


class Attackers:
    """Connections to a node, opened a hundred at a time, and how many of them the node ended."""

    def __init__(self, port: int, token: str, seconds: float) -> None:
        self.port, self.token, self.seconds = port, token, seconds
        self.opened = self.failed = self.ended = 0
        self._turn = asyncio.Semaphore(AT_ONCE)

    async def dial(self, greeting: bytes = HANDSHAKE, buffer: int = 0) -> Any:
        """A reader and a writer; None if the node or the system let nobody in."""
        async with self._turn:
            try:
                plain = socket.socket()
                if buffer:
                    plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
                plain.setblocking(False)
                await asyncio.get_running_loop().sock_connect(plain, ("127.0.0.1", self.port))
                reader, writer = await asyncio.open_connection(sock=plain, limit=buffer or 65_536)
                writer.write(greeting)
                if greeting is HANDSHAKE:
                    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 20)
                    if b" 101 " not in head:
                        raise ConnectionError("no upgrade")
            except (OSError, TimeoutError, asyncio.IncompleteReadError):
                self.failed += 1
                return None
        self.opened += 1
        return reader, writer

    async def joined(self, buffer: int = 0) -> Any:
        link = await self.dial(buffer=buffer)
        if link is not None:
            link[1].write(packed(JOIN, "attacker", self.token))
        return link

    async def read(self, link: Any, until: float) -> None:
        """Read and forget, until that time or the end."""
        with suppress(OSError, TimeoutError):
            while (left := until - monotonic()) > 0:
                if not await asyncio.wait_for(link[0].read(1 << 16), left):
                    self.ended += 1
                    return

    async def say(self, link: Any, until: float, rate: float, word: Callable[[], bytes]) -> None:
        """As often as this; slower if the node reads more slowly."""
        with suppress(OSError):
            while monotonic() < until and not link[1].is_closing():
                period = max(0.1, 1 / rate)
                due = monotonic() + period
                for _ in range(round(rate * period)):
                    link[1].write(word())
                await link[1].drain()
                await asyncio.sleep(max(0.0, due - monotonic()))

    async def all(self, count: int, one: Callable[[int, float], Awaitable[None]]) -> None:
        until = monotonic() + self.seconds
        await asyncio.gather(*(one(n, until) for n in range(count)))


async def silent(attack: Attackers, count: int) -> None:
    """Connections that never join."""

    async def one(_: int, until: float) -> None:
        if link := await attack.dial():
            await attack.read(link, until)

    await attack.all(count, one)


async def deaf(attack: Attackers, count: int) -> None:
    """Clients that hear everything and read nothing, while five others talk."""
    line = "x" * 1_000

    async def one(n: int, until: float) -> None:
        talks = n < 5
        link = await attack.joined(buffer=0 if talks else 4_096)
        if link is None:
            return
        if talks:
            word = packed(PUBLISH, float(n), 0.0, line)
            await asyncio.gather(
                attack.read(link, until), attack.say(link, until, 10, lambda: word)
            )
        else:
            link[1].write(packed(SUBSCRIBE, 1, {}))
            link[1].transport.pause_reading()
            await asyncio.sleep(max(0.0, until - monotonic()))
            attack.ended += link[1].is_closing()
            link[1].transport.abort()

    await attack.all(count, one)


async def large(attack: Attackers, count: int) -> None:
    """Clients that send the largest publications as fast as the node reads."""

    async def one(n: int, until: float) -> None:
        if link := await attack.joined():
            word = packed(PUBLISH, 1e5 + n, 0.0, "x" * 16_000)
            await asyncio.gather(
                attack.read(link, until), attack.say(link, until, 400, lambda: word)
            )

    await attack.all(count, one)


async def _subscribed(
    attack: Attackers, count: int, rate: float, subscribe: Callable[[int], bytes],
    publish: Callable[[int], bytes],
) -> None:  # fmt: skip
    async def one(n: int, until: float) -> None:
        if link := await attack.joined():
            for number in range(64):
                link[1].write(subscribe(number))
            await asyncio.gather(
                attack.read(link, until), attack.say(link, until, rate, lambda: publish(n))
            )

    await attack.all(count, one)


async def limits(attack: Attackers, count: int) -> None:
    """64 subscriptions with a filter of 300 characters each, 440 publications a second."""
    await _subscribed(
        attack, count, 440,
        lambda number: packed(SUBSCRIBE, number, {}, FILTER),
        lambda n: packed(PUBLISH, float(n), 0.0, None, False, {"level": 1e9}),
    )  # fmt: skip


async def formulas(attack: Attackers, count: int) -> None:
    """64 areas that are formulas of 400 characters each and change all the time."""
    await _subscribed(
        attack, count, 100,
        lambda number: packed(SUBSCRIBE, number, {"formula": FORMULA}),
        lambda n: packed(PUBLISH, float(n), 0.0),
    )  # fmt: skip


async def watchers(attack: Attackers, count: int) -> None:
    """64 subscriptions that watch everything, and a state that moves ten times a second."""
    await _subscribed(
        attack, count, 10,
        lambda number: packed(SUBSCRIBE, number, {}, None, "", False, {}, True),
        lambda n: packed(PUBLISH, random.uniform(0, 100), float(n), None, True),
    )  # fmt: skip


async def refused(attack: Attackers, count: int) -> None:
    """Requests that are refused, as fast as the node reads them."""

    async def one(_: int, until: float) -> None:
        while monotonic() < until:
            link = await attack.joined()
            if link is None:
                await asyncio.sleep(0.1)
                continue
            word = framed(b'{"do":"move","subscription":999999,"area":{}}', 1) * 10
            await asyncio.gather(
                attack.read(link, until), attack.say(link, until, 200, lambda word=word: word)
            )

    await attack.all(count, one)


async def tokens(attack: Attackers, count: int) -> None:
    """Guessing a token, one connection for each guess."""

    async def one(_: int, until: float) -> None:
        while monotonic() < until:
            link = await attack.dial()
            if link is None:
                await asyncio.sleep(0.1)
                continue
            link[1].write(packed(JOIN, "guest", os.urandom(8).hex()))
            await attack.read(link, min(until, monotonic() + 5))
            link[1].transport.abort()

    await attack.all(count, one)


async def slow_http(attack: Attackers, count: int) -> None:
    """HTTP requests whose headers never end, a byte every second."""

    async def one(_: int, until: float) -> None:
        link = await attack.dial(b"POST /publish HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
        if link is None:
            return

        async def trickle() -> None:
            with suppress(OSError):
                while monotonic() < until and not link[1].is_closing():
                    link[1].write(b"x")
                    await asyncio.sleep(1.0)

        await asyncio.gather(attack.read(link, until), trickle())

    await attack.all(count, one)


# Each attack, and how many take part.
ATTACKS: dict[str, tuple[Callable[[Attackers, int], Awaitable[None]], int]] = {
    "silent": (silent, 10_000),
    "deaf": (deaf, 1_000),
    "large": (large, 1_000),
    "limits": (limits, 5),
    "formulas": (formulas, 20),
    "watchers": (watchers, 200),
    "refused": (refused, 20),
    "tokens": (tokens, 20),
    "slow-http": (slow_http, 500),
}


def allow_files(wanted: int) -> int:
    """As many open files as wanted, or as many as the system allows; gives how many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return max(soft, most)


async def main() -> None:
    asked = json.loads(sys.argv[1])
    allow_files(asked["count"] + 200)
    attack = Attackers(asked["port"], asked["token"], asked["seconds"])
    await ATTACKS[asked["attack"]][0](attack, asked["count"])
    told = {"opened": attack.opened, "failed": attack.failed, "ended": attack.ended}
    sys.stdout.write(json.dumps(told))
    sys.stdout.flush()
    os._exit(0)  # closing thousands of connections politely is no part of it


if __name__ == "__main__":
    uvloop.run(main())
