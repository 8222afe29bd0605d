"""The bytes of tables 4.1 to 4.3, and everything that is not those bytes."""

from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.protocols.bubblestorm import layouts
from nearcast.protocols.bubblestorm.layouts import (
    MessageType,
    is_newer,
    pack_position,
    pack_reply,
    stamp_of,
    unpack_position,
    unpack_reply,
)
from nearcast.space.motion import SECOND
from support.examples import examples

NODES = st.integers(0, 2**53 - 1)


def test_header_body_and_element_have_16_20_and_14_bytes() -> None:
    assert layouts.HEADER.size == 16
    assert layouts.POSITION.size == 20
    assert layouts.ELEMENT.size == 14
    assert len(pack_position(MessageType.SUBSCRIPTION, 1, (1.0, 2.0, 3.0), 4.0, 5)) == 36
    assert [len(pack_reply(1, list(range(k)))) for k in (0, 1, 5)] == [16, 30, 86]


def test_fields_stand_where_the_tables_have_them() -> None:
    packet = pack_position(
        MessageType.POSITION, 0x1122334455667, (1.0, -2.0, 0.5), 100.0, 7 * SECOND
    )
    assert packet[:4] == bytes([36, 0, 5, 0])
    assert packet[8:16] == (0x1122334455667).to_bytes(8, "little")
    assert packet[16:20] == b"\x00\x00\x80\x3f"
    assert packet[32:36] == (7000).to_bytes(4, "little")
    reply = pack_reply(3, [0xABCDEF, 9])
    assert reply[:4] == bytes([44, 0, 2, 0])
    assert reply[16:24] == (0xABCDEF).to_bytes(8, "little")
    assert reply[30:38] == (9).to_bytes(8, "little")


@given(NODES, st.tuples(*[st.floats(-1e6, 1e6, width=32)] * 3), st.floats(0, 1e6, width=32))
@examples(50)
def test_a_position_comes_back(node: int, place: tuple[float, float, float], radius: float) -> None:
    packet = pack_position(MessageType.CONTACT, node, place, radius, 123_456_789)
    position = unpack_position(MessageType.CONTACT, packet)
    assert position is not None
    assert position == (node, *place, radius, 123_456)
    assert unpack_position(MessageType.ACCEPT, packet) is None


@given(NODES, st.lists(NODES, max_size=120))
@examples(50)
def test_a_reply_comes_back_and_fits_a_datagram(node: int, peers: list[int]) -> None:
    packet = pack_reply(node, peers)
    assert len(packet) <= 1416
    assert unpack_reply(packet) == (node, peers[: layouts.MOST_ELEMENTS])


@given(st.binary(max_size=90))
@examples(300)
def test_bytes_of_a_wrong_length_are_no_packet(packet: bytes) -> None:
    for kind in MessageType:
        found = unpack_position(kind, packet)
        assert found is None or len(packet) == 36
    reply = unpack_reply(packet)
    assert reply is None or len(packet) == 16 + 14 * len(reply[1])


def test_packets_with_invalid_values_are_refused() -> None:
    good = pack_position(MessageType.POSITION, 1, (1.0, 2.0, 3.0), 4.0, 5)
    assert unpack_position(MessageType.POSITION, good) is not None
    for number in (nan, inf, -inf):
        packet = layouts.PLACED.pack(36, MessageType.POSITION, 0, 1, number, 0.0, 0.0, 1.0, 0)
        assert unpack_position(MessageType.POSITION, packet) is None
    for radius in (nan, -1.0):
        packet = layouts.PLACED.pack(36, MessageType.POSITION, 0, 1, 0.0, 0.0, 0.0, radius, 0)
        assert unpack_position(MessageType.POSITION, packet) is None
    too_high = layouts.PLACED.pack(36, MessageType.POSITION, 0, 2**53, 0.0, 0.0, 0.0, 1.0, 0)
    assert unpack_position(MessageType.POSITION, too_high) is None
    assert unpack_position(MessageType.POSITION, good + b"x") is None
    assert unpack_position(MessageType.POSITION, b"\x25" + good[1:]) is None
    reply = pack_reply(1, [2, 3])
    assert unpack_reply(reply[:-1]) is None
    assert unpack_reply(b"\x2d" + reply[1:]) is None
    assert unpack_reply(pack_reply(1, [2])[:16] + (2**53).to_bytes(8, "little") + bytes(6)) is None


def test_what_four_bytes_cannot_encode_is_encoded_as_well_as_they_can() -> None:
    far = unpack_position(
        MessageType.POSITION, pack_position(MessageType.POSITION, 1, (1e150, -1e150, 0.0), inf, 0)
    )
    assert far is not None
    assert far.radius == inf
    assert far.x == pytest.approx(1e30)


def test_timestamps_wrap_around_after_49_days() -> None:
    before, after = stamp_of((2**32 - 1) * 1000), stamp_of((2**32 + 5) * 1000)
    assert (before, after) == (2**32 - 1, 5)
    assert is_newer(after, before)
    assert not is_newer(before, after)
    assert not is_newer(after, after)
