"""Frames that no client should send, clients that come and vanish, and what may be left of them."""

import asyncio
import gc
import os
from random import Random
from typing import Any

from msgspec import Raw

from nearcast.client_protocol import messages
from nearcast.client_protocol.geometry_json import Area
from nearcast.server.overview import gauges
from nearcast.server.server import Server
from nearcast.server.session import Session
from support.live_clients import join_client
from support.patience import PATIENCE_S
from support.raw_websocket import BINARY, TEXT, RawClient, connect_raw, masked

AREA = Area(x=1.0, y=2.0, r=3.0, vx=1.0)
VALID_REQUESTS = (
    messages.PublishRequest(
        1.0, 2.0, messages.JSON.encode_payload({"a": [1, 2, {"b": None}]}), True, {"level": 3}, "c"
    ),
    messages.SubscribeRequest(1, AREA, "level > 3", rates=[(1.0, 2.0)], variables={"v": 1.0},
    watch=True),
    messages.SubscribeRequest(2, Area(formula="x >= 3 - t, y <= 9"), closest=3, budget=100.0),
    messages.MoveRequest(1, AREA), messages.TuneRequest(1, {"v": 2.0}),
    messages.UnsubscribeRequest(1),
    messages.NearbyRequest(AREA),
    messages.JoinRequest("x", "y", 3),
)  # fmt: skip
NUMBERS = (0, -1, 1e308, 2**63, -(2**70), 0.1, None, "x", [], {}, True)


def malformed_request(random: Random) -> tuple[bytes, int]:
    """A request's body, damaged in one of many ways, and the opcode it comes with."""
    form = random.choice((messages.JSON, messages.MSGPACK))
    request = random.choice(VALID_REQUESTS)
    if form.binary and isinstance(request, messages.PublishRequest):
        request = messages.PublishRequest(1.0, 2.0, messages.MSGPACK.encode_payload({"a": 1}), True)
    body = bytearray(form.encode(request))
    way = random.randrange(7)
    if way == 0:
        body = bytearray(random.randbytes(random.randrange(200)))
    elif way == 1:
        body = body[: random.randrange(len(body))]
    elif way == 2:
        for _ in range(random.randrange(1, 6)):
            body[random.randrange(len(body))] = random.randrange(256)
    elif way == 3:
        place = random.randrange(len(body))
        body[place:place] = random.randbytes(random.randrange(1, 20))
    elif way == 4:
        body = bytearray(b"[" * random.randrange(1, 5_000))
    elif way == 5 and not form.binary:
        fields: dict[str, Any] = messages.JSON.decode_payload(Raw(bytes(body)))
        fields[random.choice([*fields, "r", "z", "subscription"])] = random.choice(NUMBERS)
        body = bytearray(messages.JSON.encode_payload(fields))
    opcode = random.choice((TEXT, BINARY)) if way == 6 else (BINARY if form.binary else TEXT)
    if opcode == TEXT:  # else it would be the last of its connection
        body = bytearray(body.decode(errors="replace").encode())
    return bytes(body), opcode


def malformed_frame(random: Random) -> bytes:
    """What is not even a frame, or a frame that breaks RFC 6455."""
    body = random.randbytes(random.randrange(120))
    way = random.randrange(9)
    if way == 0:
        return random.randbytes(random.randrange(1, 300))
    if way == 1:
        return masked(body, random.choice((3, 4, 5, 6, 7, 11, 12, 15)))
    if way == 2:
        return bytes((0x81, len(body))) + body  # not masked
    if way == 3:
        return b"\x82\xff" + (2**40).to_bytes(8, "big") + body  # far too large
    if way == 4:
        return masked(body, random.choice((8, 9, 10)), fin=False)
    if way == 5:
        return masked(body, 8)  # a close whose code and reason are noise
    if way == 6:
        return masked(b"\xff" + body)  # a text that is not UTF-8
    if way == 7:
        return masked(body, random.randrange(1, 8) << 4 | BINARY)  # reserved bits
    return masked(body)[: random.randrange(1, len(body) + 3)]


