"""Shell: the TLS context of an outgoing connection, from Kafka's settings in PEM form (KIP-651), and its failures.

Imported only where TLS is configured, or a TLS handshake has failed.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import Final

from barnabas.core.config import ConfigError
from barnabas.core.errors import KafkaError
from barnabas.core.telemetry import get_logger
from barnabas.protocol.security.config import TlsConfig
from barnabas.protocol.transport.connection_config import ConnectionErrors, Destination
from barnabas.protocol.transport.tls_files import StoreFiles
from barnabas.protocol.transport.tls_stores import load_own_certificate, load_trusted_certificates

log = get_logger("barnabas.protocol.transport")

_VERSIONS: Final = {"TLSV1.2": ssl.TLSVersion.TLSv1_2, "TLSV1.3": ssl.TLSVersion.TLSv1_3}

HAS_EXPIRED: Final = 10
"""OpenSSL's X509_V_ERR_CERT_HAS_EXPIRED, as `verify_code` of a failed handshake."""


class TlsInitiator:
    """Gives each new outgoing connection a TLS context, and loads changed certificate files without a restart.

    A node needs this when its certificates are replaced: the other nodes then have new ones, too. Raises ConfigError if
    a setting cannot be used. `now` gives a monotonic time in seconds.
    """

    def __init__(self, config: TlsConfig, now: Callable[[], float]) -> None:
        self._config = config
        self._files = StoreFiles(config, now)  # before they are read: a change while they are read is noticed
        self._context = build_tls_context(config)

    @property
    def context(self) -> ssl.SSLContext:
        """The context for a new connection."""
        if self._files.have_changed():
            try:
                self._context = build_tls_context(self._config)
            except ConfigError as error:
                log.error("the changed certificate files are refused; the previous ones stay in use", reason=str(error))
            else:
                log.info("certificate files reloaded", trust_store=self._config.ssl_truststore_location)
        return self._context


def build_tls_context(config: TlsConfig) -> ssl.SSLContext:
    """The context for `security.protocol` SSL or SASL_SSL. Raises ConfigError if a setting cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = config.verify_host_name
    restrict(context, config)
    if not load_trusted_certificates(context, config):
        context.load_default_certs()
    load_own_certificate(context, config)
    return context


def restrict(context: ssl.SSLContext, config: TlsConfig) -> None:
    """Set the TLS versions and the cipher suites that may be negotiated. Raises ConfigError."""
    versions = [_version(name) for name in config.ssl_enabled_protocols]
    if versions:
        context.minimum_version, context.maximum_version = min(versions), max(versions)
    # Python 3.11 cannot choose among the suites of TLS 1.3, whose names have no WITH; all of them are strong.
    suites = [
        _openssl_name(name) for name in config.ssl_cipher_suites if not name.startswith("TLS_") or "_WITH_" in name
    ]
    if suites:
        try:
            context.set_ciphers(":".join(suites))
        except ssl.SSLError as error:
            raise ConfigError(f"ssl.cipher.suites: none of {', '.join(config.ssl_cipher_suites)} is known.") from error


def _openssl_name(suite: str) -> str:
    """TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384, the name of Java, is ECDHE-RSA-AES256-GCM-SHA384 in OpenSSL."""
    name = suite.removeprefix("TLS_").replace("_WITH_", "_").replace("AES_", "AES").replace("_", "-")
    return name.removesuffix("-SHA256") if "CHACHA20" in name else name


def _version(name: str) -> ssl.TLSVersion:
    version = _VERSIONS.get(name.strip().upper())
    if version is None:
        raise ConfigError(f"ssl.enabled.protocols: {name!r} is not supported; use TLSv1.2 and TLSv1.3.")
    return version


def handshake_error(to: Destination, error: ssl.SSLError, errors: ConnectionErrors) -> KafkaError:
    """The exception for a failed TLS handshake. A rejected certificate is not retriable; a broken connection is."""
    if isinstance(error, ssl.SSLCertVerificationError):
        if "ostname" in error.verify_message or "IP address" in error.verify_message:
            return errors.untrusted(
                f"{to}: the broker's certificate is for another name: {error.verify_message} Connect by a name that"
                " is in the certificate; ssl.endpoint.identification.algorithm='' would accept any."
            )
        if error.verify_code == HAS_EXPIRED:
            return errors.untrusted(
                f"{to}: the broker's certificate, or one of its authorities', has expired. Give the broker a new one:"
                " it loads changed files without a restart."
            )
        return errors.untrusted(
            f"{to}: the broker's certificate is not trusted: {error.verify_message}. ssl.truststore.location must"
            " name the PEM file of the authority that signed it."
        )
    if is_rejection(error):
        if "EXPIRED" in (error.reason or ""):
            return errors.untrusted(
                f"{to} refused the TLS handshake, because the certificate of this client has expired. Put a new one"
                " into the file of ssl.keystore.location."
            )
        return errors.untrusted(
            f"{to} refused the TLS handshake: {error.reason}. If it asks for certificates of its clients, set"
            " ssl.keystore.location to one that it trusts."
        )
    return errors.unreachable(to, f"{to}: the TLS handshake failed: {error}. Is this a TLS listener?", error)


def is_rejection(error: BaseException | None) -> bool:
    """True for a TLS alert by which the peer rejects this end's certificate.

    In TLS 1.3 this alert may arrive after the handshake.
    """
    if not isinstance(error, ssl.SSLError):
        return False
    reason = error.reason or ""
    return "ALERT" in reason and any(word in reason for word in ("CERTIFICATE", "UNKNOWN_CA", "ACCESS_DENIED"))
