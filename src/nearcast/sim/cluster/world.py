"""From a scenario to a run of a simulated cluster: servers, clients, network, faults, and a trace.

The servers join each other first, then the clients; the workload begins when all are served. After
the workload, what is under way still arrives. If there were faults, the cluster is given time to
recover, and then all clients publish again, which must be delivered exactly.
"""

import shlex
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

from nearcast.client.received import DirectMessage, Message
from nearcast.client_protocol.geometry_json import EARTH, PLANE
from nearcast.client_protocol.limits import Limits
from nearcast.errors import InvariantError
from nearcast.matching import MATCHERS
from nearcast.model.commands import Command, Leave, Publish
from nearcast.model.subscription import NodeId, PublicationId
from nearcast.node import Message as NodeMessage
from nearcast.protocols.overlay import FIRST_SERVER
from nearcast.protocols.voronoi.vso.parameters import Parameters as VsoParameters
from nearcast.scenario import Scenario, stream
from nearcast.service.cluster.messages import DirectForwarded, DirectSent, PublicationBatch
from nearcast.service.cluster.realm import ClusterRealm
from nearcast.service.cluster.remote_subscriptions import first_number
from nearcast.service.cluster.scaling import Role, ScalingParameters
from nearcast.service.cluster.service import ClusterService
from nearcast.service.realm import HOPS
from nearcast.sim import network as network_
from nearcast.sim.cluster.agreement import disagreement, wrong_presence
from nearcast.sim.cluster.checkers import AFTER, ClusterChecker, FaultLog, FaultSpan
from nearcast.sim.cluster.client_host import ClientHost
from nearcast.sim.cluster.event_queue import EventQueue
from nearcast.sim.cluster.faults import (
    ClusterFaultInjector,
    ClusterFaults,
    MessageFilter,
    Watcher,
)
from nearcast.sim.cluster.network import ConnectionStream, MachineId, SimulatedNetwork
from nearcast.sim.cluster.parameters import ClusterFaultParameters, ClusterParameters
from nearcast.sim.cluster.server_host import ServerHost, SimulatedConnection
from nearcast.sim.cluster.truth import RealmRecorder
from nearcast.sim.settings import Sampling, fill_settings
from nearcast.sim.simulation import rare_garbage_collection
from nearcast.sim.workload_player import WorkloadPlayer
from nearcast.space.motion import FOREVER, SECOND, Time
from nearcast.space.shapes import Vector, point
from nearcast.trace.recorder import Recorder
from nearcast.workloads import WORKLOADS, churn
from nearcast.workloads.workload import STAYS, Life

START: Time = 100 * SECOND  # clocks may be wrong by less than that
FIRST_NODE_ID: NodeId = 2**52  # no entity of any server has such a number
ENGINE = "keyed"  # as of a live node
LONGEST_WAIT: Time = 120 * SECOND
JOIN_AGAIN: Time = SECOND  # after which a server asks another one to let it in
PATIENCE: Time = 5 * SECOND  # for which a server tries to send to another one
PROBED: Time = 3 * SECOND // 2  # after which a server that does not answer accepts no connections
PROBES = 3  # publications of each client when the cluster has recovered
PROBE_EVERY: Time = SECOND // 2
AGREED: Time = 20 * SECOND  # within which there is a moment without any handover under way
LOOK_EVERY: Time = SECOND
MILLISECOND = 1_000
CARRIED = (PublicationBatch, DirectSent, DirectForwarded)  # they have what is to be delivered


