"""Faults of a simulated cluster: each by itself, for scripts, and all of them by chance.

`ClusterFaults` lets one fault happen now; `ClusterFaultInjector` draws them, each with a
probability per second, or while a client is handed over. Every fault is logged, because it explains
what is missed meanwhile (`checkers`).
"""

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any, Protocol, TypeAlias

from nearcast.client_protocol.messages import MovedNotice
from nearcast.service.cluster.messages import (
    ClientTransfer,
    HandoverAccepted,
    HandoverClaim,
    HandoverConfirmed,
    HandoverOffer,
)
from nearcast.sim.cluster.checkers import FaultLog, FaultSpan
from nearcast.sim.cluster.client_host import ClientHost
from nearcast.sim.cluster.network import MachineId, SimulatedNetwork
from nearcast.sim.cluster.parameters import ClusterFaultParameters
from nearcast.sim.cluster.server_host import ServerHost, SimulatedConnection
from nearcast.space.motion import FOREVER, SECOND, Time

HANDOVER = (
    HandoverOffer,
    HandoverAccepted,
    MovedNotice,
    HandoverClaim,
    ClientTransfer,
    HandoverConfirmed,
)
BREAKS: Time = 5 * SECOND  # a connection on which nothing has arrived for so long ends
NOTICED: Time = 2 * SECOND  # by then both ends of a broken connection know


# Is a message from one server to another lost?
MessageFilter: TypeAlias = Callable[[ServerHost, ServerHost, Any], bool]
# Sees each message of a server to a server, and each notice to a client, when it has been sent.
Watcher: TypeAlias = Callable[[ServerHost, ServerHost | ClientHost, Any], None]


class FaultyWorld(Protocol):
    """What the injector needs of its world."""

    network: SimulatedNetwork
    faults: FaultLog
    loses: MessageFilter | None
    watchers: list[Watcher]

    @property
    def now(self) -> Time: ...
    @property
    def servers(self) -> list[ServerHost]: ...
    @property
    def clients(self) -> list[ClientHost]: ...
    def plan(self, after: Time, act: Callable[[], None]) -> None: ...
    def note_fault(self, fact: str, about: int | None) -> None: ...
    def look_at_sites(self) -> None: ...
    def crash_server(self, server: ServerHost) -> None: ...
    def restart(self, machine: MachineId) -> None: ...
    def add_server(self) -> None: ...
    def break_connection(
        self, connection: SimulatedConnection, most: Time, silent: Time = 0
    ) -> None: ...
    def break_link(
        self, one: ServerHost, other: ServerHost, most: Time, lasts: Time = 0
    ) -> None: ...


class ClusterFaults:
    """Lets single faults happen, from now on and for so long."""

    def __init__(self, world: FaultyWorld, rng: Random) -> None:
        self._world, self._rng = world, rng
        self._losing: FaultSpan | None = None

    def _begin(
        self, fact: str, about: int | None, lasts: Time, client: int | None = None,
        servers: tuple[ServerHost, ...] | None = None,
    ) -> None:  # fmt: skip
        world = self._world
        world.note_fault(fact, about)
        touched = None if servers is None else [server.id for server in servers]
        world.faults.add(fact, world.now, world.now + lasts, client, touched)
        if client is None:
            world.look_at_sites()

    def crash(self, server: ServerHost, restarts_after: Time | None = None) -> None:
        """A server is killed. None: it never starts again."""
        world = self._world
        world.faults.add(
            "crashed", world.now, world.now + (restarts_after or 0), servers=[server.id]
        )
        world.look_at_sites()
        world.crash_server(server)
        if restarts_after is not None:
            world.plan(restarts_after, partial(world.restart, server.machine))

    def halt(self, server: ServerHost, lasts: Time) -> None:
        """A server stands still, and then reads all that has come."""
        if server.halted:
            return
        world = self._world
        self._begin("halted", server.id, lasts, servers=(server,))
        server.halt()
        timers_first = self._rng.random() < 0.5

        def resume() -> None:
            world.note_fault("resumed", server.id)
            server.resume(timers_first)

        world.plan(lasts, resume)

    def hold(self, one: ServerHost, other: ServerHost, lasts: Time) -> None:
        """What two servers send each other arrives afterwards."""
        self._begin("cut off", one.id, lasts, servers=(one, other))
        self._world.network.cut(one.machine, other.machine, self._world.now + lasts)

    def cut(self, one: ServerHost, other: ServerHost, lasts: Time) -> None:
        """The same; if it lasts, the link breaks, and what was sent is lost."""
        self.hold(one, other, lasts)
        self._break_later(lasts)

    def partition(self, groups: dict[MachineId, int], lasts: Time) -> None:
        """Machines of different groups cannot reach each other; those without one are in group
        0."""
        self._begin("partitioned", len(groups), lasts)
        self._world.network.partition(groups, self._world.now + lasts)
        self._break_later(lasts)

    def break_link(self, one: ServerHost, other: ServerHost, lasts: Time = 0) -> None:
        """What is under way between two servers is lost, and what they send until the next link can
        be made."""
        self._begin("link broken", one.id, lasts, servers=(one, other))
        self._world.break_link(one, other, NOTICED, lasts)

    def disconnect(self, client: ClientHost) -> None:
        """A client's connection breaks."""
        assert client.connection is not None
        self._world.note_fault("disconnected", client.entity)
        self._world.break_connection(client.connection, NOTICED)

    def isolate(self, client: ClientHost, lasts: Time) -> None:
        """A client reaches no server."""
        self._begin("isolated", client.entity, lasts, client.number)
        self._world.network.isolate(client.machine, self._world.now + lasts)
        self._break_later(lasts)

    def stop_reading(self, connection: SimulatedConnection, lasts: Time) -> None:
        """A client reads nothing."""
        client = connection.client_end
        connection.paused = True
        self._begin("stopped reading", connection.entity, lasts, client.machine)
        self._world.plan(lasts, partial(connection.server.resume_reading, connection))

    def lose(self, lost: MessageFilter | None) -> None:
        """Whichever messages between servers this says are lost, until something else is said;
        None: no more."""
        world = self._world
        if world.loses is None and lost is not None:
            self._losing = world.faults.add("messages lost", world.now, FOREVER)
        elif world.loses is not None and lost is None:
            assert self._losing is not None
            self._losing.end = world.now
        world.loses = lost

    def _break_later(self, lasts: Time) -> None:
        if lasts > BREAKS:
            self._world.plan(BREAKS, self._break_blocked)

    def _break_blocked(self) -> None:
        """Connections that carry nothing for so long end."""
        world, network = self._world, self._world.network
        for server in world.servers:
            for connection in list(server.connections):
                if network.is_blocked(server.machine, connection.client_end.machine):
                    world.break_connection(connection, NOTICED, BREAKS)
            for other in world.servers:
                if server.id < other.id and network.is_blocked(server.machine, other.machine):
                    world.break_link(server, other, NOTICED)


