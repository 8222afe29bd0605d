"""Figures 5.2 to 5.15 of seed 002, drawn as the thesis has them."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from nearcast.pipeline.report.charts import Axis, LegendKey, Series, chart
from nearcast.pipeline.report.formatting import count, number, share
from nearcast.pipeline.report.plots import Plot, series_style
from nearcast.protocols.bubblestorm.sizes import rendezvous
from nearcast_papers.bubblestorm import meeting_probability
from nearcast_papers.bubblestorm.counting import NODE
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
from nearcast_papers.paper import NotMeasuredError

SMOOTHED_S = 5  # curves by second are means of so many
PRINTED = {
    "waypoint": {ONE: 0.954, THREE: 0.955, PSENSE: 0.86, PSENSE3D: 0.882, SERVER: 0.977},
    "planetpi4": {ONE: 0.761, PSENSE: 0.77, SERVER: 0.90},
}
STYLES = {overlay: series_style(place) for place, overlay in enumerate(NAMES)}
World = Callable[[Overlay], dict[str, Any]]


def drawn(name: str, title: str, x: Axis, y: Axis, series: Sequence[Series]) -> list[Plot]:
    if not series:
        return []
    keys = [LegendKey(one.name, one.style, one.dash) for one in series]
    return [chart(name, title, x, y, series, keys)]


def bars(
    name: str, title: str, y: Axis, groups: Mapping[str, Sequence[float]], names: Sequence[str]
) -> list[Plot]:
    """Side by side: one bar of each group over each name; what is not finite has none."""
    if not groups or not names:
        return []

    def word(at: float) -> str:
        return names[round(at)] if at == round(at) and 0 <= at < len(names) else ""

    places = [float(place) for place in range(len(names))]
    series = [
        Series(name=group, x=places, y=list(heights), style=series_style(place), shape="bar")
        for place, (group, heights) in enumerate(groups.items())
    ]
    return drawn(name, title, Axis("", word, low=-0.5, high=len(names) - 0.5), y, series)


def line(name: str, curve: Mapping[int, float], look: str, dash: int = 0) -> Series:
    return Series(
        name=name, x=[float(x) for x in curve], y=list(curve.values()), style=look, dash=dash
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


def table(_: BubbleStormMeasures) -> list[Plot]:
    tried = 1, 2, 3
    return bars(
        "table-3-1",
        f"Two bubbles meet, of {meeting_probability.PEERS:,} peers",
        Axis("of all pairs", share, low=0.5, high=1),
        {
            "1 - e^(-λ²), as in table 3.1": [rendezvous(certainty) for certainty in tried],
            "tried": [meeting_probability.met(certainty) for certainty in tried],
        },
        [f"λ = {certainty}" for certainty in tried],
    )


def peers(measures: BubbleStormMeasures, world: World, figure: str, title: str) -> list[Plot]:
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
    return drawn(
        f"figure-{figure}", title, Axis("seconds", count, low=0), Axis("peers", count, low=0),
        series,
    )  # fmt: skip


def traffic(
    measures: BubbleStormMeasures, world: World, figure: str, updates: bool, minutes: int
) -> list[Plot]:
    curves = known(lambda one: measures.grown(updates, **world(one)), list(NAMES))
    series = [line(NAMES[one], curve, STYLES[one]) for one, curve in curves.items()]
    with suppress(NotMeasuredError):
        joining = measures.grown(updates, **joining_runs(world, ONE))
        series.append(line(f"{NAMES[ONE]}, joining one by one", joining, STYLES[ONE], 1))
    what = "all that is sent" if updates else "all but updates"
    own = known(lambda one: measures.own_mib(**world(one)), list(SHORT))
    whole = known(lambda one: measures.all_mib(**world(one)), list(SHORT))
    return [
        *drawn(
            f"figure-{figure}-curves", f"Sent until then, per peer: {what}",
            Axis("seconds", count, low=0), Axis("MiB", number, low=0), series,
        ),
        *bars(
            f"figure-{figure}-totals", f"Sent in {minutes} minutes, per peer",
            Axis("MiB", number, low=0),
            {
                "without updates": list(own.values()),
                "updates": [whole[one] - own[one] for one in own],
            },
            [SHORT[one] for one in own],
        ),
    ]  # fmt: skip


def accuracy(measures: BubbleStormMeasures, world: World, figure: str) -> list[Plot]:
    curves = known(lambda one: smooth(measures.accuracy(**world(one))), list(NAMES))
    series = [line(NAMES[one], curve, STYLES[one]) for one, curve in curves.items()]
    means = known(lambda one: measures.confusion(**world(one)).accuracy, list(SHORT))
    printed = PRINTED[world(ONE)["workload"]]
    lowest = min((min(curve.values()) for curve in curves.values()), default=0.0)
    low = 0.8 if lowest >= 0.8 else 0.5
    return [
        *drawn(
            f"figure-{figure}-curves", "Accuracy, means of five seconds",
            Axis("seconds", count, low=0), Axis("accuracy", share, low=low, high=1), series,
        ),
        *bars(
            f"figure-{figure}-means", "Accuracy once all have joined and settled",
            Axis("accuracy", share, low=low, high=1),
            {
                "measured": list(means.values()),
                "the thesis": [printed.get(one, float("nan")) for one in means],
            },
            [SHORT[one] for one in means],
        ),
    ]  # fmt: skip


def specificity(measures: BubbleStormMeasures) -> list[Plot]:
    curves = known(
        lambda one: {
            second: confusion.specificity
            for second, confusion in measures.seconds("sights_of_one", **mobility_runs(one)).items()
        },
        (THREE, PSENSE),
    )
    return drawn(
        "figure-5-7", f"Specificity of node {NODE}",
        Axis("seconds", count, low=0), Axis("specificity", share, low=0.8, high=1),
        [line(NAMES[one], curve, STYLES[one]) for one, curve in curves.items()],
    )  # fmt: skip


def neighbours(measures: BubbleStormMeasures) -> list[Plot]:
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
        plots += drawn(
            f"figure-5-12-{overlay[0]}-{overlay[1]:g}", f"{NAMES[overlay]}: neighbours of ship"
            f" {NODE}", Axis("seconds", count, low=0), Axis("ships", count, low=0, high=32), series,
        )  # fmt: skip
    return plots


SHORT = {ONE: "λ = 1", THREE: "λ = 3", PSENSE: "pSense", PSENSE3D: "pSense3D", SERVER: "C/S"}
DRAWINGS: dict[str, Callable[[BubbleStormMeasures], list[Plot]]] = {
    "3.1": table,
    "5.2": lambda measures: peers(measures, mobility_runs, "5-2", "Running peers, mobility model"),
    "5.3": lambda measures: traffic(measures, mobility_runs, "5-3", False, 15),
    "5.5": lambda measures: accuracy(measures, mobility_runs, "5-5"),
    "5.7": specificity,
    "5.9": lambda measures: peers(measures, game_runs, "5-9", "Running peers, Planet π4"),
    "5.10": lambda measures: traffic(measures, game_runs, "5-10", True, 10),
    "5.12": lambda measures: [
        *neighbours(measures),
        *accuracy(measures, game_runs, "5-12-accuracy"),
    ],
}
