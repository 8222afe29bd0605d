"""Clients that do not read, send too much or are always refused: slowed down, bounded, let go."""

import asyncio
from collections import deque
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from nearcast.client_protocol import messages
from nearcast.client_protocol.geometry_json import Area
from nearcast.server import gateway, memory, request_cost
from nearcast.server import session as session_module
from nearcast.server.config import LimitSettings
from nearcast.server.server import Server
from nearcast.server.session import (
    ENTRY_BYTES,
    QueuedFrame,
    QueuedMessage,
    Session,
    fair_level,
    trim_queue,
)
from nearcast.service import realm
from nearcast.service.access.token_bucket import TokenBucket
from support.live_clients import join_client, run, service
from support.patience import PATIENCE_S
from support.raw_websocket import RawClient, connect_raw, masked

EVERYWHERE = Area()
SIZES = st.lists(st.integers(1, 1_000), min_size=1, max_size=20)


def message(n: int, size: int = 100, retain: bool = False) -> tuple[bytes, QueuedMessage]:
    return b"m" * size, QueuedMessage(n % 3, "", retain, n, ())


def slow_session(**limits: int) -> Session:
    """Its transport is full, and nobody reads."""
    node: Any = SimpleNamespace(limits=LimitSettings(**limits), queued=0, read=None)
    node.now = lambda: 0
    session = Session(node)
    session.paused = True
    return session


def put(session: Session, messages: list[tuple[bytes, QueuedMessage]]) -> list[QueuedMessage]:
    return session.queue([frame for frame, _ in messages], [said for _, said in messages])


@given(SIZES, st.integers(0, 20_000))
def test_the_level_of_queues_is_the_highest_that_fits(sizes: list[int], most: int) -> None:
    level = fair_level(sizes, most)
    assert sum(min(size, level) for size in sizes) <= max(most, 0)
    if sum(sizes) > most:
        assert sum(min(size, level + 1) for size in sizes) > most


@given(st.lists(st.integers(1, 300), max_size=12), st.integers(0, 3_000))
def test_messages_are_given_up_until_so_many_bytes_are_free(sizes: list[int], excess: int) -> None:
    waiting = [QueuedFrame(*message(n, size)) for n, size in enumerate(sizes)]
    stays, dropped, _ = trim_queue(waiting, 0, excess)
    freed = [len(one.frame) + ENTRY_BYTES for one in waiting[: len(dropped)]]
    assert stays == waiting[len(dropped) :], "the oldest go"
    assert sum(freed) >= excess or not stays
    assert not freed or sum(freed[:-1]) < excess


def test_a_full_queue_is_trimmed_rarely_and_keeps_the_newest() -> None:
    session, trims = slow_session(queue=80), []
    with patch.object(session_module, "trim_queue", lambda *a: trims.append(1) or trim_queue(*a)):
        for n in range(1_000):
            put(session, [message(n)])
            assert session.messages <= 90
    assert len(trims) == 83, "each time that an eighth more is there"
    numbers = [one.message.publication for one in session.waiting if one.message]
    assert numbers[-80:] == list(range(920, 1_000))
    assert session.dropped == 1_000 - session.messages


def test_bytes_of_queues_are_counted_for_the_node() -> None:
    session = slow_session(queue=80, queue_bytes=5_000)
    for n in range(100):
        put(session, [message(n)])
        if n % 10 == 0:
            session.send_frames([b"some", b"notices"])
        counted = sum(len(one.frame) + ENTRY_BYTES for one in session.waiting)
        assert session.bytes == session.gateway.queued == counted
        assert session.messages == sum(one.message is not None for one in session.waiting)
    session.clear_queue()
    assert session.gateway.queued == session.bytes == session.messages == 0
    assert session.waiting == deque()


def test_memory_is_given_back_once_a_wave_is_over() -> None:
    given: list[int] = []
    trimming = memory.MemoryTrimmer(lambda: given.append(1))
    wave = memory.TRIM_ABOVE
    for queued in (0, wave // 2, 0, wave, wave // 2, wave // 5, 0, 0):
        trimming.update(queued)
    assert given == [1]


def test_a_cost_leads_into_debt_of_two_seconds_at_most() -> None:
    bucket = TokenBucket(10, 0.0)
    bucket.charge(1_000)
    assert not bucket.fill(2.0), "20 are owed and 20 were gained"
    assert bucket.fill(2.1)


async def until(condition: Any) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.01)


