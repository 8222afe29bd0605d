"""The desk of a person who flies a ship: what the page says in JSON travels as bots' words do.

A page has no bytes to spare for structures of its own: its updates are lists of twelve numbers,
which become the 48 bytes that every ship says of itself, and back.
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
from nearcast.workloads.planetpi4_reckoning import UPDATE, Update, predict, unpack

SILENT: Time = 2 * SECOND  # after which nobody knows any more where it is


class ShipControl(LineProtocol):
    def __init__(self, say: Callable[[messages.Notice], None]) -> None:
        super().__init__(say)
        self._said: Update | None = None
        self._said_at: Time = 0

    def packed(self, payload: Raw) -> bytes:
        if not len(payload):
            return b""
        try:
            packed = UPDATE.pack(*msgspec.json.decode(payload, type=list[float]))
        except (msgspec.MsgspecError, OverflowError, struct.error) as why:
            raise ValueError(f"an update is twelve numbers: {why}") from None
        self._said, self._said_at = unpack(packed), unix_time()
        return packed

    def opened(self, payload: bytes) -> Raw:
        with suppress(ValueError):
            update = unpack(payload)
            numbers = (*update.place, *update.rotation, *update.velocity, *update.spin)
            return messages.JSON.encode_payload(numbers)
        return messages.NO_PAYLOAD

    def position(self, t: Time) -> Vector | None:
        """Where the ship is, if it has said so lately."""
        if self._said is None or t - self._said_at > SILENT:
            return None
        return predict(self._said.place, self._said.velocity, self._said_at, t)
