"""Who a node is: a key pair. Its name is the hash of the public key, so a name proves itself.

A name is short, because identifiers fit a double: 40 bits for the node of an entity, and for nodes
that serve no entity a number from `FIRST_SERVER` on, as in the simulator. That is enough against
accidents, and too little against someone who can make 2**40 keys. So whoever has met a node keeps
its whole key beside the name (`address_book.py`), and a second key with the same name is refused.
"""

import os
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import NameOID

from nearcast.errors import IdentityError
from nearcast.model.subscription import NodeId
from nearcast.protocols.overlay import FIRST_SERVER
from nearcast.trace.schema import IDS_END

KEY_BYTES = 32
OWNER_ALONE = 0o600


def name_of(key: bytes, *, serves: bool = False) -> NodeId:
    """The name that goes with a public key; `serves`: as a node that serves no entity."""
    digest = int.from_bytes(sha256(key).digest(), "big")
    if serves:
        return FIRST_SERVER + (digest >> (256 - 53)) % (IDS_END - FIRST_SERVER)
    return digest >> (256 - 40)


def is_name_of(key: bytes, name: NodeId) -> bool:
    return name == name_of(key, serves=name >= FIRST_SERVER)


def verify_signature(key: bytes, signature: bytes, signed_bytes: bytes) -> bool:
    """Has the owner of this key signed these words?"""
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, signed_bytes)
    except (InvalidSignature, ValueError):
        return False
    return True


def key_of_certificate(der: bytes) -> bytes:
    """The public key inside; ValueError if it is of another kind than ours, or cannot be read."""
    try:
        public = x509.load_der_x509_certificate(der).public_key()
    except (TypeError, UnsupportedAlgorithm, x509.InvalidVersion) as why:
        raise ValueError(f"a node's certificate cannot be read: {why}") from None
    if not isinstance(public, Ed25519PublicKey):
        raise ValueError("a node's certificate must hold an Ed25519 key")
    return public.public_bytes_raw()


class Identity:
    """A private key and the name that follows from it."""

    def __init__(self, private: Ed25519PrivateKey, *, serves: bool = False) -> None:
        self._private = private
        self.key = private.public_key().public_bytes_raw()
        self.name = name_of(self.key, serves=serves)

    def as_server(self) -> "Identity":
        """The same key under its other name."""
        return Identity(self._private, serves=True)

    def sign(self, signed_bytes: bytes) -> bytes:
        return self._private.sign(signed_bytes)

    def private_pem(self) -> bytes:
        return self._private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())

    def certificate_pem(self) -> bytes:
        """Signed by itself: TLS wants a certificate, and we want nothing of it but the key."""
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"{self.name:014x}")])
        certificate = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(subject)
            .public_key(self._private.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(datetime(2020, 1, 1, tzinfo=UTC))
            .not_valid_after(datetime(9999, 12, 31, tzinfo=UTC))
            .sign(self._private, None)
        )
        return certificate.public_bytes(Encoding.PEM)


def new_identity(*, serves: bool = False) -> Identity:
    """For a life of its own, kept nowhere."""
    return Identity(Ed25519PrivateKey.generate(), serves=serves)


def load_identity(file: Path) -> Identity:
    """The identity in this file, which is made if there is none. Nobody else may read it."""
    try:
        if not file.exists():
            identity = new_identity()
            file.parent.mkdir(parents=True, exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
            with open(os.open(file, flags, OWNER_ALONE), "wb") as opened:
                opened.write(identity.private_pem())
            return identity
        if file.stat().st_mode & 0o077:
            raise IdentityError(f"{file} can be read by others; chmod 600 it, or make a new key")
        private = load_pem_private_key(file.read_bytes(), None)
    except OSError as error:
        raise IdentityError(f"cannot use {file}: {error.strerror}") from error
    except (ValueError, TypeError) as error:
        if isinstance(error, IdentityError):
            raise
        raise IdentityError(f"{file} holds no private key") from error
    if not isinstance(private, Ed25519PrivateKey):
        raise IdentityError(f"{file} holds no Ed25519 key")
    return Identity(private)
