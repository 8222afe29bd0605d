"""The wire: every message of every protocol comes back whole; hostile bytes are one clear line.

Messages are built from what msgspec knows of their fields, so a new protocol, or a new field, is
tested from the day it is entered in PROTOCOLS.
"""

import struct
from math import inf, nan
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.errors import WireError
from nearcast.model.publication import Publication
from nearcast.node import Message
from nearcast.protocols import PROTOCOLS
from nearcast.protocols.client_server import CODEC, Bye, Notify, Post
from nearcast.service.cluster.messages import CODEC as CLUSTER
from nearcast.space.shapes import point
from nearcast.wire import LONGEST, Codec
from support.examples import examples
from support.message_strategies import FINITE, TEXTS, messages

FLOAT64 = 0xCB  # MessagePack's mark of a number that is no integer


KINDS = [
    pytest.param(protocol.codec, kind, id=f"{name}-{kind.__name__}")
    for name, protocol in PROTOCOLS.items()
    for kind in protocol.codec.messages
]
CODECS = [pytest.param(protocol.codec, id=name) for name, protocol in PROTOCOLS.items()]


def refusal(codec: Codec, frame: bytes) -> str:
    """The one line with which these bytes are refused."""
    with pytest.raises(WireError) as caught:
        codec.decode(frame)
    line = str(caught.value)
    assert line
    assert line.isprintable(), "one line, whatever the bytes"
    assert len(line) <= 200, "and a short one"
    return line


def read(codec: Codec, frame: bytes) -> Message | None:
    """What the bytes say, or None where they are refused; nothing else may happen."""
    try:
        return codec.decode(frame)
    except WireError as why:
        assert str(why).isprintable()
        return None


# There and back.


@pytest.mark.parametrize(("codec", "kind"), KINDS)
@examples(10)
@given(drawn=st.data())
def test_every_message_comes_back_whole_and_is_as_long_as_it_says(
    codec: Codec, kind: type[Message], drawn: st.DataObject
) -> None:
    message = drawn.draw(messages(kind))
    frame = codec.encode(message)
    again = codec.decode(frame)
    assert again == message
    assert type(again) is kind
    assert codec.encode(again) == frame
    assert codec.size(message) == len(frame)
    assert again.carries() == message.carries()


@pytest.mark.parametrize("codec", CODECS)
def test_each_kind_of_message_has_a_number_of_its_own(codec: Codec) -> None:
    tags = [kind.__struct_config__.tag for kind in codec.messages]
    assert all(isinstance(tag, int) for tag in tags)
    assert len(set(tags)) == len(tags)
    assert all(issubclass(kind, Message) for kind in codec.messages)


def test_in_traces_each_class_of_messages_has_a_name_of_its_own_with_its_protocol() -> None:
    classes = {kind for protocol in PROTOCOLS.values() for kind in protocol.codec.messages}
    classes |= set(CLUSTER.messages)
    assert len({kind.kind for kind in classes}) == len(classes)
    assert all(kind.kind == f"{kind.protocol}.{kind.__name__}" for kind in classes)
    assert Bye.kind == "client-server.Bye"


def test_two_messages_with_one_tag_are_refused() -> None:
    class Hello(Message, frozen=True, tag=6):
        name: str

    with pytest.raises(TypeError, match="tag"):
        Codec(Bye, Hello)


def test_a_protocol_with_a_single_message_decodes_it() -> None:
    assert Codec(Bye).decode(Codec(Bye).encode(Bye(0))) == Bye(0)


@pytest.mark.parametrize("codec", CODECS)
@examples(10)
@given(tag=st.integers(-5, 2**64 - 1) | st.none() | st.booleans() | TEXTS | FINITE)
def test_an_unknown_number_is_refused(codec: Codec, tag: object) -> None:
    if type(tag) is int and tag in {kind.__struct_config__.tag for kind in codec.messages}:
        return
    refusal(codec, msgspec.msgpack.encode([tag, 1, 2, 3]))
    refusal(codec, msgspec.msgpack.encode({"type": tag}))
    refusal(codec, msgspec.msgpack.encode(tag))


