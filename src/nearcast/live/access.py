"""Who may do what, and how often: tokens, their roles, and from where a browser may speak.

Without any token everyone on this machine may do everything. With tokens, each stands for a role:
"read" hears and never speaks, "publish" also publishes (within an area, if one is given), "admin"
may do everything. Only digests of tokens are kept and compared.
"""

import tomllib
from collections.abc import Mapping
from hashlib import sha256
from math import hypot
from os import PathLike
from pathlib import Path
from typing import Literal, TypeAlias
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from nearcast.live.areas import shape
from nearcast.live.config import loopback
from nearcast.space.shapes import Kind, Shape

Role: TypeAlias = Literal["read", "publish", "admin"]


class AccessError(ValueError):
    """A file of tokens that cannot be used, told in one line."""


class Grant(Struct, frozen=True):
    """What a token stands for. `within`: publications must lie in it."""

    name: str = ""
    role: Role = "admin"
    within: Shape | None = None

    def refusal(self, said: Shape) -> str | None:
        """Why this may not be published; None if it may."""
        if self.role == "read":
            return "your token allows you to listen, not to publish"
        if self.within is not None and not holds(self.within, said):
            return "your token allows you to publish only within its area"
        return None


EVERYTHING = Grant()


class Access:
    """The tokens that a node knows; none at all: everyone may do everything."""

    def __init__(self, grants: Mapping[str, Grant] | None = None) -> None:
        self._grants = {_digest(token): grant for token, grant in (grants or {}).items()}

    @property
    def open(self) -> bool:
        return not self._grants

    def grant(self, token: str) -> Grant | None:
        """What the bearer may do; None: nothing. Looking up a digest tells nothing by its time."""
        return EVERYTHING if self.open else self._grants.get(_digest(token))


class Bucket:
    """So many requests a second; saved up for at most two. Time is looked at only when empty."""

    def __init__(self, rate: int, now: float) -> None:
        self._rate, self._filled = rate, now
        self._left = 2.0 * rate

    def take(self) -> bool:
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True

    def charge(self, cost: int) -> None:
        """Take that much more, into debt if need be: of at most two seconds. Below 0: give back."""
        self._left = max(self._left - cost, -2.0 * self._rate)

    def fill(self, now: float) -> bool:
        """After `take` failed: is there one after all?"""
        gained = (now - self._filled) * self._rate
        self._left, self._filled = min(self._left + gained, 2.0 * self._rate), now
        return self.take()


class _Entry(Struct, forbid_unknown_fields=True):
    token: str
    role: Role
    within: dict[str, float] | None = None


def access(token: str = "", file: str | PathLike[str] = "") -> Access:
    """From the settings `token` (an admin's) and `token_file`."""
    grants = {token: EVERYTHING} if token else {}
    if file:
        grants |= read_tokens(Path(file))
    return Access(grants)


def read_tokens(file: Path) -> dict[str, Grant]:
    """A TOML file of tables like [alice] with `token`, `role` and perhaps `within`."""
    try:
        entries = msgspec.convert(tomllib.loads(file.read_text("utf-8")), dict[str, _Entry])
        grants: dict[str, Grant] = {}
        for name, entry in entries.items():
            if len(entry.token) < 8 or entry.token in grants:
                raise ValueError(f"{name}: a token has 8 characters or more and is used once")
            where = shape(**entry.within) if entry.within is not None else None
            grants[entry.token] = Grant(name, entry.role, where)
    except OSError as why:
        raise AccessError(f"cannot read {file}: {why.strerror}") from None
    except (ValueError, TypeError) as why:  # TOML, types and shapes say it in their own words
        raise AccessError(f"{file}: {' '.join(str(why).split())}") from None
    if not grants:
        raise AccessError(f"{file} names no token: nobody could come in")
    return grants


def holds(outer: Shape, inner: Shape) -> bool:
    """Does `inner` lie in `outer`, its border included?"""
    away = (abs(inner.x - outer.x), abs(inner.y - outer.y), abs(inner.z - outer.z))
    if outer.kind == Kind.DISC and inner.kind == Kind.DISC:
        return hypot(*away) + inner.rx <= outer.rx
    reach = (inner.rx, inner.ry, inner.rz)
    if inner.kind == Kind.DISC:  # in a flat area a disc is flat, too
        reach = (inner.rx, inner.rx, inner.rx if outer.rz else 0.0)
    farthest = [a + r for a, r in zip(away, reach, strict=True)]
    if outer.kind == Kind.DISC:
        return hypot(*farthest) <= outer.rx
    return farthest[0] <= outer.rx and farthest[1] <= outer.ry and farthest[2] <= outer.rz


def foreign(headers: Mapping[str, str], open_to_all: bool) -> str | None:
    """Why a browser's page may not speak to this node; None if it may.

    A page from elsewhere can reach a node on its reader's machine. So without tokens a page must
    come from this machine, and call the node by a name that is always this machine's.
    """
    if not open_to_all:
        return None
    host = headers.get("host", "")
    name = urlsplit(f"//{host}").hostname or ""
    if host and not loopback(name):
        return f"without a token this node answers to loopback names, not to {name[:80]!r}"
    origin = headers.get("origin")
    if origin is not None and not loopback(urlsplit(origin).hostname or ""):
        return f"without a token pages from {origin[:80]!r} may not speak to this node"
    return None


def _digest(token: str) -> bytes:
    return sha256(token.encode("utf-8", "surrogatepass")).digest()
