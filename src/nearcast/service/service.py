"""The service: what a node decides for its clients. `cluster.service` adds other nodes.

A `Service` is a node like those of the overlays: no clock, no socket, no chance of its own. A host
(`server.gateway` for WebSockets and HTTP, `server.in_process` for a world of one's own, the
simulator) hands in what clients and other nodes send, and carries out the effects.

The way of a publication: `publish` accepts it; the next `Flush` matches all that wait in one call
(`realm`), delivers them in columns (`DeliverFlush`), and answers their publishers. How soon a flush
follows is the host's policy, what it does is not.
"""

from random import Random
from typing import Any

import msgspec
import numpy as np

from nearcast.client_protocol import messages
from nearcast.client_protocol.close_codes import CloseCode
from nearcast.client_protocol.geometry_json import Area
from nearcast.client_protocol.limits import Limits
from nearcast.errors import Refused
from nearcast.model.subscription import NodeId, PublicationId
from nearcast.node import Effect, Message, Node, Outbox, Timer
from nearcast.service.access.grants import Grant
from nearcast.service.access.permission import (
    check_fence_set,
    check_following,
    check_listening,
    check_publishing,
    check_sending,
    may_listen,
)
from nearcast.service.access.quotas import Quotas, check_subscriptions
from nearcast.service.client_state import AcceptedPublication, ClientState, FlushDeliveries
from nearcast.service.connection import Connection
from nearcast.service.connections import Connections
from nearcast.service.effects import (
    CloseConnection,
    Counted,
    DeliverFlush,
    Fault,
    Notify,
    Refuse,
)
from nearcast.service.fences.sets import prepare_fences
from nearcast.service.flush_input import FlushInput
from nearcast.service.realm import LISTED, Realm
from nearcast.service.recipients import AcceptedDirect, unknown_recipient
from nearcast.space.motion import SECOND, Time

TICK_EVERY: Time = SECOND // 10
INTERNAL_ERROR = "the node made a mistake; its log has more"


class Flush(Timer, frozen=True):
    """Publish what waits. A host may wake the service for it at any time."""


class Tick(Timer, frozen=True):
    """Fences, throttling and quotas, ten times a second."""


FLUSH, TICK = Flush(), Tick()


