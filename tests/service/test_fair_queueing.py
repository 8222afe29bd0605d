"""A flush is bounded and shared: who costs little does not wait for who costs much."""

import asyncio
from random import Random
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest
from hypothesis import given
from msgspec.structs import replace

from nearcast.client_protocol import messages
from nearcast.client_protocol.geometry_json import Area
from nearcast.client_protocol.limits import Limits
from nearcast.errors import Refused
from nearcast.matching import MATCHERS
from nearcast.node import Outbox
from nearcast.server.in_process import World
from nearcast.service import fair_queueing
from nearcast.service.client_state import FlushDeliveries
from nearcast.service.cluster.handover import Handover, OfferedClient
from nearcast.service.cluster.realm import ClusterRealm
from nearcast.service.connections import Connections
from nearcast.service.fair_queueing import (
    AT_ONCE,
    DELIVERY_STEPS,
    NOTICE_STEPS,
    PAIR_STEPS,
    PUBLICATION_STEPS,
)
from nearcast.space.motion import SECOND
from nearcast.space.shapes import disc
from support.brute_force import delivered, expected
from support.examples import examples
from support.live_clients import join_client, run, service
from support.patience import PATIENCE_S
from support.raw_websocket import http
from support.realm_histories import FLUSH, HISTORIES, TICK, RealmHarness, Step

HERE = Area(x=0.0, y=0.0, r=5.0)
THERE = Area(x=90.0, y=0.0, r=5.0)
LISTENER, CROWD, BYSTANDER, OTHER = 0, 1, 2, 3
SAID = messages.PublishRequest(0.0, 0.0)


def harness(bound: int = 20 * PUBLICATION_STEPS, listeners: int = 1) -> RealmHarness:
    """With somebody who listens here, and a flush of so many steps."""
    together = RealmHarness()
    together.realm.accounts.bound = bound
    for number in range(listeners):
        together.ask(LISTENER, messages.SubscribeRequest(number, HERE))
    return together


def flush(together: RealmHarness) -> FlushDeliveries:
    together.now += SECOND
    heard = together.realm.flush(together.now)
    together.realm.record_deliveries(heard.t, heard)
    return heard


def spoke(together: RealmHarness, heard: FlushDeliveries) -> list[int]:
    """The clients whose publications were in this flush."""
    clients = {state.entity: client for client, state in together.states.items()}
    return [clients[one.client.entity] for one in heard.publications]


def known(together: RealmHarness, *clients: int) -> None:
    """Each of them has published before, so that its price is known."""
    for client in clients:
        together.ask(client, SAID)
        flush(together)


def test_what_fits_goes_into_one_flush() -> None:
    together = harness(bound=fair_queueing.FLUSH_STEPS)
    known(together, CROWD, BYSTANDER)
    for i in range(2 * AT_ONCE):
        together.ask((CROWD, BYSTANDER)[i % 2], SAID)
    heard = flush(together)
    assert spoke(together, heard) == AT_ONCE * [CROWD, BYSTANDER]
    assert together.realm.waiting == 0 and together.realm.accounts.cut_short == 0


def test_a_bystander_never_waits_behind_the_backlog_of_another() -> None:
    together = harness()
    known(together, CROWD, BYSTANDER)
    for _ in range(200):
        together.ask(CROWD, SAID)
    said: list[int] = []
    flushes = 0
    while together.realm.waiting:
        if len(said) < 5:
            said.append(together.ask(BYSTANDER, SAID))
        heard = flush(together)
        assert len(heard.publications) <= 21
        flushes += 1
        numbers = [one.id for one in heard.publications]
        assert said[-1] in numbers or flushes > 5
        assert heard.numbers().tolist() == numbers, "one subscription hears all"
    numbers = together.table("publications")["publication"].to_pylist()
    assert flushes > 9 and sorted(numbers) == list(range(1, 2 + 200 + len(said) + 1))


