"""Figures for [Evolving], which prints none with numbers: its demonstration, and more."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

from nearcast.pipeline.report.charts import Axis, Series
from nearcast.pipeline.report.formatting import count, milliseconds, number, rate, share
from nearcast.pipeline.report.plots import Plot, series_style
from nearcast_papers.charts import legend_chart
from nearcast_papers.evolving import load_and_accuracy
from nearcast_papers.evolving.measures import EvolvingMeasures
from nearcast_papers.evolving.scenarios import (
    CHOICES,
    CLOCK_LATENCY_MS,
    CLOCKS,
    DESIGNS,
    ENGINES,
    INTERVAL_MS,
    INTERVALS_MS,
    MORE_LATENCIES_MS,
    MORE_PICKUPS,
    MORE_SIZES,
    MORE_SKEWS_MS,
    PAUSES,
    SAVING_MS,
    SIDE_BY_SIDE,
    STALE,
)
from nearcast_papers.evolving.semantics import crossover_run
from nearcast_papers.paper import NotMeasuredError

SAVED = 0.968  # the follow-up paper's
CLOCK_NAMES = {
    CLOCKS[0]: "moments travel",
    CLOCKS[1]: "submission stamped on arrival",
    CLOCKS[2]: "both taken on arrival (the paper)",
}


DASHES = {"cached": 1, "lazy": 1, "swept": 2}  # lines that would hide others


def style_of(design: str) -> str:
    return series_style(DESIGNS.index(design))


def values(keys: Iterable[float], measure: Callable[[float], float]) -> dict[float, float]:
    """The measure of each key that was run."""
    found = {}
    for key in keys:
        with suppress(NotMeasuredError):
            found[key] = measure(key)
    return found


def curve(name: str, found: Mapping[float, float], style: str, dash: int = 0) -> list[Series]:
    if not found:
        return []
    return [Series(name=name, x=list(found), y=list(found.values()), style=style, dash=dash)]


def draw_by_design(
    name: str, title: str, y: Axis, measures: Mapping[str, Callable[[str], float]]
) -> list[Plot]:
    """Groups of bars, one for each measure; in each, a bar for each design."""
    labels, rules = list(measures), list(measures.values())

    def label(at: float) -> str:
        return labels[round(at)] if at == round(at) and 0 <= at < len(labels) else ""

    def heights(design: str) -> dict[float, float]:
        return values(range(len(rules)), lambda at: rules[round(at)](design))

    series = []
    for design in DESIGNS:
        found = heights(design)
        if found:
            places, tops = list(found), list(found.values())
            series.append(
                Series(name=design, x=places, y=tops, style=style_of(design), shape="bar")
            )
    return legend_chart(name, title, Axis("", label, low=-0.5, high=len(labels) - 0.5), y, series)


# The figures.


def draw_monitor(measures: EvolvingMeasures) -> list[Plot]:
    """The figure "monitor"."""
    plots = []
    for subscribing, what in ((True, "about interests"), (False, "of all kinds")):
        curves: dict[tuple[float, ...], list[str]] = {}
        for design in DESIGNS:
            with suppress(NotMeasuredError):
                load = tuple(measures.load_by_second(design, subscribing))
                curves.setdefault(load, []).append(design)  # where they are the same, one line
        series = []
        for load, designs in curves.items():
            middles = {second + 0.5: one for second, one in enumerate(load)}
            style, dash = style_of(designs[0]), DASHES.get(designs[0], 0)
            series += curve(", ".join(designs), middles, style, dash)
        plots += legend_chart(
            f"monitor-{'interests' if subscribing else 'all'}",
            f"Messages {what}, on the same movement",
            Axis("seconds since the game began", number, low=0),
            Axis("messages per second", count, low=0),
            series,
        )
    return plots


def draw_traffic(measures: EvolvingMeasures) -> list[Plot]:
    """The figure "traffic"."""
    return [
        *draw_by_design(
            "traffic-messages",
            "Messages about interests, per entity",
            Axis("messages per second and entity", number, low=0),
            {
                "game": lambda d: measures.traffic(d).subscription_messages,
                "trading": lambda d: measures.traffic(d, workload="trading").subscription_messages,
            },
        ),
        *draw_by_design(
            "traffic-bytes",
            "The game: bytes by what they are about, per entity",
            Axis("bytes per second and entity", rate, low=0),
            {
                "interests": lambda d: measures.traffic(d).subscription_bytes,
                "publications": lambda d: (
                    measures.traffic(d).bytes - measures.traffic(d).subscription_bytes
                ),
            },
        ),
    ]


def draw_accuracy(measures: EvolvingMeasures) -> list[Plot]:
    return [
        *draw_errors_by_design(measures, "mammoth", "The game"),
        *draw_errors_by_design(measures, "trading", "Trading"),
        *draw_errors_by_interval(measures),
    ]


def draw_errors_by_design(measures: EvolvingMeasures, workload: str, what: str) -> list[Plot]:
    return draw_by_design(
        f"accuracy-{workload}",
        f"{what}: what was wrong, of what should have been heard",
        Axis("share of what should have been heard", share, low=0),
        {
            "missed": lambda design: measures.errors(design, workload=workload).missed,
            "spurious": lambda design: measures.errors(design, workload=workload).spurious,
        },
    )


def draw_errors_by_interval(measures: EvolvingMeasures) -> list[Plot]:
    """Errors by the interval of re-subscription, EI and TT."""

    def errors(design: str) -> dict[float, float]:
        return values(INTERVALS_MS, lambda ms: measures.errors(design, interval_ms=ms).all)

    series = []
    for design in (*STALE, "parametric", "tile"):
        found = errors(design)
        if len(found) > 1:
            series += curve(design, found, style_of(design), DASHES.get(design, 0))
    for design in ("lazy", "swept"):
        with suppress(NotMeasuredError):
            flat = dict.fromkeys(INTERVALS_MS, measures.errors(design).all)
            series += curve(design, flat, style_of(design), DASHES[design])
    return legend_chart(
        "accuracy-interval",
        "The game: missed and spurious, by how long knowledge is used",
        Axis("interval of re-subscription, EI or TT", milliseconds, low=0),
        Axis("share of what should have been heard", share, low=0),
        series,
    )


def draw_saving(measures: EvolvingMeasures) -> list[Plot]:
    """The figure "saving"."""
    found: dict[str, list[load_and_accuracy.MessageSaving]] = {"game": [], "trading": []}
    for name, workload, intervals in (
        ("game", "mammoth", SAVING_MS), ("trading", "trading", (INTERVAL_MS,)),
    ):  # fmt: skip
        for interval in intervals:
            with suppress(NotMeasuredError):
                found[name].append(load_and_accuracy.measure_saving(measures, workload, interval))
    points = {name: sorted((one.ratio, one) for one in some) for name, some in found.items()}
    highest = max((ratio for some in points.values() for ratio, _ in some), default=0.0)
    if not highest:
        return []
    theory = {k / 10: 1 - 10 / k for k in range(10, round(10 * highest) + 20)}
    series = curve("1 − I/D", theory, "soft", 1)
    for style, (name, some) in enumerate(points.items()):
        messages = {ratio: one.messages for ratio, one in some}
        series += curve(f"{name}: messages", messages, series_style(style))
    loads = {ratio: one.load for ratio, one in points["game"]}
    series += curve("game: bytes of the whole load", loads, series_style(2))
    series += curve("the follow-up paper, if D/I = 31", {load_and_accuracy.RATIO: SAVED}, "alarm")
    plots = legend_chart(
        "saving-interval",
        "What one word per move saves of re-subscription",
        Axis("D/I: intervals in a move", number, low=0),
        Axis("saved", share, low=0, high=1),
        series,
    )
    return plots + draw_saving_by_movement(measures)


def draw_saving_by_movement(measures: EvolvingMeasures) -> list[Plot]:
    """The share of messages saved by how much players move."""
    series = []
    for design in ("resubscribe", "swept"):
        found = {}
        for pause in sorted(PAUSES, reverse=True):
            with suppress(NotMeasuredError):
                moving = measures.movement(design, pause=pause).share
                found[moving] = measures.traffic(design, pause=pause).subscription_messages
        series += curve(design, found, style_of(design))
    return legend_chart(
        "saving-movement",
        "The more players move, the more is saved",
        Axis("share of the time that a player moves", share, low=0, high=1),
        Axis("messages about interests per second and player", number, low=0),
        series,
    )


def draw_evaluations(measures: EvolvingMeasures) -> list[Plot]:
    """The figure "evaluations"."""

    def by_size(design: str) -> dict[float, float]:
        return values(
            MORE_SIZES, lambda n: measures.evaluations(design, nodes=n, brokers=1, rate=1.0)
        )

    series = []
    for design in ENGINES:
        series += curve(design, by_size(design), style_of(design), DASHES.get(design, 0))
    return legend_chart(
        "evaluations-subscriptions",
        "Evaluations by one broker; each player says about one thing a second",
        Axis("evolving subscriptions, in powers of ten", count, low=10, log=True),
        Axis("evaluations per second, in powers of ten", count, log=True),
        series,
    )


def draw_crossover(measures: EvolvingMeasures) -> list[Plot]:
    """The figure "crossover"."""
    series = []
    for design in ENGINES:
        found = {}
        for pickups in MORE_PICKUPS:
            with suppress(NotMeasuredError):
                at = load_and_accuracy.per_evolution(measures, pickups)
                found[at] = crossover_run(measures, design, pickups)["evaluations"]
        series += curve(design, found, style_of(design), DASHES.get(design, 0))
    return legend_chart(
        "crossover",
        "Evaluations by one broker of 20 players, EI = TT = 0.1 s",
        Axis("publications per evolution, in powers of ten", number, log=True),
        Axis("evaluations per second, in powers of ten", count, log=True),
        series,
    )


def draw_notifications(measures: EvolvingMeasures) -> list[Plot]:
    """The figure "notifications"."""

    def errors(what: str, *, side_by_side: bool) -> Callable[[str], float]:
        return lambda choice: getattr(
            measures.chosen_errors(choice, side_by_side=side_by_side), what
        )

    wrong = draw_by_design(
        "notifications-errors",
        "Notifications: what was wrong, by how people have their areas followed",
        Axis("share of what should have been heard", share, low=0),
        {
            f"{what}, {who}": errors(what, side_by_side=together)
            for together, who in ((False, "all alike"), (True, "side by side"))
            for what in ("missed", "spurious")
        },
    )
    series = []
    for name, evolve in {**CHOICES, "side by side": SIDE_BY_SIDE}.items():
        with suppress(NotMeasuredError):
            style = style_of(name) if name in DESIGNS else "soft"
            found = [measures.chosen_evaluations(evolve)]
            series.append(Series(name=name, x=[0.0], y=found, style=style, shape="bar"))
    return wrong + legend_chart(
        "notifications-evaluations",
        "Notifications: evaluations by all brokers together",
        Axis("", lambda _: "", low=-0.5, high=0.5),
        Axis("evaluations per second", count, low=0),
        series,
    )


def draw_clocks(measures: EvolvingMeasures) -> list[Plot]:
    """The figure "clocks"."""

    def errors(pair: tuple[str, str], latency: float, skew: float) -> float:
        stamp, moment = pair
        return measures.errors(
            "swept", topology="line", stamp=stamp, moment=moment, latency_ms=latency, skew_ms=skew
        ).all

    def late(pair: tuple[str, str]) -> dict[float, float]:
        return values(MORE_LATENCIES_MS, lambda ms: errors(pair, ms, 0.0))

    def skewed(pair: tuple[str, str]) -> dict[float, float]:
        return values(MORE_SKEWS_MS, lambda ms: errors(pair, CLOCK_LATENCY_MS, ms))

    by_latency: list[Series] = []
    by_skew: list[Series] = []
    for style, (pair, name) in enumerate(CLOCK_NAMES.items()):
        by_latency += curve(name, late(pair), series_style(style))
        by_skew += curve(name, skewed(pair), series_style(style))
    wrong = Axis("missed and spurious, of what should have been heard", share, low=0)
    return [
        *legend_chart(
            "clocks-latency", "Five brokers in a line: errors by the latency of a link",
            Axis("latency of each link", milliseconds, low=0), wrong, by_latency,
        ),
        *legend_chart(
            "clocks-skew", "Links of 50 ms: errors by how wrong brokers' clocks are at most",
            Axis("skew of a broker's clock, at most", milliseconds, low=0), wrong, by_skew,
        ),
    ]  # fmt: skip
