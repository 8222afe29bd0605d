"""What a token allows: a role, channels and areas for publishing and for listening, and quotas.

A table of the token file and the claim `nearcast` of a JWT have the same fields (`Claims`), are
checked by the same rules and become the same value (`Grant`). Nothing here has a clock or a socket.
"""

import re
from collections.abc import Sequence
from fnmatch import translate
from math import hypot
from typing import Annotated, Literal, TypeAlias

from msgspec import Meta, Struct

from nearcast.client_protocol.earth_json import earth_place_shape, refuse_plane_fields
from nearcast.client_protocol.geometry_json import shape_from_fields
from nearcast.model.subscription import Formula, Region
from nearcast.space.motion import Moving, Path
from nearcast.space.shapes import Shape, ShapeKind

Role: TypeAlias = Literal["read", "publish", "admin"]
Pattern: TypeAlias = Annotated[str, Meta(max_length=256)]
Patterns: TypeAlias = Annotated[tuple[Pattern, ...], Meta(max_length=256)]
Quota: TypeAlias = Annotated[int, Meta(ge=1, le=2**31)]

CACHED_CHANNELS = 256  # verdicts on channels, and characters of a channel whose verdict is kept
ROUNDING = 1e-9  # where a motion ends is computed, and may be beside the mark by its last digits


class Channels:
    """Channels by patterns as of `fnmatch`: `*`, `?` and `[…]`, case-sensitive.

    Verdicts are kept, because every publication asks for one. Names that a client invents fill
    the table once and are then judged anew each time, which costs that client alone.
    """

    def __init__(self, patterns: Sequence[str]) -> None:
        self.patterns = tuple(patterns)
        alternatives = "|".join(map(translate, self.patterns))
        self._match = re.compile(alternatives or "(?!)").match
        self._known: dict[str, bool] = {}

    def __contains__(self, channel: str) -> bool:
        known = self._known.get(channel)
        if known is None:
            known = self._match(channel) is not None
            if len(self._known) < CACHED_CHANNELS and len(channel) <= CACHED_CHANNELS:
                self._known[channel] = known
        return known

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Channels) and other.patterns == self.patterns

    def __hash__(self) -> int:
        return hash(self.patterns)

    def __repr__(self) -> str:
        return f"Channels({list(self.patterns)})"


class TokenArea(Struct, frozen=True, forbid_unknown_fields=True):
    """An area as tokens write it: a disc (r) or a box (rx, ry, rz) that stands still.

    On Earth it is a disc of `r` metres around lon and lat.
    """

    x: float | None = None
    y: float | None = None
    z: float = 0.0
    r: float | None = None
    rx: float | None = None
    ry: float | None = None
    rz: float | None = None
    lon: float | None = None
    lat: float | None = None

    @property
    def shape(self) -> Shape:
        """ValueError if the numbers do not fit together."""
        if self.lon is not None and self.lat is not None:
            refuse_plane_fields("the area of a token", self)
            return earth_place_shape(self.lon, self.lat, None, self.r)
        if self.x is None or self.y is None:
            raise ValueError("the area of a token needs x and y, or lon and lat")
        return shape_from_fields(self.x, self.y, self.z, self.r, self.rx, self.ry, self.rz)


