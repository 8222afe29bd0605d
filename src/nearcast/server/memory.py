"""Returns memory to the system that is not needed now: what was freed after a peak, which the C
library keeps otherwise, and after the start the code that only a start runs."""

import ctypes
import gc
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

CONNECTION_BYTES = 8_192  # bytes that a connection takes, about
TRIM_ABOVE = 16 * 1_048_576  # bytes that make it worth the while
LEAST_KB = 256  # that are resident of a mapping of a file; less is not worth a system call
# A line that begins a mapping in /proc/self/smaps: its addresses, rights and file, if it has one.
MAPPING = re.compile(r"([0-9a-f]+)-([0-9a-f]+) (\S{4}) \S+ \S+ \d+ +(/.*)")


def _malloc_trim() -> Callable[[], object]:
    """Of glibc; other C libraries have none, and give memory back by themselves."""
    with suppress(OSError, AttributeError):
        trim = ctypes.CDLL(None).malloc_trim
        return lambda: trim(0)
    return lambda: None


def release_start() -> None:
    """Called once after a start: return what only the start needed.

    Half of a node's memory would be code of shared libraries, most of it LLVM's, which loads
    kernels. The system reads such a page again if it is needed after all, from its cache of files.
    """
    gc.freeze()  # what a start leaves in memory stays: no need to look at it ever again
    _malloc_trim()()
    smaps = Path("/proc/self/smaps")
    if sys.platform != "linux" or not smaps.exists():
        return
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    for begin, size in unchanged_code(smaps.read_text(errors="replace")):
        madvise(begin, size, 4)  # MADV_DONTNEED; a refusal changes nothing


def unchanged_code(smaps: str) -> Iterator[tuple[int, int]]:
    """Where code and constants of files are mapped, and in how many bytes: only mappings of which
    this process has changed no page. The linker writes to others before it protects them."""
    place: tuple[int, int] | None = None
    resident = 0
    for line in smaps.splitlines():
        name, _, value = line.partition(":")
        if name == "Rss":
            resident = int(value.split()[0])
        elif name == "Anonymous" and place and resident >= LEAST_KB and value.split()[0] == "0":
            yield place
        elif "-" in name:
            found = MAPPING.fullmatch(line)
            place = None
            if found and found[3] in ("r-xp", "r--p"):
                begin, end = int(found[1], 16), int(found[2], 16)
                place = begin, end - begin


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
