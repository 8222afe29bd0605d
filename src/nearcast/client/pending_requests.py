"""Requests that wait: to be sent, for their answers, or for the entities inside their area."""

from collections.abc import Iterator
from enum import Enum, auto
from typing import Any

from msgspec import Struct

from nearcast.client.subscription_state import SubscriptionState
from nearcast.client_protocol import messages as wire
from nearcast.model.subscription import Region
from nearcast.space.motion import Time

# The answers to requests; all others are answered by `done`.
_ANSWERS: dict[type[Struct], type[Struct]] = {
    wire.JoinRequest: wire.WelcomeNotice,
    wire.NearbyRequest: wire.NearbyNotice,
}


class Purpose(Enum):
    """What a client's request is for."""

    APPLICATION = auto()
    JOIN = auto()
    RESUBSCRIBE = auto()


class PendingRequest(Struct, eq=False):
    """A request, and what to do when it is answered."""

    request: Any
    purpose: Purpose = Purpose.APPLICATION
    confirm: bool = True  # is the node asked to answer?
    state: SubscriptionState | None = None  # of the subscription that it asks for
    region: Region | str | None = None  # that it asks for
    follows_client: bool = False  # is it a plain shape?
    connection: int = 0  # on which it was sent
    deadline: Time = 0
    done: Any = None  # the answer, if only the entities inside are missing


class PendingRequests:
    """By number. All wait equally long for an answer, so the first is always the oldest."""

    def __init__(self) -> None:
        self.queue: dict[int, PendingRequest] = {}  # not sent yet
        self.sent: dict[int, PendingRequest] = {}  # without an answer
        self.inside: dict[int, PendingRequest] = {}  # answered, but it is not known who is inside

    def take_answered(
        self, connection: int, kind: type[Struct], number: int | None
    ) -> PendingRequest | None:
        """The request that a notice of this kind answers; None if it answers nothing."""
        pending = None if number is None else self.sent.get(number)
        if number is None or pending is None or pending.connection != connection:
            return None
        expected = _ANSWERS.get(type(pending.request), wire.DoneNotice)
        if kind is not wire.ErrorNotice and kind is not expected:
            return None
        return self.sent.pop(number)

    def take_sent_on(self, connection: int) -> list[tuple[int, PendingRequest]]:
        """Those that the node at this connection has not answered."""
        sent = [(n, one) for n, one in self.sent.items() if one.connection == connection]
        for number, _ in sent:
            del self.sent[number]
        return sent

    def take_waiting_for_inside(self, subscription: int) -> list[tuple[int, PendingRequest]]:
        """Those that need only know who is inside this subscription."""
        waiting = [
            (n, one)
            for n, one in self.inside.items()
            if one.state is not None and one.state.number == subscription
        ]
        for number, _ in waiting:
            del self.inside[number]
        return waiting

    def take(self, number: int) -> PendingRequest | None:
        for waiting in (self.queue, self.sent, self.inside):
            if number in waiting:
                return waiting.pop(number)
        return None

    def take_overdue(self, now: Time) -> Iterator[tuple[int, PendingRequest]]:
        """One after the other: what becomes of one may end others."""
        for waiting in (self.sent, self.inside):
            while waiting:
                number, oldest = next(iter(waiting.items()))
                if oldest.deadline > now:
                    break
                yield number, waiting.pop(number)

    def next_deadline(self) -> Time | None:
        oldest = [next(iter(w.values())).deadline for w in (self.sent, self.inside) if w]
        return min(oldest, default=None)

    def clear(self) -> None:
        for waiting in (self.queue, self.sent, self.inside):
            waiting.clear()
