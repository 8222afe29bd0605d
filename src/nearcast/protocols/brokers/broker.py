"""A broker: sessions with its neighbours and clients, and the forwarding of publications.

Each link has a session at either end. A broker that starts, or that has given up a neighbour,
begins a new session. The other end then forgets all that came over the link and sends everything
again. So start, restart and reconnection are the same operation. Heartbeats carry a digest of what
was sent; a receiver whose own digest differs twice in a row sends an inventory and gets the rest.

The network is a tree, in which each broker chooses the one above it (`ancestors`). When that one is
silent for too long, the broker links with another, and takes along all that are below it. Should
links form a ring for a moment, a publication that comes a second way is not passed on.
"""

from collections.abc import Sequence
from random import Random

from msgspec.structs import replace

from nearcast.model.publication import Publication
from nearcast.model.subscription import NodeId, Subscription, SubscriptionId
from nearcast.node import Message, Node, Timer
from nearcast.protocols.brokers.ancestors import MOST_NAMED, Ancestors
from nearcast.protocols.brokers.messages import (
    Adjust,
    Advertise,
    Bye,
    Cancel,
    EntryName,
    Heartbeat,
    Hello,
    Interest,
    Inventory,
    Notify,
    Pass,
    Post,
    Session,
    Unadvertise,
    UnknownClient,
)
from nearcast.protocols.brokers.parameters import MILLISECOND, Parameters
from nearcast.protocols.brokers.parametric import with_values
from nearcast.protocols.brokers.routes import RoutedInterest, RoutingTable
from nearcast.protocols.dedup import PublicationStates, publication_key
from nearcast.protocols.overlay import FIRST_SERVER
from nearcast.space.motion import SECOND, Time

SETTLING_TIME: Time = SECOND  # without a new entry for so long, tables have settled
# How often counters of engines are noted: worlds begin at a whole tenth of a second, so no note is
# about set-up and workload at once.
REPORT_INTERVAL: Time = SECOND // 10
WAYS_REMEMBERED: Time = 10 * SECOND  # a ring lasts no longer
COUNTERS = ("evaluations", "faults", "fallbacks")  # of engines that count


class CheckLinks(Timer, frozen=True):
    """Send heartbeats, and give up neighbours and clients that have sent none."""


class RefreshMatcher(Timer, frozen=True):
    """A matching engine is due for a refresh."""


class ReportCounters(Timer, frozen=True):
    """Note the counters of the matching engines in the trace."""


class CheckSettled(Timer, frozen=True):
    """Has nothing changed for a while?"""


class BrokerLink:
    """A neighbour, and the sessions at both ends."""

    def __init__(self, mine: Session) -> None:
        self.mine = mine
        self.theirs: Session | None = None  # None: they have not answered
        self.last_received: Time = 0
        self.mismatches = 0  # digests in a row that differ from what was received


