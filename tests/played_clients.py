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

from nearcast.live import words
from nearcast.live.access import EVERYTHING, Access
from nearcast.live.areas import Area
from nearcast.live.cluster.member import TICK_S
from nearcast.live.cluster.messages import CODEC
from nearcast.live.config import Limits
from nearcast.live.gateway import Gateway
from nearcast.live.realm import HOPS
from nearcast.live.seats import Seat
from nearcast.live.sessions import Session
from nearcast.space.motion import SECOND, Time
from played_cluster import FLUSH_S, PARAMETERS, SIDE, Played, Town
from truth import expected

TIMER, SOCKET = 0, 1  # what a node finds to do when it has stood still, in either order
PATIENCE: Time = 5 * SECOND  # of a client with a handover
FORMER: Time = 10 * SECOND  # and with the node that it has left
HELD: Time = SECOND // 4
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

    def call_later(self, seconds: float, act: Callable[..., Any], *given: Any) -> Timer:
        timer, town = Timer(partial(act, *given)), self._node.town
        town.at(town.now + int(seconds * SECOND), self._node, timer, self._node.ranks[TIMER])
        return timer


class PlayedGateway(Gateway):
    """Flushes at times that do not depend on this machine."""

    def __init__(self, node: "Home") -> None:
        self._recorder = node.town.recorder
        super().__init__(node.realm, Limits(requests=100_000), Access(), now=node.now)

    def wake(self, after: float = 0.0) -> None:
        if self._flush_timer is None:
            self._flush_timer = self.loop.call_later(max(after, FLUSH_S), self.flush)

    def caught_up(self, seat: Seat, publication: int, subscriptions: tuple[int, ...]) -> None:
        self._recorder.delivered(self.now(), seat.entity, publication, subscriptions, HOPS)


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
        self.member._do(self.now())
        self.town.at(self.now() + int(SECOND * TICK_S), self, self.tick, self.ranks[TIMER])

    def nearby(self) -> list[str]:
        """The names of all whose state this node knows."""
        found = self.realm.nearby(self.now(), words.Nearby(Area(), limit=1000))
        return sorted(one.name for one in found)

    def entities(self) -> list[int]:
        return sorted(seat.entity for seat in self.realm.seats if seat is not None)


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
        self.session = Session(home.gateway, EVERYTHING)
        self.session.form = words.PACKED
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

    def say(self, word: words.Request) -> None:
        self._to_node(partial(self._hear, words.PACKED.write(word)))

    def _hear(self, frame: bytes) -> None:
        if not self.session.closing:
            self.home.gateway.read(self.session, frame, True)

    def close(self) -> None:
        if not self.over:
            self.over = True
            self._to_node(self._closed)

    def _closed(self) -> None:
        if self.session in self.home.gateway.open:
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
            word = words.PACKED.notice(frames[at : at + size])
            self.client.heard(self, words.PACKED.kind(word), word)
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
        self.moved = self.came = self.stayed = 0  # how often it was sent, and what came of it
        self.losses: list[str] = []
        self._had: set[int] = set()
        self._held: list[tuple[int, Time, int]] = []
        self._bye = ""
        self._ids = 0
        self._unanswered: set[int] = set()
        self._ticket = ""
        self.talk.say(words.Join(name, id=self._number()))

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
        self.x, self.y = x, y
        self.ask(words.Move, 1, Area(x, y, r=60.0))
        self.speak()

    def speak(self, x: float | None = None, y: float | None = None) -> None:
        """Where it is, or elsewhere."""
        x, y = self.x if x is None else x, self.y if y is None else y
        self.ask(words.Publish, x, y, retain=self.retains)

    # What nodes say.

    def heard(self, talk: Connection, kind: type, word: Any) -> None:
        if kind is words.Message:
            one = word.source, word.t, word.publication
            talk.told.append(one)
            if self.former is not None and talk is self.talk and not self.former.over:
                self._held.append(one)
            else:
                self._take(one)
        elif kind is words.Welcome:
            self._welcomed(talk, word)
        elif kind is words.Moved and talk is self.talk and self.joining is None:
            self._go(word)
        elif kind is words.Bye:
            self._bye = word.reason
        elif kind is words.Error and talk is self.joining:
            self._stay()
        elif kind in (words.Done, words.Error):
            assert kind is words.Done or word.id is None, word
            self._unanswered.discard(word.id)
            if word.subscription is not None:
                self.subscription = word.subscription
            self._join()

    def _take(self, one: tuple[int, Time, int]) -> None:
        if one[2] not in self._had:
            self._had.add(one[2])
            self.messages.append(one)

    def _welcomed(self, talk: Connection, word: Any) -> None:
        self._unanswered.discard(word.id)
        if self.entity is None:
            self.entity = word.entity
            self.ask(words.Subscribe, 1, Area(self.x, self.y, r=60.0))
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
        self.town.at(self.town.now + PATIENCE, OUTSIDE, partial(self._give_up, joining))
        self._join()

    def _join(self) -> None:
        if self.joining is not None and self._ticket and not self._unanswered:
            self.joining.say(words.Join(self.name, id=self._number(), ticket=self._ticket))
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
        self.on_sent: Callable[[type], None] = lambda _: None  # told each message between nodes
        super().__init__(seed, nodes, Home)

    def carry(self, sender: int, to: int, frame: bytes) -> None:
        super().carry(sender, to, frame)
        self.on_sent(type(CODEC.decode(frame)))

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

    def wait(self, condition: Callable[[], bool], seconds: float = 60.0) -> None:
        end = self.now + int(seconds * SECOND)
        while not condition():
            assert self.now < end, "it never came true"
            self.run(0.0005)

    # What must hold when all is calm.

    def check_presence(self) -> None:
        """Each client is on the one node that it thinks it is on, and every node knows so."""
        there = [one for one in self.clients if not one.talk.over]
        for client in there:
            homes = [n for n, home in self.nodes.items() if client.entity in home.entities()]
            assert homes == [client.home.number], (client.name, homes, client.home.number)
            assert client.talk.session.seat is not None, client.name
        seats = sum(len(home.entities()) for home in self.nodes.values())
        assert seats == len(there), "a seat of nobody"
        names = sorted(client.name for client in there if client.retains)
        for home in self.nodes.values():
            assert home.nearby() == names, home.number
            assert not home.member.passages.under_way, "nothing is under way"

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
        for client in self.clients:
            last: dict[int, tuple[Time, int]] = {}
            for source, t, number in client.messages:
                if t >= since:
                    assert (t, number) > last.get(source, (0, 0)), (client.name, source, t)
                    last[source] = t, number

    def speak(self, seconds: float) -> Time:
        """Everybody says something, and has all that was said before; since when."""
        since = self.now
        end = self.now + int(seconds * SECOND)
        while self.now < end:
            self.random.choice(self.clients).speak()
            self.run(0.02)
        return since


def place(town: Village) -> tuple[float, float]:
    return town.random.uniform(0, SIDE), town.random.uniform(0, SIDE)
