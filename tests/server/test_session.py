"""Who reads slowly loses the least valuable first, is told so, and delays nobody."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from nearcast.client_protocol import messages
from nearcast.client_protocol.geometry_json import Area
from nearcast.server.config import LimitSettings
from nearcast.server.server import Server
from nearcast.server.session import QueuedFrame, QueuedMessage, trim_queue
from nearcast.trace.reader import read
from support.brute_force import delivered
from support.examples import examples
from support.live_clients import expected_by_windows, join_client, run, service
from support.patience import PATIENCE_S
from support.raw_websocket import RawClient, connect_raw

EVERYWHERE = Area()
LINE = "x" * 1_000


@st.composite
def queues(draw: st.DrawFn) -> list[QueuedFrame]:
    def one(place: int) -> QueuedFrame:
        if draw(st.integers(0, 4)) == 0:
            return QueuedFrame(b"notice")
        publisher, channel = draw(st.integers(1, 3)), draw(st.sampled_from(["", "a"]))
        return QueuedFrame(
            b"m", QueuedMessage(publisher, channel, draw(st.booleans()), place, (1,))
        )

    return [one(place) for place in range(draw(st.integers(0, 14)))]


def naive_trim(waiting: list[QueuedFrame], excess: int) -> list[QueuedFrame]:
    """Message by message, as the words say it."""
    left = list(waiting)
    for _ in range(excess):
        messages = [one for one in left if one.message]
        old = [
            one
            for place, one in enumerate(left)
            if one.message
            and one.message.retain
            and any(
                later.message
                and later.message.retain
                and (later.message.publisher, later.message.channel)
                == (one.message.publisher, one.message.channel)
                for later in left[place + 1 :]
            )
        ]
        if messages:
            left.remove((old or messages)[0])
    return left


@given(queues(), st.integers(0, 16))
@examples(300)
def test_superseded_states_go_first_then_the_oldest_and_notices_never(
    waiting: list[QueuedFrame], excess: int
) -> None:
    messages = sum(one.message is not None for one in waiting)
    excess = min(excess, messages)
    stays, dropped, superseded = trim_queue(waiting, excess)
    assert [id(one) for one in stays] == [id(one) for one in naive_trim(waiting, excess)]
    assert len(dropped) == excess
    assert sum(one.message is None for one in stays) == len(waiting) - messages
    assert 0 <= superseded <= excess


async def slow_reader(node: Server) -> RawClient:
    """Joined, subscribed to everything, and not reading."""
    client = await connect_raw(node, buffer=4_096)
    client.send_request(messages.JoinRequest("slow"))
    client.send_request(messages.SubscribeRequest(5, EVERYWHERE))
    async with asyncio.timeout(PATIENCE_S):
        while not any(one is not None and one.subscriptions for one in node.realm.clients):
            await asyncio.sleep(0.01)
    return client


async def publish_many(node: Server, times: int, retain: bool) -> tuple[Any, Any]:
    """A publisher, and a subscriber that reads everything in time."""
    sender = await join_client(node, "speaker")
    listener = await join_client(node, "listener", messages.MSGPACK)
    await listener.ask(messages.SubscribeRequest, 1, EVERYWHERE)
    for n in range(times):
        sender.send_request(
            messages.PublishRequest(float(n), 0.0, messages.JSON.encode_payload([n, LINE]), retain)
        )
        if n % 50 == 49:
            await listener.await_notice(messages.MessageNotice, n + 1)
    return sender, listener


def test_a_slow_reader_delays_nobody_and_receives_the_newest_and_the_number_lost(
    tmp_path: Path,
) -> None:
    trace = tmp_path / "trace"
    times = 3_000

    async def story() -> list[Any]:
        async with service(trace, LimitSettings(requests=10**6, queue=100, slow_s=3_600.0)) as node:
            client = await slow_reader(node)
            _, listener = await publish_many(node, times, retain=False)
            assert len(listener.of(messages.MessageNotice)) == times
            client.send_request(messages.SubscribeRequest(6, Area(x=-9.0, y=-9.0, r=1.0), id=1))
            expected = times + 1  # messages, read or lost, and one answer

            def is_last(notice: Any) -> bool:
                nonlocal expected
                if type(notice) is messages.DroppedNotice:
                    expected -= notice.messages
                elif type(notice) in (messages.MessageNotice, messages.DoneNotice):
                    expected -= 1
                return expected == 0

            heard = await client.notices_until(is_last)
            return heard + await client.notices_until_answer(messages.UnsubscribeRequest(6, id=2))

    heard = run(story())
    kinds = Counter(type(word) for word in heard)
    received = [word for word in heard if type(word) is messages.MessageNotice]
    dropped = sum(word.messages for word in heard if type(word) is messages.DroppedNotice)
    assert dropped > 0
    assert dropped + len(received) == times
    assert [m.publication for m in received] == sorted(m.publication for m in received)
    newest = [messages.JSON.decode_payload(m.payload)[0] for m in received[-100:]]
    assert newest == list(range(times - 100, times))
    assert kinds[messages.DoneNotice] == 1, "a notice is kept however many messages are not"
    # The trace: what was not delivered was withheld, and says so.
    truth = expected_by_windows(read(trace, "interests"), read(trace, "publications"))
    told = delivered(read(trace, "deliveries"))
    facts = read(trace, "notes").to_pylist()
    withheld = [note["about"] for note in facts if note["fact"] == "withheld"]
    assert len(told) == len(set(told))
    assert set(told) <= truth
    assert sorted(p for p, _ in truth - set(told)) == sorted(withheld)
    assert len(withheld) == dropped


def test_of_states_that_wait_only_superseded_ones_are_given_up() -> None:
    async def story() -> tuple[list[Any], int]:
        async with service(limits=LimitSettings(requests=10**6, queue=50, slow_s=3_600.0)) as node:
            client = await slow_reader(node)
            other = await join_client(node, "other")
            other.send_request(
                messages.PublishRequest(7.0, 7.0, messages.JSON.encode_payload("rare"), True)
            )
            sender, _ = await publish_many(node, 2_000, retain=True)
            await sender.ask(
                messages.PublishRequest, 0.0, 0.0, messages.JSON.encode_payload(["last"]), True
            )
            last = messages.JSON.encode_payload(["last"])
            heard = await client.notices_until(
                lambda one: type(one) is messages.MessageNotice and one.payload == last
            )
            heard += await client.notices_until_answer(messages.UnsubscribeRequest(5, id=1))
            return heard, other.entity

    heard, other = run(story())
    received = [word for word in heard if type(word) is messages.MessageNotice]
    lost = [word for word in heard if type(word) is messages.DroppedNotice]
    assert sum(word.messages for word in lost) == sum(word.superseded for word in lost) > 0
    assert messages.JSON.decode_payload(received[-1].payload) == ["last"]
    assert any(m.source == other for m in received)


def test_a_client_who_never_reads_is_let_go_and_others_stay() -> None:
    async def story() -> tuple[int, int, int]:
        limits = LimitSettings(requests=10**6, queue=50, slow_s=0.5)
        async with service(limits=limits) as node:
            client = await slow_reader(node)
            sender, listener = await publish_many(node, 2_000, retain=False)
            async with asyncio.timeout(PATIENCE_S):
                while len(node.gateway.sessions) > 2:
                    await asyncio.sleep(0.05)
            await sender.ask(messages.PublishRequest, 1.0, 1.0)
            await listener.await_notice(messages.MessageNotice, 2_001)
            entities = sum(client is not None for client in node.realm.clients)
            client.vanish()
            return node.gateway.metrics.cut, entities, len(node.gateway.sessions)

    assert run(story()) == (1, 2, 2)


def test_notices_that_nobody_reads_do_not_pile_up_for_ever() -> None:
    async def story() -> int:
        limits = LimitSettings(requests=10**6, refusals=10**6, queue_bytes=50_000)
        async with service(limits=limits) as node:
            client = await connect_raw(node, buffer=4_096)
            client.send_request(messages.JoinRequest())
            for n in range(40_000):  # each is refused, in more words than it has itself
                client.send_request(messages.UnsubscribeRequest(n, id=n))
                if n % 500 == 0:
                    await asyncio.sleep(0)
                    if node.gateway.metrics.cut:
                        break
            async with asyncio.timeout(PATIENCE_S):
                while node.gateway.sessions:
                    await asyncio.sleep(0.05)
            return node.gateway.metrics.cut

    assert run(story()) == 1
