"""A subscription as its application holds it: its messages, and the entities inside."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from nearcast.client.inbox import Inbox
from nearcast.client.received import Change, Entered, Entity, FenceEvent, Left, Message
from nearcast.client.subscription_state import SubscriptionState
from nearcast.client_protocol import messages
from nearcast.client_protocol.geometry_json import AreaLike, as_region
from nearcast.model.subscription import Region
from nearcast.space.motion import Time
from nearcast.space.shapes import Shape

__all__ = ["Change", "Entered", "Entity", "FenceEvent", "Left", "Message", "Subscription"]

SendRequest: TypeAlias = Callable[[Any], Awaitable[Any]]  # from a request to the node's answer
# Give the subscription of this number a region, which follows the client or not.
ChangeArea: TypeAlias = Callable[[int, Region | str, bool], Awaitable[None]]


class Subscription:
    """A subscription of a client. Iterate over it for its messages, the oldest first.

    `inside` has the entities in its area, by number, if it was made with `watch=True`; `changes()`
    tells who enters and leaves. If it was made with `events`, `events()` tells them, and `inside`
    is kept up to date by those of `enter` and `leave`. `number` identifies it in `Message.to`.
    """

    def __init__(
        self,
        state: SubscriptionState,
        send_request: SendRequest,
        change_area: ChangeArea,
        forget: Callable[["Subscription"], None],
        inbox: Inbox[Message],
    ) -> None:
        self._state = state
        self._send_request = send_request
        self._change_area, self._forget = change_area, forget
        self.messages = inbox
        self._changes: Inbox[Change] = Inbox(inbox.size)
        self._events: Inbox[FenceEvent] = Inbox(inbox.size)

    @property
    def number(self) -> int:
        return self._state.number

    @property
    def request(self) -> messages.SubscribeRequest:
        """As the node has accepted it last."""
        return self._state.request

    @property
    def inside(self) -> dict[int, Entity]:
        """By entity, kept up to date."""
        return self._state.inside

    @property
    def pairs(self) -> set[tuple[int, int]]:
        """Of a subscription with `near`: which entities are near each other, the lower number
        first; kept up to date by the events of enter and leave."""
        return self._state.pairs

    @property
    def dropped(self) -> int:
        """How many messages were dropped here because the application did not take them."""
        return self.messages.dropped

    def __aiter__(self) -> Inbox[Message]:
        return self.messages

    async def __anext__(self) -> Message:
        return await anext(self.messages)

    def changes(self) -> Inbox[Change]:
        """`Entered` and `Left` as they happen. ValueError unless made with `watch=True`."""
        if not self.request.watch:
            raise ValueError("changes() needs a subscription made with watch=True")
        return self._changes

    def events(self) -> Inbox[FenceEvent]:
        """What happens at its fence, in order for each entity. ValueError unless made with
        `events`. Who is inside at first is told by `inside`."""
        if not self.request.events:
            raise ValueError("events() needs a subscription made with events=[…]")
        return self._events

    async def move(self, where: AreaLike) -> None:
        """Give it this area from now on; all else stays."""
        walks = isinstance(where, Shape) and self.request.follow == ""
        await self._change_area(self.number, as_region(where), walks)

    async def tune(self, **variables: float) -> None:
        """New values for variables of its formula or filter; the others stay."""
        await self._send_request(messages.TuneRequest(self.number, variables))

    async def unsubscribe(self) -> None:
        """End it. Iterations first get the messages that have already arrived."""
        await self._send_request(messages.UnsubscribeRequest(self.number))
        self._forget(self)
        self.end(None)

    def where(self, t: Time) -> Shape | None:
        """The area as it is at `t`; None for a formula, which has no shape, and for an area that
        follows an entity: the node moves it."""
        return self._state.where(t)

    def changed(self, change: Change | FenceEvent) -> None:
        """Somebody has entered or left, or something happened at the fence."""
        if isinstance(change, FenceEvent):
            self._events.put(change)
        else:
            self._changes.put(change)

    def end(self, why: Exception | None) -> None:
        """No more messages, changes or events: iterations end, with the error `why` if given."""
        for inbox in (self.messages, self._changes, self._events):
            inbox.end(why)
