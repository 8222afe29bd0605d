"""A client that nodes hand on to each other, and whose node dies: nodes that follow a script."""

import asyncio
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

import nearcast
from nearcast.client import client as client_module
from nearcast.client.client import Client, Disconnected, HandedOver, Reconnected
from nearcast.client.recent_publications import RecentPublications
from nearcast.client_protocol import messages
from nearcast.space.motion import SECOND
from nearcast.space.shapes import disc, point
from support.client_parameters import set_parameters
from support.join_targets import run
from support.patience import PATIENCE_S
from support.scripted_nodes import message_notice, nodes, until


async def notice_of(client: Client) -> client_module.ClientNotice:
    return await asyncio.wait_for(anext(client.notices()), PATIENCE_S)


def test_a_client_is_handed_over_and_receives_everything_once_and_in_order() -> None:
    async def story() -> None:
        async with nodes("a", "b") as (a, b):
            a.nodes = [b.url]
            me = await nearcast.connect(a.url, name="anna").open()
            here, there = await me.subscribe(disc(0, 0, 5)), await me.subscribe(disc(3, 0, 5))
            everything = me.messages()
            a.send(message_notice(1, [1]), message_notice(2, [1, 2]))
            b.after_welcome = [
                message_notice(2, [1, 2]),
                message_notice(3, [1]),
                message_notice(4, [2]),
            ]
            a.send(messages.MovedNotice(b.url, "a ticket"), message_notice(3, [1]))
            assert await notice_of(me) == HandedOver("b", b.url)
            assert (me.node, me.entity) == ("b", 7)
            join = b.asked[0][1]
            assert (join.name, join.ticket) == ("anna", "a ticket")
            await until(lambda: len(there.messages) == 2)
            # The former node still has something, of which one is half known.
            a.send(message_notice(3, [1]), message_notice(4, [1, 2]), message_notice(5, [1]))
            await until(lambda: len(here.messages) == 5)
            b.send(message_notice(5, [1]), message_notice(6, [1]))
            await until(lambda: len(here.messages) == 6)
            assert [(await anext(here)).publication for _ in range(6)] == [1, 2, 3, 4, 5, 6]
            assert [(await anext(there)).publication for _ in range(2)] == [2, 4]
            assert [(await anext(everything)).publication for _ in range(6)] == [1, 2, 3, 4, 5, 6]
            assert len(there.messages) == 0 and len(everything) == 0
            await me.publish(point(0, 0), "to the new one")
            assert b.kinds() == [messages.JoinRequest, messages.PublishRequest]
            a.end()
            await until(lambda: not a.connections)
            await me.publish(point(0, 0), "and it goes on")
            assert len(me.notices()) == 0, "the application need not know of the rest"
            await me.close()
            await until(lambda: not b.connections)

    run(story())


