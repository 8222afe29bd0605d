"""What transports over connections do beyond the contract: who is who, where, and how much."""

import asyncio
import random
import socket
import ssl

import msgspec
import pytest

from nearcast.node import Priority
from nearcast.peer.host import run
from nearcast.transport import links as links_module
from nearcast.transport.address_book import AddressBook, sign_record
from nearcast.transport.identity import new_identity
from nearcast.transport.links import (
    HELLO,
    MESSAGE,
    CallerHello,
    Link,
    LinkLimits,
    LinkTransport,
    make_frame,
    take_frames,
)
from nearcast.transport.quic import QuicTransport
from nearcast.transport.tls import TlsTransport
from support.patience import PATIENCE_S
from support.ports import CLOSED
from support.transports import WITH_LINKS, FrameRecorder, Net

KINDS = pytest.mark.parametrize("kind", WITH_LINKS)


@KINDS
def test_connecting_to_an_address_returns_the_name_of_the_node(kind):
    async def main() -> None:
        async with Net(kind) as net:
            (ann, _), (ben, recorder) = await net.open(), await net.open(new_identity(serves=True))
            assert await ann.meet("127.0.0.1", ben.port) == ben.name
            ann.send(ben.name, b"hello", False)
            await recorder.until(1)
            assert recorder.frames == [(ann.name, b"hello")]

    run(main())


@KINDS
def test_connecting_to_an_address_without_a_node_fails(kind):
    async def main() -> None:
        async with Net(kind) as net:
            ann, _ = await net.open()
            with pytest.raises(TimeoutError):
                await ann.meet("127.0.0.1", CLOSED, patience_s=0.3)

    run(main())


@KINDS
def test_a_peer_can_send_to_every_name_that_it_receives(kind):
    """The chain of a join: each knows but the next, and the last one answers the first."""

    async def main() -> None:
        async with Net(kind) as net:
            chain = [await net.open() for _ in range(5)]
            for (one, _), (other, _) in zip(chain[1:], chain, strict=False):
                await one.meet(other.host, other.port)
            first, at_first = chain[-1]

            def passing(number: int):
                transport, _ = chain[number]

                def receive(_sender: int, frames) -> None:
                    for frame in frames:
                        if number:
                            transport.send(chain[number - 1][0].name, frame, False)
                        else:
                            transport.send(int(frame), b"you are in", False)

                return receive

            for number in range(4):
                await chain[number][0].open(passing(number))
            last = chain[0][0]
            assert last.book.record(first.name) is None
            first.send(chain[3][0].name, str(first.name).encode(), False)
            await at_first.until(1)
            assert at_first.frames == [(last.name, b"you are in")]

    run(main())


@KINDS
def test_a_record_is_also_sent_before_lossy_frames(kind):
    """What they mention, the receiver must be able to check and to answer."""

    async def main() -> None:
        async with Net(kind) as net:
            (ann, _), (ben, recorder) = await net.open(), await net.open()
            await ann.meet(ben.host, ben.port)
            ann.send(ben.name, b"hello", False)
            await recorder.until(1)
            card = sign_record(new_identity(), "127.0.0.1", 4000, 7)
            assert ann.add_record(card)
            async with asyncio.timeout(PATIENCE_S):
                while ben.book.record(card.name) is None:
                    ann.send(ben.name, str(card.name).encode(), True)
                    await asyncio.sleep(0.02)

    run(main())


@KINDS
def test_another_node_at_a_known_address_receives_nothing(kind):
    async def main() -> None:
        async with Net(kind) as net:
            (ann, _), (ben, _) = await net.open(), await net.open()
            await net.acquaint(ann, ben)
            port = ben.port
            await ben.close()
            eve, at_eve = await net.open(port=port)
            for _ in range(5):
                ann.send(ben.name, b"a secret for ben", False)
                await asyncio.sleep(0.1)
            assert not at_eve.frames
            assert not [link for link in eve._links if link.peer == ann.name]

    run(main())


class Impostor(LinkTransport):
    """Greets with somebody else's card, and whatever proof she can make."""

    victim: LinkTransport

    def _caller_hello(self, link: Link) -> tuple[bytes, bytes]:
        proof = self.identity.sign(CallerHello.signed_bytes(link.key))
        return make_frame(HELLO, msgspec.msgpack.encode(CallerHello(self.victim.record, proof)))


