"""Presence under overload: looked at less often, told exactly once, the same in the end."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given

from nearcast.client_protocol import messages
from nearcast.client_protocol.geometry_json import Area
from nearcast.client_protocol.limits import Limits
from nearcast.errors import Refused
from nearcast.service import presence, realm, state_listing
from nearcast.space.motion import SECOND
from support.examples import examples
from support.presence_model import EVERYBODY, HERE, HISTORIES, WatchModel, settled
from support.realm_histories import FLUSH, TICK, RealmHarness, Step

MANY = 60  # ticks: more than any of these histories has steps of work


@contextmanager
def overloaded() -> Iterator[None]:
    """A tick does one step of one group; a step matches one state; a client that knows two is heavy
    and has a group of its own; one watch settles in a round."""
    small = {"WORK": 1, "CHUNK": 1, "LOAD": 1, "HEAVY": 1, "SETTLING": 1}
    with patch.multiple(presence, **small):
        yield


class KnownEntities:
    """What clients know from what they were told. Nobody enters or leaves twice."""

    def __init__(self, harness: RealmHarness) -> None:
        self.harness = harness
        self.known: dict[tuple[int, int], set[int]] = {}

    def tick(self) -> None:
        clients = {state.slot: client for client, state in self.harness.states.items()}
        for state, word in self.harness.realm.tick(self.harness.now):
            known = self.known[clients[state.slot], word.subscription]
            if isinstance(word, messages.EnterNotice):
                assert word.entity.entity not in known
                known.add(word.entity.entity)
            else:
                assert isinstance(word, messages.LeaveNotice)
                known.remove(word.entity)


@given(HISTORIES)
@examples(100)
def test_under_overload_all_watchers_receive_the_same_in_the_end(history: list[Step]) -> None:
    harness, model = RealmHarness(recorded=False), WatchModel()
    known_entities = KnownEntities(harness)

    def obey(client: int, step: Any) -> None:
        state = harness.client_state(client)
        try:
            answer = harness.ask(client, step)
        except Refused:
            return
        model.obey(harness.realm.now, client, state.entity, step)
        known_entities.known = {
            key: known for key, known in known_entities.known.items() if key in model.watches
        }
        if isinstance(step, messages.SubscribeRequest) and step.watch:
            (inside,) = answer
            known_entities.known[client, step.subscription] = {e.entity for e in inside.entities}

    with overloaded():
        for later, client, step in [*history, (0, 0, FLUSH)]:
            harness.now += later
            if step == TICK:
                known_entities.tick()
            elif step == FLUSH:
                model.flush(harness.realm.flush(harness.now).t)
            else:
                obey(client, step)
        for _ in range(MANY):
            known_entities.tick()
        before = {
            key: set(model.seen(model.wanted[key], harness.realm.now))
            for key in known_entities.known
        }
        harness.now = harness.realm.now + 2 * SECOND  # longer than anybody lingers
        for _ in range(MANY):
            known_entities.tick()
    assert known_entities.known.keys() == model.watches.keys()
    for key, known in known_entities.known.items():
        now = set(model.seen(model.wanted[key], harness.realm.now))
        assert now <= known
        assert known - now <= before[key], "who went out of sight just now may linger"
        assert known <= model.present


def world(states: int, limits: Limits | None = None) -> RealmHarness:
    """So many clients with a state, at 0, 1, 2 …"""
    harness = RealmHarness(recorded=False)
    if limits is not None:
        harness.realm = realm.Realm(presence.MATCHERS["swept"](), limits, None)
    settled(
        harness,
        *((100 + n, messages.PublishRequest(float(n), 0.0, retain=True)) for n in range(states)),
    )
    return harness


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many states each call of an engine was for."""
    counts: list[int] = []
    match = presence._Group._match

    def counted(self: Any, engine: Any, which: Any, states: Any) -> Any:
        counts.append(len(which))
        return match(self, engine, which, states)

    monkeypatch.setattr(presence._Group, "_match", counted)
    return counts


def test_only_what_can_have_changed_is_looked_at(looked_at: list[int]) -> None:
    harness = world(50)
    harness.ask(0, messages.SubscribeRequest(0, HERE, watch=True))
    harness.realm.tick(harness.now)
    assert looked_at == [50], "a new watch looks at all states"
    looked_at.clear()
    harness.realm.tick(harness.now + SECOND)
    assert looked_at == [], "nothing has changed"
    settled(harness, (100, messages.PublishRequest(77.0, 0.0, retain=True)))
    harness.realm.tick(harness.now + 2 * SECOND)
    assert looked_at == [1], "one state has changed"
    looked_at.clear()
    harness.ask(0, messages.MoveRequest(0, Area(x=5.0, y=0.0, r=5.0, vx=1.0)))
    for n in range(3, 6):
        harness.realm.tick(harness.now + n * SECOND)
    assert looked_at == [50, 50, 50], "what moves by itself looks at all states every time"


