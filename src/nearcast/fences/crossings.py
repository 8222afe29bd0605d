"""The visits of one straight way to one area, as it is at one moment.

A way leads from p0 to p1; a visit is an interval [s_in, s_out] of fractions of it. Both ends of a
way are decided by `contains_point` alone, so consecutive ways agree about the place between them;
what lies between the ends is decided by intersections. `adjust_ends` makes both agree, so that
entering and leaving alternate.

Ways to polygons on Earth are straight in longitude and latitude, the short way round; all others
are straight in x, y and z, and in height.
"""

from math import atan2, degrees, floor, inf, isnan, nan, sqrt
from typing import Any

import numpy as np
from numba import njit

from nearcast.fences.areas import NO_FORM
from nearcast.matching.compiled import compile_with_callees
from nearcast.space import earth, outline_touch, shapes
from nearcast.space.outline_touch import AT_POLE
from nearcast.space.outlines import BALL, CORRIDOR, POLYGON, WHOLE
from nearcast.space.shapes import DISC, POINT

overlap = njit(inline="always")(shapes.overlap)
contains_point = compile_with_callees(outline_touch.contains_point)
rings_contain = compile_with_callees(outline_touch.rings_contain)
settle = compile_with_callees(outline_touch.settle)
lon_lat = compile_with_callees(earth.lon_lat)
ecef = compile_with_callees(earth.ecef)
bearing = compile_with_callees(earth.bearing)

ROUNDING = 1e-9  # of a way: a visit that ends so near to an end belongs to the end
SEAM = 1e-12  # of a way: two visits so near to each other are one
NEARLY = 1e-9  # degrees, far more than what rounding does to them


@njit(cache=True)
def shorter_way_round(lon0: float, lon1: float) -> float:
    """The difference of two longitudes, within ±180 degrees."""
    d = lon1 - lon0
    return d - 360.0 * floor((d + 180.0) / 360.0) if d < -180.0 or d > 180.0 else d


@njit(cache=True)
def way_in_degrees(p0: Any, p1: Any) -> Any:
    """Longitudes and latitudes of its ends, how far it leads to the east, and whether an end is a
    pole. A pole has all longitudes: the way follows the meridian of the other end."""
    lon0, lat0 = lon_lat(p0[0], p0[1], p0[2])
    lon1, lat1 = lon_lat(p1[0], p1[1], p1[2])
    from_pole = p0[0] * p0[0] + p0[1] * p0[1] <= AT_POLE
    to_pole = p1[0] * p1[0] + p1[1] * p1[1] <= AT_POLE
    if from_pole:
        lon0 = lon1
    if to_pole:
        lon1 = lon0
    return lon0, lat0, lon1, lat1, shorter_way_round(lon0, lon1), from_pole or to_pole


@njit(cache=True)
def turns_to(area: Any, way: Any) -> Any:
    """By how many turns round the Earth a way in degrees may meet the longitudes of a polygon, and
    one of them. Nearly meeting them counts."""
    lon, _, _, _, d_lon, _ = way
    west, east = min(lon, lon + d_lon) - NEARLY, max(lon, lon + d_lon) + NEARLY
    count, found = 0, 0.0
    for turn in (-360.0, 0.0, 360.0):
        if west + turn <= area.east and east + turn >= area.west:
            count, found = count + 1, turn
    return count, found


@njit(cache=True)
def ring_end(area: Any, starts: Any, ring: int) -> Any:
    """Where the coordinates of this ring end."""
    if ring + 1 < area.rings:
        return area.first + 2 * starts[area.ring + ring + 1]
    return area.first + area.length


