"""Recent versions of subscriptions and recent publications.

A publication that arrives late is matched against the subscriptions that were in force when it was
made (`VersionHistory`). A subscription that arrives late is matched against recent publications
(`RecentHistory.flushes`).
"""

from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import accumulate, pairwise
from typing import overload

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from nearcast.columns import SlotAllocator, grow
from nearcast.matching import MATCHERS
from nearcast.matching.matcher import Batch, Integers
from nearcast.model.publication import Publication
from nearcast.model.subscription import (
    Formula,
    NodeId,
    PublicationId,
    Subscription,
    SubscriptionId,
)
from nearcast.service.client_state import AcceptedPublication, ActiveSubscription
from nearcast.space.boxes import Margin, swept_box
from nearcast.space.motion import FOREVER, SECOND, Time
from nearcast.space.shapes import DISC

COUNT_BITS = 33  # low bits of a number, which count; the others are the node's block
KEPT: Time = 4 * SECOND
LATE: Time = 3 * SECOND  # before a handover: earlier publications are not delivered after it
SEARCHED: Time = 2 * SECOND  # so far back late subscriptions are matched
NOT_SENT = -1
OWN = 6  # columns of a publication itself; then follows one for each node
FREE = FOREVER  # in place of a serial number, of a number that nobody has
MARGIN = Margin(1e-9, 1e-9)  # of boxes: far above the rounding of a few operations
_NONE: Integers = np.zeros(0, np.int64)


class SubscriptionVersion(Struct, frozen=True, array_like=True):
    """A version of a subscription, and from when until when it was in force."""

    subscription: Subscription
    since: Time
    until: Time


class VersionHistory:
    """Versions of subscriptions, each with a key that the caller chooses."""

    def __init__(self) -> None:
        self._matcher = MATCHERS["keyed"]()
        self._slots = SlotAllocator()
        self._rows: Integers = np.zeros((64, 3), np.int64)  # by slot: key, since, until
        self._was: dict[int, Subscription] = {}  # by slot
        self._due: list[tuple[Time, int]] = []  # when a slot is free again
        self._until: Time = 0  # the latest end of any version

    def __len__(self) -> int:
        return len(self._due)

    def add(
        self, now: Time, key: int, subscription: Subscription, since: Time,
        until: Time = FOREVER, kept: Time = KEPT,
    ) -> int:  # fmt: skip
        """Adds a version and returns its slot; it is kept for so long."""
        slot = self._slots.take()
        self._rows = grow(self._rows, slot + 1)
        self._rows[slot] = key, since, until
        self._was[slot] = subscription
        self._until = max(self._until, until)
        self._matcher.put(replace(subscription, id=slot))
        heappush(self._due, (now + kept, slot))
        return slot

    def match(self, publications: Batch) -> tuple[Integers, Integers]:
        """Pairs of publication and key, for versions in force when the publication was made."""
        publication, slot = self.places(publications)
        return publication, self.keys(slot)

    def keys(self, slot: Integers) -> Integers:
        keys: Integers = self._rows[slot, 0]
        return keys

    def places(self, publications: Batch) -> tuple[Integers, Integers]:
        """The same, with the slot of each version instead of its key."""
        early = np.flatnonzero(publications.t < self._until) if self._due else _NONE
        if not len(early):
            return _NONE, _NONE
        found = self._matcher.match_many(select_from_batch(publications, early))
        publication = early[found.publication]
        _, since, until = self._rows[found.subscription].T
        t = publications.t[publication]
        held = (since <= t) & (t < until)
        return publication[held], found.subscription[held]

    def of(self, key: int, since: Time) -> list[SubscriptionVersion]:
        """Versions with this key that were in force then, or later."""
        versions = (
            SubscriptionVersion(self._was[at], *self._rows[at, 1:].tolist())
            for at in self._with(key)
        )
        return [was for was in versions if was.until > since]

    def drop(self, key: int) -> None:
        """The key gets another meaning: removes its versions."""
        for slot in self._with(key):
            del self._was[slot]
            self._matcher.drop(slot)

    def _with(self, key: int) -> list[int]:
        places: list[int] = np.flatnonzero(self._rows[:, 0] == key).tolist()
        return [slot for slot in places if slot in self._was]

    def forget(self, now: Time) -> None:
        while self._due and self._due[0][0] <= now:
            _, slot = heappop(self._due)
            if self._was.pop(slot, None) is not None:
                self._matcher.drop(slot)
            self._slots.give(slot)
        if not self._due:
            self._until = 0


class EarlierDeliveries(Struct, frozen=True):
    """What was delivered to a client on the node it came from: everything since a time."""

    since: Time
    departed: Time
    publications: frozenset[PublicationId]
    until: Time  # then it need not be known any more