def test_each_publisher_keeps_its_order_and_everything_is_delivered_once() -> None:
    together = harness()
    for i in range(150):
        together.ask(CROWD + i % 3, SAID)
    while together.realm.waiting:
        heard = flush(together)
        numbers = [one.id for one in heard.publications]
        assert numbers == sorted(numbers)
        assert heard.numbers().tolist() == numbers, "one subscription hears all"
    said = together.table("publications").to_pylist()
    for entity in {row["node"] for row in said}:
        mine = [row["publication"] for row in said if row["node"] == entity]
        assert mine == sorted(mine) and len(mine) == 50
    happened = delivered(together.table("deliveries"))
    assert len(happened) == len(set(happened)) == 150
    assert set(happened) == expected(together.table("interests"), together.table("publications"))


def test_clients_share_by_what_they_cost_and_not_by_how_often_they_publish() -> None:
    together = harness(bound=40 * (PUBLICATION_STEPS + 64 * DELIVERY_STEPS), listeners=64)
    away = messages.PublishRequest(50.0, 0.0)  # nobody hears it: it costs a sixth
    for client, said in ((CROWD, SAID), (OTHER, away)):
        together.ask(client, said)
        flush(together)
    for _ in range(300):
        together.ask(CROWD, SAID)
        together.ask(OTHER, away)
    both = spoke(together, flush(together))
    dear, cheap = both.count(CROWD), both.count(OTHER)
    assert cheap == AT_ONCE and 0 < dear < 40
    assert dear * 6 >= cheap, "who costs more has its share of the work as well"


def test_who_has_been_served_ahead_waits_until_others_have_caught_up() -> None:
    together = harness(bound=PUBLICATION_STEPS)  # one at a time
    known(together, CROWD, BYSTANDER, OTHER)
    for _ in range(9):
        together.ask(CROWD, SAID)
        together.ask(OTHER, SAID)
    turns = []
    while together.realm.waiting:
        turns += spoke(together, flush(together))
        if len(turns) == 4:
            together.ask(BYSTANDER, SAID)
    assert abs(turns[:10].count(CROWD) - turns[:10].count(OTHER)) <= 1
    assert BYSTANDER in turns[4:8]


def test_who_says_one_dear_thing_at_a_time_has_no_more_than_its_share() -> None:
    together = harness(bound=4 * PUBLICATION_STEPS, listeners=64)
    away = messages.PublishRequest(50.0, 0.0)
    for client, said in ((CROWD, away), (OTHER, SAID)):
        together.ask(client, said)
        flush(together)
    for _ in range(300):
        together.ask(CROWD, away)
    served = 0
    for _ in range(12):
        together.ask(OTHER, SAID)
        served += spoke(together, flush(together)).count(OTHER)
    assert 3 <= served <= 6, "half of the work is a third of its publications"


def test_a_new_client_publishes_only_so_much_in_its_first_flush() -> None:
    together = harness(bound=fair_queueing.FLUSH_STEPS)
    for _ in range(10 * AT_ONCE):
        together.ask(CROWD, SAID)
    assert len(flush(together).publications) == AT_ONCE


def test_the_price_rises_at_once_and_falls_slowly() -> None:
    together = harness(bound=fair_queueing.FLUSH_STEPS, listeners=50)
    state = together.client_state(CROWD)
    cheap, dear = messages.PublishRequest(50.0, 0.0), SAID
    known(together, CROWD)
    assert together.realm.accounts.price(state) == PUBLICATION_STEPS + 50 * DELIVERY_STEPS
    for _ in range(3):
        together.ask(CROWD, cheap)
        flush(together)
    assert together.realm.accounts.price(state) > PUBLICATION_STEPS + 40 * DELIVERY_STEPS
    together.ask(CROWD, dear)
    together.ask(CROWD, cheap)
    flush(together)
    assert together.realm.accounts.price(state) == PUBLICATION_STEPS + 50 * DELIVERY_STEPS


def test_work_is_charged_to_who_publishes_and_to_who_listens() -> None:
    together = harness()
    together.ask(OTHER, messages.SubscribeRequest(1, HERE, "level > 1, level < 9"))
    together.ask(CROWD, messages.PublishRequest(0.0, 0.0, attributes={"level": 20}))
    flush(together)
    clients = together.realm.accounts.clients
    slots = [together.client_state(c).slot for c in (LISTENER, CROWD, OTHER)]
    listener, crowd, other = (clients[slot] for slot in slots)
    assert crowd["as_publisher"] == PUBLICATION_STEPS + DELIVERY_STEPS + PAIR_STEPS + 2
    assert crowd["published"] == 1
    assert listener["as_subscriber"] == DELIVERY_STEPS and other["as_subscriber"] == PAIR_STEPS + 2
    assert together.realm.accounts.work == crowd["as_publisher"]


