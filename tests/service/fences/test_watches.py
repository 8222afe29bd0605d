"""Who is there, who comes, who goes: against a model that looks at everybody, and case by case."""

from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given

from nearcast.client_protocol import messages
from nearcast.client_protocol.geometry_json import Area
from nearcast.client_protocol.limits import Limits
from nearcast.errors import Refused
from nearcast.model.subscription import evolves
from nearcast.service import retained_state
from nearcast.service.fences import compared_watches, live_fences
from nearcast.space.motion import SECOND
from support.examples import examples
from support.realm_histories import FLUSH, TICK, RealmHarness, Step
from support.watch_model import EVERYBODY, HERE, HISTORIES, WatchModel, settled

AGAIN = 60  # ticks: more than any of these histories has steps of work
LONG = 2 * SECOND  # longer than anybody lingers


class WatchedHistory:
    """Steps of a history. Nobody enters a watch or leaves it twice."""

    def __init__(self, ticks: int = 1) -> None:
        self.harness, self.model, self.ticks = RealmHarness(recorded=False), WatchModel(), ticks
        self.known: dict[tuple[int, int], set[int]] = {}

    def take(self, later: int, client: int, step: Any) -> None:
        harness, model = self.harness, self.model
        harness.now += later
        if step == TICK:
            self.tick()
        elif step == FLUSH:
            model.flush(harness.realm.flush(harness.now).t)
        else:
            state = harness.client_state(client)
            try:
                answer = harness.ask(client, step)
            except Refused:
                return
            model.obey(harness.realm.now, client, state.entity, step)
            self.known = {key: known for key, known in self.known.items() if key in model.watches}
            if isinstance(step, messages.SubscribeRequest) and step.watch:
                (inside,) = answer
                found = [entity.entity for entity in inside.entities]
                key = client, step.subscription
                assert sorted(found) == sorted(model.seen(model.wanted[key], harness.realm.now))
                self.known[key] = set(found)

    def tick(self) -> None:
        harness = self.harness
        clients = {state.slot: client for client, state in harness.states.items()}
        for _ in range(self.ticks):
            for state, notice in harness.realm.tick(harness.now):
                assert harness.realm.clients[state.slot] is state
                known = self.known[clients[state.slot], notice.subscription]
                if isinstance(notice, messages.EnterNotice):
                    assert notice.entity.entity not in known
                    known.add(notice.entity.entity)
                else:
                    assert isinstance(notice, messages.LeaveNotice)
                    known.remove(notice.entity)
        self.compare()

    def compare(self) -> None:
        """Everybody who is inside is known, and without linger nobody else."""
        model, now = self.model, self.harness.realm.now
        assert self.known.keys() == model.watches.keys()
        for key, known in self.known.items():
            wanted = model.wanted[key]
            seen = model.seen(wanted, now)
            assert known <= model.present
            assert seen & model.seen(wanted, now - 1) <= known
            if not evolves(wanted) and model.watches[key] == 0:
                assert known == seen

    def finish(self) -> None:
        """After a while nobody lingers any more."""
        self.take(0, 0, FLUSH)
        self.tick()
        model, now = self.model, self.harness.realm.now
        before = {key: model.seen(model.wanted[key], now) for key in self.known}
        self.harness.now = now + LONG
        self.tick()
        for key, known in self.known.items():
            seen = model.seen(model.wanted[key], self.harness.realm.now)
            assert known - seen <= before[key], "who went out of sight just now may linger"


@given(HISTORIES)
@examples(100)
def test_every_watch_is_told_what_it_would_see_for_itself(history: list[Step]) -> None:
    watched = WatchedHistory()
    for step in history:
        watched.take(*step)
    watched.finish()


@given(HISTORIES)
@examples(50)
def test_under_overload_all_watchers_receive_the_same_in_the_end(history: list[Step]) -> None:
    """A comparison takes one state at a time, and no watch that moves is solved for."""
    with patch.object(compared_watches, "WORK", 1), patch.object(live_fences, "MOVING_WATCHES", 0):
        watched = WatchedHistory(ticks=AGAIN)
        for step in history:
            watched.take(*step)
        watched.finish()


