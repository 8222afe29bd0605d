"""Small examples for [VSO]: one of 25 matchers fails, and sites move by a fraction."""

from collections.abc import Mapping
from math import dist
from random import Random

from msgspec import Struct

from nearcast.model.subscription import NodeId, SubscriptionId
from nearcast.node import Node
from nearcast.protocols.overlay import FIRST_SERVER
from nearcast.protocols.voronoi.balance import towards
from nearcast.protocols.voronoi.site import Site
from nearcast.protocols.voronoi.vso.overlay import VsoNode
from nearcast.sim.world import SimulatedWorld
from nearcast.space import voronoi
from nearcast.space.motion import SECOND
from nearcast.trace.recorder import Recorder
from nearcast.trace.sinks import MemoryTrace
from nearcast_papers.voronoi.scenarios import QUICK, scenario

SITES, CLIENTS = 25, 75
DIES_S, ENDS_S = 5, 25


class MatcherFailure(Struct, frozen=True):
    """Who owned how much of what a dead matcher had, and whose records changed."""

    orphans: int
    adopted: int  # orphans that have one owner in the end
    changed: list[NodeId]  # sites that own something else than before
    enclosing: list[NodeId]


def matcher_failure() -> MatcherFailure:
    """The matcher with most dies. Clients stand still, so nothing else changes owners."""
    chosen = scenario(
        QUICK, CLIENTS, float(ENDS_S), matchers=SITES, partitioning="static", join_rate=0.0,
        speed=0.001, sample_ms=0.0, rate=0.5,
    )  # fmt: skip
    world = SimulatedWorld(chosen, lambda _: Recorder(MemoryTrace(), "none"))
    before: dict[NodeId, list[SubscriptionId]] = {}
    places: dict[NodeId, voronoi.Point] = {}

    victim = FIRST_SERVER

    def inspect_and_crash() -> None:
        nonlocal victim
        before.update(subscriptions_by_owner(world.simulation.nodes))
        victim = max(before, key=lambda site: (site != FIRST_SERVER) * len(before[site]))
        places.update({site.id: site.place for site in find_sites(world.simulation.nodes)})
        world.simulation.crash(victim)

    world.simulation.at(DIES_S * SECOND, inspect_and_crash)
    world.run()
    after = subscriptions_by_owner(world.simulation.nodes)
    owners: dict[SubscriptionId, int] = {}
    for mine in after.values():
        for subscription in mine:
            owners[subscription] = owners.get(subscription, 0) + 1
    return MatcherFailure(
        len(before[victim]),
        sum(owners.get(orphan) == 1 for orphan in before[victim]),
        [site for site, mine in after.items() if mine != before[site]],
        voronoi.enclosing(places, victim),
    )


def find_sites(nodes: Mapping[NodeId, Node]) -> list[Site]:
    return [
        node.matcher.site
        for node in nodes.values()
        if isinstance(node, VsoNode) and node.matcher is not None
    ]


def subscriptions_by_owner(nodes: Mapping[NodeId, Node]) -> dict[NodeId, list[SubscriptionId]]:
    return {
        site.id: sorted(
            record.id
            for record in site.ownership.records.at
            if record is not None and record.owner == site.id
        )
        for site in find_sites(nodes)
    }


def worst_formula_error(tries: int = 1000) -> float:
    """Of random gaps: how much of the part F that should be gone remains, or is gone too much."""
    rng = Random(1)
    worst = 0.0
    for _ in range(tries):
        here, there = ((rng.uniform(0, 768), rng.uniform(0, 768)) for _ in range(2))
        fraction = rng.random()
        moved = towards(here, there, fraction)
        gap = dist(here, there)
        worst = max(worst, abs(dist(here, moved) / gap - fraction))
        worst = max(worst, abs(dist(moved, there) / gap - (1 - fraction)))
    return worst
