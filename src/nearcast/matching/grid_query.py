"""The compiled part of the grid that answers queries: which rows want a publication?

Candidates come from an index that `grid_build` has made, or from a list. Each is tested at the
publication's own moment. Borders are decided by `space.shapes.overlap` alone, compiled from the
same source.
"""

from typing import Any

import numpy as np
from numba import njit

from nearcast.matching.formula_vm import SOMEWHERE, STACK, VALUELESS, locate_region, touching
from nearcast.matching.grid_build import SWEPT, bucket, cell, elapsed, grown, overlap, widen
from nearcast.matching.outline_table import contains_point
from nearcast.matching.rows import ALIVE, ECHO, EVOLVES, FILTERED, FORMULA, OUTLINED
from nearcast.space.shapes import DISC, POINT

NO, YES, UNDECIDED = 0, 1, 2
OUTCOME = 3  # the bits of a formula's row in which the outcome of its program is kept
ANY_ROW = 2**40  # no row of cells: cells are numbered within ±2**31


@njit(inline="always")
def is_in_force(row: Any, channel: int, at: int) -> Any:
    return row.channel == channel and row.valid_from <= at < row.valid_to


@njit(inline="always")
def may_touch_formula(
    row: Any, kind: int, x: float, y: float, z: float, rx: float, ry: float, rz: float
) -> Any:
    """Does the publication touch the box of a formula's row?"""
    wide = rx if kind == DISC else 0.0
    hx, hy, hz = widen(x, rx), widen(y, max(ry, wide)), widen(z, max(rz, wide))
    return (
        x + hx >= row.vx and x - hx <= row.gx
        and y + hy >= row.vy and y - hy <= row.gy
        and z + hz >= row.vz and z - hz <= row.gz
    )  # fmt: skip


@njit(inline="always")
def check_row(row: Any, p: Any) -> int:
    """Does this row want the publication? NO, YES, or UNDECIDED: its filter, formula or outline
    decides."""
    at, node, channel, kind, x, y, z, rx, ry, rz = p
    if not row.flags & ALIVE or not is_in_force(row, channel, at):
        return NO
    if row.node == node and not row.flags & ECHO:
        return NO
    if row.flags & FORMULA:
        return UNDECIDED if may_touch_formula(row, kind, x, y, z, rx, ry, rz) else NO
    dt = elapsed(at, row.since, row.until)
    if not overlap(
        row.kind, row.x + row.vx * dt, row.y + row.vy * dt, row.z + row.vz * dt,
        grown(row.rx, row.gx, dt), grown(row.ry, row.gy, dt), grown(row.rz, row.gz, dt),
        kind, x, y, z, rx, ry, rz,
    ):  # fmt: skip
        return NO
    return UNDECIDED if row.flags & (FILTERED | OUTLINED) else YES


@njit(inline="always")
def append_run(runs: Any, count: int, first: int, last: int, iy: int, iz: int) -> int:
    run = runs[count]
    run[0], run[1], run[2], run[3] = first, last, iy, iz
    return count + 1


@njit(cache=True)
def runs_around(p: Any, level: Any, starts: Any, runs: Any) -> int:
    """The runs of entries whose cells the publication can reach: first, last, row of cells.

    One run of the whole level, marked by a row beyond all cells, where that is cheaper.
    """
    _, _, _, kind, x, y, z, rx, ry, rz = p
    wide = rx if kind == DISC else 0.0  # a disc reaches rx on every axis
    hx = widen(x, level.rx + rx)
    hy, hz = widen(y, level.ry + max(ry, wide)), widen(z, level.rz + max(rz, wide))
    ix0, ix1 = cell(x - hx, level.per_x), cell(x + hx, level.per_x)
    iy0, iy1 = cell(y - hy, level.per_y), cell(y + hy, level.per_y)
    iz0, iz1 = cell(z - hz, level.per_z), cell(z + hz, level.per_z)
    table, base = level.mask + 1, level.starts
    rows_of_cells = (iy1 - iy0 + 1.0) * (iz1 - iz0 + 1.0)  # in floats: it may not fit an integer
    if (ix1 - ix0 + 4.0) * rows_of_cells > table or 2.0 * rows_of_cells > len(runs):
        return append_run(runs, 0, starts[base], starts[base + table], ANY_ROW, 0)
    count = 0
    for iz in range(iz0, iz1 + 1):
        for iy in range(iy0, iy1 + 1):
            first = bucket(ix0, iy, iz, level.mask)
            last = first + ix1 - ix0 + 1
            end = min(last, table)
            count = append_run(runs, count, starts[base + first], starts[base + end], iy, iz)
            if last > table:  # the run goes on at the table's beginning
                count = append_run(runs, count, starts[base], starts[base + last - table], iy, iz)
    return count


