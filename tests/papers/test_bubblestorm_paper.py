"""The reproduction of [Lucas2011]: claims, jobs, single events, and a small reproduction."""

import json
from itertools import product
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from msgspec.structs import replace
from pyspark.sql import SparkSession

from nearcast.scenario import Scenario
from nearcast.sim.world import resolve
from nearcast.space.motion import SECOND
from nearcast_papers import PAPERS
from nearcast_papers.bubblestorm import (
    encryption_cost,
    jobs,
    meeting_probability,
    single_events,
)
from nearcast_papers.bubblestorm.alternative_readings import (
    READINGS,
    NarrowPSense,
    PayloadAlone,
    SentAndReceived,
)
from nearcast_papers.bubblestorm.measures import (
    NAMES,
    ONE,
    OUR_SHIPS,
    PSENSE,
    PSENSE3D,
    BubbleStormMeasures,
    ConfusionCounts,
    crash_runs,
    explanation_runs,
    fit_line,
    game_runs,
    joining_runs,
    mobility_runs,
    overlay_settings,
    recovery_seconds,
    scale_runs,
)
from nearcast_papers.bubblestorm.paper import ALL_CLAIMS, CAPTIONS, DRAWINGS, SHOWS
from nearcast_papers.bubblestorm.scenarios import (
    CRASHES,
    LINGER_S,
    QUICK,
    SCALES,
    SEEDS,
    explanation_scenario,
    game_scenario,
    mobility_scenario,
    scenarios,
)
from nearcast_papers.fits import correlation, growth_exponent
from nearcast_papers.paper import CountedRuns, NotMeasuredError
from nearcast_papers.run import reproduce
from support.small_runs import by_keys, rows_of

BEGIN = 3_000_000


def test_every_claim_of_the_thesis_is_there_once_and_in_order() -> None:
    assert [statement.item for statement in ALL_CLAIMS] == list(range(1, 37))
    assert {item for items in SHOWS.values() for item in items} <= set(range(1, 37))


def test_every_figure_has_a_caption_a_drawing_and_runs_in_both_forms() -> None:
    assert PAPERS["bubblestorm"].figures == tuple(CAPTIONS) == tuple(DRAWINGS)
    for figure in CAPTIONS:
        quick, full = (
            sum(one.seconds for one in scenarios(figure, thorough)) for thorough in (False, True)
        )
        assert 0 < quick <= full


def test_the_full_form_is_the_thesis_experiment() -> None:
    walks = list(scenarios("5.2", True))
    games = [one for one in scenarios("5.9", True) if one.settings.get("join_rate")]
    assert {(one.nodes, one.settings["join_rate"]) for one in walks} == {(128, 1.0)}
    assert {(one.nodes, one.settings["join_rate"]) for one in games} == {(32, 1 / 7.5)}
    # λ = 1 for as long as in the thesis, all else for long enough after the last has joined.
    for world, whole_s, joined_s in ((walks, 900.0, 128.0), (games, 600.0, 240.0)):
        assert [one.seconds for one in world if one.seconds == whole_s] == [whole_s]
        assert min(one.seconds for one in world) >= joined_s + jobs.SETTLING_S + 20.0
    settings = [resolve(one)[0].settings for one in (*walks, *games)]
    assert {one["network"] for one in settings} == {"adsl"}
    assert {(one["up_mbit"], one["down_mbit"], one["last_hop_ms"]) for one in settings} == {
        (1.0, 16.0, 5.0)
    }
    for world in (walks, games):
        overlays = [
            name
            for overlay, name in NAMES.items()
            for one in world
            if one.seed == 1
            and all(
                {"protocol": one.protocol, **one.settings}.get(key) == value
                for key, value in overlay_settings(overlay).items()
            )
        ]
        assert list(dict.fromkeys(overlays)) == list(NAMES.values())  # some in several readings


@pytest.mark.parametrize("full", [False, True])
def test_each_reading_of_psense_has_its_own_runs_in_both_worlds(full: bool) -> None:
    every = [resolve(one)[0] for figure in CAPTIONS for one in scenarios(figure, full)]
    counted = CountedRuns(cast(Any, None), list({one.run: one for one in every}.values()))
    for world, overlay in product((mobility_runs, game_runs), (PSENSE, PSENSE3D)):
        main, narrow = (
            view(counted).runs(**world(overlay)) for view in (BubbleStormMeasures, NarrowPSense)
        )
        assert {(one.settings["view"], one.settings["limit"]) for one in main} == {
            ("connections", 41_625)
        }
        assert {(one.settings["view"], one.settings["limit"]) for one in narrow} == {
            ("receivers", 5_000)
        }
        assert sorted(one.seed for one in main) == [*SEEDS]
        assert sorted(one.seed for one in narrow) == ([*SEEDS] if full else [1, 2])


