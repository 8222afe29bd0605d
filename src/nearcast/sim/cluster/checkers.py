"""What must hold in a simulated cluster; a violation is an InvariantError, and the run ends.

At every moment: nothing is delivered twice, neither on a connection nor to an application; each
publisher's publications arrive in order. In calm: no two servers send a client the same; no two
sites own a record in one epoch for long; a record is owned where its area is; nobody who is there
is said to be gone; who has left is soon listed nowhere; servers that stand by come and go no more
often than the load rises and falls, and do come when all others are overloaded. When no fault
lasts: no two sites own a record for longer than `LONGEST_SHARED`. At the end: nothing was delivered
that nobody asked for, and a fault explains every miss, also of a direct message. When the cluster
has recovered from the last fault: every client is served by one server, which knows all its
subscriptions and does not stand by; every subscription has one owner, every server knows exactly
the living states, and what is published from then on is delivered exactly.

Order has one exception, which the protocol documents (`service.cluster.realm.OVERDUE`): what was
under way during a fault may arrive after later publications, if it is not older than that.

A fault explains a miss near it in time if it was one of the subscriber, or of a server on the way
of the publication: that of the publisher, that of the subscriber, and those whose sites were
nearest to the place since shortly before the fault, which know who wants the publication. In a
partition, and while messages of a script's choice are lost, every server may be concerned. What is
published and wanted on the same server, no other has to know: links between servers explain no miss
of that.
"""

from collections.abc import Callable, Iterable, Sequence
from math import dist
from typing import TypeAlias

from msgspec import Struct

from nearcast.client.received import Message
from nearcast.client_protocol import messages
from nearcast.errors import InvariantError
from nearcast.model.subscription import NodeId, PublicationId, SubscriptionId
from nearcast.protocols.voronoi.vso.messages import Place
from nearcast.service.cluster.realm import OVERDUE
from nearcast.service.cluster.remote_subscriptions import COUNT_BITS, block_of
from nearcast.service.cluster.scaling import Role
from nearcast.sim.cluster.agreement import SHOWN, owned_records
from nearcast.sim.cluster.client_host import ClientHost
from nearcast.sim.cluster.server_host import ServerHost, SimulatedConnection
from nearcast.sim.cluster.truth import DueDeliveries, Pair
from nearcast.space.motion import FOREVER, SECOND, Time

# By publication and subscription: the connections on which it has arrived.
Arrivals: TypeAlias = dict[tuple[PublicationId, int], tuple[SimulatedConnection, ...]]

BEFORE: Time = 2 * SECOND  # a fault may lose what was under way for so long
AFTER: Time = 10 * SECOND  # and by then servers agree again who wants what
OF_LINKS = ("cut off", "link broken")  # faults of links between servers, which no client needs
LONGEST_LISTED: Time = 2 * SECOND  # in calm: by then all servers know that a client has left
LONGEST_OUTSIDE: Time = 5 * SECOND  # likewise: by then another site owns what has crossed a border
LONGEST_TIED: Time = 2 * SECOND  # likewise: by then digests have told of two owners in one epoch
LONGEST_ALONE: Time = 8 * SECOND  # likewise, after `high_s`: by then another server is called in
# When no fault lasts any more: by then sites that could not reach each other agree who owns what.
LONGEST_SHARED: Time = 5 * SECOND


class FaultSpan(Struct):
    """A fault: from when to when, and of which client; None: of servers; which, if not of all."""

    fact: str
    begin: Time
    end: Time
    client: NodeId | None = None
    servers: frozenset[NodeId] | None = None

    def is_near(self, begin: Time, end: Time) -> bool:
        return self.begin - BEFORE <= end and begin <= self.end + AFTER

    def concerns(self, client: NodeId) -> bool:
        """Was it one of this client, or of any server?"""
        return self.client is None or self.client == client


