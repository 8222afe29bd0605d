"""The exact spatio-temporal join on columns: who should have heard what. No Spark in here.

Interests become rows that hold from their `t` until the subscription's next row. Time is cut into
slices in which few rows change or move far; a slice's rows are sorted into a grid, and its
publications are asked of it (`kernels`). Filters and formulas have the last word (`doubts`).

Tables need not have all their columns: one that is left out holds nothing but the usual, which is
0, false, no text or the channel "".
"""

from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from nearcast.pipeline.truth import kernels
from nearcast.pipeline.truth.residual_predicates import Places, ResidualPredicates, formula_box
from nearcast.space.motion import FOREVER
from nearcast.space.shapes import BOX, DISC
from nearcast.trace.schema import SHAPES, TABLES

Integers: TypeAlias = NDArray[np.int64]
Pairs: TypeAlias = tuple[Places, Integers]  # places of publications in their table; subscriptions
Columns: TypeAlias = tuple[Any, ...]  # as `kernels` takes them

SHAPE_COLUMNS = ("x", "y", "z", "rx", "ry", "rz")
MOTION_COLUMNS = ("vx", "vy", "vz", "gx", "gy", "gz")
COLUMN_TYPES = {field.name: field.type for schema in TABLES.values() for field in schema}
MIN_CHANGED_ROWS = 2_000  # rows that change before a new slice is worth its while
PAIRS_PER_BATCH = 2**20  # pairs that are handed on together


def column_or_zeros(table: pa.Table, name: str) -> Any:
    """A column of numbers, or of nothing but zeros."""
    if name in table.column_names:
        return table.column(name).to_numpy()
    return np.zeros(len(table), COLUMN_TYPES[name].to_pandas_dtype())


def text_codes(table: pa.Table, name: str, known: pa.Array) -> NDArray[np.int32]:
    """Texts as their places among those known: -1 for any other."""
    if name not in table.column_names:
        usual = pc.index_in(pa.scalar(""), known).as_py()
        return np.full(len(table), -1 if usual is None else usual, np.int32)
    texts = table.column(name).combine_chunks()
    if not pa.types.is_dictionary(texts.type):
        texts = texts.dictionary_encode()
    place = pc.fill_null(pc.index_in(texts.dictionary, known), -1).to_numpy(zero_copy_only=False)
    return np.asarray(place.astype(np.int32)[texts.indices.to_numpy(zero_copy_only=False)])


def distinct_texts(table: pa.Table, name: str) -> pa.Array:
    if name not in table.column_names:
        return pa.array([""])
    texts = table.column(name).combine_chunks()
    return pc.unique(texts.dictionary if pa.types.is_dictionary(texts.type) else texts)


def sort_by_time(rows: pa.Table) -> pa.Table:
    """Rows in order of time, which most are already."""
    t = column_or_zeros(rows, "t")
    return rows if np.all(t[:-1] <= t[1:]) else rows.take(np.argsort(t, kind="stable"))


def interest_spans(interests: pa.Table, lo: int = -FOREVER, hi: int = FOREVER) -> pa.Table:
    """The interests in force at some moment of [lo, hi), each with the `end` of its time."""
    return select_in_force(add_ends(interests), lo, hi)


def add_ends(interests: pa.Table) -> pa.Table:
    """The rows in order of time, each with its `end`: when its subscription's next row begins.

    Of several rows of one subscription at one microsecond the first in order of their values
    counts, so that the answer does not depend on the order of files.
    """
    rows = sort_by_time(interests)
    t = column_or_zeros(rows, "t")
    end = kernels.find_ends(column_or_zeros(rows, "subscription"), t)
    if np.any(end == t):
        rows = rows.filter(pa.array(~_repeated_rows(rows)))
        end = kernels.find_ends(column_or_zeros(rows, "subscription"), column_or_zeros(rows, "t"))
    return rows.append_column("end", pa.array(end, pa.int64()))


