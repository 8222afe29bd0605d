"""The advice: which runs are made in which order, what became of them, and what follows.

In rounds, each a sweep on Spark and one analysis: all overlays with the recorded crowd, those that
are within the limits with 2, 5 and 10 times as many, then other parameters, then what time is left
for. A run that is slower than its round is ended and said to be too slow. After each round the
report is written, so that whoever interrupts or kills the command has what was found until then.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from math import inf
from time import time
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from nearcast.field_checks import between
from nearcast.pipeline.advise.budget import REPORT_S, Budget, Estimated, choose_runs, estimate_s
from nearcast.pipeline.advise.candidates import OverlayCandidate, left_out, make_candidates
from nearcast.pipeline.advise.deployment import Deployment, make_deployment
from nearcast.pipeline.advise.measures import Measures, warm_up
from nearcast.pipeline.advise.recommendation import (
    AdviceLimits,
    Growth,
    Recommendation,
    RunRecord,
    crossed_limits,
    group_records,
    judge_growth,
    recommend,
)
from nearcast.pipeline.advise.runs import RunOutcome, Runs
from nearcast.pipeline.advise.world import WorldFacts, WorldOptions
from nearcast.scenario import Scenario, Setting
from nearcast.sim.settings import CLUSTER
from nearcast.sim.world import resolve
from nearcast.storage import AnyPath

RunKey: TypeAlias = tuple[str, float]  # the name of a candidate, and the crowd
PILOTS = (100, 400, 1600)  # entities of first runs, if the world has more than twice as many
CROWDS = (2.0, 5.0, 10.0)
THINNER = (0.5, 0.25, 0.125, 0.0625, 0.03125)
BETTER = 0.9  # a variant is worth more runs if its busiest peer sends less than that share


class AdviceOptions(Struct, frozen=True, kw_only=True):
    """What the user asked for."""

    budget_s: float = 600.0
    limits: AdviceLimits = AdviceLimits()
    one_way_ms: float = 50.0
    with_server: bool = True
    crowds: tuple[float, ...] = CROWDS
    only: tuple[str, ...] = ()  # names of candidates; none: all
    seed: int = 1
    world: WorldOptions = WorldOptions()

    def __post_init__(self) -> None:
        between("one_way_ms", self.one_way_ms, 0, 1e6)


class Advice(Struct, frozen=True, kw_only=True):
    """All that was found out, and what follows from it; `advice.json` has this."""

    facts: WorldFacts
    options: AdviceOptions
    world: str
    took_s: float
    interrupted: bool
    candidates: tuple[OverlayCandidate, ...]
    growths: tuple[Growth, ...]
    recommendation: Recommendation
    deployment: Deployment | None
    without_server: Recommendation | None  # the second answer, if the first one has a server
    without_server_deployment: Deployment | None
    records: tuple[RunRecord, ...]
    left_out: dict[str, str]


def select_candidates(facts: WorldFacts, options: AdviceOptions) -> list[OverlayCandidate]:
    """What is tried; ValueError if something was asked for that there is not."""
    known = make_candidates(facts, options.limits.uplink_kbit, options.one_way_ms)
    names = [each.name for each in known]
    for name in options.only:
        if name not in names:
            raise ValueError(f"no overlay {name!r}; there are {', '.join(names)}")
    return [each for each in known if not options.only or each.name in options.only]


def as_users_see(candidate: OverlayCandidate, measures: Measures, one_way_ms: float) -> Measures:
    """A live node's trace begins when a publication arrives there: add the way from the client.
    Among peers, what the simulator runs as a server (the gateway of VSO) is one of them."""
    m = measures
    if candidate.protocol == CLUSTER:
        p50, p99 = (None if ms is None else ms + one_way_ms for ms in (m.p50_ms, m.p99_ms))
        return replace(m, p50_ms=p50, p99_ms=p99)
    if not candidate.needs_server:
        busiest = max(m.peer_max_bytes_s, m.server_max_bytes_s)
        return replace(m, peer_max_bytes_s=busiest, server_max_bytes_s=0.0, servers=0)
    return m


def status_of(outcome: RunOutcome) -> str:
    """Of a run that is not complete."""
    if not outcome.was_begun:
        return "not run"
    return "too slow" if outcome.is_late else "failed"


class Adviser:
    """Runs rounds of simulations and keeps what became of each."""

    def __init__(
        self,
        runs: Runs,
        facts: WorldFacts,
        world: AnyPath,
        options: AdviceOptions,
        seconds: float,
        tell: Callable[[str], None],
        clock: Callable[[], float] = time,
    ) -> None:
        self.runs, self.facts, self.world = runs, facts, world
        self.options, self.tell, self.clock = options, tell, clock
        self.began = clock()
        self.budget = Budget(seconds, clock)
        self.candidates = select_candidates(facts, options)
        self.left_out = {} if options.only else left_out(self.candidates)
        self.records: dict[RunKey, RunRecord] = {}
        self.took_s: dict[str, dict[int, float]] = {}
        self.interrupted = False

    # One run.

    def scenario(self, candidate: OverlayCandidate, crowd: float) -> Scenario:
        settings: dict[str, Setting] = {
            "trace": str(self.world), "start_s": self.facts.start_s,
            "displace": self.facts.radius / 10, "latency_ms": self.options.one_way_ms,
            "network": "centre" if candidate.servers > 1 else "constant", "sample_ms": 0.0,
            **candidate.settings,
        }  # fmt: skip
        plain = Scenario(
            protocol=candidate.protocol, workload="replayed", nodes=self.nodes(crowd),
            seconds=self.facts.seconds, seed=self.options.seed, record="sums", settings=settings,
        )  # fmt: skip
        return resolve(plain)[0]

    def nodes(self, crowd: float) -> int:
        return max(1, round(crowd * self.facts.entities))

    def estimate(self, candidate: OverlayCandidate, crowd: float) -> float | None:
        """By its own runs, or by those of the overlay's main form."""
        for name in (candidate.name, candidate.variant_of):
            if self.took_s.get(name):
                least_s = min(min(known.values()) for known in self.took_s.values()) / 2
                return estimate_s(self.took_s[name], self.nodes(crowd), least_s)
        return None

    def is_within_limits(self, name: str, crowd: float) -> bool:
        record = self.records.get((name, crowd))
        return (
            record is not None
            and record.measures is not None
            and not crossed_limits(record.measures, self.options.limits)
        )

    def candidate_of(self, name: str) -> OverlayCandidate:
        return next(each for each in self.candidates if each.name == name)

    # A round.

    def run_round(
        self, title: str, wanted: Iterable[tuple[OverlayCandidate, float]], share: float,
        *, measured: bool = True,
    ) -> None:  # fmt: skip
        """Run what fits into this share of the time that is left, and measure it."""
        runs = {(each.name, crowd): self.scenario(each, crowd) for each, crowd in wanted}
        runs = {key: run for key, run in runs.items()
                if key not in self.records or self.records[key].status == "not run"}  # fmt: skip
        if not runs:
            return
        until = self.budget.ends_at(share)
        room = max(0.0, until - self.clock())
        there = self.runs.complete()
        estimates = [
            Estimated(
                key, 0.0 if run.run in there else self.estimate(self.candidate_of(key[0]), key[1])
            )
            for key, run in runs.items()
        ]
        chosen, others = choose_runs(estimates, self.runs.slots, room)
        for each in others:
            self.skip(each, room)
        if not chosen:
            self.tell(f"{title}: nothing fits into the {room:.0f} s that it may take")
            return
        self.tell(
            f"{title}: {len(chosen)} runs on {self.runs.slots} cores in at most {room:.0f} s"
            + (f", {len(others)} would take longer" if others else "")
            + f" ({self.budget.left_s:.0f} s left)"
        )
        scenarios = {each.key: runs[each.key] for each in chosen}
        outcomes = self.runs.simulate(list(scenarios.values()), until)
        self.settle(scenarios, outcomes, measured=measured)

    def skip(self, each: Estimated, room: float) -> None:
        name, crowd = each.key
        cost = each.seconds or 0.0
        why = f"it would take about {cost:,.0f} s, and {room:,.0f} s were left"
        if cost <= room:
            why += " for it and cheaper ones"
        record = RunRecord(candidate=name, crowd=crowd, nodes=self.nodes(crowd), reason=why)
        self.records.setdefault(each.key, record)

    def settle(
        self, scenarios: Mapping[RunKey, Scenario], outcomes: Mapping[str, RunOutcome],
        *, measured: bool,
    ) -> None:  # fmt: skip
        """Note what became of each run of a round, and measure the complete ones."""
        complete: dict[RunKey, str] = {}
        done, lost = [], []
        for (name, crowd), scenario in scenarios.items():
            outcome = outcomes[scenario.run]
            if not outcome.failure:
                complete[name, crowd] = scenario.run
                self.took_s.setdefault(name, {})[scenario.nodes] = outcome.took_s
                done.append(f"{name} {outcome.took_s:.0f} s")
                continue
            self.records[name, crowd] = RunRecord(
                candidate=name, crowd=crowd, nodes=scenario.nodes, run=scenario.run,
                status=status_of(outcome), reason=outcome.failure,
            )  # fmt: skip
            lost.append(f"{name} ({outcome.failure})")
            if outcome.is_late:  # nobody knows how much longer it would have taken
                self.took_s.setdefault(name, {})[scenario.nodes] = 2 * outcome.took_s
        self.tell(f"  done: {', '.join(done) or 'none'}")
        if lost:
            self.tell(f"  not done: {', '.join(lost)}")
        if measured and complete:
            self.measure(complete)

    def measure(self, complete: Mapping[RunKey, str]) -> None:
        began = self.clock()
        found = self.runs.measure(
            list(complete.values()), self.budget.left_s - REPORT_S, warm_up(self.facts.seconds)
        )
        self.budget.measured_in(self.clock() - began)
        for (name, crowd), run in complete.items():
            record = RunRecord(
                candidate=name, crowd=crowd, nodes=self.nodes(crowd), run=run, status="too slow",
                reason="it was simulated, but could not be measured in time",
            )  # fmt: skip
            if run in found:
                seen = as_users_see(self.candidate_of(name), found[run], self.options.one_way_ms)
                record = replace(record, status="measured", reason="", measures=seen)
            self.records[name, crowd] = record

    # All rounds.

    def run(self, write: Callable[[Advice], None]) -> Advice:
        """All rounds; `write` gets the advice after each. Ctrl-C ends them."""
        try:
            for round_ in self.rounds():
                round_()
                write(self.advice())
        except KeyboardInterrupt:
            self.interrupted = True
            self.tell("interrupted: the report has what was found until now")
        advice = self.advice()
        write(advice)
        return advice

    def rounds(self) -> Iterable[Callable[[], None]]:
        main = [each for each in self.candidates if not each.is_variant]
        variants = [each for each in self.candidates if each.is_variant]
        only_variants = [each for each in variants if each.variant_of not in {m.name for m in main}]
        main += only_variants
        if self.facts.entities > 2 * PILOTS[0]:
            yield partial(self.run_pilots, main)
        yield partial(self.run_recorded_crowd, main)
        previous = 1.0
        for crowd in self.options.crowds:
            yield partial(self.run_grown, main, previous, crowd)
            previous = crowd
        yield partial(self.run_variants, variants)
        yield partial(self.run_grown_variants, variants)
        yield self.run_left_over

    def run_pilots(self, main: Sequence[OverlayCandidate]) -> None:
        """Some of the entities, then more, to learn how long runs take; nothing is measured."""
        for size in PILOTS:
            if self.facts.entities <= 2 * size:
                return
            crowd = size / self.facts.entities
            wanted = [(each, crowd) for each in main if (each.name, 1.0) not in self.records]
            title = f"{size} entities, to see how long runs take"
            self.run_round(title, wanted, 0.15, measured=False)
            for each in main:
                record = self.records.pop((each.name, crowd), None)
                if record is not None and record.status == "failed":
                    self.records[each.name, 1.0] = replace(
                        record, crowd=1.0, nodes=self.nodes(1.0),
                        reason=f"with {size} entities: {record.reason}",
                    )  # fmt: skip

    def run_recorded_crowd(self, main: Sequence[OverlayCandidate]) -> None:
        """All of the crowd, or of an overlay that is too slow for that, as large a part as fits:
        that says more than nothing."""
        room = self.budget.for_runs_s * 0.5
        wanted = []
        for each in main:
            cost = self.estimate(each, 1.0)
            if cost is None or cost <= room:
                wanted.append((each, 1.0))
                continue
            self.skip(Estimated((each.name, 1.0), cost), room)
            part = self.part_that_fits(each, room * self.runs.slots / len(main))
            if part is not None:
                wanted.append((each, part))
        self.run_round("the recorded crowd", wanted, 0.5)

    def part_that_fits(self, candidate: OverlayCandidate, room: float) -> float | None:
        """The largest; the smallest one is the first pilot, which is there already."""
        parts = (*THINNER, PILOTS[0] / self.facts.entities)
        fits = (
            part
            for part in parts
            if self.nodes(part) >= PILOTS[0] and (self.estimate(candidate, part) or inf) <= room
        )
        return next(fits, None)

    def run_grown(self, main: Sequence[OverlayCandidate], previous: float, crowd: float) -> None:
        """Who is within the limits with fewer."""
        wanted = [(each, crowd) for each in main if self.is_within_limits(each.name, previous)]
        self.run_round(f"{crowd:g} times the crowd", wanted, 0.45)
        for each in main:  # say why the larger crowds of the same overlay are not even tried
            before = self.records.get((each.name, previous))
            if (
                before is not None
                and before.measures is None
                and (each.name, previous) != (each.name, 1.0)
            ):
                self.records.setdefault(
                    (each.name, crowd),
                    RunRecord(candidate=each.name, crowd=crowd, nodes=self.nodes(crowd),
                              reason=f"{previous:.4g}× is not known either"),
                )  # fmt: skip

    def run_variants(self, variants: Sequence[OverlayCandidate]) -> None:
        wanted = [(each, 1.0) for each in variants if self.was_measured(each.variant_of)]
        self.run_round("other parameters, with the recorded crowd", wanted, 0.5)

    def was_measured(self, name: str) -> bool:
        record = self.records.get((name, 1.0))
        return record is not None and record.measures is not None

    def run_grown_variants(self, variants: Sequence[OverlayCandidate]) -> None:
        """Those that are better than their main form, or go on where it breaks."""
        worthy = [each for each in variants if self.is_worth_more_runs(each)]
        previous = 1.0
        for crowd in self.options.crowds:
            wanted = [
                (each, crowd) for each in worthy if self.is_within_limits(each.name, previous)
            ]
            self.run_round(f"other parameters, with {crowd:g} times the crowd", wanted, 0.5)
            previous = crowd

    def is_worth_more_runs(self, variant: OverlayCandidate) -> bool:
        main = variant.variant_of
        ours, theirs = (self.records.get((name, 1.0)) for name in (variant.name, main))
        if ours is None or ours.measures is None or theirs is None or theirs.measures is None:
            return False
        breaks = not all(
            self.is_within_limits(main, crowd) for crowd in (1.0, *self.options.crowds)
        )
        cheaper = ours.measures.peer_max_bytes_s < BETTER * theirs.measures.peer_max_bytes_s
        return breaks or cheaper

    def run_left_over(self) -> None:
        """What did not fit before, if it does now."""
        wanted = [
            (self.candidate_of(name), crowd)
            for (name, crowd), record in self.records.items()
            if record.status == "not run"
            and (crowd <= 1 or self.is_within_limits(name, self.before(crowd)))
        ]
        if self.budget.for_runs_s > 0:
            self.run_round("what did not fit before", wanted, 1.0)

    def before(self, crowd: float) -> float:
        smaller = [each for each in (1.0, *self.options.crowds) if each < crowd]
        return max(smaller, default=1.0)

    # What follows.

    def advice(self) -> Advice:
        limits = self.options.limits
        records = group_records(self.records.values())
        growths = [judge_growth(each, records[each.name], limits)
                   for each in self.candidates if each.name in records]  # fmt: skip
        first = recommend(growths, limits, with_server=self.options.with_server)
        second = None
        if first.candidate is None or first.candidate.needs_server:
            second = recommend(growths, limits, with_server=False)
        order = {each.name: place for place, each in enumerate(self.candidates)}
        return Advice(
            facts=self.facts, options=self.options, world=str(self.world),
            took_s=self.clock() - self.began, interrupted=self.interrupted,
            candidates=tuple(self.candidates), growths=tuple(growths), recommendation=first,
            deployment=self.deployment(first),
            without_server=second if self.options.with_server else None,
            without_server_deployment=self.deployment(second) if self.options.with_server else None,
            records=tuple(sorted(
                self.records.values(), key=lambda each: (order[each.candidate], each.crowd)
            )),
            left_out=self.left_out,
        )  # fmt: skip

    def deployment(self, what: Recommendation | None) -> Deployment | None:
        if what is None or what.candidate is None:
            return None
        return make_deployment(what.candidate, self.facts, what.holds_to)
