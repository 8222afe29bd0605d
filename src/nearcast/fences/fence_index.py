"""Very many fences that do not move, and which of them a batch of ways touches.

Fences lie in columns by slot. A *tier* is a hashed grid of levels over the boxes of some of them,
built by the functions of `matching.grid_build`. What is put becomes a tier of its own, joined with
earlier ones that are not much larger, so there are few tiers, and a fence is sorted into a grid
few times. An entry of a fence that was replaced or removed since is void: its stamp is old.

Fences that are put together, and ways that are asked about together, are taken in an order in which
neighbours follow each other, so that most of what a way needs is in the processor's cache.
"""

from math import cos, hypot, inf, radians, sqrt
from typing import Any

import numpy as np
from numba import njit

from nearcast.columns import SlotAllocator, grow
from nearcast.fences.areas import AREA, FenceColumns
from nearcast.fences.coarse_rings import (
    INSIDE_RING,
    NEAR_RING,
    OUTSIDE_RING,
    build_coarse_rings,
    coarse_box,
    coarse_degrees,
    compare_with_ring,
)
from nearcast.fences.crossings import (
    contains,
    find_visits,
    spans_room,
    turns_to,
    way_in_degrees,
)
from nearcast.fences.events import INSIDE, Integers
from nearcast.fences.slabs import build_slabs, visit_earth_polygon, visit_polygon
from nearcast.matching.grid_build import (
    FEW,
    LEVEL,
    assign_levels,
    bucket,
    cell,
    place_in_order,
    plan_levels,
    size_class,
    widen,
)
from nearcast.matching.grid_query import ANY_ROW, runs_around
from nearcast.space.motion import Time
from nearcast.space.outlines import POLYGON
from nearcast.space.shapes import BOX, DISC

ENTRY = np.dtype(
    [(name, np.float64) for name in ("x", "y", "z", "rx", "ry", "rz")]
    + [(name, np.int32) for name in ("slot", "stamp", "iy", "iz")]
)
# A row is what an entity does: it comes to `p1`, goes from `p0` to `p1`, or disappears at `p0`.
# The numbers of a place are x, y, z and height. It stands at `p0` from t0 to t1.
MOVE = np.dtype([
    ("entity", np.int64), ("t0", np.int64), ("t1", np.int64),
    ("p0", np.float64, 4), ("p1", np.float64, 4), ("what", np.int8), ("reason", np.int8),
])  # fmt: skip
COMES, MOVES, DISAPPEARS = 0, 1, 2
# A visit of a row: when and at which fractions of the way, and whether it begins and ends on it.
VISIT = np.dtype(
    [(name, np.int64) for name in ("row", "slot", "t_in", "t_out")]
    + [(name, np.float64) for name in ("s_in", "s_out")]
    + [("begins", np.int8), ("ends", np.int8)]
)
PAIR = np.dtype([("row", np.int32), ("slot", np.int32)])  # of a way and a fence that may meet
# The way of a row in degrees, as `way_in_degrees` says, and its `detour`.
WAY = np.dtype(
    [(name, np.float64) for name in ("lon0", "lat0", "lon1", "lat1", "d_lon", "detour")]
    + [("at_pole", np.bool_)]
)
FEW_PLACES = 64  # fewer are taken in any order
LAST_CELL = 2.0**21 - 1
# Shifts and masks that bring each of 21 bits three times as far.
SPREAD = tuple(
    (np.uint64(shift), np.uint64(mask))
    for shift, mask in (
        (32, 0x1F00000000FFFF), (16, 0x1F0000FF0000FF), (8, 0x100F00F00F00F00F),
        (4, 0x10C30C30C30C30C3), (2, 0x1249249249249249),
    )
)  # fmt: skip
JOIN = 4  # a tier is joined with a newer one unless it is so many times larger
PIECES = 64  # at most, of a way that is much longer than cells are wide
FARTHEST_NORMAL = 6.4e6  # metres: no radius of curvature of the ellipsoid is larger