# Broken on the way.


@pytest.mark.parametrize(("codec", "kind"), KINDS)
@examples(4)
@given(drawn=st.data())
def test_a_message_without_its_end_or_with_more_than_its_end_is_refused(
    codec: Codec, kind: type[Message], drawn: st.DataObject
) -> None:
    frame = codec.encode(drawn.draw(messages(kind)))
    for end in range(len(frame)):
        refusal(codec, frame[:end])
    for more in (b"\x00", b"\xc0", frame):
        refusal(codec, frame + more)


@pytest.mark.parametrize(("codec", "kind"), KINDS)
@examples(4)
@given(drawn=st.data())
def test_a_flipped_byte_makes_another_message_or_none(
    codec: Codec, kind: type[Message], drawn: st.DataObject
) -> None:
    frame = codec.encode(drawn.draw(messages(kind)))
    flip = drawn.draw(st.integers(1, 255))
    for place in range(len(frame)):
        broken = bytearray(frame)
        broken[place] ^= flip
        message = read(codec, bytes(broken))
        if message is not None:  # then it is as good as any: it travels on unchanged
            assert codec.decode(codec.encode(message)) == message


@pytest.mark.parametrize(("codec", "kind"), KINDS)
@examples(4)
@given(drawn=st.data())
def test_no_decoded_number_is_nan(codec: Codec, kind: type[Message], drawn: st.DataObject) -> None:
    frame = codec.encode(drawn.draw(messages(kind)))
    for place in range(len(frame) - 8):
        if frame[place] == FLOAT64:
            broken = frame[: place + 1] + struct.pack(">d", nan) + frame[place + 9 :]
            message = read(codec, broken)
            assert message is None or codec.decode(codec.encode(message)) == message


@pytest.mark.parametrize("codec", CODECS)
@examples(40)
@given(
    frame=st.binary(max_size=60), head=st.sampled_from([b"", b"\x92", b"\x93", b"\x94", b"\xdc"])
)
def test_random_bytes_are_a_message_or_refused(codec: Codec, frame: bytes, head: bytes) -> None:
    read(codec, frame)
    for kind in codec.messages:
        tag = msgspec.msgpack.encode(kind.__struct_config__.tag)
        message = read(codec, head + tag + frame)
        assert message is None or codec.decode(codec.encode(message)) == message


# Meant to hurt.

