"""The gateway's role: candidates, the list of matchers, and succession ([VSO] IV-A, B).

The paper's gateway is the first matcher. Ours has its role for a term. Once per heartbeat it sends
every matcher the list of matchers, in order of seniority. Matchers that miss it for too long
succeed it in that order, each a moment later than the one before, in a higher term. The first two
of them know the candidates too. In a partitioned network there may be two gateways; when it heals,
the later term wins (then the larger id). The other one learns of it because each gateway goes on
to send its list to matchers that it has lost, for a while.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from msgspec.structs import replace

from nearcast.model.subscription import NodeId
from nearcast.node import Message, Outbox
from nearcast.protocols.voronoi.mesh import Mesh
from nearcast.protocols.voronoi.vso.messages import (
    Candidate,
    MatcherInsert,
    MatcherList,
    MatcherPresent,
    MatcherRetired,
    Place,
    Promote,
    Term,
)
from nearcast.protocols.voronoi.vso.parameters import Parameters, microseconds
from nearcast.space.motion import SECOND, Time

HEIRS = 2  # matchers that know the candidates
REMEMBER_LOST: Time = 600 * SECOND


class Offer(NamedTuple):
    """What a candidate has last told of itself, and when."""

    t: Time
    capacity: float  # in subscriptions


class GatewayRole:
    """The gateway's role at one site, whether this site has it or not."""

    def __init__(
        self, out: Outbox, mesh: Mesh, clock: Callable[[], Time], parameters: Parameters
    ) -> None:
        self.me, self.out = mesh.id, out
        self.term: Term = 0
        self.gateway: NodeId | None = None
        self.matchers: dict[NodeId, Place] = {}  # in order of seniority
        self.candidates: dict[NodeId, Offer] = {}  # in the order in which they first volunteered
        self._mesh, self._clock = mesh, clock
        self._beat = parameters.heartbeat
        self._misses = parameters.misses
        self._turn = 2 * microseconds(parameters.site_beat_ms)  # until the one after that follows
        self._last_received: dict[NodeId, Time] = {}  # matchers, if I am the gateway
        self._lost: dict[NodeId, Time] = {}
        self._promoted: dict[NodeId, tuple[Time, Place]] = {}  # promoted: when, and to which place
        self._fresh = microseconds(parameters.fresh_ms)
        self._answer = microseconds(parameters.answer_ms)
        self._least = parameters.least
        self._last_sent: Time = -(2**62)
        self._gateway_received: Time = 0

    @property
    def now(self) -> Time:
        return self._clock()

    @property
    def _place(self) -> Place:
        return (0.0, 0.0) if self._mesh.me is None else self._mesh.me.place

    @property
    def is_mine(self) -> bool:
        return self.gateway == self.me

    def found(self) -> None:
        """[VSO] IV-A: the first matcher is the gateway."""
        self._become_gateway(1)

    def enter(self, gateway: NodeId) -> None:
        """This site is a new matcher, and knows this gateway."""
        self._gateway_received = self.now
        self.gateway = gateway

    def insert(self, place: Place, level: float) -> None:
        """[VSO] IV-F, 3: ask the gateway for another matcher."""
        if self.is_mine:
            self._promote(place)
        elif self.gateway is not None:
            self.out.send(self.gateway, MatcherInsert(place, level))

    def volunteer(self, candidate: Candidate) -> None:
        """Tell the gateway of a candidate."""
        if self.is_mine:
            if candidate.node != self.me:
                self.candidates[candidate.node] = Offer(self.now, candidate.capacity)
        elif self.gateway is not None:
            self.out.send(self.gateway, candidate)

    def challenge(self, gateway: NodeId) -> None:
        """Another overlay's gateway: the later term wins, and answers if it is the other's."""
        self.out.send(gateway, self._matcher_list())

    def retire(self) -> None:
        if self.gateway is not None and not self.is_mine:
            self.out.send(self.gateway, MatcherRetired())

    @property
    def lacks_matchers(self) -> bool:
        """Is this the gateway of fewer than `least` matchers, with a free candidate?"""
        few = self.is_mine and len(self.matchers) + len(self._promoted) < self._least
        return few and bool(self._free())

    @property
    def needs_all_matchers(self) -> bool:
        """Would the gateway call another matcher at once if this one left?"""
        return 1 < self._least >= len(self.matchers)

    def went(self, site: NodeId) -> None:
        """The mesh says that a matcher has died."""
        if self.is_mine and site in self.matchers:
            self._last_received[site] = -(2**62)
        elif not self.is_mine:
            self.matchers.pop(site, None)
            if site == self.gateway:  # the successor need not wait for missed heartbeats
                self._gateway_received = min(
                    self._gateway_received, self.now - self._beat * self._misses
                )

    def tick(self, now: Time) -> None:
        if self.is_mine:
            self._check()
        elif now - self._gateway_received > self._beat * self._misses + self._turn * self._rank():
            self.out.note("gateway", self.me, self.term + 1)
            self._become_gateway(self.term + 1)
        if now - self._last_sent >= self._beat:
            self._last_sent = now
            self._send_lists()

    def _rank(self) -> int:
        heirs = [site for site in self.matchers if site != self.gateway]
        return heirs.index(self.me) if self.me in heirs else len(heirs)

    def _become_gateway(self, term: Term) -> None:
        self.term, self.gateway = term, self.me
        self.matchers[self.me] = self._place
        self._last_received = dict.fromkeys(self.matchers, self.now)
        self._promoted = {}
        self._last_sent = -(2**62)

    def _check(self) -> None:
        limit = self.now - self._beat * self._misses
        for site in [site for site, received in self._last_received.items() if received < limit]:
            if site != self.me:
                del self._last_received[site]
                self.matchers.pop(site, None)
                self._lost[site] = self.now
        self._lost = {s: t for s, t in self._lost.items() if self.now - t < REMEMBER_LOST}
        # Candidates volunteer five times as rarely as matchers report.
        limit = self.now - 5 * self._beat * self._misses
        self.candidates = {node: one for node, one in self.candidates.items() if one.t >= limit}
        for node, (called, place) in list(self._promoted.items()):
            if self.now - called >= self._answer:
                del self._promoted[node]
                self.candidates.pop(node, None)
                self._promote(place)

    def _send_lists(self) -> None:
        if not self.is_mine:
            if self.gateway is not None:
                self.out.send(self.gateway, MatcherPresent(self._place))
            return
        self.matchers[self.me] = self._place
        others = [site for site in self.matchers if site != self.me]
        if others[:HEIRS]:
            self.out.send_many(
                others[:HEIRS], self._matcher_list(self._offers(self._fresh_of(self.candidates)))
            )
        known = (self.me, *others[:HEIRS])
        rest = dict.fromkeys([*others[HEIRS:], *self._mesh.enclosing(), *self._lost])
        several = [site for site in rest if site not in known]
        if several:
            self.out.send_many(several, self._matcher_list())

    def _matcher_list(self, candidates: tuple[Candidate, ...] = ()) -> MatcherList:
        return MatcherList(self.term, self.me, tuple(self.matchers.items()), candidates)

    def _promote(self, place: Place) -> None:
        """[VSO] IV-F, 4: promote a capable candidate, of equals the one that has waited longest."""
        free = self._free()
        if not free:
            self.out.note("no-candidate")
            return
        fresh = self._fresh_of(free)
        if fresh:
            node = max(fresh, key=lambda candidate: self.candidates[candidate].capacity)
        else:
            node = max(free, key=lambda candidate: self.candidates[candidate].t)
        self._promoted[node] = self.now, place
        self.out.send(node, Promote(place, self.me))

    def _free(self) -> list[NodeId]:
        taken = (self._promoted, self.matchers)
        return [node for node in self.candidates if not any(node in some for some in taken)]

    def _fresh_of(self, candidates: Iterable[NodeId]) -> list[NodeId]:
        return [n for n in candidates if self.now - self.candidates[n].t <= self._fresh]

    def _offers(self, candidates: Iterable[NodeId]) -> tuple[Candidate, ...]:
        return tuple(Candidate(node, self.candidates[node].capacity) for node in candidates)

    def on(self, message: Message, sender: NodeId) -> bool:
        match message:
            case MatcherList():
                self._on_matcher_list(message, sender)
            case MatcherPresent(place) if self.is_mine:
                if sender not in self.matchers:
                    self.out.send(sender, self._matcher_list())
                self.matchers[sender], self._last_received[sender] = place, self.now
                self.candidates.pop(sender, None)  # F, 6
                self._promoted.pop(sender, None)
                self._lost.pop(sender, None)
            case MatcherRetired() if self.is_mine:
                self.matchers.pop(sender, None)
                self._last_received.pop(sender, None)
            case MatcherInsert(place) if self.is_mine:
                self._promote(place)
            case Candidate(node):
                # Forwarded at most once: only if it comes from the candidate itself.
                if self.is_mine or sender == node:
                    self.volunteer(message)
            case MatcherPresent() | MatcherRetired() | MatcherInsert():
                self._send_correction(sender)
            case _:
                return False
        return True

    def _on_matcher_list(self, announced: MatcherList, sender: NodeId) -> None:
        if announced.gateway == self.me:
            return
        claim, mine = (announced.term, announced.gateway), (self.term, self._gateway)
        if claim < mine:
            self._send_correction(sender)
            return
        if self.is_mine:  # this gateway gives way
            for offer in self._offers(self.candidates):
                self.out.send(announced.gateway, offer)
        if claim > mine:
            # Also to neighbours: the new gateway may not know all matchers of the old one.
            followers = [*self._mesh.enclosing(), *(self.matchers if self.is_mine else ())]
            known = (self.me, sender, announced.gateway)
            several = [site for site in dict.fromkeys(followers) if site not in known]
            if several:
                self.out.send_many(several, replace(announced, candidates=()))
            self._last_sent = -(2**62)
        self.term, self.gateway = claim
        self._gateway_received = self.now
        self.matchers = dict(announced.matchers)
        if announced.candidates:
            self.candidates = {c.node: Offer(self.now, c.capacity) for c in announced.candidates}

    @property
    def _gateway(self) -> int:
        return -1 if self.gateway is None else self.gateway

    def _send_correction(self, site: NodeId) -> None:
        """Tell a site that believes in an old gateway which one is right."""
        if self.is_mine:
            self.out.send(site, self._matcher_list())
        elif self.gateway is not None and self.gateway != site and site != self.me:
            self.out.send(site, MatcherList(self.term, self.gateway, tuple(self.matchers.items())))
