"""What is heard is what the trace says should be heard: once, in order, by those who asked."""

from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given

from nearcast.client_protocol import messages
from nearcast.client_protocol.geometry_json import Area
from nearcast.client_protocol.limits import Limits
from nearcast.errors import Refused
from nearcast.matching import MATCHERS
from nearcast.scenario import Scenario, to_json
from nearcast.service.client_state import FlushDeliveries
from nearcast.service.realm import Realm
from nearcast.space.motion import SECOND
from nearcast.trace.recorder import Recorder
from nearcast.trace.sinks import TraceFolder
from nearcast.trace.validate import validate
from support.brute_force import delivered, expected
from support.examples import examples
from support.realm_histories import FLUSH, HISTORIES, TICK, Model, RealmHarness, Step


def heard_by(harness: RealmHarness, heard: FlushDeliveries) -> list[tuple[int, int, int]]:
    """Client, publication and the client's own number of the subscription, as the realm says."""
    clients = {state.slot: client for client, state in harness.states.items()}
    return [
        (clients[state], publication, int(harness.realm.numbers[active]))
        for state, publication, active in zip(
            heard.client.tolist(),
            heard.publication.tolist(),
            heard.subscription.tolist(),
            strict=True,
        )
    ]


def in_order(heard: FlushDeliveries) -> bool:
    """By seat, then in the order of publication, and no pair twice."""
    pairs = list(zip(heard.client, heard.publication, heard.subscription, strict=True))
    return pairs == sorted(set(pairs))


def live(harness: RealmHarness, model: Model, history: list[Step]) -> None:
    """Let the history happen to both, and compare at each flush."""
    for later, client, step in [*history, (SECOND, 0, FLUSH)]:
        harness.now += later
        if step == TICK:
            harness.realm.tick(harness.now)
        elif step == FLUSH:
            heard = harness.realm.flush(harness.now)
            assert heard.t == harness.realm.now
            assert in_order(heard)
            assert sorted(heard_by(harness, heard)) == model.flush(heard.t)
            harness.realm.record_deliveries(heard.t + 7, heard)
        else:
            entity = harness.client_state(client).entity
            try:
                harness.ask(client, step)
            except Refused:
                continue
            model.obey(harness.realm.now, client, entity, step)


@given(HISTORIES)
@examples(100)
def test_every_client_receives_what_it_wants_at_the_moment_of_the_flush(
    history: list[Step],
) -> None:
    live(RealmHarness(recorded=False), Model(), history)


@given(HISTORIES)
@examples(100)
def test_the_trace_agrees_with_what_was_delivered(history: list[Step]) -> None:
    harness = RealmHarness()
    live(harness, Model(), history)
    happened = delivered(harness.table("deliveries"))
    should = expected(harness.table("interests"), harness.table("publications"))
    assert len(happened) == len(set(happened))
    assert set(happened) == should


@given(HISTORIES)
@examples(30)
def test_the_trace_is_sound_wherever_its_files_are_cut(history: list[Step]) -> None:
    with TemporaryDirectory() as folder:
        scenario = Scenario(protocol="live", workload="live", nodes=1, seconds=1.0)
        sink = TraceFolder(Path(folder) / "trace", to_json(scenario))
        harness = RealmHarness()
        harness.recorder = Recorder(sink, limit=3)
        harness.realm = Realm(MATCHERS["swept"](), Limits(), harness.recorder)
        live(harness, Model(), history)
        harness.recorder.close()
        sink.finish({})
        assert validate(sink.path).problems == ()


HERE = Area(x=0.0, y=0.0, r=5.0)


def say(
    harness: RealmHarness, *said: tuple[int, messages.PublishRequest]
) -> list[tuple[int, int, int]]:
    for client, request in said:
        harness.ask(client, request)
    return heard_by(harness, harness.realm.flush(harness.now))


def test_what_waits_is_delivered_to_those_who_come_before_the_flush() -> None:
    harness = RealmHarness()
    harness.ask(1, messages.PublishRequest(0.0, 0.0))
    harness.ask(0, messages.SubscribeRequest(0, HERE))
    assert say(harness) == [(0, 0, 0)]


def test_an_interest_takes_effect_after_the_publications_before_it() -> None:
    harness = RealmHarness()
    assert say(harness, (1, messages.PublishRequest(0.0, 0.0))) == []
    harness.ask(0, messages.SubscribeRequest(0, HERE))
    assert harness.realm.now == harness.now + 1
    assert expected(harness.table("interests"), harness.table("publications")) == set()


def test_messages_of_one_publisher_keep_their_order_between_those_of_others() -> None:
    harness = RealmHarness()
    for client in (0, 1):
        harness.ask(client, messages.SubscribeRequest(0, HERE, echo=True))
        harness.ask(client, messages.SubscribeRequest(1, HERE))
    said = [(i % 3, messages.PublishRequest(float(i % 5), 0.0)) for i in range(30)]
    heard = say(harness, *said)
    for client in (0, 1):
        mine = [i for c, i, number in heard if (c, number) == (client, 0)]
        assert mine == list(range(30))
        others = [i for c, i, number in heard if (c, number) == (client, 1)]
        assert others == [i for i in range(30) if i % 3 != client]
    harness.now += 1
    first = harness.realm.flush(harness.now)
    assert len(first) == 0 and harness.realm.waiting == 0


