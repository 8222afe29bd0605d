"""Clients of a simulated cluster that are handed over, as `docs/reference/wire.md` asks them to.

Nodes have real gateways and sessions here; only sockets and clients are simulated. Clients keep all
that they received on each connection.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable
from functools import partial
from random import Random
from types import SimpleNamespace
from typing import Any

from msgspec.structs import replace

from nearcast.client.core import ClientCore, Phase
from nearcast.client.effects import (
    Answered,
    Ask,
    ClientEffect,
    ClientParameters,
    Connect,
    Disconnect,
    Ended,
    HoldBackDue,
    JoinDue,
    Told,
    Welcomed,
)
from nearcast.client.received import Message
from nearcast.client_protocol import messages
from nearcast.client_protocol.geometry_json import Area
from nearcast.node import ClearTimer, Effect, Send, SendMany, SetTimer, Timer
from nearcast.server.access.tokens import AccessControl
from nearcast.server.config import LimitSettings
from nearcast.server.gateway import Gateway
from nearcast.server.session import Session
from nearcast.service.client_state import ClientState
from nearcast.service.cluster.messages import (
    CODEC,
    ClientTransfer,
    HandoverAccepted,
    HandoverClaim,
    HandoverConfirmed,
    HandoverOffer,
)
from nearcast.service.cluster.realm import OVERDUE
from nearcast.service.cluster.subscription_registry import TELL_EVERY, UNCONFIRMED
from nearcast.service.effects import Fault
from nearcast.service.realm import HOPS
from nearcast.space.motion import SECOND, Moving, Time
from nearcast.space.shapes import disc
from support.brute_force import expected
from support.simulated_cluster import FLUSH_S, PARAMETERS, SIDE, SimulatedCluster, SimulatedNode

TIMER, SOCKET = 0, 1  # what a node finds to do when it has stood still, in either order
HELD: Time = ClientParameters().hold_back
AGREED: Time = UNCONFIRMED + TELL_EVERY  # by then homes and sites agree who wants what
OUTSIDE = SimpleNamespace(halted=0)  # clients never stand still


class TimerHandle:
    """What a loop's `call_later` gives."""

    def __init__(self, act: Callable[[], Any]) -> None:
        self._act: Callable[[], Any] | None = act

    def cancel(self) -> None:
        self._act = None

    def __call__(self) -> None:
        if self._act is not None:
            self._act()


class Clock:
    """The part of an event loop that a gateway needs, in simulated time."""

    def __init__(self, node: "HomeNode") -> None:
        self._node = node

    def call_soon(self, act: Callable[..., Any], *given: Any) -> TimerHandle:
        return self.call_later(FLUSH_S, act, *given)

    def call_later(self, seconds: float, act: Callable[..., Any], *given: Any) -> TimerHandle:
        timer, sim_cluster = TimerHandle(partial(act, *given)), self._node.sim_cluster
        sim_cluster.at(
            sim_cluster.now + int(seconds * SECOND), self._node, timer, self._node.ranks[TIMER]
        )
        return timer


class SimulatedGateway(Gateway):
    """Flushes at times that do not depend on this machine."""

    def __init__(self, node: "HomeNode") -> None:
        self._recorder = node.sim_cluster.recorder
        limits = LimitSettings(requests=100_000)
        super().__init__(node.service, limits, AccessControl(), node.now)
        self.handlers |= {Send: self._send, SendMany: self._send}
        self.forward = lambda *given: self.apply(node.service.forward(node.now(), *given))
        self._node = node

    def _send(self, effect: Send | SendMany) -> None:
        SimulatedNode.apply(self._node, [effect])

    def on_fault(self, fault: Fault) -> None:
        raise fault.error

    def schedule_flush(self, after: float = 0.0) -> None:
        if self._flush_timer is None:
            self._flush_timer = self.loop.call_later(max(after, FLUSH_S), self.flush)

    def record_delivery(
        self, client: ClientState, publication: int, subscriptions: tuple[int, ...]
    ) -> None:
        self._recorder.delivered(self.now(), client.entity, publication, subscriptions, HOPS)


