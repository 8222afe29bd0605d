"""Worlds of peers for tests: at given places or with a workload, compared with brute force."""

from collections.abc import Iterable
from math import dist
from random import Random
from typing import Any

from nearcast.model.commands import Command, Subscribe
from nearcast.protocols import PROTOCOLS
from nearcast.scenario import Scenario
from nearcast.sim.checkers import DeliveredOnce, NotBeforePublished
from nearcast.sim.network import ConstantDelay, Network
from nearcast.sim.simulation import Simulation
from nearcast.sim.world import SimulatedWorld
from nearcast.space.motion import SECOND, Moving
from nearcast.space.shapes import Shape
from nearcast.trace.recorder import Recorder
from nearcast.trace.sinks import MemoryTrace
from support.brute_force import delivered, expected


class PeerWorld:
    """Peers of any overlay at given places, on a network of one's choice."""

    def __init__(self, protocol: str, network: Network | None = None, **parameters: object) -> None:
        kind = PROTOCOLS[protocol]
        self.memory = MemoryTrace()
        self.parameters: Any = kind.parameters(**parameters)
        self.overlay = kind.make(self.parameters, Random)
        self.simulation = Simulation(
            network or ConstantDelay(50_000), kind.codec, Recorder(self.memory), (DeliveredOnce(),)
        )

    def join(self, node: int, *areas: Shape, echo: bool = False) -> Any:
        peer = self.overlay.entity(node, Random(node))
        self.simulation.start(peer)
        for number, area in enumerate(areas):
            self.obey(node, Subscribe(node * 1000 + number, Moving(area), echo=echo))
        return peer

    def obey(self, node: int, *commands: Command) -> None:
        for command in commands:
            self.simulation.obey(node, command)

    def pass_seconds(self, seconds: float) -> None:
        self.simulation.run(self.simulation.now + round(seconds * SECOND))

    def peers(self) -> Iterable[Any]:
        return self.simulation.nodes.values()

    def trace(self) -> MemoryTrace:
        self.simulation.recorder.close()
        return self.memory


def run(
    protocol: str, workload: str, nodes: int, seconds: float, seed: int = 1, **settings: object
) -> MemoryTrace:
    memory = MemoryTrace()
    scenario = Scenario(
        protocol=protocol, workload=workload, nodes=nodes, seconds=seconds, seed=seed,
        settings=settings,
    )  # fmt: skip
    world = SimulatedWorld(
        scenario, lambda _: Recorder(memory), (DeliveredOnce(), NotBeforePublished())
    )
    world.run()
    world.recorder.close()
    return memory


def assert_delivered_exactly(trace: MemoryTrace, at_least: int = 20) -> None:
    deliveries = delivered(trace.table("deliveries"))
    should = expected(trace.table("interests"), trace.table("publications"))
    assert len(should) >= at_least, "a world without deliveries proves nothing"
    assert sorted(deliveries) == sorted(should)


def recall(trace: MemoryTrace, radius: float) -> float:
    """Of all that should be seen, so much is seen (VAST's consistency)."""
    places: dict[int, dict[int, tuple[float, float, float]]] = {}
    for row in trace.table("positions").to_pylist():
        places.setdefault(row["t"], {})[row["node"]] = row["x"], row["y"], row["z"]
    seen = {(row["t"], row["node"], row["other"]) for row in trace.table("views").to_pylist()}
    due = [
        (t, node, other)
        for t, there in places.items()
        for node, here in there.items()
        for other, spot in there.items()
        if other != node and dist(here, spot) <= radius
    ]
    assert len(due) > 100
    return sum(one in seen for one in due) / len(due)