class FenceIndex:
    """Fences by number; `find` answers many ways in one compiled call for each tier."""

    def __init__(self, earth: bool = False) -> None:
        self._earth = earth
        self.areas: Any = np.zeros(16, AREA)
        self.coordinates = np.empty(0)
        self.starts = np.empty(0, np.int64)
        self.slots: dict[int, int] = {}  # by number
        self._allocator = SlotAllocator()
        self._stamps = np.zeros(16, np.int32)
        self._slabs = np.empty(0, np.int64)
        self._edges = np.empty(0, np.int32)
        self._coarse = np.empty(0, np.int16)
        self._used_coordinates = self._used_starts = 0
        self._used_slabs = self._used_edges = self._used_coarse = 0
        self._garbage = 0  # coordinates of fences that are gone
        self._tiers: list[Any] = []  # the largest first
        self._pending: list[Integers] = []  # slots that are in no tier yet
        self._room = 8
        self._earth_ways = False  # some area is met by ways that are straight in degrees

    def __len__(self) -> int:
        return len(self.slots)

    def put(self, fences: FenceColumns, now: Time | Integers) -> Integers:
        """Add fences whose numbers are not in use. Returns their slots.

        Neighbours get neighbouring slots, and vertices beside each other.
        """
        count = len(fences.areas)
        order = order_by_place(fences.areas["x"], fences.areas["y"], fences.areas["z"])
        allocator = self._allocator
        again = allocator.free[max(0, len(allocator.free) - count) :]
        del allocator.free[len(allocator.free) - len(again) :]
        fresh = np.arange(allocator.used, allocator.used + count - len(again))
        allocator.used += len(fresh)
        slots = np.concatenate((np.array(again, np.int64), fresh))
        self.areas = grow(self.areas, allocator.used)
        self._stamps = grow(self._stamps, allocator.used)
        areas = fences.areas[order]
        areas["since"], areas["alive"] = np.broadcast_to(now, count)[order], 1
        areas["earth"] |= self._earth
        self._append(areas, fences.coordinates, fences.starts)
        self.areas[slots] = areas
        self._cut(slots)
        self.slots.update(zip(areas["number"].tolist(), slots.tolist(), strict=True))
        self._pending.append(slots)
        self._room = max(self._room, spans_room(areas))
        self._earth_ways |= bool(((areas["earth"] != 0) & (areas["form"] == POLYGON)).any())
        as_given = np.empty(count, np.int64)
        as_given[order] = slots
        return as_given

    def remove(self, numbers: Integers) -> None:
        """These fences are gone; their slots are used again."""
        slots = [self.slots.pop(number) for number in numbers.tolist()]
        self._stamps[slots] += 1
        self._garbage += int(self.areas["length"][slots].sum())
        self.areas["alive"][slots] = 0
        self._allocator.free += slots
        if 2 * self._garbage > self._used_coordinates:
            self._compact()

    def _append(self, areas: Any, coordinates: Any, starts: Any) -> None:
        """Append the vertices of these areas, in their order."""
        end = self._used_coordinates + int(areas["length"].sum())
        last = self._used_starts + int(areas["rings"].sum())
        self.coordinates, self.starts = grow(self.coordinates, end), grow(self.starts, last)
        for column, first, length, target, used in (
            (coordinates, "first", "length", self.coordinates, self._used_coordinates),
            (starts, "ring", "rings", self.starts, self._used_starts),
        ):
            given = np.require(column, requirements=["C", "W"])  # as compiled for
            copy_parts(given, areas[first], areas[length], target, used)
        self._used_coordinates, self._used_starts = end, last

    def _cut(self, slots: Integers) -> None:
        """Make the coarse forms of polygons, or cut them into slabs."""
        coarse = build_coarse_rings(self.areas, slots, self.coordinates)
        self.areas["coarse"][slots] += self._used_coarse
        used = self._used_coarse + len(coarse)
        self._coarse = grow(self._coarse, used)
        self._coarse[self._used_coarse : used] = coarse
        self._used_coarse = used
        slabs, edges = build_slabs(
            self.areas, slots, self.coordinates, self.starts, self._used_edges
        )
        self.areas["slab"][slots] += self._used_slabs
        end, last = self._used_slabs + len(slabs), self._used_edges + len(edges)
        self._slabs, self._edges = grow(self._slabs, end), grow(self._edges, last)
        self._slabs[self._used_slabs : end] = slabs
        self._edges[self._used_edges : last] = edges
        self._used_slabs, self._used_edges = end, last

    def _compact(self) -> None:
        """Keep only the vertices of fences that there are."""
        slots = np.flatnonzero(self.areas["alive"])
        areas, coordinates, starts = self.areas[slots], self.coordinates, self.starts
        self.coordinates, self.starts = np.empty(0), np.empty(0, np.int64)
        self._used_coordinates = self._used_starts = self._garbage = 0
        self._append(areas, coordinates, starts)
        self.areas[slots] = areas
        self._used_slabs = self._used_edges = self._used_coarse = 0
        self._cut(slots)

    def _sort_in(self) -> None:
        """Everything that was put is in a tier afterwards."""
        if not self._pending:
            return
        slots = np.unique(np.concatenate(self._pending))
        self._pending.clear()
        slots = slots[self.areas["alive"][slots] != 0]
        while self._tiers and len(self._tiers[-1][1]) <= JOIN * len(slots):
            _, entries = self._tiers.pop()
            current = entries["stamp"] == self._stamps[entries["slot"]]
            slots = np.union1d(slots, entries["slot"][current])
        if len(slots):
            self._tiers.append(self.tier(slots))

    def tier(self, slots: Integers) -> Any:
        """A grid over these fences, and its entries."""
        grid = build_tier(self.areas, slots, self._stamps)
        return grid, np.concatenate((grid[2], grid[3]))[["slot", "stamp"]]

    def find(self, moves: Any) -> Any:
        """The visits of all rows, in no order but that of the rows for each pair.

        Only what matters is found: visits that begin or end, all others if `inside` is asked for.
        """
        self._sort_in()
        return self._find(moves, self._tiers)

    def find_among(self, moves: Any, slots: Integers) -> Any:
        """The visits to these fences alone."""
        return self._find(moves, [self.tier(slots)])

    @property
    def table(self) -> Any:
        """As kernels take it."""
        return (
            self.areas, self.coordinates, self.starts, self._slabs, self._edges, self._coarse,
        )  # fmt: skip

    def _find(self, moves: Any, tiers: list[Any]) -> Any:
        """Neighbours in order, who find the same fences in the caches."""
        order = order_by_place(moves["p1"][:, 0], moves["p1"][:, 1], moves["p1"][:, 2])
        moves = moves.take(order)
        ways = ways_in_degrees(moves if self._earth_ways else moves[:0])
        found = [np.empty(0, VISIT)]
        for grid, _ in tiers:
            pairs = query_tier(moves, ways, grid, self._stamps)
            found.append(visit_areas(moves, ways, pairs, self.table, self._room))
        visits = np.concatenate(found)
        visits["row"] = order[visits["row"]]
        return visits.take(np.argsort(visits["row"], kind="stable"))


