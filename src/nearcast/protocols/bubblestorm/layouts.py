"""Packets with positions and peers, byte by byte ([Lucas2011] tables 4.1 to 4.3).

    MessageHeader           16   msgSize 2, msgType 2, team 4, playerId 8
    MsgSimplePositionBody   20   posX 4, posY 4, posZ 4, visionRadius 4, timestamp 4
    MsgSearchPositionBody   14   elementPlayerId 8, ip 4, port 2; one for each peer of a reply

All little-endian. The transport resolves node ids to addresses, so `ip` and `port` are written as
zero and not read. A packet is refused unless it is exactly as long as its header says, of the
expected type, and has possible numbers.
"""

from enum import IntEnum
from functools import lru_cache
from math import inf
from struct import Struct as Layout
from typing import NamedTuple

from nearcast.model.subscription import NodeId
from nearcast.space.motion import Time
from nearcast.space.shapes import Vector

HEADER = Layout("<HHIQ")
POSITION = Layout("<ffffI")
ELEMENT = Layout("<QIH")
PLACED = Layout("<HHIQffffI")  # a header and a position
MOST_ELEMENTS = 100  # so a reply fits a datagram
FARTHEST = 1e30  # of coordinates: their squares are still 4-byte numbers' squares in 8 bytes
READ_AS_FAR = 2 * FARTHEST  # as 4-byte numbers are rounded
MILLISECOND: Time = 1_000
STAMPS = 2**32  # timestamps are milliseconds and start again after 49 days
NODES = 2**53
REMEMBERED = 1024  # packets that were read last


class MessageType(IntEnum):
    """The msgType of a packet."""

    SUBSCRIPTION = 1
    REPLY = 2
    CONTACT = 3
    ACCEPT = 4
    POSITION = 5


class PeerPosition(NamedTuple):
    """Position, vision radius and timestamp of a peer."""

    node: NodeId
    x: float
    y: float
    z: float
    radius: float
    stamp: int

    @property
    def place(self) -> Vector:
        return self.x, self.y, self.z


def stamp_of(now: Time) -> int:
    return now // MILLISECOND % STAMPS


def is_newer(stamp: int, than: int) -> bool:
    """Of two timestamps that wrap around, is this one the later?"""
    return 0 < (stamp - than) % STAMPS < STAMPS // 2


def _within(number: float) -> float:
    return min(max(number, -FARTHEST), FARTHEST)


def pack_position(
    kind: MessageType, node: NodeId, place: Vector, radius: float, now: Time
) -> bytes:
    x, y, z = map(_within, place)
    return PLACED.pack(
        PLACED.size, kind, 0, node, x, y, z, inf if radius > FARTHEST else radius, stamp_of(now)
    )


def unpack_position(kind: MessageType, packet: bytes) -> PeerPosition | None:
    """None: this is no such packet."""
    return None if len(packet) != PLACED.size else _unpack_position(kind, packet)


# One packet goes to many peers, and peers of one process need read it only once.
@lru_cache(maxsize=REMEMBERED)
def _unpack_position(kind: MessageType, packet: bytes) -> PeerPosition | None:
    size, number, _, node, x, y, z, radius, stamp = PLACED.unpack(packet)
    # Comparisons with NaN are false, so these refuse it too.
    if size != PLACED.size or number != kind or node >= NODES or not radius >= 0:
        return None
    if not (abs(x) <= READ_AS_FAR and abs(y) <= READ_AS_FAR and abs(z) <= READ_AS_FAR):
        return None
    return PeerPosition(node, x, y, z, radius, stamp)


def pack_reply(node: NodeId, peers: list[NodeId]) -> bytes:
    listed = peers[:MOST_ELEMENTS]
    size = HEADER.size + ELEMENT.size * len(listed)
    elements = [ELEMENT.pack(peer, 0, 0) for peer in listed]
    return b"".join((HEADER.pack(size, MessageType.REPLY, 0, node), *elements))


def unpack_reply(packet: bytes) -> tuple[NodeId, list[NodeId]] | None:
    """Who replies, and whom it names; None: this is no reply."""
    count, rest = divmod(len(packet) - HEADER.size, ELEMENT.size)
    if not 0 <= count <= MOST_ELEMENTS or rest:
        return None
    size, number, _, node = HEADER.unpack_from(packet)
    if size != len(packet) or number != MessageType.REPLY or node >= NODES:
        return None
    peers = [peer for peer, _, _ in ELEMENT.iter_unpack(packet[HEADER.size :])]
    return None if max(peers, default=0) >= NODES else (node, peers)
