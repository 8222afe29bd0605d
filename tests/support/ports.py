"""Ports for servers that are stopped and started again at the same address."""

from contextlib import suppress
from pathlib import Path
from random import SystemRandom
from socket import SO_REUSEADDR, SOCK_DGRAM, SOCK_STREAM, SOL_SOCKET, socket

# Where nobody listens: no test may take it, and the system gives it to nobody.
CLOSED = 1
RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
LOWEST = 10_000


def free_port() -> int:
    """A port at which nobody listens, now or later, but for whoever asked for it here.

    A port that was found with `bind` to port 0, and closed, may become the own end of any other
    connection of this machine until it is bound again. This one is below all of those.
    """
    end = int(RANGE.read_text().split()[0]) if RANGE.exists() else 32_768
    while True:
        port = SystemRandom().randrange(LOWEST, end)
        with suppress(OSError):
            for kind in (SOCK_STREAM, SOCK_DGRAM):
                with socket(type=kind) as probe:
                    probe.setsockopt(SOL_SOCKET, SO_REUSEADDR, 1)
                    probe.bind(("127.0.0.1", port))
            return port
