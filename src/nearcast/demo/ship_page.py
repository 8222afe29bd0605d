"""The page on which a person flies a ship among bots that are peers (`demo.peer_bots`).

Each page gets a peer of its own in this process: a node with a key and a port, one more member of
the overlay. The page talks to it over a WebSocket in the client protocol, and shows what that peer
receives. So what is seen is what the overlay delivers.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from picows import WSMsgType, WSTransport

from nearcast.client_protocol import messages
from nearcast.client_protocol.websocket_framing import WebSocketEndpoint
from nearcast.demo.peer_bots import PeerBots
from nearcast.demo.ship_control import ShipControl
from nearcast.errors import MalformedMessageError
from nearcast.monitor.server import RATE, REQUEST, STATIC
from nearcast.peer.peer import LivePeer, format_address
from nearcast.scenario import Setting
from nearcast.server.access.tokens import foreign_page_refusal
from nearcast.server.config import LimitSettings
from nearcast.server.http.api import JAVASCRIPT
from nearcast.server.http.connections import OpenConnections
from nearcast.server.http.protocol import (
    HttpConnection,
    HttpError,
    HttpRequest,
    HttpResponse,
    HttpRoutes,
    json_response,
)
from nearcast.server.metrics import Metrics
from nearcast.workloads import planetpi4_game as rules
from nearcast.workloads.planetpi4 import PlanetPi4
from nearcast.workloads.planetpi4_game import StaticBalls
from nearcast.workloads.planetpi4_rules import ENERGY, SHIELD, TICK

GAME_SETTINGS: dict[str, Setting] = {"size": 700.0, "asteroids": 60}  # small, and full of ships
# Two subscriptions meet in their first round nearly always.
OVERLAY_SETTINGS: dict[str, dict[str, Setting]] = {"bubblestorm": {"lambda": 2.0}}
MAX_PERSONS = 16
MAX_WAITING = 100  # requests of a page whose peer is still joining


def page_settings(overlay: str) -> dict[str, Setting]:
    """Settings of the game and of the overlay in which it is flown."""
    return {**GAME_SETTINGS, **OVERLAY_SETTINGS.get(overlay, {})}


def landscape(peer_bots: PeerBots) -> dict[str, Any]:
    """What does not change: the world, and the rules by which the page flies its own ship."""
    assert peer_bots.game_log is not None
    assert isinstance(peer_bots.workload, PlanetPi4)
    game, chosen = peer_bots.game_log.game, peer_bots.workload.parameters
    return {
        "mode": "ship",
        "size": chosen.size,
        "sight": chosen.radius,
        "rate": chosen.rate,
        "speed": chosen.speed,
        "boost": chosen.boost,
        "respawn": chosen.respawn,
        "overlay": peer_bots.bots[0].member.about.overlay,
        "servers": sum(name not in peer_bots.ships for name in peer_bots.host.nodes),
        "asteroids": _balls(game.asteroids),
        "zones": _balls(game.zones),
        "shield": SHIELD,
        "energy": ENERGY,
        "recharge": rules.RECHARGE,
        "booster": rules.BOOSTER,
        "repair": rules.REPAIR,
        "thrust": rules.THRUST,
        "hull": rules.HULL,
        "aim": rules.AIM,
        "beam": {
            "cost": rules.BEAM_COST,
            "damage": rules.BEAM_DAMAGE,
            "pause": rules.BEAM_TICKS * TICK / 1e6,
        },
        "crash": {"damage": rules.CRASH_DAMAGE, "grace": rules.GRACE * TICK / 1e6},
    }


def _balls(rocks: StaticBalls) -> list[list[float]]:
    pairs = zip(rocks.places.tolist(), rocks.radii.tolist(), strict=True)
    return [[*place, radius] for place, radius in pairs]


class ShipPageConnection(WebSocketEndpoint):
    """The WebSocket of one page, and its peer."""

    def __init__(self, peer_bots: PeerBots, team: int) -> None:
        super().__init__(4 * REQUEST, ShipPageConnection.received)
        self._peer_bots, self._team = peer_bots, team
        self._control = ShipControl(self._send)
        self._member: LivePeer | None = None
        self._joining: asyncio.Task[None] | None = None
        self._waiting: list[bytes] = []
        self._gone = False

    def received(self, payload: bytes, binary: bool) -> None:
        if binary:
            return
        if self._member is not None:
            self._obey(self._member, payload)
        elif self._joining is None:
            self._begin(payload)
        elif len(self._waiting) < MAX_WAITING:
            self._waiting.append(payload)

    def _begin(self, line: bytes) -> None:
        try:
            request = messages.JSON.read_request(line)
        except MalformedMessageError as why:
            self._send(messages.ErrorNotice(str(why), messages.JSON.request_id(line)))
            return
        if isinstance(request, messages.JoinRequest):
            self._joining = asyncio.create_task(self._join(request.id))
        else:
            self._send(messages.ErrorNotice("join first", getattr(request, "id", None)))

    async def _join(self, number: int | None) -> None:
        try:
            member = await self._peer_bots.add_person(self._control, self._team)
        except (OSError, ValueError) as why:
            self._send(messages.ByeNotice(f"no peer for this page: {why}"))
            return
        if self._gone:  # in the meantime
            self._peer_bots.remove_person(member)
            return
        self._member = member
        self._send(member.welcome(number))
        waiting, self._waiting = self._waiting, []
        for line in waiting:
            self._obey(member, line)

    def _obey(self, member: LivePeer, line: bytes) -> None:
        host = self._peer_bots.host
        if member.node.id in host.nodes:
            self._control.obey(host, member.node.id, line)
        else:
            self._send(messages.ByeNotice("the peer of this page has stopped"))

    def on_ws_disconnected(self, transport: WSTransport) -> None:
        del transport
        self._gone = True
        if self._member is not None:
            self._peer_bots.remove_person(self._member)
            self._member = None

    def _send(self, notice: messages.Notice) -> None:
        if not self._gone:
            self.transport.send(WSMsgType.TEXT, messages.JSON.encode(notice))


def add_ship_routes(routes: HttpRoutes, peer_bots: PeerBots) -> None:
    routes.add_file("/", STATIC / "ship.html")
    routes.add_folder("/monitor/", STATIC)
    routes.add_file("/nearcast.js", JAVASCRIPT)
    about = json_response(landscape(peer_bots))
    routes.add("GET", "/monitor/about", lambda _: about)
    routes.add("GET", "/monitor/ships", lambda _: _ships(peer_bots))


def _ships(peer_bots: PeerBots) -> HttpResponse:
    """Teams, what each peer knows of the ships in its sight, and the counts of the bots."""
    teams = {str(name): team for name, team in peer_bots.teams.items()}
    awareness = {str(name): seen for name, seen in peer_bots.awareness().items()}
    return json_response(
        {
            "teams": teams,
            "awareness": awareness,
            "persons": len(peer_bots.ship_controls),
            **peer_bots.counts()._asdict(),
        }
    )


async def run_ship_page(
    peer_bots: PeerBots,
    port: int,
    report: Callable[[str], None],
    ready: Callable[[str, str], None],
    stop: asyncio.Event,
) -> None:
    """Run the bots, their game and the page, on this machine only, until `stop` is set.

    `ready` gets the address of the page, and the one where further peers may join.
    """
    playing = asyncio.create_task(_begin(peer_bots, port, report, ready))
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait([playing, stopping], return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    playing.cancel()
    try:
        await playing
    except asyncio.CancelledError:
        return
    finally:
        await peer_bots.stop()


async def _begin(
    peer_bots: PeerBots, port: int, report: Callable[[str], None], ready: Callable[[str, str], None]
) -> None:
    loop, fronts, visits = asyncio.get_running_loop(), set[HttpConnection](), 0
    connections = OpenConnections(LimitSettings(), Metrics())

    def upgrade(request: HttpRequest) -> WebSocketEndpoint:
        nonlocal visits
        why = foreign_page_refusal(request.headers, True)
        if why is not None:
            raise HttpError(403, why)
        if not peer_bots.begins:
            raise HttpError(503, "the bots are still joining")
        if len(peer_bots.ship_controls) >= MAX_PERSONS:
            raise HttpError(503, f"{MAX_PERSONS} persons fly here already")
        visits += 1
        teams = max(peer_bots.teams.values(), default=0) + 1
        return ShipPageConnection(peer_bots, visits % teams)

    # First, so that a port in use is an error before anybody waits for bots.
    routes = HttpRoutes()
    server = await loop.create_server(
        lambda: HttpConnection(routes, upgrade, REQUEST, RATE, fronts, connections),
        "127.0.0.1",
        port,
    )
    try:
        where = await peer_bots.start_peers(report)
        add_ship_routes(routes, peer_bots)
        page = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        ready(page, format_address(*where))
        await peer_bots.play()
    finally:
        server.close()
        for front in list(fronts):
            front.close()