class FlushReaders(Struct, frozen=True):
    """Who received what of a flush: `entities[i]` received `indices[starts[i]:starts[i + 1]]`."""

    entities: Integers
    starts: Integers  # one more than there are entities
    indices: Integers  # of publications, once for each subscription


NO_READERS = FlushReaders(_NONE, np.zeros(1, np.int64), _NONE)


class PastFlush(Struct, eq=False):
    """The publications of one flush, of clients of this node and of other nodes."""

    t: Time
    accepted: Sequence[AcceptedPublication]
    ids: Integers
    publications: Batch
    retained: Integers  # which of this node's own are retained
    readers: FlushReaders = NO_READERS
    # Set when the flush is added to the history: how many flushes, and how many publications, were
    # added before it.
    serial: int = 0
    start: int = 0


class RecentPublishers:
    """Dense numbers of the entities whose publications are in the history: indices of columns."""

    def __init__(self) -> None:
        self._slots = SlotAllocator()
        self._numbers: defaultdict[NodeId, int] = defaultdict(self._slots.take)
        # By number: its entity, and the serial of its last flush, or FREE.
        self._entities: Integers = np.zeros(64, np.int64)
        self._last: Integers = np.full(64, FREE, np.int64)

    @property
    def used(self) -> int:
        """All numbers are below this."""
        return self._slots.used

    def number(self, entity: NodeId) -> int | None:
        return self._numbers.get(entity)

    def add(self, serial: int, entities: Integers) -> Integers:
        """These have published in this flush: the number of each."""
        numbers = np.fromiter(
            map(self._numbers.__getitem__, entities.tolist()), np.int64, len(entities)
        )
        self._entities = grow(self._entities, self.used)
        self._last = grow(self._last, self.used, FREE)
        self._entities[numbers], self._last[numbers] = entities, serial
        return numbers

    def forget(self, serial: int) -> None:
        """Flushes before this one are forgotten."""
        silent = np.flatnonzero(self._last < serial)
        self._last[silent] = FREE
        for number, entity in zip(silent.tolist(), self._entities[silent].tolist(), strict=True):
            del self._numbers[entity]
            self._slots.give(number)


class PublicationColumns:
    """What is known of each publication in the history, by its *row*.

    Rows are in the order of flushes. Do not keep them: `add` renumbers them.
    """

    def __init__(self) -> None:
        self._first = self._end = 0  # the rows in use
        self._before = 0  # publications that were added before those of row 0
        self._nodes: dict[NodeId, int] = {}  # by node, which column has what it was sent
        self._set_columns(np.zeros((OWN, 1024), np.int64))

    def _set_columns(self, columns: Integers) -> None:
        self._columns = columns
        # `publishers`: their numbers (`RecentPublishers`). `routed`: 1, if this site has sent it to
        # the homes that may want it. `serials` and `flushed` are those of its flush.
        self.ids, self.t, self.publishers, self.routed, self.serials, self._flushed = columns[:OWN]

    def add(self, flush: PastFlush, publishers: Integers) -> None:
        count = len(flush.ids)
        if self._end + count > len(self.ids):
            self._make_room(count)
        flush.start = self._before + self._end
        self._end += count
        rows = self.rows(flush)
        self.ids[rows], self.t[rows] = flush.ids, flush.publications.t
        self.publishers[rows], self.routed[rows] = publishers, 0
        self.serials[rows], self._flushed[rows] = flush.serial, flush.t
        self._columns[OWN:, rows] = NOT_SENT

    def _make_room(self, count: int) -> None:
        """Moves the rows in use to the front, into longer columns if they need it. Nodes that were
        sent none of them, as those that are lost, have no column any more."""
        first, used = self._first, self._columns[:, self._first : self._end]
        nodes = {node: row for node, row in self._nodes.items() if (used[row] != NOT_SENT).any()}
        width = used.shape[1]
        columns = np.zeros((OWN + len(nodes), max(1024, 2 * (width + count))), np.int64)
        columns[:, :width] = used[[*range(OWN), *nodes.values()]]
        self._nodes = {node: OWN + k for k, node in enumerate(nodes)}
        self._first, self._end, self._before = 0, width, self._before + first
        self._set_columns(columns)

    def rows(self, flush: PastFlush) -> slice:
        start = flush.start - self._before
        return slice(start, start + len(flush.ids))

    def sent_to(self, node: NodeId) -> Integers:
        """With which code this node was sent each of them, to be changed; NOT_SENT: it was not."""
        column = self._nodes.get(node)
        if column is None:
            column = self._nodes[node] = len(self._columns)
            self._set_columns(np.vstack((self._columns, np.full_like(self.ids, NOT_SENT))))
        codes: Integers = self._columns[column]
        return codes

    def since(self, serial: int, t: Time) -> int:
        """The first row of a flush with this serial number, or a higher one, and of this time."""
        used = slice(self._first, self._end)
        first = np.searchsorted(self.serials[used], serial)
        return self._first + int(max(first, np.searchsorted(self._flushed[used], t)))

    def find(self, publications: Collection[PublicationId]) -> Integers:
        """The rows of those that are here, in order."""
        if not publications:
            return _NONE
        wanted = np.fromiter(publications, np.int64, len(publications))
        ids = self.ids[self._first : self._end]
        near = np.flatnonzero((ids >= wanted.min()) & (ids <= wanted.max()))
        return self._first + near[np.isin(ids[near], wanted)]

    def forget(self, flush: PastFlush | None) -> None:
        """Flushes before this one are forgotten; None: all."""
        self._first = self._end if flush is None else flush.start - self._before


