"""A matcher: a site, an engine that matches, and the clients whose subscriptions it owns.

Messages of clients are forwarded greedily to the matcher that they concern. A publication goes to
the owner of its centre, and from there to every matcher that its area touches. Each matches it
against its own records and its copies of others', and sends matches to their owners. Owners notify
their clients, each once ([VSO] IV-D and E).
"""

from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import TypeAlias

import msgspec

from nearcast.matching import MATCHERS
from nearcast.model.publication import Publication, wants
from nearcast.model.subscription import Filter, NodeId, PublicationId, Subscription, SubscriptionId
from nearcast.node import Message, Outbox
from nearcast.protocols.dedup import PublicationStates
from nearcast.protocols.voronoi.records import centre
from nearcast.protocols.voronoi.site import (
    GatewayChanged,
    MatcherResigned,
    OwnershipGiven,
    OwnershipTaken,
    Record,
    RecordChanged,
    RecordDropped,
    Site,
)
from nearcast.protocols.voronoi.vso.messages import (
    Alive,
    Cancel,
    Cast,
    Interest,
    Notify,
    OwnedSubscriptions,
    OwnerChanged,
    OwnerConfirmed,
    Place,
    Post,
    RegionUpdate,
    ReplicaMatch,
)
from nearcast.protocols.voronoi.vso.parameters import Parameters, microseconds
from nearcast.space.motion import SECOND, Time

MOST_HOPS = 256  # a message with so many hops goes in circles
MOST_PASSES = 4  # of a match, from owner to owner
REMEMBERED: Time = 10 * SECOND  # duplicates of a publication arrive within this

Carrying: TypeAlias = Post | Cast | ReplicaMatch

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[Filter | None, str, bool]).decode


def body_of(subscription: Subscription) -> bytes:
    """What a site need not know of a subscription, encoded."""
    return _encode((subscription.filter, subscription.channel, subscription.echo))


def subscription_of(record: Record) -> Subscription:
    """The subscription of a record; ValueError: its body is invalid."""
    return Subscription(record.id, record.client, record.region, *_decode(record.body))


class PublicationProgress(msgspec.Struct, gc=False):
    """What a matcher has done with a publication, so that duplicates change nothing.

    There are millions of them in a large simulation: a tuple takes a quarter of the room of a set.
    """

    matched: bool = False
    forwarded: bool = False
    notified: tuple[NodeId, ...] = ()


