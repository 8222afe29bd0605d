"""Claims 29 to 33 of [DRtree]: false positives by level (figure 5)."""

from itertools import pairwise
from math import isclose
from typing import Any

from nearcast_papers.drtree.load import CHAIN
from nearcast_papers.drtree.measures import HOTSPOTS, STRATEGIES, DRTreeMeasures, each_hotspot
from nearcast_papers.fits import listed
from nearcast_papers.paper import PaperClaim


def rates(measures: DRTreeMeasures, strategy: str, hotspots: str, **settings: Any) -> list[float]:
    return [one.unwanted for one in measures.levels(strategy, hotspots, **settings)]


def check_leaves(measures: DRTreeMeasures) -> tuple[str, bool]:
    found = max(rates(measures, s, h)[-1] for s in STRATEGIES for h in HOTSPOTS)
    return f"at most {found:.2%}", found == 0


def check_rising(measures: DRTreeMeasures) -> tuple[str, bool]:
    """Claim 30: The closer to the root, the higher the rate."""
    falls = [
        f"{s} {h}"
        for s in STRATEGIES
        for h in HOTSPOTS
        if any(
            above < below and not isclose(above, below, abs_tol=0.005)
            for above, below in zip(rates(measures, s, h), rates(measures, s, h)[1:], strict=False)
        )
    ]
    example = ", ".join(f"{rate:.0%}" for rate in rates(measures, "double-wave", "cold"))
    return f"double-wave cold: {example}; falls in {', '.join(falls) or 'none'}", not falls


def check_equal(measures: DRTreeMeasures) -> tuple[str, bool]:
    worst = {}
    for hotspots in HOTSPOTS:
        of_levels = zip(*(rates(measures, s, hotspots) for s in STRATEGIES), strict=False)
        worst[hotspots] = max(max(level) - min(level) for level in of_levels)
    return f"points apart: {listed(worst.items(), '.0f', 100)}", max(worst.values()) <= 0.12


def check_popular(measures: DRTreeMeasures) -> tuple[str, bool]:
    found = {h: rates(measures, "double-wave", h) for h in HOTSPOTS}
    good = all(found[a][level] > found[b][level] for a, b in pairwise(HOTSPOTS) for level in (2, 3))
    return "; ".join(f"{h} {f[2]:.0%}, {f[3]:.0%}" for h, f in found.items()), good


def check_root(measures: DRTreeMeasures) -> tuple[str, bool]:
    found = each_hotspot(lambda h: rates(measures, "brothers", h)[0])
    return f"{listed(found.items(), '.1f', 100)} %", max(found.values()) == 0


CLAIMS = (
    PaperClaim(29, "Leaves receive no false positive (VI.D)", "exactly 0 %", check_leaves),
    PaperClaim(
        30, "The closer to the root, the higher the rate", "rises to the root", check_rising
    ),
    PaperClaim(
        31, "All strategies are equivalent in false positives", "within 12 points", check_equal
    ),
    PaperClaim(
        32,
        "The rate decreases with popularity",
        "cold > warm > hot > burning, levels 2, 3",
        check_popular,
    ),
    PaperClaim(
        33,
        "Brothers: no false positive at the root",
        "exactly 0 %",
        check_root,
        soft=True,
        note=CHAIN,
    ),
)
