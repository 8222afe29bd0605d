"""Subscriptions of other nodes' clients that concern this site: which homes may want a publication?

They are matched as exactly as they are known here; the home has the final decision. Knowledge is
late. So a version that was replaced is kept for a while, and a new one is also matched against
recent publications.
"""

from collections.abc import Iterator, Sequence

import msgspec
import numpy as np
from msgspec.structs import replace

from nearcast.columns import SlotAllocator, grow
from nearcast.matching import MATCHERS
from nearcast.matching.matcher import Batch, Integers
from nearcast.model.subscription import Filter, NodeId, Subscription, SubscriptionId
from nearcast.protocols.voronoi.records import Flags
from nearcast.protocols.voronoi.vso.messages import Record, Version
from nearcast.service.cluster import recent_history
from nearcast.service.cluster.recent_history import (
    KEPT,
    SEARCHED,
    PastFlush,
    SubscriptionVersion,
    VersionHistory,
    join_flushes,
    select_from_batch,
)
from nearcast.space.motion import FOREVER, SECOND, Time

BLOCK_BITS, COUNT_BITS = 20, recent_history.COUNT_BITS  # of a number: its node's block, and a count
HINTED: Time = 3 * SECOND // 2  # by then the owner's copy has arrived, if it concerns this site
MANY = 4_000  # recent publications: most of them are far from a subscription that has come late
HOMES_BITS = 8  # of a version: how often its client had changed nodes

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[NodeId, Filter | None, str, bool]).decode


def block_of(node: NodeId) -> int:
    """Numbers of a node's entities, subscriptions and publications are in its own block."""
    return node % (1 << BLOCK_BITS)


def first_number(node: NodeId) -> int:
    return (block_of(node) << COUNT_BITS) + 1


def record_of(home: NodeId, subscription: Subscription, since: Time, homes: int) -> Record:
    body = _encode((home, subscription.filter, subscription.channel, subscription.echo))
    version = since << HOMES_BITS | homes
    return Record(subscription.id, subscription.node, subscription.region, version, body=body)


def since_of(version: Version) -> Time:
    return version >> HOMES_BITS


def home_of(record: Record) -> NodeId:
    """ValueError or MsgspecError if the body is none of ours."""
    return _decode(record.body)[0]


def subscription_of(record: Record) -> Subscription:
    _, condition, channel, echo = _decode(record.body)
    return Subscription(record.id, record.client, record.region, condition, channel, echo)


