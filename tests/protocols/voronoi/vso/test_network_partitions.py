"""Where sites stand and move: formulas (1) and (2), the first places, and the quad-tree beside."""

from math import hypot, inf
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.protocols.voronoi.balance import Capacity, LoadTrend, apart, towards
from nearcast.protocols.voronoi.vso.initial_grid import grid
from nearcast.protocols.voronoi.vso.parameters import Parameters
from nearcast.space.motion import SECOND
from nearcast.space.quadtree import quadtree
from nearcast.space.voronoi import nearest
from support.examples import examples

numbers = st.floats(-1e6, 1e6)
places = st.tuples(numbers, numbers)


@examples(100)
@given(place=places, to=places, fraction=st.floats(0, 1))
def test_a_site_moves_by_the_fraction_of_the_gap(
    place: tuple[float, float], to: tuple[float, float], fraction: float
) -> None:
    x, y = towards(place, to, fraction)
    gap = hypot(to[0] - place[0], to[1] - place[1])
    assert hypot(x - place[0], y - place[1]) == pytest.approx(gap * fraction, abs=1e-6)
    assert hypot(to[0] - x, to[1] - y) == pytest.approx(gap * (1 - fraction), abs=1e-6)


def test_sites_keep_their_distance() -> None:
    assert apart((0.0, 0.0), [(5.0, 0.0), (0.0, -7.0)], 5.0)
    assert not apart((0.0, 0.0), [(4.9, 0.0)], 5.0)


def test_overload_is_by_subscriptions_or_by_activity_against_one_s_own_capacity() -> None:
    assert Capacity(20).level(20, 1e9) == 1.0
    assert Capacity(20).level(21, 0.0) > 1
    assert Capacity(20, activity=100.0).level(1, 150.0) == 1.5
    assert Capacity(1000, activity=inf).level(21, 1e9) < 1


def steps(burden: LoadTrend, seconds: int, **state: bool) -> list[tuple[int, str]]:
    done = []
    for t in range(seconds):
        what = burden.step(t * SECOND, **state)
        if what:
            done.append((t, what))
    return done


def test_neighbours_are_asked_four_times_and_then_the_gateway() -> None:
    burden = LoadTrend(3 * SECOND, trigger=5, patience=5)
    requests = steps(burden, 32, overloaded=True, idle=False)
    assert [what for _, what in requests] == 2 * [*4 * ["closer"], "insert"]
    assert requests[0][0] == 3
    assert requests[4][0] == 15


def test_without_trigger_the_gateway_is_never_asked() -> None:
    burden = LoadTrend(3 * SECOND, trigger=0, patience=5)
    assert {what for _, what in steps(burden, 99, overloaded=True, idle=False)} == {"closer"}


def test_a_pause_between_overloads_begins_the_count_anew() -> None:
    burden = LoadTrend(3 * SECOND, trigger=2, patience=5)
    done = []
    for t in range(60):
        done.append(burden.step(t * SECOND, overloaded=t % 5 != 0, idle=False))
    assert "insert" not in done
    assert "closer" in done


def test_who_is_idle_for_five_periods_leaves() -> None:
    burden = LoadTrend(3 * SECOND, trigger=5, patience=5)
    assert steps(burden, 16, overloaded=False, idle=True) == [(15, "leave")]


def test_nine_places_have_the_squares_of_a_grid() -> None:
    nine = dict(enumerate(grid(9, 768.0)))
    rng = Random(1)
    for _ in range(300):
        x, y = rng.uniform(0, 768), rng.uniform(0, 768)
        assert nearest(nine, x, y) == int(y // 256) * 3 + int(x // 256)


@pytest.mark.parametrize("count", [1, 2, 3, 5, 10, 100])
def test_any_number_of_places_is_different_and_inside(count: int) -> None:
    places = grid(count, 100.0)
    assert len(set(places)) == count
    assert all(0 < x < 100 and 0 < y < 100 for x, y in places)


spots = st.tuples(st.floats(0, 99.99), st.floats(0, 99.99))


@examples(60)
@given(points=st.lists(spots, max_size=60, unique=True), capacity=st.integers(1, 10))
def test_quad_tree_leaves_divide_the_square_and_none_holds_too_many(
    points: list[tuple[float, float]], capacity: int
) -> None:
    leaves = quadtree(points, capacity, (0.0, 0.0), 100.0)
    assert sum(side * side for _, _, side in leaves) == pytest.approx(1e4)
    for px, py in points:
        assert sum(x <= px < x + s and y <= py < y + s for x, y, s in leaves) == 1
    smallest = 100.0 / 2**48
    for x, y, s in leaves:
        inside = sum(x <= px < x + s and y <= py < y + s for px, py in points)
        assert inside <= capacity or s == smallest
        # A part is divided only if it must be: the four quarters of one hold more together.
    assert len(leaves) == 1 or len(points) > capacity


@pytest.mark.parametrize(
    ("settings_", "says"),
    [
        ({"partitioning": "round"}, "partitioning must be one of"),
        ({"matchers": 0}, "matchers must be between"),
        ({"candidates": "all"}, "candidates must be one of"),
        ({"limit": 0.0}, "limit must be between"),
        ({"f_move": 1.5}, "f_move must be between"),
        ({"idle": -0.1}, "idle must be between"),
        ({"tick_ms": 0.0}, "tick_ms must be between"),
        ({"margin": float("nan")}, "margin must be between"),
        ({"matcher": "periodic"}, "matcher must be one of"),
        ({"shortcuts": -1}, "shortcuts must be between"),
        ({"least": 0}, "least must be between"),
        ({"recall_ms": -1.0}, "recall_ms must be between"),
        ({"doubt_ms": 0.0}, "doubt_ms must be between"),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(settings_: dict, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Parameters(**settings_)
