"""Applications with their peers, in tasks or in processes, and a judge of their traces."""

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa

from nearcast.client_protocol import messages
from nearcast.peer.peer import PeerOptions, parse_address, run_peer
from nearcast.trace.reader import read
from nearcast.trace.validate import validate
from support.brute_force import delivered, expected
from support.fork_server import fork_server
from support.patience import PATIENCE_S

SETTINGS: dict[str, dict[str, Any]] = {
    "client-server": {"matcher": "scan"},
    # Nobody is given up before ten seconds: a busy machine is no storm.
    "drtree": {"check_ms": 250.0, "misses": 40, "least": 1, "most": 2},
    "brokers": {},
    # Likewise. Matchers stand still, the first in the middle of all areas.
    "vso": {
        "matcher": "scan", "world": 60.0, "least": 1, "f_adjust": 0.0, "f_move": 0.0,
        "heartbeat_ms": 250.0, "site_beat_ms": 250.0, "misses": 40, "silence_ms": 10_000.0,
        "reclaim_ms": 10_000.0, "answer_ms": 10_000.0,
    },
}  # fmt: skip
# Probes that a change must be followed by: a DR-tree goes on changing in its next checks, of which
# these take four.
PROBES = {"drtree": 100}


class Player:
    """An application with its peer, in a task of this process."""

    def __init__(self, options: PeerOptions) -> None:
        self.options = options
        self.notices: list[dict[str, Any]] = []
        self.probes: Counter[int] = Counter()  # how often each probe of `settle` has arrived

    async def begin(self) -> None:
        self.lines: asyncio.Queue[bytes | None] = asyncio.Queue()
        hear = self.hear
        self.task = asyncio.create_task(
            run_peer(self.options, self.lines, lambda notice: hear(messages.JSON.encode(notice)))
        )
        await self.until(lambda: self.of("welcome"))

    def hear(self, line: bytes) -> None:
        notice = json.loads(line)
        self.notices.append(notice)
        if notice["is"] == "message" and isinstance(notice.get("payload"), dict):
            self.probes[notice["payload"].get("probe", -1)] += 1

    def say(self, do: str, **more: Any) -> None:
        self.lines.put_nowait(json.dumps({"do": do, **more}).encode())

    async def end(self) -> None:
        self.say("leave")
        await asyncio.wait_for(self.task, PATIENCE_S)

    async def until(self, condition: Callable[[], Any]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not condition():
                assert not self.task.done(), self.task.exception()
                await asyncio.sleep(0.01)

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [notice for notice in self.notices if notice["is"] == kind]

    @property
    def address(self) -> tuple[str, int]:
        return parse_address(self.of("welcome")[0]["node"])


class Process(Player):
    """The same in a process of its own."""

    async def begin(self) -> None:
        o = self.options
        arguments = ["--overlay", o.overlay] if o.overlay else []
        arguments += ["--link", o.link]
        arguments += ["--serve"] if o.serve else []
        arguments += ["--trace", str(o.trace)] if o.trace else []
        arguments += ["--join", "{}:{}".format(*o.join)] if o.join else []
        for name, value in o.settings.items():
            arguments += ["--set", f"{name}={value}"]
        self.process = await asyncio.create_subprocess_exec(
            fork_server(), "peer", *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        self.task = asyncio.create_task(self._listen())
        await self.until(lambda: self.of("welcome"))

    async def _listen(self) -> None:
        assert self.process.stdout is not None
        while line := await self.process.stdout.readline():
            self.hear(line)

    def say(self, do: str, **more: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"do": do, **more}).encode() + b"\n")

    async def kill(self) -> None:
        self.process.kill()
        await self.process.wait()
        await self.task

    async def end(self) -> None:
        self.process.terminate()  # which is a way to say leave
        assert await asyncio.wait_for(self.process.wait(), PATIENCE_S) == 0
        await self.task


async def settle(players: list[Player], turn: count, in_a_row: int = 3) -> None:
    """Everybody publishes probes where all listen, until enough in a row have reached all others.

    A probe counts whenever it has arrived, so a slow machine takes longer and never fails by it.
    """
    probes: list[int] = []

    def reached_all(probe: int) -> bool:
        return all(player.probes[probe] == len(players) - 1 for player in players)

    async with asyncio.timeout(PATIENCE_S):
        while not any(
            all(map(reached_all, probes[i : i + in_a_row]))
            for i in range(len(probes) - in_a_row + 1)
        ):
            probes.append(next(turn))
            for player in players:
                player.say("publish", x=30, y=0, payload={"probe": probes[-1]})
            for _ in range(30):
                await asyncio.sleep(0.01)
                if reached_all(probes[-1]):
                    break


