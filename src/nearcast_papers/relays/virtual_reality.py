"""Claims 6 to 20 and 25 of [Lehn]: the virtual reality scenario.

The paper's claims are about its round model, and are evaluated with that. The results of the
message protocol are added to the text.
"""

from collections.abc import Callable
from itertools import pairwise
from math import sqrt
from statistics import stdev

from nearcast_papers.fits import line_fit, spearman
from nearcast_papers.paper import NotMeasuredError, PaperClaim
from nearcast_papers.relays.measures import RelayMeasures, still_runs, typical_runs, weighted_runs
from nearcast_papers.relays.scenarios import SIZES, TYPICAL, WEIGHTS


def beside(text: Callable[[], str]) -> str:
    """What the message protocol did, if it was run."""
    try:
        return f"; messages: {text()}"
    except NotMeasuredError:
        return "; messages: not run in this form"


def spread(measures: RelayMeasures, what: str, when: int) -> str:
    """Mean over seeds with its 95 % interval, at the beginning (0) or in the end (−1)."""
    found = [getattr(one.states[when], what) for one in measures.rounds("4")]
    middle = sum(found) / len(found)
    if len(found) < 2:
        return f"{middle:.3f}"
    return f"{middle:.3f} ± {1.96 * stdev(found) / sqrt(len(found)):.3f}"


def check_fan_out(measures: RelayMeasures) -> tuple[str, bool]:
    few, many = (
        sum(one.fan_out for one in found) / len(found)
        for found in (measures.rounds("5", nodes=SIZES[0]), measures.rounds("5", nodes=SIZES[-1]))
    )
    return f"{few:.1f} of {SIZES[0]}, {many:.1f} of {SIZES[-1]}", (
        6 <= few <= 8.5 and 26 <= many <= 33
    )


def check_clustering(measures: RelayMeasures) -> tuple[str, bool]:
    found = {}
    for nodes in SIZES:
        shares = [one.transitivity for one in measures.rounds("5", nodes=nodes)]
        found[nodes] = sum(shares) / len(shares)
    text = ", ".join(f"{share:.3f} of {nodes}" for nodes, share in found.items())
    apart = max(found.values()) - min(found.values())
    return text, all(0.61 <= share <= 0.67 for share in found.values()) and apart <= 0.02


def check_average(measures: RelayMeasures) -> tuple[str, bool]:
    """Claim 8: 150 nodes: mean utilisation falls from almost 100 % to less than 75 %."""
    first, last = measures.began("4", "mean"), measures.ended("4", "mean")

    def messages() -> str:
        before, after = measures.uplinks(**typical_runs("off")), measures.uplinks(**typical_runs())
        return f"{before.mean:.2f} to {after.mean:.2f}"

    return (
        f"{spread(measures, 'mean', 0)} to {spread(measures, 'mean', -1)}{beside(messages)}",
        0.85 <= first <= 1.05 and last < 0.75,
    )


def check_overloaded_first(measures: RelayMeasures) -> tuple[str, bool]:
    first = measures.began("4", "overloaded")

    def messages() -> str:
        return f"{measures.uplinks(**typical_runs('off')).overloaded:.1%}"

    return f"{spread(measures, 'overloaded', 0)}{beside(messages)}", 0.33 <= first <= 0.45


def check_overloaded_last(measures: RelayMeasures) -> tuple[str, bool]:
    last = measures.ended("4", "overloaded")

    def messages() -> str:
        return f"{measures.uplinks(**typical_runs()).overloaded:.1%} in the last third of the run"

    return f"{spread(measures, 'overloaded', -1)}{beside(messages)}", last <= 0.04


def check_relieved(measures: RelayMeasures) -> tuple[str, bool]:
    (low, high), (more, less) = (
        tuple(at("4", what) for what in ("idlest", "busiest"))
        for at in (measures.began, measures.ended)
    )
    return (
        f"idlest quarter {low:.2f} to {more:.2f}, busiest {high:.2f} to {less:.2f}",
        more > low and less < high,
    )


def check_majority(measures: RelayMeasures) -> tuple[str, bool]:
    found = {nodes: measures.ended("5", "majority", nodes=nodes) for nodes in SIZES}
    text = ", ".join(f"{share:.0%} of {nodes}" for nodes, share in found.items())
    return text, found[TYPICAL] > 0.5


def check_uniform(measures: RelayMeasures) -> tuple[str, bool]:
    first, last = measures.began("4", "deviation"), measures.ended("4", "deviation")

    def messages() -> str:
        before, after = measures.uplinks(**typical_runs("off")), measures.uplinks(**typical_runs())
        return f"{before.deviation:.2f} to {after.deviation:.2f}"

    return f"standard deviation {first:.2f} to {last:.2f}{beside(messages)}", last <= first / 2


