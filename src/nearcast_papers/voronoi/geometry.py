"""The geometry of [VSO] without a network: figure 2, and greedy forwarding.

Entities are where the paper's movement has brought them after a minute. A quad-tree splits a square
into four until none holds more than a region may. The Voronoi division follows VSO's own rules,
second by second: sites follow their load (formula 2), neighbours of an overloaded site come closer
(formula 1), and if that does not help, a site is inserted at the centre of the load.
"""

from collections.abc import Sequence
from itertools import count
from math import dist
from random import Random
from statistics import mean

import numpy as np
from numpy.typing import NDArray

from nearcast.protocols.voronoi.balance import LoadTrend, apart, towards
from nearcast.protocols.voronoi.vso.parameters import Parameters
from nearcast.scenario import stream
from nearcast.space import voronoi
from nearcast.space.motion import SECOND
from nearcast.space.quadtree import quadtree
from nearcast.workloads import clustering

ENTITIES, CAPACITY = 50, 10  # of figure 2
SIDE = 768.0
WALKED_S = 60
CALM_S, LONGEST_S = 30, 600  # no region too full or empty for so long; tried for so long at most
MATCHERS = 25, 50, 100, 200, 500, 1000
ROUTES = 300  # greedy ways for each number of matchers
PARAMETERS = Parameters(limit=CAPACITY)

Place = tuple[float, float]
Places = NDArray[np.float64]


def crowd_positions(seed: int, entities: int = ENTITIES) -> list[Place]:
    """Where the paper's movement has brought them."""
    world = clustering.make(clustering.Parameters(), entities, WALKED_S, seed)
    found = (world.life(entity, 0, 0).position(WALKED_S * SECOND) for entity in range(entities))
    return [(x, y) for x, y, _ in found]


def voronoi_regions(places: Sequence[Place], capacity: int, rng: Random) -> int:
    """How many matchers VSO's rules end up with; the first stands in the middle."""
    parameters, clients = PARAMETERS, np.array(places)
    numbers = count()
    gateway = next(numbers)
    sites: dict[int, Place] = {gateway: (SIDE / 2, SIDE / 2)}
    burdens = {gateway: _new_burden()}
    calm = 0
    for second in range(LONGEST_S):
        shares = _clients_by_site(sites, clients)
        calm = calm + 1 if all(0 < len(own) <= capacity for own in shares.values()) else 0
        if calm >= CALM_S:
            break
        for site, own in shares.items():
            centre = _centroid(own)
            if centre is not None:
                _move_site(sites, site, towards(sites[site], centre, parameters.f_adjust))
            wish = burdens[site].step(
                second * SECOND, overloaded=len(own) > capacity, idle=len(own) == 0
            )
            if wish == "closer":
                for other in voronoi.enclosing(sites, site):
                    _move_site(sites, other, towards(sites[other], sites[site], parameters.f_move))
            elif wish == "insert" and centre is not None:
                new = next(numbers)
                # Nobody stands exactly where another does: a hair's breadth decides the side.
                sites[new] = centre[0] + rng.uniform(-1, 1), centre[1] + rng.uniform(-1, 1)
                burdens[new] = _new_burden()
            elif wish == "leave" and site != gateway:
                del sites[site], burdens[site]
    return len(sites)


def _new_burden() -> LoadTrend:
    p = PARAMETERS
    return LoadTrend(round(p.overload_ms * 1000), p.insertion_trigger, p.departure_trigger)


def _clients_by_site(sites: dict[int, Place], clients: Places) -> dict[int, Places]:
    """Whom each site owns."""
    numbers, spots = list(sites), np.array(list(sites.values()))
    gaps = ((clients[:, None, :] - spots[None, :, :]) ** 2).sum(axis=2)
    nearest = gaps.argmin(axis=1)
    return {site: clients[nearest == place] for place, site in enumerate(numbers)}


def _centroid(own: Places) -> Place | None:
    if not len(own):
        return None
    x, y = own.mean(axis=0).tolist()
    return x, y


def _move_site(sites: dict[int, Place], site: int, to: Place) -> None:
    others = [place for other, place in sites.items() if other != site]
    if apart(to, others, PARAMETERS.spacing):
        sites[site] = to


def count_regions(seeds: int) -> list[tuple[int, int]]:
    """Regions of the quad-tree and of VSO, of as many crowds."""
    found = []
    for seed in range(1, seeds + 1):
        places = crowd_positions(seed)
        rng = stream(seed, "figure 2")
        found.append(
            (
                len(quadtree(places, CAPACITY, (0.0, 0.0), SIDE)),
                voronoi_regions(places, CAPACITY, rng),
            )
        )
    return found


# Greedy forwarding.


def mean_hops(matchers: int, seed: int = 1) -> float:
    """Steps of greedy forwarding on average: from site to enclosing site, from any to any place."""
    rng = stream(seed, "greedy", matchers)
    sites = {site: (rng.random(), rng.random()) for site in range(matchers)}
    ringed: dict[int, list[int]] = {}

    def steps(here: int, to: Place) -> int:
        for number in count():
            if here not in ringed:
                ringed[here] = voronoi.enclosing(sites, here)
            nearest = min(ringed[here], key=lambda other: dist(sites[other], to))
            if dist(sites[nearest], to) >= dist(sites[here], to):
                return number
            here = nearest
        raise AssertionError("each step comes closer")

    ways = [(rng.randrange(matchers), (rng.random(), rng.random())) for _ in range(ROUTES)]
    return mean(steps(start, to) for start, to in ways)
