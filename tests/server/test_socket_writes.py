"""Frames reach each client's socket whole and in order, whoever writes them."""

import socket
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nearcast.server.socket_writes import NO_SOCKET, ClientWrites, socket_number, write_frames
from nearcast.server.workers import PART, Workers
from nearcast.service.frames import DeliveryFrames
from support.examples import examples


class FakeTransport:
    """Keeps what is written, and says how much it has not sent yet."""

    def __init__(self, connection: socket.socket, buffered: int = 0, tls: bool = False) -> None:
        self.about = {"socket": connection, "sslcontext": object() if tls else None}
        self.buffered, self.written = buffered, b""

    def get_extra_info(self, name: str) -> Any:
        return self.about[name]

    def get_write_buffer_size(self) -> int:
        return self.buffered

    def write(self, data: bytes) -> None:
        self.written += data


def fake_transport(connection: socket.socket, **more: Any) -> Any:
    return FakeTransport(connection, **more)


def frames_of(deliveries: list[list[int]], frames: list[bytes]) -> DeliveryFrames:
    """Client k is sent these frames, by their numbers."""
    which = np.array([number for one in deliveries for number in one], np.int64)
    begins = np.cumsum([0, *map(len, frames)])
    sizes = [sum(len(frames[number]) for number in one) for one in deliveries]
    return DeliveryFrames(
        np.arange(len(deliveries)), np.cumsum([0, *map(len, deliveries)]), np.array(sizes),
        np.frombuffer(bytearray(b"".join(frames)), np.uint8), begins, which, which,
    )  # fmt: skip


@given(
    frames=st.lists(st.binary(min_size=1, max_size=300), min_size=1, max_size=5),
    picks=st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=8), min_size=1, max_size=4),
    direct=st.lists(st.booleans(), min_size=4, max_size=4),
)
@examples(100)
def test_each_socket_gets_exactly_the_frames_of_its_client(
    frames: list[bytes], picks: list[list[int]], direct: list[bool]
) -> None:
    deliveries = [[number % len(frames) for number in one] for one in picks]
    post = frames_of(deliveries, frames)
    pairs = [socket.socketpair() for _ in deliveries]
    try:
        sockets = [
            near.fileno() if way else NO_SOCKET
            for (near, _), way in zip(pairs, direct, strict=False)
        ]
        taken = write_frames(np.array(sockets), post, Workers())
        for client, (near, far) in enumerate(pairs):
            near.shutdown(socket.SHUT_WR)
            wanted = b"".join(frames[number] for number in deliveries[client])
            assert b"".join(post.frames(post.starts[client], post.starts[client + 1])) == wanted
            received = far.recv(1 << 16)
            assert received == (wanted if direct[client] else b"")
            assert taken[client] == len(received)
    finally:
        for pair in pairs:
            pair[0].close()
            pair[1].close()


def test_several_workers_write_to_each_socket_once() -> None:
    deliveries = [[number % 7, number % 5, number % 3] for number in range(3 * PART + 1)]
    frames = [bytes([65 + number]) * (1 + 50 * number) for number in range(7)]
    post = frames_of(deliveries, frames)
    workers, pairs = Workers(4), [socket.socketpair() for _ in deliveries]
    try:
        taken = write_frames(np.array([near.fileno() for near, _ in pairs]), post, workers)
        for client, (near, far) in enumerate(pairs):
            near.shutdown(socket.SHUT_WR)
            wanted = b"".join(frames[number] for number in deliveries[client])
            assert far.recv(1 << 16) == wanted
            assert taken[client] == len(wanted)
    finally:
        workers.close()
        for pair in pairs:
            pair[0].close()
            pair[1].close()


def test_what_a_full_socket_does_not_take_goes_to_the_transport() -> None:
    near, far = socket.socketpair()
    with near, far:
        near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        writes, transport = ClientWrites(Workers()), fake_transport(near)
        writes.grow(1)
        writes.begin(0, transport)
        frames = [bytes([number]) * 4000 for number in range(100)]
        writes.write(frames_of([list(range(100))], frames))
        near.shutdown(socket.SHUT_WR)
        received = b""
        while piece := far.recv(1 << 16):
            received += piece
        assert received, "the socket takes the beginning"
        assert transport.written, "and is full then"
        assert received + transport.written == b"".join(frames)


def test_what_waits_in_the_transport_goes_before() -> None:
    near, far = socket.socketpair()
    with near, far:
        writes, transport = ClientWrites(Workers()), fake_transport(near, buffered=7)
        writes.grow(1)
        writes.begin(0, transport)
        writes.write(frames_of([[0]], [b"after"]))
        assert transport.written == b"after"
        transport.buffered = 0
        writes.write(frames_of([[0]], [b"directly"]))
        assert far.recv(100) == b"directly"
        writes.stop(0)
        writes.write(frames_of([[0]], [b"to nobody"]))
        assert transport.written == b"after"
        near.shutdown(socket.SHUT_WR)
        assert far.recv(100) == b""


def test_an_error_is_left_to_the_transport() -> None:
    near, far = socket.socketpair()
    with near:
        far.close()
        writes, transport = ClientWrites(Workers()), fake_transport(near)
        writes.grow(1)
        writes.begin(0, transport)
        writes.write(frames_of([[0]], [b"hello"]))
        assert transport.written == b"hello", "no signal has ended the process"


def test_encrypted_connections_are_written_by_their_transport() -> None:
    near, far = socket.socketpair()
    with near, far:
        assert socket_number(fake_transport(near, tls=True)) == NO_SOCKET
        assert socket_number(fake_transport(near)) == near.fileno()
