"""The reproduction of [VSO]: claims, geometry, jobs, and a small reproduction."""

import json
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest
from msgspec.structs import replace
from pyspark.sql import SparkSession

from nearcast.model.publication import Publication
from nearcast.node import Message
from nearcast.pipeline.sweeps import SweepMember
from nearcast.protocols.overlay import FIRST_SERVER
from nearcast.protocols.voronoi.vso.messages import (
    MESSAGES,
    Alive,
    Cast,
    Notify,
    Post,
    Record,
    RecordCopies,
    RegionUpdate,
    RegionUpdates,
    ReplicaMatch,
)
from nearcast.sim.world import resolve
from nearcast.space.motion import SECOND, Moving
from nearcast.space.shapes import disc, point
from nearcast.wire import Codec
from nearcast_papers import PAPERS
from nearcast_papers.fits import growth_exponent, line_fit, percentile, spearman
from nearcast_papers.paper import CountedRuns, NotMeasuredError
from nearcast_papers.run import expected_work, reproduce
from nearcast_papers.voronoi import examples, geometry, jobs
from nearcast_papers.voronoi.alternative_readings import OurRecovery, WideBuffer
from nearcast_papers.voronoi.measures import VSOMeasures, snapshots
from nearcast_papers.voronoi.paper import ALL_CLAIMS, CAPTIONS, DRAWINGS, SHOWS
from nearcast_papers.voronoi.scenarios import (
    FULL,
    MIN_MATCHERS,
    QUICK,
    SEVERAL,
    SEVERAL_NINE,
    STABLE,
    measured_from,
    scenario,
    scenarios,
)
from support.small_runs import by_keys, rows_of

BEGIN = 2_500_000


def test_every_claim_of_the_papers_list_is_there_once_and_in_order() -> None:
    assert [statement.item for statement in ALL_CLAIMS] == list(range(1, 34))
    shown = {item for items in SHOWS.values() for item in items}
    assert shown <= set(range(1, 34))


def test_every_figure_has_a_caption_a_drawing_and_runs_in_both_forms() -> None:
    assert PAPERS["voronoi"].figures == tuple(CAPTIONS) == tuple(DRAWINGS)
    for figure in CAPTIONS:
        few, many = (
            {resolve(one)[0].run for one in scenarios(figure, thorough) if one.seed == 1}
            for thorough in (False, True)
        )
        assert 0 < len(few) <= len(many)
    narrow = [one for one in scenarios("9", True) if one.settings["buffer"] == FULL.buffer]
    full = {one.nodes: one for one in narrow}
    assert [(nodes, one.seconds) for nodes, one in full.items()] == [
        (50, 300.0), (100, 300.0), (200, 300.0), (500, 240.0), (1000, 240.0)
    ]  # fmt: skip
    settling = {nodes: one.settings.get("settle_s", 0.0) for nodes, one in full.items()}
    assert settling == {50: 0.0, 100: 0.0, 200: 0.0, 500: 210.0, 1000: 210.0}
    assert measured_from(240.0) == 215.0
    assert measured_from(60.0) == 40.0


@pytest.mark.parametrize("full", [False, True])
def test_figure_7_and_table_1_have_several_seeds_at_two_sizes_each(full: bool) -> None:
    seeds = (FULL if full else QUICK).seeds
    for figure, several in (("7", SEVERAL_NINE), ("table", SEVERAL)):
        by_nodes: dict[int, set[int]] = {}
        for one in scenarios(figure, full):
            by_nodes.setdefault(one.nodes, set()).add(one.seed)
        assert {nodes for nodes, found in by_nodes.items() if found == set(seeds)} == set(several)
        assert all(found == {1} for nodes, found in by_nodes.items() if nodes not in several)


def test_wider_areas_are_another_reading_of_the_full_form_alone() -> None:
    for full in (False, True):
        runs = [resolve(one)[0] for one in scenarios("table", full)]
        counted = CountedRuns(cast(Any, None), runs)
        main = (50, 100, 200, 500, 1000) if full else (50, 100, 200)
        assert VSOMeasures(counted).sizes() == list(main)
        if full:
            assert WideBuffer(counted).sizes() == [200, 500]
        else:
            with pytest.raises(NotMeasuredError):
                WideBuffer(counted).sizes()


