"""The compiled part of the join: until when rows hold, and the pairs of a slice of time.

The grid of `matching` is updated subscription by subscription and queried many times. This grid is
built from columns, queried once and thrown away. The rules that decide what a cell is (`cell`,
`widen`, `swept_interval`, `size_class`, `cells_per_unit`) are the same functions. Centres are
sorted into hashed cells as wide as the largest half-extent, neighbours in x side by side; an entry
takes one cache line. A box that neither moves nor changes within the slice is decided by its entry
alone. For other regions the entry is a box around all that they touch in the slice, and the row
itself decides at the time of the publication, by `space.shapes.overlap`.

A lane is a row of cells along x: all cells with the same y, z and channel.
"""

from math import inf, isinf
from typing import Any

import numpy as np
from numba import njit

from nearcast.matching.grid_build import cell, cells_per_unit, size_class, swept_interval, widen
from nearcast.matching.outline_table import contains_point
from nearcast.space import motion, shapes
from nearcast.space.motion import FOREVER
from nearcast.space.shapes import DISC

overlap = njit(inline="always")(shapes.overlap)
elapsed = njit(inline="always")(motion.elapsed)
grown = njit(inline="always")(motion.grow_extent)

ENTRY = np.dtype(
    [(name, np.float64) for name in ("x", "y", "z", "hx", "hy", "hz")]
    + [("node", np.int64), ("place", np.int32), ("lane", np.int32)]
)
DETAIL = np.dtype(
    [(name, np.int64) for name in ("t", "end", "until")]
    + [("channel", np.int32), ("kind", np.int32)]
    + [(name, np.float64) for name in (
        "x", "y", "z", "rx", "ry", "rz", "vx", "vy", "vz", "gx", "gy", "gz")]
)  # fmt: skip
ECHOED = -1  # the owner of an entry that also receives its owner's publications; no node's number
# What must be checked for a candidate besides its box: nothing, whether it holds, or everything.
BOX_ONLY, BOX_AND_TIME, FULL_CHECK = 0, 1, 2
NO_SUBSCRIPTION = -1  # an empty slot of the hash table

# Odd, and such that no two lanes that one query visits have the same hash.
BY_Y, BY_Z, BY_CHANNEL = 0x4F6CDD1D, 0x31A53F85, 0x2545F491
MAX_LANES = 1024  # a query that would visit more lanes looks at every entry instead


@njit(cache=True)
def test_outlines(
    table: Any, slots: Any, heights: Any, areas: Any, points: Any, which: Any, places: Any,
    allowed: Any,
) -> Any:  # fmt: skip
    """For pairs of a publication and a row whose box it touches: does it touch the outline, too?

    Publications that are points are decided, in `allowed`; the numbers of other pairs are returned.
    """
    heads, coordinates, starts = table
    begins, until, place = areas
    t, is_point, at = points
    undecided = np.empty(len(which), np.int64)
    left = 0
    for k in range(len(which)):
        i, j = which[k], places[k]
        if not is_point[i]:
            undecided[left] = k
            left += 1
        elif slots[j] < 0:
            allowed[k] = True
        else:
            head, dt = heads[slots[j]], elapsed(t[i], begins[j], until[j])
            allowed[k] = contains_point(
                head.form, head.earth != 0,
                coordinates[head.first:head.last], starts[head.first_start:head.last_start],
                head.size, head.low, head.high,
                place[0, j] + place[3, j] * dt, place[1, j] + place[4, j] * dt,
                place[2, j] + place[5, j] * dt,
                at[0, i], at[1, i], at[2, i], heights[i, 0], heights[i, 1],
            )  # fmt: skip
    return undecided[:left]


@njit(cache=True)
def find_ends(subscription: Any, t: Any) -> Any:
    """For rows in time order: the `t` of the next row of the same subscription, else FOREVER."""
    count = len(t)
    if not count:
        return np.full(0, FOREVER)
    low, high = subscription.min(), subscription.max()
    if high - low < 4 * count + 1024:
        return _find_dense_ends(subscription, t, low, high)
    end = np.full(count, FOREVER)
    mask = 1023
    keys, later = np.full(mask + 1, NO_SUBSCRIPTION), np.empty(mask + 1, np.int64)
    known = 0
    for i in range(count - 1, -1, -1):
        if 2 * known > mask:
            keys, later, mask = _double_table(keys, later)
        slot = _slot(keys, mask, subscription[i])
        if keys[slot] == NO_SUBSCRIPTION:
            keys[slot] = subscription[i]
            known += 1
        else:
            end[i] = later[slot]
        later[slot] = t[i]
    return end


