"""States with a ttl: they expire, and until then outlive whoever made them."""

from typing import Any

import pytest

from nearcast.client_protocol import messages
from nearcast.client_protocol.geometry_json import Area
from nearcast.client_protocol.messages import (
    LeaveRequest,
    NearbyRequest,
    PublishRequest,
    SubscribeRequest,
    WithdrawRequest,
)
from nearcast.errors import Refused
from nearcast.space.motion import SECOND
from support.realm_histories import RealmHarness

WATCHER, TRUCK = 0, 1
HERE = Area(x=0.0, y=0.0, r=1.0)


class ExpiryWorld(RealmHarness):
    """A realm in which one client looks and another has states that expire."""

    def publish(self, x: float = 0.0, client: int = TRUCK, **fields: Any) -> None:
        self.ask(client, PublishRequest(x, 0.0, **({"retain": True} | fields)))

    def pass_time(self, seconds: float) -> None:
        self.now += round(seconds * SECOND)

    def flush(self) -> list[Any]:
        self.realm.flush(self.now)
        return [notice for _, notice in self.realm.fence_notices()]

    def tick(self) -> list[Any]:
        return [notice for _, notice in self.realm.tick(self.now)]

    def near(self) -> list[str]:
        return [one.name for one in self.ask(WATCHER, NearbyRequest(HERE))]


@pytest.fixture
def here() -> ExpiryWorld:
    return ExpiryWorld(recorded=False)


def test_a_state_expires(here: ExpiryWorld) -> None:
    here.ask(WATCHER, SubscribeRequest(1, HERE, events=["enter", "leave"]))
    here.ask(WATCHER, SubscribeRequest(2, HERE, watch=True))
    here.publish(ttl=2.5)
    enter, came = here.flush()
    assert isinstance(came, messages.EnterNotice)
    here.pass_time(2.0)
    assert here.tick() == [] and here.near() == ["client 1"]
    here.pass_time(1.0)
    assert here.near() == []
    leave, left = here.tick()
    assert (leave.event, leave.reason, leave.t - enter.t) == ("leave", "expired", 2_500_000)
    assert left == messages.LeaveNotice(2, enter.entity, True)
    here.publish()
    enter, came = here.flush()
    assert enter.event == "enter" and isinstance(came, messages.EnterNotice)
    here.pass_time(100.0)
    assert here.tick() == [] and here.near() == ["client 1"]


def test_a_newer_state_has_its_own_ttl(here: ExpiryWorld) -> None:
    here.publish(ttl=2.0)
    here.flush()
    here.pass_time(1.0)
    here.publish(ttl=2.0)
    here.flush()
    here.pass_time(1.5)
    here.tick()
    assert here.near() == ["client 1"]
    here.publish()
    here.pass_time(1.0)  # the old one has expired before the new one is made
    here.tick()
    here.flush()
    here.pass_time(9.0)
    here.tick()
    assert here.near() == ["client 1"]


def test_it_outlives_its_client_until_then(here: ExpiryWorld) -> None:
    here.ask(WATCHER, SubscribeRequest(1, HERE, events=["enter", "leave"]))
    here.publish(ttl=5.0)
    here.publish(channel="chat")
    (enter,) = here.flush()
    here.ask(TRUCK, LeaveRequest())
    here.pass_time(1.0)
    assert here.tick() == [] and here.near() == ["client 1"]
    (state,) = here.realm.states_named("client 1")
    assert state.accepted.request.channel == ""
    here.pass_time(4.5)
    (leave,) = here.tick()
    assert (leave.reason, leave.entity) == ("expired", enter.entity)
    assert here.near() == [] and here.realm.states_named("client 1") == []


def test_what_waits_when_its_client_leaves_becomes_a_state_if_it_has_a_ttl(
    here: ExpiryWorld,
) -> None:
    here.publish(ttl=5.0)
    here.publish(channel="chat")
    here.ask(TRUCK, LeaveRequest())
    here.flush()
    assert here.near() == ["client 1"]
    assert here.ask(WATCHER, NearbyRequest(HERE, "chat")) == []
    here.publish(ttl=5.0)  # another client of the same name
    here.publish()  # which makes a state without one afterwards
    here.ask(TRUCK, LeaveRequest())
    here.flush()
    assert here.near() == []


def test_the_same_name_again_replaces_what_was_left_behind(here: ExpiryWorld) -> None:
    here.publish(0.5, ttl=5.0)
    here.flush()
    here.ask(TRUCK, LeaveRequest())
    here.publish(0.0)
    here.flush()
    (found,) = here.ask(WATCHER, NearbyRequest(HERE))
    assert found.x == 0.0
    (state,) = here.realm.states_named("client 1")
    assert state.accepted.client.entity == found.entity


def test_withdrawing_ends_it_at_once(here: ExpiryWorld) -> None:
    here.publish(ttl=5.0)
    here.publish(ttl=5.0, name="trailer")
    here.flush()
    here.ask(TRUCK, WithdrawRequest(name="trailer"))
    assert here.near() == ["client 1"]
    here.ask(TRUCK, WithdrawRequest())
    assert here.near() == []
    here.publish(ttl=5.0, name="trailer")
    here.flush()
    here.ask(TRUCK, LeaveRequest())
    assert here.near() == ["trailer"]


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"retain": False, "ttl": 1.0}, "ttl is of a publication with retain"),
        ({"ttl": 0.0}, "more than 0"),
        ({"ttl": 1e9}, "at most"),
        ({"ttl": float("nan")}, "more than 0"),
    ],
)
def test_what_cannot_expire_is_refused(here: ExpiryWorld, fields: dict[str, Any], why: str) -> None:
    with pytest.raises(Refused, match=why):
        here.publish(**fields)


def test_a_state_that_the_flush_replaces_does_not_end_in_between(here: ExpiryWorld) -> None:
    """Its time is over after the last look, while the next state waits already."""
    here.ask(WATCHER, SubscribeRequest(1, HERE, events=["enter", "leave"]))
    here.publish(ttl=1.0)
    here.flush()
    here.pass_time(0.9)
    here.tick()
    here.publish(ttl=1.0)
    here.pass_time(0.2)
    assert [notice.event for notice in here.flush()] == ["leave", "enter"]
    assert here.near() == ["client 1"]
    here.pass_time(2.0)
    assert [notice.event for notice in here.tick()] == ["leave"]
    assert here.near() == []
