"""The compiled part of the grid that builds an index over rows for a slice of time.

Centres are sorted into square cells, so a query looks at the few cells around it. Cells are as wide
as the largest half-extent of their level; levels (a factor of four in size, and the axes in which
a box is unbounded) keep tiny and huge regions out of each other's way. Cells are hashed, so neither
outliers nor crowds nor far coordinates cost memory, and hashed such that neighbours in x lie next
to each other in memory: a query (`grid_query`) reads one contiguous run per row of cells.

An index made for one instant holds exact shapes. Made for a slice of time it holds the boxes that
regions sweep meanwhile, and candidates are verified exactly at the publication's own moment.
Borders are decided by `space.shapes.overlap` alone, compiled from the same source.
"""

from math import frexp, inf, isinf
from typing import Any

import numpy as np
from numba import njit

from nearcast.matching.rows import ALIVE, ECHO, EVOLVES, FILTERED, FORMULA, MOVES, OUTLINED
from nearcast.space import motion, shapes
from nearcast.space.motion import FOREVER
from nearcast.space.shapes import BOX, DISC

overlap = njit(inline="always")(shapes.overlap)
elapsed = njit(inline="always")(motion.elapsed)
grown = njit(inline="always")(motion.grow_extent)

ENTRY = np.dtype(
    [(name, np.float64) for name in ("x", "y", "z", "rx", "ry", "rz")]
    + [("id", np.int64), ("node", np.int64), ("place", np.int32), ("channel", np.int32)]
    + [(name, np.int32) for name in ("kind", "flags", "iy", "iz")]
)
SWEPT = 64  # of an entry: a box around all that the region touches in the slice; test the row

LEVEL = np.dtype(
    [(name, np.float64) for name in ("per_x", "per_y", "per_z", "rx", "ry", "rz")]
    + [(name, np.int64) for name in ("used", "mask", "starts")]
)
FEW = 4  # a level with no more entries is tested one by one
LEVELS = 24
FAR = 4e150  # no publication reaches beyond: its centre and its extents are at most LARGEST


@njit(inline="always")
def cell(value: float, per_unit: float) -> int:
    """The cell's number along one axis; far coordinates pile up in the last cell, in order."""
    if per_unit == 0.0:
        return 0
    return int(min(max(np.floor(value * per_unit), -2147483647.0), 2147483647.0))


@njit(inline="always")
def bucket(ix: int, iy: int, iz: int, mask: int) -> int:
    """Rows of cells are scattered, cells within a row stay side by side."""
    return (iy * 0x2545F4914F6CDD1D + iz * 0x369DEA0F31A53F85 + ix) & mask


@njit(inline="always")
def widen(middle: float, half: float) -> float:
    """A half-extent that certainly covers every overlap that rounds to yes.

    Two units in the last place of the coordinate for the subtraction, one part in 1e12 for the sum
    of squares, and 1e-160 because the squares of smaller distances underflow to nothing.
    """
    return half * 1.000000000001 + abs(middle) * 4.5e-16 + 1e-160


@njit(inline="always")
def swept_interval(low_end: float, high_end: float, r0: float, r1: float) -> Any:
    """Centre and half-extent of the interval that covers a moving interval at both its ends.

    Floating-point addition is monotone, so the ends bound all that lies between.
    """
    low = min(low_end - r0, high_end - r1)
    high = max(low_end + r0, high_end + r1)
    if isinf(low) or isinf(high):
        return low_end, inf
    middle = low + (high - low) * 0.5
    half = max(high - middle, middle - low)
    return middle, widen(low, widen(high, half))


@njit(cache=True)
def collect_entries(
    rows: Any, used: int, lo: int, hi: int, entries: Any, sizes: Any, loose: Any
) -> Any:
    """Fill an entry for each row in force between lo and hi. Returns the numbers of entries and of
    loose rows, which are tested one by one."""
    count = 0
    odd = 0
    for place in range(used):
        row = rows[place]
        if not row.flags & ALIVE or row.valid_from > hi or row.valid_to <= lo:
            continue
        entry = entries[count]
        if row.flags & FORMULA:
            if row.vx > row.gx or row.vy > row.gy or row.vz > row.gz:
                continue
            exact = False
            entry.x, entry.rx = formula_interval(row.vx, row.gx)
            entry.y, entry.ry = formula_interval(row.vy, row.gy)
            entry.z, entry.rz = formula_interval(row.vz, row.gz)
        else:
            exact = box_of_slice(row, lo, hi, entry)
        unbounded = isinf(entry.rx) and isinf(entry.ry) and isinf(entry.rz)
        if (
            isinf(entry.x)
            or isinf(entry.y)
            or isinf(entry.z)
            or (row.flags & FORMULA and unbounded)
        ):
            loose[odd] = place
            odd += 1
            continue
        entry.id, entry.node, entry.channel = row.id, row.node, row.channel
        entry.place, entry.kind = place, row.kind if exact else BOX
        entry.flags = row.flags & (ECHO | FILTERED | EVOLVES | OUTLINED)
        entry.flags |= 0 if exact else SWEPT
        sizes[count] = size_class(entry.rx, entry.ry, entry.rz)
        count += 1
    return count, odd


