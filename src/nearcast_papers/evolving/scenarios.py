"""The runs for [Evolving]: the same movement with every design, and one setting varied at a time.

Designs are those of section 4 (PES, LEES, CLEES), our own engine, and those that the demonstration
compares with (section 5): repeated re-subscription, a topic per tile, a topic per object; and
parametric subscriptions. Notifications have the choices of subscribers instead, alone and side by
side in one network. There are no heartbeats, because nothing fails here.
"""

from collections.abc import Iterator
from itertools import product
from math import sqrt
from typing import Any

from nearcast.scenario import Scenario, Setting

ENGINES = "periodic", "lazy", "cached", "swept"  # PES, LEES, CLEES and ours
STATIC = "resubscribe", "tile", "parametric", "object"  # brokers do not follow by themselves
DESIGNS = *STATIC, *ENGINES
STALE = "resubscribe", "periodic", "cached"  # as old as an interval
PLAYERS, SIDE = 50, 137.0
SECONDS = 20.0  # of a run; `evaluations` has half of them
SEEDS = 1, 2, 3, 4, 5  # of the full form; the quick form has the first
TRADERS = 30  # each with two interests
TILE = 20.0  # as an area is high; and how far beyond its area a player looks for others
INTERVAL_MS = 500.0
INTERVALS_MS = 250.0, INTERVAL_MS, 1000.0, 2000.0  # of re-subscription, EI and TT
SAVING_MS = 250.0, 300.0, INTERVAL_MS, 1000.0, 2000.0  # a move has about 30 of the second
PAUSES = 0.0, 2.0, 60.0  # seconds between two moves, on average
SIZES, MORE_SIZES = (25, 100, 400), (25, 50, 100, 200, 400, 800)
# Per player and second: what alone is said at the crossover.
PICKUPS, MORE_PICKUPS = (0.0, 0.45, 5.0), (0.0, 0.15, 0.45, 1.5, 5.0)
FEW, SHORT_MS = 20, 100.0  # players there, and their EI and TT
LATENCIES_MS, MORE_LATENCIES_MS = (0.0, 50.0, 150.0), (0.0, 20.0, 50.0, 100.0, 150.0, 200.0)
SKEWS_MS, MORE_SKEWS_MS = (0.0, 500.0), (0.0, 50.0, 100.0, 200.0, 350.0, 500.0)
# Whose clock says when an interest was submitted, and when a publication is matched.
CLOCKS = (("travels", "publication"), ("arrival", "publication"), ("arrival", "arrival"))
CLOCK_LATENCY_MS = 50.0  # where clocks are skewed
# How people on their way have brokers follow their areas: all alike, or each its own way.
CHOICES = {
    "periodic": "periodic:0.5", "lazy": "lazy", "cached": "cached:0.2", "swept": "swept",
}  # fmt: skip
SIDE_BY_SIDE = ",".join(CHOICES.values())
PEOPLE, OFFERS = 100, 5.0  # people and shops, and offers of a shop in a second
MORE_SEEDS = tuple(range(1, 11))
SAMPLED_ONCE = 1e9  # ms: positions are recorded at the beginning, and never again


def settings_of(design: str) -> dict[str, Setting]:
    if design in ENGINES:
        return {"interest": "area", "evolving": design}
    return {"interest": "area" if design == "resubscribe" else design, "evolving": "resubscribe"}


def scenario(
    design: str,
    workload: str = "mammoth",
    *,
    nodes: int = PLAYERS,
    seconds: float = SECONDS,
    seed: int = 1,
    **more: Any,
) -> Scenario:
    """A run of a design with the usual set-up, and some settings changed."""
    settings: dict[str, Setting] = {
        **settings_of(design),
        "interval_ms": INTERVAL_MS,
        "threshold_ms": more.get("interval_ms", INTERVAL_MS),  # TT is as long as EI
        "heartbeat_ms": 0.0,
        "tile": TILE,
        "sample_ms": SAMPLED_ONCE,
        **more,
    }
    if workload == "mammoth":
        settings.setdefault("size", SIDE * sqrt(nodes / PLAYERS))  # of the same density
    return Scenario(
        protocol="brokers", workload=workload, nodes=nodes, seconds=seconds, seed=seed,
        settings=settings,
    )  # fmt: skip


def scenarios(figure: str, full: bool) -> Iterator[Scenario]:
    seeds: tuple[int, ...] = SEEDS if full else SEEDS[:1]
    if figure == "notifications":  # offers that are near are few
        seeds = MORE_SEEDS if full else SEEDS
    for seed in seeds:
        yield from of_seed(figure, full, seed)


def of_seed(figure: str, full: bool, seed: int) -> Iterator[Scenario]:
    """The runs of one seed that a figure needs."""
    usual: dict[str, Any] = {"seed": seed}
    match figure:
        case "monitor":
            yield from (scenario(design, **usual) for design in DESIGNS)
        case "traffic" | "accuracy":
            yield from (scenario(design, **usual) for design in DESIGNS)
            for design in ("resubscribe", "parametric", *ENGINES):  # a trader is nowhere
                yield trading(design, **usual)
            varied = (*STALE, "parametric", "tile") if full else ("resubscribe", "cached")
            for interval, design in product(INTERVALS_MS, varied):
                yield scenario(design, interval_ms=interval, **usual)
            yield scenario("periodic", interval_ms=INTERVALS_MS[-1], **usual)
        case "saving":
            for design in ("resubscribe", "swept"):
                yield trading(design, **usual)
            for interval in SAVING_MS:
                yield scenario("resubscribe", interval_ms=interval, **usual)
            for pause, design in product(PAUSES, ("resubscribe", "swept")):
                yield scenario(design, pause=pause, **usual)
        case "evaluations":
            for nodes, design in product(MORE_SIZES if full else SIZES, ENGINES):
                yield scenario(
                    design, nodes=nodes, brokers=1, rate=1.0, seconds=SECONDS / 2, **usual
                )
        case "crossover":
            for pickups, design in product(MORE_PICKUPS if full else PICKUPS, ENGINES):
                yield scenario(
                    design, nodes=FEW, brokers=1, rate=1e-6, pickups=pickups,
                    interval_ms=SHORT_MS, **usual,
                )  # fmt: skip
        case "notifications":
            for evolve in (*CHOICES.values(), SIDE_BY_SIDE):
                yield notifying(evolve, **usual)
        case "clocks":
            latencies = MORE_LATENCIES_MS if full else LATENCIES_MS
            for latency, clocks in product(latencies, CLOCKS):
                yield clocked(clocks, latency, 0.0, **usual)
            for skew, clocks in product(MORE_SKEWS_MS if full else SKEWS_MS, CLOCKS):
                yield clocked(clocks, CLOCK_LATENCY_MS, skew, **usual)


def trading(design: str, **usual: Any) -> Scenario:
    return scenario(design, "trading", nodes=TRADERS, **usual)


def notifying(evolve: str, **usual: Any) -> Scenario:
    return scenario("swept", "notifications", nodes=PEOPLE, rate=OFFERS, evolve=evolve, **usual)


def clocked(clocks: tuple[str, str], latency_ms: float, skew_ms: float, **usual: Any) -> Scenario:
    """A long line of brokers, so that ways differ; exact engines, so that clocks alone err."""
    stamp, moment = clocks
    return scenario(
        "swept", topology="line", stamp=stamp, moment=moment, latency_ms=latency_ms,
        skew_ms=skew_ms, **usual,
    )  # fmt: skip
