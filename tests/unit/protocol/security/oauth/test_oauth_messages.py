"""The messages of OAUTHBEARER: Kafka's ClientInitialResponseTest and SaslServerTest, and garbage."""

from __future__ import annotations

import pytest

from barnabas.core.errors import KafkaError
from barnabas.protocol.security.config import SaslConfig
from barnabas.protocol.security.oauth.messages import (
    LAST_WORD,
    OAuthClientFirst,
    OAuthMessageError,
    OAuthRefusal,
    decode_first,
    decode_refusal,
    encode_first,
    encode_refusal,
)
from barnabas.protocol.security.oauth.tokens import BearerToken, TokenError
from barnabas.protocol.security.sasl_client import NONCE_BYTES, sasl_client
from barnabas.protocol.security.sasl_server import (
    AuthenticationFailedError,
    SaslCredentials,
    SaslIdentity,
    SaslServer,
    sasl_server,
)

_FORM = "does not have the form of RFC 7628"


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (
            b"n,,\x01auth=Bearer 123.345.567\x01nineteen=42\x01\x01",
            OAuthClientFirst("123.345.567", "", {"nineteen": "42"}),
        ),
        (b"n,,\x01auth=Bearer 567\x01\x01", OAuthClientFirst("567")),
        (b"n,a=myuser,\x01auth=Bearer 345\x01\x01", OAuthClientFirst("345", "myuser")),
        (b"n,a=a=2Cb=3Dc,\x01auth=bearer   x-_.~+/==\x01\x01", OAuthClientFirst("x-_.~+/==", "a,b=c")),
        (
            b"n,,\x01propA=valueA1, valueA2\x01auth=Bearer 567\x01propB=valueB\x01\x01",
            OAuthClientFirst("567", "", {"propA": "valueA1, valueA2", "propB": "valueB"}),
        ),
        (
            b"n,a=user@example.com,\x01host=server.example.com\x01port=143\x01"
            b"auth=Bearer vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg\x01\x01",  # the example of RFC 7628
            OAuthClientFirst(
                "vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg",
                "user@example.com",
                {"host": "server.example.com", "port": "143"},
            ),
        ),
    ],
)
def test_first_messages_are_decoded(message: bytes, expected: OAuthClientFirst) -> None:
    assert decode_first(message) == expected


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (b"", _FORM),
        (b"\x01", _FORM),
        (b"n,,\x01\x01", "the key auth is missing"),
        (b"n,,\x01auth=Bearer 1\x01", _FORM),
        (b"n,,auth=Bearer 1\x01\x01", _FORM),
        (b"p,,\x01auth=Bearer 1\x01\x01", _FORM),
        (b"y,,\x01auth=Bearer 1\x01\x01", _FORM),
        (b"n,a=,\x01auth=Bearer 1\x01\x01", _FORM),
        (b"n,a=b=c,\x01auth=Bearer 1\x01\x01", _FORM),
        (b"n,,\x01auth=Bearer \xff\x01\x01", _FORM),
        (b"n,,\x01auth=Bearer 1\x01\x01rest", _FORM),
        (b"n,,\x01auth=Basic 1\x01\x01", "the scheme in the client's first message is 'Basic'"),
        (b"n,,\x01auth=Bearer\x01\x01", "must be: Bearer TOKEN"),
        (b"n,,\x01auth=Bearer a b\x01\x01", "must be: Bearer TOKEN"),
        (b"n,,\x01auth=Bearer 1\x01auth=Bearer 2\x01\x01", "occurs twice"),
        (b"n,,\x01auth=Bearer 1\x01k=1\x01k=2\x01\x01", "occurs twice"),
        (b"n,,\x01auth=Bearer 1\x01k9=1\x01\x01", "is not allowed for an extension"),
        (b"n,,\x01auth=Bearer 1\x01k=\x01\x01", "the value of the extension 'k'"),
        (b"n,,\x01auth=Bearer 1\x01k=\x02\x01\x01", "the value of the extension 'k'"),
        (
            b"n,,\x01auth=Bearer 1\x01" + b"".join(b"k%s=v\x01" % (b"k" * n) for n in range(65)) + b"\x01",
            "more than 64",
        ),
        (b"n,,\x01auth=Bearer 1\x01k\x01\x01", "the value of the extension 'k'"),
    ],
)
def test_malformed_first_messages_are_refused(message: bytes, said: str) -> None:
    with pytest.raises(OAuthMessageError, match=said):
        decode_first(message)


def test_first_messages_are_encoded_as_kafka_does() -> None:
    first = OAuthClientFirst("123.345.567", extensions={"nineteen": "42"})
    assert encode_first(first) == b"n,,\x01auth=Bearer 123.345.567\x01nineteen=42\x01\x01"
    named = OAuthClientFirst("t", "a,b=c")
    assert encode_first(named) == b"n,a=a=2Cb=3Dc,\x01auth=Bearer t\x01\x01"
    assert decode_first(encode_first(named)) == named


