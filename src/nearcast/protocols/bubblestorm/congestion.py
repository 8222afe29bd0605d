"""What a peer's line cannot carry waits, a little for each neighbour, and the least loss is chosen.

Bubbles go out as fast as the upload allows, in bursts of at most 20 ms. What is over waits in a
queue per neighbour of at most 128 KiB. The rest of a bubble near its root stands for many replicas
and its last steps for one each: priority and reliability are the share of the whole bubble that a
message still has to make. So the large parts are sent first, on overflow the smallest is lost, and
bubbles of all sizes lose equally.
"""

from bisect import insort
from collections.abc import Callable
from typing import NamedTuple

from nearcast.model.subscription import NodeId
from nearcast.node import Message
from nearcast.space.motion import SECOND, Time

BURST: Time = 20_000
MOST_BYTES = 128 * 1024  # waiting for one neighbour


class QueuedMessage(NamedTuple):
    priority: float
    turn: int  # of equals, the older has the larger
    size: int
    message: Message


class NeighbourQueue:
    """What waits for one neighbour, the most important last."""

    __slots__ = ("bytes", "waiting")

    def __init__(self) -> None:
        self.waiting: list[QueuedMessage] = []
        self.bytes = 0

    def put(self, one: QueuedMessage) -> None:
        insort(self.waiting, one)
        self.bytes += one.size

    def take(self, place: int) -> QueuedMessage:
        one = self.waiting.pop(place)
        self.bytes -= one.size
        return one


class CongestedUplink:
    def __init__(self, bytes_per_s: float, send: Callable[[NodeId, Message], None]) -> None:
        self._rate = bytes_per_s / SECOND
        self._send = send
        self._free: Time = 0  # from when on the line has nothing to carry
        self._queues: dict[NodeId, NeighbourQueue] = {}
        self._turn = 0
        self.lost = 0  # messages since the last look

    @property
    def waits(self) -> bool:
        return bool(self._queues)

    def offer(self, now: Time, to: NodeId, priority: float, size: int, message: Message) -> None:
        """Send it at once if the line is free, or let it wait for its turn."""
        if not self._queues and self._free <= now + BURST:
            self._carry(now, to, size, message)
            return
        self._turn -= 1
        queue = self._queues.setdefault(to, NeighbourQueue())
        queue.put(QueuedMessage(priority, self._turn, size, message))
        while queue.bytes > MOST_BYTES:
            queue.take(0)
            self.lost += 1
        if not queue.waiting:
            del self._queues[to]

    def flush(self, now: Time) -> Time | None:
        """Send what the line can carry by now; when to come again, None if nothing waits."""
        while self._queues and self._free <= now + BURST:
            to = max(self._queues, key=lambda node: self._queues[node].waiting[-1][:2])
            best = self._queues[to].take(-1)
            if not self._queues[to].waiting:
                del self._queues[to]
            self._carry(now, to, best.size, best.message)
        return max(1, self._free - now - BURST + 1) if self._queues else None

    def _carry(self, now: Time, to: NodeId, size: int, message: Message) -> None:
        self._free = max(now, self._free) + round(size / self._rate)
        self._send(to, message)