async def send_malformed_frames(node: Server, random: Random, frames: int) -> None:
    """Send so many bad frames over as many connections as it takes."""
    while frames > 0:
        client = await connect_raw(node)
        if random.random() < 0.8:
            client.send_request(messages.JoinRequest("odd"))
        for _ in range(min(frames, random.randrange(1, 400))):
            frames -= 1
            body, opcode = malformed_request(random)
            client.writer.write(masked(body, opcode))
        if random.random() < 0.5:
            client.writer.write(malformed_frame(random))
            frames -= 1
        await _read_a_little(client)
        client.vanish()


async def _read_a_little(client: RawClient) -> None:
    try:
        await asyncio.wait_for(client.writer.drain(), 5)
        while await asyncio.wait_for(client.reader.read(65_536), 0.02):
            pass
    except (TimeoutError, ConnectionError):
        pass


async def connect_and_vanish(node: Server, random: Random, times: int, stay: float = 0.1) -> None:
    """Connect, do something, vanish; so many times."""
    for _ in range(times):
        client = await connect_raw(node)
        for _ in range(random.randrange(8)):
            client.send_request(random.choice((messages.JoinRequest("g"), *VALID_REQUESTS)))
        await asyncio.sleep(random.uniform(0, stay))
        if random.random() < 0.3:
            client.send_request(messages.LeaveRequest())
            await asyncio.sleep(0)
        client.vanish()


class WellBehavedClients:
    """A publisher and a subscriber that must not be disturbed meanwhile."""

    async def __aenter__(self) -> "WellBehavedClients":
        self.published = 0
        self._task = asyncio.create_task(self._publish())
        return self

    def __init__(self, node: Server) -> None:
        self._node, self._over = node, False

    async def _publish(self) -> None:
        self.ann = await join_client(self._node, "ann", messages.MSGPACK)
        bob = await join_client(self._node, "bob")
        await self.ann.ask(messages.SubscribeRequest, 1, Area(x=-500.0, y=-500.0, r=5.0))
        while not self._over or self.published <= 10:
            await bob.ask(
                messages.PublishRequest,
                -500.0,
                -500.0,
                messages.JSON.encode_payload(self.published),
            )
            self.published += 1
            await asyncio.sleep(0.005)
        for one in (self.ann, bob):
            one.send_request(messages.LeaveRequest())
            await asyncio.wait_for(one.gone.wait(), PATIENCE_S)

    async def __aexit__(self, *_: object) -> None:
        self._over = True
        await asyncio.wait_for(self._task, PATIENCE_S)
        received = [
            messages.MSGPACK.decode_payload(m.payload) for m in self.ann.of(messages.MessageNotice)
        ]
        assert received == list(range(self.published))


async def nothing_left(node: Server) -> None:
    """All connections gone: so are their client states, subscriptions and timers."""
    async with asyncio.timeout(PATIENCE_S):
        while node.gateway.sessions or node._fronts or other_tasks():
            await asyncio.sleep(0.05)
    assert [client for client in node.realm.clients if client is not None] == []
    assert gauges(node.gateway)["subscriptions"][1] == 0
    assert [one for one in node.gateway._session_at if one is not None] == []
    realm = node.realm
    assert (len(realm._subscription_slots), len(realm._fences), realm._throttled) == (0, 0, {})
    async with asyncio.timeout(PATIENCE_S):  # picows keeps one that broke the protocol for a moment
        while _sessions(node):
            await asyncio.sleep(0.2)


def other_tasks() -> set[asyncio.Task[Any]]:
    return {task for task in asyncio.all_tasks() if task is not asyncio.current_task()}


def _sessions(node: Server) -> list[Session]:
    """Of this node; tests before this one may have left others."""
    gc.collect()
    sessions = [thing for thing in gc.get_objects() if type(thing) is Session]
    return [session for session in sessions if session.gateway is node.gateway]


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))
