"""Motion: the design's formula to the letter, lines that arrive, paths that hang together."""

from math import dist, inf, nextafter

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from nearcast.space.motion import (
    FASTEST,
    FOREVER,
    LATEST,
    SECOND,
    STILL,
    Moving,
    Path,
    line,
    path,
)
from nearcast.space.shapes import (
    EVERYWHERE,
    LARGEST,
    Shape,
    ShapeKind,
    Vector,
    ball,
    box,
    cuboid,
    disc,
    point,
)
from support.examples import examples
from support.strategies import SPEEDS, TIMES, movings, shapes

# Moments before, during and after any motion that the strategies draw.
MOMENTS = TIMES | st.integers(-5 * SECOND, 50 * SECOND)
PLACES = st.tuples(*[st.floats(-1e6, 1e6) | st.integers(-9, 9).map(float)] * 3)
WALKS = st.lists(st.tuples(*[st.integers(-4, 4).map(float)] * 3), min_size=1, max_size=5)


def centre(shape: Shape) -> Vector:
    return shape.x, shape.y, shape.z


def by_the_design(moving: Moving, p: int) -> Shape:
    """centre(p) = c + v · ((min(p, until) − t) / 1e6), half-extents likewise, never below 0."""
    t = moving.since
    until = p if moving.duration is None else t + moving.duration
    seconds = max(0.0, (min(p, until) - t) / 1e6)
    s, v, g = moving.shape, moving.velocity, moving.growth
    return Shape(
        s.kind,
        s.x + v[0] * seconds,
        s.y + v[1] * seconds,
        s.z + v[2] * seconds,
        max(0.0, s.rx + g[0] * seconds),
        max(0.0, s.ry + g[1] * seconds),
        max(0.0, s.rz + g[2] * seconds),
    )


def close(one: Vector, other: Vector, scale: float = 0.0) -> bool:
    """Equal within 1e-9 of the largest number that took part."""
    largest = max(1e-300, scale, *map(abs, one), *map(abs, other))
    return all(abs(a - b) <= 1e-9 * largest for a, b in zip(one, other, strict=True))


# The formula.


@examples(120)
@given(movings(), MOMENTS)
def test_a_region_is_where_the_design_says(moving: Moving, p: int) -> None:
    assert moving.at(p) == by_the_design(moving, p)


def test_the_formula_by_hand() -> None:
    moving = Moving(cuboid(1, 2, 3, 10, 1, 2), (2, -4, 0.5), (-4, 3, 0), 3 * SECOND, 7 * SECOND)
    assert moving.at(7 * SECOND) == cuboid(1, 2, 3, 10, 1, 2)
    assert moving.at(7 * SECOND + 1) == cuboid(
        1 + 2 * 1e-6, 2 - 4 * 1e-6, 3 + 0.5 * 1e-6, 10 - 4 * 1e-6, 1 + 3 * 1e-6, 2
    )
    assert moving.at(9 * SECOND) == cuboid(5, -6, 4, 2, 7, 2)
    assert moving.at(10 * SECOND) == cuboid(7, -10, 4.5, 0, 10, 2)
    assert moving.at(99 * SECOND) == cuboid(7, -10, 4.5, 0, 10, 2)
    assert moving.until == 10 * SECOND


@examples(50)
@given(movings(), st.integers(0, 50 * SECOND))
def test_a_region_never_runs_backwards(moving: Moving, before: int) -> None:
    assert moving.at(moving.since - before) == moving.at(moving.since) == moving.shape


@examples(50)
@given(movings(), TIMES, TIMES)
def test_a_motion_ends_and_the_region_stays(moving: Moving, lasts: int, after: int) -> None:
    ended = msgspec.structs.replace(moving, duration=lasts)
    assert ended.until == ended.since + lasts
    assert ended.at(ended.until + after) == ended.at(ended.until)
    assert ended.at(ended.until) == msgspec.structs.replace(moving, duration=None).at(ended.until)


def test_a_motion_without_duration_never_ends() -> None:
    moving = Moving(point(0, 0), (1.0, 0.0, 0.0))
    assert moving.until == FOREVER
    assert moving.at(10**15) == point(1e9, 0)


@examples(60)
@given(movings(), shapes(), MOMENTS)
def test_a_region_touches_what_its_shape_touches_at_that_moment(
    moving: Moving, other: Shape, t: int
) -> None:
    assert moving.touches(other, t) == moving.at(t).touches(other)
    assert moving.centre(t) == centre(moving.at(t))


