"""Who has not the cluster's key changes nothing, and what is no message changes nothing either."""

import asyncio
import logging
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

import nearcast
from nearcast.errors import JoinError, KeyFileError
from nearcast.model.subscription import Subscription
from nearcast.node import Send
from nearcast.protocols.voronoi.vso.messages import Record, RecordCopies
from nearcast.server.cluster_links import MOST_EARLY_FRAMES, ClusterLinks, cluster_key
from nearcast.server.config import ClusterSettings, Settings
from nearcast.server.server import Server
from nearcast.service.cluster.messages import (
    CLIENTS_ONLY,
    CODEC,
    CallIn,
    ClientReturned,
    ClientTransfer,
    ClusterJoinRequest,
    CountReply,
    CountRequest,
    EntitiesAbsent,
    EntitiesLeft,
    EntityCheck,
    ForwardedRequest,
    HandoverCancelled,
    HandoverConfirmed,
    HandoverOffer,
    NodeHeartbeat,
    NodeStopping,
    PublicationBatch,
    RemotePublication,
    RetainedStatesReport,
    RetainedStatesRequest,
    SubscriptionEnded,
    SubscriptionHint,
    SubscriptionOwned,
    SubscriptionUpdate,
)
from nearcast.service.cluster.remote_subscriptions import record_of
from nearcast.space.motion import SECOND, Moving, Time
from nearcast.space.shapes import disc, point
from nearcast.transport import links as bounds
from nearcast.transport.address_book import sign_record
from nearcast.transport.identity import new_identity
from nearcast.transport.tls import TlsTransport
from support.cluster_processes import Node
from support.join_targets import address
from support.patience import PATIENCE_S


def member(key: Path, join: str = "") -> Server:
    return Server(Settings(port=0, record=False, cluster=ClusterSettings(key=str(key), join=join)))


def where(service: Server) -> tuple[str, int]:
    assert service.cluster_host is not None
    return service.cluster_host.links.host, service.cluster_host.links.port


@asynccontextmanager
async def pair(folder: Path) -> AsyncIterator[tuple[Server, Server]]:
    """Two members who know each other."""
    key = folder / "key"
    async with member(key) as one, member(key, "{}:{}".format(*where(one))) as two:
        async with asyncio.timeout(PATIENCE_S):
            while not all(knows_another(service) for service in (one, two)):
                await asyncio.sleep(0.02)
        yield one, two


def knows_another(service: Server) -> bool:
    cluster = service.cluster
    return cluster is not None and bool(cluster.nodes) and bool(cluster.site.mesh.known)


def state(service: Server) -> tuple[Any, ...]:
    """All that words between nodes could change."""
    cluster, realm = service.cluster, service.realm
    assert cluster is not None
    return (
        sorted(cluster.nodes), sorted(cluster.site.ownership.records.slot),
        len(cluster.remote_subscriptions),
        sorted(cluster.registry.mine), [client and client.entity for client in realm.clients],
        len(realm.remote_entities), sorted(cluster.site.mesh.known), realm.waiting,
    )  # fmt: skip


def messages_of(outsider: int) -> list[Any]:
    """One of each kind, well-formed."""
    record = record_of(outsider, Subscription(77, 78, Moving(disc(0, 0, 10))), 5, 0)
    said = (RemotePublication(99, 78, 5, True, 1.0, 2.0),)
    return [
        NodeHeartbeat("ws://evil", 1.0, (0.0, 0.0), ()), ClusterJoinRequest("ws://evil"),
        SubscriptionUpdate((record,)),
        SubscriptionHint((record,)), SubscriptionEnded(((77, 9),)), SubscriptionOwned(((77, 9),)),
        PublicationBatch(b"\0", said), CountRequest(said),
        EntitiesLeft((1,)), NodeStopping(), HandoverOffer("x" * 20), ForwardedRequest(78, b"{}",
        False), RecordCopies((record,)),
        CountReply(((99, 3),)), RetainedStatesRequest(), RetainedStatesReport(5, said),
        EntityCheck((78,)), EntitiesAbsent((78,)),
        HandoverConfirmed("x" * 20, settled=True), HandoverCancelled("x" * 20),
        ClientReturned(ClientTransfer("x" * 20, 78, "", (), (), (), 5), 0),
        CallIn((0.0, 0.0), outsider),
    ]  # fmt: skip


