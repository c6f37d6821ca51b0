"""A TLS server in front of a broker with a plain-text listener, and certificates for tests."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from barnabas.testing.embedded import AsyncEmbeddedBroker
from barnabas.testing.ports import free_port

PASSWORD = "barnabas"


@dataclass(frozen=True)
class Identity:
    """A key and a certificate, as PEM texts."""

    certificate: str
    key: str
    locked_key: str
    """The key, encrypted with PASSWORD."""


# Without these extensions Python 3.13 and later refuse the certificates: ssl.create_default_context is strict there.
_SIGNER = x509.AuthorityKeyIdentifier
_SIGNS_CERTIFICATES = x509.KeyUsage(
    digital_signature=True, content_commitment=False, key_encipherment=False, data_encipherment=False,
    key_agreement=False, key_cert_sign=True, crl_sign=True, encipher_only=False, decipher_only=False,
)  # fmt: skip


class Authority:
    """A certificate authority."""

    def __init__(self, name: str) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._certificate = (
            self._builder(self._name, self._key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(_SIGNS_CERTIFICATES, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        self.pem = self._certificate.public_bytes(serialization.Encoding.PEM).decode()

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(hours=1))
        )

    def sign(self, *dns_names: str) -> Identity:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, dns_names[0])])
        names = x509.SubjectAlternativeName([x509.DNSName(name) for name in dns_names])
        certificate = (
            self._builder(subject, key)
            .add_extension(names, critical=False)
            .add_extension(_SIGNER.from_issuer_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        lock = serialization.BestAvailableEncryption(PASSWORD.encode())
        texts = [
            key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption).decode()
            for encryption in (serialization.NoEncryption(), lock)
        ]
        return Identity(certificate.public_bytes(serialization.Encoding.PEM).decode(), *texts)


def server_context(folder: Path, identity: Identity, *, client_authority: Authority | None = None) -> ssl.SSLContext:
    """The server's TLS context. With `client_authority` clients must present a certificate of that authority."""
    store = folder / "server.pem"
    store.write_text(identity.key + identity.certificate)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(store)
    if client_authority is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=client_authority.pem)
    return context


@asynccontextmanager
async def tls_broker(context: ssl.SSLContext) -> AsyncIterator[str]:
    """A broker that clients can reach only through TLS. The yielded value is its advertised address,
    `localhost:port`."""
    plain: list[tuple[str, int]] = []
    connections: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        connections.add(task)
        try:
            there, back = await asyncio.open_connection(*plain[0])
            async with asyncio.TaskGroup() as pumps:
                pumps.create_task(_pump(reader, back))
                pumps.create_task(_pump(there, writer))
        except (OSError, asyncio.CancelledError):
            writer.transport.abort()
        finally:
            connections.discard(task)

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    advertised = {"advertised.listeners": f"PLAINTEXT://localhost:{port}"}
    try:
        inner = free_port()
        async with AsyncEmbeddedBroker(advertised, listener=f"PLAINTEXT://127.0.0.1:{inner}"):
            plain.append(("127.0.0.1", inner))
            yield f"localhost:{port}"
    finally:
        server.close()
        for task in list(connections):
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    writer.close()
