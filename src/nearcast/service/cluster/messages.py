"""Messages between the nodes of a cluster, beside those of their sites (`voronoi.vso.messages`).

A client's *home* is the node that the client is connected to. Each node also has a *site*, which
owns a part of the world (VSO). The site that owns a subscription's or a publication's place knows
which homes have clients that may want it.

Subscriptions and publications:

home                        site that owns the place         another home
  │── SubscriptionUpdate ─────▶│  new and changed subscriptions of the home's clients
  │── SubscriptionEnded ──────▶│
  │── SubscriptionHint ───────▶ all sites that the area touches, so that none waits for the owner
  │◀──────── SubscriptionOwned │  the owner confirms what it holds, again every few seconds
  │── PublicationBatch ───────▶│  publications for places that the site owns
  │                            │── PublicationBatch ───────────▶│ some of its clients may want it
  │── PublicationBatch ───────▶ all nodes, if the publication is a retained state
  │── CountRequest ───────────▶ all nodes: how many subscriptions does this publication match?
  │◀──────────────── CountReply│
  │── DirectSent ─────────────▶ all nodes: a direct message to one entity
  │◀───────────── DirectAnswer │  how many of its clients are this entity

Handover of a client (the rules are in `handover`):

old home                    new home                         client
  │── HandoverOffer ──────────▶│
  │◀───────── HandoverAccepted │
  │── moved notice: go there ────────────────────────────────────▶│
  │                            │◀──────── join request, ticket ─│
  │◀──────────── HandoverClaim │
  │── ClientTransfer ─────────▶│── welcome ───────────────────────▶│
  │◀──────── HandoverConfirmed │  at once, and again when the client is certain to have arrived
  │── ForwardedRequest ───────▶│  what the client still sends to the old home
  │── DirectForwarded ────────▶│  a direct message that came to the old home for it
  │◀──────── HandoverCancelled │  or ClientReturned: the client stays at its old home

Nodes and entities:

new node                    any node
  │── ClusterJoinRequest ─────▶│
  │◀───────── ClusterJoinReply │  the place of the new node's site, or ClusterJoinRefused
  │── NodeHeartbeat ──────────▶ all nodes, twice a second
  │── RetainedStatesRequest ──▶ all nodes, once
  │◀───── RetainedStatesReport │  retained states of the node's clients
  │── EntitiesLeft, StatesWithdrawn ──▶ all nodes
  │── EntityCheck ────────────▶│  are these still your clients?
  │◀─────────── EntitiesAbsent │  these are not
  │── FenceRecords ───────────▶ all nodes: features of sets that have changed
  │── FenceBuckets ───────────▶│  digests of what it knows of them
  │◀───────────── FenceRecords │  what differs
  │── NodeStopping ───────────▶ all nodes
  │── RelayedMessage ─────────▶│  and from there to a node that the sender does not reach

overloaded node             node that stands by (the rules are in `scaling`)
  │── CallIn ─────────────────▶│  it joins its site at this place, and says so in its heartbeat

Messages are arrays on the wire: tags and the order of fields are the protocol, names are not.
"""

from typing import Annotated, ClassVar, TypeAlias

from msgspec import Meta, Struct

from nearcast.client_protocol.messages import EntityKey, FeatureId
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
from nearcast.protocols.voronoi.vso.messages import MESSAGES, Hops, Place, Record, Version
from nearcast.service.client_state import FenceOptions, FollowOptions, ThrottleOptions
from nearcast.service.cluster.recent_history import SubscriptionVersion
from nearcast.space.motion import Time
from nearcast.wire import Codec

Timestamp: TypeAlias = Annotated[int, Meta(ge=0, lt=2**53)]
Text: TypeAlias = Annotated[str, Meta(max_length=256)]
Digest: TypeAlias = Annotated[int, Meta(ge=0, lt=2**53)]
BUCKETS = 256  # into which features of fences are divided to compare them
Ticket: TypeAlias = Annotated[str, Meta(min_length=16, max_length=64)]

# What the receiver of a publication does with it:
# TO_OWNER: forward it to the site that owns its place. SPREAD: forward it to further sites that its
# area touches (VoroCast). PREVIOUS_OWNER: forward it to homes only, because the receiver owned the
# place a moment ago, or will own the publisher's next ones. CLIENTS_ONLY: match its own clients.
TO_OWNER, SPREAD, PREVIOUS_OWNER, CLIENTS_ONLY = 0, 1, 2, 3
MODE_BITS = 2
MODES = (1 << MODE_BITS) - 1  # the bits of a code that are its mode


