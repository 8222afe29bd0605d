"""What waits for a flush, and what one flush publishes."""

from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct

from nearcast.model.subscription import Value
from nearcast.service.client_state import AcceptedPublication, AcceptedPublications, ClientState
from nearcast.service.retained_state import PUBLICATION_DTYPE, PublicationTable, clear_retain
from nearcast.space.outlines import Outline


class WaitingPublications:
    """Publications that wait for the next flush, in the order in which they were accepted."""

    def __init__(self) -> None:
        self.accepted = AcceptedPublications()
        self._rows = bytearray()  # the same, as rows of PUBLICATION_DTYPE
        self.data = bytearray()  # the frames in which plain ones of them came

    def add(self, accepted: AcceptedPublication, row: bytes) -> None:
        self.accepted.append(accepted)
        self._rows += row

    def add_plain(
        self, clients: Sequence[ClientState], frames: Sequence[bytes], rows: PublicationTable,
        first: int,
    ) -> None:  # fmt: skip
        """Plain publications of these clients, numbered from `first` on; their frames are part of
        `data` already."""
        self.accepted.append_plain(clients, frames, first)
        self._rows += rows.tobytes()

    def unretain(self, client: ClientState, channel: str) -> None:
        """Nothing that waits becomes this entity's state on this channel."""
        for place, one in enumerate(self.accepted):
            if one.unretain(client, channel):
                clear_retain(self._rows, place)

    def table(self) -> PublicationTable:
        """The rows. Nothing can be added while somebody has them."""
        return np.frombuffer(self._rows, PUBLICATION_DTYPE)


class FlushInput(Struct):
    """Publications of one flush: of clients here, as a table; and of other nodes."""

    accepted: AcceptedPublications
    table: PublicationTable
    channels: list[str] | None  # None: all are on the default one
    attributes: list[dict[str, Value]] | None  # None: none has any
    outlines: Sequence[Outline | None] | None = None  # None: none has any
    remote: list[tuple[AcceptedPublication, bytes]] = []
    data: bytes = b""  # the frames of those that are plain

    def __bool__(self) -> bool:
        return bool(self.accepted or self.remote)

    def one_by_one(self) -> Iterator[tuple[AcceptedPublication, "FlushInput"]]:
        """The same, one publication at a time."""
        for i, one in enumerate(self.accepted):
            channels = self.channels and self.channels[i : i + 1]
            attributes = self.attributes and self.attributes[i : i + 1]
            outlines = self.outlines and self.outlines[i : i + 1]
            alone = AcceptedPublications([one])
            yield (
                one,
                FlushInput(
                    alone, self.table[i : i + 1], channels, attributes, outlines, data=self.data
                ),
            )
        for one, row in self.remote:
            alone = AcceptedPublications()
            yield one, FlushInput(alone, self.table[:0], None, None, None, [(one, row)])