def check_linear(measures: RelayMeasures) -> tuple[str, bool]:
    """Claim 14: Mean and 90th percentile of the initial utilisation grow linearly with nodes."""
    fits = {
        what: line_fit([(float(nodes), measures.began("5", what, nodes=nodes)) for nodes in SIZES])[
            1
        ]
        for what in ("mean", "p90")
    }
    text = ", ".join(f"{measures.began('5', 'mean', nodes=n):.2f} of {n}" for n in SIZES)
    return (
        f"R² {fits['mean']:.4f} of the mean, {fits['p90']:.4f} of the 90th percentile; {text}",
        min(fits.values()) >= 0.97,
    )


def check_no_need(measures: RelayMeasures) -> tuple[str, bool]:
    """Claim 15: 50 nodes: below 100 %, no need for further reduction."""
    nodes = SIZES[0]
    first, last = (at("5", "mean", nodes=nodes) for at in (measures.began, measures.ended))
    path, top = measures.ended("5", "path", nodes=nodes), measures.began("5", "p90", nodes=nodes)

    def messages() -> str:
        after = measures.delivered(**still_runs(nodes)).path
        before = measures.uplinks(**still_runs(nodes, "off")).mean
        return f"{before:.2f} to {measures.uplinks(**still_runs(nodes)).mean:.2f}, path {after:.2f}"

    return (
        f"mean {first:.2f} (90th percentile {top:.2f}) to {last:.2f}, path {path:.2f}"
        f"{beside(messages)}",
        top < 1 and first - last < 0.1 and path <= 1.15,
    )


def check_improves(measures: RelayMeasures) -> tuple[str, bool]:
    """Claim 16: The denser, the greater the improvement; the most utilised profit most."""
    gains = {
        nodes: tuple(
            measures.began("5", what, nodes=nodes) - measures.ended("5", what, nodes=nodes)
            for what in ("mean", "p90")
        )
        for nodes in SIZES
    }
    text = ", ".join(f"{m:.2f} and {p:.2f} of {nodes}" for nodes, (m, p) in gains.items())

    def messages() -> str:
        parts = []
        for nodes in measures.peers():
            before, after = (
                measures.uplinks(**still_runs(nodes, "off")),
                measures.uplinks(**still_runs(nodes)),
            )
            gain = before.mean - after.mean, before.p90 - after.p90
            parts.append(f"{gain[0]:.2f} and {gain[1]:.2f} of {nodes}")
        return ", ".join(parts)

    rises = all(a[0] < b[0] and a[1] < b[1] for a, b in pairwise(gains.values()))
    return (
        f"mean and 90th percentile fall by {text}{beside(messages)}",
        rises and all(p > m for nodes, (m, p) in gains.items() if nodes >= 100),
    )


def check_path_and_stretch(measures: RelayMeasures) -> tuple[str, bool]:
    """Claim 17: It is paid with longer paths and a latency stretch in denser cases."""
    found = {
        nodes: tuple(
            measures.ended("5", what, nodes=nodes) for what in ("path", "stretch", "ratio")
        )
        for nodes in SIZES
    }
    text = ", ".join(f"{p:.2f}, {s:.2f} of {nodes}" for nodes, (p, s, _) in found.items())
    ratios = ", ".join(f"{ratio:.2f}" for _, _, ratio in found.values())

    def messages() -> str:
        parts = (
            f"{measures.delivered(**still_runs(n)).path:.2f},"
            f" {measures.stretch(**still_runs(n)):.2f} of {n}"
            for n in measures.peers()
        )
        return ", ".join(parts)

    grows = all(a[0] < b[0] and a[1] < b[1] for a, b in pairwise(found.values()))
    return (
        f"path and stretch {text}; mean of each path's stretch {ratios}{beside(messages)}",
        grows,
    )


def check_direct(measures: RelayMeasures) -> tuple[str, bool]:
    found = measures.rounds("6", weight=0.0)
    path, ratio = (max(getattr(one.last, what) for one in found) for what in ("path", "ratio"))

    def messages() -> str:
        return f"path {measures.delivered(**weighted_runs(0.0)).path:g}"

    return f"path {path:g}, stretch {ratio:g}{beside(messages)}", path == ratio == 1


