"""The SASL conversation of an accepted connection: the rows of Kafka's SaslServerAuthenticator."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.protocol.security import scram
from barnabas.protocol.security.config import SaslConfig
from barnabas.protocol.security.credentials import ScramCredential
from barnabas.protocol.security.sasl_client import NONCE_BYTES, sasl_client
from barnabas.protocol.security.sasl_conversation import (
    HandOver,
    Refuse,
    Respond,
    SaslConversation,
    SaslServerConfig,
    SaslStep,
)
from barnabas.protocol.security.sasl_server import SaslCredentials, SaslIdentity
from barnabas.protocol.wire.client_conn import ClientConnection
from barnabas.protocol.wire.headers import RequestHeader
from barnabas.protocol.wire.messages.api_versions import ApiVersionsRequest
from barnabas.protocol.wire.messages.metadata import MetadataRequest
from barnabas.protocol.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from barnabas.protocol.wire.messages.sasl_handshake import SaslHandshakeRequest
from barnabas.protocol.wire.schema import Request
from barnabas.protocol.wire.server_conn import ReceivedRequest, ServerConnection

_SALT = b"0123456789abcdef"


_ITERATIONS = {"alice": 4096, "weak": 1000, "a,b=c": 4096}


def _stored(mechanism: int, user: str) -> ScramCredential | None:
    name = {1: "sha256", 2: "sha512"}[mechanism]
    iterations = _ITERATIONS.get(user)
    return None if iterations is None else scram.credential(name, f"{user}-secret", _SALT, iterations)


class _Client:
    """The client's end of a conversation: encodes requests, and decodes the responses of the machine."""

    def __init__(self, *mechanisms: str, reauth_ms: int = 0) -> None:
        config = SaslServerConfig(
            mechanisms or ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"),
            SaslCredentials({"alice": "alice-secret", "bob": "bob-secret"}, _stored, b"decoy"),
            dict.fromkeys(("PLAIN", "SCRAM-SHA-256"), reauth_ms),
        )
        self.machine = SaslConversation(config, Random(1))
        self._wire = ClientConnection("test")
        self._server = ServerConnection(1_000_000)
        self.now_ms = 1000.0
        self.last: Any = None
        """The last response of an exchange that was completed."""

    def step(self, message: Request, version: int) -> SaslStep:
        self._wire = ClientConnection("test")
        _, parts = self._wire.send(message, version, expect_response=True)
        (request,) = self._server.feed(b"".join(parts))
        return self.machine.on_request(request, self.now_ms, 5_000_000)

    def raw(self, token: bytes) -> SaslStep:
        return self.machine.on_request(ReceivedRequest(RequestHeader(api_key=-1), token, 0), self.now_ms, 5_000_000)

    def answer(self, step: SaslStep) -> Any:
        assert isinstance(step, (Respond, Refuse))
        assert step.frame is not None
        frame = b"".join(step.frame)
        return self._wire.read(frame[4:])[1]

    def handshake(self, mechanism: str = "PLAIN", version: int = 1) -> SaslStep:
        return self.step(SaslHandshakeRequest(mechanism=mechanism), version)

    def token(self, token: bytes, version: int = 2) -> SaslStep:
        return self.step(SaslAuthenticateRequest(auth_bytes=token), version)

    def log_in(self, mechanism: str, user: str, password: str, version: int = 2) -> SaslStep:
        """The whole exchange. Returns the last step."""
        assert isinstance(self.handshake(mechanism), Respond)
        client = sasl_client(SaslConfig(mechanism, user, password), b"n" * NONCE_BYTES)
        message = client.first()
        while True:
            step = self.token(message, version)
            if isinstance(step, Refuse):
                return step
            self.last = response = self.answer(step)
            if client.done:
                client.verify(response.auth_bytes)
                return step
            message = client.next(response.auth_bytes)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_right_password_authenticates(mechanism: str, version: int) -> None:
    client = _Client()
    assert isinstance(
        client.step(ApiVersionsRequest(client_software_name="x", client_software_version="1"), 3), HandOver
    )
    step = client.log_in(mechanism, "alice", "alice-secret", version)
    assert isinstance(step, Respond)
    assert step.identity == SaslIdentity("alice")
    assert isinstance(client.step(MetadataRequest(), 9), HandOver)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_unknown_user_and_wrong_password_of_scram_cannot_be_told_apart(mechanism: str) -> None:
    answers = []
    for user in ("alice", "mallory"):
        client = _Client()
        step = client.log_in(mechanism, user, "wrong")
        assert isinstance(step, Refuse)
        assert step.is_failure
        answers.append(client.answer(step))
    assert answers[0] == answers[1]
    expected = f"Authentication failed during authentication due to invalid credentials with SASL mechanism {mechanism}"
    assert (answers[0].error_code, answers[0].error_message) == (58, expected)


