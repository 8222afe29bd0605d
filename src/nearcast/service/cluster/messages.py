"""What the nodes of a cluster say to each other, beside what their sites say (`vso_messages`).

home (of a client)          site (whose place it is)         another home
  │── Hold, Ended ────────────▶│  its clients' subscriptions, as they change
  │◀──────────────── Held ─────│  I own these of yours
  │── Said ───────────────────▶│  publications for places that are the site's
  │                            │── Said ───────────────────────▶│ some clients of yours may want it
  │── Said ──────────────────▶ all: a state
  │── Ask ───────────────────▶ all: how many hear it?
  │◀───────────────── Counted ─│  so many

old home                    new home                         client
  │── Arrive ─────────────────▶│  somebody will come to you
  │◀──────────────── Expect ───│
  │── moved: go there ───────────────────────────────────────────▶│
  │                            │◀───────────── join, ticket ────│
  │◀───────────────── Claim ───│
  │── Passed ─────────────────▶│── welcome ───────────────────────▶│
  │◀───────────────── Taken ───│  at once, and when it is certain that the client has come
  │── Spoke ──────────────────▶│  what the client still said to the old one
  │◀──────── Void, Returned ───│  the client stays at its old home after all

newcomer                    any node
  │── Knock ──────────────────▶│
  │◀───────────────── Enter ───│  there you shall be; these are here
  │── Beat ───────────────────▶ all: here I am, so much I carry, there I would need help
  │── Recall ─────────────────▶ all, once
  │◀───────────────── States ──│  what my clients retain

any node                    home
  │── Check ──────────────────▶│  are these still your clients?
  │◀──────────────── Absent ───│  not these
"""

from typing import Annotated, ClassVar, TypeAlias

from msgspec import Meta, Struct

from nearcast.model import commands
from nearcast.model.subscription import (
    NodeId,
    PublicationId,
    Subscription,
    SubscriptionId,
    Value,
)
from nearcast.node import Message, Real
from nearcast.protocols.voronoi import mesh_messages
from nearcast.protocols.voronoi.vso_messages import MESSAGES, Hops, Place, Record, Version
from nearcast.service.client_state import Wish
from nearcast.service.cluster.recent_history import Was
from nearcast.space.motion import Time
from nearcast.wire import Codec

Moment: TypeAlias = Annotated[int, Meta(ge=0, lt=2**53)]
Text: TypeAlias = Annotated[str, Meta(max_length=256)]
Ticket: TypeAlias = Annotated[str, Meta(min_length=16, max_length=64)]

# What is to be done with a publication that is `Said`.
# It is on its way to its site; it spreads from site to site; it goes no further, as the receiver
# had its place a moment ago, or looks after what its publisher says now; it is for clients alone.
TOWARDS, CAST, BEFORE, CLIENTS = 0, 1, 2, 3
WAY_BITS = 2


def code_of(way: int, hops: int) -> int:
    """A way, and how far it has been gone: in one byte."""
    return hops << WAY_BITS | way


def way_of(code: int) -> int:
    return code & 3


def hops_of(code: int) -> int:
    return code >> WAY_BITS


class Uttered(Struct, frozen=True, array_like=True, gc=False):
    """A publication as it travels: `words.Publish`, with who made it, and when."""

    id: PublicationId
    entity: NodeId
    t: Moment
    packed: bool  # the form of the payload
    x: Real
    y: Real
    payload: bytes = b""
    retain: bool = False
    attributes: dict[str, Value] = {}
    channel: Text = ""
    z: Real = 0.0
    r: Real | None = None
    rx: Real | None = None
    ry: Real | None = None
    rz: Real | None = None
    name: Text = ""


class ClusterMessage(Message, frozen=True):
    """A message between the nodes of a cluster."""

    protocol: ClassVar[str] = "cluster"


class Said(ClusterMessage, frozen=True, tag=101):
    """Publications in the order in which they were made, and a code for each: its way and hops."""

    ways: bytes
    said: tuple[Uttered, ...]

    def __post_init__(self) -> None:
        if len(self.ways) != len(self.said):
            raise ValueError("each publication has its way")


class Ask(ClusterMessage, frozen=True, tag=102):
    """Clients of yours may want these. How many subscriptions hear them?"""

    said: tuple[Uttered, ...]


class Counted(ClusterMessage, frozen=True, tag=120):
    """So many subscriptions of my clients have heard this publication of yours."""

    counts: tuple[tuple[PublicationId, Annotated[int, Meta(ge=0, lt=2**53)]], ...]


class Recall(ClusterMessage, frozen=True, tag=121):
    """What do your clients retain? All of them, or those that are named."""

    entities: tuple[NodeId, ...] = ()


class States(ClusterMessage, frozen=True, tag=122):
    """What clients of mine retain, at this moment: to be known, and to be told to nobody."""

    t: Moment
    states: tuple[Uttered, ...]


