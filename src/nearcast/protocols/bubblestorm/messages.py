"""All messages of BubbleStorm and of its publish/subscribe layer.

A location is one visit of a peer on the Eulerian circuit; a LocationRef names a peer and one of its
locations.

joiner J             contact            master S               slave X of S
  │── Join ────────────▶│── Walk ─▶ … ────▶│ at a random link
  │◀────────────────────────────── Adopt ──│ "your place is between me and X"
  │── Insert ──────────────────────────────────────────────────▶│ its master is J now
  │◀────────────────────────────────────────── InsertAccepted ──│
  │── JoinCompleted ──────────────────────▶│ its slave is J now

leaver L                                 master S               slave X of L
  │── Leave ──────────────────────────────▶│── Insert ─────────▶│ its master is S now
  │◀─────────────────────────── Released ──│◀─ InsertAccepted ──│

A Heartbeat goes both ways on every link. LinkRejected says that there is no such link. A RepairWalk
looks for the other half of a broken link. Gossip measures the network.

subscriber A         rendezvous R         B, whose subscription R has
  │── SubscriptionBubble ▶│
  │◀──────────── Reply ───│ "B is in your area"
  │── Contact ──────────────────────────────▶│
  │◀─────────────────────────────── Accept ──│
  │◀── Position, DirectPublication ─────────▶│ until one sends Close

A publication for others than those connected travels in a PublicationBubble. A peer on its way that
has a subscription which wants it sends a RendezvousPublication to the subscriber. ReplicaHeld,
ReplicaUpdate and ReplicaDropped maintain managed bubbles.
"""

from typing import Annotated, ClassVar, TypeAlias

from msgspec import Meta

from nearcast.model.publication import Publication
from nearcast.model.subscription import NodeId, PublicationId, Subscription
from nearcast.node import Message, Priority
from nearcast.protocols.bubblestorm.sizes import MOST, NetworkEstimate, Sum
from nearcast.protocols.relays.messages import MESSAGES as OF_RELAYS
from nearcast.protocols.update_rates import UpdateRates
from nearcast.wire import Codec

Number: TypeAlias = Annotated[int, Meta(ge=0, lt=2**53)]  # of a location, a round or a token
LocationRef: TypeAlias = tuple[NodeId, Number]  # a peer and one of its locations
PAST_ZERO = 10  # further hops of a walk if no link can be split
Hops: TypeAlias = Annotated[int, Meta(ge=-PAST_ZERO, le=256)]
Weight: TypeAlias = Annotated[int, Meta(ge=1, le=MOST)]
Degree: TypeAlias = Annotated[int, Meta(ge=0, le=4096)]


class BubbleStormMessage(Message, frozen=True):
    """A message between the peers of BubbleStorm."""

    protocol: ClassVar[str] = "bubblestorm"


class Join(BubbleStormMessage, frozen=True, tag=1):
    """Start a walk that finds a place for this location."""

    end: LocationRef


class Walk(BubbleStormMessage, frozen=True, tag=2):
    """A random walk to a link for `end`, sent to a location of a neighbour."""

    location: Number
    end: LocationRef
    hops: Hops


class Adopt(BubbleStormMessage, frozen=True, tag=3):
    """Your place is between these two; with the estimate of the network."""

    location: Number
    master: LocationRef
    slave: LocationRef
    network: NetworkEstimate
    round: Number


class Insert(BubbleStormMessage, frozen=True, tag=4):
    """Your master is no longer `before` but `after`."""

    location: Number
    before: LocationRef
    after: LocationRef


class InsertAccepted(BubbleStormMessage, frozen=True, tag=5):
    """You are my master now."""

    location: Number
    end: LocationRef


class LinkRejected(BubbleStormMessage, frozen=True, tag=6):
    """I am not your master, or not your slave."""

    location: Number
    end: LocationRef
    master: bool


class JoinCompleted(BubbleStormMessage, frozen=True, tag=7):
    """I am your slave now, and the master of `slave`, which was yours."""

    location: Number
    end: LocationRef
    slave: LocationRef


class Leave(BubbleStormMessage, frozen=True, tag=8):
    """I leave; take my slave as yours."""

    location: Number
    end: LocationRef
    slave: LocationRef | None