class FaultLog:
    """All faults of a run. One that has not ended lasts."""

    def __init__(self) -> None:
        self.spans: list[FaultSpan] = []

    def add(
        self, fact: str, begin: Time, end: Time, client: NodeId | None = None,
        servers: Iterable[NodeId] | None = None,
    ) -> FaultSpan:  # fmt: skip
        touched = None if servers is None else frozenset(servers)
        span = FaultSpan(fact, begin, end, client, touched)
        self.spans.append(span)
        return span

    @property
    def of_servers(self) -> bool:
        """Has there been any fault but of single clients?"""
        return any(span.client is None for span in self.spans)

    def explains(self, begin: Time, end: Time, client: NodeId) -> bool:
        """Was there a fault of this client, or of any server?"""
        return any(span.concerns(client) for span in self.spans if span.is_near(begin, end))

    def last_of_servers(self, now: Time) -> Time:
        """Until when a server had a fault: until now, if it lasts."""
        ends = [span.end for span in self.spans if span.client is None and span.begin <= now]
        return min(now, max(ends, default=0))


class Whereabouts:
    """Which servers served an entity, and whose sites were nearest to a place, at which time."""

    def __init__(self) -> None:
        self._homes: dict[NodeId, list[tuple[Time, NodeId]]] = {}  # by entity: since when
        self._sites: list[tuple[Time, dict[NodeId, Place]]] = []

    def welcomed(self, now: Time, entity: NodeId, server: NodeId) -> None:
        self._homes.setdefault(entity, []).append((now, server))

    def look_at(self, now: Time, servers: Iterable[ServerHost]) -> None:
        """Called now and then."""
        sites = [(server.id, server.service.cluster.site) for server in servers]
        self._sites.append((now, {number: site.place for number, site in sites if site.ready}))

    def homes(self, entity: NodeId, begin: Time, end: Time) -> set[NodeId]:
        """The servers that served it then, and the one before."""
        known = self._homes.get(entity, [])
        before = [server for t, server in known if t < begin][-1:]
        return {*before, *(server for t, server in known if begin <= t <= end)}

    def nearest(self, place: Place, begin: Time, end: Time) -> set[NodeId]:
        """The servers whose sites were nearest to it then, and at the look before."""
        looks = [sites for t, sites in self._sites if begin - SECOND <= t <= end and sites]
        return {min(sites, key=lambda one: dist(sites[one], place)) for sites in looks}


class ScalingChecker:
    """Have clients come since the last server stood down, when one is called in? Have clients left
    since the last one was called in, when one stands down? Otherwise servers come and go without
    need."""

    def __init__(self) -> None:
        self._clients = self._least = self._most = 0
        self.reset()

    def reset(self) -> None:
        """Other servers have come or gone, so who is needed changes."""
        self._calling: bool | None = None  # the last change, if any
        self._then = 0  # the clients that explain it

    def count(self, clients: int) -> None:
        """So many clients are present now."""
        self._clients = clients
        self._least, self._most = min(self._least, clients), max(self._most, clients)

    def changes(self, calling: bool) -> str | None:
        """A server is called in, or has stood down. What is wrong?"""
        peak, before, was = (self._most if calling else self._least), self._then, self._calling
        self._calling, self._then = calling, peak
        self._least = self._most = self._clients
        if was in (None, calling):
            return None
        if calling and peak <= before:
            return f"a server was called in again, though no more than {peak} clients came"
        if not calling and peak >= before:
            return f"a server has stood down again, though no fewer than {peak} clients stayed"
        return None


class SentDirect(Struct):
    """A direct message between two clients, and when it was refused, if it was."""

    t: Time
    sender: NodeId
    recipient: NodeId
    refused: str = ""
    heard: bool = False


