"""Nodes of a cluster in a time that we make: any delay, any halt, and the same again for each seed.

Members, realms and sites are the product's own; only clock, links and clients' connections are
simulated. Clients stay on their nodes here, wherever they walk; so publications take every route
that there is.
"""

import heapq
from collections import defaultdict
from contextlib import suppress
from functools import partial
from itertools import count
from random import Random
from typing import Any

from nearcast.client_protocol import messages
from nearcast.client_protocol.geometry_json import Area
from nearcast.client_protocol.limits import Limits
from nearcast.errors import Busy
from nearcast.matching import MATCHERS
from nearcast.node import Effect, Send, SendMany, SetTimer, Timer
from nearcast.protocols.voronoi.vso_parameters import Parameters
from nearcast.service.client_state import ClientState, FlushDeliveries
from nearcast.service.cluster.messages import CODEC, ClusterJoinRequest
from nearcast.service.cluster.realm import ClusterRealm
from nearcast.service.cluster.remote_subscriptions import first_number
from nearcast.service.cluster.service import CLUSTER_TICK, ClusterService
from nearcast.service.effects import DeliverFlush, Fault
from nearcast.service.service import FLUSH
from nearcast.space.motion import SECOND, Time
from nearcast.trace.recorder import Recorder
from nearcast.trace.sinks import MemoryTrace
from support.brute_force import delivered, expected

SIDE, CLIENTS = 200.0, 8  # of the world; of each node
FLUSH_S = 0.005
PARAMETERS = Parameters(limit=1000.0, insertion_trigger=0, departure_trigger=1000)