def test_an_outsider_is_refused_with_a_reason_and_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        async with pair(tmp_path) as (one, _):
            before = state(one)
            outsider = TlsTransport(new_identity(serves=True))
            answers: list[bytes] = []
            await outsider.open(lambda _, frames: answers.extend(frames))
            name = await outsider.meet(*where(one))
            for word in messages_of(outsider.name):
                outsider.send(name, CODEC.encode(word), lossy=False)
            async with asyncio.timeout(PATIENCE_S):  # with that the link has ended
                while not any(b"have not shown the key" in answer for answer in answers):
                    await asyncio.sleep(0.01)
            assert state(one) == before
            await outsider.close()

    with caplog.at_level(logging.WARNING, "nearcast"):
        asyncio.run(story())
    refusals = [r for r in caplog.records if "is refused" in r.getMessage()]
    assert len(refusals) == 1


def test_an_outsider_that_shows_no_key_is_cut_however_it_behaves_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        async with member(tmp_path / "key") as one:
            assert one.cluster_host is not None
            links = one.cluster_host.links
            monkeypatch.setattr(bounds, "PATIENCE_S", 0.3)
            outsider = TlsTransport(new_identity(serves=True))
            await outsider.open(lambda *_: None)
            name = await outsider.meet(*where(one))  # which greets
            for _ in range(10):  # cards of others wait until it has shown the key
                card = sign_record(new_identity(), "127.0.0.1", 4000, 7)
                outsider.add_record(card)
                outsider._write(outsider._peers[name].link, [])
            async with asyncio.timeout(PATIENCE_S):
                while links._links:
                    assert sum(map(len, links._early.values())) <= MOST_EARLY_FRAMES
                    await asyncio.sleep(0.01)
            assert not links._early and outsider.name not in links.members
            await outsider.close()

    asyncio.run(story())


def test_a_node_with_another_key_cannot_join(tmp_path: Path) -> None:
    async def story() -> None:
        other = tmp_path / "other"
        cluster_key(other, make=True)
        async with member(tmp_path / "key") as one:
            with pytest.raises(JoinError, match="is not the key of that cluster"):
                async with member(other, "{}:{}".format(*where(one))):
                    pass
            assert one.cluster is not None
            assert one.cluster.nodes == {}

    asyncio.run(story())


def test_the_command_says_in_one_line_why_it_could_not_join(tmp_path: Path) -> None:
    async def story() -> None:
        first = Node(tmp_path, 0)
        try:
            await first.ready()
            (tmp_path / "elsewhere").mkdir()
            cluster_key(tmp_path / "elsewhere" / "cluster.key", make=True)
            second = Node(tmp_path / "elsewhere", 1, "--join", first.cluster)
            assert await second.stopped() == 1
            (line,) = [x for x in second.log.read_text().splitlines() if "cannot join" in x]
            assert first.cluster in line
            assert "the key of this node is not the key of that cluster" in line
        finally:
            first.stop()
            await first.stopped()

    asyncio.run(story())


def test_malformed_frames_between_nodes_change_nothing(tmp_path: Path) -> None:
    random = Random(3)

    def frames(sender: int) -> list[bytes]:
        good = [CODEC.encode(word) for word in messages_of(sender)]
        bad = [bytes(random.randrange(256) for _ in range(random.randrange(60))) for _ in range(50)]
        bad += [frame[: random.randrange(len(frame))] for frame in good]
        empty = Record(77, 78, Moving(disc(0, 0, 10)), 5, body=b"\xc1")
        nowhere = RemotePublication(99, 78, 5, True, float("nan"), 2.0)
        wrong = RemotePublication(98, 78, 5, True, 1.0, 2.0, attributes={"x": 3})
        bad += [
            CODEC.encode(SubscriptionUpdate((empty,))),
            CODEC.encode(SubscriptionHint((empty,))),
        ]
        bad += [
            CODEC.encode(PublicationBatch(bytes((CLIENTS_ONLY,)) * 2, (nowhere, wrong))),
            CODEC.encode(ForwardedRequest(5, b"{}", False)),
        ]
        return bad

    async def story() -> None:
        async with pair(tmp_path) as (one, two):
            before = state(one)
            key = cluster_key(tmp_path / "key", make=False)
            mad = ClusterLinks(new_identity(serves=True), "127.0.0.1", 0, key)
            await mad.open(lambda *_: None)
            name = await mad.meet(*where(one))
            for frame in frames(mad.name):
                mad.send(name, frame, lossy=False)
            await asyncio.sleep(0.5)
            assert state(one) == before
            await mad.close()
            await heard_across(one, two)

    asyncio.run(story())


async def heard_across(one: Server, two: Server) -> None:
    """Somebody on one node hears what is said on the other."""
    async with (
        nearcast.connect(address(one), name="a") as a,
        nearcast.connect(address(two), name="b") as b,
    ):
        here = await a.subscribe(disc(0, 0, 50))
        await b.publish(point(1, 2), "hello")
        async with asyncio.timeout(PATIENCE_S):
            async for message in here:
                assert message.payload == "hello"
                return