async def publish(players: list[Player], rng: Random, number: count) -> None:
    for _ in range(10):
        for player in players:
            x, y = rng.uniform(-60, 120), rng.uniform(-40, 40)
            player.say("publish", x=x, y=y, payload="news", id=next(number))
        await asyncio.sleep(0.02)


async def all_done(players: list[Player], number: count) -> None:
    """Whatever has been said to a process, it has done when it answers what is said last."""
    for player in players:
        last = next(number)
        player.say("publish", x=1e6, y=0, payload="nobody hears this", id=last)
        await player.until(lambda p=player, n=last: any(d["id"] == n for d in p.of("done")))


async def send_around(players: list[Player]) -> None:
    """Everybody sends a message to each other one alone, all of whom it has heard before."""
    names = [player.of("welcome")[0]["entity"] for player in players]
    for player, name in zip(players, names, strict=True):
        for other in set(names) - {name}:
            player.say("send", to=other, payload=[name, "to", other])
    for player, name in zip(players, names, strict=True):
        others = sorted(set(names) - {name})
        await player.until(lambda p=player: len(p.of("direct")) >= len(players) - 1)
        received = sorted((one["from"], one["payload"]) for one in player.of("direct"))
        assert received == [(other, [other, "to", name]) for other in others]


async def play(
    kind: type[Player],
    overlay: str,
    link: str,
    peers: int,
    folder: Path,
    formed: Callable[[], bool] = lambda: True,
) -> None:
    """`formed`: is the overlay as it shall be, before anybody publishes?"""

    def options(number: int, join: tuple[str, int] | None) -> PeerOptions:
        trace, settings = folder / str(number), SETTINGS[overlay]
        return PeerOptions(overlay=overlay, link=link, join=join, trace=trace, settings=settings)

    players = [kind(options(0, None))]
    await players[0].begin()
    players += [kind(options(number, players[0].address)) for number in range(1, peers)]
    await asyncio.gather(*(player.begin() for player in players[1:]))
    rng, turn, number = Random(7), count(), count(1)
    for i, player in enumerate(players):
        player.say("subscribe", subscription=1, area={"x": 15 * i, "y": 0, "r": 45})
    await all_done(players, number)
    await settle(players, turn, PROBES.get(overlay, 3))
    await players[0].until(formed)
    await publish(players, rng, number)
    await all_done(players, number)
    await settle(players, turn)  # what is under way arrives before this does
    for i, player in enumerate(players):
        player.say("move", subscription=1, area={"x": 15 * (peers - 1 - i), "y": 10, "r": 45})
    players[-1].say("subscribe", subscription=2, area={"x": 90, "y": 0, "rx": 20, "ry": 50})
    await all_done(players, number)
    await settle(players, turn, PROBES.get(overlay, 3))
    await players[0].until(formed)
    await publish(players, rng, number)
    await all_done(players, number)
    await settle(players, turn)
    await send_around(players)
    news = {done["publication"] for player in players for done in player.of("done")}
    for player in players[::-1]:  # who has begun, and may serve, goes last
        await player.end()
    judge([options(number, None).trace for number in range(peers)], news)
    received = sum(len(m["to"]) for p in players for m in p.of("message") if m["payload"] == "news")
    assert received == len([pair for pair in deliveries_of(folder) if pair[0] in news])


def deliveries_of(folder: Path) -> list[tuple[int, int]]:
    return [pair for trace in folder.iterdir() for pair in delivered(read(trace, "deliveries"))]


def judge(traces: list[Path], news: set[int]) -> None:
    for trace in traces:
        # A peer's own trace knows neither what others published nor what it was sent.
        problems = [p for p in validate(trace).problems if p.table not in ("deliveries",)]
        assert not problems
    interests, publications = (
        pa.concat_tables([read(trace, table) for trace in traces])
        for table in ("interests", "publications")
    )
    wanted = {pair for pair in expected(interests, publications) if pair[0] in news}
    received = [pair for pair in deliveries_of(traces[0].parent) if pair[0] in news]
    assert len(wanted) > 50
    assert set(received) == wanted
    assert len(received) == len(wanted)
