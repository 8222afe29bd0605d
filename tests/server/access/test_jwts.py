"""JWTs: which are accepted, by which key, at what time, and what they grant."""

import asyncio
import hmac
import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from nearcast.errors import AccessError
from nearcast.server.access import jwts
from nearcast.server.access.jwts import JwtVerifier, load_keys, read_keys
from nearcast.server.access.tokens import AccessControl, AccessDecision, Denied, load_access
from nearcast.server.config import JwtSettings
from nearcast.service.access.grants import Channels, Grant
from nearcast.space.shapes import box, disc
from support.jwt_issuer import (
    NOW,
    SECRET,
    Signer,
    base64,
    claims_of,
    eddsa,
    es256,
    hs256,
    issuing,
    jwks,
    rs256,
)


@pytest.fixture(scope="module")
def rsa_signer() -> Signer:
    return rs256("r")


def known(folder: Path, *keys: dict[str, Any], **settings: Any) -> JwtVerifier:
    """What a node with a JWKS file of these keys accepts."""
    file = folder / "jwks.json"
    file.write_bytes(jwks(*keys))
    return JwtVerifier(JwtSettings(keys=str(file), **{"leeway_s": 0.0, **settings}))


def reason(verdict: AccessDecision) -> str:
    assert isinstance(verdict, Denied), verdict
    return verdict.reason


def guessed(verdict: AccessDecision) -> bool:
    return isinstance(verdict, Denied) and verdict.guess


def test_each_kind_of_key_signs_tokens_that_are_accepted(
    tmp_path: Path, rsa_signer: Signer
) -> None:
    signers = [hs256("h"), rsa_signer, es256("e"), eddsa("d")]
    node = known(tmp_path, *(signer.jwk() for signer in signers))
    for signer in signers:
        grant = node.check(signer.token(), NOW)
        assert isinstance(grant, Grant), signer.algorithm
        assert (grant.holder, grant.role, grant.expires) == ("jwt:alice", "admin", NOW + 3600)
        assert node.has(grant.key)


def test_claims_become_a_grant(tmp_path: Path) -> None:
    signer = eddsa()
    claim = {
        "role": "publish",
        "within": {"x": 1, "y": 2, "r": 3},
        "listen_within": {"x": 0, "y": 0, "rx": 5, "ry": 6},
        "publish_channels": ["chat.*"],
        "listen_channels": ["*"],
        "requests": 10,
        "subscriptions": 3,
        "connections": 2,
    }
    grant = known(tmp_path, signer.jwk()).check(signer.token(claims_of(claim)), NOW)
    assert isinstance(grant, Grant)
    assert grant.within == disc(1, 2, 3)
    assert grant.listen_within == box(0, 0, 5, 6)
    assert grant.publish_channels == Channels(["chat.*"])
    assert grant.listen_channels == Channels(["*"])
    assert (grant.requests, grant.subscriptions, grant.connections) == (10, 3, 2)


@pytest.mark.parametrize(
    ("claims", "told"),
    [
        ({"nearcast": {"role": "king"}}, "king"),
        ({"nearcast": {}}, "role"),
        ({"nearcast": None}, "null"),
        ({"nearcast": {"role": "read", "chanels": []}}, "unknown field `chanels`"),
        ({"nearcast": {"role": "read", "within": {"x": 1, "y": 1, "r": -1}}}, "extents"),
        ({"nearcast": {"role": "read", "within": {"x": 1, "y": 1, "q": 1}}}, "unknown field `q`"),
        ({"nearcast": {"role": "read", "requests": 0}}, ">= 1"),
        ({"nearcast": {"role": "read", "listen_channels": "chat"}}, "array"),
        ({"exp": "soon"}, "exp"),
        ({"exp": float("nan")}, "seconds of Unix time"),
        ({"nbf": float("inf")}, "seconds of Unix time"),
        ({"sub": "", "nearcast": {"role": "read", "connections": 1}}, "needs a subject"),
        ({"sub": "\ud800"}, "surrogates"),
    ],
)
def test_a_signed_token_that_makes_no_sense_is_refused_with_a_reason(
    tmp_path: Path, claims: dict[str, Any], told: str
) -> None:
    signer = hs256()
    verdict = known(tmp_path, signer.jwk()).check(signer.token(claims_of() | claims), NOW)
    assert told in reason(verdict)
    assert "\n" not in reason(verdict)
    assert not guessed(verdict)
    reason(verdict).encode()