def order_by_place(*axes: Any) -> Integers:
    """An order in which neighbours follow each other: along a Z-order curve of cells, of which
    there are 2**21 along each axis."""
    if len(axes[0]) < FEW_PLACES:
        return np.arange(len(axes[0]))
    keys = np.zeros(len(axes[0]), np.uint64)
    for axis, values in enumerate(axes):
        low, high = values.min(), values.max()
        if high > low:
            cells = ((values - low) * (0.5 / (high * 0.5 - low * 0.5)) * LAST_CELL).astype(
                np.uint64
            )
            for shift, mask in SPREAD:
                cells = (cells | cells << shift) & mask
            keys |= cells << np.uint64(axis)
    return np.argsort(keys)


@njit(cache=True)
def copy_parts(column: Any, firsts: Any, lengths: Any, target: Any, begin: int) -> None:
    """Copy parts of a column one after the other to where they are to begin, and note in `firsts`
    where each is then."""
    for k in range(len(firsts)):
        for i in range(lengths[k]):
            target[begin + i] = column[firsts[k] + i]
        firsts[k] = begin
        begin += lengths[k]


@njit(cache=True)
def build_tier(areas: Any, slots: Any, stamps: Any) -> Any:
    """A hashed grid of levels over the boxes of these areas: levels, starts of buckets, entries in
    their order, and entries that are tested one by one."""
    count = len(slots)
    entries = np.empty(count, ENTRY)
    sizes = np.empty(count, np.int64)
    occurs = np.zeros(8 * 4096, np.bool_)
    lowest, highest = len(occurs), -1
    for i in range(count):
        area, entry = areas[slots[i]], entries[i]
        rx, ry, rz = area.rx, area.ry, area.rz
        if area.kind == DISC:
            ry = rz = rx
        entry.x, entry.y, entry.z = area.x, area.y, area.z
        entry.rx, entry.ry, entry.rz = widen(area.x, rx), widen(area.y, ry), widen(area.z, rz)
        entry.slot, entry.stamp = slots[i], stamps[slots[i]]
        sizes[i] = size_class(entry.rx, entry.ry, entry.rz)
        occurs[sizes[i]] = True
        lowest, highest = min(lowest, sizes[i]), max(highest, sizes[i])
    level_of = np.empty(len(occurs), np.int8)
    levels = np.zeros(assign_levels(occurs, lowest, highest, level_of), LEVEL)
    sizes_of_levels = np.zeros(len(levels), np.int64)
    bounds = np.empty((len(levels), 6))
    bounds[:, :3], bounds[:, 3:] = inf, -inf
    for i in range(count):
        entry, level = entries[i], level_of[sizes[i]]
        sizes_of_levels[level] += 1
        here, bound = levels[level], bounds[level]
        here.rx, here.ry, here.rz = (
            max(here.rx, entry.rx), max(here.ry, entry.ry), max(here.rz, entry.rz))  # fmt: skip
        bound[0], bound[3] = min(bound[0], entry.x), max(bound[3], entry.x)
        bound[1], bound[4] = min(bound[1], entry.y), max(bound[4], entry.y)
        bound[2], bound[5] = min(bound[2], entry.z), max(bound[5], entry.z)
    starts = np.zeros(plan_levels(levels, sizes_of_levels, bounds, 0.0), np.int32)
    where = np.empty(count, np.int64)
    loose = np.empty(FEW * len(levels), ENTRY)
    odd = 0
    for i in range(count):
        entry, level = entries[i], level_of[sizes[i]]
        if sizes_of_levels[level] <= FEW:
            where[i] = -1
            loose[odd] = entry
            odd += 1
            continue
        here = levels[level]
        entry.iy, entry.iz = cell(entry.y, here.per_y), cell(entry.z, here.per_z)
        where[i] = here.starts + bucket(
            cell(entry.x, here.per_x), entry.iy, entry.iz, here.mask)  # fmt: skip
        starts[where[i] + 1] += 1
    ordered = np.empty(count - odd, ENTRY)
    place_in_order(entries, where, starts, ordered)
    return levels, starts, ordered, loose[:odd]


