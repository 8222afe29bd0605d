"""The rows of traces, row group by row group: what tasks of the data source read.

Sound rows go on; broken rows and files that cannot be read are set aside with their reasons, by the
rules of `trace.rules`, and never keep the rest from being read.
"""

import errno
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from nearcast.pipeline.lake import Trace
from nearcast.trace.reader import missing_or_mistyped
from nearcast.trace.rules import RULES, rejected
from nearcast.trace.schema import SCHEMA_VERSION, TABLES
from nearcast.trace.sinks import ROW_GROUP, SCENARIO, in_a_line

SET_ASIDE = pa.schema(
    [
        pa.field("run", pa.string(), nullable=False),
        pa.field("table", pa.string(), nullable=False),
        pa.field("file", pa.string(), nullable=False),  # as the trace has it: table/name
        pa.field("row", pa.int64()),  # within the file; null: not about one row
        pa.field("reason", pa.string(), nullable=False),
    ]
)


_ADDED = ("bytes", "copies")  # of messages: what sums add up


class RowGroup(NamedTuple):
    """Where the rows are; or, if there is a fault, the file that has it."""

    run: str
    table: str
    file: str
    number: int
    first: int  # the number of its first row within the file
    rows: int
    fault: str = ""


class Bounds(NamedTuple):
    """Which rows are wanted: times from low to high, and some runs or (None) all."""

    low: float = float("-inf")
    high: float = float("inf")
    runs: frozenset[str] | None = None

    def allow(self, group: Any) -> bool:
        """May this row group hold wanted rows? Without statistics it may."""
        for place in range(group.num_columns):
            column = group.column(place)
            if column.path_in_schema == "t" and column.statistics and column.statistics.has_min_max:
                span = column.statistics
                return bool(span.min <= self.high and span.max >= self.low)
        return True


EVERYTHING = Bounds()


def row_groups(
    trace: Trace, table: str, files: Iterable[Path], bounds: Bounds = EVERYTHING
) -> Iterator[RowGroup]:
    """The row groups of these files of a table of this trace."""
    run, scenario = trace.run, Path(trace.path, SCENARIO)
    if bounds.runs is not None and run not in bounds.runs:
        return
    if strange := _foreign_version(scenario):
        yield RowGroup(run, table, str(scenario), 0, 0, 0, strange)
        return
    for file in files:
        try:
            with pq.ParquetFile(file) as parquet:
                faults = missing_or_mistyped(parquet.schema_arrow, TABLES[table])
                metadata = parquet.metadata
        except (OSError, ValueError, pa.ArrowException) as error:
            faults = [_fault(error)]
        if faults:
            yield RowGroup(run, table, str(file), 0, 0, 0, "; ".join(faults))
            continue
        first = 0
        for number in range(metadata.num_row_groups):
            group = metadata.row_group(number)
            if bounds.allow(group):
                yield RowGroup(run, table, str(file), number, first, group.num_rows)
            first += group.num_rows


def _foreign_version(scenario: Path) -> str:
    """Why the tables of this trace cannot be understood, if its scenario says so."""
    try:
        said = msgspec.json.decode(scenario.read_bytes(), type=dict[str, Any])
    except (OSError, ValueError, RecursionError):
        return ""
    version = said.get("schema")
    return "" if version == SCHEMA_VERSION else f"says schema {version}; we read {SCHEMA_VERSION}"


def _fault(error: Exception) -> str:
    """What is wrong with the file. What is wrong with the machine may pass, and is raised."""
    passing = isinstance(error, OSError) and error.errno not in (None, errno.EACCES, errno.EISDIR)
    if passing or isinstance(error, MemoryError):
        raise error
    return f"cannot be read: {in_a_line(error)}"


def sound(
    columns: pa.Schema, groups: Iterable[RowGroup], sums: int | None = None
) -> Iterator[pa.RecordBatch]:
    """These columns of the sound rows; or their sums, for rows alike in so many microseconds."""
    for group in groups:
        for _, rows in _batches(group, []):
            if not _all_sound(group.table, rows):
                rows = rows.filter(rejected(group.table, rows).is_null())
            if sums is not None:
                rows = _summed(columns, rows, sums)
            yield _with_run(columns, group.run, rows)


def set_aside(columns: pa.Schema, groups: Iterable[RowGroup]) -> Iterator[pa.RecordBatch]:
    """These columns of `SET_ASIDE`, for the rows and files that `sound` leaves out."""
    for group in groups:
        faults: list[str] = []
        for first, rows in _batches(group, faults):
            if not _all_sound(group.table, rows):
                reasons = rejected(group.table, rows)
                numbers = pa.array(range(first, first + rows.num_rows), pa.int64())
                broken = reasons.is_valid()
                yield _about(columns, group, numbers.filter(broken), reasons.filter(broken))
        if faults:
            yield _about(columns, group, pa.nulls(1, pa.int64()), pa.array(faults))


def _summed(columns: pa.Schema, rows: pa.RecordBatch, span: int) -> pa.RecordBatch:
    """As the recording level "sums" does it, for messages that are alike in the other columns."""
    t = rows.column("t").to_numpy()
    floored = rows.set_column(rows.schema.get_field_index("t"), "t", pa.array(t - t % span))
    asked = [field.name for field in columns if field.name != "run"]
    alike = [name for name in asked if name not in _ADDED]
    added = [(name, "sum") for name in asked if name in _ADDED]
    sums = pa.Table.from_batches([floored]).group_by(alike, use_threads=False).aggregate(added)
    names = [name.removesuffix("_sum") for name in sums.schema.names]
    arrays = [column.combine_chunks() for column in sums.columns]
    return pa.RecordBatch.from_arrays(arrays, names=names)


def _batches(group: RowGroup, faults: list[str]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Rows with the number of the first of them, until a fault, which is added to the faults."""
    schema, first = TABLES[group.table], group.first
    if group.fault:
        faults.append(group.fault)
        return
    try:
        with pq.ParquetFile(group.file, page_checksum_verification=True) as parquet:
            for rows in parquet.iter_batches(ROW_GROUP, [group.number], schema.names):
                columns = [rows.column(field.name).cast(field.type) for field in schema]
                for column in columns:
                    if column.type == pa.string():
                        column.validate(full=True)  # damaged texts show themselves only here
                yield first, pa.RecordBatch.from_arrays(columns, names=schema.names)
                first += rows.num_rows
    except (OSError, ValueError, pa.ArrowException) as error:
        end = group.first + group.rows - 1
        faults.append(f"rows {first} to {end}: {_fault(error)}")


def _all_sound(table: str, rows: pa.RecordBatch) -> bool:
    """Nearly always so, and asked in a fraction of the time that giving reasons takes."""
    return not any(rule.broken(rows).true_count for rule in RULES[table])


def _about(
    columns: pa.Schema, group: RowGroup, numbers: pa.Array, reasons: pa.Array
) -> pa.RecordBatch:
    name = Path(group.file).name
    file = name if name == SCENARIO else f"{group.table}/{name}"
    return _with_run(
        columns,
        group.run,
        pa.record_batch(
            {
                "table": pa.repeat(group.table, len(numbers)),
                "file": pa.repeat(file, len(numbers)),
                "row": numbers,
                "reason": reasons,
            }
        ),
    )


def _with_run(columns: pa.Schema, run: str, rows: pa.RecordBatch) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [
            pa.repeat(run, rows.num_rows) if field.name == "run" else rows.column(field.name)
            for field in columns
        ],
        schema=columns,
    )
