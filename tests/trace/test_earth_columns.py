"""Columns of degrees are converted as `space.earth` converts one place, bit by bit."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.space import earth
from nearcast.trace.earth_columns import (
    ecef_columns,
    lon_lat_columns,
    raised_to_surface,
    short_way,
)
from support.examples import examples

PLACES = st.lists(
    st.tuples(
        st.floats(-180, 180) | st.sampled_from([-180.0, 180.0, 0.0]),
        st.floats(-90, 90) | st.sampled_from([-90.0, 90.0, 0.0]),
    ),
    min_size=1,
    max_size=20,
)


@examples(200)
@given(PLACES)
def test_columns_are_what_space_says_of_each_place(places: list[tuple[float, float]]) -> None:
    lon, lat = np.array(places).T.copy()
    x, y, z = ecef_columns(lon, lat)
    assert list(zip(x, y, z, strict=True)) == [earth.ecef(*place) for place in places]
    back = lon_lat_columns(x, y, z)
    wanted = [
        earth.lon_lat(*place) for place in zip(x.tolist(), y.tolist(), z.tolist(), strict=True)
    ]
    assert list(zip(*back, strict=True)) == wanted
    assert np.abs(back[1] - lat).max() < 1e-12
    poles = np.abs(lat) > 89.9999
    assert np.abs((back[0] - lon + 180) % 360 - 180)[~poles].max(initial=0) < 1e-9


@examples(100)
@given(PLACES, PLACES, st.floats(0, 1))
def test_a_straight_way_is_raised_to_the_surface_in_its_own_plane(
    some: list[tuple[float, float]], more: list[tuple[float, float]], share: float
) -> None:
    start, end = (np.array(earth.ecef(*places[0])) for places in (some, more))
    between = start + share * (end - start)
    if np.linalg.norm(between) < 1e3:
        return  # nearly through the centre of the Earth: no direction
    raised = np.array(raised_to_surface(*between.reshape(3, 1))).ravel()
    assert earth.height_ratio(*raised) == pytest.approx(1, abs=1e-14)
    assert np.linalg.norm(np.cross(raised, between)) < 1e-3 * np.linalg.norm(between)
    assert raised @ between > 0


@given(st.floats(-720, 720))
def test_the_short_way_is_at_most_half_a_turn(degrees: float) -> None:
    short = short_way(degrees)
    assert abs(short) <= 180
    assert (degrees - short) / 360 == pytest.approx(round((degrees - short) / 360), abs=1e-9)
