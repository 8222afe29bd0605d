"""Fences of subscriptions in groups that share an engine, and what a subscription asks about them.

`nearcast.fences.groups` says who shares one; so do those who ask about pairs within the same
distance.
"""

from collections.abc import Iterable
from math import inf
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from nearcast.client_protocol import messages
from nearcast.client_protocol.limits import LONGEST_LINGER
from nearcast.client_protocol.messages import FeatureId
from nearcast.columns import SlotAllocator
from nearcast.fences.areas import NEVER
from nearcast.fences.event_columns import write_events
from nearcast.fences.events import FENCE_ADDED, FenceEvents
from nearcast.fences.fence_index import COMES
from nearcast.fences.fence_state import FenceEngine
from nearcast.fences.groups import GroupKey, set_group
from nearcast.fences.near_pairs import NearPairs
from nearcast.matching.matcher import Integers
from nearcast.model.subscription import Subscription
from nearcast.service.client_state import ActiveSubscription, ClientState, FenceOptions
from nearcast.service.fences.watches import Watch
from nearcast.service.retained_state import StatesMade
from nearcast.space.motion import SECOND, Moving, Time
from nearcast.space.shapes import LARGEST

KIND_NAMES: tuple[messages.FenceEventName, ...] = (
    "leave", "cross", "enter", "dwell", "inside", "outside",
)  # fmt: skip
LINGER = 0.3  # seconds, of a watch, if its client does not say


class FenceListener(NamedTuple):
    """Who is told about a fence, and which kinds of events, as bits."""

    client: ClientState
    active: ActiveSubscription
    kinds: int
    watch: Watch | None = None

    def counts(self, entity: "FenceEntity") -> bool:
        """A client's own entity counts if it also wants its own publications, but in no watch; one
        that the area follows does not, because it is always inside."""
        if self.active.follow.is_about(entity.entity, entity.name):
            return False
        echo = self.active.subscription.echo and self.watch is None
        return entity.entity != self.client.entity or echo


class FenceEntity(NamedTuple):
    """Whom a number of the engines stands for: one entity on one channel."""

    feed: int
    entity: int
    name: str
    channel: str


class InFence(NamedTuple):
    """A feed whose entity is inside of a fence, and which one of a set that is."""

    feed: int
    fence: FeatureId | None
    other: int | None = None  # of a pair: the other's feed


class FenceGroup:
    """Fences with the same channel and filter, of single subscriptions or of a set; or pairs of
    entities, whose engine has the other entity in place of a fence."""

    def __init__(self, number: int, key: GroupKey, earth: bool, most_pairs: int) -> None:
        self.engine = FenceEngine(earth)
        self.number, self.key = number, key
        self.channel, self.filter, self.set_name = key.channel, key.filter, key.set_name
        self.listeners: dict[int, FenceListener] = {}  # by fence, or by subscription slot if shared
        self.pairs: NearPairs | None = None
        if key.near:
            self.pairs = NearPairs(key.near, most_pairs, key.kinds, earth)
        self.shared = bool(key.set_name or key.near)  # by its listeners

    @property
    def rules(self) -> FenceEngine | NearPairs:
        """What takes fixes."""
        return self.pairs or self.engine

    def who(self, fence: int) -> Iterable[FenceListener]:
        """Whoever listens to this fence."""
        return self.listeners.values() if self.shared else (self.listeners[fence],)


class FeedNumbers:
    """The numbers by which engines know feeds. An entity that is back soon has its old one: it may
    linger still."""

    def __init__(self) -> None:
        self.entities: dict[int, FenceEntity] = {}
        self._numbers: dict[int, int] = {}  # by feed
        self._known: dict[tuple[int, str], int] = {}  # by entity and channel
        self._slots = SlotAllocator()
        # When numbers of feeds that have ended are to be used again, the earliest first.
        self._ended: dict[int, Time] = {}

    def of_states(self, made: StatesMade) -> Integers:
        """A number for each of these states."""
        numbers = []
        for feed, one in zip(made.table["feed"].tolist(), made.accepted, strict=True):
            number = self._numbers.get(feed)
            if number is None:
                client = one.client
                key = client.entity, one.request.channel
                number = self._known.get(key)
                if number is None:
                    number = self._known[key] = self._slots.take()
                self._numbers[feed] = number
                self.entities[number] = FenceEntity(feed, key[0], client.name, key[1])
            self._ended.pop(number, None)  # a former feed of the entity may end after this began
            numbers.append(number)
        return np.array(numbers, np.int64)

    def is_current(self, number: int) -> bool:
        """Does the feed with this number still have a state?"""
        return self._numbers.get(self.entities[number].feed) == number

    def end(self, feed: int, now: Time) -> int | None:
        """The feed has ended. Its number, if it has one; nobody may linger longer than allowed."""
        number = self._numbers.pop(feed, None)
        if number is not None:
            self._ended[number] = now + round(LONGEST_LINGER * SECOND)
        return number

    def release(self, now: Time) -> None:
        """Use numbers again about which nothing can be reported any more."""
        while self._ended:
            number, moment = next(iter(self._ended.items()))
            if moment >= now:
                break
            entity = self.entities.pop(number)
            del self._ended[number], self._known[entity.entity, entity.channel]
            self._slots.give(number)


def group_key(subscription: Subscription, options: FenceOptions, linger: float) -> GroupKey:
    """Subscriptions with the same key share an engine."""
    condition = None if subscription.filter is None else subscription.filter.text
    if options.near is not None:
        kinds = kinds_of(options)
        return GroupKey(subscription.channel, condition, kinds=kinds, near=options.near)
    if not options.fences:
        return GroupKey(subscription.channel, condition)
    dwell = None if options.dwell is None else round(options.dwell * SECOND)
    return set_group(
        subscription.channel, condition, options.fences, kinds_of(options), dwell,
        round(linger * SECOND),
    )  # fmt: skip


def bounded(leg: Moving) -> Moving:
    """The same, where a half-extent without bounds reaches beyond all places."""
    shape = leg.shape
    if inf not in (shape.rx, shape.ry):
        return leg
    rx, ry = min(shape.rx, LARGEST), min(shape.ry, LARGEST)
    return replace(leg, shape=replace(shape, rx=rx, ry=ry))


def inside_events(engine: FenceEngine, now: Time) -> FenceEvents:
    """Who is in which fence of this engine that stands still, as if the fences were new."""
    rows = engine.last.everybody(COMES, FENCE_ADDED, now)
    visits = engine.index.find(rows)
    areas = engine.index.areas[visits["slot"]]
    visits["slot"], areas["dwell"] = np.arange(len(visits)), NEVER
    return write_events(rows, visits, areas)


def kinds_of(options: FenceOptions) -> int:
    """The events as bits of an engine."""
    names = {*options.events, *(("dwell",) if options.dwell is not None else ())}
    return sum(1 << KIND_NAMES.index(name) for name in names)


def fence_options(request: messages.SubscribeRequest) -> tuple[FenceOptions, float]:
    """What it asks as a fence, if anything, and its linger. `watch` asks for two events."""
    if request.watch:
        options, linger = FenceOptions(("enter", "leave"), watch=True), LINGER
    else:
        events, linger = tuple(request.events), 0.0
        options = FenceOptions(events, request.dwell, request.fences, near=request.near)
    return options, linger if request.linger is None else request.linger
