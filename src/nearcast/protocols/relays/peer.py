"""A peer that publishes to its subscribers with the help of relays.

A publication from the peer's own place goes through the relays to all interests around there, which
the directory has told it. The receiver decides whether it wants it. A publication for another place
goes to the directory, which matches it.
"""

from collections.abc import Iterable
from math import dist
from random import Random

from nearcast.field_checks import between, one_of
from nearcast.model.commands import Command, Leave, Move, Publish, Subscribe, Tune, Unsubscribe
from nearcast.model.publication import Publication
from nearcast.model.subscription import NodeId, Subscription, SubscriptionId
from nearcast.node import Message, Node, Timer
from nearcast.protocols.dedup import DeliveredPublications, is_outside_window, publication_key
from nearcast.protocols.interests import PeerInterests, ball_around_region
from nearcast.protocols.relays.directory import (
    CHECK_INTERVAL,
    ROUNDED,
    UPDATE_INTERVAL,
    Bye,
    DigestCheck,
    Interest,
    InterestEnded,
    NeighbourhoodUpdate,
    Notify,
    Post,
    PublisherPosition,
    digest,
    moves,
)
from nearcast.protocols.relays.layer import SWITCH, capacity_of, check_uplinks, interest_of
from nearcast.protocols.relays.parameters import Parameters as RelaysParameters
from nearcast.protocols.relays.relays import Relays
from nearcast.space.motion import SECOND, Time
from nearcast.space.shapes import POINT, Vector

DIRECTORIES = ("central", "mesh")
MEMORY: Time = 2 * SECOND  # a source is known for so long after its last publication


class Parameters(RelaysParameters, frozen=True, kw_only=True):
    """Settings of the protocol."""

    # on or off: do peers forward each other's publications, or send all directly?
    relays: str = "on"
    # central or mesh: how peers find each other. A directory that knows all interests, in the
    # simulator alone; or as sites of VON, by x and y, where no peer is needed by all.
    directory: str = "central"
    # Uplinks of peers in kbit/s, 1 to 1e7: between these, by chance; the logarithm is uniform
    # ([Lehn] V).
    uplink_min: float = 100.0
    uplink_max: float = 500.0
    # Units beyond an interest in which it is known already while anybody moves, 0 to 1e9; at least
    # what two of them walk in half a second, or with a mesh in an interval.
    room: float = 20.0

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("relays", self.relays, SWITCH)
        one_of("directory", self.directory, DIRECTORIES)
        check_uplinks(self.uplink_min, self.uplink_max)
        between("room", self.room, 0, 1e9)


class MarkReady(Timer, frozen=True):
    """The neighbourhood has not changed for a while: be ready."""


class RepeatInterests(Timer, frozen=True):
    """Send unanswered interests to the directory again."""


class CompareDigests(Timer, frozen=True):
    """Send digests to the directory."""