def test_the_salt_of_an_unknown_user_is_always_the_same() -> None:
    challenges = []
    for _ in range(2):
        client = _Client()
        client.handshake("SCRAM-SHA-256")
        challenges.append(client.answer(client.token(b"n,,n=mallory,r=abc")))
    assert challenges[0] == challenges[1]


@pytest.mark.parametrize(
    ("token", "text"),
    [
        (b"\0alice\0wrong", "Authentication failed: Invalid username or password"),
        (b"\0mallory\0alice-secret", "Authentication failed: Invalid username or password"),
        (b"\0\0alice-secret", "Authentication failed: username not specified"),
        (b"\0alice\0", "Authentication failed: password not specified"),
        (b"bob\0alice\0alice-secret", "authorization id that is different"),
        (b"alice", "expected 3 tokens, got 1"),
        (b"\0alice\0alice-secret\0", "expected 3 tokens, got 4"),
        (b"\0alice\0\xff\xfe", "Invalid username or password"),
    ],
)
def test_plain_refuses_with_the_texts_of_kafka(token: bytes, text: str) -> None:
    client = _Client()
    client.handshake()
    step = client.token(token)
    assert isinstance(step, Refuse)
    response = client.answer(step)
    assert response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert text in response.error_message
    assert isinstance(client.step(MetadataRequest(), 9), Refuse)


@pytest.mark.parametrize(
    "first",
    [
        b"", b"y,,n=alice,r=abc", b"p=tls-unique,,n=alice,r=abc", b"n,,n=alice", b"n,,r=abc", b"n,,n=,r=abc",
        b"n,,n=al=2Dice,r=abc", b"n,,n=alice,r=", b"n,a=bob,n=alice,r=abc", b"n,,n=weak,r=abc", b"\xff",
    ],
)  # fmt: skip
def test_a_malformed_first_message_of_scram_is_refused(first: bytes) -> None:
    client = _Client()
    client.handshake("SCRAM-SHA-256")
    assert isinstance(client.token(first), Refuse)


@pytest.mark.parametrize(
    "change",
    [
        lambda final: final.replace(b"r=", b"r=x"),  # CVE-2024-56128: another nonce
        lambda final: final[: final.index(b",p=") - 4] + final[final.index(b",p=") :],
        lambda final: final[: final.index(b",p=")],
        lambda final: final[: final.index(b",p=")] + b",p=",
        lambda final: final[: final.index(b",p=")] + b",p=AAAA",
        lambda final: final + b"=",
    ],
)
def test_a_changed_last_message_of_scram_is_refused(change: Callable[[bytes], bytes]) -> None:
    client = _Client()
    client.handshake("SCRAM-SHA-256")
    exchange = sasl_client(SaslConfig("SCRAM-SHA-256", "alice", "alice-secret"), b"n" * NONCE_BYTES)
    challenge = client.answer(client.token(exchange.first())).auth_bytes
    assert isinstance(client.token(change(exchange.next(bytes(challenge)))), Refuse)