@njit(cache=True)
def contains(area: Any, coordinates: Any, starts: Any, place: Any) -> Any:
    """Does the closed area contain the place (x, y, z, height)? Of the height NaN says unknown.

    This alone decides about the ends of ways: `shapes.overlap`, then the outline if there is one.
    """
    x, y, z, height = place
    if not overlap(
        area.kind, area.x, area.y, area.z, area.rx, area.ry, area.rz,
        POINT, x, y, z, 0.0, 0.0, 0.0,
    ):  # fmt: skip
        return False
    if area.form == NO_FORM:
        return True
    low, high = (-inf, inf) if isnan(height) else (height, height)
    first, ring = area.first, area.ring
    return contains_point(
        area.form, area.earth != 0,
        coordinates[first : first + area.length], starts[ring : ring + area.rings],
        area.size, area.low, area.high, area.x, area.y, area.z, x, y, z, low, high,
    )  # fmt: skip


@njit(cache=True)
def ball_span(f: Any, d: Any, r: float) -> Any:
    """Where f + s·d is within r of the origin, in four dimensions; nowhere: 1 to 0."""
    (fx, fy, fz, fh), (dx, dy, dz, dh) = f, d
    a = dx * dx + dy * dy + dz * dz + dh * dh
    b = fx * dx + fy * dy + fz * dz + fh * dh
    c = fx * fx + fy * fy + fz * fz + fh * fh - r * r
    if a == 0.0:
        return (0.0, 1.0) if c <= 0.0 else (1.0, 0.0)
    under = b * b - a * c
    if not under >= 0.0:
        return 1.0, 0.0
    root = sqrt(under)
    # The larger of two numbers first: the other would lose its digits.
    if b > 0.0:
        q = -b - root
        return q / a, c / q
    q = -b + root
    return (c / q, q / a) if q > 0.0 else (0.0, 0.0)


@njit(cache=True)
def slab_span(f: float, d: float, low: float, high: float) -> Any:
    """Where low <= f + s·d <= high."""
    if d == 0.0:
        return (-inf, inf) if low <= f <= high else (1.0, 0.0)
    a, b = (low - f) / d, (high - f) / d
    return (a, b) if a <= b else (b, a)


@njit(cache=True)
def box_span(area: Any, way: Any) -> Any:
    (fx, fy, fz, _), (dx, dy, dz, _) = way
    ax, bx = slab_span(fx - area.x, dx, -area.rx, area.rx)
    ay, by = slab_span(fy - area.y, dy, -area.ry, area.ry)
    az, bz = slab_span(fz - area.z, dz, -area.rz, area.rz)
    return max(ax, ay, az, 0.0), min(bx, by, bz, 1.0)


@njit(cache=True)
def capsule_span(f: Any, d: Any, e: Any, r: float) -> Any:
    """Where f + s·d is within r of the segment from the origin to e. A capsule is convex, so this
    is one interval: from the first to the last touch of its two balls and of its cylinder."""
    (fx, fy, fz), (dx, dy, dz), (ex, ey, ez) = f, d, e
    still = (dx, dy, dz, 0.0)
    low, high = inf, -inf
    a, b = ball_span((fx, fy, fz, 0.0), still, r)
    if a <= b:
        low, high = a, b
    a, b = ball_span((fx - ex, fy - ey, fz - ez, 0.0), still, r)
    if a <= b:
        low, high = min(low, a), max(high, b)
    length2 = ex * ex + ey * ey + ez * ez
    if length2 == 0.0:
        return low, high
    f_along = (fx * ex + fy * ey + fz * ez) / length2
    d_along = (dx * ex + dy * ey + dz * ez) / length2
    across = (dx - d_along * ex, dy - d_along * ey, dz - d_along * ez, 0.0)
    a, b = ball_span((fx - f_along * ex, fy - f_along * ey, fz - f_along * ez, 0.0), across, r)
    u, v = slab_span(f_along, d_along, 0.0, 1.0)
    a, b = max(a, u), min(b, v)
    if a <= b:
        low, high = min(low, a), max(high, b)
    return low, high


