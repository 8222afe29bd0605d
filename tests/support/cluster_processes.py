"""Clusters for tests: nodes as processes of their own, clients that never rest, and a judge.

The judge sees the merged traces of all nodes alone: what should have been heard by the same join as
`nearcast analyse`, what was delivered by each client's home. What clients themselves saw is held
against that.
"""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from random import Random
from signal import SIGCONT, SIGKILL, SIGSTOP, SIGTERM
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct

import nearcast
from nearcast.client.client import Client, Disconnected, HandedOver, Reconnected
from nearcast.pipeline.truth.join import find_pairs, interest_spans
from nearcast.space.motion import Moving, Time, path
from nearcast.space.shapes import box, disc, point
from nearcast.trace.merge import merge
from nearcast.trace.reader import read
from support.fork_server import PIPE, ForkedProcess
from support.patience import PATIENCE_S

NEARCAST = Path(sys.executable).with_name("nearcast")
END = "end"  # the channel of last words
END_S = 300.0  # until all have heard them
AGAIN_S = 30.0  # after which they are said again
SIDE = 400.0  # of the world in which clients walk


class Node:
    """One `nearcast node`, started and not yet ready."""

    def __init__(
        self, folder: Path, number: int, *flags: str, inside: tuple[str, ...] = ()
    ) -> None:
        self.trace = folder / f"trace{number}"
        self.log = folder / f"log{number}"
        arguments = [
            "node", "--json", "--port", "0", "--cluster-key", str(folder / "cluster.key"),
            "--trace", str(self.trace), *flags,
        ]  # fmt: skip
        self.process: ForkedProcess | subprocess.Popen[str]
        with self.log.open("w") as log:
            if inside:
                self.process = subprocess.Popen(
                    [*inside, str(NEARCAST), *arguments], stdout=PIPE, stderr=log, text=True,
                    cwd=folder,
                )  # fmt: skip
            else:
                self.process = ForkedProcess(arguments, stdout=PIPE, stderr=log, cwd=folder)

    async def ready(self) -> None:
        """It has said where it listens; AssertionError with its log if it does not."""
        said = await asyncio.wait_for(asyncio.to_thread(self._read), PATIENCE_S)
        assert said, self.log.read_text()
        told: dict[str, Any] = json.loads(said)
        self.url, self.cluster = told["url"], told["cluster"]

    def _read(self) -> str:
        assert self.process.stdout is not None
        lines: list[str] = []
        for line in self.process.stdout:
            lines.append(line)
            if line.startswith("}"):
                break
        return "".join(lines)

    def kill(self) -> None:
        os.kill(self.process.pid, SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(SIGTERM)

    async def stand_still(self, seconds: float) -> None:
        """As if the machine had something better to do."""
        os.kill(self.process.pid, SIGSTOP)
        try:
            await asyncio.sleep(seconds)
        finally:
            os.kill(self.process.pid, SIGCONT)

    async def stopped(self) -> int:
        return await asyncio.wait_for(asyncio.to_thread(self.process.wait), PATIENCE_S)

    def complaints(self) -> list[str]:
        """What its log has of failures that nobody expects."""
        return [line for line in self.log.read_text().splitlines() if "rror" in line]


class Cluster:
    """So many nodes, of which each knows the others."""

    def __init__(self, folder: Path, nodes: int, *flags: str) -> None:
        self.folder, self.size, self.flags = folder, nodes, flags
        self.nodes: list[Node] = []

    async def add(self, *flags: str) -> Node:
        join = ["--join", self.nodes[0].cluster] if self.nodes else []
        node = Node(self.folder, len(self.nodes), *join, *self.flags, *flags)
        self.nodes.append(node)
        await node.ready()
        return node

    async def __aenter__(self) -> "Cluster":
        try:
            for _ in range(self.size):
                await self.add()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        for node in self.nodes:
            node.stop()
        for node in self.nodes:
            try:
                await node.stopped()
            except TimeoutError:
                node.kill()

    @property
    def traces(self) -> list[Path]:
        return [node.trace for node in self.nodes]


class Walker:
    """A client that says where it is, listens around itself, and writes down what it hears."""

    def __init__(self, client: Client, number: int, url: str) -> None:
        self.client, self.random = client, Random(number)
        self.home = url
        self.number = number
        self.heard: list[tuple[int, int, Time]] = []  # who, what, and when it was made
        self.ends: set[int] = set()  # last words of others
        self.lost: list[float] = []
        self.back: list[float] = []
        self.x, self.y = (self.random.uniform(0, SIDE) for _ in range(2))
        self.said = 0

    def area(self) -> Any:
        """Discs, boxes, walks, and what moves by itself."""
        random, x, y = self.random, self.x, self.y
        kind = self.number % 5
        if kind == 0:
            return disc(x, y, random.uniform(20, 60))
        if kind == 1:
            return box(x, y, random.uniform(10, 60), random.uniform(10, 60))
        if kind == 2:
            stops = [(random.uniform(0, SIDE), random.uniform(0, SIDE), 0.0) for _ in range(3)]
            return path(disc(x, y, 40), stops, 30.0)
        if kind == 3:
            speed = (random.uniform(-20, 20), random.uniform(-20, 20), 0.0)
            return Moving(disc(x, y, 40), speed, duration=2_000_000)
        return disc(x, y, 50)

    async def begin(self) -> None:
        filters = (None, None, None, "level > 3", "level > 8 - t")
        channel = "chat" if self.number % 7 == 6 else ""
        self.all = self.client.messages()
        self.subscription = await self.client.subscribe(
            self.area(), filter=filters[self.number % 5], channel=channel
        )
        if self.number % 10 == 3:
            await self.client.subscribe(disc(self.random.uniform(0, SIDE), 200, 30))
        self.tasks = [asyncio.create_task(self.listen()), asyncio.create_task(self.notice())]

    async def listen(self) -> None:
        async for message in self.all:
            self.heard.append((message.source, message.publication, message.t))
            if message.channel == END:
                self.ends.add(message.publication)

    async def notice(self) -> None:
        """When a connection was lost, and when the client was back with all that it wanted."""
        async for notice in self.client.notices():
            if isinstance(notice, HandedOver):
                self.home = notice.url
            elif isinstance(notice, Disconnected):
                self.lost.append(time.time())
            elif isinstance(notice, Reconnected):
                assert notice.refused == [], "a subscription is lost"
                self.back.append(time.time())

    async def live(self, seconds: float, rate: float, *, moves: bool = True) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while (now := loop.time()) < end:
            await asyncio.sleep(min(self.random.uniform(0.5, 1.5) / rate, end - now))
            self.x = min(max(self.x + self.random.uniform(-8, 8), 0), SIDE)
            self.y = min(max(self.y + self.random.uniform(-8, 8), 0), SIDE)
            try:
                if moves and self.random.random() < 0.3:
                    await self.subscription.move(self.area())
                where = point(self.x, self.y)
                if self.random.random() < 0.1:
                    where = disc(self.x, self.y, 30)
                await self.client.publish(
                    where, self.said, attributes={"level": self.random.randrange(12)},
                    channel="chat" if self.random.random() < 0.1 else "", confirm=False,
                )  # fmt: skip
                self.said += 1
            except ConnectionError:
                await asyncio.sleep(0.05)  # it comes back by itself

    async def close(self) -> None:
        await self.client.close()
        await asyncio.gather(*self.tasks)

    def repeated(self) -> list[tuple[int, int]]:
        counts = Counter((source, publication) for source, publication, _ in self.heard)
        return [pair for pair, times in counts.items() if times > 1]

    def out_of_order(self) -> list[tuple[int, int, int]]:
        """Of one publisher, who may change nodes; at one moment on one node, numbers count up."""
        last: dict[int, tuple[Time, int]] = {}
        found = []
        for source, publication, t in self.heard:
            if (t, publication) < last.get(source, (0, 0)):
                found.append((source, last[source][1], publication))
            last[source] = t, publication
        return found


async def walkers(cluster: Cluster, count: int) -> list[Walker]:
    found = []
    for number in range(count):
        url = cluster.nodes[number % len(cluster.nodes)].url
        client = await nearcast.connect(url, name=f"w{number}").open()
        walker = Walker(client, number, url)
        await walker.begin()
        found.append(walker)
    return found


async def stand_still_now_and_then(cluster: Cluster, random: Random) -> None:
    """One node at a time, for up to a third of a second, until this is cancelled."""
    while True:
        await asyncio.sleep(random.uniform(0.05, 0.4))
        await random.choice(cluster.nodes).stand_still(random.uniform(0.03, 0.3))


async def leave(crowd: list[Walker]) -> None:
    """All that was said has been heard, and everybody leaves.

    What one publisher says comes in its order: who hears the last word of all has heard all.
    """
    await asyncio.gather(*(walker.client.subscribe(channel=END) for walker in crowd))
    async with asyncio.timeout(END_S):
        while not await last_words_heard(crowd):
            pass  # one may be lost with the node that was killed: say it again
    await asyncio.gather(*(walker.close() for walker in crowd))


async def last_words_heard(crowd: list[Walker]) -> bool:
    said = [
        (walker, await walker.client.publish(point(walker.x, walker.y), channel=END))
        for walker in crowd
    ]
    with suppress(TimeoutError):
        async with asyncio.timeout(AGAIN_S):
            for walker in crowd:
                while not {word for by, word in said if by is not walker} <= walker.ends:
                    await asyncio.sleep(0.01)
            return True
    return False


async def kill_one(
    folder: Path, nodes: int, clients: int, seconds: float, rate: float = 4.0
) -> "Killed":
    """Clients walk, and in the middle a node is killed, not the first, that has most of them."""
    async with Cluster(folder, nodes) as cluster:
        crowd = await walkers(cluster, clients)
        walks = [asyncio.create_task(walker.live(seconds, rate)) for walker in crowd]
        await asyncio.sleep(seconds / 2)
        at = Counter(urlsplit(walker.home).port for walker in crowd)
        max(cluster.nodes[1:], key=lambda node: at[urlsplit(node.url).port]).kill()
        moment = time.time()
        await asyncio.gather(*walks)
        await leave(crowd)
    return Killed(moment, crowd, judge(cluster.traces, folder / "merged"))


class Verdict(Struct, frozen=True):
    expected: int
    missed: list[tuple[int, int, int]]  # publication, subscription, the publication's t
    spurious: list[tuple[int, int]]
    duplicates: int
    unrecorded: int


def judge(traces: list[Path], into: Path) -> Verdict:
    """All nodes' traces as one: what should have been heard, and what was."""
    summary = merge(traces[0], traces[1:], into)
    interests, said = read(into, "interests"), read(into, "publications")
    truth: set[tuple[int, int]] = set()
    numbers, moments = said.column("publication").to_numpy(), said.column("t").to_numpy()
    for which, subscription in find_pairs(interest_spans(interests), said):
        truth |= set(zip(numbers[which].tolist(), subscription.tolist(), strict=True))
    deliveries = read(into, "deliveries")
    told = Counter(
        zip(
            deliveries.column("publication").to_pylist(),
            deliveries.column("subscription").to_pylist(),
            strict=True,
        )
    )
    t = dict(zip(numbers.tolist(), moments.tolist(), strict=True))
    missed = sorted((p, s, t[p]) for p, s in truth - set(told))
    return Verdict(
        len(truth), missed, sorted(set(told) - truth), sum(told.values()) - len(told),
        summary["unrecorded"],
    )  # fmt: skip


def check(cluster: Cluster, crowd: list[Walker], folder: Path) -> Verdict:
    """Everybody has heard everything, once and in order."""
    verdict = judge(cluster.traces, folder / "merged")
    assert verdict.missed == []
    assert verdict.spurious == []
    assert verdict.duplicates == 0
    assert [walker.repeated() for walker in crowd if walker.repeated()] == []
    assert [walker.out_of_order() for walker in crowd if walker.out_of_order()] == []
    return verdict


class Killed(Struct, frozen=True):
    moment: float
    crowd: list[Walker]
    verdict: Verdict

    def seconds(self) -> list[float]:
        """How long after the kill each missed publication was made."""
        return sorted(round(t / 1e6 - self.moment, 1) for _, _, t in self.verdict.missed)

    def away(self) -> list[float]:
        """How long each client that lost its node was without one."""
        lost = [walker for walker in self.crowd if walker.lost]
        assert all(len(walker.back) == len(walker.lost) for walker in lost)
        return [walker.back[-1] - self.moment for walker in lost]

    def check(self, served_within: float, before: float) -> None:
        """What must hold whenever a node dies. `before`: what it takes along of its own trace.

        A machine that serves everybody again later than that is slower in all else, too.
        """
        assert self.away(), "somebody was there"
        slower = max(1.0, max(self.away()) / served_within)
        outside = [s for s in self.seconds() if not -before <= s / slower <= served_within]
        assert outside == [], "missed long before or after the kill"
        assert self.verdict.duplicates == 0
        assert [walker.repeated() for walker in self.crowd if walker.repeated()] == []

    def told(self) -> str:
        return (
            f"{len(self.away())} of {len(self.crowd)} clients lost their node and were back after"
            f" at most {max(self.away()):.2f} s; of {self.verdict.expected} deliveries"
            f" {len(self.verdict.missed)} were missed, at seconds {self.seconds()[:20]};"
            f" {self.verdict.unrecorded} could not be judged"
        )
