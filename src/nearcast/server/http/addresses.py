"""Where a connection comes from, and which addresses count as one."""

from ipaddress import IPv6Address, ip_address
from typing import Any, Protocol


class SocketTransport(Protocol):
    """What is asked of a connection; a transport of asyncio, compared by identity."""

    def abort(self) -> None: ...

    def get_extra_info(self, name: str, default: Any = None) -> Any: ...


def remote_address(transport: SocketTransport) -> str:
    """The address at the other end of a connection; empty if it has none."""
    peer = transport.get_extra_info("peername")
    return str(peer[0]) if isinstance(peer, tuple) and peer else ""


def network_of(address: str) -> str:
    """The address, or of IPv6 the network of which one customer has all addresses."""
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, IPv6Address):
        if parsed.ipv4_mapped is not None:
            return str(parsed.ipv4_mapped)
        return str(IPv6Address(int(parsed) >> 64 << 64))
    return str(parsed)
