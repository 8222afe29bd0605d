"""What clients cost, and who comes first when more waits than one flush can do.

Work is counted in steps of about ten nanoseconds, not measured: what a publication costs is a sum
over its deliveries and over the formulas and filters that were asked about it. It is charged to its
publisher, and what was done for a subscription to its subscriber as well. Counting needs no clock,
so the same history is always shared in the same way.

A client's price is what its publications are expected to cost: it rises at once with what they
cost, and falls slowly. While all that waits fits into one flush by these prices, nothing is shared.
Otherwise it is shared by fair queueing (self-clocked: Golestani, 1994): each publication has a tag,
its publisher's last one or that of what was taken last, whichever is later, plus its price, and the
lowest tags are taken. So a client with few waiting publications is served at once, however many
others have, and none waits for ever. Each client's publications keep their order.
"""

from collections import Counter, deque
from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from typing import Any

import numpy as np
from msgspec import Struct
from numba import njit
from numpy.typing import NDArray

from nearcast.client_protocol import messages
from nearcast.columns import grow
from nearcast.matching.matcher import EvaluationCost, Integers
from nearcast.service.client_state import AcceptedPublication, AcceptedPublications, ClientState
from nearcast.service.retained_state import (
    NOT_PLAIN,
    PUBLICATION_DTYPE,
    PublicationTable,
    clear_retain,
)

FLUSH_STEPS = 4_000_000  # steps of one flush: about 40 ms
PUBLICATION_STEPS = 500  # steps for each
BYTES_PER_STEP = 16  # of its payload that cost a step
DELIVERY_STEPS = 40  # and for each subscription that hears it
NOTICE_STEPS = 500  # for each notice of a fence that it causes
PAIR_STEPS = 4  # for each subscription whose formula or filter is asked, beside its own steps
UNKNOWN = -1.0  # the price of a client that has not published yet
FEW = 64  # publications of such clients that fill a flush
FALL = 0.98  # of a price from flush to flush, unless it is confirmed
AT_ONCE = 64  # publications of one client in a flush, when it is shared: the price may be wrong
BACKLOG_FLUSHES = 50  # flushes that may wait, of all clients together

# Of a client, by its slot: its price, and since it joined how often it has published, what
# that has cost, and what its subscriptions have cost. `here` counts within one call.
ACCOUNT = np.dtype(
    [
        ("price", np.float64), ("published", np.int64), ("as_publisher", np.int64),
        ("as_subscriber", np.int64), ("here", np.int64),
    ]
)  # fmt: skip


class Accounts:
    """What each client costs, and sums over all of them."""

    def __init__(self) -> None:
        self.bound = FLUSH_STEPS  # steps of one flush
        self.work = 0  # steps, of all flushes
        self.cut_short = 0  # flushes that left something waiting
        self.refused = 0  # publications refused because too many of their publisher's wait
        self.clients: NDArray[np.void] = np.zeros(64, ACCOUNT)

    def open(self, slot: int) -> None:
        """A new client has this slot."""
        self.clients = grow(self.clients, slot + 1)
        self.clients[slot] = (UNKNOWN, 0, 0, 0, 0)

    def price(self, client: ClientState) -> float:
        """What a publication of this client is expected to cost."""
        price = UNKNOWN if client.left else float(self.clients[client.slot]["price"])
        return self.bound / FEW if price == UNKNOWN else price

    def fits(self, table: PublicationTable) -> bool:
        """Can these publications all go into one flush?"""
        return bool(fits(table, self.clients, self.bound))

    def charge(
        self, table: PublicationTable, entities: Integers, publication: Integers,
        listener: Integers, effort: EvaluationCost | None, askers: Integers | None,
    ) -> None:  # fmt: skip
        """Charges a flush. `publication` and `listener` are the pairs of its deliveries.

        `askers` are the clients of the subscriptions in `effort`; `entities` is by client slot.
        """
        work = np.zeros(len(table), np.int64)
        if effort is not None:
            charge_asked(work, self.clients, effort.publication, askers, effort.steps)
        self.work += charge(table, entities, publication, listener, work, self.clients)

    def charge_notices(
        self, notices: Sequence[tuple[ClientState, messages.Notice]], entities: Integers,
        clients: Sequence[ClientState | None],
    ) -> None:  # fmt: skip
        """Charges notices of fences. Who causes many has a high price: its next publications wait
        for those of others. `entities` and `clients` are by client slot."""
        events = [(client, one) for client, one in notices if isinstance(one, messages.FenceNotice)]
        caused = Counter(one.entity for _, one in events)
        for slot in np.flatnonzero(np.isin(entities[: len(clients)], list(caused))).tolist():
            client = clients[slot]
            if client is not None:
                account = self.clients[(client.owner or client).slot]
                steps = NOTICE_STEPS * caused[client.entity]
                account["price"] = max(account["price"], steps)
                account["as_publisher"] += steps
        for slot, count in Counter(client.slot for client, _ in events).items():
            self.clients[slot]["as_subscriber"] += NOTICE_STEPS * count
        self.work += NOTICE_STEPS * len(events)


@njit(cache=True)
def fits(table: Any, accounts: Any, bound: int) -> Any:
    total, most = 0.0, 0
    for one in table:
        account = accounts[one.client_slot]
        account.here += 1
        most = max(most, account.here)
        total += account.price if account.price != UNKNOWN else bound / FEW
    for one in table:
        accounts[one.client_slot].here = 0
    return total <= bound and most <= AT_ONCE


@njit(cache=True)
def charge_asked(work: Any, accounts: Any, publication: Any, askers: Any, steps: Any) -> None:
    for k in range(len(steps)):
        work[publication[k]] += PAIR_STEPS + steps[k]
        accounts[askers[k]].as_subscriber += PAIR_STEPS + steps[k]


