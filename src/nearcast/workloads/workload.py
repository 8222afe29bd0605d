"""What a workload is: who does what, and when.

A workload gives every entity a Life: a lazy stream of commands and a true position at any moment.
Times count from the workload's beginning. Within a life, commands are ordered by time, and at equal
times interests come before publications; the host merges lives by the same rule.
"""

from collections.abc import Callable, Iterator
from typing import Protocol, TypeAlias

from msgspec import Struct

from nearcast.model.commands import Command
from nearcast.model.subscription import NodeId
from nearcast.space.motion import Time
from nearcast.space.shapes import Vector

Scheduled: TypeAlias = tuple[Time, Command]

STAYS = 256  # an entity may return so often in one run
NUMBERS = 2**24  # identifiers that one stay may use


def first_id(entity: NodeId, stay: int) -> int:
    """Where this stay's own range of subscription and publication identifiers begins."""
    return (entity * STAYS + stay) * NUMBERS


class Life(Protocol):
    """One stay of one entity in the world."""

    def commands(self) -> Iterator[Scheduled]: ...

    def position(self, t: Time) -> Vector:
        """Where the entity truly is. Hosts ask in order of time."""
        ...


class Workload(Protocol):
    @property
    def entities(self) -> int:
        """How many take part from the beginning."""
        ...

    @property
    def world(self) -> tuple[Vector, Vector]:
        """Low and high corner of the space in which the entities live."""
        ...

    def life(self, entity: NodeId, stay: int, begins: Time) -> Life:
        """The entity's `stay`-th life, from `begins` on. Equal arguments give equal lives."""
        ...


class Kind(Struct, frozen=True):
    """A workload by name: its parameters, and how to make it for so many entities and a seed."""

    parameters: type[Struct]
    make: Callable[..., Workload]
