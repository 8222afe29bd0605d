"""The clients of one process as an audience: what is told to many of them is heard at once.

A client keeps here what its hearing needs, as columns, whoever brings a message: what each of its
subscriptions wants (an ear), which publications each has had, which matcher spoke to it last when
(by its seat), whom it heard where. A host with one notification for many hands it to the audience
instead of to each; a client alone hears with `vso_client.Client.hear`. Both mean the same.
"""

from collections import deque
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numba import njit
from numpy.typing import NDArray

from nearcast.columns import grow
from nearcast.matching.formula_vm import NO_PROGRAM
from nearcast.matching.grid_query import ASK, NO, check_row
from nearcast.matching.rows import ALIVE, ECHO, FILTERED, NO_FILTER, PACK, ROW
from nearcast.model.interests import InterestVersion, version_at
from nearcast.model.publication import Publication, wants
from nearcast.model.subscription import NodeId, PublicationId, SubscriptionId
from nearcast.node import DeliveryBatch, KnownPositions, Message
from nearcast.protocols.dedup import DUPLICATE_WINDOW, ReceivedPublications, ReceiverNumbers
from nearcast.protocols.voronoi.recent_senders import RecentSenders
from nearcast.protocols.voronoi.vso_messages import Notify
from nearcast.space.motion import FOREVER, Moving, Time
from nearcast.space.shapes import EVERYWHERE, Shape, Vector

History: TypeAlias = deque[InterestVersion]  # of one subscription
Column: TypeAlias = NDArray[np.int64]

FIRST_ROOM = 64
NONE = -1
NEVER: Time = -1


@njit(cache=True)
def _listen(
    to: Any, matcher: Any, members: Any, seats: Any, said: Any, now: int,
    first: Any, following: Any, rows: Any, had: Any, mark: Any, stamp: int,
    at: int, speaker: int, channel: int, kind: int,
    x: float, y: float, z: float, rx: float, ry: float, rz: float,
    heard: Any, ears: Any, found: Any,
) -> Any:  # fmt: skip
    """Fill in the seats of those who are here, and the ears that want it and did not have it.

    `found` has the node and the subscription of each such ear, and whether that is in doubt: there
    are filters, formulas, paths, and what has changed since the publication was made. Returned are
    how many are here, how many ears, how many doubts.
    """
    p = (at, speaker, channel, kind, x, y, z, rx, ry, rz)
    for ear in had:
        mark[ear] = stamp
    count = n = doubts = 0
    for i in range(len(to)):
        k = np.searchsorted(members, to[i])
        if k == len(members) or members[k] != to[i]:
            continue  # it has left or crashed: silence
        seat = seats[k]
        said[matcher[i], seat] = now
        heard[count] = seat
        count += 1
        ear = first[seat]
        while ear >= 0:
            row = rows[ear]
            if mark[ear] != stamp:
                verdict = ASK if at < row.valid_from else check_row(row, p)
                if verdict != NO:
                    mark[ear] = stamp
                    doubts += verdict == ASK
                    ears[n] = ear
                    found[0, n], found[1, n], found[2, n] = row.node, row.id, verdict == ASK
                    n += 1
            ear = following[ear]
    return count, n, doubts


class DelayedSlotAllocator:
    """From 0 on; one that was given back is taken again when nothing speaks of it any more."""

    def __init__(self, patience: Time) -> None:
        self.room = 0
        self._patience = patience
        self._back: deque[tuple[Time, int]] = deque()

    def take(self, now: Time) -> int:
        if self._back and now - self._back[0][0] > self._patience:
            return self._back.popleft()[1]
        self.room += 1
        return self.room - 1

    def give_back(self, number: int, now: Time) -> None:
        self._back.append((now, number))


