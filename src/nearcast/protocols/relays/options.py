"""The options of a peer, from its own knowledge ([Lehn] IV): the columns of one step.

O := { SHORT(s, d) | (s, d) in r_v, v not in {s, d} }
   ∪ { REDIR(s, d, u) | (s, d) in r_v, u in N_v, (u, s) in E }

A peer knows exactly what its own uplink would carry. Of a forwarder it knows the utilisation and
the audience, to which the forwarder sends packets anyway. Where it is wrong, the peer that is asked
rejects the operation.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from nearcast.model.subscription import NodeId
from nearcast.protocols.relays import bloom, kernels
from nearcast.protocols.relays.cost_model import Weights, bandwidth_cost, stream_cost
from nearcast.protocols.relays.flow_table import FlowEntry, FlowTable
from nearcast.protocols.relays.kernels import REDIR, SHORT, StepColumns
from nearcast.protocols.relays.messages import Flow
from nearcast.protocols.relays.neighbours import Neighbours, RelayNeighbour
from nearcast.space.motion import SECOND, Time

NOBODY = RelayNeighbour(0)
HORIZON_S = 60.0  # a peer of this age fails within the horizon with probability 1/2


class Streams(NamedTuple):
    """What flows cost on this peer's links, in bytes per second."""

    rates: Mapping[NodeId, float]  # by source
    header: float
    links: Mapping[NodeId, Mapping[NodeId, int]]  # flows by next hop and source

    def added(self, source: NodeId, to: NodeId) -> float:
        flows = self.links.get(to, {})
        rate = self.rates.get(source, 0.0)
        return stream_cost(rate, self.header, flows.get(source, 0), len(flows))

    def saved(self, source: NodeId, to: NodeId) -> float:
        flows = self.links.get(to, {})
        rate = self.rates.get(source, 0.0)
        return stream_cost(rate, self.header, flows.get(source, 1) - 1, len(flows) - 1)


class Option(NamedTuple):
    """An operation and its gain."""

    kind: int
    flow: Flow
    whom: NodeId  # to ask: the forwarder, or the hop before
    gain: float
    worth: float  # gain, not counting the uplink of the peer that is asked


class StepInput(NamedTuple):
    """All that a decision depends on."""

    me: NodeId
    table: FlowTable
    neighbours: Neighbours
    streams: Streams
    weights: Weights
    load: float  # bytes per second that this peer is to send
    capacity: float
    age_s: float
    ahead: Mapping[NodeId, Time]  # by source: from there to here
    is_audience: Callable[[NodeId], bool]  # of this peer
    refused: Mapping[tuple[Flow, NodeId], object]  # rejected recently: not to be asked again yet


def risk(age_s: float) -> float:
    """Chance to fail within the horizon: the longer somebody has been here, the longer it stays."""
    return HORIZON_S / (HORIZON_S + age_s)


def best(view: StepInput, candidates: Sequence[NodeId], now: Time) -> Option | None:
    """The option with the greatest gain, even if negative; None: there is no option."""
    table = view.table
    flows = [flow for flow in table.entries if table.is_free(flow)]
    if not flows:
        return None
    known = _columns(view, flows, candidates, now)
    kind, row, column, gain = kernels.best_known(
        known, view.weights, view.load, view.capacity, risk(view.age_s)
    )
    if kind == REDIR:
        before = float(known.load[column])
        after = before + float(known.burden[row, column] / known.capacity[column])
        costs = bandwidth_cost(view.weights, 0, after) - bandwidth_cost(view.weights, 0, before)
        return Option(REDIR, flows[row], candidates[column], gain, gain + costs)
    if kind == SHORT:
        lister = table.sole_lister(table.entries[flows[row]])
        assert lister is not None
        before = float(known.sender_load[row])
        after = before + float(known.sender_change[row] / known.sender_capacity[row])
        costs = bandwidth_cost(view.weights, after, 0) - bandwidth_cost(view.weights, before, 0)
        return Option(SHORT, flows[row], lister, gain, gain + costs)
    return None


