"""Relays over real links: as an overlay of their own, and under others."""

import asyncio
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from nearcast.peer.host import run
from nearcast.peer.peer import PeerOptions
from nearcast.trace.reader import read
from support.peers import PATIENCE_S, Player, all_done, judge

PEERS = 3
ON: dict[str, Any] = {"relays": "on", "uplink_min": 900.0, "uplink_max": 1000.0}
SETTINGS: dict[str, dict[str, Any]] = {
    "bubblestorm": {**ON, "lambda": 3.0, "gossip_s": 1.0},
    "von": ON,
    "relays": ON,
}


async def speak(players: list[Player], payload: Any, number: count) -> None:
    """Everybody, where it stands."""
    for place, player in enumerate(players):
        player.say("publish", x=15 * place, y=0, payload=payload, id=next(number))


async def settle(players: list[Player], turn: count, number: count) -> None:
    """Until a probe of everybody has reached all others; it counts whenever it has arrived."""
    probes: list[int] = []

    def reached_all(probe: int) -> bool:
        return all(player.probes[probe] == PEERS - 1 for player in players)

    async with asyncio.timeout(PATIENCE_S):
        while not any(map(reached_all, probes)):
            probes.append(next(turn))
            await speak(players, {"probe": probes[-1]}, number)
            for _ in range(30):
                await asyncio.sleep(0.01)
                if reached_all(probes[-1]):
                    break


async def play(overlay: str, link: str, folder: Path) -> list[Path]:
    traces = [folder / str(number) for number in range(PEERS)]

    def player(number: int, join: tuple[str, int] | None) -> Player:
        settings = SETTINGS[overlay]
        return Player(
            PeerOptions(
                overlay=overlay, link=link, join=join, trace=traces[number], settings=settings
            )
        )

    players = [player(0, None)]
    await players[0].begin()
    players += [player(number, players[0].address) for number in range(1, PEERS)]
    await asyncio.gather(*(player.begin() for player in players[1:]))
    turn, number = count(), count(1)
    for place, one in enumerate(players):
        one.say("subscribe", subscription=1, area={"x": 15 * place, "y": 0, "r": 100})
    await settle(players, turn, number)
    first = next(number)
    for _ in range(10):
        await speak(players, "news", number)
        await asyncio.sleep(0.05)
    await all_done(players, number)
    await settle(players, turn, number)
    news = {d["publication"] for p in players for d in p.of("done") if first < d["id"]}
    for one in players[::-1]:
        await one.end()
    judge(traces, news)
    return traces


def sent(traces: list[Path]) -> list[str]:
    return [kind for trace in traces for kind in read(trace, "messages").column("kind").to_pylist()]


@pytest.mark.parametrize(
    ("overlay", "link", "elsewhere"),
    [
        ("bubblestorm", "quic", "bubblestorm.DirectPublication"),
        ("von", "tls", "von.PublicationMessage"),
        ("relays", "tls", "relays.Post"),
    ],
)
def test_with_relays_on_real_peers_receive_all_and_nothing_twice(
    overlay: str, link: str, elsewhere: str, tmp_path: Path
) -> None:
    kinds = sent(run(play(overlay, link, tmp_path)))
    assert kinds.count("relays.Update") >= 10 * PEERS * (PEERS - 1)
    # `all_done` has let each say one thing that is far away from all.
    assert kinds.count(elsewhere) <= PEERS * (PEERS - 1)
