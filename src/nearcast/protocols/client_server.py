"""The baseline of every comparison: one server knows every interest.

client                      server                         client
  │── Interest, Moved, Tuned,   │
  │   Cancel ──────────────────▶│
  │                             │◀───────────────── Post ──│
  │◀──────────────── Notify ────│ for whoever wants it
  │── Bye ─────────────────────▶│ forgets all of its interests
"""

from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import ClassVar, TypeVar

import numpy as np
from msgspec import Struct

from nearcast.field_checks import one_of
from nearcast.matching import EXACT, MATCHERS
from nearcast.matching.matcher import Matcher, make_batch
from nearcast.model.commands import Command, Leave, Move, Publish, Subscribe, Tune, Unsubscribe
from nearcast.model.interests import ActiveInterests, InterestCommand
from nearcast.model.publication import Publication
from nearcast.model.subscription import (
    NodeId,
    PublicationId,
    Region,
    Subscription,
    SubscriptionId,
)
from nearcast.node import Message, Node, Priority
from nearcast.protocols.dedup import DeliveredPublications, publication_key
from nearcast.protocols.offers import PEER_OFFERS, OverlayOffer
from nearcast.protocols.overlay import FIRST_SERVER, ProtocolKind
from nearcast.protocols.update_rates import Rules, ServerRates, rules_of
from nearcast.space.motion import FOREVER, SECOND, Time
from nearcast.space.shapes import Vector
from nearcast.wire import Codec


class ClientServerMessage(Message, frozen=True):
    """A message between a client and the server."""

    protocol: ClassVar[str] = "client-server"


class Interest(ClientServerMessage, frozen=True, tag=1):
    """A whole subscription, new or sent again, and its update rates."""

    subscription: Subscription
    rates: Rules = ()


class Moved(ClientServerMessage, frozen=True, tag=2):
    """A new region; the server has the rest of the subscription."""

    subscription: SubscriptionId
    region: Region


class Cancel(ClientServerMessage, frozen=True, tag=3):
    """A subscription ends."""

    subscription: SubscriptionId
    t: Time


class Post(ClientServerMessage, frozen=True, tag=4):
    """A publication, from a client to the server."""

    publication: Publication

    def carries(self) -> PublicationId:
        return self.publication.id


class Notify(ClientServerMessage, frozen=True, tag=5):
    """A publication, and the subscriptions of the client that it matches."""

    ordered: ClassVar[bool] = False
    priority: ClassVar[Priority] = Priority.PUBLICATION
    publication: Publication
    subscriptions: tuple[SubscriptionId, ...]

    def carries(self) -> PublicationId:
        return self.publication.id


class Bye(ClientServerMessage, frozen=True, tag=6):
    """A client leaves; all of its subscriptions end."""

    t: Time


class Ask(ClientServerMessage, frozen=True, tag=7):
    """The server does not know this subscription: send the whole interest."""

    subscription: SubscriptionId


class Tuned(ClientServerMessage, frozen=True, tag=8):
    """The interest with other numbers for its variables. Its clock goes on: `t` orders versions."""

    subscription: Subscription
    t: Time


CODEC = Codec(Interest, Moved, Cancel, Post, Notify, Bye, Ask, Tuned)


MomentKey = TypeVar("MomentKey", int, tuple[int, int])

MAX_REMEMBERED = 100_000  # ended subscriptions whose end is remembered


def remember_latest(moments: dict[MomentKey, Time], who: MomentKey, t: Time) -> None:
    moments[who] = max(t, moments.pop(who, t))
    if len(moments) > MAX_REMEMBERED:
        del moments[next(iter(moments))]


