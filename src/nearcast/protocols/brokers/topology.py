"""Who is linked with whom. A network of brokers is a tree: one way between any two."""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

Link: TypeAlias = tuple[int, int]  # two brokers by their numbers, from 0 on
FANOUT = 2  # children of a broker in a tree


def line(brokers: int) -> list[Link]:
    return [(k - 1, k) for k in range(1, brokers)]


def star(brokers: int) -> list[Link]:
    """The first one in the middle."""
    return [(0, k) for k in range(1, brokers)]


def tree(brokers: int) -> list[Link]:
    return [((k - 1) // FANOUT, k) for k in range(1, brokers)]


TOPOLOGIES: dict[str, Callable[[int], list[Link]]] = {"line": line, "star": star, "tree": tree}


def neighbours(brokers: int, links: Iterable[Link]) -> list[list[int]]:
    """Each broker's neighbours. Links that form a ring, or leave somebody out, are refused."""
    beside: list[list[int]] = [[] for _ in range(brokers)]
    group = list(range(brokers))
    for a, b in links:
        if not (0 <= a < brokers and 0 <= b < brokers):
            raise ValueError(f"a link between {a} and {b}: brokers count from 0 to {brokers - 1}")
        if group[a] == group[b]:
            raise ValueError(f"the link between {a} and {b} closes a ring")
        beside[a].append(b)
        beside[b].append(a)
        joined, into = group[b], group[a]
        group = [into if one == joined else one for one in group]
    if any(one != group[0] for one in group):
        raise ValueError("not all brokers are linked with each other")
    return beside


def ancestors(beside: Sequence[Sequence[int]], broker: int) -> list[int]:
    """The way from a broker up to the first one, which is the root; without itself."""
    above: dict[int, int] = {}
    reached = [0]
    for one in reached:
        for other in beside[one]:
            if other != above.get(one):
                above[other] = one
                reached.append(other)
    way = [broker]
    while way[-1] in above:
        way.append(above[way[-1]])
    return way[1:]
