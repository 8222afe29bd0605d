"""What a simulated world without servers costs, and how that grows with its peers.

The first table is the thesis' mobility model: 128 peers that come one per second, ten updates a
second, 15 minutes, recorded as the reproduction records it (traffic summed up, one publication in
16, all positions and views). Its opponents play the same world: pSense, which is an overlay too,
and client/server, where one node knows everybody. Delays are 50 ms; with --network adsl every
message passes two lines with queues, which takes twice as long.

The second table keeps the density and grows the world: a few seconds of it, when all have joined.
A peer's own cost should be what its neighbours cost, which are as many, and what bubbles cost,
which grow with the root of the number of peers.

CPU seconds are of one process and one core; each run is a process of its own.

Run: python benchmarks/bubblestorm.py [--seconds 900] [--peers 100 300 1000 3000 10000]
"""

import argparse
import resource
import subprocess
import sys
import tempfile
from math import log
from pathlib import Path
from time import process_time

import msgspec

from nearcast.scenario import Scenario, Setting
from nearcast.sim.run import SimulationProgress, simulate

OVERLAYS: dict[str, dict[str, Setting]] = {
    "bubblestorm": {"lambda": 1.0, "beat_s": 15.0, "dead_s": 45.0},  # BubbleStorm's own
    "psense": {},
    "client-server": {},
}
PEERS, SIZE = 128, 1000.0
GROWN_S = 5.0


class Cost(msgspec.Struct, frozen=True):
    build: float  # CPU seconds until the workload begins
    play: float
    peak: float  # MiB
    messages: int


def scenario(protocol: str, peers: int, seconds: float, network: str, **more: Setting) -> Scenario:
    return Scenario(
        protocol=protocol, workload="waypoint", nodes=peers, seconds=seconds, record="brief",
        settings={
            "size": SIZE * (peers / PEERS) ** 0.5, "radius": 100.0, "speed": 15.0, "pause": 0.0,
            "rate": 10.0, "payload": 0, "network": network, **OVERLAYS[protocol], **more,
        },
    )  # fmt: skip


def measure(what: Scenario, folder: Path) -> Cost:
    """In this process, which should be a fresh one: memory is counted from its beginning."""
    built: list[float] = []

    def show(_: SimulationProgress) -> None:
        if not built:
            built.append(process_time())

    began = process_time()
    summary = simulate(what, folder, show)
    ended = process_time()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return Cost(built[0] - began, ended - built[0], peak, summary.messages)


def in_a_process(what: Scenario) -> Cost:
    """Measured by this very file, which finds the scenario on its standard input."""
    answer = subprocess.run(
        [sys.executable, __file__, "--alone"],
        input=msgspec.json.encode(what),
        stdout=subprocess.PIPE,
        check=True,
    )
    return msgspec.json.decode(answer.stdout, type=Cost)


def alone() -> None:
    what = msgspec.json.decode(sys.stdin.buffer.read(), type=Scenario)
    with tempfile.TemporaryDirectory() as folder:
        cost = measure(what, Path(folder) / "trace")
    sys.stdout.buffer.write(msgspec.json.encode(cost))


def play(seconds: float, network: str) -> None:
    print(f"{PEERS} peers, {seconds:g} simulated seconds, network {network}")
    print(f"{'':16}{'CPU s':>9}{'messages':>14}{'µs each':>9}{'MiB':>7}")
    for protocol in OVERLAYS:
        cost = in_a_process(scenario(protocol, PEERS, seconds, network, join_rate=1.0))
        whole = cost.build + cost.play
        print(
            f"{protocol:16}{whole:>9.1f}{cost.messages:>14,}"
            f"{1e6 * whole / cost.messages:>9.1f}{cost.peak:>7,.0f}",
            flush=True,
        )


def grow(sizes: list[int], network: str) -> None:
    print(f"\nbubblestorm, density kept, {GROWN_S:g} simulated seconds once all have joined")
    print(
        f"{'peers':>8}{'build s':>10}{'play s':>9}{'ms / peer and s':>17}{'messages':>13}{'MiB':>8}"
    )
    found: dict[int, float] = {}
    for peers in sizes:
        cost = in_a_process(scenario("bubblestorm", peers, GROWN_S, network, sample_ms=0.0))
        found[peers] = 1000 * cost.play / peers / GROWN_S
        print(
            f"{peers:>8,}{cost.build:>10.1f}{cost.play:>9.1f}{found[peers]:>17.2f}"
            f"{cost.messages:>13,}{cost.peak:>8,.0f}",
            flush=True,
        )
    few, many = min(found), max(found)
    if few != many:
        power = log(found[many] / found[few]) / log(many / few)
        print(f"per peer and second: {found[many] / found[few]:.2f} times, n^{power:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=900.0, help="0: not the mobility model")
    parser.add_argument("--peers", type=int, nargs="*", default=[100, 300, 1000, 3000, 10000])
    parser.add_argument("--network", default="constant", choices=("constant", "adsl"))
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.alone:
        alone()
        return
    if arguments.seconds:
        play(arguments.seconds, arguments.network)
    if arguments.peers:
        grow(arguments.peers, arguments.network)


if __name__ == "__main__":
    main()
