"""Logging in with delegation tokens: both ends of SCRAM with `tokenauth=true` (KIP-48)."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from msgspec import Struct

from barnabas.core.config import ConfigError
from barnabas.protocol.security import scram
from barnabas.protocol.security.config import SaslConfig
from barnabas.protocol.security.credentials import SCRAM_ITERATIONS_MIN, ScramCredential
from barnabas.protocol.security.delegation_tokens import TokenLogins, hmac_of_token, token_password
from barnabas.protocol.security.jaas import parse_jaas
from barnabas.protocol.security.sasl_client import NONCE_BYTES, sasl_client
from barnabas.protocol.security.sasl_conversation import (
    HandOver,
    Refuse,
    Respond,
    SaslConversation,
    SaslServerConfig,
    SaslStep,
)
from barnabas.protocol.security.sasl_server import SaslCredentials, SaslIdentity, no_tokens
from barnabas.protocol.wire.client_conn import ClientConnection
from barnabas.protocol.wire.messages.metadata import MetadataRequest
from barnabas.protocol.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from barnabas.protocol.wire.messages.sasl_handshake import SaslHandshakeRequest
from barnabas.protocol.wire.schema import Request
from barnabas.protocol.wire.server_conn import ServerConnection

SECRET = "the key of all nodes"
EXPIRY_MS = 60_000
MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")


class Token(Struct, frozen=True):
    owner: str = "User:alice"
    expiration_timestamp: int = EXPIRY_MS


TOKENS = {
    "of-alice": Token(),
    "renewed": Token(expiration_timestamp=3 * EXPIRY_MS),
    "of-bob": Token("User:bob"),
    "of-a-group": Token("Group:alice"),
    "damaged": Token("alice"),
}


def password_of(token_id: str, secret: str = SECRET) -> str:
    return token_password(hmac_of_token(secret, token_id))


def _user(mechanism: int, user: str) -> ScramCredential | None:
    name = {1: "sha256", 2: "sha512"}[mechanism]
    return scram.credential(name, "secret", b"0123456789abcdef", SCRAM_ITERATIONS_MIN) if user == "alice" else None


class Client:
    """The client's end of a conversation over which it logs in with a token."""

    def __init__(self, *, enabled: bool = True, reauth_ms: int = 0) -> None:
        logins = TokenLogins(SECRET, b"salt", TOKENS.get)
        credentials = SaslCredentials({}, _user, b"decoy", logins.find if enabled else no_tokens)
        config = SaslServerConfig(MECHANISMS, credentials, dict.fromkeys(MECHANISMS, reauth_ms))
        self.machine = SaslConversation(config, Random(1))
        self.now_ms = 1_000.0
        self.wall_ms = 10_000
        self.lifetime_ms = -1

    def step(self, message: Request, version: int) -> tuple[SaslStep, Any]:
        wire, server = ClientConnection("test"), ServerConnection(1_000_000)
        _, parts = wire.send(message, version, expect_response=True)
        (request,) = server.feed(b"".join(parts))
        step = self.machine.on_request(request, self.now_ms, self.wall_ms)
        if isinstance(step, HandOver) or step.frame is None:
            return step, None
        return step, wire.read(b"".join(step.frame)[4:])[1]

    def log_in(self, token_id: str, password: str | None = None, mechanism: str = MECHANISMS[1]) -> SaslIdentity | None:
        """Who the client is afterwards; None if it is refused."""
        step, _ = self.step(SaslHandshakeRequest(mechanism=mechanism), 1)
        if not isinstance(step, Respond):
            return None
        given = password_of(token_id) if password is None else password
        client = sasl_client(SaslConfig(mechanism, token_id, given, tokenauth=True), b"n" * NONCE_BYTES)
        message = client.first()
        while True:
            step, response = self.step(SaslAuthenticateRequest(auth_bytes=message), 2)
            if not isinstance(step, Respond):
                return None
            if client.done:
                client.verify(response.auth_bytes)
                self.lifetime_ms = response.session_lifetime_ms
                return step.identity
            message = client.next(response.auth_bytes)

    def is_served(self) -> bool:
        return isinstance(self.step(MetadataRequest(), 9)[0], HandOver)


def test_the_hmac_is_that_of_kafka() -> None:
    """HmacSHA512 of the id with the bytes of the key, as `DelegationTokenManager.createHmac`."""
    assert hmac_of_token("key", "The quick brown fox jumps over the lazy dog").hex() == (
        "b42af09057bac1e2d41708e48a902e09b5ff7f12ab428a4fe86653c73dd248fb82f948a549f7b791a5b41915ee4d1ec3935357e4e2317250"
        "d0372afa2ebeeb3a"
    )


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_token_logs_in_as_its_owner_until_it_expires(mechanism: str) -> None:
    client = Client()
    identity = client.log_in("of-alice", mechanism=mechanism)
    assert identity == SaslIdentity("alice", token_authenticated=True, expires_at_ms=EXPIRY_MS)
    assert client.lifetime_ms == EXPIRY_MS - client.wall_ms
    client.now_ms += client.lifetime_ms
    assert client.is_served()
    client.now_ms += 1
    assert not client.is_served()