def told(harness: RealmHarness) -> list[tuple[int, str, int, int, bool]]:
    """Client, enter or leave, its number of the subscription, who, and whether they are gone."""
    clients = {state.slot: client for client, state in harness.states.items()}
    notices: list[tuple[int, str, int, int, bool]] = []
    for state, notice in harness.realm.tick(harness.now):
        client = clients[state.slot]
        if isinstance(notice, messages.EnterNotice):
            notices.append((client, "enter", notice.subscription, notice.entity.entity, False))
        else:
            assert isinstance(notice, messages.LeaveNotice)
            notices.append((client, "leave", notice.subscription, notice.entity, notice.gone))
    return sorted(notices)


def kinds(notices: Sequence[tuple[Any, messages.Notice]]) -> list[type]:
    return [type(notice) for _, notice in notices]


ENTER_LEAVE = [messages.EnterNotice, messages.LeaveNotice]


# What looking now and then would miss.


def test_every_crossing_between_two_publications_is_told() -> None:
    harness = RealmHarness(recorded=False)
    harness.ask(0, messages.SubscribeRequest(0, HERE, watch=True, linger=0.0))
    notices, side = [], 10.0
    for _ in range(21):
        settled(harness, (1, messages.PublishRequest(side, 0.0, retain=True)))
        notices += harness.realm.fence_notices()
        side = -side
        harness.now += 10_000
    assert kinds(notices) == ENTER_LEAVE * 20


def test_visits_of_twenty_milliseconds_are_told() -> None:
    harness = RealmHarness(recorded=False)
    harness.ask(0, messages.SubscribeRequest(0, HERE, watch=True, linger=0.0))
    notices = []
    for _ in range(20):
        for place, later in ((0.0, 20_000), (9.0, 480_000)):
            settled(harness, (1, messages.PublishRequest(place, 0.0, retain=True)))
            notices += harness.realm.fence_notices()
            harness.now += later
    assert kinds(notices) == ENTER_LEAVE * 20


def test_a_watch_that_moves_with_its_client_meets_all_on_the_way() -> None:
    """Several watches move between two flushes, one of them twice."""
    harness = RealmHarness(recorded=False)
    settled(harness, *((k, messages.PublishRequest(10.0 * k, 0.0, retain=True)) for k in (1, 2, 3)))
    for client in (7, 8):
        harness.ask(client, messages.SubscribeRequest(0, HERE, watch=True, linger=0.0))
    entity = {k: harness.states[k].entity for k in (1, 2, 3)}
    for client, x in ((7, 10.0), (8, 20.0), (7, 30.0)):
        harness.now += 1_000
        harness.ask(client, messages.MoveRequest(0, Area(x=x, y=0.0, r=5.0)))
    assert told(harness) == [
        (7, "enter", 0, entity[1], False), (7, "enter", 0, entity[3], False),
        (7, "leave", 0, entity[1], False), (8, "enter", 0, entity[2], False),
    ]  # fmt: skip


# Case by case.


def test_who_enters_is_told_with_name_place_and_state() -> None:
    harness = RealmHarness(recorded=False)
    assert harness.ask(0, messages.SubscribeRequest(7, HERE, watch=True)) == [
        messages.InsideNotice(7, [])
    ]
    said = messages.PublishRequest(
        1.0, 2.0, messages.JSON.encode_payload({"hp": 3}), True, {"kind": "orc"}, z=0.5
    )
    settled(harness, (1, said))
    t = harness.realm.now
    ((state, enter),) = harness.realm.tick(harness.now + 5)
    assert state is harness.states[0]
    entity = messages.EntityState(
        harness.states[1].entity, t, 1.0, 2.0, 0.5, "client 1", {"kind": "orc"}, said.payload
    )
    assert enter == messages.EnterNotice(7, entity)
    assert harness.ask(2, messages.SubscribeRequest(1, HERE, watch=True)) == [
        messages.InsideNotice(1, [entity])
    ]
    assert harness.realm.tick(harness.now + 10) == []


