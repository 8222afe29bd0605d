"""Dissemination with the help of neighbours ([Lehn] IV): a part of a node, for any overlay.

The overlay finds out which peers want a publication (its audience); Relays brings it to them. The
part shares the node's outbox and clock. The overlay

* adds `messages.MESSAGES` to its codec, and hands every message to `on` and every timer to `wake`.
  Both return whether it was for the relays. Then `drain` returns the publications that have
  arrived, with their hops, for the overlay to deliver;
* calls `disseminate(publication, audience)` instead of sending to each peer of the audience. The
  audience has an interest of 0 to 1 for each peer;
* says which peers are acquainted: sources and subscribers of this peer, N_v. Messages of others
  are refused, except from a forwarder that is in the audience filter of an acquainted source;
* calls `leave` when the node goes.

There is a flow for each peer of the audience. It begins as a direct connection ([Lehn] IV). Once in
an interval the peer performs one step, or up to `steps` while its uplink is overloaded: of all
options that it knows of (`options`) it chooses the best, if that gains at least ε, and asks the
peer concerned. `flow_table` keeps flows whole meanwhile. A forwarder that dies is silent for
`misses` intervals; then its flows go directly. All are restored within misses + 1 intervals. What
the uplink cannot carry is withheld, with a note in the trace (`uplink`).
"""

from collections.abc import Callable, Mapping
from math import ceil
from random import Random

from msgspec.structs import replace

from nearcast.model.publication import Publication
from nearcast.model.subscription import NodeId
from nearcast.node import Message, Outbox, Timer
from nearcast.protocols.dedup import PUBLICATION_IDS, DeliveredPublications, is_outside_window
from nearcast.protocols.relays import bloom, options
from nearcast.protocols.relays.compression import CompressedUpdate, expand
from nearcast.protocols.relays.cost_model import bandwidth_cost
from nearcast.protocols.relays.flow_table import FlowTable
from nearcast.protocols.relays.kernels import REDIR, SHORT
from nearcast.protocols.relays.messages import (
    MOST_HOPS,
    TICK,
    Accept,
    Flow,
    FlowList,
    PeerStatus,
    Redirect,
    Reject,
    RelayedPublication,
    RemainingLatency,
    Shorten,
    Status,
    StopForwarding,
    Update,
)
from nearcast.protocols.relays.neighbours import Neighbours, ticks_of
from nearcast.protocols.relays.options import Option, StepInput, Streams
from nearcast.protocols.relays.parameters import Parameters
from nearcast.protocols.relays.uplink import HEADERS, MOST_TICKS, Uplink, size_of_piece
from nearcast.space.motion import SECOND, Time

REPEAT = 4  # intervals after which the filter of the audience is sent again
RARELY = 8  # intervals between statuses to neighbours with whom no flow is shared
MOST_STATUSES = 0.02  # share of an uplink for these, unless neighbours would be forgotten
STATUS_BYTES = 64  # with headers, about
LINGER = 4  # intervals after the last publication for which a flow stays open
REPORT_AGAIN = 16  # intervals after which all latencies are reported again
SMOOTH = 0.5  # weight of the latest interval in the smoothed load


class SendPackets(Timer, frozen=True):
    """Send the packets that are due."""


class OptimiseFlows(Timer, frozen=True):
    """End an interval: measure, repair, perform an optimisation step, tell neighbours."""


