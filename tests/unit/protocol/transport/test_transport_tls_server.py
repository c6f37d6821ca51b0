"""A listener takes a changed certificate only if it has the names of the previous one (ssl.allow.dn.changes, ...)."""

from __future__ import annotations

import ssl
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509

from barnabas.core.config import ConfigError
from barnabas.protocol.security.config import TlsConfig
from barnabas.protocol.security.distinguished_names import CertificateError, alternative_names, expires_at
from barnabas.protocol.transport.tls_files import CHECK_EVERY_S
from barnabas.protocol.transport.tls_server import TlsAcceptor, TlsServerConfig, check_replacement, warn_of_expiry
from barnabas.protocol.transport.tls_stores import own_certificate
from tests.logs import logged
from tests.system.client.tls_proxy import Authority, Identity

AUTHORITY = Authority("Barnabas tests")


def der(*names: str) -> bytes:
    return ssl.PEM_cert_to_DER_cert(AUTHORITY.sign(*names).certificate)


def config(*, dn: bool = False, san: bool = False, location: Path | None = None) -> TlsServerConfig:
    tls = TlsConfig(ssl_certificate_location=None if location is None else str(location))
    return TlsServerConfig(tls, ssl_allow_dn_changes=dn, ssl_allow_san_changes=san)


def test_the_alternative_names_of_a_certificate() -> None:
    certificate = der("localhost", "node-1.example")
    assert alternative_names(certificate) == {"DNS:localhost", "DNS:node-1.example"}
    assert alternative_names(ssl.PEM_cert_to_DER_cert(AUTHORITY.pem)) == frozenset()
    with pytest.raises(CertificateError):
        alternative_names(certificate[:100])


@pytest.mark.parametrize(
    ("before", "after", "allowed", "refused_because"),
    [
        (("a", "b"), ("a", "b"), config(), None),
        (("a", "b"), ("a", "b", "c"), config(), None),
        (("a", "b"), ("a",), config(), "lacks alternative names of the previous one: DNS:b"),
        (("a", "b"), ("a",), config(dn=True), "lacks alternative names"),
        (("a", "b"), ("a",), config(san=True), None),
        (("a", "b"), ("b", "a"), config(), "would change from CN=a to CN=b"),
        (("a", "b"), ("b", "a"), config(san=True), "would change from CN=a to CN=b"),
        (("a", "b"), ("b", "a"), config(dn=True), None),
        (("a", "b"), ("c",), config(dn=True, san=True), None),
    ],
)
def test_a_certificate_with_other_names(
    before: tuple[str, ...], after: tuple[str, ...], allowed: TlsServerConfig, refused_because: str | None
) -> None:
    if refused_because is None:
        check_replacement(der(*before), der(*after), allowed)
    else:
        with pytest.raises(ConfigError, match=refused_because):
            check_replacement(der(*before), der(*after), allowed)


def test_a_file_with_another_name_is_refused_and_the_next_good_one_is_used(tmp_path: Path) -> None:
    store, now = tmp_path / "own.pem", [0.0]

    def write(identity: Identity) -> None:
        store.write_text(identity.key + identity.certificate)

    write(AUTHORITY.sign("a", "b"))
    acceptor = TlsAcceptor(config(location=store), lambda: now[0])
    first = acceptor.context
    write(AUTHORITY.sign("c"))
    now[0] += CHECK_EVERY_S
    assert acceptor.context is first
    write(AUTHORITY.sign("a", "b", "longer.name.example"))
    now[0] += CHECK_EVERY_S
    second = acceptor.context
    assert second is not first
    write(AUTHORITY.sign("a", "b"))
    now[0] += CHECK_EVERY_S
    assert acceptor.context is second, "the names of the newest certificate count"


def test_a_certificate_that_expires_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    certificate = der("localhost")
    expires = expires_at(certificate)
    read = x509.load_der_x509_certificate(certificate)
    assert expires == read.not_valid_after_utc
    day = timedelta(days=1)
    assert warn_of_expiry(certificate, "own.pem", expires - 31 * day) == day.total_seconds()
    assert not logged(caplog, "barnabas.protocol.transport")
    assert warn_of_expiry(certificate, "own.pem", expires - timedelta(minutes=1)) == 60
    assert warn_of_expiry(certificate, "own.pem", expires) == 600
    found = logged(caplog, "barnabas.protocol.transport")
    assert [(one.levelname, one.getMessage().split(" key_store")[0]) for one in found] == [
        ("WARNING", "the certificate of a listener expires soon"),
        (
            "ERROR",
            "the certificate of a listener has expired: new connections fail; replace the file of the key store",
        ),
    ]
    for size in range(100):
        with pytest.raises(CertificateError):
            expires_at(certificate[:size])


def test_the_own_certificate_of_each_kind_of_store(tmp_path: Path) -> None:
    own = AUTHORITY.sign("a")
    expected = ssl.PEM_cert_to_DER_cert(own.certificate)
    chain = own.certificate + AUTHORITY.pem
    pem = tmp_path / "own.pem"
    pem.write_text(own.key + chain)
    assert own_certificate(TlsConfig(ssl_certificate_location=str(pem))) == expected
    assert own_certificate(TlsConfig(ssl_keystore_key=own.key, ssl_keystore_certificate_chain=chain)) == expected
    with pytest.raises(ConfigError):
        own_certificate(TlsConfig(ssl_certificate_location=str(tmp_path / "none.pem")))
