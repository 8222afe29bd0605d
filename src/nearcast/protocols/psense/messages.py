"""All messages of pSense.

peer A                 near B, or a sensor             C, near A, of whom A does not know
  │── Position ─────────────▶│── Position of A ────────────────▶│ while its hops last
  │── Request ──────────────▶│
  │◀──────────── Response ───│ "C is a better sensor for you"
  │── PublicationMessage ───▶│── PublicationMessage ───────────▶│ while its hops last

`layouts` has the layout of packets. Position and PublicationMessage name all direct receivers, so
that others do not forward to these again.
"""

from typing import ClassVar

from nearcast.model.publication import Publication
from nearcast.model.subscription import PublicationId
from nearcast.node import Message, Priority
from nearcast.protocols.update_rates import UpdateRates
from nearcast.wire import Codec


class PSenseMessage(Message, frozen=True):
    """A message between the peers of pSense."""

    protocol: ClassVar[str] = "psense"


class Position(PSenseMessage, frozen=True, tag=1):
    """The position of a peer: its own, or forwarded."""

    lossy: ClassVar[bool] = True
    priority: ClassVar[Priority] = Priority.PUBLICATION
    packet: bytes


class Request(PSenseMessage, frozen=True, tag=2):
    """Ask for a better sensor of a sector."""

    lossy: ClassVar[bool] = True
    packet: bytes


class Response(PSenseMessage, frozen=True, tag=3):
    """The best sensor that the sender knows."""

    lossy: ClassVar[bool] = True
    packet: bytes


class PublicationMessage(PSenseMessage, frozen=True, tag=4):
    """A publication, with the position of its publisher."""

    lossy: ClassVar[bool] = True
    priority: ClassVar[Priority] = Priority.PUBLICATION
    packet: bytes
    publication: Publication

    def carries(self) -> PublicationId:
        return self.publication.id


CODEC = Codec(Position, Request, Response, PublicationMessage, UpdateRates)
