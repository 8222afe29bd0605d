"""What a cluster's cores cost: CPU per delivery with 1 node and with 2, in virtual time.

`benchmarks/cluster.py` measures nodes as processes, whose flushes follow the clock: on a machine
that others use as well they gather less at a time, and no two turns do the same work. Here the
services run in one process, without sockets, and a heap of moments is their clock. So every turn
does exactly the same work, input by input, whatever else the machine does. Others slow an input
down, and never speed it up: the least CPU that it took in any turn is closest to the truth. The
sum of these is the result; the turns' own sums tell how busy the machine was.

The clients are those of `cluster.py`; they go where they are sent. Measured are decoding of
requests, the services, frames joined for each client, and messages between nodes, encoded and
decoded. What WebSocket, TLS and the kernel cost is not in it, and is about the same for 1 node
and for 2: so the difference between them is what counts, not their ratio.

Run: python benchmarks/cluster_cores.py [seconds] [clients] [turns]
"""

import gc
import heapq
import struct
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import count, pairwise
from random import Random
from statistics import median
from time import process_time_ns

import msgspec
import numpy as np
from live import RATE, RECEIVERS
from live_load import LEG_S, MAGIC, PAYLOAD, SLOTS, Nearcast, Walks

from nearcast.client_protocol import messages
from nearcast.matching import MATCHERS
from nearcast.matching.matcher import Floats
from nearcast.model.subscription import NodeId
from nearcast.node import Effect, Send, SendMany, SetTimer, Timer
from nearcast.protocols.voronoi.vso.parameters import Parameters
from nearcast.server.config import LimitSettings
from nearcast.service.access.grants import Grant
from nearcast.service.cluster.messages import CODEC
from nearcast.service.cluster.realm import ClusterRealm
from nearcast.service.cluster.remote_subscriptions import first_number
from nearcast.service.cluster.service import ClusterService
from nearcast.service.connection import Connection
from nearcast.service.effects import DeliverFlush, Fault, Refuse, Reply
from nearcast.service.frames import delivery_frames
from nearcast.service.realm import Realm
from nearcast.service.service import FLUSH, Service
from nearcast.space.motion import SECOND, Time

FLUSH_EVERY: Time = SECOND // 20  # the longest pause of a gateway, which a busy one makes
LINK: Time = 300  # µs from node to node
STAYS: Time = SECOND  # a client that was moved keeps its old connection so long
NODES = 1_000, 8_919
CALM_S = 8.0  # for clients to find their nodes, at `SLOWLY` publications a second
SLOWLY = 2.0
LIMITS = LimitSettings(clients=20_000)
FORM = messages.MSGPACK


class Client(Connection):
    """A client, or its connection to one node."""

    def __init__(self, node: "Node", number: int) -> None:
        super().__init__(10**9, node.world.now / SECOND)
        self.encoding, self.node, self.number = FORM, node, number


