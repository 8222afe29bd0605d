"""CSV and Parquet with latitude and longitude, also OpenSky's CSV of state vectors.

Columns are known by their usual names, in capitals or not. Rows come block by block, so that a file
may be larger than memory as text.
"""

import csv
from codecs import getincrementaldecoder
from collections.abc import Callable, Iterator
from io import BufferedReader, RawIOBase, TextIOWrapper
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
from msgspec import Struct
from numpy.typing import NDArray

from nearcast.errors import StorageError
from nearcast.pipeline.movement.fix_collector import (
    SHOWN,
    FixCollector,
    FixTable,
    RowFault,
)
from nearcast.pipeline.movement.geoparquet import PLACES, geometry_column, read_places
from nearcast.pipeline.movement.times import iso_times, seconds_of_any_clock, unix_times
from nearcast.storage import AnyPath, open_input, open_parquet
from nearcast.workloads.fixes import Numbers, Whole, in_short, is_csv

Truths = NDArray[np.bool_]

# What a fix needs, and the columns that may have it, the first of them first.
NAMES = {
    "lat": ("lat", "latitude"),
    "lon": ("lon", "lng", "long", "longitude"),
    "time": ("t", "timestamp", "time", "basedatetime", "base_date_time"),
    "entity": ("entity", "id", "mmsi", "icao24", "name", "vehicle_id", "vehicle", "device"),
}
ALTITUDES = ("alt", "altitude", "height", "geoaltitude", "baroaltitude")
BLOCK_BYTES = 8 * 2**20
BLOCK_ROWS = 131_072
NUMBER = r"^\s*[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?\s*$"
NOTHING = r"(?i)^\s*(nan|null|none|n/?a)?\s*$"


class _ChosenColumns(Struct):
    """By what a fix needs: the name of a column in the file. And what its times are."""

    names: dict[str, str]
    altitudes: list[str]  # of those of a row, the first counts
    clock: str = ""  # "number" or "text", as the first time that could be read

    @property
    def wanted(self) -> list[str]:
        return [*self.names.values(), *self.altitudes]


class _CleanText(RawIOBase):
    """A file in which U+FFFD stands for what is no UTF-8: one row is wrong then, not the file."""

    def __init__(self, file: RawIOBase) -> None:
        self._file = file
        self._decoder = getincrementaldecoder("utf-8")(errors="replace")
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._rest:
            chunk = self._file.read(BLOCK_BYTES)
            self._rest = self._decoder.decode(chunk or b"", final=not chunk).encode()
            if not chunk:
                break
        taken = self._rest[: len(buffer)]
        self._rest = self._rest[len(taken) :]
        buffer[: len(taken)] = taken
        return len(taken)

    def close(self) -> None:
        self._file.close()
        super().close()


def column_names(file: AnyPath) -> list[str]:
    """Of a CSV or Parquet file, as far as it is one."""
    if is_csv(file):
        with TextIOWrapper(
            BufferedReader(_CleanText(open_input(file))), "utf-8-sig", newline=""
        ) as text:
            try:
                return next(filter(None, csv.reader(text)), [])  # empty lines are no header
            except csv.Error:
                return []
    try:
        with open_parquet(file) as parquet:
            return offered_names(str(file), parquet.schema_arrow)
    except StorageError:
        raise
    except FileNotFoundError:
        raise ValueError(f"there is no {file}") from None
    except (pa.ArrowException, OSError) as problem:
        raise ValueError(f"{file} is not a readable Parquet file: {in_short(problem)}") from problem


def offered_names(file: str, schema: pa.Schema) -> list[str]:
    """The columns of a Parquet file. If it has points instead of degrees, those of GeoParquet are
    longitude, latitude and, unless there are altitudes, height; and names of entities count before
    the numbers that an export has, too."""
    names: list[str] = list(schema.names)
    if has_degrees(names) or (geometry := geometry_column(file, schema)) is None:
        return names
    others = [name for name in names if name not in (geometry, "lon", "lat")]
    if "name" in others and "entity" in others:
        others.remove("entity")
    return [*others, *(place for place in PLACES if place not in others)]


