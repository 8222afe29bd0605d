"""Protocols by the names that a scenario uses."""

from nearcast.protocols import brokers, client_server, drtree
from nearcast.protocols.overlay import Kind
from nearcast.protocols.voronoi import von, vso

PROTOCOLS: dict[str, Kind] = {
    "client-server": client_server.KIND,
    "drtree": drtree.KIND,
    "brokers": brokers.KIND,
    "von": von.KIND,
    "vso": vso.KIND,
}