HUGE_LIST, HUGE_MAP = b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff"
HUGE_TEXT, HUGE_BYTES = b"\xdb\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff"
DEEP_LIST, DEEP_MAP = b"\x91" * (LONGEST - 9), b"\x81\xa0" * (LONGEST // 2 - 9)
SAID = msgspec.msgpack.encode(Publication(1, 1, 0, point(0.0, 0.0), "c", {}, b"p"))


@pytest.mark.parametrize("bomb", [HUGE_LIST, HUGE_MAP, HUGE_TEXT, HUGE_BYTES, DEEP_LIST, DEEP_MAP])
@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_in_place_of_any_field_is_refused(codec: Codec, bomb: bytes) -> None:
    refusal(codec, bomb)
    for kind in codec.messages:
        tag = msgspec.msgpack.encode(kind.__struct_config__.tag)
        fields = len(msgspec.structs.fields(kind))
        for before in range(fields + 1):  # one past the last: an unknown field, to be skipped
            frame = bytes([0x92 + before]) + tag + b"\x01" * before + bomb
            refusal(codec, frame[:LONGEST])


@pytest.mark.parametrize("bomb", [HUGE_LIST, HUGE_MAP, HUGE_TEXT, HUGE_BYTES, DEEP_LIST, DEEP_MAP])
def test_a_bomb_deep_inside_a_message_is_refused(bomb: bytes) -> None:
    still = b"\x92\x01\x93\x00\x00\x00"
    frames = [
        b"\x93\x05" + SAID + bomb,  # Notify, in place of the subscriptions
        b"\x93\x05" + SAID + b"\x91" + bomb,
        b"\x92\x04\x97\x01\x01\x00\x93\x00\x00\x00\xa0" + bomb + b"\xc4\x00",  # the attributes
        b"\x92\x04\x97\x01\x01\x00\x93\x00\x00\x00\xa0\x81\xa1w" + bomb + b"\xc4\x00",
        b"\x92\x04\x97\x01\x01\x00\x93\x00\x00\x00\xa0\x80" + bomb,  # the payload
        b"\x92\x01\x93\x01\x01\x92\x02" + bomb,  # the legs of a path
        b"\x92\x01\x93\x01\x01\x92\x02\x92" + still + bomb,
        b"\x92\x01\x93\x01\x01\x92\x03" + bomb,  # the text of a formula
        b"\x92\x01\x94\x01\x01" + still + b"\x91" + bomb,  # the text of a filter
        b"\x92\x01\x94\x01\x01\x92\x01" + b"\x97\x00\x00\x00" + bomb,  # within a shape
    ]
    for frame in frames:
        refusal(CODEC, frame[:LONGEST])


@pytest.mark.parametrize("codec", CODECS)
def test_a_message_beyond_the_longest_length_is_refused(codec: Codec) -> None:
    frame = codec.encode(Bye(0)) if Bye in codec.messages else b"\x91\x01"
    line = refusal(codec, frame + bytes(LONGEST + 1 - len(frame)))
    assert line == f"a message of {LONGEST + 1} bytes is longer than {LONGEST}"
    refusal(codec, bytes(64 * LONGEST))


def test_the_longest_message_is_read_and_one_byte_more_is_not() -> None:
    def post(size: int) -> Post:
        return Post(Publication(1, 1, 0, point(0.0, 0.0), "", {}, bytes(size)))

    fits = LONGEST - CODEC.size(post(70_000)) + 70_000
    assert CODEC.size(post(fits)) == LONGEST
    assert CODEC.decode(CODEC.encode(post(fits))) == post(fits)
    refusal(CODEC, CODEC.encode(post(fits + 1)))


def test_a_full_frame_of_small_things_is_read_or_refused_and_no_more() -> None:
    many = 300_000
    ids = b"\xdd" + struct.pack(">I", many) + b"\x07" * many
    notify = CODEC.decode(b"\x93\x05" + SAID + ids)
    assert isinstance(notify, Notify)
    assert notify.subscriptions == (7,) * many
    still = [1, [0, 0.0, 0.0], [0.0] * 3, [0.0] * 3, 0]
    legs = msgspec.msgpack.encode([1, [1, 1, [2, [still] * 10_000]]])
    assert "a path has at most 1000 legs, not 10000" in refusal(CODEC, legs)
    refusal(CODEC, msgspec.msgpack.encode([1, [1, 1, [3, "x > " + "(" * 900_000]]]))
    refusal(CODEC, msgspec.msgpack.encode([1, [1, 1, [3, "x > " + "(" * 900]]]))
    refusal(CODEC, msgspec.msgpack.encode([1, [1, 1, [3, ", ".join(["x > 1"] * 100)]]]))


def test_a_refusal_is_short_however_long_the_names_in_the_message_are() -> None:
    """`refusal` asserts it of every line."""
    for value in (nan, 2**63, None):
        said = [1, 1, 0, [0, 0.0, 0.0], "", {"a" * 900_000: value}]
        refusal(CODEC, msgspec.msgpack.encode([4, said]))
    refusal(CODEC, msgspec.msgpack.encode([1, [1, 1, [3, "x > " + "a" * 900_000]]]))


PLACE, STANDS = [0, 0.0, 0.0], ([0.0] * 3, [0.0] * 3)


@pytest.mark.parametrize(
    ("message", "says"),
    [
        ([4, [1, 1, 0, [0, nan, 0.0]]], "a centre must be within ±1e+150, not (nan, 0.0, 0.0)"),
        ([4, [1, 1, 0, [0, 0.0, inf]]], "a centre must be within ±1e+150, not (0.0, inf, 0.0)"),
        ([4, [1, 1, 0, [0, 0.0, 1e200]]], "a centre must be within ±1e+150"),
        ([4, [1, 1, 0, [1, 0.0, 0.0, 0.0, 1e200]]], "extents must be infinite or at most 1e+150"),
        ([4, [1, 1, -1, PLACE]], "Expected `int` >= 0"),
        ([4, [1, 1, 2**53, PLACE]], "Expected `int` <= 9007199254740991"),
        ([4, [1, 1, 2**63, PLACE]], "Expected `int` <= 9007199254740991"),
        ([4, [1, 1, 0, PLACE, "", {"n": 2**63}]], "attribute 'n' must fit 64 bits"),
        ([4, [1, 1, 0, [1, 0.0, 0.0, 0.0, -1.0]]], "extents must be 0 or more"),
        ([4, [1, 1, 0, [1, 0.0, 0.0, 0.0, inf]]], "a disc has one finite radius"),
        ([4, [1, 1, 0, [0, 0.0, 0.0, 0.0, 1.0]]], "a point has no extents"),
        ([4, [1, 1, 0, PLACE, "", {"x": 1}]], "cannot be an attribute"),
        ([4, [1, 1, 0, PLACE, "", {"w\n": nan}]], "must be finite"),
        ([4, [2**53, 1, 0, PLACE]], "Expected `int`"),
        ([5, [1, 1, 0, PLACE], [-1]], "Expected `int`"),
        ([1, [1, 1, [1, [0, nan, 0.0]]]], "a centre must be within ±1e+150"),
        (
            [1, [1, 1, [1, PLACE, [nan, 0.0, 0.0]]]],
            "velocity and growth must be within ±1e+100, not nan",
        ),
        ([1, [1, 1, [1, PLACE, *STANDS, -1]]], "Expected `int` >= 0"),
        ([1, [1, 1, [1, PLACE, *STANDS, 2**63]]], "Expected `int` <= 9007199254740991"),
        ([1, [1, 1, [1, PLACE, *STANDS, None, 2**62]]], "Expected `int` <= 9007199254740991"),
        ([1, [1, 1, [1, PLACE, *STANDS, None, -(2**63)]]], "Expected `int` >= 0"),
        ([1, [1, 1, [3, "x > 3", 2**63]]], "Expected `int` <= 9007199254740991"),
        ([1, [1, 1, [1, PLACE], ["weight > 3", -1]]], "Expected `int` >= 0"),
        ([1, [1, 1, [2, []]]], "a path needs at least one leg"),
        ([1, [1, 1, [3, "weight\n> 3"]]], "a region's formula speaks of x, y and z alone"),
        ([1, [1, 1, [3, "x >\n"]]], "expected"),
        ([1, [1, 1, [1, PLACE], ["x > 3"]]], "a filter cannot speak of x, y or z"),
        ([2, 1, [9, "x > 3"]], "Invalid value 9"),
        ([3, 1.5, 0], "Expected `int`"),
        ([3, 1, -1], "Expected `int` >= 0"),
        ([3, 1], "Expected `array` of at least length 3"),
        ([6, 2**53], "Expected `int` <= 9007199254740991"),
        ([6], "Expected `array` of at least length 2"),
    ],
)
def test_invalid_values_are_refused_by_name(message: list[Any], says: str) -> None:
    assert says in refusal(CODEC, msgspec.msgpack.encode(message))


def test_an_error_is_a_value_error_without_the_decoders_traces() -> None:
    with pytest.raises(ValueError) as caught:
        CODEC.decode(b"")
    assert type(caught.value) is WireError
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__
