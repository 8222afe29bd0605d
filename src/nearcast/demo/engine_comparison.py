"""Seed 001's comparison: the same movement through five engines at the same time.

A broker serves all characters. Under `resubscribe` it knows still areas alone: a client that walks
cancels its area and says it anew every interval. The others are told once per walk, with the
motion. What clients say, what is posted and what is notified is counted in messages and bytes of
the codec of `protocols.brokers`; evaluations are the engines' own count; and whom an engine missed
or told in vain is judged by LEES, which looks at every area at the very moment of a publication.
"""

from collections.abc import Sequence

import numpy as np
from msgspec import Struct, msgpack

from nearcast.matching import MATCHERS
from nearcast.matching.matcher import Batch, Integers, Matcher, batch
from nearcast.model.publication import Publication
from nearcast.model.subscription import NodeId, Subscription
from nearcast.protocols.brokers.frozen import evolves, frozen_at
from nearcast.protocols.brokers.messages import CODEC, Cancel, Interest, Notify, Post
from nearcast.space.motion import SECOND, Moving, Time
from nearcast.space.shapes import box, point

INTERVAL: Time = SECOND // 5  # between re-subscriptions, evolutions of PES; how long CLEES caches
EXACT = "lazy"


class EngineCounts(Struct):
    """What one engine has cost so far."""

    name: str
    title: str
    subscriptions: int = 0  # messages from clients about what they want
    subscription_bytes: int = 0
    notices: int = 0
    bytes: int = 0  # all messages: subscriptions, posts and notices
    evaluations: int = 0
    missed: int = 0
    spurious: int = 0


class ComparedEngine:
    """One broker with one engine, and how its clients speak to it."""

    def __init__(self, name: str, title: str, matcher: Matcher, resubscribes: bool = False) -> None:
        self.tally = EngineCounts(name, title)
        self.matcher = matcher
        self._resubscribes = resubscribes
        self._told: dict[NodeId, Subscription] = {}
        self._renewals: dict[NodeId, tuple[Time, Subscription]] = {}  # what moves, and when next

    def want(self, now: Time, subscription: Subscription) -> None:
        if self._resubscribes:
            self._say(now, frozen_at(subscription, now))
            self._renewals[subscription.node] = (now + INTERVAL, subscription)
        else:
            self._say(now, subscription)

    def renew(self, now: Time) -> None:
        """Say again what has moved on: by its client, or within the engine."""
        for node, (due, wanted) in list(self._renewals.items()):
            if due <= now:
                self._say(now, frozen_at(wanted, now))
                if evolves(wanted, now):
                    self._renewals[node] = (due + INTERVAL, wanted)
                else:
                    del self._renewals[node]
        due_ = self.matcher.due()
        if due_ is not None and due_ <= now:
            self.matcher.refresh(now)

    def _say(self, now: Time, wanted: Subscription | None) -> None:
        """Cancelled and said anew, which is the only way that PADRES knows."""
        if wanted is None or self._told.get(wanted.node) == wanted:
            return
        size = CODEC.size(Interest(wanted, now, now))
        self.tally.subscriptions += 1
        if wanted.node in self._told:
            size += CODEC.size(Cancel(wanted.node, wanted.id, now))
            self.tally.subscriptions += 1
        self.tally.subscription_bytes += size
        self.tally.bytes += size
        self._told[wanted.node] = wanted
        self.matcher.put(wanted)

    def hear(self, publications: Batch, posts: int, sizes: Integers, names: Integers) -> Integers:
        """Match, and count what goes out. Returns the pairs as sorted codes."""
        found = self.matcher.match_many(publications)
        tally = self.tally
        tally.bytes += posts
        tally.bytes += int(sizes[found.publication].sum() + names[found.subscription].sum())
        tally.notices += len(found.subscription)
        tally.evaluations = int(getattr(self.matcher, "evaluations", 0))
        return np.sort(found.publication * 2**32 + found.subscription)


class EngineComparison:
    """All engines on the same movement; characters are numbered densely from 0."""

    def __init__(self) -> None:
        self.contenders = [
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
        self._names = np.zeros(0, np.int64)  # bytes by which a name is longer than name 0

    def step(
        self, now: Time, walks: Sequence[tuple[NodeId, Moving]], said: Sequence[Publication]
    ) -> None:
        """One moment: interests first, then what is published."""
        wanted = [Subscription(node, node, region) for node, region in walks]
        for subscription in wanted:
            self._admit(subscription.node)
        for contender in self.contenders:
            contender.renew(now)
            for subscription in wanted:
                contender.want(now, subscription)
        if said:
            self._publish(said)

    def tallies(self) -> list[EngineCounts]:
        return [contender.tally for contender in self.contenders]

    def _admit(self, node: NodeId) -> None:
        while self.members <= node:
            longer = len(msgpack.encode(self.members)) - 1
            self._names = np.append(self._names, longer)
            self.members += 1

    def _publish(self, said: Sequence[Publication]) -> None:
        self.publications += len(said)
        posts = sum(CODEC.size(Post(publication)) for publication in said)
        sizes = np.array([CODEC.size(Notify(one, (0,), 1)) for one in said], np.int64)
        columns = batch(said)
        heard = {
            contender.tally.name: contender.hear(columns, posts, sizes, self._names)
            for contender in self.contenders
        }
        truth = heard[EXACT]
        for tally in self.tallies():
            pairs = heard[tally.name]
            common = len(np.intersect1d(pairs, truth, assume_unique=True))
            tally.missed += len(truth) - common
            tally.spurious += len(pairs) - common


def warm() -> None:
    """Load or compile the kernels of all engines, by a small comparison."""
    comparison, shape = EngineComparison(), box(0.0, 0.0, 3.0, 2.0)
    walks = [(0, Moving(shape, (1.0, 0.0, 0.0))), (1, Moving(shape))]
    for t in range(0, 3 * SECOND, SECOND):
        said = [Publication(k, k % 2, t, point(1.0, 1.0)) for k in range(3)]
        comparison.step(t, walks, said)
