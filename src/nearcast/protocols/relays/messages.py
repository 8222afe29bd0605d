"""All messages of the relays ([Lehn] III and IV).

sender V               forwarder U               next hop X               destination D
  │── Update ────────────────────────────────────────▶│── Update ────────────────▶│
  │── Redirect ───────────▶│ "forward what S publishes to X, for D"                │
  │◀────────────── Accept ─│                          │                           │
  │── Update ─────────────▶│── Update ───────────────▶│── Update ────────────────▶│  REDIR
  │                        │── Shorten ─▶ V: "send it to X yourself"; V accepts    │  SHORT

A PeerStatus is what a peer tells its neighbours about itself. Once in an interval it travels in an
Update, or in a Status of its own where there is no Update. It lists the flows which the receiver is
relied on to forward. A flow that nobody lists for some intervals is forgotten; a flow that is
listed where it is not known is reported as lost. StopForwarding ends a reliance at once.
"""

from typing import Annotated, ClassVar, TypeAlias

from msgspec import Meta, Struct

from nearcast.model.publication import Publication
from nearcast.model.subscription import NodeId, PublicationId
from nearcast.node import Message, Priority, Real
from nearcast.protocols.relays import bloom
from nearcast.wire import Codec

Flow: TypeAlias = tuple[NodeId, NodeId]  # a source and a destination
MOST_HOPS = 32
Hops: TypeAlias = Annotated[int, Meta(ge=0, le=MOST_HOPS)]
TICK = 100  # microseconds; what follows is counted in these
Ticks: TypeAlias = Annotated[int, Meta(ge=0, lt=2**32)]
Number: TypeAlias = Annotated[int, Meta(ge=0, lt=2**32)]
Rate: TypeAlias = Annotated[int, Meta(ge=1, lt=2**40)]  # bytes per second
Filter: TypeAlias = Annotated[bytes, Meta(max_length=bloom.LARGEST)]


class RelayedPublication(Struct, frozen=True, array_like=True):
    """A publication on its way from `source`, with the latency of its path so far."""

    source: NodeId  # who sent it first, usually its publisher
    publication: Publication
    hops: Hops
    age: Ticks  # the latency of its path so far ([Lehn] IV-B)
    audience: Filter = b""  # now and then: a Bloom filter of the source's audience ([Lehn] IV-B)


class FlowList(Struct, frozen=True, array_like=True):
    """Flows of one source."""

    source: NodeId
    destinations: tuple[NodeId, ...]


class RemainingLatency(Struct, frozen=True, array_like=True):
    """Latency from the sender of this to the destination ([Lehn] IV-B: in reverse direction)."""

    source: NodeId
    destination: NodeId
    ticks: Ticks


class PeerStatus(Struct, frozen=True, array_like=True):
    """What a peer tells a neighbour about its uplink, its clock and the flows they share."""

    uplink: Rate
    used: Number  # thousandths of the uplink that are asked for
    age: Number  # seconds for which the sender has been there
    sent: Ticks  # by its clock, modulo 2^32
    echo: Ticks  # the latest `sent` that it has from the receiver
    held: Ticks  # and how long ago that came; both 0: never
    reliances: tuple[FlowList, ...] = ()  # what the receiver is relied on to forward
    latencies: tuple[RemainingLatency, ...] = ()  # of what the receiver relies on the sender for
    lost: tuple[Flow, ...] = ()  # what the receiver relies on the sender for, in vain


class RelayMessage(Message, frozen=True):
    """A message of the relays."""

    protocol: ClassVar[str] = "relays"


class Update(RelayMessage, frozen=True, tag=61):
    """All publications for one receiver, in one packet."""

    lossy: ClassVar[bool] = True
    priority: ClassVar[Priority] = Priority.PUBLICATION
    pieces: tuple[RelayedPublication, ...]
    status: PeerStatus | None = None

    def carries(self) -> PublicationId | None:
        """The first of them."""
        return self.pieces[0].publication.id if self.pieces else None


class Status(RelayMessage, frozen=True, tag=62):
    """A status by itself, where no Update carries it."""

    status: PeerStatus


class Redirect(RelayMessage, frozen=True, tag=63):
    """REDIR: please forward what the source publishes to `next_hop`."""

    source: NodeId
    destination: NodeId
    number: Number
    next_hop: NodeId
    interest: Real  # 0 to 1
    rest: Ticks  # from `next_hop` to the destination
    worth: Real  # what it gains, not counting the receiver's uplink


class Shorten(RelayMessage, frozen=True, tag=64):
    """SHORT: please send it to `next_hop` instead of me."""

    source: NodeId
    destination: NodeId
    number: Number
    next_hop: NodeId
    rest: Ticks
    worth: Real  # what it gains, not counting the receiver's uplink


class Accept(RelayMessage, frozen=True, tag=65):
    """The receiver of a Redirect or Shorten agrees."""

    source: NodeId
    destination: NodeId
    number: Number
    leg: Ticks  # latency from who answers to `next_hop`; 0: not known


class Reject(RelayMessage, frozen=True, tag=66):
    """The receiver of a Redirect or Shorten does not agree; nothing changes."""

    source: NodeId
    destination: NodeId
    number: Number
    leg: Ticks


class StopForwarding(RelayMessage, frozen=True, tag=67):
    """I do not rely on you for this flow any more."""

    source: NodeId
    destination: NodeId


MESSAGES = (Update, Status, Redirect, Shorten, Accept, Reject, StopForwarding)
CODEC = Codec(*MESSAGES)
