"""Figures 5.2 to 5.15 of [Lucas2011], drawn as in the thesis."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from nearcast.pipeline.report.charts import Axis, Series
from nearcast.pipeline.report.formatting import count, number, share
from nearcast.pipeline.report.plots import Plot, series_style
from nearcast.protocols.bubblestorm.sizes import rendezvous
from nearcast_papers.bubblestorm import meeting_probability
from nearcast_papers.bubblestorm.jobs import NODE
from nearcast_papers.bubblestorm.measures import (
    NAMES,
    ONE,
    PSENSE,
    PSENSE3D,
    SERVER,
    THREE,
    TWO,
    BubbleStormMeasures,
    Overlay,
    game_runs,
    joining_runs,
    mobility_runs,
)
from nearcast_papers.charts import legend_chart
from nearcast_papers.paper import NotMeasuredError

SMOOTHED_S = 5  # curves by second are means of so many
PRINTED = {
    "waypoint": {ONE: 0.954, THREE: 0.955, PSENSE: 0.86, PSENSE3D: 0.882, SERVER: 0.977},
    "planetpi4": {ONE: 0.761, PSENSE: 0.77, SERVER: 0.90},
}
STYLES = {overlay: series_style(place) for place, overlay in enumerate(NAMES)}
World = Callable[[Overlay], dict[str, Any]]


def draw_bars(
    name: str, title: str, y: Axis, groups: Mapping[str, Sequence[float]], names: Sequence[str]
) -> list[Plot]:
    """Side by side: one bar of each group over each name; what is not finite has none."""
    if not groups or not names:
        return []

    def label(at: float) -> str:
        return names[round(at)] if at == round(at) and 0 <= at < len(names) else ""

    places = [float(place) for place in range(len(names))]
    series = [
        Series(name=group, x=places, y=list(heights), style=series_style(place), shape="bar")
        for place, (group, heights) in enumerate(groups.items())
    ]
    return legend_chart(name, title, Axis("", label, low=-0.5, high=len(names) - 0.5), y, series)


def line(name: str, curve: Mapping[int, float], style: str, dash: int = 0) -> Series:
    return Series(
        name=name, x=[float(x) for x in curve], y=list(curve.values()), style=style, dash=dash
    )


def smooth(curve: Mapping[int, float]) -> dict[int, float]:
    groups: dict[int, list[float]] = {}
    for second, value in curve.items():
        groups.setdefault(second // SMOOTHED_S * SMOOTHED_S, []).append(value)
    return {begin: sum(values) / len(values) for begin, values in groups.items()}


def known(measure: Callable[[Overlay], Any], overlays: Sequence[Overlay]) -> dict[Overlay, Any]:
    """What was measured of those that were run."""
    found = {}
    for overlay in overlays:
        with suppress(NotMeasuredError):
            found[overlay] = measure(overlay)
    return found


def draw_table(_: BubbleStormMeasures) -> list[Plot]:
    """Figure 3.1."""
    tried = 1, 2, 3
    return draw_bars(
        "table-3-1",
        f"Two bubbles meet, of {meeting_probability.PEERS:,} peers",
        Axis("of all pairs", share, low=0.5, high=1),
        {
            "1 - e^(-λ²), as in table 3.1": [rendezvous(certainty) for certainty in tried],
            "tried": [meeting_probability.met(certainty) for certainty in tried],
        },
        [f"λ = {certainty}" for certainty in tried],
    )


def draw_peers(measures: BubbleStormMeasures, world: World, figure: str, title: str) -> list[Plot]:
    """Peers over time, in a world where they join one by one."""
    series = []
    with suppress(NotMeasuredError):
        running = measures.running(**joining_runs(world, ONE))
        ends = int(measures.runs(**joining_runs(world, ONE))[0].seconds)
        curve = {**running, ends: running[max(running)]}
        ordered = {second: float(curve[second]) for second in sorted(curve)}
        series.append(
            Series(
                name="running peers", x=[float(x) for x in ordered], y=list(ordered.values()),
                style=series_style(0), shape="step",
            )
        )  # fmt: skip
    return legend_chart(
        f"figure-{figure}", title, Axis("seconds", count, low=0), Axis("peers", count, low=0),
        series,
    )  # fmt: skip


def draw_traffic(
    measures: BubbleStormMeasures, world: World, figure: str, updates: bool, minutes: int
) -> list[Plot]:
    """Traffic over time and in total, of all overlays."""
    curves = known(lambda one: measures.grown(updates, **world(one)), list(NAMES))
    series = [line(NAMES[one], curve, STYLES[one]) for one, curve in curves.items()]
    with suppress(NotMeasuredError):
        joining = measures.grown(updates, **joining_runs(world, ONE))
        series.append(line(f"{NAMES[ONE]}, joining one by one", joining, STYLES[ONE], 1))
    what = "all that is sent" if updates else "all but updates"
    own = known(lambda one: measures.own_mib(**world(one)), list(SHORT))
    whole = known(lambda one: measures.all_mib(**world(one)), list(SHORT))
    return [
        *legend_chart(
            f"figure-{figure}-curves", f"Sent until then, per peer: {what}",
            Axis("seconds", count, low=0), Axis("MiB", number, low=0), series,
        ),
        *draw_bars(
            f"figure-{figure}-totals", f"Sent in {minutes} minutes, per peer",
            Axis("MiB", number, low=0),
            {
                "without updates": list(own.values()),
                "updates": [whole[one] - own[one] for one in own],
            },
            [SHORT[one] for one in own],
        ),
    ]  # fmt: skip


def draw_accuracy(measures: BubbleStormMeasures, world: World, figure: str) -> list[Plot]:
    """Accuracy over time and on average, of all overlays."""
    curves = known(lambda one: smooth(measures.accuracy(**world(one))), list(NAMES))
    series = [line(NAMES[one], curve, STYLES[one]) for one, curve in curves.items()]
    means = known(lambda one: measures.confusion(**world(one)).accuracy, list(SHORT))
    printed = PRINTED[world(ONE)["workload"]]
    lowest = min((min(curve.values()) for curve in curves.values()), default=0.0)
    low = 0.8 if lowest >= 0.8 else 0.5
    return [
        *legend_chart(
            f"figure-{figure}-curves", "Accuracy, means of five seconds",
            Axis("seconds", count, low=0), Axis("accuracy", share, low=low, high=1), series,
        ),
        *draw_bars(
            f"figure-{figure}-means", "Accuracy once all have joined and settled",
            Axis("accuracy", share, low=low, high=1),
            {
                "measured": list(means.values()),
                "the thesis": [printed.get(one, float("nan")) for one in means],
            },
            [SHORT[one] for one in means],
        ),
    ]  # fmt: skip


def draw_specificity(measures: BubbleStormMeasures) -> list[Plot]:
    """Figure 5.7."""
    curves = known(
        lambda one: {
            second: confusion.specificity
            for second, confusion in measures.seconds("sights_of_one", **mobility_runs(one)).items()
        },
        (THREE, PSENSE),
    )
    return legend_chart(
        "figure-5-7", f"Specificity of node {NODE}",
        Axis("seconds", count, low=0), Axis("specificity", share, low=0.8, high=1),
        [line(NAMES[one], curve, STYLES[one]) for one, curve in curves.items()],
    )  # fmt: skip


def draw_neighbours(measures: BubbleStormMeasures) -> list[Plot]:
    """Known neighbours of one node over time, and how many it should know."""
    plots = []
    for overlay in (TWO, PSENSE, PSENSE3D):
        series = []
        with suppress(NotMeasuredError):
            sights = measures.seconds("sights_of_one", **game_runs(overlay))
            should = {second: one.should for second, one in sights.items()}
            has = {second: one.known for second, one in sights.items()}
            series = [
                line("should be known", should, "soft", 1), line("known", has, STYLES[overlay]),
            ]  # fmt: skip
        plots += legend_chart(
            f"figure-5-12-{overlay[0]}-{overlay[1]:g}", f"{NAMES[overlay]}: neighbours of ship"
            f" {NODE}", Axis("seconds", count, low=0), Axis("ships", count, low=0, high=32), series,
        )  # fmt: skip
    return plots


SHORT = {ONE: "λ = 1", THREE: "λ = 3", PSENSE: "pSense", PSENSE3D: "pSense3D", SERVER: "C/S"}
DRAWINGS: dict[str, Callable[[BubbleStormMeasures], list[Plot]]] = {
    "3.1": draw_table,
    "5.2": lambda measures: draw_peers(
        measures, mobility_runs, "5-2", "Running peers, mobility model"
    ),
    "5.3": lambda measures: draw_traffic(measures, mobility_runs, "5-3", False, 15),
    "5.5": lambda measures: draw_accuracy(measures, mobility_runs, "5-5"),
    "5.7": draw_specificity,
    "5.9": lambda measures: draw_peers(measures, game_runs, "5-9", "Running peers, Planet π4"),
    "5.10": lambda measures: draw_traffic(measures, game_runs, "5-10", True, 10),
    "5.12": lambda measures: [
        *draw_neighbours(measures),
        *draw_accuracy(measures, game_runs, "5-12-accuracy"),
    ],
}
