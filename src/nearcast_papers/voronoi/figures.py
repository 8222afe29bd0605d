"""Figures of [VSO], drawn as in the paper, and four for open questions."""

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress

from nearcast.pipeline.report.charts import Axis, Series
from nearcast.pipeline.report.formatting import count, number, rate, share
from nearcast.pipeline.report.plots import Plot, series_style
from nearcast.protocols.voronoi.vso.messages import Cast, Notify, ReplicaMatch
from nearcast.sim.settings import CLUSTER
from nearcast_papers.charts import legend_chart
from nearcast_papers.paper import NotMeasuredError
from nearcast_papers.voronoi import structure
from nearcast_papers.voronoi.loads import TABLE
from nearcast_papers.voronoi.measures import VSOMeasures, snapshots
from nearcast_papers.voronoi.scenarios import (
    BLASTS,
    CANDIDATES,
    CHURN,
    IDLE,
    LIMIT,
    MIN_MATCHERS,
    NINE,
    PARTITIONINGS,
    SIZES,
    STABLE,
)

STEPS = 10  # of the paper to a second
WORST = {50: 0.70, 100: 0.80}  # the paper's at 10 nodes per second, read as drops by 30 and by 20
BACK_S = 20  # when consistency was back, mostly


def draw_regions(_: VSOMeasures) -> list[Plot]:
    """Figure 2."""
    series = []
    for place, name in enumerate(("quad-tree", "Voronoi, by VSO's rules")):
        counts = Counter(pair[place] for pair in structure.region_counts())
        many = sorted(counts)
        series.append(
            Series(
                name=name, x=[float(k) for k in many], y=[float(counts[k]) for k in many],
                style=series_style(place), shape="bar",
            )
        )  # fmt: skip
    most = max(max(one.x) for one in series)
    return [
        *legend_chart(
            "figure-2-regions",
            "50 clustered entities, at most 10 to a region: regions needed",
            Axis("regions", count, low=0.5, high=most + 0.5),
            Axis("crowds of 100", count, low=0),
            series,
        ),
        *draw_greedy_hops(),
    ]


def draw_greedy_hops() -> list[Plot]:
    """Hops of greedy forwarding by number of matchers."""
    found = structure.greedy_hops()
    root = found[0][1] / found[0][0] ** 0.5
    sites = [float(matchers) for matchers, _ in found]
    measured = Series(
        name="measured", x=sites, y=[hops for _, hops in found], style=series_style(0)
    )
    theory = Series(
        name="√N from the first on", x=sites, y=[root * n**0.5 for n in sites], style="soft", dash=1
    )
    return legend_chart(
        "figure-2-hops",
        "Greedy forwarding among matchers",
        Axis("matchers, in powers of ten", count, low=10, log=True),
        Axis("steps, in powers of ten", number, low=1, log=True),
        [measured, theory],
    )


def draw_nine_matchers(measures: VSOMeasures) -> list[Plot]:
    """Figure 7."""
    plots = []
    for way, what in (("up", "upload"), ("down", "download")):
        series = []
        for place, which in enumerate(PARTITIONINGS):
            loads = {}
            for nodes in NINE:
                with suppress(NotMeasuredError):
                    loads[nodes] = measures.nine(which, nodes, way)
            for dash, (name, part) in enumerate(
                (("average", "mean"), ("maximum", "most"), ("minimum", "least"))
            ):
                if loads:
                    heights = [getattr(load, part) for load in loads.values()]
                    series.append(
                        Series(
                            name=f"{which}: {name}", x=[float(n) for n in loads], y=heights,
                            style=series_style(place), dash=dash,
                        )
                    )  # fmt: skip
        plots += legend_chart(
            f"figure-7-{what}",
            f"Nine matchers: {what} of a matcher per second",
            Axis("nodes", count, low=0),
            Axis(what, rate, low=0),
            series,
        )
    return plots


def draw_churn(measures: VSOMeasures) -> list[Plot]:
    """Figure 8."""
    plots = []
    for nodes in STABLE:
        series: list[Series] = []
        with suppress(NotMeasuredError):
            phase = measures.phase(nodes)
            series += by_rate(measures, nodes)
            described = [(phase, 0.99), (phase + 10, WORST[nodes]), (2 * phase, WORST[nodes]),
                    (2 * phase + BACK_S, 0.99), (measures.churn_ends(nodes), 0.99)]  # fmt: skip
            series.append(
                Series(
                    name="the paper's text, 10 per second", x=[STEPS * s for s, _ in described],
                    y=[low for _, low in described], style="alarm", dash=2,
                )
            )  # fmt: skip
        title = f"{nodes} nodes: discovery consistency, by churn"
        plots += draw_consistency(f"figure-8-{nodes}", title, series)
    with suppress(NotMeasuredError):
        title = f"Not in the paper: {STABLE[0]} nodes, and the gateway crashes as churn begins"
        plots += draw_consistency(
            "figure-8-mortal", title, by_rate(measures, STABLE[0], MIN_MATCHERS)
        )
    return plots


