"""Direct messages between nodes.

Which node serves an entity, only that node knows for certain. So a direct message goes to all nodes
(`DirectSent`), and each answers how many of its clients it is for (`DirectAnswer`). Its sender is
answered as soon as somebody is found. If nobody is, it is refused when all nodes have answered, or
after `ANSWERED`.

A client that is handed over is with no node for a moment, and a message may come to its new home
before it, and to its old home after it has gone. The old home then forwards it (`DirectForwarded`),
on the link on which it has sent the client, and keeps it for the case that the client comes back.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from msgspec import Raw, Struct

from nearcast.client_protocol import messages
from nearcast.client_protocol.limits import check_payload
from nearcast.errors import Refused
from nearcast.model.subscription import NodeId, PublicationId
from nearcast.node import Outbox
from nearcast.service.client_state import ClientState
from nearcast.service.cluster.messages import (
    DirectAnswer,
    DirectForwarded,
    DirectSent,
    RemoteDirect,
)
from nearcast.service.cluster.routing import encoding_of, remote_direct
from nearcast.service.connection import Connection
from nearcast.service.connections import Connections
from nearcast.service.recipients import AcceptedDirect, unknown_recipient
from nearcast.space.motion import SECOND, Time

if TYPE_CHECKING:
    from nearcast.service.cluster.cluster_node import ClusterNode

ANSWERED: Time = SECOND  # by then other nodes have answered
REMEMBERED: Time = 12 * SECOND  # that a message was delivered here; up to twice as long


class UnansweredDirect(Struct):
    """A direct message for which nobody has been found yet."""

    connection: Connection
    request: int | None  # its id
    message: AcceptedDirect
    nodes: dict[NodeId, None]  # that have not answered


class DirectRouting:
    """Sends direct messages to all nodes, and delivers those that come from others."""

    def __init__(self, node: "ClusterNode", out: Outbox, connections: Connections) -> None:
        self._node, self._out, self._connections = node, out, connections
        self._unanswered: dict[PublicationId, UnansweredDirect] = {}
        # Which entities have received which message here, lately and before that.
        self._delivered: set[tuple[PublicationId, int]] = set()
        self._delivered_before: set[tuple[PublicationId, int]] = set()
        self._turned: Time = 0

    def send(self, connection: Connection, request: int | None, message: AcceptedDirect) -> None:
        """Deliver a message of a client of this node, here and elsewhere, and answer its request.
        Refused if there is no other node, and nobody here."""
        nodes = list(self._node.nodes)
        waiting = UnansweredDirect(connection, request, message, dict.fromkeys(nodes))
        found = self._deliver(message)
        if not found and not nodes:
            raise Refused(unknown_recipient(message.to))
        self._out.send_many(nodes, DirectSent(remote_direct(message)))
        if found:
            self._answer(waiting)
        else:
            self._unanswered[message.number] = waiting

    def receive(self, message: DirectSent | DirectAnswer | DirectForwarded, sender: NodeId) -> None:
        match message:
            case DirectAnswer(number, found):
                self._on_answer(number, found, sender)
            case DirectSent(remote):
                found = self._deliver(self._accept(remote))
                self._out.send(sender, DirectAnswer(remote.number, found))
            case DirectForwarded(entity, remote):
                recipients = self._node.realm.recipients.find(entity)
                self._deliver_new(self._accept(remote), recipients)

    def tick(self, now: Time) -> None:
        """Some nodes do not answer: what is known by now must do."""
        for number, waiting in list(self._unanswered.items()):
            if now - waiting.message.t > ANSWERED:
                del self._unanswered[number]
                self._refuse(waiting)
        if now - self._turned > REMEMBERED:
            self._delivered_before, self._delivered, self._turned = self._delivered, set(), now

    def _accept(self, remote: RemoteDirect) -> AcceptedDirect:
        """ValueError or Refused if it is nothing that a client could have sent."""
        payload = Raw(remote.payload) if remote.payload else messages.NO_PAYLOAD
        form = encoding_of(remote.packed)
        check_payload(payload, form, self._node.realm.limits)
        return AcceptedDirect(
            remote.number, remote.source, remote.name, remote.t, remote.to, payload, form
        )

    def _deliver(self, message: AcceptedDirect) -> int:
        """To clients that are here, or were a moment ago. Returns how many."""
        recipients = self._node.realm.recipients.find(message.to)
        self._deliver_new(message, recipients)
        clients = (one.owner or one for one in recipients)
        here = {client.entity for client in clients if self._connections.of(client) is not None}
        found = [*sorted(here), *self._node.handover.forward_direct(message)]
        self._node.realm.record_direct(message, found)
        return len(found)

    def _deliver_new(self, message: AcceptedDirect, recipients: Iterable[ClientState]) -> None:
        """To those who have not received it, here or on the node they came from."""
        new = [one for one in recipients if not self._has(message.number, one.owner or one)]
        for client in self._connections.deliver_direct(message, new):
            self._delivered.add((message.number, client.entity))

    def _has(self, number: PublicationId, client: ClientState) -> bool:
        key = number, client.entity
        return key in self._delivered or key in self._delivered_before

    def received_by(self, entity: int) -> tuple[PublicationId, ...]:
        """What this client has received lately."""
        known = self._delivered | self._delivered_before
        return tuple(sorted(number for number, client in known if client == entity))

    def add_received(self, entity: int, numbers: Iterable[PublicationId]) -> None:
        """This client has come, and has received these."""
        self._delivered.update((number, entity) for number in numbers)

    def _on_answer(self, number: PublicationId, found: int, sender: NodeId) -> None:
        waiting = self._unanswered.get(number)
        if waiting is None:
            return
        waiting.nodes.pop(sender, None)
        if found or not waiting.nodes:
            del self._unanswered[number]
            if found:
                self._answer(waiting)
            else:
                self._refuse(waiting)

    def _answer(self, waiting: UnansweredDirect) -> None:
        message = waiting.message
        if waiting.request is not None:
            done = messages.DoneNotice(waiting.request, message.t, message.number)
            self._connections.reply(waiting.connection, done)

    def _refuse(self, waiting: UnansweredDirect) -> None:
        reason = unknown_recipient(waiting.message.to)
        if waiting.nodes:
            reason += f", unless on one of {len(waiting.nodes)} nodes that do not answer"
        refused = messages.ErrorNotice(reason, waiting.request)
        self._connections.reply(waiting.connection, refused)
