"""Interest as a graph with given degrees and clustering ([Lehn] V-B).

Random intersection graphs after Deijfen and Kets: vertices join groups, and all in a group know
each other. Joined by chance, many vertices have no neighbour at high clustering, so memberships
are fixed here: a vertex joins k groups, where E[1/k] makes the clustering, and
wants groups of degree / k + 1. Whoever wants groups of about the same size is
put together. What is not connected then gets a membership more.

Each entity stands at a place of its own and listens to the places of its neighbours, so that the
graph is made of areas and any overlay can run it.
"""

from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from itertools import pairwise
from math import ceil, floor, sqrt
from random import Random
from typing import TypeAlias

from msgspec import Struct

from nearcast.field_checks import between
from nearcast.model.subscription import NodeId
from nearcast.scenario import stream
from nearcast.space.motion import Time
from nearcast.space.shapes import Vector, disc, point
from nearcast.workloads.stationary import StationaryEntity
from nearcast.workloads.workload import Workload, first_id, fits_identifiers

Graph: TypeAlias = list[list[int]]  # of each vertex its neighbours, in order
CLOSE = 0.005  # to the wanted transitivity: then a graph is good enough
MOST_TRIALS = 10
MOST_BUCKETS = 6  # of memberships that want groups of about the same size
INTEREST_RADIUS = 0.25  # around each neighbour's place; places are 1 apart


class Parameters(Struct, frozen=True, kw_only=True):
    """What can be set for the workload interest-graph."""

    # Neighbours of an entity on average, 2 to 1,000 (and at most half of all); traffic grows.
    degree: float = 25.0
    # Their standard deviation, 0 to a third of `degree`.
    spread: float = 4.0
    # Transitivity, 0.05 to 0.95: closed triples among all; by chance alone it is degree / entities.
    clustering: float = 0.5
    # Publications per second and entity, above 0 to 1,000; all traffic grows with it.
    rate: float = 8.0
    # Bytes that a publication carries, 0 to 1,000,000.
    payload: int = 64

    def __post_init__(self) -> None:
        between("degree", self.degree, 2, 1000)
        between("spread", self.spread, 0, self.degree / 3)
        between("clustering", self.clustering, 0.05, 0.95)
        between("rate", self.rate, 1e-6, 1000)
        between("payload", self.payload, 0, 1_000_000)


def memberships(share: float, rng: Random) -> int:
    """k or k + 1, such that 1/k is `share` on average."""
    fewer = floor(1 / min(share, 1.0))
    more_often = (1 / fewer - share) / (1 / fewer - 1 / (fewer + 1))
    return fewer + (rng.random() < more_often)


