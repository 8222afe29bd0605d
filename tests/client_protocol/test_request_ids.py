"""Every refusal of a request that has an id names it, whatever else is wrong with the request."""

import math
from typing import Any

import msgspec
import pytest

from nearcast.client_protocol import messages
from nearcast.peer.line_protocol import LineProtocol
from nearcast.server.config import LimitSettings
from support.live_clients import LiveClient, connect_client, join_client, run, service

J, P = messages.JSON, messages.MSGPACK

JSON_FRAMES = {
    "a text for a number": b'{"do":"publish","x":"a","y":2,"id":10}',
    "the id first": b'{"id":10,"do":"publish","x":"a","y":2}',
    "a field that is missing": b'{"do":"publish","x":1,"id":10}',
    "a field that there is not": b'{"do":"subscribe","subscription":1,"radius":50,"id":10}',
    "an area with a wrong field": b'{"do":"nearby","area":{"lat":1,"lon":2},"id":10}',
    "null for a number": b'{"do":"publish","x":null,"y":2,"id":10}',
    "NaN": b'{"do":"publish","x":NaN,"y":2,"id":10}',
    "too large a number": b'{"do":"publish","x":1e400,"y":2,"id":10}',
    "a request that there is not": b'{"do":"dance","id":10}',
    "no request at all": b'{"id":10}',
    "an attribute that is a list": b'{"do":"publish","x":1,"y":2,"attributes":{"a":[1]},"id":10}',
    "a payload with half a pair": b'{"do":"publish","x":1,"y":2,"payload":"\\ud800","id":10}',
    "a payload beyond a double": b'{"do":"publish","x":1,"y":2,"payload":1e400,"id":10}',
    "a payload that is too deep": b'{"do":"publish","x":1,"y":2,"payload":%b%b,"id":10}'
    % (b"[" * 500, b"]" * 500),
    "more than a frame": b'{"do":"publish","x":1,"y":2,"payload":"%b","id":10}' % (b"x" * 3_000),
}


def packed(*elements: Any) -> bytes:
    return msgspec.msgpack.encode(elements)


PACKED_FRAMES = {
    "a text for a number": packed(1, "a", 2, None, False, {}, "", 0, None, None, None, None, 10),
    "NaN": packed(1, math.nan, 2, None, False, {}, "", 0, None, None, None, None, 10),
    "an attribute that is a list": packed(
        1, 1, 2, None, False, {"a": [1]}, "", 0, None, None, None, None, 10
    ),
    "a payload that is no UTF-8": b"\x9d\x01\x01\x02\xa1\xff\xc2\x80\xa0\x00\xc0\xc0\xc0\xc0\x0a",
    "a text that is no UTF-8": b"\x9d\x01\x01\x02\xc0\xc2\x80\xa1\xff\x00\xc0\xc0\xc0\xc0\x0a",
    "an area with a wrong field": packed(8, {"lat": 1}, "", 100, 10),
    "an area that is none": packed(5, 1, "here", 10),
    "a number that is none": packed(7, "one", 10),
    "a wrong name": packed(2, 5, "", 10),
    "more than a frame": packed(1, 1, 2, "x" * 3_000, False, {}, "", 0, None, None, None, None, 10),
    "more elements than there are": packed(
        1, "a", 2, None, False, {}, "", 0, None, None, None, None, 10, "new"
    ),
}

WITHOUT = {
    "no JSON": (J, b"hello"),
    "an id that is no integer": (J, b'{"do":"publish","x":"a","y":2,"id":"10"}'),
    "an id that is true": (J, b'{"do":"publish","x":NaN,"y":2,"id":true}'),
    "an id below 0": (J, b'{"do":"publish","x":"a","y":2,"id":-1}'),
    "an id beyond all": (J, b'{"do":"publish","x":"a","y":2,"id":100000000000000000000}'),
    "a list": (J, b'["publish",10]'),
    "nothing": (P, b""),
    "an empty array": (P, b"\x90"),
    "a number that there is not": (P, packed(99, 10, 10)),
    "no number": (P, packed("publish", 10)),
    "cut off": (P, b"\x9d\x01\xa5ab"),
    "too short": (P, packed(1, "a", 2)),
    "no array": (P, b"\x0a"),
    "far too deep": (P, b"\x91" * 5_000),
}


@pytest.mark.parametrize(
    ("form", "frame"),
    [
        *(pytest.param(J, frame, id=f"json-{name}") for name, frame in JSON_FRAMES.items()),
        *(pytest.param(P, frame, id=f"packed-{name}") for name, frame in PACKED_FRAMES.items()),
    ],
)
def test_a_refusal_names_the_request(form: messages.Encoding, frame: bytes) -> None:
    async def story() -> Any:
        async with service(limits=LimitSettings(frame=2_000)) as node:
            raw_client = await _before_join(form, frame, node)
            ann = await join_client(node, "ann", form)
            ann.send(frame)
            error = await ann.await_notice(messages.ErrorNotice)
            assert not ann.gone.is_set()
            assert raw_client.id == error.id
            return error

    error = run(story())
    assert (error.id, len(error.reason) > 5) == (10, True)


async def _before_join(form: messages.Encoding, frame: bytes, node: Any) -> Any:
    client: LiveClient = await connect_client(node, form)
    client.send(frame)
    return await client.await_notice(messages.ErrorNotice)


@pytest.mark.parametrize(("form", "frame"), WITHOUT.values(), ids=WITHOUT)
def test_a_frame_without_a_valid_id_has_no_request_id(
    form: messages.Encoding, frame: bytes
) -> None:
    assert form.request_id(frame) is None


def test_a_peers_refusal_names_the_request_too() -> None:
    notices: list[Any] = []
    nobody: Any = None  # what is refused never reaches the host
    for name, frame in JSON_FRAMES.items():
        if name != "more than a frame":
            LineProtocol(notices.append).obey(nobody, 1, frame)
    assert [notice.id for notice in notices] == [10] * (len(JSON_FRAMES) - 1)
