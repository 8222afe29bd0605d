"""Hosts one client core in simulated time, and obeys the commands of a workload's life.

What the core delivers to its application is recorded in the trace and shown to the checkers.
"""

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any, Protocol

import msgspec
from msgspec import Raw, Struct

from nearcast.client.core import ClientCore, Phase
from nearcast.client.effects import (
    Again,
    Ask,
    Changed,
    ClientParameters,
    Connect,
    Disconnect,
    Ended,
    Failed,
    SubscriptionEnded,
    Told,
    Welcomed,
)
from nearcast.client.received import DirectMessage, Disconnected, HandedOver, Left, Message
from nearcast.client_protocol import messages
from nearcast.client_protocol.geometry_json import area_from_region, publication_fields
from nearcast.errors import InvariantError
from nearcast.model.commands import Command, Leave, Move, Publish, Subscribe, Tune, Unsubscribe
from nearcast.model.subscription import Filter, NodeId
from nearcast.node import ClearTimer, SetTimer, Timer
from nearcast.sim.cluster.network import MachineId
from nearcast.sim.cluster.server_host import Delivery, Hangup, ServerHost, SimulatedConnection
from nearcast.space.motion import SECOND, Time

HOLD_BACK = ClientParameters().hold_back
KINDS = {messages.PublishRequest: "publish", messages.SendRequest: "send"}  # in the trace
WITHDRAWN: Time = 2 * SECOND  # by then a state is withdrawn that is not to stay
OPEN_AGAIN: Time = SECOND  # after which an application that found no node tries again


class ClientWorld(Protocol):
    """What a host of a client needs of its world."""

    network: Any

    @property
    def now(self) -> Time: ...
    def plan(self, after: Time, act: Callable[[], None]) -> None: ...
    def at_url(self, url: str) -> ServerHost | None: ...
    def machine_at(self, url: str) -> MachineId: ...
    def first_url(self, client: NodeId) -> str: ...
    def sent_to_server(self, connection: SimulatedConnection, kind: str, size: int,
                       arrived: Time) -> None: ...  # fmt: skip
    def arrived_at_client(self, connection: SimulatedConnection, notice: Any) -> None: ...
    def delivered(
        self, client: "ClientHost", connection: SimulatedConnection, message: Message, again: bool,
        subscriptions: tuple[int, ...],
    ) -> None: ...  # fmt: skip
    def choose_recipient(self, rng: Random) -> "tuple[int, ClientHost] | None": ...
    def sent_direct(self, number: int, client: "ClientHost", recipient: "ClientHost") -> None: ...
    def refused_direct(self, number: int, why: Exception) -> None: ...
    def received_direct(self, client: "ClientHost", message: DirectMessage) -> None: ...
    def welcomed(self, client: "ClientHost", entity: int, server: NodeId) -> None: ...
    def reported_gone(self, entity: int) -> None: ...
    def lost_server(self, client: "ClientHost", reason: str) -> None: ...
    def served(self, client: "ClientHost") -> None: ...