@njit(cache=True)
def order_by_bucket(centre: Any, levels: Any) -> Any:
    """The order of publications by bucket, so that neighbours find the same cells in cache."""
    count = len(centre)
    order = np.arange(count)
    if count < 64 or len(levels) == 0:
        return order
    widest = levels[0]
    for level in levels:
        if level.mask > widest.mask:
            widest = level
    starts = np.zeros(widest.mask + 2, np.int32)
    where = np.empty(count, np.int32)
    for i in range(count):
        where[i] = bucket(
            cell(centre[i, 0], widest.per_x), cell(centre[i, 1], widest.per_y),
            cell(centre[i, 2], widest.per_z), widest.mask)  # fmt: skip
        starts[where[i] + 1] += 1
    for b in range(1, len(starts)):
        starts[b] += starts[b - 1]
    for i in range(count):
        order[starts[where[i]]] = i
        starts[where[i]] += 1
    return order


@njit(cache=True)
def query(
    publications: Any, order: Any, begin: int, rows: Any, index: Any, apart: Any, skip: Any,
    found_publication: Any, found_id: Any, undecided_publications: Any, undecided_places: Any,
) -> Any:  # fmt: skip
    """Answer publications from `begin` on, until all are done or there may be no room for more.

    `apart` are rows to test one by one, `skip` marks rows whose entries are void (empty: none is).
    Returns the numbers of publications done, of pairs found, of pairs whose filter or formula must
    be evaluated, and of evolving rows tested.
    """
    t, node, channel, kind, centre, extent = publications
    levels, starts, entries, _ = index
    runs = np.empty((4096, 4), np.int64)
    capacity = len(found_id) - len(rows)
    skipping = len(skip) > 0
    n = m = evaluated = 0
    for turn in range(begin, len(t)):
        if n > capacity or m > capacity:
            return turn, n, m, evaluated
        i = order[turn]
        at, who, where, what = t[i], node[i], channel[i], kind[i]
        x, y, z = centre[i, 0], centre[i, 1], centre[i, 2]
        rx, ry, rz = extent[i, 0], extent[i, 1], extent[i, 2]
        p = (at, who, where, what, x, y, z, rx, ry, rz)
        # A box stands for what it was swept by: discs must not miss it by a rounding of their own.
        swept_rx = widen(max(abs(x), abs(y), abs(z)), rx) if what == DISC else rx
        for place in apart:
            row = rows[place]
            evaluated += row.flags & EVOLVES != 0 and is_in_force(row, where, at)
            outcome = check_row(row, p)
            if outcome == YES:
                found_publication[n], found_id[n] = i, rows[place].id
                n += 1
            elif outcome == UNDECIDED:
                undecided_publications[m], undecided_places[m] = i, place
                m += 1
        for level in levels:
            if not level.used:
                continue
            for run in range(runs_around(p, level, starts, runs)):
                iy, iz = runs[run, 2], runs[run, 3]
                for k in range(runs[run, 0], runs[run, 1]):
                    entry = entries[k]
                    reach = swept_rx if entry.flags & SWEPT else rx
                    # Without branches: a hit is a coin toss, which the processor cannot predict.
                    hit = (
                        overlap(
                            entry.kind, entry.x, entry.y, entry.z, entry.rx, entry.ry, entry.rz,
                            what, x, y, z, reach, ry, rz)
                        & (entry.channel == where)
                        & ((entry.node != who) | (entry.flags & ECHO != 0))
                        & ((iy == ANY_ROW) | ((entry.iy == iy) & (entry.iz == iz)))
                    )  # fmt: skip
                    if skipping:
                        hit &= skip[entry.place] == 0
                    if not entry.flags & (SWEPT | FILTERED | OUTLINED):
                        found_publication[n], found_id[n] = i, entry.id
                        n += hit
                    elif hit:
                        evaluated += entry.flags & EVOLVES != 0
                        outcome = check_row(rows[entry.place], p)
                        if outcome == YES:
                            found_publication[n], found_id[n] = i, entry.id
                            n += 1
                        elif outcome == UNDECIDED:
                            undecided_publications[m], undecided_places[m] = i, entry.place
                            m += 1
    return len(t), n, m, evaluated


@njit(cache=True)
def keep_undecided(publications: Any, rows: Any, which: Any, places: Any) -> int:
    """Of these pairs of a publication and a row with a filter, keep those whose filter decides.

    Returns how many they are; they are moved to the front of both columns.
    """
    t, node, channel, kind, centre, extent = publications
    m = 0
    for k in range(len(which)):
        i, place = which[k], places[k]
        p = (
            t[i], node[i], channel[i], kind[i], centre[i, 0], centre[i, 1], centre[i, 2],
            extent[i, 0], extent[i, 1], extent[i, 2],
        )  # fmt: skip
        if check_row(rows[place], p) == UNDECIDED:
            which[m], places[m] = i, place
            m += 1
    return m


