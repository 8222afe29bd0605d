"""Compiled kernels in a suite of several processes: each is compiled by one, the others wait.

numba keeps what it has compiled on disk. On a machine that has nothing there yet, every process
would compile the same kernels at the same time.
"""

import fcntl
import subprocess
import sys
import tempfile
from hashlib import sha256
from os import getuid
from pathlib import Path
from typing import Any

from numba.core.compiler_lock import global_compiler_lock
from numba.core.dispatcher import Dispatcher

_compile = Dispatcher.compile
_held: set[Path] = set()


def compile_or_wait(self: Any, signature: Any) -> Any:
    """As numba does, which looks on disk first, but after all who compile the same function."""
    function = self.py_func
    name = sha256(f"{function.__code__.co_filename}:{function.__qualname__}".encode()).hexdigest()
    file = Path(tempfile.gettempdir()) / f"nearcast-compile-{getuid()}-{name[:16]}"
    with global_compiler_lock:
        if file in _held:  # it calls itself
            return _compile(self, signature)
        _held.add(file)
        try:
            with file.open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                return _compile(self, signature)
        finally:
            _held.discard(file)


def compile_once() -> None:
    Dispatcher.compile = compile_or_wait


class FirstNode:
    """A node that is started and stopped before all tests, and compiles what every node needs.

    Otherwise the first nodes of several tests would do so at the same time, and be late.
    """

    def __init__(self) -> None:
        command = [sys.executable, "-m", "nearcast.cli", "node", "--json", "--port", "0"]
        self._process = subprocess.Popen(
            [*command, "--no-record"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def wait(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("}"):  # it has said where it listens
                break
        self._process.terminate()
        self._process.communicate()