@pytest.mark.parametrize("kind", [TlsTransport, QuicTransport])
def test_nobody_can_send_in_the_name_of_another(kind):
    class Eve(Impostor, kind):
        pass

    async def main() -> None:
        ann, ben, eve = kind(new_identity()), kind(new_identity()), Eve(new_identity())
        recorder = FrameRecorder()
        for transport, on_receive in (
            (ann, recorder),
            (ben, FrameRecorder()),
            (eve, FrameRecorder()),
        ):
            await transport.open(on_receive)
        eve.victim = ben
        assert ann.add_record(ben.record) and eve.add_record(ann.record)
        eve.send(ann.name, b"I am ben", False)
        await asyncio.sleep(0.3)
        assert not recorder.frames
        for transport in (ann, ben, eve):
            await transport.close()

    run(main())


def test_records_that_were_changed_on_the_way_are_refused():
    book, owner = AddressBook(), new_identity()
    card = sign_record(owner, "127.0.0.1", 4000, 7)
    for forged in (
        msgspec.structs.replace(card, port=4001),
        msgspec.structs.replace(card, host="10.0.0.1"),
        msgspec.structs.replace(card, t=8),
        msgspec.structs.replace(card, name=new_identity().name),
        msgspec.structs.replace(card, key=new_identity().key),
        msgspec.structs.replace(card, signature=b""),
    ):
        assert not book.add_record(forged)
        assert not book.names()
    assert book.add_record(card)
    assert book.record(owner.name) == card


def test_a_newer_record_replaces_an_older_one_and_never_the_other_way_round():
    book, owner = AddressBook(), new_identity()
    old, new = (sign_record(owner, "127.0.0.1", 4000 + t, t) for t in (1, 2))
    for card in (old, new, old):
        assert book.add_record(card)
    assert book.record(owner.name) == new


def test_the_first_key_with_a_name_keeps_it(monkeypatch):
    monkeypatch.setattr("nearcast.transport.address_book.is_name_of", lambda *_: True)
    monkeypatch.setattr("nearcast.transport.address_book.verify_signature", lambda *_: True)
    book, owner = AddressBook(), new_identity()
    card = sign_record(owner, "127.0.0.1", 4000, 1)
    assert book.add_record(card)
    assert not book.add_record(msgspec.structs.replace(card, key=new_identity().key, t=2))
    assert book.record(owner.name) == card


def test_an_address_book_lists_the_records_since_a_number():
    book, owners = AddressBook(most=3), [new_identity() for _ in range(4)]
    cards = [sign_record(owner, "127.0.0.1", 4000, 1) for owner in owners]
    assert book.since(0) == (0, [])
    for card in cards[:2]:
        book.add_record(card)
    number, records = book.since(0)
    assert records == cards[:2]
    assert book.since(number) == (number, [])
    book.add_record(cards[2])
    assert book.since(number)[1] == [cards[2]]
    book.add_record(cards[3])  # one too many: the first is forgotten
    assert book.since(0)[1] == cards[1:]
    moved = sign_record(owners[1], "127.0.0.1", 5000, 2)
    book.add_record(moved)
    assert book.since(0)[1] == [cards[2], cards[3], moved]


def test_frames_come_out_of_any_parts_as_they_went_in():
    rng = random.Random(5)
    frames = [(rng.randrange(3), rng.randbytes(rng.randrange(40))) for _ in range(200)]
    stream = b"".join(part for kind, frame in frames for part in make_frame(kind, frame))
    unread, taken, at = bytearray(), [], 0
    while at < len(stream):
        size = rng.randrange(1, 60)
        unread += stream[at : at + size]
        at += size
        taken += take_frames(unread, 100)
    assert taken == frames
    assert not unread
    with pytest.raises(ValueError, match="101"):
        take_frames(bytearray(make_frame(MESSAGE, bytes(101))[0]), 100)