class SimulatedNode:
    """A node: its service, hosted in simulated time."""

    parameters = PARAMETERS

    def __init__(self, sim_cluster: "SimulatedCluster", number: int) -> None:
        self.sim_cluster, self.number, self.name = sim_cluster, number, number
        self.flush_at: Time | None = None
        self.halted: Time = 0  # until when it stands still
        self.realm = ClusterRealm(
            MATCHERS["swept"](), Limits(), sim_cluster.recorder, first_number(number)
        )
        rng = Random(f"{sim_cluster.seed} {number}")
        self.service = ClusterService(number, rng, self.realm, Limits(), self.parameters)
        self.member = self.service.cluster
        self.clients: list[ClientState] = []
        self.received: dict[int, list[tuple[int, Time, int]]] = defaultdict(list)
        self.serve()

    def serve(self) -> None:
        """Starts to serve clients."""
        self.apply(self.service.start(self.now()))

    def apply(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Send(to, message):
                    self.sim_cluster.carry(self.number, to, CODEC.encode(message))
                case SendMany(targets, message):
                    for to in targets:
                        self.sim_cluster.carry(self.number, to, CODEC.encode(message))
                case SetTimer(timer, delay):
                    if timer == FLUSH:
                        self.schedule_flush(delay / SECOND)
                    else:
                        self.sim_cluster.at(self.now() + delay, self, partial(self.wake, timer))
                case DeliverFlush():
                    self.deliver(effect.flushed)
                case Fault():
                    raise effect.error

    def wake(self, timer: Timer) -> None:
        self.apply(self.service.wake(self.now(), timer))

    def receive(self, sender: int, frame: bytes) -> None:
        self.apply(self.service.receive(self.now(), sender, CODEC.decode(frame)))

    def now(self) -> Time:
        return self.sim_cluster.now

    def schedule_flush(self, after: float = 0.0) -> None:
        if self.flush_at is None:
            self.flush_at = self.now() + int(SECOND * max(after, FLUSH_S))
            self.sim_cluster.at(self.flush_at, self, self.flush)

    def flush(self) -> None:
        self.flush_at = None
        self.wake(FLUSH)

    def deliver(self, flushed: FlushDeliveries) -> None:
        self.realm.record_deliveries(max(self.now(), flushed.t), flushed)
        for client, index in zip(
            flushed.client.tolist(), flushed.publication.tolist(), strict=True
        ):
            one = flushed.publications[index]
            self.received[client].append((one.client.entity, one.t or flushed.t, one.id))


class SimulatedCluster:
    """So many nodes that know each other. `node_type`: the class of simulated nodes."""

    def __init__(
        self, seed: int, nodes: int, node_type: type[SimulatedNode] = SimulatedNode
    ) -> None:
        self.seed, self.random, self.now = seed, Random(seed), 10**12
        self.memory = MemoryTrace()
        self.recorder = Recorder(self.memory, "all")
        self._due: list[tuple[Time, int, int, Any, Any]] = []
        self._order = count()
        self._last: dict[tuple[int, int], Time] = defaultdict(int)
        self.cut_until: dict[tuple[int, int], Time] = defaultdict(int)  # links that carry nothing
        self.links: dict[tuple[int, int], int] = defaultdict(int)  # how often they were broken
        self.nodes = {number: node_type(self, number) for number in range(1, nodes + 1)}
        for number, node in self.nodes.items():
            place = self.random.uniform(0, SIDE), self.random.uniform(0, SIDE)
            node.member.url, node.member.joined = f"ws://{number}", True
            if number == 1:
                node.member.site.found(place)
            else:
                node.member.site.join(place, 1, 1)
                self.carry(number, 1, CODEC.encode(ClusterJoinRequest(f"ws://{number}")))
            node.wake(CLUSTER_TICK)
            self.run(0.3)
        self.run(2.0)
        assert all(len(node.member.nodes) == nodes - 1 for node in self.nodes.values())

    def at(self, t: Time, node: Any, act: Any, rank: int = 0) -> None:
        """`rank` orders what a node finds to do when it has stood still."""
        heapq.heappush(self._due, (t, rank, next(self._order), node, act))

    def carry(self, sender: int, to: int, frame: bytes) -> None:
        """Some milliseconds, sometimes much longer; nothing overtakes on one link."""
        slow = self.random.random() < 0.03
        takes = self.random.randrange(1_000, 400_000 if slow else 4_000)
        arrives = max(self._last[sender, to], self.now + takes, self.cut_until[sender, to])
        self._last[sender, to] = arrives
        link = self.links[sender, to]
        self.at(arrives, self.nodes[to], partial(self._arrive, sender, to, frame, link))

    def _arrive(self, sender: int, to: int, frame: bytes, link: int) -> None:
        if link == self.links[sender, to]:
            self.nodes[to].receive(sender, frame)

    def run(self, seconds: float) -> None:
        until = self.now + int(seconds * SECOND)
        while self._due and self._due[0][0] <= until:
            t, rank, order, node, act = heapq.heappop(self._due)
            if node.halted > t:  # later, in the order in which it came
                heapq.heappush(self._due, (node.halted, rank, order, node, act))
                continue
            self.now = max(t, self.now)
            act()
        self.now = until

    def settle(self) -> None:
        for node in self.nodes.values():
            for number in range(CLIENTS):
                client = node.realm.join(self.now, f"c{number}", messages.MSGPACK)
                node.clients.append(client)
                node.realm.subscribe(self.now, client, messages.SubscribeRequest(1, self._area()))
                if number % 3 == 0:
                    node.realm.subscribe(
                        self.now, client, messages.SubscribeRequest(2, self._area())
                    )
        self.run(1.0)

    def _area(self) -> Area:
        random = self.random
        x, y = random.uniform(0, SIDE), random.uniform(0, SIDE)
        if random.random() < 0.3:
            return Area(x, y, r=30.0, vx=random.uniform(-30, 30), vy=random.uniform(-30, 30))
        return Area(x, y, r=random.uniform(20.0, 60.0))

    def live(self, seconds: float, burst: int = 1) -> None:
        """Clients walk and publish, some change their subscriptions, nodes stand still."""
        random, end = self.random, self.now + int(seconds * SECOND)
        places = {
            client.entity: [random.uniform(0, SIDE), random.uniform(0, SIDE)]
            for node in self.nodes.values() for client in node.clients
        }  # fmt: skip
        while self.now < end:
            self.run(random.uniform(0.0, 0.01))
            node = random.choice(list(self.nodes.values()))
            if random.random() < 0.02:
                node.halted = max(node.halted, self.now + random.randrange(300_000))
            client = random.choice(node.clients)
            where = places[client.entity]
            for axis in (0, 1):
                where[axis] = min(max(where[axis] + random.uniform(-20, 20), 0.0), SIDE)
            radius = 25.0 if random.random() < 0.1 else None
            request = messages.PublishRequest(*where, r=radius)
            for _ in range(random.randrange(burst) + 1):
                self.at(self.now, node, partial(self._publish, node, client, request))
            if random.random() < 0.2:
                asked = messages.MoveRequest(1, self._area())
                self.at(self.now, node, partial(self._move, node, client, asked))
        self.run(4.0)

    def _publish(
        self, node: SimulatedNode, client: ClientState, request: messages.PublishRequest
    ) -> None:
        with suppress(Busy):
            node.realm.publish(client, request, messages.MSGPACK)
        node.schedule_flush()

    def _move(self, node: SimulatedNode, client: ClientState, asked: messages.MoveRequest) -> None:
        node.realm.move(self.now, client, asked)


def check(seed: int, busy: bool = False) -> None:
    """Whatever the delays, every client receives everything, once and in order.

    `busy`: a flush publishes one thing at a time, so that much is left for later ones.
    """
    sim_cluster = SimulatedCluster(seed, nodes=3 + seed % 3)
    for node in sim_cluster.nodes.values() if busy else ():
        node.realm.accounts.bound = 1
    sim_cluster.settle()
    sim_cluster.live(1.5 if busy else 6.0, burst=6 if busy else 1)
    if busy:
        assert all(node.realm.accounts.cut_short > 10 for node in sim_cluster.nodes.values())
    sim_cluster.recorder.close()
    truth = expected(
        sim_cluster.memory.table("interests"), sim_cluster.memory.table("publications")
    )
    deliveries = delivered(sim_cluster.memory.table("deliveries"))
    assert len(deliveries) == len(set(deliveries)) > 500
    assert set(deliveries) == truth
    for node in sim_cluster.nodes.values():
        for received in node.received.values():
            last: dict[int, tuple[Time, int]] = {}
            for source, t, number in dict.fromkeys(received):
                assert (t, number) > last.get(source, (0, 0)), "in order"
                last[source] = t, number
