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

from nearcast.matching.lookup import ASK, NO, row_verdict
from nearcast.matching.rows import ALIVE, DOUBTFUL, ECHO, NO_PROGRAM, PACK, ROW
from nearcast.model.publication import Publication, wants
from nearcast.model.subscription import NodeId, PublicationId, Subscription, SubscriptionId
from nearcast.node import Deliveries, Message, Views
from nearcast.protocols.copies import COPIES_COME_WITHIN, Ears, Had
from nearcast.protocols.voronoi.hearsay import Hearsay
from nearcast.protocols.voronoi.vso_messages import Notify
from nearcast.space.motion import FOREVER, Moving, Time
from nearcast.space.shapes import EVERYWHERE, Shape, Vector

History: TypeAlias = deque[tuple[Time, Subscription | None]]  # what was wanted since when
Column: TypeAlias = NDArray[np.int64]

FIRST_ROOM = 64
NONE = -1
NEVER: Time = -1


def as_of(history: History, t: Time) -> Subscription | None:
    """What was wanted at that moment."""
    for since, wanted in reversed(history):
        if since <= t:
            return wanted
    return None


@njit(cache=True)
def _listen(
    to: Any, members: Any, seats: Any, said: Any, now: int, first: Any, following: Any, rows: Any,
    had: Any, mark: Any, stamp: int, whole: Any, real: Any,
) -> Any:  # fmt: skip
    """The seats of those who are here; ears that want it and did not have it; which are in doubt.

    In doubt are filters, formulas, paths, and what has changed since the publication was made.
    """
    at = whole[0]
    p = (at, whole[1], whole[2], whole[3], real[0], real[1], real[2], real[3], real[4], real[5])
    for ear in had:
        mark[ear] = stamp
    heard = np.empty(len(to), np.int32)
    count = total = 0
    for one in to:
        k = np.searchsorted(members, one)
        if k < len(members) and members[k] == one:
            seat = seats[k]
            said[seat] = now
            heard[count] = seat
            count += 1
            ear = first[seat]
            while ear >= 0:
                total += 1
                ear = following[ear]
    ears, doubtful = np.empty(total, np.int32), np.empty(total, np.bool_)
    n = doubts = 0
    for seat in heard[:count]:
        ear = first[seat]
        while ear >= 0:
            if mark[ear] != stamp:
                verdict = ASK if at < rows[ear].valid_from else row_verdict(rows[ear], p)
                if verdict != NO:
                    mark[ear] = stamp
                    ears[n], doubtful[n] = ear, verdict == ASK
                    doubts += verdict == ASK
                    n += 1
            ear = following[ear]
    return heard[:count], ears[:n], doubtful[:n], doubts


class Numbers:
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


