"""A network may bring a message twice; an application hears it once."""

from collections import deque
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from nearcast.model.publication import Publication
from nearcast.model.subscription import PublicationId
from nearcast.space.motion import SECOND, Time

REMEMBERED = 4096  # deliveries that a client remembers before it looks for some to forget
DUPLICATE_WINDOW: Time = 60 * SECOND  # later than this, no network brings a second copy
PUBLICATION_IDS = 2**53

ReceiverNumbers = NDArray[np.int32]
ReceiverSet = TypeVar("ReceiverSet", set[int], ReceiverNumbers)
NO_RECEIVERS: ReceiverNumbers = np.empty(0, np.int32)


def publication_key(publication: Publication) -> int:
    """The same for all copies of it, and for nothing that another author publishes: whoever uses
    somebody else's number does not keep the other's publication from being heard."""
    return publication.node * PUBLICATION_IDS + publication.id


def is_outside_window(publication: Publication, now: Time) -> bool:
    """Has its time passed, so that a copy may have been forgotten? Then it is a replay."""
    return not -DUPLICATE_WINDOW <= now - publication.t <= DUPLICATE_WINDOW


class DeliveredPublications:
    """What a client has handed to its application lately, by `publication_key`."""

    def __init__(self) -> None:
        self._when: dict[int, Time] = {}
        self._room = REMEMBERED

    def __len__(self) -> int:
        return len(self._when)

    def is_new(self, copy: int, now: Time) -> bool:
        """Was it not delivered before? From now on it was."""
        if copy in self._when:
            return False
        self._when[copy] = now
        if len(self._when) > self._room:
            horizon = now - DUPLICATE_WINDOW
            self._when = {p: t for p, t in self._when.items() if t >= horizon}
            self._room = max(REMEMBERED, 2 * len(self._when))
        return True


class ReceivedPublications:
    """The same for many: which of several ears, numbered, have had which publication."""

    def __init__(self) -> None:
        self._ears: dict[PublicationId, set[int] | ReceiverNumbers] = {}
        self._order: deque[tuple[Time, PublicationId]] = deque()

    def is_new(self, publication: PublicationId, ear: int, now: Time) -> bool:
        """Did this one not have it before? From now on it has."""
        ears = self._ears.get(publication)
        if not isinstance(ears, set):
            ears = self._keep(publication, set() if ears is None else set(ears.tolist()), now)
        if ear in ears:
            return False
        ears.add(ear)
        return True

    def those(self, publication: PublicationId) -> ReceiverNumbers:
        """Who had it so far."""
        ears = self._ears.get(publication)
        if ears is None:
            return NO_RECEIVERS
        if isinstance(ears, set):
            return np.fromiter(ears, np.int32, len(ears))
        return ears

    def add(
        self, publication: PublicationId, before: ReceiverNumbers, more: ReceiverNumbers, now: Time
    ) -> None:
        """Beside those who had it before, these have it now."""
        self._keep(publication, np.concatenate((before, more)) if len(before) else more, now)

    def _keep(self, publication: PublicationId, ears: ReceiverSet, now: Time) -> ReceiverSet:
        if publication not in self._ears:
            self._order.append((now, publication))
            while self._order[0][0] < now - DUPLICATE_WINDOW:
                del self._ears[self._order.popleft()[1]]
        self._ears[publication] = ears
        return ears
