"""Clients for tests of the live service: real sockets, and every notice is kept."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Coroutine
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import uvloop
from picows import WSFrame, WSListener, WSMsgType, WSTransport, ws_connect

from nearcast.client_protocol import messages
from nearcast.client_protocol.geometry_json import Area
from nearcast.server.config import LimitSettings, Settings
from nearcast.server.server import Server
from nearcast.storage import AnyPath
from nearcast.trace.reader import read
from nearcast.trace.validate import validate
from support.brute_force import delivered, expected
from support.patience import PATIENCE_S

T = TypeVar("T")


def run(story: Coroutine[Any, Any, T]) -> T:
    return uvloop.run(story)


def service(
    trace: AnyPath | None = None, limits: LimitSettings | None = None, **settings: Any
) -> Server:
    """A node on a free port. It records a trace if `trace` is given."""
    if trace is not None:
        settings["trace"] = str(trace)
    limits = limits or LimitSettings(requests=100_000)
    return Server(Settings(port=0, record=trace is not None, limits=limits, **settings))


class LiveClient(WSListener):
    """Keeps every notice; `await_notice` waits until one of a kind has come."""

    def __init__(self, form: messages.Encoding) -> None:
        self.form = form
        self.notices: list[Any] = []
        self._by_kind: dict[type, list[Any]] = defaultdict(list)
        self._answers: dict[int, Any] = {}
        self.gone = asyncio.Event()
        self._news = asyncio.Event()
        self._ids = 0
        self.entity = 0

    def on_ws_connected(self, transport: WSTransport) -> None:
        self.transport = transport

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        if frame.msg_type == WSMsgType.CLOSE:
            transport.send_close()
            transport.disconnect()
        elif frame.msg_type in (WSMsgType.TEXT, WSMsgType.BINARY):
            assert (frame.msg_type == WSMsgType.BINARY) == self.form.binary
            notice = self.form.read_notice(frame.get_payload_as_bytes())
            self.notices.append(notice)
            self._by_kind[self.form.message_class(notice)].append(notice)
            if getattr(notice, "id", None) is not None:
                self._answers[notice.id] = notice
            self._news.set()

    def on_ws_disconnected(self, transport: WSTransport) -> None:  # noqa: ARG002
        self.gone.set()
        self._news.set()

    def send(self, frame: bytes) -> None:
        kind = WSMsgType.BINARY if self.form.binary else WSMsgType.TEXT
        self.transport.send(kind, frame)

    def send_request(self, request: messages.Request) -> None:
        self.send(self.form.encode(request))

    def of(self, kind: type) -> list[Any]:
        return self._by_kind[kind]

    async def await_notice(self, kind: type, count: int = 1) -> Any:
        """The count-th notice of this kind."""
        async with asyncio.timeout(PATIENCE_S):
            while len(self.of(kind)) < count:
                assert not self.gone.is_set(), f"closed after {self.notices[-3:]}"
                self._news.clear()
                await self._news.wait()
        return self.of(kind)[count - 1]

    async def ask(self, request_class: type, *fields: Any, **more: Any) -> Any:
        """Send a request with an id, and wait for the answer of that id."""
        self._ids += 1
        number = self._ids
        self.send_request(request_class(*fields, **more, id=number))
        return await self.answer(number)

    async def answer(self, number: int) -> Any:
        """The notice that answers the request of this id."""
        async with asyncio.timeout(PATIENCE_S):
            while number not in self._answers:
                assert not self.gone.is_set(), f"closed after {self.notices[-3:]}"
                self._news.clear()
                await self._news.wait()
        return self._answers[number]

    def deliveries(self) -> list[tuple[int, int]]:
        """Publication and own number of the subscription, in the order of arrival."""
        return [(m.publication, number) for m in self.of(messages.MessageNotice) for number in m.to]


async def join_client(
    node: Server,
    name: str = "",
    form: messages.Encoding = messages.JSON,
    token: str = "",
    **more: Any,
) -> LiveClient:
    """A client that is connected and has joined."""
    client = await connect_client(node, form, **more)
    welcome = await client.ask(messages.JoinRequest, name, token)
    assert client.form.message_class(welcome) is messages.WelcomeNotice, welcome
    client.entity = welcome.entity
    return client


async def connect_client(
    node: Server, form: messages.Encoding = messages.JSON, **more: Any
) -> LiveClient:
    """A client that is connected and has not joined."""
    _, client = await ws_connect(lambda: LiveClient(form), node.url, **more)
    assert isinstance(client, LiveClient)
    return client


def stray_area(random: Random) -> Area:
    """Discs and boxes, half of them on the move, walks, and formulas."""
    x, y = random.uniform(0, 300), random.uniform(0, 300)
    speed = {"vx": random.uniform(-30, 30), "vy": random.uniform(-30, 30)}
    kind = random.randrange(6)
    if kind == 0:
        return Area(x=x, y=y, r=random.uniform(10, 80))
    if kind == 1:
        return Area(x=x, y=y, r=random.uniform(10, 80), **speed, gx=random.uniform(-5, 5))
    if kind == 2:
        return Area(x=x, y=y, rx=random.uniform(5, 90), ry=random.uniform(5, 90))
    if kind == 3:
        lasts = random.choice([None, 0.7])
        return Area(x=x, y=y, rx=40.0, ry=30.0, **speed, lasts=lasts)
    if kind == 4:
        stops = [[random.uniform(0, 300), random.uniform(0, 300)] for _ in range(3)]
        return Area(x=x, y=y, r=50.0, to=stops, speed=200.0)
    return Area(formula=f"x >= {x} - 20 * t, x <= {x} + 60, y >= {y}")


FILTERS = (None, None, "level > 3", "level > 8 - 2 * t")
CHANNELS = ("", "", "", "chat")


async def publish_and_move(client: LiveClient, random: Random, seconds: float, rate: float) -> None:
    """Publish all the time and change subscriptions now and then; each number is used once."""
    loop = asyncio.get_running_loop()
    mine: list[int] = []
    next_number = 0
    end = loop.time() + seconds
    while loop.time() < end:
        await asyncio.sleep(random.uniform(0.2, 1.8) / rate)
        choice = random.random()
        area = stray_area(random)
        if (choice < 0.15 and len(mine) < 3) or not mine:
            request: messages.Request = messages.SubscribeRequest(
                next_number, area, random.choice(FILTERS), random.choice(CHANNELS),
                random.random() < 0.2,
            )  # fmt: skip
            mine.append(next_number)
            next_number += 1
        elif choice < 0.25:
            request = messages.MoveRequest(random.choice(mine), area)
        elif choice < 0.28:
            request = messages.SubscribeRequest(random.choice(mine), area)
        elif choice < 0.31:
            request = messages.UnsubscribeRequest(mine.pop())
        else:
            r = random.choice([None, None, 12.0])
            request = messages.PublishRequest(
                random.uniform(0, 300), random.uniform(0, 300),
                client.form.encode_payload({"n": random.randrange(1000)}), random.random() < 0.5,
                {"level": random.randrange(12)}, random.choice(CHANNELS), r=r,
            )  # fmt: skip
        client.send_request(request)


async def run_clients(
    node: Server, count: int, seconds: float, rate: float, seed: int
) -> list[LiveClient]:
    """Run `count` clients of both encodings side by side, until all is delivered."""
    forms = (messages.JSON, messages.MSGPACK)
    clients = [await join_client(node, f"v{n}", forms[n % 2]) for n in range(count)]
    await asyncio.gather(
        *(publish_and_move(v, Random(f"{seed} {n}"), seconds, rate) for n, v in enumerate(clients))
    )
    # An answer comes when all is sent out that its client published; the next one, after all that
    # was sent to that client until then.
    for _ in range(2):
        for client in clients:
            await client.ask(messages.PublishRequest, 1e9, 1e9)
    return clients


def check_deliveries(trace: Path, clients: list[LiveClient]) -> int:
    """Compare with the trace's own truth what was really received; gives how many deliveries."""
    assert validate(trace).problems == ()
    interests, publications = read(trace, "interests"), read(trace, "publications")
    truth = expected_by_windows(interests, publications)
    recorded = delivered(read(trace, "deliveries"))
    assert set(recorded) == truth
    assert len(recorded) == len(truth)
    numbers = defaultdict(list)
    for node, subscription in sorted(
        set(zip(interests["node"].to_pylist(), interests["subscription"].to_pylist(), strict=True))
    ):
        numbers[node].append(subscription)  # a client's numbers count up from 0, as the trace's do
    by_listener = defaultdict(set)
    owner = {s: (node, n) for node, mine in numbers.items() for n, s in enumerate(mine)}
    for publication, subscription in truth:
        node, number = owner[subscription]
        by_listener[node].add((publication, number))
    for client in clients:
        received = client.deliveries()
        assert [pair for pair, times in Counter(received).items() if times > 1] == []
        assert set(received) == by_listener[client.entity]
        last: dict[int, int] = {}
        for message in client.of(messages.MessageNotice):
            assert message.publication > last.get(message.source, 0)
            last[message.source] = message.publication
    return len(truth)


def expected_by_windows(
    interests: pa.Table, publications: pa.Table, window: int = 1_000_000
) -> set[tuple[int, int]]:
    """The brute-force truth, second by second: of interests only those that can matter then."""
    interests = interests.sort_by("t")
    truth: set[tuple[int, int]] = set()
    if not publications.num_rows:
        return truth
    first, last = pc.min_max(publications["t"]).as_py().values()
    for begin in range(first, last + 1, window):
        end = begin + window
        published = publications.filter(
            pc.and_(pc.greater_equal(publications["t"], begin), pc.less(publications["t"], end))
        )
        rows = interests.filter(pc.less(interests["t"], end)).to_pylist()
        standing = {row["subscription"]: row for row in rows if row["t"] <= begin}
        relevant = list(standing.values()) + [row for row in rows if row["t"] > begin]
        truth |= expected(pa.Table.from_pylist(relevant, interests.schema), published)
    return truth
