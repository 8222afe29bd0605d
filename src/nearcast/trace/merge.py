"""A node's trace with its clients' own word for what they heard.

A node records what it sent; a client that keeps a trace of its own records what arrived. Where
there is such a trace, its deliveries take the place of the node's.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from nearcast.trace import reader
from nearcast.trace.schema import TABLES, TraceError
from nearcast.trace.sinks import SCENARIO, Folder


def merge(
    node: str | os.PathLike[str],
    clients: Sequence[str | os.PathLike[str]],
    into: str | os.PathLike[str],
) -> dict[str, Any]:
    """Write the merged trace, part by part; give how many clients and deliveries it has of whom."""
    root = reader.folder(node)
    if not (root / SCENARIO).exists():
        raise TraceError(f"{root} has no {SCENARIO}")
    diaries = [reader.folder(client) for client in clients]
    entities = pa.concat_arrays([_entities(diary) for diary in diaries])
    merged = Folder(into, (root / SCENARIO).read_bytes())
    counts = dict.fromkeys(TABLES, 0)
    sources = [(root, table, part) for table in TABLES for part in reader.files(root, table)]
    sources += [
        (diary, "deliveries", part)
        for diary in diaries
        for part in reader.files(diary, "deliveries")
    ]
    for source, table, part in sources:
        rows = reader.read_part(part, TABLES[table])
        if source is root and table == "deliveries":
            rows = rows.filter(pc.invert(pc.is_in(rows.column("node"), entities)))
        merged.write({table: rows})
        counts[table] += len(rows)
    summary = {"clients": len(entities), "rows": counts}
    merged.finish(summary)
    return summary


def _entities(diary: Path) -> pa.Array:
    """Whose diary it is: one entity for each time that the client has joined."""
    notes = reader.read(diary, "notes")
    joined = notes.filter(pc.equal(notes.column("fact"), "joined"))
    if not len(joined):
        raise TraceError(f"{diary} is no trace that a client recorded")
    return joined.column("node").combine_chunks()
