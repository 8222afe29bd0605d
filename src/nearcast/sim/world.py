"""From a scenario to a run: nodes, network, workload, faults, sampling, and a trace.

The workload begins when the overlay is ready; its times count from then. Where the overlay is built
from interests (`settles`), entities subscribe before, without motion. The workload stops after the
scenario's seconds, and messages under way then may still arrive.
"""

from collections.abc import Callable
from functools import partial
from random import Random
from typing import TypeVar

from msgspec import Struct

from nearcast.errors import InvariantError
from nearcast.model.commands import Leave
from nearcast.model.subscription import NodeId
from nearcast.protocols import PROTOCOLS
from nearcast.protocols.offers import OverlayOffer, refuse_missing
from nearcast.protocols.overlay import FIRST_SERVER
from nearcast.scenario import Scenario, stream
from nearcast.sim import faults as faults_
from nearcast.sim import network as network_
from nearcast.sim.checkers import Checker, DeliveredOnce, InvariantChecker, NotBeforePublished
from nearcast.sim.settings import Sampling, fill_settings
from nearcast.sim.simulation import Simulation, rare_garbage_collection
from nearcast.sim.workload_player import WorkloadPlayer, first_interests
from nearcast.space.motion import SECOND, Time
from nearcast.space.shapes import Vector
from nearcast.trace.recorder import Recorder
from nearcast.workloads import WORKLOADS, churn
from nearcast.workloads.workload import STAYS

Part = TypeVar("Part", bound=Struct)
REMEMBERED: Time = 60 * SECOND  # within which no publication is delivered twice
CHECK_INTERVAL: Time = SECOND  # between two checks of a protocol's invariants
LONGEST_SET_UP = 600 * SECOND  # an overlay that is not ready by then never will be


class ScenarioParts(Struct, frozen=True):
    """The parameters of all parts of a scenario."""

    protocol: Struct
    workload: Struct
    churn: churn.Parameters
    network: network_.NetworkParameters
    faults: faults_.FaultParameters
    sampling: Sampling


def resolve(scenario: Scenario) -> tuple[Scenario, ScenarioParts]:
    """The scenario with all its settings filled in, and the parameters that they become."""
    filled, parts = fill_settings(scenario)
    return filled, ScenarioParts(**parts)