async def slow_reader(node: Server) -> RawClient:
    client = await connect_raw(node, buffer=4_096)
    client.send_request(messages.JoinRequest("deaf"))
    client.send_request(messages.SubscribeRequest(5, EVERYWHERE))
    await until(lambda: any(client and client.name == "deaf" and client.subscriptions
                            for client in node.realm.clients))  # fmt: skip
    return client


def test_all_queues_together_are_bounded_and_share_frames() -> None:
    most = 400_000

    async def story() -> None:
        limits = LimitSettings(requests=10**6, queues_bytes=most, slow_s=3600.0)
        async with service(limits=limits) as node:
            others = [await slow_reader(node) for _ in range(4)]
            speaker = await join_client(node, "speaker")
            highest = 0
            for n in range(3_000):
                speaker.send_request(
                    messages.PublishRequest(0.0, 0.0, messages.JSON.encode_payload([n, "x" * 500]))
                )
                if n % 100 == 99:
                    await speaker.ask(messages.PublishRequest, 1e6, 1e6)
                    highest = max(highest, node.gateway.queued)
            slow = [session for session in node.gateway.sessions if session.waiting]
            assert len(slow) == 4, "nobody was let go"
            assert most // 2 < highest <= most
            frames = [{id(one.frame) for one in session.waiting} for session in slow]
            assert len(set.intersection(*frames)) > 50, "what waits for all exists once"
            assert node.gateway.metrics.dropped > 0
            for other in others:
                other.vanish()
            await until(lambda: node.gateway.queued == 0)

    run(story())


def test_a_client_that_is_refused_again_and_again_is_disconnected_with_a_reason() -> None:
    async def story() -> list[Any]:
        async with service(limits=LimitSettings(requests=10**6, refusals=50)) as node:
            good = await join_client(node, "good")
            bad = await join_client(node, "bad")
            for _ in range(200):
                bad.send(b"nonsense")
            await asyncio.wait_for(bad.gone.wait(), PATIENCE_S)
            assert len(bad.of(messages.ErrorNotice)) == 51
            assert node.gateway.metrics.cut_refused == 1
            assert (await good.ask(messages.PublishRequest, 1.0, 1.0)).publication
            return bad.of(messages.ByeNotice)

    (bye,) = run(story())
    assert bye.reason == "more than 50 of your requests were refused within 10 seconds"


def test_who_is_refused_now_and_then_stays() -> None:
    async def story() -> None:
        with patch.multiple(gateway, REFUSALS_S=1, TICKS_PER_SECOND=1):
            async with service(limits=LimitSettings(requests=10**6, refusals=3)) as node:
                client = await join_client(node)
                for _ in range(4):
                    for n in range(3):
                        assert (
                            client.form.message_class(
                                await client.ask(messages.UnsubscribeRequest, n)
                            )
                            is messages.ErrorNotice
                        )
                    (session,) = node.gateway.sessions
                    await until(lambda: session.refused_before == session.refused)  # noqa: B023

    run(story())


async def flood(node: Server, count: int, size: int) -> tuple[int, list[int]]:
    """One publishes as fast as it can; gives how often it was slowed down, and what was heard."""
    listener = await join_client(node, "listener")
    await listener.ask(messages.SubscribeRequest, 1, EVERYWHERE)
    speaker = await join_client(node, "speaker")
    for n in range(count):
        speaker.send_request(
            messages.PublishRequest(0.0, 0.0, messages.JSON.encode_payload([n, "x" * size]))
        )
    await listener.await_notice(messages.MessageNotice, count)
    heard = [
        messages.JSON.decode_payload(m.payload)[0] for m in listener.of(messages.MessageNotice)
    ]
    slowed = [session.paused_reading for session in node.gateway.sessions]
    assert sum(slowed) == node.gateway.metrics.slowed == max(slowed)
    return sum(slowed), heard


