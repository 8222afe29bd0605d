"""[DRtree]: "Enhanced DR-tree for low latency filtering in publish/subscribe systems".

One cycle of the paper is 50 ms here: links take 50 ms ± 5 ms, each peer publishes every other cycle
inside its own box, and boxes are as large as in the paper (VI.A). The tree's checks have their
default interval, a hundred cycles. Figures 2 to 5 have 1,024 peers, figure 6 has 10,000 in a world
of the same density. Three figures are not in the paper.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import product
from math import sqrt
from typing import Any

from nearcast.pipeline.jobs import delivery, levels
from nearcast.pipeline.report.charts import Axis, LegendKey, Series, chart
from nearcast.pipeline.report.formatting import count, number, share
from nearcast.pipeline.report.plots import Plot, series_style
from nearcast.scenario import Scenario
from nearcast_papers.drtree import false_positives, latency, load, scale, structure
from nearcast_papers.drtree.alternative_readings import (
    NARROW_SPREAD,
    READINGS,
    WIDE_SPREAD,
    ByNodes,
    StepsInTree,
)
from nearcast_papers.drtree.measures import (
    CYCLE_MS,
    HOTSPOTS,
    RATE,
    STRATEGIES,
    DRTreeMeasures,
)
from nearcast_papers.drtree.path_lengths import ways
from nearcast_papers.paper import (
    ClaimResult,
    CountedRuns,
    Figure,
    NotMeasuredError,
    Paper,
    PaperClaim,
)
from nearcast_papers.readings import evaluate_claims

PEERS, MANY = 1024, 10_000
# Trees of 1,024 peers, and cycles of each. The paper has 600 cycles of one tree; but trees, which
# are as many as seeds, differ by far more than the publications of one tree do.
SEEDS, QUICK_SEEDS = range(1, 11), range(1, 6)
CYCLES, QUICK_CYCLES = 8, 2
# Trees of 10,000 peers, one cycle each: in the quick form seven, of the cold distribution alone. It
# takes 11 CPU seconds to build one, so that a shorter workload would save nothing.
LARGE, QUICK_LARGE = range(1, 11), range(1, 8)
CHURN = 0.0, 0.5, 2.0, 8.0  # peers exchanged per second
PROMOTES = "coverage", "latency"
CAPTIONS = {
    "2": "Average total propagation time versus event popularity: cycles until the last interested"
    " subscriber has an event, by how many are interested.",
    "3": "Fan in versus level: messages that a node of the tree receives per cycle; level 0 is the"
    " root.",
    "4": "Fan out versus level: messages that a node of the tree sends per cycle; level 0 is the"
    " root.",
    "5": "False positive rate versus level: how much of what a node of the tree receives its peer"
    " did not want.",
    "6": "Total propagation time for 10,000 peers, in a world of the same density.",
    "peers": "Another reading of figures 3 to 5: traffic counted at peers, each at the highest"
    " level that it owns, so that the root's peer has the traffic of its lower nodes too.",
    "readings": "Another reading of figure 2: every step from node to node takes a cycle, within a"
    " peer too. The claims below are those that do not hold, with what other readings give: other"
    " means, and in the full form other hotspots, owners and jitter. They are told in the notes"
    " of all claims.",
    "placement": "Ours: latencies between places on a map instead of a constant, and inner nodes"
    " owned by the best placed child instead of the largest (the paper's future work).",
    "churn": "Ours: peers are exchanged for new ones, without a goodbye, while others publish.",
}
SHOWS = {
    "2": (5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19),
    "3": (20, 21, 22, 23),
    "4": (24, 25, 26, 27, 28),
    "5": (29, 30, 31, 32, 33),
    "6": (34, 35, 36),
}


def scenarios(figure: str, full: bool) -> Iterator[Scenario]:
    """The runs that a figure needs."""
    few, seeds = (CYCLES, SEEDS) if full else (QUICK_CYCLES, QUICK_SEEDS)
    match figure:
        case "2" | "3" | "4" | "5" | "peers":
            for seed, strategy, hotspots in product(seeds, STRATEGIES, HOTSPOTS):
                yield scenario(strategy, hotspots, cycles=few, seed=seed, note_levels=True)
        case "6":
            for strategy in STRATEGIES[1:] if full else ():  # messages go the ways that we count
                yield scenario(strategy, "cold", nodes=MANY, cycles=1)
            trees = (LARGE, HOTSPOTS) if full else (QUICK_LARGE, HOTSPOTS[:1])
            for seed, hotspots in product(*trees):
                yield scenario("double-wave", hotspots, nodes=MANY, cycles=1, seed=seed)
        case "readings":
            for seed, hotspots in product(seeds, HOTSPOTS):
                yield scenario("double-wave", hotspots, cycles=few, seed=seed, join_queue=0.0)
            large = (LARGE, HOTSPOTS[::3]) if full else (QUICK_LARGE, HOTSPOTS[:1])
            for seed, hotspots in product(*large):
                yield scenario(
                    "double-wave", hotspots, nodes=MANY, cycles=1, join_queue=0.0, seed=seed
                )
            if full:
                yield from _full_readings()
        case "placement":
            for promotes, strategy in product(PROMOTES, STRATEGIES if full else STRATEGIES[::3]):
                yield scenario(
                    strategy, "burning", cycles=20 if full else 2, network="embedding",
                    promotes=promotes,
                )  # fmt: skip
        case "churn":
            for rate, strategy in product(CHURN, STRATEGIES if full else STRATEGIES[::3]):
                yield scenario(
                    strategy, "hot", nodes=PEERS if full else 200, cycles=300 if full else 200,
                    churn_rate=rate, churn_by="crash", rate=0.5, check_ms=500.0,
                )  # fmt: skip


def _full_readings() -> Iterator[Scenario]:
    """Runs for readings that only the full form tries."""
    usual: dict[str, Any] = {"cycles": QUICK_CYCLES}
    for seed, strategy, hotspots in product(QUICK_SEEDS, STRATEGIES, HOTSPOTS):
        yield scenario(strategy, hotspots, seed=seed, set_up_jitter=True, note_levels=True, **usual)
    for seed, hotspots in product(QUICK_SEEDS, HOTSPOTS):
        yield scenario("double-wave", hotspots, seed=seed, promotes="address", **usual)
    for seed, spread, hotspots in product(QUICK_SEEDS, (NARROW_SPREAD, WIDE_SPREAD), HOTSPOTS[1:]):
        yield scenario("double-wave", hotspots, seed=seed, spread=spread, **usual)
    for seed, hotspots in product(LARGE, HOTSPOTS[::3]):
        # The paper does not say whether the world grows with the crowd.
        yield scenario("double-wave", hotspots, nodes=MANY, cycles=1, size=1024.0, seed=seed)


def scenario(
    strategy: str, hotspots: str, *, cycles: float, nodes: int = PEERS, seed: int = 1, **more: Any
) -> Scenario:
    """A run with the paper's set-up, and some settings changed."""
    settings = {
        "strategy": strategy,
        "hotspots": hotspots,
        "size": 1024.0 * sqrt(nodes / PEERS),  # of the same density, unless told otherwise
        "rate": RATE,
        "latency_ms": CYCLE_MS,
        "jitter_ms": CYCLE_MS / 10,
        # One tree for all strategies (IV.B), nearly: of 60 trees 2 differed from Double wave's, in
        # 1 and 4 of 1,024 peers.
        "set_up_jitter": False,
        "sample_ms": 0.0,
        "payload": 0,
        **more,
    }
    return Scenario(
        protocol="drtree", workload="hotspots", nodes=nodes, seconds=cycles * CYCLE_MS / 1000,
        seed=seed,
        settings=settings,
    )  # fmt: skip


