"""Which connections stay open: bounds by address and in number, and deadlines by a test's clock."""

import asyncio
import socket
from collections.abc import Callable, Generator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nearcast.client_protocol import messages
from nearcast.server.config import LimitSettings
from nearcast.server.http import protocol
from nearcast.server.http.connections import YOUNG_S, OpenConnections, counted_address
from nearcast.server.http.protocol import (
    HttpConnection,
    HttpRequest,
    HttpResponse,
    HttpRoutes,
    json_response,
)
from nearcast.server.metrics import Metrics
from nearcast.server.server import Server
from support.live_clients import connect_client, join_client, run, service
from support.patience import PATIENCE_S
from support.raw_websocket import HANDSHAKE, RawClient, answered

GET = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Wire:
    """A transport that keeps what is written; `reads` takes it away."""

    def __init__(self, peer: str = "10.0.0.1") -> None:
        self.peer, self.written, self.unread, self.high = (peer, 7), b"", 0, 65_536
        self.closing = self.aborted = self.ended = self.reading = False
        self.front: HttpConnection | None = None

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self.peer if name == "peername" else default

    def set_write_buffer_limits(self, high: int) -> None:
        self.high = high

    def write(self, data: bytes) -> None:
        self.written += data
        self.unread += len(data)
        if self.unread > self.high and self.front is not None:
            self.front.pause_writing()

    def reads(self) -> None:
        self.unread = 0
        assert self.front is not None
        self.front.resume_writing()

    def get_write_buffer_size(self) -> int:
        return self.unread

    def is_closing(self) -> bool:
        return self.closing

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.ended = True

    def close(self) -> None:
        self.closing = True

    def abort(self) -> None:
        self.closing = self.aborted = True

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True


class Clock:
    """In place of a loop: timers go off when a test says so."""

    def __init__(self) -> None:
        self.now = 0.0
        self.timers: list[list[Any]] = []

    def call_later(self, seconds: float, act: Callable[..., None], *what: Any) -> Any:
        timer = [self.now + seconds, act, what]
        self.timers.append(timer)
        clock = self

        class Handle:
            def cancel(self) -> None:
                if timer in clock.timers:
                    clock.timers.remove(timer)

        return Handle()

    def create_task(self, story: Any) -> Any:
        story.close()

        class Task:
            def cancel(self) -> None: ...

        return Task()

    def pass_(self, seconds: float) -> None:
        self.now += seconds
        for timer in [t for t in self.timers if t[0] <= self.now]:
            self.timers.remove(timer)
            timer[1](*timer[2])


class Never:
    """An answer that does not come."""

    def __await__(self) -> Generator[None, None, HttpResponse]:
        raise AssertionError("nobody waits for it here")
        yield


