"""Fence events of a realm whose clock the test owns: against the definition, and case by case."""

from math import inf
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw
from msgspec.structs import replace

from nearcast.client_protocol import messages
from nearcast.client_protocol.geometry_json import EARTH, Area
from nearcast.client_protocol.limits import Limits
from nearcast.client_protocol.messages import (
    EntityState,
    FenceNotice,
    FencePlace,
    InsideNotice,
    LeaveRequest,
    MoveRequest,
    PublishRequest,
    SubscribeRequest,
    UnsubscribeRequest,
    WithdrawRequest,
)
from nearcast.errors import Refused
from nearcast.fences.events import FenceKind, LeaveReason
from nearcast.matching import MATCHERS
from nearcast.service.fences import live_fences
from nearcast.service.fences.groups import KIND_NAMES
from nearcast.service.realm import Realm
from nearcast.space.motion import SECOND
from support.examples import examples
from support.fence_oracle import Disc, Fix, Polygon, fix_events, pair_events, transitions
from support.fence_worlds import STEP, areas, durations, histories
from support.realm_histories import RealmHarness

EVENTS: list[messages.FenceEventName] = ["enter", "leave", "cross"]
ALL_EVENTS: list[messages.FenceEventName] = ["enter", "leave", "cross", "inside", "outside"]
HERE = Area(x=0.0, y=0.0, r=1.0)
WATCHER, TRUCK, OTHER = 0, 1, 2


class FenceWorld(RealmHarness):
    """A realm in which one client has fences and others drive."""

    def fence(self, area: Area = HERE, number: int = 1, **options: Any) -> Any:
        (inside,) = self.ask(
            WATCHER, SubscribeRequest(number, area, **({"events": EVENTS} | options))
        )
        return inside

    def drive(self, *places: tuple[float, float], client: int = TRUCK, **fields: Any) -> None:
        """Publications that wait for the next flush."""
        for x, y in places:
            self.ask(client, PublishRequest(float(x), float(y), **({"retain": True} | fields)))

    def flush(self, later: float = 1.0) -> list[FenceNotice]:
        self.now += round(later * SECOND)
        self.realm.flush(self.now)
        return self.told(self.realm.fence_notices())

    def tick(self, later: float = 1.0) -> list[FenceNotice]:
        self.now += round(later * SECOND)
        return self.told(self.realm.tick(self.now))

    def told(self, notices: Any) -> list[FenceNotice]:
        assert all(state is self.states[WATCHER] for state, _ in notices)
        return [notice for _, notice in notices]

    def entity(self, client: int = TRUCK) -> int:
        return self.states[client].entity


def world(**options: Any) -> FenceWorld:
    return FenceWorld(recorded=False, **options)


def kinds(notices: list[FenceNotice]) -> list[str]:
    return [notice.event for notice in notices]


# The definition.


def area_of(area: Disc | Polygon) -> Area:
    if isinstance(area, Disc):
        return Area(x=float(area.x), y=float(area.y), r=float(area.r))
    rings = [[*ring, ring[0]] for ring in area.rings]
    return Area(geometry={"type": "Polygon", "coordinates": rings})


rectangles = st.tuples(*[st.integers(-4, 4)] * 2, *[st.integers(1, 3)] * 2).map(
    lambda box: Polygon([[(box[0], box[1]), (box[0] + box[2], box[1]),
                          (box[0] + box[2], box[1] + box[3]), (box[0], box[1] + box[3])]])
)  # fmt: skip
discs = areas.filter(lambda area: isinstance(area, Disc))
fences_with_rules = st.tuples(
    st.one_of(rectangles, discs), st.one_of(st.none(), durations), durations
)
LATE = 2**40


