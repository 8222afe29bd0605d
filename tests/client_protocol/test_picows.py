"""What is relied on of picows: a private class, the order of its arguments, and what it reports.

If one of these fails after an upgrade, look at nearcast/server/http/upgrade.py and
nearcast/client_protocol/websocket_framing.py.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import picows.api
import pytest
from picows import WSAutoPingStrategy, WSFrame, WSTransport, ws_create_server

from nearcast.client_protocol.websocket_framing import PicowsLogger, WebSocketEndpoint
from nearcast.server.http import upgrade
from support.live_clients import run
from support.patience import PATIENCE_S
from support.raw_websocket import BINARY, CLOSE, HANDSHAKE, PING, RawClient, masked

MOST, PONG = 1_000, 10


class RecordingEndpoint(WebSocketEndpoint):
    """Keeps the frames and faults that it gets, and sends a frame before it closes."""

    def __init__(self) -> None:
        super().__init__(MOST, RecordingEndpoint.received)
        self.kinds: list[int] = []
        self.faults: list[tuple[int, str]] = []

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        self.kinds.append(frame.msg_type.value)
        super().on_ws_frame(transport, frame)

    def received(self, payload: bytes, binary: bool) -> None:
        raise ArithmeticError(f"a mistake in {payload!r} {binary}")

    def fault(self, code: int, reason: str) -> None:
        self.faults.append((code, reason))
        self.transport.underlying_transport.write(b"\x82\x03bye")
        super().fault(code, reason)


@asynccontextmanager
async def connected() -> AsyncIterator[tuple[RecordingEndpoint, RawClient]]:
    """The protocol object of a node, and a stranger at the other end."""
    kept = RecordingEndpoint()
    server = await asyncio.get_running_loop().create_server(
        lambda: upgrade.picows_protocol(kept, MOST), "127.0.0.1", 0
    )
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    writer.write(HANDSHAKE.format(path="/", more="").encode())
    assert b" 101 " in await reader.readuntil(b"\r\n\r\n")
    try:
        yield kept, RawClient(reader, writer)
    finally:
        writer.close()
        server.close()


def test_arguments_are_where_the_server_of_picows_puts_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[tuple[Any, ...]] = []

    def make(*arguments: Any) -> asyncio.Protocol:
        made.append(arguments)
        return asyncio.Protocol()

    async def story() -> None:
        endpoint = RecordingEndpoint()
        upgrade.picows_protocol(endpoint, MOST)
        reports = made[0][4]
        assert isinstance(reports, PicowsLogger)
        server = await ws_create_server(
            made[0][3], "127.0.0.1", 0, disconnect_on_exception=True, logger_name=reports,
            websocket_handshake_timeout=upgrade.HANDSHAKE_S, enable_auto_ping=True,
            auto_ping_idle_timeout=upgrade.PING_S, auto_ping_reply_timeout=20.0,
            auto_ping_strategy=WSAutoPingStrategy.PING_WHEN_IDLE, enable_auto_pong=False,
            max_frame_size=MOST, read_buffer_init_size=upgrade.BUFFER, use_aiofastnet=False,
        )  # fmt: skip
        _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        async with asyncio.timeout(PATIENCE_S):
            while len(made) < 2:
                await asyncio.sleep(0.01)
        writer.close()
        server.close()

    monkeypatch.setattr(picows.api, "WSProtocol", make)
    run(story())
    assert made[0] == made[1], "picows' WSProtocol takes other arguments, or in another order"


@pytest.mark.parametrize(
    ("sent", "code", "says"),
    [
        (masked(b"x" * (MOST + 1), BINARY), 1009, "exceeding max"),
        (masked(b"x", 3), 1002, "opcode"),
        (b"\x82\x01x", 1002, "mask"),
    ],
    ids=["too long", "unknown opcode", "not masked"],  # masks are random
)
def test_a_refused_frame_is_reported_before_the_connection_is_closed(
    sent: bytes, code: int, says: str
) -> None:
    async def story() -> None:
        async with connected() as (kept, raw_client):
            raw_client.writer.write(sent)
            bye, (last, payload) = await raw_client.until_closed()
            assert bye == (BINARY, b"bye"), "its report comes too late for a last word"
            assert (last, int.from_bytes(payload[:2], "big")) == (CLOSE, code)
            ((told, reason),) = kept.faults
            assert told == code
            assert says in reason

    run(story())


def test_a_frame_as_long_as_allowed_and_a_ping_come_to_the_endpoint() -> None:
    async def story() -> list[int]:
        async with connected() as (kept, raw_client):
            raw_client.writer.write(masked(b"x" * (MOST), BINARY, fin=False))
            raw_client.writer.write(masked(b"hello", PING))
            assert await raw_client.next() == (PONG, b"hello")
            return kept.kinds

    assert run(story()) == [BINARY, PING]


def test_an_exception_of_ours_is_logged_and_closes_with_1011(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story() -> int:
        async with connected() as (_, raw_client):
            raw_client.writer.write(masked(b"oops", BINARY))
            ((_, payload),) = await raw_client.until_closed()
            return int.from_bytes(payload[:2], "big")

    assert run(story()) == 1011
    assert "a mistake in b'oops' True" in caplog.text


def test_a_silent_client_is_pinged_and_then_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upgrade, "PING_S", 0.05)

    async def story() -> tuple[list[int], int]:
        async with connected() as (_, raw_client):
            *before, (_, payload) = await raw_client.until_closed()
            return [kind for kind, _ in before], int.from_bytes(payload[:2], "big")

    assert run(story()) == ([PING], 1001)
