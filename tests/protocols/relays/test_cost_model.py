"""The rules of relays and the round model: the paper's numbers, and the naive way of counting."""

from itertools import pairwise
from math import inf
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.protocols.relays import bloom, cost_model, kernels, rounds
from nearcast.protocols.relays.cost_model import Weights
from nearcast.protocols.relays.kernels import NOTHING, REDIR, Flows
from support.examples import examples
from support.relay_peers import NaiveConfiguration, Scene, scene

EXAMPLES = examples(15)
SEEDS = st.integers(0, 1000)


def made(scene: Scene) -> Flows:
    interest, delay, capacity, payload, header = scene
    return rounds.flows(interest, delay, capacity, payload=payload, header=header)


def test_targets_and_costs_are_the_papers() -> None:
    assert cost_model.bound_at(0.5, 1.0) == pytest.approx(0.125)
    assert cost_model.bound_at(0.5, 0.0) == 0.5
    assert cost_model.utilisation_cost(0.4) == cost_model.utilisation_cost(0.1) == 0.0
    assert cost_model.utilisation_cost(1.4) == pytest.approx(1.0)
    bounds = cost_model.bounds_at(0.0, Weights())
    assert cost_model.latency_cost(0.4, bounds, Weights()) == 0.0
    assert cost_model.latency_cost(0.8, bounds, Weights()) == pytest.approx(0.09)
    assert cost_model.latency_cost(0.8, bounds, Weights(latency=2.0)) == pytest.approx(0.18)


def test_bounds_are_penalties_above_and_below() -> None:
    weights = Weights(lower=0.2, upper=0.6, breach=10.0)
    bounds = cost_model.bounds_at(0.0, weights)
    assert cost_model.latency_cost(0.1, bounds, weights) == pytest.approx(0.01)
    assert cost_model.latency_cost(0.7, bounds, weights) == pytest.approx(0.04 + 10 * 0.01)
    near = cost_model.bounds_at(1.0, weights)
    assert (near.lower, near.target, near.upper) == pytest.approx((0.05, 0.125, 0.15))


def test_queues_grow_with_utilisation_and_have_a_price_beyond_the_limit() -> None:
    waits = [cost_model.waiting(u / 50, 0.001) for u in range(100)]
    assert waits[0] == 0.0
    assert waits[25] == pytest.approx(0.001)
    assert all(a < b < inf for a, b in pairwise(waits))
    assert cost_model.bandwidth_cost(Weights(queueing=1.0), 0.5, 0.0) > cost_model.bandwidth_cost(
        Weights(), 0.5, 0.0
    )


def test_unreliable_forwarders_and_subscriptions_that_end_soon_cost_effort() -> None:
    assert cost_model.effort(Weights(), 0.5, 1.0) == 0.0
    assert cost_model.effort(Weights(reliability=2.0), 0.5, 1.0) == 1.0
    assert cost_model.effort(Weights(lifetime=2.0), 0.0, 4.0) == 0.5


def test_interest_is_a_gaussian_that_reaches_the_threshold_at_the_edge_of_vision() -> None:
    assert cost_model.interest_at(0.0, 5.0) == 1.0
    assert cost_model.interest_at(5.0, 5.0) == pytest.approx(0.1)
    assert cost_model.interest_at(2.5, 5.0) == pytest.approx(0.1**0.25)
    assert (
        cost_model.interest_at(5.01, 5.0)
        < cost_model.AT_THE_EDGE
        < cost_model.interest_at(4.99, 5.0)
    )
    assert cost_model.interest_at(0.0, 0.0) == 1.0
    assert cost_model.interest_at(1.0, 0.0) == 0.0


def test_in_the_papers_example_c_halves_its_messages_and_b_adds_none_of_its_own() -> None:
    """Fig. 1: A and B want C, A wants B. C sends to B alone; B's packets to A carry C's too."""
    interest = np.zeros((3, 3))
    interest[0, 2] = interest[1, 2] = interest[0, 1] = 1.0
    f = rounds.flows(interest, np.full((3, 3), 0.01), np.full(3, 2000.0))
    assert f.load.tolist() == [0.0, 1024.0, 2048.0]
    kind, source, _, _, gain, weighed = kernels.best_option(f, Weights(), 2)
    assert (kind, source, weighed) == (REDIR, 2, 2)
    assert gain > 0
    kernels.redirect(f, 2, 0, int(f.place[0, 2]), int(f.place[1, 2]))
    assert rounds.path(f, 2, 0) == [2, 1, 0]
    assert f.load.tolist() == [0.0, 1024.0 + 512.0, 1024.0]
    kernels.shorten(f, 2, int(f.place[1, 2]), int(f.place[0, 2]))
    assert rounds.path(f, 2, 0) == [2, 0]
    assert f.load.tolist() == [0.0, 1024.0, 2048.0]


