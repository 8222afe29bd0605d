"""Claims 7 to 10 and 19 to 28 of [VSO]: bandwidth, and the number of matchers.

VAST, the authors' program, tells a client of all its neighbours in one message per step, with 36
bytes for each. Here each notification is a message of its own that carries the publication. Claims
that give bytes (20 to 22, 24 to 27) are judged with notifications of 36 bytes and all other
messages as they are; what our own encoding needs is in the text. Another reading counts what VAST
would send at all. Claims that compare are judged with our own.
"""

from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from statistics import mean

from nearcast_papers.fits import percentile
from nearcast_papers.paper import NotMeasuredError, PaperClaim
from nearcast_papers.voronoi.measures import MatcherLoad, VSOMeasures
from nearcast_papers.voronoi.scenarios import NINE, PARTITIONINGS, STEP_RATE

KB, MB = 1e3, 1e6
TABLE = {50: 5, 100: 8, 200: 20, 500: 41, 1000: 74}
MBIT_10 = 10e6 / 8
DECILES = range(10, 100, 10)


# Figure 7.


def compared(
    measures: VSOMeasures, way: str, load: Callable[[VSOMeasures, str, int, str], MatcherLoad]
) -> dict[int, tuple[MatcherLoad, MatcherLoad]]:
    """Static and dynamic, by nodes."""
    found = {}
    for nodes in NINE:
        try:
            still, moving = (load(measures, which, nodes, way) for which in PARTITIONINGS)
        except NotMeasuredError:
            continue
        found[nodes] = still, moving
    if not found:
        raise NotMeasuredError("nine matchers")
    return found


def lower(pairs: dict[int, tuple[MatcherLoad, MatcherLoad]]) -> tuple[dict[int, float], bool]:
    """The average of dynamic over that of static partitioning."""
    ratios = {nodes: moving.mean / still.mean for nodes, (still, moving) in pairs.items()}
    wins = sum(ratio < 1 for ratio in ratios.values())
    return ratios, wins >= 0.8 * len(ratios) and mean(ratios.values()) < 1


def narrower(pairs: dict[int, tuple[MatcherLoad, MatcherLoad]]) -> tuple[dict[int, float], bool]:
    """How far the busiest is above the average, dynamic over static."""
    ratios = {nodes: moving.excess / still.excess for nodes, (still, moving) in pairs.items()}
    many = [ratio for nodes, ratio in ratios.items() if nodes >= 200]
    if not many:
        raise NotMeasuredError("200 nodes")
    return ratios, max(many) <= 0.7


def listed_ratios(ratios: dict[int, float]) -> str:
    return ", ".join(f"{ratio:.2f} of {nodes}" for nodes, ratio in ratios.items())


def check_lower_average(measures: VSOMeasures) -> tuple[str, bool]:
    ratios, good = lower(compared(measures, "up", VSOMeasures.nine))
    (notified, control), (notified_static, control_static) = map(
        measures.nine_by_kind, reversed(PARTITIONINGS)
    )
    return (
        f"dynamic over static: {listed_ratios(ratios)} nodes; notifications alone"
        f" {notified / notified_static:.2f}, what matchers tell each other"
        f" {control / control_static:.2f}",
        good,
    )


def check_lower_excess(measures: VSOMeasures) -> tuple[str, bool]:
    ratios, good = narrower(compared(measures, "up", VSOMeasures.nine))
    other, _ = narrower(compared(measures, "up", VSOMeasures.nine_by_node))
    return (
        f"dynamic over static: {listed_ratios(ratios)} nodes; of each matcher's average over time:"
        f" {listed_ratios(other)}",
        good,
    )


def check_lower_download(measures: VSOMeasures) -> tuple[str, bool]:
    pairs = compared(measures, "down", VSOMeasures.nine)
    (averages, one), (excesses, other) = lower(pairs), narrower(pairs)
    return (
        f"average, dynamic over static: {listed_ratios(averages)} nodes; busiest above it:"
        f" {listed_ratios(excesses)} nodes",
        one and other,
    )


