"""Machine: the client's end of SASL: PLAIN (RFC 4616), SCRAM-SHA-256/512 (RFC 5802, KIP-84), OAUTHBEARER (RFC 7628).

The machine makes and reads the `auth_bytes` of SaslAuthenticate requests and responses. `transport/handshake.py` sends
them over a connection, and passes the random nonce and the token.
"""

from __future__ import annotations

import hmac
from typing import Final, Protocol

from barnabas.core.config import ConfigError
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.protocol.security import scram
from barnabas.protocol.security.config import OAUTHBEARER, SaslConfig
from barnabas.protocol.security.credentials import SCRAM_ITERATIONS_MIN
from barnabas.protocol.security.oauth.messages import LAST_WORD, OAuthClientFirst, OAuthMessageError, encode_first
from barnabas.protocol.security.oauth.tokens import BearerToken

NONCE_BYTES: Final = 24
"""Random bytes that one exchange needs."""
ITERATIONS_MAX: Final = 1_000_000
"""A server that demands more iterations is rejected, because the client would have to compute them, for seconds."""
ITERATIONS_AT_ONCE_MAX: Final = 16_384
"""More iterations, which no server of Kafka demands, would hold the event loop for longer than about 10 ms."""


class SaslClient(Protocol):
    """One exchange: send `first()`; answer each response with `next(response)` until `done`; `verify` the last one.

    If `verify` returns a message, the server has refused: the message ends the exchange, and its response is the error.
    `next` and `verify` raise KafkaError SASL_AUTHENTICATION_FAILED if the server does not follow the mechanism.
    """

    @property
    def done(self) -> bool:
        """True if this end has no more message to send."""
        ...

    def first(self) -> bytes: ...

    def is_long(self, challenge: bytes) -> bool:
        """Whether `next` takes so long that it must not run on an event loop."""
        ...

    def next(self, challenge: bytes) -> bytes: ...

    def verify(self, final: bytes) -> bytes | None: ...


def sasl_client(config: SaslConfig, nonce: bytes, token: BearerToken | None = None) -> SaslClient:
    """A new exchange. `nonce` is `NONCE_BYTES` random bytes. `token` is for OAUTHBEARER.

    Raises ConfigError if the mechanism is unknown, or a credential is missing.
    """
    mechanism, username, password = config.sasl_mechanism, config.username, config.password
    if mechanism.upper() == OAUTHBEARER:
        if token is None:
            raise ConfigError("SASL OAUTHBEARER needs a token; set sasl.oauthbearer.token.endpoint.url.")
        return _OAuthClient(token)
    if username is None or password is None:
        raise ConfigError(f"SASL {mechanism} needs sasl.username and sasl.password (or sasl.jaas.config).")
    hash_name = scram.HASHES.get(mechanism.upper())
    if hash_name is not None:
        return _ScramClient(hash_name, username, password, nonce, tokenauth=config.tokenauth)
    if config.tokenauth:
        raise ConfigError(f"tokenauth=true needs SCRAM-SHA-256 or SCRAM-SHA-512, but sasl.mechanism is {mechanism}.")
    if mechanism.upper() == "PLAIN":
        return _PlainClient(username, password)
    raise ConfigError(
        f"sasl.mechanism {mechanism} is not supported; use PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER."
    )


class _PlainClient:
    """One message: authorization id (empty), user name and password, with NUL between them."""

    done = True

    def __init__(self, username: str, password: str) -> None:
        self._message = f"\0{username}\0{password}".encode()

    def first(self) -> bytes:
        return self._message

    def is_long(self, challenge: bytes) -> bool:
        return False

    def next(self, challenge: bytes) -> bytes:
        raise AssertionError("PLAIN has one message")

    def verify(self, final: bytes) -> None:
        return None


class _ScramClient:
    """The client's two messages (see the drawing in `scram.py`)."""

    def __init__(self, hash_name: str, username: str, password: str, nonce: bytes, *, tokenauth: bool = False) -> None:
        self.done = False
        self._hash_name = hash_name
        self._password = password
        self._nonce = scram.encode_base64(nonce)
        extension = f",{scram.TOKEN_AUTH}=true" if tokenauth else ""
        self._first_bare = f"n={scram.escape_name(username)},r={self._nonce}{extension}"
        self._server_signature = b""

    def first(self) -> bytes:
        return f"n,,{self._first_bare}".encode()

    def is_long(self, challenge: bytes) -> bool:
        return _iterations(scram.parse_attributes(challenge)) > ITERATIONS_AT_ONCE_MAX

    def next(self, challenge: bytes) -> bytes:
        attributes = scram.parse_attributes(challenge)
        nonce, salt, count = attributes.get("r", ""), attributes.get("s", ""), _iterations(attributes)
        if not nonce.startswith(self._nonce) or nonce == self._nonce or not salt:
            raise _failed("its challenge has no salt, or a nonce that does not extend the client's nonce")
        if not SCRAM_ITERATIONS_MIN <= count <= ITERATIONS_MAX:
            raise _failed(
                f"it demands {attributes.get('i', 'no'):.20} iterations; fewer than {SCRAM_ITERATIONS_MIN} protect no"
                f" password, and more than {ITERATIONS_MAX} take too long"
            )
        try:
            keys = scram.derive_keys(self._hash_name, self._password, scram.decode_base64(salt), count)
        except scram.ScramError as error:
            raise _failed(str(error)) from error
        without_proof = f"{scram.CHANNEL_BINDING},r={nonce}"
        message = scram.auth_message(self._first_bare, challenge.decode("utf-8", "replace"), without_proof)
        proof = scram.xor(keys.client_key, scram.client_signature(self._hash_name, keys.stored_key, message))
        self._server_signature = scram.server_signature(self._hash_name, keys.server_key, message)
        self.done = True
        return f"{without_proof},p={scram.encode_base64(proof)}".encode()

    def verify(self, final: bytes) -> None:
        try:
            signature = scram.decode_base64(scram.parse_attributes(final).get("v", ""))
        except scram.ScramError as error:
            raise _failed(str(error)) from error
        if not hmac.compare_digest(signature, self._server_signature):
            raise _failed("it could not prove that it knows the password")


class _OAuthClient:
    """One message with the token; one more if the server has refused the token (see `oauth/messages.py`)."""

    done = True

    def __init__(self, token: BearerToken) -> None:
        try:
            self._message = encode_first(OAuthClientFirst(token.text, extensions=dict(token.extensions)))
        except OAuthMessageError as error:
            raise KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, f"The token cannot be sent: {error}.") from error
        self._refused = False

    def first(self) -> bytes:
        return self._message

    def is_long(self, challenge: bytes) -> bool:
        return False

    def next(self, challenge: bytes) -> bytes:
        raise AssertionError("OAUTHBEARER has one message")

    def verify(self, final: bytes) -> bytes | None:
        if self._refused:
            raise KafkaError(
                ErrorCode.SASL_AUTHENTICATION_FAILED, "The broker refused the token, without an error code."
            )
        self._refused = bool(final)
        return LAST_WORD if self._refused else None


def _iterations(attributes: dict[str, str]) -> int:
    """The iteration count that the server demands; 0 if it has none, or one that is far too large."""
    text = attributes.get("i", "")
    return int(text) if text.isdecimal() and len(text) <= len(str(ITERATIONS_MAX)) else 0


def _failed(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, f"The broker failed the SCRAM exchange: {reason}.")
