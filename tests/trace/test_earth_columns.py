"""Columns of degrees, against one place at a time."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.space.earth import ecef, lon_lat
from nearcast.trace.earth_columns import lon_lat_columns, short_way

PLACES = st.tuples(st.floats(-180, 180), st.floats(-90, 90))


@given(st.lists(PLACES, max_size=20))
def test_columns_are_what_each_place_is(places: list[tuple[float, float]]) -> None:
    points = np.array([ecef(lon, lat) for lon, lat in places]).reshape(-1, 3)
    lon, lat = lon_lat_columns(*points.T)
    wanted = np.array([lon_lat(*point) for point in points]).reshape(-1, 2)
    assert lon == pytest.approx(wanted[:, 0], abs=1e-12)
    assert lat == pytest.approx(wanted[:, 1], abs=1e-12)


@given(st.floats(-720, 720))
def test_the_short_way_is_at_most_half_a_turn(degrees: float) -> None:
    short = short_way(degrees)
    assert abs(short) <= 180
    assert (degrees - short) / 360 == pytest.approx(round((degrees - short) / 360), abs=1e-9)
