"""The measures of [Lehn], read from the results of the round model and from result tables."""

from collections.abc import Callable
from functools import cached_property
from statistics import mean, pstdev
from typing import Any, Self

from msgspec import Struct

from nearcast.scenario import Scenario
from nearcast_papers.fits import percentile
from nearcast_papers.paper import NotMeasuredError, PaperMeasures
from nearcast_papers.relays import worlds
from nearcast_papers.relays.model import (
    SHARED_HEADER,
    RoundResult,
    RoundScenario,
    RoundState,
    run_missing,
)
from nearcast_papers.relays.scenarios import (
    FULL,
    GAME_PLAYERS,
    QUICK,
    RATE,
    SIZES,
    TYPICAL,
    RelayPreset,
    round_scenarios,
)

SETTLED_FROM = 2 / 3  # from here on a run counts as settled


class UplinkUtilisation(Struct, frozen=True):
    """Peers' utilisation over a stretch of time, each peer's mean, in order."""

    used: list[float]

    @property
    def mean(self) -> float:
        return mean(self.used)

    @property
    def p90(self) -> float:
        return percentile(self.used, 90)

    @property
    def deviation(self) -> float:
        return pstdev(self.used)

    @property
    def overloaded(self) -> float:
        return mean(float(one > 1) for one in self.used)


class UpdateDelivery(Struct, frozen=True):
    """What became of updates in a stretch of time."""

    expected: int
    missed: float  # share
    path: float
    latency: float  # seconds
    duplicates: int


