"""Real `nearcast` processes that start at once: forks of one that has imported everything.

A test that starts nodes and commands spends most of its time on their imports. The fork server has
done them; each command is a process of its own, as if it had been started by a shell. Where the
start itself is the subject, tests start Python.
"""

import atexit
import gc
import io
import json
import os
import random
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, TextIO

from support import fork_client

PIPE = subprocess.PIPE


class ForkedProcess:
    """A `nearcast` command, with what tests use of `subprocess.Popen`."""

    def __init__(
        self,
        arguments: Sequence[object],
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        stdout: int | TextIO = 1,
        stderr: int | TextIO = 2,
    ) -> None:
        fork_server()
        self.stdout: TextIO | None = None
        self.returncode: int | None = None
        write_end = None
        if stdout == PIPE:
            read_end, write_end = os.pipe()
            self.stdout = os.fdopen(read_end)
        files = [
            file if isinstance(file, int) else file.fileno()
            for file in (0, write_end or stdout, stderr)
        ]
        self._connection, self.pid = fork_client.request(
            [*map(str, arguments)], str(cwd or Path.cwd()), env or os.environ, files
        )
        if write_end is not None:
            os.close(write_end)

    def poll(self) -> int | None:
        try:
            return self.wait(0.0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            self._connection.settimeout(timeout)
            try:
                self.returncode = fork_client.exit_code(self._connection)
            except (BlockingIOError, TimeoutError):
                raise subprocess.TimeoutExpired("nearcast", timeout or 0.0) from None
            self._connection.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it has ended, and its exit code is on the way
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


@cache
def fork_server() -> Path:
    """Started once in each process of the suite. Returns a program that does what `nearcast`
    does."""
    folder = Path(tempfile.mkdtemp(prefix="nearcast-fork-"))
    os.environ[fork_client.VARIABLE] = str(folder / "socket")
    read_end, write_end = os.pipe()
    # Its first standard file tells it when this process has ended, however it has.
    process = subprocess.Popen(
        [sys.executable, "-m", "support.fork_server", folder / "socket"],
        stdin=subprocess.PIPE, stdout=write_end, env=os.environ | {"PYTHONPATH": python_path()},
    )  # fmt: skip
    os.close(write_end)
    with os.fdopen(read_end, "rb") as ready:
        assert ready.read(1), "the fork server has not started"

    def stop() -> None:
        process.kill()
        process.wait()
        shutil.rmtree(folder)

    atexit.register(stop)
    program = folder / "nearcast"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -IS {fork_client.__file__} "$@"\n')
    program.chmod(0o755)
    return program


def python_path() -> str:
    return os.pathsep.join(path for path in sys.path if path)


# The server itself.


class Child:
    """A process that was asked for, and who waits for its end."""

    def __init__(self, connection: socket.socket, process: int) -> None:
        self.connection, self.process = connection, process
        self.ended = os.pidfd_open(process)


def serve(path: str) -> None:
    """Fork for whoever connects, until the process that has started this one ends."""
    from nearcast.cli import main, node, peer
    from nearcast.peer import peer as overlay_peer
    from nearcast.server import server

    assert main and node and peer and overlay_peer
    server.warm_up()
    gc.freeze()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    chosen = selectors.DefaultSelector()
    chosen.register(listener, selectors.EVENT_READ)
    chosen.register(0, selectors.EVENT_READ)
    os.write(1, b".")
    os.close(1)
    while True:
        for key, _ in chosen.select():
            if key.fd == 0:
                return
            if key.fileobj is listener:
                child = accept(listener)
                chosen.register(child.ended, selectors.EVENT_READ, child)
                chosen.register(child.connection, selectors.EVENT_READ, child)
            elif key.fileobj == key.data.ended:
                finish(key.data, chosen)
            else:  # nobody waits for it any more
                chosen.unregister(key.fileobj)
                os.kill(key.data.process, signal.SIGKILL)


def accept(listener: socket.socket) -> Child:
    connection, _ = listener.accept()
    head, files, _, _ = socket.recv_fds(connection, 4, 3)
    asked = read_whole(connection, int.from_bytes(head, "big"))
    process = os.fork()
    if process == 0:
        run(*json.loads(asked), files)
    for file in files:
        os.close(file)
    connection.sendall(process.to_bytes(4, "big"))
    return Child(connection, process)


def read_whole(connection: socket.socket, size: int) -> bytes:
    whole = b""
    while len(whole) < size:
        whole += connection.recv(size - len(whole))
    return whole


def finish(child: Child, chosen: selectors.BaseSelector) -> None:
    _, status = os.waitpid(child.process, 0)
    chosen.unregister(child.ended)
    os.close(child.ended)
    if child.connection in chosen.get_map():
        chosen.unregister(child.connection)
        child.connection.sendall(os.waitstatus_to_exitcode(status).to_bytes(4, "big", signed=True))
    child.connection.close()


def run(arguments: list[str], folder: str, environment: dict[str, str], files: list[int]) -> None:
    """What a shell and Python do before `main`, and after it."""
    from nearcast.cli.main import main

    code = 1
    try:
        for number, file in enumerate(files):
            os.dup2(file, number)
        os.closerange(3, 1024)
        os.environ.clear()
        os.environ.update(environment)
        os.chdir(folder)
        random.seed()
        sys.argv = ["nearcast", *arguments]
        sys.stdin = open_text(0, "rb")
        sys.stdout, sys.stderr = open_text(1, "wb"), open_text(2, "wb")
        code = main(arguments)
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        for file in (sys.stdout, sys.stderr):
            try:
                file.flush()
            except OSError:
                code = 120  # as Python has it
        os._exit(code)


def open_text(file: int, mode: str) -> Any:
    binary: BinaryIO = open(file, mode, closefd=False)  # noqa: SIM115
    unbuffered = bool(os.environ.get("PYTHONUNBUFFERED"))
    return io.TextIOWrapper(binary, line_buffering=file == 2, write_through=unbuffered)


if __name__ == "__main__":
    serve(sys.argv[1])
