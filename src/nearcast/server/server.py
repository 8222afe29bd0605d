"""A live node as a whole: realm, gateway, HTTP and recording, from its start to its end.

`async with Server(settings) as server:` embeds one; `serve(settings)` runs one until a signal. It
is ready once every kernel is loaded, so that the first message is not slow.
"""

import asyncio
import logging
import resource
import ssl
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from random import SystemRandom
from signal import SIGHUP, SIGINT, SIGTERM
from typing import TYPE_CHECKING, Self

import numpy as np
import uvloop
from msgspec import Raw

from nearcast.client_protocol import messages
from nearcast.client_protocol.geometry_json import PLANE, Area, Geometry
from nearcast.client_protocol.limits import Limits
from nearcast.client_protocol.websocket_framing import CLOSE_GRACE_S
from nearcast.errors import AccessError
from nearcast.matching import MATCHERS
from nearcast.scenario import Setting
from nearcast.server import memory, socket_reads, socket_writes
from nearcast.server.access.tokens import AccessControl, load_access
from nearcast.server.clock import clock
from nearcast.server.config import Settings
from nearcast.server.gateway import Gateway
from nearcast.server.http import cors
from nearcast.server.http.api import HttpApi
from nearcast.server.http.connections import HTTP
from nearcast.server.http.protocol import HttpConnection, HttpError, HttpRequest
from nearcast.server.session import Session
from nearcast.server.workers import Workers
from nearcast.service.frames import delivery_frames
from nearcast.service.realm import Realm
from nearcast.service.service import Service
from nearcast.storage import AnyPath, locate
from nearcast.trace.live_recording import LiveRecording
from nearcast.trace.recorder import Recorder
from nearcast.trace.sinks import MemoryTrace, holds_trace

if TYPE_CHECKING:
    from nearcast.server.cluster_host import ClusterHost
    from nearcast.server.cluster_setup import ClusterSetup
    from nearcast.service.cluster.cluster_node import ClusterNode
    from nearcast.service.cluster.service import ClusterService

LOG = logging.getLogger(__name__)
ENGINE = "keyed"
NODE_NUMBER = 0  # of a node alone, in the trace; clients' begin at 1
OTHER_FILES = 256  # open files beside connections of clients: the trace, the cluster, libraries
HANDSHAKE_S = 10.0  # for TLS: two round trips, on a bad link as well


