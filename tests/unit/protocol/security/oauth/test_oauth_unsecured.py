"""Tokens without a signature: Kafka's OAuthBearerUnsecured{Jws,Validator,Login}Test, and librdkafka's options."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from barnabas.core.config import ConfigError
from barnabas.protocol.security.oauth.tokens import TokenError, decode_token
from barnabas.protocol.security.oauth.unsecured import (
    UnsecuredLogin,
    UnsecuredValidator,
    librdkafka_login,
    unsecured_login,
    unsecured_validator,
)

NOW_MS = 1_700_000_000_000
NOW_S = NOW_MS // 1000


def encode(value: object) -> str:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def token(claims: object = None, header: object = None, signature: str = "") -> str:
    default = {"sub": "alice", "exp": NOW_S + 60}
    return f"{encode({'alg': 'none'} if header is None else header)}.{encode(claims or default)}.{signature}"


def test_a_token_of_the_login_passes_the_validator() -> None:
    options = {
        "unsecuredLoginStringClaim_sub": "alice",
        "unsecuredLoginListClaim_scope": "|read|write",
        "unsecuredLoginNumberClaim_level": "7",
        "unsecuredLoginLifetimeSeconds": "100",
        "unsecuredLoginExtension_traceId": "123",
    }
    login, extensions = unsecured_login(options, "j")
    made = login.token(NOW_MS)
    assert extensions == (("traceId", "123"),)
    assert (made.principal, made.expires_at_ms) == ("alice", NOW_MS + 100_000)
    assert decode_token(made.text).claims == {
        "iat": NOW_S, "exp": NOW_S + 100, "sub": "alice", "scope": ["read", "write"], "level": 7,
    }  # fmt: skip
    validator = unsecured_validator({"unsecuredValidatorRequiredScope": "write read"}, "j")
    assert validator.validate(made.text, NOW_MS).principal == "alice"
    with pytest.raises(TokenError, match="expired"):
        validator.validate(made.text, NOW_MS + 100_000)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "three parts"),
        ("a", "three parts"),
        ("a.b.c.d", "three parts"),
        ("!.b.", "not base64url"),
        (f"{encode(b'x')}.e30.", "header of the token is not JSON"),
        (f"{encode([])}.e30.", "header of the token is not a JSON object"),
        (token(header={"alg": "none"}, claims=[1]), "claims of the token is not a JSON object"),
        (token(header={}), "signed"),
        (token(header={"alg": "NONE"}), "signed"),
        (token(header={"alg": "RS256"}, signature="AAAA"), "signed"),
        (token(signature="AAAA"), "the algorithm none, and a signature"),
        (token({"exp": NOW_S + 1}), "sub is missing"),
        (token({"sub": " ", "exp": NOW_S + 1}), "sub is not a text"),
        (token({"sub": 7, "exp": NOW_S + 1}), "sub is not a text"),
        (token({"sub": "a"}), "exp is missing"),
        (token({"sub": "a", "exp": "soon"}), "exp is not a time"),
        (token({"sub": "a", "exp": True}), "exp is not a time"),
        (token({"sub": "a", "exp": 1e300}), "exp is not a time"),
        (token({"sub": "a", "exp": -1}), "exp is not a time"),
        (token({"sub": "a", "exp": NOW_S}), "expired"),
        (token({"sub": "a", "exp": NOW_S + 9, "iat": NOW_S + 1}), "issued in the future"),
        (token({"sub": "a", "exp": NOW_S + 9, "iat": "x"}), "iat is not a time"),
        ("e30." + "A" * 70_000, "characters"),
        (f"{encode(b'[' * 40_000)}.e30.", "not JSON|not a JSON object"),
    ],
)
def test_tokens_that_are_refused(text: str, said: str) -> None:
    with pytest.raises(TokenError, match=said) as caught:
        UnsecuredValidator().validate(text, NOW_MS)
    assert caught.value.status == "invalid_token"


def test_the_options_of_the_validator() -> None:
    options = {
        "unsecuredValidatorPrincipalClaimName": "user",
        "unsecuredValidatorScopeClaimName": "roles",
        "unsecuredValidatorRequiredScope": "read",
        "unsecuredValidatorAllowableClockSkewMs": "1000",
        "unsecuredLoginStringClaim_sub": "the login's option is not the validator's",
    }
    validator = unsecured_validator(options, "j")
    expired = token({"user": "u", "roles": "read write", "exp": NOW_S, "iat": NOW_S - 5})
    assert validator.validate(expired, NOW_MS).principal == "u"
    ahead = token({"user": "u", "roles": ["read"], "exp": NOW_S + 5, "iat": NOW_S + 1})
    assert validator.validate(ahead, NOW_MS).issued_at_ms == NOW_MS + 1000
    with pytest.raises(TokenError) as caught:
        validator.validate(token({"user": "u", "roles": ["other"], "exp": NOW_S + 5}), NOW_MS)
    assert (caught.value.status, caught.value.scope) == ("insufficient_scope", "read")
    with pytest.raises(TokenError, match="neither a text nor a list"):
        validator.validate(token({"user": "u", "roles": {"a": 1}, "exp": NOW_S + 5}), NOW_MS)
    with pytest.raises(TokenError, match="not after"):
        validator.validate(token({"user": "u", "roles": "read", "exp": NOW_S, "iat": NOW_S}), NOW_MS)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"unsecuredValidatorAllowableClockSkewMs": "-1"}, "AllowableClockSkewMs must be a whole number"),
        ({"unsecuredValidatorAllowableClockSkewMs": "x"}, "AllowableClockSkewMs must be a whole number"),
        ({"unsecuredValidatorPrincipal": "x"}, "unsecuredValidatorPrincipal is unknown"),
    ],
)
def test_wrong_options_of_the_validator_are_named(options: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        unsecured_validator(options, "listener.name.a.oauthbearer.sasl.jaas.config")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, 'unsecuredLoginStringClaim_sub="NAME"'),
        ({"unsecuredLoginPrincipalClaimName": "user", "unsecuredLoginStringClaim_sub": "a"}, "StringClaim_user"),
        ({"unsecuredLoginNumberClaim_sub": "7"}, "the name of the user is missing"),
        ({"unsecuredLoginStringClaim_sub": "a", "unsecuredLoginNumberClaim_exp": "1"}, "exp is calculated"),
        ({"unsecuredLoginStringClaim_sub": "a", "unsecuredLoginStringClaim_iat": "1"}, "iat is calculated"),
        ({"unsecuredLoginStringClaim_sub": "a", "unsecuredLoginNumberClaim_n": "x"}, "must be a number"),
        ({"unsecuredLoginStringClaim_sub": "a", "unsecuredLoginNumberClaim_n": "nan"}, "must be a number"),
        ({"unsecuredLoginStringClaim_sub": "a", "unsecuredLoginLifetimeSeconds": "1.5"}, "LifetimeSeconds must be"),
        ({"unsecuredLoginStringClaim_sub": "a", "unsecuredLoginExtension_a1": "x"}, "'a1' is not allowed"),
        ({"unsecuredLoginStringClaim_sub": "a", "unsecuredLoginExtension_auth": "x"}, "'auth' is not allowed"),
        ({"unsecuredLoginStringClaim_": "a"}, "is unknown"),
        ({"unsecuredLoginStringclaim_sub": "a"}, "is unknown"),
    ],
)
def test_wrong_options_of_the_login_are_named(options: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        unsecured_login(options, "sasl.jaas.config")
    assert str(caught.value).startswith("sasl.jaas.config: ")


@pytest.mark.parametrize(("text", "items"), [("", ()), ("|", ()), ("|a", ("a",)), (",a,b,", ("a", "b", ""))])
def test_the_first_character_of_a_list_separates_its_elements(text: str, items: tuple[str, ...]) -> None:
    login, _ = unsecured_login({"unsecuredLoginStringClaim_sub": "a", "unsecuredLoginListClaim_l": text}, "j")
    assert dict(login.claims)["l"] == items


def test_librdkafka_s_options() -> None:
    text = "principalClaimName=azp principal=bob scopeClaimName=roles scope=r1,r2 lifeSeconds=600 extension_traceId=9"
    login, extensions = librdkafka_login(text)
    assert login == UnsecuredLogin((("azp", "bob"), ("roles", ("r1", "r2"))), "azp", 600)
    assert extensions == (("traceId", "9"),)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "principal=NAME"),
        ("principal=a principal=b", "repeated"),
        ("user=a", "'user' is unknown"),
        ("x", "unknown"),
    ],
)
def test_wrong_options_of_librdkafka_are_named(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        librdkafka_login(text)


def test_claims_can_be_texts_that_need_escapes() -> None:
    login, _ = unsecured_login({"unsecuredLoginStringClaim_sub": 'a"\\\u00e9'}, "j")
    found: dict[str, Any] = dict(decode_token(login.token(NOW_MS).text).claims)
    assert found["sub"] == 'a"\\\u00e9'