class RecentHistory:
    """What a realm in a cluster remembers for a few seconds."""

    def __init__(self) -> None:
        self.versions = VersionHistory()  # by subscription slot
        self.changed_subscriptions: dict[
            SubscriptionId, ActiveSubscription | None
        ] = {}  # not announced yet; None: ended
        self.unannounced: list[SubscriptionVersion] = []  # replaced before they were announced
        self.left_entities: list[int] = []  # entities
        self.withdrawn_states: list[tuple[int, str, Time]] = []  # states: entity, channel, when
        self.flushes: deque[PastFlush] = deque()
        self.publishers = RecentPublishers()
        self.columns = PublicationColumns()  # of the publications of these flushes
        self._added = 0  # flushes so far
        self._seen: dict[PublicationId, None] = {}
        self._seen_before: dict[PublicationId, None] = {}
        self._turned: Time = 0
        # By block: the highest number of a publication that is not remembered any more.
        self._forgotten: dict[int, PublicationId] = {}
        self.keep_since: Time = FOREVER  # later flushes are kept, for clients that may come back

    def add(self, flush: PastFlush) -> None:
        self._added += 1
        flush.serial = self._added
        self.columns.add(flush, self.publishers.add(self._added, flush.publications.node))
        self.flushes.append(flush)

    def is_new(self, publication: PublicationId) -> bool:
        """Does it arrive from another node for the first time? Remembers it.

        Numbers of a node count up. If it is older than something that was forgotten, nobody can
        tell whether it has arrived before: it counts as known.
        """
        if publication in self._seen or publication in self._seen_before:
            return False
        if publication <= self._forgotten.get(publication >> COUNT_BITS, 0):
            return False
        self._seen[publication] = None
        return True

    def routed_among(self, publications: Collection[PublicationId]) -> set[PublicationId]:
        """Those of them that this site has forwarded to the homes that may want them."""
        rows = self.columns.find(publications)
        return set(self.columns.ids[rows[self.columns.routed[rows] == 1]].tolist())

    def by_flush(self, rows: Integers) -> Iterator[tuple[PastFlush, Integers, Integers]]:
        """The flushes of these rows, which are in order; their rows, and the indices there."""
        if not len(rows):
            return
        serials = self.columns.serials[rows]
        begins = np.flatnonzero(np.diff(serials, prepend=-1))
        for first, last in pairwise([*begins.tolist(), len(rows)]):
            flush = self.flushes[int(serials[first]) - self.flushes[0].serial]
            yield flush, rows[first:last], rows[first:last] - self.columns.rows(flush).start

    def count_deliveries(self, publication: PublicationId) -> int:
        """How many subscriptions of this node it was delivered to."""
        return sum(
            int(np.count_nonzero(np.isin(one.readers.indices, found)))
            for one, _, found in self.by_flush(self.columns.find([publication]))
        )

    def delivered_to(self, entity: int) -> list[PublicationId]:
        """What was delivered to this client in the last seconds."""
        numbers: list[PublicationId] = []
        for one in self.flushes:
            readers = one.readers
            for i in (readers.entities == entity).nonzero()[0].tolist():
                received = readers.indices[readers.starts[i] : readers.starts[i + 1]]
                numbers += one.ids[received].tolist()
        return numbers

    def forget(self, now: Time) -> None:
        """Drops what is too old; numbers of publications are kept three times as long."""
        self.versions.forget(now)
        while self.flushes and self.flushes[0].t < min(now - KEPT, self.keep_since):
            self.flushes.popleft()
        oldest = self.flushes[0] if self.flushes else None
        self.columns.forget(oldest)
        self.publishers.forget(oldest.serial if oldest is not None else self._added + 1)
        if now - self._turned > 3 * KEPT:
            forgotten = np.sort(np.fromiter(self._seen_before, np.int64))
            blocks, first = np.unique((forgotten >> COUNT_BITS)[::-1], return_index=True)
            self._forgotten.update(
                zip(blocks.tolist(), forgotten[::-1][first].tolist(), strict=True)
            )
            self._seen_before, self._seen, self._turned = self._seen, {}, now


