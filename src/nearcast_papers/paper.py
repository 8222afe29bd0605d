"""The parts of a reproduction: scenarios to run, jobs that count, measures, claims and figures.

A claim that does not hold stays in the list, with a note. Nothing here computes a result:
simulations write traces, the pipeline counts, and a paper reads the result tables.
"""

from collections.abc import Callable, Iterable, Sequence
from copy import copy
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
from msgspec import Struct
from pyspark.sql import DataFrame

from nearcast.errors import NearcastError
from nearcast.pipeline.report.plots import Plot
from nearcast.pipeline.report.results import Results
from nearcast.scenario import Scenario


class SeedResult(Struct, frozen=True):
    """What the runs of one seed alone give for a claim."""

    seed: int
    measured: str
    holds: bool


class ReadingResult(Struct, frozen=True):
    """What another reading of the paper than the main one gives for a claim."""

    reading: str
    measured: str
    holds: bool


class ClaimResult(Struct, frozen=True, kw_only=True):
    """An evaluated claim, as in claims.json. `holds` is None if it was not measured; see `note`.

    `measured` and `holds` are of all seeds together; `spread` is there where a paper has several.
    """

    paper: str
    claim: str  # e.g. 000.12
    says: str
    expected: str
    measured: str
    holds: bool | None
    soft: bool = False  # ambiguous, not the paper's own, or known not to be reproducible
    note: str = ""
    reading: str = ""  # how the paper was read; empty where there is one way to read it
    seeds: tuple[int, ...] = ()  # of the runs that were judged
    spread: tuple[SeedResult, ...] = ()  # each seed alone
    others: tuple[ReadingResult, ...] = ()  # other readings that were tried


class Figure(Struct, frozen=True):
    """A figure of a paper: plots, and the claims that they show."""

    number: str
    caption: str
    plots: list[Plot]
    claims: Sequence[str]


class NotMeasuredError(NearcastError, LookupError):
    """No run with the needed settings was made."""


class CountedRuns:
    """The result tables of runs, selected by the settings of their scenarios."""

    def __init__(self, results: Results, scenarios: Sequence[Scenario]) -> None:
        self._results = results
        self._scenarios = scenarios

    def runs(self, **settings: Any) -> list[Scenario]:
        """The runs that have these settings."""
        return [
            scenario
            for scenario in self._scenarios
            if all(_setting_of(scenario, name) == value for name, value in settings.items())
        ]

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(sorted({scenario.seed for scenario in self._scenarios}))

    def of_seed(self, seed: int) -> "CountedRuns":
        """The runs of one seed alone."""
        return CountedRuns(self._results, self.runs(seed=seed))

    def require(self, **settings: Any) -> list[Scenario]:
        """The runs that have these settings; NotMeasuredError if there are none."""
        runs = self.runs(**settings)
        if not runs:
            raise NotMeasuredError(", ".join(f"{name}={value}" for name, value in settings.items()))
        return runs

    def rows(self, table: str, **settings: Any) -> list[dict[str, Any]]:
        """A table's rows of all runs that have these settings, with the run and its seconds."""
        return [
            {**row, "run": run.run, "seconds": run.seconds}
            for run in self.require(**settings)
            for row in self.table(table, run).to_pylist()
        ]

    def table(self, name: str, run: Scenario) -> pa.Table:
        return self._results.table(name, run.run)

    @property
    def folder(self) -> Path:
        """The paper's folder, with its traces and results; it is on this machine."""
        return Path(str(self._results.folder)).parent


def _setting_of(scenario: Scenario, name: str) -> Any:
    return getattr(scenario, name) if hasattr(scenario, name) else scenario.settings.get(name)


class PaperClaim(Struct, frozen=True):
    """A claim of a paper, and the rule that gives what was measured and whether it holds."""

    item: int
    says: str
    expected: str
    rule: Callable[[Any], tuple[str, bool]] | None  # None: it cannot be measured here
    soft: bool = False
    note: str = ""

    def evaluate(self, paper: str, number: str, measures: Any) -> ClaimResult:
        """The claim `number`.`item`, evaluated on these measures."""
        holds: bool | None = None
        measured, note = "", self.note
        try:
            if self.rule is not None:
                measured, holds = self.rule(measures)
        except NotMeasuredError as why:
            note = f"No run with {why}. {note}".strip()
        return ClaimResult(
            paper=paper, claim=f"{number}.{self.item}", says=self.says, expected=self.expected,
            measured=measured, holds=holds, soft=self.soft, note=note,
        )  # fmt: skip


class PaperMeasures:
    """What a paper measures, read from result tables. Each paper has a subclass."""

    def __init__(self, counted: CountedRuns) -> None:
        self._counted = counted

    @property
    def seeds(self) -> tuple[int, ...]:
        """Of all runs together."""
        return self._counted.seeds

    def of_seed(self, seed: int) -> Self:
        """The same measures, of the runs of one seed alone."""
        one = copy(self)
        one._counted = self._counted.of_seed(seed)
        return one


class Paper(Struct, frozen=True):
    """A paper, as `nearcast reproduce` needs it."""

    name: str  # in the command line
    title: str
    figures: tuple[str, ...]
    scenarios: Callable[[str, bool], Iterable[Scenario]]  # of a figure, quick or full
    jobs: tuple[Callable[..., DataFrame], ...]  # those whose result tables are read
    claims: Callable[[CountedRuns], list[ClaimResult]]
    draw: Callable[[CountedRuns], list[Figure]]