@njit(cache=True)
def count_pair_steps(t: Any, rows: Any, which: Any, places: Any) -> Any:
    """The cost of evaluating these pairs: publications, ids and steps, as columns.

    What is computed once for a moment is counted with the first pair of that moment.
    """
    ids, steps = np.empty(len(which), np.int64), np.empty(len(which), np.int64)
    for k in range(len(which)):
        row, at = rows[places[k]], t[which[k]]
        ids[k], steps[k] = row.id, row.pair_steps
        if row.evaluated_at != at:
            row.evaluated_at = at
            steps[k] += row.moment_steps
    return which.copy(), ids, steps


@njit(cache=True)
def keep_outlined(
    publications: Any, heights: Any, rows: Any, table: Any, which: Any, places: Any
) -> Any:
    """Of these pairs, drop those whose row has an outline that the publication is outside of.

    Points are decided here. Returns how many pairs are left, moved to the front of both columns,
    and, as places among them, those that only Python can decide: other shapes and outlines.
    """
    t, _, _, kind, centre, _ = publications
    heads, coordinates, starts = table
    open_pairs = np.empty(len(which), np.int64)
    m = left = 0
    for k in range(len(which)):
        i, place = which[k], places[k]
        row = rows[place]
        if row.flags & OUTLINED:
            if kind[i] == POINT:
                head, dt = heads[row.program], elapsed(t[i], row.since, row.until)
                if not contains_point(
                    head.form, head.earth != 0,
                    coordinates[head.first:head.last], starts[head.first_start:head.last_start],
                    head.size, head.low, head.high,
                    row.x + row.vx * dt, row.y + row.vy * dt, row.z + row.vz * dt,
                    centre[i, 0], centre[i, 1], centre[i, 2], heights[i, 0], heights[i, 1],
                ):  # fmt: skip
                    continue
            else:
                open_pairs[left] = m
                left += 1
        which[m], places[m] = i, place
        m += 1
    return m, open_pairs[:left]


@njit(cache=True)
def take_decided(rows: Any, which: Any, places: Any, found_publication: Any, found_id: Any) -> Any:
    """Of these pairs, those that neither a formula nor a filter decides are found.

    Returns how many were found, and how many are left, in place.
    """
    n = m = 0
    for k in range(len(which)):
        i, place = which[k], places[k]
        if rows[place].flags & (FORMULA | FILTERED):
            which[m], places[m] = i, place
            m += 1
        else:
            found_publication[n], found_id[n] = i, rows[place].id
            n += 1
    return n, m


@njit(cache=True)
def locate_formula(row: Any, t: int, programs: Any, stack: Any, ends: Any) -> None:
    """Compute where a formula's region is at `t`, once for all publications of that moment.

    The row has no shape of its own, so its lows, its highs and which of them are strict are kept
    in place of one, and the moment in `until`.
    """
    seconds = (t - row.since) / 1e6 if t > row.since else 0.0
    known = locate_region(programs, row.program, seconds, stack, ends)
    for axis in range(3):
        known |= (ends[2, axis] != 0.0) << (2 + axis)
        known |= (ends[3, axis] != 0.0) << (5 + axis)
    row.x, row.y, row.z = ends[0, 0], ends[0, 1], ends[0, 2]
    row.rx, row.ry, row.rz = ends[1, 0], ends[1, 1], ends[1, 2]
    row.kind, row.until = known, t


@njit(cache=True)
def run_formulas(
    publications: Any, rows: Any, programs: Any, undecided_publications: Any, undecided_places: Any,
    found_publication: Any, found_id: Any,
) -> Any:  # fmt: skip
    """Run the programs of formulas in the pairs that `query` left open.

    It is not part of `query`, whose loop is five times slower if it may run programs. Returns how
    many pairs were found, and how many are left, in place: those with a filter, and as ~place those
    with a fault, which Python decides.
    """
    t, _, _, kind, centre, extent = publications
    stack, ends = np.empty((STACK, 2)), np.empty((4, 3))
    n = m = 0
    for k in range(len(undecided_places)):
        i, place = undecided_publications[k], undecided_places[k]
        row = rows[place]
        left, outcome = True, SOMEWHERE
        if row.flags & FORMULA:
            if row.until != t[i]:
                locate_formula(row, t[i], programs, stack, ends)
            outcome = row.kind & OUTCOME
            touches = outcome == SOMEWHERE and touching(
                (row.x, row.y, row.z), (row.rx, row.ry, row.rz),
                (row.kind & 4, row.kind & 8, row.kind & 16),
                (row.kind & 32, row.kind & 64, row.kind & 128),
                kind[i], centre[i, 0], centre[i, 1], centre[i, 2],
                extent[i, 0], extent[i, 1], extent[i, 2],
            )  # fmt: skip
            left = outcome == VALUELESS or (touches and row.flags & FILTERED != 0)
            if touches and not left:
                found_publication[n], found_id[n] = i, row.id
                n += 1
        if left:
            undecided_publications[m] = i
            undecided_places[m] = ~place if outcome == VALUELESS else place
            m += 1
    return n, m
