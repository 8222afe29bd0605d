"""Hosts one service in simulated time, as `server.gateway` and `server.cluster_host` do live."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Protocol

import numpy as np
from msgspec import Struct

from nearcast.client_protocol import messages
from nearcast.client_protocol.close_codes import ABNORMAL, CloseCode
from nearcast.client_protocol.geometry_json import Area
from nearcast.errors import InvariantError, Refused
from nearcast.model.subscription import NodeId, PublicationId
from nearcast.node import ClearTimer, Effect, Message, Note, Send, SendMany, SetTimer, Stop, Timer
from nearcast.service.access.grants import Grant
from nearcast.service.client_state import ClientState
from nearcast.service.cluster.messages import CODEC
from nearcast.service.cluster.scaling import Role
from nearcast.service.cluster.service import ClusterService
from nearcast.service.connection import Connection
from nearcast.service.effects import (
    CloseConnection,
    Counted,
    DeliverDirect,
    DeliverFlush,
    DeliverMissed,
    Fault,
    Notify,
    ProbeNode,
    Refuse,
    Reply,
    Serve,
    StopServing,
)
from nearcast.service.frames import delivery_frames, message_frame
from nearcast.service.service import FLUSH
from nearcast.sim.cluster.network import ConnectionStream, MachineId
from nearcast.space.motion import SECOND, Time

EVERYTHING = Grant()
RATE = 1_000_000  # requests a second: no simulated client is refused for its rate
GOODBYE = "the node stops"


class Hangup(Struct, frozen=True):
    """The other end closes the connection; it comes after all that was sent before."""

    reason: str = ""
    code: int = ABNORMAL


class Delivery(Struct, frozen=True):
    """A notice on its way to a client: already decoded, if it is a message; those share one."""

    kind: type[Struct]
    notice: Any


class SimulatedConnection(Connection):
    """A connection between a client and a server; each end has its stream to the other."""

    def __init__(self, server: "ServerHost", client: "ClientEnd", number: int) -> None:
        super().__init__(RATE, server.now / SECOND)
        self.encoding = messages.MSGPACK
        self.server, self.client_end, self.number = server, client, number
        network = server.world.network
        self.to_server = ConnectionStream(
            network, client.machine, server.machine, partial(server.on_frames, self)
        )
        self.to_client = ConnectionStream(
            network, server.machine, client.machine, partial(client.on_frames, self)
        )
        self.entity = -1  # as the client knows it, for the trace
        self.traced: dict[int, int] = {}  # by the client's number of a subscription: the trace's
        self.held: list[tuple[Any, int, PublicationId | None]] = []  # while it is paused
        self.sent_at: dict[PublicationId, Time] = {}  # or held, for a client that does not read
        self.open = False  # as the server knows it
        self.closing = False  # the server has said that it closes it

    @property
    def broken(self) -> bool:
        return self.to_client.broken

    def break_off(self) -> None:
        """Whatever is under way is lost."""
        self.to_client.broken = self.to_server.broken = True


class ClientEnd(Protocol):
    """The client at the other end of a connection."""

    machine: MachineId

    def on_frames(self, connection: SimulatedConnection, items: list[Any]) -> None: ...


class ServerWorld(Protocol):
    """What a host of a server needs of its world."""

    network: Any
    flush_every: Time

    @property
    def now(self) -> Time: ...
    def plan(self, after: Time, act: Callable[[], None]) -> None: ...
    def carry(self, source: "ServerHost", to: NodeId, message: Message, frame: bytes) -> None: ...
    def probe(self, asker: "ServerHost", node: NodeId) -> None: ...
    def note(
        self, t: Time, node: NodeId, fact: str, about: int | None, value: float | None
    ) -> None: ...
    def sent_to_client(
        self, connection: SimulatedConnection, size: int, publication: PublicationId | None,
        arrived: Time,
    ) -> None: ...  # fmt: skip
    def noticed(self, connection: SimulatedConnection, notice: Any) -> None: ...
    def stopped(self, server: "ServerHost") -> None: ...


TIMER, SOCKET = range(2)


class ServerHost:
    """One server: its service, timers and connections. A halted one reads everything later."""

    def __init__(
        self, world: ServerWorld, service: ClusterService, machine: MachineId, url: str,
        clock_offset: Time,
    ) -> None:  # fmt: skip
        self.world, self.service, self.machine, self.url = world, service, machine, url
        self.id, self.realm = service.id, service.realm
        self._clock_offset = clock_offset
        self.alive = True
        self.connections: dict[SimulatedConnection, None] = {}
        self._serving: dict[int, tuple[ClientState, SimulatedConnection]] = {}  # by slot
        self._timers: dict[Timer, object] = {}
        self._flush_planned = False
        self.halted = False
        self._waiting: list[tuple[int, Callable[[], None]]] = []  # while it is halted
        self._handlers: dict[type[Effect], Callable[[Any], None]] = {
            Reply: self._on_reply,
            Refuse: self._on_refuse,
            Notify: self._on_notify,
            DeliverFlush: self._on_deliver_flush,
            DeliverMissed: self._on_deliver_missed,
            DeliverDirect: self._on_deliver_direct,
            Serve: self._on_serve,
            StopServing: self._on_stop_serving,
            CloseConnection: self._on_close_connection,
            SetTimer: self._on_set_timer,
            ClearTimer: self._on_clear_timer,
            Note: self._on_note,
            Counted: lambda _: None,
            Fault: self._on_fault,
            Send: self._on_send,
            SendMany: self._on_send_many,
            ProbeNode: lambda effect: self.world.probe(self, effect.node),
            Stop: lambda _: self._on_stop(),
        }
        self.apply(service.start(self.now))

    @property
    def now(self) -> Time:
        """By its own clock."""
        return self.world.now + self._clock_offset

    def apply(self, effects: Iterable[Effect]) -> None:
        """Carry out what the service decided, in order."""
        handlers = self._handlers
        for effect in effects:
            handlers[type(effect)](effect)

    @property
    def role(self) -> Role:
        return self.service.cluster.scaling.role

    def states(self) -> list[messages.EntityState]:
        """All entities whose retained states it knows."""
        realm = self.realm
        everywhere = messages.NearbyRequest(Area(), limit=realm.limits.nearby)
        return realm.nearby(realm.now, everywhere, messages.MSGPACK)

    # Halts, crashes and the end.

    def halt(self) -> None:
        """Stand still: whatever comes, waits."""
        self.halted = True

    def resume(self, timers_first: bool) -> None:
        """Everything that waits happens now: timers first, or what came from outside."""
        self.halted = False
        waiting, self._waiting = self._waiting, []
        for _, act in sorted(waiting, key=lambda one: (one[0] == TIMER) != timers_first):
            if self.alive:
                act()

    def kill(self) -> None:
        """It is no more, and has said nothing."""
        self.alive = False
        self._waiting.clear()

    def _input(self, rank: int, act: Callable[[], None]) -> None:
        if self.halted:
            self._waiting.append((rank, act))
        elif self.alive:
            act()

    def leave(self) -> None:
        """Leave the cluster; `Stop` follows."""
        self._input(SOCKET, lambda: self.apply(self.service.leave_cluster(self.now)))

    def _on_stop(self) -> None:
        """As a live node stops: what waits is delivered, and all clients are told."""
        while self.realm.waiting:
            self.apply(self.service.wake(self.now, FLUSH))
        for connection in list(self.connections):
            self.apply(self.service.end(self.now, connection, GOODBYE, CloseCode.GOING_AWAY))
        self.alive = False
        self.world.stopped(self)

    # Timers.

    def _on_set_timer(self, effect: SetTimer) -> None:
        if effect.timer == FLUSH:
            self.schedule_flush(effect.delay)
            return
        token = self._timers[effect.timer] = object()
        self.world.plan(effect.delay, partial(self._due, effect.timer, token))

    def _on_clear_timer(self, effect: ClearTimer) -> None:
        self._timers.pop(effect.timer, None)

    def _due(self, timer: Timer, token: object) -> None:
        def wake() -> None:
            if self._timers.get(timer) is token:
                del self._timers[timer]
                self.apply(self.service.wake(self.now, timer))

        self._input(TIMER, wake)

    def schedule_flush(self, after: Time = 0) -> None:
        """Flush soon; a flush that is planned already is not postponed."""
        if not self._flush_planned:
            self._flush_planned = True
            wait = max(after, self.world.flush_every)
            self.world.plan(wait, lambda: self._input(TIMER, self._flush))

    def _flush(self) -> None:
        self._flush_planned = False
        self.apply(self.service.wake(self.now, FLUSH))

    # Other servers.

    def on_messages(self, sender: NodeId, frames: Sequence[bytes]) -> None:
        """What another server has sent arrives."""

        def receive() -> None:
            arrivals = [(sender, CODEC.decode(frame)) for frame in frames]
            self.apply(self.service.receive_many(self.now, arrivals))

        self._input(SOCKET, receive)

    def on_link_broken(self, node: NodeId) -> None:
        self._input(SOCKET, lambda: self.apply(self.service.link_broken(self.now, node)))

    def on_probed(self, node: NodeId, accepts: bool) -> None:
        self._input(SOCKET, lambda: self.apply(self.service.probed(self.now, node, accepts)))

    def _on_send(self, effect: Send) -> None:
        self.world.carry(self, effect.to, effect.message, CODEC.encode(effect.message))

    def _on_send_many(self, effect: SendMany) -> None:
        frame = CODEC.encode(effect.message)
        for one in effect.to:
            self.world.carry(self, one, effect.message, frame)

    # Clients: what they send.

    def on_connect(self, connection: SimulatedConnection, answer: Callable[[], None]) -> None:
        """A client connects; `answer` tells it so."""

        def accept() -> None:
            self.connections[connection] = None
            connection.open = True
            self.apply(self.service.open(self.now, connection))
            answer()

        self._input(SOCKET, accept)

    def on_frames(self, connection: SimulatedConnection, items: list[Any]) -> None:
        self._input(SOCKET, lambda: self._read(connection, items))

    def on_connection_lost(self, connection: SimulatedConnection) -> None:
        """The connection has ended, whoever ended it."""
        self._input(SOCKET, lambda: self._closed(connection))

    def _read(self, connection: SimulatedConnection, items: list[Any]) -> None:
        for item in items:
            if isinstance(item, Hangup):
                self._closed(connection)
            elif not connection.closing and self.alive:
                self._handle_frame(connection, item)

    def _closed(self, connection: SimulatedConnection) -> None:
        if connection.open:
            connection.open = False
            del self.connections[connection]
            self.apply(self.service.close(self.now, connection))

    def _handle_frame(self, connection: SimulatedConnection, frame: bytes) -> None:
        """As `Gateway._handle_frame`, without limits that no simulated client reaches."""
        service, encoding = self.service, messages.MSGPACK
        if connection.elsewhere is not None:
            self.apply(service.forward(self.now, connection, frame, True))
            return
        request = encoding.decode_request(frame)
        try:
            if type(request) is encoding.publish_class:
                service.publish(connection, request, encoding)
                self.schedule_flush()
                return
            kind = encoding.message_class(request)
            if kind is messages.SendRequest:
                self.apply(service.send(self.now, connection, request, encoding))
            elif kind is not messages.JoinRequest:
                self.apply(service.request(self.now, connection, kind, request))
            elif connection.client is not None or connection.joining:
                raise Refused("you have joined already, or your join is under way")
            else:
                self.apply(service.join(self.now, connection, request, EVERYTHING))
        except Refused as why:
            self._send_notice(connection, messages.ErrorNotice(str(why), request.id))

    # Clients: what they are sent.

    def _write(
        self, connection: SimulatedConnection, item: Any, size: int,
        publication: PublicationId | None = None,
    ) -> None:  # fmt: skip
        if publication is not None:
            connection.sent_at.setdefault(publication, self.world.now)
        if connection.paused:
            connection.held.append((item, size, publication))
            return
        arrived = connection.to_client.send(item, size)
        self.world.sent_to_client(connection, size, publication, arrived)

    def resume_reading(self, connection: SimulatedConnection) -> None:
        """The client reads again: what waited for it is sent now."""
        connection.paused = False
        held, connection.held = connection.held, []
        for item, size, publication in held:
            self._write(connection, item, size, publication)

    def _send_notice(self, connection: Connection, notice: messages.Notice) -> None:
        assert isinstance(connection, SimulatedConnection)
        if not connection.closing:
            frame = messages.MSGPACK.encode(notice)
            self._write(connection, frame, len(frame))
            self.world.noticed(connection, notice)

    def _on_reply(self, reply: Reply) -> None:
        self._send_notice(reply.connection, reply.notice)

    def _on_refuse(self, refuse: Refuse) -> None:
        self._send_notice(refuse.connection, refuse.error)

    def _on_notify(self, notify: Notify) -> None:
        for client, notice in notify.notices:
            found = self._serving.get(client.slot)
            if found is not None and found[0] is client:
                self._send_notice(found[1], notice)

    def _on_serve(self, serve: Serve) -> None:
        assert isinstance(serve.connection, SimulatedConnection)
        self._serving[serve.client.slot] = serve.client, serve.connection

    def _on_stop_serving(self, stop: StopServing) -> None:
        found = self._serving.get(stop.client.slot)
        if found is not None and found[0] is stop.client:
            del self._serving[stop.client.slot]

    def _on_deliver_flush(self, deliver: DeliverFlush) -> None:
        """Frames are built once for all clients, and decoded once."""
        flushed = deliver.flushed
        packed = np.ones(len(self.realm.clients), np.bool_)
        post = delivery_frames(flushed, self.realm.numbers, packed)
        decoded: dict[int, Delivery] = {}  # by frame: clients share them
        starts, which = post.starts.tolist(), post.which.tolist()
        ids = flushed.ids[post.publications].tolist() if flushed.ids is not None else []
        for slot, first, last in zip(post.clients.tolist(), starts, starts[1:], strict=False):
            found = self._serving.get(slot)
            if found is None:
                continue
            for i in range(first, last):
                delivery = decoded.get(which[i])
                if delivery is None:
                    delivery = decoded[which[i]] = _decode_message(post.frame(which[i]))
                self._write(found[1], delivery, len(post.frame(which[i])), ids[i])

    def _on_deliver_missed(self, missed: DeliverMissed) -> None:
        assert isinstance(missed.connection, SimulatedConnection)
        number = missed.publication
        frame = message_frame(number, missed.t, missed.client.form, list(missed.numbers))
        self._write(missed.connection, _decode_message(frame), len(frame), number.id)

    def _on_deliver_direct(self, deliver: DeliverDirect) -> None:
        self._send_notice(deliver.connection, deliver.notice)

    def _on_close_connection(self, close: CloseConnection) -> None:
        connection = close.connection
        assert isinstance(connection, SimulatedConnection)
        self.resume_reading(connection)
        self._send_notice(connection, messages.ByeNotice(close.reason))
        connection.closing = True
        connection.to_client.send(Hangup(close.reason, close.code), 4)

    def _on_note(self, note: Note) -> None:
        self.world.note(self.now, self.id, note.fact, note.about, note.value)

    def _on_fault(self, fault: Fault) -> None:
        raise InvariantError(f"at {self.now} node {self.id}: {fault.what}") from fault.error


def _decode_message(frame: bytes) -> Delivery:
    """A WebSocket frame of a server: two, four or ten bytes, then the body."""
    size = frame[1]
    start = 2 if size < 126 else 4 if size == 126 else 10
    return Delivery(messages.MessageNotice, messages.MSGPACK.read_notice(frame[start:]))