@njit(cache=True)
def add_span(spans: Any, count: int, low: float, high: float) -> int:
    """Append what lies within [0, 1]; kept sorted by where spans begin."""
    low, high = max(low, 0.0), min(high, 1.0)
    if not low <= high:
        return count
    i = count
    while i > 0 and spans[i - 1, 0] > low:
        spans[i, 0], spans[i, 1] = spans[i - 1, 0], spans[i - 1, 1]
        i -= 1
    spans[i, 0], spans[i, 1] = low, high
    return count + 1


@njit(cache=True)
def join_spans(spans: Any, count: int) -> int:
    """Spans in order; those that touch become one."""
    kept = 0
    for i in range(count):
        if kept and spans[i, 0] <= spans[kept - 1, 1] + SEAM:
            spans[kept - 1, 1] = max(spans[kept - 1, 1], spans[i, 1])
        else:
            spans[kept, 0], spans[kept, 1] = spans[i, 0], spans[i, 1]
            kept += 1
    return kept


@njit(cache=True)
def clip_spans(spans: Any, count: int, low: float, high: float) -> int:
    kept = 0
    for i in range(count):
        a, b = max(spans[i, 0], low), min(spans[i, 1], high)
        if a <= b:
            spans[kept, 0], spans[kept, 1] = a, b
            kept += 1
    return kept


@njit(cache=True)
def corridor_spans(area: Any, coordinates: Any, way: Any, spans: Any) -> int:
    """What is within `size` of a line is a capsule for each of its segments."""
    (fx, fy, fz, _), (dx, dy, dz, _) = way
    dims = 3
    if not area.earth:
        fx, fy, fz, dz, dims = fx - area.x, fy - area.y, 0.0, 0.0, 2
    count = 0
    ax, ay, az = line_vertex(coordinates, area.first, dims)
    for i in range(area.first + dims, area.first + area.length, dims):
        bx, by, bz = line_vertex(coordinates, i, dims)
        low, high = capsule_span(
            (fx - ax, fy - ay, fz - az), (dx, dy, dz), (bx - ax, by - ay, bz - az), area.size
        )
        count = add_span(spans, count, low, high)
        ax, ay, az = bx, by, bz
    return join_spans(spans, count)


@njit(cache=True)
def line_vertex(coordinates: Any, i: int, dims: int) -> Any:
    return coordinates[i], coordinates[i + 1], coordinates[i + 2] if dims == 3 else 0.0


@njit(cache=True)
def sector_spans(area: Any, coordinates: Any, way: Any, spans: Any) -> int:
    """A sector is a ball around the apex, and between its borders. On Earth directions are those
    in the tangent plane at the apex, in which a straight way is straight, too."""
    (fx, fy, fz, _), (dx, dy, dz, _) = way
    apex = area.first
    if area.earth:
        fx, fy, fz = fx - coordinates[apex], fy - coordinates[apex + 1], fz - coordinates[apex + 2]
        east, north, rest = apex + 3, apex + 6, apex + 9
        f_east, d_east = dot(coordinates, east, fx, fy, fz), dot(coordinates, east, dx, dy, dz)
        f_north, d_north = dot(coordinates, north, fx, fy, fz), dot(coordinates, north, dx, dy, dz)
    else:
        fx, fy = fx - area.x - coordinates[apex], fy - area.y - coordinates[apex + 1]
        fz = dz = 0.0
        rest, f_east, f_north, d_east, d_north = apex + 2, fx, fy, dx, dy
    low, high = ball_span((fx, fy, fz, 0.0), (dx, dy, dz, 0.0), area.size)
    angle = coordinates[rest + 1]
    right_x, right_y = coordinates[rest + 2], coordinates[rest + 3]
    left_x, left_y = coordinates[rest + 4], coordinates[rest + 5]
    a, b = slab_span(
        right_x * f_north - right_y * f_east, right_x * d_north - right_y * d_east, 0.0, inf
    )
    u, v = slab_span(f_east * left_y - f_north * left_x, d_east * left_y - d_north * left_x, 0, inf)
    if angle > 180.0:
        count = add_span(spans, 0, max(low, a), min(high, b))
        count = add_span(spans, count, max(low, u), min(high, v))
        return join_spans(spans, count)
    low, high = max(low, a, u), min(high, b, v)
    if angle <= 90.0:
        ahead_x, ahead_y = right_x + left_x, right_y + left_y
        a, b = slab_span(
            f_east * ahead_x + f_north * ahead_y, d_east * ahead_x + d_north * ahead_y, 0.0, inf
        )
        low, high = max(low, a), min(high, b)
    return add_span(spans, 0, low, high)


