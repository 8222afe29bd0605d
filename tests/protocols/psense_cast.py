"""Peers of pSense that stand where they are told, and runs of it with a workload."""

from collections.abc import Iterable
from math import dist
from random import Random

from nearcast.model.commands import Command, Publish, Subscribe
from nearcast.protocols.contacts import Contacts
from nearcast.protocols.psense.messages import CODEC
from nearcast.protocols.psense.parameters import Parameters
from nearcast.protocols.psense.peer import Peer, Round
from nearcast.scenario import Scenario
from nearcast.sim.checkers import NotBeforeItWasSaid, Once
from nearcast.sim.network import Constant, Network
from nearcast.sim.simulation import Simulation
from nearcast.sim.world import World
from nearcast.space.motion import SECOND, Moving
from nearcast.space.shapes import Shape, ball, disc, point
from nearcast.trace.recorder import Recorder
from nearcast.trace.sinks import Memory
from truth import delivered, expected


class Party:
    """Peers that stand where they are told, on a network of one's choice."""

    def __init__(self, network: Network | None = None, **parameters: object) -> None:
        self.memory = Memory()
        self.parameters = Parameters(**parameters)
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

    def trace(self) -> Memory:
        self.simulation.recorder.close()
        return self.memory


def speak_everywhere(party: Party, first: int = 0) -> None:
    for number, peer in enumerate(list(party.peers()), first):
        vision = peer._vision()
        assert vision is not None
        party.obey(peer.id, Publish(number, point(*vision.place)))


def assert_heard_exactly(trace: Memory, at_least: int = 20) -> None:
    heard = delivered(trace.table("deliveries"))
    should = expected(trace.table("interests"), trace.table("publications"))
    assert len(should) >= at_least, "a world in which nobody hears anything proves nothing"
    assert sorted(heard) == sorted(should)


def run(nodes: int, seconds: float, seed: int = 1, **settings: object) -> Memory:
    memory = Memory()
    scenario = Scenario(
        protocol="psense", workload="waypoint", nodes=nodes, seconds=seconds, seed=seed,
        settings={"radius": 150.0, **settings},
    )  # fmt: skip
    world = World(scenario, lambda _: Recorder(memory), (Once(), NotBeforeItWasSaid()))
    world.run()
    world.recorder.close()
    return memory


def recall(trace: Memory, radius: float) -> float:
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


def alone(limit: int = 5000) -> Peer:
    """A peer at the origin that sees 100 units and has had its first round."""
    peer = Peer(0, Random(1), Parameters(limit=limit), Contacts())
    peer.obey(0, Subscribe(1, Moving(disc(0, 0, 100))))
    peer.wake(SECOND, Round())
    return peer
