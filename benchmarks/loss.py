"""Updates over a network that loses packets: what streams that do not block each other are worth.

Bots play Planet π4 over QUIC, 50 ms each way, and 1 % of all packets lost. In turns:

one stream    all messages of a link in one ordered, reliable stream, as before
as built      each kind of message as it declares: updates on streams of their own
datagrams     the same, but updates are lossy

age           how old the newest update is that a peer has of a ship in its sight, over time
received      updates that arrive, of those made while the ship was being followed
known         ships in a peer's sight of which an update came within the last second
accuracy      right decisions of peers on who is in sight, of all: who is known wrongly counts, too,
              as in the thesis; here whom the overlay itself knows, as in a trace's views
bytes         per peer and second, of UDP and IP, both ways, acknowledgements included

At last, on a line of 1 Mbit/s, how long a heartbeat takes that is sent

behind bulk     half a second after 300 kB of subscriptions
among updates   while four times as many updates are sent as fit

Peers, transports and QUIC are the shipped ones. Their clock and their packets are played, so that
a busy machine does not count; with `--sockets` both are real, and packets go through
`lossy_relay.py`.

It measures no other world: each overlay has its own way to find who is near, and this small world
is full of ships. The keys of peers are new in each run, so no two runs are quite alike.

Run: python benchmarks/loss.py [--sockets] [OVERLAY ...] [ROUNDS [BOTS [SECONDS [DELAY_MS [LOSS]]]]]
"""

import asyncio
import sys
import time
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from random import Random
from statistics import mean, median
from subprocess import PIPE, Popen
from time import process_time
from typing import Any, NamedTuple

import numpy as np

from nearcast.demo.peer_bots import BotSettings, PeerBots
from nearcast.model.publication import Publication
from nearcast.model.subscription import NodeId
from nearcast.node import Priority
from nearcast.peer import peer as live_peers
from nearcast.peer.host import run, unix_time
from nearcast.peer.peer import PeerOptions
from nearcast.space.motion import SECOND, Time
from nearcast.transport.quic import QuicTransport
from nearcast.workloads.planetpi4 import PlanetPi4

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from support.played_quic import PlayedLoop, QuicScene, run_played
from support.played_quic import play as play_scene

ROUNDS, BOTS, SECONDS, DELAY_MS, LOSS = 3, 16, 20.0, 50.0, 0.01
FOLLOWED: Time = SECOND  # a ship without an update for so long is out of sight
LINE = 125_000.0  # bytes a second
SAMPLE: Time = SECOND // 200
HEADERS = 28  # bytes of UDP and IP around a packet
OVERLAYS: dict[str, dict[str, Any]] = {
    "bubblestorm": {"gossip_s": 1.0, "lambda": 2.0},
    "client-server": {},
    "psense": {},
    "von": {},
    "vso": {},
}
# A small world is full of ships.
GAME = {"size": 700.0, "asteroids": 60}


class AsBuilt(QuicTransport):
    """If there is a relay, others reach it only through that."""

    relay: Popen[str] | None = None

    async def listen(self) -> int:
        port = await super().listen()
        if self.relay is None:
            return port
        assert self.relay.stdin is not None and self.relay.stdout is not None
        self.relay.stdin.write(f"{port}\n")
        self.relay.stdin.flush()
        return int(self.relay.stdout.readline())


class OneStream(AsBuilt):
    """As transports were: nothing overtakes anything."""

    def send(self, to: NodeId, frame: bytes, *_: Any) -> None:
        super().send(to, frame, lossy=False)


class Datagrams(AsBuilt):
    """What has no order is not sent again either."""

    def send(
        self, to: NodeId, frame: bytes, lossy: bool,
        priority: Priority = Priority.UPKEEP, ordered: bool = True,
    ) -> None:  # fmt: skip
        super().send(to, frame, lossy or not ordered, priority, ordered)


