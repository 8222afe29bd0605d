"""What clients may ask of a realm with fences, drawn at random, and the trace of it in plain
Python: what was told, and what should have been."""

from collections import Counter
from contextlib import suppress
from random import Random
from typing import Any

import msgspec
import pyarrow as pa
from msgspec.structs import replace

from nearcast.client_protocol import messages
from nearcast.client_protocol.geometry_json import EARTH, Area
from nearcast.client_protocol.limits import Limits
from nearcast.errors import Refused
from nearcast.matching import MATCHERS
from nearcast.pipeline.geofence.fence_replay import FenceReplay
from nearcast.pipeline.geofence.recorded_fences import fence_history
from nearcast.service.fences.sets import prepare_fences
from nearcast.service.realm import Realm
from nearcast.space.motion import SECOND
from nearcast.trace.sinks import MemoryTrace
from support.realm_histories import RealmHarness

SETS = ("depots", "ports")
EVENTS: list[messages.FenceEventName] = ["enter", "leave", "cross", "inside", "outside"]
CHANNELS = ("", "", "", "roads")
FILTERS = (None, None, None, "weight > 1", 'kind == "truck"')
SECONDS = (0.0, 0.05, 0.5, 1.0, 3.0)
PACES = (0, 1, 20_000, 300_000, SECOND)  # until the next request
KEY = ("node", "subscription", "fence", "entity", "kind", "reason", "event_t", "out_t")
STATE_SCHEMA = pa.schema(
    [("t", pa.int64()), ("node", pa.int64()), ("publication", pa.int64())]
    + [("channel", pa.string()), ("attributes", pa.string())]
    + [(name, pa.float64()) for name in ("x", "y", "z", "height")]
    + [("ttl", pa.int64()), ("ended", pa.bool_())]
)


class FenceRealm(RealmHarness):
    """A recorded realm that also takes sets of fences."""

    def ask(self, client: int, request: Any) -> Any:
        if not isinstance(request, messages.FencesRequest):
            return super().ask(client, request)
        texts = [msgspec.json.encode(feature) for feature in request.features]
        prepared = prepare_fences(texts, Limits(), self.realm.geometry, False)
        return self.realm.change_fences(self.now, request.name, prepared, request.remove)

    def flush(self) -> None:
        self.realm.flush(self.now)
        self.realm.fence_notices()


