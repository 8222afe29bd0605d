"""A peer's forwarding table, and how it changes without losing a flow or making a loop.

An entry says to whom a flow goes from here. Its next hop is the destination itself, or a forwarder
who has agreed. These rules keep every flow deliverable, whatever is decided at the same time and
however late messages are:

* Who is asked to forward a flow agrees only if it has no entry for it. So nobody is put on a path
  twice, and who is on one stays where it is.
* Who has asked a question about a flow answers No to everybody else's until it has the answer, and
  changes nothing meanwhile. So no two changes meet at one link.
* Who takes itself out asks the one before, and goes on forwarding for an interval after the Yes.
  Who has found a forwarder also sends for an interval where it sent before.
* What is not listed by the one before for `misses` intervals is forgotten; what it was for has a
  different path by then.
* In any doubt about a next hop (it is silent, or lists the flow as lost) the flow goes directly to
  its destination. That is always right, if not always cheap.
"""

from typing import NamedTuple

from nearcast.model.subscription import NodeId
from nearcast.protocols.relays.kernels import REDIR, SHORT
from nearcast.protocols.relays.messages import Flow
from nearcast.space.motion import Time

MOST_FLOWS = 20_000


class PendingOperation(NamedTuple):
    """An operation that awaits its answer."""

    kind: int
    whom: NodeId
    number: int
    until: Time


class FlowEntry:
    __slots__ = (
        "asked", "former", "heard", "interest", "leaving", "listers", "next", "rest", "since"
    )  # fmt: skip

    def __init__(self, hop: NodeId, interest: float, rest: Time, now: Time) -> None:
        self.next = hop
        self.interest = interest
        self.rest = rest  # microseconds from the next hop to the destination
        self.since = self.heard = now  # when it was made; when somebody last spoke for it
        self.listers: dict[NodeId, Time] = {}  # who relies on it, and when they last said so
        self.asked: PendingOperation | None = None
        # Where it went before the forwarder agreed, and until when it goes there too: the forwarder
        # may have had some of what is under way before it knew that it is to pass it on.
        self.former: tuple[NodeId, Time] | None = None
        self.leaving: Time | None = None  # since when this peer is no longer on the path


class FlowTable:
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
        """One that is leaving forwards for an interval: something may still be on its way."""
        return entry.leaving is None or now - entry.leaving <= self._interval

    def hops(self, source: NodeId, now: Time) -> dict[NodeId, float]:
        """To whom what a source says goes from here, and the greatest interest in it there."""
        onward: dict[NodeId, float] = {}
        for entry in self.of(source).values():
            if self.sends(entry, now):
                for hop in self.sent_to(entry, now):
                    onward[hop] = max(onward.get(hop, 0.0), entry.interest)
        return onward

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
        return entry is not None and entry.asked is None and entry.leaving is None

    def sole_lister(self, entry: FlowEntry) -> NodeId | None:
        """Who is before this peer on the path, if there is no doubt about it."""
        return next(iter(entry.listers)) if len(entry.listers) == 1 else None

    def ask(self, flow: Flow, kind: int, whom: NodeId, now: Time) -> int:
        """The number of the question; until its answer nobody changes this flow here."""
        entry = self.entries[flow]
        assert entry.asked is None and entry.leaving is None
        self._number += 1
        # Who has agreed remembers it for longer than we wait: `misses` is at least 2.
        entry.asked = PendingOperation(
            kind, whom, self._number, now + self._patience - self._interval
        )
        return self._number

    def answered(
        self, flow: Flow, sender: NodeId, number: int, agreed: bool, now: Time
    ) -> PendingOperation | None:
        """The question that this answers; None: it is asked no longer, and nothing happens."""
        entry = self.entries.get(flow)
        question = entry.asked if entry is not None else None
        if entry is None or question is None:
            return None
        if (question.whom, question.number) != (sender, number) or now > question.until:
            return None
        entry.asked = None
        if agreed and question.kind == REDIR:
            entry.former = entry.next, now + self._interval
            entry.next = sender
        elif agreed and question.kind == SHORT:
            entry.leaving = now
        return question

    # Operations of others.

    def may_take(self, flow: Flow, onward: NodeId) -> bool:
        return (
            flow not in self.entries
            and self.me not in (*flow, onward)
            and onward != flow[0]
            and len(self.entries) < MOST_FLOWS
        )

    def may_skip(self, flow: Flow, sender: NodeId, onward: NodeId) -> bool:
        entry = self.entries.get(flow)
        return (
            entry is not None
            and self.is_free(flow)
            and entry.next == sender
            and sender != flow[1]
            and onward not in (self.me, flow[0], sender)
        )

    # Reliance.

    def rely(self, flow: Flow, lister: NodeId, now: Time) -> bool:
        """Somebody relies on this peer for it. False: in vain."""
        entry = self.entries.get(flow)
        if entry is None or flow[0] == self.me:
            return False
        entry.heard = entry.listers[lister] = now
        entry.leaving = None  # somebody does not know, or has not been told: go on
        return True

    def unlist(self, flow: Flow, lister: NodeId) -> None:
        """It does no longer; if nobody does, the flow is forgotten."""
        entry = self.entries.get(flow)
        if entry is not None and entry.listers.pop(lister, None) is not None and not entry.listers:
            self.close(flow)

    def reliances(self, now: Time) -> dict[NodeId, list[Flow]]:
        """What this peer relies on others for. What nobody has confirmed yet is not listed on."""
        kept: dict[NodeId, list[Flow]] = {}
        for flow, entry in self.entries.items():
            relied_on = flow[0] == self.me or bool(entry.listers)
            if entry.next != flow[1] and relied_on and self.sends(entry, now):
                kept.setdefault(entry.next, []).append(flow)
        return kept

    def go_directly(self, flow: Flow) -> None:
        entry = self.entries[flow]
        entry.next, entry.rest, entry.asked = flow[1], 0, None

    def forget(self, now: Time) -> None:
        """Questions without answers, and what is relied on no longer."""
        for flow, entry in list(self.entries.items()):
            if entry.asked is not None and now > entry.asked.until:
                entry.asked = None
            if flow[0] == self.me:
                continue
            for lister, t in list(entry.listers.items()):
                if now - t > self._patience:
                    del entry.listers[lister]
            if now - entry.heard > self._patience:
                self.close(flow)
