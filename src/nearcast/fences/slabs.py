"""Ways through polygons, which look at few edges.

Where there is a coarse form (`coarse_rings`), it says which edges do not matter. Other polygons are
cut into slabs of their height, on Earth of their latitudes: one of n vertices has about n / 2
slabs, each with a list of the edges that reach into it, and a way is compared with the edges of the
slabs that it passes. Edges whose box the way does not touch are decided by comparisons; for the
others the exact rule of `outline_touch.rings_contain` decides about both ends of the way, edge by
edge, and intersections about what lies between.
"""

from typing import Any

import numpy as np
from numba import njit

from nearcast.fences.coarse_rings import coarse_box, coarse_degrees, frame_of, has_no_part
from nearcast.fences.crossings import (
    adjust_ends,
    cut_edge,
    ring_end,
    settle,
    spans_of_cuts,
)
from nearcast.matching.compiled import compile_with_callees
from nearcast.space import outline_touch
from nearcast.space.outlines import POLYGON

turn = compile_with_callees(outline_touch.turn)

MOST_SLABS = 4096
APART, CROSSED, ON_EDGE = 0, 1, 2  # of a ray from a point to the right and an edge


@njit(cache=True)
def slab_of(y: float, area: Any) -> int:
    """Never decreases as y grows, so an edge and a way at the same height have a common slab."""
    _, south, _, half = frame_of(area)
    if half <= 0.0:
        return 0
    return int(min(max((y - south) / (2.0 * half) * area.slabs, 0.0), area.slabs - 1.0))


@njit(cache=True)
def edge_ends(area: Any, coordinates: Any, starts: Any, edge: int) -> Any:
    """Its vertices. Edges are numbered by the coordinate, from the polygon's first one, at which
    they end; the first edge of ring r, which begins at its last vertex, is numbered -1 - r."""
    if edge >= 0:
        i = area.first + edge
        j = i - 2
    else:
        ring = -1 - edge
        i = area.first + 2 * starts[area.ring + ring]
        j = ring_end(area, starts, ring) - 2
    return coordinates[j], coordinates[j + 1], coordinates[i], coordinates[i + 1]