class Server:
    """One live node on the running loop."""

    def __init__(self, settings: Settings | None = None) -> None:
        self.settings = settings or Settings()
        self._reloading = asyncio.Lock()
        self.recording: LiveRecording | None = None
        self._fronts: set[HttpConnection] = set()
        self.gateway: Gateway
        self._cluster_service: ClusterService | None = None
        self.cluster_host: ClusterHost | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @property
    def realm(self) -> Realm:
        return self.gateway.realm

    @property
    def cluster(self) -> "ClusterNode | None":
        """This node's part in its cluster, if it is in one."""
        return self._cluster_service.cluster if self._cluster_service is not None else None

    async def start(self) -> None:
        """Load tokens and kernels, open the port, and join the cluster, if there is one."""
        settings, now = self.settings, clock()
        limits = settings.limits
        room = _allow_connections(limits.clients + limits.pending + HTTP)
        tls = _tls(settings)
        tokens = await self._load()
        warm_up()
        self.began = now()
        if settings.record:
            self.recording = LiveRecording(
                _fresh(settings.trace) if settings.trace else _dated(),
                self.began,
                {"engine": ENGINE, "name": settings.name, **geometry_setting(settings.geometry)},
            )
        recorder = self.recording.recorder if self.recording else None
        setup = _cluster_setup(settings)
        engine = MATCHERS[ENGINE]()
        if setup is None:
            realm = Realm(engine, limits, recorder, geometry=settings.geometry)
            service = Service(
                NODE_NUMBER, SystemRandom(), realm, limits, name=settings.name,
                clients=limits.clients, requests=limits.requests,
            )  # fmt: skip
        else:
            service = self._cluster_service = setup.service(engine, settings, recorder)
        self.gateway = Gateway(
            service, limits, tokens, now,
            flush_s=settings.flush_ms / 1000, prompt=settings.prompt, workers=settings.workers,
            recording=self.recording,
        )  # fmt: skip
        self.gateway.connections.room = room
        self.api = HttpApi(self.gateway, settings.origins)
        self.routes = self.api.routes
        try:
            self._server = await asyncio.get_running_loop().create_server(
                self._front, settings.host, settings.port, ssl=tls, backlog=4096,
                ssl_handshake_timeout=HANDSHAKE_S if tls else None,
            )  # fmt: skip
        except OSError:
            await self._close("it could not start")
            raise
        self.port: int = self._server.sockets[0].getsockname()[1]
        self.url = f"{'wss' if tls else 'ws'}://{_bracketed(settings.host)}:{self.port}/ws"
        if setup is not None and self._cluster_service is not None:
            url = self.url.removesuffix("/ws")
            try:
                self.cluster_host = await setup.enter(self.gateway, self._cluster_service, url)
            except OSError:
                await self.stop("it could not join")
                raise

    async def reload(self) -> None:
        """Read the token file and the keys of JWTs again. Clients whose token still stands stay; if
        something is wrong with the files, all stays as it was."""
        async with self._reloading:
            try:
                self.gateway.replace_access(await self._load())
            except AccessError as why:
                LOG.warning("tokens stay as they were: %s", why)

    async def _load(self) -> AccessControl:
        settings = self.settings
        if not (settings.token_file or settings.jwt.keys):
            return load_access(settings.token)
        return await asyncio.to_thread(
            load_access, settings.token, settings.token_file, settings.jwt
        )

    async def stop(self, reason: str = "the node stops") -> None:
        """Accept no new clients, send a bye notice to the others, and finish the trace."""
        self._server.close()
        if self.cluster_host is not None:
            await self.cluster_host.leave()
        await self._close(reason)
        with suppress(TimeoutError):
            await asyncio.wait_for(self._server.wait_closed(), CLOSE_GRACE_S)

    async def _close(self, reason: str) -> None:
        self.gateway.close(reason)
        for front in list(self._fronts):
            front.close()
        for _ in range(int(10 * CLOSE_GRACE_S) + 5):
            if not self.gateway.sessions:
                break
            await asyncio.sleep(0.1)
        if self.recording:
            self.recording.close({"ended": reason, "counters": self.gateway.metrics.snapshot()})

    def _front(self) -> asyncio.Protocol:
        limits = self.settings.limits
        return HttpConnection(
            self.routes, self._upgrade, limits.frame, limits.requests, self._fronts,
            self.gateway.connections, self.settings.origins,
        )  # fmt: skip

    def _upgrade(self, request: HttpRequest) -> Session:
        open_to_all = self.gateway.access.open
        if reason := cors.page_refusal(request.headers, open_to_all, self.settings.origins):
            raise HttpError(403, reason)
        return self.gateway.admit(request)


def serve(settings: Settings, ready: Callable[[Server], None] = lambda _: None) -> None:
    """Run a node until SIGTERM or SIGINT; `ready` is called once it serves."""
    uvloop.run(_serve(settings, ready))


async def _serve(settings: Settings, ready: Callable[[Server], None]) -> None:
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    for signal in (SIGTERM, SIGINT):
        loop.add_signal_handler(signal, stop.set)
    async with Server(settings) as service:
        memory.release_start()
        reloads: set[asyncio.Task[None]] = set()

        def reload() -> None:
            task = loop.create_task(service.reload())
            reloads.add(task)
            task.add_done_callback(reloads.discard)

        if settings.token_file or settings.jwt.keys:
            loop.add_signal_handler(SIGHUP, reload)
        ready(service)
        await stop.wait()


def geometry_setting(geometry: Geometry) -> dict[str, Setting]:
    """What the scenario of a recording says of the world's coordinates; a plane is understood."""
    return {} if geometry == PLANE else {"geometry": geometry}


