"""Worlds of VSO for tests: nodes on a network of one's choice, checked at every step."""

from random import Random
from typing import Any

import numpy as np
from hypothesis import strategies as st

from nearcast.model.commands import Command, Subscribe
from nearcast.model.subscription import Region
from nearcast.protocols.voronoi.invariants import SingleOwners, find_violations, sites_of
from nearcast.protocols.voronoi.site import Site
from nearcast.protocols.voronoi.vso.overlay import CODEC, VsoDeployment, VsoNode
from nearcast.protocols.voronoi.vso.parameters import Parameters
from nearcast.scenario import Scenario, stream
from nearcast.sim.checkers import DeliveredOnce, InvariantChecker, NotBeforePublished
from nearcast.sim.network import ConstantDelay, Network
from nearcast.sim.simulation import Simulation
from nearcast.sim.world import SimulatedWorld
from nearcast.space.motion import SECOND, Moving
from nearcast.space.shapes import disc
from nearcast.trace.recorder import Recorder
from nearcast.trace.sinks import MemoryTrace
from support.brute_force import delivered, expected
from support.message_strategies import messages

LATENCY = 100_000
SIDE = 768.0  # of the world
BAD = {"crash": 0.02, "restart_s": 5.0, "loss": 0.05, "partition": 0.05, "partition_s": 4.0}
# Matchers are called in soon, for worlds that do not last long.
EAGER = {"limit": 4.0, "overload_ms": 500.0, "adjust_ms": 500.0}


class VsoWorld:
    """VSO nodes on a simulated network. `fault_free`: a subscription never has two owners."""

    def __init__(
        self,
        network: Network | None = None,
        *,
        fault_free: bool = True,
        seed: int = 1,
        **settings: object,
    ) -> None:
        self.memory = MemoryTrace()
        self.rng = Random(seed)
        self.simulation = Simulation(
            network or ConstantDelay(LATENCY),
            CODEC,
            Recorder(self.memory),
            (DeliveredOnce(), NotBeforePublished()),
        )
        watch_owners(self.simulation, fault_free=fault_free)
        self.overlay = VsoDeployment(
            Parameters(**settings), lambda node: stream(seed, "node", node)
        )
        for server in self.overlay.servers():
            self.simulation.start(server)
        self.pass_seconds(2)

    @property
    def members(self) -> dict[int, VsoNode]:
        return {n: node for n, node in self.simulation.nodes.items() if isinstance(node, VsoNode)}

    @property
    def sites(self) -> dict[int, Site]:
        return {site.id: site for site in sites_of(self.simulation.nodes)}

    def join(self, node: int, *regions: Region, echo: bool = False) -> VsoNode:
        member = self.overlay.entity(node, Random(node))
        self.simulation.start(member)
        for number, region in enumerate(regions):
            self.obey(node, Subscribe(node * 1000 + number, region, echo=echo))
        return member

    def obey(self, node: int, command: Command) -> None:
        self.simulation.obey(node, command)

    def pass_seconds(self, seconds: float) -> None:
        self.simulation.run(self.simulation.now + round(seconds * SECOND))

    def assert_settles(self, within: float = 40.0) -> None:
        """Assert that no violation lasts longer than three checks in a row."""
        assert lasting_violations(self.simulation, round(within)) == []

    def owned(self) -> dict[int, int]:
        """How many subscriptions each site owns."""
        return {
            number: len(site.ownership.records.owned_by(number))
            for number, site in self.sites.items()
        }

    def delivered_and_expected(self) -> tuple[list[tuple[int, int]], set[tuple[int, int]]]:
        self.simulation.recorder.flush()
        deliveries = delivered(self.memory.table("deliveries"))
        return deliveries, expected(
            self.memory.table("interests"), self.memory.table("publications")
        )

    def assert_delivered_exactly(self, at_least: int = 20) -> None:
        deliveries, wanted = self.delivered_and_expected()
        assert len(wanted) > at_least, "a world without deliveries proves nothing"
        assert sorted(deliveries) == sorted(wanted)


def join_many(world: VsoWorld, count: int) -> None:
    for node in range(count):
        x, y = world.rng.uniform(0, SIDE), world.rng.uniform(0, SIDE)
        world.join(node, Moving(disc(x, y, 100.0)))


def lasting_violations(simulation: Simulation, checks: int) -> list[str]:
    """Violations that last longer than three checks in a row, one each second."""
    found: dict[str, int] = {}
    for _ in range(checks):
        simulation.run(simulation.now + SECOND)
        found = {
            one: found.get(one, 0) + 1 for one in find_violations(simulation.nodes, simulation.now)
        }
    return [one for one, times in found.items() if times > 3]


def watch_owners(simulation: Simulation, *, fault_free: bool) -> None:
    """Check at every moment that subscriptions have single owners."""
    simulation.checkers.append(InvariantChecker(simulation.nodes, [SingleOwners(calm=fault_free)]))


def run(
    workload: str = "clustering",
    nodes: int = 40,
    seconds: float = 10.0,
    seed: int = 1,
    *,
    fault_free: bool = False,
    **settings: object,
) -> tuple[SimulatedWorld, MemoryTrace]:
    memory = MemoryTrace()
    scenario = Scenario(
        protocol="vso", workload=workload, nodes=nodes, seconds=seconds, seed=seed,
        settings={"latency_ms": 100.0, **settings},
    )  # fmt: skip
    world = SimulatedWorld(
        scenario, lambda _: Recorder(memory), (DeliveredOnce(), NotBeforePublished())
    )
    watch_owners(world.simulation, fault_free=fault_free)
    world.run()
    return world, memory


def consistency(memory: MemoryTrace, radius: float, after: int) -> float:
    """The share of those within the radius whom nodes know, over all samples from then on."""
    places: dict[int, dict[int, tuple[float, float]]] = {}
    for row in memory.table("positions").to_pylist():
        places.setdefault(row["t"], {})[row["node"]] = row["x"], row["y"]
    known = {(r["t"], r["node"], r["other"]) for r in memory.table("views").to_pylist()}
    seen = should = 0
    for t, at in places.items():
        if t < after:
            continue
        nodes, spots = list(at), np.array(list(at.values()))
        gaps = np.hypot(*(spots[:, None] - spots[None, :]).transpose(2, 0, 1))
        for a, b in zip(*np.nonzero(gaps <= radius), strict=True):
            if a != b:
                should += 1
                seen += (t, nodes[a], nodes[b]) in known
    assert should
    return seen / should


def plausible_messages(world: VsoWorld) -> st.SearchStrategy[tuple[int, int, Any]]:
    """Any message of the protocol, often about somebody and something that is there."""
    somebody = st.sampled_from(list(world.simulation.nodes))
    something = st.sampled_from([s for m in world.members.values() for s in m.client.subscriptions])
    message = st.one_of(*[messages(kind) for kind in CODEC.messages])

    def likely(drawn: tuple[Any, int, int]) -> Any:
        drawn_message, node, subscription = drawn
        fields = {name: getattr(drawn_message, name) for name in drawn_message.__struct_fields__}
        chosen = {"subscription": subscription, "owner": node, "client": node, "contact": node}
        chosen |= {"node": node, "gateway": node}
        fields |= {n: v for n, v in chosen.items() if n in fields and isinstance(fields[n], int)}
        return type(drawn_message)(**fields)

    aimed = st.tuples(message, somebody, something).map(likely)
    return st.tuples(somebody, somebody, aimed | message)