class Service(Node):
    """Decides for the clients of a node."""

    def __init__(
        self,
        node_id: NodeId,
        rng: Random,
        realm: Realm,
        limits: Limits,
        *,
        name: str = "",
        clients: int = 10_000,
        requests: int = 500,
        out: Outbox | None = None,
    ) -> None:
        super().__init__(node_id, rng)
        self.out = out or self.out
        self.realm, self.limits = realm, limits
        self.connections = Connections(self.out, limits, name, realm.geometry)
        self.quotas = Quotas(requests)
        self._most_clients = clients
        self._counted: dict[PublicationId, None] = {}  # whose matches are counted

    # Clients. Each input returns its effects; `publish` has none until the next flush.

    def open(self, now: Time, connection: Connection) -> list[Effect]:
        """A client has connected."""
        self._advance(now)
        self.connections.all[connection] = None
        return self.out.drain()

    def join(
        self, now: Time, connection: Connection, request: messages.JoinRequest, grant: Grant
    ) -> list[Effect]:
        """A client joins; the host has found out what its token allows."""
        self._advance(now)
        connection.allow(grant)
        try:
            self._join(connection, request, grant)
        except Exception as error:
            self._on_error(connection, request, error)
        return self.out.drain()

    def request(self, now: Time, connection: Connection, kind: type, request: Any) -> list[Effect]:
        """A client asks for something other than to join or to publish."""
        self._advance(now)
        try:
            self._handle(connection, kind, request)
        except Exception as error:
            self._on_error(connection, request, error)
        return self.out.drain()

    def _on_error(self, connection: Connection, request: Any, error: Exception) -> None:
        """Refused: it is the client's mistake. Anything else is ours, and must be logged."""
        if isinstance(error, Refused):
            self.out.put(Refuse(connection, messages.ErrorNotice(str(error), request.id)))
        else:
            name = connection.client and connection.client.name
            self.out.put(Fault(f"a request of {name!a} failed", error, 1))
            self.connections.reply(connection, messages.ErrorNotice(INTERNAL_ERROR, request.id))

    def publish(
        self, connection: Connection, request: messages.PublishRequest, encoding: messages.Encoding
    ) -> PublicationId:
        """Accept a publication for the next flush, or raise Refused. Called for each, so the host
        sees that a flush follows."""
        if connection.client is None:
            raise Refused("join first")
        if connection.limited and connection.grant is not None:
            check_publishing(connection.grant, request)
        return self.realm.publish(connection.client, request, encoding)

    def send(
        self,
        now: Time,
        connection: Connection,
        request: messages.SendRequest,
        encoding: messages.Encoding,
    ) -> list[Effect]:
        """A client sends a direct message. It does not wait for a flush."""
        self._advance(now)
        try:
            self._send(connection, request, encoding)
        except Exception as error:
            self._on_error(connection, request, error)
        return self.out.drain()

    def count(self, publication: PublicationId) -> None:
        """How many subscriptions this publication matches is wanted (`Counted`)."""
        self._counted[publication] = None

    def close(self, now: Time, connection: Connection) -> list[Effect]:
        """A connection has ended: its client leaves, or is with another node already."""
        self._advance(now)
        connection.ended = True
        self.connections.all.pop(connection, None)
        self._end_client(connection)
        return self.out.drain()

    def end(
        self, now: Time, connection: Connection, reason: str, code: CloseCode = CloseCode.POLICY
    ) -> list[Effect]:
        """The host ends a connection: its client reads nothing, its token has expired, …"""
        self._advance(now)
        self._end(connection, reason, code)
        return self.out.drain()

    def allow(self, now: Time, connection: Connection, grant: Grant | None) -> list[Effect]:
        """The token of a connection allows something else now; None: nothing."""
        self._advance(now)
        if grant is None:
            self._end(connection, "your token is not valid any more")
        else:
            connection.allow(grant)
            self._check_listening(connection)
        return self.out.drain()

    # The hooks of a node.

    def on_start(self) -> None:
        self.out.set_timer(TICK, TICK_EVERY)

    def on_message(self, sender: NodeId, message: Message) -> None:
        """A node alone has no messages from others."""

    def on_timer(self, timer: Timer) -> None:
        if timer == FLUSH:
            self._flush()
        elif timer == TICK:
            self.out.set_timer(TICK, TICK_EVERY)
            self.quotas.forget(self.now / SECOND)
            notices = list(self.realm.tick(self.now))
            if notices:
                self.out.put(Notify(notices))

    # Requests.

    def _join(self, connection: Connection, request: messages.JoinRequest, grant: Grant) -> None:
        """Start a client, or continue one by its handover ticket."""
        assert connection.encoding is not None
        self.quotas.leave(connection)  # an earlier attempt may have been with another token
        self.quotas.enter(connection, grant, self.now / SECOND)
        if request.ticket:
            self._claim(connection, request)
        elif self.connections.clients >= self._most_clients:
            full = messages.ErrorNotice("this node has no room for another client", request.id)
            self.connections.reply(connection, full)
            self._end(connection, f"this node serves at most {self._most_clients} clients")
        else:
            client = self.realm.join(self.now, request.name, connection.encoding)
            self.connections.welcome(self.realm.now, connection, client, request.id)

    def _claim(self, connection: Connection, request: messages.JoinRequest) -> None:  # noqa: ARG002
        """Continue a client of another node by its handover ticket."""
        raise Refused("this node is in no cluster, and knows of no tickets")

    def _handle(self, connection: Connection, kind: type, request: Any) -> None:
        client, realm, now = connection.client, self.realm, self.now
        if client is None:
            raise Refused("join first")
        assert connection.grant is not None
        if kind is messages.NearbyRequest:
            self._check_area(connection.grant, request.area, request.channel)
            found = realm.nearby(now, request, client.form)
            answer = messages.NearbyNotice(found, request.id)
            self.connections.reply(connection, answer, realm.query_cost(len(found)))
            return
        notices = self._apply_request(connection, client, kind, request)
        if request.id is not None:
            number, cost = None, 0
            if kind is messages.SubscribeRequest:
                number = client.subscriptions[request.subscription].subscription.id
                cost = realm.query_cost(0) if request.follow != "" else 0
            done = messages.DoneNotice(request.id, realm.now, subscription=number)
            self.connections.reply(connection, done, cost)
        for notice in notices:
            cost = 0
            if isinstance(notice, messages.InsideNotice):
                cost = realm.query_cost(len(notice.entities))
            self.connections.reply(connection, notice, cost)
        if kind is messages.LeaveRequest:
            self._end(connection, "you left", CloseCode.NORMAL)

    def _apply_request(
        self, connection: Connection, client: ClientState, kind: type, request: Any
    ) -> list[messages.Notice]:
        """What changes interests or states. The notices follow the answer."""
        realm, now, grant = self.realm, self.now, connection.grant
        assert grant is not None
        if kind is messages.MoveRequest:
            known = client.subscriptions.get(request.subscription)
            if known is not None:
                area = Area() if known.follow else request.area
                self._check_area(grant, area, known.subscription.channel)
            realm.move(now, client, request)
        elif kind is messages.SubscribeRequest:
            if request.follow != "":
                check_following(grant, request)
            area = request.area if request.follow == "" else Area()
            self._check_area(grant, area, request.channel)
            check_subscriptions(connection, request.subscription)
            return realm.subscribe(now, client, request)
        elif kind is messages.TuneRequest:
            realm.tune(now, client, request)
        elif kind is messages.UnsubscribeRequest:
            realm.unsubscribe(now, client, request)
        elif kind is messages.WithdrawRequest:
            realm.withdraw(now, client, request)
        elif kind is messages.FencesRequest:
            check_fence_set(grant, request.name)
            self._change_fences(request)
        return []

    def _change_fences(self, request: messages.FencesRequest) -> None:
        texts = [msgspec.json.encode(feature) for feature in request.features]
        prepared = prepare_fences(texts, self.limits, self.realm.geometry, request.replace)
        realm, remove = self.realm, request.remove
        realm.change_fences(self.now, request.name, prepared, remove, request.replace)

    def _check_area(self, grant: Grant, area: Area, channel: str) -> None:
        check_listening(grant, area, channel, self.limits, self.realm.geometry)

    def _check_listening(self, connection: Connection) -> None:
        if not may_listen(connection):
            self._end(connection, "your token does not allow what you listen to any more")

    # Direct messages.

    def _send(
        self, connection: Connection, request: messages.SendRequest, encoding: messages.Encoding
    ) -> None:
        if connection.client is None:
            raise Refused("join first")
        assert connection.grant is not None
        check_sending(connection.grant, request.to)
        message = self.realm.send(self.now, connection.client, request, encoding)
        self._route_direct(connection, request.id, message)

    def _route_direct(
        self, connection: Connection, number: int | None, message: AcceptedDirect
    ) -> None:
        """Deliver it, and answer the request with this id."""
        recipients = self.realm.recipients.find(message.to)
        found = self.connections.deliver_direct(message, recipients)
        if not found:
            raise Refused(unknown_recipient(message.to))
        self.realm.record_direct(message, [client.entity for client in found])
        if number is not None:
            done = messages.DoneNotice(number, message.t, message.number)
            self.connections.reply(connection, done, len(found) // LISTED)

    # The end of connections.

    def _end(self, connection: Connection, reason: str, code: CloseCode = CloseCode.POLICY) -> None:
        if not connection.ended:
            self._end_client(connection)
            connection.ended = True
            self.out.put(CloseConnection(connection, reason, code))

    def _end_client(self, connection: Connection) -> None:
        """The client of this connection leaves, if it has joined."""
        self.quotas.leave(connection)
        client = self.connections.detach(connection)
        if client is not None:
            self.realm.leave(self.now, client)

    # Publications.

    def _flush(self) -> None:
        """Publish what waits; if that fails, each publication by itself, so that one that cannot
        be matched delays no other."""
        if not self.realm.waiting:
            return
        taken = self.realm.take_flush()
        try:
            together = self.realm.publish_flush(self.now, taken)
        except Exception as error:
            what = "publications could not be matched; each is tried by itself"
            self.out.put(Fault(what, error, 0))
            self._flush_one_by_one(taken)
        else:
            self._deliver(together)
        self._notify_fences()
        if self.realm.waiting:  # more than fits into one flush
            self.out.set_timer(FLUSH, 0)

    def _notify_fences(self) -> None:
        """Tell what the flush has changed for fences."""
        try:
            notices = self.realm.fence_notices()
        except Exception as error:
            self.out.put(Fault("fence events could not be computed", error, 0))
        else:
            if notices:
                self.out.put(Notify(notices))

    def _flush_one_by_one(self, taken: FlushInput) -> None:
        for accepted, one in taken.one_by_one():
            try:
                alone = self.realm.publish_flush(self.now, one)
            except Exception as error:
                self._counted.pop(accepted.id, None)
                what = "a publication could not be matched"
                self.out.put(Fault(what, error, 1, accepted.id))
                publisher = self._publisher(accepted)
                if publisher is not None and accepted.request.id is not None:
                    answer = messages.ErrorNotice(INTERNAL_ERROR, accepted.request.id)
                    self.connections.reply(publisher, answer)
            else:
                self._deliver(alone)

    def _publisher(self, accepted: AcceptedPublication) -> Connection | None:
        """The connection of the publisher, if it is a client of this node."""
        return self.connections.of(accepted.client.owner or accepted.client)

    def _deliver(self, flushed: FlushDeliveries) -> None:
        """Deliver, acknowledge and count the publications of one flush."""
        self.out.put(DeliverFlush(flushed))
        for accepted in flushed.looked_at():  # a plain publication has no id
            number = accepted.request.id
            if number is not None:
                publisher = self._publisher(accepted)
                if publisher is not None:
                    done = messages.DoneNotice(number, flushed.t, accepted.id)
                    self.connections.reply(publisher, done)
        if self._counted:
            self._count(flushed)

    def _count(self, flushed: FlushDeliveries) -> None:
        readers = np.bincount(flushed.publication, minlength=len(flushed.publications))
        for number, found in zip(flushed.ids.tolist(), readers.tolist(), strict=True):
            if number in self._counted:
                del self._counted[number]
                self._counted_here(number, flushed.t, found)

    def _counted_here(self, publication: PublicationId, t: Time, readers: int) -> None:
        self.out.put(Counted(publication, t, readers, 0))