def test_places_are_used_again_and_numbers_of_the_trace_never() -> None:
    harness = RealmHarness()
    entities, numbers, places = set(), set(), set()
    for client in range(200):
        state = harness.client_state(client)
        harness.ask(client, messages.SubscribeRequest(9, HERE))
        harness.ask(client, messages.SubscribeRequest(9, HERE, echo=True))
        active = state.subscriptions[9]
        assert harness.realm.subscriptions[active.slot] == active.subscription.id
        assert harness.realm.entities[state.slot] == state.entity
        entities.add(state.entity)
        numbers.add(active.subscription.id)
        places.add((state.slot, active.slot))
        if client % 2:
            harness.ask(client, messages.LeaveRequest())
    assert len(entities) == len(numbers) == 200
    assert len(places) <= 101
    assert len(say(harness, (0, messages.PublishRequest(1.0, 1.0)))) == 100


def test_many_clients_receive_as_few_do() -> None:
    harness = RealmHarness()
    for client in range(150):
        for number in (1, 2):
            harness.ask(
                client, messages.SubscribeRequest(number, Area(x=float(client), y=0.0, r=1.0))
            )
    heard = say(
        harness, (0, messages.PublishRequest(70.0, 0.0)), (1, messages.PublishRequest(149.0, 0.0))
    )
    assert heard == [
        (client, publication, number)
        for client, publication in [(69, 0), (70, 0), (71, 0), (148, 1), (149, 1)]
        for number in (1, 2)
    ]


def test_each_leg_of_a_walk_is_a_row_from_the_moment_it_begins() -> None:
    harness = RealmHarness()
    walk = Area(x=0.0, y=0.0, r=1.0, to=[[10.0, 0.0], [10.0, 10.0], [0.0, 10.0]], speed=10.0)
    harness.ask(0, messages.SubscribeRequest(0, walk))
    start = harness.realm.now
    harness.realm.flush(start + 1_500_000)
    harness.realm.tick(start + 5 * SECOND)
    rows = [
        (row["t"] - start, row["x"], row["y"]) for row in harness.table("interests").to_pylist()
    ]
    assert rows == [(0, 0.0, 0.0), (SECOND, 10.0, 0.0), (2 * SECOND, 10.0, 10.0)]


def test_a_walk_that_is_given_up_leaves_nothing_behind() -> None:
    harness = RealmHarness()
    walk = Area(x=0.0, y=0.0, r=1.0, to=[[1e5, 0.0], [0.0, 0.0]], speed=1.0)
    harness.ask(0, messages.SubscribeRequest(0, walk))
    for _ in range(1000):
        harness.ask(0, messages.MoveRequest(0, walk))
    assert len(harness.realm._path_legs._due) < 100
    harness.ask(0, messages.UnsubscribeRequest(0))
    harness.realm.tick(harness.now + 10**6 * SECOND)
    rows = harness.table("interests").to_pylist()
    assert max(row["t"] for row in rows) < harness.now + SECOND


def test_what_leaves_is_forgotten() -> None:
    harness = RealmHarness()
    realm = harness.realm
    for client in range(100):
        harness.ask(client, messages.SubscribeRequest(0, HERE, watch=True, closest=3))
        harness.ask(client, messages.PublishRequest(0.0, 0.0, retain=True))
    while realm.waiting:
        realm.flush(harness.now)
    realm.tick(harness.now)
    for client in range(100):
        harness.ask(client, messages.LeaveRequest())
    realm.tick(harness.now)
    assert [state for state in realm.clients if state] == []
    for numbers in (
        realm._client_slots, realm._subscription_slots, realm._states._slots,
        realm._throttle._slots,
    ):  # fmt: skip
        assert len(numbers) == 0
    assert not realm._states._states and not len(realm._throttle._pairs)
    assert not realm._throttled and not len(realm._fences) and not list(realm._fences._watches)


def test_leaving_twice_is_leaving_once() -> None:
    harness = RealmHarness()
    state = harness.client_state(0)
    harness.ask(0, messages.LeaveRequest())
    harness.realm.leave(harness.now, state)
    assert harness.client_state(1).slot != harness.client_state(2).slot


def test_two_changes_of_one_subscription_are_never_at_one_moment() -> None:
    harness = RealmHarness()
    assert harness.recorder
    harness.ask(0, messages.SubscribeRequest(0, HERE))
    for x in (1.0, 2.0):
        harness.recorder.flush()
        harness.ask(0, messages.MoveRequest(0, Area(x=x, y=0.0, r=5.0)))
    harness.recorder.flush()
    harness.ask(0, messages.LeaveRequest())
    rows = harness.table("interests").to_pylist()
    assert [row["t"] - harness.now for row in rows] == [0, 1, 2, 3]
