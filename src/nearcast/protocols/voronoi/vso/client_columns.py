"""All VSO clients of one process as columns: one Notify for many of them is one compiled call.

Each client has a client slot, each of its subscriptions a slot in the rows. Columns have what each
subscription wants, which publications it has received, when each matcher last notified the client,
and recent publishers. A simulator with one Notify for many clients calls `ClientColumns.receive`
instead of each client; a single client uses `client.VsoClient.receive`. Both mean the same.
"""

from collections import deque
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numba import njit
from numpy.typing import NDArray

from nearcast.columns import grow
from nearcast.matching.formula_vm import NO_PROGRAM
from nearcast.matching.grid_query import NO, UNDECIDED, check_row
from nearcast.matching.rows import ALIVE, ECHO, FILTERED, NO_FILTER, PACK, ROW
from nearcast.model.interests import InterestVersion, version_at
from nearcast.model.publication import Publication, wants
from nearcast.model.subscription import NodeId, PublicationId, SubscriptionId
from nearcast.node import DeliveryBatch, KnownPositions, Message
from nearcast.protocols.dedup import DUPLICATE_WINDOW, ReceivedPublications, ReceiverNumbers
from nearcast.protocols.voronoi.vso.messages import Notify
from nearcast.protocols.voronoi.vso.recent_senders import RecentSenders
from nearcast.space.motion import FOREVER, Moving, Time
from nearcast.space.shapes import EVERYWHERE, Shape, Vector

History: TypeAlias = deque[InterestVersion]  # of one subscription
Column: TypeAlias = NDArray[np.int64]

FIRST_ROOM = 64
NONE = -1
NEVER: Time = -1
VERSIONS = 8  # of a subscription that the compiled call knows: messages take some steps


@njit(cache=True)
def _match_clients(
    to: Any, matcher: Any, members: Any, client_slots: Any, last_notified: Any, now: int,
    first_slot: Any, next_slot: Any, rows: Any, begins: Any, latest: Any, received_before: Any,
    mark: Any, stamp: int,
    at: int, publisher: int, channel: int, kind: int,
    x: float, y: float, z: float, rx: float, ry: float, rz: float,
    receivers: Any, slots: Any, found: Any,
) -> Any:  # fmt: skip
    """Fill in the slots of the clients that are here, and the subscriptions that want it anew.

    `found` has the node and the id of each such subscription, and whether that is uncertain: there
    are filters, formulas, paths, and versions older than those in `rows`. Returned are the numbers
    of clients here, of subscriptions, and of uncertain ones.
    """
    p = (at, publisher, channel, kind, x, y, z, rx, ry, rz)
    for slot in received_before:
        mark[slot] = stamp
    count = n = doubtful_count = 0
    for i in range(len(to)):
        k = np.searchsorted(members, to[i])
        if k == len(members) or members[k] != to[i]:
            continue  # it has left or crashed: silence
        client_slot = client_slots[k]
        last_notified[matcher[i], client_slot] = now
        receivers[count] = client_slot
        count += 1
        slot = first_slot[client_slot]
        while slot >= 0:
            if mark[slot] != stamp:
                outcome = UNDECIDED
                for back in range(VERSIONS):
                    version = (latest[slot] - back) % VERSIONS
                    if begins[slot, version] <= at:
                        row = rows[slot, version]
                        if row.valid_from <= at:  # else a path or a formula
                            outcome = check_row(row, p)
                        break
                if outcome != NO:
                    row = rows[slot, latest[slot]]
                    mark[slot] = stamp
                    doubtful_count += outcome == UNDECIDED
                    slots[n] = slot
                    found[0, n], found[1, n], found[2, n] = row.node, row.id, outcome == UNDECIDED
                    n += 1
            slot = next_slot[slot]
    return count, n, doubtful_count


