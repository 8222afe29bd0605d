"""Figures 5.2 to 5.15 of seed 002, drawn as the thesis has them."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from nearcast.pipeline.report.charts import Axis, Key, Series, chart
from nearcast.pipeline.report.formatting import count, number, share
from nearcast.pipeline.report.plots import Plot, style
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
    Overlay,
    Seen,
    arriving,
    mobile,
    playing,
)
from nearcast_papers.paper import NotMeasuredError

SMOOTHED_S = 5  # curves by second are means of so many
PRINTED = {
    "waypoint": {ONE: 0.954, THREE: 0.955, PSENSE: 0.86, PSENSE3D: 0.882, SERVER: 0.977},
    "planetpi4": {ONE: 0.761, PSENSE: 0.77, SERVER: 0.90},
}
STYLES = {overlay: style(place) for place, overlay in enumerate(NAMES)}
World = Callable[[Overlay], dict[str, Any]]


def drawn(name: str, title: str, x: Axis, y: Axis, series: Sequence[Series]) -> list[Plot]:
    if not series:
        return []
    keys = [Key(one.name, one.style, one.dash) for one in series]
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
        Series(name=group, x=places, y=list(heights), style=style(place), shape="bar")
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


def table(_: Seen) -> list[Plot]:
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


def peers(seen: Seen, world: World, figure: str, title: str) -> list[Plot]:
    series = []
    with suppress(NotMeasuredError):
        running = seen.running(**arriving(world, ONE))
        ends = int(seen.runs(**arriving(world, ONE))[0].seconds)
        curve = {**running, ends: running[max(running)]}
        ordered = {second: float(curve[second]) for second in sorted(curve)}
        series.append(
            Series(
                name="running peers", x=[float(x) for x in ordered], y=list(ordered.values()),
                style=style(0), shape="step",
            )
        )  # fmt: skip
    return drawn(
        f"figure-{figure}", title, Axis("seconds", count, low=0), Axis("peers", count, low=0),
        series,
    )  # fmt: skip


def traffic(seen: Seen, world: World, figure: str, updates: bool, minutes: int) -> list[Plot]:
    curves = known(lambda one: seen.grown(updates, **world(one)), list(NAMES))
    series = [line(NAMES[one], curve, STYLES[one]) for one, curve in curves.items()]
    with suppress(NotMeasuredError):
        joining = seen.grown(updates, **arriving(world, ONE))
        series.append(line(f"{NAMES[ONE]}, joining one by one", joining, STYLES[ONE], 1))
    what = "all that is sent" if updates else "all but updates"
    own = known(lambda one: seen.own_mib(**world(one)), list(SHORT))
    whole = known(lambda one: seen.all_mib(**world(one)), list(SHORT))
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


def accuracy(seen: Seen, world: World, figure: str) -> list[Plot]:
    curves = known(lambda one: smooth(seen.accuracy(**world(one))), list(NAMES))
    series = [line(NAMES[one], curve, STYLES[one]) for one, curve in curves.items()]
    means = known(lambda one: seen.sight(**world(one)).accuracy, list(SHORT))
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


def specificity(seen: Seen) -> list[Plot]:
    curves = known(
        lambda one: {
            second: sight.specificity
            for second, sight in seen.seconds("sights_of_one", **mobile(one)).items()
        },
        (THREE, PSENSE),
    )
    return drawn(
        "figure-5-7", f"Specificity of node {NODE}",
        Axis("seconds", count, low=0), Axis("specificity", share, low=0.8, high=1),
        [line(NAMES[one], curve, STYLES[one]) for one, curve in curves.items()],
    )  # fmt: skip


def neighbours(seen: Seen) -> list[Plot]:
    plots = []
    for overlay in (TWO, PSENSE, PSENSE3D):
        series = []
        with suppress(NotMeasuredError):
            sights = seen.seconds("sights_of_one", **playing(overlay))
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
DRAWINGS: dict[str, Callable[[Seen], list[Plot]]] = {
    "3.1": table,
    "5.2": lambda seen: peers(seen, mobile, "5-2", "Running peers, mobility model"),
    "5.3": lambda seen: traffic(seen, mobile, "5-3", False, 15),
    "5.5": lambda seen: accuracy(seen, mobile, "5-5"),
    "5.7": specificity,
    "5.9": lambda seen: peers(seen, playing, "5-9", "Running peers, Planet π4"),
    "5.10": lambda seen: traffic(seen, playing, "5-10", True, 10),
    "5.12": lambda seen: [*neighbours(seen), *accuracy(seen, playing, "5-12-accuracy")],
}
