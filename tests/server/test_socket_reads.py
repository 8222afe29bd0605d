"""Whatever a client sends, and however it is cut, is read once and in order."""

import socket
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.client_protocol.messages import PUBLISH
from nearcast.server import socket_reads
from nearcast.server.request_cost import LARGE_FRAME
from nearcast.server.socket_reads import SocketReads, SocketRoom
from nearcast.server.workers import PART, Workers
from support.examples import examples
from support.raw_websocket import BINARY, PING, TEXT, masked


class FakeLoop:
    """Nothing is called by itself."""

    def add_reader(self, _: int, read: Any) -> None:
        self.read = read

    def remove_reader(self, _: int) -> None:
        pass


class ReadTransport:
    """A transport and its protocol: keeps what is fed to it, in order with what is published."""

    def __init__(self, connection: socket.socket, came: list[tuple[str, bytes]]) -> None:
        self.connection, self.came, self.reads = connection, came, True
        self.room, self.signs_of_life = bytearray(64), 0

    def get_extra_info(self, name: str) -> Any:
        return self.connection if name == "socket" else None

    def get_protocol(self) -> Any:
        return self

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True

    def get_buffer(self, _: int) -> memoryview:
        return memoryview(self.room)

    def buffer_updated(self, size: int) -> None:
        self.signs_of_life += 1
        if size:
            self.came.append(("fed", bytes(self.room[:size])))


PUBLICATIONS = st.binary(max_size=40).map(
    lambda payload: msgspec.msgpack.encode([PUBLISH, 1.5, 2, payload])
)
REQUESTS = st.sampled_from([b"\x93\x05\x01\x80", b"", b"\x91", b"\x93\x04" + bytes(300)])
LARGE = st.just(msgspec.msgpack.encode([PUBLISH, 1.5, 2, bytes(LARGE_FRAME)]))
FRAMES = st.one_of(
    st.tuples(PUBLICATIONS, st.just(BINARY)),
    st.tuples(st.one_of(REQUESTS, LARGE), st.just(BINARY)),
    st.tuples(st.binary(max_size=20), st.sampled_from([TEXT, PING])),
)


def play(frames: list[tuple[bytes, int]], cuts: list[int]) -> tuple[list[tuple[str, bytes]], bool]:
    """What comes of these frames, sent in pieces; and does the transport read in the end?"""
    came: list[tuple[str, bytes]] = []
    loop: Any = FakeLoop()
    reads = SocketReads(
        loop, lambda _, found: came.extend(("published", frame) for frame in found), Workers()
    )
    near, far = socket.socketpair()
    with near, far:
        transport: Any = ReadTransport(near, came)
        reads.take(3, transport)
        stream = b"".join(masked(payload, opcode) for payload, opcode in frames)
        bounds = sorted({0, len(stream), *(cut % (len(stream) + 1) for cut in cuts)})
        for begin, end in pairwise(bounds):
            far.sendall(stream[begin:end])
            if not transport.reads:
                reads.read()
        if transport.reads:
            far.shutdown(socket.SHUT_WR)
            while rest := near.recv(1 << 16):
                came.append(("fed", rest))
        check_order(frames, stream, came)
        gave_back = transport.reads
        reads.close()
        assert transport.reads
    return came, gave_back


def check_order(
    frames: list[tuple[bytes, int]], stream: bytes, came: list[tuple[str, bytes]]
) -> None:
    """Everything has come in order: publications, and all other bytes as they were sent."""
    at, begins = 0, {}
    for payload, opcode in frames:
        begins[at] = payload, len(masked(payload, opcode))
        at += begins[at][1]
    at = 0
    for what, data in came:
        if what == "published":
            payload, size = begins[at]
            assert payload == data
            at += size
        else:
            assert stream[at : at + len(data)] == data
            at += len(data)
    assert at == len(stream)


@given(st.lists(FRAMES, max_size=12), st.lists(st.integers(0, 4000), max_size=4))
@examples(200)
def test_what_a_client_sends_comes_once_and_in_order(
    frames: list[tuple[bytes, int]], cuts: list[int]
) -> None:
    play(frames, cuts)


@given(st.lists(st.one_of(PUBLICATIONS, REQUESTS), min_size=1, max_size=12))
@examples(50)
def test_whole_requests_are_read_here_and_publications_without_picows(
    requests: list[bytes],
) -> None:
    frames = [(request, BINARY) for request in requests if len(request) > 1]
    came, gave_back = play(frames, [])
    assert not gave_back
    published = [request for request, _ in frames if request[1] == PUBLISH]
    assert [data for what, data in came if what == "published"] == published


def test_a_connection_that_ends_is_given_back() -> None:
    loop: Any = FakeLoop()
    reads = SocketReads(loop, lambda *_: None, Workers())
    near, far = socket.socketpair()
    with near, far:
        transport: Any = ReadTransport(near, [])
        reads.take(0, transport)
        assert not transport.reads
        far.shutdown(socket.SHUT_WR)
        reads.read()
        assert transport.reads
        reads.close()


def test_picows_takes_for_silent_who_is_silent() -> None:
    loop: Any = FakeLoop()
    reads = SocketReads(loop, lambda *_: None, Workers())
    near, far = socket.socketpair()
    with near, far:
        transport: Any = ReadTransport(near, [])
        reads.take(0, transport)
        reads.are_alive()
        assert transport.signs_of_life == 0
        far.sendall(masked(msgspec.msgpack.encode([PUBLISH, 1.0, 2.0]), BINARY))
        reads.read()
        assert transport.signs_of_life == 0, "nothing was fed"
        reads.are_alive()
        reads.are_alive()
        assert transport.signs_of_life == 1
        reads.close()


@pytest.mark.parametrize("count", [1, 3])
def test_many_sockets_are_read_in_one_turn_however_much_each_has_sent(count: int) -> None:
    workers, many = Workers(count), 2 * PART + 5
    room, pairs = SocketRoom(workers), [socket.socketpair() for _ in range(many)]
    sent: list[list[bytes]] = []
    for number, (_, far) in enumerate(pairs):
        own = [msgspec.msgpack.encode([PUBLISH, number, turn]) for turn in range(number % 20)]
        far.sendall(b"".join(masked(one, BINARY) for one in own) + b"?" * (number % 3))
        sent.append(own)
    try:
        some = range(1, many)
        asked = [number for number in some if number % 20 or number % 3]
        whose, frames, rest = room.read([pairs[number][0].fileno() for number in asked])
        for which, number in enumerate(asked):
            own = [frame for at, frame in zip(whose, frames, strict=True) if at == which]
            assert own == sent[number]
            assert rest.get(which, b"") == b"?" * (number % 3)
    finally:
        workers.close()
        for pair in pairs:
            pair[0].close()
            pair[1].close()


def test_more_than_there_is_room_for_waits_for_the_next_turn() -> None:
    own = [msgspec.msgpack.encode([PUBLISH, 1, turn]) for turn in range(5 * socket_reads.FRAMES)]
    near, far = socket.socketpair()
    with near, far:
        far.sendall(b"".join(masked(one, BINARY) for one in own))
        room = SocketRoom(Workers())
        whose, frames, rest = room.read([near.fileno()])
        assert set(whose) == {0}
        left = rest[0]
        while left:
            more, left = room.split(left)
            assert more
            frames += more
        assert frames == own
