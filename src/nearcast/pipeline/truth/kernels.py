"""The compiled part of the join: how long rows hold, and the pairs of a slice of time.

The grid of `matching.kernels` is made for subscriptions that change one by one and are asked again
and again; this one is made to be built from columns, asked once and thrown away. Centres are sorted
into hashed cells as wide as the largest half-extent, neighbours in x side by side; an entry takes
one cache line. Fixed boxes that hold through the slice are decided by their entry alone; of others
the entry is a box around all they touch meanwhile, and the row decides at the publication's moment.
Borders are decided by `space.shapes.overlap`, or by its own words for boxes.
"""

from math import frexp, inf, isinf
from typing import Any

import numpy as np
from numba import njit

from nearcast.matching.grid_build import cell, swept_interval, widen
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
ECHOED = -1  # the owner of an entry whose own publications reach it too: no node has this number
# What must be asked of a candidate besides its box: nothing, whether it holds, or everything.
BOX_ONLY, BOX_AND_TIME, FULL_CHECK = 0, 1, 2
NO_SUBSCRIPTION = -1  # a subscription that is none

# Odd, and such that no two rows of cells that one query visits share a lane.
BY_Y, BY_Z, BY_CHANNEL = 0x4F6CDD1D, 0x31A53F85, 0x2545F491
MAX_LANES = 1024  # rows of cells that a query visits before it rather looks at every entry


@njit(cache=True)
def find_ends(subscription: Any, t: Any) -> Any:
    """Of rows in order of time: when the next row of the same subscription begins, else FOREVER."""
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
    """Where numbers lie close together, as most do: a tenth of a hash table's time."""
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
    if isinf(middle):  # so far away that only the row itself can say
        return 0.0, inf
    return middle, around


@njit(cache=True)
def bound_rows(live: Any, lo: int, hi: int, rows: Any, boxes: Any, sizes: Any) -> int:
    """For each live row a box around what it touches between lo and hi, and its size class.

    Returns how much must be asked besides: PLAIN if the rows are fixed boxes that hold all the
    time, TIMED if they are fixed boxes, else WHOLE.
    """
    t, end, _, _, kind, (xs, ys, zs, rxs, rys, rzs), (vxs, vys, vzs, gxs, gys, gzs), until = rows
    asking = BOX_ONLY
    for j in range(len(live)):
        k, box = live[j], boxes[j]
        disc = kind[k] == DISC
        if t[k] > lo or hi >= end[k]:
            asking = max(asking, BOX_AND_TIME)
        x, y, z, rx, ry, rz = xs[k], ys[k], zs[k], rxs[k], rys[k], rzs[k]
        if disc:
            asking = FULL_CHECK
            rx, ry, rz = widen(x, rx), widen(y, rx), widen(z, rx)
        if len(until):
            vx, vy, vz, gx, gy, gz = vxs[k], vys[k], vzs[k], gxs[k], gys[k], gzs[k]
            if disc:
                gy = gz = gx
            if vx != 0.0 or vy != 0.0 or vz != 0.0 or gx != 0.0 or gy != 0.0 or gz != 0.0:
                asking = FULL_CHECK
                begin = elapsed(max(lo, t[k]), t[k], until[k])
                last = elapsed(min(hi, end[k]), t[k], until[k])
                x, rx = _bound_axis(x, rx, vx, gx, begin, last)
                y, ry = _bound_axis(y, ry, vy, gy, begin, last)
                z, rz = _bound_axis(z, rz, vz, gz, begin, last)
        box[0], box[1], box[2], box[3], box[4], box[5] = x, y, z, rx, ry, rz
        sizes[j] = size_class(rx, ry, rz)
    return asking


@njit(inline="always")
def size_class(hx: float, hy: float, hz: float) -> int:
    """The unbounded axes, then a power of four of the largest bounded half-extent."""
    unbounded = isinf(hx) * 1 + isinf(hy) * 2 + isinf(hz) * 4
    largest = 1e-290  # cells cannot be finer than this
    if not isinf(hx):
        largest = max(largest, hx)
    if not isinf(hy):
        largest = max(largest, hy)
    if not isinf(hz):
        largest = max(largest, hz)
    return unbounded * 2048 + ((frexp(largest)[1] + 1200) >> 1)


@njit(inline="always")
def _pitch(largest: float, reach: float, low: float, high: float, count: int) -> float:
    """Cells per unit along an axis: 0 (one cell) if it is unbounded or all centres agree."""
    if isinf(largest) or high <= low:
        return 0.0
    width = max(largest, reach)
    if width <= 0.0:
        width = (high - low) / (np.sqrt(count) + 1.0)
    return 1.0 / max(width, 1e-290)


@njit(inline="always")
def _lane(iy: int, iz: int, channel: int) -> int:
    return iy * BY_Y + iz * BY_Z + channel * BY_CHANNEL


