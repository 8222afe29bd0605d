"""Claims 20 to 28 of [DRtree]: fan-in and fan-out by level (figures 3 and 4)."""

from itertools import pairwise

from nearcast_papers.drtree.measures import (
    HOTSPOTS,
    LOCAL,
    STRATEGIES,
    DRTreeMeasures,
    each_hotspot,
)
from nearcast_papers.fits import listed, ratio
from nearcast_papers.paper import PaperClaim


def falls(measures: DRTreeMeasures, what: str) -> tuple[str, bool]:
    rises = []
    for strategy in STRATEGIES:
        for hotspots in HOTSPOTS:
            found = [getattr(one, what) for one in measures.levels(strategy, hotspots)]
            if any(a < b for a, b in pairwise(found)):
                rises.append(f"{strategy} {hotspots}: {', '.join(f'{v:.1f}' for v in found)}")
    example = [getattr(one, what) for one in measures.levels("double-wave", "cold")]
    text = f"double-wave cold: {', '.join(f'{v:.1f}' for v in example)}"
    return f"{text}; rises in {'; '.join(rises) or 'none'}", not rises


def check_equal(measures: DRTreeMeasures) -> tuple[str, bool]:
    worst, where = 0.0, ""
    for hotspots in HOTSPOTS:
        found = {s: measures.levels(s, hotspots) for s in STRATEGIES}
        leaf = len(found["double-wave"]) - 1
        for depth in range(1, leaf + 1):
            of = [found[s][depth].received for s in STRATEGIES if depth < leaf or s != "root-link"]
            if ratio(max(of), min(of)) - 1 > worst:
                worst, where = ratio(max(of), min(of)) - 1, f"{hotspots}, level {depth}"
    return f"at most {worst:.0%} apart ({where})", worst <= 0.3


def check_spread(measures: DRTreeMeasures) -> tuple[str, bool]:
    found: dict[int, float] = {}
    for strategy in STRATEGIES:
        for hotspots in HOTSPOTS:
            for depth, most in enumerate(measures.spreads(strategy, hotspots)):
                found[depth] = max(found.get(depth, 0.0), most)
    text = listed((f"level {depth}:", value) for depth, value in found.items())
    return f"standard deviation over mean, at most: {text}", max(found.values()) <= 0.5


def quiet_root(measures: DRTreeMeasures, what: str) -> tuple[str, bool]:
    """Is the root as quiet as a leaf?"""
    text, good = [], True
    for hotspots in HOTSPOTS:
        found = measures.levels("brothers", hotspots)
        root, leaf = getattr(found[0], what), getattr(found[-1], what)
        good &= root <= 1.2 * leaf
        text.append(f"{hotspots}: root {root:.2f}, leaf {leaf:.2f}")
    return "; ".join(text), good


def check_busier(measures: DRTreeMeasures) -> tuple[str, bool]:
    """Claim 25: Brothers: internal nodes are slightly more loaded."""
    text, good = [], True
    for hotspots in HOTSPOTS:
        mine, base = (measures.levels(s, hotspots) for s in ("brothers", "double-wave"))
        more = [
            max(ratio(mine[d].received, base[d].received), ratio(mine[d].sent, base[d].sent)) - 1
            for d in (2, 3)
        ]
        good &= all(0 <= one <= 0.25 for one in more)
        text.append(f"{hotspots} {more[0]:+.0%}, {more[1]:+.0%}")
    return "; ".join(text), good


def check_root_busy(measures: DRTreeMeasures) -> tuple[str, bool]:
    def times(hotspots: str) -> float:
        others = [measures.levels(s, hotspots)[0].sent for s in LOCAL]
        return ratio(measures.levels("root-link", hotspots)[0].sent, max(others))

    found = each_hotspot(times)
    return f"times the busiest other: {listed(found.items())}", min(found.values()) >= 1.3


def check_not_returned(measures: DRTreeMeasures) -> tuple[str, bool]:
    found = {
        s: sum(r["returned"] for h in HOTSPOTS for r in measures.rows("returned", s, h))
        for s in STRATEGIES
    }
    good = found["root-link"] > 0 and not any(found[s] for s in LOCAL)
    return f"events sent back to whom they came from: {listed(found.items(), 'd')}", good


CHAIN = (
    "Figure 1 lets a peer own a chain of nodes up to the root, so the root's peer has the traffic"
    " of its lower nodes too."
)
CLAIMS = (
    PaperClaim(
        20,
        "Fan in decreases when the level increases",
        "falls from level to level",
        lambda measures: falls(measures, "received"),
    ),
    PaperClaim(
        21,
        "All strategies are roughly equivalent in fan in",
        "within 30 % below the root",
        check_equal,
    ),
    PaperClaim(
        22,
        "The standard variation within a level is very low",
        "at most 0.5 of the mean",
        check_spread,
    ),
    PaperClaim(
        23,
        "Brothers: the root's fan in is 0, equivalent to a leaf's",
        "at most 1.2 times a leaf's",
        lambda measures: quiet_root(measures, "received"),
        soft=True,
        note=CHAIN,
    ),
    PaperClaim(
        24,
        "Fan out is higher closer to the root",
        "falls from level to level",
        lambda measures: falls(measures, "sent"),
    ),
    PaperClaim(
        25,
        "Brothers: internal nodes are slightly more loaded",
        "0 to 25 % more at levels 2, 3",
        check_busier,
    ),
    PaperClaim(
        26,
        "Brothers: the root's fan out is equivalent to a leaf's",
        "at most 1.2 times a leaf's",
        lambda measures: quiet_root(measures, "sent"),
        soft=True,
        note=CHAIN,
    ),
    PaperClaim(
        27,
        "Root Link: more load on the root",
        "fan out at least 1.3 times the others'",
        check_root_busy,
    ),
    PaperClaim(
        28,
        "In the others the root does not send to the child it received from",
        "by the trace",
        check_not_returned,
    ),
)