@pytest.mark.parametrize("full", [False, True])
def test_what_explains_or_joins_has_one_run_of_each_seed(full: bool) -> None:
    every = [resolve(one)[0] for figure in CAPTIONS for one in scenarios(figure, full)]
    counted = CountedRuns(cast(Any, None), list({one.run: one for one in every}.values()))
    measures = BubbleStormMeasures(counted)
    chosen = (
        *(joining_runs(world, ONE) for world in (mobility_runs, game_runs)),
        *(explanation_runs(linger_s=linger) for linger in LINGER_S),
        *(explanation_runs(cache_s=0.0, **{"lambda": certainty}) for certainty in (1.0, 3.0)),
        *map(crash_runs, CRASHES),
        *map(scale_runs, SCALES),
    )
    for settings in chosen:
        assert sorted(run.seed for run in measures.runs(**settings)) == [*SEEDS], settings
        assert list(measures.each_seed(**settings)) == [*SEEDS]


def test_other_ships_have_runs_of_their_own_on_all_seeds() -> None:
    every = [resolve(one)[0] for figure in CAPTIONS for one in scenarios(figure, full=True)]
    counted = CountedRuns(cast(Any, None), list({one.run: one for one in every}.values()))
    readings = [
        one for one in READINGS.others_of(27) if "ships" in one.name or "border" in one.name
    ]
    flown = set()
    for reading in readings:
        measures = cast(BubbleStormMeasures, reading.view(counted))
        for overlay in (ONE, PSENSE3D):
            runs = measures.runs(**game_runs(overlay))
            assert sorted(run.seed for run in runs) == [*SEEDS]
            flown |= {tuple(run.settings[name] for name in OUR_SHIPS) for run in runs}
        with pytest.raises(NotMeasuredError):
            measures.runs(**game_runs(PSENSE))
    assert flown == {(400.0, 80.0, True), (650.0, 100.0, True), (850.0, 110.0, False)}


def test_traffic_counts_whole_seconds_alone() -> None:
    """Peers are looked at until second 18; in 19 they stop to send."""

    class Rows(CountedRuns):
        def rows(self, table: str, **settings: Any) -> list[dict[str, Any]]:
            return [
                {**row, "run": run.run, "seconds": run.seconds}
                for run in self.runs(**settings)
                for row in self.table(table, run).to_pylist()
            ]

        def table(self, name: str, run: Scenario) -> pa.Table:
            del run
            sent = {"kind": "bubblestorm.Join", "messages": 0}
            tables = {
                "settled_since": [{"second": 15}],
                "sights_by_second": [{"second": second} for second in range(19)],
                "traffic_by_second": [
                    {"second": second, "bytes": 320 if second < 19 else 32, **sent}
                    for second in range(20)
                ],
            }
            return pa.Table.from_pylist(tables[name])

    runs = [explanation_scenario(QUICK, 20.0, peers=32)]
    measures = BubbleStormMeasures(Rows(cast(Any, None), runs))
    assert measures.rate() == 10.0
    assert list(measures.grown(False)) == list(range(19))


def test_the_longest_runs_of_a_figure_come_first() -> None:
    for figure in CAPTIONS:
        lengths = [one.seconds * one.nodes for one in scenarios(figure, True)]
        assert lengths == sorted(lengths, reverse=True)


def test_several_seeds_count_together_while_all_of_them_run() -> None:
    class Rows(CountedRuns):
        def rows(self, table: str, **settings: Any) -> list[dict[str, Any]]:
            assert table == "sights_by_second"
            names = ConfusionCounts.__struct_fields__
            return [
                {"second": second, **dict.fromkeys(names, run.seed)}
                for run in self.runs(**settings)
                for second in range(-1, int(run.seconds))
            ]

    runs = [
        explanation_scenario(QUICK, seconds, seed=seed) for seed, seconds in ((1, 5.0), (2, 3.0))
    ]
    found = BubbleStormMeasures(Rows(cast(Any, None), runs)).common_seconds("sights_by_second")
    assert found == dict.fromkeys(range(3), ConfusionCounts(3.0, 3.0, 3.0, 3.0))


def test_traffic_is_what_a_line_carries_or_payload_or_both_directions() -> None:
    row = {"bytes": 100, "messages": 2}
    counted = CountedRuns(cast(Any, None), [])
    for view, found in ((BubbleStormMeasures, 156), (PayloadAlone, 100), (SentAndReceived, 312)):
        assert view(counted)._on_line(row) == found


