"""Whatever one client puts into a payload, others hear what they can, and lose nothing else."""

import asyncio
import json
import logging
import math
import struct
import urllib.error
import urllib.request
from typing import Any

import msgspec
import pytest
from msgspec import Raw

import nearcast
from nearcast.client_protocol import messages
from nearcast.client_protocol.geometry_json import Area
from nearcast.client_protocol.payloads import MAX_NESTING, Unreadable
from nearcast.errors import MalformedMessageError
from nearcast.matching import MATCHERS
from nearcast.peer.line_protocol import LineProtocol
from nearcast.server.config import LimitSettings
from nearcast.server.server import Server
from nearcast.service import frames
from nearcast.service.cluster.realm import ClusterRealm
from nearcast.service.realm import Realm
from nearcast.space.shapes import EVERYWHERE, point
from support.join_targets import Join, in_both
from support.live_clients import LiveClient, join_client, run, service
from support.patience import PATIENCE_S

J, P = messages.JSON, messages.MSGPACK


def nested(levels: int) -> Any:
    value: Any = []
    for _ in range(levels - 1):
        value = [value]
    return value


def packed_float(number: float) -> bytes:
    return b"\xcb" + struct.pack(">d", number)


# Payloads that nobody could read: refused.
UNREADABLE_JSON = {
    "a byte that is no UTF-8": b'"\xff"',
    "a surrogate in UTF-8": b'"\xed\xa0\x80"',
    "beyond Unicode": b'"\xf4\x90\x80\x80"',
    "a key that is no UTF-8": b'{"a":[{"\xc3(":1}]}',
    "half a surrogate pair": b'"\\ud800"',
    "beyond a double": b"1e400",
    "far beyond a double": b'{"a":[-1e99999999999]}',
    "too many digits": b"1" * 5_000,
    "too deep": msgspec.json.encode(nested(MAX_NESTING + 1)),
    "far too deep": b"[" * 5_000 + b"]" * 5_000,
}
UNREADABLE_PACKED = {
    "a byte that is no UTF-8": b"\xa1\xff",
    "a surrogate in UTF-8": b"\xa3\xed\xa0\x80",
    "a key that is no UTF-8": b"\x91\x81\xa2\xc3(\x01",
    "a map as a key": b"\x81\x80\x01",
    "a timestamp after year 9999": b"\xc7\x0c\xff" + struct.pack(">Iq", 0, 2**60),
    "a timestamp with too many nanoseconds": b"\xd7\xff" + b"\xff" * 8,
    "too deep": b"\x91" * MAX_NESTING + b"\x90",
    "too deep in a key": b"\x81" + b"\x91" * MAX_NESTING + b"\x90" + b"\x01",
    "far too deep": b"\x91" * 5_000 + b"\x01",
    "an unknown code": b"\xc1",
    "cut off": b"\xa5ab",
}
# Payloads that only speakers of the same form can read.
ONLY_JSON = {
    "an integer beyond 64 bits": b"100000000000000000000",
    "the same, deep inside": b'{"a":[{"b":-100000000000000000000}]}',
    "hundreds of digits": b"1" * 400,
}
ONLY_PACKED = {
    "a number as a key": b"\x81\x01\x02",
    "keys that JSON takes for the same": b"\x82\x01\x02\xa11\x03",
    "an array as a key": b"\x81\x90\x01",
    "nil as a key": b"\x91\x81\xc0\x01",
    "an extension": b"\xd4\x05\x01",
    "NaN": packed_float(math.nan),
    "infinity, deep inside": b"\x81\xa1a\x91" + packed_float(-math.inf),
}


def json_publish(payload: bytes, number: int = 7, retain: bool = False) -> bytes:
    more = b'"retain":%b,"id":%d' % (b"true" if retain else b"false", number)
    return b'{"do":"publish","x":1,"y":1,"payload":%b,%b}' % (payload, more)


def packed_publish(payload: bytes, number: int = 7, retain: bool = False) -> bytes:
    flag = b"\xc3" if retain else b"\xc2"
    return b"\x9d\x01\x01\x01" + payload + flag + b"\x80\xa0\x00\xc0\xc0\xc0\xc0" + bytes((number,))


FRAMES = {J: json_publish, P: packed_publish}


@pytest.mark.parametrize(
    ("form", "payload"),
    [
        *(pytest.param(J, bad, id=f"json-{name}") for name, bad in UNREADABLE_JSON.items()),
        *(pytest.param(P, bad, id=f"packed-{name}") for name, bad in UNREADABLE_PACKED.items()),
    ],
)
def test_a_payload_that_no_client_can_read_is_not_forwarded(
    form: messages.Encoding, payload: bytes
) -> None:
    """The request is refused by its decoder or by the payload's check, in one line."""
    with pytest.raises(MalformedMessageError) as refused:
        form.check_payload(form.read_request(FRAMES[form](payload)).payload)
    assert len(str(refused.value)) < 300
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("form", "value"),
    [
        (J, nested(MAX_NESTING)), (P, nested(MAX_NESTING)), (J, [[]] * 5_000), (P, [[]] * 5_000),
        (P, {"a": nested(MAX_NESTING - 1)}), (J, "é€𐀀" * 100), (P, "é€𐀀" * 100), (J, 1e308),
        (J, {"": [None, True, -1.5, "\x7f"]}), (P, b"\xff" * 500), (P, 2**64 - 1),
    ],
)  # fmt: skip
def test_a_payload_that_every_client_can_read_is_forwarded(
    form: messages.Encoding, value: Any
) -> None:
    form.check_payload(form.encode_payload(value))


