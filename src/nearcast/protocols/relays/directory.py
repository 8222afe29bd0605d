"""Interest management, which [Lehn] leaves to other systems: who may want whose publications.

peer                        directory                     peer
  │── Interest, InterestEnded, ─▶│
  │   PublisherPosition          │
  │◀────── NeighbourhoodUpdate ──│── NeighbourhoodUpdate ──▶│  subscribers and sources near you
  │── DigestCheck ──────────────▶│                          │  do you know the same of me?
  │── Post ─────────────────────▶│── Notify ───────────────▶│  published at another place
  │── Bye ──────────────────────▶│

A peer publishes from its place: the centre of its first interest, or where it last published if it
has none. Four times a second the directory tells each peer what has changed: which interests are
around its place, and from which sources it may receive. Publications then go from peer to peer.
Interests that move are searched within a margin (`room`), so that nothing between two searches is
missed. Peers repeat their interests until they are answered. Both sides compare digests from time
to time, which repairs lost messages; a peer that sends no more digests is forgotten.
"""

from collections.abc import Iterable
from math import inf
from random import Random
from typing import Annotated, TypeAlias

import numpy as np
from msgspec import Meta

from nearcast.model.publication import Publication, wants
from nearcast.model.subscription import NodeId, PublicationId, Subscription, SubscriptionId
from nearcast.node import Message, Node, Real, Timer
from nearcast.protocols.dedup import is_outside_window
from nearcast.protocols.interests import ball_around_region
from nearcast.protocols.relays.messages import MESSAGES, RelayMessage
from nearcast.space.motion import SECOND, Moving, Time
from nearcast.space.shapes import Vector
from nearcast.wire import Codec

UPDATE_INTERVAL: Time = SECOND // 4  # between two searches
CHECK_INTERVAL: Time = 4 * SECOND  # between two comparisons of digests
PATIENCE: Time = 4 * CHECK_INTERVAL  # a peer that is silent for so long is gone
ROUNDED = 1e-9  # relative
Digest: TypeAlias = Annotated[int, Meta(ge=0, lt=2**53)]
Pair: TypeAlias = tuple[NodeId, SubscriptionId]  # a publisher, and a subscription that may want it


class Interest(RelayMessage, frozen=True, tag=71):
    """A new or changed subscription of mine."""

    subscription: Subscription


class InterestEnded(RelayMessage, frozen=True, tag=72):
    """A subscription of mine has ended."""

    subscription: SubscriptionId


class PublisherPosition(RelayMessage, frozen=True, tag=73):
    """From where a peer without interests publishes."""

    x: Real
    y: Real
    z: Real


class NeighbourhoodUpdate(RelayMessage, frozen=True, tag=74):
    """What has changed around the receiver."""

    wanted: tuple[Subscription, ...]  # that may want your publications, new or changed
    ended: tuple[SubscriptionId, ...]
    came: tuple[NodeId, ...]  # new sources from which you may receive
    went: tuple[NodeId, ...]
    answered: tuple[SubscriptionId, ...] = ()  # your messages about these have arrived
    whole: bool = False  # this is everything around you, not a change
    again: bool = False  # please send all your interests again


class Post(RelayMessage, frozen=True, tag=75):
    """A publication for another place than that of its publisher."""

    publication: Publication

    def carries(self) -> PublicationId:
        return self.publication.id


class Notify(RelayMessage, frozen=True, tag=76):
    """A publication that the directory has matched."""

    publication: Publication

    def carries(self) -> PublicationId:
        return self.publication.id


class Bye(RelayMessage, frozen=True, tag=77):
    """Forget me."""


class DigestCheck(RelayMessage, frozen=True, tag=78):
    """Digests of my own interests, of those around me, and of my sources."""

    own: Digest
    wanted: Digest
    sources: Digest


CODEC = Codec(
    Interest,
    InterestEnded,
    PublisherPosition,
    NeighbourhoodUpdate,
    Post,
    Notify,
    Bye,
    DigestCheck,
    *MESSAGES,
)


class UpdateNeighbourhoods(Timer, frozen=True):
    """Search again who is near whom."""


def digest(ids: Iterable[int]) -> int:
    return sum(ids) % 2**53


def moves(subscription: Subscription, now: Time) -> bool:
    region = subscription.region
    return not isinstance(region, Moving) or (region.moves and region.until > now)


