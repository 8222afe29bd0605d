"""A peer's forwarding table r_v ([Lehn] III), and how it changes without a lost flow or a loop.

An entry says to whom this peer sends a flow. Its next hop is the destination itself, or a forwarder
that has agreed. These rules keep every flow deliverable, whatever is decided at the same time and
however late messages are:

* A peer that is asked to forward a flow agrees only if it has no entry for it. So no peer is on a
  path twice, and a peer on a path keeps its position.
* A peer with a pending operation on a flow rejects all others for that flow, and changes nothing
  until it has the answer. So no two changes meet at one link.
* A peer that takes itself out of a path (SHORT) asks the hop before it, and goes on forwarding for
  an interval after the Accept. A peer in the middle of a path that has found a forwarder (REDIR)
  also sends to the former next hop for an interval. The source need not: what it sends after the
  Accept arrives after the forwarder has agreed.
* An entry that the hop before does not list for `misses` intervals is forgotten; its destination
  has another path by then.
* If a next hop is silent, or reports the flow as lost, the flow goes directly to its destination.
  That is always correct, though not always cheap.
"""

from typing import NamedTuple

from nearcast.model.subscription import NodeId
from nearcast.protocols.relays.kernels import REDIR, SHORT
from nearcast.protocols.relays.messages import Flow
from nearcast.space.motion import Time

MOST_FLOWS = 20_000


class PendingOperation(NamedTuple):
    """An operation that waits for its answer."""

    kind: int
    whom: NodeId
    number: int
    until: Time


class FlowEntry:
    """One flow at this peer: its next hop, and who relies on this peer for it."""

    __slots__ = (
        "former", "interest", "last_listed", "leaving", "listers", "next", "pending", "rest",
        "since",
    )  # fmt: skip

    def __init__(self, hop: NodeId, interest: float, rest: Time, now: Time) -> None:
        self.next = hop
        self.interest = interest
        self.rest = rest  # microseconds from the next hop to the destination
        self.since = self.last_listed = now  # when it was made; when it was last listed
        self.listers: dict[NodeId, Time] = {}  # who relies on it, and when they last listed it
        self.pending: PendingOperation | None = None
        # Where it went before the forwarder agreed, and until when it goes there too: the forwarder
        # may have had some of what is under way before it knew that it is to pass it on.
        self.former: tuple[NodeId, Time] | None = None
        self.leaving: Time | None = None  # since when this peer is no longer on the path


