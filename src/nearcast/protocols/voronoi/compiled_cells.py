"""Compiled kernels on the Voronoi regions of a few sites, in floating point.

Who does what: `space.voronoi` answers exactly, one region at a time. `compiled_cells` answers many
questions at once and conservatively: it may report a neighbour too many, never one too few.
`local_diagram` keeps the sites that one site knows and asks both.

A region is a polygon in floats. It starts as a square that is much larger than all sites, and every
comparison has a small tolerance (SLIVER).
"""

import numpy as np
from numba import njit
from numpy.typing import NDArray

from nearcast.space.shapes import DISC

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Integers = NDArray[np.int64]

# How much larger than the sites' spread the first square is. Sites whose regions meet only beyond
# it, as those in one line nearly do, are no neighbours here.
HUGE = 1e6
SLIVER = 1e-7  # of the spread: rounding is far below it
FARTHEST = 1e150  # stands for infinite extents, which times 0 would be no number


@njit(cache=True)
def polygon(xs: Floats, ys: Floats, at: int, half: float, px: Floats, py: Floats) -> int:
    """The corners of a site's region as seen from the site, counter-clockwise; their number."""
    px[0], px[1], px[2], px[3] = -half, half, half, -half
    py[0], py[1], py[2], py[3] = -half, -half, half, half
    count, farthest = 4, 2 * half * half
    qx, qy = np.empty_like(px), np.empty_like(py)
    for other in range(len(xs)):
        dx, dy = xs[other] - xs[at], ys[other] - ys[at]
        square = dx * dx + dy * dy
        # A twin has the same region; a bisector lies half-way, beyond all corners if too far.
        if square == 0.0 or square > 4 * farthest:
            continue
        kept, farthest = 0, 0.0
        before = px[count - 1] * dx + py[count - 1] * dy - square / 2
        for corner in range(count):
            x, y = px[corner], py[corner]
            after = x * dx + y * dy - square / 2
            if (before < 0) != (after < 0):
                share = before / (before - after)
                cut_x = px[corner - 1] + share * (x - px[corner - 1])
                cut_y = py[corner - 1] + share * (y - py[corner - 1])
                if corner == 0:
                    cut_x = px[count - 1] + share * (x - px[count - 1])
                    cut_y = py[count - 1] + share * (y - py[count - 1])
                qx[kept], qy[kept] = cut_x, cut_y
                farthest = max(farthest, cut_x * cut_x + cut_y * cut_y)
                kept += 1
            if after < 0:
                qx[kept], qy[kept] = x, y
                farthest = max(farthest, x * x + y * y)
                kept += 1
            before = after
        count = kept
        for corner in range(count):  # slices would take numba three seconds to compile
            px[corner], py[corner] = qx[corner], qy[corner]
    return count


@njit(cache=True)
def distance(px: Floats, py: Floats, count: int, x: float, y: float) -> float:
    """From a point to a convex polygon; 0 inside."""
    least, inside = np.inf, True
    for corner in range(count):
        ax, ay = px[corner - 1 if corner else count - 1], py[corner - 1 if corner else count - 1]
        sx, sy = px[corner] - ax, py[corner] - ay
        length = sx * sx + sy * sy
        if length == 0.0:
            continue
        wx, wy = x - ax, y - ay
        inside = inside and sx * wy - sy * wx >= 0
        along = min(max((sx * wx + sy * wy) / length, 0.0), 1.0)
        wx, wy = wx - along * sx, wy - along * sy
        least = min(least, np.sqrt(wx * wx + wy * wy))
    return 0.0 if inside else least


