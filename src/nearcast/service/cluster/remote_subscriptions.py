"""Subscriptions that concern this site and whose clients are on other nodes: who may want this?

Here they are matched as exactly as they are known. Knowledge is late, so a version that was
replaced stays for a while, and a new one is asked what it should have heard in the last seconds.
The last word is each home's own.
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
from nearcast.protocols.voronoi.vso_messages import Record, Version
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

BLOCK_BITS, COUNT_BITS = 20, recent_history.COUNT_BITS  # of a number: whose it is, and which
HINTED: Time = 3 * SECOND // 2  # by then an owner's copy is here, if it concerns this site
HOMES_BITS = 8  # of a version: how often its client had changed nodes since it said so

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[NodeId, Filter | None, str, bool]).decode


def block_of(node: NodeId) -> int:
    """Entities, subscriptions and publications of a node have numbers in a block of its own."""
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
        self._homes: Integers = np.zeros(64, np.int64)  # by place: where in `_nodes` its home is
        self._nodes: list[NodeId] = []
        # By home, likewise: versions that were replaced, and those that hold for a while, because
        # their home has told of them, or until others are certain to have what was dropped here.
        self._former, self._besides = VersionHistory(), VersionHistory()
        self._gone = VersionHistory()  # and those of clients who were here
        # By its places: since when this site knows where such a client is now; and who they are.
        self._settled: Integers = np.zeros(64, np.int64)
        self._left: dict[SubscriptionId, tuple[int, NodeId, Time]] = {}
        self._hinted: dict[SubscriptionId, tuple[Version, Time]] = {}
        self._fresh: dict[tuple[SubscriptionId, Version], tuple[Subscription, Time, NodeId]] = {}

    def __len__(self) -> int:
        return len(self._known)

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
            self._former.add(now, self._of(former_home), was, since_of(version), since)
        self._known[record.id] = slot, subscription, record.version, home
        self._homes[slot] = self._of(home)
        self._matcher.put(replace(subscription, id=slot))
        hinted, until = self._hinted.get(record.id, (None, 0))
        if hinted != record.version or until <= now:
            self._fresh[record.id, record.version] = subscription, since, home

    def drop(self, now: Time, subscription: SubscriptionId, *, arrived: bool = False) -> None:
        """It does not concern this site any more; or its client has come here."""
        known = self._known.pop(subscription, None)
        if known is not None:
            slot, was, version, home = known
            if not arrived:
                self._besides.add(now, self._of(home), was, since_of(version))
            self._matcher.drop(slot)
            self._slots.give(slot)

    def hint(self, now: Time, record: Record, home: NodeId) -> None:
        """Its home says that it touches this site; who owns it will say so later."""
        subscription, since = subscription_of(record), since_of(record.version)
        self._besides.add(now, self._of(home), subscription, since, kept=HINTED)
        self._hinted[record.id] = record.version, now + HINTED
        self._fresh[record.id, record.version] = subscription, since, home

    def moved(self, now: Time, home: NodeId, was: SubscriptionVersion) -> None:
        """Its client was here a moment ago, and is there now: what still comes is passed on."""
        slot = self._gone.add(now, self._of(home), was.subscription, was.since, was.until)
        self._settled = grow(self._settled, slot + 1)
        self._settled[slot] = FOREVER
        if was.until == FOREVER:
            self._left[was.subscription.id] = slot, home, now + KEPT

    def _of(self, home: NodeId) -> int:
        if home not in self._nodes:
            self._nodes.append(home)
        return self._nodes.index(home)

    def homes(self, publications: Batch, here: Integers) -> tuple[Integers, Integers]:
        """Pairs of publication and home, each once; `here`: which concern this site."""
        if not len(here):
            return here, here
        mine = select_from_batch(publications, here)
        matches = self._matcher.match_many(mine)
        known = matches.publication, self._homes[matches.subscription]
        pairs = known, self._former.match(mine), self._besides.match(mine)
        found, whose = (np.concatenate(columns) for columns in zip(*pairs, strict=True))
        return self._each_once(len(publications), here[found], whose)

    def gone(self, publications: Batch, here: Flags) -> tuple[Integers, Integers]:
        """Likewise, for clients who were here a moment ago, whatever site it concerns.

        `here`: for these `homes` does it, as soon as this site knows where the clients are.
        """
        found, slot = self._gone.places(publications)
        wanted = ~here[found] | (publications.t[found] < self._settled[slot])
        found, slot = found[wanted], slot[wanted]
        return self._each_once(len(publications), found, self._gone.keys(slot))

    def _each_once(self, count: int, found: Integers, whose: Integers) -> tuple[Integers, Integers]:
        """Pairs without their doubles, sorted; homes by their names. Nothing needs sorting."""
        if not len(found):
            return found, whose
        pairs = np.zeros((count, len(self._nodes)), np.bool_)
        pairs[found, whose] = True
        found, whose = np.nonzero(pairs)
        return found, np.array(self._nodes, np.int64)[whose]

    def late(
        self, now: Time, passed: Sequence[PastFlush]
    ) -> Iterator[tuple[PastFlush, int, NodeId]]:
        """What those should have heard of which we have learned since the last time."""
        if not self._fresh:
            return
        fresh, self._fresh = list(self._fresh.values()), {}
        first = max(min(since for _, since, _ in fresh), now - SEARCHED)
        said = join_flushes(passed, first)
        if said is None:
            return
        matcher = MATCHERS["keyed"]()
        for slot, (subscription, _, _) in enumerate(fresh):
            matcher.put(replace(subscription, id=slot))
        found = matcher.match_many(said.publications)
        since = np.array([since for _, since, _ in fresh], np.int64)[found.subscription]
        homes = np.array([self._of(home) for _, _, home in fresh], np.int64)[found.subscription]
        meant = said.publications.t[found.publication] >= since
        pairs = self._each_once(len(said.publications), found.publication[meant], homes[meant])
        for index, home in zip(*(column.tolist() for column in pairs), strict=True):
            yield *said.locate(index), home

    def forget(self, now: Time) -> None:
        self._former.forget(now)
        self._besides.forget(now)
        self._gone.forget(now)
        self._hinted = {name: one for name, one in self._hinted.items() if one[1] > now}
        self._left = {name: one for name, one in self._left.items() if one[2] > now}
