"""RFC 6455 on raw sockets, against the connection classes of the node and of the client.

Both ends are told the same frames by a peer that speaks WebSocket by hand, and echo messages. The
cases are the essence of the Autobahn test suite, which tests/soak/test_autobahn.py runs whole.
"""

import asyncio
import base64
import hashlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import pytest
from picows import WSMsgType
from picows.picows import _make_test_ws_frame

from nearcast.client_protocol import messages
from nearcast.client_protocol.close_codes import CloseCode, may_be_sent
from nearcast.client_protocol.websocket_framing import WebSocketEndpoint
from nearcast.server.config import LimitSettings
from support.echo_connections import echo, echo_server
from support.live_clients import join_client, run, service
from support.patience import PATIENCE_S
from support.raw_websocket import BINARY, CLOSE, HANDSHAKE, PING, TEXT, RawClient, connect_raw, http

MORE, PONG = 0, 10  # opcodes: continuation, pong
OK, BROKEN, BAD_TEXT, TOO_BIG = 1000, 1002, 1007, 1009
TOLERATED = 4000  # of a close after the frames of a case, which is answered if none was refused


class Frame(NamedTuple):
    opcode: int
    payload: bytes = b""
    fin: bool = True
    rsv: int = 0
    length: bytes | None = None  # instead of the shortest encoding
    wrong_mask: bool = False

    def written(self, to_server: bool) -> bytes:
        size, masks = len(self.payload), to_server is not self.wrong_mask
        if self.length is not None:
            length = self.length
        elif size < 126:
            length = bytes([size])
        elif size < 65_536:
            length = b"\x7e" + size.to_bytes(2, "big")
        else:
            length = b"\x7f" + size.to_bytes(8, "big")
        first = bytes([self.fin << 7 | self.rsv << 4 | self.opcode])
        if not masks:
            return first + length + self.payload
        key = os.urandom(4)
        return first + bytes([length[0] | 0x80]) + length[1:] + key + crossed(self.payload, key)