@njit(cache=True)
def dot(coordinates: Any, i: int, x: float, y: float, z: float) -> Any:
    return coordinates[i] * x + coordinates[i + 1] * y + coordinates[i + 2] * z


@njit(cache=True)
def add_cut(cuts: Any, count: int, s: float) -> int:
    """Insert a place of the border, in order, unless it is there already. From it on, no edge leads
    along the way yet."""
    if not 0.0 <= s <= 1.0:
        return count
    i = count
    while i > 0 and cuts[i - 1, 0] > s:
        i -= 1
    if (i > 0 and s - cuts[i - 1, 0] <= SEAM) or (i < count and cuts[i, 0] - s <= SEAM):
        return count
    for k in range(count, i, -1):
        cuts[k, 0], cuts[k, 1] = cuts[k - 1, 0], cuts[k - 1, 1]
    cuts[i, 0] = cuts[i, 1] = s
    return count + 1


@njit(cache=True)
def polygon_cuts(
    area: Any, coordinates: Any, starts: Any, fx: float, fy: float, dx: float, dy: float, cuts: Any
) -> int:
    """Where the way meets the border, in order. On which side of the way a vertex lies is computed
    once for both of its edges, so no way slips through between them."""
    count = 0
    for ring in range(area.rings):
        begin = area.first + 2 * starts[area.ring + ring]
        end = ring_end(area, starts, ring)
        ax, ay = coordinates[end - 2] - fx, coordinates[end - 1] - fy
        a_side = ax * dy - ay * dx
        for i in range(begin, end, 2):
            bx, by = coordinates[i] - fx, coordinates[i + 1] - fy
            b_side = bx * dy - by * dx
            count = cut_edge(ax, ay, a_side, bx, by, b_side, dx, dy, cuts, count)
            ax, ay, a_side = bx, by, b_side
    return count


@njit(cache=True)
def cut_edge(
    ax: float, ay: float, a_side: float, bx: float, by: float, b_side: float,
    dx: float, dy: float, cuts: Any, count: int,
) -> int:  # fmt: skip
    """Add where the way meets the edge from a to b. Vertices are relative to its beginning, and
    their sides are on which side of it they lie."""
    if (a_side > 0.0 and b_side > 0.0) or (a_side < 0.0 and b_side < 0.0):
        return count
    if a_side != b_side:
        ex, ey = bx - ax, by - ay
        divisor = dx * ey - dy * ex
        if divisor == 0.0:  # but for rounding, both are on the line of the way
            return add_cuts_along(ax, ay, bx, by, dx, dy, cuts, count)
        return add_cut(cuts, count, (ax * ey - ay * ex) / divisor)
    return add_cuts_along(ax, ay, bx, by, dx, dy, cuts, count) if a_side == 0.0 else count


@njit(cache=True)
def add_cuts_along(
    ax: float, ay: float, bx: float, by: float, dx: float, dy: float, cuts: Any, count: int
) -> int:
    """The ends of what an edge on the line of the way shares with it, and at the first how far."""
    length2 = dx * dx + dy * dy
    if length2 == 0.0:
        return count
    u, v = (ax * dx + ay * dy) / length2, (bx * dx + by * dy) / length2
    if max(u, v) < 0.0 or min(u, v) > 1.0:
        return count
    first, last = min(max(min(u, v), 0.0), 1.0), min(max(u, v, 0.0), 1.0)
    count = add_cut(cuts, add_cut(cuts, count, first), last)
    for k in range(count):
        if abs(cuts[k, 0] - first) <= SEAM:
            cuts[k, 1] = max(cuts[k, 1], last)
    return count