def has_degrees(names: list[str]) -> bool:
    """Is this movement on Earth? A file that has x and y as well is read as a plane."""
    known = {name.strip().lower() for name in names}
    degrees = all(known.intersection(NAMES[need]) for need in ("lat", "lon"))
    return degrees and not {"x", "y"} <= known


def read_table(file: AnyPath, found: FixCollector, progress: Callable[[int], None]) -> None:
    """All fixes of the file. `progress` is told how many rows are read."""
    chosen = choose_columns(str(file), column_names(file))
    first = 1
    try:
        for rows in _csv_rows(file, chosen, found) if is_csv(file) else _parquet_rows(file, chosen):
            add_rows(rows, first, chosen, found)
            first += rows.num_rows
            progress(first - 1)
    except StorageError:
        raise
    except (pa.ArrowException, OSError) as problem:
        raise ValueError(f"{file} cannot be read: {in_short(problem)}") from problem


def choose_columns(file: str, names: list[str]) -> _ChosenColumns:
    """The columns that are read. Raises ValueError if one is missing or there twice."""
    known: dict[str, list[str]] = {}
    for name in names:
        known.setdefault(name.strip().lower(), []).append(name)
    chosen = {}
    for need, spellings in NAMES.items():
        there = [spelling for spelling in spellings if spelling in known]
        if not there:
            raise ValueError(f"{file} has no column for {need}: {', '.join(spellings)}")
        chosen[need] = there[0]
    altitudes = [name for name in ALTITUDES if name in known]
    for name in (*chosen.values(), *altitudes):
        if len(known[name]) > 1:
            raise ValueError(f"{file} has more than one column {name}")
    return _ChosenColumns(
        {need: known[name][0] for need, name in chosen.items()},
        [known[name][0] for name in altitudes],
    )


def _csv_rows(
    file: AnyPath, chosen: _ChosenColumns, found: FixCollector
) -> Iterator[pa.RecordBatch]:
    def skip_row(row: Any) -> str:
        found.skip(
            f"{row.text[:SHOWN]!r} has {row.actual_columns} cells and the header"
            f" {row.expected_columns}"
        )
        return "skip"

    options = pyarrow.csv.ConvertOptions(
        include_columns=chosen.wanted,
        column_types=dict.fromkeys(chosen.wanted, pa.string()),
        null_values=[""],
        strings_can_be_null=True,
    )
    with pyarrow.csv.open_csv(
        _CleanText(open_input(file)),
        read_options=pyarrow.csv.ReadOptions(block_size=BLOCK_BYTES),
        parse_options=pyarrow.csv.ParseOptions(invalid_row_handler=skip_row),
        convert_options=options,
    ) as opened:
        yield from opened


def _parquet_rows(file: AnyPath, chosen: _ChosenColumns) -> Iterator[pa.RecordBatch]:
    with open_parquet(file) as opened:
        schema = opened.schema_arrow
        if chosen.names["lon"] in schema.names:
            yield from opened.iter_batches(BLOCK_ROWS, columns=chosen.wanted)
            return
        geometry = geometry_column(str(file), schema)
        others = [name for name in chosen.wanted if name in schema.names]
        for rows in opened.iter_batches(BLOCK_ROWS, columns=[*others, geometry]):
            columns = dict(zip(PLACES, read_places(rows.column(geometry)), strict=True))
            columns |= {name: rows.column(name) for name in others}
            yield pa.RecordBatch.from_pydict(columns)