class VsoMatcher:
    """The matcher part of a node; `send` also reaches the client part of the same node."""

    def __init__(
        self,
        node_id: NodeId,
        out: Outbox,
        rng: Random,
        clock: Callable[[], Time],
        parameters: Parameters,
        send: Callable[[Sequence[NodeId], Message], None],
    ) -> None:
        self.id, self.out = node_id, out
        self.parameters = parameters
        self.site = Site(node_id, out, rng, clock, parameters)
        self.engine = MATCHERS[parameters.matcher]()
        self.clients: dict[NodeId, dict[SubscriptionId, None]] = {}  # owned subscriptions by client
        self.gateway: NodeId | None = None
        self.successor: NodeId | None = None  # once it has resigned
        self._clock, self._send = clock, send
        self._progress: PublicationStates[PublicationProgress] = PublicationStates(REMEMBERED)
        self._checked_silence: Time = clock()
        self._last_publications: dict[
            NodeId, tuple[Publication, int]
        ] = {}  # the last publication of each publisher, and its hops
        self._recall = microseconds(parameters.recall_ms)

    @property
    def resigned(self) -> bool:
        return self.site.resigned

    def found(self, place: Place) -> None:
        self.site.found(place)
        self._apply_site_events()

    def join(self, place: Place, contact: NodeId, gateway: NodeId) -> None:
        self.site.join(place, contact, gateway)
        self._apply_site_events()

    def abandon(self) -> None:
        self.site.abandon()
        self._apply_site_events()

    def tick(self, now: Time) -> None:
        self.site.tick(now)
        if now - self._checked_silence >= self.parameters.heartbeat:
            self._checked_silence = now
            self._drop_silent_clients(now)
            since = now - self._recall
            self._last_publications = {
                who: last for who, last in self._last_publications.items() if last[0].t >= since
            }
        self._apply_site_events()

    def on(self, message: Message, sender: NodeId) -> bool:
        """Handle a message for a matcher; False: it is none."""
        if not self._on_client(message, sender) and not self.site.on(message, sender):
            return False
        self._apply_site_events()
        return True

    def handle_publication(self, message: Carrying, sender: NodeId) -> None:
        """Handle a message with a publication, which changes no records."""
        if isinstance(message, ReplicaMatch):
            self._last_publications[message.publication.node] = message.publication, message.hops
            done = self._progress_of(message.publication.id)
            self._serve(
                message.publication, message.subscriptions, message.hops, message.passes, done
            )
        elif isinstance(message, Post):
            self._post(message.publication, message.hops, sender)
        else:
            self._cast(message, sender)

    def _on_client(self, message: Message, sender: NodeId) -> bool:
        match message:
            case RegionUpdate():
                self._update_region(message, sender)
            case Alive():
                self._alive(sender)
            case Interest():
                self._subscribe(message, sender)
            case Cancel():
                self._cancel(message, sender)
            case _:
                return False
        return True

    # Interests.

    def _subscribe(self, message: Interest, sender: NodeId) -> None:
        """[VSO] IV-D, 2 to 4: forward greedily to the site whose region has the centre."""
        wanted = message.subscription
        if message.hops == 1 and wanted.node != sender:
            self.out.note("refused", wanted.id)
            return
        known = self.site.record(wanted.id)
        hop = self.site.next_hop(centre(wanted.region, self._clock()))
        if known is not None and known.owner == self.id:
            hop = None  # if its centre has left, ownership is transferred as usual
        if hop is not None and message.hops < MOST_HOPS:
            self._forward(hop, msgspec.structs.replace(message, hops=message.hops + 1))
            return
        if (known is not None and known.client != wanted.node) or not self.site.ready:
            self.out.note("refused", wanted.id)  # another client's, or this site is not in the mesh
            return
        record = Record(
            wanted.id, wanted.node, wanted.region, message.version, message.epoch, self.id,
            body_of(wanted),
        )  # fmt: skip
        held = self.site.hold(record)
        if held is None:
            self.out.note("ignored", wanted.id)
            return
        if held is known:
            self._send((wanted.node,), OwnerConfirmed(held.id, held.epoch))
        else:
            self._index_record(held, first_served=known is None)

    def _update_region(self, message: RegionUpdate, sender: NodeId) -> None:
        known = self.site.record(message.subscription)
        if known is None:
            if message.hops == 1:
                self._send((sender,), OwnedSubscriptions(()))
        elif known.owner != self.id:
            if message.hops < MOST_PASSES:
                self._forward(known.owner, msgspec.structs.replace(message, hops=message.hops + 1))
        elif message.hops == 1 and sender != known.client:
            self.out.note("refused", known.id)
        else:
            self.site.client_is_alive(known.client)
            self.site.moved([known.id], [message.region], [message.version])
            moved = self.site.record(known.id)
            if moved is not None and moved is not known:
                self._index_record(moved)

    def _cancel(self, message: Cancel, sender: NodeId) -> None:
        known = self.site.record(message.subscription)
        forged = message.hops == 1 and message.client != sender
        if forged or (known is not None and known.client != message.client):
            self.out.note("refused", message.subscription)
        elif known is not None and known.owner != self.id and message.hops < MOST_PASSES:
            self._forward(known.owner, msgspec.structs.replace(message, hops=message.hops + 1))
        else:
            self.site.dropped(message.subscription, message.version)

    def _alive(self, client: NodeId) -> None:
        self.site.client_is_alive(client)
        held = []
        for subscription in self.clients.get(client, ()):
            record = self.site.record(subscription)
            if record is not None:
                held.append((record.id, record.version, record.epoch))
        self._send((client,), OwnedSubscriptions(tuple(held)))

    def _drop_silent_clients(self, now: Time) -> None:
        """[VSO] III-C: drop the subscriptions of clients that are gone."""
        limit = now - self.parameters.misses * self.parameters.heartbeat
        for client in self.site.silent_clients(self.clients, limit):
            for subscription in list(self.clients[client]):
                record = self.site.record(subscription)
                if record is not None:
                    self.site.dropped(subscription, record.version)
            self.out.note("unlinked", client)

    # Publications.

    def _post(self, publication: Publication, hops: int, sender: NodeId) -> None:
        """[VSO] IV-E, 1: forward to the owner of its centre."""
        if hops == 1 and publication.node != sender:
            self.out.note("refused", publication.id)
            return
        hop = self.site.entry(publication.shape)
        if hop is not None and hops < MOST_HOPS:
            self._forward(hop, Post(publication, hops + 1))
        else:
            self._spread(publication, hops, self.id)

    def _cast(self, message: Cast, sender: NodeId) -> None:
        publication = message.publication
        if message.onward:
            self._spread(publication, message.hops, sender)
        else:
            done = self._progress_of(publication.id)
            self._match(publication, message.hops, done)

    def _spread(self, publication: Publication, hops: int, sender: NodeId) -> None:
        """[VSO] IV-E, 2 to 4: match and cast. `sender`: this matcher itself at the root."""
        done = self._progress_of(publication.id)
        self._match(publication, hops, done)
        if done.forwarded:
            return
        done.forwarded = True
        further = self.site.cast(publication.shape, sender)
        if further:
            self.out.send_many(further, Cast(publication, hops + 1))
        if sender == self.id:
            previous_sites = self.site.previous_sites(publication.shape)
            if previous_sites:
                self.out.send_many(previous_sites, Cast(publication, hops + 1, onward=False))

    def _progress_of(self, publication: PublicationId) -> PublicationProgress:
        self._progress.forget(self._clock())
        done = self._progress.get(publication) or PublicationProgress()
        self._progress.put(publication, done)
        return done

    def _match(self, publication: Publication, hops: int, done: PublicationProgress) -> None:
        if done.matched:
            return
        done.matched = True
        self._last_publications[publication.node] = publication, hops
        self.site.activity(1)
        found = self.engine.match(publication, publication.t)
        if found:
            self._serve(publication, found, hops, 0, done)

    def _serve(
        self,
        publication: Publication,
        subscriptions: Iterable[SubscriptionId],
        hops: int,
        passes: int,
        done: PublicationProgress,
    ) -> None:
        """[VSO] IV-E, 2 and 5: notify own clients, send the rest to their owners."""
        records, me = self.site.ownership.records.named(subscriptions), self.id
        mine = [r.client for r in records if r.owner == me or passes >= MOST_PASSES]
        clients = tuple(dict.fromkeys(mine))
        if done.notified:
            clients = tuple(client for client in clients if client not in done.notified)
        if clients:
            done.notified += clients
            self._send(clients, Notify(publication, hops + 1))
        if len(mine) == len(records):
            return
        elsewhere: dict[NodeId, list[SubscriptionId]] = {}
        for record in records:
            if record.owner != me:
                elsewhere.setdefault(record.owner, []).append(record.id)
        for owner, several in elsewhere.items():
            self.out.send(owner, ReplicaMatch(publication, tuple(several), hops + 1, passes + 1))

    def _send_recent_publications(self, wanted: Subscription) -> None:
        """Send a new client the last publication of each recent publisher in its area.

        It delivers those that it wanted when they were made, and knows the other publishers.
        """
        now, client = self._clock(), wanted.node
        for publication, hops in list(self._last_publications.values()):
            if now - publication.t <= self._recall and wants(wanted, publication, now):
                done = self._progress_of(publication.id)
                if client not in done.notified:
                    done.notified += (client,)
                    self._send((client,), Notify(publication, hops + 1))

    # Events of the site.

    def _forward(self, to: NodeId, message: Message) -> None:
        if to != self.id:
            self.out.send(to, message)

    def _apply_site_events(self) -> None:
        for change in self.site.drain():
            match change:
                case RecordChanged(record):
                    self._index_record(record)
                case OwnershipTaken(record, claimed):
                    self._index_record(record, first_served=claimed)
                    self.clients.setdefault(record.client, {})[record.id] = None
                    self.out.note("owner", record.id, record.epoch)
                    self._send((record.client,), OwnerConfirmed(record.id, record.epoch))
                case OwnershipGiven(record):
                    self._index_record(record)
                    self._release(record.id, record.client)
                    self._send(
                        (record.client,), OwnerChanged(record.id, record.owner, record.epoch)
                    )
                case RecordDropped(subscription, client):
                    self.engine.drop(subscription)
                    self._release(subscription, client)
                case GatewayChanged(site):
                    self.gateway = site
                case MatcherResigned(successor):
                    self.successor = successor
                    self.out.note("resigned")
                case _:
                    pass

    def _index_record(self, record: Record, *, first_served: bool = False) -> None:
        """`first_served`: it had no owner before, or that one has died."""
        try:
            subscription = subscription_of(record)
            self.engine.put(subscription)
            if first_served:
                self._send_recent_publications(subscription)
        except (msgspec.MsgspecError, ValueError):
            self.out.note("refused", record.id)  # an invalid body

    def _release(self, subscription: SubscriptionId, client: NodeId) -> None:
        mine = self.clients.get(client)
        if mine is not None:
            mine.pop(subscription, None)
            if not mine:
                del self.clients[client]