class CentralServer(Node):
    """Knows all subscriptions, and sends every publication to the clients that it matches."""

    def __init__(self, node_id: NodeId, rng: Random, matcher: Matcher) -> None:
        super().__init__(node_id, rng)
        self.matcher = matcher
        self.subscriptions: dict[NodeId, dict[SubscriptionId, Subscription]] = {}
        self.owner: dict[SubscriptionId, NodeId] = {}
        # When subscriptions ended and clients left: an older message that arrives later is ignored.
        self.ended: dict[tuple[NodeId, SubscriptionId], Time] = {}
        self.left: dict[NodeId, Time] = {}
        self.tuned: dict[SubscriptionId, Time] = {}
        self.rates = ServerRates(self)

    def on_message(self, sender: NodeId, message: Message) -> None:
        match message:
            case Post(publication):
                if publication.node != sender:
                    self.out.note("refused", publication.id)  # nobody speaks for another
                else:
                    self._notify(publication, self.matcher.match(publication, publication.t))
            case Moved(subscription, region):
                known = self.subscriptions.get(sender, {}).get(subscription)
                if known is None:
                    self.out.send(sender, Ask(subscription))
                elif region.since < known.region.since:
                    self.out.note("ignored", subscription)  # overtaken by a newer one
                else:
                    self._put(sender, known.moved(region, region.since))
            case Interest(subscription) | Tuned(subscription):
                if self.owner.get(subscription.id, sender) != sender or subscription.node != sender:
                    self.out.note("refused", subscription.id)
                elif self._overtaken(sender, subscription, message):
                    self.out.note("ignored", subscription.id)
                else:
                    self._put(sender, subscription)
                    if isinstance(message, Tuned):
                        self.tuned[subscription.id] = message.t
                    else:
                        self.rates.put(subscription.id, message.rates)
            case Cancel(subscription, t):
                if self.owner.get(subscription, sender) == sender:
                    remember_latest(self.ended, (sender, subscription), t)
                    self._drop(sender, subscription)
            case Bye(t):
                remember_latest(self.left, sender, t)
                for known in list(self.subscriptions.get(sender, {}).values()):
                    if known.region.since <= t:  # else of a later life, which has overtaken it
                        self._drop(sender, known.id)

    def on_messages(self, arrivals: Sequence[tuple[NodeId, Message]]) -> None:
        """Publications that arrive together are matched together."""
        publications: list[Publication] = []
        for sender, message in arrivals:
            if isinstance(message, Post) and message.publication.node == sender:
                publications.append(message.publication)
                continue
            self._notify_all(publications)
            publications = []
            self.on_message(sender, message)
        self._notify_all(publications)

    def _notify_all(self, publications: list[Publication]) -> None:
        if not publications:
            return
        matches = self.matcher.match_many(make_batch(publications))
        order = np.lexsort((matches.subscription, matches.publication))
        wanted = matches.subscription[order].tolist()
        ends = np.searchsorted(
            matches.publication[order], np.arange(len(publications)), "right"
        ).tolist()
        begin = 0
        for publication, end in zip(publications, ends, strict=True):
            self._notify(publication, wanted[begin:end])
            begin = end

    def _notify(self, publication: Publication, wanted: Iterable[SubscriptionId]) -> None:
        by_node: dict[NodeId, list[SubscriptionId]] = {}
        for subscription in wanted:
            by_node.setdefault(self.owner[subscription], []).append(subscription)
        for node, subscriptions in by_node.items():
            due = self.rates.admit(publication, node, subscriptions, self.subscriptions[node])
            if due:
                self.out.send(node, Notify(publication, tuple(due)))

    def _overtaken(self, sender: NodeId, subscription: Subscription, message: Message) -> bool:
        known = self.subscriptions.get(sender, {}).get(subscription.id)
        since = subscription.region.since
        made = message.t if isinstance(message, Tuned) else since
        return (
            (known is not None and since < known.region.since)
            or made < self.tuned.get(subscription.id, -1)
            or since <= self.left.get(sender, -1)
            or since <= self.ended.get((sender, subscription.id), -1)
        )

    def _put(self, sender: NodeId, subscription: Subscription) -> None:
        self.subscriptions.setdefault(sender, {})[subscription.id] = subscription
        self.owner[subscription.id] = sender
        self.matcher.put(subscription)

    def _drop(self, sender: NodeId, subscription: SubscriptionId) -> None:
        if self.subscriptions.get(sender, {}).pop(subscription, None) is not None:
            self.tuned.pop(subscription, None)
            self.rates.put(subscription, ())
            del self.owner[subscription]
            self.matcher.drop(subscription)