@njit(cache=True)
def polygon_spans(
    area: Any, coordinates: Any, starts: Any, fx: float, fy: float, dx: float, dy: float, spans: Any
) -> int:
    """The visits to a polygon."""
    count = polygon_cuts(area, coordinates, starts, fx, fy, dx, dy, spans)
    return spans_of_cuts(area, coordinates, starts, fx, fy, dx, dy, spans, count)


@njit(cache=True)
def spans_of_cuts(
    area: Any, coordinates: Any, starts: Any, fx: float, fy: float, dx: float, dy: float,
    spans: Any, count: int,
) -> int:  # fmt: skip
    """The border cuts the way into pieces (`spans[:count, 0]`), and the middle of a piece decides
    about it, if no edge leads along it; a place of the border where neither piece is inside is a
    touch."""
    vertices = coordinates[area.first : area.first + area.length]
    rings = starts[area.ring : area.ring + area.rings]
    cuts = spans[:count].copy()
    found, begin, along = 0, 0.0, 0.0
    for k in range(count + 1):
        end = cuts[k, 0] if k < count else 1.0
        middle = begin + (end - begin) * 0.5
        if end - begin > SEAM and (
            along >= end - SEAM
            or rings_contain(vertices, rings, settle(fx + middle * dx), settle(fy + middle * dy))
        ):
            found = add_span(spans, found, begin, end)
        if k < count:
            found = add_span(spans, found, end, end)
            along = max(along, cuts[k, 1])
        begin = end
    return join_spans(spans, found)


@njit(cache=True)
def earth_polygon_spans(area: Any, coordinates: Any, starts: Any, way: Any, spans: Any) -> int:
    """In degrees, and once more for each turn by which the way may meet the polygon."""
    (fx, fy, fz, _), (dx, dy, dz, _) = way
    lon, lat, _, lat1, d_lon, _ = way_in_degrees((fx, fy, fz), (fx + dx, fy + dy, fz + dz))
    d_lat = lat1 - lat
    west, east = min(lon, lon + d_lon), max(lon, lon + d_lon)
    some = np.empty_like(spans)
    count = 0
    for turn in (-360.0, 0.0, 360.0):
        if west + turn <= area.east and east + turn >= area.west:
            for k in range(
                polygon_spans(area, coordinates, starts, lon + turn, lat, d_lon, d_lat, some)
            ):
                count = add_span(spans, count, some[k, 0], some[k, 1])
    return join_spans(spans, count)


@njit(cache=True)
def spans_between(area: Any, coordinates: Any, starts: Any, way: Any, spans: Any) -> int:
    """The visits as intersections say, in order, whatever the ends are."""
    (fx, fy, fz, fh), (dx, dy, dz, dh) = way
    if area.form == BALL:
        if isnan(fh) or isnan(dh):
            return 0
        f = (fx - area.x, fy - area.y, fz - area.z, fh - area.low)
        low, high = ball_span(f, (dx, dy, dz, dh), area.size)
        return add_span(spans, 0, low, high)
    if area.form <= WHOLE:
        if area.kind == DISC:
            f = (fx - area.x, fy - area.y, fz - area.z, 0.0)
            low, high = ball_span(f, (dx, dy, dz, 0.0), area.rx)
        else:
            low, high = box_span(area, way)
        count = add_span(spans, 0, low, high)
    elif area.form == POLYGON and area.earth:
        count = earth_polygon_spans(area, coordinates, starts, way, spans)
    elif area.form == POLYGON:
        count = polygon_spans(area, coordinates, starts, fx - area.x, fy - area.y, dx, dy, spans)
    elif area.form == CORRIDOR:
        count = corridor_spans(area, coordinates, way, spans)
    else:
        count = sector_spans(area, coordinates, way, spans)
    if area.form > WHOLE and not area.earth and (fz != area.z or dz != 0.0):
        low, high = slab_span(fz - area.z, dz, -area.rz, area.rz)
        count = clip_spans(spans, count, low, high)
    if area.low > -inf or area.high < inf:
        if isnan(fh) or isnan(dh):
            return 0
        low, high = slab_span(fh, dh, area.low, area.high)
        count = clip_spans(spans, count, low, high)
    return count


