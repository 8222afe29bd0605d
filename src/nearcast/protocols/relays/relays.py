"""Dissemination that asks neighbours for help: a part of a node, which any overlay can use.

An overlay finds out who wants to hear whom; how it gets there can be left to this part. It shares
the node's outbox and clock, and the overlay

* adds `messages.MESSAGES` to its codec, hands every message to `on` and every timer to `wake`,
  which say whether it was theirs, and then asks `drain` what has come: publications, with their
  hops, to be delivered to whichever interests want them;
* says `tell(publication, audience)` instead of sending it to each of the audience. An audience has
  for each peer how interested it is, 0 to 1;
* says who is acquainted: whom it hears or is heard by, N_v. Who is not is not listened to, except
  as a forwarder of a source that is, and has named it in the filter of its audience;
* says `leave` when the node goes.

For each peer of an audience there is a flow, which begins with a direct connection (seed 004, IV).
Once in an interval the peer performs one step, or as many as `steps` allows while it is overloaded:
of all options, as far as it can know (`options`), it takes the best if that gains ε, and asks whom
that concerns (`table` keeps flows whole meanwhile). A forwarder that dies is silent for `misses`
intervals, and its flows go directly from the next step on: all are restored within misses + 1
intervals. What the uplink cannot carry is withheld, and noted as such (`uplink`).
"""

from collections.abc import Mapping
from math import ceil

from msgspec.structs import replace

from nearcast.model.publication import Publication
from nearcast.model.subscription import NodeId
from nearcast.node import Message, Timer
from nearcast.protocols.relays import options
from nearcast.protocols.relays.cost_model import bandwidth_cost
from nearcast.protocols.relays.kernels import REDIR, SHORT
from nearcast.protocols.relays.messages import (
    MOST_HOPS,
    TICK,
    Accept,
    Flow,
    Redirect,
    Reject,
    RelayedPublication,
    Shorten,
    Status,
    StopForwarding,
    Update,
)
from nearcast.protocols.relays.options import Option, StepInput, Streams
from nearcast.protocols.relays.speech import OptimiseFlows, SendPackets, Speech
from nearcast.protocols.relays.uplink import HEADERS, MOST_TICKS
from nearcast.space.motion import SECOND, Time

SELDOM = 8  # intervals between words to neighbours with whom there is nothing else to do
MOST_WORDS = 0.02  # of an uplink for these, as long as that is enough to be remembered
WORD_BYTES = 64  # with headers, about
LINGER = 4  # intervals for which a flow stays open without anything for it
AGAIN = 16  # intervals after which all latencies are told again
SMOOTH = 0.5  # how much of an interval's traffic is taken over


