"""The gateway: who may be called in, who is here, and who follows when it dies (seed 003, IV-A, B).

The paper's gateway is the first matcher. Ours holds its role for a term. It tells every matcher,
once per heartbeat, who the matchers are, in order of seniority; matchers that hear nothing of it
for too long follow it in that order, each a moment later than the one before, in a higher term.
The two that are next know the candidates too. Of two gateways, which a divided network may have,
the later term wins (then the larger id); the losing one learns of it because each goes on for a
while to speak to those whom it lost.
"""

from collections.abc import Callable, Iterable, Iterator

from msgspec.structs import replace

from nearcast.model.subscription import NodeId
from nearcast.node import Message, Outbox
from nearcast.protocols.voronoi.mesh import Mesh
from nearcast.protocols.voronoi.vso_messages import (
    Candidate,
    MatcherInsert,
    MatcherList,
    MatcherPresent,
    MatcherRetired,
    Place,
    Promote,
    Term,
)
from nearcast.protocols.voronoi.vso_parameters import Parameters, microseconds
from nearcast.space.motion import SECOND, Time

HEIRS = 2  # matchers that know the candidates
REMEMBER_LOST: Time = 600 * SECOND


class GatewayRole:
    """The role as one site sees it, whether it plays it or not."""

    def __init__(
        self, out: Outbox, mesh: Mesh, clock: Callable[[], Time], parameters: Parameters
    ) -> None:
        self.me, self.out = mesh.id, out
        self.term: Term = 0
        self.gateway: NodeId | None = None
        self.matchers: dict[NodeId, Place] = {}  # in order of seniority
        self.candidates: dict[NodeId, Time] = {}  # when they last said so
        self._mesh, self._clock = mesh, clock
        self._beat = parameters.heartbeat
        self._misses = parameters.misses
        self._turn = 2 * microseconds(parameters.site_beat_ms)  # until the one after that follows
        self._heard: dict[NodeId, Time] = {}  # matchers, if I am the gateway
        self._lost: dict[NodeId, Time] = {}
        self._promised: dict[NodeId, tuple[Time, Place]] = {}  # who is called, when, and where to
        self._fresh = microseconds(parameters.fresh_ms)
        self._answer = microseconds(parameters.answer_ms)
        self._least = parameters.least
        self._said: Time = -(2**62)
        self._heard_realm: Time = 0

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
        """IV-A: the first matcher is the gateway."""
        self._take(1)

    def enter(self, gateway: NodeId) -> None:
        """A new matcher: as far as it knows, this is the gateway."""
        self._heard_realm = self.now
        self.gateway = gateway

    def insert(self, place: Place, level: float) -> None:
        """F, 3: I need help."""
        if self.is_mine:
            self._promote(place)
        elif self.gateway is not None:
            self.out.send(self.gateway, MatcherInsert(place, level))

    def volunteer(self, node: NodeId) -> None:
        """Here is a candidate: the gateway must know."""
        if self.is_mine:
            if node != self.me:
                self.candidates[node] = self.now
        elif self.gateway is not None:
            self.out.send(self.gateway, Candidate(node))

    def retire(self) -> None:
        if self.gateway is not None:
            self.out.send(self.gateway, MatcherRetired())

    @property
    def lacks_matchers(self) -> bool:
        """Am I the gateway of so few that another shall come, whatever the load, and can?"""
        few = self.is_mine and len(self.matchers) + len(self._promised) < self._least
        return few and bool(self._free())

    def went(self, site: NodeId) -> None:
        """The mesh says that a matcher has died."""
        if self.is_mine and site in self.matchers:
            self._heard[site] = -(2**62)
        elif not self.is_mine:
            self.matchers.pop(site, None)
            if site == self.gateway:  # who is next need not wait for as many heartbeats
                self._heard_realm = min(self._heard_realm, self.now - self._beat * self._misses)

    def tick(self, now: Time) -> None:
        if self.is_mine:
            self._check()
        elif now - self._heard_realm > self._beat * self._misses + self._turn * self._rank():
            self.out.note("gateway", self.me, self.term + 1)
            self._take(self.term + 1)
        if now - self._said >= self._beat:
            self._said = now
            self._speak()

    def _rank(self) -> int:
        heirs = [site for site in self.matchers if site != self.gateway]
        return heirs.index(self.me) if self.me in heirs else len(heirs)

    def _take(self, term: Term) -> None:
        self.term, self.gateway = term, self.me
        self.matchers[self.me] = self._place
        self._heard = dict.fromkeys(self.matchers, self.now)
        self._promised = {}
        self._said = -(2**62)

    def _check(self) -> None:
        limit = self.now - self._beat * self._misses
        for site in [site for site, heard in self._heard.items() if heard < limit]:
            if site != self.me:
                del self._heard[site]
                self.matchers.pop(site, None)
                self._lost[site] = self.now
        self._lost = {s: t for s, t in self._lost.items() if self.now - t < REMEMBER_LOST}
        # Candidates speak up five times as rarely as matchers do.
        limit = self.now - 5 * self._beat * self._misses
        self.candidates = {node: t for node, t in self.candidates.items() if t >= limit}
        for node, (called, place) in list(self._promised.items()):
            if self.now - called >= self._answer:
                del self._promised[node]
                self.candidates.pop(node, None)
                self._promote(place)

    def _speak(self) -> None:
        if not self.is_mine:
            if self.gateway is not None:
                self.out.send(self.gateway, MatcherPresent(self._place))
            return
        self.matchers[self.me] = self._place
        others = [site for site in self.matchers if site != self.me]
        if others[:HEIRS]:
            self.out.send_many(others[:HEIRS], self._realm(tuple(self._lately(self.candidates))))
        known = (self.me, *others[:HEIRS])
        rest = dict.fromkeys([*others[HEIRS:], *self._mesh.enclosing(), *self._lost])
        several = [site for site in rest if site not in known]
        if several:
            self.out.send_many(several, self._realm())

    def _realm(self, candidates: tuple[NodeId, ...] = ()) -> MatcherList:
        return MatcherList(self.term, self.me, tuple(self.matchers.items()), candidates)

    def _promote(self, place: Place) -> None:
        """F, 4: who has waited longest, of those who said lately that they are there."""
        free = self._free()
        if not free:
            self.out.note("no-candidate")
            return
        node = next(self._lately(free), max(free, key=self.candidates.__getitem__))
        self._promised[node] = self.now, place
        self.out.send(node, Promote(place, self.me))

    def _free(self) -> list[NodeId]:
        taken = (self._promised, self.matchers)
        return [node for node in self.candidates if not any(node in some for some in taken)]

    def _lately(self, candidates: Iterable[NodeId]) -> Iterator[NodeId]:
        return (n for n in candidates if self.now - self.candidates[n] <= self._fresh)

    def on(self, message: Message, sender: NodeId) -> bool:
        match message:
            case MatcherList():
                self._hear(message, sender)
            case MatcherPresent(place) if self.is_mine:
                if sender not in self.matchers:
                    self.out.send(sender, self._realm())
                self.matchers[sender], self._heard[sender] = place, self.now
                self.candidates.pop(sender, None)  # F, 6
                self._promised.pop(sender, None)
                self._lost.pop(sender, None)
            case MatcherRetired() if self.is_mine:
                self.matchers.pop(sender, None)
                self._heard.pop(sender, None)
            case MatcherInsert(place) if self.is_mine:
                self._promote(place)
            case Candidate(node):
                # Passed on once at most: who is no gateway and hears it from a matcher lets it be.
                if self.is_mine or sender == node:
                    self.volunteer(node)
            case MatcherPresent() | MatcherRetired() | MatcherInsert():
                self._correct(sender)
            case _:
                return False
        return True

    def _hear(self, realm: MatcherList, sender: NodeId) -> None:
        if realm.gateway == self.me:
            return
        reign, mine = (realm.term, realm.gateway), (self.term, self._gateway)
        if reign < mine:
            self._correct(sender)
            return
        if self.is_mine:  # I give way
            for node in self.candidates:
                self.out.send(realm.gateway, Candidate(node))
        if reign > mine:
            # From neighbour to neighbour too: the new one may not know all who followed the old.
            followers = [*self._mesh.enclosing(), *(self.matchers if self.is_mine else ())]
            known = (self.me, sender, realm.gateway)
            several = [site for site in dict.fromkeys(followers) if site not in known]
            if several:
                self.out.send_many(several, replace(realm, candidates=()))
            self._said = -(2**62)
        self.term, self.gateway = reign
        self._heard_realm = self.now
        self.matchers = dict(realm.matchers)
        if realm.candidates:
            self.candidates = dict.fromkeys(realm.candidates, self.now)

    @property
    def _gateway(self) -> int:
        return -1 if self.gateway is None else self.gateway

    def _correct(self, site: NodeId) -> None:
        """It speaks of, or to, a gateway that is none."""
        if self.is_mine:
            self.out.send(site, self._realm())
        elif self.gateway is not None and self.gateway != site and site != self.me:
            self.out.send(site, MatcherList(self.term, self.gateway, tuple(self.matchers.items())))
