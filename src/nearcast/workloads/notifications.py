"""Location-based notifications: people on their way hear of offers near them ([Evolving] 1).

Some entities are shops, which stand still and publish offers where they are, at random moments:
`category == "C3"`, `price`. The others drive straight from place to place and pause there. Each is
interested in a disc around itself, which is said once per drive with its motion, and in one
category, or in whatever is cheap: `category == "C3" or price < 2`. They may choose how brokers
follow their discs, each its own way.
"""

from collections.abc import Iterator
from functools import cached_property
from itertools import count
from random import Random

from msgspec import Struct

from nearcast.field_checks import between
from nearcast.model.commands import Move, Publish, Subscribe
from nearcast.model.evolution import parse_evolution
from nearcast.model.subscription import Filter, NodeId
from nearcast.scenario import stream
from nearcast.space.motion import SECOND, Moving, Time, line
from nearcast.space.shapes import Vector, disc, point
from nearcast.workloads.cube import Cube
from nearcast.workloads.walker import RegionTimeline
from nearcast.workloads.workload import Scheduled, Workload, first_id, fits_identifiers

DEAREST = 10.0  # prices are uniform from 0 to this


class Parameters(Struct, frozen=True, kw_only=True):
    """What can be set for the workload notifications."""

    # Side of the world in units, 1 to 1e9; fewer offers are near as it grows.
    size: float = 1000.0
    # Share of entities that are shops, 0 to 1; offers grow with it, and listeners shrink.
    shops: float = 0.3
    # Radius in units, 0 to 1e9, in which a person wants to hear of offers.
    radius: float = 100.0
    # Speed in units per second, size / 1e9 to 1,000 × size; what is near changes faster.
    speed: float = 15.0
    # Mean pause in seconds after a drive, 0 to 1e6 (uniform between 0 and twice that).
    pause: float = 5.0
    # Different categories, 1 to 10,000; fewer want an offer for its category as there are more.
    categories: int = 5
    # Below this price, 0 to 10, everybody is interested; prices are uniform from 0 to 10.
    cheap: float = 1.0
    # Offers per second and shop, above 0 to 1,000.
    rate: float = 1.0
    # How brokers follow people's discs, with commas, given to them in turn: periodic:0.5, lazy,
    # cached:0.2, swept. Empty: as the brokers are set.
    evolve: str = ""
    # Bytes that an offer carries, 0 to 1,000,000.
    payload: int = 64

    def __post_init__(self) -> None:
        between("size", self.size, 1, 1e9)
        between("shops", self.shops, 0, 1)
        between("radius", self.radius, 0, 1e9)
        between("speed", self.speed, self.size / 1e9, 1000 * self.size)
        between("pause", self.pause, 0, 1e6)
        between("categories", self.categories, 1, 10_000)
        between("cheap", self.cheap, 0, DEAREST)
        between("rate", self.rate, 1e-6, 1000)
        between("payload", self.payload, 0, 1_000_000)
        for text in self.ways:
            parse_evolution(text)

    @property
    def ways(self) -> list[str]:
        return self.evolve.split(",") if self.evolve else []


class Shop:
    """One stay of an entity that stands still and publishes offers."""

    def __init__(self, district: "District", entity: NodeId, stay: int, begins: Time) -> None:
        self.district, self.entity, self.stay, self.begins = district, entity, stay, begins
        self._place = district.cube.anywhere(self._stream("place"))

    def _stream(self, purpose: str) -> Random:
        return stream(self.district.seed, "notifications", purpose, self.entity, self.stay)

    def commands(self) -> Iterator[Scheduled]:
        chosen, rng, t = self.district.parameters, self._stream("offers"), self.begins
        first, here = first_id(self.entity, self.stay), point(*self._place)
        for number in count():
            t += 1 + round(rng.expovariate(chosen.rate) * SECOND)
            offer: dict[str, bool | int | float | str] = {
                "category": _category(rng.randrange(chosen.categories)),
                "price": round(rng.uniform(0, DEAREST), 2),
            }
            payload = self.district.payload
            yield t, Publish(first + number, here, attributes=offer, payload=payload)

    def position(self, t: Time) -> Vector:
        del t
        return self._place


class Person:
    """One stay of an entity that drives from place to place and hears of offers."""

    def __init__(self, district: "District", entity: NodeId, stay: int, begins: Time) -> None:
        self.district, self.entity, self.stay, self.begins = district, entity, stay, begins

    def _stream(self, purpose: str) -> Random:
        return stream(self.district.seed, "notifications", purpose, self.entity, self.stay)

    def drives(self) -> Iterator[Moving]:
        """From a uniform start on, drive after drive without end, each with its moment."""
        chosen, rng, cube = self.district.parameters, self._stream("drive"), self.district.cube
        here, since = cube.anywhere(rng), self.begins
        while True:
            there = cube.anywhere(rng)
            drive = line(disc(here[0], here[1], chosen.radius), there, chosen.speed).stamped(since)
            if drive.until == since:
                continue  # shorter than a microsecond: no drive at all
            yield drive
            here, since = there, drive.until + 1 + round(rng.uniform(0, 2 * chosen.pause) * SECOND)

    def commands(self) -> Iterator[Scheduled]:
        chosen, number = self.district.parameters, first_id(self.entity, self.stay)
        category = _category(self._stream("taste").randrange(chosen.categories))
        wanted = Filter(f'category == "{category}" or price < {chosen.cheap!r}')
        ways = chosen.ways
        how = parse_evolution(ways[self.entity % len(ways)]) if ways else None
        drives = self.drives()
        begun = next(drives)
        yield self.begins, Subscribe(number, begun.stamped(0), wanted, evolution=how)
        for drive in drives:
            yield drive.since, Move(number, drive.stamped(0))

    def position(self, t: Time) -> Vector:
        for _ in self._timeline.until(t):
            pass
        return self._timeline.region.centre(t)

    @cached_property
    def _timeline(self) -> RegionTimeline:
        return RegionTimeline(self.drives())


def _category(number: int) -> str:
    return f"C{number}"


class District(Struct, frozen=True):
    """Shops that publish offers, and people who pass by."""

    parameters: Parameters
    entities: int
    seed: int
    payload: bytes  # one for all offers

    @property
    def cube(self) -> Cube:
        return Cube(self.parameters.size, 2)

    @property
    def world(self) -> tuple[Vector, Vector]:
        return self.cube.corners

    def life(self, entity: NodeId, stay: int, begins: Time) -> Shop | Person:
        is_shop = (
            stream(self.seed, "notifications", "shop", entity).random() < self.parameters.shops
        )
        return (Shop if is_shop else Person)(self, entity, stay, begins)


def make(parameters: Parameters, entities: int, seconds: float, seed: int) -> Workload:
    fits_identifiers(2 * parameters.rate * seconds)
    return District(parameters, entities, seed, bytes(parameters.payload))
