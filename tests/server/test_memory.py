"""After a start a node gives back pages of files, and nothing that it has written."""

import ctypes
import gc
import mmap
from collections.abc import Iterator
from pathlib import Path

import pytest

from nearcast.server import memory
from nearcast.server.server import warm_up

SIZE = 4 * 1_048_576
SMAPS = """\
7f0000000000-7f0000100000 r-xp 00001000 fe:01 123                        /lib/lib-a.so
Size:               1024 kB
Rss:                 900 kB
Shared_Clean:        900 kB
Anonymous:             0 kB
VmFlags: rd ex mr mw me
7f0000100000-7f0000200000 r--p 00101000 fe:01 123                        /lib/lib-a.so
Rss:                 900 kB
Anonymous:             4 kB
7f0000200000-7f0000300000 r--p 00201000 fe:01 123                        /lib/lib a.so (deleted)
Rss:                 900 kB
Anonymous:             0 kB
7f0000300000-7f0000400000 rw-p 00301000 fe:01 123                        /lib/lib-a.so
Rss:                 900 kB
Anonymous:             0 kB
7f0000400000-7f0000500000 r-xp 00000000 00:00 0 \n\
Rss:                 900 kB
Anonymous:             0 kB
7f0000500000-7f0000600000 r-xp 00000000 fe:01 124                        /lib/small.so
Rss:                 100 kB
Anonymous:             0 kB
7fff00000000-7fff00001000 r-xp 00000000 00:00 0                          [vdso]
Rss:                 900 kB
Anonymous:             0 kB
"""


def test_only_unchanged_pages_of_files_are_returned() -> None:
    found = list(memory.unchanged_code(SMAPS))
    assert found == [(0x7F0000000000, 0x100000), (0x7F0000200000, 0x100000)]
    assert list(memory.unchanged_code("")) == []


@pytest.fixture
def _unfrozen() -> Iterator[None]:
    """Other tests collect garbage."""
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("_unfrozen")
def test_what_a_process_has_read_written_and_compiled_is_as_before(tmp_path: Path) -> None:
    file = tmp_path / "library"
    file.write_bytes(bytes(range(256)) * (SIZE // 256))
    warm_up()
    with file.open("rb") as opened:
        read, written = (mmap.mmap(opened.fileno(), SIZE, flags=mmap.MAP_PRIVATE) for _ in range(2))
    written[7] = 1  # as the linker does, before it protects its pages
    whole = read[:], written[:]
    addresses = [ctypes.addressof(ctypes.c_char.from_buffer(one)) for one in (read, written)]
    for address in addresses:
        ctypes.CDLL(None).mprotect(ctypes.c_void_p(address), SIZE, mmap.PROT_READ)
    assert given_back(addresses) == [True, False]
    memory.release_start()
    assert given_back(addresses) == [False, False], "nothing of the first is resident"
    assert (read[:], written[:]) == whole
    warm_up()


def given_back(addresses: list[int]) -> list[bool]:
    """Which of these would be returned now?"""
    places = dict(memory.unchanged_code(Path("/proc/self/smaps").read_text()))
    return [address in places for address in addresses]
