"""Peers of pSense that stand where they are told, and runs of it with a workload."""

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
from support import peer_worlds as party


class Party(party.Party):
    def __init__(self, network: Network | None = None, **parameters: object) -> None:
        super().__init__("psense", network, **parameters)

    def crowd(self, many: int, size: float, radius: float, seed: int) -> None:
        rng = Random(seed)
        for node in range(many):
            x, y, z = (rng.uniform(0, size) for _ in range(3))
            self.come(node, ball(x, y, z if self.parameters.dimensions == 3 else 0.0, radius))

    def strangers(self) -> list[tuple[int, int]]:
        """Who is near whom without being known to it."""
        places = {peer.id: peer._vision() for peer in self.peers()}
        return [
            (one.id, node)
            for one in self.peers()
            for node, there in places.items()
            if node != one.id
            and dist(places[one.id].place, there.place) <= there.radius
            and node not in dict(one.known(self.simulation.now))
        ]


def speak_everywhere(party: Party, first: int = 0) -> None:
    for number, peer in enumerate(list(party.peers()), first):
        vision = peer._vision()
        assert vision is not None
        party.obey(peer.id, Publish(number, point(*vision.place)))


def run(nodes: int, seconds: float, seed: int = 1, **settings: object) -> MemoryTrace:
    settings = {"radius": 150.0, **settings}
    return party.run("psense", "waypoint", nodes, seconds, seed, **settings)


def alone(limit: int = 5000) -> PSensePeer:
    """A peer at the origin that sees 100 units and has had its first round."""
    peer = PSensePeer(0, Random(1), Parameters(limit=limit), Contacts())
    peer.obey(0, Subscribe(1, Moving(disc(0, 0, 100))))
    peer.wake(SECOND, PlayRound())
    return peer