class DirectChecker:
    """Each direct message is heard once, by the client that it is for; a fault of one of the two,
    or of a server, explains why one was not, or was refused."""

    def __init__(self, faults: FaultLog, now: Callable[[], Time]) -> None:
        self._faults, self._now = faults, now
        self.messages: dict[int, SentDirect] = {}

    def sent(self, number: int, sender: NodeId, recipient: NodeId) -> None:
        self.messages[number] = SentDirect(self._now(), sender, recipient)

    def refused(self, number: int, why: Exception) -> None:
        self.messages[number].refused = str(why)

    def received(self, number: int, client: NodeId) -> None:
        message = self.messages[number]
        if message.recipient != client:
            raise InvariantError(
                f"at {self._now()} client {client} heard what was sent to {message.recipient}"
            )
        if message.heard:
            raise InvariantError(f"at {self._now()} client {client} heard message {number} twice")
        message.heard = True

    def judge(self, exact_since: Time) -> None:
        """At the end: what was not heard, or was refused, has an explanation."""
        for number, one in self.messages.items():
            clients = (one.sender, one.recipient)
            explained = any(self._faults.explains(one.t, one.t, client) for client in clients)
            if (one.refused or not one.heard) and (one.t >= exact_since or not explained):
                raise InvariantError(
                    f"message {number}, sent at {one.t} by {one.sender} to {one.recipient}, was not"
                    f" heard, and no fault explains it: {one.refused or 'it was not refused'}"
                )


