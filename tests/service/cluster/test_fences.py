"""Fences of a node in a cluster: entities of other nodes count by their own times."""

from typing import Any

import pytest

from nearcast.client_protocol import messages
from nearcast.client_protocol.geometry_json import Area
from nearcast.client_protocol.limits import Limits
from nearcast.client_protocol.messages import NearbyRequest, PublishRequest, SubscribeRequest
from nearcast.matching import MATCHERS
from nearcast.service.cluster.realm import ClusterRealm
from nearcast.service.cluster.remote_subscriptions import COUNT_BITS
from nearcast.service.cluster.routing import publish_request, remote_publication
from nearcast.space.motion import SECOND

HERE = Area(x=0.0, y=0.0, r=1.0)
TRUCK = 5 << COUNT_BITS


@pytest.fixture
def realm() -> ClusterRealm:
    realm = ClusterRealm(MATCHERS["swept"](), Limits(), None, 1)
    watcher = realm.join(0, "watcher")
    request = SubscribeRequest(1, HERE, events=["enter", "leave", "cross"])
    assert realm.subscribe(0, watcher, request) == [messages.InsideNotice(1, [])]
    return realm


def arrive(realm: ClusterRealm, number: int, t: int, x: float, **fields: Any) -> None:
    request = PublishRequest(x, 0.0, retain=True, **fields)
    assert realm.receive_remote(TRUCK, "truck", TRUCK + number, request, messages.JSON, t)


def notices(realm: ClusterRealm, now: int) -> list[Any]:
    return [notice for _, notice in realm.tick(now)]


def test_fixes_of_other_nodes_count_at_the_times_at_which_they_were_made(
    realm: ClusterRealm,
) -> None:
    arrive(realm, 2, 2 * SECOND, 3.0)
    arrive(realm, 1, 1 * SECOND, -3.0)
    realm.flush(2 * SECOND + 50)
    ((_, crossed),) = realm.fence_notices()
    assert isinstance(crossed, messages.FenceNotice)
    assert (crossed.event, crossed.name, crossed.entity) == ("cross", "truck", TRUCK)
    assert (crossed.t, crossed.t_out) == (1_333_333, 1_666_667)
    realm.on_entity_left(3 * SECOND, TRUCK, 5)
    assert notices(realm, 3 * SECOND) == []


def test_states_of_other_nodes_expire_by_their_own_times(realm: ClusterRealm) -> None:
    arrive(realm, 1, 2 * SECOND, 0.0, ttl=1.5)
    realm.flush(2 * SECOND + 50)
    assert [one.event for _, one in realm.fence_notices()] == ["enter"]
    assert len(realm.nearby(3 * SECOND, NearbyRequest(HERE))) == 1
    (leave,) = notices(realm, 4 * SECOND)
    assert (leave.event, leave.reason, leave.t) == ("leave", "expired", 3_500_000)
    assert realm.nearby(4 * SECOND, NearbyRequest(HERE)) == []


def test_a_ttl_travels_and_the_state_outlives_its_client(realm: ClusterRealm) -> None:
    truck = realm.join(0, "truck")
    realm.publish(truck, PublishRequest(0.0, 0.0, retain=True, ttl=60.0), messages.JSON)
    flushed = realm.flush(SECOND)
    sent = remote_publication(flushed.publications[0], flushed.t)
    assert publish_request(sent).ttl == 60.0
    assert [one.event for _, one in realm.fence_notices()] == ["enter"]
    realm.leave(2 * SECOND, truck)
    assert notices(realm, 60 * SECOND) == []
    (leave,) = notices(realm, 62 * SECOND)
    assert (leave.event, leave.reason, leave.t) == ("leave", "expired", 61 * SECOND)


@pytest.mark.parametrize("last", [60.0, None])
def test_what_comes_after_its_publisher_has_left_counts(
    realm: ClusterRealm, last: float | None
) -> None:
    arrive(realm, 1, SECOND, 0.0, ttl=60.0)
    realm.flush(SECOND)
    assert [one.event for _, one in realm.fence_notices()] == ["enter"]
    realm.on_entity_left(2 * SECOND, TRUCK, 5)
    arrive(realm, 2, SECOND + 1, 1.0, ttl=last)
    realm.flush(2 * SECOND)
    near = realm.nearby(3 * SECOND, NearbyRequest(HERE))
    assert [(one.entity, one.x) for one in near] == ([(TRUCK, 1.0)] if last else [])
    assert [one.event for one in notices(realm, 3 * SECOND)] == ([] if last else ["leave"])
    assert notices(realm, 59 * SECOND) == []
    assert [one.event for one in notices(realm, 63 * SECOND)] == (["leave"] if last else [])
    assert realm.departed_clients() == []


def test_a_waiting_state_stays_when_its_publisher_leaves(realm: ClusterRealm) -> None:
    arrive(realm, 1, SECOND, 0.0, ttl=60.0)
    realm.on_entity_left(2 * SECOND, TRUCK, 5)
    realm.flush(2 * SECOND)
    assert [one.event for _, one in realm.fence_notices()] == ["enter"]
    realm.on_states_withdrawn([(TRUCK, "", 2 * SECOND)])
    (leave,) = notices(realm, 3 * SECOND)
    assert (leave.event, leave.reason) == ("leave", "gone")
    assert realm.departed_clients() == []
