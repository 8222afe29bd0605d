"""Traces as a Spark data source, for jobs, streams and notebooks.

    spark.dataSource.register(NearcastSource)
    spark.read.format("nearcast").option("table", "deliveries").load("walk")
    spark.readStream.format("nearcast").option("table", "messages").load("walk")
    rows.write.format("nearcast").option("table", "positions").mode("append").save("imported")

A path is a trace, a folder of traces, or several of them separated by commas. A table has the
columns of `trace.schema`, and in front `run`: the scenario's hash, or the folder's name if the
trace has no scenario of Nearcast. Only valid rows are read; option `rejected` gives the invalid
ones instead, with their reasons. Spark does not tell a Python source which columns a query needs;
`.schema("run string, t bigint")` selects columns and saves carrying the others into the JVM.

Options: `table`; `rejected` (true: the rejected rows); `pushdown` (true: conditions on t and run
skip row groups; it needs `spark.sql.python.filterPushdown.enabled`, without which Spark refuses to
read); `sums` (messages that are equal in all other selected columns are added up per so many
microseconds before they leave the worker); for streams `maxFilesPerTrigger`, and `endMark` (true:
when all runs have ended by themselves there is one more row, without data, with t = END, which
moves every watermark past the last window).
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import (
    BooleanType,
    DataType,
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from nearcast.errors import TraceError
from nearcast.pipeline.spark.storage import (
    ALL_ROWS,
    REJECTED_ROWS,
    RUN,
    RowFilter,
    RowGroup,
    open_traces,
    rejected_batches,
    row_groups_of_files,
    valid_batches,
)
from nearcast.pipeline.writer import TraceWriter, part_name, part_number
from nearcast.storage import AnyPath, list_folder, list_names, locate
from nearcast.trace.reader import files
from nearcast.trace.schema import TABLES
from nearcast.trace.sinks import ROW_GROUP, SCENARIO, SUMMARY

END = 253_402_300_799_000_000  # the last second of the year 9999: after all times of traces
TASK_ROWS = 4 * ROW_GROUP  # a task reads several small row groups

_OPTIONS = ("table", "rejected", "pushdown", "sums", "maxFilesPerTrigger", "endMark")
_SPARK_TYPES: dict[pa.DataType, DataType] = {
    pa.int64(): LongType(),
    pa.float64(): DoubleType(),
    pa.bool_(): BooleanType(),
    pa.string(): StringType(),
}


class NearcastSource(DataSource):
    """The data source `nearcast`: makes the schema, readers, stream readers and writers."""

    @classmethod
    def name(cls) -> str:
        return "nearcast"

    def schema(self) -> StructType:
        options = _parse_options(self.options)
        open_traces(options.paths)  # reports a wrong path now, not in the first query
        return _spark_schema(_columns(options))

    def reader(self, schema: StructType) -> DataSourceReader:
        options = _parse_options(self.options)
        kind = _PushdownReader if options.pushdown else _Reader
        return kind(options, _check_schema(schema, options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        options = _parse_options(self.options)
        return _StreamReader(options, _check_schema(schema, options))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        if overwrite:
            raise TraceError("rows can only be appended to a trace: write with mode('append')")
        return _trace_writer(_parse_options(self.options), schema)


# Options.


class _Options(NamedTuple):
    table: str
    paths: tuple[AnyPath, ...]
    rejected: bool
    pushdown: bool
    sums: int | None
    max_files: int | None
    end_mark: bool


def _parse_options(options: Mapping[str, str]) -> _Options:
    """The options, checked. Their names come in lower case."""
    known = {name.lower() for name in (*_OPTIONS, "path", "paths")}
    unknown = sorted(set(options) - known)
    if unknown:
        raise TraceError(f"option {unknown[0]} is unknown; there are {', '.join(_OPTIONS)}")
    table = options.get("table")
    if table not in TABLES:
        problem = "no table is named" if table is None else f"there is no table {table!r}"
        raise TraceError(f"{problem}: option('table', ...) takes one of {', '.join(TABLES)}")
    parsed = _Options(
        table,
        tuple(_paths(options)),
        _bool_option(options, "rejected"),
        _bool_option(options, "pushdown"),
        _int_option(options, "sums"),
        _int_option(options, "maxFilesPerTrigger"),
        _bool_option(options, "endMark"),
    )
    if parsed.sums is not None and table != "messages":
        raise TraceError(f"option sums is for messages; rows of {table} cannot be added up")
    if parsed.rejected and (parsed.end_mark or parsed.sums is not None):
        raise TraceError("option rejected goes neither with endMark nor with sums")
    return parsed


def _bool_option(options: Mapping[str, str], name: str) -> bool:
    value = options.get(name.lower(), "false").lower()
    if value not in ("true", "false"):
        raise TraceError(f"option {name} must be true or false, not {value!r}")
    return value == "true"


def _int_option(options: Mapping[str, str], name: str) -> int | None:
    value = options.get(name.lower())
    if value is not None and not (value.isdecimal() and int(value)):
        raise TraceError(f"option {name} must be a whole number above 0, not {value!r}")
    return None if value is None else int(value)


def _paths(options: Mapping[str, str]) -> list[AnyPath]:
    """Absolute, because tasks may run elsewhere. A folder may have a comma in its name."""
    if "paths" in options:
        given = msgspec.json.decode(options["paths"], type=list[str])
    else:
        path = options.get("path", "")
        several = "," in path and not locate(path).is_dir()
        given = path.split(",") if several else [path]
    paths = [locate(path.strip()).absolute() for path in given if path.strip()]
    if not paths:
        raise TraceError("no trace is named: load(path) takes its folder")
    return paths


def _columns(options: _Options) -> pa.Schema:
    if options.rejected:
        return REJECTED_ROWS
    return pa.schema([RUN, *TABLES[options.table]])


def _spark_schema(columns: pa.Schema) -> StructType:
    return StructType(
        [StructField(field.name, _SPARK_TYPES[field.type], field.nullable) for field in columns]
    )


def _check_schema(schema: StructType, options: _Options) -> pa.Schema:
    """The columns to return: all, or those of the user's own schema."""
    known = {field.name: field for field in _columns(options)}
    for field in schema:
        if field.name not in known:
            raise TraceError(f"there is no column {field.name} in {options.table}")
        wanted = _SPARK_TYPES[known[field.name].type]
        if field.dataType != wanted:
            raise TraceError(
                f"column {field.name} of {options.table} is {wanted.simpleString()},"
                f" not {field.dataType.simpleString()}"
            )
    return pa.schema([known[field.name].with_nullable(field.nullable) for field in schema])


