"""Peers of real overlays over real links, judged by their traces: nothing missed once settled."""

import asyncio
import json
from math import inf
from random import Random

import msgspec
import pytest

from nearcast.client_protocol import messages
from nearcast.model import commands
from nearcast.model.publication import Publication
from nearcast.peer.discovery import OverlayDescription
from nearcast.peer.host import run
from nearcast.peer.line_protocol import LineProtocol, unique_ids
from nearcast.peer.peer import PeerOptions, parse_address, run_peer
from nearcast.protocols.overlay import FIRST_SERVER
from nearcast.space.earth_shapes import earth_point
from nearcast.space.shapes import box, point
from support.examples import crossed
from support.peers import Player, Process, play


@crossed("overlay, link", ["client-server", "drtree", "brokers"], ["tls", "quic"])
def test_peers_miss_nothing_and_repeat_nothing_once_they_have_settled(overlay, link, tmp_path):
    run(play(Player, overlay, link, 5, tmp_path))


@pytest.mark.parametrize(
    ("overlay", "link"), [("client-server", "tls"), ("drtree", "quic"), ("vso", "quic")]
)
def test_peers_in_processes_of_their_own_miss_and_repeat_nothing(overlay, link, tmp_path):
    run(play(Process, overlay, link, 4, tmp_path))


def test_a_peer_with_a_key_file_has_the_same_name_after_a_restart(tmp_path):
    async def names() -> tuple[int, int]:
        options = PeerOptions(
            overlay="client-server", key=tmp_path / "key", settings={"matcher": "scan"}
        )
        player = Player(options)
        await player.begin()
        other = Player(PeerOptions(overlay="client-server", join=player.address))
        await other.begin()
        other.say("subscribe", subscription=1, area={"x": 0, "y": 0, "r": 1}, id=1)
        await other.until(lambda: other.of("done"))
        await other.end()
        await player.end()
        return player.of("welcome")[0]["entity"], other.of("welcome")[0]["entity"]

    first, again = run(names()), run(names())
    assert first[0] == again[0]
    assert first[1] != again[1]


def test_a_failed_join_is_reported_in_one_line(monkeypatch):
    async def main() -> None:
        lines: asyncio.Queue[bytes | None] = asyncio.Queue()
        options = PeerOptions(overlay="drtree", join=("127.0.0.1", 9))
        with pytest.raises(TimeoutError, match=r"nobody answers at 127\.0\.0\.1:9"):
            await run_peer(options, lines, lambda _: None)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    monkeypatch.setattr("nearcast.peer.peer.JOIN_WITHIN_S", 0.3)
    run(main())


def test_unknown_settings_and_names_are_refused():
    with pytest.raises(ValueError, match="no overlay 'ring'"):
        PeerOptions(overlay="ring")
    with pytest.raises(ValueError, match="no link 'pigeon'"):
        PeerOptions(overlay="drtree", link="pigeon")
    with pytest.raises(ValueError, match="no setting 'most_of_all'"):
        _ = PeerOptions(overlay="drtree", settings={"most_of_all": 1}).parameters
    with pytest.raises(ValueError, match="most must be"):
        _ = PeerOptions(overlay="drtree", settings={"most": 1}).parameters
    assert PeerOptions(overlay="drtree", settings={"most": "9"}).parameters.most == 9


@pytest.mark.parametrize("text", ["", "host", ":80", "host:", "host:0", "host:65536", "host:-1"])
def test_what_is_no_address_is_refused(text):
    with pytest.raises(ValueError, match="HOST:PORT"):
        parse_address(text)


def test_an_address_is_a_host_and_a_port():
    assert parse_address("127.0.0.1:80") == ("127.0.0.1", 80)
    assert parse_address("[::1]:80") == ("::1", 80)


class RecordingLineProtocol:
    """A line protocol by itself, with the notices that it sends."""

    def __init__(self) -> None:
        self.notices: list[messages.Notice] = []
        self.line_protocol = LineProtocol(self.notices.append)
        self.line_protocol.about = OverlayDescription("drtree")

    def command(self, line: str) -> commands.Command:
        return self.line_protocol.command(messages.JSON.read_request(line.encode()))


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ('{"do": "publish", "x": 1, "y": 2, "retain": true}', "drtree does not offer retained"),
        ('{"do": "subscribe", "subscription": 1, "watch": true}', "not offer presence"),
        ('{"do": "subscribe", "subscription": 1, "closest": 3}', "not offer fewer messages"),
        ('{"do": "move", "subscription": 9, "area": {}}', "no subscription 9"),
        ('{"do": "unsubscribe", "subscription": 9}', "no subscription 9"),
        ('{"do": "tune", "subscription": 9, "variables": {}}', "no subscription 9"),
        ('{"do": "join"}', "publishes, subscribes and leaves"),
        ('{"do": "publish", "x": 1, "y": 2, "r": 1, "rx": 2}', "not both"),
    ],
)
def test_what_a_peer_cannot_do_is_refused_with_a_reason(line, why):
    with pytest.raises(ValueError, match=why):
        RecordingLineProtocol().command(line)


