"""Regions and areas: what a client writes is what a node reads."""

import pytest
from hypothesis import given

from nearcast.client_protocol.geometry_json import (
    AreaLike,
    area_from_region,
    as_region,
    region_from_area,
    shift_time,
)
from nearcast.model.subscription import Formula
from nearcast.space.motion import SECOND, Moving, Path, Time, line
from nearcast.space.shapes import EVERYWHERE, Shape, box, disc, point
from support.random_motions import distance, moments, motions


@given(motions, moments)
def test_a_node_reads_the_motion_that_was_meant(motion: Moving | Path, times: list[Time]) -> None:
    read = region_from_area(area_from_region(motion))
    assert not isinstance(read, Formula)
    for t in times:
        assert distance(read.at(t), motion.at(t)) < 1e-2  # at most 1,000 units/s for 2 µs a leg


@pytest.mark.parametrize("where", [disc(1, 2, 3), EVERYWHERE, point(1, 2, 3), box(1, 2, 0, 4)])
def test_a_node_reads_the_shape_that_was_meant(where: Shape) -> None:
    assert region_from_area(area_from_region(as_region(where))) == Moving(where)


@pytest.mark.parametrize("where", ["x >= -3 + t", Formula("x >= -3 + t")])
def test_a_node_reads_the_formula_that_was_meant(where: AreaLike) -> None:
    assert region_from_area(area_from_region(as_region(where))) == Formula("x >= -3 + t")


def test_a_path_with_several_speeds_has_no_json_form() -> None:
    slow, fast = line(disc(0, 0, 1), (10, 0, 0), 1), line(disc(10, 0, 1), (20, 0, 0), 2)
    legs = (slow, fast.stamped(10 * SECOND))
    with pytest.raises(ValueError, match="must have one speed"):
        area_from_region(Path(legs))


def test_only_the_time_itself_is_shifted() -> None:
    text = "x >= t + tall * 2, top == 't', x <= min(t, 3)"
    shifted = "x >= (t + 2.5) + tall * 2, top == 't', x <= min((t + 2.5), 3)"
    assert shift_time(text, 2.5, frozenset({"tall"})) == shifted