class ClusterChecker:
    """Watches the deliveries of a run, and judges it at its end."""

    def __init__(self, faults: FaultLog, now: Callable[[], Time], skew: Time) -> None:
        self._faults, self._now, self._skew = faults, now, skew
        self.due = DueDeliveries()
        self.direct = DirectChecker(faults, now)
        self.whereabouts = Whereabouts()
        self.scaling = ScalingChecker()
        self._delivered: dict[Pair, NodeId] = {}
        self._clients: dict[NodeId, NodeId] = {}  # by entity
        # By client, which entity it is, and on which connections what has arrived.
        self._arrived: dict[NodeId, tuple[NodeId, Arrivals]] = {}
        self._gone: dict[NodeId, Time] = {}  # by entity: when it left or crashed
        # By subscription and owner: since when its area has been another site's.
        self._outside: dict[tuple[SubscriptionId, NodeId], Time] = {}
        self._shared: dict[SubscriptionId, Time] = {}  # since when two sites have owned it
        self._tied: dict[tuple[SubscriptionId, int], Time] = {}  # likewise in one epoch
        self._alone_since: Time = 0  # when some server was last not overloaded, or helped
        self._latest: dict[tuple[ClientHost, NodeId], tuple[Time, PublicationId]] = {}

    # While it runs.

    def arrived(self, connection: SimulatedConnection, notice: messages.MessageNotice) -> None:
        """A message has arrived at its client, by this connection."""
        client = connection.client_end
        entity, arrivals = self._arrived.get(client.machine, (-1, {}))
        if entity != connection.entity:  # it has joined anew, and may be sent everything
            arrivals = {}
            self._arrived[client.machine] = connection.entity, arrivals
        for number in notice.to:
            what = notice.publication, number
            before = arrivals.get(what, ())
            if connection in before:
                self._fail(f"publication {notice.publication} came twice on one connection")
            if before and not self._faults.explains(self._now(), self._now(), client.machine):
                self._fail(
                    f"two servers have sent publication {notice.publication} to client"
                    f" {client.machine}, without a fault"
                )
            arrivals[what] = *before, connection

    def gone(self, client: ClientHost) -> None:
        """A client has left, or has crashed."""
        self._gone[client.entity] = self._now()

    def welcomed(self, client: ClientHost, entity: NodeId, server: NodeId) -> None:
        self._clients[entity] = client.number
        self.whereabouts.welcomed(self._now(), entity, server)

    def delivered(
        self, client: ClientHost, connection: SimulatedConnection, message: Message, again: bool,
        subscriptions: Iterable[SubscriptionId],
    ) -> None:  # fmt: skip
        """The application of a client has got a message."""
        for subscription in subscriptions:
            pair = message.publication, subscription
            if pair in self._delivered:
                self._fail(f"{client.name} got publication {message.publication} twice")
            self._delivered[pair] = client.number
        if again or client.is_late(connection):
            return
        key, made = (client, message.source), (message.t, message.publication)
        latest = self._latest.get(key, (0, 0))
        if made > latest:
            self._latest[key] = made
        elif not self._may_be_late(client, message.t, connection.sent_at[message.publication]):
            self._fail(
                f"{client.name} got publication {message.publication} of {message.source}, made at"
                f" {message.t}, after {latest[1]}, made at {latest[0]}"
            )

    def _may_be_late(self, client: ClientHost, made: Time, sent: Time) -> bool:
        """A client that does not read gets it later than its server has sent it."""
        most = OVERDUE + 2 * self._skew + SECOND
        return sent - made < most and self._faults.explains(made, self._now(), client.number)

    def reported_gone(self, client: ClientHost) -> None:
        """Somebody who watches was told that this one is gone, though it is there."""
        withdraws = client.withdraws[1] > 0  # then it was, a moment ago
        if not withdraws and not any(span.concerns(client.number) for span in self._faults.spans):
            self._fail(f"{client.name} was said to be gone, and is there")

    def lost_server(self, client: ClientHost, reason: str) -> None:
        """A client has lost its connection, and no fault of its own did that."""
        now = self._now()
        if not self._faults.explains(now, now, client.number):
            self._fail(f"{client.name} has lost its connection without a fault: {reason}")

    def role_changes(self, calling: bool, servers: Iterable[ServerHost]) -> None:
        """A server is called in, or has stood down."""
        if any(server.service.cluster.stopping for server in servers):
            self.scaling.reset()
            return
        wrong = self.scaling.changes(calling)
        if wrong is not None and not self._faults.of_servers:
            self._fail(wrong)

    def look_at(self, servers: Iterable[ServerHost]) -> None:
        """Called now and then. While servers cannot reach each other, two may claim one record;
        then the higher number wins (`voronoi.ownership`)."""
        servers = list(servers)
        self.whereabouts.look_at(self._now(), servers)
        self._check_shared(servers)
        if self._faults.of_servers:
            return
        self._check_epochs(servers)
        self._check_places(servers)
        self._check_gone(servers)
        self._check_helped(servers)

    def _check_shared(self, servers: Iterable[ServerHost]) -> None:
        """No two sites own a record for long, unless a fault lasts."""
        now, before, self._shared = self._now(), self._shared, {}
        since_fault = self._faults.last_of_servers(now)
        owners: dict[SubscriptionId, NodeId] = {}
        for server in servers:
            for record in owned_records(server):
                other = owners.setdefault(record.id, server.id)
                if other == server.id:
                    continue
                since = self._shared[record.id] = before.get(record.id, now)
                if now - max(since, since_fault) > LONGEST_SHARED:
                    self._fail(
                        f"sites {other} and {server.id} have both owned subscription {record.id}"
                        f" since {since}"
                    )

    def _check_epochs(self, servers: Iterable[ServerHost]) -> None:
        """No two sites own a record in the same epoch for long. An owner that reclaims it, because
        the next one was late, and that one, which has handed it on, may choose the same epoch; the
        copies or digests that they send tell them, and the larger number keeps it."""
        now, before, self._tied = self._now(), self._tied, {}
        owners: dict[tuple[SubscriptionId, int], NodeId] = {}
        for server in servers:
            for record in owned_records(server):
                key = record.id, record.epoch
                other = owners.setdefault(key, server.id)
                if other == server.id:
                    continue
                since = self._tied[key] = before.get(key, now)
                if now - since > LONGEST_TIED:
                    self._fail(
                        f"sites {other} and {server.id} own subscription {record.id}"
                        f" in epoch {record.epoch} since {since}"
                    )

    def _check_places(self, servers: Iterable[ServerHost]) -> None:
        """The site at the centre of a record's area owns it, or does so soon."""
        now, before, self._outside = self._now(), self._outside, {}
        for server in servers:
            site = server.service.cluster.site
            records = site.ownership.records
            mine = records.owned_by(server.id)
            if not len(mine) or not site.ready:
                continue
            owners = site.mesh.owners(records.centres(mine, server.now))
            for record in records.of(mine[owners != server.id]):
                key = record.id, server.id
                since = self._outside[key] = before.get(key, now)
                if now - since > LONGEST_OUTSIDE:
                    self._fail(
                        f"site {server.id} has owned subscription {record.id} since {since},"
                        " though its area is another site's"
                    )

    def _check_gone(self, servers: Iterable[ServerHost]) -> None:
        """Nobody lists who has left a while ago, but with states that outlive them."""
        since = self._now() - LONGEST_LISTED
        overdue = {entity for entity, t in self._gone.items() if t < since}
        for server in servers if overdue else ():
            outlived = {client.entity for client in server.realm.departed_clients()}
            ghosts = overdue.intersection(one.entity for one in server.states()) - outlived
            if ghosts:
                self._fail(f"server {server.id} lists {sorted(ghosts)[:SHOWN]}, who have left")
        for entity in overdue:
            del self._gone[entity]

    def _check_helped(self, servers: Sequence[ServerHost]) -> None:
        """If all that are active have too much to do, those that stand by do not for long."""
        active = [one.service.cluster.scaling for one in servers if one.role is Role.ACTIVE]
        waiting = [one for one in servers if one.role is Role.STANDING_BY]
        overloaded = all(one.share > one.parameters.high for one in active)
        if not (active and waiting and overloaded and len(active) + len(waiting) == len(servers)):
            self._alone_since = self._now()
        elif self._now() - self._alone_since > LONGEST_ALONE + active[0].parameters.high_s * SECOND:
            self._fail(
                f"all active servers have been overloaded since {self._alone_since}, and"
                f" {len(waiting)} stand by"
            )

    def _fail(self, what: str) -> None:
        raise InvariantError(f"at {self._now()} {what}")

    # At the end.

    def judge_deliveries(self, exact_since: Time = FOREVER) -> None:
        """Nothing was delivered in vain, and only faults explain what was missed: nothing of what
        was published from `exact_since` on."""
        due, made = self.due.pairs(), self.due.made
        spurious = sorted(pair for pair in self._delivered if pair not in due)
        if spurious:
            examples = [(made.get(p), p, s) for p, s in spurious[:SHOWN]]
            self._fail(
                f"{len(spurious)} deliveries that nobody asked for"
                f" (made at, publication, subscription): {examples}"
            )
        missed = sorted((made[p], p, s) for p, s in due if (p, s) not in self._delivered)
        places = self.due.places() if missed else {}
        wrong = [
            (t, p, s)
            for t, p, s in missed
            if t >= exact_since or not self._is_explained(t, p, places[p], self.due.subscriber(s))
        ]
        if wrong:
            self._fail(
                f"{len(wrong)} deliveries are missing and no fault explains it"
                f" (made at, publication, subscription): {wrong[:SHOWN]}"
            )
        self.missed, self.expected = len(missed), len(due)

    def _is_explained(
        self, t: Time, publication: PublicationId, place: Place, subscriber: NodeId
    ) -> bool:
        """Was a fault near in time, of the subscriber or of a server on the way?"""
        near = [span for span in self._faults.spans if span.is_near(t, t)]
        if any(span.client == self._clients[subscriber] for span in near):
            return True
        whereabouts, publisher = self.whereabouts, publication >> COUNT_BITS
        homes = whereabouts.homes(subscriber, t - AFTER, t + AFTER)
        if {block_of(home) for home in homes} == {publisher}:
            near = [span for span in near if span.fact not in OF_LINKS]
        for span in near:
            if span.client is None and span.servers is None:
                return True
            nearest = whereabouts.nearest(place, min(span.begin, t) - BEFORE, t + BEFORE)
            if any(
                one in homes or one in nearest or block_of(one) == publisher
                for one in span.servers or ()
            ):
                return True
        return False
