"""Writes a JKS store, by the same description of the format as `barnabas.protocol.transport.jks` reads it."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence

_OID = bytes.fromhex("060a2b060104012a021101010500")


def write_jks(password: str, key_password: str, key: bytes, chain: Sequence[bytes], trusted: Sequence[bytes]) -> bytes:
    """A store of version 2 with one key, its certificates, and trusted certificates, all in DER form."""
    out = struct.pack(">III", 0xFEEDFEED, 2, 1 + len(trusted))
    out += struct.pack(">I", 1) + _text("own") + bytes(8) + _sized(_protected(key, key_password))
    out += struct.pack(">I", len(chain)) + b"".join(_text("X.509") + _sized(der) for der in chain)
    for number, der in enumerate(trusted):
        out += struct.pack(">I", 2) + _text(f"ca{number}") + bytes(8) + _text("X.509") + _sized(der)
    return out + hashlib.sha1(password.encode("utf-16-be") + b"Mighty Aphrodite" + out).digest()


def _text(text: str) -> bytes:
    return struct.pack(">H", len(text)) + text.encode()


def _sized(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


def _protected(key: bytes, password: str) -> bytes:
    secret, salt = password.encode("utf-16-be"), bytes(range(20))
    stream, digest = b"", salt
    while len(stream) < len(key):
        digest = hashlib.sha1(secret + digest).digest()
        stream += digest
    encrypted = bytes(a ^ b for a, b in zip(key, stream, strict=False))
    octets = salt + encrypted + hashlib.sha1(secret + key).digest()
    return _der(0x30, _der(0x30, _OID) + _der(0x04, octets))


def _der(tag: int, content: bytes) -> bytes:
    size = len(content)
    head = bytes([size]) if size < 128 else b"\x82" + struct.pack(">H", size)
    return bytes([tag]) + head + content