class DelayedSlotAllocator:
    """Slots from 0 on; a freed slot is used again after `patience`, when nothing refers to it."""

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
    """`memory`: for so long a client knows a publisher."""

    def __init__(self, memory: Time) -> None:
        self._recent_senders, self._received = RecentSenders(memory), ReceivedPublications()
        self._present: dict[NodeId, int] = {}  # client slots
        self._sorted: tuple[Column, ReceiverNumbers] | None = None  # the same, by node
        self._client_slots = DelayedSlotAllocator(max(memory, DUPLICATE_WINDOW))
        self._first_slot: ReceiverNumbers = np.full(FIRST_ROOM, NONE, np.int32)  # by client
        self._matchers: dict[NodeId, int] = {}  # rows of
        self._last_notified: Column = np.full(
            (1, FIRST_ROOM), NEVER, np.int64
        )  # by matcher and client slot
        self._subscription_slots = DelayedSlotAllocator(DUPLICATE_WINDOW)
        self._next_slot: ReceiverNumbers = np.full(FIRST_ROOM, NONE, np.int32)  # of the same client
        # By subscription slot: a ring of its latest versions, when each begins, and the last one.
        self._rows: Any = np.zeros((FIRST_ROOM, VERSIONS), ROW)
        self._begins: Column = np.full((FIRST_ROOM, VERSIONS), FOREVER, np.int64)
        self._latest: ReceiverNumbers = np.zeros(FIRST_ROOM, np.int32)
        self._mark: Column = np.zeros(FIRST_ROOM, np.int64)
        self._stamp = 0
        self._histories: list[History] = []
        self._channels: dict[str, int] = {}
        self._most = 1  # subscriptions of one client

    # A client.

    def add_client(self, node: NodeId, now: Time) -> int:
        """A client is here from now on. Its slot is its own until it leaves."""
        client_slot = self._present[node] = self._client_slots.take(now)
        self._sorted = None
        if client_slot == len(self._first_slot):
            self._first_slot = grow(self._first_slot, client_slot + 1, NONE)
            self._last_notified = np.concatenate(
                (self._last_notified, np.full_like(self._last_notified, NEVER)), axis=1
            )
        self._last_notified[:, client_slot] = NEVER
        return client_slot

    def leave(self, node: NodeId, now: Time) -> None:
        client_slot = self._present.pop(node, None)
        if client_slot is None:
            return
        self._sorted = None
        slot = int(self._first_slot[client_slot])
        while slot != NONE:
            self._begins[slot] = FOREVER
            self._subscription_slots.give_back(slot, now)
            slot = int(self._next_slot[slot])
        self._first_slot[client_slot] = NONE
        self._client_slots.give_back(client_slot, now)

    def add_subscription(self, client_slot: int, history: History, now: Time) -> int:
        """A slot for a subscription with this history; the last of those of its client."""
        slot = self._subscription_slots.take(now)
        if slot == len(self._rows):
            self._rows, self._mark = grow(self._rows, slot + 1), grow(self._mark, slot + 1)
            self._begins = grow(self._begins, slot + 1, FOREVER)
            self._latest = grow(self._latest, slot + 1)
            self._next_slot = grow(self._next_slot, slot + 1, NONE)
        if slot == len(self._histories):
            self._histories.append(history)
        self._histories[slot] = history
        self._next_slot[slot] = NONE
        last = int(self._first_slot[client_slot])
        if last == NONE:
            self._first_slot[client_slot] = slot
            return slot
        several = 2
        while self._next_slot[last] != NONE:
            last = int(self._next_slot[last])
            several += 1
        self._next_slot[last] = slot
        self._most = max(self._most, several)
        return slot

    def update_subscription(self, slot: int, node: NodeId, name: SubscriptionId, now: Time) -> None:
        """Its history has a new entry, of now."""
        wanted = self._histories[slot][-1][1]
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
        version = self._latest[slot] = (self._latest[slot] + 1) % VERSIONS
        self._begins[slot, version] = now
        PACK(
            self._rows, int(slot * VERSIONS + version) * ROW.itemsize,
            flags, s.kind, name, node, channel,
            region.since, region.until, since, FOREVER, NO_PROGRAM, NO_FILTER, 0, 0, 0,
            s.x, s.y, s.z, s.rx, s.ry, s.rz, *region.velocity, *region.growth,
        )  # fmt: skip

    def is_new(self, slot: int, publication: PublicationId, now: Time) -> bool:
        return self._received.is_new(publication, slot, now)

    def note_publisher(self, client_slot: int, publisher: NodeId, where: Shape, now: Time) -> None:
        """A client has received from a publisher, alone."""
        assert client_slot >= 0, "a client has a slot before it receives"
        self._recent_senders.note_publisher(now, publisher, where, client_slot)

    def known(self, client_slot: int, now: Time) -> dict[NodeId, Vector]:
        return self._recent_senders.of(client_slot, now)

    def last_notified_at(self, client_slot: int, matcher: NodeId) -> Time:
        """When that matcher last notified this client together with others; -1: never."""
        row = self._matchers.get(matcher)
        return NEVER if row is None else int(self._last_notified[row, client_slot])

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
        s, received_before = publication.shape, self._received.those(publication.id)
        self._stamp += 1
        receivers, slots = np.empty(len(to), np.int32), np.empty(self._most * len(to), np.int32)
        found = np.empty((3, len(slots)), np.int64)
        here, count, doubtful_count = _match_clients(
            to, matcher, *self._present_by_node(), self._last_notified, now, self._first_slot,
            self._next_slot, self._rows, self._begins, self._latest, received_before, self._mark,
            self._stamp, publication.t, publication.node,
            self._channels.get(publication.channel, NONE), int(s.kind), float(s.x), float(s.y),
            float(s.z), float(s.rx), float(s.ry), float(s.rz), receivers, slots, found,
        )  # fmt: skip
        self._recent_senders.note_publisher(now, publication.node, s, receivers[:here])
        slots, found = slots[:count], found[:, :count]
        if doubtful_count:
            confirmed = self._confirm(slots, found[2], publication)
            slots, found = slots[confirmed], found[:, confirmed]
        if len(slots):
            self._received.add(publication.id, received_before, slots, now)
        return DeliveryBatch(publication, found[0], found[1], message.hops)

    def known_positions(self, now: Time, nodes: Sequence[NodeId]) -> KnownPositions:
        here = np.array([node for node in nodes if node in self._present], np.int64)
        client_slots = np.array([self._present[node] for node in here.tolist()], np.int32)
        who, others, places = self._recent_senders.of_many(client_slots, now)
        node = here[who]
        not_itself = others != node
        return KnownPositions(node[not_itself], others[not_itself], places[not_itself])

    def _matcher(self, node: NodeId) -> int:
        row = self._matchers.get(node)
        if row is None:
            row = self._matchers[node] = len(self._matchers)
            self._last_notified = grow(self._last_notified, row + 1, NEVER)
        return row

    def _present_by_node(self) -> tuple[Column, ReceiverNumbers]:
        if self._sorted is None:
            members = sorted(self._present)
            client_slots = [self._present[node] for node in members]
            self._sorted = np.array(members, np.int64), np.array(client_slots, np.int32)
        return self._sorted

    def _confirm(
        self, slots: ReceiverNumbers, doubtful: Column, publication: Publication
    ) -> NDArray[np.bool_]:
        """Which of them want it indeed?"""
        confirmed: NDArray[np.bool_] = doubtful == 0
        t = publication.t
        for k in np.flatnonzero(doubtful).tolist():
            then = version_at(self._histories[slots[k]], t)
            confirmed[k] = then is not None and wants(then, publication, t)
        return confirmed