@given(SEEDS, st.lists(st.integers(0, 10**6), max_size=25))
@EXAMPLES
def test_any_operations_keep_flows_complete_and_costs_equal_to_the_naive_ones(
    seed: int, draws: list[int]
) -> None:
    scene_ = scene(7, seed)
    f, naive = made(scene_), NaiveConfiguration(scene_)
    for draw in draws:
        offered = [option for v in range(7) for option in naive.options(v)]
        flow, path, s, u = offered[draw % len(offered)]
        source, before = flow[0], naive.paths[flow]
        place = f.place[:, source].tolist()
        if len(path) > len(before):
            kernels.redirect(f, source, place[s], place[flow[1]], place[u])
        else:
            kernels.shorten(f, source, place[u], place[flow[1]])
        naive.paths[flow] = path
        assert abs(len(path) - len(before)) == 1
        assert rounds.path(f, *flow) == list(path)
    for node in range(7):
        assert f.load[node] / f.capacity[node] == pytest.approx(
            naive.utilisation(node, naive.paths)
        )
    for (s, d), path in naive.paths.items():
        at = f.first[s] + f.place[d, s]
        assert (f.hops[at], f.latency[at]) == (
            len(path) - 1, pytest.approx(naive.latency(path))
        )  # fmt: skip


@given(SEEDS, st.sampled_from([Weights(), Weights(latency=40.0), Weights(queueing=9.0)]))
@EXAMPLES
def test_a_step_weighs_exactly_the_papers_options_and_takes_the_best(
    seed: int, weights: Weights
) -> None:
    scene_ = scene(7, seed, capacity=3000.0)
    f, naive = made(scene_), NaiveConfiguration(scene_)
    taken = []
    for v in [*range(7)] * 3:
        offered = naive.options(v)
        gains = [naive.gain(option, weights) for option in offered]
        kind, source, to, via, gain, weighed = kernels.best_option(f, weights, v)
        assert weighed == len(offered)
        if not offered:
            assert kind == NOTHING
            continue
        assert gain == pytest.approx(max(gains), rel=1e-6, abs=1e-9)
        if gain < 1e-6:
            continue
        taken.append(kind)
        group = f.member[f.first[source] : f.first[source] + f.size[source]]
        flow = source, int(group[to])
        if kind == REDIR:
            kernels.redirect(f, source, int(f.place[v, source]), to, via)
        else:
            kernels.shorten(f, source, int(f.place[v, source]), to)
        naive.paths[flow] = tuple(rounds.path(f, *flow))
    assert REDIR in taken


def test_greater_thresholds_mean_fewer_operations() -> None:
    done = []
    for threshold in (0.0, 1e-3, 1.0, 100.0):
        played = rounds.optimise(made(scene(30, 3)), Weights(), threshold, 12, Random(1))
        done.append(sum(r.redirected + r.shortened for r in played))
    assert done == sorted(done, reverse=True)
    assert done[0] > done[-1]


def test_rounds_relieve_the_overloaded_and_report_how() -> None:
    f = made(scene(40, 5, density=0.4, capacity=9000.0))
    direct = f.hops[rounds.subscriptions(f)]
    assert (direct == 1).all()
    played = list(rounds.optimise(f, Weights(), 1e-3, 17, Random(2)))
    first, last = played[0], played[-1]
    assert (last.after > 1).mean() < (first.before > 1).mean() / 2
    assert last.cost < first.cost
    assert sum(r.redirected - r.shortened for r in played) == last.hops.sum() - direct.sum()
    assert (last.stretch >= 1 - 1e-9).sum() == len(last.stretch)
    for before, after in pairwise(played):
        assert (before.after == after.before).all()


def test_where_bandwidth_is_free_all_is_sent_directly() -> None:
    f = made(scene(30, 4))
    weights = Weights(sender=0.0, forwarder=0.0)
    assert sum(r.redirected for r in rounds.optimise(f, weights, 1e-9, 5, Random(1))) == 0


def test_where_the_direct_way_is_the_longer_one_a_forwarder_makes_it_shorter() -> None:
    interest = np.ones((3, 3))
    delay = np.full((3, 3), 0.05)
    delay[0, 2] = delay[2, 0] = 0.9
    f = rounds.flows(interest, delay, np.full(3, 1e9))
    played = list(rounds.optimise(f, Weights(), 1e-6, 2, Random(1)))
    assert rounds.path(f, 0, 2) == [0, 1, 2]
    assert played[-1].stretch.min() < 0.2


def test_violations_slow_some_pairs_down_and_leave_the_others() -> None:
    delay = scene(30, 1).delay
    slowed = rounds.with_violations(delay, 0.3, 3.0, Random(1))
    ratio = (slowed / delay)[np.triu_indices(30, 1)]
    assert 0.2 < (ratio > 1).mean() < 0.4
    assert ratio.max() <= 3.0
    assert (slowed == slowed.T).all()


@given(st.lists(st.integers(0, 2**53 - 1), max_size=300, unique=True))
@EXAMPLES
def test_a_filter_holds_all_its_members_and_few_others(ids: list[int]) -> None:
    packed = bloom.filter_of(ids)
    assert bloom.is_filter(packed)
    bits = bloom.bits_of(packed)
    assert bloom.holds_each(bits, ids).all()
    others = [number for number in range(5000, 7000) if number not in ids]
    assert bloom.holds_each(bits, others).mean() < 0.05