@given(
    st.lists(fences_with_rules, min_size=1, max_size=3),
    st.lists(histories(), min_size=1, max_size=3),
    st.lists(st.integers(1, 12), max_size=4),
)
@examples(100)
def test_events_are_those_of_the_definition(
    fences: list[Any], entities: list[list[Fix]], ticks: list[int]
) -> None:
    """However many publications a flush has, and whenever somebody looks."""
    here = world(now=0)
    for number, (area, dwell, linger) in enumerate(fences):
        seconds = None if dwell is None else dwell / SECOND
        here.fence(area_of(area), number, events=ALL_EVENTS, dwell=seconds, linger=linger / SECOND)
    histories = [[fix._replace(t=fix.t + STEP, ttl=2**62) for fix in one] for one in entities]
    rows = [(fix.t, client, fix) for client, fixes in enumerate(histories, 1) for fix in fixes]
    told: list[FenceNotice] = []
    moments = {t for t, _, _ in rows} | {tick * STEP // 2 for tick in ticks} | {LATE + 1}
    for here.now in sorted(moments):
        for t, client, fix in rows:
            if t == here.now:
                here.drive(fix.place, client=client)
        told += here.flush(0) if here.realm.waiting else here.tick(0)
    for client, fixes in enumerate(histories, 1):
        for number, (area, dwell, linger) in enumerate(fences):
            moves = transitions(area, fixes, LATE)
            expected = pair_events(moves, dwell, linger, LATE) + fix_events(area, fixes)
            found = [
                (one.t, one.event, one.reason, one.t_out)
                for one in told
                if (one.entity, one.subscription) == (here.entity(client), number)
            ]
            assert sorted(found, key=repr) == sorted(
                (
                    (
                        one.t,
                        KIND_NAMES[one.kind],
                        "left" if one.reason == LeaveReason.LEFT else "",
                        one.t_out if one.kind == FenceKind.CROSS else None,
                    )
                    for one in expected
                ),
                key=repr,
            )


# What looking now and then would miss.


@pytest.mark.parametrize("together", [1, 20])
def test_every_crossing_between_two_publications_is_told(together: int) -> None:
    here = world()
    here.fence()
    told, side = [], 10.0
    for crossing in range(21):
        here.drive((side, 0.0))
        side = -side
        if (crossing + 1) % together == 0 or crossing == 20:
            told += here.flush(0.01)
    assert kinds(told) == ["cross"] * 20
    assert [one.place.x for one in told] == [1.0, -1.0] * 10
    assert [one.place_out and one.place_out.x for one in told] == [-1.0, 1.0] * 10
    assert [one.direction for one in told] == [180.0, 0.0] * 10


def test_visits_of_twenty_milliseconds_are_told_with_their_times() -> None:
    here = world()
    here.fence()
    here.drive((2.0, 0.0))
    told = here.flush()
    began = here.realm.now
    for _ in range(20):
        here.drive((0.0, 0.0))
        told += here.flush(0.5)
        here.drive((2.0, 0.0))
        told += here.flush(0.02)
    assert kinds(told) == ["enter", "leave"] * 20
    # Half of a way lies outside.
    enters = [began + 250_000 + k * 520_000 for k in range(20)]
    assert [one.t for one in told[::2]] == enters
    assert [one.t for one in told[1::2]] == [t + 260_000 for t in enters]
    assert {one.reason for one in told[1::2]} == {"left"}


def test_a_notice_says_who_where_and_with_what() -> None:
    here = world()
    assert here.fence(number=7) == InsideNotice(7, [])
    payload = Raw(b"1")  # a number in both encodings
    here.drive((3.0, 0.0))
    assert here.flush() == []
    began = here.realm.now
    here.drive((-0.5, 0.0), payload=payload, attributes={"kind": "truck"})
    (enter,) = here.flush()
    state = EntityState(
        here.entity(), here.realm.now, -0.5, 0.0, 0.0, "client 1", {"kind": "truck"}, payload
    )
    assert enter == FenceNotice(
        7, "enter", began + round(2 / 3.5 * SECOND), here.entity(), FencePlace(1.0, 0.0),
        "client 1", 180.0, state=state,
    )  # fmt: skip
    for encoding in (messages.JSON, messages.MSGPACK):
        read = encoding.read_notice(encoding.encode(enter))
        assert encoding.message_class(read) is FenceNotice
        assert [getattr(read, name) for name in FenceNotice.__struct_fields__] == [
            getattr(enter, name) for name in FenceNotice.__struct_fields__
        ]


# Dwell, linger, areas that move.


def test_dwell_and_linger() -> None:
    here = world()
    here.fence(dwell=1.5, linger=2.0)
    here.drive((0.0, 0.0))
    (enter,) = here.flush()
    assert here.tick(1.4) == []
    (dwelt,) = here.tick(1.0)
    assert (dwelt.event, dwelt.t - enter.t) == ("dwell", 1_500_000)
    for _ in range(3):  # at the border for a while
        here.drive((9.0, 0.0), (0.0, 0.0))
        assert here.flush(0.5) == []
    here.drive((9.0, 0.0))
    assert here.flush() == []
    (leave,) = here.tick(2.5)
    assert (leave.event, leave.reason) == ("leave", "left")
    assert leave.t < here.realm.now - 2 * SECOND


def test_an_area_that_moves_finds_who_stands_at_the_moment_itself() -> None:
    here = world()
    here.drive((10.0, 0.0))
    here.flush()
    began = here.now = here.now + SECOND
    here.fence(Area(x=0.0, y=0.0, r=1.0, vx=2.0, lasts=20.0))
    assert here.tick(4.4) == []
    (enter,) = here.tick(1.0)
    assert (enter.event, enter.t - began, enter.place.x) == ("enter", 4_500_000, 10.0)
    assert enter.state is not None and enter.state.x == 10.0
    (leave,) = here.tick(5.0)
    assert (leave.event, leave.t - began) == ("leave", 5_500_001)


def test_who_is_moved_over_enters_and_leaves() -> None:
    here = world()
    here.fence()
    here.drive((0.0, 0.0))
    here.drive((20.0, 0.0), client=OTHER)
    here.flush()
    for area in (replace(HERE, x=20.0), replace(HERE, vx=1.0), replace(HERE, x=20.0)):
        here.now += SECOND
        here.ask(WATCHER, MoveRequest(1, area))
        told = here.tick(0)
        there = area.x == 20.0
        assert {(one.event, one.reason, one.entity) for one in told} == {
            ("enter", "", here.entity(OTHER if there else TRUCK)),
            ("leave", "left", here.entity(TRUCK if there else OTHER)),
        }
        assert {one.t for one in told} == {here.realm.now}
    here.ask(WATCHER, MoveRequest(1, replace(HERE, x=20.5, vx=0.0, vy=0.1, lasts=1.0)))
    assert here.tick(0) == []


# Whom it concerns.


def test_channels_and_the_own_entity_are_told_apart() -> None:
    here = world()
    here.fence(number=1)
    here.fence(number=2, channel="air")
    here.fence(number=3, echo=True)
    here.drive((0.0, 0.0), channel="air")
    assert [one.subscription for one in here.flush()] == [2]
    here.drive((0.0, 0.0), client=WATCHER)
    assert [one.subscription for one in here.flush()] == [3]
    here.drive((0.0, 0.0), retain=False)
    assert here.flush() == []


def test_what_a_filter_accepts_comes_and_what_it_rejects_leaves() -> None:
    here = world()
    here.fence(filter="load > 1")
    here.drive((0.0, 0.0), attributes={"load": 1})
    assert here.flush() == []
    here.drive((0.1, 0.0), attributes={"load": 2})
    (enter,) = here.flush()
    assert (enter.event, enter.t) == ("enter", here.realm.now)
    here.drive((0.2, 0.0), attributes={"load": 0})
    (leave,) = here.flush()
    assert (leave.event, leave.reason) == ("leave", "left")
    here.drive((0.0, 0.0), attributes={"load": 2})
    here.drive((0.0, 0.0))
    here.drive((0.0, 0.0), attributes={"load": 2})
    assert kinds(here.flush()) == ["enter", "leave", "enter"]
    assert here.fence(number=2, filter="load > 1").entities[0].attributes == {"load": 2}
    assert here.fence(number=3, filter="load > 2").entities == []


def test_who_goes_leaves_and_why() -> None:
    here = world()
    here.drive((0.0, 0.0))
    here.drive((0.0, 0.5), client=OTHER)
    here.flush()
    inside = here.fence()
    assert {one.entity for one in inside.entities} == {here.entity(), here.entity(OTHER)}
    gone = here.entity(OTHER)
    here.now += SECOND
    here.ask(TRUCK, WithdrawRequest())
    (first,) = here.tick(0.05)
    assert (first.event, first.reason, first.t) == ("leave", "gone", here.now - 50_000)
    here.ask(OTHER, LeaveRequest())
    (second,) = here.flush(0.05)
    assert (second.entity, second.reason, second.name) == (gone, "gone", "client 2")
    here.drive((0.0, 0.0))
    assert kinds(here.flush()) == ["enter"]


def test_a_fence_that_is_replaced_or_ends_tells_nothing_of_before() -> None:
    here = world()
    here.fence()
    here.drive((0.0, 0.0))
    assert kinds(here.flush()) == ["enter"]
    here.ask(TRUCK, WithdrawRequest())
    assert here.fence() == InsideNotice(1, [])
    assert here.tick() == []
    here.drive((0.0, 0.0))
    assert kinds(here.flush()) == ["enter"]
    here.ask(WATCHER, UnsubscribeRequest(1))
    here.drive((5.0, 0.0))
    assert here.flush() == [] and not len(here.realm._fences)
    assert here.fence(Area()).entities[0].x == 5.0


def test_who_does_not_fit_into_the_list_of_those_inside_is_told_one_by_one() -> None:
    here = world(limits=Limits(nearby=2))
    for client in range(1, 6):
        here.drive((0.0, 0.0), client=client)
    here.flush()
    inside = here.fence()
    told = here.tick()
    assert kinds(told) == ["inside"] * 3
    listed = {one.entity for one in inside.entities}
    assert listed | {one.entity for one in told} == {here.entity(k) for k in range(1, 6)}


def test_a_feed_that_ends_is_not_mistaken_for_the_next_in_its_slot() -> None:
    here = world()
    here.fence(linger=5.0)
    here.drive((0.0, 0.0))
    here.flush()
    first = here.entity()
    here.drive((9.0, 0.0))
    here.flush()
    here.ask(TRUCK, LeaveRequest())
    here.tick(0.1)
    here.drive((0.0, 0.0))  # another client, with the slots of the one before
    (enter,) = here.flush(0.1)
    assert enter.entity == here.entity() != first
    (leave,) = here.tick(6.0)
    assert (leave.entity, leave.reason) == (first, "left")


def test_on_earth_places_have_longitude_and_latitude() -> None:
    realm = Realm(MATCHERS["keyed"](), Limits(), None, geometry=EARTH)
    watcher, truck = realm.join(0, "watcher"), realm.join(0, "truck")
    area = Area(lon=179.99, lat=0.0, r=1000.0)
    realm.subscribe(0, watcher, SubscribeRequest(1, area, events=EVENTS))
    for t, lon in ((SECOND, 179.9), (2 * SECOND, -179.9)):
        place = PublishRequest(lon=lon, lat=0.0, alt=50.0, retain=True)
        realm.publish(truck, place, messages.JSON)
        realm.flush(t)
    ((_, crossed),) = realm.fence_notices()
    assert isinstance(crossed, FenceNotice) and crossed.place_out is not None
    assert (crossed.event, crossed.place.x) == ("cross", None)
    assert crossed.place.lon == pytest.approx(179.981, abs=1e-4)
    assert crossed.place_out.lon == pytest.approx(179.999, abs=1e-4)
    assert crossed.direction == pytest.approx(90.0, abs=0.01)


# Refusals.


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"area": Area(formula="x > 1")}, "neither a formula nor variables"),
        ({"variables": {"far": 1.0}}, "neither a formula nor variables"),
        ({"filter": "load > t"}, "does not change with t"),
        ({"watch": True}, "watch or events, not both"),
        ({"events": ["dwell"]}, "needs dwell"),
        ({"dwell": -1.0}, "dwell is from 0"),
        ({"dwell": inf}, "dwell is from 0"),
        ({"events": [], "dwell": 1.0}, "are of a subscription with events"),
    ],
)
def test_what_no_fence_can_be_is_refused(options: dict[str, Any], why: str) -> None:
    here = world()
    area = options.pop("area", HERE)
    with pytest.raises(Refused, match=why):
        here.fence(area, **options)
    assert here.states[WATCHER].subscriptions == {}
    here.fence()
    with pytest.raises(Refused, match="neither a formula"):
        here.ask(WATCHER, MoveRequest(1, Area(formula="x > 1")))


