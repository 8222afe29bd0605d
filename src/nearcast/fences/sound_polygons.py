"""Many polygons checked at once: which of them are sound beyond doubt, and what they are as areas.

What a polygon may be, and what is wrong with one, `space.simple_rings` alone says; it takes a
quarter of a millisecond. Here one compiled loop finds the polygons whose rings neither cross nor
touch anywhere, whose holes are inside and whose parts are apart. They become rows of `AREA` with
the same numbers as the shapes of `space.outline_shapes`. All others are left to that.
"""

from array import array
from collections.abc import Sequence
from math import inf
from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct
from numba import njit

from nearcast.fences.areas import AREA, ENTER_AND_LEAVE, NEVER, FenceColumns
from nearcast.matching.compiled import compile_with_callees
from nearcast.space import earth, outline_touch
from nearcast.space.outline_touch import TINY
from nearcast.space.outlines import FARTHEST, POLYGON
from nearcast.space.shapes import BOX, LARGEST

turn = compile_with_callees(outline_touch.turn)
rings_contain = compile_with_callees(outline_touch.rings_contain)
settle = compile_with_callees(outline_touch.settle)
surface_box = compile_with_callees(earth.surface_box)

ROUNDING = 1e-11  # of a ring's area, relative: far above what adding 10,000 terms can lose
ONLY = np.zeros(1, np.int64)  # where the first ring of a single one begins
OUTER, HOLE = 0, 1


class Position(Struct, array_like=True, forbid_unknown_fields=True, gc=False):
    """Of a vertex, as GeoJSON has it. The garbage collector need not look at very many of them."""

    x: float
    y: float
    z: float = 0.0  # is not looked at


class GivenPolygon(NamedTuple):
    """Parts, their rings, which are closed, and their positions; heights."""

    parts: Sequence[Sequence[Sequence[Position]]]
    low: float = -inf  # on Earth
    high: float = inf
    z: float = 0.0  # in the plane
    rz: float = 0.0


def sound_polygons(given: Sequence[GivenPolygon], on_earth: bool) -> tuple[Any, FenceColumns]:
    """Which of them are sound, as flags, and the columns of those, in order, without numbers."""
    flat, rings = array("d"), []
    lengths: list[int] = []
    kinds: list[int] = []
    parts: list[int] = []
    for polygon in given:
        before = len(lengths)
        for number, part in enumerate(polygon.parts):
            for k, ring in enumerate(part):
                flat.extend([number for place in ring for number in (place.x, place.y)])
                lengths.append(len(ring))
                kinds.append(HOLE if k else OUTER)
                parts.append(number)
        rings.append(len(lengths) - before)
    heights = np.array([polygon[1:] for polygon in given], np.float64).reshape(-1, 4)
    areas = np.zeros(len(given), AREA)
    areas["kind"], areas["form"], areas["earth"] = BOX, POLYGON, on_earth
    areas["kinds"], areas["dwell"] = ENTER_AND_LEAVE, NEVER
    areas["low"], areas["high"], areas["z"], areas["rz"] = heights.T
    areas["rings"] = rings
    coordinates = np.frombuffer(flat, np.float64) if flat else np.empty(0)
    table = np.array([lengths, kinds, parts], np.int64)
    sound, used, starts = check_polygons(areas, coordinates.copy(), table, on_earth)
    areas = areas[sound]
    areas["first"] = np.cumsum(areas["length"]) - areas["length"]
    areas["ring"] = np.cumsum(areas["rings"]) - areas["rings"]
    return sound, FenceColumns(areas, used, starts)