def test_the_work_of_a_look_is_bounded(
    looked_at: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(presence, "WORK", 2_000)
    monkeypatch.setattr(presence, "CHUNK", 2_000)
    harness = world(100)
    for client in range(8):
        for number in range(8):
            harness.ask(client, messages.SubscribeRequest(number, EVERYBODY, watch=True))
    ticks = 0
    while any(
        not group.idle(harness.realm._states.seq) for group in harness.realm._presence._groups
    ):
        looked_at.clear()
        assert harness.realm.tick(harness.now) == [], "they know everybody from the beginning"
        assert sum(looked_at) <= 40, "of 100 states"
        ticks += 1
        assert ticks < 100
    assert ticks > 2


def test_who_sees_little_does_not_wait_for_those_who_see_much(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(presence, "WORK", 30_000)
    harness = world(60)
    for client in range(10):
        for number in range(64):
            harness.ask(client, messages.SubscribeRequest(number, EVERYBODY, watch=True))
    harness.ask(
        50, messages.SubscribeRequest(0, Area(x=-9.0, y=0.0, r=1.0), watch=True, linger=0.0)
    )
    for _ in range(60):  # everybody has been looked at
        harness.realm.tick(harness.now)
    known_entities = []
    for turn in range(30):
        moved = [(100, messages.PublishRequest(5.0 if turn % 2 else -9.0, 0.0, retain=True))]
        moved += [
            (101 + n, messages.PublishRequest(float(turn), 0.0, retain=True)) for n in range(59)
        ]
        settled(harness, *moved)
        harness.now += SECOND // 10
        known_entities += [
            type(word)
            for state, word in harness.realm.tick(harness.now)
            if state is harness.states[50]
        ]
    assert known_entities == [messages.EnterNotice, messages.LeaveNotice] * 15
    seq = harness.realm._states.seq
    behind = [group for group in harness.realm._presence._groups if group._round_seq < seq]
    assert len(behind) >= 5, "the others are looked at less often"


def test_what_all_watches_of_a_client_know_is_bounded() -> None:
    harness = world(5, Limits(watched=3))
    ((inside),) = harness.ask(
        0, messages.SubscribeRequest(0, Area(x=50.0, y=0.0, r=1.0), watch=True)
    )
    assert inside.entities == []
    settled(
        harness, *((100 + n, messages.PublishRequest(50.0, 0.0, retain=True)) for n in range(5))
    )
    known: set[int] = set()

    def tick() -> None:
        harness.now += SECOND
        for _, word in harness.realm.tick(harness.now):
            if isinstance(word, messages.EnterNotice):
                known.add(word.entity.entity)
            else:
                known.remove(word.entity)

    tick()
    assert len(known) == 3
    first = set(known)
    leaver = next(c for c, state in harness.states.items() if state.entity in first)
    harness.ask(leaver, messages.LeaveRequest())
    tick()
    tick()
    assert len(known) == 3 and len(known & first) == 2, "another one enters instead"


def test_inside_and_nearby_list_a_bounded_answer_and_the_rest_enters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    harness = world(5, Limits(nearby=2))
    (inside,) = harness.ask(0, messages.SubscribeRequest(0, EVERYBODY, watch=True))
    entered = [word.entity for _, word in harness.realm.tick(harness.now)]
    assert len(inside.entities) == 2
    assert len({e.entity for e in inside.entities} | {e.entity for e in entered}) == 5
    payload = messages.JSON.encode_payload("x" * 100)
    settled(
        harness, *((100 + n, messages.PublishRequest(0.0, 0.0, payload, True)) for n in range(5))
    )
    monkeypatch.setattr(state_listing, "ANSWER_BYTES", 150)
    assert len(harness.realm.nearby(harness.now, messages.NearbyRequest(EVERYBODY, limit=2))) == 1


def test_who_is_told_the_same_shares_the_notice() -> None:
    harness = world(1)
    for client in range(3):
        harness.ask(client, messages.SubscribeRequest(7, Area(x=30.0, y=0.0, r=1.0), watch=True))
    settled(harness, (100, messages.PublishRequest(30.0, 0.0, retain=True)))
    notices = [word for _, word in harness.realm.tick(harness.now)]
    assert len(notices) == 3 and len({id(word) for word in notices}) == 1


def test_an_entitys_number_is_kept_back_until_every_group_has_processed_that_it_left() -> None:
    harness = world(1)
    with overloaded():
        for client in (0, 1):
            harness.ask(client, messages.SubscribeRequest(0, EVERYBODY, watch=True))
        for _ in range(10):
            harness.realm.tick(harness.now)
        harness.ask(100, messages.LeaveRequest())
        known_entities = []
        for _ in range(10):
            waiting = len(harness.realm._states.left)
            known_entities += [word for _, word in harness.realm.tick(harness.now)]
            assert waiting == 1 or len(known_entities) == 2
    assert [word.gone for word in known_entities] == [True, True]
    assert np.array_equal(harness.realm._states.left, [])
