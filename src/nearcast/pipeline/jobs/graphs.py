"""Measures of a graph: degrees, triangles, components.

Spark groups the links of one graph: the overlay of a second, or who received from whom in a run.
Such a graph is two columns of numbers and fits into one worker. Compiled loops over it are exact,
and faster than any chain of joins.
"""

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numba import njit
from numpy.typing import NDArray

Whole: TypeAlias = NDArray[np.int64]

MEASURES = ("links", "nodes", "degree_max", "triangles", "triples", "components")


def measure(low: Whole, high: Whole) -> dict[str, int]:
    """The measures of undirected links, each given once. Nodes without links do not count."""
    names, places = np.unique(np.concatenate((low, high)), return_inverse=True)
    ends = places.astype(np.int64).reshape(2, -1)
    degree = np.bincount(places, minlength=len(names))
    # Links point from the node with fewer to the one with more: then none has many going out, and
    # looking at all pairs of outgoing links costs at most links ** 1.5, hubs or not.
    rank = np.empty(len(names), np.int64)
    rank[np.argsort(degree, kind="stable")] = np.arange(len(names))
    source, target = np.sort(rank[ends], axis=0)
    order = np.argsort(source, kind="stable")
    starts = np.searchsorted(source[order], np.arange(len(names) + 1))
    values = (
        len(low),
        len(names),
        degree.max(initial=0),
        count_triangles(starts, target[order]),
        (degree * (degree - 1) // 2).sum(),
        count_components(ends[0], ends[1], len(names)),
    )
    return dict(zip(MEASURES, map(int, values), strict=True))


def _count_triangles(starts: Whole, targets: Whole) -> int:
    """Node u links to targets[starts[u] : starts[u + 1]]; every triangle is seen from its least."""
    seen_from = np.full(len(starts) - 1, -1)
    found = 0
    for u in range(len(starts) - 1):
        mine = targets[starts[u] : starts[u + 1]]
        for v in mine:
            seen_from[v] = u
        for v in mine:
            for w in targets[starts[v] : starts[v + 1]]:
                if seen_from[w] == u:
                    found += 1
    return found


def _count_components(a: Whole, b: Whole, nodes: int) -> int:
    """Union-find: each link that joins two trees leaves one component fewer."""
    parent = np.arange(nodes)
    left = nodes
    for k in range(len(a)):
        u, v = a[k], b[k]
        while parent[u] != u:
            parent[u] = parent[parent[u]]
            u = parent[u]
        while parent[v] != v:
            parent[v] = parent[parent[v]]
            v = parent[v]
        if u != v:
            parent[max(u, v)] = min(u, v)
            left -= 1
    return left


count_triangles: Callable[[Whole, Whole], int] = njit(cache=True)(_count_triangles)
count_components: Callable[[Whole, Whole, int], int] = njit(cache=True)(_count_components)
