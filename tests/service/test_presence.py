"""Who is there, who comes, who goes: against a model that looks at everybody at every tick."""

from hypothesis import given

from nearcast.client_protocol import messages
from nearcast.client_protocol.geometry_json import Area
from nearcast.errors import Refused
from nearcast.space.motion import SECOND
from support.examples import examples
from support.presence_model import EVERYBODY, HERE, HISTORIES, WatchModel, settled
from support.realm_histories import (
    FLUSH,
    TICK,
    RealmHarness,
    Step,
)


def told(harness: RealmHarness) -> list[tuple[int, str, int, int, bool]]:
    """What the realm's tick says, as the model says it."""
    clients = {state.slot: client for client, state in harness.states.items()}
    notices = []
    for state, word in harness.realm.tick(harness.now):
        assert harness.realm.clients[state.slot] is state
        if isinstance(word, messages.EnterNotice):
            notice = "enter", word.subscription, word.entity.entity, False
        else:
            assert isinstance(word, messages.LeaveNotice)
            notice = "leave", word.subscription, word.entity, word.gone
        notices.append((clients[state.slot], *notice))
    return sorted(notices)


@given(HISTORIES)
@examples(100)
def test_every_watch_is_told_what_it_would_see_for_itself(history: list[Step]) -> None:
    harness, model = RealmHarness(recorded=False), WatchModel()
    for later, client, step in [*history, (0, 0, FLUSH), (0, 0, TICK), (SECOND, 0, TICK)]:
        harness.now += later
        if step == TICK:
            notices = told(harness)
            assert notices == model.tick(harness.realm.now)
        elif step == FLUSH:
            model.flush(harness.realm.flush(harness.now).t)
        else:
            state = harness.client_state(client)
            try:
                answer = harness.ask(client, step)
            except Refused:
                continue
            model.obey(harness.realm.now, client, state.entity, step)
            if isinstance(step, messages.SubscribeRequest) and step.watch:
                (inside,) = answer
                assert inside.subscription == step.subscription
                known = model.watches[client, step.subscription].known
                assert sorted(e.entity for e in inside.entities) == sorted(known)


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
    # Last seen at step 28, out of sight at step 29, and told once that has lasted a quarter second.
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
    assert notices == [(25, messages.EnterNotice), (36, messages.LeaveNotice)]


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
