"""Areas that follow an entity: where its retained state is, there is the area.

The node moves such an area when it learns of another state, right after the publications that came
with it, as if the client had asked for that. While the entity has no state, the area is nowhere and
matches nothing. If several entities have the same name, the newest of their states counts.

What many areas follow may change often. So a flush moves at most `AT_ONCE` areas, and the others
follow with the next ones or with a tick, in their order, to where the entity is by then.
"""

from collections.abc import Iterator
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from nearcast.client_protocol.geometry_json import EARTH, Geometry, region_from_area
from nearcast.client_protocol.messages import EntityKey, SubscribeRequest
from nearcast.model.subscription import Formula, Region
from nearcast.service.client_state import AcceptedPublication, ActiveSubscription, FollowOptions
from nearcast.service.retained_state import RetainedStates
from nearcast.space.earth import ecef, lon_lat, tangent_plane
from nearcast.space.motion import Moving

NOWHERE = Formula("x < 0, x > 0")  # no place is in it
AT_ONCE = 256  # areas that move after one flush or tick
FollowKey: TypeAlias = tuple[str, EntityKey]  # channel, and a name or number


class FollowedEntity(Struct):
    """An entity that areas follow: its feeds that have a state, and the areas by slot."""

    feeds: set[int]
    followers: dict[int, ActiveSubscription] = {}


class Following:
    """The areas of a node's subscriptions that follow an entity."""

    def __init__(self, states: RetainedStates, geometry: Geometry) -> None:
        self._states, self._geometry = states, geometry
        self._entities: dict[FollowKey, FollowedEntity] = {}
        self._keys: dict[int, list[FollowKey]] = {}  # by feed that is followed
        self._due: dict[int, ActiveSubscription] = {}  # by slot: whose entity has changed
        self._seen = 0  # changes of states

    def __len__(self) -> int:
        return len(self._entities)

    def begin(self, active: ActiveSubscription) -> None:
        """This subscription follows an entity from now on."""
        if not self._entities:
            self._seen = self._states.seq
        key = active.follow.channel, active.follow.entity
        if key not in self._entities:
            feeds = set(self._states.feeds_of(*key))
            self._entities[key] = FollowedEntity(feeds)
            for feed in feeds:
                self._keys.setdefault(feed, []).append(key)
        self._entities[key].followers[active.slot] = self._due[active.slot] = active

    def end(self, active: ActiveSubscription) -> None:
        """It follows nobody any more."""
        key = active.follow.channel, active.follow.entity
        followed = self._entities.get(key)
        if followed is not None and followed.followers.pop(active.slot, None) is not None:
            self._due.pop(active.slot, None)
            if not followed.followers:
                del self._entities[key]
                for feed in followed.feeds:
                    self._forget(feed, key)

    def _forget(self, feed: int, key: FollowKey) -> None:
        keys = self._keys.pop(feed)
        keys.remove(key)
        if keys:
            self._keys[feed] = keys

    def region(self, active: ActiveSubscription) -> Region:
        """Where the area of a subscription is that has begun to follow, not stamped."""
        followed = self._entities[active.follow.channel, active.follow.entity]
        if not followed.feeds:
            return NOWHERE
        newest = max(followed.feeds, key=self._states.age)
        try:
            return self._beside(active, self._states.state(newest).accepted)
        except ValueError:  # beyond all places
            return NOWHERE

    def _beside(self, active: ActiveSubscription, state: AcceptedPublication) -> Region:
        follow, place = active.follow, state.request
        if self._geometry != EARTH:
            region = active.asked.region
            assert isinstance(region, Moving)
            assert place.x is not None and place.y is not None
            shape = region.shape
            x, y, z = shape.x + place.x, shape.y + place.y, shape.z + place.z
            return Moving(replace(shape, x=x, y=y, z=z))
        assert place.lon is not None and place.lat is not None
        area, alt = follow.area, follow.area.alt
        if alt is not None:
            if place.alt is None:
                return NOWHERE
            alt += place.alt
        lon, lat = beside(place.lon, place.lat, *follow.offset)
        return region_from_area(replace(area, lon=lon, lat=lat, alt=alt), EARTH)

    def moves(self) -> Iterator[tuple[ActiveSubscription, Region]]:
        """Areas whose entity is elsewhere by now, and where they are. The caller moves each."""
        self._look()
        for slot in list(self._due)[:AT_ONCE]:
            active = self._due.pop(slot)
            region = self.region(active)
            if not is_same(region, active.subscription.region):
                yield active, region

    def _look(self) -> None:
        """Take note of changed states."""
        states = self._states
        if not self._entities or self._seen == states.seq:
            return
        for feed in states.changed_since(self._seen).tolist():
            keys = self._keys.pop(feed, [])
            for key in keys:
                self._entities[key].feeds.discard(feed)
            now: list[FollowKey] = []
            if states.retains(feed):
                one = states.state(feed).accepted
                channel = one.request.channel
                both: list[FollowKey] = [(channel, one.client.name), (channel, one.client.entity)]
                now = [key for key in both if key in self._entities]
            for key in now:
                self._entities[key].feeds.add(feed)
            if now:
                self._keys[feed] = now
            for key in dict.fromkeys([*keys, *now]):
                self._due |= self._entities[key].followers
        self._seen = states.seq


def follow_options(request: SubscribeRequest) -> FollowOptions:
    """What a subscription asks for."""
    if request.follow == "":
        return FollowOptions()
    channel = request.channel if request.follow_channel is None else request.follow_channel
    area = replace(request.area, geometry=None)  # only in a plane, where the region has it
    return FollowOptions(request.follow, channel, area, tuple(request.offset))


def beside(lon: float, lat: float, east: float = 0.0, north: float = 0.0) -> tuple[float, float]:
    """So many metres from a place, on the plane that touches the Earth there."""
    if not (east or north):
        return lon, lat
    easting, northing = tangent_plane(lon, lat)
    place = [
        p + east * e + north * n for p, e, n in zip(ecef(lon, lat), easting, northing, strict=True)
    ]
    return lon_lat(*place)


def is_same(region: Region, current: Region) -> bool:
    """Is the current region, which is stamped, this one?"""
    if isinstance(region, Formula) or isinstance(current, Formula):
        return isinstance(region, Formula) and isinstance(current, Formula)
    return region == current.stamped(0)
