"""A network may bring a message twice; an application hears it once."""

from nearcast.model.subscription import PublicationId
from nearcast.space.motion import SECOND, Time

REMEMBERED = 4096  # deliveries that a client remembers before it looks for some to forget
COPIES_COME_WITHIN: Time = 60 * SECOND  # later than this, no network brings a second copy


class Delivered:
    """What a client has handed to its application lately."""

    def __init__(self) -> None:
        self._when: dict[PublicationId, Time] = {}
        self._room = REMEMBERED

    def __len__(self) -> int:
        return len(self._when)

    def is_new(self, publication: PublicationId, now: Time) -> bool:
        """Was it not delivered before? From now on it was."""
        if publication in self._when:
            return False
        self._when[publication] = now
        if len(self._when) > self._room:
            horizon = now - COPIES_COME_WITHIN
            self._when = {p: t for p, t in self._when.items() if t >= horizon}
            self._room = max(REMEMBERED, 2 * len(self._when))
        return True
