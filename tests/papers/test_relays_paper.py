"""The reproduction of [Lehn]: claims and figures, worlds, jobs, and a small reproduction."""

import json
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from msgspec.structs import replace
from pyspark.sql import SparkSession

from nearcast.protocols.overlay import FIRST_SERVER
from nearcast.protocols.relays import kernels, rounds
from nearcast.protocols.relays.peer import Parameters, RelayPeer
from nearcast.scenario import stream
from nearcast.sim.world import resolve
from nearcast.space.motion import SECOND
from nearcast_papers import PAPERS
from nearcast_papers.fits import line_fit, percentile
from nearcast_papers.paper import CountedRuns, NotMeasuredError
from nearcast_papers.relays import examples, jobs, manet, measures, model, worlds
from nearcast_papers.relays.measures import RelayMeasures, UplinkUtilisation
from nearcast_papers.relays.model import (
    RoundResult,
    RoundScenario,
    RoundState,
    carry_over_paths,
    changing_worlds,
    make_flows,
    run_missing,
    run_rounds,
)
from nearcast_papers.relays.paper import ALL_CLAIMS, CAPTIONS, DRAWINGS, SHOWS
from nearcast_papers.relays.scenarios import (
    FULL,
    MANET_OVERLAYS,
    MANET_RATES,
    MANET_SEEDS,
    QUICK,
    WALKS,
    RelayPreset,
    radio_scenarios,
    round_scenarios,
    scenario,
    scenarios,
)
from nearcast_papers.run import reproduce
from support.small_runs import by_keys, rows_of

BEGIN = 2_500_000


def test_every_claim_is_there_once_and_in_order_and_those_that_are_ours_are_soft() -> None:
    assert [statement.item for statement in ALL_CLAIMS] == list(range(1, 33))
    assert all(statement.soft for statement in ALL_CLAIMS if statement.item > 25)
    assert {item for items in SHOWS.values() for item in items} <= set(range(1, 33))


def test_every_figure_has_a_caption_a_drawing_and_runs_in_both_forms() -> None:
    assert PAPERS["relays"].figures == tuple(CAPTIONS) == tuple(DRAWINGS) == tuple(SHOWS)
    for figure in CAPTIONS:
        quick, full = (
            {resolve(one)[0].run for one in scenarios(figure, thorough)}
            for thorough in (False, True)
        )
        assert 0 < len(quick) <= len(full)
    for preset in (QUICK, FULL):
        assert {scenario.nodes for scenario in round_scenarios(preset)["5"]} == {50, 100, 150, 200}
        assert len({scenario.weight for scenario in round_scenarios(preset)["6"]}) == 11
        assert len({scenario.clustering for scenario in round_scenarios(preset)["7"]}) == 9


# Worlds and rounds.


def test_the_round_model_has_the_uplinks_and_delays_of_peers_of_the_same_seed() -> None:
    drawn = worlds.uplink_capacities(range(5), 7)
    for node in range(5):
        peer = RelayPeer(node, stream(7, "node", node, 0), Parameters(), FIRST_SERVER)
        assert drawn[node] == pytest.approx(peer.relays.uplink.capacity)
    delays = worlds.delay_matrix(range(5), 7)
    assert np.array_equal(delays, delays.T)
    assert delays.min() > 0


def test_subscribers_are_those_within_vision() -> None:
    where = worlds.initial_positions(30, 3)
    wanted = worlds.subscription_matrix(worlds.virtual_reality_world(30, 3))
    for a, (ax, ay, _) in enumerate(where):
        for b, (bx, by, _) in enumerate(where):
            sees = a != b and np.hypot(ax - bx, ay - by) <= worlds.RADIUS
            assert wanted[a, b] == sees


def test_uneven_sources_publish_as_much_together() -> None:
    world = worlds.virtual_reality_world(20, 1)
    uneven = worlds.with_uneven_rates(world, 10.0, 1)
    assert uneven.payload.mean() == pytest.approx(world.payload.mean())
    assert uneven.payload.max() > 2 * uneven.payload.min()


def test_a_changed_world_keeps_the_paths_whose_forwarders_are_still_there() -> None:
    scenario = RoundScenario(nodes=40, seed=1, walk=30.0, replaced=0.1)
    world = model.make_world(scenario)
    f = make_flows(world._replace(capacity=world.capacity / 5))
    for _ in rounds.optimise(f, model.weights_for(scenario), 0.0, 6, stream(1)):
        pass
    after, gone = next(changing_worlds(scenario, world))
    kept = make_flows(after)
    torn = carry_over_paths(kept, f, gone)
    relayed = lost = 0
    for source in range(scenario.nodes):
        for member in kept.member[kept.first[source] + 1 : kept.first[source] + kept.size[source]]:
            subscriber, now = int(member), rounds.path(kept, source, int(member))
            if f.place[subscriber, source] < 0 or {source, subscriber} & set(gone):
                assert now == [source, subscriber], "a new subscription is direct"
                continue
            before = rounds.path(f, source, subscriber)
            possible = all(kept.place[v, source] >= 0 and v not in gone for v in before[1:-1])
            assert now == (before if possible else [source, subscriber])
            relayed += possible and len(before) > 2
            lost += not possible
    assert relayed > 0
    assert lost == torn > 0


