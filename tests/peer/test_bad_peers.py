"""What a stranger sends over real sockets leaves a peer as it was before.

A peer in an overlay is spied on: whenever it is entered by a stranger's doing, all of its state
must be the same afterwards, down to the last number.
"""

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest

from nearcast.errors import WireError
from nearcast.node import Node
from nearcast.peer.discovery import ANSWER, QUESTION, OverlayDescription
from nearcast.peer.host import Host, run
from nearcast.peer.peer import LINKS, LivePeer, PeerOptions
from nearcast.protocols import PROTOCOLS
from nearcast.transport.identity import new_identity
from nearcast.transport.links import LONGEST, MESSAGE, LinkTransport, make_frame
from support.node_state import state
from support.patience import PATIENCE_S
from support.peers import Player

QUICK: dict[str, dict[str, Any]] = {
    "bubblestorm": {"gossip_s": 1.0, "round_ms": 200.0, "lambda": 3.0},
    "psense": {"round_ms": 100.0},
    "von": {"step_ms": 100.0},
}
CASES = pytest.mark.parametrize(
    ("overlay", "link"), [("bubblestorm", "tls"), ("bubblestorm", "quic"), ("psense", "tls"),
                          ("von", "quic")],
)  # fmt: skip


class Spied:
    """A peer under watch. `changes` has what a stranger's frame did to it; frames of others."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.member: LivePeer | None = None
        self.attackers: set[int] = set()
        self.entered = 0
        self.changes: list[Any] = []
        self.frames: list[bytes] = []  # of honest peers
        spied, receive = self, Host._receive

        def watched(host: Host, node: Node, sender: int, frames: Sequence[bytes]) -> None:
            own = spied.member is not None and node is spied.member.node
            if not own or sender not in spied.attackers:
                if own:
                    spied.frames.extend(frames)
                receive(host, node, sender, frames)
                return
            before = state(node)
            receive(host, node, sender, frames)
            spied.entered += len(frames)
            if state(node) != before:
                spied.changes.append((sender, frames))

        monkeypatch.setattr(Host, "_receive", watched)
        start = LivePeer.start

        async def known(member: LivePeer) -> Any:
            welcome = await start(member)
            spied.member = spied.member or member  # the first
            return welcome

        monkeypatch.setattr(LivePeer, "start", known)


async def settled(overlay: str, link: str) -> list[Player]:
    """Three peers that hear each other."""
    first = Player(PeerOptions(overlay=overlay, link=link, settings=QUICK[overlay]))
    await first.begin()
    players = [first, *(Player(PeerOptions(join=first.address, link=link)) for _ in range(2))]
    for player in players[1:]:
        await player.begin()
    for player in players:
        player.say("subscribe", subscription=1, area={"x": 0, "y": 0, "r": 50})
    async with asyncio.timeout(PATIENCE_S):
        while not all(len({m["from"] for m in player.of("message")}) == 2 for player in players):
            for player in players:
                player.say("publish", x=1, y=1, payload="x" * 40)
            await asyncio.sleep(0.1)
    return players


def malformed(frames: list[bytes], rng: random.Random) -> list[bytes]:
    """Cut short, lengthened, with bits turned, and no message at all."""
    wrong = [
        b"",
        b"\xc1",
        QUESTION,
        ANSWER + b"\x00",
        ANSWER + msgspec.msgpack.encode(OverlayDescription("von")),
    ]
    wrong += [rng.randbytes(size) for size in (1, 7, 60, 500, LONGEST)]
    for frame in frames:
        at = rng.randrange(len(frame))
        turned = bytes([frame[at] ^ 1 << rng.randrange(8)])
        wrong += [frame[:at], frame + rng.randbytes(3), frame[:at] + turned + frame[at + 1 :]]
    return wrong


def is_message(overlay: str, frame: bytes) -> bool:
    try:
        PROTOCOLS[overlay].codec.decode(frame)
    except WireError:
        return False
    return True


@CASES
def test_malformed_oversized_and_replayed_frames_change_nothing(
    overlay: str, link: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    spied, rng = Spied(monkeypatch), random.Random(5)

    async def story() -> None:
        players = await settled(overlay, link)
        assert spied.member is not None
        victim = spied.member.links
        attacker = LINKS[link](new_identity())
        await attacker.open(lambda *_: None)
        spied.attackers.add(attacker.name)
        name = await attacker.meet(victim.host, victim.port)
        kinds = {frame[:3]: frame for frame in spied.frames}  # by which message it is, or nearly
        replayed = [*kinds.values(), *spied.frames[-100:]]
        wrong = malformed(replayed, rng)
        if overlay != "bubblestorm":
            # There peers tell each other of third ones, so what a stranger tells of others is news.
            wrong = [frame for frame in wrong if not is_message(overlay, frame)]
            replayed = []
        for frame in [*replayed, *wrong]:
            attacker.send(name, frame, False)
            attacker.send(name, frame, True)
            if rng.random() < 0.1:
                await asyncio.sleep(0.01)
        async with asyncio.timeout(PATIENCE_S):
            while spied.entered < 2 * len(replayed) + len(wrong):
                await asyncio.sleep(0.05)
        await oversized(attacker, name)
        frames_before = len(players[0].of("message"))
        players[1].say("publish", x=1, y=1, payload="still here")
        await players[0].until(
            lambda: any(
                m.get("payload") == "still here" for m in players[0].of("message")[frames_before:]
            )
        )
        payloads = [m.get("payload") for m in players[0].of("message")]
        assert set(map(str, payloads)) == {"x" * 40, "still here"}
        numbers = [m["publication"] for m in players[0].of("message")]
        assert len(set(numbers)) == len(numbers), "a replay was heard again"
        await attacker.close()
        for player in players[::-1]:
            await player.end()

    run(story())
    assert spied.changes == []


async def oversized(attacker: LinkTransport, name: int) -> None:
    """A frame longer than any may be, past the limits of an honest transport: the link is cut."""
    link = attacker._peers[name].link
    assert link is not None
    link.connection.write(b"".join(make_frame(MESSAGE, bytes(LONGEST + 1))))
    async with asyncio.timeout(PATIENCE_S):
        while attacker._peers[name].link is link:
            await asyncio.sleep(0.02)


class TcpTap:
    """Passes on what a caller says, and keeps it."""

    def __init__(self, to: tuple[str, int]) -> None:
        self._to = to
        self.kept: list[bytes] = []

    async def open(self) -> tuple[str, int]:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        where: tuple[str, int] = self._server.sockets[0].getsockname()[:2]
        return where

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        onward, back = await asyncio.open_connection(*self._to)

        async def pump(source: asyncio.StreamReader, sink: Any, keep: Callable[..., None]) -> None:
            while part := await source.read(65536):
                keep(part)
                sink.write(part)

        await asyncio.gather(
            pump(reader, back, self.kept.append), pump(onward, writer, lambda _: None)
        )

    async def again(self) -> None:
        """All of it once more, as a caller of its own."""
        _, writer = await asyncio.open_connection(*self._to)
        writer.write(b"".join(self.kept))
        await asyncio.sleep(0.5)
        writer.close()

    def close(self) -> None:
        self._server.close()


class UdpTap(asyncio.DatagramProtocol):
    """The same for packets: one caller, whose answers go back to it."""

    def __init__(self, to: tuple[str, int]) -> None:
        self._to, self._caller = to, None
        self.kept: list[bytes] = []

    async def open(self) -> tuple[str, int]:
        loop = asyncio.get_running_loop()
        self._socket, _ = await loop.create_datagram_endpoint(
            lambda: self, local_addr=("127.0.0.1", 0)
        )
        where: tuple[str, int] = self._socket.get_extra_info("sockname")
        return where

    def datagram_received(self, data: bytes, addr: Any) -> None:
        if addr == self._to:
            self._socket.sendto(data, self._caller)
        else:
            self._caller = addr
            self.kept.append(data)
            self._socket.sendto(data, self._to)

    async def again(self) -> None:
        loop = asyncio.get_running_loop()
        other, _ = await loop.create_datagram_endpoint(
            asyncio.DatagramProtocol, remote_addr=self._to
        )
        for sender in (other, self._socket):  # from elsewhere, and from where they came from
            for packet in list(self.kept):
                sender.sendto(packet, None if sender is other else self._to)
        await asyncio.sleep(0.5)
        other.close()

    def close(self) -> None:
        self._socket.close()


@pytest.mark.parametrize(("link", "tap"), [("tls", TcpTap), ("quic", UdpTap)])
def test_bytes_of_an_honest_peer_sent_again_by_others_are_never_delivered(
    link: str, tap: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    spied = Spied(monkeypatch)

    async def story() -> None:
        first = Player(PeerOptions(overlay="von", link=link, settings=QUICK["von"]))
        await first.begin()
        assert spied.member is not None
        tapped = tap(first.address)
        other = Player(PeerOptions(join=await tapped.open(), link=link))
        await other.begin()
        for player in (first, other):
            player.say("subscribe", subscription=1, area={"x": 0, "y": 0, "r": 50})
        async with asyncio.timeout(PATIENCE_S):
            while len(first.of("message")) < 5:
                other.say("publish", x=1, y=1, payload="hello")
                await asyncio.sleep(0.1)
        assert len(tapped.kept) > 3
        name = other.of("welcome")[0]["entity"]
        # From here on nothing honest is under way: whatever is heard in this name is a replay.
        await other.end()
        links = spied.member.links
        await first.until(lambda: all(link.peer != name for link in links._links))
        messages_before, frames_before = len(first.of("message")), len(spied.frames)
        spied.attackers.add(name)
        await tapped.again()
        assert (spied.entered, len(spied.frames), len(first.of("message"))) == (
            0,
            frames_before,
            messages_before,
        )
        tapped.close()
        await first.end()

    run(story())