def test_a_payload_is_told_in_the_form_of_the_one_who_watches() -> None:
    harness = RealmHarness(recorded=False)
    harness.states[0] = harness.realm.join(harness.now, "packed", messages.MSGPACK)
    settled(
        harness,
        (1, messages.PublishRequest(0.0, 0.0, messages.JSON.encode_payload([1, "a"]), True)),
    )
    ((inside,), nearby) = (
        harness.ask(0, messages.SubscribeRequest(0, HERE, watch=True)),
        harness.realm.nearby(harness.now, messages.NearbyRequest(HERE), messages.MSGPACK),
    )
    for entity in (*inside.entities, *nearby):
        assert messages.MSGPACK.decode_payload(entity.payload) == [1, "a"]


def test_nobody_flaps_at_a_border() -> None:
    harness = RealmHarness(recorded=False)
    harness.ask(0, messages.SubscribeRequest(0, HERE, watch=True, linger=0.25))
    notices = []
    for i in range(40):  # in and out every 100 ms, and then out for good
        settled(
            harness,
            (1, messages.PublishRequest(4.9 if i % 2 == 0 and i < 30 else 5.1, 0.0, retain=True)),
        )
        notices += [(i, type(word)) for _, word in harness.realm.tick(harness.now)]
        harness.now += 100_000
    # Last seen at step 28, out on the way to step 29, and told a quarter of a second later.
    assert notices == [(0, messages.EnterNotice), (32, messages.LeaveNotice)]


def test_a_watch_that_walks_meets_those_who_stand() -> None:
    harness = RealmHarness(recorded=False)
    settled(harness, (1, messages.PublishRequest(30.0, 0.0, retain=True)))
    walk = Area(x=0.0, y=0.0, r=5.0, to=[[60.0, 0.0]], speed=10.0)
    assert harness.ask(0, messages.SubscribeRequest(0, walk, watch=True, linger=0.0)) == [
        messages.InsideNotice(0, [])
    ]
    start, notices = harness.realm.now, []
    for i in range(70):
        words_told = [word for _, word in harness.realm.tick(start + i * 100_000)]
        notices += [(i, type(word)) for word in words_told]
    # At 2.5 s and after 3.5 s; what happens at the moment of a tick is told at the next.
    assert notices == [(26, messages.EnterNotice), (36, messages.LeaveNotice)]


def test_a_number_that_is_used_again_is_nobody_known() -> None:
    harness = RealmHarness(recorded=False)
    harness.ask(0, messages.SubscribeRequest(0, HERE, watch=True))
    first = harness.client_state(1).entity
    settled(harness, (1, messages.PublishRequest(0.0, 0.0, retain=True)))
    told(harness)
    harness.ask(1, messages.LeaveRequest())
    second = harness.client_state(1).entity
    settled(harness, (1, messages.PublishRequest(1.0, 0.0, retain=True)))
    assert told(harness) == [(0, "enter", 0, second, False), (0, "leave", 0, first, True)]
    harness.ask(0, messages.SubscribeRequest(0, HERE, watch=True))
    assert told(harness) == []


def test_nearby_lists_the_closest_first() -> None:
    harness = RealmHarness(recorded=False)
    places = [9.0, 1.0, -4.0, 2.0]
    settled(
        harness, *((i, messages.PublishRequest(x, 0.0, retain=True)) for i, x in enumerate(places))
    )
    settled(
        harness,
        (4, messages.PublishRequest(0.0, 0.0)),
        (5, messages.PublishRequest(0.0, 0.0, retain=True, channel="chat")),
    )
    found = harness.ask(0, messages.NearbyRequest(HERE))
    assert [entity.x for entity in found] == [1.0, 2.0, -4.0]
    assert [e.x for e in harness.ask(0, messages.NearbyRequest(EVERYBODY, limit=2))] == [9.0, 1.0]
    assert [e.x for e in harness.ask(0, messages.NearbyRequest(Area(formula="x < 0")))] == [-4.0]
    harness.ask(1, messages.LeaveRequest())
    assert [e.x for e in harness.ask(0, messages.NearbyRequest(HERE))] == [2.0, -4.0]


