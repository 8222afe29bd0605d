"""JSON Web Tokens: which are accepted, by the keys of their issuer (a JWKS), and what they grant.

Each key fixes the one algorithm by which it is used; what a token's header says only has to agree.
So nobody can have a public key taken for a shared secret, and `none` is no algorithm at all.
"""

import asyncio
import logging
from hashlib import sha256
from math import isfinite
from pathlib import Path
from time import monotonic
from typing import Annotated, Any
from urllib.error import HTTPError
from urllib.request import HTTPRedirectHandler, ProxyHandler, Request, build_opener

import jwt
import msgspec
from msgspec import Meta, Struct

from nearcast.errors import AccessError
from nearcast.server.access.tokens import UNKNOWN, AccessDecision, Denied
from nearcast.server.config import JwtSettings
from nearcast.service.access.grants import Claims, grant_from_claims

LOG = logging.getLogger(__name__)
REFRESH_S = 10.0  # between two looks at the keys because a token named an unknown one
FETCH_S = 5.0  # that a JWKS URL has to answer
LARGEST = 1_048_576  # bytes of a JWKS
MOST_KEYS = 64
LONGEST = 8_192  # characters of a token
SECRET = 32  # bytes of an HS256 secret, at least (RFC 7518, 3.2)
RSA_BITS = 2_048  # at least (RFC 7518, 3.3)
# Of each kind of key: its algorithm, and the members that make it up. Private ones are left out.
KINDS: dict[tuple[str, str | None], tuple[str, tuple[str, ...]]] = {
    ("oct", None): ("HS256", ("k",)),
    ("RSA", None): ("RS256", ("n", "e")),
    ("EC", "P-256"): ("ES256", ("x", "y")),
    ("OKP", "Ed25519"): ("EdDSA", ("x",)),
}


class IssuerKey(Struct, frozen=True):
    """One key of the issuer. Its name is None if the JWKS gives it none."""

    name: str | None
    key: jwt.PyJWK
    digest: bytes


class JwtClaims(Struct, frozen=True):
    """The claims that count; others are passed over, but not inside `nearcast`."""

    exp: float
    nearcast: Claims
    sub: Annotated[str, Meta(max_length=255)] = ""
    nbf: float = 0.0
    iat: float = 0.0


class JwtVerifier:
    """The issuer's keys. Making one reads or fetches them: AccessError if that fails."""

    def __init__(self, settings: JwtSettings) -> None:
        self._settings = settings
        self._remote = "://" in settings.keys
        self._keys = load_keys(settings.keys)
        self._refreshing: asyncio.Future[bool] | None = None
        self._refreshed = monotonic()

    def has(self, digest: bytes) -> bool:
        """Is this still a key of the issuer?"""
        return any(key.digest == digest for key in self._keys)

    def check(self, token: str, now: float) -> AccessDecision:
        """What a token grants at this Unix time in seconds, or why nothing."""
        if len(token) > LONGEST:
            return UNKNOWN
        try:
            header = jwt.get_unverified_header(token)
        except Exception:  # a parser that meets a stranger's bytes: whatever happens, it is no JWT
            return UNKNOWN
        name, algorithm = header.get("kid"), header.get("alg")
        named = [key for key in self._keys if name is None or key.name == name]
        if not named:
            return Denied(unknown_key=self._remote)
        for key in named:
            if key.key.algorithm_name == algorithm:
                claims = self._verified(token, key)
                if isinstance(claims, Denied):
                    return claims
                if claims is not None:
                    return self._granted(claims, key, now)
        return UNKNOWN

    def _verified(self, token: str, key: IssuerKey) -> dict[str, Any] | Denied | None:
        """Its claims, or what is wrong with a signed one; None if this key has not signed it."""
        settings = self._settings
        try:
            claims: dict[str, Any] = jwt.decode(
                token, key.key, algorithms=[key.key.algorithm_name],
                audience=settings.audience or None, issuer=settings.issuer or None,
                options={"verify_exp": False, "verify_nbf": False, "verify_iat": False},
            )  # fmt: skip
        except jwt.InvalidSignatureError:
            return None
        except (
            jwt.InvalidAudienceError, jwt.InvalidIssuerError, jwt.MissingRequiredClaimError
        ) as why:  # fmt: skip
            return Denied(f"this token is not for this node: {why}", guess=False)
        except Exception:
            return None
        return claims

    def _granted(self, claims: dict[str, Any], key: IssuerKey, now: float) -> AccessDecision:
        """Of a token that the issuer has signed: what is wrong with it is settings."""
        leeway = self._settings.leeway_s
        try:
            payload = msgspec.convert(claims, JwtClaims)
            if not all(map(isfinite, (payload.exp, payload.nbf, payload.iat))):
                raise ValueError("exp, nbf and iat are seconds of Unix time")
            if now >= payload.exp + leeway:
                return Denied("your token has expired", guess=False)
            if max(payload.nbf, payload.iat) > now + leeway:
                return Denied("your token is not valid yet", guess=False)
            granted = payload.nearcast
            payload.sub.encode()  # JSON can write what is no Unicode
            if not payload.sub and (
                granted.requests or granted.subscriptions or granted.connections
            ):
                raise ValueError("a token with quotas needs a subject (sub)")
            return grant_from_claims(
                granted, f"jwt:{payload.sub}", key.digest, payload.exp + leeway
            )
        except ValueError as why:  # types and shapes say it in their own words
            reason = " ".join(ascii(str(why))[1:-1].split())
            return Denied(f"your token makes no sense here: {reason[:200]}", guess=False)

    async def refresh(self) -> bool:
        """Fetch the keys again, at most every few seconds; all who ask meanwhile wait for the same.

        True for the one who asked first, if the keys have changed. Without an answer the old keys
        stay in force.
        """
        if self._refreshing is not None:
            await asyncio.shield(self._refreshing)
            return False
        if not self._remote or monotonic() - self._refreshed < REFRESH_S:
            return False
        self._refreshing = asyncio.ensure_future(self._fetch())
        try:
            return await asyncio.shield(self._refreshing)
        finally:
            self._refreshing, self._refreshed = None, monotonic()

    async def _fetch(self) -> bool:
        try:
            keys = await asyncio.to_thread(load_keys, self._settings.keys)
        except AccessError as why:
            LOG.warning("the keys of tokens stay as they were: %s", why)
            return False
        changed = [key.digest for key in keys] != [key.digest for key in self._keys]
        self._keys = keys
        return changed