def test_only_variables_that_leave_a_value_are_tuned():
    protocol = RecordingLineProtocol()
    protocol.command('{"do": "subscribe", "subscription": 4}')
    with pytest.raises(ValueError, match="subscription 4 has no variables"):
        protocol.command('{"do": "tune", "subscription": 4, "variables": {"v": 1}}')
    area = '{"formula": "x <= 1 / v"}'
    protocol.command(
        f'{{"do": "subscribe", "subscription": 5, "area": {area}, "variables": {{"v": 2}}}}'
    )
    with pytest.raises(ValueError):
        protocol.command('{"do": "tune", "subscription": 5, "variables": {"v": 0}}')
    assert protocol.command(
        '{"do": "tune", "subscription": 5, "variables": {"v": 4}}'
    ) == commands.Tune(protocol.line_protocol._subscribed[5].subscription, {"v": 4.0})


def test_the_same_number_again_replaces_that_subscription():
    protocol = RecordingLineProtocol()
    first = protocol.command('{"do": "subscribe", "subscription": 4, "area": {"x": 1, "y": 1}}')
    again = protocol.command('{"do": "subscribe", "subscription": 4, "area": {"x": 2, "y": 1}}')
    other = protocol.command('{"do": "subscribe", "subscription": 5}')
    assert first.subscription == again.subscription != other.subscription
    protocol.command('{"do": "unsubscribe", "subscription": 4}')
    renewed = protocol.command('{"do": "subscribe", "subscription": 4}')
    assert renewed.subscription != first.subscription


def test_a_delivery_is_one_line_with_the_applications_own_subscription_numbers():
    protocol = RecordingLineProtocol()
    wanted = protocol.command('{"do": "subscribe", "subscription": 4}').subscription
    packed = msgspec.msgpack.encode({"a": "1\n"})
    for number, payload in enumerate((packed, b"no value\n", msgspec.msgpack.encode(inf), b"")):
        publication = Publication(number, 3, 9, box(1, 2, 5, 6), payload=payload)
        protocol.line_protocol.deliver(1, publication, (wanted, 12345))
    lines = [messages.JSON.encode(notice) for notice in protocol.notices]
    notices = [json.loads(line) for line in lines]
    assert all(b"\n" not in line for line in lines)
    assert [(t["to"], t["from"], t["x"], t["rx"]) for t in notices] == [([4], 3, 1.0, 5.0)] * 4
    assert [t.get("payload") for t in notices] == [{"a": "1\n"}, None, None, None]


def test_on_earth_a_delivery_has_degrees_and_what_is_no_place_there_is_left_out():
    protocol = RecordingLineProtocol()
    protocol.line_protocol.about = OverlayDescription("drtree", geometry="earth")
    area = '{"lon": 8, "lat": 47, "r": 500}'
    wanted = protocol.command(f'{{"do": "subscribe", "subscription": 4, "area": {area}}}')
    for number, shape in enumerate((point(1, 2), box(1, 2, 5, 6), earth_point(8, 47, 300))):
        publication = Publication(number, 3, 9, shape)
        protocol.line_protocol.deliver(1, publication, (wanted.subscription,))
    (told,) = [json.loads(messages.JSON.encode(notice)) for notice in protocol.notices]
    assert (told["lon"], told["lat"], told["alt"], told.get("x")) == (8, 47, 300, None)
    for line, why in (
        ('{"do": "publish", "x": 1, "y": 2}', "this world is the Earth"),
        ('{"do": "publish", "lon": 8}', "needs lon and lat"),
    ):
        with pytest.raises(ValueError, match=why):
            protocol.command(line)


def test_a_payload_travels_as_messagepack_or_is_refused():
    protocol = RecordingLineProtocol()
    sent = protocol.command('{"do": "publish", "x": 1, "y": 2, "payload": {"a": [1, null]}}')
    assert sent.payload == msgspec.msgpack.encode({"a": [1, None]})
    with pytest.raises(ValueError, match="the payload cannot be"):
        protocol.command(f'{{"do": "publish", "x": 1, "y": 2, "payload": {2**64}}}')


def test_numbers_differ_between_peers_and_are_identifiers():
    one, other = unique_ids(Random(1)), unique_ids(Random(2))
    drawn = [next(one) for _ in range(70_000)] + [next(other) for _ in range(70_000)]
    assert len(set(drawn)) == len(drawn)
    assert all(0 <= number < 2**53 for number in drawn)
    assert Publication(drawn[0], FIRST_SERVER, 0, point(0, 0)).id == drawn[0]
