"""A matcher: a site, an engine that matches, and the clients whose subscriptions it owns.

What a client says goes greedily to the matcher that it concerns. A publication goes to the owner of
its centre, and from there to every matcher that its area touches; each matches it against all that
it knows, its own records and copies of others', and tells the owners of what it finds; owners
notify their clients, each of them once (seed 003, IV-D and E).
"""

from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import TypeAlias

import msgspec

from nearcast.matching import MATCHERS
from nearcast.model.publication import Publication, wants
from nearcast.model.subscription import Filter, NodeId, PublicationId, Subscription, SubscriptionId
from nearcast.node import Message, Outbox
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
from nearcast.protocols.voronoi.vso_messages import (
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
from nearcast.protocols.voronoi.vso_parameters import Parameters, microseconds
from nearcast.space.motion import SECOND, Time

MOST_HOPS = 256  # a message that has come so far goes round in circles
MOST_PASSES = 4  # of what was found, from owner to owner
REMEMBERED: Time = 10 * SECOND  # a second copy of a publication comes within this

Carrying: TypeAlias = Post | Cast | ReplicaMatch

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[Filter | None, str, bool]).decode


def body_of(subscription: Subscription) -> bytes:
    """What a site need not know of a subscription."""
    return _encode((subscription.filter, subscription.channel, subscription.echo))


def subscription_of(record: Record) -> Subscription:
    """ValueError if the body is none of ours."""
    return Subscription(record.id, record.client, record.region, *_decode(record.body))


class PublicationProgress:
    """What a matcher has done with a publication: a second copy of it changes nothing."""

    __slots__ = ("forwarded", "matched", "notified")

    def __init__(self) -> None:
        self.matched = self.forwarded = False
        self.notified: set[NodeId] = set()


class ProgressByPublication:
    """The publications of the last seconds; older ones are forgotten in bulk."""

    def __init__(self) -> None:
        self._now: dict[PublicationId, PublicationProgress] = {}
        self._before: dict[PublicationId, PublicationProgress] = {}
        self._turned: Time = 0

    def done(self, publication: PublicationId, now: Time) -> PublicationProgress:
        if now - self._turned > REMEMBERED:
            self._before, self._now, self._turned = self._now, {}, now
        done = self._now.get(publication)
        if done is None:
            done = self._now[publication] = self._before.get(publication) or PublicationProgress()
        return done


