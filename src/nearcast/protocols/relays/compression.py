"""Updates in fewer bytes: "compression … techniques can bring further savings" ([Lehn] II-A).

An Update is deflated with a dictionary that all peers have: an Update of the usual kind. Without it
hardly anything repeats in so short a message. If that makes it no shorter, it is sent as it is.
"""

import zlib
from functools import lru_cache
from typing import ClassVar

from nearcast.errors import WireError
from nearcast.model.publication import Publication
from nearcast.model.subscription import PublicationId
from nearcast.protocols.relays.messages import (
    CODEC,
    PeerStatus,
    RelayedPublication,
    RelayMessage,
    Update,
)
from nearcast.space.shapes import point
from nearcast.wire import LONGEST

_USUAL = Update(
    tuple(
        RelayedPublication(2**40 - n, Publication(2**60 + n, 2**40 - n, 2**50, point(n, n)), n, n)
        for n in (300, 0)
    ),
    PeerStatus(2**16, 2**9, 1, 2**31, 2**31, 2**9),
)
DICTIONARY = CODEC.encode(_USUAL)
RAW = -zlib.MAX_WBITS  # deflate without header and checksum: links have their own


class CompressedUpdate(RelayMessage, frozen=True, tag=68):
    """An Update, deflated."""

    lossy: ClassVar[bool] = True
    deflated: bytes

    def __post_init__(self) -> None:
        expand(self.deflated)  # ValueError if it is none

    @property
    def pieces(self) -> tuple[RelayedPublication, ...]:
        return expand(self.deflated).pieces

    def carries(self) -> PublicationId | None:
        return expand(self.deflated).carries()


@lru_cache(maxsize=16)  # who receives one asks some times in a row
def expand(deflated: bytes) -> Update:
    """The Update; ValueError if there is none in these bytes."""
    try:
        inflater = zlib.decompressobj(RAW, zdict=DICTIONARY)
        encoded = inflater.decompress(deflated, LONGEST)
        message = CODEC.decode(encoded) if inflater.eof else None
    except (zlib.error, WireError) as why:
        raise ValueError(f"no update: {why}") from None
    if not isinstance(message, Update):
        raise ValueError("no update, or too long")
    return message


def deflate(encoded: bytes) -> CompressedUpdate:
    deflater = zlib.compressobj(6, zlib.DEFLATED, RAW, zdict=DICTIONARY)
    return CompressedUpdate(deflater.compress(encoded) + deflater.flush())


def compress(update: Update) -> CompressedUpdate | Update:
    encoded = CODEC.encode(update)
    compressed = deflate(encoded)
    return compressed if len(compressed.deflated) + 8 < len(encoded) else update