class ClusterWorld:
    """One run of a scenario of a cluster. `check`: also check all that must hold."""

    def __init__(
        self, scenario: Scenario, recorder: Callable[[Scenario], Recorder], *, check: bool = True
    ) -> None:
        self._asked = scenario
        self.scenario, parts = fill_settings(scenario)
        self._p: ClusterParameters = parts["protocol"]
        self._fault_parameters: ClusterFaultParameters = parts["faults"]
        self._sampling: Sampling = parts["sampling"]
        seed = scenario.seed
        workload = WORKLOADS[scenario.workload]
        self.workload = workload.make(parts["workload"], scenario.nodes, scenario.seconds, seed)
        self._population = churn.population(
            parts["churn"], self.workload.entities, scenario.seconds, seed
        )
        self.recorder = recorder(self.scenario)
        self.messages = 0  # sent so far, with those that are lost
        self.queue = EventQueue(START)
        model = network_.make_network(parts["network"], seed)
        if parts["network"].packet_loss:  # connections are streams and send again what is lost
            rng = stream(seed, "packets")
            model = network_.Loss(parts["network"].packet_loss, rng, model)
        slow = self._fault_parameters
        self.network = SimulatedNetwork(
            self.queue, model, stream(seed, "slow"), slow.slow,
            round(slow.slow_ms * MILLISECOND),
        )  # fmt: skip
        self.flush_every: Time = round(self._p.flush_ms * MILLISECOND)
        self.faults = FaultLog()
        skew = round(self._p.skew_ms * MILLISECOND)
        self.checker = ClusterChecker(self.faults, lambda: self.now, skew) if check else None
        self.realm_recorder = RealmRecorder(
            self.recorder, self.checker.due if self.checker is not None else None
        )
        self._links: dict[tuple[NodeId, NodeId], ConnectionStream] = {}
        self._unlinked: dict[tuple[NodeId, NodeId], Time] = {}  # until when no link can be made
        self._server_by_id: dict[NodeId, ServerHost] = {}
        self._server_at: dict[MachineId, ServerHost] = {}
        self._machines = 0
        first_standby = FIRST_SERVER + self._p.servers - self._p.standbys
        self._standbys = range(first_standby, FIRST_SERVER + self._p.servers)
        self._node_ids = 0
        self._rng = stream(seed, "world")
        self.nodes: dict[NodeId, ClientHost] = {}  # clients that are present
        self._returns: dict[NodeId, int] = {}
        self._first_urls: dict[NodeId, str] = {}  # that a script has chosen
        self._outages: dict[NodeId, FaultSpan] = {}  # of clients that no server serves
        self._entities: dict[NodeId, set[NodeId]] = {}  # by client: what it was, and is
        self._machine_of: dict[NodeId, MachineId] = {}  # by server
        self._lives: dict[NodeId, Life] = {}
        self.inject = ClusterFaults(self, stream(seed, "injected"))  # faults of a script
        self.loses: MessageFilter | None = None
        self.watchers: list[Watcher] = []
        self.exact_since: Time = FOREVER  # from then on, no fault explains a miss
        self.begins: Time = START
        self.carrying: Time = 0  # when the last publication under way arrives
        self._direct = 0  # direct messages so far

    # What hosts ask of their world.

    @property
    def now(self) -> Time:
        return self.queue.now

    @property
    def ends(self) -> Time:
        return self.begins + round(self.scenario.seconds * SECOND)

    @property
    def servers(self) -> list[ServerHost]:
        return list(self._server_by_id.values())

    @property
    def clients(self) -> list[ClientHost]:
        return list(self.nodes.values())

    def plan(self, after: Time, act: Callable[[], None]) -> None:
        self.queue.after(after, act)

    def at(self, t: Time, step: Callable[[], None]) -> None:
        self.queue.at(t, step)

    def at_url(self, url: str) -> ServerHost | None:
        return self._server_at.get(self.machine_at(url))

    def machine_at(self, url: str) -> MachineId:
        return FIRST_SERVER + int(url.rsplit("-", 1)[1])

    def first_url(self, client: NodeId) -> str:
        """Each client knows one address from the beginning, of a server that is there."""
        if client in self._first_urls:
            return self._first_urls[client]
        machines = sorted(self._server_at) or [FIRST_SERVER]
        chosen = stream(self.scenario.seed, "first", client, self._returns[client])
        return _url(chosen.choice(machines))

    # The trace.

    def note(
        self, t: Time, node: NodeId, fact: str, about: int | None, value: float | None
    ) -> None:
        self.recorder.note(t, node, fact, about, value)
        if self.checker is not None and fact in ("called in", "stood down"):
            self.checker.role_changes(fact == "called in", self.servers)

    def note_fault(self, fact: str, about: int | None) -> None:
        self.recorder.note(self.now, FIRST_NODE_ID, fact, about)

    def look_at_sites(self) -> None:
        """A fault begins: where are the sites that it may concern?"""
        if self.checker is not None:
            self.checker.whereabouts.look_at(self.now, self.servers)

    def sent_to_client(
        self, connection: SimulatedConnection, size: int, publication: PublicationId | None,
        arrived: Time,
    ) -> None:  # fmt: skip
        entity = connection.entity
        if publication is not None:
            self.carrying = max(self.carrying, arrived)
        if entity >= 0:  # else nobody has a name yet
            self.messages += 1
            self.recorder.sent(
                self.now, connection.server.id, entity, "cluster.Notice", size, publication,
                arrived, False,
            )  # fmt: skip

    def sent_to_server(
        self, connection: SimulatedConnection, kind: str, size: int, arrived: Time
    ) -> None:
        if connection.entity >= 0:
            self.messages += 1
            self.recorder.sent(
                self.now, connection.entity, connection.server.id, f"cluster.{kind}", size, None,
                arrived, False,
            )  # fmt: skip
        if kind in ("publish", "send"):
            self.carrying = max(self.carrying, arrived)

    def noticed(self, connection: SimulatedConnection, notice: Any) -> None:
        client = connection.client_end
        for watch in self.watchers:
            assert isinstance(client, ClientHost)
            watch(connection.server, client, notice)

    def arrived_at_client(self, connection: SimulatedConnection, notice: Any) -> None:
        if self.checker is not None:
            self.checker.arrived(connection, notice)

    def welcomed(self, client: ClientHost, entity: NodeId, server: NodeId) -> None:
        if self.checker is not None:
            self.checker.welcomed(client, entity, server)

    def delivered(
        self, client: ClientHost, connection: SimulatedConnection, message: Message, again: bool,
        subscriptions: tuple[int, ...],
    ) -> None:  # fmt: skip
        # The publisher's clock may be ahead.
        t = max(self.now, message.t)
        self.recorder.delivered(t, connection.entity, message.publication, subscriptions, HOPS)
        if self.checker is not None:
            self.checker.delivered(client, connection, message, again, subscriptions)

    def choose_recipient(self, rng: Random) -> tuple[int, ClientHost] | None:
        """The number of the next direct message, and for whom it is: anyone who is served."""
        served = [client for client in self.clients if client.is_served]
        if not served:
            return None
        self._direct += 1
        return self._direct, rng.choice(served)

    def sent_direct(self, number: int, client: ClientHost, recipient: ClientHost) -> None:
        if self.checker is not None:
            self.checker.direct.sent(number, client.number, recipient.number)

    def refused_direct(self, number: int, why: Exception) -> None:
        if self.checker is not None:
            self.checker.direct.refused(number, why)

    def received_direct(self, client: ClientHost, message: DirectMessage) -> None:
        self.recorder.direct_delivered(max(self.now, message.t), client.entity, message.number)
        if self.checker is not None:
            self.checker.direct.received(message.payload, client.number)

    # Servers.

    def _new_server(self, machine: MachineId) -> ServerHost:
        self._node_ids += 1
        number, seed, p = FIRST_NODE_ID + self._node_ids, self.scenario.seed, self._p
        limits = Limits(nearby=1_000_000)
        geometry = EARTH if p.geometry == EARTH else PLANE
        realm = ClusterRealm(
            MATCHERS[ENGINE](), limits, self.realm_recorder, first_number(number), geometry
        )
        scaling = ScalingParameters(
            standby=machine in self._standbys, capacity=p.capacity, high_s=p.high_s, low_s=p.low_s
        )
        parameters = VsoParameters(
            limit=max(1.0, scaling.high * p.capacity), insertion_trigger=0, departure_trigger=1000,
            site_beat_ms=1000.0,
        )  # fmt: skip
        service = ClusterService(
            number, stream(seed, "server", self._node_ids), realm, limits, parameters,
            name=_url(machine), clients=1_000_000, requests=1_000_000, scaling=scaling,
        )  # fmt: skip
        skew = round(p.skew_ms * MILLISECOND)
        offset = stream(seed, "clock", self._node_ids).randint(-skew, skew)
        server = ServerHost(self, service, machine, _url(machine), offset)
        self._server_by_id[number] = self._server_at[machine] = server
        self._machine_of[number] = machine
        self.recorder.note(self.now, number, "joined")
        return server

    def add_server(self) -> None:
        """A new server, at a new address."""
        self._machines += 1
        self.restart(FIRST_SERVER + self._machines)

    def restart(self, machine: MachineId) -> None:
        """A server starts at this address, with nothing but the addresses of the others."""
        if machine in self._server_at:
            return
        if self.checker is not None:
            self.checker.scaling.reset()
        others = [server for server in self.servers if server.service.cluster.joined]
        server = self._new_server(machine)
        if others or machine in self._standbys:  # which waits until there is a cluster
            self._enter(server)
        else:
            server.apply(server.service.found_cluster(server.now, server.url))

    def _enter(self, server: ServerHost) -> None:
        """Ask one server after the other, whenever none has let it in."""
        cluster = server.service.cluster
        if not server.alive or cluster.stopping:
            return
        known = [(one, one.service.cluster) for one in self.servers if one is not server]
        others = [one for one, theirs in known if theirs.joined or theirs.site.ready]
        if others and not cluster.joined:
            contact = self._rng.choice(others)
            server.apply(server.service.join_cluster(server.now, server.url, contact.id))
        self.plan(JOIN_AGAIN, partial(self._enter, server))

    def crash_server(self, server: ServerHost) -> None:
        """As if it were killed: all that it has sent and not yet arrived is lost."""
        self.recorder.note(self.now, server.id, "crashed")
        self._remove_server(server)
        server.kill()
        for connection in list(server.connections):
            connection.break_off()
            self.plan(self._soon(), partial(self._tell_client, connection))
        for other in self.servers:
            self._break_streams(server.id, other.id)
            self.plan(self._soon(), partial(other.on_link_broken, server.id))
        for client in server.realm.clients:
            if client is not None:
                self._end_interests(client.entity, server.realm.now)

    def _soon(self) -> Time:
        return self._rng.randint(1, SECOND // 5)

    def _remove_server(self, server: ServerHost) -> None:
        self._server_by_id.pop(server.id, None)
        if self._server_at.get(server.machine) is server:
            del self._server_at[server.machine]

    def stopped(self, server: ServerHost) -> None:
        """It has left; its links end after all that was sent before."""
        self.recorder.note(self.now, server.id, "left")
        self._remove_server(server)
        for other in self.servers:
            self.plan(SECOND, partial(other.on_link_broken, server.id))

    def _end_interests(self, entity: NodeId, not_before: Time) -> None:
        """An entity is no more, and no server is left to record that."""
        if any(
            client is not None and client.entity == entity
            for server in self.servers
            for client in server.realm.clients
        ):
            return
        for subscription, since in list(self.realm_recorder.in_force.get(entity, {}).items()):
            t = max(self.now, not_before, since) + 1
            self.realm_recorder.ended(t, entity, subscription)

    def _end_lost_interests(self) -> None:
        """Those of entities that no client is any more, and that were being handed over as a server
        failed."""
        present = {client.entity for client in self.clients}
        handovers = [server.service.cluster.handover for server in self.servers]
        for entity, wanted in self.realm_recorder.in_force.items():
            gone = wanted and entity not in present
            if gone and not any(handover.is_departing(entity) for handover in handovers):
                self._end_interests(entity, 0)

    # Links between servers.

    def carry(self, source: ServerHost, to: NodeId, message: NodeMessage, frame: bytes) -> None:
        target = self._server_by_id.get(to)
        blocked = target is not None and (
            self.network.blocked_until(source.machine, target.machine) > self.now + PATIENCE
        )
        lost = self._unlinked.get((source.id, to), 0) > self.now
        if self.loses is not None and target is not None:
            lost = self.loses(source, target, message) or lost
        arrived: Time | None = None
        if target is not None and not blocked and not lost:
            link = self._links.get((source.id, to))
            if link is None or link.broken:
                link = self._links[source.id, to] = ConnectionStream(
                    self.network, source.machine, target.machine,
                    partial(target.on_messages, source.id),
                )  # fmt: skip
            arrived = link.send(frame, len(frame))
            if arrived > self.carrying and isinstance(message, CARRIED):
                self.carrying = arrived
        self.messages += 1
        self.recorder.sent(
            self.now, source.id, to, message.kind, len(frame), None, arrived, arrived is None
        )
        if target is not None:
            for watch in self.watchers:
                watch(source, target, message)

    def _break_streams(self, one: NodeId, other: NodeId) -> None:
        for pair in ((one, other), (other, one)):
            link = self._links.pop(pair, None)
            if link is not None:
                link.broken = True

    def break_link(self, one: ServerHost, other: ServerHost, most: Time, lasts: Time = 0) -> None:
        """All that is under way is lost, and what is sent while it `lasts`; both are told within
        `most`."""
        self._break_streams(one.id, other.id)
        for near, far in ((one, other), (other, one)):
            self._unlinked[near.id, far.id] = self.now + lasts
            self.plan(self._rng.randint(1, most), partial(near.on_link_broken, far.id))

    def probe(self, asker: ServerHost, node: NodeId) -> None:
        """Does the address of that server accept connections? Perhaps another listens there now."""
        machine = self._machine_of[node]
        blocked = self.network.blocked_until(asker.machine, machine)
        if blocked > self.now + PROBED:
            self.plan(PROBED, partial(asker.on_probed, node, False))
            return
        there = self.network.arrival(asker.machine, machine, 100)

        def answer() -> None:
            accepts = machine in self._server_at
            back = self.network.arrival(machine, asker.machine, 100)
            self.queue.at(back, partial(asker.on_probed, node, accepts))

        self.queue.at(there, answer)

    # Connections of clients.

    def break_connection(
        self, connection: SimulatedConnection, most: Time, silent: Time = 0
    ) -> None:
        """All that is under way is lost, for so long already (`silent`); both ends are told within
        `most`."""
        client = connection.client_end
        assert isinstance(client, ClientHost)
        if connection.broken:
            return
        self._lost(client, silent)
        connection.break_off()
        self.plan(self._rng.randint(1, most), partial(self._tell_client, connection))
        tell = partial(connection.server.on_connection_lost, connection)
        self.plan(self._rng.randint(1, most), tell)

    def _tell_client(self, connection: SimulatedConnection) -> None:
        client = connection.client_end
        assert isinstance(client, ClientHost)
        client.on_lost(connection, "", 1006)

    def _lost(self, client: ClientHost, silent: Time = 0) -> None:
        """A fault has taken a client's server: what it misses until it is served is explained."""
        if client.number not in self._outages:
            self._outages[client.number] = self.faults.add(
                "disconnected", self.now - silent, FOREVER, client.number
            )

    def reported_gone(self, entity: NodeId) -> None:
        """Somebody was told that this one has no state any more."""
        for client in self.clients:
            if self.checker is not None and client.entity == entity and client.state is not None:
                self.checker.reported_gone(client)

    def lost_server(self, client: ClientHost, reason: str) -> None:
        """A client has lost its connection: that needs a reason."""
        if self.checker is not None and client.number not in self._outages:
            self.checker.lost_server(client, reason)
        self._lost(client)

    def served(self, client: ClientHost) -> None:
        span = self._outages.pop(client.number, None)
        if span is not None:
            span.end = self.now
        entities = self._entities.setdefault(client.number, set())
        for entity in entities - {client.entity}:
            self._end_interests(entity, 0)
        entities.add(client.entity)

    # The run.

    @rare_garbage_collection()
    def run(self, progress: Callable[[Time, Time], None] | None = None) -> None:
        """Set up, run, and drain; calls `progress` with the time done and the whole."""
        try:
            self._run(progress)
        except (InvariantError, AssertionError) as why:
            again = repeat_command(self._asked)
            raise InvariantError(f"{why} (seed {self.scenario.seed}); again: {again}") from why

    def _run(self, progress: Callable[[Time, Time], None] | None) -> None:
        if self.begins == START:
            self.set_up()
        p, queue = self._fault_parameters, self.queue
        faults_end = self.begins
        if p.any:
            until = round(p.faults_until * SECOND)
            faults_end = min(self.begins + until, self.ends) if until else self.ends
            rng = stream(self.scenario.seed, "faults")
            ClusterFaultInjector(self, p, rng, faults_end).begin()
        if self._sampling.sample_ms:
            queue.at(self.begins, self._sample)
        slices = 200
        for k in range(1, slices + 1):
            queue.run(self.begins + (self.ends - self.begins) * k // slices)
            if progress is not None:
                progress(queue.now - self.begins, self.ends - self.begins)
        self._player.close()
        if p.any:
            self._recover(faults_end + round(p.recovery_s * SECOND))
            recovered = self.now + 2 * round(self._p.skew_ms * MILLISECOND) + 1
            self.exact_since = min(self.exact_since, recovered)
            self._publish_again()
        self.judge()

    def set_up(self) -> None:
        """Servers join each other, then clients join them."""
        if not self._server_by_id:
            self.set_up_servers()
        later = []
        for t, entity, act in self._population:
            if t == 0 and act is churn.ChurnAction.JOIN:
                self._start(entity)
            else:
                later.append((t, entity, act))
                break
        self.wait("some clients are not served", self._is_served)
        self.begins = self.now
        self._player = WorkloadPlayer(self, self.begins, self.ends)
        for entity in self.nodes:
            self._live(entity, 0)
        if later:
            self._plan_next(later[0])

    def set_up_servers(self) -> None:
        """Servers join each other."""
        for number in range(self._p.servers):
            if number:
                self._machines += 1
            self.restart(FIRST_SERVER + number)
            self.queue.run(self.now + SECOND // 10)
        self.wait("the servers have not joined each other", self._is_connected)
        self.plan(LOOK_EVERY, self._look)

    def wait(self, what: str, condition: Callable[[], bool], most: Time = LONGEST_WAIT) -> None:
        """Run until a condition is true; `what` is wrong if it never is."""
        until = self.now + most
        while not condition():
            if self.now >= until:
                raise InvariantError(f"{what} after {most // SECOND} simulated seconds")
            self.queue.run(self.now + SECOND // 20)

    def _is_connected(self) -> bool:
        others = len(self._server_by_id) - 1
        return all(
            len(one.service.cluster.nodes) == others
            and (one.role is Role.STANDING_BY or one.service.cluster.site.ready)
            for one in self.servers
        )

    def _is_served(self) -> bool:
        return all(client.is_served for client in self.nodes.values())

    def _recover(self, until: Time) -> None:
        """Run until clients and servers have agreed for a while, but not longer than `until`; they
        must have agreed at some moment, before anybody publishes again."""
        disagreed_at, agreed = self.now, False
        while self.now < until and self.now - disagreed_at < AFTER:
            self.queue.run(min(self.now + SECOND // 2, until))
            why = self._disagreement()
            if why is None:
                agreed = True
            else:
                disagreed_at = self.now
        if self.checker is not None and not agreed:
            raise InvariantError(f"at {self.now} the cluster has not recovered: {why}")

    def _publish_again(self) -> None:
        """All clients publish where they are, some times."""
        here = [
            (self.nodes[entity], place) for entity, place in self._places(self.ends - self.begins)
        ]
        for number in range(PROBES):
            for client, place in here:
                spread = self._rng.randint(0, PROBE_EVERY)
                command = Publish(number, point(*place))
                self.plan(number * PROBE_EVERY + spread, partial(client.obey, command))
        self.queue.run(self.now + (PROBES + 1) * PROBE_EVERY)

    def _drain(self) -> None:
        """Run on until publications that are under way have arrived."""
        limit = self.now + round(self._sampling.drain_s * SECOND)
        while self.now < min(self.carrying + 2 * SECOND, limit):
            self.queue.run(min(self.carrying + 2 * SECOND, limit))

    def judge(self) -> None:
        """At the end: all that must hold then."""
        self._drain()
        checker = self.checker
        if checker is None:
            return
        until = self.now + AGREED
        while (why := self._disagreement()) is not None:
            if self.now >= until:
                raise InvariantError(f"at {self.now} {why}")
            self.queue.run(self.now + SECOND // 4)
        self._drain()
        for entities in self._entities.values():
            for entity in entities:
                self._end_interests(entity, 0)
        checker.judge_deliveries(self.exact_since)
        checker.direct.judge(self.exact_since)

    def _disagreement(self) -> str | None:
        """When areas stand still, clients also know who is in them."""
        clients, servers = self.nodes.values(), self.servers
        return disagreement(clients, servers) or wrong_presence(clients, servers)

    def _look(self) -> None:
        if self.checker is not None:
            self.checker.look_at(self.servers)
        self._end_lost_interests()
        self.plan(LOOK_EVERY, self._look)

    # Comings and goings of clients.

    def obey(self, node_id: NodeId, command: Command) -> None:
        self.nodes[node_id].obey(command)

    def add_client(
        self, url: str, *, retains: bool = False, returns: NodeId | None = None
    ) -> ClientHost:
        """A client that a script moves; this is the first address that it knows. Perhaps one that
        was there before."""
        entity = max(self._returns, default=-1) + 1 if returns is None else returns
        self._first_urls[entity] = url
        client = self._start(entity)
        client.retains = retains
        return client

    def _start(self, entity: NodeId) -> ClientHost:
        stay = self._returns[entity] = self._returns.get(entity, -1) + 1
        rng = stream(self.scenario.seed, "client", entity, stay)
        client = ClientHost(self, entity, rng, rng.random() < self._p.retain)
        client.withdraws = stream(self.scenario.seed, "withdraw", entity, stay), self._p.withdraw
        client.sends = stream(self.scenario.seed, "direct", entity, stay), self._p.direct
        client.ttl = self._p.ttl_s or None
        watch = stream(self.scenario.seed, "watch", entity, stay)
        client.watches = watch.random() < self._p.watch
        self.nodes[entity] = client
        self._count_clients()
        client.open()
        return client

    def _live(self, entity: NodeId, begins: Time) -> None:
        life = self.workload.life(entity, self._returns[entity], begins)
        self._lives[entity] = life
        self._player.enter(entity, life)

    def _plan_next(self, act: tuple[Time, NodeId, churn.ChurnAction] | None) -> None:
        if act is not None:
            self.queue.at(self.begins + act[0], partial(self._come_or_go, act))

    def _come_or_go(self, act: tuple[Time, NodeId, churn.ChurnAction]) -> None:
        _, entity, what = act
        if what is churn.ChurnAction.JOIN:
            if entity not in self.nodes and self._returns.get(entity, -1) + 1 < STAYS:
                self._start(entity)
                self._live(entity, self.now - self.begins + 1)
        else:
            self._player.leave(entity)
            client = self.nodes[entity]
            if what is churn.ChurnAction.LEAVE:
                self.leave_client(client)
            else:
                self.crash_client(client)
        self._plan_next(next(self._population, None))

    def _remove_client(self, client: ClientHost) -> None:
        del self.nodes[client.number]
        self._count_clients()
        if self.checker is not None:
            self.checker.gone(client)

    def _count_clients(self) -> None:
        if self.checker is not None:
            self.checker.scaling.count(len(self.nodes))

    def leave_client(self, client: ClientHost) -> None:
        """A client leaves. What its server sends until it knows of that, nobody receives."""
        self._remove_client(client)
        self.faults.add("left", self.now, self.now, client.number)
        client.obey(Leave())

    def crash_client(self, client: ClientHost) -> None:
        """A client is no more; its servers find out."""
        self._remove_client(client)
        self.note_fault("crashed", client.entity)
        self.faults.add("crashed", self.now, FOREVER, client.number)
        for connection in client.connections.values():
            tell = partial(connection.server.on_connection_lost, connection)
            self.plan(self._soon(), tell)
        client.kill()

    # Samples.

    def _places(self, t: Time) -> list[tuple[NodeId, Vector]]:
        return [(entity, self._lives[entity].position(t)) for entity in sorted(self.nodes)]

    def _sample(self) -> None:
        for entity, place in self._places(self.now - self.begins):
            client = self.nodes[entity]
            if client.entity >= 0:
                self.recorder.position(self.now, client.entity, *place)
        after = round(self._sampling.sample_ms * MILLISECOND)
        if self.now + after < self.ends:
            self.plan(after, self._sample)


def _url(machine: MachineId) -> str:
    return f"ws://server-{machine - FIRST_SERVER}"


def repeat_command(scenario: Scenario) -> str:
    """The command that repeats a run."""
    words = [
        "nearcast", "simulate", scenario.protocol, "--workload", scenario.workload,
        "--nodes", str(scenario.nodes), "--seconds", f"{scenario.seconds:g}",
        "--seed", str(scenario.seed),
    ]  # fmt: skip
    for name, value in scenario.settings.items():
        words += ["--set", f"{name}={value}"]
    return shlex.join([*words, "--trace", "DIR"])
