"""Areas that follow an entity: against a naive model, and case by case."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.client_protocol.geometry_json import EARTH, Area
from nearcast.client_protocol.limits import Limits
from nearcast.client_protocol.messages import (
    JSON,
    LeaveRequest,
    MoveRequest,
    PublishRequest,
    SubscribeRequest,
    WithdrawRequest,
)
from nearcast.errors import Refused
from nearcast.matching import MATCHERS
from nearcast.model.subscription import Formula
from nearcast.service import following
from nearcast.service.realm import Realm
from nearcast.space.earth import ecef
from nearcast.space.motion import SECOND
from support.examples import examples
from support.realm_histories import RealmHarness

FOLLOWER, TRUCK, OTHER = 0, 1, 2
ROUND = Area(r=1.0)


class FollowWorld(RealmHarness):
    """A realm in which one client has an area that follows another client."""

    def follow(self, area: Area = ROUND, **options: Any) -> Any:
        request = SubscribeRequest(1, area, **({"follow": "client 1"} | options))
        return self.ask(FOLLOWER, request)

    def drive(self, x: float, y: float = 0.0, client: int = TRUCK, **fields: Any) -> None:
        self.ask(client, PublishRequest(float(x), float(y), **({"retain": True} | fields)))
        self.flush()

    def flush(self) -> list[int]:
        """Who receives what waits."""
        self.now += SECOND
        flushed = self.realm.flush(self.now)
        return [self.realm.entities[client] for client in flushed.client.tolist()]

    def hears(self, x: float, y: float = 0.0, **fields: Any) -> bool:
        """Does the area of the follower have this place?"""
        self.ask(OTHER, PublishRequest(float(x), float(y), **fields))
        return self.states[FOLLOWER].entity in self.flush()


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["drive", "drive", "namesake", "withdraw", "leave", "ask", "tick"]),
            st.integers(-3, 3),
        ),
        max_size=30,
    ),
    st.integers(-1, 1),
)
@examples(60)
def test_an_area_is_where_its_entity_is(steps: list[tuple[str, int]], offset: int) -> None:
    world = FollowWorld()
    world.follow(Area(x=float(offset), y=0.0, r=1.0))
    states: dict[int, float] = {}  # by client, the newest last
    for what, x in steps:
        if what in ("drive", "namesake"):
            client = TRUCK if what == "drive" else 5
            if client not in world.states:
                world.states[client] = world.realm.join(world.now, "client 1")
            world.drive(x, client=client)
            states.pop(client, None)
            states[client] = x
        elif what == "withdraw" and TRUCK in world.states:
            world.ask(TRUCK, WithdrawRequest(""))
            states.pop(TRUCK, None)
        elif what == "leave" and TRUCK in world.states:
            world.ask(TRUCK, LeaveRequest())
            states.pop(TRUCK, None)
        elif what == "tick":
            world.now += SECOND
            world.realm.tick(world.now)
        newest = list(states.values())[-1:]
        assert world.hears(x) == any(abs(x - at - offset) <= 1 for at in newest)


def test_it_is_nowhere_until_the_entity_comes_and_when_it_is_gone() -> None:
    world = FollowWorld()
    world.follow()
    region = world.states[FOLLOWER].subscriptions[1]
    assert isinstance(region.subscription.region, Formula)
    assert not world.hears(0)
    assert not world.hears(0, rx=float("inf"), ry=float("inf"))
    world.drive(7)
    assert world.hears(7) and world.hears(8) and not world.hears(8.1)
    world.ask(TRUCK, LeaveRequest())
    assert not world.hears(7)
    world.drive(3)  # it is another client of the same name
    assert world.hears(3)


def test_a_state_on_another_channel_may_count() -> None:
    world = FollowWorld()
    world.follow(follow_channel="trucks")
    world.drive(7)
    assert not world.hears(7)
    world.drive(7, channel="trucks")
    assert world.hears(7)


def test_an_entity_is_followed_by_its_number() -> None:
    world = FollowWorld()
    world.drive(7)
    world.follow(follow=world.states[TRUCK].entity)
    assert world.hears(7)
    world.states[5] = world.realm.join(world.now, "client 1")
    world.drive(3, client=5)
    assert world.hears(7)


def test_the_trace_has_the_moves() -> None:
    world = FollowWorld()
    world.follow()
    world.drive(7)
    world.drive(7)  # at the same place
    world.drive(9)
    world.ask(TRUCK, WithdrawRequest(""))
    rows = world.table("interests").to_pylist()
    assert [row["x"] if row["formula"] is None else None for row in rows] == [None, 7, 9, None]
    assert [row["rx"] for row in rows[1:3]] == [1.0, 1.0]
    made = world.table("publications").to_pylist()
    assert [row["t"] for row in rows[1:3]] == [made[0]["t"] + 1, made[2]["t"] + 1]


def test_a_new_area_follows_as_well() -> None:
    world = FollowWorld()
    world.follow()
    world.drive(7)
    world.ask(FOLLOWER, MoveRequest(1, Area(x=2.0, y=0.0, rx=1.0, ry=1.0)))
    assert world.hears(10) and not world.hears(7)
    world.drive(17)
    assert world.hears(20) and not world.hears(10)
    with pytest.raises(Refused, match="without a motion"):
        world.ask(FOLLOWER, MoveRequest(1, Area(x=0.0, y=0.0, r=1.0, vx=1.0)))


def test_it_is_a_fence_that_does_not_report_whom_it_follows() -> None:
    world = FollowWorld(recorded=False)
    world.drive(7)
    world.drive(7.5, client=OTHER)
    (inside,) = world.follow(events=["enter", "leave"])
    assert [one.name for one in inside.entities] == ["client 2"]
    world.drive(20)
    world.drive(7)
    told = [notice for _, notice in world.realm.fence_notices()]
    assert [(one.event, one.name, one.reason) for one in told] == [
        ("leave", "client 2", "left"), ("enter", "client 2", ""),
    ]  # fmt: skip
    world.ask(TRUCK, LeaveRequest())
    (left,) = [notice for _, notice in world.realm.fence_notices()]
    assert (left.event, left.name) == ("leave", "client 2")
    world.drive(7)
    (back,) = [notice for _, notice in world.realm.fence_notices()]
    assert (back.event, back.name) == ("enter", "client 2")


def test_many_followers_move_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "AT_ONCE", 2)
    world = FollowWorld()
    for number in range(1, 6):
        world.ask(FOLLOWER, SubscribeRequest(number, ROUND, follow="client 1"))
    moved = []
    world.drive(7)
    for _ in range(3):
        regions = [s.subscription.region for s in world.states[FOLLOWER].subscriptions.values()]
        moved.append(sum(not isinstance(region, Formula) for region in regions))
        world.now += SECOND
        world.realm.tick(world.now)
    assert moved == [2, 4, 5]


def test_on_earth_a_disc_a_ball_and_a_sector_follow() -> None:
    realm = Realm(MATCHERS["keyed"](), Limits(), None, geometry=EARTH)
    me, drone = realm.join(0, "me"), realm.join(0, "drone")
    areas = [Area(r=1000.0), Area(r=100.0, alt=-50.0), Area(r=1000.0, sector=(0.0, 90.0))]
    for number, area in enumerate(areas):
        realm.subscribe(1, me, SubscribeRequest(number, area, follow="drone"))
    ahead = SubscribeRequest(3, Area(r=1.0), follow="drone", offset=[3000.0, 4000.0])
    realm.subscribe(1, me, ahead)
    state = PublishRequest(lon=8.5, lat=47.4, alt=120.0, retain=True)
    realm.publish(drone, state, JSON)
    realm.flush(2)

    def heard(lon: float, lat: float, alt: float | None = None) -> list[int]:
        realm.publish(drone, PublishRequest(lon=lon, lat=lat, alt=alt), JSON)
        flushed = realm.flush(realm.now + 1)
        return [int(realm.numbers[slot]) for slot in flushed.subscription.tolist()]

    assert heard(8.5, 47.4085) == [0, 2]
    assert heard(8.5, 47.3915) == [0]
    assert heard(8.5, 47.40005, 70.0) == [0, 1, 2]
    assert heard(8.5, 47.40005, 171.0) == [0, 2]
    centre = realm.clients[me.slot].subscriptions[3].subscription.region.centre(0)
    gone = [a - b for a, b in zip(centre, ecef(8.5, 47.4), strict=True)]
    assert sum(one * one for one in gone) ** 0.5 == pytest.approx(5000.0, abs=1.0)
    # A drone without an altitude has no ball.
    realm.publish(drone, PublishRequest(lon=8.5, lat=47.4, retain=True), JSON)
    realm.flush(realm.now + 1)
    assert heard(8.5, 47.40005, 70.0) == [0, 2]


@pytest.mark.parametrize(
    ("geometry", "options", "why"),
    [
        ("plane", {"area": Area()}, "everywhere"),
        ("plane", {"area": Area(formula="x > 0")}, "without a motion"),
        ("plane", {"area": Area(r=1.0, vx=1.0)}, "without a motion"),
        ("plane", {"area": Area(x=0.0, y=0.0, r=1.0, to=[[1.0, 1.0]], speed=1.0)}, "without a mot"),
        ("plane", {"offset": [1.0, 2.0]}, "written relative"),
        ("plane", {"follow": "x" * 100}, "at most 64 characters"),
        ("plane", {"follow": "", "offset": [1.0, 2.0]}, "with follow"),
        ("plane", {"follow": "", "follow_channel": "x", "area": Area()}, "with follow"),
        ("plane", {"fences": "depots", "events": ["enter"]}, "no area"),
        ("earth", {"area": Area(lon=1.0, lat=2.0, r=1.0)}, "leave out lon and lat"),
        ("earth", {"area": Area(bounds=(0.0, 0.0, 1.0, 1.0))}, "stay where they are"),
        ("earth", {"offset": [1.0]}, "east and north"),
        ("earth", {"offset": [1e6, 0.0]}, "east and north"),
    ],
)
def test_what_cannot_follow_is_refused(geometry: Any, options: dict[str, Any], why: str) -> None:
    realm = Realm(MATCHERS["keyed"](), Limits(), None, geometry=geometry)
    me = realm.join(0, "me")
    request = SubscribeRequest(1, **({"area": ROUND, "follow": "truck"} | options))
    with pytest.raises(Refused, match=why):
        realm.subscribe(1, me, request)
    assert not me.subscriptions
