"""Returns freed memory to the system after a peak: the C library keeps it otherwise."""

import ctypes
from collections.abc import Callable
from contextlib import suppress

CONNECTION_BYTES = 8_192  # bytes that a connection takes, about
TRIM_ABOVE = 16 * 1_048_576  # bytes that make it worth the while


def _malloc_trim() -> Callable[[], object]:
    """Of glibc; other C libraries have none, and give memory back by themselves."""
    with suppress(OSError, AttributeError):
        trim = ctypes.CDLL(None).malloc_trim
        return lambda: trim(0)
    return lambda: None


class MemoryTrimmer:
    """Decides when to return memory: once a peak of traffic is over."""

    def __init__(self, trim: Callable[[], object] | None = None) -> None:
        self._trim = trim or _malloc_trim()
        self._highest = 0

    def update(self, held: int) -> None:
        """Called once a second: bytes in queues, and read and written since the last call."""
        self._highest = max(self._highest, held)
        if self._highest >= TRIM_ABOVE and held < self._highest // 4:
            self._highest = held
            self._trim()
