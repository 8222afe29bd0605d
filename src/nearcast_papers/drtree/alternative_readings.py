"""Readings of [DRtree]: what the paper may have meant where it is not clear."""

from functools import partial
from typing import Any

from nearcast_papers.drtree.measures import (
    HOTSPOTS,
    Curve,
    DRTreeMeasures,
    LevelLoad,
    frequent_popularities,
    mean_from,
)
from nearcast_papers.paper import CountedRuns, NotMeasuredError
from nearcast_papers.readings import Interpretation, Readings

NARROW_SPREAD, WIDE_SPREAD = (
    10.0,
    60.0,
)  # spread of a hotspot, which the paper does not say; we took 30


class StepsInTree(DRTreeMeasures):
    """Steps between peers, as the tree tells them: one run gives the ways of all strategies."""

    def curve(self, strategy: str, hotspots: str, **settings: Any) -> Curve:
        return self.ways("peers", strategy, hotspots, **settings)


class ByNodes(DRTreeMeasures):
    """Nodes of the tree each by themselves: a step within a peer takes a cycle and is a message."""

    def curve(self, strategy: str, hotspots: str, **settings: Any) -> Curve:
        return self.ways("nodes", strategy, hotspots, **settings)

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


class NodesWithoutBrothersRoot(WithoutBrothersRoot, ByNodes):
    """Both: nodes of the tree, and Brothers without its root."""


class JitterInSetUp(DRTreeMeasures):
    """Jitter from the beginning on, so that each strategy has a tree of its own."""

    def rows(
        self, table: str, strategy: str, hotspots: str, **settings: Any
    ) -> list[dict[str, Any]]:
        return super().rows(table, strategy, hotspots, **settings, set_up_jitter=True)


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


TIMES, LOADS, GROWTH = range(5, 20), range(20, 34), (34, 35)
WITH_HOTSPOTS = tuple(item for item in TIMES if item != 13)  # 13 is about cold alone
BARS = tuple(item for item in LOADS if item not in (22, 28))
# Where bars are compared along the levels or between strategies at the root, and the paper says in
# the same paragraphs that the root of Brothers is an exception.
ROOT_ASIDE = 20, 24, 30, 31
ONE_TREE = Interpretation(
    "one tree for all strategies",
    '"the logical structure of the DR-tree is kept unchanged" (IV.B), so jitter begins with the'
    " workload",
    DRTreeMeasures,
    (*range(1, 20), 22, 28, 36, 37),
)
MAIN = (
    ONE_TREE,
    Interpretation(
        "by nodes of the tree, the root of Brothers aside",
        '"nodes can be grouped by level" (VI.A); that root "is not involved in routing" (VI.C)',
        NodesWithoutBrothersRoot,
        ROOT_ASIDE,
    ),
    Interpretation(
        "by nodes of the tree",
        '"nodes can be grouped by level" (VI.A), and a peer that owns a chain of nodes up to the'
        " root (figure 1) could not have a fan in of 0 there (VI.C)",
        ByNodes,
        BARS,
    ),
    Interpretation(
        "steps in the tree",
        "trees of 10,000 differ more than publications do, and each tells the ways of all"
        " strategies",
        StepsInTree,
        GROWTH,
    ),
)
OTHERS = (
    Interpretation("by steps in the tree", "without jitter", StepsInTree, TIMES),
    Interpretation("by peers", '"of peers at a given level" (VI.C)', DRTreeMeasures, BARS),
    Interpretation(
        "by peers, the root of Brothers aside", "it is like a leaf (VI.C)", WithoutBrothersRoot,
        ROOT_ASIDE,
    ),
    Interpretation(
        "by nodes of the tree", "figure 1", ByNodes, (*TIMES, *ROOT_ASIDE, *GROWTH)
    ),
    Interpretation(
        "with jitter while the tree is built", "VI.A", JitterInSetUp, (*TIMES, *LOADS, 37)
    ),
    Interpretation(
        "with each popularity once", "figure 2", EachPopularityOnce, (12, 13, 14, 15, 19)
    ),
    Interpretation(
        "at shared popularities", "figure 2", SharedPopularities, (12, 13, 14, 15, 19)
    ),
    Interpretation("against the figure", "figures 3 and 4", AgainstTallestBar, (22,)),
    Interpretation(
        "with narrow hotspots", "VI.A does not say how wide they are",
        partial(WithChangedSettings, spread=NARROW_SPREAD), WITH_HOTSPOTS,
    ),
    Interpretation(
        "with wide hotspots", "VI.A does not say how wide they are",
        partial(WithChangedSettings, spread=WIDE_SPREAD), WITH_HOTSPOTS,
    ),
    Interpretation(
        "with owners of least address", "IV.B leaves it to [1]",
        partial(WithChangedSettings, promotes="address"), TIMES,
    ),
    Interpretation(
        "joined at once", "PeerSim starts all peers together",
        partial(WithChangedSettings, join_queue=0.0), (*TIMES, *GROWTH),
    ),
    Interpretation(
        "in one world", "VI.E does not say that it grows",
        partial(WithChangedSettings, size=1024.0), GROWTH,
    ),
)  # fmt: skip
READINGS = Readings(MAIN, OTHERS)