@pytest.mark.parametrize("missing", ["exp", "nearcast"])
def test_a_token_must_expire_and_must_state_what_it_grants(tmp_path: Path, missing: str) -> None:
    signer = hs256()
    claims = claims_of()
    del claims[missing]
    verdict = known(tmp_path, signer.jwk()).check(signer.token(claims), NOW)
    assert f"missing required field `{missing}`" in reason(verdict)


def test_times_count_with_leeway(tmp_path: Path) -> None:
    signer = hs256()
    node = known(tmp_path, signer.jwk(), leeway_s=10.0)
    token = signer.token(claims_of(nbf=NOW, iat=NOW + 5))
    verdicts = {t: node.check(token, t) for t in (NOW - 6, NOW - 5, NOW, NOW + 3609, NOW + 3610)}
    accepted = [t for t, verdict in verdicts.items() if isinstance(verdict, Grant)]
    assert accepted == [NOW - 5, NOW, NOW + 3609]
    assert reason(verdicts[NOW - 6]) == "your token is not valid yet"
    assert reason(verdicts[NOW + 3610]) == "your token has expired"
    grant = verdicts[NOW]
    assert isinstance(grant, Grant)
    assert grant.expires == NOW + 3610, "a session ends when its token would not be accepted again"


def test_issuer_and_audience_must_be_the_ones_that_are_set(tmp_path: Path) -> None:
    signer = hs256()
    node = known(tmp_path, signer.jwk(), issuer="https://id.example", audience="nearcast")
    for claims, good in (
        ({"iss": "https://id.example", "aud": "nearcast"}, True),
        ({"iss": "https://id.example", "aud": ["shop", "nearcast"]}, True),
        ({"iss": "https://id.example", "aud": "shop"}, False),
        ({"iss": "https://id.example"}, False),
        ({"iss": "https://evil.example", "aud": "nearcast"}, False),
        ({"aud": "nearcast"}, False),
    ):
        verdict = node.check(signer.token(claims_of(**claims)), NOW)
        assert isinstance(verdict, Grant) == good, claims
        assert good or "not for this node" in reason(verdict)
    unset = known(tmp_path, signer.jwk())
    assert "not for this node" in reason(unset.check(signer.token(claims_of(aud="shop")), NOW))


def test_nobody_else_signs(tmp_path: Path, rsa_signer: Signer) -> None:
    ours, others = [rsa_signer, es256("e"), eddsa("d"), hs256("h")], [es256("e"), eddsa("d")]
    node = known(tmp_path, *(signer.jwk() for signer in ours))
    signers = [*others, hs256("h", b"another secret of more than 32 bytes")]
    assert all(guessed(node.check(signer.token(), NOW)) for signer in signers)
    for signer in ours:
        head, body, signature = signer.token().split(".")
        more = base64(json.dumps(claims_of({"role": "admin"}, sub="bob")).encode())
        assert guessed(node.check(f"{head}.{more}.{signature}", NOW))
        assert guessed(node.check(f"{head}.{body}.", NOW))


def forged(header: dict[str, Any], key: bytes | None) -> str:
    """Signed with HMAC by hand, as PyJWT refuses to do what an attacker does."""
    signed = f"{base64(json.dumps(header).encode())}.{base64(json.dumps(claims_of()).encode())}"
    code = hmac.digest(key, signed.encode(), "sha256") if key else b""
    return f"{signed}.{base64(code)}"


@pytest.mark.parametrize("algorithm", ["none", "None", "HS256", "HS512", "RS256", "ES256", ""])
def test_the_key_fixes_the_algorithm_and_not_the_token(
    tmp_path: Path, rsa_signer: Signer, algorithm: str
) -> None:
    """A public key is no secret: whoever signs with it by HMAC is refused."""
    signers = [rsa_signer, es256("e"), eddsa("d")]
    node = known(tmp_path, *(signer.jwk() for signer in signers))
    for signer in signers:
        public = signer.key.public_key()
        secrets: list[bytes | None] = [None, json.dumps(signer.jwk()).encode()]
        secrets.append(public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
        secrets.append(public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo))
        for header in ({"alg": algorithm, "kid": signer.kid}, {"alg": algorithm}):
            assert all(guessed(node.check(forged(header, secret), NOW)) for secret in secrets)


