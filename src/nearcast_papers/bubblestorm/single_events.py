"""Single events: most peers leave at once, a connection opens, a neighbour leaves."""

from collections.abc import Iterator
from functools import cache
from math import dist
from typing import Any

from msgspec import Struct

from nearcast.model.subscription import NodeId
from nearcast.protocols.bubblestorm.connections import DirectConnections
from nearcast.protocols.bubblestorm.invariants import asymmetric, islands
from nearcast.protocols.bubblestorm.layouts import PeerPosition
from nearcast.protocols.bubblestorm.messages import Contact, DirectPublication
from nearcast.protocols.interests import Ball
from nearcast.scenario import Scenario, stream
from nearcast.sim.world import SimulatedWorld
from nearcast.space.motion import SECOND, Time
from nearcast.trace.recorder import Recorder
from nearcast.trace.sinks import MemoryTrace
from nearcast.workloads.churn import ChurnAction
from nearcast_papers.bubblestorm.scenarios import CRASH_AT_S, QUICK, RADIUS, explanation_scenario

LEAVING_SHARE = 0.9
MASS_LEAVE_S = 90.0


class MassLeaveResult(Struct, frozen=True):
    """How a network did: recall by second, and what was wrong with its links in the end."""

    recall: dict[int, float]
    accuracy: dict[int, float]
    left: int
    asymmetric: int
    islands: int


class MassLeaveWorld(SimulatedWorld):
    """A world that most leave at one moment, each with a goodbye."""

    def __init__(self, scenario: Scenario) -> None:
        super().__init__(scenario, lambda _: Recorder(MemoryTrace(), "none"))
        self._population = self._come_and_go()
        self.recall: dict[int, float] = {}
        self.accuracy: dict[int, float] = {}

    def _come_and_go(self) -> Iterator[tuple[Time, NodeId, ChurnAction]]:
        everybody = list(range(self.scenario.nodes))
        for entity in everybody:
            yield 0, entity, ChurnAction.JOIN
        stream(self.scenario.seed, "exodus").shuffle(everybody)
        for entity in everybody[: round(LEAVING_SHARE * len(everybody))]:
            yield round(CRASH_AT_S * SECOND), entity, ChurnAction.LEAVE

    def _sample(self) -> None:
        now, nodes = self.simulation.now, self.simulation.nodes
        places = dict(self._player.positions(now))
        due = known = both = 0
        for node, place in places.items():
            near = {n for n, p in places.items() if n != node and dist(p, place) <= RADIUS}
            knew = {other for other, _ in nodes[node].known(now)}
            due, known, both = due + len(near), known + len(knew), both + len(near & knew)
        second = round((now - self.begins) / SECOND)
        self.recall[second] = both / max(1, due)
        wrong = due + known - 2 * both
        self.accuracy[second] = 1 - wrong / max(1, len(places) * (len(places) - 1))
        super()._sample()


@cache
def run_mass_leave(seed: int) -> MassLeaveResult:
    """Nine of ten say goodbye at one moment. The others spread over the same plane."""
    world = MassLeaveWorld(explanation_scenario(QUICK, MASS_LEAVE_S, seed=seed))
    world.run()
    nodes = world.simulation.nodes
    return MassLeaveResult(
        world.recall, world.accuracy, world.scenario.nodes - len(nodes), len(asymmetric(nodes)),
        len(islands(nodes)),
    )  # fmt: skip


class ConnectionSetup(Struct, frozen=True):
    """In round trips: until a connection is open at its caller, and until it carries something."""

    opened: list[float]
    carried: list[float]


@cache
def measure_connection_setup() -> ConnectionSetup:
    """From the first word to a stranger, in a network that takes 50 ms one way."""
    memory = MemoryTrace()
    world = SimulatedWorld(
        Scenario(
            protocol="bubblestorm", workload="waypoint", nodes=24, seconds=6.0,
            settings={"size": 300.0, "radius": 100.0, "rate": 10.0, "latency_ms": 50.0},
        ),
        lambda _: Recorder(memory),
    )  # fmt: skip
    world.run()
    world.recorder.close()
    rows: list[dict[str, Any]] = memory.table("messages").to_pylist()
    notes: list[dict[str, Any]] = memory.table("notes").to_pylist()
    trip = 2 * 50_000
    requested: dict[tuple[int, int], Time] = {}
    for row in rows:
        if row["kind"] == Contact.kind:
            requested.setdefault((row["node"], row["to"]), row["t"])
    met: dict[tuple[int, int], Time] = {}
    for note in notes:
        if note["fact"] == "met":
            met.setdefault((note["node"], note["about"]), note["t"])
    first_update: dict[tuple[int, int], Time] = {}
    for row in rows:
        if row["kind"] == DirectPublication.kind:
            first_update.setdefault((row["node"], row["to"]), row["t"])
    # Of two who call each other at once, the one called first has no call of its own to wait for.
    pairs = [pair for pair in requested if pair in met and pair[::-1] not in requested]
    return ConnectionSetup(
        [(met[pair] - requested[pair]) / trip for pair in pairs],
        [(first_update[pair] - met[pair]) / trip for pair in pairs if pair in first_update],
    )


def neighbour_removal() -> list[str]:
    """What becomes of a neighbour that leaves the area, returns in time, and leaves for good."""
    noted: list[str] = []
    connections = DirectConnections(
        5 * SECOND, 60 * SECOND, SECOND, lambda fact, about: noted.append(f"{fact} {about}")
    )
    area = Ball(0.0, 0.0, 0.0, 100.0)

    def compare(second: int, x: float) -> str:
        now = second * SECOND
        if 7 in connections.open:
            connections.see(PeerPosition(7, x, 0.0, 0.0, 100.0, second * 1000), now)
        connections.check(area, now)
        if 7 not in connections.open:
            return "closed"
        state = connections.open[7]
        return "hard" if state.hard else "inside" if state.soft is None else "soft"

    connections.connect(PeerPosition(7, 50.0, 0.0, 0.0, 100.0, 0), 0)
    away = [50.0, 150.0, 150.0, 50.0, *[150.0] * 8]
    return [compare(second, x) for second, x in enumerate(away, 1)]