class EarthFenceRealm(FenceRealm):
    """The same on Earth: a unit of the plane is some 100 metres near Zurich."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.realm = Realm(MATCHERS["swept"](), self.limits, self.recorder, geometry=EARTH)

    def ask(self, client: int, request: Any) -> Any:
        return super().ask(client, request_on_earth(request))


METRES = 90.0


def on_earth(x: float, y: float) -> list[float]:
    """Longitude and latitude."""
    return [8.5 + x / 1000, 47.4 + y / 1000]


def request_on_earth(request: Any) -> Any:
    """The same request with all places on Earth."""
    if isinstance(request, messages.PublishRequest):
        lon, lat = on_earth(request.x or 0.0, request.y or 0.0)
        return replace(request, x=None, y=None, lon=lon, lat=lat)
    if isinstance(request, messages.MoveRequest) or (
        isinstance(request, messages.SubscribeRequest) and not request.fences
    ):
        return replace(request, area=area_on_earth(request.area))
    if isinstance(request, messages.FencesRequest):
        features = [
            one
            | {
                "geometry": {"type": "Point", "coordinates": on_earth(*place_of(one))},
                "properties": {"radius": one["properties"]["radius"] * METRES},
            }
            for one in request.features
        ]
        return replace(request, features=features)
    return request


def place_of(feature: dict[str, Any]) -> tuple[float, float]:
    x, y = feature["geometry"]["coordinates"]
    return x, y


def area_on_earth(area: Area) -> Area:
    if area.geometry is not None:
        ring = [on_earth(*vertex) for vertex in area.geometry["coordinates"][0]]
        return Area(geometry={"type": "Polygon", "coordinates": [ring]})
    x, y = area.x or 0.0, area.y or 0.0
    lon, lat = on_earth(x, y)
    if area.rx is not None:
        rx, ry = area.rx, area.ry or 0.0
        corners = [(x - rx, y - ry), (x + rx, y - ry), (x + rx, y + ry), (x - rx, y + ry)]
        ring = [on_earth(*corner) for corner in [*corners, corners[0]]]
        return Area(geometry={"type": "Polygon", "coordinates": [ring]})
    r = (area.r or 0.0) * METRES
    if area.vx or area.to:
        stops = area.to or [[x + 30 * area.vx, y + 30 * area.vy]]
        speed = (area.speed or abs(area.vx)) * METRES
        return Area(lon=lon, lat=lat, r=r, to=[on_earth(*stop) for stop in stops], speed=speed)
    return Area(lon=lon, lat=lat, r=r)


# Requests. Small whole numbers, so that borders are touched and places occur again.


def whole(random: Random) -> float:
    return float(random.randint(-4, 4))


def area(random: Random) -> Area:
    """A disc, a box or a polygon; some discs move."""
    x, y = whole(random), whole(random)
    choice = random.randrange(6)
    if choice == 0:
        ring = [[x, y], [x + 3, y], [x + 1, y + 1], [x, y + 3], [x, y]]
        return Area(geometry={"type": "Polygon", "coordinates": [ring]})
    if choice == 1:
        stops = [[whole(random), whole(random)] for _ in range(3)]
        return Area(x=x, y=y, r=2.0, to=stops, speed=random.choice([1.0, 5.0]))
    if choice == 2:
        return Area(x=x, y=y, rx=random.choice([1.0, 2.0]), ry=2.0)
    if choice == 3:
        pace = random.choice([1.0, -2.0, 0.5])
        return Area(x=x, y=y, r=random.choice([1.0, 2.5]), vx=pace, vy=-pace)
    return Area(x=x, y=y, r=random.choice([1.0, 2.5]))


def options(random: Random) -> dict[str, Any]:
    return {
        "events": random.sample(EVENTS, random.randint(1, 5)),
        "dwell": random.choice([None, *SECONDS]), "linger": random.choice(SECONDS),
        "filter": random.choice(FILTERS), "channel": random.choice(CHANNELS),
        "echo": random.random() < 0.5,
    }  # fmt: skip


def state(random: Random) -> messages.PublishRequest:
    attributes: dict[str, Any] = {"kind": random.choice(["truck", "ship"])}
    if random.random() < 0.7:
        attributes["weight"] = random.randint(0, 3)
    retain = random.random() < 0.9
    return messages.PublishRequest(
        whole(random), whole(random), retain=retain, attributes=attributes,
        channel=random.choice(CHANNELS),
        ttl=random.choice([0.3, 1.0, 2.5]) if retain and random.random() < 0.3 else None,
    )  # fmt: skip


def set_change(random: Random, name: str) -> messages.FencesRequest:
    """Puts discs into a set, and perhaps removes one."""
    ids = random.sample(["a", "b", 7], random.randint(1, 3))
    features = [
        {
            "type": "Feature", "id": which, "properties": {"radius": random.choice([1.0, 2.5])},
            "geometry": {"type": "Point", "coordinates": [whole(random), whole(random)]},
        }
        for which in ids
    ]  # fmt: skip
    remove: list[Any] = [random.choice(["a", "b", 7])] if random.random() < 0.5 else []
    return messages.FencesRequest(name, features, remove)


def request(random: Random) -> Any:
    """Mostly states."""
    number = random.randrange(3)
    choice = random.randrange(20)
    if choice < 12:
        return state(random)
    if choice < 14:
        return messages.SubscribeRequest(number, area(random), **options(random))
    if choice < 16:
        return messages.SubscribeRequest(number, fences=random.choice(SETS), **options(random))
    if choice == 16:
        return set_change(random, random.choice(SETS))
    if choice == 17:
        return messages.MoveRequest(number, area(random))
    if choice == 18:
        return messages.WithdrawRequest(channel=random.choice([None, *CHANNELS]))
    return random.choice([messages.UnsubscribeRequest(number), messages.LeaveRequest()])


def run_realm(seed: int, steps: int = 60, earth: bool = False) -> FenceRealm:
    """Clients listen, drive, come and go; at the end there is time for what is due."""
    random, here = Random(seed), EarthFenceRealm() if earth else FenceRealm()
    for name in SETS:
        here.ask(0, set_change(random, name))
    for client in range(2):
        for number in range(2):
            here.ask(client, messages.SubscribeRequest(number, area(random), **options(random)))
    ticked = here.now
    for _ in range(steps):
        here.now += random.choice(PACES)
        if here.now - ticked > SECOND // 2:  # a node ticks ten times a second
            ticked = here.now
            here.realm.tick(here.now)
        with suppress(Refused):
            here.ask(random.randrange(4), request(random))
        for what in random.choice([(), (here.flush,), (here.flush,), (here.flush, None), (None,)]):
            here.now += 50_000
            what() if what else here.realm.tick(here.now)
    for _ in range(3):
        here.now += 10 * SECOND
        here.flush()
        here.realm.tick(here.now)
    here.table("states")  # what is recorded is handed over
    return here


# What was told, and what should have been.


def told_events(trace: MemoryTrace) -> Counter[Any]:
    return Counter(
        tuple(row[name] for name in KEY) for row in trace.table("fence_events").to_pylist()
    )


def state_rows(trace: MemoryTrace) -> pa.RecordBatch:
    """States as a replay takes them, in order."""
    made = {row["publication"]: row for row in trace.table("publications").to_pylist()}
    rows = [
        {name: made[state["publication"]].get(name) for name in STATE_SCHEMA.names} | state
        for state in trace.table("states").to_pylist()
    ]
    rows.sort(key=lambda row: (row["t"], row["publication"], row["ended"]))
    return pa.RecordBatch.from_pylist(rows, STATE_SCHEMA)


def replayed(
    trace: MemoryTrace, until: int, pieces: int = 1, earth: bool = False
) -> list[tuple[Any, ...]]:
    """What should have been told until then."""
    history = fence_history(trace.table("fence_interests"), trace.table("fence_areas"))
    replay = FenceReplay(history, earth)
    rows = state_rows(trace)
    step = max(1, -(-len(rows) // pieces))
    for begin in range(0, len(rows), step):
        replay.take(rows.slice(begin, step))
    replay.finish(until)
    return [event for event in replay.expected if event[-2] <= until]
