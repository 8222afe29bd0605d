"""Worlds of BubbleStorm for tests: peers that come, go and crash on a network of one's choice."""

from random import Random

from nearcast.model.commands import Command, Leave, Subscribe
from nearcast.protocols.bubblestorm.invariants import ClosedCircuit, asymmetric, islands
from nearcast.protocols.bubblestorm.messages import CODEC
from nearcast.protocols.bubblestorm.parameters import Parameters
from nearcast.protocols.bubblestorm.peer import BubbleStormPeer
from nearcast.protocols.contacts import Contacts
from nearcast.scenario import Scenario
from nearcast.sim.checkers import Checker, DeliveredOnce, InvariantChecker, NotBeforePublished
from nearcast.sim.network import ConstantDelay, Network
from nearcast.sim.simulation import Simulation
from nearcast.sim.world import SimulatedWorld
from nearcast.space.motion import SECOND, Moving
from nearcast.space.shapes import Shape
from nearcast.trace.recorder import Recorder
from nearcast.trace.sinks import MemoryTrace


def run(nodes: int, seconds: float, seed: int = 1, **settings: object) -> MemoryTrace:
    memory = MemoryTrace()
    scenario = Scenario(
        protocol="bubblestorm", workload="waypoint", nodes=nodes, seconds=seconds, seed=seed,
        settings=settings,
    )  # fmt: skip
    world = SimulatedWorld(
        scenario, lambda _: Recorder(memory), (DeliveredOnce(), NotBeforePublished())
    )
    world.run()
    world.recorder.close()
    return memory


class BubbleStormWorld:
    """Peers of BubbleStorm at given places, on a network of one's choice."""

    def __init__(
        self, network: Network | None = None, *, checked: bool = False, **parameters: object
    ) -> None:
        self.memory = MemoryTrace()
        self.parameters = Parameters(**parameters)  # checked by Parameters itself
        self.simulation = Simulation(network or ConstantDelay(50_000), CODEC, Recorder(self.memory))
        checkers: list[Checker] = [DeliveredOnce()]
        if checked:
            checkers.append(InvariantChecker(self.simulation.nodes, [ClosedCircuit()]))
        self.simulation.checkers = checkers
        self.contacts = Contacts()

    def join(self, node: int, *areas: Shape, strength: float = 1.0) -> BubbleStormPeer:
        peer = BubbleStormPeer(node, Random(node), self.parameters, self.contacts, strength)
        self.simulation.start(peer)
        for number, area in enumerate(areas):
            self.obey(node, Subscribe(node * 1000 + number, Moving(area)))
        return peer

    def obey(self, node: int, *commands: Command) -> None:
        for command in commands:
            self.simulation.obey(node, command)

    def leave(self, node: int) -> None:
        self.obey(node, Leave())

    def pass_seconds(self, seconds: float) -> None:
        self.simulation.run(self.simulation.now + round(seconds * SECOND))

    def peers(self) -> list[BubbleStormPeer]:
        return [
            node for node in self.simulation.nodes.values() if isinstance(node, BubbleStormPeer)
        ]

    def faults(self) -> list[str]:
        nodes = self.simulation.nodes
        apart = islands(nodes)
        return asymmetric(nodes) + ([f"there are {len(apart)} islands"] if len(apart) > 1 else [])

    def settle(self, seconds: int) -> int:
        """How many seconds it takes until links are symmetric and the graph is whole."""
        for passed in range(seconds + 1):
            if not self.faults() and all(peer.overlay.circuit.joined for peer in self.peers()):
                return passed
            self.pass_seconds(1)
        raise AssertionError(f"after {seconds} s: {self.faults()[:5]}")

    def trace(self) -> MemoryTrace:
        self.simulation.recorder.close()
        return self.memory