class RelayMeasures(PaperMeasures):
    """The measures of the paper, over all seeds."""

    shared = SHARED_HEADER  # of the rounds that count: see `RoundScenario`

    @property
    def seeds(self) -> tuple[int, ...]:
        """Of the round model, and of messages."""
        return tuple(sorted({*self.preset.seeds, *super().seeds}))

    def of_seed(self, seed: int) -> Self:
        results = self._round_results  # of all seeds: which form was run is told by the runs of one
        one = super().of_seed(seed)
        one._round_results = {
            scenario: r for scenario, r in results.items() if scenario.seed == seed
        }
        return one

    # The round model.

    @cached_property
    def preset(self) -> RelayPreset:
        """Runs of the full form say more often where they are."""
        return FULL if self._counted.runs(rate=RATE) else QUICK

    @cached_property
    def _round_results(self) -> dict[RoundScenario, RoundResult]:
        wanted = round_scenarios(self.preset)
        if not self._counted.runs(workload="interest-graph"):
            wanted.pop("7", None)  # which takes longest, and was not asked for
        folder = self._counted.folder / "rounds"
        return run_missing((scenario for some in wanted.values() for scenario in some), folder)

    def rounds(self, figure: str, **settings: Any) -> list[RoundResult]:
        """The results of a figure with these settings, for all seeds."""
        wanted = {"shared": self.shared, **settings}
        found = [
            self._round_results[scenario]
            for scenario in round_scenarios(self.preset).get(figure, ())
            if scenario in self._round_results
            and all(getattr(scenario, k) == v for k, v in wanted.items())
        ]
        if not found:
            raise NotMeasuredError(", ".join(f"{k}={v}" for k, v in settings.items()) or figure)
        return found

    def ended(self, figure: str, what: str, **settings: Any) -> float:
        """On average over seeds, in the end."""
        return float(mean(getattr(one.last, what) for one in self.rounds(figure, **settings)))

    def began(self, figure: str, what: str, **settings: Any) -> float:
        return float(mean(getattr(one.first, what) for one in self.rounds(figure, **settings)))

    def after(self, figure: str, rounds: int, what: str, **settings: Any) -> float:
        """On average over seeds, after so many rounds."""
        found = self.rounds(figure, **settings)
        return float(mean(getattr(one.states[rounds], what) for one in found))

    def operations(self, figure: str, what: Callable[[RoundState], int], **settings: Any) -> float:
        """In all rounds of a play together."""
        return mean(sum(map(what, one.states)) for one in self.rounds(figure, **settings))

    def late(self, figure: str, what: str, **settings: Any) -> float:
        """On average over seeds and the last third of the rounds, for worlds that change."""
        found = self.rounds(figure, **settings)
        late = (one.states[-(len(one.states) // 3) :] for one in found)
        return mean(float(mean(getattr(m, what) for m in states)) for states in late)

    def performance(self, clustering: float) -> float:
        """What high clustering improves: "the necessary latency stretch is lower" (V-B)."""
        return -self.ended("7", "stretch", clustering=clustering)

    # The message protocol.

    def twice(self) -> int:
        """Deliveries that came again, in all runs."""
        return sum(row["duplicates"] for row in self._counted.rows("heard_by_second"))

    def all_delivered(self) -> int:
        return sum(row["correct"] for row in self._counted.rows("heard_by_second"))

    def runs(self, **settings: Any) -> list[Scenario]:
        return self._counted.require(**settings)

    def peers(self) -> list[int]:
        """How many there were in runs of virtual reality in which all stood still."""
        found = [nodes for nodes in SIZES if self._counted.runs(**still_runs(nodes))]
        if not found:
            raise NotMeasuredError("peers that stand still")
        return found

    def uplinks(
        self, since: float = SETTLED_FROM, until: float = 1.0, **settings: Any
    ) -> UplinkUtilisation:
        """Between two shares of the run: means of the seconds in which a peer was there."""
        used: list[float] = []
        for run in self.runs(**settings):
            first, last = run.seconds * since, run.seconds * until
            sums: dict[int, list[float]] = {}
            for row in self._counted.table("utilisation_by_node", run).to_pylist():
                if first <= row["second"] < last:
                    sums.setdefault(row["node"], []).append(row["utilisation"])
            used += [mean(found) for found in sums.values()]
        return UplinkUtilisation(sorted(used))

    def uplinks_by_second(self, **settings: Any) -> dict[int, UplinkUtilisation]:
        by_second: dict[int, list[float]] = {}
        for row in self._counted.rows("utilisation_by_node", **settings):
            if row["second"] < row["seconds"]:
                by_second.setdefault(row["second"], []).append(row["utilisation"])
        return {
            second: UplinkUtilisation(sorted(used)) for second, used in sorted(by_second.items())
        }

    def delivered(
        self, since: float = SETTLED_FROM, until: float = 1.0, **settings: Any
    ) -> UpdateDelivery:
        """The outcome of updates between two shares of the run."""
        rows = [
            row
            for row in self._counted.rows("heard_by_second", **settings)
            if since * row["seconds"] <= row["second"] < until * row["seconds"]
        ]
        expected, correct = (sum(row[name] for row in rows) for name in ("expected", "correct"))
        return UpdateDelivery(
            expected,
            sum(row["missed"] for row in rows) / max(1, expected),
            sum(row["hops"] or 0 for row in rows) / max(1, correct),
            sum(row["late_us"] or 0 for row in rows) / max(1, correct) / 1e6,
            sum(row["duplicates"] for row in rows),
        )

    def heard_by_second(self, **settings: Any) -> dict[int, tuple[int, int]]:
        """Missed and expected."""
        found: dict[int, tuple[int, int]] = {}
        for row in self._counted.rows("heard_by_second", **settings):
            if row["second"] < row["seconds"]:
                missed, expected = found.get(row["second"], (0, 0))
                found[row["second"]] = missed + row["missed"], expected + row["expected"]
        return dict(sorted(found.items()))

    def done_by_second(self, what: str, **settings: Any) -> dict[int, float]:
        """Operations of a run on average."""
        runs, found = len(self.runs(**settings)), dict[int, float]()
        for row in self._counted.rows("operations_by_second", **settings):
            if row["second"] < row["seconds"]:
                found[row["second"]] = found.get(row["second"], 0.0) + row[what] / runs
        return dict(sorted(found.items()))

    def stretch(self, **settings: Any) -> float:
        """Mean latency of updates over that of their direct ways, of peers that stand still."""
        direct = [direct_latency(run.nodes, run.seed) for run in self.runs(**settings)]
        return self.delivered(**settings).latency / mean(direct)

    def graph_stretch(self, **settings: Any) -> float:
        """Likewise, of the clustering scenario."""
        direct: list[float] = []
        for run in self.runs(**settings):
            settings = run.settings
            graph = worlds.interest_graph_of(
                run.nodes, float(settings["clustering"]), run.seed, float(settings["degree"])
            )
            delay = worlds.delay_matrix(range(run.nodes), run.seed)
            direct.append(mean(float(delay[u, v]) for v, near in enumerate(graph) for u in near))
        return self.delivered(**settings).latency / mean(direct)


def direct_latency(nodes: int, seed: int) -> float:
    """Of all subscriptions of a virtual reality."""
    world = worlds.virtual_reality_world(nodes, seed)
    return float(world.delay[worlds.subscription_matrix(world)].mean())


# Which runs are meant.


def still_runs(nodes: int, relays: str = "on") -> dict[str, Any]:
    """Virtual reality in which nobody moves or goes, with the usual weights."""
    return {
        "workload": "virtual-reality", "nodes": nodes, "relays": relays, "walking": 0.0,
        "churn_rate": 0.0, "w_sender": 64.0, "w_latency": 1.0,
    }  # fmt: skip


def weighted_runs(x: float) -> dict[str, Any]:
    return {
        "workload": "virtual-reality", "relays": "on", "walking": 0.0, "churn_rate": 0.0,
        "w_sender": 64 * x, "w_latency": 1 - x,
    }  # fmt: skip


def clustered_runs(clustering: float, relays: str) -> dict[str, Any]:
    return {"workload": "interest-graph", "clustering": clustering, "relays": relays}


def game_runs(relays: str) -> dict[str, Any]:
    return {"workload": "planetpi4", "nodes": GAME_PLAYERS, "relays": relays}


def moving_runs(relays: str) -> dict[str, Any]:
    return {
        "workload": "virtual-reality", "network": "embedding", "walking": 1.0, "relays": relays,
    }  # fmt: skip


def churn_runs(relays: str) -> dict[str, Any]:
    return {"workload": "virtual-reality", "churn_by": "crash", "relays": relays}


def typical_runs(relays: str = "on") -> dict[str, Any]:
    return still_runs(TYPICAL, relays)
