"""Links between the nodes of one cluster: messages of a node without the cluster's key are ignored.

A link proves both nodes' own keys (`links.py`). The first frame of each side is then a code over
these two keys, made with the secret that all nodes of the cluster share. It is valid on this link
only, so nobody gains by reading or repeating it.
"""

import hmac
import logging
import os
from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from pathlib import Path

from nearcast.errors import KeyFileError, WireError
from nearcast.model.subscription import NodeId
from nearcast.node import Priority
from nearcast.service.cluster.messages import CODEC, Credential, LinkRefused
from nearcast.transport.identity import Identity
from nearcast.transport.links import MESSAGE, Link, WaitingFrame, make_frame
from nearcast.transport.tls import TlsTransport

LOG = logging.getLogger(__name__)
SHORTEST_KEY = 16
LONGEST_EARLY = 1 << 18  # bytes of a frame of cards: about a thousand of them
MOST_EARLY = 64  # links whose cards wait
OWNER_ALONE = 0o600
MOST_EARLY_FRAMES = 2  # of cards, on each of them
NO_CREDENTIAL = "you have not shown the key of this cluster"
WRONG_KEY = "the key of this node is not the key of that cluster"


def cluster_key(file: Path, *, make: bool) -> bytes:
    """The secret in this file; `make`: if there is none, it is made. Nobody else may read it."""
    try:
        if make and not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
            with open(os.open(file, flags, OWNER_ALONE), "w") as opened:
                opened.write(os.urandom(32).hex() + "\n")
        if file.stat().st_mode & 0o077:
            raise KeyFileError(f"{file} can be read by others; chmod 600 it, or make a new key")
        key = file.read_bytes().strip()
    except OSError as error:
        raise KeyFileError(f"cannot use {file}: {error.strerror}") from error
    if len(key) < SHORTEST_KEY:
        raise KeyFileError(f"{file} holds no key: it has at least {SHORTEST_KEY} characters")
    return key


class ClusterLinks(TlsTransport):
    """Links between nodes that have shown the cluster's key; others are refused."""

    def __init__(self, identity: Identity, host: str, port: int, key: bytes) -> None:
        super().__init__(identity, host, port)
        self.members: dict[NodeId, None] = {}  # nodes that have shown the key
        self.refused = ""  # the reason why another node refused this one
        self.on_broken: Callable[[NodeId], None] = lambda _: None
        self._secret = key
        self._shown: dict[Link, None] = {}
        self._early: dict[
            Link, list[bytes]
        ] = {}  # address cards of nodes that have not shown the key yet

    def _code(self, sender: bytes, receiver: bytes) -> bytes:
        return hmac.digest(self._secret, b"nearcast cluster" + sender + receiver, sha256)

    def _key_of(self, peer: NodeId) -> bytes:
        card = self.book.record(peer)
        return b"" if card is None else card.key

    def _write(
        self, link: Link, frames: Iterable[WaitingFrame], first: tuple[bytes, ...] = ()
    ) -> None:
        """The credential is the first frame on every link, as soon as we know who is there."""
        if link not in self._shown and (link.key or link.peer is not None):
            self._shown[link] = None
            theirs = link.key or self._key_of(link.peer or 0)
            shown = CODEC.encode(Credential(self._code(self.identity.key, theirs)))
            frames = [(shown, Priority.UPKEEP, True), *frames]
        super()._write(link, frames, first)

    def _add_records(self, link: Link, frame: bytes) -> None:
        """Address cards of a node wait until it has shown the key."""
        if link.peer is None or link.peer in self.members:
            super()._add_records(link, frame)
        elif link in self._early or len(self._early) < MOST_EARLY:
            early = self._early.setdefault(link, [])
            if len(early) < MOST_EARLY_FRAMES and len(frame) <= LONGEST_EARLY:
                early.append(frame)

    def _deliver(self, sender: NodeId, frames: Sequence[bytes]) -> None:
        if sender != self.name and sender not in self.members:
            first, *frames = frames
            if not self._is_credential(sender, first):
                self._refuse(sender)
                return
            self.members[sender] = None
            for link in [link for link in self._early if link.peer == sender]:
                for cards in self._early.pop(link):
                    super()._add_records(link, cards)
        if frames:
            super()._deliver(sender, frames)

    def _is_credential(self, sender: NodeId, frame: bytes) -> bool:
        try:
            message = CODEC.decode(frame)
        except WireError:
            return False
        expected = self._code(self._key_of(sender), self.identity.key)
        return isinstance(message, Credential) and hmac.compare_digest(message.code, expected)

    def _refuse(self, sender: NodeId) -> None:
        peer = self._peers.get(sender)
        link = peer.link if peer is not None else None
        if link is not None and link in self._links:
            if link.called:  # we wanted to join: either side has seen that the keys differ
                self.refused = WRONG_KEY
            LOG.warning("node %d is refused: it has not shown the key of this cluster", sender)
            link.connection.write(
                b"".join(make_frame(MESSAGE, CODEC.encode(LinkRefused(NO_CREDENTIAL))))
            )
            link.connection.end()
            self.connection_lost(link)

    def _is_unidentified(self, link: Link) -> bool:
        """A node that has greeted, but has not shown the key, is one still."""
        return not link.called and (link.peer is None or link.peer not in self.members)

    def connection_lost(self, link: Link) -> None:
        super().connection_lost(link)
        self._shown.pop(link, None)
        self._early.pop(link, None)
        peer = self._peers.get(link.peer) if link.peer is not None else None
        if link.peer in self.members and (peer is None or peer.link is None):
            self.on_broken(link.peer)
