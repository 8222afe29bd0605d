"""What a peer signs and refuses: without sockets, with a clock that the test owns."""

from itertools import count
from random import Random
from typing import Any, get_args, get_type_hints

import msgspec
import pytest

from nearcast.errors import SignatureError
from nearcast.model.commands import Publish
from nearcast.model.publication import Publication
from nearcast.peer.signing import DISTRUST, FRESH, SIGNATURE_BYTES, Signing, carried_publications
from nearcast.protocols import PROTOCOLS
from nearcast.space.motion import SECOND
from nearcast.space.shapes import Shape, ShapeKind, ball, point
from nearcast.transport.identity import Identity, new_identity

NOW = 1_000_000 * SECOND
COMMAND = Publish(7, ball(1, 2, 3, 4), "chat", {"b": 1, "a": True, "c": 2.0, "d": "x"}, b"hello")


class Pair:
    """An author, and somebody who hears it and knows its key."""

    def __init__(self, most: int = 1 << 17) -> None:
        self.author, self.reader = new_identity(), new_identity()
        keys = {one.name: one.key for one in (self.author, self.reader)}
        self.keys = keys
        self.senders = count(1)
        self.signs = Signing(self.author, keys.get)
        self.reader_signing = Signing(self.reader, keys.get, most)

    def check(self, publication: Publication, now: int, sender: int | None = None) -> None:
        """From somebody who has not sent anything before, unless the test says from whom."""
        self.reader_signing.check(
            publication, next(self.senders) if sender is None else sender, now
        )

    def signed(self, command: Publish = COMMAND, now: int = NOW) -> Publication:
        """As it comes out of the wire."""
        publication = self.signs.signed(command, now).stamped(self.author.name, now)
        return msgspec.msgpack.decode(msgspec.msgpack.encode(publication), type=Publication)


def refusal(pair: Pair, publication: Publication, now: int = NOW) -> str:
    with pytest.raises(SignatureError) as why:
        pair.check(publication, now)
    return str(why.value)


def test_a_signed_publication_is_delivered_unchanged_and_once():
    pair = Pair()
    publication = pair.signed()
    assert len(publication.payload) == SIGNATURE_BYTES + len(COMMAND.payload)
    pair.check(publication, NOW + SECOND)
    delivered, to = pair.reader_signing.opened(publication, [3, 5])
    assert (delivered, to) == (COMMAND.stamped(pair.author.name, NOW), (3, 5))
    pair.check(publication, NOW + SECOND)  # by another way
    assert pair.reader_signing.opened(publication, [5, 6])[1] == (6,)
    with pytest.raises(SignatureError, match="replayed"):
        pair.reader_signing.opened(publication, [3, 5, 6])


def test_numbers_that_are_written_differently_are_signed_alike():
    pair = Pair()
    whole = Publish(7, Shape(ShapeKind.DISC, 1, 2, 3, 4), "", {"b": 1, "a": 2})
    pair.check(pair.signed(whole), NOW)


@pytest.mark.parametrize(
    "change",
    [
        {"id": 8}, {"t": NOW + 1}, {"shape": ball(1, 2, 3, 5)}, {"shape": point(1, 2, 3)},
        {"channel": "chat "}, {"attributes": {"b": 1}}, {"payload": bytes(64) + b"hello"},
        {"payload": b""}, {"payload": b"hello"},
        {"attributes": {"b": 1.0, "a": True, "c": 2.0, "d": "x"}},
    ],
)  # fmt: skip
def test_nothing_can_be_changed_on_the_way(change: dict[str, Any]):
    pair = Pair()
    publication = pair.signed()
    altered = msgspec.structs.replace(publication, **change)
    assert refusal(pair, altered) == "forged"
    with pytest.raises(SignatureError, match="unchecked"):
        pair.reader_signing.opened(altered, [1])
    pair.check(publication, NOW)  # the forgery has not taken its place
    if "id" not in change:
        assert refusal(pair, altered) == "altered"


def test_the_last_byte_of_a_payload_and_any_of_a_signature_count():
    pair, rng = Pair(), Random(1)
    publication = pair.signed()
    for at in (0, len(publication.payload) - 1, *rng.sample(range(SIGNATURE_BYTES), 8)):
        payload = bytearray(publication.payload)
        payload[at] ^= 1 << rng.randrange(8)
        altered = msgspec.structs.replace(publication, payload=bytes(payload))
        assert refusal(pair, altered) == "forged"


def test_nobody_publishes_in_the_name_of_another():
    pair, eve = Pair(), new_identity()
    pair.keys[eve.name] = eve.key
    forged = Signing(eve, pair.keys.get).signed(COMMAND, NOW).stamped(pair.author.name, NOW)
    assert refusal(pair, forged) == "forged"
    unsigned = COMMAND.stamped(pair.author.name, NOW)
    assert refusal(pair, unsigned) == "forged"


