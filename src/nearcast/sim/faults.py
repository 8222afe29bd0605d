"""Injected faults: crashes, partitions and slow nodes, each with a probability."""

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Protocol

from msgspec import Struct

from nearcast.model.subscription import NodeId
from nearcast.sim.network import MILLISECOND, FaultyNetwork
from nearcast.space.motion import SECOND, Time


class FaultParameters(Struct, frozen=True, kw_only=True):
    """Which faults happen, and how often."""

    crash: float = 0.0  # probability per entity and second
    restart_s: float = 5.0  # mean seconds until a crashed entity returns, empty; 0: never
    partition: float = 0.0  # probability per second that the world falls into two halves
    partition_s: float = 5.0  # mean seconds until it is whole again
    slow: float = 0.0  # share of entities whose every message is late
    slow_ms: float = 500.0  # by how much

    def __post_init__(self) -> None:
        for name in ("crash", "partition", "slow"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} is a probability, not {getattr(self, name)}")
        for name in ("restart_s", "partition_s", "slow_ms"):
            if not 0 <= getattr(self, name) <= 1e9:
                raise ValueError(f"{name} must be 0 or more, not {getattr(self, name)}")

    @property
    def any(self) -> bool:
        return bool(self.crash or self.partition or self.slow)


class FaultTarget(Protocol):
    """What the injector calls on the world."""

    def plan(self, after: Time, act: Callable[[], None]) -> None: ...
    def present(self) -> list[NodeId]: ...
    def crash(self, entity: NodeId) -> None: ...
    def join(self, entity: NodeId) -> None: ...
    def note(self, fact: str, about: int | None) -> None: ...


class FaultInjector:
    """Draws faults once a second. They happen to entities, not to servers."""

    def __init__(
        self, parameters: FaultParameters, rng: Random, world: FaultTarget, network: FaultyNetwork
    ) -> None:
        self._p, self._rng, self._world, self._network = parameters, rng, world, network

    def begin(self) -> None:
        for entity in self._world.present():
            self.add(entity)
        self._world.plan(SECOND, self._strike)

    def add(self, entity: NodeId) -> None:
        """An entity has joined: decide whether it is slow."""
        self._network.slow.pop(entity, None)
        if self._rng.random() < self._p.slow:
            self._network.slow[entity] = round(self._p.slow_ms * MILLISECOND)
            self._world.note("slowed", entity)

    def _strike(self) -> None:
        for entity in self._world.present():
            if self._rng.random() < self._p.crash:
                self._world.crash(entity)
                if self._p.restart_s:
                    after = round(self._rng.expovariate(1 / self._p.restart_s) * SECOND) + 1
                    self._world.plan(after, partial(self._world.join, entity))
        if not self._network.group and self._rng.random() < self._p.partition:
            self._cut()
        self._world.plan(SECOND, self._strike)

    def _cut(self) -> None:
        for entity in self._world.present():
            if self._rng.random() < 0.5:
                self._network.group[entity] = 1
        if not self._network.group:
            return  # chance has cut off nobody
        self._world.note("partitioned", len(self._network.group))
        mean = max(self._p.partition_s, 1e-6)
        self._world.plan(round(self._rng.expovariate(1 / mean) * SECOND) + 1, self._heal)

    def _heal(self) -> None:
        self._network.group.clear()
        self._world.note("healed", None)
