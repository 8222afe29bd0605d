"""Every network model, alone and wrapped: what arrives, when, and how often it does not."""

from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from math import sqrt
from random import Random
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.node import Message, Priority
from nearcast.protocols.overlay import FIRST_SERVER
from nearcast.sim.network import (
    AccessLinkRates,
    AccessLinks,
    ConstantDelay,
    Duplication,
    Embedding,
    FaultyNetwork,
    InOrder,
    Jitter,
    Loss,
    Network,
    NetworkParameters,
    PacketLoss,
    Reordering,
    make_network,
)
from support.examples import examples

MANY = 20_000
DELAY = 50_000


class ScriptedNetwork:
    """Answers with prepared delays, whoever asks, and remembers when it was asked."""

    def __init__(self, answers: list[list[int]]) -> None:
        self._answers = iter(answers)
        self.called_at: list[int] = []

    def route(self, now: int, source: int, target: int, size: int) -> list[int]:  # noqa: ARG002
        self.called_at.append(now)
        return next(self._answers)


def answers(network: Network, many: int = MANY) -> list[list[int]]:
    return [network.route(0, 1, 2, 100) for _ in range(many)]


def likely(hits: int, many: int, probability: float) -> bool:
    """Within five standard deviations of a binomial's mean; exact for 0 and 1."""
    deviation = sqrt(many * probability * (1 - probability))
    return abs(hits - many * probability) <= 5 * deviation


def test_a_constant_network_treats_all_alike() -> None:
    network = ConstantDelay(7)
    assert {tuple(network.route(t, a, b, s)) for t, a, b, s in [(0, 1, 2, 3), (9, 8, 7, 6)]} == {
        (7,)
    }


# Loss, duplication, reordering: how often, and by how much.


@pytest.mark.parametrize("probability", [0.0, 0.02, 0.5, 0.97, 1.0])
def test_messages_are_lost_as_often_as_the_probability_says(probability: float) -> None:
    got = answers(Loss(probability, Random(1), ConstantDelay(DELAY)))
    assert likely(got.count([]), MANY, probability)
    assert got.count([]) + got.count([DELAY]) == MANY


def test_each_copy_is_lost_on_its_own() -> None:
    got = Counter(
        map(len, answers(Loss(0.5, Random(2), Duplication(1.0, Random(3), ConstantDelay(5)))))
    )
    assert likely(got[0], MANY, 0.25)
    assert likely(got[1], MANY, 0.5)
    assert likely(got[2], MANY, 0.25)


@pytest.mark.parametrize("probability", [0.0, 0.05, 0.5, 1.0])
def test_messages_are_doubled_as_often_as_the_probability_says(probability: float) -> None:
    got = answers(Duplication(probability, Random(4), ConstantDelay(DELAY)))
    assert likely(sum(len(copies) == 2 for copies in got), MANY, probability)
    assert all(copies[0] == DELAY and len(copies) <= 2 for copies in got)


def test_the_second_copy_is_up_to_as_late_again_as_the_first() -> None:
    seconds = [copies[1] for copies in answers(Duplication(1.0, Random(5), ConstantDelay(DELAY)))]
    assert min(seconds) >= DELAY
    assert max(seconds) <= 2 * DELAY + 1
    assert max(seconds) - min(seconds) > 0.99 * DELAY


def test_what_is_lost_is_not_doubled() -> None:
    assert answers(Duplication(1.0, Random(6), ScriptedNetwork([[]])), 1) == [[]]


@pytest.mark.parametrize("probability", [0.0, 0.1, 1.0])
def test_messages_are_held_back_as_often_as_the_probability_says(probability: float) -> None:
    most = 30_000
    got = answers(Reordering(probability, most, Random(7), ConstantDelay(DELAY)))
    held = [delay for [delay] in got if delay != DELAY]
    assert likely(len(held), MANY, probability)
    if held:
        assert DELAY < min(held) < DELAY + 0.01 * most
        assert DELAY + 0.99 * most < max(held) <= DELAY + most


def test_a_message_that_is_held_back_is_overtaken() -> None:
    network = Reordering(0.5, 10_000, Random(8), ConstantDelay(DELAY))
    arrivals = [t + network.route(t, 1, 2, 100)[0] for t in range(0, 100_000, 100)]
    assert arrivals != sorted(arrivals)


# Jitter, and the order that it would break.


@given(
    delay=st.integers(0, 10**6),
    most=st.integers(0, 10**6),
    seed=st.integers(0, 99),
    copies=st.integers(0, 3),
)
def test_jitter_stays_within_its_bounds_and_never_before_now(
    delay: int, most: int, seed: int, copies: int
) -> None:
    got = Jitter(most, Random(seed), ScriptedNetwork([[delay] * copies])).route(5, 1, 2, 3)
    assert len(got) == copies
    assert all(max(0, delay - most) <= late <= delay + most for late in got)