class HomeNode(SimulatedNode):
    """A node that serves clients."""

    gateway: SimulatedGateway
    parameters = replace(PARAMETERS, site_beat_ms=1000.0)  # as a node has it: `Entrance`

    def serve(self) -> None:
        self.ranks = self.sim_cluster.random.choice(((0, 1), (1, 0)))
        clock: Any = Clock(self)
        asyncio._set_running_loop(clock)
        try:
            self.gateway = SimulatedGateway(self)
        finally:
            asyncio._set_running_loop(None)

    def apply(self, effects: list[Effect]) -> None:
        self.gateway.apply(effects)

    def wake(self, timer: Timer) -> None:
        self.gateway.wake(timer)

    def receive(self, sender: int, frame: bytes) -> None:
        self.gateway.before_input()
        super().receive(sender, frame)

    def nearby(self) -> list[str]:
        """The names of all whose state this node knows."""
        found = self.realm.nearby(self.now(), messages.NearbyRequest(Area(), limit=1000))
        return sorted(one.name for one in found)

    def entities(self) -> list[int]:
        return sorted(client.entity for client in self.realm.clients if client is not None)


class Quiet:
    """A part of a transport that does nothing, whatever it is asked."""

    def __getattr__(self, _: str) -> Callable[..., Any]:
        return lambda *_, **__: Quiet()


class Wire(Quiet):
    """A transport at a node: what is written there reaches the client."""

    def __init__(self, connection: "Connection") -> None:
        self._connection = connection

    @property
    def underlying_transport(self) -> "Wire":
        return self

    def write(self, frames: bytes) -> None:
        self._connection.to_client(partial(self._connection.read, bytes(frames)))

    def send_close(self, *_: Any) -> None:
        self._connection.to_client(self._connection.ended)

    def abort(self) -> None:
        self._connection.to_client(self._connection.ended)


class Connection:
    """Between a client and a node; nothing overtakes in either direction."""

    def __init__(self, client: "SimulatedClient", home: HomeNode, number: int) -> None:
        self.client, self.home, self.sim_cluster = client, home, client.sim_cluster
        self.number = number  # as the client's core counts
        self.session = Session(home.gateway)
        self.session.encoding = messages.MSGPACK
        self.opened = self.sim_cluster.now
        self.over = False  # as the client sees it
        self.received_messages: list[tuple[int, Time, int]] = []  # who, when, what
        self._wire: Any = Wire(self)
        self._there = self._here = 0
        self._to_node(partial(self.session.on_ws_connected, self._wire))

    def _takes(self) -> Time:
        return self.sim_cluster.random.randrange(500, 5_000)

    def _to_node(self, act: Callable[[], Any]) -> None:
        self._there = max(self._there, self.sim_cluster.now + self._takes())
        self.sim_cluster.at(self._there, self.home, act, self.home.ranks[SOCKET])

    def to_client(self, act: Callable[[], Any]) -> None:
        self._here = max(self._here, self.sim_cluster.now + self._takes())
        self.sim_cluster.at(self._here, OUTSIDE, act)

    def send_request(self, message: messages.Request) -> None:
        self._to_node(partial(self._receive, messages.MSGPACK.encode(message)))

    def _receive(self, frame: bytes) -> None:
        if not self.session.closing:
            self.home.gateway.read(self.session, frame, True)

    def close(self) -> None:
        if not self.over:
            self.over = True
            self._to_node(self._closed)

    def _closed(self) -> None:
        if self.session in self.home.gateway.sessions:
            self.session.on_ws_disconnected(self._wire)

    def ended(self) -> None:
        if not self.over:
            self.close()
            self.client.lost(self)

    def read(self, frames: bytes) -> None:
        while frames and not self.over:
            size, at = frames[1], 2
            if size == 126:
                size, at = int.from_bytes(frames[2:4], "big"), 4
            message = messages.MSGPACK.read_notice(frames[at : at + size])
            self.client.on_notice(self, messages.MSGPACK.message_class(message), message)
            frames = frames[at + size :]


