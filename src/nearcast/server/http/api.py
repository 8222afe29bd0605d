"""What a node answers over plain HTTP: for curl, for probes, for Prometheus, and for browsers."""

import asyncio
import json
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import unquote

import msgspec
from msgspec.structs import replace

from nearcast.client_protocol import messages
from nearcast.client_protocol.geometry_json import EARTH, Area, place_shape
from nearcast.client_protocol.limits import checked_region
from nearcast.errors import Busy, Refused
from nearcast.server import overview
from nearcast.server.access.tokens import Denied
from nearcast.server.gateway import Gateway
from nearcast.server.http import cors
from nearcast.server.http.protocol import (
    HttpError,
    HttpRequest,
    HttpResponse,
    HttpRoutes,
    Route,
    json_response,
)
from nearcast.service.access.grants import Grant, Role
from nearcast.service.client_state import ClientState
from nearcast.service.fences.sets import read_collection
from nearcast.service.service import INTERNAL_ERROR
from nearcast.space.motion import SECOND

if TYPE_CHECKING:
    from nearcast.server.prometheus import MetricsEncoder

NAMES = 1_000  # entities that speak over HTTP; each keeps a client
ANONYMOUS = "curl"
ENTITIES = "/entities/"
FENCES = "/fences/"
EMPTY_COLLECTION = b'{"type": "FeatureCollection"}'
JAVASCRIPT = Path(__file__).with_name("nearcast.js")

Key: TypeAlias = tuple[str, str]

_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])


