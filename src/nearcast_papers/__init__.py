"""The papers that Nearcast reproduces. A paper and its folder have the name that the command line
uses, which `nearcast reproduce --help` lists without importing anything."""

from nearcast_papers.bubblestorm import paper as bubblestorm
from nearcast_papers.drtree import paper as drtree
from nearcast_papers.evolving import paper as evolving
from nearcast_papers.paper import Paper
from nearcast_papers.relays import paper as relays
from nearcast_papers.voronoi import paper as voronoi

PAPERS: dict[str, Paper] = {
    "drtree": drtree.PAPER,
    "evolving": evolving.PAPER,
    "voronoi": voronoi.PAPER,
    "bubblestorm": bubblestorm.PAPER,
    "relays": relays.PAPER,
}
