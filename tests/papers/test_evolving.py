"""The reproduction of [Evolving]: claims, examples, jobs, and a small reproduction."""

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from msgspec.structs import replace
from pyspark.sql import SparkSession

from nearcast.matching import MATCHERS
from nearcast.matching.scan import ScanMatcher
from nearcast.model.publication import Publication
from nearcast.sim.world import resolve
from nearcast.space.motion import SECOND
from nearcast_papers import PAPERS
from nearcast_papers.evolving import examples, jobs, semantics
from nearcast_papers.evolving.load_and_accuracy import crossing
from nearcast_papers.evolving.measures import EvolvingMeasures
from nearcast_papers.evolving.paper import ALL_CLAIMS, CAPTIONS, DRAWINGS
from nearcast_papers.evolving.scenarios import (
    CHOICES,
    DESIGNS,
    SIDE_BY_SIDE,
    scenario,
    scenarios,
)
from nearcast_papers.paper import CountedRuns, NotMeasuredError
from nearcast_papers.run import reproduce
from support.small_runs import by_keys, rows_of

EXAMPLES = {statement.item: statement for statement in semantics.CLAIMS}
ALONE = (1, 2, 3, 4, 5, 6, 8, 11)  # decided by examples, without any run


def test_every_claim_of_the_papers_list_is_there_once_and_in_order() -> None:
    assert [statement.item for statement in ALL_CLAIMS] == list(range(1, 18))
    assert [s.item for s in ALL_CLAIMS if s.soft] == [15, 16], "those of the follow-up paper"


def test_every_figure_has_a_caption_a_drawing_and_runs_in_both_forms() -> None:
    assert PAPERS["evolving"].figures == tuple(CAPTIONS) == tuple(DRAWINGS)
    for figure in CAPTIONS:
        quick, full = (
            {resolve(one)[0].run for one in scenarios(figure, thorough)}
            for thorough in (False, True)
        )
        assert 0 < len(quick) < len(full)


@pytest.mark.parametrize("item", ALONE)
def test_a_claim_about_semantics_holds_by_what_an_example_did(item: int) -> None:
    claim = EXAMPLES[item].evaluate("evolving", "001", None)
    assert claim.holds is True, claim.measured


class Deaf(ScanMatcher):
    """Nothing is anywhere."""

    def match(self, publication: Publication, at: int) -> list[int]:
        return [] if at == publication.t else super().match(publication, at)


class Frozen(ScanMatcher):
    """Everything as it was when it was submitted."""

    def match(self, publication: Publication, at: int) -> list[int]:
        return super().match(publication, min(at, examples.SUBMITTED))


