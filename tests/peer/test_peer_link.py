"""`nearcast.join`: the client of `connect` on every overlay, over real links on this machine."""

import asyncio
from contextlib import AsyncExitStack
from inspect import signature
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import nearcast
from nearcast.client.client import Client
from nearcast.client_protocol import messages as wire
from nearcast.client_protocol.geometry_json import Geometry
from nearcast.errors import ClosedError, InvalidRequestError, JoinError, NotOfferedError, Refused
from nearcast.model.commands import Leave
from nearcast.peer.host import run
from nearcast.peer.line_protocol import needed_offers
from nearcast.peer.peer import PeerOptions, parse_address
from nearcast.peer.peer_link import PeerLink, join
from nearcast.protocols import PROTOCOLS
from nearcast.protocols.offers import NODE_OFFERS, OverlayOffer
from nearcast.space.earth_shapes import earth_disc
from nearcast.space.shapes import disc, point
from nearcast.trace.reader import read, trace_geometry
from nearcast.trace.validate import validate
from support.offers import TRIALS, receives
from support.patience import PATIENCE_S
from support.peers import Player, Process

# Small networks that settle soon, of peers that a busy machine does not give up.
QUICK: dict[str, dict[str, Any]] = {
    "client-server": {"matcher": "scan"},
    "drtree": {"check_ms": 250.0, "misses": 40},
    "brokers": {"matcher": "scan", "evolving": "scan"},
    "bubblestorm": {"lambda": 3.0, "gossip_s": 1.0, "round_ms": 250.0},
    "psense": {"limit": 1_000_000, "round_ms": 100.0},
    "von": {},
    "vso": {
        "matcher": "scan", "world": 60.0, "least": 1, "f_adjust": 0.0, "f_move": 0.0, "misses": 40,
    },
    "relays": {},
}  # fmt: skip


async def join_all(stack: AsyncExitStack, overlay: str, number: int = 3) -> list[Client]:
    """The first begins, the others join it; all are near each other."""
    first = await stack.enter_async_context(join(overlay, **QUICK[overlay]))
    others = [await stack.enter_async_context(join(contact=first.node)) for _ in range(1, number)]
    clients = [first, *others]
    for client in clients:
        await client.subscribe(disc(0, 0, 60), channel="place")
    return clients


@pytest.mark.parametrize("overlay", PROTOCOLS)
def test_every_overlay_does_what_it_offers_and_refuses_the_rest(overlay: str) -> None:
    async def story() -> None:
        async with AsyncExitStack() as stack:
            client, *others = await join_all(stack, overlay)
            for offer, trial in TRIALS.items():
                if offer is OverlayOffer.EARTH:  # the client itself knows that this is a plane
                    with pytest.raises(ValueError, match="this world is a plane"):
                        await trial(client, others)
                    with pytest.raises(ValueError, match="this world is a plane"):
                        await client.publish(nearcast.earth_point(8.5, 47.4))
                elif offer in PROTOCOLS[overlay].offers:
                    await trial(client, others)
                else:
                    with pytest.raises(NotOfferedError) as refused:
                        await trial(client, others)
                    assert str(refused.value).startswith(f"{overlay} does not offer {offer.value};")

    run(story())