def test_signatures_of_a_peer_that_sent_a_forgery_are_not_checked_for_a_while():
    pair, forger = Pair(), 99
    first, second = pair.signed(), pair.signed(msgspec.structs.replace(COMMAND, publication=8))
    pair.check(first, NOW, forger)
    altered = msgspec.structs.replace(second, channel="other")
    for why in ("forged", "from a forger"):
        with pytest.raises(SignatureError, match=why):
            pair.check(altered, NOW, forger)
    with pytest.raises(SignatureError, match="from a forger"):
        pair.check(second, NOW, forger)
    pair.check(first, NOW, forger)  # that costs nothing
    pair.check(second, NOW, 98)
    third = pair.signed(msgspec.structs.replace(COMMAND, publication=9))
    pair.check(third, NOW + DISTRUST, forger)


def test_publications_of_an_author_without_a_known_key_are_refused():
    pair = Pair()
    del pair.keys[pair.author.name]
    assert refusal(pair, pair.signed()) == "unknown author"


def test_publications_within_the_time_window_are_accepted_and_no_others():
    pair = Pair()
    for number, (late, delivered) in enumerate(
        [(0, True), (FRESH, True), (-FRESH, True), (FRESH + 1, False), (-FRESH - 1, False)]
    ):
        publication = pair.signed(msgspec.structs.replace(COMMAND, publication=number))
        if delivered:
            pair.check(publication, NOW + late)
        else:
            assert refusal(pair, publication, NOW + late) == "stale"


def test_a_replay_is_refused_by_its_id_and_later_by_its_time():
    pair = Pair()
    publication = pair.signed(now=NOW + FRESH)  # by a clock that is fast
    pair.check(publication, NOW)
    pair.reader_signing.opened(publication, [1])
    filler = 100
    for later in range(0, 3 * FRESH, SECOND):
        now, filler = NOW + later, filler + 1
        # Others publish meanwhile, so that memory is swept.
        pair.check(pair.signed(Publish(filler, point(0, 0)), now), now)
        try:
            pair.check(publication, now)
        except SignatureError as why:
            assert str(why) == "stale" and later > 2 * FRESH
            continue
        with pytest.raises(SignatureError, match="replayed"):
            pair.reader_signing.opened(publication, [1])


def test_memory_is_bounded_and_a_flood_admits_no_replay_and_blocks_nobody():
    pair, most = Pair(most=64), 64
    first = pair.signed()
    pair.check(first, NOW)
    pair.reader_signing.opened(first, [1])
    eve = new_identity()
    pair.keys[eve.name] = eve.key
    floods = Signing(eve, pair.keys.get)
    for number in range(500):
        flood = floods.signed(Publish(number, point(0, 0)), NOW + FRESH // 2 + number)
        pair.check(flood.stamped(eve.name, NOW + FRESH // 2 + number), NOW)
        assert pair.reader_signing._count <= most
        assert len(pair.reader_signing._authors) <= 3
    try:
        pair.check(first, NOW)
    except SignatureError as why:
        assert str(why) == "stale"
    else:
        with pytest.raises(SignatureError, match="replayed"):
            pair.reader_signing.opened(first, [1])
    later = pair.signed(msgspec.structs.replace(COMMAND, publication=8), NOW + 1)
    pair.check(later, NOW + 1)
    assert pair.reader_signing.opened(later, [1])[1] == (1,)
    pair.check(pair.signed(Publish(9, point(0, 0)), NOW + 4 * FRESH), NOW + 4 * FRESH)
    assert pair.reader_signing._count == 1
    assert list(pair.reader_signing._authors) == [pair.author.name]


def test_more_authors_than_there_is_room_for_are_refused():
    pair = Pair(most=4)
    authors: list[Identity] = [new_identity() for _ in range(6)]
    pair.keys.update({one.name: one.key for one in authors})
    refused = []
    for author in authors:
        signed = Signing(author, pair.keys.get).signed(COMMAND, NOW).stamped(author.name, NOW)
        try:
            pair.check(signed, NOW)
        except SignatureError as why:
            refused.append(str(why))
    assert refused == ["too many authors"] * 2
    assert len(pair.reader_signing._authors) == 4
    # There is always room for one's own.
    own = pair.reader_signing.signed(COMMAND, NOW).stamped(pair.reader.name, NOW)
    assert pair.reader_signing.opened(own, [1])[1] == (1,)


def test_forgers_are_forgotten_even_without_genuine_publications():
    pair = Pair()
    forged = COMMAND.stamped(pair.author.name, NOW)
    for sender in range(100):
        assert refusal(pair, forged) == "forged", sender
    assert len(pair.reader_signing._distrusted) == 100
    assert refusal(pair, forged, NOW + 2 * FRESH) == "stale"
    assert not pair.reader_signing._distrusted


def _holds_publications(kind: Any) -> bool:
    if kind is Publication:
        return True
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return any(map(_holds_publications, get_type_hints(kind).values()))
    return any(map(_holds_publications, get_args(kind)))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_message_type_with_a_publication_is_checked(protocol: str):
    """A message of a new kind, with a publication in a field of its own, must not be overlooked."""
    for kind in PROTOCOLS[protocol].codec.messages:
        hints = get_type_hints(kind)
        where = [name for name, hint in hints.items() if _holds_publications(hint)]
        assert where in ([], ["publication"], ["pieces"]), kind
        if where == ["publication"]:
            blank = [None] * len(kind.__struct_fields__)
            message = kind(*blank)
            publication = COMMAND.stamped(1, NOW)
            assert carried_publications(
                msgspec.structs.replace(message, publication=publication)
            ) == (publication,)
