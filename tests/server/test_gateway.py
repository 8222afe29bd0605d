"""Words in, words out, over real sockets."""

import asyncio
import ssl
import subprocess
from pathlib import Path
from typing import Any

import pytest
from picows import WSMsgType

from nearcast.client_protocol import messages
from nearcast.client_protocol.geometry_json import Area
from nearcast.server.config import LimitSettings
from nearcast.space.motion import SECOND
from nearcast.trace.reader import read
from support.live_clients import connect_client, join_client, run, service
from support.patience import PATIENCE_S
from support.raw_websocket import BINARY, CLOSE, PING, TEXT, connect_raw, masked

BOTH = pytest.mark.parametrize(
    "form", [messages.JSON, messages.MSGPACK], ids=lambda form: form.name
)


@BOTH
def test_a_subscriber_receives_what_is_published_there_and_nothing_else(
    form: messages.Encoding,
) -> None:
    async def story() -> list[tuple[Any, ...]]:
        async with service() as node:
            ann, bob = await join_client(node, "ann", form), await join_client(node, "bob", form)
            await ann.ask(messages.SubscribeRequest, 9, Area(x=0.0, y=0.0, r=10.0))
            await bob.ask(messages.PublishRequest, 50.0, 0.0, form.encode_payload("far"))
            done = await bob.ask(
                messages.PublishRequest, 3.0, 4.0, form.encode_payload({"say": "hi"})
            )
            await ann.await_notice(messages.MessageNotice)
            assert done.publication == ann.of(messages.MessageNotice)[0].publication
            return [
                (
                    m.to,
                    m.source == bob.entity,
                    m.x,
                    m.y,
                    form.decode_payload(m.payload),
                    m.t == done.t,
                )
                for m in ann.of(messages.MessageNotice)
            ]

    assert run(story()) == [([9], True, 3.0, 4.0, {"say": "hi"}, True)]


def test_clients_with_different_encodings_understand_each_other() -> None:
    async def story() -> list[Any]:
        async with service() as node:
            ann, bob = (
                await join_client(node, "ann"),
                await join_client(node, "bob", messages.MSGPACK),
            )
            for one in (ann, bob):
                await one.ask(messages.SubscribeRequest, 1, Area())
            await ann.ask(
                messages.PublishRequest,
                1.0,
                1.0,
                messages.JSON.encode_payload({"a": [1, None, "é"]}),
            )
            await bob.ask(
                messages.PublishRequest, 1.0, 1.0, messages.MSGPACK.encode_payload({"b": 2.5})
            )
            heard = [await one.await_notice(messages.MessageNotice) for one in (ann, bob)]
            return [
                one.form.decode_payload(m.payload) for one, m in zip((ann, bob), heard, strict=True)
            ]

    assert run(story()) == [{"b": 2.5}, {"a": [1, None, "é"]}]


def test_one_message_names_all_ones_own_subscriptions_that_match_it() -> None:
    async def story() -> list[int]:
        async with service() as node:
            ann = await join_client(node, "ann")
            for number in (4, 2):
                await ann.ask(
                    messages.SubscribeRequest, number, Area(x=0.0, y=0.0, r=5.0), echo=True
                )
            await ann.ask(messages.SubscribeRequest, 3, Area(x=90.0, y=0.0, r=5.0), echo=True)
            await ann.ask(messages.PublishRequest, 1.0, 1.0)
            assert len(ann.of(messages.MessageNotice)) == 1
            return sorted(ann.of(messages.MessageNotice)[0].to)

    assert run(story()) == [2, 4]