def mode_code(mode: int, hops: int) -> int:
    """A mode and the number of hops so far, in one byte."""
    return hops << MODE_BITS | mode


def mode_of(code: int) -> int:
    return code & MODES


def hops_of(code: int) -> int:
    return code >> MODE_BITS


class RemotePublication(Struct, frozen=True, array_like=True, gc=False):
    """A publication between nodes: a `PublishRequest`, with its publisher and its time."""

    id: PublicationId
    entity: NodeId
    t: Timestamp
    packed: bool  # is the payload MessagePack, not JSON?
    x: Real | None
    y: Real | None
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
    lon: Real | None = None
    lat: Real | None = None
    alt: Real | None = None
    ttl: Real | None = None
    departed: bool = False  # a state whose publisher had left when it was made


class ClusterMessage(Message, frozen=True):
    """A message between the nodes of a cluster."""

    protocol: ClassVar[str] = "cluster"


class PublicationBatch(ClusterMessage, frozen=True, tag=101):
    """Publications in the order in which they were made; `codes` has each one's mode and hops."""

    codes: bytes
    publications: tuple[RemotePublication, ...]

    def __post_init__(self) -> None:
        if len(self.codes) != len(self.publications):
            raise ValueError("a batch has one code for each publication")


class CountRequest(ClusterMessage, frozen=True, tag=102):
    """Deliver these to your clients, and answer how many subscriptions matched (`CountReply`)."""

    publications: tuple[RemotePublication, ...]


class CountReply(ClusterMessage, frozen=True, tag=120):
    """How many subscriptions of the sender's clients matched each publication."""

    counts: tuple[tuple[PublicationId, Annotated[int, Meta(ge=0, lt=2**53)]], ...]


class RetainedStatesRequest(ClusterMessage, frozen=True, tag=121):
    """Asks for the retained states of these entities; of all the receiver's clients, if empty."""

    entities: tuple[NodeId, ...] = ()


class RetainedStatesReport(ClusterMessage, frozen=True, tag=122):
    """Retained states of the sender's clients at time `t`, or of clients that have left the cluster
    (`departed`). The receiver does not deliver them."""

    t: Timestamp
    states: tuple[RemotePublication, ...]
    departed: bool = False


class StatesInventory(ClusterMessage, frozen=True, tag=132):
    """The states that the sender has of the receiver's clients, and of those who have left the
    cluster, made until then: entity, channel and publication. The receiver sends what differs."""

    until: Timestamp
    states: tuple[tuple[NodeId, Text, PublicationId], ...]
    departed: tuple[tuple[NodeId, Text, PublicationId], ...] = ()


class SubscriptionUpdate(ClusterMessage, frozen=True, tag=103):
    """New or changed subscriptions, forwarded greedily to the site that owns their place."""

    records: tuple[Record, ...]
    hops: Hops = 1


class SubscriptionHint(ClusterMessage, frozen=True, tag=119):
    """The same to every site that the area touches, which may get the owner's copies later."""

    records: tuple[Record, ...]


class SubscriptionEnded(ClusterMessage, frozen=True, tag=104):
    """Subscriptions that have ended, each with its last version."""

    ended: tuple[tuple[SubscriptionId, Version], ...]
    hops: Hops = 1


class SubscriptionOwned(ClusterMessage, frozen=True, tag=105):
    """The sender's site owns these subscriptions of the receiver's clients, in these versions."""

    owned: tuple[tuple[SubscriptionId, Version], ...]


class ClusterJoinRequest(ClusterMessage, frozen=True, tag=106):
    """A new node asks to join. Its clients connect to `url`. `standby`: it stands by at first.
    `geometry`: of its world, which must be that of all nodes of the cluster."""

    url: Text
    standby: bool = False
    geometry: Text = "plane"


class ClusterJoinReply(ClusterMessage, frozen=True, tag=107):
    """The new node is a member. Its site begins at `place`; `gateway` is VSO's gateway site.
    `contact`: whose site it joins through, if not the sender's."""

    place: Place
    gateway: NodeId
    contact: NodeId | None = None


