"""Peers that sit still around hotspots and speak within their own box ([DRtree] VI.A).

Every peer has one zone of interest, which is its zone of publication too: a publication is a point
drawn uniformly from the peer's own box, so it concerns at least the peer itself (`echo`). How many
hotspots there are decides how much the boxes overlap. One cycle of the paper is one second here.
A box's centre lies in the world; near the border the box itself may reach over it.
"""

from collections.abc import Iterator
from itertools import count
from math import log2, sqrt
from random import Random

from msgspec import Struct

from nearcast.field_checks import between, one_of
from nearcast.model.commands import Publish, Subscribe
from nearcast.model.subscription import NodeId
from nearcast.scenario import stream
from nearcast.space.motion import SECOND, Moving, Time
from nearcast.space.shapes import Shape, Vector, cuboid, point
from nearcast.workloads.cube import Cube
from nearcast.workloads.workload import Scheduled, Workload, first_id, fits_identifiers


class Parameters(Struct, frozen=True, kw_only=True):
    """What can be set for the workload hotspots."""

    # Dimensions of the world, 2 or 3; with 3, boxes become cuboids and overlap far less.
    dims: int = 2
    # Side of the world in units, 1 to 1e9; a larger world holds the boxes farther apart.
    size: float = 1024.0
    # cold, warm, hot or burning: none, n/8, √n or log2(n) hotspots; the hotter, the more overlap.
    hotspots: str = "cold"
    # Standard deviation in units of a box's centre about its hotspot, 0 to size; the paper does not
    # say (20 to 60 is sensible); overlap shrinks as it grows. Without meaning when cold.
    spread: float = 30.0
    # Shortest and longest side of a box in units, 0 to size; overlap grows with them.
    side_min: float = 5.0
    side_max: float = 50.0
    # Publications per second and peer, above 0 to 1,000; all traffic grows with it.
    rate: float = 0.5
    # Bytes that a publication carries, 0 to 1,000,000; message sizes grow with it.
    payload: int = 64

    def __post_init__(self) -> None:
        one_of("dims", self.dims, (2, 3))
        between("size", self.size, 1, 1e9)
        one_of("hotspots", self.hotspots, ("cold", "warm", "hot", "burning"))
        between("spread", self.spread, 0, self.size)
        between("side_min", self.side_min, 0, self.size)
        between("side_max", self.side_max, 0, self.size)
        if self.side_min > self.side_max:
            raise ValueError(f"side_min ({self.side_min}) is above side_max ({self.side_max})")
        between("rate", self.rate, 1e-6, 1000)
        between("payload", self.payload, 0, 1_000_000)


def hotspot_count(hotspots: str, entities: int) -> int:
    """1,024 peers have 0, 128, 32 and 10 hotspots ([DRtree] VI.A)."""
    if hotspots == "cold":
        return 0
    wanted = {"warm": entities / 8, "hot": sqrt(entities), "burning": log2(entities)}[hotspots]
    return max(1, round(wanted))


class HotspotEntity:
    """A peer that stays where its area is."""

    def __init__(self, world: "Hotspots", entity: NodeId, stay: int, begins: Time) -> None:
        self.world, self.entity, self.stay, self.begins = world, entity, stay, begins
        self.area = world.area(stream(world.seed, "hotspots", "area", entity, stay))

    def commands(self) -> Iterator[Scheduled]:
        first = first_id(self.entity, self.stay)
        yield self.begins, Subscribe(first, Moving(self.area), echo=True)
        rng = stream(self.world.seed, "hotspots", "speech", self.entity, self.stay)
        period = SECOND / self.world.parameters.rate
        for number in count():
            t = self.begins + int((number + rng.random()) * period)
            place = drawn_from(self.area, rng)
            yield t, Publish(first + 1 + number, place, payload=self.world.payload)

    def position(self, t: Time) -> Vector:
        del t  # it never moves
        return self.area.x, self.area.y, self.area.z


def drawn_from(area: Shape, rng: Random) -> Shape:
    """A point of a box, all equally likely."""
    x = area.x + rng.uniform(-area.rx, area.rx)
    y = area.y + rng.uniform(-area.ry, area.ry)
    return point(x, y, area.z + rng.uniform(-area.rz, area.rz) if area.rz else area.z)


class Hotspots(Struct, frozen=True):
    """Stationary entities with boxes around hotspots."""

    parameters: Parameters
    entities: int
    seed: int
    cube: Cube
    hotspots: tuple[Vector, ...]  # none: cold
    payload: bytes  # one for all publications

    @property
    def world(self) -> tuple[Vector, Vector]:
        return self.cube.corners

    def life(self, entity: NodeId, stay: int, begins: Time) -> HotspotEntity:
        return HotspotEntity(self, entity, stay, begins)

    def area(self, rng: Random) -> Shape:
        """A box of random sides, anywhere (cold) or about one of the hotspots."""
        chosen, flat = self.parameters, self.cube.dims == 2
        rx = rng.uniform(chosen.side_min, chosen.side_max) / 2
        ry = rng.uniform(chosen.side_min, chosen.side_max) / 2
        rz = 0.0 if flat else rng.uniform(chosen.side_min, chosen.side_max) / 2
        if not self.hotspots:
            return cuboid(*self.cube.anywhere(rng), rx, ry, rz)
        x, y, z = (rng.gauss(middle, chosen.spread) for middle in rng.choice(self.hotspots))
        return cuboid(*self.cube.inside((x, y, z)), rx, ry, rz)


def make(parameters: Parameters, entities: int, seconds: float, seed: int) -> Workload:
    fits_identifiers(parameters.rate * seconds)
    cube = Cube(parameters.size, parameters.dims)
    rng = stream(seed, "hotspots", "places")
    wanted = hotspot_count(parameters.hotspots, entities)
    places = tuple(cube.anywhere(rng) for _ in range(wanted))
    return Hotspots(parameters, entities, seed, cube, places, bytes(parameters.payload))
