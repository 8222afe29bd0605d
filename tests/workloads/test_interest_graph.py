"""Interest graphs have the degrees and the clustering that were asked for, and hang together."""

from itertools import combinations, islice
from random import Random
from statistics import mean, stdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.model.commands import Publish, Subscribe
from nearcast.space.motion import SECOND
from nearcast.space.shapes import point
from nearcast.workloads import WORKLOADS
from nearcast.workloads.interest_graph import (
    Parameters,
    components,
    connected_graph,
    make,
    memberships,
    transitivity,
    tuned_graph,
)
from support.examples import examples

EXAMPLES = examples(20)


@given(st.floats(0.1, 0.9), st.integers(0, 10**6))
@EXAMPLES
def test_degree_and_transitivity_are_as_asked_for_and_all_is_connected(
    clustering: float, seed: int
) -> None:
    graph = connected_graph(1000, 25.0, 4.0, clustering, Random(seed))
    degrees = [len(near) for near in graph]
    assert transitivity(graph) == pytest.approx(clustering, abs=0.05)
    assert mean(degrees) == pytest.approx(25.0, abs=2.0)
    assert 1.0 < stdev(degrees) < 8.0
    assert len(components(graph)) == 1


def test_over_some_seeds_the_nine_clusterings_of_the_paper_come_out() -> None:
    for tenth in range(1, 10):
        graphs = [connected_graph(1000, 25.0, 4.0, tenth / 10, Random(seed)) for seed in range(3)]
        assert mean(map(transitivity, graphs)) == pytest.approx(tenth / 10, abs=0.03)
        degree = mean(len(near) for graph in graphs for near in graph)
        assert degree == pytest.approx(25.0, abs=1.0)


def test_a_tuned_graph_of_some_hundreds_has_the_clustering_that_was_asked_for() -> None:
    for tenth in range(1, 10):
        graph = tuned_graph(300, 20.0, 4.0, tenth / 10, Random(tenth))
        rough = connected_graph(300, 20.0, 4.0, tenth / 10, Random(tenth))
        off, before = (abs(transitivity(one) - tenth / 10) for one in (graph, rough))
        assert off <= min(before, 0.02)
        assert len(components(graph)) == 1
        assert graph == tuned_graph(300, 20.0, 4.0, tenth / 10, Random(tenth))


@given(st.integers(1, 60), st.floats(2, 30), st.floats(0.05, 0.95), st.integers(0, 99))
@EXAMPLES
def test_every_graph_is_mutual_without_loops_and_connected(
    vertices: int, degree: float, clustering: float, seed: int
) -> None:
    graph = connected_graph(vertices, degree, degree / 4, clustering, Random(seed))
    assert len(graph) == vertices
    for vertex, near in enumerate(graph):
        assert near == sorted(set(near))
        assert vertex not in near
        assert all(vertex in graph[other] for other in near)
    assert len(components(graph)) == 1
    assert sorted(v for part in components(graph) for v in part) == list(range(vertices))


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=30))
@EXAMPLES
def test_transitivity_is_closed_triples_over_all(pairs: list[tuple[int, int]]) -> None:
    near: list[set[int]] = [set() for _ in range(10)]
    for a, b in pairs:
        if a != b:
            near[a].add(b)
            near[b].add(a)
    triples = [(a, b) for v in range(10) for a, b in combinations(sorted(near[v]), 2)]
    closed = sum(b in near[a] for a, b in triples)
    expected = closed / len(triples) if triples else 0.0
    assert transitivity([sorted(one) for one in near]) == pytest.approx(expected)


def test_memberships_have_the_share_as_the_mean_of_their_inverse() -> None:
    for share in (0.1, 0.26, 0.5, 0.9, 1.0):
        rng = Random(1)
        assert mean(1 / memberships(share, rng) for _ in range(4000)) == pytest.approx(share, 0.03)


def test_each_subscribes_to_the_places_of_its_neighbours_and_publishes_from_its_own() -> None:
    world = make(Parameters(degree=6.0, spread=1.0), 40, 60.0, 1)
    lives = [world.life(entity, 0, 0) for entity in range(40)]
    for entity, life in enumerate(lives):
        commands = list(islice(life.commands(), 60))
        wanted = [c.region.at(0) for _, c in commands if isinstance(c, Subscribe)]
        published = next(c.shape for _, c in commands if isinstance(c, Publish))
        assert (published.x, published.y, published.z) == life.position(SECOND)
        assert (wanted[0].x, wanted[0].y) == (published.x, published.y)
        subscribed = [
            other
            for other, there in enumerate(lives)
            if other != entity and any(area.touches(point(*there.position(0))) for area in wanted)
        ]
        assert subscribed == world.graph[entity]


def test_newcomers_take_the_place_of_somebody_and_are_somebody_else() -> None:
    world = make(Parameters(degree=4.0, spread=1.0), 20, 60.0, 1)
    one, other = world.life(3, 0, 0), world.life(23, 0, 0)
    assert one.position(0) == other.position(0)
    first, second = (next(iter(life.commands()))[1] for life in (one, other))
    assert first.subscription != second.subscription


def test_it_is_a_workload_by_name_and_refuses_invalid_parameters() -> None:
    assert WORKLOADS["interest-graph"].parameters is Parameters
    for wrong, words in (
        ({"degree": 1.0}, "degree must be"), ({"spread": 20.0}, "spread must be"),
        ({"clustering": 1.0}, "clustering must be"), ({"rate": 0.0}, "rate must be"),
        ({"payload": -1}, "payload must be"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=words):
            Parameters(**wrong)
    assert make(Parameters(), 1, 1.0, 1).life(0, 0, 0).position(0) == (0.5, 0.5, 0.0)
