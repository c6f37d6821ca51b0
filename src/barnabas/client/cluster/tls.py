"""Shell: the TLS context of a client, from Kafka's settings in PEM form (KIP-651), and what its failures mean."""

from __future__ import annotations

import ssl
import tempfile
from pathlib import Path
from typing import Final

from barnabas.client.errors import BrokerUnreachableError, ClientError, TlsError
from barnabas.client.options import SecurityOptions
from barnabas.core.config import ConfigError

_VERSIONS: Final = {"TLSV1.2": ssl.TLSVersion.TLSv1_2, "TLSV1.3": ssl.TLSVersion.TLSv1_3}


def build_tls_context(options: SecurityOptions) -> ssl.SSLContext:
    """The context for `security.protocol` SSL or SASL_SSL. Raises ConfigError when a setting cannot be used."""
    try:
        context = ssl.create_default_context(cafile=options.ca_file, cadata=options.ca_pem)
    except (OSError, ssl.SSLError) as error:
        raise _unusable("The certificate authorities to trust", "ssl.truststore.location", error) from error
    context.check_hostname = options.verify_host
    wanted = [_version(name) for name in options.tls_versions]
    if wanted:
        context.minimum_version, context.maximum_version = min(wanted), max(wanted)
    try:
        if options.key_pem is not None:
            _load_texts(context, options.certificate_pem or "", options.key_pem, options.key_password)
        elif options.certificate_file:
            # a password that is not None keeps OpenSSL from asking for one on the terminal
            context.load_cert_chain(options.certificate_file, options.key_file, options.key_password or "")
    except (OSError, ssl.SSLError) as error:
        names = "ssl.keystore.location or ssl.keystore.key, ssl.key.password"
        raise _unusable("The client's own certificate and key", names, error) from error
    return context


def _load_texts(context: ssl.SSLContext, certificates: str, key: str, password: str | None) -> None:
    """Python's ssl reads keys from files only: one that only we can read, gone at once."""
    with tempfile.TemporaryDirectory(prefix="barnabas-") as folder:
        path = Path(folder) / "keystore.pem"
        path.touch(0o600)
        path.write_text(f"{key}\n{certificates}\n")
        context.load_cert_chain(path, password=password or "")


def _version(name: str) -> ssl.TLSVersion:
    version = _VERSIONS.get(name.strip().upper())
    if version is None:
        raise ConfigError(f"ssl.enabled.protocols: {name!r} is not spoken here; there are TLSv1.2 and TLSv1.3.")
    return version


def _unusable(what: str, settings: str, error: Exception) -> ConfigError:
    return ConfigError(
        f"{what} cannot be read: {error}. They must be PEM ({settings}); a JKS or PKCS#12 store becomes PEM with"
        " `keytool -importkeystore -deststoretype pkcs12` and `openssl pkcs12 -nodes`."
    )


def handshake_error(peer: str, error: ssl.SSLError) -> ClientError:
    """What a failed handshake means. Certificates do not get better by trying again; a broken connection may."""
    if isinstance(error, ssl.SSLCertVerificationError):
        if "ostname" in error.verify_message or "IP address" in error.verify_message:
            return TlsError(
                f"{peer}: the broker's certificate is for another name: {error.verify_message} Connect by a name that"
                " is in the certificate; ssl.endpoint.identification.algorithm='' would accept any."
            )
        return TlsError(
            f"{peer}: the broker's certificate is not trusted: {error.verify_message}. ssl.truststore.location must"
            " name the PEM file of the authority that signed it."
        )
    if is_refusal(error):
        return TlsError(
            f"{peer} refused the TLS handshake: {error.reason}. If it asks for certificates of its clients, set"
            " ssl.keystore.location to one that it trusts."
        )
    return BrokerUnreachableError(f"{peer}: the TLS handshake failed: {error}. Is this a TLS listener?")


def is_refusal(error: BaseException | None) -> bool:
    """The other side said in an alert that it does not want us; in TLS 1.3 that may come after the handshake."""
    if not isinstance(error, ssl.SSLError):
        return False
    reason = error.reason or ""
    return "ALERT" in reason and any(word in reason for word in ("CERTIFICATE", "UNKNOWN_CA", "ACCESS_DENIED"))
