"""Figures of the causes, of churn, and of the outlook of [Lucas2011]."""

from collections.abc import Callable
from contextlib import suppress

from nearcast.pipeline.report.charts import Axis, Series
from nearcast.pipeline.report.formatting import count, number, rate, share
from nearcast.pipeline.report.plots import Plot, series_style
from nearcast.protocols.bubblestorm.messages import Reply, SubscriptionBubble
from nearcast_papers.bubblestorm import encryption_cost, single_events
from nearcast_papers.bubblestorm.figures import draw_bars, line, smooth
from nearcast_papers.bubblestorm.measures import (
    PUBLISHED,
    BubbleStormMeasures,
    explanation_runs,
    scale_runs,
)
from nearcast_papers.bubblestorm.mobility import CHURNED
from nearcast_papers.bubblestorm.scenarios import (
    CRASHES,
    LAMBDAS,
    LINGER_S,
    RADIUS,
    RING_RATES,
    RINGS,
    SCALES,
    WIDER_AREA,
)
from nearcast_papers.charts import legend_chart
from nearcast_papers.paper import NotMeasuredError


def draw_timeouts(measures: BubbleStormMeasures) -> list[Plot]:
    """The figure "timeouts"."""
    found = {}
    for linger in LINGER_S:
        with suppress(NotMeasuredError):
            found[f"{linger:g} s"] = measures.confusion(**explanation_runs(linger_s=linger))
    return draw_bars(
        "timeouts", "By how long a connection outside the area is kept",
        Axis("", share, low=0, high=1),
        {
            "accuracy": [one.accuracy for one in found.values()],
            "precision": [one.precision for one in found.values()],
            "recall": [one.recall for one in found.values()],
        },
        list(found),
    )  # fmt: skip


def draw_cache(measures: BubbleStormMeasures) -> list[Plot]:
    """The figure "cache"."""
    recalls: dict[str, list[float]] = {}
    bytes_: dict[str, list[float]] = {}
    names = []
    for certainty in LAMBDAS:
        row = {}
        with suppress(NotMeasuredError):
            for held, name in ((5.0, "with cache"), (0.0, "without")):
                chosen = explanation_runs(cache_s=held, **{"lambda": certainty})
                row[name] = (
                    measures.confusion(**chosen).recall,
                    measures.rate((SubscriptionBubble.kind, Reply.kind), **chosen),
                )
            for name, (recall, sent) in row.items():
                recalls.setdefault(name, []).append(recall)
                bytes_.setdefault(name, []).append(sent)
            names.append(f"λ = {certainty:g}")
    return [
        *draw_bars(
            "cache-recall", "Neighbours known, of those that should be",
            Axis("recall", share, low=0, high=1), recalls, names,
        ),
        *draw_bars(
            "cache-bytes", "Subscriptions and replies, sent per peer",
            Axis("", rate, low=0), bytes_, names,
        ),
    ]  # fmt: skip


def draw_scale(measures: BubbleStormMeasures) -> list[Plot]:
    """The figure "scale"."""
    parts: dict[str, Callable[[int], float]] = {
        "all": lambda n: measures.all_rate(**scale_runs(n)),
        "all but updates": lambda n: measures.rate(**scale_runs(n)),
        "bubbles": lambda n: measures.rate((SubscriptionBubble.kind,), **scale_runs(n)),
    }
    series = []
    for place, (name, measure) in enumerate(parts.items()):
        found = {}
        for peers in SCALES:
            with suppress(NotMeasuredError):
                found[peers] = peers * measure(peers)
        if found:
            series.append(line(name, found, series_style(place)))
    return legend_chart(
        "scale", "Sent by all peers together, density kept",
        Axis("peers, in powers of ten", count, low=10, log=True),
        Axis("per second, in powers of ten", rate, log=True), series,
    )  # fmt: skip


