"""The virtual reality of [Lehn]: as many see each other as the paper says, and as clustered."""

from itertools import islice, pairwise
from math import dist
from statistics import mean

import pytest

from nearcast.model.commands import Move, Publish, Subscribe
from nearcast.space.motion import SECOND
from nearcast.workloads import WORKLOADS
from nearcast.workloads.interest_graph import Graph, transitivity
from nearcast.workloads.virtual_reality import Parameters, make
from nearcast.workloads.workload import first_id


def sight(entities: int, seed: int) -> Graph:
    """Who sees whom."""
    world = make(Parameters(), entities, 1.0, seed)
    places = [world.life(entity, 0, 0).position(0) for entity in range(entities)]
    radius = Parameters().radius
    return [
        [b for b in range(entities) if b != a and dist(places[a], places[b]) <= radius]
        for a in range(entities)
    ]


@pytest.mark.parametrize(("entities", "low", "high"), [(50, 6.0, 8.5), (200, 26.0, 33.0)])
def test_the_mean_fan_out_is_the_papers(entities: int, low: float, high: float) -> None:
    fan_outs = [mean(map(len, sight(entities, seed))) for seed in range(6)]
    assert low <= mean(fan_outs) <= high


def test_the_transitivity_is_the_papers_however_many_there_are() -> None:
    found = [
        mean(transitivity(sight(entities, seed)) for seed in range(8))
        for entities in (50, 100, 150, 200)
    ]
    assert all(0.61 <= value <= 0.67 for value in found)
    assert max(found) - min(found) <= 0.03


def test_participants_are_and_publish_in_the_middle_of_their_area() -> None:
    world = make(Parameters(), 10, 60.0, 1)
    life = world.life(3, 0, 5 * SECOND)
    (t, first), *said = islice(life.commands(), 30)
    assert t == 5 * SECOND
    assert isinstance(first, Subscribe)
    area = first.region.at(0)
    assert (area.x, area.y, area.z) == life.position(t)
    assert (area.rx, first.subscription) == (245.0, first_id(3, 0))
    for _, command in said:
        assert isinstance(command, Publish)
        assert (command.shape.x, command.shape.y) == (area.x, area.y)
        assert len(command.payload) == 64
    moments = [t for t, _ in said]
    assert all(b - a == 125_000 for a, b in pairwise(moments))
    low, high = world.world
    assert low <= life.position(0) <= high


def test_the_set_share_of_participants_walks() -> None:
    world = make(Parameters(walking=0.4), 200, 60.0, 1)
    walkers = [
        entity
        for entity in range(200)
        if world.life(entity, 0, 0).position(0) != world.life(entity, 0, 0).position(9 * SECOND)
    ]
    assert 60 <= len(walkers) <= 100
    commands = islice(world.life(walkers[0], 0, 0).commands(), 2000)
    assert any(isinstance(command, Move) for _, command in commands)


def test_equal_seeds_give_equal_lives_and_others_differ() -> None:
    def opening(entity: int, stay: int, seed: int) -> list:
        return list(islice(make(Parameters(), 20, 9.0, seed).life(entity, stay, 0).commands(), 9))

    lives = [opening(*life) for life in ((3, 0, 1), (4, 0, 1), (3, 1, 1), (3, 0, 2))]
    assert lives[0] == opening(3, 0, 1)
    assert len({str(life[0][1].region) for life in lives}) == 4
    assert len({life[1][0] for life in lives}) == 4


def test_it_is_a_workload_by_name_and_refuses_invalid_parameters() -> None:
    assert WORKLOADS["virtual-reality"].parameters is Parameters
    with pytest.raises(ValueError, match="walking must be between"):
        Parameters(walking=1.5)
    with pytest.raises(ValueError, match="lower the rate"):
        make(Parameters(rate=100.0), 3, 1e6, 1)
