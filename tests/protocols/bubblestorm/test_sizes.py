"""Meeting by chance: sizes of bubbles, and bubblecasts on built graphs."""

from itertools import product
from math import exp, isclose, log
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.protocols.bubblestorm import sizes
from nearcast.protocols.bubblestorm.bubblecast import shares, spread
from nearcast.protocols.bubblestorm.parameters import walk_length
from nearcast.protocols.bubblestorm.sizes import (
    NetworkEstimate,
    bubble_size,
    equal,
    partner,
    regular,
    rendezvous,
    replicas,
)
from support.examples import examples

TABLE_3_1 = [(1, 0.6321), (2, 0.9817), (3, 0.9999), (4, 0.9999999)]


class Graph:
    """A random multigraph with its circuit, built at once."""

    def __init__(self, degrees: list[int], rng: Random) -> None:
        self.walk = [peer for peer, degree in enumerate(degrees) for _ in range(degree // 2)]
        rng.shuffle(self.walk)
        self.locations: list[list[int]] = [[] for _ in degrees]
        for place, peer in enumerate(self.walk):
            self.locations[peer].append(place)

    def bubblecast(self, origin: int, weight: int, split: int, rng: Random) -> list[int]:
        """Whom a bubblecast comes to, one entry for each time."""
        came_to, under_way = [], [(origin, -1, weight)]
        while under_way:
            peer, came, left = under_way.pop()
            came_to.append(peer)
            links = [(p, step) for p in self.locations[peer] if p != came for step in (1, -1)]
            for (place, step), part in spread(left, split, links, rng):
                there = (place + step) % len(self.walk)
                under_way.append((self.walk[there], there, part))
        return came_to


def met(degrees: list[int], one: int, other: int, graphs: int, seed: int = 2) -> float:
    """How often two bubbles of these sizes meet: 50 of each on every graph, each with each."""
    rng, count = Random(seed), 0
    for _ in range(graphs):
        graph = Graph(degrees, rng)
        bubbles = [
            [set(graph.bubblecast(rng.randrange(len(degrees)), size, 2, rng)) for _ in range(50)]
            for size in (one, other)
        ]
        count += sum(not a.isdisjoint(b) for a, b in product(*bubbles))
    return count / (2500 * graphs)


@pytest.mark.parametrize(("certainty", "printed"), TABLE_3_1)
def test_the_rendezvous_probabilities_are_those_of_table_3_1(
    certainty: float, printed: float
) -> None:
    digits = 7 if certainty == 4 else 4
    shown = rendezvous(certainty)
    assert round(shown, digits) == printed or int(shown * 10**digits) / 10**digits == printed


@pytest.mark.parametrize(("certainty", "graphs"), [(1, 20), (2, 10), (3, 4), (4, 2)])
def test_bubbles_of_the_computed_size_meet_as_often_as_table_3_1_says(
    certainty: int, graphs: int
) -> None:
    """On 1,000 peers, within two points."""
    size = bubble_size(certainty, regular(1000, 16))
    assert met([16] * 1000, size, size, graphs) == pytest.approx(rendezvous(certainty), abs=0.02)


@pytest.mark.soak
def test_a_larger_network_meets_as_often() -> None:
    size = bubble_size(1, regular(3000, 16))
    assert met([16] * 3000, size, size, 20) == pytest.approx(rendezvous(1), abs=0.02)


def test_only_the_product_of_both_sizes_matters() -> None:
    network = regular(1000, 16)
    steps = equal(1, network)
    small, large = replicas(steps / 4, network), replicas(partner(steps / 4, 1, network), network)
    assert met([16] * 1000, small, large, 20) == pytest.approx(rendezvous(1), abs=0.025)
    assert large > 14 * small


def test_bubbles_of_peers_of_unequal_strength_meet_at_least_as_often_as_required() -> None:
    degrees = [64 if peer % 10 == 0 else 16 for peer in range(1000)]
    network = NetworkEstimate(1000.0, float(sum(degrees)), float(sum(d * d for d in degrees)), 64.0)
    size = bubble_size(1, network)
    assert size < bubble_size(1, regular(1000, 16)), "the strong carry more, so fewer suffice"
    assert met(degrees, size, size, 20) > rendezvous(1) - 0.02


@given(st.floats(0.05, 4), st.integers(2, 10**7), st.sampled_from([16, 32, 64]))
@examples(200)
def test_sizes_fulfil_the_exact_condition(certainty: float, peers: int, degree: int) -> None:
    network = regular(peers, degree)
    x, w = equal(certainty, network), 1 / peers
    required = 1 - exp(-(certainty**2) / peers)
    assert isclose((1 - exp(-x * w)) ** 2, required, rel_tol=1e-6)
    assert isclose(partner(x, certainty, network), x, rel_tol=1e-3)
    if x > 1.2:
        other = partner(x / 1.1, certainty, network)
        assert other > x


def test_a_bubble_that_is_too_small_finds_no_partner_and_none_is_larger_than_allowed() -> None:
    network = regular(4, 16)
    assert partner(0.1, 3, network) == float("inf")
    assert replicas(float("inf"), network) == sizes.MOST
    assert bubble_size(0.001, network) == 1


def test_both_conventions_of_lambda_are_one() -> None:
    """The thesis' λ = 1, 2, 3 are Λ = 1, 4, 9 of BubbleStorm's programs: r = 1 - e^(-Λ)."""
    for certainty, program in [(1, 1), (2, 4), (3, 9)]:
        assert rendezvous(certainty) == pytest.approx(1 - exp(-program))


def test_sizes_grow_with_the_square_root_of_the_network() -> None:
    small, large = (bubble_size(2, regular(n, 16)) for n in (64, 4096))
    assert log(large / small) / log(64) == pytest.approx(0.5, abs=0.05)


def test_a_neighbour_missed_twice_at_lambda_two_is_rare() -> None:
    assert (1 - rendezvous(2)) ** 2 < 0.001


# Bubblecast.


@pytest.mark.parametrize("split", [1, 2, 3, 5])
def test_a_bubblecast_of_weight_13_is_processed_13_times(split: int) -> None:
    rng = Random(3)
    graph = Graph([16] * 100, rng)
    assert [len(graph.bubblecast(7, weight, split, rng)) for weight in (1, 2, 13, 40)] == [
        1,
        2,
        13,
        40,
    ]


@given(st.integers(1, 10_000), st.integers(1, 16))
@examples(200)
def test_shares_are_even_and_lose_nothing(weight: int, split: int) -> None:
    parts = shares(weight, split)
    assert sum(parts) == weight - 1
    assert len(parts) == min(split, weight - 1)
    assert not parts or max(parts) - min(parts) <= 1


def test_a_bubblecast_uses_different_links_and_all_weight_where_there_are_few() -> None:
    rng = Random(1)
    assert sorted(spread(13, 2, ["a", "b"], rng)) == [("a", 6), ("b", 6)]
    assert spread(13, 2, ["a"], rng) == [("a", 12)]
    assert spread(13, 2, [], rng) == []
    assert spread(1, 2, ["a", "b"], rng) == []


def test_walks_are_as_long_as_it_takes_to_forget_where_they_began() -> None:
    assert [walk_length(n) for n in (128, 1000, 10**6)] == [30, 36, 56]
    assert walk_length(0) == walk_length(1) == 16
