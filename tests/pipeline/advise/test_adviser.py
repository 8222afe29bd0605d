"""Which runs are made, in which order, and what becomes of them: with a clock of the test's own."""

from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec.structs import replace

from nearcast.pipeline.advise.advise import Advice, AdviceOptions, Adviser
from nearcast.pipeline.advise.candidates import make_candidates
from nearcast.pipeline.advise.measures import Measures
from nearcast.pipeline.advise.runs import RunOutcome
from nearcast.pipeline.advise.texts import advice_lines
from nearcast.protocols import PROTOCOLS
from nearcast.scenario import Scenario
from support.advice import FACTS, GOOD

MEASURING_S = 5.0


class MadeUpRuns:
    """Simulates nothing: a run takes as long as `cost` says, and is measured as `judge` says."""

    def __init__(
        self,
        cost: Callable[[Scenario], float],
        judge: Callable[[Scenario], Measures] = lambda _: GOOD,
        slots: int = 2,
    ) -> None:
        self.now, self.slots = 0.0, slots
        self.cost, self.judge = cost, judge
        self.begun: list[Scenario] = []
        self.done: dict[str, Scenario] = {}
        self.interrupt_at = 0

    def clock(self) -> float:
        return self.now

    def complete(self) -> set[str]:
        return set(self.done)

    def simulate(self, scenarios: Sequence[Scenario], until: float) -> dict[str, RunOutcome]:
        """As Spark would: each core takes the next one; what is late is ended at `until`."""
        cores = [self.now] * self.slots
        outcomes = {}
        for each in scenarios:
            self.begun.append(each)
            if self.interrupt_at and len(self.begun) >= self.interrupt_at:
                raise KeyboardInterrupt
            core = cores.index(min(cores))
            cost = 0.0 if each.run in self.done else self.cost(each)
            if cores[core] + cost > until:
                outcomes[each.run] = RunOutcome(
                    failure="ended", is_late=True, took_s=until - cores[core]
                )
                cores[core] = until
            else:
                outcomes[each.run] = RunOutcome(took_s=cost)
                self.done[each.run] = each
                cores[core] += cost
        self.now = max(self.now, *cores)
        return outcomes

    def measure(
        self, runs: Sequence[str], within_s: float, warm_up_s: float
    ) -> dict[str, Measures]:
        assert warm_up_s == 10
        self.now += min(MEASURING_S, within_s)
        return {run: self.judge(self.done[run]) for run in runs} if within_s > MEASURING_S else {}


def advise(runs: MadeUpRuns, seconds: float = 600.0, entities: int = 50) -> Advice:
    facts = replace(FACTS, entities=entities)
    adviser = Adviser(
        runs, facts, Path("/world"), AdviceOptions(budget_s=seconds), seconds, lambda _: None,
        runs.clock,
    )  # fmt: skip
    written: list[Advice] = []
    advice = adviser.run(written.append)
    assert written[-1] == advice
    assert advice_lines(advice)
    return advice


def linear(scenario: Scenario) -> float:
    return scenario.nodes / 100


def test_every_protocol_of_the_registry_is_tried() -> None:
    advice = advise(MadeUpRuns(linear))
    assert {each.protocol for each in advice.candidates} == {*PROTOCOLS, "cluster"}
    assert advice.left_out == {}


def test_all_overlays_with_the_recorded_crowd_come_first_then_larger_crowds_then_parameters() -> (
    None
):
    runs = MadeUpRuns(linear)
    advice = advise(runs)
    main = len([each for each in advice.candidates if not each.is_variant])
    sizes = [each.nodes for each in runs.begun]
    assert sizes[: 4 * main] == [50] * main + [100] * main + [250] * main + [500] * main
    assert sizes[4 * main] == 50
    assert {each.status for each in advice.records} == {"measured"}
    assert advice.recommendation.candidate is not None
    assert advice.recommendation.candidate.name == "node"
    assert advice.recommendation.holds_to == 10


def test_who_is_beyond_a_limit_is_not_tried_with_more() -> None:
    def judge(scenario: Scenario) -> Measures:
        bad = scenario.protocol != "von" and scenario.nodes > 50
        return replace(GOOD, recall=0.5) if bad else GOOD

    runs = MadeUpRuns(linear, judge)
    advice = advise(runs)
    grown = {(each.protocol, each.nodes) for each in runs.done.values() if each.nodes > 100}
    assert {protocol for protocol, _ in grown} >= {"von"}
    assert ("psense", 250) not in grown
    best = advice.without_server
    assert best is not None and best.candidate is not None
    assert (best.candidate.protocol, best.holds_to) == ("von", 10)