class FlowTable:
    """The flows that this peer sends or forwards."""

    def __init__(self, me: NodeId, interval: Time, misses: int) -> None:
        self.me = me
        self._interval, self._patience = interval, misses * interval
        self.entries: dict[Flow, FlowEntry] = {}
        self._by_source: dict[NodeId, dict[NodeId, FlowEntry]] = {}
        self._number = 0

    # Flows.

    def open(
        self, flow: Flow, hop: NodeId, interest: float, rest: Time, now: Time
    ) -> FlowEntry | None:
        if len(self.entries) >= MOST_FLOWS:
            return None
        entry = self.entries[flow] = FlowEntry(hop, interest, rest, now)
        self._by_source.setdefault(flow[0], {})[flow[1]] = entry
        return entry

    def close(self, flow: Flow) -> None:
        if self.entries.pop(flow, None) is not None:
            del self._by_source[flow[0]][flow[1]]
            if not self._by_source[flow[0]]:
                del self._by_source[flow[0]]

    def of(self, source: NodeId) -> dict[NodeId, FlowEntry]:
        """By destination."""
        return self._by_source.get(source, {})

    def sends(self, entry: FlowEntry, now: Time) -> bool:
        """An entry that leaves the path forwards for an interval: something may be under way."""
        return entry.leaving is None or now - entry.leaving <= self._interval

    def hops(self, source: NodeId, now: Time) -> dict[NodeId, float]:
        """Next hops of a source's publications, with the greatest interest behind each."""
        next_hop: dict[NodeId, float] = {}
        for entry in self.of(source).values():
            if self.sends(entry, now):
                for hop in self.sent_to(entry, now):
                    next_hop[hop] = max(next_hop.get(hop, 0.0), entry.interest)
        return next_hop

    def sent_to(self, entry: FlowEntry, now: Time) -> tuple[NodeId, ...]:
        former = entry.former
        return (entry.next,) if former is None or now > former[1] else (entry.next, former[0])

    def links(self, now: Time) -> dict[NodeId, dict[NodeId, int]]:
        """By next hop and source: how many flows."""
        carried: dict[NodeId, dict[NodeId, int]] = {}
        for (source, _), entry in self.entries.items():
            if self.sends(entry, now):
                flows = carried.setdefault(entry.next, {})
                flows[source] = flows.get(source, 0) + 1
        return carried

    # Operations of this peer.

    def is_free(self, flow: Flow) -> bool:
        entry = self.entries.get(flow)
        return entry is not None and entry.pending is None and entry.leaving is None

    def sole_lister(self, entry: FlowEntry) -> NodeId | None:
        """The hop before this peer on the path; None: there are several."""
        return next(iter(entry.listers)) if len(entry.listers) == 1 else None

    def ask(self, flow: Flow, kind: int, whom: NodeId, now: Time) -> int:
        """Begin an operation; returns its number. Until the answer the flow does not change."""
        entry = self.entries[flow]
        assert entry.pending is None and entry.leaving is None
        self._number += 1
        # Who accepts remembers it for longer than we wait: `misses` is at least 2.
        entry.pending = PendingOperation(
            kind, whom, self._number, now + self._patience - self._interval
        )
        return self._number

    def answered(
        self, flow: Flow, sender: NodeId, number: int, agreed: bool, now: Time
    ) -> PendingOperation | None:
        """The operation that this answers; None: it is not pending, and nothing happens."""
        entry = self.entries.get(flow)
        question = entry.pending if entry is not None else None
        if entry is None or question is None:
            return None
        if (question.whom, question.number) != (sender, number) or now > question.until:
            return None
        entry.pending = None
        if agreed and question.kind == REDIR:
            if flow[0] != self.me:  # a source has sent the forwarder nothing but by this table
                entry.former = entry.next, now + self._interval
            entry.next = sender
        elif agreed and question.kind == SHORT:
            entry.leaving = now
        return question

    # Operations of others.

    def may_redirect(self, flow: Flow, next_hop: NodeId) -> bool:
        return (
            flow not in self.entries
            and self.me not in (*flow, next_hop)
            and next_hop != flow[0]
            and len(self.entries) < MOST_FLOWS
        )

    def may_shorten(self, flow: Flow, sender: NodeId, next_hop: NodeId) -> bool:
        entry = self.entries.get(flow)
        return (
            entry is not None
            and self.is_free(flow)
            and entry.next == sender
            and sender != flow[1]
            and next_hop not in (self.me, flow[0], sender)
        )

    # Reliance.

    def rely(self, flow: Flow, lister: NodeId, now: Time) -> bool:
        """`lister` relies on this peer for the flow. False: there is no such entry."""
        entry = self.entries.get(flow)
        if entry is None or flow[0] == self.me:
            return False
        entry.last_listed = entry.listers[lister] = now
        entry.leaving = None  # the hop before does not know yet: go on forwarding
        return True

    def unlist(self, flow: Flow, lister: NodeId) -> None:
        """`lister` relies on this peer no more; without listers the flow is forgotten."""
        entry = self.entries.get(flow)
        if entry is not None and entry.listers.pop(lister, None) is not None and not entry.listers:
            self.close(flow)

    def reliances(self, now: Time) -> dict[NodeId, list[Flow]]:
        """Flows by the hop that this peer relies on; only flows that somebody lists here."""
        kept: dict[NodeId, list[Flow]] = {}
        for flow, entry in self.entries.items():
            relied_on = flow[0] == self.me or bool(entry.listers)
            if entry.next != flow[1] and relied_on and self.sends(entry, now):
                kept.setdefault(entry.next, []).append(flow)
        return kept

    def go_directly(self, flow: Flow) -> None:
        entry = self.entries[flow]
        entry.next, entry.rest, entry.pending = flow[1], 0, None

    def forget(self, now: Time) -> None:
        """Give up unanswered operations, and flows that are not listed any more."""
        for flow, entry in list(self.entries.items()):
            if entry.pending is not None and now > entry.pending.until:
                entry.pending = None
            if flow[0] == self.me:
                continue
            for lister, t in list(entry.listers.items()):
                if now - t > self._patience:
                    del entry.listers[lister]
            if now - entry.last_listed > self._patience:
                self.close(flow)