def test_a_border_is_crossed_at_the_very_microsecond() -> None:
    approaching = Moving(disc(0, 0, 1), (1.0, 0.0, 0.0), since=SECOND)
    assert not approaching.touches(point(3, 0), 3 * SECOND - 1)
    assert approaching.touches(point(3, 0), 3 * SECOND)
    assert approaching.touches(point(3, 0), 5 * SECOND)
    assert not approaching.touches(point(3, 0), 5 * SECOND + 1)


@examples(40)
@given(movings())
def test_only_velocity_or_growth_makes_a_region_move(moving: Moving) -> None:
    assert moving.moves == (moving.velocity != STILL or moving.growth != STILL)
    assert not Moving(moving.shape, duration=moving.duration, since=moving.since).moves


@pytest.mark.parametrize("rates", [(1.0, 0.0, 0.0), (0.0, -1.0, 0.0), (0.0, 0.0, 1e-300)])
def test_a_rate_on_any_axis_is_a_motion(rates: Vector) -> None:
    assert Moving(box(0, 0, 1, 1), velocity=rates).moves
    assert Moving(box(0, 0, 1, 1), growth=rates).moves
    assert not Moving(box(0, 0, 1, 1), velocity=(0.0, -0.0, 0.0)).moves


# Growth.


@examples(50)
@given(SPEEDS, st.floats(0, 20), TIMES)
def test_a_disc_grows_by_its_radius_alone(growth: float, radius: float, t: int) -> None:
    grown = Moving(ball(1, 2, 3, radius), growth=(growth, 0.0, 0.0)).at(t)
    assert grown == ball(1, 2, 3, max(0.0, radius + growth * (t / 1e6)))


def test_a_shape_that_shrinks_to_zero_stays_a_closed_point() -> None:
    shrinking = Moving(cuboid(0, 0, 0, 2, 4, 8), growth=(-1.0, -1.0, -1.0))
    assert shrinking.at(2 * SECOND) == cuboid(0, 0, 0, 0, 2, 6)
    assert shrinking.at(4 * SECOND) == cuboid(0, 0, 0, 0, 0, 4)
    assert shrinking.at(1000 * SECOND) == cuboid(0, 0, 0, 0, 0, 0)
    assert shrinking.touches(point(0, 0, 0), 1000 * SECOND)
    assert not shrinking.touches(point(1, 0, 0), 1000 * SECOND)
    assert not shrinking.touches(point(-1, 0, 0), 1000 * SECOND)


def test_growth_follows_each_axis_of_a_box() -> None:
    growing = Moving(box(0, 0, 1, 1), growth=(1.0, 2.0, 3.0))
    assert growing.at(2 * SECOND) == cuboid(0, 0, 0, 3, 5, 6)


@pytest.mark.parametrize("growth", [-FASTEST, -50.0, 0.0, 50.0, FASTEST])
def test_an_unbounded_shape_stays_unbounded_after_any_growth(growth: float) -> None:
    moving = Moving(EVERYWHERE, (1.0, -2.0, 3.0), (growth, growth, growth))
    later = moving.at(1000 * SECOND)
    assert (later.rx, later.ry, later.rz) == (inf, inf, inf)
    assert moving.touches(point(-LARGEST, LARGEST, 5), 1000 * SECOND)


# Extremes.

RATES = st.tuples(*[st.sampled_from([-FASTEST, -1.0, 0.0, 1.0, FASTEST])] * 3)
CENTRES = st.tuples(*[st.sampled_from([-LARGEST, -1.0, 0.0, nextafter(LARGEST, 0), LARGEST])] * 3)
SIZES = st.sampled_from([0.0, 1.0, nextafter(LARGEST, 0), LARGEST])


@examples(60)
@given(CENTRES, CENTRES, SIZES, st.tuples(*[SIZES | st.just(inf)] * 3), RATES, RATES)
def test_the_fastest_are_somewhere_to_the_end_of_time_and_touch_what_is_there(
    start: Vector, place: Vector, radius: float, sides: Vector, velocity: Vector, growth: Vector
) -> None:
    other = Shape(ShapeKind.DISC, *place, radius)
    for moving in (
        Moving(Shape(ShapeKind.POINT, *start), velocity),
        Moving(Shape(ShapeKind.DISC, *start, radius), velocity, (growth[0], 0.0, 0.0)),
        Moving(Shape(ShapeKind.BOX, *start, *sides), velocity, growth),
    ):
        for t in (0, SECOND, LATEST - 1, FOREVER):
            there = moving.at(t)  # a shape, so within all bounds
            assert there == by_the_design(moving, t)
            assert moving.touches(other, t) == there.touches(other)
            assert moving.touches(there, t)


