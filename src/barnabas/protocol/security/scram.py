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
import re
from typing import Final, NamedTuple

from barnabas.core.errors import BarnabasError
from barnabas.protocol.security.credentials import ScramCredential

HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
"""The name that `hashlib` gives to the hash function of each mechanism."""
CHANNEL_BINDING: Final = "c=biws"
"""base64 of "n,,": the client does not support channel binding."""
TOKEN_AUTH: Final = "tokenauth"
"""The extension `tokenauth=true` of the first message of a client that logs in with a delegation token."""


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
        raise ScramError(f"the attribute {text[:64]!r} is not base64") from None


def encode_base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


# ---- the server's end


def credential(hash_name: str, password: str, salt: bytes, iterations: int) -> ScramCredential:
    """What a server stores for a user with this password."""
    salted_password = hashlib.pbkdf2_hmac(hash_name, password.encode(), salt, iterations)
    return credential_of(hash_name, salted_password, salt, iterations)


def credential_of(hash_name: str, salted_password: bytes, salt: bytes, iterations: int) -> ScramCredential:
    """As `credential`, for a client that sends the salted password (AlterUserScramCredentials)."""
    client_key = hmac.digest(salted_password, b"Client Key", hash_name)
    server_key = hmac.digest(salted_password, b"Server Key", hash_name)
    return ScramCredential(salt, hashlib.new(hash_name, client_key).digest(), server_key, iterations)


class ClientFirst(NamedTuple):
    """The first message of a client."""

    authorization_id: str
    username: str
    nonce: str
    extensions: dict[str, str]
    bare: str
    """The message without its GS2 header, as it was received: both signatures sign it."""

    @property
    def token_authenticated(self) -> bool:
        """Whether the user name is the id of a delegation token."""
        return self.extensions.get(TOKEN_AUTH, "").lower() == "true"


class ClientFinal(NamedTuple):
    """The last message of a client."""

    nonce: str
    without_proof: str
    proof: bytes


MESSAGE_BYTES_MAX: Final = 16_384
"""A server keeps the first message of a client until the last one comes, so the messages are limited. Honest ones have
some hundred bytes."""
_NAME: Final = r"[^,\0]+"
_WRONG_ESCAPE: Final = re.compile("=(?!2C|3D)")
_EXTENSIONS: Final = r"(?P<extensions>(?:,[A-Za-z]+=[^,\0]+)*)"
_NONCE: Final = r"(?P<nonce>[\x21-\x2b\x2d-\x7e]+)"
_CLIENT_FIRST: Final = re.compile(
    rf"n,(?:a=(?P<authzid>{_NAME}))?,(?P<bare>(?:m=[^,\0]+,)?n=(?P<name>{_NAME}),r={_NONCE}{_EXTENSIONS})", re.DOTALL
)
_CLIENT_FINAL: Final = re.compile(
    rf"(?P<unproved>c=[A-Za-z0-9+/]*={{0,2}},r={_NONCE}{_EXTENSIONS}),p=(?P<proof>[A-Za-z0-9+/]*={{0,2}})", re.DOTALL
)


def parse_client_first(message: bytes) -> ClientFirst:
    """Raises ScramError. As in Kafka, the attribute m is skipped, and channel binding (GS2 flag p) is refused."""
    match = _CLIENT_FIRST.fullmatch(_decode(message))
    if match is None:
        raise ScramError("the client's first message does not have the form n,,n=USER,r=NONCE")
    if _WRONG_ESCAPE.search(match["authzid"] or "") or _WRONG_ESCAPE.search(match["name"]):
        raise ScramError("a name in the client's first message has '=' without 2C or 3D behind it")
    extensions = dict(part.split("=", 1) for part in match["extensions"].split(",") if part)
    return ClientFirst(
        unescape_name(match["authzid"] or ""), unescape_name(match["name"]), match["nonce"], extensions, match["bare"]
    )


def parse_client_final(message: bytes) -> ClientFinal:
    """Raises ScramError. As in Kafka, the bytes of the channel binding are not checked."""
    match = _CLIENT_FINAL.fullmatch(_decode(message))
    if match is None:
        raise ScramError("the client's last message does not have the form c=biws,r=NONCE,p=PROOF")
    return ClientFinal(match["nonce"], match["unproved"], decode_base64(match["proof"]))


def proves_password(hash_name: str, stored_key: bytes, message: bytes, proof: bytes) -> bool:
    """Whether the client's proof over `message` shows that the client knows the password."""
    signature = client_signature(hash_name, stored_key, message)
    if len(proof) != len(signature):
        return False
    return hmac.compare_digest(hashlib.new(hash_name, xor(proof, signature)).digest(), stored_key)


def unescape_name(text: str) -> str:
    """The user name that `escape_name` has escaped."""
    return text.replace("=2C", ",").replace("=3D", "=")


def _decode(message: bytes) -> str:
    if len(message) > MESSAGE_BYTES_MAX:
        raise ScramError(f"a message of {len(message)} bytes is longer than {MESSAGE_BYTES_MAX} bytes")
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise ScramError("the message is not UTF-8") from None
