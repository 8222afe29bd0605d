"""A growing trace as a stream of judged time.

An offset is not a set of files but a moment: before it, all that was published has had its time to
be heard, and is judged. So a batch is a stretch of time, whatever files its rows are in; it comes
as the sums of `stretches`. Nothing is remembered between batches but the interests in force at some
moment, which spares reading a long trace from its beginning.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows
from pyspark.sql.types import StructType

from nearcast.errors import TraceError
from nearcast.pipeline.source import END
from nearcast.pipeline.spark.storage import RowGroup, TraceFolder, open_traces, row_groups_of_files
from nearcast.pipeline.stream.stream_windows import SUM_SCHEMA, StreamSlice, slice_sums
from nearcast.pipeline.truth.partitioning import TracePart, interests_in_force, split_times
from nearcast.pipeline.truth.row_groups import TEXT_TYPE, concat_rows
from nearcast.space.motion import FOREVER
from nearcast.trace.reader import files
from nearcast.trace.schema import TABLES
from nearcast.trace.sinks import SUMMARY

BATCH_ROWS = 8_000_000  # rows that are counted before the next windows are told
MIN_ROWS_PER_TASK = 500_000  # rows for which another task is not worth its while
ROWS_PER_SNAPSHOT = (
    1_000_000  # rows of interests that are read again and again, rather than summed up
)
COUNTED_TABLES = ("publications", "deliveries", "messages")


def open_single_trace(path: Path) -> TraceFolder:
    """The one trace at this path, if it can be followed."""
    opened, *others = open_traces([path])
    if others:
        raise TraceError(f"{path} holds several traces, whose times have nothing in common")
    for whole in row_groups_of_files(opened, "publications", []):
        raise TraceError(f"{whole.file} {whole.fault}")
    return opened


class EvaluatedTraceSource(DataSource):
    """A growing trace as rows of `stretches.SUMS`, stretch after stretch of its time.

    Options: `span` and `late` (microseconds), `tasks` (at once), `keep` (a folder of its own).
    """

    @classmethod
    def name(cls) -> str:
        return "nearcast-judged"

    def schema(self) -> StructType:
        return from_arrow_schema(SUM_SCHEMA)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802, ARG002
        return EvaluatedTraceReader(self.options)


class EvaluatedTraceReader(DataSourceStreamReader):
    """An offset is the moment before which all is judged."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.trace = Path(options["path"])
        self.span, self.late, self.tasks = (int(options[n]) for n in ("span", "late", "tasks"))
        self.keep = Path(options["keep"])
        self.footers: dict[
            Path, list[RowGroup]
        ] = {}  # files never change once they have their names
        self.others_before = 0

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"t": 0}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(BATCH_ROWS)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        complete = (self.trace / SUMMARY).exists()  # asked first: it is written last
        until = END if complete else self.clock() - self.late
        if isinstance(limit, ReadMaxRows):
            until = min(until, self.enough(start["t"], limit.max_rows))
        return {"t": max(start["t"], until)}

    def clock(self) -> int:
        """The time up to which all rows have come, if none comes late.

        Of the files of a flush, those of deliveries are named last, so they may be trusted. Where
        nobody hears anything there are none; then files that were there when one last looked have
        their say, for the others of their flush have been named since.
        """
        publications, messages = (self.newest(n) for n in ("publications", "messages"))
        before, self.others_before = self.others_before, max(publications, messages)
        return max(before, self.newest("deliveries"))

    def newest(self, table: str) -> int:
        times = (piece.last for piece in self.pieces(table))
        return max((last for last in times if last < FOREVER), default=0)

    def pieces(self, table: str) -> list[RowGroup]:
        """The row groups that there are now; a file without a sound footer has none."""
        for part in files(self.trace, table):
            if part not in self.footers:
                found = row_groups_of_files(open_single_trace(self.trace), table, [part])
                self.footers[part] = [piece for piece in found if not piece.fault]
        return [piece for some in self.footers.values() for piece in some if piece.table == table]

    def enough(self, begin: int, rows: int) -> int:
        """A moment until which there are about so many rows to count from here."""
        fresh = (p for name in COUNTED_TABLES for p in self.pieces(name) if p.last > begin)
        for piece in sorted(fresh, key=lambda piece: piece.last):
            rows -= piece.rows
            if rows <= 0:
                return piece.last
        return END

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        begin, until = start["t"], end["t"]
        if begin == until:
            return []
        run = open_single_trace(self.trace).run
        said, heard, sent = (
            overlapping(
                self.pieces(name), begin, until + (self.late if name == "deliveries" else 0)
            )
            for name in COUNTED_TABLES
        )
        everything = [*said, *heard, *sent]
        count = max(
            1, min(self.tasks, sum(piece.rows for piece in everything) // MIN_ROWS_PER_TASK)
        )
        wanted = interests_since_snapshot(self.keep, self.pieces("interests"), begin)
        return [
            InputPartition(
                StreamSlice(
                    TracePart(
                        run,
                        low,
                        high,
                        overlapping(said, low, high),
                        overlapping(wanted, -FOREVER, high),
                    ),
                    overlapping(heard, low, high + self.late),
                    overlapping(sent, low, high),
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
            save_snapshot(self.keep, self.pieces("interests"), end["t"])


def overlapping(pieces: Sequence[RowGroup], begin: int, end: int) -> list[RowGroup]:
    """The row groups that may have rows from begin to end, and at the end."""
    return [piece for piece in pieces if piece.first <= end and piece.last >= begin]


# The interests in force at some moment, as a Parquet file named by it.


def interests_since_snapshot(
    keep: Path, interests: Sequence[RowGroup], begin: int
) -> list[RowGroup]:
    """Row groups that tell all interests in force from `begin` on: kept ones and what came later.

    Rows of that moment itself are among the later ones.
    """
    moment = max((m for m in map(snapshot_time, snapshot_files(keep)) if m <= begin), default=None)
    if moment is None or not interests:
        return list(interests)
    kept = row_groups_of_files(
        TraceFolder(str(keep), interests[0].run, None), "interests", [snapshot_file(keep, moment)]
    )
    return [*kept, *(piece for piece in interests if piece.last >= moment)]


def save_snapshot(keep: Path, interests: Sequence[RowGroup], moment: int) -> None:
    """Keep what is in force at the moment, if it is much to find out; forget what was before."""
    known = interests_since_snapshot(keep, interests, moment)
    if sum(piece.rows for piece in known if piece.first < moment) < ROWS_PER_SNAPSHOT:
        return
    before = snapshot_files(keep)
    held = interests_in_force(known, moment)
    file = snapshot_file(keep, moment)
    hidden = file.with_name(f".{file.name}.unfinished")
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(with_all_columns(held), hidden)
    hidden.replace(file)
    for old in before:
        if old != file:
            old.unlink()


def snapshot_file(keep: Path, moment: int) -> Path:
    return keep / "interests" / f"{moment}.parquet"


def snapshot_files(keep: Path) -> list[Path]:
    return sorted((keep / "interests").glob("[0-9]*.parquet"))


def snapshot_time(file: Path) -> int:
    return int(file.stem)


def with_all_columns(interests: pa.Table) -> pa.Table:
    """With all columns of the schema, also those that say nothing."""
    schema = TABLES["interests"]
    typed = pa.schema([(f.name, TEXT_TYPE if f.type == pa.string() else f.type) for f in schema])
    rows = concat_rows([interests, typed.empty_table()], "interests")
    return rows.select(schema.names).cast(schema)
