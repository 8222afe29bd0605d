"""Meshes of sites for tests: a node that is nothing but a site, and what a mesh should know."""

from random import Random

from nearcast.model.subscription import NodeId
from nearcast.node import Message, Node, Timer
from nearcast.protocols.voronoi.local_diagram import LocalDiagram
from nearcast.protocols.voronoi.mesh import MESSAGES, Mesh, MeshEvent, Parameters
from nearcast.sim.network import ConstantDelay, Network
from nearcast.sim.simulation import Simulation
from nearcast.space import voronoi
from nearcast.space.motion import SECOND
from nearcast.space.voronoi import Point
from nearcast.trace.recorder import Recorder
from nearcast.trace.sinks import MemoryTrace
from nearcast.wire import Codec

CODEC = Codec(*MESSAGES)
LATENCY = 50_000


class Tick(Timer, frozen=True):
    pass


class SiteNode(Node):
    """A node that is one site of the mesh, and nothing else."""

    def __init__(self, node: NodeId, parameters: Parameters | None = None) -> None:
        super().__init__(node, Random(node))
        self.mesh = Mesh(node, self.out, self.rng, lambda: self.now, parameters)
        self.noticed: list[MeshEvent] = []

    def on_start(self) -> None:
        self.out.set_timer(Tick(), SECOND // 5)

    def on_timer(self, timer: Timer) -> None:
        self.mesh.tick(self.now)
        self.noticed += self.mesh.drain()
        self.out.set_timer(timer, SECOND // 5)

    def on_message(self, sender: NodeId, message: Message) -> None:
        assert self.mesh.on(message, sender)


class MeshNetwork:
    """Sites on a network of one's choice."""

    def __init__(self, network: Network | None = None, **parameters: float) -> None:
        self.simulation = Simulation(
            network or ConstantDelay(LATENCY), CODEC, Recorder(MemoryTrace()), ()
        )
        self.parameters = Parameters(**parameters)

    def join(self, node: NodeId, place: Point, contact: NodeId | None, reach: float = 0.0) -> Mesh:
        site_node = SiteNode(node, self.parameters)
        self.simulation.start(site_node)
        self.act(node, lambda mesh: mesh.join_at(place, contact, reach))
        return site_node.mesh

    def act(self, node: NodeId, verb: object) -> None:
        site_node = self.site_node(node)
        assert callable(verb)
        site_node._advance(self.simulation.now)
        verb(site_node.mesh)
        self.simulation._apply(site_node, site_node.out.drain())

    def site_node(self, node: NodeId) -> SiteNode:
        site_node = self.simulation.nodes[node]
        assert isinstance(site_node, SiteNode)
        return site_node

    def meshes(self) -> dict[NodeId, Mesh]:
        return {
            n: self.site_node(n).mesh for n in self.simulation.nodes if self.site_node(n).mesh.me
        }

    def pass_seconds(self, seconds: float) -> None:
        self.simulation.run(self.simulation.now + round(seconds * SECOND))

    def wrong(self) -> list[str]:
        """What sites do not know but should, believe wrongly, or take for their surroundings."""
        meshes, whole = self.meshes(), LocalDiagram()
        for node, mesh in meshes.items():
            assert mesh.me is not None
            whole.put(node, mesh.me.place, mesh.me.reach)
        found = []
        for node, mesh in meshes.items():
            found += [f"{node} lacks {o}" for o in whole.related(node, 0.0) if o not in mesh.known]
            found += [f"{node} knows {other}, gone" for other in mesh.known if other not in meshes]
            found += [
                f"{node} has {other} elsewhere"
                for other, neighbour in mesh.known.items()
                if other in meshes and neighbour.site != meshes[other].me
            ]
            if mesh.enclosing() != voronoi.enclosing(whole.places, node):
                found.append(f"{node} is enclosed by others than it thinks")
            if not mesh.joined:
                found.append(f"{node} is not in")
        return found

    def settle(self, seconds: int) -> int:
        """How many seconds it takes until all is right; fails after so many."""
        for passed in range(seconds + 1):
            if not self.wrong():
                return passed
            self.pass_seconds(1)
        raise AssertionError(f"after {seconds} s: {self.wrong()[:5]}")


def settled_mesh(
    count: int, seed: int = 1, reach: float = 0.0, network: Network | None = None, **set_: float
) -> MeshNetwork:
    """So many sites at random places that join at once and know only the first."""
    net, rng = MeshNetwork(network, **set_), Random(seed)
    for node in range(count):
        place = rng.uniform(0, 500), rng.uniform(0, 500)
        net.join(node, place, 0 if node else None, reach)
    net.settle(20)
    return net
