"""The comparison of [Evolving]: the same movement through several designs at the same time.

One broker serves all characters. Under `resubscribe` it knows areas that stand still only: a client
that walks cancels its area and subscribes again every interval. Under `tile` and `object` it knows
topics: clients subscribe to the tiles that their area touches, or to the entities that they have
found around it, as the designs of `protocols.brokers.interests` decide. The other engines get one
subscription per walk, with its motion. Subscriptions, posts and notifications are counted in
messages and bytes of the codec of `protocols.brokers`; evaluations are the engines' own count. What
an engine missed, or notified in vain, is judged by LEES, which evaluates every area at the very
moment of a publication. A client of topics filters what it gets by its present area: that is part
of these designs, so nothing is spurious there, and what is filtered away is network load.
"""

from collections.abc import Callable, Iterable, Sequence

import numpy as np
from msgspec import Struct, msgpack
from msgspec.structs import replace

from nearcast.columns import grow
from nearcast.matching import MATCHERS
from nearcast.matching.matcher import Batch, Integers, Matcher, make_batch
from nearcast.model.freezing import freeze
from nearcast.model.publication import Publication
from nearcast.model.subscription import (
    NodeId,
    Subscription,
    SubscriptionId,
    stops_evolving_at,
)
from nearcast.protocols.brokers.interests import ObjectDesign, SubscriptionDesign, TileDesign
from nearcast.protocols.brokers.messages import CODEC, Cancel, Interest, Notify, Post
from nearcast.space.motion import SECOND, Moving, Time
from nearcast.space.shapes import box, point

INTERVAL: Time = SECOND // 5  # between re-subscriptions, evolutions of PES; how long CLEES caches
LATEST: Time = 2 * SECOND  # by which a game on a busy machine may be late
EXACT = "lazy"
TILE = 80.0  # units: the shorter side of an area of interest
MARGIN = 20.0  # units beyond its area in which a client looks for others, every INTERVAL
MEMORY: Time = LATEST  # for how long it knows those that are silent
NODES = 2**32  # a pair of publication and receiver is one integer


def due_times(due: Time, now: Time) -> Iterable[Time]:
    """The moments until now at which something was due that is due every interval; none that is
    longer ago than LATEST."""
    return range(max(due, now - LATEST), now + 1, INTERVAL)


class EngineCounts(Struct):
    """What one engine has cost so far."""

    name: str
    title: str
    subscriptions: int = 0  # messages from clients about their interests
    subscription_bytes: int = 0
    notices: int = 0
    bytes: int = 0  # all messages: subscriptions, posts and notices
    evaluations: int = 0
    missed: int = 0
    spurious: int = 0


class ComparedEngine:
    """One broker with one engine, and how its clients subscribe."""

    def __init__(self, name: str, title: str, matcher: Matcher, resubscribes: bool = False) -> None:
        self.counts = EngineCounts(name, title)
        self.matcher = matcher
        self._resubscribes = resubscribes
        self._subscribed: dict[NodeId, Subscription] = {}
        self._renewals: dict[NodeId, tuple[Time, Subscription]] = {}  # next renewal, and what moves

    def change_interest(self, now: Time, subscription: Subscription) -> None:
        if self._resubscribes:
            self._subscribe(now, freeze(subscription, now))
            self._renewals[subscription.node] = (now + INTERVAL, subscription)
        else:
            self._subscribe(now, subscription)

    def renew(self, now: Time) -> None:
        """Update areas that have moved: by their clients' messages, or within the engine. All does
        so in time, though the game may be late."""
        for node, (due, wanted) in list(self._renewals.items()):
            for t in due_times(due, now):
                self._subscribe(t, freeze(wanted, t))
                if stops_evolving_at(wanted) <= t:
                    del self._renewals[node]
                    break
                self._renewals[node] = (t + INTERVAL, wanted)
        refresh_due = self.matcher.due()
        while refresh_due is not None and refresh_due <= now:
            self.matcher.refresh(max(refresh_due, now - LATEST))
            refresh_due = self.matcher.due()

    def _subscribe(self, now: Time, wanted: Subscription | None) -> None:
        """Cancel and subscribe again, the only way to change a subscription in PADRES."""
        if wanted is None or self._subscribed.get(wanted.node) == wanted:
            return
        size = CODEC.size(Interest(wanted, now, now))
        self.counts.subscriptions += 1
        if wanted.node in self._subscribed:
            size += CODEC.size(Cancel(wanted.node, wanted.id, now))
            self.counts.subscriptions += 1
        self.counts.subscription_bytes += size
        self.counts.bytes += size
        self._subscribed[wanted.node] = wanted
        self.matcher.put(wanted)

    def match(
        self, publications: Batch, post_bytes: int, sizes: Integers, names: Integers
    ) -> Integers:
        """Match, and count what goes out. Returns the pairs as sorted integers."""
        found = self.matcher.match_many(publications)
        counts = self.counts
        counts.bytes += post_bytes
        counts.bytes += int(sizes[found.publication].sum() + names[found.subscription].sum())
        counts.notices += len(found.subscription)
        counts.evaluations = int(getattr(self.matcher, "evaluations", 0))
        return np.sort(found.publication * NODES + found.subscription)


