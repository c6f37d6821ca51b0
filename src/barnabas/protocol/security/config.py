"""Value: the security settings of one end of a connection, under the names of Kafka's configs.

Every `__repr__` here leaves out passwords and private keys, so that a value can be logged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

if TYPE_CHECKING:
    from barnabas.protocol.security.kerberos.settings import KerberosLogin
    from barnabas.protocol.security.oauth.logins import OAuthLogin

OAUTHBEARER: Final = "OAUTHBEARER"
GSSAPI: Final = "GSSAPI"


class TlsConfig(Struct, frozen=True):
    """Certificates and keys. A value is the path of a file (`*_location`), or the PEM text itself (KIP-651)."""

    ssl_truststore_location: str | None = None
    """The certificate authorities to trust; None, without `ssl_truststore_certificates`, means the system's."""
    ssl_truststore_certificates: str | None = None
    ssl_certificate_location: str | None = None
    """This end's certificate chain (`ssl.keystore.location`, or librdkafka's `ssl.certificate.location`)."""
    ssl_key_location: str | None = None
    """This end's private key; None if `ssl_certificate_location` holds the key, too."""
    ssl_keystore_certificate_chain: str | None = None
    ssl_keystore_key: str | None = None
    ssl_key_password: str | None = None
    verify_host_name: bool = True
    """False if `ssl.endpoint.identification.algorithm` is empty: a certificate for any name is accepted."""
    ssl_enabled_protocols: tuple[str, ...] = ()
    """"TLSv1.2" and "TLSv1.3"; empty leaves the choice to OpenSSL."""
    ssl_cipher_suites: tuple[str, ...] = ()
    """The cipher suites that may be used; if empty, OpenSSL chooses."""
    ssl_keystore_type: str = "PEM"
    """The format of the file `ssl_certificate_location`: PEM, PKCS12 or JKS."""
    ssl_keystore_password: str | None = None
    ssl_truststore_type: str = "PEM"
    ssl_truststore_password: str | None = None

    def __repr__(self) -> str:
        return f"TlsConfig(ssl_truststore_location={self.ssl_truststore_location!r}, ...)"


class SaslConfig(Struct, frozen=True):
    """The SASL mechanism, and the user name and password, or the login, with which this end authenticates."""

    sasl_mechanism: str
    username: str | None = None
    password: str | None = None
    tokenauth: bool = False
    """Whether `username` is the id of a delegation token, and `password` its HMAC in base64 (SCRAM only)."""
    oauth: OAuthLogin | None = None
    """Where the tokens of OAUTHBEARER come from."""
    kerberos: KerberosLogin | None = None
    """Where the tickets of GSSAPI come from."""

    def __repr__(self) -> str:
        return f"SaslConfig(sasl_mechanism={self.sasl_mechanism!r}, username={self.username!r}, ...)"


class SecurityConfig(Struct, frozen=True):
    """How to connect to a listener, as `security.protocol` says.

    `tls` is None for connections without TLS, `sasl` is None for connections without SASL.
    """

    tls: TlsConfig | None = None
    sasl: SaslConfig | None = None


PLAINTEXT: Final = SecurityConfig()
"""`security.protocol=PLAINTEXT`: neither encryption nor authentication."""