class Audience:
    """`memory`: for so long a client knows whom it heard."""

    def __init__(self, memory: Time) -> None:
        self._hearsay, self._had = Hearsay(memory), Had()
        self._here: dict[NodeId, int] = {}  # seats
        self._sorted: tuple[Column, Ears] | None = None  # the same, by node
        self._seats = Numbers(max(memory, COPIES_COME_WITHIN))
        self._first: Ears = np.full(FIRST_ROOM, NONE, np.int32)  # ear of each seat
        self._said: dict[NodeId, Column] = {}  # when a matcher last spoke to each seat
        self._ears = Numbers(COPIES_COME_WITHIN)
        self._following: Ears = np.full(FIRST_ROOM, NONE, np.int32)  # of the same seat
        self._rows: Any = np.zeros(FIRST_ROOM, ROW)
        self._mark: Column = np.zeros(FIRST_ROOM, np.int64)
        self._stamp = 0
        self._histories: list[History] = []
        self._channels: dict[str, int] = {}
        self._whole: Column = np.zeros(4, np.int64)
        self._real: NDArray[np.float64] = np.zeros(6)

    # A client.

    def sit(self, node: NodeId, now: Time) -> int:
        """It is here from now on. Its seat is its own until it leaves."""
        seat = self._here[node] = self._seats.take(now)
        self._sorted = None
        if seat == len(self._first):
            self._first = _grown(self._first, NONE)
            self._said = {sender: _grown(said, NEVER) for sender, said in self._said.items()}
        for said in self._said.values():
            said[seat] = NEVER
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
            self._rows = np.concatenate((self._rows, np.zeros(ear, ROW)))
            self._following, self._mark = _grown(self._following, NONE), _grown(self._mark, 0)
        if ear == len(self._histories):
            self._histories.append(history)
        self._histories[ear] = history
        self._following[ear] = NONE
        last = int(self._first[seat])
        if last == NONE:
            self._first[seat] = ear
            return ear
        while self._following[last] != NONE:
            last = int(self._following[last])
        self._following[last] = ear
        return ear

    def change(self, ear: int, node: NodeId, name: SubscriptionId, now: Time) -> None:
        """Its history has a new entry, of now."""
        wanted = self._histories[ear][-1][1]
        still = Moving(EVERYWHERE)
        region, flags, channel, since = still, 0, 0, now
        if wanted is not None:
            flags = ALIVE | (ECHO if wanted.echo else 0) | (DOUBTFUL if wanted.filter else 0)
            channel = self._channels.setdefault(wanted.channel, len(self._channels))
            if isinstance(wanted.region, Moving):
                region = wanted.region
            else:
                since = FOREVER  # a path or a formula is always asked itself
        s = region.shape
        PACK(
            self._rows, ear * ROW.itemsize, flags, s.kind, name, node, channel,
            region.since, region.until, since, FOREVER, NO_PROGRAM,
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
        said = self._said.get(matcher)
        return NEVER if said is None else int(said[seat])

    # All together: see `node.Crowd`.

    def receive(
        self, now: Time, to: Sequence[NodeId], sender: NodeId, message: Message
    ) -> Deliveries | None:
        if not isinstance(message, Notify):
            return None
        publication = message.publication
        said = self._said.get(sender)
        if said is None:
            said = self._said[sender] = np.full(len(self._first), NEVER, np.int64)
        s, whole, real = publication.shape, self._whole, self._real
        whole[0], whole[1], whole[3] = publication.t, publication.node, s.kind
        whole[2] = self._channels.get(publication.channel, NONE)
        real[0], real[1], real[2], real[3], real[4], real[5] = s.x, s.y, s.z, s.rx, s.ry, s.rz
        had = self._had.those(publication.id)
        self._stamp += 1
        heard, ears, doubtful, doubts = _listen(
            np.asarray(to, np.int64), *self._by_node(), said, now, self._first, self._following,
            self._rows, had, self._mark, self._stamp, whole, real,
        )  # fmt: skip
        self._hearsay.note(now, publication.node, s, heard)
        if doubts:
            ears = self._sure(ears, doubtful, publication)
        if len(ears):
            self._had.add(publication.id, had, ears, now)
        rows = self._rows
        return Deliveries(publication, rows["node"][ears], rows["id"][ears], message.hops)

    def views(self, now: Time, nodes: Sequence[NodeId]) -> Views:
        here = np.array([node for node in nodes if node in self._here], np.int64)
        seats = np.array([self._here[node] for node in here.tolist()], np.int32)
        who, others, places = self._hearsay.of_many(seats, now)
        node = here[who]
        not_itself = others != node
        return Views(node[not_itself], others[not_itself], places[not_itself])

    def _by_node(self) -> tuple[Column, Ears]:
        if self._sorted is None:
            members = sorted(self._here)
            seats = [self._here[node] for node in members]
            self._sorted = np.array(members, np.int64), np.array(seats, np.int32)
        return self._sorted

    def _sure(self, ears: Ears, doubtful: NDArray[np.bool_], publication: Publication) -> Ears:
        """Those who want it indeed."""
        wanted, t = ~doubtful, publication.t
        for k in np.flatnonzero(doubtful).tolist():
            then = as_of(self._histories[ears[k]], t)
            wanted[k] = then is not None and wants(then, publication, t)
        sure: Ears = ears[wanted]
        return sure


def _grown(column: NDArray[Any], fill: int) -> NDArray[Any]:
    return np.concatenate((column, np.full_like(column, fill)))