def test_a_key_file_is_its_owners_alone(tmp_path: Path) -> None:
    file = tmp_path / "new" / "key"
    key = cluster_key(file, make=True)
    assert cluster_key(file, make=True) == key
    assert file.stat().st_mode & 0o077 == 0
    file.chmod(0o644)
    with pytest.raises(KeyFileError, match="can be read by others"):
        cluster_key(file, make=False)
    with pytest.raises(KeyFileError, match="cannot use"):
        cluster_key(tmp_path / "none", make=False)


# Network namespaces.

BRIDGE, NETWORK = "ncast0", "10.213.77"


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


def unmake(spaces: list[str]) -> None:
    for space in spaces:
        subprocess.run(["ip", "netns", "del", space], check=False, capture_output=True)
    subprocess.run(["ip", "link", "del", BRIDGE], check=False, capture_output=True)


@pytest.fixture
def spaces() -> Any:
    """Two network namespaces, each with an address of its own on one bridge."""
    names = ["ncast-one", "ncast-two"]
    unmake(names)
    try:
        ip("link", "add", BRIDGE, "type", "bridge")
        ip("addr", "add", f"{NETWORK}.254/24", "dev", BRIDGE)
        ip("link", "set", BRIDGE, "up")
        for number, name in enumerate(names, 1):
            ip("netns", "add", name)
            ip("link", "add", f"ncv{number}", "type", "veth", "peer", "name", "eth0", "netns", name)
            ip("link", "set", f"ncv{number}", "master", BRIDGE, "up")
            ip("-n", name, "addr", "add", f"{NETWORK}.{number}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")
            ip("-n", name, "link", "set", "lo", "up")
    except (OSError, subprocess.CalledProcessError) as why:
        unmake(names)
        pytest.skip(f"network namespaces are not permitted here: {why}")
    yield names
    unmake(names)


def test_nodes_in_network_namespaces_of_their_own_are_one_cluster(
    tmp_path: Path, spaces: list[str]
) -> None:
    def start(number: int, *flags: str) -> Node:
        host = f"{NETWORK}.{number}"
        tokens = tmp_path / "tokens.toml"
        tokens.write_text('[all]\ntoken = "open sesame"\nrole = "admin"\n')
        return Node(
            tmp_path, number, "--host", host, "--cluster-host", host, "--token-file", str(tokens),
            *flags, inside=("ip", "netns", "exec", spaces[number - 1]),
        )  # fmt: skip

    async def story() -> None:
        nodes = [start(1)]
        try:
            await nodes[0].ready()
            nodes.append(start(2, "--join", nodes[0].cluster))
            await nodes[1].ready()
            join = {"token": "open sesame"}
            async with (
                nearcast.connect(nodes[0].url, name="a", **join) as a,
                nearcast.connect(nodes[1].url, name="b", **join) as b,
            ):
                here, there = await a.subscribe(disc(0, 0, 50)), await b.subscribe(disc(0, 0, 50))
                await a.publish(point(1, 2), "from a")
                await b.publish(point(1, 2), "from b")
                async with asyncio.timeout(PATIENCE_S):
                    assert (await anext(aiter(here))).payload == "from b"
                    assert (await anext(aiter(there))).payload == "from a"
        finally:
            for node in nodes:
                node.stop()
            for node in nodes:
                await node.stopped()

    asyncio.run(story())


def test_a_node_that_is_always_late_still_says_that_it_is_there(tmp_path: Path) -> None:
    async def story() -> tuple[list[bool], Time, Time]:
        async with pair(tmp_path) as (one, two):
            cluster, other = one.cluster, two.cluster
            assert cluster is not None and other is not None
            beats, now = [], one.gateway.now()
            # Its own ticks may have been late until now: this machine may be busy.
            cluster._stood_still, cluster._last_tick = False, now
            own_clock = cluster._clock
            for turn in range(1, 5):
                cluster._last_heartbeat = 0
                cluster._clock = lambda turn=turn: now + turn * SECOND
                cluster.tick()
                beats.append(cluster._last_heartbeat > 0)
            cluster._clock = own_clock
            one.gateway.service.out.drain()
            other.nodes[cluster.id].last_heard = 0
            one.gateway.apply([Send(other.id, EntitiesLeft(()))])
            async with asyncio.timeout(PATIENCE_S):
                while not other.nodes[cluster.id].last_heard:
                    await asyncio.sleep(0.01)
            return beats, other.nodes[cluster.id].last_heard, now

    beats, heard, now = asyncio.run(story())
    assert beats == [False, True, False, True], "what others said is read before it judges them"
    assert heard >= now - SECOND, "whatever it says is a sign of life"
