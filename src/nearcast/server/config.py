"""The settings of a live node: flags before environment before `nearcast.toml` before defaults.

Each setting is defined here once: its name, its type with the valid range, its default, and the
comment above it, which explains it. `default_file` writes the file from this. Unknown names and
invalid values are refused, with the line of the file on which they stand.
"""

import difflib
import re
import textwrap
import tomllib
from collections.abc import Mapping
from ipaddress import ip_address
from os import environ
from pathlib import Path
from typing import Annotated, Any, get_type_hints
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta, Struct, structs

from nearcast import storage
from nearcast.client_protocol import limits
from nearcast.client_protocol.geometry_json import PLANE, Geometry
from nearcast.errors import ConfigError
from nearcast.field_docs import field_comments

PREFIX = "NEARCAST_"
ORIGIN = re.compile(r"\*|[a-z][a-z0-9+.-]*://[^\s/?#@,]+")
OTHERS = frozenset({"NEARCAST_DEBUG"})  # has a meaning of its own, and is no setting

# By each setting of stores: the variables that come before it. The first of them is set by it.
STORAGE_VARIABLES = {
    "endpoint": ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"),
    "region": ("AWS_REGION", "AWS_DEFAULT_REGION"),
    "access_key": ("AWS_ACCESS_KEY_ID",),
    "secret_key": ("AWS_SECRET_ACCESS_KEY",),
    "session_token": ("AWS_SESSION_TOKEN",),
    "timeout_s": (storage.TIMEOUT_VARIABLE,),
    "attempts": (storage.ATTEMPTS_VARIABLE,),
}

Count = Annotated[int, Meta(ge=1, le=2**31)]
Seconds = Annotated[float, Meta(gt=0, le=86_400)]


