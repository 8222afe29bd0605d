"""A trace for the page: the world at any moment, and counts for every second.

Files are read row group by row group, and only those that a moment needs. The interests in force
are carried forward from group to group; checkpoints make it cheap to go back.
"""

from collections import OrderedDict
from functools import lru_cache
from math import ceil, inf
from threading import Lock, Thread
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from numpy.typing import NDArray

from nearcast.errors import TraceError
from nearcast.monitor.snapshots import (
    AREA,
    DELIVERY,
    ENTITY,
    Rows,
    drawn_outline,
    encode_snapshot,
    table,
    vertex_rows,
)
from nearcast.space.motion import SECOND, Time
from nearcast.space.outlines import Outline, outline_from_text
from nearcast.space.shapes import BOX
from nearcast.storage import AnyPath, PathInput, open_parquet
from nearcast.trace.earth_columns import lon_lat_columns, short_way
from nearcast.trace.reader import EARTH, files, folder, scenario, trace_geometry
from nearcast.trace.schema import SHAPES

Columns: TypeAlias = dict[str, NDArray[Any]]

SAMPLE_REACH: Time = 2_500_000  # positions are sampled: how far from a moment the nearest may lie
SHOWN_FOR: Time = SECOND // 10  # for how long a delivery is shown
LONGEST_LATENCY: Time = 10 * SECOND  # the longest that a publication may have been on its way
MOST_DELIVERIES = 400  # deliveries in one picture; of more, a sample
CACHED_GROUPS = 24  # row groups
CHECKPOINTS = 32  # states of the world on the way
MOST_STEPS = 2_000  # of the charts
BINS = np.geomspace(1e-5, 100.0, 141)  # seconds of latency; a bin is 12 % wide
INTERESTS = (
    "t", "node", "subscription", "shape", "x", "y", "z", "rx", "ry", "vx", "vy", "vz", "gx", "gy",
    "until", "ended", "outline",
)  # fmt: skip


class ReplayRowGroup(Struct, frozen=True):
    """One row group, and the moments that it spans."""

    part: AnyPath
    number: int
    first: Time
    last: Time
    rows: int
    bounds: tuple[float, float, float, float] | None  # of x and y


class TableReader:
    """A table as row groups in the order in which they were written."""

    def __init__(self, root: AnyPath, table: str) -> None:
        self.groups = [group for part in files(root, table) for group in _groups(part)]
        self._cache: OrderedDict[tuple[ReplayRowGroup, tuple[str, ...]], Columns] = OrderedDict()
        self._lock = Lock()

    @property
    def rows(self) -> int:
        return sum(group.rows for group in self.groups)

    def read(self, group: ReplayRowGroup, columns: tuple[str, ...]) -> Columns:
        """These columns of one row group; recently used ones are cached."""
        key = (group, columns)
        with self._lock:
            if key in self._cache:
                self._cache.move_to_end(key)
                return self._cache[key]
        with open_parquet(group.part) as file:
            there = [name for name in columns if name in file.schema_arrow.names]
            found = file.read_row_group(group.number, there)
        read = {
            name: _column(name, found.column(name)) if name in there else np.full(group.rows, None)
            for name in columns
        }
        with self._lock:
            self._cache[key] = read
            if len(self._cache) > CACHED_GROUPS:
                self._cache.popitem(last=False)
        return read

    def between(self, low: Time, high: Time, columns: tuple[str, ...]) -> Columns:
        """Rows with low < t <= high, in order of time."""
        pieces = []
        for group in self.groups:
            if group.first <= high and group.last > low:
                whole = self.read(group, columns)
                there = (whole["t"] > low) & (whole["t"] <= high)
                pieces.append({name: column[there] for name, column in whole.items()})
        return _joined(pieces, columns)


def _groups(part: AnyPath) -> list[ReplayRowGroup]:
    found = []
    with open_parquet(part) as file:
        names = file.schema_arrow.names
        for number in range(file.metadata.num_row_groups):
            group = file.metadata.row_group(number)
            sides = {
                name: group.column(names.index(name)).statistics
                for name in ("t", "x", "y")
                if name in names
            }
            if not group.num_rows:
                continue
            if sides["t"] is None or not sides["t"].has_min_max:
                t = pc.min_max(file.read_row_group(number, ["t"]).column("t")).as_py()
                first, last = t["min"], t["max"]
            else:
                first, last = sides["t"].min, sides["t"].max
            bounds = None
            if all(sides.get(name) and sides[name].has_min_max for name in ("x", "y")):
                x, y = sides["x"], sides["y"]
                bounds = (x.min, y.min, x.max, y.max)
            found.append(ReplayRowGroup(part, number, first, last, group.num_rows, bounds))
    return found