@njit(cache=True)
def list_edges(area: Any, starts: Any, edges: Any) -> Any:
    """The numbers of all edges of a polygon."""
    for i in range(area.length // 2):
        edges[i] = 2 * i
    for ring in range(area.rings):
        edges[starts[area.ring + ring]] = -1 - ring
    return area.length // 2


@njit(cache=True)
def build_slabs(areas: Any, which: Any, coordinates: Any, starts: Any, offset: int) -> Any:
    """Cut these areas into slabs: where the edges of each begin, and the edges. `offset`: of the
    edges that there are already."""
    total_slabs, longest = 0, 0
    for k in which:
        area = areas[k]
        area.slabs = 0
        if area.form == POLYGON and not area.edges:
            area.slabs = min(max(area.length // 4, 1), MOST_SLABS)
        total_slabs += area.slabs + 1
        longest = max(longest, area.length // 2)
    firsts = np.zeros(total_slabs, np.int64)
    edges = np.empty(longest, np.int64)
    base = 0
    for k in which:  # count
        area = areas[k]
        if area.slabs:
            for e in range(list_edges(area, starts, edges)):
                _, ay, _, by = edge_ends(area, coordinates, starts, edges[e])
                for slab in range(
                    slab_of(min(ay, by), area),
                    slab_of(max(ay, by), area) + 1,
                ):
                    firsts[base + slab] += 1
        area.slab = base
        base += area.slabs + 1
    total = 0
    for i in range(total_slabs):
        firsts[i], total = total, total + firsts[i]
    listed = np.empty(total, np.int32)
    taken = firsts.copy()
    for k in which:  # fill
        area = areas[k]
        if area.slabs:
            for e in range(list_edges(area, starts, edges)):
                _, ay, _, by = edge_ends(area, coordinates, starts, edges[e])
                for slab in range(
                    slab_of(min(ay, by), area),
                    slab_of(max(ay, by), area) + 1,
                ):
                    listed[taken[area.slab + slab]] = edges[e]
                    taken[area.slab + slab] += 1
    return firsts + offset, listed


@njit(inline="always")
def cross_ray(ax: float, ay: float, bx: float, by: float, x: float, y: float) -> int:
    """A ray from the point to the right and an edge; as `outline_touch.rings_contain` has it."""
    if (ay > y) != (by > y):
        if ax > x and bx > x:
            return CROSSED
        if ax >= x or bx >= x:
            side = turn(ax, ay, bx, by, x, y)
            if side == 0.0:
                return ON_EDGE
            return CROSSED if (side > 0.0) == (by > ay) else APART
    elif by == y and (bx == x or (ay == y and (ax < x) != (bx < x))):
        return ON_EDGE
    return APART


@njit(inline="always")
def meet_edge(edge: Any, way: Any, spans: Any, met: Any) -> Any:
    """Add what an edge says: whether rays to the right from the ends of the way cross edges an odd
    number of times, whether the ends are on an edge, and how often the way meets edges."""
    (ax, ay, bx, by), (x0, y0, x1, y1, dx, dy) = edge, way
    odd0, odd1, on0, on1, cuts = met
    if max(ay, by) < min(y0, y1) or min(ay, by) > max(y0, y1) or max(ax, bx) < min(x0, x1):
        return met
    if ax > max(x0, x1) and bx > max(x0, x1):
        return odd0 ^ ((ay > y0) != (by > y0)), odd1 ^ ((ay > y1) != (by > y1)), on0, on1, cuts
    ray0, ray1 = cross_ray(ax, ay, bx, by, x0, y0), cross_ray(ax, ay, bx, by, x1, y1)
    a_side = (ax - x0) * dy - (ay - y0) * dx
    b_side = (bx - x0) * dy - (by - y0) * dx
    cuts = cut_edge(ax - x0, ay - y0, a_side, bx - x0, by - y0, b_side, dx, dy, spans, cuts)
    return (
        odd0 ^ (ray0 == CROSSED), odd1 ^ (ray1 == CROSSED),
        on0 | (ray0 == ON_EDGE), on1 | (ray1 == ON_EDGE), cuts,
    )  # fmt: skip


@njit(inline="always")
def meet_ring(area: Any, table: Any, box: Any, way: Any, spans: Any) -> Any:
    """What the edges of a polygon with a coarse form say."""
    _, coordinates, _, _, _, coarse = table
    west, _, south, north = box
    met = (False, False, False, False, 0)
    x, y = area.coarse, area.coarse + area.edges + 1
    j = area.first + area.length - 2
    for k in range(area.length // 2):
        i = area.first + 2 * k
        if not has_no_part(
            coarse[x + k], coarse[y + k], coarse[x + k + 1], coarse[y + k + 1], west, south, north
        ):
            edge = coordinates[j], coordinates[j + 1], coordinates[i], coordinates[i + 1]
            met = meet_edge(edge, way, spans, met)
        j = i
    return met


@njit(inline="always")
def meet_slabs(area: Any, table: Any, way: Any, spans: Any) -> Any:
    """What the edges of a polygon with slabs say."""
    _, coordinates, starts, firsts, edges, _ = table
    first, last = slab_of(min(way[1], way[3]), area), slab_of(max(way[1], way[3]), area)
    met = (False, False, False, False, 0)
    for slab in range(first, last + 1):
        for e in range(firsts[area.slab + slab], firsts[area.slab + slab + 1]):
            edge = edge_ends(area, coordinates, starts, edges[e])
            if slab > first and slab_of(min(edge[1], edge[3]), area) < slab:
                continue  # it was in the slab before
            met = meet_edge(edge, way, spans, met)
    return met


@njit(cache=True)
def visit_polygon(area: Any, table: Any, p0: Any, p1: Any, spans: Any) -> Any:
    """As `find_visits`: how many visits there are, and whether both ends are inside."""
    dx, dy = p1[0] - p0[0], p1[1] - p0[1]  # as `find_visits` has it, to the last digit
    way = (
        settle(p0[0] - area.x), settle(p0[1] - area.y),
        settle(p1[0] - area.x), settle(p1[1] - area.y), dx, dy,
    )  # fmt: skip
    if area.edges:
        met = meet_ring(area, table, coarse_box(area, p0, p1), way, spans)
    else:
        met = meet_slabs(area, table, way, spans)
    return visits_of_edges(area, table, met, way, spans)


@njit(cache=True)
def visit_earth_polygon(area: Any, table: Any, degrees: Any, spans: Any) -> Any:
    """The same on Earth, of a way that meets the polygon in the turn in which both are written.
    Places are on the surface, so whoever is inside in degrees is in the box around it."""
    lon, lat, lon1, lat1, d_lon, _ = degrees
    way = settle(lon), settle(lat), settle(lon1), settle(lat1), d_lon, lat1 - lat
    if area.edges:
        met = meet_ring(area, table, coarse_degrees(area, degrees, 0.0), way, spans)
    else:
        met = meet_slabs(area, table, way, spans)
    return visits_of_edges(area, table, met, way, spans)


@njit(cache=True)
def visits_of_edges(area: Any, table: Any, met: Any, way: Any, spans: Any) -> Any:
    """The visits by what all edges that matter have said."""
    _, coordinates, starts, _, _, _ = table
    x0, y0, _, _, dx, dy = way
    odd0, odd1, on0, on1, cuts = met
    inside0, inside1 = odd0 or on0, odd1 or on1
    if cuts == 0 or (cuts == 1 and inside0 != inside1):
        low = spans[0, 0] if cuts and not inside0 else 0.0
        high = spans[0, 0] if cuts and not inside1 else 1.0
        spans[0, 0], spans[0, 1] = low, high
        count = 1 if inside0 or inside1 else 0
        if cuts == 0 and inside0 != inside1:
            count = 0
    else:
        count = spans_of_cuts(area, coordinates, starts, x0, y0, dx, dy, spans, cuts)
    return adjust_ends(spans, count, inside0, inside1), inside0, inside1
