"""Plain HTTP/1.1 on the clients' port: small requests, small answers, and the way to a WebSocket.

picows implements WebSocket, but answers only requests without a body, once per connection. So an
`HttpConnection` reads the first request. If it asks for an upgrade, the connection and all that was
read of it are handed over to picows; otherwise it is answered from a table of routes.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from mimetypes import guess_type
from pathlib import Path
from stat import S_ISREG
from time import monotonic
from typing import Any, TypeAlias
from urllib.parse import unquote

import msgspec
from msgspec import Struct

from nearcast.client_protocol.websocket_framing import WebSocketEndpoint
from nearcast.server.http import cors
from nearcast.server.http.addresses import remote_address
from nearcast.server.http.connections import UNREAD, OpenConnections
from nearcast.server.http.head import (
    Headers,
    HttpError,
    HttpRequest,
    body_size,
    check_partial_head,
    check_upgrade,
    parse_head,
    websocket_request,
)
from nearcast.server.http.upgrade import feed, picows_protocol
from nearcast.service.access.token_bucket import TokenBucket

__all__ = [
    "HttpConnection",
    "HttpError",
    "HttpRequest",
    "HttpResponse",
    "HttpRoutes",
    "Route",
    "error_response",
    "file_response",
    "json_response",
]  # fmt: skip

LOG = logging.getLogger(__name__)
HEAD = 16_384  # bytes of a request's first line and headers
HEAD_S = 10.0  # for all of them: a phone on a bad link needs one or two
BODY_S = 5.0  # for a body, and besides so much that each second brings PACE bytes
PACE = 4_096  # bytes a second that a sender or a reader manages at least: 33 kbit/s, a poor modem
ANSWER_S = 30.0  # for an answer to be found; most take milliseconds
READ_PACE = 65_536  # bytes a second of a large body that a busy node reads at least
DRAIN_S = 10.0  # for an answer to be read, and besides so much as PACE allows
LINGER_S = 2.0  # after a refusal, in which the client may read it before the connection is cut
IDLE_S = 15.0  # a connection that asks nothing for so long is closed
HIGH = 65_536  # bytes of answers that wait; with more, the next request waits too
HEALTH = "/healthz"  # no limit of requests holds for it: whoever watches the node must see it
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
FILE = 8 * 2**20  # bytes of the largest file that is served


class HttpResponse(Struct, frozen=True):
    """A response of a route."""

    body: bytes
    status: int = 200
    kind: str = "application/json"
    headers: Headers = ()


Route: TypeAlias = Callable[[HttpRequest], HttpResponse | Awaitable[HttpResponse]]


def json_response(value: Any, status: int = 200) -> HttpResponse:
    return HttpResponse(msgspec.json.encode(value) + b"\n", status)


def error_response(status: int, reason: str, headers: Headers = ()) -> HttpResponse:
    return HttpResponse(msgspec.json.encode({"error": reason}) + b"\n", status, headers=headers)


def file_response(path: Path, headers: Headers = ()) -> HttpResponse:
    """A file as it is now; its kind is known by its name."""
    try:
        about = path.stat()
        if not S_ISREG(about.st_mode):
            raise HttpError(404, f"there is no file {path.name[:100]}")
        if about.st_size > FILE:
            raise HttpError(413, f"{path.name} is too large to be served")
        body = path.read_bytes()
    except OSError:
        raise HttpError(404, f"there is no {path.name[:100]}") from None
    kind = "text/javascript" if path.suffix in (".js", ".mjs") else guess_type(path.name)[0]
    return HttpResponse(body, 200, f"{kind or 'application/octet-stream'}", (_FRESH, *headers))


_FRESH = ("Cache-Control", "no-cache")


class HttpRoutes:
    """Routes by method and path; programs that embed a node may add some."""

    def __init__(self) -> None:
        self._exact: dict[tuple[str, str], Route] = {}
        self._under: dict[tuple[str, str], Route] = {}
        self._folders: dict[str, Path] = {}
        self._large_bodies: dict[str, Callable[[HttpRequest], int]] = {}

    def allow_body(self, prefix: str, most: Callable[[HttpRequest], int]) -> None:
        """How many bytes the body of a request under this prefix may have; its head is known."""
        self._large_bodies[prefix] = most

    def most_body(self, request: HttpRequest, most: int) -> int:
        """How many bytes the body of this request may have, usually `most`."""
        for prefix, allowed in self._large_bodies.items():
            if _goes_on(request.path, prefix):
                return max(most, allowed(request))
        return most

    def add(self, method: str, path: str, route: Route) -> None:
        self._exact[method, path] = route

    def add_under(self, method: str, prefix: str, route: Route) -> None:
        """For every path that begins with `prefix`, like "/things/", and goes on."""
        self._under[method, prefix] = route

    def add_file(self, path: str, where: Path, headers: Headers = ()) -> None:
        self.add("GET", path, lambda _: file_response(where, headers))

    def add_folder(self, prefix: str, where: Path) -> None:
        """The files of a folder under a prefix like "/static/"; nothing outside of it."""
        self._folders[prefix] = where.resolve()

    def methods(self, path: str) -> tuple[str, ...]:
        """Those that a path knows, or all with "*"; none if there is nothing at the path."""
        every = path == "*"
        found = {method for method, known in self._exact if every or path == known}
        found |= {method for method, prefix in self._under if every or _goes_on(path, prefix)}
        if any(path.startswith(prefix) for prefix in self._folders):
            found.add("GET")
        if "GET" in found:
            found.add("HEAD")
        return tuple(sorted(found | {"OPTIONS"})) if found else ()

    def find(self, request: HttpRequest) -> Route:
        """The route for a request; HttpError 404 or 405 if there is none."""
        method = "GET" if request.method == "HEAD" else request.method
        if route := self._exact.get((method, request.path)):
            return route
        for (known, prefix), route in self._under.items():
            if method == known and _goes_on(request.path, prefix):
                return route
        if method == "GET" and (wanted := self._file(request.path)) is not None:
            return lambda _: file_response(wanted)
        methods = self.methods(request.path)
        allow = ("Allow", ", ".join(methods))
        if methods and method == "OPTIONS":
            return lambda _: HttpResponse(b"", 204, headers=(allow,))
        if not methods or method in methods:
            raise HttpError(404, f"there is nothing at {request.path[:100]}")
        raise HttpError(405, f"{request.path[:100]} knows {allow[1]}", (allow,))

    def _file(self, path: str) -> Path | None:
        for prefix, where in self._folders.items():
            name = unquote(path.removeprefix(prefix))
            if path.startswith(prefix) and name.isprintable():  # a NUL ends names for the system
                wanted = (where / name).resolve()
                if wanted.is_relative_to(where):
                    return wanted
        return None


def _goes_on(path: str, prefix: str) -> bool:
    return path.startswith(prefix) and len(path) > len(prefix)


def encode_response(
    response: HttpResponse, keep: bool, body: bool = True, more: Headers = ()
) -> bytes:
    status = HTTPStatus(response.status)
    lines = [f"HTTP/1.1 {status.value} {status.phrase}"]
    if response.status != 204:
        lines += [f"Content-Type: {response.kind}", f"Content-Length: {len(response.body)}"]
    lines += [
        "X-Content-Type-Options: nosniff",
        f"Connection: {'keep-alive' if keep else 'close'}",
        *(f"{name}: {value}" for name, value in (*response.headers, *more)),
    ]
    head = "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n"
    return head + response.body if body else head


Upgrade: TypeAlias = Callable[[HttpRequest], WebSocketEndpoint]  # raises HttpError


class HttpConnection(asyncio.Protocol):
    """A connection to the node's port, until it is upgraded to a WebSocket."""

    def __init__(
        self, routes: HttpRoutes, upgrade: Upgrade, most: int, rate: int,
        others: "set[HttpConnection]",
        connections: OpenConnections, origins: cors.Origins = frozenset(),
    ) -> None:  # fmt: skip
        self._routes, self._upgrade, self._most = routes, upgrade, most
        self._open, self._connections, self._origins = others, connections, origins
        self._rate, self._bucket = rate, TokenBucket(rate, monotonic())
        self._loop = asyncio.get_running_loop()
        self._read = bytearray()
        self._request: HttpRequest | None = None  # whose head was read, and whose body has `_size`
        self._size = 0
        self._answers = 0
        self._unread = 0  # bytes of answers, while the client does not read them
        self._refused = False  # what else it sends is not looked at
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timed: tuple[str, int] = ("", 0)  # what the timer is for

    def connection_made(self, transport: Any) -> None:
        self._transport: asyncio.Transport = transport
        if not self._connections.opened(transport):
            most = self._connections.limits.address
            refusal = error_response(429, f"an address has at most {most} connections to this node")
            transport.write(encode_response(refusal, False))
            transport.close()
            return
        self._open.add(self)
        transport.set_write_buffer_limits(high=HIGH)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._forget()
        self._connections.closed(self._transport)
        if self._task is not None:
            self._task.cancel()

    def close(self) -> None:
        self._transport.close()

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        self._read += data
        if self._task is None and not self._unread:
            self._proceed()
        elif len(self._read) > HEAD + max(self._most, self._size):
            self._transport.pause_reading()  # whoever asks for more waits for the answers first

    def pause_writing(self) -> None:
        """The client does not read its answers as fast as it asks for them."""
        self._unread = max(1, self._transport.get_write_buffer_size())
        self._connections.unread += self._unread

    def resume_writing(self) -> None:
        self._has_read()
        if self._task is None:
            self._proceed()

    def _has_read(self) -> None:
        self._connections.unread -= self._unread
        self._unread = 0

    def _proceed(self) -> None:
        """Answer what has been read, request by request."""
        while self._task is None and not self._unread and not self._ends:
            try:
                request = self._next()
            except HttpError as why:
                self._refuse(why)
                break
            if request is None:
                break
            request = msgspec.structs.replace(request, remote=remote_address(self._transport))
            if request.upgrades:
                self._switch(request)
                return
            self._serve(request)
        if not self._ends and len(self._read) <= HEAD + max(self._most, self._size):
            self._transport.resume_reading()
        self._wait()

    @property
    def _ends(self) -> bool:
        return self._refused or self._transport.is_closing()

    def _next(self) -> HttpRequest | None:
        """The next whole request, or what asks for an upgrade."""
        if self._request is None:
            end = self._read.find(b"\r\n\r\n", 0, HEAD + 4)
            if end < 0:
                if len(self._read) > HEAD:
                    raise HttpError(431, f"a request's headers have at most {HEAD} bytes")
                check_partial_head(self._read)
                return None
            request = parse_head(bytes(self._read[:end]))
            self._size = body_size(request, self._routes.most_body(request, self._most))
            if request.upgrades:
                check_upgrade(request)
            self._request = request
            del self._read[: end + 4]
            if len(self._read) < self._size and "expect" in request.headers:
                self._transport.write(CONTINUE)
        if len(self._read) < self._size:
            return None
        request, self._request = self._request, None
        if self._size:
            request = msgspec.structs.replace(request, body=bytes(self._read[: self._size]))
            del self._read[: self._size]
        return request

    def _serve(self, request: HttpRequest) -> None:
        try:
            limited = request.path != HEALTH
            if limited and not self._bucket.take() and not self._bucket.fill(monotonic()):
                raise HttpError(429, f"a client makes at most {self._rate} requests a second")
            answer = self._routes.find(request)(request)
        except Exception as why:
            self._answer(request, _failure_response(request, why))
            return
        if isinstance(answer, HttpResponse):
            self._answer(request, answer)
        else:
            self._task = self._loop.create_task(self._serve_later(request, answer))

    async def _serve_later(self, request: HttpRequest, answer: Awaitable[HttpResponse]) -> None:
        try:
            response = await answer
        except Exception as why:
            response = _failure_response(request, why)
        self._task = None
        self._answer(request, response)
        self._proceed()

    def _answer(self, request: HttpRequest, response: HttpResponse) -> None:
        if self._transport.is_closing():
            return
        if self._connections.unread + len(response.body) > UNREAD and len(response.body) > HIGH:
            response = error_response(503, "too many answers wait to be read: try again later")
        preflight = request.method == "OPTIONS"
        methods = self._routes.methods(request.path) if preflight else ()
        more = cors.answer_headers(request.headers, self._origins, methods)
        if any(name == "Access-Control-Allow-Origin" for name, _ in response.headers):
            more = ()  # the route has said it, and browsers want it said once
        self._answers += 1
        self._connections.answered(self._transport)
        self._transport.write(
            encode_response(response, request.keeps, request.method != "HEAD", more)
        )
        if not request.keeps:
            self._transport.close()

    def _refuse(self, why: HttpError) -> None:
        """Answer what could not be read as a request, and look at nothing that follows it."""
        self._refused = True
        self._read.clear()
        self._transport.write(
            encode_response(error_response(why.status, why.reason, why.headers), False)
        )
        # Closing at once would reset the connection if more is on its way, and lose the answer.
        if self._transport.can_write_eof():
            self._transport.write_eof()
        else:
            self._transport.close()
        self._wait()

    def _switch(self, request: HttpRequest) -> None:
        try:
            endpoint = self._upgrade(request)
        except HttpError as why:
            self._refuse(why)
            return
        self._forget()
        self._connections.upgraded(self._transport)
        heir = picows_protocol(endpoint, endpoint.max_message_bytes)
        # Reading starts anew, because picows reads into a buffer of its own.
        self._transport.pause_reading()
        self._transport.set_protocol(heir)
        heir.connection_made(self._transport)
        # picows reads the request again: it gets one in which it can find nothing else than we did.
        feed(heir, websocket_request(request) + self._read, self._transport)
        if not self._transport.is_closing():
            self._transport.resume_reading()

    def _wait(self) -> None:
        """Start the timer of whatever is waited for now, once: more bytes do not start it anew."""
        if self._refused:
            what, seconds = "goodbye", LINGER_S
        elif self._unread or self._transport.is_closing():
            what, seconds = "reader", DRAIN_S + self._transport.get_write_buffer_size() / PACE
        elif self._task is not None:
            what, seconds = "answer", ANSWER_S + self._size / READ_PACE
        elif self._request is not None:
            what, seconds = "body", BODY_S + self._size / PACE
        elif self._read or not self._answers:
            what, seconds = "head", HEAD_S
        else:
            what, seconds = "request", IDLE_S
        if self._timed != (what, self._answers):
            self._timed = what, self._answers
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_later(seconds, self._late, what)

    def _late(self, what: str) -> None:
        if what not in ("goodbye", "request"):
            self._connections.metrics.late += 1
        if self._transport.get_write_buffer_size():
            self._transport.abort()  # closing would wait until it is read
        else:
            self._transport.close()

    def _forget(self) -> None:
        self._open.discard(self)
        self._has_read()
        if self._timer is not None:
            self._timer.cancel()


def _failure_response(request: HttpRequest, why: Exception) -> HttpResponse:
    if isinstance(why, HttpError):
        return error_response(why.status, why.reason, why.headers)
    LOG.error("%s %s failed", request.method, request.path, exc_info=why)
    return error_response(500, "the node made a mistake; its log has more")
