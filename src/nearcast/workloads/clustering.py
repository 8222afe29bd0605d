"""Walkers that crowd around a few attractors, as in [VSO] V.

The paper gives the world, the speed and 1.5 ln(n) attractors, to the nearest of which a node goes
"with high probability"; the rest are the constants of the authors' VAST.
"""

from math import dist, floor, log
from random import Random

from nearcast.field_checks import between
from nearcast.scenario import stream
from nearcast.space.shapes import Vector
from nearcast.workloads.cube import Cube
from nearcast.workloads.walker import ChooseDestination, WalkerParameters, WalkerWorkload
from nearcast.workloads.workload import Workload, fits_identifiers

LOYALTY = 0.8  # how often a walker chooses the nearest attractor rather than any
TRIES = 200  # places tried for one attractor before all are placed anew, a little closer
CLOSER = 0.95  # by how much


class Parameters(WalkerParameters, frozen=True, kw_only=True):
    """See `WalkerParameters` for the unit and range of each. The defaults are the paper's, except
    `rate`."""

    size: float = 768.0
    radius: float = 192.0
    speed: float = 30.0  # 3 units per step of 100 ms
    rate: float = 2.0  # the paper publishes in every step: 10
    # Radius in units of what is published, 0 to 1e9; 0: a point, as in the paper.
    blast: float = 0.0
    # Seconds, 0 to 1e9, from the run's beginning in which only one in `settle_one_in` publications
    # is made: an overlay that balances subscriptions settles as usual, at less cost.
    settle_s: float = 0.0
    # 1 to 1,000: see `settle_s`; with motion=steps, areas move as much more rarely.
    settle_one_in: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        between("blast", self.blast, 0, 1e9)
        between("settle_s", self.settle_s, 0, 1e9)
        between("settle_one_in", self.settle_one_in, 1, 1000)


def attractor_count(entities: int) -> int:
    """100 nodes have 6 ([VSO] V)."""
    return max(1, floor(1.5 * log(entities)))


def reach(cube: Cube, attractors: int) -> float:
    """VAST's r = sqrt(W·H / attractors) / 3; in 3-D the cube root of the volume likewise."""
    return cube.size / float(attractors ** (1 / cube.dims)) / 3


def attractors_of(cube: Cube, entities: int, seed: int) -> list[Vector]:
    """Uniform places, mutually at least 3r apart.

    At 3r the places would nearly fill the world, so chance may leave no room for the last ones;
    then we begin again with a distance a little shorter, until they fit.
    """
    wanted = attractor_count(entities)
    apart = 3 * reach(cube, wanted)
    rng = stream(seed, "clustering", "attractors")
    while True:
        placed: list[Vector] = []
        for _ in range(TRIES * wanted):
            place = cube.anywhere(rng)
            if all(dist(place, other) >= apart for other in placed):
                placed.append(place)
                if len(placed) == wanted:
                    return placed
        apart *= CLOSER


def go_to_attractors(cube: Cube, attractors: list[Vector]) -> ChooseDestination:
    """On arrival: to the square of half-side r around the nearest attractor, or around any."""
    r = reach(cube, len(attractors))

    def choose_destination(rng: Random, here: Vector) -> Vector:
        if rng.random() < LOYALTY:
            x, y, z = min(attractors, key=lambda attractor: dist(here, attractor))
        else:
            x, y, z = rng.choice(attractors)
        return cube.inside((x + rng.uniform(-r, r), y + rng.uniform(-r, r), z + rng.uniform(-r, r)))

    return choose_destination


def make(parameters: Parameters, entities: int, seconds: float, seed: int) -> Workload:
    fits_identifiers(parameters.rate * seconds)
    cube = Cube(parameters.size, parameters.dims)
    choose_destination = go_to_attractors(cube, attractors_of(cube, entities, seed))
    payload = bytes(parameters.payload)
    return WalkerWorkload(
        "clustering", entities, seed, parameters, 0.0, payload, choose_destination,
        parameters.blast, parameters.settle_s, parameters.settle_one_in,
    )  # fmt: skip