@njit(cache=True)
def charge(
    table: Any, entities: Any, publication: Any, listener: Any, work: Any, accounts: Any
) -> int:
    for k in range(len(publication)):
        work[publication[k]] += DELIVERY_STEPS
        accounts[listener[k]].as_subscriber += DELIVERY_STEPS
    total = 0
    for i in range(len(table)):
        work[i] += PUBLICATION_STEPS + table[i].size // BYTES_PER_STEP
        total += work[i]
        slot = table[i].client_slot
        # The publisher may have left since, and those of other nodes have no account here.
        if slot >= 0 and entities[slot] == table[i].client:
            account = accounts[slot]
            account.published += 1
            account.as_publisher += work[i]
            if not account.here:
                account.here = 1
                account.price *= FALL
            account.price = max(account.price, float(work[i]))
    for one in table:
        if one.client_slot >= 0:
            accounts[one.client_slot].here = 0
    return total


class FairQueue(Struct, eq=False):
    """One client's publications that wait beyond a flush, each with its row of SAID."""

    client: ClientState
    waiting: deque[tuple[AcceptedPublication, bytes]]
    price: float = 0.0
    tag: float = 0.0  # of the first that waits; of the last that was taken, if none does
    taken: int = 0  # in the flush under way


class Backlog:
    """What waits beyond a flush, by client."""

    def __init__(self) -> None:
        self._queues: dict[int, FairQueue] = {}  # by entity
        self._count = 0
        self._virtual = 0.0  # the tag of what was taken last

    def __len__(self) -> int:
        return self._count

    def waits(self, client: ClientState) -> int:
        """How many of this client's publications."""
        queue = self._queues.get(client.entity)
        return len(queue.waiting) if queue is not None else 0

    def oldest(self, otherwise: int) -> int:
        """The lowest number of a publication that waits; `otherwise`, if none does."""
        firsts = (queue.waiting[0][0].id for queue in self._queues.values() if queue.waiting)
        return min(firsts, default=otherwise)

    def publications(self, client: ClientState | None = None) -> list[AcceptedPublication]:
        """Those that wait, of this client or of all."""
        whose = None if client is None else (client.owner or client).entity
        return [
            one
            for entity, queue in self._queues.items()
            if whose is None or whose == entity
            for one, _ in queue.waiting
        ]

    def unretain(self, client: ClientState, channel: str) -> None:
        """Nothing that waits becomes this entity's state on this channel."""
        queue = self._queues.get((client.owner or client).entity)
        for slot, (one, row) in enumerate(queue.waiting if queue is not None else ()):
            if queue is not None and one.unretain(client, channel):
                rows = bytearray(row)
                clear_retain(rows, 0)
                queue.waiting[slot] = one, bytes(rows)

    def add(self, accepted: AcceptedPublication, row: bytes, accounts: Accounts) -> None:
        client = accepted.client.owner or accepted.client
        queue = self._queues.get(client.entity)
        if queue is None:
            queue = self._queues[client.entity] = FairQueue(client, deque(), accounts.price(client))
        if not queue.waiting:
            queue.tag = max(queue.tag, self._virtual) + queue.price
        queue.waiting.append((accepted, row))
        self._count += 1

    def exchange(
        self, accepted: AcceptedPublications, table: PublicationTable, accounts: Accounts
    ) -> tuple[AcceptedPublications, PublicationTable]:
        """Adds these, and takes what is published in this flush, with its rows."""
        table["payload"] = NOT_PLAIN  # what waits longer outlives the frames
        rows, size = table.tobytes(), PUBLICATION_DTYPE.itemsize
        for i, one in enumerate(accepted):
            self.add(one, rows[i * size : (i + 1) * size], accounts)
        taken = self.take(accounts)
        table = np.frombuffer(bytearray().join([row for _, row in taken]), PUBLICATION_DTYPE)
        return AcceptedPublications(one for one, _ in taken), table

    def take(self, accounts: Accounts) -> list[tuple[AcceptedPublication, bytes]]:
        """What is published in this flush, in the order in which it was accepted."""
        for queue in self._queues.values():
            queue.taken = 0
            if not queue.client.left:
                queue.price = accounts.price(queue.client)
        heap = [(queue.tag, entity) for entity, queue in self._queues.items() if queue.waiting]
        heapify(heap)
        taken: list[tuple[AcceptedPublication, bytes]] = []
        left = float(accounts.bound)
        while heap and left > 0:
            self._virtual, entity = heappop(heap)
            queue = self._queues[entity]
            taken.append(queue.waiting.popleft())
            queue.taken += 1
            left -= queue.price
            if queue.waiting:
                queue.tag += queue.price
                if queue.taken < AT_ONCE:
                    heappush(heap, (queue.tag, entity))
        self._count -= len(taken)
        accounts.cut_short += self._count > 0
        self._tidy(accounts.bound)
        taken.sort(key=lambda one: one[0].id)
        return taken

    def _tidy(self, bound: int) -> None:
        """Hold back clients with more than their share of the backlog; forget who is served.

        A client that was served ahead of others is remembered until they have caught up.
        """
        if not self._count:
            for queue in self._queues.values():
                queue.client.backlog = 0
            self._queues, self._virtual = {}, 0.0
            return
        share = (
            BACKLOG_FLUSHES * bound / sum(bool(queue.waiting) for queue in self._queues.values())
        )
        for entity, queue in list(self._queues.items()):
            waiting = len(queue.waiting)
            too_much = waiting * queue.price > max(share, queue.price)
            queue.client.backlog = waiting if too_much else 0
            if not waiting and queue.tag <= self._virtual:
                del self._queues[entity]
