"""The exact spatio-temporal join on columns: who should have heard what. No Spark in here.

Interests become rows that hold from their `t` until the subscription's next row; publications are
asked in order of time, slice by slice, through the very kernels that match live (`matching`).
Filters and formulas are asked pair by pair of the model's own functions.
"""

from collections.abc import Iterator
from typing import Any, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from nearcast.matching import kernels
from nearcast.matching.rows import ALIVE, DOUBTFUL, ECHO, FORMULA, MOVES, ROW
from nearcast.model.subscription import Filter, Formula
from nearcast.space.motion import FOREVER
from nearcast.space.shapes import Kind, Shape

Integers: TypeAlias = NDArray[np.int64]
Pairs: TypeAlias = tuple[Integers, Integers]  # places of publications in their table; subscriptions

SHAPES = pa.array(["point", "disc", "box"])  # in the order of their codes
PLACE = ("x", "y", "z", "rx", "ry", "rz")
MOTION = ("vx", "vy", "vz", "gx", "gy", "gz")


def column(table: pa.Table, name: str) -> Any:
    return table.column(name).to_numpy()


def spans(interests: pa.Table, lo: int = -FOREVER, hi: int = FOREVER) -> pa.Table:
    """The interests in force at some moment of [lo, hi), each with the `end` of its time.

    Of several rows of one subscription at one microsecond the first in order of their values
    counts, so that the answer does not depend on the order of files.
    """
    names = ("rx", "z", "y", "x", "ended", "t", "subscription")
    order = np.lexsort([column(interests, name) for name in names])
    t, subscription = column(interests, "t")[order], column(interests, "subscription")[order]
    same = subscription[1:] == subscription[:-1]
    end = np.full(len(order), FOREVER)
    end[:-1][same] = t[1:][same]
    doubled = np.zeros(len(order), np.bool_)
    doubled[1:] = same & (t[1:] == t[:-1])
    # A doubled row ends the one before it at once; what it would have held, that one holds.
    if doubled.any():
        keep = ~doubled
        order, t, subscription = order[keep], t[keep], subscription[keep]
        same = subscription[1:] == subscription[:-1]
        end = np.full(len(order), FOREVER)
        end[:-1][same] = t[1:][same]
    in_force = (t < hi) & (end > lo) & ~column(interests, "ended")[order]
    held = interests.take(order[in_force])
    return held.append_column("end", pa.array(end[in_force]))


def rows_of(held: pa.Table, channels: pa.Array) -> Any:
    """Spans as the rows that the kernels read."""
    rows = np.zeros(held.num_rows, ROW)
    filtered = held.column("filter").is_valid().to_numpy()
    formulas = held.column("formula").is_valid().to_numpy()
    moves = np.zeros(held.num_rows, np.bool_)
    for name in (*PLACE, *MOTION):
        rows[name] = column(held, name)
    for name in MOTION:
        moves |= rows[name] != 0
    rows["flags"] = (
        ALIVE
        | np.where(column(held, "echo"), ECHO, 0)
        | np.where(moves, MOVES, 0)
        | np.where(filtered | formulas, DOUBTFUL, 0)
        | np.where(formulas, FORMULA, 0)
    )
    rows["kind"] = pc.index_in(held.column("shape"), SHAPES).to_numpy()
    rows["id"], rows["node"] = column(held, "subscription"), column(held, "node")
    rows["channel"] = pc.index_in(held.column("channel"), channels).to_numpy()
    rows["since"] = rows["valid_from"] = column(held, "t")
    rows["until"] = pc.fill_null(held.column("until"), FOREVER).to_numpy()
    rows["valid_to"] = column(held, "end")
    return rows


def join(held: pa.Table, publications: pa.Table) -> Iterator[Pairs]:
    """Every pair that should have been heard, in pieces; publications must be in order of time."""
    if not held.num_rows or not publications.num_rows:
        return
    channels = held.column("channel").unique()
    rows = rows_of(held, channels)
    t = column(publications, "t")
    columns = (
        t,
        column(publications, "node"),
        pc.fill_null(pc.index_in(publications.column("channel"), channels), -1)
        .cast(pa.int64())
        .to_numpy(),
        pc.index_in(publications.column("shape"), SHAPES).cast(pa.int64()).to_numpy(),
        np.column_stack([column(publications, name) for name in PLACE[:3]]),
        np.column_stack([column(publications, name) for name in PLACE[3:]]),
    )
    bounded = np.where(np.isfinite(columns[5]), columns[5], 0.0)
    reach = float(bounded.max(axis=1).mean())
    doubts = Doubts(held, publications) if np.any(rows["flags"] & DOUBTFUL) else None
    for first, last in slices(rows, t):
        part = tuple(each[first:last] for each in columns)
        for which, subscription in _ask(rows, part, reach, doubts, first):
            yield which + first, subscription