# Stamping.


@examples(50)
@given(movings(), TIMES, MOMENTS)
def test_stamping_shifts_a_motion_in_time_and_nothing_else(
    moving: Moving, now: int, after: int
) -> None:
    stamped = moving.stamped(now)
    assert stamped == msgspec.structs.replace(moving, since=now)
    assert stamped.at(now + after) == moving.at(moving.since + after)
    assert stamped.stamped(moving.since) == moving


@examples(40)
@given(WALKS, st.floats(0.5, 20), TIMES, TIMES, MOMENTS)
def test_stamping_shifts_every_leg_of_a_path_alike(
    waypoints: list[Vector], speed: float, once: int, now: int, after: int
) -> None:
    walk = path(disc(0, 0, 1), waypoints, speed)
    stamped = walk.stamped(once).stamped(now)
    assert stamped.since == now
    assert [leg.since - now for leg in stamped.legs] == [leg.since for leg in walk.legs]
    assert [leg.stamped(0) for leg in stamped.legs] == [leg.stamped(0) for leg in walk.legs]
    assert stamped.at(now + after) == walk.at(after)


# Lines.


@examples(60)
@given(PLACES, PLACES, st.floats(0.01, 1e4), st.integers(0, 1000))
def test_a_line_runs_straight_at_its_speed_arrives_and_stops(
    start: Vector, to: Vector, speed: float, thousandths: int
) -> None:
    distance = dist(start, to)
    assume(round(distance / speed * 1e6) > 0)  # time is counted in whole microseconds
    moving = line(Shape(ShapeKind.BOX, *start, 1.0, 2.0, 3.0), to, speed)
    assert moving.since == 0
    assert moving.duration is not None
    assert abs(moving.duration - distance / speed * 1e6) <= 0.5 + 1e-9 * moving.duration
    scale = max(map(abs, (*start, *to)))
    assert close(centre(moving.at(moving.duration)), to, scale)
    assert moving.at(moving.duration + 7 * SECOND) == moving.at(moving.duration)
    assert centre(moving.at(0)) == start
    t = moving.duration * thousandths // 1000
    between = [a + (b - a) * (t / moving.duration) for a, b in zip(start, to, strict=True)]
    assert close(centre(moving.at(t)), (between[0], between[1], between[2]), scale)
    assert moving.growth == STILL
    assert moving.shape == Shape(ShapeKind.BOX, *start, 1.0, 2.0, 3.0)


def test_a_line_by_hand() -> None:
    moving = line(disc(0, 0, 2), (30.0, 40.0, 0.0), 10.0)
    assert moving.duration == 5 * SECOND
    assert moving.velocity == (6.0, 8.0, 0.0)
    assert moving.at(5 * SECOND) == disc(30, 40, 2)


@examples(30)
@given(PLACES, st.floats(0.01, 1e4))
def test_a_line_to_the_current_place_is_no_motion(place: Vector, speed: float) -> None:
    still = line(Shape(ShapeKind.DISC, *place, 1.0), place, speed)
    assert not still.moves
    assert still.duration == 0
    assert still.at(99 * SECOND) == Shape(ShapeKind.DISC, *place, 1.0)


@examples(40)
@given(PLACES, PLACES, st.floats(1, 1e9))
def test_a_motion_of_less_than_half_a_microsecond_has_arrived(
    start: Vector, towards: Vector, hurry: float
) -> None:
    speed = dist(start, towards) / 0.4e-6 * hurry
    assume(speed > 0)
    shape, goal = Shape(ShapeKind.DISC, *start, 1.0), Shape(ShapeKind.DISC, *towards, 1.0)
    for moving in (line(shape, towards, speed), line(shape, towards, FASTEST)):
        assert moving.duration == 0
        assert moving.at(0) == moving.at(SECOND) == goal
    assert path(shape, [start, towards], speed).at(SECOND) == goal


