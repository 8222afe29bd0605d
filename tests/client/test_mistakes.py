"""What a client refuses by itself, and what it survives of a node."""

import asyncio
import json
import math
from typing import Any

import pytest
from msgspec import Raw
from picows import WSMsgType

import nearcast
from nearcast.cli.terminal import summary_line, to_json
from nearcast.client.client import Client
from nearcast.client_protocol import messages
from nearcast.client_protocol.payloads import MAX_NESTING
from nearcast.space.motion import SECOND, line, path
from nearcast.space.shapes import EVERYWHERE, ball, disc, point
from support.client_parameters import set_parameters
from support.join_targets import Join, in_both, run
from support.patience import PATIENCE_S
from support.scripted_nodes import ScriptedNode, message_notice, nodes, until


def endless() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


def nested(levels: int) -> list[Any]:
    return [] if levels == 1 else [nested(levels - 1)]


@in_both
async def test_what_is_plainly_wrong_is_refused_before_it_is_sent(join: Join) -> None:
    me = await join("me")
    here = await me.subscribe(disc(0, 0, 5))
    odd: Any = [1]
    publish, subscribe = me.publish, me.subscribe
    for wrong, reason in [
        (lambda: publish(point(0, 0), attributes={"a": odd}), "attribute 'a' is a boolean"),
        (lambda: publish(point(0, 0), attributes={"a": math.nan}), "'a' must be finite"),
        (lambda: publish(point(0, 0), attributes={"a": 2**64}), "'a' must fit 64 bits"),
        (lambda: publish(point(0, 0), attributes={"a": "\ud800"}), "can be encoded"),
        (lambda: publish(point(0, 0), object()), "this payload cannot be sent"),
        (lambda: publish(point(0, 0), 2**64), "this payload cannot be sent"),
        (lambda: publish(point(0, 0), "\ud800"), "this payload cannot be sent"),
        (lambda: publish(point(0, 0), endless()), "nested too deep"),
        (lambda: publish(point(0, 0), nested(MAX_NESTING + 1)), "nests at most 100"),
        (lambda: publish(point(0, 0), Raw(b"\xa1\xff")), "not valid UTF-8"),
        (lambda: publish((1,)), "two or three numbers"),
        (lambda: publish((math.nan, 1)), "a centre must be within"),
        (lambda: subscribe(disc(0, 0, 1), closest=odd), "closest"),
        (lambda: subscribe(disc(0, 0, 1), linger=math.nan), "linger is not a number"),
        (lambda: subscribe("x < v", variables={"v": math.nan}), "v is not a number"),
        (lambda: subscribe("x < v", variables={"v": odd}), "variables"),
        (lambda: here.tune(v=odd), "variables"),
        (lambda: me.nearby(disc(0, 0, 1), limit=odd), "limit"),
        (lambda: me.move_to((1,), 3), "two or three numbers"),
    ]:
        with pytest.raises(ValueError, match=reason):
            await asyncio.wait_for(wrong(), PATIENCE_S)
    with pytest.raises(TypeError, match="not a list"):
        await subscribe(odd)
    with pytest.raises(ValueError, match="watch=True"):
        here.changes()
    assert await publish(point(0, 0), nested(MAX_NESTING)) > 0


def test_a_line_keeps_the_height_that_it_is_not_told() -> None:
    start = ball(0, 0, 7, 1)
    assert line(start, (90, 0), 10) == line(start, (90, 0, 7), 10)
    assert path(start, [(90, 0), (90, 9, 8)], 10) == path(start, [(90, 0, 7), (90, 9, 8)], 10)
    with pytest.raises(ValueError, match="two or three numbers, not 1"):
        line(start, (90,), 10)


async def _listening(node: ScriptedNode) -> tuple[Client, Any]:
    me = await nearcast.connect(node.url, reconnect=False).open()
    return me, await me.subscribe(EVERYWHERE)


def test_a_client_survives_what_it_cannot_read() -> None:
    async def story() -> None:
        async with nodes("n") as (node,):
            me, here = await _listening(node)
            transport = node.connections[0].transport
            for frame in (b"", b"\xc1", b"\x92\x0b\xa1\xff", b"\x91" * 5_000, b"\x92\x63\x01"):
                transport.send(WSMsgType.BINARY, frame)
            bad = messages.MessageNotice([1], 3, 1, 1, 0.0, 0.0, Raw(b"\xa1\xff"))
            state = messages.EntityState(3, 1, 0.0, 0.0, payload=Raw(b"\xa1\xff"))
            node.send(
                bad,
                messages.InsideNotice(1, [state]),
                messages.EnterNotice(1, state),
                message_notice(2, [1]),
            )
            unread, read = await anext(here), await anext(here)
            reason = "text is not valid UTF-8"
            assert unread.payload == nearcast.Unreadable(b"\xa1\xff", reason)
            assert (read.publication, read.payload) == (2, None)
            assert here.inside[3].payload == nearcast.Unreadable(b"\xa1\xff", reason)
            for _ in range(5):
                notice = await anext(me.notices())
                assert isinstance(notice, messages.ErrorNotice)
                assert notice.reason.startswith("a notice of the node is unreadable: ")
            await me.close()

    run(story())


def test_who_says_nothing_readable_is_no_node() -> None:
    async def story() -> None:
        async with nodes("n") as (node,):
            node.answers = False
            joining = asyncio.ensure_future(nearcast.connect(node.url).open())
            await until(lambda: node.asked)
            node.connections[0].transport.send(WSMsgType.BINARY, b"\xc1")
            with pytest.raises(ConnectionError, match="this is no Nearcast node"):
                await joining

    run(story())


def test_nobody_waits_for_ever_for_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        async with nodes("n") as (node,):
            node.answers = False
            set_parameters(monkeypatch, answer=SECOND // 20)
            with pytest.raises(ConnectionError, match="the node does not answer"):
                await nearcast.connect(node.url).open()
            node.answers = True
            # So long that the answers that there are come in time.
            set_parameters(monkeypatch, answer=3 * SECOND)
            me, _ = await _listening(node)
            node.slow.add(messages.PublishRequest)
            inside, published = await asyncio.gather(
                me.subscribe(disc(0, 0, 1), watch=True),
                me.publish(point(0, 0)),
                return_exceptions=True,
            )
            for error, why in (
                (inside, "does not say who is inside"),
                (published, "the node does not answer"),
            ):
                assert isinstance(error, ConnectionError) and why in str(error)
            await me.close()

    run(story())


def test_no_payload_ends_or_controls_a_terminal() -> None:
    keys = b"\x83\x90\x01\xc0\x02\xc3\x03"  # an array, nil and a boolean
    odd = messages.MSGPACK.decode_payload(
        Raw(b"\x93\xd4\x05\x01" + keys + b"\xcb\x7f\xf8" + bytes(6))
    )
    shown = {"message": 1, "from": 2, "t": 3, "x": 1.0, "y": 2.0, "z": 0.0, "payload": odd}
    assert summary_line(shown).startswith("2 at (1, 2): ")
    assert list(json.loads(to_json(shown))) == list(shown)
    assert "\x1b" not in summary_line(shown | {"payload": "\x1b]0;mine\x07"})
    name = {"enter": 1, "name": "\x1b[2J", "x": 1.0, "y": 2.0, "z": 0.0, "payload": None}
    assert summary_line(name) == "'\\x1b[2J' enters at (1, 2)"
    unread = nearcast.Unreadable(b"\xff", "why")
    assert summary_line(shown | {"payload": unread}).endswith('{"content":"/w==","reason":"why"}')
