"""Codec: the messages and the keys of SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, KIP-84), for both ends.

    client                                                     server
      n,,n=<user>,r=<client nonce>                        ->
                                                          <-     r=<both nonces>,s=<salt>,i=<iterations>
      c=biws,r=<both nonces>,p=<client proof>             ->
                                                          <-     v=<server signature>

A server stores the salt, the iterations, the StoredKey and the ServerKey of a user, never the password.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from typing import Final, NamedTuple

from barnabas.core.errors import BarnabasError

HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
"""The name that `hashlib` gives to the hash function of each mechanism."""
CHANNEL_BINDING: Final = "c=biws"
"""base64 of "n,,": the client does not support channel binding."""


class ScramError(BarnabasError):
    """A SCRAM message is malformed, or does not belong to this exchange."""


class ScramKeys(NamedTuple):
    """The keys that a password, a salt and an iteration count give."""

    client_key: bytes
    stored_key: bytes
    server_key: bytes


def derive_keys(hash_name: str, password: str, salt: bytes, iterations: int) -> ScramKeys:
    """The keys of RFC 5802, section 3. Takes milliseconds: the iteration count is there to make guessing slow."""
    salted_password = hashlib.pbkdf2_hmac(hash_name, password.encode(), salt, iterations)
    client_key = hmac.digest(salted_password, b"Client Key", hash_name)
    server_key = hmac.digest(salted_password, b"Server Key", hash_name)
    return ScramKeys(client_key, hashlib.new(hash_name, client_key).digest(), server_key)


def auth_message(client_first_bare: str, server_first: str, client_final_without_proof: str) -> bytes:
    """The text that both signatures sign."""
    return f"{client_first_bare},{server_first},{client_final_without_proof}".encode()


def client_signature(hash_name: str, stored_key: bytes, message: bytes) -> bytes:
    """The ClientSignature: `message` signed with the StoredKey. The client's proof is ClientKey XOR ClientSignature."""
    return hmac.digest(stored_key, message, hash_name)


def server_signature(hash_name: str, server_key: bytes, message: bytes) -> bytes:
    """The signature by which the server proves that it knows the user's keys."""
    return hmac.digest(server_key, message, hash_name)


def xor(left: bytes, right: bytes) -> bytes:
    """The exclusive or of two byte strings of equal length.

    It makes the client's proof (ClientKey XOR ClientSignature), and the ClientKey (proof XOR ClientSignature).
    """
    return bytes(a ^ b for a, b in zip(left, right, strict=True))


def escape_name(username: str) -> str:
    """A user name as a SCRAM message carries it (`saslname`): "=" and "," would end the attribute."""
    return username.replace("=", "=3D").replace(",", "=2C")


def parse_attributes(message: bytes) -> dict[str, str]:
    """`r=...,s=...,i=...` as a dict by the attributes' letters. Parts that are no attribute are left out."""
    return {part[:1]: part[2:] for part in message.decode("utf-8", "replace").split(",") if part[1:2] == "="}


def decode_base64(text: str) -> bytes:
    """The bytes that `text` encodes. Raises ScramError if it is not base64."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ScramError(f"the attribute {text!r} is not base64") from None


def encode_base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
