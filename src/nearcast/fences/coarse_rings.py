"""Polygons of one ring and few vertices, in small whole numbers: they decide about most ways.

Here the x and y of a vertex, and of a way's ends, are the numbers of the column and the row of the
polygon's box in which they are. Such a number never decreases as the coordinate grows, so whoever
is apart in them is apart. If no edge is near the way's box, then the whole way is inside or outside
and edges to its right say which. All edges are compared without a branch, several at a time; that
is faster than to look only at some, as long as they are few.
"""

from math import inf
from typing import Any

import numpy as np
from numba import njit

from nearcast.fences.crossings import settle
from nearcast.space.outlines import POLYGON

MOST_EDGES = 128  # of a polygon that is kept in this form
TOGETHER = 8  # the number of edges is a multiple of it; more are added that are just points
COLUMNS = 65_535.0
FINEST = 1e-290  # half a box's width, at least, so that there are finitely many columns per unit
OUTSIDE_RING, INSIDE_RING, NEAR_RING = 0, 1, 2


@njit(inline="always")
def columns_per_unit(half: float) -> float:
    return COLUMNS / (2.0 * max(half, FINEST))


@njit(inline="always")
def column_of(coordinate: float, half: float, per_unit: float) -> Any:
    """Within ±32768. Coordinates beyond the box are in its first and last column."""
    return np.int16(int(min(max((coordinate + half) * per_unit, 0.0), COLUMNS)) - 32768)


@njit(cache=True)
def build_coarse_rings(areas: Any, which: Any, coordinates: Any) -> Any:
    """The coarse forms of those of the areas that have one, one after the other: first the x of all
    vertices, with the last one at the beginning, too, then y."""
    total = 0
    for k in which:
        area = areas[k]
        count = area.length // 2
        area.edges = 0
        alone = area.form == POLYGON and not area.earth and area.rings == 1
        if alone and 0 < count <= MOST_EDGES and area.low == -inf and area.high == inf:
            area.edges = (count + TOGETHER - 1) // TOGETHER * TOGETHER
            area.coarse = total
            total += 2 * (area.edges + 1)
    coarse = np.empty(total, np.int16)
    for k in which:
        area = areas[k]
        count = area.length // 2
        per_x, per_y = columns_per_unit(area.rx), columns_per_unit(area.ry)
        for i in range(area.edges + 1 if area.edges else 0):
            vertex = area.first + 2 * (min(i, count) - 1 if i else count - 1)
            x = column_of(coordinates[vertex], area.rx, per_x)
            y = column_of(coordinates[vertex + 1], area.ry, per_y)
            coarse[area.coarse + i] = x
            coarse[area.coarse + area.edges + 1 + i] = y
    return coarse


@njit(inline="always")
def coarse_box(area: Any, begin: Any, end: Any) -> Any:
    """The columns and rows of a way: its west, east, south and north."""
    per_x, per_y = columns_per_unit(area.rx), columns_per_unit(area.ry)
    x0 = column_of(settle(begin[0] - area.x), area.rx, per_x)
    x1 = column_of(settle(end[0] - area.x), area.rx, per_x)
    y0 = column_of(settle(begin[1] - area.y), area.ry, per_y)
    y1 = column_of(settle(end[1] - area.y), area.ry, per_y)
    return min(x0, x1), max(x0, x1), min(y0, y1), max(y0, y1)


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