class SimulatedClient:
    """Listens around itself, says where it is, retained or not, and goes where it is sent.

    It hosts a client core in simulated time. Nodes do not promise the order of what is retained and
    what is not.
    """

    def __init__(
        self,
        sim_cluster: "HandoverCluster",
        name: str,
        home: HomeNode,
        x: float,
        y: float,
        retains: bool,
    ) -> None:
        self.sim_cluster, self.name, self.x, self.y, self.retains = sim_cluster, name, x, y, retains
        self.core = ClientCore(name, Random(name), reconnects=False)
        self.subscription: int | None = None  # its number in the trace
        self.connections: list[Connection] = []  # the core counts them from 1
        self.messages: list[tuple[int, Time, int]] = []
        self.received_at: list[Time] = []  # each of them
        self.moved = self.came = self.stayed = 0  # how often it was sent, and what came of it
        self.losses: list[str] = []
        self.late: set[int] = set()  # what a former node said after its time (rule 5)
        self._first_home = home
        self._timers: dict[Timer, object] = {}
        self._perform(self.core.open(sim_cluster.now))

    @property
    def entity(self) -> int:
        return self.core.entity

    @property
    def connection(self) -> Connection:
        """To the node that serves it."""
        assert self.core.connection is not None
        return self.connections[self.core.connection - 1]

    @property
    def joining(self) -> Connection | None:
        return self.connections[-1] if self.core.phase is Phase.HANDED_OVER else None

    @property
    def home(self) -> HomeNode:
        return self.connection.home

    def walk(self, x: float, y: float) -> None:
        """It goes there, with its area of interest, and publishes its position."""
        if self.core.serving is None:
            return  # while it is being handed over, it asks for nothing
        self.x, self.y = x, y
        shape = disc(x, y, 60.0)
        request = messages.MoveRequest(1, Area(x, y, r=60.0))
        self._perform(self.core.move(self.sim_cluster.now, request, Moving(shape), True)[1])
        self.publish()

    def publish(
        self, x: float | None = None, y: float | None = None, r: float | None = None
    ) -> None:
        """Where it is, or elsewhere; with `r` to a disc."""
        x, y = self.x if x is None else x, self.y if y is None else y
        if self.core.serving is not None:
            request = messages.PublishRequest(x, y, retain=self.retains, r=r)
            self._perform(self.core.request(self.sim_cluster.now, request)[1])

    def give_up(self) -> None:
        """It has waited long enough for the node that it is joining."""
        self._perform(self.core.wake(self.sim_cluster.now, JoinDue(len(self.connections))))

    def leave(self) -> None:
        """Without a request to leave."""
        for connection in self.connections:
            connection.close()

    # What nodes send.

    def on_notice(self, connection: Connection, kind: type, message: Any) -> None:
        if kind is messages.MessageNotice:
            connection.received_messages.append((message.source, message.t, message.publication))
            former = HoldBackDue(connection.number) in self._timers
            if connection is not self.connection and not former:
                self.late.add(message.publication)
        if kind is messages.ErrorNotice:
            assert connection is self.joining or message.id is None, message
        self._perform(self.core.received(self.sim_cluster.now, connection.number, kind, message))

    def lost(self, connection: Connection) -> None:
        self._perform(self.core.lost(self.sim_cluster.now, connection.number))

    # What its core asks for.

    def _perform(self, effects: list[ClientEffect]) -> None:
        if ClearTimer(JoinDue(len(self.connections))) in effects:
            arrived = any(isinstance(effect, Told) for effect in effects)
            self.came += arrived
            self.stayed += not arrived
        for effect in effects:
            match effect:
                case Connect(_, url):
                    self._connect(url)
                case Disconnect(number):
                    self.connections[number - 1].close()
                case Ask(number, request, _):
                    self.connections[number - 1].send_request(request)
                case SetTimer(timer, delay):
                    self._timers[timer] = token = object()
                    self.sim_cluster.at(
                        self.sim_cluster.now + delay, OUTSIDE, partial(self._wake, timer, token)
                    )
                case ClearTimer(timer):
                    self._timers.pop(timer, None)
                case Message(source, publication, t):
                    self.messages.append((source, t, publication))
                    self.received_at.append(self.sim_cluster.now)
                case Welcomed():
                    self._listen()
                case Answered(_, done):  # of whatever class its encoding has for it
                    number = getattr(done, "subscription", None)
                    self.subscription = self.subscription if number is None else number
                case Ended(why):
                    self.losses.append(str(why))

    def _connect(self, url: str | None) -> None:
        home = self._first_home if url is None else self.sim_cluster.at_url(url)
        connection = Connection(self, home, len(self.connections) + 1)
        self.connections.append(connection)
        if url is not None:
            self.moved += 1
            self.sim_cluster.on_sent(messages.MovedNotice)
        self._perform(self.core.connected(self.sim_cluster.now, connection.number))

    def _wake(self, timer: Timer, token: object) -> None:
        if self._timers.get(timer) is token:
            del self._timers[timer]
            self._perform(self.core.wake(self.sim_cluster.now, timer))

    def _listen(self) -> None:
        region = Moving(disc(self.x, self.y, 60.0))
        request = messages.SubscribeRequest(0, Area(self.x, self.y, r=60.0))
        self._perform(self.core.subscribe(self.sim_cluster.now, request, region, True)[2])
        self.publish()


