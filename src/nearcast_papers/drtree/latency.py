"""Claims 6 to 19 of [DRtree]: total publication time (figure 2)."""

from nearcast_papers.drtree.measures import (
    HOTSPOTS,
    LOCAL,
    STRATEGIES,
    DRTreeMeasures,
    each_hotspot,
    frequent_popularities,
    mean_at,
    mean_from,
    slope,
)
from nearcast_papers.fits import listed
from nearcast_papers.paper import PaperClaim


def check_zero_at_popularity_1(measures: DRTreeMeasures) -> tuple[str, bool]:
    found = [(f"{s} {h}", mean_at(measures.curve(s, h), 1)) for s in LOCAL for h in HOTSPOTS]
    return f"at most {max(m for _, m in found):.3f} cycles", all(m == 0 for _, m in found)


def check_root_link_at_popularity_1(measures: DRTreeMeasures) -> tuple[str, bool]:
    found = each_hotspot(lambda h: mean_at(measures.curve("root-link", h), 1))
    return listed(found.items()), min(found.values()) > 2


def check_root_link_flat(measures: DRTreeMeasures) -> tuple[str, bool]:
    def ratio(hotspots: str) -> float:
        means = [
            m for _, m in frequent_popularities(measures.curve("root-link", hotspots)).values()
        ]
        return max(means) / min(means)

    found = each_hotspot(ratio)
    return f"greatest over least: {listed(found.items())}", max(found.values()) <= 1.25


def check_by_height(measures: DRTreeMeasures) -> tuple[str, bool]:
    found = each_hotspot(lambda h: measures.mean("root-link", h))
    return listed(found.items()), all(3 <= m <= 5.5 for m in found.values())