class VsoMatcher:
    """A part of a node; `send` knows how to reach another part of the same node."""

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
        self.clients: dict[NodeId, dict[SubscriptionId, None]] = {}  # whose I own what of
        self.gateway: NodeId | None = None
        self.successor: NodeId | None = None  # once it has resigned
        self._clock, self._send = clock, send
        self._lately = ProgressByPublication()
        self._swept: Time = clock()
        self._said: dict[NodeId, tuple[Publication, int]] = {}  # the last word of each, and hops
        self._recall = microseconds(parameters.recall_ms)

    @property
    def resigned(self) -> bool:
        return self.site.resigned

    def found(self, place: Place) -> None:
        self.site.found(place)
        self._settle()

    def join(self, place: Place, contact: NodeId, gateway: NodeId) -> None:
        self.site.join(place, contact, gateway)
        self._settle()

    def abandon(self) -> None:
        self.site.abandon()
        self._settle()

    def tick(self, now: Time) -> None:
        self.site.tick(now)
        if now - self._swept >= self.parameters.heartbeat:
            self._swept = now
            self._drop_the_silent(now)
            since = now - self._recall
            self._said = {who: last for who, last in self._said.items() if last[0].t >= since}
        self._settle()

    def on(self, message: Message, sender: NodeId) -> bool:
        """Was it a matcher's message? Then it has been heard."""
        if not self._on_client(message, sender) and not self.site.on(message, sender):
            return False
        self._settle()
        return True

    def carry(self, message: Carrying, sender: NodeId) -> None:
        """What carries a publication: it changes nothing that a site knows."""
        if isinstance(message, ReplicaMatch):
            self._said[message.publication.node] = message.publication, message.hops
            done = self._lately.done(message.publication.id, self._clock())
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
                self._shift(message, sender)
            case Alive():
                self._alive(sender)
            case Interest():
                self._subscribe(message)
            case Cancel():
                self._cancel(message)
            case _:
                return False
        return True

    # Interests.

    def _subscribe(self, message: Interest) -> None:
        """D, 2 to 4: greedily to whose region the centre is in."""
        wanted = message.subscription
        known = self.site.record(wanted.id)
        hop = self.site.next_hop(centre(wanted.region, self._clock()))
        if known is not None and known.owner == self.id:
            hop = None  # if its centre has left, it will be handed over as a whole
        if hop is not None and message.hops < MOST_HOPS:
            self._forward(hop, msgspec.structs.replace(message, hops=message.hops + 1))
            return
        if (known is not None and known.client != wanted.node) or not self.site.ready:
            self.out.note("refused", wanted.id)  # nobody speaks for another
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
            self._index(held, unserved=known is None)

    def _shift(self, message: RegionUpdate, sender: NodeId) -> None:
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
            self.site.heard(known.client)
            self.site.moved([known.id], [message.region], [message.version])
            moved = self.site.record(known.id)
            if moved is not None and moved is not known:
                self._index(moved)

    def _cancel(self, message: Cancel) -> None:
        known = self.site.record(message.subscription)
        if known is not None and known.client != message.client:
            self.out.note("refused", known.id)
        elif known is not None and known.owner != self.id and message.hops < MOST_PASSES:
            self._forward(known.owner, msgspec.structs.replace(message, hops=message.hops + 1))
        else:
            self.site.dropped(message.subscription, message.version)

    def _alive(self, client: NodeId) -> None:
        self.site.heard(client)
        held = []
        for subscription in self.clients.get(client, ()):
            record = self.site.record(subscription)
            if record is not None:
                held.append((record.id, record.version, record.epoch))
        self._send((client,), OwnedSubscriptions(tuple(held)))

    def _drop_the_silent(self, now: Time) -> None:
        """III-C: a client that is gone takes its subscriptions with it."""
        limit = now - self.parameters.misses * self.parameters.heartbeat
        for client in self.site.silent(self.clients, limit):
            for subscription in list(self.clients[client]):
                record = self.site.record(subscription)
                if record is not None:
                    self.site.dropped(subscription, record.version)
            self.out.note("unlinked", client)

    # Publications.

    def _post(self, publication: Publication, hops: int, sender: NodeId) -> None:
        """E, 1: on to where it belongs."""
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
            done = self._lately.done(publication.id, self._clock())
            self._match(publication, message.hops, done)

    def _spread(self, publication: Publication, hops: int, sender: NodeId) -> None:
        """E, 2 to 4. `sender` is this matcher itself where the cast begins."""
        done = self._lately.done(publication.id, self._clock())
        self._match(publication, hops, done)
        if done.forwarded:
            return
        done.forwarded = True
        further = self.site.cast(publication.shape, sender)
        if further:
            self.out.send_many(further, Cast(publication, hops + 1))
        if sender == self.id:
            elders = self.site.elders(publication.shape)
            if elders:
                self.out.send_many(elders, Cast(publication, hops + 1, onward=False))

    def _match(self, publication: Publication, hops: int, done: PublicationProgress) -> None:
        if done.matched:
            return
        done.matched = True
        self._said[publication.node] = publication, hops
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
        """E, 2 and 5: mine are notified, others' owners are told."""
        records, me = self.site.ownership.records.named(subscriptions), self.id
        mine = [r.client for r in records if r.owner == me or passes >= MOST_PASSES]
        clients = dict.fromkeys(mine)
        if done.notified:
            clients = {client: None for client in clients if client not in done.notified}
        if clients:
            done.notified.update(clients)
            self._send(tuple(clients), Notify(publication, hops + 1))
        if len(mine) == len(records):
            return
        elsewhere: dict[NodeId, list[SubscriptionId]] = {}
        for record in records:
            if record.owner != me:
                elsewhere.setdefault(record.owner, []).append(record.id)
        for owner, several in elsewhere.items():
            self.out.send(owner, ReplicaMatch(publication, tuple(several), hops + 1, passes + 1))

    def _tell_who_is_there(self, wanted: Subscription) -> None:
        """The last word of each who spoke there lately.

        What its client wanted when that was said is heard late; of the rest it knows the speaker.
        """
        now, client = self._clock(), wanted.node
        for publication, hops in list(self._said.values()):
            if now - publication.t <= self._recall and wants(wanted, publication, now):
                notified = self._lately.done(publication.id, now).notified
                if client not in notified:
                    notified.add(client)
                    self._send((client,), Notify(publication, hops + 1))

    # What the site says.

    def _forward(self, to: NodeId, message: Message) -> None:
        if to != self.id:
            self.out.send(to, message)

    def _settle(self) -> None:
        for change in self.site.drain():
            match change:
                case RecordChanged(record):
                    self._index(record)
                case OwnershipTaken(record, claimed):
                    self._index(record, unserved=claimed)
                    self.clients.setdefault(record.client, {})[record.id] = None
                    self.out.note("owner", record.id, record.epoch)
                    self._send((record.client,), OwnerConfirmed(record.id, record.epoch))
                case OwnershipGiven(record):
                    self._index(record)
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

    def _index(self, record: Record, *, unserved: bool = False) -> None:
        """`unserved`: nobody has served it before, or he has died."""
        try:
            subscription = subscription_of(record)
            self.engine.put(subscription)
            if unserved:
                self._tell_who_is_there(subscription)
        except (msgspec.MsgspecError, ValueError):
            self.out.note("refused", record.id)  # a body that is no subscription

    def _release(self, subscription: SubscriptionId, client: NodeId) -> None:
        mine = self.clients.get(client)
        if mine is not None:
            mine.pop(subscription, None)
            if not mine:
                del self.clients[client]