def test_moving_tuning_and_ending_a_subscription_take_effect_at_once() -> None:
    async def story() -> list[float]:
        async with service() as node:
            ann, bob = (
                await join_client(node, "ann"),
                await join_client(node, "bob", messages.MSGPACK),
            )
            await ann.ask(messages.SubscribeRequest, 1, Area(x=0.0, y=0.0, r=5.0))
            await bob.ask(messages.PublishRequest, 0.0, 0.0)
            await ann.ask(messages.MoveRequest, 1, Area(x=100.0, y=0.0, r=5.0))
            await bob.ask(messages.PublishRequest, 1.0, 0.0)
            await bob.ask(messages.PublishRequest, 101.0, 0.0)
            area = Area(formula="x >= low, x <= low + 10")
            await ann.ask(messages.SubscribeRequest, 2, area, variables={"low": 200.0})
            await ann.ask(messages.TuneRequest, 2, {"low": 300.0})
            await bob.ask(messages.PublishRequest, 205.0, 0.0)
            await bob.ask(messages.PublishRequest, 305.0, 0.0)
            await ann.ask(messages.UnsubscribeRequest, 2)
            await bob.ask(messages.PublishRequest, 306.0, 0.0)
            await ann.ask(messages.PublishRequest, 0.0, 0.0)
            return [m.x for m in ann.of(messages.MessageNotice)]

    assert run(story()) == [0.0, 101.0, 305.0]


def test_a_refusal_goes_to_the_one_who_asked_with_a_reason_and_changes_nothing() -> None:
    async def story() -> tuple[list[Any], list[Any]]:
        limits = LimitSettings(subscriptions=1, payload=10, frame=2_000, extent=100.0, formula=30)
        async with service(limits=limits) as node:
            ann, bob = await join_client(node, "ann"), await join_client(node, "bob")
            answers = [
                await ann.ask(messages.SubscribeRequest, 1, Area(x=0.0, y=0.0, r=50.0)),
                await ann.ask(messages.SubscribeRequest, 2, Area(x=0.0, y=0.0, r=50.0)),
                await ann.ask(messages.SubscribeRequest, 1, Area(x=0.0, y=0.0, r=1e5)),
                await ann.ask(messages.SubscribeRequest, 1, Area(x=0.0, r=1.0)),
                await ann.ask(messages.SubscribeRequest, 1, Area(formula="x > 1" + " + 1" * 30)),
                await ann.ask(messages.MoveRequest, 5, Area()),
                await ann.ask(messages.UnsubscribeRequest, 5),
                await ann.ask(messages.TuneRequest, 1, {"low": 1.0}),
                await ann.ask(
                    messages.PublishRequest, 0.0, 0.0, messages.JSON.encode_payload("x" * 50)
                ),
                await ann.ask(messages.PublishRequest, 0.0, 0.0, rx=1.0),
                await ann.ask(messages.JoinRequest, "again"),
            ]
            ann.send(b'{"do":"publish","x":0,"y":0,"payload":"' + b"x" * 2_000 + b'"}')
            ann.send(b'{"do":"dance"}')
            ann.send(b'{"do":"publish","x":NaN,"y":0}')
            answers += [await ann.await_notice(messages.ErrorNotice, 10 + n) for n in (1, 2, 3)]
            await bob.ask(messages.PublishRequest, 1.0, 1.0)
            await ann.await_notice(messages.MessageNotice)
            return answers, bob.of(messages.ErrorNotice)

    answers, others = run(story())
    assert isinstance(answers[0], messages.DoneNotice)
    assert [type(answer) for answer in answers[1:]] == [messages.ErrorNotice] * 13
    assert all(len(answer.reason) > 8 for answer in answers[1:])
    assert others == []


def test_an_id_that_no_form_can_repeat_is_refused_and_the_client_stays() -> None:
    async def story() -> list[str]:
        async with service() as node:
            ann = await join_client(node, "ann", messages.MSGPACK)
            for number in (2**70, -(2**70), -1, 2**53):
                body = b'{"do":"unsubscribe","subscription":1,"id":%d}' % number
                ann.transport.send(WSMsgType.TEXT, body)
            await ann.await_notice(messages.ErrorNotice, 4)
            await ann.ask(messages.PublishRequest, 1.0, 1.0)
            return [error.reason for error in ann.of(messages.ErrorNotice)]

    assert run(story()) == ["an id is from 0 to 2**53 - 1"] * 4


