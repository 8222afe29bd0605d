"""JSON and MessagePack forms of the same request: accepted alike, refused alike, obeyed alike."""

import re
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from msgspec import Raw
from msgspec.structs import fields

from fuzz.socketless import Node
from nearcast.client_protocol import messages
from nearcast.client_protocol.geometry_json import Area
from support.examples import examples

J, P = messages.JSON, messages.MSGPACK
ABSENT = object()

texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=8)
numbers = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**63), 2**63 - 1)
scalars = st.none() | st.booleans() | numbers | texts
anything = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
small = st.integers(0, 3) | st.floats(-100, 100)
formulas = st.sampled_from(
    ["x < 5", "x < v", "x >= -3 + t, x <= 3 + t", "kind == 'orc'", "x <", ""]
)
places = st.lists(st.lists(small, min_size=2, max_size=3), min_size=1, max_size=3)

# What makes sense for a field, by its name; the rest is left to chance.
SENSIBLE: dict[str, st.SearchStrategy[Any]] = {
    **dict.fromkeys(("x", "y", "z", "vx", "vy", "vz", "gx", "gy", "gz", "speed", "lasts"), small),
    **dict.fromkeys(("r", "rx", "ry", "rz"), st.floats(0, 100)),
    **dict.fromkeys(("retain", "echo", "watch"), st.booleans()),
    **dict.fromkeys(("name", "channel", "token"), st.sampled_from(["", "", "a", "é", "n" * 70])),
    **dict.fromkeys(("lon", "lat", "alt"), st.sampled_from([None, None, None, 1.0])),
    **dict.fromkeys(("ttl", "dwell"), st.sampled_from([None, None, 0, 5, -1])),
    "events": st.lists(st.sampled_from(["enter", "cross", "dwell", "stay"]), max_size=2),
    "fences": st.sampled_from(["", "", "", "a"]),
    "follow": st.sampled_from(["", "", "", "a", 1, "n" * 70]),
    "follow_channel": st.sampled_from([None, None, "", "a"]),
    "offset": st.sampled_from([[], [], [1.0, 2.0]]),
    "near": st.sampled_from([None, None, None, 1.0, -1.0]),
    "evolve": st.sampled_from(["", "", "", "", "periodic", "lazy"]),
    "interval": st.sampled_from([None, None, None, 0.5]),
    "threshold": st.sampled_from([None, None, None, 0.5]),
    "features": st.just([]),
    "remove": st.lists(st.sampled_from([1, "a"]), max_size=2),
    "replace": st.booleans(),
    "ticket": st.just(""),
    "payload": anything,
    "attributes": st.dictionaries(
        st.sampled_from(["a", "b", "a", "b", "x"]), st.booleans() | numbers | texts, max_size=2
    ),
    "variables": st.dictionaries(st.sampled_from(["v", "w"]), numbers, max_size=2),
    "subscription": st.sampled_from([1, 1, 1, 1, 2, 2**53]),
    "id": st.sampled_from([0, 1, 7, 2**53 - 1, 2**53, -1]),
    "to": places,
    "formula": formulas,
    "filter": formulas,
    "linger": st.sampled_from([0, 0.5, 3600, 3601, -1]),
    "rates": st.lists(st.lists(st.floats(0, 9), min_size=2, max_size=2), max_size=2),
    "closest": st.integers(-1, 5),
    "budget": st.floats(-1, 1e4),
    "limit": st.integers(-1, 2000),
}


spots = st.fixed_dictionaries({"x": small, "y": small}, optional={"z": small})
motion = {"vx": small, "gx": small, "lasts": SENSIBLE["lasts"]}
areas = st.one_of(
    spots,
    st.tuples(spots, st.fixed_dictionaries({"r": SENSIBLE["r"]}, optional=motion)),
    st.tuples(spots, st.fixed_dictionaries({"rx": SENSIBLE["r"], "ry": SENSIBLE["r"]})),
    st.tuples(spots, st.fixed_dictionaries({"r": SENSIBLE["r"], "to": places, "speed": small})),
    st.fixed_dictionaries({"formula": formulas}),
    st.just({}),
).map(lambda parts: parts if isinstance(parts, dict) else parts[0] | parts[1])
never = st.sampled_from([False, False, False, True])  # or hardly ever


@st.composite
def damaged_areas(draw: Any) -> dict[str, Any]:
    area: dict[str, Any] = dict(draw(areas))
    if draw(never):
        name = draw(st.sampled_from([*Area.__struct_fields__, "radius"]))
        area[name] = draw(anything)
    return area


SENSIBLE["area"] = damaged_areas()


@st.composite
def drawn_fields(draw: Any, kind: type[messages.Request]) -> dict[str, Any]:
    """Fields of a request: optional ones are there or not, and one may be missing or anything."""
    chosen = {
        field.name: ABSENT
        if not field.required and draw(st.booleans())
        else draw(SENSIBLE[field.name])
        for field in fields(kind)
    }
    if draw(never):
        name = draw(st.sampled_from(list(chosen)))
        chosen[name] = draw(st.just(ABSENT) | anything)
    return chosen


requests = st.sampled_from(messages.REQUESTS).flatmap(
    lambda kind: st.tuples(st.just(kind), drawn_fields(kind))
)


def in_json(kind: type[messages.Request], values: dict[str, Any]) -> bytes:
    tag = kind.__struct_config__.tag
    return msgspec.json.encode({"do": tag} | {k: v for k, v in values.items() if v is not ABSENT})


