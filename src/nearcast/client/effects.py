"""What a client core asks of its host, its timers, and how long it waits for what.

    core ── Connect, Ask, Disconnect ──▶ host ──▶ nodes
    core ── Answered, Failed, Message, Changed, … ──▶ host ──▶ application
    core ── SetTimer, ClearTimer ──▶ host, which calls `wake` when it is time

A core numbers its connections and requests; a host knows links, tasks and inboxes by these numbers.
"""

from typing import Any, TypeAlias

from msgspec import Struct

from nearcast.client.received import (
    Change,
    DirectMessage,
    Disconnected,
    FenceEvent,
    HandedOver,
    Message,
)
from nearcast.client_protocol.messages import (
    DroppedNotice,
    ErrorNotice,
    Request,
    WithheldNotice,
)
from nearcast.node import ClearTimer, SetTimer, Timer
from nearcast.space.motion import SECOND, Time


class ClientParameters(Struct, frozen=True, kw_only=True):
    """How long a client waits, in microseconds, and how much it remembers."""

    answer: Time = 30 * SECOND  # after which a request without an answer fails
    first_pause: Time = SECOND // 10  # before the first attempt to reconnect; it doubles …
    longest_pause: Time = 10 * SECOND  # … up to this
    # A node that is started again within `restart` of the loss is found within `restart_pause`,
    # which leaves a second to subscribe and to publish states again before 2 s are over. Thousands
    # of clients do not storm it: each has one attempt under way at most, so a node that accepts
    # slowly is not asked more often, and random pauses have spread them over the second by then.
    # To nobody who listens, an attempt costs one packet. Later, it is rather an outage.
    restart: Time = 30 * SECOND
    restart_pause: Time = SECOND
    # For one of several nodes to welcome us, besides the pause, before the next is tried.
    attempt: Time = 2 * SECOND
    handover: Time = 5 * SECOND  # for another node to welcome us; then we stay
    former_node: Time = 10 * SECOND  # for the former node to send what it still has for us
    hold_back: Time = SECOND // 4  # that messages of the new node wait for the former one's
    remembered: int = 4_096  # publications, to drop duplicates; twice as many at most

    def __post_init__(self) -> None:
        assert 0 < self.first_pause <= self.longest_pause
        assert self.remembered > 0 and self.restart_pause > 0

    def next_pause(self, pause: Time, since: Time) -> Time:
        """The longest pause after one of at most `pause`, so long after the loss."""
        longest = self.longest_pause
        if since < self.restart:
            longest = min(longest, self.restart_pause)
        return min(2 * pause, longest)


class AnswerDue(Timer, frozen=True):
    """The oldest request without an answer may have waited long enough."""


class JoinDue(Timer, frozen=True):
    """The node at this connection should have welcomed us by now."""

    connection: int


class RetryDue(Timer, frozen=True):
    """The pause before the next attempt to reconnect is over."""


class HoldBackDue(Timer, frozen=True):
    """Messages of the new node need no longer wait for those of this former connection."""

    connection: int


class FormerNodeDue(Timer, frozen=True):
    """The former node, at this connection, has had the time to send what it had for us."""

    connection: int


class Connect(Struct, frozen=True):
    """Get a token, open a connection, and call `connected` or `connect_failed`."""

    connection: int
    url: str | None  # None: the address that the application gave


class Disconnect(Struct, frozen=True):
    """Close this connection, or give up opening it. Nothing more is expected of it."""

    connection: int


class Ask(Struct, frozen=True):
    """Send a request. If that is not possible, fail request `number` and call `not_sent`."""

    connection: int
    request: Request
    number: int  # `request.id`, or that of a request that the node is not asked to answer


class Answered(Struct, frozen=True):
    """The node has accepted the application's request; None: it was sent without confirmation."""

    number: int
    notice: Any


class _Explained(Struct, frozen=True, eq=False):
    """Errors have no equality of their own; these effects are equal if they say the same."""

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash(repr(self))


class Failed(_Explained, frozen=True):
    """The application's request is refused, or will not be answered."""

    number: int
    why: Exception


class SubscriptionEnded(_Explained, frozen=True):
    """The node does not accept this subscription again: its messages end with this error."""

    subscription: int
    why: Exception


class Ended(_Explained, frozen=True):
    """The client has ended: because of this error, or because it was closed. No timer counts."""

    why: Exception | None


class Again(Struct, frozen=True):
    """A message that was delivered before, now for other subscriptions."""

    message: Message


class Changed(Struct, frozen=True):
    """Who is inside the area of a subscription has changed, or something happened at a fence."""

    subscription: int
    change: Change | FenceEvent


class Welcomed(Struct, frozen=True):
    """A node has let this client in, as this entity: the first, or one after a lost connection."""

    entity: int


class ServedAgain(Struct, frozen=True):
    """After a lost connection, all states are published and all subscriptions in force again, but
    these, which are refused."""

    refused: list[int]


class Told(Struct, frozen=True):
    """Something that the application may want to know (`Client.notices`)."""

    notice: Disconnected | HandedOver | WithheldNotice | DroppedNotice | ErrorNotice


# Messages are effects too. One that was published is for its subscriptions, and for who receives
# all; a direct message is for who receives those.
ClientEffect: TypeAlias = (
    Connect | Disconnect | Ask | SetTimer | ClearTimer | Answered | Failed | Message
    | DirectMessage | Again | Changed | Welcomed | ServedAgain | SubscriptionEnded | Told | Ended
)  # fmt: skip
