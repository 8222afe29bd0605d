"""What is compiled in a suite of several processes: each part by one, the others wait.

numba keeps compiled kernels on disk, pytest the tests whose assertions it has rewritten, and
hypothesis what it knows of characters and of the code under test. On a machine that has nothing
there yet, every process would make the same at the same time.
"""

import fcntl
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from os import getuid
from pathlib import Path
from typing import Any

from hypothesis.internal.charmap import intervals_from_codec
from hypothesis.internal.conjecture.providers import _get_local_constants
from numba.core.compiler_lock import global_compiler_lock
from numba.core.dispatcher import Dispatcher

_compile = Dispatcher.compile
_held: set[str] = set()


@contextmanager
def alone(what: str) -> Iterator[None]:
    """No two processes do this at the same time."""
    name = sha256(what.encode()).hexdigest()[:16]
    with (Path(tempfile.gettempdir()) / f"nearcast-compile-{getuid()}-{name}").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def compile_or_wait(self: Any, signature: Any) -> Any:
    """As numba does, which looks on disk first, but after all who compile the same function."""
    function = self.py_func
    name = f"{function.__code__.co_filename}:{function.__qualname__}"
    with global_compiler_lock:
        if name in _held:  # it calls itself
            return _compile(self, signature)
        _held.add(name)
        try:
            with alone(name):
                return _compile(self, signature)
        finally:
            _held.discard(name)


def compile_once() -> None:
    Dispatcher.compile = compile_or_wait


def prepare_hypothesis() -> None:
    """What it keeps on disk: the numbers and texts of all modules, which it tries, and which
    characters a text may have. Later it finds both there."""
    with alone(f"{__file__}: hypothesis"):
        _get_local_constants()
        intervals_from_codec("utf-8")


class Kernels:
    """Compiled before all tests, if they are not yet or have changed: the first nodes of several
    tests would compile them at the same time, and be late."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "nearcast.cli.compile_kernels"]
        self._process = subprocess.Popen(command, stderr=subprocess.DEVNULL)

    def wait(self) -> None:
        assert self._process.wait() == 0
