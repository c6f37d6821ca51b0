"""Machine: the client's side of the SASL mechanisms PLAIN (RFC 4616) and SCRAM-SHA-256/512 (RFC 5802, KIP-84)."""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import Protocol

from barnabas.core.config import ConfigError
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.rng import Rng

SCRAM_ITERATIONS_MAX = 10_000_000
"""A server that asks for more is refused: the work is ours."""


class SaslClient(Protocol):
    """One exchange: `first`, then `next` for every answer until `done`, then `verify` the last answer."""

    @property
    def done(self) -> bool: ...

    def first(self) -> bytes: ...

    def next(self, challenge: bytes) -> bytes: ...

    def verify(self, final: bytes) -> None: ...


def sasl_client(mechanism: str, username: str | None, password: str | None, rng: Rng) -> SaslClient:
    """The exchange of a mechanism. Raises ConfigError for one that is unknown or lacks credentials."""
    if username is None or password is None:
        raise ConfigError(f"SASL {mechanism} needs sasl.username and sasl.password (or sasl.jaas.config).")
    match mechanism.upper():
        case "PLAIN":
            return _Plain(username, password)
        case "SCRAM-SHA-256":
            return _Scram("sha256", username, password, rng)
        case "SCRAM-SHA-512":
            return _Scram("sha512", username, password, rng)
        case _:
            raise ConfigError(
                f"sasl.mechanism {mechanism} is not supported; use PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512."
            )


class _Plain:
    done = True

    def __init__(self, username: str, password: str) -> None:
        self._message = f"\0{username}\0{password}".encode()

    def first(self) -> bytes:
        return self._message

    def next(self, challenge: bytes) -> bytes:
        raise AssertionError("PLAIN has one message")

    def verify(self, final: bytes) -> None:
        return None


class _Scram:
    def __init__(self, digest: str, username: str, password: str, rng: Rng) -> None:
        self.done = False
        self._digest = digest
        self._password = password.encode()
        self._nonce = base64.b64encode(rng.getrandbits(192).to_bytes(24, "big")).decode()
        name = username.replace("=", "=3D").replace(",", "=2C")
        self._first_bare = f"n={name},r={self._nonce}"
        self._server_signature = b""

    def first(self) -> bytes:
        return f"n,,{self._first_bare}".encode()

    def next(self, challenge: bytes) -> bytes:
        fields = _fields(challenge)
        nonce, salt, iterations = fields.get("r", ""), fields.get("s", ""), int(fields.get("i", "0"))
        if not nonce.startswith(self._nonce) or not salt or not 0 < iterations <= SCRAM_ITERATIONS_MAX:
            raise _broken("its challenge does not continue our nonce, or its iteration count is out of bounds")
        salted = hashlib.pbkdf2_hmac(self._digest, self._password, base64.b64decode(salt), iterations)
        client_key = self._hmac(salted, b"Client Key")
        without_proof = f"c=biws,r={nonce}"
        signed = f"{self._first_bare},{challenge.decode()},{without_proof}".encode()
        signature = self._hmac(hashlib.new(self._digest, client_key).digest(), signed)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self._server_signature = self._hmac(self._hmac(salted, b"Server Key"), signed)
        self.done = True
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def verify(self, final: bytes) -> None:
        given = base64.b64decode(_fields(final).get("v", ""))
        if not hmac.compare_digest(given, self._server_signature):
            raise _broken("it could not prove that it knows the password")

    def _hmac(self, key: bytes, message: bytes) -> bytes:
        return hmac.new(key, message, self._digest).digest()


def _fields(message: bytes) -> dict[str, str]:
    return {part[:1]: part[2:] for part in message.decode("utf-8", "replace").split(",") if part[1:2] == "="}


def _broken(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, f"The broker failed the SCRAM exchange: {reason}.")
