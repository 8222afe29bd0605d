"""Worlds with polygons and other outlines, on Earth and in a plane: deliveries are the truth's."""

import asyncio
import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

import nearcast
from nearcast.client.client import Client
from nearcast.client_protocol.limits import Limits
from nearcast.client_protocol.messages import PublishRequest
from nearcast.server.server import Server
from nearcast.service.access.grants import TokenArea, contains_shape
from nearcast.space.motion import Moving
from nearcast.trace import reader
from nearcast.trace.validate import validate
from support.brute_force import delivered, expected
from support.earth_areas import EarthAreas, PlaneAreas
from support.join_targets import address, quiet, run
from support.raw_websocket import http
from support.scripted_nodes import until


async def wander(rng: Random, areas: Any, me: Client) -> None:
    """Subscribe, change areas, and publish."""
    mine = [await me.subscribe(areas.area(), echo=rng.random() < 0.5) for _ in range(4)]
    for _ in range(20):
        act = rng.randrange(8)
        if act == 0:
            await rng.choice(mine).move(areas.area())
        elif act == 1:
            far = 20_000.0 if me.geometry == "earth" else 200.0
            await me.move_to(areas.centre(), rng.uniform(far / 10, far))
        elif act == 2 and me.geometry == "plane":
            await rng.choice(mine).move(Moving(areas.area(), velocity=(rng.uniform(-99, 99), 9, 0)))
        else:
            await me.publish(areas.place(), rng.random(), retain=rng.random() < 0.3)
        await asyncio.sleep(0)


async def play(world: nearcast.World, rng: Random, areas: Any) -> int:
    """Everybody wanders; how many messages their applications have received."""
    clients = [await world.join(f"client {number}") for number in range(6)]
    streams = [client.messages() for client in clients]
    await asyncio.gather(*(wander(rng, areas, client) for client in clients))
    return sum(map(len, streams))


PLACES = [(8.5, 47.4), (179.9, 10), (-60, 90), (20, -89.5)]


@pytest.mark.parametrize("place", [None, *PLACES])
def test_deliveries_are_those_that_the_trace_says_should_be(
    place: tuple[float, float] | None, tmp_path: Path
) -> None:
    rng = Random(str(place))
    areas = PlaneAreas(rng) if place is None else EarthAreas(rng, *place)
    geometry: Any = "plane" if place is None else "earth"
    trace = tmp_path / "trace"

    async def story() -> None:
        async with nearcast.World(trace=trace, geometry=geometry) as world:
            assert await play(world, rng, areas) > 50

    run(story())
    assert validate(trace).problems == ()
    assert reader.trace_geometry(trace) == geometry
    publications = reader.read(trace, "publications")
    truth = expected(reader.read(trace, "interests"), publications)
    found = delivered(reader.read(trace, "deliveries"))
    assert len(found) == len(set(found))
    assert set(found) == truth
    outlined = publications.num_rows - publications.column("outline").null_count
    assert (outlined > 10) == (geometry == "earth")


def test_a_node_serves_the_earth_to_clients_of_both_encodings() -> None:
    """Python speaks MessagePack here; JavaScript's JSON is in `test_javascript`."""

    async def story() -> None:
        async with Server(quiet(geometry="earth")) as service:
            url = address(service)
            async with nearcast.connect(url, name="a") as a, nearcast.connect(url, name="b") as b:
                assert (a.geometry, a.limits["vertices"]) == ("earth", 1000)
                ring = [(8, 47), (9, 47), (9, 48), (8, 48)]
                high = await a.subscribe(nearcast.earth_polygon([ring], low=100), watch=True)
                here = await a.subscribe(nearcast.earth_disc(8.5, 47.5, 1000))
                await b.publish((8.5, 47.5), "on the ground")
                await b.publish((8.5, 47.5, 150), "in the air", retain=True)
                await b.publish(nearcast.earth_disc(8.5, 47.5, 20), "a disc")
                first, second, third = [await anext(here) for _ in range(3)]
                assert [one.payload for one in (first, second, third)] == [
                    "on the ground", "in the air", "a disc",
                ]  # fmt: skip
                assert (first.lon, first.lat, first.alt, first.x) == (8.5, 47.5, None, 0.0)
                assert (second.alt, second.to) == (150.0, [high.number, here.number])
                assert (third.r, third.shape) == (20.0, nearcast.earth_disc(8.5, 47.5, 20))
                await until(lambda: bool(high.inside))
                [entity] = await a.nearby(nearcast.earth_disc(8.5, 47.5, 10))
                assert (entity.name, entity.lon, entity.lat, entity.alt) == ("b", 8.5, 47.5, 150.0)
                assert high.inside == {b.entity: entity}
                with pytest.raises(nearcast.Refused, match="this world is the Earth"):
                    await a.ask(PublishRequest(1.0, 2.0))

    run(story())


