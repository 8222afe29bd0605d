"""Requests that two readers could understand differently: refused once, and nothing behind them is
served. All are sent as bytes, as no library would send them."""

import asyncio
import json
from random import Random

import pytest

from nearcast.server.http.cors import page_refusal
from nearcast.server.http.head import HttpError, body_size, check_upgrade, parse_head
from nearcast.server.http.protocol import HttpRequest, HttpResponse, json_response
from nearcast.server.server import Server
from support.live_clients import run, service
from support.patience import PATIENCE_S
from support.raw_websocket import HANDSHAKE, answered

BEHIND = b"GET /behind HTTP/1.1\r\nHost: localhost\r\n\r\n"
GET = b"GET /healthz HTTP/1.1\r\n"
POST = b"POST /publish HTTP/1.1\r\nHost: localhost\r\n"
HOST = b"Host: localhost\r\n"
BODY = b'{"x": 1, "y": 2}'
UPGRADE = HANDSHAKE.format(path="/ws", more="").encode()
CHUNKED = b"\r\n0\r\n\r\n"

REFUSED = {
    "two lengths": POST + b"Content-Length: 16\r\nContent-Length: 16\r\n\r\n" + BODY,
    "two lengths that differ": POST + b"Content-Length: 16\r\nContent-Length: 0\r\n\r\n" + BODY,
    "a list of lengths": POST + b"Content-Length: 16, 16\r\n\r\n" + BODY,
    "a signed length": POST + b"Content-Length: +16\r\n\r\n" + BODY,
    "a hexadecimal length": POST + b"Content-Length: 0x10\r\n\r\n" + BODY,
    "no length": POST + b"Content-Length:\r\n\r\n" + BODY,
    "a length in words": POST + b"Content-Length: many\r\n\r\n" + BODY,
    "a length beyond 64 bits": POST + b"Content-Length: 99999999999999999999999\r\n\r\n",
    "a length beyond the limit": POST + b"Content-Length: 99999999\r\n\r\n",
    "length and chunks": POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n" + CHUNKED,
    "chunks and length": POST + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n" + CHUNKED,
    "chunks": POST + b"Transfer-Encoding: chunked\r\n" + CHUNKED,
    "Chunks": POST + b"Transfer-Encoding: Chunked\r\n" + CHUNKED,
    "odd chunks": POST + b"Transfer-Encoding: xchunked\r\n" + CHUNKED,
    "chunks behind a tab": POST + b"Transfer-Encoding:\tchunked\r\n" + CHUNKED,
    "chunks twice": POST + 2 * b"Transfer-Encoding: chunked\r\n" + CHUNKED,
    "identity": POST + b"Transfer-Encoding: identity\r\n\r\n",
    "gzip": POST + b"Transfer-Encoding: gzip, chunked\r\n" + CHUNKED,
    "two hosts": GET + HOST + HOST + b"\r\n",
    "no host": GET + b"\r\n",
    "an empty host": GET + b"Host:\r\n\r\n",
    "a host with a path": GET + b"Host: localhost/x\r\n\r\n",
    "a host with a user": GET + b"Host: me@localhost\r\n\r\n",
    "half a host": GET + b"Host: [::1\r\n\r\n",
    "no address": GET + b"Host: [::::]\r\n\r\n",
    "half an origin": GET + HOST + b"Origin: http://[::1\r\n\r\n",
    "two tokens": GET + HOST + 2 * b"Authorization: Bearer x\r\n" + b"\r\n",
    "a folded line": GET + HOST + b"X: y\r\n z\r\n\r\n",
    "a folded first line": GET + b" " + HOST + b"\r\n",
    "a folded length": POST + b"Content-Length:\r\n 16\r\n\r\n" + BODY,
    "a control character in a value": GET + HOST + b"X: y\x01\r\n\r\n",
    "a NUL in a value": GET + HOST + b"X: y\x00z\r\n\r\n",
    "a DEL in a value": GET + HOST + b"X: y\x7fz\r\n\r\n",
    "a control character in a name": GET + HOST + b"X\x01: y\r\n\r\n",
    "a NUL in a name": GET + HOST + b"X\x00: y\r\n\r\n",
    "a space before the colon": GET + HOST + b"Content-Length : 5\r\n\r\n",
    "a tab before the colon": GET + HOST + b"Content-Length\t: 5\r\n\r\n",
    "a space inside a name": GET + HOST + b"Content Length: 5\r\n\r\n",
    "a name beyond ASCII": GET + HOST + b"X\xe9: y\r\n\r\n",
    "no name": GET + HOST + b": y\r\n\r\n",
    "no colon": GET + HOST + b"nothing\r\n\r\n",
    "bare LF": b"GET /healthz HTTP/1.1\nHost: localhost\n\n",
    "bare LF behind a header": GET + b"Host: localhost\nX: y\r\n\r\n",
    "bare LF at the end": GET + HOST + b"\n",
    "bare CR": GET + b"Host: localhost\rX: y\r\n\r\n",
    "bare CR in the first line": b"GET /healthz\r HTTP/1.1\r\n" + HOST + b"\r\n",
    "an empty line first": b"\r\n" + GET + HOST + b"\r\n",
    "a CR first": b"\r" + GET + HOST + b"\r\n",
    "a LF first": b"\n" + GET + HOST + b"\r\n",
    "two spaces": b"GET  /healthz HTTP/1.1\r\n" + HOST + b"\r\n",
    "a tab between": b"GET\t/healthz HTTP/1.1\r\n" + HOST + b"\r\n",
    "a space at the end": b"GET /healthz HTTP/1.1 \r\n" + HOST + b"\r\n",
    "a method in small letters": b"get /healthz HTTP/1.1\r\n" + HOST + b"\r\n",
    "a method that there is not": b"FETCH /healthz HTTP/1.1\r\n" + HOST + b"\r\n",
    "a full address": b"GET http://localhost/healthz HTTP/1.1\r\n" + HOST + b"\r\n",
    "another address": b"GET http://evil.example/healthz HTTP/1.1\r\n" + HOST + b"\r\n",
    "an asterisk": b"GET * HTTP/1.1\r\n" + HOST + b"\r\n",
    "no slash": b"GET healthz HTTP/1.1\r\n" + HOST + b"\r\n",
    "a fragment": b"GET /healthz#x HTTP/1.1\r\n" + HOST + b"\r\n",
    "a path beyond ASCII": b"GET /\xe9 HTTP/1.1\r\n" + HOST + b"\r\n",
    "a control character in a path": b"GET /\x01 HTTP/1.1\r\n" + HOST + b"\r\n",
    "half an escape": b"GET /healthz%2 HTTP/1.1\r\n" + HOST + b"\r\n",
    "a wrong escape": b"GET /%zz HTTP/1.1\r\n" + HOST + b"\r\n",
    "a wrong escape in the query": b"GET /near?x=%zz HTTP/1.1\r\n" + HOST + b"\r\n",
    "an escape that is not UTF-8": b"GET /monitor/%ff HTTP/1.1\r\n" + HOST + b"\r\n",
    "half a surrogate": b"GET /near?x=%ed%a0%80 HTTP/1.1\r\n" + HOST + b"\r\n",
    "HTTP/0.9": b"GET /healthz\r\n\r\n",
    "HTTP/0.9 by number": b"GET /healthz HTTP/0.9\r\n\r\n",
    "HTTP/1.2": b"GET /healthz HTTP/1.2\r\n" + HOST + b"\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "HTTP/3": b"GET / HTTP/3\r\n" + HOST + b"\r\n",
    "RTSP": b"SETUP / RTSP/1.0\r\n" + HOST + b"\r\n",
    "no protocol": b"NONSENSE\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    "CONNECT": b"CONNECT localhost:80 HTTP/1.1\r\n" + HOST + b"\r\n",
    "TRACE": b"TRACE /healthz HTTP/1.1\r\n" + HOST + b"\r\n",
    "another expectation": POST + b"Content-Length: 16\r\nExpect: 200-ok\r\n\r\n" + BODY,
    "an upgrade with a body": UPGRADE[:-2] + b"Content-Length: 5\r\n\r\nhello",
    "an upgrade with a length": UPGRADE[:-2] + b"Content-Length: 0\r\n\r\n",
    "an upgrade with chunks": UPGRADE[:-2] + b"Transfer-Encoding: chunked\r\n" + CHUNKED,
    "an upgrade by POST": UPGRADE.replace(b"GET", b"POST"),
    "an upgrade of HTTP/1.0": UPGRADE.replace(b"HTTP/1.1", b"HTTP/1.0"),
    "half an upgrade": UPGRADE.replace(b"Connection: Upgrade\r\n", b""),
    "two upgrades": UPGRADE[:-2] + b"Upgrade: h2c\r\n\r\n",
    "two keys": UPGRADE[:-2] + b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
    "a short key": UPGRADE.replace(b"dGhlIHNhbXBsZSBub25jZQ==", b"dGhl"),
    "a key beyond ASCII": UPGRADE.replace(b"dGhlIHNhbXBsZSBub25jZQ==", b"\xe9GhlI"),
    "another version": UPGRADE.replace(b"Version: 13", b"Version: 12"),
}


