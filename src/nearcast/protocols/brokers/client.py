"""A client of a broker: subscribes in the way of its design, and delivers each publication once.

It is attached to one broker. When that one is silent for too long, it attaches to the next and
sends everything again. It delivers only publications that were made while it was subscribed, and
none twice; apart from that it trusts its broker (see `interests` for why).
"""

from collections import deque
from collections.abc import Iterable, Sequence
from random import Random

from nearcast.model.commands import Command, Leave, Publish, Subscribe
from nearcast.model.interests import (
    ActiveInterests,
    InterestCommand,
    InterestVersion,
    version_at,
)
from nearcast.model.publication import Publication, wants
from nearcast.model.subscription import NodeId, Subscription, SubscriptionId
from nearcast.node import Effect, Message, Node, Timer
from nearcast.protocols.brokers.ancestors import MOST_NAMED
from nearcast.protocols.brokers.covering import conforms
from nearcast.protocols.brokers.interests import make_design
from nearcast.protocols.brokers.messages import (
    Adjust,
    Advertise,
    Advertisement,
    Bye,
    Cancel,
    Heartbeat,
    Hello,
    Interest,
    Inventory,
    Notify,
    Post,
    Unadvertise,
    UnknownClient,
    Version,
)
from nearcast.protocols.brokers.parameters import Parameters
from nearcast.protocols.brokers.parametric import same_form, values_of
from nearcast.protocols.brokers.routes import digest
from nearcast.protocols.dedup import DeliveredPublications, publication_key
from nearcast.space.boxes import box_around
from nearcast.space.motion import SECOND, Time
from nearcast.space.shapes import EVERYWHERE, LARGEST, Shape, Vector, cuboid

SETTLING_TIME: Time = SECOND  # after this, all brokers have received a change
CHANGES_REMEMBERED = 64  # of one interest: a publication under way may be older than the latest


class CheckBroker(Timer, frozen=True):
    """Send a heartbeat, or attach to the next broker if this one is silent."""


class FinishSettling(Timer, frozen=True):
    """The latest subscription has reached every broker."""


class RenewInterest(Timer, frozen=True):
    """Send the interest again, as it is by now."""

    subscription: SubscriptionId


