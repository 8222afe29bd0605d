"""Connections that say nothing, or nonsense, are bounded in time and number and disturb nobody."""

import asyncio
import socket
from typing import Any

import msgspec
import pytest
from qh3.quic.connection import QuicConnection

from nearcast.peer.discovery import ANSWER, Discovery
from nearcast.peer.host import run
from nearcast.transport import links as bounds
from nearcast.transport.address_book import sign_record
from nearcast.transport.identity import new_identity
from nearcast.transport.links import HELLO, MESSAGE, RECORDS, LinkTransport, make_frame
from nearcast.transport.quic import _configurations
from support.patience import PATIENCE_S
from support.transports import WITH_LINKS, Net

KINDS = pytest.mark.parametrize("kind", WITH_LINKS)
FEW, MANY = 4, 12


async def until(condition: Any) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.01)


class Silent:
    """Callers that never complete their handshake."""

    def __init__(self, at: LinkTransport, kind: str) -> None:
        self._at, self._kind = at, kind
        self.sockets: list[socket.socket] = []

    async def call(self) -> None:
        where = self._at.host, self._at.port
        if self._kind == "tls":
            caller = socket.create_connection(where)
        else:
            caller = socket.socket(type=socket.SOCK_DGRAM)
            quic = QuicConnection(configuration=_configurations(new_identity())[1])
            quic.connect(where, now=0.0)
            for packet, _ in quic.datagrams_to_send(now=0.0):
                caller.sendto(packet, where)
        caller.setblocking(False)
        self.sockets.append(caller)
        await asyncio.sleep(0.01)

    def close(self) -> None:
        for caller in self.sockets:
            caller.close()


async def answers(caller: Any, callee: Any, recorder: Any) -> None:
    """An honest caller is heard."""
    assert await caller.meet(callee.host, callee.port, PATIENCE_S) == callee.name
    received = len(recorder.frames)
    caller.send(callee.name, b"hello", False)
    await recorder.until(received + 1)


@KINDS
def test_incomplete_handshakes_are_limited_and_keep_nobody_out(kind, monkeypatch):
    monkeypatch.setattr(bounds, "MAX_UNIDENTIFIED", FEW)
    monkeypatch.setattr(bounds, "HANDSHAKE_S", 3600.0)

    async def main() -> None:
        async with Net(kind) as net:
            (ann, _), (ben, recorder) = await net.open(), await net.open()
            silent = Silent(ben, kind)
            for _ in range(MANY):
                await silent.call()
                assert len(ben._handshakes) <= FEW
            await until(lambda: len(ben._handshakes) == FEW)
            await answers(ann, ben, recorder)
            if kind == "tls":
                loop = asyncio.get_running_loop()
                for cut in silent.sockets[: MANY - FEW]:  # the oldest
                    async with asyncio.timeout(PATIENCE_S):
                        assert await loop.sock_recv(cut, 100) == b""
            silent.close()

    run(main())


@KINDS
def test_callers_that_never_complete_a_handshake_are_cut_in_time(kind, monkeypatch):
    monkeypatch.setattr(bounds, "HANDSHAKE_S", 0.3)

    async def main() -> None:
        async with Net(kind) as net:
            (ann, _), (ben, recorder) = await net.open(), await net.open()
            silent = Silent(ben, kind)
            for _ in range(FEW):
                await silent.call()
            await until(lambda: not ben._handshakes)
            monkeypatch.setattr(bounds, "HANDSHAKE_S", PATIENCE_S)
            await answers(ann, ben, recorder)
            silent.close()

    run(main())


@KINDS
def test_unidentified_callers_are_limited_and_keep_nobody_out(kind, monkeypatch):
    monkeypatch.setattr(bounds, "MAX_UNIDENTIFIED", FEW)
    monkeypatch.setattr(bounds, "PATIENCE_S", 3600.0)

    async def main() -> None:
        async with Net(kind) as net:
            (ann, _), (ben, recorder) = await net.open(), await net.open()
            for _ in range(MANY):
                await ann.dial(ben.host, ben.port)
                assert len(ben._links) <= FEW
            await until(lambda: len(ben._links) == FEW)
            await answers(ann, ben, recorder)

    run(main())


