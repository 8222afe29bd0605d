"""What several clients may ask of a realm, drawn at random, and a naive model of deliveries.

The model keeps every interest as `model.commands` says it is, and asks `wants` about each pair.
"""

from dataclasses import dataclass, field
from functools import cache
from math import inf
from typing import Any

from hypothesis import strategies as st
from msgspec import Raw
from msgspec.structs import replace

from nearcast.client_protocol import geometry_json, messages
from nearcast.client_protocol.geometry_json import Area
from nearcast.client_protocol.limits import Limits
from nearcast.matching import MATCHERS
from nearcast.model import commands
from nearcast.model.publication import Publication, wants
from nearcast.model.subscription import Formula, Subscription
from nearcast.model.variables import bind
from nearcast.service.client_state import ClientState
from nearcast.service.realm import Realm
from nearcast.space.motion import SECOND
from nearcast.trace.recorder import Recorder
from nearcast.trace.sinks import MemoryTrace

# Small whole numbers, so that borders touch exactly.
WHOLE = st.integers(-4, 4).map(float)
REACH = st.integers(0, 5).map(float)
PACE = st.integers(-3, 3).map(float)
HEIGHT = st.sampled_from([0.0, 0.0, 0.0, 0.0, 1.0])
CHANNELS = st.sampled_from(["", "", "", "", "", "chat"])
FORMULAS = [
    "x >= -3 + t, x <= 3 + t",
    "x < 1, y >= wide",
    "x >= 0 - wide, x <= wide, y < 9 / (t - 1)",
]
FILTERS = [
    None,
    None,
    None,
    None,
    None,
    None,
    'kind == "apple"',
    "weight > wide",
    "weight <= 2 + t",
]
VARIABLES = st.fixed_dictionaries({"wide": st.integers(-4, 4).map(float)})
# To make a strategy takes longer than to draw from it, so each is made once.
KINDS = st.sampled_from(["point", "disc", "disc", "box"])
UNBOUNDED_REACH = st.one_of(REACH, st.just(inf))
DIGITS = st.integers(0, 9)
FORMULA_TEXTS = st.sampled_from(FORMULAS)
FILTER_TEXTS = st.sampled_from(FILTERS)
DURATIONS = st.sampled_from([None, 0.5, 2.0])
STOPS = st.lists(st.tuples(WHOLE, WHOLE).map(list), min_size=1, max_size=4)
STEP_SPEEDS = st.sampled_from([1.0, 5.0, 1e6])
PAYLOADS = st.sampled_from([b"", b"1", b'"abc"'])
FLAGS = st.booleans()


@cache
@st.composite
def shapes(draw: st.DrawFn) -> dict[str, Any]:
    kind = draw(KINDS)
    where = {"x": draw(WHOLE), "y": draw(WHOLE), "z": draw(HEIGHT)}
    if kind == "disc":
        where["r"] = draw(REACH)
    if kind == "box":
        where |= {"rx": draw(REACH), "ry": draw(UNBOUNDED_REACH), "rz": draw(REACH)}
    return where


@cache
@st.composite
def areas_of_interest(draw: st.DrawFn) -> Area:
    choice = draw(DIGITS)
    if choice == 0:
        return Area()
    if choice <= 2:
        return Area(formula=draw(FORMULA_TEXTS))
    where = draw(shapes())
    if choice <= 4:
        where |= {
            "vx": draw(PACE),
            "vy": draw(PACE),
            "lasts": draw(DURATIONS),
        }
        if "r" in where or "rx" in where:
            where["gx"] = draw(PACE)
    elif choice <= 6:
        where |= {"to": draw(STOPS), "speed": draw(STEP_SPEEDS)}
    return Area(**where)


CLIENTS = st.integers(0, 3)
NUMBERS = st.integers(0, 2)


@cache
@st.composite
def subscribes(draw: st.DrawFn) -> messages.SubscribeRequest:
    return messages.SubscribeRequest(
        draw(NUMBERS),
        draw(areas_of_interest()),
        draw(FILTER_TEXTS),
        draw(CHANNELS),
        draw(FLAGS),
        draw(VARIABLES),
    )


ATTRIBUTES = st.fixed_dictionaries(
    {}, optional={"kind": st.sampled_from(["apple", "pear"]), "weight": st.integers(-1, 5)}
)


@cache
@st.composite
def publishes(draw: st.DrawFn, always_retain: bool = False) -> messages.PublishRequest:
    return messages.PublishRequest(
        **draw(shapes()),
        payload=Raw(draw(PAYLOADS)),
        retain=always_retain or draw(FLAGS),
        attributes=draw(ATTRIBUTES),
        channel=draw(CHANNELS),
    )


