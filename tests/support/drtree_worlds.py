"""Worlds of DR-trees for tests: run one, look at its members, compare with brute force."""

from collections.abc import Callable
from random import Random

from nearcast.model.commands import Subscribe
from nearcast.protocols.drtree.contacts import MemberContacts
from nearcast.protocols.drtree.invariants import find_violations
from nearcast.protocols.drtree.member import Member
from nearcast.protocols.drtree.messages import CODEC, Address
from nearcast.protocols.drtree.parameters import Parameters
from nearcast.protocols.drtree.peer import DRTreePeer
from nearcast.scenario import Scenario
from nearcast.sim.checkers import DeliveredOnce, NotBeforePublished
from nearcast.sim.network import ConstantDelay, Network
from nearcast.sim.simulation import Simulation
from nearcast.sim.world import SimulatedWorld
from nearcast.space.motion import Moving
from nearcast.space.shapes import Shape, box
from nearcast.trace.recorder import Recorder
from nearcast.trace.sinks import MemoryTrace
from support.brute_force import delivered, expected


def members(simulation: Simulation) -> dict[Address, Member]:
    """All members of all peers, by address."""
    found: dict[Address, Member] = {}
    for node in simulation.nodes.values():
        assert isinstance(node, DRTreePeer)
        found.update({member.address: member for member in node.members.values()})
    return found


def faults(simulation: Simulation) -> list[str]:
    """Where the trees are not in their legal state."""
    for node in simulation.nodes.values():
        assert isinstance(node, DRTreePeer)
        return find_violations(members(simulation), node.parameters)
    return []


def run(
    workload: str = "hotspots",
    nodes: int = 40,
    seconds: float = 4.0,
    seed: int = 1,
    **settings: object,
) -> tuple[SimulatedWorld, MemoryTrace]:
    memory = MemoryTrace()
    scenario = Scenario(
        protocol="drtree", workload=workload, nodes=nodes, seconds=seconds, seed=seed,
        settings=settings,
    )  # fmt: skip
    world = SimulatedWorld(
        scenario, lambda _: Recorder(memory), (DeliveredOnce(), NotBeforePublished())
    )
    world.run()
    world.recorder.close()
    return world, memory


def assert_delivered_exactly(trace: MemoryTrace, at_least: int = 20) -> None:
    deliveries = delivered(trace.table("deliveries"))
    should = expected(trace.table("interests"), trace.table("publications"))
    assert len(should) > at_least, "a world without deliveries proves nothing"
    assert sorted(deliveries) == sorted(should)


class DRTreeWorld:
    """Peers with boxes on a simulated network of one's choice."""

    def __init__(self, parameters: Parameters, network: Network | None = None) -> None:
        self.memory = MemoryTrace()
        self.parameters = parameters
        self.period = round(parameters.check_ms * 1000)
        self.simulation = Simulation(
            network or ConstantDelay(50_000), CODEC, Recorder(self.memory), (DeliveredOnce(),)
        )
        self.contacts = MemberContacts(self.period)

    def join(self, node: int, *areas: Shape) -> DRTreePeer:
        peer = DRTreePeer(node, Random(node), self.parameters, self.contacts)
        self.simulation.start(peer)
        for number, area in enumerate(areas):
            self.simulation.obey(node, Subscribe(node * 1000 + number, Moving(area), echo=True))
        return peer

    def pass_periods(self, periods: float) -> None:
        self.simulation.run(self.simulation.now + round(periods * self.period))

    def settle(self, periods: int = 60, good: Callable[[], bool] | None = None) -> int:
        """How many periods it takes until the state is legal; fails after so many."""
        for passed in range(periods + 1):
            if not self.faults() and (good is None or good()):
                return passed
            self.pass_periods(1)
        raise AssertionError(f"after {periods} periods: {self.faults()[:5]}")

    def faults(self) -> list[str]:
        return faults(self.simulation)

    def members(self) -> dict[Address, Member]:
        return members(self.simulation)


def settled_tree(
    count: int, seed: int = 1, network: Network | None = None, **parameters: object
) -> DRTreeWorld:
    """A tree of so many peers with random boxes, in its legal state."""
    rng = Random(seed)
    world = DRTreeWorld(Parameters(**parameters), network)  # type-checked by Parameters itself
    for node in range(count):
        area = box(rng.uniform(0, 500), rng.uniform(0, 500), rng.uniform(2, 40), rng.uniform(2, 40))
        world.join(node, area)
    world.pass_periods(8)
    world.settle()
    return world
