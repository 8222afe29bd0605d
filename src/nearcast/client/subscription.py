"""A subscription as its client holds it: its area, its messages, and the entities inside."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from nearcast.client.inbox import Inbox
from nearcast.client_protocol import messages
from nearcast.client_protocol.geometry_json import (
    Area,
    AreaLike,
    area_from_region,
    as_region,
    shape_from_fields,
    shift_time,
)
from nearcast.model.commands import continue_region
from nearcast.model.subscription import Region, Value
from nearcast.space.motion import SECOND, Moving, Path, Time
from nearcast.space.shapes import Shape

SendRequest: TypeAlias = Callable[[Any], Awaitable[Any]]  # from a request to the node's answer


class Message(Struct, frozen=True):
    """A publication that this client receives."""

    source: int  # the entity that published it
    publication: int  # its number, unique on the node and in its cluster
    t: Time  # when it was accepted: microseconds of Unix time by the node's clock
    x: float  # the centre of where it was published
    y: float
    z: float
    r: float | None  # the radius, of a disc or ball
    rx: float | None  # the half-extents, of a box
    ry: float | None
    rz: float | None
    payload: Any  # None without one; an `Unreadable` if it cannot be decoded
    attributes: dict[str, Value]  # what filters look at
    channel: str
    retain: bool  # it is the publisher's state from now on
    to: list[int]  # the numbers of the subscriptions that it is for (`Subscription.number`)

    @property
    def shape(self) -> Shape:
        """Where it was published: a point, a disc, a ball or a box."""
        return shape_from_fields(self.x, self.y, self.z, self.r, self.rx, self.ry, self.rz)


class Entity(Struct, frozen=True):
    """An entity and its retained state: what it last published with `retain`, and where."""

    entity: int  # its number; that of its client is `Client.entity`
    t: Time  # when the state was published: microseconds of Unix time by the node's clock
    x: float  # where
    y: float
    z: float
    name: str  # of its client, or the `name` under which it was published
    attributes: dict[str, Value]
    payload: Any


class Entered(Struct, frozen=True):
    """An entity is now in the area of a watching subscription."""

    entity: Entity  # with its state


class Left(Struct, frozen=True):
    """An entity is no longer in the area of a watching subscription."""

    entity: Entity  # with its last known state
    gone: bool  # True: it has ended its state or left the node; False: it is outside the area


Change: TypeAlias = Entered | Left


class Subscription:
    """A subscription of a client. Iterate over it for its messages, the oldest first.

    `inside` has the entities in its area, by number, if it was made with `watch=True`; `changes()`
    tells who enters and leaves. `number` identifies it in `Message.to`.
    """

    def __init__(
        self,
        send_request: SendRequest,
        forget: Callable[["Subscription"], None],
        request: messages.SubscribeRequest,
        region: Region | str,
        size: int,
    ) -> None:
        self._send_request, self._forget = send_request, forget
        self.request = request
        self.region = region
        self.follows_client = False  # does `Client.move_to` move it?
        self.area_since = self.filter_since = (
            0  # when the clocks `t` of its area and of its filter began
        )
        self.inside: dict[int, Entity] = {}  # by entity, kept up to date
        self.inside_known = asyncio.Event()  # has the first `inside` arrived?
        self.messages: Inbox[Message] = Inbox(size)
        self._changes: Inbox[Change] = Inbox(size)

    @property
    def number(self) -> int:
        return self.request.subscription

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

    async def move(self, where: AreaLike) -> None:
        """Give it this area from now on; all else stays."""
        await self.change_area(as_region(where), isinstance(where, Shape))

    async def change_area(self, region: Region | str, follows_client: bool) -> None:
        area = area_from_region(region)
        done = await self._send_request(messages.MoveRequest(self.number, area))
        self.request = replace(self.request, area=area)
        self.area_accepted(region, follows_client, done.t)

    def area_accepted(self, region: Region | str, follows_client: bool, t: Time) -> None:
        """The node has accepted this region at `t`."""
        self.region = region if isinstance(region, str) else region.stamped(t)
        self.follows_client = follows_client
        self.area_since = t
        if self.request.area.formula is not None or not self.filter_since:
            self.filter_since = (
                t  # a filter's clock goes on, unless a formula begins: they share one
            )

    async def tune(self, **variables: float) -> None:
        """New values for variables of its formula or filter; the others stay."""
        await self._send_request(messages.TuneRequest(self.number, variables))
        both = self.request.variables | variables
        self.request = replace(self.request, variables=both)

    async def unsubscribe(self) -> None:
        """End it. Iterations first get the messages that have already arrived."""
        await self._send_request(messages.UnsubscribeRequest(self.number))
        self._forget(self)
        self.end(None)

    def where(self, t: Time) -> Shape | None:
        """The area as it is at `t`; None for a formula, which has no shape."""
        return self.region.at(t) if isinstance(self.region, Moving | Path) else None

    def request_at(self, t: Time) -> tuple[messages.SubscribeRequest, Region | str]:
        """The request that continues it at `t` on a node that does not know it."""
        request, names = self.request, frozenset(self.request.variables)
        if request.filter is not None:
            seconds = max(0, t - self.filter_since) / SECOND
            request = replace(request, filter=shift_time(request.filter, seconds, names))
        if request.area.formula is not None:
            seconds = max(0, t - self.area_since) / SECOND
            formula = shift_time(request.area.formula, seconds, names)
            return replace(request, area=Area(formula=formula)), self.region
        assert not isinstance(self.region, str)
        region = continue_region(self.region, t).stamped(0)
        return replace(request, area=area_from_region(region)), region

    def end(self, why: Exception | None) -> None:
        """No more messages or changes: iterations end, with the error `why` if given."""
        self.inside_known.set()
        self.messages.end(why)
        self._changes.end(why)

    def update_entity(self, message: Message) -> None:
        """A retained message is the new state of an entity inside."""
        known = self.inside.get(message.source)
        if known is not None and message.retain:
            self.inside[message.source] = Entity(
                known.entity, message.t, message.x, message.y, message.z,
                known.name, message.attributes, message.payload,
            )  # fmt: skip

    def set_inside(self, entities: list[Entity]) -> None:
        """All entities inside, as the node lists them. Differences become changes."""
        present = {entity.entity: entity for entity in entities}
        for number in [number for number in self.inside if number not in present]:
            self.entity_left(number, gone=False)
        for entity in entities:
            self.entity_entered(entity)
        self.inside_known.set()

    def entity_entered(self, entity: Entity) -> None:
        if entity.entity not in self.inside:
            self._changes.put(Entered(entity))
        self.inside[entity.entity] = entity

    def entity_left(self, number: int, gone: bool) -> None:
        known = self.inside.pop(number, None)
        if known is not None:
            self._changes.put(Left(known, gone))
