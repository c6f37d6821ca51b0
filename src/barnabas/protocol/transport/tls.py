"""Shell: the TLS context of an outgoing connection, from Kafka's settings in PEM form (KIP-651), and its failures.

Imported only where TLS is configured, or a TLS handshake has failed.
"""

from __future__ import annotations

import ssl
import tempfile
from pathlib import Path
from typing import Final

from barnabas.core.config import ConfigError
from barnabas.core.errors import KafkaError
from barnabas.protocol.security.config import TlsConfig
from barnabas.protocol.transport.connection_config import ConnectionErrors, Destination

_VERSIONS: Final = {"TLSV1.2": ssl.TLSVersion.TLSv1_2, "TLSV1.3": ssl.TLSVersion.TLSv1_3}


def build_tls_context(config: TlsConfig) -> ssl.SSLContext:
    """The context for `security.protocol` SSL or SASL_SSL. Raises ConfigError if a setting cannot be used."""
    try:
        context = ssl.create_default_context(
            cafile=config.ssl_truststore_location, cadata=config.ssl_truststore_certificates
        )
    except (OSError, ssl.SSLError) as error:
        raise _unusable("The certificate authorities to trust", "ssl.truststore.location", error) from error
    context.check_hostname = config.verify_host_name
    versions = [_version(name) for name in config.ssl_enabled_protocols]
    if versions:
        context.minimum_version, context.maximum_version = min(versions), max(versions)
    try:
        if config.ssl_keystore_key is not None:
            chain = config.ssl_keystore_certificate_chain or ""
            _load_texts(context, chain, config.ssl_keystore_key, config.ssl_key_password)
        elif config.ssl_certificate_location:
            # With a password of None, OpenSSL would prompt for one on the terminal.
            context.load_cert_chain(
                config.ssl_certificate_location, config.ssl_key_location, config.ssl_key_password or ""
            )
    except (OSError, ssl.SSLError) as error:
        names = "ssl.keystore.location or ssl.keystore.key, ssl.key.password"
        raise _unusable("This end's own certificate and key", names, error) from error
    return context


def _load_texts(context: ssl.SSLContext, certificates: str, key: str, password: str | None) -> None:
    """Load PEM texts through a private file that is deleted at once: Python's ssl reads keys from files only."""
    with tempfile.TemporaryDirectory(prefix="barnabas-") as folder:
        path = Path(folder) / "keystore.pem"
        path.touch(0o600)
        path.write_text(f"{key}\n{certificates}\n")
        context.load_cert_chain(path, password=password or "")


def _version(name: str) -> ssl.TLSVersion:
    version = _VERSIONS.get(name.strip().upper())
    if version is None:
        raise ConfigError(f"ssl.enabled.protocols: {name!r} is not supported; use TLSv1.2 and TLSv1.3.")
    return version


def _unusable(subject: str, settings: str, error: Exception) -> ConfigError:
    return ConfigError(
        f"{subject} cannot be read: {error}. They must be PEM ({settings}); a JKS or PKCS#12 store becomes PEM with"
        " `keytool -importkeystore -deststoretype pkcs12` and `openssl pkcs12 -nodes`."
    )


def handshake_error(to: Destination, error: ssl.SSLError, errors: ConnectionErrors) -> KafkaError:
    """The exception for a failed TLS handshake. A rejected certificate is not retriable; a broken connection is."""
    if isinstance(error, ssl.SSLCertVerificationError):
        if "ostname" in error.verify_message or "IP address" in error.verify_message:
            return errors.untrusted(
                f"{to}: the broker's certificate is for another name: {error.verify_message} Connect by a name that"
                " is in the certificate; ssl.endpoint.identification.algorithm='' would accept any."
            )
        return errors.untrusted(
            f"{to}: the broker's certificate is not trusted: {error.verify_message}. ssl.truststore.location must"
            " name the PEM file of the authority that signed it."
        )
    if is_rejection(error):
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
