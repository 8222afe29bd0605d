"""How rows are reduced at a flush: the last interest of each instant, and sums of messages."""

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from nearcast.space.motion import SECOND

NULL_INTEGER = -(2**63)  # a null among integers, where no time or identifier can be


def last_of_each_instant(interests: NDArray[np.void]) -> NDArray[np.void]:
    """Without the rows that another row of the same subscription and instant replaces."""
    order = np.lexsort((interests["t"], interests["subscription"]))
    t, subscription = interests["t"][order], interests["subscription"][order]
    last = np.ones(len(order), np.bool_)
    last[:-1] = (t[1:] != t[:-1]) | (subscription[1:] != subscription[:-1])
    return interests[np.sort(order[last])]


def sum_messages(messages: NDArray[np.void]) -> NDArray[np.void]:
    """The level "sums": copies and bytes per second, sender, receiver, kind and fate."""
    columns = {name: np.ascontiguousarray(messages[name]) for name in messages.dtype.names or ()}
    columns["t"] = columns["t"] - columns["t"] % SECOND
    alike = ["t", "node", "to", "kind", "lost"]
    grouped = (
        pa.table({name: columns[name] for name in (*alike, "bytes", "copies")})
        .group_by(alike, use_threads=False)
        .aggregate([("bytes", "sum"), ("copies", "sum")])
    )
    sums = np.empty(grouped.num_rows, messages.dtype)
    for name in alike:
        sums[name] = grouped.column(name).to_numpy()
    for name in ("bytes", "copies"):
        sums[name] = grouped.column(f"{name}_sum").to_numpy()
    sums["publication"] = sums["arrived"] = NULL_INTEGER
    return sums
