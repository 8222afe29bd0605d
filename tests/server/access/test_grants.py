"""Tokens on a running node: what each allows, until when, how much, and what a wrong one costs."""

import asyncio
import json
import logging
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.parquet as pq
import pytest

import nearcast
from nearcast.client.client import Disconnected, Reconnected
from nearcast.client_protocol import messages
from nearcast.client_protocol.geometry_json import Area
from nearcast.errors import AccessError
from nearcast.server.access import jwts
from nearcast.server.config import ClusterSettings, JwtSettings, LimitSettings, Settings
from nearcast.server.server import Server
from nearcast.space.shapes import disc, point
from support.join_targets import address
from support.jwt_issuer import claims_of, eddsa, es256, issuing, jwks
from support.live_clients import LiveClient, connect_client, join_client, run, service
from support.patience import PATIENCE_S
from support.raw_websocket import http

ISSUER = eddsa("key")
HOUR = 3600 * 1_000_000
INNER, OUTER = Area(x=0.0, y=0.0, r=4.0), Area(x=0.0, y=0.0, r=40.0)


def token(nearcast: Any = None, sub: str = "alice", signer: Any = ISSUER) -> str:
    return str(signer.token(claims_of(nearcast, now=time.time(), sub=sub)))


@asynccontextmanager
async def guarded(folder: Path, **settings: Any) -> AsyncIterator[Server]:
    """A node that knows the issuer's key, and `everything-goes` for whoever looks on."""
    (folder / "jwks.json").write_bytes(jwks(ISSUER.jwk()))
    known = {"token": "everything-goes", "jwt": JwtSettings(keys=str(folder / "jwks.json"))}
    async with service(**known | settings) as node:
        yield node


def get(path: str, token: str) -> str:
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n"


async def post(node: Server, token: str, path: str = "/publish", **fields: Any) -> tuple[int, str]:
    body = json.dumps(fields).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n"
    status, _, answer = await http(node, f"{head}Content-Length: {len(body)}\r\n\r\n", body)
    return status, json.loads(answer).get("error", "")


