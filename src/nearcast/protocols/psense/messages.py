"""All messages of pSense.

peer A                 near B, or a sensor             C, near A, of whom A does not know
  │── Position ─────────────▶│── Position of A ────────────────▶│ while its hops last
  │── Request ──────────────▶│
  │◀──────────── Response ───│ "C is a better sensor for you"
  │── Tell ─────────────────▶│── Tell ─────────────────────────▶│ while its hops last

A packet is laid out as in `layouts`; its place is news of its sender. Position and Tell name all
who get them directly, so that nobody serves them again.
"""

from typing import ClassVar

from nearcast.model.publication import Publication
from nearcast.model.subscription import PublicationId
from nearcast.node import Message
from nearcast.wire import Codec


class PSenseMessage(Message, frozen=True):
    """A message between the peers of pSense."""

    protocol: ClassVar[str] = "psense"


class Position(PSenseMessage, frozen=True, tag=1):
    """Where somebody is: its own word, or passed on."""

    lossy: ClassVar[bool] = True
    packet: bytes


class Request(PSenseMessage, frozen=True, tag=2):
    """Do you know a better sensor for this sector of mine?"""

    lossy: ClassVar[bool] = True
    packet: bytes


class Response(PSenseMessage, frozen=True, tag=3):
    """This is the best that I know."""

    lossy: ClassVar[bool] = True
    packet: bytes


class PublicationMessage(PSenseMessage, frozen=True, tag=4):
    """A publication, with the position of its publisher."""

    lossy: ClassVar[bool] = True
    packet: bytes
    publication: Publication

    def carries(self) -> PublicationId:
        return self.publication.id


CODEC = Codec(Position, Request, Response, PublicationMessage)