class RemoteSubscriptions:
    """Subscriptions of clients on other nodes, as the site of this node knows them."""

    def __init__(self) -> None:
        self._matcher = MATCHERS["keyed"]()
        self._slots = SlotAllocator()
        self._known: dict[SubscriptionId, tuple[int, Subscription, Version, NodeId]] = {}
        self._homes: Integers = np.zeros(64, np.int64)  # by slot: where in `_nodes` its home is
        self._nodes: list[NodeId] = []
        # By home, likewise: versions that were replaced, and those that hold for a while, because
        # their home has told of them, or until others are certain to have what was dropped here.
        self._other_versions = VersionHistory()
        self._moved = VersionHistory()  # and those of clients who were here
        # By its places: since when this site knows where such a client is now; and who they are.
        self._settled: Integers = np.zeros(64, np.int64)
        self._left: dict[SubscriptionId, tuple[int, NodeId, Time]] = {}
        self._hinted: dict[SubscriptionId, tuple[Version, Time]] = {}
        self._new_versions: dict[
            tuple[SubscriptionId, Version], tuple[Subscription, Time, NodeId]
        ] = {}

    def __len__(self) -> int:
        return len(self._known)

    @property
    def homes(self) -> Sequence[NodeId]:
        """All nodes that `match_homes` can find."""
        return self._nodes

    def put(self, now: Time, record: Record, home: NodeId) -> None:
        before = self._known.get(record.id)
        if before is not None and (before[2], before[3]) == (record.version, home):
            return
        subscription, since = subscription_of(record), since_of(record.version)
        if before is None:
            slot = self._slots.take()
            self._homes = grow(self._homes, slot + 1)
            left = self._left.pop(record.id, None)
            if left is not None and left[1] == home:
                self._settled[left[0]] = since
        else:
            slot, was, version, former_home = before
            self._other_versions.add(
                now, self._home_index(former_home), was, since_of(version), since
            )
        self._known[record.id] = slot, subscription, record.version, home
        self._homes[slot] = self._home_index(home)
        self._matcher.put(replace(subscription, id=slot))
        hinted, until = self._hinted.get(record.id, (None, 0))
        if hinted != record.version or until <= now:
            self._new_versions[record.id, record.version] = subscription, since, home

    def drop(self, now: Time, subscription: SubscriptionId, *, arrived: bool = False) -> None:
        """It does not concern this site any more, or its client has `arrived` here."""
        known = self._known.pop(subscription, None)
        if known is not None:
            slot, was, version, home = known
            if not arrived:
                self._other_versions.add(now, self._home_index(home), was, since_of(version))
            self._matcher.drop(slot)
            self._slots.give(slot)

    def add_hint(self, now: Time, record: Record, home: NodeId) -> None:
        """Its home says that it touches this site; the owner's copy follows."""
        subscription, since = subscription_of(record), since_of(record.version)
        self._other_versions.add(now, self._home_index(home), subscription, since, kept=HINTED)
        self._hinted[record.id] = record.version, now + HINTED
        self._new_versions[record.id, record.version] = subscription, since, home

    def on_client_moved(self, now: Time, home: NodeId, was: SubscriptionVersion) -> None:
        """Its client was here a moment ago and is there now: late publications are forwarded."""
        slot = self._moved.add(now, self._home_index(home), was.subscription, was.since, was.until)
        self._settled = grow(self._settled, slot + 1)
        self._settled[slot] = FOREVER
        if was.until == FOREVER:
            self._left[was.subscription.id] = slot, home, now + KEPT

    def _home_index(self, home: NodeId) -> int:
        if home not in self._nodes:
            self._nodes.append(home)
        return self._nodes.index(home)

    def match_homes(self, publications: Batch, here: Integers) -> tuple[Integers, Integers]:
        """Pairs of publication and home, each once; `here`: which publications this site owns."""
        if not len(here):
            return here, here
        mine = select_from_batch(publications, here)
        matches = self._matcher.match_many(mine)
        known = matches.publication, self._homes[matches.subscription]
        pairs = known, self._other_versions.match(mine)
        found, whose = (np.concatenate(columns) for columns in zip(*pairs, strict=True))
        return self._each_once(len(publications), here[found], whose)

    def match_moved(self, publications: Batch, here: Flags) -> tuple[Integers, Integers]:
        """Likewise, for clients that were here a moment ago, whatever site owns the publication.

        `here`: for these `match_homes` does it, as soon as this site knows where the clients are.
        """
        found, slot = self._moved.places(publications)
        wanted = ~here[found] | (publications.t[found] < self._settled[slot])
        found, slot = found[wanted], slot[wanted]
        return self._each_once(len(publications), found, self._moved.keys(slot))

    def _each_once(self, count: int, found: Integers, whose: Integers) -> tuple[Integers, Integers]:
        """Sorted pairs without duplicates; homes as node ids."""
        if not len(found):
            return found, whose
        pairs = np.zeros((count, len(self._nodes)), np.bool_)
        pairs[found, whose] = True
        found, whose = np.nonzero(pairs)
        return found, np.array(self._nodes, np.int64)[whose]

    def match_missed(
        self, now: Time, passed: Sequence[PastFlush]
    ) -> Iterator[tuple[PastFlush, Integers, NodeId]]:
        """Recent publications that match versions learned since the last call, by home and flush.

        Each flush is in the order of time, for each home.
        """
        if not self._new_versions:
            return
        fresh, self._new_versions = list(self._new_versions.values()), {}
        # Most have changed after the last flush.
        latest = passed[-1].t if passed else 0
        fresh = [version for version in fresh if version[1] <= latest]
        if not fresh:
            return
        first = max(min(since for _, since, _ in fresh), now - SEARCHED)
        recent = join_flushes(passed, first)
        if recent is None:
            return
        if len(recent.ids) > MANY:
            recent = recent.near((subscription for subscription, _, _ in fresh), first)
        matcher = MATCHERS["keyed"]()
        for slot, (subscription, _, _) in enumerate(fresh):
            matcher.put(replace(subscription, id=slot))
        found = matcher.match_many(recent.publications)
        since = np.array([since for _, since, _ in fresh], np.int64)[found.subscription]
        homes = np.array([self._home_index(home) for _, _, home in fresh], np.int64)[
            found.subscription
        ]
        meant = recent.publications.t[found.publication] >= since
        index, whose = self._each_once(
            len(recent.publications), found.publication[meant], homes[meant]
        )
        for home in dict.fromkeys(whose.tolist()):
            for flush, which in recent.by_flush(index[whose == home]):
                yield flush, which, home

    def forget(self, now: Time) -> None:
        self._other_versions.forget(now)
        self._moved.forget(now)
        self._hinted = {name: one for name, one in self._hinted.items() if one[1] > now}
        self._left = {name: one for name, one in self._left.items() if one[2] > now}
