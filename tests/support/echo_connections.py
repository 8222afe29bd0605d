"""The server's and the client's own connection classes, with a core that echoes every message."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

from picows import WSMsgType

from nearcast.client.websocket import WebSocketConnection, open_websocket
from nearcast.client_protocol import messages
from nearcast.client_protocol.close_codes import ABNORMAL, CloseCode
from nearcast.server.config import LimitSettings
from nearcast.server.http.connections import OpenConnections
from nearcast.server.http.protocol import HttpConnection, HttpRequest, HttpRoutes
from nearcast.server.metrics import Metrics
from nearcast.server.session import Session
from nearcast.service.frames import websocket_frame


class EchoSession(Session):
    def send_bye(self, reason: str) -> None:
        """The client expects no message."""


class Echo:
    """What a session asks of a gateway."""

    def __init__(self, limits: LimitSettings) -> None:
        self.limits = limits
        self.loop = asyncio.get_running_loop()
        self.metrics = SimpleNamespace(cut=0)
        self.open: set[Session] = set()
        self.disconnected = self.open.discard
        self.connected = self.open.add
        self.now = lambda: 0

    def admit(self, _: HttpRequest) -> Session:
        gateway: Any = self
        return EchoSession(gateway)

    def read(self, session: Session, payload: bytes, binary: bool) -> None:
        session.write(websocket_frame(messages.MSGPACK if binary else messages.JSON, payload))

    def end(self, session: Session, reason: str, code: CloseCode) -> None:
        session.finish(reason, code)

    def paused(self, session: Session) -> None:
        """Nobody waits for anything."""

    resumed = stop_deliveries = paused


@asynccontextmanager
async def echo_server(frame: int = 65_536) -> AsyncIterator[int]:
    """Its port."""
    limits = LimitSettings(frame=frame, join_s=3_600.0)
    echo, fronts, connections = (
        Echo(limits),
        set[HttpConnection](),
        OpenConnections(limits, Metrics()),
    )

    def front() -> HttpConnection:
        routes = HttpRoutes()
        return HttpConnection(
            routes, echo.admit, limits.frame, limits.requests, fronts, connections
        )

    server = await asyncio.get_running_loop().create_server(front, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for session in list(echo.open):
            session.raw.abort()


class EchoClient(WebSocketConnection):
    """A client's connection that echoes, and keeps all that it has received."""

    def __init__(self) -> None:
        super().__init__(messages.MSGPACK, lambda _kind, _word: None, self._ended)
        self.received: list[bytes] = []
        self.ended: asyncio.Future[tuple[str, int]] = asyncio.get_running_loop().create_future()

    def received(self, payload: bytes, binary: bool) -> None:
        self.received.append(payload)
        self.transport.send(WSMsgType.BINARY if binary else WSMsgType.TEXT, payload)

    def _ended(self, reason: str, code: int = ABNORMAL) -> None:
        self.ended.set_result((reason, code))


async def echo(url: str) -> EchoClient:
    client = EchoClient()
    await open_websocket(client, url, None)
    return client