@njit(cache=True)
def check_polygons(areas: Any, coordinates: Any, table: Any, on_earth: bool) -> Any:
    """Flags, the coordinates of sound polygons as outlines have them, and where rings begin.

    Coordinates are written over those that were given, which are never fewer.
    """
    lengths, kinds, parts = table
    sound = np.zeros(len(areas), np.bool_)
    starts = np.empty(len(lengths), np.int64)
    taken = written = ring = rings = 0  # numbers read and kept, rings read and kept
    for k in range(len(areas)):
        area = areas[k]
        last = ring + area.rings
        whole, good, count = written, area.rings > 0, 0
        for r in range(ring, last):
            good = good and copy_ring(coordinates, taken, lengths[r], written)
            taken += 2 * lengths[r]
            if good:
                starts[rings + r - ring] = count
                good = turn_ring(coordinates[written : written + 2 * (lengths[r] - 1)], kinds[r])
                written += 2 * (lengths[r] - 1)
                count += lengths[r] - 1
        own = starts[rings : rings + area.rings]
        vertices = coordinates[whole:written]
        if (
            good
            and are_apart(vertices, own)
            and are_placed(vertices, own, kinds[ring:last], parts[ring:last])
            and (earth_bounds(area, vertices) if on_earth else plane_bounds(area, vertices))
        ):
            sound[k] = True
            area.length = 2 * count
            rings += area.rings
        else:
            written = whole
        ring = last
    return sound, coordinates[:written].copy(), starts[:rings].copy()


@njit(cache=True)
def copy_ring(coordinates: Any, taken: int, length: int, written: int) -> Any:
    """Without the vertex that closes it. False if it is not closed, or two vertices are the same
    one after the other, or a number is none."""
    if length < 4:
        return False
    end = taken + 2 * length - 2
    if coordinates[taken] != coordinates[end] or coordinates[taken + 1] != coordinates[end + 1]:
        return False
    for i in range(0, 2 * length - 2, 2):
        x, y = settle(coordinates[taken + i]), settle(coordinates[taken + i + 1])
        if not (abs(x) <= FARTHEST and abs(y) <= FARTHEST):
            return False
        if i and x == coordinates[written + i - 2] and y == coordinates[written + i - 1]:
            return False
        coordinates[written + i], coordinates[written + i + 1] = x, y
    last = written + 2 * length - 4
    return (
        coordinates[last] != coordinates[written]
        or coordinates[last + 1] != coordinates[written + 1]
    )


