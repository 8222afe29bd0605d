"""Clients that speak WebSocket by hand: to send what no library would, or to stop reading."""

import asyncio
import os
import socket
from collections.abc import Callable
from typing import Any

from nearcast.client_protocol import messages
from nearcast.server.server import Server
from support.patience import PATIENCE_S

HANDSHAKE = (
    "GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n{more}\r\n"
)
TEXT, BINARY, CLOSE, PING = 1, 2, 8, 9


def masked(payload: bytes, opcode: int = TEXT, fin: bool = True) -> bytes:
    """A client's frame (RFC 6455, 5.2 and 5.3)."""
    size, key = len(payload), os.urandom(4)
    head = bytes([opcode | (0x80 if fin else 0)])
    if size < 126:
        head += bytes([0x80 | size])
    elif size < 65_536:
        head += bytes([0x80 | 126]) + size.to_bytes(2, "big")
    else:
        head += bytes([0x80 | 127]) + size.to_bytes(8, "big")
    mask = (key * (size // 4 + 1))[:size]
    body = int.from_bytes(payload, "big") ^ int.from_bytes(mask, "big")
    return head + key + body.to_bytes(size, "big")


def unframed(read: bytes) -> tuple[list[tuple[int, bytes]], bytes]:
    """Whole frames of a server, as opcode and payload, and what is left over."""
    frames = []
    while len(read) >= 2:
        size, begin = read[1], 2
        if size >= 126:
            begin = 4 if size == 126 else 10
            size = int.from_bytes(read[2:begin], "big")
        if len(read) < begin + size:
            break
        frames.append((read[0] & 15, read[begin : begin + size]))
        read = read[begin + size :]
    return frames, read


class RawClient:
    """A client that writes frames by hand, after its upgrade."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self._left = b""
        self._came: list[tuple[int, bytes]] = []

    def send_request(self, request: messages.Request) -> None:
        self.writer.write(masked(messages.JSON.encode(request)))

    async def next(self) -> tuple[int, bytes]:
        """The next frame."""
        async with asyncio.timeout(PATIENCE_S):
            while not self._came:
                read = await self.reader.read(1 << 20)
                assert read, "it has ended without a close"
                self._came, self._left = unframed(self._left + read)
        return self._came.pop(0)

    async def until_closed(self) -> list[tuple[int, bytes]]:
        """All frames to the last, which is a close frame; it is answered."""
        found = [await self.next()]
        while found[-1][0] != CLOSE:
            found.append(await self.next())
        self.writer.write(masked(found[-1][1], CLOSE))
        return found

    async def notices_until(self, is_last: Callable[[Any], bool]) -> list[Any]:
        """All notices up to the last, in their order."""
        found: list[Any] = []
        while not found or not is_last(found[-1]):
            op, body = await self.next()
            if op == TEXT:
                found.append(messages.JSON.read_notice(body))
        return found

    async def notices_until_answer(self, request: messages.UnsubscribeRequest) -> list[Any]:
        """All that is on its way to this client before the answer to this request."""
        self.send_request(request)
        done = messages.DoneNotice
        *found, _ = await self.notices_until(lambda n: type(n) is done and n.id == request.id)
        return found

    def vanish(self) -> None:
        """Close without a close frame."""
        self.writer.transport.abort()


async def connect_raw(node: Server, buffer: int = 0) -> RawClient:
    """`buffer` bounds what this machine reads ahead for a client that does not read."""
    plain = socket.socket()
    if buffer:
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    plain.setblocking(False)
    await asyncio.get_running_loop().sock_connect(plain, ("127.0.0.1", node.port))
    reader, writer = await asyncio.open_connection(sock=plain, limit=buffer or 65_536)
    writer.write(HANDSHAKE.format(path="/ws", more="").encode())
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE_S)
    assert b" 101 " in head, head
    return RawClient(reader, writer)


async def http(node: Server, request: str, body: bytes = b"") -> tuple[int, dict[str, str], bytes]:
    """One request, one answer: status, headers, body."""
    reader, writer = await asyncio.open_connection("127.0.0.1", node.port)
    writer.write(request.encode() + body)
    answer = await answered(reader)
    writer.close()
    return answer


async def answered(reader: asyncio.StreamReader) -> tuple[int, dict[str, str], bytes]:
    head = (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE_S)).decode()
    first, *lines = head.strip().split("\r\n")
    headers = {n.lower(): v.strip() for n, v in (line.split(":", 1) for line in lines)}
    size = int(headers.get("content-length", "0"))
    return int(first.split()[1]), headers, await reader.readexactly(size)
