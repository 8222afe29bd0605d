"""What clients cost, and who comes first when more waits than one flush can do.

Work is counted in steps of about ten nanoseconds, not measured: what a publication costs is a sum
over its deliveries and over the formulas and filters that were asked about it. It is charged to its
publisher, and what was done for a subscription to its subscriber as well. Counting needs no clock,
so the same history is always shared in the same way.

A client's price is what its publications are expected to cost: it rises at once with what they
cost, and falls slowly. While all that waits fits into one flush by these prices, nothing is shared.
Otherwise clients take turns (deficit round robin, Shreedhar and Varghese, 1995): who waits with
little is served at once, whoever else has much waiting. Each client's publications keep their
order.
"""

from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np
from msgspec import Struct
from numba import njit
from numpy.typing import NDArray

from nearcast.live.seats import Accepted, Seat
from nearcast.matching.matcher import Effort, Integers

FLUSH = 2_000_000  # steps of one flush: about 20 ms
PUBLICATION = 500  # steps for each
DELIVERY = 40  # and for each subscription that hears it
PAIR = 4  # for each subscription whose formula or filter is asked, beside its own steps
FIRST = FLUSH / 64  # the price of a client of whom nothing is known yet
FALL = 0.98  # of a price from flush to flush, unless it is confirmed
AT_ONCE = 32  # publications of one client in a flush, when it is shared: the price may be wrong
TURN = 20_000  # steps that a turn allows at least
BACKLOG = 50 * FLUSH  # steps that may wait, of all clients together
MOST_WAITING = 1_000  # publications of one client
NO_EFFORT = Effort(*np.empty((3, 0), np.int64))


class Accounts:
    """What each client costs, in columns by its seat's place, and sums over all of them."""

    def __init__(self) -> None:
        self.work = 0  # steps, of all flushes
        self.cut_short = 0  # flushes that left something waiting
        self.refused = 0  # publications refused because too many of their publisher's wait
        self.price: NDArray[np.float64] = np.zeros(0)
        # Since the client joined: publications, steps as publisher, steps as subscriber.
        self.published: Integers = np.zeros(0, np.int64)
        self.as_publisher: Integers = np.zeros(0, np.int64)
        self.as_subscriber: Integers = np.zeros(0, np.int64)
        self._counts: Integers = np.zeros(0, np.int64)

    def open(self, place: int) -> None:
        """A new client takes this place."""
        if place >= len(self.price):
            more = place + 64
            self.price = np.concatenate((self.price, np.zeros(more)))
            for name in ("published", "as_publisher", "as_subscriber", "_counts"):
                column = np.concatenate((getattr(self, name), np.zeros(more, np.int64)))
                setattr(self, name, column)
        self.price[place] = FIRST
        self.published[place] = self.as_publisher[place] = self.as_subscriber[place] = 0

    def fits(self, seats: Integers) -> bool:
        """Can publications of clients at these places all go into one flush?"""
        return bool(fits(seats, self.price, self._counts))

    def charge(
        self, seats: Integers, entities: Integers, by_place: Integers,
        publication: Integers, listener: Integers, effort: Effort | None, asker: Integers,
    ) -> None:  # fmt: skip
        """A flush is done. Pairs are those that were heard, `effort` those that were asked.

        `seats` and `entities` are the publishers', `by_place` says who is at each place now.
        """
        asked = effort or NO_EFFORT
        self.work += charge(
            seats, entities, by_place, publication, listener,
            asked.publication, asker, asked.steps,
            self.price, self.published, self.as_publisher, self.as_subscriber,
        )  # fmt: skip


@njit(cache=True)
def fits(seats: Any, price: Any, counts: Any) -> Any:
    total, most = 0.0, 0
    for seat in seats:
        counts[seat] += 1
        most = max(most, counts[seat])
        total += price[seat]
    for seat in seats:
        counts[seat] = 0
    return total <= FLUSH and most <= AT_ONCE


