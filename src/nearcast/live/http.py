"""Plain HTTP/1.1 on the clients' port: small requests, small answers, and the way to a WebSocket.

picows speaks WebSocket, but answers only requests without a body, once per connection. So a `Front`
reads what a connection says first. If that asks for an upgrade, the connection and all that was
read of it are handed to picows for good; otherwise it is answered from a table of routes.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from mimetypes import guess_type
from pathlib import Path
from time import monotonic
from typing import Any, TypeAlias
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec
import picows.api
from msgspec import Struct
from picows import WSAutoPingStrategy, WSListener

from nearcast.live.access import Bucket
from nearcast.live.guesses import remote

LOG = logging.getLogger("nearcast.live")
HEAD = 16_384  # bytes of a request's first line and headers
IDLE_S = 15.0  # a connection that asks nothing for so long is closed
PING_S = 25.0  # a silent WebSocket client is pinged, and must answer within 20 seconds
BUFFER = 4_096  # bytes for what is read from a client at first; it grows if need be
FILE = 8 * 2**20  # bytes of the largest file that is served

# picows tells of every frame that breaks the protocol; strangers must not fill our log with that.
_SILENT = logging.Logger("nearcast.live.picows", logging.CRITICAL)


class Request(Struct, frozen=True):
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]  # names in lower case
    body: bytes = b""
    remote: str = ""  # the address it came from

    @property
    def token(self) -> str:
        """As `Authorization: Bearer …` or `?token=…`."""
        scheme, _, said = self.headers.get("authorization", "").partition(" ")
        return said.strip() if scheme.lower() == "bearer" else self.query.get("token", "")

    @property
    def upgrades(self) -> bool:
        return self.headers.get("upgrade", "").lower() == "websocket"


class Response(Struct, frozen=True):
    body: bytes
    status: int = 200
    kind: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()


Route: TypeAlias = Callable[[Request], Response | Awaitable[Response]]


class HttpError(Exception):
    """Told to whoever asked, as JSON with a reason."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason


def as_json(value: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value) + b"\n", status)


def failure(status: int, reason: str) -> Response:
    return as_json({"error": reason}, status)


def file(path: Path) -> Response:
    """A file as it is now; its kind is known by its name."""
    try:
        if path.stat().st_size > FILE:
            raise HttpError(413, f"{path.name} is too large to be served")
        body = path.read_bytes()
    except OSError:
        raise HttpError(404, f"there is no {path.name}") from None
    kind = "text/javascript" if path.suffix in (".js", ".mjs") else guess_type(path.name)[0]
    return Response(body, 200, f"{kind or 'application/octet-stream'}", (_FRESH,))


_FRESH = ("Cache-Control", "no-cache")


class Routes:
    """What is answered, by method and path; whoever embeds a node may add to it."""

    def __init__(self) -> None:
        self._exact: dict[tuple[str, str], Route] = {}
        self._folders: dict[str, Path] = {}

    def add(self, method: str, path: str, route: Route) -> None:
        self._exact[method, path] = route

    def add_file(self, path: str, where: Path) -> None:
        self.add("GET", path, lambda _: file(where))

    def add_folder(self, prefix: str, where: Path) -> None:
        """The files of a folder under a prefix like "/static/"; nothing outside of it."""
        self._folders[prefix] = where.resolve()

    def find(self, request: Request) -> Route:
        method = "GET" if request.method == "HEAD" else request.method
        if route := self._exact.get((method, request.path)):
            return route
        for prefix, where in self._folders.items():
            if method == "GET" and request.path.startswith(prefix):
                wanted = (where / unquote(request.path.removeprefix(prefix))).resolve()
                if wanted.is_relative_to(where):
                    return lambda _: file(wanted)
        others = [known for known, path in self._exact if path == request.path]
        if others:
            raise HttpError(405, f"{request.path} knows {', '.join(others)}")
        raise HttpError(404, f"there is nothing at {request.path[:100]}")


def parse(head: bytes) -> Request:
    """A request without its body. HttpError says what is wrong with it."""
    try:
        first, *lines = head.decode("ascii").split("\r\n")
        method, target, version = first.split(" ")
        fields = [line.split(":", 1) for line in lines]
        headers = {name.lower(): value.strip() for name, value in fields}
        parts = urlsplit(target)
    except ValueError:
        raise HttpError(400, "this is no HTTP request") from None
    if version not in ("HTTP/1.1", "HTTP/1.0") or any(name != name.strip() for name in headers):
        raise HttpError(400, "this is no HTTP/1.1 request")
    if version == "HTTP/1.0":
        headers.setdefault("connection", "close")
    return Request(method, parts.path, dict(parse_qsl(parts.query)), headers)


def body_size(request: Request, most: int) -> int:
    if "transfer-encoding" in request.headers:
        raise HttpError(411, "a body needs a Content-Length")
    said = request.headers.get("content-length", "0")
    if not (said.isascii() and said.isdigit()):
        raise HttpError(400, "Content-Length is no number")
    if len(said) > 12 or int(said) > most:
        raise HttpError(413, f"a body has at most {most} bytes")
    return int(said)


