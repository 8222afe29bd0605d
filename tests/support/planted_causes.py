"""Worlds of client and server in which each miss has one cause, which is planted.

Each pair has a place, a subscriber and a publisher of its own. All nodes also publish where nobody
listens, so that their links carry something
while others are cut off.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random

from msgspec import Struct

from nearcast.matching import MATCHERS
from nearcast.model.commands import Command, Move, Publish, Subscribe, Unsubscribe
from nearcast.protocols.client_server import CODEC, CentralServer, CentralServerClient
from nearcast.protocols.overlay import FIRST_SERVER
from nearcast.sim.simulation import Simulation
from nearcast.space.motion import SECOND, Moving
from nearcast.space.shapes import disc, point
from nearcast.trace.recorder import Recorder
from nearcast.trace.sinks import TraceFolder

MS = 1_000
SERVER = FIRST_SERVER
CUT, HEALED = 3 * SECOND, 4 * SECOND  # the network is partitioned between these moments
END = 6 * SECOND
Pair = tuple[int, int]


class PlannedNetwork:
    """Delays by chance, unless something else is planned for a link and a span of time."""

    def __init__(self, chance: Random) -> None:
        self._chance = chance
        self._plans: dict[tuple[int, int], list[tuple[int, int, int | None]]] = {}
        self.cut: set[int] = set()

    def plan(self, source: int, target: int, begin: int, end: int, delay: int | None) -> None:
        """What is sent from begin to end takes so long; None: it is lost."""
        self._plans.setdefault((source, target), []).append((begin, end, delay))

    def route(self, now: int, source: int, target: int, size: int) -> list[int]:  # noqa: ARG002
        if CUT <= now < HEALED and (source in self.cut) != (target in self.cut):
            return []
        for begin, end, delay in self._plans.get((source, target), ()):
            if begin <= now <= end:
                return [] if delay is None else [delay]
        return [self._chance.randint(20 * MS, 60 * MS)]


class PlantedWorld(Struct):
    """A world under construction."""

    simulation: Simulation
    network: PlannedNetwork
    chance: Random
    planted: dict[Pair, str]

    def obey(self, t: int, node: int, command: Command) -> None:
        simulation = self.simulation
        simulation.at(t, lambda: node in simulation.nodes and simulation.obey(node, command))


class Place(Struct):
    """Where one pair is, and who it is."""

    number: int

    @property
    def subscriber(self) -> int:
        return 2 * self.number

    @property
    def publisher(self) -> int:
        return 2 * self.number + 1

    @property
    def x(self) -> float:
        return 1000.0 * self.number

    def region(self, away: float = 0.0) -> Moving:
        return Moving(disc(self.x + away, 0.0, 10.0))

    def subscribe(self, away: float = 0.0, condition: str | None = None) -> Subscribe:
        return Subscribe(self.number, self.region(away), condition)


def publish(world: PlantedWorld, place: Place, t: int, cause: str, **attributes: int) -> None:
    """The publication of which the pair is planted."""
    number = 10_000_000 + place.number
    shape = point(place.x + world.chance.uniform(-9, 9), 0.0)
    world.obey(t, place.publisher, Publish(number, shape, attributes=attributes))
    world.planted[number, place.number] = cause


def lose_post(world: PlantedWorld, place: Place, t: int) -> None:
    world.obey(0, place.subscriber, place.subscribe())
    world.network.plan(place.publisher, SERVER, t, t, None)
    publish(world, place, t, "lost")


def lose_notify(world: PlantedWorld, place: Place, t: int) -> None:
    world.obey(0, place.subscriber, place.subscribe())
    world.network.plan(SERVER, place.subscriber, t, t + SECOND, None)
    publish(world, place, t, "lost")


def lose_interest(world: PlantedWorld, place: Place, t: int) -> None:
    """The change of an interest is lost, long or shortly before."""
    changed = t - world.chance.choice([100 * MS, 1500 * MS])
    world.obey(0, place.subscriber, place.subscribe(away=100.0))
    world.network.plan(place.subscriber, SERVER, changed, changed, None)
    world.obey(changed, place.subscriber, Move(place.number, place.region()))
    publish(world, place, t, "lost")


def cut_off(world: PlantedWorld, place: Place, t: int) -> None:
    """The publisher or the subscriber is in the smaller half."""
    world.obey(0, place.subscriber, place.subscribe())
    world.network.cut.add(world.chance.choice([place.subscriber, place.publisher]))
    publish(world, place, CUT + t % (HEALED - CUT - 100 * MS), "partitioned")


def change_late(world: PlantedWorld, place: Place, t: int) -> None:
    """The interest begins or changes just before, and its message is slow."""
    changed = t - world.chance.randint(0, 200 * MS)
    world.network.plan(place.subscriber, SERVER, changed, changed, 400 * MS)
    if world.chance.random() < 0.5:
        world.obey(0, place.subscriber, place.subscribe(away=100.0))
        world.obey(changed, place.subscriber, Move(place.number, place.region()))
    else:
        world.obey(changed, place.subscriber, place.subscribe())
    publish(world, place, t, "not yet known")


def change_again(world: PlantedWorld, place: Place, t: int) -> None:
    """The publication is slow, and the interest has changed when it comes."""
    world.obey(0, place.subscriber, place.subscribe())
    world.network.plan(place.publisher, SERVER, t, t, 500 * MS)
    changed = t + world.chance.randint(1, 300 * MS)
    world.obey(changed, place.subscriber, Move(place.number, place.region(away=100.0)))
    publish(world, place, t, "overtaken")


def crash(world: PlantedWorld, place: Place, t: int) -> None:
    world.obey(0, place.subscriber, place.subscribe())
    simulation, node = world.simulation, place.subscriber
    simulation.at(t + world.chance.randint(1, 30 * MS), partial(simulation.crash, node))
    publish(world, place, t, "crashed")


def unsubscribe(world: PlantedWorld, place: Place, t: int) -> None:
    """The publication is slow, and the server has forgotten the subscription when it comes."""
    world.obey(0, place.subscriber, place.subscribe())
    world.network.plan(place.publisher, SERVER, t, t, 500 * MS)
    world.obey(t + 100 * MS, place.subscriber, Unsubscribe(place.number))
    publish(world, place, t, "ended")


def filter_out(world: PlantedWorld, place: Place, t: int) -> None:
    """Not a miss: the filter does not want it."""
    world.obey(0, place.subscriber, place.subscribe(condition="price < 10"))
    publish(world, place, t, "filtered", price=world.chance.randint(10, 99))


PLANTS: tuple[Callable[[PlantedWorld, Place, int], None], ...] = (
    lose_post, lose_notify, lose_interest, cut_off, change_late, change_again, crash, unsubscribe,
    filter_out,
)  # fmt: skip


def plant_causes(path: Path, seed: int, each: int) -> dict[Pair, str]:
    """Write the trace of a world with so many pairs for each plant; returns each pair's cause."""
    chance = Random(seed)
    network = PlannedNetwork(chance)
    recorder = Recorder(folder := TraceFolder(path, b'{"schema": 1}'))
    world = PlantedWorld(Simulation(network, CODEC, recorder), network, chance, {})
    simulation = world.simulation
    simulation.start(CentralServer(SERVER, Random(1), MATCHERS["grid"]()))
    plants = [plant for plant in PLANTS for _ in range(each)]
    chance.shuffle(plants)
    for number, plant in enumerate(plants):
        place = Place(number)
        for node in (place.subscriber, place.publisher):
            simulation.start(CentralServerClient(node, Random(1), SERVER, SECOND))
            for k in range(3):
                t = CUT + k * 300 * MS + chance.randint(0, 200 * MS)
                world.obey(t, node, Publish(node * 100 + k, point(-1e6, -1e6)))
        # In the third second, or while others are cut off: then losses must be told apart.
        plant(world, place, 2 * SECOND + chance.randint(0, 1900 * MS))
    simulation.at(CUT, lambda: recorder.note(CUT, SERVER, "partitioned", len(network.cut)))
    simulation.at(HEALED, lambda: recorder.note(HEALED, SERVER, "healed"))
    simulation.run(END + SECOND)
    recorder.close()
    folder.finish({})
    return world.planted
