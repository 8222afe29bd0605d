"""A node's name is the hash of its key, and the key is its owner's alone."""

import os
import ssl
import stat

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from nearcast.errors import IdentityError
from nearcast.protocols.overlay import FIRST_SERVER
from nearcast.trace.schema import IDS_END
from nearcast.transport.identity import (
    is_name_of,
    key_of_certificate,
    load_identity,
    name_of,
    new_identity,
    verify_signature,
)


def test_names_are_identifiers_of_entities_or_of_servers():
    for _ in range(50):
        key = new_identity().key
        assert 0 <= name_of(key) < FIRST_SERVER <= name_of(key, serves=True) < IDS_END


def test_a_name_is_a_fixed_function_of_the_key():
    assert name_of(bytes(32)) == 0x66687AADF8  # SHA-256 of 32 zeros begins 66687aadf862bd
    assert name_of(bytes(32), serves=True) == FIRST_SERVER + (0x66687AADF862BD >> 3) % (
        IDS_END - FIRST_SERVER
    )


def test_a_key_owns_its_two_names_and_no_other():
    ann, ben = new_identity(), new_identity(serves=True)
    assert is_name_of(ann.key, ann.name)
    assert is_name_of(ben.key, ben.name)
    assert is_name_of(ann.key, ann.as_server().name)
    assert ann.as_server().name == name_of(ann.key, serves=True) != ann.name
    assert not is_name_of(ann.key, ben.name)
    assert not is_name_of(ann.key, ann.name + 1)


def test_signatures_are_valid_for_one_key_and_one_text_alone():
    ann, ben = new_identity(), new_identity()
    signature = ann.sign(b"words")
    assert verify_signature(ann.key, signature, b"words")
    assert not verify_signature(ann.key, signature, b"other words")
    assert not verify_signature(ben.key, signature, b"words")
    assert not verify_signature(ann.key, b"", b"words")
    assert not verify_signature(b"no key", signature, b"words")


def test_a_certificate_holds_the_key():
    ann = new_identity()
    der = x509.load_pem_x509_certificate(ann.certificate_pem()).public_bytes(Encoding.DER)
    assert key_of_certificate(der) == ann.key


def test_a_stored_identity_is_the_same_after_a_restart(tmp_path):
    file = tmp_path / "keys" / "node.key"
    first = load_identity(file)
    assert stat.S_IMODE(os.stat(file).st_mode) == 0o600
    assert load_identity(file).name == first.name
    assert load_identity(file).key == first.key
    assert load_identity(tmp_path / "other.key").name != first.name


def test_a_key_that_others_can_read_is_refused(tmp_path):
    file = tmp_path / "node.key"
    load_identity(file)
    os.chmod(file, 0o644)
    with pytest.raises(IdentityError, match="chmod 600"):
        load_identity(file)


def test_files_that_hold_no_key_of_ours_are_refused_in_one_line(tmp_path):
    file = tmp_path / "node.key"
    other = generate_private_key(SECP256R1()).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
    )
    for content in (b"", b"rubbish", new_identity().certificate_pem(), other):
        file.write_bytes(content)
        os.chmod(file, 0o600)
        with pytest.raises(IdentityError, match=r"node\.key holds no") as refused:
            load_identity(file)
        assert "\n" not in str(refused.value)
    with pytest.raises(IdentityError, match="cannot use"):
        load_identity(file / "inside a file")


@pytest.mark.parametrize(
    ("there", "instead"),
    [
        (b"\x06\x03\x2b\x65\x70", b"\x06\x03\x2b\x65\x79"),  # the kind of key
        (b"\xa0\x03\x02\x01\x02", b"\xa0\x03\x02\x01\x07"),  # the version
    ],
)
def test_certificates_of_kinds_that_nobody_knows_are_refused_in_one_line(there, instead):
    der = ssl.PEM_cert_to_DER_cert(new_identity().certificate_pem().decode())
    assert there in der
    for damaged in (der.replace(there, instead), der[:50], b""):
        with pytest.raises(ValueError, match=r"\S"):
            key_of_certificate(damaged)