def test_runs_of_the_full_form_begin_with_the_largest() -> None:
    runs = [resolve(one)[0] for figure in CAPTIONS for one in scenarios(figure, True)]
    members = {one.run: SweepMember(one.run, {}, one) for one in runs}
    first, second, *_ = sorted(members.values(), key=expected_work, reverse=True)
    assert (first.scenario.nodes, second.scenario.nodes) == (1000, 500)


@pytest.mark.parametrize("full", [False, True])
def test_churn_has_runs_for_both_recoveries_and_the_papers_has_several_seeds(full: bool) -> None:
    every = [resolve(one)[0] for figure in ("8", "candidates") for one in scenarios(figure, full)]
    counted = CountedRuns(cast(Any, None), list({one.run: one for one in every}.values()))
    several = 3 if full else 5
    for view, retry_ms, seeds in ((VSOMeasures, 5000.0, several), (OurRecovery, 500.0, 1)):
        measures = view(counted)
        for nodes in STABLE:
            for rate in measures.churn_rates(nodes):
                runs = counted.runs(**measures._churn_runs(nodes), churn_rate=rate)
                assert {one.settings["retry_ms"] for one in runs} == {retry_ms}
                wanted = seeds if rate in (1.0, 5.0, 10.0) else 1
                assert len(runs) == len({one.seed for one in runs}) == wanted
        assert measures.churn_rates(STABLE[0], MIN_MATCHERS)


# Geometry.


def test_figure_2_counts_both_divisions_of_the_same_populations() -> None:
    found = geometry.count_regions(5)
    assert all(tree % 3 == 1 for tree, _ in found), "each split makes three more"
    assert all(tree >= 5 <= cells for tree, cells in found), "fifty, ten to a region"
    assert found == geometry.count_regions(5)


def test_voronoi_regions_are_as_many_as_clusters_that_fill_one_each() -> None:
    clusters = [(100.0, 100.0), (650.0, 120.0), (380.0, 650.0)]
    rng = Random(1)
    crowd = [(x + rng.uniform(-40, 40), y + rng.uniform(-40, 40)) for x, y in clusters * 9]
    assert geometry.voronoi_regions(crowd, 10, Random(2)) in (3, 4)
    assert geometry.voronoi_regions(crowd[:9], 10, Random(2)) == 1


def test_greedy_ways_grow_with_the_number_of_sites() -> None:
    few, many = geometry.mean_hops(25), geometry.mean_hops(400)
    assert 1 < few < many < 400
    assert growth_exponent([(1, 3.0), (4, 6.0), (16, 12.0)]) == pytest.approx(0.5)


# Examples and small arithmetic.


def test_a_dead_matchers_subscriptions_go_to_those_that_enclosed_it() -> None:
    found = examples.matcher_failure()
    assert found.adopted == found.orphans > 0
    assert found.changed
    assert set(found.changed) <= set(found.enclosing)


def test_percentiles_ranks_slopes_and_snapshots_are_those_of_the_textbook() -> None:
    assert percentile([5.0, 1.0, 4.0, 2.0, 3.0], 90) == 5.0
    assert percentile([5.0, 1.0, 4.0, 2.0, 3.0], 40) == 2.0
    assert percentile([float(k) for k in range(1, 101)], 90) == 90.0
    assert spearman([1, 2, 5, 10], [9.0, 8.0, 7.0, 0.0]) == pytest.approx(-1)
    assert spearman([1, 2, 3], [1.0, 1.0, 1.0]) == 0
    assert line_fit({0: 1.0, 10: 3.0, 20: 5.0}.items())[0] == pytest.approx(0.2)
    assert snapshots({0: 0.0, 9: 1.0, 10: 1.0, 25: 0.5}) == {10: 0.5, 20: 1.0, 30: 0.5}


# Jobs.


def noted(run: str, *words: tuple[float, int, str]) -> list[dict[str, Any]]:
    return [
        {"run": run, "t": BEGIN + round(t * SECOND), "node": node, "fact": fact}
        for t, node, fact in words
    ]


def frames(spark: SparkSession, notes: list[dict[str, Any]], seconds: int) -> dict[str, Any]:
    """A run that begins at BEGIN and publishes for so long."""
    said = [{"run": "a", "t": BEGIN + seconds * SECOND}]
    return {
        "notes": rows_of(spark, "notes", notes),
        "positions": rows_of(spark, "positions", [{"run": "a", "t": BEGIN}]),
        "publications": rows_of(spark, "publications", said),
    }