class RelayDirectory(Node):
    """Knows all interests and tells each peer which are near it."""

    def __init__(self, node_id: NodeId, rng: Random, room: float) -> None:
        super().__init__(node_id, rng)
        self.room = room
        self.subscriptions: dict[SubscriptionId, Subscription] = {}
        self.first: dict[NodeId, dict[SubscriptionId, None]] = {}  # of each peer, oldest first
        self.here: dict[NodeId, Vector] = {}
        self._pairs: dict[Pair, NodeId] = {}  # and whose interest it is
        self._changed: dict[SubscriptionId, None] = {}
        self._to_answer: dict[NodeId, dict[SubscriptionId, None]] = {}  # interests, by their peer
        self._last_received: dict[NodeId, Time] = {}
        self._update_planned = False

    def on_message(self, sender: NodeId, message: Message) -> None:
        self._last_received[sender] = self.now
        match message:
            case Post(publication) if publication.node == sender and not is_outside_window(
                publication, self.now
            ):
                self._notify(publication)
            case DigestCheck():
                self._compare(sender, message)
            case Interest(subscription) if self._is_own(sender, subscription):
                self.subscriptions[subscription.id] = subscription
                self.first.setdefault(sender, {})[subscription.id] = None
                self._changed[subscription.id] = None
                self._to_answer.setdefault(sender, {})[subscription.id] = None
            case InterestEnded(subscription_id):
                if subscription_id in self.first.get(sender, ()):
                    self._end(sender, subscription_id)
                self._to_answer.setdefault(sender, {})[subscription_id] = None
            case PublisherPosition(x, y, z):
                self.here[sender] = x, y, z
            case Bye():
                self._forget(sender)
            case _:
                self.out.note("refused", sender)
        self._plan_update()

    def _forget(self, node: NodeId) -> None:
        for subscription in list(self.first.get(node, ())):
            self._end(node, subscription)
        for memory in (self.here, self._to_answer, self._last_received):
            memory.pop(node, None)

    def _compare(self, node: NodeId, check: DigestCheck) -> None:
        """Where digests differ, a message was lost or is still under way: send everything again."""
        wanted = [subscription for publisher, subscription in self._pairs if publisher == node]
        sources = {
            publisher: None for (publisher, _), other in self._pairs.items() if other == node
        }
        again = digest(self.first.get(node, ())) != check.own
        if again or (digest(wanted), digest(sources)) != (check.wanted, check.sources):
            around = tuple(self.subscriptions[s] for s in wanted if s in self.subscriptions)
            self.out.send(
                node, NeighbourhoodUpdate(around, (), tuple(sources), (), (), True, again)
            )

    def on_timer(self, timer: Timer) -> None:  # noqa: ARG002  there is one alone
        self._update_planned = False
        for node in [node for node, t in self._last_received.items() if self.now - t > PATIENCE]:
            self._forget(node)
        self._update_neighbourhoods()
        if any(moves(subscription, self.now) for subscription in self.subscriptions.values()):
            self._plan_update()

    def _is_own(self, sender: NodeId, subscription: Subscription) -> bool:
        known = self.subscriptions.get(subscription.id)
        return subscription.node == sender and (known is None or known.node == sender)

    def _end(self, node: NodeId, subscription: SubscriptionId) -> None:
        del self.subscriptions[subscription], self.first[node][subscription]
        if not self.first[node]:
            del self.first[node]

    def _plan_update(self) -> None:
        if not self._update_planned:
            self._update_planned = True
            self.out.set_timer(UpdateNeighbourhoods(), UPDATE_INTERVAL)

    def _notify(self, publication: Publication) -> None:
        to = {
            subscription.node: None
            for subscription in self.subscriptions.values()
            if subscription.node != publication.node
            and wants(subscription, publication, publication.t)
        }
        if to:
            self.out.send_many(list(to), Notify(publication))

    # Who is around whom.

    def _places(self) -> list[tuple[NodeId, Vector, bool]]:
        """From where each peer publishes, and whether it moves."""
        found = [(node, place, False) for node, place in self.here.items()]
        found = [one for one in found if one[0] not in self.first]
        for node, owned in self.first.items():
            subscription = self.subscriptions[next(iter(owned))]
            area = ball_around_region(subscription.region, self.now)
            if area is not None:
                found.append((node, area.place, moves(subscription, self.now)))
        return found

    def _around(self) -> dict[Pair, NodeId]:
        publishers = self._places()
        areas = [
            (subscription, area)
            for subscription in self.subscriptions.values()
            if (area := ball_around_region(subscription.region, self.now)) is not None
        ]
        if not publishers or not areas:
            return {}
        places = np.array([place for _, place, _ in publishers])
        centres = np.array([area.place for _, area in areas])
        reach = np.array([area.radius for _, area in areas])
        under_way = np.array([moves(subscription, self.now) for subscription, _ in areas])
        publishers_move = np.array([moving for _, _, moving in publishers])
        pairs: dict[Pair, NodeId] = {}
        for (node, _, _), place, moving in zip(publishers, places, publishers_move, strict=True):
            away = np.sqrt(((centres - place) ** 2).sum(axis=1))
            rounding = ROUNDED * (np.abs(centres).sum(axis=1) + np.abs(place).sum())
            room = np.where(under_way | moving, self.room, rounding)
            for at in np.flatnonzero((away <= reach + room) | (reach == inf)):
                subscription = areas[at][0]
                if subscription.node != node:
                    pairs[node, subscription.id] = subscription.node
        return pairs

    def _update_neighbourhoods(self) -> None:
        before, self._pairs = self._pairs, self._around()
        changed, self._changed = self._changed, {}
        to_answer, self._to_answer = self._to_answer, {}
        wanted: dict[NodeId, list[Subscription]] = {}
        ended: dict[NodeId, list[SubscriptionId]] = {}
        for pair in self._pairs:
            if pair not in before or pair[1] in changed:
                wanted.setdefault(pair[0], []).append(self.subscriptions[pair[1]])
        for publisher, subscription in before:
            if (publisher, subscription) not in self._pairs:
                ended.setdefault(publisher, []).append(subscription)
        sources = {
            (subscriber, publisher): None for (publisher, _), subscriber in self._pairs.items()
        }
        sources_before = {
            (subscriber, publisher): None for (publisher, _), subscriber in before.items()
        }
        came: dict[NodeId, list[NodeId]] = {}
        went: dict[NodeId, list[NodeId]] = {}
        for subscriber, publisher in sources:
            if (subscriber, publisher) not in sources_before:
                came.setdefault(subscriber, []).append(publisher)
        for subscriber, publisher in sources_before:
            if (subscriber, publisher) not in sources:
                went.setdefault(subscriber, []).append(publisher)
        for node in {**to_answer, **wanted, **ended, **came, **went}:
            self.out.send(
                node,
                NeighbourhoodUpdate(
                    tuple(wanted.get(node, ())),
                    tuple(ended.get(node, ())),
                    tuple(came.get(node, ())),
                    tuple(went.get(node, ())),
                    tuple(to_answer.get(node, ())),
                ),
            )