@njit(inline="always")
def formula_interval(low: float, high: float) -> Any:
    """Centre and half-extent of a formula's bounds; unbounded unless both ends bound anything."""
    if low < -FAR or high > FAR:
        return 0.0, inf
    return swept_interval(low, high, 0.0, 0.0)


@njit(inline="always")
def box_of_slice(row: Any, lo: int, hi: int, entry: Any) -> bool:
    """The row's shape if it is one and the same in the whole slice, else the box that it sweeps."""
    begin = elapsed(max(lo, row.valid_from), row.since, row.until)
    end = elapsed(min(hi, row.valid_to), row.since, row.until)
    always = row.valid_from <= lo and hi < row.valid_to
    exact = always and (not row.flags & MOVES or begin == end)
    rx0, rx1 = grown(row.rx, row.gx, begin), grown(row.rx, row.gx, end)
    if row.kind == DISC:
        ry0, ry1, rz0, rz1 = rx0, rx1, rx0, rx1
    else:
        ry0, ry1 = grown(row.ry, row.gy, begin), grown(row.ry, row.gy, end)
        rz0, rz1 = grown(row.rz, row.gz, begin), grown(row.rz, row.gz, end)
    x0, y0, z0 = row.x + row.vx * begin, row.y + row.vy * begin, row.z + row.vz * begin
    if exact:
        entry.x, entry.y, entry.z = x0, y0, z0
        entry.rx, entry.ry, entry.rz = rx0, ry0, rz0
    else:
        entry.x, entry.rx = swept_interval(x0, row.x + row.vx * end, rx0, rx1)
        entry.y, entry.ry = swept_interval(y0, row.y + row.vy * end, ry0, ry1)
        entry.z, entry.rz = swept_interval(z0, row.z + row.vz * end, rz0, rz1)
    return exact


@njit(inline="always")
def size_class(rx: float, ry: float, rz: float) -> int:
    """The unbounded axes, then the power of two of the largest bounded half-extent."""
    unbounded = isinf(rx) * 1 + isinf(ry) * 2 + isinf(rz) * 4
    largest = 0.0
    if not isinf(rx):
        largest = max(largest, rx)
    if not isinf(ry):
        largest = max(largest, ry)
    if not isinf(rz):
        largest = max(largest, rz)
    if largest < 1e-290:  # cells cannot be finer than this
        return unbounded * 4096
    return unbounded * 4096 + frexp(largest)[1] + 2048


@njit(cache=True)
def assign_levels(occurs: Any, lowest: int, highest: int, level_of: Any) -> int:
    """Give each size class that occurs its level: neighbouring classes share one."""
    span = 2
    while True:
        levels = 0
        top = -1
        for key in range(highest, lowest - 1, -1):
            if not occurs[key]:
                continue
            same = top >= 0 and top // 4096 == key // 4096 and top - key < span
            if not same:
                top = key
                levels += 1
            level_of[key] = min(levels - 1, LEVELS)
        if levels <= LEVELS:
            return levels
        span *= 2


@njit(inline="always")
def cells_per_unit(largest: float, reach: float, low: float, high: float, cells: float) -> float:
    """Cells per unit along an axis: 0 (one cell) if it is unbounded or all centres agree.

    `cells`: how many there are along the axis if neither regions nor queries have an extent.
    """
    if isinf(largest) or high <= low:
        return 0.0
    width = max(largest, reach)
    if width <= 0.0:
        width = (high - low) / cells
    return 1.0 / max(width, 1e-290)


@njit(cache=True)
def build(rows: Any, used: int, lo: int, hi: int, reach: float) -> Any:
    """An index of all rows for the slice [lo, hi], for publications that reach about so far."""
    entries = np.empty(used, ENTRY)
    sizes = np.empty(used, np.int64)
    loose = np.empty(used, np.int64)
    count, odd = collect_entries(rows, used, lo, hi, entries, sizes, loose)

    # Small tables, of which little is read: an index over few rows is built as often as any.
    occurs = np.zeros(8 * 4096, np.bool_)
    lowest, highest = len(occurs), -1
    for i in range(count):
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
        here = levels[level]
        here.rx, here.ry, here.rz = (
            max(here.rx, entry.rx), max(here.ry, entry.ry), max(here.rz, entry.rz))  # fmt: skip
        bound = bounds[level]
        bound[0], bound[3] = min(bound[0], entry.x), max(bound[3], entry.x)
        bound[1], bound[4] = min(bound[1], entry.y), max(bound[4], entry.y)
        bound[2], bound[5] = min(bound[2], entry.z), max(bound[5], entry.z)

    starts_total = plan_levels(levels, sizes_of_levels, bounds, reach)
    starts = np.zeros(starts_total, np.int32)
    where = np.empty(count, np.int64)
    for i in range(count):
        entry, level = entries[i], level_of[sizes[i]]
        if sizes_of_levels[level] <= FEW:
            where[i] = -1
            loose[odd] = entry.place
            odd += 1
            continue
        here = levels[level]
        entry.iy, entry.iz = cell(entry.y, here.per_y), cell(entry.z, here.per_z)
        ix = cell(entry.x, here.per_x)
        where[i] = here.starts + bucket(ix, entry.iy, entry.iz, here.mask)
        starts[where[i] + 1] += 1
    ordered = np.empty(count, ENTRY)
    place_in_order(entries, where, starts, ordered)
    return levels, starts, ordered, loose[:odd]


