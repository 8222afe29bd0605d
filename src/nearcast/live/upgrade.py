"""From an HTTP request to a WebSocket: the opening handshake, and picows' protocol object.

The handshake is checked here, because picows accepts old versions of the protocol and refuses
`Connection: keep-alive, Upgrade`, which is what Firefox sends. picows is then given a request of
our own with the client's key.
"""

from base64 import b64decode
from binascii import Error
from collections.abc import Mapping
from typing import Any

import picows.api
from picows import WSAutoPingStrategy

from nearcast.live.framing import Endpoint, Reports

VERSION = "13"
PING_S = 25.0  # a silent WebSocket client is pinged, and must answer within 20 seconds
BUFFER = 4_096  # bytes for what is read from a client at first; it grows if need be
HANDSHAKE_S = 5.0


class UpgradeError(Exception):
    """The request is no opening handshake; `status` is what HTTP answers."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason


def handshake(method: str, headers: Mapping[str, str]) -> bytes:
    """The request for picows, if this is an opening handshake (RFC 6455, 4.2.1)."""
    if method != "GET":
        raise UpgradeError(400, "a WebSocket begins with GET")
    if "upgrade" not in {part.strip() for part in headers.get("connection", "").lower().split(",")}:
        raise UpgradeError(400, "Connection does not name Upgrade")
    if headers.get("sec-websocket-version", "") != VERSION:
        raise UpgradeError(426, f"Sec-WebSocket-Version must be {VERSION}")
    key = headers.get("sec-websocket-key", "")
    try:
        valid = len(b64decode(key, validate=True)) == 16
    except (Error, ValueError):
        valid = False
    if not valid:
        raise UpgradeError(400, "Sec-WebSocket-Key must be 16 bytes in base64")
    return (
        "GET / HTTP/1.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Version: {VERSION}\r\nSec-WebSocket-Key: {key}\r\n\r\n"
    ).encode()


def websocket(endpoint: Endpoint, most: int) -> Any:
    """The protocol object that picows otherwise makes in a server of its own.

    The class is private and takes its arguments by position; test_picows.py checks what is relied
    on. Pings come to the endpoint, since a ping with reserved bits must not be answered.
    """
    make: Any = vars(picows.api)["WSProtocol"]
    return make(
        None, None, False, lambda _: endpoint, Reports(endpoint), True, HANDSHAKE_S,
        True, PING_S, min(PING_S, 20.0), WSAutoPingStrategy.PING_WHEN_IDLE, False,
        most, None, BUFFER,
    )  # fmt: skip
