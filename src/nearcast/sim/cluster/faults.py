"""Injected faults of a simulated cluster, each with a probability per second."""

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Protocol

from nearcast.sim.cluster.checkers import FaultLog
from nearcast.sim.cluster.client_host import ClientHost
from nearcast.sim.cluster.network import MachineId, SimulatedNetwork
from nearcast.sim.cluster.parameters import ClusterFaultParameters
from nearcast.sim.cluster.server_host import ServerHost, SimulatedConnection
from nearcast.space.motion import SECOND, Time

BREAKS: Time = 5 * SECOND  # a connection on which nothing has arrived for so long ends
NOTICED: Time = 2 * SECOND  # by then both ends of a broken connection know


class FaultyWorld(Protocol):
    """What the injector needs of its world."""

    network: SimulatedNetwork
    faults: FaultLog

    @property
    def now(self) -> Time: ...
    @property
    def servers(self) -> list[ServerHost]: ...
    @property
    def clients(self) -> list[ClientHost]: ...
    def plan(self, after: Time, act: Callable[[], None]) -> None: ...
    def note_fault(self, fact: str, about: int | None) -> None: ...
    def crash_server(self, server: ServerHost) -> None: ...
    def restart(self, machine: MachineId) -> None: ...
    def add_server(self) -> None: ...
    def break_connection(self, connection: SimulatedConnection, most: Time) -> None: ...
    def break_link(self, one: ServerHost, other: ServerHost, most: Time) -> None: ...


class ClusterFaultInjector:
    """Draws faults once a second, until `ends`; by then each of them is over."""

    def __init__(
        self, world: FaultyWorld, parameters: ClusterFaultParameters, rng: Random, ends: Time
    ) -> None:
        self._world, self._p, self._rng, self._ends = world, parameters, rng, ends
        self._most_servers = 2 * len(world.servers)
        self._halted: set[ServerHost] = set()

    def begin(self) -> None:
        self._world.plan(SECOND // 2, self._strike)

    def _lasts(self, mean_s: float) -> Time:
        drawn = round(self._rng.expovariate(1 / max(mean_s, 1e-6)) * SECOND) + 1
        return max(1, min(drawn, self._ends - self._world.now))

    def _happens(self, probability: float) -> bool:
        return probability > 0 and self._rng.random() < probability

    def _strike(self) -> None:
        world, p = self._world, self._p
        if world.now >= self._ends:
            return
        for server in world.servers:
            if self._happens(p.crash) and len(world.servers) > 1:
                self._crash(server)
            elif self._happens(p.leave) and self._may_leave(server):
                world.note_fault("leaves", server.id)
                server.leave()
            elif self._happens(p.halt) and server not in self._halted:
                self._halt(server)
        for client in world.clients:
            if self._happens(p.disconnect) and client.connection is not None:
                self._disconnect(client)
            if self._happens(p.client_cut):
                self._isolate(client)
            if self._happens(p.slow_reader):
                self._stop_reading(client)
        if self._happens(p.partition) and not world.network.is_partitioned:
            self._partition()
        pairs = len(world.servers) > 1
        if pairs and self._happens(p.cut):
            self._cut(*self._rng.sample(world.servers, 2))
        if pairs and self._happens(p.link_break):
            self._break_link(*self._rng.sample(world.servers, 2))
        if self._happens(p.join) and len(world.servers) < self._most_servers:
            world.add_server()
        world.plan(SECOND, self._strike)

    def _may_leave(self, server: ServerHost) -> bool:
        staying = [one for one in self._world.servers if not one.service.cluster.stopping]
        return len(staying) > 1 and server in staying and server.service.cluster.joined

    def _crash(self, server: ServerHost) -> None:
        world = self._world
        self._halted.discard(server)
        lasts = self._lasts(self._p.restart_s) if self._p.restart_s else 0
        world.faults.add("crashed", world.now, world.now + lasts)
        world.crash_server(server)
        if self._p.restart_s:
            world.plan(lasts, partial(world.restart, server.machine))

    def _halt(self, server: ServerHost) -> None:
        world, lasts = self._world, self._lasts(self._p.halt_s)
        world.note_fault("halted", server.id)
        world.faults.add("halted", world.now, world.now + lasts)
        self._halted.add(server)
        server.halt()
        timers_first = self._rng.random() < 0.5

        def resume() -> None:
            self._halted.discard(server)
            world.note_fault("resumed", server.id)
            server.resume(timers_first)

        world.plan(lasts, resume)

    def _disconnect(self, client: ClientHost) -> None:
        world = self._world
        assert client.connection is not None
        world.note_fault("disconnected", client.entity)
        world.break_connection(client.connection, NOTICED)

    def _isolate(self, client: ClientHost) -> None:
        world, lasts = self._world, self._lasts(self._p.cut_s)
        world.note_fault("isolated", client.entity)
        world.faults.add("isolated", world.now, world.now + lasts, client.number)
        world.network.isolate(client.machine, world.now + lasts)
        if lasts > BREAKS:
            world.plan(BREAKS, self._break_blocked)

    def _stop_reading(self, client: ClientHost) -> None:
        world, connection = self._world, client.connection
        if connection is None or connection.paused or connection.ended:
            return
        lasts = self._lasts(self._p.slow_reader_s)
        connection.paused = True
        world.note_fault("stopped reading", client.entity)
        world.faults.add("stopped reading", world.now, world.now + lasts, client.number)
        world.plan(lasts, partial(connection.server.resume_reading, connection))

    def _partition(self) -> None:
        world, lasts = self._world, self._lasts(self._p.cut_s)
        machines = [server.machine for server in world.servers]
        machines += [client.machine for client in world.clients]
        groups = {one: 1 for one in machines if self._rng.random() < 0.5}
        world.note_fault("partitioned", len(groups))
        world.faults.add("partitioned", world.now, world.now + lasts)
        world.network.partition(groups, world.now + lasts)
        if lasts > BREAKS:
            world.plan(BREAKS, self._break_blocked)

    def _cut(self, one: ServerHost, other: ServerHost) -> None:
        world, lasts = self._world, self._lasts(self._p.cut_s)
        world.note_fault("cut off", one.id)
        world.faults.add("cut off", world.now, world.now + lasts)
        world.network.cut(one.machine, other.machine, world.now + lasts)
        if lasts > BREAKS:
            world.plan(BREAKS, self._break_blocked)

    def _break_link(self, one: ServerHost, other: ServerHost) -> None:
        world = self._world
        world.note_fault("link broken", one.id)
        world.faults.add("link broken", world.now, world.now)
        world.break_link(one, other, NOTICED)

    def _break_blocked(self) -> None:
        """Connections that carry nothing for so long end."""
        world, network = self._world, self._world.network
        for server in world.servers:
            for connection in list(server.connections):
                if network.is_blocked(server.machine, connection.client_end.machine):
                    world.break_connection(connection, NOTICED)
            for other in world.servers:
                if server.id < other.id and network.is_blocked(server.machine, other.machine):
                    world.break_link(server, other, NOTICED)