class TopicClient:
    """A client that subscribes to topics: what it wants, and what its broker has of it."""

    def __init__(self, design: SubscriptionDesign) -> None:
        self.design = design
        self.wanted: Subscription | None = None
        self.parts: dict[SubscriptionId, Subscription] = {}


class ComparedTopics:
    """One broker that knows topics, and its clients."""

    def __init__(
        self, name: str, title: str, make_design: Callable[[], SubscriptionDesign]
    ) -> None:
        self.counts = EngineCounts(name, title)
        self._make_design = make_design
        self._clients: dict[NodeId, TopicClient] = {}
        self._renewals: dict[NodeId, Time] = {}
        self._matcher = MATCHERS["grid"]()
        # The matcher's number of each part of a client, and whose each number is.
        self._numbers: dict[tuple[NodeId, SubscriptionId], int] = {}
        self._owner, self._name = np.zeros(64, np.int64), np.zeros(64, np.int64)

    def change_interest(self, now: Time, subscription: Subscription) -> None:
        client = self._client(subscription.node)
        client.wanted = subscription
        self._renew(now, subscription.node, client)

    def renew(self, now: Time) -> None:
        """Compute topics again, of clients that move and of those that look for others."""
        for node, due in list(self._renewals.items()):
            for t in due_times(due, now):
                self._renew(t, node, self._clients[node])
                if node not in self._renewals:
                    break

    def _client(self, node: NodeId) -> TopicClient:
        if node not in self._clients:
            self._clients[node] = TopicClient(self._make_design())
        return self._clients[node]

    def _renew(self, now: Time, node: NodeId, client: TopicClient) -> None:
        assert client.wanted is not None
        self._update_topics(now, client)
        if client.design.renews(client.wanted, now):
            self._renewals[node] = now + INTERVAL
        else:
            self._renewals.pop(node, None)

    def _update_topics(self, now: Time, client: TopicClient) -> None:
        """Cancel topics that are not wanted any more, and subscribe to new ones."""
        wanted, before = client.wanted, client.parts
        assert wanted is not None
        client.parts = {part.id: part for part in client.design.parts(wanted, now)}
        for name, part in before.items():
            if client.parts.get(name) != part:
                self._count(CODEC.size(Cancel(wanted.node, name, now)))
                if name not in client.parts:
                    self._matcher.drop(self._numbers[wanted.node, name])
        for name, part in client.parts.items():
            if before.get(name) != part:
                self._count(CODEC.size(Interest(part, now, now)))
                self._matcher.put(replace(part, id=self._number(wanted.node, name)))

    def _number(self, node: NodeId, name: SubscriptionId) -> int:
        number = self._numbers.setdefault((node, name), len(self._numbers))
        self._owner = grow(self._owner, number + 1)
        self._name = grow(self._name, number + 1)
        self._owner[number], self._name[number] = node, name
        return number

    def _count(self, size: int) -> None:
        self.counts.subscriptions += 1
        self.counts.subscription_bytes += size
        self.counts.bytes += size

    def match(self, publications: Sequence[Publication], truth: Integers) -> Integers:
        """Match, and count what goes out. Returns the pairs that clients deliver, sorted."""
        first: list[int] = []  # of the copies of the same publication
        origin: list[int] = []
        sent: list[Publication] = []
        for number, publication in enumerate(publications):
            # The first is the publication itself; others let clients find its publisher.
            copies = self._client(publication.node).design.publications_to_send(publication)
            first += [len(sent)] * len(copies)
            origin += [number] * len(copies)
            sent += copies
        found = self._matcher.match_many(make_batch(sent))
        # However many topics of a client it matches, the client is notified once.
        pairs, which = np.unique(
            found.publication * NODES + self._owner[found.subscription], return_index=True
        )
        place, node = pairs // NODES, pairs % NODES
        self._count_notices(sent, place, self._name[found.subscription[which]])
        is_copy = np.array(first)[place] != place
        for k, owner in zip(place[is_copy].tolist(), node[is_copy].tolist(), strict=True):
            self._receive_copy(self._clients[owner], sent[k], sent[first[k]].channel)
        delivered = np.array(origin)[place[~is_copy]] * NODES + node[~is_copy]
        return np.intersect1d(delivered, truth, assume_unique=True)

    def _count_notices(self, sent: Sequence[Publication], place: Integers, names: Integers) -> None:
        sizes = np.array([CODEC.size(Notify(one, (0,), 1)) for one in sent], np.int64)
        longer = sum(len(msgpack.encode(name)) - 1 for name in names.tolist())
        self.counts.bytes += sum(CODEC.size(Post(one)) for one in sent)
        self.counts.bytes += int(sizes[place].sum()) + longer
        self.counts.notices += len(place)

    def _receive_copy(self, client: TopicClient, copy: Publication, channel: str) -> None:
        assert client.wanted is not None
        client.design.receive(client.wanted, copy, copy.t)
        if all(part.channel != channel for part in client.parts.values()):
            self._update_topics(copy.t, client)  # its publisher has been found


