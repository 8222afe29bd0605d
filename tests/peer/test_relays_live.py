"""Relays over real links: as an overlay of their own, and under others."""

import asyncio
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from nearcast.peer.host import run
from nearcast.peer.peer import PeerOptions, run_peer
from nearcast.trace.reader import read
from support.patience import PATIENCE_S
from support.peers import Player, Process, all_done, judge, send_around

PEERS = 3
ON: dict[str, Any] = {"relays": "on", "uplink_min": 900.0, "uplink_max": 1000.0}
# Of peers that a busy machine does not give up.
SETTINGS: dict[str, dict[str, Any]] = {
    "bubblestorm": {**ON, "lambda": 3.0, "gossip_s": 1.0},
    "von": {**ON, "misses": 12},
    "relays": {**ON, "misses": 24},
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


async def play(kind: type[Player], overlay: str, link: str, folder: Path) -> list[Path]:
    traces = [folder / str(number) for number in range(PEERS)]

    def player(number: int, join: tuple[str, int] | None) -> Player:
        settings = SETTINGS[overlay]
        return kind(
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
    await send_around(players)
    news = {d["publication"] for p in players for d in p.of("done") if first < d["id"]}
    for one in players[::-1]:
        await one.end()
    judge(traces, news)
    return traces


def sent(traces: list[Path]) -> list[str]:
    return [kind for trace in traces for kind in read(trace, "messages").column("kind").to_pylist()]


@pytest.mark.parametrize(
    ("kind", "overlay", "link", "elsewhere"),
    [
        (Player, "bubblestorm", "quic", "bubblestorm.DirectPublication"),
        (Player, "von", "tls", "von.PublicationMessage"),
        (Process, "relays", "tls", "von.PublicationMessage"),
    ],
)
def test_with_relays_on_real_peers_receive_all_and_nothing_twice(
    kind: type[Player], overlay: str, link: str, elsewhere: str, tmp_path: Path
) -> None:
    kinds = sent(run(play(kind, overlay, link, tmp_path)))
    update = "relays.CompressedUpdate" if overlay == "relays" else "relays.Update"
    assert kinds.count(update) >= 10 * PEERS * (PEERS - 1)
    # `all_done` has let each say one thing that is far away from all.
    assert kinds.count(elsewhere) <= PEERS * (PEERS - 1)


async def until_all_hear(players: list[Player], number: count) -> None:
    """Until something that each has published has arrived at all others."""
    turn = f"turn {next(number)}"

    def heard(hearer: Player) -> set[int]:
        return {m["from"] for m in hearer.of("message") if m["payload"] == turn}

    async with asyncio.timeout(PATIENCE_S):
        while any(len(heard(player)) < len(players) - 1 for player in players):
            await speak(players, turn, number)
            await asyncio.sleep(0.1)


def test_when_the_first_peer_is_killed_the_others_go_on_and_newcomers_join() -> None:
    async def story() -> None:
        number = count(1)
        settings = {**ON, "interval_ms": 100.0}  # who is silent is soon given up
        first: Player = Process(PeerOptions(overlay="relays", settings=settings))
        await first.begin()
        second: Player = Process(PeerOptions(join=first.address))
        third: Player = Player(PeerOptions(join=first.address))
        for player in (second, third):
            await player.begin()
        players = [first, second, third]
        for place, player in enumerate(players):
            player.say("subscribe", subscription=1, area={"x": 15 * place, "y": 0, "r": 100})
        await until_all_hear(players, number)
        assert isinstance(first, Process)
        await first.kill()
        newcomer: Player = Player(PeerOptions(join=second.address))
        await newcomer.begin()
        newcomer.say("subscribe", subscription=1, area={"x": 45, "y": 0, "r": 100})
        await until_all_hear([second, third, newcomer], number)
        for player in (newcomer, third, second):
            await player.end()

    run(story())


def test_live_relays_refuse_a_central_directory_in_one_line() -> None:
    async def story() -> None:
        options = PeerOptions(overlay="relays", settings={"directory": "central"})
        with pytest.raises(ValueError, match="live relays have no central directory"):
            await run_peer(options, asyncio.Queue(), lambda _: None)

    run(story())