def test_jitter_is_uniform_and_each_copy_has_its_own() -> None:
    network = Jitter(5_000, Random(9), Duplication(0.0, Random(1), ConstantDelay(DELAY)))
    got = np.array([delay for [delay] in answers(network)])
    quarters = np.quantile(got, [0.0, 0.25, 0.5, 0.75, 1.0])
    assert np.abs(quarters - [45_000, 47_500, 50_000, 52_500, 55_000]).max() < 200
    apart = Jitter(5_000, Random(9), ScriptedNetwork([[DELAY, DELAY]] * 100))
    assert sum(first != second for first, second in answers(apart, 100)) > 90


@given(
    sends=st.lists(
        st.tuples(
            st.integers(0, 50),  # until the next message is sent
            st.sampled_from([(1, 2), (2, 1), (1, 3)]),
            st.lists(st.integers(0, 200), max_size=3),
        ),
        max_size=40,
    )
)
def test_in_order_nothing_of_a_pair_overtakes_and_nothing_waits_without_need(
    sends: list[tuple[int, tuple[int, int], list[int]]],
) -> None:
    network = InOrder(ScriptedNetwork([delays for _, _, delays in sends]))
    latest: Counter[tuple[int, int]] = Counter()
    now = 0
    for gap, (source, target), delays in sends:
        now += gap
        for delay, got in zip(delays, network.route(now, source, target, 9), strict=True):
            latest[source, target] = max(latest[source, target], now + delay)
            assert now + got == latest[source, target]


# Hosts in a plane of milliseconds.


@given(seed=st.integers(0, 9), nodes=st.permutations(range(6)))
@examples(30)
def test_a_place_depends_on_seed_and_node_alone(seed: int, nodes: list[int]) -> None:
    asked, reference = Embedding(seed), Embedding(seed)
    places = {node: asked.place(node) for node in nodes}
    assert places == {node: reference.place(node) for node in range(6)}
    assert Embedding(seed + 1).place(0) != places[0]


def test_distances_are_symmetric_and_at_least_a_millisecond() -> None:
    network = Embedding(1)
    for a in range(0, 200, 7):
        for b in range(0, 200, 3):
            there = network.route(0, a, b, 10)
            assert there == network.route(99, b, a, 5_000)
            assert there[0] >= 1_000
    assert network.route(0, 4, 4, 10) == [1_000]


def test_a_distance_is_the_straight_line_between_two_places() -> None:
    network = Embedding(3)
    (ax, ay), (bx, by) = network.place(10), network.place(11)
    assert network.route(0, 10, 11, 1) == [round(sqrt((ax - bx) ** 2 + (ay - by) ** 2) * 1_000)]


@pytest.mark.parametrize("seed", [1, 2])
def test_pair_distances_have_the_percentiles_of_the_measured_hosts(seed: int) -> None:
    """OverSim's 15,000 hosts."""
    network, rng = Embedding(seed), Random(seed)
    pairs = (rng.sample(range(2_000), 2) for _ in range(MANY))
    got = np.quantile(
        [network.route(0, a, b, 1)[0] / 1_000 for a, b in pairs], [0.25, 0.5, 0.75, 0.9]
    )
    assert np.abs(got / [35, 70, 107, 157] - 1).max() < 0.15


# Lines with rates and queues. A message of 1,250 bytes takes 10 ms at 1 Mbit/s.

HOME = AccessLinkRates(1e6, 16e6, 5_000)
ENDLESS = 10**12


def homes(node: int) -> AccessLinkRates:  # noqa: ARG001
    return HOME


def test_a_burst_leaves_the_uplink_at_the_spacing_of_its_rate() -> None:
    network = AccessLinks(homes, ENDLESS, ConstantDelay(DELAY))
    got = [network.route(0, 1, 2 + k, 1_250) for k in range(5)]
    # The uplink, the last hop, the network, the other last hop, and 10,000 bits at 16 Mbit/s.
    assert got == [[(k + 1) * 10_000 + 5_000 + DELAY + 5_000 + 625] for k in range(5)]


def test_an_uplink_that_has_fallen_idle_makes_nobody_wait() -> None:
    network = AccessLinks(homes, ENDLESS, ConstantDelay(DELAY))
    alone = network.route(0, 1, 2, 1_250)
    assert network.route(4_000, 1, 3, 1_250) == [alone[0] + 6_000]
    assert network.route(20_000, 1, 4, 1_250) == alone


