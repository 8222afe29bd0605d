"""A growing trace as a Spark stream of evaluated time slices.

An offset is a time, not a set of files: all publications before it have had `late` microseconds to
be delivered, and are evaluated. So a batch is a time range, whatever files its rows are in, and its
rows are the sums of `stream_windows`. An offset lies between two windows, so a batch has all rows
of its windows, and nothing needs to be remembered from batch to batch. A snapshot of the interests
in force at some time only saves reading a long trace from its beginning again.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows
from pyspark.sql.types import StructType

from nearcast.errors import TraceError
from nearcast.pipeline.source import END
from nearcast.pipeline.spark.storage import OpenedTrace, RowGroup, open_traces, row_groups_of_files
from nearcast.pipeline.stream.stream_windows import SUM_SCHEMA, StreamSlice, slice_sums
from nearcast.pipeline.truth.partitioning import TracePart, interests_in_force, split_times
from nearcast.pipeline.truth.row_groups import TEXT_TYPE, concat_rows
from nearcast.space.motion import FOREVER
from nearcast.storage import AnyPath, encode_parquet, list_names, locate, write_whole
from nearcast.trace.reader import files
from nearcast.trace.schema import TABLES
from nearcast.trace.sinks import SUMMARY

BATCH_ROWS = 8_000_000  # of all tables, in one batch
MIN_ROWS_PER_TASK = 500_000
ROWS_PER_SNAPSHOT = 1_000_000  # fewer rows of interests are rather read again in every batch
COUNTED_TABLES = ("publications", "deliveries", "messages")


def open_single_trace(path: AnyPath) -> OpenedTrace:
    """The trace at this path; an error if there are several, or if it cannot be followed."""
    opened, *others = open_traces([path])
    if others:
        raise TraceError(f"{path} holds several traces; only one can be followed")
    for whole in row_groups_of_files(opened, "publications", []):
        raise TraceError(f"{whole.file} {whole.fault}")
    return opened


class EvaluatedTraceSource(DataSource):
    """A growing trace as rows of `SUM_SCHEMA`, one time slice after the other.

    Options: `begin` (where windows begin), `span` (of a window), `late`, all in microseconds;
    `tasks` (at once), `keep` (a folder for snapshots).
    """

    @classmethod
    def name(cls) -> str:
        return "nearcast-evaluated"

    def schema(self) -> StructType:
        return from_arrow_schema(SUM_SCHEMA)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802, ARG002
        return EvaluatedTraceReader(self.options)


class EvaluatedTraceReader(DataSourceStreamReader):
    """An offset is the time before which everything has been evaluated."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.trace, self.keep = locate(options["path"]), locate(options["keep"])
        self.begin, self.span, self.late, self.tasks = (
            int(options[name]) for name in ("begin", "span", "late", "tasks")
        )
        # By file, which never changes once it has its name.
        self.footers: dict[str, list[RowGroup]] = {}
        self.others_before = 0

    @cached_property
    def opened(self) -> OpenedTrace:
        return open_single_trace(self.trace)

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"t": self.begin}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(BATCH_ROWS)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        begin = start["t"]
        complete = (self.trace / SUMMARY).exists()  # checked first, because it is written last
        until = END if complete else self.complete_until() - self.late
        if isinstance(limit, ReadMaxRows):
            enough = self.offset_after_rows(begin, limit.max_rows)
            until = min(until, max(begin + self.span, enough))
        whole = until if until == END else until - until % self.span
        return {"t": max(begin, whole)}

    def complete_until(self) -> int:
        """The time up to which all rows are there, if none is late.

        A recorder's flush writes one file per table, that of deliveries last, so the time of the
        newest delivery can be trusted. Without deliveries, the newest rows that were there at the
        last call count: the other files of their flush have been written since.
        """
        publications, messages = (self.latest_time(n) for n in ("publications", "messages"))
        before, self.others_before = self.others_before, max(publications, messages)
        return max(before, self.latest_time("deliveries"))

    def latest_time(self, table: str) -> int:
        times = (group.last for group in self.groups(table))
        return max((last for last in times if last < FOREVER), default=0)

    def groups(self, table: str) -> list[RowGroup]:
        """The row groups that are there now; a file without a valid footer has none."""
        fresh = [part for part in files(self.trace, table) if str(part) not in self.footers]
        if fresh:
            found: dict[str, list[RowGroup]] = {str(part): [] for part in fresh}
            for group in row_groups_of_files(self.opened, table, fresh):
                if not group.fault:
                    found[group.file].append(group)
            self.footers |= found
        return [group for some in self.footers.values() for group in some if group.table == table]

    def offset_after_rows(self, begin: int, rows: int) -> int:
        """A time such that there are about `rows` rows from `begin` until then."""
        fresh = (p for name in COUNTED_TABLES for p in self.groups(name) if p.last > begin)
        for group in sorted(fresh, key=lambda group: group.last):
            rows -= group.rows
            if rows <= 0:
                return group.last
        return END

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """The time range from start to end, cut into slices for parallel tasks."""
        begin, until = start["t"], end["t"]
        if begin == until:
            return []
        publications, deliveries, messages = (
            overlapping(
                self.groups(name), begin, until + (self.late if name == "deliveries" else 0)
            )
            for name in COUNTED_TABLES
        )
        notes = overlapping(self.groups("notes"), begin, until + self.late)
        everything = [*publications, *deliveries, *messages]
        count = max(
            1, min(self.tasks, sum(group.rows for group in everything) // MIN_ROWS_PER_TASK)
        )
        interests = interests_since_snapshot(self.keep, self.groups("interests"), begin)
        return [
            InputPartition(
                StreamSlice(
                    TracePart(
                        self.opened.run,
                        low,
                        high,
                        overlapping(publications, low, high),
                        overlapping(interests, -FOREVER, high),
                    ),
                    overlapping(deliveries, low, high + self.late),
                    overlapping(notes, low, high + self.late),
                    overlapping(messages, low, high),
                    self.late,
                    self.span,
                )
            )
            for first, last in split_times(everything, count)
            if (low := max(first, begin)) < (high := min(last, until))
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return slice_sums(partition.value)

    def commit(self, end: dict[str, int]) -> None:
        if end["t"] < END:
            save_snapshot(self.keep, self.groups("interests"), end["t"])


def overlapping(groups: Sequence[RowGroup], begin: int, end: int) -> list[RowGroup]:
    """The row groups that may have rows from begin to end, both included."""
    return [group for group in groups if group.first <= end and group.last >= begin]


# Snapshots: the interests in force at some time, in a Parquet file that is named by the time.


def interests_since_snapshot(
    keep: AnyPath, interests: Sequence[RowGroup], begin: int
) -> list[RowGroup]:
    """Row groups with all interests in force from `begin` on: a snapshot and what came later.

    Rows of the snapshot's own time are among the later ones.
    """
    moment = max((m for m in map(snapshot_time, snapshot_files(keep)) if m <= begin), default=None)
    if moment is None or not interests:
        return list(interests)
    kept = row_groups_of_files(
        OpenedTrace(str(keep), interests[0].run, None), "interests", [snapshot_file(keep, moment)]
    )
    return [*kept, *(group for group in interests if group.last >= moment)]


def save_snapshot(keep: AnyPath, interests: Sequence[RowGroup], moment: int) -> None:
    """Store the interests in force at `moment` if they are costly to find; delete older ones.

    They are in the memory of Spark's driver meanwhile: a row for each subscription that has not
    ended, however long the trace is.
    """
    known = interests_since_snapshot(keep, interests, moment)
    if sum(group.rows for group in known if group.first < moment) < ROWS_PER_SNAPSHOT:
        return
    before = snapshot_files(keep)
    held = interests_in_force(known, moment)
    file = snapshot_file(keep, moment)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(file, encode_parquet(with_all_columns(held)))
    for old in before:
        if old != file:
            old.unlink()


def snapshot_file(keep: AnyPath, moment: int) -> AnyPath:
    return keep / "interests" / f"{moment}.parquet"


def snapshot_files(keep: AnyPath) -> list[AnyPath]:
    folder = keep / "interests"
    return [folder / name for name in list_names(folder) if name[0].isdecimal()]


def snapshot_time(file: AnyPath) -> int:
    return int(file.stem)


def with_all_columns(interests: pa.Table) -> pa.Table:
    """With all columns of the schema, also those that hold only defaults."""
    schema = TABLES["interests"]
    typed = pa.schema([(f.name, TEXT_TYPE if f.type == pa.string() else f.type) for f in schema])
    rows = concat_rows([interests, typed.empty_table()], "interests")
    return rows.select(schema.names).cast(schema)
