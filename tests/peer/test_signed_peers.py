"""Peers over real links hear only what its author has signed, and say so in their traces."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from nearcast.model.commands import Publish
from nearcast.node import Message
from nearcast.peer.host import Host, run, unix_time
from nearcast.peer.peer import LINKS, LivePeer, PeerOptions
from nearcast.peer.signing import Signing
from nearcast.protocols import PROTOCOLS
from nearcast.protocols.bubblestorm import messages as bubblestorm
from nearcast.protocols.psense import layouts
from nearcast.protocols.psense import messages as psense
from nearcast.protocols.voronoi import von
from nearcast.space.shapes import point
from nearcast.trace.reader import read
from nearcast.transport.identity import new_identity
from support.patience import PATIENCE_S
from support.peers import Player

SETTINGS: dict[str, dict[str, Any]] = {
    "bubblestorm": {"gossip_s": 1.0, "round_ms": 200.0, "lambda": 3.0},
    "psense": {"round_ms": 100.0},
    "von": {"step_ms": 100.0},
    "client-server": {"matcher": "scan"},
    "brokers": {},
}


@pytest.fixture
def hosts(monkeypatch: pytest.MonkeyPatch) -> list[Host]:
    """Of all members, in the order in which they have started."""
    found: list[Host] = []
    start = LivePeer.start

    async def kept(member: LivePeer) -> Any:
        welcome = await start(member)
        found.append(member.host)
        return welcome

    monkeypatch.setattr(LivePeer, "start", kept)
    return found


async def refused(host: Host, count: int) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while host.refused.total() < count:
            await asyncio.sleep(0.02)


def message_with(overlay: str, publication: Any) -> Message:
    """A message by which a neighbour, or anybody, passes a publication on."""
    if overlay == "bubblestorm":
        return bubblestorm.RendezvousPublication(publication, 1)
    if overlay == "von":
        return von.PublicationMessage(publication, 1)
    sequence = layouts.sequence_at(publication.t)
    seen = layouts.PositionRecord(publication.node, (1.0, 1.0, 0.0), 50.0, sequence, 0)
    return psense.PublicationMessage(layouts.pack_position(seen, (), 2), publication)


async def two_peers(
    overlay: str, link: str, unsigned: bool, trace: Path | None
) -> tuple[Player, Player]:
    """The first hears the second."""
    first = Player(
        PeerOptions(
            overlay=overlay, link=link, unsigned=unsigned, trace=trace, settings=SETTINGS[overlay]
        )
    )
    await first.begin()
    second = Player(PeerOptions(join=first.address, link=link, unsigned=unsigned))
    await second.begin()
    for player in (first, second):
        player.say("subscribe", subscription=1, area={"x": 0, "y": 0, "r": 50})
    async with asyncio.timeout(PATIENCE_S):
        while not first.of("message"):
            second.say("publish", x=1, y=1, payload="genuine")
            await asyncio.sleep(0.1)
    return first, second


async def deliver_both_ways(first: Player, second: Player, payload: str) -> None:
    """The second says it until the first hears it."""
    async with asyncio.timeout(PATIENCE_S):
        while all(message["payload"] != payload for message in first.of("message")):
            second.say("publish", x=1, y=1, payload=payload)
            await asyncio.sleep(0.1)


@pytest.mark.parametrize("unsigned", [False, True])
@pytest.mark.parametrize(
    ("overlay", "link"), [("bubblestorm", "tls"), ("psense", "quic"), ("von", "tls")]
)
def test_a_publication_in_the_name_of_another_is_delivered_only_in_an_unsigned_overlay(
    overlay: str, link: str, unsigned: bool, tmp_path: Path, hosts: list[Host]
) -> None:
    async def story() -> None:
        first, second = await two_peers(overlay, link, unsigned, tmp_path / "trace")
        author = second.of("welcome")[0]["entity"]
        eve = new_identity()
        attacker = LINKS[link](eve)
        await attacker.open(lambda *_: None)
        name = await attacker.meet(*first.address)
        now, codec = unix_time(), PROTOCOLS[overlay].codec
        plain = Publish(5, point(1, 1), payload=msgspec.msgpack.encode("forged"))
        by_eve = Signing(eve, lambda _: eve.key).signed(plain, now)
        for number, forgery in enumerate((plain, by_eve)):
            publication = forgery.stamped(author, now + number)
            attacker.send(name, codec.encode(message_with(overlay, publication)), False)
        if unsigned:
            await first.until(
                lambda: any(m.get("payload") == "forged" for m in first.of("message"))
            )
        else:
            await refused(hosts[0], 2)
        await deliver_both_ways(first, second, "still here")
        await attacker.close()
        for player in (second, first):
            await player.end()
        payloads = {str(message.get("payload")) for message in first.of("message")}
        assert ("forged" in payloads) == unsigned
        assert "still here" in payloads
        notes = read(tmp_path / "trace", "notes").to_pylist()
        noted = [n for n in notes if n["fact"] == "refused" and n["about"] == attacker.name]
        assert len(noted) >= (0 if unsigned else 2)

    run(story())


@pytest.mark.parametrize("overlay", ["client-server", "brokers"])
def test_a_server_forwards_only_publications_that_their_author_has_signed(
    overlay: str, tmp_path: Path, hosts: list[Host]
) -> None:
    """A client without signatures among those with: its own words reach nobody."""

    async def story() -> None:
        first, second = await two_peers(overlay, "tls", False, tmp_path / "trace")
        rude = Player(PeerOptions(join=first.address))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(LivePeer, "_signing", lambda *_: None)
            await rude.begin()
        rude.say("publish", x=1, y=1, payload="unsigned")
        await refused(hosts[0], 1)
        await deliver_both_ways(first, second, "still here")
        for player in (rude, second, first):
            await player.end()
        payloads = {str(message.get("payload")) for message in first.of("message")}
        assert payloads == {"genuine", "still here"}
        name = rude.of("welcome")[0]["entity"]
        notes = read(tmp_path / "trace", "notes").to_pylist()
        assert any(n["fact"] == "refused" and n["about"] == name for n in notes)

    run(story())


@pytest.mark.parametrize(
    ("network", "newcomer", "why"),
    [(False, True, "leave out --unsigned"), (True, False, "join with --unsigned")],
)
def test_a_peer_that_differs_on_signatures_gets_an_error(
    network: bool, newcomer: bool, why: str
) -> None:
    async def story() -> None:
        first = Player(
            PeerOptions(overlay="client-server", unsigned=network, settings={"matcher": "scan"})
        )
        await first.begin()
        other = LivePeer(PeerOptions(join=first.address, unsigned=newcomer), home=_no_home())
        with pytest.raises(ValueError, match=why):
            await other.start()
        await first.end()

    run(story())


def test_brokers_that_rewrite_publications_do_not_sign() -> None:
    async def story() -> None:
        member = LivePeer(
            PeerOptions(overlay="brokers", settings={"interest": "object"}), home=_no_home()
        )
        with pytest.raises(ValueError, match="use --unsigned"):
            await member.start()

    run(story())


def _no_home() -> Any:
    return None  # nobody gets so far
