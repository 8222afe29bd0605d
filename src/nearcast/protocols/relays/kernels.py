"""One optimisation step ([Lehn] IV), compiled: the option with the greatest gain is chosen.

`Flows` is a configuration r in columns. All that concerns one source is in a block of its own, as
only its subscribers may forward its flows: the group of a source is itself and they, and a place in
the group takes the part of a node. In a block, row d and column v say where v sends what is for d:
whoever weighs forwarders for a flow reads along a row, here and in the other squares.
"""

from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numba import njit
from numba.extending import register_jitable
from numpy.typing import NDArray

from nearcast.protocols.relays import cost_model
from nearcast.protocols.relays.cost_model import Weights

Floats: TypeAlias = NDArray[np.float64]
Indices: TypeAlias = NDArray[np.int32]

for rule in (
    cost_model.bound_at,
    cost_model.bounds_at,
    cost_model.utilisation_cost,
    cost_model.latency_cost,
    cost_model.waiting,
    cost_model.bandwidth_cost,
    cost_model.effort,
    cost_model.stream_cost,
):
    register_jitable(rule)

bandwidth_cost, latency_cost, effort = (
    cost_model.bandwidth_cost,
    cost_model.latency_cost,
    cost_model.effort,
)
utilisation_cost, bounds_at, stream_cost = (
    cost_model.utilisation_cost,
    cost_model.bounds_at,
    cost_model.stream_cost,
)
NOTHING, REDIR, SHORT = 0, 1, 2


class Flows(NamedTuple):
    """The flows of all sources as columns: who is in each group, and the path to each member."""

    size: Indices  # by source: how many are in its group
    first: NDArray[np.int64]  # by source: where its group begins in the columns of members
    block: NDArray[np.int64]  # by source: where its block begins
    member: Indices  # the groups, one after the other; each begins with its source
    interest: Floats  # by member, as those below: in the source
    remaining: Floats  # seconds for which the subscription will last
    direct: Floats  # latency without forwarders
    latency: Floats  # of the path
    hops: Indices  # of the path
    following: Indices  # blocks [d, v]: the next hop's place, or −1: v is not on the path
    preceding: Indices  # blocks [d, v]: the hop before
    carried: Indices  # blocks [b, a]: flows of this source from a to b
    place: Indices  # [node, source]: its place in the group, or −1
    sources: Indices  # [b, a]: different sources from a to b
    near: NDArray[np.bool_]  # [v, u]: is u in N_v?
    delay: Floats  # [b, a]: seconds from a to b
    load: Floats  # bytes per second that each node sends
    capacity: Floats  # bytes per second that it can
    risk: Floats  # chance that it fails
    payload: Floats  # bytes per second of each source
    header: float  # bytes per second of headers on a link in use


def _added(f: Flows, s: int, a: int, b: int) -> float:
    """What sending the source on to b costs a; places in its group."""
    same = f.carried[f.block[s] + b * f.size[s] + a]
    others = f.sources[f.member[f.first[s] + b], f.member[f.first[s] + a]]
    return stream_cost(f.payload[s], f.header, same, others)


def _saved(f: Flows, s: int, a: int, b: int) -> float:
    """What it saves a to send b one flow of the source less."""
    same = f.carried[f.block[s] + b * f.size[s] + a]
    others = f.sources[f.member[f.first[s] + b], f.member[f.first[s] + a]]
    return stream_cost(f.payload[s], f.header, same - 1, others - 1)


def _weigh_short(f: Flows, w: Weights, s: int, v: int, d: int) -> float:
    base, size, first = f.block[s], f.size[s], f.first[s]
    p, x = f.preceding[base + d * size + v], f.following[base + d * size + v]
    before, here, after = f.member[first + p], f.member[first + v], f.member[first + x]
    sends = f.load[before] - _saved(f, s, p, v) + _added(f, s, p, x)
    forwards = f.load[here] - _saved(f, s, v, x)
    latency, bounds = f.latency[first + d], bounds_at(f.interest[first + d], w)
    shorter = latency - f.delay[here, before] - f.delay[after, here] + f.delay[after, before]
    own, other = f.capacity[here], f.capacity[before]
    return (
        bandwidth_cost(w, f.load[before] / other, f.load[here] / own)
        - bandwidth_cost(w, sends / other, forwards / own)
        + latency_cost(latency, bounds, w)
        - latency_cost(shorter, bounds, w)
        - effort(w, -f.risk[here], f.remaining[first + d])
    )