# Reading.


def _group_into_tasks(groups: Iterable[RowGroup]) -> list[InputPartition]:
    """Neighbouring row groups together, up to TASK_ROWS."""
    tasks: list[list[RowGroup]] = []
    room = 0
    for group in groups:
        if not tasks or group.rows > room:
            tasks.append([])
            room = TASK_ROWS
        tasks[-1].append(group)
        room -= group.rows
    return [InputPartition(task) for task in tasks]


def _read_batches(
    options: _Options, columns: pa.Schema, groups: Iterable[RowGroup]
) -> Iterator[pa.RecordBatch]:
    return (
        rejected_batches(columns, groups)
        if options.rejected
        else valid_batches(columns, groups, options.sums)
    )


class _Reader(DataSourceReader):
    """A table as it is now."""

    def __init__(self, options: _Options, columns: pa.Schema) -> None:
        self.options = options
        self.columns = columns
        self.bounds = ALL_ROWS

    def partitions(self) -> list[InputPartition]:
        table = self.options.table
        return _group_into_tasks(
            group
            for trace in open_traces(self.options.paths)
            for group in row_groups_of_files(
                trace, table, files(locate(trace.path), table), self.bounds
            )
        )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # If there is nothing to read, Spark makes a partition of its own, with None.
        return _read_batches(self.options, self.columns, partition.value or ())


class _PushdownReader(_Reader):
    """Skips row groups. Spark still checks all conditions row by row."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        for condition in filters:
            self.bounds = _narrow(self.bounds, condition)
        return filters


def _narrow(bounds: RowFilter, condition: Filter) -> RowFilter:
    """The bounds, and this condition too, as far as it is about t or run."""
    low, high, runs = bounds
    match condition:
        case GreaterThan(("t",), t) | GreaterThanOrEqual(("t",), t):
            return RowFilter(max(low, t), high, runs)
        case LessThan(("t",), t) | LessThanOrEqual(("t",), t):
            return RowFilter(low, min(high, t), runs)
        case EqualTo(("t",), t):
            return RowFilter(max(low, t), min(high, t), runs)
        case EqualTo(("run",), run):
            return RowFilter(low, high, frozenset([run]) if runs is None else runs & {run})
        case In(("run",), some):
            return RowFilter(low, high, frozenset(some) if runs is None else runs & set(some))
    return bounds


# Streams. An offset is the set of files read so far, for each trace, in a short notation.


def encode_names(names: Iterable[str]) -> str:
    """A set of file names as a text: `0-41/43/other.parquet`.

    Parts are numbered by their writer, so a trace of any length is a range or two. Other names are
    listed in full.
    """
    numbers, others = [], []
    for name in names:
        number = part_number(name)
        if number is None:
            others.append(name)
        else:
            numbers.append(number)
    ranges: list[list[int]] = []
    for number in sorted(numbers):
        if ranges and ranges[-1][-1] == number - 1:
            ranges[-1][1:] = [number]
        else:
            ranges.append([number])
    return "/".join(["-".join(map(str, ends)) for ends in ranges] + sorted(others))


def decode_names(text: str) -> set[str]:
    """The file names that `encode_names` was given."""
    names: set[str] = set()
    for item in filter(None, text.split("/")):
        if item.endswith(".parquet"):
            names.add(item)
        else:
            ends = [int(end) for end in item.split("-")]
            names.update(map(part_name, range(ends[0], ends[-1] + 1)))
    return names


class _FileListing(NamedTuple):
    """The files of a table that there are, as pairs of a trace's path and a name."""

    files: frozenset[tuple[str, str]]
    complete: bool  # all runs have ended by themselves