def check_more_upload(measures: VSOMeasures) -> tuple[str, bool]:
    """Claim 10: Matchers upload more than they download (V-A)."""
    up, down = (compared(measures, way, VSOMeasures.nine) for way in ("up", "down"))
    ratios = {
        (which, nodes): up[nodes][place].mean / down[nodes][place].mean
        for nodes in up
        for place, which in enumerate(PARTITIONINGS)
    }
    text = ", ".join(f"{ratio:.1f} ({which}, {nodes})" for (which, nodes), ratio in ratios.items())
    return (
        f"upload over download: {text}",
        all(ratio > 1 for (_, nodes), ratio in ratios.items() if nodes >= 100),
    )


# Table I and figures 9 and 10.


def check_matcher_ratio(measures: VSOMeasures) -> tuple[str, bool]:
    """Claim 19: Matchers: 5, 8, 20, 41, 74 of 50, 100, 200, 500, 1,000 nodes (table I)."""
    found = {nodes: measures.matchers(nodes) for nodes in measures.sizes()}
    ratios = {nodes: matchers / nodes for nodes, matchers in found.items()}
    large = [ratio for nodes, ratio in ratios.items() if nodes >= 200]
    text = ", ".join(
        f"{matchers:.1f} of {nodes:,} ({ratios[nodes]:.1%}; paper {TABLE[nodes]})"
        for nodes, matchers in found.items()
    )
    return text, (
        all(0.05 <= ratio <= 0.13 for ratio in ratios.values())
        and all(matchers >= nodes / 20 for nodes, matchers in found.items())
        and all(a >= b for a, b in pairwise(large))
    )


def at(measures: VSOMeasures, nodes: int, matches: bool, column: str, percent: float) -> float:
    """A percentile of bytes per second, of runs that publish in every step as the paper does."""
    if nodes not in measures.sizes() or measures.rate != STEP_RATE:
        raise NotMeasuredError(f"{nodes:,} nodes that publish in every step (--full)")
    return percentile(measures.bandwidths(nodes, matches, column), percent)


def upload(
    nodes: int, column: str, limits: dict[float, float], near: float
) -> Callable[[VSOMeasures], tuple[str, bool]]:
    """So many percent of matchers are within so many bytes per second, give or take."""

    def rule(measures: VSOMeasures) -> tuple[str, bool]:
        found, ours = (
            {percent: at(measures, nodes, True, way + column, percent) for percent in limits}
            for way in (measures.sizes_of, "")
        )
        text = ", ".join(
            f"{value / KB:,.0f} kB/s for {p:g} % ({ours[p] / KB:,.0f} in our encoding)"
            for p, value in found.items()
        )
        return text, all(abs(found[p] / limit - 1) <= near for p, limit in limits.items())

    return rule


def check_majority(measures: VSOMeasures) -> tuple[str, bool]:
    return below_10_mbit(measures, 1000, "up_mean")


def check_peaks(measures: VSOMeasures) -> tuple[str, bool]:
    ratios = {}
    for nodes in measures.sizes():
        with suppress(NotMeasuredError):
            ratios[nodes] = measures.peak_ratio(nodes)
    if not ratios:
        raise NotMeasuredError("one rate of publications during the whole run")
    return (
        f"ratio of the 90th percentiles: {listed_ratios(ratios)} nodes",
        all(1.7 <= ratio <= 3.5 for ratio in ratios.values()),
    )


def check_adsl(measures: VSOMeasures) -> tuple[str, bool]:
    return below_10_mbit(measures, 500, "up_max")


def below_10_mbit(measures: VSOMeasures, nodes: int, column: str) -> tuple[str, bool]:
    value, ours = (at(measures, nodes, True, way + column, 90) for way in (measures.sizes_of, ""))
    text = f"{value * 8 / 1e6:.1f} Mbit/s for 90 % ({ours * 8 / 1e6:.1f} in our encoding)"
    return text, value <= MBIT_10


def check_clients(measures: VSOMeasures) -> tuple[str, bool]:
    (average, most), ours = (
        [at(measures, 1000, False, way + column, 90) for column in ("down_mean", "down_max")]
        for way in (measures.sizes_of, "")
    )
    return (
        f"90 % within {average / KB:,.0f} kB/s on average, {most / KB:,.0f} at most"
        f" ({ours[0] / KB:,.0f} and {ours[1] / KB:,.0f} in our encoding)",
        max(average, most) <= 130 * KB,
    )


