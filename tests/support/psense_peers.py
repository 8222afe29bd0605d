"""Peers of pSense at given places, and runs of pSense with a workload."""

from math import dist
from random import Random

from nearcast.model.commands import Publish, Subscribe
from nearcast.protocols.contacts import Contacts
from nearcast.protocols.psense.parameters import Parameters
from nearcast.protocols.psense.peer import PlayRound, PSensePeer
from nearcast.sim.network import Network
from nearcast.space.motion import SECOND, Moving
from nearcast.space.shapes import ball, disc, point
from nearcast.trace.sinks import MemoryTrace
from support import peer_worlds


class PSenseWorld(peer_worlds.PeerWorld):
    """Peers of pSense at given places, on a network of one's choice."""

    def __init__(self, network: Network | None = None, **parameters: object) -> None:
        super().__init__("psense", network, **parameters)

    def join_many(self, many: int, size: float, radius: float, seed: int) -> None:
        rng = Random(seed)
        for node in range(many):
            x, y, z = (rng.uniform(0, size) for _ in range(3))
            self.join(node, ball(x, y, z if self.parameters.dimensions == 3 else 0.0, radius))

    def unknown_near_nodes(self) -> list[tuple[int, int]]:
        """Pairs of a node and a near node that it does not know."""
        places = {peer.id: peer._vision() for peer in self.peers()}
        return [
            (one.id, node)
            for one in self.peers()
            for node, there in places.items()
            if node != one.id
            and dist(places[one.id].place, there.place) <= there.radius
            and node not in dict(one.known(self.simulation.now))
        ]


def publish_everywhere(world: PSenseWorld, first: int = 0) -> None:
    for number, peer in enumerate(list(world.peers()), first):
        vision = peer._vision()
        assert vision is not None
        world.obey(peer.id, Publish(number, point(*vision.place)))


def run(nodes: int, seconds: float, seed: int = 1, **settings: object) -> MemoryTrace:
    settings = {"radius": 150.0, **settings}
    return peer_worlds.run("psense", "waypoint", nodes, seconds, seed, **settings)


def alone(limit: int = 5000, view: str = "receivers") -> PSensePeer:
    """A peer at the origin that sees 100 units and has had its first round."""
    peer = PSensePeer(0, Random(1), Parameters(limit=limit, view=view), Contacts())
    peer.obey(0, Subscribe(1, Moving(disc(0, 0, 100))))
    peer.wake(SECOND, PlayRound())
    return peer
