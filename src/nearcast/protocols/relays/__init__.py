"""Relays: subscribers forward publications to each other where an uplink is too slow ([Lehn]).

`relays.Relays` is a part that other overlays may use; `KIND` is a protocol of its own.
"""

from nearcast.protocols.relays.deployment import KIND

__all__ = ["KIND"]
