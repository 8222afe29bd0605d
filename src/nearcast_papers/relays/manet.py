"""Ours, after the next steps of [Lehn] VI: overlays in a mobile ad-hoc network, on one channel."""

from collections.abc import Callable
from functools import partial
from typing import Any

from nearcast.pipeline.report.charts import Axis, Series
from nearcast.pipeline.report.formatting import number, seconds, share
from nearcast.pipeline.report.plots import Plot
from nearcast_papers.charts import legend_chart
from nearcast_papers.paper import PaperClaim
from nearcast_papers.relays.figures import along
from nearcast_papers.relays.measures import RelayMeasures
from nearcast_papers.relays.scenarios import MANET_OVERLAYS, MANET_RATES


def radio_runs(overlay: str, rate: float) -> dict[str, Any]:
    protocol, settings = MANET_OVERLAYS[overlay]
    return {"network": "radio", "protocol": protocol, "rate": rate, **settings}


def missed(measures: RelayMeasures, overlay: str, rate: float) -> float:
    return measures.delivered(0.0, **radio_runs(overlay, rate)).missed


def latency(measures: RelayMeasures, overlay: str, rate: float) -> float:
    return measures.delivered(0.0, **radio_runs(overlay, rate)).latency


def draw_manet(measures: RelayMeasures) -> list[Plot]:
    rates = Axis("updates of each in a second", number, low=0)

    def lines(of: Callable[[RelayMeasures, str, float], float]) -> list[Series]:
        return [
            along(overlay, MANET_RATES, partial(of, measures, overlay), place)
            for place, overlay in enumerate(MANET_OVERLAYS)
        ]

    return [
        *legend_chart("manet-missed", "On one radio channel: updates that are missed", rates,
               Axis("share of what should be heard", share, low=0), lines(missed)),
        *legend_chart("manet-latency", "On one radio channel: mean latency", rates,
               Axis("latency of what arrives", seconds, low=0), lines(latency)),
    ]  # fmt: skip


def check_air(measures: RelayMeasures) -> tuple[str, bool]:
    """Claim 32: Ours: peers miss less than clients of a server where all share the air."""
    parts = []
    for rate in MANET_RATES:
        found = (
            f"{missed(measures, o, rate):.1%} in {latency(measures, o, rate) * 1000:.0f} ms {o}"
            for o in MANET_OVERLAYS
        )
        parts.append(f"{rate:g} a second: {', '.join(found)}")
    busiest = MANET_RATES[-1]
    server, direct, relayed = (
        missed(measures, o, busiest) for o in ("client-server", "direct", "relays")
    )
    return "; ".join(parts), max(direct, relayed) < server


CLAIMS = (
    PaperClaim(
        32, "Ours: where all share the air, peers miss fewer updates than clients of a server do",
        "at the highest rate, with relays and without", check_air, soft=True,
        note="Shortest paths over radios of 250 units; each hop takes air time of all around it.",
    ),
)  # fmt: skip
