"""The exact spatio-temporal join on columns: which subscriptions match which publications.

No Spark in here. A row of interests holds from its `t` until the next row of its subscription.
Time is cut into slices in which few rows change or move far. The rows of a slice are sorted into a
grid, and its publications query the grid (`kernels`). What filters and formulas demand is checked
last, pair by pair (`residual_predicates`).

A table may lack columns. A missing column holds only its default: 0, false, null or channel "".
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
Pairs: TypeAlias = tuple[Places, Integers]  # row numbers of publications; subscriptions
Columns: TypeAlias = tuple[Any, ...]  # as `kernels` takes them

SHAPE_COLUMNS = ("x", "y", "z", "rx", "ry", "rz")
MOTION_COLUMNS = ("vx", "vy", "vz", "gx", "gy", "gz")
COLUMN_TYPES = {field.name: field.type for schema in TABLES.values() for field in schema}
MIN_CHANGED_ROWS = 2_000  # before that many rows have changed, a new slice does not pay
PAIRS_PER_BATCH = 2**20


def column_or_zeros(table: pa.Table, name: str) -> Any:
    """A numeric column; zeros if the table lacks it."""
    if name in table.column_names:
        return table.column(name).to_numpy()
    return np.zeros(len(table), COLUMN_TYPES[name].to_pandas_dtype())


def text_codes(table: pa.Table, name: str, known: pa.Array) -> NDArray[np.int32]:
    """Each text as its index in `known`; -1 if it is not there."""
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
    """The rows in time order, which most tables have already."""
    t = column_or_zeros(rows, "t")
    return rows if np.all(t[:-1] <= t[1:]) else rows.take(np.argsort(t, kind="stable"))


def interest_spans(interests: pa.Table, lo: int = -FOREVER, hi: int = FOREVER) -> pa.Table:
    """The interests in force at some time of [lo, hi), each with its `end`."""
    return select_in_force(add_ends(interests), lo, hi)


def add_ends(interests: pa.Table) -> pa.Table:
    """The rows in time order, each with its `end`: the `t` of its subscription's next row.

    Of several rows of one subscription in the same microsecond the first in order of their values
    counts, so that the result does not depend on the order of files.
    """
    rows = sort_by_time(interests)
    t = column_or_zeros(rows, "t")
    end = kernels.find_ends(column_or_zeros(rows, "subscription"), t)
    if np.any(end == t):
        rows = rows.filter(pa.array(~_repeated_rows(rows)))
        end = kernels.find_ends(column_or_zeros(rows, "subscription"), column_or_zeros(rows, "t"))
    return rows.append_column("end", pa.array(end, pa.int64()))


def select_in_force(rows: pa.Table, lo: int, hi: int) -> pa.Table:
    """The rows that hold at some time of [lo, hi); they must have an `end`."""
    holds = (column_or_zeros(rows, "t") < hi) & (column_or_zeros(rows, "end") > lo)
    if "ended" in rows.column_names:
        holds &= ~column_or_zeros(rows, "ended")
    return rows if holds.all() else rows.filter(pa.array(holds))


def _repeated_rows(rows: pa.Table) -> NDArray[np.bool_]:
    """Which rows are not the first of their subscription and microsecond."""
    names = ("rx", "z", "y", "x", "ended", "t", "subscription")
    order = np.lexsort([column_or_zeros(rows, name) for name in names])
    t, subscription = (
        column_or_zeros(rows, "t")[order],
        column_or_zeros(rows, "subscription")[order],
    )
    doubled = np.zeros(len(order), np.bool_)
    doubled[order[1:]] = (subscription[1:] == subscription[:-1]) & (t[1:] == t[:-1])
    return doubled


def interest_columns(spans: pa.Table, channels: pa.Array) -> Columns:
    """Interest spans, in time order, as the columns that the kernels read."""
    place = [column_or_zeros(spans, name) for name in SHAPE_COLUMNS]
    motion = [column_or_zeros(spans, name) for name in MOTION_COLUMNS]
    kind = text_codes(spans, "shape", pa.array(SHAPES))
    if "formula" in spans.column_names and spans.column("formula").null_count < len(spans):
        formulas = np.flatnonzero(spans.column("formula").is_valid().to_numpy())
        boxes = np.array(
            [formula_box(text) for text in spans.column("formula").take(formulas).to_pylist()]
        )
        kind[formulas] = BOX
        place = [_replace_values(each, formulas, boxes[:, n]) for n, each in enumerate(place)]
        motion = [_replace_values(each, formulas, 0.0) for each in motion]
    until = np.empty(0, np.int64)
    if any(each.any() for each in motion):
        until = np.full(len(spans), FOREVER)
        if "until" in spans.column_names:
            until = pc.fill_null(spans.column("until"), FOREVER).to_numpy()
    node = column_or_zeros(spans, "node")
    if column_or_zeros(spans, "echo").any():
        node = np.where(column_or_zeros(spans, "echo"), kernels.ECHOED, node)
    columns = (
        column_or_zeros(spans, "t"),
        column_or_zeros(spans, "end"),
        node,
        text_codes(spans, "channel", channels),
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
    """Contiguous and read-only: numba compiles a kernel again for any other kind of array."""
    for each in columns:
        each.setflags(write=False)
    return tuple(np.ascontiguousarray(each) for each in columns)


def find_pairs(spans: pa.Table, publications: pa.Table) -> Iterator[Pairs]:
    """Every expected pair, batch by batch. Publications must be in time order."""
    if not spans.num_rows or not publications.num_rows:
        return
    spans = sort_by_time(spans)
    channels = distinct_texts(spans, "channel")
    rows, published = interest_columns(spans, channels), publication_columns(publications, channels)
    # All on one channel, and no discs are published: then boxes decide.
    simple = (
        len(channels) == 1 and not np.any(published[2] < 0) and not np.any(published[3] == DISC)
    )
    min_checks = kernels.BOX_ONLY if simple else kernels.FULL_CHECK
    reach = max(_mean_extent(extent) for extent in published[4][3:])
    subscription = column_or_zeros(spans, "subscription")
    residual = ResidualPredicates(spans, publications)
    found = np.empty(PAIRS_PER_BATCH, np.int32), np.empty(PAIRS_PER_BATCH, np.int32)
    for live, first, last in time_slices(rows, published[0]):
        if 2 * len(live) > len(found[0]):
            found = np.empty(2 * len(live), np.int32), np.empty(2 * len(live), np.int32)
        for which, place in find_slice_pairs(
            live, first, last, rows, published, min_checks, reach, found
        ):
            if residual:
                allowed = residual.check_pairs(which, place)
                which, place = which[allowed], place[allowed]
            yield which, subscription.take(place)


def _mean_extent(extents: NDArray[np.float64]) -> float:
    bounded = extents[np.isfinite(extents)]
    return float(bounded.mean()) if len(bounded) else 0.0


def time_slices(rows: Columns, at: Integers) -> Iterator[tuple[Integers, int, int]]:
    """For each slice of time: the rows in force, and the range of publications made in it.

    In a long slice every version of a region is a candidate; with short slices the grid is built
    more often than it is queried. So a slice ends when half as many rows have changed as it began
    with, or a typical region has moved by half its size, but not before enough publications.
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
    """Microseconds in which a typical moving region moves by its half-extent."""
    (_, _, _, rx, ry, _), motion, until = rows[5:]
    if not len(until):
        return FOREVER
    speed = np.sum([np.abs(each) for each in motion[:4]], axis=0)
    moving = (speed > 0.0) & np.isfinite(rx) & np.isfinite(ry)
    size, speed = np.maximum(rx, ry)[moving].sum(), speed[moving].sum()
    return int(min(max(1e6 * size / speed, 10_000.0), 1e15)) if size else 250_000


