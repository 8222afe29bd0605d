"""Where the pipeline reads traces and writes results.

The driver lists the row groups of a trace; Spark distributes the list, and workers read the row
groups with pyarrow. Invalid rows (by the rules of `trace.rules`) and unreadable files are rejected
with a reason; the rest is read all the same. Results are Parquet, partitioned by run. A file of a
result is either complete or absent, and a new one replaces the old one.
"""

import errno
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple
from uuid import uuid4

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from nearcast.errors import StorageError, TraceError
from nearcast.extras import keep_pandas_out
from nearcast.pipeline.spark.session import parallel_tasks
from nearcast.pipeline.spark.sql import query_sql
from nearcast.scenario import Scenario, from_json
from nearcast.space.motion import FOREVER
from nearcast.storage import (
    AnyPath,
    PathInput,
    encode_parquet,
    list_folder,
    list_names,
    locate,
    map_files,
    open_parquet,
    remove_tree,
    write_whole,
)
from nearcast.trace.reader import complete_columns, files, missing_or_mistyped, version_fault
from nearcast.trace.rules import RULES, rejected
from nearcast.trace.schema import TABLES
from nearcast.trace.sinks import ROW_GROUP, SCENARIO, holds_trace, in_a_line

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
RESULT_FILE = "part-00000.parquet"
# A job has ended, perhaps without rows; object stores have no empty folders.
JOB_ENDED = "_SUCCESS"
NOT_SHARED = (
    "it was deleted meanwhile, or is on another machine; on a cluster, traces and results are in a"
    " store (s3://…), or in a folder that all machines share"
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


def open_traces(paths: Iterable[PathInput]) -> list[OpenedTrace]:
    """The traces at these paths; a path may also be a folder of traces."""
    found: dict[str, OpenedTrace] = {}
    for path in map(locate, paths):
        here = [path] if holds_trace(path) else _traces_in(path)
        if not here:
            if not path.is_dir():
                raise TraceError(f"there is no trace at {path}")
            raise TraceError(f"{path} holds neither a trace nor folders that do")
        for folder in here:
            trace = _open(folder)
            if trace.run in found and found[trace.run].path != trace.path:
                raise TraceError(
                    f"{found[trace.run].path} and {trace.path} are traces of the same run"
                )
            found[trace.run] = trace
    return list(found.values())


def _traces_in(folder: AnyPath) -> list[AnyPath]:
    """A trace that is still being written has a name with a dot in front."""
    names = [n for n, is_folder in list_folder(folder).items() if is_folder and n[0] != "."]
    return [folder / name for name in names if holds_trace(folder / name)]


def count_rows(traces: Sequence[OpenedTrace]) -> int:
    """The number of rows in all tables, according to the files' footers."""
    return sum(group.rows for table in TABLES for group in list_row_groups(traces, table)[0])


def _open(folder: AnyPath) -> OpenedTrace:
    try:
        scenario = from_json((folder / SCENARIO).read_bytes())
    except StorageError:
        raise
    except (OSError, ValueError):
        # The run is part of a path, in which Spark would escape other characters.
        return OpenedTrace(str(folder), re.sub(r"[^\w.-]", "-", folder.resolve().name), None)
    return OpenedTrace(str(folder), scenario.run, scenario)


# Row groups.


def list_row_groups(
    traces: Sequence[OpenedTrace], table: str
) -> tuple[list[RowGroup], list[RowGroup]]:
    """All row groups of a table, and the files that cannot be read or have other columns.

    This is all that the driver knows of a trace's rows: a few hundred bytes for each row group.
    """
    found = [
        group
        for trace in traces
        for group in row_groups_of_files(trace, table, files(locate(trace.path), table))
    ]
    return [group for group in found if not group.fault], [group for group in found if group.fault]


def row_groups_of_files(
    trace: OpenedTrace, table: str, parts: Iterable[AnyPath], bounds: RowFilter = ALL_ROWS
) -> Iterator[RowGroup]:
    """The row groups of these files that may hold wanted rows; unusable files are included."""
    run, scenario = trace.run, locate(trace.path) / SCENARIO
    if bounds.runs is not None and run not in bounds.runs:
        return
    if strange := _foreign_version(scenario):
        yield RowGroup(run, table, str(scenario), 0, 0, -FOREVER, FOREVER, fault=strange)
        return
    for file, footer, fault in _read_footers(table, list(parts)):
        if fault:
            yield RowGroup(run, table, str(file), 0, 0, -FOREVER, FOREVER, fault=fault)
            continue
        row = 0
        for number in range(footer.num_row_groups):
            metadata = footer.row_group(number)
            first, last = _time_range(metadata)
            if first <= bounds.high and last >= bounds.low:
                yield RowGroup(run, table, str(file), number, metadata.num_rows, first, last, row)
            row += metadata.num_rows


def _read_footers(table: str, parts: Sequence[AnyPath]) -> Iterator[tuple[AnyPath, Any, str]]:
    """Each file with its footer, or with the reason why it cannot be used."""

    def read(file: AnyPath) -> tuple[AnyPath, Any, str]:
        try:
            with open_parquet(file) as parquet:
                faults = missing_or_mistyped(parquet.schema_arrow, TABLES[table])
                return file, parquet.metadata, "; ".join(faults)
        except (OSError, ValueError, pa.ArrowException) as error:
            return file, None, _fault(error)

    return map_files(read, parts)


def _time_range(metadata: Any) -> tuple[int, int]:
    for place in range(metadata.num_columns):
        column = metadata.column(place)
        if column.path_in_schema == "t" and column.statistics and column.statistics.has_min_max:
            return column.statistics.min, column.statistics.max
    return -FOREVER, FOREVER


def _foreign_version(scenario: AnyPath) -> str:
    """Why this trace cannot be read, if its scenario has another schema version; else ""."""
    try:
        content = msgspec.json.decode(scenario.read_bytes(), type=dict[str, Any])
    except StorageError:
        raise
    except (OSError, ValueError, RecursionError):
        return ""
    return version_fault(content)


def _fault(error: Exception) -> str:
    """What is wrong with the file. An error of the machine may be temporary, and is raised."""
    passing = isinstance(error, OSError) and error.errno not in (None, errno.EACCES, errno.EISDIR)
    if passing or isinstance(error, StorageError | MemoryError):
        raise error
    return f"cannot be read: {in_a_line(error)}"


def _batches(group: RowGroup, faults: list[str]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Batches, each with the number of its first row, up to a fault, which is added to `faults`."""
    schema, row = TABLES[group.table], group.row
    if group.fault:
        faults.append(group.fault)
        return
    try:
        with open_parquet(locate(group.file), page_checksum_verification=True) as parquet:
            for rows in parquet.iter_batches(ROW_GROUP, [group.row_group], schema.names):
                rows = complete_columns(rows, schema)
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
            name = locate(group.file).name
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
    DataFrame they would pass through one more Python process for each task. There is an item for
    each row group or part of a trace, a quarter of a kilobyte for up to ROW_GROUP rows.
    """
    assert all(isinstance(item, kind) for item in items)
    texts = [msgspec.json.encode(item) for item in items]

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        keep_pandas_out()
        for batch in batches:
            for number in batch.column(0).to_pylist():
                try:
                    yield from work(msgspec.json.decode(texts[number], type=kind))
                except FileNotFoundError as why:
                    raise TraceError(f"{in_a_line(why)}: {NOT_SHARED}") from None

    most = max(2 * parallel_tasks(spark), len(items) // 16)
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
    frame: DataFrame, out: AnyPath, name: str, runs: Sequence[str], *, small: bool = False
) -> None:
    """Write a result table, one file for each run, which replaces that of an earlier analysis.

    Workers write the files themselves: Spark would need a library of its own for each kind of
    store; only the names of runs come here. A `small` table, of traces with fewer than LEAN_ROWS
    rows, passes through this process instead: that takes a fraction of the time in which Spark
    begins a job. The rows are the same, in the same order.
    """
    folder = out / name
    columns = [column for column in frame.columns if column != "run"]
    frame = frame.select("run", *columns)

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for run in write_runs(batches, folder):
            yield pa.record_batch({"run": [run]})

    if small:
        rows = frame.coalesce(1).sortWithinPartitions("run", *columns).toArrow()
        written = set(write_runs(rows.to_batches(), folder))
    else:
        ordered = frame.repartition(1).sortWithinPartitions("run", *columns)
        written = {row.run for row in ordered.mapInArrow(write, "run string").collect()}
        for run in written:
            if not (file := folder / f"run={run}" / RESULT_FILE).exists():
                raise TraceError(f"{file} was written by a worker, but is not here: {NOT_SHARED}")
    for run in runs:
        if run not in written:
            remove_tree(folder / f"run={run}")
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / JOB_ENDED, b"")


def write_runs(batches: Iterable[pa.RecordBatch], folder: AnyPath) -> Iterator[str]:
    """Write a file for each run, of rows that come run by run; give the runs.

    A file has the same name and content whichever attempt at the task writes it.
    """
    pieces = (
        (run, batch.filter(pc.equal(batch.column("run"), run)).drop_columns("run"))
        for batch in batches
        for run in pc.unique(batch.column("run")).to_pylist()
    )
    for run, rows in groupby(pieces, key=itemgetter(0)):
        place = folder / f"run={run}"
        place.mkdir(parents=True, exist_ok=True)
        for name in list_names(place):  # of earlier versions
            if name != RESULT_FILE and name[0] != ".":
                (place / name).unlink(missing_ok=True)
        whole = pa.Table.from_batches([piece for _, piece in rows])
        write_whole(place / RESULT_FILE, encode_parquet(whole), attempt=uuid4().hex)
        yield run


def read_result(out: AnyPath, name: str, run: str) -> list[dict[str, Any]]:
    """The rows of a small result table of one run; none if the table is absent.

    Small is what has one row (totals), or a row for each reason to reject rows of a file.
    """
    folder = out / name / f"run={run}"
    rows: list[dict[str, Any]] = []
    for file in list_names(folder):
        if file.endswith(".parquet") and file[0] not in "._":
            with open_parquet(folder / file) as parquet:
                rows += parquet.read().to_pylist()
    return rows
