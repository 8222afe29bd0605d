"""Peers of VSO over real links: clients become matchers and step down, and any of them may die."""

from itertools import count
from pathlib import Path
from typing import Any

import pytest

from nearcast.peer.host import run
from nearcast.peer.peer import LivePeer, PeerOptions
from nearcast.protocols.voronoi.vso.peer import VsoPeer
from nearcast.trace.reader import read
from support.peers import SETTINGS, Player, Process, play, settle

EVERYWHERE = {"x": 30, "y": 0, "r": 50}
# A peer that is silent for three seconds is given up.
MORTAL = {**SETTINGS["vso"], "least": 2, "misses": 12, "silence_ms": 3000.0}


class Members:
    """All members that this process has started; `alive` without those that were killed."""

    def __init__(self) -> None:
        self.all: list[LivePeer] = []

    @property
    def alive(self) -> dict[int, VsoPeer]:
        nodes = [m.node for m in self.all if m.node.id in m.host.nodes]
        return {node.id: node for node in nodes if isinstance(node, VsoPeer)}

    @property
    def matchers(self) -> set[int]:
        """Those who know all the others, and have the same gateway."""
        found = {n: node.matcher for n, node in self.alive.items() if node.matcher is not None}
        known = {n: {n, *matcher.site.mesh.known} for n, matcher in found.items()}
        return {n for n in found if known[n] == set(found) and found[n].gateway in found}

    @property
    def gateways_of_matchers(self) -> set[int]:
        return {node.matcher.gateway for n, node in self.alive.items() if n in self.matchers}

    @property
    def gateways(self) -> set[int]:
        """Whom peers are certain of."""
        return {node.directory.gateway for node in self.alive.values() if node.term}

    @property
    def copies_are_current(self) -> bool:
        """Have both of two matchers all subscriptions as they are? Copies follow with a tick."""
        clients = [node.client for node in self.alive.values()]
        wanted = {s: client.version[s] for client in clients for s in client.subscriptions}
        sites = [node.matcher.site for node in self.alive.values() if node.matcher is not None]
        copies = [(site.record(s), version) for site in sites for s, version in wanted.items()]
        return all(record is not None and record.version == v for record, v in copies)

    def kill(self, name: int) -> None:
        """It is gone without a word to anybody."""
        (member,) = (m for m in self.all if m.node.id == name)
        member.host._forget(name)


@pytest.fixture
def members(monkeypatch: pytest.MonkeyPatch) -> Members:
    found, start = Members(), LivePeer.start

    async def kept(member: LivePeer) -> Any:
        welcome = await start(member)
        found.all.append(member)
        return welcome

    monkeypatch.setattr(LivePeer, "start", kept)
    return found


@pytest.mark.parametrize("link", ["tls", "quic"])
def test_peers_with_several_matchers_miss_nothing_and_repeat_nothing(
    link: str, tmp_path: Path, members: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SETTINGS, "vso", {**SETTINGS["vso"], "least": 2})

    def formed() -> bool:
        return len(members.matchers) == 2 and members.copies_are_current

    run(play(Player, "vso", link, 5, tmp_path, formed))
    kinds = [kind for trace in tmp_path.iterdir()
             for kind in read(trace, "messages").column("kind").to_pylist()]  # fmt: skip
    assert kinds.count("vso.ReplicaMatch") > 50, "both matchers had subscriptions"


def name_of(player: Player) -> int:
    name: int = player.of("welcome")[0]["entity"]
    return name


async def arrive(kind: type[Player], players: list[Player], settings: dict[str, Any]) -> None:
    """One more, through the peer that came last, with an area in which all are."""
    join = players[-1].address if players else None
    newcomer = kind(PeerOptions(overlay="vso", join=join, settings=settings if not join else {}))
    await newcomer.begin()
    newcomer.say("subscribe", subscription=1, area=EVERYWHERE)
    players.append(newcomer)


def test_clients_become_matchers_when_the_load_asks_for_it_and_step_down(members: Members) -> None:
    busy = {
        **SETTINGS["vso"], "limit": 2.0, "overload_ms": 50.0, "insertion_trigger": 1,
        "departure_trigger": 1, "f_adjust": 0.1,
    }  # fmt: skip

    async def story() -> None:
        players: list[Player] = []
        for _ in range(4):
            await arrive(Player, players, busy)
        first, *others = players
        for number, player in enumerate(players):
            player.say("subscribe", subscription=2, area={"x": 500 * number, "y": 0, "r": 10})
        await first.until(lambda: len(members.matchers) >= 2)
        for player in players:
            player.say("unsubscribe", subscription=1)
            player.say("unsubscribe", subscription=2)
        await first.until(lambda: members.matchers == {name_of(first)})
        for player in players:
            player.say("subscribe", subscription=1, area=EVERYWHERE)
        await settle(players, count())
        for player in others[::-1]:
            await player.end()
        await first.end()

    run(story())


@pytest.mark.parametrize("victim", ["gateway", "matcher", "client"])
def test_whichever_peer_is_killed_the_others_go_on_and_newcomers_join(
    victim: str, members: Members
) -> None:
    async def story() -> None:
        players: list[Player] = []
        for _ in range(4):
            await arrive(Player, players, MORTAL)
        await settle(players, count())
        # Peers that stand still for three seconds give each other up, and more become matchers.
        await players[0].until(
            lambda: len(members.matchers) >= 2 and len(members.gateways_of_matchers) == 1
        )
        (gateway,) = members.gateways_of_matchers
        matcher = min(members.matchers - {gateway})
        client = min(members.alive.keys() - members.matchers, default=matcher)
        dead = {"gateway": gateway, "matcher": matcher, "client": client}[victim]
        members.kill(dead)
        players = [player for player in players if name_of(player) != dead]
        await arrive(Player, players, {})  # through a peer that knows nothing of it yet
        await settle(players, count(1000))
        # A peer that is served hears of a new gateway with one of its next heartbeats.
        await players[0].until(
            lambda: len(members.matchers) >= 2 and members.gateways <= members.matchers
        )
        await arrive(Player, players, {})
        await settle(players, count(2000))
        for player in players[::-1]:
            await player.end()

    run(story())


def test_when_the_process_of_the_gateway_is_killed_another_takes_over(members: Members) -> None:
    async def story() -> None:
        players: list[Player] = []
        await arrive(Process, players, MORTAL)
        first = players[0]
        assert isinstance(first, Process)
        await arrive(Player, players, {})
        await arrive(Player, players, {})
        await settle(players, count())

        def has_a_successor() -> bool:
            found = [node.matcher for node in members.alive.values() if node.matcher is not None]
            return any(name_of(first) in matcher.site.gateway.matchers for matcher in found)

        await first.until(has_a_successor)
        await first.kill()
        await settle(players[1:], count(1000))
        await arrive(Process, players, {})
        await settle(players[1:], count(2000))
        for player in players[:0:-1]:
            await player.end()

    run(story())


def test_begun_by_peers_an_overlay_has_two_matchers_unless_told_otherwise(members: Members) -> None:
    async def story() -> None:
        for settings, least in (({}, 2), ({"least": 1}, 1)):
            first = Player(PeerOptions(overlay="vso", settings=settings))
            await first.begin()
            second = Player(PeerOptions(join=first.address))
            await second.begin()
            assert [m.node.parameters.least for m in members.all[-2:]] == [least] * 2
            await second.end()
            await first.end()

    run(story())