def test_population_is_who_is_there_in_the_middle_of_each_second(spark: SparkSession) -> None:
    notes = noted(
        "a", (-2.0, FIRST_SERVER, "matcher"), (-1.0, 1, "joined"), (1.2, 2, "joined"),
        (2.0, 2, "matcher"), (2.6, 1, "crashed"), (4.4, 2, "resigned"), (5.0, 2, "left"),
    )  # fmt: skip
    found = by_keys(jobs.population_by_second(**frames(spark, notes, 6)), ("run", "second"))
    assert found == {
        ("a", 0): (1, 1, 1), ("a", 1): (2, 1, 1), ("a", 2): (2, 2, 1), ("a", 3): (1, 2, 1),
        ("a", 4): (1, 1, 1), ("a", 5): (0, 1, 1),
    }  # fmt: skip


def test_bandwidth_is_of_the_last_third_and_of_the_role_in_each_second(
    spark: SparkSession,
) -> None:
    notes = noted("a", (0.0, 1, "matcher"), (7.0, 1, "resigned"), (0.0, 2, "matcher"))
    sent = [
        (5.9, 1, 3, 1000, False),  # before the last third
        (6.1, 1, 3, 10, False), (6.2, 1, 3, 20, True), (6.9, 2, 1, 7, False),
        (7.1, 1, 2, 5, False), (8.5, 2, 3, 100, False), (9.5, 2, 3, 1000, False),
    ]  # fmt: skip
    messages = [
        {"run": "a", "t": BEGIN + round(t * SECOND), "node": node, "to": to, "bytes": size,
         "lost": lost, "kind": "vso.post", "copies": 1}
        for t, node, to, size, lost in sent
    ]  # fmt: skip
    messages[5] |= {"kind": Notify.kind, "copies": 2}  # VAST needs 36 bytes for each
    tables = frames(spark, notes, 9) | {"messages": rows_of(spark, "messages", messages)}
    by_node = by_keys(jobs.bandwidth_by_node(**tables), ("run", "matches", "node"))
    assert by_node == {
        ("a", True, 1): (1, *(30.0, 30, 7.0, 7) * 3, 515.0, 1000),
        ("a", False, 1): (1, *(5.0, 5, 0.0, 0) * 3, 5.0, 5),
        ("a", True, 2): (
            3, 107 / 3, 100, 5 / 3, 5, *(79 / 3, 72, 5 / 3, 5) * 2, 107 / 3, 100
        ),
        ("a", False, 3): (2, 0.0, 0, 55.0, 100, *(0.0, 0, 41.0, 72) * 2, 0.0, 0),
    }  # fmt: skip
    ((counted, matchers, up, up_max, up_min, *_),) = by_keys(
        jobs.matcher_bandwidth(**tables), ("run",)
    ).values()
    assert (counted, matchers) == (3, 4 / 3)
    assert up == pytest.approx(((30 + 7) / 2 + 0 + 100) / 3)
    assert (up_max, up_min) == (pytest.approx(130 / 3), pytest.approx(107 / 3))


def test_the_authors_program_posts_and_forwards_nothing_and_writes_its_own_sizes(
    spark: SparkSession,
) -> None:
    publication = Publication(1, 1, 5, point(1.0, 2.0))
    moved = Moving(disc(442.7, 390.7, 202.0), since=31_557_828)
    record = Record(2**38, 58, moved, 31_557_828, 4, FIRST_SERVER + 3, b"1234", 31_557_828)
    said: list[tuple[Message, int]] = [
        (Post(publication), 0), (Cast(publication, 1), 0), (ReplicaMatch(publication, (), 1), 0),
        (Notify(publication, 1), 36), (RegionUpdate(7, 1, moved), 24),
        (RegionUpdates(((2**38, 31_557_828, moved),) * 20), 20 * 24),
        (RecordCopies((record,) * 20), 20 * 58), (Alive(), Codec(*MESSAGES).size(Alive())),
    ]  # fmt: skip
    messages = [
        {"run": "a", "t": BEGIN + 2 * SECOND, "node": node, "to": 99, "lost": False, "copies": 1,
         "bytes": Codec(*MESSAGES).size(message), "kind": message.kind}
        for node, (message, _) in enumerate(said)
    ]  # fmt: skip
    tables = frames(spark, noted("a", (0.0, 1, "matcher")), 3)
    found = jobs.bandwidth_by_node(messages=rows_of(spark, "messages", messages), **tables)
    sent = {row["node"]: row["program_up_max"] for row in found.collect()}
    for node, (message, wanted) in enumerate(said):
        assert sent[node] == pytest.approx(wanted, rel=0.03), message.kind