class ClientColumns:
    """`memory`: for so long a client knows whom it heard."""

    def __init__(self, memory: Time) -> None:
        self._hearsay, self._had = RecentSenders(memory), ReceivedPublications()
        self._here: dict[NodeId, int] = {}  # seats
        self._sorted: tuple[Column, ReceiverNumbers] | None = None  # the same, by node
        self._seats = DelayedSlotAllocator(max(memory, DUPLICATE_WINDOW))
        self._first: ReceiverNumbers = np.full(FIRST_ROOM, NONE, np.int32)  # ear of each seat
        self._matchers: dict[NodeId, int] = {}  # rows of
        self._said: Column = np.full((1, FIRST_ROOM), NEVER, np.int64)  # to each seat, last when
        self._ears = DelayedSlotAllocator(DUPLICATE_WINDOW)
        self._following: ReceiverNumbers = np.full(FIRST_ROOM, NONE, np.int32)  # of the same seat
        self._rows: Any = np.zeros(FIRST_ROOM, ROW)
        self._mark: Column = np.zeros(FIRST_ROOM, np.int64)
        self._stamp = 0
        self._histories: list[History] = []
        self._channels: dict[str, int] = {}
        self._most = 1  # ears of one client

    # A client.

    def sit(self, node: NodeId, now: Time) -> int:
        """It is here from now on. Its seat is its own until it leaves."""
        seat = self._here[node] = self._seats.take(now)
        self._sorted = None
        if seat == len(self._first):
            self._first = grow(self._first, seat + 1, NONE)
            self._said = np.concatenate((self._said, np.full_like(self._said, NEVER)), axis=1)
        self._said[:, seat] = NEVER
        return seat

    def leave(self, node: NodeId, now: Time) -> None:
        seat = self._here.pop(node, None)
        if seat is None:
            return
        self._sorted = None
        ear = int(self._first[seat])
        while ear != NONE:
            self._rows[ear]["flags"] = 0
            self._ears.give_back(ear, now)
            ear = int(self._following[ear])
        self._first[seat] = NONE
        self._seats.give_back(seat, now)

    def listen(self, seat: int, history: History, now: Time) -> int:
        """An ear for what this history says is wanted; the last of those that it has."""
        ear = self._ears.take(now)
        if ear == len(self._rows):
            self._rows, self._mark = grow(self._rows, ear + 1), grow(self._mark, ear + 1)
            self._following = grow(self._following, ear + 1, NONE)
        if ear == len(self._histories):
            self._histories.append(history)
        self._histories[ear] = history
        self._following[ear] = NONE
        last = int(self._first[seat])
        if last == NONE:
            self._first[seat] = ear
            return ear
        several = 2
        while self._following[last] != NONE:
            last = int(self._following[last])
            several += 1
        self._following[last] = ear
        self._most = max(self._most, several)
        return ear

    def change(self, ear: int, node: NodeId, name: SubscriptionId, now: Time) -> None:
        """Its history has a new entry, of now."""
        wanted = self._histories[ear][-1][1]
        still = Moving(EVERYWHERE)
        region, flags, channel, since = still, 0, 0, now
        if wanted is not None:
            flags = ALIVE | (ECHO if wanted.echo else 0) | (FILTERED if wanted.filter else 0)
            channel = self._channels.setdefault(wanted.channel, len(self._channels))
            if isinstance(wanted.region, Moving):
                region = wanted.region
            else:
                since = FOREVER  # a path or a formula is always asked itself
        s = region.shape
        PACK(
            self._rows, ear * ROW.itemsize, flags, s.kind, name, node, channel,
            region.since, region.until, since, FOREVER, NO_PROGRAM, NO_FILTER, 0, 0, 0,
            s.x, s.y, s.z, s.rx, s.ry, s.rz, *region.velocity, *region.growth,
        )  # fmt: skip

    def is_new(self, ear: int, publication: PublicationId, now: Time) -> bool:
        return self._had.is_new(publication, ear, now)

    def note(self, seat: int, speaker: NodeId, where: Shape, now: Time) -> None:
        """It has heard of somebody, alone."""
        assert seat >= 0, "a client sits down before it hears"
        self._hearsay.note(now, speaker, where, seat)

    def known(self, seat: int, now: Time) -> dict[NodeId, Vector]:
        return self._hearsay.of(seat, now)

    def last_word(self, seat: int, matcher: NodeId) -> Time:
        """When that one last told this seat and others something; -1: never."""
        row = self._matchers.get(matcher)
        return NEVER if row is None else int(self._said[row, seat])

    # All together: see `node.NodeGroup`.

    message_types: tuple[type[Message], ...] = (Notify,)

    def receive(
        self, now: Time, arrivals: Sequence[tuple[Sequence[NodeId], NodeId]], message: Message
    ) -> DeliveryBatch:
        assert isinstance(message, Notify)
        publication = message.publication
        targets: list[NodeId] = []
        matchers: list[int] = []
        for several, sender in arrivals:
            targets += several
            matchers += [self._matcher(sender)] * len(several)
        to, matcher = np.array((targets, matchers), np.int64)
        s, had = publication.shape, self._had.those(publication.id)
        self._stamp += 1
        heard, ears = np.empty(len(to), np.int32), np.empty(self._most * len(to), np.int32)
        found = np.empty((3, len(ears)), np.int64)
        here, count, doubts = _listen(
            to, matcher, *self._by_node(), self._said, now, self._first, self._following,
            self._rows, had, self._mark, self._stamp, publication.t, publication.node,
            self._channels.get(publication.channel, NONE), int(s.kind), float(s.x), float(s.y),
            float(s.z), float(s.rx), float(s.ry), float(s.rz), heard, ears, found,
        )  # fmt: skip
        self._hearsay.note(now, publication.node, s, heard[:here])
        ears, found = ears[:count], found[:, :count]
        if doubts:
            sure = self._sure(ears, found[2], publication)
            ears, found = ears[sure], found[:, sure]
        if len(ears):
            self._had.add(publication.id, had, ears, now)
        return DeliveryBatch(publication, found[0], found[1], message.hops)

    def known_positions(self, now: Time, nodes: Sequence[NodeId]) -> KnownPositions:
        here = np.array([node for node in nodes if node in self._here], np.int64)
        seats = np.array([self._here[node] for node in here.tolist()], np.int32)
        who, others, places = self._hearsay.of_many(seats, now)
        node = here[who]
        not_itself = others != node
        return KnownPositions(node[not_itself], others[not_itself], places[not_itself])

    def _matcher(self, node: NodeId) -> int:
        row = self._matchers.get(node)
        if row is None:
            row = self._matchers[node] = len(self._matchers)
            self._said = grow(self._said, row + 1, NEVER)
        return row

    def _by_node(self) -> tuple[Column, ReceiverNumbers]:
        if self._sorted is None:
            members = sorted(self._here)
            seats = [self._here[node] for node in members]
            self._sorted = np.array(members, np.int64), np.array(seats, np.int32)
        return self._sorted

    def _sure(
        self, ears: ReceiverNumbers, doubtful: Column, publication: Publication
    ) -> NDArray[np.bool_]:
        """Which of them want it indeed?"""
        sure: NDArray[np.bool_] = doubtful == 0
        t = publication.t
        for k in np.flatnonzero(doubtful).tolist():
            then = version_at(self._histories[ears[k]], t)
            sure[k] = then is not None and wants(then, publication, t)
        return sure
