"""Figures for open questions of [Lehn]: a game, moving and crashing peers, uneven sources."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from nearcast.pipeline.report.charts import Axis, Series
from nearcast.pipeline.report.formatting import count, number, seconds, share
from nearcast.pipeline.report.plots import Plot, series_style
from nearcast_papers.charts import legend_chart
from nearcast_papers.paper import NotMeasuredError
from nearcast_papers.relays.figures import along
from nearcast_papers.relays.measures import RelayMeasures, churn_runs, game_runs, moving_runs
from nearcast_papers.relays.scenarios import FACTORS, REPLACED, WALKS

Runs = Callable[[str], dict[str, Any]]
NAMES = {"off": "all sent directly", "on": "with relays"}


def draw_over_time(measures: RelayMeasures, name: str, title: str, runs: Runs) -> list[Plot]:
    """Peers that are overloaded and updates that are missed, second by second."""
    loads, losses = [], []
    for place, relays in enumerate(NAMES):
        with suppress(NotMeasuredError):
            used, delivered = measures.uplinks_by_second(**runs(relays)), measures.heard_by_second(
                **runs(relays)
            )  # fmt: skip
            loads.append(
                Series(
                    name=NAMES[relays], x=[float(s) for s in used],
                    y=[one.overloaded for one in used.values()], style=series_style(place),
                )
            )  # fmt: skip
            losses.append(
                Series(
                    name=NAMES[relays], x=[float(s) for s in delivered],
                    y=[missed / max(1, all_) for missed, all_ in delivered.values()],
                    style=series_style(place),
                )
            )  # fmt: skip
    time = Axis("time", seconds, low=0)
    return [
        *legend_chart(f"{name}-overloaded", f"{title}: peers that are overloaded", time,
               Axis("share of peers", share, low=0), loads),
        *legend_chart(f"{name}-missed", f"{title}: updates that are missed", time,
               Axis("share of what should be heard", share, low=0), losses),
    ]  # fmt: skip


def draw_game(measures: RelayMeasures) -> list[Plot]:
    return draw_over_time(measures, "game", "Planet π4", game_runs)


def draw_moving(measures: RelayMeasures) -> list[Plot]:
    """The figure "moving"."""
    model = [
        along("all sent directly", WALKS, lambda w: measures.late("moving", "direct", walk=w), 0),
        along("with relays", WALKS, lambda w: measures.late("moving", "overloaded", walk=w), 1),
    ]
    return [
        *legend_chart("moving-rounds", "Round model: nodes that are overloaded",
               Axis("units that each walks between two rounds; it sees 245 far", number, low=0),
               Axis("share of nodes, last third of 40 rounds", share, low=0), model),
        *draw_over_time(measures, "moving", "All walk, 10 units a second", moving_runs),
    ]  # fmt: skip


def draw_churn(measures: RelayMeasures) -> list[Plot]:
    """The figure "churn"."""
    model = [
        along(
            "all sent directly", REPLACED, lambda r: measures.late("churn", "direct", replaced=r), 0
        ),
        along(
            "with relays", REPLACED, lambda r: measures.late("churn", "overloaded", replaced=r), 1
        ),
    ]
    return [
        *legend_chart("churn-rounds", "Round model: nodes that are overloaded",
               Axis("nodes that are replaced after each round", share, low=0),
               Axis("share of nodes, last third of 40 rounds", share, low=0), model),
        *draw_over_time(measures, "churn", "One crashes in a second", churn_runs),
    ]  # fmt: skip


def draw_rates(measures: RelayMeasures) -> list[Plot]:
    series = [
        along("at first", FACTORS, lambda f: measures.began("rates", "overloaded", factor=f), 0),
        along("optimised", FACTORS, lambda f: measures.ended("rates", "overloaded", factor=f), 1),
    ]
    return legend_chart(
        "rates", "Round model: nodes that are overloaded",
        Axis("how many times more some say than others", count, low=1, log=True),
        Axis("share of nodes", share, low=0), series,
    )  # fmt: skip


def draw_violations(measures: RelayMeasures) -> list[Plot]:
    """The figure "violations"."""
    shares = sorted({one.scenario.violations for one in measures.rounds("violations")})
    series = [
        along(
            "latency stretch",
            shares,
            lambda s: measures.ended("violations", "stretch", violations=s),
            0,
        ),
        along(
            "path length", shares, lambda s: measures.ended("violations", "path", violations=s), 1
        ),
    ]
    return legend_chart(
        "violations", "Round model: detours where direct ways are slow",
        Axis("pairs whose direct way takes up to three times as long", share, low=0),
        Axis("times", number, low=1), series,
    )  # fmt: skip
