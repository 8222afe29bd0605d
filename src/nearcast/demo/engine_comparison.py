"""The comparison of [Evolving]: the same movement through five matching engines at the same time.

One broker serves all characters. Under `resubscribe` it knows areas that stand still only: a client
that walks cancels its area and subscribes again every interval. The other engines get one
subscription per walk, with its motion. Subscriptions, posts and notifications are counted in
messages and bytes of the codec of `protocols.brokers`; evaluations are the engines' own count. What
an engine missed, or notified in vain, is judged by LEES, which evaluates every area at the very
moment of a publication.
"""

from collections.abc import Sequence

import numpy as np
from msgspec import Struct, msgpack

from nearcast.matching import MATCHERS
from nearcast.matching.matcher import Batch, Integers, Matcher, make_batch
from nearcast.model.freezing import freeze
from nearcast.model.publication import Publication
from nearcast.model.subscription import NodeId, Subscription, stops_evolving_at
from nearcast.protocols.brokers.messages import CODEC, Cancel, Interest, Notify, Post
from nearcast.space.motion import SECOND, Moving, Time
from nearcast.space.shapes import box, point

INTERVAL: Time = SECOND // 5  # between re-subscriptions, evolutions of PES; how long CLEES caches
EXACT = "lazy"


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
        """Update areas that have moved: by their clients' messages, or within the engine."""
        for node, (due, wanted) in list(self._renewals.items()):
            if due <= now:
                self._subscribe(now, freeze(wanted, now))
                if stops_evolving_at(wanted) > now:
                    self._renewals[node] = (due + INTERVAL, wanted)
                else:
                    del self._renewals[node]
        refresh_due = self.matcher.due()
        if refresh_due is not None and refresh_due <= now:
            self.matcher.refresh(now)

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
        return np.sort(found.publication * 2**32 + found.subscription)


class EngineComparison:
    """All engines on the same movement; characters are numbered from 0 without gaps."""

    def __init__(self) -> None:
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
        for engine in self.engines:
            engine.renew(now)
            for subscription in wanted:
                engine.change_interest(now, subscription)
        if publications:
            self._publish(publications)

    def counts(self) -> list[EngineCounts]:
        return [engine.counts for engine in self.engines]

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