class ConnectionHarness:
    """Connections to routes of its own, on such a clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **limits: int) -> None:
        self.clock, self.metrics, self.routes = Clock(), Metrics(), HttpRoutes()
        self.connections = OpenConnections(
            LimitSettings(**limits), self.metrics, lambda: self.clock.now
        )
        monkeypatch.setattr(asyncio, "get_running_loop", lambda: self.clock)
        self.routes.add("GET", "/healthz", lambda _: json_response("well"))
        self.routes.add("POST", "/publish", lambda request: json_response(len(request.body)))
        self.routes.add("GET", "/large", lambda _: HttpResponse(b"x" * 1_000_000))

        self.routes.add("GET", "/never", lambda _: Never())

    def connect(self, peer: str = "10.0.0.1") -> tuple[HttpConnection, Wire]:
        def refuse(_: HttpRequest) -> Any:
            raise AssertionError("nobody asks for an upgrade here")

        wire = Wire(peer)
        front = HttpConnection(self.routes, refuse, 65_536, 500, set(), self.connections)
        wire.front = front
        front.connection_made(wire)
        return front, wire


def get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()


def posted(size: int) -> bytes:
    return f"POST /publish HTTP/1.1\r\nHost: h\r\nContent-Length: {size}\r\n\r\n".encode()


def test_a_head_that_comes_byte_by_byte_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = ConnectionHarness(monkeypatch)
    front, wire = harness.connect()
    for byte in b"GET /heal":
        front.data_received(bytes([byte]))
        harness.clock.pass_(1.0)
    assert not wire.closing
    harness.clock.pass_(1.0)
    assert wire.closing
    assert harness.metrics.late == 1


def test_a_silent_connection_is_cut_off_and_an_idle_one_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    harness = ConnectionHarness(monkeypatch)
    _, silent = harness.connect()
    asking, idle = harness.connect()
    asking.data_received(GET)
    harness.clock.pass_(protocol.HEAD_S)
    assert (silent.closing, idle.closing) == (True, False)
    harness.clock.pass_(protocol.IDLE_S - protocol.HEAD_S)
    assert idle.closing
    assert harness.metrics.late == 1, "an idle connection is not late"


def test_each_request_of_a_connection_has_its_own_time(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = ConnectionHarness(monkeypatch)
    front, wire = harness.connect()
    for _ in range(5):
        front.data_received(GET[:9])
        harness.clock.pass_(protocol.HEAD_S - 1.0)
        front.data_received(GET[9:])
        harness.clock.pass_(protocol.IDLE_S - 1.0)
    assert not wire.closing
    front.data_received(GET + GET[:9])  # the next one begins behind a whole one
    harness.clock.pass_(protocol.HEAD_S)
    assert wire.closing


def test_a_body_must_come_at_a_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = ConnectionHarness(monkeypatch)
    size = 10 * protocol.PACE
    slow, cut = harness.connect()
    good, kept = harness.connect()
    slow.data_received(posted(size))
    good.data_received(posted(size))
    for second in range(15):
        assert not cut.closing, second
        slow.data_received(b"x")
        good.data_received(b"x" * (size // 14 if second < 14 else size - 14 * (size // 14)))
        harness.clock.pass_(1.0)
    assert cut.closing
    assert not kept.closing
    assert kept.written.endswith(f"{size}\n".encode())


def test_an_answer_that_is_not_found_in_time_ends_the_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    harness = ConnectionHarness(monkeypatch)
    front, wire = harness.connect()
    front.data_received(get("/never"))
    harness.clock.pass_(protocol.ANSWER_S - 1.0)
    assert not wire.closing
    harness.clock.pass_(1.0)
    assert wire.closing


def test_who_does_not_read_is_asked_no_more_and_then_cut_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    harness = ConnectionHarness(monkeypatch)
    front, wire = harness.connect()
    front.data_received(3 * get("/large"))
    assert wire.written.count(b"HTTP/1.1 200") == 1, "the next answer waits"
    front.data_received(2_000 * GET)
    assert not wire.reading, "and more requests are not even read"
    wire.reads()
    assert wire.written.count(b"HTTP/1.1 200") == 2
    harness.clock.pass_(protocol.DRAIN_S + 1_000_000 / protocol.PACE - 1.0)
    assert not wire.closing
    harness.clock.pass_(2.0)
    assert wire.closing
    front.connection_lost(None)
    assert harness.connections.unread == 0


def test_who_reads_at_last_gets_all_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = ConnectionHarness(monkeypatch)
    front, wire = harness.connect()
    front.data_received(3 * get("/large") + GET)
    for _ in range(3):
        wire.reads()
    assert wire.written.count(b"HTTP/1.1 200") == 4
    assert wire.reading
    assert harness.connections.unread == 0


def test_a_closing_connection_that_is_not_read_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = ConnectionHarness(monkeypatch)
    front, wire = harness.connect()
    front.data_received(get("/large").replace(b"HTTP/1.1\r\n", b"HTTP/1.0\r\n"))
    assert (wire.closing, wire.aborted) == (True, False)
    harness.clock.pass_(protocol.DRAIN_S + 1_001_000 / protocol.PACE)
    assert wire.aborted


def test_answers_that_nobody_reads_are_bounded_over_all_connections(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(protocol, "UNREAD", 2_500_000)
    harness = ConnectionHarness(monkeypatch)
    wires = []
    for _ in range(4):
        front, wire = harness.connect()
        front.data_received(get("/large"))
        wires.append(wire)
    statuses = [wire.written[9:12] for wire in wires]
    assert statuses == [b"200", b"200", b"503", b"503"]
    front, wire = harness.connect()
    front.data_received(GET)
    assert wire.written.startswith(b"HTTP/1.1 200"), "a short answer needs no room"


def test_after_a_refusal_the_client_has_a_moment_to_read_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    harness = ConnectionHarness(monkeypatch)
    front, wire = harness.connect()
    front.data_received(b"NONSENSE\r\n\r\n")
    front.data_received(GET)
    assert not front._read, "nothing behind a refusal is kept"
    assert wire.written.count(b"HTTP/1.1 ") == 1
    assert wire.ended
    assert not wire.closing
    harness.clock.pass_(protocol.LINGER_S)
    assert wire.closing
    assert harness.metrics.late == 0


def test_the_oldest_connection_that_is_pending_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = ConnectionHarness(monkeypatch, pending=3, clients=2)
    fronts, wires = zip(*(harness.connect() for _ in range(3)), strict=True)
    harness.clock.pass_(YOUNG_S)
    fronts[0].data_received(GET)  # no longer pending
    fronts[1].data_received(GET[:9])  # still
    _, new = harness.connect()
    assert not any(wire.closing for wire in wires)
    harness.connect()
    assert [wire.closing for wire in wires] == [False, True, False]
    assert not new.closing
    assert harness.metrics.displaced == 1


def test_young_connections_may_take_the_room_of_clients_for_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    harness = ConnectionHarness(monkeypatch, pending=3, clients=10)
    joined, *wires = [harness.connect()[1] for _ in range(13)]
    assert not any(wire.closing for wire in wires), "13 are room for 3 and for 10 clients"
    harness.connections.joined(joined)
    harness.connect()
    assert [wire.closing for wire in wires] == [True] + 11 * [False]
    harness.clock.pass_(YOUNG_S)
    for _ in range(20):
        harness.connect()
    assert all(wire.closing for wire in wires)
    assert not joined.closing


def test_no_more_are_pending_than_the_system_has_files_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    harness = ConnectionHarness(monkeypatch, pending=30, clients=10)
    harness.connections.room = 256 + 20
    wires = [harness.connect()[1] for _ in range(25)]
    assert [wire.closing for wire in wires] == 5 * [True] + 20 * [False]


def test_of_idle_connections_the_longest_idle_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nearcast.server.http.connections.HTTP", 2)
    harness = ConnectionHarness(monkeypatch, clients=2)
    _, ann = harness.connect()
    harness.connections.joined(ann)
    fronts, wires = zip(*(harness.connect() for _ in range(4)), strict=True)
    for front in (*fronts[:3], fronts[0], fronts[3]):
        front.data_received(GET)
    assert [wire.closing for wire in wires] == [False, True, False, False]
    harness.connections.joined(harness.connect()[1])  # and has a right to the room
    assert [wire.closing for wire in wires] == [False, True, True, False]
    assert not ann.closing
    assert all(wire.written.startswith(b"HTTP/1.1 200") for wire in wires)


def test_an_address_has_so_many_connections_and_gets_them_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    harness = ConnectionHarness(monkeypatch, address=2)
    pairs = [harness.connect("10.0.0.1") for _ in range(3)]
    assert [wire.closing for _, wire in pairs] == [False, False, True]
    assert pairs[2][1].written.startswith(b"HTTP/1.1 429")
    assert harness.metrics.refused_address == 1
    assert not harness.connect("10.0.0.2")[1].closing
    for front, _ in pairs:
        front.connection_lost(None)
    again = [harness.connect("10.0.0.1")[1].closing for _ in range(3)]
    assert again == [False, False, True]
    assert not any(harness.connect("127.0.0.1")[1].closing for _ in range(5))


@pytest.mark.parametrize(
    ("peer", "counted"),
    [
        (("127.0.0.1", 1), ""),
        (("::1", 1, 0, 0), ""),
        (("::ffff:127.0.0.1", 1, 0, 0), ""),
        (("127.0.0.2", 1), "127.0.0.2"),
        (("::ffff:10.1.2.3", 1, 0, 0), "10.1.2.3"),
        (("2001:db8:1:2:3:4:5:6", 1, 0, 0), "2001:db8:1:2::"),
        (("fe80::1%eth0", 1, 0, 3), "fe80::"),
        (None, ""),
        ("", ""),
    ],
)
def test_addresses_are_counted_by_who_can_have_them(peer: Any, counted: str) -> None:
    transport: Any = SimpleNamespace(get_extra_info=lambda _: peer)
    assert counted_address(transport) == counted


async def until(met: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not met():
            await asyncio.sleep(0.01)


async def dial_from(node: Server, here: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", node.port, local_addr=(here, 0))


async def upgraded_from(node: Server, here: str) -> RawClient:
    reader, writer = await dial_from(node, here)
    writer.write(HANDSHAKE.format(path="/ws", more="").encode())
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE_S)
    assert b" 101 " in head
    return RawClient(reader, writer)


def test_connections_that_never_join_keep_nobody_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of them are WebSockets; a client that has joined stays."""

    monkeypatch.setattr(protocol, "HEAD_S", 600.0)

    async def story() -> tuple[int, bytes, int]:
        async with service(limits=LimitSettings(pending=10, clients=2, join_s=600.0)) as node:
            ann = await join_client(node, "ann")
            raw_clients = [await upgraded_from(node, "127.0.0.1") for _ in range(20)]
            silent = [await dial_from(node, "127.0.0.1") for _ in range(20)]
            await until(lambda: node.gateway.metrics.displaced >= 29)
            bob = await join_client(node, "bob")
            done = await ann.ask(messages.PublishRequest, 0.0, 0.0)
            assert isinstance(done, messages.DoneNotice)
            await bob.ask(messages.PublishRequest, 0.0, 0.0)
            reader, writer = await dial_from(node, "127.0.0.1")
            writer.write(GET)
            status, _, body = await answered(reader)
            for raw_client in raw_clients:  # displaced, all of them
                await asyncio.wait_for(raw_client.reader.read(), PATIENCE_S)
            del silent
            return status, body, node.gateway.clients

    assert run(story()) == (200, b'{"ok":true}\n', 2)


