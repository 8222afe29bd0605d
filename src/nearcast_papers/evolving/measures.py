"""The measures of [Evolving], read from result tables: by design, over all seeds."""

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

from nearcast.protocols.brokers.messages import Adjust, Cancel, Interest, Pass, Post
from nearcast_papers.evolving.scenarios import (
    CHOICES,
    CLOCKS,
    PLAYERS,
    SIDE_BY_SIDE,
    TRADERS,
    settings_of,
)
from nearcast_papers.paper import NotMeasuredError, PaperMeasures

SUBSCRIPTION_KINDS = (
    Interest.kind,
    Cancel.kind,
    Adjust.kind,
)  # what clients and brokers say of interests
PUBLICATION_KINDS = Post.kind, Pass.kind  # publications that come to a broker


class TrafficRates(Struct, frozen=True):
    """Per entity and second: all messages, and those about interests."""

    messages: float
    bytes: float
    subscription_messages: float
    subscription_bytes: float


class DeliveryErrors(Struct, frozen=True):
    """As shares of what should have been heard."""

    missed: float
    spurious: float
    expected: int

    @property
    def all(self) -> float:
        return self.missed + self.spurious


class EvolutionTimes(Struct, frozen=True):
    """How often interests began to evolve, how long each did so, and for which share of time."""

    moves: int
    lasting_s: float
    share: float


class EvolvingMeasures(PaperMeasures):
    """The measures of the paper, over all seeds."""

    @property
    def seeds(self) -> tuple[int, ...]:
        """Of the runs that claims are about. No claim is about notifications, which have more."""
        runs = self._counted.runs()
        return tuple(sorted({run.seed for run in runs if run.workload != "notifications"}))

    def _run_settings(self, design: str, settings: dict[str, Any]) -> dict[str, Any]:
        """The usual comparison, but for these settings."""
        stamp, moment = CLOCKS[0]
        usual = {
            "workload": "mammoth", "nodes": PLAYERS, "topology": "tree", "stamp": stamp,
            "moment": moment, "skew_ms": 0.0, "brokers": 5,
        }  # fmt: skip
        if settings.get("workload") == "trading":
            usual["nodes"] = TRADERS
        else:
            usual |= {"pause": 2.0, "rate": 5.0, "pickups": 0.1}
        return {**usual, "interval_ms": 500.0, **settings_of(design), **settings}

    def _rows(self, table: str, design: str, settings: dict[str, Any]) -> list[dict[str, Any]]:
        """Those of the workload's own time."""
        rows = self._counted.rows(table, **self._run_settings(design, settings))
        return [row for row in rows if row.get("second", 0) < row["seconds"]]

    def _time(self, design: str, settings: dict[str, Any]) -> tuple[int, float, int]:
        """Entities of a run, the seconds of all runs, and how many runs there are."""
        runs = self._counted.runs(**self._run_settings(design, settings))
        return runs[0].nodes, sum(run.seconds for run in runs), len(runs)

    def traffic(self, design: str, **settings: Any) -> TrafficRates:
        """Messages and bytes per entity and second."""
        rows = self._rows("words_by_second", design, settings)
        nodes, seconds, _ = self._time(design, settings)

        def rate(column: str, kinds: Iterable[str] | None = None) -> float:
            chosen = (row for row in rows if kinds is None or row["kind"] in kinds)
            return float(sum(row[column] for row in chosen) / (nodes * seconds))

        return TrafficRates(
            rate("messages"), rate("bytes"),
            rate("messages", SUBSCRIPTION_KINDS), rate("bytes", SUBSCRIPTION_KINDS),
        )  # fmt: skip

    def load_by_second(self, design: str, subscribing: bool) -> list[float]:
        """Messages in each second, of one run on average."""
        rows = self._rows("words_by_second", design, {})
        _, seconds, runs = self._time(design, {})
        found = [0.0] * round(seconds / runs)
        for row in rows:
            if not subscribing or row["kind"] in SUBSCRIPTION_KINDS:
                found[row["second"]] += row["messages"] / runs
        return found

    def publications(self, design: str, **settings: Any) -> float:
        """That come to a broker in a second, all brokers taken together."""
        rows = self._rows("words_by_second", design, settings)
        _, seconds, _ = self._time(design, settings)
        return float(
            sum(row["messages"] for row in rows if row["kind"] in PUBLICATION_KINDS) / seconds
        )

    def evaluations(self, design: str, **settings: Any) -> float:
        """In a second, by all brokers together."""
        rows = self._rows("evaluations_by_second", design, settings)
        _, seconds, _ = self._time(design, settings)
        return float(sum(row["evaluations"] for row in rows) / seconds)

    def errors(self, design: str, **settings: Any) -> DeliveryErrors:
        return _sum_errors(self._rows("delivery_totals", design, settings))

    def chosen_errors(self, choice: str, *, side_by_side: bool) -> DeliveryErrors:
        """Of the people who chose this, among others who chose otherwise or all alike."""
        if choice not in CHOICES:
            raise NotMeasuredError(f"people who choose {choice}")
        evolve = SIDE_BY_SIDE if side_by_side else CHOICES[choice]
        rows = self._counted.rows("delivery_by_node", workload="notifications", evolve=evolve)
        if side_by_side:  # choices are given to entities in turn
            turn = list(CHOICES).index(choice)
            rows = [row for row in rows if row["node"] % len(CHOICES) == turn]
        return _sum_errors(rows)

    def chosen_evaluations(self, evolve: str) -> float:
        """In a second, by all brokers together, whatever people choose."""
        chosen = {"workload": "notifications", "evolve": evolve}
        rows = self._counted.rows("evaluations_by_second", **chosen)
        seconds = sum(run.seconds for run in self._counted.runs(**chosen))
        counted = sum(row["evaluations"] for row in rows if row["second"] < row["seconds"])
        return float(counted / seconds)

    def movement(self, design: str, **settings: Any) -> EvolutionTimes:
        rows = self._rows("movement_by_second", design, settings)
        nodes, seconds, _ = self._time(design, settings)
        moves, moving = sum(row["moves"] for row in rows), sum(row["moving_s"] for row in rows)
        return EvolutionTimes(moves, moving / max(1, moves), moving / (nodes * seconds))

    def fingerprints(self, design: str, **settings: Any) -> list[tuple[int, int, int]]:
        """Of each seed's movement: publications, interests, and a number for all of it."""
        rows = self._rows("movements", design, settings)
        return [(row["publications"], row["interests"], row["fingerprint"]) for row in rows]


def _sum_errors(rows: Iterable[Mapping[str, Any]]) -> DeliveryErrors:
    counts = [(row["expected"], row["missed"], row["spurious"]) for row in rows]
    expected, missed, spurious = (sum(column) for column in zip(*counts, strict=True))
    return DeliveryErrors(missed / max(1, expected), spurious / max(1, expected), expected)
