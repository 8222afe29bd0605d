"""Recorded positions as columns: read, checked, and sorted by entity and time.

A fix is one row of a Parquet or CSV file: t (seconds), entity, x, y and perhaps z. Millions of them
stay in a handful of arrays; no object is made for any of them before it is replayed. Everything
that can be wrong with a file is found here, before the run begins.
"""

import csv
from collections.abc import Iterator
from io import BufferedReader, TextIOWrapper
from math import isfinite
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv
from msgspec import Struct

from nearcast.errors import StorageError
from nearcast.space.motion import SECOND, Time
from nearcast.space.shapes import Vector
from nearcast.storage import AnyPath, PathInput, arrow_source, locate, open_input, open_parquet
from nearcast.workloads.workload import NUMBERS

Numbers: TypeAlias = npt.NDArray[np.float64]
Whole: TypeAlias = npt.NDArray[np.int64]
Fix: TypeAlias = tuple[Time, float, float, float]

NUMERIC = ("t", "x", "y", "z")
FARTHEST = 1e15  # beyond it neither seconds nor units mean anything to a double
LONGEST = 1e9  # seconds of a replay; an int64 of microseconds holds much more
BLOCK = 1024  # fixes that become Python numbers at once


class Fixes(Struct, frozen=True):
    """All fixes, those of one entity together and in order of time, no two at the same moment.

    Entities are numbered in the order of their sorted names.
    """

    starts: Whole  # entity e has the rows from starts[e] to starts[e + 1]
    t: Whole  # microseconds since the first fix of the file
    x: Numbers
    y: Numbers
    z: Numbers
    altitude: Numbers | None = None  # on Earth: metres above the ellipsoid, NaN where not known

    @property
    def entities(self) -> int:
        return len(self.starts) - 1

    @property
    def corners(self) -> tuple[Vector, Vector]:
        low, high = (
            (float(end(self.x)), float(end(self.y)), float(end(self.z))) for end in (np.min, np.max)
        )
        return low, high

    def rows(self, entity: int) -> tuple[int, int]:
        return int(self.starts[entity]), int(self.starts[entity + 1])

    def first_from(self, entity: int, t: Time) -> int:
        """The row of the entity's first fix at `t` or later; the end of its rows if none is."""
        low, high = self.rows(entity)
        return low + int(np.searchsorted(self.t[low:high], t))

    def between(self, low: int, high: int) -> Iterator[Fix]:
        for start in range(low, high, BLOCK):
            block = slice(start, min(start + BLOCK, high))
            yield from zip(
                self.t[block].tolist(),
                self.x[block].tolist(),
                self.y[block].tolist(),
                self.z[block].tolist(),
                strict=True,
            )


def read(path: PathInput, faster: float) -> Fixes:
    """A file's fixes, with time running `faster` times as fast."""
    found, file = locate(path), str(path)
    with open_input(found):
        pass  # a missing or forbidden file gets the system's own words, not Arrow's
    table = from_csv(found) if is_csv(found) else from_parquet(found)
    if not len(table):
        raise ValueError(f"{file} holds no fixes")
    entity, entities = entity_numbers(file, table)
    columns = {name: numbers(file, table, name) for name in NUMERIC if name in table.column_names}
    del table  # all is in the columns now, and sorting needs the memory
    check_values(file, columns)
    t = microseconds(file, columns.pop("t"), faster)
    x, y, z = (columns.pop(name, None) for name in "xyz")
    assert x is not None
    assert y is not None
    return sort_fixes(file, entity, entities, t, x, y, z)


def sort_fixes(
    file: str,
    entity: Whole,
    entities: int,
    t: Whole,
    x: Numbers,
    y: Numbers,
    z: Numbers | None = None,
    altitude: Numbers | None = None,
) -> Fixes:
    """By entity, then time, then place in the file; of equal moments the last one counts."""
    order = np.lexsort((t, entity))
    t, entity = t[order], entity[order]
    last = np.append((t[1:] != t[:-1]) | (entity[1:] != entity[:-1]), True)
    t, entity, order = t[last], entity[last], order[last]
    starts = np.searchsorted(entity, np.arange(entities + 1))
    if int(np.diff(starts).max()) + 2 > NUMBERS:
        raise ValueError(
            f"{file}: one entity has more than the {NUMBERS - 2:,} fixes we can number"
        )
    flat = np.broadcast_to(np.float64(0), len(t))  # takes no memory
    return Fixes(
        starts, t, x[order], y[order],
        flat if z is None else z[order],
        None if altitude is None else altitude[order],
    )  # fmt: skip


def is_csv(file: AnyPath) -> bool:
    return file.suffix.lower() == ".csv"


