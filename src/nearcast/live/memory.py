"""Gives memory back to the system after a wave of it: the C library keeps what was freed."""

import ctypes
from collections.abc import Callable
from contextlib import suppress

WAVE = 16 * 1_048_576  # bytes in queues that make it worth the while


def _malloc_trim() -> Callable[[], object]:
    """Of glibc; other C libraries have none, and give memory back by themselves."""
    with suppress(OSError, AttributeError):
        trim = ctypes.CDLL(None).malloc_trim
        return lambda: trim(0)
    return lambda: None


class Trimming:
    """Decides when to give memory back: once what waited in queues has gone."""

    def __init__(self, trim: Callable[[], object] | None = None) -> None:
        self._trim = trim or _malloc_trim()
        self._highest = 0

    def look(self, queued: int) -> None:
        """Once a second: so many bytes wait now."""
        self._highest = max(self._highest, queued)
        if self._highest >= WAVE and queued < self._highest // 4:
            self._highest = queued
            self._trim()
