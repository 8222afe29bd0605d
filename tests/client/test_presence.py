"""Who is there: inside, enter, leave, nearby; and what is withheld on request is told."""

import asyncio

from nearcast.client.subscription import Change, Entered, Left, Subscription
from nearcast.client_protocol import messages
from nearcast.space.shapes import disc, point
from support.join_targets import Join, in_both
from support.patience import PATIENCE_S


async def change_of(here: Subscription) -> Change:
    return await asyncio.wait_for(anext(here.changes()), PATIENCE_S)


@in_both
async def test_who_subscribes_knows_at_once_who_is_there(join: Join) -> None:
    alice, bob, carol = await join("alice"), await join("bob"), await join("carol")
    await bob.publish(point(3, 4), {"hp": 9}, retain=True, attributes={"level": 2})
    await carol.publish(point(300, 4), retain=True)
    here = await alice.subscribe(disc(0, 0, 50), watch=True)
    (one,) = here.inside.values()
    assert (one.entity, one.name, one.x, one.y) == (bob.entity, "bob", 3, 4)
    assert (one.payload, one.attributes) == ({"hp": 9}, {"level": 2})
    change = await change_of(here)
    assert change == Entered(one)


@in_both
async def test_comings_and_goings_are_told(join: Join) -> None:
    alice, bob, carol = await join("alice"), await join("bob"), await join("carol")
    here = await alice.subscribe(disc(0, 0, 50), watch=True, linger=0)
    assert here.inside == {}
    await bob.publish(point(3, 4), "hi", retain=True)
    came = await change_of(here)
    assert isinstance(came, Entered)
    assert (came.entity.entity, came.entity.payload) == (bob.entity, "hi")
    await bob.publish(point(300, 4), retain=True)
    went = await change_of(here)
    assert isinstance(went, Left)
    assert (went.entity.name, went.gone) == ("bob", False)
    await carol.publish(point(0, 0), retain=True)
    assert isinstance(await change_of(here), Entered)
    await carol.close()
    left = await change_of(here)
    assert isinstance(left, Left)
    assert (left.entity.name, left.gone) == ("carol", True)
    assert here.inside == {}


@in_both
async def test_those_inside_are_known_as_they_are_now(join: Join) -> None:
    alice, bob = await join("alice"), await join("bob")
    await bob.publish(point(3, 4), "first", retain=True)
    here = await alice.subscribe(disc(0, 0, 50), watch=True)
    await bob.publish(point(5, 6), "second", retain=True)
    await bob.publish(point(9, 9), "not a state")
    await asyncio.wait_for(anext(here), PATIENCE_S)
    await asyncio.wait_for(anext(here), PATIENCE_S)
    now = here.inside[bob.entity]
    assert (now.x, now.y, now.payload, now.name) == (5, 6, "second", "bob")


@in_both
async def test_a_walking_area_sees_who_comes_into_it(join: Join) -> None:
    alice, bob = await join("alice"), await join("bob")
    await bob.publish(point(200, 0), retain=True)
    here = await alice.subscribe(disc(0, 0, 10), watch=True)
    assert here.inside == {}
    await alice.move_to((200, 0), speed=2_000)
    change = await change_of(here)
    assert isinstance(change, Entered)
    assert change.entity.entity == bob.entity


@in_both
async def test_nearby_lists_the_closest_first(join: Join) -> None:
    alice, bob, carol = await join("alice"), await join("bob"), await join("carol")
    await bob.publish(point(9, 0), "far", retain=True)
    await carol.publish(point(3, 0), "near", retain=True)
    assert [e.name for e in await alice.nearby(disc(0, 0, 10))] == ["carol", "bob"]
    assert [e.payload for e in await alice.nearby(disc(0, 0, 10), limit=1)] == ["near"]
    assert await alice.nearby(disc(0, 0, 10), channel="elsewhere") == []


@in_both
async def test_what_is_withheld_on_request_is_told(join: Join) -> None:
    alice, bob = await join("alice"), await join("bob")
    here = await alice.subscribe(disc(0, 0, 50), rates=[(10, 1)])
    for number in range(20):
        await bob.publish(point(30, 0), number)
    withheld = 0
    while withheld + len(here.messages) < 20:
        notice = await asyncio.wait_for(anext(alice.notices()), PATIENCE_S)
        assert isinstance(notice, messages.WithheldNotice)
        assert (notice.subscription, notice.closest, notice.budget) == (here.number, 0, 0)
        withheld += notice.rate
    assert withheld + len(here.messages) == 20
    assert withheld > 0