@pytest.mark.parametrize("overlay", PROTOCOLS)
def test_every_overlay_carries_a_world_on_earth(overlay: str, tmp_path: Path) -> None:
    country = earth_disc(7.5, 50.3, 250_000)

    async def story() -> None:
        async with AsyncExitStack() as stack:
            settings = QUICK[overlay] | ({"world": 1e7} if overlay == "vso" else {})
            first = await stack.enter_async_context(join(overlay, geometry="earth", **settings))
            joining = [join(contact=first.node, trace=tmp_path / name) for name in ("a", "b")]
            client, *others = [first, *[await stack.enter_async_context(one) for one in joining]]
            for one in (client, *others):
                assert one.geometry == "earth"
                await one.subscribe(country, channel="place")
            assert OverlayOffer.EARTH in PROTOCOLS[overlay].offers
            await TRIALS[OverlayOffer.EARTH](client, others)
            air = await client.subscribe(nearcast.earth_ball(7.5, 50.3, 900, 300))
            flying = asyncio.ensure_future(anext(air))
            async with asyncio.timeout(PATIENCE_S):
                while not flying.done():
                    await others[0].publish(nearcast.earth_disc(7.5, 50.3, 20, 100, 100))
                    await others[0].publish((7.5, 50.3, 800))
                    await asyncio.wait([flying], timeout=0.1)
            message = flying.result()
            assert (message.lon, message.lat, message.alt) == (7.5, 50.3, 800)
            await check_nearby(overlay, client, others)
            for wrong, why in (
                (client.subscribe("x >= 3"), "no formulas"),
                (client.subscribe("x >= a", variables={"a": 3.0}), "no formulas"),
                (client.subscribe(disc(0, 0, 5)), "this world is the Earth"),
                (client.publish(point(1, 1)), "this world is the Earth"),
            ):
                with pytest.raises(ValueError, match=why):
                    await wrong
            with pytest.raises(JoinError, match=r"geometry of the overlay at .* is earth"):
                await join(contact=first.node, geometry="plane").open()

    async def check_nearby(overlay: str, client: Client, others: list[Client]) -> None:
        if not PROTOCOLS[overlay].heights:
            with pytest.raises(InvalidRequestError, match="does not know where others are"):
                await client.nearby(country)
            return
        near: list[nearcast.Entity] = []
        async with asyncio.timeout(PATIENCE_S):
            while {entity.entity for entity in near} != {other.entity for other in others}:
                for other in others:
                    await other.publish((7.5, 50.3, 800))
                await asyncio.sleep(0.05)
                near = await client.nearby(earth_disc(7.5, 50.3, 100))
        for entity in near:
            assert entity.lon is not None and entity.lat is not None
            assert abs(entity.lon - 7.5) < 1e-6 and abs(entity.lat - 50.3) < 1e-6

    run(story())
    assert all(trace_geometry(tmp_path / name) == "earth" for name in ("a", "b"))


def test_every_offer_has_a_trial() -> None:
    assert list(TRIALS) == list(OverlayOffer)


@pytest.mark.parametrize("offer", TRIALS)
def test_a_node_does_what_it_offers_and_refuses_the_rest(offer: OverlayOffer) -> None:
    async def story() -> None:
        geometry: Geometry = "earth" if offer is OverlayOffer.EARTH else "plane"
        async with nearcast.World(geometry=geometry) as world:
            client, other = await world.join("ann"), await world.join("ben")
            if offer in NODE_OFFERS:
                await TRIALS[offer](client, [other])
            else:
                with pytest.raises(Refused, match=r"a node evaluates every area .* exactly"):
                    await TRIALS[offer](client, [other])

    run(story())


def test_requests_need_what_their_fields_ask_for() -> None:
    for request, offer in (
        (wire.SubscribeRequest(1, rates=[(3.0, 2.0)]), OverlayOffer.RATES),
        (wire.SubscribeRequest(1, closest=3), OverlayOffer.THROTTLING),
        (wire.SubscribeRequest(1, budget=3.0), OverlayOffer.THROTTLING),
        (wire.SubscribeRequest(1, near=3.0), OverlayOffer.FENCES),
        (wire.SubscribeRequest(1, evolve="lazy"), OverlayOffer.EVOLUTION),
        (wire.SubscribeRequest(1, fences="zones"), OverlayOffer.FENCES),
        (wire.SubscribeRequest(1, dwell=2.0), OverlayOffer.FENCES),
        (wire.FencesRequest("zones"), OverlayOffer.FENCES),
        (wire.SendRequest(3), OverlayOffer.DIRECT),
        (wire.SendRequest(3, name="orc"), OverlayOffer.NAMES),
        (wire.PublishRequest(1.0, 1.0, ttl=3.0), OverlayOffer.RETAINED_STATES),
        (wire.PublishRequest(lon=1.0, lat=1.0), OverlayOffer.EARTH),
    ):
        assert offer in set(needed_offers(request))


def test_a_peer_of_another_process_sends_less_to_a_subscriber_that_is_far(tmp_path: Path) -> None:
    trace = tmp_path / "publisher"

    def withheld() -> list[int]:
        """By the publisher itself, as far as its trace is written."""
        notes = read(trace, "notes").to_pylist()
        return [note["value"] for note in notes if note["fact"] == "withheld"]

    async def story() -> None:
        options = PeerOptions(overlay="bubblestorm", settings=QUICK["bubblestorm"], trace=trace)
        publisher = Process(options)
        await publisher.begin()
        publisher.say("subscribe", subscription=1, area={"x": 100, "y": 0, "r": 150})
        async with join(contact="{}:{}".format(*publisher.address)) as client:
            here = await client.subscribe(disc(0, 0, 150), rates=[(40.0, 2.0)])
            async with asyncio.timeout(PATIENCE_S):
                while not withheld():
                    publisher.say("publish", x=100, y=0)
                    await asyncio.sleep(0.02)
            assert set(withheld()) == {client.entity}
            times = sorted([(await anext(here)).t for _ in range(len(here.messages))])
            assert all(later - t >= 500_000 for t, later in pairwise(times))
        await publisher.end()

    run(story())


