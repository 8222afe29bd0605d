"""Gives each entity's next command to its node, at its time and in the right order.

At one moment, the interest commands of all entities come before all publications: the expected
deliveries are defined in this order, and all hosts keep it.
"""

from collections.abc import Callable, Container, Iterator
from heapq import heappop, heappush
from itertools import count, dropwhile
from typing import Any, Protocol

from msgspec import Struct
from msgspec.structs import replace

from nearcast.model.commands import Command, Publish, Subscribe
from nearcast.model.subscription import Formula, NodeId
from nearcast.space.motion import Moving, Time
from nearcast.space.shapes import Vector
from nearcast.workloads.workload import Life, Scheduled


class CommandTarget(Protocol):
    """The world in which lives are played: its clock, and who obeys commands."""

    @property
    def now(self) -> Time: ...
    @property
    def nodes(self) -> Container[NodeId]: ...
    def at(self, t: Time, step: Callable[[], None]) -> None: ...
    def obey(self, node_id: NodeId, command: Command) -> Any: ...


class PlayedLife(Struct):
    """The life of an entity that is present, and its next command."""

    life: Life
    commands: Iterator[Scheduled]
    command: Command | None = None


def without_motion(command: Subscribe) -> Subscribe:
    """The same interest where it begins, without its motion. A formula has no such place."""
    region = command.region
    if isinstance(region, Formula | str):
        return command
    return replace(command, region=Moving(region.at(region.since)))


def first_interests(life: Life) -> Iterator[Subscribe]:
    """What an entity wants from the very beginning, standing still until the world begins."""
    for t, command in life.commands():
        if t > 0 or not isinstance(command, Subscribe):
            return
        yield without_motion(command)


def has_settled(command: Command) -> bool:
    """Would a first interest be no other than the one that has settled already?"""
    return (
        isinstance(command, Subscribe)
        and isinstance(command.region, Moving)
        and command.filter is None
        and without_motion(command) == command
    )


class WorkloadPlayer:
    """Plays the lives of the entities that are present, between two moments."""

    def __init__(self, simulation: CommandTarget, begins: Time, ends: Time) -> None:
        self._simulation = simulation
        self._begins, self._ends = begins, ends
        self._present: dict[NodeId, PlayedLife] = {}
        self._due: list[tuple[Time, bool, NodeId, int, PlayedLife]] = []
        self._turn = count()
        self._woken: dict[Time, None] = {}

    def enter(self, entity: NodeId, life: Life, *, settled: bool = False) -> None:
        """The life begins; `settled`: its first interests have been made known before."""
        commands = life.commands()
        if settled:
            commands = dropwhile(lambda due: due[0] == 0 and has_settled(due[1]), commands)
        played = self._present[entity] = PlayedLife(life, commands)
        self._schedule_next(entity, played)

    def leave(self, entity: NodeId) -> None:
        self._present.pop(entity, None)

    def close(self) -> None:
        self._present.clear()

    def positions(self, now: Time) -> Iterator[tuple[NodeId, Vector]]:
        for entity, played in sorted(self._present.items(), key=lambda item: item[0]):
            yield entity, played.life.position(now - self._begins)

    def _schedule_next(self, entity: NodeId, played: PlayedLife) -> None:
        scheduled = next(played.commands, None)
        if scheduled is None:
            return
        t, played.command = scheduled[0] + self._begins, scheduled[1]
        if t >= self._ends:
            return
        # The turn settles the order of two lives of one entity, one over and one begun.
        is_publication = isinstance(played.command, Publish)
        heappush(self._due, (t, is_publication, entity, next(self._turn), played))
        self._wake_at(self._due[0][0])

    def _wake_at(self, t: Time) -> None:
        if t not in self._woken:
            self._woken[t] = None
            self._simulation.at(t, self._play)

    def _play(self) -> None:
        now = self._simulation.now
        while self._due and self._due[0][0] <= now:
            _, _, entity, _, played = heappop(self._due)
            if self._present.get(entity) is not played or played.command is None:
                continue  # of a life that is over
            if entity in self._simulation.nodes:  # else the node has stopped by itself
                self._simulation.obey(entity, played.command)
            self._schedule_next(entity, played)
        del self._woken[now]
        if self._due:
            self._wake_at(self._due[0][0])