def test_what_a_client_leaves_waiting_is_heard_but_no_state() -> None:
    harness = RealmHarness(recorded=False)
    harness.ask(0, messages.SubscribeRequest(0, HERE, watch=True))
    harness.ask(1, messages.PublishRequest(0.0, 0.0, retain=True))
    harness.ask(1, messages.LeaveRequest())
    assert len(harness.realm.flush(harness.now)) == 1
    assert harness.ask(0, messages.NearbyRequest(EVERYBODY)) == []
    assert told(harness) == []


def test_a_watch_that_is_replaced_tells_nothing_of_before() -> None:
    harness = RealmHarness(recorded=False)
    harness.ask(0, messages.SubscribeRequest(0, HERE, watch=True))
    settled(harness, (1, messages.PublishRequest(0.0, 0.0, retain=True)))
    (inside,) = harness.ask(0, messages.SubscribeRequest(0, HERE, watch=True))
    assert [one.entity for one in inside.entities] == [harness.states[1].entity]
    assert told(harness) == []


def test_a_watch_becomes_a_formula_and_back() -> None:
    harness = RealmHarness(recorded=False)
    settled(harness, *((k, messages.PublishRequest(10.0 * k, 0.0, retain=True)) for k in (0, 1, 2)))
    harness.ask(9, messages.SubscribeRequest(0, HERE, watch=True, linger=0.0))
    entity = {k: harness.states[k].entity for k in (0, 1, 2)}
    for area, came, left in (
        (Area(formula="x >= 5"), (1, 2), (0,)), (Area(formula="x >= 15"), (), (1,)),
        (Area(x=0.0, y=0.0, r=10.0), (0, 1), (2,)),
    ):  # fmt: skip
        harness.now += 1_000
        harness.ask(9, messages.MoveRequest(0, area))
        expected = [(9, "enter", 0, entity[k], False) for k in came]
        assert told(harness) == expected + [(9, "leave", 0, entity[k], False) for k in left]


def test_a_state_with_an_extent_is_inside_if_it_touches() -> None:
    harness = RealmHarness(recorded=False)
    harness.ask(0, messages.SubscribeRequest(0, HERE, watch=True, linger=0.0))
    settled(harness, (1, messages.PublishRequest(8.0, 0.0, retain=True)))
    assert told(harness) == []
    entity = harness.states[1].entity
    settled(harness, (1, messages.PublishRequest(8.0, 0.0, r=3.0, retain=True)))
    assert told(harness) == [(0, "enter", 0, entity, False)]
    (inside,) = harness.ask(2, messages.SubscribeRequest(0, HERE, watch=True))
    assert [one.entity for one in inside.entities] == [entity]
    settled(harness, (1, messages.PublishRequest(8.0, 0.0, r=4.0, retain=True)))
    assert told(harness) == []
    harness.ask(0, messages.MoveRequest(0, Area(x=0.0, y=0.0, r=1.0)))
    assert told(harness) == [(0, "leave", 0, entity, False)]
    harness.ask(1, messages.WithdrawRequest())
    assert told(harness) == [(2, "leave", 0, entity, True)]


def test_more_filters_than_there_are_engines_for_are_compared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(live_fences, "WATCH_FILTERS", 1)
    harness = RealmHarness(recorded=False)
    for number in range(3):
        harness.ask(
            0, messages.SubscribeRequest(number, HERE, f"level > {number}", watch=True, linger=0.0)
        )
    for level in (1, 3, 0):
        said = messages.PublishRequest(0.0, 0.0, retain=True, attributes={"level": level})
        settled(harness, (1, said))
        word = "leave" if level == 0 else "enter"
        who = harness.states[1].entity
        expected = {1: [0], 3: [1, 2], 0: [0, 1, 2]}[level]
        assert told(harness) == [(0, word, number, who, False) for number in expected]