def test_no_client_is_served_and_none_of_its_publications_delivered_before_it_joins() -> None:
    async def story() -> list[str]:
        async with service() as node:
            ann = await connect_client(node)
            for word in (
                messages.SubscribeRequest(1, id=1),
                messages.PublishRequest(0.0, 0.0),
                messages.LeaveRequest(),
            ):
                ann.send_request(word)
            await ann.await_notice(messages.ErrorNotice, 3)
            assert node.realm.waiting == 0
            return [error.reason for error in ann.of(messages.ErrorNotice)]

    assert run(story()) == ["join first"] * 3


def test_who_does_not_join_in_time_is_let_go() -> None:
    async def story() -> str:
        async with service() as node:
            ann = await join_client(node, "ann")
            node.gateway.limits = LimitSettings(join_s=0.2)
            silent = await connect_client(node)
            reason: str = (await silent.await_notice(messages.ByeNotice)).reason
            await silent.gone.wait()
            assert not ann.gone.is_set()
            return reason

    assert "join" in run(story())


@pytest.mark.parametrize("form", [messages.JSON, messages.MSGPACK], ids=lambda form: form.name)
def test_more_requests_than_the_limit_are_refused_and_then_again_accepted(
    form: messages.Encoding,
) -> None:
    """In MessagePack they are plain: read in columns, and paid for in advance."""

    async def story() -> tuple[int, bool]:
        async with service(limits=LimitSettings(requests=20)) as node:
            clock = [node.gateway.now()]
            node.gateway.now = lambda: clock[0]
            ann = await join_client(node, "ann", form)
            for n in range(100):
                ann.send_request(messages.PublishRequest(float(n), 0.0))
            await ann.await_notice(messages.ErrorNotice, 61)
            clock[0] += SECOND // 2
            done = await ann.ask(messages.PublishRequest, 0.0, 0.0)
            accepted = form.message_class(done) is messages.DoneNotice
            return len(ann.of(messages.ErrorNotice)), accepted

    errors, again = run(story())
    assert errors == 61  # two seconds of the limit are saved up, and the join took one
    assert again


def test_more_clients_than_the_limit_are_told_so() -> None:
    async def story() -> None:
        async with service(limits=LimitSettings(clients=2)) as node:
            ann, _ = await join_client(node, "ann"), await join_client(node, "bob")
            with pytest.raises(Exception, match="503"):
                await connect_client(node)
            ann.send_request(messages.LeaveRequest(id=7))
            await ann.gone.wait()
            await join_client(node, "carl")

    run(story())


def test_leaving_is_answered_and_ends_everything() -> None:
    async def story() -> tuple[list[type], int]:
        async with service() as node:
            ann, bob = await join_client(node, "ann"), await join_client(node, "bob")
            await ann.ask(messages.SubscribeRequest, 1, Area())
            ann.send_request(messages.LeaveRequest(id=99))
            await ann.gone.wait()
            await bob.ask(messages.PublishRequest, 0.0, 0.0)
            left = sum(client is not None for client in node.realm.clients)
            return [ann.form.message_class(word) for word in ann.notices[-2:]], left

    assert run(story()) == ([messages.DoneNotice, messages.ByeNotice], 1)


def test_tokens_admit_clients_and_bound_what_may_be_published(tmp_path: Path) -> None:
    file = tmp_path / "tokens.toml"
    file.write_text(
        "[r]\ntoken = 'reader-token'\nrole = 'read'\n"
        "[p]\ntoken = 'player-token'\nrole = 'publish'\nwithin = { x = 0, y = 0, r = 10 }\n"
    )

    async def story() -> list[type]:
        async with service(token_file=str(file)) as node:
            raw_client = await connect_client(node)
            raw_client.send_request(messages.JoinRequest("eve", "wrong"))
            await raw_client.await_notice(messages.ByeNotice)
            reader = await join_client(node, "r", token="reader-token")
            player = await join_client(node, "p", token="player-token")
            await reader.ask(messages.SubscribeRequest, 1, Area())
            answers = [
                await reader.ask(messages.PublishRequest, 0.0, 0.0),
                await player.ask(messages.PublishRequest, 50.0, 0.0),
                await player.ask(messages.PublishRequest, 5.0, 0.0),
                await player.ask(messages.PublishRequest, 5.0, 0.0, rx=1.0),
            ]
            await reader.await_notice(messages.MessageNotice)
            return [type(answer) for answer in answers]

    assert run(story()) == [
        messages.ErrorNotice,
        messages.ErrorNotice,
        messages.DoneNotice,
        messages.ErrorNotice,
    ]


