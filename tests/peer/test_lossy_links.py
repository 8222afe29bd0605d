"""Peers in processes of their own, over QUIC and a relay that loses one packet in twenty."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from nearcast.peer.host import run
from nearcast.peer.peer import PeerOptions
from support.patience import PATIENCE_S
from support.peers import SETTINGS, Process, all_done, send_around, settle

RELAY = Path(__file__).parents[2] / "benchmarks" / "lossy_relay.py"
NEWS = 20
# Overlays that send publications as datagrams, which may be lost, and settle soon with these.
LOSSY: dict[str, dict[str, Any]] = {
    "bubblestorm": {"lambda": 3.0, "gossip_s": 1.0, "round_ms": 250.0},
    "psense": {"limit": 1_000_000, "round_ms": 100.0},
}


async def front(relay: asyncio.subprocess.Process, port: int) -> int:
    assert relay.stdin is not None and relay.stdout is not None
    relay.stdin.write(b"%d\n" % port)
    return int(await relay.stdout.readline())


async def with_relay(
    overlay: str, settings: dict[str, Any], judge: Callable[[list[Process]], Awaitable[None]]
) -> None:
    relay = await asyncio.create_subprocess_exec(
        sys.executable, str(RELAY), "5", "0.05", "3",
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        await play(relay, PeerOptions(overlay=overlay, link="quic", settings=settings), judge)
        printed, _ = await relay.communicate(b"")
    finally:
        if relay.returncode is None:
            relay.kill()
            await relay.wait()
    assert int(printed.split()[2]) > 0, "nothing was lost, so nothing was tested"


async def play(
    relay: asyncio.subprocess.Process,
    begins: PeerOptions,
    judge: Callable[[list[Process]], Awaitable[None]],
) -> None:
    """Three peers, of which the first is behind the relay."""
    players = [Process(begins)]
    await players[0].begin()
    host, port = players[0].address
    options = PeerOptions(link="quic", join=(host, await front(relay, port)))
    players += [Process(options), Process(options)]
    await asyncio.gather(*(player.begin() for player in players[1:]))
    turn, number = count(), count(1)
    for player in players:
        player.say("subscribe", subscription=1, area={"x": 30, "y": 0, "r": 20})
    await all_done([*players], number)
    await settle([*players], turn)
    await judge(players)
    await send_around([*players])
    for player in players[::-1]:
        await player.end()


def publish(players: list[Process], news: int) -> None:
    for place, player in enumerate(players):
        player.say("publish", x=30, y=0, payload=f"{place} {news}")


def received(player: Process) -> list[str]:
    return [m["payload"] for m in player.of("message") if isinstance(m["payload"], str)]


async def each_arrives_once(players: list[Process]) -> None:
    for news in range(NEWS):
        publish(players, news)
        await asyncio.sleep(0)
    others = NEWS * (len(players) - 1)
    for player in players:
        await player.until(lambda p=player: len(received(p)) >= others)
        assert len(set(received(player))) == len(received(player)) == others


async def many_arrive_and_none_twice(players: list[Process]) -> None:
    """What a datagram has lost does not come again, and later ones come nevertheless."""

    def least() -> int:
        """Of what one has received of another."""
        return min(
            sum(payload.startswith(f"{other} ") for payload in received(player))
            for place, player in enumerate(players)
            for other in range(len(players))
            if other != place
        )

    async with asyncio.timeout(PATIENCE_S):
        for news in count():
            publish(players, news)
            await asyncio.sleep(0.02)
            if least() >= NEWS:
                break
    for player in players:
        assert len(set(received(player))) == len(received(player))


def test_what_is_published_over_a_network_that_loses_packets_arrives_once() -> None:
    run(with_relay("client-server", SETTINGS["client-server"], each_arrives_once))


@pytest.mark.parametrize("overlay", LOSSY)
def test_peers_that_send_datagrams_go_on_over_a_network_that_loses_packets(overlay: str) -> None:
    run(with_relay(overlay, LOSSY[overlay], many_arrive_and_none_twice))
