"""A subscription as a client core knows it: how to continue it, and the entities inside."""

from msgspec.structs import replace

from nearcast.client.received import Change, Entered, Entity, FenceEvent, Left, Message
from nearcast.client_protocol.geometry_json import EARTH, PLANE, Area, area_from_region, shift_time
from nearcast.client_protocol.messages import FeatureId, FencePlace, SubscribeRequest
from nearcast.model.commands import continue_region
from nearcast.model.subscription import Region
from nearcast.space.motion import SECOND, Moving, Path, Time
from nearcast.space.shapes import Shape


class SubscriptionState:
    """What a node has accepted of a subscription, and whom it has said to be inside."""

    __slots__ = (
        "_visited", "area_since", "filter_since", "follows_client", "inside", "inside_known",
        "pairs", "region", "request",
    )  # fmt: skip

    def __init__(self, request: SubscribeRequest, region: Region | str) -> None:
        self.request = request
        self.region = region
        self.follows_client = False  # does `ClientCore.walks` move it?
        self.area_since: Time = 0  # when the clock `t` of its area began
        self.filter_since: Time = 0  # and that of its filter
        self.inside: dict[int, Entity] = {}  # by entity, kept up to date
        self.pairs: set[tuple[int, int]] = set()  # with `near`: which are, the lower number first
        self.inside_known = False  # has the first `inside` arrived?
        # By entity: the fences of a set that it is in; None is the fence of this subscription.
        self._visited: dict[int, set[FeatureId | None]] = {}

    @property
    def number(self) -> int:
        return self.request.subscription

    def area_accepted(self, region: Region | str, follows_client: bool, t: Time) -> None:
        """The node has accepted this region at `t`."""
        self.region = region if isinstance(region, str) else region.stamped(t)
        self.follows_client = follows_client
        self.area_since = t
        # A filter's clock goes on, unless a formula begins: they share one.
        if self.request.area.formula is not None or not self.filter_since:
            self.filter_since = t

    def moved(self, area: Area, region: Region | str, follows_client: bool, t: Time) -> None:
        """The node has given it this area at `t`."""
        self.request = replace(self.request, area=area)
        self.area_accepted(region, follows_client, t)

    def tuned(self, variables: dict[str, float]) -> None:
        """The node has accepted these values of variables."""
        self.request = replace(self.request, variables=self.request.variables | variables)

    def where(self, t: Time) -> Shape | None:
        """The area as it is at `t`; None for a formula, and for one that follows an entity."""
        if self.request.follow != "":
            return None
        return self.region.at(t) if isinstance(self.region, Moving | Path) else None

    def request_at(self, t: Time) -> tuple[SubscribeRequest, Region | str]:
        """The request that continues it at `t` on a node that does not know it."""
        request, names = self.request, frozenset(self.request.variables)
        if request.filter is not None:
            seconds = max(0, t - self.filter_since) / SECOND
            request = replace(request, filter=shift_time(request.filter, seconds, names))
        if request.area.formula is not None:
            seconds = max(0, t - self.area_since) / SECOND
            formula = shift_time(request.area.formula, seconds, names)
            return replace(request, area=Area(formula=formula)), self.region
        assert isinstance(self.region, Moving | Path)
        region = continue_region(self.region, t).stamped(0)
        legs = self.region.legs if isinstance(self.region, Path) else (self.region,)
        if not any(leg.moves for leg in legs):  # as it was asked for, to the last digit
            return request, region
        geometry = PLANE if request.area.lon is None else EARTH  # what moves there has a centre
        return replace(request, area=area_from_region(region, geometry)), region

    # Who is inside.

    def update_entity(self, message: Message) -> None:
        """A retained message is the new state of an entity inside."""
        known = self.inside.get(message.source)
        if known is not None:
            self.inside[message.source] = Entity(
                known.entity, message.t, message.x, message.y, message.z,
                known.name, message.attributes, message.payload,
                message.lon, message.lat, message.alt,
            )  # fmt: skip

    def set_inside(self, entities: list[Entity]) -> list[Change]:
        """All entities inside, as the node lists them."""
        self.inside_known = True
        present = {entity.entity for entity in entities}
        absent = [number for number in self.inside if number not in present]
        changes = [change for number in absent for change in self.entity_left(number, gone=False)]
        return changes + [change for one in entities for change in self.entity_entered(one)]

    def set_inside_fence(
        self, entities: list[Entity], fences: list[FeatureId], now: Time
    ) -> list[FenceEvent]:
        """All entities inside of a fence, as the node lists them when it begins or begins anew; of
        a set with the fence in which each is.

        What happened at the fence meanwhile is not known: who is missing has left by `now`.
        """
        self.inside_known = True
        self.pairs.clear()  # those that are near follow
        before, self._visited = self._visited, {}
        known, self.inside = self.inside, {one.entity: one for one in entities}
        for place, one in enumerate(entities):
            fence = fences[place] if fences else None
            self._visited.setdefault(one.entity, set()).add(fence)
        return [
            FenceEvent("leave", now, one.entity, one.name, place_of(one), None, "left", fence=fence)
            for number, one in known.items()
            for fence in before.get(number, set()) - self._visited.get(number, set())
        ] + [
            FenceEvent("inside", one.t, one.entity, one.name, place_of(one), state=one, fence=fence)
            for number, one in self.inside.items()
            for fence in self._visited[number] - before.get(number, set())
        ]

    def fence_event(self, event: FenceEvent) -> None:
        """Who is inside follows from what happens at the fence, or at all fences of a set; which
        pairs are near, from what happens to them."""
        if event.other is not None:
            pair = min(event.entity, event.other), max(event.entity, event.other)
            if event.event == "leave":
                self.pairs.discard(pair)
            elif event.event in ("enter", "inside"):
                self.pairs.add(pair)
            return
        fences = self._visited.get(event.entity, set())
        if event.event == "leave":
            fences.discard(event.fence)
            if not fences:
                self._visited.pop(event.entity, None)
                self.inside.pop(event.entity, None)
        elif event.event in ("enter", "inside") and event.state is not None:
            self._visited.setdefault(event.entity, set()).add(event.fence)
            self.inside[event.entity] = event.state

    def entity_entered(self, entity: Entity) -> list[Change]:
        new = entity.entity not in self.inside
        self.inside[entity.entity] = entity
        return [Entered(entity)] if new else []

    def entity_left(self, number: int, gone: bool) -> list[Change]:
        known = self.inside.pop(number, None)
        return [] if known is None else [Left(known, gone)]


def place_of(entity: Entity) -> FencePlace:
    """Where its state is."""
    if entity.lon is not None:
        return FencePlace(lon=entity.lon, lat=entity.lat)
    return FencePlace(entity.x, entity.y, entity.z)