def warm_up() -> None:
    """Load or compile every kernel, by using a small realm once."""
    recorder = Recorder(MemoryTrace())
    realm = Realm(MATCHERS[ENGINE](), Limits(), recorder)
    clients = [realm.join(0, name) for name in ("a", "b")]
    areas = (
        Area(x=0.0, y=0.0, r=1.0),
        Area(x=0.0, y=0.0, r=1.0, vx=1.0),
        Area(x=0.0, y=0.0, rx=1.0, ry=1.0, to=[[2.0, 2.0], [0.0, 0.0]], speed=1.0),
        Area(formula="x >= -3 + t, x <= 3 + t"),
        Area(geometry={"type": "Polygon", "coordinates": [[[0, 0], [1, 0], [0, 1], [0, 0]]]}),
    )
    for number, area in enumerate(areas):
        condition = "level > 1" if number == 0 else None
        realm.subscribe(
            1, clients[0], messages.SubscribeRequest(number, area, condition, watch=True)
        )
    realm.subscribe(1, clients[0], messages.SubscribeRequest(len(areas), Area(), "level == 2"))
    for number, area in enumerate((*areas[:2], areas[4])):
        realm.subscribe(
            1, clients[0],
            messages.SubscribeRequest(
                len(areas) + 1 + number, area, events=["enter", "leave", "cross", "outside"],
                dwell=1.0 if number == 0 else None,
            ),
        )  # fmt: skip
    near = messages.SubscribeRequest(len(areas) + 4, events=["enter"], near=1.0)
    realm.subscribe(1, clients[0], near)
    for t in range(2, 5):
        for payload in (b"1", b"", b"2"):  # enough for a kernel to judge the filter
            word = messages.PublishRequest(0.0, 0.0, Raw(payload), True, {"level": 2})
            realm.publish(clients[1], word, messages.JSON)
        flushed = realm.flush(t * 1_000_000)
        realm.record_deliveries(flushed.t, flushed)
        realm.tick(t * 1_000_000 + 1)
    frame = messages.MSGPACK.encode(messages.PublishRequest(0.0, 0.0, Raw(b"\x01")))
    slots, every = np.array([one.slot for one in clients]), np.ones(len(clients), np.int64)
    realm.publish_plain(slots, [frame, frame], every, lambda _: None)
    post = delivery_frames(realm.flush(5_000_000), realm.numbers, every == 1)
    if socket_writes.LINUX:
        socket_writes.write_frames(
            np.full(len(post.clients), socket_writes.NO_SOCKET), post, Workers()
        )
        room = socket_reads.SocketRoom(Workers())
        room.read([])
        room.split(frame)
    recorder.close()


def _tls(settings: Settings) -> ssl.SSLContext | None:
    if not settings.tls_certificate:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(settings.tls_certificate, settings.tls_key)
    return context


def _cluster_setup(settings: Settings) -> "ClusterSetup | None":
    """A node alone starts without loading what only clusters need."""
    if not settings.cluster.key:
        return None
    from nearcast.server.cluster_setup import ClusterSetup

    return ClusterSetup(settings.cluster)


def _dated() -> Path:
    return Path("traces") / datetime.now(UTC).strftime("%Y%m%d-%H%M%S-%f")


def _fresh(trace: str) -> AnyPath:
    """The folder itself; or, if it holds the trace of an earlier run, the first free one of
    `trace-2`, `trace-3` and so on: so a node that was killed starts again by the same command."""
    wanted = folder = locate(trace)
    for number in count(2):
        if not holds_trace(folder):
            break
        folder = wanted.with_name(f"{wanted.name}-{number}")
    if folder != wanted:
        LOG.warning("%s holds the trace of an earlier run; recording to %s", wanted, folder)
    return folder


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _allow_connections(wanted: int) -> int:
    """Each connection is an open file, of which systems grant few until asked for more. How many
    connections there is room for."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    more = wanted + OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < more:
        most = more if hard == resource.RLIM_INFINITY else min(more, hard)
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
            soft = most
        if soft < more:
            LOG.warning(
                "the system allows %d open files, but limits.clients and limits.pending need %d",
                soft, more,
            )  # fmt: skip
            return soft - OTHER_FILES
    return wanted