def _column(name: str, column: pa.ChunkedArray) -> NDArray[Any]:
    """Kinds of shapes become numbers, an end that is not known is far away."""
    if pa.types.is_dictionary(column.type) or pa.types.is_large_string(column.type):
        column = column.cast(pa.string())
    if name == "outline":
        return np.array(column.to_pylist(), object)
    if column.type == pa.string():
        column = pc.index_in(column, pa.array(SHAPES)).fill_null(-1)
    elif column.null_count:
        column = column.fill_null(2**62)
    values: NDArray[Any] = column.to_numpy()
    return values


def _joined(pieces: list[Columns], columns: tuple[str, ...]) -> Columns:
    if not pieces:
        return {name: np.empty(0, np.int64) for name in columns}
    whole = {name: np.concatenate([piece[name] for piece in pieces]) for name in columns}
    order = np.argsort(whole["t"], kind="stable")
    return {name: column[order] for name, column in whole.items()}


def _picked(columns: Columns, which: NDArray[Any]) -> Columns:
    return {name: column[which] for name, column in columns.items()}


class InterestTimeline:
    """What is in force at a moment: the last row of each subscription, unless it has ended."""

    def __init__(self, groups: TableReader) -> None:
        self._groups = groups
        # By how many groups were read: what was in force after the last of them.
        self._kept: dict[int, Columns] = {0: _joined([], INTERESTS)}
        self._apart = 1  # so many groups lie between two that are kept
        self._lock = Lock()

    def at(self, t: Time) -> Columns:
        """The rows in force at `t`."""
        groups = self._groups.groups
        whole = 0
        while whole < len(groups) and groups[whole].last <= t:
            whole += 1
        with self._lock:
            state = self._after(whole)
        for group in groups[whole:]:
            if group.first <= t:
                rows = self._groups.read(group, INTERESTS)
                state = _in_force(state, _picked(rows, rows["t"] <= t))
        return state

    def _after(self, whole: int) -> Columns:
        begin = max(number for number in self._kept if number <= whole)
        state = self._kept[begin]
        for number in range(begin + 1, whole + 1):
            state = _in_force(state, self._groups.read(self._groups.groups[number - 1], INTERESTS))
            if number % self._apart == 0:
                self._kept[number] = state
            if len(self._kept) > CHECKPOINTS:
                self._apart *= 2
                self._kept = {n: kept for n, kept in self._kept.items() if n % self._apart == 0}
        return state


def _in_force(before: Columns, rows: Columns) -> Columns:
    both = {name: np.concatenate((before[name], rows[name])) for name in INTERESTS}
    order = np.lexsort((both["t"], both["subscription"]))
    subscription = both["subscription"][order]
    last = np.ones(len(order), bool)
    last[:-1] = subscription[1:] != subscription[:-1]
    kept = order[last]
    return _picked(both, kept[both["ended"][kept] == 0])


