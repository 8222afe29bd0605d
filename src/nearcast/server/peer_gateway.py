"""WebSockets into an overlay: every client that connects gets a peer of its own in this process.

So a page in JavaScript takes part in an overlay, in the client protocol, as if this were a node.
What the overlay does not offer is refused, as it is to a peer in Python (`peer.peer_link`).
"""

import asyncio
from collections.abc import Callable, Sequence

from msgspec.structs import replace
from picows import WSMsgType, WSTransport

from nearcast.client_protocol import messages
from nearcast.client_protocol.close_codes import CloseCode
from nearcast.client_protocol.websocket_framing import WebSocketEndpoint
from nearcast.errors import MalformedMessageError
from nearcast.model.publication import Publication
from nearcast.model.subscription import NodeId, SubscriptionId
from nearcast.peer.peer import PeerOptions, format_address, live_peer, run_peer
from nearcast.server.access.tokens import foreign_page_refusal
from nearcast.server.config import LimitSettings
from nearcast.server.http.connections import OpenConnections
from nearcast.server.http.protocol import (
    HttpConnection,
    HttpError,
    HttpRequest,
    HttpRoutes,
)
from nearcast.server.metrics import Metrics

FRAME = 65_536  # bytes that a client may send at once
RATE = 500  # HTTP requests that it may make in a second
MAX_CLIENTS = 64
MAX_WAITING = 1_000  # requests of a client that its peer has not obeyed yet


class PeerConnection(WebSocketEndpoint):
    """The WebSocket of one client, and its peer."""

    def __init__(self, options: PeerOptions, open_connections: "set[PeerConnection]") -> None:
        super().__init__(FRAME, PeerConnection.received)
        self._options, self._open = options, open_connections
        self._lines: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._join_id: int | None = None
        self._gone = False
        self.peer: asyncio.Task[None] | None = None
        open_connections.add(self)

    def received(self, frame: bytes, binary: bool) -> None:
        if binary:
            self.fail(CloseCode.POLICY, "clients of a peer speak JSON, in texts")
        elif self._lines.qsize() >= MAX_WAITING:
            self.fail(CloseCode.POLICY, f"at most {MAX_WAITING} requests wait for a peer")
        elif self.peer is not None:
            self._lines.put_nowait(frame)
        else:
            self._begin(frame)

    def _begin(self, frame: bytes) -> None:
        try:
            request = messages.JSON.read_request(frame)
        except MalformedMessageError as why:
            self._send(messages.ErrorNotice(str(why), messages.JSON.request_id(frame)))
            return
        if isinstance(request, messages.JoinRequest):
            self._join_id = request.id
            self.peer = asyncio.create_task(self._run())
        else:
            self._send(messages.ErrorNotice("join first", request.id))

    async def _run(self) -> None:
        try:
            await run_peer(self._options, self._lines, self._send)
        except (OSError, ValueError) as why:
            self._send(messages.ByeNotice(f"no peer for this client: {why}"))
        finally:
            self._open.discard(self)
            if not self._gone:
                self.fail(CloseCode.NORMAL, "the peer of this client has left")

    def leave(self) -> None:
        """Its peer leaves the overlay."""
        self._lines.put_nowait(None)

    def on_ws_disconnected(self, transport: WSTransport) -> None:
        del transport
        self._gone = True
        self.leave()
        if self.peer is None:
            self._open.discard(self)

    def _send(self, notice: messages.Notice) -> None:
        if isinstance(notice, messages.WelcomeNotice):
            notice = replace(notice, id=self._join_id)
        if not self._gone:
            self.transport.send(WSMsgType.TEXT, messages.JSON.encode(notice))


async def serve_overlay_clients(
    options: PeerOptions, port: int, ready: Callable[[str, str], None], stop: asyncio.Event
) -> None:
    """Begin or join an overlay, and let clients of this machine in until `stop` is set.

    `ready` gets the address for clients, and the one where further peers may join. ValueError,
    OSError and TimeoutError tell in one line why it cannot begin.
    """
    clients: set[PeerConnection] = set()
    fronts: set[HttpConnection] = set()
    connections = OpenConnections(LimitSettings(), Metrics())
    async with live_peer(options, _receive_nothing) as first:
        others = replace(
            options, overlay="", join=first.address, port=0, serve=False, key=None, trace=None
        )

        def upgrade(request: HttpRequest) -> WebSocketEndpoint:
            why = foreign_page_refusal(request.headers, True)
            if why is not None:
                raise HttpError(403, why)
            if len(clients) >= MAX_CLIENTS:
                raise HttpError(503, f"{MAX_CLIENTS} clients have a peer here already")
            return PeerConnection(others, clients)

        server = await asyncio.get_running_loop().create_server(
            lambda: HttpConnection(HttpRoutes(), upgrade, FRAME, RATE, fronts, connections),
            "127.0.0.1",
            port,
        )
        try:
            where = server.sockets[0].getsockname()
            ready(f"ws://{format_address(*where[:2])}", format_address(*first.address))
            await stop.wait()
        finally:
            server.close()
            for client in list(clients):
                client.leave()
            if peers := [client.peer for client in clients if client.peer is not None]:
                await asyncio.wait(peers)
            for front in list(fronts):
                front.close()


def _receive_nothing(
    _node: NodeId, _publication: Publication, _to: Sequence[SubscriptionId]
) -> None:
    """The peer by which others come in has no subscriptions of its own."""
