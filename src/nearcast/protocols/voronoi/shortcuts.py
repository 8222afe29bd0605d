"""Distant sites for greedy forwarding: with "shortcuts" a route has O(log(N)) hops ([VSO] III)."""

from math import cos, exp, hypot, inf, log, pi, sin
from random import Random

from nearcast.model.subscription import NodeId
from nearcast.protocols.voronoi.mesh_messages import LARGEST
from nearcast.space.motion import Time
from nearcast.space.voronoi import Point, Sites


class Shortcuts:
    """The shortcuts of one site, the oldest first."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.places: dict[NodeId, Point] = {}
        self._found: dict[NodeId, Time] = {}

    def put(self, site: NodeId, place: Point, now: Time) -> None:
        """The oldest one makes room."""
        self.drop(site)
        self.places[site], self._found[site] = place, now
        while len(self.places) > self.most:
            self.drop(next(iter(self.places)))

    def drop(self, site: NodeId) -> None:
        self.places.pop(site, None)
        self._found.pop(site, None)

    def forget(self, before: Time) -> None:
        """Those found long ago may be gone."""
        for site in [site for site, t in self._found.items() if t < before]:
            self.drop(site)

    def target(self, here: Point, neighbours: Sites, rng: Random) -> Point | None:
        """A random point at which to search a shortcut.

        At a distance whose logarithm is uniform, so with the density 1/d² of Kleinberg's navigable
        grids: as many shortcuts for each order of magnitude. How large the world is becomes known
        with the shortcuts themselves: the search may go four times as far as the farthest so far.
        """
        places = [*neighbours.values(), *self.places.values()]
        aways = [hypot(x - here[0], y - here[1]) for x, y in places]
        least = min((away for away in aways if away > 0), default=inf)
        most = 4 * max(aways, default=0.0)
        if not least < most < inf:
            return None
        away = exp(rng.uniform(log(least), log(most)))
        turn = rng.uniform(0, 2 * pi)
        x, y = here[0] + away * cos(turn), here[1] + away * sin(turn)
        return (x, y) if max(abs(x), abs(y)) <= LARGEST else None