class JoinedFlushes(Struct, frozen=True):
    """Publications of several flushes side by side, and where each of them is."""

    publications: Batch
    ids: Integers
    flushes: list[PastFlush]
    parts: Integers  # of each publication: which of these flushes has it
    indices: Integers  # and where

    def by_flush(self, places: Integers) -> Iterator[tuple[PastFlush, Integers]]:
        """The flushes that have these, which are in order, and their indices there."""
        parts, indices = self.parts[places], self.indices[places]
        begins = np.flatnonzero(np.diff(parts, prepend=-1))
        for first, last in pairwise([*begins.tolist(), len(parts)]):
            yield self.flushes[int(parts[first])], indices[first:last]

    def locate(self, at: int) -> tuple[PastFlush, int]:
        return self.flushes[int(self.parts[at])], int(self.indices[at])

    def near(self, subscriptions: Iterable[Subscription], begin: Time) -> "JoinedFlushes":
        """Without those that none of these subscriptions can touch, from `begin` on."""
        made, end = self.publications, int(self.publications.t.max())
        # A disc's radius is its first extent alone.
        extent = np.where(made.kind[:, None] == DISC, made.extent[:, :1], made.extent)
        low, high = (made.centre - extent).T, (made.centre + extent).T
        found = np.zeros(len(self.ids), np.bool_)
        for wanted in subscriptions:
            if isinstance(wanted.region, Formula):
                return self  # which may be anywhere
            box = swept_box(wanted.region, begin, end, MARGIN)
            on_x = (low[0] <= box.high[0]) & (high[0] >= box.low[0])
            found |= on_x & (low[1] <= box.high[1]) & (high[1] >= box.low[1])
        which = np.flatnonzero(found)
        return JoinedFlushes(
            select_from_batch(made, which), self.ids[which], self.flushes,
            self.parts[which], self.indices[which],
        )  # fmt: skip


def join_flushes(flushes: Sequence[PastFlush], since: Time) -> JoinedFlushes | None:
    """The publications made at this time or later, joined; None if there are none."""
    found: list[tuple[PastFlush, Integers]] = []
    for one in reversed(flushes):
        if one.t < since:
            break  # no publication is flushed before it was made
        which = np.flatnonzero(one.publications.t >= since)
        if len(which):
            found.append((one, which))
    found.reverse()
    if not found:
        return None
    parts = [select_from_batch(one.publications, which) for one, which in found]
    t, node, kind, centre, extent = (
        np.concatenate([getattr(part, name) for part in parts])
        for name in ("t", "node", "kind", "centre", "extent")
    )
    channels = None
    if any(part.channel is not None for part in parts):
        channels = [c for part in parts for c in part.channel or [""] * len(part)]
    outlines = None
    if any(part.outlines is not None for part in parts):
        outlines = [o for part in parts for o in part.outlines or [None] * len(part)]
    made = _SelectedPublications([(one.publications.publications, which) for one, which in found])
    return JoinedFlushes(
        Batch(t, node, kind, centre, extent, channels, made, outlines=outlines),
        np.concatenate([one.ids[which] for one, which in found]),
        [one for one, _ in found],
        np.repeat(np.arange(len(found)), [len(which) for _, which in found]),
        np.concatenate([which for _, which in found]),
    )


def select_from_batch(publications: Batch, which: Integers) -> Batch:
    """The part of a batch with these indices, which are in order."""
    if len(which) == len(publications):
        return publications
    channel, outlines = publications.channel, publications.outlines
    return Batch(
        publications.t[which],
        publications.node[which],
        publications.kind[which],
        np.ascontiguousarray(publications.centre[which]),
        np.ascontiguousarray(publications.extent[which]),
        None if channel is None else [channel[i] for i in which.tolist()],
        _SelectedPublications([(publications.publications, which)]),
        outlines=None if outlines is None else [outlines[i] for i in which.tolist()],
    )


class _SelectedPublications(Sequence[Publication]):
    """Some publications of several batches, still built only if a filter reads them."""

    def __init__(self, parts: list[tuple[Sequence[Publication], Integers]]) -> None:
        self._parts = parts
        ends = list(accumulate(len(which) for _, which in parts))
        self._starts, self._length = [0, *ends[:-1]], ends[-1]

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> Publication: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Publication]: ...
    def __getitem__(self, index: int | slice) -> Publication | Sequence[Publication]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(self._length))]
        part = bisect_right(self._starts, index) - 1
        whole, which = self._parts[part]
        return whole[int(which[index - self._starts[part]])]
