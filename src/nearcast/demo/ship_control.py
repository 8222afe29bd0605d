"""The line protocol for a page on which a person flies a ship.

The page sends and receives a ship's state as a JSON list of twelve numbers. Between peers it is the
48 bytes that bots publish too.
"""

import struct
from collections.abc import Callable
from contextlib import suppress

import msgspec
from msgspec import Raw

from nearcast.client_protocol import messages
from nearcast.peer.host import unix_time
from nearcast.peer.line_protocol import LineProtocol
from nearcast.space.motion import SECOND, Time
from nearcast.space.shapes import Vector
from nearcast.workloads.planetpi4_reckoning import UPDATE, ShipUpdate, predict, unpack

SILENT: Time = 2 * SECOND  # after which its position counts as unknown


class ShipControl(LineProtocol):
    """Translates between the page's requests and the commands of its peer."""

    def __init__(self, send: Callable[[messages.Notice], None]) -> None:
        super().__init__(send)
        self._update: ShipUpdate | None = None
        self._updated_at: Time = 0

    def packed(self, payload: Raw) -> bytes:
        if not len(payload):
            return b""
        try:
            packed = UPDATE.pack(*msgspec.json.decode(payload, type=list[float]))
        except (msgspec.MsgspecError, OverflowError, struct.error) as why:
            raise ValueError(f"an update is twelve numbers: {why}") from None
        self._update, self._updated_at = unpack(packed), unix_time()
        return packed

    def opened(self, payload: bytes) -> Raw:
        with suppress(ValueError):
            update = unpack(payload)
            numbers = (*update.place, *update.rotation, *update.velocity, *update.spin)
            return messages.JSON.encode_payload(numbers)
        return messages.NO_PAYLOAD

    def position(self, t: Time) -> Vector | None:
        """Where the ship is; None without a recent update."""
        if self._update is None or t - self._updated_at > SILENT:
            return None
        return predict(self._update.place, self._update.velocity, self._updated_at, t)