@njit(cache=True)
def charge(
    seats: Any, entities: Any, by_place: Any, publication: Any, listener: Any,
    asked_publication: Any, asker: Any, steps: Any,
    price: Any, published: Any, as_publisher: Any, as_subscriber: Any,
) -> int:  # fmt: skip
    work = np.full(len(seats), PUBLICATION)
    for k in range(len(publication)):
        work[publication[k]] += DELIVERY
        as_subscriber[listener[k]] += DELIVERY
    for k in range(len(steps)):
        work[asked_publication[k]] += PAIR + steps[k]
        as_subscriber[asker[k]] += PAIR + steps[k]
    total = 0
    for i in range(len(seats)):
        total += work[i]
        seat = seats[i]
        # Whoever said it may have left since, and what other nodes tell is nobody's here.
        if seat >= 0 and by_place[seat] == entities[i]:
            published[seat] += 1
            as_publisher[seat] += work[i]
            price[seat] *= FALL
    for i in range(len(seats)):
        seat = seats[i]
        if seat >= 0 and by_place[seat] == entities[i] and price[seat] < work[i]:
            price[seat] = work[i]
    return total


class Queue(Struct, eq=False):
    """One client's publications that wait beyond a flush, as rows of SAID as well."""

    seat: Seat
    waiting: deque[tuple[Accepted, bytes]]
    credit: float = 0.0
    price: float = 0.0
    taken: int = 0  # in the flush under way


class Backlog:
    """What waits beyond a flush, by client, in the order of their turns."""

    def __init__(self) -> None:
        self._queues: dict[int, Queue] = {}  # by entity
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def waits(self, seat: Seat) -> int:
        queue = self._queues.get(seat.entity)
        return len(queue.waiting) if queue is not None else 0

    @property
    def of_the_gone(self) -> bool:
        """Does anything wait of clients who have left?"""
        return any(queue.seat.left for queue in self._queues.values())

    def add(self, accepted: Accepted, row: bytes) -> None:
        queue = self._queues.get(accepted.seat.entity)
        if queue is None:
            queue = self._queues[accepted.seat.entity] = Queue(accepted.seat, deque())
        queue.waiting.append((accepted, row))
        self._count += 1

    def take(self, accounts: Accounts) -> list[tuple[Accepted, bytes]]:
        """What is published in this flush, in the order in which it was accepted."""
        taken: list[tuple[Accepted, bytes]] = []
        for queue in self._queues.values():
            seat = queue.seat
            queue.taken, queue.price = 0, FIRST if seat.left else float(accounts.price[seat.place])
        turns, left = deque(self._queues.values()), float(FLUSH)
        turn = max(TURN, FLUSH / max(1, len(turns)))
        later: list[Queue] = []  # served as much as one client may be
        while turns and left > 0:
            queue = turns.popleft()
            queue.credit += turn
            left -= self._serve(queue, left, taken)
            if queue.waiting:
                (later if queue.taken == AT_ONCE else turns).append(queue)
        # Who comes next is first next time; who has had most is last.
        self._queues = {queue.seat.entity: queue for queue in (*turns, *later)}
        self._count -= len(taken)
        accounts.cut_short += self._count > 0
        self._hold(queue for queue in self._queues.values())
        taken.sort(key=lambda one: one[0].id)
        return taken

    def _serve(self, queue: Queue, left: float, taken: list[tuple[Accepted, bytes]]) -> float:
        """Take what this client's credit allows, and say what that costs."""
        spent, waiting = 0.0, queue.waiting
        while waiting and queue.credit >= queue.price and spent < left and queue.taken < AT_ONCE:
            taken.append(waiting.popleft())
            queue.taken += 1
            queue.credit -= queue.price
            spent += queue.price
        if not waiting:
            queue.seat.held = 0
        return spent

    def _hold(self, queues: Iterator[Queue]) -> None:
        """Clients with more than their share of the backlog publish no more until it shrinks."""
        share = BACKLOG / max(1, len(self._queues))
        for queue in queues:
            waiting = len(queue.waiting)
            over = waiting > MOST_WAITING or waiting * queue.price > max(share, queue.price)
            queue.seat.held = waiting if over else 0
