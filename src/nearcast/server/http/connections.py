"""Which connections stay open on a node's port, so that a few clients cannot take all the room.

A connection is pending until its client has joined or its first request has been answered. When
there are too many pending ones, the oldest is dropped, and likewise the HTTP connection that has
been idle for longest: so there is always room for one more, and for a health check. Both may take
the room that clients have left: HTTP connections until clients join, and pending ones while they
are young, because when thousands of clients come back at once all are pending for a moment.
Addresses are counted apart from that.
"""

import sys
from collections import Counter
from collections.abc import Callable
from time import monotonic

from nearcast.server.config import LimitSettings
from nearcast.server.http.addresses import SocketTransport, network_of, remote_address
from nearcast.server.metrics import Metrics

HTTP = 256  # connections of curl, probes and pages for which there is room beside clients
YOUNG_S = 2.0  # in which a client that is well joins, also when thousands do so at once
UNREAD = 64 * 2**20  # bytes of HTTP answers that wait for slow readers, all together
# Reverse proxies on this machine connect from here for everybody.
PROXIES = frozenset({"127.0.0.1", "::1"})


class OpenConnections:
    """Every open connection of one port."""

    def __init__(
        self, limits: LimitSettings, metrics: Metrics, now: Callable[[], float] = monotonic
    ) -> None:
        self.limits, self.metrics, self._now = limits, metrics, now
        self.room = sys.maxsize  # connections for which the system has files
        self.unread = 0  # bytes of HTTP answers that wait for slow readers
        self._addresses: dict[SocketTransport, str] = {}  # of those that are counted
        self._counts: Counter[str] = Counter()
        self._pending: dict[SocketTransport, float] = {}  # since when, the oldest first
        self._http: dict[SocketTransport, float] = {}  # the same of those that had an answer
        self._joined: set[SocketTransport] = set()

    def __len__(self) -> int:
        return len(self._pending) + len(self._http) + len(self._joined)

    def opened(self, transport: SocketTransport) -> bool:
        """May it stay? If not, its address has too many already, and it is not counted."""
        name = counted_address(transport)
        if name:
            if self._counts[name] >= self.limits.address:
                self.metrics.refused_address += 1
                return False
            self._counts[name] += 1
            self._addresses[transport] = name
        self._pend(transport)
        return True

    def answered(self, transport: SocketTransport) -> None:
        """It has had an answer to a request."""
        self._pending.pop(transport, None)
        self._http.pop(transport, None)
        self._http[transport] = self._now()
        self._trim_http()

    def upgraded(self, transport: SocketTransport) -> None:
        """It is a WebSocket now: pending until its client joins."""
        if transport in self._http:
            del self._http[transport]
            self._pend(transport)

    def joined(self, transport: SocketTransport) -> None:
        self._pending.pop(transport, None)
        self._joined.add(transport)
        self._trim_http()

    def closed(self, transport: SocketTransport) -> None:
        self._pending.pop(transport, None)
        self._http.pop(transport, None)
        self._joined.discard(transport)
        name = self._addresses.pop(transport, "")
        if name:
            self._counts[name] -= 1
            if not self._counts[name]:
                del self._counts[name]

    @property
    def _spare(self) -> int:
        """Room that is kept for clients, and that nobody has joined to take."""
        clients = min(self.limits.clients, self.room - HTTP - self.limits.pending)
        return max(0, clients - len(self._joined))

    def _pend(self, transport: SocketTransport) -> None:
        pending, now = self._pending, self._now()
        pending[transport] = now
        most = min(self.limits.pending, max(8, self.room - HTTP - len(self._joined)))
        room = most + max(0, self._spare - max(0, len(self._http) - HTTP))
        for _ in range(2):  # more leave than come, and nobody waits until thousands are closed
            young = now - next(iter(pending.values())) < YOUNG_S
            if len(pending) > (room if young else most):
                self._drop_oldest(pending)

    def _trim_http(self) -> None:
        taken = max(0, len(self._pending) - self.limits.pending)
        if len(self._http) > HTTP + max(0, self._spare - taken):
            self._drop_oldest(self._http)

    def _drop_oldest(self, ordered: dict[SocketTransport, float]) -> None:
        oldest = next(iter(ordered))
        del ordered[oldest]
        self.metrics.displaced += 1
        oldest.abort()


def counted_address(transport: SocketTransport) -> str:
    """By which name its address is counted; "" if it is not."""
    address = remote_address(transport)
    name = network_of(address)
    return "" if address in PROXIES or name in PROXIES else name
