"""Polygons of one ring and few vertices, in small whole numbers: they decide about most ways.

Here the x and y of a vertex, and of a way's ends, are the numbers of the column and the row of the
polygon's box in which they are. Such a number never decreases as the coordinate grows, so whoever
is apart in them is apart. If no edge is near the way's box, then the whole way is inside or outside
and edges to its right say which. All edges are compared without a branch, several at a time; that
is faster than to look only at some, as long as they are few.

On Earth the same holds in degrees. A way's box there is a column and a row wider on each side than
the way, for what rounding does to longitudes.
"""

from typing import Any

import numpy as np
from numba import njit

from nearcast.fences.crossings import settle
from nearcast.space.outlines import POLYGON

MOST_EDGES = 128  # of a polygon that is kept in this form
TOGETHER = 8  # the number of edges is a multiple of it; more are added that are just points
COLUMNS = 65_535.0
FINEST = 1e-290  # half a box's width, at least, so that there are finitely many columns per unit
NARROWEST = 1e-6  # degrees: columns of a box so wide are far wider than what rounding does
OUTSIDE_RING, INSIDE_RING, NEAR_RING = 0, 1, 2


@njit(inline="always")
def columns_per_unit(half: float) -> float:
    return COLUMNS / (2.0 * max(half, FINEST))


@njit(inline="always")
def column_of(offset: float, per_unit: float) -> Any:
    """Within ±32768, by how far it is from the western or southern border. What is beyond the box
    is in its first or last column."""
    return np.int16(int(min(max(offset * per_unit, 0.0), COLUMNS)) - 32768)


@njit(inline="always")
def frame_of(area: Any) -> Any:
    """West, south, and half the width and height of the box in which vertices are written: in the
    plane relative to its centre, on Earth in degrees."""
    if area.earth:
        return area.west, area.south, 0.5 * (area.east - area.west), 0.5 * (area.north - area.south)
    return -area.rx, -area.ry, area.rx, area.ry


@njit(cache=True)
def build_coarse_rings(areas: Any, which: Any, coordinates: Any) -> Any:
    """The coarse forms of those of the areas that have one, one after the other: first the x of all
    vertices, with the last one at the beginning, too, then y."""
    total = 0
    for k in which:
        area = areas[k]
        count = area.length // 2
        area.edges = 0
        alone = area.form == POLYGON and area.rings == 1 and 0 < count <= MOST_EDGES
        if alone and (not area.earth or is_wide(area)):
            area.edges = (count + TOGETHER - 1) // TOGETHER * TOGETHER
            area.coarse = total
            total += 2 * (area.edges + 1)
    coarse = np.empty(total, np.int16)
    for k in which:
        area = areas[k]
        count = area.length // 2
        west, south, half_x, half_y = frame_of(area)
        per_x, per_y = columns_per_unit(half_x), columns_per_unit(half_y)
        for i in range(area.edges + 1 if area.edges else 0):
            vertex = area.first + 2 * (min(i, count) - 1 if i else count - 1)
            x = column_of(coordinates[vertex] - west, per_x)
            y = column_of(coordinates[vertex + 1] - south, per_y)
            coarse[area.coarse + i] = x
            coarse[area.coarse + area.edges + 1 + i] = y
    return coarse


@njit(inline="always")
def coarse_box(area: Any, begin: Any, end: Any) -> Any:
    """The columns and rows of a way: its west, east, south and north."""
    per_x, per_y = columns_per_unit(area.rx), columns_per_unit(area.ry)
    x0 = column_of(settle(begin[0] - area.x) + area.rx, per_x)
    x1 = column_of(settle(end[0] - area.x) + area.rx, per_x)
    y0 = column_of(settle(begin[1] - area.y) + area.ry, per_y)
    y1 = column_of(settle(end[1] - area.y) + area.ry, per_y)
    return min(x0, x1), max(x0, x1), min(y0, y1), max(y0, y1)


@njit(cache=True)
def is_wide(area: Any) -> Any:
    """Are its bounds in degrees wide enough for a coarse form?"""
    return area.east - area.west >= NARROWEST and area.north - area.south >= NARROWEST


@njit(inline="always")
def coarse_degrees(area: Any, way: Any, turn: float) -> Any:
    """As `coarse_box` for a way in degrees that is turned round the Earth by so many."""
    lon, lat, _, lat1, d_lon, _ = way
    west, south, half_x, half_y = frame_of(area)
    per_x, per_y = columns_per_unit(half_x), columns_per_unit(half_y)
    x0, x1 = (lon + turn - west) * per_x, (lon + turn + d_lon - west) * per_x
    y0, y1 = (lat - south) * per_y, (lat1 - south) * per_y
    return (
        column_of(min(x0, x1) - 1.0, 1.0), column_of(max(x0, x1) + 1.0, 1.0),
        column_of(min(y0, y1) - 1.0, 1.0), column_of(max(y0, y1) + 1.0, 1.0),
    )  # fmt: skip


@njit(inline="always")
def has_no_part(ax: Any, ay: Any, bx: Any, by: Any, west: Any, south: Any, north: Any) -> Any:
    """Is the edge above, below or left of the way? Then neither the way nor rays to the right from
    its ends meet it."""
    return (
        ((ay > north) & (by > north)) | ((ay < south) & (by < south)) | ((ax < west) & (bx < west))
    )


@njit(inline="always")
def compare_with_ring(coarse: Any, first: int, edges: int, box: Any) -> int:
    """Where the way with this box is. The ray to the right that is compared with edges begins in
    the box, too, at the upper end of its lowest row. Unsigned numbers, because a negative index
    would count from the end, and the compiler compares several edges at a time only if none is."""
    west, east, south, north = (
        np.int16(box[0]),
        np.int16(box[1]),
        np.int16(box[2]),
        np.int16(box[3]),
    )
    x, y, one = np.uint64(first), np.uint64(first + edges + 1), np.uint64(1)
    near = odd = False
    for k in range(np.uint64(edges)):
        ax, ay = coarse[x + k], coarse[y + k]
        bx, by = coarse[x + k + one], coarse[y + k + one]
        right = (ax > east) & (bx > east)
        near |= not (has_no_part(ax, ay, bx, by, west, south, north) | right)
        odd ^= right & ((ay > south) != (by > south))
    if near:
        return NEAR_RING
    return INSIDE_RING if odd else OUTSIDE_RING