def draw_churn(measures: BubbleStormMeasures) -> list[Plot]:
    """The figure "churn"."""
    many: list[Series] = []
    for place, crashed in enumerate(CRASHES):
        with suppress(NotMeasuredError):
            curve = {second: one.recall for second, one in measures.fallen(crashed).items()}
            many.append(line(f"{crashed:.0%} crash at 30 s", smooth(curve), series_style(place)))
    if many:
        gone = smooth(single_events.run_mass_leave(measures.seeds[0]).recall)
        many.append(
            line(
                f"{single_events.LEAVING_SHARE:.0%} leave at 30 s", gone, series_style(len(CRASHES))
            )
        )
    steady: list[Series] = []
    for place, (name, (protocol, dead_s)) in enumerate(CHURNED.items()):
        with suppress(NotMeasuredError):
            sights = measures.churned(protocol, dead_s)
            for dash, what in enumerate(("recall", "precision")):
                curve = {second: getattr(one, what) for second, one in sights.items()}
                steady.append(line(f"{name}: {what}", smooth(curve), series_style(place), dash))
    seconds, high = Axis("seconds", count, low=0), Axis("", share, low=0, high=1)
    return [
        *legend_chart("churn-at-once", "Recall when many go at once", seconds, high, many),
        *legend_chart("churn-steady", "One peer a second crashes and is replaced, from 30 s on",
               seconds, high, steady),
    ]  # fmt: skip


def draw_reckoning(measures: BubbleStormMeasures) -> list[Plot]:
    """The figure "reckoning"."""
    try:
        found = measures.reckoned()
    except NotMeasuredError:
        return []
    return draw_bars(
        "reckoning", "How far from the truth other ships are believed to be",
        Axis("units", number, low=0),
        {
            "last known position": [found["plain_mean"], found["plain_p90"]],
            "with dead reckoning": [found["reckoned_mean"], found["reckoned_p90"]],
        },
        ["mean", "90 % are nearer than"],
    )  # fmt: skip


def draw_rings(measures: BubbleStormMeasures) -> list[Plot]:
    """The figure "rings"."""
    found, updates, others = {}, [], []
    for name, rates in (("all updates", ""), ("in rings", RINGS)):
        with suppress(NotMeasuredError):
            found[name] = measures.rings(rates)
            chosen = {"record": "sums", "rates": rates}
            updates.append(measures.rate(PUBLISHED, **chosen))
            others.append(measures.rate(**chosen))
    order = [ring for ring in RING_RATES if all(ring in rings for rings in found.values())]
    if not order:
        return []
    errors = {
        f"{name}, {how}": [rings[ring][column] for ring in order]
        for name, rings in found.items()
        for how, column in (("last known", "plain_mean"), ("dead reckoning", "reckoned_mean"))
    }
    plots = [
        *draw_bars(
            "rings-difference", "How far from the truth, if far ships get fewer updates",
            Axis("units", number, low=0), errors,
            [f"{ring}: {RING_RATES[ring]:g} a second" for ring in order],
        ),
        *draw_bars(
            "rings-bytes", "Sent per peer", Axis("", rate, low=0),
            {"updates": updates, "all else": others}, list(found),
        ),
    ]  # fmt: skip
    with suppress(NotMeasuredError):
        radii = RADIUS, WIDER_AREA * RADIUS
        plots += draw_bars(
            "rings-early", f"Known, of all within {RADIUS:g} units",
            Axis("recall", share, low=0, high=1),
            {"mobility model, λ = 1": [measures.inner_recall(radius) for radius in radii]},
            [f"areas of {radius:g}" for radius in radii],
        )  # fmt: skip
    return plots


def draw_cost(_: BubbleStormMeasures) -> list[Plot]:
    """The figure "secrecy"."""
    found = encryption_cost.costs()
    names = list(found)
    return [
        *draw_bars(
            "secrecy-bytes", f"An update of {len(encryption_cost.update())} bytes, on the wire",
            Axis("bytes", number, low=0), {"bytes": [one.bytes for one in found.values()]}, names,
        ),
        *draw_bars(
            "secrecy-cpu", "Its CPU time, both ends together",
            Axis("µs", number, low=0), {"CPU": [one.cpu_us for one in found.values()]}, names,
        ),
        *draw_bars(
            "secrecy-handshake", "A handshake, on the wire",
            Axis("bytes", number, low=0),
            {"bytes": [one.handshake_bytes for one in found.values()]}, names,
        ),
    ]  # fmt: skip


DRAWINGS: dict[str, Callable[[BubbleStormMeasures], list[Plot]]] = {
    "timeouts": draw_timeouts,
    "cache": draw_cache,
    "scale": draw_scale,
    "churn": draw_churn,
    "reckoning": draw_reckoning,
    "rings": draw_rings,
    "secrecy": draw_cost,
}
