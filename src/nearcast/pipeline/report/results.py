"""Reads the result tables of some runs for reports, with pyarrow and without Spark.

An absent table is an empty table. Runs are labelled by the settings in which they differ.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.errors import TraceError
from nearcast.pipeline.report.formatting import clean
from nearcast.storage import AnyPath, list_names, open_parquet
from nearcast.trace.reader import EARTH, GEOMETRY

Numbers = npt.NDArray[np.float64]
EMPTY = pa.table({})
LABEL_LENGTH = 48  # characters that a legend has room for


class Results:
    """Result tables by name and run, each read once.

    They fit into memory: a table has a row for each node, link, channel or second of a run, for
    each of at most 2,000 nodes in each second, or a bounded sample; none has one for each
    publication, delivery or message.
    """

    def __init__(
        self, folder: AnyPath, runs: Sequence[str], scenarios: Mapping[str, dict[str, Any]]
    ) -> None:
        if not folder.is_dir():
            raise TraceError(f"there are no results at {folder}")
        if not runs:
            raise TraceError(f"no run of {folder} is given, so there is nothing to report")
        self.folder, self.runs = folder, list(dict.fromkeys(runs))
        self.scenarios = {run: flatten(scenarios.get(run, {})) for run in self.runs}
        self.labels = run_labels(self.scenarios)
        self._read: dict[tuple[str, str], pa.Table] = {}

    def table(self, name: str, run: str) -> pa.Table:
        if (name, run) not in self._read:
            self._read[name, run] = read_folder(self.folder / name / f"run={run}")
        return self._read[name, run]

    def with_rows(self, name: str) -> dict[str, pa.Table]:
        """The tables of the runs that have rows in it."""
        tables = {run: self.table(name, run) for run in self.runs}
        return {run: table for run, table in tables.items() if len(table)}

    def on_earth(self, run: str) -> bool:
        """Whether its places are ECEF metres."""
        return bool(self.scenarios[run].get(GEOMETRY) == EARTH)

    def was_counted(self, name: str) -> bool:
        """Whether the job ran at all: one without rows leaves an empty folder."""
        return (self.folder / name).is_dir()


def read_folder(folder: AnyPath) -> pa.Table:
    """All rows of a folder of Parquet files, sorted by all columns in their order.

    Files whose names begin with a dot or _ are ignored.
    """
    parts = []
    for name in list_names(folder):
        if name.endswith(".parquet") and name[0] not in "._":
            try:
                with open_parquet(folder / name) as file:
                    parts.append(file.read())
            except (OSError, pa.ArrowException) as error:
                reason = str(error).split("\n")[0]
                raise TraceError(
                    f"the results in {folder / name} cannot be read: {reason}"
                ) from None
    if not parts:
        return EMPTY
    whole = pa.concat_tables(parts, promote_options="default")
    return whole.sort_by([(name, "ascending") for name in whole.column_names])


def column(table: pa.Table, name: str) -> pa.ChunkedArray:
    if name not in table.column_names:
        raise TraceError(f"a result table has no column {name}, only {table.column_names}")
    return table.column(name)


def numbers(table: pa.Table, name: str) -> Numbers:
    """A column as doubles, nan where it is null or not finite."""
    values = column(table, name).cast(pa.float64(), safe=False).fill_null(float("nan"))
    found = np.asarray(values.to_numpy(), dtype=np.float64)
    return np.where(np.isfinite(found), found, np.nan)


def complete_rows(table: pa.Table, *names: str) -> pa.Table:
    """The rows whose values in these columns are all known and finite."""
    if not len(table):
        return table
    known = np.logical_and.reduce([np.isfinite(numbers(table, name)) for name in names])
    return table.filter(pa.array(known))


def first_row(table: pa.Table) -> dict[str, Any]:
    rows: list[dict[str, Any]] = table.slice(0, 1).to_pylist()
    return rows[0] if rows else {}


def top_rows(table: pa.Table, most: int, *by: str) -> pa.Table:
    """The rows with the highest values in these columns; equals are sorted by the others."""
    if not len(table):
        return table
    keys = [(name, "descending") for name in by]
    keys += [(name, "ascending") for name in table.column_names if name not in by]
    return table.take(pc.sort_indices(table, sort_keys=keys)[:most])


def flatten(scenario: Mapping[str, Any]) -> dict[str, Any]:
    """A scenario's own fields and its settings in one dictionary."""
    settings = scenario.get("settings")
    own = {name: value for name, value in scenario.items() if name != "settings"}
    return own | (settings if isinstance(settings, dict) else {})


def differing_settings(scenarios: Mapping[str, dict[str, Any]]) -> list[str]:
    """The settings in which the known scenarios differ, in the order of the scenarios."""
    known = [scenario for scenario in scenarios.values() if scenario]
    names = dict.fromkeys(name for scenario in known for name in scenario)
    return [name for name in names if len({repr(one.get(name)) for one in known}) > 1]


def format_setting(value: Any) -> str:
    """A setting as a user would type it: 20 rather than 20.0."""
    return f"{value:g}" if isinstance(value, float) and abs(value) < 1e6 else str(value)


def own_settings(scenarios: Mapping[str, dict[str, Any]]) -> dict[str, list[str]]:
    """The settings of each run that differ between runs; nothing for a run without a scenario.

    Settings that only some runs have are left out: they follow from the protocol or workload.
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
    """A short label for each run; all are different.

    If the differing settings are too long, runs are numbered, and labelled by as few settings as
    distinguish them.
    """
    if len(scenarios) == 1:
        ((run, scenario),) = scenarios.items()
        choices = [str(scenario[name]) for name in ("protocol", "workload") if name in scenario]
        return {run: ", ".join(choices) or run}
    own = own_settings(scenarios)
    whole = {run: ", ".join(settings) or run for run, settings in own.items()}
    if len(set(whole.values())) == len(own) and max(map(len, whole.values())) <= LABEL_LENGTH:
        return whole
    columns = list(zip(*(settings for settings in own.values() if settings), strict=True))
    telling: list[int] = []
    for place in range(len(columns)):
        before, now = (
            set(zip(*(columns[i] for i in some), strict=True))
            for some in (telling, [*telling, place])
        )
        if len(now) > max(1, len(before)):
            telling.append(place)
    short = {run: ", ".join(settings[i] for i in telling) or run if settings else run
             for run, settings in own.items()}  # fmt: skip
    return {
        run: clean(f"#{i} {name}", LABEL_LENGTH) for i, (run, name) in enumerate(short.items(), 1)
    }