def select_in_force(rows: pa.Table, lo: int, hi: int) -> pa.Table:
    """Of rows with ends, those that hold at some moment of [lo, hi)."""
    holds = (column_or_zeros(rows, "t") < hi) & (column_or_zeros(rows, "end") > lo)
    if "ended" in rows.column_names:
        holds &= ~column_or_zeros(rows, "ended")
    return rows if holds.all() else rows.filter(pa.array(holds))


def _repeated_rows(rows: pa.Table) -> NDArray[np.bool_]:
    """Rows that come second in their subscription and microsecond, or later."""
    names = ("rx", "z", "y", "x", "ended", "t", "subscription")
    order = np.lexsort([column_or_zeros(rows, name) for name in names])
    t, subscription = (
        column_or_zeros(rows, "t")[order],
        column_or_zeros(rows, "subscription")[order],
    )
    doubled = np.zeros(len(order), np.bool_)
    doubled[order[1:]] = (subscription[1:] == subscription[:-1]) & (t[1:] == t[:-1])
    return doubled


def interest_columns(held: pa.Table, channels: pa.Array) -> Columns:
    """Spans, in order of time, as the columns that the kernels read."""
    place = [column_or_zeros(held, name) for name in SHAPE_COLUMNS]
    motion = [column_or_zeros(held, name) for name in MOTION_COLUMNS]
    kind = text_codes(held, "shape", pa.array(SHAPES))
    if "formula" in held.column_names and held.column("formula").null_count < len(held):
        formulas = np.flatnonzero(held.column("formula").is_valid().to_numpy())
        boxes = np.array(
            [formula_box(text) for text in held.column("formula").take(formulas).to_pylist()]
        )
        kind[formulas] = BOX
        place = [_replace_values(each, formulas, boxes[:, n]) for n, each in enumerate(place)]
        motion = [_replace_values(each, formulas, 0.0) for each in motion]
    until = np.empty(0, np.int64)
    if any(each.any() for each in motion):
        until = np.full(len(held), FOREVER)
        if "until" in held.column_names:
            until = pc.fill_null(held.column("until"), FOREVER).to_numpy()
    node = column_or_zeros(held, "node")
    if column_or_zeros(held, "echo").any():
        node = np.where(column_or_zeros(held, "echo"), kernels.ECHOED, node)
    columns = (
        column_or_zeros(held, "t"),
        column_or_zeros(held, "end"),
        node,
        text_codes(held, "channel", channels),
        kind,
    )
    return (*_read_only(*columns), _read_only(*place), _read_only(*motion), *_read_only(until))


def publication_columns(publications: pa.Table, channels: pa.Array) -> Columns:
    """Publications as the columns that the kernels read."""
    place = _read_only(*(column_or_zeros(publications, name) for name in SHAPE_COLUMNS))
    numbers = column_or_zeros(publications, "t"), column_or_zeros(publications, "node")
    channel, kind = (
        text_codes(publications, "channel", channels),
        text_codes(publications, "shape", pa.array(SHAPES)),
    )
    return (*_read_only(*numbers, channel, kind), place)


def _replace_values(column: Any, places: Integers, values: Any) -> Any:
    copy = column.copy()
    copy[places] = values
    return copy


def _read_only(*columns: Any) -> Columns:
    """All alike to the compiler, which takes what may be written to for another type."""
    for each in columns:
        each.setflags(write=False)
    return tuple(np.ascontiguousarray(each) for each in columns)


def find_pairs(held: pa.Table, publications: pa.Table) -> Iterator[Pairs]:
    """Every pair that should have been heard, in pieces; publications must be in order of time."""
    if not held.num_rows or not publications.num_rows:
        return
    held = sort_by_time(held)
    channels = distinct_texts(held, "channel")
    rows, said = interest_columns(held, channels), publication_columns(publications, channels)
    # One channel, on which all listen, and nothing round: then boxes decide.
    simple = len(channels) == 1 and not np.any(said[2] < 0) and not np.any(said[3] == DISC)
    least = kernels.BOX_ONLY if simple else kernels.FULL_CHECK
    reach = max(_mean_extent(extent) for extent in said[4][3:])
    subscription = column_or_zeros(held, "subscription")
    doubts = ResidualPredicates(held, publications)
    found = np.empty(PAIRS_PER_BATCH, np.int32), np.empty(PAIRS_PER_BATCH, np.int32)
    for live, first, last in time_slices(rows, said[0]):
        if 2 * len(live) > len(found[0]):
            found = np.empty(2 * len(live), np.int32), np.empty(2 * len(live), np.int32)
        for which, place in find_slice_pairs(live, first, last, rows, said, least, reach, found):
            if doubts:
                sure = doubts.settle(which, place)
                which, place = which[sure], place[sure]
            yield which, subscription.take(place)