async def sent(node: Server, data: bytes) -> bytes:
    """All that comes back until the node closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", node.port)
    writer.write(data)
    read = await asyncio.wait_for(reader.read(), PATIENCE_S)
    writer.close()
    return read


def test_what_is_ambiguous_is_refused_once_and_nothing_behind_it_is_served(
    caplog: pytest.LogCaptureFixture,
) -> None:
    served: list[HttpRequest] = []

    def behind(request: HttpRequest) -> HttpResponse:
        served.append(request)
        return json_response("served")

    async def story() -> dict[str, bytes]:
        async with service() as node:
            node.routes.add("GET", "/behind", behind)
            names = list(REFUSED)
            answers = await asyncio.gather(*(sent(node, REFUSED[n] + BEHIND) for n in names))
            assert node.realm.waiting == node.gateway.metrics.publications == 0
            assert not node.gateway.sessions
            return dict(zip(names, answers, strict=True))

    answers = run(story())
    assert not served
    assert not caplog.records
    for name, answer in answers.items():
        head, _, body = answer.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 4"), name
        assert b"\r\nConnection: close" in head, name
        assert answer.count(b"HTTP/1.1") - body.count(b"HTTP/1.1") == 1, name
        assert set(json.loads(body)) == {"error"}, name


SPOILING = (b"\r", b"\n", b"\t", b" ", b":", b",", b"%", b"\x00", b"\x7f", b"\xe9", b"[", b"\r\n",
            b"\r\nHost: a", b"\r\nContent-Length: 0", b"Upgrade: websocket\r\n")  # fmt: skip


def spoilt(random: Random) -> bytes:
    """A head that was right or wrong before, changed in a few places."""
    heads = [data.split(b"\r\n\r\n")[0] for data in (*REFUSED.values(), *60 * (UPGRADE, BEHIND))]
    head = bytearray(random.choice(heads))
    for _ in range(random.randrange(1, 4)):
        place, way = random.randrange(len(head) + 1), random.randrange(4)
        if way == 0:
            head[place : place + 1] = random.randbytes(1)
        elif way == 1:
            head[place:place] = random.choice(SPOILING)
        elif way == 2:
            del head[place : place + random.randrange(5)]
        else:
            other = random.choice(heads)
            head[place:] = other[random.randrange(len(other) + 1) :]
    return bytes(head)


def test_whatever_is_not_refused_is_what_a_simple_reader_finds() -> None:
    random, read, upgrades = Random(7), 0, 0
    for _ in range(20_000):
        head = spoilt(random)
        if b"\r\n\r\n" in head:
            continue
        try:
            request = parse_head(head)
            body_size(request, 65_536)
            if request.upgrades:
                check_upgrade(request)
                upgrades += 1
        except HttpError as why:
            assert 400 <= why.status < 500
            continue
        read += 1
        bare = head.replace(b"\r\n", b"")
        assert b"\r" not in bare, head
        assert b"\n" not in bare, head
        first, *lines = head.decode("latin-1").split("\r\n")
        assert first.split(" ")[0] == request.method, head
        assert first.split(" ")[1].partition("?")[0] == request.path, head
        fields = [line.split(":", 1) for line in lines]
        for name, value in fields:
            assert name == name.strip(), head
            if name.lower() != "expect":
                assert value.strip(" \t") in request.headers[name.lower()], head
        names = [name.lower() for name, _ in fields]
        assert max(names.count("host"), names.count("content-length")) <= 1, head
        page_refusal(request.headers, True, frozenset({PAGE}))
        page_refusal(request.headers, False, frozenset({PAGE}))
    assert read > 1_000
    assert upgrades > 100


PAGE = "https://page.example"


def test_who_greets_with_tls_is_told_at_once_that_this_is_http() -> None:
    async def story() -> bytes:
        async with service() as node:
            return await sent(node, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")

    answer = run(story())
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"a node with TLS has a wss:// and https:// address" in answer


def test_good_requests_behind_each_other_are_answered_in_their_order() -> None:
    async def later(_: HttpRequest) -> HttpResponse:
        await asyncio.sleep(0)
        return json_response("later")

    async def story() -> list[bytes]:
        async with service() as node:
            node.routes.add("GET", "/later", later)
            node.routes.add("GET", "/behind", lambda _: json_response("behind"))
            reader, writer = await asyncio.open_connection("127.0.0.1", node.port)
            slow = b"GET /later HTTP/1.1\r\nHost: localhost\r\n\r\n"
            publish = POST + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY
            writer.write(slow + BEHIND + publish + GET + HOST + b"\r\n" + BEHIND + slow)
            return [(await answered(reader))[2] for _ in range(6)]

    told = run(story())
    assert told[0] == told[5] == b'"later"\n'
    assert told[1] == told[4] == b'"behind"\n'
    assert b'"publication":1' in told[2]
    assert told[3] == b'{"ok":true}\n'


def test_a_sender_who_expects_it_is_told_to_go_on() -> None:
    async def story() -> tuple[bytes, int, int]:
        async with service() as node:
            reader, writer = await asyncio.open_connection("127.0.0.1", node.port)
            head = POST + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(BODY)
            writer.write(head)
            told = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE_S)
            writer.write(BODY)
            first = await answered(reader)
            writer.write(head + BODY)  # whoever does not wait needs no word
            second = await answered(reader)
            return told, first[0], second[0]

    assert run(story()) == (b"HTTP/1.1 100 Continue\r\n\r\n", 202, 202)


@pytest.mark.parametrize("connection", ["Upgrade", "keep-alive, Upgrade", "upgrade,close"])
def test_an_upgrade_is_read_once_and_what_follows_it_is_for_the_websocket(connection: str) -> None:
    upgrade = UPGRADE.replace(b"Connection: Upgrade", f"Connection: {connection}".encode())
    odd = b"X-Odd: \xe9\r\nX-Odd: two\r\n\r\n"

    async def story() -> bytes:
        async with service() as node:
            reader, writer = await asyncio.open_connection("127.0.0.1", node.port)
            writer.write(upgrade[:-2] + odd + b"\x81\x80\x00\x00\x00\x00")  # and an empty text
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE_S)
            assert b" 101 " in head
            assert b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" in head  # RFC 6455, 1.3
            return await asyncio.wait_for(reader.readexactly(2 + 13), PATIENCE_S)

    assert run(story())[2:] == b'{"is":"error"'


def test_options_and_what_is_not_allowed_name_the_methods() -> None:
    async def story() -> list[tuple[int, str]]:
        async with service() as node:
            reader, writer = await asyncio.open_connection("127.0.0.1", node.port)
            answers = []
            for first in ("OPTIONS /healthz", "OPTIONS /publish", "OPTIONS /entities/x",
                          "OPTIONS *", "OPTIONS /nowhere", "PUT /publish"):  # fmt: skip
                writer.write(f"{first} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
                status, headers, _ = await answered(reader)
                assert "access-control-allow-origin" not in headers
                answers.append((status, headers.get("allow", "")))
            return answers

    assert run(story()) == [
        (204, "GET, HEAD, OPTIONS"),
        (204, "OPTIONS, POST"),
        (204, "DELETE, GET, HEAD, OPTIONS"),
        (204, "DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT"),
        (404, ""),
        (405, "OPTIONS, POST"),
    ]
