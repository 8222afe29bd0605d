"""The interface of workloads: what each entity does, and when.

A workload gives every entity a Life: a lazy stream of commands and a true position at any moment.
Times count from the workload's beginning. Within a life, commands are ordered by time, and at equal
times interests come before publications; the host merges lives by the same rule.
"""

from collections.abc import Callable, Iterator
from typing import Protocol, TypeAlias

from msgspec import Struct
from msgspec.structs import fields

from nearcast.model.commands import Command
from nearcast.model.subscription import NodeId
from nearcast.space.motion import Time
from nearcast.space.shapes import Vector

Scheduled: TypeAlias = tuple[Time, Command]

USUAL = 1000  # entities for which the default sizes of worlds are made
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
    """The lives of all entities of a run."""

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


class WorkloadKind(Struct, frozen=True):
    """A workload by name: its parameters, and how to make it for so many entities and a seed."""

    parameters: type[Struct]
    make: Callable[..., Workload]

    def size_for(self, entities: int, dims: int) -> float | None:
        """The side of a world that is as full as by default, also with more than the usual number.

        None: this workload's world has no size.
        """
        for field in fields(self.parameters):
            if field.name == "size":
                return float(field.default * max(1.0, entities / USUAL) ** (1 / dims))
        return None


def fits_identifiers(publications: float) -> None:
    """One stay numbers its subscription and its publications from a range of its own."""
    if publications + 2 > NUMBERS:
        raise ValueError(
            f"an entity may publish {NUMBERS - 2:,} times in one stay, not {publications:,.0f}:"
            " lower the rate or shorten the run"
        )