# Figures.

IN_CYCLES = Axis("cycles", number, low=0)


def keys(series: Sequence[Series]) -> list[LegendKey]:
    return [LegendKey(one.name, one.style) for one in series]


def draw(counted: CountedRuns) -> list[Figure]:
    """All figures with anything measured."""
    measures = DRTreeMeasures(counted)
    plots = {
        "2": [draw_curves(measures, "2", hotspots, PEERS) for hotspots in HOTSPOTS],
        "3": [
            draw_bars(ByNodes(counted), "3", hotspots, "received", "messages per cycle")
            for hotspots in HOTSPOTS
        ],
        "4": [
            draw_bars(ByNodes(counted), "4", hotspots, "sent", "messages per cycle")
            for hotspots in HOTSPOTS
        ],
        "5": [
            draw_bars(ByNodes(counted), "5", hotspots, "unwanted", "false positives")
            for hotspots in HOTSPOTS
        ],
        "6": [draw_curves(StepsInTree(counted), "6", hotspots, MANY) for hotspots in HOTSPOTS],
        "peers": [
            draw_bars(measures, "peers", hotspots, what, what)
            for what, hotspots in product(("received", "sent", "unwanted"), HOTSPOTS)
        ],
        "readings": [draw_curves(ByNodes(counted), "readings", h, PEERS) for h in HOTSPOTS],
        "placement": [draw_placement(measures)],
        "churn": [draw_churn(measures)],
    }
    doubtful = [claim.claim for claim in claims(counted) if claim.holds is False]
    drawn = {
        number: [plot for plot in found if plot is not None] for number, found in plots.items()
    }
    return [
        Figure(
            f"Figure {name}" if name.isdigit() else name.capitalize(),
            CAPTIONS[name],
            found,
            doubtful if name == "readings" else [f"000.{claim}" for claim in SHOWS.get(name, ())],
        )
        for name, found in drawn.items()
        if found
    ]