def test_of_a_long_run_only_the_end_is_measured(spark: SparkSession) -> None:
    notes = noted("a", (0.0, 1, "matcher"))
    messages = [
        {"run": "a", "t": BEGIN + t * SECOND, "node": 1, "to": 3, "bytes": 10, "lost": False,
         "kind": "vso.post", "copies": 1}
        for t in (205, 274, 275, 299)
    ]  # fmt: skip
    tables = frames(spark, notes, 300) | {"messages": rows_of(spark, "messages", messages)}
    by_node = by_keys(jobs.bandwidth_by_node(**tables), ("run", "matches", "node"))
    assert measured_from(300.0) == 275.0
    assert by_node[("a", True, 1)][0] == 2


def test_an_epoch_that_two_owners_took_is_disputed(spark: SparkSession) -> None:
    owners = [(5, 1, 1.0), (5, 2, 2.0), (5, 2, 2.0), (6, 1, 1.0), (6, 3, 1.0)]
    notes = [
        {"run": "a", "t": k, "node": node, "fact": "owner", "about": subscription, "value": epoch}
        for k, (subscription, node, epoch) in enumerate(owners)
    ]
    found = by_keys(jobs.owners_by_epoch(rows_of(spark, "notes", notes)), ("run",))
    assert found == {("a",): (5, 1)}


def test_overloads_are_unbroken_stretches_above_the_limit(spark: SparkSession) -> None:
    taken = [(1, 7, k) for k in range(21)]  # 21 of owner 7 in second 1
    taken += [(3, 8, 0), (6, 7, 0), (9, 8, 0), (9, 8, 1)]
    notes = [
        {"run": "a", "t": second * SECOND, "node": node, "fact": "owner", "about": about}
        for second, node, about in taken
    ]
    found = jobs.overloads(
        rows_of(spark, "notes", notes),
        rows_of(spark, "interests", [{"run": "a", "t": 0, "subscription": 99}]),
        spark.createDataFrame([("a", 0)], "run string, origin long"),
    )
    assert by_keys(found, ("run", "owner", "first")) == {("a", 7, 1): (2, 21), ("a", 7, 6): (8, 21)}


# The whole.


@pytest.mark.soak  # Spark plans a hundred small questions
def test_a_small_reproduction_judges_what_it_ran_and_draws_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    nine = {"matchers": 9, "insertion_trigger": 0, "join_rate": 0.0}
    few = [
        scenario(QUICK, 50, 6.0, partitioning="static", **nine),
        scenario(QUICK, 50, 6.0, partitioning="dynamic", **nine),
        scenario(QUICK, 50, 24.0),
    ]
    paper = replace(PAPERS["voronoi"], scenarios=lambda _figure, _full: few)
    claims = {claim.claim: claim for claim in reproduce(spark, paper, ("7",), tmp_path)}
    assert list(claims) == [f"003.{item}" for item in range(1, 34)]
    assert claims["003.2"].holds is True
    assert claims["003.5"].holds is True, claims["003.5"].measured
    assert claims["003.33"].holds is True
    assert claims["003.7"].holds is not None
    assert "of 50" in claims["003.4"].measured
    assert claims["003.8"].holds is None, "nobody ran 200 nodes"
    assert claims["003.14"].holds is None, "nobody churned"
    assert claims["003.27"].holds is None, "nobody ran 1,000 nodes"
    written = json.loads((tmp_path / "claims.json").read_text())
    assert [claim["claim"] for claim in written] == list(claims)
    drawn = {file.stem for file in (tmp_path / "figures").glob("*.png")}
    assert {"figure-2-regions", "figure-7-upload", "figure-9-mean", "table-1"} <= drawn
    assert "figure-8-50" not in drawn