class ClientHost:
    """One client: its core, its connections, and what its application wants."""

    def __init__(self, world: ClientWorld, number: NodeId, rng: Random, retains: bool) -> None:
        self._world, self.number, self._rng, self.retains = world, number, rng, retains
        self.watches = False  # who is in its areas
        self.machine: MachineId = number
        self.name = f"client {number}"
        self.alive = True
        self.state: tuple[float, float] | None = None  # where it was retained last
        self.withdraws = rng, 0.0  # a state, and how often
        self.sends = rng, 0.0  # a direct message when it publishes, and how often
        self.ttl: float | None = None  # of its retained states
        self.connections: dict[int, SimulatedConnection] = {}
        self._opening: dict[int, SimulatedConnection | None] = {}
        self._timers: dict[Timer, object] = {}
        self._asked: dict[int, int] = {}  # by request: the subscription that it asks for
        self._wanted: dict[int, Subscribe] = {}  # by the workload's number
        self._numbers: dict[int, int] = {}  # by the workload's number: the core's
        self._subscribing: dict[int, int] = {}  # by request: the workload's number
        self._held_from: dict[int, SimulatedConnection] = {}  # by publication, if it may be held
        self._served_by: SimulatedConnection | None = None  # or was last
        self._welcoming: SimulatedConnection | None = None  # that has sent a welcome
        self._handed_over: Time = 0  # when it was last
        self.offers = self.handovers = 0  # to other servers: asked to go, and gone
        self._make_core()

    def _make_core(self) -> None:
        self.core = ClientCore(self.name, self._rng)
        self._first_url = ""  # that its application has given
        self.connections, self._opening, self._timers = {}, {}, {}
        self._numbers, self._subscribing, self._asked = {}, {}, {}
        self._sent: dict[int, int] = {}  # by request: which direct message

    @property
    def is_served(self) -> bool:
        phases = (Phase.SERVED, Phase.HANDED_OVER)
        return self.alive and self.core.phase in phases and self.connection is not None

    @property
    def connection(self) -> SimulatedConnection | None:
        """To the server that serves it."""
        served_by = self._served_by
        known = served_by is not None and self.connections.get(served_by.number) is served_by
        return served_by if known else None

    @property
    def entity(self) -> int:
        return self.core.entity

    @property
    def wanted(self) -> set[int]:
        """The subscriptions that its application wants to have, by the core's numbers."""
        return {self._numbers.get(number, -1) for number in self._wanted}

    def is_late(self, connection: SimulatedConnection) -> bool:
        """Does its former server still send, after the time for which it waits for that one?"""
        held = self._world.now - self._handed_over < HOLD_BACK
        return connection is not self._served_by and not held

    # The application.

    def open(self) -> None:
        self._first_url = self._world.first_url(self.number)
        self._apply(self.core.open(self._world.now))

    def kill(self) -> None:
        """It is no more, and has said nothing."""
        self.alive = False
        for connection in self.connections.values():
            connection.break_off()

    def obey(self, command: Command) -> None:
        core, now = self.core, self._world.now
        match command:
            case Publish():
                self.publish(command)
            case Move(number, region):
                if number in self._wanted:
                    self._wanted[number] = self._wanted[number].moved(region)
                if number in self._numbers:
                    request = messages.MoveRequest(
                        self._numbers[number], area_from_region(region, core.geometry)
                    )
                    self._apply(core.move(now, request, region)[1])
            case Subscribe():
                self._wanted[command.subscription] = command
                self._subscribe(command)
            case Tune(number, variables):
                if number in self._numbers:
                    tune = messages.TuneRequest(self._numbers[number], variables)
                    self._apply(core.request(now, tune)[1])
            case Unsubscribe(number):
                self._wanted.pop(number, None)
                if number in self._numbers:
                    ended = messages.UnsubscribeRequest(self._numbers.pop(number))
                    self._apply(core.request(now, ended)[1])
            case Leave():
                self._apply(core.close(now))
                self.alive = False

    def withdraw(self, channel: str | None = None) -> None:
        """Take its retained state back."""
        self.state = None
        request = messages.WithdrawRequest(channel)
        self._apply(self.core.request(self._world.now, request)[1])

    def wake(self, timer: Timer) -> None:
        """This timer is due now."""
        self._timers.pop(timer, None)
        self._apply(self.core.wake(self._world.now, timer))

    def publish(self, command: Publish) -> None:
        shape = command.shape
        payload = Raw(msgspec.msgpack.encode(command.payload)) if command.payload else None
        request = messages.PublishRequest(
            payload=messages.NO_PAYLOAD if payload is None else payload, retain=self.retains,
            attributes=command.attributes, channel=command.channel,
            ttl=self.ttl if self.retains else None,
            **publication_fields(shape, self.core.geometry),
        )  # fmt: skip
        if self.retains:
            self.state = shape.x, shape.y
            self._plan_withdrawal()
        self._apply(self.core.request(self._world.now, request, confirm=self.retains)[1])
        rng, often = self.sends
        if often and rng.random() < often:
            self.send_direct(rng)

    def send_direct(self, rng: Random) -> None:
        """Send a direct message to a client that is there, by its name or its number."""
        chosen = self._world.choose_recipient(rng)
        if chosen is None:
            return
        number, recipient = chosen
        to = recipient.name if rng.random() < 0.5 else recipient.entity
        self._world.sent_direct(number, self, recipient)
        request = messages.SendRequest(to, messages.MSGPACK.encode_payload(number))
        asked, effects = self.core.request(self._world.now, request)
        self._sent[asked] = number
        self._apply(effects)

    def _plan_withdrawal(self) -> None:
        rng, often = self.withdraws
        if often and rng.random() < often:

            def withdraw() -> None:
                if self.alive and self.state is not None:
                    self.withdraw()

            self._world.plan(rng.randint(0, WITHDRAWN), withdraw)

    def _subscribe(self, wanted: Subscribe) -> None:
        region, text = wanted.region, wanted.filter
        if isinstance(text, Filter):
            text = text.text
        request = messages.SubscribeRequest(
            0, area_from_region(region, self.core.geometry), text, wanted.channel, wanted.echo,
            wanted.variables, self.watches,
        )  # fmt: skip
        number, state, effects = self.core.subscribe(self._world.now, request, region)
        self._numbers[wanted.subscription] = state.number
        self._subscribing[number] = wanted.subscription
        self._apply(effects)

    def _subscribe_again(self, number: int) -> None:
        """What was asked for, and not answered, is asked for again."""
        wanted = self._wanted.get(number)
        if wanted is not None and self.alive:
            self._subscribe(wanted)

    # Effects of the core.

    def _apply(self, effects: list[Any]) -> None:
        for effect in effects:
            match effect:
                case Message():
                    self._deliver(effect, again=False)
                case Again(message):
                    self._deliver(message, again=True)
                case Ask(connection, request, number):
                    self._ask(connection, request, number)
                case SetTimer(timer, delay):
                    token = self._timers[timer] = object()
                    self._world.plan(delay, partial(self._due, self.core, timer, token))
                case ClearTimer(timer):
                    self._timers.pop(timer, None)
                case Connect(number, url):
                    self._connect(number, url)
                case Disconnect(number):
                    self._disconnect(number)
                case DirectMessage():
                    self._world.received_direct(self, effect)
                case Failed(number, why) if number in self._sent:
                    self._world.refused_direct(self._sent.pop(number), why)
                case Failed(number, _) if number in self._subscribing:
                    again = self._subscribing.pop(number)
                    if self.core.phase is not Phase.ENDED:
                        self._world.plan(0, partial(self._subscribe_again, again))
                case Ended(_):
                    self._on_ended()
                case Told(Disconnected(reason, _)):
                    self._world.lost_server(self, reason)
                case Told(HandedOver()):
                    self._on_handed_over()
                case Changed(_, Left(who, gone)) if gone:
                    self._world.reported_gone(who.entity)
                case Welcomed():
                    self._served_by = self._welcoming
                case SubscriptionEnded(number, why):
                    raise InvariantError(f"{self.name}: subscription {number} was refused: {why}")

    def _on_handed_over(self) -> None:
        """It is served by another connection, with the same subscriptions."""
        assert self._welcoming is not None and self._served_by is not None
        self._welcoming.traced = self._served_by.traced
        self._served_by, self._handed_over = self._welcoming, self._world.now
        self.handovers += 1

    def _due(self, core: ClientCore, timer: Timer, token: object) -> None:
        if self.alive and self.core is core and self._timers.get(timer) is token:
            del self._timers[timer]
            self._apply(core.wake(self._world.now, timer))

    def _on_ended(self) -> None:
        """It found no node: an application tries again."""
        if self.alive:
            self._world.plan(OPEN_AGAIN, self._open_again)

    def _open_again(self) -> None:
        if self.alive:
            self._make_core()
            self.open()
            for wanted in self._wanted.values():
                self._subscribe(wanted)

    # Connections.

    def _connect(self, number: int, url: str | None) -> None:
        world, core = self._world, self.core
        url = url or self._first_url
        network = world.network
        self._opening[number] = None
        there = network.arrival(self.machine, world.machine_at(url), 100)
        network.queue.at(there, partial(self._call, core, number, url))

    def _call(self, core: ClientCore, number: int, url: str) -> None:
        """The wish to connect has arrived at that address."""
        if core is not self.core or number not in self._opening or not self.alive:
            return
        server, network = self._world.at_url(url), self._world.network
        back = partial(network.arrival, self._world.machine_at(url), self.machine, 100)
        if server is None:
            network.queue.at(back(), partial(self._refused, core, number))
            return
        connection = self._opening[number] = SimulatedConnection(server, self, number)

        def answer() -> None:
            network.queue.at(back(), partial(self._connected, core, connection))

        server.on_connect(connection, answer)

    def _refused(self, core: ClientCore, number: int) -> None:
        if core is self.core and number in self._opening and self.alive:
            del self._opening[number]
            why = ConnectionRefusedError("nobody listens there")
            self._apply(core.connect_failed(self._world.now, number, why))

    def _connected(self, core: ClientCore, connection: SimulatedConnection) -> None:
        number = connection.number
        known = core is self.core and self._opening.get(number) is connection and self.alive
        if not known or connection.broken:
            if not connection.broken:
                connection.to_server.send(Hangup(), 4)
            return
        del self._opening[number]
        self.connections[number] = connection
        self._apply(core.connected(self._world.now, number))

    def on_lost(self, connection: SimulatedConnection, reason: str, code: int) -> None:
        """The connection has ended at this end."""
        if self._opening.pop(connection.number, None) is connection:
            why = ConnectionError("it broke at once")
            self._apply(self.core.connect_failed(self._world.now, connection.number, why))
        elif self.connections.get(connection.number) is connection and self.alive:
            del self.connections[connection.number]
            self._apply(self.core.lost(self._world.now, connection.number, reason, code))

    def _disconnect(self, number: int) -> None:
        self._opening.pop(number, None)
        connection = self.connections.pop(number, None)
        if connection is not None and not connection.broken:
            connection.to_server.send(Hangup(), 4)

    def _ask(self, number: int, request: messages.Request, request_number: int) -> None:
        connection = self.connections[number]
        frame = messages.MSGPACK.encode(request)
        if isinstance(request, messages.SubscribeRequest):
            self._asked[request_number] = request.subscription
        arrived = connection.to_server.send(frame, len(frame))
        kind = KINDS.get(type(request), "request")
        self._world.sent_to_server(connection, kind, len(frame), arrived)

    # What arrives.

    def on_frames(self, connection: SimulatedConnection, items: list[Any]) -> None:
        for item in items:
            if self.connections.get(connection.number) is not connection or not self.alive:
                return
            if isinstance(item, Delivery):
                self._on_message(connection, item.notice)
            elif isinstance(item, Hangup):
                connection.to_server.send(Hangup(), 4)  # its answer
                self.on_lost(connection, item.reason, item.code)
            else:
                notice = messages.MSGPACK.read_notice(item)
                self._on_notice(connection, messages.MSGPACK.message_class(notice), notice)

    def _on_message(self, connection: SimulatedConnection, notice: Any) -> None:
        self._world.arrived_at_client(connection, notice)
        effect = self.core.message(connection.number, notice)
        if effect is None:
            self._held_from[notice.publication] = connection
        elif isinstance(effect, Again):
            self._deliver(effect.message, again=True, connection=connection)
        else:
            self._deliver(effect, again=False, connection=connection)

    def _on_notice(self, connection: SimulatedConnection, kind: type[Struct], notice: Any) -> None:
        if kind is messages.DoneNotice and notice.subscription is not None:
            number = self._asked.pop(notice.id, None)
            if number is not None:
                connection.traced[number] = notice.subscription
            self._subscribing.pop(notice.id, None)
        elif kind is messages.MovedNotice:
            self.offers += 1
        elif kind is messages.WelcomeNotice:
            self._welcoming, connection.entity = connection, notice.entity
            self._world.welcomed(self, notice.entity, connection.server.id)
        served = self.is_served
        self._apply(self.core.received(self._world.now, connection.number, kind, notice))
        if self.is_served and not served:
            self._world.served(self)

    def _deliver(
        self, message: Message, again: bool, connection: SimulatedConnection | None = None
    ) -> None:
        held_from = self._held_from.pop(message.publication, None) if self._held_from else None
        connection = connection or held_from
        assert connection is not None
        missing = [number for number in message.to if number not in connection.traced]
        if missing:
            raise InvariantError(f"{self.name} got a message for unknown subscriptions {missing}")
        subscriptions = tuple(connection.traced[number] for number in message.to)
        self._world.delivered(self, connection, message, again, subscriptions)
