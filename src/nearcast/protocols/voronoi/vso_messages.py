"""What clients, matchers and the gateway of VSO say (seed 003, IV).

client                      matcher                    matcher                    client
  │── Interest ───────────────▶│── Interest (greedy) ────▶│ owns the centre        D. subscribe
  │◀───────────────────────────────────────── Served ─────│── Copies ─▶ replicas, a backup
  │── Shift ──────────────────────────────────────────────▶│── Moves ──▶ replicas
  │── Post ───────────────────▶│── Cast (VoroCast) ──────▶│                        E. publish
  │                            │◀─────────── Matched ─────│ a replica matches: tell the owner
  │◀──────────────── Notify ───│                          │── Notify ─────────────▶│
  │                            │── Transfer ─────────────▶│ the centre has moved   G. ownership
  │◀──────────────── Owner ────│◀───────────── Taken ─────│
  │── Alive ──────────────────▶│ who is silent is forgotten; Holding answers: this I have of you
  │                            │── Digest ───────────────▶│ of all that you should have of mine
  │                            │◀────────── Inventory ────│ it differs: this I have
  │                            │── Copies, Release, Forget ▶ then it does not any more

matcher                     gateway                    candidate
  │── Present ────────────────▶│◀─────────── Candidate ───│                        B. join
  │◀───────────────── Realm ───│ who is here, who will be gateway after me
  │── Insert ─────────────────▶│── Promote ──────────────▶│── the mesh's join      F. load
  │── Closer ─▶ its enclosing matchers: come nearer

A subscription has a version, which only its client raises, and an epoch, which each change of owner
raises. Content goes by version, ownership by (epoch, owner): no two sites can own one epoch.
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
from nearcast.node import Message, Real
from nearcast.protocols.voronoi.mesh_messages import LARGEST
from nearcast.space.motion import Time

Version: TypeAlias = Annotated[int, Meta(ge=0, lt=2**62)]
Epoch: TypeAlias = Annotated[int, Meta(ge=0, lt=2**53)]
Hops: TypeAlias = Annotated[int, Meta(ge=0, lt=2**31)]
Sum: TypeAlias = Annotated[int, Meta(ge=0, lt=2**53)]
Place: TypeAlias = tuple[Real, Real]  # see `sound`
Term: TypeAlias = Annotated[int, Meta(ge=0, lt=2**53)]


class Record(Struct, frozen=True, array_like=True):
    """A subscription as sites know it: where it is, whose it is, and who owns it.

    `body` is whatever else its host must know to serve it; sites carry it and never look inside.
    """

    id: SubscriptionId
    client: NodeId
    region: Region
    version: Version
    epoch: Epoch = 0
    owner: NodeId = 0
    body: bytes = b""
    heard: Time = 0  # when an owner last heard its client; told with a Transfer


# Between sites: records.


class VsoMessage(Message, frozen=True):
    """A message between clients, matchers and the gateway of VSO."""

    protocol: ClassVar[str] = "vso"


class RecordCopies(VsoMessage, frozen=True, tag=1):
    """Replicas, whole. Who knows better answers with its own."""

    records: tuple[Record, ...]


class RegionUpdates(VsoMessage, frozen=True, tag=2):
    """Regions of records that you have whole."""

    changes: tuple[tuple[SubscriptionId, Version, Region], ...]


class RecordsEnded(VsoMessage, frozen=True, tag=3):
    """These ended, up to these versions."""

    ended: tuple[tuple[SubscriptionId, Version], ...]


class CopiesReleased(VsoMessage, frozen=True, tag=4):
    """They do not reach your region any more."""

    ids: tuple[SubscriptionId, ...]


class Transfer(VsoMessage, frozen=True, tag=5):
    """You own them now: their epochs and owner say so."""

    records: tuple[Record, ...]


class TransferAck(VsoMessage, frozen=True, tag=6):
    """TRANSFER_ACK: I own them, in these epochs."""

    epochs: tuple[tuple[SubscriptionId, Epoch], ...]


class Digest(VsoMessage, frozen=True, tag=7):
    """So many of my records you should have, and their names, versions and epochs mix to this."""

    count: Hops
    total: Sum


class Inventory(VsoMessage, frozen=True, tag=8):
    """This is what I have of yours."""

    items: tuple[tuple[SubscriptionId, Epoch, Version], ...]


# Between sites: load, and the gateway.


class MoveCloser(VsoMessage, frozen=True, tag=9):
    """MOVE: I am overloaded, and here; make my region smaller."""

    place: Place


class MatcherInsert(VsoMessage, frozen=True, tag=10):
    """MATCHER_INSERT: promote a candidate at my load centre."""

    place: Place
    level: Real


class Candidate(VsoMessage, frozen=True, tag=11):
    """This node could be a matcher. Any matcher passes it on to the gateway."""

    node: NodeId


class Promote(VsoMessage, frozen=True, tag=12):
    """Become a matcher here; the contact lets you in."""

    place: Place
    contact: NodeId


class MatcherPresent(VsoMessage, frozen=True, tag=13):
    """I am a matcher, and here."""

    place: Place


class MatcherList(VsoMessage, frozen=True, tag=14):
    """The gateway of this term is `gateway`; the matchers in order of seniority, with their places.

    The first of them learn the candidates too: one of them will be gateway if this one dies.
    """

    term: Term
    gateway: NodeId
    matchers: tuple[tuple[NodeId, Place], ...]
    candidates: tuple[NodeId, ...] = ()


class MatcherRetired(VsoMessage, frozen=True, tag=15):
    """I am no matcher any more."""


# Clients and matchers.


class Interest(VsoMessage, frozen=True, tag=21):
    """Greedily on to the matcher whose region holds the centre. `epoch`: the last I know of."""

    subscription: Subscription
    version: Version
    epoch: Epoch = 0
    hops: Hops = 1


class OwnerConfirmed(VsoMessage, frozen=True, tag=22):
    """I own this subscription of yours."""

    subscription: SubscriptionId
    epoch: Epoch


class OwnerChanged(VsoMessage, frozen=True, tag=23):
    """Somebody else owns it now."""

    subscription: SubscriptionId
    owner: NodeId
    epoch: Epoch


class RegionUpdate(VsoMessage, frozen=True, tag=24):
    subscription: SubscriptionId
    version: Version
    region: Region
    hops: Hops = 1


class Cancel(VsoMessage, frozen=True, tag=25):
    client: NodeId
    subscription: SubscriptionId
    version: Version
    hops: Hops = 1


class Post(VsoMessage, frozen=True, tag=26):
    """From its publisher, greedily on to a matcher whose region the area touches."""

    publication: Publication
    hops: Hops = 1

    def carries(self) -> PublicationId:
        return self.publication.id


class Cast(VsoMessage, frozen=True, tag=27):
    """VoroCast, from matcher to matcher; its root is the centre of the area.

    `onward` is False for a site that had the area lately, and only matches.
    """

    publication: Publication
    hops: Hops
    onward: bool = True

    def carries(self) -> PublicationId:
        return self.publication.id


class ReplicaMatch(VsoMessage, frozen=True, tag=28):
    """To the owner: it may touch these of yours."""

    publication: Publication
    subscriptions: tuple[SubscriptionId, ...]
    hops: Hops
    passes: Hops = 0  # from owner to owner

    def carries(self) -> PublicationId:
        return self.publication.id


class Notify(VsoMessage, frozen=True, tag=29):
    """To a client; it knows best which of its subscriptions are meant."""

    publication: Publication
    hops: Hops

    def carries(self) -> PublicationId:
        return self.publication.id


class Alive(VsoMessage, frozen=True, tag=30):
    """A client to each of its owners."""


class OwnedSubscriptions(VsoMessage, frozen=True, tag=31):
    """The answer: these of yours I own, in these versions and epochs."""

    held: tuple[tuple[SubscriptionId, Version, Epoch], ...]


def sound(message: Message) -> bool:
    """Are the places in it where geometry is exact? A receiver refuses what is not."""
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
    Notify, Alive, OwnedSubscriptions,
)  # fmt: skip