def test_the_inner_network_is_called_when_the_message_has_left_the_uplink() -> None:
    inner = ScriptedNetwork([[0]] * 3)
    network = AccessLinks(homes, ENDLESS, inner)
    for _ in range(3):
        network.route(1_000, 1, 2, 1_250)
    assert inner.called_at == [11_000, 21_000, 31_000]


@pytest.mark.parametrize(("queue", "sent"), [(0, 1), (29_999, 3), (30_000, 4), (35_000, 4)])
def test_what_would_wait_longer_than_the_queue_is_lost(queue: int, sent: int) -> None:
    network = AccessLinks(homes, queue, ConstantDelay(DELAY))
    got = [network.route(0, 1, 2 + k, 1_250) for k in range(20)]
    assert [bool(delays) for delays in got] == [True] * sent + [False] * (20 - sent)
    # What was lost takes no room: once all others have left, the line is free at once.
    assert network.route(10_000 * sent, 1, 99, 1_250) == got[0]


def test_two_senders_share_the_downlink_of_their_receiver() -> None:
    fast = AccessLinkRates(1e9, 1e6, 0)
    network = AccessLinks(lambda _: fast, ENDLESS, ConstantDelay(DELAY))
    up = 10  # 10,000 bits at 1 Gbit/s
    got = [network.route(0, sender, 9, 1_250) for sender in (1, 2, 3)]
    assert got == [[up + DELAY + (k + 1) * 10_000] for k in range(3)]
    assert network.route(0, 4, 8, 1_250) == got[0], "another receiver has a line of its own"


def test_what_finds_the_downlink_too_busy_is_lost() -> None:
    fast = AccessLinkRates(1e9, 1e6, 0)
    network = AccessLinks(lambda _: fast, 25_000, ConstantDelay(DELAY))
    got = [network.route(0, sender, 9, 1_250) for sender in range(6)]
    assert [len(delays) for delays in got] == [1, 1, 1, 0, 0, 0]


def test_a_message_takes_the_first_gap_on_the_downlink_in_which_it_fits() -> None:
    """At 8 Mbit/s a byte takes a microsecond; uplinks take no time."""
    ways = [[0], [300], [100], [100], [0], [400]]
    network = AccessLinks(lambda _: AccessLinkRates(1e15, 8e6, 0), ENDLESS, ScriptedNetwork(ways))
    assert network.route(0, 1, 9, 100) == [100]
    assert network.route(0, 2, 9, 100) == [400]
    assert network.route(0, 3, 9, 150) == [250], "before what was sent earlier and arrives later"
    assert network.route(0, 4, 9, 60) == [460], "50 are free, and what has a place keeps it"
    assert network.route(0, 5, 9, 50) == [300], "but 50 fit"
    assert network.route(0, 6, 9, 10) == [470]


def test_every_copy_crosses_the_downlink() -> None:
    network = AccessLinks(homes, ENDLESS, ScriptedNetwork([[1_000, 1_000], []]))
    first = 10_000 + 5_000 + 1_000 + 5_000 + 625
    assert network.route(0, 1, 2, 1_250) == [first, first + 625]
    assert network.route(0, 1, 2, 1_250) == []


def test_of_the_adsl_world_servers_have_fat_lines_without_a_last_hop() -> None:
    network, distance = make_network(NetworkParameters(network="adsl"), 5), Embedding(5)
    a, b, home = FIRST_SERVER, FIRST_SERVER + 1, 3
    for source, target, up, down in [
        (a, b, 100, 100),  # 10,000 bits at 100 Mbit/s
        (a, home, 100, 5_000 + 625),
        (home, a, 10_000 + 5_000, 100),
        (home, 4, 10_000 + 5_000, 5_000 + 625),
    ]:
        fresh = make_network(NetworkParameters(network="adsl"), 5)
        between = distance.route(0, source, target, 1)[0]
        assert fresh.route(0, source, target, 1_250) == [up + between + down]
    assert network.route(0, home, a, 125 * 2_010) != []
    assert network.route(0, home, a, 1) == [], "two seconds of queue are full"


# Cut off, and slow.


def test_nothing_crosses_a_partition_either_way_until_it_heals() -> None:
    network = FaultyNetwork(ConstantDelay(DELAY))
    network.group.update({1: 1, 2: 1, 3: 2})
    routes = {(a, b): network.route(0, a, b, 1) for a in range(5) for b in range(5)}
    together = [{0, 4}, {1, 2}, {3}]
    for (a, b), delays in routes.items():
        assert delays == ([DELAY] if any({a, b} <= group for group in together) else [])
    network.group.clear()
    assert all(network.route(0, a, b, 1) == [DELAY] for a, b in routes)


