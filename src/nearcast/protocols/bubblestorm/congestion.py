"""Congestion control: bubbles wait for the uplink in a queue for each neighbour.

Bubbles are sent as fast as the uplink allows, in bursts of at most 20 ms. The rest waits in a queue
of at most 128 KiB per neighbour. The priority of a message is the share of the whole bubble that it
still has to make. Messages with large shares are sent first, and on overflow the smallest share is
dropped, so bubbles of all sizes lose equally.
"""

from bisect import insort
from collections.abc import Callable
from typing import NamedTuple

from nearcast.model.subscription import NodeId
from nearcast.node import Message
from nearcast.space.motion import SECOND, Time

BURST: Time = 20_000
MOST_BYTES = 128 * 1024  # waiting for one neighbour


class CongestedMessage(NamedTuple):
    """A message that waits, ordered by priority and then by age."""

    priority: float
    turn: int  # of equals, the older has the larger
    size: int
    message: Message


class NeighbourQueue:
    """Messages for one neighbour, the highest priority last."""

    __slots__ = ("bytes", "waiting")

    def __init__(self) -> None:
        self.waiting: list[CongestedMessage] = []
        self.bytes = 0

    def put(self, one: CongestedMessage) -> None:
        insort(self.waiting, one)
        self.bytes += one.size

    def take(self, place: int) -> CongestedMessage:
        one = self.waiting.pop(place)
        self.bytes -= one.size
        return one


class CongestedUplink:
    """One peer's uplink of limited rate, with a queue for each neighbour."""

    def __init__(self, bytes_per_s: float, send: Callable[[NodeId, Message], None]) -> None:
        self._rate = bytes_per_s / SECOND
        self._send = send
        self._free: Time = 0  # when the uplink becomes idle
        self._queues: dict[NodeId, NeighbourQueue] = {}
        self._turn = 0
        self.lost = 0  # messages dropped since the last report

    @property
    def waits(self) -> bool:
        return bool(self._queues)

    def offer(self, now: Time, to: NodeId, priority: float, size: int, message: Message) -> None:
        """Send it at once if the uplink is free; else queue it."""
        if not self._queues and self._free <= now + BURST:
            self._carry(now, to, size, message)
            return
        self._turn -= 1
        queue = self._queues.setdefault(to, NeighbourQueue())
        queue.put(CongestedMessage(priority, self._turn, size, message))
        while queue.bytes > MOST_BYTES:
            queue.take(0)
            self.lost += 1
        if not queue.waiting:
            del self._queues[to]

    def flush(self, now: Time) -> Time | None:
        """Send what the uplink can carry now. Returns when to call again; None: nothing waits."""
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