class TraceReplay:
    """A trace that can be shown at any moment."""

    def __init__(self, path: PathInput) -> None:
        root = folder(path)
        self.path = root
        self.scenario = scenario(root)
        self.geometry = trace_geometry(root)
        self.tables = {
            name: TableReader(root, name)
            for name in ("interests", "publications", "deliveries", "messages", "positions")
        }
        everything = [group for table in self.tables.values() for group in table.groups]
        if not everything:
            raise TraceError(f"{root} has no rows yet")
        self.first = min(group.first for group in everything)
        self.last = max(group.last for group in everything)
        self.interests = InterestTimeline(self.tables["interests"])
        self.seconds = SecondCounts(self)

    def bounds(self) -> list[list[float]]:
        """Low and high corner of all places in the trace, which is one of a plane."""
        found = [
            group.bounds
            for name in ("positions", "publications", "interests")
            for group in self.tables[name].groups
            if group.bounds is not None and np.all(np.isfinite(group.bounds))
        ]
        if not found:
            return [[0.0, 0.0], [1.0, 1.0]]
        x0, y0, x1, y1 = np.array(found).T
        low, high = [float(x0.min()), float(y0.min())], [float(x1.max()), float(y1.max())]
        return [low, [max(high[0], low[0] + 1), max(high[1], low[1] + 1)]]

    def world(self, t: Time) -> bytes:
        """The snapshot of entities, areas and recent deliveries at `t`; on Earth in degrees."""
        areas, outlines = self._areas(t)
        entities = self._positions(t)
        known = entities[:, 0]
        owners, first = np.unique(areas[:, 0], return_index=True)
        unknown = first[~np.isin(owners, known)]
        # Where nobody has sampled it, an entity is in the middle of its area.
        centres = areas[np.sort(unknown)][:, [0, 2, 3, 6, 7, 10]]
        entities = np.concatenate((entities, centres))
        publishers = self._publishers(t, entities[:, 0])
        return encode_snapshot(
            t,
            np.concatenate((entities, publishers)),
            areas,
            self._deliveries(t),
            vertex_rows(enumerate(outlines)),
        )

    def _areas(self, t: Time) -> tuple[Rows, list[Outline | None]]:
        now = self.interests.at(t)
        bounded = np.isfinite(now["rx"]) & np.isfinite(now["ry"])
        now = _picked(now, bounded)
        end = np.minimum(t, now["until"])
        dt = np.maximum(end - now["t"], 0) / SECOND
        disc = now["shape"] == SHAPES.index("disc")
        moves = np.any([now[name] != 0 for name in ("vx", "vy", "vz", "gx", "gy")], axis=0)
        left = np.where(now["until"] >= 2**62, inf, np.maximum(now["until"] - t, 0) / SECOND)
        rx = np.maximum(now["rx"] + now["gx"] * dt, 0)
        ry = np.where(disc, rx, np.maximum(now["ry"] + now["gy"] * dt, 0))
        x, y, z = (now[axis] + now[f"v{axis}"] * dt for axis in "xyz")
        vx, vy = now["vx"], now["vy"]
        if self.geometry == EARTH:
            vx, vy = _degrees_per_second((x, y, z), (vx, vy, now["vz"]))
            x, y = lon_lat_columns(x, y, z)
        columns = (
            now["node"], now["shape"], x, y, rx, ry, vx, vy, now["gx"],
            np.where(disc, now["gx"], now["gy"]), np.where(moves, left, 0.0),
        )  # fmt: skip
        areas = _stacked(columns, AREA)
        outlines = [_outline(text) for text in now["outline"]]
        if self.geometry == EARTH:
            areas, outlines = _boxes_in_degrees(areas, outlines)
        return areas, outlines

    def _places(self, table: str, low: Time, high: Time) -> Columns:
        """Where something was in that time; x and y are longitude and latitude on Earth."""
        columns = ("t", "node", "x", "y", "z")
        found = self.tables[table].between(low, high, columns)
        if self.geometry == EARTH:
            found["x"], found["y"] = lon_lat_columns(found["x"], found["y"], found["z"])
        return found

    def _positions(self, t: Time) -> Rows:
        """Between the samples before and after, on a straight line."""
        found = self._places("positions", t - SAMPLE_REACH, t + SAMPLE_REACH)
        past = _last_of_each(_picked(found, found["t"] <= t))
        later = _picked(found, found["t"] > t)
        _, first = np.unique(later["node"], return_index=True)
        later = _picked(later, first)
        place = np.searchsorted(later["node"], past["node"])
        place[place == len(later["node"])] = 0
        if len(later["node"]):
            ahead = later["node"][place] == past["node"]
            whole = np.where(ahead, (later["t"][place] - past["t"]) / SECOND, 1.0)
            away = later["x"][place] - past["x"]
            vx = np.where(ahead, (short_way(away) if self.geometry == EARTH else away) / whole, 0.0)
            vy = np.where(ahead, (later["y"][place] - past["y"]) / whole, 0.0)
            left = np.where(ahead, (later["t"][place] - t) / SECOND, 0.0)
        else:
            vx = vy = left = np.zeros(len(past["node"]))
        dt = (t - past["t"]) / SECOND
        columns = (past["node"], past["x"] + vx * dt, past["y"] + vy * dt, vx, vy, left)
        return _stacked(columns, ENTITY)

    def _publishers(self, t: Time, known: NDArray[Any]) -> Rows:
        """Entities of which only recent publications are known."""
        published = self._places("publications", t - SAMPLE_REACH, t)
        published = _last_of_each(_picked(published, ~np.isin(published["node"], known)))
        still = np.zeros(len(published["node"]))
        columns = (published["node"], published["x"], published["y"], still, still, still)
        return _stacked(columns, ENTITY)

    def _deliveries(self, t: Time) -> Rows:
        delivered = self.tables["deliveries"].between(
            t - SHOWN_FOR, t, ("t", "node", "publication")
        )
        step = max(1, ceil(len(delivered["t"]) / MOST_DELIVERIES))
        delivered = _picked(delivered, np.arange(0, len(delivered["t"]), step))
        if not len(delivered["t"]):
            return table(DELIVERY)
        published = self.tables["publications"].between(
            t - LONGEST_LATENCY, t, ("t", "node", "publication")
        )
        which, known = _found(published["publication"], delivered["publication"])
        return np.stack((published["node"][which[known]], delivered["node"][known]), axis=1).astype(
            np.float64
        )


def _stacked(columns: tuple[NDArray[Any], ...], width: tuple[str, ...]) -> Rows:
    stacked = np.stack([column.astype(np.float64) for column in columns], axis=1)
    return stacked.reshape(-1, len(width))


def _outline(text: str | None) -> Outline | None:
    return None if text is None else _read_outline(text)


_read_outline = lru_cache(4_096)(outline_from_text)