def _columns(
    view: StepInput, flows: Sequence[Flow], candidates: Sequence[NodeId], now: Time
) -> StepColumns:
    neighbours, streams = view.neighbours, view.streams
    entries = [view.table.entries[flow] for flow in flows]
    around = [neighbours.known[node] for node in candidates]
    away = np.array([neighbours.leg(node) for node in candidates], float) / SECOND
    leg = np.array([neighbours.leg(entry.next) for entry in entries], float) / SECOND
    rest = np.array([entry.rest for entry in entries], float) / SECOND
    before = np.array([view.ahead.get(flow[0], 0) for flow in flows], float) / SECOND
    latency = before + leg + rest
    rates = np.array([streams.rates.get(flow[0], 0.0) for flow in flows])
    may, added = _forwarders(view, flows, entries, candidates)
    senders = [_before(view, flow, entry) for flow, entry in zip(flows, entries, strict=True)]
    return StepColumns(
        saved=np.array([streams.saved(f[0], e.next) for f, e in zip(flows, entries, strict=True)]),
        interest=np.array([entry.interest for entry in entries]),
        latency=latency,
        leg=leg,
        remaining=np.array([max(now - entry.since, 1) for entry in entries], float) / SECOND,
        added=added,
        burden=rates[:, None] + streams.header * ~_linked(neighbours, entries, candidates),
        onward=_onward(neighbours, entries, candidates, leg, away),
        may=may,
        away=away,
        load=np.array([other.load for other in around], float),
        capacity=np.array([max(other.capacity, 1.0) for other in around]),
        risk=np.array([risk(other.age) for other in around], float),
        sender_load=np.array([sender.load for sender, _, _ in senders], float),
        sender_capacity=np.array([sender.capacity for sender, _, _ in senders], float),
        sender_change=np.array([change for _, change, _ in senders], float),
        shorter=latency - leg - np.array([saved for _, _, saved in senders], float),
    )


def _forwarders(
    view: StepInput,
    flows: Sequence[Flow],
    entries: Sequence[FlowEntry],
    candidates: Sequence[NodeId],
) -> tuple[np.ndarray, np.ndarray]:
    """Possible forwarders of each flow, and the bytes that sending to them adds here."""
    place = {node: number for number, node in enumerate(candidates)}
    in_audience: dict[NodeId, np.ndarray] = {}
    costs: dict[NodeId, np.ndarray] = {}
    may = np.zeros((len(flows), len(candidates)), bool)
    added = np.zeros((len(flows), len(candidates)))
    for row, ((source, destination), entry) in enumerate(zip(flows, entries, strict=True)):
        if source not in in_audience:
            if source == view.me:
                in_audience[source] = np.array(
                    [view.is_audience(node) for node in candidates], bool
                )
            else:
                in_audience[source] = view.neighbours.which_in_audience(candidates, source)
            costs[source] = np.array([view.streams.added(source, node) for node in candidates])
        may[row], added[row] = in_audience[source], costs[source]
        for node in (source, destination, entry.next, *entry.listers):  # on the path
            if node in place:
                may[row, place[node]] = False
    rows = {flow: number for number, flow in enumerate(flows)}
    for flow, node in view.refused:
        if flow in rows and node in place:
            may[rows[flow], place[node]] = False
    return may, added


def _linked(
    neighbours: Neighbours, entries: Sequence[FlowEntry], candidates: Sequence[NodeId]
) -> np.ndarray:
    """[flow, u]: is the next hop in u's audience? Then u sends packets there already."""
    hops = [entry.next for entry in entries]
    linked = np.zeros((len(hops), len(candidates)), bool)
    columns: dict[int, list[int]] = {}  # candidates whose filters have so many bits
    for column, node in enumerate(candidates):
        if node in neighbours.audiences:
            columns.setdefault(len(neighbours.audiences[node]), []).append(column)
    for bits, alike in columns.items():
        filters = np.stack([neighbours.audiences[candidates[column]] for column in alike], axis=1)
        # A hop is in a filter if all its marks are.
        first, *others = bloom.positions(hops, bits // 8).T
        held = filters[first]
        for mark in others:
            held &= filters[mark]
        linked[:, alike] = held
    return linked


def _onward(
    neighbours: Neighbours,
    entries: Sequence[FlowEntry],
    candidates: Sequence[NodeId],
    leg: np.ndarray,
    away: np.ndarray,
) -> np.ndarray:
    """[flow, u]: seconds from u to the next hop (`Neighbours.between`, in columns)."""
    seconds: np.ndarray = np.maximum(leg[:, None], away[None, :])
    place = {node: number for number, node in enumerate(candidates)}
    rows: dict[NodeId, list[int]] = {}
    for row, entry in enumerate(entries):
        rows.setdefault(entry.next, []).append(row)
    for (a, b), reported in neighbours.legs.items():
        if a in place and b in rows:
            seconds[rows[b], place[a]] = reported / SECOND
    return seconds


def _before(view: StepInput, flow: Flow, entry: FlowEntry) -> tuple[RelayNeighbour, float, float]:
    """For SHORT: the hop before, the bytes it adds, and the seconds saved besides our own leg."""
    lister = None if flow[0] == view.me else view.table.sole_lister(entry)
    neighbours = view.neighbours
    if lister is None or lister not in neighbours.known or (flow, lister) in view.refused:
        return NOBODY, 0.0, 0.0
    linked = neighbours.is_in_audience(entry.next, lister)
    change = view.streams.rates.get(flow[0], 0.0) + (0.0 if linked else view.streams.header)
    saved = neighbours.leg(lister) - neighbours.between(lister, entry.next)
    return neighbours.known[lister], change, saved / SECOND