def test_whole_numbers_make_the_same_lines_and_paths_as_floats() -> None:
    start, whole = point(0, 0), [(3, 4, 0), (6, 8, 0), (6, 9, 0)]
    floats = [(float(x), float(y), float(z)) for x, y, z in whole]
    encode = msgspec.msgpack.encode
    assert encode(line(start, whole[0], 5)) == encode(line(start, floats[0], 5.0))
    assert encode(path(start, whole, 5)) == encode(path(start, floats, 5.0))


# Paths.


def walked(start: Vector, waypoints: list[Vector], speed: float, t: int) -> Vector:
    """Where a walker is that counts whole microseconds per leg; the oracle knows no velocities."""
    t = max(0, t)
    for goal in waypoints:
        takes = round(dist(start, goal) / speed * 1e6)
        if t < takes:
            x, y, z = (a + (b - a) * (t / takes) for a, b in zip(start, goal, strict=True))
            return x, y, z
        t -= takes
        start = goal
    return start


@examples(60)
@given(WALKS, st.floats(0.5, 20), MOMENTS)
def test_a_path_goes_through_its_waypoints_and_stops_at_the_last(
    waypoints: list[Vector], speed: float, t: int
) -> None:
    walk = path(ball(1, 1, 1, 2.0), waypoints, speed)
    assert close(centre(walk.at(t)), walked((1.0, 1.0, 1.0), waypoints, speed, t), 4)
    assert walk.at(t).rx == 2.0
    end = walk.legs[-1].until
    assert close(centre(walk.at(end)), waypoints[-1], 4)
    assert walk.at(end + 99 * SECOND) == walk.at(end)


@examples(50)
@given(WALKS, st.floats(0.5, 20))
def test_each_leg_of_a_path_begins_when_and_where_the_one_before_arrives(
    waypoints: list[Vector], speed: float
) -> None:
    walk = path(disc(0, 0, 1), waypoints, speed)
    assert len(walk.legs) == len(waypoints)
    assert walk.since == walk.legs[0].since == 0
    for leg, later, goal in zip(walk.legs, walk.legs[1:], waypoints, strict=False):
        assert later.since == leg.until
        assert centre(later.shape) == goal
        assert close(centre(leg.at(leg.until)), centre(walk.at(later.since)), 4)
        # Within one microsecond nobody gets further than the speed allows.
        before = walk.at(later.since - 1)
        assert dist(centre(before), centre(walk.at(later.since))) <= speed * 2e-6 + 1e-8


@examples(50)
@given(WALKS, shapes(), st.floats(0.5, 20), MOMENTS)
def test_a_path_touches_what_its_shape_touches_at_that_moment(
    waypoints: list[Vector], other: Shape, speed: float, t: int
) -> None:
    walk = path(box(0, 0, 3, 1), waypoints, speed)
    assert walk.touches(other, t) == walk.at(t).touches(other)


def test_a_path_of_one_waypoint_is_a_line() -> None:
    walk = path(disc(0, 0, 1), [(3.0, 4.0, 0.0)], 5.0)
    assert walk.legs == (line(disc(0, 0, 1), (3.0, 4.0, 0.0), 5.0),)


def test_a_path_may_stand_still_on_its_way() -> None:
    stops = [(0.0, 0.0, 0.0), (3.0, 0.0, 0.0), (3.0, 0.0, 0.0), (3.0, 0.0, 0.0), (3.0, 4.0, 0.0)]
    walk = path(point(0, 0), stops, 1.0).stamped(SECOND)
    assert [leg.duration for leg in walk.legs] == [0, 3 * SECOND, 0, 0, 4 * SECOND]
    places = [centre(walk.at(t * SECOND)) for t in (0, 1, 2, 4, 5, 8, 9)]
    assert places == [
        (0, 0, 0), (0, 0, 0), (1, 0, 0), (3, 0, 0), (3, 1, 0), (3, 4, 0), (3, 4, 0),
    ]  # fmt: skip


def test_between_two_legs_with_a_pause_the_region_waits_where_the_first_arrived() -> None:
    go = Moving(point(0, 0), (1.0, 0.0, 0.0), duration=2 * SECOND, since=SECOND)
    back = Moving(point(2, 0), (-1.0, 0.0, 0.0), duration=SECOND, since=10 * SECOND)
    walk = Path((go, back))
    assert [centre(walk.at(t * SECOND))[0] for t in (0, 1, 2, 3, 9, 10, 11, 12)] == [
        0, 0, 1, 2, 2, 2, 1, 1,
    ]  # fmt: skip
