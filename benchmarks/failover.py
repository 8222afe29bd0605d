"""A broker crashes: how long brokers and clients take to link anew, and what is lost meanwhile.

Fifty players walk as in docs/explanation/evolving.md, on brokers in a line, a star or a tree, 50 ms
for each message, with the default heartbeats: one in two seconds, and who is silent for three is
given up. Five to seven seconds after the game has begun one broker crashes and stays away.

brokers      seconds until the others are one tree again
clients      seconds until the clients of the crashed one are attached to another
all arrives  seconds from the crash to the latest publication that did not reach everybody in time,
             or at all
lost         deliveries that were never made, of those of publications made between the crash and
             that moment; and those among them whose subscriber and publisher had another broker

Time is simulated: a busy machine changes nothing. It does not measure what is lost if the crashed
broker returns, if several crash together, or if messages are lost.

Run: python benchmarks/failover.py [SEEDS [BROKERS]]
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from statistics import median
from typing import Any, NamedTuple

import pyarrow.compute as pc

from nearcast.model.subscription import NodeId
from nearcast.protocols.brokers.client import BrokerClient
from nearcast.protocols.brokers.topology import TOPOLOGIES
from nearcast.protocols.overlay import FIRST_SERVER
from nearcast.scenario import Scenario
from nearcast.sim.checkers import Checker
from nearcast.sim.world import SimulatedWorld
from nearcast.space.motion import SECOND, Time
from nearcast.trace.recorder import Recorder
from nearcast.trace.sinks import MemoryTrace

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from support.broker_trees import find_tree_faults
from support.brute_force import delivered, expected

SEEDS, BROKERS = 5, 5
PLAYERS, SIDE, SECONDS = 50, 137.0, 25.0
CRASH_AFTER, HEARTBEAT = 5 * SECOND, 2 * SECOND
LOOK_EVERY: Time = SECOND // 20
SETTINGS: dict[str, Any] = {"size": SIDE, "sample_ms": 0.0, "drain_s": 5.0}


class Crash(Checker):
    """Crashes one broker, and notes when all others are linked again."""

    checks_deliveries = False

    def __init__(self, world: SimulatedWorld, broker: NodeId, seed: int) -> None:
        self._world, self._broker = world, broker
        # Somewhere between two heartbeats, which all brokers send at the same moments.
        self._due: Time = CRASH_AFTER + Random(seed).randrange(HEARTBEAT)
        self.crashed: Time = 0
        self.brokers_at: Time = 0
        self.clients_at: Time = 0
        self.served: dict[NodeId, NodeId] = {}  # by client: its broker before the crash

    def passed(self, now: Time) -> None:
        if not self._world.begins or now < self._world.begins + self._due:
            return
        self._due, nodes = now - self._world.begins + LOOK_EVERY, self._world.simulation.nodes
        clients = {name: node for name, node in nodes.items() if isinstance(node, BrokerClient)}
        if not self.crashed:
            self.crashed = now
            self.served = {name: client.broker for name, client in clients.items()}
            self._world.simulation.crash(self._broker)
            return
        if not self.brokers_at and not find_tree_faults(nodes):
            self.brokers_at = now
        if not self.clients_at and all(
            client.attached and client.broker != self._broker for client in clients.values()
        ):
            self.clients_at = now


class FailOver(NamedTuple):
    """What one crash did."""

    brokers_s: float
    clients_s: float
    all_arrives_s: float
    lost: float
    lost_elsewhere: float


def crash(topology: str, brokers: int, dead: int, seed: int) -> FailOver:
    memory = MemoryTrace()
    scenario = Scenario(
        protocol="brokers", workload="mammoth", nodes=PLAYERS, seconds=SECONDS, seed=seed,
        settings={**SETTINGS, "brokers": brokers, "topology": topology},
    )  # fmt: skip
    world = SimulatedWorld(scenario, lambda _: Recorder(memory))
    happened = Crash(world, FIRST_SERVER + dead, seed)
    world.simulation.checkers.append(happened)
    world.run()
    world.recorder.close()
    crashed = happened.crashed
    publications, interests = memory.table("publications"), memory.table("interests")
    publications = publications.filter(pc.greater_equal(publications["t"], crashed))
    made = {row["publication"]: row for row in publications.to_pylist()}
    owner = {row["subscription"]: row["node"] for row in interests.to_pylist()}
    due = expected(interests, publications)
    missed = due - set(delivered(memory.table("deliveries")))
    late = max((made[publication]["t"] for publication, _ in missed), default=crashed)
    during = [pair for pair in due if crashed <= made[pair[0]]["t"] <= late]
    lost = [pair for pair in during if pair in missed]
    elsewhere = [
        (publication, subscription)
        for publication, subscription in during
        if FIRST_SERVER + dead
        not in (happened.served[made[publication]["node"]], happened.served[owner[subscription]])
    ]
    return FailOver(
        (happened.brokers_at - crashed) / SECOND, (happened.clients_at - crashed) / SECOND,
        (late - crashed) / SECOND, len(lost) / max(1, len(during)),
        sum(pair in missed for pair in elsewhere) / max(1, len(elsewhere)),
    )  # fmt: skip


def places(topology: str, brokers: int) -> Iterator[tuple[str, int]]:
    """The root, a broker between others, and one at the end."""
    links = TOPOLOGIES[topology](brokers)
    above = {one for one, _ in links}
    yield "root", 0
    inner = [number for number in range(1, brokers) if number in above]
    if inner:
        yield "inner", inner[len(inner) // 2]
    yield "leaf", brokers - 1


def main() -> None:
    seeds, brokers = [*map(int, sys.argv[1:]), *(SEEDS, BROKERS)[len(sys.argv) - 1 :]]
    print(f"{PLAYERS} players, {brokers} brokers, {seeds} seeds: median, and the most")
    columns = "brokers s", "clients s", "all arrives s", "lost %", "elsewhere %"
    print(f"{'':16}" + "".join(f"{column:>16}" for column in columns))
    for topology in TOPOLOGIES:
        for place, dead in places(topology, brokers):
            runs = [crash(topology, brokers, dead, seed) for seed in range(1, seeds + 1)]
            cells = []
            for column, values in enumerate(zip(*runs, strict=True)):
                scale = 100 if column >= 3 else 1
                cells.append(f"{scale * median(values):.1f} ({scale * max(values):.1f})")
            print(f"{topology:8}{place:8}" + "".join(f"{cell:>16}" for cell in cells), flush=True)


if __name__ == "__main__":
    main()
