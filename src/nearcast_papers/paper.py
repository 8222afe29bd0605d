"""What a reproduction is made of: scenarios that run, figures drawn from what was counted, claims.

A claim that does not hold stays in the list, with what was tried. Nothing here computes a result:
simulations leave traces, the pipeline counts, and a paper reads the counts.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
from msgspec import Struct
from pyspark.sql import DataFrame

from nearcast.errors import NearcastError
from nearcast.pipeline.report.plots import Plot
from nearcast.pipeline.report.results import Results
from nearcast.scenario import Scenario


class ClaimResult(Struct, frozen=True, kw_only=True):
    """One statement of a paper. `holds` None: not measured, and `note` says why."""

    paper: str
    claim: str  # e.g. 000.12
    says: str
    expected: str
    measured: str
    holds: bool | None
    soft: bool = False  # ambiguous, not the paper's own, or known not to be reproducible
    note: str = ""


class Figure(Struct, frozen=True):
    number: str
    caption: str
    plots: list[Plot]
    claims: Sequence[str]  # those that it shows


class NotMeasuredError(NearcastError, LookupError):
    """No run that would tell is among those that were made."""


class CountedRuns:
    """What the pipeline counted, by what a run's scenario says."""

    def __init__(self, results: Results, scenarios: Sequence[Scenario]) -> None:
        self._results = results
        self._scenarios = scenarios

    def runs(self, **settings: Any) -> list[Scenario]:
        """The runs whose scenario says so."""
        return [
            scenario
            for scenario in self._scenarios
            if all(_setting_of(scenario, name) == value for name, value in settings.items())
        ]

    def rows(self, table: str, **settings: Any) -> list[dict[str, Any]]:
        """A table's rows of all runs whose scenario says so, with the run and its seconds."""
        runs = self.runs(**settings)
        if not runs:
            raise NotMeasuredError(", ".join(f"{name}={value}" for name, value in settings.items()))
        return [
            {**row, "run": run.run, "seconds": run.seconds}
            for run in runs
            for row in self.table(table, run).to_pylist()
        ]

    def table(self, name: str, run: Scenario) -> pa.Table:
        return self._results.table(name, run.run)

    @property
    def folder(self) -> Path:
        """Of the paper: where its traces and results are."""
        return self._results.folder.parent


def _setting_of(scenario: Scenario, name: str) -> Any:
    return getattr(scenario, name) if hasattr(scenario, name) else scenario.settings.get(name)


class PaperClaim(Struct, frozen=True):
    """A claim and its rule, which says what was measured and whether the claim holds."""

    item: int
    says: str
    expected: str
    rule: Callable[[Any], tuple[str, bool]] | None  # None: nothing that we could measure
    soft: bool = False
    note: str = ""

    def evaluate(self, paper: str, number: str, measures: Any) -> ClaimResult:
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


def draw_figures(
    number: str,
    drawings: Mapping[str, Callable[[Any], list[Plot]]],
    captions: Mapping[str, str],
    shows: Mapping[str, Sequence[int]],
    titles: Mapping[str, str],
    measures: Any,
) -> list[Figure]:
    """The figures of which anything was measured, each with the claims that it shows."""
    plots: dict[str, list[Plot]] = {}
    for name, drawing in drawings.items():
        with suppress(NotMeasuredError):
            plots[name] = drawing(measures)
    return [
        Figure(
            titles.get(name, f"Figure {name}"), captions[name], several,
            [f"{number}.{claim}" for claim in shows.get(name, ())],
        )
        for name, several in plots.items()
        if several
    ]  # fmt: skip


class Paper(Struct, frozen=True):
    name: str
    title: str
    figures: tuple[str, ...]
    scenarios: Callable[[str, bool], Iterable[Scenario]]  # of a figure, quick or full
    jobs: tuple[Callable[..., DataFrame], ...]  # of the pipeline: those whose tables are read
    claims: Callable[[CountedRuns], list[ClaimResult]]
    draw: Callable[[CountedRuns], list[Figure]]