def check_dominance(measures: VSOMeasures) -> tuple[str, bool]:
    """Claim 28: More nodes, more bandwidth: distributions shift right (figures 9 and 10)."""
    text, good = [], True
    for matches, column, what in ((True, "up_mean", "matchers"), (False, "down_mean", "clients")):
        loads = {nodes: measures.bandwidths(nodes, matches, column) for nodes in measures.sizes()}
        if len(loads) < 2:
            raise NotMeasuredError("two sizes")
        for (few, less), (many, more) in pairwise(loads.items()):
            wrong = [p for p in DECILES if percentile(less, p) >= percentile(more, p)]
            good = good and not wrong
            missed = f"not at {', '.join(map(str, wrong))} %" if wrong else "at all deciles"
            text.append(f"{what} {few} to {many}: {missed}")
    return "; ".join(text), good


READING = (
    "In each second of the last third: the average, the busiest and the idlest of the nine; then"
    " their means over time. Nobody is inserted."
)
UPLOAD = (
    "Measured when as many matchers have come as the load calls in. What matchers tell each other"
    " is more than the notifications, which alone would be about what the paper has for 500 nodes:"
    " each area that moves goes to every region that it touches, and each publication to every"
    " owner that has a receiver (IV-E, 2). Tried: a run measured 36 s after the last node has"
    " joined, when fewer matchers have come, and each sends more."
)
CLAIMS = (
    PaperClaim(
        7,
        "Dynamic partitioning lowers the matchers' average upload (V-A, figure 7a)",
        "lower at 80 % of the sizes at least, mean ratio below 1",
        check_lower_average,
        note=READING + " Most of what matchers send are notifications, one for each delivery, and"
        " those are as many wherever borders lie; the rest tells what moving borders cost or save.",
    ),
    PaperClaim(
        8,
        "The busiest matcher is much less above the average (V-A)",
        "at most 0.7 of the static excess from 200 nodes on",
        check_lower_excess,
        note=READING,
    ),
    PaperClaim(
        9,
        "The same of download (figure 7b)",
        "average lower at 80 %, excess at most 0.7 from 200 nodes on",
        check_lower_download,
        note=READING + " What comes in besides posts is what matchers tell each other; sites that"
        " move tell it more often.",
    ),
    PaperClaim(10, "Matchers upload more than they download (V-A)", "of 100 nodes on",
               check_more_upload),
    PaperClaim(
        19,
        "Matchers: 5, 8, 20, 41, 74 of 50, 100, 200, 500, 1,000 nodes (table I)",
        "each 5 to 13 %, at least n/20, not rising from 200 nodes on",
        check_matcher_ratio,
    ),
    PaperClaim(
        20, "500 nodes: 90 % of matchers upload 500 KB/s on average (V-C, figure 9a)",
        "300 to 700 kB/s", upload(500, "up_mean", {90: 500 * KB}, 0.4), note=UPLOAD,
    ),
    PaperClaim(
        21, "1,000 nodes: 90 % of matchers upload 1 MB/s on average",
        "0.6 to 1.4 MB/s", upload(1000, "up_mean", {90: MB}, 0.4), note=UPLOAD,
    ),
    PaperClaim(
        22, "A majority of matchers sends less than 10 Mbit/s", "90 % do, of 1,000 nodes",
        check_majority, note=UPLOAD,
    ),
    PaperClaim(
        23, "The maximum is two to three times the average (figure 9b)", "1.7 to 3.5", check_peaks,
    ),
    PaperClaim(
        24, "500 nodes: 90 % of matchers within 1.2 MB/s at most, all within 2.2", "± 40 %",
        upload(500, "up_max", {90: 1.2 * MB, 100: 2.2 * MB}, 0.4), note=UPLOAD,
    ),
    PaperClaim(
        25, "1,000 nodes: 90 % of matchers within 2.8 MB/s at most, all within 5.0", "± 40 %",
        upload(1000, "up_max", {90: 2.8 * MB, 100: 5.0 * MB}, 0.4), note=UPLOAD,
    ),
    PaperClaim(
        26, "500 nodes: 10 Mbit/s cover 90 % of matchers", "at most 10 Mbit/s", check_adsl,
        note=UPLOAD,
    ),
    PaperClaim(
        27, "1,000 nodes: 90 % of clients download less than 120 KB/s (figure 10)",
        "at most 130 kB/s, average and maximum", check_clients,
    ),
    PaperClaim(
        28, "More nodes, more bandwidth: distributions shift right (figures 9 and 10)",
        "at every decile, of each size to the next", check_dominance,
    ),
)  # fmt: skip