def test_clients_beyond_the_limit_are_refused_when_they_connect_or_join() -> None:
    async def story() -> list[str]:
        async with service(limits=LimitSettings(clients=2, join_s=600.0)) as node:
            late = await connect_client(node)  # connected, while there was room
            ann, _ = await join_client(node, "ann"), await join_client(node, "bob")
            error = await late.ask(messages.JoinRequest, "late")
            await asyncio.wait_for(late.gone.wait(), PATIENCE_S)
            with pytest.raises(Exception, match="503"):
                await connect_client(node)
            ann.send_request(messages.LeaveRequest(id=7))
            await asyncio.wait_for(ann.gone.wait(), PATIENCE_S)
            await join_client(node, "carl")
            assert node.gateway.metrics.refused_full == 2
            return [error.reason, late.of(messages.ByeNotice)[0].reason]

    assert run(story()) == [
        "this node has no room for another client",
        "this node serves at most 2 clients",
    ]


def test_an_address_has_so_many_connections_over_real_sockets() -> None:
    async def story() -> tuple[bytes, int]:
        async with service(limits=LimitSettings(address=3, join_s=600.0)) as node:
            mine = [await upgraded_from(node, "127.0.0.2") for _ in range(3)]
            reader, _ = await dial_from(node, "127.0.0.2")
            told = await asyncio.wait_for(reader.read(), PATIENCE_S)
            for one in [await dial_from(node, "127.0.0.1") for _ in range(5)]:
                one[1].write(GET)
                assert (await answered(one[0]))[0] == 200
            mine[0].vanish()
            await until(lambda: len(node.gateway.sessions) == 2)
            again = await upgraded_from(node, "127.0.0.2")
            again.vanish()
            return told[:12], node.gateway.metrics.refused_address

    assert run(story()) == (b"HTTP/1.1 429", 1)


def test_large_answers_to_a_pipeline_wait_until_they_are_read(tmp_path: Path) -> None:
    (tmp_path / "large.bin").write_bytes(bytes(1_000_000))

    async def story() -> tuple[int, int, int]:
        async with service() as node:
            node.routes.add_folder("/static/", tmp_path)
            plain = socket.socket()
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8_192)
            plain.setblocking(False)
            await asyncio.get_running_loop().sock_connect(plain, ("127.0.0.1", node.port))
            reader, writer = await asyncio.open_connection(sock=plain, limit=8_192)
            writer.write(20 * get("/static/large.bin"))
            await until(lambda: node.gateway.connections.unread > 0)
            waiting = node.gateway.connections.unread
            sizes = [len((await answered(reader))[2]) for _ in range(20)]
            await until(lambda: node.gateway.connections.unread == 0)
            return waiting, sum(sizes), node.gateway.metrics.late

    waiting, size, late = run(story())
    assert waiting < 1_100_000, "one answer at a time"
    assert (size, late) == (20_000_000, 0)
