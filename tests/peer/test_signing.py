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
SAID = Publish(7, ball(1, 2, 3, 4), "chat", {"b": 1, "a": True, "c": 2.0, "d": "x"}, b"hello")


class Pair:
    """An author, and somebody who hears it and knows its key."""

    def __init__(self, most: int = 1 << 17) -> None:
        self.author, self.reader = new_identity(), new_identity()
        keys = {one.name: one.key for one in (self.author, self.reader)}
        self.keys = keys
        self.senders = count(1)
        self.signs = Signing(self.author, keys.get)
        self.hears = Signing(self.reader, keys.get, most)

    def hear(self, publication: Publication, now: int, sender: int | None = None) -> None:
        """From somebody who has not sent anything before, unless the test says from whom."""
        self.hears.check(publication, next(self.senders) if sender is None else sender, now)

    def said(self, command: Publish = SAID, now: int = NOW) -> Publication:
        """As it comes out of the wire."""
        publication = self.signs.signed(command, now).stamped(self.author.name, now)
        return msgspec.msgpack.decode(msgspec.msgpack.encode(publication), type=Publication)


def refusal(pair: Pair, publication: Publication, now: int = NOW) -> str:
    with pytest.raises(SignatureError) as why:
        pair.hear(publication, now)
    return str(why.value)


def test_a_signed_publication_is_delivered_unchanged_and_once():
    pair = Pair()
    publication = pair.said()
    assert len(publication.payload) == SIGNATURE_BYTES + len(SAID.payload)
    pair.hear(publication, NOW + SECOND)
    heard, to = pair.hears.opened(publication, [3, 5])
    assert (heard, to) == (SAID.stamped(pair.author.name, NOW), (3, 5))
    pair.hear(publication, NOW + SECOND)  # by another way
    assert pair.hears.opened(publication, [5, 6])[1] == (6,)
    with pytest.raises(SignatureError, match="replayed"):
        pair.hears.opened(publication, [3, 5, 6])


def test_numbers_that_are_written_differently_are_signed_alike():
    pair = Pair()
    whole = Publish(7, Shape(ShapeKind.DISC, 1, 2, 3, 4), "", {"b": 1, "a": 2})
    pair.hear(pair.said(whole), NOW)


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
    publication = pair.said()
    altered = msgspec.structs.replace(publication, **change)
    assert refusal(pair, altered) == "forged"
    with pytest.raises(SignatureError, match="unchecked"):
        pair.hears.opened(altered, [1])
    pair.hear(publication, NOW)  # the forgery has not taken its place
    if "id" not in change:
        assert refusal(pair, altered) == "altered"


def test_the_last_byte_of_a_payload_and_any_of_a_signature_count():
    pair, rng = Pair(), Random(1)
    publication = pair.said()
    for at in (0, len(publication.payload) - 1, *rng.sample(range(SIGNATURE_BYTES), 8)):
        payload = bytearray(publication.payload)
        payload[at] ^= 1 << rng.randrange(8)
        altered = msgspec.structs.replace(publication, payload=bytes(payload))
        assert refusal(pair, altered) == "forged"


def test_nobody_publishes_in_the_name_of_another():
    pair, eve = Pair(), new_identity()
    pair.keys[eve.name] = eve.key
    forged = Signing(eve, pair.keys.get).signed(SAID, NOW).stamped(pair.author.name, NOW)
    assert refusal(pair, forged) == "forged"
    unsigned = SAID.stamped(pair.author.name, NOW)
    assert refusal(pair, unsigned) == "forged"


def test_signatures_of_a_peer_that_sent_a_forgery_are_not_checked_for_a_while():
    pair, forger = Pair(), 99
    first, second = pair.said(), pair.said(msgspec.structs.replace(SAID, publication=8))
    pair.hear(first, NOW, forger)
    altered = msgspec.structs.replace(second, channel="other")
    for why in ("forged", "from a forger"):
        with pytest.raises(SignatureError, match=why):
            pair.hear(altered, NOW, forger)
    with pytest.raises(SignatureError, match="from a forger"):
        pair.hear(second, NOW, forger)
    pair.hear(first, NOW, forger)  # that costs nothing
    pair.hear(second, NOW, 98)
    third = pair.said(msgspec.structs.replace(SAID, publication=9))
    pair.hear(third, NOW + DISTRUST, forger)


