"""Where a trace goes: into memory, or into a folder of Parquet files, here or in a store.

A file appears under its name only when it is complete, and the files of one flush appear in an
order in which nothing speaks of what is not there yet. So a run may be killed at any moment, or
find the disk full, and what it has left is a sound trace.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

import msgspec
import numpy as np
import pyarrow as pa

from nearcast.errors import StorageError, TraceError
from nearcast.storage import (
    AnyPath,
    PathInput,
    encode_parquet,
    list_names,
    locate,
    write_all,
    write_whole,
)
from nearcast.trace.arrow_columns import number_column
from nearcast.trace.schema import TABLES

SCENARIO = "scenario.json"
SUMMARY = "summary.json"
ROW_GROUP = 65_536

# Publications before their deliveries, interests before both; fences before their events.
TABLE_ORDER = (
    "interests", "fence_interests", "fence_areas", "publications", "states", "notes", "positions",
    "views", "messages", "direct_messages", "deliveries", "fence_events", "direct_deliveries",
)  # fmt: skip


class TraceSink(Protocol):
    """What a recorder hands its rows to."""

    def write(self, tables: Mapping[str, pa.Table]) -> None:
        """Keep these rows. Every table has the schema that `TABLES` gives to its name."""
        ...


class MemoryTrace:
    """A trace that is not written anywhere."""

    def __init__(self) -> None:
        self._tables: dict[str, list[pa.Table]] = {name: [] for name in TABLES}

    def write(self, tables: Mapping[str, pa.Table]) -> None:
        for name, rows in tables.items():
            self._tables[name].append(rows)

    def table(self, name: str) -> pa.Table:
        return pa.concat_tables([TABLES[name].empty_table(), *self._tables[name]])


def holds_trace(folder: AnyPath) -> bool:
    """Has a run left a trace there, complete or not?"""
    return not {SCENARIO, *TABLES}.isdisjoint(list_names(folder))


class TraceFolder:
    """A trace in files: `scenario.json` first, then parts of tables, `summary.json` at the end."""

    def __init__(self, path: PathInput, scenario: bytes) -> None:
        self.path = locate(path)
        self._parts = dict.fromkeys(TABLES, 0)
        self._failure = ""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            if holds_trace(self.path):
                raise TraceError(f"{self.path} already holds a trace")
        except OSError as error:
            raise TraceError(f"cannot create {self.path}: {in_a_line(error)}") from error
        with self._careful():
            write_whole(self.path / SCENARIO, scenario)

    def write(self, tables: Mapping[str, pa.Table]) -> None:
        """One more part of each table that has rows: all are encoded, then all are written."""
        names = [name for name in TABLE_ORDER if name in tables and tables[name].num_rows]
        with self._careful():
            parts: dict[AnyPath, pa.Buffer] = {}
            for name in names:
                folder = self.path / name
                parts[folder / f"part-{self._parts[name]:05}.parquet"] = encode_rows(tables[name])
                if self._parts[name] == 0:
                    folder.mkdir(exist_ok=True)
            write_all(parts)
        for name in names:
            self._parts[name] += 1

    def finish(self, summary: dict[str, Any]) -> None:
        """Say that the run has ended by itself, and how."""
        with self._careful():
            text = msgspec.json.format(msgspec.json.encode(summary), indent=2)
            write_whole(self.path / SUMMARY, text)

    @contextmanager
    def _careful(self) -> Iterator[None]:
        """After a failure nothing more is written: a trace with a hole would look sound, and is
        not."""
        if self._failure:
            raise TraceError(self._failure)
        try:
            yield
        except (OSError, pa.ArrowException) as error:
            self._failure = (
                f"cannot write {self.path}: {in_a_line(error)};"
                " what was written before stays readable"
            )
            raise TraceError(self._failure) from error


def in_a_line(error: Exception) -> str:
    """What went wrong, without the errno and the many lines that Arrow adds."""
    if isinstance(error, StorageError):
        return error.reason
    if isinstance(error, OSError) and error.errno is not None:
        return os.strerror(error.errno)
    return (str(error).splitlines() or [type(error).__name__])[0]


def encode_rows(rows: pa.Table) -> pa.Buffer:
    t = np.from_dlpack(rows.column("t").combine_chunks())  # `to_numpy` would import pandas
    if np.any(t[1:] < t[:-1]):
        rows = rows.take(number_column(np.argsort(t, kind="stable")))
    # Times and identifiers differ little from row to row: as differences they take less room than
    # in a dictionary, and half the CPU time.
    return encode_parquet(
        rows,
        row_group_size=ROW_GROUP,
        compression="zstd",
        use_dictionary=[field.name for field in rows.schema if field.type == pa.string()],
        column_encoding={
            field.name: "DELTA_BINARY_PACKED" for field in rows.schema if field.type == pa.int64()
        },
        write_statistics=True,
        write_page_checksum=True,  # without, a flipped bit is just another number
    )
