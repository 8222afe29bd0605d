"""What a cluster costs: server CPU per useful delivery with 1 node, 2 and 4, measured in turns.

All of them gather for 50 ms (`prompt = 0`): by default, a node with less to do would gather less at
a time and spend more on each delivery. So it does still, since each client gets less at a time of
each node that it hears: 2 nodes are compared with 1 that has all their clients, and with 1 that has
half of them. 4 nodes are compared with 1 that has all their clients, half as many: more are too
many for a machine with two cores.

The clients of `benchmarks/live_load.py` walk the same ways whatever the number of nodes: 1,000 of
them, twenty publications of 64 bytes a second each, about twenty others within 50 units. They all
join the first node. The others start then, so that their sites are where the clients are, and the
borders between the nodes are the same in each turn. Clients follow when they are sent to another
node (`moved`); they say little until that has calmed down, and then measuring begins. CPU is that
of all nodes together, user and system.

A shared machine is slower in one minute than in the next: so each turn measures everything once,
and medians are compared. The load's own CPU per delivery, which does the same work in each case,
tells how fast the machine was; the ratio to it is compared, too. A machine that is too busy for the
pace gathers fewer publications at a time, which is not what is asked for; and where clients hear
less than nine tenths of what they should, some of them are not where they are served. Such a
measurement is shown, but counts only if there is no other.

Run: python benchmarks/cluster.py [seconds] [clients] [turns]
"""

import re
import resource
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from time import process_time, sleep, time
from typing import NamedTuple

from live import RATE, RECEIVERS, ended
from live_load import Load, Nearcast, cpu_seconds

JOINED_S = 3.0  # for the first node to know all subscriptions
CALM_S = 14.0  # for sites to find their places, and clients their nodes
PACE, HEARD = 0.9, 0.9 * RECEIVERS  # of a measurement that counts; HEARD: of each publication
SLOWLY = 2.0  # publications a second of each client meanwhile
WANTED = {2: 1.3, 4: 1.5}  # times as much CPU for a delivery with so many nodes as with 1
MOVED = re.compile(rb"\x93\x0c.ws://127\.0\.0\.1:(\d+).{1,2}([0-9a-f]{48})", re.DOTALL)
NODE = """
import sys
from nearcast.server.config import ClusterSettings, LimitSettings, Settings
from nearcast.server.server import serve
key, join = sys.argv[1:]
limits = LimitSettings(clients=20_000)
def ready(node):
    links = node.cluster_host.links if node.cluster_host else None
    print(node.port, links.port if links else 0, flush=True)
cluster = ClusterSettings(key=key, join=join)
serve(Settings(port=0, record=False, prompt=0.0, limits=limits, cluster=cluster), ready)
"""


class Follower(Load):
    """Clients that go where they are sent."""

    def __init__(
        self, ports: list[int], clients: int, rate: float = RATE, receivers: float = RECEIVERS
    ) -> None:
        self.ports, self.moves = ports, 0  # of all nodes, also of those that start later
        self._next: dict[int, socket.socket] = {}
        self._old: list[tuple[float, int, socket.socket]] = []
        super().__init__("nearcast", ports[0], clients, rate, receivers)

    def read(self, clients: Iterable[int]) -> int:
        clients = list(clients)
        total = super().read(clients)
        if len(self.ports) > 1:
            for client in clients:
                self._follow_on(client)
            self._close_old()
        return total

    def look(self, client: int, stream: memoryview) -> None:
        told = MOVED.search(stream)
        if told is not None and client not in self._next:
            new = socket.create_connection(("127.0.0.1", int(told[1])))
            new.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            speech = self.speeches[client]
            assert isinstance(speech, Nearcast)
            new.sendall(speech.hello(told[2].decode()))
            new.setblocking(False)
            self._next[client] = new

    def _follow_on(self, client: int) -> None:
        waiting = self._next.get(client)
        if waiting is None:
            return
        try:
            welcome = waiting.recv(1 << 16)
        except BlockingIOError:
            return
        if b"limits" in welcome or b"subscriptions" in welcome:
            self._old.append((self.now() + 1.0, client, self.sockets[client]))
            self.sockets[client] = waiting
            self.left[client], self.moves = welcome, self.moves + 1
        elif b"101" in welcome:
            return
        del self._next[client]
        if self.sockets[client] is not waiting:  # it may be sent on at once
            self.look(client, memoryview(welcome))

    def _close_old(self) -> None:
        while self._old and self._old[0][0] < self.now():
            self._old.pop(0)[2].close()


