"""Key stores and trust stores in PEM, PKCS12 and JKS form."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12

from barnabas.core.config import ConfigError
from barnabas.protocol.security.config import TlsConfig
from barnabas.protocol.transport.jks import read_jks
from barnabas.protocol.transport.tls import TlsInitiator
from barnabas.protocol.transport.tls_files import CHECK_EVERY_S
from barnabas.protocol.transport.tls_stores import load_own_certificate, load_trusted_certificates
from tests.system.client.tls_proxy import Authority
from tests.unit.protocol.transport.jks_writer import write_jks

AUTHORITY = Authority("Barnabas tests")
OWN = AUTHORITY.sign("localhost")


def _own(config: TlsConfig) -> bool:
    return load_own_certificate(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), config)


def _trusted(config: TlsConfig) -> int:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    assert load_trusted_certificates(context, config)
    return context.cert_store_stats()["x509_ca"]


def _key() -> bytes:
    key = serialization.load_pem_private_key(OWN.key.encode(), None)
    return key.private_bytes(
        serialization.Encoding.DER, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _der(pem: str) -> bytes:
    return x509.load_pem_x509_certificate(pem.encode()).public_bytes(serialization.Encoding.DER)


@pytest.fixture
def p12(tmp_path: Path) -> Path:
    path = tmp_path / "own.p12"
    key = serialization.load_pem_private_key(OWN.key.encode(), None)
    certificate, authority = (x509.load_pem_x509_certificate(pem.encode()) for pem in (OWN.certificate, AUTHORITY.pem))
    lock = serialization.BestAvailableEncryption(b"store-password")
    path.write_bytes(pkcs12.serialize_key_and_certificates(b"own", key, certificate, [authority], lock))  # type: ignore[arg-type]  # an EC key
    return path


@pytest.mark.parametrize("kind", ["PKCS12", "JKS", "pkcs12"])  # Java reads either format under either name
def test_a_pkcs12_store(p12: Path, kind: str) -> None:
    assert _own(
        TlsConfig(ssl_certificate_location=str(p12), ssl_keystore_type=kind, ssl_keystore_password="store-password")
    )
    trust = TlsConfig(
        ssl_truststore_location=str(p12), ssl_truststore_type=kind, ssl_truststore_password="store-password"
    )
    assert _trusted(trust) == 1


def test_a_wrong_password_of_a_pkcs12_store(p12: Path) -> None:
    with pytest.raises(ConfigError, match="is its password right"):
        _own(TlsConfig(ssl_certificate_location=str(p12), ssl_keystore_type="PKCS12", ssl_keystore_password="x"))


def test_a_jks_store(tmp_path: Path) -> None:
    path = tmp_path / "own.jks"
    path.write_bytes(
        write_jks("store-password", "key-password", _key(), [_der(OWN.certificate)], [_der(AUTHORITY.pem)])
    )
    config = TlsConfig(
        ssl_certificate_location=str(path),
        ssl_keystore_type="JKS",
        ssl_keystore_password="store-password",
        ssl_key_password="key-password",
    )
    assert _own(config)
    assert _trusted(TlsConfig(ssl_truststore_location=str(path), ssl_truststore_type="JKS")) == 1


@pytest.mark.parametrize(("store", "key"), [("wrong", "key-password"), ("store-password", "wrong")])
def test_a_wrong_password_of_a_jks_store(store: str, key: str) -> None:
    data = write_jks("store-password", "key-password", _key(), [_der(OWN.certificate)], [])
    with pytest.raises(ConfigError, match="password"):
        read_jks(data, store, key)


def test_a_truncated_jks_store_is_refused() -> None:
    data = write_jks("store-password", "key-password", _key(), [_der(OWN.certificate)], [])
    for size in range(4, len(data) - 20, 7):
        with pytest.raises(ConfigError):
            read_jks(data[:size], None, "key-password")


def test_a_pem_file_under_another_type_is_named(tmp_path: Path) -> None:
    path = tmp_path / "own.pem"
    path.write_text(OWN.key + OWN.certificate)
    with pytest.raises(ConfigError, match="is a PEM file, but the type of the store is JKS"):
        _own(TlsConfig(ssl_certificate_location=str(path), ssl_keystore_type="JKS"))
    assert _own(TlsConfig(ssl_certificate_location=str(path)))


def test_a_locked_key_needs_its_password() -> None:
    own = TlsConfig(ssl_keystore_key=OWN.locked_key, ssl_keystore_certificate_chain=OWN.certificate)
    with pytest.raises(ConfigError, match=r"ssl\.key\.password"):
        _own(own)
    assert not _own(TlsConfig())


def test_outgoing_connections_use_a_changed_trust_store_without_a_restart(tmp_path: Path) -> None:
    """As the listener does: a node whose peers have new certificates must be able to connect to them."""
    store, now = tmp_path / "ca.pem", [0.0]
    store.write_text(AUTHORITY.pem)
    initiator = TlsInitiator(TlsConfig(ssl_truststore_location=str(store)), lambda: now[0])

    def trusted() -> int:
        return initiator.context.cert_store_stats()["x509_ca"]

    assert trusted() == 1
    store.write_text(AUTHORITY.pem + Authority("another").pem)
    assert trusted() == 1, "the files are looked at once a second"
    now[0] += CHECK_EVERY_S
    assert trusted() == 2
    store.write_text("no certificates")
    now[0] += CHECK_EVERY_S
    assert trusted() == 2, "content that cannot be used is refused"
    store.unlink()
    now[0] += CHECK_EVERY_S
    assert trusted() == 2
    store.write_text(AUTHORITY.pem)
    now[0] += CHECK_EVERY_S
    assert trusted() == 1
