"""What a relaying peer says and hears: pieces of publications, and words about itself.

Pieces are taken from whoever may speak for their source, handed to the node once, and passed on to
the next hops of all flows of that source. Words go with them, or by themselves.
"""

from collections.abc import Callable
from random import Random

from msgspec.structs import replace

from nearcast.model.publication import Publication
from nearcast.model.subscription import NodeId
from nearcast.node import Outbox, Timer
from nearcast.protocols.dedup import PUBLICATION_IDS, DeliveredPublications, is_outside_window
from nearcast.protocols.relays import bloom
from nearcast.protocols.relays.flow_table import FlowTable
from nearcast.protocols.relays.messages import (
    MOST_HOPS,
    TICK,
    Flow,
    FlowList,
    PeerStatus,
    RelayedPublication,
    RemainingLatency,
    Status,
)
from nearcast.protocols.relays.neighbours import Neighbours, ticks_of
from nearcast.protocols.relays.parameters import Parameters
from nearcast.protocols.relays.uplink import HEADERS, MOST_TICKS, Uplink, size_of_piece
from nearcast.space.motion import SECOND, Time

REPEAT = 4  # intervals after which the audience is said again


class SendPackets(Timer, frozen=True):
    """Something has waited long enough."""


class OptimiseFlows(Timer, frozen=True):
    """One step of the optimisation, and a look at the neighbours."""


