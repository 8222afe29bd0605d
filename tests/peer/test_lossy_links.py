"""Peers in processes of their own, over QUIC and a relay that loses one packet in twenty."""

import asyncio
import sys
from itertools import count
from pathlib import Path

from nearcast.peer.host import run
from nearcast.peer.peer import PeerOptions
from support.peers import SETTINGS, Process, all_done, settle

RELAY = Path(__file__).parents[2] / "benchmarks" / "lossy_relay.py"
OVERLAY, NEWS = "client-server", 20


async def front(relay: asyncio.subprocess.Process, port: int) -> int:
    assert relay.stdin is not None and relay.stdout is not None
    relay.stdin.write(b"%d\n" % port)
    return int(await relay.stdout.readline())


async def with_relay() -> None:
    relay = await asyncio.create_subprocess_exec(
        sys.executable, str(RELAY), "5", "0.05", "3",
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        await play(relay)
        printed, _ = await relay.communicate(b"")
    finally:
        if relay.returncode is None:
            relay.kill()
            await relay.wait()
    assert int(printed.split()[2]) > 0, "nothing was lost, so nothing was tested"


async def play(relay: asyncio.subprocess.Process) -> None:
    players = [Process(PeerOptions(overlay=OVERLAY, link="quic", settings=SETTINGS[OVERLAY]))]
    await players[0].begin()
    host, port = players[0].address
    options = PeerOptions(link="quic", join=(host, await front(relay, port)))
    players += [Process(options), Process(options)]
    await asyncio.gather(*(player.begin() for player in players[1:]))
    turn, number = count(), count(1)
    for player in players:
        player.say("subscribe", subscription=1, area={"x": 30, "y": 0, "r": 20})
    await all_done(players, number)
    await settle(players, turn)
    for news in range(NEWS):
        for place, player in enumerate(players):
            player.say("publish", x=30, y=0, payload=f"{place} {news}")
        await asyncio.sleep(0)
    others = NEWS * (len(players) - 1)
    for player in players:
        received = lambda p=player: [  # noqa: E731
            m["payload"] for m in p.of("message") if isinstance(m["payload"], str)
        ]
        await player.until(lambda r=received: len(r()) >= others)
        assert len(set(received())) == len(received()) == others
    for player in players[::-1]:
        await player.end()


def test_what_is_published_over_a_network_that_loses_packets_arrives_once() -> None:
    run(with_relay())