DEEP = b"\x91" * 100_000 + b"\x00"  # arrays in arrays
OWNER = new_identity()
CARD = sign_record(OWNER, "127.0.0.1", 4000, 7)
FORGED = msgspec.structs.replace(CARD, port=4001)
WRONG_CARDS = [
    DEEP, b"", b"\xc1", msgspec.msgpack.encode(CARD), msgspec.msgpack.encode([FORGED]),
    msgspec.msgpack.encode([CARD] * (bounds.RECORDS_PER_FRAME + 1)),
    b"\x91\x96" + b"\xc4\x20" + bytes(32) + b"\x01\xa2\xff\xff",  # a host that is no text
    b"\x91\x99" + msgspec.msgpack.encode(CARD)[1:] + b"\x00\x00" + DEEP,  # more than a card has
]  # fmt: skip


@KINDS
@pytest.mark.parametrize("wrong", range(len(WRONG_CARDS)))
def test_invalid_record_frames_end_their_link_and_nothing_else(kind, wrong):
    async def main() -> None:
        async with Net(kind) as net:
            (ann, _), (ben, recorder) = await net.open(), await net.open()
            await answers(ann, ben, recorder)
            link = ann._peers[ben.name].link
            link.connection.write(b"".join(make_frame(RECORDS, WRONG_CARDS[wrong])))
            await until(lambda: all(other.peer != ann.name for other in ben._links))
            assert ben.book.record(OWNER.name) in (None, CARD)
            await until(lambda: ann._peers[ben.name].link is None)
            await answers(ann, ben, recorder)

    run(main())


@KINDS
@pytest.mark.parametrize("greeting", [DEEP[-4000:], b"", b"\x92\xc0\xc0", b"\x92\x90\xc4\x00"])
def test_invalid_hello_frames_end_their_link_and_nothing_else(kind, greeting):
    async def main() -> None:
        async with Net(kind) as net:
            (ann, _), (ben, recorder) = await net.open(), await net.open()
            link = await ann.dial(ben.host, ben.port)
            await until(lambda: ben._links)
            link.connection.write(
                b"".join(make_frame(HELLO, greeting) + make_frame(MESSAGE, b"hello"))
            )
            await until(lambda: not ben._links)
            assert not recorder.frames
            await answers(ann, ben, recorder)

    run(main())


@pytest.mark.parametrize("answer", [DEEP[-3000:], b"", b"\x81\xa7overlay\xa2\xff\xff", b"\xc1"])
def test_an_invalid_answer_is_reported_as_such(answer):
    async def main() -> None:
        async with Net("tls") as net:
            ann, _ = await net.open()
            asker = Discovery(net.make())
            await asker.open(None)
            name = await asker.links.meet(ann.host, ann.port, PATIENCE_S)
            await ann.open(lambda sender, _: ann.send(sender, ANSWER + answer, False))
            with pytest.raises(ValueError, match="its answer is not valid"):
                await asker.query(name, PATIENCE_S)
            await asker.close()

    run(main())


def test_peers_without_a_link_are_forgotten_when_there_are_too_many(monkeypatch):
    monkeypatch.setattr(bounds, "MAX_PEERS", FEW)

    async def main() -> None:
        async with Net("tls") as net:
            ben, recorder = await net.open()
            for _ in range(MANY):
                ann, _ = await net.open()
                await answers(ann, ben, recorder)
                await ann.close()
                await until(lambda: not ben._links)
            assert len(ben._peers) <= FEW

    run(main())


def test_a_packet_that_the_library_trips_over_ends_its_link_and_not_the_socket(monkeypatch):
    receive, tripped = QuicConnection.receive_datagram, 0

    def trips(quic: Any, *packet: Any, **more: Any) -> None:
        nonlocal tripped
        if not quic._is_client and tripped < 3:
            tripped += 1
            raise RuntimeError("a packet of a kind that nobody thought of")
        receive(quic, *packet, **more)

    async def main() -> None:
        async with Net("quic") as net:
            (ann, _), (ben, recorder) = await net.open(), await net.open()
            monkeypatch.setattr(QuicConnection, "receive_datagram", trips)
            silent = Silent(ben, "quic")
            while tripped < 3:
                await silent.call()
            await until(lambda: not ben._handshakes)
            await answers(ann, ben, recorder)
            silent.close()

    run(main())
