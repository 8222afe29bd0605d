"""Frames are built once for all who hear alike, and each client gets exactly its own."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from nearcast.client_protocol import messages
from nearcast.service.client_state import AcceptedPublication, ClientState, FlushDeliveries
from nearcast.service.frames import delivery_frames, message_frame, websocket_frame
from nearcast.space.shapes import ShapeKind
from support.examples import examples

FORMS = (messages.JSON, messages.MSGPACK)


def accepted(
    number: int, request: messages.PublishRequest, form: messages.Encoding = messages.JSON
) -> AcceptedPublication:
    kind = ShapeKind.DISC if request.r else ShapeKind.POINT
    return AcceptedPublication(ClientState(0, 77, "p", form), number, kind, request, form)


def body(frame: bytes) -> bytes:
    size = frame[1]
    if size < 126:
        return frame[2:]
    return frame[4:] if size == 126 else frame[10:]


@pytest.mark.parametrize("size", [0, 125, 126, 65_535, 65_536])
def test_a_frame_says_how_long_it_is(size: int) -> None:
    frame = websocket_frame(messages.MSGPACK, b"x" * size)
    assert frame[0] == 0x82
    header = len(frame) - size
    assert header == (2 if size < 126 else 4 if size < 65_536 else 10)
    said = frame[1] if header == 2 else int.from_bytes(frame[2:header], "big")
    assert said == size


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
@pytest.mark.parametrize(
    "request_",
    [
        messages.PublishRequest(1.5, -2.0),
        messages.PublishRequest(1.5, -2.0, retain=True),
        messages.PublishRequest(1.5, -2.0, z=3.0),
        messages.PublishRequest(1.5, -2.0, r=3.0),
        messages.PublishRequest(1.5, -2.0, attributes={"level": 3}, channel="chat"),
    ],
)
@pytest.mark.parametrize("said", [None, {"a": [1, "b"]}])
def test_a_message_is_written_as_the_form_writes_it(
    form: messages.Encoding, request_: messages.PublishRequest, said: object
) -> None:
    fields = {name: getattr(request_, name) for name in request_.__struct_fields__}
    request = messages.PublishRequest(**fields | {"payload": form.encode_payload(said)})
    word = messages.MessageNotice(
        [3, 4], 77, 9, 123, request.x, request.y, form.encode_payload(said), request.retain,
        request.attributes, request.channel, request.z, request.r,
    )  # fmt: skip
    assert body(message_frame(accepted(9, request, form), 123, form, [3, 4])) == form.encode(word)


def test_a_payload_is_turned_into_the_readers_form() -> None:
    value = {"name": "ann", "place": [1, 2.5], "ok": None}
    one = accepted(
        1,
        messages.PublishRequest(0.0, 0.0, messages.MSGPACK.encode_payload(value)),
        messages.MSGPACK,
    )
    told = messages.JSON.read_notice(body(message_frame(one, 5, messages.JSON, [1])))
    assert messages.JSON.decode_payload(told.payload) == value


def test_a_payload_that_json_cannot_say_is_nothing() -> None:
    strange = Raw(b"\x81\x92\x01\x02\x03")  # a map whose key is an array
    one = accepted(1, messages.PublishRequest(0.0, 0.0, strange), messages.MSGPACK)
    told = messages.JSON.read_notice(body(message_frame(one, 5, messages.JSON, [1])))
    assert messages.JSON.decode_payload(told.payload) is None
    assert (told.x, told.publication) == (0.0, 1)


@given(
    pairs=st.sets(st.tuples(st.integers(0, 4), st.integers(0, 5), st.integers(0, 9)), max_size=60),
    numbers=st.lists(st.integers(0, 3), min_size=10, max_size=10),
    packed=st.lists(st.booleans(), min_size=5, max_size=5),
)
@examples(200)
def test_everyone_gets_each_publication_once_with_all_matching_numbers(
    pairs: set[tuple[int, int, int]], numbers: list[int], packed: list[bool]
) -> None:
    """Pairs are (seat, publication, standing); a naive grouping must give the same words."""
    publications = [accepted(100 + n, messages.PublishRequest(float(n), 0.0)) for n in range(6)]
    rows = np.array(sorted(pairs), np.int64).reshape(-1, 3)
    ids = np.array([one.id for one in publications])
    heard = FlushDeliveries(7, publications, rows[:, 0], rows[:, 1], rows[:, 2], ids)
    post = delivery_frames(heard, np.array(numbers), np.array(packed))
    wanted: dict[int, dict[int, list[int]]] = {}
    for state, publication, subscription in sorted(pairs):
        mine = wanted.setdefault(state, {})
        mine.setdefault(publication, []).append(numbers[subscription])
    assert post.clients.tolist() == sorted(wanted)
    for turn, state in enumerate(post.clients.tolist()):
        form = FORMS[packed[state]]
        mine = post.frames(post.starts[turn], post.starts[turn + 1])
        told = [form.read_notice(body(frame)) for frame in mine]
        assert post.sizes[turn] == sum(map(len, mine))
        assert [(m.publication - 100, m.to) for m in told] == list(wanted[state].items())
        what = post.publications[post.starts[turn] : post.starts[turn + 1]].tolist()
        assert what == list(wanted[state])


def test_subscribers_with_the_same_deliveries_share_one_frame() -> None:
    one = [accepted(1, messages.PublishRequest(0.0, 0.0))]
    first, ids = np.zeros(50, np.int64), np.array([one[0].id])
    heard = FlushDeliveries(7, one, np.arange(50), first, np.arange(50), ids)
    post = delivery_frames(heard, np.ones(50, np.int64), np.zeros(50, np.bool_))
    assert len({id(frame) for frame in post.frames(0, 50)}) == 1
    assert len(post.begins) == 2, "it is built once"
