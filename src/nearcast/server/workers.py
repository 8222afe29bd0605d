"""Threads that share the loops over many sockets: the kernel's part of a node, on several cores.

These loops are compiled and hold no interpreter lock. Everything else stays on the thread of the
event loop, which takes its own share and waits for the others: nothing else happens meanwhile, so
nothing is ever shared but the loop's own columns.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from time import thread_time

PART = 32  # sockets at a time, so that nobody waits for whoever has the larger ones


class Workers:
    """The thread of the event loop, and `count - 1` others."""

    def __init__(self, count: int = 1) -> None:
        self.count = count
        self.others_s = 0.0  # CPU that the other threads have used, in seconds
        self._pool = ThreadPoolExecutor(count - 1, "nearcast-worker") if count > 1 else None

    def share(self, size: int, act: Callable[[int, int], None]) -> None:
        """Call `act(first, last)` for parts of range(size), until all are done."""
        if self._pool is None or size <= PART:
            act(0, size)
            return
        starts = iter(list(range(0, size, PART)))  # of a list: several threads may take from it

        def work() -> float:
            began = thread_time()
            for first in starts:
                act(first, min(first + PART, size))
            return thread_time() - began

        others = [self._pool.submit(work) for _ in range(min(self.count - 1, size // PART))]
        try:
            work()
        finally:
            others = [other for other in others if not other.cancel()]
            for other in others:
                other.exception()  # wait for all of them, whatever happened to one
        self.others_s += sum(other.result() for other in others)

    def close(self) -> None:
        """From now on the thread of the event loop does everything by itself."""
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None