def check_logarithmic(measures: DRTreeMeasures) -> tuple[str, bool]:
    """Claim 10: The other curves have a logarithmic behaviour."""
    text, good = [], True
    for strategy in LOCAL:
        curve = frequent_popularities(measures.curve(strategy, "burning"))
        few, top = min(curve), max(curve)
        early, late = slope(curve, few, few + 4), slope(curve, max(few + 5, top // 2), top)
        good &= curve[top][1] >= curve[few][1] and late < early
        text.append(
            f"{strategy} {curve[few][1]:.2f} at {few}, {curve[top][1]:.2f} at {top},"
            f" slope {early:.2f} then {late:.2f}"
        )
    return "; ".join(text), good


def check_ancestors_best(measures: DRTreeMeasures) -> tuple[str, bool]:
    """Claim 11: Ancestors is always better than the others."""
    worse, means = [], []
    for hotspots in HOTSPOTS:
        rivals = [measures.mean(s, hotspots, 2) for s in ("double-wave", "brothers", "root-link")]
        means.append(f"{hotspots} {measures.mean('ancestors', hotspots, 2):.2f}/{min(rivals):.2f}")
        mine = frequent_popularities(measures.curve("ancestors", hotspots))
        for other in ("double-wave", "brothers", "root-link"):
            theirs = measures.curve(other, hotspots)
            worse += [
                f"{hotspots} {k}: {m:.2f} against {mean_at(theirs, k):.2f} of {other}"
                for k, (_, m) in mine.items()
                if m > mean_at(theirs, k)
            ]
    text = "never worse" if not worse else "; ".join(worse[:6])
    return f"{text}; means, and the best other's: {', '.join(means)}", not worse


def gain(measures: DRTreeMeasures, strategy: str, hotspots: str) -> float:
    return 1 - measures.mean(strategy, hotspots) / measures.mean("double-wave", hotspots)


def gains(
    measures: DRTreeMeasures, strategy: str, hotspots: str, low: float, high: float
) -> tuple[str, bool]:
    found = gain(measures, strategy, hotspots)
    return f"{found:.1%}", low <= found <= high


def check_brothers(measures: DRTreeMeasures) -> tuple[str, bool]:
    found = each_hotspot(lambda h: gain(measures, "brothers", h))
    return listed(found.items(), ".1f", 100) + " %", min(found.values()) >= 0.1


def check_root_gain(measures: DRTreeMeasures) -> tuple[str, bool]:
    found = each_hotspot(
        lambda h: 1 - measures.mean("root-link", h, 4) / measures.mean("double-wave", h, 4)
    )
    return listed(found.items(), ".1f", 100) + " %", min(found.values()) > 0


def check_few_subscribers(measures: DRTreeMeasures) -> tuple[str, bool]:
    good, text = True, []
    for hotspots in HOTSPOTS:
        rooted = measures.curve("root-link", hotspots)
        for k in (2, 3):
            others = [mean_at(measures.curve(s, hotspots), k) for s in LOCAL]
            mean = mean_at(rooted, k)
            good &= mean > max(others)
            text.append(f"{hotspots} {k}: {mean:.2f} against {max(others):.2f}")
    return "; ".join(text), good


def check_many_subscribers(measures: DRTreeMeasures) -> tuple[str, bool]:
    found = {s: mean_from(measures.curve(s, "burning"), 16) for s in STRATEGIES}
    fast, slow = (
        (found["root-link"], found["ancestors"]),
        (found["double-wave"], found["brothers"]),
    )
    return listed(found.items()), max(fast) < min(slow)


def check_inflexion(measures: DRTreeMeasures) -> tuple[str, bool]:
    text, good = [], True
    for strategy in LOCAL:
        curve = frequent_popularities(measures.curve(strategy, "burning"))
        before, after = slope(curve, 2, 4), slope(curve, 16, max(curve))
        good &= after <= before / 2
        text.append(f"{strategy} {before:.2f} then {after:.2f}")
    return "; ".join(text), good


def check_plateau(measures: DRTreeMeasures) -> tuple[str, bool]:
    spread = {}
    for strategy in STRATEGIES:
        heights = [measures.mean(strategy, h, 4) for h in HOTSPOTS]
        spread[strategy] = max(heights) / min(heights) - 1
    return f"differ by {listed(spread.items(), '.0f', 100)} %", max(spread.values()) < 0.3


CLAIMS = (
    PaperClaim(
        6,
        "Popularity 1: average time is zero, except Root Link",
        "exactly 0 cycles",
        check_zero_at_popularity_1,
    ),
    PaperClaim(
        7,
        "Root Link must go to the root first",
        "more than 2 cycles at popularity 1",
        check_root_link_at_popularity_1,
    ),
    PaperClaim(
        8,
        "Root Link exhibits a linear (flat) behaviour",
        "max/min over k ≥ 2 at most 1.25",
        check_root_link_flat,
    ),
    PaperClaim(
        9,
        "Root Link depends only on the height of the tree",
        "mean of 3 to 5.5 cycles",
        check_by_height,
    ),
    PaperClaim(
        10,
        "The other curves have a logarithmic behaviour",
        "they rise, and ever less steeply",
        check_logarithmic,
    ),
    PaperClaim(
        11,
        "Ancestors is always better than the others",
        "least mean at every k ≥ 2",
        check_ancestors_best,
    ),
    PaperClaim(
        12,
        "Ancestors around 35 % better than Double wave for Burning",
        "25 to 45 %",
        lambda measures: gains(measures, "ancestors", "burning", 0.25, 0.45),
    ),
    PaperClaim(
        13,
        "Ancestors around 45 % better for Cold",
        "30 to 60 %",
        lambda measures: gains(measures, "ancestors", "cold", 0.30, 0.60),
        soft=True,
        note="Few want a cold event, and those who do are near: there is little to gain.",
    ),
    PaperClaim(
        14, "Brothers' gains are quite significant everywhere", "at least 10 %", check_brothers
    ),
    PaperClaim(
        15,
        "Root Link's gains are quite significant for all distributions",
        "above 0 for k ≥ 4",
        check_root_gain,
        soft=True,
        note="A detour by the root pays only where events must travel that far anyway.",
    ),
    PaperClaim(
        16,
        "Below 4 subscribers Root Link is less efficient",
        "slowest at k = 2 and 3",
        check_few_subscribers,
    ),
    PaperClaim(
        17,
        "With many interested, Root Link and Ancestors have lower latency",
        "Burning, k ≥ 16: both below Double wave and Brothers",
        check_many_subscribers,
    ),
    PaperClaim(
        18,
        "The inflexion point corresponds to the tree's height",
        "Burning: slope from 16 on at most half of that from 2 to 4",
        check_inflexion,
    ),
    PaperClaim(
        19,
        "Hotspots have small impact: each curve stabilises around the same value",
        "means for k ≥ 4 differ by less than 30 %",
        check_plateau,
        soft=True,
    ),
)
