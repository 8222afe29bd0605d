"""Fixes on Earth, as they are read: kept as columns; what cannot be used is counted.

A file of a million lines usually has some that nobody can use. They are skipped, and an import says
how many, and what is wrong with the first of them. A file without any usable fix is refused.
"""

from array import array
from datetime import UTC, datetime, timedelta
from math import nan

import numpy as np
import pyarrow as pa
from msgspec import Struct
from numpy.typing import NDArray

from nearcast.errors import printable
from nearcast.space.motion import SECOND
from nearcast.trace.earth_columns import ecef_columns
from nearcast.workloads.fixes import LONGEST, Fixes, Numbers, Whole, in_order, sort_fixes

SHOWN = 40  # characters of a value that a reason quotes
HIGHEST = 1e8  # metres; farther up nothing is near the Earth
PORTION = 65_536  # fixes that are Python numbers before they become columns
RowFault = tuple[int, str, int]  # the first row of a block with it, why, and how many have it
UNIX_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class FixTable(Struct, frozen=True):
    """Fixes in the order of the file. Altitudes are NaN where there is none."""

    t: Whole  # microseconds: Unix time, or since whenever the file's clock began
    entity: pa.Array  # texts
    lon: Numbers
    lat: Numbers
    altitude: Numbers


class ImportedFixes(Struct, frozen=True):
    """The fixes of a file, sorted, and what is known of the file beyond them."""

    fixes: Fixes
    names: list[str]  # of the entities, in the order of their numbers
    earth: bool = True  # else in a plane
    epoch_us: int | None = None  # Unix time of t = 0; None: the file has no calendar
    began_us: int = 0  # t = 0 on the clock of the file; on Earth alone
    skipped: int = 0  # rows or lines that could not be used
    first_skipped: str = ""  # why the first of them could not
    notes: tuple[str, ...] = ()  # what else a person should know


