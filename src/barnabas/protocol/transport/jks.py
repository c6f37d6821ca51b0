"""Codec: reads a JKS store, the older format of Java's `keytool`.

    magic FEEDFEED | version 1 or 2 | number of entries | entries ... | SHA-1 of the password and all that precedes

    key entry          1 | alias | time | protected key | number of certificates | certificates ...
    trusted entry      2 | alias | time | certificate
    certificate        type (version 2 only) | length | DER
    protected key      PKCS#8 EncryptedPrivateKeyInfo of the algorithm 1.3.6.1.4.1.42.2.17.1.1

The key is protected by a stream of SHA-1 digests. That is weak by today's measure: such a file must be kept as secret
as a key without a password.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import struct
from typing import Final

from barnabas.core.config import ConfigError
from barnabas.protocol.transport.tls_stores import StoreContent

_HEADER: Final = struct.Struct(">III")
_KEY, _TRUSTED = 1, 2
_DIGEST_BYTES: Final = 20
_SALT_TEXT: Final = b"Mighty Aphrodite"
"""The text that the format mixes into its digest."""
_PROTECTED_OID: Final = bytes.fromhex("060a2b060104012a02110101")


def read_jks(data: bytes, password: str | None, key_password: str | None) -> StoreContent:
    """The first key with its chain, and all trusted certificates. Raises ConfigError."""
    try:
        return _read(data, password, key_password)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise ConfigError("The JKS store is damaged: it ends before its last entry.") from error


def _read(data: bytes, password: str | None, key_password: str | None) -> StoreContent:
    _, version, count = _HEADER.unpack_from(data)
    if version not in (1, 2):
        raise ConfigError(f"The JKS store has version {version}; versions 1 and 2 are supported.")
    if password is not None:
        digest = hashlib.sha1(password.encode("utf-16-be") + _SALT_TEXT + data[:-_DIGEST_BYTES]).digest()
        if not hmac.compare_digest(digest, data[-_DIGEST_BYTES:]):
            raise ConfigError("The JKS store is damaged, or its password is wrong (ssl.keystore.password).")
    offset = _HEADER.size
    key = chain = trusted = ""
    for _ in range(count):
        (tag,) = struct.unpack_from(">I", data, offset)
        (size,) = struct.unpack_from(">H", data, offset + 4)
        offset += 4 + 2 + size + 8  # the tag, the alias, and the time
        if tag == _KEY:
            protected, offset = _bytes(data, offset)
            (certificates,) = struct.unpack_from(">I", data, offset)
            offset += 4
            pem = ""
            for _ in range(certificates):
                der, offset = _certificate(data, offset, version)
                pem += _pem("CERTIFICATE", der)
            secret = key_password or password
            if not key and secret is not None:  # a trust store needs no password, and its keys are not used
                key, chain = _pem("PRIVATE KEY", _unprotected(protected, secret)), pem
        elif tag == _TRUSTED:
            der, offset = _certificate(data, offset, version)
            trusted += _pem("CERTIFICATE", der)
        else:
            raise ConfigError(f"The JKS store has an entry of the unknown type {tag}.")
    return StoreContent(key, chain, trusted)


def _certificate(data: bytes, offset: int, version: int) -> tuple[bytes, int]:
    if version == 2:
        (size,) = struct.unpack_from(">H", data, offset)
        offset += 2 + size
    return _bytes(data, offset)


def _bytes(data: bytes, offset: int) -> tuple[bytes, int]:
    (size,) = struct.unpack_from(">I", data, offset)
    start = offset + 4
    if start + size > len(data):
        raise ConfigError(f"The JKS store is truncated: {size} bytes are announced at offset {offset}.")
    return data[start : start + size], start + size


def _unprotected(protected: bytes, password: str) -> bytes:
    """The key in PKCS#8 form. After the algorithm come the salt, the encrypted key, and a digest of the key."""
    at = protected.find(_PROTECTED_OID)
    if at < 0:
        raise ConfigError("The key in the JKS store is not protected by the algorithm of JKS.")
    at += len(_PROTECTED_OID)
    if protected[at : at + 2] == b"\x05\x00":
        at += 2
    size, at = _der_length(protected, at + 1)
    body = protected[at : at + size]
    salt, encrypted, check = body[:_DIGEST_BYTES], body[_DIGEST_BYTES:-_DIGEST_BYTES], body[-_DIGEST_BYTES:]
    secret = password.encode("utf-16-be")
    stream = bytearray()
    digest = salt
    while len(stream) < len(encrypted):
        digest = hashlib.sha1(secret + digest).digest()
        stream += digest
    key = bytes(a ^ b for a, b in zip(encrypted, stream, strict=False))
    if not hmac.compare_digest(hashlib.sha1(secret + key).digest(), check):
        raise ConfigError("The password of the key in the JKS store is wrong (ssl.key.password).")
    return key


def _der_length(data: bytes, offset: int) -> tuple[int, int]:
    """The length at `offset` and the offset of the content."""
    size = data[offset]
    if size < 0x80:
        return size, offset + 1
    count = size & 0x7F
    return int.from_bytes(data[offset + 1 : offset + 1 + count], "big"), offset + 1 + count


def _pem(label: str, der: bytes) -> str:
    text = base64.encodebytes(der).decode()
    return f"-----BEGIN {label}-----\n{text}-----END {label}-----\n"
