"""Merges the traces of the nodes of a cluster, and of clients that recorded their own.

A node records the subscriptions, publications and deliveries of its own clients; the nodes of a
cluster together record the whole run. A client that records a trace of its own records what has
arrived. Its deliveries then replace those that its node recorded.

A node that was killed could not record that its clients' subscriptions ended with it, and the last
seconds of its trace are lost. Those subscriptions end with the last row that it left. Deliveries of
publications that nobody recorded cannot be judged; they are left out and counted.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.errors import TraceError
from nearcast.storage import AnyPath, PathInput
from nearcast.trace import reader
from nearcast.trace.schema import TABLES
from nearcast.trace.sinks import SCENARIO, SUMMARY, TraceFolder

DEPARTED = "departed"
CLIENT_JOINED, CLIENT_LEFT = ("joined", "arrived"), ("left", DEPARTED)


def merge(
    node: PathInput,
    others: Sequence[PathInput],
    into: PathInput,
) -> dict[str, Any]:
    """Write the merged trace, part by part; give how many clients and deliveries it has of whom."""
    root = reader.folder(node)
    if not (root / SCENARIO).exists():
        raise TraceError(f"{root} has no {SCENARIO}")
    folders = [reader.folder(other) for other in others]
    nodes = [root, *(folder for folder in folders if not _is_client_trace(folder))]
    client_traces = [folder for folder in folders if _is_client_trace(folder)]
    nobody = pa.array([], pa.int64())
    entities = pa.concat_arrays(
        [nobody, *(_entities(client_trace) for client_trace in client_traces)]
    )
    killed = [folder for folder in nodes if not (folder / SUMMARY).exists()]
    recorded = _publications(nodes) if killed and len(nodes) > 1 else None
    merged = TraceFolder(into, (root / SCENARIO).read_bytes())
    counts, unrecorded = dict.fromkeys(TABLES, 0), 0
    sources = [
        (n, table, part) for table in TABLES for n in nodes for part in reader.files(n, table)
    ]
    sources += [
        (d, "deliveries", part) for d in client_traces for part in reader.files(d, "deliveries")
    ]
    for source, table, part in sources:
        rows = reader.read_part(part, TABLES[table])
        if table == "deliveries":
            if source in nodes:
                rows = rows.filter(pc.invert(pc.is_in(rows.column("node"), entities)))
            if recorded is not None:
                known = rows.filter(pc.is_in(rows.column("publication"), recorded))
                unrecorded += len(rows) - len(known)
                rows = known
        merged.write({table: rows})
        counts[table] += len(rows)
    if killed and len(nodes) > 1:
        ends = _ends(nodes, killed)
        merged.write({"interests": ends})
        counts["interests"] += len(ends)
    summary = {
        "clients": len(entities), "nodes": len(nodes), "killed": len(killed),
        "unrecorded": unrecorded, "rows": counts,
    }  # fmt: skip
    merged.finish(summary)
    return summary


def _is_client_trace(folder: AnyPath) -> bool:
    """Did a client record it? Such a trace has neither interests nor publications."""
    return not reader.files(folder, "interests") and not reader.files(folder, "publications")


def _entities(client_trace: AnyPath) -> pa.Array:
    """Whose trace it is: one entity for each time that the client has joined."""
    notes = reader.read(client_trace, "notes")
    joined = notes.filter(pc.equal(notes.column("fact"), "joined"))
    if not len(joined):
        raise TraceError(f"{client_trace} is no trace that a client recorded")
    return joined.column("node").combine_chunks()


def _publications(nodes: Sequence[AnyPath]) -> pa.Array:
    parts = [
        reader.read_part(part, TABLES["publications"]).column("publication").combine_chunks()
        for node in nodes
        for part in reader.files(node, "publications")
    ]
    return pa.concat_arrays([pa.array([], pa.int64()), *parts])


def _ends(nodes: Sequence[AnyPath], killed: Sequence[AnyPath]) -> pa.Table:
    """Of the clients that died with their node, whatever had not ended: as rows of their own.

    A client that has departed and arrived nowhere had arrived at a node that was killed.
    """
    schema = TABLES["interests"]
    last: dict[int, tuple[int, bool]] = {}  # by entity: when it was last heard of, and dead by now
    for node in nodes:
        notes = reader.read(node, "notes")
        columns = (notes.column(name).to_pylist() for name in ("t", "node", "fact"))
        for t, entity, fact in zip(*columns, strict=True):
            if fact in (*CLIENT_JOINED, *CLIENT_LEFT) and t >= last.get(entity, (0, False))[0]:
                last[entity] = t, fact == DEPARTED or (fact in CLIENT_JOINED and node in killed)
    dead = pa.array([entity for entity, (_, is_dead) in last.items() if is_dead], pa.int64())
    tables = [reader.read(node, "interests") for node in nodes]
    rows = pa.concat_tables(rows.filter(pc.is_in(rows.column("node"), dead)) for rows in tables)
    rows = rows.sort_by([("subscription", "ascending"), ("t", "ascending")])
    subscription = rows.column("subscription").to_numpy()
    is_last = np.append(subscription[1:] != subscription[:-1], True)[: len(subscription)]
    rows = rows.filter(pa.array(is_last, pa.bool_()))
    rows = rows.filter(pc.invert(rows.column("ended")))
    moment = max(map(_last_moment, killed))
    seen = np.array([last[entity][0] for entity in rows.column("node").to_pylist()], np.int64)
    t = np.maximum(np.maximum(rows.column("t").to_numpy(), seen), moment) + 1
    new = {"t": pa.array(t, pa.int64()), "ended": pa.array([True] * len(t), pa.bool_())}
    still = pa.array(np.zeros(len(t)))  # what has ended moves no more
    new |= dict.fromkeys(("vx", "vy", "vz", "gx", "gy", "gz"), still)
    new["until"] = pa.nulls(len(t), pa.int64())
    return pa.table([new.get(name, rows.column(name)) for name in schema.names], schema=schema)


def _last_moment(node: AnyPath) -> int:
    tables = [reader.read(node, table) for table in ("publications", "deliveries", "interests")]
    return max((pc.max(rows.column("t")).as_py() for rows in tables if len(rows)), default=0)