def test_what_is_cut_off_never_reaches_the_inner_network() -> None:
    inner = ScriptedNetwork([])
    network = FaultyNetwork(inner)
    network.group[1] = 1
    network.route(0, 1, 2, 100)
    assert inner.called_at == []


def test_a_slow_node_is_late_with_what_it_sends_and_with_what_it_receives() -> None:
    network = FaultyNetwork(ScriptedNetwork([[10, 20]] * 4))
    network.slow.update({1: 500, 2: 70})
    assert network.route(0, 3, 4, 1) == [10, 20]
    assert network.route(0, 1, 4, 1) == [510, 520]
    assert network.route(0, 4, 2, 1) == [80, 90]
    assert network.route(0, 1, 2, 1) == [580, 590]


# All of them together, as settings describe them.


def test_the_default_network_has_a_constant_delay_of_50_ms() -> None:
    network = make_network(NetworkParameters(), 1)
    assert isinstance(network, ConstantDelay)
    assert network.delay == 50_000


def test_in_a_data_centre_only_servers_are_near_each_other() -> None:
    network = make_network(NetworkParameters(network="centre", latency_ms=30.0), 1)
    first, second = FIRST_SERVER, FIRST_SERVER + 1
    pairs = [(first, second), (first, 5), (5, second), (5, 6)]
    assert [network.route(0, *pair, 100) for pair in pairs] == [
        [1000],
        [30_000],
        [30_000],
        [30_000],
    ]
    near = make_network(NetworkParameters(network="centre", latency_ms=0.5), 1)
    assert near.route(0, first, second, 100) == [500]


@pytest.mark.parametrize("network", ["constant", "centre", "embedding", "adsl"])
def test_equal_seeds_make_equal_networks(network: str) -> None:
    chosen = NetworkParameters(network=network, jitter_ms=5, loss=0.1, duplicate=0.1, reorder=0.1)

    def duplicated(seed: int) -> list[list[int]]:
        made = make_network(chosen, seed)
        return [made.route(t * 100, t % 7, t % 11, 200) for t in range(500)]

    assert duplicated(1) == duplicated(1)
    assert duplicated(1) != duplicated(2)


def test_jitter_may_begin_with_the_workload_and_order_is_kept_across() -> None:
    setting_up = True
    chosen = NetworkParameters(latency_ms=50.0, jitter_ms=40.0, set_up_jitter=False)
    made = make_network(chosen, 1, lambda: setting_up)
    assert {made.route(t, 1, 2, 100)[0] for t in range(100)} == {50_000}
    setting_up = False
    arrivals = [t + made.route(t, 1, 2, 100)[0] for t in range(100, 60_000, 100)]
    assert arrivals == sorted(arrivals)
    assert arrivals[0] >= 99 + 50_000
    assert len({made.route(0, 3, n, 100)[0] for n in range(100)}) > 50


def test_each_random_effect_has_a_stream_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[object, ...]] = []

    def stream(*purpose: object) -> Random:
        asked.append(purpose)
        return Random(1)

    monkeypatch.setattr("nearcast.sim.network.stream", stream)
    make_network(NetworkParameters(jitter_ms=5, loss=0.1, duplicate=0.1, reorder=0.1), 7)
    assert len(asked) == len(set(asked)) == 4
    assert {seed for seed, *_ in asked} == {7}


@pytest.mark.parametrize("more", [{"loss": 0.3}, {"duplicate": 0.3}, {"reorder": 0.3}])
def test_another_random_effect_does_not_change_the_others(more: dict[str, float]) -> None:
    plain = answers(make_network(NetworkParameters(jitter_ms=5), 1), 500)
    with_more: Callable[..., NetworkParameters] = NetworkParameters
    richer = answers(make_network(with_more(jitter_ms=5, **more), 1), 500)
    same = sum(a[0] == b[0] for a, b in zip(plain, richer, strict=True) if b)
    assert same >= 300, "those whom the new chance has spared are as they were"
    assert plain != richer


@pytest.mark.parametrize("network", ["constant", "embedding"])
def test_jitter_as_settings_have_it_never_lets_a_pair_overtake(network: str) -> None:
    made = make_network(NetworkParameters(network=network, jitter_ms=40), 3)
    arrivals = [t + made.route(t, 1, 2, 100)[0] for t in range(0, 2_000_000, 1_000)]
    assert all(earlier <= later for earlier, later in pairwise(arrivals))
    gaps = {later - earlier for earlier, later in pairwise(arrivals)}
    assert len(gaps) > 100, "there is jitter"