class BrokerClient(Node):
    """The node of an entity, attached to one broker at a time."""

    def __init__(
        self, node_id: NodeId, rng: Random, parameters: Parameters, brokers: Sequence[NodeId]
    ) -> None:
        super().__init__(node_id, rng)
        self.parameters = parameters
        # The first is its own; the others are for when that one fails. Brokers name some, too.
        self.brokers = tuple(brokers)
        self.turn = 0
        self.design = make_design(parameters)
        self.advertisements = [Advertisement(0, node_id)] if not parameters.advertise else []
        self.interests = ActiveInterests()
        self.subscriptions = self.interests.current
        self.history: dict[SubscriptionId, deque[InterestVersion]] = {}
        # The parts of interests that were sent to the broker, by the id that the broker knows.
        self.sent: dict[SubscriptionId, tuple[Subscription, Version, Time]] = {}
        self.interest_of_part: dict[SubscriptionId, SubscriptionId] = {}
        self.advertised: dict[int, Version] = {}
        self.version: Version = 0
        self.attached = self.settling = False
        self.began: Time = 0  # this session
        self.last_received: Time = 0
        self.recent_publishers: dict[NodeId, tuple[Time, Vector]] = {}
        self.delivered = DeliveredPublications()

    @property
    def broker(self) -> NodeId:
        return self.brokers[self.turn % len(self.brokers)]

    @property
    def ready(self) -> bool:
        return self.attached and not self.settling

    def on_start(self) -> None:
        self._attach()
        if self.parameters.heartbeat:
            self.out.set_timer(CheckBroker(), self.parameters.heartbeat)

    # The application.

    def advertise(self, now: Time, advertisements: Sequence[Advertisement]) -> list[Effect]:
        """An input like a command: from now on the client publishes only what these advertise."""
        self._advance(now)
        if not self.out.stopped:
            self._advertise(list(advertisements))
        return self.out.drain()

    def on_command(self, command: Command) -> None:
        match command:
            case Publish():
                self._publish(command.stamped(self.id, self.now))
            case Leave():
                self.out.send(self.broker, Bye())
                self.out.stop()
            case _:
                why = self.interests.apply(command, self.id, self.now)
                if why is None:
                    self._report_change(command)
                else:
                    self.out.note(why, command.subscription)

    def _report_change(self, command: InterestCommand) -> None:
        """Keep the new version of the subscription, and tell the broker of it."""
        number = command.subscription
        subscription = self.subscriptions.get(number)
        history = self.history.setdefault(number, deque(maxlen=CHANGES_REMEMBERED))
        history.append(InterestVersion(self.now, subscription))
        if subscription is None:
            self._update_broker(number, [])
            self.out.clear_timer(RenewInterest(number))
            return
        self._renew(subscription)
        if isinstance(command, Subscribe):
            self.settling = True
            self.out.set_timer(FinishSettling(), SETTLING_TIME)

    def _renew(self, wanted: Subscription) -> None:
        self._update_broker(wanted.id, self.design.parts(wanted, self.now))
        if self.design.renews(wanted, self.now):
            self.out.set_timer(RenewInterest(wanted.id), self.parameters.interval)
        else:
            self.out.clear_timer(RenewInterest(wanted.id))

    def _publish(self, publication: Publication) -> None:
        extent = self.parameters.advertise
        if extent and not any(conforms(publication, a) for a in self.advertisements):
            area = _around(publication.shape, extent)
            self._advertise([Advertisement(0, self.id, area)])
        for sent in self.design.publications_to_send(publication):
            self.out.send(self.broker, Post(sent))

    # What is sent to the broker.

    def _next_version(self) -> Version:
        """Higher than all before, also those before a restart."""
        self.version = max(self.version + 1, self.now)
        return self.version

    def _advertise(self, advertisements: list[Advertisement]) -> None:
        self.advertisements = advertisements
        kept = {advertisement.id for advertisement in advertisements}
        for old in [old for old in self.advertised if old not in kept]:
            del self.advertised[old]
            self.out.send(self.broker, Unadvertise(self.id, old, self._next_version()))
        for advertisement in advertisements:
            version = self.advertised[advertisement.id] = self._next_version()
            self.out.send(self.broker, Advertise(advertisement, version))

    def _update_broker(self, wanted: SubscriptionId, parts: list[Subscription]) -> None:
        """Send what differs from these parts. A part that has changed is cancelled and sent again
        (PADRES has no other way), unless new numbers are enough."""
        named = {part.id: part for part in parts}
        for name in [name for name, of in self.interest_of_part.items() if of == wanted]:
            if name not in named:
                self._cancel(name)
        for name, part in named.items():
            before = self.sent.get(name)
            if before is not None and before[0] == part:
                continue
            if before is not None and self._only_numbers_differ(before[0], part):
                version = self._next_version()
                self.out.send(self.broker, Adjust(self.id, name, version, values_of(part)))
            else:
                if before is not None:
                    self._cancel(name)
                version = self._next_version()
                self.out.send(self.broker, Interest(part, version, self.now))
            self.sent[name] = (part, version, self.now)
            self.interest_of_part[name] = wanted

    def _only_numbers_differ(self, before: Subscription, part: Subscription) -> bool:
        return self.parameters.interest == "parametric" and same_form(before, part)

    def _cancel(self, name: SubscriptionId) -> None:
        del self.sent[name], self.interest_of_part[name]
        self.out.send(self.broker, Cancel(self.id, name, self._next_version()))

    # The broker.

    def _attach(self) -> None:
        """Begin a new session: everything is sent again."""
        self.attached = False
        self.began = self.last_received = self.now
        self.sent, self.interest_of_part, self.advertised = {}, {}, {}
        self.out.send(self.broker, Hello(self._next_version()))
        self._advertise(self.advertisements)
        for subscription in self.subscriptions.values():
            self._renew(subscription)

    def on_timer(self, timer: Timer) -> None:
        match timer:
            case RenewInterest(subscription) if subscription in self.subscriptions:
                self._renew(self.subscriptions[subscription])
            case FinishSettling():
                self.settling = False
            case CheckBroker():
                silence = self.now - self.last_received
                if silence > self.parameters.misses * self.parameters.heartbeat:
                    self.out.note("unlinked", self.broker)
                    self.turn += 1
                    self._attach()
                else:
                    interests = {(self.id, n): version for n, (_, version, _) in self.sent.items()}
                    advertised = {(self.id, n): version for n, version in self.advertised.items()}
                    self.out.send(self.broker, Heartbeat(digest(interests, advertised)))
                self.out.set_timer(CheckBroker(), self.parameters.heartbeat)

    def on_message(self, sender: NodeId, message: Message) -> None:
        if sender != self.broker:
            self.out.note("ignored", sender)
            return
        self.last_received = self.now
        match message:
            case Hello() | Heartbeat():  # a heartbeat answers ours: its Hello may be lost
                if isinstance(message, Heartbeat):
                    known = dict.fromkeys((*self.brokers, *message.above, *message.beside))
                    self.brokers = tuple(known)[: max(MOST_NAMED, len(self.brokers))]
                if not self.attached:
                    self.attached = True
                    self.out.note("linked", sender)
            case UnknownClient():
                # One new session for all messages that it answers, unless the Hello was lost.
                if self.attached or self.now - self.began > SETTLING_TIME:
                    self._attach()
            case Inventory():
                self._complete(message)
            case Notify(publication, names, hops):
                self._receive_notification(publication, names, hops)
            case _:
                self.out.note("ignored", sender)

    def _complete(self, inventory: Inventory) -> None:
        """The broker has this from us: send what is missing, and cancel what has ended."""
        has = {number: version for _, number, version in inventory.advertisements}
        for advertisement in self.advertisements:
            version = self.advertised[advertisement.id]
            if has.get(advertisement.id) != version:
                self.out.send(self.broker, Advertise(advertisement, version))
        for number, version in has.items():
            if number not in self.advertised:
                self.out.send(self.broker, Unadvertise(self.id, number, version))
        has = {number: version for _, number, version in inventory.interests}
        for name, (part, version, sent) in self.sent.items():
            if has.get(name) != version:
                self.out.send(self.broker, Interest(part, version, sent))
        for name, version in has.items():
            if name not in self.sent:
                self.out.send(self.broker, Cancel(self.id, name, version))

    def _receive_notification(
        self, received: Publication, names: Sequence[SubscriptionId], hops: int
    ) -> None:
        mine: dict[SubscriptionId, None] = {}
        made: Publication | None = None
        for name in names:
            interest = self.design.meaning(name)
            wanted = (
                None if interest is None else version_at(self.history.get(interest, ()), received.t)
            )
            if wanted is None:
                continue
            original = self.design.receive(wanted, received, self.now)
            if original is None:
                if wanted.id in self.subscriptions:
                    now_wanted = self.subscriptions[wanted.id]
                    self._update_broker(wanted.id, self.design.parts(now_wanted, self.now))
            elif not self.design.filters or wants(wanted, original, original.t):
                made = original
                mine[wanted.id] = None
        if made is not None and self.delivered.is_new(publication_key(made), self.now):
            self.out.deliver(made, tuple(mine), hops)
            s = made.shape
            self.recent_publishers[made.node] = (self.now, (s.x, s.y, s.z))

    def known(self, now: Time) -> Iterable[tuple[NodeId, Vector]]:
        """The publishers of the last seconds, and where they published."""
        memory = round(self.parameters.memory_s * SECOND)
        return [
            (other, where)
            for other, (t, where) in self.recent_publishers.items()
            if now - t <= memory and other != self.id
        ]


def _around(shape: Shape, extent: float) -> Shape:
    """A box about a shape that reaches so far beyond it."""
    low, high = box_around(shape)
    sizes = [(b - a) / 2 + extent for a, b in zip(low, high, strict=True)]
    if not max(sizes) <= LARGEST:
        return EVERYWHERE
    return cuboid(shape.x, shape.y, shape.z, *sizes)
