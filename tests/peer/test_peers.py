"""Coming into an overlay by one address, whatever the overlay; and what goes wrong, in one line."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nearcast.client.client import Client
from nearcast.client.subscription import Subscription
from nearcast.node import Node
from nearcast.peer.bootstrap import REMIND, Bootstrap, KnownPeers
from nearcast.peer.host import run
from nearcast.peer.peer import PeerOptions, run_peer
from nearcast.peer.peer_link import PeerLink, join
from nearcast.protocols.brokers.broker import Broker
from nearcast.protocols.brokers.client import BrokerClient
from nearcast.protocols.overlay import FIRST_SERVER
from nearcast.space.motion import SECOND
from nearcast.space.shapes import disc
from nearcast.transport.address_book import AddressBook, sign_record
from nearcast.transport.identity import new_identity
from support.fork_server import fork_server
from support.patience import PATIENCE_S
from support.peers import SETTINGS, Player, Process, play, send_around

EVERYBODY = {"x": 0, "y": 0, "r": 50}
# Small networks that settle soon, of peers that a busy machine does not give up.
QUICK: dict[str, dict[str, Any]] = {
    "bubblestorm": {"lambda": 3.0, "gossip_s": 1.0},
    "psense": {"limit": 1_000_000, "silent_s": 15.0},
    "von": {"misses": 12},
}


@pytest.mark.parametrize(
    ("kind", "overlay", "link"),
    [(Player, "bubblestorm", "quic"), (Player, "psense", "tls"), (Process, "von", "tls")],
)
def test_peers_that_know_one_address_find_all_and_miss_nothing(
    kind: type[Player], overlay: str, link: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SETTINGS, overlay, QUICK[overlay])
    run(play(kind, overlay, link, 4, tmp_path))


async def until_received(players: list[Player], speaker: Player) -> None:
    """What one says, all others hear, sooner or later."""
    name = speaker.of("welcome")[0]["entity"]

    def heard_by(other: Player) -> bool:
        return any(message["from"] == name for message in other.of("message"))

    async with asyncio.timeout(PATIENCE_S):
        while not all(heard_by(other) for other in players if other is not speaker):
            speaker.say("publish", x=1, y=1, payload="hello")
            await asyncio.sleep(0.2)


# An area that moves, and in how many ways brokers follow it: subscriptions by number.
GOING = {"x": -30, "y": 0, "r": 5, "to": [[30, 0]], "speed": 200}
EVOLVING: dict[int, dict[str, Any]] = {
    2: {"evolve": "periodic", "interval": 0.1},
    3: {"evolve": "lazy"},
    4: {"evolve": "cached", "threshold": 0.1},
    5: {"evolve": "swept"},
}


async def until_areas_have_arrived(players: list[Player]) -> None:
    """All but the first have such subscriptions. Nothing beside the way is for them."""
    first, *others = players
    for player in others:
        for number, options in EVOLVING.items():
            player.say("subscribe", subscription=number, area=GOING, **options)

    def found(payload: str) -> list[set[int]]:
        messages = [
            [m for m in player.of("message") if m["payload"] == payload] for player in others
        ]
        return [{to for m in received for to in m["to"]} for received in messages]

    async with asyncio.timeout(PATIENCE_S):
        while any(numbers < {1, *EVOLVING} for numbers in found("at its end")):
            first.say("publish", x=0, y=8, payload="beside")
            first.say("publish", x=30, y=3, payload="at its end")
            await asyncio.sleep(0.1)
    assert all(numbers <= {1} for numbers in found("beside"))
    assert not any(player.of("error") for player in players)


def test_brokers_come_up_beside_each_other_and_clients_attach_to_any() -> None:
    """Two brokers and four clients, in processes. Brokers follow areas in all ways side by side,
    and clients send to each other."""

    async def story() -> None:
        settings = {"matcher": "scan", "evolving": "scan"}
        first = Process(PeerOptions(overlay="brokers", settings=settings))
        await first.begin()
        second = Process(PeerOptions(join=first.address, serve=True))
        await second.begin()
        assert second.address != first.address
        third = Process(PeerOptions(join=second.address))
        await third.begin()
        fourth = Process(PeerOptions(join=third.address))  # a client, which knows its broker
        await fourth.begin()
        players: list[Player] = [first, second, third, fourth]
        for player in players:
            player.say("subscribe", subscription=1, area=EVERYBODY)
        for speaker in players:
            await until_received(players, speaker)
        await until_areas_have_arrived(players)
        await send_around(players)
        for player in players[::-1]:
            await player.end()

    run(story())


def test_brokers_link_around_one_that_is_killed_and_its_clients_find_another() -> None:
    """The first broker and the second, below it, are processes; the third is below the second."""

    def node_of(client: Client, kind: type[Node]) -> Any:
        link = client._first_link
        assert isinstance(link, PeerLink) and link._member is not None
        return next(node for node in link._member.host.nodes.values() if isinstance(node, kind))

    async def hears(subscription: Subscription, speaker: Process, word: str) -> None:
        hearing = asyncio.ensure_future(_until_payload(subscription, word))
        while not hearing.done():
            speaker.say("publish", x=1, y=1, payload=word)
            await asyncio.wait([hearing], timeout=0.2)
        await hearing

    async def story() -> None:
        # A busy machine is not dead.
        settings = {"heartbeat_ms": 250.0, "misses": 40, "matcher": "scan", "evolving": "scan"}
        first = Process(PeerOptions(overlay="brokers", settings=settings))
        await first.begin()
        second = Process(PeerOptions(join=first.address, serve=True))
        await second.begin()
        where = "{}:{}".format(*second.address)
        async with (
            asyncio.timeout(PATIENCE_S),
            join(contact=where, serve=True) as third,
            join(contact=where) as client,
        ):
            subscriptions = [await one.subscribe(disc(0, 0, 50)) for one in (third, client)]
            for subscription in subscriptions:
                await hears(subscription, first, "before")
            broker, attached = node_of(third, Broker), node_of(client, BrokerClient)
            former = attached.broker
            assert broker.parent == former
            # By heartbeats, they hear of whom else there is.
            while not broker.ancestors.above[1:] or len(attached.brokers) < 2:
                await asyncio.sleep(0.01)
            await second.kill()
            for subscription in subscriptions:
                await hears(subscription, first, "after")
            assert broker.parent == broker.ancestors.above[0] != former
            assert attached.broker != former
            word = asyncio.ensure_future(_until_payload(subscriptions[0], "client"))
            while not word.done():
                await client.publish((2, 2), "client")
                await asyncio.wait([word], timeout=0.2)
        await first.end()

    run(story())


async def _until_payload(subscription: Subscription, wanted: str) -> None:
    """Nothing may arrive twice until then."""
    received: list[int] = []
    async for message in subscription:
        received.append(message.publication)
        assert len(received) == len(set(received))
        if message.payload == wanted:
            return


def test_a_newcomer_learns_overlay_and_settings_from_the_peer_that_it_joins(tmp_path: Path) -> None:
    async def story() -> None:
        first = Player(PeerOptions(overlay="psense", settings={"round_ms": 100.0, "dimensions": 3}))
        await first.begin()
        other = Player(PeerOptions(join=first.address, trace=tmp_path / "other"))
        await other.begin()
        for player in (first, other):
            player.say("subscribe", subscription=1, area={**EVERYBODY, "z": 200})
        first.say("publish", x=0, y=0, z=0)
        for speaker in (first, other):
            async with asyncio.timeout(PATIENCE_S):
                hearer = other if speaker is first else first
                while not hearer.of("message"):
                    speaker.say("publish", x=0, y=0, z=200)
                    await asyncio.sleep(0.1)
        assert {m["z"] for m in first.of("message")} == {200.0}
        with pytest.raises(ValueError, match="is in an overlay of psense, not von"):
            await run_peer(
                PeerOptions(overlay="von", join=first.address), asyncio.Queue(), lambda _: None
            )
        with pytest.raises(ValueError, match="no room for a further server"):
            await run_peer(
                PeerOptions(join=first.address, serve=True), asyncio.Queue(), lambda _: None
            )
        await other.end()
        await first.end()

    run(story())


def test_errors_distinguish_no_answer_from_an_answer_of_something_else(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("nearcast.peer.peer.JOIN_WITHIN_S", 0.3)
    monkeypatch.setattr("nearcast.peer.peer.PROBE_S", PATIENCE_S)

    async def why(options: PeerOptions) -> str:
        with pytest.raises((OSError, ValueError)) as error:
            await run_peer(options, asyncio.Queue(), lambda _: None)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return str(error.value)

    async def story() -> None:
        def hang_up(_: Any, writer: asyncio.StreamWriter) -> None:
            writer.close()

        server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
        other = server.sockets[0].getsockname()[:2]
        where = f"{other[0]}:{other[1]}"
        assert (
            await why(PeerOptions(join=other))
            == f"whoever listens at {where} is no peer with tls links"
        )
        assert "try --link tls" in await why(PeerOptions(join=other, link="quic"))
        server.close()
        await server.wait_closed()
        assert await why(PeerOptions(join=other)) == f"nobody answers at {where}"
        key = tmp_path / "key"
        key.write_text("no key")
        key.chmod(0o600)
        assert "holds no private key" in await why(PeerOptions(overlay="von", key=key))

    run(story())


def test_two_peers_with_one_key_are_not_taken_for_one(tmp_path: Path) -> None:
    async def story() -> None:
        first = Player(PeerOptions(overlay="von", key=tmp_path / "key"))
        await first.begin()
        with pytest.raises(ConnectionError, match="the key that this one has"):
            twin = PeerOptions(join=first.address, key=tmp_path / "key")
            await run_peer(twin, asyncio.Queue(), lambda _: None)
        await first.end()

    run(story())


def test_the_first_peer_needs_an_overlay_and_an_address_that_others_can_reach() -> None:
    with pytest.raises(ValueError, match="which overlay shall begin"):
        PeerOptions()
    with pytest.raises(ValueError, match="is nowhere"):
        PeerOptions(overlay="von", host="0.0.0.0")
    assert PeerOptions(overlay="von").own_host() == "127.0.0.1"
    assert PeerOptions(join=("127.0.0.9", 9)).own_host() == "127.0.0.1"
    assert PeerOptions(join=("127.0.0.9", 9), host="127.0.0.3").own_host() == "127.0.0.3"


PROGRAM = (sys.executable, "-m", "nearcast.cli")


def started(*arguments: str, inside: tuple[str, ...] = ()) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [*inside, *(PROGRAM if inside else (fork_server(),)), "peer", *arguments],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "NEARCAST_DEBUG": ""},
    )  # fmt: skip


def notice_of(process: "subprocess.Popen[str]") -> dict[str, Any]:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, process.stderr and process.stderr.read()
    notice: dict[str, Any] = json.loads(line)
    return notice


def tell(process: "subprocess.Popen[str]", **request: Any) -> None:
    assert process.stdin is not None
    process.stdin.write(json.dumps(request) + "\n")
    process.stdin.flush()


def test_a_peer_that_is_still_joining_stops_on_request() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with started("--join", f"127.0.0.1:{port}") as process:
            called = silent.accept()  # and is not answered
            process.send_signal(signal.SIGINT)
            assert process.wait(PATIENCE_S) == 0
            assert process.stdout is not None and process.stdout.read() == ""
            called[0].close()


def test_a_program_lets_websockets_in_until_it_is_stopped() -> None:
    with started("--overlay", "psense", "--websocket", "0", "--json") as process:
        where = notice_of(process)
        assert where["websocket"].startswith("ws://127.0.0.1:")
        assert where["join"].startswith("127.0.0.1:")
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 0
    with started("--overlay", "psense", "--websocket", "0", "--bots", "2") as process:
        assert process.wait(PATIENCE_S) != 0
        assert process.stderr is not None
        assert "start two programs" in process.stderr.read()
    with started("--overlay", "psense", "--geometry", "earth", "--bots", "2") as process:
        assert process.wait(PATIENCE_S) != 0
        assert process.stderr is not None
        assert "bots play in a plane" in process.stderr.read()


NETWORK = "10.213.78"


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


@pytest.fixture
def spaces() -> Iterator[list[str]]:
    """Three network namespaces on one bridge."""
    names, bridge = [f"ncpeer-{number}" for number in (1, 2, 3)], "ncpeer0"

    def unmake() -> None:
        for arguments in (*(["netns", "del", name] for name in names), ["link", "del", bridge]):
            subprocess.run(["ip", *arguments], check=False, capture_output=True)

    unmake()
    try:
        ip("link", "add", bridge, "type", "bridge")
        ip("link", "set", bridge, "up")
        for number, name in enumerate(names, 1):
            ip("netns", "add", name)
            ip("link", "add", f"ncp{number}", "type", "veth", "peer", "name", "eth0", "netns", name)
            ip("link", "set", f"ncp{number}", "master", bridge, "up")
            ip("-n", name, "addr", "add", f"{NETWORK}.{number}/24", "dev", "eth0")
            for device in ("eth0", "lo"):
                ip("-n", name, "link", "set", device, "up")
    except (OSError, subprocess.CalledProcessError) as why:
        unmake()
        pytest.skip(f"network namespaces are not permitted here: {why}")
    yield names
    unmake()


def test_peers_on_different_hosts_reach_peers_that_they_know_by_name_only(
    spaces: list[str],
) -> None:
    def start(number: int, *arguments: str) -> "subprocess.Popen[str]":
        return started(*arguments, inside=("ip", "netns", "exec", spaces[number - 1]))

    where = f"{NETWORK}.1:9001"
    with (
        start(1, "--overlay", "bubblestorm", "--host", f"{NETWORK}.1", "--port", "9001",
              "--set", "gossip_s=1") as one,
        start(2, "--join", where) as two,
        start(3, "--join", where) as three,
    ):  # fmt: skip
        peers = [one, two, three]
        assert [notice_of(peer)["node"].split(":")[0] for peer in peers] == [
            f"{NETWORK}.{number}" for number in (1, 2, 3)
        ]
        # The first has no interest: two and three can hear each other only directly.
        for peer in (two, three):
            tell(peer, do="subscribe", subscription=1, area=EVERYBODY)
        for _ in range(int(PATIENCE_S / 0.2)):
            tell(two, do="publish", x=1, y=1, payload="hello")
            tell(three, do="publish", x=1e6, y=1e6, id=1)
            notice = notice_of(three)
            if notice["is"] == "message":
                break
            time.sleep(0.2)
        assert notice["payload"] == "hello"
        for peer in peers[::-1]:
            peer.send_signal(signal.SIGINT)
            peer.stdout.read()
            assert peer.wait(PATIENCE_S) == 0


def test_each_record_is_introduced_once_when_due_and_all_again_now_and_then() -> None:
    node, book = SimpleNamespace(id=7, error=[]), AddressBook()
    young, old, server = new_identity(), new_identity(), new_identity(serves=True)
    bootstrap = Bootstrap(
        lambda *_: node, introduce=lambda to, name: to.error.append(name), newcomer=5 * SECOND
    )
    begun = 1_000 * SECOND
    for identity, t in ((old, begun - 9 * SECOND), (young, begun), (server, 0)):
        assert book.add_record(sign_record(identity, "127.0.0.1", 80, t))
    acquaintances = KnownPeers(bootstrap, node, book)
    for second in range(8):
        acquaintances.introduce_due(begun + second * SECOND)
    assert node.error == [old.name, young.name]
    assert server.name >= FIRST_SERVER
    book.add_record(sign_record(old, "127.0.0.1", 81, begun + SECOND))
    acquaintances.introduce_due(begun + 9 * SECOND)
    assert node.error[2:] == [old.name]
    acquaintances.introduce_due(begun + REMIND)
    assert sorted(node.error[3:]) == sorted([old.name, young.name])