# Chances and drills.


def test_bubbles_meet_as_often_as_required_whatever_their_shares() -> None:
    assert meeting_probability.met(1) == pytest.approx(0.632, abs=0.02)
    assert meeting_probability.met_unlike(4) == pytest.approx(0.632, abs=0.03)
    assert meeting_probability.processings(13) == (13,) * 100
    assert growth_exponent([(1, 3.0), (4, 6.0), (16, 12.0)]) == pytest.approx(0.5)


def test_a_neighbour_that_returns_in_time_is_kept_and_one_that_does_not_is_closed() -> None:
    seen = single_events.neighbour_removal()
    assert seen[:4] == ["inside", "soft", "soft", "inside"]
    assert seen[-3:] == ["hard", "closed", "closed"]


def test_a_connection_opens_in_one_round_trip() -> None:
    found = single_events.measure_connection_setup()
    assert len(found.opened) > 20
    assert set(found.opened) == {1.0}


def test_after_many_leave_the_rest_have_complete_links(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(single_events, "MASS_LEAVE_S", 56.0)
    monkeypatch.setattr(
        single_events,
        "explanation_scenario",
        lambda preset, s, seed: explanation_scenario(preset, s, seed=seed, peers=32, size=500.0),
    )
    found = single_events.run_mass_leave.__wrapped__(1)
    assert max(found.recall) == 55
    assert (found.asymmetric, found.islands) == (0, 1)
    assert 0.5 < found.recall[29] <= 1
    assert found.accuracy[29] > 0.5


def test_encryption_costs_bytes_and_a_handshake(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, number in (("COUNTED", 20), ("TIMED", 20), ("HANDSHAKES", 2), ("ROUNDS", 1)):
        monkeypatch.setattr(encryption_cost, name, number)
    plain, tls, quic = encryption_cost.costs.__wrapped__().values()
    frame = len(encryption_cost.update())
    assert plain.bytes >= frame + 4
    assert plain.handshake_bytes == 0
    # A record of TLS 1.3 has a head of 5 bytes, its kind, and a tag of 16.
    assert tls.bytes == pytest.approx(plain.bytes + 22, abs=2)
    assert quic.bytes > frame + 16
    assert quic.handshake_bytes > 2000, "a first packet has at least 1,200 bytes, each way"
    assert tls.handshake_bytes > 500


# Small arithmetic.


def test_measures_are_those_of_section_5_2() -> None:
    confusion = ConfusionCounts(8.0, 2.0, 4.0, 86.0)
    assert (confusion.accuracy, confusion.precision) == (0.94, 0.8)
    assert confusion.recall == pytest.approx(2 / 3)
    assert confusion.specificity == pytest.approx(86 / 88)
    assert confusion.wrongly_known == pytest.approx(1 / 3)
    assert (confusion.known, confusion.should) == (10, 12)


def test_straight_lines_correlations_and_recoveries_are_found() -> None:
    fit, slope = fit_line({x: 3.0 + 0.5 * x for x in range(40)}, 5, 30)
    assert (fit, slope) == (pytest.approx(1), pytest.approx(0.5))
    with pytest.raises(NotMeasuredError):
        fit_line({1: 1.0}, 0, 10)
    assert correlation([1, 2, 3], [9, 7, 5]) == pytest.approx(-1)
    curve = {second: 0.9 if second < 30 or second >= 44 else 0.5 for second in range(80)}
    assert recovery_seconds(curve, 0.02) == 14
    assert recovery_seconds({s: v if s < 30 else 0.5 for s, v in curve.items()}, 0.02) is None


# Jobs.


def origins(spark: SparkSession) -> Any:
    return spark.createDataFrame([("a", BEGIN)], "run string, origin long")


def noted(*words: tuple[float, int, str]) -> list[dict[str, Any]]:
    return [
        {"run": "a", "t": BEGIN + round(t * SECOND), "node": node, "fact": fact}
        for t, node, fact in words
    ]


def test_running_peers_are_counted_where_their_number_changes(spark: SparkSession) -> None:
    notes = noted(
        (-2.0, 1, "joined"), (-2.0, 2, "joined"), (1.5, 3, "joined"), (1.9, 1, "met"),
        (4.0, 2, "crashed"), (5.0, 1, "left"),
    )  # fmt: skip
    found = jobs.running_by_second(rows_of(spark, "notes", notes), origins(spark))
    assert by_keys(found, ("run", "second")) == {
        ("a", -2): (2,), ("a", 1): (3,), ("a", 4): (2,), ("a", 5): (1,),
    }  # fmt: skip


def test_a_run_settles_after_its_beginning_and_its_last_join(spark: SparkSession) -> None:
    positions = rows_of(spark, "positions", [{"run": "a", "t": BEGIN - SECOND // 2}])
    for joins, settled in (((-2.0, 1, "joined"), 15), ((7.2, 1, "joined"), 23)):
        notes = rows_of(spark, "notes", noted(joins))
        found = jobs.settled_since(positions, notes, origins(spark))
        assert by_keys(found, ("run",)) == {("a",): (settled,)}


def test_sights_are_added_up_by_second_by_node_and_of_one(spark: SparkSession) -> None:
    """Two nodes look twice: 15 knows 1 rightly, then 1 wrongly and not 2; 16 sees nobody."""
    met = [
        ("a", BEGIN, 15, 1, True, True, True, 2.0, None),
        ("a", BEGIN, 15, None, None, None, None, None, 3),
        ("a", BEGIN, 16, None, None, None, None, None, 3),
        ("a", BEGIN + 20 * SECOND, 15, 1, True, False, True, 4.0, None),
        ("a", BEGIN + 20 * SECOND, 15, 2, False, True, True, None, None),
        ("a", BEGIN + 20 * SECOND, 15, None, None, None, None, None, 3),
        ("a", BEGIN + 20 * SECOND, 16, None, None, None, None, None, 3),
    ]
    columns = (
        "run string, t long, node long, other long, knew boolean, due boolean, present boolean,"
        " difference double, others long"
    )
    awareness_pairs = spark.createDataFrame(met, columns)
    by_second = jobs.sights_by_second(awareness_pairs, origins(spark))
    assert by_keys(by_second, ("run", "second")) == {
        ("a", 0): (2, 1, 1, 1, 0, 0, 5, 2.0),
        ("a", 20): (2, 1, 1, 0, 1, 1, 4, 4.0),
    }
    places = [
        {"run": "a", "t": BEGIN + after * SECOND, "node": node, "x": float(x)}
        for after in (0, 20)
        for node, x in ((15, 0), (1, 120), (2, 99))
    ]
    positions, notes = rows_of(spark, "positions", places), rows_of(spark, "notes", noted())
    by_node = by_keys(jobs.sights_by_node(awareness_pairs, positions, notes), ("run", "node"))
    assert by_node["a", 15][:7] == (1, 1, 1, 0, 1, 1, 1)
    assert by_node["a", 16][:7] == (1, 0, 0, 0, 0, 0, 3)
    one = by_keys(jobs.sights_of_one(awareness_pairs, origins(spark)), ("run", "second"))
    assert list(one) == [("a", 0), ("a", 20)] or set(one) == {("a", 0), ("a", 20)}
    assert one["a", 20] == (1, 1, 0, 1, 1, 1)
    inner = by_keys(jobs.inner_circle(awareness_pairs, positions, notes), ("run",))
    assert inner == {("a",): (1, 0)}, "2 is within 100 units and not known"


# The whole.


@pytest.mark.soak  # Spark plans a hundred small questions
def test_a_small_reproduction_judges_what_it_ran_and_draws_it(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mass_leave = single_events.MassLeaveResult(
        dict.fromkeys(range(91), 0.9), dict.fromkeys(range(91), 0.9), 115, 0, 1
    )
    monkeypatch.setattr(single_events, "run_mass_leave", lambda _: mass_leave)
    cost = encryption_cost.Cost(1.0, 1.0, 1.0, 1.0)
    monkeypatch.setattr(encryption_cost, "costs", lambda: {"plain": cost, "TLS": cost})
    few = [
        mobility_scenario(QUICK, "bubblestorm", 18.0, peers=12, size=300.0),
        game_scenario(QUICK, "bubblestorm", 6.0, record="sums"),
    ]
    paper = replace(PAPERS["bubblestorm"], scenarios=lambda _figure, _full: few)
    claims = {claim.claim: claim for claim in reproduce(spark, paper, ("5.2",), tmp_path)}
    assert list(claims) == [f"002.{item}" for item in range(1, 37)]
    for item in (1, 3, 4, 6, 7, 9):
        assert claims[f"002.{item}"].holds is True, claims[f"002.{item}"].measured
    for item in (8, 10, 16, 21, 25, 35):
        assert claims[f"002.{item}"].holds is None, "nobody ran that"
    written = json.loads((tmp_path / "claims.json").read_text())
    assert [claim["claim"] for claim in written] == list(claims)
    drawn = {file.stem for file in (tmp_path / "figures").glob("*.png")}
    assert {"table-3-1", "reckoning", "rings-difference", "secrecy-bytes"} <= drawn
    assert "figure-5-7" not in drawn
