"""Readings: what a paper may have meant where it is not clear.

A reading takes the measures of a paper in its own way, so every claim can be evaluated under each
reading. The main reading of a claim is the one that the paper's words support best, whatever it
gives; the note of the claim tells which others were tried, and what each gave.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from msgspec import Struct
from msgspec.structs import replace
from pyspark.sql import DataFrame

from nearcast.pipeline.report.plots import Plot
from nearcast.scenario import Scenario
from nearcast_papers.paper import (
    ClaimResult,
    CountedRuns,
    Figure,
    NotMeasuredError,
    Paper,
    PaperClaim,
    PaperMeasures,
    ReadingResult,
    SeedResult,
)

ANSWERS = {True: "holds", False: "does not hold"}


class Interpretation(Struct, frozen=True):
    """A way to take the paper's measures, and what in its text speaks for it."""

    name: str
    why: str
    view: Callable[[CountedRuns], PaperMeasures]
    claims: Sequence[int]  # on which it bears


class Readings(Struct, frozen=True):
    """The readings of a paper. The first of `main` that bears on a claim is its main reading."""

    main: Sequence[Interpretation]
    others: Sequence[Interpretation] = ()

    def main_of(self, item: int) -> Interpretation:
        """The first of all where none bears on the claim."""
        return next((reading for reading in self.main if item in reading.claims), self.main[0])

    def others_of(self, item: int) -> list[Interpretation]:
        return [reading for reading in self.others if item in reading.claims]


def evaluate_claims(
    paper: str, number: str, claims: Sequence[PaperClaim], readings: Readings, counted: CountedRuns
) -> list[ClaimResult]:
    """Each by its main reading, on all seeds and on each; with a note of what others gave."""
    views = {one.name: one.view(counted) for one in (*readings.main, *readings.others)}
    by_seed = {
        (name, seed): measures.of_seed(seed)
        for name, measures in views.items()
        for seed in measures.seeds
    }
    found = []
    for statement in claims:
        main = readings.main_of(statement.item)
        claim = statement.evaluate(paper, number, views[main.name])
        if statement.rule is None:
            found.append(claim)
            continue
        spread = [
            SeedResult(seed, *result)
            for seed in views[main.name].seeds
            if (result := evaluate_rule(statement, by_seed[main.name, seed])) is not None
        ]
        tried = [
            (reading, ReadingResult(reading.name, *result))
            for reading in readings.others_of(statement.item)
            if (result := evaluate_rule(statement, views[reading.name])) is not None
        ]
        found.append(
            replace(
                claim,
                note=_note(claim, tried),
                reading=f"{main.name}: {main.why}" if main.name else "",
                seeds=tuple(one.seed for one in spread),
                spread=tuple(spread) if len(spread) > 1 else (),
                others=tuple(result for _, result in tried),
            )
        )
    return found


def _note(claim: ClaimResult, tried: Sequence[tuple[Interpretation, ReadingResult]]) -> str:
    text = [claim.note] if claim.note else []
    for reading, result in tried:
        same = "the same" if result.measured == claim.measured else result.measured
        text.append(f"Read {reading.name} ({reading.why}), it {ANSWERS[result.holds]}: {same}.")
    return " ".join(text)


def evaluate_rule(statement: PaperClaim, measures: PaperMeasures) -> tuple[str, bool] | None:
    """What was measured and whether the claim holds; None if nothing was run for it."""
    assert statement.rule is not None
    try:
        return statement.rule(measures)
    except NotMeasuredError:
        return None


def make_paper(
    name: str,
    number: str,
    title: str,
    scenarios: Callable[[str, bool], Iterable[Scenario]],
    jobs: tuple[Callable[..., DataFrame], ...],
    readings: Readings | Callable[[CountedRuns], PaperMeasures],
    claims: Sequence[PaperClaim],
    drawings: Mapping[str, Callable[[Any], list[Plot]]],
    captions: Mapping[str, str],
    shows: Mapping[str, Sequence[int]],
    titles: Mapping[str, str],
) -> Paper:
    """A paper whose claims and figures are all read from one object with its measures.

    `readings` are these measures alone where there is one way to read the paper; else figures are
    of the first main reading. `drawings`, `captions`, `shows` (the items of claims) and `titles`
    are by figure.
    """
    if not isinstance(readings, Readings):
        readings = Readings((Interpretation("", "", readings, ()),))
    read = readings

    def evaluate(counted: CountedRuns) -> list[ClaimResult]:
        return evaluate_claims(name, number, claims, read, counted)

    def draw(counted: CountedRuns) -> list[Figure]:
        measured = read.main[0].view(counted)
        plots: dict[str, list[Plot]] = {}
        for figure, drawing in drawings.items():
            with suppress(NotMeasuredError):
                plots[figure] = drawing(measured)
        return [
            Figure(
                titles.get(figure, f"Figure {figure}"), captions[figure], several,
                [f"{number}.{item}" for item in shows.get(figure, ())],
            )
            for figure, several in plots.items()
            if several
        ]  # fmt: skip

    return Paper(name, title, tuple(captions), scenarios, jobs, evaluate, draw)
