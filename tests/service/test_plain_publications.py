"""Frames that are read in columns say what the decoder says; the rest is left to it."""

from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nearcast.client_protocol import messages
from nearcast.client_protocol.geometry_json import Area
from nearcast.client_protocol.limits import Limits
from nearcast.matching import MATCHERS
from nearcast.service.client_state import ClientState, FlushDeliveries
from nearcast.service.frames import delivery_frames, message_frame
from nearcast.service.plain_publications import read_plain
from nearcast.service.realm import Realm
from nearcast.service.retained_state import NOT_PLAIN
from nearcast.trace.reader import digest
from nearcast.trace.recorder import Recorder
from nearcast.trace.sinks import MemoryTrace
from support.examples import examples

pack = msgspec.msgpack.encode
ANY_PAYLOAD = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.binary()
    | st.text(max_size=40),
    lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(st.text(max_size=5) | st.integers(0, 9), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip
COORDINATES = st.integers(-(2**40), 2**40) | st.floats() | st.none()


def rows(frames: list[bytes], **options: Any) -> np.ndarray:
    given_options = {"credit": np.full(1, 100), "longest_payload": 10**6} | options
    lengths = np.array([len(frame) for frame in frames])
    return read_plain(
        b"".join(frames), lengths, np.zeros(len(frames), np.int64),
        entities=np.array([77]), feeds=np.array([5]), **given_options,
    )  # fmt: skip


def check_against_decoder(frame: bytes) -> bool:
    """A plain row says what the decoder says. Whether it is plain."""
    (row,) = rows([frame])
    if row["payload"] == NOT_PLAIN:
        return False
    request = messages.MSGPACK.decode_request(frame)
    payload = frame[row["payload"] : row["payload"] + row["size"]]
    assert request == messages.MSGPACK.publish_class(
        float(row["centre"][0]), float(row["centre"][1]), msgspec.Raw(payload), bool(row["retain"])
    )
    if payload:
        messages.MSGPACK.check_payload(request.payload)
    assert (row["entity"], row["client"], row["client_slot"], row["feed"]) == (77, 77, 0, 5)
    return True


@given(COORDINATES, COORDINATES, ANY_PAYLOAD, st.booleans() | st.none(), st.integers(2, 5))
@examples(500)
def test_what_a_client_may_send_is_read_as_the_decoder_reads_it(
    x: Any, y: Any, payload: Any, retain: Any, elements: int
) -> None:
    try:
        frame = pack([1, x, y, payload, retain][:elements])
    except msgspec.ValidationError:
        return
    check_against_decoder(frame)


@given(st.binary(max_size=40), st.integers(0, 60), st.binary(min_size=1, max_size=3))
@example(b"", 0, b"\x91")
@examples(1_000)
def test_any_bytes_are_read_as_the_decoder_reads_them(
    after: bytes, place: int, other: bytes
) -> None:
    for frame in (b"\x94\x01\x05\x06" + after, pack([1, 1.5, -2.5, {"a": [1, after]}, True])):
        check_against_decoder(frame)
        changed = bytearray(frame)
        changed[place % len(frame) : place % len(frame) + len(other)] = other
        check_against_decoder(bytes(changed))
        check_against_decoder(frame[: place % len(frame)])


@pytest.mark.parametrize(
    "said",
    [
        [1, 1.5, -2.5],
        [1, 100, -7, b"x" * 64],
        [1, -1_000, 70_000, b"x" * 300],
        [1, 1.5, 2.5, "ascii", True],
        [1, 1.5, 2.5, {"name": "ann", "hp": [1, 2.5, None, True]}, False],
        [1, 1.5, 2.5, [[], {}, [{"a": {}}]]],
    ],
)
def test_the_usual_publications_are_plain(said: list[Any]) -> None:
    assert check_against_decoder(pack(said))


@pytest.mark.parametrize(
    "said",
    [
        [1, None, None],
        [1, 1.5, float("nan")],
        [1, 1e300, 0.0],
        [1, 1.5, 2.5, "ümlaut"],
        [1, 1.5, 2.5, {1: 2}],
        [1, 1.5, 2.5, None, None],
        [1, 1.5, 2.5, None, False, {"level": 1}],
        [1, 1.5, 2.5, [[[[[[[[[1]]]]]]]]]],
        [2, "a"],
    ],
)
def test_others_are_left_to_the_decoder(said: list[Any]) -> None:
    assert not check_against_decoder(pack(said))


def test_credit_limits_and_what_may_be_retained_are_kept() -> None:
    frames = [pack([1, float(i), 0.0, b"12345", True]) for i in range(5)]
    credit = np.array([3])
    assert (rows(frames, credit=credit)["payload"] != NOT_PLAIN).tolist() == [True] * 3 + [
        False
    ] * 2
    assert credit.tolist() == [0]
    assert (rows(frames, longest_payload=6)["payload"] == NOT_PLAIN).all()
    assert (rows(frames, may_retain=False)["payload"] == NOT_PLAIN).all()


NUMBERS = st.sampled_from([0, 1, 127, 128, 255, 256, 65_535, 65_536, 2**32 - 1, 2**32, 2**53])


@given(
    st.floats(-1e6, 1e6), st.floats(-1e6, 1e6), st.binary(max_size=300), st.booleans(),
    st.booleans(), NUMBERS, NUMBERS, NUMBERS, NUMBERS,
)  # fmt: skip
@example(0.0, 0.0, b"x" * 65_530, True, True, 1, 1, 1, 1)
@examples(300)
def test_a_frame_of_a_plain_publication_is_as_any_other(
    x: float, y: float, payload: bytes, has_payload: bool, retain: bool,
    number: int, publication: int, entity: int, t: int,
) -> None:  # fmt: skip
    said: list[Any] = [1, x, y, payload, retain] if has_payload else [1, x, y]
    other = pack([1, 0.0, 0.0, "ü"])
    realm = Realm(MATCHERS["keyed"](), Limits(payload=10**6), None)
    client = realm.join(0, "a", messages.MSGPACK)
    realm.entities[client.slot] = client.entity = entity
    realm.publish(client, messages.MSGPACK.decode_request(other), messages.MSGPACK)
    realm.flush(1)
    realm._next_publication = publication
    realm.publish_plain(np.array([0]), [pack(said)], np.array([1]), lambda _: None)
    realm.publish(client, messages.MSGPACK.decode_request(other), messages.MSGPACK)
    taken = realm.take_flush()
    assert (taken.table["payload"] != NOT_PLAIN).tolist() == [True, False]
    heard = FlushDeliveries(
        t, taken.accepted, np.array([0, 0, 1]), np.array([0, 1, 0]), np.array([0, 0, 0]),
        np.array(taken.accepted.ids), table=taken.table, data=taken.data,
    )  # fmt: skip
    post = delivery_frames(heard, np.array([number]), np.array([True, False]))
    forms = (messages.MSGPACK, messages.MSGPACK, messages.JSON)
    assert post.frames(0, 3) == [
        message_frame(taken.accepted[which], t, form, [number])
        for which, form in zip((0, 1, 0), forms, strict=True)
    ]


class Side:
    """A realm, with a recorded trace, whose deliveries are collected."""

    def __init__(self) -> None:
        self.trace = MemoryTrace()
        self.recorder = Recorder(self.trace)
        self.realm = Realm(MATCHERS["keyed"](), Limits(), self.recorder)
        self.clients = [self.realm.join(0, name, messages.MSGPACK) for name in "abc"]
        for client in self.clients:
            request = messages.SubscribeRequest(1, Area(x=0.0, y=0.0, r=50.0), echo=True)
            self.realm.subscribe(1, client, request)
        self.heard: list[tuple[Any, ...]] = []

    def publish(self, client: ClientState, frame: bytes) -> None:
        self.realm.publish(client, messages.MSGPACK.decode_request(frame), messages.MSGPACK)

    def flush(self, t: int) -> None:
        flushed = self.realm.flush(t)
        self.realm.record_deliveries(t, flushed)
        post = delivery_frames(flushed, self.realm.numbers, np.ones(3, np.bool_))
        frames = post.frames(0, len(post.which))
        self.heard.append((post.clients.tolist(), post.starts.tolist(), frames))
        states = [self.realm.retained_states(client) for client in self.clients]
        self.heard += [(s.t, s.accepted.id, s.accepted.request) for one in states for s in one]


PUBLICATIONS = st.tuples(
    st.integers(0, 2), st.floats(-80, 80), st.sampled_from([b"plain", "ünplain", None, [1, 2]]),
    st.booleans(),
)  # fmt: skip


@given(st.lists(st.lists(PUBLICATIONS, max_size=12), max_size=5), st.integers(0, 3))
@examples(150)
def test_publishing_in_columns_is_publishing_one_by_one(
    flushes: list[list[tuple[int, float, Any, bool]]], withdrawn: int
) -> None:
    """The same deliveries, states and traces, in the same order, whatever is plain."""
    naive, columns = Side(), Side()
    for t, batch in enumerate(flushes, 2):
        frames = [pack([1, x, 0.0, payload, retain]) for _, x, payload, retain in batch]
        for (who, *_), frame in zip(batch, frames, strict=True):
            naive.publish(naive.clients[who], frame)
        slots = np.array([columns.clients[who].slot for who, *_ in batch], np.int64)

        def otherwise(place: int, batch: Any = batch, frames: list[bytes] = frames) -> None:
            columns.publish(columns.clients[batch[place][0]], frames[place])

        columns.realm.publish_plain(slots, frames, np.full(3, 5), otherwise)
        for side in (naive, columns):
            if t % 4 == withdrawn:
                request = messages.WithdrawRequest()
                side.realm.withdraw(10 * t, side.clients[0], request)
            side.flush(10 * t + 1)
    assert naive.heard == columns.heard
    for side in (naive, columns):
        side.recorder.flush()
    assert digest(naive.trace) == digest(columns.trace)