class Node:
    """A node without sockets."""

    def __init__(self, world: "World", number: NodeId, alone: bool) -> None:
        self.world, self.id = world, number
        if alone:
            realm = Realm(MATCHERS["keyed"](), LIMITS, None)
            self.service = Service(number, Random(1), realm, LIMITS, clients=LIMITS.clients)
        else:
            parameters = Parameters(
                limit=1e5, insertion_trigger=0, departure_trigger=1000, site_beat_ms=1000.0
            )
            self.service = ClusterService(
                number, Random(1),
                ClusterRealm(MATCHERS["keyed"](), LIMITS, None, first_number(number)),
                LIMITS, parameters, clients=LIMITS.clients,
            )  # fmt: skip
        self._packed = np.ones(LIMITS.clients, np.bool_)
        self._credit = np.full(LIMITS.clients, 2**40)
        self._unread: list[tuple[Client, bytes]] = []  # publications that were not handled yet
        self._timers: dict[Timer, object] = {}
        self._flush_planned, self._not_before = False, 0
        self.apply(self.service.start(world.now))

    def apply(self, effects: Iterable[Effect]) -> None:
        world = self.world
        for effect in effects:
            match effect:
                case DeliverFlush(flushed):
                    post = delivery_frames(flushed, self.service.realm.numbers, self._packed)
                    starts = post.starts.tolist()
                    for first, last in pairwise(starts):
                        b"".join(post.frames(first, last))
                    world.deliveries += len(post.which)
                case Send(to, message):
                    self._send([to], CODEC.encode(message))
                case SendMany(several, message):
                    self._send(several, CODEC.encode(message))
                case SetTimer(timer, delay) if timer == FLUSH:
                    self.plan_flush(delay)
                case SetTimer(timer, delay):
                    token = self._timers[timer] = object()
                    world.plan(delay, lambda t=timer, o=token: self._wake(t, o))
                case Reply(connection, messages.MovedNotice(to, ticket)):
                    world.plan(LINK, lambda c=connection, n=to, t=ticket: world.move(c, n, t))
                case Refuse() | Fault():
                    raise SystemExit(str(effect))

    def _send(self, to: Iterable[NodeId], frame: bytes) -> None:
        for node in to:
            if node in self.world.nodes:
                other = self.world.nodes[node]
                self.world.plan(LINK, lambda o=other: o.receive(self.id, frame))

    def receive(self, sender: NodeId, frame: bytes) -> None:
        with self.world.measured:
            self._handle_publications()
            arrivals = [(sender, CODEC.decode(frame))]
            self.apply(self.service.receive_many(self.world.now, arrivals))

    def _wake(self, timer: Timer, token: object) -> None:
        if self._timers.get(timer) is token:
            with self.world.measured:
                self._handle_publications()
                self.apply(self.service.wake(self.world.now, timer))

    def plan_flush(self, after: Time = 0) -> None:
        if not self._flush_planned:
            self._flush_planned = True
            self.world.plan(max(after, self._not_before - self.world.now), self._flush)

    def _flush(self) -> None:
        self._flush_planned, self._not_before = False, self.world.now + FLUSH_EVERY
        with self.world.measured:
            self._handle_publications()
            self.apply(self.service.wake(self.world.now, FLUSH))

    def _handle_publications(self) -> None:
        """In columns, as a gateway does."""
        unread = [(one, frame) for one, frame in self._unread if one.client is not None]
        self._unread = []
        if not unread:
            return

        def handle(which: int) -> None:
            client, frame = unread[which]
            self.service.publish(client, FORM.decode_request(frame), FORM)

        slots = np.array([one.client.slot for one, _ in unread if one.client is not None])
        frames = [frame for _, frame in unread]
        self.service.realm.publish_plain(slots, frames, self._credit, handle)

    def read(self, requests: Iterable[tuple[Client, bytes]]) -> None:
        service, now = self.service, self.world.now
        with self.world.measured:
            for client, frame in requests:
                if client.elsewhere is not None:
                    assert isinstance(service, ClusterService)
                    self.apply(service.forward(now, client, frame, True))
                    continue
                if messages.is_publish_frame(frame):
                    self._unread.append((client, frame))
                    self.plan_flush()
                    continue
                self._handle_publications()
                request = FORM.decode_request(frame)
                if FORM.message_class(request) is messages.JoinRequest:
                    self.apply(service.join(now, client, request, Grant()))
                else:
                    kind = FORM.message_class(request)
                    self.apply(service.request(now, client, kind, request))


class Measured:
    """CPU that is spent within each `with`, in ns."""

    def __init__(self) -> None:
        self.spent: list[int] = []
        self._began = 0

    def __enter__(self) -> None:
        self._began = process_time_ns()

    def __exit__(self, *_: object) -> None:
        self.spent.append(process_time_ns() - self._began)