VARIANTS = {"one stream": OneStream, "as built": AsBuilt, "datagrams": Datagrams}


class MeasuredBots(PeerBots):
    """Remembers when each peer got which update."""

    def __init__(self, options: PeerOptions, bots: BotSettings) -> None:
        super().__init__(options, bots)
        self.made: dict[NodeId, set[Time]] = defaultdict(set)
        self.got: dict[tuple[NodeId, NodeId], list[tuple[Time, Time]]] = defaultdict(list)

    def _deliver(self, node: NodeId, publication: Publication, to: Any) -> None:
        super()._deliver(node, publication, to)
        if not publication.channel and not publication.attributes:
            self.made[publication.node].add(publication.t)
            self.got[node, publication.node].append((unix_time(), publication.t))

    def ages(self) -> tuple["np.ndarray[Any, Any]", float]:
        """In milliseconds, sampled over time; and the share of updates received."""
        samples, due, came = [], 0, 0
        for (_, ship), arrivals in self.got.items():
            newest: list[tuple[Time, Time]] = []
            for at, t in arrivals:
                if not newest or t > newest[-1][1]:
                    newest.append((at, t))
            made, got = np.array(sorted(self.made[ship])), {t for _, t in arrivals}
            for (at, t), (until, later) in pairwise(newest):
                if later - t <= FOLLOWED:
                    samples.append(np.arange(at, until, SAMPLE) - t)
                    between = made[(made > t) & (made <= later)].tolist()
                    due += len(between)
                    came += sum(one in got for one in between)
        return np.concatenate(samples) / 1000, came / due

    def accuracy(self) -> float:
        """Of all pairs of a peer and another ship, in how many the peer is right about whether
        that is in its sight."""
        assert isinstance(self.workload, PlanetPi4) and self.game_log is not None
        game, sight, now = self.game_log.game, self.workload.parameters.radius, self.host.now
        names = [name for name, ship in self.ships.items() if game.alive[ship]]
        places = np.array([game.place[self.ships[name]] for name in names])
        right = 0
        for name, place in zip(names, places, strict=True):
            known = {other for other, _ in self.host.nodes[name].known(now)}
            near = np.linalg.norm(places - place, axis=1) <= sight
            decisions = zip(names, near.tolist(), strict=True)
            right += sum((one in known) == is_near for one, is_near in decisions if one != name)
        return right / (len(names) * (len(names) - 1))


async def play(overlay: str, kind: type[AsBuilt], bots: int, seconds: float) -> dict[str, float]:
    live_peers.LINKS["quic"] = kind
    fleet = MeasuredBots(
        PeerOptions(overlay=overlay, link="quic", settings={**OVERLAYS[overlay], **GAME}),
        BotSettings(bots=bots),
    )
    await fleet.start_peers(lambda _: None)
    known: list[float] = []
    accurate: list[float] = []

    async def watch() -> None:
        while True:
            await asyncio.sleep(0.5)
            aware = fleet.counts().aware
            if aware is not None:
                known.append(aware)
                accurate.append(fleet.accuracy())

    watching, begin = asyncio.create_task(watch()), process_time()
    await fleet.play(seconds)
    watching.cancel()
    took = process_time() - begin
    ages, received = fleet.ages()
    await fleet.stop()
    p50, p99, worst = np.percentile(ages, [50, 99, 99.9])
    return {
        "age p50 ms": float(p50), "age p99 ms": float(p99), "p99.9 ms": float(worst),
        "received %": 100 * received, "known %": 100 * mean(known[4:]),
        "accuracy %": 100 * mean(accurate[4:]), "CPU ms": took * 1000 / (bots * seconds),
    }  # fmt: skip


class World(NamedTuple):
    """What is measured, and on which network."""

    bots: int
    seconds: float
    delay_ms: float
    loss: float


