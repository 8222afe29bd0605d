"""What a client can rely on, in one process or over a socket."""

import asyncio
import random
from collections.abc import AsyncIterable, AsyncIterator, Callable

import pytest

from nearcast.client.client import Client
from nearcast.client.subscription import Message, Subscription
from nearcast.client_protocol import messages
from nearcast.errors import Refused
from nearcast.space.motion import Moving, line, path
from nearcast.space.shapes import EVERYWHERE, Shape, ball, box, cuboid, disc, point
from support.join_targets import Join, in_both
from support.patience import PATIENCE_S

EVERYONE = cuboid(0, 0, 0, 1e6, 1e6, 1e6)


async def next_of(subscription: Subscription) -> Message:
    return await asyncio.wait_for(anext(subscription), PATIENCE_S)


async def until(met: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not met():
            await asyncio.sleep(0.005)


async def hears(subscription: Subscription, speaker: Client, where: Shape) -> bool:
    """Is what is said there heard? What is said everywhere afterwards tells."""
    number = await speaker.publish(where, "here?")
    ask = await speaker.publish(EVERYONE, "everyone?")
    heard = []
    while (message := await next_of(subscription)).publication != ask:
        heard.append(message.publication)
    return number in heard


@in_both
async def test_a_message_arrives_with_everything_that_was_published(join: Join) -> None:
    alice, bob = await join("alice"), await join("bob")
    here = await alice.subscribe(ball(0, 0, 0, 50), channel="talk")
    said = {"text": "hello", "list": [1, 2.5, None, True], "nested": {"ä": "ö"}}
    where = cuboid(3, 4, 5, 1, 2, 3)
    number = await bob.publish(
        where, said, attributes={"level": 3, "kind": "orc"}, channel="talk", retain=True
    )
    message = await next_of(here)
    assert (message.payload, message.shape, message.channel) == (said, where, "talk")
    assert (message.source, message.publication) == (bob.entity, number)
    assert (message.attributes, message.retain) == ({"level": 3, "kind": "orc"}, True)
    assert message.to == [here.number]
    assert abs(message.t - alice.now()) < 10_000_000


@in_both
async def test_exactly_what_touches_the_area_is_delivered(join: Join) -> None:
    """Against the shapes' own answer, for discs, boxes and points in two and three dimensions."""
    chance = random.Random(5)

    def shape() -> Shape:
        x, y, z, r = (chance.uniform(-50, 50) for _ in range(4))
        return chance.choice(
            [point(x, y), disc(x, y, abs(r)), box(x, y, abs(r), 10), ball(x, y, z, abs(r)),
             point(x, y, z), cuboid(x, y, z, abs(r), 5, 20)]
        )  # fmt: skip

    alice, bob = await join("alice"), await join("bob")
    areas = {here: here_shape for here_shape in (shape() for _ in range(30))
             for here in [await alice.subscribe(here_shape)]}  # fmt: skip
    said = [shape() for _ in range(60)]
    for where in said:
        await bob.publish(where, confirm=False)
    last = await bob.publish(EVERYONE)
    for here, area in areas.items():
        heard = []
        while (message := await next_of(here)).publication != last:
            heard.append(message.shape)
        assert heard == [where for where in said if area.touches(where)]


@in_both
async def test_channels_filters_and_echo_choose_what_is_delivered(join: Join) -> None:
    alice, bob = await join("alice"), await join("bob")
    plain = await alice.subscribe(disc(0, 0, 9))
    own = await alice.subscribe(disc(0, 0, 9), echo=True)
    radio = await alice.subscribe(disc(0, 0, 9), channel="radio")
    orcs = await alice.subscribe(disc(0, 0, 9), filter="level >= limit", variables={"limit": 3})
    await alice.publish(point(1, 1), "alice")
    await bob.publish(point(1, 1), "radio", channel="radio")
    await bob.publish(point(1, 1), "weak", attributes={"level": 2})
    await bob.publish(point(1, 1), "strong", attributes={"level": 3})
    await bob.publish(point(1, 1), "last", attributes={"level": 9})
    heard = {
        here: [(await next_of(here)).payload for _ in range(count)]
        for here, count in ((plain, 3), (own, 4), (radio, 1), (orcs, 2))
    }
    assert heard[plain] == ["weak", "strong", "last"]
    assert heard[own] == ["alice", "weak", "strong", "last"]
    assert heard[radio] == ["radio"]
    assert heard[orcs] == ["strong", "last"]
    assert not any(len(here.messages) for here in heard)


@in_both
async def test_publications_of_a_publisher_arrive_in_order_and_once(join: Join) -> None:
    alice, bob = await join("alice"), await join("bob")
    here = await alice.subscribe(disc(0, 0, 9))
    await alice.subscribe(disc(0, 0, 8))
    everything = alice.messages()
    for number in range(400):
        await bob.publish((1, 2), number, confirm=False)
    assert [(await next_of(here)).payload for _ in range(400)] == list(range(400))
    assert [(await anext(everything)).payload for _ in range(400)] == list(range(400))
    assert len(everything) == 0, "a message for two subscriptions is one message"


@in_both
async def test_a_moved_area_receives_there_and_no_longer_here(join: Join) -> None:
    alice, bob = await join("alice"), await join("bob")
    here = await alice.subscribe(disc(0, 0, 9))
    assert await hears(here, bob, point(0, 5))
    await here.move(box(100, 0, 5, 5))
    assert not await hears(here, bob, point(0, 5))
    assert await hears(here, bob, point(104, 4))


@in_both
async def test_areas_move_by_themselves(join: Join) -> None:
    alice, bob = await join("alice"), await join("bob")
    walking = await alice.subscribe(line(disc(0, 0, 5), to=(300, 0, 0), speed=10_000))
    growing = await alice.subscribe(Moving(disc(0, 0, 1), growth=(1e5, 0, 0), duration=10_000))
    touring = await alice.subscribe(path(disc(0, 0, 5), [(9, 0, 0), (9, 80, 0)], speed=10_000))
    leaving = await alice.subscribe("x >= 1000 * t - 5, x <= 1000 * t + 5")
    await asyncio.sleep(0.05)
    assert await hears(walking, bob, point(304, 0))
    assert await hears(growing, bob, point(900, 0))
    assert await hears(touring, bob, point(9, 84))
    assert not await hears(leaving, bob, point(0, 0))


@in_both
async def test_a_walk_takes_every_shape_along_and_nothing_else(join: Join) -> None:
    alice, bob = await join("alice"), await join("bob")
    near = await alice.subscribe(disc(0, 0, 9))
    far = await alice.subscribe(box(0, 0, 50, 50))
    everywhere = await alice.subscribe()
    zone = await alice.subscribe("x <= 9")
    drifting = await alice.subscribe(Moving(disc(0, 0, 9), velocity=(1, 0, 0)))
    assert await alice.move_to((300, 400), speed=5000) == pytest.approx(0.1)
    middle = near.where(alice.now())
    assert middle is not None
    await asyncio.sleep(0.15)
    assert await hears(near, bob, point(300, 408))
    assert not await hears(near, bob, point(0, 0))
    assert await hears(far, bob, point(340, 440))
    for here in (near, far):
        now = here.where(alice.now())
        assert now is not None
        assert (now.x, now.y) == pytest.approx((300, 400))
    assert await alice.move_to((0, 0), speed=1e6) == pytest.approx(0.0005)
    await asyncio.sleep(0.02)
    await bob.publish(point(0, 0), "home")
    assert [m.payload async for m in _until(near, "home")][-1] == "home"
    assert everywhere.where(0) == EVERYWHERE
    assert zone.where(0) is None
    own_way = drifting.where(alice.now())
    assert own_way is not None
    assert (0 < own_way.x < 300, own_way.y) == (True, 0)


async def _until(here: Subscription, payload: object) -> AsyncIterator[Message]:
    async for message in here:
        yield message
        if message.payload == payload:
            return


@in_both
async def test_variables_tune_a_formula(join: Join) -> None:
    alice, bob = await join("alice"), await join("bob")
    here = await alice.subscribe("x >= -sight, x <= sight", variables={"sight": 5})
    assert not await hears(here, bob, point(7, 0))
    await here.tune(sight=10)
    assert await hears(here, bob, point(7, 0))


@in_both
async def test_what_is_refused_is_an_exception_with_the_reason_and_changes_nothing(
    join: Join,
) -> None:
    alice, bob = await join("alice"), await join("bob")
    here = await alice.subscribe(disc(0, 0, 9))
    with pytest.raises(Refused, match="unknown name 'wings'"):
        await alice.subscribe("x >= wings")
    with pytest.raises(Refused, match="reaches at most"):
        await here.move(disc(0, 0, 1e9))
    with pytest.raises(Refused, match="no variable 'size'"):
        await here.tune(size=3)
    with pytest.raises(Refused, match="a payload has at most 16384 bytes"):
        await bob.publish(point(0, 0), "x" * 16_384)
    with pytest.raises(Refused, match=r"a (payload|frame) has at most"):
        await bob.publish(point(0, 0), "x" * 100_000)
    with pytest.raises(Refused, match="'x' cannot be an attribute"):
        await bob.publish(point(0, 0), attributes={"x": 3})
    assert await hears(here, bob, point(8, 0))


@in_both
async def test_what_nobody_waits_for_is_refused_by_a_notice(join: Join) -> None:
    bob = await join("bob")
    await bob.publish(point(0, 0), channel="c" * 65, confirm=False)
    notice = await asyncio.wait_for(anext(bob.notices()), PATIENCE_S)
    assert isinstance(notice, messages.ErrorNotice)
    assert "a channel has at most 64 characters" in notice.reason


@in_both
async def test_unsubscribing_ends_the_iteration_after_what_had_come(join: Join) -> None:
    alice, bob = await join("alice"), await join("bob")
    here = await alice.subscribe(disc(0, 0, 9))
    await bob.publish(point(0, 0), "before")
    await until(lambda: len(here.messages) == 1)
    await here.unsubscribe()
    await bob.publish(point(0, 0), "after")
    assert [message.payload async for message in here] == ["before"]
    with pytest.raises(Refused, match="there is no subscription"):
        await here.move(disc(0, 0, 1))


@in_both
async def test_closing_ends_every_iteration_and_refuses_more(join: Join) -> None:
    alice = await join("alice")
    here = await alice.subscribe(disc(0, 0, 9), watch=True)
    endings: list[AsyncIterable[object]] = [here, here.changes(), alice.messages(), alice.notices()]
    waiting = [asyncio.ensure_future(_all(ending)) for ending in endings]
    await asyncio.sleep(0)
    await alice.close()
    assert await asyncio.wait_for(asyncio.gather(*waiting), PATIENCE_S) == [[], [], [], []]
    with pytest.raises(ConnectionError, match="has left"):
        await alice.publish(point(0, 0))


async def _all(ending: AsyncIterable[object]) -> list[object]:
    return [one async for one in ending]


@in_both
async def test_a_full_inbox_gives_up_the_oldest_and_counts(join: Join) -> None:
    alice, bob = await join("alice"), await join("bob")
    here = await alice.subscribe(disc(0, 0, 9), inbox=3)
    for number in range(10):
        await bob.publish(point(0, 0), number)
    await until(lambda: here.dropped == 7)
    assert [(await next_of(here)).payload for _ in range(3)] == [7, 8, 9]


@in_both
async def test_what_was_published_cannot_be_changed_afterwards(join: Join) -> None:
    alice, bob = await join("alice"), await join("bob")
    here, there = await alice.subscribe(disc(0, 0, 9)), await bob.subscribe(disc(0, 0, 9))
    said = ["one"]
    sending = asyncio.ensure_future(alice.publish(point(0, 0), said))
    said.append("two")
    await sending
    del here
    said.append("three")
    heard = await next_of(there)
    assert heard.payload in (["one"], ["one", "two"])
    heard.payload.append("four")
    assert "four" not in said