class ClusterFaultInjector:
    """Draws faults once a second, and while clients are handed over, until `ends`; by then each of
    them is over."""

    def __init__(
        self, world: FaultyWorld, parameters: ClusterFaultParameters, rng: Random, ends: Time
    ) -> None:
        self._world, self._p, self._rng, self._ends = world, parameters, rng, ends
        self._faults = ClusterFaults(world, rng)
        self._most_servers = 2 * len(world.servers)

    def begin(self) -> None:
        self._world.plan(SECOND // 2, self._strike)
        if self._p.handover_fault:
            self._world.watchers.append(self._strike_handover)

    def _lasts(self, mean_s: float) -> Time:
        drawn = round(self._rng.expovariate(1 / max(mean_s, 1e-6)) * SECOND) + 1
        return max(1, min(drawn, self._ends - self._world.now))

    def _happens(self, probability: float) -> bool:
        return probability > 0 and self._rng.random() < probability

    def _strike(self) -> None:
        world, p, faults = self._world, self._p, self._faults
        if world.now >= self._ends:
            return
        for server in world.servers:
            if self._happens(p.crash) and len(world.servers) > 1:
                faults.crash(server, self._lasts(p.restart_s) if p.restart_s else None)
            elif self._happens(p.leave) and self._may_leave(server):
                world.note_fault("leaves", server.id)
                server.leave()
            elif self._happens(p.halt) and not server.halted:
                faults.halt(server, self._lasts(p.halt_s))
        for client in world.clients:
            if self._happens(p.disconnect) and client.connection is not None:
                faults.disconnect(client)
            if self._happens(p.client_cut):
                faults.isolate(client, self._lasts(p.cut_s))
            if self._happens(p.slow_reader):
                self._stop_reading(client)
        if self._happens(p.partition) and not world.network.is_partitioned:
            self._partition()
        pairs = len(world.servers) > 1
        if pairs and self._happens(p.cut):
            one, other = self._rng.sample(world.servers, 2)
            faults.cut(one, other, self._lasts(p.cut_s))
        if pairs and self._happens(p.link_break):
            self._break_link(*self._rng.sample(world.servers, 2))
        if self._happens(p.join) and len(world.servers) < self._most_servers:
            world.add_server()
        world.plan(SECOND, self._strike)

    def _may_leave(self, server: ServerHost) -> bool:
        staying = [one for one in self._world.servers if not one.service.cluster.stopping]
        return len(staying) > 1 and server in staying and server.service.cluster.joined

    def _stop_reading(self, client: ClientHost) -> None:
        connection = client.connection
        if connection is not None and not connection.paused and not connection.ended:
            self._faults.stop_reading(connection, self._lasts(self._p.slow_reader_s))

    def _break_link(self, one: ServerHost, other: ServerHost) -> None:
        redial_s = self._p.redial_s
        self._faults.break_link(one, other, self._lasts(redial_s) if redial_s else 0)

    def _partition(self) -> None:
        world, lasts = self._world, self._lasts(self._p.cut_s)
        machines = [server.machine for server in world.servers]
        machines += [client.machine for client in world.clients]
        groups = {one: 1 for one in machines if self._rng.random() < 0.5}
        self._faults.partition(groups, lasts)

    def _strike_handover(
        self, source: ServerHost, target: ServerHost | ClientHost, message: Any
    ) -> None:
        """A message of a handover is on its way: one of its servers halts, or links fail."""
        world, p, faults = self._world, self._p, self._faults
        if not isinstance(message, HANDOVER) or world.now >= self._ends:
            return
        if not self._happens(p.handover_fault):
            return
        others = [one for one in world.servers if one is not source]
        if target not in others:  # a client is told where to go
            target = self._rng.choice(others)
        assert isinstance(target, ServerHost)
        pair = [source, target]
        self._rng.shuffle(pair)
        match self._rng.randrange(4):
            case 0:
                faults.halt(pair[0], self._lasts(p.halt_s))
            case 1:
                faults.cut(pair[0], pair[1], self._lasts(p.cut_s))
            case 2:
                lasts = self._lasts(p.cut_s)
                for other in world.servers:
                    if other is not pair[0]:
                        faults.cut(pair[0], other, lasts)
            case 3:
                self._break_link(pair[0], pair[1])