@njit(cache=True)
def build_grid(mine: Any, live: Any, rows: Any, boxes: Any, asking: int, reach: float) -> Any:
    """Entries in the order of their cells, where each cell begins, and the measure of cells."""
    t, end, node, channel, kind, (xs, ys, zs, rxs, rys, rzs), motions, until = rows
    vxs, vys, vzs, gxs, gys, gzs = motions
    count = len(mine)
    low, high, most = np.full(3, inf), np.full(3, -inf), np.zeros(3)
    for j in mine:
        for axis in range(3):
            low[axis], high[axis] = min(low[axis], boxes[j, axis]), max(high[axis], boxes[j, axis])
            most[axis] = max(most[axis], boxes[j, axis + 3])
    # Cells in x can be narrow for nothing: a run of them is read as one.
    per_x = 4.0 * _pitch(most[0], reach, low[0], high[0], count)
    per_y = _pitch(most[1], reach, low[1], high[1], count)
    per_z = _pitch(most[2], reach, low[2], high[2], count)
    table = 16
    while table < 2 * count:
        table *= 2
    starts = np.zeros(table + 1, np.int32)
    where, lanes = np.empty(count, np.int32), np.empty(count, np.int64)
    for n in range(count):
        j = mine[n]
        lane = _lane(cell(boxes[j, 1], per_y), cell(boxes[j, 2], per_z), channel[live[j]])
        lanes[n] = lane
        where[n] = (lane + cell(boxes[j, 0], per_x)) & (table - 1)
        starts[where[n] + 1] += 1
    for b in range(1, table + 1):
        starts[b] += starts[b - 1]
    entries = np.empty(count, ENTRY)
    details = np.zeros(count if asking == FULL_CHECK else 0, DETAIL)
    times = np.empty((count if asking == BOX_AND_TIME else 0, 2), np.int64)
    for n in range(count - 1, -1, -1):
        j, b = mine[n], where[n]
        k = live[j]
        starts[b + 1] -= 1  # from the end of a cell to its beginning, which shifts starts by one
        entry = entries[starts[b + 1]]
        entry.x, entry.y, entry.z = boxes[j, 0], boxes[j, 1], boxes[j, 2]
        entry.hx, entry.hy, entry.hz = boxes[j, 3], boxes[j, 4], boxes[j, 5]
        entry.node, entry.place, entry.lane = node[k], k, np.int32(lanes[n])
        if asking == BOX_AND_TIME:
            times[starts[b + 1], 0], times[starts[b + 1], 1] = t[k], end[k]
        if asking < FULL_CHECK:
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
def sort_publications(first: int, last: int, said: Any, starts: Any, measure: Any) -> Any:
    """The publications by cell, so that neighbours find the same cells in cache."""
    _, node, channel, kind, (xs, ys, zs, rxs, rys, rzs) = said
    per_x, per_y, per_z, _, _, _ = measure
    table = len(starts) - 1
    questions = np.empty(last - first, ENTRY)
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
        asked = questions[begins[b]]
        begins[b] += 1
        asked.node, asked.place, asked.lane = node[i], i, channel[i]
        asked.x, asked.y, asked.z = xs[i], ys[i], zs[i]
        asked.hx, asked.hy, asked.hz = rxs[i], rys[i], rzs[i]
        if kind[i] == DISC:  # what rounds to a touch must not be passed over
            r = asked.hx
            asked.hx, asked.hy, asked.hz = widen(asked.x, r), widen(asked.y, r), widen(asked.z, r)
    return questions


@njit(inline="always")
def _row_matches(row: Any, at: int, where: int, what: int, x: float, y: float, z: float,
            rx: float, ry: float, rz: float) -> bool:  # fmt: skip
    """What the row itself says of a publication by another node than its own."""
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
    questions: Any, begin: int, said: Any, index: Any, found_said: Any, found_row: Any
) -> Any:
    """Answer publications from `begin` on, until all are done or there is no room for more.

    Returns how many are done and how many pairs were found. There must be room for twice as many
    pairs as there are entries.
    """
    at, _, _, what, (_, _, _, rxs, rys, rzs) = said
    entries, times, details, starts, measure = index
    per_x, per_y, per_z, most_x, most_y, most_z = measure
    table = len(starts) - 1
    timed, whole = len(times) > 0, len(details) > 0
    n = 0
    for turn in range(begin, len(questions)):
        asked = questions[turn]
        i, node, where, before = asked.place, asked.node, asked.lane, n
        x, y, z, hx, hy, hz = asked.x, asked.y, asked.z, asked.hx, asked.hy, asked.hz
        reach_x, reach_y, reach_z = (
            widen(x, most_x + hx),
            widen(y, most_y + hy),
            widen(z, most_z + hz),
        )
        ix0, ix1 = cell(x - reach_x, per_x), cell(x + reach_x, per_x)
        iy0, iy1 = cell(y - reach_y, per_y), cell(y + reach_y, per_y)
        iz0, iz1 = cell(z - reach_z, per_z), cell(z + reach_z, per_z)
        lanes = (iy1 - iy0 + 1.0) * (iz1 - iz0 + 1.0)  # in floats: it may not fit an integer
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
                while length > 0:  # a run may go on at the table's beginning
                    stop = min(first + length, table)
                    if n + starts[stop] - starts[first] > len(found_row):
                        return turn, before
                    for e in range(starts[first], starts[stop]):
                        entry = entries[e]
                        # Free of jumps: whether a neighbour hears is a coin toss.
                        hit = (
                            (abs(entry.x - x) <= entry.hx + hx)
                            & (abs(entry.y - y) <= entry.hy + hy)
                            & (abs(entry.z - z) <= entry.hz + hz)
                            & (entry.node != node)
                            & (everything | (entry.lane == short))
                        )
                        found_said[n], found_row[n] = i, entry.place
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
    return len(questions), n