@njit(cache=True)
def related(xs: Floats, ys: Floats, reaches: Floats, at: int, room: float, touching: bool) -> Flags:
    """Sites that must know this one: they enclose it, it reaches them, or they reach it.

    A site reaches another if its area of interest, a disc around it widened by `room`, touches the
    other's region. That is more than VON asks for (the other's place in the disc), and it is what
    a publication needs that is made elsewhere: the owner of its place knows all who want it. Not
    `touching`: as VON has it, and much faster.
    """
    sites = len(xs)
    spread = _spread(xs, ys)
    half, sliver = HUGE * spread + room, SLIVER * spread
    px, py = np.empty(sites + 8), np.empty(sites + 8)
    found = np.zeros(sites, np.bool_)
    count = polygon(xs, ys, at, half, px, py)
    reach = reaches[at] + room + sliver
    for other in range(sites):
        dx, dy = xs[other] - xs[at], ys[other] - ys[at]
        square = dx * dx + dy * dy
        away = np.sqrt(square)
        if away <= max(reach, reaches[other] + room):
            found[other] = True
            continue
        for corner in range(count):  # does its bisector touch the region?
            if px[corner] * dx + py[corner] * dy - square / 2 >= -sliver * away:
                found[other] = True
                break
        if touching and not found[other] and away <= 2 * (reaches[other] + room + sliver):
            found[other] = distance(px, py, count, dx, dy) <= reaches[other] + room + sliver
    qx, qy = np.empty(sites + 8), np.empty(sites + 8)
    for other in range(sites if touching else 0):
        dx, dy = xs[at] - xs[other], ys[at] - ys[other]
        # Whoever owns a point of the disc is no farther from it than the disc's own site is.
        if not found[other] and dx * dx + dy * dy <= 4 * reach * reach:
            count = polygon(xs, ys, other, half, qx, qy)
            found[other] = distance(qx, qy, count, dx, dy) <= reach
    found[at] = False
    return found


@njit(cache=True)
def bordering(xs: Floats, ys: Floats, at: int, reach: float) -> Flags:
    """VON's boundary neighbours ([VSO] II-C): in a disc around a site, with a region leaving it."""
    sites = len(xs)
    spread = _spread(xs, ys)
    px, py = np.empty(sites + 8), np.empty(sites + 8)
    found = np.zeros(sites, np.bool_)
    for other in range(sites):
        dx, dy = xs[other] - xs[at], ys[other] - ys[at]
        if other == at or dx * dx + dy * dy > reach * reach:
            continue
        count = polygon(xs, ys, other, HUGE * spread, px, py)
        for corner in range(count):
            x, y = px[corner] + dx, py[corner] + dy
            if x * x + y * y >= reach * reach:
                found[other] = True
                break
    return found


@njit(cache=True)
def touching(
    xs: Floats, ys: Floats, kinds: Integers, x: Floats, y: Floats, rx: Floats, ry: Floats
) -> Flags:
    """Which areas (rows) may touch which sites' regions (columns): discs and points, or boxes."""
    sites, areas = len(xs), len(x)
    spread = _spread(xs, ys)
    half = HUGE * spread
    for area in range(areas):
        half = max(half, 4 * (abs(x[area] - xs[0]) + abs(y[area] - ys[0]) + spread))
    sliver = SLIVER * spread
    px, py = np.empty(sites + 8), np.empty(sites + 8)
    found = np.zeros((areas, sites), np.bool_)
    for site in range(sites):
        count = polygon(xs, ys, site, half, px, py)
        for area in range(areas):
            dx, dy = x[area] - xs[site], y[area] - ys[site]
            if kinds[area] == DISC:
                found[area, site] = distance(px, py, count, dx, dy) <= rx[area] + sliver
            else:
                wide, high = min(rx[area], FARTHEST), min(ry[area], FARTHEST)
                found[area, site] = _box_meets(px, py, count, dx, dy, wide + sliver, high + sliver)
    return found


@njit(cache=True)
def _box_meets(
    px: Floats, py: Floats, count: int, x: float, y: float, rx: float, ry: float
) -> bool:
    """Two convex shapes are apart if a side of one of them separates them."""
    if px[:count].max() < x - rx or px[:count].min() > x + rx:
        return False
    if py[:count].max() < y - ry or py[:count].min() > y + ry:
        return False
    for corner in range(count):
        before = corner - 1 if corner else count - 1
        sx, sy = px[corner] - px[before], py[corner] - py[before]
        # The box's corner that lies farthest to the left of the side, which is the inside.
        inward = sx * (y - py[before]) - sy * (x - px[before]) + abs(sx) * ry + abs(sy) * rx
        if inward < 0:
            return False
    return True


@njit(cache=True)
def _spread(xs: Floats, ys: Floats) -> float:
    """The sites' extent; of a single one its distance from the origin, and never nothing."""
    spread = max(xs.max() - xs.min(), ys.max() - ys.min())
    return float(max(spread, 1e-9 * max(abs(xs[0]), abs(ys[0])), 1e-9))
