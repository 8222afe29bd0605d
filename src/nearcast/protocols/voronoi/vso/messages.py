"""Messages between clients, matchers and the gateway of VSO; letters are sections of [VSO] IV.

client                      matcher                    matcher                    client
  │── Interest ───────────────▶│── Interest (greedy) ────▶│ owns the centre        D. subscribe
  │◀───────────────────────────────── OwnerConfirmed ─────│── RecordCopies ──▶ replicas, a backup
  │── RegionUpdate ───────────────────────────────────────▶│── RegionUpdates ─▶ replicas
  │── Post ───────────────────▶│── Cast (VoroCast) ──────▶│                        E. publish
  │                            │◀────── ReplicaMatch ─────│ a replica matches: tell the owner
  │◀──────────────── Notify ───│                          │── Notify ─────────────▶│
  │                            │── Transfer ─────────────▶│ the centre has moved   G. ownership
  │◀────────── OwnerChanged ───│◀─────── TransferAck ─────│
  │── Alive ──────────────────▶│ a silent client is forgotten
  │◀──── OwnedSubscriptions ───│ the answer to Alive
  │                            │── Digest ───────────────▶│ of the copies that you should have
  │                            │◀────────── Inventory ────│ if the digest differs: what I have
  │                            │── RecordCopies, CopiesReleased, RecordsEnded ─▶ the difference

matcher                     gateway                    candidate
  │── MatcherPresent ─────────▶│◀─────────── Candidate ───│                        B. join
  │◀─────────── MatcherList ───│ all matchers, in the order of succession
  │── MatcherInsert ──────────▶│── Promote ──────────────▶│── joins the mesh       F. load
  │── MoveCloser ─▶ its enclosing matchers

GatewayQuery and GatewayKnown: see `peer`.

Only the client raises the version of a subscription; each change of owner raises its epoch. The
newest version of the content wins, and the largest (epoch, owner): no epoch has two owners.
"""

from typing import Annotated, ClassVar, TypeAlias

from msgspec import Meta, Struct

from nearcast.model.publication import Publication
from nearcast.model.subscription import (
    NodeId,
    PublicationId,
    Region,
    Subscription,
    SubscriptionId,
)
from nearcast.node import Message, Priority, Real
from nearcast.protocols.voronoi.mesh_messages import LARGEST
from nearcast.space.motion import Time

Version: TypeAlias = Annotated[int, Meta(ge=0, lt=2**62)]
Epoch: TypeAlias = Annotated[int, Meta(ge=0, lt=2**53)]
Hops: TypeAlias = Annotated[int, Meta(ge=0, lt=2**31)]
Sum: TypeAlias = Annotated[int, Meta(ge=0, lt=2**53)]
Place: TypeAlias = tuple[Real, Real]  # see `sound`
Term: TypeAlias = Annotated[int, Meta(ge=0, lt=2**53)]


class Record(Struct, frozen=True, array_like=True):
    """A subscription as sites know it: its region, its client and its owner.

    `body` is what else the matcher needs to serve it; sites copy it and never decode it.
    """

    id: SubscriptionId
    client: NodeId
    region: Region
    version: Version
    epoch: Epoch = 0
    owner: NodeId = 0
    body: bytes = b""
    last_received: Time = 0  # by an owner from its client; sent with a Transfer


# Between sites: records.


class VsoMessage(Message, frozen=True):
    """A message between clients, matchers and the gateway of VSO."""

    protocol: ClassVar[str] = "vso"


class RecordCopies(VsoMessage, frozen=True, tag=1):
    """Whole records for a replica. A receiver with newer ones answers with these."""

    records: tuple[Record, ...]


class RegionUpdates(VsoMessage, frozen=True, tag=2):
    """New regions of records that the receiver has copies of."""

    changes: tuple[tuple[SubscriptionId, Version, Region], ...]


class RecordsEnded(VsoMessage, frozen=True, tag=3):
    """These subscriptions have ended, up to these versions."""

    ended: tuple[tuple[SubscriptionId, Version], ...]


class CopiesReleased(VsoMessage, frozen=True, tag=4):
    """These areas do not touch the receiver's region any more: drop the copies."""

    ids: tuple[SubscriptionId, ...]


class Transfer(VsoMessage, frozen=True, tag=5):
    """The receiver is the new owner, in the epochs of the records."""

    records: tuple[Record, ...]


class TransferAck(VsoMessage, frozen=True, tag=6):
    """The paper's TRANSFER_ACK: the sender owns them, in these epochs."""

    epochs: tuple[tuple[SubscriptionId, Epoch], ...]


class Digest(VsoMessage, frozen=True, tag=7):
    """Count and checksum (ids, versions, epochs) of the copies that the receiver should have."""

    count: Hops
    total: Sum


class Inventory(VsoMessage, frozen=True, tag=8):
    """All copies of the receiver's records that the sender has."""

    items: tuple[tuple[SubscriptionId, Epoch, Version], ...]


# Between sites: load, and the gateway.


class MoveCloser(VsoMessage, frozen=True, tag=9):
    """The paper's MOVE: the sender is overloaded; come closer, which makes its region smaller."""

    place: Place