@KINDS
def test_random_bytes_at_the_listening_port_disturb_nobody(kind):
    async def main() -> None:
        async with Net(kind) as net:
            (ann, _), (ben, recorder) = await net.open(), await net.open()
            rng = random.Random(3)
            for _ in range(20):
                rubbish = rng.randbytes(1400)
                if kind == "quic":
                    with socket.socket(type=socket.SOCK_DGRAM) as eve:
                        eve.sendto(rubbish, (ben.host, ben.port))
                else:
                    await shout(ben, rubbish)
            await net.acquaint(ann, ben)
            ann.send(ben.name, b"hello", False)
            await recorder.until(1)
            assert recorder.frames == [(ann.name, b"hello")]

    async def shout(at: LinkTransport, rubbish: bytes) -> None:
        """Some without a handshake, some behind a sound one."""
        context = None
        if rubbish[0] % 2:
            context = ssl.create_default_context()
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        reader, writer = await asyncio.open_connection(at.host, at.port, ssl=context)
        writer.write(rubbish)
        with pytest.raises((ConnectionError, ssl.SSLError, EOFError)):
            if not await asyncio.wait_for(reader.read(), PATIENCE_S) or True:
                raise EOFError
        writer.close()

    run(main())


@KINDS
def test_a_caller_without_a_hello_is_disconnected(kind, monkeypatch):
    monkeypatch.setattr(links_module, "PATIENCE_S", 0.2)

    async def main() -> None:
        async with Net(kind) as net:
            (ann, _), (ben, _) = await net.open(), await net.open()
            accepted, accept = [], ben.accept
            monkeypatch.setattr(ben, "accept", lambda link: (accepted.append(link), accept(link)))
            link = await ann.dial(ben.host, ben.port)
            async with asyncio.timeout(PATIENCE_S):
                while not accepted or ben._links:
                    await asyncio.sleep(0.01)
            assert link.peer is None

    run(main())


class Stuck:
    """A wire whose other end reads nothing."""

    def __init__(self) -> None:
        self.written = 0
        self.is_cut = False

    longest_alone = -1

    def write(self, part: bytes, _priority: int) -> None:
        self.written += len(part)

    def unsent(self) -> int:
        return self.written

    def end(self) -> None: ...

    def cut(self) -> None:
        self.is_cut = True


def test_of_what_a_slow_peer_does_not_take_the_lossy_goes_first_and_then_the_link():
    async def main() -> None:
        async with Net("tls") as net:
            limits = LinkLimits(lossy=10_000, all=50_000)
            (ann, _), (ben, recorder) = await net.open(limits=limits), await net.open()
            await net.acquaint(ann, ben)
            slow = new_identity().name
            connection = Stuck()
            link = Link(connection, called=True)
            link.peer = slow
            ann._links[link] = None
            ann._peers[slow] = links_module._Peer()
            ann._peers[slow].link = link

            async def send_frames(frames: int, lossy: bool) -> int:
                before = connection.written
                for _ in range(frames):
                    ann.send(slow, bytes(1000), lossy)
                    await asyncio.sleep(0)
                return connection.written - before

            assert await send_frames(5, True) > 5000
            assert await send_frames(50, True) < 6000
            assert connection.written <= 10_000 + 1000
            assert await send_frames(20, False) > 20_000
            assert await send_frames(1, True) == 0
            assert not connection.is_cut
            await send_frames(30, False)
            assert connection.is_cut
            assert connection.written <= 51_000
            ann.send(ben.name, b"nobody waits for the slow", False)
            await recorder.until(1)

    run(main())


@KINDS
def test_unsent_bytes_of_a_connection_are_counted(kind):
    async def main() -> None:
        async with Net(kind) as net:
            (ann, _), (ben, recorder) = await net.open(), await net.open()
            await net.acquaint(ann, ben)
            ann.send(ben.name, b"hello", False)
            await recorder.until(1)
            link = ann._peers[ben.name].link
            for _ in range(6):
                ann.send(ben.name, bytes(1 << 20), False)
            ann._flush()
            assert link.connection.unsent() > 1 << 20
            await recorder.until(7)
            assert link.connection.unsent() == 0

    run(main())