def _best_redir(
    f: Flows, w: Weights, s: int, v: int, d: int, added: Floats, most: float
) -> tuple[int, float, int]:
    """The forwarder that gains more than `most`, if there is one, for v's flow to d."""
    base, size, first = f.block[s], f.size[s], f.first[s]
    x = f.following[base + d * size + v]
    here, after = f.member[first + v], f.member[first + x]
    load, capacity = f.load[here] - _saved(f, s, v, x), f.capacity[here]
    latency, bounds = f.latency[first + d], bounds_at(f.interest[first + d], w)
    late = latency_cost(latency, bounds, w)
    rest = latency - f.delay[after, here]
    best, weighed = -1, 0
    for u in range(1, size):  # (u, s) is in E: these are the subscribers
        if added[u] < 0.0 or u == d or f.following[base + d * size + u] >= 0:
            continue  # not in N_v, or on the path, where a node twice would be a loop
        weighed += 1
        via = f.member[first + u]
        forwards = f.load[via] + _added(f, s, u, x)
        worth = (
            late
            + bandwidth_cost(w, f.load[here] / capacity, f.load[via] / f.capacity[via])
            - bandwidth_cost(w, (load + added[u]) / capacity, forwards / f.capacity[via])
            - effort(w, f.risk[via], f.remaining[first + d])
        )
        if worth > most:  # else no latency makes it the best
            longer = rest + f.delay[via, here] + f.delay[after, via]
            worth -= latency_cost(longer, bounds, w)
            if worth > most:
                best, most = u, worth
    return best, most, weighed


def best_option(f: Flows, w: Weights, node: int) -> tuple[int, int, int, int, float, int]:
    """The operation, its source, the places of d and u, its gain, and how many were weighed."""
    kind, source, to, via, most, weighed = NOTHING, -1, -1, -1, -np.inf, 0
    for s in range(len(f.size)):
        v = f.place[node, s]
        if v < 0:
            continue
        base, size, first = f.block[s], f.size[s], f.first[s]
        added = np.full(size, -1.0)  # to send the source to u; below 0: not in N_v
        computed = False
        for d in range(1, size):
            if f.following[base + d * size + v] < 0:
                continue
            if v != 0:  # neither origin nor destination, which sends nothing on
                worth = _weigh_short(f, w, s, v, d)
                weighed += 1
                if worth > most:
                    kind, source, to, via, most = SHORT, s, d, -1, worth
            if not computed:
                computed = True
                for u in range(1, size):
                    if f.near[node, f.member[first + u]]:
                        added[u] = _added(f, s, v, u)
            best, most, many = _best_redir(f, w, s, v, d, added, most)
            weighed += many
            if best >= 0:
                kind, source, to, via = REDIR, s, d, best
    return kind, source, to, via, most, weighed


def _link(f: Flows, s: int, d: int, a: int, b: int) -> None:
    base, size = f.block[s], f.size[s]
    here, there = f.member[f.first[s] + a], f.member[f.first[s] + b]
    f.load[here] += _added(f, s, a, b)
    if f.carried[base + b * size + a] == 0:
        f.sources[there, here] += 1
    f.carried[base + b * size + a] += 1
    f.following[base + d * size + a] = b
    f.preceding[base + d * size + b] = a
    f.latency[f.first[s] + d] += f.delay[there, here]
    f.hops[f.first[s] + d] += 1


def _unlink(f: Flows, s: int, d: int, a: int, b: int) -> None:
    base, size = f.block[s], f.size[s]
    here, there = f.member[f.first[s] + a], f.member[f.first[s] + b]
    f.load[here] -= _saved(f, s, a, b)
    f.carried[base + b * size + a] -= 1
    if f.carried[base + b * size + a] == 0:
        f.sources[there, here] -= 1
    f.following[base + d * size + a] = -1
    f.preceding[base + d * size + b] = -1
    f.latency[f.first[s] + d] -= f.delay[there, here]
    f.hops[f.first[s] + d] -= 1


def redirect(f: Flows, s: int, v: int, d: int, u: int) -> None:
    """v ─▶ x becomes v ─▶ u ─▶ x."""
    x = f.following[f.block[s] + d * f.size[s] + v]
    _unlink(f, s, d, v, x)
    _link(f, s, d, v, u)
    _link(f, s, d, u, x)


def shorten(f: Flows, s: int, v: int, d: int) -> None:
    """p ─▶ v ─▶ x becomes p ─▶ x."""
    at = f.block[s] + d * f.size[s] + v
    p, x = f.preceding[at], f.following[at]
    _unlink(f, s, d, p, v)
    _unlink(f, s, d, v, x)
    _link(f, s, d, p, x)