def test_a_new_client_does_not_pay_for_who_had_its_place() -> None:
    together = harness()
    known(together, CROWD)
    place = together.client_state(CROWD).slot
    together.ask(CROWD, SAID)
    together.ask(CROWD, messages.LeaveRequest())
    state = together.client_state(OTHER)
    assert state.slot == place
    flush(together)
    assert together.realm.accounts.clients[place]["published"] == 0


def test_who_has_too_much_waiting_is_refused_until_there_is_less() -> None:
    together = harness()
    with pytest.raises(Refused, match=r"the node is busy: \d+ of your publications wait"):
        for i in range(10_000):
            together.ask(CROWD, SAID)
            if i % 100 == 99:
                flush(together)
    assert together.realm.accounts.refused == 1
    together.ask(BYSTANDER, SAID)
    while together.client_state(CROWD).backlog:
        flush(together)
    together.ask(CROWD, SAID)
    while together.realm.waiting:
        flush(together)
    assert together.client_state(CROWD).backlog == 0


def test_publications_of_a_client_that_left_are_delivered_with_its_own_entity() -> None:
    together = harness(bound=PUBLICATION_STEPS)
    known(together, CROWD)
    for _ in range(5):
        together.ask(CROWD, SAID)
    flush(together)
    entity, feed = together.client_state(CROWD).entity, together.client_state(CROWD).feeds[""]
    together.ask(CROWD, messages.LeaveRequest())
    together.realm.tick(together.now)
    together.ask(OTHER, messages.PublishRequest(1.0, 1.0, retain=True))
    assert together.client_state(OTHER).feeds[""] != feed, "it still speaks"
    entities: list[int] = []
    while together.realm.waiting:
        heard = flush(together)
        entities += [heard.publications[i].client.entity for i in heard.publication.tolist()]
        together.realm.tick(together.now)
    assert entities.count(entity) == 4
    near = together.realm.nearby(together.now, messages.NearbyRequest(HERE))
    assert [one.entity for one in near] == [together.client_state(OTHER).entity]


def test_places_of_columns_grow_with_clients() -> None:
    together = harness()
    for client in range(10, 210):
        together.ask(client, SAID)
    while together.realm.waiting:
        flush(together)
    places = [together.client_state(client).slot for client in range(10, 210)]
    assert np.all(together.realm.accounts.clients["published"][places] == 1)


@given(HISTORIES)
@examples(60)
def test_the_trace_agrees_with_what_was_delivered_however_little_a_flush_may_do(
    history: list[Step],
) -> None:
    together = RealmHarness()
    together.realm.accounts.bound = 1
    for later, client, step in history:
        together.now += later
        if step == TICK:
            together.realm.tick(together.now)
        elif step == FLUSH:
            flush(together)
        else:
            try:
                together.ask(client, step)
            except Refused:
                continue
    while together.realm.waiting:
        flush(together)
    happened = delivered(together.table("deliveries"))
    assert len(happened) == len(set(happened))
    assert set(happened) == expected(together.table("interests"), together.table("publications"))


# What a client may ask for.

COSTLY = "a > " + " + ".join(["sin(t)"] * 30)


def test_formulas_and_filters_of_one_client_take_a_bounded_number_of_steps() -> None:
    together = RealmHarness(limits=Limits(steps=300))
    together.ask(0, messages.SubscribeRequest(1, HERE, COSTLY))
    with pytest.raises(Refused, match="take at most 300 steps, and with this one yours take 362"):
        together.ask(0, messages.SubscribeRequest(2, THERE, COSTLY))
    together.ask(1, messages.SubscribeRequest(1, HERE, COSTLY))  # another client has its own
    together.ask(0, messages.SubscribeRequest(1, HERE, COSTLY))  # the same again is not more
    formula = "x > " + " + ".join(["sin(t)"] * 30) + ", x < 9"
    with pytest.raises(Refused, match="steps"):
        together.ask(0, messages.MoveRequest(1, Area(formula=formula)))
    together.ask(0, messages.MoveRequest(1, THERE))
    together.ask(0, messages.UnsubscribeRequest(1))
    together.ask(0, messages.SubscribeRequest(2, Area(formula=formula)))


