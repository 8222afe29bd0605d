"""Rows of traces, one by one, and ways to write them as a recorder would, or would not."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from nearcast.trace.schema import TABLES

Row = dict[str, Any]
Rows = dict[str, list[Row]]

_PLACE = {"x": 1.0, "y": -2.0, "z": 0.5}
_REST = {"vx": 0.0, "vy": 0.0, "vz": 0.0, "gx": 0.0, "gy": 0.0, "gz": 0.0}


def interest(t: int, subscription: int, **changes: Any) -> Row:
    return {
        "t": t, "node": 7, "subscription": subscription, "shape": "box", **_PLACE,
        "rx": 1.0, "ry": 2.0, "rz": 3.0, **_REST, "until": None, "formula": None,
        "since": None, "channel": "", "filter": None, "echo": False, "ended": False,
        "outline": None, **changes,
    }  # fmt: skip


def publication(t: int, number: int, **changes: Any) -> Row:
    return {
        "t": t, "node": 8, "publication": number, "shape": "point", **_PLACE,
        "rx": 0.0, "ry": 0.0, "rz": 0.0, "channel": "", "attributes": None, "bytes": 10,
        "outline": None, **changes,
    }  # fmt: skip


def delivery(t: int, number: int, subscription: int, **changes: Any) -> Row:
    row = {"t": t, "node": 7, "publication": number, "subscription": subscription, "hops": 1}
    return row | changes


def message(t: int, **changes: Any) -> Row:
    return {
        "t": t, "node": 8, "to": 7, "kind": "publish", "bytes": 60, "publication": 1,
        "arrived": t + 50, "lost": False, "copies": 1, **changes,
    }  # fmt: skip


def position(t: int, node: int, **changes: Any) -> Row:
    return {"t": t, "node": node, **_PLACE, **changes}


def a_bit_of_everything() -> Rows:
    """Two sound rows in every table, of as many sorts as there are."""
    return {
        "interests": [
            interest(0, 5, shape="disc", ry=0.0, rz=0.0, vx=1.0, gx=-1.0, until=9),
            interest(3, 6, formula="x < 3 + t", since=3, filter="price > 2 * t", rx=float("inf")),
        ],
        "publications": [
            publication(3, 1, shape="box", rx=1.0),
            publication(4, 2, attributes='{"price":3,"kind":"é"}'),
        ],
        "deliveries": [delivery(4, 2, 6, hops=0), delivery(54, 1, 5)],
        "messages": [message(4), message(5, publication=None, arrived=None, lost=True, copies=2)],
        "positions": [position(0, 7), position(9, 8, x=-1e5)],
        "views": [position(0, 7, other=8), position(9, 8, other=7)],
        "notes": [
            {"t": 0, "node": 7, "fact": "joined", "about": None, "value": None},
            {"t": 1, "node": 7, "fact": "linked", "about": 8, "value": 0.05},
        ],
    }


def as_table(table: str, rows: list[Row]) -> pa.Table:
    """Rows in the right types, with nulls wherever one likes."""
    free = pa.schema([field.with_nullable(True) for field in TABLES[table]])
    return pa.Table.from_pylist(rows, schema=free)


def begin_trace(root: Path, scenario: bytes = b'{"schema": 1}') -> Path:
    root.mkdir(parents=True)
    (root / "scenario.json").write_bytes(scenario)
    return root


def add_part(trace: Path, table: str, rows: list[Row], name: str | int) -> Path:
    """One more file of a table, named when it is complete."""
    (trace / table).mkdir(exist_ok=True)
    part = trace / table / (name if isinstance(name, str) else f"part-{name:05}.parquet")
    hidden = part.with_name(f".{part.name}.unfinished")
    pq.write_table(as_table(table, rows), hidden, row_group_size=50)
    return hidden.rename(part)


def write_trace(
    root: Path, tables: Mapping[str, list[Row]], scenario: bytes = b'{"schema": 1}'
) -> Path:
    begin_trace(root, scenario)
    for table, rows in tables.items():
        add_part(root, table, rows, 0)
    return root
