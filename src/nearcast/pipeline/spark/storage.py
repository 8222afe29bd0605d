"""Traces in, results out: where the pipeline reads and writes.

A trace is listed by its row groups; Spark carries that list, and workers read the row groups with
pyarrow. Sound rows go on; broken rows and files that cannot be read are set aside with their
reasons, by the rules of `trace.rules`, and never keep the rest from being read. Results are
Parquet, partitioned by run: complete or absent, and replaced, never doubled.
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
_ADDED = ("bytes", "copies")  # of messages: what sums add up


class TraceFolder(Struct, frozen=True):
    path: str
    run: str
    scenario: Scenario | None  # None: not one of ours, or unreadable


class RowGroup(Struct, frozen=True):
    """One row group of one file, and the times it spans (all times, without statistics).

    Or, if there is a fault, a file that cannot be used. The rest is analysed all the same.
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
    """Which rows are wanted: times from low to high, and some runs or (None) all."""

    low: float = -FOREVER
    high: float = FOREVER
    runs: frozenset[str] | None = None


ALL_ROWS = RowFilter()


def open_traces(paths: Iterable[str | Path]) -> list[TraceFolder]:
    """The traces at these paths; a path may also be a folder of traces."""
    found: dict[str, TraceFolder] = {}
    for path in map(Path, paths):
        if not path.is_dir():
            raise TraceError(f"there is no trace at {path}")
        # A name with a dot in front is that of a trace which somebody is still writing.
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


def count_rows(traces: Sequence[TraceFolder]) -> int:
    """How much there is to count, by what the files' footers say."""
    return sum(piece.rows for table in TABLES for piece in list_row_groups(traces, table)[0])


def _open(folder: Path) -> TraceFolder:
    try:
        scenario = from_json((folder / SCENARIO).read_bytes())
    except (OSError, ValueError):
        # The name becomes part of a path in which Spark would escape other characters.
        return TraceFolder(str(folder), re.sub(r"[^\w.-]", "-", folder.resolve().name), None)
    return TraceFolder(str(folder), scenario.run, scenario)


# Row groups.


def list_row_groups(
    traces: Sequence[TraceFolder], table: str
) -> tuple[list[RowGroup], list[RowGroup]]:
    """All row groups of a table, and the files that cannot be read or have other columns."""
    found = [
        piece
        for trace in traces
        for piece in row_groups_of_files(trace, table, files(Path(trace.path), table))
    ]
    return [piece for piece in found if not piece.fault], [piece for piece in found if piece.fault]


def row_groups_of_files(
    trace: TraceFolder, table: str, parts: Iterable[Path], bounds: RowFilter = ALL_ROWS
) -> Iterator[RowGroup]:
    """The row groups of these files of a table that may hold wanted rows; faults among them."""
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
            group = footer.row_group(number)
            first, last = _time_range(group)
            if first <= bounds.high and last >= bounds.low:
                yield RowGroup(run, table, str(file), number, group.num_rows, first, last, row)
            row += group.num_rows


def _time_range(group: Any) -> tuple[int, int]:
    for place in range(group.num_columns):
        column = group.column(place)
        if column.path_in_schema == "t" and column.statistics and column.statistics.has_min_max:
            return column.statistics.min, column.statistics.max
    return -FOREVER, FOREVER


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


