"""What a node answers over plain HTTP: for curl, for probes, for Prometheus, and for browsers."""

from math import isfinite
from pathlib import Path

import msgspec

from nearcast.live import words
from nearcast.live.access import Grant, Role, foreign
from nearcast.live.admission import Busy, Refused
from nearcast.live.areas import Area, shape
from nearcast.live.gateway import Gateway
from nearcast.live.http import HttpError, Request, Response, Route, Routes, as_json
from nearcast.live.metrics import exposition
from nearcast.live.seats import Seat

NAMES = 1_000  # entities that speak over HTTP; each keeps a seat
ANONYMOUS = "curl"
JAVASCRIPT = Path(__file__).with_name("nearcast.js")

_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])


class Answers:
    """The routes of a gateway, and who speaks through them."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._seats: dict[str, Seat] = {}
        self.routes = Routes()
        self.routes.add("GET", "/healthz", lambda _: as_json({"ok": True}))
        self.routes.add("GET", "/metrics", self.guarded(self._metrics))
        self.routes.add("GET", "/clients", self.guarded(self._clients, "admin"))
        self.routes.add("GET", "/near", self.guarded(self._near))
        self.routes.add("POST", "/publish", self._publish)
        self.routes.add_file("/nearcast.js", JAVASCRIPT)

    def guarded(self, route: Route, role: Role = "read") -> Route:
        """The same for those whose token allows it, and not for pages from elsewhere."""
        return lambda request: (self.grant(request, role), route(request))[1]

    def grant(self, request: Request, role: Role = "read") -> Grant:
        """What the request may do, or HttpError if that is less than `role`."""
        access = self._gateway.access
        if reason := foreign(request.headers, access.open):
            raise HttpError(403, reason)
        grant = access.grant(request.token)
        if grant is None:
            raise HttpError(401, "say a token that this node knows: Authorization: Bearer …")
        if role == "admin" and grant.role != "admin":
            raise HttpError(403, "your token does not allow this")
        return grant

    async def _publish(self, request: Request) -> Response:
        """As the entity "curl", or as the one named by ?name=."""
        grant = self.grant(request)
        gateway = self._gateway
        try:
            word = words.JSON.request(_spoken(request.body))
            said = shape(word.x, word.y, word.z, word.r, word.rx, word.ry, word.rz)
            if reason := grant.refusal(said):
                raise HttpError(403, reason)
            seat = self._seat(request.query.get("name", ANONYMOUS))
            publication = gateway.realm.publish(seat, word, words.JSON)
        except Busy as why:
            raise HttpError(503, str(why)) from None
        except ValueError as why:  # a word, a shape or a publication that is refused
            raise HttpError(400, str(why)) from None
        answer = gateway.answer(publication)
        gateway.wake()
        if gateway.cluster is None:
            t, readers = await answer
            return as_json({"publication": publication, "t": t, "heard": readers}, 202)
        elsewhere, silent = await gateway.cluster.post.counted(publication)
        t, readers = await answer
        told = {"publication": publication, "t": t, "heard": readers + elsewhere}
        return as_json({**told, "silent": silent} if silent else told, 202)

    def _seat(self, name: str) -> Seat:
        if name not in self._seats:
            if len(self._seats) >= NAMES:
                raise Refused(f"at most {NAMES} names speak over HTTP")
            gateway = self._gateway
            self._seats[name] = gateway.realm.join(gateway.now(), name, words.JSON)
        return self._seats[name]

    def _near(self, request: Request) -> Response:
        """?x=&y=&r= and perhaps z, channel, limit: who is there, the closest first."""
        query = request.query
        x, y, r = (_number(query, name) for name in ("x", "y", "r"))
        wanted = words.Nearby(
            Area(x, y, _number(query, "z", 0.0), r),
            query.get("channel", ""),
            int(_number(query, "limit", 100.0)),
        )
        gateway = self._gateway
        try:
            near = gateway.realm.nearby(gateway.now(), wanted)
        except Refused as why:
            raise HttpError(400, str(why)) from None
        return Response(words.JSON.write(words.Near(near)) + b"\n")

    def _clients(self, request: Request) -> Response:
        """?limit=: what each client has cost, the most expensive first."""
        limit = int(_number(request.query, "limit", 100.0))
        return as_json({"clients": self._gateway.costs()[: max(0, limit)]})

    def _metrics(self, request: Request) -> Response:  # noqa: ARG002
        text = exposition(self._gateway.metrics, self._gateway.gauges())
        return Response(text.encode(), 200, "text/plain; version=0.0.4; charset=utf-8")


def _spoken(body: bytes) -> bytes:
    """A body as the word that it is short for: the same fields behind a "do"."""
    try:
        fields = _decoder.decode(body)
    except msgspec.MsgspecError:
        fields = None
    if fields is None or "do" in fields:
        raise HttpError(400, 'the body is a JSON object like {"x": 3, "y": 4, "payload": "hi"}')
    return msgspec.json.encode({"do": "publish", **fields})


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
