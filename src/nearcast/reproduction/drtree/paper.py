"""Seed 000: "Enhanced DR-tree for low latency filtering in publish/subscribe systems".

One cycle of the paper is one second here: links take 1 s ± 0.1 s, each peer publishes every other
second within its own box, and a box is as large as the paper says (VI.A). Figures 2 to 5 are of
1,024 peers, figure 6 of 10,000 in a world that keeps the density. Three figures are ours.
"""

from collections.abc import Iterator
from itertools import product
from math import sqrt
from typing import Any

from nearcast.pipeline import delivery, levels
from nearcast.pipeline.charts import Axis, Key, Series, chart
from nearcast.pipeline.plots import Plot, style
from nearcast.pipeline.wording import count, number, share
from nearcast.reproduction.drtree import latency, load, noise, scale, structure
from nearcast.reproduction.drtree.measures import HOTSPOTS, STRATEGIES, Seen
from nearcast.reproduction.paper import Claim, Counted, Figure, NotMeasuredError, Paper, Statement
from nearcast.scenario import Scenario

PEERS, MANY = 1024, 10_000
READINGS = "cold", "burning"  # where the readings of the paper are told apart
CHURN = 0.0, 1.0, 4.0, 16.0  # peers exchanged per second
CAPTIONS = {
    "2": "Average total propagation time versus event popularity: cycles until the last interested"
    " subscriber has an event, by how many are interested.",
    "3": "Fan in versus level: messages that a peer receives per cycle; level 0 is the root.",
    "4": "Fan out versus level: messages that a peer sends per cycle; level 0 is the root.",
    "5": "False positive rate versus level: how much of what a peer receives it did not want.",
    "6": "Total propagation time for 10,000 peers, in a world of the same density.",
    "owners": "Ours: each inner node of the tree has a peer of its own (owners=single) instead of a"
    " chain of nodes for one peer. Only then is the root as quiet as a leaf.",
    "placement": "Ours: latencies between places on a map instead of a constant, and inner nodes"
    " owned by the best placed child instead of the largest (the paper's future work).",
    "churn": "Ours: peers are exchanged for new ones, without a goodbye, while others publish.",
}
SHOWS = {
    "2": (5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19),
    "3": (20, 21, 22, 23),
    "4": (24, 25, 26, 27, 28),
    "5": (29, 30, 31, 32, 33),
    "6": (34, 35, 36),
}


def scenarios(figure: str, full: bool) -> Iterator[Scenario]:
    seeds = (1, 2, 3) if full else (1,)
    cycles = 600 if full else 20
    match figure:
        case "2" | "3" | "4" | "5":
            for seed, strategy, hotspots in product(seeds, STRATEGIES, HOTSPOTS):
                yield scenario(strategy, hotspots, cycles=cycles, seed=seed)
        case "6":
            for strategy, hotspots in product(STRATEGIES, HOTSPOTS if full else READINGS):
                yield scenario(strategy, hotspots, nodes=MANY, cycles=60 if full else 4)
                if full:
                    yield scenario(strategy, hotspots, nodes=MANY, cycles=60, size=1024.0)
        case "owners":
            for seed, strategy, hotspots in product(seeds, STRATEGIES, READINGS):
                yield scenario(strategy, hotspots, cycles=cycles, seed=seed, owners="single")
        case "placement":
            for owner, strategy in product(("coverage", "latency"), STRATEGIES):
                yield scenario(
                    strategy, "burning", cycles=cycles, network="embedding", promotes=owner
                )
        case "churn":
            for rate, strategy in product(CHURN, STRATEGIES):
                yield scenario(
                    strategy, "hot", cycles=60, churn_rate=rate, churn_by="crash", latency_ms=50.0,
                    jitter_ms=5.0, check_ms=500.0,
                )  # fmt: skip


def scenario(
    strategy: str, hotspots: str, *, cycles: float, nodes: int = PEERS, seed: int = 1, **more: Any
) -> Scenario:
    settings = {
        "strategy": strategy,
        "hotspots": hotspots,
        "size": 1024.0 * sqrt(nodes / PEERS),  # of the same density, unless told otherwise
        "latency_ms": 1000.0,
        "jitter_ms": 100.0,
        "check_ms": 60_000.0,  # nobody fails here, and the paper counts no upkeep
        "sample_ms": 0.0,
        "payload": 0,
        **more,
    }
    return Scenario(
        protocol="drtree", workload="hotspots", nodes=nodes, seconds=cycles, seed=seed,
        settings=settings,
    )  # fmt: skip


# Figures.

LEGEND = [Key(name, style(place)) for place, name in enumerate(STRATEGIES)]
CYCLES = Axis("cycles", number, low=0)


