"""Clients of a played cluster that are handed over, as `docs/reference/wire.md` asks them to.

Nodes have real gateways and sessions here; only the sockets are played, and the clients, which keep
all they were told on each connection.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

from msgspec.structs import replace

from nearcast.client_protocol import messages
from nearcast.client_protocol.geometry_json import Area
from nearcast.server.access.tokens import AccessControl
from nearcast.server.config import LimitSettings
from nearcast.server.gateway import Gateway
from nearcast.server.session import Session
from nearcast.service.client_state import ClientState
from nearcast.service.cluster.cluster_node import TICK_S
from nearcast.service.cluster.messages import (
    CODEC,
    ClientTransfer,
    HandoverAccepted,
    HandoverClaim,
    HandoverConfirmed,
    HandoverOffer,
    RetainedStatesRequest,
)
from nearcast.service.cluster.realm import OVERDUE
from nearcast.service.cluster.subscription_registry import TELL_EVERY, UNCONFIRMED
from nearcast.service.realm import HOPS
from nearcast.space.motion import SECOND, Time
from support.brute_force import expected
from support.simulated_cluster import FLUSH_S, PARAMETERS, SIDE, Played, Town

TIMER, SOCKET = 0, 1  # what a node finds to do when it has stood still, in either order
PATIENCE: Time = 5 * SECOND  # of a client with a handover
FORMER: Time = 10 * SECOND  # and with the node that it has left
HELD: Time = SECOND // 4
AGREED: Time = UNCONFIRMED + TELL_EVERY  # by then homes and sites agree who wants what
OUTSIDE = SimpleNamespace(halted=0)  # clients never stand still


class Timer:
    """What a loop's `call_later` gives."""

    def __init__(self, act: Callable[[], Any]) -> None:
        self._act: Callable[[], Any] | None = act

    def cancel(self) -> None:
        self._act = None

    def __call__(self) -> None:
        if self._act is not None:
            self._act()


class Clock:
    """The part of an event loop that a gateway needs, in the town's time."""

    def __init__(self, node: "Home") -> None:
        self._node = node

    def call_soon(self, act: Callable[..., Any], *given: Any) -> Timer:
        return self.call_later(FLUSH_S, act, *given)

    def call_later(self, seconds: float, act: Callable[..., Any], *given: Any) -> Timer:
        timer, town = Timer(partial(act, *given)), self._node.town
        town.at(town.now + int(seconds * SECOND), self._node, timer, self._node.ranks[TIMER])
        return timer


class PlayedGateway(Gateway):
    """Flushes at times that do not depend on this machine."""

    def __init__(self, node: "Home") -> None:
        self._recorder = node.town.recorder
        super().__init__(node.realm, LimitSettings(requests=100_000), AccessControl(), now=node.now)

    def schedule_flush(self, after: float = 0.0) -> None:
        if self._flush_timer is None:
            self._flush_timer = self.loop.call_later(max(after, FLUSH_S), self.flush)

    def record_delivery(
        self, client: ClientState, publication: int, subscriptions: tuple[int, ...]
    ) -> None:
        self._recorder.delivered(self.now(), client.entity, publication, subscriptions, HOPS)


class Home(Played):
    """A node that serves clients."""

    gateway: PlayedGateway
    parameters = replace(PARAMETERS, site_beat_ms=1000.0)  # as a node has it: `Entrance`

    def serve(self) -> Any:
        self.ranks = self.town.random.choice(((0, 1), (1, 0)))
        clock: Any = Clock(self)
        asyncio._set_running_loop(clock)
        try:
            self.gateway = PlayedGateway(self)
        finally:
            asyncio._set_running_loop(None)
        return self.gateway

    def tick(self) -> None:
        self.gateway.cluster = self.member
        self.member._run_tick(self.now())
        self.town.at(self.now() + int(SECOND * TICK_S), self, self.tick, self.ranks[TIMER])

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

    def __init__(self, client: "Client", home: Home) -> None:
        self.client, self.home, self.town = client, home, client.town
        self.session = Session(home.gateway)
        self.session.encoding = messages.MSGPACK
        self.opened = self.town.now
        self.over = False  # as the client sees it
        self.told: list[tuple[int, Time, int]] = []  # who, when, what
        self._wire: Any = Wire(self)
        self._there = self._here = 0
        self._to_node(partial(self.session.on_ws_connected, self._wire))

    def _takes(self) -> Time:
        return self.town.random.randrange(500, 5_000)

    def _to_node(self, act: Callable[[], Any]) -> None:
        self._there = max(self._there, self.town.now + self._takes())
        self.town.at(self._there, self.home, act, self.home.ranks[SOCKET])

    def to_client(self, act: Callable[[], Any]) -> None:
        self._here = max(self._here, self.town.now + self._takes())
        self.town.at(self._here, OUTSIDE, act)

    def say(self, word: messages.Request) -> None:
        self._to_node(partial(self._hear, messages.MSGPACK.encode(word)))

    def _hear(self, frame: bytes) -> None:
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
            word = messages.MSGPACK.read_notice(frames[at : at + size])
            self.client.heard(self, messages.MSGPACK.message_class(word), word)
            frames = frames[at + size :]


