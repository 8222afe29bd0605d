"""What clients may ask of a realm with fences, drawn at random, and the trace of it in plain
Python: what was told, and what should have been."""

from collections import Counter
from typing import Any

import msgspec
import pyarrow as pa
from hypothesis import strategies as st
from msgspec.structs import replace

from nearcast.client_protocol import messages
from nearcast.client_protocol.geometry_json import PLANE, Area
from nearcast.pipeline.geofence.fence_replay import FenceReplay
from nearcast.pipeline.geofence.recorded_fences import fence_history
from nearcast.service.fence_sets import prepare_fences
from nearcast.service.realm import Limits
from nearcast.space.motion import SECOND
from nearcast.trace.sinks import MemoryTrace
from support.realm_histories import RealmHarness

WHOLE = st.integers(-4, 4).map(float)
PACE = st.sampled_from([0.0, 0.0, 1.0, -2.0, 0.5])
SECONDS = st.sampled_from([0.0, 0.05, 0.5, 1.0, 3.0])
EVENTS = st.lists(
    st.sampled_from(["enter", "leave", "cross", "inside", "outside"]),
    min_size=1, max_size=5, unique=True,
)  # fmt: skip
FILTERS = st.sampled_from([None, None, None, "weight > 1", 'kind == "truck"'])
ATTRIBUTES = st.fixed_dictionaries(
    {}, optional={"kind": st.sampled_from(["truck", "ship"]), "weight": st.integers(0, 3)}
)
CHANNELS = st.sampled_from(["", "", "", "roads"])
NUMBERS = st.integers(0, 2)


@st.composite
def areas(draw: st.DrawFn) -> Area:
    x, y = draw(WHOLE), draw(WHOLE)
    choice = draw(st.integers(0, 5))
    if choice == 0:
        ring = [[x, y], [x + 3, y], [x + 1, y + 1], [x, y + 3], [x, y]]
        return Area(geometry={"type": "Polygon", "coordinates": [ring]})
    if choice == 1:
        return Area(x=x, y=y, r=2.0, to=[[y, x], [0.0, 1.0], [x, 3.0]], speed=draw(SPEEDS))
    if choice == 2:
        return Area(x=x, y=y, rx=draw(st.sampled_from([1.0, 2.0])), ry=2.0)
    return Area(x=x, y=y, r=draw(st.sampled_from([1.0, 2.5])), vx=draw(PACE), vy=draw(PACE))


SPEEDS = st.sampled_from([1.0, 5.0])
ASKED = st.fixed_dictionaries({
    "events": EVENTS, "dwell": st.one_of(st.none(), SECONDS), "linger": SECONDS,
    "filter": FILTERS, "channel": CHANNELS, "echo": st.booleans(),
})  # fmt: skip
FENCES = st.tuples(NUMBERS, areas(), ASKED).map(
    lambda drawn: messages.SubscribeRequest(drawn[0], drawn[1], **drawn[2])
)
SET_NAMES = st.sampled_from(["depots", "ports"])
OF_SETS = st.tuples(NUMBERS, SET_NAMES, ASKED).map(
    lambda drawn: messages.SubscribeRequest(drawn[0], fences=drawn[1], **drawn[2])
)
STATES = st.builds(
    messages.PublishRequest, WHOLE, WHOLE, retain=st.sampled_from([True, True, True, False]),
    channel=CHANNELS, attributes=ATTRIBUTES,
    ttl=st.one_of(st.none(), st.none(), st.sampled_from([0.3, 1.0, 2.5])),
).map(
    lambda one: one if one.retain else replace(one, ttl=None)
)  # fmt: skip


def set_of(name: str, *discs: tuple[str | int, float, float, float]) -> messages.FencesRequest:
    """Puts discs into a set: their ids, centres and radii."""
    features = [
        {"type": "Feature", "id": which, "properties": {"radius": r},
         "geometry": {"type": "Point", "coordinates": [x, y]}}
        for which, x, y, r in discs
    ]  # fmt: skip
    return messages.FencesRequest(name, features)


DISCS = st.lists(
    st.tuples(st.sampled_from(["a", "b", 7]), WHOLE, WHOLE, st.sampled_from([1.0, 2.5])),
    max_size=3, unique_by=lambda one: one[0],
)  # fmt: skip
SET_CHANGES = st.tuples(
    SET_NAMES, DISCS, st.lists(st.sampled_from(["a", "b", 7]), max_size=1)
).map(lambda drawn: replace(set_of(drawn[0], *drawn[1]), remove=drawn[2]))
REQUESTS = st.one_of(
    FENCES, FENCES, OF_SETS, *[STATES] * 8, SET_CHANGES,
    st.builds(messages.MoveRequest, NUMBERS, areas()),
    st.builds(messages.UnsubscribeRequest, NUMBERS),
    st.builds(messages.WithdrawRequest, channel=st.one_of(st.none(), CHANNELS)),
    st.just(messages.LeaveRequest()),
)  # fmt: skip


class FenceRealm(RealmHarness):
    """A recorded realm that also takes sets of fences."""

    def ask(self, client: int, request: Any) -> Any:
        if not isinstance(request, messages.FencesRequest):
            return super().ask(client, request)
        texts = [msgspec.json.encode(feature) for feature in request.features]
        prepared = prepare_fences(request.features, texts, Limits(), PLANE, False)
        return self.realm.change_fences(
            self.now, request.name, prepared, request.remove, request.replace
        )


KEY = ("node", "subscription", "fence", "entity", "kind", "reason", "event_t", "out_t")


def told_events(trace: MemoryTrace) -> Counter[Any]:
    return Counter(
        tuple(row[name] for name in KEY) for row in trace.table("fence_events").to_pylist()
    )


def state_rows(trace: MemoryTrace) -> pa.RecordBatch:
    """States as a replay takes them, in order."""
    made = {row["publication"]: row for row in trace.table("publications").to_pylist()}
    rows = []
    for state in trace.table("states").to_pylist():
        one = made[state["publication"]]
        row = {name: one[name] for name in ("node", "channel", "x", "y", "z", "attributes")}
        rows.append(row | state | {"height": None})
    rows.sort(key=lambda row: (row["t"], row["publication"], row["ended"]))
    schema = pa.schema(
        [("t", pa.int64()), ("node", pa.int64()), ("publication", pa.int64())]
        + [("channel", pa.string()), ("attributes", pa.string())]
        + [(name, pa.float64()) for name in ("x", "y", "z", "height")]
        + [("ttl", pa.int64()), ("ended", pa.bool_())]
    )
    return pa.Table.from_pylist(rows, schema).combine_chunks().to_batches(
        max_chunksize=None
    )[0] if rows else pa.RecordBatch.from_pylist([], schema)  # fmt: skip


def replayed(trace: MemoryTrace, until: int, pieces: int = 1) -> list[tuple[Any, ...]]:
    """What should have been told until then."""
    history = fence_history(trace.table("fence_interests"), trace.table("fence_areas"))
    replay = FenceReplay(history, earth=False)
    rows = state_rows(trace)
    step = max(1, -(-len(rows) // pieces))
    for begin in range(0, len(rows), step):
        replay.take(rows.slice(begin, step))
    replay.finish(until)
    return [event for event in replay.expected if event[-2] <= until]


SETTLED = SECOND