async def until(met: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not met():
            await asyncio.sleep(0.01)


async def bye(client: LiveClient) -> str:
    """The node's last word to it."""
    async with asyncio.timeout(PATIENCE_S):
        await client.gone.wait()
    return str(client.of(messages.ByeNotice)[-1].reason)


def kinds(answers: list[Any]) -> list[type]:
    return [messages.JSON.message_class(answer) for answer in answers]


# What a token allows.

LISTENER = {
    "role": "publish",
    "within": {"x": 0, "y": 0, "r": 5},
    "publish_channels": ["", "chat.*"],
    "listen_within": {"x": 0, "y": 0, "rx": 10, "ry": 10},
    "listen_channels": ["", "news"],
}


def test_whoever_may_listen_within_an_area_listens_nowhere_else(tmp_path: Path) -> None:
    async def story() -> None:
        async with guarded(tmp_path) as node:
            ann = await join_client(node, "ann", token=token(LISTENER))
            allowed = [
                await ann.ask(messages.SubscribeRequest, 1, INNER),
                await ann.ask(messages.SubscribeRequest, 2, INNER, channel="news", watch=True),
                await ann.ask(messages.MoveRequest, 1, Area(x=6.0, y=6.0, r=4.0)),
                await ann.ask(
                    messages.MoveRequest, 1, Area(x=0.0, y=0.0, r=1.0, vx=1.0, lasts=9.0)
                ),
                await ann.ask(
                    messages.MoveRequest, 1, Area(x=0.0, y=0.0, r=1.0, to=[[9, 9]], speed=1.0)
                ),
                await ann.ask(
                    messages.SubscribeRequest, 3, INNER, "n > low", variables={"low": 1.0}
                ),
                await ann.ask(messages.TuneRequest, 3, {"low": 2.0}),
                await ann.ask(messages.NearbyRequest, INNER),
            ]
            refused = [
                await ann.ask(messages.SubscribeRequest, 1, OUTER),
                await ann.ask(messages.SubscribeRequest, 4, OUTER, watch=True),
                await ann.ask(messages.SubscribeRequest, 4, INNER, channel="secret"),
                await ann.ask(messages.SubscribeRequest, 4, INNER, channel="chat.en"),
                await ann.ask(messages.SubscribeRequest, 4, Area()),
                await ann.ask(
                    messages.SubscribeRequest, 4, Area(formula="x > 1, x < 2, y > 1, y < 2")
                ),
                await ann.ask(
                    messages.SubscribeRequest, 4, Area(formula="x > a, x < 2"), variables={"a": 1.0}
                ),
                await ann.ask(messages.SubscribeRequest, 4, Area(x=0.0, y=0.0, r=1.0, vx=1.0)),
                await ann.ask(messages.MoveRequest, 1, OUTER),
                await ann.ask(messages.MoveRequest, 1, Area(x=0.0, y=0.0, r=1.0, vx=1.0)),
                await ann.ask(
                    messages.MoveRequest, 1, Area(x=0.0, y=0.0, r=1.0, to=[[9, 10]], speed=1.0)
                ),
                await ann.ask(messages.SubscribeRequest, 4, INNER, follow="boss"),
                await ann.ask(messages.NearbyRequest, OUTER),
                await ann.ask(messages.NearbyRequest, INNER, "secret"),
            ]
            assert kinds(allowed) == [messages.DoneNotice] * 7 + [messages.NearbyNotice]
            assert kinds(refused) == [messages.ErrorNotice] * len(refused)
            assert all("your token" in answer.reason for answer in refused)
            boss = await join_client(node, "boss", token="everything-goes")
            for x, channel in ((30.0, ""), (0.0, "secret"), (9.0, ""), (0.0, "news")):
                await boss.ask(messages.PublishRequest, x, 0.0, channel=channel, r=2.0)
            await ann.await_notice(messages.MessageNotice)
            assert [message.channel for message in ann.of(messages.MessageNotice)] == ["news"]

    run(story())


def test_an_area_follows_only_whom_its_client_may_see(tmp_path: Path) -> None:
    async def story() -> None:
        async with guarded(tmp_path) as node:
            ann = await join_client(node, "ann", token=token({"role": "read",
                                    "listen_channels": ["news"]}))  # fmt: skip
            allowed = await ann.ask(
                messages.SubscribeRequest, 1, INNER, channel="news", follow="boss"
            )
            refused = [
                await ann.ask(messages.SubscribeRequest, 2, INNER, channel="news", follow="boss",
                              follow_channel="secret"),
                await ann.ask(messages.SubscribeRequest, 2, INNER, follow="boss",
                              follow_channel="news"),
            ]  # fmt: skip
            assert kinds([allowed, *refused]) == [
                messages.DoneNotice, messages.ErrorNotice, messages.ErrorNotice,
            ]  # fmt: skip
            moved = await ann.ask(messages.MoveRequest, 1, Area(r=9.0))
            assert kinds([moved]) == [messages.DoneNotice]

    run(story())


def test_states_on_channels_that_a_client_may_not_read_are_never_shown(tmp_path: Path) -> None:
    async def story() -> None:
        async with guarded(tmp_path) as node:
            boss = await join_client(node, "boss", token="everything-goes")
            for channel in ("", "news", "secret"):
                await boss.ask(messages.PublishRequest, 1.0, 1.0,
                messages.JSON.encode_payload(channel), True,
                               channel=channel)  # fmt: skip
            only = {"role": "read", "listen_channels": ["news"]}
            ann = await join_client(node, "ann", token=token(only))
            await ann.ask(messages.SubscribeRequest, 1, INNER, channel="news", watch=True)
            inside = await ann.await_notice(messages.InsideNotice)
            assert [messages.JSON.decode_payload(one.payload) for one in inside.entities] == [
                "news"
            ]
            for channel in ("", "secret"):
                answers = [
                    await ann.ask(messages.SubscribeRequest, 2, INNER, channel=channel, watch=True),
                    await ann.ask(messages.NearbyRequest, INNER, channel),
                ]
                assert kinds(answers) == [messages.ErrorNotice] * 2
                path = f"/near?x=0&y=0&r=5&channel={channel}"
                assert (await http(node, get(path, token(only))))[0] == 403
            status, _, body = await http(node, get("/near?x=0&y=0&r=5&channel=news", token(only)))
            assert (status, len(json.loads(body)["entities"])) == (200, 1)

    run(story())


def test_whoever_may_publish_within_an_area_publishes_nowhere_else(tmp_path: Path) -> None:
    async def story() -> None:
        async with guarded(tmp_path) as node:
            mine, reader = token(LISTENER), token({"role": "read"})
            cases = ((1.0, "", True), (1.0, "chat.en", True), (9.0, "", False), (1.0, "x", False))
            for form in (messages.JSON, messages.MSGPACK):
                ann = await join_client(node, "ann", form, mine)
                for x, channel, allowed in cases * 2:  # the second time from memory
                    answer = await ann.ask(messages.PublishRequest, x, 0.0, channel=channel)
                    assert (form.message_class(answer) is messages.DoneNotice) == allowed, (
                        x,
                        channel,
                    )
                bob = await join_client(node, "bob", form, reader)
                assert (
                    form.message_class(await bob.ask(messages.PublishRequest, 1.0, 0.0))
                    is messages.ErrorNotice
                )
            for x, channel, allowed in cases:
                status, _ = await post(node, mine, x=x, y=0, channel=channel)
                assert status == (202 if allowed else 403)
            assert (await post(node, reader, x=1, y=0))[0] == 403

    run(story())


def test_a_token_may_come_with_the_connection(tmp_path: Path) -> None:
    async def story() -> None:
        async with guarded(tmp_path) as node:
            for headers, shown, good in (
                ({"Authorization": f"Bearer {token()}"}, "", True),
                ({"Authorization": "Bearer everything-goes"}, token({"role": "read"}), True),
                ({"Authorization": "Bearer everything-goes"}, "wrong", False),
                ({"Authorization": "Bearer wrong"}, "everything-goes", True),
                ({}, "", False),
            ):
                ann = await connect_client(node, extra_headers=headers)
                answer = await ann.ask(messages.JoinRequest, "ann", shown)
                assert (messages.JSON.message_class(answer) is messages.WelcomeNotice) == good, (
                    headers,
                    shown,
                )
            assert node.gateway.metrics.tokens_refused == 1, "to say none is no guess"

    run(story())


def test_statistics_of_the_whole_node_are_not_for_clients_that_may_read_a_part(
    tmp_path: Path,
) -> None:
    async def story() -> list[int]:
        async with guarded(tmp_path) as node:
            shown = [token(LISTENER), token({"role": "read"}), "everything-goes"]
            return [(await http(node, get("/metrics", one)))[0] for one in shown]

    assert run(story()) == [403, 200, 200]


def test_a_name_over_http_belongs_to_the_holder_of_the_token(tmp_path: Path) -> None:
    async def story() -> list[Any]:
        async with guarded(tmp_path) as node:
            for sub, payload in (("alice", "a"), ("bob", "b"), ("alice", "c")):
                shown = token(sub=sub)
                await post(node, shown, "/publish?name=x", x=1, y=1, retain=True, payload=payload)
            _, _, body = await http(node, get("/near?x=0&y=0&r=5", token()))
            return sorted(one["payload"] for one in json.loads(body)["entities"])

    assert run(story()) == ["b", "c"]


def test_a_token_that_is_signed_but_wrong_is_told_why(tmp_path: Path) -> None:
    async def story() -> None:
        async with guarded(tmp_path) as node:
            late = ISSUER.token(claims_of(now=time.time() - 7200))
            for shown, told in (
                (late, "your token has expired"),
                (token({"role": "read", "chanels": []}), "unknown field `chanels`"),
            ):
                ann = await connect_client(node)
                answer = await ann.ask(messages.JoinRequest, "ann", shown)
                assert told in answer.reason
                assert told in await bye(ann)
                status, _, body = await http(node, get("/near?x=0&y=0&r=5", shown))
                assert status == 401
                assert told in json.loads(body)["error"]
            assert len(node.gateway.failed_tokens) == 0, "these are no guesses"
            assert node.gateway.metrics.tokens_refused == 4

    run(story())


# Until when.


def test_a_session_ends_when_its_token_expires(tmp_path: Path) -> None:
    async def story() -> None:
        async with guarded(tmp_path) as node:
            ann, boss = (
                await join_client(node, token=token()),
                await join_client(node, token="everything-goes"),
            )
            await ann.ask(messages.PublishRequest, 1.0, 1.0, retain=True)
            now, ahead = node.gateway.now, HOUR + 60 * 1_000_000
            node.gateway.now = lambda: now() + ahead
            assert await bye(ann) == "your token has expired"
            near = await boss.ask(messages.NearbyRequest, INNER)
            assert near.entities == [], "and its state with it"

    run(story())


def test_a_client_comes_back_with_a_new_token(tmp_path: Path) -> None:
    async def story() -> None:
        async with guarded(tmp_path) as node:
            asked: list[str] = []

            async def renew() -> str:
                asked.append(token())
                if len(asked) == 2:
                    raise OSError("the issuer is away for a moment")
                return asked[-1]

            async with nearcast.connect(address(node), token=renew) as me:
                here = await me.subscribe(disc(0, 0, 5), echo=True)
                for session in node.gateway.sessions:
                    session.end("your token has expired")
                notices = [await anext(me.notices()) for _ in range(2)]
                assert notices == [Disconnected("your token has expired", 1008), Reconnected([])]
                await me.publish(point(1, 1), "again")
                assert (await anext(here)).payload == "again"
            assert len(asked) == 3
            plain = nearcast.connect(address(node), token=lambda: "everything-goes")
            async with plain:
                pass

    run(story())


def test_a_token_that_cannot_be_had_at_the_start_is_told(tmp_path: Path) -> None:
    def away() -> str:
        raise RuntimeError("the issuer is away")

    async def story() -> None:
        async with guarded(tmp_path) as node:
            with pytest.raises(ConnectionError, match="the issuer is away"):
                await nearcast.connect(address(node), token=away).open()

    run(story())


# Reloading.

TOKENS = """
[ann]
token = "a-token-of-ann"
role = "publish"
[bob]
token = "a-token-of-bob"
role = "publish"
"""


def test_a_reload_drops_nobody_whose_token_stands(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "tokens.toml"
    file.write_text(TOKENS)

    async def story() -> None:
        async with guarded(tmp_path, token_file=str(file)) as node:
            ann, bob = [
                await join_client(node, token=f"a-token-of-{one}") for one in ("ann", "bob")
            ]
            boss, eve = (
                await join_client(node, token="everything-goes"),
                await join_client(node, token=token()),
            )
            await bob.ask(messages.SubscribeRequest, 1, OUTER)
            await node.reload()
            for one in (ann, bob, boss, eve):
                assert kinds([await one.ask(messages.PublishRequest, 1.0, 1.0)]) == [
                    messages.DoneNotice
                ]
            file.write_text("[ann")
            await node.reload()
            (tmp_path / "jwks.json").write_text("{}")
            file.write_text(TOKENS)
            await node.reload()
            assert [record.getMessage() for record in caplog.records] == [
                f"tokens stay as they were: {file}: Expected ']' at the end of a table declaration"
                " (at end of document)",
                f"tokens stay as they were: {tmp_path / 'jwks.json'}: Object missing required field"
                " `keys`",
            ]
            (tmp_path / "jwks.json").write_bytes(jwks(ISSUER.jwk()))
            file.write_text(TOKENS.replace('publish"\n[bob', 'read"\n[bob'))
            await node.reload()
            answer = await ann.ask(messages.PublishRequest, 1.0, 1.0)
            assert answer.reason == "your token allows you to listen, not to publish"
            file.write_text(TOKENS.replace("[bob]", "[bob]\nlisten_within = {x = 0, y = 0, r = 5}"))
            await node.reload()
            assert await bye(bob) == "your token does not allow what you listen to any more"
            file.write_text(TOKENS.replace("a-token-of-ann", "another-token"))
            (tmp_path / "jwks.json").write_bytes(jwks(eddsa("another").jwk()))
            await node.reload()
            assert await bye(ann) == await bye(eve) == "your token is not valid any more"
            assert kinds([await boss.ask(messages.PublishRequest, 1.0, 1.0)]) == [
                messages.DoneNotice
            ]
            await join_client(node, token="another-token")

    with caplog.at_level(logging.WARNING):
        run(story())


NODE = """
import sys
from nearcast.server.config import Settings
from nearcast.server.server import serve
serve(Settings(port=0, record=False, token_file=sys.argv[1]), lambda n: print(n.port, flush=True))
"""


def test_a_node_reloads_its_tokens_on_sighup(tmp_path: Path) -> None:
    file = tmp_path / "tokens.toml"
    file.write_text(TOKENS)

    async def story() -> None:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", NODE, str(file), stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            port = int(await asyncio.wait_for(process.stdout.readline(), PATIENCE_S))
            node: Any = SimpleNamespace(port=port, url=f"ws://127.0.0.1:{port}/ws")
            ann, bob = [
                await join_client(node, token=f"a-token-of-{one}") for one in ("ann", "bob")
            ]
            file.write_text("[ann")
            process.send_signal(signal.SIGHUP)
            line = await asyncio.wait_for(process.stderr.readline(), PATIENCE_S)
            assert line.startswith(b"tokens stay as they were: ")
            file.write_text(TOKENS.replace("a-token-of-bob", "a-new-token-of-bob"))
            process.send_signal(signal.SIGHUP)
            assert await bye(bob) == "your token is not valid any more"
            assert kinds([await ann.ask(messages.PublishRequest, 1.0, 1.0)]) == [
                messages.DoneNotice
            ]
            await join_client(node, token="a-new-token-of-bob")
            process.send_signal(signal.SIGTERM)
            assert await asyncio.wait_for(process.wait(), PATIENCE_S) == 0
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()

    asyncio.run(story())


def test_a_node_whose_keys_cannot_be_had_does_not_start(tmp_path: Path) -> None:
    async def story() -> None:
        with pytest.raises(AccessError, match="cannot read"):
            await service(jwt=JwtSettings(keys=str(tmp_path / "none.json"))).start()

    run(story())


def test_a_token_with_a_new_key_is_let_in_once_the_key_is_fetched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(jwts, "REFRESH_S", -1.0)
    old, new = es256("old"), es256("new")

    async def story() -> None:
        async with service(jwt=JwtSettings(keys=issuer.url)) as node:
            ann = await join_client(node, token=token(signer=old))
            issuer.body = jwks(new.jwk())
            await join_client(node, token=token(signer=new))
            assert await bye(ann) == "your token is not valid any more"
            issuer.body = jwks(old.jwk())
            shown = token(signer=old)
            assert (await http(node, get("/near?x=0&y=0&r=5", shown)))[0] == 200
            assert node.gateway.metrics.tokens_refused == 0

    with issuing(old.jwk()) as issuer:
        run(story())


def test_a_trace_holds_neither_tokens_nor_payloads(tmp_path: Path) -> None:
    async def story() -> str:
        shown = token()
        async with guarded(tmp_path, trace=tmp_path / "trace") as node:
            ann, boss = (
                await join_client(node, token=shown),
                await join_client(node, token="everything-goes"),
            )
            await boss.ask(messages.SubscribeRequest, 1, INNER)
            await ann.ask(
                messages.PublishRequest,
                1.0,
                1.0,
                messages.JSON.encode_payload("a secret payload"),
                True,
            )
            await boss.await_notice(messages.MessageNotice)
        return shown

    shown = run(story())
    files = [file for file in (tmp_path / "trace").rglob("*") if file.is_file()]
    rows = [str(pq.read_table(file).to_pylist()) for file in files if file.suffix == ".parquet"]
    assert any("joined" in row for row in rows)
    written = "".join([*rows, *(file.read_bytes().decode("latin-1") for file in files)])
    for secret in (shown, "everything-goes", "a secret payload"):
        assert secret not in written


# How much.


def test_quotas_count_for_all_connections_of_one_holder(tmp_path: Path) -> None:
    async def story() -> None:
        async with guarded(tmp_path, limits=LimitSettings(join_s=600.0)) as node:
            few = {"role": "publish", "connections": 2, "subscriptions": 3}
            ann, again = (
                await join_client(node, token=token(few)),
                await join_client(node, token=token(few)),
            )
            third = await connect_client(node)
            answer = await third.ask(messages.JoinRequest, "", token(few))
            assert answer.reason == "your token allows 2 connections at one time on this node"
            await join_client(node, token=token(few, sub="bob"))
            for number in (1, 2):
                assert kinds([await ann.ask(messages.SubscribeRequest, number, INNER)]) == [
                    messages.DoneNotice
                ]
            assert kinds([await again.ask(messages.SubscribeRequest, 1, INNER)]) == [
                messages.DoneNotice
            ]
            answer = await again.ask(messages.SubscribeRequest, 2, INNER)
            assert answer.reason == "your token allows 3 subscriptions on this node"
            assert kinds([await again.ask(messages.SubscribeRequest, 1, OUTER)]) == [
                messages.DoneNotice
            ]
            await ann.ask(messages.UnsubscribeRequest, 1)
            assert kinds([await again.ask(messages.SubscribeRequest, 2, INNER)]) == [
                messages.DoneNotice
            ]
            ann.transport.disconnect()
            await until(lambda: len(node.gateway.sessions) == 3)
            answer = await third.ask(messages.JoinRequest, "", token(few))
            assert messages.JSON.message_class(answer) is messages.WelcomeNotice

    run(story())


def test_requests_of_one_holder_are_counted_together(tmp_path: Path) -> None:
    async def story() -> None:
        async with guarded(tmp_path) as node:
            began = node.gateway.now()
            node.gateway.now = lambda: began  # no bucket fills up
            few = token({"role": "publish", "requests": 3})  # six, as two seconds are saved up
            ann, again = await join_client(node, token=few), await join_client(node, token=few)
            assert (await post(node, few, x=1, y=1))[0] == 202
            answers = [
                await one.ask(messages.SubscribeRequest, 1, INNER) for one in (ann, again) * 3
            ]
            assert kinds(answers) == [messages.DoneNotice] * 5 + [messages.ErrorNotice]
            assert answers[-1].reason == "a client makes at most 3 requests a second"
            assert (await post(node, few, x=1, y=1))[0] == 429
            other = await join_client(node, token=token({"role": "publish", "requests": 3}, "bob"))
            assert kinds([await other.ask(messages.SubscribeRequest, 1, INNER)]) == [
                messages.DoneNotice
            ]

    run(story())


# Guessing.


def test_wrong_tokens_wait_and_good_ones_do_not(tmp_path: Path) -> None:
    async def story() -> None:
        async with guarded(tmp_path) as node:
            pauses: list[float] = []
            failed = node.gateway.failed_tokens.failed

            def wait_long(remote: str, now: float) -> float:
                pauses.append(failed(remote, now))
                return 3600.0

            monkeyed: Any = node.gateway.failed_tokens
            monkeyed.failed = wait_long
            guessers = [await connect_client(node) for _ in range(5)]
            for number, guesser in enumerate(guessers):
                guesser.send_request(messages.JoinRequest("eve", f"guess {number}", 1))
            asking = [
                asyncio.ensure_future(http(node, get("/near?x=0&y=0&r=5", f"guess {n}")))
                for n in range(3)
            ]
            await until(lambda: len(pauses) == 8)
            assert pauses == [0.25, 0.5, 1.0, 2.0, 4.0, 5.0, 5.0, 5.0]
            for session in node.gateway.sessions:
                session._require_join()  # its time to join is over, but not its pause
            for _ in range(3):
                await join_client(node, token="everything-goes")
                await join_client(node, token=token())
                assert (await http(node, get("/near?x=0&y=0&r=5", "everything-goes")))[0] == 200
            assert not any(guesser.notices or guesser.gone.is_set() for guesser in guessers)
            assert not any(one.done() for one in asking)
            assert node.gateway.metrics.tokens_refused == 8
            guessers[0].send_request(messages.JoinRequest("eve", "everything-goes", 2))
            error = await guessers[0].await_notice(messages.ErrorNotice)
            assert error.reason == "your join is under way"
            for one in asking:
                one.cancel()

    run(story())


def test_a_wrong_token_is_answered_after_its_pause(tmp_path: Path) -> None:
    async def story() -> None:
        async with guarded(tmp_path) as node:
            eve = await connect_client(node)
            answer = await eve.ask(messages.JoinRequest, "eve", "a guess")
            assert answer.reason == "this token is not known here"
            assert await bye(eve) == "a token that this node knows is needed"
            status, _, body = await http(node, get("/near?x=0&y=0&r=5", "a guess"))
            assert status == 401
            assert "say a token that this node knows" in json.loads(body)["error"]
            assert (
                "nearcast_tokens_refused_total 2.0"
                in (await http(node, get("/metrics", "everything-goes")))[2].decode()
            )

    run(story())


# Several nodes.


@asynccontextmanager
async def cluster(folder: Path) -> AsyncIterator[tuple[Server, Server]]:
    (folder / "jwks.json").write_bytes(jwks(ISSUER.jwk()))
    settings: dict[str, Any] = {
        "port": 0, "record": False, "jwt": JwtSettings(keys=str(folder / "jwks.json"))
    }  # fmt: skip
    key = str(folder / "key")
    async with Server(Settings(cluster=ClusterSettings(key=key), **settings)) as one:
        assert one.cluster_host is not None
        links = one.cluster_host.links
        join = ClusterSettings(key=key, join=f"{links.host}:{links.port}")
        async with Server(Settings(cluster=join, **settings)) as two:
            await until(lambda: two.cluster is not None and len(two.cluster.nodes) == 1)
            yield one, two


async def offered(one: Server, two: Server, shown: str) -> tuple[LiveClient, messages.MovedNotice]:
    """A client of the first node that listens where the second one is: it is told to go there."""
    assert two.cluster is not None
    await until(lambda: two.cluster is not None and two.cluster.site.place is not None)
    x, y = two.cluster.site.place
    ann = await join_client(one, "ann", token=shown)
    await ann.ask(messages.SubscribeRequest, 1, Area(x=x, y=y, r=5.0))
    return ann, await ann.await_notice(messages.MovedNotice)


def test_a_client_gains_nothing_by_being_handed_over(tmp_path: Path) -> None:
    async def story() -> None:
        async with cluster(tmp_path) as (one, two):
            reads = {"role": "read"}
            ann, moved = await offered(one, two, token(reads))
            eve = await connect_client(two)
            answer = await eve.ask(
                messages.JoinRequest, "eve", token(sub="eve"), ticket=moved.ticket
            )
            assert answer.reason == "this ticket belongs to the holder of another token"
            late = await connect_client(two)
            answer = await late.ask(
                messages.JoinRequest, "ann", ISSUER.token(claims_of(reads, now=time.time() - 7200)),
                ticket=moved.ticket,
            )  # fmt: skip
            assert answer.reason == "your token has expired"
            there = await connect_client(two)
            welcome = await there.ask(
                messages.JoinRequest, "ann", token(reads), ticket=moved.ticket
            )
            assert welcome.entity == ann.entity
            answer = await there.ask(messages.PublishRequest, 1.0, 1.0)
            assert answer.reason == "your token allows you to listen, not to publish"
            now = two.gateway.now
            two.gateway.now = lambda: now() + HOUR + 60 * 1_000_000
            assert await bye(there) == "your token has expired"

    run(story())


def test_a_client_that_shows_a_narrower_token_elsewhere_loses_what_that_does_not_allow(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        async with cluster(tmp_path) as (one, two):
            _, moved = await offered(one, two, token())
            there = await connect_client(two)
            narrow = {"role": "read", "listen_channels": ["news"]}
            await there.ask(messages.JoinRequest, "ann", token(narrow), ticket=moved.ticket)
            assert await bye(there) == "your token does not allow what you listen to any more"
            assert there.of(messages.InsideNotice) == there.of(messages.MessageNotice) == []

    run(story())


def test_whoever_claims_its_ticket_cannot_show_another_token_meanwhile(tmp_path: Path) -> None:
    async def story() -> None:
        async with cluster(tmp_path) as (one, two):
            ann, moved = await offered(one, two, token({"role": "read"}))
            there = await connect_client(two)
            there.send_request(
                messages.JoinRequest("ann", token({"role": "read"}), 101, moved.ticket)
            )
            there.send_request(messages.JoinRequest("ann", token(sub="eve"), 102))
            welcome, error = (
                await there.await_notice(messages.WelcomeNotice),
                await there.await_notice(messages.ErrorNotice),
            )
            assert (welcome.entity, welcome.id, error.id) == (ann.entity, 101, 102)
            answer = await there.ask(messages.PublishRequest, 1.0, 1.0)
            assert answer.reason == "your token allows you to listen, not to publish"
            assert len(there.of(messages.WelcomeNotice)) == 1

    run(story())