class LimitSettings(limits.Limits, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits of one client (`client_protocol.limits.Limits`), and of the node as a whole."""

    # Clients at one time.
    clients: Count = 10_000
    # Connections that have neither joined nor had an answer over HTTP. With more, the oldest is
    # dropped.
    pending: Count = 1_000
    # Connections from one address (IPv6: from one /64 network). 127.0.0.1 and ::1 are not
    # counted, because reverse proxies connect from there.
    address: Count = 1_000
    # Bytes of a frame or of an HTTP body from a client.
    frame: Count = 65_536
    # Bytes of an HTTP body with fences, from whoever may change their set.
    fences_bytes: Count = 67_108_864
    # Requests of one client per second.
    requests: Count = 500
    # Bytes of one client's frames per second. Beyond that it is read more slowly.
    bytes: Count = 2_097_152
    # Refused requests of one client within ten seconds. One more ends its connection.
    refusals: Count = 1_000
    # Messages that wait for a client that reads slowly. The oldest are dropped first.
    queue: Count = 10_000
    # Bytes that wait for such a client.
    queue_bytes: Count = 4_194_304
    # Bytes that wait for all such clients together. Beyond that, messages of the largest queue are
    # dropped.
    queues_bytes: Count = 67_108_864
    # Seconds after which a client that reads nothing at all is disconnected.
    slow_s: Seconds = 30.0
    # Seconds within which a new connection must join.
    join_s: Seconds = 5.0


class ClusterSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a node is a member of a cluster; without a key it is none."""

    # The file of the secret that all nodes of a cluster share. The first node creates it if it does
    # not exist.
    key: str = ""
    # Addresses of nodes of the cluster to join: HOST:PORT, several with commas between them; the
    # first that answers is used. Empty: this is the first node.
    join: str = ""
    # The address on which other nodes reach this one.
    host: str = "127.0.0.1"
    # The port on which other nodes reach this one. 0: any free one.
    port: Annotated[int, Meta(ge=0, le=65_535)] = 0
    # The URL at which clients reach this node when another node fails or hands them over. Empty:
    # ws://host:port, or wss:// with a certificate.
    advertise: str = ""
    # Stand by until the load of the cluster needs this node, and again when it does not.
    standby: bool = False
    # Subscriptions that this node can serve, each with ten deliveries per second. Nodes compare
    # their load with it. 0: the number of cluster.subscriptions.
    capacity: Annotated[int, Meta(ge=0, le=2**31)] = 0
    # The share of a CPU core at which this node is full. 0: CPU time is not counted as load.
    cpu_limit: Annotated[float, Meta(ge=0, le=1_000)] = 1.0
    # The share of its capacity above which a node calls in one that stands by.
    high: Annotated[float, Meta(gt=0, le=1)] = 0.8
    # Seconds for which its load must be above that share.
    high_s: Seconds = 3.0
    # The share of its capacity below which a node that was called in may stand by again.
    low: Annotated[float, Meta(ge=0, le=1)] = 0.25
    # Seconds for which its load must be below that share.
    low_s: Seconds = 30.0
    # Subscriptions above which a node is overloaded and asks its neighbours to move closer, unless
    # it has a cluster.capacity.
    subscriptions: Count = 100_000
    # Units by which areas are enlarged when a node determines which nodes' cells they touch.
    margin: Annotated[float, Meta(ge=0, le=1e9)] = 10.0
    # The least distance between the sites of two nodes.
    spacing: Annotated[float, Meta(ge=0, le=1e9)] = 5.0
    # The part of the way to the centre of its load by which a site moves each time.
    adjust: Annotated[float, Meta(ge=0, le=1)] = 0.1
    # Seconds between two such moves.
    adjust_s: Seconds = 1.0

    def __post_init__(self) -> None:
        if not self.key and (self.join or self.port):
            raise ValueError("cluster.join and cluster.port need a cluster.key")
        if self.standby and not self.join:
            raise ValueError("cluster.standby needs a cluster.join: somebody must call it in")
        if not self.low < self.high:
            raise ValueError("cluster.low must be below cluster.high")


class JwtSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whose JWTs are accepted; without keys none are."""

    # The issuer's keys as a JWKS: a file, or an https:// URL (http:// on this machine). Read at
    # the start and at SIGHUP, and from a URL also when a token names an unknown key.
    keys: str = ""
    # The claim `iss` must be this. Empty: it is not checked.
    issuer: str = ""
    # The claim `aud` must name this. Empty: tokens that have an `aud` are refused.
    audience: str = ""
    # Seconds by which clocks may differ when `exp`, `nbf` and `iat` are checked.
    leeway_s: Annotated[float, Meta(ge=0, le=3_600)] = 30.0

    def __post_init__(self) -> None:
        if not self.keys and (self.issuer or self.audience):
            raise ValueError("jwt.issuer and jwt.audience need jwt.keys")
        url = urlsplit(self.keys)
        if "://" in self.keys and not (
            url.scheme == "https" or (url.scheme == "http" and is_loopback(url.hostname or ""))
        ):
            raise ValueError("jwt.keys is a file, an https:// URL, or http:// on this machine")


class StorageSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How stores are reached; what the environment says about them comes before."""

    # The address of an S3 store that is not Amazon's, like https://example.org:9000, unless
    # AWS_ENDPOINT_URL is set.
    endpoint: str = ""
    # The region of an S3 store, unless AWS_REGION or AWS_DEFAULT_REGION is set.
    region: str = ""
    # The access key of an S3 store, unless AWS_ACCESS_KEY_ID is set.
    access_key: str = ""
    # Its secret, unless AWS_SECRET_ACCESS_KEY is set.
    secret_key: str = ""
    # The token of a temporary access key, unless AWS_SESSION_TOKEN is set.
    session_token: str = ""
    # Seconds after which a request that gets no answer has failed.
    timeout_s: Seconds = storage.TIMEOUT_S
    # How often a failed request is tried in all.
    attempts: Annotated[int, Meta(ge=1, le=100)] = storage.ATTEMPTS

    def use(self) -> None:
        """Set the variables of this process that are not set, for itself and its children."""
        for name, variables in STORAGE_VARIABLES.items():
            value = getattr(self, name)
            if value != getattr(StorageSettings(), name) and environ.keys().isdisjoint(variables):
                environ[variables[0]] = str(value)


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All settings of a node."""

    # The address to listen on. Any but a loopback address needs a token, a token_file or
    # jwt.keys.
    host: str = "127.0.0.1"
    # The one port for WebSocket and HTTP. 0: any free one.
    port: Annotated[int, Meta(ge=0, le=65_535)] = 8470
    # The node's name, which its clients are told.
    name: Annotated[str, Meta(max_length=64)] = ""
    # What the coordinates of the world are: "plane" (x, y, z), or "earth" (longitude, latitude and
    # metres). All nodes of a cluster have the same.
    geometry: Geometry = PLANE
    # The token that every client must send when it joins. Empty: none is needed.
    token: str = ""
    # A file of tokens with roles, instead of one token for all. SIGHUP reloads it.
    token_file: str = ""
    # A certificate chain in PEM, to be reached at wss:// and https://.
    tls_certificate: str = ""
    # Its private key in PEM.
    tls_key: str = ""
    # Record all subscriptions, publications and deliveries as a trace.
    record: bool = True
    # The folder for the trace, or a URI like s3://bucket/walk; if there is a trace in it, a new
    # folder beside it is used, with -2, -3 and so on at the end of its name. Empty: a folder in
    # traces/, named by the time of the start.
    trace: str = ""
    # Origins of web pages that may use this node, like https://example.org, with commas
    # between them, or * for all. Empty: pages of this machine; with tokens, WebSockets of any
    # page.
    cors: str = ""
    # The share of a CPU core for matching and sending: the more there is to send, the longer a node
    # gathers it. Beyond 100,000 deliveries a second it gathers longer, too: 8 ms for each further
    # 100,000. More is prompter, less takes less CPU. 0: it always gathers for `flush_ms`.
    prompt: Annotated[float, Meta(ge=0, le=1)] = 0.6
    # The longest time in milliseconds for which a node gathers deliveries.
    flush_ms: Annotated[float, Meta(ge=0, le=1_000)] = 50.0
    # Threads that read and write the clients' sockets, up to one for each core of the machine.
    # Sockets with TLS are read and written by one of them alone.
    workers: Annotated[int, Meta(ge=1, le=64)] = 1
    # Limits. A request for more is refused with a reason.
    limits: LimitSettings = LimitSettings()
    # Several nodes as one service. A node without a key is in no cluster.
    cluster: ClusterSettings = ClusterSettings()
    # JSON Web Tokens, signed by an issuer. Without keys none are accepted.
    jwt: JwtSettings = JwtSettings()
    # Stores, which URIs like s3://bucket/walk name. All commands read these lines, if nearcast.toml
    # is in the folder in which they are started.
    storage: StorageSettings = StorageSettings()

    def __post_init__(self) -> None:
        if not (self.token or self.token_file or self.jwt.keys or is_loopback(self.host)):
            raise ValueError(
                f"host {self.host!r} can be reached from elsewhere: set a token, a token_file or"
                " jwt.keys"
            )
        if bool(self.tls_certificate) != bool(self.tls_key):
            raise ValueError("tls_certificate and tls_key go together")
        for origin in self.origins:
            if not ORIGIN.fullmatch(origin):
                raise ValueError(f"cors names {origin!r}: an origin is like https://example.org")

    @property
    def origins(self) -> frozenset[str]:
        """The setting `cors` as a set."""
        parts = (part.strip().lower() for part in self.cors.split(","))
        return frozenset(part for part in parts if part)


def is_loopback(host: str) -> bool:
    """Can only this machine reach a server that listens there?"""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


# Of settings whose flag is not their own name.
FLAGS = {f"cluster.{flag}": flag for flag in ("join", "standby", "capacity", "advertise")}


def load_settings(
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, Any] | None = None,
) -> Settings:
    """What holds in the end. ConfigError names what is wrong and where it stands.

    `flags` have the settings' own names; those that are None were not given.
    """
    values: dict[str, Any] = {}
    where: dict[str, str] = {}  # the source of each setting
    text = "" if file is None else file.read_text(encoding="utf-8")
    for key, value in _flat(_parse(text, file)).items():
        values[key], where[key] = value, f"{file}:{line_of(text, key)}"
    for name, value in (environment or {}).items():
        if name.startswith(PREFIX) and name not in OTHERS:
            key = _key(name)
            values[key], where[key] = _number(key, value), name
    for key, value in (flags or {}).items():
        if value is not None:
            flag = FLAGS.get(key, key.replace("_", "-").replace(".", "-"))
            values[key], where[key] = value, f"--{flag}"
    for key in values:
        _check(key, values[key], where[key])
    try:
        return msgspec.convert(_nested(values), Settings)
    except msgspec.ValidationError as why:  # of two settings together: one is at fault
        reason = str(why).partition(" - at `$")[0]
        culprit = next((place for key, place in where.items() if key in reason), "settings")
        raise ConfigError(f"{culprit}: {reason}") from None


def default_file() -> str:
    """`nearcast.toml`, whole, with every default and what it means."""
    lines = [
        "# Settings of a Nearcast node, with their defaults.",
        "# An environment variable (NEARCAST_PORT, NEARCAST_LIMITS_FRAME) comes before a line of",
        "# this file, and a flag (--port) before both.",
    ]
    meaning = meanings()
    for key, (_, default) in KEYS.items():
        table, _, name = key.rpartition(".")
        if table and f"[{table}]" not in lines:
            lines += ["", *_comment(meaning[table]), f"[{table}]"]
        lines += ["", *_comment(meaning[key]), f"{name} = {_toml(default)}"]
    return "\n".join(lines) + "\n"


def line_of(text: str, key: str) -> int:
    """On which line of a TOML text is this key's value complete? 0 if it has none.

    The shortest beginning of the text that has the value says so, however the key is written.
    """
    lines = text.splitlines(keepends=True)
    for number in range(1, len(lines) + 1):
        try:
            value: Any = tomllib.loads("".join(lines[:number]))
        except tomllib.TOMLDecodeError:
            continue  # in the middle of a value of several lines
        for part in key.split("."):
            value = value.get(part, _NOTHING) if isinstance(value, dict) else _NOTHING
        if value is not _NOTHING:
            return number
    return 0


_NOTHING = object()
TABLES = ("limits", "cluster", "jwt", "storage")


PARTS: dict[str, type[Struct]] = {
    "": Settings, "limits.": LimitSettings, "cluster.": ClusterSettings, "jwt.": JwtSettings,
    "storage.": StorageSettings,
}  # fmt: skip


def meanings() -> dict[str, str]:
    """What each setting and each table means, by its dotted name."""
    return {
        prefix + name: text
        for prefix, kind in PARTS.items()
        for name, text in field_comments(kind).items()
    }


def _keys() -> dict[str, tuple[Any, Any]]:
    """Every setting by its dotted name: its type and its default."""
    found: dict[str, tuple[Any, Any]] = {}
    for prefix, kind in PARTS.items():
        hints = get_type_hints(kind, include_extras=True)
        for field in structs.fields(kind):
            if field.name not in TABLES:
                found[prefix + field.name] = (hints[field.name], field.default)
    return found


KEYS = _keys()


def _parse(text: str, file: Path | None) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as why:
        line = re.search(r"line (\d+)", str(why))
        number = int(line[1]) if line else text.count("\n") + 1
        reason = re.sub(r" \(at .*\)$", "", str(why))
        raise ConfigError(f"{file}:{number}: {reason}") from None


def _flat(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in table.items():
        if prefix + key in TABLES and isinstance(value, dict):
            flat |= _flat(value, f"{key}.")
        else:
            flat[prefix + key] = value
    return flat


def _nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    nested: dict[str, Any] = {table: {} for table in TABLES}
    for key, value in flat.items():
        table, _, name = key.rpartition(".")
        (nested[table] if table else nested)[name] = value
    return nested


def _key(variable: str) -> str:
    name = variable.removeprefix(PREFIX).lower()
    for table in TABLES:
        if name.startswith(f"{table}_"):
            return f"{table}.{name.removeprefix(f'{table}_')}"
    return name


def _number(key: str, text: str) -> Any:
    """An environment variable's text as the setting's type wants it, if it can be that."""
    if key in KEYS:
        try:
            return msgspec.convert(text, KEYS[key][0], strict=False)
        except msgspec.ValidationError:
            return text  # and `_check` says what is wrong with it
    return text


def _check(key: str, value: Any, place: str) -> None:
    if key not in KEYS:
        close = difflib.get_close_matches(key, KEYS, n=1)
        hint = f"; did you mean {close[0]}?" if close else ""
        raise ConfigError(f"{place}: there is no setting {key!r}{hint}")
    try:
        msgspec.convert(value, KEYS[key][0])
    except msgspec.ValidationError as why:
        reason = str(why).replace("`", "")
        raise ConfigError(f"{place}: {key} = {value!r}: {reason[:1].lower()}{reason[1:]}") from None
    if key.startswith("limits.") and not value > 0:
        raise ConfigError(f"{place}: {key} = {value!r}: a limit is above 0")


def _comment(text: str) -> list[str]:
    return textwrap.wrap(text, 98, initial_indent="# ", subsequent_indent="# ")


def _toml(value: bool | int | float | str) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else repr(value)
