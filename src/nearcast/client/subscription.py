"""One subscription as its client holds it: where it is, what it hears, whom it sees inside."""

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

Ask: TypeAlias = Callable[[Any], Awaitable[Any]]  # a request, and what the node answers


class Message(Struct, frozen=True):
    """A publication that touched an area of ours, and which of our subscriptions it is for."""

    source: int  # who published it: an entity
    publication: int
    t: Time  # when the node made it: microseconds of Unix time, by its clock
    x: float
    y: float
    z: float
    r: float | None  # of a disc
    rx: float | None  # of a box
    ry: float | None
    rz: float | None
    payload: Any  # an `Unreadable` if it cannot be decoded
    attributes: dict[str, Value]
    channel: str
    retain: bool
    to: list[int]

    @property
    def shape(self) -> Shape:
        return shape_from_fields(self.x, self.y, self.z, self.r, self.rx, self.ry, self.rz)


class Entity(Struct, frozen=True):
    """Someone's retained state: what it last published with `retain`, and where."""

    entity: int
    t: Time
    x: float
    y: float
    z: float
    name: str
    attributes: dict[str, Value]
    payload: Any


class Entered(Struct, frozen=True):
    entity: Entity


class Left(Struct, frozen=True):
    entity: Entity  # as it was last known
    gone: bool  # not only out of the area, but away altogether


Change: TypeAlias = Entered | Left


class Subscription:
    """One interest of a client. Iterate over it for its messages, from the oldest kept."""

    def __init__(
        self,
        ask: Ask,
        forget: Callable[["Subscription"], None],
        request: messages.SubscribeRequest,
        region: Region | str,
        size: int,
    ) -> None:
        self._ask, self._forget = ask, forget
        self.request = request
        self.region = region
        self.walks = False  # does it go where the client goes?
        self.since = self.filtered = 0  # when its region's and its filter's time began
        self.inside: dict[int, Entity] = {}  # whom it watches, kept up to date
        self.known = asyncio.Event()  # has the node said who is inside?
        self.messages: Inbox[Message] = Inbox(size)
        self._changes: Inbox[Change] = Inbox(size)

    @property
    def number(self) -> int:
        return self.request.subscription

    @property
    def dropped(self) -> int:
        """How many messages were given up here because nobody took them."""
        return self.messages.dropped

    def __aiter__(self) -> Inbox[Message]:
        return self.messages

    async def __anext__(self) -> Message:
        return await anext(self.messages)

    def changes(self) -> Inbox[Change]:
        """Who came and who went, of a subscription that watches; ValueError of another."""
        if not self.request.watch:
            raise ValueError("only a subscription with watch=True is told who comes and goes")
        return self._changes

    async def move(self, where: AreaLike) -> None:
        """Its area is this one from now on; all else stays."""
        await self.go(as_region(where), isinstance(where, Shape))

    async def go(self, region: Region | str, walks: bool) -> None:
        area = area_from_region(region)
        done = await self._ask(messages.MoveRequest(self.number, area))
        self.request = replace(self.request, area=area)
        self.placed(region, walks, done.t)

    def placed(self, region: Region | str, walks: bool, t: Time) -> None:
        """The node has accepted this region, at `t`."""
        self.region = region if isinstance(region, str) else region.stamped(t)
        self.walks = walks
        self.since = t
        if self.request.area.formula is not None or not self.filtered:
            self.filtered = t  # a filter's time goes on, unless a formula begins: they share one

    async def tune(self, **variables: float) -> None:
        """New numbers for variables of its formula or filter; the others stay."""
        await self._ask(messages.TuneRequest(self.number, variables))
        both = self.request.variables | variables
        self.request = replace(self.request, variables=both)

    async def unsubscribe(self) -> None:
        """No more messages; iterations over those that have come go on to their end."""
        await self._ask(messages.UnsubscribeRequest(self.number))
        self._forget(self)
        self.end(None)

    def where(self, t: Time) -> Shape | None:
        """The area as it is at `t`; None for a formula, which has no shape."""
        return self.region.at(t) if isinstance(self.region, Moving | Path) else None

    def resumed(self, t: Time) -> tuple[messages.SubscribeRequest, Region | str]:
        """How to ask for the same again at `t`, if the node has forgotten."""
        request, names = self.request, frozenset(self.request.variables)
        if request.filter is not None:
            seconds = max(0, t - self.filtered) / SECOND
            request = replace(request, filter=shift_time(request.filter, seconds, names))
        if request.area.formula is not None:
            seconds = max(0, t - self.since) / SECOND
            formula = shift_time(request.area.formula, seconds, names)
            return replace(request, area=Area(formula=formula)), self.region
        assert not isinstance(self.region, str)
        region = continue_region(self.region, t).stamped(0)
        return replace(request, area=area_from_region(region)), region

    def end(self, why: Exception | None) -> None:
        self.known.set()
        self.messages.end(why)
        self._changes.end(why)

    def seen(self, message: Message) -> None:
        """A retained message is the new state of whoever is inside."""
        known = self.inside.get(message.source)
        if known is not None and message.retain:
            self.inside[message.source] = Entity(
                known.entity, message.t, message.x, message.y, message.z,
                known.name, message.attributes, message.payload,
            )  # fmt: skip

    def found(self, entities: list[Entity]) -> None:
        """Everyone inside, said at once: tell what is new, as enter and leave would."""
        present = {entity.entity: entity for entity in entities}
        for number in [number for number in self.inside if number not in present]:
            self.left(number, gone=False)
        for entity in entities:
            self.entered(entity)
        self.known.set()

    def entered(self, entity: Entity) -> None:
        if entity.entity not in self.inside:
            self._changes.put(Entered(entity))
        self.inside[entity.entity] = entity

    def left(self, number: int, gone: bool) -> None:
        known = self.inside.pop(number, None)
        if known is not None:
            self._changes.put(Left(known, gone))