class Hold(ClusterMessage, frozen=True, tag=103):
    """Subscriptions of my clients, new or changed. Go greedily to whose place they are."""

    records: tuple[Record, ...]
    hops: Hops = 1


class Hint(ClusterMessage, frozen=True, tag=119):
    """The same to all whose places they touch, so that nobody need wait for the owner's copies."""

    records: tuple[Record, ...]


class Ended(ClusterMessage, frozen=True, tag=104):
    """Subscriptions that are over."""

    ended: tuple[tuple[SubscriptionId, Version], ...]
    hops: Hops = 1


class Held(ClusterMessage, frozen=True, tag=105):
    """I own these of your clients, in these versions."""

    held: tuple[tuple[SubscriptionId, Version], ...]


class Knock(ClusterMessage, frozen=True, tag=106):
    """I have the cluster's key, and clients reach me there. Where shall I be?"""

    url: Text


class Enter(ClusterMessage, frozen=True, tag=107):
    """The answer to `Knock`: you are a member."""

    place: Place
    gateway: NodeId


class Beat(ClusterMessage, frozen=True, tag=108):
    """Where clients reach me, how much I carry (above 1: too much), and where help would be: None
    if there is nothing to share."""

    url: Text
    load: Annotated[float, Meta(ge=0, le=1e12)]
    need: Place | None
    others: tuple[NodeId, ...]


class Left(ClusterMessage, frozen=True, tag=109):
    """Entities that are no more."""

    entities: tuple[NodeId, ...]


class Withdrawn(ClusterMessage, frozen=True, tag=130):
    """Retained states that clients of mine have taken back: entity, channel, and when."""

    states: tuple[tuple[int, str, Time], ...]


class Farewell(ClusterMessage, frozen=True, tag=110):
    """I stop."""


class Arrive(ClusterMessage, frozen=True, tag=111):
    """Somebody will come to you. `holder`: of the token by which it was let in here."""

    ticket: Ticket
    holder: Annotated[str, Meta(max_length=512)] = ""


class Expect(ClusterMessage, frozen=True, tag=112):
    """The answer to `Arrive`: the client may come."""

    ticket: Ticket


class Claim(ClusterMessage, frozen=True, tag=113):
    """The client with this ticket is here: pass it on to me."""

    ticket: Ticket


class Sat(Struct, frozen=True, array_like=True):
    """One subscription of a client that changes nodes."""

    number: Annotated[int, Meta(ge=0, lt=2**53)]
    since: Time
    asked: commands.Subscribe
    subscription: Subscription
    wish: Wish
    watches: bool
    linger: float
    homes: Hops
    former: tuple[Was, ...]  # what it was a moment ago: late publications find it as it was


class Passed(ClusterMessage, frozen=True, tag=114):
    """A client, with all that it has; `had`: what it has been told in the last seconds."""

    ticket: Ticket
    entity: NodeId
    name: Text
    subscriptions: tuple[Sat, ...]
    states: tuple[Uttered, ...]
    had: tuple[PublicationId, ...]
    departed: Moment  # by the old home's clock: legs of walks that begin later are the new home's


class Void(ClusterMessage, frozen=True, tag=115):
    """Nobody comes, or nobody goes, with this ticket."""

    ticket: Ticket


class Taken(ClusterMessage, frozen=True, tag=123):
    """I serve this client now; `settled`: and it has not hung up since."""

    ticket: Ticket
    settled: bool


class Returned(ClusterMessage, frozen=True, tag=124):
    """The client hung up before it knew that I serve it, so it is still yours.

    `obeyed`: so many of the requests that you have passed on (`Spoke`) were obeyed.
    """

    client: Passed
    obeyed: Annotated[int, Meta(ge=0, lt=2**53)]


class Check(ClusterMessage, frozen=True, tag=125):
    """I have states of these and believe them to be your clients; nobody has spoken of them lately.
    Are they still there?"""

    entities: tuple[NodeId, ...]


class Absent(ClusterMessage, frozen=True, tag=126):
    """No, these are not my clients."""

    entities: tuple[NodeId, ...]


class Spoke(ClusterMessage, frozen=True, tag=116):
    """A client that is yours now said this to me."""

    entity: NodeId
    frame: bytes
    packed: bool


class Credential(ClusterMessage, frozen=True, tag=117):
    """I have the cluster's key: a code over my key and yours."""

    code: Annotated[bytes, Meta(min_length=32, max_length=32)]


class LinkRefused(ClusterMessage, frozen=True, tag=118):
    """You are no member, and nothing that you say is heard."""

    reason: Text


OWN: tuple[type[Message], ...] = (
    Said, Ask, Hold, Hint, Ended, Held, Knock, Enter, Beat, Left, Farewell, Arrive, Expect, Claim,
    Passed, Void, Spoke, Credential, LinkRefused, Counted, Recall, States, Taken, Returned, Check,
    Absent, Withdrawn,
)  # fmt: skip
CODEC = Codec(*mesh_messages.MESSAGES, *MESSAGES, *OWN)
