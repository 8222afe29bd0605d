"""A client core and a host that does anything that a network may do, in any order."""

from random import Random
from typing import Any, TypeAlias

from hypothesis import given
from hypothesis import strategies as st

from nearcast.client.core import ClientCore, Phase
from nearcast.client.effects import (
    Again,
    Answered,
    Ask,
    ClientEffect,
    Connect,
    Disconnect,
    Ended,
    Failed,
    ServedAgain,
    SubscriptionEnded,
    Welcomed,
)
from nearcast.client.received import Message
from nearcast.client_protocol.geometry_json import area_from_region, as_region
from nearcast.client_protocol.messages import (
    ByeNotice,
    DoneNotice,
    ErrorNotice,
    InsideNotice,
    JoinRequest,
    LeaveRequest,
    MessageNotice,
    MovedNotice,
    NearbyNotice,
    NearbyRequest,
    NodesNotice,
    Notice,
    PublishRequest,
    SubscribeRequest,
    WelcomeNotice,
    WithdrawRequest,
)
from nearcast.node import ClearTimer, SetTimer, Timer
from nearcast.space.motion import SECOND, Time
from nearcast.space.shapes import disc

NODES = ["ws://b", "ws://c"]
STEPS = 120


class FaultyHost:
    """Does what the core asks for, answers late or never, and checks that all of it makes sense."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.core = ClientCore("anna", Random(seed))
        self.now: Time = 0
        self.timers: dict[Timer, Time] = {}
        self.connecting: list[int] = []
        self.open: dict[int, list[Ask]] = {}  # by connection: what its node was asked for
        self.used: set[int] = set()  # connections
        self.joined: set[int] = set()  # connections on which a join was sent
        self.waiting: set[int] = set()  # requests of the application
        self.over: set[int] = set()  # and those that have come to an end
        self.received: set[tuple[int, int]] = set()  # publication, subscription
        self.ended = False
        # Retained states.
        self.current = 0  # the connection that was welcomed last
        self.node_states: dict[int, States] = {}  # by connection: what its node knows
        self.sent: dict[int, Any] = {}  # the application's requests that change states, by number
        self.without_effect: set[int] = set()  # of these, refused or not sent
        self.refused_states: set[StateKey] = set()  # they may be gone

    # What the core asks for.

    def do(self, effects: list[ClientEffect]) -> None:
        for effect in effects:
            assert not self.ended, effect
            match effect:
                case Connect(connection, _):
                    assert connection not in self.used, "a new number"
                    self.used.add(connection)
                    self.connecting.append(connection)
                case Ask(connection, request, _):
                    assert (connection in self.joined) != isinstance(request, JoinRequest)
                    self.joined.add(connection)
                    self.open[connection].append(effect)
                    if effect.number in self.waiting and changes_states(request):
                        self.sent[effect.number] = request
                case Disconnect(connection):
                    assert connection in self.open or connection in self.connecting
                    self.forget(connection)
                case SetTimer(timer, delay):
                    assert delay >= 0
                    self.timers[timer] = self.now + delay
                case ClearTimer(timer):
                    self.timers.pop(timer, None)
                case Answered(number, _) | Failed(number, _):
                    assert number not in self.over, "once"
                    self.over.add(number)
                case Message():
                    self.deliver(effect)
                case Again(message):
                    self.deliver(message)
                case Welcomed() | ServedAgain() | SubscriptionEnded():
                    pass
                case Ended():
                    self.ended = True

    def deliver(self, message: Message) -> None:
        pairs = {(message.publication, number) for number in message.to}
        assert pairs and not pairs & self.received, "each subscription gets it once"
        self.received |= pairs

    def forget(self, connection: int) -> None:
        for ask in self.open.pop(connection, ()):  # it may have come to the node yet
            self.change_states(connection, ask.request)
        if connection in self.connecting:
            self.connecting.remove(connection)

    def change_states(self, connection: int, request: Any) -> None:
        change(self.node_states.setdefault(connection, {}), request)

    # What happens.

    def tell(self, connection: int, notice: Notice) -> None:
        self.do(self.core.received(self.now, connection, type(notice), notice))

    def ask(self) -> None:
        plain = (PublishRequest(0.0, 0.0), NearbyRequest(area_from_region("x<1")))
        self.request(self.rng.choice(plain))

    def retain(self) -> None:
        name, channel = self.rng.choice(("", "orc")), self.rng.choice(("", "talk"))
        x = float(len(self.waiting))  # each state has its own
        self.request(PublishRequest(x, 0.0, retain=True, name=name, channel=channel))

    def withdraw(self) -> None:
        channel, name = self.rng.choice((None, "", "talk")), self.rng.choice(("", "orc"))
        self.request(WithdrawRequest(channel, name))

    def request(self, request: Any) -> None:
        number, effects = self.core.request(self.now, request, self.rng.random() < 0.7)
        self.waiting.add(number)
        if self.core.phase is Phase.SERVED and changes_states(request):
            self.sent[number] = request  # its effects name it before it is known to wait
        self.do(effects)

    def subscribe(self) -> None:
        region = as_region(disc(0, 0, 5))
        request = SubscribeRequest(0, area_from_region(region), watch=self.rng.random() < 0.3)
        number, _, effects = self.core.subscribe(self.now, request, region, True)
        self.waiting.add(number)
        self.do(effects)

    def abandon(self) -> None:
        left = sorted(self.waiting - self.over)
        if left:
            number = self.rng.choice(left)
            self.over.add(number)
            self.do(self.core.abandon(self.now, number))

    def connect(self, fails: bool | None = None) -> None:
        if self.connecting:
            connection = self.rng.choice(self.connecting)
            self.forget(connection)
            if self.rng.random() < 0.3 if fails is None else fails:
                self.do(self.core.connect_failed(self.now, connection, OSError("nobody")))
            else:
                self.open[connection] = []
                self.do(self.core.connected(self.now, connection, "token"))

    def answer(self, refuses: float = 0.15) -> None:
        connection = self.some_connection(lambda asked: bool(asked))
        if connection is None:
            return
        ask = self.open[connection].pop(0)
        number, request = ask.request.id, ask.request
        refused = number is not None and self.rng.random() < refuses
        if changes_states(request):  # nobody would learn that what was abandoned is refused
            refused = refused and number not in self.over
        if isinstance(request, WithdrawRequest):  # a node refuses it if there is no such entity
            refused = refused and not self.node_states.get(connection)
        if not refused:
            self.change_states(connection, request)
        if number is None:
            return
        if refused:
            if isinstance(request, PublishRequest):
                self.refused_states.add((request.name, request.channel))
                self.without_effect.add(number)
            self.tell(connection, ErrorNotice("no", number))
        elif isinstance(request, JoinRequest):
            self.welcome(connection, request)
        elif isinstance(request, NearbyRequest):
            self.tell(connection, NearbyNotice([], number))
        else:
            self.tell(connection, DoneNotice(number, self.now))
            if isinstance(request, SubscribeRequest) and request.watch:
                self.tell(connection, InsideNotice(request.subscription, []))

    def welcome(self, connection: int, request: JoinRequest) -> None:
        entity = self.core.entity if request.ticket else self.rng.randrange(1, 99)
        if request.ticket:
            for ask in self.open.get(self.current, ()):  # its node makes them first
                self.change_states(self.current, ask.request)
            self.node_states[connection] = dict(self.node_states.get(self.current, {}))
        nodes = self.rng.choice((NODES, NODES[:1]))
        self.current = connection
        self.tell(connection, WelcomeNotice(entity, self.now, id=request.id, nodes=nodes))

    def some_connection(self, wanted: Any = lambda _: True) -> int | None:
        found = [connection for connection, asked in self.open.items() if wanted(asked)]
        return self.rng.choice(found) if found else None

    def notice(self) -> None:
        connection = self.some_connection()
        if connection is not None:
            publication = self.rng.randrange(1, 40)
            to = self.rng.sample((1, 2, 3), self.rng.randrange(1, 4))
            notices = [MessageNotice(to, 3, publication, 1, 0.0, 0.0)] * 5
            moved = [MovedNotice(self.rng.choice(NODES), "t")] * 3
            others = (NodesNotice(NODES), ByeNotice("bye"))
            self.tell(connection, self.rng.choice((*notices, *moved, *others)))

    def lose(self, connection: int | None = None) -> None:
        connection = connection or self.some_connection()
        if connection is not None:
            self.forget(connection)
            self.do(self.core.lost(self.now, connection, "lost"))

    def fail_to_send(self) -> None:
        connection = self.some_connection(lambda asked: bool(asked))
        if connection is not None:
            ask = self.open[connection][-1]
            unanswered = ask.request.id is None or ask.number in self.over
            unknown = unanswered and changes_states(ask.request)
            if unknown and self.core.phase is Phase.HANDED_OVER:
                return  # the other node has the client's states, and nobody has this one
            self.open[connection].pop()
            if not unknown:
                self.without_effect.add(ask.number)
            self.do(self.core.not_sent(self.now, ask.number, ConnectionError("no connection")))
            # Of what nobody waits for, nobody learns it unless the connection is lost.
            if unknown and connection in self.open:
                self.lose(connection)

    def wake(self) -> None:
        if self.timers:
            timer = min(self.timers, key=lambda one: (self.timers[one], repr(one)))
            self.now = max(self.now, self.timers.pop(timer))
            self.do(self.core.wake(self.now, timer))

    def misbehave(self) -> None:
        self.now += self.rng.randrange(SECOND // 20)
        act = self.rng.choice(
            (self.ask, self.retain, self.retain, self.withdraw, self.subscribe, self.abandon,
             self.connect, self.connect, self.answer, self.answer, self.answer, self.notice,
             self.notice, self.lose, self.wake, self.fail_to_send)
        )  # fmt: skip
        act()

    def behave(self) -> None:
        """All that the client waits for comes."""
        if self.connecting:
            self.connect(fails=False)
        elif any(self.open.values()):
            self.answer(refuses=0.0)
        else:
            self.wake()


StateKey: TypeAlias = tuple[str, str]  # name, channel
States: TypeAlias = dict[StateKey, float]  # by entity and channel: where


def changes_states(request: Any) -> bool:
    return isinstance(request, WithdrawRequest) or (
        isinstance(request, PublishRequest) and request.retain
    )


def change(states: States, request: Any) -> None:
    """What a node does that accepts this request."""
    if isinstance(request, PublishRequest) and request.retain:
        states[request.name, request.channel] = request.x
    elif isinstance(request, WithdrawRequest):
        for name, channel in list(states):
            if name == request.name and request.channel in (None, channel):
                del states[name, channel]


def started(seed: int) -> FaultyHost:
    host = FaultyHost(seed)
    host.do(host.core.open(0))
    host.connect(fails=False)
    host.answer(refuses=0.0)
    assert host.core.phase is Phase.SERVED
    return host


@given(st.integers(0, 2**32))
def test_whatever_happens_every_request_has_one_end_and_nothing_is_delivered_twice(
    seed: int,
) -> None:
    host = started(seed)
    for _ in range(STEPS):
        if not host.ended:
            host.misbehave()
    if not host.ended:
        host.do(host.core.close(host.now))
    assert host.ended
    assert host.over >= host.waiting
    assert not host.connecting and not any(
        not isinstance(ask.request, LeaveRequest) for asked in host.open.values() for ask in asked
    )
    assert host.core.received(host.now, 1, ByeNotice, ByeNotice("late")) == []


@given(st.integers(0, 2**32))
def test_when_all_is_well_again_a_client_is_served_and_nothing_waits(seed: int) -> None:
    host = started(seed)
    for _ in range(STEPS):
        if not host.ended:
            host.misbehave()
    for _ in range(2 * STEPS):
        if host.ended or (host.core.phase is Phase.SERVED and host.over >= host.waiting):
            break
        host.behave()
    assert host.ended or host.core.serving in host.open
    assert host.over >= host.waiting
    if not host.ended:
        check_states(host)


def check_states(host: FaultyHost) -> None:
    """The node knows exactly the client's states, and no other than the last that each entity had,
    and all of them but those that a node has refused."""
    while any(host.open.values()):
        host.answer(refuses=0.0)
    known = host.node_states.get(host.current, {})
    states = {(one.name, one.channel): one.x for one in host.core.states.requests()}
    assert known == states
    last: States = {}
    for number, request in sorted(host.sent.items()):
        if number not in host.without_effect:
            change(last, request)
    assert known.items() <= last.items()
    assert last.keys() - known.keys() <= host.refused_states
