"""Result tables by second as values over time: by second or, for long runs, by bins of several.

Ratios of a bin are ratios of sums, not means of ratios.
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

MAX_BINS = 300  # points of a chart over time
SINCE = "since the first publication"


class TimeBins(Struct, frozen=True):
    """Bins of `width` seconds each, beginning with second `first`."""

    first: int
    width: int
    number: int

    @property
    def x(self) -> list[float]:
        return [float(self.first + i * self.width) for i in range(self.number)]

    @property
    def axis(self) -> Axis:
        label = SINCE if self.width == 1 else f"{SINCE}, {self.width:,} seconds per point"
        return Axis(label, seconds, low=self.x[0], high=self.x[-1])

    def of(self, table: pa.Table) -> tuple[pa.Table, npt.NDArray[np.intp]]:
        """The rows that have a second, and the bin of each."""
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
    """The values, with nan before the run began and after it ended."""
    if not len(place):
        return np.full(len(values), nan)
    bin_number = np.arange(len(values))
    return np.where((bin_number >= place.min()) & (bin_number <= place.max()), values, nan)


def total(*names: str) -> Measure:
    """The sum of columns in each bin; 0 where the run has no rows."""

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
    """`part` divided by the sum of `wholes`; nan if that is 0."""

    def measure(table: pa.Table, time: TimeBins) -> Numbers:
        parts, whole = total(part)(table, time), total(*wholes)(table, time)
        shares: Numbers = np.full(len(parts), nan)
        np.divide(parts, whole, out=shares, where=whole > 0)
        return shares

    return measure


def mean(name: str, weight: str) -> Measure:
    """The weighted mean of a column in each bin."""

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
    """The highest value in each bin."""

    def measure(table: pa.Table, time: TimeBins) -> Numbers:
        timed, place = time.of(table)
        highest = np.full(time.number, nan)
        np.fmax.at(highest, place, numbers(timed, name))
        return highest

    return measure


def last_value(name: str) -> Measure:
    """The last value in each bin; it holds until the next one."""

    def measure(table: pa.Table, time: TimeBins) -> Numbers:
        timed, place = time.of(table.sort_by("second"))
        values, latest = np.full(time.number, nan), np.zeros(time.number, dtype=np.intp)
        values[place], latest[place] = numbers(timed, name), place
        return within_run(place, values[np.maximum.accumulate(latest)])

    return measure
