"""Reads row groups for the join: valid rows only, without columns that hold only defaults.

Most columns of most traces hold only zeros. Tables here leave out columns that hold only their
default (0, null, false, channel ""); `join.column_or_zeros` supplies it. Which rows are invalid is
decided by the rules of `trace.rules` alone. Because the rules take longer than the join, row groups
whose minima and maxima already prove that all rows are valid are not checked row by row.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.pipeline.spark import storage
from nearcast.pipeline.spark.storage import RowGroup
from nearcast.space.motion import FASTEST
from nearcast.space.shapes import LARGEST
from nearcast.storage import locate, open_parquet
from nearcast.trace.reader import complete_columns
from nearcast.trace.rules import RULES
from nearcast.trace.schema import ADDED_COLUMNS, IDS_END, SHAPES, TABLES

TEXT_COLUMNS = [field.name for field in TABLES["interests"] if field.type == pa.string()]
REQUIRED_COLUMNS = ("t", "node", "subscription", "publication", "shape")
DEFAULTS: dict[pa.DataType, Any] = {pa.float64(): 0.0, pa.bool_(): False, pa.int64(): 0}
TEXT_TYPE = pa.dictionary(pa.int32(), pa.string())
DEFAULT_TEXTS = pa.array([""])

_POSITIONS = ("x", "y", "z")
_EXTENTS = ("rx", "ry", "rz")
_SPEEDS = ("vx", "vy", "vz", "gx", "gy", "gz")
_ZERO_COLUMNS = {  # must be 0 in rows of these shapes
    "point": ("rx", "ry", "rz", "gx", "gy", "gz"),
    "disc": ("ry", "rz", "gy", "gz"),
}


def read_row_group(group: RowGroup) -> pa.Table:
    """The valid rows of a row group, in the order of the file."""
    schema = TABLES[group.table]
    names = [name for name in schema.names if name != "bytes" or group.table != "publications"]
    texts = [name for name in names if schema.field(name).type == pa.string()]
    always_there = [name for name in texts if name not in ADDED_COLUMNS]
    try:
        with open_parquet(locate(group.file), read_dictionary=always_there) as file:
            rows = file.read_row_group(group.row_group, schema.names, use_threads=False)
        rows = complete_columns(rows, schema).cast(
            pa.schema([(f.name, TEXT_TYPE if f.name in texts else f.type) for f in schema])
        )
    except (OSError, ValueError, pa.ArrowException):
        # `valid_rows` reads what can be read.
        return drop_default_columns(storage.valid_rows(group).select(names))
    rows = rows.combine_chunks()
    if not _surely_valid(group.table, rows):
        plain = rows.cast(pa.schema([field.with_nullable(True) for field in schema]))
        batches = plain.to_batches()
        if any(rule.broken(batch).true_count for batch in batches for rule in RULES[group.table]):
            rows = storage.valid_rows(group)
    return drop_default_columns(rows.select(names))


def _surely_valid(table: str, rows: pa.Table) -> bool:
    """Whether minima and maxima prove all rows valid. False: the rules must be applied."""
    if not len(rows):
        return True
    schema = TABLES[table]
    if any(rows.column(field.name).null_count for field in schema if not field.nullable):
        return False
    if any(rows.column(f.name).null_count < len(rows) for f in schema if f.nullable):
        return False
    ranges = {
        f.name: _range(rows, f.name)
        for f in schema
        if not f.nullable and f.name not in TEXT_COLUMNS
    }
    low = {name: each[0] for name, each in ranges.items()}
    high = {name: each[1] for name, each in ranges.items()}
    identifier = "subscription" if table == "interests" else "publication"
    speeds = _SPEEDS if table == "interests" else ()
    # Written such that NaN makes it false.
    sound = (
        low["t"] >= 0
        and all(low[name] >= 0 and high[name] < IDS_END for name in ("node", identifier))
        and all(low[name] >= -LARGEST and high[name] <= LARGEST for name in _POSITIONS)
        and all(low[name] >= 0.0 and high[name] <= LARGEST for name in _EXTENTS)
        and all(low[name] >= -FASTEST and high[name] <= FASTEST for name in speeds)
        and low.get("bytes", 0) >= 0
    )
    shapes = rows.column("shape").chunk(0)
    kinds = pc.index_in(shapes.dictionary, pa.array(SHAPES))
    busy = {name for name in low if low[name] != 0 or high[name] != 0}
    return bool(
        sound
        and not kinds.null_count
        and not any(_has_nonzero(rows, kinds, shape, busy) for shape in _ZERO_COLUMNS)
    )


def _range(rows: pa.Table, name: str) -> tuple[Any, Any]:
    numbers = rows.column(name).to_numpy()
    return numbers.min(), numbers.max()


def _has_nonzero(rows: pa.Table, kinds: pa.Array, shape: str, busy: set[str]) -> bool:
    """Whether a row of this shape has a number other than 0 where it must be 0."""
    names = [name for name in _ZERO_COLUMNS[shape] if name in busy]
    if not names or SHAPES.index(shape) not in kinds.to_pylist():
        return False
    mine = kinds.to_numpy()[rows.column("shape").chunk(0).indices] == SHAPES.index(shape)
    return any(np.any(rows.column(name).to_numpy()[mine]) for name in names)


def drop_default_columns(rows: pa.Table) -> pa.Table:
    """The rows without columns that hold only defaults; texts dictionary-encoded."""
    kept = {}
    for name in rows.column_names:
        column = rows.column(name)
        if column.type == pa.string():
            column = column.dictionary_encode()
        if name in REQUIRED_COLUMNS or not _holds_only_defaults(column):
            kept[name] = column
    return pa.table(kept)


def _holds_only_defaults(column: pa.ChunkedArray) -> bool:
    if column.null_count:
        return bool(column.null_count == len(column))
    if pa.types.is_dictionary(column.type):
        return all(
            chunk.dictionary.equals(DEFAULT_TEXTS) or not len(chunk) for chunk in column.chunks
        )
    return not column.to_numpy().any()


def concat_rows(tables: Sequence[pa.Table], table: str) -> pa.Table:
    """One table of all rows, each column in one chunk."""
    found = {field.name: field.type for each in tables for field in each.schema}
    if not found:
        return drop_default_columns(TABLES[table].empty_table())
    schema = TABLES[table]
    filled = [
        pa.table(
            {
                name: each.column(name) if name in each.column_names
                else _default_column(schema.field(name), kind, len(each))
                for name, kind in found.items()
            }
        )
        for each in tables
    ]  # fmt: skip
    if len(filled) == 1:
        return filled[0].combine_chunks()
    return pa.concat_tables(filled).unify_dictionaries().combine_chunks()


def _default_column(field: pa.Field, kind: pa.DataType, count: int) -> pa.Array:
    if field.nullable:
        return pa.nulls(count, kind)
    if pa.types.is_dictionary(kind):
        return pa.repeat("", count).dictionary_encode().cast(kind)
    return pa.repeat(pa.scalar(DEFAULTS[kind], kind), count)


def rows_between(rows: pa.Table, begin: int, end: int) -> pa.Table:
    """The rows with begin <= t < end."""
    t = rows.column("t").to_numpy()
    inside = (t >= begin) & (t < end)
    if inside.all():
        return rows
    # In time order, as most tables are, these rows are adjacent and need no copy.
    first, last = int(inside.argmax()), len(inside) - int(inside[::-1].argmax())
    if not inside.any():
        return rows.slice(0, 0)
    return rows.slice(first, last - first) if inside[first:last].all() else rows.filter(inside)
