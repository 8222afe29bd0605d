"""Claims 21 to 24 of [Lehn]: the clustering scenario."""

from collections.abc import Sequence
from statistics import mean

from nearcast_papers.fits import spearman
from nearcast_papers.paper import PaperClaim
from nearcast_papers.relays.measures import RelayMeasures, clustered_runs
from nearcast_papers.relays.model import ROUNDS
from nearcast_papers.relays.scenarios import CLUSTERINGS
from nearcast_papers.relays.virtual_reality import beside


def ended(measures: RelayMeasures, what: str) -> list[float]:
    return [measures.ended("7", what, clustering=c) for c in CLUSTERINGS]


def listed(values: Sequence[float], spec: str = ".2f") -> str:
    return ", ".join(f"{value:{spec}}" for value in values)


def check_generated(measures: RelayMeasures) -> tuple[str, bool]:
    """Claim 21."""
    found = {c: measures.rounds("7", clustering=c) for c in CLUSTERINGS}
    shares = {c: mean(one.transitivity for one in some) for c, some in found.items()}
    degrees = [mean(one.fan_out for one in some) for some in found.values()]
    every = [one for some in found.values() for one in some]
    used, tops = (min(getattr(one.first, what) for one in every) for what in ("mean", "p90"))
    off = max(abs(share - c) for c, share in shares.items())
    apart = max(abs(one.transitivity - c) for c, some in found.items() for one in some)
    whole = all(one.parts == 1 for one in every)
    good = off <= 0.03 and all(abs(degree - 25) <= 1 for degree in degrees)
    return (
        f"clustering {listed(list(shares.values()), '.3f')}: off by at most {off:.3f} ({apart:.3f}"
        f" in a single graph); mean degrees {min(degrees):.1f} to {max(degrees):.1f}; all"
        f" connected: {'yes' if whole else 'no'}; utilisation at least {used:.2f}, 90th percentile"
        f" {tops:.2f}",
        good and whole and used > 2 and tops > 4,
    )


def check_steady(measures: RelayMeasures) -> tuple[str, bool]:
    """Claim 22: Utilisation after optimisation does not decrease with clustering."""
    used = ended(measures, "mean")
    apart = (max(used) - min(used)) / (sum(used) / len(used))

    def messages() -> str:
        return ", ".join(
            f"{measures.uplinks(**clustered_runs(c, 'off')).mean:.2f} to"
            f" {measures.uplinks(**clustered_runs(c, 'on')).mean:.2f} at {c:g}"
            for c in measures.preset.clusterings
        )

    return f"{listed(used)}: {apart:.0%} apart{beside(messages)}", apart <= 0.25


def check_stretched(measures: RelayMeasures) -> tuple[str, bool]:
    """Claim 23: The necessary latency stretch is lower for higher clustering."""
    found, early = ended(measures, "stretch"), [
        measures.after("7", ROUNDS, "stretch", clustering=c) for c in CLUSTERINGS
    ]  # fmt: skip
    falls, sooner = spearman(CLUSTERINGS, found), spearman(CLUSTERINGS, early)

    def messages() -> str:
        return ", ".join(
            f"{measures.graph_stretch(**clustered_runs(c, 'on')):.2f} at {c:g}"
            for c in measures.preset.clusterings
        )

    return (
        f"rank correlation {falls:.2f} at rest ({listed(found)}), {sooner:.2f} after {ROUNDS}"
        f" rounds{beside(messages)}",
        falls <= -0.8,
    )


def check_performance(measures: RelayMeasures) -> tuple[str, bool]:
    """Claim 24: A high clustering improves the performance of the algorithm."""
    found = [measures.performance(clustering) for clustering in CLUSTERINGS]
    rises = spearman(CLUSTERINGS, found)
    _, steady = check_steady(measures)
    return (
        f"rank correlation of performance with clustering {rises:.2f}"
        f" ({', '.join(f'{one:.4g}' for one in found)}); utilisation stays the same:"
        f" {'yes' if steady else 'no'}",
        rises >= 0.8 and steady,
    )


CLAIMS = (
    PaperClaim(
        21, "Graphs have Gaussian degrees of mean 25, clusterings of 0.1 to 0.9; mean utilisation"
        " is above 2, its 90th percentile above 4", "degree within 1, clustering within 0.03,"
        " connected", check_generated,
        note="The quick form has 500 nodes, the full form 1,000. The generator is tuned for each"
        ' graph: "the algorithm\'s parameters are tuned" (V-B).',
    ),
    PaperClaim(
        22, "Utilisation after optimisation does not decrease with clustering",
        "within 25 % of the mean", check_steady,
    ),
    PaperClaim(
        23, "The necessary latency stretch is lower for higher clustering",
        "rank correlation of −0.8 or below", check_stretched,
        note="Neighbours are of interest 1 to each other.",
    ),
    PaperClaim(
        24, "A high clustering improves the performance of the algorithm",
        "rank correlation of 0.8 or more, at the same utilisation", check_performance,
    ),
)  # fmt: skip