def test_what_a_filter_rejects_for_a_moment_has_not_left() -> None:
    harness = RealmHarness(recorded=False)
    harness.ask(0, messages.SubscribeRequest(0, HERE, "level > 1", watch=True))
    notices = []
    for level, later in ((2, 0), (1, 0), (2, 200_000), (1, 0)):
        harness.now += later
        said = messages.PublishRequest(0.0, 0.0, retain=True, attributes={"level": level})
        settled(harness, (1, said))
        notices += [word for _, word, *_ in told(harness)]
    assert notices == ["enter"]
    harness.now += 400_000
    assert [word for _, word, *_ in told(harness)] == ["leave"]


# Limits.


def crowd(states: int, limits: Limits) -> RealmHarness:
    """So many clients with a state, at 0, 1, 2 …"""
    harness = RealmHarness(recorded=False, limits=limits)
    places = [messages.PublishRequest(float(n), 0.0, retain=True) for n in range(states)]
    settled(harness, *((100 + n, said) for n, said in enumerate(places)))
    return harness


@pytest.mark.parametrize("area", [Area(x=50.0, y=0.0, r=1.0), Area(formula="x >= 49, x <= 51")])
def test_what_all_watches_of_a_client_know_is_bounded(area: Area) -> None:
    harness = crowd(5, Limits(watched=3))
    (inside,) = harness.ask(0, messages.SubscribeRequest(0, area, watch=True))
    assert inside.entities == []
    there = messages.PublishRequest(50.0, 0.0, retain=True)
    settled(harness, *((100 + n, there) for n in range(5)))
    known: set[int] = set()

    def tick() -> None:
        harness.now += SECOND
        for _, notice in harness.realm.tick(harness.now):
            if isinstance(notice, messages.EnterNotice):
                known.add(notice.entity.entity)
            else:
                assert isinstance(notice, messages.LeaveNotice)
                known.remove(notice.entity)

    tick()
    assert len(known) == 3
    first = set(known)
    leaver = next(c for c, state in harness.states.items() if state.entity in first)
    harness.ask(leaver, messages.LeaveRequest())
    tick()
    tick()
    assert len(known) == 3 and len(known & first) == 2, "another one enters instead"
    harness.ask(0, messages.UnsubscribeRequest(0))
    assert harness.states[0].watched == 0


def test_inside_and_nearby_list_a_bounded_answer_and_the_rest_enters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    harness = crowd(5, Limits(nearby=2))
    (inside,) = harness.ask(0, messages.SubscribeRequest(0, EVERYBODY, watch=True))
    entered = [word.entity for _, word in harness.realm.tick(harness.now)]
    assert len(inside.entities) == 2
    assert len({e.entity for e in inside.entities} | {e.entity for e in entered}) == 5
    payload = messages.JSON.encode_payload("x" * 100)
    settled(
        harness, *((100 + n, messages.PublishRequest(0.0, 0.0, payload, True)) for n in range(5))
    )
    monkeypatch.setattr(retained_state, "ANSWER_BYTES", 150)
    assert len(harness.realm.nearby(harness.now, messages.NearbyRequest(EVERYBODY, limit=2))) == 1


def test_who_is_told_the_same_shares_the_notice() -> None:
    harness = crowd(1, Limits())
    for client in range(3):
        harness.ask(client, messages.SubscribeRequest(7, Area(x=30.0, y=0.0, r=1.0), watch=True))
    settled(harness, (100, messages.PublishRequest(30.0, 0.0, retain=True)))
    notices = [word for _, word in harness.realm.tick(harness.now)]
    assert len(notices) == 3 and len({id(word) for word in notices}) == 1
