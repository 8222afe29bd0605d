"""picows' protocol object for one WebSocket of a node.

picows reads the opening handshake again; it is given a plain one (`heads.websocket_request`).
"""

import asyncio
from typing import Any

import picows.api
from picows import WSAutoPingStrategy

from nearcast.client_protocol.websocket_framing import PicowsLogger, WebSocketEndpoint

PING_S = 25.0  # a silent WebSocket client is pinged, and must answer within 20 seconds
BUFFER = 4_096  # bytes for what is read from a client at first; it grows if need be
HANDSHAKE_S = 5.0


def picows_protocol(endpoint: WebSocketEndpoint, most: int) -> Any:
    """The protocol object that picows otherwise makes in a server of its own.

    The class is private and takes its arguments by position; test_picows.py checks what is relied
    on. Pings come to the endpoint, since a ping with reserved bits must not be answered.
    """
    make: Any = vars(picows.api)["WSProtocol"]
    return make(
        None, None, False, lambda _: endpoint, PicowsLogger(endpoint), True, HANDSHAKE_S,
        True, PING_S, min(PING_S, 20.0), WSAutoPingStrategy.PING_WHEN_IDLE, False,
        most, None, BUFFER,
    )  # fmt: skip


def feed(protocol: Any, data: bytes, transport: asyncio.Transport) -> None:
    """Give picows' protocol bytes of its transport, unless that is being closed."""
    unread = memoryview(data)
    while unread and not transport.is_closing():
        room = protocol.get_buffer(len(unread))
        size = min(len(room), len(unread))
        room[:size] = unread[:size]
        unread = unread[size:]
        protocol.buffer_updated(size)
