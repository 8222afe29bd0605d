"""Outlines of land in a part of the Earth, as rings for maps.

The data are those of the monitor's map (`monitor/static/land.md` says what they are).
"""

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nearcast.pipeline.report.plots import Point

LAND = Path(__file__).parents[2] / "monitor" / "static" / "land.bin"
UNITS = 160  # in a degree
SMALLEST = 1.0  # an island or lake that covers less of a plot, in square units, is not drawn
FINEST = 0.7  # units between vertices that are drawn

Vertices = NDArray[np.float64]  # two columns: longitude and latitude


@cache
def land_rings() -> tuple[Vertices, ...]:
    """All rings, with longitudes from -180 to 180. Lakes go round the other way than land."""
    numbers = np.frombuffer(LAND.read_bytes(), "<i2")
    rings, at = [], 0
    while at < len(numbers):
        count = int(numbers[at])
        end = at + 1 + 2 * abs(count)
        if count > 0:  # borders, which are lines, have a negative number
            rings.append(numbers[at + 1 : end].reshape(-1, 2) / UNITS)
        at = end
    return tuple(rings)


def land_between(
    west: float, south: float, east: float, north: float, at: Callable[[float, float], Point]
) -> Iterator[list[Point]]:
    """What is land between these meridians and parallels, as rings of a plot.

    Longitudes may be beyond 180; `at` says where a place is in the plot. What would not be seen
    there is left out.
    """
    for ring in land_rings():
        (low_x, low_y), (high_x, high_y) = ring.min(axis=0), ring.max(axis=0)
        if high_y < south or low_y > north:
            continue
        first, last = np.ceil((west - high_x) / 360), np.floor((east - low_x) / 360)
        for turn in np.arange(first, last + 1):
            inside = _clipped(ring + np.array([360 * turn, 0.0]), west, south, east, north)
            drawn = _thinned([at(x, y) for x, y in inside.tolist()])
            if len(drawn) > 2 and abs(signed_area(drawn)) >= SMALLEST:
                yield drawn


def signed_area(ring: list[Point]) -> float:
    """Positive or negative, by the direction in which the ring goes round."""
    x, y = np.array(ring).T
    return float(np.sum(x * np.roll(y, -1) - np.roll(x, -1) * y)) / 2


def _clipped(ring: Vertices, west: float, south: float, east: float, north: float) -> Vertices:
    """The part of a ring inside of a box (Sutherland and Hodgman): edge by edge of the box."""
    for axis, sign, edge in ((0, 1, west), (0, -1, east), (1, 1, south), (1, -1, north)):
        beyond = sign * (ring[:, axis] - edge)  # at least 0 inside
        after, beyond_after = np.roll(ring, -1, axis=0), np.roll(beyond, -1)
        crosses = (beyond >= 0) != (beyond_after >= 0)
        share = np.divide(beyond, beyond - beyond_after, where=crosses, out=np.zeros_like(beyond))
        cuts = ring + share[:, None] * (after - ring)
        # Each vertex is followed by the place where its edge crosses; what is outside is left out.
        both = np.stack((ring, cuts), axis=1).reshape(-1, 2)
        ring = both[np.stack((beyond >= 0, crosses), axis=1).ravel()]
        if not len(ring):
            break
    return ring


def _thinned(ring: list[Point]) -> list[Point]:
    kept: list[Point] = []
    for x, y in ring:
        if not kept or max(abs(x - kept[-1][0]), abs(y - kept[-1][1])) >= FINEST:
            kept.append((x, y))
    return kept
