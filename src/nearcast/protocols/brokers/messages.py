"""Messages between clients and brokers: those of PADRES, and sessions of our own.

client                      broker                     broker                     client
  │── Hello ──────────────────▶│◀──── Hello ─────────────▶│  sessions begin: tables are sent again
  │── Advertise ──────────────▶│── Advertise ────────────▶│  flooded
  │                            │◀──────────── Interest ───│◀─────────── Interest ──│
  │                            │              towards intersecting advertisements   │
  │── Post ───────────────────▶│── Pass ─────────────────▶│── Notify ─────────────▶│
  │                            │◀──────────── Adjust ─────│◀─────────── Adjust ────│  new values
  │                            │◀──────────── Cancel ─────│◀─────────── Cancel ────│
  │◀─ Heartbeat ──────────────▶│◀──── Heartbeat ─────────▶│  alive, and a digest of what I sent
  │◀─ Inventory ───────────────│◀──── Inventory ─────────▶│  that differs: send me the rest
  │◀─ UnknownClient ───────────│ begin a new session
  │── Bye ────────────────────▶│◀──── Bye ───────────────▶│  the client leaves; we are not linked

An interest has the name (node, id) and a version, which only its client raises. So a message that a
newer one has overtaken is recognised, and no client can change the interests of another.
"""

from math import isnan
from typing import Annotated, ClassVar, TypeAlias

from msgspec import Meta, Struct

from nearcast.model.publication import Publication
from nearcast.model.subscription import (
    Filter,
    NodeId,
    PublicationId,
    Subscription,
    SubscriptionId,
    check_text,
)
from nearcast.node import Message
from nearcast.protocols.brokers.ancestors import MOST_NAMED
from nearcast.protocols.overlay import FIRST_SERVER
from nearcast.space.motion import Time
from nearcast.space.shapes import EVERYWHERE, Shape
from nearcast.wire import Codec

Version: TypeAlias = Annotated[int, Meta(ge=0, lt=2**62)]
Session: TypeAlias = Annotated[int, Meta(ge=1, lt=2**62)]
Hops: TypeAlias = Annotated[int, Meta(ge=0, lt=2**31)]
Digest: TypeAlias = Annotated[int, Meta(ge=0, lt=2**53)]
AdvertisementId: TypeAlias = Annotated[int, Meta(ge=0, lt=2**53)]  # given by its client
BrokerId: TypeAlias = Annotated[int, Meta(ge=FIRST_SERVER, lt=2**53)]
Brokers: TypeAlias = Annotated[tuple[BrokerId, ...], Meta(max_length=MOST_NAMED)]
EntryName: TypeAlias = tuple[NodeId, int]  # of an interest or an advertisement: whose, and which


class Advertisement(Struct, frozen=True, array_like=True):
    """Where, on which channel and with which attributes a client will publish."""

    id: AdvertisementId
    node: NodeId
    area: Shape = EVERYWHERE
    channel: str | None = None  # None: on any
    filter: Filter | None = None  # what all of its publications satisfy

    def __post_init__(self) -> None:
        check_text("a channel", self.channel or "")


class BrokerMessage(Message, frozen=True):
    """A message between clients and brokers."""

    protocol: ClassVar[str] = "brokers"


class Hello(BrokerMessage, frozen=True, tag=1):
    """My session with you is `mine`; the last session of yours that I know is `yours`."""

    mine: Session
    yours: Session | None = None
    below: bool = False  # between brokers: you are the one above me


class Heartbeat(BrokerMessage, frozen=True, tag=2):
    """I am alive. `digest`: of all that I have sent you and that is still in force.

    To clients and to brokers below: where to turn when I am silent, first to those `above` me and
    then to those that are `beside` each other below the root.
    """

    digest: Digest
    above: Brokers = ()
    beside: Brokers = ()


class UnknownClient(BrokerMessage, frozen=True, tag=3):
    """To a client whose session the broker does not know: begin a new one, and send everything."""


class Bye(BrokerMessage, frozen=True, tag=4):
    """From a client that leaves; from a broker that has no link with the receiver."""


class Advertise(BrokerMessage, frozen=True, tag=5):
    """A client's advertisement, flooded to all brokers."""

    advertisement: Advertisement
    version: Version


class Unadvertise(BrokerMessage, frozen=True, tag=6):
    """The advertisement ends, up to this version."""

    node: NodeId
    advertisement: AdvertisementId
    version: Version


class Interest(BrokerMessage, frozen=True, tag=7):
    """An interest, as its client sent it at `sent`: later than its submission if sent again."""

    subscription: Subscription
    version: Version
    sent: Time


class Adjust(BrokerMessage, frozen=True, tag=8):
    """Other numbers for an interest that the receiver has: parametric subscriptions."""

    node: NodeId
    subscription: SubscriptionId
    version: Version
    values: tuple[float, ...]

    def __post_init__(self) -> None:
        if any(map(isnan, self.values)):
            raise ValueError("an adjustment has a number that is not a number")


class Cancel(BrokerMessage, frozen=True, tag=9):
    """The interest ends, up to this version."""

    node: NodeId
    subscription: SubscriptionId
    version: Version


class Post(BrokerMessage, frozen=True, tag=10):
    """A publication from a client to its broker."""

    publication: Publication

    def carries(self) -> PublicationId:
        return self.publication.id


class Pass(BrokerMessage, frozen=True, tag=11):
    """A publication from broker to broker; `hops` counts this message too."""

    publication: Publication
    hops: Hops

    def carries(self) -> PublicationId:
        return self.publication.id


class Notify(BrokerMessage, frozen=True, tag=12):
    """A publication for a client, and the interests of the client that it matches."""

    publication: Publication
    subscriptions: tuple[SubscriptionId, ...]
    hops: Hops

    def carries(self) -> PublicationId:
        return self.publication.id


class Inventory(BrokerMessage, frozen=True, tag=13):
    """All that I have from you. Send me what is missing, and cancel what has ended."""

    advertisements: tuple[tuple[NodeId, AdvertisementId, Version], ...]
    interests: tuple[tuple[NodeId, SubscriptionId, Version], ...]


CODEC = Codec(
    Hello, Heartbeat, UnknownClient, Bye, Advertise, Unadvertise, Interest, Adjust, Cancel, Post,
    Pass, Notify,
    Inventory,
)  # fmt: skip