class Nodes:
    """The processes of the nodes of one cluster; a single one is in no cluster."""

    def __init__(self, stack: ExitStack, key: str) -> None:
        self._stack, self._key = stack, key
        self.pids: list[int] = []
        self.ports: list[int] = []
        self._join = ""

    def start(self) -> None:
        """Start one more node."""
        command = [sys.executable, "-c", NODE, self._key, self._join]
        node = subprocess.Popen(command, stdout=subprocess.PIPE)
        self._stack.enter_context(ended(node))
        assert node.stdout is not None
        port, other = map(int, node.stdout.readline().split())
        self._join = self._join or f"127.0.0.1:{other}"
        self.pids.append(node.pid)
        self.ports.append(port)

    def cpu_seconds(self) -> float:
        return sum(sum(cpu_seconds(pid)) for pid in self.pids)


class Cost(NamedTuple):
    """Of one measurement: µs of CPU per useful delivery, and what else tells of it."""

    nodes: float
    load: float  # of the clients, in this process
    pace: float  # of what was asked for
    receivers: float  # of a publication
    moves: float  # clients that changed nodes, a second
    heard: float  # useful deliveries a second


def measure(
    nodes: int, clients: int, seconds: float, rate: float = RATE, receivers: float = RECEIVERS
) -> Cost:
    """In this process: the load, and what it cost."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        running = Nodes(stack, str(Path(folder) / "key") if nodes > 1 else "")
        running.start()
        load = Follower(running.ports, clients, rate, receivers)
        load.walks.begin(load.now())
        load.tick = 1 / SLOWLY
        load.run(round(JOINED_S * SLOWLY))
        for _ in range(1, nodes):
            running.start()
        load.run(round(CALM_S * SLOWLY))
        load.tick = 1 / rate
        load.run(round(2 * rate))
        load.settle()
        load.messages = load.useful = load.published = load.late = load.moves = 0
        before, own, began = running.cpu_seconds(), process_time(), time()
        load.run(round(seconds * rate))
        wall = time() - began
        heard = load.useful / wall
        load.settle()
        spent, own = running.cpu_seconds() - before, process_time() - own
    return Cost(
        1e6 * spent / load.useful, 1e6 * own / load.useful, seconds / wall,
        load.useful / load.published, load.moves / wall, heard,
    )  # fmt: skip


def tell(nodes: int, clients: int, cost: Cost) -> None:
    print(
        f"{nodes} node{'s' * (nodes > 1)}, {clients:,} clients x {RATE:g} Hz: {cost.nodes:.2f} µs"
        f" of CPU per useful delivery (the load {cost.load:.2f}); {cost.receivers:.1f} deliveries"
        f" per publication, {cost.moves:.1f} clients a second changed nodes;"
        f" {100 * cost.pace:.0f} % of the pace",
        flush=True,
    )


def summarize(case: tuple[int, int], costs: list[Cost]) -> tuple[float, float]:
    """Medians of what the nodes cost, in µs and against the load; of those that count."""
    kept = [cost for cost in costs if cost.pace >= PACE and cost.receivers >= HEARD]
    none, kept = not kept, kept or costs
    micros = [cost.nodes for cost in kept]
    nodes, clients = case
    print(
        f"{nodes} node{'s' * (nodes > 1)}, {clients:,} clients: median {median(micros):.2f} µs,"
        f" from {min(micros):.2f} to {max(micros):.2f}; {len(kept)} of {len(costs)} turns counted"
        f"{', though none kept the pace and heard all' if none else ''}"
    )
    return median(micros), median(cost.nodes / cost.load for cost in kept)


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 6.0
    clients = int(sys.argv[2]) if len(sys.argv) > 2 else 1_000
    turns = int(sys.argv[3]) if len(sys.argv) > 3 else 2
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    costs: dict[tuple[int, int], list[Cost]] = {
        (1, clients): [], (2, clients): [], (1, clients // 2): [], (4, clients // 2): []
    }  # fmt: skip
    for _ in range(turns):
        for case, several in costs.items():
            several.append(measure(*case, seconds))
            tell(*case, several[-1])
            sleep(1.0)
    medians = {case: summarize(case, several) for case, several in costs.items()}
    for nodes, several, beside, what in (
        (2, clients, clients, "all the clients"),
        (2, clients, clients // 2, "as many clients each"),
        (4, clients // 2, clients // 2, "all the clients"),
    ):
        pairs = zip(medians[nodes, several], medians[1, beside], strict=True)
        times, against_load = (more / one for more, one in pairs)
        print(
            f"{nodes} nodes cost {times:.2f} times as much as 1 node with {what}"
            f" ({against_load:.2f} against the load's own CPU); wanted: at most {WANTED[nodes]}:"
            f" {'held' if times <= WANTED[nodes] else 'missed'}"
        )


if __name__ == "__main__":
    main()
