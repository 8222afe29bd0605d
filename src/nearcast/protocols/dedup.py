"""Deduplication: the network may deliver a message twice, the application gets it once."""

from collections import deque
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from nearcast.model.publication import Publication
from nearcast.model.subscription import PublicationId
from nearcast.space.motion import SECOND, Time

REMEMBERED = 4096  # deliveries that a client remembers before it looks for some to forget
DUPLICATE_WINDOW: Time = 60 * SECOND  # later than this, no network brings a second copy
PUBLICATION_IDS = 2**53

ReceiverNumbers = NDArray[np.int32]
State = TypeVar("State")
ReceiverSet = TypeVar("ReceiverSet", set[int], ReceiverNumbers)
NO_RECEIVERS: ReceiverNumbers = np.empty(0, np.int32)


def publication_key(publication: Publication) -> int:
    """The same for all copies of a publication, and different for different publishers: a publisher
    that uses the number of another's publication cannot suppress that one."""
    return publication.node * PUBLICATION_IDS + publication.id


def is_outside_window(publication: Publication, now: Time) -> bool:
    """Was it made so long ago that its first copy may be forgotten? Then it counts as a replay."""
    return not -DUPLICATE_WINDOW <= now - publication.t <= DUPLICATE_WINDOW


class DeliveredPublications:
    """The publications that a node has delivered within the duplicate window, by their key."""

    def __init__(self) -> None:
        self._when: dict[int, Time] = {}
        self._room = REMEMBERED

    def __len__(self) -> int:
        return len(self._when)

    def is_new(self, copy: int, now: Time) -> bool:
        """Is this the first copy? From now on it counts as delivered."""
        if copy in self._when:
            return False
        self._when[copy] = now
        if len(self._when) > self._room:
            horizon = now - DUPLICATE_WINDOW
            self._when = {p: t for p, t in self._when.items() if t >= horizon}
            self._room = max(REMEMBERED, 2 * len(self._when))
        return True


class PublicationStates(Generic[State]):
    """What a node has done with each publication of the last `window`, so that a second copy
    changes nothing. Older ones are forgotten in bulk, when the next window has passed."""

    def __init__(self, window: Time) -> None:
        self._window = window
        self._states: dict[PublicationId, State] = {}
        self._former: dict[PublicationId, State] = {}
        self._turned: Time = 0

    def get(self, publication: PublicationId) -> State | None:
        state = self._states.get(publication)
        return self._former.get(publication) if state is None else state

    def put(self, publication: PublicationId, state: State) -> None:
        self._states[publication] = state

    def forget(self, now: Time) -> None:
        """Forget what was put before the last window, if one has passed."""
        if now - self._turned > self._window:
            self._former, self._states, self._turned = self._states, {}, now


class ReceivedPublications:
    """The same for many receivers at once: which of them, by number, have which publication."""

    def __init__(self) -> None:
        self._receivers: dict[PublicationId, set[int] | ReceiverNumbers] = {}
        self._order: deque[tuple[Time, PublicationId]] = deque()

    def is_new(self, publication: PublicationId, receiver: int, now: Time) -> bool:
        """Is this the receiver's first copy? From now on it has the publication."""
        receivers = self._receivers.get(publication)
        if not isinstance(receivers, set):
            receivers = self._keep(
                publication, set() if receivers is None else set(receivers.tolist()), now
            )
        if receiver in receivers:
            return False
        receivers.add(receiver)
        return True

    def those(self, publication: PublicationId) -> ReceiverNumbers:
        """The receivers that have it so far."""
        receivers = self._receivers.get(publication)
        if receivers is None:
            return NO_RECEIVERS
        if isinstance(receivers, set):
            return np.fromiter(receivers, np.int32, len(receivers))
        return receivers

    def add(
        self, publication: PublicationId, before: ReceiverNumbers, more: ReceiverNumbers, now: Time
    ) -> None:
        """Beside the receivers that had it before, these have it now."""
        self._keep(publication, np.concatenate((before, more)) if len(before) else more, now)

    def _keep(self, publication: PublicationId, receivers: ReceiverSet, now: Time) -> ReceiverSet:
        if publication not in self._receivers:
            self._order.append((now, publication))
            while self._order[0][0] < now - DUPLICATE_WINDOW:
                del self._receivers[self._order.popleft()[1]]
        self._receivers[publication] = receivers
        return receivers
