"""Fence events as files, and how many there are.

Workers write them. A single file has all events in order of time and comes from one task; a folder
has a Parquet file for each task, so that there may be more events than one task could sort.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any, TypeAlias

import msgspec
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from msgspec import Struct
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from nearcast.errors import TraceError
from nearcast.extras import keep_pandas_out
from nearcast.pipeline.spark.sql import query_sql
from nearcast.pipeline.spark.storage import JOB_ENDED, NOT_SHARED
from nearcast.space.motion import SECOND
from nearcast.storage import AnyPath, list_names, write_whole, writing_whole

BUSIEST = 10  # fences that are counted one by one
ORDER = ("t", "entity", "fence", "kind")
TIMES = ("t", "fix_t", "t_out")
COUNTS = pa.schema([("fence", pa.string()), ("kind", pa.string()), ("events", pa.int64())])

Batches: TypeAlias = Iterable[pa.RecordBatch]


class EventCounts(Struct, frozen=True):
    """How many events were written: of each kind, and at the fences that have the most."""

    kinds: dict[str, int]
    busiest: dict[str, int]


def with_times(events: DataFrame, calendar: bool) -> DataFrame:
    """Microseconds as timestamps, or without a calendar as seconds."""
    shown = "timestamp_micros({0})" if calendar else f"{{0}} / {SECOND}D"
    return events.selectExpr(
        *(f"{shown.format(name)} AS {name}" if name in TIMES else name for name in events.columns)
    )


def write_events(events: DataFrame, out: AnyPath) -> EventCounts:
    """Write all events to a file, whose name says the form, or to a folder."""
    single = out.suffix.lower() in WRITERS
    if single:
        events = events.repartition(1)
    else:
        out.mkdir(parents=True, exist_ok=True)
    schema = to_arrow_schema(events.schema, timezone="UTC")

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        keep_pandas_out()
        context = TaskContext.get()
        number = 0 if context is None else context.partitionId()
        counts = Counter[tuple[str, str]]()
        write_file(out if single else part_file(out, number), schema, counted(batches, counts))
        rows = [(*key, count) for key, count in counts.items()]
        columns = zip(*rows, strict=True) if rows else ([], [], [])
        yield pa.RecordBatch.from_arrays(
            [pa.array(c, f.type) for c, f in zip(columns, COUNTS, strict=True)], schema=COUNTS
        )

    counts = event_counts(
        events.sortWithinPartitions(*ORDER).mapInArrow(write, from_arrow_schema(COUNTS))
    )
    there = out.exists() if single else any(n.endswith(".parquet") for n in list_names(out))
    if counts.kinds and not there:
        raise TraceError(f"{out} was written by a worker, but is not here: {NOT_SHARED}")
    if not there:
        write_file(out if single else part_file(out, 0), schema, [schema.empty_table()])
    if not single:
        write_whole(out / JOB_ENDED, b"")
    return counts


def part_file(folder: AnyPath, number: int) -> AnyPath:
    return folder / f"part-{number:05}.parquet"


def event_counts(counted: DataFrame) -> EventCounts:
    """Of each kind, and of the busiest fences, in one query."""
    rows = query_sql(
        """
        SELECT kind, fence, sum(events) AS events
        FROM {counted}
        GROUP BY GROUPING SETS ((kind), (fence))
        ORDER BY kind IS NULL, events DESC, kind, fence
        LIMIT {most}
        """,
        counted=counted,
        most=6 + BUSIEST,
    ).collect()
    kinds = {row.kind: row.events for row in rows if row.kind is not None}
    fences = [(row.fence, row.events) for row in rows if row.kind is None]
    return EventCounts(kinds, dict(fences[:BUSIEST]))


# On workers.


def counted(batches: Batches, counts: Counter[tuple[str, str]]) -> Iterator[pa.RecordBatch]:
    """The same batches, whose events are counted by fence and kind as they pass."""
    for batch in batches:
        if not len(batch):
            continue
        groups = (
            pa.Table.from_batches([batch])
            .group_by(["fence", "kind"])
            .aggregate([([], "count_all")])
        )
        for row in groups.to_pylist():
            counts[row["fence"], row["kind"]] += row["count_all"]
        yield batch


def write_file(file: AnyPath, schema: pa.Schema, batches: Batches) -> None:
    """Write a file that is complete or absent; none at all without batches."""
    rest = iter(batches)
    first = next(rest, None)
    if first is not None:
        with writing_whole(file) as output:
            WRITERS.get(file.suffix.lower(), write_parquet)(output, schema, chain([first], rest))


def write_parquet(output: Any, schema: pa.Schema, batches: Batches) -> None:
    with pq.ParquetWriter(output, schema, compression="zstd") as writer:
        for batch in batches:
            writer.write(batch)


def write_csv(output: Any, schema: pa.Schema, batches: Batches) -> None:
    with pyarrow.csv.CSVWriter(output, schema) as writer:
        for batch in batches:
            writer.write(batch)


def write_geojson(output: Any, schema: pa.Schema, batches: Batches) -> None:
    """A feature for each event: the point at which it happened."""
    places = ("lon", "lat") if "lon" in schema.names else ("x", "y")
    output.write(b'{"type":"FeatureCollection","features":[')
    comma = b"\n"
    for batch in batches:
        for row in batch.to_pylist():
            point = {"type": "Point", "coordinates": [row.pop(name) for name in places]}
            row = {name: value for name, value in row.items() if value is not None}
            feature = {"type": "Feature", "geometry": point, "properties": row}
            output.write(comma + msgspec.json.encode(feature))
            comma = b",\n"
    output.write(b"\n]}\n")


WRITERS: dict[str, Callable[[Any, pa.Schema, Batches], None]] = {
    ".parquet": write_parquet,
    ".csv": write_csv,
    ".geojson": write_geojson,
}
