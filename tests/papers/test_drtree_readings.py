"""Readings of the DR-tree's paper: other measures, the same rules, and what the notes say."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, cast

import pytest

from nearcast.scenario import Scenario
from nearcast.sim.world import resolve
from nearcast_papers.drtree import load
from nearcast_papers.drtree.alternative_readings import (
    NARROW_SPREAD,
    OTHERS,
    READINGS,
    AgainstTallestBar,
    EachPopularityOnce,
    SharedPopularities,
)
from nearcast_papers.drtree.measures import HOTSPOTS, DRTreeMeasures, LevelLoad
from nearcast_papers.drtree.paper import PAPER, scenario, scenarios
from nearcast_papers.paper import (
    ClaimResult,
    CountedRuns,
    NotMeasuredError,
    PaperClaim,
    SeedResult,
)
from nearcast_papers.readings import evaluate_claims

CURVES = {
    "cold": {1: (100, 0.0), 2: (100, 2.0), 3: (20, 4.0)},
    "warm": {2: (100, 2.0), 3: (100, 4.0)},
    "hot": {2: (100, 2.0), 3: (100, 5.0), 9: (300, 9.0)},
    "burning": {2: (100, 2.0), 3: (100, 4.0), 40: (19, 50.0)},
}


class PreparedRuns(CountedRuns):
    """Runs that were counted, each with rows that somebody has made up."""

    def __init__(self, runs: Sequence[Scenario], rows: dict[str, list[dict[str, Any]]]) -> None:
        super().__init__(cast(Any, None), [resolve(run)[0] for run in runs])
        self._rows = rows

    def of_seed(self, seed: int) -> "PreparedRuns":
        return PreparedRuns(self.runs(seed=seed), self._rows)

    def rows(self, table: str, **settings: Any) -> list[dict[str, Any]]:
        runs = self.runs(**settings)
        if not runs or not any(name.startswith(table) for name in self._rows):
            raise NotMeasuredError(str(settings))
        return [
            {**row, "run": run.run, "seconds": run.seconds}
            for run in runs
            for row in self._rows[f"{table} {run.settings['hotspots']}"]
        ]


def of_curves() -> PreparedRuns:
    rows = {
        f"popularity {hotspots}": [
            {"interested": k, "complete": n, "total_time_mean_ms": 50.0 * mean}
            for k, (n, mean) in curve.items()
        ]
        for hotspots, curve in CURVES.items()
    }
    return PreparedRuns(
        [scenario("double-wave", hotspots, cycles=10) for hotspots in HOTSPOTS], rows
    )


def evaluate_readings(statement: PaperClaim, counted: CountedRuns) -> ClaimResult:
    (claim,) = evaluate_claims("drtree", "000", [statement], READINGS, counted)
    return claim


def test_a_mean_counts_publications_or_popularities_or_those_that_all_distributions_have() -> None:
    measures = of_curves()
    assert DRTreeMeasures(measures).mean("double-wave", "cold", 2) == pytest.approx(280 / 120)
    assert EachPopularityOnce(measures).mean("double-wave", "cold", 2) == pytest.approx(3.0)
    assert EachPopularityOnce(measures).mean("double-wave", "hot", 2) == pytest.approx(16 / 3)
    assert SharedPopularities(measures).mean("double-wave", "hot", 2) == pytest.approx(
        3.5
    )  # nobody else has 9
    assert EachPopularityOnce(measures).mean("double-wave", "burning", 2) == pytest.approx(
        3.0
    )  # 40 is rare


def test_spread_may_be_seen_against_its_own_mean_or_against_the_tallest_bar() -> None:
    loads = [LevelLoad(100.0, 50.0, 0.0, 20.0, 20.0), LevelLoad(1.0, 0.5, 0.0, 0.8, 0.3)]

    class Main(DRTreeMeasures):
        def levels(self, strategy: str, hotspots: str, **settings: Any) -> list[LevelLoad]:
            del strategy, hotspots, settings
            return loads

    class Figure(AgainstTallestBar, Main):
        pass

    nothing = PreparedRuns([], {})
    assert Main(nothing).spreads("brothers", "cold") == pytest.approx([0.4, 0.8])
    assert Figure(nothing).spreads("brothers", "cold") == pytest.approx([0.4, 0.008])


def test_a_root_that_sends_nothing_is_judged_too() -> None:
    """As on one seed of the full form: the root's other children want none of what is published."""

    class OneSeed(DRTreeMeasures):
        def levels(self, strategy: str, hotspots: str, **settings: Any) -> list[LevelLoad]:
            del settings
            sent = 500.0 if strategy == "root-link" else 0.0 if hotspots == "burning" else 250.0
            return [LevelLoad(512.0, sent, 0.0, 0.0, 0.0), *[LevelLoad(0.0, 0.0, 0.0)] * 4]

    measures = OneSeed(PreparedRuns([], {}))
    rules = {claim.item: claim.rule for claim in load.CLAIMS}
    assert rules[27](measures) == (
        "times the busiest other: cold 2.00, warm 2.00, hot 2.00, burning inf", True
    )  # fmt: skip
    assert rules[21](measures)[1], "nothing is equal to nothing"
    assert rules[25](measures)[1]


