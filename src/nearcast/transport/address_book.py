"""Where nodes listen: signed peer records, passed on from node to node.

A protocol learns of a node by its name in a message, and must be able to write to it at once. So
before a transport writes a frame to a peer, it tells that peer all records that it has learnt since
it last did. Whoever hears a name from a peer therefore holds the record, if the peer did; and the
peer did, because it has met the node itself or has heard the name in the same way.

The price is that everybody comes to hold everybody's record: 140 bytes and a signature to verify
for each node, at most once per link and direction. That is right for thousands of nodes, not
millions. Records are signed by their owners, and a newer one of the same key replaces an older one,
so nobody can say of others where they listen; and the first key with a name keeps it.
"""

from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from nearcast.model.subscription import NodeId
from nearcast.space.motion import Time
from nearcast.transport.identity import KEY_BYTES, Identity, is_name_of, verify_signature

MAX_RECORDS = 100_000  # beyond that, those that were learnt first are forgotten


class PeerRecord(Struct, frozen=True, array_like=True):
    """The owner of `key`, called `name`, listens there; `t` is when it began to."""

    key: Annotated[bytes, Meta(min_length=KEY_BYTES, max_length=KEY_BYTES)]
    name: NodeId
    host: Annotated[str, Meta(max_length=255)]
    port: Annotated[int, Meta(gt=0, lt=65536)]
    t: Time
    signature: Annotated[bytes, Meta(max_length=64)] = b""

    def signed_bytes(self) -> bytes:
        return b"nearcast card" + msgspec.msgpack.encode((self.name, self.host, self.port, self.t))

    @property
    def is_genuine(self) -> bool:
        return is_name_of(self.key, self.name) and verify_signature(
            self.key, self.signature, self.signed_bytes()
        )


def sign_record(identity: Identity, host: str, port: int, t: Time) -> PeerRecord:
    record = PeerRecord(identity.key, identity.name, host, port, t)
    return msgspec.structs.replace(record, signature=identity.sign(record.signed_bytes()))


class AddressBook:
    """Peer records by name, numbered in the order in which they were learnt."""

    def __init__(self, most: int = MAX_RECORDS) -> None:
        self._most = most
        self._records: dict[NodeId, tuple[int, PeerRecord]] = {}
        self.latest = 0  # the number of the record learnt last

    def record(self, name: NodeId) -> PeerRecord | None:
        known = self._records.get(name)
        return known[1] if known else None

    def key(self, name: NodeId) -> bytes | None:
        record = self.record(name)
        return None if record is None else record.key

    def names(self) -> list[NodeId]:
        return list(self._records)

    def add_record(self, record: PeerRecord) -> bool:
        """Is this record genuine, or known already? Then the book holds it or a newer one."""
        known = self.record(record.name)
        if known is not None:
            if known.key != record.key:
                return False
            if known == record:
                return True
        if not record.is_genuine:
            return False
        if known is None or known.t < record.t:
            self._records.pop(record.name, None)
            self.latest += 1
            self._records[record.name] = (self.latest, record)
            if len(self._records) > self._most:
                del self._records[next(iter(self._records))]
        return True

    def since(self, number: int) -> tuple[int, list[PeerRecord]]:
        """Records learnt after the one of this number, oldest first, and the latest number."""
        newer: list[PeerRecord] = []
        for own, record in reversed(self._records.values()):
            if own <= number:
                break
            newer.append(record)
        return self.latest, newer[::-1]