def _boxes_in_degrees(
    areas: Rows, outlines: list[Outline | None]
) -> tuple[Rows, list[Outline | None]]:
    """On Earth a box is that of an outline, and nothing that can be drawn without one."""
    kept = []
    for number in np.flatnonzero(areas[:, 1] == BOX):
        drawn = drawn_outline(outlines[number])
        if drawn is not None:
            areas[number, 2:6] = drawn.x, drawn.y, drawn.rx, drawn.ry
            kept.append(number)
    which = np.sort(np.concatenate((np.flatnonzero(areas[:, 1] != BOX), kept))).astype(int)
    return areas[which], [outlines[number] for number in which]


def _degrees_per_second(
    place: tuple[NDArray[Any], ...], velocity: tuple[NDArray[Any], ...]
) -> tuple[Any, Any]:
    """How longitude and latitude change, at metres per second."""
    lon, lat = lon_lat_columns(*place)
    soon_lon, soon_lat = lon_lat_columns(*(p + v for p, v in zip(place, velocity, strict=True)))
    return short_way(soon_lon - lon), soon_lat - lat


def _last_of_each(found: Columns) -> Columns:
    """Of rows in order of time: the last one of each node, in order of nodes."""
    _, from_behind = np.unique(found["node"][::-1], return_index=True)
    return _picked(found, len(found["node"]) - 1 - from_behind)


def _found(names: NDArray[Any], wanted: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Where each wanted name stands among the names, and whether it does."""
    order = np.argsort(names, kind="stable")
    place = np.searchsorted(names, wanted, sorter=order)
    place[place == len(names)] = 0
    if not len(names):
        return np.zeros(len(wanted), np.int64), np.zeros(len(wanted), bool)
    which = order[place]
    return which, names[which] == wanted


class SecondCounts:
    """How much happened in each second (of a long run, in each few seconds), and how late.

    A thread reads the tables once, row group by row group; until it is done, the table is partial.
    """

    def __init__(self, replay: TraceReplay) -> None:
        self._replay = replay
        self.step_s = max(1, ceil((replay.last - replay.first + 1) / SECOND / MOST_STEPS))
        steps = (replay.last - replay.first) // (self.step_s * SECOND) + 1
        self._counts = {
            name: np.zeros(steps)
            for name in ("publications", "deliveries", "interests", "messages", "bytes")
        }
        self._late = np.zeros((steps, len(BINS) + 1))
        self.done = False
        self._thread = Thread(target=self._count, name="nearcast-seconds", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def table(self) -> dict[str, Any]:
        """Per second: counts, and percentiles of latency in milliseconds."""
        rates = {name: (counts / self.step_s).tolist() for name, counts in self._counts.items()}
        return {
            "step_s": self.step_s, "done": self.done, **rates,
            "p50_ms": self._percentile(0.5), "p99_ms": self._percentile(0.99),
        }  # fmt: skip

    def _percentile(self, share: float) -> list[float]:
        sums = np.cumsum(self._late, axis=1)
        place = np.argmax(sums >= share * sums[:, -1:], axis=1)
        bounds = np.append(BINS, BINS[-1]) * 1000
        return [float(ms) for ms in np.where(sums[:, -1] > 0, bounds[place], 0.0)]

    def _step(self, t: NDArray[Any]) -> NDArray[Any]:
        step: NDArray[Any] = (t - self._replay.first) // (self.step_s * SECOND)
        return step

    def _add(self, name: str, t: NDArray[Any], weights: NDArray[Any] | None = None) -> None:
        counts = self._counts[name]
        counts += np.bincount(self._step(t), weights, minlength=len(counts))[: len(counts)]

    def _count(self) -> None:
        tables = self._replay.tables
        for name in ("interests", "publications", "deliveries", "messages"):
            columns = {
                "messages": ("t", "bytes", "copies"), "deliveries": ("t", "publication"),
            }.get(name, ("t",))  # fmt: skip
            for group in tables[name].groups:
                read = tables[name].read(group, columns)
                self._add(name, read["t"], read.get("copies"))
                if name == "messages":
                    self._add("bytes", read["t"], read["bytes"])
                if name == "deliveries":
                    self._add_latency(read)
        self.done = True

    def _add_latency(self, delivered: Columns) -> None:
        low, high = int(delivered["t"].min()) - LONGEST_LATENCY, int(delivered["t"].max())
        published = self._replay.tables["publications"].between(low, high, ("t", "publication"))
        which, known = _found(published["publication"], delivered["publication"])
        late = (delivered["t"][known] - published["t"][which[known]]) / SECOND
        step = self._step(delivered["t"][known])
        place = step * (len(BINS) + 1) + np.searchsorted(BINS, late)
        flat = np.bincount(place, minlength=self._late.size)
        self._late += flat.reshape(self._late.shape)