def check_traded(measures: RelayMeasures) -> tuple[str, bool]:
    """Claim 19: Weights trade link utilisation for path length."""
    used, paths = (
        [measures.ended("6", what, weight=x) for x in WEIGHTS] for what in ("mean", "path")
    )
    falls, rises = spearman(WEIGHTS, used), spearman(WEIGHTS, paths)

    def messages() -> str:
        parts = []
        for x in measures.preset.weights:
            after = measures.uplinks(**weighted_runs(x))
            parts.append(
                f"{after.mean:.2f}, {measures.delivered(**weighted_runs(x)).path:.2f} at {x:g}"
            )
        return "utilisation and path " + ", ".join(parts)

    return (
        f"rank correlation {falls:.2f} of utilisation ({used[0]:.2f} to {used[-1]:.2f}),"
        f" {rises:.2f} of path length ({paths[0]:.2f} to {paths[-1]:.2f}){beside(messages)}",
        falls <= -0.9 and rises >= 0.9,
    )


def check_last_bit(measures: RelayMeasures) -> tuple[str, bool]:
    """Claim 20: With free latency (1) the last bit of bandwidth is bought with much latency."""
    steps = {
        what: [
            measures.ended("6", what, weight=b) - measures.ended("6", what, weight=a)
            for a, b in pairwise(WEIGHTS[-3:])
        ]
        for what in ("path", "stretch", "mean")
    }
    return (
        f"from 0.8 to 0.9 and from 0.9 to 1: path {steps['path'][0]:+.4f}, {steps['path'][1]:+.4f};"
        f" stretch {steps['stretch'][0]:+.4f}, {steps['stretch'][1]:+.4f}; utilisation"
        f" {steps['mean'][0]:+.4f}, {steps['mean'][1]:+.4f}",
        steps["path"][1] > steps["path"][0],
    )


def check_fewer(measures: RelayMeasures) -> tuple[str, bool]:
    first, last = measures.began("4", "overloaded"), measures.ended("4", "overloaded")

    def messages() -> str:
        before, after = measures.uplinks(**typical_runs("off")), measures.uplinks(**typical_runs())
        return f"{before.overloaded:.1%} to {after.overloaded:.1%}"

    return f"{first:.1%} to {last:.1%} of nodes{beside(messages)}", last <= 0.1 * first


CLAIMS = (
    PaperClaim(
        6, "50 to 200 nodes have a mean fan-out of 7 to 30", "6 to 8.5, and 26 to 33", check_fan_out
    ),
    PaperClaim(
        7,
        "The clustering coefficient is about 0.64, however dense",
        "0.61 to 0.67, within 0.02",
        check_clustering,
    ),
    PaperClaim(
        8,
        "150 nodes: mean utilisation falls from almost 100 % to less than 75 %",
        "from 0.85 to 1.05 to below 0.75",
        check_average,
    ),
    PaperClaim(
        9,
        "More than 35 % of the nodes are overloaded at first",
        "33 to 45 %",
        check_overloaded_first,
    ),
    PaperClaim(10, "After 17 iterations less than 3 % are", "at most 4 %", check_overloaded_last),
    PaperClaim(
        11,
        "Overloaded nodes are relieved at the expense of sparsely utilised ones",
        "the idlest quarter rises, the busiest falls",
        check_relieved,
    ),
    PaperClaim(
        12,
        "The majority ends between 60 and 80 % utilisation",
        "more than 50 % of 150",
        check_majority,
    ),
    PaperClaim(
        13,
        "Load becomes distinctly more uniform",
        "standard deviation at least halved",
        check_uniform,
    ),
    PaperClaim(
        14,
        "Mean and 90th percentile of the initial utilisation grow linearly with nodes",
        "R² of 0.97 or more",
        check_linear,
    ),
    PaperClaim(
        15,
        "50 nodes: below 100 %, no need for further reduction",
        "mean falls by less than 0.1, path at most 1.15",
        check_no_need,
    ),
    PaperClaim(
        16,
        "The denser, the greater the improvement; the most utilised profit most",
        "grows with nodes; 90th percentile more than the mean from 100 nodes on",
        check_improves,
    ),
    PaperClaim(
        17,
        "It is paid with longer paths and a latency stretch in denser cases",
        "both grow with nodes",
        check_path_and_stretch,
        note="Stretch is the sum of all latencies over that of direct ones: single ratios are"
        " ruled by pairs that are a millisecond apart.",
    ),
    PaperClaim(
        18, "With free bandwidth (0) all is delivered directly", "path 1, stretch 1", check_direct
    ),
    PaperClaim(
        19,
        "Weights trade link utilisation for path length",
        "rank correlations of −0.9 and 0.9",
        check_traded,
    ),
    PaperClaim(
        20,
        "With free latency (1) the last bit of bandwidth is bought with much latency",
        "paths grow more from 0.9 to 1 than from 0.8 to 0.9",
        check_last_bit,
        note="The threshold ε limits it: what gains less than ε of bandwidth is left alone.",
    ),
    PaperClaim(
        25,
        "Significantly fewer nodes are overloaded (conclusion)",
        "at most 10 % as many",
        check_fewer,
    ),
)
