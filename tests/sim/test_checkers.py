"""Each checker finds what it is for, and is silent otherwise."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.errors import InvariantError
from nearcast.model.publication import Publication
from nearcast.node import Message, Node, Timer
from nearcast.protocols import PROTOCOLS
from nearcast.scenario import Scenario
from nearcast.sim.checkers import (
    Checker,
    DeliveredOnce,
    InvariantChecker,
    NotBeforePublished,
)
from nearcast.sim.network import ConstantDelay
from nearcast.sim.simulation import Simulation
from nearcast.sim.world import SimulatedWorld
from nearcast.space.shapes import point
from nearcast.trace.reader import digest
from nearcast.trace.recorder import Recorder
from nearcast.trace.sinks import MemoryTrace
from nearcast.wire import Codec
from support.publisher_order import PublisherOrder


def make_publication(number: int, node: int = 1, t: int = 0) -> Publication:
    return Publication(number, node, t, point(0, 0))


def test_once_finds_what_is_delivered_twice_for_one_subscription() -> None:
    checker = DeliveredOnce()
    checker.delivered(10, 5, make_publication(1), 100)
    with pytest.raises(InvariantError, match=r"at 20 node 5 received publication 1 twice .* 100"):
        checker.delivered(20, 5, make_publication(1), 100)


def test_once_accepts_other_subscriptions_and_other_publications() -> None:
    checker = DeliveredOnce()
    for publication in range(20):
        for subscription in range(20):
            checker.delivered(10, subscription % 3, make_publication(publication), subscription)


def test_once_remembers_for_as_long_as_it_should_and_then_forgets() -> None:
    checker = DeliveredOnce(memory=100)
    for t in range(0, 1000, 10):
        checker.delivered(t, 5, make_publication(t), 100)
    with pytest.raises(InvariantError, match="publication 900 twice"):
        checker.delivered(1000, 5, make_publication(900), 100)
    checker.delivered(1000, 5, make_publication(700), 100)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_world_that_checks_itself_watches_the_deliveries_of_every_protocol(protocol: str) -> None:
    scenario = Scenario(protocol=protocol, workload="waypoint", nodes=4, seconds=1, seed=1)
    world = SimulatedWorld(scenario, lambda _: Recorder(MemoryTrace()), check=True)
    kinds = {type(checker) for checker in world.simulation.checkers}
    assert {DeliveredOnce, NotBeforePublished} <= kinds


@given(deliveries=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=12))
def test_once_rejects_exactly_the_histories_with_a_repetition(
    deliveries: list[tuple[int, int]],
) -> None:
    checker, broken = DeliveredOnce(), False
    try:
        for publication, subscription in deliveries:
            checker.delivered(0, 1, make_publication(publication), subscription)
    except InvariantError:
        broken = True
    assert broken == (len(set(deliveries)) < len(deliveries))


def test_order_finds_an_earlier_publication_of_a_publisher_after_a_later_one() -> None:
    checker = PublisherOrder()
    checker.delivered(50, 5, make_publication(2, t=20), 100)
    with pytest.raises(
        InvariantError, match="at 60 node 5 received publication 1 of 1 after a later"
    ):
        checker.delivered(60, 5, make_publication(1, t=10), 100)


def test_order_remembers_the_latest_and_not_only_the_last() -> None:
    checker = PublisherOrder()
    for number, t in [(1, 10), (2, 20), (3, 20)]:
        checker.delivered(50, 5, make_publication(number, t=t), 100)
    with pytest.raises(InvariantError):
        checker.delivered(60, 5, make_publication(4, t=19), 100)


def test_order_accepts_any_order_across_publishers_and_subscriptions() -> None:
    checker = PublisherOrder()
    checker.delivered(50, 5, make_publication(2, node=1, t=20), 100)
    checker.delivered(51, 5, make_publication(3, node=2, t=10), 100)
    checker.delivered(52, 5, make_publication(1, node=1, t=10), 101)
    checker.delivered(53, 5, make_publication(4, node=1, t=20), 100)


def test_not_before_finds_what_is_delivered_before_it_was_published() -> None:
    checker = NotBeforePublished()
    checker.delivered(50, 5, make_publication(1, t=50), 100)
    checker.delivered(51, 5, make_publication(1, t=50), 101)
    with pytest.raises(InvariantError, match=r"at 49 node 5 .* made at 50"):
        checker.delivered(49, 5, make_publication(1, t=50), 100)


# In a simulation.


class DeliverTimer(Timer, frozen=True):
    number: int


TimedDelivery = tuple[int, Publication, tuple[int, ...]]  # when, what, and for which subscriptions


class DeliveringNode(Node):
    """Delivers the given publications at the given times."""

    def __init__(self, deliveries: list[TimedDelivery]) -> None:
        super().__init__(5, Random(5))
        self.deliveries = deliveries

    def on_start(self) -> None:
        for number, (delay, _, _) in enumerate(self.deliveries):
            self.out.set_timer(DeliverTimer(number), delay)

    def on_timer(self, timer: Timer) -> None:
        assert isinstance(timer, DeliverTimer)
        _, publication, subscriptions = self.deliveries[timer.number]
        self.out.deliver(publication, subscriptions, 1)

    def on_message(self, sender: int, message: Message) -> None:
        raise AssertionError(f"nobody sends anything, yet {sender} sent {message}")


class Word(Message, frozen=True, tag=1):
    pass


class CallLog(Checker):
    def __init__(self) -> None:
        self.entries: list[tuple[object, ...]] = []

    def delivered(self, now: int, node: int, publication: Publication, subscription: int) -> None:
        self.entries.append((now, node, publication.id, subscription))

    def passed(self, now: int) -> None:
        self.entries.append((now, "passed"))


def run(deliveries: list[TimedDelivery], *checkers: Checker) -> None:
    simulation = Simulation(ConstantDelay(50), Codec(Word), Recorder(MemoryTrace()), checkers)
    simulation.start(DeliveringNode(deliveries))
    simulation.run(100)


def test_a_host_shows_its_checkers_every_delivery_and_the_end_of_every_moment() -> None:
    calls, second = CallLog(), CallLog()
    run(
        [
            (30, make_publication(2), (9,)),
            (20, make_publication(1), (7, 8)),
            (30, make_publication(3), ()),
        ],
        calls,
    )
    assert calls.entries == [
        (20, 5, 1, 7),
        (20, 5, 1, 8),
        (20, "passed"),
        (30, 5, 2, 9),
        (30, "passed"),
    ]
    run([(20, make_publication(1), (7,))], Checker(), second)
    assert second.entries == [(20, 5, 1, 7), (20, "passed")]


@pytest.mark.parametrize(
    ("checker", "deliveries"),
    [
        (DeliveredOnce, [(20, make_publication(1), (7,)), (30, make_publication(1), (8, 7))]),
        (DeliveredOnce, [(20, make_publication(1), (7, 7))]),
        (
            PublisherOrder,
            [(20, make_publication(1, t=9), (7,)), (30, make_publication(2, t=8), (7,))],
        ),
        (NotBeforePublished, [(20, make_publication(1, t=21), (7,))]),
    ],
)
def test_a_run_that_breaks_an_invariant_ends_there(
    checker: type[Checker], deliveries: list[TimedDelivery]
) -> None:
    with pytest.raises(InvariantError):
        run(deliveries, checker())


def test_a_correct_run_violates_no_invariant() -> None:
    deliveries: list[TimedDelivery] = [
        (10 * k, make_publication(k, t=10 * k), (7, 8)) for k in range(1, 10)
    ]
    run(deliveries, DeliveredOnce(), PublisherOrder(), NotBeforePublished())


@pytest.mark.parametrize("protocol", ["drtree", "bubblestorm", "vso"])
def test_checking_invariants_changes_nothing_in_a_run(protocol: str) -> None:
    digests = []
    for check in (False, True):
        memory = MemoryTrace()
        scenario = Scenario(protocol=protocol, workload="waypoint", nodes=12, seconds=2)
        world = SimulatedWorld(scenario, lambda _, memory=memory: Recorder(memory), check=check)
        kinds = [DeliveredOnce, NotBeforePublished, InvariantChecker] if check else []
        assert [type(one) for one in world.simulation.checkers] == kinds
        world.run()
        world.recorder.close()
        digests.append(digest(memory))
    assert digests[0] == digests[1]