class World:
    """Nodes, clients, and the moments at which something happens."""

    def __init__(self, nodes: int, clients: int) -> None:
        self.now: Time = SECOND
        self._heap: list[tuple[Time, int, Callable[[], None]]] = []
        self._numbers = count()
        self.measured, self.deliveries, self.moves = Measured(), 0, 0
        first = Node(self, NODES[0], nodes == 1)
        self.nodes = {first.id: first}
        if nodes > 1:
            first.apply(first.service.found_cluster(self.now, str(first.id)))
        self._speech = Nearcast()
        self.walks = Walks(clients, RECEIVERS)
        self.walks.begin(0.0)
        self.clients = [Client(first, number) for number in range(clients)]
        for client in self.clients:
            x, y = self.walks.at(client.number, 0.0)
            self._join(client, [2, "load"])
            first.read([(client, _payload(self._speech.follow(x, y, 0.0, 0.0, True)))])
        self.play(1.0, SLOWLY)
        for number in NODES[1:nodes]:
            self.nodes[number] = node = Node(self, number, False)
            node.apply(node.service.join_cluster(self.now, str(number), first.id))
        self.play(CALM_S, SLOWLY)

    def plan(self, after: Time, act: Callable[[], None]) -> None:
        heapq.heappush(self._heap, (self.now + after, next(self._numbers), act))

    def _run(self, until: Time) -> None:
        while self._heap and self._heap[0][0] <= until:
            self.now, _, act = heapq.heappop(self._heap)
            act()
        self.now = until

    def _join(self, client: Client, request: list[object]) -> None:
        client.node.apply(client.node.service.open(self.now, client))
        client.node.read([(client, msgspec.msgpack.encode(request))])

    def move(self, client: Client, to: str, ticket: str) -> None:
        """The client goes where it is sent."""
        new = Client(self.nodes[int(to)], client.number)
        self._join(new, [2, "load", "", None, ticket])
        self._moved(client, new)

    def _moved(self, client: Client, new: Client) -> None:
        if new.client is None:
            if not new.ended:
                self.plan(SECOND // 500, lambda: self._moved(client, new))
            return
        self.clients[client.number], self.moves = new, self.moves + 1
        self.plan(STAYS, lambda: self._close(client))

    def _close(self, client: Client) -> None:
        if not client.ended:
            client.node.apply(client.node.service.close(self.now, client))

    def play(self, seconds: float, rate: float) -> None:
        """Everybody publishes at this rate, in groups one after the other."""
        began, groups = self.now, [range(s, len(self.clients), SLOTS) for s in range(SLOTS)]
        for slot in range(round(seconds * rate) * SLOTS):
            self._run(began + round(slot * SECOND / rate / SLOTS))
            requests: dict[Node, list[tuple[Client, bytes]]] = {}
            for number in groups[slot % SLOTS]:
                client = self.clients[number]
                requests.setdefault(client.node, []).extend(
                    (client, frame) for frame in self._frames(number)
                )
            for node, several in requests.items():
                node.read(several)
        self._run(self.now + SECOND // 4)

    def _frames(self, client: int) -> Iterable[bytes]:
        t, walks, speech = (self.now - SECOND) / SECOND, self.walks, self._speech
        x, y = walks.at(client, t)
        if t - walks.since[client] > LEG_S:
            walks.turn(client, t)
            vx, vy = walks.velocity[client].tolist()
            yield _payload(speech.follow(x, y, vx, vy, False))
        payload = (MAGIC + struct.pack("ddd", t, x, y)).ljust(PAYLOAD, b".")
        yield _payload(speech.publish(x, y, payload))


def _payload(frame: bytes) -> bytes:
    """Without the head of a short masked frame."""
    return frame[6:] if frame[1] & 127 < 126 else frame[8:]


def measure(nodes: int, clients: int, seconds: float) -> tuple[Floats, str]:
    """µs of CPU per delivery for each input, and what else there is to say."""
    world = World(nodes, clients)
    world.play(1.0, RATE)
    gc.collect()
    world.measured.spent.clear()
    world.deliveries = world.moves = 0
    world.play(seconds, RATE)
    shares = Counter(client.node.id for client in world.clients)
    about = f"{world.deliveries:,} deliveries, {world.moves} clients changed nodes"
    cost = np.array(world.measured.spent) / 1000 / world.deliveries
    return cost, f"{about}; clients of each node: {', '.join(map(str, shares.values()))}"


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 4.0
    clients = int(sys.argv[2]) if len(sys.argv) > 2 else 1_000
    turns = int(sys.argv[3]) if len(sys.argv) > 3 else 5
    costs: dict[int, list[Floats]] = {1: [], 2: []}
    for _ in range(turns):
        for nodes, several in costs.items():
            cost, about = measure(nodes, clients, seconds)
            several.append(cost)
            print(f"{name(nodes)}: {cost.sum():.3f} µs per delivery; {about}", flush=True)
    least = {nodes: float(np.min(several, axis=0).sum()) for nodes, several in costs.items()}
    for nodes, several in costs.items():
        sums = [float(cost.sum()) for cost in several]
        print(
            f"{name(nodes)}: {least[nodes]:.3f} µs per delivery, each input at its fastest;"
            f" turns from {min(sums):.3f} to {max(sums):.3f}, median {median(sums):.3f}"
        )
    print(f"2 nodes spend {least[2] - least[1]:.3f} µs more on a delivery than 1")


def name(nodes: int) -> str:
    return f"{nodes} node{'s' * (nodes > 1)}"


if __name__ == "__main__":
    main()
