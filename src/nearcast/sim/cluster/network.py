"""The simulated network of a cluster: streams between machines, as TCP has them.

A stream never loses or reorders; what the network model loses is sent again. While two machines
cannot reach each other, what they send is held back. A stream that breaks loses all that is under
way. A machine is a server's address or a client's number; it stays when a process restarts.
"""

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any, TypeAlias

from nearcast.model.subscription import NodeId
from nearcast.protocols.overlay import FIRST_SERVER
from nearcast.sim.cluster.event_queue import EventQueue
from nearcast.sim.network import Network
from nearcast.space.motion import SECOND, Time

MachineId: TypeAlias = NodeId
RESENT: Time = SECOND // 5  # after which lost bytes are sent again
MOST_RESENT = 10  # times in a row


class SimulatedNetwork:
    """Says when bytes arrive. Faults make them late, or hold them back."""

    def __init__(
        self, queue: EventQueue, model: Network, rng: Random, slow: float, slow_most: Time
    ) -> None:
        self.queue = queue
        self._model, self._rng, self._slow, self._slow_most = model, rng, slow, slow_most
        self._cuts: dict[tuple[MachineId, MachineId], Time] = {}  # until when
        self._isolated: dict[MachineId, Time] = {}  # likewise
        self._groups: dict[MachineId, int] = {}  # of a partition; absent: 0
        self._partitioned_until: Time = 0

    # Who cannot reach whom.

    def cut(self, one: MachineId, other: MachineId, until: Time) -> None:
        for pair in ((one, other), (other, one)):
            self._cuts[pair] = max(until, self._cuts.get(pair, 0))

    def isolate(self, machine: MachineId, until: Time) -> None:
        self._isolated[machine] = max(until, self._isolated.get(machine, 0))

    def partition(self, groups: dict[MachineId, int], until: Time) -> None:
        self._groups, self._partitioned_until = groups, until

    @property
    def is_partitioned(self) -> bool:
        return self._partitioned_until > self.queue.now

    def blocked_until(self, one: MachineId, other: MachineId) -> Time:
        """Until when they cannot reach each other; in the past, if they can."""
        until = 0
        if self._cuts or self._isolated:
            isolated = self._isolated
            until = max(
                self._cuts.get((one, other), 0), isolated.get(one, 0), isolated.get(other, 0)
            )
        if self._groups and self._groups.get(one, 0) != self._groups.get(other, 0):
            until = max(until, self._partitioned_until)
        return until

    def is_blocked(self, one: MachineId, other: MachineId) -> bool:
        return self.blocked_until(one, other) > self.queue.now

    def arrival(self, source: MachineId, target: MachineId, size: int) -> Time:
        """When bytes that are sent now arrive, if they need not wait for earlier ones."""
        begin = max(self.queue.now, self.blocked_until(source, target))
        for _ in range(MOST_RESENT):
            delays = self._model.route(begin, source, target, size)
            if delays:
                begin += delays[0]
                break
            begin += RESENT
        between_servers = source >= FIRST_SERVER and target >= FIRST_SERVER
        if self._slow and between_servers and self._rng.random() < self._slow:
            begin += self._rng.randint(0, self._slow_most)
        return begin


class ConnectionStream:
    """One direction of a connection. What arrives at one moment is received as one list."""

    __slots__ = ("_batch", "_last", "_network", "_receive", "broken", "source", "target")

    def __init__(
        self,
        network: SimulatedNetwork,
        source: MachineId,
        target: MachineId,
        receive: Callable[[list[Any]], None],
    ) -> None:
        self._network, self._receive = network, receive
        self.source, self.target = source, target
        self._last: Time = 0
        self._batch: list[Any] | None = None  # what arrives at `_last`
        self.broken = False

    def send(self, item: Any, size: int) -> Time:
        """Returns when it arrives, if the stream does not break."""
        network = self._network
        arrival = max(network.arrival(self.source, self.target, size), self._last)
        if self._batch is not None and arrival == self._last:
            self._batch.append(item)
            return arrival
        self._last, self._batch = arrival, [item]
        network.queue.at(arrival, partial(self._arrive, self._batch))
        return arrival

    def _arrive(self, batch: list[Any]) -> None:
        if self._batch is batch:
            self._batch = None
        if not self.broken:
            self._receive(batch)