def test_the_result_is_that_of_the_main_reading_and_the_note_has_what_others_gave() -> None:
    def high(measures: DRTreeMeasures) -> tuple[str, bool]:
        mean = measures.mean("double-wave", "cold", 2)
        return f"{mean:.1f}", mean > 2.9

    claim = evaluate_readings(
        PaperClaim(13, "It is high", "above 2.9", high, note="Well."), of_curves()
    )
    assert (claim.holds, claim.measured) == (False, "2.3")
    assert claim.note == (
        "Well. Read with each popularity once (figure 2), it holds: 3.0."
        " Read at shared popularities (figure 2), it holds: 3.0."
    )
    assert claim.reading.startswith("one tree for all strategies")
    assert (claim.seeds, claim.spread) == ((1,), ())


def test_each_seed_is_judged_alone_too() -> None:
    def first_seed(measures: DRTreeMeasures) -> tuple[str, bool]:
        runs = {row["run"] for row in measures.rows("popularity", "double-wave", "cold")}
        return f"{len(runs)} runs", runs == {one.run}

    scenarios_ = [scenario("double-wave", "cold", cycles=10, seed=seed) for seed in (1, 2)]
    one, _ = [resolve(run)[0] for run in scenarios_]
    counted = PreparedRuns(scenarios_, {"popularity cold": [{}]})
    claim = evaluate_readings(PaperClaim(6, "It is so", "so", first_seed), counted)
    assert (claim.measured, claim.holds, claim.seeds) == ("2 runs", False, (1, 2))
    assert claim.spread == (SeedResult(1, "1 runs", True), SeedResult(2, "1 runs", False))


def test_a_reading_that_gives_the_same_says_so() -> None:
    def most(measures: DRTreeMeasures) -> tuple[str, bool]:
        return f"{max(measures.curve('double-wave', 'hot'))}", True

    claim = evaluate_readings(PaperClaim(19, "It is so", "so", most), of_curves())
    assert claim.note == (
        "Read with each popularity once (figure 2), it holds: the same."
        " Read at shared popularities (figure 2), it holds: the same."
    )


def test_bars_count_nodes_and_the_root_of_brothers_is_aside_where_the_paper_says_so() -> None:
    assert READINGS.main_of(24).name == "by nodes of the tree, the root of Brothers aside"
    assert READINGS.main_of(23).name == "by nodes of the tree"


def test_runs_for_an_alternative_reading_do_not_count_in_the_main_one() -> None:
    every = [s for figure in PAPER.figures for s in scenarios(figure, True)]
    counted = PreparedRuns(every, {f"popularity {h}": [] for h in HOTSPOTS})
    asked: list[dict[str, Any]] = []

    class Asking(PreparedRuns):
        def rows(self, table: str, **settings: Any) -> list[dict[str, Any]]:
            del table
            asked.append({run.run: run for run in counted.runs(**settings)})
            return []

    DRTreeMeasures(Asking([], {})).curve("double-wave", "hot")
    (found,) = asked
    assert {run.settings["spread"] for run in found.values()} == {30.0}
    assert {run.settings["promotes"] for run in found.values()} == {"coverage"}
    assert {run.nodes for run in found.values()} == {1024}
    assert len({run.seed for run in found.values()}) == len(found) >= 3
    assert {run.settings["jitter_ms"] for run in found.values()} == {5.0}
    assert {run.settings["set_up_jitter"] for run in found.values()} == {False}
    assert {run.settings["join_queue"] for run in found.values()} == {1.0}


@pytest.mark.parametrize(
    ("name", "nodes", "setting", "value"),
    [
        ("with narrow hotspots", 1024, "spread", NARROW_SPREAD),
        ("with owners of least address", 1024, "promotes", "address"),
        ("in one world", 10_000, "size", 1024.0),
        ("with jitter while the tree is built", 1024, "set_up_jitter", True),
        ("joined at once", 1024, "join_queue", 0.0),
        ("joined at once", 10_000, "join_queue", 0.0),
    ],
)
def test_an_alternative_reading_uses_the_runs_that_were_made_for_it(
    name: str, nodes: int, setting: str, value: float | str
) -> None:
    every = [s for figure in PAPER.figures for s in scenarios(figure, True)]
    asked: list[Scenario] = []

    class Asking(PreparedRuns):
        def rows(self, table: str, **settings: Any) -> list[dict[str, Any]]:
            del table
            asked.extend(self.runs(**settings))
            return []

    (reading,) = [one for one in OTHERS if one.name == name]
    with suppress(NotMeasuredError):
        reading.view(Asking(every, {})).curve("double-wave", "burning", nodes=nodes)
    assert {run.settings["strategy"] for run in asked} == {"double-wave"}
    assert {(run.settings[setting], run.nodes) for run in asked} == {(value, nodes)}
    least = 5 if nodes == 1024 else 10  # seeds: trees differ, the larger the more
    assert len({run.seed for run in asked}) == len(asked) >= least


@pytest.mark.parametrize(("full", "trees"), [(False, 7), (True, 10)])
def test_growth_is_read_from_as_many_trees_whoever_joined_first(full: bool, trees: int) -> None:
    every = [resolve(s)[0] for figure in PAPER.figures for s in scenarios(figure, full)]
    large = [run for run in every if run.nodes == 10_000 and run.settings["hotspots"] == "cold"]
    for queue in (0.0, 1.0):
        seeds = {
            run.seed
            for run in large
            if (run.settings["join_queue"], run.settings["size"]) == (queue, 3200.0)
            and run.settings["strategy"] == "double-wave"
        }
        assert len(seeds) == trees