class RelayPeer(Node):
    """A publisher and subscriber that relays for others."""

    def __init__(
        self, node_id: NodeId, rng: Random, parameters: Parameters, directory: NodeId
    ) -> None:
        super().__init__(node_id, rng)
        self.parameters = parameters
        self.directory = directory
        self.interests = PeerInterests()
        self.delivered = DeliveredPublications()
        self.wanted: dict[SubscriptionId, Subscription] = {}  # others', around here
        self.sources: dict[NodeId, None] = {}  # peers whose publications it may get
        self._audience: dict[NodeId, int] = {}  # how many of `wanted` each has
        self._here: Vector | None = None
        # By source: when a publication last came, from where, and when it was made.
        self._seen: dict[NodeId, tuple[Time, Vector, Time]] = {}
        self._settled = True
        self._unanswered: dict[SubscriptionId, None] = {}
        self.relays = Relays(
            node_id, self.out, rng, lambda: self.now, parameters,
            capacity_of(parameters.uplink_min, parameters.uplink_max, rng), self._is_acquainted,
            optimises=parameters.relays == "on",
        )  # fmt: skip

    # Windows.

    @property
    def ready(self) -> bool:
        """The directory has answered, and nothing has changed since for a while."""
        return self._settled

    def known(self, now: Time) -> Iterable[tuple[NodeId, Vector]]:
        return [(node, place) for node, (t, place, _) in self._seen.items() if now - t <= MEMORY]

    def _is_acquainted(self, node: NodeId) -> bool:
        """Is it in N_v?"""
        return node in self.sources or node in self._audience

    # Hooks.

    def on_start(self) -> None:
        self.out.note("uplink", value=round(self.relays.uplink.capacity * 8))
        self.out.send(self.directory, Bye())  # an earlier node of this id is gone
        self.out.set_timer(CompareDigests(), self.rng.randrange(1, CHECK_INTERVAL))

    def on_command(self, command: Command) -> None:
        match command:
            case Publish():
                self._publish(command.stamped(self.id, self.now))
            case Subscribe() | Move() | Tune() | Unsubscribe():
                why = self.interests.obey(command, self.id, self.now)
                if why is not None:
                    self.out.note(why, command.subscription)
                    return
                self._settled = False
                self._send_interest(command.subscription)
            case Leave():
                self.relays.leave()
                self.out.send(self.directory, Bye())
                self.out.stop()

    def on_message(self, sender: NodeId, message: Message) -> None:
        if self.relays.on(message, sender):
            self._deliver_arrived()
        elif sender != self.directory or (
            isinstance(message, Notify) and is_outside_window(message.publication, self.now)
        ):
            self.out.note("refused", sender)
        elif isinstance(message, NeighbourhoodUpdate):
            self._update_neighbourhood(message)
        elif isinstance(message, Notify):
            self._deliver(message.publication, 2)

    def on_timer(self, timer: Timer) -> None:
        if self.relays.wake(timer):
            self.interests.forget(self.now)
            return
        match timer:
            case MarkReady():
                self._settled = True
            case RepeatInterests():
                unanswered, self._unanswered = self._unanswered, {}
                for subscription in unanswered:
                    self._send_interest(subscription)
            case CompareDigests():
                own = digest(subscription.id for subscription in self.interests.present())
                check = DigestCheck(own, digest(self.wanted), digest(self.sources))
                self.out.send(self.directory, check)
                self.out.set_timer(CompareDigests(), CHECK_INTERVAL)

    # Who is around.

    def _send_interest(self, subscription: SubscriptionId) -> None:
        """Send an interest to the directory; it is repeated until the directory answers."""
        current = self.interests.current(subscription)
        self.out.send(
            self.directory, InterestEnded(subscription) if current is None else Interest(current)
        )
        if not self._unanswered:
            self.out.set_timer(RepeatInterests(), SECOND)
        self._unanswered[subscription] = None

    def _update_neighbourhood(self, update: NeighbourhoodUpdate) -> None:
        for subscription_id in update.answered:
            self._unanswered.pop(subscription_id, None)
        if not self._settled and not self._unanswered:
            self.out.set_timer(MarkReady(), UPDATE_INTERVAL)
        if update.whole:
            for memory in (self.wanted, self.sources, self._audience):
                memory.clear()
        if update.again:
            for own in self.interests.present():
                self._send_interest(own.id)
        for gone in update.ended:
            ended = self.wanted.pop(gone, None)
            if ended is not None:
                self._audience[ended.node] -= 1
                if not self._audience[ended.node]:
                    del self._audience[ended.node]
        for subscription in update.wanted:
            if subscription.id not in self.wanted:
                node = subscription.node
                self._audience[node] = self._audience.get(node, 0) + 1
            self.wanted[subscription.id] = subscription
        self.sources.update(dict.fromkeys(update.came))
        for node in update.went:
            self.sources.pop(node, None)

    def _spot(self) -> tuple[Vector, bool] | None:
        """From where this peer publishes, as the directory knows it, and whether it moves."""
        for subscription in self.interests.present():
            area = ball_around_region(subscription.region, self.now)
            if area is not None:
                return area.place, moves(subscription, self.now)
            break
        return None if self._here is None else (self._here, False)

    # Publications.

    def _publish(self, publication: Publication) -> None:
        self._deliver(publication, 0)  # its own echo needs no way
        shape = publication.shape
        place = shape.x, shape.y, shape.z
        spot = self._spot()
        if shape.kind == POINT and spot is not None:
            far = ROUNDED * (1 + sum(map(abs, place)))
            if dist(place, spot[0]) <= (self.parameters.room / 2 if spot[1] else far):
                self.relays.disseminate(publication, self._audience_of(publication, place))
                return
        if not self.interests.present() and self._here != place:
            self._here = place
            self.out.send(self.directory, PublisherPosition(*place))
        self.out.send(self.directory, Post(publication))

    def _audience_of(self, publication: Publication, place: Vector) -> dict[NodeId, float]:
        """Interest by subscriber, as far as known here; subscribers may have changed since."""
        audience: dict[NodeId, float] = {}
        for subscription in self.wanted.values():
            if subscription.channel != publication.channel:
                continue
            filter_ = subscription.filter
            if filter_ is not None and not filter_.accepts(publication.attributes, publication.t):
                continue
            area = ball_around_region(subscription.region, publication.t)
            if area is None:
                continue
            away = area.away(*place)
            room = self.parameters.room if moves(subscription, self.now) else 0.0
            if away <= area.radius + room + ROUNDED * (1 + sum(map(abs, place))):
                interest = interest_of(away, area.radius)
                node = subscription.node
                audience[node] = max(audience.get(node, 0.0), interest)
        return audience

    def _deliver_arrived(self) -> None:
        for publication, hops in self.relays.drain():
            shape, made = publication.shape, publication.t
            if made >= self._seen.get(publication.node, (0, (0.0, 0.0, 0.0), 0))[2]:
                self._seen[publication.node] = self.now, (shape.x, shape.y, shape.z), made
            self._deliver(publication, hops)

    def _deliver(self, publication: Publication, hops: int) -> None:
        wanting = self.interests.wanting(publication)
        if wanting and self.delivered.is_new(publication_key(publication), self.now):
            self.out.deliver(publication, tuple(wanting), hops)
