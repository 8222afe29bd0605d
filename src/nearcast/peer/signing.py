"""Publications signed by their author, and checked by every peer that they reach.

The signature is the first 64 bytes of a publication's payload on the wire, so every overlay carries
it as it carries any payload, and a peer's protocol knows nothing of it. It covers all that the
author says: id, author, time, shape, channel, attributes and payload. The author's key does not
travel with it. A node's name is the hash of its key, and links hand over the record of a node
before they mention its name (`address_book.py`), so whoever hears of an author holds its key.

The host checks a publication before its node sees it: a forgery is neither delivered nor passed on,
and does not count as a copy of the genuine one. A publication is accepted while its time is within
`FRESH` of the receiver's clock, and for that long its id is remembered, so an old one is refused
by its time and a recent one by its id.
"""

from collections.abc import Callable, Sequence
from hashlib import blake2b

import msgspec
from msgspec.structs import replace

from nearcast.errors import SignatureError
from nearcast.model.commands import Publish
from nearcast.model.publication import Publication
from nearcast.model.subscription import NodeId, PublicationId, SubscriptionId
from nearcast.node import Message
from nearcast.space.motion import SECOND, Time
from nearcast.transport.identity import Identity, verify_signature

SIGNATURE_BYTES = 64
# How far a publication's time may be from the receiver's clock, either way: what the clocks of
# author and receiver differ by and the time that it travels must stay below this together.
FRESH: Time = 30 * SECOND
MOST_REMEMBERED = 1 << 17  # publications; about 30 MB
DIGEST_BYTES = 16
# To check a forgery costs as much as to check a genuine publication, and nobody honest passes one
# on. So whoever sends one is not listened to for as long, except for copies of what is known.
DISTRUST: Time = SECOND


def signed_bytes(publication: Publication, payload: bytes) -> bytes:
    """What the author signs. Numbers and the order of attributes have one form only."""
    shape = publication.shape
    fields = (
        publication.id, publication.node, publication.t,
        int(shape.kind), *map(float, (shape.x, shape.y, shape.z, shape.rx, shape.ry, shape.rz)),
        publication.channel, sorted(publication.attributes.items()), payload,
    )  # fmt: skip
    return b"nearcast publication" + msgspec.msgpack.encode(fields)


def carried_publications(message: Message) -> Sequence[Publication]:
    """All publications in a message of any overlay; most messages have none or one."""
    publication = getattr(message, "publication", None)
    if publication is not None:
        return (publication,)
    return [piece.publication for piece in getattr(message, "pieces", ())]


class _AcceptedPublication:
    """One verified publication: its time, what it says, and to whom it was delivered."""

    __slots__ = ("digest", "t", "to")

    def __init__(self, t: Time, digest: bytes) -> None:
        self.t, self.digest = t, digest
        self.to: frozenset[SubscriptionId] = frozenset()


class _Author:
    """The accepted publications of one author. `floor`: nothing as old as that is accepted now."""

    __slots__ = ("accepted", "floor")

    def __init__(self) -> None:
        self.floor: Time = -1
        self.accepted: dict[PublicationId, _AcceptedPublication] = {}


class Signing:
    """Signs what one peer publishes and checks what it hears. `key_of`: the key of an author."""

    def __init__(
        self,
        identity: Identity,
        key_of: Callable[[NodeId], bytes | None],
        most: int = MOST_REMEMBERED,
    ) -> None:
        self._identity, self._key_of, self._most = identity, key_of, most
        self._authors: dict[NodeId, _Author] = {}
        self._distrusted: dict[NodeId, Time] = {}  # who has sent a forgery, and until when
        self._count = 0
        self._swept: Time = 0

    def signed(self, command: Publish, now: Time) -> Publish:
        """The command with a payload that begins with the author's signature."""
        publication = command.stamped(self._identity.name, now)
        fields = signed_bytes(publication, command.payload)
        signature = self._identity.sign(fields)
        self._remember(publication, _digest(signature, fields), now)
        return replace(command, payload=signature + command.payload)

    def check(self, publication: Publication, sender: NodeId, now: Time) -> None:
        """RefusedError unless its author has made it so, and lately."""
        if now - self._swept >= FRESH:
            self._sweep(now)
        if abs(now - publication.t) > FRESH:
            raise SignatureError("stale")
        known = self._known(publication)
        signature, payload = _split(publication)
        fields = signed_bytes(publication, payload)
        digest = _digest(signature, fields)
        if known is not None:
            if known.digest != digest:
                raise SignatureError("altered")
            return
        author = self._authors.get(publication.node)
        if author is not None and publication.t <= author.floor:
            raise SignatureError("stale")
        key = self._key_of(publication.node)
        if key is None:
            raise SignatureError("unknown author")
        if now < self._distrusted.get(sender, 0):
            raise SignatureError("from a forger")
        if not verify_signature(key, signature, fields):
            self._distrusted[sender] = now + DISTRUST
            raise SignatureError("forged")
        self._remember(publication, digest, now)

    def opened(
        self, publication: Publication, to: Sequence[SubscriptionId]
    ) -> tuple[Publication, Sequence[SubscriptionId]]:
        """As its author made it, for those of the subscriptions that have not had it yet.

        RefusedError if it was never checked, or none is left.
        """
        known = self._known(publication)
        signature, payload = _split(publication)
        if known is None or known.digest != _digest(signature, signed_bytes(publication, payload)):
            raise SignatureError("unchecked")
        new = tuple(one for one in to if one not in known.to)
        if not new:
            raise SignatureError("replayed")
        known.to = known.to.union(new)
        return replace(publication, payload=payload), new

    def _known(self, publication: Publication) -> _AcceptedPublication | None:
        author = self._authors.get(publication.node)
        return None if author is None else author.accepted.get(publication.id)

    def _remember(self, publication: Publication, digest: bytes, now: Time) -> None:
        if now - self._swept >= FRESH or self._count >= self._most:
            self._sweep(now)
        author = self._authors.get(publication.node)
        if author is None:
            if len(self._authors) >= self._most and publication.node != self._identity.name:
                raise SignatureError("too many authors")
            author = self._authors[publication.node] = _Author()
        author.accepted[publication.id] = _AcceptedPublication(publication.t, digest)
        self._count += 1

    def _sweep(self, now: Time) -> None:
        """Forget what its time refuses anyway. Where that is too little, forget the older half of
        each author's, and refuse from then on what is as old as that: nobody's flood makes room
        for replays, or silences anybody else."""
        self._swept = now
        self._distrusted = {node: t for node, t in self._distrusted.items() if t > now}
        for author in self._authors.values():
            author.accepted = {n: h for n, h in author.accepted.items() if h.t >= now - FRESH}
        self._count = sum(len(author.accepted) for author in self._authors.values())
        if self._count >= self._most:
            for author in self._authors.values():
                by_time = sorted(author.accepted.items(), key=lambda item: item[1].t)
                half = (len(by_time) + 1) // 2
                author.floor = max(author.floor, by_time[half - 1][1].t if half else -1)
                author.accepted = {n: h for n, h in by_time[half:] if h.t > author.floor}
            self._count = sum(len(author.accepted) for author in self._authors.values())
        self._authors = {
            name: author
            for name, author in self._authors.items()
            if author.accepted or author.floor >= now - FRESH
        }


def _split(publication: Publication) -> tuple[bytes, bytes]:
    return publication.payload[:SIGNATURE_BYTES], publication.payload[SIGNATURE_BYTES:]


def _digest(signature: bytes, fields: bytes) -> bytes:
    return blake2b(signature + fields, digest_size=DIGEST_BYTES).digest()