@njit(cache=True)
def _find_dense_ends(subscription: Any, t: Any, low: int, high: int) -> Any:
    """The same by an array, if subscriptions are numbered densely: a tenth of the time."""
    later = np.full(high - low + 1, FOREVER)
    end = np.empty(len(t), np.int64)
    for i in range(len(t) - 1, -1, -1):
        end[i] = later[subscription[i] - low]
        later[subscription[i] - low] = t[i]
    return end


@njit(inline="always")
def _slot(keys: Any, mask: int, key: int) -> int:
    slot = ((key * 0x9E3779B97F4A7C1) >> 20) & mask
    while keys[slot] != NO_SUBSCRIPTION and keys[slot] != key:
        slot = (slot + 1) & mask
    return slot


@njit(cache=True)
def _double_table(keys: Any, later: Any) -> Any:
    mask = 2 * len(keys) - 1
    more, values = np.full(mask + 1, NO_SUBSCRIPTION), np.empty(mask + 1, np.int64)
    for k in range(len(keys)):
        if keys[k] != NO_SUBSCRIPTION:
            slot = _slot(more, mask, keys[k])
            more[slot], values[slot] = keys[k], later[k]
    return more, values, mask


@njit(inline="always")
def _bound_axis(centre: float, half: float, v: float, g: float, begin: float, last: float) -> Any:
    middle, around = swept_interval(
        centre + v * begin, centre + v * last, grown(half, g, begin), grown(half, g, last)
    )
    if isinf(middle):  # so far away that only the row itself can decide
        return 0.0, inf
    return middle, around


@njit(cache=True)
def bound_rows(live: Any, lo: int, hi: int, rows: Any, boxes: Any, sizes: Any) -> int:
    """For each live row, a box around all that it touches between lo and hi, and its size class.

    Returns what must be checked besides: BOX_ONLY if all rows are fixed boxes that hold all the
    time, BOX_AND_TIME if all are fixed boxes, else FULL_CHECK.
    """
    t, end, _, _, kind, (xs, ys, zs, rxs, rys, rzs), (vxs, vys, vzs, gxs, gys, gzs), until = rows
    checks = BOX_ONLY
    for j in range(len(live)):
        k, box = live[j], boxes[j]
        disc = kind[k] == DISC
        if t[k] > lo or hi >= end[k]:
            checks = max(checks, BOX_AND_TIME)
        x, y, z, rx, ry, rz = xs[k], ys[k], zs[k], rxs[k], rys[k], rzs[k]
        if disc:
            checks = FULL_CHECK
            rx, ry, rz = widen(x, rx), widen(y, rx), widen(z, rx)
        if len(until):
            vx, vy, vz, gx, gy, gz = vxs[k], vys[k], vzs[k], gxs[k], gys[k], gzs[k]
            if disc:
                gy = gz = gx
            if vx != 0.0 or vy != 0.0 or vz != 0.0 or gx != 0.0 or gy != 0.0 or gz != 0.0:
                checks = FULL_CHECK
                begin = elapsed(max(lo, t[k]), t[k], until[k])
                last = elapsed(min(hi, end[k]), t[k], until[k])
                x, rx = _bound_axis(x, rx, vx, gx, begin, last)
                y, ry = _bound_axis(y, ry, vy, gy, begin, last)
                z, rz = _bound_axis(z, rz, vz, gz, begin, last)
        box[0], box[1], box[2], box[3], box[4], box[5] = x, y, z, rx, ry, rz
        sizes[j] = size_class(rx, ry, rz) >> 1  # powers of four
    return checks


@njit(inline="always")
def _lane(iy: int, iz: int, channel: int) -> int:
    return iy * BY_Y + iz * BY_Z + channel * BY_CHANNEL


