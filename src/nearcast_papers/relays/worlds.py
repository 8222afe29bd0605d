"""The worlds of the round model of [Lehn]: interests, delays and uplinks.

They are the worlds in which the message protocol runs: positions and graphs come from the
workloads, delays from the simulated network, and uplinks are those that peers of the same seed
draw. So both can be compared peer by peer.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast.protocols.relays.cost_model import AT_THE_EDGE, interest_at
from nearcast.protocols.relays.layer import capacity_of
from nearcast.protocols.relays.peer import Parameters
from nearcast.protocols.relays.rounds import STREAM
from nearcast.scenario import stream
from nearcast.sim.network import MILLISECOND, Embedding
from nearcast.space.motion import SECOND
from nearcast.space.shapes import Vector
from nearcast.workloads import interest_graph, virtual_reality
from nearcast.workloads.interest_graph import Graph, InterestGraph

Numbers = NDArray[np.float64]
RADIUS = virtual_reality.Parameters().radius
SIDE = virtual_reality.Parameters().size
DEGREE = interest_graph.Parameters().degree


class RoundWorld(NamedTuple):
    """Interests, delays, uplinks and sources of all nodes."""

    interest: Numbers  # [v, u]: of v in u
    delay: Numbers  # [a, b]: seconds
    capacity: Numbers  # bytes per second
    payload: Numbers  # bytes per second of each source


def delay_matrix(nodes: Sequence[int], seed: int) -> Numbers:
    network = Embedding(seed)
    one_way = [[network.route(0, a, b, 0)[0] for b in nodes] for a in nodes]
    found = np.array(one_way, float) / SECOND
    np.fill_diagonal(found, MILLISECOND / SECOND)
    return found


def uplink_capacities(nodes: Sequence[int], seed: int, lesser: float = 1.0) -> Numbers:
    """What a peer draws before anything else (`peer.Peer`), and so many times less."""
    low, high = Parameters().uplink_min, Parameters().uplink_max
    drawn = [capacity_of(low, high, stream(seed, "node", node, 0)) for node in nodes]
    return np.array(drawn) / lesser


def initial_positions(nodes: int, seed: int) -> list[Vector]:
    workload = virtual_reality.make(virtual_reality.Parameters(), nodes, 1.0, seed)
    return [workload.life(node, 0, 0).position(0) for node in range(nodes)]


def interest_matrix(where: Sequence[Vector]) -> Numbers:
    """A Gaussian of the distance (V-A); 0 beyond vision, where nobody is subscribed anyway."""
    spots = np.array(where)[:, :2]
    away = np.sqrt(((spots[:, None] - spots[None]) ** 2).sum(axis=2))
    found = np.zeros(away.shape)
    for v, u in np.argwhere(away <= RADIUS):
        found[v, u] = interest_at(away[v, u], RADIUS)
    return found


def subscription_matrix(world: RoundWorld) -> NDArray[np.bool_]:
    """[u, v]: does v hear u? (Definition 2)"""
    wanted = world.interest.T >= AT_THE_EDGE
    np.fill_diagonal(wanted, False)
    return wanted


def virtual_reality_world(nodes: int, seed: int) -> RoundWorld:
    everybody = range(nodes)
    return RoundWorld(
        interest_matrix(initial_positions(nodes, seed)), delay_matrix(everybody, seed),
        uplink_capacities(everybody, seed),
        np.full(nodes, STREAM),
    )  # fmt: skip


def interest_graph_of(nodes: int, clustering: float, seed: int, degree: float = DEGREE) -> Graph:
    parameters = interest_graph.Parameters(clustering=clustering, degree=degree)
    workload = interest_graph.make(parameters, nodes, 1.0, seed)
    assert isinstance(workload, InterestGraph)
    return workload.graph


def clustered_world(graph: Graph, interest: float, lesser: float, seed: int) -> RoundWorld:
    """A world in which neighbours of the graph are interested in each other."""
    nodes = len(graph)
    wanted = np.zeros((nodes, nodes))
    for node, near in enumerate(graph):
        wanted[node, near] = interest
    everybody = range(nodes)
    return RoundWorld(
        wanted,
        delay_matrix(everybody, seed),
        uplink_capacities(everybody, seed, lesser),
        np.full(nodes, STREAM),
    )


def with_uneven_rates(world: RoundWorld, factor: float, seed: int) -> RoundWorld:
    """Some say up to `factor` times as much as others; the logarithm is uniform, the mean is kept.

    A source that says more also sends more packets, but on a link they travel together with
    those of others: headers stay what they are.
    """
    rng = stream(seed, "rates", factor)
    drawn = np.array([factor ** rng.random() for _ in world.payload])
    return world._replace(payload=world.payload * drawn / drawn.mean())
