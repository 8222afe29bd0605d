"""Figures 4 to 7 of [Lehn]: the round model and the message protocol side by side."""

from collections.abc import Callable, Sequence
from contextlib import suppress

from nearcast.pipeline.report.charts import Axis, Series
from nearcast.pipeline.report.formatting import count, number, share
from nearcast.pipeline.report.plots import Plot, series_style
from nearcast_papers.charts import legend_chart
from nearcast_papers.paper import NotMeasuredError
from nearcast_papers.relays.measures import (
    RelayMeasures,
    clustered_runs,
    still_runs,
    typical_runs,
    weighted_runs,
)
from nearcast_papers.relays.model import KEPT_SEED, PERCENTS, ROUNDS, RoundState
from nearcast_papers.relays.scenarios import CLUSTERINGS, EPSILONS, SIZES, WEIGHTS

SHOWN = 0, 3, 6, 9, 12, ROUNDS  # rounds of figure 4
SECONDS = 0, 2, 4, 6, 8  # of the message protocol: two rounds each
WIDEST = 2.5  # utilisation to which figure 4 reaches
MESSAGES = 2  # dash of what real messages did


def along(
    name: str, xs: Sequence[float], of: Callable[[float], float], place: int, dash: int = 0
) -> Series:
    """What could be measured."""
    points = []
    for x in xs:
        with suppress(NotMeasuredError):
            points.append((float(x), of(x)))
    return Series(
        name=name,
        x=[x for x, _ in points],
        y=[y for _, y in points],
        style=series_style(place),
        dash=dash,
    )


# Figure 4.


def draw_utilisation(measures: RelayMeasures) -> list[Plot]:
    return [*_by_round(measures), *_by_second(measures), *_overloaded(measures)]


def _cdf(name: str, title: str, series: Sequence[Series]) -> list[Plot]:
    return legend_chart(
        name, title, Axis("uplink utilisation", share, low=0, high=WIDEST),
        Axis("share of nodes with no more", share, low=0, high=1), series,
    )  # fmt: skip


def _by_round(measures: RelayMeasures) -> list[Plot]:
    (one,) = measures.rounds("4", seed=KEPT_SEED)
    series = []
    for place, number_of in enumerate(SHOWN):
        used = one.states[number_of].distribution
        within = [(u, float(p)) for u, p in zip(used, PERCENTS, strict=True) if u <= WIDEST]
        name = "at first" if number_of == 0 else f"after {number_of}"
        series.append(
            Series(
                name=name, x=[u for u, _ in within], y=[p for _, p in within],
                style=series_style(place), shape="step",
            )
        )  # fmt: skip
    return _cdf("figure-4-rounds", "Round model: 150 nodes, by iteration", series)


def _by_second(measures: RelayMeasures) -> list[Plot]:
    series = []
    with suppress(NotMeasuredError):
        found = measures.uplinks_by_second(**typical_runs())
        last = max(found)
        for place, second in enumerate((*SECONDS, last)):
            used = [u for u in found[second].used if u <= WIDEST]
            many = len(found[second].used)
            series.append(
                Series(
                    name=f"second {second + 1}", x=used,
                    y=[(k + 1) / many for k in range(len(used))], style=series_style(place),
                    shape="step",
                )
            )  # fmt: skip
    return _cdf("figure-4-messages", "Message protocol: 150 peers, two steps a second", series)


def _overloaded(measures: RelayMeasures) -> list[Plot]:
    model = along(
        "round model", range(ROUNDS + 1), lambda r: measures.after("4", int(r), "overloaded"), 0
    )
    series = [model]
    with suppress(NotMeasuredError):
        for place, relays in ((1, "on"), (2, "off")):
            found = measures.uplinks_by_second(**typical_runs(relays))
            series.append(
                Series(
                    name="messages" if relays == "on" else "messages, no relays",
                    x=[2.0 * second + 1 for second in found],
                    y=[one.overloaded for one in found.values()], style=series_style(place),
                    dash=MESSAGES,
                )
            )  # fmt: skip
    return legend_chart(
        "figure-4-overloaded", "Nodes that are overloaded",
        Axis("steps of each node (half a second each with messages)", count, low=0),
        Axis("share of nodes", share, low=0), series,
    )  # fmt: skip


# Figure 5.


def draw_sizes(measures: RelayMeasures) -> list[Plot]:
    """Figure 5."""
    nodes = Axis("nodes", count, low=0, high=SIZES[-1] + 10)
    series = []
    for dash, (what, label) in enumerate((("mean", "mean"), ("p90", "90th percentile"))):
        series += [
            along(f"{label} at first", SIZES, _of(measures.began, "5", what, "nodes"), 0, dash),
            along(f"{label} optimised", SIZES, _of(measures.ended, "5", what, "nodes"), 1, dash),
        ]
    series += [
        along("messages: mean without", SIZES,
              lambda n: measures.uplinks(**still_runs(int(n), "off")).mean, 2, MESSAGES),
        along("messages: mean with relays", SIZES,
              lambda n: measures.uplinks(**still_runs(int(n))).mean, 3, MESSAGES),
    ]  # fmt: skip
    ways = [
        along("path length", SIZES, _of(measures.ended, "5", "path", "nodes"), 0),
        along("latency stretch", SIZES, _of(measures.ended, "5", "stretch", "nodes"), 1),
        along("messages: path length", SIZES,
              lambda n: measures.delivered(**still_runs(int(n))).path, 2, MESSAGES),
        along("messages: stretch", SIZES, lambda n: measures.stretch(**still_runs(int(n))), 3,
              MESSAGES),
    ]  # fmt: skip
    return [
        *legend_chart(
            "figure-5-utilisation",
            "Uplink utilisation by the number of nodes",
            nodes,
            Axis("utilisation", share, low=0),
            series,
        ),
        *legend_chart(
            "figure-5-paths", "What it costs", nodes, Axis("times", number, low=0.8), ways
        ),
    ]


