"""Packets of pSense, byte by byte.

    base      16   type 1, hops 1, radius 4, sequence 2, point 8; in 3-D the point is 12
    sender     4   of whom the base speaks; in a response, who responds
    position       + 4 for each receiver
    request        + sector 1
    response       + sector 1, contact 10 (name 4, ip 4, port 2), sequence of the request 2

All little-endian. The transport resolves node ids to addresses, so `ip` and `port` are written as
zero and not read. Ids of live peers need more than 4 bytes: if a packet has such an id, all its ids
have 8 bytes, and its type says so. The type also says how many dimensions the point has. A packet
is refused unless it has the expected type, exactly the right length, and possible numbers.
"""

from collections.abc import Sequence
from enum import IntEnum
from functools import lru_cache
from struct import Struct as Layout
from typing import NamedTuple

from nearcast.model.subscription import NodeId
from nearcast.space.motion import SECOND, Time
from nearcast.space.shapes import Vector

FARTHEST = 1e29  # of coordinates; with the radius below, everybody is in sight
WIDEST = 1e30
NODES = 2**53
MOST_RECEIVERS = 1000
TICK: Time = 10_000  # sequence numbers count these: a later life of a peer goes on from them
NUMBERS = 2**16
SKEW: Time = 30 * SECOND  # by which clocks of peers may differ
LONGEST_KEPT: Time = NUMBERS // 2 * TICK  # older numbers are taken for newer ones
WIDE, SPATIAL = 0x80, 0x40
KIND = 0x3F
LONGEST_POSITION = 32 + 8 * (MOST_RECEIVERS + 1)  # bytes; whatever is longer is no position
REMEMBERED = 128  # packets that were read last


class PacketType(IntEnum):
    """The first byte of a packet, without its flags."""

    POSITION = 1
    REQUEST = 2
    RESPONSE = 3


class PositionRecord(NamedTuple):
    """Position, radius and sequence number of a peer, and the hops that are left."""

    node: NodeId
    place: Vector
    radius: float
    sequence: int
    hops: int


def with_hops(seen: PositionRecord, hops: int) -> PositionRecord:
    return PositionRecord(seen.node, seen.place, seen.radius, seen.sequence, hops)


class SensorSuggestion(NamedTuple):
    """The sensor that `sender` suggests for a sector."""

    sender: NodeId
    sector: int
    sensor: PositionRecord
    request_sequence: int  # the sequence number of the request


def sequence_at(now: Time) -> int:
    return now // TICK % NUMBERS


def is_newer(sequence: int, than: int) -> bool:
    """Of two sequence numbers that wrap around, is this one the later?"""
    return 0 < (sequence - than) % NUMBERS < NUMBERS // 2


def is_recent(sequence: int, now: Time, oldest: Time) -> bool:
    """May it have been given since `oldest` ago, by a clock that differs by at most `SKEW`?

    Numbers wrap around after eleven minutes, so a replay after that time is not told apart.
    """
    age = (sequence_at(now) - sequence) % NUMBERS * TICK
    return age <= min(oldest + SKEW, LONGEST_KEPT) or age >= NUMBERS * TICK - SKEW


def within(number: float) -> float:
    if -FARTHEST <= number <= FARTHEST:
        return number
    return min(max(number, -FARTHEST), FARTHEST)


_BASES = {2: Layout("<BBfHff"), 3: Layout("<BBfHfff")}
_TAILS = {
    (kind, id_format): Layout(tail.replace("n", id_format))
    for id_format in ("I", "Q")
    for kind, tail in (
        (PacketType.POSITION, "<n"),
        (PacketType.REQUEST, "<nB"),
        (PacketType.RESPONSE, "<nBnIHH"),
    )
}
_RECEIVERS = {"I": 4, "Q": 8}


@lru_cache(maxsize=2 * (MOST_RECEIVERS + 2))
def _names_layout(count: int, id_format: str) -> Layout:
    return Layout(f"<{count}{id_format}")


def _id_format(*names: NodeId) -> str:
    return "I" if max(names) < 2**32 else "Q"


def _base(kind: PacketType, id_format: str, seen: PositionRecord, dimensions: int) -> bytes:
    number = kind | (WIDE if id_format == "Q" else 0) | (SPATIAL if dimensions == 3 else 0)
    point = [within(c) for c in seen.place[:dimensions]]
    radius = min(seen.radius, WIDEST)
    return _BASES[dimensions].pack(number, seen.hops, radius, seen.sequence, *point)


