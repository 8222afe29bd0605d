"""What the grid offers beyond the contract."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.matching.grid import GridMatcher
from nearcast.matching.scan import ScanMatcher
from nearcast.model.publication import Publication
from nearcast.model.subscription import Filter, Formula, Subscription
from nearcast.space.motion import SECOND, Moving, path
from nearcast.space.outline_shapes import corridor
from nearcast.space.shapes import disc, point
from support.strategies import movings, publications

PLACES = st.tuples(*[st.integers(-20, 20).map(float)] * 3)


@given(
    regions=st.lists(movings(), min_size=1, max_size=12),
    moves=st.lists(st.tuples(st.integers(0, 30), PLACES, st.integers(0, 11)), max_size=6),
    asked=st.lists(publications(), min_size=1, max_size=5),
)
def test_moving_many_is_equal_to_putting_each_at_its_new_place(
    regions: list[Moving], moves: list[tuple[int, tuple[float, float, float], int]], asked: list
) -> None:
    grid, oracle = GridMatcher(), ScanMatcher()
    wanted = [
        Subscription(i, 100 + i, region, Filter("weight > 3") if i % 3 == 0 else None)
        for i, region in enumerate(regions)
    ]
    for subscription in wanted:
        grid.put(subscription)
        oracle.put(subscription)
    for second, (x, y, z), shift in moves:
        now = second * SECOND
        ids = [(i + shift) % len(wanted) for i in range((len(wanted) + 1) // 2)]
        centre = np.array([(x + i, y, z) for i in ids])
        grid.move_many(np.array(ids), centre, now)
        for i, here in zip(ids, centre.tolist(), strict=True):
            try:
                shape = wanted[i].region.at(now)
            except ValueError:  # it had moved or grown beyond all numbers; so has the row
                grid.put(wanted[i])
                continue
            still = type(shape)(shape.kind, *here, shape.rx, shape.ry, shape.rz)
            wanted[i] = wanted[i].moved(Moving(still), now)
            oracle.put(wanted[i])
        for publication in asked:
            late = now + publication.t
            assert grid.match(publication, late) == oracle.match(publication, late)


@pytest.mark.parametrize(
    "region",
    [Formula("x > 3"), path(disc(0, 0, 1), [(1, 0, 0), (2, 0, 0)], 1.0), None],
    ids=["formula", "path", "unknown"],
)
def test_moving_many_refuses_regions_without_a_single_shape(region: object) -> None:
    grid = GridMatcher()
    if region is not None:
        grid.put(Subscription(1, 1, region))
    with pytest.raises(ValueError, match="one shape"):
        grid.move_many(np.array([1]), np.zeros((1, 3)), 0)


def test_few_puts_do_not_rebuild_the_index_and_are_matched() -> None:
    grid = GridMatcher()
    for i in range(500):
        grid.put(Subscription(i, i, Moving(disc(i, 0, 0.4))))
    assert grid.match(Publication(0, 9999, 0, point(7, 0)), 0) == [7]
    index = grid._index
    grid.put(Subscription(3, 3, Moving(disc(7, 0, 0.4))))
    grid.drop(7)
    assert grid.match(Publication(0, 9999, 0, point(7, 0)), 0) == [3]
    assert grid.match(Publication(0, 9999, 0, point(3, 0)), 0) == []
    assert grid._index is index


def test_a_channel_without_subscriptions_is_forgotten() -> None:
    grid = GridMatcher()
    for number in range(100):
        grid.put(Subscription(number % 3, 7, Moving(disc(0, 0, 1)), channel=f"made up {number}"))
    assert len(grid._rows.channels) == 3
    for number in range(3):
        grid.drop(number)
    assert not grid._rows.channels


def test_what_was_moved_with_many_is_where_it_is_for_a_publication_with_an_outline() -> None:
    grid = GridMatcher()
    for number in (1, 2):
        grid.put(Subscription(number, 100 + number, Moving(point(0, 0))))
    grid.move_many(np.array([1]), np.array([[1.0, 0.0, 0.0]]), 0)
    along = Publication(0, 9, 0, corridor([(-4, -4), (0, 0), (4, -1)], 0.1))
    assert grid.match(along, 0) == [2]
    grid.put(Subscription(1, 101, Moving(point(0, 0))))
    assert grid.match(along, 0) == [1, 2]
