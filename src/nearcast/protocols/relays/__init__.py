"""Relays: neighbours who want the same messages pass them on, where an uplink cannot (seed 004).

`relays.Relays` is the part that other overlays may use; `KIND` is a protocol of its own.
"""

from nearcast.protocols.relays.deployment import KIND

__all__ = ["KIND"]