def in_packed(kind: type[messages.Request], values: dict[str, Any]) -> bytes:
    """Absent fields have their default, or nil; at the end they are left out."""
    elements: list[Any] = [messages.REQUESTS.index(kind) + 1]
    last = max((i for i, value in enumerate(values.values()) if value is not ABSENT), default=-1)
    for place, field in enumerate(fields(kind)):
        if place <= last:
            value = values[field.name]
            if value is ABSENT:
                default = messages._defaults(kind)[place]
                value = None if default in (messages.NO_PAYLOAD, msgspec.NODEFAULT) else default
            elements.append(value)
    return msgspec.msgpack.encode(elements)


def plain(form: messages.Encoding, notice: Any) -> dict[str, Any]:
    """A notice as values, the same for both forms."""
    found: dict[str, Any] = {"is": form.message_class(notice).__name__}
    for name in notice.__struct_fields__:
        value = getattr(notice, name)
        found[name] = form.decode_payload(value) if isinstance(value, Raw) else value
    for name in ("entities", "entity"):
        several = found.get(name)
        for one in several if isinstance(several, list) else [several]:
            if isinstance(one, messages.EntityState):
                found[name] = [plain_entity(form, one)]
    if found["is"] == "ErrorNotice":
        found["reason"] = reason(found["reason"])
    return found


def plain_entity(form: messages.Encoding, entity: messages.EntityState) -> dict[str, Any]:
    return {
        name: form.decode_payload(value) if isinstance(value, Raw) else value
        for name in entity.__struct_fields__
        if (value := getattr(entity, name)) is not None
    }


# What the codec itself refuses: each form says it in its own words.
CODEC = re.compile(
    r"^(Expected|Object|Invalid|Integer value|Number out|MessagePack|JSON|Input data)"
)


def reason(text: str) -> str:
    return "of the codec" if CODEC.match(text) else text


class Pair:
    """Two nodes with the same history, each told in one of the forms."""

    def __init__(self) -> None:
        self.nodes = {form: Node() for form in (J, P)}

    def answers(self, kind: type[messages.Request], values: dict[str, Any]) -> list[list[Any]]:
        answers = []
        for form, node in self.nodes.items():
            frame = (in_packed if form is P else in_json)(kind, values)
            session, wire = node.join(form)
            if kind is messages.JoinRequest:
                node.gateway.service._end_client(session)
                node.gateway.apply(node.gateway.service.out.drain())
            else:
                area = Area(formula="x < v")
                node.say(
                    session,
                    messages.SubscribeRequest(1, area, variables={"v": 9.0}, echo=True),
                    form,
                )
            node.gateway.read(session, frame, form.binary)
            node.run()
            answers.append([plain(form, notice) for notice in wire.notices(form)])
            session.on_ws_disconnected(session.transport)
            node.run()
        return answers

    def close(self) -> None:
        for node in self.nodes.values():
            node.close()


@pytest.fixture(scope="module")
def pair() -> Any:
    two = Pair()
    yield two
    two.close()


@given(requests)
@examples(400, suppress_health_check=list(HealthCheck))
def test_both_encodings_get_the_same_answer(pair: Pair, drawn: tuple[type, dict[str, Any]]) -> None:
    in_one, in_other = pair.answers(*drawn)
    assert in_one == in_other


def packed(*elements: Any) -> bytes:
    return msgspec.msgpack.encode(elements)


FILL = (False, {}, "", 0, None, None, None, None)  # of a publication, between payload and id

# All differences that there are. None: the form has no such value, so there is nothing to refuse.
DIFFERENCES: dict[str, tuple[bytes | None, bool, bytes | None, bool]] = {
    # JSON names its fields, so one more is a mistake; MessagePack only counts them, so one more
    # is from a later version.
    "a field that there is not": (
        b'{"do":"publish","x":1,"y":1,"new":1,"id":3}', False,
        packed(1, 1, 1, None, *FILL, 3, "", None, None, None, None, "new"), True,
    ),
    # JSON has no infinity; boxes may be unbounded.
    "an unbounded box": (
        b'{"do":"nearby","area":{"x":0,"y":0,"rx":1e400,"ry":1},"id":3}', False,
        packed(8, {"x": 0, "y": 0, "rx": float("inf"), "ry": 1}, "", 9, 3), True,
    ),
    # A field that is said twice counts as said last; an array has each place once.
    "a field twice": (b'{"do":"publish","x":5,"x":1,"y":1,"id":3}', True, None, False),
    "an integer beyond 64 bits": (
        b'{"do":"publish","x":1,"y":1,"payload":100000000000000000000,"id":3}', True, None, False,
    ),
    "binary data": (None, False, packed(1, 1, 1, b"\xff", *FILL, 3), True),
    "an extension": (
        None, False, packed(1, 1, 1, msgspec.msgpack.Ext(5, b"x"), *FILL, 3), True,
    ),
    "NaN in a payload": (
        b'{"do":"publish","x":1,"y":1,"payload":NaN,"id":3}', False,
        packed(1, 1, 1, float("nan"), *FILL, 3), True,
    ),
    "a number as a key in a payload": (None, False, packed(1, 1, 1, {1: 2}, *FILL, 3), True),
}  # fmt: skip


@pytest.mark.parametrize("which", DIFFERENCES)
def test_the_encodings_differ_in_this_only(pair: Pair, which: str) -> None:
    in_json, json_accepts, in_packed, packed_accepts = DIFFERENCES[which]
    for form, frame, accepts in ((J, in_json, json_accepts), (P, in_packed, packed_accepts)):
        if frame is not None:
            session, wire = pair.nodes[form].join(form)
            pair.nodes[form].gateway.read(session, frame, form.binary)
            pair.nodes[form].run()
            (answer,) = wire.notices(form)
            assert (form.message_class(answer) is not messages.ErrorNotice, answer.id) == (
                accepts,
                3,
            )