def _batches(piece: RowGroup, faults: list[str]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Rows with the number of the first of them, until a fault, which is added to the faults."""
    schema, row = TABLES[piece.table], piece.row
    if piece.fault:
        faults.append(piece.fault)
        return
    try:
        with pq.ParquetFile(piece.file, page_checksum_verification=True) as parquet:
            for rows in parquet.iter_batches(ROW_GROUP, [piece.row_group], schema.names):
                columns = [rows.column(field.name).cast(field.type) for field in schema]
                for column in columns:
                    if column.type == pa.string():
                        column.validate(full=True)  # damaged texts show themselves only here
                yield row, pa.RecordBatch.from_arrays(columns, names=schema.names)
                row += rows.num_rows
    except (OSError, ValueError, pa.ArrowException) as error:
        end = piece.row + piece.rows - 1
        faults.append(f"rows {row} to {end}: {_fault(error)}")


def _all_valid(table: str, rows: pa.RecordBatch) -> bool:
    """Nearly always so, and asked in a fraction of the time that giving reasons takes."""
    return not any(rule.broken(rows).true_count for rule in RULES[table])


def _valid_batches(piece: RowGroup) -> Iterator[pa.RecordBatch]:
    for _, rows in _batches(piece, []):
        whole = _all_valid(piece.table, rows)
        yield rows if whole else rows.filter(rejected(piece.table, rows).is_null())


def valid_rows(piece: RowGroup) -> pa.Table:
    wanted = pa.schema([field.with_nullable(True) for field in TABLES[piece.table]])
    return pa.Table.from_batches(_valid_batches(piece), wanted).combine_chunks()


def valid_batches(
    columns: pa.Schema, some: Iterable[RowGroup], sums: int | None = None
) -> Iterator[pa.RecordBatch]:
    """These columns of the sound rows; or their sums, for rows alike in so many microseconds."""
    for piece in some:
        for rows in _valid_batches(piece):
            given = rows if sums is None else _sum_messages(columns, rows, sums)
            yield _with_run(columns, piece.run, given)


def rejected_batches(columns: pa.Schema, some: Iterable[RowGroup]) -> Iterator[pa.RecordBatch]:
    """These columns of `SET_ASIDE`, for the rows and files that `valid_batches` leaves out."""
    for piece in some:
        for numbers, reasons in _invalid_rows(piece):
            name = Path(piece.file).name
            about = {
                "table": pa.repeat(piece.table, len(numbers)),
                "file": pa.repeat(
                    name if name == SCENARIO else f"{piece.table}/{name}", len(numbers)
                ),
                "row": numbers,
                "reason": reasons,
            }
            yield _with_run(columns, piece.run, pa.record_batch(about))


def _invalid_rows(piece: RowGroup) -> Iterator[tuple[pa.Array, pa.Array]]:
    """The numbers of broken rows (null: not about one row), and the reason for each."""
    faults: list[str] = []
    for row, rows in _batches(piece, faults):
        if not _all_valid(piece.table, rows):
            reasons = rejected(piece.table, rows)
            numbers = pa.array(range(row, row + rows.num_rows), pa.int64())
            yield numbers.filter(reasons.is_valid()), reasons.drop_null()
    if faults:
        yield pa.nulls(1, pa.int64()), pa.array(faults)


def _sum_messages(columns: pa.Schema, rows: pa.RecordBatch, span: int) -> pa.RecordBatch:
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


def _with_run(columns: pa.Schema, run: str, rows: pa.RecordBatch) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [
            pa.repeat(run, rows.num_rows) if field.name == "run" else rows.column(field.name)
            for field in columns
        ],
        schema=columns,
    )


# On Spark.


def distribute(spark: SparkSession, items: Sequence[Struct], kind: type[Struct]) -> DataFrame:
    """A list of small values as a DataFrame of one column, one partition per few of them."""
    if not items:
        return spark.createDataFrame([], "item string")
    most = max(2 * spark.sparkContext.defaultParallelism, len(items) // 16)
    assert all(isinstance(item, kind) for item in items)
    texts = [(msgspec.json.encode(item).decode(),) for item in items]
    rdd = spark.sparkContext.parallelize(texts, min(len(texts), most))
    return spark.createDataFrame(rdd, "item string")


def map_items(
    spark: SparkSession,
    items: Sequence[Any],
    kind: type[Any],
    work: Callable[[Any], Iterator[pa.RecordBatch]],
    schema: pa.Schema,
) -> DataFrame:
    """Let workers turn each item into Arrow batches."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for text in batch.column(0).to_pylist():
                yield from work(msgspec.json.decode(text, type=kind))

    frame = distribute(spark, items, kind)
    return frame.mapInArrow(run, from_arrow_schema(schema))


def table_frame(spark: SparkSession, traces: Sequence[TraceFolder], name: str) -> DataFrame:
    """All sound rows of a table of these traces, with their run."""
    schema = pa.schema([RUN, *TABLES[name]])

    def rows(piece: RowGroup) -> Iterator[pa.RecordBatch]:
        return valid_batches(schema, [piece])

    return map_items(spark, list_row_groups(traces, name)[0], RowGroup, rows, schema)


def rejected_counts(spark: SparkSession, traces: Sequence[TraceFolder]) -> DataFrame:
    """How many rows of which file were set aside, and why; what cannot be read counts as one."""

    def counts(piece: RowGroup) -> Iterator[pa.RecordBatch]:
        for _, reasons in _invalid_rows(piece):
            for each in pc.value_counts(reasons).to_pylist():
                row = (piece.run, piece.table, piece.file, each["values"], each["counts"])
                yield pa.RecordBatch.from_arrays(
                    [pa.array([value]) for value in row], schema=REJECTED_COUNTS
                )

    listed = [piece for name in TABLES for some in list_row_groups(traces, name) for piece in some]
    return query_sql(
        """
        SELECT run, table, file, reason, sum(rows) AS rows
        FROM {counted}
        GROUP BY run, table, file, reason
        """,
        counted=map_items(spark, listed, RowGroup, counts, REJECTED_COUNTS),
    )


# Results.


def write_result(frame: DataFrame, out: Path, name: str, runs: Sequence[str]) -> None:
    """Put a result where it belongs, run by run: the old one goes when the new one is complete."""
    unfinished = out / f".{name}.unfinished"
    shutil.rmtree(unfinished, ignore_errors=True)
    columns = [column for column in frame.columns if column != "run"]
    ordered = frame.select("run", *columns).repartition(1).sortWithinPartitions("run", *columns)
    ordered.write.partitionBy("run").parquet(str(unfinished))
    (out / name).mkdir(parents=True, exist_ok=True)
    for run in runs:
        part, place = unfinished / f"run={run}", out / name / f"run={run}"
        shutil.rmtree(place, ignore_errors=True)
        if part.exists():
            part.replace(place)
    shutil.rmtree(unfinished)


def read_result(out: Path, name: str, run: str) -> list[dict[str, Any]]:
    """The rows of a small result table of one run; none if it is absent."""
    folder = out / name / f"run={run}"
    rows: list[dict[str, Any]] = []
    for file in sorted(folder.glob("*.parquet")) if folder.is_dir() else ():
        rows += pq.ParquetFile(file).read().to_pylist()
    return rows