def test_peers_of_programs_and_of_command_lines_read_each_others_payloads() -> None:
    async def story() -> None:
        player = Player(PeerOptions(overlay="psense", settings=QUICK["psense"]))
        await player.begin()
        player.say("subscribe", subscription=1, area={"x": 0, "y": 0, "r": 50})
        async with join(contact="{}:{}".format(*player.address)) as client:
            here = await client.subscribe(disc(0, 0, 50))
            value = {"n": [1, 2.5, None, True], "text": "ä"}
            received = asyncio.ensure_future(anext(here))
            async with asyncio.timeout(PATIENCE_S):
                while not received.done() or not player.of("message"):
                    player.say("publish", x=1, y=2, payload=value)
                    await client.publish((3, 4), value, confirm=False)
                    await asyncio.sleep(0.05)
            assert received.result().payload == value
            assert player.of("message")[0]["payload"] == value
            async with asyncio.timeout(PATIENCE_S):
                while all(message["payload"] == value for message in player.of("message")):
                    await client.publish((3, 4), b"bytes")
                    await asyncio.sleep(0.05)
            assert player.of("message")[-1]["payload"] == "Ynl0ZXM="  # which is base64
        await player.end()

    run(story())


def test_a_message_to_nobody_that_a_peer_has_heard_of_is_refused() -> None:
    async def story() -> None:
        async with join("psense", **QUICK["psense"]) as client:
            with pytest.raises(nearcast.Refused, match="does not know where entity 12 is"):
                await client.send(12, "hello")
            with pytest.raises(InvalidRequestError, match="have no names"):
                await client.send("ann", "hello")

    run(story())


def test_a_client_whose_peer_has_stopped_ends_with_an_error() -> None:
    async def story() -> None:
        async with join("psense") as client:
            here = await client.subscribe(disc(0, 0, 1))
            link = client._first_link
            assert isinstance(link, PeerLink) and link._member is not None
            link._member.host.obey(client.entity, Leave())
            with pytest.raises(ClosedError, match="this peer has stopped"):
                await asyncio.wait_for(anext(here), PATIENCE_S)
            with pytest.raises(ConnectionError):
                await client.publish(point(1, 1))

    run(story())


def test_what_is_wrong_with_a_join_or_a_request_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({}, "which overlay shall begin"),
        ({"overlay": "ring"}, "no overlay 'ring'"),
        ({"overlay": "von", "geometry": "round"}, "no geometry 'round'; there are plane, earth"),
        ({"overlay": "von", "listen": "here"}, "an address is HOST:PORT"),
        ({"contact": "here"}, "an address is HOST:PORT"),
    ]
    for wrong, why in cases:
        with pytest.raises(ValueError, match=why):
            join(**wrong)

    async def story() -> None:
        with monkeypatch.context() as patched:
            patched.setattr("nearcast.peer.peer.JOIN_WITHIN_S", 0.3)
            with pytest.raises(JoinError, match=r"nobody answers at 127\.0\.0\.1:9"):
                await join(contact="127.0.0.1:9").open()
        with pytest.raises(JoinError, match="no setting 'depth' for von"):
            await join("von", depth=3).open()
        with pytest.raises(JoinError, match="on Earth psense has dimensions=3"):
            await join("psense", geometry="earth", dimensions=2).open()
        async with join("von") as client:
            with pytest.raises(JoinError, match="is in an overlay of von, not psense"):
                await join("psense", contact=client.node).open()
            with pytest.raises(InvalidRequestError, match="expected a value"):
                await client.subscribe("x <<< 1")
            assert client._subscriptions == {}
            parse_address(client.node)

    run(story())


@pytest.mark.parametrize("overlay", ["client-server", "bubblestorm"])
def test_the_trace_of_a_peer_is_complete_when_it_has_left(overlay: str, tmp_path: Path) -> None:
    async def story() -> None:
        async with join(overlay, trace=tmp_path / "peer", **QUICK[overlay]) as client:
            here = await client.subscribe(disc(0, 0, 5), echo=True)
            await receives(here, [client], point(1, 1))

    run(story())
    report = validate(tmp_path / "peer")
    assert report.finished and not report.problems
    notes = read(tmp_path / "peer", "notes").to_pylist()
    assert [note["fact"] for note in notes if note["fact"] in ("joined", "left")] == [
        "joined", "left",
    ]  # fmt: skip


def test_no_overlay_has_a_setting_that_join_takes_for_itself() -> None:
    own = set(signature(join).parameters) - {"settings"}
    for kind in PROTOCOLS.values():
        assert not own & set(kind.parameters.__struct_fields__)
