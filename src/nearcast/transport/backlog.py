"""What waits for one connection: the most urgent first, and of equals the oldest."""

from collections import deque
from typing import NamedTuple

from nearcast.node import Priority


class WaitingPart(NamedTuple):
    """Bytes that wait. `alone`: one frame, on a stream of its own; `lossy`: in a datagram."""

    part: bytes | memoryview
    priority: Priority
    alone: bool = False
    lossy: bool = False


class LinkBacklog:
    """Parts by priority, for a connection that takes no more for now.

    A priority that always has something waiting leaves nothing to those below it, as in CUSP
    ([Lucas2011] 2.3).
    """

    def __init__(self) -> None:
        self._waiting: tuple[deque[WaitingPart], ...] = tuple(deque() for _ in Priority)
        self._lossy: tuple[deque[WaitingPart], ...] = tuple(deque() for _ in Priority)
        self.parts = 0
        self.bytes = 0
        self.lossy_bytes = 0

    def put(self, one: WaitingPart) -> None:
        self._waiting[one.priority].append(one)
        self.parts += 1
        self.bytes += len(one.part)

    def put_back(self, rest: WaitingPart) -> None:
        """What is left of a part that was taken: it is the next one of its priority."""
        self._waiting[rest.priority].appendleft(rest)
        self.parts += 1
        self.bytes += len(rest.part)

    def put_lossy(self, one: WaitingPart, most: int) -> None:
        """Of lossy frames `most` bytes may wait; the oldest of the least urgent are dropped."""
        self._lossy[one.priority].append(one)
        self.parts += 1
        self.lossy_bytes += len(one.part)
        while self.lossy_bytes > most:
            self._take_lossy(next(queue for queue in reversed(self._lossy) if queue))

    def take(self) -> WaitingPart:
        for waiting, lossy in zip(self._waiting, self._lossy, strict=True):
            if waiting:
                one = waiting.popleft()
                self.parts -= 1
                self.bytes -= len(one.part)
                return one
            if lossy:
                return self._take_lossy(lossy)
        raise IndexError("nothing waits")

    def _take_lossy(self, queue: deque[WaitingPart]) -> WaitingPart:
        one = queue.popleft()
        self.parts -= 1
        self.lossy_bytes -= len(one.part)
        return one
