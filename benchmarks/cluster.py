"""What a cluster costs: server CPU per useful delivery with 1 node and with 2.

A node with less to do gathers less at a time and spends more on each delivery, so 2 nodes are
compared with 1 that has all their clients, and with 1 that has half of them.

The clients of `benchmarks/live_load.py` walk the same ways whatever the number of nodes: 1,000 of
them, twenty publications of 64 bytes a second each, about twenty others within 50 units. They go to
the nodes in turns at first, and follow when they are sent to another (`moved`), as clients do; they
say little until that has calmed down, and then measuring begins. CPU is that of all nodes together,
user and system.

Run: python benchmarks/cluster.py [seconds] [clients]
"""

import re
import resource
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import sleep, time

from live import RATE, RECEIVERS, ended
from live_load import Load, Nearcast, cpu_seconds

CALM_S = 14.0  # for sites to find their places, and clients their nodes
SLOWLY = 2.0  # publications a second of each client meanwhile
WANTED = 1.3  # times as much CPU for a delivery with 2 nodes as with 1
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
serve(Settings(port=0, record=False, limits=limits, cluster=cluster), ready)
"""


class Follower(Load):
    """Clients that go where they are sent."""

    def __init__(self, ports: list[int], clients: int) -> None:
        self.ports, self.moves = ports, 0
        self._next: dict[int, socket.socket] = {}
        self._old: list[tuple[float, int, socket.socket]] = []
        super().__init__("nearcast", ports[0], clients, RATE, RECEIVERS)

    def connect(self, client: int, port: int) -> socket.socket:  # noqa: ARG002
        return super().connect(client, self.ports[client % len(self.ports)])

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

    def _close_old(self) -> None:
        while self._old and self._old[0][0] < self.now():
            self._old.pop(0)[2].close()


@contextmanager
def cluster(folder: Path, nodes: int) -> Iterator[tuple[list[int], list[int]]]:
    """Their process ids and ports; a single one is in no cluster."""
    key = str(folder / "key") if nodes > 1 else ""
    pids, ports, join = [], [], ""
    with ExitStack() as stack:
        for _ in range(nodes):
            node = subprocess.Popen([sys.executable, "-c", NODE, key, join], stdout=subprocess.PIPE)
            stack.enter_context(ended(node))
            assert node.stdout is not None
            port, other = map(int, node.stdout.readline().split())
            join = join or f"127.0.0.1:{other}"
            pids.append(node.pid)
            ports.append(port)
        yield pids, ports


def spent(pids: list[int]) -> float:
    return sum(sum(cpu_seconds(pid)) for pid in pids)


def measure(pids: list[int], ports: list[int], clients: int, seconds: float) -> dict[str, float]:
    """In this process: the load, and what it cost."""
    load = Follower(ports, clients)
    load.walks.begin(load.now())
    load.tick = 1 / SLOWLY
    load.run(round(CALM_S * SLOWLY))
    load.tick = 1 / RATE
    load.run(round(2 * RATE))
    load.settle()
    load.messages = load.useful = load.published = load.late = load.moves = 0
    before, began = spent(pids), time()
    load.run(round(seconds * RATE))
    wall = time() - began
    load.settle()
    return {
        "cpu": spent(pids) - before, "useful": load.useful, "published": load.published,
        "wall": wall, "moves": load.moves,
    }  # fmt: skip


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 10.0
    clients = int(sys.argv[2]) if len(sys.argv) > 2 else 1_000
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    costs: dict[tuple[int, int], float] = {}
    for nodes, crowd in ((1, clients), (1, clients // 2), (2, clients)):
        with tempfile.TemporaryDirectory() as folder, cluster(Path(folder), nodes) as (pids, ports):
            told = measure(pids, ports, crowd, seconds)
        cost = costs[nodes, crowd] = 1e6 * told["cpu"] / told["useful"]
        print(
            f"{nodes} node{'s' * (nodes > 1)}, {crowd:,} clients x {RATE:g} Hz: {cost:.2f} µs of"
            f" CPU per useful delivery; {told['useful'] / told['published']:.1f} deliveries per"
            f" publication, {told['moves'] / told['wall']:.1f} clients a second changed nodes;"
            f" {100 * seconds / told['wall']:.0f} % of the pace",
            flush=True,
        )
        sleep(1.0)
    for beside, what in ((clients, "all the clients"), (clients // 2, "as many clients each")):
        times = costs[2, clients] / costs[1, beside]
        print(
            f"2 nodes cost {times:.2f} times as much as 1 node with {what};"
            f" wanted: at most {WANTED}: {'held' if times <= WANTED else 'missed'}"
        )


if __name__ == "__main__":
    main()