def find_slice_pairs(
    live: Integers,
    first: int,
    last: int,
    rows: Columns,
    published: Columns,
    min_checks: int,
    reach: float,
    found: Columns,
) -> Iterator[tuple[Places, Places]]:
    """The pairs of a slice before the residual check: row numbers of publications and spans."""
    boxes, sizes = np.empty((len(live), 6)), np.empty(len(live), np.int64)
    moments = int(published[0][first]), int(published[0][last - 1])
    checks = max(min_checks, kernels.bound_rows(live, *moments, rows, boxes, sizes))
    for members in _size_classes(sizes):
        index = kernels.build_grid(members, live, rows, boxes, checks, reach)
        queries = kernels.sort_publications(first, last, published, index[3], index[4])
        done = 0
        while done < len(queries):
            done, count = kernels.query_grid(queries, done, published, index, *found)
            if count:
                yield found[0][:count].copy(), found[1][:count]


def _size_classes(sizes: Integers) -> Iterator[Integers]:
    """Rows of similar size together: cells for large regions are too coarse for small ones."""
    classes = np.flatnonzero(np.bincount(sizes))
    while len(classes) > 12:
        sizes = sizes >> 1
        classes = np.flatnonzero(np.bincount(sizes))
    for each in classes:
        yield np.flatnonzero(sizes == each) if len(classes) > 1 else np.arange(len(sizes))