@KINDS
def test_what_is_urgent_overtakes_what_the_system_does_not_take_yet(kind):
    bulk = [bytes([number]) * (1 << 20) for number in range(6)]

    async def main() -> None:
        async with Net(kind) as net:
            (ann, _), (ben, recorder) = await net.open(), await net.open()
            await net.acquaint(ann, ben)
            ann.send(ben.name, b"hello", False)
            await recorder.until(1)
            for frame in bulk:
                ann.send(ben.name, frame, False, Priority.BULK)
                ann._flush()
            ann.send(ben.name, b"urgent", False)
            await recorder.until(8)
            received = recorder.of(ann)[1:]
            assert [frame for frame in received if frame != b"urgent"] == bulk
            assert received.index(b"urgent") < len(bulk)

    run(main())


@KINDS
def test_of_two_calls_to_each_other_the_unanswered_one_is_given_up(kind, monkeypatch):
    async def main() -> None:
        async with Net(kind) as net:
            (ann, at_ann), (ben, at_ben) = await net.open(), await net.open()
            await net.acquaint(ann, ben)
            dial, later = ann.dial, asyncio.Event()

            async def slowly(host: str, port: int) -> Link:
                link = await dial(host, port)
                await later.wait()
                return link

            monkeypatch.setattr(ann, "dial", slowly)
            ann.send(ben.name, b"one", False)
            await asyncio.sleep(0.02)
            ben.send(ann.name, b"hello", False)
            await at_ann.until(1)
            ann.send(ben.name, b"two", False)
            later.set()
            await at_ben.until(2)
            ann.send(ben.name, b"three", False)
            await at_ben.until(3)
            assert at_ben.of(ann) == [b"one", b"two", b"three"]
            assert len(ann._links) == 1

    run(main())


@KINDS
def test_all_frames_of_one_turn_leave_in_one_write(kind, monkeypatch):
    async def main() -> None:
        async with Net(kind) as net:
            (ann, _), (ben, recorder) = await net.open(), await net.open()
            await net.acquaint(ann, ben)
            ann.send(ben.name, b"hello", False)
            await recorder.until(1)
            connection, writes = ann._peers[ben.name].link.connection, []
            write = connection.write
            monkeypatch.setattr(
                connection, "write", lambda *part: (writes.append(part), write(*part))
            )
            for number in range(100):
                ann.send(ben.name, bytes([number]), False)
            await recorder.until(101)
            assert len(writes) == 1

    run(main())


def stop_reading(link: Link) -> None:
    """Its owner reads nothing more."""
    if hasattr(link.connection, "datagram_received"):
        link.connection.datagram_received = lambda *_: None
    else:
        link.connection._transport.pause_reading()


@KINDS
@pytest.mark.parametrize("caller", ["ann", "ben"])
def test_a_peer_that_crashed_is_reached_again_after_its_restart(kind, caller):
    async def main() -> None:
        async with Net(kind) as net:
            (ann, at_ann), who = await net.open(), new_identity()
            ben, at_ben = await net.open(who)
            await net.acquaint(ann, ben)
            one, other, recorder = (ann, ben, at_ben) if caller == "ann" else (ben, ann, at_ann)
            one.send(other.name, b"hello", False)
            await recorder.until(1)
            for link in ben._links:
                stop_reading(link)
            again, recorder = await net.open(who)
            await again.meet(ann.host, ann.port)
            ann.send(ben.name, b"there you are", False)
            await recorder.until(1)
            assert recorder.frames == [(ann.name, b"there you are")]

    run(main())


@KINDS
def test_a_peer_that_stops_reading_is_cut_and_holds_up_nobody_else(kind):
    async def main() -> None:
        async with Net(kind) as net:
            ann, _ = await net.open(limits=LinkLimits(lossy=1 << 20, all=3 << 20))
            (ben, at_ben), (dan, at_dan) = await net.open(), await net.open()
            await net.acquaint(ann, ben, dan)
            ann.send(ben.name, b"hello", False)
            await at_ben.until(1)
            link = ann._peers[ben.name].link
            for end in ben._links:
                stop_reading(end)
            async with asyncio.timeout(PATIENCE_S):
                while link in ann._links:
                    ann.send(ben.name, bytes(1 << 20), False)
                    ann.send(dan.name, b"go on", False)
                    assert link.connection.unsent() <= 4 << 20
                    await asyncio.sleep(0.01)
            before = len(at_dan.frames)
            ann.send(dan.name, b"after all", False)
            await at_dan.until_received(b"after all")
            assert len(at_dan.frames) == before + 1 > 1

    run(main())
