"""Columns of a trace on Earth in degrees."""

from typing import Any

import numpy as np

from nearcast.space.earth import ECCENTRICITY2


def lon_lat_columns(x: Any, y: Any, z: Any) -> tuple[Any, Any]:
    """Longitude and latitude of places on the surface: `space.earth.lon_lat` of whole columns."""
    across = (1.0 - ECCENTRICITY2) * np.hypot(x, y)
    return np.degrees(np.arctan2(y, x)), np.degrees(np.arctan2(z, across))


def short_way(degrees: Any) -> Any:
    """Differences of longitudes the short way round, within ±180."""
    return degrees - 360.0 * np.round(degrees / 360.0)