def through_sockets(overlay: str, variant: str, seed: int, world: World) -> dict[str, float]:
    script = str(Path(__file__).with_name("lossy_relay.py"))
    command = [sys.executable, script, str(world.delay_ms), str(world.loss), str(seed)]
    with Popen(command, stdin=PIPE, stdout=PIPE, text=True) as relay:
        AsBuilt.relay = relay
        figures = run(play(overlay, VARIANTS[variant], world.bots, world.seconds))
        total, _ = relay.communicate()
    figures["bytes"] = int(total.split()[1])
    return figures


def played(overlay: str, variant: str, seed: int, world: World) -> dict[str, float]:
    rng, packets, sent = Random(seed), 0, 0

    def drops(_source: object, packet: bytes) -> bool:
        nonlocal packets, sent
        packets, sent = packets + 1, sent + len(packet) + HEADERS
        return rng.random() < world.loss

    async def main() -> dict[str, float]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, PlayedLoop)
        loop.network.delay, loop.network.drops = world.delay_ms / 1000, drops
        begin = real_ns()
        time.time_ns = lambda: begin + round(loop.time() * 1e9)
        return await play(overlay, VARIANTS[variant], world.bots, world.seconds)

    real_ns = time.time_ns
    try:
        figures = run_played(main)
    finally:
        time.time_ns = real_ns
    figures["bytes"] = sent
    return figures


def heartbeat_ms(kind: type[QuicTransport], what: str) -> float:
    """On a slow line, without losses but those of its full queue."""
    took = 0.0

    async def scene(scene: QuicScene) -> None:
        nonlocal took
        scene.network.rate = LINE
        begin, sent = scene.loop.time(), 0.0
        if what == "behind bulk":
            for _ in range(300):
                scene.send(bytes(1000), False, Priority.BULK)
        while b"heartbeat" not in scene.at_ben.times:
            if what == "among updates":
                for _ in range(10):
                    scene.send(bytes(1000), True, Priority.PUBLICATION)
            if not sent and scene.loop.time() >= begin + 0.5:
                sent = scene.loop.time()
                scene.send(b"heartbeat")
            await asyncio.sleep(0.02)
            assert scene.loop.time() < begin + 60.0, "it never came"
        took = scene.at_ben.times[b"heartbeat"] - sent

    play_scene(scene, kind)
    return took * 1000


def main() -> None:
    words = sys.argv[1:]
    measure = through_sockets if "--sockets" in words else played
    overlays = [word for word in words if word in OVERLAYS] or list(OVERLAYS)
    given = [float(word) for word in words if word != "--sockets" and word not in OVERLAYS]
    usual = [ROUNDS, BOTS, SECONDS, DELAY_MS, LOSS]
    rounds, bots, seconds, delay_ms, loss = [*given, *usual[len(given) :]]
    print(f"{bots:.0f} bots, {seconds:.0f} s, {delay_ms:.0f} ms each way, {100 * loss:g} % lost")
    world = World(int(bots), seconds, delay_ms, loss)
    figures: dict[tuple[str, str], list[dict[str, float]]] = defaultdict(list)
    for seed in range(1, int(rounds) + 1):
        for overlay in overlays:
            for variant in VARIANTS:
                one = measure(overlay, variant, seed, world)
                one["bytes"] /= bots * seconds  # to join and to leave is in it, too
                figures[overlay, variant].append(one)
    columns = list(next(iter(figures.values()))[0])
    print(f"{'':28}" + "".join(f"{column:>12}" for column in columns))
    for (overlay, variant), runs in figures.items():
        middle = [median(one[column] for one in runs) for column in columns]
        print(f"{overlay:15}{variant:13}" + "".join(f"{figure:>12.1f}" for figure in middle))
    for what in ("behind bulk", "among updates"):
        times = ", ".join(
            f"{variant} {heartbeat_ms(VARIANTS[variant], what):.0f} ms"
            for variant in ("one stream", "as built")
        )
        print(f"a heartbeat {what}: {times}")


if __name__ == "__main__":
    main()