@njit(cache=True)
def plan_levels(levels: Any, sizes: Any, bounds: Any, reach: float) -> int:
    """Cell widths and tables of the levels; return the length of all tables together."""
    total = 1
    for i in range(len(levels)):
        here, bound = levels[i], bounds[i]
        if sizes[i] <= FEW:
            continue
        per_row = int(np.sqrt(sizes[i])) + 1
        # Cells in x can be narrow for nothing: a run of them is read as one.
        here.per_x = 4.0 * cells_per_unit(here.rx, reach, bound[0], bound[3], per_row)
        here.per_y = cells_per_unit(here.ry, reach, bound[1], bound[4], per_row)
        here.per_z = cells_per_unit(here.rz, reach, bound[2], bound[5], per_row)
        table = 16
        while table < 2 * sizes[i]:
            table *= 2
        here.mask, here.starts, here.used = table - 1, total - 1, 1
        total += table
    return total


@njit(cache=True)
def place_in_order(entries: Any, where: Any, starts: Any, ordered: Any) -> None:
    """Counting sort by bucket: starts[b] .. starts[b + 1] become the entries of bucket b."""
    for b in range(1, len(starts)):
        starts[b] += starts[b - 1]
    taken = starts.copy()
    for i in range(len(where)):
        if where[i] >= 0:
            ordered[taken[where[i]]] = entries[i]
            taken[where[i]] += 1


@njit(cache=True)
def total_size_and_speed(rows: Any, used: int) -> Any:
    """The sums of the sizes and of the speeds of moving regions."""
    size = speed = 0.0
    for place in range(used):
        row = rows[place]
        moves = row.flags & ALIVE and row.flags & MOVES
        if moves and not isinf(row.rx):
            size += max(row.rx, 0.0 if isinf(row.ry) else row.ry)
            speed += abs(row.vx) + abs(row.vy) + abs(row.vz) + abs(row.gx)
    return size, speed


@njit(cache=True)
def move_rows(rows: Any, places: Any, centre: Any, now: int) -> None:
    """Each row stands still at its new centre from `now` on, as large as it is by then."""
    for k in range(len(places)):
        row = rows[places[k]]
        dt = elapsed(now, row.since, row.until)
        row.rx = grown(row.rx, row.gx, dt)
        row.ry, row.rz = grown(row.ry, row.gy, dt), grown(row.rz, row.gz, dt)
        row.x, row.y, row.z = centre[k, 0], centre[k, 1], centre[k, 2]
        row.vx = row.vy = row.vz = row.gx = row.gy = row.gz = 0.0
        row.since, row.until = now, FOREVER
        row.flags &= ~MOVES


@njit(cache=True)
def refresh_versions(
    rows: Any, used: int, versions: Any, made: Any, limit: Any, channel: int, at: int
) -> int:
    """Evaluate anew the versions on that channel whose moment is too far from `at`.

    Each is good for its limit, up to and including it. Returns how many were evaluated.
    """
    renewed = 0
    for place in range(used):
        row = rows[place]
        fresh = made[place] - limit[place] <= at <= made[place] + limit[place]
        if not row.flags & ALIVE or row.channel != channel or fresh:
            continue
        made[place] = at
        version = versions[place]
        if at < row.valid_from or at >= row.valid_to:
            version.flags = 0  # another leg is in force
            continue
        renewed += 1
        dt = elapsed(at, row.since, row.until)
        version.flags = row.flags & ~(MOVES | EVOLVES)
        version.kind, version.id, version.node = row.kind, row.id, row.node
        version.channel, version.since, version.until = row.channel, at, FOREVER
        version.program = row.program
        version.valid_from, version.valid_to = -FOREVER, FOREVER
        version.x, version.y = row.x + row.vx * dt, row.y + row.vy * dt
        version.z, version.rx = row.z + row.vz * dt, grown(row.rx, row.gx, dt)
        version.ry, version.rz = grown(row.ry, row.gy, dt), grown(row.rz, row.gz, dt)
        version.vx = version.vy = version.vz = version.gx = version.gy = version.gz = 0.0
    return renewed
