"""Appends rows to a trace by the tasks of a Spark job: how logs of other systems are imported.

Each task writes one hidden file. When all tasks have ended, each file gets the next number as its
name; if one fails, all files are removed. A task that ends after that finds the job's mark gone
and removes its file itself. Rows are not checked here: readers reject invalid rows in any trace.

A store cannot rename, nor refuse to replace a file: there, the hidden files are copied, to names
that no other job gives.
"""

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from nearcast.errors import TraceError
from nearcast.storage import (
    AnyPath,
    RemotePath,
    copy_file,
    list_names,
    open_output,
    write_whole,
)
from nearcast.trace.reader import files
from nearcast.trace.schema import SCHEMA_VERSION, TABLES
from nearcast.trace.sinks import ROW_GROUP, SCENARIO

SORTED_ROWS = 16 * ROW_GROUP  # sorted by time together, and held in memory together

_PART_NAME = re.compile(r"part-(\d{5,})\.parquet")


def part_name(number: int) -> str:
    return f"part-{number:05}.parquet"


def part_number(name: str) -> int | None:
    """The number in a file name like part-00041.parquet; None for other names."""
    found = _PART_NAME.fullmatch(name)
    return int(found[1]) if found and part_name(int(found[1])) == name else None


class WrittenFile(WriterCommitMessage):
    """What a task reports: its hidden file, or None if it had no rows."""

    def __init__(self, hidden: AnyPath | None) -> None:
        self.hidden = hidden


class TraceWriter(DataSourceArrowWriter):
    """Appends rows to a table of the trace at `root`, which may be new."""

    def __init__(self, root: AnyPath, table: str) -> None:
        self.root = root
        self.place = root / table
        self.table = table
        self.job = uuid4().hex
        self.mark = self.place / f".{self.job}-open"
        self.place.mkdir(parents=True, exist_ok=True)
        write_whole(self.mark, b"")

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WrittenFile:
        """In a task: write its rows into a hidden file, sorted by time."""
        portions = _sortable_portions(self.table, iterator)
        first = next(portions, None)
        if first is None:
            return WrittenFile(None)
        hidden = self.place / f".{self.job}-{uuid4().hex}.unfinished"
        try:
            with (
                open_output(hidden) as output,
                pq.ParquetWriter(
                    output, first.schema, compression="zstd", write_page_checksum=True
                ) as file,
            ):
                for rows in chain([first], portions):
                    file.write_table(rows.sort_by("t"), row_group_size=ROW_GROUP)
            if not self.mark.exists():
                raise TraceError(f"the job that writes to {self.place} was aborted")
        except BaseException:
            hidden.unlink(missing_ok=True)
            raise
        return WrittenFile(hidden)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """On the driver, after all tasks: give the hidden files their names."""
        scenario = self.root / f".{self.job}.scenario"
        write_whole(scenario, b'{"schema": %d}' % SCHEMA_VERSION)
        _name_file(scenario, self.root / SCENARIO)
        scenario.unlink()
        taken = [part_number(file.name) for file in files(self.root, self.table)]
        number = max((part for part in taken if part is not None), default=-1) + 1
        for message in messages:
            if isinstance(message, WrittenFile) and message.hidden:
                while not _name_file(message.hidden, self.place / self._part_name(number)):
                    number += 1
                number += 1
        self._clear()

    def _part_name(self, number: int) -> str:
        here = isinstance(self.place, Path)
        return part_name(number) if here else f"part-{self.job}-{number:05}.parquet"

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:  # noqa: ARG002
        self._clear()
        for place in (self.place, self.root):
            if isinstance(place, Path):
                with suppress(OSError):  # not empty: it existed before
                    place.rmdir()

    def _clear(self) -> None:
        """Remove the mark and all hidden files, also those of killed or repeated attempts."""
        self.mark.unlink(missing_ok=True)
        for name in list_names(self.place):
            if name.startswith(f".{self.job}-"):
                (self.place / name).unlink(missing_ok=True)


def _name_file(hidden: AnyPath, file: AnyPath) -> bool:
    """Give a hidden file this name as well; false if there is such a file."""
    if isinstance(hidden, RemotePath) and isinstance(file, RemotePath):
        if file.exists():
            return False
        copy_file(hidden, file)
        return True
    try:
        os.link(str(hidden), str(file))  # unlike rename, it never replaces a file
    except FileExistsError:
        return False
    return True


def _sortable_portions(table: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Rows with the table's columns (missing ones null), in portions that are sorted at once."""
    held: list[pa.RecordBatch] = []
    room = SORTED_ROWS
    for batch in batches:
        columns = {
            field.name: batch.column(field.name).cast(field.type)
            if field.name in batch.schema.names
            else pa.nulls(batch.num_rows, field.type)
            for field in TABLES[table]
        }
        held.append(pa.record_batch(columns))
        room -= batch.num_rows
        if room <= 0:
            yield pa.Table.from_batches(held)
            held, room = [], SORTED_ROWS
    if sum(batch.num_rows for batch in held):
        yield pa.Table.from_batches(held)
