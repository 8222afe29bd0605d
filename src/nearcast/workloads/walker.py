"""Entities that walk straight legs, subscribe to a disc around them and publish their position.

A workload of walkers chooses destinations at most; everything else is here, once. How the
disc follows its owner is the `motion`:

line   one evolving subscription per leg, sent when the leg begins; it stays where it arrives
steps  the classic: the disc stands still and is moved each time the entity publishes
path   one evolving subscription for several legs, without pauses; a new one where it has arrived

A walk is a stream of regions, each stamped with the moment it begins. What is published and what
is subscribed are read from the same region, so they never disagree.
"""

from collections.abc import Callable, Iterator
from functools import cached_property
from itertools import count, islice
from math import ceil
from random import Random
from typing import TypeAlias

from msgspec import Struct

from nearcast.field_checks import between, one_of
from nearcast.model.commands import Move, Publish, Subscribe
from nearcast.model.subscription import NodeId
from nearcast.scenario import stream
from nearcast.space.motion import SECOND, Moving, Path, Time, line
from nearcast.space.shapes import Shape, Vector, ball, point
from nearcast.workloads.cube import Cube
from nearcast.workloads.workload import Scheduled, first_id

ChooseDestination: TypeAlias = Callable[[Random, Vector], Vector]  # from here, where next?


class WalkerParameters(Struct, frozen=True, kw_only=True):
    """What all workloads of walkers let the user choose; defaults of the rest are theirs."""

    # Dimensions of the world, 2 or 3; with 3, discs become balls and hold far fewer neighbours.
    dims: int = 2
    # Side of the world in units, 1 to 1e9; a larger world holds the entities farther apart.
    size: float
    # Radius of the area of interest in units, 0 to 1e9; neighbours grow with its square (cube).
    radius: float
    # Walking speed in units per second, size / 1e9 to 1,000 × size; neighbours change faster.
    speed: float
    # Publications per second and entity, above 0 to 1,000; all traffic grows with it.
    rate: float
    # line, steps or path (see above): a Move per leg, per publication, or per `legs` legs.
    motion: str = "line"
    # Legs of one path, 1 to 100: Moves become rarer and larger as it grows; for motion=path alone.
    legs: int = 4
    # Bytes that a publication carries, 0 to 1,000,000; message sizes grow with it.
    payload: int = 64

    def __post_init__(self) -> None:
        one_of("dims", self.dims, (2, 3))
        between("size", self.size, 1, 1e9)
        between("radius", self.radius, 0, 1e9)
        # Moments are whole microseconds in 64 bits: a faster leg would show the rounding in its
        # speed, and a slower one might never end.
        between("speed", self.speed, self.size / 1e9, 1000 * self.size)
        between("rate", self.rate, 1e-6, 1000)
        one_of("motion", self.motion, ("line", "steps", "path"))
        between("legs", self.legs, 1, 100)
        between("payload", self.payload, 0, 1_000_000)


class WalkerWorkload(Struct, frozen=True):
    """A workload of walkers; `name` keeps its random streams apart from other workloads'."""

    name: str
    entities: int
    seed: int
    parameters: WalkerParameters
    pause: float  # mean seconds at the end of a leg: uniform between 0 and twice that
    payload: bytes  # one for all publications
    choose_destination: ChooseDestination | None = None  # None: anywhere
    blast: float = 0.0  # radius of what is published; 0: a point
    settle_s: float = 0.0  # for so long from the run's beginning, only
    settle_one_in: int = 1  # one in so many publications is made

    @property
    def world(self) -> tuple[Vector, Vector]:
        return Cube(self.parameters.size, self.parameters.dims).corners

    def life(self, entity: NodeId, stay: int, begins: Time) -> "Walker":
        return Walker(self, entity, stay, begins)

    def shape_to_publish(self, here: Vector) -> Shape:
        """What a walker publishes from the middle of its disc: its own place, or a disc around."""
        return ball(*here, self.blast) if self.blast else point(*here)

    def legs(self, rng: Random, begins: Time) -> Iterator[Moving]:
        """From a uniform start on, leg after leg without end."""
        parameters = self.parameters
        longest_pause = 0.0 if parameters.motion == "path" else 2 * self.pause
        cube = Cube(parameters.size, parameters.dims)
        here, since = cube.anywhere(rng), begins
        while True:
            choose = self.choose_destination
            there = cube.anywhere(rng) if choose is None else choose(rng, here)
            leg = line(ball(*here, parameters.radius), there, parameters.speed).stamped(since)
            if leg.until == since:
                continue  # shorter than a microsecond: no leg at all
            yield leg
            here, since = there, leg.until + round(rng.uniform(0, longest_pause) * SECOND)


class RegionTimeline:
    """The regions of a walk, in order of time."""

    def __init__(self, regions: Iterator[Moving | Path]) -> None:
        self._regions = regions
        self.region, self._upcoming = next(regions), next(regions)

    def until(self, t: Time) -> Iterator[Moving | Path]:
        """The regions that begin from where we were up to `t`; the last one becomes `region`."""
        while self._upcoming.since <= t:
            self.region, self._upcoming = self._upcoming, next(self._regions)
            yield self.region


class Walker:
    """One stay of one entity. Commands and positions follow the same walk, each on its own."""

    def __init__(self, world: WalkerWorkload, entity: NodeId, stay: int, begins: Time) -> None:
        self.world, self.entity, self.stay, self.begins = world, entity, stay, begins

    def regions(self) -> Iterator[Moving | Path]:
        parameters = self.world.parameters
        rng = stream(self.world.seed, self.world.name, "walk", self.entity, self.stay)
        legs = self.world.legs(rng, self.begins)
        if parameters.motion != "path":
            return legs
        return (Path(tuple(islice(legs, parameters.legs))) for _ in count())

    def moments(self) -> Iterator[Time]:
        """When it publishes: regularly, with a phase of its own, always after it has begun; more
        rarely while the run settles."""
        period = SECOND / self.world.parameters.rate
        rng = stream(self.world.seed, self.world.name, "phase", self.entity, self.stay)
        phase = 1 - rng.random()  # above 0 and at most 1
        settled, one_in = round(self.world.settle_s * SECOND), self.world.settle_one_in
        for number in count():
            t = self.begins + ceil((number + phase) * period)
            if t >= settled or number % one_in == 0:
                yield t

    def commands(self) -> Iterator[Scheduled]:
        timeline = RegionTimeline(self.regions())
        first = first_id(self.entity, self.stay)
        steps = self.world.parameters.motion == "steps"
        begun = Moving(timeline.region.at(self.begins)) if steps else timeline.region.stamped(0)
        yield self.begins, Subscribe(first, begun)
        for publication, t in enumerate(self.moments(), first + 1):
            for region in timeline.until(t):
                if not steps:
                    yield region.since, Move(first, region.stamped(0))
            if steps:
                yield t, Move(first, Moving(timeline.region.at(t)))
            shape_to_publish = self.world.shape_to_publish(timeline.region.centre(t))
            yield t, Publish(publication, shape_to_publish, payload=self.world.payload)

    def position(self, t: Time) -> Vector:
        for _ in self._timeline.until(t):
            pass
        return self._timeline.region.centre(t)

    @cached_property
    def _timeline(self) -> RegionTimeline:
        return RegionTimeline(self.regions())
