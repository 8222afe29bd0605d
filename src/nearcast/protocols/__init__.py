"""Protocols by the names that a scenario uses."""

from nearcast.protocols import brokers, bubblestorm, client_server, drtree, psense, relays
from nearcast.protocols.overlay import ProtocolKind
from nearcast.protocols.voronoi import von, vso

PROTOCOLS: dict[str, ProtocolKind] = {
    "client-server": client_server.KIND,
    "drtree": drtree.KIND,
    "brokers": brokers.KIND,
    "bubblestorm": bubblestorm.KIND,
    "psense": psense.KIND,
    "von": von.KIND,
    "vso": vso.KIND,
    "relays": relays.KIND,
}