class SimulatedWorld:
    """One run of a scenario. `check`: also check all deliveries, and the invariants of its
    protocol."""

    def __init__(
        self,
        scenario: Scenario,
        recorder: Callable[[Scenario], Recorder],
        checkers: tuple[Checker, ...] = (),
        *,
        check: bool = False,
    ) -> None:
        self.scenario, self._parts = resolve(scenario)
        seed, parts = scenario.seed, self._parts
        make_workload = WORKLOADS[scenario.workload].make
        self.workload = make_workload(parts.workload, scenario.nodes, scenario.seconds, seed)
        self._population = churn.population(
            parts.churn, self.workload.entities, scenario.seconds, seed
        )
        kind = PROTOCOLS[scenario.protocol]
        if getattr(parts.workload, "rates", ""):
            refuse_missing(scenario.protocol, [OverlayOffer.RATES], PROTOCOLS)
        self._overlay = kind.make(parts.protocol, partial(self._stream, 0))
        self._setting_up = True
        network = network_.make_network(parts.network, seed, lambda: self._setting_up, self._places)
        if parts.faults.any:
            network = network_.FaultyNetwork(network)
        self.recorder = recorder(self.scenario)
        if check:
            checkers = (*checkers, DeliveredOnce(REMEMBERED), NotBeforePublished())
        self.simulation = Simulation(network, kind.codec, self.recorder, checkers)
        if parts.network.packet_loss:
            self.simulation.lose_packets(
                network_.PacketLoss(parts.network.packet_loss, stream(seed, "packets"))
            )
        invariants = kind.invariants(calm=self._calm) if check else ()
        if invariants:
            checker = InvariantChecker(self.simulation.nodes, invariants, CHECK_INTERVAL)
            self.simulation.checkers.append(checker)
        self.begins: Time = 0  # when the workload begins
        self._seen_at: dict[NodeId, Vector] = {}  # where entities were when last looked for
        self._returns: dict[NodeId, int] = {}
        self._gone: dict[NodeId, None] = {}  # those that left while they were down
        self._faults: faults_.FaultInjector | None = None

    @property
    def ends(self) -> Time:
        return self.begins + round(self.scenario.seconds * SECOND)

    @property
    def _calm(self) -> bool:
        """Are delays constant, is no message lost, and does no node leave or crash?"""
        churn_, network = self._parts.churn, self._parts.network
        lost = network.loss or network.packet_loss
        reliable = not (network.jitter_ms or lost or network.duplicate or network.reorder)
        stays = not (churn_.churn_rate or churn_.crash_share or churn_.servers_until)
        return network.network == "constant" and reliable and stays and not self._parts.faults.any

    def _stream(self, stay: int, node: NodeId) -> Random:
        return stream(self.scenario.seed, "node", node, stay)

    @rare_garbage_collection()
    def run(self, progress: Callable[[Time, Time], None] | None = None) -> None:
        """Set up, run, and drain; calls `progress` with the time done and the whole."""
        self._set_up()
        sampling, simulation = self._parts.sampling, self.simulation
        if sampling.sample_ms:
            simulation.at(self.begins, self._sample)
        if isinstance(simulation.network, network_.FaultyNetwork):
            rng = stream(self.scenario.seed, "faults")
            self._faults = faults_.FaultInjector(self._parts.faults, rng, self, simulation.network)
            self._faults.begin()
        slices = 200
        try:
            for k in range(1, slices + 1):
                simulation.run(self.begins + (self.ends - self.begins) * k // slices)
                if progress is not None:
                    progress(simulation.now - self.begins, self.ends - self.begins)
            self._drain()
        except InvariantError as why:
            raise InvariantError(f"{why} (seed {self.scenario.seed})") from None

    @property
    def messages(self) -> int:
        """Sent so far."""
        return self.simulation.messages

    def _drain(self) -> None:
        """Run on until messages and publications that are under way have arrived."""
        simulation = self.simulation
        self._player.close()
        limit = self.ends + round(self._parts.sampling.drain_s * SECOND)
        simulation.run(max(self.ends, min(simulation.latest_arrival, limit)))
        # A node may hold a publication back for a moment before it passes it on: wait a second.
        while simulation.now < min(simulation.latest_carrying + SECOND, limit):
            simulation.run(min(simulation.latest_carrying + SECOND, limit))

    def _set_up(self) -> None:
        """The first nodes join; the workload waits until their overlay is ready."""
        simulation = self.simulation
        for server in self._overlay.servers():
            simulation.start(server)
        later = []
        for t, entity, act in self._population:
            if t == 0 and act is churn.ChurnAction.JOIN:
                self._start(entity)
            else:
                later.append((t, entity, act))
                break
        self._until_ready()
        settles = PROTOCOLS[self.scenario.protocol].settles
        if settles:
            for entity in self.present():
                for first in first_interests(self.workload.life(entity, 0, 0)):
                    simulation.obey(entity, first)
            self._until_ready()
        self.begins = simulation.now
        self._setting_up = False
        self._player = WorkloadPlayer(simulation, self.begins, self.ends)
        for entity in self.present():
            self._live(entity, 0, settled=settles)
        if later:
            self._plan_next(later[0])
        if self._parts.churn.servers_until:
            self.plan(round(self._parts.churn.servers_until * SECOND), self._crash_servers)

    def _until_ready(self) -> None:
        simulation = self.simulation
        while not all(node.ready for node in simulation.nodes.values()):
            if simulation.now >= LONGEST_SET_UP:
                raise RuntimeError(
                    f"the overlay was not ready after {LONGEST_SET_UP // SECOND} simulated seconds"
                )
            simulation.run(simulation.now + SECOND // 10)

    # Comings and goings.

    def _plan_next(self, act: tuple[Time, NodeId, churn.ChurnAction] | None) -> None:
        if act is not None:
            self.simulation.at(self.begins + act[0], partial(self._come_or_go, act))

    def _come_or_go(self, act: tuple[Time, NodeId, churn.ChurnAction]) -> None:
        _, entity, what = act
        if what is churn.ChurnAction.JOIN:
            self.join(entity)
        elif entity not in self.simulation.nodes:  # a fault was faster
            self._gone[entity] = None
        else:
            if what is churn.ChurnAction.LEAVE:
                self._player.leave(entity)
                self.simulation.obey(entity, Leave())
            else:
                self.crash(entity)
        self._plan_next(next(self._population, None))

    def plan(self, after: Time, act: Callable[[], None]) -> None:
        if self.simulation.now + after < self.ends:
            self.simulation.at(self.simulation.now + after, act)

    def present(self) -> list[NodeId]:
        return [node for node in self.simulation.nodes if node < FIRST_SERVER]

    def join(self, entity: NodeId) -> None:
        may_return = entity not in self._gone and self._returns.get(entity, -1) + 1 < STAYS
        if entity not in self.simulation.nodes and may_return:
            self._start(entity)
            if self._faults is not None:
                self._faults.add(entity)
            # A microsecond later: this moment's publications may have been made already.
            self._live(entity, self.simulation.now - self.begins + 1)

    def crash(self, entity: NodeId) -> None:
        self._player.leave(entity)
        self.simulation.crash(entity)

    def _crash_servers(self) -> None:
        for server in [node for node in self.simulation.nodes if node >= FIRST_SERVER]:
            self.simulation.crash(server)

    def note(self, fact: str, about: int | None) -> None:
        self.recorder.note(self.simulation.now, FIRST_SERVER, fact, about)

    def _start(self, entity: NodeId) -> None:
        stay = self._returns[entity] = self._returns.get(entity, -1) + 1
        self.simulation.start(self._overlay.entity(entity, self._stream(stay, entity)))
        self.recorder.note(self.simulation.now, entity, "joined")

    def _live(self, entity: NodeId, begins: Time, *, settled: bool = False) -> None:
        life = self.workload.life(entity, self._returns[entity], begins)
        self._player.enter(entity, life, settled=settled)

    def _places(self, now: Time) -> dict[NodeId, Vector]:
        """Where all nodes are: entities where they live, servers in the middle of the world."""
        if self._setting_up:
            for node in self.present():
                if node not in self._seen_at:
                    self._seen_at[node] = self.workload.life(node, 0, 0).position(0)
        else:  # after the workload they stay where they were
            self._seen_at = dict(self._player.positions(now)) or self._seen_at
        low, high = self.workload.world
        x, y, z = ((a + b) / 2 for a, b in zip(low, high, strict=True))
        servers = [node for node in self.simulation.nodes if node >= FIRST_SERVER]
        return {**self._seen_at, **dict.fromkeys(servers, (x, y, z))}

    def _sample(self) -> None:
        now, recorder, node_group = self.simulation.now, self.recorder, self.simulation.node_group
        sampled = list(self._player.positions(now))
        for entity, place in sampled:
            recorder.position(now, entity, *place)
        if node_group is not None:
            views = node_group.known_positions(now, [entity for entity, _ in sampled])
            recorder.view_many(now, views.node, views.other, views.place)
        for entity, _ in sampled if node_group is None else ():
            node = self.simulation.nodes.get(entity)
            for other, (x, y, z) in node.known(now) if node else ():
                recorder.view(now, entity, other, x, y, z)
        self.plan(round(self._parts.sampling.sample_ms * 1000), self._sample)
