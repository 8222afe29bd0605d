"""The head of an HTTP/1.1 request: its first line and its headers, read once and strictly.

httptools reads it. What two readers could understand differently is refused, because a proxy in
front of the node may be the other reader: RFC 9112 calls that request smuggling.
"""

import re
from base64 import b64decode
from binascii import Error as Base64Error
from urllib.parse import parse_qsl, unquote, urlsplit

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
from msgspec import Struct

from nearcast.errors import NearcastError

Headers = tuple[tuple[str, str], ...]

VERSIONS = (b"HTTP/1.1", b"HTTP/1.0")
# Headers that have one value: a second one would let two readers choose differently.
SINGLE = frozenset(
    {
        "host", "content-length", "transfer-encoding", "authorization", "origin", "upgrade",
        "expect", "content-type", "sec-websocket-key", "sec-websocket-version",
    }
)  # fmt: skip
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._~-]+)(:[0-9]{1,5})?")
_BAD_ESCAPE = re.compile("%(?![0-9A-Fa-f]{2})")
_BARE = re.compile(rb"(?<!\r)\n|\r(?!\n|\Z)")


class HttpError(NearcastError):
    """Answered to the client with this status, and the reason as JSON."""

    def __init__(self, status: int, reason: str, headers: Headers = ()) -> None:
        super().__init__(reason)
        self.status, self.reason, self.headers = status, reason, headers


class HttpRequest(Struct, frozen=True):
    """A request whose head is valid."""

    method: str
    path: str  # as it was sent: escapes in it are valid UTF-8, and not decoded
    query: dict[str, str]
    headers: dict[str, str]  # names in lower case
    body: bytes = b""
    remote: str = ""  # the address it came from

    @property
    def token(self) -> str:
        """As `Authorization: Bearer …` or `?token=…`."""
        scheme, _, token = self.headers.get("authorization", "").partition(" ")
        return token.strip() if scheme.lower() == "bearer" else self.query.get("token", "")

    @property
    def upgrades(self) -> bool:
        return self.headers.get("upgrade", "").lower() == "websocket"

    @property
    def keeps(self) -> bool:
        """May the connection be used for another request?"""
        return "close" not in self.connection

    @property
    def connection(self) -> set[str]:
        return {part.strip().lower() for part in self.headers.get("connection", "").split(",")}


class _Found:
    """What httptools has found in one head."""

    def __init__(self) -> None:
        self.target = b""
        self.headers: list[tuple[bytes, bytes]] = []
        self.complete = False

    def on_url(self, part: bytes) -> None:
        self.target += part

    def on_header(self, name: bytes, value: bytes | None) -> None:
        self.headers.append((name, value or b""))

    def on_headers_complete(self) -> None:
        self.complete = True


def check_partial_head(head: bytearray) -> None:
    """Of a head whose end has not come: HttpError if no end could make it right."""
    if head and not head[:1].isalpha():  # a TLS client waits for an answer to its greeting
        raise HttpError(400, "this is no HTTP; a node with TLS has a wss:// and https:// address")
    if _BARE.search(head):
        raise HttpError(400, "lines of a request end with CR and LF, and contain neither alone")