REQUESTS = st.one_of(
    subscribes(),
    subscribes(),
    publishes(),
    publishes(),
    publishes(),
    st.builds(messages.MoveRequest, NUMBERS, areas_of_interest()),
    st.builds(messages.TuneRequest, NUMBERS, VARIABLES),
    st.builds(messages.UnsubscribeRequest, NUMBERS),
    st.sampled_from([messages.JoinRequest("somebody"), messages.LeaveRequest()]),
)
FLUSH, TICK = "flush", "tick"
# How far the clock goes on before a request: not at all, a little, far, or back.
PACES = st.sampled_from([0, 0, 1, 20_000, 300_000, SECOND, -5])
AFTERWARDS = st.sampled_from([(), (), (FLUSH,), (FLUSH, TICK), (TICK,)])
Step = tuple[int, int, Any]


def histories(requests: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Step]]:
    """What several clients ask for, with a flush and a tick here and there in between."""
    groups = st.lists(st.tuples(PACES, CLIENTS, requests, AFTERWARDS), min_size=15, max_size=40)
    return groups.map(
        lambda several: [
            step
            for later, client, request, then in several
            for step in ((later, client, request), *((100_000, client, what) for what in then))
        ]
    )


HISTORIES = histories(REQUESTS)


@dataclass
class RealmHarness:
    """A realm and its clients, by number. A client joins with its first request."""

    recorded: bool = True
    limits: Limits = field(default_factory=Limits)
    now: int = 10 * SECOND

    def __post_init__(self) -> None:
        self.sink = MemoryTrace()
        self.recorder = Recorder(self.sink) if self.recorded else None
        self.realm = Realm(MATCHERS["swept"](), self.limits, self.recorder)
        self.states: dict[int, ClientState] = {}

    def client_state(self, client: int) -> ClientState:
        if client not in self.states:
            self.states[client] = self.realm.join(self.now, f"client {client}")
        return self.states[client]

    def ask(self, client: int, request: Any) -> Any:
        """What the realm answers; ValueError if it refuses."""
        if isinstance(request, messages.JoinRequest):
            return self.client_state(client)
        state = self.client_state(client)
        if isinstance(request, messages.LeaveRequest):
            return self.realm.leave(self.now, self.states.pop(client))
        if isinstance(request, messages.PublishRequest):
            return self.realm.publish(state, request, messages.JSON)
        if isinstance(request, messages.NearbyRequest):
            return self.realm.nearby(self.now, request)
        obey = {
            messages.SubscribeRequest: self.realm.subscribe,
            messages.MoveRequest: self.realm.move,
            messages.TuneRequest: self.realm.tune,
            messages.UnsubscribeRequest: self.realm.unsubscribe,
            messages.WithdrawRequest: self.realm.withdraw,
        }[type(request)]
        return obey(self.now, state, request)

    def table(self, name: str) -> Any:
        if self.recorder:
            self.recorder.close()
        return self.sink.table(name)


@dataclass
class Model:
    """What each client wants, by its own numbers; and what was published and is not flushed."""

    asked: dict[tuple[int, int], commands.Subscribe] = field(default_factory=dict)
    wanted: dict[tuple[int, int], Subscription] = field(default_factory=dict)
    waiting: list[tuple[int, messages.PublishRequest]] = field(default_factory=list)

    def obey(self, t: int, client: int, entity: int, request: Any) -> None:
        """At `t` this was asked for, and not refused."""
        if isinstance(request, messages.LeaveRequest):
            for key in [key for key in self.wanted if key[0] == client]:
                del self.wanted[key], self.asked[key]
        elif isinstance(request, messages.PublishRequest):
            self.waiting.append((entity, request))
        elif not isinstance(request, messages.JoinRequest | messages.WithdrawRequest):
            self._change(t, (client, request.subscription), entity, request)

    def _change(self, t: int, key: tuple[int, int], entity: int, request: Any) -> None:
        if isinstance(request, messages.SubscribeRequest):
            region = request.area.formula or geometry_json.region_from_area(request.area)
            self.asked[key] = commands.Subscribe(
                0, region, request.filter, request.channel, request.echo, request.variables
            )
            self.wanted[key] = self.asked[key].stamped(entity, t)
        elif isinstance(request, messages.MoveRequest):
            region = request.area.formula or geometry_json.region_from_area(request.area)
            self.asked[key] = replace(self.asked[key], region=region)
            if isinstance(region, str):
                region = Formula(bind(region, self.asked[key].variables))
            self.wanted[key] = self.wanted[key].moved(region, t)
        elif isinstance(request, messages.TuneRequest):
            self.asked[key] = self.asked[key].tuned(request.variables)
            self.wanted[key] = self.asked[key].rebound(self.wanted[key], t)
        else:
            del self.wanted[key], self.asked[key]

    def flush(self, t: int) -> list[tuple[int, int, int]]:
        """Client, publication and the client's number of the subscription: all deliveries."""
        published = [
            Publication(i, entity, t, _shape(request), request.channel, request.attributes)
            for i, (entity, request) in enumerate(self.waiting)
        ]
        self.waiting.clear()
        return sorted(
            (client, publication.id, number)
            for (client, number), subscription in self.wanted.items()
            for publication in published
            if wants(subscription, publication, t)
        )


def _shape(request: messages.PublishRequest) -> Any:
    return geometry_json.shape_from_fields(
        request.x, request.y, request.z, request.r, request.rx, request.ry, request.rz
    )