def by_rate(measures: VSOMeasures, nodes: int, least: int = 1) -> list[Series]:
    """Consistency over time, one series per rate of churn."""
    curves = {
        each: measures.churn(nodes, each, least) for each in measures.churn_rates(nodes, least)
    }
    return [
        Series(
            name=f"{each:g} per second", x=[STEPS * float(s) for s in snapshots(curve)],
            y=list(snapshots(curve).values()), style=series_style(place),
        )
        for place, (each, curve) in enumerate(curves.items())
    ]  # fmt: skip


def draw_consistency(name: str, title: str, series: Sequence[Series]) -> list[Plot]:
    return legend_chart(
        name,
        title,
        Axis("step (joining, then churning, then calm)", count, low=0),
        Axis("seen of what should be seen", share, low=0, high=1),
        series,
    )


def draw_distribution(
    measures: VSOMeasures, name: str, matches: bool, way: str, who: str
) -> list[Plot]:
    """The distribution of bandwidth over nodes, by number of nodes."""
    plots = []
    for measure, what in (("mean", "average"), ("max", "busiest second")):
        series = []
        for place, nodes in enumerate(SIZES):
            with suppress(NotMeasuredError):
                loads = measures.bandwidths(nodes, matches, f"{way}_{measure}")
                shares = [(k + 1) / len(loads) for k in range(len(loads))]
                series.append(
                    Series(
                        name=f"{nodes:,} nodes",
                        x=loads,
                        y=shares,
                        style=series_style(place),
                        shape="step",
                    )
                )
        plots += legend_chart(
            f"{name}-{measure}",
            f"{who}: {what}",
            Axis("bytes per second", rate, low=0),
            Axis("share of them with no more", share, low=0, high=1),
            series,
        )
    return plots


def draw_uploads(measures: VSOMeasures) -> list[Plot]:
    return draw_distribution(measures, "figure-9", True, "up", "Upload of matchers")


def draw_downloads(measures: VSOMeasures) -> list[Plot]:
    return draw_distribution(measures, "figure-10", False, "down", "Download of clients")


def draw_table(measures: VSOMeasures) -> list[Plot]:
    """The figure "table"."""
    found = {}
    for nodes in SIZES:
        with suppress(NotMeasuredError):
            found[nodes] = measures.matchers(nodes)
    if not found:
        return []
    names = [f"{nodes:,}" for nodes in found]
    places = [float(place) for place in range(len(found))]

    def label(at: float) -> str:
        return names[round(at)] if at == round(at) and 0 <= at < len(names) else ""

    ours = Series(name="ours", x=places, y=list(found.values()), style=series_style(0), shape="bar")
    paper = [float(TABLE[nodes]) for nodes in found]
    theirs = Series(name="the paper's", x=places, y=paper, style=series_style(1), shape="bar")
    return legend_chart(
        "table-1",
        "Matchers, at the end of a run",
        Axis("nodes", label, low=-0.5, high=len(found) - 0.5),
        Axis("matchers", number, low=0),
        [ours, theirs],
    )


def draw_areas(measures: VSOMeasures) -> list[Plot]:
    """The figure "areas"."""
    found = {}
    for blast in BLASTS:
        with suppress(NotMeasuredError):
            found[blast] = measures.delivered(blast)
    if not found:
        return []
    radii = list(found)
    wrong = [
        Series(
            name=name, x=radii, y=[one[name] / max(1, one["expected"]) for one in found.values()],
            style=series_style(place),
        )
        for place, name in enumerate(("missed", "spurious", "duplicates"))
    ]  # fmt: skip
    carried = [
        Series(
            name=name, x=radii, y=[one[kind] / one["publications"] for one in found.values()],
            style=series_style(place),
        )
        for place, (kind, name) in enumerate(
            ((Cast.kind, "between matchers, by VoroCast"), (ReplicaMatch.kind,
            "to owners elsewhere"),
             (Notify.kind, "to clients"))
        )
    ]  # fmt: skip
    radius = Axis("radius of a publication, in units (0: a point)", number, low=0)
    return [
        *legend_chart(
            "areas-heard", "Publications over areas: what was wrong",
            radius, Axis("of what should have been heard", share, low=0), wrong,
        ),
        *legend_chart(
            "areas-messages", "Messages for each publication",
            radius, Axis("messages", number, low=0), carried,
        ),
    ]  # fmt: skip