class Client:
    """Listens around itself, says where it is, retained or not, and goes where it is sent.

    Nodes do not promise the order of what is retained and what is not.
    """

    def __init__(
        self, town: "Village", name: str, home: Home, x: float, y: float, retains: bool
    ) -> None:
        self.town, self.name, self.x, self.y, self.retains = town, name, x, y, retains
        self.entity: int | None = None
        self.subscription: int | None = None  # its number in the trace
        self.talk = Connection(self, home)
        self.joining: Connection | None = None
        self.former: Connection | None = None
        self.connections = [self.talk]
        self.messages: list[tuple[int, Time, int]] = []
        self.heard_at: list[Time] = []  # each of them
        self.moved = self.came = self.stayed = 0  # how often it was sent, and what came of it
        self.losses: list[str] = []
        self._had: set[int] = set()
        self.late: set[int] = set()  # what a former node said after its time (rule 5)
        self._held: list[tuple[int, Time, int]] = []
        self._bye = ""
        self._ids = 0
        self._unanswered: set[int] = set()
        self._ticket = ""
        self.talk.say(messages.JoinRequest(name, id=self._number()))

    def _number(self) -> int:
        self._ids += 1
        self._unanswered.add(self._ids)
        return self._ids

    @property
    def home(self) -> Home:
        return self.talk.home

    def ask(self, kind: type, *given: Any, **more: Any) -> None:
        """Not while it is being handed over: rule 2."""
        if self.joining is None:
            self.talk.say(kind(*given, **more, id=self._number()))

    def walk(self, x: float, y: float) -> None:
        """It goes there, with its ears, and says so."""
        if self.joining is not None:
            return
        self.x, self.y = x, y
        self.ask(messages.MoveRequest, 1, Area(x, y, r=60.0))
        self.speak()

    def speak(self, x: float | None = None, y: float | None = None) -> None:
        """Where it is, or elsewhere."""
        x, y = self.x if x is None else x, self.y if y is None else y
        self.ask(messages.PublishRequest, x, y, retain=self.retains)

    # What nodes say.

    def heard(self, talk: Connection, kind: type, word: Any) -> None:
        if kind is messages.MessageNotice:
            one = word.source, word.t, word.publication
            talk.told.append(one)
            if talk is not self.talk and talk is not self.former:
                self.late.add(word.publication)
            if self.former is not None and talk is self.talk and not self.former.over:
                self._held.append(one)
            else:
                self._take(one)
        elif kind is messages.WelcomeNotice:
            self._welcomed(talk, word)
        elif kind is messages.MovedNotice and talk is self.talk and self.joining is None:
            self._go(word)
        elif kind is messages.ByeNotice:
            self._bye = word.reason
        elif kind is messages.ErrorNotice and talk is self.joining:
            self._stay()
        elif kind in (messages.DoneNotice, messages.ErrorNotice):
            assert kind is messages.DoneNotice or word.id is None, word
            self._unanswered.discard(word.id)
            if word.subscription is not None:
                self.subscription = word.subscription
            self._join()

    def _take(self, one: tuple[int, Time, int]) -> None:
        if one[2] not in self._had:
            self._had.add(one[2])
            self.messages.append(one)
            self.heard_at.append(self.town.now)

    def _welcomed(self, talk: Connection, word: Any) -> None:
        self._unanswered.discard(word.id)
        if self.entity is None:
            self.entity = word.entity
            self.ask(messages.SubscribeRequest, 1, Area(self.x, self.y, r=60.0))
            self.speak()
        elif talk is self.joining:
            assert word.entity == self.entity
            self._release()
            self.former, self.talk, self.joining = self.talk, talk, None
            self.came += 1
            self.town.at(self.town.now + HELD, OUTSIDE, partial(self._release, self.former))
            self.town.at(self.town.now + FORMER, OUTSIDE, self.former.close)

    def _release(self, former: Connection | None = None) -> None:
        """What waited for the former node's last words comes now."""
        if former is None or former is self.former:
            held, self._held, self.former = self._held, [], None
            for one in held:
                self._take(one)

    def _go(self, word: Any) -> None:
        self.moved += 1
        joining = self.joining = Connection(self, self.town.at_url(word.to))
        self.connections.append(joining)
        self._ticket = word.ticket
        self.town.on_sent(messages.MovedNotice)
        self.town.at(self.town.now + PATIENCE, OUTSIDE, partial(self._give_up, joining))
        self._join()

    def _join(self) -> None:
        if self.joining is not None and self._ticket and not self._unanswered:
            self.joining.say(
                messages.JoinRequest(self.name, id=self._number(), ticket=self._ticket)
            )
            self._ticket = ""

    def _give_up(self, joining: Connection) -> None:
        if joining is self.joining:
            self._stay()

    def _stay(self) -> None:
        assert self.joining is not None
        self.joining.close()
        self.joining, self._ticket = None, ""
        self._unanswered.clear()
        self.stayed += 1

    def lost(self, talk: Connection) -> None:
        if talk is self.joining:
            self._stay()
        elif talk is self.former:
            self._release(talk)
        elif talk is self.talk:
            self.losses.append(self._bye)

    def leave(self) -> None:
        """Without a word."""
        for talk in self.connections:
            talk.close()