class Claims(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a token says of itself. What is left out is not restricted."""

    role: Role
    within: TokenArea | None = None  # publications must lie in it
    listen_within: TokenArea | None = None  # subscriptions and `nearby` must lie in it
    publish_channels: Patterns | None = None
    listen_channels: Patterns | None = None
    requests: Quota | None = None  # a second
    subscriptions: Quota | None = None
    connections: Quota | None = None
    # Sets of fences that it may change. Left out: an admin all, others none.
    fences: Patterns | None = None
    # Entities to which it may send direct messages. Left out: all if its publications are not
    # restricted, else none.
    send_to: Patterns | None = None


class Grant(Struct, frozen=True):
    """What the bearer of a token may do. Quotas count for all connections of one holder."""

    holder: str = ""  # "token:NAME" or "jwt:SUBJECT"
    role: Role = "admin"
    within: Shape | None = None
    listen_within: Shape | None = None
    publish_channels: Channels | None = None
    listen_channels: Channels | None = None
    requests: int | None = None
    subscriptions: int | None = None
    connections: int | None = None
    expires: float | None = None  # Unix time in seconds
    key: bytes = b""  # a digest: of the static token, or of the key that signed the JWT
    fences: Channels | None = None
    send_to: Channels | None = None

    @property
    def limits_publishing(self) -> bool:
        return self.role == "read" or (self.within, self.publish_channels) != (None, None)

    @property
    def limits_listening(self) -> bool:
        return (self.listen_within, self.listen_channels) != (None, None)

    def refusal(self, area: Shape | None, channel: str = "") -> str | None:
        """Why this may not be published; None if it may. Only `within` needs to know where."""
        if self.role == "read":
            return "your token allows you to listen, not to publish"
        if self.publish_channels is not None and channel not in self.publish_channels:
            return f"your token does not allow you to publish on channel {channel[:64]!r}"
        if self.within is not None and (area is None or not contains_shape(self.within, area)):
            return "your token allows you to publish only within its area"
        return None

    def sending_refusal(self, to: str) -> str | None:
        """Why no direct message may be sent to this entity; None if it may."""
        if to in self.send_to if self.send_to is not None else not self.limits_publishing:
            return None
        return f"your token does not allow you to send to {to[:64]!r}"

    def fences_refusal(self, name: str) -> str | None:
        """Why this set of fences may not be changed; None if it may."""
        if name in self.fences if self.fences is not None else self.role == "admin":
            return None
        return f"your token does not allow you to change the fences {name[:64]!r}"

    @property
    def fence_patterns(self) -> tuple[str, ...]:
        """The names of the sets of fences that may be changed."""
        if self.fences is not None:
            return self.fences.patterns
        return ("*",) if self.role == "admin" else ()

    def listening_refusal(self, region: Region | str, channel: str) -> str | None:
        """Why nobody may listen, watch or look there; None if they may."""
        if self.listen_channels is not None and channel not in self.listen_channels:
            return f"your token does not allow you to listen on channel {channel[:64]!r}"
        if self.listen_within is None or stays_within(self.listen_within, region):
            return None
        if isinstance(region, str | Formula):
            return "your token allows you to listen only within its area: no formula can show that"
        return "your token allows you to listen only within its area, for as long as it moves"


def grant_from_claims(
    claims: Claims, holder: str, key: bytes = b"", expires: float | None = None
) -> Grant:
    """ValueError if an area is none."""
    return Grant(
        holder, claims.role,
        claims.within.shape if claims.within else None,
        claims.listen_within.shape if claims.listen_within else None,
        None if claims.publish_channels is None else Channels(claims.publish_channels),
        None if claims.listen_channels is None else Channels(claims.listen_channels),
        claims.requests, claims.subscriptions, claims.connections, expires, key,
        None if claims.fences is None else Channels(claims.fences),
        None if claims.send_to is None else Channels(claims.send_to),
    )  # fmt: skip


def contains_shape(outer: Shape, inner: Shape, slack: float = 1.0) -> bool:
    """Does `inner` lie in `outer`, its border included? `slack` times its extents count."""
    away = (abs(inner.x - outer.x), abs(inner.y - outer.y), abs(inner.z - outer.z))
    if outer.kind == ShapeKind.DISC and inner.kind == ShapeKind.DISC:
        return hypot(*away) + inner.rx <= outer.rx * slack
    reach = (inner.rx, inner.ry, inner.rz)
    if inner.kind == ShapeKind.DISC:  # in a flat area a disc is flat, too
        reach = (inner.rx, inner.rx, inner.rx if outer.rz else 0.0)
    farthest = [a + r for a, r in zip(away, reach, strict=True)]
    if outer.kind == ShapeKind.DISC:
        return hypot(*farthest) <= outer.rx * slack
    extents = (outer.rx, outer.ry, outer.rz)
    return all(far <= r * slack for far, r in zip(farthest, extents, strict=True))


def stays_within(outer: Shape, region: Region | str) -> bool:
    """Does the region lie in `outer` at all times? A formula is never known to.

    Discs and boxes are convex. Centres move linearly and extents grow linearly until they stop at
    0, so that every shape in between lies in the hull of the first and the last one: if `outer`
    holds these two, it holds all.
    """
    if isinstance(region, str | Formula):
        return False
    legs = region.legs if isinstance(region, Path) else (region,)
    return all(_holds_leg(outer, leg) for leg in legs)


def _holds_leg(outer: Shape, leg: Moving) -> bool:
    if not contains_shape(outer, leg.shape):
        return False
    if not leg.moves:
        return True
    return leg.duration is not None and contains_shape(outer, leg.at(leg.until), 1.0 + ROUNDING)
