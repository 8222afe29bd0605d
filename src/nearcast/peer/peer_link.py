"""A peer inside a program: `join` gives the client of `connect`, and an overlay serves it.

    async with nearcast.join("bubblestorm") as ann:
        async with nearcast.join(contact=ann.node) as ben:
            here = await ann.subscribe(disc(0, 0, 50))
            await ben.publish(point(3, 4), {"text": "hello"})

The client's link is not a connection to a node, but its own peer in this process: requests become
commands of the peer's node, and what the node delivers becomes notices (`line_protocol`).
"""

import asyncio
from contextlib import AsyncExitStack
from os import PathLike
from pathlib import Path

from nearcast.client.client import Client
from nearcast.client.websocket import ConnectionLost, OnMessage
from nearcast.client_protocol import messages
from nearcast.client_protocol.geometry_json import Geometry
from nearcast.errors import InvalidRequestError, JoinError, NearcastError
from nearcast.peer.line_protocol import LineProtocol
from nearcast.peer.peer import LivePeer, PeerOptions, live_peer, parse_address
from nearcast.scenario import Setting


class PeerLink:
    """A link of a client to its own peer in the same process. It is opened once."""

    encoding = messages.MSGPACK  # of payloads

    def __init__(self, options: PeerOptions) -> None:
        self.encoding = messages.MSGPACK
        self.max_frame_bytes = 0  # there are no frames
        self._options = options
        self._line_protocol = LineProtocol(self._notify, self.encoding)
        self._running = AsyncExitStack()
        self._member: LivePeer | None = None
        self._stopped: asyncio.Task[None] | None = None
        self._receive: OnMessage
        self._lost: ConnectionLost

    async def open(self, receive: OnMessage, lost: ConnectionLost) -> None:
        """Start the peer and join its overlay. JoinError says why that is not possible."""
        self._receive, self._lost = receive, lost
        running = live_peer(self._options, self._line_protocol.deliver)
        try:
            member = await self._running.enter_async_context(running)
        except NearcastError:
            raise
        except (OSError, ValueError) as why:
            raise JoinError(str(why)) from why
        self._member = member
        self._line_protocol.about = member.about
        member.host.on_direct[member.node.id] = self._line_protocol.receive_direct
        self._stopped = asyncio.create_task(self._notice_stop(member))

    def send(self, request: messages.Request) -> None:
        """NotOfferedError: the overlay cannot do this. InvalidRequestError: nobody can."""
        member = self._member
        if member is None or member.node.id not in member.host.nodes:
            raise ConnectionError("this peer has stopped")
        if isinstance(request, messages.JoinRequest):
            self._notify(member.welcome(request.id))
            return
        if isinstance(request, messages.LeaveRequest):
            return  # the client closes its link next, which is leaving
        try:
            self._line_protocol.carry_out(member.host, member.node.id, request)
        except InvalidRequestError:
            raise
        except ValueError as why:
            raise InvalidRequestError(str(why)) from why

    async def writable(self) -> None:
        """Always."""

    async def close(self) -> None:
        """Leave the overlay; then the trace is complete."""
        self._member = None
        if self._stopped is not None:
            self._stopped.cancel()
        await self._running.aclose()

    async def _notice_stop(self, member: LivePeer) -> None:
        await member.host.stopped(member.node.id)
        if self._member is not None:
            self._lost("this peer has stopped")

    def _notify(self, notice: messages.Notice) -> None:
        self._receive(type(notice), notice)


def join(
    overlay: str = "",
    *,
    contact: str | None = None,
    listen: str = "",
    link: str = "tls",
    serve: bool = False,
    key: str | PathLike[str] | None = None,
    unsigned: bool = False,
    geometry: Geometry | None = None,
    trace: str | PathLike[str] | None = None,
    **settings: Setting,
) -> Client:
    """A client that is a peer of an overlay, without a node; to be used `async with`.

    `overlay`: "bubblestorm", "psense", "von", "vso", "drtree", "brokers", "relays" or
    "client-server"; with a contact it need not be given. `contact`: HOST:PORT of any peer of the
    overlay (its `Client.node`), from which this one gets the overlay's settings; without one, this
    peer begins an overlay. `listen`: HOST:PORT at which others reach this peer; without it, any
    free port of the address from which the contact is reached, or of this machine alone. `link`:
    "tls" or "quic", the same for all peers. `serve`: run a further broker beside the contact's.
    `key`: a file with this peer's key, made if there is none: its `entity` is the same each time.
    `unsigned`: publications are not signed, which holds for all peers or none. `geometry`: "plane",
    or "earth" for longitude, latitude and metres; who joins need not say it. `trace`: a folder
    for the trace of this peer. `settings`: of the overlay (`nearcast simulate NAME --settings`).

    What the overlay does not offer raises `NotOfferedError`; docs/how-to/peers.md has the table.
    A peer that cannot join raises `JoinError`.
    """
    host, port = parse_address(listen) if listen else ("", 0)
    options = PeerOptions(
        overlay=overlay, join=parse_address(contact) if contact else None, host=host, port=port,
        link=link, serve=serve, trace=None if trace is None else Path(trace),
        key=None if key is None else Path(key), unsigned=unsigned, geometry=geometry,
        settings=settings,
    )  # fmt: skip
    return Client(PeerLink(options), "")
