"""Worlds of VON for tests: run one, or play peers without a world, and compare with brute force."""

from collections.abc import Iterable
from math import dist
from random import Random

from nearcast.model.commands import Command, Subscribe
from nearcast.protocols.contacts import Contacts
from nearcast.protocols.voronoi.von import CODEC, Parameters, Peer
from nearcast.scenario import Scenario
from nearcast.sim.checkers import NotBeforeItWasSaid, Once
from nearcast.sim.network import Constant, Network
from nearcast.sim.simulation import Simulation
from nearcast.sim.world import World
from nearcast.space.motion import SECOND, Moving
from nearcast.space.shapes import Shape
from nearcast.trace.recorder import Recorder
from nearcast.trace.sinks import Memory
from truth import delivered, expected


def run(
    nodes: int, seconds: float, seed: int = 1, workload: str = "clustering", **settings: object
) -> Memory:
    memory = Memory()
    scenario = Scenario(
        protocol="von", workload=workload, nodes=nodes, seconds=seconds, seed=seed,
        settings=settings,
    )  # fmt: skip
    world = World(scenario, lambda _: Recorder(memory), (Once(), NotBeforeItWasSaid()))
    world.run()
    world.recorder.close()
    return memory


def assert_heard_exactly(trace: Memory, at_least: int = 20) -> None:
    heard = delivered(trace.table("deliveries"))
    should = expected(trace.table("interests"), trace.table("publications"))
    assert len(should) >= at_least, "a world in which nobody hears anything proves nothing"
    assert sorted(heard) == sorted(should)


def consistency(trace: Memory, radius: float) -> float:
    """VAST's: of all that should be seen, so much is seen."""
    places: dict[int, dict[int, tuple[float, float]]] = {}
    for row in trace.table("positions").to_pylist():
        places.setdefault(row["t"], {})[row["node"]] = row["x"], row["y"]
    seen = {(row["t"], row["node"], row["other"]) for row in trace.table("views").to_pylist()}
    due = [
        (t, node, other)
        for t, there in places.items()
        for node, here in there.items()
        for other, place in there.items()
        if other != node and dist(here, place) <= radius
    ]
    assert len(due) > 100
    return sum(one in seen for one in due) / len(due)


class Party:
    """Peers that stand where they are told, on a network of one's choice."""

    def __init__(self, network: Network | None = None, **parameters: object) -> None:
        self.memory = Memory()
        self.parameters = Parameters(**parameters)  # type-checked by Parameters itself
        self.simulation = Simulation(
            network or Constant(50_000), CODEC, Recorder(self.memory), (Once(),)
        )
        self.contacts = Contacts()

    def come(self, node: int, *areas: Shape, echo: bool = False) -> Peer:
        peer = Peer(node, Random(node), self.parameters, self.contacts)
        self.simulation.start(peer)
        for number, area in enumerate(areas):
            self.obey(node, Subscribe(node * 1000 + number, Moving(area), echo=echo))
        return peer

    def obey(self, node: int, *commands: Command) -> None:
        for command in commands:
            self.simulation.obey(node, command)

    def pass_seconds(self, seconds: float) -> None:
        self.simulation.run(self.simulation.now + round(seconds * SECOND))

    def peers(self) -> Iterable[Peer]:
        for node in self.simulation.nodes.values():
            assert isinstance(node, Peer)
            yield node

    def trace(self) -> Memory:
        self.simulation.recorder.close()
        return self.memory