class Relays:
    """The relaying part of one peer: its flows, its neighbours, its uplink."""

    def __init__(
        self,
        node_id: NodeId,
        out: Outbox,
        rng: Random,
        clock: Callable[[], Time],
        parameters: Parameters,
        capacity: float,
        is_acquainted: Callable[[NodeId], bool],
        *,
        optimises: bool = True,
        for_others: bool = False,
    ) -> None:
        """`capacity`: bytes per second of the uplink. `optimises`: else all goes directly.

        `for_others`: a source may send what somebody else has published.
        """
        self.id, self.parameters, self.optimises = node_id, parameters, optimises
        self._out, self._rng, self._clock = out, rng, clock
        self._is_acquainted = is_acquainted
        self._for_others = for_others
        self._interval: Time = round(parameters.interval_ms * 1000)
        self._hold: Time = round(parameters.hold_ms * 1000)
        self._weights = parameters.weights
        self.table = FlowTable(node_id, self._interval, parameters.misses)
        self.neighbours = Neighbours()
        self.uplink = Uplink(capacity, compresses=parameters.compress == "on")
        self.load = 0.0  # bytes per second
        self._header = float(HEADERS)  # bytes per second of headers on a link
        self._rates: dict[NodeId, float] = {}  # by source: bytes per second
        self._received_bytes: dict[NodeId, int] = {}  # by source: bytes in this interval
        self._latency_from: dict[NodeId, Time] = {}  # by source: from there to here
        self._audience: dict[NodeId, Time] = {}  # when each was last part of it
        self._sent_filter: tuple[int, bytes] = (-REPEAT, b"")  # in which interval, and which
        self._without_filter: dict[NodeId, None] = {}  # of the audience
        self._received = DeliveredPublications()
        self._arrived: list[tuple[Publication, int]] = []
        self._reliances: dict[NodeId, list[Flow]] = {}
        self._latencies_to_report: dict[NodeId, dict[Flow, int]] = {}  # by lister
        self._reported_latencies: dict[tuple[NodeId, Flow], int] = {}  # as last sent
        self._lost: dict[NodeId, dict[Flow, None]] = {}
        self._refusals: dict[tuple[Flow, NodeId], int] = {}  # not asked again before this interval
        self._intervals = 0
        self._started: Time | None = None

    # Called by the overlay.

    def disseminate(
        self, publication: Publication, audience: Mapping[NodeId, float], hops: int = 0
    ) -> None:
        """Send it to the whole audience; where the uplink is too slow, by interest.

        `hops`: after how many messages it came here, if another node has published it.
        """
        now = self._start()
        next_hop: dict[NodeId, float] = {}
        for node, interest in audience.items():
            if node == self.id:
                continue
            entry = self.table.entries.get((self.id, node))
            if entry is None:
                entry = self.table.open((self.id, node), node, interest, 0, now)
                self._without_filter[node] = None
                if entry is None:
                    self._out.note("withheld", publication.id)
                    continue
            entry.interest = interest
            self._audience[node] = now
            for hop in self.table.sent_to(entry, now):
                next_hop[hop] = max(next_hop.get(hop, 0.0), interest)
        # Whatever its hops so far, enough must be left for the path from here.
        piece = RelayedPublication(self.id, publication, min(hops, MOST_HOPS // 2), 0)
        self._count_bytes(piece)
        filtered = self._with_audience_filter(piece)
        for to, interest in next_hop.items():
            fresh = filtered is None and to in self._without_filter
            sent = replace(piece, audience=self._sent_filter[1]) if fresh else filtered or piece
            self._without_filter.pop(to, None)
            self._enqueue(to, sent, interest, 0)
        self._send_packets()

    def on(self, message: Message, sender: NodeId) -> bool:
        """Handle a message of the relays; False: it is none."""
        if isinstance(message, CompressedUpdate):
            message = expand(message.deflated)
        if not isinstance(
            message, Update | Status | Redirect | Shorten | Accept | Reject | StopForwarding
        ):
            return False
        now = self._start()
        if sender == self.id:
            return True
        match message:
            case Update(pieces, status):
                taken = [self._on_publication(sender, piece, now) for piece in pieces]
                if status is not None:
                    self._on_status(sender, status, now, any(taken))
                self._send_packets()
            case Status(status):
                self._on_status(sender, status, now, False)
            case Redirect():
                self._on_redirect(sender, message, now)
            case Shorten():
                self._on_shorten(sender, message, now)
            case Accept() | Reject():
                self._on_answer(sender, message, now)
            case StopForwarding(source, destination):
                self.table.unlist((source, destination), sender)
        return True

    def wake(self, timer: Timer) -> bool:
        """Handle a timer of the relays; False: it is none."""
        if isinstance(timer, SendPackets):
            self._send_packets()
        elif isinstance(timer, OptimiseFlows):
            self._end_interval(self._clock())
        return isinstance(timer, SendPackets | OptimiseFlows)

    def drain(self) -> list[tuple[Publication, int]]:
        """Publications that arrived since the last call, each once, with their hops."""
        arrived, self._arrived = self._arrived, []
        return arrived

    def leave(self) -> None:
        """Tell all who rely on this peer that their flows are lost."""
        for flow, entry in self.table.entries.items():
            for lister in entry.listers:
                self._lost.setdefault(lister, {})[flow] = None
        for node in list(self._lost):
            self._send_status(node)

    @property
    def utilisation(self) -> float:
        """Share of the uplink that is asked for; above 1: it is overloaded."""
        return self.load / self.uplink.capacity

    # Publications.

    def _start(self) -> Time:
        now = self._clock()
        if self._started is None:
            self._started = now
            self._out.set_timer(OptimiseFlows(), self._rng.randrange(1, self._interval + 1))
        return now

    def _trusts(self, source: NodeId, sender: NodeId) -> bool:
        """May `sender` send publications of `source`?"""
        if self._is_acquainted(source) and (
            sender == source
            or self._is_acquainted(sender)
            or self.neighbours.was_in_audience(sender, source)
        ):
            return True
        # Who agreed to forward goes on until the hop before it has found another way.
        return any(sender in entry.listers for entry in self.table.of(source).values())

    def _count_bytes(self, piece: RelayedPublication) -> None:
        self._received_bytes[piece.source] = self._received_bytes.get(
            piece.source, 0
        ) + size_of_piece(piece)

    def _with_audience_filter(self, piece: RelayedPublication) -> RelayedPublication | None:
        """With the audience's filter, if it has changed or was last sent long ago ([Lehn] IV-B)."""
        sent_at, packed = self._sent_filter
        if sent_at == self._intervals:
            return None
        current = bloom.filter_of(list(self._audience))
        if current == packed and self._intervals - sent_at < REPEAT:
            return None
        self._sent_filter = self._intervals, current
        self._without_filter.clear()
        return replace(piece, audience=current)

    def _enqueue(self, to: NodeId, piece: RelayedPublication, interest: float, hold: Time) -> None:
        for lost in self.uplink.put(to, piece, interest, self._clock(), hold):
            self._out.note("withheld", lost.publication.id)

    def _send_packets(self) -> None:
        now = self._clock()
        due = self.uplink.due(now)
        if due is not None and due <= now:
            packets, withheld = self.uplink.serve(now, self._status_if_due)
            for to, update in packets:
                self._out.send(to, update)
            for _, piece in withheld:
                self._out.note("withheld", piece.publication.id)
            due = self.uplink.due(now)
        if due is not None:
            self._out.set_timer(SendPackets(), max(due - now, 1))

    def _on_publication(self, sender: NodeId, piece: RelayedPublication, now: Time) -> bool:
        """Receive and forward it; False: the sender had no right to send it."""
        source = piece.source
        if source == self.id:
            return False  # our own has come back
        if not self._trusts(source, sender) or not self._is_sound(sender, piece, now):
            self._out.note("refused", sender)
            return False
        self.neighbours.receive(sender, now, None)
        if bloom.is_filter(piece.audience):
            self.neighbours.learn_audience(source, piece.audience)
        if not self._received.is_new(source * PUBLICATION_IDS + piece.publication.id, now):
            return True
        self._count_bytes(piece)
        age = min(piece.age + self.neighbours.leg(sender) // TICK, MOST_TICKS)
        self._latency_from[source] = age * TICK
        hops = piece.hops + 1
        self._arrived.append((piece.publication, hops))
        if hops < MOST_HOPS:
            further = replace(piece, hops=hops, age=age)
            for to, interest in self.table.hops(source, now).items():
                if to not in (sender, source):
                    self._enqueue(to, further, interest, self._hold)
        return True

    def _is_sound(self, sender: NodeId, piece: RelayedPublication, now: Time) -> bool:
        """False for a replay, or if the sender is not who the path says."""
        publication, source = piece.publication, piece.source
        return (
            (piece.hops > 0 or sender == source)  # not forwarded yet: from the source itself
            and (self._for_others or publication.node == source)
            and not is_outside_window(publication, now)
        )

    # What peers tell each other of themselves.

    def _status_for(self, to: NodeId, now: Time) -> PeerStatus:
        neighbour = self.neighbours.meet(to, now)
        neighbour.status_sent_at = now
        kept: dict[NodeId, list[NodeId]] = {}
        for source, destination in self._reliances.get(to, ()):
            kept.setdefault(source, []).append(destination)
        echo, held = 0, 0
        if neighbour.sent is not None:
            echo, held = neighbour.sent, max(1, (now - neighbour.status_at) // TICK)
            neighbour.sent = None  # a later echo of the same clock has no news
        return PeerStatus(
            uplink=max(1, round(self.uplink.capacity)),
            used=min(round(1000 * self.utilisation), 2**32 - 1),
            age=(now - (self._started or now)) // SECOND,
            sent=ticks_of(now),
            echo=echo,
            held=min(held, MOST_TICKS),
            reliances=tuple(FlowList(source, tuple(to)) for source, to in kept.items()),
            latencies=tuple(
                RemainingLatency(*flow, t)
                for flow, t in self._latencies_to_report.pop(to, {}).items()
            ),
            lost=tuple(self._lost.pop(to, ())),
        )

    def _status_if_due(self, to: NodeId) -> PeerStatus | None:
        now = self._clock()
        status_sent_at = self.neighbours.meet(to, now).status_sent_at
        # A little early within an Update rather than soon afterwards in a packet of its own.
        due = (
            status_sent_at is None
            or now - status_sent_at >= self._interval - self._interval // 10
            or to in self._lost
        )
        return self._status_for(to, now) if due else None

    def _send_status(self, to: NodeId) -> None:
        message = Status(self._status_for(to, self._clock()))
        self.uplink.charge(message, self._clock())
        self._out.send(to, message)

    def _on_status(self, sender: NodeId, status: PeerStatus, now: Time, vouched: bool) -> None:
        """`vouched`: it came with a publication that the sender had the right to send."""
        flows = [(listed.source, d) for listed in status.reliances for d in listed.destinations]
        trusted = [flow for flow in flows if self._trusts(flow[0], sender)]
        if not (
            vouched or trusted or self._is_acquainted(sender) or self._shares_flow_with(sender)
        ):
            self._out.note("refused", sender)
            return
        self.neighbours.receive(sender, now, status)
        for flow in trusted:
            entry = self.table.entries.get(flow)
            confirmed = entry is not None and bool(entry.listers)
            if not self.table.rely(flow, sender, now):
                self._lost.setdefault(sender, {})[flow] = None
            elif entry is not None and not confirmed:
                self._rely_on(entry.next, flow)
        for reported in status.latencies:
            entry = self.table.entries.get((reported.source, reported.destination))
            if entry is not None and entry.next == sender:
                entry.rest = reported.ticks * TICK
        for flow in status.lost:
            entry = self.table.entries.get(flow)
            if entry is not None and entry.next == sender != flow[1]:
                self.table.go_directly(flow)
                self._out.note("repaired", flow[1])
        if sender in self._lost:
            self._send_status(sender)

    def _rely_on(self, hop: NodeId, flow: Flow) -> None:
        """Tell the hop at once, before it forgets a flow that another peer relied on it for."""
        if hop != flow[1]:
            self._reliances.setdefault(hop, []).append(flow)
            self._send_status(hop)

    def _shares_flow_with(self, node: NodeId) -> bool:
        return any(
            entry.next == node or node in entry.listers for entry in self.table.entries.values()
        )

    # Operations.

    def _streams(self, now: Time) -> Streams:
        return Streams(self._rates, self._header, self.table.links(now))

    def _optimise(self, now: Time) -> None:
        """Steps 1 to 3 of [Lehn] IV; up to `steps` times while the uplink is overloaded."""
        recent = now - 2 * RARELY * self._interval
        candidates = [
            node
            for node, known in self.neighbours.known.items()
            if known.capacity and known.last_received >= recent and self._is_acquainted(node)
        ]
        streams = self._streams(now)
        load = self.load  # as it would be if all agreed
        for _ in range(self.parameters.steps):
            view = StepInput(
                self.id, self.table, self.neighbours, streams, self._weights, load,
                self.uplink.capacity, (now - (self._started or now)) / SECOND, self._latency_from,
                self._audience.__contains__, self._refusals,
            )  # fmt: skip
            option = options.best(view, candidates, now)
            if option is None or option.gain < self.parameters.epsilon:
                break
            self._request(option, now)
            source, hop = option.flow[0], self.table.entries[option.flow].next
            load -= streams.saved(source, hop)
            if load <= self.uplink.capacity:
                break
            if option.kind == REDIR:
                neighbour = self.neighbours.known[option.whom]  # until its next status
                neighbour.load += (
                    streams.rates.get(source, 0.0) + streams.header
                ) / neighbour.capacity

    def _request(self, option: Option, now: Time) -> None:
        flow, whom = option.flow, option.whom
        entry = self.table.entries[flow]
        number = self.table.ask(flow, option.kind, whom, now) % 2**32
        rest = min(entry.rest // TICK, MOST_TICKS)
        question = (
            Redirect(*flow, number, entry.next, entry.interest, rest, option.worth)
            if option.kind == REDIR
            else Shorten(*flow, number, entry.next, rest, option.worth)
        )
        self.uplink.charge(question, now)
        self._out.send(whom, question)

    def _on_redirect(self, sender: NodeId, redirect: Redirect, now: Time) -> None:
        flow, next_hop = (redirect.source, redirect.destination), redirect.next_hop
        if not (self._is_acquainted(sender) and self._trusts(redirect.source, sender)):
            self._out.note("refused", sender)
            return
        self.neighbours.receive(sender, now, None)
        added = self._streams(now).added(redirect.source, next_hop)
        after = (self.load + added) / self.uplink.capacity
        costs = bandwidth_cost(self._weights, 0, after)
        costs -= bandwidth_cost(self._weights, 0, self.utilisation)
        worth_it = redirect.worth - costs >= self.parameters.epsilon
        agreed = worth_it and self.table.may_redirect(flow, next_hop) and sender != next_hop
        if agreed:
            rest = 0 if next_hop == flow[1] else redirect.rest * TICK
            self.table.open(flow, next_hop, min(max(redirect.interest, 0.0), 1.0), rest, now)
            self.load += added
        self._answer(sender, flow, redirect.number, next_hop, agreed, now)

    def _on_shorten(self, sender: NodeId, shorten: Shorten, now: Time) -> None:
        flow, next_hop = (shorten.source, shorten.destination), shorten.next_hop
        if not self.table.may_shorten(flow, sender, next_hop):
            if self._shares_flow_with(sender) or self._is_acquainted(sender):
                self._answer(sender, flow, shorten.number, next_hop, False, now)
            else:
                self._out.note("refused", sender)
            return
        streams = self._streams(now)
        change = streams.added(flow[0], next_hop) - streams.saved(flow[0], sender)
        after = (self.load + change) / self.uplink.capacity
        costs = bandwidth_cost(self._weights, after, 0)
        costs -= bandwidth_cost(self._weights, self.utilisation, 0)
        agreed = shorten.worth - costs >= self.parameters.epsilon
        if agreed:
            entry = self.table.entries[flow]
            entry.next, entry.rest = next_hop, shorten.rest * TICK
            self.load += change
        self._answer(sender, flow, shorten.number, next_hop, agreed, now)
        if agreed:
            self._rely_on(next_hop, flow)

    def _answer(
        self, to: NodeId, flow: Flow, number: int, next_hop: NodeId, agreed: bool, now: Time
    ) -> None:
        known = self.neighbours.known.get(next_hop)
        leg = 0 if known is None or known.leg is None else max(1, known.leg // TICK)
        answer = (Accept if agreed else Reject)(*flow, number, min(leg, MOST_TICKS))
        self.uplink.charge(answer, now)
        self._out.send(to, answer)

    def _on_answer(self, sender: NodeId, answer: Accept | Reject, now: Time) -> None:
        flow, agreed = (answer.source, answer.destination), isinstance(answer, Accept)
        entry = self.table.entries.get(flow)
        hop = None if entry is None else entry.next
        before = self._streams(now)
        question = self.table.answered(flow, sender, answer.number, agreed, now)
        if question is None or entry is None or hop is None:
            return  # too late: the request has been given up
        self.neighbours.receive(sender, now, None)
        self.neighbours.learn_leg(sender, hop, answer.leg * TICK)
        if not agreed:
            self._refusals[flow, sender] = self._intervals + RARELY
            return
        self.load = max(self.load - before.saved(flow[0], hop), 0.0)
        if question.kind == SHORT:
            self._out.note("shortened", flow[1])
            return
        self.load += before.added(flow[0], sender)
        entry.rest += self.neighbours.between(sender, hop)
        self._out.note("redirected", sender)
        self._rely_on(sender, flow)
        self._rely_on(hop, flow)  # once more: the forwarder's status arrives later

    # Intervals.

    def _end_interval(self, now: Time) -> None:
        self._intervals += 1
        self._measure_load()
        self._close_unused_flows(now)
        self.table.forget(now)
        self._repair(now)
        self._give_back_flows()
        self._refusals = {
            key: until for key, until in self._refusals.items() if until > self._intervals
        }
        if self.optimises:
            self._optimise(now)
        self._reliances = self.table.reliances(now)
        self._report_latencies()
        self._send_statuses(now)
        self.neighbours.forget(now - 4 * RARELY * self._interval)
        self._out.set_timer(OptimiseFlows(), self._interval)

    def _measure_load(self) -> None:
        """Smoothed load of the uplink, and byte rate of each source."""
        per_second = SECOND / self._interval
        self.load += SMOOTH * (self.uplink.demand * per_second - self.load)
        links = len({entry.next for entry in self.table.entries.values()})
        if links:
            headers = HEADERS * self.uplink.packets * per_second / links
            self._header += SMOOTH * (headers - self._header)
        self.uplink.demand, self.uplink.packets = 0.0, 0
        received, self._received_bytes = self._received_bytes, {}
        for source in [*self._rates, *(s for s in received if s not in self._rates)]:
            rate = received.get(source, 0) * per_second * self.uplink.ratio
            known = self._rates.get(source, rate)
            self._rates[source] = known + SMOOTH * (rate - known)
            if self._rates[source] < 1.0:
                del self._rates[source]
                self._latency_from.pop(source, None)

    def _close_unused_flows(self, now: Time) -> None:
        since = now - LINGER * self._interval
        for node in [node for node, t in self._audience.items() if t < since]:
            del self._audience[node]
            self._without_filter.pop(node, None)
            entry = self.table.entries.get((self.id, node))
            if entry is not None:
                if entry.next != node:
                    self._stop_forwarding(entry.next, (self.id, node), now)
                self.table.close((self.id, node))
            for other, entry in self.table.of(self.id).items():
                if entry.next == node:  # it is no subscriber any more, so it forwards nothing
                    self._stop_forwarding(node, (self.id, other), now)
                    self.table.go_directly((self.id, other))

    def _stop_forwarding(self, hop: NodeId, flow: Flow, now: Time) -> None:
        message = StopForwarding(*flow)
        self.uplink.charge(message, now)
        self._out.send(hop, message)

    def _repair(self, now: Time) -> None:
        """Flows through a silent forwarder go directly ([Lehn] IV-B: forwarders must be alive)."""
        since = now - self.parameters.misses * self._interval
        for flow, entry in list(self.table.entries.items()):
            gone = entry.next != flow[1] and self.neighbours.silent(entry.next, since)
            if gone:
                self._stop_forwarding(entry.next, flow, now)
                self.table.go_directly(flow)
                self._out.note("repaired", flow[1])

    def _give_back_flows(self) -> None:
        """Only a subscriber of a source forwards its flows: (u, s) in E ([Lehn] IV)."""
        given: dict[NodeId, None] = {}
        for source in dict.fromkeys(source for source, _ in self.table.entries):
            if source == self.id or self._is_subscribed_to(source):
                continue
            for destination, entry in self.table.of(source).items():
                for lister in entry.listers:
                    self._lost.setdefault(lister, {})[source, destination] = None
                    given[lister] = None
        for lister in given:
            self._send_status(lister)

    def _is_subscribed_to(self, source: NodeId) -> bool:
        unknown = source not in self.neighbours.audiences
        return self._is_acquainted(source) and (
            unknown or self.neighbours.is_in_audience(self.id, source)
        )

    def _report_latencies(self) -> None:
        """Report the remaining latency to the hops before, where it has changed ([Lehn] IV-B)."""
        if self._intervals % REPORT_AGAIN == 0:
            self._reported_latencies.clear()
        for flow, entry in self.table.entries.items():
            ticks = min((self.neighbours.leg(entry.next) + entry.rest) // TICK, MOST_TICKS)
            for lister in entry.listers:
                reported = self._reported_latencies.get((lister, flow))
                if reported is None or abs(reported - ticks) > max(50, reported // 10):
                    self._reported_latencies[lister, flow] = ticks
                    self._latencies_to_report.setdefault(lister, {})[flow] = ticks

    def _rare_status_interval(self) -> Time:
        """Time between statuses to neighbours without a common flow; longer on slow uplinks, which
        statuses would fill and which cannot forward anything anyway."""
        busy = STATUS_BYTES * len(self.neighbours.known) / (MOST_STATUSES * self.uplink.capacity)
        return min(max(RARELY * self._interval, round(busy * SECOND)), 3 * RARELY * self._interval)

    def _send_statuses(self, now: Time) -> None:
        """Status to peers with a common flow, unless an Update of the last interval carried one;
        to the others rarely."""
        close = dict.fromkeys(self._reliances)
        for entry in self.table.entries.values():
            close.update(dict.fromkeys(entry.listers))
        seldom = self._rare_status_interval()
        for node, known in list(self.neighbours.known.items()):
            quiet = self._interval if node in close else seldom
            silent = known.status_sent_at is None or now - known.status_sent_at >= ceil(
                quiet * 1.25
            )
            if silent and (node in close or self._is_acquainted(node)):
                self._send_status(node)
        for node in close:
            if node not in self.neighbours.known:
                self._send_status(node)