def test_a_client_comes_back_to_where_its_areas_are_on_earth() -> None:
    """Its node is gone and another one is there: polygons as they were, discs where they are."""

    async def story() -> None:
        first = Server(quiet(geometry="earth"))
        await first.start()
        port = first.port
        me = await nearcast.connect(address(first), name="me").open()
        ring = [(8, 47), (9, 47), (9, 48), (8, 48)]
        zone = await me.subscribe(nearcast.earth_polygon([ring]))
        disc = await me.subscribe(nearcast.earth_disc(8.0, 47.0, 1000))
        await me.move_to((8.1, 47.0), 1e6)  # it arrives at once
        await first.stop()
        second = Server(quiet(geometry="earth", port=port))
        async with second, nearcast.connect(f"ws://127.0.0.1:{port}") as other:
            notices = me.notices()
            while not isinstance(await anext(notices), nearcast.Reconnected):
                pass
            await other.publish((8.1, 47.0), "there")
            await other.publish((8.0, 47.0), "border")
            assert (await anext(disc)).payload == "there"
            assert [(await anext(zone)).payload for _ in range(2)] == ["there", "border"]
            assert len(disc.messages) == 0
        await me.close()

    run(story())


def test_http_speaks_degrees_on_earth() -> None:
    async def story() -> None:
        async with Server(quiet(geometry="earth")) as node:
            said = b'{"lon": 8.5, "lat": 47.5, "alt": 20, "payload": 1, "retain": true}'
            post = (
                "POST /publish?name=anna HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n"
            )
            assert (await http(node, post.format(len(said)), said))[0] == 202
            get = "GET {} HTTP/1.1\r\nHost: localhost\r\n\r\n"
            near = "/near?lon=8.5&lat=47.5&r=100"
            for query, found in [("", 1), ("&low=10&high=30", 1), ("&low=21", 0), ("&alt=900", 0)]:
                status, _, body = await http(node, get.format(near + query))
                assert (status, len(json.loads(body)["entities"])) == (200, found)
            entity = json.loads((await http(node, get.format("/entities/anna")))[2])
            assert (entity["lon"], entity["lat"], entity["alt"]) == (8.5, 47.5, 20.0)
            assert "x" not in entity
            plane = b'{"x": 1, "y": 2}'
            status, _, body = await http(node, post.format(len(plane)), plane)
            assert status == 400
            assert b"this world is the Earth: a publication has lon and lat there" in body
            assert (await http(node, get.format("/near?x=1&y=2&r=3")))[0] == 400

    run(story())


def test_the_legs_of_all_paths_of_a_client_are_limited() -> None:
    async def story() -> None:
        limits = Limits(subscriptions=3, legs=300)
        async with nearcast.World(geometry="earth", limits=limits) as world:
            me = await world.join("me")
            way = nearcast.great_circle_path(nearcast.earth_disc(0, 0, 10), [(4, 0)], 100.0)
            first, second = [await me.subscribe(way) for _ in range(2)]
            with pytest.raises(nearcast.Refused, match="at most 900 legs of about 1 km, and with"):
                await me.subscribe(way)
            await second.move(nearcast.earth_disc(0, 0, 10))
            await me.subscribe(way)
            await first.move(way)  # its own legs are replaced

    run(story())


def test_tokens_have_areas_on_earth() -> None:
    area = TokenArea(lon=8.5, lat=47.5, r=1000).shape
    inside, outside = nearcast.earth_disc(8.5, 47.5, 900), nearcast.earth_disc(8.5, 47.5, 1100)
    assert contains_shape(area, inside) and not contains_shape(area, outside)
    small = [(8.499, 47.499), (8.501, 47.499), (8.501, 47.501)]
    assert contains_shape(area, nearcast.earth_polygon([small]))
    for wrong in (TokenArea(lon=8.5), TokenArea(x=1), TokenArea(lon=8.5, lat=47.5, rx=3)):
        with pytest.raises(ValueError, match="token"):
            _ = wrong.shape