def test_none_is_refused_for_a_secret_too(tmp_path: Path) -> None:
    node = known(tmp_path, hs256().jwk())
    assert guessed(node.check(forged({"alg": "none"}, None), NOW))
    assert guessed(node.check(jwt.encode(claims_of(), None, "none"), NOW))
    assert guessed(node.check(jwt.encode(claims_of(), SECRET, "HS384"), NOW))
    assert isinstance(node.check(forged({"alg": "HS256"}, SECRET), NOW), Grant)


def test_a_token_is_checked_by_the_key_that_it_names(tmp_path: Path) -> None:
    old, new, nameless = hs256("old"), hs256("new", SECRET[::-1]), eddsa()
    node = known(tmp_path, old.jwk(), new.jwk(), nameless.jwk())
    assert isinstance(node.check(old.token(), NOW), Grant)
    assert isinstance(node.check(new.token(), NOW), Grant)
    assert guessed(node.check(old.token(kid="new"), NOW))
    assert guessed(node.check(old.token(kid="other"), NOW))
    assert isinstance(node.check(jwt.encode(claims_of(), new.key, "HS256"), NOW), Grant)
    assert isinstance(node.check(nameless.token(), NOW), Grant)
    assert guessed(node.check(nameless.token(kid="other"), NOW))


def joined(*parts: bytes) -> str:
    return ".".join(map(base64, parts))


@pytest.mark.parametrize(
    "token",
    [
        "", ".", "..", "a.b.c", "é.é.é", "a" * 9_000,
        joined(b"[]", b"{}", b""), joined(b"{}", b"{}", b""), joined(b"[" * 5_000, b"", b""),
        joined(b'{"alg":["HS256"]}', b"{}", b"x"), joined(b'{"alg":"HS256","kid":[]}', b"{}", b"x"),
    ],
)  # fmt: skip
def test_whatever_an_unknown_client_sends_is_a_wrong_token(tmp_path: Path, token: str) -> None:
    assert guessed(known(tmp_path, hs256().jwk()).check(token, NOW))


@pytest.mark.parametrize("body", [b"[1]", b"[" * 3_000, b"\xff", b'{"exp":' + b"9" * 3_000 + b"}"])
def test_a_signed_body_that_is_no_claims_is_refused(tmp_path: Path, body: bytes) -> None:
    signed = joined(b'{"alg":"HS256"}', body)
    code = hmac.digest(SECRET, signed.encode(), "sha256")
    verdict = known(tmp_path, hs256().jwk()).check(f"{signed}.{base64(code)}", NOW)
    assert isinstance(verdict, Denied)


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        (b"{", "truncated"),
        (b"[]", "object"),
        (b"{}", "keys"),
        (jwks(), "no key"),
        (jwks({"kty": "oct", "k": base64(b"short")}), "32 bytes or more"),
        (jwks({"kty": "oct"}), "needs k"),
        (jwks({"kty": "oct", "k": base64(SECRET), "kid": 3}), "kid"),
        (jwks(*[{"kty": "oct", "k": base64(SECRET), "kid": "a"}] * 2), "same kid"),
        (jwks({"kty": "RSA", "n": "!", "e": "AQAB"}), "makes no sense"),
        (jwks({"kty": "EC", "crv": "P-384", "x": "a", "y": "b"}), "no key"),
        (jwks({"kty": "oct", "k": base64(SECRET), "use": "enc"}), "no key"),
        (jwks({"kty": "oct", "k": base64(SECRET), "alg": "HS512"}), "no key"),
        (jwks(*[{"kty": "x"}] * 65), "at most 64"),
    ],
)
def test_a_jwks_that_cannot_be_used_is_told_in_one_line(
    tmp_path: Path, keys: bytes, told: str
) -> None:
    file = tmp_path / "jwks.json"
    file.write_bytes(keys)
    with pytest.raises(AccessError, match=told) as why:
        load_keys(str(file))
    assert str(file) in str(why.value)
    assert "\n" not in str(why.value)


