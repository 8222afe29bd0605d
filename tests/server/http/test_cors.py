"""Pages of other sites: which may speak to a node, and what their browsers are told."""

import asyncio
import json

import pytest

from nearcast.errors import ConfigError
from nearcast.server.config import Settings, load_settings
from nearcast.server.http.cors import page_refusal
from nearcast.server.http.protocol import HttpResponse
from support.live_clients import run, service
from support.patience import PATIENCE_S
from support.raw_websocket import HANDSHAKE, http

PAGE = "https://page.example"
BODY = b'{"x": 1, "y": 1}'


def asked(method: str, path: str, origin: str, more: str = "") -> str:
    return f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nOrigin: {origin}\r\n{more}\r\n"


@pytest.mark.parametrize(
    ("headers", "open_", "origins", "may"),
    [
        # Without tokens: loopback names, and pages of this machine or of the setting.
        ({"host": "localhost:8470"}, True, "", True),
        ({"host": "evil.example"}, True, "", False),
        ({"host": "localhost", "origin": "http://localhost:3000"}, True, "", True),
        ({"host": "localhost", "origin": PAGE}, True, "", False),
        ({"host": "localhost", "origin": PAGE}, True, PAGE, True),
        ({"host": "localhost", "origin": PAGE.upper()}, True, PAGE, True),
        ({"host": "localhost", "origin": f"{PAGE}:444"}, True, PAGE, False),
        ({"host": "localhost", "origin": "null"}, True, PAGE, False),
        ({"host": "localhost", "origin": "null"}, True, "*", True),
        ({"host": "evil.example", "origin": PAGE}, True, PAGE, False),
        ({"host": "evil.example", "origin": "http://evil.example"}, True, "*", False),
        ({"host": "localhost", "origin": "http://127.0.0.1"}, True, PAGE, True),
        # With tokens: any page, until the setting names some.
        ({"host": "node.example", "origin": PAGE}, False, "", True),
        ({"host": "node.example", "origin": PAGE}, False, PAGE, True),
        ({"host": "node.example", "origin": "https://other.example"}, False, PAGE, False),
        ({"host": "node.example", "origin": "https://other.example"}, False, "*", True),
        ({"host": "node.example", "origin": "https://node.example"}, False, PAGE, True),
        ({"host": "node.example:1", "origin": "https://node.example:2"}, False, PAGE, False),
        ({"host": "node.example"}, False, PAGE, True),
    ],
)
def test_which_origins_are_allowed(
    headers: dict[str, str], open_: bool, origins: str, may: bool
) -> None:
    allowed = frozenset(filter(None, [origins]))
    assert (page_refusal(headers, open_, allowed) is None) == may


def test_a_page_that_is_named_publishes_and_reads_the_answer() -> None:
    async def story() -> None:
        async with service(cors=f"http://other.example, {PAGE}") as node:
            wants = "Access-Control-Request-Method: POST\r\n"
            status, headers, _ = await http(node, asked("OPTIONS", "/publish", PAGE, wants))
            assert status == 204
            assert headers["access-control-allow-origin"] == PAGE
            assert headers["access-control-allow-methods"] == "OPTIONS, POST"
            assert "Authorization" in headers["access-control-allow-headers"]
            assert "access-control-allow-credentials" not in headers
            length = f"Content-Length: {len(BODY)}\r\n"
            status, headers, _ = await http(node, asked("POST", "/publish", PAGE, length), BODY)
            assert (status, headers["access-control-allow-origin"]) == (202, PAGE)
            assert headers["vary"] == "Origin"
            status, headers, _ = await http(node, asked("DELETE", "/entities/curl", PAGE))
            assert (status, headers["access-control-allow-origin"]) == (204, PAGE)
            status, headers, _ = await http(node, asked("GET", "/nowhere", PAGE))
            assert (status, headers["access-control-allow-origin"]) == (404, PAGE)

    run(story())


def test_a_route_that_names_an_origin_itself_is_not_contradicted() -> None:
    async def story() -> bytes:
        async with service(cors=PAGE) as node:
            own = (("Access-Control-Allow-Origin", "*"),)
            node.routes.add("GET", "/own", lambda _: HttpResponse(b"", headers=own))
            reader, writer = await asyncio.open_connection("127.0.0.1", node.port)
            writer.write(asked("GET", "/own", PAGE).encode())
            return await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE_S)

    assert run(story()).count(b"Access-Control-Allow-Origin") == 1


@pytest.mark.parametrize("cors", ["", "https://named.example"])
def test_a_page_that_is_not_named_is_refused_and_learns_nothing(cors: str) -> None:
    async def story() -> list[int]:
        async with service(cors=cors) as node:
            length = f"Content-Length: {len(BODY)}\r\n"
            answers = [
                await http(node, asked("OPTIONS", "/publish", PAGE)),
                await http(node, asked("POST", "/publish", PAGE, length), BODY),
                await http(node, asked("GET", "/near?x=0&y=0&r=1", PAGE)),
            ]
            assert not any("access-control-allow-origin" in headers for _, headers, _ in answers)
            assert "error" in json.loads(answers[1][2])
            assert node.realm.waiting == 0
            return [status for status, _, _ in answers]

    assert run(story()) == [204, 403, 403]


@pytest.mark.parametrize(
    ("cors", "token", "statuses"),
    [
        ("", "", [403, 101]),
        (PAGE, "", [101, 101]),
        ("*", "", [101, 101]),
        ("https://named.example", "", [403, 101]),
        ("", "a-long-secret", [101, 101]),
        ("https://named.example", "a-long-secret", [403, 101]),
        (PAGE, "a-long-secret", [101, 101]),
    ],
)
def test_a_websocket_is_for_pages_that_may_speak(
    cors: str, token: str, statuses: list[int]
) -> None:
    async def story() -> list[int]:
        async with service(cors=cors, token=token) as node:
            told = []
            for origin in (PAGE, "http://127.0.0.1"):
                head = HANDSHAKE.format(path="/ws", more=f"Origin: {origin}\r\n")
                told.append((await http(node, head))[0])
            return told

    assert run(story()) == statuses


def test_origins_are_read_from_the_setting() -> None:
    found = Settings(cors=" https://A.example , http://b.example:8080,").origins
    assert found == {"https://a.example", "http://b.example:8080"}
    assert Settings().origins == frozenset()


@pytest.mark.parametrize("wrong", ["page.example", "https://page.example/path", "https://", "**"])
def test_a_wrong_origin_is_told(wrong: str) -> None:
    with pytest.raises(ConfigError, match=r"^NEARCAST_CORS: .*an origin is like https"):
        load_settings(environment={"NEARCAST_CORS": wrong})
