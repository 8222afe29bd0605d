"""The connections of a node's clients, as the service knows them: who is served by which."""

from collections.abc import Iterable

from msgspec.structs import asdict

from nearcast.client_protocol import messages
from nearcast.client_protocol.geometry_json import PLANE, Geometry
from nearcast.client_protocol.limits import Limits
from nearcast.node import Outbox
from nearcast.service.client_state import ClientState
from nearcast.service.connection import Connection
from nearcast.service.effects import DeliverDirect, Reply, Serve, StopServing
from nearcast.service.recipients import AcceptedDirect
from nearcast.space.motion import Time


class Connections:
    """All open connections of a node, the oldest first, and the clients that they serve."""

    def __init__(self, out: Outbox, limits: Limits, name: str, geometry: Geometry = PLANE) -> None:
        self._out, self._name, self._geometry = out, name, geometry
        self._limits = {key: float(value) for key, value in asdict(limits).items()}
        self._serving: list[Connection | None] = []  # by a client's slot
        self.all: dict[Connection, None] = {}
        self.clients = 0  # of them, those who have joined
        self.urls: list[str] = []  # of the other nodes of the cluster

    def reply(self, connection: Connection, notice: messages.Notice, cost: int = 0) -> None:
        """Send a notice; `cost`: of the request, in requests beyond the one."""
        self._out.put(Reply(connection, notice, cost))

    def attach(self, connection: Connection, client: ClientState) -> None:
        """This connection serves this client from now on."""
        while len(self._serving) <= client.slot:
            self._serving.append(None)
        self._serving[client.slot] = connection
        connection.client = client
        self.clients += 1
        self._out.put(Serve(connection, client))

    def detach(self, connection: Connection) -> ClientState | None:
        """Stop serving the client of this connection. Gives the client."""
        client, connection.client = connection.client, None
        if client is not None:
            self.clients -= 1
            self._serving[client.slot] = None
            self._out.put(StopServing(connection, client))
        return client

    def of(self, client: ClientState) -> Connection | None:
        """The connection that serves this client, if it has one here."""
        slot = client.slot
        connection = self._serving[slot] if 0 <= slot < len(self._serving) else None
        return connection if connection is not None and connection.client is client else None

    def welcome(
        self, now: Time, connection: Connection, client: ClientState, number: int | None
    ) -> None:
        """Serve the client by this connection, and send it the welcome notice."""
        self.attach(connection, client)
        welcome = messages.WelcomeNotice(
            client.entity, now, self._name, limits=self._limits, id=number, nodes=self.urls,
            geometry=self._geometry,
        )  # fmt: skip
        self.reply(connection, welcome)

    def deliver_direct(
        self, message: AcceptedDirect, recipients: Iterable[ClientState]
    ) -> list[ClientState]:
        """Deliver it to the clients that are these entities or publish for them, once each, as far
        as they have a connection. Returns these clients."""
        found: dict[Connection, ClientState] = {}
        for recipient in recipients:
            client = recipient.owner or recipient
            connection = self.of(client)
            if connection is not None and connection not in found:
                found[connection] = client
                self._out.put(DeliverDirect(connection, client, message.notice(recipient)))
        return list(found.values())

    def set_urls(self, urls: list[str]) -> None:
        """Tell all clients the addresses of the other nodes, if they have changed."""
        if urls != self.urls:
            self.urls = urls
            notice = messages.NodesNotice(urls)
            for connection in self.all:
                if connection.client is not None:
                    self.reply(connection, notice)