class HandoverCluster(SimulatedCluster):
    """A simulated cluster whose clients change nodes."""

    nodes: dict[int, Any]

    def __init__(
        self, seed: int, nodes: int, node_type: type[HomeNode] = HomeNode, standbys: int = 0
    ) -> None:
        self.clients: list[SimulatedClient] = []
        self.on_sent: Callable[[type], None] = lambda _: None  # told of each message
        self.loses: Callable[[type], bool] = lambda _: False  # those never arrive
        self.between: tuple[HomeNode, HomeNode]  # of the last message
        super().__init__(seed, nodes, node_type, standbys)

    def carry(self, sender: int, to: int, frame: bytes) -> None:
        kind = type(CODEC.decode(frame))
        self.between = self.nodes[sender], self.nodes[to]
        if not self.loses(kind):
            super().carry(sender, to, frame)
        self.on_sent(kind)

    def at_url(self, url: str) -> HomeNode:
        return next(node for node in self.nodes.values() if node.member.url == url)

    def client(self, home: HomeNode, x: float, y: float, retains: bool = True) -> SimulatedClient:
        client = SimulatedClient(self, f"c{len(self.clients)}", home, x, y, retains)
        self.clients.append(client)
        return client

    def halt(self, home: HomeNode, seconds: float) -> None:
        home.halted = max(home.halted, self.now + int(seconds * SECOND))

    def cut(self, one: HomeNode, other: HomeNode, seconds: float) -> None:
        """Nothing passes between them for so long; then all that was sent arrives."""
        for pair in ((one.number, other.number), (other.number, one.number)):
            until = self.now + int(seconds * SECOND)
            self.cut_until[pair] = max(self.cut_until[pair], until)

    def break_link(self, one: HomeNode, other: HomeNode) -> None:
        """What was under way between them is lost; a new link is made at once."""
        for near, far in ((one, other), (other, one)):
            self.links[near.number, far.number] += 1
            near.apply(near.service.probed(self.now, far.number, True))

    def wait(
        self, condition: Callable[[], bool], seconds: float = 60.0, step_s: float = 0.0005
    ) -> None:
        end = self.now + int(seconds * SECOND)
        while not condition():
            assert self.now < end, "it never came true"
            self.run(step_s)

    # What must hold when all is calm.

    def check_presence(self) -> None:
        """Each client is on the one node that it thinks it is on, and every node knows so."""
        assert self.misplaced() == []

    def misplaced(self) -> list[Any]:
        there = [one for one in self.clients if not one.connection.over]
        clients = sorted(
            (entity, home.number) for home in self.nodes.values() for entity in home.entities()
        )
        found: list[Any] = [
            one for one in clients if one not in [(c.entity, c.home.number) for c in there]
        ]
        found += [
            client.name
            for client in there
            if (client.entity, client.home.number) not in clients
            or client.connection.session.client is None
        ]
        names = sorted(client.name for client in there if client.retains)
        found += [
            (home.number, home.nearby()) for home in self.nodes.values() if home.nearby() != names
        ]
        return found

    def check_deliveries(self, since: Time) -> int:
        """All publications since a moment reached exactly the clients that wanted them."""
        truth = expected(self.memory.table("interests"), self.memory.table("publications"))
        publications = self.memory.table("publications")
        made = dict(
            zip(publications["publication"].to_pylist(), publications["t"].to_pylist(), strict=True)
        )
        wanted: dict[int, set[int]] = defaultdict(set)
        for publication, subscription in truth:
            if made[publication] >= since:
                wanted[subscription].add(publication)
        for client in self.clients:
            if client.subscription is not None and not client.connection.over:
                received = {number for _, t, number in client.messages if t >= since}
                assert received == wanted[client.subscription], (
                    client.name, sorted(wanted[client.subscription] - received),
                    sorted(received - wanted[client.subscription]),
                )  # fmt: skip
        return sum(map(len, wanted.values()))

    def check_repetition(self) -> None:
        for client in self.clients:
            for connection in client.connections:
                twice = [
                    one for one, times in Counter(connection.received_messages).items() if times > 1
                ]
                assert twice == [], (client.name, twice)

    def check_order(self, since: Time = 0) -> None:
        """Publications of one publisher arrive in order: of what was made before `since`, when
        links and nodes stood still, this is promised of what arrives too late (`OVERDUE`)."""
        for client in self.clients:
            last: dict[int, tuple[Time, int]] = {}
            for (source, t, number), received in zip(
                client.messages, client.received_at, strict=True
            ):
                if number in client.late:
                    continue
                if (t, number) < last.get(source, (0, 0)):
                    assert t < since, (client.name, source, t, "in order")
                    assert received - t < OVERDUE + HELD, (client.name, source, t, "late")
                last[source] = max(last.get(source, (0, 0)), (t, number))

    def calm(self) -> None:
        """Run until all links and nodes work, no client is on its way and all nodes know all."""
        until = [home.halted for home in self.nodes.values()] + list(self.cut_until.values())
        self.wait(lambda: self.now > max(until) + AGREED)
        self.wait(self._at_rest, step_s=0.25)
        end = self.now + 20 * SECOND  # by then a client has closed its former connection
        while self.misplaced() and self.now < end:
            self.run(0.25)
        self.run(1.0)

    def _at_rest(self) -> bool:
        for home in self.nodes.values():
            if home.member.handover.under_way or len(home.member.nodes) < len(self.nodes) - 1:
                return False
        return all(client.joining is None for client in self.clients)

    def check(self, since: Time, *, ordered: bool = True) -> int:
        """Everything that must hold; `since` when nothing has stood still. Gives how many
        messages have been judged."""
        assert [client.losses for client in self.clients if client.losses] == []
        there = [client for client in self.clients if not client.connection.over]
        assert all(client.subscription is not None for client in there), "else nothing is judged"
        self.check_presence()
        self.check_repetition()
        if ordered:
            self.check_order(since)
        self.recorder.close()
        return self.check_deliveries(since)

    def publish(self, seconds: float) -> Time:
        """All clients publish now and then; gives since when."""
        since = self.now
        end = self.now + int(seconds * SECOND)
        while self.now < end:
            self.random.choice(self.clients).publish()
            self.run(0.02)
        return since

    def live(self, seconds: float) -> Time:
        """The same, and clients walk."""
        since = self.now
        end = self.now + int(seconds * SECOND)
        while self.now < end:
            client = self.random.choice(self.clients)
            if self.random.random() < 0.1:
                client.walk(*place(self))
            else:
                client.publish(*place(self))
            self.run(0.04)
        return since