def test_what_the_former_node_said_earlier_is_heard_earlier(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    set_parameters(monkeypatch, hold_back=60 * SECOND)

    async def story() -> None:
        async with nodes("a", "b") as (a, b), nearcast.connect(a.url) as me:
            here = await me.subscribe(disc(0, 0, 5))
            b.after_welcome = [message_notice(2, [1])]
            a.send(messages.MovedNotice(b.url, "t"))
            assert isinstance(await notice_of(me), HandedOver)
            b.send(message_notice(3, [1]))
            await me.publish(point(0, 0))  # by then it has come
            a.send(message_notice(1, [1]))
            a.end()
            assert [(await anext(here)).publication for _ in range(3)] == [1, 2, 3]
            b.send(message_notice(4, [1]))
            assert (await anext(here)).publication == 4

    run(story())


def test_a_request_under_way_is_answered_by_whom_it_was_sent_to_and_later_ones_wait() -> None:
    async def story() -> None:
        async with nodes("a", "b") as (a, b), nearcast.connect(a.url) as me:
            a.slow.add(messages.PublishRequest)
            first = asyncio.ensure_future(me.publish(point(0, 0), "first"))
            await until(lambda: messages.PublishRequest in a.kinds())
            a.send(messages.MovedNotice(b.url, "a ticket"))
            await until(lambda: b.connections)
            second = asyncio.ensure_future(me.publish(point(0, 0), "second"))
            await asyncio.sleep(0.1)
            assert b.kinds() == [], "it does not go before all it asked for is done"
            a.send(messages.DoneNotice(a.asked[-1][1].id, 1, publication=41))
            assert (await first, await second) == (41, 7)
            assert (a.kinds().count(messages.PublishRequest), b.kinds()) == (
                1,
                [messages.JoinRequest, messages.PublishRequest],
            )

    run(story())


@pytest.mark.parametrize("trouble", ["refuses", "is silent", "is not there", "mistakes us"])
def test_where_the_other_node_will_not_have_it_a_client_stays(
    trouble: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if trouble == "is silent":  # so long that it is welcomed in time afterwards
        set_parameters(monkeypatch, handover=SECOND * 2)

    async def story() -> None:
        async with nodes("a", "b") as (a, b), nearcast.connect(a.url) as me:
            here = await me.subscribe(disc(0, 0, 5))
            b.entity = {"refuses": None, "mistakes us": 8}.get(trouble, 7)
            b.answers = trouble != "is silent"
            b.after_welcome = [messages.InsideNotice(1, [messages.EntityState(5, 1, 0.0, 0.0)])]
            a.send(
                messages.MovedNotice(
                    "ws://127.0.0.1:1" if trouble == "is not there" else b.url, "t"
                )
            )
            a.send(message_notice(1, [1]))
            await asyncio.sleep(0.01)
            assert await me.publish(point(0, 0)) == 7
            assert (await anext(here)).publication == 1
            assert (me.node, me.entity, here.inside) == ("a", 7, {})
            assert a.kinds()[-1] is messages.PublishRequest
            await until(lambda: not b.connections)
            b.entity, b.answers = 7, True
            a.send(messages.MovedNotice(b.url, "another"))
            assert await notice_of(me) == HandedOver("b", b.url), "and may be asked again"

    run(story())


@pytest.mark.parametrize("welcome", [True, False])
def test_a_node_that_ends_while_it_hands_a_client_over(welcome: bool) -> None:
    async def story() -> None:
        async with nodes("a", "b") as (a, b):
            a.nodes = [b.url]
            async with nearcast.connect(a.url) as me:
                await me.subscribe(disc(0, 0, 5))
                b.answers = False
                a.send(messages.MovedNotice(b.url, "t"), messages.ByeNotice("the node stops"))
                a.end()
                await until(lambda: messages.JoinRequest in b.kinds())
                b.answers = True
                if welcome:
                    b.joined(b.connections[0], b.asked[-1][1])
                    assert await notice_of(me) == HandedOver("b", b.url)
                    assert b.kinds() == [messages.JoinRequest]
                else:
                    b.end()
                    assert await notice_of(me) == Disconnected("the node stops")
                    assert await notice_of(me) == Reconnected([])

    run(story())


def test_a_client_whose_node_is_dead_goes_to_another_that_it_knows() -> None:
    async def story() -> None:
        async with nodes("b", "c") as (b, c):
            async with nodes("a") as (a,):
                a.nodes = ["ws://127.0.0.1:1", c.url]
                me = await nearcast.connect(a.url).open()
                assert me.nodes == a.nodes
                here = await me.subscribe(disc(0, 0, 5))
                a.send(messages.NodesNotice(["ws://127.0.0.1:1", b.url]))
                await until(lambda: b.url in me.nodes)
            a.end()
            b.entity = 8
            assert isinstance(await notice_of(me), Disconnected)
            assert await notice_of(me) == Reconnected([])
            # It knows of no others: what was known before stays.
            assert (me.node, me.entity, me.nodes) == ("b", 8, ["ws://127.0.0.1:1"])
            assert (b.kinds(), c.kinds()) == ([messages.JoinRequest, messages.SubscribeRequest], [])
            b.send(message_notice(9, [here.number]))
            assert (await anext(here)).publication == 9
            await me.close()

    run(story())


def test_a_node_that_does_not_answer_does_not_keep_a_client_from_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    set_parameters(monkeypatch, attempt=SECOND // 10)

    async def story() -> None:
        with socket.create_server(("127.0.0.1", 0)) as deaf:
            async with nodes("a", "b") as (a, b):
                a.nodes = [f"ws://127.0.0.1:{deaf.getsockname()[1]}", b.url]
                async with nearcast.connect(a.url) as me:
                    a.answers = False
                    a.end()
                    assert isinstance(await notice_of(me), Disconnected)
                    assert await notice_of(me) == Reconnected([])
                    assert me.node == "b"

    run(story())


def test_one_node_that_refuses_is_not_the_end_but_all_of_them_are() -> None:
    async def story() -> None:
        async with nodes("a", "b") as (a, b):
            a.nodes = b.nodes = [b.url]
            async with nearcast.connect(a.url) as me:
                here = await me.subscribe(disc(0, 0, 5))
                a.entity = None
                a.end()
                assert isinstance(await notice_of(me), Disconnected)
                assert await notice_of(me) == Reconnected([])
                b.entity = None
                b.end()
                with pytest.raises(nearcast.Refused, match="not known here"):
                    await asyncio.wait_for(anext(here), PATIENCE_S)

    run(story())


def test_a_client_that_is_being_handed_over_can_be_closed() -> None:
    async def story() -> None:
        async with nodes("a", "b") as (a, b):
            before = asyncio.all_tasks()
            me = await nearcast.connect(a.url).open()
            b.answers = False
            a.send(messages.MovedNotice(b.url, "t"))
            await until(lambda: messages.JoinRequest in b.kinds())
            await me.close()
            assert asyncio.all_tasks() == before
            await until(lambda: not a.connections and not b.connections)

    run(story())


def test_a_client_that_was_handed_over_leaves_both_nodes() -> None:
    async def story() -> None:
        async with nodes("a", "b") as (a, b):
            before = asyncio.all_tasks()
            async with nearcast.connect(a.url) as me:
                a.send(messages.MovedNotice(b.url, "t"))
                assert isinstance(await notice_of(me), HandedOver)
                assert a.connections and b.connections
            assert asyncio.all_tasks() == before
            await until(lambda: not a.connections and not b.connections)
            assert (messages.LeaveRequest in a.kinds(), messages.LeaveRequest in b.kinds()) == (
                False,
                True,
            )

    run(story())


def test_a_node_that_does_not_say_goodbye_is_left_after_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    set_parameters(monkeypatch, former_node=SECOND // 10)

    async def story() -> None:
        async with nodes("a", "b") as (a, b), nearcast.connect(a.url) as me:
            a.send(messages.MovedNotice(b.url, "t"))
            assert isinstance(await notice_of(me), HandedOver)
            await until(lambda: not a.connections)
            assert b.connections and len(me.notices()) == 0

    run(story())


def test_who_is_inside_is_what_the_node_says_that_serves() -> None:
    def somebody(entity: int) -> messages.EntityState:
        return messages.EntityState(entity, 1, 0.0, 0.0)

    async def story() -> None:
        async with nodes("a", "b") as (a, b), nearcast.connect(a.url) as me:
            here = await me.subscribe(disc(0, 0, 5))
            a.send(messages.InsideNotice(1, [somebody(1), somebody(2)]))
            b.after_welcome = [messages.InsideNotice(1, [somebody(2), somebody(3)])]
            a.send(messages.MovedNotice(b.url, "t"))
            assert isinstance(await notice_of(me), HandedOver)
            a.send(
                messages.LeaveNotice(1, 2),
                messages.EnterNotice(1, somebody(1)),
                message_notice(1, [1]),
            )
            await anext(here)
            assert sorted(here.inside) == [2, 3]

    run(story())


@given(st.lists(st.tuples(st.integers(0, 30), st.sets(st.integers(1, 3), min_size=1))))
def test_nothing_is_new_twice(heard: list[tuple[int, set[int]]]) -> None:
    recent_publications, had = RecentPublications(50), set[tuple[int, int]]()
    for publication, to in heard:
        fresh, again = recent_publications.add(publication, sorted(to))
        assert set(fresh) == {number for number in to if (publication, number) not in had}
        assert again == any(known == publication for known, _ in had)
        had |= {(publication, number) for number in to}


def test_what_was_heard_long_ago_is_forgotten_and_what_was_heard_lately_is_not() -> None:
    recent_publications = RecentPublications(10)
    for publication in range(1_000):
        assert recent_publications.add(publication, [1]) == ([1], False)
        recent = range(max(0, publication - 9), publication + 1)
        assert all(recent_publications.add(one, [1]) == ([], True) for one in recent)
    assert recent_publications.add(900, [1]) == ([1], False)