def test_rounds_relieve_the_busiest_and_are_the_same_every_time() -> None:
    scenario = RoundScenario(nodes=100, seed=2, rounds=8)
    one = run_rounds(scenario)
    assert one == run_rounds(scenario)
    assert len(one.states) == 9
    assert one.last.p90 < one.first.p90
    assert one.last.busiest < one.first.busiest
    assert one.last.idlest > one.first.idlest
    assert one.first.path == one.first.stretch == 1 < one.last.path
    assert one.first.direct == one.first.overloaded == one.last.direct


def test_a_round_with_a_file_is_not_played_again(spark: SparkSession, tmp_path: Path) -> None:
    few = [RoundScenario(nodes=12, seed=seed, rounds=1) for seed in (1, 2)]
    assert spark.sparkContext is not None
    first = run_missing(few, tmp_path)
    assert first == {scenario: run_rounds(scenario) for scenario in few}
    file = tmp_path / f"{few[0].name}.json"
    file.write_text(file.read_text().replace('"parts":', '"parts":4'))
    assert run_missing(few, tmp_path)[few[0]].parts == int(f"4{first[few[0]].parts}")


def test_half_of_a_header_goes_with_each_source_that_shares_a_link() -> None:
    """Figure 1: C, then B sends what is C's to A, beside its own."""
    interest = np.zeros((3, 3))
    interest[0, 2] = interest[1, 2] = interest[0, 1] = 1.0
    world = worlds.RoundWorld(
        interest, np.full((3, 3), 0.01), np.full(3, 1e5), np.full(3, rounds.STREAM)
    )
    for shared, added in ((1.0, 512.0), (0.5, 768.0), (0.0, 1024.0)):
        f = make_flows(world, shared)
        assert f.load.tolist() == [0.0, 1024.0, 2048.0]
        kernels.redirect(f, 2, 0, int(f.place[0, 2]), int(f.place[1, 2]))
        assert f.load.tolist() == [0.0, 1024.0 + added, 1024.0]


def results_of(preset: RelayPreset) -> RelayMeasures:
    """Measures of rounds that nobody has played: utilisation is seed + shared."""
    found = RelayMeasures(CountedRuns(cast(Any, None), []))
    made = {}
    nothing = RoundState(**dict.fromkeys(RoundState.__struct_fields__[:12], 0.0))
    for one in round_scenarios(preset)["4"]:
        state = replace(nothing, mean=one.seed + one.shared)
        made[one] = RoundResult(one, 0.0, 0.0, 0.0, 1, [state])
    found._round_results = made
    return found


def test_a_reading_reads_the_rounds_that_were_played_for_it_and_a_seed_its_own() -> None:
    main, other = results_of(QUICK), results_of(QUICK)
    other.shared = 1.0
    assert main.ended("4", "mean") == pytest.approx(5.5 + 0.5)
    assert other.ended("4", "mean") == pytest.approx(3.0 + 1.0)
    assert main.seeds == QUICK.seeds
    assert main.of_seed(7).ended("4", "mean") == pytest.approx(7.5)
    with pytest.raises(NotMeasuredError):
        other.of_seed(7).ended("4", "mean")


def test_runs_with_radios_are_found_for_each_overlay_and_for_no_other_figure() -> None:
    found = RelayMeasures(CountedRuns(cast(Any, None), [resolve(s)[0] for s in radio_scenarios()]))
    for overlay in MANET_OVERLAYS:
        for rate in MANET_RATES:
            runs = found.runs(**manet.radio_runs(overlay, rate))
            assert [run.seed for run in runs] == list(MANET_SEEDS)
    assert found.preset is QUICK
    for others in (measures.moving_runs, measures.churn_runs, measures.typical_runs):
        with pytest.raises(NotMeasuredError):
            found.runs(**others("on"))


