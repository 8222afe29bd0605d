"""Claims 34 to 37 of [DRtree]: ten times the peers, and the load (figure 6)."""

from contextlib import suppress

from nearcast_papers.drtree.measures import (
    HOTSPOTS,
    LOCAL,
    STRATEGIES,
    DRTreeMeasures,
    frequent_popularities,
    mean_at,
)
from nearcast_papers.fits import listed
from nearcast_papers.paper import NotMeasuredError, PaperClaim

MANY = 10_000


def large(measures: DRTreeMeasures) -> list[str]:
    """The distributions that ran with ten times the peers: one of them in the quick form."""
    found = []
    for hotspots in HOTSPOTS:
        with suppress(NotMeasuredError):
            measures.curve("double-wave", hotspots, nodes=MANY)
            found.append(hotspots)
    if not found:
        raise NotMeasuredError(f"nodes={MANY}")
    return found


def check_shape(measures: DRTreeMeasures) -> tuple[str, bool]:
    """Claim 34: 10,000 peers: the curves have the same shape (VI.E)."""
    text, good = [], True
    for hotspots in large(measures):
        rooted = frequent_popularities(measures.curve("root-link", hotspots, nodes=MANY))
        flat = max(m for _, m in rooted.values()) / min(m for _, m in rooted.values())
        rises = []
        for strategy in LOCAL:
            curve = frequent_popularities(measures.curve(strategy, hotspots, nodes=MANY))
            rises.append(curve[max(curve)][1] - mean_at(curve, 2))
        good &= flat <= 1.25 and min(rises) > 0
        text.append(f"{hotspots}: root-link max/min {flat:.2f}, others rise by {min(rises):.2f}")
    return "; ".join(text), good


def check_slower(measures: DRTreeMeasures) -> tuple[str, bool]:
    """Claim 35: Ten times the peers: average latency grows by 25 %."""
    found = {}
    for strategy in STRATEGIES:
        few, many = (
            sum(measures.mean(strategy, h, 2, nodes=nodes) for h in large(measures))
            for nodes in (1024, MANY)
        )
        found[strategy] = many / few - 1
    errors = [measures.error(s, h, 2, nodes=MANY) for s in STRATEGIES for h in large(measures)]
    known = [error for error in errors if error is not None]
    sure = f"; standard error of the means at most {max(known):.1%}" if known else ""
    return listed(found.items(), "+.0f", 100) + f" %{sure}", all(
        0.1 <= more <= 0.45 for more in found.values()
    )


def check_taller(measures: DRTreeMeasures) -> tuple[str, bool]:
    few, many = (
        set(measures.heights(nodes=nodes, churn_rate=0.0, join_queue=1.0).values())
        for nodes in (1024, MANY)
    )
    return f"from {sorted(few)} to {sorted(many)}", few == {4} and many <= {5, 6}


def check_no_worse(measures: DRTreeMeasures) -> tuple[str, bool]:
    found = {}
    for strategy in ("ancestors", "brothers"):
        found[strategy] = max(
            measures.busiest(strategy, h) / measures.busiest("double-wave", h) for h in HOTSPOTS
        )
    return f"busiest peer, times Double wave's: {listed(found.items())}", max(found.values()) <= 1.1


CLAIMS = (
    PaperClaim(
        34,
        "10,000 peers: the curves have the same shape (VI.E)",
        "Root Link flat (1.25), the others rise",
        check_shape,
    ),
    PaperClaim(
        35,
        "Ten times the peers: average latency grows by 25 %",
        "10 to 45 % (k ≥ 2)",
        check_slower,
        note="The density is kept. The quick form has the cold distribution alone.",
    ),
    PaperClaim(36, "The height grows from 1,024 to 10,000 peers", "from 4 to 5 or 6", check_taller),
    PaperClaim(
        37,
        "Load balancing is not altered (abstract)",
        "busiest peer at most 1.1 times",
        check_no_worse,
    ),
)
