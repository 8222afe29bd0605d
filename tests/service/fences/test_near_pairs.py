"""Subscriptions to pairs: who is told what, and what is refused."""

from typing import Any

import pytest

from nearcast.client_protocol.geometry_json import Area
from nearcast.client_protocol.limits import Limits
from nearcast.client_protocol.messages import (
    ErrorNotice,
    InsideNotice,
    LeaveRequest,
    MoveRequest,
    PublishRequest,
    SubscribeRequest,
    UnsubscribeRequest,
)
from nearcast.errors import Refused
from nearcast.space.motion import SECOND
from support.realm_histories import RealmHarness

WATCHER = 0


class PairWorld(RealmHarness):
    """One client is told about pairs of others."""

    def near(self, number: int = 1, client: int = WATCHER, **options: Any) -> None:
        options = {"events": ["enter", "leave", "cross"], "near": 2.0} | options
        inside = self.ask(client, SubscribeRequest(number, **options))
        assert inside == [InsideNotice(number, [])]

    def drive(self, x: float, client: int, **fields: Any) -> list[Any]:
        self.ask(client, PublishRequest(float(x), 0.0, retain=True, **fields))
        self.now += SECOND
        self.realm.flush(self.now)
        return self.told()

    def told(self) -> list[Any]:
        return [
            one if isinstance(one, ErrorNotice) else (one.event, one.name[-1], one.other_name[-1])
            for _, one in self.realm.fence_notices()
        ]


def test_pairs_are_told_once_with_a_filter_and_on_a_channel() -> None:
    world = PairWorld()
    world.near(filter="level > 1")
    high = {"attributes": {"level": 2}}
    assert world.drive(0, 1, **high) == world.drive(1, 2) == world.drive(1, 3, channel="x") == []
    assert world.drive(1, 2, **high) == [("enter", "2", "1")]
    assert world.drive(1, 2) == [("leave", "2", "1")]  # the filter accepts it no more
    world.near()  # it is replaced
    assert world.told() == [("inside", "1", "2")]
    assert world.drive(9, 1) == [("leave", "1", "2")]
    assert world.drive(-9, 1) == [("cross", "1", "2")]
    assert not len(world.table("interests"))


def test_own_entities_count_with_echo() -> None:
    world = PairWorld()
    world.near(1)
    world.near(2, echo=True)
    world.drive(0, WATCHER)
    world.ask(1, PublishRequest(1.0, 0.0, retain=True))
    world.realm.flush(world.now + SECOND)
    assert [one.subscription for _, one in world.realm.fence_notices()] == [2]


def test_subscriptions_share_their_work_and_end() -> None:
    world = PairWorld()
    world.drive(0, 1)
    world.near(1)
    world.near(1, client=5)
    assert world.drive(1, 2) == [("enter", "2", "1")] * 2
    world.ask(WATCHER, UnsubscribeRequest(1))
    world.ask(5, LeaveRequest())
    assert world.drive(9, 2) == []
    assert len(world.realm._fences) == 0


def test_an_area_that_becomes_a_subscription_to_pairs_receives_no_messages() -> None:
    world = PairWorld()
    world.ask(WATCHER, SubscribeRequest(1, Area(x=0.0, y=0.0, r=9.0)))
    world.near(1)
    world.ask(1, PublishRequest(0.0, 0.0))
    world.now += SECOND
    assert len(world.realm.flush(world.now)) == 0
    assert world.table("interests").column("ended").to_pylist() == [False, True]


def test_too_many_pairs_are_refused_and_told() -> None:
    world = PairWorld(limits=Limits(pairs=2))
    world.near()
    for client in (1, 2):
        world.drive(0, client)
    (error,) = world.drive(0, 3)
    assert "subscription 1 tells no pairs any more: more than 2 were within 2" in error.reason
    assert world.drive(9, 1) == []
    world.drive(0, 1)
    for distance in (2.0, 3.0):
        with pytest.raises(Refused, match=f"more than 2 pairs are within {distance:g}"):
            world.near(2, near=distance)
    assert list(world.states[WATCHER].subscriptions) == [1]
    world.near(2, near=3.0, channel="else")
    world.drive(9, 1)
    world.near(3, near=3.0)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"near": 0.0}, "above 0"),
        ({"near": 1e9}, "at most"),
        ({"events": []}, "with events"),
        ({"events": ["inside"]}, "enter, leave and cross"),
        ({"area": Area(x=0.0, y=0.0)}, "no area"),
        ({"follow": "a"}, "no area"),
        ({"fences": "depots"}, "no area"),
        ({"dwell": 1.0}, "neither dwell"),
        ({"linger": 1.0}, "neither dwell"),
        ({"watch": True}, "not both"),
    ],
)
def test_what_does_not_fit_is_refused(options: dict[str, Any], why: str) -> None:
    with pytest.raises(Refused, match=why):
        PairWorld().near(**options)


def test_it_does_not_move() -> None:
    world = PairWorld()
    world.near()
    with pytest.raises(Refused, match="has no area"):
        world.ask(WATCHER, MoveRequest(1, Area(x=0.0, y=0.0, r=1.0)))
