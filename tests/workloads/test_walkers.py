"""Random waypoint and the clustering movement of [VSO] V."""

from itertools import combinations, islice, pairwise
from math import dist
from random import Random
from statistics import mean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.model.commands import Move, Publish, Subscribe
from nearcast.scenario import stream
from nearcast.space.motion import SECOND, Moving, Path
from nearcast.space.shapes import Vector, disc
from nearcast.workloads import clustering, waypoint
from nearcast.workloads.clustering import attractor_count, attractors_of, go_to_attractors, reach
from nearcast.workloads.cube import Cube
from nearcast.workloads.walker import RegionTimeline, Walker, WalkerWorkload
from support.examples import examples


def walker(kind: str = "waypoint", entity: int = 3, **chosen: object) -> Walker:
    module = {"waypoint": waypoint, "clustering": clustering}[kind]
    lived = module.make(module.Parameters(**chosen), 100, 60.0, 1).life(entity, 0, 5 * SECOND)
    assert isinstance(lived, Walker)
    return lived


def legs(lived: Walker, many: int) -> list[Moving]:
    found = list(islice(lived.regions(), many))
    assert all(isinstance(leg, Moving) for leg in found)
    return [leg for leg in found if isinstance(leg, Moving)]


def centre(leg: Moving, t: int) -> Vector:
    shape = leg.at(t)
    return shape.x, shape.y, shape.z


@pytest.mark.parametrize("kind", ["waypoint", "clustering"])
@pytest.mark.parametrize("dims", [2, 3])
def test_legs_join_end_to_end_at_the_speed_that_was_set(kind: str, dims: int) -> None:
    found = legs(walker(kind, speed=17.0, dims=dims), 50)
    for leg, later in pairwise(found):
        assert later.since >= leg.until
        assert centre(leg, leg.until) == pytest.approx(centre(later, later.since), abs=1e-6)
        seconds = (leg.until - leg.since) / SECOND
        length = dist(centre(leg, leg.since), centre(leg, leg.until))
        assert length / seconds == pytest.approx(17, rel=1e-4)
    assert any(leg.shape.z > 0 for leg in found) == (dims == 3)