@njit(cache=True)
def build_grid(members: Any, live: Any, rows: Any, boxes: Any, checks: int, reach: float) -> Any:
    """Entries in the order of their cells, where each cell begins, and the size of cells."""
    t, end, node, channel, kind, (xs, ys, zs, rxs, rys, rzs), motions, until = rows
    vxs, vys, vzs, gxs, gys, gzs = motions
    count = len(members)
    low, high, most = np.full(3, inf), np.full(3, -inf), np.zeros(3)
    for j in members:
        for axis in range(3):
            low[axis], high[axis] = min(low[axis], boxes[j, axis]), max(high[axis], boxes[j, axis])
            most[axis] = max(most[axis], boxes[j, axis + 3])
    # Narrow cells in x cost nothing: neighbours in x are read as one run.
    cells = np.sqrt(count) + 1.0  # along an axis, if regions and publications are points
    per_x = 4.0 * cells_per_unit(most[0], reach, low[0], high[0], cells)
    per_y = cells_per_unit(most[1], reach, low[1], high[1], cells)
    per_z = cells_per_unit(most[2], reach, low[2], high[2], cells)
    table = 16
    while table < 2 * count:
        table *= 2
    starts = np.zeros(table + 1, np.int32)
    where, lanes = np.empty(count, np.int32), np.empty(count, np.int64)
    for n in range(count):
        j = members[n]
        lane = _lane(cell(boxes[j, 1], per_y), cell(boxes[j, 2], per_z), channel[live[j]])
        lanes[n] = lane
        where[n] = (lane + cell(boxes[j, 0], per_x)) & (table - 1)
        starts[where[n] + 1] += 1
    for b in range(1, table + 1):
        starts[b] += starts[b - 1]
    entries = np.empty(count, ENTRY)
    details = np.zeros(count if checks == FULL_CHECK else 0, DETAIL)
    times = np.empty((count if checks == BOX_AND_TIME else 0, 2), np.int64)
    for n in range(count - 1, -1, -1):
        j, b = members[n], where[n]
        k = live[j]
        starts[b + 1] -= 1  # fills a cell from its end; afterwards starts is shifted by one
        entry = entries[starts[b + 1]]
        entry.x, entry.y, entry.z = boxes[j, 0], boxes[j, 1], boxes[j, 2]
        entry.hx, entry.hy, entry.hz = boxes[j, 3], boxes[j, 4], boxes[j, 5]
        entry.node, entry.place, entry.lane = node[k], k, np.int32(lanes[n])
        if checks == BOX_AND_TIME:
            times[starts[b + 1], 0], times[starts[b + 1], 1] = t[k], end[k]
        if checks < FULL_CHECK:
            continue
        detail = details[starts[b + 1]]
        detail.t, detail.end, detail.until = t[k], end[k], FOREVER
        detail.channel, detail.kind = channel[k], kind[k]
        detail.x, detail.y, detail.z = xs[k], ys[k], zs[k]
        detail.rx, detail.ry, detail.rz = rxs[k], rys[k], rzs[k]
        if len(until):
            detail.until = until[k]
            detail.vx, detail.vy, detail.vz = vxs[k], vys[k], vzs[k]
            detail.gx, detail.gy, detail.gz = gxs[k], gys[k], gzs[k]
    starts[:-1] = starts[1:]
    starts[table] = count
    return entries, times, details, starts, (per_x, per_y, per_z, most[0], most[1], most[2])


@njit(cache=True)
def sort_publications(first: int, last: int, publications: Any, starts: Any, measure: Any) -> Any:
    """The publications in the order of their cells: neighbours find their cells in the cache."""
    _, node, channel, kind, (xs, ys, zs, rxs, rys, rzs) = publications
    per_x, per_y, per_z, _, _, _ = measure
    table = len(starts) - 1
    queries = np.empty(last - first, ENTRY)
    where = np.empty(last - first, np.int32)
    begins = np.zeros(table + 1, np.int32)
    for i in range(first, last):
        lane = _lane(cell(ys[i], per_y), cell(zs[i], per_z), channel[i])
        where[i - first] = (lane + cell(xs[i], per_x)) & (table - 1)
        begins[where[i - first] + 1] += 1
    for b in range(1, table + 1):
        begins[b] += begins[b - 1]
    for i in range(first, last):
        b = where[i - first]
        query = queries[begins[b]]
        begins[b] += 1
        query.node, query.place, query.lane = node[i], i, channel[i]
        query.x, query.y, query.z = xs[i], ys[i], zs[i]
        query.hx, query.hy, query.hz = rxs[i], rys[i], rzs[i]
        if kind[i] == DISC:  # an overlap that is due to rounding must not be missed
            r = query.hx
            query.hx, query.hy, query.hz = widen(query.x, r), widen(query.y, r), widen(query.z, r)
    return queries