def draw_candidates(measures: VSOMeasures) -> list[Plot]:
    """The figure "candidates"."""
    consistency: list[Series] = []
    matchers: list[Series] = []
    for place, who in enumerate(("clients", *CANDIDATES)):
        found = {}
        for crashes in CHURN:
            with suppress(NotMeasuredError):
                found[crashes] = measures.candidates(who, crashes)
        if not found:
            continue
        means = [one.consistency for one in found.values()]
        style = series_style(place)
        consistency.append(Series(name=who, x=list(found), y=means, style=style))
        worst = found[max(found)]
        for dash, (what, counts) in enumerate(
            (("servers", worst.servers), ("clients", worst.clients))
        ):
            if any(counts.values()):
                matchers.append(
                    Series(
                        name=f"{who}: {what} that match", x=[STEPS * float(s) for s in counts],
                        y=[float(n) for n in counts.values()], style=style, dash=dash, shape="step",
                    )
                )  # fmt: skip
    return [
        *legend_chart(
            "candidates-consistency",
            "Discovery consistency while nodes churn, by who may become a matcher",
            Axis("nodes that crash per second, of 50", number, low=0),
            Axis("seen of what should be seen", share, low=0, high=1),
            consistency,
        ),
        *legend_chart(
            "candidates-matchers",
            "Who matches at the highest churn",
            Axis("step (joining, then churning, then calm)", count, low=0),
            Axis("matchers", number, low=0),
            matchers,
        ),
    ]


def draw_servers(measures: VSOMeasures) -> list[Plot]:
    """The figure "servers"."""
    bytes_sent: list[Series] = []
    latency: list[Series] = []
    for place, (protocol, name) in enumerate((("vso", "owners match"), (CLUSTER, "homes match"))):
        found = {}
        for nodes in SIZES:
            with suppress(NotMeasuredError):
                found[float(nodes)] = measures.served(protocol, nodes)
        if not found:
            continue
        style, sizes = series_style(place), list(found)
        for dash, (what, part) in enumerate(
            (("to clients", "to_clients"), ("between servers", "to_servers"))
        ):
            heights = [getattr(one, part) for one in found.values()]
            bytes_sent.append(
                Series(name=f"{name}: {what}", x=sizes, y=heights, style=style, dash=dash)
            )
        delays = [one.latency_ms for one in found.values()]
        wrong = sum(one.wrong for one in found.values())
        latency.append(
            Series(name=f"{name} ({wrong} deliveries wrong)", x=sizes, y=delays, style=style)
        )
    return [
        *legend_chart(
            "servers-bytes", "Bytes that servers send for each publication",
            Axis("nodes", count, low=0), Axis("bytes", number, low=0), bytes_sent,
        ),
        *legend_chart(
            "servers-latency", "Mean time to a delivery, 100 ms to a message",
            Axis("nodes", count, low=0), Axis("milliseconds", number, low=0), latency,
        ),
    ]  # fmt: skip


def draw_tide(measures: VSOMeasures) -> list[Plot]:
    """The figure "tide"."""
    series: list[Series] = []
    behaviour = {IDLE[0]: "leaves without any", IDLE[1]: "leaves at half its limit"}
    for place, idle in enumerate(IDLE):
        with suppress(NotMeasuredError):
            found = measures.tide(idle)
            if not series:
                needed = [entities / LIMIT for entities in found.entities.values()]
                series.append(
                    Series(
                        name="entities / 20", x=[float(s) for s in found.entities], y=needed,
                        style="soft", dash=1,
                    )
                )  # fmt: skip
            series.append(
                Series(
                    name=f"a matcher {behaviour[idle]}",
                    x=[float(s) for s in found.matchers],
                    y=[float(m) for m in found.matchers.values()],
                    style=series_style(place),
                    shape="step",
                )
            )
    return legend_chart(
        "tide",
        "Matchers, while a crowd comes and goes",
        Axis("seconds", count, low=0),
        Axis("matchers", number, low=0),
        series,
    )
