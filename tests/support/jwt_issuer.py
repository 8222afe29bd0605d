"""An issuer of JWTs for tests: its keys of every kind, its JWKS, and tokens that it signs."""

import json
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import get_default_algorithms

NOW = 1_800_000_000  # whoever owns the clock begins here
SECRET = b"a secret that is long enough for every kind of HMAC that there is"


def base64(raw: bytes) -> str:
    return urlsafe_b64encode(raw).decode().rstrip("=")


class Signer:
    """One key pair, or one secret, and the algorithm by which it signs."""

    def __init__(self, algorithm: str, key: Any, kid: str | None) -> None:
        self.algorithm, self.key, self.kid = algorithm, key, kid

    def jwk(self, **more: Any) -> dict[str, Any]:
        """The public half, as a JWKS lists it."""
        if self.algorithm == "HS256":
            found: dict[str, Any] = {"kty": "oct", "k": base64(self.key)}
        else:
            public = get_default_algorithms()[self.algorithm]
            found = json.loads(public.to_jwk(self.key.public_key()))
            found.pop("key_ops", None)
        return found | ({} if self.kid is None else {"kid": self.kid}) | more

    def token(self, claims: dict[str, Any] | None = None, **header: Any) -> str:
        named = {} if self.kid is None else {"kid": self.kid}
        return jwt.encode(claims or claims_of(), self.key, self.algorithm, headers=named | header)


def claims_of(nearcast: Any = None, *, now: float = NOW, **claims: Any) -> dict[str, Any]:
    """Claims of alice, for an hour."""
    role = {"role": "admin"} if nearcast is None else nearcast
    return {"sub": "alice", "exp": now + 3600, "nearcast": role} | claims


def jwks(*keys: dict[str, Any]) -> bytes:
    return json.dumps({"keys": keys}).encode()


def hs256(kid: str | None = None, secret: bytes = SECRET) -> Signer:
    return Signer("HS256", secret, kid)


def es256(kid: str | None = None) -> Signer:
    return Signer("ES256", ec.generate_private_key(ec.SECP256R1()), kid)


def eddsa(kid: str | None = None) -> Signer:
    return Signer("EdDSA", ed25519.Ed25519PrivateKey.generate(), kid)


def rs256(kid: str | None = None, bits: int = 2048) -> Signer:
    return Signer("RS256", rsa.generate_private_key(65537, bits), kid)


class Issuer:
    """An HTTP server on this machine: what it answers is set from outside."""

    def __init__(self) -> None:
        self.status, self.body, self.asked = 200, b"", 0
        self.location = ""
        issuer = self

        class Answers(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                issuer.asked += 1
                self.send_response(issuer.status)
                if issuer.location:
                    self.send_header("Location", issuer.location)
                self.end_headers()
                self.wfile.write(issuer.body)

            def log_message(self, *_: Any) -> None:
                """Nothing."""

        self.server = HTTPServer(("127.0.0.1", 0), Answers)
        self.url = f"http://127.0.0.1:{self.server.server_port}/jwks"


@contextmanager
def issuing(*keys: dict[str, Any]) -> Iterator[Issuer]:
    issuer = Issuer()
    issuer.body = jwks(*keys)
    thread = Thread(target=issuer.server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield issuer
    finally:
        issuer.server.shutdown()
        thread.join()
        issuer.server.server_close()
