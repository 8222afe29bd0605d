"""The probability that two bubbles meet, measured on random graphs ([Lucas2011] 3.3.1)."""

from functools import cache
from itertools import combinations
from random import Random

from nearcast.protocols.bubblestorm.bubblecast import spread
from nearcast.protocols.bubblestorm.parameters import LEAST_DEGREE
from nearcast.protocols.bubblestorm.sizes import bubble_size, regular
from nearcast.scenario import stream

PEERS = 1000
CASTS = 240  # bubbles of one graph, all compared with each other
GRAPHS = 3
SPLIT = 2
SIZES = tuple(2**power for power in range(6, 13))


class Graph:
    """A random multigraph: one closed walk that comes to every peer eight times."""

    def __init__(self, peers: int, rng: Random) -> None:
        self.walk = [peer for peer in range(peers) for _ in range(LEAST_DEGREE // 2)]
        rng.shuffle(self.walk)
        self.visits: list[list[int]] = [[] for _ in range(peers)]
        for place, peer in enumerate(self.walk):
            self.visits[peer].append(place)

    def cast(self, origin: int, weight: int, rng: Random) -> list[int]:
        """Who processes a bubblecast, one entry for each time."""
        processed, under_way = [], [(origin, -1, weight)]
        while under_way:
            peer, came, left = under_way.pop()
            processed.append(peer)
            ways = [(place, step) for place in self.visits[peer] if place != came
                    for step in (1, -1)]  # fmt: skip
            for (place, step), part in spread(left, SPLIT, ways, rng):
                there = (place + step) % len(self.walk)
                under_way.append((self.walk[there], there, part))
        return processed


def bubbles(graph: Graph, weight: int, many: int, rng: Random) -> list[frozenset[int]]:
    return [
        frozenset(graph.cast(rng.randrange(len(graph.visits)), weight, rng)) for _ in range(many)
    ]


@cache
def met(certainty: float) -> float:
    """How often two bubbles of the computed size meet."""
    rng = stream(1, "chances", certainty)
    size = bubble_size(certainty, regular(PEERS, LEAST_DEGREE))
    pairs = [
        not one.isdisjoint(other)
        for _ in range(GRAPHS)
        for one, other in combinations(bubbles(Graph(PEERS, rng), size, CASTS, rng), 2)
    ]
    return sum(pairs) / len(pairs)


@cache
def met_unlike(times: int) -> float:
    """The same at λ = 1, if one is so many times larger and the other so many times smaller."""
    rng = stream(1, "chances", "unlike", times)
    size = bubble_size(1, regular(PEERS, LEAST_DEGREE))
    few = round(size / times)
    many = round(size * size / few)  # of the same product
    pairs = []
    for _ in range(GRAPHS):
        graph = Graph(PEERS, rng)
        large = bubbles(graph, many, CASTS // 2, rng)
        small = bubbles(graph, few, CASTS // 2, rng)
        pairs += [not one.isdisjoint(other) for one in large for other in small]
    return sum(pairs) / len(pairs)


@cache
def missed_twice(certainty: float) -> float:
    """How often two peers do not meet in two rounds."""
    rng = stream(1, "chances", "twice", certainty)
    graph = Graph(PEERS, rng)
    size = bubble_size(certainty, regular(PEERS, LEAST_DEGREE))
    origins = [rng.randrange(PEERS) for _ in range(CASTS)]
    rounds = [[frozenset(graph.cast(one, size, rng)) for one in origins] for _ in range(2)]
    pairs = list(combinations(range(CASTS), 2))
    missed = sum(all(held[a].isdisjoint(held[b]) for held in rounds) for a, b in pairs)
    return missed / len(pairs)


@cache
def processings(weight: int) -> tuple[int, ...]:
    """Of a hundred casts of this weight: how many each had, from the fewest to the most."""
    rng = stream(1, "chances", "processings")
    graph = Graph(PEERS, rng)
    return tuple(sorted(len(graph.cast(rng.randrange(PEERS), weight, rng)) for _ in range(100)))


def size_of(peers: int, certainty: float) -> int:
    return bubble_size(certainty, regular(peers, LEAST_DEGREE))
