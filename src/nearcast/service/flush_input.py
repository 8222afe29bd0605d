"""What one flush publishes."""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from nearcast.model.subscription import Value
from nearcast.service.client_state import AcceptedPublication
from nearcast.service.retained_state import PublicationTable
from nearcast.space.outlines import Outline


class FlushInput(Struct):
    """Publications of one flush: of clients here, as a table; and of other nodes."""

    accepted: Sequence[AcceptedPublication]
    table: PublicationTable
    channels: list[str] | None  # None: all are on the default one
    attributes: list[dict[str, Value]] | None  # None: none has any
    outlines: Sequence[Outline | None] | None = None  # None: none has any
    remote: list[tuple[AcceptedPublication, bytes]] = []

    def __bool__(self) -> bool:
        return bool(self.accepted or self.remote)

    def one_by_one(self) -> Iterator[tuple[AcceptedPublication, "FlushInput"]]:
        """The same, one publication at a time."""
        for i, one in enumerate(self.accepted):
            channels = self.channels and self.channels[i : i + 1]
            attributes = self.attributes and self.attributes[i : i + 1]
            outlines = self.outlines and self.outlines[i : i + 1]
            yield one, FlushInput([one], self.table[i : i + 1], channels, attributes, outlines)
        for one, row in self.remote:
            yield one, FlushInput((), self.table[:0], None, None, None, [(one, row)])