def test_publications_of_an_author_without_a_known_key_are_refused():
    pair = Pair()
    del pair.keys[pair.author.name]
    assert refusal(pair, pair.said()) == "unknown author"


def test_publications_within_the_time_window_are_accepted_and_no_others():
    pair = Pair()
    for number, (late, heard) in enumerate(
        [(0, True), (FRESH, True), (-FRESH, True), (FRESH + 1, False), (-FRESH - 1, False)]
    ):
        publication = pair.said(msgspec.structs.replace(SAID, publication=number))
        if heard:
            pair.hear(publication, NOW + late)
        else:
            assert refusal(pair, publication, NOW + late) == "stale"


def test_a_replay_is_refused_by_its_id_and_later_by_its_time():
    pair = Pair()
    publication = pair.said(now=NOW + FRESH)  # by a clock that is fast
    pair.hear(publication, NOW)
    pair.hears.opened(publication, [1])
    filler = 100
    for later in range(0, 3 * FRESH, SECOND):
        now, filler = NOW + later, filler + 1
        # Others publish meanwhile, so that memory is swept.
        pair.hear(pair.said(Publish(filler, point(0, 0)), now), now)
        try:
            pair.hear(publication, now)
        except SignatureError as why:
            assert str(why) == "stale" and later > 2 * FRESH
            continue
        with pytest.raises(SignatureError, match="replayed"):
            pair.hears.opened(publication, [1])


def test_memory_is_bounded_and_a_flood_admits_no_replay_and_blocks_nobody():
    pair, most = Pair(most=64), 64
    first = pair.said()
    pair.hear(first, NOW)
    pair.hears.opened(first, [1])
    eve = new_identity()
    pair.keys[eve.name] = eve.key
    floods = Signing(eve, pair.keys.get)
    for number in range(500):
        flood = floods.signed(Publish(number, point(0, 0)), NOW + FRESH // 2 + number)
        pair.hear(flood.stamped(eve.name, NOW + FRESH // 2 + number), NOW)
        assert pair.hears._count <= most
        assert len(pair.hears._authors) <= 3
    try:
        pair.hear(first, NOW)
    except SignatureError as why:
        assert str(why) == "stale"
    else:
        with pytest.raises(SignatureError, match="replayed"):
            pair.hears.opened(first, [1])
    later = pair.said(msgspec.structs.replace(SAID, publication=8), NOW + 1)
    pair.hear(later, NOW + 1)
    assert pair.hears.opened(later, [1])[1] == (1,)
    pair.hear(pair.said(Publish(9, point(0, 0)), NOW + 4 * FRESH), NOW + 4 * FRESH)
    assert pair.hears._count == 1
    assert list(pair.hears._authors) == [pair.author.name]


def test_more_authors_than_there_is_room_for_are_refused():
    pair = Pair(most=4)
    authors: list[Identity] = [new_identity() for _ in range(6)]
    pair.keys.update({one.name: one.key for one in authors})
    refused = []
    for author in authors:
        said = Signing(author, pair.keys.get).signed(SAID, NOW).stamped(author.name, NOW)
        try:
            pair.hear(said, NOW)
        except SignatureError as why:
            refused.append(str(why))
    assert refused == ["too many authors"] * 2
    assert len(pair.hears._authors) == 4
    own = pair.hears.signed(SAID, NOW).stamped(pair.reader.name, NOW)  # which always has room
    assert pair.hears.opened(own, [1])[1] == (1,)


def test_forgers_are_forgotten_even_without_genuine_publications():
    pair = Pair()
    forged = SAID.stamped(pair.author.name, NOW)
    for sender in range(100):
        assert refusal(pair, forged) == "forged", sender
    assert len(pair.hears._distrusted) == 100
    assert refusal(pair, forged, NOW + 2 * FRESH) == "stale"
    assert not pair.hears._distrusted


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
            publication = SAID.stamped(1, NOW)
            assert carried_publications(
                msgspec.structs.replace(message, publication=publication)
            ) == (publication,)
