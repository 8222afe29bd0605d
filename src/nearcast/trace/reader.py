"""Reading a trace back: its tables, its scenario, and a digest that tells two traces apart."""

from functools import partial
from hashlib import sha256
from typing import Any, TypeVar

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.errors import TraceError
from nearcast.storage import AnyPath, PathInput, list_names, locate, open_parquet
from nearcast.trace.schema import ADDED_COLUMNS, READABLE_VERSIONS, TABLES
from nearcast.trace.sinks import SCENARIO, MemoryTrace, holds_trace, in_a_line

Rows = TypeVar("Rows", pa.Table, pa.RecordBatch)

PLANE, EARTH = "plane", "earth"
# Settings of a scenario. The Unix time of t = 0 is in microseconds.
GEOMETRY, EPOCH = "geometry", "epoch_us"
NAMES_FILE = "names.json"  # the entities' names, in the order of their numbers; if they have any


def folder(path: PathInput) -> AnyPath:
    """The trace's folder, if there is one."""
    root = locate(path)
    if holds_trace(root):
        return root
    if not root.exists():
        raise TraceError(f"there is no trace at {root}: no such folder")
    if not root.is_dir():
        raise TraceError(f"{root} is a file; a trace is a folder")
    raise TraceError(f"{root} holds no trace: neither {SCENARIO} nor a table")


def files(root: AnyPath, table: str) -> list[AnyPath]:
    """A table's finished parts, in the order in which they were written."""
    names = [n for n in list_names(root / table) if n.endswith(".parquet") and n[0] not in "._"]
    return [root / table / name for name in sorted(names, key=lambda name: (len(name), name))]


def read(path: PathInput, table: str) -> pa.Table:
    """A whole table in order of time, with exactly the columns of its schema."""
    schema = TABLES[table]
    parts = [read_part(part, schema) for part in files(folder(path), table)]
    rows = pa.concat_tables([schema.empty_table(), *parts])
    t = rows.column("t").to_numpy()
    return rows.take(np.argsort(t, kind="stable")) if np.any(t[1:] < t[:-1]) else rows


def read_part(part: AnyPath, schema: pa.Schema) -> pa.Table:
    try:
        with open_parquet(part, page_checksum_verification=True) as file:
            faults = missing_or_mistyped(file.schema_arrow, schema)
            if faults:
                raise TraceError(f"cannot read {part}: {faults[0]}")
            return complete_columns(file.read(schema.names), schema).cast(schema)
    # A null where none may be is a ValueError of the cast.
    except (OSError, ValueError, pa.ArrowException) as error:
        raise TraceError(f"cannot read {part}: {in_a_line(error)}") from error


def missing_or_mistyped(found: pa.Schema, schema: pa.Schema) -> list[str]:
    """Why rows with these columns cannot be rows of that schema; texts come in several types."""
    faults = []
    for field in schema:
        places = found.get_all_field_indices(field.name)
        if not places and field.name in ADDED_COLUMNS:
            continue
        if len(places) != 1:
            faults.append(f"column {field.name} is {'given twice' if places else 'missing'}")
        elif not _same(found.field(places[0]).type, field.type):
            kind = found.field(places[0]).type
            faults.append(f"column {field.name} is {kind}, not {field.type}")
    return faults


def complete_columns(rows: Rows, schema: pa.Schema) -> Rows:
    """All columns of the schema, in its order; null those that an earlier schema has not."""
    columns = [
        rows.column(field.name)
        if field.name in rows.schema.names
        else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    return type(rows).from_arrays(columns, names=schema.names)


def _same(found: pa.DataType, wanted: pa.DataType) -> bool:
    if wanted == pa.string() and pa.types.is_dictionary(found):
        return _same(found.value_type, wanted)
    return bool(found == wanted or (wanted == pa.string() and found == pa.large_string()))


def scenario(path: PathInput) -> dict[str, Any]:
    """What was run, as it was written; an imported trace may say no more than its schema."""
    file = folder(path) / SCENARIO
    try:
        value = msgspec.json.decode(file.read_bytes(), type=dict[str, Any])
    except (OSError, msgspec.DecodeError, ValueError, RecursionError) as error:
        raise TraceError(f"cannot read {file}: {in_a_line(error)}") from error
    fault = version_fault(value)
    if fault:
        raise TraceError(f"{file} {fault}")
    return value


def settings(path: PathInput) -> dict[str, Any]:
    """The settings of what was run; none if nothing is known of it."""
    if not (folder(path) / SCENARIO).exists():
        return {}
    found = scenario(path).get("settings")
    return found if isinstance(found, dict) else {}


def trace_geometry(path: PathInput) -> str:
    """In what coordinates a trace is: "plane", or "earth" if they are ECEF metres."""
    return EARTH if settings(path).get(GEOMETRY) == EARTH else PLANE


def trace_epoch(path: PathInput) -> int | None:
    """The Unix time of t = 0 in microseconds, 0 for live runs; None if there is no calendar."""
    epoch = settings(path).get(EPOCH)
    if isinstance(epoch, int):
        return epoch
    live = "started" in settings(path)
    return 0 if live else None


def entity_names(path: PathInput) -> list[str]:
    """The names of entities by their numbers, if the trace has them; else none."""
    file = folder(path) / NAMES_FILE
    if not file.exists():
        return []
    try:
        return list(map(str, msgspec.json.decode(file.read_bytes(), type=list[str | int])))
    except (OSError, msgspec.DecodeError) as error:
        raise TraceError(f"cannot read {file}: {in_a_line(error)}") from error


def version_fault(scenario: dict[str, Any]) -> str:
    """Why a trace with this scenario cannot be read, if its schema is another one; else ""."""
    version = scenario.get("schema")
    if version in READABLE_VERSIONS:
        return ""
    readable = " and ".join(map(str, READABLE_VERSIONS))
    return f"says schema {version}; this version reads {readable}"


def digest(trace: PathInput | MemoryTrace) -> str:
    """A hash of all rows of all tables, whatever their order and wherever they were cut."""
    table = trace.table if isinstance(trace, MemoryTrace) else partial(read, trace)
    total = sha256()
    for name in TABLES:
        rows = _in_canonical_order(table(name))
        total.update(f"{name} {rows.num_rows}\n".encode())
        for column in rows.columns if rows.num_rows else ():
            for block in _blocks(column.combine_chunks()):
                total.update(block)
    return total.hexdigest()


def _in_canonical_order(rows: pa.Table) -> pa.Table:
    """By all columns. Doubles are told apart by their bits: 0 and -0 would have no order."""
    columns = [
        column.combine_chunks().view(pa.int64()) if column.type == pa.float64() else column
        for column in rows.columns
    ]
    plain = pa.table(columns, names=rows.schema.names)
    order = pc.sort_indices(plain, sort_keys=[(name, "ascending") for name in plain.schema.names])
    return plain.take(order)


def _blocks(column: pa.Array) -> list[bytes]:
    """A column as bytes: the values and which are there; texts by the order of first use."""
    if column.type == pa.string():
        texts = column.dictionary_encode()
        numbers = texts.indices.fill_null(-1).to_numpy()
        return [numbers.tobytes(), msgspec.json.encode(texts.dictionary.to_pylist())]
    zero = False if column.type == pa.bool_() else 0
    there = column.is_valid().to_numpy(zero_copy_only=False)
    values = column.fill_null(zero).to_numpy(zero_copy_only=False)
    return [there.tobytes(), values.tobytes()]