@njit(inline="always")
def ends_of(move: Any) -> Any:
    """Of the way of a row, which is a place if it comes or disappears."""
    begin = move.p1 if move.what == COMES else move.p0
    return begin, move.p0 if move.what == DISAPPEARS else move.p1


@njit(cache=True)
def ways_in_degrees(moves: Any) -> Any:
    """The WAY of each row, which all fences need that may be near it."""
    ways = np.empty(len(moves), WAY)
    for row in range(len(moves)):
        begin, end = ends_of(moves[row])
        degrees, way = way_in_degrees(begin, end), ways[row]
        way.lon0, way.lat0, way.lon1, way.lat1, way.d_lon, way.at_pole = degrees
        way.detour = detour(begin, end, degrees) if moves[row].what == MOVES else 0.0
    return ways


@njit(cache=True)
def detour(p0: Any, p1: Any, degrees: Any) -> float:
    """How far a way that is straight in degrees may be from the box around its ends, at most.

    Its places have distances from both ends whose sum is at most its length, so they lie in an
    ellipsoid around the ends.
    """
    _, lat0, _, lat1, d_lon, _ = degrees
    d_lon, d_lat = radians(d_lon), radians(lat1 - lat0)
    widest = 1.0 if lat0 * lat1 <= 0.0 else cos(radians(min(abs(lat0), abs(lat1))))
    length = FARTHEST_NORMAL * 1.0001 * hypot(d_lat, widest * d_lon)
    dx, dy, dz = p1[0] - p0[0], p1[1] - p0[1], p1[2] - p0[2]
    return sqrt(max(length * length - dx * dx - dy * dy - dz * dz, 0.0)) * 0.5 + 1e-6


@njit(inline="always")
def touches_entry(entry: Any, piece: Any) -> Any:
    x, y, z, hx, hy, hz = piece
    return (
        (abs(x - entry.x) <= hx + entry.rx)
        & (abs(y - entry.y) <= hy + entry.ry)
        & (abs(z - entry.z) <= hz + entry.rz)
    )