class Broker(Node):
    """A server of the overlay. It routes by `RoutingTable` and matches by the engines that
    subscribers choose."""

    def __init__(
        self, node_id: NodeId, rng: Random, parameters: Parameters, neighbours: Sequence[NodeId],
        above: Sequence[NodeId] = (), beside: Sequence[NodeId] = (),
    ) -> None:  # fmt: skip
        """`neighbours`: with which it links first. `above`: the brokers above it in the tree, the
        nearest first; without any, it is the root. `beside`: those below the root."""
        super().__init__(node_id, rng)
        self.parameters = parameters
        self.neighbours = tuple(neighbours)
        self.ancestors = Ancestors(node_id, above, beside)
        self.ways: PublicationStates[NodeId] = PublicationStates(WAYS_REMEMBERED)
        self.skew = round(rng.uniform(-1, 1) * parameters.skew_ms * MILLISECOND)
        self.links: dict[NodeId, BrokerLink] = {}
        self.clients: dict[NodeId, BrokerLink] = {}
        self.matcher = parameters.engine()
        self.routes = RoutingTable(self, parameters.covering)
        # An engine knows numbers, not names; a name keeps its number while it is known.
        self.numbers: dict[EntryName, SubscriptionId] = {}
        self.names: dict[SubscriptionId, EntryName] = {}
        self.issued = 0
        self.sessions = 0
        self.refreshed: Time | None = None  # when the next refresh is planned for
        self.counted = dict.fromkeys(COUNTERS, 0)
        self.changed: Time = 0
        self.settled = False

    @property
    def clock(self) -> Time:
        return max(0, self.now + self.skew)

    @property
    def ready(self) -> bool:
        return self.settled and all(link.theirs for link in self.links.values())

    def on_start(self) -> None:
        for neighbour in self.neighbours:
            self._greet(neighbour)
        self.out.set_timer(CheckSettled(), SETTLING_TIME)
        if self.parameters.heartbeat:
            self.out.set_timer(CheckLinks(), self.parameters.heartbeat)
        self.out.set_timer(ReportCounters(), REPORT_INTERVAL)

    def _new_session(self) -> Session:
        """A number that no session of an earlier run of this broker had."""
        self.sessions = max(self.sessions + 1, self.now + 1)
        return self.sessions

    # Messages.

    def on_message(self, sender: NodeId, message: Message) -> None:
        if sender < FIRST_SERVER:
            self._receive_from_client(sender, message)
        elif isinstance(message, Hello) and message.below:
            self._take_in(sender, message)
        elif sender in self.links:
            self._receive_from_neighbour(sender, self.links[sender], message)
        else:
            self.out.note("refused", sender)  # a broker, but no neighbour
            if isinstance(message, Hello | Heartbeat):
                self.out.send(sender, Bye())

    def _receive_from_neighbour(self, sender: NodeId, link: BrokerLink, message: Message) -> None:
        if isinstance(message, Hello):
            self._on_hello(sender, link, message)
            return
        if isinstance(message, Bye):
            self._unlink(sender)
            return
        if not link.theirs:
            self.out.note("ignored", sender)  # of a session that is over
            return
        link.last_received = self.now
        match message:
            case Pass(publication, hops):
                self._route_publication(publication, hops, sender)
            case Heartbeat(digest, above, beside):
                self._compare(sender, link, digest)
                if sender == self.parent and not self.ancestors.learn(above, beside):
                    self._turn_upward()
            case Inventory():
                self.routes.complete(sender, message)
            case Advertise() | Unadvertise() | Interest() | Adjust() | Cancel():
                self._update_table(sender, message)
            case _:
                self.out.note("ignored", sender)

    def _receive_from_client(self, sender: NodeId, message: Message) -> None:
        link = self.clients.get(sender)
        if isinstance(message, Hello):
            if link is None or link.mine != message.mine:  # else a copy of the network
                self._attach(sender, message.mine)
            return
        if link is None:
            if not isinstance(message, Bye):
                self.out.send(sender, UnknownClient())
            return
        link.last_received = self.now
        match message:
            case Post(publication):
                if publication.node != sender or not self.routes.allows(sender, publication):
                    self.out.note("refused", publication.id)
                else:
                    self._route_publication(publication, 1, sender)
            case Heartbeat(digest):
                self._compare(sender, link, digest)
                self.out.send(sender, Heartbeat(0, *self._place_in_tree()))
            case Bye():
                self._detach(sender)
            case Advertise() | Unadvertise() | Interest() | Adjust() | Cancel():
                if _author(message) != sender:
                    self.out.note("refused", sender)  # a client changes only its own entries
                else:
                    self._update_table(sender, message)
            case _:
                self.out.note("ignored", sender)

    def _update_table(
        self, hop: NodeId, message: Advertise | Unadvertise | Interest | Adjust | Cancel
    ) -> None:
        routes = self.routes
        first = self._is_new_entry(message)
        match message:
            case Advertise(advertisement, version):
                is_newer = routes.advertise(hop, advertisement, version)
            case Unadvertise(node, number, version):
                is_newer = routes.unadvertise((node, number), version)
            case Interest(subscription, version, sent):
                is_newer = routes.put(RoutedInterest(subscription, version, hop, sent))
            case Adjust(node, number, version, values):
                known = routes.entries.get((node, number))
                if known is None or known.hop != hop:
                    self.out.note("ignored", number)  # the digests will differ, which repairs it
                    return
                try:
                    adjusted = with_values(known.subscription, values)
                except ValueError:
                    self.out.note("refused", number)
                    return
                is_newer = routes.put(
                    RoutedInterest(adjusted, version, hop, known.sent, adjusted=True)
                )
            case Cancel(node, number, version):
                is_newer = routes.cancel((node, number), version)
        if not is_newer:
            self.out.note("ignored", hop)  # a newer version was here before
        elif first:
            self.changed = self.now
            if self.settled:
                self.settled = False
                self.out.set_timer(CheckSettled(), SETTLING_TIME)

    def _is_new_entry(self, message: Advertise | Unadvertise | Interest | Adjust | Cancel) -> bool:
        """Is it about something that was never known? Repeated interests do not count, or tables
        would never settle."""
        if isinstance(message, Interest):
            name = message.subscription.node, message.subscription.id
            return not self.routes.has_known(name)
        return isinstance(message, Advertise | Unadvertise)

    # Sessions.

    def _take_in(self, sender: NodeId, hello: Hello) -> None:
        """A broker wants to be below this one; it may be so already."""
        if self._has_parent() and sender in self.ancestors.above:
            self.out.note("refused", sender)  # links would form a ring
            self.out.send(sender, Bye())
            return
        if sender == self.parent:  # each has asked the other
            if self.id > sender:
                return
            self._unlink(sender)
        link = self.links.get(sender)
        if link is None:
            link = self.links[sender] = BrokerLink(self._new_session())
        self._on_hello(sender, link, hello)

    def _has_parent(self) -> bool:
        link = None if self.parent is None else self.links.get(self.parent)
        return link is not None and link.theirs is not None

    def _on_hello(self, sender: NodeId, link: BrokerLink, hello: Hello) -> None:
        link.last_received = self.now
        if hello.mine != link.theirs:
            self.routes.close(sender)
            if not link.theirs:
                self.out.note("linked", sender)
            link.theirs, link.mismatches = hello.mine, 0
            self._send_hello(sender, link)
            self.routes.open(sender)
        elif hello.yours != link.mine:
            self._send_hello(sender, link)

    @property
    def parent(self) -> NodeId | None:
        return self.ancestors.parent

    def _greet(self, neighbour: NodeId) -> None:
        link = self.links[neighbour] = BrokerLink(self._new_session())
        link.last_received = self.now
        self._send_hello(neighbour, link)

    def _send_hello(self, neighbour: NodeId, link: BrokerLink) -> None:
        self.out.send(neighbour, Hello(link.mine, link.theirs, neighbour == self.parent))

    def _unlink(self, neighbour: NodeId) -> None:
        """It is gone, or has other neighbours now. Whoever is below it looks for us, not we."""
        if self.links.pop(neighbour).theirs:
            self.out.note("unlinked", neighbour)
            self.routes.close(neighbour)
        if neighbour == self.parent:
            self._turn_upward()

    def _turn_upward(self) -> None:
        """Link with the next broker above, or with the same again if there is no other."""
        former = self.parent
        assert former is not None, "the root looks for nobody"
        if (link := self.links.pop(former, None)) is not None and link.theirs:
            self.out.note("unlinked", former)
            self.routes.close(former)
        chosen = self.ancestors.turn()
        while chosen in self.links:  # it is below us
            chosen = self.ancestors.turn()
        if chosen is None or chosen == former:
            self._greet(former)
            return
        self.out.send(former, Bye())
        self._greet(chosen)

    def _place_in_tree(self) -> tuple[tuple[NodeId, ...], tuple[NodeId, ...]]:
        """What those below must know: who is above this broker, and who beside whom."""
        if self._has_parent():
            return self.ancestors.above[:MOST_NAMED], self.ancestors.beside
        below = (name for name, link in self.links.items() if link.theirs)
        return (), tuple(sorted(below)[:MOST_NAMED])

    def _attach(self, client: NodeId, session: Session) -> None:
        self._detach(client)
        link = self.clients[client] = BrokerLink(session)
        link.last_received = self.now
        self.out.note("linked", client)
        self.out.send(client, Hello(self._new_session(), session))

    def _detach(self, client: NodeId) -> None:
        if self.clients.pop(client, None) is not None:
            self.out.note("unlinked", client)
            self.routes.close(client)

    def _compare(self, sender: NodeId, link: BrokerLink, digest: int) -> None:
        """The digest of what the sender has sent, with what was received. One mismatch may be a
        message under way."""
        link.mismatches = (
            link.mismatches + 1 if digest != self.routes.digest_received_from(sender) else 0
        )
        if link.mismatches == 2:
            link.mismatches = 0
            self.out.note("repaired", sender)
            self.out.send(sender, self.routes.inventory(sender))

    def on_timer(self, timer: Timer) -> None:
        match timer:
            case CheckLinks():
                self._check_links()
                self.out.set_timer(CheckLinks(), self.parameters.heartbeat)
            case RefreshMatcher():
                self.refreshed = None
                self.matcher.refresh(self.clock)
                self._plan_refresh()
            case ReportCounters():
                self._report()
                self.out.set_timer(ReportCounters(), REPORT_INTERVAL)
            case CheckSettled():
                rest = self.changed + SETTLING_TIME - self.now
                self.settled = rest <= 0
                if not self.settled:
                    self.out.set_timer(CheckSettled(), rest)

    def _check_links(self) -> None:
        patience = self.parameters.misses * self.parameters.heartbeat
        place = self._place_in_tree()
        for neighbour, link in list(self.links.items()):
            waits = link.theirs or neighbour == self.parent
            if waits and self.now - link.last_received > patience:
                self._unlink(neighbour)
            elif not link.theirs:
                self._send_hello(neighbour, link)
            else:
                told = () if neighbour == self.parent else place
                digest = self.routes.digest_sent_to(neighbour)
                self.out.send(neighbour, Heartbeat(digest, *told))
        for client, link in list(self.clients.items()):
            if self.now - link.last_received > patience:
                self._detach(client)

    # Publications.

    def _route_publication(self, publication: Publication, hops: int, sender: NodeId) -> None:
        key = publication_key(publication)
        first = self.ways.get(key)
        if first is None:
            self.ways.forget(self.now)
            self.ways.put(key, sender)
        elif first != sender:
            self.out.note("ignored", publication.id)  # it came another way before
            return
        at = publication.t if self.parameters.moment == "publication" else self.clock
        clients: dict[NodeId, list[SubscriptionId]] = {}
        links: dict[NodeId, None] = {}
        for number in self.matcher.match(publication, at):
            name = self.names[number]
            hop = self.routes.entries[name].hop
            if hop in self.links:
                links[hop] = None
            else:
                clients.setdefault(hop, []).append(name[1])
        for link in sorted(links):
            if link != sender:  # one copy per link, and never back
                self.out.send(link, Pass(publication, hops + 1))
        for client, wanted in sorted(clients.items()):
            self.out.send(client, Notify(publication, tuple(sorted(wanted)), hops + 1))

    # What the routing table calls.

    def send(self, to: NodeId, message: Message) -> None:
        self.out.send(to, message)

    def add_interest(self, entry: RoutedInterest) -> None:
        name = entry.name
        number = self.numbers.get(name)
        if number is None:
            number = self.issued
            self.issued += 1
            self.numbers[name], self.names[number] = number, name
        subscription = entry.subscription
        if self.parameters.stamp == "arrival":
            subscription = with_later_submission(subscription, self.clock - entry.sent)
        self.matcher.put(replace(subscription, id=number))
        self._plan_refresh()

    def remove_interest(self, name: EntryName) -> None:
        number = self.numbers.pop(name)
        del self.names[number]
        self.matcher.drop(number)
        self._plan_refresh()

    def _plan_refresh(self) -> None:
        due = self.matcher.due()
        if due is not None and due <= self.clock:
            self.matcher.refresh(self.clock)
            due = self.matcher.due()
        if due is not None and due != self.refreshed:
            self.refreshed = due
            self.out.set_timer(RefreshMatcher(), max(1, due - self.clock))

    def _report(self) -> None:
        for counter, before in self.counted.items():
            count = self.matcher.count(counter)
            if count != before:
                self.out.note(counter, None, float(count - before))
                self.counted[counter] = count


def _author(message: Advertise | Unadvertise | Interest | Adjust | Cancel) -> NodeId:
    if isinstance(message, Advertise):
        return message.advertisement.node
    return message.subscription.node if isinstance(message, Interest) else message.node


def with_later_submission(subscription: Subscription, by: int) -> Subscription:
    """As if submitted so much later: by a broker that takes an interest's arrival for its start."""
    region, filter_ = subscription.region, subscription.filter
    try:
        return replace(
            subscription,
            region=region.stamped(max(0, region.since + by)),
            filter=filter_ and filter_.stamped(max(0, filter_.since + by)),
        )
    except ValueError:
        return subscription  # it would end after all times
