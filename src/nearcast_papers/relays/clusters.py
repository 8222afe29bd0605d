"""Claims 21 to 24 of seed 004: the clustering scenario."""

from collections.abc import Sequence
from statistics import mean

from nearcast_papers.paper import Statement
from nearcast_papers.relays.measures import Seen, clustered
from nearcast_papers.relays.model import ROUNDS
from nearcast_papers.relays.scenarios import CLUSTERINGS
from nearcast_papers.relays.virtual_reality import beside
from nearcast_papers.voronoi.measures import spearman


def ended(seen: Seen, what: str) -> list[float]:
    return [seen.ended("7", what, clustering=c) for c in CLUSTERINGS]


def listed(values: Sequence[float], form: str = ".2f") -> str:
    return ", ".join(f"{value:{form}}" for value in values)


def generated(seen: Seen) -> tuple[str, bool]:
    found = {c: seen.rounds("7", clustering=c) for c in CLUSTERINGS}
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


def steady(seen: Seen) -> tuple[str, bool]:
    used = ended(seen, "mean")
    apart = (max(used) - min(used)) / (sum(used) / len(used))

    def messages() -> str:
        return ", ".join(
            f"{seen.uplinks(**clustered(c, 'off')).mean:.2f} to"
            f" {seen.uplinks(**clustered(c, 'on')).mean:.2f} at {c:g}"
            for c in seen.form.clusterings
        )

    return f"{listed(used)}: {apart:.0%} apart{beside(messages)}", apart <= 0.25


def stretched(seen: Seen) -> tuple[str, bool]:
    found, early = ended(seen, "stretch"), [
        seen.after("7", ROUNDS, "stretch", clustering=c) for c in CLUSTERINGS
    ]  # fmt: skip
    falls, sooner = spearman(CLUSTERINGS, found), spearman(CLUSTERINGS, early)

    def messages() -> str:
        return ", ".join(
            f"{seen.graph_stretch(**clustered(c, 'on')):.2f} at {c:g}"
            for c in seen.form.clusterings
        )

    return (
        f"rank correlation {falls:.2f} at rest ({listed(found)}), {sooner:.2f} after {ROUNDS}"
        f" rounds{beside(messages)}",
        falls <= -0.8,
    )


def useful(seen: Seen) -> tuple[str, bool]:
    costs = ended(seen, "cost")
    rises = spearman(CLUSTERINGS, [-cost for cost in costs])
    return (
        f"rank correlation of utility with clustering {rises:.2f}; costs at rest, in thousands:"
        f" {listed([cost / 1000 for cost in costs], '.0f')}",
        rises >= 0.8,
    )


CLAIMS = (
    Statement(
        21, "Graphs have Gaussian degrees of mean 25, clusterings of 0.1 to 0.9; mean utilisation"
        " is above 2, its 90th percentile above 4", "degree within 1, clustering within 0.03,"
        " connected", generated,
        note="The quick form has 500 nodes, the full form 1,000.",
    ),
    Statement(
        22, "Utilisation after optimisation does not decrease with clustering",
        "within 25 % of the mean", steady,
    ),
    Statement(
        23, "The necessary latency stretch is lower for higher clustering",
        "rank correlation of −0.8 or below", stretched,
        note="Neighbours are of interest 1 to each other.",
    ),
    Statement(
        24, "A high clustering improves the performance of the algorithm",
        "utility rises with clustering: rank correlation of 0.8 or more", useful,
        note="Cost is ruled by the sixth power of a few nodes' utilisation, and the least of them"
        " is not what is drawn in figure 7.",
    ),
)  # fmt: skip