class EngineComparison:
    """All designs on the same movement; characters are numbered from 0 without gaps."""

    def __init__(self) -> None:
        self.topics = [
            ComparedTopics("tile", "tiles (topics)", lambda: TileDesign(TILE)),
            ComparedTopics(
                "object", "objects (topics)", lambda: ObjectDesign(INTERVAL, MARGIN, MEMORY)
            ),
        ]
        self.engines = [
            ComparedEngine("resubscribe", "re-subscribe", MATCHERS["grid"](), resubscribes=True),
            ComparedEngine(
                "periodic", "periodic (PES)", MATCHERS["periodic"](interval_us=INTERVAL)
            ),
            ComparedEngine(EXACT, "lazy (LEES)", MATCHERS[EXACT]()),
            ComparedEngine("cached", "cached (CLEES)", MATCHERS["cached"](threshold_us=INTERVAL)),
            ComparedEngine("swept", "swept (ours)", MATCHERS["swept"]()),
        ]
        self.members = 0
        self.publications = 0
        self._names = np.zeros(0, np.int64)  # bytes by which a node id is longer than id 0

    def step(
        self,
        now: Time,
        changes: Sequence[tuple[NodeId, Moving]],
        publications: Sequence[Publication],
    ) -> None:
        """One moment: changed interests first, then publications."""
        wanted = [Subscription(node, node, region) for node, region in changes]
        for subscription in wanted:
            self._add_character(subscription.node)
        designs: tuple[ComparedEngine | ComparedTopics, ...] = (*self.engines, *self.topics)
        for design in designs:
            design.renew(now)
            for subscription in wanted:
                design.change_interest(now, subscription)
        if publications:
            self._publish(publications)

    def counts(self) -> list[EngineCounts]:
        """Those without evolving subscriptions first."""
        counts = [engine.counts for engine in self.engines]
        return [counts[0], *(topics.counts for topics in self.topics), *counts[1:]]

    def _add_character(self, node: NodeId) -> None:
        while self.members <= node:
            longer = len(msgpack.encode(self.members)) - 1
            self._names = np.append(self._names, longer)
            self.members += 1

    def _publish(self, publications: Sequence[Publication]) -> None:
        self.publications += len(publications)
        post_bytes = sum(CODEC.size(Post(publication)) for publication in publications)
        sizes = np.array([CODEC.size(Notify(one, (0,), 1)) for one in publications], np.int64)
        columns = make_batch(publications)
        matched = {
            engine.counts.name: engine.match(columns, post_bytes, sizes, self._names)
            for engine in self.engines
        }
        truth = matched[EXACT]
        for topics in self.topics:
            matched[topics.counts.name] = topics.match(publications, truth)
        for counts in self.counts():
            pairs = matched[counts.name]
            common = len(np.intersect1d(pairs, truth, assume_unique=True))
            counts.missed += len(truth) - common
            counts.spurious += len(pairs) - common


def warm() -> None:
    """Load or compile the kernels of all engines, by a small comparison."""
    comparison, shape = EngineComparison(), box(0.0, 0.0, 3.0, 2.0)
    changes = [(0, Moving(shape, (1.0, 0.0, 0.0))), (1, Moving(shape))]
    for t in range(0, 3 * SECOND, SECOND):
        publications = [Publication(k, k % 2, t, point(1.0, 1.0)) for k in range(3)]
        comparison.step(t, changes, publications)