@njit(cache=True)
def piece_of(p0: Any, p1: Any, k: int, pieces: int, more: float) -> Any:
    """Centre and half-extents of the box around a piece of the way."""
    a, b = k / pieces, (k + 1) / pieces
    x0, x1 = p0[0] + a * (p1[0] - p0[0]), p0[0] + b * (p1[0] - p0[0])
    y0, y1 = p0[1] + a * (p1[1] - p0[1]), p0[1] + b * (p1[1] - p0[1])
    z0, z1 = p0[2] + a * (p1[2] - p0[2]), p0[2] + b * (p1[2] - p0[2])
    x, y, z = x0 + (x1 - x0) * 0.5, y0 + (y1 - y0) * 0.5, z0 + (z1 - z0) * 0.5
    return (
        x, y, z,
        widen(max(abs(x0), abs(x1)), abs(x1 - x0) * 0.5 + more),
        widen(max(abs(y0), abs(y1)), abs(y1 - y0) * 0.5 + more),
        widen(max(abs(z0), abs(z1)), abs(z1 - z0) * 0.5 + more),
    )  # fmt: skip


@njit(inline="always")
def room_for(found: Any, count: int, more: int) -> Any:
    """The array with room for so many more."""
    if count + more <= len(found):
        return found
    larger = np.empty(2 * len(found) + more, found.dtype)
    larger[:count] = found[:count]
    return larger


@njit(cache=True)
def visit_way(area: Any, table: Any, p0: Any, p1: Any, spans: Any) -> Any:
    """As `find_visits`: how many visits there are, and whether both ends are inside."""
    _, coordinates, starts, _, _, _ = table
    if area.edges + area.slabs and area.earth:
        degrees = way_in_degrees(p0, p1)
        if is_plain(area, degrees):
            return visit_earth_polygon(area, table, degrees, spans)
    elif area.edges + area.slabs and max(abs(p0[2] - area.z), abs(p1[2] - area.z)) <= area.rz:
        return visit_polygon(area, table, p0, p1, spans)
    inside0 = contains(area, coordinates, starts, p0)
    inside1 = contains(area, coordinates, starts, p1)
    count = find_visits(area, coordinates, starts, p0, p1, inside0, inside1, spans)
    return count, inside0, inside1


@njit(cache=True)
def visit_area(move: Any, row: int, slot: int, table: Any, spans: Any, found: Any, n: int) -> int:
    """Append the visits of a row to one area."""
    areas, coordinates, starts, _, _, _ = table
    area = areas[slot]
    p0 = (move.p0[0], move.p0[1], move.p0[2], move.p0[3])
    p1 = (move.p1[0], move.p1[1], move.p1[2], move.p1[3])
    count = 0
    inside0 = inside1 = False
    if move.what == COMES:
        if contains(area, coordinates, starts, p1):
            count, inside1 = 1, True
            spans[0, 0] = spans[0, 1] = 1.0
    elif move.what == DISAPPEARS:
        if contains(area, coordinates, starts, p0):
            count, inside0 = 1, True
            spans[0, 0] = spans[0, 1] = 1.0  # of the time from t0 to t1
    else:
        count, inside0, inside1 = visit_way(area, table, p0, p1, spans)
    kept = 0
    for k in range(count):
        begins, ends = not (inside0 and k == 0), not (inside1 and k == count - 1)
        if not (begins or ends or area.kinds & (1 << INSIDE)):
            continue
        visit = found[n + kept]
        visit.row, visit.slot, visit.begins, visit.ends = row, slot, begins, ends
        visit.s_in, visit.s_out = spans[k, 0], spans[k, 1]
        dt = move.t1 - move.t0
        visit.t_in = max(move.t0 + int(np.rint(spans[k, 0] * dt)), area.since)
        visit.t_out = max(move.t0 + int(np.rint(spans[k, 1] * dt)), area.since)
        kept += 1
    return n + kept


@njit(cache=True)
def is_plain(area: Any, degrees: Any) -> Any:
    """Are neither heights, nor poles, nor turns round the Earth to be thought of?"""
    lon, _, lon1, _, d_lon, at_pole = degrees
    if at_pole or area.low > -inf or area.high < inf or lon1 - lon != d_lon:
        return False
    count, turn = turns_to(area, degrees)
    return count == 1 and turn == 0.0


@njit(inline="always")
def compare_on_earth(area: Any, coarse: Any, degrees: Any) -> Any:
    """Where a way is in degrees, as `compare_with_ring` says."""
    at_pole = degrees[5]
    if at_pole:
        return NEAR_RING
    count, turn = turns_to(area, degrees)
    if count != 1:
        return NEAR_RING if count else OUTSIDE_RING
    box = coarse_degrees(area, degrees, turn)
    where = compare_with_ring(coarse, area.coarse, area.edges, box)
    if where == INSIDE_RING and (area.low > -inf or area.high < inf):
        return NEAR_RING
    return where


