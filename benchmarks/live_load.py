"""The load of `benchmarks/live.py`: many clients in a process of their own, alike for all servers.

Clients walk in straight legs, publish their place at a fixed rate, each in a phase of its own, and
listen to a disc around themselves. Towards Nearcast a disc is an evolving area, told anew at each
leg. Towards a broker of topics it is the grid cells that it touches, changed whenever a border is
crossed; what comes from outside the disc the client drops, and it does not count as useful.

Every payload begins with the same eight bytes, by which all protocols' streams are read alike.
"""

import json
import resource
import socket
import struct
import sys
from collections.abc import Iterable
from time import monotonic, sleep, time

import msgspec
import numpy as np
from numba import njit

RADIUS = 50.0
PAYLOAD = 64
MAGIC = b"\xffNEARCST"
LEG_S = 5.0
SPEED = 10.0
SLOTS = 20  # of a tick: so many groups of clients, one after the other
WAITS = 300_000  # tenths of milliseconds, of the histogram
LOOK_S = 0.0005  # between two looks at a sample of clients


@njit(cache=True)
def count(
    stream: np.ndarray, size: int, magic: np.ndarray, place: np.ndarray, velocity: np.ndarray,
    since: float, now: float, waits: np.ndarray,
) -> tuple[int, int, int]:  # fmt: skip
    """Messages in a stream, those from within the radius, and bytes that are done with.

    Within the radius of where the reader was when the message was published: by its own account
    of its way, and by the time in the payload.
    """
    messages = useful = at = 0
    numbers = np.empty(24, np.uint8)
    while at + PAYLOAD <= size:
        same = stream[at] == magic[0]
        for step in range(1, 8):
            same = same and stream[at + step] == magic[step]
        if not same:
            at += 1
            continue
        for step in range(24):
            numbers[step] = stream[at + 8 + step]
        t, x, y = numbers.view(np.float64)
        dx = place[0] + velocity[0] * (t - since) - x
        dy = place[1] + velocity[1] * (t - since) - y
        messages += 1
        if dx * dx + dy * dy <= RADIUS**2:
            useful += 1
            waits[min(max(int((now - t) * 10_000.0), 0), WAITS - 1)] += 1
        at += PAYLOAD
    return messages, useful, at


class Walks:
    """Where everybody is: straight legs, evenly spread over the world, alike for all servers."""

    def __init__(self, clients: int, receivers: float) -> None:
        self.side = float(np.sqrt(clients * np.pi * RADIUS**2 / receivers))
        self._random = np.random.default_rng(7)
        self.place = self._random.uniform(0, self.side, (clients, 2))
        self.since = np.zeros(clients)
        self.velocity = np.zeros((clients, 2))

    def begin(self, t: float) -> None:
        """Everybody has been standing still until now; they start within one leg's time."""
        self.since = t - self._random.uniform(0, LEG_S, len(self.since))

    def at(self, client: int, t: float) -> tuple[float, float]:
        x, y = self.place[client] + self.velocity[client] * (t - self.since[client])
        return float(x), float(y)

    def turn(self, client: int, t: float) -> None:
        """Begin a new leg, in a random direction that does not lead out of the world."""
        here = np.array(self.at(client, t))
        for _ in range(50):
            angle = self._random.uniform(0, 2 * np.pi)
            way = np.array([np.cos(angle), np.sin(angle)]) * SPEED
            if np.all(np.abs(here + way * LEG_S - self.side / 2) <= self.side / 2):
                break
        self.place[client], self.velocity[client], self.since[client] = here, way, t


