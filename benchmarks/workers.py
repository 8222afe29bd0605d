"""One node on several cores, or several nodes: what a delivery costs with `workers = 1`, with
`workers = 2`, and in a cluster of two nodes, and how many deliveries a second each reaches.

The clients are those of `benchmarks/cluster.py`, of which each listens to more: 1,000 of them, with
about sixty others within 50 units, who are asked for more than one core can deliver. So what is
reached is what a node is able to; late publications are not made. Two nodes and two threads have
the same two cores, and on a machine with two cores the load has them, too: there the CPU of a
delivery tells more than what is reached. CPU is that of all nodes and threads, user and system.

Waits are of single nodes with defaults, at a pace that one core takes, of 50 clients.

Run: python benchmarks/workers.py [seconds] [clients] [publications a second of each]
"""

import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import cluster
from latency import SAMPLE
from live import CLIENTS, RATE, node

RECEIVERS = 60.0
ASKED = 60.0  # publications a second of each client
ONE, TWO, NODES = "1 node, 1 worker", "1 node, 2 workers", "2 nodes"
WORKERS = {ONE: 1, TWO: 2}


class Row(NamedTuple):
    micros: float  # of CPU, per useful delivery
    heard: float  # useful deliveries a second
    pace: float  # of what was asked for


def tell(name: str, row: Row) -> None:
    print(
        f"{name:30} {row.micros:6.2f} µs of CPU per useful delivery, {row.heard / 1e6:5.2f} M"
        f" deliveries/s; {100 * row.pace:4.0f} % of the pace",
        flush=True,
    )


def measure_node(
    folder: Path, workers: int, seconds: float, clients: int, rate: float, **settings: float
) -> Row:
    measure = node(folder, record=False, workers=workers, **settings)
    told = measure(seconds, clients=clients, rate=rate, receivers=RECEIVERS)
    return Row(1e6 / max(told["efficiency"], 1.0), told["heard"] / told["wall"], told["pace"])


def measure_cluster(seconds: float, clients: int, rate: float) -> Row:
    cost = cluster.measure(2, clients, seconds, rate, RECEIVERS)
    return Row(cost.nodes, cost.heard, cost.pace)


def tell_waits(folder: Path, seconds: float, clients: int) -> None:
    for name, workers in WORKERS.items():
        measure = node(folder, record=False, workers=workers)
        told = measure(seconds, clients=clients, rate=RATE, sample=min(SAMPLE, clients))
        print(
            f"{name:30} p50 {told['p50']:6.1f} ms, p99 {told['p99']:6.1f} ms at {RATE:g} Hz;"
            f" {100 * told['pace']:4.0f} % of the pace",
            flush=True,
        )


def main() -> None:
    given = [float(word) for word in sys.argv[1:]]
    seconds, clients, rate = (*given, *(4.0, CLIENTS, ASKED)[len(given) :])
    clients = int(clients)
    print(f"{clients:,} clients x {rate:g} Hz, {RECEIVERS:g} receivers each")
    gathering = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for case, workers in WORKERS.items():
            row = measure_node(folder, workers, seconds, clients, rate, prompt=0.0)
            gathering[case] = row
            tell(f"{case}, gathering", row)
        gathering[NODES] = measure_cluster(seconds, clients, rate)
        tell(f"{NODES}, gathering", gathering[NODES])
        for case, workers in WORKERS.items():
            tell(f"{case}, by default", measure_node(folder, workers, seconds, clients, rate))
        tell_waits(folder, seconds, clients)
    one, two, nodes = (gathering[case] for case in (ONE, TWO, NODES))
    cheaper = "2 workers of one node" if two.micros <= nodes.micros else "2 nodes"
    print(
        f"{cheaper} are cheaper: against 1 worker, a delivery takes {two.micros / one.micros:.2f}"
        f" times the CPU with 2 workers and {nodes.micros / one.micros:.2f} times with 2 nodes;"
        f" reached are {two.heard / one.heard:.2f} and {nodes.heard / one.heard:.2f} times as many"
    )


if __name__ == "__main__":
    main()