@njit(inline="always")
def _row_matches(row: Any, at: int, where: int, what: int, x: float, y: float, z: float,
            rx: float, ry: float, rz: float) -> bool:  # fmt: skip
    """Whether the row holds and its region overlaps at the time of the publication."""
    dt = elapsed(at, row.t, row.until)
    return (
        (row.t <= at) & (at < row.end) & (row.channel == where)
        and overlap(
            row.kind, row.x + row.vx * dt, row.y + row.vy * dt, row.z + row.vz * dt,
            grown(row.rx, row.gx, dt), grown(row.ry, row.gy, dt), grown(row.rz, row.gz, dt),
            what, x, y, z, rx, ry, rz,
        )
    )  # fmt: skip


@njit(cache=True)
def query_grid(
    queries: Any, begin: int, publications: Any, index: Any, found_publications: Any, found_row: Any
) -> Any:
    """Find the pairs of the publications from `begin` on, until all are done or the room is full.

    Returns how many publications are done and how many pairs were found. There must be room for
    twice as many pairs as there are entries.
    """
    at, _, _, what, (_, _, _, rxs, rys, rzs) = publications
    entries, times, details, starts, measure = index
    per_x, per_y, per_z, most_x, most_y, most_z = measure
    table = len(starts) - 1
    timed, whole = len(times) > 0, len(details) > 0
    n = 0
    for turn in range(begin, len(queries)):
        query = queries[turn]
        i, node, where, before = query.place, query.node, query.lane, n
        x, y, z, hx, hy, hz = query.x, query.y, query.z, query.hx, query.hy, query.hz
        reach_x, reach_y, reach_z = (
            widen(x, most_x + hx),
            widen(y, most_y + hy),
            widen(z, most_z + hz),
        )
        ix0, ix1 = cell(x - reach_x, per_x), cell(x + reach_x, per_x)
        iy0, iy1 = cell(y - reach_y, per_y), cell(y + reach_y, per_y)
        iz0, iz1 = cell(z - reach_z, per_z), cell(z + reach_z, per_z)
        lanes = (iy1 - iy0 + 1.0) * (iz1 - iz0 + 1.0)  # a float: it may not fit an integer
        everything = (ix1 - ix0 + 4.0) * lanes > table or lanes > MAX_LANES
        if everything:
            ix0, ix1, iy0, iy1, iz0, iz1 = 0, 0, 0, 0, 0, 0
        for iz in range(iz0, iz1 + 1):
            for iy in range(iy0, iy1 + 1):
                lane = _lane(iy, iz, where)
                short = np.int32(lane)
                first = (lane + ix0) & (table - 1)
                length = ix1 - ix0 + 1
                if everything:
                    first, length = 0, table
                while length > 0:  # a run may wrap around the table's end
                    stop = min(first + length, table)
                    if n + starts[stop] - starts[first] > len(found_row):
                        return turn, before
                    for e in range(starts[first], starts[stop]):
                        entry = entries[e]
                        # Without branches: whether a neighbour matches cannot be predicted.
                        hit = (
                            (abs(entry.x - x) <= entry.hx + hx)
                            & (abs(entry.y - y) <= entry.hy + hy)
                            & (abs(entry.z - z) <= entry.hz + hz)
                            & (entry.node != node)
                            & (everything | (entry.lane == short))
                        )
                        found_publications[n], found_row[n] = i, entry.place
                        if timed:
                            hit &= (times[e, 0] <= at[i]) & (at[i] < times[e, 1])
                        if not whole:
                            n += hit
                        elif hit:
                            n += _row_matches(
                                details[e], at[i], where, what[i], x, y, z,
                                rxs[i], rys[i], rzs[i])  # fmt: skip
                    length -= stop - first
                    first = 0
    return len(queries), n