@njit(cache=True)
def adjust_ends(spans: Any, count: int, inside0: bool, inside1: bool) -> int:
    """Make spans agree with what `contains` says about both ends.

    Afterwards the first one begins at the beginning of the way if that is inside, and the last one
    ends at its end if that is inside. All other begins and ends of spans are transitions.
    """
    if count == 1 and not inside0 and not inside1 and spans[0, 0] == 0.0 and spans[0, 1] == 1.0:
        return 0  # no border was met: just its middle is so near to one that it counts as inside
    drop = 0
    while drop < count and not inside0 and spans[drop, 1] <= ROUNDING:
        drop += 1
    kept = count - drop
    if drop:
        for k in range(kept):
            spans[k, 0], spans[k, 1] = spans[k + drop, 0], spans[k + drop, 1]
    while kept and not inside1 and spans[kept - 1, 0] >= 1.0 - ROUNDING:
        kept -= 1
    if inside0:
        if kept == 0 or spans[0, 0] > ROUNDING:
            kept = add_span(spans, kept, 0.0, 0.0)
        spans[0, 0] = 0.0
    if inside1:
        if kept == 0 or spans[kept - 1, 1] < 1.0 - ROUNDING:
            kept = add_span(spans, kept, 1.0, 1.0)
        spans[kept - 1, 1] = 1.0
    return kept


@njit(cache=True)
def find_visits(
    area: Any, coordinates: Any, starts: Any, p0: Any, p1: Any, inside0: bool, inside1: bool,
    spans: Any,
) -> int:  # fmt: skip
    """The visits of the way from p0 to p1, (x, y, z, height) each: rows [s_in, s_out] of `spans`.

    `inside0` and `inside1` are what `contains` says about the ends. Returns how many there are.
    """
    d = (p1[0] - p0[0], p1[1] - p0[1], p1[2] - p0[2], p1[3] - p0[3])
    count = spans_between(area, coordinates, starts, (p0, d), spans)
    return adjust_ends(spans, count, inside0, inside1)


@njit(cache=True)
def place_on_way(area: Any, p0: Any, p1: Any, s: float) -> Any:
    """Where somebody is at this fraction of the way."""
    if s <= 0.0:
        return p0[0], p0[1], p0[2]
    if s >= 1.0:
        return p1[0], p1[1], p1[2]
    if area.earth and area.form == POLYGON:
        lon, lat, _, lat1, d_lon, _ = way_in_degrees(p0, p1)
        return ecef(lon + s * d_lon, lat + s * (lat1 - lat))
    return (
        p0[0] + s * (p1[0] - p0[0]), p0[1] + s * (p1[1] - p0[1]), p0[2] + s * (p1[2] - p0[2]),
    )  # fmt: skip


@njit(cache=True)
def way_direction(on_earth: bool, p0: Any, p1: Any) -> Any:
    """In degrees: counter-clockwise from +x in the plane, the bearing from north on Earth."""
    dx, dy, dz = p1[0] - p0[0], p1[1] - p0[1], p1[2] - p0[2]
    if dx == 0.0 and dy == 0.0 and (dz == 0.0 or not on_earth):
        return nan
    if on_earth:
        return bearing((p0[0], p0[1], p0[2]), (p1[0], p1[1], p1[2]))
    return degrees(atan2(dy, dx)) % 360.0


@njit(cache=True)
def spans_room(areas: Any) -> int:
    """How many rows `find_visits` needs for any of these areas: a polygon is cut twice by an edge
    at most, and there are two spans for each cut."""
    most = 0
    for i in range(len(areas)):
        most = max(most, areas[i].length)
    return 2 * most + 8
