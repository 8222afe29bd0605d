"""Seed 001: evolving subscriptions in a broker network, for a game and for trading."""

from nearcast.pipeline.jobs import delivery
from nearcast_papers.evolving import counting, figures, load_and_accuracy, semantics
from nearcast_papers.evolving.measures import EvolvingMeasures
from nearcast_papers.evolving.scenarios import scenarios
from nearcast_papers.paper import ClaimResult, CountedRuns, Figure, Paper, draw_figures

CAPTIONS = {
    "monitor": "What the demonstration's monitor shows (section 5): all designs run on the same"
    " movement at the same time.",
    "traffic": "What each design says of interests, and what it makes brokers carry. Traders are"
    " nowhere, so topics by tile or by object were not run for them.",
    "accuracy": "What was missed and what nobody wanted, against the exact truth. Messages take"
    " 50 ms each, so even an exact engine errs while a new interest is on its way.",
    "saving": "Evolving subscriptions against re-subscription: D is how long a move lasts, I how"
    " often a moving player subscribes anew.",
    "evaluations": "How often a broker works out where something is that evolves: for a version"
    " (PES, CLEES), for a publication (LEES), for an index of a slice of time or a candidate in"
    " it (swept).",
    "crossover": "The same, by how many publications come between two evolutions.",
    "clocks": "Ours: a moment that travels with what is said, or one that each broker takes from"
    " its own clock when it hears of it.",
}
SHOWS = {
    "monitor": (17,),
    "traffic": (14, 17),
    "accuracy": (13, 16),
    "saving": (14, 15),
    "evaluations": (7, 9),
    "crossover": (7, 9, 10, 12),
}
DRAWINGS = {
    "monitor": figures.monitor,
    "traffic": figures.traffic,
    "accuracy": figures.accuracy,
    "saving": figures.saving,
    "evaluations": figures.evaluations,
    "crossover": figures.crossover,
    "clocks": figures.clocks,
}
ALL_CLAIMS = sorted(
    (*semantics.CLAIMS, load_and_accuracy.CROSSOVER, *load_and_accuracy.CLAIMS),
    key=lambda one: one.item,
)


def draw(counted: CountedRuns) -> list[Figure]:
    return draw_figures(
        "001",
        DRAWINGS,
        CAPTIONS,
        SHOWS,
        {name: name.capitalize() for name in CAPTIONS},
        EvolvingMeasures(counted),
    )


def claims(counted: CountedRuns) -> list[ClaimResult]:
    measures = EvolvingMeasures(counted)
    return [claim.evaluate("evolving", "001", measures) for claim in ALL_CLAIMS]


PAPER = Paper(
    "evolving",
    "Evolving subscriptions: designs compared in a game and in trading",
    tuple(CAPTIONS),
    scenarios,
    (
        delivery.delivery_totals,
        counting.words_by_second,
        counting.evaluations_by_second,
        counting.movement_by_second,
        counting.movements,
    ),
    claims,
    draw,
)
