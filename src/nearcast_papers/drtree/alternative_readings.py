"""Other readings of [DRtree]: what the paper may have meant where it is not clear.

A reading takes the measures of the paper in another way, so every claim can be evaluated under each
reading. The result of a claim is that of the main reading; its note adds the results of readings
that differ.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from nearcast_papers.drtree.measures import (
    HOTSPOTS,
    Curve,
    DRTreeMeasures,
    LevelLoad,
    frequent_popularities,
    mean_from,
)
from nearcast_papers.paper import ClaimResult, CountedRuns, NotMeasuredError, PaperClaim

NARROW_SPREAD, WIDE_SPREAD = (
    10.0,
    60.0,
)  # spread of a hotspot, which the paper does not say; we took 30


class InSameTrees(DRTreeMeasures):
    """Jitter makes every run a tree of its own; here each strategy goes its way in all of them."""

    def curve(self, strategy: str, hotspots: str, **settings: Any) -> Curve:
        return self.ways("peers", strategy, hotspots, **settings)


class WithoutJitter(DRTreeMeasures):
    """Without jitter all strategies have the very same tree."""

    def rows(
        self, table: str, strategy: str, hotspots: str, **settings: Any
    ) -> list[dict[str, Any]]:
        return super().rows(table, strategy, hotspots, **settings, jitter_ms=0.0)


class ByNodes(WithoutJitter):
    """Nodes of the tree each by themselves: a step within a peer takes a cycle and is a message."""

    def curve(self, strategy: str, hotspots: str, **settings: Any) -> Curve:
        return DRTreeMeasures(self._counted).ways("nodes", strategy, hotspots, **settings)

    def levels(self, strategy: str, hotspots: str, **settings: Any) -> list[LevelLoad]:
        return self.nodes(strategy, hotspots, **settings)

    def spreads(self, strategy: str, hotspots: str) -> list[float]:
        raise NotMeasuredError(f"the spread over nodes of {strategy}, {hotspots}")

    def busiest(self, strategy: str, hotspots: str) -> float:
        raise NotMeasuredError(f"the busiest node of {strategy}, {hotspots}")


class EachPopularityOnce(DRTreeMeasures):
    """Means along a curve that count each popularity once, and not each publication."""

    def mean(self, strategy: str, hotspots: str, least: int = 1, **settings: Any) -> float:
        curve = frequent_popularities(self.curve(strategy, hotspots, **settings), least)
        return mean_from({k: (1, mean) for k, (_, mean) in curve.items()})


class SharedPopularities(DRTreeMeasures):
    """Means over the popularities that all distributions have, each counted once."""

    def mean(self, strategy: str, hotspots: str, least: int = 1, **settings: Any) -> float:
        curves = {
            h: frequent_popularities(self.curve(strategy, h, **settings), least) for h in HOTSPOTS
        }
        shared = [k for k in curves[hotspots] if all(k in curve for curve in curves.values())]
        return mean_from({k: (1, curves[hotspots][k][1]) for k in shared})


class AgainstTallestBar(DRTreeMeasures):
    """Spread measured against the tallest bar of the figure: "very low" as the eye sees it."""

    def spreads(self, strategy: str, hotspots: str) -> list[float]:
        loads = self.levels(strategy, hotspots)
        received, sent = max(one.received for one in loads), max(one.sent for one in loads)
        return [max(one.received_std / received, one.sent_std / sent) for one in loads]


class WithoutBrothersRoot(DRTreeMeasures):
    """Brothers without its root, which the paper itself says to be like a leaf."""

    def levels(self, strategy: str, hotspots: str, **settings: Any) -> list[LevelLoad]:
        loads = super().levels(strategy, hotspots, **settings)
        return [loads[1], *loads[1:]] if strategy == "brothers" else loads


class WithChangedSettings(DRTreeMeasures):
    """Runs with a setting changed, of Double wave alone: its tree tells the ways of the others."""

    def __init__(self, counted: CountedRuns, **changed: Any) -> None:
        super().__init__(counted)
        self._changed = changed

    def rows(
        self, table: str, strategy: str, hotspots: str, **settings: Any
    ) -> list[dict[str, Any]]:
        if hotspots == "cold" and "spread" in self._changed:  # there is nothing to spread
            return super().rows(table, strategy, hotspots, **settings)
        return super().rows(table, strategy, hotspots, **settings, **self._changed)

    def curve(self, strategy: str, hotspots: str, **settings: Any) -> Curve:
        return self.ways("peers", strategy, hotspots, **settings)


class AlternativeReading(Struct, frozen=True):
    """Another way to take the paper's measures, and the claims that it affects."""

    name: str
    view: Callable[[CountedRuns], DRTreeMeasures]
    claims: Sequence[int]  # on which it bears


TIMES, LOADS, GROWTH = range(5, 20), range(20, 34), (34, 35)
READINGS = (
    AlternativeReading("in the same trees", InSameTrees, (*TIMES, *GROWTH)),
    AlternativeReading("without jitter", WithoutJitter, (*TIMES, *LOADS, 37)),
    AlternativeReading("by nodes", ByNodes, (*TIMES, *LOADS, *GROWTH)),
    AlternativeReading("with each popularity once", EachPopularityOnce, (12, 13, 14, 15, 19, 35)),
    AlternativeReading("at shared popularities", SharedPopularities, (12, 13, 14, 15, 19)),
    AlternativeReading("against the figure", AgainstTallestBar, (22,)),
    AlternativeReading("with the root of Brothers aside", WithoutBrothersRoot, (24, 30)),
    AlternativeReading(
        "with narrow hotspots", partial(WithChangedSettings, spread=NARROW_SPREAD), TIMES
    ),
    AlternativeReading(
        "with wide hotspots", partial(WithChangedSettings, spread=WIDE_SPREAD), TIMES
    ),
    AlternativeReading(
        "with owners of least address", partial(WithChangedSettings, promotes="address"), TIMES
    ),
    AlternativeReading("in one world", partial(WithChangedSettings, size=1024.0), GROWTH),
)
VERDICTS = {True: "holds", False: "does not hold"}


def evaluate_readings(statement: PaperClaim, counted: CountedRuns) -> ClaimResult:
    """By the main reading, with a note of what each other one gives that is not the same."""
    claim = statement.evaluate("drtree", "000", DRTreeMeasures(counted))
    text = [claim.note] if claim.note else []
    for reading in READINGS:
        if statement.rule is None or statement.item not in reading.claims:
            continue
        try:
            measured, holds = statement.rule(reading.view(counted))
        except NotMeasuredError:
            continue
        if measured != claim.measured:
            text.append(f"Read {reading.name}, it {VERDICTS[holds]}: {measured}.")
    return replace(claim, note=" ".join(text))