def draw_curves(measures: DRTreeMeasures, figure: str, hotspots: str, nodes: int) -> Plot | None:
    """Publication time by popularity, one curve per strategy."""
    series = []
    for place, strategy in enumerate(STRATEGIES):
        try:
            found = measures.curve(strategy, hotspots, nodes=nodes)
        except NotMeasuredError:
            continue
        series.append(
            Series(
                name=strategy,
                x=list(found),
                y=[m for _, m in found.values()],
                style=series_style(place),
            )
        )
    if not series:
        return None
    title = f"{hotspots.capitalize()}: time until all have it, {nodes:,} peers"
    interested = Axis("interested subscribers", count, low=1)
    return chart(f"figure-{figure}-{hotspots}", title, interested, IN_CYCLES, series, keys(series))


def draw_bars(
    measures: DRTreeMeasures, figure: str, hotspots: str, what: str, label: str
) -> Plot | None:
    """A load by level, one bar per strategy."""
    series = []
    for place, strategy in enumerate(STRATEGIES):
        try:
            loads = measures.levels(strategy, hotspots)
        except NotMeasuredError:
            continue
        found = [getattr(load, what) for load in loads]
        levels_ = list(map(float, range(len(found))))
        series.append(
            Series(name=strategy, x=levels_, y=found, style=series_style(place), shape="bar")
        )
    if not series:
        return None
    deepest = max(len(one.x) for one in series)
    level = Axis("level (0: root)", count, low=-0.5, high=deepest - 0.5)
    height = Axis(label, share if what == "unwanted" else number, low=0)
    title = f"{hotspots.capitalize()}: {what} by level"
    return chart(f"figure-{figure}-{what}-{hotspots}", title, level, height, series, keys(series))


def draw_placement(measures: DRTreeMeasures) -> Plot | None:
    """Milliseconds until the last interested has it, by who owns inner nodes."""
    found: dict[str, dict[str, float]] = {}
    for promotes, strategy in product(PROMOTES, STRATEGIES):
        with suppress(NotMeasuredError):
            mean = measures.mean(strategy, "burning", network="embedding", promotes=promotes)
            found.setdefault(promotes, {})[strategy] = CYCLE_MS * mean
    drawn = [s for s in STRATEGIES if any(s in means for means in found.values())]
    if not drawn:
        return None
    series = [
        Series(
            name=promotes, x=[float(drawn.index(s)) for s in means], y=list(means.values()),
            style=series_style(place), shape="bar",
        )
        for place, (promotes, means) in enumerate(found.items())
    ]  # fmt: skip

    def named(at: float) -> str:
        return drawn[round(at)] if at == round(at) else ""

    which = Axis("strategy", named, low=-0.5, high=len(drawn) - 0.5)
    legend = [LegendKey(f"owner by {one.name}", one.style) for one in series]
    title = "Burning, on a map: time until all have it"
    return chart("placement", title, which, Axis("ms", number, low=0), series, legend)


def draw_churn(measures: DRTreeMeasures) -> Plot | None:
    """Recall by rate of churn."""
    series = []
    for place, strategy in enumerate(STRATEGIES):
        found = {}
        for rate in CHURN:
            with suppress(NotMeasuredError):
                found[rate] = measures.recall(strategy, "hot", churn_rate=rate, churn_by="crash")
        if found:
            values = list(found.values())
            series.append(Series(name=strategy, x=list(found), y=values, style=series_style(place)))
    if not series:
        return None
    rates = Axis("peers that crash per second, each followed by a new one", number, low=0)
    title = "Hot: what is heard while peers crash and others come"
    return chart("churn", title, rates, Axis("recall", share), series, keys(series))


OTHERS = PaperClaim(
    38, "Mercury routes in O(log² n / k); VBI differs", "background", None, soft=True,
    note="A statement about other systems, which are not built here.",
)  # fmt: skip
ALL_CLAIMS = (
    *structure.CLAIMS,
    *latency.CLAIMS,
    *load.CLAIMS,
    *false_positives.CLAIMS,
    *scale.CLAIMS,
    OTHERS,
)


def claims(counted: CountedRuns) -> list[ClaimResult]:
    return evaluate_claims("drtree", "000", ALL_CLAIMS, READINGS, counted)


PAPER = Paper(
    "drtree",
    "Enhanced DR-tree for low latency filtering in publish/subscribe systems",
    tuple(CAPTIONS),
    scenarios,
    (
        delivery.delivery_totals,
        delivery.popularity,
        delivery.false_positives_by_level,
        levels.traffic_by_level,
        levels.fanout_by_level,
        levels.returned,
        levels.traffic_by_tree_level,
        ways,
    ),
    claims,
    draw,
)