@pytest.mark.parametrize(
    "first",
    [
        OAuthClientFirst(""),
        OAuthClientFirst("a b"),
        OAuthClientFirst("a\x01auth=Bearer b"),
        OAuthClientFirst("t", extensions={"auth": "x"}),
        OAuthClientFirst("t", extensions={"k1": "x"}),
        OAuthClientFirst("t", extensions={"k": "x\x01y"}),
        OAuthClientFirst("t", extensions={"k": ""}),
    ],
)
def test_what_cannot_be_sent_is_refused(first: OAuthClientFirst) -> None:
    with pytest.raises(OAuthMessageError):
        encode_first(first)


def test_refusals() -> None:
    assert encode_refusal(OAuthRefusal("invalid_token")) == b'{"status":"invalid_token"}'
    wanted = OAuthRefusal("insufficient_scope", "a b", "https://idp/.well-known")
    encoded = encode_refusal(wanted)
    assert encoded == b'{"status":"insufficient_scope","scope":"a b","openid-configuration":"https://idp/.well-known"}'
    assert decode_refusal(encoded) == wanted
    assert decode_refusal(b"[1]").status == "[1]"
    assert decode_refusal(b"\xff" * 1000).status == "\ufffd" * 200


# ---- both ends


class _OneToken:
    """A validator that knows one token."""

    def validate(self, text: str, wall_ms: int) -> BearerToken:
        if text == "narrow":
            raise TokenError("the scope is missing", scope="read write")
        if text != "good":
            raise TokenError("the token is not known")
        return BearerToken(text, "alice", 9_000)


def _server() -> SaslServer:
    return sasl_server("OAUTHBEARER", SaslCredentials({}, lambda _m, _u: None, token_validator=_OneToken()), b"")


def test_a_good_token_authenticates_until_it_expires() -> None:
    server = _server()
    client = sasl_client(SaslConfig("OAUTHBEARER"), bytes(NONCE_BYTES), BearerToken("good", "alice", 9_000))
    assert server.evaluate(client.first(), 1_000) == b""
    assert server.identity == SaslIdentity("alice", expires_at_ms=9_000)
    assert client.done
    assert client.verify(b"") is None


@pytest.mark.parametrize(
    ("token", "answer"),
    [("bad", '{"status":"invalid_token"}'), ("narrow", '{"status":"insufficient_scope","scope":"read write"}')],
)
def test_a_refused_token_is_answered_and_the_client_s_last_word_ends_the_exchange(token: str, answer: str) -> None:
    server = _server()
    client = sasl_client(SaslConfig("OAUTHBEARER"), bytes(NONCE_BYTES), BearerToken(token, "alice", 9_000))
    challenge = server.evaluate(client.first(), 1_000)
    assert challenge == answer.encode()
    assert server.identity is None
    last_word = client.verify(challenge)
    assert last_word == LAST_WORD
    with pytest.raises(AuthenticationFailedError, match=r"the token is not known|the scope is missing") as caught:
        server.evaluate(last_word, 1_000)
    assert caught.value.answer == answer
    with pytest.raises(KafkaError, match="without an error code"):
        client.verify(b"")


def test_after_a_refused_token_a_good_one_does_not_help() -> None:
    server = _server()
    server.evaluate(b"n,,\x01auth=Bearer bad\x01\x01", 1_000)
    with pytest.raises(AuthenticationFailedError):
        server.evaluate(b"n,,\x01auth=Bearer good\x01\x01", 1_000)
    assert server.identity is None


def test_the_authorization_id_must_be_the_principal() -> None:
    """CVE-2017-12610, for OAUTHBEARER."""
    assert _server().evaluate(b"n,a=alice,\x01auth=Bearer good\x01\x01", 1_000) == b""
    with pytest.raises(AuthenticationFailedError, match="authorization id") as caught:
        _server().evaluate(b"n,a=mallory,\x01auth=Bearer good\x01\x01", 1_000)
    assert caught.value.answer is not None


@pytest.mark.parametrize("message", [LAST_WORD, b"", b"garbage"])
def test_a_malformed_first_message_fails_with_the_text_for_all_causes(message: bytes) -> None:
    with pytest.raises(AuthenticationFailedError) as caught:
        _server().evaluate(message, 1_000)
    assert caught.value.answer is None


def test_no_repr_shows_a_token() -> None:
    token = BearerToken("s3cret", "alice", 1)
    assert "s3cret" not in f"{token!r} {OAuthClientFirst('s3cret')!r}"
