"""All messages of the relays.

sender V               forwarder U               next hop X               destination D
  │── Update ────────────────────────────────────────▶│── Update ────────────────▶│
  │── Take ───────────────▶│ "send what S says on to X, for D"                     │
  │◀────────────────  Yes ─│                          │                           │
  │── Update ─────────────▶│── Update ───────────────▶│── Update ────────────────▶│  REDIR
  │                        │── Skip ─▶ V: "send it to X yourself"; V says Yes      │  SHORT

A Word is what peers tell each other of themselves: once in an interval it travels in an Update, and
by itself where there is none. It lists what the receiver is relied on to pass on; what nobody lists
for some intervals is forgotten, and what is listed in vain is Lost. Drop ends a reliance at once.
"""

from typing import Annotated, ClassVar, TypeAlias

from msgspec import Meta, Struct

from nearcast.model.publication import Publication
from nearcast.model.subscription import NodeId, PublicationId
from nearcast.node import Message, Real
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
    """A publication on its way from `source`, who it may concern, and for how long it has been."""

    source: NodeId  # who has told it first, usually its publisher
    publication: Publication
    hops: Hops
    age: Ticks  # the latency of its path so far (IV-B)
    audience: Filter = b""  # now and then: all who hear the source (IV-B)


class FlowList(Struct, frozen=True, array_like=True):
    """Flows of one source."""

    source: NodeId
    destinations: tuple[NodeId, ...]


class RemainingLatency(Struct, frozen=True, array_like=True):
    """From the sender of this to the destination it takes so long (IV-B: in reverse direction)."""

    source: NodeId
    destination: NodeId
    ticks: Ticks


class PeerStatus(Struct, frozen=True, array_like=True):
    uplink: Rate
    used: Number  # thousandths of it that are asked for
    age: Number  # seconds for which the sender has been there
    sent: Ticks  # by its clock, modulo 2^32
    echo: Ticks  # the latest `sent` that it has from the receiver
    held: Ticks  # and how long ago that came; both 0: never
    kept: tuple[FlowList, ...] = ()  # what the receiver is relied on to pass on
    onward: tuple[RemainingLatency, ...] = ()  # of what the receiver relies on the sender for
    lost: tuple[Flow, ...] = ()  # what it relies on in vain


class RelayMessage(Message, frozen=True):
    """A message of the relays."""

    protocol: ClassVar[str] = "relays"


class Update(RelayMessage, frozen=True, tag=61):
    """All that is for one receiver, in one packet."""

    lossy: ClassVar[bool] = True
    pieces: tuple[RelayedPublication, ...]
    word: PeerStatus | None = None

    def carries(self) -> PublicationId | None:
        """The first of them."""
        return self.pieces[0].publication.id if self.pieces else None


class Status(RelayMessage, frozen=True, tag=62):
    word: PeerStatus


class Redirect(RelayMessage, frozen=True, tag=63):
    """REDIR: send what the source says on to `onward`."""

    source: NodeId
    destination: NodeId
    number: Number
    onward: NodeId
    interest: Real  # 0 to 1
    rest: Ticks  # from `onward` to the destination
    worth: Real  # what it gains, not counting the receiver's uplink


class Shorten(RelayMessage, frozen=True, tag=64):
    """SHORT: send it to `onward` instead of me."""

    source: NodeId
    destination: NodeId
    number: Number
    onward: NodeId
    rest: Ticks
    worth: Real  # what it gains, not counting the receiver's uplink


class Accept(RelayMessage, frozen=True, tag=65):
    source: NodeId
    destination: NodeId
    number: Number
    leg: Ticks  # from who says so to `onward`; 0: not known


class Reject(RelayMessage, frozen=True, tag=66):
    source: NodeId
    destination: NodeId
    number: Number
    leg: Ticks


class StopForwarding(RelayMessage, frozen=True, tag=67):
    """I rely on you for this no more."""

    source: NodeId
    destination: NodeId


MESSAGES = (Update, Status, Redirect, Shorten, Accept, Reject, StopForwarding)
CODEC = Codec(*MESSAGES)