@pytest.mark.parametrize("motion", ["line", "steps", "path"])
@pytest.mark.parametrize("kind", ["waypoint", "clustering"])
def test_nobody_is_ever_faster_than_the_speed(kind: str, motion: str) -> None:
    lived = walker(kind, motion=motion, speed=30.0)
    places = [lived.position(5 * SECOND + t * SECOND // 10) for t in range(3000)]
    steps = [dist(here, there) for here, there in pairwise(places)]
    assert max(steps) == pytest.approx(3, rel=1e-3)  # [VSO]: 3 units in a step of 100 ms
    size = lived.world.parameters.size
    assert all(0 <= x <= size and 0 <= y <= size and z == 0 for x, y, z in places)


def test_pauses_are_uniform_up_to_twice_their_mean() -> None:
    found = legs(walker(pause=2.0), 1001)
    pauses = [(later.since - leg.until) / SECOND for leg, later in pairwise(found)]
    assert 0 <= min(pauses) < 0.1
    assert 3.9 < max(pauses) <= 4
    assert mean(pauses) == pytest.approx(2, abs=0.15)


def test_clustering_has_no_pauses() -> None:
    assert all(leg.until == later.since for leg, later in pairwise(legs(walker("clustering"), 100)))


def test_waypoints_are_uniform() -> None:
    ends = [centre(leg, leg.until) for leg in legs(walker(), 800)]
    quarters = [(int(x // 500), int(y // 500)) for x, y, _ in ends]
    assert all(150 < quarters.count((i, j)) < 250 for i in (0, 1) for j in (0, 1))


def test_legs_too_short_to_last_a_microsecond_are_left_out() -> None:
    def dawdling(rng: Random, here: Vector) -> Vector:
        return here if rng.random() < 0.5 else (rng.random() * 100, 0.0, 0.0)

    world = WalkerWorkload("dawdling", 1, 1, waypoint.Parameters(), 0.0, b"", dawdling)
    found = legs(world.life(0, 0, 0), 50)
    assert all(leg.moves and leg.since < leg.until for leg in found)
    assert all(leg.until == later.since for leg, later in pairwise(found))


def test_a_region_is_on_its_way_from_the_very_moment_it_begins() -> None:
    """So a Move at the moment of a publication comes before it."""
    first, second, third = (
        Moving(disc(x, 0, 1), since=since) for x, since in ((1, 0), (2, 5), (3, 9))
    )
    timeline = RegionTimeline(iter((first, second, third)))
    assert (list(timeline.until(4)), timeline.region) == ([], first)
    assert (list(timeline.until(5)), timeline.region) == ([second], second)


def test_a_line_is_sent_once_for_each_leg_when_it_begins() -> None:
    lived = walker(motion="line", speed=200.0)
    sent = [
        (t, command.region)
        for t, command in islice(lived.commands(), 300)
        if not isinstance(command, Publish)
    ]
    assert len(sent) > 10
    assert [region.stamped(t) for t, region in sent] == legs(lived, len(sent))
    assert all(region.since == 0 and region.moves for _, region in sent)


def test_steps_stand_still_and_are_sent_with_every_publication() -> None:
    (begun, subscribe), *rest = islice(walker(motion="steps").commands(), 201)
    assert isinstance(subscribe, Subscribe)
    assert not subscribe.region.moves
    assert begun == 5 * SECOND
    for (moved, move), (published, publish) in zip(rest[::2], rest[1::2], strict=True):
        assert isinstance(move, Move)
        assert isinstance(publish, Publish)
        assert moved == published > begun
        assert not move.region.moves
        assert move.region.shape.rx == 50
        assert (move.region.shape.x, move.region.shape.y) == (publish.shape.x, publish.shape.y)


def test_steps_and_lines_follow_the_same_walk() -> None:
    def published(motion: str) -> list[tuple[int, Publish]]:
        commands = islice(walker(motion=motion, speed=100.0).commands(), 400)
        return [(t, c) for t, c in commands if isinstance(c, Publish)][:150]

    assert len(published("steps")) == 150
    assert published("steps") == published("line")


def test_a_path_holds_several_legs_without_pauses_and_is_renewed_on_arrival() -> None:
    lived = walker(motion="path", legs=3, speed=200.0)
    sent = [
        (t, command.region)
        for t, command in islice(lived.commands(), 400)
        if not isinstance(command, Publish)
    ]
    assert len(sent) > 5
    paths = [region.stamped(t) for t, region in sent]
    assert all(isinstance(path, Path) and len(path.legs) == 3 for path in paths)
    every = [leg for path in paths for leg in path.legs]
    assert all(leg.until == later.since for leg, later in pairwise(every))


def test_publications_are_regular_and_out_of_step_with_others() -> None:
    first: list[int] = []
    for entity in range(100):
        commands = islice(walker(entity=entity, rate=4.0).commands(), 40)
        moments = [t for t, command in commands if isinstance(command, Publish)]
        gaps = {later - earlier for earlier, later in pairwise(moments)}
        assert max(gaps) - min(gaps) <= 1
        assert max(gaps) == pytest.approx(250_000, abs=1)
        first.append(moments[0] - 5 * SECOND)
    assert 0 < min(first) < 25_000
    assert 225_000 < max(first) <= 250_000


def test_a_hundred_nodes_have_six_attractors() -> None:
    """Claim 003.2."""
    assert attractor_count(100) == 6
    assert len(attractors_of(Cube(768.0, 2), 100, 1)) == 6
    assert attractor_count(1) == attractor_count(2) == 1


@examples(40)
@given(entities=st.integers(1, 100_000), seed=st.integers(0, 1000), dims=st.sampled_from((2, 3)))
def test_attractors_keep_their_distance(entities: int, seed: int, dims: int) -> None:
    cube = Cube(768.0, dims)
    placed = attractors_of(cube, entities, seed)
    assert placed == attractors_of(cube, entities, seed)
    assert len(placed) == attractor_count(entities)
    assert all(cube.inside(place) == place for place in placed)
    wanted = 3 * reach(cube, len(placed))
    # The distance is relaxed by no more than chance demands; half of it always fits.
    assert all(dist(one, other) >= wanted / 2 for one, other in combinations(placed, 2))


def test_attractors_are_as_far_apart_as_vast_has_them_where_that_is_easy() -> None:
    cube = Cube(768.0, 2)
    assert reach(cube, 6) == pytest.approx((768 * 768 / 6) ** 0.5 / 3)
    for seed in range(20):
        one, other = attractors_of(cube, 5, seed)
        assert dist(one, other) >= 3 * reach(cube, 2)


def test_four_of_five_go_to_the_nearest_attractor_and_all_within_its_square() -> None:
    cube = Cube(900.0, 2)
    attractors: list[Vector] = [(150.0, 150.0, 0.0), (750.0, 150.0, 0.0), (450.0, 750.0, 0.0)]
    r = reach(cube, 3)
    onward, rng = go_to_attractors(cube, attractors), stream(1, "test")
    chosen = [onward(rng, (200.0, 300.0, 0.0)) for _ in range(3000)]
    near = [min(attractors, key=lambda a: dist(a, place)) for place in chosen]
    # 80 % by loyalty, and a third of the rest by chance.
    assert near.count(attractors[0]) / 3000 == pytest.approx(0.8 + 0.2 / 3, abs=0.03)
    offsets = [
        max(abs(place[0] - a[0]), abs(place[1] - a[1]))
        for place, a in zip(chosen, near, strict=True)
    ]
    assert 0.98 * min(r, 150) < max(offsets) <= r
    assert all(cube.inside(place) == place for place in chosen)


def test_after_a_while_walkers_crowd_around_the_attractors() -> None:
    parameters = clustering.Parameters()
    workload = clustering.make(parameters, 100, 300.0, 1)
    cube = Cube(parameters.size, 2)
    attractors = attractors_of(cube, 100, 1)

    def distance(place: Vector) -> float:
        return min(dist(place, attractor) for attractor in attractors)

    settled = mean(distance(workload.life(e, 0, 0).position(120 * SECOND)) for e in range(100))
    rng = stream(1, "uniform")
    uniform = mean(distance(cube.anywhere(rng)) for _ in range(2000))
    assert settled < 0.8 * uniform


def test_a_blast_is_a_disc_around_where_a_point_would_have_been() -> None:
    def publishes(blast: float) -> list[Publish]:
        found = (command for _, command in walker("clustering", blast=blast).commands())
        return list(islice((one for one in found if isinstance(one, Publish)), 20))

    for point, area in zip(publishes(0.0), publishes(40.0), strict=True):
        assert area.shape == disc(point.shape.x, point.shape.y, 40.0)
        assert point.shape.rx == 0
    with pytest.raises(ValueError, match="blast"):
        clustering.Parameters(blast=-1.0)


def test_while_a_run_settles_one_in_so_many_publications_is_made() -> None:
    def publications(**chosen: object) -> list[int]:
        lived = walker("clustering", rate=10.0, motion="steps", **chosen)
        made = (t for t, command in lived.commands() if isinstance(command, Publish))
        return list(islice(made, 400))

    always, settling = publications(), publications(settle_s=20.0, settle_one_in=5)
    early = [t for t in always if t < 20 * SECOND]
    rare = early[::5]
    assert len(rare) == 30  # it has begun after five seconds
    assert settling[: len(rare)] == rare
    assert settling[len(rare) :][:250] == always[len(early) :]