def test_more_bytes_than_a_second_allows_are_read_later_and_none_is_lost() -> None:
    async def story() -> tuple[int, list[int]]:
        async with service(limits=LimitSettings(requests=10**6, bytes=20_000)) as node:
            return await flood(node, 100, 500)

    slowed, heard = run(story())
    assert slowed >= 1
    assert heard == list(range(100))


def test_large_frames_beyond_the_work_of_a_tick_are_read_later_and_none_is_lost() -> None:
    async def story() -> tuple[int, list[int]]:
        with patch.object(request_cost, "READ_BUDGET", 20_000):
            async with service() as node:
                return await flood(node, 20, 5_000)

    slowed, heard = run(story())
    assert slowed >= 1
    assert heard == list(range(20))


def test_filters_beyond_the_work_of_a_tick_are_parsed_later_and_all_are_in_force() -> None:
    condition = "level > 1, " * 9 + "level > 2"

    async def story() -> tuple[int, int]:
        with patch.object(request_cost, "READ_BUDGET", 200_000):
            async with service() as node:
                client = await join_client(node, "client")
                for n in range(20):
                    client.send_request(messages.SubscribeRequest(n, EVERYWHERE, condition))
                await client.ask(messages.PublishRequest, 0.0, 0.0)
                (session,) = node.gateway.sessions
                assert session.client is not None
                return session.paused_reading, len(session.client.subscriptions)

    slowed, subscriptions = run(story())
    assert slowed >= 1
    assert subscriptions == 20


def test_a_client_that_is_read_later_can_be_let_go() -> None:
    async def story() -> None:
        never = patch.object(gateway, "TICK_S", 3600.0)  # it is never read again
        with never, patch.object(request_cost, "READ_BUDGET", 1):
            async with service(limits=LimitSettings(requests=10**6, slow_s=0.1)) as node:
                client = await connect_raw(node)
                client.send_request(messages.JoinRequest("held"))
                client.writer.write(masked(b"x" * 5_000))
                await until(lambda: node.gateway._paused_reading)
                (session,) = node.gateway.sessions
                session.end("for a test")
                assert not node.gateway._paused_reading and session.unread_frames is None
                await until(lambda: not node.gateway.sessions)

    run(story())


def test_nearby_and_watching_cost_by_how_many_states_there_are() -> None:
    async def story() -> None:
        with patch.multiple(realm, LOOKED_AT=2, LISTED=5):
            async with service(limits=LimitSettings(requests=1_000)) as node:
                for n in range(20):
                    await (await join_client(node)).ask(
                        messages.PublishRequest, float(n), 0.0, retain=True
                    )
                client = await join_client(node)
                bucket = list(node.gateway.sessions)[-1].bucket
                for word, more, listed in (
                    (messages.NearbyRequest, (EVERYWHERE,), 20),
                    (messages.SubscribeRequest, (1, Area(x=0.0, y=0.0, r=4.5)), 5),
                ):
                    before = bucket._left
                    watch = {"watch": True} if word is messages.SubscribeRequest else {}
                    await client.ask(word, *more, **watch)
                    assert before - bucket._left == 2 + 20 // 2 + listed // 5
                before = bucket._left
                await client.ask(messages.SubscribeRequest, 2, EVERYWHERE)
                assert before - bucket._left == 1

    run(story())


def test_the_largest_queue_pays_first_and_notices_alone_end_a_client() -> None:
    node: Any = SimpleNamespace(limits=LimitSettings(queues_bytes=3_000), queued=0, read=None)
    node.now = lambda: 0
    node._record_dropped = lambda *_: None
    many, few, notices = (Session(node) for _ in range(3))
    node.sessions, cut = [many, few, notices], []
    for session in node.sessions:
        session.paused = True
    put(many, [message(n) for n in range(20)])
    put(few, [message(n) for n in range(2)])
    notices.send_frames([b"n" * 3_000])
    with patch.object(Session, "cut", lambda session, _: cut.append(session)):
        gateway.Gateway._shrink_queues(node)
    assert few.messages == 2 and few.dropped == 0
    assert 0 < many.messages < 20 and many.bytes <= 3_000 // 2
    assert cut == [notices]