def load_keys(where: str) -> list[IssuerKey]:
    """The usable keys of a JWKS file or URL. AccessError if it cannot be read or has none."""
    remote = "://" in where
    try:
        text = _fetched(where) if remote else Path(where).read_bytes()
    except HTTPError as why:
        raise AccessError(f"cannot fetch {where}: status {why.code}") from None
    except OSError as why:
        reason = getattr(why, "reason", None) or why.strerror or why
        verb = "fetch" if remote else "read"
        raise AccessError(f"cannot {verb} {where}: {' '.join(str(reason).split())}") from None
    try:
        keys = read_keys(text, secrets=not remote)
    except ValueError as why:
        raise AccessError(f"{where}: {' '.join(str(why).split())}") from None
    if not keys:
        kinds = "RS256, ES256 or EdDSA" if remote else "HS256, RS256, ES256 or EdDSA"
        raise AccessError(f"{where} has no key for {kinds}: no token could be checked")
    return keys


class _Set(Struct, frozen=True):
    keys: list[dict[str, Any]]


def read_keys(text: bytes, secrets: bool = True) -> list[IssuerKey]:
    """The keys of a JWKS that verify one of our algorithms. Others are passed over, as issuers list
    keys for other purposes too; `secrets`: shared ones count. ValueError says what is wrong."""
    listed = msgspec.json.decode(text, type=_Set).keys
    if len(listed) > MOST_KEYS:
        raise ValueError(f"a JWKS has at most {MOST_KEYS} keys")
    keys = []
    for listed_key in listed:
        kind = (
            str(listed_key.get("kty")),
            listed_key.get("crv") if listed_key.get("kty") in ("EC", "OKP") else None,
        )
        algorithm, members = KINDS.get(kind, ("", ()))
        if (
            not algorithm or listed_key.get("alg", algorithm) != algorithm
            or listed_key.get("use", "sig") != "sig" or (kind[0] == "oct" and not secrets)
        ):  # fmt: skip
            continue
        name = listed_key.get("kid")
        if name is not None and not isinstance(name, str):
            raise ValueError("a kid is a text")
        keys.append(_key(name, algorithm, {"kty": kind[0], **_members(listed_key, kind, members)}))
    names = [key.name for key in keys if key.name is not None]
    if len(set(names)) < len(names):
        raise ValueError("two keys have the same kid")
    return keys


def _members(
    listed_key: dict[str, Any], kind: tuple[str, str | None], members: tuple[str, ...]
) -> dict[str, str]:
    missing = [member for member in members if not isinstance(listed_key.get(member), str)]
    if missing:
        raise ValueError(f"a key of kind {kind[0]} needs {', '.join(missing)}")
    found = {member: listed_key[member] for member in members}
    return found if kind[1] is None else {"crv": kind[1], **found}


def _key(name: str | None, algorithm: str, members: dict[str, str]) -> IssuerKey:
    try:
        key = jwt.PyJWK(members, algorithm)
    except jwt.PyJWTError as why:
        raise ValueError(f"a key for {algorithm} makes no sense: {why}") from None
    if algorithm == "HS256" and len(key.key) < SECRET:
        raise ValueError(f"a secret for HS256 has {SECRET} bytes or more")
    if algorithm == "RS256" and key.key.key_size < RSA_BITS:
        raise ValueError(f"a key for RS256 has {RSA_BITS} bits or more")
    digest = sha256(msgspec.json.encode(members, order="sorted")).digest()
    return IssuerKey(name, key, digest)


class _NoRedirects(HTTPRedirectHandler):
    """Keys come from the address that was set, and from nowhere else."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _fetched(url: str) -> bytes:
    # What is on this machine is asked directly, whatever proxy there is for the rest.
    direct = [ProxyHandler({})] if url.startswith("http:") else []
    request = Request(url, headers={"Accept": "application/json"})
    with build_opener(_NoRedirects(), *direct).open(request, timeout=FETCH_S) as answer:
        text: bytes = answer.read(LARGEST + 1)
    if len(text) > LARGEST:
        raise AccessError(f"{url}: a JWKS has at most {LARGEST} bytes")
    return text
