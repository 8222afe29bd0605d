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
from nearcast.live.voices import Said
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


# Of a client, by its seat's place: its price, and since it joined how often it has published, what
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
        self.work = 0  # steps, of all flushes
        self.cut_short = 0  # flushes that left something waiting
        self.refused = 0  # publications refused because too many of their publisher's wait
        self.clients: NDArray[np.void] = np.zeros(64, ACCOUNT)

    def open(self, place: int) -> None:
        """A new client takes this place."""
        while place >= len(self.clients):
            self.clients = np.concatenate((self.clients, np.zeros_like(self.clients)))
        self.clients[place] = (FIRST, 0, 0, 0, 0)

    def fits(self, said: Said) -> bool:
        """Can these publications all go into one flush?"""
        return bool(fits(said, self.clients))

    def charge(
        self, said: Said, entities: Integers, publication: Integers, listener: Integers,
        effort: Effort | None, askers: Integers | None,
    ) -> None:  # fmt: skip
        """A flush is done: `publication` and `listener` are the pairs that were heard.

        `askers` are the clients whose subscriptions `effort` speaks of, and `entities` says who is
        at each place now.
        """
        work = np.full(len(said), PUBLICATION)
        if effort is not None:
            charge_asked(work, self.clients, effort.publication, askers, effort.steps)
        self.work += charge(said, entities, publication, listener, work, self.clients)


@njit(cache=True)
def fits(said: Any, clients: Any) -> Any:
    total, most = 0.0, 0
    for one in said:
        client = clients[one.seat]
        client.here += 1
        most = max(most, client.here)
        total += client.price
    for one in said:
        clients[one.seat].here = 0
    return total <= FLUSH and most <= AT_ONCE


@njit(cache=True)
def charge_asked(work: Any, clients: Any, publication: Any, askers: Any, steps: Any) -> None:
    for k in range(len(steps)):
        work[publication[k]] += PAIR + steps[k]
        clients[askers[k]].as_subscriber += PAIR + steps[k]


@njit(cache=True)
def charge(
    said: Any, entities: Any, publication: Any, listener: Any, work: Any, clients: Any
) -> int:
    for k in range(len(publication)):
        work[publication[k]] += DELIVERY
        clients[listener[k]].as_subscriber += DELIVERY
    total = 0
    for i in range(len(said)):
        total += work[i]
        seat = said[i].seat
        # Whoever said it may have left since, and what other nodes tell is nobody's here.
        if seat >= 0 and entities[seat] == said[i].entity:
            client = clients[seat]
            client.published += 1
            client.as_publisher += work[i]
            if not client.here:
                client.here = 1
                client.price = 0.0 if client.price == FIRST else FALL * client.price
            client.price = max(client.price, float(work[i]))
    for one in said:
        if one.seat >= 0:
            clients[one.seat].here = 0
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
            queue.taken, queue.price = (
                0,
                FIRST if seat.left else float(accounts.clients[seat.place]["price"]),
            )
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
