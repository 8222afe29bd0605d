"""Brokers that crash and return, clients that look for another, and messages that make no sense."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.model.commands import Move, Publish, Subscribe, Unsubscribe
from nearcast.model.publication import Publication
from nearcast.model.subscription import Subscription
from nearcast.node import Deliver, Message, Note, Send
from nearcast.protocols.brokers.broker import (
    Broker,
    CheckLinks,
    CheckSettled,
    RefreshMatcher,
    ReportCounters,
)
from nearcast.protocols.brokers.client import BrokerClient, RenewInterest
from nearcast.protocols.brokers.interests import EVERYTHING
from nearcast.protocols.brokers.messages import (
    CODEC,
    Adjust,
    Advertise,
    Advertisement,
    Bye,
    Cancel,
    Heartbeat,
    Hello,
    Interest,
    Inventory,
    Notify,
    Pass,
    Post,
    Unadvertise,
    UnknownClient,
)
from nearcast.protocols.brokers.parameters import Parameters
from nearcast.protocols.overlay import FIRST_SERVER
from nearcast.sim.network import ConstantDelay, Loss
from nearcast.space.motion import SECOND, Moving
from nearcast.space.shapes import disc, point
from support.broker_network import B, BrokerNetwork
from support.examples import examples
from support.strategies import publications, shapes, subscriptions

HERE, THERE = Moving(disc(0, 0, 1)), Moving(disc(100, 0, 1))
DELAY = 1_000
ALIVE = {"delay": DELAY, "heartbeat_ms": 100.0}
LONG = SECOND  # enough to notice a silence, to attach elsewhere and to tell everything


def tables(net: BrokerNetwork) -> list[object]:
    brokers = [n for n in net.simulation.nodes.values() if isinstance(n, Broker)]
    return [(b.routes.entries, b.routes.advertisements, b.routes.forwarded) for b in brokers]


# Crash and reconnection.


@pytest.mark.parametrize("pause", [0, 2 * DELAY, 150_000])
@pytest.mark.parametrize("covering", ["off", "active"])
def test_a_broker_that_returns_learns_everything_anew(pause: int, covering: str) -> None:
    """If nobody noticed that it was away; else others have linked around it (test_relinking)."""
    net = BrokerNetwork((0, 2), brokers=3, topology="line", covering=covering, **ALIVE)
    net.obey(0, Subscribe(7, HERE), then=LONG)
    before = tables(net)
    net.crash(B[1])
    net.run(pause)
    net.restart(1)
    net.run(LONG)
    assert sorted(map(str, tables(net))) == sorted(map(str, before))
    net.obey(2, Publish(1, point(0, 0)), then=LONG)
    assert net.delivered() == [(1, 7)]


def test_a_broker_that_returns_at_once_needs_no_heartbeat_to_learn_everything() -> None:
    net = BrokerNetwork((0, 2), brokers=3, topology="line", delay=DELAY, heartbeat_ms=0.0)
    net.obey(0, Subscribe(7, HERE), then=LONG)
    before = tables(net)
    net.crash(B[1])
    net.restart(1)
    net.run(LONG)
    assert sorted(map(str, tables(net))) == sorted(map(str, before))
    assert net.kinds()["brokers.Inventory"] == 0


def test_while_a_broker_is_down_the_others_go_on_without_it() -> None:
    net = BrokerNetwork((0, 3, 2), brokers=4, topology="line", **ALIVE)
    for entity in (0, 2, 3):
        net.obey(entity, Subscribe(entity, HERE), then=LONG)
    net.crash(B[1])
    net.run(LONG)
    assert (B[0], B[1]) in net.notes("unlinked")
    assert (B[2], B[0]) in net.notes("linked")
    for number in (0, 2, 3):
        assert sorted(net.broker(number).routes.entries) == [(0, 0), (2, 2), (3, 3)]
    net.obey(2, Publish(1, point(0, 0)), then=LONG)
    assert sorted(net.delivered()) == [(1, 0), (1, 3)]
    net.obey(3, Move(3, THERE), then=LONG)
    net.restart(1)
    net.run(LONG)
    net.obey(0, Publish(2, point(0, 0)), then=LONG)
    net.obey(0, Publish(3, point(100, 0)), then=LONG)
    assert sorted(net.delivered()) == [(1, 0), (1, 3), (2, 2), (3, 3)]


def test_clients_of_a_crashed_broker_attach_to_another() -> None:
    net = BrokerNetwork((0, 1, 2), brokers=3, topology="star", **ALIVE)
    net.obey(1, Subscribe(7, HERE), then=LONG)
    net.crash(B[1])
    net.run(LONG)
    assert net.client(1).broker == B[2]
    assert sorted(net.broker(2).clients) == [1, 2]
    assert (1, B[1]) in net.notes("unlinked")
    assert (1, B[2]) in net.notes("linked")
    net.obey(0, Publish(1, point(0, 0)), then=LONG)
    net.obey(1, Publish(2, point(0, 0)), then=LONG)
    assert net.delivered() == [(1, 7)]
    net.restart(1)
    net.run(LONG)
    net.obey(0, Publish(3, point(0, 0)), then=LONG)
    assert net.delivered() == [(1, 7), (3, 7)]


def test_a_client_that_crashed_is_forgotten_everywhere() -> None:
    net = BrokerNetwork((0, 2), brokers=3, topology="line", **ALIVE)
    net.obey(0, Subscribe(7, HERE), then=LONG)
    net.crash(0)
    net.run(LONG)
    assert all(not net.broker(k).routes.entries for k in range(3))
    assert all(list(net.broker(k).routes.advertisements) == [(2, 0)] for k in range(3))
    net.join(0)
    net.obey(0, Subscribe(8, HERE), then=LONG)
    net.obey(2, Publish(1, point(0, 0)), then=LONG)
    assert net.delivered() == [(1, 8)]


@pytest.mark.parametrize("heartbeat_ms", [0.0, 100.0])
def test_a_client_that_returns_at_once_receives_nothing_of_its_earlier_session(
    heartbeat_ms: float,
) -> None:
    net = BrokerNetwork((0, 2), brokers=3, topology="line", delay=DELAY, heartbeat_ms=heartbeat_ms)
    net.obey(0, Subscribe(7, HERE), then=LONG)
    net.crash(0)
    net.join(0)
    net.obey(0, Subscribe(8, HERE), then=LONG)
    assert [list(net.broker(k).routes.entries) for k in range(3)] == [[(0, 8)]] * 3
    net.obey(2, Publish(1, point(0, 0)), then=LONG)
    assert net.delivered() == [(1, 8)]


def test_without_heartbeats_nobody_sends_a_needless_message() -> None:
    net = BrokerNetwork((0, 2), brokers=3, heartbeat_ms=0.0)
    before = net.simulation.now
    net.run(100 * SECOND)
    assert net.kinds(before) == {}


@examples(12)
@given(seed=st.integers(0, 10**6), covering=st.sampled_from(["off", "lazy", "active"]))
def test_what_was_lost_is_repaired_when_the_network_works_again(seed: int, covering: str) -> None:
    lossy = Loss(0.3, Random(seed), ConstantDelay(DELAY))
    net = BrokerNetwork(
        (0, 1, 2), network=lossy, brokers=3, topology="line", covering=covering,
        heartbeat_ms=100.0, misses=20,
    )  # fmt: skip
    rng = Random(seed)
    for number in range(12):
        entity = rng.randrange(3)
        place = Moving(disc(rng.randrange(3), 0, rng.randrange(1, 30)))
        net.obey(entity, Subscribe(entity * 2 + number % 2, place, echo=True), then=SECOND // 20)
        if rng.random() < 0.3:
            net.obey(entity, Unsubscribe(entity * 2 + number % 2), then=SECOND // 20)
    lossy._probability = 0.0
    net.run(3 * SECOND)
    before = len(net.delivered())
    net.obey(0, Publish(1, point(0, 0)), then=SECOND)
    assert sorted(net.delivered()[before:]) == sorted(net.should())


# Nobody speaks for another, and nothing makes a broker stumble.


def attached(**settings_: object) -> Broker:
    """A broker with one neighbour and Ann (1) and Ben (2), who wants what is here."""
    parameters = Parameters(**{"evolving": "scan", "matcher": "scan", **settings_})
    broker = Broker(B[0], Random(1), parameters, [B[1]])
    broker.start(0)
    broker.receive(0, B[1], Hello(5))
    for client in (1, 2):
        broker.receive(0, client, Hello(1))
        broker.receive(0, client, Advertise(Advertisement(0, client), 2))
    broker.receive(0, 2, Interest(Subscription(7, 2, HERE), 3, 0))
    return broker


def make_publication(node: int = 1) -> Publication:
    return Publication(1, node, 5, point(0, 0))


@pytest.mark.parametrize(
    "forged",
    [
        Post(make_publication(2)),
        Post(make_publication(3)),
        Interest(Subscription(7, 2, THERE), 9, 5),
        Adjust(2, 7, 9, (100.0, 0.0, 0.0, 1.0, 0.0, 0.0)),
        Cancel(2, 7, 9),
        Advertise(Advertisement(0, 2, point(5, 5)), 9),
        Unadvertise(2, 0, 9),
        Pass(make_publication(2), 1),
        Notify(make_publication(2), (7,), 1),
        Hello(99),
        Bye(),
        UnknownClient(),
        Inventory((), ()),
    ],
)
def test_nobody_can_send_in_the_name_of_another(forged: Message) -> None:
    broker = attached()
    effects = broker.receive(5, 1, forged)
    assert not any(isinstance(e, Send) and e.to == 2 for e in effects)
    broker.receive(5, 1, Hello(100))
    broker.receive(5, 1, Advertise(Advertisement(0, 1), 101))
    assert [e for e in broker.receive(6, 1, Post(make_publication())) if isinstance(e, Send)] == [
        Send(2, Notify(make_publication(), (7,), 2))
    ]
    broker.receive(7, 2, Interest(Subscription(8, 2, EVERYTHING), 20, 7))
    assert Send(2, Notify(make_publication(2), (7,), 2)) not in broker.receive(
        7, 2, Post(make_publication(2))
    )


def test_unknown_clients_are_asked_for_a_session_and_foreign_brokers_are_refused() -> None:
    broker = attached()
    assert broker.receive(5, 3, Post(make_publication(3))) == [Send(3, UnknownClient())]
    assert broker.receive(5, 3, Heartbeat(0)) == [Send(3, UnknownClient())]
    assert broker.receive(5, B[7], Pass(make_publication(), 1)) == [Note("refused", B[7])]


def test_a_client_takes_messages_of_its_own_broker_alone() -> None:
    client = BrokerClient(1, Random(1), Parameters(), [B[0], B[1]])
    client.start(0)
    client.obey(0, Subscribe(7, HERE))
    for sender in (B[1], 2, 1):
        for message in (Notify(make_publication(), (7,), 2), UnknownClient(), Inventory((), ())):
            assert client.receive(5, sender, message) == [Note("ignored", sender)]
    assert len(client.receive(5, B[0], Notify(make_publication(2), (7,), 2))) == 1
    assert client.receive(6, B[0], Notify(make_publication(2), (7,), 2)) == [], "a copy"


def test_messages_older_than_a_received_one_are_ignored() -> None:
    broker = attached()
    there = Subscription(7, 2, THERE)
    assert broker.receive(5, 2, Interest(there, 2, 5)) == [Note("ignored", 2)]
    broker.receive(5, 2, Cancel(2, 7, 10))
    assert broker.receive(5, 2, Interest(there, 9, 5)) == [Note("ignored", 2)]
    assert broker.routes.entries == {}
    broker.receive(5, 2, Interest(there, 11, 5))
    assert broker.receive(5, 2, Cancel(2, 7, 10)) == [Note("ignored", 2)]
    assert list(broker.routes.entries) == [(2, 7)]


def test_a_copy_of_a_clients_greeting_removes_nothing_that_it_has_sent_since() -> None:
    broker = attached()
    assert broker.receive(5, 2, Hello(1)) == []
    assert list(broker.routes.entries) == [(2, 7)]


def test_an_interest_that_now_comes_from_where_it_was_sent_is_not_taken_back_there() -> None:
    """A client of ours has turned to a broker beyond our neighbour."""
    broker = attached()
    broker.receive(5, B[1], Advertise(Advertisement(0, 9), 1))
    assert list(broker.routes.forwarded[B[1]]) == [(2, 7)]
    effects = broker.receive(6, B[1], Interest(Subscription(7, 2, THERE), 9, 6))
    assert [e for e in effects if isinstance(e, Send)] == []
    assert broker.routes.forwarded[B[1]] == {}
    assert broker.routes.entries[2, 7].hop == B[1]
    invariants(broker)


@pytest.mark.parametrize(("made", "delivers"), [(3, False), (4, True), (8, True), (9, False)])
def test_a_client_receives_what_was_published_while_it_wanted_it(made: int, delivers: bool) -> None:
    client = BrokerClient(1, Random(1), Parameters(), [B[0]])
    client.start(0)
    client.obey(4, Subscribe(7, HERE))
    client.obey(9, Unsubscribe(7))
    late = Publication(1, 2, made, point(0, 0))
    assert client.receive(30, B[0], Notify(late, (7,), 2)) == (
        [Deliver(late, (7,), 2)] if delivers else []
    )


ids = st.integers(0, 3)
versions = st.integers(0, 12)
numbers = st.floats(allow_nan=False) | st.integers(-3, 3).map(float)
MESSAGES: st.SearchStrategy[Message] = st.one_of(
    st.builds(Hello, versions.map(lambda v: v + 1), st.none() | versions.map(lambda v: v + 1)),
    st.builds(Heartbeat, versions),
    st.just(UnknownClient()),
    st.just(Bye()),
    st.builds(
        Advertise,
        st.builds(Advertisement, ids, ids, shapes(), st.sampled_from([None, "", "chat"])),
        versions,
    ),
    st.builds(Unadvertise, ids, ids, versions),
    st.builds(Interest, subscriptions(), versions, st.integers(0, 2**53 - 1)),
    st.builds(Adjust, ids, ids, versions, st.lists(numbers, max_size=8).map(tuple)),
    st.builds(Cancel, ids, ids, versions),
    st.builds(Post, publications()),
    st.builds(Pass, publications(), versions),
    st.builds(Notify, publications(), st.lists(ids, max_size=3).map(tuple), versions),
    st.builds(
        Inventory,
        st.lists(st.tuples(ids, ids, versions), max_size=3).map(tuple),
        st.lists(st.tuples(ids, ids, versions), max_size=3).map(tuple),
    ),
)
SENDERS = st.sampled_from([0, 1, 2, 3, B[0], B[1], B[2], B[7]])


@examples(60)
@given(
    received=st.lists(st.tuples(SENDERS, MESSAGES), min_size=5, max_size=40),
    covering=st.sampled_from(["off", "lazy", "active"]),
    stamp=st.sampled_from(["travels", "arrival"]),
    evolving=st.sampled_from(["scan", "periodic", "lazy", "cached", "swept"]),
)
def test_no_message_in_any_state_breaks_a_broker_or_a_client(
    received: list[tuple[int, Message]], **chosen: str
) -> None:
    parameters = Parameters(**chosen)
    broker = Broker(B[0], Random(1), parameters, [B[1], B[2]])
    client = BrokerClient(1, Random(1), parameters, [B[0], B[1]])
    nodes = (broker, client)
    for node in nodes:
        node.start(0)
    client.obey(0, Subscribe(0, HERE))
    for k, (sender, message) in enumerate(received):
        for node in nodes:
            for effect in node.receive(k, sender, CODEC.decode(CODEC.encode(message))):
                if isinstance(effect, Send):
                    assert CODEC.decode(CODEC.encode(effect.message)) == effect.message
    for timer in (CheckLinks(), RefreshMatcher(), ReportCounters(), CheckSettled()):
        broker.wake(100, timer)
    client.wake(100, RenewInterest(0))
    invariants(broker)


def invariants(broker: Broker) -> None:
    routes = broker.routes
    for link, forwarded in routes.forwarded.items():
        assert link in broker.links
        for name, version in forwarded.items():
            assert routes.entries[name].version == version
            assert routes.entries[name].hop != link
    assert set(broker.numbers) == set(routes.entries)
    by_hop = [(n, e) for wanted in routes._wanted.values() for n, e in wanted.items()]
    assert sorted(by_hop, key=str) == sorted(routes.entries.items(), key=str)
    hops = routes._advertised_by_hop.values()
    by_hop = [(n, p) for advertised in hops for n, p in advertised.items()]
    assert sorted(by_hop, key=str) == sorted(routes.advertisements.items(), key=str)
    assert {name: number for number, name in broker.names.items()} == broker.numbers
    assert all(e.hop in broker.links or e.hop in broker.clients for e in routes.entries.values())
    assert all(node < FIRST_SERVER for node in broker.clients)


def test_a_client_is_attached_when_its_broker_answers_though_the_first_answer_was_lost() -> None:
    client = BrokerClient(1, Random(1), Parameters(brokers=1), [B[0]])
    client.start(0)
    assert not client.ready
    client.receive(2 * SECOND, B[0], Heartbeat(0))
    assert client.ready


def test_an_overlay_gets_ready_whatever_is_lost() -> None:
    for seed in range(5):
        net = BrokerNetwork(range(20), network=Loss(0.1, Random(seed), ConstantDelay(DELAY)))
        nodes = net.simulation.nodes.values()
        while not all(node.ready for node in nodes):
            assert net.simulation.now < 60 * SECOND
            net.simulation.run(net.simulation.now + SECOND)