class HttpApi:
    """The routes of a gateway, and who speaks through them."""

    def __init__(self, gateway: Gateway, origins: cors.Origins = frozenset()) -> None:
        self._gateway, self._origins = gateway, origins
        # By the holder of a token and a name, the least recently used first.
        self._clients: dict[Key, ClientState] = {}
        self._retaining: set[Key] = set()  # those of them who were result to retain a state
        self._metrics_encoder: MetricsEncoder | None = None
        self.routes = HttpRoutes()
        self.routes.add("GET", "/healthz", lambda _: json_response({"ok": True}))
        self.routes.add("GET", "/metrics", self.guarded(self._metrics))
        self.routes.add("GET", "/clients", self.guarded(self._client_costs, "admin"))
        self.routes.add("GET", "/near", self._near)
        self.routes.add("POST", "/publish", self._publish)
        self.routes.add_under("GET", ENTITIES, self._entity)
        self.routes.add_under("DELETE", ENTITIES, self._end)
        for method in ("PUT", "PATCH", "DELETE"):
            self.routes.add_under(method, FENCES, self._change_fences)
        self.routes.add_under("GET", FENCES, self.guarded(self._fences))
        self.routes.add("GET", "/fences", self._fence_sets)
        self.routes.allow_body(FENCES, self._most_fence_bytes)
        # Any page may load it, as a classic script; a module needs to be told so.
        self.routes.add_file("/nearcast.js", JAVASCRIPT, (("Access-Control-Allow-Origin", "*"),))

    def guarded(self, route: Route, role: Role = "read") -> Route:
        """The same for those whose token allows it, and not for pages from elsewhere. It tells of
        the whole node, so a token that limits listening does not allow it."""

        async def answer(request: HttpRequest) -> HttpResponse:
            await self._full_grant(request, role)
            answered = route(request)
            return answered if isinstance(answered, HttpResponse) else await answered

        return answer

    async def _full_grant(self, request: HttpRequest, role: Role = "read") -> Grant:
        grant = await self.grant(request, role)
        if grant.limits_listening:
            raise HttpError(403, "your token limits where you listen: it does not allow this")
        return grant

    async def grant(self, request: HttpRequest, role: Role = "read") -> Grant:
        """What the request may do, or HttpError if that is less than `role`. Wrong tokens are
        answered after a pause."""
        gateway = self._gateway
        if reason := cors.page_refusal(request.headers, gateway.access.open, self._origins):
            raise HttpError(403, reason)
        decision = gateway.check_token(request.token)
        if isinstance(decision, Denied):
            decision = await gateway.recheck_token(request.token, decision)
        if isinstance(decision, Denied):
            await asyncio.sleep(gateway.refusal_delay(request.remote, request.token, decision))
            known = "say a token that this node knows: Authorization: Bearer …"
            reason = known if decision.guess else decision.reason
            raise HttpError(401, reason, (("WWW-Authenticate", "Bearer"),))
        if role == "admin" and decision.role != "admin":
            raise HttpError(403, "your token does not allow this")
        if not gateway.service.quotas.take(decision, gateway.now() / SECOND):
            raise HttpError(429, f"your token allows {decision.requests} requests a second")
        return decision

    async def _publish(self, request: HttpRequest) -> HttpResponse:
        """As the entity "curl", or as the one named by ?name= or in the body."""
        grant = await self.grant(request)
        gateway = self._gateway
        try:
            publish = messages.JSON.read_request(_publish_request(request.body))
            area = place_shape(publish) if grant.within is not None else None
            if reason := grant.refusal(area, publish.channel):
                raise HttpError(403, reason)
            key = grant.holder, request.query.get("name") or publish.name or ANONYMOUS
            publish = replace(publish, name="")  # the entity publishes for itself
            publication = gateway.realm.publish(self._client(key), publish, messages.JSON)
            if publish.retain:
                self._retaining.add(key)
        except Busy as why:
            raise HttpError(503, str(why)) from None
        except (ValueError, Refused) as why:  # a message, a shape, a publication
            raise HttpError(400, str(why)) from None
        outcome = gateway.outcome(publication)
        gateway.schedule_flush()
        try:
            counted = await outcome
        except Exception:
            raise HttpError(500, INTERNAL_ERROR) from None
        result = {"publication": publication, "t": counted.t, "heard": counted.readers}
        silent = {"silent": counted.silent} if counted.silent else {}
        return json_response(result | silent, 202)

    def _client(self, key: Key) -> ClientState:
        """Of the holder's entity with this name; a new one, if there is none."""
        client = self._clients.pop(key, None)
        if client is None:
            if len(self._clients) >= NAMES:
                self._make_room()
            gateway = self._gateway
            client = gateway.realm.join(gateway.now(), key[1], messages.JSON)
        self._clients[key] = client
        return client

    def _make_room(self) -> None:
        """End the entity that has been silent for longest among those that retain nothing."""
        for key in self._clients:
            if key not in self._retaining:
                self._gateway.end_http_entity(self._clients.pop(key))
                return
        raise HttpError(
            503, f"{NAMES} names retain states over HTTP: end one with DELETE {ENTITIES}NAME"
        )

    def _found(self, grant: Grant, request: HttpRequest) -> tuple[Key, ClientState]:
        name = unquote(request.path.removeprefix(ENTITIES))
        key = grant.holder, name
        if key not in self._clients:
            raise HttpError(404, f"nobody speaks over HTTP to this node as {name[:64]!r}")
        return key, self._clients[key]

    async def _entity(self, request: HttpRequest) -> HttpResponse:
        """The state that an entity retained last, on any channel or on ?channel=: one of this
        holder over HTTP, or else the newest of anybody of this name."""
        grant, realm = await self.grant(request), self._gateway.realm
        name = unquote(request.path.removeprefix(ENTITIES))
        if (grant.holder, name) in self._clients or grant.limits_listening:
            known = realm.retained_states(self._found(grant, request)[1])
        else:
            known = realm.states_named(name)
        wanted = request.query.get("channel")
        states = [
            state for state in known if wanted is None or state.accepted.request.channel == wanted
        ]
        if not states:
            raise HttpError(404, f"{name[:64]!r} retains no state there")
        newest = max(states, key=lambda state: (state.t, state.accepted.id))
        return json_response(newest.entity(messages.JSON))

    async def _end(self, request: HttpRequest) -> HttpResponse:
        """An entity of the token's holder leaves."""
        key, client = self._found(await self.grant(request), request)
        del self._clients[key]
        self._retaining.discard(key)
        self._gateway.end_http_entity(client)
        return HttpResponse(b"", 204)

    async def _near(self, request: HttpRequest) -> HttpResponse:
        """?x=&y=&r= and perhaps z, channel, limit: who is there, the closest first. On Earth
        ?lon=&lat=&r= and perhaps alt, low, high."""
        grant = await self.grant(request)
        query, gateway = request.query, self._gateway
        geometry = gateway.realm.geometry
        wanted = messages.NearbyRequest(
            _earth_area(query) if geometry == EARTH else _area(query),
            query.get("channel", ""),
            int(_number(query, "limit", 100.0)),
        )
        try:
            if grant.limits_listening:
                region = checked_region(wanted.area, gateway.limits, geometry)
                if reason := grant.listening_refusal(region, wanted.channel):
                    raise HttpError(403, reason)
            near = gateway.realm.nearby(gateway.now(), wanted)
        except (ValueError, Refused) as why:
            raise HttpError(400, str(why)) from None
        return HttpResponse(messages.JSON.encode(messages.NearbyNotice(near)) + b"\n")

    def _most_fence_bytes(self, request: HttpRequest) -> int:
        """Large bodies are read only from whoever may change this set."""
        decision = self._gateway.check_token(request.token)
        name = unquote(request.path.removeprefix(FENCES))
        allowed = not isinstance(decision, Denied) and decision.fences_refusal(name) is None
        return self._gateway.limits.fences_bytes if allowed else 0

    async def _change_fences(self, request: HttpRequest) -> HttpResponse:
        """PUT: the set has these fences alone. PATCH: put these, and `remove` others. DELETE."""
        grant, gateway = await self.grant(request), self._gateway
        name = unquote(request.path.removeprefix(FENCES))
        if reason := grant.fences_refusal(name):
            raise HttpError(403, reason)
        realm, replaces = gateway.realm, request.method != "PATCH"
        if request.method == "DELETE" and realm.fence_set(name) is None:
            raise HttpError(404, f"there is no set of fences {name[:64]!r}")
        body = EMPTY_COLLECTION if request.method == "DELETE" else request.body
        try:
            # In a thread, because reading 100,000 polygons takes seconds.
            prepared, remove = await asyncio.to_thread(
                read_collection, body, gateway.limits, realm.geometry, replaces
            )
            count = realm.change_fences(gateway.now(), name, prepared, remove, replaces)
        except Refused as why:
            raise HttpError(400, str(why)) from None
        return HttpResponse(b"", 204) if not count else json_response({"fences": count})

    def _fences(self, request: HttpRequest) -> HttpResponse:
        """A set as GeoJSON."""
        name = unquote(request.path.removeprefix(FENCES))
        found = self._gateway.realm.fence_set(name)
        if found is None:
            raise HttpError(404, f"there is no set of fences {name[:64]!r}")
        return HttpResponse(found.geojson(), 200, "application/geo+json")

    async def _fence_sets(self, request: HttpRequest) -> HttpResponse:
        """All sets, and the names of those that this token may change."""
        grant = await self._full_grant(request)
        sets = [
            {"name": name, "fences": len(one), "changed": one.changed}
            for name, one in self._gateway.realm.fence_sets()
        ]
        return json_response({"sets": sets, "change": grant.fence_patterns})

    def _client_costs(self, request: HttpRequest) -> HttpResponse:
        """?limit=: what each client has cost, the most expensive first."""
        limit = int(_number(request.query, "limit", 100.0))
        return json_response({"clients": overview.client_costs(self._gateway)[: max(0, limit)]})

    def _metrics(self, request: HttpRequest) -> HttpResponse:
        if self._metrics_encoder is None:
            from nearcast.server.prometheus import MetricsEncoder

            self._metrics_encoder = MetricsEncoder(self._gateway)
        body, content_type = self._metrics_encoder.encode(request.headers.get("accept", ""))
        return HttpResponse(body, 200, content_type)


