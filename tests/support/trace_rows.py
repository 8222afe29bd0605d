"""A small sound trace, row by row, and ways to write rows that no recorder would write."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from nearcast.trace.schema import TABLES

Row = dict[str, Any]
Rows = dict[str, list[Row]]

STANDING = {"vx": 0.0, "vy": 0.0, "vz": 0.0, "gx": 0.0, "gy": 0.0, "gz": 0.0}
PLACE = {"x": 1.0, "y": -2.0, "z": 0.5}
TRIANGLE = "[1,false,[-1.0,0.0,1.0,0.0,0.0,0.0],[0],0.0,null,null]"


def interest(t: int, subscription: int, **changes: Any) -> Row:
    return {
        "t": t, "node": 7, "subscription": subscription, "shape": "box", **PLACE,
        "rx": 1.0, "ry": 2.0, "rz": 3.0, **STANDING, "until": None, "formula": None,
        "since": None, "channel": "", "filter": None, "echo": False, "ended": False,
        "outline": None, **changes,
    }  # fmt: skip


def publication(t: int, number: int, **changes: Any) -> Row:
    return {
        "t": t, "node": 8, "publication": number, "shape": "point", **PLACE,
        "rx": 0.0, "ry": 0.0, "rz": 0.0, "channel": "", "attributes": None, "bytes": 10,
        "outline": None, **changes,
    }  # fmt: skip


def message(t: int, **changes: Any) -> Row:
    return {
        "t": t, "node": 8, "to": 7, "kind": "publish", "bytes": 60, "publication": 1,
        "arrived": t + 50, "lost": False, "copies": 1, **changes,
    }  # fmt: skip


def sound() -> Rows:
    """Two rows in every table, of as many sorts as there are."""
    return {
        "interests": [
            interest(0, 5, shape="disc", ry=0.0, rz=0.0, vx=1.0, gx=-1.0, until=9),
            interest(
                3,
                6,
                formula="x < 3 + t",
                since=3,
                filter="price > 2 * t",
                rx=float("inf"),
                outline=TRIANGLE,
            ),
        ],
        "publications": [
            publication(4, 2, attributes='{"price":3,"kind":"é"}'),
            publication(3, 1, shape="box", rx=1.0, outline=TRIANGLE),
        ],
        "deliveries": [
            {"t": 54, "node": 7, "publication": 1, "subscription": 5, "hops": 1},
            {"t": 4, "node": 7, "publication": 2, "subscription": 6, "hops": 0},
        ],
        "messages": [message(4), message(5, publication=None, arrived=None, lost=True, copies=2)],
        "positions": [{"t": 0, "node": 7, **PLACE}, {"t": 9, "node": 8, **PLACE}],
        "views": [
            {"t": 0, "node": 7, "other": 8, **PLACE},
            {"t": 9, "node": 8, "other": 7, **PLACE},
        ],
        "notes": [
            {"t": 0, "node": 7, "fact": "joined", "about": None, "value": None},
            {"t": 1, "node": 7, "fact": "linked", "about": 8, "value": 0.05},
        ],
        **fences(),
    }


def fence_area(t: int, **changes: Any) -> Row:
    return {
        "t": t, "node": 7, "subscription": 5, "set": None, "fence": None, "since": t,
        "shape": "box", **PLACE, "rx": 1.0, "ry": 2.0, "rz": 3.0, **STANDING, "until": None,
        "outline": None, "ended": False, **changes,
    }  # fmt: skip


def fences() -> Rows:
    """States, the tables of fences, and direct messages."""
    interest = {
        "node": 7, "set": None, "events": "enter,dwell", "dwell": 5, "linger": 0, "channel": "",
        "filter": "price > 2", "echo": False, "ended": False,
    }  # fmt: skip
    event = {
        "t": 9, "node": 7, "subscription": 5, "fence": None, "entity": 8, "kind": "enter",
        "reason": None, "event_t": 4, "out_t": None, **PLACE,
    }  # fmt: skip
    return {
        "direct_messages": [
            {"t": t, "node": 8, "publication": t, "to": 7, "bytes": 0} for t in (4, 6)
        ],
        "direct_deliveries": [{"t": t + 1, "node": 7, "publication": t} for t in (4, 6)],
        "states": [
            {"t": 4, "node": 8, "publication": 2, "ttl": 10, "ended": False},
            {"t": 9, "node": 8, "publication": 2, "ttl": None, "ended": True},
        ],
        "fence_interests": [
            {"t": 0, "subscription": 5, **interest},
            {"t": 3, "subscription": 6, **interest, "set": "depots", "dwell": None},
        ],
        "fence_areas": [
            fence_area(0, shape="disc", ry=0.0, rz=0.0, vx=1.0, until=9),
            fence_area(
                3, node=0, subscription=None, set="depots", fence='"north"', outline=TRIANGLE
            ),
        ],
        "fence_events": [
            event,
            {**event, "t": 30, "kind": "leave", "reason": "left", "fence": '"é"'},
        ],
    }


def columns(table: str, rows: list[Row]) -> pa.Table:
    """Rows as a table of the right types, with nulls wherever one likes."""
    free = pa.schema([field.with_nullable(True) for field in TABLES[table]])
    return pa.Table.from_pylist(rows, schema=free)


def write_part(root: Path, table: str, content: pa.Table, number: int = 0) -> Path:
    (root / table).mkdir(parents=True, exist_ok=True)
    file = root / table / f"part-{number:05}.parquet"
    pq.write_table(content, file)
    return file


def write_trace(root: Path, tables: Mapping[str, list[Row]]) -> Path:
    """Write these rows as a trace, one file for each table."""
    root.mkdir()
    (root / "scenario.json").write_text('{"schema": 1}')
    for table, rows in tables.items():
        write_part(root, table, columns(table, rows))
    return root
