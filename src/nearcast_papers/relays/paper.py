"""[Lehn]: "Distributed Optimization of Event Dissemination Exploiting Interest Clustering"."""

from nearcast.pipeline.jobs import delivery, traffic
from nearcast_papers.readings import make_paper
from nearcast_papers.relays import (
    clusters,
    figures,
    jobs,
    manet,
    mechanism,
    open_question_figures,
    open_questions,
    virtual_reality,
)
from nearcast_papers.relays.alternative_readings import READINGS
from nearcast_papers.relays.scenarios import scenarios

CAPTIONS = {
    "4": "Uplink utilisation step by step. First the paper's round model (one of its worlds; the"
    " claims are of ten or more); then peers that exchange real messages in the same world, with"
    " the same uplinks and latencies. What a peer is to send counts, also what it had to withhold.",
    "5": "By the number of nodes: utilisation before and after, and what that costs. Dotted: real"
    " messages, in the last third of a run.",
    "6": "Weights between free bandwidth and free latency: 64 x for utilisation, 1 − x for latency."
    " 150 nodes in the round model; the quick form's messages are of 80 peers.",
    "7": "Interest graphs with degree 25 and given clustering, on slow uplinks. Peers with real"
    " messages have fewer neighbours in the quick form (12), and accordingly slower uplinks.",
    "threshold": "What an operation must gain: the fewer are done, the less is gained. SHORT takes"
    " back what REDIR has done: oscillation.",
    "game": "Ours: 60 ships of Planet π4 in fleets that crowd together, on uplinks that differ by a"
    " factor of twenty.",
    "moving": "Ours: interests change while paths are optimised. In the round model a flow whose"
    " forwarder no longer hears its source goes directly again. Walkers gather in the middle of"
    " the world, so that direct sending becomes busier the farther they walk.",
    "churn": "Ours: forwarders crash without a word. With messages, one peer of 80 in a second,"
    " from the first third of the run on (150 peers in the full form).",
    "rates": "Ours: sources that say more than others; the mean is kept.",
    "violations": "Footnote 1: where the triangle inequality is violated, a forwarder may even be"
    " the faster way.",
    "manet": "Ours, after VI: 40 people walk with radios that reach 250 units, on one channel of"
    " 6 Mbit/s. The server stands in the middle. Direct: relays that are switched off.",
}
SHOWS = {
    "4": (8, 9, 10, 11, 12, 13, 25, 26),
    "5": (6, 7, 14, 15, 16, 17),
    "6": (18, 19, 20),
    "7": (21, 22, 23, 24),
    "threshold": (5,),
    "game": (31,),
    "moving": (27,),
    "churn": (28,),
    "rates": (29,),
    "violations": (30,),
    "manet": (32,),
}
DRAWINGS = {
    "4": figures.draw_utilisation,
    "5": figures.draw_sizes,
    "6": figures.draw_weights,
    "7": figures.draw_clusterings,
    "threshold": figures.draw_threshold,
    "game": open_question_figures.draw_game,
    "moving": open_question_figures.draw_moving,
    "churn": open_question_figures.draw_churn,
    "rates": open_question_figures.draw_rates,
    "violations": open_question_figures.draw_violations,
    "manet": manet.draw_manet,
}
TITLES = {
    "threshold": "Threshold", "game": "Game", "moving": "Moving", "churn": "Churn",
    "rates": "Uneven sources", "violations": "Violations", "manet": "Radios",
}  # fmt: skip
ALL_CLAIMS = sorted(
    (
        *mechanism.CLAIMS,
        *virtual_reality.CLAIMS,
        *clusters.CLAIMS,
        *open_questions.CLAIMS,
        *mechanism.OURS,
        *manet.CLAIMS,
    ),
    key=lambda claim: claim.item,
)

PAPER = make_paper(
    "relays",
    "004",
    "Relays: event dissemination that exploits interest clustering",
    scenarios,
    (
        delivery.delivery_totals,
        traffic.traffic_by_kind,
        jobs.utilisation_by_node,
        jobs.heard_by_second,
        jobs.operations_by_second,
    ),
    READINGS,
    ALL_CLAIMS,
    DRAWINGS,
    CAPTIONS,
    SHOWS,
    TITLES,
)