def crossed(payload: bytes, key: bytes) -> bytes:
    size = len(payload)
    mask = (key * (size // 4 + 1))[:size]
    return (int.from_bytes(payload, "big") ^ int.from_bytes(mask, "big")).to_bytes(size, "big")


class Case(NamedTuple):
    """What is sent, which frames are to come back, and the code of the close frame after them."""

    sent: list[Frame]
    back: Sequence[tuple[int, bytes]] = ()
    code: int = BROKEN


def close(code: int, reason: bytes = b"") -> Frame:
    return Frame(CLOSE, code.to_bytes(2, "big") + reason)


def echoed(*frames: Frame) -> Case:
    """Valid messages, and a close."""
    return Case([*frames, close(OK)], [(f.opcode, f.payload) for f in frames], OK)


def pieces(opcode: int, *parts: bytes) -> list[Frame]:
    last = len(parts) - 1
    return [Frame(opcode if n == 0 else MORE, part, fin=n == last) for n, part in enumerate(parts)]


HELLO = Frame(TEXT, b"hello")
GREEK = "κόσμε".encode()
VALID_TEXTS = [
    GREEK, b"\x00", b"\x7f", "\u0080\u07ff\u0800\uffff\U00010000\U0010ffff".encode(),
    "\ud7ff\ue000\ufffd\ufffe".encode(),
]  # fmt: skip
INVALID_TEXTS = [
    GREEK + b"\xed\xa0\x80edited",  # a surrogate
    b"\x80", b"\xbf", b"\xc0\xaf", b"\xc1\xbf", b"\xe0\x80\xaf", b"\xf0\x80\x80\xaf",  # overlong
    b"\xf4\x90\x80\x80", b"\xf7\xbf\xbf\xbf", b"\xf8\x88\x80\x80\x80",  # beyond U+10FFFF
    b"\xfe", b"\xff", b"\xed\xb0\x80", b"\xc3", GREEK[:-1], b"\xe2\x82", b"\xc3(",
]  # fmt: skip
VALID_CODES = [1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 1014, 3000, 4999]
INVALID_CODES = [0, 1, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, 65535]

CASES = {
    **{
        f"{kind} of {size} bytes": echoed(Frame(opcode, b"*" * size))
        for kind, opcode in (("text", TEXT), ("binary", BINARY))
        for size in (0, 1, 125, 126, 127, 128, 65_535, 65_536)
    },
    "ping without payload": Case([Frame(PING), close(OK)], [(PONG, b"")], OK),
    "ping with any bytes": Case([Frame(PING, b"\0\xff"), close(OK)], [(PONG, b"\0\xff")], OK),
    "the longest ping": Case([Frame(PING, b"x" * 125), close(OK)], [(PONG, b"x" * 125)], OK),
    "a ping too long": Case([Frame(PING, b"x" * 126)]),
    "a pong too long": Case([Frame(PONG, b"x" * 126)]),
    "a pong that nobody asked for": Case([Frame(PONG, b"x"), close(OK)], [], OK),
    "ten pings": Case(
        [*(Frame(PING, b"%d" % n) for n in range(10)), close(OK)],
        [(PONG, b"%d" % n) for n in range(10)], OK,
    ),
    **{
        f"reserved bits {rsv} on {opcode}": Case([Frame(opcode, b"\x03\xe8", rsv=rsv)])
        for rsv in range(1, 8)
        for opcode in (TEXT, BINARY, PING, PONG, CLOSE)
    },
    "reserved bits on a continuation": Case(
        [Frame(TEXT, b"a", fin=False), Frame(MORE, b"b", rsv=4)]
    ),
    "a message before reserved bits": Case([HELLO, Frame(TEXT, b"x", rsv=2)], [(TEXT, b"hello")]),
    **{f"opcode {n}": Case([Frame(n, b"x")]) for n in (3, 4, 5, 6, 7, 11, 12, 13, 14, 15)},
    **{f"a fragment of {n}": Case([Frame(n, b"x", fin=False)]) for n in (PING, PONG, CLOSE)},
    "a wrong mask": Case([HELLO._replace(wrong_mask=True)]),
    "a length of 16 bits for 5 bytes": Case([HELLO._replace(length=b"\x7e\0\5")]),
    "a length of 64 bits for 5 bytes": Case([HELLO._replace(length=b"\x7f" + bytes(7) + b"\5")]),
    "a negative length": Case([HELLO._replace(length=b"\x7f\x80" + bytes(7))]),
    **{
        f"{kind} in pieces": Case(
            [*pieces(opcode, b"", b"one ", b"", b"two", b""), HELLO, close(OK)],
            [(opcode, b"one two"), (TEXT, b"hello")], OK,
        )
        for kind, opcode in (("text", TEXT), ("binary", BINARY))
    },
    "pings between pieces": Case(
        [Frame(TEXT, b"one ", fin=False), Frame(PING, b"?"), Frame(MORE, b"two"), close(OK)],
        [(PONG, b"?"), (TEXT, b"one two")], OK,
    ),
    "a close between pieces": Case([Frame(TEXT, b"one ", fin=False), close(OK), HELLO], [], OK),
    "an end without a beginning": Case([Frame(MORE, b"x")]),
    "a middle without a beginning": Case([Frame(MORE, b"x", fin=False), Frame(MORE, b"x")]),
    "a beginning twice": Case([Frame(TEXT, b"x", fin=False), Frame(TEXT, b"x", fin=False)]),
    "a binary message inside a text": Case([Frame(TEXT, b"x", fin=False), Frame(BINARY, b"x")]),
    "an end twice": Case([*pieces(TEXT, b"a", b"b"), Frame(MORE, b"c")], [(TEXT, b"ab")]),
    **{f"text {text!r}": echoed(Frame(TEXT, text)) for text in VALID_TEXTS},
    "a text cut inside its characters": Case(
        [*pieces(TEXT, *(GREEK[n : n + 1] for n in range(len(GREEK)))), close(OK)],
        [(TEXT, GREEK)], OK,
    ),
    **{f"invalid text {text!r}": Case([Frame(TEXT, text)], [], BAD_TEXT) for text in INVALID_TEXTS},
    **{
        f"invalid text in pieces {text!r}": Case(
            pieces(TEXT, *(text[n : n + 1] for n in range(len(text)))), [], BAD_TEXT
        )
        for text in INVALID_TEXTS
    },
    "invalid text before its end": Case([Frame(TEXT, b"\xff", fin=False)], [], BAD_TEXT),
    "any bytes in a binary message": echoed(Frame(BINARY, bytes(range(256)))),
    "a close without a code": Case([Frame(CLOSE)], [], OK),
    "a close with half a code": Case([Frame(CLOSE, b"\x03")]),
    **{f"close code {n}": Case([close(n)], [], n) for n in VALID_CODES},
    **{f"invalid close code {n}": Case([close(n)]) for n in INVALID_CODES},
    "a close with a reason": Case([close(OK, GREEK)], [], OK),
    "a close with the longest reason": Case([close(OK, b"x" * 123)], [], OK),
    "a close with a reason too long": Case([close(OK, b"x" * 124)]),
    "a close with an invalid reason": Case([close(OK, b"\xce\xba\xff")], [], BAD_TEXT),
    "a close twice": Case([close(1001), close(OK)], [], 1001),
    "a text after a close": Case([close(OK), HELLO], [], OK),
    "a ping after a close": Case([close(OK), Frame(PING)], [], OK),
    "nonsense after a close": Case([close(OK), Frame(3, rsv=7)], [], OK),
}  # fmt: skip


class Peer(asyncio.Protocol):
    """The other end: writes frames as they are, answers a close, and keeps what it reads."""

    def __init__(self, to_server: bool) -> None:
        self.to_server = to_server
        self.head: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.gone = asyncio.Event()
        self.frames: list[tuple[int, bytes]] = []
        self.all_said = False
        self._read = b""

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self.gone.set()

    def data_received(self, data: bytes) -> None:
        self._read += data
        if not self.head.done() and b"\r\n\r\n" in self._read:
            head, _, self._read = self._read.partition(b"\r\n\r\n")
            self.head.set_result(head.decode())
        while self.head.done() and (frame := self._next()):
            self.frames.append(frame)
        self._answer_close()

    def _answer_close(self) -> None:
        if self.all_said and CLOSE in dict(self.frames):
            self.write(close(OK).written(self.to_server))

    def write(self, data: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(data)

    def _next(self) -> tuple[int, bytes] | None:
        read = self._read
        if len(read) < 2:
            return None
        assert read[0] & 0xF0 == 0x80
        assert bool(read[1] & 0x80) is not self.to_server, "clients mask, servers do not"
        size, begin = read[1] & 0x7F, 2
        if size >= 126:
            begin = 4 if size == 126 else 10
            size = int.from_bytes(read[2:begin], "big")
        payload = begin if self.to_server else begin + 4
        if len(read) < payload + size:
            return None
        body, self._read = read[payload : payload + size], read[payload + size :]
        return read[0] & 15, body if self.to_server else crossed(body, read[begin:payload])

    async def play(self, case: Case, split: bool) -> tuple[list[tuple[int, bytes]], int]:
        """The frames that came back, and the code of the close frame, which is the last."""
        ends = split or case.sent[-1].opcode == CLOSE
        sent = case.sent if ends else [*case.sent, close(TOLERATED)]
        written = b"".join(frame.written(self.to_server) for frame in sent)
        step = 1 if split and len(written) < 1_000 else len(written)
        for begin in range(0, len(written), step):
            self.write(written[begin : begin + step])
            await asyncio.sleep(0)
        self.all_said = True
        self._answer_close()
        await self.gone.wait()
        *back, (last, payload) = self.frames or [(0, b"")]
        return back, int.from_bytes(payload[:2], "big") if last == CLOSE else 0


Meet: TypeAlias = Callable[[], Awaitable[Peer]]
End: TypeAlias = Callable[[], AbstractAsyncContextManager[Meet]]


@asynccontextmanager
async def node() -> AsyncIterator[Meet]:
    loop = asyncio.get_running_loop()
    async with echo_server() as port:

        async def meet() -> Peer:
            _, peer = await loop.create_connection(lambda: Peer(True), "127.0.0.1", port)
            peer.write(HANDSHAKE.format(path="/", more="").encode())
            assert " 101 " in await peer.head
            return peer

        yield meet


@asynccontextmanager
async def client() -> AsyncIterator[Meet]:
    async with hostile_server() as (url, peers):

        async def meet() -> Peer:
            await echo(url)
            return peers.pop()

        yield meet


class Hostile(Peer):
    """A server that upgrades every connection and then does as it is told."""

    def __init__(self, peers: list[Peer]) -> None:
        super().__init__(False)
        self._peers = peers
        self.head.add_done_callback(self._accept)

    def _accept(self, head: "asyncio.Future[str]") -> None:
        lines = (line.partition(":") for line in head.result().split("\r\n"))
        key = {name.lower(): value.strip() for name, _, value in lines}["sec-websocket-key"]
        digest = hashlib.sha1(f"{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11".encode()).digest()
        self.write(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Accept: " + base64.b64encode(digest) + b"\r\n\r\n"
        )
        self._peers.append(self)


@asynccontextmanager
async def hostile_server() -> AsyncIterator[tuple[str, list[Peer]]]:
    """Its address, and who has connected."""
    peers: list[Peer] = []
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Hostile(peers), "127.0.0.1", 0)
    try:
        yield f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}", peers
    finally:
        server.close()


@pytest.mark.parametrize("end", [node, client])
@pytest.mark.parametrize("split", [False, True], ids=["at once", "byte by byte"])
def test_both_ends_keep_to_the_standard(
    end: End, split: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> dict[str, Any]:
        wrong: dict[str, Any] = {}
        async with end() as meet:
            for name, case in CASES.items():
                async with asyncio.timeout(PATIENCE_S):
                    back, code = await (await meet()).play(case, split)
                if (back, code) != (list(case.back), case.code):
                    wrong[name] = back[:5], code
        return wrong

    assert run(story()) == {}
    assert [record.getMessage() for record in caplog.records] == []


@pytest.mark.parametrize("parts", [1, 2, 7], ids="in {} frames".format)
def test_a_message_too_long_is_refused_alike_in_one_frame_and_in_several(parts: int) -> None:
    def message(size: int) -> bytes:
        step = -(-size // parts)
        body = [b"x" * len(range(size)[begin : begin + step]) for begin in range(0, size, step)]
        return b"".join(frame.written(True) for frame in pieces(BINARY, *body))

    async def story() -> tuple[list[Any], int, str]:
        async with service(limits=LimitSettings(frame=1_000)) as node:
            raw_client = await connect_raw(node)
            raw_client.send_request(messages.JoinRequest("long", id=1))
            raw_client.writer.write(message(1_001) + message(4_000))
            raw_client.send_request(messages.NearbyRequest(messages.Area(x=0.0, y=0.0), id=2))
            frames = [await raw_client.next() for _ in range(4)]
            raw_client.writer.write(message(4_001))
            bye, (_, payload) = await raw_client.until_closed()
            told = [messages.JSON.read_notice(body) for _, body in (*frames, bye)]
            return told, int.from_bytes(payload[:2], "big"), payload[2:].decode()

    told, code, reason = run(story())
    long = "a frame has at most 1000 bytes"
    assert [type(word) for word in told] == [
        messages.WelcomeNotice, messages.ErrorNotice, messages.ErrorNotice, messages.NearbyNotice,
        messages.ByeNotice,
    ]  # fmt: skip
    assert [told[1].reason, told[2].reason] == [long, long]
    assert (code, reason) == (TOO_BIG, "a message has at most 4000 bytes")
    assert told[-1].reason == reason


async def code_of(raw_client: RawClient) -> tuple[str, int, str]:
    """The reason of its bye, and code and reason of its close frame."""
    *_, (_, bye), (_, payload) = await raw_client.until_closed()
    reason = messages.JSON.read_notice(bye).reason
    return reason, int.from_bytes(payload[:2], "big"), payload[2:].decode()


def test_every_end_by_a_node_has_a_code_and_says_bye_with_the_same_reason(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.toml"
    tokens.write_text("[r]\ntoken = 'reader-token'\nrole = 'read'\n")

    async def story() -> list[tuple[str, int, str]]:
        told = []
        async with service(limits=LimitSettings(join_s=0.1)) as node:
            told.append(await code_of(await connect_raw(node)))
        async with service(token_file=str(tokens)) as node:
            raw_client = await connect_raw(node)
            raw_client.send_request(messages.JoinRequest("eve", "wrong"))
            told.append(await code_of(raw_client))
        async with service() as node:
            leaver, broken, stayer = (
                await connect_raw(node),
                await connect_raw(node),
                await connect_raw(node),
            )
            for raw_client in (leaver, broken, stayer):
                raw_client.send_request(messages.JoinRequest())
                await raw_client.next()
            leaver.send_request(messages.LeaveRequest())
            told.append(await code_of(leaver))
            broken.writer.write(Frame(TEXT, b"{}", rsv=1).written(True))
            told.append(await code_of(broken))
        told.append(await code_of(stayer))
        return told

    told = run(story())
    assert [code for _, code, _ in told] == [1008, 1008, 1000, 1002, 1001]
    assert [bye for bye, _, _ in told] == [reason for _, _, reason in told]
    assert told[-1][0] == "the node stops"


def test_who_breaks_the_protocol_has_left_at_once() -> None:
    async def story() -> int:
        async with service() as node:
            ann, broken = await join_client(node, "ann"), await connect_raw(node)
            broken.send_request(messages.JoinRequest("broken"))
            await broken.next()
            broken.writer.write(Frame(3).written(True))
            await broken.until_closed()
            await ann.ask(messages.PublishRequest, 0.0, 0.0)
            return sum(client is not None for client in node.realm.clients)

    assert run(story()) == 1


def test_pongs_that_nobody_reads_do_not_pile_up_for_ever() -> None:
    async def story() -> int:
        async with service(limits=LimitSettings(queue_bytes=50_000, slow_s=3_600.0)) as node:
            raw_client = await connect_raw(node, buffer=4_096)
            raw_client.send_request(messages.JoinRequest())
            pings = b"".join(Frame(PING, b"x" * 125).written(True) for _ in range(1_000))
            async with asyncio.timeout(PATIENCE_S):
                while not node.gateway.metrics.cut:
                    raw_client.writer.write(pings)
                    await asyncio.sleep(0.01)
                while node.gateway.sessions:
                    await asyncio.sleep(0.05)
            return node.gateway.metrics.cut

    assert run(story()) == 1


@pytest.mark.parametrize(
    ("change", "status"),
    [
        (("Connection: Upgrade", "Connection: keep-alive, Upgrade"), 101),  # as Firefox does
        (("Upgrade: websocket", "Upgrade: WebSocket"), 101),
        (("Connection: Upgrade", "Connection: keep-alive"), 400),
        (("GET", "POST"), 400),
        (("Sec-WebSocket-Version: 13", "Sec-WebSocket-Version: 8"), 426),
        (("Sec-WebSocket-Version: 13\r\n", ""), 426),
        (("dGhlIHNhbXBsZSBub25jZQ==", "dGhlIHNhbXBsZQ=="), 400),
        (("dGhlIHNhbXBsZSBub25jZQ==", "no base64"), 400),
    ],
)
def test_the_opening_handshake(change: tuple[str, str], status: int) -> None:
    request = HANDSHAKE.format(path="/ws", more="").replace(*change)
    assert change[1] in request

    async def story() -> tuple[int, dict[str, str]]:
        async with service() as node:
            told, headers, _ = await http(node, request)
            return told, headers

    told, headers = run(story())
    assert told == status
    assert (told == 101) == (headers.get("sec-websocket-accept") == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=")
    assert (told == 426) == ("sec-websocket-version" in headers)


@pytest.mark.parametrize(
    ("sent", "code", "says"),
    [
        (Frame(TEXT, b"\xff"), 1007, "a text message is not valid UTF-8"),
        (Frame(BINARY, b"\x91\x0b", rsv=1), 1002, "a frame has reserved bits"),
        (Frame(BINARY, b"", wrong_mask=True), 1002, "masked frame"),
        (Frame(MORE), 1002, "the frames of a message are out of order"),
        (close(1006), 1002, "1006 is not a valid close code"),
        (close(4321, b"so long"), 4321, "so long"),
        (Frame(CLOSE), 1005, "the node has closed the connection"),
    ],
)
def test_a_client_says_why_it_has_lost_its_connection(sent: Frame, code: int, says: str) -> None:
    async def story() -> tuple[str, int]:
        async with hostile_server() as (url, peers):
            me = await echo(url)
            await peers[0].play(Case([sent]), False)
            return await me.ended

    reason, told = run(story())
    assert told == code
    assert says in reason


@pytest.mark.parametrize(
    ("kind", "reserved", "answers"),
    [
        (WSMsgType.PONG, False, True),
        (WSMsgType.PONG, True, False),
        (WSMsgType.PING, False, False),
    ],
)
def test_only_a_sound_pong_answers_a_ping(kind: WSMsgType, reserved: bool, answers: bool) -> None:
    endpoint = WebSocketEndpoint(1_000, lambda *_: None)
    frame = _make_test_ws_frame(kind, b"", True, reserved)
    assert endpoint.is_user_specific_pong(frame) is answers


def test_every_code_that_a_node_sends_is_valid() -> None:
    assert all(may_be_sent(code) for code in CloseCode)