@njit(cache=True)
def visit_areas(moves: Any, ways: Any, pairs: Any, table: Any, room: int) -> Any:
    """The visits of rows to areas, by pairs of both. The coarse form of an area decides about most
    rows; calls cost more than that, because they count references to arrays."""
    areas, coarse = table[0], table[5]
    spans = np.empty((room, 2))
    found = np.empty(room + len(moves) // 2, VISIT)
    n = 0
    for pair in pairs:
        move, area = moves[pair.row], areas[pair.slot]
        if area.edges:
            begin, end = ends_of(move)
            where = NEAR_RING
            if area.earth:
                way = ways[pair.row]
                degrees = way.lon0, way.lat0, way.lon1, way.lat1, way.d_lon, way.at_pole
                where = compare_on_earth(area, coarse, degrees)
            elif max(abs(begin[2] - area.z), abs(end[2] - area.z)) <= area.rz:
                where = compare_with_ring(
                    coarse, area.coarse, area.edges, coarse_box(area, begin, end)
                )
            if where == OUTSIDE_RING:
                continue
            stays = where == INSIDE_RING and move.what == MOVES
            if stays and not area.kinds & (1 << INSIDE):
                continue
        found = room_for(found, n, room)
        n = visit_area(move, pair.row, pair.slot, table, spans, found, n)
    return found[:n]


@njit(cache=True)
def find_inside(slots: Any, table: Any, fixes: Any) -> Any:
    """For each of these fences: in which fixes, of those that are known, an entity is inside."""
    areas, coordinates, starts, _, _, _ = table
    inside = np.zeros((len(slots), len(fixes)), np.bool_)
    for i in range(len(slots)):
        area = areas[slots[i]]
        ry, rz = (area.rx, area.rx) if area.kind == DISC else (area.ry, area.rz)
        rx, ry, rz = widen(area.x, area.rx), widen(area.y, ry), widen(area.z, rz)
        for k in range(len(fixes)):
            place = fixes[k].place
            if (
                fixes[k].known
                and abs(place[0] - area.x) <= rx
                and abs(place[1] - area.y) <= ry
                and abs(place[2] - area.z) <= rz
            ):
                where = (place[0], place[1], place[2], place[3])
                inside[i, k] = contains(area, coordinates, starts, where)
    return inside


@njit(cache=True)
def query_tier(moves: Any, ways: Any, grid: Any, stamps: Any) -> Any:
    """Pairs of a row and the slot of a fence of the tier whose box its way touches."""
    levels, starts, entries, loose = grid
    runs = np.empty((4096, 4), np.int64)
    pairs = np.empty(len(loose) + 4 * len(moves), PAIR)
    n = 0
    for row in range(len(moves)):
        move = moves[row]
        begin, end = ends_of(move)
        more = ways[row].detour if len(ways) else 0.0
        whole = piece_of(begin, end, 0, 1, more)
        pairs = room_for(pairs, n, len(loose))
        for k in range(len(loose)):
            if touches_entry(loose[k], whole) and stamps[loose[k].slot] == loose[k].stamp:
                pairs[n].row, pairs[n].slot = row, loose[k].slot
                n += 1
        for level in levels:
            if not level.used:
                continue
            pieces = 1
            if more == 0.0:  # ways that are long for this level are looked up piece by piece
                cells = max(whole[3] * level.per_x * 0.25, whole[4] * level.per_y)
                cells = max(cells, whole[5] * level.per_z) * 0.5
                pieces = 1 + int(min(cells, PIECES - 1.0))
            previous = whole
            for k in range(pieces):
                piece = piece_of(begin, end, k, pieces, more) if pieces > 1 else whole
                x, y, z, hx, hy, hz = piece
                p = (0, 0, 0, BOX, x, y, z, hx, hy, hz)
                for run in range(runs_around(p, level, starts, runs)):
                    iy, iz = runs[run, 2], runs[run, 3]
                    pairs = room_for(pairs, n, runs[run, 1] - runs[run, 0])
                    for i in range(runs[run, 0], runs[run, 1]):
                        entry = entries[i]
                        if not touches_entry(entry, piece):
                            continue
                        if iy != ANY_ROW and (entry.iy != iy or entry.iz != iz):
                            continue
                        # The pieces that touch a box follow each other: the first one counts.
                        if k > 0 and touches_entry(entry, previous):
                            continue
                        if stamps[entry.slot] == entry.stamp:
                            pairs[n].row, pairs[n].slot = row, entry.slot
                            n += 1
                previous = piece
    return pairs[:n]
