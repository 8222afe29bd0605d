"""Where nodes listen: signed cards, passed on from node to node.

A protocol learns of a node by its name in a message, and must be able to write to it at once. So
before a transport writes a frame to a peer, it tells that peer all cards that it has learnt since
it last did. Whoever hears a name from a peer therefore holds the card, if the peer did; and the
peer did, because it has met the node itself or has heard the name in the same way.

The price is that everybody comes to hold everybody's card: 140 bytes and a signature to verify for
each node, at most once per link and direction. That is right for thousands of nodes, not millions.
Cards are signed by their owners, and a newer one of the same key replaces an older one, so nobody
can say of others where they listen; and the first key with a name keeps it.
"""

from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from nearcast.model.subscription import NodeId
from nearcast.space.motion import Time
from nearcast.transport.identity import KEY_BYTES, Identity, owns, verified

MOST_CARDS = 100_000  # beyond that, those that were learnt first are forgotten


class Card(Struct, frozen=True, array_like=True):
    """The owner of `key`, called `name`, listens there; `t` is when it began to."""

    key: Annotated[bytes, Meta(min_length=KEY_BYTES, max_length=KEY_BYTES)]
    name: NodeId
    host: Annotated[str, Meta(max_length=255)]
    port: Annotated[int, Meta(gt=0, lt=65536)]
    t: Time
    signature: Annotated[bytes, Meta(max_length=64)] = b""

    def words(self) -> bytes:
        return b"nearcast card" + msgspec.msgpack.encode((self.name, self.host, self.port, self.t))

    @property
    def genuine(self) -> bool:
        return owns(self.key, self.name) and verified(self.key, self.signature, self.words())


def write_card(identity: Identity, host: str, port: int, t: Time) -> Card:
    card = Card(identity.key, identity.name, host, port, t)
    return msgspec.structs.replace(card, signature=identity.sign(card.words()))


class AddressBook:
    """Cards by name, numbered in the order in which they were learnt."""

    def __init__(self, most: int = MOST_CARDS) -> None:
        self._most = most
        self._cards: dict[NodeId, tuple[int, Card]] = {}
        self.latest = 0  # the number of the card learnt last

    def card(self, name: NodeId) -> Card | None:
        known = self._cards.get(name)
        return known[1] if known else None

    def key(self, name: NodeId) -> bytes | None:
        card = self.card(name)
        return None if card is None else card.key

    def names(self) -> list[NodeId]:
        return list(self._cards)

    def learn(self, card: Card) -> bool:
        """Is this card genuine, or known already? Then the book holds it or a newer one."""
        known = self.card(card.name)
        if known is not None:
            if known.key != card.key:
                return False
            if known == card:
                return True
        if not card.genuine:
            return False
        if known is None or known.t < card.t:
            self._cards.pop(card.name, None)
            self.latest += 1
            self._cards[card.name] = (self.latest, card)
            if len(self._cards) > self._most:
                del self._cards[next(iter(self._cards))]
        return True

    def since(self, number: int) -> tuple[int, list[Card]]:
        """Cards learnt after the one of this number, oldest first, and the latest number."""
        news: list[Card] = []
        for own, card in reversed(self._cards.values()):
            if own <= number:
                break
            news.append(card)
        return self.latest, news[::-1]