def test_a_message_in_several_frames_is_one_message_and_pings_are_answered() -> None:
    async def story() -> list[Any]:
        async with service() as node:
            client = await connect_raw(node)
            whole = messages.JSON.encode(messages.JoinRequest("parts", id=1))
            client.writer.write(masked(whole[:5], TEXT, fin=False))
            client.writer.write(masked(b"hello", PING))
            client.writer.write(masked(whole[5:9], 0, fin=False) + masked(whole[9:], 0))
            client.writer.write(masked(messages.JSON.encode(messages.LeaveRequest(id=2)), TEXT))
            return await client.until_closed()

    frames = run(story())
    assert [op for op, _ in frames] == [10, TEXT, TEXT, TEXT, CLOSE]
    assert frames[0][1] == b"hello"
    assert isinstance(messages.JSON.read_notice(frames[1][1]), messages.WelcomeNotice)


def test_frames_out_of_order_and_endless_messages_end_the_connection() -> None:
    async def story() -> list[list[tuple[int, bytes]]]:
        async with service(limits=LimitSettings(frame=1_000)) as node:
            lost, endless = await connect_raw(node), await connect_raw(node)
            lost.writer.write(masked(b"x", 0))
            for _ in range(14):
                endless.writer.write(masked(b"x" * 300, BINARY if _ == 0 else 0, fin=False))
            return [await lost.until_closed(), await endless.until_closed()]

    for (_, body), (op, _) in run(story()):
        assert isinstance(messages.JSON.read_notice(body), messages.ByeNotice)
        assert op == CLOSE


def test_tls_with_a_given_certificate(tmp_path: Path) -> None:
    certificate, key = str(tmp_path / "cert.pem"), str(tmp_path / "key.pem")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
         "-nodes", "-days", "1", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate],
        check=True, capture_output=True,
    )  # fmt: skip

    async def story() -> str:
        trust = ssl.create_default_context(cafile=certificate)
        async with service(tls_certificate=certificate, tls_key=key) as node:
            ann = await join_client(node, "ann", ssl_context=trust)
            await ann.ask(messages.SubscribeRequest, 1, Area(), echo=True)
            await ann.ask(
                messages.PublishRequest, 0.0, 0.0, messages.JSON.encode_payload("y" * 9_000)
            )
            assert node.url.startswith("wss://")
            return str(
                ann.form.decode_payload((await ann.await_notice(messages.MessageNotice)).payload)
            )

    assert run(story()) == "y" * 9_000


def test_entities_of_the_same_process_publish_and_subscribe_beside_clients(tmp_path: Path) -> None:
    async def story() -> int:
        async with service(tmp_path / "t") as node:
            clients = [node.realm.join(node.gateway.now(), f"bot {n}") for n in range(200)]
            for client in clients:
                word = messages.SubscribeRequest(1, Area(x=0.0, y=0.0, r=5.0))
                node.realm.subscribe(node.gateway.now(), client, word)
            ann = await join_client(node, "ann")
            await ann.ask(messages.SubscribeRequest, 1, Area())
            await ann.ask(messages.PublishRequest, 1.0, 1.0)
            node.realm.publish(clients[-1], messages.PublishRequest(2.0, 2.0), messages.JSON)
            node.gateway.schedule_flush()
            await ann.await_notice(messages.MessageNotice)
            return node.gateway.metrics.deliveries

    assert run(story()) == 400
    assert read(tmp_path / "t", "deliveries").num_rows == 400


def test_a_stopped_node_says_goodbye_to_everyone() -> None:
    async def story() -> list[str]:
        async with service() as node:
            clients = [await join_client(node, str(n)) for n in range(5)]
        for client in clients:
            await asyncio.wait_for(client.gone.wait(), PATIENCE_S)
        return [client.of(messages.ByeNotice)[0].reason for client in clients]

    assert run(story()) == ["the node stops"] * 5
