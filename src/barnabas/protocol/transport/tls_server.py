"""Shell: the TLS context of a listener, the principals of its clients' certificates, and the reload of its certificate.

A connection keeps the certificate of its handshake. When a file of the key store or trust store has changed, later
connections get a context with its new content, without a restart. Content that cannot be read, or does not fit
together, is refused: the listener logs an error and keeps the previous context.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final

from msgspec import Struct

from barnabas.core.config import ConfigError
from barnabas.core.telemetry import get_logger
from barnabas.protocol.security.config import TlsConfig
from barnabas.protocol.security.distinguished_names import (
    CertificateError,
    alternative_names,
    expires_at,
    subject_name,
)
from barnabas.protocol.security.principal_mapping import PrincipalMapper
from barnabas.protocol.security.principals import ANONYMOUS, KafkaPrincipal
from barnabas.protocol.transport.tls import restrict
from barnabas.protocol.transport.tls_files import StoreFiles
from barnabas.protocol.transport.tls_stores import load_own_certificate, load_trusted_certificates, own_certificate

log = get_logger("barnabas.protocol.transport")

_DAY_S: Final = 86_400.0
_EXPIRED_AGAIN_S: Final = 600.0
_EXPIRY_WARNING: Final = timedelta(days=30)
CLIENT_AUTH: Final = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


class TlsServerConfig(Struct, frozen=True):
    """The TLS settings of one listener."""

    tls: TlsConfig
    ssl_client_auth: str = "none"
    ssl_principal_mapping_rules: str = "DEFAULT"
    ssl_allow_dn_changes: bool = False
    """Whether a changed key store may have a certificate with another subject."""
    ssl_allow_san_changes: bool = False
    """Whether a changed key store may have a certificate that lacks some of the previous one's alternative names."""


class TlsAcceptor:
    """Gives each new connection a TLS context. Raises ConfigError if a setting cannot be used."""

    def __init__(self, config: TlsServerConfig, now: Callable[[], float]) -> None:
        self._config = config
        self._now = now
        self._mapper = PrincipalMapper(config.ssl_principal_mapping_rules)
        self._files = StoreFiles(config.tls, now)  # before they are read: a change while they are read is noticed
        self._context = build_server_context(config)
        self._certificate = own_certificate(config.tls)
        self._next_warning_s = now()

    @property
    def context(self) -> ssl.SSLContext:
        """The context for a new connection."""
        if self._now() >= self._next_warning_s:
            key_store = self._config.tls.ssl_certificate_location or "ssl.keystore.certificate.chain"
            self._next_warning_s = self._now() + warn_of_expiry(self._certificate, key_store, datetime.now(UTC))
        if self._files.have_changed():
            self._reload()
        return self._context

    def principal(self, certificate: bytes | None) -> KafkaPrincipal:
        """The principal of a client with this certificate (DER), or without one. Raises CertificateError and
        NoMatchingRuleError."""
        if certificate is None:
            return ANONYMOUS
        return KafkaPrincipal("User", self._mapper.user_name(subject_name(certificate)))

    def check(self, config: TlsServerConfig, *, between_nodes: bool) -> None:
        """Check settings that are to replace those of this listener, as Kafka's SslFactory does. Raises ConfigError.

        With `between_nodes` other nodes connect to the listener, and this node to theirs, with these stores: nodes with
        the previous stores and nodes with the new ones must accept each other.
        """
        self._prepare(config)
        if between_nodes:
            from barnabas.protocol.transport.tls_agreement import check_agreement

            check_agreement(self._config, config)

    def replace(self, config: TlsServerConfig) -> None:
        """Use other settings for later connections. Raises ConfigError if they do not fit; then nothing changes."""
        self._context, self._certificate = self._prepare(config)
        self._files = StoreFiles(config.tls, self._now)
        self._config = config

    def _prepare(self, config: TlsServerConfig) -> tuple[ssl.SSLContext, bytes]:
        if _trusts_some(self._config.tls) != _trusts_some(config.tls):
            raise ConfigError(
                "A trust store can neither be added to a listener nor removed from it while the node runs. Restart the"
                " node, or add a listener."
            )
        context, certificate = build_server_context(config), own_certificate(config.tls)
        try:
            check_replacement(self._certificate, certificate, config)
        except CertificateError as error:
            raise ConfigError(f"The certificate of the key store cannot be read: {error}") from error
        return context, certificate

    def _reload(self) -> None:
        try:
            context, certificate = self._prepare(self._config)
        except ConfigError as error:
            log.error("the changed certificate files are refused; the previous ones stay in use", reason=str(error))
        else:
            self._context, self._certificate = context, certificate
            self._next_warning_s = self._now()
            log.info("certificate files reloaded", key_store=self._config.tls.ssl_certificate_location)


def warn_of_expiry(certificate: bytes, key_store: str, now: datetime) -> float:
    """Log a certificate of a listener that has expired, or will within `_EXPIRY_WARNING`. Returns the seconds after
    which it should be judged again."""
    try:
        expires = expires_at(certificate)
    except CertificateError:
        return _DAY_S  # OpenSSL has accepted the certificate; only its date is unknown
    if expires <= now:
        what = "the certificate of a listener has expired: new connections fail; replace the file of the key store"
        log.error(what, key_store=key_store, expired=expires.isoformat())
        return _EXPIRED_AGAIN_S
    if expires - now <= _EXPIRY_WARNING:
        what = "the certificate of a listener expires soon"
        log.warning(what, key_store=key_store, expires=expires.isoformat())
    return min(_DAY_S, (expires - now).total_seconds())


def _trusts_some(tls: TlsConfig) -> bool:
    return bool(tls.ssl_truststore_location or tls.ssl_truststore_certificates)


def check_replacement(before: bytes, after: bytes, config: TlsServerConfig) -> None:
    """Compare the certificates of a key store before and after a change, as Kafka's SslFactory does. Raises ConfigError
    if clients could notice that the names have changed, and CertificateError."""
    if before == after:
        return
    old, new = subject_name(before), subject_name(after)
    if old != new and not config.ssl_allow_dn_changes:
        raise ConfigError(
            f"The subject of the certificate would change from {old} to {new}. If that is intended, set"
            " ssl.allow.dn.changes=true, or restart the node."
        )
    missing = alternative_names(before) - alternative_names(after)
    if missing and not config.ssl_allow_san_changes:
        raise ConfigError(
            f"The new certificate lacks alternative names of the previous one: {', '.join(sorted(missing))}. If that is"
            " intended, set ssl.allow.san.changes=true, or restart the node."
        )


def build_server_context(config: TlsServerConfig) -> ssl.SSLContext:
    """Raises ConfigError if a setting cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_RENEGOTIATION  # a handshake is work for the server, and the client could repeat it
    restrict(context, config.tls)
    if not load_own_certificate(context, config.tls):
        raise ConfigError(
            "A listener with TLS needs a certificate: set ssl.keystore.location and ssl.keystore.type, or"
            " ssl.keystore.certificate.chain and ssl.keystore.key."
        )
    mode = CLIENT_AUTH.get(config.ssl_client_auth.lower())
    if mode is None:
        raise ConfigError(f"ssl.client.auth={config.ssl_client_auth}: use none, requested or required.")
    if mode is not ssl.CERT_NONE and not load_trusted_certificates(context, config.tls):
        # Java would trust the system's authorities, so that anyone with a certificate of a website could connect.
        raise ConfigError(
            f"ssl.client.auth={config.ssl_client_auth} needs ssl.truststore.location or ssl.truststore.certificates:"
            " the authorities that sign the clients' certificates."
        )
    context.verify_mode = mode
    return context
