"""[Evolving]: evolving subscriptions in a broker network, for a game and for trading."""

from nearcast.pipeline.jobs import delivery
from nearcast_papers.evolving import figures, jobs, load_and_accuracy, semantics
from nearcast_papers.evolving.measures import EvolvingMeasures
from nearcast_papers.evolving.scenarios import scenarios
from nearcast_papers.readings import make_paper

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
    "notifications": "Ours: people on their way hear of offers near them (section 1), and say how"
    " brokers follow their areas: all in one way, or a quarter of them in each, side by side in the"
    " same brokers.",
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
    "monitor": figures.draw_monitor,
    "traffic": figures.draw_traffic,
    "accuracy": figures.draw_accuracy,
    "saving": figures.draw_saving,
    "evaluations": figures.draw_evaluations,
    "crossover": figures.draw_crossover,
    "notifications": figures.draw_notifications,
    "clocks": figures.draw_clocks,
}
ALL_CLAIMS = sorted(
    (*semantics.CLAIMS, load_and_accuracy.CROSSOVER, *load_and_accuracy.CLAIMS),
    key=lambda one: one.item,
)

PAPER = make_paper(
    "evolving",
    "001",
    "Evolving subscriptions: designs compared in a game and in trading",
    scenarios,
    (
        delivery.delivery_totals,
        delivery.delivery_by_node,
        jobs.words_by_second,
        jobs.evaluations_by_second,
        jobs.movement_by_second,
        jobs.movements,
    ),
    EvolvingMeasures,
    ALL_CLAIMS,
    DRAWINGS,
    CAPTIONS,
    SHOWS,
    {name: name.capitalize() for name in CAPTIONS},
)
