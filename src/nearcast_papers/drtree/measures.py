"""The measures of [DRtree], read from result tables: by strategy, distribution and level."""

from collections.abc import Callable
from contextlib import suppress
from math import nan, sqrt
from statistics import stdev
from typing import Any

from msgspec import Struct

from nearcast_papers.drtree.path_lengths import TOLD_BY
from nearcast_papers.fits import line_fit
from nearcast_papers.paper import NotMeasuredError, PaperMeasures

STRATEGIES = "double-wave", "brothers", "root-link", "ancestors"
HOTSPOTS = "cold", "warm", "hot", "burning"
LOCAL = "double-wave", "brothers", "ancestors"  # those that do not go to the root first
CYCLE_MS = 50.0  # of ours to a cycle of the paper
RATE = 0.5 * 1000 / CYCLE_MS  # publications per second: one every other cycle
TINY = 1e-12
MIN_PUBLICATIONS = 20  # publications of one popularity, before their mean is compared

Curve = dict[int, tuple[int, float]]  # interested: publications, mean cycles until all have it


class LevelLoad(Struct, frozen=True):
    """What a peer of one level does in a cycle, and how much of it the peer did not want."""

    received: float
    sent: float
    unwanted: float
    received_std: float = nan  # over the peers; not counted where nodes are
    sent_std: float = nan
    most: float = nan  # received and sent, of the busiest


class DRTreeMeasures(PaperMeasures):
    """The measures of the paper, by strategy and distribution, over all seeds."""

    def rows(
        self, table: str, strategy: str, hotspots: str, **settings: Any
    ) -> list[dict[str, Any]]:
        """Rows of the usual set-up, with some settings changed."""
        nodes = settings.get("nodes", 1024)
        usual: dict[str, Any] = {}
        if "churn_rate" not in settings:
            usual |= {"nodes": nodes, "churn_rate": 0.0, "rate": RATE}
            usual |= {"network": "constant", "size": 1024 * sqrt(nodes / 1024)}
            usual |= {"jitter_ms": CYCLE_MS / 10, "set_up_jitter": False, "join_queue": 1.0}
            usual |= {"spread": 30.0, "promotes": "coverage"}
        wanted = {**usual, "strategy": strategy, "hotspots": hotspots, **settings}
        return self._counted.rows(table, **wanted)

    def curve(self, strategy: str, hotspots: str, **settings: Any) -> Curve:
        """By popularity (figures 2 and 6)."""
        sums: dict[int, tuple[int, float]] = {}
        for row in self.rows("popularity", strategy, hotspots, **settings):
            if row["complete"]:
                number, total = sums.get(row["interested"], (0, 0.0))
                whole = row["complete"] * row["total_time_mean_ms"] / CYCLE_MS
                sums[row["interested"]] = number + row["complete"], total + whole
        return {k: (n, total / n) for k, (n, total) in sorted(sums.items())}

    def mean(self, strategy: str, hotspots: str, least: int = 1, **settings: Any) -> float:
        """Over all publications that so many want."""
        return mean_from(self.curve(strategy, hotspots, **settings), least)

    def error(self, strategy: str, hotspots: str, least: int = 1, **settings: Any) -> float | None:
        """Standard error of the mean over runs of different seeds, as a share of that mean.

        Publications of one run share its tree, so it is the runs that are independent. None: of a
        single run nothing is known.
        """
        nodes = settings.get("nodes", 1024)
        seeds = dict.fromkeys(run.seed for run in self._counted.runs(nodes=nodes))
        means = []
        for seed in seeds:
            with suppress(NotMeasuredError):
                means.append(self.mean(strategy, hotspots, least, **settings, seed=seed))
        if len(means) < 2:
            return None
        return stdev(means) / sqrt(len(means)) / (sum(means) / len(means))

    def levels(self, strategy: str, hotspots: str, **settings: Any) -> list[LevelLoad]:
        """Per cycle, from the root's level to the leaves' (figures 3 to 5)."""
        loads = self.rows("traffic_by_level", strategy, hotspots, **settings)
        wrong = self.rows("false_positives_by_level", strategy, hotspots, **settings)
        height = {load["run"]: 0 for load in loads}
        for load in loads:
            height[load["run"]] = max(height[load["run"]], round(load["level"]))
        deepest = min(height.values())
        found = []
        for depth in range(deepest + 1):
            here = [row for row in loads if height[row["run"]] - row["level"] == depth]
            false = [
                row for row in wrong
                if row["level"] is not None and height[row["run"]] - row["level"] == depth
            ]  # fmt: skip
            found.append(load_of(here, false))
        return found

    def ways(self, counted: str, strategy: str, hotspots: str, **settings: Any) -> Curve:
        """As `curve`, but of steps between `peers` or `nodes`, as the tree tells them."""
        column = f"{counted}_{strategy.replace('-', '_')}"
        sums: dict[int, tuple[int, float]] = {}
        for row in self.rows("ways", TOLD_BY, hotspots, **settings):
            number, total = sums.get(row["interested"], (0, 0.0))
            sums[row["interested"]] = number + row["publications"], total + row[column]
        return {k: (n, total / n) for k, (n, total) in sorted(sums.items())}

    def spreads(self, strategy: str, hotspots: str) -> list[float]:
        """By level: standard deviation over mean, of what is received or sent, the larger."""
        return [
            max(one.received_std / max(one.received, TINY), one.sent_std / max(one.sent, TINY))
            for one in self.levels(strategy, hotspots)
        ]

    def busiest(self, strategy: str, hotspots: str) -> float:
        """What the busiest peer receives and sends in a cycle."""
        return max(one.most for one in self.levels(strategy, hotspots))

    def nodes(self, strategy: str, hotspots: str, **settings: Any) -> list[LevelLoad]:
        """As `levels`, but of the nodes of the tree, whichever peers own them."""
        settings["note_levels"] = True
        rows = self.rows("traffic_by_tree_level", strategy, hotspots, **settings)
        height = {run: max(r["level"] for r in rows if r["run"] == run)
                  for run in dict.fromkeys(row["run"] for row in rows)}  # fmt: skip
        found = []
        for depth in range(min(height.values()) + 1):
            here = [row for row in rows if height[row["run"]] - row["level"] == depth]
            nodes = sum(row["nodes"] * cycles(row) for row in here)
            received = sum(row["received"] for row in here)
            unwanted = sum(row["unwanted"] for row in here)
            sent = sum(row["sent"] for row in here)
            rate = unwanted / received if received else 0.0
            found.append(LevelLoad(received / nodes, sent / nodes, rate))
        return found

    def heights(self, **settings: Any) -> dict[str, int]:
        """Of every run, by its name: how far the leaves are below the root."""
        rows = self._counted.rows("traffic_by_level", **settings)
        return {
            run: max(round(row["level"]) for row in rows if row["run"] == run)
            for run in dict.fromkeys(row["run"] for row in rows)
        }

    def recall(self, strategy: str, hotspots: str, **settings: Any) -> float:
        rows = self.rows("delivery_totals", strategy, hotspots, **settings)
        return float(sum(r["correct"] for r in rows) / max(1, sum(r["expected"] for r in rows)))

    def all_rows(self, table: str, **settings: Any) -> list[dict[str, Any]]:
        return self._counted.rows(table, **settings)