def groups_of(
    vertices: int, degree: float, spread: float, clustering: float, rng: Random
) -> list[list[int]]:
    """Who is together with whom.

    Two neighbours of a vertex know each other if they come from the same of its groups: of d
    neighbours in k groups, a share c' = (d/k − 1) / (d − 1) does. Others do by chance, as they
    have b = degree / bucket of those who want groups of the same size for neighbours, except from
    that group: c = c' + (1 − c')² b, which is solved for c'.
    """
    buckets = min(max(1, floor(clustering * vertices / (4 * degree))), MOST_BUCKETS)
    chance = min(degree * buckets / vertices, clustering / 2)
    wanted = 1 - (1 - sqrt(1 - 4 * chance * (1 - clustering))) / (2 * chance)
    requests: list[tuple[float, int]] = []  # a group's size, and who wants to join one
    for vertex in range(vertices):
        near = max(rng.gauss(degree, spread), 2.0)
        many = memberships((wanted * (near - 1) + 1) / near, rng)
        requests += [(near / many + 1, vertex)] * many
    requests.sort()
    ends = [len(requests) * n // buckets for n in range(buckets + 1)]
    parts = [requests[begin:end] for begin, end in pairwise(ends) if begin < end]
    return [group for part in parts for group in _fill_groups(part, rng)]


def _fill_groups(bucket: list[tuple[float, int]], rng: Random) -> list[list[int]]:
    """Groups of the size that is wanted on average, nobody twice in one."""
    mean = sum(size for size, _ in bucket) / len(bucket)
    groups: list[list[int]] = [[] for _ in range(max(1, round(len(bucket) / mean)))]
    rng.shuffle(bucket)
    emptiest = [(0, number) for number in range(len(groups))]  # a heap
    for _, vertex in bucket:
        tried = []
        while emptiest and vertex in groups[emptiest[0][1]]:
            tried.append(heappop(emptiest))
        if emptiest:
            size, number = heappop(emptiest)
            groups[number].append(vertex)
            tried.append((size + 1, number))
        for group in tried:
            heappush(emptiest, group)
    return [group for group in groups if group]


def components(graph: Graph) -> list[list[int]]:
    """The largest first."""
    seen = [False] * len(graph)
    found = []
    for begin in range(len(graph)):
        if seen[begin]:
            continue
        seen[begin], part = True, [begin]
        for vertex in part:  # it grows meanwhile
            for other in graph[vertex]:
                if not seen[other]:
                    seen[other] = True
                    part.append(other)
        found.append(part)
    return sorted(found, key=len, reverse=True)


def _graph(vertices: int, groups: Iterable[Sequence[int]]) -> Graph:
    neighbours: list[dict[int, None]] = [{} for _ in range(vertices)]
    for group in groups:
        for vertex in group:
            neighbours[vertex].update(dict.fromkeys(group))
    return [sorted(other for other in near if other != v) for v, near in enumerate(neighbours)]


def connected_graph(
    vertices: int, degree: float, spread: float, clustering: float, rng: Random
) -> Graph:
    """Everybody reaches everybody: one of each lesser component shares a group with one of the
    largest, a group of these two."""
    groups = groups_of(vertices, degree, spread, clustering, rng)
    largest, *others = components(_graph(vertices, groups))
    return _graph(vertices, groups + [[rng.choice(largest), rng.choice(part)] for part in others])


def tuned_graph(
    vertices: int, degree: float, spread: float, clustering: float, rng: Random
) -> Graph:
    """A connected graph of this transitivity, or as near to it as few trials come.

    What chance adds is known only roughly, so the wanted clustering is found by bisection: "the
    algorithm's parameters are tuned" ([Lehn] V-B). All trials draw the same numbers.
    """
    drawn = rng.getstate()

    def trial(wanted: float) -> tuple[float, Graph]:
        rng.setstate(drawn)
        graph = connected_graph(vertices, degree, spread, wanted, rng)
        return transitivity(graph) - clustering, graph

    low, high, wanted = 0.01, 0.99, clustering
    off, best = trial(wanted)
    nearest = abs(off)
    for _ in range(MOST_TRIALS - 1):
        if nearest <= CLOSE:
            break
        low, high = (low, wanted) if off > 0 else (wanted, high)
        wanted = (low + high) / 2
        off, graph = trial(wanted)
        if abs(off) < nearest:
            nearest, best = abs(off), graph
    return best


def transitivity(graph: Graph) -> float:
    """Three times the triangles over the connected triples."""
    sets = [set(near) for near in graph]
    closed = sum(len(sets[v] & sets[u]) for v, near in enumerate(graph) for u in near)
    triples = sum(len(near) * (len(near) - 1) for near in graph)
    return closed / triples if triples else 0.0


class InterestGraph(Struct, frozen=True):
    """Stationary entities that subscribe to the places of their neighbours in a graph."""

    entities: int
    seed: int
    parameters: Parameters
    graph: Graph
    payload: bytes

    @property
    def side(self) -> int:
        return ceil(sqrt(len(self.graph)))

    @property
    def world(self) -> tuple[Vector, Vector]:
        return (0.0, 0.0, 0.0), (float(self.side), float(self.side), 0.0)

    def place(self, vertex: int) -> Vector:
        return vertex % self.side + 0.5, vertex // self.side + 0.5, 0.0

    def life(self, entity: NodeId, stay: int, begins: Time) -> StationaryEntity:
        """A newcomer takes the place and the interests of an entity that was there before."""
        vertex = entity % len(self.graph)
        place = self.place(vertex)
        # Its own place first, from which nobody else publishes: that is where an overlay puts it.
        others = [disc(*self.place(other)[:2], INTEREST_RADIUS) for other in self.graph[vertex]]
        rng = stream(self.seed, "interest-graph", "phase", entity, stay)
        chosen = self.parameters
        return StationaryEntity(
            first_id(entity, stay), begins, place, (point(*place), *others), chosen.rate,
            1 - rng.random(), self.payload,
        )  # fmt: skip


def make(parameters: Parameters, entities: int, seconds: float, seed: int) -> Workload:
    chosen = parameters
    fits_identifiers(chosen.rate * seconds + entities)
    rng = stream(seed, "interest-graph", "graph")
    degree = min(chosen.degree, max(2.0, entities / 2))
    spread = min(chosen.spread, degree / 3)
    graph = tuned_graph(entities, degree, spread, chosen.clustering, rng)
    return InterestGraph(entities, seed, chosen, graph, bytes(chosen.payload))