class Village(Town):
    """A played cluster whose clients change nodes."""

    nodes: dict[int, Any]

    def __init__(self, seed: int, nodes: int) -> None:
        self.clients: list[Client] = []
        self.on_sent: Callable[[type], None] = lambda _: None  # told of each message
        self.loses: Callable[[type], bool] = lambda _: False  # those never arrive
        self.between: tuple[Home, Home]  # of the last message
        super().__init__(seed, nodes, Home)

    def carry(self, sender: int, to: int, frame: bytes) -> None:
        kind = type(CODEC.decode(frame))
        self.between = self.nodes[sender], self.nodes[to]
        if not self.loses(kind):
            super().carry(sender, to, frame)
        self.on_sent(kind)

    def at_url(self, url: str) -> Home:
        return next(node for node in self.nodes.values() if node.member.url == url)

    def client(self, home: Home, x: float, y: float, retains: bool = True) -> Client:
        client = Client(self, f"c{len(self.clients)}", home, x, y, retains)
        self.clients.append(client)
        return client

    def halt(self, home: Home, seconds: float) -> None:
        home.halted = max(home.halted, self.now + int(seconds * SECOND))

    def cut(self, one: Home, other: Home, seconds: float) -> None:
        """Nothing passes between them for so long; then all that was said arrives."""
        for pair in ((one.number, other.number), (other.number, one.number)):
            until = self.now + int(seconds * SECOND)
            self.cut_until[pair] = max(self.cut_until[pair], until)

    def break_link(self, one: Home, other: Home) -> None:
        """What was under way between them is lost; a new link is made at once."""
        for near, far in ((one, other), (other, one)):
            self.links[near.number, far.number] += 1
            near.member._out.send(far.number, RetainedStatesRequest())  # as `_probe` does
            near.member._send_effects()

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
        there = [one for one in self.clients if not one.talk.over]
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
            or client.talk.session.client is None
        ]
        names = sorted(client.name for client in there if client.retains)
        found += [
            (home.number, home.nearby()) for home in self.nodes.values() if home.nearby() != names
        ]
        return found

    def check_hearing(self, since: Time) -> int:
        """All that was said from a moment on was heard, by exactly those who wanted it."""
        truth = expected(self.memory.table("interests"), self.memory.table("publications"))
        said = self.memory.table("publications")
        made = dict(zip(said["publication"].to_pylist(), said["t"].to_pylist(), strict=True))
        wanted: dict[int, set[int]] = defaultdict(set)
        for publication, subscription in truth:
            if made[publication] >= since:
                wanted[subscription].add(publication)
        for client in self.clients:
            if client.subscription is not None and not client.talk.over:
                heard = {number for _, t, number in client.messages if t >= since}
                assert heard == wanted[client.subscription], (
                    client.name, sorted(wanted[client.subscription] - heard),
                    sorted(heard - wanted[client.subscription]),
                )  # fmt: skip
        return sum(map(len, wanted.values()))

    def check_repetition(self) -> None:
        for client in self.clients:
            for talk in client.connections:
                twice = [one for one, times in Counter(talk.told).items() if times > 1]
                assert twice == [], (client.name, twice)

    def check_order(self, since: Time = 0) -> None:
        """Each publisher is heard in order: of what was made before `since`, when links and nodes
        stood still, this is promised of what is heard too late (`OVERDUE`)."""
        for client in self.clients:
            last: dict[int, tuple[Time, int]] = {}
            for (source, t, number), heard in zip(client.messages, client.heard_at, strict=True):
                if number in client.late:
                    continue
                if (t, number) < last.get(source, (0, 0)):
                    assert t < since, (client.name, source, t, "in order")
                    assert heard - t < OVERDUE + HELD, (client.name, source, t, "late")
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
        self.check_presence()
        self.check_repetition()
        if ordered:
            self.check_order(since)
        self.recorder.close()
        return self.check_hearing(since)

    def speak(self, seconds: float) -> Time:
        """Everybody says something now and then; gives since when."""
        since = self.now
        end = self.now + int(seconds * SECOND)
        while self.now < end:
            self.random.choice(self.clients).speak()
            self.run(0.02)
        return since

    def live(self, seconds: float) -> Time:
        """The same, and everybody walks."""
        since = self.now
        end = self.now + int(seconds * SECOND)
        while self.now < end:
            client = self.random.choice(self.clients)
            if self.random.random() < 0.1:
                client.walk(*place(self))
            else:
                client.speak(*place(self))
            self.run(0.04)
        return since