def test_the_shorter_of_the_two_lifetimes_ends_the_session() -> None:
    client = Client(reauth_ms=5_000)
    assert client.log_in("of-alice") is not None
    assert client.lifetime_ms == 5_000


def test_a_renewed_token_extends_the_session() -> None:
    client = Client()
    assert client.log_in("of-alice") is not None
    client.now_ms += 20_000
    client.wall_ms += 20_000
    assert client.log_in("renewed") is not None
    assert client.lifetime_ms == 3 * EXPIRY_MS - client.wall_ms


def test_the_token_of_another_user_does_not_extend_the_session() -> None:
    client = Client()
    assert client.log_in("of-alice") is not None
    client.now_ms += 2_000
    assert client.log_in("of-bob") is None


@pytest.mark.parametrize(
    ("token_id", "password"),
    [
        ("of-alice", password_of("of-alice", "another key")),
        ("of-alice", password_of("of-bob")),
        ("of-alice", "secret"),
        ("unknown", password_of("unknown")),
        ("alice", "secret"),  # a user, not a token
        ("of-a-group", password_of("of-a-group")),
        ("damaged", password_of("damaged")),
    ],
)
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_what_is_not_a_token_is_refused(token_id: str, password: str, mechanism: str) -> None:
    client = Client()
    assert client.log_in(token_id, password, mechanism) is None
    assert not client.is_served()


def test_an_expired_token_is_refused_before_the_controller_has_removed_it() -> None:
    client = Client()
    client.wall_ms = EXPIRY_MS
    assert client.log_in("of-alice") is None


def test_a_token_cannot_be_used_as_the_password_of_a_user() -> None:
    """Without `tokenauth=true` the name is that of a user, and there is no user with the id of a token."""
    client = Client()
    client.step(SaslHandshakeRequest(mechanism=MECHANISMS[0]), 1)
    exchange = sasl_client(SaslConfig(MECHANISMS[0], "of-alice", password_of("of-alice")), b"n" * NONCE_BYTES)
    _, response = client.step(SaslAuthenticateRequest(auth_bytes=exchange.first()), 2)
    step, _ = client.step(SaslAuthenticateRequest(auth_bytes=exchange.next(response.auth_bytes)), 2)
    assert isinstance(step, Refuse)


def test_without_a_secret_key_no_token_logs_in() -> None:
    assert Client(enabled=False).log_in("of-alice") is None


def test_an_unknown_token_and_a_wrong_hmac_get_the_same_answers() -> None:
    found = []
    for token_id in ("of-alice", "unknown"):
        client = Client()
        client.step(SaslHandshakeRequest(mechanism=MECHANISMS[0]), 1)
        exchange = sasl_client(SaslConfig(MECHANISMS[0], token_id, "x", tokenauth=True), b"n" * NONCE_BYTES)
        _, challenge = client.step(SaslAuthenticateRequest(auth_bytes=exchange.first()), 2)
        step, answer = client.step(SaslAuthenticateRequest(auth_bytes=exchange.next(challenge.auth_bytes)), 2)
        assert isinstance(step, Refuse)
        found.append((len(challenge.auth_bytes), answer.error_code, answer.error_message))
    assert found[0] == found[1]


def test_the_client_marks_its_first_message() -> None:
    """As Kafka's ScramSaslClient, which appends the extensions to the signed part of the message."""
    exchange = sasl_client(SaslConfig("SCRAM-SHA-512", "id", "x", tokenauth=True), b"\0" * NONCE_BYTES)
    assert exchange.first() == b"n,,n=id,r=" + b"A" * 32 + b",tokenauth=true"


def test_tokens_need_scram() -> None:
    with pytest.raises(ConfigError, match="tokenauth=true needs SCRAM"):
        sasl_client(SaslConfig("PLAIN", "id", "x", tokenauth=True), b"n" * NONCE_BYTES)


@pytest.mark.parametrize(("option", "expected"), [('"true"', True), ("TRUE", True), ("false", False), ("yes", False)])
def test_the_setting_is_that_of_kafka(option: str, expected: bool) -> None:
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    entry = parse_jaas(f'{module} required username="id" password="hmac" tokenauth={option};')
    assert entry.tokenauth is expected


def test_credentials_of_tokens_are_derived_once(monkeypatch: pytest.MonkeyPatch) -> None:
    derived: list[str] = []
    original = scram.credential

    def counted(hash_name: str, password: str, salt: bytes, iterations: int) -> ScramCredential:
        derived.append(hash_name)
        return original(hash_name, password, salt, iterations)

    monkeypatch.setattr(scram, "credential", counted)
    logins = TokenLogins(SECRET, b"salt", TOKENS.get)
    for _ in range(3):
        for mechanism in (1, 2):
            assert logins.find(mechanism, "of-alice") is not None
    assert derived == ["sha256", "sha512"]
