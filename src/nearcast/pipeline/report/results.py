"""The result tables of some runs, as reports read them: with pyarrow alone, without Spark.

A table that is absent is an empty table. Runs are told apart by what differs between their
scenarios.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from nearcast.errors import TraceError
from nearcast.pipeline.report.formatting import clean

Numbers = npt.NDArray[np.float64]
EMPTY = pa.table({})
LABEL_LENGTH = 48  # letters of a label that a legend has room for


class Results:
    """Result tables by name and run, each read once."""

    def __init__(
        self, folder: Path, runs: Sequence[str], scenarios: Mapping[str, dict[str, Any]]
    ) -> None:
        if not folder.is_dir():
            raise TraceError(f"there are no results at {folder}")
        if not runs:
            raise TraceError(f"no run of {folder} was named, so there is nothing to report")
        self.folder, self.runs = folder, list(dict.fromkeys(runs))
        self.scenarios = {run: flatten(scenarios.get(run, {})) for run in self.runs}
        self.labels = run_labels(self.scenarios)
        self._read: dict[tuple[str, str], pa.Table] = {}

    def table(self, name: str, run: str) -> pa.Table:
        if (name, run) not in self._read:
            self._read[name, run] = read_folder(self.folder / name / f"run={run}")
        return self._read[name, run]

    def with_rows(self, name: str) -> dict[str, pa.Table]:
        """The tables of the runs that have any rows in it."""
        tables = {run: self.table(name, run) for run in self.runs}
        return {run: table for run, table in tables.items() if len(table)}

    def was_counted(self, name: str) -> bool:
        """Whether the job ran at all: one that finds nothing leaves an empty folder."""
        return (self.folder / name).is_dir()


def read_folder(folder: Path) -> pa.Table:
    """All rows of a folder of Parquet files, in order: the first columns are what others go by.

    Names that begin with a dot or _ are not ours.
    """
    parts = []
    for file in sorted(folder.glob("[!._]*.parquet")) if folder.is_dir() else ():
        try:
            parts.append(pq.ParquetFile(file).read())
        except (OSError, pa.ArrowException) as error:
            reason = str(error).split("\n")[0]
            raise TraceError(f"the results in {file} cannot be read: {reason}") from None
    if not parts:
        return EMPTY
    whole = pa.concat_tables(parts, promote_options="default")
    return whole.sort_by([(name, "ascending") for name in whole.column_names])


def column(table: pa.Table, name: str) -> pa.ChunkedArray:
    if name not in table.column_names:
        raise TraceError(f"a result table has no column {name}, only {table.column_names}")
    return table.column(name)


def numbers(table: pa.Table, name: str) -> Numbers:
    """A column as doubles, nan where it is null or not finite: what has no place on paper."""
    values = column(table, name).cast(pa.float64(), safe=False).fill_null(float("nan"))
    found = np.asarray(values.to_numpy(), dtype=np.float64)
    return np.where(np.isfinite(found), found, np.nan)


def complete_rows(table: pa.Table, *names: str) -> pa.Table:
    """The rows whose values in these columns are all known and finite: those that can be drawn."""
    if not len(table):
        return table
    known = np.logical_and.reduce([np.isfinite(numbers(table, name)) for name in names])
    return table.filter(pa.array(known))


def first_row(table: pa.Table) -> dict[str, Any]:
    rows: list[dict[str, Any]] = table.slice(0, 1).to_pylist()
    return rows[0] if rows else {}


def top_rows(table: pa.Table, most: int, *by: str) -> pa.Table:
    """The rows with the highest values in these columns; of equals, the first by all the rest."""
    if not len(table):
        return table
    keys = [(name, "descending") for name in by]
    keys += [(name, "ascending") for name in table.column_names if name not in by]
    return table.take(pc.sort_indices(table, sort_keys=keys)[:most])


def flatten(scenario: Mapping[str, Any]) -> dict[str, Any]:
    """A scenario's own fields and its settings, side by side."""
    settings = scenario.get("settings")
    own = {name: value for name, value in scenario.items() if name != "settings"}
    return own | (settings if isinstance(settings, dict) else {})


def differing_settings(scenarios: Mapping[str, dict[str, Any]]) -> list[str]:
    """The settings in which known scenarios differ, in the order in which they are written."""
    known = [scenario for scenario in scenarios.values() if scenario]
    names = dict.fromkeys(name for scenario in known for name in scenario)
    return [name for name in names if len({repr(one.get(name)) for one in known}) > 1]


def format_setting(value: Any) -> str:
    """A setting as one would type it: 20 rather than 20.0."""
    return f"{value:g}" if isinstance(value, float) and abs(value) < 1e6 else str(value)


def own_settings(scenarios: Mapping[str, dict[str, Any]]) -> dict[str, list[str]]:
    """What each run has for its own, as one would type it; nothing for one that is not known.

    Settings that only some runs have follow from the choice of a protocol or workload, which is
    told, so they are not.
    """
    known = [scenario for scenario in scenarios.values() if scenario]
    differ = [name for name in differing_settings(scenarios) if all(name in one for one in known)]
    first = [name for name in ("protocol", "workload") if name in differ]
    names = dict.fromkeys([*first, *differ])
    return {
        run: [f"{name}={format_setting(scenario[name])}" for name in names if scenario]
        for run, scenario in scenarios.items()
    }


def run_labels(scenarios: Mapping[str, dict[str, Any]]) -> dict[str, str]:
    """What to call each run in little room; all different.

    Where what differs is too much, runs are numbered, and named by as little as tells them apart.
    """
    if len(scenarios) == 1:
        ((run, scenario),) = scenarios.items()
        choices = [str(scenario[name]) for name in ("protocol", "workload") if name in scenario]
        return {run: ", ".join(choices) or run}
    own = own_settings(scenarios)
    whole = {run: ", ".join(told) or run for run, told in own.items()}
    if len(set(whole.values())) == len(own) and max(map(len, whole.values())) <= LABEL_LENGTH:
        return whole
    columns = list(zip(*(told for told in own.values() if told), strict=True))
    telling: list[int] = []
    for place in range(len(columns)):
        before, now = (
            set(zip(*(columns[i] for i in some), strict=True))
            for some in (telling, [*telling, place])
        )
        if len(now) > max(1, len(before)):
            telling.append(place)
    short = {run: ", ".join(told[i] for i in telling) or run if told else run
             for run, told in own.items()}  # fmt: skip
    return {
        run: clean(f"#{i} {name}", LABEL_LENGTH) for i, (run, name) in enumerate(short.items(), 1)
    }