def pack_position(seen: PositionRecord, receivers: Sequence[NodeId], dimensions: int) -> bytes:
    listed = receivers[:MOST_RECEIVERS]
    id_format = _id_format(seen.node, *listed)
    tail = _TAILS[PacketType.POSITION, id_format].pack(seen.node)
    names = _names_layout(len(listed), id_format).pack(*listed)
    return _base(PacketType.POSITION, id_format, seen, dimensions) + tail + names


def pack_request(seen: PositionRecord, sector: int, dimensions: int) -> bytes:
    id_format = _id_format(seen.node)
    tail = _TAILS[PacketType.REQUEST, id_format].pack(seen.node, sector)
    return _base(PacketType.REQUEST, id_format, seen, dimensions) + tail


def pack_response(response: SensorSuggestion, dimensions: int) -> bytes:
    sender, sector, sensor, request_sequence = response
    id_format = _id_format(sender, sensor.node)
    tail = _TAILS[PacketType.RESPONSE, id_format].pack(
        sender, sector, sensor.node, 0, 0, request_sequence
    )
    return _base(PacketType.RESPONSE, id_format, sensor, dimensions) + tail


class _Opened(NamedTuple):
    hops: int
    radius: float
    sequence: int
    place: Vector
    id_format: str
    tail: bytes


def _open(kind: PacketType, packet: bytes, dimensions: int) -> _Opened | None:
    base = _BASES[dimensions]
    if len(packet) < base.size or packet[0] & KIND != kind:
        return None
    if bool(packet[0] & SPATIAL) != (dimensions == 3):
        return None
    _, hops, radius, sequence, *point = base.unpack_from(packet)
    # Comparisons with NaN are false, so these refuse it too.
    if not 0 <= radius <= 2 * WIDEST or not all(abs(c) <= 2 * FARTHEST for c in point):
        return None
    place = (point[0], point[1], point[2] if dimensions == 3 else 0.0)
    id_format = "Q" if packet[0] & WIDE else "I"
    return _Opened(hops, radius, sequence, place, id_format, packet[base.size :])


def unpack_position(
    packet: bytes, dimensions: int
) -> tuple[PositionRecord, tuple[NodeId, ...]] | None:
    """A position, and its direct receivers; None: this is no such packet."""
    return None if len(packet) > LONGEST_POSITION else _unpack_position(packet, dimensions)


# One packet goes to many peers, and peers of one process need read it only once.
@lru_cache(maxsize=REMEMBERED)
def _unpack_position(
    packet: bytes, dimensions: int
) -> tuple[PositionRecord, tuple[NodeId, ...]] | None:
    opened = _open(PacketType.POSITION, packet, dimensions)
    if opened is None:
        return None
    hops, radius, sequence, place, id_format, tail = opened
    names, rest = divmod(len(tail), _RECEIVERS[id_format])
    if rest or not 1 <= names <= MOST_RECEIVERS + 1:
        return None
    node, *receivers = _names_layout(names, id_format).unpack(tail)
    if node >= NODES or any(name >= NODES for name in receivers):
        return None
    return PositionRecord(node, place, radius, sequence, hops), tuple(receivers)


def unpack_request(packet: bytes, dimensions: int) -> tuple[PositionRecord, int] | None:
    """The position of who asks, and the sector."""
    opened = _open(PacketType.REQUEST, packet, dimensions)
    if opened is None:
        return None
    hops, radius, sequence, place, id_format, tail = opened
    layout = _TAILS[PacketType.REQUEST, id_format]
    if len(tail) != layout.size:
        return None
    node, sector = layout.unpack(tail)
    if node >= NODES or sector >= 8:
        return None
    return PositionRecord(node, place, radius, sequence, hops), sector


def unpack_response(packet: bytes, dimensions: int) -> SensorSuggestion | None:
    """A suggested sensor; None: this is no such packet."""
    opened = _open(PacketType.RESPONSE, packet, dimensions)
    if opened is None:
        return None
    hops, radius, sequence, place, id_format, tail = opened
    layout = _TAILS[PacketType.RESPONSE, id_format]
    if len(tail) != layout.size:
        return None
    sender, sector, node, _, _, request_sequence = layout.unpack(tail)
    if sender >= NODES or node >= NODES or sector >= 8:
        return None
    return SensorSuggestion(
        sender, sector, PositionRecord(node, place, radius, sequence, hops), request_sequence
    )
