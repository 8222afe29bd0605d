"""Who may want to hear whom: the interest management that the paper leaves to others.

peer                        directory                      peer
  │── Interest, Ended, Here ───▶│
  │◀──────────────── Around ────│──────────────── Around ──▶│  who wants you, whom you may hear
  │── Check ───────────────────▶│                           │  is that what you know of me?
  │── Post ────────────────────▶│── Told ──────────────────▶│  what is said somewhere else
  │── Bye ─────────────────────▶│

A peer speaks from its place, the centre of its first interest (or where it last spoke, if it has
none). The directory tells it whose interests are around there, and whom it may hear, a few times in
a second and only what has changed; the rest is among peers. Interests that move are looked for a
little farther than they reach, so that what happens between two looks is found. Interests are said
until they are answered, and from time to time both compare what they know: what the network loses
is made good, and who does not compare any more is forgotten.
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

UPDATE_INTERVAL: Time = SECOND // 4  # between two looks
CHECK_INTERVAL: Time = 4 * SECOND  # between two comparisons
PATIENCE: Time = 4 * CHECK_INTERVAL  # who has been silent for so long is gone
ROUNDED = 1e-9  # relative
Digest: TypeAlias = Annotated[int, Meta(ge=0, lt=2**53)]
Pair: TypeAlias = tuple[NodeId, SubscriptionId]  # who may be heard by it


class Interest(RelayMessage, frozen=True, tag=1):
    """This is what I want from now on."""

    subscription: Subscription


class InterestEnded(RelayMessage, frozen=True, tag=2):
    subscription: SubscriptionId


class PublisherPosition(RelayMessage, frozen=True, tag=3):
    """Where somebody speaks who wants nothing."""

    x: Real
    y: Real
    z: Real


class NeighbourhoodUpdate(RelayMessage, frozen=True, tag=4):
    """What has changed around you."""

    wanted: tuple[Subscription, ...]  # that may want what you say, new or changed
    ended: tuple[SubscriptionId, ...]
    came: tuple[NodeId, ...]  # whom you may hear
    went: tuple[NodeId, ...]
    answered: tuple[SubscriptionId, ...] = ()  # what you have said of these has been heard
    whole: bool = False  # this is all there is around you
    again: bool = False  # say again what you want


class Post(RelayMessage, frozen=True, tag=5):
    """Said somewhere else than where its publisher is."""

    publication: Publication

    def carries(self) -> PublicationId:
        return self.publication.id


class Notify(RelayMessage, frozen=True, tag=6):
    publication: Publication

    def carries(self) -> PublicationId:
        return self.publication.id


class Bye(RelayMessage, frozen=True, tag=7):
    """Forget me."""


class DigestCheck(RelayMessage, frozen=True, tag=8):
    """Digests of my own interests, of those around me, and of whom I may hear."""

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
    """See who is around whom by now."""


def digest(ids: Iterable[int]) -> int:
    return sum(ids) % 2**53


def moves(subscription: Subscription, now: Time) -> bool:
    region = subscription.region
    return not isinstance(region, Moving) or (region.moves and region.until > now)


class RelayDirectory(Node):
    def __init__(self, node_id: NodeId, rng: Random, room: float) -> None:
        super().__init__(node_id, rng)
        self.room = room
        self.subscriptions: dict[SubscriptionId, Subscription] = {}
        self.first: dict[NodeId, dict[SubscriptionId, None]] = {}  # of each peer, oldest first
        self.here: dict[NodeId, Vector] = {}
        self._pairs: dict[Pair, NodeId] = {}  # and whose interest it is
        self._changed: dict[SubscriptionId, None] = {}
        self._asked: dict[NodeId, dict[SubscriptionId, None]] = {}  # who awaits answers to what
        self._heard: dict[NodeId, Time] = {}
        self._looking = False

    def on_message(self, sender: NodeId, message: Message) -> None:
        self._heard[sender] = self.now
        match message:
            case Post(publication) if publication.node == sender and not is_outside_window(
                publication, self.now
            ):
                self._tell(publication)
            case DigestCheck():
                self._compare(sender, message)
            case Interest(subscription) if self._is_own(sender, subscription):
                self.subscriptions[subscription.id] = subscription
                self.first.setdefault(sender, {})[subscription.id] = None
                self._changed[subscription.id] = None
                self._asked.setdefault(sender, {})[subscription.id] = None
            case InterestEnded(subscription_id):
                if subscription_id in self.first.get(sender, ()):
                    self._end(sender, subscription_id)
                self._asked.setdefault(sender, {})[subscription_id] = None
            case PublisherPosition(x, y, z):
                self.here[sender] = x, y, z
            case Bye():
                self._forget(sender)
            case _:
                self.out.note("refused", sender)
        self._look_soon()

    def _forget(self, node: NodeId) -> None:
        for subscription in list(self.first.get(node, ())):
            self._end(node, subscription)
        for memory in (self.here, self._asked, self._heard):
            memory.pop(node, None)

    def _compare(self, node: NodeId, check: DigestCheck) -> None:
        """What differs has been lost on its way, or still is on it; to say it again is no harm."""
        wanted = [subscription for speaker, subscription in self._pairs if speaker == node]
        heard = {speaker: None for (speaker, _), other in self._pairs.items() if other == node}
        again = digest(self.first.get(node, ())) != check.own
        if again or (digest(wanted), digest(heard)) != (check.wanted, check.sources):
            around = tuple(self.subscriptions[s] for s in wanted if s in self.subscriptions)
            self.out.send(node, NeighbourhoodUpdate(around, (), tuple(heard), (), (), True, again))

    def on_timer(self, timer: Timer) -> None:  # noqa: ARG002  there is one alone
        self._looking = False
        for node in [node for node, t in self._heard.items() if self.now - t > PATIENCE]:
            self._forget(node)
        self._look()
        if any(moves(subscription, self.now) for subscription in self.subscriptions.values()):
            self._look_soon()

    def _is_own(self, sender: NodeId, subscription: Subscription) -> bool:
        known = self.subscriptions.get(subscription.id)
        return subscription.node == sender and (known is None or known.node == sender)

    def _end(self, node: NodeId, subscription: SubscriptionId) -> None:
        del self.subscriptions[subscription], self.first[node][subscription]
        if not self.first[node]:
            del self.first[node]

    def _look_soon(self) -> None:
        if not self._looking:
            self._looking = True
            self.out.set_timer(UpdateNeighbourhoods(), UPDATE_INTERVAL)

    def _tell(self, publication: Publication) -> None:
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
        """Where peers speak, and whether they are under way."""
        found = [(node, place, False) for node, place in self.here.items()]
        found = [one for one in found if one[0] not in self.first]
        for node, owned in self.first.items():
            subscription = self.subscriptions[next(iter(owned))]
            area = ball_around_region(subscription.region, self.now)
            if area is not None:
                found.append((node, area.place, moves(subscription, self.now)))
        return found

    def _around(self) -> dict[Pair, NodeId]:
        speakers = self._places()
        areas = [
            (subscription, area)
            for subscription in self.subscriptions.values()
            if (area := ball_around_region(subscription.region, self.now)) is not None
        ]
        if not speakers or not areas:
            return {}
        places = np.array([place for _, place, _ in speakers])
        centres = np.array([area.place for _, area in areas])
        reach = np.array([area.radius for _, area in areas])
        under_way = np.array([moves(subscription, self.now) for subscription, _ in areas])
        walking = np.array([walks for _, _, walks in speakers])
        pairs: dict[Pair, NodeId] = {}
        for (node, _, _), place, walks in zip(speakers, places, walking, strict=True):
            away = np.sqrt(((centres - place) ** 2).sum(axis=1))
            rounding = ROUNDED * (np.abs(centres).sum(axis=1) + np.abs(place).sum())
            room = np.where(under_way | walks, self.room, rounding)
            for at in np.flatnonzero((away <= reach + room) | (reach == inf)):
                subscription = areas[at][0]
                if subscription.node != node:
                    pairs[node, subscription.id] = subscription.node
        return pairs

    def _look(self) -> None:
        before, self._pairs = self._pairs, self._around()
        changed, self._changed = self._changed, {}
        asked, self._asked = self._asked, {}
        wanted: dict[NodeId, list[Subscription]] = {}
        ended: dict[NodeId, list[SubscriptionId]] = {}
        for pair in self._pairs:
            if pair not in before or pair[1] in changed:
                wanted.setdefault(pair[0], []).append(self.subscriptions[pair[1]])
        for speaker, subscription in before:
            if (speaker, subscription) not in self._pairs:
                ended.setdefault(speaker, []).append(subscription)
        heard = {(listener, speaker): None for (speaker, _), listener in self._pairs.items()}
        heard_before = {(listener, speaker): None for (speaker, _), listener in before.items()}
        came: dict[NodeId, list[NodeId]] = {}
        went: dict[NodeId, list[NodeId]] = {}
        for listener, speaker in heard:
            if (listener, speaker) not in heard_before:
                came.setdefault(listener, []).append(speaker)
        for listener, speaker in heard_before:
            if (listener, speaker) not in heard:
                went.setdefault(listener, []).append(speaker)
        for node in {**asked, **wanted, **ended, **came, **went}:
            self.out.send(
                node,
                NeighbourhoodUpdate(
                    tuple(wanted.get(node, ())),
                    tuple(ended.get(node, ())),
                    tuple(came.get(node, ())),
                    tuple(went.get(node, ())),
                    tuple(asked.get(node, ())),
                ),
            )