def place(town: Village) -> tuple[float, float]:
    return town.random.uniform(0, SIDE), town.random.uniform(0, SIDE)


HANDOVER = (
    HandoverOffer,
    HandoverAccepted,
    messages.MovedNotice,
    HandoverClaim,
    ClientTransfer,
    HandoverConfirmed,
)


class Storm:
    """Nodes stand still and links are cut or broken, most of all while clients are handed over."""

    def __init__(self, town: Village) -> None:
        self.town, self.random = town, town.random
        self.left = self.random.randrange(2, 6)  # faults to come
        town.on_sent = self._sent

    def _sent(self, kind: type) -> None:
        critical = kind in (HandoverClaim, ClientTransfer, HandoverConfirmed)
        if kind in HANDOVER and self.random.random() < (0.3 if critical else 0.05):
            self.fault(*self.town.between)

    def fault(self, one: Home, other: Home) -> None:
        if not self.left:
            return
        self.left -= 1
        town, random = self.town, self.random
        if random.random() < 0.5:
            one, other = other, one
        seconds = random.choice((0.5, 2.5, 3.0, 4.0, 6.0)) * random.uniform(0.8, 1.2)
        match random.randrange(5):
            case 0 | 1:
                town.halt(one, seconds)
            case 2:
                town.cut(one, other, seconds)
            case 3:
                for third in town.nodes.values():
                    if third is not one:
                        town.cut(one, third, seconds)
            case 4:
                town.break_link(one, other)


def check_storm(seed: int) -> Village:
    """Nobody is lost, nobody is a ghost, nothing is repeated, and when the storm is over, all is
    exact again."""
    town = Village(seed, nodes=3 + seed % 2)
    homes = list(town.nodes.values())
    for number in range(6):
        town.client(town.random.choice(homes), *place(town), retains=number % 2 == 0)
    town.run(1.5)
    storm = Storm(town)
    town.live(3.0)
    storm.fault(*town.random.sample(homes, 2))
    town.live(5.0)
    storm.left = 0
    town.calm()
    since = town.live(2.0)
    town.run(2.0)
    town.calm()
    town.check(since)
    return town
