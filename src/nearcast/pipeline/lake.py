"""Traces in, results out: where the pipeline reads and writes.

A trace is listed by its row groups; Spark carries that list, and workers read the row groups with
pyarrow, set broken rows aside by the rules of `trace.rules` and hand on Arrow batches. Results are
Parquet, partitioned by run: complete or absent, and replaced, never doubled.
"""

import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec import Struct
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from nearcast.scenario import Scenario, from_json
from nearcast.space.motion import FOREVER
from nearcast.trace.reader import files, missing_or_mistyped
from nearcast.trace.rules import rejected
from nearcast.trace.schema import TABLES, TraceError
from nearcast.trace.sinks import SCENARIO, in_a_line

RUN = pa.field("run", pa.string(), nullable=False)
REJECTED = pa.schema(
    [
        RUN,
        pa.field("table", pa.string(), nullable=False),
        pa.field("file", pa.string(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("rows", pa.int64(), nullable=False),
    ]
)


class Trace(Struct, frozen=True):
    path: str
    run: str
    scenario: Scenario | None  # None: not one of ours, or unreadable


class Piece(Struct, frozen=True):
    """One row group of one file, and the times it spans (all times, without statistics)."""

    run: str
    table: str
    file: str
    row_group: int
    rows: int
    first: int
    last: int


class Unreadable(Struct, frozen=True):
    """A file that could not be used, and why. The rest is analysed all the same."""

    run: str
    table: str
    file: str
    reason: str


def open_traces(paths: Iterable[str | Path]) -> list[Trace]:
    """The traces at these paths; a path may also be a folder of traces."""
    found: dict[str, Trace] = {}
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


def rows(traces: Sequence[Trace]) -> int:
    """How much there is to count, by what the files' footers say."""
    return sum(piece.rows for table in TABLES for piece in pieces(traces, table)[0])


def _open(folder: Path) -> Trace:
    try:
        scenario = from_json((folder / SCENARIO).read_bytes())
    except (OSError, ValueError):
        # The name becomes part of a path in which Spark would escape other characters.
        return Trace(str(folder), re.sub(r"[^\w.-]", "-", folder.resolve().name), None)
    return Trace(str(folder), scenario.run, scenario)


def pieces(traces: Sequence[Trace], table: str) -> tuple[list[Piece], list[Unreadable]]:
    """All row groups of a table, and the files that cannot be read or have other columns."""
    good: list[Piece] = []
    bad: list[Unreadable] = []
    for trace in traces:
        for file in files(Path(trace.path), table):
            try:
                footer = pq.ParquetFile(file).metadata
                wrong = missing_or_mistyped(footer.schema.to_arrow_schema(), TABLES[table])
            except (OSError, pa.ArrowException) as error:
                bad.append(Unreadable(trace.run, table, str(file), in_a_line(error)))
                continue
            if wrong:
                bad.append(Unreadable(trace.run, table, str(file), "; ".join(wrong)))
                continue
            for group in range(footer.num_row_groups):
                good.append(_piece(trace.run, table, str(file), group, footer.row_group(group)))
    return good, bad


def _piece(run: str, table: str, file: str, group: int, about: Any) -> Piece:
    first, last = -FOREVER, FOREVER
    for i in range(about.num_columns):
        column = about.column(i)
        if column.path_in_schema == "t" and column.statistics and column.statistics.has_min_max:
            first, last = column.statistics.min, column.statistics.max
    return Piece(run, table, file, group, about.num_rows, first, last)


def read_piece(piece: Piece) -> tuple[pa.Table, pa.Array]:
    """The rows of a row group in the table's own types, and why each is broken (null: sound)."""
    schema = TABLES[piece.table]
    found = pq.ParquetFile(piece.file).read_row_group(piece.row_group, schema.names)
    wanted = pa.schema([field.with_nullable(True) for field in schema])
    rows = found.cast(wanted).combine_chunks()
    return rows, rejected(piece.table, rows)


def sound_rows(piece: Piece) -> pa.Table:
    rows, reasons = read_piece(piece)
    return rows if reasons.null_count == len(reasons) else rows.filter(reasons.is_null())


def spread(spark: SparkSession, items: Sequence[Struct], kind: type[Struct]) -> DataFrame:
    """A list of small values as a DataFrame of one column, one partition per few of them."""
    import msgspec

    if not items:
        return spark.createDataFrame([], "item string")
    most = max(2 * spark.sparkContext.defaultParallelism, len(items) // 16)
    assert all(isinstance(item, kind) for item in items)
    texts = [(msgspec.json.encode(item).decode(),) for item in items]
    rdd = spark.sparkContext.parallelize(texts, min(len(texts), most))
    return spark.createDataFrame(rdd, "item string")


def mapped(
    spark: SparkSession,
    items: Sequence[Any],
    kind: type[Any],
    work: Callable[[Any], Iterator[pa.RecordBatch]],
    schema: pa.Schema,
) -> DataFrame:
    """Let workers turn each item into Arrow batches."""
    import msgspec

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for text in batch.column(0).to_pylist():
                yield from work(msgspec.json.decode(text, type=kind))

    frame = spread(spark, items, kind)
    return frame.mapInArrow(run, from_arrow_schema(schema))


def table(spark: SparkSession, traces: Sequence[Trace], name: str) -> DataFrame:
    """All sound rows of a table of these traces, with their run."""
    schema = pa.schema([RUN, *TABLES[name]])

    def rows(piece: Piece) -> Iterator[pa.RecordBatch]:
        sound = sound_rows(piece)
        named = sound.add_column(0, RUN, pa.array([piece.run] * len(sound), pa.string()))
        yield from named.to_batches(100_000)

    return mapped(spark, pieces(traces, name)[0], Piece, rows, schema)


def rejects(spark: SparkSession, traces: Sequence[Trace]) -> DataFrame:
    """How many rows of which file were set aside, and why; unreadable files count all as one."""
    good: list[Piece] = []
    bad: list[Unreadable] = []
    for name in TABLES:
        more, worse = pieces(traces, name)
        good += more
        bad += worse

    def reasons(piece: Piece) -> Iterator[pa.RecordBatch]:
        _, why = read_piece(piece)
        counted = pc.value_counts(why.drop_null())
        for each in counted.to_pylist():
            yield pa.RecordBatch.from_pylist(
                [
                    {
                        "run": piece.run, "table": piece.table, "file": piece.file,
                        "reason": each["values"], "rows": each["counts"],
                    }
                ],
                REJECTED,
            )  # fmt: skip

    found = mapped(spark, good, Piece, reasons, REJECTED)
    if bad:
        rows = [(b.run, b.table, b.file, b.reason, 1) for b in bad]
        found = found.unionAll(spark.createDataFrame(rows, found.schema))
    return (
        found.groupBy("run", "table", "file", "reason")
        .agg({"rows": "sum"})
        .select("run", "table", "file", "reason", "`sum(rows)`")
        .toDF("run", "table", "file", "reason", "rows")
    )


def write(frame: DataFrame, out: Path, name: str, runs: Sequence[str]) -> None:
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


def result(out: Path, name: str, run: str) -> list[dict[str, Any]]:
    """The rows of a small result table of one run; none if it is absent."""
    folder = out / name / f"run={run}"
    rows: list[dict[str, Any]] = []
    for file in sorted(folder.glob("*.parquet")) if folder.is_dir() else ():
        rows += pq.ParquetFile(file).read().to_pylist()
    return rows