@njit(cache=True)
def turn_ring(ring: Any, kind: int) -> bool:
    """Counter-clockwise, a hole clockwise. False if its area is too small to tell which it is."""
    x0, y0 = ring[0], ring[1]
    area = terms = 0.0
    j = len(ring) - 2
    for i in range(0, len(ring), 2):
        left = (ring[j] - x0) * (ring[i + 1] - y0)
        right = (ring[i] - x0) * (ring[j + 1] - y0)
        area += left - right
        terms += abs(left) + abs(right)
        j = i
    if not abs(area) > ROUNDING * terms:
        return False
    if (area < 0.0) == (kind == OUTER):
        last = len(ring) - 2
        for i in range(0, len(ring) // 4 * 2, 2):
            for axis in range(2):
                one = ring[i + axis]
                ring[i + axis] = ring[last - i + axis]
                ring[last - i + axis] = one
    return True


@njit(cache=True)
def are_apart(vertices: Any, starts: Any) -> bool:
    """Do no two edges touch, but neighbours in their common vertex? By a sweep over their boxes."""
    count = len(vertices) // 2
    following = np.arange(1, count + 1)
    for r in range(len(starts)):
        end = starts[r + 1] if r + 1 < len(starts) else count
        following[end - 1] = starts[r]
    west, east = np.empty(count), np.empty(count)
    for i in range(count):
        j = following[i]
        west[i] = min(vertices[2 * i], vertices[2 * j])
        east[i] = max(vertices[2 * i], vertices[2 * j])
    order = np.argsort(west)
    for k in range(count):
        i = order[k]
        for n in range(k + 1, count):
            j = order[n]
            if west[j] > east[i]:
                break
            if following[i] == j:
                if turns_back(vertices, i, j, following[j]):
                    return False
            elif following[j] == i:
                if turns_back(vertices, j, i, following[i]):
                    return False
            elif edges_touch(vertices, i, following[i], j, following[j]):
                return False
    return True


@njit(cache=True)
def turns_back(vertices: Any, a: int, b: int, c: int) -> Any:
    """Do the edges from a to b and from b to c lie on each other?"""
    ax, ay, bx, by = vertices[2 * a], vertices[2 * a + 1], vertices[2 * b], vertices[2 * b + 1]
    cx, cy = vertices[2 * c], vertices[2 * c + 1]
    if turn(ax, ay, bx, by, cx, cy) != 0.0:
        return False
    forth = ax < bx or (ax == bx and ay < by)
    on = bx < cx or (bx == cx and by < cy)
    return forth != on


@njit(cache=True)
def edges_touch(vertices: Any, a: int, b: int, c: int, d: int) -> Any:
    """Do two edges without a common vertex share a point? Also if they are on one line."""
    ay, by, cy, dy = (
        vertices[2 * a + 1], vertices[2 * b + 1], vertices[2 * c + 1], vertices[2 * d + 1]
    )  # fmt: skip
    if min(ay, by) > max(cy, dy) or max(ay, by) < min(cy, dy):
        return False
    ax, bx, cx, dx = vertices[2 * a], vertices[2 * b], vertices[2 * c], vertices[2 * d]
    to_c, to_d = turn(ax, ay, bx, by, cx, cy), turn(ax, ay, bx, by, dx, dy)
    if (to_c > 0.0 and to_d > 0.0) or (to_c < 0.0 and to_d < 0.0):
        return False
    to_a, to_b = turn(cx, cy, dx, dy, ax, ay), turn(cx, cy, dx, dy, bx, by)
    return not ((to_a > 0.0 and to_b > 0.0) or (to_a < 0.0 and to_b < 0.0))


@njit(cache=True)
def are_placed(vertices: Any, starts: Any, kinds: Any, parts: Any) -> bool:
    """Are holes inside their parts and in no other hole, and parts not in each other?

    Rings are apart, so one vertex of each tells.
    """
    rings = len(starts)
    for r in range(rings):
        x, y = vertices[2 * starts[r]], vertices[2 * starts[r] + 1]
        odd = False  # inside an odd number of rings of another part
        for s in range(rings):
            if odd and kinds[s] == OUTER:
                return False
            same = parts[s] == parts[r]
            if s == r or (same and kinds[r] == OUTER) or (not same and kinds[r] == HOLE):
                continue
            end = starts[s + 1] if s + 1 < rings else len(vertices) // 2
            within = rings_contain(vertices[2 * starts[s] : 2 * end], ONLY, x, y)
            if not same:
                odd ^= within
            elif within != (kinds[s] == OUTER):
                return False
        if odd:
            return False
    return True


@njit(cache=True)
def plane_bounds(area: Any, vertices: Any) -> bool:
    """As `outline_shapes.multipolygon` has it: the box, and vertices relative to its middle."""
    if not (abs(area.z) <= LARGEST and (0.0 <= area.rz <= LARGEST or area.rz == inf)):
        return False
    x, y = vertices[::2], vertices[1::2]
    area.x, area.y = x.min() / 2 + x.max() / 2, y.min() / 2 + y.max() / 2
    area.rx = area.ry = TINY
    for i in range(0, len(vertices), 2):
        vertices[i] = settle(vertices[i] - area.x)
        vertices[i + 1] = settle(vertices[i + 1] - area.y)
        area.rx = max(area.rx, abs(vertices[i]))
        area.ry = max(area.ry, abs(vertices[i + 1]))
    return True


@njit(cache=True)
def earth_bounds(area: Any, vertices: Any) -> bool:
    """As `outline_shapes.earth_multipolygon` has it. Those that go round the Earth are left."""
    lons, lats = vertices[::2], vertices[1::2]
    west, east, south, north = lons.min(), lons.max(), lats.min(), lats.max()
    if west < -360.0 or east > 360.0 or east - west >= 360.0 or south < -90.0 or north > 90.0:
        return False
    if not (area.low <= area.high and area.low < inf and area.high > -inf):
        return False
    low, high = surface_box(west, south, east, north)
    area.west, area.east, area.south, area.north = west, east, south, north
    area.x, area.rx = low[0] / 2 + high[0] / 2, high[0] / 2 - low[0] / 2 + 1e-6
    area.y, area.ry = low[1] / 2 + high[1] / 2, high[1] / 2 - low[1] / 2 + 1e-6
    area.z, area.rz = low[2] / 2 + high[2] / 2, high[2] / 2 - low[2] / 2 + 1e-6
    return True
