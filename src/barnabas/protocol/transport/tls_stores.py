"""Shell: puts certificates and keys into a TLS context, from Kafka's settings of key stores and trust stores.

PEM stores are files, or texts in the settings (KIP-651). Python's `ssl` reads PEM only, so the stores of Java are
converted when a context is built: PKCS12 by the package `cryptography`, JKS by `jks.py` beside this module.
"""

from __future__ import annotations

import ssl
import tempfile
from pathlib import Path
from typing import Final, NamedTuple

from barnabas.core.config import ConfigError
from barnabas.core.reprs import repr_without
from barnabas.protocol.security.config import TlsConfig

STORE_TYPES: Final = ("PEM", "PKCS12", "JKS")
_PEM_BEGIN: Final = b"-----BEGIN"
_JKS_MAGIC: Final = bytes.fromhex("feedfeed")
_CERTIFICATE_BEGIN = "-----BEGIN CERTIFICATE-----"
_CERTIFICATE_END = "-----END CERTIFICATE-----"
_CHAIN = "This end's own certificate and key"
_TRUST = "The certificate authorities to trust"


class StoreContent(NamedTuple):
    """What a Java store contains, as PEM: one key with its certificates, and trusted certificates."""

    key: str
    chain: str
    trusted: str

    def __repr__(self) -> str:
        return repr_without("key")(self)


def load_own_certificate(context: ssl.SSLContext, config: TlsConfig) -> bool:
    """Load this end's certificate chain and key. Returns False if none is configured. Raises ConfigError."""
    try:
        if config.ssl_keystore_key is not None:
            chain = config.ssl_keystore_certificate_chain or ""
            _load_texts(context, chain, config.ssl_keystore_key, config.ssl_key_password)
            return True
        location = config.ssl_certificate_location
        if not location:
            return False
        content = _java_store(location, config.ssl_keystore_type, config.ssl_keystore_password, config.ssl_key_password)
        if content is None:
            # With a password of None, OpenSSL would prompt for one on the terminal.
            context.load_cert_chain(location, config.ssl_key_location, config.ssl_key_password or "")
        elif content.key:
            _load_texts(context, content.chain, content.key, None)
        else:
            raise ConfigError(
                f"ssl.keystore.location={location} contains no private key, or ssl.keystore.password is not set."
            )
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        names = "ssl.keystore.location or ssl.keystore.key, ssl.keystore.type, ssl.key.password"
        raise _unusable(_CHAIN, names, error) from error
    return True


def own_certificate(config: TlsConfig) -> bytes:
    """This end's certificate, the first of its chain, in DER form. Raises ConfigError if it cannot be read."""
    try:
        text = config.ssl_keystore_certificate_chain or ""
        location = config.ssl_certificate_location
        if location and config.ssl_keystore_key is None:
            content = _java_store(
                location, config.ssl_keystore_type, config.ssl_keystore_password, config.ssl_key_password
            )
            text = Path(location).read_text("latin-1") if content is None else content.chain
        begin, end = text.find(_CERTIFICATE_BEGIN), text.find(_CERTIFICATE_END)
        return ssl.PEM_cert_to_DER_cert(text[begin : end + len(_CERTIFICATE_END)])
    except (OSError, ValueError) as error:
        raise _unusable(_CHAIN, "ssl.keystore.location, ssl.keystore.type", error) from error


def load_trusted_certificates(context: ssl.SSLContext, config: TlsConfig) -> bool:
    """Load the authorities to trust. Returns False if none are configured. Raises ConfigError."""
    try:
        if config.ssl_truststore_certificates:
            context.load_verify_locations(cadata=config.ssl_truststore_certificates)
            return True
        location = config.ssl_truststore_location
        if not location:
            return False
        content = _java_store(location, config.ssl_truststore_type, config.ssl_truststore_password, None)
        if content is None:
            context.load_verify_locations(cafile=location)
        elif content.trusted or content.chain:
            context.load_verify_locations(cadata=content.trusted or content.chain)
        else:
            raise ConfigError(f"ssl.truststore.location={location} contains no certificates.")
    except (OSError, ValueError) as error:
        raise _unusable(_TRUST, "ssl.truststore.location, ssl.truststore.type", error) from error
    return True


def _java_store(location: str, kind: str, password: str | None, key_password: str | None) -> StoreContent | None:
    """The content of a PKCS12 or JKS store; None for a PEM file."""
    kind = kind.upper()
    if kind not in STORE_TYPES:
        raise ConfigError(f"A store of type {kind} is not supported; the types are {', '.join(STORE_TYPES)}.")
    data = Path(location).read_bytes()
    is_pem = _PEM_BEGIN in data
    if kind == "PEM":
        return None
    if is_pem:
        raise ConfigError(f"{location} is a PEM file, but the type of the store is {kind}. Set the type to PEM.")
    # As in Java, either type reads stores of both formats.
    if data.startswith(_JKS_MAGIC):
        from barnabas.protocol.transport.jks import read_jks

        return read_jks(data, password, key_password)
    return _read_pkcs12(data, location, password)


def _read_pkcs12(data: bytes, location: str, password: str | None) -> StoreContent:
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.serialization import pkcs12
    except ImportError:
        raise ConfigError(
            f"{location} is a PKCS12 store, which needs the package cryptography: pip install 'barnabas[tls]'. Without"
            " it, use PEM files: `openssl pkcs12 -nodes` converts the store."
        ) from None
    try:
        store = pkcs12.load_pkcs12(data, None if password is None else password.encode())
    except ValueError as error:
        raise ConfigError(f"The PKCS12 store {location} cannot be read; is its password right? {error}") from error
    pem = serialization.Encoding.PEM
    key = chain = ""
    if store.key is not None:
        form = serialization.PrivateFormat.PKCS8
        key = store.key.private_bytes(pem, form, serialization.NoEncryption()).decode()
    others = "".join(entry.certificate.public_bytes(pem).decode() for entry in store.additional_certs)
    if store.cert is not None:
        chain = store.cert.certificate.public_bytes(pem).decode() + others
    return StoreContent(key, chain, others)


def _load_texts(context: ssl.SSLContext, certificates: str, key: str, password: str | None) -> None:
    """Load PEM texts through a private file that is deleted at once: Python's ssl reads keys from files only."""
    with tempfile.TemporaryDirectory(prefix="barnabas-") as folder:
        path = Path(folder) / "keystore.pem"
        path.touch(0o600)
        path.write_text(f"{key}\n{certificates}\n")
        context.load_cert_chain(path, password=password or "")


def _unusable(subject: str, settings: str, error: Exception) -> ConfigError:
    return ConfigError(f"{subject} cannot be read: {error}. Check {settings}; PEM is the default of clients.")
