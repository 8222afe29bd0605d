"""The papers that Nearcast reproduces, by the names that the command line uses."""

from nearcast_papers.bubblestorm import paper as bubblestorm
from nearcast_papers.drtree import paper as drtree
from nearcast_papers.evolving import paper as evolving
from nearcast_papers.paper import Paper
from nearcast_papers.relays import paper as relays
from nearcast_papers.vso import paper as vso

PAPERS: dict[str, Paper] = {
    "drtree": drtree.PAPER,
    "evolving": evolving.PAPER,
    "voronoi": vso.PAPER,
    "bubblestorm": bubblestorm.PAPER,
    "relays": relays.PAPER,
}
