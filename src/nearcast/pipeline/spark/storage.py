"""Where the pipeline reads traces and writes results.

The driver lists the row groups of a trace; Spark distributes the list, and workers read the row
groups with pyarrow. Invalid rows (by the rules of `trace.rules`) and unreadable files are rejected
with a reason; the rest is read all the same. Results are Parquet, partitioned by run. A result is
either complete or absent, and a new one replaces the old one.
"""

import errno
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec import Struct
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from nearcast.errors import TraceError
from nearcast.extras import keep_pandas_out
from nearcast.pipeline.spark.sql import query_sql
from nearcast.scenario import Scenario, from_json
from nearcast.space.motion import FOREVER
from nearcast.trace.reader import files, missing_or_mistyped
from nearcast.trace.rules import RULES, rejected
from nearcast.trace.schema import SCHEMA_VERSION, TABLES
from nearcast.trace.sinks import ROW_GROUP, SCENARIO, in_a_line

RUN = pa.field("run", pa.string(), nullable=False)
REJECTED_COUNTS = pa.schema(
    [
        RUN,
        pa.field("table", pa.string(), nullable=False),
        pa.field("file", pa.string(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("rows", pa.int64(), nullable=False),
    ]
)
REJECTED_ROWS = pa.schema(
    [
        RUN,
        pa.field("table", pa.string(), nullable=False),
        pa.field("file", pa.string(), nullable=False),  # as the trace has it: table/name
        pa.field("row", pa.int64()),  # within the file; null: not about one row
        pa.field("reason", pa.string(), nullable=False),
    ]
)
_ADDED = ("bytes", "copies")  # the columns of messages that are summed


class OpenedTrace(Struct, frozen=True):
    """A trace on disk, and the run that it belongs to."""

    path: str
    run: str
    scenario: Scenario | None  # None: not written by Nearcast, or unreadable


class RowGroup(Struct, frozen=True):
    """One row group of one file, and the times that it spans (all times if it has no statistics).

    With a `fault`: a file that cannot be used.
    """

    run: str
    table: str
    file: str
    row_group: int
    rows: int
    first: int
    last: int
    row: int = 0  # the number of its first row within the file
    fault: str = ""


class RowFilter(NamedTuple):
    """Which rows to read: times from low to high, of some runs or (None) all."""

    low: float = -FOREVER
    high: float = FOREVER
    runs: frozenset[str] | None = None


ALL_ROWS = RowFilter()


def open_traces(paths: Iterable[str | Path]) -> list[OpenedTrace]:
    """The traces at these paths; a path may also be a folder of traces."""
    found: dict[str, OpenedTrace] = {}
    for path in map(Path, paths):
        if not path.is_dir():
            raise TraceError(f"there is no trace at {path}")
        # A trace that is still being written has a name with a dot in front.
        inside = (p for p in sorted(path.iterdir()) if not p.name.startswith("."))
        here = [path] if _is_trace(path) else [p for p in inside if _is_trace(p)]
        if not here:
            raise TraceError(f"{path} holds neither a trace nor folders that do")
        for folder in here:
            trace = _open(folder)
            if trace.run in found and found[trace.run].path != trace.path:
                raise TraceError(
                    f"{found[trace.run].path} and {trace.path} are traces of the same run"
                )
            found[trace.run] = trace
    return list(found.values())


def _is_trace(path: Path) -> bool:
    return path.is_dir() and any((path / name).exists() for name in (SCENARIO, *TABLES))


def count_rows(traces: Sequence[OpenedTrace]) -> int:
    """The number of rows in all tables, according to the files' footers."""
    return sum(group.rows for table in TABLES for group in list_row_groups(traces, table)[0])


def _open(folder: Path) -> OpenedTrace:
    try:
        scenario = from_json((folder / SCENARIO).read_bytes())
    except (OSError, ValueError):
        # The run is part of a path, in which Spark would escape other characters.
        return OpenedTrace(str(folder), re.sub(r"[^\w.-]", "-", folder.resolve().name), None)
    return OpenedTrace(str(folder), scenario.run, scenario)


# Row groups.


def list_row_groups(
    traces: Sequence[OpenedTrace], table: str
) -> tuple[list[RowGroup], list[RowGroup]]:
    """All row groups of a table, and the files that cannot be read or have other columns."""
    found = [
        group
        for trace in traces
        for group in row_groups_of_files(trace, table, files(Path(trace.path), table))
    ]
    return [group for group in found if not group.fault], [group for group in found if group.fault]


def row_groups_of_files(
    trace: OpenedTrace, table: str, parts: Iterable[Path], bounds: RowFilter = ALL_ROWS
) -> Iterator[RowGroup]:
    """The row groups of these files that may hold wanted rows; unusable files are included."""
    run, scenario = trace.run, Path(trace.path, SCENARIO)
    if bounds.runs is not None and run not in bounds.runs:
        return
    if strange := _foreign_version(scenario):
        yield RowGroup(run, table, str(scenario), 0, 0, -FOREVER, FOREVER, fault=strange)
        return
    for file in parts:
        try:
            with pq.ParquetFile(file) as parquet:
                faults = missing_or_mistyped(parquet.schema_arrow, TABLES[table])
                footer = parquet.metadata
        except (OSError, ValueError, pa.ArrowException) as error:
            faults = [_fault(error)]
        if faults:
            yield RowGroup(run, table, str(file), 0, 0, -FOREVER, FOREVER, fault="; ".join(faults))
            continue
        row = 0
        for number in range(footer.num_row_groups):
            metadata = footer.row_group(number)
            first, last = _time_range(metadata)
            if first <= bounds.high and last >= bounds.low:
                yield RowGroup(run, table, str(file), number, metadata.num_rows, first, last, row)
            row += metadata.num_rows


def _time_range(metadata: Any) -> tuple[int, int]:
    for place in range(metadata.num_columns):
        column = metadata.column(place)
        if column.path_in_schema == "t" and column.statistics and column.statistics.has_min_max:
            return column.statistics.min, column.statistics.max
    return -FOREVER, FOREVER


def _foreign_version(scenario: Path) -> str:
    """Why this trace cannot be read, if its scenario has another schema version; else ""."""
    try:
        content = msgspec.json.decode(scenario.read_bytes(), type=dict[str, Any])
    except (OSError, ValueError, RecursionError):
        return ""
    version = content.get("schema")
    return "" if version == SCHEMA_VERSION else f"says schema {version}; we read {SCHEMA_VERSION}"


def _fault(error: Exception) -> str:
    """What is wrong with the file. An error of the machine may be temporary, and is raised."""
    passing = isinstance(error, OSError) and error.errno not in (None, errno.EACCES, errno.EISDIR)
    if passing or isinstance(error, MemoryError):
        raise error
    return f"cannot be read: {in_a_line(error)}"


def _batches(group: RowGroup, faults: list[str]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Batches, each with the number of its first row, up to a fault, which is added to `faults`."""
    schema, row = TABLES[group.table], group.row
    if group.fault:
        faults.append(group.fault)
        return
    try:
        with pq.ParquetFile(group.file, page_checksum_verification=True) as parquet:
            for rows in parquet.iter_batches(ROW_GROUP, [group.row_group], schema.names):
                columns = [rows.column(field.name).cast(field.type) for field in schema]
                for column in columns:
                    if column.type == pa.string():
                        column.validate(full=True)  # finds damaged texts
                yield row, pa.RecordBatch.from_arrays(columns, names=schema.names)
                row += rows.num_rows
    except (OSError, ValueError, pa.ArrowException) as error:
        end = group.row + group.rows - 1
        faults.append(f"rows {row} to {end}: {_fault(error)}")


def _all_valid(table: str, rows: pa.RecordBatch) -> bool:
    """Whether no rule is broken: much faster than finding the reason for each row."""
    return not any(rule.broken(rows).true_count for rule in RULES[table])


def _valid_batches(group: RowGroup) -> Iterator[pa.RecordBatch]:
    for _, rows in _batches(group, []):
        whole = _all_valid(group.table, rows)
        yield rows if whole else rows.filter(rejected(group.table, rows).is_null())


def valid_rows(group: RowGroup) -> pa.Table:
    wanted = pa.schema([field.with_nullable(True) for field in TABLES[group.table]])
    return pa.Table.from_batches(_valid_batches(group), wanted).combine_chunks()


def valid_batches(
    columns: pa.Schema, some: Iterable[RowGroup], sums: int | None = None
) -> Iterator[pa.RecordBatch]:
    """These columns of the valid rows; or sums of messages per `sums` microseconds."""
    for group in some:
        for rows in _valid_batches(group):
            given = rows if sums is None else _sum_messages(columns, rows, sums)
            yield _with_run(columns, group.run, given)


def rejected_batches(columns: pa.Schema, some: Iterable[RowGroup]) -> Iterator[pa.RecordBatch]:
    """These columns of `REJECTED_ROWS`: the rows and files that `valid_batches` leaves out."""
    for group in some:
        for numbers, reasons in _invalid_rows(group):
            name = Path(group.file).name
            about = {
                "table": pa.repeat(group.table, len(numbers)),
                "file": pa.repeat(
                    name if name == SCENARIO else f"{group.table}/{name}", len(numbers)
                ),
                "row": numbers,
                "reason": reasons,
            }
            yield _with_run(columns, group.run, pa.record_batch(about))


def _invalid_rows(group: RowGroup) -> Iterator[tuple[pa.Array, pa.Array]]:
    """The numbers of invalid rows (null: not about one row), and the reason for each."""
    faults: list[str] = []
    for row, rows in _batches(group, faults):
        if not _all_valid(group.table, rows):
            reasons = rejected(group.table, rows)
            numbers = pa.array(range(row, row + rows.num_rows), pa.int64())
            yield numbers.filter(reasons.is_valid()), reasons.drop_null()
    if faults:
        yield pa.nulls(1, pa.int64()), pa.array(faults)


def _sum_messages(columns: pa.Schema, rows: pa.RecordBatch, span: int) -> pa.RecordBatch:
    """Add up messages that are equal in the other columns, as the recording level "sums" does."""
    t = rows.column("t").to_numpy()
    floored = rows.set_column(rows.schema.get_field_index("t"), "t", pa.array(t - t % span))
    wanted = [field.name for field in columns if field.name != "run"]
    alike = [name for name in wanted if name not in _ADDED]
    added = [(name, "sum") for name in wanted if name in _ADDED]
    sums = pa.Table.from_batches([floored]).group_by(alike, use_threads=False).aggregate(added)
    names = [name.removesuffix("_sum") for name in sums.schema.names]
    arrays = [column.combine_chunks() for column in sums.columns]
    return pa.RecordBatch.from_arrays(arrays, names=names)


def _with_run(columns: pa.Schema, run: str, rows: pa.RecordBatch) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [
            pa.repeat(run, rows.num_rows) if field.name == "run" else rows.column(field.name)
            for field in columns
        ],
        schema=columns,
    )


# On Spark.


def map_items(
    spark: SparkSession,
    items: Sequence[Any],
    kind: type[Any],
    work: Callable[[Any], Iterator[pa.RecordBatch]],
    schema: pa.Schema,
) -> DataFrame:
    """The Arrow batches that `work` makes from each item, on the workers; few items per task.

    Spark distributes the items' numbers. The items are sent with the function: as rows of a
    DataFrame they would pass through one more Python process for each task.
    """
    assert all(isinstance(item, kind) for item in items)
    texts = [msgspec.json.encode(item) for item in items]

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        keep_pandas_out()
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from work(msgspec.json.decode(texts[number], type=kind))

    most = max(2 * spark.sparkContext.defaultParallelism, len(items) // 16)
    numbers = spark.range(0, len(items), 1, max(1, min(len(items), most)))
    return numbers.mapInArrow(run, from_arrow_schema(schema))


def table_frame(spark: SparkSession, traces: Sequence[OpenedTrace], name: str) -> DataFrame:
    """All valid rows of a table of these traces, with their run."""
    schema = pa.schema([RUN, *TABLES[name]])

    def rows(group: RowGroup) -> Iterator[pa.RecordBatch]:
        return valid_batches(schema, [group])

    return map_items(spark, list_row_groups(traces, name)[0], RowGroup, rows, schema)


def rejected_counts(spark: SparkSession, traces: Sequence[OpenedTrace]) -> DataFrame:
    """How many rows of which file were rejected, and why; an unreadable part counts as one row."""

    def counts(group: RowGroup) -> Iterator[pa.RecordBatch]:
        for _, reasons in _invalid_rows(group):
            for each in pc.value_counts(reasons).to_pylist():
                row = (group.run, group.table, group.file, each["values"], each["counts"])
                yield pa.RecordBatch.from_arrays(
                    [pa.array([value]) for value in row], schema=REJECTED_COUNTS
                )

    listed = [group for name in TABLES for some in list_row_groups(traces, name) for group in some]
    return query_sql(
        """
        SELECT run, table, file, reason, sum(rows) AS rows
        FROM {counted}
        GROUP BY run, table, file, reason
        """,
        counted=map_items(spark, listed, RowGroup, counts, REJECTED_COUNTS),
    )


# Results.


def write_result(
    frame: DataFrame, out: Path, name: str, runs: Sequence[str], *, small: bool = False
) -> None:
    """Write a result table, run by run. The old one is removed when the new one is complete.

    A `small` one passes through this process: that takes a fraction of the time in which Spark
    begins to write files. The rows are the same, in the same order.
    """
    unfinished = out / f".{name}.unfinished"
    shutil.rmtree(unfinished, ignore_errors=True)
    columns = [column for column in frame.columns if column != "run"]
    frame = frame.select("run", *columns)
    if small:
        rows = frame.coalesce(1).sortWithinPartitions("run", *columns).toArrow()
        _write_by_run(rows, unfinished)
    else:
        ordered = frame.repartition(1).sortWithinPartitions("run", *columns)
        ordered.write.partitionBy("run").parquet(str(unfinished))
    (out / name).mkdir(parents=True, exist_ok=True)
    for run in runs:
        part, place = unfinished / f"run={run}", out / name / f"run={run}"
        shutil.rmtree(place, ignore_errors=True)
        if part.exists():
            part.replace(place)
    shutil.rmtree(unfinished)


def _write_by_run(rows: pa.Table, folder: Path) -> None:
    """Files as Spark would write them: all columns but the run, which names the folder."""
    columns = rows.drop_columns("run")
    folder.mkdir()
    for run in pc.unique(rows.column("run")):
        place = folder / f"run={run}"
        place.mkdir()
        mine = columns.filter(pc.equal(rows.column("run"), run))
        pq.write_table(mine, place / "part-00000.parquet")


def read_result(out: Path, name: str, run: str) -> list[dict[str, Any]]:
    """The rows of a small result table of one run; none if the table is absent."""
    folder = out / name / f"run={run}"
    rows: list[dict[str, Any]] = []
    for file in sorted(folder.glob("*.parquet")) if folder.is_dir() else ():
        rows += pq.ParquetFile(file).read().to_pylist()
    return rows
