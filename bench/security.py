"""Value: the listener with TLS or SASL of the brokers that `python -m bench --security` measures, and its clients.

Both brokers get the same certificate (RSA, 2,048 bits) in PEM files, and the same user of SCRAM-SHA-512. A PLAINTEXT
listener stays beside the secure one: the nodes use it, and the start-up is measured with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

PROTOCOLS: Final = ("ssl", "sasl_ssl")
MECHANISM: Final = "SCRAM-SHA-512"
USER: Final = "bench"
PASSWORD: Final = "bench-secret"
ADD_SCRAM: Final = f"{MECHANISM}=[name={USER},password={PASSWORD}]"
_SCRAM_MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule required"


@dataclass(frozen=True)
class SecureListener:
    """A listener named SECURE. `folder` has the files that `make_certificates` writes."""

    protocol: str
    """One of PROTOCOLS."""
    folder: Path

    @property
    def has_sasl(self) -> bool:
        return self.protocol == "sasl_ssl"

    def broker_settings(self, plain_port: int, port: int) -> dict[str, str]:
        """The settings of a broker, besides those of its listener for controllers."""
        settings = {
            "listeners": f"PLAINTEXT://127.0.0.1:{plain_port},SECURE://127.0.0.1:{port}",
            "listener.security.protocol.map": (
                f"CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SECURE:{self.protocol.upper()}"
            ),
            "inter.broker.listener.name": "PLAINTEXT",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.folder / "broker.pem"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.folder / "authority.pem"),
        }
        if self.has_sasl:
            settings["sasl.enabled.mechanisms"] = MECHANISM
            settings[f"listener.name.secure.{MECHANISM.lower()}.sasl.jaas.config"] = f"{_SCRAM_MODULE};"
        return settings

    def client_settings(self) -> dict[str, str]:
        """The settings of librdkafka's clients."""
        settings = {
            "security.protocol": self.protocol,
            "ssl.ca.location": str(self.folder / "authority.pem"),
        }
        if self.has_sasl:
            settings |= {"sasl.mechanism": MECHANISM, "sasl.username": USER, "sasl.password": PASSWORD}
        return settings

    def java_settings(self) -> dict[str, str]:
        """The settings of Kafka's Java clients."""
        settings = {
            "security.protocol": self.protocol.upper(),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.folder / "authority.pem"),
        }
        if self.has_sasl:
            settings["sasl.mechanism"] = MECHANISM
            settings["sasl.jaas.config"] = f'{_SCRAM_MODULE} username="{USER}" password="{PASSWORD}";'
        return settings


def make_certificates(folder: Path) -> None:
    """Write `broker.pem`, a key and a certificate for 127.0.0.1, and `authority.pem`, which has signed it."""
    authority_key, key = (rsa.generate_private_key(public_exponent=65_537, key_size=2_048) for _ in range(2))
    authority = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "bench authority")])
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)

    def builder(name: x509.Name, public_key: rsa.RSAPublicKey) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(authority)
            .public_key(public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(days=7))
        )

    def signed(unsigned: x509.CertificateBuilder) -> bytes:
        return unsigned.sign(authority_key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    is_authority = x509.BasicConstraints(ca=True, path_length=None)
    names = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1")), x509.DNSName("localhost")])
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "broker.pem").write_bytes(
        private + signed(builder(subject, key.public_key()).add_extension(names, critical=False))
    )
    (folder / "authority.pem").write_bytes(
        signed(builder(authority, authority_key.public_key()).add_extension(is_authority, critical=True))
    )