@pytest.mark.parametrize(("item", "wrong"), [(1, Deaf), (2, Deaf), (3, Frozen), (4, Frozen)])
def test_one_wrong_engine_is_enough_for_a_claim_to_fail_and_is_named(
    item: int, wrong: type[ScanMatcher], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(MATCHERS, "lazy", wrong)
    claim = EXAMPLES[item].evaluate("evolving", "001", None)
    assert claim.holds is False
    assert "lazy" in claim.measured


def test_examples_observe_errors_where_there_are_some() -> None:
    errors, unexplained = examples.cached_errors(2 * SECOND, 300)
    assert errors > 10
    assert unexplained == 0
    assert examples.cached_errors(0, 100) == (0, 0)
    oldest, heights = examples.staleness(2 * SECOND, 6)
    assert oldest == pytest.approx(1.9)
    assert heights == [4.0]


def test_a_crossing_is_found_between_two_points_on_logarithmic_scales() -> None:
    assert crossing([(0.1, 0.1), (1.0, 1.0), (10.0, 10.0)]) == pytest.approx(1.0)
    assert crossing([(1.0, 0.5), (4.0, 2.0)]) == pytest.approx(2.0)
    assert crossing([(1.0, 2.0), (4.0, 3.0)]) is None
    assert crossing([(1.0, 0.2), (4.0, 0.3)]) is None


# Measures.


class WrittenResults:
    """Result tables that a test has written, the same for every run."""

    def __init__(self, **tables: list[dict[str, Any]]) -> None:
        self._tables = tables

    def table(self, name: str, _run: str) -> pa.Table:
        return pa.Table.from_pylist(self._tables[name])


def test_people_who_chose_side_by_side_are_judged_each_by_their_own_choice() -> None:
    def by_node(node: int, missed: int, spurious: int) -> dict[str, Any]:
        return {"node": node, "expected": 100, "missed": missed, "spurious": spurious}

    rows = [
        by_node(0, 4, 2),
        by_node(4, 6, 0),
        by_node(1, 0, 0),
        by_node(2, 0, 9),
        by_node(7, 1, 0),
    ]
    evaluations = [{"second": second, "evaluations": 30} for second in (0, 19, 20)]
    written: Any = WrittenResults(delivery_by_node=rows, evaluations_by_second=evaluations)
    measures = EvolvingMeasures(
        CountedRuns(written, [resolve(one)[0] for one in scenarios("notifications", False)])
    )
    found = {
        choice: (one.missed, one.spurious)
        for choice in CHOICES
        for one in [measures.chosen_errors(choice, side_by_side=True)]
    }
    assert found == {
        "periodic": (0.05, 0.01), "lazy": (0, 0), "cached": (0, 0.09), "swept": (0.01, 0)
    }  # fmt: skip
    assert measures.chosen_errors("lazy", side_by_side=False).missed == 11 / 500
    assert measures.chosen_evaluations(SIDE_BY_SIDE) == 3, "second 20 is after the end"
    with pytest.raises(NotMeasuredError):
        measures.chosen_errors("tile", side_by_side=False)


def test_no_claim_is_judged_on_the_seeds_of_notifications() -> None:
    runs = [*scenarios("notifications", False), *scenarios("monitor", False)]
    measures = EvolvingMeasures(CountedRuns(WrittenResults(), runs))
    assert measures.seeds == (1,)


# Jobs.


def test_messages_are_counted_by_second_from_where_positions_begin(spark: SparkSession) -> None:
    positions = rows_of(spark, "positions", [{"run": "a", "t": 3_100_000 + k} for k in (9, 0, 5)])
    moments = ((3_099_999, "Interest"), (3_100_000, "Interest"), (4_099_999, "Interest"),
               (4_100_000, "Cancel"), (4_200_000, "Interest"))  # fmt: skip
    messages = rows_of(
        spark,
        "messages",
        [{"run": "a", "t": t, "kind": kind, "bytes": 10, "copies": 2} for t, kind in moments],
    )
    found = by_keys(jobs.words_by_second(messages, positions), ("run", "second", "kind"))
    assert found == {
        ("a", 0, "Interest"): (4, 20),
        ("a", 1, "Cancel"): (2, 10),
        ("a", 1, "Interest"): (2, 10),
    }


def test_a_note_of_evaluations_counts_for_the_time_before_it(spark: SparkSession) -> None:
    positions = rows_of(spark, "positions", [{"run": "a", "t": 3_100_000}])
    noted = ((3_100_000, 5.0), (3_200_000, 7.0), (4_100_000, 1.0), (4_200_000, 9.0))
    notes = [{"run": "a", "t": t, "fact": "evaluations", "value": v} for t, v in noted]
    notes.append({"run": "a", "t": 3_200_000, "fact": "faults", "value": 100.0})
    found = jobs.evaluations_by_second(rows_of(spark, "notes", notes), positions)
    assert by_keys(found, ("run", "second")) == {("a", 0): (8,), ("a", 1): (9,)}


def moved(rows: list[dict[str, Any]], begin: int, last: int) -> dict[int, list[float]]:
    """Moves and seconds of motion in each second, microsecond by hundredth of a second."""
    found: dict[int, list[float]] = defaultdict(lambda: [0, 0.0])
    for place, row in enumerate(rows):
        replaced = [r["t"] for r in rows[place + 1 :] if r["subscription"] == row["subscription"]]
        stop = min([last, *replaced[:1], *([row["until"]] if row.get("until") else [])])
        if row.get("vx") or "* t" in (row.get("filter") or ""):
            if begin <= row["t"] < stop:
                found[(row["t"] - begin) // SECOND][0] += 1
            for moment in range(max(begin, row["t"]), stop, SECOND // 100):
                found[(moment - begin) // SECOND][1] += 0.01
    return found


def test_movement_is_how_many_interests_evolve_and_how_long_in_each_second(
    spark: SparkSession,
) -> None:
    begin, last = 2 * SECOND, 8 * SECOND
    rows: list[dict[str, Any]] = [
        {"subscription": 1, "t": SECOND, "vx": 1.0, "until": 4 * SECOND},
        {"subscription": 2, "t": SECOND},
        {"subscription": 2, "t": 2 * SECOND, "vx": -1.0, "until": 3_500_000},
        {"subscription": 3, "t": 2_250_000, "filter": "price >= 1 + 2 * t"},
        {"subscription": 2, "t": 5_000_000, "vx": 1.0, "until": 9_000_000},
        {"subscription": 3, "t": 5_500_000, "filter": "price >= 7"},
        {"subscription": 2, "t": 5_750_000},
    ]
    for row in rows:
        row["run"] = "a"
    found = jobs.movement_by_second(
        rows_of(spark, "interests", rows),
        rows_of(spark, "publications", [{"run": "a", "t": last - SECOND}]),
        rows_of(spark, "positions", [{"run": "a", "t": begin}]),
    )
    wanted = moved(rows, begin, last)
    assert {key[1]: list(value) for key, value in by_keys(found, ("run", "second")).items()} == {
        second: [moves, pytest.approx(seconds)] for second, (moves, seconds) in wanted.items()
    }


def test_equal_movement_has_one_fingerprint_whenever_it_begins(spark: SparkSession) -> None:
    def tables(run: str, begin: int, x: float) -> tuple[Any, Any, Any]:
        wanted = {"run": run, "t": begin, "subscription": 1, "vx": 1.0}
        publications = [{"run": run, "t": begin + k, "publication": k, "x": x * k} for k in (1, 2)]
        return (
            [{**wanted, "t": begin - 5, "vx": 9.0}, wanted],
            publications,
            [{"run": run, "t": begin}],
        )

    runs = [tables("a", 1000, 3.0), tables("b", 7000, 3.0), tables("c", 1000, 3.5)]
    frames = [
        rows_of(spark, table, [row for run in runs for row in run[place]])
        for place, table in enumerate(("interests", "publications", "positions"))
    ]
    found = by_keys(jobs.movements(*frames), ("run",))
    assert found[("a",)] == found[("b",)]
    assert found[("a",)][:2] == (2, 1)
    assert found[("c",)][2] != found[("a",)][2]


# The whole.


@pytest.mark.soak  # Spark plans a hundred small questions
def test_a_small_reproduction_replays_one_movement_through_every_design(
    spark: SparkSession, tmp_path: Path
) -> None:
    few = [scenario(design, seconds=4.0) for design in DESIGNS]
    paper = replace(PAPERS["evolving"], scenarios=lambda _figure, _full: few)
    claims = {claim.claim: claim for claim in reproduce(spark, paper, ("monitor",), tmp_path)}
    assert len(claims) == 17
    assert claims["001.17"].holds is True, claims["001.17"].measured
    assert claims["001.8"].holds is True
    assert claims["001.10"].holds is None, "nobody ran the crossover"
    assert claims["001.16"].holds is None, "nobody ran other intervals"
    written = json.loads((tmp_path / "claims.json").read_text())
    assert [claim["claim"] for claim in written] == list(claims)
    assert "monitor-all" in {file.stem for file in (tmp_path / "figures").glob("*.svg")}
    _nothing_is_missing_of_what_was_drawn(tmp_path)


def _nothing_is_missing_of_what_was_drawn(out: Path) -> None:
    drawn = {file.stem for file in (out / "figures").glob("*.png")}
    assert {"traffic-messages", "traffic-bytes", "accuracy-mammoth", "monitor-interests"} <= drawn
    assert "crossover" not in drawn