def test_there_are_only_so_many_filters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_fences, "FILTERS", 2)
    here = world()
    for number in range(3):
        here.fence(number=number, filter=f"load > {number % 2}")
    with pytest.raises(Refused, match="2 different filters"):
        here.fence(number=9, filter="load > 5")
    here.fence(number=9)


def test_without_fences_nothing_is_kept() -> None:
    here = world()
    here.drive((0.0, 0.0))
    here.flush()
    here.ask(TRUCK, WithdrawRequest())
    assert here.realm._states.changes is None
    here.fence()
    here.drive((0.0, 0.0))
    here.flush()
    assert here.realm._states.changes == []
    here.ask(WATCHER, LeaveRequest())
    here.drive((0.0, 0.0))
    here.realm.flush(here.now)
    assert here.realm._states.changes is None


def test_who_is_withdrawn_while_lingering_and_comes_back_has_not_left() -> None:
    """Whoever is back is the same entity, with another state."""
    here = world()
    here.fence(linger=5.0)
    here.drive((0.0, 0.0))
    assert kinds(here.flush()) == ["enter"]
    here.drive((9.0, 0.0))
    assert here.flush() == []
    here.ask(TRUCK, WithdrawRequest())
    here.drive((0.5, 0.0))
    assert here.flush() == []
    assert here.tick(10.0) == []
    here.drive((0.5, 0.0))
    assert here.flush() == []
    here.drive((9.0, 0.0))
    assert here.flush() == []
    here.ask(TRUCK, WithdrawRequest())
    assert kinds(here.tick(10.0)) == ["leave"]