def _publish_request(body: bytes) -> bytes:
    """A body as the publish that it is short for: the same fields behind a "do"."""
    try:
        fields, count = _decoder.decode(body), _fields(body)
    except messages.DECODE_ERRORS:
        fields, count = None, 0
    if fields is None or "do" in fields:
        raise HttpError(400, 'the body is a JSON object like {"x": 3, "y": 4, "payload": "hi"}')
    if len(fields) != count:
        raise HttpError(400, "the body has a field twice")
    return msgspec.json.encode({"do": "publish", **fields})


def _fields(body: bytes) -> int:
    """How many fields an object has, those that come again included."""
    text = body.decode("utf-8", "replace")
    return len(
        json.loads(text, strict=False, object_pairs_hook=list, parse_int=str, parse_float=str)
    )


def _area(query: dict[str, str]) -> Area:
    x, y, r = (_number(query, name) for name in ("x", "y", "r"))
    return Area(x, y, _number(query, "z", 0.0), r)


def _earth_area(query: dict[str, str]) -> Area:
    lon, lat, r = (_number(query, name) for name in ("lon", "lat", "r"))
    alt, low, high = (
        _number(query, name) if name in query else None for name in ("alt", "low", "high")
    )
    return Area(lon=lon, lat=lat, r=r, alt=alt, low=low, high=high)


def _number(query: dict[str, str], name: str, default: float | None = None) -> float:
    if name not in query and default is not None:
        return default
    try:
        number = float(query[name])
    except (KeyError, ValueError):
        raise HttpError(400, f"{name} must be given as a number") from None
    if not isfinite(number):
        raise HttpError(400, f"{name} must be finite")
    return number
