"""The paper's round model ([Lehn] V): in each round, each node performs one step in turn.

Nodes have global knowledge, nothing takes time and nothing is lost. `flows` makes the direct
configuration of a subscription graph, and `optimise` plays rounds on it. A Round has what the
figures show: utilisation of every uplink before and after, latency and length of every path.
"""

from collections.abc import Iterator
from random import Random
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast.protocols.relays import kernels
from nearcast.protocols.relays.cost_model import AT_THE_EDGE, Weights
from nearcast.protocols.relays.kernels import Floats, Flows, Indices

STREAM = 512.0  # bytes per second of a source ([Lehn] V), and of headers on a link


class Round(NamedTuple):
    """`latency`, `hops` and `stretch` have a row for each subscription, by source."""

    redirected: int
    shortened: int
    weighed: int  # options
    before: Floats  # utilisation of each node's uplink
    after: Floats
    latency: Floats
    hops: Indices
    stretch: Floats  # latency over that of the direct connection
    cost: float


def flows(
    interest: Floats,
    delay: Floats,
    capacity: Floats,
    *,
    payload: float | Floats = STREAM,
    header: float = STREAM,
    threshold: float = AT_THE_EDGE,
    risk: Floats | None = None,
    remaining: Floats | None = None,
) -> Flows:
    """All flows direct. `interest[v, u]` is that of v in u, `delay[a, b]` is in seconds.

    `remaining[v, u]`: seconds for which v will probably be subscribed to u.
    """
    nodes = len(interest)
    wanted = interest >= threshold  # Definition 2
    np.fill_diagonal(wanted, False)
    groups = [np.concatenate(([s], np.flatnonzero(wanted[:, s]))) for s in range(nodes)]
    size = np.array([len(group) for group in groups], np.int32)
    first = np.concatenate(([0], np.cumsum(size[:-1], dtype=np.int64)))
    squares = size.astype(np.int64) ** 2
    block = np.concatenate(([0], np.cumsum(squares[:-1])))
    member = np.concatenate(groups).astype(np.int32)
    source = np.repeat(np.arange(nodes), size)
    place = np.full((nodes, nodes), -1, np.int32)
    place[member, source] = np.arange(len(member)) - first[source]
    lasting = np.full((nodes, nodes), np.inf) if remaining is None else remaining
    f = Flows(
        size=size,
        first=first,
        block=block,
        member=member,
        interest=interest[member, source].astype(float),
        remaining=lasting[member, source].astype(float),
        direct=delay[source, member].astype(float),
        latency=np.zeros(len(member)),
        hops=np.zeros(len(member), np.int32),
        following=np.full(squares.sum(), -1, np.int32),
        preceding=np.full(squares.sum(), -1, np.int32),
        carried=np.zeros(squares.sum(), np.int32),
        place=place,
        sources=np.zeros((nodes, nodes), np.int32),
        near=wanted | wanted.T,  # N_v ([Lehn] IV, step 0)
        delay=np.ascontiguousarray(delay.T, float),
        load=np.zeros(nodes),
        capacity=np.asarray(capacity, float),
        risk=np.zeros(nodes) if risk is None else risk.astype(float),
        payload=np.broadcast_to(np.asarray(payload, float), (nodes,)).copy(),
        header=float(header),
    )
    kernels.connect_directly(f)
    return f


def utilisation(f: Flows) -> Floats:
    return f.load / f.capacity


def subscriptions(f: Flows) -> NDArray[np.bool_]:
    """Which members are subscribers: all but the first of each group, which is the source."""
    wanted = np.ones(len(f.member), bool)
    wanted[f.first] = False
    return wanted


def path(f: Flows, source: int, subscriber: int) -> list[int]:
    """The nodes from the source to the subscriber; AssertionError if it does not get there."""
    group = f.member[f.first[source] : f.first[source] + f.size[source]]
    d, v, nodes = f.place[subscriber, source], 0, [source]
    while v != d:
        v = f.following[f.block[source] + d * f.size[source] + v]
        assert v >= 0, f"the path from {source} to {subscriber} ends at {nodes[-1]}"
        assert group[v] not in nodes, f"the path from {source} to {subscriber} is a loop"
        nodes.append(int(group[v]))
    return nodes


def optimise(
    f: Flows, weights: Weights, threshold: float, rounds: int, rng: Random
) -> Iterator[Round]:
    """Round by round, in an order drawn anew. `threshold` is the paper's ε."""
    wanted = subscriptions(f)
    order = list(range(len(f.size)))
    for _ in range(rounds):
        before = utilisation(f)
        rng.shuffle(order)
        turns = np.array(order, np.int32)
        redirected, shortened, weighed = kernels.play_round(f, weights, threshold, turns)
        yield Round(
            redirected,
            shortened,
            weighed,
            before,
            utilisation(f),
            f.latency[wanted],
            f.hops[wanted],
            f.latency[wanted] / f.direct[wanted],
            kernels.total_cost(f, weights),
        )


def with_violations(delay: Floats, share: float, most: float, rng: Random) -> Floats:
    """The same network, in which the direct way of some pairs takes up to `most` times as long.

    Such violations of the triangle inequality are common, and a forwarder may then even be the
    faster way (footnote 1).
    """
    slowed = delay.copy()
    for a in range(len(delay)):
        for b in range(a):
            if rng.random() < share:
                slowed[a, b] = slowed[b, a] = delay[a, b] * rng.uniform(1.0, most)
    return slowed