class _StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A table as it grows. A file never changes once it has its name, and none may be deleted."""

    def __init__(self, options: _Options, columns: pa.Schema) -> None:
        self.options = options
        self.columns = columns
        self.target: _FileListing | None = None

    def initialOffset(self) -> dict[str, str]:  # noqa: N802
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        most = self.options.max_files
        return ReadAllAvailable() if most is None else ReadMaxFiles(most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self.target = _list_files(self.options)

    def latestOffset(self, start: dict[str, str], limit: ReadLimit) -> dict[str, str]:  # noqa: N802
        stock = self.target or _list_files(self.options)
        seen = _files_of(start)
        # Early parts of all traces before later ones, so that times stay close together.
        fresh = sorted(stock.files - seen, key=lambda file: (len(file[1]), file[1], file[0]))
        if isinstance(limit, ReadMaxFiles):
            fresh = fresh[: limit.max_files]
        seen |= frozenset(fresh)
        offset = {root: encode_names(names) for root, names in _names_by_trace(seen).items()}
        if "end" in start or (self.options.end_mark and stock.complete and stock.files <= seen):
            offset["end"] = "true"
        return offset

    def partitions(self, start: dict[str, str], end: dict[str, str]) -> list[InputPartition]:
        groups: list[RowGroup] = []
        for root, names in _names_by_trace(_files_of(end) - _files_of(start)).items():
            folder = locate(root) / self.options.table
            gone = set(names).difference(list_names(folder))
            if gone:
                raise TraceError(f"{folder / min(gone)} was deleted before the stream had read it")
            parts = [folder / name for name in names]
            for trace in open_traces([root]):
                groups += row_groups_of_files(trace, self.options.table, parts)
        tasks = _group_into_tasks(groups)
        ending = "end" in end and "end" not in start
        return [*tasks, InputPartition(None)] if ending else tasks

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if partition.value is None:
            return iter([_end_mark(self.columns)])
        return _read_batches(self.options, self.columns, partition.value)


def _list_files(options: _Options) -> _FileListing:
    roots = [locate(trace.path) for trace in open_traces(options.paths)]
    # Checked first: a run writes its summary after its last file.
    complete = all((root / SUMMARY).exists() for root in roots)
    found = ((str(root), part.name) for root in roots for part in files(root, options.table))
    return _FileListing(frozenset(found), complete)


def _files_of(offset: Mapping[str, str]) -> frozenset[tuple[str, str]]:
    return frozenset(
        (root, name)
        for root, names in offset.items()
        if root != "end"
        for name in decode_names(names)
    )


def _names_by_trace(found: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    names: dict[str, list[str]] = {}
    for root, name in sorted(found):
        names.setdefault(root, []).append(name)
    return names


def _end_mark(columns: pa.Schema) -> pa.RecordBatch:
    nothing = {pa.string(): "", pa.float64(): 0.0, pa.bool_(): False, pa.int64(): 0}
    values = [END if field.name == "t" else nothing[field.type] for field in columns]
    return pa.RecordBatch.from_arrays([pa.repeat(value, 1) for value in values], schema=columns)


# Writing.


def _trace_writer(options: _Options, schema: StructType) -> TraceWriter:
    """A writer for these options, after checking the path and the columns."""
    root, *more = options.paths
    if root.exists() and not root.is_dir():
        raise TraceError(f"{root} is a file; a trace is a folder")
    inside = list_folder(root)
    others = (root / name / SCENARIO for name, is_folder in inside.items() if is_folder)
    if more or (SCENARIO not in inside and any(other.exists() for other in others)):
        raise TraceError(f"rows are written to one trace; {root} is one of several or holds them")
    wanted = {field.name: field for field in TABLES[options.table]}
    faults = [f"column {name} is unknown" for name in schema.names if name not in wanted]
    for name, field in wanted.items():
        kind = _SPARK_TYPES[field.type]
        if name not in schema.names:
            faults += [] if field.nullable else [f"column {name} is missing"]
        elif schema[name].dataType != kind:
            found = schema[name].dataType.simpleString()
            faults.append(f"column {name} is {found}, not {kind.simpleString()}")
    if faults:
        raise TraceError(f"these rows do not fit {options.table}: {'; '.join(faults)}")
    return TraceWriter(root, options.table)
