"""What VSO costs: per move and per publication against the number of matchers, and per second.

The first table has 100 clients of the paper's world (768 units, areas of 192) and so many matchers,
which stay where they are. Messages, bytes and CPU of one move are the difference between two runs
of which one has a move with every publication and the other has hardly any, divided by the moves
that are more; those of one publication the difference between two rates. What is repeated all the
time (signs of life, digests) is in neither. Bytes and messages are exact; CPU is this process's.

The second has the workload's default, clustering, with matchers called in as the load grows: how
many seconds of the world pass in a second of CPU, after all have joined. At 2 Hz (the default) and
10 Hz (the paper: a publication in each step), 200 clients with everything recorded and 1,000 with
sums, in the same world: each hears five times as many. All recording stays in memory.

Run: python benchmarks/voronoi.py [seconds]
"""

import sys
from time import process_time
from typing import Any, NamedTuple, cast

import pyarrow.compute as pc

from nearcast.scenario import Scenario
from nearcast.sim.world import SimulatedWorld
from nearcast.space.motion import SECOND, Time
from nearcast.trace.recorder import Level, Recorder
from nearcast.trace.sinks import MemoryTrace

MATCHERS = (1, 2, 4, 8, 16, 32)
CLIENTS = 100
PAPER: dict[str, Any] = {"size": 768.0, "world": 768.0, "radius": 192.0, "speed": 30.0}
PAPERS_RATE, DEFAULT_RATE = 10.0, 2.0


class Cost(NamedTuple):
    """Of one run, from the moment when everybody has joined."""

    messages: int
    bytes: int
    cpu: float  # seconds
    moves: int
    publications: int
    deliveries: int


def run(
    workload: str, nodes: int, seconds: float, record: Level = "all", **settings: Any
) -> tuple[Cost, float]:
    """What it costs, and how many seconds of the world that were."""
    scenario = Scenario(
        protocol="vso", workload=workload, nodes=nodes, seconds=seconds, record=record,
        settings=settings,
    )  # fmt: skip
    memory, looks = MemoryTrace(), list[tuple[Time, float]]()
    world = SimulatedWorld(scenario, lambda _: Recorder(memory, record))
    world.run(lambda done, _: looks.append((done, process_time())))
    world.recorder.close()
    (first, began), (last, ended) = looks[0], looks[-1]
    since = world.begins

    def rows(table: str) -> Any:
        whole = memory.table(table)
        return whole.filter(pc.greater_equal(whole["t"], since))

    sent = rows("messages")
    cost = Cost(
        pc.sum(sent["copies"]).as_py(), pc.sum(sent["bytes"]).as_py(), ended - began,
        rows("interests").num_rows, rows("publications").num_rows, rows("deliveries").num_rows,
    )  # fmt: skip
    return cost, (last - first) / SECOND


def difference(more: Cost, less: Cost, what: str) -> tuple[float, float, float]:
    """Messages, bytes and microseconds for each one that there is more of."""
    each = getattr(more, what) - getattr(less, what)
    return (
        (more.messages - less.messages) / each, (more.bytes - less.bytes) / each,
        1e6 * (more.cpu - less.cpu) / each,
    )  # fmt: skip


def against_matchers(seconds: float) -> None:
    print(f"{CLIENTS} clients, matchers that stay; in brackets: against 1 matcher")
    print(f"{'matchers':>8}   {'one move: messages':>22}{'bytes':>16}{'CPU µs':>14}", end="")
    print(f"   {'publication: messages':>22}{'bytes':>16}{'CPU µs':>14}")
    alone: tuple[float, ...] = ()
    for matchers in MATCHERS:
        still = {**PAPER, "partitioning": "static", "candidates": "servers", "matchers": matchers}
        usual, _ = run("waypoint", CLIENTS, seconds, rate=4.0, motion="line", **still)
        moving, _ = run("waypoint", CLIENTS, seconds, rate=4.0, motion="steps", **still)
        quiet, _ = run("waypoint", CLIENTS, seconds, rate=1.0, motion="line", **still)
        move = difference(moving, usual, "moves")
        publication = difference(usual, quiet, "publications")
        alone = alone or (*move, *publication)
        shown = [
            f"{value:,.1f} ({value / one:.2f})"
            for value, one in zip((*move, *publication), alone, strict=True)
        ]
        print(f"{matchers:>8}   {shown[0]:>22}{shown[1]:>16}{shown[2]:>14}", end="")
        print(f"   {shown[3]:>22}{shown[4]:>16}{shown[5]:>14}", flush=True)


def against_time(seconds: float) -> None:
    print("seconds of the world in a second of CPU")
    for nodes, record, share in ((200, "all", 1.0), (1_000, "sums", 0.2)):
        for rate in (DEFAULT_RATE, PAPERS_RATE):
            level = cast(Level, record)
            cost, passed = run("clustering", nodes, share * seconds, level, rate=rate, **PAPER)
            each = 1e6 * cost.cpu / cost.deliveries
            print(
                f"{nodes:>6,} clients at {rate:>4g} Hz, {record} recorded: {passed / cost.cpu:.2f};"
                f" {cost.deliveries / cost.publications:.1f} deliveries per publication,"
                f" {each:.1f} µs per delivery",
                flush=True,
            )


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 10.0
    run("waypoint", 10, 1.0, **PAPER)  # kernels are loaded once, and not for the first figure
    against_time(seconds)
    against_matchers(seconds)


if __name__ == "__main__":
    main()
