"""Compressed updates: nothing is lost, nonsense is refused, and they have fewer bytes."""

import zlib

import msgspec
import pytest
from hypothesis import given

from nearcast.errors import WireError
from nearcast.model.publication import Publication
from nearcast.peer.signing import carried_publications
from nearcast.protocols.relays.compression import (
    DICTIONARY,
    RAW,
    CompressedUpdate,
    compress,
    expand,
)
from nearcast.protocols.relays.deployment import KIND
from nearcast.protocols.relays.messages import CODEC, PeerStatus, RelayedPublication, Status, Update
from nearcast.space.shapes import point
from nearcast.wire import LONGEST
from support.examples import examples
from support.message_strategies import messages
from support.peer_worlds import assert_delivered_exactly, run

NEWS = Update(
    tuple(
        RelayedPublication(source, Publication(source << 24, source, 10**6, point(1.5, 2.25)), 0, 0)
        for source in (7, 8)
    )
)


@given(messages(Update))
@examples(60)
def test_an_update_comes_back_as_it_was_and_is_never_longer(update: Update) -> None:
    packet = compress(update)
    assert CODEC.size(packet) <= CODEC.size(update)
    if isinstance(packet, CompressedUpdate):
        assert KIND.codec.decode(KIND.codec.encode(packet)) == packet
        assert expand(packet.deflated) == update


def test_hosts_see_the_publications_of_a_compressed_update() -> None:
    packet = compress(NEWS)
    assert isinstance(packet, CompressedUpdate)
    assert CODEC.size(packet) < 0.7 * CODEC.size(NEWS)
    assert list(carried_publications(packet)) == [piece.publication for piece in NEWS.pieces]
    assert packet.carries() == NEWS.carries()


def deflated(encoded: bytes) -> bytes:
    deflater = zlib.compressobj(9, zlib.DEFLATED, RAW, zdict=DICTIONARY)
    return deflater.compress(encoded) + deflater.flush()


@pytest.mark.parametrize(
    "nonsense",
    [
        b"", b"nonsense", deflated(b""), deflated(bytes(LONGEST + 1)),
        deflated(CODEC.encode(Status(PeerStatus(1, 1, 1, 1, 1, 1)))),
        deflated(CODEC.encode(NEWS))[:-4],
    ],
)  # fmt: skip
def test_what_is_no_update_is_refused_at_the_wire(nonsense: bytes) -> None:
    with pytest.raises(ValueError, match="no update"):
        CompressedUpdate(nonsense)
    forged = msgspec.msgpack.encode([68, nonsense])
    with pytest.raises(WireError, match="no update"):
        KIND.codec.decode(forged)


@pytest.mark.parametrize("directory", ["central", "mesh"])
def test_peers_that_compress_deliver_all_in_fewer_bytes(directory: str) -> None:
    size = {}
    for switch in ("off", "on"):
        trace = run(
            "relays", "virtual-reality", 20, 2.0, rate=4.0, directory=directory, compress=switch,
            uplink_min=1e5, uplink_max=1e5,
        )  # fmt: skip
        assert_delivered_exactly(trace)
        rows = trace.table("messages").to_pylist()
        size[switch] = sum(row["bytes"] for row in rows if row["publication"] is not None)
    assert size["on"] < 0.8 * size["off"]