def test_a_client_may_have_as_many_ordinary_filters_as_subscriptions() -> None:
    together = RealmHarness()
    limits = Limits()
    ordinary = 'kind == "apple", weight > 3, weight < 9 + t, ripe == true'
    for number in range(limits.subscriptions):
        together.ask(0, messages.SubscribeRequest(number, HERE, ordinary))
    area = Area(formula="x >= -3 + t, x <= 3 + t, y >= -2 + t, y <= 2 + t")
    for number in range(limits.subscriptions):
        together.ask(1, messages.SubscribeRequest(number, area))
    with pytest.raises(Refused, match="steps"):
        for number in range(limits.subscriptions):
            together.ask(2, messages.SubscribeRequest(number, HERE, COSTLY))


def test_who_comes_from_another_node_brings_the_steps_of_its_filters() -> None:
    there = RealmHarness()
    there.ask(CROWD, messages.SubscribeRequest(1, HERE, COSTLY))
    came = there.client_state(CROWD).subscriptions[1]
    here = ClusterRealm(MATCHERS["keyed"](), Limits(), None, 1)
    state = here.add_transferred(
        there.now, 7, "ann", messages.JSON, [replace(came, steps=0)], [[]], there.now, ()
    )
    assert state.subscriptions[1].steps == came.steps == 181


def test_a_client_is_handed_over_only_when_all_that_it_published_is_delivered() -> None:
    together = harness(bound=PUBLICATION_STEPS)
    known(together, CROWD)
    for _ in range(3):
        together.ask(CROWD, SAID)
    flush(together)
    state, gone = together.client_state(CROWD), []
    out = Outbox()
    connections = Connections(out, Limits(), "")
    handover = Handover(SimpleNamespace(realm=together.realm), out, connections, Random(0))
    handover._release_client = lambda _now, ticket, _offer: gone.append(ticket)
    handover.claimed = {"ticket": OfferedClient(SimpleNamespace(client=state), state, 2, 0)}
    while together.realm.publications_waiting(state):
        handover.release_claimed(together.now)
        assert not gone and "ticket" in handover.claimed
        flush(together)
    handover.release_claimed(together.now)
    assert gone == ["ticket"] and not handover.claimed


def test_a_world_inside_a_program_delivers_what_one_flush_leaves() -> None:
    async def story() -> tuple[int, int]:
        async with World() as world:
            ann, bob = await world.join("ann"), await world.join("bob")
            area = await ann.subscribe(disc(0.0, 0.0, 5.0))
            realm = world._host.realm
            realm.accounts.bound = 1
            await bob.publish((0.0, 0.0))
            for _ in range(20):
                await bob.publish((1.0, 1.0), confirm=False)
            await bob.publish((1.0, 1.0))  # it comes after all the others
            heard = 0
            while heard < 22:
                await asyncio.wait_for(anext(aiter(area)), PATIENCE_S)
                heard += 1
            for _ in range(20):
                await bob.publish((1.0, 1.0), confirm=False)
        return heard, realm.waiting

    assert run(story()) == (22, 0)


# Over sockets.

GET = "GET {} HTTP/1.1\r\nHost: localhost\r\n\r\n"
BODY = b'{"x": 1, "y": 2}'
POSTED = (
    f"POST /publish HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(BODY)}\r\n\r\n",
    BODY,
)


def test_a_node_that_stops_delivers_the_whole_backlog() -> None:
    async def story() -> list[int]:
        async with service() as node:
            ann, bob = await join_client(node, "ann"), await join_client(node, "bob")
            await ann.ask(messages.SubscribeRequest, 1, HERE)
            node.realm.accounts.bound = 1
            node.gateway.schedule_flush = lambda *_: None  # nothing is flushed until the end
            for _ in range(300):
                bob.send_request(SAID)
            await bob.ask(messages.NearbyRequest, HERE)
            assert node.realm.waiting == 300
        return [one.publication for one in ann.of(messages.MessageNotice)]

    assert run(story()) == list(range(1, 301))