def test_where_air_is_shared_peers_must_miss_less_than_clients(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = RelayMeasures(CountedRuns(cast(Any, None), []))
    lost = {"client-server": 0.5, "psense": 0.4, "direct": 0.1, "relays": 0.2}
    monkeypatch.setattr(manet, "missed", lambda _, overlay, __: lost[overlay])
    monkeypatch.setattr(manet, "latency", lambda *_: 0.025)
    text, holds = manet.check_air(found)
    assert holds
    assert "20 a second: 50.0% in 25 ms client-server" in text
    assert [plot.name for plot in manet.draw_manet(found)] == ["manet-missed", "manet-latency"]
    lost["relays"] = 0.6
    assert not manet.check_air(found)[1]


# Examples and small arithmetic.


def test_operations_by_chance_change_paths_by_one() -> None:
    tried = examples.try_random_operations()
    assert tried.wrong == 0
    assert tried.redirected > 100 < tried.shortened * 2


def test_uplinks_percentiles_and_fits_are_those_of_the_textbook() -> None:
    uplinks = UplinkUtilisation([0.5, 0.5, 1.0, 2.0])
    assert (uplinks.mean, uplinks.overloaded, uplinks.p90) == (1.0, 0.25, 2.0)
    assert percentile([float(k) for k in range(1, 101)], 90) == 90.0
    assert line_fit([(1.0, 3.0), (2.0, 5.0), (4.0, 9.0)])[1] == pytest.approx(1)
    assert line_fit([(1.0, 0.0), (2.0, 1.0), (3.0, 0.0)])[1] == pytest.approx(0)


# Jobs.


def at(second: float) -> int:
    return BEGIN + round(second * SECOND)


def test_the_demand_of_a_peer_is_what_it_sent_and_what_it_withheld(spark: SparkSession) -> None:
    sent = [
        (-1.0, 1, "relays.Status", 500, None), (0.1, 1, "relays.Update", 172, 5),
        (0.2, 1, "relays.Update", 100, 6), (1.1, 1, "relays.Status", 22, None),
        (0.5, 2, "relays.Update", 222, 7), (0.6, FIRST_SERVER, "relays.Notify", 99, 8),
    ]  # fmt: skip
    messages = [
        {"run": "a", "t": at(t), "node": node, "kind": kind, "bytes": size, "publication": p}
        for t, node, kind, size, p in sent
    ]
    notes: list[dict[str, Any]] = [
        {"run": "a", "t": 0, "node": 1, "fact": "uplink", "value": 8000.0},
        {"run": "a", "t": 0, "node": 2, "fact": "uplink", "value": 4000.0},
        {"run": "a", "t": at(0.3), "node": 1, "fact": "withheld", "about": 9},
        {"run": "a", "t": at(0.4), "node": 1, "fact": "withheld", "about": 10},
    ]
    found = jobs.utilisation_by_node(
        rows_of(spark, "messages", messages),
        rows_of(spark, "notes", notes),
        rows_of(spark, "positions", [{"run": "a", "t": BEGIN}]),
    )
    assert by_keys(found, ("run", "node", "second")) == {
        ("a", 1, 0): (pytest.approx((172 + 100 + 2 * 28 + 2 * 100) / 1000), 2),
        ("a", 1, 1): (pytest.approx((22 + 28) / 1000), 0),
        ("a", 2, 0): (pytest.approx((222 + 28) / 500), 0),
    }


def test_operations_are_counted_by_second(spark: SparkSession) -> None:
    facts = [(0.5, "redirected"), (0.7, "redirected"), (0.9, "repaired"), (3.2, "shortened"),
             (3.3, "withheld"), (-0.1, "redirected"), (3.4, "crashed")]  # fmt: skip
    notes = [{"run": "a", "t": at(t), "node": 1, "fact": fact} for t, fact in facts]
    found = jobs.operations_by_second(
        rows_of(spark, "notes", notes), rows_of(spark, "positions", [{"run": "a", "t": BEGIN}])
    )
    assert by_keys(found, ("run", "second")) == {("a", 0): (2, 0, 1, 0), ("a", 3): (0, 1, 0, 1)}


# The whole.


@pytest.mark.soak  # Spark plans a hundred small questions
def test_a_small_reproduction_judges_what_it_ran_and_draws_it(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    little = {
        "4": [RoundScenario(nodes=100, seed=seed, rounds=17) for seed in (1, 2)],
        "moving": [RoundScenario(nodes=20, seed=1, rounds=3, walk=walk) for walk in WALKS],
    }
    monkeypatch.setattr(measures, "round_scenarios", lambda _form: little)
    brief = replace(QUICK, seconds=3.0)
    few = [
        scenario(brief, 24, 1, relays=relays, slower=6.0, walking=1.0) for relays in ("on", "off")
    ]
    paper = replace(PAPERS["relays"], scenarios=lambda _figure, _full: few)
    claims = {claim.claim: claim for claim in reproduce(spark, paper, ("4",), tmp_path)}
    assert list(claims) == [f"004.{item}" for item in range(1, 33)]
    for item in (1, 2, 3, 4, 11):
        assert claims[f"004.{item}"].holds is True, claims[f"004.{item}"].measured
    assert "messages: not run" in claims["004.8"].measured
    assert claims["004.19"].holds is None, "nobody played weights"
    assert claims["004.26"].holds is None, "nobody ran 150 peers"
    assert claims["004.27"].holds is not None
    assert "missed" in claims["004.27"].measured
    written = json.loads((tmp_path / "claims.json").read_text())
    assert [claim["claim"] for claim in written] == list(claims)
    drawn = {file.stem for file in (tmp_path / "figures").glob("*.png")}
    assert {"figure-4-rounds", "moving-rounds", "moving-missed"} <= drawn
    assert "figure-7-paths" not in drawn