class CentralServerClient(Node):
    """The node of an entity: sends everything to the server, delivers what it is notified of."""

    def __init__(self, node_id: NodeId, rng: Random, server: NodeId, memory: Time) -> None:
        super().__init__(node_id, rng)
        self.server = server
        self.memory = memory
        self.interests = ActiveInterests()
        self.subscriptions = self.interests.current
        self.rates: dict[SubscriptionId, Rules] = {}
        self.recent_publishers: dict[NodeId, tuple[Time, Vector]] = {}
        self.delivered = DeliveredPublications()
        # From when until when each subscription is in force: the server, which knows of changes
        # later, may notify of publications made before or after.
        self.span: dict[SubscriptionId, tuple[Time, Time]] = {}

    def on_command(self, command: Command) -> None:
        match command:
            case Publish():
                self.out.send(self.server, Post(command.stamped(self.id, self.now)))
            case Leave():
                self.out.send(self.server, Bye(self.now))
                self.out.stop()
            case _:
                why = self.interests.apply(command, self.id, self.now)
                if why is None:
                    self._report_change(command)
                else:
                    self.out.note(why, command.subscription)

    def _report_change(self, command: InterestCommand) -> None:
        """Tell the server what the command has changed."""
        number = command.subscription
        match command:
            case Subscribe():
                self.span.setdefault(number, (self.now, FOREVER))  # or it goes on
                self.rates[number] = rules_of(command.rates)
                self._send_interest(number)
            case Move():
                self.out.send(self.server, Moved(number, self.subscriptions[number].region))
            case Tune():
                self.out.send(self.server, Tuned(self.subscriptions[number], self.now))
            case Unsubscribe():
                self.span[number] = (self.span[number][0], self.now)
                del self.rates[number]
                self.out.send(self.server, Cancel(number, self.now))

    def _send_interest(self, number: SubscriptionId) -> None:
        self.out.send(self.server, Interest(self.subscriptions[number], self.rates[number]))

    def on_message(self, sender: NodeId, message: Message) -> None:
        match message:
            case Notify(publication, subscriptions) if sender == self.server:
                mine = tuple(s for s in subscriptions if self._wanted(s, publication.t))
                if mine and self.delivered.is_new(publication_key(publication), self.now):
                    # Two messages lie between publisher and subscriber: Post and Notify.
                    self.out.deliver(publication, mine, 2)
                    s = publication.shape
                    self.recent_publishers[publication.node] = (self.now, (s.x, s.y, s.z))
            case Ask(subscription) if sender == self.server:
                if subscription in self.subscriptions:
                    self._send_interest(subscription)
            case _:
                self.out.note("ignored", sender)

    def _wanted(self, subscription: SubscriptionId, t: Time) -> bool:
        begin, end = self.span.get(subscription, (FOREVER, FOREVER))
        return begin <= t < end

    def known(self, now: Time) -> Iterable[tuple[NodeId, Vector]]:
        """The publishers of the last seconds, and where they published."""
        return [
            (other, where)
            for other, (t, where) in self.recent_publishers.items()
            if now - t <= self.memory and other != self.id
        ]


class Parameters(Struct, frozen=True, kw_only=True):
    """What can be set for client/server."""

    # scan | grid | rtree | lazy | swept: who wants a publication; all give one answer
    matcher: str = "grid"
    memory_s: float = 2.0  # seconds for which a client remembers publishers

    def __post_init__(self) -> None:
        one_of("matcher", self.matcher, EXACT)
        if not 0 < self.memory_s <= 1e6:
            raise ValueError(f"memory_s must be above 0 and at most 1e6, not {self.memory_s}")


class ClientServerOverlay:
    """One server, and a client for each entity."""

    def __init__(self, parameters: Parameters, stream: Callable[[NodeId], Random]) -> None:
        self.parameters = parameters
        self.stream = stream

    def servers(self) -> list[Node]:
        matcher = MATCHERS[self.parameters.matcher]()
        return [CentralServer(FIRST_SERVER, self.stream(FIRST_SERVER), matcher)]

    def entity(self, node_id: NodeId, rng: Random) -> Node:
        return CentralServerClient(
            node_id, rng, FIRST_SERVER, round(self.parameters.memory_s * SECOND)
        )


KIND = ProtocolKind(
    Parameters, CODEC, ClientServerOverlay, offers=PEER_OFFERS | {OverlayOffer.RATES}
)
