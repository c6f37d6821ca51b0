"""Shell: makes the certificate authority of a cluster and the certificates of its nodes, as PEM texts.

Keys are on the curve P-256, in PKCS#8 form, which Java, OpenSSL and Python read. A node's certificate is for the
server's and the client's end of a connection, because nodes connect to each other.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from barnabas.cli.output import EXIT_FAILED, fail

try:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
except ImportError:
    fail("certificates need the package cryptography: pip install 'barnabas[tls]'", EXIT_FAILED)

LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
_CLOCKS_DIFFER: Final = timedelta(hours=1)
"""Certificates are valid from this time before they are made, for hosts whose clocks are late."""
_PEM_END: Final = "-----END CERTIFICATE-----\n"


class Certified(NamedTuple):
    """A certificate and its private key, as PEM texts."""

    certificate: str
    key: str


class CertificateFacts(NamedTuple):
    """What `barnabas cluster certificates` shows of a certificate."""

    subject: str
    issuer: str
    hosts: tuple[str, ...]
    expires: datetime


def make_authority(name: str, days: int) -> Certified:
    """A new certificate authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _name(name)
    public = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    builder = (
        _builder(subject, subject, key, days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(public, critical=False)
    )
    return _certified(builder.sign(key, hashes.SHA256()), key)


def certify_node(authority: Certified, name: str, hosts: Sequence[str], days: int) -> Certified:
    """A new key and a certificate for it: for the principal `User:CN=<name>`, at these host names and addresses."""
    return _sign(authority, _name(name), _alternatives(hosts), days)


def certify_again(authority: Certified, certificate: str, days: int) -> Certified:
    """A new key and a certificate with the subject and the hosts of `certificate`."""
    previous = x509.load_pem_x509_certificate(certificate.encode())
    hosts = previous.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return _sign(authority, previous.subject, hosts, days)


def facts_of(pem: str) -> list[CertificateFacts]:
    """The facts of each certificate in a PEM text, in its order. Raises ValueError."""
    found = []
    for certificate in x509.load_pem_x509_certificates(pem.encode()):
        try:
            names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
            hosts = tuple(str(name.value) for name in names)
        except x509.ExtensionNotFound:
            hosts = ()
        subject, issuer = certificate.subject.rfc4514_string(), certificate.issuer.rfc4514_string()
        found.append(CertificateFacts(subject, issuer, hosts, certificate.not_valid_after_utc))
    return found


def split_certificates(pem: str) -> list[str]:
    """The PEM text of each certificate in a PEM text of certificates only."""
    return [part + _PEM_END for part in pem.split(_PEM_END) if part.strip()]


def _sign(authority: Certified, subject: x509.Name, hosts: x509.SubjectAlternativeName, days: int) -> Certified:
    issuer = x509.load_pem_x509_certificate(authority.certificate.encode())
    issuer_key = serialization.load_pem_private_key(authority.key.encode(), None)
    assert isinstance(issuer_key, ec.EllipticCurvePrivateKey), "make_authority makes no others"
    key = ec.generate_private_key(ec.SECP256R1())
    both_ends = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
    builder = (
        _builder(subject, issuer.subject, key, days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(both_ends, critical=False)
        .add_extension(hosts, critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
    )
    return _certified(builder.sign(issuer_key, hashes.SHA256()), key)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCKS_DIFFER)
        .not_valid_after(now + timedelta(days=days))
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _alternatives(hosts: Sequence[str]) -> x509.SubjectAlternativeName:
    """The names and addresses under which clients connect. A node on this machine has all names of this machine."""
    names: list[str] = []
    for host in hosts:
        names += LOOPBACK if host in LOOPBACK else (host,)
    return x509.SubjectAlternativeName([_alternative(name) for name in dict.fromkeys(names)])


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _certified(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Certified:
    text = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return Certified(certificate.public_bytes(serialization.Encoding.PEM).decode(), text.decode())
