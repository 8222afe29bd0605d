"""Columns of longitude and latitude as columns of ECEF metres, and back.

The definition is that of `space.earth`, whose functions are compiled here.
"""

from typing import Any

import numpy as np
from numba import njit

from nearcast.columns import writable
from nearcast.space import earth

ecef = njit(inline="always")(earth.ecef)
lon_lat = njit(inline="always")(earth.lon_lat)
height_ratio = njit(inline="always")(earth.height_ratio)


def ecef_columns(lon: Any, lat: Any) -> Any:
    """x, y and z of places on the surface, in metres."""
    return _ecef_columns(writable(lon, np.float64), writable(lat, np.float64))


@njit(cache=True)
def _ecef_columns(lon: Any, lat: Any) -> Any:
    x, y, z = np.empty(len(lon)), np.empty(len(lon)), np.empty(len(lon))
    for row in range(len(lon)):
        x[row], y[row], z[row] = ecef(lon[row], lat[row])
    return x, y, z


def lon_lat_columns(x: Any, y: Any, z: Any) -> Any:
    """Longitude and latitude of places on the surface, in degrees."""
    return _lon_lat_columns(*(writable(column, np.float64) for column in (x, y, z)))


@njit(cache=True)
def _lon_lat_columns(x: Any, y: Any, z: Any) -> Any:
    lon, lat = np.empty(len(x)), np.empty(len(x))
    for row in range(len(x)):
        lon[row], lat[row] = lon_lat(x[row], y[row], z[row])
    return lon, lat


@njit(cache=True)
def raised_to_surface(x: Any, y: Any, z: Any) -> Any:
    """The places on the surface in the same directions from the centre of the Earth.

    Those of a straight way between two places, which leads below the surface, are then on the
    great circle between them.
    """
    ratio = np.empty(len(x))
    for row in range(len(x)):
        ratio[row] = height_ratio(x[row], y[row], z[row])
    return x / ratio, y / ratio, z / ratio


def short_way(degrees: Any) -> Any:
    """Differences of longitudes the short way round, within ±180."""
    return degrees - 360.0 * np.round(degrees / 360.0)