def slices(rows: Any, t: Integers) -> Iterator[tuple[int, int]]:
    """Cut the publications into slices of time in which few subscriptions change or move far.

    Too long a slice, and every version of a moving region is a candidate; too short, and the index
    is built more often than it is asked. Building costs about as much per row as asking does per
    publication, so there are never more slices than make the two equal.
    """
    begin, end = int(t[0]), int(t[-1]) + 1
    starting = np.count_nonzero(rows["valid_from"] <= begin)
    by_change = len(rows) / (2 * starting + 100)
    by_motion = (end - begin) / 1e6 / (4 * kernels.calm(rows, len(rows)))
    if not np.any(rows["flags"] & MOVES):
        by_motion = 0.0
    affordable = 1 + 4 * len(t) / (len(rows) / max(by_change, 1.0) + 1)
    count = int(min(max(by_change, by_motion, 1.0), affordable))
    cuts = np.searchsorted(t, np.linspace(begin, end, count + 1)[1:-1].astype(np.int64))
    edges = np.unique(np.concatenate(([0], cuts, [len(t)])))
    yield from zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)


def _ask(
    rows: Any, part: Any, reach: float, doubts: "Doubts | None", first: int
) -> Iterator[Pairs]:
    t = part[0]
    index = kernels.build(rows, len(rows), int(t[0]), int(t[-1]), reach)
    order = kernels.arrange(part[4], index[0])
    skip = np.empty(0, np.uint8)
    capacity = len(rows) + min(2**20, 64 * len(t) + 1024)
    done = 0
    while done < len(t):
        out = [np.empty(capacity, np.int64) for _ in range(4)]
        done, n, m = kernels.query(part, order, done, rows, index, index[3], skip, *out)
        if n:
            yield out[0][:n], out[1][:n]
        if m and doubts is not None:
            sure = doubts.settle(out[2][:m] + first, out[3][:m])
            yield out[2][:m][sure], rows["id"][out[3][:m][sure]]


class Doubts:
    """Filters and formulas have the last word: the model's own functions, pair by pair.

    Equal filters on equal attributes are asked once, unless they evolve.
    """

    def __init__(self, held: pa.Table, publications: pa.Table) -> None:
        self._t = column(publications, "t")
        self._since = pc.fill_null(held.column("since"), 0).to_numpy()
        self._filters = held.column("filter").to_pylist()
        self._formulas = held.column("formula").to_pylist()
        self._attributes = publications.column("attributes").to_pylist()
        self._places = publications.select(["shape", *PLACE])
        self._known: dict[tuple[str, str | None], bool] = {}

    def settle(self, publications: Integers, places: Integers) -> NDArray[np.bool_]:
        return np.array(
            [
                self._wants(i, k)
                for i, k in zip(publications.tolist(), places.tolist(), strict=True)
            ],
            np.bool_,
        )

    def _wants(self, publication: int, place: int) -> bool:
        t, since = int(self._t[publication]), int(self._since[place])
        if self._formulas[place] is not None:
            row = self._places.slice(publication, 1).to_pylist()[0]
            shape = Shape(Kind[row["shape"].upper()], *(row[name] for name in PLACE))
            if not Formula(self._formulas[place], since).touches(shape, t):
                return False
        condition = self._filters[place]
        return condition is None or self._accepts(condition, since, publication, t)

    def _accepts(self, condition: str, since: int, publication: int, t: int) -> bool:
        text = self._attributes[publication]
        if since:  # written only where a filter evolves
            return Filter(condition, since).accepts(msgspec.json.decode(text or "{}"), t)
        key = (condition, text)
        if key not in self._known:
            attributes = msgspec.json.decode(text or "{}")
            self._known[key] = Filter(condition).accepts(attributes, 0)
        return self._known[key]