def test_rates_hold_when_all_is_wrapped() -> None:
    chosen = NetworkParameters(jitter_ms=5, loss=0.1, duplicate=0.2, reorder=0.3, reorder_ms=10)
    got = Counter(map(len, answers(make_network(chosen, 1))))
    assert likely(got[0], MANY, 0.8 * 0.1 + 0.2 * 0.01)
    assert likely(got[2], MANY, 0.2 * 0.81)


@pytest.mark.parametrize(
    "wrong",
    [
        {"network": "carrier pigeon"},
        {"loss": 1.01},
        {"duplicate": -0.1},
        {"reorder": float("nan")},
        {"latency_ms": -1.0},
        {"jitter_ms": float("inf")},
        {"last_hop_ms": -1.0},
        {"queue_ms": float("nan")},
        {"reorder_ms": 0.0},
        {"up_mbit": 0.0},
        {"down_mbit": -1.0},
        {"server_mbit": float("nan")},
    ],
)
def test_settings_out_of_range_are_refused_by_name(wrong: dict[str, float]) -> None:
    refuse: Callable[..., NetworkParameters] = NetworkParameters
    with pytest.raises(ValueError, match=next(iter(wrong))):
        refuse(**wrong)


def test_a_congested_sender_does_not_block_the_idle_line_of_its_receiver() -> None:
    rates = AccessLinkRates(1e6, 16e6, 5_000)
    network = AccessLinks(lambda _: rates, 10_000_000, ConstantDelay(50_000))
    for _ in range(100):
        network.route(0, 1, 3, 1250)  # a second of uplink
    (delay,) = network.route(0, 2, 3, 125)
    assert delay == 1_000 + 5_000 + 50_000 + 5_000 + 62


# Packets that are lost, for each kind of message.


class Ordered(Message, frozen=True, tag=1):
    """As most are."""


class Unordered(Message, frozen=True, tag=2):
    """Waits for nothing."""

    ordered: ClassVar[bool] = False


class Lossy(Message, frozen=True, tag=3):
    """Is not sent again."""

    lossy: ClassVar[bool] = True


class Bulk(Message, frozen=True, tag=4):
    """Is on another stream."""

    priority: ClassVar[Priority] = Priority.BULK


class ScriptedLoss(Random):
    """Loses what it is told to."""

    def __init__(self, *lost: bool) -> None:
        super().__init__()
        self._lost = list(lost)

    def random(self) -> float:
        return 0.0 if self._lost and self._lost.pop(0) else 0.999


def test_a_lossy_message_is_lost_with_its_packet_and_any_other_is_sent_again() -> None:
    loss = PacketLoss(0.5, ScriptedLoss(True, True, True, False, True, True, False))
    ends, again = (1, 2), 2 * DELAY * 9 // 8
    assert loss.delays(Lossy(), 0, ends, 10, [DELAY, DELAY]) == []
    assert loss.delays(Unordered(), 0, ends, 10, [DELAY]) == [DELAY + again]
    assert loss.delays(Ordered(), 0, ends, 10, [DELAY]) == [DELAY + 2 * again]
    assert loss.delays(Lossy(), 0, ends, 10, [DELAY]) == [DELAY]


def test_only_what_is_ordered_waits_and_only_for_its_own_priority_and_link() -> None:
    loss = PacketLoss(0.5, ScriptedLoss(True))
    late = DELAY + 2 * DELAY * 9 // 8
    assert loss.delays(Ordered(), 0, (1, 2), 10, [DELAY]) == [late]
    assert loss.delays(Ordered(), 1000, (1, 2), 10, [DELAY]) == [late - 1000]
    for message, ends in ((Unordered(), (1, 2)), (Bulk(), (1, 2)), (Ordered(), (2, 1))):
        assert loss.delays(message, 2000, ends, 10, [DELAY]) == [DELAY]
    assert loss.delays(Ordered(), late, (1, 2), 10, [DELAY]) == [DELAY]


def test_a_message_of_several_packets_is_lost_with_any_of_them() -> None:
    loss = PacketLoss(0.1, Random(1))
    arrived = sum(len(loss.delays(Lossy(), 0, (1, 2), 3500, [DELAY])) for _ in range(MANY))
    assert likely(arrived, MANY, 0.9**4)


@pytest.mark.parametrize("loss", [-0.1, 1.0, 2.0])
def test_packets_are_not_all_lost(loss: float) -> None:
    with pytest.raises(ValueError, match="packet_loss must be from 0 to below 1"):
        NetworkParameters(packet_loss=loss)
