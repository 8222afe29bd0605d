"""Clients of real nodes in a cluster: they walk across borders, and their node is killed."""

import asyncio
from pathlib import Path
from time import monotonic

import nearcast
from nearcast.client.client import Client, ClientNotice, Disconnected, HandedOver, Reconnected
from nearcast.service.cluster.cluster_node import IDLE
from nearcast.space.motion import SECOND
from nearcast.space.shapes import disc, point
from support.join_targets import run
from support.node_processes import cluster
from support.patience import PATIENCE_S


async def notice_of(client: Client) -> ClientNotice:
    return await asyncio.wait_for(anext(client.notices()), PATIENCE_S)


def test_a_client_that_walks_across_a_border_is_handed_over_and_receives_everything_once(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        with cluster(tmp_path, "a", "b") as (a, b):
            async with (
                nearcast.connect(a.url, name="speaker") as speaker,
                nearcast.connect(a.url, name="walker") as walker,
            ):
                # So large that what is said ahead of it is said inside, however late.
                here = await walker.subscribe(disc(*a.site(), r=400))
                entity = walker.entity
                heard: list[int] = []

                async def listen() -> None:
                    async for message in here:
                        heard.append(message.payload)

                listening = asyncio.ensure_future(listen())
                await walker.move_to(b.site(), 40.0)
                said, after = 0, 0
                while after < 50:
                    where = here.where(walker.now() + SECOND // 100)
                    assert where is not None
                    await speaker.publish(point(where.x, where.y), said)
                    said += 1
                    after += walker.node == "b"
                    await asyncio.sleep(0.01)
                assert await notice_of(walker) == HandedOver("b", b.url)
                assert (walker.entity, walker.nodes) == (entity, [a.url])
                while len(heard) < said:
                    await asyncio.sleep(0.01)
                await asyncio.sleep(0.5)  # for what might come twice
                assert heard == list(range(said))
                listening.cancel()
                print(f"{said} messages around a handover, each heard once and in order")  # noqa: T201

    run(story())


def test_a_client_whose_node_is_killed_is_served_by_another(tmp_path: Path) -> None:
    async def story() -> None:
        with cluster(tmp_path, "a", "b", "c") as (a, b, _):
            async with (
                nearcast.connect(b.url, name="left alone") as me,
                nearcast.connect(a.url, name="speaker") as speaker,
            ):
                here = await me.subscribe(disc(*b.site(), r=50), channel="talk")
                b.kill()
                began = monotonic()
                assert isinstance(await notice_of(me), Disconnected)
                assert await notice_of(me) == Reconnected([])
                back = monotonic() - began
                assert me.node in ("a", "c")
                where = here.where(me.now())
                assert where is not None
                number, heard = 0, asyncio.ensure_future(anext(here))
                while not heard.done():
                    number = await speaker.publish(point(where.x, where.y), channel="talk")
                    await asyncio.wait([heard], timeout=0.05)
                assert heard.result().publication <= number
                again = monotonic() - began
                print(f"back after {back:.2f} s, served again after {again:.2f} s")  # noqa: T201

    run(story())


def test_a_node_that_is_stopped_hands_its_clients_over_first(tmp_path: Path) -> None:
    async def story() -> None:
        with cluster(tmp_path, "a", "b") as (a, b):
            async with (
                nearcast.connect(b.url, name="stays") as me,
                nearcast.connect(a.url, name="speaker") as speaker,
            ):
                x, y = b.site()
                here, entity = await me.subscribe(disc(x, y, 50)), me.entity
                heard = asyncio.ensure_future(anext(here))
                while not heard.done():  # until both nodes know
                    await speaker.publish(point(x, y), "before")
                    await asyncio.wait([heard], timeout=0.05)
                b.process.terminate()
                assert await notice_of(me) == HandedOver("a", a.url)
                await speaker.publish(point(x, y), "after")
                assert heard.result().payload == "before"
                while (payload := (await anext(here)).payload) != "after":
                    assert payload == "before"
                assert (me.entity, len(me.notices())) == (entity, 0)

    run(story())


def test_an_idle_node_stays_where_it_is_until_there_is_something_to_share(tmp_path: Path) -> None:
    async def story() -> None:
        with cluster(tmp_path, "a", "b") as (a, b):
            async with nearcast.connect(a.url, name="one") as one:
                (x, y), idle = a.site(), b.site()
                away = [x - (idle[0] - x) / 4, y - (idle[1] - y) / 4]  # behind a, seen from b
                await one.subscribe(disc(*away, r=5))
                await asyncio.sleep(IDLE / SECOND + 1)
                assert b.site() == idle, "there is but one, and a has it"
                await one.subscribe(disc(x, y, r=5))
                while b.site() == idle:
                    await asyncio.sleep(0.2)

    run(story())
