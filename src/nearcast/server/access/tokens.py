"""Who may do what, and how often: tokens and their roles, and from where a browser may speak.

Without any token everyone on this machine may do everything. Tokens are static (the settings
`token` and `token_file`) or JWTs of an issuer whose keys the node knows (`jwts`); what each allows
is a `Grant` (`grants`). Only digests of static tokens are kept and compared.
"""

import tomllib
from collections.abc import Mapping
from hashlib import sha256
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from nearcast.errors import AccessError
from nearcast.server.config import JwtSettings, is_loopback
from nearcast.service.access.grants import Claims, Grant, grant_from_claims

if TYPE_CHECKING:
    from nearcast.server.access.jwts import JwtVerifier


class Denied(Struct, frozen=True):
    """Why a token is not accepted."""

    reason: str = "this token is not known here"
    # Nothing shows that the token was ever good. One that is signed but has expired is no guess.
    guess: bool = True
    unknown_key: bool = False  # it names a key that the node does not have, or not yet


EVERYTHING = Grant()
UNKNOWN = Denied()
AccessDecision: TypeAlias = Grant | Denied


class AccessControl:
    """The tokens that a node knows; none at all: everyone may do everything."""

    def __init__(
        self, grants: Mapping[str, Grant] | None = None, jwts: "JwtVerifier | None" = None
    ) -> None:
        keyed = {_digest(token): grant for token, grant in (grants or {}).items()}
        self._grants = {key: replace(grant, key=key) for key, grant in keyed.items()}
        self._jwts = jwts

    @property
    def open(self) -> bool:
        return not self._grants and self._jwts is None

    def check(self, token: str, now: float) -> AccessDecision:
        """What the bearer may do at this Unix time in seconds, or why nothing.

        Looking up a digest tells nothing of the tokens by its time.
        """
        if self.open:
            return EVERYTHING
        if grant := self._grants.get(_digest(token)):
            return grant
        return self._jwts.check(token, now) if self._jwts and token else UNKNOWN

    def renewed(self, grant: Grant) -> Grant | None:
        """What a grant of before a reload is now; None if its token or key is gone."""
        if self.open:
            return grant
        if self._jwts is not None and self._jwts.has(grant.key):
            return grant
        return self._grants.get(grant.key)

    async def refresh(self) -> bool:
        """Fetch the keys of JWTs again, if that may help. True: they have changed by this."""
        return self._jwts is not None and await self._jwts.refresh()


class _Entry(Claims, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of the token file."""

    token: str


def load_access(
    token: str = "", file: str | PathLike[str] = "", jwt: JwtSettings | None = None
) -> AccessControl:
    """From the settings `token` (an admin's), `token_file` and `jwt`. It reads files, and fetches
    keys if they have a URL; AccessError says what is wrong with them."""
    grants = {token: Grant("token:")} if token else {}
    if file:
        grants |= read_tokens(Path(file))
    if jwt is None or not jwt.keys:
        return AccessControl(grants)
    from nearcast.server.access.jwts import (
        JwtVerifier,
    )  # a node without JWTs starts without loading PyJWT

    return AccessControl(grants, JwtVerifier(jwt))


def read_tokens(file: Path) -> dict[str, Grant]:
    """A TOML file of tables like [alice] with `token`, and what `Claims` has."""
    try:
        entries = msgspec.convert(tomllib.loads(file.read_text("utf-8")), dict[str, _Entry])
        grants: dict[str, Grant] = {}
        for name, entry in entries.items():
            if len(entry.token) < 8 or entry.token in grants:
                raise ValueError(f"{name}: a token has 8 characters or more and is used once")
            grants[entry.token] = grant_from_claims(entry, f"token:{name}")
    except OSError as why:
        raise AccessError(f"cannot read {file}: {why.strerror}") from None
    except (ValueError, TypeError) as why:  # TOML, types and shapes say it in their own words
        raise AccessError(f"{file}: {' '.join(str(why).split())}") from None
    if not grants:
        raise AccessError(f"{file} names no token: nobody could come in")
    return grants


def foreign_page_refusal(headers: Mapping[str, str], open_to_all: bool) -> str | None:
    """Why a browser's page may not speak to this node; None if it may.

    A page from elsewhere can reach a node on its reader's machine. So without tokens a page must
    come from this machine, and call the node by a name that is always this machine's.
    """
    if not open_to_all:
        return None
    host = headers.get("host", "")
    name = _hostname(f"//{host}")
    if host and not is_loopback(name):
        return f"without a token this node answers to loopback names, not to {name[:80]!r}"
    origin = headers.get("origin")
    if origin is not None and not is_loopback(_hostname(origin)):
        return f"without a token pages from {origin[:80]!r} may not speak to this node"
    return None


def _hostname(address: str) -> str:
    """The host in an address; "" if it is none, such as `//[`."""
    try:
        return urlsplit(address).hostname or ""
    except ValueError:
        return ""


def _digest(token: str) -> bytes:
    return sha256(token.encode("utf-8", "surrogatepass")).digest()