class MatcherInsert(VsoMessage, frozen=True, tag=10):
    """The paper's MATCHER_INSERT: promote a candidate at this load centre."""

    place: Place
    level: Real


class Candidate(VsoMessage, frozen=True, tag=11):
    """This node could be a matcher. Any matcher forwards it to the gateway.

    `capacity`: subscriptions that it could own.
    """

    node: NodeId
    capacity: Real = 1.0


class Promote(VsoMessage, frozen=True, tag=12):
    """Become a matcher at this place; join the mesh through `contact`."""

    place: Place
    contact: NodeId


class MatcherPresent(VsoMessage, frozen=True, tag=13):
    """The sender is a matcher, at this place."""

    place: Place


class MatcherList(VsoMessage, frozen=True, tag=14):
    """The gateway of this term, and all matchers in order of seniority, with their places.

    The first of them get the candidates too: one of them becomes gateway if this one dies.
    """

    term: Term
    gateway: NodeId
    matchers: tuple[tuple[NodeId, Place], ...]
    candidates: tuple[Candidate, ...] = ()


class MatcherRetired(VsoMessage, frozen=True, tag=15):
    """The sender is no matcher any more."""


# Clients and matchers.


class Interest(VsoMessage, frozen=True, tag=21):
    """A whole subscription, forwarded greedily to the matcher whose region has its centre.

    `epoch`: the latest that the client knows.
    """

    subscription: Subscription
    version: Version
    epoch: Epoch = 0
    hops: Hops = 1


class OwnerConfirmed(VsoMessage, frozen=True, tag=22):
    """The sender owns this subscription."""

    subscription: SubscriptionId
    epoch: Epoch


class OwnerChanged(VsoMessage, frozen=True, tag=23):
    """Another matcher owns the subscription now."""

    subscription: SubscriptionId
    owner: NodeId
    epoch: Epoch


class RegionUpdate(VsoMessage, frozen=True, tag=24):
    """From a client to the owner: the new region of a subscription."""

    subscription: SubscriptionId
    version: Version
    region: Region
    hops: Hops = 1


class Cancel(VsoMessage, frozen=True, tag=25):
    """From a client to the owner: the subscription has ended."""

    client: NodeId
    subscription: SubscriptionId
    version: Version
    hops: Hops = 1


class Post(VsoMessage, frozen=True, tag=26):
    """From its publisher, forwarded greedily to the owner of the centre of its area."""

    publication: Publication
    hops: Hops = 1

    def carries(self) -> PublicationId:
        return self.publication.id


class Cast(VsoMessage, frozen=True, tag=27):
    """VoroCast, from matcher to matcher; its root is the centre of the area.

    `onward` is False for a site that had the area until recently: it only matches.
    """

    publication: Publication
    hops: Hops
    onward: bool = True

    def carries(self) -> PublicationId:
        return self.publication.id


class ReplicaMatch(VsoMessage, frozen=True, tag=28):
    """To an owner: the publication may touch these subscriptions of yours."""

    publication: Publication
    subscriptions: tuple[SubscriptionId, ...]
    hops: Hops
    passes: Hops = 0  # from owner to owner

    def carries(self) -> PublicationId:
        return self.publication.id


class Notify(VsoMessage, frozen=True, tag=29):
    """To a client, which decides which of its subscriptions want it."""

    ordered: ClassVar[bool] = False
    priority: ClassVar[Priority] = Priority.PUBLICATION
    publication: Publication
    hops: Hops

    def carries(self) -> PublicationId:
        return self.publication.id


class Alive(VsoMessage, frozen=True, tag=30):
    """A heartbeat from a client to each of its owners."""


class OwnedSubscriptions(VsoMessage, frozen=True, tag=31):
    """The answer to Alive: the client's subscriptions that the sender owns."""

    held: tuple[tuple[SubscriptionId, Version, Epoch], ...]


class GatewayQuery(VsoMessage, frozen=True, tag=32):
    """Which node is the gateway?"""


class GatewayKnown(VsoMessage, frozen=True, tag=33):
    """The gateway as far as the sender knows; of term 0, a node that may know more.

    `matcher`: the sender is one, and is told of each new gateway.
    """

    term: Term
    gateway: NodeId
    matcher: bool


def sound(message: Message) -> bool:
    """Are all places in the range where geometry is exact? Else the receiver refuses it."""
    match message:
        case MoveCloser(place) | MatcherInsert(place) | Promote(place) | MatcherPresent(place):
            return _near(place)
        case MatcherList(matchers=matchers):
            return all(_near(place) for _, place in matchers)
    return True


def _near(place: Place) -> bool:
    return all(-LARGEST <= coordinate <= LARGEST for coordinate in place)


MESSAGES: tuple[type[Message], ...] = (
    RecordCopies, RegionUpdates, RecordsEnded, CopiesReleased, Transfer, TransferAck, Digest,
    Inventory, MoveCloser, MatcherInsert, Candidate,
    Promote, MatcherPresent, MatcherList, MatcherRetired, Interest, OwnerConfirmed, OwnerChanged,
    RegionUpdate, Cancel, Post, Cast, ReplicaMatch,
    Notify, Alive, OwnedSubscriptions, GatewayQuery, GatewayKnown,
)  # fmt: skip
