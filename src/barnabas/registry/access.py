"""Value: how a client connects to a registry: its address, the user, and TLS. The settings are Confluent's.

    schema.registry.url                               several addresses with commas
    basic.auth.credentials.source                     USER_INFO, URL (https://user:password@host) or SASL_INHERIT
    basic.auth.user.info                              user:password; schema.registry.basic.auth.user.info, too
    schema.registry.ssl.truststore.location           .type, .password, .certificates: the authorities to trust
    schema.registry.ssl.keystore.location             .type, .password, .key, .certificate.chain: own certificate
    schema.registry.ssl.key.password
    schema.registry.ssl.endpoint.identification.algorithm    empty: a certificate for any name is accepted
    schema.registry.ssl.ca.location                   librdkafka's PEM files, also .certificate.location, .key.location

With SASL_INHERIT the user is the one of the Kafka client: `sasl.username` and `sasl.password`, or `sasl.jaas.config`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from barnabas.core.config import ConfigError
from barnabas.protocol.security.config import TlsConfig

if TYPE_CHECKING:
    import ssl

URL: Final = "schema.registry.url"
SOURCE: Final = "basic.auth.credentials.source"
USER_INFO: Final = ("basic.auth.user.info", "schema.registry.basic.auth.user.info")
TLS: Final = "schema.registry.ssl."
STORES: Final = (
    "truststore.location",
    "truststore.type",
    "truststore.password",
    "truststore.certificates",
    "keystore.location",
    "keystore.type",
    "keystore.password",
    "keystore.key",
    "keystore.certificate.chain",
    "key.password",
    "endpoint.identification.algorithm",
    "ca.location",
    "certificate.location",
    "key.location",
)
"""The settings that begin with `schema.registry.ssl.`."""
_SOURCES: Final = ("USER_INFO", "URL", "SASL_INHERIT")

Get = Callable[[str], object]
"""The value of a setting; None if it is not set."""


class RegistryLogin(Struct, frozen=True):
    """The user and the TLS of a connection to a registry."""

    user_info: str | None = None
    """The login as user:password; None without a user, or if the user is in the URL."""
    tls: TlsConfig | None = None
    """The settings of TLS; None to trust the authorities of the system."""

    def __repr__(self) -> str:
        return f"RegistryLogin(tls={self.tls!r}, ...)"

    @property
    def basic_auth(self) -> tuple[str, str] | None:
        """The user and the password."""
        if self.user_info is None:
            return None
        user, _, password = self.user_info.partition(":")
        return user, password

    def tls_context(self) -> ssl.SSLContext | None:
        """The context for an https address; None for that of Python. Raises ConfigError."""
        if self.tls is None:
            return None
        from barnabas.protocol.transport.tls import build_tls_context

        return build_tls_context(self.tls)


def read_login(get: Get, *, prefix: str = "", source: str | None = None, store_type: str = "PEM") -> RegistryLogin:
    """`prefix` stands before the names in errors. `source` is the default of `basic.auth.credentials.source`: None
    takes USER_INFO if a user is set, else URL. `store_type` is the default of the types of stores. Raises ConfigError.
    """
    return RegistryLogin(_user_info(get, prefix, source), _tls(get, store_type))


def _user_info(get: Get, prefix: str, default: str | None) -> str | None:
    info = next((str(get(name)) for name in USER_INFO if get(name)), None)
    source = str(get(SOURCE) or default or ("URL" if info is None else "USER_INFO")).upper()
    match source:
        case "URL":
            return None
        case "USER_INFO":
            if info is None:
                raise ConfigError(f"{prefix}{USER_INFO[0]} is missing: write user:password.")
            if ":" not in info:
                raise ConfigError(f"{prefix}{USER_INFO[0]} must be user:password.")
            return info
        case "SASL_INHERIT":
            return _inherited(get, prefix)
        case _:
            raise ConfigError(f"{prefix}{SOURCE} must be {', '.join(_SOURCES[:-1])} or {_SOURCES[-1]}, not {source!r}.")


def _inherited(get: Get, prefix: str) -> str:
    user, password, jaas = get("sasl.username"), get("sasl.password"), get("sasl.jaas.config")
    if jaas and not user:
        from barnabas.protocol.security.jaas import parse_jaas

        entry = parse_jaas(str(jaas))
        user, password = entry.username, entry.password
    if not user or password is None:
        raise ConfigError(
            f"{prefix}{SOURCE}=SASL_INHERIT needs the user of the Kafka client: set sasl.username and sasl.password, "
            "or sasl.jaas.config."
        )
    return f"{user}:{password}"


def _tls(get: Get, store_type: str) -> TlsConfig | None:
    def text(name: str) -> str | None:
        value = get(f"{TLS}{name}")
        return None if value is None else str(value)

    if all(text(name) is None for name in STORES):
        return None
    algorithm = text("endpoint.identification.algorithm")
    is_librdkafka = text("certificate.location") is not None
    return TlsConfig(
        ssl_truststore_location=text("ca.location") or text("truststore.location"),
        ssl_truststore_certificates=text("truststore.certificates"),
        ssl_certificate_location=text("certificate.location") or text("keystore.location"),
        ssl_key_location=text("key.location"),
        ssl_keystore_certificate_chain=text("keystore.certificate.chain"),
        ssl_keystore_key=text("keystore.key"),
        ssl_key_password=text("key.password"),
        verify_host_name=algorithm is None or bool(algorithm.strip()),
        ssl_keystore_type="PEM" if is_librdkafka else (text("keystore.type") or store_type).upper(),
        ssl_keystore_password=text("keystore.password"),
        ssl_truststore_type="PEM" if text("ca.location") else (text("truststore.type") or store_type).upper(),
        ssl_truststore_password=text("truststore.password"),
    )