@pytest.mark.parametrize(
    ("form", "payload"),
    [
        *(pytest.param(J, odd, id=f"json-{name}") for name, odd in ONLY_JSON.items()),
        *(pytest.param(P, odd, id=f"packed-{name}") for name, odd in ONLY_PACKED.items()),
    ],
)
def test_a_payload_that_the_other_encoding_lacks_is_none_there(
    form: messages.Encoding, payload: bytes
) -> None:
    form.check_payload(Raw(payload))
    assert form.translate_payload(Raw(payload), form) == Raw(payload)
    assert form.translate_payload(Raw(payload), P if form is J else J) is messages.NO_PAYLOAD


@pytest.mark.parametrize("value", [None, True, -3, 1.5, "é", {"a": [1, {"b": None}]}, 2**63])
def test_a_payload_that_both_encodings_have_is_translated_without_loss(value: Any) -> None:
    for form, other in ((J, P), (P, J)):
        sealed = form.encode_payload(value) if value is not None else messages.NO_PAYLOAD
        assert other.decode_payload(form.translate_payload(sealed, other)) == value


def test_binary_data_becomes_base64_and_a_timestamp_its_text() -> None:
    assert J.decode_payload(P.translate_payload(Raw(b"\xc4\x02\xff\xff"), J)) == "//8="
    stamp = P.translate_payload(Raw(b"\xd6\xff\x00\x00\x00\x01"), J)
    assert J.decode_payload(stamp) == "1970-01-01T00:00:01Z"


async def _crowd(node: Server) -> tuple[list[LiveClient], LiveClient]:
    """A listener of each form, and somebody whose publications are innocent."""
    listeners = [await join_client(node, form.name, form) for form in (J, P)]
    for one in listeners:
        await one.ask(messages.SubscribeRequest, 1, Area())
    return listeners, await join_client(node, "innocent", P)


@pytest.mark.parametrize(
    ("form", "payload"),
    [(J, b"100000000000000000000"), (P, b"\x81\x01\x02"), (P, packed_float(math.nan))],
    ids=["bigint", "key", "nan"],
)
@pytest.mark.parametrize("retain", [False, True], ids=["said", "retained"])
def test_a_payload_that_one_encoding_lacks_loses_no_other_publication(
    form: messages.Encoding, payload: bytes, retain: bool
) -> None:
    async def story() -> None:
        async with service() as node:
            listeners, innocent = await _crowd(node)
            odd = await join_client(node, "odd", form)
            for number in range(1, 11):
                innocent.send(packed_publish(b"\xa2ok", 20 + number))
            odd.send(FRAMES[form](payload, 99, retain))
            for number in range(11, 21):
                innocent.send(packed_publish(b"\xa2ok", 20 + number))
            assert form.message_class(await odd.answer(99)) is messages.DoneNotice
            for number in range(1, 21):
                assert P.message_class(await innocent.answer(20 + number)) is messages.DoneNotice
            for one in listeners:
                await one.await_notice(messages.MessageNotice, 21)
                received = [
                    one.form.decode_payload(message.payload)
                    for message in one.of(messages.MessageNotice)
                    if message.source == odd.entity
                ]
                same = one.form is form
                assert (len(received), received[0] is None) == (1, not same)
                assert len(one.of(messages.MessageNotice)) == 21
            assert node.gateway.metrics.faults == 0
            if retain:
                for one in listeners:
                    near = await one.ask(messages.NearbyRequest, Area())
                    await one.ask(messages.SubscribeRequest, 2, Area(), watch=True)
                    (inside,) = (await one.await_notice(messages.InsideNotice)).entities
                    for entity in (near.entities[0], inside):
                        assert (one.form.decode_payload(entity.payload) is None) == (
                            one.form is not form
                        )

    run(story())