def test_the_loop_has_a_turn_between_two_flushes() -> None:
    async def story() -> None:
        async with service() as node:
            state = node.realm.join(node.gateway.now(), "ann")
            node.realm.accounts.bound = 1
            node.realm.publish(state, SAID, messages.JSON)
            node.realm.flush(node.gateway.now())  # its price becomes known
            for _ in range(3):
                node.realm.publish(state, SAID, messages.JSON)
            for left in (2, 1, 0):
                node.gateway.flush()
                assert node.realm.waiting == left
                assert node.gateway.idle == (left == 0)
            for _ in range(3):
                node.realm.publish(state, SAID, messages.JSON)
            answer = node.gateway.outcome(node.realm.publish(state, SAID, messages.JSON))
            node.gateway.schedule_flush()
            await asyncio.wait_for(answer, PATIENCE_S)
            assert node.realm.waiting == 0

    run(story())


def test_who_is_refused_because_the_node_is_busy_is_told_by_id_and_over_http() -> None:
    async def story() -> tuple[str, bytes, bytes]:
        async with service() as node:
            bob = await join_client(node, "bob")
            state = next(one for one in node.realm.clients if one is not None)
            state.backlog = 12
            refused = await bob.ask(messages.PublishRequest, 0.0, 0.0)
            await http(node, *POSTED)
            next(one for one in node.realm.clients if one and one.name == "curl").backlog = 3
            status, _, answer = await http(node, *POSTED)
            assert status == 503
            await http(node, POSTED[0].replace("/publish", "/publish?name=anna"), POSTED[1])
            return refused.reason, answer, (await http(node, GET.format("/metrics")))[2]

    reason, answer, metrics = run(story())
    assert reason.startswith("the node is busy: 12 of your publications wait")
    assert b"the node is busy: 3" in answer
    assert b"\nnearcast_busy_total 2.0\n" in metrics


def test_an_admin_sees_what_each_client_costs() -> None:
    async def story() -> bytes:
        async with service(token="open-sesame") as node:
            ann = await join_client(node, "ann", token="open-sesame")
            bob = await join_client(node, "bob", token="open-sesame")
            await ann.ask(messages.SubscribeRequest, 1, HERE, "level > 1")
            await bob.ask(messages.PublishRequest, 0.0, 0.0, attributes={"level": 2})
            await bob.ask(messages.PublishRequest, 9.0, 0.0)
            assert (await http(node, GET.format("/clients")))[0] == 401
            return (await http(node, GET.format("/clients?token=open-sesame&limit=2")))[2]

    bob, ann = msgspec.json.decode(run(story()))["clients"]
    assert (bob["name"], bob["publications"], bob["work_as_subscriber"]) == ("bob", 2, 0)
    assert bob["work_as_publisher"] == 2 * PUBLICATION_STEPS + DELIVERY_STEPS + PAIR_STEPS + 1
    assert (ann["name"], ann["publications"], ann["steps"]) == ("ann", 0, 1)
    assert ann["work_as_subscriber"] == DELIVERY_STEPS + PAIR_STEPS + 1


def test_who_causes_many_events_at_fences_waits_for_others() -> None:
    together = RealmHarness(recorded=False)
    for number in range(30):
        request = messages.SubscribeRequest(number, HERE, events=["enter", "leave"])
        together.ask(LISTENER, request)
    accounts = together.realm.accounts
    for x in (0.0, 90.0):
        together.ask(CROWD, messages.PublishRequest(x, 0.0, retain=True, name="truck"))
        flush(together)
        assert len(together.realm.fence_notices()) == 30
    account = accounts.clients[together.states[CROWD].slot]
    assert account["price"] >= 30 * NOTICE_STEPS
    assert account["as_publisher"] >= 60 * NOTICE_STEPS
    assert accounts.clients[together.states[LISTENER].slot]["as_subscriber"] >= 60 * NOTICE_STEPS
    accounts.bound = 40 * NOTICE_STEPS
    for _ in range(3):
        together.ask(CROWD, messages.PublishRequest(0.0, 0.0, retain=True, name="truck"))
    together.ask(BYSTANDER, SAID)
    taken = [one.client for one in flush(together).publications]
    assert together.states[BYSTANDER] in taken and together.realm.waiting > 0