class FixCollector:
    """Takes the fixes of one file, portion by portion."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.has_calendar = True  # times are Unix times
        self.skipped = 0
        self.first_skipped = ""
        self.notes: list[str] = []
        self._numbers: dict[str, int] = {}
        self._columns: dict[str, list[NDArray[np.generic]]] = {
            name: [] for name in ("entity", "t", "lon", "lat", "altitude")
        }
        self._names: list[str] = []
        self._waiting = array("q"), array("d"), array("d"), array("d")

    def skip(self, reason: str, count: int = 1) -> None:
        """Count rows that cannot be used; the first reason is kept."""
        if count and not self.skipped:
            self.first_skipped = printable(reason)
        self.skipped += count

    def add(
        self, fix: FixTable, first_row: int, kept: NDArray[np.bool_], faults: list[RowFault]
    ) -> None:
        """Take the rows that are `kept`, if there are such places and heights.

        `first_row` is the number of the first row, for a reason. `faults` are those of rows that
        are not kept.
        """
        outside = {
            "lon": ~(np.abs(fix.lon) <= 180),
            "lat": ~(np.abs(fix.lat) <= 90),
            "altitude": np.abs(fix.altitude) > HIGHEST,
        }
        for name, fault in outside.items():
            bad = fault & kept
            if bad.any():
                row = int(bad.argmax())
                value = getattr(fix, name)[row]
                reason = place_fault(f"row {first_row + row}", name, value)
                faults.append((row, reason, int(bad.sum())))
                kept = kept & ~bad
        if faults:
            self.skip(min(faults)[1], sum(count for _, _, count in faults))
        if not kept.any():
            return
        encoded = fix.entity.filter(pa.array(kept)).dictionary_encode()
        names = encoded.dictionary.to_pylist()
        numbers = [self._numbers.setdefault(name, len(self._numbers)) for name in names]
        self._columns["entity"].append(np.array(numbers, np.int64)[encoded.indices.to_numpy()])
        for name in ("t", "lon", "lat", "altitude"):
            self._columns[name].append(getattr(fix, name)[kept])

    def add_one(
        self, where: str, name: str, t: int, lon: float, lat: float, altitude: float = nan
    ) -> None:
        """Take a single fix; `where` is its place in the file, for a reason."""
        for column, value, most in (("lon", lon, 180), ("lat", lat, 90)):
            if not abs(value) <= most:
                self.skip(place_fault(where, column, value))
                return
        if abs(altitude) > HIGHEST:
            self.skip(place_fault(where, "altitude", altitude))
            return
        self._names.append(name)
        times, lons, lats, altitudes = self._waiting
        times.append(t)
        lons.append(lon)
        lats.append(lat)
        altitudes.append(altitude)
        if len(self._names) >= PORTION:
            self._flush()

    def _flush(self) -> None:
        t, lon, lat, altitude = (np.array(column) for column in self._waiting)
        names, self._names = self._names, []
        self._waiting = array("q"), array("d"), array("d"), array("d")
        fix = FixTable(t, pa.array(names, pa.string()), lon, lat, altitude)
        self.add(fix, 1, np.ones(len(names), np.bool_), [])

    def finish(self) -> ImportedFixes:
        """All fixes, sorted by entity and time; entities are numbered by their sorted names."""
        self._flush()
        if not self._columns["t"]:
            why = f"; the first of {self.skipped:,} is skipped because {self.first_skipped}"
            raise ValueError(f"{self.file} holds no usable fixes{why if self.skipped else ''}")
        entity, t, lon, lat, altitude = (
            np.concatenate(self._columns.pop(name)) for name in tuple(self._columns)
        )
        near = self._near_in_time(t)
        if not near.all():
            entity, t, lon, lat, altitude = (
                column[near] for column in (entity, t, lon, lat, altitude)
            )
        known_names = list(self._numbers)
        present = np.unique(entity)  # who had nothing but such fixes is not there
        names = [known_names[number] for number in present.tolist()]
        order = in_order(names)
        rank = np.empty(len(known_names), np.int64)
        rank[present[order]] = np.arange(len(names))
        began = int(t.min())
        known = None if np.isnan(altitude).all() else altitude
        rows = len(t)
        x, y, z = ecef_columns(lon, lat)
        fixes = sort_fixes(self.file, rank[entity], len(names), t - began, x, y, z, known)
        if repeated := rows - len(fixes.t):
            self.notes.append(
                f"{repeated:,} fixes of a moment for which the same entity has a later one in the"
                " file are left out"
            )
        return ImportedFixes(
            fixes=fixes,
            names=[names[place] for place in order],
            epoch_us=began if self.has_calendar else None,
            began_us=began,
            skipped=self.skipped,
            first_skipped=self.first_skipped,
            notes=tuple(self.notes),
        )

    def _near_in_time(self, t: Whole) -> NDArray[np.bool_]:
        """Which fixes belong to one recording: a clock that was not set is decades off."""
        middle = int(np.partition(t, len(t) // 2)[len(t) // 2])
        near = np.abs(t - middle) <= LONGEST * SECOND / 2
        if not near.all():
            row = int((~near).argmax())
            what = utc_text(int(t[row])) if self.has_calendar else f"{t[row] / SECOND:,.0f} s"
            self.skip(
                f"a fix at {what} is more than {LONGEST / 2:,.0f} s from most others",
                int((~near).sum()),
            )
        return near


def place_fault(where: str, name: str, value: float) -> str:
    if value != value:
        return f"{where} has no {name}"
    limit = {"lon": "±180 degrees", "lat": "±90 degrees", "altitude": f"±{HIGHEST:g} metres"}
    return f"{where} has {name} = {value:.10g}, beyond {limit[name]}"


def utc_text(microseconds: int) -> str:
    """A Unix time for people."""
    return f"{UNIX_EPOCH + timedelta(microseconds=microseconds):%Y-%m-%dT%H:%M:%SZ}"
