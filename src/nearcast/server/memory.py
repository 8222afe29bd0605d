"""Gives memory back to the system after a wave of it: the C library keeps what was freed."""

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
    """Decides when to give memory back: once a wave of traffic has gone."""

    def __init__(self, trim: Callable[[], object] | None = None) -> None:
        self._trim = trim or _malloc_trim()
        self._highest = 0

    def update(self, held: int) -> None:
        """Once a second: so many bytes wait in queues or were read and written meanwhile."""
        self._highest = max(self._highest, held)
        if self._highest >= TRIM_ABOVE and held < self._highest // 4:
            self._highest = held
            self._trim()