def test_weak_rsa_keys_are_refused() -> None:
    with pytest.raises(ValueError, match="2048 bits"):
        read_keys(jwks(rs256(bits=1024).jwk()))


def test_of_a_private_key_only_the_public_half_is_kept() -> None:
    signer = eddsa()
    private = json.loads(get_private(signer))
    (key,) = read_keys(jwks(private))
    assert not hasattr(key.key.key, "sign")
    assert key.digest == read_keys(jwks(signer.jwk()))[0].digest


def get_private(signer: Signer) -> str:
    return str(jwt.algorithms.OKPAlgorithm.to_jwk(signer.key))


def test_a_missing_jwks_is_told(tmp_path: Path) -> None:
    with pytest.raises(AccessError, match="cannot read"):
        load_keys(str(tmp_path / "none.json"))


# Keys from a URL.


def test_keys_come_from_a_url() -> None:
    signer = es256("e")
    with issuing(signer.jwk(), hs256("h").jwk()) as issuer:
        node = JwtVerifier(JwtSettings(keys=issuer.url))
        assert isinstance(node.check(signer.token(), NOW), Grant)
        assert guessed(node.check(hs256("h").token(), NOW)), "a secret at a URL is none"


@pytest.mark.parametrize(
    ("status", "location", "told"), [(500, "", "status 500"), (302, "/elsewhere", "status 302")]
)
def test_a_url_that_does_not_answer_by_itself_is_an_error_at_the_start(
    status: int, location: str, told: str
) -> None:
    with issuing(es256().jwk()) as issuer:
        issuer.status, issuer.location = status, location
        with pytest.raises(AccessError, match=told):
            JwtVerifier(JwtSettings(keys=issuer.url))
        assert issuer.asked == 1
    with pytest.raises(AccessError, match="cannot fetch"):
        JwtVerifier(JwtSettings(keys=issuer.url))


def test_an_unknown_key_is_fetched_once_and_not_again_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = es256("old"), es256("new")
    clock = [100.0]
    monkeypatch.setattr(jwts, "monotonic", lambda: clock[0])

    async def story() -> None:
        known = await asyncio.to_thread(load_access, "", "", JwtSettings(keys=issuer.url))
        unknown = known.check(new.token(), NOW)
        assert isinstance(unknown, Denied)
        assert unknown.unknown_key
        issuer.body = jwks(old.jwk(), new.jwk())
        assert await known.refresh() is False, "it was read only just now"
        clock[0] += jwts.REFRESH_S
        changed = await asyncio.gather(*(known.refresh() for _ in range(10)))
        assert changed == [True] + [False] * 9
        assert issuer.asked == 2
        assert isinstance(known.check(new.token(), NOW), Grant)
        assert isinstance(known.check(old.token(), NOW), Grant)

    with issuing(old.jwk()) as issuer:
        asyncio.run(story())


def test_keys_stay_when_they_cannot_be_fetched_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    signer = es256("e")
    monkeypatch.setattr(jwts, "REFRESH_S", -1.0)

    async def story() -> None:
        known = await asyncio.to_thread(load_access, "", "", JwtSettings(keys=issuer.url))
        issuer.status = 503
        assert await known.refresh() is False
        assert isinstance(known.check(signer.token(), NOW), Grant)

    with issuing(signer.jwk()) as issuer, caplog.at_level(logging.WARNING):
        asyncio.run(story())
    assert [record.getMessage() for record in caplog.records] == [
        f"the keys of tokens stay as they were: cannot fetch {issuer.url}: status 503"
    ]


def test_a_grant_stands_as_long_as_its_key(tmp_path: Path) -> None:
    first, second = hs256("a"), hs256("b", SECRET[::-1])
    grant = known(tmp_path, first.jwk(), second.jwk()).check(first.token(), NOW)
    assert isinstance(grant, Grant)
    assert AccessControl(None, known(tmp_path, first.jwk())).renewed(grant) is grant
    assert AccessControl(None, known(tmp_path, second.jwk())).renewed(grant) is None
    assert AccessControl({"static-token": Grant()}).renewed(grant) is None


def test_a_node_without_jwts_does_not_load_the_library() -> None:
    code = "import sys, nearcast.server.server; sys.exit('jwt' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
