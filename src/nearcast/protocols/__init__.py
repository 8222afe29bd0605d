"""Protocols by the names that a scenario uses."""

from nearcast.protocols import client_server
from nearcast.protocols.overlay import Kind

PROTOCOLS: dict[str, Kind] = {"client-server": client_server.KIND}
