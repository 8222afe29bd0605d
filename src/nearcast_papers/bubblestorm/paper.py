"""[Lucas2011]: a publish/subscribe overlay for networked virtual environments on BubbleStorm."""

from nearcast.pipeline.jobs import dead_reckoning, traffic
from nearcast_papers.bubblestorm import (
    figures,
    game,
    jobs,
    mechanisms,
    mobility,
    outlook_figures,
)
from nearcast_papers.bubblestorm.alternative_readings import READINGS
from nearcast_papers.bubblestorm.scenarios import scenarios
from nearcast_papers.readings import make_paper

CAPTIONS = {
    "3.1": "Bubblecasts on random graphs of 1,000 peers with sixteen links each, without a network."
    " Sizes are those that peers compute from λ.",
    "5.2": "128 peers that come one by one.",
    "5.3": "What an overlay sends besides updates (the thesis adds up something that cannot hold"
    " them), and all of it. In the quick form only Pub/Sub at λ = 1 joins one by one; the others"
    " begin with everybody there. Totals are the settled rate times the thesis' 15 minutes.",
    "5.5": "Who is known against who is within 100 units, at every second. The thesis prints means;"
    " of λ = 2 it prints none.",
    "5.7": "Of those who are not near, how many are not known. The curves of one node.",
    "5.9": "32 bots that come one by one.",
    "5.10": "All that is sent, updates included. In the quick form only Pub/Sub at λ = 1 joins one"
    " by one. Totals are the settled rate times the thesis' ten minutes.",
    "5.12": "Whom ship 15 knows, and whom it should know; and how accurate all of them are.",
    "timeouts": "The mobility model at λ = 1, with two updates a second.",
    "cache": "What the subscription cache saves. Without it a peer answers for itself alone.",
    "scale": "The mobility model at λ = 1, from 16 to 128 peers.",
    "churn": "What the thesis could not run, in the mobility model at λ = 1: recall among those who"
    " are left.",
    "reckoning": "Planet π4, Pub/Sub at λ = 1: all that was heard within three seconds, against the"
    " truth at every second.",
    "rings": "The thesis' outlook. The area in thirds: near ships are told ten times a second,"
    " others twice and once, as they ask. And if areas reach half as far again, whoever comes near"
    " was known before.",
    "secrecy": "The thesis' outlook: encryption and authentication, on Nearcast's live links over"
    " the loopback interface. Headers of IP, TCP and UDP are not counted.",
}
SHOWS = {
    "3.1": (1, 2, 3, 4, 5),
    "5.2": (10, 26),
    "5.3": (11, 12, 13, 14),
    "5.5": (15, 16, 17, 18, 19, 20, 36),
    "5.7": (24,),
    "5.9": (25, 26),
    "5.10": (29, 30, 31, 33),
    "5.12": (27, 28, 32),
    "timeouts": (21, 22),
    "cache": (23,),
    "scale": (34,),
    "churn": (8, 35),
}
TITLES = {
    "3.1": "Table 3.1", "5.3": "Figures 5.3 and 5.4", "5.5": "Figures 5.5 and 5.6",
    "5.7": "Figures 5.7 and 5.8", "5.10": "Figures 5.10 and 5.11",
    "5.12": "Figures 5.12 to 5.15", "timeouts": "Timeouts", "cache": "Cache", "scale": "Scale",
    "churn": "Churn", "reckoning": "Dead reckoning", "rings": "Rings", "secrecy": "Secrecy",
}  # fmt: skip
DRAWINGS = figures.DRAWINGS | outlook_figures.DRAWINGS
ALL_CLAIMS = sorted(
    (*mechanisms.CLAIMS, *mobility.CLAIMS, *game.CLAIMS), key=lambda claim: claim.item
)

PAPER = make_paper(
    "bubblestorm",
    "002",
    "Publish/subscribe for virtual worlds on BubbleStorm",
    scenarios,
    (
        traffic.traffic_by_second,
        jobs.running_by_second,
        jobs.settled_since,
        jobs.sights_by_second,
        jobs.sights_by_node,
        jobs.sights_of_one,
        jobs.inner_circle,
        jobs.meetings,
        dead_reckoning.position_difference,
    ),
    READINGS,
    ALL_CLAIMS,
    DRAWINGS,
    CAPTIONS,
    SHOWS,
    TITLES,
)