def _of(at: Callable[..., float], figure: str, what: str, by: str) -> Callable[[float], float]:
    return lambda value: at(figure, what, **{by: value})


# Figure 6.


def draw_weights(measures: RelayMeasures) -> list[Plot]:
    """Figure 6."""
    x = Axis("x: 0 bandwidth is free, 1 latency is free", number, low=0, high=1)
    used = [
        along("mean", WEIGHTS, _of(measures.ended, "6", "mean", "weight"), 0),
        along("90th percentile", WEIGHTS, _of(measures.ended, "6", "p90", "weight"), 1),
        along(
            "messages: mean",
            WEIGHTS,
            lambda w: measures.uplinks(**weighted_runs(w)).mean,
            2,
            MESSAGES,
        ),
    ]
    ways = [
        along("path length", WEIGHTS, _of(measures.ended, "6", "path", "weight"), 0),
        along("latency stretch", WEIGHTS, _of(measures.ended, "6", "stretch", "weight"), 1),
        along("messages: path length", WEIGHTS,
              lambda w: measures.delivered(**weighted_runs(w)).path, 2, MESSAGES),
    ]  # fmt: skip
    return [
        *legend_chart("figure-6-utilisation", "Uplink utilisation by weights", x,
               Axis("utilisation", share, low=0), used),
        *legend_chart("figure-6-paths", "Path length and latency by weights", x,
               Axis("times", number, low=0.9), ways),
    ]  # fmt: skip


# Figure 7.


def draw_clusterings(measures: RelayMeasures) -> list[Plot]:
    """Figure 7."""
    x = Axis("clustering coefficient", number, low=0, high=1)
    used = [
        along("mean at first", CLUSTERINGS, _of(measures.began, "7", "mean", "clustering"), 0),
        along("mean optimised", CLUSTERINGS, _of(measures.ended, "7", "mean", "clustering"), 1),
        along("90th percentile at first", CLUSTERINGS,
              _of(measures.began, "7", "p90", "clustering"), 0, 1),
        along("90th percentile optimised", CLUSTERINGS,
              _of(measures.ended, "7", "p90", "clustering"), 1, 1),
        along("messages: mean without", CLUSTERINGS,
              lambda c: measures.uplinks(**clustered_runs(c, "off")).mean, 2, MESSAGES),
        along("messages: mean with relays", CLUSTERINGS,
              lambda c: measures.uplinks(**clustered_runs(c, "on")).mean, 3, MESSAGES),
    ]  # fmt: skip
    ways = [
        along("path length", CLUSTERINGS, _of(measures.ended, "7", "path", "clustering"), 0),
        along("latency stretch", CLUSTERINGS, _of(measures.ended, "7", "stretch", "clustering"), 1),
        along(f"latency stretch after {ROUNDS} rounds", CLUSTERINGS,
              lambda c: measures.after("7", ROUNDS, "stretch", clustering=c), 1, 1),
        along("messages: path length", CLUSTERINGS,
              lambda c: measures.delivered(**clustered_runs(c, "on")).path, 2, MESSAGES),
    ]  # fmt: skip
    return [
        *legend_chart("figure-7-utilisation", "Uplink utilisation by clustering", x,
               Axis("utilisation", share, low=0), used),
        *legend_chart("figure-7-paths", "Path length and latency by clustering", x,
               Axis("times", number, low=1), ways),
    ]  # fmt: skip


def draw_threshold(measures: RelayMeasures) -> list[Plot]:
    """The figure "threshold"."""
    names = [f"{epsilon:g}" for epsilon in EPSILONS]
    at = [float(place) for place in range(len(names))]

    def label(place: float) -> str:
        return names[round(place)] if place == round(place) and 0 <= place < len(names) else ""

    counts: dict[str, Callable[[RoundState], int]] = {
        "REDIR": lambda moment: moment.redirected,
        "SHORT": lambda moment: moment.shortened,
    }
    done = [
        Series(
            name=name, x=at,
            y=[measures.operations("threshold", of, epsilon=epsilon) for epsilon in EPSILONS],
            style=series_style(place), shape="bar",
        )
        for place, (name, of) in enumerate(counts.items())
    ]  # fmt: skip
    ends = [
        Series(
            name=name, x=at,
            y=[measures.ended("threshold", what, epsilon=epsilon) for epsilon in EPSILONS],
            style=series_style(place),
        )
        for place, (name, what) in enumerate((("mean", "mean"), ("90th percentile", "p90")))
    ]  # fmt: skip
    places = Axis("threshold ε", label, low=-0.5, high=len(names) - 0.5)
    return [
        *legend_chart("threshold-operations", "Operations in 40 rounds", places,
               Axis("operations", count, low=0), done),
        *legend_chart("threshold-utilisation", "Uplink utilisation in the end", places,
               Axis("utilisation", share, low=0), ends),
    ]  # fmt: skip