def test_a_payload_that_is_not_utf_8_is_refused_over_http_too() -> None:
    def post(port: int, body: bytes) -> tuple[int, str]:
        request = urllib.request.Request(f"http://127.0.0.1:{port}/publish", body)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
                return answer.status, ""
        except urllib.error.HTTPError as why:
            return why.code, json.load(why)["error"]

    async def story() -> list[tuple[int, str]]:
        async with service() as node:
            listeners, innocent = await _crowd(node)
            bodies = [
                b'{"x":3,"y":4,"payload":"\xff","retain":true}', b'{"\xff":3,"x":3,"y":4}',
                b'{"x":3,"y":4,"payload":1e400}', b'{"x":1e400,"y":4}', b'{"x":3,"y":' * 3_000,
                b'{"x":3,"y":4,"payload":100000000000000000000,"retain":true}',
            ]  # fmt: skip
            answers = [await asyncio.to_thread(post, node.port, body) for body in bodies]
            await innocent.ask(messages.PublishRequest, 1.0, 1.0, P.encode_payload("ok"))
            for one in listeners:
                await one.await_notice(messages.MessageNotice, 2)
            listing = f"http://127.0.0.1:{node.port}/near?x=3&y=4&r=9"
            near = await asyncio.to_thread(lambda: urllib.request.urlopen(listing).read())
            assert [one["payload"] for one in json.loads(near)["entities"]] == [10**20]
            return answers

    answers = run(story())
    assert [status for status, _ in answers] == [400] * 5 + [202]
    assert answers[0][1] == "the payload cannot be read: text is not valid UTF-8"


def test_a_failure_while_a_frame_is_built_loses_that_publication_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    whole = frames.message_frame

    def fails(request: Any, *others: Any) -> bytes:
        if request.request.x == 13.0:
            raise ZeroDivisionError("a mistake of ours")
        return whole(request, *others)

    monkeypatch.setattr(frames, "message_frame", fails)

    async def story() -> tuple[list[float], int]:
        async with service() as node:
            (listener, _), innocent = await _crowd(node)
            for x in (1.0, 13.0, 2.0):
                innocent.send_request(messages.PublishRequest(x, 1.0, id=10 + int(x)))
            for x in (1, 13, 2):
                assert P.message_class(await innocent.answer(10 + x)) is messages.DoneNotice
            await listener.await_notice(messages.MessageNotice, 2)
            return [
                one.x for one in listener.of(messages.MessageNotice)
            ], node.gateway.metrics.faults

    with caplog.at_level(logging.ERROR, "nearcast"):
        received, faults = run(story())
    assert (received, faults) == ([1.0, 2.0], 1)
    assert len(caplog.records) == 1
    assert "a mistake of ours" in caplog.text


@in_both
async def test_a_failure_while_matching_loses_that_publication_alone(join: Join) -> None:
    alice, bob = await join("alice"), await join("bob")
    here = await alice.subscribe(EVERYWHERE)
    whole = Realm._match_flush

    def fails(self: Realm, t: int, taken: Any, *others: Any) -> Any:
        if any(one.request.x == 13.0 for one in taken.accepted):
            raise ZeroDivisionError("a mistake of ours")
        return whole(self, t, taken, *others)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Realm, "_match_flush", fails)
        publishing = [bob.publish(point(x, 0), x, channel="") for x in (1, 13, 2, 3)]
        answers = await asyncio.gather(*publishing, return_exceptions=True)
    assert [isinstance(answer, int) for answer in answers] == [True, False, True, True]
    assert isinstance(answers[1], nearcast.Refused)
    assert [(await anext(here)).payload for _ in range(3)] == [1, 2, 3]


def test_an_unreadable_payload_is_decoded_as_unreadable_with_the_reason() -> None:
    for payload, reason in (
        (b"\xa1\xff", "text is not valid UTF-8"),
        (b"\x91" * 5_000 + b"\x01", "arrays and objects are nested too deep"),
        (b"\xc1", "MessagePack data is malformed: invalid opcode '\\xc1' (byte 0)"),
    ):
        assert P.try_decode_payload(Raw(payload)) == Unreadable(payload, reason)
    assert P.try_decode_payload(messages.NO_PAYLOAD) is None
    assert nearcast.Unreadable is Unreadable


@pytest.mark.parametrize("payload", UNREADABLE_JSON.values(), ids=UNREADABLE_JSON)
def test_a_peer_sends_no_unreadable_payload(payload: bytes) -> None:
    with pytest.raises(ValueError, match="payload"):
        LineProtocol(lambda _: None).packed(Raw(payload))


def test_a_peer_delivers_no_unreadable_payload() -> None:
    line_protocol = LineProtocol(lambda _: None)
    for payload in (b"\xa1\xff", b"\x91" * 5_000 + b"\x01", b"\xc1"):
        assert line_protocol.opened(payload) is messages.NO_PAYLOAD
    readable = line_protocol.packed(Raw(b'{"a": [10, 10000000000000000000]}'))
    assert line_protocol.opened(readable) == Raw(b'{"a":[10,10000000000000000000]}')


def test_another_nodes_payload_is_checked_like_a_clients() -> None:
    realm = ClusterRealm(MATCHERS["scan"](), LimitSettings(), None, 1)
    for form, payload in ((J, b'"\xff"'), (P, b"\xa1\xff")):
        request = messages.PublishRequest(1.0, 1.0, Raw(payload), retain=True)
        with pytest.raises(MalformedMessageError, match="not valid UTF-8"):
            realm.receive_remote(7, "name", 9, request, form, 5)
        with pytest.raises(MalformedMessageError, match="not valid UTF-8"):
            realm.learn_state(5, 2, 7, "name", request, form, 9, 5)
    assert realm.waiting == 0