@pytest.mark.parametrize("changed", [{}, {"alice": 8192}])
def test_a_user_that_is_removed_or_changed_between_the_two_messages_is_refused(
    changed: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    client = _Client()
    client.handshake("SCRAM-SHA-256")
    exchange = sasl_client(SaslConfig("SCRAM-SHA-256", "alice", "alice-secret"), b"n" * NONCE_BYTES)
    final = exchange.next(bytes(client.answer(client.token(exchange.first())).auth_bytes))
    monkeypatch.delitem(_ITERATIONS, "alice")
    for name, iterations in changed.items():
        monkeypatch.setitem(_ITERATIONS, name, iterations)
    assert isinstance(client.token(final), Refuse)


def test_names_with_a_comma_and_an_equals_sign_are_escaped() -> None:
    step = _Client().log_in("SCRAM-SHA-256", "a,b=c", "a,b=c-secret")
    assert isinstance(step, Respond)
    assert step.identity == SaslIdentity("a,b=c")


def test_any_other_request_before_the_handshake_closes_without_an_answer() -> None:
    client = _Client()
    step = client.step(MetadataRequest(), 9)
    assert isinstance(step, Refuse)
    assert step.frame is None
    assert isinstance(client.handshake(), Refuse)


def test_authenticate_before_the_handshake_closes_without_an_answer() -> None:
    step = _Client().token(b"\0alice\0alice-secret")
    assert isinstance(step, Refuse)
    assert step.frame is None


def test_a_second_api_versions_closes() -> None:
    client = _Client()
    assert isinstance(client.step(ApiVersionsRequest(), 0), HandOver)
    assert isinstance(client.step(ApiVersionsRequest(), 0), Refuse)


def test_api_versions_may_follow_a_refused_api_versions() -> None:
    client = _Client()
    assert isinstance(client.step(ApiVersionsRequest(client_software_name="not valid!"), 3), HandOver)
    unknown = ReceivedRequest(RequestHeader(api_key=18, api_version=99), b"garbage", 0)
    assert isinstance(client.machine.on_request(unknown, 0, 0), HandOver)
    assert isinstance(client.step(ApiVersionsRequest(), 2), HandOver)
    assert isinstance(client.handshake(), Respond)


def test_api_versions_after_the_handshake_closes() -> None:
    client = _Client()
    client.handshake()
    step = client.step(ApiVersionsRequest(), 0)
    assert isinstance(step, Refuse)
    assert client.answer(step).error_code == ErrorCode.ILLEGAL_SASL_STATE


def test_another_request_during_authentication_is_answered_with_illegal_sasl_state() -> None:
    client = _Client()
    client.handshake()
    step = client.handshake()
    assert isinstance(step, Refuse)
    assert client.answer(step).error_code == ErrorCode.ILLEGAL_SASL_STATE


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-512", "GSSAPI", "plain", ""])
def test_a_mechanism_that_is_not_enabled_is_refused_with_the_enabled_ones(mechanism: str) -> None:
    client = _Client("PLAIN", "SCRAM-SHA-256")
    step = client.handshake(mechanism)
    assert isinstance(step, Refuse)
    response = client.answer(step)
    assert response.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert response.mechanisms == ["PLAIN", "SCRAM-SHA-256"]


def test_an_unknown_version_of_the_handshake_closes() -> None:
    client = _Client()
    request = ReceivedRequest(RequestHeader(api_key=17, api_version=2), b"\0\5PLAIN", 0)
    step = client.machine.on_request(request, 0, 0)
    assert isinstance(step, Refuse)
    assert step.frame is None


def test_version_0_of_the_handshake_is_followed_by_messages_without_headers() -> None:
    client = _Client()
    assert isinstance(client.handshake("SCRAM-SHA-256", 0), Respond)
    assert client.machine.raw_messages
    exchange = sasl_client(SaslConfig("SCRAM-SHA-256", "alice", "alice-secret"), b"n" * NONCE_BYTES)
    first = client.raw(exchange.first())
    assert isinstance(first, Respond)
    challenge = b"".join(first.frame)
    assert int.from_bytes(challenge[:4], "big") == len(challenge) - 4
    last = client.raw(exchange.next(challenge[4:]))
    assert isinstance(last, Respond)
    exchange.verify(b"".join(last.frame)[4:])
    assert last.identity == SaslIdentity("alice")
    assert not client.machine.raw_messages
    assert isinstance(client.step(MetadataRequest(), 9), HandOver)


def test_wrong_credentials_after_version_0_close_without_an_answer() -> None:
    client = _Client()
    client.handshake("PLAIN", 0)
    step = client.raw(b"\0alice\0wrong")
    assert isinstance(step, Refuse)
    assert step.frame is None
    assert step.is_failure


def test_plain_in_version_0_is_answered_with_an_empty_message() -> None:
    client = _Client()
    client.handshake("PLAIN", 0)
    step = client.raw(b"\0alice\0alice-secret")
    assert isinstance(step, Respond)
    assert b"".join(step.frame) == bytes(4)


# ---- re-authentication (KIP-368)


def test_a_session_without_a_limit_has_no_lifetime_and_cannot_be_renewed() -> None:
    client = _Client()
    client.log_in("PLAIN", "alice", "alice-secret")
    assert client.last.session_lifetime_ms == 0
    assert isinstance(client.handshake(), HandOver)  # the API's handler answers ILLEGAL_SASL_STATE


def test_an_expired_session_ends_silently() -> None:
    client = _Client(reauth_ms=10_000)
    step = client.log_in("PLAIN", "alice", "alice-secret")
    assert client.last.session_lifetime_ms == 10_000
    client.now_ms += 10_000
    assert isinstance(client.step(MetadataRequest(), 9), HandOver)
    client.now_ms += 1
    step = client.step(MetadataRequest(), 9)
    assert isinstance(step, Refuse)
    assert step.frame is None
    assert not step.is_failure


def test_a_session_is_renewed_even_after_its_end() -> None:
    client = _Client(reauth_ms=10_000)
    client.log_in("PLAIN", "alice", "alice-secret")
    for _ in range(3):
        client.now_ms += 11_000
        step = client.log_in("PLAIN", "alice", "alice-secret")
        assert isinstance(step, Respond)
        assert isinstance(client.step(MetadataRequest(), 9), HandOver)


def test_a_session_is_not_renewed_twice_within_a_second() -> None:
    client = _Client(reauth_ms=10_000)
    client.log_in("PLAIN", "alice", "alice-secret")
    client.log_in("PLAIN", "alice", "alice-secret")
    client.now_ms += 999
    assert isinstance(client.handshake(), HandOver)
    client.now_ms += 1
    assert isinstance(client.handshake(), Respond)


def test_another_user_cannot_renew_a_session() -> None:
    client = _Client(reauth_ms=10_000)
    client.log_in("PLAIN", "alice", "alice-secret")
    step = client.log_in("PLAIN", "bob", "bob-secret")
    assert isinstance(step, Refuse)
    assert "Cannot change principals" in client.answer(step).error_message


def test_another_mechanism_cannot_renew_a_session_and_is_refused_at_its_first_message() -> None:
    client = _Client(reauth_ms=10_000)
    client.log_in("PLAIN", "alice", "alice-secret")
    assert isinstance(client.handshake("SCRAM-SHA-256"), Respond)
    step = client.token(b"n,,n=alice,r=abc")
    assert isinstance(step, Refuse)
    assert "not supported for re-authentication" in client.answer(step).error_message


def test_no_request_is_served_while_a_session_is_being_renewed() -> None:
    client = _Client(reauth_ms=10_000)
    client.log_in("PLAIN", "alice", "alice-secret")
    client.handshake()
    assert isinstance(client.step(MetadataRequest(), 9), Refuse)


def test_the_client_detects_a_server_that_does_not_know_the_password() -> None:
    client = _Client()
    client.handshake("SCRAM-SHA-256")
    exchange = sasl_client(SaslConfig("SCRAM-SHA-256", "alice", "alice-secret"), b"n" * NONCE_BYTES)
    challenge = client.answer(client.token(exchange.first())).auth_bytes
    exchange.next(bytes(challenge))
    with pytest.raises(KafkaError):
        exchange.verify(b"v=AAAA")
