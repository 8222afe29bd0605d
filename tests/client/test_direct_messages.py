"""Direct messages from client to client: in a world, through a node, and between both encodings."""

import asyncio
from typing import Any, cast

import pytest

import nearcast
from nearcast.client.client import Client
from nearcast.client.received import DirectMessage
from nearcast.client_protocol import messages
from nearcast.errors import InvalidRequestError
from nearcast.server.config import LimitSettings
from nearcast.server.server import Server
from nearcast.space.shapes import point
from support.javascript import in_node
from support.join_targets import Join, address, in_both, quiet, run
from support.live_clients import join_client, service
from support.patience import PATIENCE_S
from support.raw_websocket import connect_raw
from support.scripted_nodes import nodes, until


async def heard(client: Client) -> DirectMessage:
    return await asyncio.wait_for(anext(client.direct_messages()), PATIENCE_S)


async def sends_and_answers(join: Join) -> None:
    office, truck, other = await join("office"), await join("truck"), await join("other")
    everything = await other.subscribe()
    number = await office.send("truck", {"go": ["home", 1.5, None]})
    order = await heard(truck)
    assert order.payload == {"go": ["home", 1.5, None]}
    assert (order.source, order.name, order.number) == (office.entity, "office", number)
    await truck.send(order.source, "yes")
    await truck.send(order.source)
    assert [(await heard(office)).payload for _ in range(2)] == ["yes", None]
    await other.publish(point(0, 0))  # whatever was for others would have come before
    await office.publish(point(0, 0), "last")
    assert (await anext(everything.messages)).payload == "last"
    assert len(other.direct_messages()) == len(truck.direct_messages()) == 0


async def refuses(join: Join) -> None:
    me = await join("me")
    with pytest.raises(nearcast.Refused, match="there is no entity 'you' here"):
        await me.send("you", "hello")
    you = await join("you")
    await me.send("you", "hello")
    await you.close()
    with pytest.raises(nearcast.Refused, match="there is no entity 'you' here"):
        await me.send("you", "hello")
    with pytest.raises(InvalidRequestError, match="this request cannot be sent"):
        await me.send(cast(Any, 1.5), "hello")
    with pytest.raises(InvalidRequestError, match="this payload cannot be sent"):
        await me.send("me", object())
    assert [one.payload async for one in you.direct_messages()] == ["hello"]


test_messages_are_sent_and_answered = in_both(sends_and_answers)
test_what_nobody_can_receive_is_refused = in_both(refuses)


def test_javascript_sends_and_hears() -> None:
    program = """
        const me = await nc.connect(url, { name: "js" });
        await me.send("py", { ready: ["ä", 1.5, null] });
        const { value } = await me.directMessages().next();
        tell(value);
        tell(await me.send("nobody").catch((why) => [why instanceof nc.Refused, why.message]));
        await me.send(value.from);
        me.close();
    """

    async def story() -> None:
        async with Server(quiet()) as node, nearcast.connect(address(node), name="py") as py:
            talking = asyncio.ensure_future(in_node(program, address(node)))
            first = await heard(py)
            assert (first.name, first.payload) == ("js", {"ready": ["ä", 1.5, None]})
            number = await py.send("js", {"a": "ö"})
            assert (await heard(py)).payload is None
            told, refused = await talking
            assert told.pop("t") > 1e15
            sent = {"from": py.entity, "name": "py", "number": number, "to": ""}
            assert told == sent | {"payload": {"a": "ö"}}
            reason = "there is no entity 'nobody' here: nobody has received your message"
            assert refused == [True, reason]

    run(story())


def test_javascript_hears_a_message_of_two_nodes_once_and_the_former_ones_first() -> None:
    program = """
        const me = await nc.connect(url, { name: "js" });
        const inbox = me.directMessages();
        const numbers = [];
        while (numbers.length < 3) numbers.push((await inbox.next()).value.number);
        tell([numbers, inbox.length]);
        me.close();
    """

    async def story() -> None:
        async with nodes("a", "b") as (a, b):
            a.nodes = [b.url]
            b.after_welcome = [messages.DirectNotice(9, number, number) for number in (2, 3)]
            talking = asyncio.ensure_future(in_node(program, a.url))
            await until(lambda: messages.JoinRequest in a.kinds())
            a.send(messages.DirectNotice(9, 1, 1), messages.MovedNotice(b.url, "x" * 16))
            await until(lambda: messages.JoinRequest in b.kinds())
            a.send(messages.DirectNotice(9, 2, 2))
            assert await talking == [[[1, 2, 3], 0]]

    run(story())


def test_a_client_that_reads_nothing_loses_messages_and_is_told_how_many() -> None:
    async def story() -> None:
        limits = LimitSettings(requests=100_000, queue=20, slow_s=600.0)
        async with service(limits=limits) as node:
            talker = await join_client(node, "talker")
            sleeper = await connect_raw(node, buffer=4_096)
            sleeper.send_request(messages.JoinRequest("sleeper", id=1))
            await until(lambda: node.gateway.clients == 2)
            line, sent = messages.JSON.encode_payload("x" * 10_000), 0
            while node.gateway.metrics.dropped < 50:
                await talker.ask(messages.SendRequest, "sleeper", line)
                sent += 1
            missing = sent

            def is_last(notice: Any) -> bool:
                nonlocal missing
                if isinstance(notice, messages.DroppedNotice):
                    missing -= notice.messages
                missing -= isinstance(notice, messages.DirectNotice)
                return missing == 0

            await asyncio.wait_for(sleeper.notices_until(is_last), PATIENCE_S)

    run(story())
