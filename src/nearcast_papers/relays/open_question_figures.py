"""Figures of what the paper leaves open: a game, moving peers, crashing peers, uneven sources."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from nearcast.pipeline.report.charts import Axis, Series
from nearcast.pipeline.report.formatting import count, number, seconds, share
from nearcast.pipeline.report.plots import Plot, style
from nearcast_papers.paper import NotMeasuredError
from nearcast_papers.relays.figures import along, drawn
from nearcast_papers.relays.measures import Seen, churned, game, moving
from nearcast_papers.relays.scenarios import FACTORS, REPLACED, WALKS

Runs = Callable[[str], dict[str, Any]]
NAMES = {"off": "all sent directly", "on": "with relays"}


def over_time(seen: Seen, name: str, title: str, runs: Runs) -> list[Plot]:
    """Peers that are overloaded and updates that are missed, second by second."""
    loads, losses = [], []
    for place, relays in enumerate(NAMES):
        with suppress(NotMeasuredError):
            used, heard = seen.uplinks_by_second(**runs(relays)), seen.heard_by_second(
                **runs(relays)
            )  # fmt: skip
            loads.append(
                Series(
                    name=NAMES[relays], x=[float(s) for s in used],
                    y=[one.overloaded for one in used.values()], style=style(place),
                )
            )  # fmt: skip
            losses.append(
                Series(
                    name=NAMES[relays], x=[float(s) for s in heard],
                    y=[missed / max(1, all_) for missed, all_ in heard.values()],
                    style=style(place),
                )
            )  # fmt: skip
    time = Axis("time", seconds, low=0)
    return [
        *drawn(f"{name}-overloaded", f"{title}: peers that are overloaded", time,
               Axis("share of peers", share, low=0), loads),
        *drawn(f"{name}-missed", f"{title}: updates that are missed", time,
               Axis("share of what should be heard", share, low=0), losses),
    ]  # fmt: skip


def played(seen: Seen) -> list[Plot]:
    return over_time(seen, "game", "Planet π4", game)


def walked(seen: Seen) -> list[Plot]:
    model = [
        along("all sent directly", WALKS, lambda w: seen.late("moving", "direct", walk=w), 0),
        along("with relays", WALKS, lambda w: seen.late("moving", "overloaded", walk=w), 1),
    ]
    return [
        *drawn("moving-rounds", "Round model: nodes that are overloaded",
               Axis("units that each walks between two rounds; it sees 245 far", number, low=0),
               Axis("share of nodes, last third of 40 rounds", share, low=0), model),
        *over_time(seen, "moving", "All walk, 10 units a second", moving),
    ]  # fmt: skip


def died(seen: Seen) -> list[Plot]:
    model = [
        along("all sent directly", REPLACED, lambda r: seen.late("churn", "direct", replaced=r), 0),
        along("with relays", REPLACED, lambda r: seen.late("churn", "overloaded", replaced=r), 1),
    ]
    return [
        *drawn("churn-rounds", "Round model: nodes that are overloaded",
               Axis("nodes that are replaced after each round", share, low=0),
               Axis("share of nodes, last third of 40 rounds", share, low=0), model),
        *over_time(seen, "churn", "One crashes in a second", churned),
    ]  # fmt: skip


def varied(seen: Seen) -> list[Plot]:
    series = [
        along("at first", FACTORS, lambda f: seen.began("rates", "overloaded", factor=f), 0),
        along("optimised", FACTORS, lambda f: seen.ended("rates", "overloaded", factor=f), 1),
    ]
    return drawn(
        "rates", "Round model: nodes that are overloaded",
        Axis("how many times more some say than others", count, low=1, log=True),
        Axis("share of nodes", share, low=0), series,
    )  # fmt: skip


def slowed(seen: Seen) -> list[Plot]:
    shares = sorted({one.play.violations for one in seen.rounds("violations")})
    series = [
        along("latency stretch", shares,
              lambda s: seen.ended("violations", "stretch", violations=s), 0),
        along("path length", shares, lambda s: seen.ended("violations", "path", violations=s), 1),
    ]  # fmt: skip
    return drawn(
        "violations", "Round model: detours where direct ways are slow",
        Axis("pairs whose direct way takes up to three times as long", share, low=0),
        Axis("times", number, low=1), series,
    )  # fmt: skip