class ClusterJoinRefused(ClusterMessage, frozen=True, tag=133):
    """The new node cannot be a member, and why."""

    reason: Text


class StatesDigest(Struct, frozen=True, array_like=True):
    """How many retained states a node knows that were made until then, and the sum of their
    publications' numbers."""

    until: Timestamp
    count: Annotated[int, Meta(ge=0, lt=2**53)]
    total: Annotated[int, Meta(ge=0, lt=2**53)]


class NodeHeartbeat(ClusterMessage, frozen=True, tag=108):
    """The sender is alive. `load`: above 1 is too much. `need`: where another site would take over
    half of the sender's load; None if it has nothing to share. `others`: nodes that it knows.

    `role`: see `scaling.Role`. `share`: its load against its `capacity`, in subscriptions.
    `standby`: it may leave. `reason`: why it has this role. `site`: where its site is.
    `hears`: the nodes that it hears directly. `states`: see `state_comparison`. `fences`: a digest
    of all sets of fences, see `fence_replication`.
    """

    url: Text
    load: Annotated[float, Meta(ge=0, le=1e12)]
    need: Place | None
    others: tuple[NodeId, ...]
    role: Annotated[int, Meta(ge=0, le=3)] = 0
    share: Annotated[float, Meta(ge=0, le=1e12)] = 0.0
    capacity: Annotated[float, Meta(ge=1, le=1e12)] = 100_000.0
    standby: bool = False
    reason: Text = ""
    site: Place | None = None
    hears: tuple[NodeId, ...] = ()
    states: StatesDigest | None = None
    fences: Digest = 0


class CallIn(ClusterMessage, frozen=True, tag=131):
    """The sender is overloaded (`share`, `reason`), or stops: join your site at this place."""

    place: Place
    gateway: NodeId
    share: Annotated[float, Meta(ge=0, le=1e12)] = 0.0
    reason: Text = ""


class EntitiesLeft(ClusterMessage, frozen=True, tag=109):
    """Entities of the sender that have left for good."""

    entities: tuple[NodeId, ...]


class StatesWithdrawn(ClusterMessage, frozen=True, tag=130):
    """Retained states that clients of the sender have withdrawn: entity, channel, and when."""

    states: tuple[tuple[int, str, Time], ...]


class NodeStopping(ClusterMessage, frozen=True, tag=110):
    """The sender stops. The receiver answers with the same message, after all it sent before."""


class HandoverOffer(ClusterMessage, frozen=True, tag=111):
    """A client of the sender may come with this ticket. It must show a token of `holder`."""

    ticket: Ticket
    holder: Annotated[str, Meta(max_length=512)] = ""


class HandoverAccepted(ClusterMessage, frozen=True, tag=112):
    """The answer to `HandoverOffer`: the client may come."""

    ticket: Ticket


class HandoverClaim(ClusterMessage, frozen=True, tag=113):
    """The client with this ticket has connected to the sender: transfer it."""

    ticket: Ticket


class TransferredSubscription(Struct, frozen=True, array_like=True):
    """One subscription of a client that changes nodes."""

    number: Annotated[int, Meta(ge=0, lt=2**53)]
    since: Time
    asked: commands.Subscribe
    subscription: Subscription
    throttle_options: ThrottleOptions
    linger: float
    handovers: Hops
    earlier: tuple[SubscriptionVersion, ...]  # recent versions, for publications that arrive late
    fence_options: FenceOptions = FenceOptions()
    follow: FollowOptions = FollowOptions()


class ClientTransfer(ClusterMessage, frozen=True, tag=114):
    """A client with all its state; `delivered`: publications delivered to it in the last seconds,
    `direct`: direct messages likewise.

    `departed` is by the old home's clock. Legs of paths that begin later are the new home's.
    """

    ticket: Ticket
    entity: NodeId
    name: Text
    subscriptions: tuple[TransferredSubscription, ...]
    states: tuple[RemotePublication, ...]
    delivered: tuple[PublicationId, ...]
    departed: Timestamp
    direct: tuple[PublicationId, ...] = ()


class HandoverCancelled(ClusterMessage, frozen=True, tag=115):
    """The ticket is not valid any more, for either side."""

    ticket: Ticket


class HandoverConfirmed(ClusterMessage, frozen=True, tag=123):
    """The sender serves this client now; `settled`: and the client has stayed connected since."""

    ticket: Ticket
    settled: bool