def connect_directly(f: Flows) -> None:
    """For each new subscription, a direct connection ([Lehn] IV)."""
    for s in range(len(f.size)):
        for d in range(1, f.size[s]):
            _link(f, s, d, 0, d)


def play_round(f: Flows, w: Weights, threshold: float, order: Indices) -> tuple[int, int, int]:
    """Each node in turn takes its best option if that gains ε or more ([Lehn] IV, 1 to 3)."""
    redirected, shortened, weighed = 0, 0, 0
    for one in order:
        node = one + 0  # of 64 bits, as of whoever calls from Python: else it is compiled twice
        kind, s, d, u, worth, many = best_option(f, w, node)
        weighed += many
        if kind == NOTHING or not worth >= threshold:
            continue
        if kind == REDIR:
            redirect(f, s, f.place[node, s] + 0, d, u)
            redirected += 1
        else:
            shorten(f, s, f.place[node, s] + 0, d)
            shortened += 1
    return redirected, shortened, weighed


def total_cost(f: Flows, w: Weights) -> float:
    """c(r) over all nodes and subscriptions, for comparing configurations."""
    cost = 0.0
    for node in range(len(f.load)):
        cost += w.sender * utilisation_cost(f.load[node] / f.capacity[node])
    for s in range(len(f.size)):
        for d in range(f.first[s] + 1, f.first[s] + f.size[s]):
            cost += latency_cost(f.latency[d], bounds_at(f.interest[d], w), w)
    return cost


class StepColumns(NamedTuple):
    """What one peer knows when it decides: flows in rows, possible forwarders in columns."""

    saved: Floats  # by flow: bytes per second that it would save this peer
    interest: Floats
    latency: Floats  # of the whole path
    leg: Floats  # seconds to the next hop
    remaining: Floats
    added: Floats  # [flow, u]: bytes per second to send it to u
    burden: Floats  # [flow, u]: bytes per second for u to send it on
    onward: Floats  # [flow, u]: seconds from u to the next hop
    may: NDArray[np.bool_]  # [flow, u]: is u a subscriber of the source, and not on the path?
    away: Floats  # by u: seconds to it
    load: Floats  # by u: utilisation
    capacity: Floats  # by u: bytes per second
    risk: Floats  # by u
    # For SHORT, by flow. Not a forwarder: the sender's capacity is 0.
    sender_load: Floats
    sender_capacity: Floats
    sender_change: Floats  # bytes per second
    shorter: Floats  # latency of the whole path then


def best_known(
    k: StepColumns, w: Weights, load: float, capacity: float, risk: float
) -> tuple[int, int, int, float]:
    """The operation, its row and its column, and its gain, as far as is known here."""
    kind, row, column, most = NOTHING, -1, -1, -np.inf
    here = load / capacity
    for f in range(len(k.saved)):
        bounds, less = bounds_at(k.interest[f], w), load - k.saved[f]
        late = latency_cost(k.latency[f], bounds, w)
        if k.sender_capacity[f] > 0.0:
            sends = k.sender_load[f] + k.sender_change[f] / k.sender_capacity[f]
            worth = (
                bandwidth_cost(w, k.sender_load[f], here)
                - bandwidth_cost(w, sends, less / capacity)
                + late
                - latency_cost(k.shorter[f], bounds, w)
                - effort(w, -risk, k.remaining[f])
            )
            if worth > most:
                kind, row, column, most = SHORT, f, -1, worth
        for u in range(len(k.away)):
            if not k.may[f, u]:
                continue
            forwards = k.load[u] + k.burden[f, u] / k.capacity[u]
            worth = (
                late
                + bandwidth_cost(w, here, k.load[u])
                - bandwidth_cost(w, (less + k.added[f, u]) / capacity, forwards)
                - effort(w, k.risk[u], k.remaining[f])
            )
            if worth > most:  # else no latency makes it the best
                longer = k.latency[f] - k.leg[f] + k.away[u] + k.onward[f, u]
                worth -= latency_cost(longer, bounds, w)
                if worth > most:
                    kind, row, column, most = REDIR, f, u, worth
    return kind, row, column, most


for part in (_added, _saved, _weigh_short, _best_redir, _link, _unlink):
    register_jitable(part)

_compiled: Any = njit(cache=True)
best_option = _compiled(best_option)
best_known = _compiled(best_known)
redirect = _compiled(redirect)
shorten = _compiled(shorten)
connect_directly = _compiled(connect_directly)
play_round = _compiled(play_round)
total_cost = _compiled(total_cost)