def from_parquet(file: AnyPath) -> Any:
    try:
        with open_parquet(file) as opened:
            return opened.read(columns=wanted_columns(str(file), opened.schema_arrow.names))
    except StorageError:
        raise
    except FileNotFoundError:
        raise ValueError(f"there is no {file}") from None
    except (pa.ArrowException, OSError) as problem:
        raise ValueError(f"{file} is not a readable Parquet file: {in_short(problem)}") from problem


def from_csv(file: AnyPath) -> Any:
    try:
        with pyarrow.csv.open_csv(arrow_source(file)) as opened:
            wanted = wanted_columns(str(file), opened.schema.names)
        types = {name: pa.string() if name == "entity" else pa.float64() for name in wanted}
        options = pyarrow.csv.ConvertOptions(include_columns=wanted, column_types=types)
        return pyarrow.csv.read_csv(arrow_source(file), convert_options=options)
    except pa.ArrowException as problem:
        fault = first_fault(file) or f"is not a readable CSV file: {in_short(problem)}"
        raise ValueError(f"{file} {fault}") from problem


def in_short(problem: Exception) -> str:
    return str(problem).partition("\n")[0]


def wanted_columns(file: str, names: list[str]) -> list[str]:
    missing = [name for name in ("t", "entity", "x", "y") if name not in names]
    if missing:
        raise ValueError(f"{file} lacks {', '.join(missing)} among its columns")
    wanted = [name for name in (*NUMERIC, "entity") if name in names]
    for name in wanted:
        if names.count(name) > 1:
            raise ValueError(f"{file} has more than one column {name}")
    return wanted


def first_fault(file: AnyPath) -> str | None:
    """Arrow says what it could not read, but not where; so look again, slowly, row by row."""
    with TextIOWrapper(
        BufferedReader(open_input(file)), newline="", encoding="utf-8-sig", errors="replace"
    ) as text:
        rows = filter(None, csv.reader(text))  # empty lines are no rows
        try:
            header = next(rows, [])
            numeric = [(header.index(name), name) for name in NUMERIC if name in header]
            for number, row in enumerate(rows, 1):
                if len(row) != len(header):
                    return f"has {len(row)} cells in row {number} and {len(header)} in its header"
                for place, name in numeric:
                    if not is_number(row[place]):
                        return f"has {name} = {row[place][:40]!r} in row {number}, not a number"
        except csv.Error:
            return None
    return None


def is_number(text: str) -> bool:
    try:
        return isfinite(float(text))
    except ValueError:
        return False


def numbers(file: str, table: Any, name: str) -> Numbers:
    column = table[name]
    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        raise ValueError(f"{file} must have numbers in its column {name}, not {column.type}")
    return np.asarray(column.cast(pa.float64(), safe=False).to_numpy())  # a missing value is NaN


def check_values(file: str, columns: dict[str, Numbers]) -> None:
    """Name the first row with a value that is missing, not finite or beyond all measure."""
    faults = {name: ~(np.abs(column) <= FARTHEST) for name, column in columns.items()}
    found = [(int(fault.argmax()), name) for name, fault in faults.items() if fault.any()]
    if found:
        row, name = min(found)
        value = columns[name][row]
        raise ValueError(f"{file} has {name} = {value} in row {row + 1}, not a usable number")


def microseconds(file: str, seconds: Numbers, faster: float) -> Whole:
    since_first: Numbers = (seconds - seconds.min()) / faster
    longest = float(since_first.max())
    if longest > LONGEST:
        raise ValueError(f"{file} would take {longest:,.0f} s to replay; is t in seconds?")
    return np.asarray(np.rint(since_first * SECOND), np.int64)


def entity_numbers(file: str, table: Any) -> tuple[Whole, int]:
    """The entity of each row, numbered in the order of the sorted names, and how many there are."""
    column = table["entity"]
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    kind = column.type
    if not (
        pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind)
    ):
        raise ValueError(f"{file} must have integers or strings in its column entity, not {kind}")
    encoded = column.dictionary_encode().unify_dictionaries().combine_chunks()
    names = encoded.dictionary.to_pylist()
    codes = np.asarray(encoded.indices.fill_null(-1).to_numpy())
    nameless = codes < 0 if "" not in names else (codes < 0) | (codes == names.index(""))
    if nameless.any():
        raise ValueError(f"{file} has no entity in row {int(nameless.argmax()) + 1}")
    rank = np.empty(len(names), np.int64)
    rank[in_order(names)] = np.arange(len(names))
    return rank[codes], len(names)


def in_order(names: list[int] | list[str]) -> list[int]:
    """Sorted as numbers if all are, as a CSV file does not tell the number 10 from the text."""
    try:
        return sorted(range(len(names)), key=lambda place: (int(names[place]), str(names[place])))
    except ValueError:
        return sorted(range(len(names)), key=lambda place: str(names[place]))
