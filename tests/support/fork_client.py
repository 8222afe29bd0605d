"""Starts `nearcast` commands by the fork server; as a program, it is such a command.

It imports nothing but what Python has, because starting quickly is all that it is for.
"""

import json
import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence

VARIABLE = "FORK_SERVER"  # the path of its socket


def request(
    arguments: Sequence[str], folder: str, environment: Mapping[str, str], files: Sequence[int]
) -> tuple[socket.socket, int]:
    """A command has been started with these as its standard files: its process, and a connection
    on which its exit code will come. If that is closed before, the process is killed."""
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(os.environ[VARIABLE])
    asked = json.dumps([list(arguments), folder, dict(environment)]).encode()
    socket.send_fds(connection, [len(asked).to_bytes(4, "big")], files)
    connection.sendall(asked)
    return connection, int.from_bytes(connection.recv(4), "big")


def exit_code(connection: socket.socket) -> int:
    """Wait for the end of the process; as subprocess has it, negative if a signal ended it."""
    code = connection.recv(4)
    return int.from_bytes(code, "big", signed=True) if code else -signal.SIGKILL


def main() -> None:
    connection, process = request(sys.argv[1:], os.getcwd(), os.environ, (0, 1, 2))
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda got, _: os.kill(process, got))
    code = exit_code(connection)
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    sys.exit(code)


if __name__ == "__main__":
    main()
