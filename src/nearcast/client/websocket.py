"""Links between a client and a node: the interface, and a WebSocket with MessagePack."""

import asyncio
import ssl
from collections.abc import Callable
from contextlib import suppress
from errno import ECONNREFUSED
from typing import Any, Protocol, TypeAlias

from msgspec import Struct
from picows import WSCloseCode, WSError, WSMsgType, WSTransport, ws_connect

from nearcast.client_protocol import messages
from nearcast.client_protocol.close_codes import ABNORMAL, CloseCode
from nearcast.client_protocol.websocket_framing import (
    CLOSE_GRACE_S,
    PicowsLogger,
    WebSocketEndpoint,
)
from nearcast.errors import InvalidRequestError, MalformedMessageError

OnMessage: TypeAlias = Callable[[type[Struct], Any], None]  # the message's class, and the message

LARGEST_FRAME = 64 * 1024 * 1024  # from a node: the list of entities in a large area may be long
SILENCE_S = 10.0  # without data, after which the node is sent a ping; and for its pong
CONNECT_S = 10.0  # for a node to accept a connection, with TLS and the upgrade


class ConnectionLost(Protocol):
    """Called when a link has ended: why, and with which WebSocket close code."""

    def __call__(self, reason: str, code: int = ABNORMAL) -> None: ...


class ClientLink(Protocol):
    """What carries a client's requests to a node, and its notices back."""

    encoding: messages.Encoding  # of the payloads inside messages
    max_frame_bytes: int  # bytes of a frame

    async def open(self, receive: OnMessage, lost: ConnectionLost) -> None:
        """Connect. From then on `receive` gets the notices; at the end `lost` is called."""
        ...

    def send(self, request: messages.Request) -> None:
        """ConnectionError without a connection, InvalidRequestError if the frame is too long."""
        ...

    async def writable(self) -> None:
        """Wait until the send buffer has room again."""
        ...

    async def close(self) -> None: ...


class WebSocketLink:
    """A link that can be opened again after it was lost."""

    encoding = messages.MSGPACK

    def __init__(self, url: str, tls: ssl.SSLContext | None) -> None:
        self.max_frame_bytes = LARGEST_FRAME
        self._url, self._tls = url, tls
        self._connection: WebSocketConnection | None = None

    async def open(self, receive: OnMessage, lost: ConnectionLost) -> None:
        connection = WebSocketConnection(self.encoding, receive, lost)
        await open_websocket(connection, self._url, self._tls)
        self._connection = connection

    def send(self, request: messages.Request) -> None:
        if self._connection is None or self._connection.closing or self._connection.gone.is_set():
            raise ConnectionError("there is no connection")
        frame = self.encoding.encode(request)
        if len(frame) > self.max_frame_bytes:  # the node could not answer with the request's id
            raise InvalidRequestError(f"a frame has at most {self.max_frame_bytes} bytes")
        self._connection.transport.send(WSMsgType.BINARY, frame)

    async def writable(self) -> None:
        if self._connection is not None:
            await self._connection.writable.wait()

    async def close(self) -> None:
        """Close with the WebSocket handshake; without an answer, disconnect after a while."""
        connection, self._connection = self._connection, None
        if connection is None or connection.gone.is_set():
            return
        connection.lost = _ignore
        connection.closing = True
        connection.transport.send_close(WSCloseCode.OK)
        try:
            await asyncio.wait_for(connection.gone.wait(), CLOSE_GRACE_S)
        except TimeoutError:
            connection.transport.disconnect(False)