def written(response: Response, keep: bool, body: bool = True) -> bytes:
    status = HTTPStatus(response.status)
    lines = [
        f"HTTP/1.1 {status.value} {status.phrase}",
        f"Content-Type: {response.kind}",
        f"Content-Length: {len(response.body)}",
        "X-Content-Type-Options: nosniff",
        f"Connection: {'keep-alive' if keep else 'close'}",
        *(f"{name}: {value}" for name, value in response.headers),
    ]
    head = "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n"
    return head + response.body if body else head


Upgrade: TypeAlias = Callable[[Request], WSListener]  # raises HttpError


class Front(asyncio.Protocol):
    """A connection until it is known to be a WebSocket, or for as long as it speaks HTTP."""

    def __init__(
        self, routes: Routes, upgrade: Upgrade, most: int, rate: int, others: "set[Front]"
    ) -> None:
        self._routes, self._upgrade, self._most = routes, upgrade, most
        self._open = others
        self._rate, self._bucket = rate, Bucket(rate, monotonic())
        self._loop = asyncio.get_running_loop()
        self._read = bytearray()
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        self._transport: asyncio.Transport = transport
        self._open.add(self)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._forget()
        if self._task is not None:
            self._task.cancel()

    def close(self) -> None:
        self._transport.close()

    def data_received(self, data: bytes) -> None:
        self._read += data
        if self._task is None:
            self._proceed()
        elif len(self._read) > HEAD + self._most:
            self._transport.abort()  # nobody has so much to ask before the first answer

    def _proceed(self) -> None:
        """Answer what has been read, request by request."""
        while self._task is None and not self._transport.is_closing():
            try:
                request = self._next()
            except HttpError as why:
                self._answer(None, failure(why.status, why.reason))
                return
            if request is None:
                return
            request = msgspec.structs.replace(request, remote=remote(self._transport))
            self._wait()
            if request.upgrades:
                self._switch(request)
                return
            self._serve(request)

    def _next(self) -> Request | None:
        """The next whole request; but of an upgrade, all that was read stays for picows."""
        end = self._read.find(b"\r\n\r\n", 0, HEAD + 4)
        if end < 0:
            if len(self._read) > HEAD:
                raise HttpError(431, f"a request's headers have at most {HEAD} bytes")
            return None
        request = parse(bytes(self._read[:end]))
        if request.upgrades:
            return request
        last = end + 4 + body_size(request, self._most)
        if len(self._read) < last:
            return None
        body = bytes(self._read[end + 4 : last])
        del self._read[:last]
        return msgspec.structs.replace(request, body=body)

    def _serve(self, request: Request) -> None:
        try:
            if not self._bucket.take() and not self._bucket.fill(monotonic()):
                raise HttpError(429, f"a client makes at most {self._rate} requests a second")
            answer = self._routes.find(request)(request)
        except Exception as why:
            self._answer(request, _excuse(request, why))
            return
        if isinstance(answer, Response):
            self._answer(request, answer)
        else:
            self._task = self._loop.create_task(self._serve_later(request, answer))

    async def _serve_later(self, request: Request, answer: Awaitable[Response]) -> None:
        try:
            response = await answer
        except Exception as why:
            response = _excuse(request, why)
        self._task = None
        self._answer(request, response)
        self._proceed()

    def _answer(self, request: Request | None, response: Response) -> None:
        if self._transport.is_closing():
            return
        keep = request is not None and request.headers.get("connection", "").lower() != "close"
        body = request is None or request.method != "HEAD"
        self._transport.write(written(response, keep, body))
        if not keep:
            self._transport.close()

    def _switch(self, request: Request) -> None:
        try:
            listener = self._upgrade(request)
        except HttpError as why:
            self._answer(None, failure(why.status, why.reason))
            return
        self._forget()
        heir = websocket(listener, 4 * self._most)
        # Reading starts anew, because picows reads into a buffer of its own.
        self._transport.pause_reading()
        self._transport.set_protocol(heir)
        heir.connection_made(self._transport)
        unread = memoryview(bytes(self._read))
        while unread and not self._transport.is_closing():
            room = heir.get_buffer(len(unread))
            size = min(len(room), len(unread))
            room[:size] = unread[:size]
            unread = unread[size:]
            heir.buffer_updated(size)
        if not self._transport.is_closing():
            self._transport.resume_reading()

    def _wait(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(IDLE_S, self._transport.abort)

    def _forget(self) -> None:
        self._open.discard(self)
        if self._timer is not None:
            self._timer.cancel()


def _excuse(request: Request, why: Exception) -> Response:
    if isinstance(why, HttpError):
        return failure(why.status, why.reason)
    LOG.error("%s %s failed", request.method, request.path, exc_info=why)
    return failure(500, "the node made a mistake; its log has more")


def websocket(listener: WSListener, most: int) -> Any:
    """picows' own protocol object, which it otherwise makes in a server of its own."""
    make: Any = vars(picows.api)["WSProtocol"]
    return make(
        None, None, False, lambda _: listener, _SILENT, True, 5.0,
        True, PING_S, min(PING_S, 20.0), WSAutoPingStrategy.PING_WHEN_IDLE, True,
        most, None, BUFFER,
    )  # fmt: skip
