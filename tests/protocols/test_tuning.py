"""Variables of the application, from the command to the server and into the trace."""

from random import Random

from nearcast.model.commands import Move, Publish, Subscribe, Tune, Unsubscribe
from nearcast.model.subscription import Filter, Formula, Subscription
from nearcast.node import Note, Send
from nearcast.protocols.client_server import KIND, Interest, Notify, Post, Tuned
from nearcast.sim.network import ConstantDelay
from nearcast.sim.simulation import Simulation
from nearcast.space.motion import SECOND, Moving
from nearcast.space.shapes import disc, point
from nearcast.trace.recorder import Recorder
from nearcast.trace.sinks import MemoryTrace
from support.brute_force import delivered, expected
from support.client_server_nodes import ANN, BEN, SERVER, client, make_publication, server

WIDE = Subscribe(7, "x <= view + t", variables={"view": 3.0})


def bound(view: float, since: int) -> Subscription:
    return Subscription(7, ANN, Formula(f"x <= {view} + t", since))


def test_a_client_sends_numbers_and_never_names() -> None:
    ann = client()
    assert ann.obey(5, WIDE) == [Send(SERVER, Interest(bound(3.0, 5)))]
    assert ann.obey(9, Tune(7, {"view": 4.5})) == [Send(SERVER, Tuned(bound(4.5, 5), 9))]
    assert ann.subscriptions == {7: bound(4.5, 5)}


def test_a_tune_of_what_has_no_variables_is_ignored_and_one_without_a_value_refused() -> None:
    ann = client()
    ann.obey(0, Subscribe(8, Moving(disc(0, 0, 1))))
    assert ann.obey(1, Tune(7, {"view": 1.0})) == [Note("ignored", 7)]
    assert ann.obey(1, Tune(8, {"view": 1.0})) == [Note("ignored", 8)]
    ann.obey(2, Subscribe(7, "x <= 1 / view", variables={"view": 2.0}))
    before = dict(ann.subscriptions)
    assert ann.obey(3, Tune(7, {"view": 0.0})) == [Note("refused", 7)]
    assert ann.subscriptions == before
    ann.obey(4, Unsubscribe(7))
    assert ann.obey(5, Tune(7, {"view": 1.0})) == [Note("ignored", 7)]


def test_a_moved_subscription_keeps_its_filter_s_variables() -> None:
    ann = client()
    ann.obey(0, Subscribe(7, "x < v", "price < v", variables={"v": 1.0}))
    ann.obey(5, Move(7, Moving(disc(0, 0, 1))))
    tuned = Subscription(7, ANN, Moving(disc(0, 0, 1), since=9), Filter("price < 2.0", 0))
    assert ann.obey(9, Tune(7, {"v": 2.0})) == [Send(SERVER, Tuned(tuned, 9))]


def test_the_server_keeps_the_newest_numbers_in_whatever_order_they_come() -> None:
    known = server()
    assert known.receive(1, ANN, Tuned(bound(4.0, 5), 9)) == []
    assert known.receive(2, ANN, Interest(bound(3.0, 5))) == [Note("ignored", 7)]
    assert known.receive(2, ANN, Tuned(bound(3.5, 5), 7)) == [Note("ignored", 7)]
    assert known.receive(3, ANN, Tuned(bound(5.0, 5), 11)) == []
    assert known.receive(4, BEN, Tuned(bound(1.0, 5), 12)) == [Note("refused", 7)]
    publication = make_publication(1, BEN, 4.5, 12)
    assert known.receive(5, BEN, Post(publication)) == [Send(ANN, Notify(publication, (7,)))]
    assert known.receive(6, ANN, Interest(bound(0.0, 20))) == []  # a new subscription altogether
    assert known.receive(7, BEN, Post(make_publication(2, BEN, 4.5, 21))) == []


def test_what_is_delivered_after_tunes_is_what_the_trace_expects() -> None:
    sink = MemoryTrace()
    recorder = Recorder(sink)
    overlay = KIND.make(KIND.parameters(matcher="swept"), Random)
    world = Simulation(ConstantDelay(1_000), KIND.codec, recorder)
    for node in (*overlay.servers(), client(ANN), client(BEN)):
        world.start(node)
    numbers = {"view": 3.0, "most": 5.0}
    world.obey(ANN, Subscribe(7, "x <= view + t, x >= 0", "weight < most", variables=numbers))
    publications = 0
    for second in range(1, 12):
        world.run(second * SECOND)
        if second in (4, 8):
            world.obey(ANN, Tune(7, {"view": 9.0 - second}))
        if second == 6:
            world.obey(ANN, Tune(7, {"most": 2.0}))
        world.run(second * SECOND + SECOND // 2)
        for x in range(0, 20, 2):
            publications += 1
            world.obey(BEN, Publish(publications, point(x, 0), attributes={"weight": second % 5}))
    world.run(20 * SECOND)
    recorder.close()
    wanted = expected(sink.table("interests"), sink.table("publications"))
    assert sorted(delivered(sink.table("deliveries"))) == sorted(wanted)
    assert 10 < len(wanted) < publications
    rows = sink.table("interests").to_pylist()
    assert [row["t"] // SECOND for row in rows] == [0, 4, 6, 8]
    assert {row["since"] for row in rows} == {0}
