"""A trial of everything that a client may ask for: it succeeds where that is offered."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from math import hypot
from typing import Any, TypeAlias

import pytest

from nearcast.client.client import Client
from nearcast.client.received import Entity
from nearcast.client.subscription import Subscription
from nearcast.errors import Refused
from nearcast.peer.peer_link import PeerLink
from nearcast.protocols.offers import OverlayOffer
from nearcast.space.earth_shapes import earth_disc, earth_point
from nearcast.space.motion import Moving, path
from nearcast.space.outline_shapes import corridor, earth_polygon, polygon, sector
from nearcast.space.shapes import EVERYWHERE, ball, box, cuboid, disc, point
from support.patience import PATIENCE_S

# A trial: with a client, and others that publish to it.
Trial: TypeAlias = Callable[[Client, Sequence[Client]], Awaitable[None]]


async def receives(
    subscription: Subscription, publishers: Sequence[Client], wanted: Any, other: Any = None,
    **options: Any,
) -> None:  # fmt: skip
    """Until what each publishes at `wanted` has arrived; nothing of `other` may arrive.

    A place may be a pair of it and of the options with which is published there.
    """
    received: set[Any] = set()

    async def listen() -> None:
        while received < {client.entity for client in publishers}:
            message = await anext(subscription)
            assert message.payload != "other", f"{subscription.request} receives {message}"
            if message.payload == wanted_payload:
                received.add(message.source)

    wanted_payload = f"wanted {wanted}"
    listening = asyncio.ensure_future(listen())
    async with asyncio.timeout(PATIENCE_S):
        while not listening.done():
            for client in publishers:
                for place, payload in ((other, "other"), (wanted, wanted_payload)):
                    if place is not None:
                        where, more = place if isinstance(place, tuple) else (place, {})
                        await client.publish(where, payload, **options | more)
            await asyncio.wait([listening], timeout=0.1)
    await listening


async def try_areas(client: Client, others: Sequence[Client]) -> None:
    for area, wanted, other in (
        (disc(0, 0, 20), point(10, 10), point(18, 18)),
        (box(0, 0, 20, 10), point(18, 8), point(18, 12)),
        (ball(0, 0, 30, 20), point(0, 0, 45), point(0, 0, 5)),
        (cuboid(0, 0, 0, 20, 20, 10), point(15, 15, 9), point(15, 15, 12)),
        (EVERYWHERE, point(300, -200), None),
    ):
        subscription = await client.subscribe(area)
        await receives(subscription, others, wanted, other)
        await subscription.unsubscribe()


async def try_outlines(client: Client, others: Sequence[Client]) -> None:
    triangle = polygon([[(0, 0), (40, 0), (0, 40)]])
    for area, wanted, other in (
        (triangle, point(10, 10), point(35, 35)),
        (corridor([(0, 0), (40, 40)], 2), point(20, 20), point(30, 10)),
        (sector(0, 0, 90, 60, 40), point(0, 20), point(20, 0)),
    ):
        subscription = await client.subscribe(area)
        await receives(subscription, others, wanted, other)
        await subscription.unsubscribe()


async def try_motion(client: Client, others: Sequence[Client]) -> None:
    going = await client.subscribe(path(disc(-30, 0, 5), [(30, 0)], 200))
    await receives(going, others, point(30, 3), point(0, 8))
    await going.move(disc(-30, 0, 5))
    while len(going.messages):
        await anext(going)
    await receives(going, others, point(-30, 3), point(30, -3))
    await going.unsubscribe()
    growing = await client.subscribe(Moving(disc(0, 0, 1), growth=(20, 0, 0), duration=1_000_000))
    await receives(growing, others, point(15, 0), point(25, 0))
    await growing.unsubscribe()


async def try_formulas(client: Client, others: Sequence[Client]) -> None:
    formula = "x >= a, x <= a + 10, y >= -10, y <= 10"
    subscription = await client.subscribe(formula, variables={"a": 0.0})
    await receives(subscription, others, point(5, 0), point(15, 0))
    await subscription.tune(a=12.0)
    while len(subscription.messages):
        await anext(subscription)
    await receives(subscription, others, point(15, 1), point(5, 1))
    await subscription.unsubscribe()


async def try_filters(client: Client, others: Sequence[Client]) -> None:
    subscription = await client.subscribe(disc(0, 0, 20), filter="level >= 3")
    high, low = {"attributes": {"level": 4}}, {"attributes": {"level": 2}}
    await receives(subscription, others, (point(1, 1), high), (point(1, 1), low))
    await subscription.unsubscribe()


async def try_channels(client: Client, others: Sequence[Client]) -> None:
    subscription = await client.subscribe(disc(0, 0, 20), channel="trade")
    wanted, other = (point(1, 1), {"channel": "trade"}), (point(1, 1), {"channel": "news"})
    await receives(subscription, others, wanted, other)
    await subscription.unsubscribe()


async def try_echo(client: Client, _: Sequence[Client]) -> None:
    deaf = await client.subscribe(disc(0, 0, 20))
    subscription = await client.subscribe(disc(0, 0, 20), echo=True)
    await receives(subscription, [client], point(1, 2))
    assert not len(deaf.messages)
    await deaf.unsubscribe()
    await subscription.unsubscribe()


async def try_extents(client: Client, others: Sequence[Client]) -> None:
    subscription = await client.subscribe(disc(0, 0, 20))
    for wanted, other in (
        (disc(30, 0, 15), disc(30, 0, 5)),
        (box(30, 0, 15, 5), box(30, 0, 5, 5)),
        (point(7, 0), point(400, 300)),
    ):
        await receives(subscription, others, wanted, other)
    await subscription.unsubscribe()


async def try_direct(client: Client, others: Sequence[Client]) -> None:
    subscription = await client.subscribe(disc(0, 0, 20))
    await receives(subscription, others, point(2, 2))  # from then on it knows where they are
    await subscription.unsubscribe()
    for other in others:
        number = await client.send(other.entity, ["to you", client.entity])
        async with asyncio.timeout(PATIENCE_S):
            message = await anext(other.direct_messages())
        assert (message.source, message.number) == (client.entity, number)
        assert message.payload == ["to you", client.entity]
        await other.send(message.source)
        async with asyncio.timeout(PATIENCE_S):
            answer = await anext(client.direct_messages())
        assert (answer.source, answer.payload) == (other.entity, None)


async def try_retained_states(client: Client, _: Sequence[Client]) -> None:
    await client.publish(point(1, 1), "here", retain=True)
    await client.withdraw()


async def try_nearby(client: Client, others: Sequence[Client]) -> None:
    """A node lists states that are retained; a peer lists whom it knows."""
    subscription = await client.subscribe(disc(0, 0, 20))
    options = {"retain": not isinstance(client._first_link, PeerLink)}
    near: list[Entity] = []
    async with asyncio.timeout(PATIENCE_S):
        while {entity.entity for entity in near} != {other.entity for other in others}:
            for other in others:
                await other.publish(point(2, 1), **options)
            await asyncio.sleep(0.05)
            near = await client.nearby(disc(1, 0, 10))
    away = [hypot(entity.x - 1, entity.y) for entity in near]
    assert away == sorted(away) and away[-1] <= 10
    assert len(await client.nearby(disc(1, 0, 10), limit=1)) == 1
    assert await client.nearby(disc(300, 200, 50)) == []
    with pytest.raises((Refused, ValueError), match=r"0 or more|from 0 to"):
        await client.nearby(disc(0, 0, 10), limit=-1)
    await subscription.unsubscribe()


async def _try_subscribing(client: Client, **options: Any) -> None:
    subscription = await client.subscribe(disc(0, 0, 20), **options)
    await subscription.unsubscribe()


async def try_watch(client: Client, _: Sequence[Client]) -> None:
    await _try_subscribing(client, watch=True)


async def try_fences(client: Client, _: Sequence[Client]) -> None:
    await _try_subscribing(client, events=["enter", "leave"])


async def try_following(client: Client, _: Sequence[Client]) -> None:
    await _try_subscribing(client, follow="bus")


async def try_rates(client: Client, others: Sequence[Client]) -> None:
    subscription = await client.subscribe(disc(0, 0, 60), rates=[(20.0, 20.0), (40.0, 0.0)])
    for wanted in (point(0, 10), point(0, 30)):
        await receives(subscription, others, wanted, point(0, 50))
    await subscription.unsubscribe()


async def try_throttling(client: Client, _: Sequence[Client]) -> None:
    await _try_subscribing(client, closest=3)


async def try_names(client: Client, _: Sequence[Client]) -> None:
    await client.publish(point(1, 1), "here", name="bus")


async def try_earth(client: Client, others: Sequence[Client]) -> None:
    for area in (earth_disc(7.5, 50.3, 500), earth_polygon([[(7, 50), (8, 50), (8, 51)]])):
        subscription = await client.subscribe(area)
        await receives(subscription, others, earth_point(7.5, 50.3), earth_point(7.5, 51.9))
        await subscription.unsubscribe()


async def try_evolution(client: Client, others: Sequence[Client]) -> None:
    for options in (
        {"evolve": "periodic", "interval": 0.1},
        {"evolve": "lazy"},
        {"evolve": "cached", "threshold": 0.1},
        {"evolve": "swept"},
    ):
        going = await client.subscribe(path(disc(-30, 0, 5), [(30, 0)], 200), **options)
        await receives(going, others, point(30, 3), point(0, 8))
        await going.unsubscribe()


TRIALS: dict[OverlayOffer, Trial] = {
    OverlayOffer.AREAS: try_areas,
    OverlayOffer.OUTLINES: try_outlines,
    OverlayOffer.MOTION: try_motion,
    OverlayOffer.FORMULAS: try_formulas,
    OverlayOffer.FILTERS: try_filters,
    OverlayOffer.CHANNELS: try_channels,
    OverlayOffer.ECHO: try_echo,
    OverlayOffer.EXTENTS: try_extents,
    OverlayOffer.DIRECT: try_direct,
    OverlayOffer.RETAINED_STATES: try_retained_states,
    OverlayOffer.NEARBY: try_nearby,
    OverlayOffer.WATCH: try_watch,
    OverlayOffer.FENCES: try_fences,
    OverlayOffer.FOLLOWING: try_following,
    OverlayOffer.RATES: try_rates,
    OverlayOffer.THROTTLING: try_throttling,
    OverlayOffer.NAMES: try_names,
    OverlayOffer.EARTH: try_earth,
    OverlayOffer.EVOLUTION: try_evolution,
}
