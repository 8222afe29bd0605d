"""Sets of fences: read from GeoJSON, changed as a whole or by feature, heard as one."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.client_protocol.geometry_json import EARTH, PLANE, Area
from nearcast.client_protocol.limits import Limits
from nearcast.client_protocol.messages import (
    FenceNotice,
    InsideNotice,
    LeaveRequest,
    MoveRequest,
    PublishRequest,
    SubscribeRequest,
    UnsubscribeRequest,
)
from nearcast.errors import Refused
from nearcast.service.fences import live_fences
from nearcast.service.fences.sets import (
    FenceSet,
    PreparedFences,
    prepare_fences,
    read_collection,
)
from nearcast.space.motion import SECOND
from support.examples import examples
from support.realm_histories import RealmHarness

WATCHER, TRUCK = 0, 1
EVENTS: Any = ["enter", "leave", "cross"]


def square(x: float, y: float = 0.0, half: float = 1.0) -> dict[str, Any]:
    """A ring around a place."""
    corners = [(-1, -1), (1, -1), (1, 1), (-1, 1), (-1, -1)]
    ring = [[x + half * dx, y + half * dy] for dx, dy in corners]
    return {"type": "Polygon", "coordinates": [ring]}


def feature(which: Any, geometry: dict[str, Any], **properties: Any) -> dict[str, Any]:
    return {"type": "Feature", "id": which, "geometry": geometry, "properties": properties}


def collection(*features: dict[str, Any], **more: Any) -> bytes:
    return json.dumps({"type": "FeatureCollection", "features": features, **more}).encode()


def read(*features: dict[str, Any], geometry: Any = PLANE, **more: Any) -> PreparedFences:
    return read_collection(collection(*features, **more), Limits(), geometry, True)[0]


class SetWorld(RealmHarness):
    """A realm with sets of fences, one client that hears of them, and one that drives."""

    def put(self, *features: dict[str, Any], name: str = "depots", **options: Any) -> int:
        return self.realm.change_fences(
            self.now, name, read(*features), **({"replace_all": True} | options)
        )

    def hear(self, number: int = 1, **options: Any) -> InsideNotice:
        request = SubscribeRequest(number, **({"events": EVENTS, "fences": "depots"} | options))
        (inside,) = self.ask(WATCHER, request)
        assert isinstance(inside, InsideNotice)
        return inside

    def drive(self, *places: float) -> list[tuple[str, Any]]:
        for x in places:
            self.ask(TRUCK, PublishRequest(float(x), 0.0, retain=True))
        self.now += SECOND
        self.realm.flush(self.now)
        return self.told()

    def told(self) -> list[tuple[str, Any]]:
        notices: list[Any] = [notice for _, notice in self.realm.fence_notices()]
        assert all(isinstance(notice, FenceNotice) for notice in notices)
        return [(notice.event, notice.fence) for notice in notices]


def test_events_say_which_fence_of_the_set() -> None:
    here = SetWorld(recorded=False)
    assert here.put(feature("a", square(0)), feature(7, square(10)), feature("c", square(20))) == 3
    assert here.hear() == InsideNotice(1, [])
    assert here.drive(-5, 0) == [("enter", "a")]
    assert here.drive(30) == [("leave", "a"), ("cross", 7), ("cross", "c")]
    assert here.drive(10) == [("cross", "c"), ("enter", 7)]
    inside = here.hear(2, events=["leave"])
    assert [one.name for one in inside.entities] == ["client 1"] and inside.fences == [7]
    again = here.hear(3)  # the same engine as the first
    assert again.fences == [7] and len(here.realm._fences._groups) == 2
    assert here.drive(15) == [("leave", 7)] * 3


def test_fences_are_replaced_added_and_removed_by_their_ids() -> None:
    here = SetWorld(recorded=False)
    here.put(feature("a", square(0)), feature("b", square(10)))
    here.hear()
    assert here.drive(0) == [("enter", "a")]
    here.put(feature("a", square(0.5)), feature("c", square(0)))
    assert here.told() == [("enter", "c")]
    here.put(feature("a", square(50)), replace_all=False)
    assert here.told() == [("leave", "a")]
    assert here.put(replace_all=False, remove=["c", "unknown"]) == 1
    assert here.told() == [("leave", "c")]
    here.put(feature("d", square(0)), replace_all=False)
    assert here.told() == [("enter", "d")]
    assert here.put() == 0
    assert here.told() == [("leave", "d")] and here.realm.fence_set("depots") is None
    here.put(feature("e", square(0)))
    assert here.told() == [("enter", "e")]
    found = here.realm.fence_set("depots")
    assert found is not None
    assert json.loads(found.geojson())["features"] == [feature("e", square(0))]


def test_who_follows_a_set_receives_no_messages_and_can_end() -> None:
    here = SetWorld()
    here.put(feature("a", square(0)))
    here.hear()
    here.ask(TRUCK, PublishRequest(0.0, 0.0, retain=True))
    assert len(here.realm.flush(here.now + SECOND)) == 0
    assert here.told() == [("enter", "a")]
    with pytest.raises(Refused, match="has no area"):
        here.ask(WATCHER, MoveRequest(1, Area(x=0.0, y=0.0, r=1.0)))
    here.ask(WATCHER, UnsubscribeRequest(1))
    assert not here.realm._fences._groups
    here.hear()
    here.ask(WATCHER, LeaveRequest())
    assert not here.realm._fences._groups
    assert len(here.table("interests")) == 0


def test_what_cannot_be_followed_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    here = SetWorld(recorded=False)
    with pytest.raises(Refused, match="no set of fences 'depots'"):
        here.hear()
    here.put(feature("a", square(0)))
    for options in ({"area": Area(x=0.0, y=0.0, r=1.0)}, {"events": ["outside"]}):
        with pytest.raises(Refused, match="no area, and no event outside"):
            here.hear(**options)
    with pytest.raises(Refused, match="of a subscription with events"):
        here.hear(events=[])
    monkeypatch.setattr(live_fences, "SET_GROUPS", 1)
    here.hear()
    here.hear(2)
    with pytest.raises(Refused, match="in 1 ways already"):
        here.hear(3, dwell=4.0)
    with pytest.raises(Refused, match="has a name"):
        here.put(feature("a", square(0)), name="")
    small = SetWorld(recorded=False, limits=Limits(fences=2))
    small.put(feature("a", square(0)), feature("b", square(0)))
    small.put(feature("c", square(0)), feature("b", square(0)))
    with pytest.raises(Refused, match="at most 2 fences"):
        small.put(feature("d", square(0)), replace_all=False)
    found = small.realm.fence_set("depots")
    assert found is not None and set(found.numbers) == {"b", "c"}


def test_a_dwell_in_a_set_is_told() -> None:
    here = SetWorld(recorded=False)
    here.put(feature("a", square(0)))
    here.hear(dwell=1.5)
    assert here.drive(0) == [("enter", "a")]
    here.now += 2 * SECOND
    told: list[Any] = [one for _, one in here.realm.tick(here.now)]
    assert [one.event for one in told] == ["dwell"]


# Reading.


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"{", "no GeoJSON FeatureCollection"),
        (b'{"type": "Feature"}', "no GeoJSON FeatureCollection"),
        (collection({"type": "Feature"}), "feature '0': GeoJSON is an object"),
        (collection(square(0)), "feature '0': the type of a fence is Feature"),
        (collection(feature("a", square(0)), feature("a", square(1))), "id 'a' occurs twice"),
        (collection(feature(1.5, square(0))), "feature 0: an id is a text or an integer"),
        (collection(feature(2**60, square(0))), "below 2"),
        (collection(feature("x", {"type": "Point", "coordinates": ["a"]})), "feature 'x'"),
        (collection(feature("x", {"type": "Point", "coordinates": [1, 2]})), "'x': .* radius"),
        (
            collection(feature("open", {"type": "Polygon", "coordinates": [
                *square(0)["coordinates"], [[0, 0], [1, 0], [0, 1]]]})),
            "feature 'open': ring 1: a ring in GeoJSON has 4",
        ),
        (
            collection(feature("bow", {"type": "Polygon", "coordinates": [
                [[0, 0], [2, 2], [2, 0], [0, 2], [0, 0]]]})),
            "feature 'bow': .*ring",
        ),
        (
            collection(feature("many", {"type": "LineString", "coordinates": [[0, 0]] * 1001})),
            "feature 'many': an area has at most 1000 vertices",
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_its_feature(body: bytes, why: str) -> None:
    with pytest.raises(Refused, match=why):
        read_collection(body, Limits(), PLANE, True)


def test_features_without_ids_are_called_by_their_places_if_the_set_is_new() -> None:
    plain = {"type": "Feature", "geometry": square(0), "properties": None}
    assert read(plain, plain).ids == [0, 1]
    with pytest.raises(Refused, match="an id is a text"):
        prepare_fences([json.dumps(plain).encode()], Limits(), PLANE, numbered=False)
    assert read_collection(collection(remove=[1, "b"]), Limits(), PLANE, False)[1] == [1, "b"]


def test_all_forms_of_areas_are_read_in_both_geometries() -> None:
    forms = [
        feature(0, square(0)),
        feature(1, {"type": "Point", "coordinates": [1, 2]}, radius=5.0),
        feature(2, {"type": "LineString", "coordinates": [[0, 0], [1, 1]]}, width=5.0),
        feature(3, {"type": "Point", "coordinates": [1, 2]}, radius=5.0, direction=0, angle=90),
        feature(4, {"type": "MultiPolygon", "coordinates": [square(0)["coordinates"]]}),
    ]
    for geometry in (PLANE, EARTH):
        assert len(read(*forms, geometry=geometry).columns.areas) == 5


@examples(60)
@given(st.lists(st.tuples(st.booleans(), st.sets(st.integers(0, 5))), max_size=8))
def test_the_columns_of_a_set_are_those_of_its_fences_as_they_are_now(
    changes: list[tuple[bool, set[int]]],
) -> None:
    """Fences are put and removed in any order; columns are asked for now and then."""
    here, places = FenceSet(), dict[int, float]()
    for step, (removes, which) in enumerate(changes):
        if removes:
            here.remove(here.numbers[n] for n in which if n in places)
            places = {n: x for n, x in places.items() if n not in which}
        else:
            places |= {n: 10.0 * step + n for n in which}
            prepared = read(*(feature(n, square(places[n])) for n in sorted(which)))
            here.put(prepared, [n + 1 for n in sorted(which)])
        if step % 2:
            continue
        areas = here.columns().areas
        assert dict(zip(areas["number"] - 1, areas["x"], strict=True)) == places
        first, length = areas["first"], areas["length"]
        assert (here.columns().coordinates[first] == -1.0).all() and (length == 8).all()
