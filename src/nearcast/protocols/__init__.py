"""Protocols by the names that a scenario uses."""

from typing import TYPE_CHECKING

from nearcast.registry import LazyRegistry

if TYPE_CHECKING:
    from nearcast.protocols.overlay import ProtocolKind

PROTOCOLS: "LazyRegistry[ProtocolKind]" = LazyRegistry(
    {
        "client-server": "nearcast.protocols.client_server",
        "drtree": "nearcast.protocols.drtree",
        "brokers": "nearcast.protocols.brokers",
        "bubblestorm": "nearcast.protocols.bubblestorm",
        "psense": "nearcast.protocols.psense",
        "von": "nearcast.protocols.voronoi.von",
        "vso": "nearcast.protocols.voronoi.vso.overlay",
        "relays": "nearcast.protocols.relays.deployment",
    },
    lambda module: module.KIND,
)