class Released(BubbleStormMessage, frozen=True, tag=9):
    """You have left: your former neighbours are linked."""

    location: Number


class Heartbeat(BubbleStormMessage, frozen=True, tag=10):
    """I am alive, and your master (or your slave)."""

    location: Number
    end: LocationRef
    master: bool
    degree: Degree


class RepairWalk(BubbleStormMessage, frozen=True, tag=11):
    """A location that has lost its slave (or its master) searches one that has lost the other."""

    location: Number
    end: LocationRef
    slave: bool  # a slave is searched, not a master
    hops: Hops


class Gossip(BubbleStormMessage, frozen=True, tag=12):
    """Push-sum: a share of the sender's sums and of their common weight."""

    location: Number
    round: Number
    token: Number
    weight: Sum
    peers: Sum
    ends: Sum
    squares: Sum
    largest: Sum
    degree: Degree


class SubscriptionBubble(BubbleStormMessage, frozen=True, tag=13):
    """A subscription ([Lucas2011] tables 4.1 and 4.2); each peer that receives it stores it."""

    priority: ClassVar[Priority] = Priority.BULK
    location: Number
    weight: Weight  # replicas still to make
    size: Weight  # of the whole bubble
    token: Number  # a reply names it
    managed: bool
    packet: bytes
    wanted: tuple[Subscription, ...] = ()


class PublicationBubble(BubbleStormMessage, frozen=True, tag=14):
    """A publication in an instant bubble: each peer that receives it matches it and forgets it."""

    ordered: ClassVar[bool] = False
    priority: ClassVar[Priority] = Priority.PUBLICATION
    location: Number
    weight: Weight
    size: Weight
    publication: Publication
    hops: Hops

    def carries(self) -> PublicationId:
        return self.publication.id


class Reply(BubbleStormMessage, frozen=True, tag=15):
    """These peers are in your area ([Lucas2011] tables 4.1 and 4.3)."""

    token: Number
    packet: bytes


class Contact(BubbleStormMessage, frozen=True, tag=16):
    """Open a direct connection."""

    packet: bytes


class Accept(BubbleStormMessage, frozen=True, tag=17):
    """The direct connection is open."""

    packet: bytes


class Position(BubbleStormMessage, frozen=True, tag=18):
    """The low-frequency update of a connection."""

    lossy: ClassVar[bool] = True
    priority: ClassVar[Priority] = Priority.PUBLICATION
    packet: bytes


class DirectPublication(BubbleStormMessage, frozen=True, tag=19):
    """A publication on a direct connection; `here`: made at its publisher's place."""

    ordered: ClassVar[bool] = False
    priority: ClassVar[Priority] = Priority.PUBLICATION
    publication: Publication
    here: bool

    def carries(self) -> PublicationId:
        return self.publication.id


class RendezvousPublication(BubbleStormMessage, frozen=True, tag=20):
    """A publication, sent to a subscriber by a rendezvous peer."""

    ordered: ClassVar[bool] = False
    priority: ClassVar[Priority] = Priority.PUBLICATION
    publication: Publication
    hops: Hops

    def carries(self) -> PublicationId:
        return self.publication.id


class Close(BubbleStormMessage, frozen=True, tag=21):
    """This connection is over."""


class ReplicaHeld(BubbleStormMessage, frozen=True, tag=22):
    """I hold a replica of your managed bubble."""

    token: Number


class ReplicaUpdate(BubbleStormMessage, frozen=True, tag=23):
    """To the holder of a replica: the new content."""

    priority: ClassVar[Priority] = Priority.BULK
    token: Number
    asks: bool  # answer whether you still hold it
    packet: bytes
    wanted: tuple[Subscription, ...] = ()


class ReplicaDropped(BubbleStormMessage, frozen=True, tag=24):
    """Drop the replica: my managed bubble has ended."""


CODEC = Codec(
    Join, Walk, Adopt, Insert, InsertAccepted, LinkRejected, JoinCompleted, Leave, Released,
    Heartbeat, RepairWalk, Gossip, SubscriptionBubble, PublicationBubble,
    Reply, Contact, Accept, Position, DirectPublication, RendezvousPublication, Close,
    ReplicaHeld, ReplicaUpdate, ReplicaDropped, UpdateRates, *OF_RELAYS,
)  # fmt: skip