def _mean_extent(extents: NDArray[np.float64]) -> float:
    bounded = extents[np.isfinite(extents)]
    return float(bounded.mean()) if len(bounded) else 0.0


def time_slices(rows: Columns, at: Integers) -> Iterator[tuple[Integers, int, int]]:
    """Slices of time: which rows hold at some moment of it, and the publications made in it.

    Too long a slice, and every version of a region is a candidate; too short, and the grid is built
    more often than it is asked. So a slice ends when half as many rows have changed as it began
    with, or a typical region has moved by half its size, if there was enough to ask until then.
    """
    t, end = rows[0], rows[1]
    calm = _slice_length(rows)
    live = np.empty(0, np.int64)
    taken = first = 0
    while first < len(at):
        begin = int(at[first])
        fresh = int(np.searchsorted(t, begin, "right"))
        live = np.concatenate([live[end[live] > begin], _holding_rows(end, taken, fresh, begin)])
        patient = min(first + len(live) // 4, len(at) - 1)
        change = fresh + max(len(live) // 2, MIN_CHANGED_ROWS)
        stop = min(int(t[change]) if change < len(t) else FOREVER, begin + calm)
        last = max(int(np.searchsorted(at, stop)), patient + 1)
        taken = int(np.searchsorted(t, at[last - 1], "right"))
        live = np.concatenate([live, np.arange(fresh, taken)])
        yield live, first, last
        first = last


def _holding_rows(end: Integers, first: int, last: int, begin: int) -> Integers:
    return first + np.flatnonzero(end[first:last] > begin)


def _slice_length(rows: Columns) -> int:
    """Microseconds in which a typical moving region travels its half-extent."""
    (_, _, _, rx, ry, _), motion, until = rows[5:]
    if not len(until):
        return FOREVER
    speed = np.sum([np.abs(each) for each in motion[:4]], axis=0)
    moving = (speed > 0.0) & np.isfinite(rx) & np.isfinite(ry)
    size, speed = np.maximum(rx, ry)[moving].sum(), speed[moving].sum()
    return int(min(max(1e6 * size / speed, 10_000.0), 1e15)) if size else 250_000


def find_slice_pairs(
    live: Integers, first: int, last: int, rows: Columns, said: Columns, least: int, reach: float,
    found: Columns,
) -> Iterator[tuple[Places, Places]]:  # fmt: skip
    """The pairs of a slice, but for the doubts: places of publications and rows."""
    boxes, sizes = np.empty((len(live), 6)), np.empty(len(live), np.int64)
    moments = int(said[0][first]), int(said[0][last - 1])
    asking = max(least, kernels.bound_rows(live, *moments, rows, boxes, sizes))
    for mine in _size_classes(sizes):
        index = kernels.build_grid(mine, live, rows, boxes, asking, reach)
        questions = kernels.sort_publications(first, last, said, index[3], index[4])
        done = 0
        while done < len(questions):
            done, count = kernels.query_grid(questions, done, said, index, *found)
            if count:
                yield found[0][:count].copy(), found[1][:count]


def _size_classes(sizes: Integers) -> Iterator[Integers]:
    """Rows of a like size together, so that tiny and huge ones are not in each other's way."""
    classes = np.flatnonzero(np.bincount(sizes))
    while len(classes) > 12:
        sizes = sizes >> 1
        classes = np.flatnonzero(np.bincount(sizes))
    for each in classes:
        yield np.flatnonzero(sizes == each) if len(classes) > 1 else np.arange(len(sizes))