def place(sim_cluster: HandoverCluster) -> tuple[float, float]:
    return sim_cluster.random.uniform(0, SIDE), sim_cluster.random.uniform(0, SIDE)


HANDOVER = (
    HandoverOffer,
    HandoverAccepted,
    messages.MovedNotice,
    HandoverClaim,
    ClientTransfer,
    HandoverConfirmed,
)


class FaultInjector:
    """Nodes stand still and links are cut or broken, most of all while clients are handed over."""

    def __init__(self, sim_cluster: HandoverCluster) -> None:
        self.sim_cluster, self.random = sim_cluster, sim_cluster.random
        self.left = self.random.randrange(2, 6)  # faults to come
        sim_cluster.on_sent = self._sent

    def _sent(self, kind: type) -> None:
        critical = kind in (HandoverClaim, ClientTransfer, HandoverConfirmed)
        if kind in HANDOVER and self.random.random() < (0.3 if critical else 0.05):
            self.fault(*self.sim_cluster.between)

    def fault(self, one: HomeNode, other: HomeNode) -> None:
        if not self.left:
            return
        self.left -= 1
        sim_cluster, random = self.sim_cluster, self.random
        if random.random() < 0.5:
            one, other = other, one
        seconds = random.choice((0.5, 2.5, 3.0, 4.0, 6.0)) * random.uniform(0.8, 1.2)
        match random.randrange(5):
            case 0 | 1:
                sim_cluster.halt(one, seconds)
            case 2:
                sim_cluster.cut(one, other, seconds)
            case 3:
                for third in sim_cluster.nodes.values():
                    if third is not one:
                        sim_cluster.cut(one, third, seconds)
            case 4:
                sim_cluster.break_link(one, other)


def check_under_faults(seed: int) -> HandoverCluster:
    """No client is lost or left behind, nothing is repeated, and when the faults are over, all is
    exact again."""
    sim_cluster = HandoverCluster(seed, nodes=3 + seed % 2)
    homes = list(sim_cluster.nodes.values())
    for number in range(6):
        sim_cluster.client(
            sim_cluster.random.choice(homes), *place(sim_cluster), retains=number % 2 == 0
        )
    sim_cluster.run(1.5)
    faults = FaultInjector(sim_cluster)
    sim_cluster.live(3.0)
    faults.fault(*sim_cluster.random.sample(homes, 2))
    sim_cluster.live(5.0)
    faults.left = 0
    sim_cluster.calm()
    since = sim_cluster.live(2.0)
    sim_cluster.run(2.0)
    sim_cluster.calm()
    sim_cluster.check(since)
    return sim_cluster
