"""All messages of BubbleStorm and of its publish/subscribe layer.

A location is one visit of a peer on the circuit; an end is a peer and one of its locations.

joiner J             contact            master S               slave X of S
  │── Join ────────────▶│── Walk ─▶ … ────▶│ at a random link
  │◀────────────────────────────── Adopt ──│ "stand between me and X"
  │── Insert ──────────────────────────────────────────────────▶│ its master is J now
  │◀───────────────────────────────────────────────────── Yes ──│
  │── Settled ────────────────────────────▶│ its slave is J now

leaver L                                 master S               slave X of L
  │── Leave ──────────────────────────────▶│── Insert ─────────▶│ its master is S now
  │◀─────────────────────────── Released ──│◀────────────  Yes ─│

Beat goes both ways on every link, No says that there is no such link, Seek looks for the other half
of a broken one, Gossip measures the network.

subscriber A         rendezvous R         B, whose subscription R knows
  │── Bubble ─▶ … ─────▶│
  │◀──────────── Reply ─│ "B is in your area"
  │── Contact ──────────────────────────────▶│
  │◀─────────────────────────────── Accept ──│
  │◀── Position, now and then; Told ────────▶│ until one Closes

A publication that direct connections cannot reach is Shouted: an instant bubble, and whoever knows
a subscription that wants it lets its owner Hear it. Holding, Keep and Drop are of managed bubbles.
"""

from typing import Annotated, ClassVar, TypeAlias

from msgspec import Meta

from nearcast.model.publication import Publication
from nearcast.model.subscription import NodeId, PublicationId, Subscription
from nearcast.node import Message
from nearcast.protocols.bubblestorm.sizes import MOST, NetworkEstimate, Sum
from nearcast.protocols.relays.messages import MESSAGES as OF_RELAYS
from nearcast.wire import Codec

Number: TypeAlias = Annotated[int, Meta(ge=0, lt=2**53)]  # of a location, a round or a token
LocationRef: TypeAlias = tuple[NodeId, Number]  # a peer and one of its locations
PAST_ZERO = 10  # hops that a walk goes on if nobody can take the joiner
Hops: TypeAlias = Annotated[int, Meta(ge=-PAST_ZERO, le=256)]
Weight: TypeAlias = Annotated[int, Meta(ge=1, le=MOST)]
Degree: TypeAlias = Annotated[int, Meta(ge=0, le=4096)]


class BubbleStormMessage(Message, frozen=True):
    """A message between the peers of BubbleStorm."""

    protocol: ClassVar[str] = "bubblestorm"


class Join(BubbleStormMessage, frozen=True, tag=1):
    """Let a walk find a place for this location of mine."""

    end: LocationRef


class Walk(BubbleStormMessage, frozen=True, tag=2):
    """To a location of a neighbour, on the way to a random link for `end`."""

    location: Number
    end: LocationRef
    hops: Hops


class Adopt(BubbleStormMessage, frozen=True, tag=3):
    """Stand between these two; and what is known of the network."""

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
    location: Number
    end: LocationRef


class LinkRejected(BubbleStormMessage, frozen=True, tag=6):
    """I am not your master, or not your slave."""

    location: Number
    end: LocationRef
    master: bool


class JoinCompleted(BubbleStormMessage, frozen=True, tag=7):
    """I stand between you and `slave` now."""

    location: Number
    end: LocationRef
    slave: LocationRef


class Leave(BubbleStormMessage, frozen=True, tag=8):
    """Take my slave for yours."""

    location: Number
    end: LocationRef
    slave: LocationRef | None


class Released(BubbleStormMessage, frozen=True, tag=9):
    location: Number


class Heartbeat(BubbleStormMessage, frozen=True, tag=10):
    """I am here, and your master or your slave."""

    location: Number
    end: LocationRef
    master: bool
    degree: Degree


class RepairWalk(BubbleStormMessage, frozen=True, tag=11):
    """A location that has lost its slave (or its master) looks for one that has no master."""

    location: Number
    end: LocationRef
    slave: bool  # is a slave sought?
    hops: Hops


class Gossip(BubbleStormMessage, frozen=True, tag=12):
    """A share of the sums and of the one weight that all sums are divided by."""

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
    """A subscription (tables 4.1 and 4.2) in a bubble that is stored where it comes to."""

    location: Number
    weight: Weight  # replicas still to make
    size: Weight  # of the whole bubble
    token: Number  # a reply names it
    managed: bool
    packet: bytes
    wanted: tuple[Subscription, ...] = ()


class PublicationBubble(BubbleStormMessage, frozen=True, tag=14):
    """A publication in an instant bubble: matched where it comes to, and forgotten."""

    location: Number
    weight: Weight
    size: Weight
    publication: Publication
    hops: Hops

    def carries(self) -> PublicationId:
        return self.publication.id


class Reply(BubbleStormMessage, frozen=True, tag=15):
    """These are in your area (tables 4.1 and 4.3)."""

    token: Number
    packet: bytes


class Contact(BubbleStormMessage, frozen=True, tag=16):
    packet: bytes


class Accept(BubbleStormMessage, frozen=True, tag=17):
    packet: bytes


class Position(BubbleStormMessage, frozen=True, tag=18):
    """The low-frequency update of a connection."""

    packet: bytes


class DirectPublication(BubbleStormMessage, frozen=True, tag=19):
    """A publication on a direct connection; `here`: it was said where its entity is."""

    publication: Publication
    here: bool

    def carries(self) -> PublicationId:
        return self.publication.id


class RendezvousPublication(BubbleStormMessage, frozen=True, tag=20):
    """A publication from a rendezvous."""

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
    """To the holder of a replica: this is how it is now."""

    token: Number
    asks: bool  # do you hold it still?
    packet: bytes
    wanted: tuple[Subscription, ...] = ()


class ReplicaDropped(BubbleStormMessage, frozen=True, tag=24):
    """My managed bubble is no more."""


CODEC = Codec(
    Join, Walk, Adopt, Insert, InsertAccepted, LinkRejected, JoinCompleted, Leave, Released,
    Heartbeat, RepairWalk, Gossip, SubscriptionBubble, PublicationBubble,
    Reply, Contact, Accept, Position, DirectPublication, RendezvousPublication, Close,
    ReplicaHeld, ReplicaUpdate, ReplicaDropped, *OF_RELAYS,
)  # fmt: skip
