"""Fence events as an application hears them, in a world of its own and from a node."""

import asyncio
from typing import Any

import pytest

from nearcast.client.subscription import FenceEvent, Subscription
from nearcast.errors import InvalidRequestError, Refused
from nearcast.space.shapes import disc, point
from support.join_targets import Join, in_both
from support.patience import PATIENCE_S

SQUARE = {"type": "Polygon", "coordinates": [[[-1, -1], [1, -1], [1, 1], [-1, 1], [-1, -1]]]}


async def next_event(fence: Subscription) -> FenceEvent:
    return await asyncio.wait_for(anext(fence.events()), PATIENCE_S)


@in_both
async def test_what_happens_at_a_fence_is_told(join: Join) -> None:
    alice, bob = await join("alice"), await join("bob")
    fence = await alice.subscribe(disc(0, 0, 1), events=["enter", "leave", "cross"])
    assert fence.inside == {}
    for x in (-5, 5):
        await bob.publish(point(x, 0), retain=True)
    crossed = await next_event(fence)
    assert (crossed.event, crossed.name, crossed.place.x) == ("cross", "bob", -1.0)
    assert crossed.place_out is not None and crossed.place_out.x == 1.0
    assert crossed.t_out is not None and crossed.t < crossed.t_out
    await bob.publish(point(0.5, 0), {"load": 1}, retain=True)
    entered = await next_event(fence)
    assert (entered.event, entered.direction) == ("enter", 180.0)
    assert entered.state is not None and entered.state.payload == {"load": 1}
    assert fence.inside == {bob.entity: entered.state}
    await bob.publish(point(0.6, 0), {"load": 2}, retain=True)
    message = await asyncio.wait_for(anext(fence), PATIENCE_S)
    assert message.payload == {"load": 1}
    await asyncio.wait_for(anext(fence), PATIENCE_S)
    assert fence.inside[bob.entity].payload == {"load": 2}
    await bob.close()
    left = await next_event(fence)
    assert (left.event, left.reason, left.entity) == ("leave", "gone", bob.entity)
    assert fence.inside == {}
    with pytest.raises(ValueError, match="watch=True"):
        fence.changes()


@in_both
async def test_an_area_follows_an_entity(join: Join) -> None:
    alice, truck, other = await join("alice"), await join("truck-7"), await join("other")
    around = await alice.subscribe(disc(0, 0, 5), follow="truck-7", events=["enter", "leave"])
    assert around.where(0) is None
    await truck.publish(point(100, 0), retain=True)
    await other.publish(point(103, 0), {"n": 1}, retain=True)
    entered = await next_event(around)
    assert (entered.event, entered.name, entered.place.x) == ("enter", "other", 103.0)
    assert (await asyncio.wait_for(anext(around), PATIENCE_S)).payload == {"n": 1}
    assert await alice.move_to((0, 0), 1) == 0.0
    await around.move(disc(0, 0, 1))
    left = await next_event(around)
    assert (left.event, left.name) == ("leave", "other")
    await truck.publish(point(103, 0), retain=True)
    assert (await next_event(around)).event == "enter"
    await truck.close()
    assert (await next_event(around)).event == "leave"


@in_both
async def test_pairs_that_come_close_are_told(join: Join) -> None:
    office, a, b = await join("office"), await join("a"), await join("b")
    await a.publish(point(0, 0), retain=True, channel="ships")
    await b.publish(point(3, 0), retain=True, channel="ships")
    near = await office.subscribe(near=5.0, channel="ships")
    first = await next_event(near)
    pair = {(a.entity, b.entity)}
    assert (first.event, {first.entity, first.other}) == ("inside", {a.entity, b.entity})
    assert near.pairs == pair
    await b.publish(point(30, 0), retain=True, channel="ships")
    left = await next_event(near)
    assert (left.event, left.name, left.other_name, left.place.x) == ("leave", "b", "a", 5.0)
    assert near.pairs == set()
    await b.publish(point(-30, 0), retain=True, channel="ships")
    crossed = await next_event(near)
    assert (crossed.event, crossed.direction) == ("cross", 180.0)
    assert crossed.other_state is not None and crossed.other_state.entity == a.entity
    await b.publish(point(0, 1), retain=True, channel="ships")
    assert ((await next_event(near)).event, near.pairs) == ("enter", pair)
    await a.close()
    gone = await next_event(near)
    assert (gone.event, gone.reason, gone.name, gone.other_name) == ("leave", "gone", "a", "b")
    with pytest.raises(Refused, match="no area"):
        await near.move(disc(0, 0, 1))


@in_both
async def test_who_is_inside_at_first_is_told(join: Join) -> None:
    alice, bob = await join("alice"), await join("bob")
    await bob.publish(point(0, 0), retain=True)
    fence = await alice.subscribe(disc(0, 0, 1), events=["leave"], dwell=0.05)
    first = await next_event(fence)
    assert (first.event, first.state) == ("inside", fence.inside[bob.entity])
    dwelt = await next_event(fence)
    assert dwelt.event == "dwell"
    await fence.move(disc(9, 0, 1))
    left = await next_event(fence)
    assert (left.event, left.reason, fence.inside) == ("leave", "left", {})
    await fence.unsubscribe()
    assert [event async for event in fence.events()] == []


@in_both
async def test_a_set_of_fences_is_put_heard_and_changed(join: Join) -> None:
    alice, bob = await join("alice"), await join("bob")
    feature = {"type": "Feature", "id": "depot", "geometry": SQUARE}
    with pytest.raises(Refused, match="no set of fences"):
        await alice.subscribe(fences="depots", events=["enter"])
    await alice.put_fences("depots", {"type": "FeatureCollection", "features": [feature]})
    fences = await alice.subscribe(fences="depots", events=["enter", "leave"])
    await bob.publish(point(0, 0), retain=True)
    entered = await next_event(fences)
    assert (entered.event, entered.fence) == ("enter", "depot")
    yard: dict[str, Any] = {**feature, "id": 7}
    await alice.change_fences("depots", {"features": [yard]}, remove=["depot"])
    events = {
        (one.event, one.fence, one.reason) for one in [await next_event(fences) for _ in "ab"]
    }
    assert events == {("leave", "depot", "removed"), ("enter", 7, "")}
    assert set(fences.inside) == {bob.entity}
    with pytest.raises(Refused, match="feature 'depot'"):
        await alice.put_fences("depots", {"features": [{**feature, "geometry": None}]})
    wrongs: list[Any] = [{}, [yard], yard, {"features": yard}, {"yard": disc(0, 0, 1)}]
    for wrong in wrongs:
        with pytest.raises(InvalidRequestError, match="fences are a GeoJSON FeatureCollection"):
            await alice.put_fences("depots", wrong)
        with pytest.raises(InvalidRequestError, match="fences are a GeoJSON FeatureCollection"):
            await alice.change_fences("depots", wrong)
    await alice.put_fences("depots", {"features": []})
    left = await next_event(fences)
    assert (left.event, left.fence) == ("leave", 7)


@in_both
async def test_a_last_place_stays_until_it_expires(join: Join) -> None:
    alice, bob = await join("alice"), await join("bob")
    fence = await alice.subscribe(disc(0, 0, 1), events=["enter", "leave"])
    await bob.publish(point(0, 0), retain=True, ttl=1.0)
    await bob.close()
    entered, left = await next_event(fence), await next_event(fence)
    assert (left.reason, left.t - entered.t) == ("expired", 1_000_000)