def test_the_budget_holds_though_runs_are_much_slower_than_estimated() -> None:
    """A run takes a thousand times as long with more than the recorded crowd."""
    for seconds in (100.0, 300.0, 900.0):
        runs = MadeUpRuns(lambda each: 2.0 if each.nodes <= 50 else 5000.0)
        advice = advise(runs, seconds)
        assert runs.now <= seconds
        late = [each for each in advice.records if each.status == "too slow"]
        assert late and all(each.reason == "ended" for each in late)
        assert advice.recommendation.holds_to == 1


def test_what_would_take_too_long_is_not_begun_and_said() -> None:
    runs = MadeUpRuns(lambda each: (each.nodes / 50) ** 2 * 4)
    advice = advise(runs, 200.0)
    assert runs.now <= 200
    skipped = [each for each in advice.records if each.status == "not run"]
    assert skipped and all("it would take about" in each.reason or "is not known" in each.reason
                           for each in skipped)  # fmt: skip
    text = "\n".join(advice_lines(advice))
    assert "was not measured at" in text


def test_large_worlds_begin_with_a_pilot_and_fall_back_to_a_part_of_the_crowd() -> None:
    runs = MadeUpRuns(lambda each: 1 + (each.nodes / 1000) ** 2 * 60)
    advice = advise(runs, 300.0, entities=4000)
    assert runs.now <= 300
    assert runs.begun[0].nodes == 100
    assert {each.crowd for each in advice.records if each.measures} & {0.5, 0.25, 0.125, 0.0625}
    assert all(each.nodes >= 100 for each in advice.records)
    assert any("not tried, because the main form was not measured" in line
               for line in advice_lines(advice))  # fmt: skip


def test_two_pilots_tell_how_the_cost_grows() -> None:
    """By one alone, the recorded crowd would be estimated at 400 s and not be tried."""
    runs = MadeUpRuns(lambda each: each.nodes / 400)
    advice = advise(runs, 600.0, entities=4000)
    assert [each.nodes for each in runs.begun[::9]][:3] == [100, 400, 1600]
    assert {each.status for each in advice.records if each.crowd == 1} == {"measured"}


def test_an_interrupted_adviser_answers_with_what_it_has() -> None:
    runs = MadeUpRuns(linear)
    runs.interrupt_at = 12  # in the second round
    advice = advise(runs)
    assert advice.interrupted
    assert len([each for each in advice.records if each.measures]) == 9
    assert advice.recommendation.candidate is not None


def test_started_again_it_goes_on_where_it_was() -> None:
    runs = MadeUpRuns(linear)
    runs.interrupt_at = 12
    advise(runs)
    first, runs.interrupt_at, runs.begun = set(runs.done), 0, []
    advice = advise(runs)
    assert not advice.interrupted
    assert first <= set(runs.done)
    assert len(runs.begun) == len(advice.records)  # each was asked for once
    assert advice == replace(advise(MadeUpRuns(linear)), took_s=advice.took_s)


def test_a_failed_simulation_is_reported_and_loses_nothing_else() -> None:
    class Failing(MadeUpRuns):
        def simulate(self, scenarios: Sequence[Scenario], until: float) -> dict[str, RunOutcome]:
            outcomes = super().simulate(scenarios, until)
            failed = {each.run: RunOutcome(failure="AssertionError: a bug")
                      for each in scenarios if each.protocol == "psense"}  # fmt: skip
            return outcomes | failed

    advice = advise(Failing(linear))
    broken = [each for each in advice.records if each.status == "failed"]
    assert {each.candidate for each in broken} == {"psense"}
    assert any("psense was not measured at 1×: failed, AssertionError: a bug" in line
               for line in advice_lines(advice))  # fmt: skip


def test_a_nodes_latency_includes_the_way_from_the_client_and_a_gateway_is_a_peer() -> None:
    runs = MadeUpRuns(linear, lambda _: replace(GOOD, server_max_bytes_s=7e4, servers=1))
    at = {each.candidate.name: each.at[1.0] for each in advise(runs).growths}
    assert (at["node"].p99_ms, at["client-server"].p99_ms) == (150, 100)
    assert (at["vso"].peer_max_bytes_s, at["vso"].server_max_bytes_s) == (7e4, 0)
    assert (at["node"].peer_max_bytes_s, at["node"].server_max_bytes_s) == (3e3, 7e4)


def test_names_of_candidates_are_unique_and_variants_have_a_main_form() -> None:
    known = make_candidates(FACTS, 1000.0, 50.0)
    names = [each.name for each in known]
    assert len(set(names)) == len(names)
    assert all(each.variant_of in names for each in known if each.is_variant)