class Speech:
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

        `for_others`: a source may tell what somebody else has published.
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
        self.uplink = Uplink(capacity)
        self.load = 0.0  # bytes per second
        self._header = float(HEADERS)  # bytes per second of headers on a link
        self._rates: dict[NodeId, float] = {}  # by source: bytes per second
        self._heard: dict[NodeId, int] = {}  # by source: bytes in this interval
        self._ahead: dict[NodeId, Time] = {}  # by source: from there to here
        self._last: dict[NodeId, Time] = {}  # by peer of the audience: when it last was in it
        self._told_audience: tuple[int, bytes] = (-REPEAT, b"")  # in which interval, and which
        self._fresh: dict[NodeId, None] = {}  # of the audience, who has not had the filter
        self._copies = DeliveredPublications()
        self._arrived: list[tuple[Publication, int]] = []
        self._kept: dict[NodeId, list[Flow]] = {}
        self._onward: dict[NodeId, dict[Flow, int]] = {}  # by lister: what to tell it
        self._said: dict[tuple[NodeId, Flow], int] = {}  # and what it was told
        self._lost: dict[NodeId, dict[Flow, None]] = {}
        self._refusals: dict[tuple[Flow, NodeId], int] = {}  # not asked again before this interval
        self._intervals = 0
        self._begun: Time | None = None

    # What its user may ask.

    @property
    def utilisation(self) -> float:
        """Share of the uplink that is asked for; above 1: it is overloaded."""
        return self.load / self.uplink.capacity

    # Pieces.

    def _begin(self) -> Time:
        now = self._clock()
        if self._begun is None:
            self._begun = now
            self._out.set_timer(OptimiseFlows(), self._rng.randrange(1, self._interval + 1))
        return now

    def _trusts(self, source: NodeId, sender: NodeId) -> bool:
        """May this peer speak for that source?"""
        if self._is_acquainted(source) and (
            sender == source or self._is_acquainted(sender) or self.neighbours.heard(sender, source)
        ):
            return True
        # Who has agreed to pass it on does so until the one before knows of another way.
        return any(sender in entry.listers for entry in self.table.of(source).values())

    def _count(self, piece: RelayedPublication) -> None:
        self._heard[piece.source] = self._heard.get(piece.source, 0) + size_of_piece(piece)

    def _with_audience(self, piece: RelayedPublication) -> RelayedPublication | None:
        """With the filter, where all are to have it: it has changed, or was said long ago."""
        said, packed = self._told_audience
        if said == self._intervals:
            return None
        current = bloom.filter_of(list(self._last))
        if current == packed and self._intervals - said < REPEAT:
            return None
        self._told_audience = self._intervals, current
        self._fresh.clear()
        return replace(piece, audience=current)

    def _put(self, to: NodeId, piece: RelayedPublication, interest: float, hold: Time) -> None:
        for lost in self.uplink.put(to, piece, interest, self._clock(), hold):
            self._out.note("withheld", lost.publication.id)

    def _flush(self) -> None:
        now = self._clock()
        due = self.uplink.due(now)
        if due is not None and due <= now:
            packets, withheld = self.uplink.serve(now, self._word_if_due)
            for to, update in packets:
                self._out.send(to, update)
            for _, piece in withheld:
                self._out.note("withheld", piece.publication.id)
            due = self.uplink.due(now)
        if due is not None:
            self._out.set_timer(SendPackets(), max(due - now, 1))

    def _on_piece(self, sender: NodeId, piece: RelayedPublication, now: Time) -> bool:
        """Was it the sender's to say?"""
        source = piece.source
        if source == self.id:
            return False  # it has come back
        if not self._trusts(source, sender) or not self._is_sound(sender, piece, now):
            self._out.note("refused", sender)
            return False
        self.neighbours.hear(sender, now, None)
        if bloom.is_filter(piece.audience):
            self.neighbours.learn_audience(source, piece.audience)
        if not self._copies.is_new(source * PUBLICATION_IDS + piece.publication.id, now):
            return True
        self._count(piece)
        age = min(piece.age + self.neighbours.leg(sender) // TICK, MOST_TICKS)
        self._ahead[source] = age * TICK
        hops = piece.hops + 1
        self._arrived.append((piece.publication, hops))
        if hops < MOST_HOPS:
            further = replace(piece, hops=hops, age=age)
            for to, interest in self.table.hops(source, now).items():
                if to not in (sender, source):
                    self._put(to, further, interest, self._hold)
        return True

    def _is_sound(self, sender: NodeId, piece: RelayedPublication, now: Time) -> bool:
        """Not so for a replay: what was said long ago, or by somebody else than it seems."""
        publication, source = piece.publication, piece.source
        return (
            (piece.hops > 0 or sender == source)  # nobody has passed it on yet
            and (self._for_others or publication.node == source)
            and not is_outside_window(publication, now)
        )

    # Words.

    def _word(self, to: NodeId, now: Time) -> PeerStatus:
        neighbour = self.neighbours.meet(to, now)
        neighbour.spoken = now
        kept: dict[NodeId, list[NodeId]] = {}
        for source, destination in self._kept.get(to, ()):
            kept.setdefault(source, []).append(destination)
        echo, held = 0, 0
        if neighbour.sent is not None:
            echo, held = neighbour.sent, max(1, (now - neighbour.worded) // TICK)
            neighbour.sent = None  # an echo of the same clock later says nothing new
        return PeerStatus(
            uplink=max(1, round(self.uplink.capacity)),
            used=min(round(1000 * self.utilisation), 2**32 - 1),
            age=(now - (self._begun or now)) // SECOND,
            sent=ticks_of(now),
            echo=echo,
            held=min(held, MOST_TICKS),
            kept=tuple(FlowList(source, tuple(to)) for source, to in kept.items()),
            onward=tuple(
                RemainingLatency(*flow, t) for flow, t in self._onward.pop(to, {}).items()
            ),
            lost=tuple(self._lost.pop(to, ())),
        )

    def _word_if_due(self, to: NodeId) -> PeerStatus | None:
        now = self._clock()
        spoken = self.neighbours.meet(to, now).spoken
        # Rather too early, with an update, than soon afterwards in a packet of its own.
        due = spoken is None or 2 * (now - spoken) >= self._interval or to in self._lost
        return self._word(to, now) if due else None

    def _say(self, to: NodeId) -> None:
        message = Status(self._word(to, self._clock()))
        self.uplink.take(message, self._clock())
        self._out.send(to, message)

    def _on_word(self, sender: NodeId, word: PeerStatus, now: Time, vouched: bool) -> None:
        """`vouched`: it has come with something that was the sender's to say."""
        flows = [(listed.source, d) for listed in word.kept for d in listed.destinations]
        trusted = [flow for flow in flows if self._trusts(flow[0], sender)]
        if not (vouched or trusted or self._is_acquainted(sender) or self._involves(sender)):
            self._out.note("refused", sender)
            return
        self.neighbours.hear(sender, now, word)
        for flow in trusted:
            entry = self.table.entries.get(flow)
            confirmed = entry is not None and bool(entry.listers)
            if not self.table.rely(flow, sender, now):
                self._lost.setdefault(sender, {})[flow] = None
            elif entry is not None and not confirmed:
                self._rely_on(entry.next, flow)
        for told in word.onward:
            entry = self.table.entries.get((told.source, told.destination))
            if entry is not None and entry.next == sender:
                entry.rest = told.ticks * TICK
        for flow in word.lost:
            entry = self.table.entries.get(flow)
            if entry is not None and entry.next == sender != flow[1]:
                self.table.go_directly(flow)
                self._out.note("repaired", flow[1])
        if sender in self._lost:
            self._say(sender)

    def _rely_on(self, hop: NodeId, flow: Flow) -> None:
        """It hears so at once, and before it forgets what somebody else relied on it for."""
        if hop != flow[1]:
            self._kept.setdefault(hop, []).append(flow)
            self._say(hop)

    def _involves(self, node: NodeId) -> bool:
        return any(
            entry.next == node or node in entry.listers for entry in self.table.entries.values()
        )