def cycles(row: dict[str, Any]) -> float:
    return float(row["seconds"] * 1000 / CYCLE_MS)


def mean_from(curve: Curve, least: int = 1) -> float:
    counted = [(n, m) for k, (n, m) in curve.items() if k >= least]
    if not counted:
        raise NotMeasuredError(f"publications that {least} want")
    return sum(n * m for n, m in counted) / sum(n for n, _ in counted)


def load_of(loads: list[dict[str, Any]], false: list[dict[str, Any]]) -> LevelLoad:
    """The load of one level from its rows, weighted by the number of nodes."""
    nodes = sum(row["nodes"] for row in loads)

    def weighted(name: str) -> float:
        return float(sum(row["nodes"] * row[name] / cycles(row) for row in loads) / nodes)

    carried = sum(row["carried"] for row in false)
    return LevelLoad(
        weighted("received_mean"),
        weighted("sent_mean"),
        sum(row["unwanted"] for row in false) / carried if carried else 0.0,
        weighted("received_std"),
        weighted("sent_std"),
        max(row["load_max"] / cycles(row) for row in loads),
    )


def frequent_popularities(curve: Curve, least: int = 2) -> Curve:
    """Those popularities that enough publications had; NotMeasuredError if there are none."""
    found = {k: kept for k, kept in curve.items() if k >= least and kept[0] >= MIN_PUBLICATIONS}
    if not found:
        raise NotMeasuredError(f"{MIN_PUBLICATIONS} publications that {least} want")
    return found


def mean_at(curve: Curve, popularity: int) -> float:
    """The mean of that popularity; NotMeasuredError if no publication had it."""
    if popularity not in curve:
        raise NotMeasuredError(f"publications that exactly {popularity} want")
    return curve[popularity][1]


def slope(curve: Curve, begin: int, end: int) -> float:
    """Additional cycles per additional subscriber, by least squares over that part of the curve."""
    part = [(float(k), m) for k, (_, m) in curve.items() if begin <= k <= end]
    return line_fit(part)[0] if len(part) > 1 else 0.0


def each_hotspot(measure: Callable[[str], float]) -> dict[str, float]:
    return {hotspots: measure(hotspots) for hotspots in HOTSPOTS}
