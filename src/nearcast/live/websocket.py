"""What carries a client's words to a node and back: here, a WebSocket in the compact form."""

import asyncio
import ssl
from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

from msgspec import Struct
from picows import (
    WSCloseCode,
    WSError,
    WSFrame,
    WSListener,
    WSMsgType,
    WSTransport,
    ws_connect,
)

from nearcast.live import words
from nearcast.live.admission import Refused

Receive: TypeAlias = Callable[[type[Struct], Any], None]  # which word it is, and the word
Lost: TypeAlias = Callable[[str], None]

LARGEST_FRAME = 64 * 1024 * 1024  # of a node: who is inside a large area may be long
SILENCE_S = 10.0  # after which the node is asked whether it is still there, and has to answer
GOODBYE_S = 2.0  # for the node to close its end


class Link(Protocol):
    form: words.Form  # of the payloads inside words
    most: int  # bytes of a frame

    async def open(self, receive: Receive, lost: Lost) -> None:
        """Connect. From then on `receive` gets what comes, and in the end `lost` is called."""
        ...

    def send(self, request: words.Request) -> None:
        """ConnectionError if there is no connection. Refused if the node would not even read it."""
        ...

    async def writable(self) -> None:
        """Wait until what was sent before has found its way."""
        ...

    async def close(self) -> None: ...


class WebSocket:
    """A link that can be opened again after it was lost."""

    form = words.PACKED

    def __init__(self, url: str, tls: ssl.SSLContext | None) -> None:
        self.most = LARGEST_FRAME
        self._url, self._tls = url, tls
        self._connection: _Connection | None = None

    async def open(self, receive: Receive, lost: Lost) -> None:
        connection = _Connection(self.form, receive, lost)
        try:
            await ws_connect(
                lambda: connection,
                self._url,
                ssl_context=self._tls,
                enable_auto_ping=True,
                auto_ping_idle_timeout=SILENCE_S,
                auto_ping_reply_timeout=SILENCE_S,
                max_frame_size=LARGEST_FRAME,
            )
        except (WSError, OSError) as why:
            reason = " ".join(str(why).split()) or "no answer"
            raise ConnectionError(f"cannot connect to {self._url}: {reason}") from None
        if not hasattr(connection, "transport"):  # the node died in the middle of its greeting
            raise ConnectionError(f"cannot connect to {self._url}: it has hung up")
        self._connection = connection

    def send(self, request: words.Request) -> None:
        if self._connection is None or self._connection.gone.is_set():
            raise ConnectionError("there is no connection")
        frame = self.form.write(request)
        if len(frame) > self.most:  # the node could not say which request it refuses
            raise Refused(f"a frame has at most {self.most} bytes")
        self._connection.transport.send(WSMsgType.BINARY, frame)

    async def writable(self) -> None:
        if self._connection is not None:
            await self._connection.writable.wait()

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is None or connection.gone.is_set():
            return
        connection.lost = _nobody
        connection.transport.send_close(WSCloseCode.OK)
        try:
            await asyncio.wait_for(connection.gone.wait(), GOODBYE_S)
        except TimeoutError:
            connection.transport.disconnect(False)


def _nobody(_reason: str) -> None:
    """Whoever closed the connection need not be told that it ended."""


class _Connection(WSListener):
    """One connection, from its beginning to its end."""

    def __init__(self, form: words.Form, receive: Receive, lost: Lost) -> None:
        self.transport: WSTransport
        self.gone = asyncio.Event()
        self.writable = asyncio.Event()
        self.writable.set()
        self.lost = lost
        self._form, self._receive = form, receive
        self._reason = ""
        self._understood = False  # has it said anything that we could read?

    def on_ws_connected(self, transport: WSTransport) -> None:
        self.transport = transport

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        if frame.msg_type == WSMsgType.BINARY:
            try:
                word = self._form.notice(frame.get_payload_as_bytes())
            except words.WordError as why:
                self._misheard(transport, why)
                return
            self._understood = True
            self._receive(self._form.kind(word), word)
        elif frame.msg_type == WSMsgType.CLOSE:
            transport.send_close(WSCloseCode.OK)
            transport.disconnect()

    def _misheard(self, transport: WSTransport, why: words.WordError) -> None:
        """Who never said anything readable is no node of ours; else one notice is passed over."""
        if self._understood:
            self._receive(words.Error, words.Error(f"a notice of the node is unreadable: {why}"))
        else:
            self._reason = f"the node does not speak as we do: {why}"
            transport.disconnect()

    def on_ws_disconnected(self, _transport: WSTransport) -> None:
        self.gone.set()
        self.writable.set()
        self.lost(self._reason)

    def pause_writing(self) -> None:
        self.writable.clear()

    def resume_writing(self) -> None:
        self.writable.set()
