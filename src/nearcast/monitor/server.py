"""The server of the page: routes of a live node (`LiveMonitor`), or of a trace (`serve_replay`).

The page itself is plain files. What it asks for is answered by routes that a node's own HTTP table
takes in, so that the page, the script and the WebSocket come from one port.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from signal import SIGINT, SIGTERM
from typing import Any

import uvloop
from msgspec.structs import replace

from nearcast.client_protocol.websocket_framing import WebSocketEndpoint
from nearcast.monitor import feed
from nearcast.monitor.replay import TraceReplay
from nearcast.server.config import LimitSettings
from nearcast.server.http.connections import OpenConnections
from nearcast.server.http.protocol import (
    HttpConnection,
    HttpError,
    HttpRequest,
    HttpResponse,
    HttpRoutes,
    Route,
    json_response,
)
from nearcast.server.metrics import BOUNDS, Metrics
from nearcast.server.server import Server
from nearcast.storage import AnyPath

STATIC = Path(__file__).parent / "static"
PICTURE_S = 0.1  # for which one picture serves all who ask
REQUEST = 4_096  # bytes that a page may send
RATE = 500  # requests that it may make in a second
BINARY = "application/octet-stream"
DEFAULT_SIZE = 1_000.0  # of the world on the page, while nobody is in it


def add_page(routes: HttpRoutes) -> None:
    routes.add_file("/", STATIC / "index.html")
    routes.add_folder("/monitor/", STATIC)


# A live node.


def allow_other_nodes(route: Route) -> Route:
    """The same for the page of another node. Whoever may ask at all may do so from any page: who
    that is, a token says, and without tokens only pages of this machine are answered."""

    async def answer(request: HttpRequest) -> HttpResponse:
        answered = route(request)
        response = answered if isinstance(answered, HttpResponse) else await answered
        origin = request.headers.get("origin")
        if origin is None:
            return response
        return replace(response, headers=(("Access-Control-Allow-Origin", origin),))

    return answer


class LiveMonitor:
    """What the page asks of a live node."""

    def __init__(self, service: Server, game_size: float | None = None) -> None:
        """`game_size`: the side of the square on which bots play, if they do."""
        self._service, self._game_size = service, game_size
        self._picture, self._drawn = b"", -1.0
        add_page(service.routes)
        guarded = service.api.guarded
        service.routes.add("GET", "/monitor/about", guarded(self._about))
        service.routes.add("GET", "/monitor/world", allow_other_nodes(guarded(self._world)))
        service.routes.add("GET", "/monitor/numbers", allow_other_nodes(guarded(self._numbers)))

    def _about(self, _: HttpRequest) -> HttpResponse:
        gateway, game, size = self._service.gateway, self._game_size is not None, self._game_size
        bounds = None if game else feed.world_bounds(gateway.realm, gateway.now())
        size = DEFAULT_SIZE if size is None else size
        return json_response(
            {
                "mode": "live",
                "game": game,
                "geometry": gateway.realm.geometry,
                "bounds": bounds or [[0, 0], [size, size]],
            }
        )

    def _world(self, _: HttpRequest) -> HttpResponse:
        now = asyncio.get_running_loop().time()
        if now - self._drawn >= PICTURE_S:
            gateway = self._service.gateway
            self._picture, self._drawn = feed.world_snapshot(gateway.realm, gateway.now()), now
        return HttpResponse(self._picture, kind=BINARY)

    async def _numbers(self, _: HttpRequest) -> HttpResponse:
        service = self._service
        gateway, recording = service.gateway, service.recording
        trace = recording.path if recording else None
        return json_response(
            {
                "t": gateway.now(),
                "counters": gateway.metrics.snapshot(),
                "latency": {"bounds": BOUNDS, "counts": gateway.metrics.latency.counts},
                "nodes": [feed.node_summary(service)],
                "cluster": feed.cluster_summary(service.cluster) if service.cluster else None,
                "trace": str(trace) if trace else None,
                # Not from a store: a slow one would hold up the page.
                "judged": await asyncio.to_thread(feed.latest_analysis, trace, service.began)
                if isinstance(trace, Path)
                else None,
            }
        )


def run_until_signal(act: Callable[[asyncio.Event], Any]) -> None:
    """Run it; SIGINT or SIGTERM set the event that it waits for."""

    async def main() -> None:
        loop, stop = asyncio.get_running_loop(), asyncio.Event()
        for signal in (SIGINT, SIGTERM):
            loop.add_signal_handler(signal, stop.set)
        await act(stop)

    uvloop.run(main())


# A trace.


def replay_routes(replay: TraceReplay) -> HttpRoutes:
    """The routes of the page for a trace."""
    routes = HttpRoutes()
    add_page(routes)

    def about(_: HttpRequest) -> HttpResponse:
        scenario = replay.scenario
        kinds = dict.fromkeys(
            str(scenario[name]) for name in ("protocol", "workload") if name in scenario
        )
        title = " · ".join(kinds)
        return json_response(
            {
                "mode": "replay",
                "name": replay.path.resolve().name,
                "title": f"{title} · {replay.path}" if title else str(replay.path),
                "geometry": replay.geometry,
                "bounds": replay.bounds(),
                "first": replay.first,
                "last": replay.last,
                "tables": {name: table.rows for name, table in replay.tables.items()},
            }
        )

    async def world(request: HttpRequest) -> HttpResponse:
        try:
            at = int(request.query.get("at", replay.first))
        except ValueError:
            raise HttpError(400, "at must be a moment in microseconds") from None
        at = min(max(at, replay.first), replay.last)
        return HttpResponse(await asyncio.to_thread(replay.world, at), kind=BINARY)

    routes.add("GET", "/monitor/about", about)
    routes.add("GET", "/monitor/world", world)
    routes.add("GET", "/monitor/seconds", lambda _: json_response(replay.seconds.table()))
    return routes


async def serve_replay(
    trace: AnyPath, port: int, ready: Callable[[str], None], stop: asyncio.Event
) -> None:
    """A trace in the same page, on this machine alone, until told to stop."""
    replay = await asyncio.to_thread(TraceReplay, trace)
    replay.seconds.start()
    routes, fronts = replay_routes(replay), set[HttpConnection]()
    connections = OpenConnections(LimitSettings(), Metrics())

    def refuse(_: HttpRequest) -> WebSocketEndpoint:
        raise HttpError(404, "a trace has no clients")

    server = await asyncio.get_running_loop().create_server(
        lambda: HttpConnection(routes, refuse, REQUEST, RATE, fronts, connections),
        "127.0.0.1",
        port,
    )
    ready(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/")
    await stop.wait()
    server.close()
    for front in list(fronts):
        front.close()
