"""Claims 1 to 5 of [DRtree]: the shape of the tree, and no false negatives."""

from itertools import pairwise
from math import ceil, log

from nearcast_papers.drtree.measures import HOTSPOTS, DRTreeMeasures
from nearcast_papers.fits import listed
from nearcast_papers.paper import NotMeasuredError, PaperClaim


def check_heights(measures: DRTreeMeasures) -> tuple[str, bool]:
    found = sorted(set(measures.heights(nodes=1024, churn_rate=0.0, join_queue=1.0).values()))
    return f"leaves at level {', '.join(map(str, found))}", found == [4]


def check_formula(_: DRTreeMeasures) -> tuple[str, bool]:
    height = ceil(round(log(1024, 4), 9)) - 1
    return f"⌈log₄ 1024⌉ − 1 = {height}", height == 4


def check_entries(measures: DRTreeMeasures) -> tuple[str, bool]:
    """Claim 3."""
    rows = measures.all_rows("fanout_by_level", churn_rate=0.0)
    if not rows:
        raise NotMeasuredError("notes of links")
    top = {r["run"]: max(q["level"] for q in rows if q["run"] == r["run"]) for r in rows}
    inner = [row for row in rows if row["level"] < top[row["run"]]]
    roots = [row for row in rows if row["level"] == top[row["run"]]]
    least, most = min(row["least"] for row in inner), max(row["most"] for row in inner)
    root_least, root_most = min(r["least"] for r in roots), max(r["most"] for r in roots)
    good = least >= 4 and most <= 8 and root_least >= 2 and root_most <= 8
    return (
        f"inner nodes {least:.0f} to {most:.0f}, roots {root_least:.0f} to {root_most:.0f},"
        f" in {len(top)} runs",
        good and all(row["nodes"] == 1 for row in roots),
    )


def check_nothing_missed(measures: DRTreeMeasures) -> tuple[str, bool]:
    rows = measures.all_rows("delivery_totals", churn_rate=0.0)
    missed, expected = sum(r["missed"] for r in rows), sum(r["expected"] for r in rows)
    return f"{missed} of {expected:,} missed in {len(rows)} runs", missed == 0


def check_popularity(measures: DRTreeMeasures) -> tuple[str, bool]:
    most = {h: max(measures.curve("double-wave", h)) for h in HOTSPOTS}
    ordered = list(most.values())
    good = all(a < b for a, b in pairwise(ordered))
    return listed(most.items(), "d"), good


CLAIMS = (
    PaperClaim(
        1, "The level of the leaves is 4 (VI.A)", "exactly 4, any distribution", check_heights
    ),
    PaperClaim(2, "Height ⌈log_m N⌉ − 1 (IV.A)", "4 for N = 1024, m = 4", check_formula),
    PaperClaim(
        3,
        "At most M = 8 and at least m = 4 entries, the root at least 2, all leaves at one level",
        "inner nodes 4 to 8, one root of 2 to 8",
        check_entries,
    ),
    PaperClaim(4, "Zero false negatives", "nothing missed, any strategy", check_nothing_missed),
    PaperClaim(
        5,
        "The colder hotspots are, the lower the number of interested subscribers (VI.B)",
        "most interested: cold < warm < hot < burning",
        check_popularity,
    ),
)
