"""What the page is told of a live node."""

from math import cos, inf, radians
from pathlib import Path

import pytest

from nearcast.client_protocol.geometry_json import Area
from nearcast.client_protocol.limits import Limits
from nearcast.client_protocol.messages import JSON, PublishRequest, SubscribeRequest
from nearcast.matching import MATCHERS
from nearcast.monitor import feed
from nearcast.service.realm import Realm
from nearcast.space.motion import SECOND
from support.snapshot_reader import read, read_all, same

NOW = 1_700_000_000 * SECOND


def realm_of(**areas: list[Area]) -> Realm:
    """One client each, with these subscriptions."""
    realm = Realm(MATCHERS["scan"](), Limits(), None)
    for name, wanted in areas.items():
        client = realm.join(NOW, name)
        for number, area in enumerate(wanted):
            realm.subscribe(NOW, client, SubscribeRequest(number, area))
    return realm


def test_a_snapshot_has_places_velocities_and_times_left() -> None:
    realm = realm_of(
        still=[Area(1.0, 2.0, r=3.0)],
        walking=[Area(0.0, 0.0, rx=6.0, ry=4.0, to=[[30.0, 40.0]], speed=5.0)],
        growing=[Area(5.0, 5.0, r=1.0, gx=2.0)],
    )
    t, entities, areas, deliveries = read(feed.world_snapshot(realm, NOW + 4 * SECOND))
    assert t == NOW + 4 * SECOND and deliveries == []
    assert same(entities, [(1, 1, 2, 0, 0, 0), (2, 12, 16, 3, 4, 6), (3, 5, 5, 0, 0, inf)])
    assert same(
        areas,
        [
            (1, 1, 1, 2, 3, 3, 0, 0, 0, 0, 0),
            (2, 2, 12, 16, 6, 4, 3, 4, 0, 0, 6),
            (3, 1, 5, 5, 9, 9, 0, 0, 2, 2, inf),
        ],
    )


def test_on_a_path_the_leg_under_way_counts() -> None:
    way = Area(0.0, 0.0, r=1.0, to=[[10.0, 0.0], [10.0, 20.0]], speed=10.0)
    _, entities, _, _ = read(feed.world_snapshot(realm_of(one=[way]), NOW + 2 * SECOND))
    assert same(entities, [(1, 10, 10, 0, 10, 1)])


def test_clients_with_unbounded_regions_or_formulas_have_no_place_in_the_snapshot() -> None:
    realm = realm_of(
        everywhere=[Area()],
        formula=[Area(formula="x >= 0, x <= t")],
        both=[Area(), Area(7.0, 8.0, r=1.0)],
    )
    _, entities, areas, _ = read(feed.world_snapshot(realm, NOW))
    assert [row[:3] for row in entities] == [(3, 7, 8)]
    assert len(areas) == 1


def test_who_has_no_area_is_where_its_state_is() -> None:
    realm = realm_of(publisher=[], both=[Area(1.0, 1.0, r=1.0)], nowhere=[])
    for client in realm.clients[:2]:
        assert client is not None
        realm.publish(client, PublishRequest(7.0, 8.0, retain=True), JSON)
    realm.flush(NOW + 1)
    _, entities, areas, _ = read(feed.world_snapshot(realm, NOW + 2))
    assert [row[:3] for row in entities] == [(1, 7, 8), (2, 1, 1)]
    assert len(areas) == 1


def test_on_earth_everything_is_in_degrees() -> None:
    """An entity is where its moving area is, else its state, else an area that stands."""
    bounds = (179.0, -18.0, -179.0, -16.0)
    to = [[-179.9, -17.0]]
    realm = Realm(MATCHERS["scan"](), Limits(), None, geometry="earth")
    areas = {
        "sails": Area(lon=179.9, lat=-17.0, r=500.0, to=to, speed=10.0),
        "fenced": Area(bounds=bounds),
        "stands": Area(lon=8.5, lat=47.4, r=200.0),
    }
    for name, area in areas.items():
        client = realm.join(NOW, name)
        realm.subscribe(NOW, client, SubscribeRequest(1, area))
        if name != "stands":
            realm.publish(client, PublishRequest(lon=-179.5, lat=-17.5, retain=True), JSON)
    realm.flush(NOW + 1)
    _, entities, drawn, _, vertices = read_all(feed.world_snapshot(realm, NOW + 10 * SECOND))
    degrees = 10.0 / (111_319.49 * cos(radians(17)))
    (sails, fenced, stands) = entities
    assert sails[:3] == pytest.approx((1, 179.9 + 10 * degrees, -17.0), abs=1e-4)
    assert sails[3:5] == pytest.approx((degrees, 0.0), rel=0.002, abs=1e-5)
    assert fenced == pytest.approx((2, -179.5, -17.5, 0, 0, 0))
    assert stands == pytest.approx((3, 8.5, 47.4, 0, 0, 0))
    assert [row[1] for row in drawn] == [1, 2, 1]
    assert drawn[0][4] == pytest.approx(500.0, rel=1e-5), "metres"
    assert drawn[1][2] % 360 == pytest.approx(180.0)
    assert drawn[1][3:6] == pytest.approx((-17.0, 1.0, 1.0))
    assert [row[0] for row in vertices] == [1] * 4
    assert feed.world_bounds(realm, NOW) is None


def test_clients_that_have_left_are_not_in_the_snapshot() -> None:
    realm = realm_of(one=[Area(1.0, 1.0, r=1.0)], other=[Area(2.0, 2.0, r=1.0)])
    client = realm.clients[0]
    assert client is not None
    realm.leave(NOW + 1, client)
    _, entities, _, _ = read(feed.world_snapshot(realm, NOW + 2))
    assert [row[0] for row in entities] == [2]


def test_results_of_spark_are_served_when_they_are_complete(tmp_path: Path) -> None:
    trace = tmp_path / "run"
    trace.mkdir()
    assert feed.latest_analysis(trace, 0) is None
    results = tmp_path / "run-analysis"
    results.mkdir()
    (results / "live.json").write_text('{"windows": [{"second"')
    assert feed.latest_analysis(trace, 0) is None
    (results / "live.json").write_text('{"windows": [{"second": 3, "missed": 0}]}')
    assert feed.latest_analysis(trace, 3_000_000) == {"windows": [{"second": 3, "missed": 0}]}
    assert feed.latest_analysis(trace, 4_000_000) == {"windows": []}, (
        "of an earlier run under this name"
    )


def test_a_node_serves_its_page_where_clients_reach_it() -> None:
    assert feed.page_address("ws://127.0.0.1:8470") == "http://127.0.0.1:8470/"
    assert feed.page_address("wss://b.example.org/ws") == "https://b.example.org/"
