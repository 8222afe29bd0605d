"""An entity that does not move, has constant subscriptions and publishes regularly."""

from collections.abc import Iterator, Sequence
from itertools import count
from math import ceil

from msgspec import Struct

from nearcast.model.commands import Publish, Subscribe
from nearcast.space.motion import SECOND, Moving, Time
from nearcast.space.shapes import Shape, Vector, point
from nearcast.workloads.workload import Scheduled


class StationaryEntity(Struct, frozen=True):
    """One stay of one entity, whose identifiers begin with `first`."""

    first: int
    begins: Time
    place: Vector
    wanted: Sequence[Shape]
    rate: float  # publications per second
    phase: float  # of the first one: above 0 and at most 1 period after the beginning
    payload: bytes

    def commands(self) -> Iterator[Scheduled]:
        for number, shape in enumerate(self.wanted, self.first):
            yield self.begins, Subscribe(number, Moving(shape))
        here, period = point(*self.place), SECOND / self.rate
        for number in count():
            t = self.begins + ceil((number + self.phase) * period)
            publication = self.first + len(self.wanted) + number
            yield t, Publish(publication, here, payload=self.payload)

    def position(self, t: Time) -> Vector:
        del t  # it is always there
        return self.place
