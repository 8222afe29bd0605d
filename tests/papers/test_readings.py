"""Readings of any paper: which is the main one, what each seed gives, what the note says."""

from collections.abc import Sequence
from functools import partial
from typing import Any, cast

import pytest

from nearcast.scenario import Scenario
from nearcast_papers.bubblestorm import alternative_readings as bubblestorm
from nearcast_papers.bubblestorm.paper import ALL_CLAIMS as BUBBLESTORM_CLAIMS
from nearcast_papers.drtree import alternative_readings as drtree
from nearcast_papers.drtree.paper import ALL_CLAIMS as DRTREE_CLAIMS
from nearcast_papers.paper import (
    CountedRuns,
    NotMeasuredError,
    PaperClaim,
    PaperMeasures,
    ReadingResult,
    SeedResult,
)
from nearcast_papers.readings import Interpretation, Readings, evaluate_claims
from nearcast_papers.relays import alternative_readings as relays
from nearcast_papers.relays.paper import ALL_CLAIMS as RELAYS_CLAIMS
from nearcast_papers.run import _spans, summary
from nearcast_papers.voronoi import alternative_readings as voronoi
from nearcast_papers.voronoi.paper import ALL_CLAIMS as VORONOI_CLAIMS

SEEDS = 1, 2, 3


def runs_of(seeds: Sequence[int]) -> CountedRuns:
    every = [
        Scenario(
            protocol="psense", workload="waypoint", nodes=5, seconds=1.0, seed=seed, settings={}
        )
        for seed in seeds
    ]
    return CountedRuns(cast(Any, None), every)


class SumOfSeeds(PaperMeasures):
    """Measures something that anybody can check."""

    def __init__(self, counted: CountedRuns, factor: int = 1) -> None:
        super().__init__(counted)
        self.factor = factor

    def sum(self) -> int:
        return self.factor * sum(run.seed for run in self._counted.require())


READINGS = Readings(
    (Interpretation("plainly", "says the text", SumOfSeeds, (1, 2)),),
    (
        Interpretation("twice", "says a table", partial(SumOfSeeds, factor=2), (1,)),
        Interpretation("once more", "says a figure", SumOfSeeds, (1,)),
    ),
)


def small(measures: SumOfSeeds) -> tuple[str, bool]:
    return f"{measures.sum()}", measures.sum() <= 6


def test_a_claim_is_judged_by_its_main_reading_on_all_seeds_and_on_each() -> None:
    statements = [PaperClaim(1, "small", "≤ 6", small), PaperClaim(2, "told", "so", None)]
    first, second = evaluate_claims("p", "009", statements, READINGS, runs_of(SEEDS))
    assert (first.measured, first.holds, first.seeds) == ("6", True, SEEDS)
    assert first.reading == "plainly: says the text"
    assert first.spread == tuple(SeedResult(seed, f"{seed}", True) for seed in SEEDS)
    assert first.note == (
        "Read twice (says a table), it does not hold: 12."
        " Read once more (says a figure), it holds: the same."
    )
    assert first.others == (
        ReadingResult("twice", "12", False),
        ReadingResult("once more", "6", True),
    )
    assert (second.holds, second.seeds, second.reading, second.note) == (None, (), "", "")


def test_what_holds_is_counted_with_and_without_soft_claims() -> None:
    statements = [
        PaperClaim(1, "", "", lambda _: ("", True)),
        PaperClaim(2, "", "", lambda _: ("", False), soft=True),
        PaperClaim(3, "", "", lambda measures: ("", measures.factor == 2)),
        PaperClaim(4, "", "", None),
    ]
    twice = Interpretation("twice", "says a table", partial(SumOfSeeds, factor=2), (3,))
    readings = Readings(READINGS.main, (twice,))
    assert summary(evaluate_claims("p", "009", statements, readings, runs_of(SEEDS))) == (
        "1 claims hold, 2 do not, 1 were not measured; soft ones aside 1 of 2 that were measured"
        " hold, and 1 more hold by another reading alone"
    )


def test_seeds_that_were_not_run_for_a_claim_are_left_out() -> None:
    def even(measures: SumOfSeeds) -> tuple[str, bool]:
        if measures.sum() % 2:
            raise NotMeasuredError("an even sum")
        return "even", True

    (claim,) = evaluate_claims("p", "009", [PaperClaim(1, "", "", even)], READINGS, runs_of(SEEDS))
    assert claim.seeds == (2,)
    assert claim.spread == (), "a single seed has no spread"


def test_a_paper_with_one_way_to_read_it_names_no_reading() -> None:
    plain = Readings((Interpretation("", "", SumOfSeeds, ()),))
    (claim,) = evaluate_claims("p", "009", [PaperClaim(7, "", "", small)], plain, runs_of((4,)))
    assert (claim.reading, claim.note, claim.seeds) == ("", "", (4,))


@pytest.mark.parametrize(
    ("readings", "claims"),
    [
        (drtree.READINGS, DRTREE_CLAIMS),
        (relays.READINGS, RELAYS_CLAIMS),
        (bubblestorm.READINGS, BUBBLESTORM_CLAIMS),
        (voronoi.READINGS, VORONOI_CLAIMS),
    ],
)
def test_every_reading_has_a_reason_and_none_is_tried_twice(
    readings: Readings, claims: Sequence[PaperClaim]
) -> None:
    items = {statement.item for statement in claims}
    for item in items:
        main, others = readings.main_of(item), readings.others_of(item)
        names = [main.name, *(reading.name for reading in others)]
        assert len(set(names)) == len(names)
    for reading in (*readings.main, *readings.others):
        assert bool(reading.name) == bool(reading.why)
        assert set(reading.claims) <= items


def test_seeds_in_a_row_are_told_by_the_first_and_the_last() -> None:
    assert [_spans(seeds) for seeds in ((4,), (1, 2), (1, 2, 3, 4), (1, 2, 4))] == [
        "4", "1, 2", "1 to 4", "1, 2, 4"
    ]  # fmt: skip