class ClientReturned(ClusterMessage, frozen=True, tag=124):
    """The client disconnected before it knew that the sender serves it, so it goes back.

    `obeyed`: how many of the forwarded requests (`ForwardedRequest`) the sender has obeyed.
    """

    client: ClientTransfer
    obeyed: Annotated[int, Meta(ge=0, lt=2**53)]


class EntityCheck(ClusterMessage, frozen=True, tag=125):
    """The sender has retained states of these entities, believes them to be the receiver's clients
    and has had no news of them lately. Are they still there?"""

    entities: tuple[NodeId, ...]


class EntitiesAbsent(ClusterMessage, frozen=True, tag=126):
    """The answer to `EntityCheck`: these are not clients of the sender."""

    entities: tuple[NodeId, ...]


class ForwardedRequest(ClusterMessage, frozen=True, tag=116):
    """A request that a client, which is the receiver's now, still sent to its old home."""

    entity: NodeId
    frame: bytes
    packed: bool


class Credential(ClusterMessage, frozen=True, tag=117):
    """Proves knowledge of the cluster's key: a code over both nodes' public keys."""

    code: Annotated[bytes, Meta(min_length=32, max_length=32)]


class LinkRefused(ClusterMessage, frozen=True, tag=118):
    """The receiver is no member of the cluster; its messages are ignored."""

    reason: Text


class FenceRecord(Struct, frozen=True, array_like=True):
    """A feature of a set of fences as GeoJSON, and when and at which node it was put; without a
    text it was removed. Without an id: the set was replaced, and what is older has ended."""

    set_name: Text
    id: FeatureId | None
    t: Timestamp
    node: NodeId
    text: bytes | None = None


class FenceRecords(ClusterMessage, frozen=True, tag=134):
    """Features that have changed, or of which the receiver knows other versions."""

    records: tuple[FenceRecord, ...]


class FenceBuckets(ClusterMessage, frozen=True, tag=135):
    """Digests of the features that the sender knows. The receiver sends those of the buckets in
    which it knows others."""

    digests: Annotated[tuple[Digest, ...], Meta(min_length=BUCKETS, max_length=BUCKETS)]


class RemoteDirect(Struct, frozen=True, array_like=True, gc=False):
    """A direct message between nodes."""

    number: PublicationId
    source: NodeId
    name: Text  # of the sender
    t: Timestamp
    to: EntityKey
    packed: bool  # is the payload MessagePack, not JSON?
    payload: bytes = b""


class DirectSent(ClusterMessage, frozen=True, tag=136):
    """Deliver this to your clients that it is for, and answer how many (`DirectAnswer`)."""

    message: RemoteDirect


class DirectAnswer(ClusterMessage, frozen=True, tag=137):
    """How many clients of the sender a direct message is for."""

    number: PublicationId
    found: Annotated[int, Meta(ge=0, lt=2**53)]


class DirectForwarded(ClusterMessage, frozen=True, tag=138):
    """This one is for a client that has just been transferred from the sender to the receiver."""

    entity: NodeId
    message: RemoteDirect


class RelayedMessage(ClusterMessage, frozen=True, tag=127):
    """A message of `source` to `target`, which cannot reach each other; see `relaying`."""

    target: NodeId
    source: NodeId
    frame: bytes


OWN: tuple[type[Message], ...] = (
    PublicationBatch, CountRequest, SubscriptionUpdate, SubscriptionHint, SubscriptionEnded,
    SubscriptionOwned, ClusterJoinRequest, ClusterJoinReply, NodeHeartbeat, EntitiesLeft,
    NodeStopping, HandoverOffer, HandoverAccepted, HandoverClaim, ClientTransfer,
    HandoverCancelled, ForwardedRequest, Credential, LinkRefused, CountReply,
    RetainedStatesRequest, RetainedStatesReport, HandoverConfirmed, ClientReturned, EntityCheck,
    EntitiesAbsent, StatesWithdrawn, RelayedMessage, CallIn, StatesInventory,
    ClusterJoinRefused, FenceRecords, FenceBuckets, DirectSent, DirectAnswer, DirectForwarded,
)  # fmt: skip
CODEC = Codec(*mesh_messages.MESSAGES, *MESSAGES, *OWN)