def cells(x: float, y: float) -> set[tuple[int, int]]:
    """Grid cells, as large as the radius, that the square around a disc touches."""
    columns = range(int((x - RADIUS) // RADIUS), int((x + RADIUS) // RADIUS) + 1)
    rows = range(int((y - RADIUS) // RADIUS), int((y + RADIUS) // RADIUS) + 1)
    return {(column, row) for column in columns for row in rows}


def topic(cell: tuple[int, int]) -> bytes:
    return b"cell.%d.%d" % (cell[0] + 500, cell[1] + 500)


class Nearcast:
    areas = True

    def hello(self, ticket: str = "") -> bytes:
        upgrade = (
            b"GET /ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
        )
        join = [2, "load", "", None, ticket] if ticket else [2, "load"]
        return upgrade + self._frame(join)

    def follow(self, x: float, y: float, vx: float, vy: float, first: bool) -> bytes:
        area = {"x": x, "y": y, "r": RADIUS, "vx": vx, "vy": vy}
        return self._frame([4, 1, area] if first else [5, 1, area])

    def publish(self, x: float, y: float, payload: bytes) -> bytes:
        return self._frame([1, x, y, payload])

    def _frame(self, word: list[object]) -> bytes:
        body = msgspec.msgpack.encode(word)
        assert len(body) < 65_536
        size = len(body)
        head = bytes((0x82, 0x80 | size)) if size < 126 else b"\x82\xfe" + size.to_bytes(2, "big")
        return head + b"\0\0\0\0" + body  # a mask of zeros changes nothing


class Redis:
    """RESP3, in which one connection may both publish and listen."""

    def hello(self) -> bytes:
        return b"HELLO 3\r\n"

    def listen(self, wanted: set[tuple[int, int]], had: set[tuple[int, int]]) -> bytes:
        def many(verb: bytes, names: Iterable[bytes]) -> bytes:
            words = [verb, *names]
            return _resp(words) if len(words) > 1 else b""

        return many(b"SUBSCRIBE", map(topic, wanted - had)) + many(
            b"UNSUBSCRIBE", map(topic, had - wanted)
        )

    def publish(self, x: float, y: float, payload: bytes) -> bytes:
        cell = topic((int(x // RADIUS), int(y // RADIUS)))
        return _resp([b"PUBLISH", cell, payload])


def _resp(words: list[bytes]) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(w), w) for w in words)


class Nats:
    def __init__(self) -> None:
        self._numbers: dict[tuple[int, int], int] = {}
        self._next = 0

    def hello(self) -> bytes:
        return b'CONNECT {"verbose":false,"pedantic":false,"echo":false}\r\n'

    def listen(self, wanted: set[tuple[int, int]], had: set[tuple[int, int]]) -> bytes:
        said = b""
        for cell in wanted - had:
            self._next += 1
            self._numbers[cell] = self._next
            said += b"SUB %b %d\r\n" % (topic(cell), self._next)
        for cell in had - wanted:
            said += b"UNSUB %d\r\n" % self._numbers.pop(cell)
        return said

    def publish(self, x: float, y: float, payload: bytes) -> bytes:
        cell = topic((int(x // RADIUS), int(y // RADIUS)))
        return b"PUB %b %d\r\n%b\r\n" % (cell, len(payload), payload)


class Mosquitto:
    """MQTT 3.1.1, quality of service 0."""

    def hello(self) -> bytes:
        return b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x00\x00\x00"

    def listen(self, wanted: set[tuple[int, int]], had: set[tuple[int, int]]) -> bytes:
        def packet(kind: int, names: list[bytes], after: bytes) -> bytes:
            if not names:
                return b""
            body = b"\x00\x01" + b"".join(len(n).to_bytes(2, "big") + n + after for n in names)
            return bytes((kind,)) + _varint(len(body)) + body

        return packet(0x82, [topic(c) for c in wanted - had], b"\x00") + packet(
            0xA2, [topic(c) for c in had - wanted], b""
        )

    def publish(self, x: float, y: float, payload: bytes) -> bytes:
        cell = topic((int(x // RADIUS), int(y // RADIUS)))
        body = len(cell).to_bytes(2, "big") + cell + payload
        return b"\x30" + _varint(len(body)) + body


def _varint(size: int) -> bytes:
    said = b""
    while size >= 128:
        said, size = said + bytes((size % 128 | 128,)), size // 128
    return said + bytes((size,))


SPEECHES = {"nearcast": Nearcast, "redis": Redis, "nats": Nats, "mosquitto": Mosquitto}


class Load:
    def __init__(self, server: str, port: int, clients: int, rate: float, receivers: float) -> None:
        self.walks = Walks(clients, receivers)
        self.tick = 1 / rate
        self.speeches = [SPEECHES[server]() for _ in range(clients)]
        self.cells: list[set[tuple[int, int]]] = [set() for _ in range(clients)]
        self.left, self.unsent = [b""] * clients, [b""] * clients
        self.messages = self.useful = self.published = self.late = self.bytes = 0
        self.waits = np.zeros(WAITS, np.int64)
        self._magic = np.frombuffer(MAGIC, np.uint8)
        self._room = bytearray(4 << 20)
        self._stream = np.frombuffer(self._room, np.uint8)
        self._view = memoryview(self._room)
        here = self.walks.place[0]
        count(self._stream, 0, self._magic, here, here, 0.0, 0.0, self.waits)
        self.began = monotonic()
        self.sockets = []
        for client in range(clients):
            self.sockets.append(self.connect(client, port))
            self.sockets[-1].setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.sockets[-1].setblocking(False)
            self._push(client, self.speeches[client].hello())
            if client % 200 == 199:
                sleep(0.05)
        sleep(0.5)
        for client in range(clients):
            self._push(client, self._follow(client, self.now(), first=True))
            if client % 200 == 199:
                sleep(0.02)
                self.read(range(clients))

    def connect(self, client: int, port: int) -> socket.socket:  # noqa: ARG002
        """Where a client goes first; all to one place."""
        return socket.create_connection(("127.0.0.1", port))

    def look(self, client: int, stream: memoryview) -> None:
        """For who listens to more than messages."""

    def now(self) -> float:
        return monotonic() - self.began

    def _follow(self, client: int, t: float, first: bool = False) -> bytes:
        speech, (x, y) = self.speeches[client], self.walks.at(client, t)
        turned = not first and t - self.walks.since[client] > LEG_S
        if turned:
            self.walks.turn(client, t)
        if isinstance(speech, Nearcast):
            vx, vy = self.walks.velocity[client]
            return speech.follow(x, y, float(vx), float(vy), first) if turned or first else b""
        wanted = cells(x, y)
        if wanted == self.cells[client]:
            return b""
        said: bytes = speech.listen(wanted, self.cells[client])
        self.cells[client] = wanted
        return said

    def publish(self, client: int) -> None:
        t = self.now()
        if self._push(client, self.unsent[client]):
            self.late += 1  # the server does not read: no client would send even more
            return
        said = self._follow(client, t)
        x, y = self.walks.at(client, t)
        payload = (MAGIC + struct.pack("ddd", t, x, y)).ljust(PAYLOAD, b".")
        self._push(client, said + self.speeches[client].publish(x, y, payload))
        self.published += 1

    def _push(self, client: int, said: bytes) -> bytes:
        """What could not be sent stays for the next time."""
        try:
            sent = self.sockets[client].send(said) if said else 0
        except BlockingIOError:
            sent = 0
        self.unsent[client] = said[sent:]
        return self.unsent[client]

    def read(self, clients: Iterable[int]) -> int:
        """Read and count what has come for these; gives how many bytes."""
        now, walks, total = self.now(), self.walks, 0
        for client in clients:
            left = self.left[client]
            self._room[: len(left)] = left
            try:
                size = self.sockets[client].recv_into(self._view[len(left) :])
            except BlockingIOError:
                continue
            if size == 0:
                raise SystemExit(f"the server closed the connection of client {client}")
            total += size
            size += len(left)
            self.look(client, self._view[:size])
            messages, useful, done = count(
                self._stream, size, self._magic, walks.place[client], walks.velocity[client],
                walks.since[client], now, self.waits,
            )  # fmt: skip
            self.messages += messages
            self.useful += useful
            self.left[client] = bytes(self._view[done:size])
        self.bytes += total
        return total

    def run(self, ticks: int, sample: int = 0) -> None:
        """Everybody publishes once a tick. Sockets are read in turns, or only a sample of them."""
        clients = len(self.sockets)
        groups = [range(slot, clients, SLOTS) for slot in range(SLOTS)]
        due = self.now()
        for slot in range(ticks * SLOTS):
            for client in groups[slot % SLOTS]:
                self.publish(client)
            self.read(range(sample) if sample else groups[(slot + SLOTS // 2) % SLOTS])
            if sample and slot % SLOTS == 0:
                self.drain(range(sample, clients))
            due += self.tick / SLOTS
            while (pause := due - self.now()) > 0:
                sleep(min(pause, LOOK_S) if sample else pause)
                if sample:
                    self.read(range(sample))

    def settle(self, patience: float = 30.0) -> None:
        """Read until nothing has come for a while: whatever was published has then been heard."""
        end = quiet = self.now()
        while self.now() - quiet < 0.5 and self.now() - end < patience:
            if self.read(range(len(self.sockets))):
                quiet = self.now()
            sleep(0.01)

    def drain(self, clients: Iterable[int]) -> None:
        """Read without looking."""
        for client in clients:
            try:
                self.sockets[client].recv_into(self._view)
            except BlockingIOError:
                continue


def cpu_seconds(pid: int) -> tuple[float, float]:
    """In the process itself, and in the kernel on its behalf."""
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return int(fields[11]) / 100, int(fields[12]) / 100  # clock ticks


def main() -> None:
    asked = json.loads(sys.argv[1])
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    load = Load(asked["server"], asked["port"], asked["clients"], asked["rate"], asked["receivers"])
    load.walks.begin(load.now())
    load.run(int(2 * asked["rate"]), asked["sample"])
    load.settle()
    load.messages = load.useful = load.published = load.late = load.bytes = 0
    load.waits[:] = 0
    before, began = cpu_seconds(asked["pid"]), time()
    load.run(round(asked["seconds"] * asked["rate"]), asked["sample"])
    wall, heard = time() - began, load.useful
    if not asked["sample"]:
        load.settle()
    after = cpu_seconds(asked["pid"])
    sums = np.cumsum(load.waits)
    p50, p99, p999 = (
        float(np.searchsorted(sums, share * sums[-1])) / 10 for share in (0.5, 0.99, 0.999)
    )
    told = {
        "user": after[0] - before[0], "system": after[1] - before[1], "wall": wall,
        "messages": load.messages, "useful": load.useful, "heard": heard,
        "published": load.published, "late": load.late, "bytes": load.bytes,
        "p50": p50, "p99": p99, "p999": p999,
    }  # fmt: skip
    print(json.dumps(told))


if __name__ == "__main__":
    main()