class Relays(Speech):
    # What its user does.

    def tell(
        self, publication: Publication, audience: Mapping[NodeId, float], hops: int = 0
    ) -> None:
        """Let it reach them all, in the order of their interest if need be.

        `hops`: after how many messages it has come here, if somebody else has said it.
        """
        now = self._begin()
        onward: dict[NodeId, float] = {}
        for node, interest in audience.items():
            if node == self.id:
                continue
            entry = self.table.entries.get((self.id, node))
            if entry is None:
                entry = self.table.open((self.id, node), node, interest, 0, now)
                self._fresh[node] = None
                if entry is None:
                    self._out.note("withheld", publication.id)
                    continue
            entry.interest = interest
            self._last[node] = now
            for hop in self.table.sent_to(entry, now):
                onward[hop] = max(onward.get(hop, 0.0), interest)
        # However long its way was, there must be room for the one from here.
        piece = RelayedPublication(self.id, publication, min(hops, MOST_HOPS // 2), 0)
        self._count(piece)
        filtered = self._with_audience(piece)
        for to, interest in onward.items():
            fresh = filtered is None and to in self._fresh
            told = replace(piece, audience=self._told_audience[1]) if fresh else filtered or piece
            self._fresh.pop(to, None)
            self._put(to, told, interest, 0)
        self._flush()

    def on(self, message: Message, sender: NodeId) -> bool:
        """Was it a message of the relays? Then it has been heard, or refused."""
        if not isinstance(
            message, Update | Status | Redirect | Shorten | Accept | Reject | StopForwarding
        ):
            return False
        now = self._begin()
        if sender == self.id:
            return True
        match message:
            case Update(pieces, word):
                taken = [self._on_piece(sender, piece, now) for piece in pieces]
                if word is not None:
                    self._on_word(sender, word, now, any(taken))
                self._flush()
            case Status(word):
                self._on_word(sender, word, now, False)
            case Redirect():
                self._on_take(sender, message, now)
            case Shorten():
                self._on_skip(sender, message, now)
            case Accept() | Reject():
                self._on_answer(sender, message, now)
            case StopForwarding(source, destination):
                self.table.unlist((source, destination), sender)
        return True

    def wake(self, timer: Timer) -> bool:
        """Was it a timer of the relays?"""
        if isinstance(timer, SendPackets):
            self._flush()
        elif isinstance(timer, OptimiseFlows):
            self._tick(self._clock())
        return isinstance(timer, SendPackets | OptimiseFlows)

    def drain(self) -> list[tuple[Publication, int]]:
        """What has come since the last time, each once, and after how many messages."""
        arrived, self._arrived = self._arrived, []
        return arrived

    def leave(self) -> None:
        """Who relies on this peer hears so at once."""
        for flow, entry in self.table.entries.items():
            for lister in entry.listers:
                self._lost.setdefault(lister, {})[flow] = None
        for node in list(self._lost):
            self._say(node)

    # Operations.

    def _streams(self, now: Time) -> Streams:
        return Streams(self._rates, self._header, self.table.links(now))

    def _decide(self, now: Time) -> None:
        """Steps 1 to 3 of IV; again at once, if the uplink is overloaded and that is allowed."""
        recent = now - 2 * SELDOM * self._interval
        candidates = [
            node
            for node, known in self.neighbours.known.items()
            if known.capacity and known.heard >= recent and self._is_acquainted(node)
        ]
        streams = self._streams(now)
        load = self.load  # if all agree
        for _ in range(self.parameters.steps):
            view = StepInput(
                self.id, self.table, self.neighbours, streams, self._weights, load,
                self.uplink.capacity, (now - (self._begun or now)) / SECOND, self._ahead,
                self._last.__contains__, self._refusals,
            )  # fmt: skip
            option = options.best(view, candidates, now)
            if option is None or option.gain < self.parameters.epsilon:
                break
            self._ask(option, now)
            source, hop = option.flow[0], self.table.entries[option.flow].next
            load -= streams.saved(source, hop)
            if load <= self.uplink.capacity:
                break
            if option.kind == REDIR:
                asked = self.neighbours.known[option.whom]  # its next word says it better
                asked.load += (streams.rates.get(source, 0.0) + streams.header) / asked.capacity

    def _ask(self, option: Option, now: Time) -> None:
        flow, whom = option.flow, option.whom
        entry = self.table.entries[flow]
        number = self.table.ask(flow, option.kind, whom, now) % 2**32
        rest = min(entry.rest // TICK, MOST_TICKS)
        question = (
            Redirect(*flow, number, entry.next, entry.interest, rest, option.worth)
            if option.kind == REDIR
            else Shorten(*flow, number, entry.next, rest, option.worth)
        )
        self.uplink.take(question, now)
        self._out.send(whom, question)

    def _on_take(self, sender: NodeId, take: Redirect, now: Time) -> None:
        flow, onward = (take.source, take.destination), take.onward
        if not (self._is_acquainted(sender) and self._trusts(take.source, sender)):
            self._out.note("refused", sender)
            return
        self.neighbours.hear(sender, now, None)
        added = self._streams(now).added(take.source, onward)
        after = (self.load + added) / self.uplink.capacity
        costs = bandwidth_cost(self._weights, 0, after)
        costs -= bandwidth_cost(self._weights, 0, self.utilisation)
        worth_it = take.worth - costs >= self.parameters.epsilon
        agreed = worth_it and self.table.may_take(flow, onward) and sender != onward
        if agreed:
            rest = 0 if onward == flow[1] else take.rest * TICK
            self.table.open(flow, onward, min(max(take.interest, 0.0), 1.0), rest, now)
            self.load += added
        self._answer(sender, flow, take.number, onward, agreed, now)

    def _on_skip(self, sender: NodeId, skip: Shorten, now: Time) -> None:
        flow, onward = (skip.source, skip.destination), skip.onward
        if not self.table.may_skip(flow, sender, onward):
            if self._involves(sender) or self._is_acquainted(sender):
                self._answer(sender, flow, skip.number, onward, False, now)
            else:
                self._out.note("refused", sender)
            return
        streams = self._streams(now)
        change = streams.added(flow[0], onward) - streams.saved(flow[0], sender)
        after = (self.load + change) / self.uplink.capacity
        costs = bandwidth_cost(self._weights, after, 0)
        costs -= bandwidth_cost(self._weights, self.utilisation, 0)
        agreed = skip.worth - costs >= self.parameters.epsilon
        if agreed:
            entry = self.table.entries[flow]
            entry.next, entry.rest = onward, skip.rest * TICK
            self.load += change
        self._answer(sender, flow, skip.number, onward, agreed, now)
        if agreed:
            self._rely_on(onward, flow)

    def _answer(
        self, to: NodeId, flow: Flow, number: int, onward: NodeId, agreed: bool, now: Time
    ) -> None:
        known = self.neighbours.known.get(onward)
        leg = 0 if known is None or known.leg is None else max(1, known.leg // TICK)
        answer = (Accept if agreed else Reject)(*flow, number, min(leg, MOST_TICKS))
        self.uplink.take(answer, now)
        self._out.send(to, answer)

    def _on_answer(self, sender: NodeId, answer: Accept | Reject, now: Time) -> None:
        flow, agreed = (answer.source, answer.destination), isinstance(answer, Accept)
        entry = self.table.entries.get(flow)
        hop = None if entry is None else entry.next
        before = self._streams(now)
        question = self.table.answered(flow, sender, answer.number, agreed, now)
        if question is None or entry is None or hop is None:
            return  # too late: whoever has agreed will not be relied on
        self.neighbours.hear(sender, now, None)
        self.neighbours.learn_leg(sender, hop, answer.leg * TICK)
        if not agreed:
            self._refusals[flow, sender] = self._intervals + SELDOM
            return
        self.load = max(self.load - before.saved(flow[0], hop), 0.0)
        if question.kind == SHORT:
            self._out.note("shortened", flow[1])
            return
        self.load += before.added(flow[0], sender)
        entry.rest += self.neighbours.between(sender, hop)
        self._out.note("redirected", sender)
        self._rely_on(sender, flow)
        self._rely_on(hop, flow)  # for the last time: the forwarder's word takes a while

    # Intervals.

    def _tick(self, now: Time) -> None:
        self._intervals += 1
        self._measure()
        self._close_the_unwanted(now)
        self.table.forget(now)
        self._repair(now)
        self._give_back()
        self._refusals = {
            key: until for key, until in self._refusals.items() if until > self._intervals
        }
        if self.optimises:
            self._decide(now)
        self._kept = self.table.reliances(now)
        self._tell_back()
        self._speak(now)
        self.neighbours.forget(now - 4 * SELDOM * self._interval)
        self._out.set_timer(OptimiseFlows(), self._interval)

    def _measure(self) -> None:
        """What was to be sent in the last interval, and of whom."""
        per_second = SECOND / self._interval
        self.load += SMOOTH * (self.uplink.demand * per_second - self.load)
        links = len({entry.next for entry in self.table.entries.values()})
        if links:
            headers = HEADERS * self.uplink.packets * per_second / links
            self._header += SMOOTH * (headers - self._header)
        self.uplink.demand, self.uplink.packets = 0.0, 0
        heard, self._heard = self._heard, {}
        for source in [*self._rates, *(s for s in heard if s not in self._rates)]:
            rate = heard.get(source, 0) * per_second
            known = self._rates.get(source, rate)
            self._rates[source] = known + SMOOTH * (rate - known)
            if self._rates[source] < 1.0:
                del self._rates[source]
                self._ahead.pop(source, None)

    def _close_the_unwanted(self, now: Time) -> None:
        since = now - LINGER * self._interval
        for node in [node for node, t in self._last.items() if t < since]:
            del self._last[node]
            self._fresh.pop(node, None)
            entry = self.table.entries.get((self.id, node))
            if entry is not None:
                if entry.next != node:
                    self._drop(entry.next, (self.id, node), now)
                self.table.close((self.id, node))
            for other, entry in self.table.of(self.id).items():
                if entry.next == node:  # it hears this peer no more, and passes nothing on
                    self._drop(node, (self.id, other), now)
                    self.table.go_directly((self.id, other))

    def _drop(self, hop: NodeId, flow: Flow, now: Time) -> None:
        message = StopForwarding(*flow)
        self.uplink.take(message, now)
        self._out.send(hop, message)

    def _repair(self, now: Time) -> None:
        """Forwarders should be known to be alive (IV-B); who is silent is one no more."""
        since = now - self.parameters.misses * self._interval
        for flow, entry in list(self.table.entries.items()):
            gone = entry.next != flow[1] and self.neighbours.silent(entry.next, since)
            if gone:
                self._drop(entry.next, flow, now)
                self.table.go_directly(flow)
                self._out.note("repaired", flow[1])

    def _give_back(self) -> None:
        """Only who hears a source for its own sake passes it on: (u, s) in E."""
        given: dict[NodeId, None] = {}
        for source in dict.fromkeys(source for source, _ in self.table.entries):
            if source == self.id or self._is_audience_of(source):
                continue
            for destination, entry in self.table.of(source).items():
                for lister in entry.listers:
                    self._lost.setdefault(lister, {})[source, destination] = None
                    given[lister] = None
        for lister in given:
            self._say(lister)

    def _is_audience_of(self, source: NodeId) -> bool:
        unsaid = source not in self.neighbours.audiences
        return self._is_acquainted(source) and (unsaid or self.neighbours.hears(self.id, source))

    def _tell_back(self) -> None:
        """Latency from here on, to those before on the path, where it has changed."""
        if self._intervals % AGAIN == 0:
            self._said.clear()
        for flow, entry in self.table.entries.items():
            ticks = min((self.neighbours.leg(entry.next) + entry.rest) // TICK, MOST_TICKS)
            for lister in entry.listers:
                said = self._said.get((lister, flow))
                if said is None or abs(said - ticks) > max(50, said // 10):
                    self._said[lister, flow] = ticks
                    self._onward.setdefault(lister, {})[flow] = ticks

    def _seldom(self) -> Time:
        """So often a word goes to those with whom there is nothing else to do: on slow uplinks
        less often, as they would carry little else, and cannot take on anything anyway."""
        busy = WORD_BYTES * len(self.neighbours.known) / (MOST_WORDS * self.uplink.capacity)
        return min(max(SELDOM * self._interval, round(busy * SECOND)), 3 * SELDOM * self._interval)

    def _speak(self, now: Time) -> None:
        """To those who rely on this peer and those it relies on, where no update of the last
        interval has taken a word along; to the others now and then."""
        close = dict.fromkeys(self._kept)
        for entry in self.table.entries.values():
            close.update(dict.fromkeys(entry.listers))
        seldom = self._seldom()
        for node, known in list(self.neighbours.known.items()):
            quiet = self._interval if node in close else seldom
            silent = known.spoken is None or now - known.spoken >= ceil(quiet * 1.25)
            if silent and (node in close or self._is_acquainted(node)):
                self._say(node)
        for node in close:
            if node not in self.neighbours.known:
                self._say(node)