def draw(counted: Counted) -> list[Figure]:
    seen = Seen(counted)
    plots = {
        "2": [curves(seen, "2", hotspots, PEERS) for hotspots in HOTSPOTS],
        "3": [bars(seen, "3", hotspots, "received", "messages per cycle") for hotspots in HOTSPOTS],
        "4": [bars(seen, "4", hotspots, "sent", "messages per cycle") for hotspots in HOTSPOTS],
        "5": [bars(seen, "5", hotspots, "unwanted", "false positives") for hotspots in HOTSPOTS],
        "6": [curves(seen, "6", hotspots, MANY) for hotspots in HOTSPOTS],
        "owners": [
            bars(seen, "owners", hotspots, what, what, owners="single")
            for what, hotspots in product(("received", "sent", "unwanted"), READINGS)
        ],
        "placement": [placement(seen)],
        "churn": [churn(seen)],
    }
    drawn = {
        number: [plot for plot in found if plot is not None] for number, found in plots.items()
    }
    return [
        Figure(
            f"Figure {name}" if name.isdigit() else name.capitalize(),
            CAPTIONS[name],
            found,
            [f"000.{claim}" for claim in SHOWS.get(name, ())],
        )
        for name, found in drawn.items()
        if found
    ]


def curves(seen: Seen, figure: str, hotspots: str, nodes: int) -> Plot | None:
    series = []
    for place, strategy in enumerate(STRATEGIES):
        try:
            found = seen.curve(strategy, hotspots, nodes=nodes)
        except NotMeasuredError:
            continue
        series.append(
            Series(
                name=strategy, x=list(found), y=[m for _, m in found.values()], style=style(place)
            )
        )
    if not series:
        return None
    title = f"{hotspots.capitalize()}: time until all have it, {nodes:,} peers"
    interested = Axis("interested subscribers", count, low=1)
    return chart(f"figure-{figure}-{hotspots}", title, interested, CYCLES, series, LEGEND)


def bars(
    seen: Seen, figure: str, hotspots: str, what: str, label: str, owners: str = "chain"
) -> Plot | None:
    series = []
    for place, strategy in enumerate(STRATEGIES):
        try:
            found = [getattr(one, what) for one in seen.levels(strategy, hotspots, owners=owners)]
        except NotMeasuredError:
            continue
        levels_ = list(map(float, range(len(found))))
        series.append(Series(name=strategy, x=levels_, y=found, style=style(place), shape="bar"))
    if not series:
        return None
    deepest = max(len(one.x) for one in series)
    level = Axis("level (0: root)", count, low=-0.5, high=deepest - 0.5)
    height = Axis(label, share if what == "unwanted" else number, low=0)
    title = f"{hotspots.capitalize()}: {what} by level"
    return chart(f"figure-{figure}-{what}-{hotspots}", title, level, height, series, LEGEND)


def placement(seen: Seen) -> Plot | None:
    """Milliseconds until the last interested has it, by who owns inner nodes."""
    try:
        series = [
            Series(
                name=promotes,
                x=list(map(float, range(len(STRATEGIES)))),
                y=[
                    1000 * seen.mean(s, "burning", network="embedding", promotes=promotes)
                    for s in STRATEGIES
                ],
                style=style(place),
                shape="bar",
            )
            for place, promotes in enumerate(("coverage", "latency"))
        ]
    except NotMeasuredError:
        return None
    which = Axis(
        "strategy", lambda at: STRATEGIES[round(at)] if at == round(at) else "", low=-0.5, high=3.5
    )
    legend = [Key(f"owner by {one.name}", one.style) for one in series]
    title = "Burning, on a map: time until all have it"
    return chart("placement", title, which, Axis("ms", number, low=0), series, legend)


def churn(seen: Seen) -> Plot | None:
    try:
        series = [
            Series(
                name=strategy,
                x=list(CHURN),
                y=[
                    seen.recall(strategy, "hot", churn_rate=rate, churn_by="crash")
                    for rate in CHURN
                ],
                style=style(place),
            )
            for place, strategy in enumerate(STRATEGIES)
        ]
    except NotMeasuredError:
        return None
    rate = Axis("peers exchanged per second, of 1,024", number, low=0)
    title = "Hot: what is heard while peers crash and others come"
    return chart("churn", title, rate, Axis("recall", share), series, LEGEND)


OTHERS = Statement(
    38, "Mercury routes in O(log² n / k); VBI differs", "background", None, soft=True,
    note="A statement about other systems, which are not built here.",
)  # fmt: skip
STATEMENTS = (
    *structure.CLAIMS,
    *latency.CLAIMS,
    *load.CLAIMS,
    *noise.CLAIMS,
    *scale.CLAIMS,
    OTHERS,
)


def claims(counted: Counted) -> list[Claim]:
    seen = Seen(counted)
    return [statement.judged("drtree", "000", seen) for statement in STATEMENTS]


PAPER = Paper(
    "drtree",
    "Enhanced DR-tree for low latency filtering in publish/subscribe systems",
    tuple(CAPTIONS),
    scenarios,
    (
        delivery.delivery_totals,
        delivery.popularity,
        delivery.false_positives_by_level,
        levels.traffic_by_level,
        levels.fanout_by_level,
        levels.returned,
    ),
    claims,
    draw,
)
