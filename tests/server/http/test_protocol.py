"""Plain HTTP on the same port: for curl, probes and browsers."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from nearcast.client_protocol import messages
from nearcast.client_protocol.geometry_json import Area
from nearcast.server.config import LimitSettings
from nearcast.server.http import protocol
from nearcast.server.http.head import HttpError, HttpRequest, body_size, parse_head
from nearcast.server.http.protocol import HttpResponse, HttpRoutes, json_response
from support.live_clients import join_client, run, service
from support.raw_websocket import answered, http

GET = "GET {} HTTP/1.1\r\nHost: localhost\r\n\r\n"


def posted(body: bytes, path: str = "/publish", more: str = "") -> tuple[str, bytes]:
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\n{more}Content-Length: {len(body)}\r\n\r\n"
    return head, body


def test_what_curl_publishes_is_delivered_and_counted() -> None:
    async def story() -> tuple[int, Any, list[Any]]:
        async with service() as node:
            ann = await join_client(node, "ann", messages.MSGPACK)
            await ann.ask(messages.SubscribeRequest, 1, Area(x=0.0, y=0.0, r=9.0))
            status, _, body = await http(node, *posted(b'{"x": 3, "y": 4, "payload": {"a": 1}}'))
            await http(node, *posted(b'{"x": 3, "y": 4}', "/publish?name=radio"))
            await ann.await_notice(messages.MessageNotice, 2)
            return status, json.loads(body), ann.of(messages.MessageNotice)

    status, told, heard = run(story())
    assert (status, told["heard"]) == (202, 1)
    assert told["publication"] == heard[0].publication
    assert messages.MSGPACK.decode_payload(heard[0].payload) == {"a": 1}
    assert heard[0].source != heard[1].source


def test_who_is_near_is_told_the_closest_first() -> None:
    async def story() -> Any:
        async with service() as node:
            for name, x in (("far", 8.0), ("close", 1.0), ("outside", 50.0)):
                one = await join_client(node, name, messages.MSGPACK)
                word = messages.PublishRequest(
                    x, 0.0, messages.MSGPACK.encode_payload([name]), True, id=5
                )
                one.send_request(word)
                await one.await_notice(messages.DoneNotice)
            status, _, body = await http(node, GET.format("/near?x=0&y=0&r=10&limit=5"))
            assert status == 200
            return json.loads(body)["entities"]

    near = run(story())
    assert [(one["name"], one["payload"]) for one in near] == [
        ("close", ["close"]),
        ("far", ["far"]),
    ]


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (GET.format("/healthz"), 200),
        (GET.format("/metrics"), 200),
        (GET.format("/nearcast.js"), 200),
        (GET.format("/nowhere"), 404),
        (GET.format("/publish"), 405),
        (GET.format("/near?x=1"), 400),
        (GET.format("/near?x=1&y=nan&r=2"), 400),
        (GET.format("/near?x=1&y=1&r=-2"), 400),
        ("".join(map(str, posted(b"")))[:-3], 400),
        ("GET / HTTP/1.1\r\nX: " + "y" * 20_000, 431),
        (GET.format("/entities/"), 404),
        (GET.format("/entities/nobody"), 404),
        (GET.format("/entities/%00"), 404),
        (GET.format("/" + 15_000 * "a"), 404),
        (GET.format("/healthz").replace("GET", "DELETE"), 405),
        (GET.format("/healthz").replace("GET", "PUT"), 405),
        (GET.format("/near?x=1&y=1&r=2&limit=1e300"), 400),
        (GET.format("/near?x=1&y=1&r=2&channel=" + 100 * "c"), 400),
        (GET.format("/healthz").replace("HTTP/1.1\r\nHost: localhost", "HTTP/1.0"), 200),
        (GET.format("/healthz").replace("Host", "X: \xe9\r\nHost"), 200),
        (GET.format("/healthz").replace("localhost", "evil.example"), 200),
        (GET.format("/metrics").replace("localhost", "evil.example"), 403),
    ],
)
def test_each_request_gets_the_right_status_and_a_reason(request_: str, status: int) -> None:
    async def story() -> tuple[int, dict[str, str], bytes]:
        async with service() as node:
            return await http(node, request_)

    found, headers, body = run(story())
    assert found == status
    if status >= 400:
        assert headers["content-type"] == "application/json"
        assert len(json.loads(body)["error"]) > 8


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"{}", b'{"x":1}', b'{"x":1,"y":2,"z":"high"}', b'{"x":1,"y":2,"sea":3}',
     b'{"do":"leave"}', b'{"x":1,"y":2,"do":"leave"}', b'{"x":1,"y":2,"rx":3}', b"\xff\xfe",
     b'{"x":1,"y":2}{"x":1,"y":2}', b'{"x":1,"y":2} x', b'{"x":1,"x":9,"y":2}',
     b'{"x":1,"y":2,"\\u0078":9}', b'{"x":1,"y":2,"payload":01}', b'{"x":1,"y":2,}',
     b'{"x":1,"y":2,"payload":' + 9_000 * b"[", b'{"x":1,"y":2,"payload":' + 9_000 * b"[" +
     9_000 * b"]" + b"}", b"\x00", b"null", b'\xef\xbb\xbf{"x":1,"y":2}',
     '{"x":1,"y":2}'.encode("utf-16")],
)  # fmt: skip
def test_a_body_that_is_no_publication_is_refused(body: bytes) -> None:
    async def story() -> tuple[int, int]:
        async with service() as node:
            status, _, told = await http(node, *posted(body))
            assert json.loads(told)["error"]
            return status, node.realm.waiting

    assert run(story()) == (400, 0)


def test_tokens_guard_everything_but_the_health_check() -> None:
    async def story() -> list[int]:
        async with service(token="open-sesame") as node:
            bearer = "Authorization: Bearer open-sesame\r\n"
            body = b'{"x": 1, "y": 1}'
            requests = [
                (GET.format("/healthz"), b""),
                (GET.format("/metrics"), b""),
                (GET.format("/metrics?token=open-sesame"), b""),
                posted(body),
                posted(body, more=bearer),
                posted(body, more=bearer.replace("open", "closed")),
            ]
            return [(await http(node, *request))[0] for request in requests]

    assert run(story()) == [200, 401, 200, 401, 202, 401]


def test_several_requests_share_a_connection_whole_or_in_pieces() -> None:
    async def story() -> list[int]:
        async with service() as node:
            reader, writer = await asyncio.open_connection("127.0.0.1", node.port)
            head, body = posted(b'{"x": 1, "y": 1}')
            stream = (GET.format("/healthz") + GET.format("/nothing") + head).encode() + body
            stream += GET.format("/healthz").replace("HTTP/1.1\r\n", "HTTP/1.0\r\n").encode()
            for place in range(0, len(stream), 7):
                writer.write(stream[place : place + 7])
                await asyncio.sleep(0)
            statuses = [(await answered(reader))[0] for _ in range(4)]
            assert await reader.read() == b""
            return statuses

    assert run(story()) == [200, 404, 202, 200]


def test_more_requests_on_a_connection_than_the_limit_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(protocol, "monotonic", lambda: 100.0)  # no bucket fills up

    async def story() -> list[int]:
        async with service(limits=LimitSettings(requests=5)) as node:
            reader, writer = await asyncio.open_connection("127.0.0.1", node.port)
            writer.write(GET.format("/nowhere").encode() * 14 + GET.format("/healthz").encode())
            return [(await answered(reader))[0] for _ in range(15)]

    assert run(story()) == [404] * 10 + [429] * 4 + [200], "a health check is always answered"


def test_head_is_answered_without_a_body() -> None:
    async def story() -> bytes:
        async with service() as node:
            reader, writer = await asyncio.open_connection("127.0.0.1", node.port)
            writer.write(b"HEAD /healthz HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
            return await reader.read()

    assert run(story()).endswith(b"\r\n\r\n")


def test_an_embedder_adds_routes_and_a_folder_that_holds_what_is_outside(tmp_path: Path) -> None:
    folder = tmp_path / "static"
    folder.mkdir()
    (folder / "page.html").write_text("<p>hello</p>")
    (tmp_path / "secret.txt").write_text("secret")

    async def later(request: HttpRequest) -> HttpResponse:
        await asyncio.sleep(0.01)
        return json_response(request.query)

    def broken(_: HttpRequest) -> HttpResponse:
        raise RuntimeError("secret")

    async def story() -> list[tuple[int, bytes]]:
        async with service() as node:
            node.routes.add("GET", "/later", later)
            node.routes.add("GET", "/broken", broken)
            node.routes.add_folder("/static/", folder)
            paths = ["/later?a=b", "/static/page.html", "/static/../secret.txt",
                     "/static/%2e%2e/secret.txt", "/broken", "/static/", "/static/%00",
                     "/static/page.html%00", "/static/" + 9_000 * "a",
                     "/static/" + 900 * "../" + "secret.txt", "/static//etc/passwd",
                     "/static/%0a", "/static/page.html/x"]  # fmt: skip
            answers = [await http(node, GET.format(path)) for path in paths]
            return [(status, body) for status, _, body in answers]

    answers = run(story())
    assert answers[0] == (200, b'{"a":"b"}\n')
    assert answers[1] == (200, b"<p>hello</p>")
    assert [status for status, _ in answers[2:]] == [404, 404, 500] + [404] * 8
    assert not any(b"secret" in body for _, body in answers[4:])


def test_a_page_from_elsewhere_gets_no_websocket_of_an_open_node() -> None:
    upgrade = (
        "GET /ws HTTP/1.1\r\nHost: localhost\r\nOrigin: https://evil.example\r\n"
        "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )

    async def story() -> list[int]:
        async with service() as node:
            own = upgrade.replace("https://evil.example", "http://localhost:8470")
            return [(await http(node, text))[0] for text in (upgrade, own)]

    assert run(story()) == [403, 101]


NAMED = "/publish?name={}"


def test_an_entity_that_spoke_over_http_is_shown_and_ended() -> None:
    async def story() -> list[Any]:
        async with service() as node:
            ann = await join_client(node, "ann", messages.MSGPACK)
            await ann.ask(messages.SubscribeRequest, 1, Area(x=0.0, y=0.0, r=9.0), watch=True)
            radio = NAMED.format("r%C3%A4dio%2F1")
            for body in (b'{"x":1,"y":1,"payload":"old","retain":true}',
                         b'{"x":2,"y":1,"payload":"other","retain":true,"channel":"c"}',
                         b'{"x":3,"y":1,"payload":"new","retain":true}',
                         b'{"x":9,"y":1,"payload":"not retained"}'):  # fmt: skip
                assert (await http(node, *posted(body, radio)))[0] == 202
            where = "/entities/r%C3%A4dio%2F1"
            entered = await ann.await_notice(messages.EnterNotice)
            told: list[Any] = []
            for path in (where, where + "?channel=c", where + "?channel=d"):
                status, _, body = await http(node, GET.format(path))
                told.append((status, json.loads(body).get("payload")))
            status, _, body = await http(node, GET.format(where))
            assert json.loads(body)["entity"] == entered.entity.entity
            assert json.loads(body)["name"] == "r\xe4dio/1"
            ended = GET.format(where).replace("GET", "DELETE")
            told.append((await http(node, ended))[::2])
            left = await ann.await_notice(messages.LeaveNotice)
            assert (left.entity, left.gone) == (entered.entity.entity, True)
            told.append((await http(node, ended))[0])
            told.append((await http(node, GET.format(where)))[0])
            told.append(len(json.loads((await http(node, GET.format(NEAR)))[2])["entities"]))
            again = await http(node, *posted(b'{"x":1,"y":1,"retain":true}', radio))
            told.append(again[0])
            return told

    shown = [(200, "new"), (200, "other"), (404, None)]
    assert run(story()) == [*shown, (204, b""), 404, 404, 0, 202]


NEAR = "/near?x=0&y=0&r=99"


def test_the_name_may_stand_in_the_body() -> None:
    async def story() -> list[str]:
        async with service() as node:
            body = b'{"x":1,"y":1,"retain":true,"name":"anna"}'
            assert (await http(node, *posted(body)))[0] == 202
            assert (await http(node, GET.format("/entities/anna")))[0] == 200
            near = json.loads((await http(node, GET.format(NEAR)))[2])["entities"]
            return [entity["name"] for entity in near]

    assert run(story()) == ["anna"]


def test_names_that_retain_nothing_are_freed_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nearcast.server.http.api.NAMES", 3)
    state, word = b'{"x":1,"y":1,"retain":true}', b'{"x":1,"y":1}'

    async def story() -> tuple[list[int], list[str], str]:
        async with service() as node:

            async def publish(name: str, body: bytes) -> int:
                return (await http(node, *posted(body, NAMED.format(name))))[0]

            codes = [await publish("state", state)]
            codes += [await publish(f"word{n}", word) for n in range(9)]
            codes.append(await publish("word7", word))  # so word8 is the oldest now
            codes.append(await publish("state2", state))
            clients = [client.name for client in node.realm.clients if client is not None]
            codes.append(await publish("state3", state))
            status, _, body = await http(node, *posted(word, NAMED.format("word")))
            codes += [status, await publish("state", word)]
            return codes, sorted(clients), json.loads(body)["error"]

    codes, clients, why = run(story())
    assert codes == 13 * [202] + [503, 202]
    assert clients == ["state", "state2", "word7"]
    assert "DELETE /entities/NAME" in why


def test_an_entity_is_ended_by_the_holder_of_its_token(tmp_path: Path) -> None:
    file = tmp_path / "tokens.toml"
    file.write_text(
        "[r]\ntoken = 'reader-token'\nrole = 'read'\n"
        "[w]\ntoken = 'writer-token'\nrole = 'publish'\n"
        "[p]\ntoken = 'player-token'\nrole = 'publish'\n"
    )

    async def story() -> list[int]:
        async with service(token_file=str(file)) as node:
            bearer = "Authorization: Bearer {}\r\n"
            for name, x in (("near", 1), ("far", 50)):
                body = b'{"x":%d,"y":1,"retain":true}' % x
                request = posted(body, NAMED.format(name), bearer.format("writer-token"))
                assert (await http(node, *request))[0] == 202

            async def end(name: str, token: str) -> int:
                head = f"DELETE /entities/{name} HTTP/1.1\r\nHost: h\r\n{bearer.format(token)}\r\n"
                return (await http(node, head))[0]

            return [
                await end("near", "reader-token"), await end("near", "unknown-token"),
                await end("far", "player-token"), await end("near", "writer-token"),
                await end("far", "writer-token"), await end("far", "writer-token"),
            ]  # fmt: skip

    assert run(story()) == [404, 401, 404, 204, 204, 404]


def test_a_requests_parts_are_read() -> None:
    request = parse_head(b"GET /a/b?x=1&y=%20z HTTP/1.1\r\nHost: h:1\r\nX-Odd:  v ")
    assert request.path == "/a/b"
    assert request.query == {"x": "1", "y": " z"}
    assert request.headers == {"host": "h:1", "x-odd": "v"}
    assert body_size(request, 10) == 0
    with pytest.raises(HttpError, match="nothing at"):
        HttpRoutes().find(request)
