"""What carries a client's words to a node and back: here, a WebSocket in the compact form."""

import asyncio
import ssl
from collections.abc import Callable
from contextlib import suppress
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

OnMessage: TypeAlias = Callable[[type[Struct], Any], None]  # which word it is, and the word

LARGEST_FRAME = 64 * 1024 * 1024  # of a node: who is inside a large area may be long
SILENCE_S = 10.0  # after which the node is asked whether it is still there, and has to answer
CONNECT_S = 10.0  # for a node to accept a connection, with TLS and the upgrade


class ConnectionLost(Protocol):
    """Told why a link has ended, and with which WebSocket close code."""

    def __call__(self, reason: str, code: int = ABNORMAL) -> None: ...


class ClientLink(Protocol):
    form: messages.Encoding  # of the payloads inside words
    most: int  # bytes of a frame

    async def open(self, receive: OnMessage, lost: ConnectionLost) -> None:
        """Connect. From then on `receive` gets what comes, and in the end `lost` is called."""
        ...

    def send(self, request: messages.Request) -> None:
        """ConnectionError if there is no connection. Refused if the node would not even read it."""
        ...

    async def writable(self) -> None:
        """Wait until what was sent before has found its way."""
        ...

    async def close(self) -> None: ...


class WebSocketLink:
    """A link that can be opened again after it was lost."""

    form = messages.MSGPACK

    def __init__(self, url: str, tls: ssl.SSLContext | None) -> None:
        self.most = LARGEST_FRAME
        self._url, self._tls = url, tls
        self._connection: WebSocketConnection | None = None

    async def open(self, receive: OnMessage, lost: ConnectionLost) -> None:
        connection = WebSocketConnection(self.form, receive, lost)
        await open_websocket(connection, self._url, self._tls)
        self._connection = connection

    def send(self, request: messages.Request) -> None:
        if self._connection is None or self._connection.closing or self._connection.gone.is_set():
            raise ConnectionError("there is no connection")
        frame = self.form.encode(request)
        if len(frame) > self.most:  # the node could not say which request it refuses
            raise InvalidRequestError(f"a frame has at most {self.most} bytes")
        self._connection.transport.send(WSMsgType.BINARY, frame)

    async def writable(self) -> None:
        if self._connection is not None:
            await self._connection.writable.wait()

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is None or connection.gone.is_set():
            return
        connection.lost = _nobody
        connection.closing = True
        connection.transport.send_close(WSCloseCode.OK)
        try:
            await asyncio.wait_for(connection.gone.wait(), CLOSE_GRACE_S)
        except TimeoutError:
            connection.transport.disconnect(False)


async def open_websocket(
    connection: "WebSocketConnection", url: str, tls: ssl.SSLContext | None
) -> None:
    """Connect to a node. ConnectionError says why that fails."""
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
        raise ConnectionError(f"cannot connect to {url}: {_reason(url, why)}") from None
    if not hasattr(connection, "transport"):  # the node died in the middle of its greeting
        raise ConnectionError(f"cannot connect to {url}: {_reason(url, OSError())}")


def _reason(url: str, why: Exception) -> str:
    """Why there is no connection; and what may be wrong with the address, if that is likely."""
    if isinstance(why, TimeoutError):
        reason = f"no answer within {CONNECT_S:g} seconds"
    else:
        reason = " ".join(str(why).split())
    strange = isinstance(why, ssl.SSLError) and not isinstance(why, ssl.SSLCertVerificationError)
    if reason and not strange and not isinstance(why, TimeoutError):
        return reason
    other = "without TLS has a ws://" if url.startswith("wss:") else "with TLS has a wss://"
    return f"{reason or 'it has hung up'} (a node {other} address)"


async def _end_of(transport: WSTransport) -> None:
    with suppress(Exception):
        await transport.wait_disconnected()


def _nobody(reason: str, code: int = ABNORMAL) -> None:
    """Whoever closed the connection need not be told that it ended."""


class WebSocketConnection(WebSocketEndpoint):
    """One connection, from its beginning to its end."""

    def __init__(self, form: messages.Encoding, receive: OnMessage, lost: ConnectionLost) -> None:
        super().__init__(LARGEST_FRAME, type(self).received)
        self.gone = asyncio.Event()
        self.writable = asyncio.Event()
        self.writable.set()
        self.lost = lost
        self._form, self._receive = form, receive
        self._reason, self._code = "", ABNORMAL
        self._understood = False  # has it said anything that we could read?

    def received(self, payload: bytes, binary: bool) -> None:
        if not binary:
            return  # a node answers in the form in which it is asked
        try:
            word = self._form.read_notice(payload)
        except MalformedMessageError as why:
            self._unreadable(why)
            return
        self._understood = True
        self._receive(self._form.message_class(word), word)

    def _unreadable(self, why: MalformedMessageError) -> None:
        """Who never said anything readable is no node of ours; else one notice is passed over."""
        if self._understood:
            self._receive(
                messages.ErrorNotice,
                messages.ErrorNotice(f"a notice of the node is unreadable: {why}"),
            )
        else:
            self.fail(CloseCode.INVALID_DATA, f"the node does not speak as we do: {why}")

    def closed(self, code: int, reason: str) -> None:
        self._reason, self._code = reason or "the node has closed the connection", code

    def fail(self, code: int, reason: str) -> None:
        if not self.closing:
            self._reason, self._code = reason, code
        super().fail(code, reason)

    def on_ws_disconnected(self, transport: WSTransport) -> None:
        # picows gives what it refused to whoever waits for the end, too: somebody has to.
        self._end = asyncio.ensure_future(_end_of(transport))
        self.gone.set()
        self.writable.set()
        self.lost(self._reason, self._code)

    def pause_writing(self) -> None:
        self.writable.clear()

    def resume_writing(self) -> None:
        self.writable.set()