def parse_head(head: bytes) -> HttpRequest:
    """A request without its body; `head` is all before the empty line. HttpError says what is
    wrong with it.

    Bytes beyond ASCII are taken as Latin-1 in values of headers, and refused elsewhere.
    """
    first = head.partition(b"\r\n")[0].split(b" ")
    if len(first) != 3 or first[2] not in VERSIONS:
        raise HttpError(400, "a request begins like GET /path HTTP/1.1")
    if first[0] in (b"CONNECT", b"TRACE"):
        raise HttpError(405, "this node is no proxy and echoes no requests")
    found = _Found()
    parser = HttpRequestParser(found)
    try:
        parser.feed_data(head + b"\r\n\r\n")
    except HttpParserUpgrade:
        pass  # the head is complete; what an upgrade needs is checked by `check_upgrade`
    except HttpParserError as why:
        raise HttpError(400, f"this is no valid HTTP/1.1 request: {why}") from None
    # httptools passes over empty lines and spaces that others do not.
    same = (parser.get_method(), found.target, len(found.headers), found.complete)
    if same != (first[0], first[1], head.count(b"\r\n"), True):
        raise HttpError(400, "this is no valid HTTP/1.1 request")
    headers = _headers(found.headers)
    if first[2] == b"HTTP/1.1":
        if "host" not in headers:
            raise HttpError(400, "an HTTP/1.1 request has a Host header")
        if headers.get("expect", "100-continue").lower() != "100-continue":
            raise HttpError(417, "the one expectation that is met is 100-continue")
    else:
        headers.pop("expect", None)
        headers.setdefault("connection", "close")
        if "upgrade" in headers:
            raise HttpError(400, "an upgrade needs HTTP/1.1")
    method = first[0].decode("ascii")
    path, query = _target(method, first[1].decode("ascii"))
    return HttpRequest(method, path, query, headers)


def _headers(fields: list[tuple[bytes, bytes]]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for raw, value in fields:
        name, text = raw.decode("ascii").lower(), value.decode("latin-1").strip(" \t")
        if name not in headers:
            headers[name] = text
        elif name in SINGLE:
            raise HttpError(400, f"a request has at most one header {name}")
        else:
            headers[name] += f", {text}"
    try:
        if not _HOST.fullmatch(headers.get("host", "localhost")):
            raise ValueError
        urlsplit(f"//{headers.get('host', '')}")
        urlsplit(headers.get("origin", ""))
    except ValueError:
        raise HttpError(400, "Host is like name:port, and Origin like https://name:port") from None
    return headers


def _target(method: str, target: str) -> tuple[str, dict[str, str]]:
    """Path and query. Full addresses are for proxies, and * is for OPTIONS alone."""
    path, _, query = target.partition("?")
    if not (path.startswith("/") or (method == "OPTIONS" and target == "*")) or "#" in target:
        raise HttpError(400, "a request names a path like /healthz, without scheme, host or #")
    try:
        if _BAD_ESCAPE.search(target):
            raise ValueError
        unquote(path, errors="strict")
        return path, dict(parse_qsl(query, errors="strict"))
    except ValueError:
        raise HttpError(400, "a path has invalid % escapes: they are UTF-8, like %C3%A9") from None


def body_size(request: HttpRequest, most: int) -> int:
    """Bytes of the body that follows the head."""
    if "transfer-encoding" in request.headers:
        raise HttpError(411, "a body needs a Content-Length, and no Transfer-Encoding")
    length = request.headers.get("content-length", "0")
    if not (length.isascii() and length.isdigit()):
        raise HttpError(400, "Content-Length is no number")
    if len(length) > 12 or int(length) > most:
        raise HttpError(413, f"a body has at most {most} bytes")
    return int(length)


def check_upgrade(request: HttpRequest) -> None:
    """HttpError if the request cannot become a WebSocket (RFC 6455, 4.2.1)."""
    headers = request.headers
    if request.method != "GET" or "upgrade" not in request.connection:
        raise HttpError(400, "a WebSocket begins with GET, and with Connection: Upgrade")
    if "content-length" in headers:
        raise HttpError(400, "a request that becomes a WebSocket has no body")
    if headers.get("sec-websocket-version") != "13":
        raise HttpError(
            426, "this node speaks version 13 of WebSocket", (("Sec-WebSocket-Version", "13"),)
        )
    try:
        key = b64decode(headers.get("sec-websocket-key", ""), validate=True)
    except (Base64Error, ValueError):
        key = b""
    if len(key) != 16:
        raise HttpError(400, "Sec-WebSocket-Key is 16 bytes in base64")


def websocket_request(request: HttpRequest) -> bytes:
    """A minimal upgrade request with the same key: nothing in it can be read in two ways."""
    key = request.headers["sec-websocket-key"]
    return (
        "GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n"
    ).encode("ascii")
