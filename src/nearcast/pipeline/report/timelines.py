"""Result tables by second, as lines: in seconds or, where there are too many, stretches of several.

A stretch of several seconds is told as truly as one: ratios are of sums, not means of ratios.
"""

from collections.abc import Callable, Sequence
from math import ceil, nan

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from nearcast.pipeline.report.charts import Axis
from nearcast.pipeline.report.formatting import seconds
from nearcast.pipeline.report.results import Numbers, numbers

MAX_BINS = 300  # points along a chart of time, at most
SINCE = "since the first publication"


class TimeBins(Struct, frozen=True):
    first: int
    width: int
    number: int

    @property
    def x(self) -> list[float]:
        return [float(self.first + i * self.width) for i in range(self.number)]

    @property
    def axis(self) -> Axis:
        label = SINCE if self.width == 1 else f"{SINCE}, {self.width:,} seconds to a point"
        return Axis(label, seconds, low=self.x[0], high=self.x[-1])

    def of(self, table: pa.Table) -> tuple[pa.Table, npt.NDArray[np.intp]]:
        """The rows that have a second, and the stretch of each."""
        timed = table.filter(pc.is_valid(table.column("second")))
        place = (numbers(timed, "second") - self.first) // self.width
        return timed, place.astype(np.intp)


def time_bins(tables: Sequence[pa.Table]) -> TimeBins:
    every = np.concatenate([numbers(table, "second") for table in tables])
    known = every[np.isfinite(every)]
    if not len(known):
        return TimeBins(0, 1, 0)
    first, last = int(known.min()), int(known.max())
    width = ceil((last - first + 1) / MAX_BINS)
    return TimeBins(first, width, (last - first) // width + 1)


Measure = Callable[[pa.Table, TimeBins], Numbers]


def within_run(place: npt.NDArray[np.intp], values: Numbers) -> Numbers:
    """The values, but none before a run began or after it ended: another may have lasted longer."""
    if not len(place):
        return np.full(len(values), nan)
    stretch = np.arange(len(values))
    return np.where((stretch >= place.min()) & (stretch <= place.max()), values, nan)


def total(*names: str) -> Measure:
    """The sum of columns in each stretch, 0 where nothing happened while the run lasted."""

    def measure(table: pa.Table, time: TimeBins) -> Numbers:
        timed, place = time.of(table)
        sums = np.zeros(time.number)
        for name in names:
            np.add.at(sums, place, np.nan_to_num(numbers(timed, name)))
        return within_run(place, sums)

    return measure


def per_second(name: str) -> Measure:
    return lambda table, time: total(name)(table, time) / time.width


def ratio(part: str, *wholes: str) -> Measure:
    """Part over the sum of the wholes; of nothing, none."""

    def measure(table: pa.Table, time: TimeBins) -> Numbers:
        parts, whole = total(part)(table, time), total(*wholes)(table, time)
        shares: Numbers = np.full(len(parts), nan)
        np.divide(parts, whole, out=shares, where=whole > 0)
        return shares

    return measure


def mean(name: str, weight: str) -> Measure:
    def measure(table: pa.Table, time: TimeBins) -> Numbers:
        timed, place = time.of(table)
        sums, weights = np.zeros(time.number), np.zeros(time.number)
        np.add.at(sums, place, numbers(timed, name) * numbers(timed, weight))
        np.add.at(weights, place, numbers(timed, weight))
        means: Numbers = np.full(time.number, nan)
        np.divide(sums, weights, out=means, where=weights > 0)
        return means

    return measure


def worst(name: str) -> Measure:
    """The highest value of each stretch."""

    def measure(table: pa.Table, time: TimeBins) -> Numbers:
        timed, place = time.of(table)
        highest = np.full(time.number, nan)
        np.fmax.at(highest, place, numbers(timed, name))
        return highest

    return measure


def last_value(name: str) -> Measure:
    """The last value of each stretch, which holds until there is another."""

    def measure(table: pa.Table, time: TimeBins) -> Numbers:
        timed, place = time.of(table.sort_by("second"))
        values, told = np.full(time.number, nan), np.zeros(time.number, dtype=np.intp)
        values[place], told[place] = numbers(timed, name), place
        return within_run(place, values[np.maximum.accumulate(told)])

    return measure
