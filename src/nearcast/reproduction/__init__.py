"""The papers that Nearcast reproduces, by the names that the command line uses."""

from nearcast.reproduction.bubblestorm import paper as bubblestorm
from nearcast.reproduction.drtree import paper as drtree
from nearcast.reproduction.evolving import paper as evolving
from nearcast.reproduction.paper import Paper
from nearcast.reproduction.relays import paper as relays
from nearcast.reproduction.voronoi import paper as voronoi

PAPERS: dict[str, Paper] = {
    "drtree": drtree.PAPER,
    "evolving": evolving.PAPER,
    "voronoi": voronoi.PAPER,
    "bubblestorm": bubblestorm.PAPER,
    "relays": relays.PAPER,
}
