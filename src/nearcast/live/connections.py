"""Which connections stay open on a node's port, so that a few clients cannot take all the room.

A connection is pending until its client has joined or its first request has been answered. When
there are too many pending ones, the oldest is dropped, and likewise the HTTP connection that has
been idle for longest: so there is always room for one more, and for a health check. Addresses are
counted apart from that.
"""

from collections import Counter
from ipaddress import IPv6Address, ip_address
from typing import Any, Protocol

from nearcast.live.config import Limits
from nearcast.live.metrics import Metrics

HTTP = 256  # connections kept open for further requests, by curl, probes and pages
UNREAD = 64 * 2**20  # bytes of HTTP answers that wait for slow readers, all together
# Reverse proxies on this machine connect from here for everybody.
PROXIES = frozenset({"127.0.0.1", "::1"})


class Transport(Protocol):
    """What is kept of a connection; a transport of asyncio, compared by identity."""

    def abort(self) -> None: ...

    def get_extra_info(self, name: str, default: Any = None) -> Any: ...


class Connections:
    """Every open connection of one port."""

    def __init__(self, limits: Limits, metrics: Metrics) -> None:
        self.limits, self.metrics = limits, metrics
        self.unread = 0  # bytes of HTTP answers that wait for slow readers
        self._addresses: dict[Transport, str] = {}  # of those that are counted
        self._counts: Counter[str] = Counter()
        self._pending: dict[Transport, None] = {}  # the oldest first
        self._http: dict[Transport, None] = {}  # the longest idle first

    def opened(self, transport: Transport) -> bool:
        """May it stay? If not, its address has too many already, and it is not counted."""
        name = address(transport.get_extra_info("peername"))
        if name:
            if self._counts[name] >= self.limits.address:
                self.metrics.refused_address += 1
                return False
            self._counts[name] += 1
            self._addresses[transport] = name
        self._pend(transport)
        return True

    def answered(self, transport: Transport) -> None:
        """It has had an answer to a request."""
        self._pending.pop(transport, None)
        self._http.pop(transport, None)
        self._http[transport] = None
        self._drop_oldest(self._http, HTTP)

    def upgraded(self, transport: Transport) -> None:
        """It is a WebSocket now: pending until its client joins."""
        if transport in self._http:
            del self._http[transport]
            self._pend(transport)

    def joined(self, transport: Transport) -> None:
        self._pending.pop(transport, None)

    def closed(self, transport: Transport) -> None:
        self._pending.pop(transport, None)
        self._http.pop(transport, None)
        name = self._addresses.pop(transport, "")
        if name:
            self._counts[name] -= 1
            if not self._counts[name]:
                del self._counts[name]

    def _pend(self, transport: Transport) -> None:
        self._pending[transport] = None
        self._drop_oldest(self._pending, self.limits.pending)

    def _drop_oldest(self, ordered: dict[Transport, None], most: int) -> None:
        if len(ordered) > most:
            oldest = next(iter(ordered))
            del ordered[oldest]
            self.metrics.displaced += 1
            oldest.abort()


def address(peer: Any) -> str:
    """By which name a remote address is counted; "" if it is not."""
    if not peer or not isinstance(peer, tuple) or peer[0] in PROXIES:
        return ""
    try:
        ip = ip_address(peer[0].partition("%")[0])
    except ValueError:
        return str(peer[0])
    if isinstance(ip, IPv6Address):
        if ip.ipv4_mapped is not None:
            ip = ip.ipv4_mapped
            return "" if str(ip) in PROXIES else str(ip)
        return str(IPv6Address(int(ip) >> 64 << 64))  # whoever has one of these has all 2**64
    return str(ip)