async def open_websocket(
    connection: "WebSocketConnection", url: str, tls: ssl.SSLContext | None
) -> None:
    """Connect to a node. ConnectionError says why that fails; ConnectionRefusedError: nobody
    listens there."""
    reports: Any = PicowsLogger(connection)
    try:
        async with asyncio.timeout(CONNECT_S):
            await ws_connect(
                lambda: connection,
                url,
                ssl_context=tls,
                logger_name=reports,
                websocket_handshake_timeout=CONNECT_S,
                enable_auto_ping=True,
                auto_ping_idle_timeout=SILENCE_S,
                auto_ping_reply_timeout=SILENCE_S,
                enable_auto_pong=False,  # the endpoint checks pings first
                max_frame_size=LARGEST_FRAME,
                # Its TLS prints a traceback when the other end hangs up.
                use_aiofastnet=False if url.startswith("wss:") else None,
            )
    except (WSError, OSError) as why:
        refused = f"[Errno {ECONNREFUSED}]" in str(why)  # a name may have several addresses
        kind = ConnectionRefusedError if refused else ConnectionError
        raise kind(f"cannot connect to {url}: {_failure_reason(url, why)}") from None
    if not hasattr(connection, "transport"):  # the node ended during the handshake
        raise ConnectionError(f"cannot connect to {url}: {_failure_reason(url, OSError())}")


def _failure_reason(url: str, why: Exception) -> str:
    """Why there is no connection, with a hint if the address may be wrong."""
    if isinstance(why, TimeoutError):
        reason = f"no answer within {CONNECT_S:g} seconds"
    else:
        reason = " ".join(str(why).split())
    tls_failed = isinstance(why, ssl.SSLError) and not isinstance(why, ssl.SSLCertVerificationError)
    if reason and not tls_failed and not isinstance(why, TimeoutError):
        return reason
    other = "without TLS has a ws://" if url.startswith("wss:") else "with TLS has a wss://"
    return f"{reason or 'it has hung up'} (a node {other} address)"


async def _end_of(transport: WSTransport) -> None:
    with suppress(Exception):
        await transport.wait_disconnected()


def _ignore(reason: str, code: int = ABNORMAL) -> None:
    """For a connection that its own client closes."""


class WebSocketConnection(WebSocketEndpoint):
    """The client's end of one WebSocket connection."""

    def __init__(
        self, encoding: messages.Encoding, receive: OnMessage, lost: ConnectionLost
    ) -> None:
        super().__init__(LARGEST_FRAME, type(self).received)
        self.gone = asyncio.Event()
        self.writable = asyncio.Event()
        self.writable.set()
        self.lost = lost
        self._encoding, self._receive = encoding, receive
        self._reason, self._code = "", ABNORMAL
        self._has_decoded = False  # any notice yet?

    def received(self, payload: bytes, binary: bool) -> None:
        if not binary:
            return  # a node answers in the encoding of the requests
        try:
            notice = self._encoding.read_notice(payload)
        except MalformedMessageError as why:
            self._handle_malformed(why)
            return
        self._has_decoded = True
        self._receive(self._encoding.message_class(notice), notice)

    def _handle_malformed(self, why: MalformedMessageError) -> None:
        """If nothing could be decoded yet, this is no Nearcast node; else ignore one notice."""
        if self._has_decoded:
            self._receive(
                messages.ErrorNotice,
                messages.ErrorNotice(f"a notice of the node is unreadable: {why}"),
            )
        else:
            self.fail(
                CloseCode.INVALID_DATA, f"this is no Nearcast node of the same version: {why}"
            )

    def closed(self, code: int, reason: str) -> None:
        self._reason, self._code = reason or "the node has closed the connection", code

    def fail(self, code: int, reason: str) -> None:
        if not self.closing:
            self._reason, self._code = reason, code
        super().fail(code, reason)

    def on_ws_disconnected(self, transport: WSTransport) -> None:
        # Retrieve the exception that picows stores for whoever waits for the end.
        self._end = asyncio.ensure_future(_end_of(transport))
        self.gone.set()
        self.writable.set()
        self.lost(self._reason, self._code)

    def pause_writing(self) -> None:
        self.writable.clear()

    def resume_writing(self) -> None:
        self.writable.set()
