"""Routing of publications between nodes, in batches: at each flush, one message for each node.

A publication is matched at once against the clients of its own node. Then it goes to the site that
owns its place (an area: to all sites that it touches, by VoroCast), and that site forwards it to
the homes of clients that may want it. A home accepts each publication once, whoever sends it, and
matches it against its clients' subscriptions as they were when it was made. So nothing is delivered
twice, and nothing depends on who knew what when.

Recent publications of the same publisher go along, so that order is kept (`ordering`).

A retained state goes to every node, so that each can answer who is near. If a publisher wants to
know how many subscriptions matched, every node is asked for its count.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TypeAlias

import numpy as np
from msgspec import Raw, Struct

from nearcast.client_protocol import messages
from nearcast.errors import Refused
from nearcast.matching.matcher import Batch, Floats, Integers
from nearcast.model.publication import check_attributes
from nearcast.model.subscription import NodeId, PublicationId
from nearcast.node import Outbox
from nearcast.protocols.voronoi.records import Flags
from nearcast.protocols.voronoi.site import Site
from nearcast.service.client_state import AcceptedPublication, ClientState
from nearcast.service.cluster.messages import (
    CLIENTS_ONLY,
    PREVIOUS_OWNER,
    SPREAD,
    TO_OWNER,
    CountReply,
    CountRequest,
    PublicationBatch,
    RemoteDirect,
    RemotePublication,
    RetainedStatesReport,
    hops_of,
    mode_code,
    mode_of,
)
from nearcast.service.cluster.ordering import OutgoingPublications, PublisherOrdering
from nearcast.service.cluster.realm import ClusterRealm
from nearcast.service.cluster.recent_history import NOT_SENT, PastFlush
from nearcast.service.cluster.remote_subscriptions import COUNT_BITS, RemoteSubscriptions, block_of
from nearcast.service.effects import Counted
from nearcast.service.recipients import AcceptedDirect
from nearcast.space.motion import SECOND, Time
from nearcast.space.shapes import POINT, Shape

MOST_HOPS = 16  # then it goes round in circles
LARGEST = 500_000  # bytes of payloads in one message
COUNTED: Time = SECOND  # how long to wait for the counts of other nodes


def remote_publication(accepted: AcceptedPublication, t: Time) -> RemotePublication:
    """As it travels between nodes; `t`: when it was flushed, if this node published it."""
    request, client = accepted.request, accepted.client
    retain = accepted.is_state
    return RemotePublication(
        accepted.id, client.entity, accepted.t or t, accepted.form.binary, request.x, request.y,
        bytes(request.payload), retain, request.attributes, request.channel, request.z,
        request.r, request.rx, request.ry, request.rz, client.name if retain else "",
        request.lon, request.lat, request.alt, request.ttl, retain and client.left,
    )  # fmt: skip


def publish_request(remote: RemotePublication) -> messages.PublishRequest:
    payload = Raw(remote.payload) if remote.payload else messages.NO_PAYLOAD
    return messages.PublishRequest(
        remote.x, remote.y, payload, remote.retain, remote.attributes, remote.channel, remote.z,
        remote.r, remote.rx, remote.ry, remote.rz,
        lon=remote.lon, lat=remote.lat, alt=remote.alt, ttl=remote.ttl,
    )  # fmt: skip


def encoding_of(packed: bool) -> messages.Encoding:
    return messages.MSGPACK if packed else messages.JSON


def remote_direct(message: AcceptedDirect) -> RemoteDirect:
    """A direct message as it goes to other nodes."""
    return RemoteDirect(
        message.number, message.source, message.name, message.t, message.to, message.form.binary,
        bytes(message.payload),
    )  # fmt: skip


class DeliveryCount(Struct):
    """How many subscriptions a publication matched, as far as nodes have answered."""

    t: Time
    readers: int
    unanswered: dict[NodeId, None]


# By index: sender, mode and hops with which a publication arrived.
ReceivedModes: TypeAlias = dict[int, tuple[NodeId, int, int]]
# By target: indices, and the code of each.
NextSites: TypeAlias = dict[NodeId, dict[int, int]]


class Routing:
    """Routes publications between nodes; each node accepts each publication once."""

    def __init__(
        self, realm: ClusterRealm, site: Callable[[], Site],
        remote_subscriptions: RemoteSubscriptions, out: Outbox,
        nodes: Callable[[], Collection[NodeId]],
    ) -> None:  # fmt: skip
        self._realm, self._site, self._nodes = realm, site, nodes
        self._remote_subscriptions = remote_subscriptions
        self._out, self._send = out, out.send
        self._block = block_of(site().id)
        # Publications of other nodes since the last flush: sender, mode and hops.
        self._received: dict[PublicationId, tuple[NodeId, int, int]] = {}
        self._counts: dict[PublicationId, DeliveryCount] = {}
        self._asked: list[tuple[NodeId, PublicationId]] = []  # who wants to know the count
        self._ordering = PublisherOrdering(realm.history)

    def receive(self, message: PublicationBatch | CountRequest, sender: NodeId) -> None:
        """Publications of another node: accepted for the next flush, unless they are known."""
        if isinstance(message, CountRequest):
            self._asked += [(sender, publication.id) for publication in message.publications]
            codes = bytes((CLIENTS_ONLY,)) * len(message.publications)
        else:
            codes = message.codes
        history, receive = self._realm.history, self._realm.receive_remote
        known: dict[int, list[PublicationId]] = {}
        others = {block_of(node) for node in self._nodes() if node != sender}
        for publication, code in zip(message.publications, codes, strict=True):
            number, way = publication.id, mode_of(code)
            made = number >> COUNT_BITS
            if made == self._block or not history.is_new(number):
                # It is known here, but perhaps this site must route it now: if there is a node
                # other than the sender and the one where it was published.
                if way != CLIENTS_ONLY and others - {made}:
                    known.setdefault(code, []).append(number)
                continue
            try:
                if publication.attributes:
                    check_attributes(publication.attributes)
                accepted = receive(
                    publication.entity, publication.name, number, publish_request(publication),
                    encoding_of(publication.packed), publication.t, publication.departed,
                )  # fmt: skip
            except (ValueError, Refused):
                continue
            if accepted:
                self._received[number] = sender, way, hops_of(code)
        routed = history.routed_among([one for several in known.values() for one in several])
        for code, several in known.items():
            unrouted = [one for one in several if one not in routed]
            self._route_known(unrouted, (sender, mode_of(code), hops_of(code)))

    def _route_known(self, known: list[PublicationId], came: tuple[NodeId, int, int]) -> None:
        """These are known here, and now this site has to route them."""
        late = []
        for publication in known:
            waiting = self._received.get(publication)
            if waiting is None:
                late.append(publication)
            elif waiting[1] == CLIENTS_ONLY or came[1] != PREVIOUS_OWNER:
                self._received[publication] = came
        history = self._realm.history
        for flush, _, chosen in reversed([*history.by_flush(history.columns.find(late))]):
            outgoing = self._outgoing()
            self._route(outgoing, flush, 0, dict.fromkeys(chosen.tolist(), came))
            self._send_outgoing(outgoing)

    def _outgoing(self) -> OutgoingPublications:
        return OutgoingPublications(self._realm.history.columns)

    def route_flush(
        self, flush: PastFlush, own: int, counted: Collection[PublicationId] = ()
    ) -> None:
        """Routes a flush: the first `own` publications are of this node, the others arrived.

        The matches of those in `counted` are counted on all nodes.
        """
        ways: ReceivedModes = {}
        for index, one in enumerate(flush.accepted[own:], own):
            came = self._received.pop(one.id)
            if came[1] != CLIENTS_ONLY:
                ways[index] = came
        outgoing = self._outgoing()
        here = self._route(outgoing, flush, own, ways)
        self._add_for_homes(
            outgoing, flush, *self._remote_subscriptions.match_moved(flush.publications, here)
        )
        if len(flush.retained):  # every node knows all retained states
            for node in self._nodes():
                self._ordering.add_for_home(outgoing, node, flush, flush.retained)
        self._send_outgoing(outgoing)
        if counted:
            self._request_counts(flush, counted)
        self._ordering.mark_sent(flush)
        self._site().activity(float(len(flush.publications)))

    def _route(
        self,
        outgoing: OutgoingPublications,
        flush: PastFlush,
        own: int,
        ways: ReceivedModes,
    ) -> Flags:
        """Sends the first `own` and those that arrived for this site to sites and homes.

        Returns which of them this site owns.
        """
        here = np.zeros(len(flush.publications), np.bool_)
        here[:own] = True
        here[list(ways)] = True
        for target, chosen in self._next_sites(flush.publications, ways, here).items():
            self._ordering.add_for_site(outgoing, target, flush, chosen)
        rows = self._ordering.for_this_site(self._site().id, flush, np.flatnonzero(here))
        self._forward_to_homes(outgoing, rows)
        return here

    def _forward_to_homes(self, outgoing: OutgoingPublications, rows: Integers) -> None:
        """Forwards these to the homes of clients that may want them."""
        history = self._realm.history
        routed = history.columns.routed
        rows = rows[routed[rows] == 0]
        routed[rows] = 1
        for flush, _, which in history.by_flush(rows[self._some_home_lacks(rows)]):
            self._add_for_homes(
                outgoing, flush, *self._remote_subscriptions.match_homes(flush.publications, which)
            )

    def _some_home_lacks(self, rows: Integers) -> Flags:
        """Is there a home that neither published it nor has been sent it?"""
        columns = self._realm.history.columns
        made, lacks = columns.ids[rows] >> COUNT_BITS, np.zeros(len(rows), np.bool_)
        for home in self._remote_subscriptions.homes:
            lacks |= (made != block_of(home)) & (columns.sent_to(home)[rows] == NOT_SENT)
        return lacks

    def _add_for_homes(
        self, outgoing: OutgoingPublications, flush: PastFlush, found: Integers, whose: Integers
    ) -> None:
        me = self._site().id
        for home in dict.fromkeys(whose.tolist()):
            if home != me:
                self._ordering.add_for_home(outgoing, home, flush, found[whose == home])

    def _send_outgoing(self, outgoing: OutgoingPublications) -> None:
        """One message for each node, or as many as its payloads need."""
        chosen = outgoing.rows()
        if not len(chosen):  # as at nearly every tick
            return
        remote: dict[int, RemotePublication] = {}  # by row
        for flush, rows, which in self._realm.history.by_flush(chosen):
            several = zip(rows.tolist(), which.tolist(), strict=True)
            remote |= {row: remote_publication(flush.accepted[i], flush.t) for row, i in several}
        for node, codes, rows in outgoing.entries():
            publications = [remote[row] for row in rows.tolist()]
            for first, last in _split_by_size(publications):
                self._send(
                    node, PublicationBatch(codes[first:last], tuple(publications[first:last]))
                )

    def send_recent_to(self, entity: NodeId, node: NodeId) -> None:
        """This client publishes there from now on: send its recent publications first."""
        outgoing = self._outgoing()
        self._ordering.add_missing(outgoing, node, entity)
        self._send_outgoing(outgoing)

    def _next_sites(self, publications: Batch, ways: ReceivedModes, here: Flags) -> NextSites:
        """The sites that must get them next. Clears `here` for own ones that others own."""
        site = self._site()
        further: NextSites = {}
        own = site.id, TO_OWNER, 0
        spread = here.copy()
        spread[[index for index, (_, way, _) in ways.items() if way == PREVIOUS_OWNER]] = False
        point = publications.kind == POINT
        asked = np.flatnonzero(spread & point)
        centres = publications.centre[asked, :2]
        owners = self._owners(site, centres)
        for index, owner in zip(
            asked[owners != site.id].tolist(), owners[owners != site.id].tolist(), strict=True
        ):
            hops = ways.get(index, own)[2]
            here[index] = index in ways  # in doubt both sites route it
            if hops < MOST_HOPS:
                further.setdefault(owner, {})[index] = mode_code(TO_OWNER, hops + 1)
        # While borders move, the previous owner may have copies which this site still waits for.
        before, alive = site.owners_before(centres), self._nodes()
        if before is not None:
            others = (owners == site.id) & (before != site.id)
            for index, elder in zip(asked[others].tolist(), before[others].tolist(), strict=True):
                if elder in alive:
                    further.setdefault(elder, {}).setdefault(index, PREVIOUS_OWNER)
        for index in np.flatnonzero(spread & ~point).tolist():
            sender, way, hops = ways.get(index, own)
            shape = publications.publications[index].shape
            entry = site.entry(shape) if way == TO_OWNER and hops < MOST_HOPS else None
            if entry is not None:
                here[index] = index in ways
                further.setdefault(entry, {})[index] = mode_code(TO_OWNER, hops + 1)
                continue
            for target in _cast_targets(site, shape, site.id if way == TO_OWNER else sender):
                further.setdefault(target, {})[index] = mode_code(SPREAD, hops + 1)
            previous_sites = site.previous_sites(shape) if way == TO_OWNER else ()
            for previous in (one for one in previous_sites if one in alive):
                further.setdefault(previous, {}).setdefault(index, PREVIOUS_OWNER)
        return further

    def _owners(self, site: Site, centres: Floats) -> Integers:
        if site.ready:
            return site.mesh.owners(centres)
        hops = (site.heir((x, y)) for x, y in centres.tolist())
        return np.array([site.id if hop is None else hop for hop in hops], np.int64)

    # Counts of deliveries.

    def _request_counts(self, flush: PastFlush, counted: Collection[PublicationId]) -> None:
        """Asks every node for the counts that publishers of this flush want."""
        asked = [one for one in flush.accepted if one.id in counted]
        publications = [remote_publication(one, flush.t) for one in asked]
        for node in self._nodes():
            for first, last in _split_by_size(publications):
                self._send(node, CountRequest(tuple(publications[first:last])))

    def count_here(self, publication: PublicationId, t: Time, readers: int) -> None:
        """So many subscriptions of this node's clients match; other nodes have been asked."""
        count = DeliveryCount(t, readers, dict.fromkeys(self._nodes()))
        self._counts[publication] = count
        self._finish_count(publication, count)

    def on_count_reply(self, reply: CountReply, sender: NodeId) -> None:
        for publication, readers in reply.counts:
            count = self._counts.get(publication)
            if count is not None and sender in count.unanswered:
                del count.unanswered[sender]
                count.readers += readers
                self._finish_count(publication, count)

    def _finish_count(self, publication: PublicationId, count: DeliveryCount) -> None:
        if not count.unanswered:
            self._give_count(publication, count)

    def _give_count(self, publication: PublicationId, count: DeliveryCount) -> None:
        del self._counts[publication]
        self._out.put(Counted(publication, count.t, count.readers, len(count.unanswered)))

    def expire_counts(self, now: Time) -> None:
        """Some nodes do not answer: what is known by now must do."""
        for publication, count in list(self._counts.items()):
            if now - count.t > COUNTED:
                self._give_count(publication, count)

    def answer_counts(self) -> None:
        """Answers count requests, once the publications have been matched."""
        if self._asked and not self._realm.has_remote_waiting:
            asked, self._asked = self._asked, []
            for node, publication in asked:
                readers = self._realm.history.count_deliveries(publication)
                self._send(node, CountReply(((publication, readers),)))

    # States.

    def send_states(self, nodes: Iterable[NodeId], clients: Sequence[ClientState]) -> None:
        """Sends the retained states of these clients to these nodes."""
        realm = self._realm
        for left in False, True:
            states = [
                remote_publication(s.accepted, s.t)
                for client in clients
                if client.left == left
                for s in realm.retained_states(client)
            ]
            for first, last in _split_by_size(states):
                for node in nodes:
                    report = RetainedStatesReport(realm.now, tuple(states[first:last]), left)
                    self._send(node, report)

    def on_states(self, message: RetainedStatesReport, sender: NodeId) -> None:
        for state in message.states:
            what = (
                state.entity, state.name, publish_request(state), encoding_of(state.packed),
                state.id, state.t,
            )  # fmt: skip
            try:
                if message.departed:
                    self._realm.learn_departed_state(*what)
                else:
                    self._realm.learn_state(message.t, sender, *what)
            except (ValueError, Refused):
                continue

    def send_missed(self, now: Time, flush: Sequence[PastFlush]) -> None:
        """Sends recent publications to homes whose subscriptions have just become known here."""
        outgoing, columns = self._outgoing(), self._realm.history.columns
        for one, which, home in self._remote_subscriptions.match_missed(now, flush):
            # The others are other sites' business.
            chosen = which[columns.routed[columns.rows(one).start + which] == 1]
            if len(chosen):
                self._ordering.add_for_home(outgoing, home, one, chosen)
        self._send_outgoing(outgoing)


def _cast_targets(site: Site, area: Shape, sender: NodeId) -> list[NodeId]:
    """The sites to which this one forwards a cast. One that has just left the mesh forwards it to
    all that it knows there: they have its region now, and what they know already they ignore."""
    if site.mesh.me is not None:
        return site.cast(area, sender)
    return [other for other in site.representatives if other != sender]


def _split_by_size(several: Sequence[RemotePublication]) -> Iterable[tuple[int, int]]:
    """Ranges that fit into one message each."""
    first = size = 0
    for at, publication in enumerate(several, 1):
        size += len(publication.payload) + 256
        if size > LARGEST or at == len(several):
            yield first, at
            first, size = at, 0