def add_rows(rows: pa.RecordBatch, first: int, chosen: _ChosenColumns, found: FixCollector) -> None:
    """Take the rows that can be read; `first` is the number of the first one."""
    kept = np.ones(rows.num_rows, np.bool_)
    faults: list[RowFault] = []

    def reject(bad: Truths, name: str, column: pa.Array, what: str) -> None:
        nonlocal kept
        bad = bad & kept
        if bad.any():
            row = int(bad.argmax())
            value = column[row].as_py()
            said = f"has {name} = {shown(value)}, {what}" if value is not None else f"has no {name}"
            faults.append((row, f"row {first + row} {said}", int(bad.sum())))
            kept = kept & ~bad

    def number(name: str) -> Numbers:
        column = plain(rows.column(name))
        values, bad = numbers_of(found.file, name, column)
        reject(bad, name, column, "not a number")
        return values

    name = chosen.names["entity"]
    column = plain(rows.column(name))
    entity = texts_of(found.file, name, column)
    reject(~entity.is_valid().to_numpy(zero_copy_only=False), name, column, "not UTF-8")
    name = chosen.names["time"]
    column = plain(rows.column(name))
    t, bad = times_of(name, column, chosen, found)
    reject(bad, name, column, "not a time")
    lon, lat = number(chosen.names["lon"]), number(chosen.names["lat"])
    altitude = np.full(rows.num_rows, np.nan)
    for name in chosen.altitudes:
        altitude = np.where(np.isnan(altitude), number(name), altitude)
    found.add(FixTable(t, entity, lon, lat, altitude), first, kept, faults)


def shown(value: Any) -> str:
    return repr(str(value)[:SHOWN])


def plain(column: pa.Array) -> pa.Array:
    """Without a dictionary, and texts of one type."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    return column.cast(pa.string()) if pa.types.is_large_string(column.type) else column


def texts_of(file: str, name: str, column: pa.Array) -> pa.Array:
    """Names as texts; null if empty or not UTF-8."""
    if not (pa.types.is_integer(column.type) or pa.types.is_string(column.type)):
        raise ValueError(
            f"{file} must have integers or texts in its column {name}, not {column.type}"
        )
    encoded = column.dictionary_encode()
    names = [str(value).strip() for value in encoded.dictionary.to_pylist()]
    usable = [None if not text or "\ufffd" in text else text for text in names]
    return pa.array(usable, pa.string()).take(encoded.indices)


def numbers_of(file: str, name: str, column: pa.Array) -> tuple[Numbers, Truths]:
    """The numbers, NaN where nothing is said; and where something else stands."""
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        values = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
        return values, np.isinf(values)
    if not pa.types.is_string(kind):
        raise ValueError(f"{file} must have numbers in its column {name}, not {kind}")
    number = pc.match_substring_regex(column, NUMBER)
    said = pc.if_else(number, column, pa.scalar(None, kind))
    try:
        values = pc.ascii_trim_whitespace(said).cast(pa.float64())
    except pa.ArrowException:  # Arrow does not read +1
        values = pa.array([None if text is None else float(text) for text in said.to_pylist()])
    empty = pc.match_substring_regex(column, NOTHING)
    other = pc.invert(pc.or_(number, empty)).fill_null(False).to_numpy(zero_copy_only=False)
    read = np.asarray(values.cast(pa.float64()).to_numpy(zero_copy_only=False))
    return read, other | np.isinf(read)


def times_of(
    name: str, column: pa.Array, chosen: _ChosenColumns, found: FixCollector
) -> tuple[Whole, Truths]:
    """Microseconds, and where none can be read. The first time that can decides what all are."""
    if pa.types.is_timestamp(column.type):
        moments = column.cast(pa.timestamp("us"), safe=False).cast(pa.int64())
        bad = moments.is_null().to_numpy(zero_copy_only=False)
        return moments.fill_null(0).to_numpy(zero_copy_only=False), bad
    numbers, other = numbers_of(found.file, name, column)
    if not chosen.clock:
        isnumber = ~np.isnan(numbers)
        text = ~iso_times(column)[1] if other.any() else other
        if not isnumber.any() and not text.any():
            return np.zeros(len(column), np.int64), np.ones(len(column), np.bool_)
        either = isnumber | text
        chosen.clock = "number" if isnumber[int(either.argmax())] else "text"
        found.has_calendar = chosen.clock == "text" or name.strip().lower() != "t"
    if chosen.clock == "text":
        return iso_times(column)
    return unix_times(numbers) if found.has_calendar else seconds_of_any_clock(numbers)
