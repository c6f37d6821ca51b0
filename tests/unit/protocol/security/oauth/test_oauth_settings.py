"""The settings of OAUTHBEARER: which login and which validator they choose, and errors that name a setting."""

from __future__ import annotations

import json
from collections.abc import Mapping
from random import Random
from typing import Any
from urllib.parse import parse_qs

import pytest

from barnabas.core.config import ConfigError
from barnabas.protocol.security.oauth.allowed import AllowedSources
from barnabas.protocol.security.oauth.login_settings import OAuthSettings, read_login
from barnabas.protocol.security.oauth.logins import (
    AssertionLogin,
    ClaimsOfAssertion,
    ClientCredentials,
    OAuthLogin,
    TokenCallback,
    TokenEndpoint,
    TokenFile,
)
from barnabas.protocol.security.oauth.refreshing import TokenRefresh
from barnabas.protocol.security.oauth.token_requests import (
    assertion_request,
    client_credentials_request,
    describe_error,
    is_retriable,
    token_of_response,
    unsigned_assertion,
)
from barnabas.protocol.security.oauth.tokens import BearerToken, TokenError, decode_token
from barnabas.protocol.security.oauth.unsecured import UnsecuredLogin, UnsecuredValidator
from barnabas.protocol.security.oauth.validator_settings import ClassOfUser, SignedTokens, read_validator

URL = "sasl.oauthbearer.token.endpoint.url"
JWKS = "sasl.oauthbearer.jwks.endpoint.url"
ID = {"sasl.oauthbearer.client.credentials.client.id": "app"}
SECRET = {"sasl.oauthbearer.client.credentials.client.secret": "s3cret"}
IDP = "https://idp/token"
KAFKA = "org.apache.kafka.common.security.oauthbearer"
ALLOWED = AllowedSources(
    frozenset({IDP, "file:///run/token", "https://idp/keys"}), frozenset({"/run/assertion", "/run/key"})
)


def settings(given: Mapping[str, Any], options: Mapping[str, str] | None = None) -> OAuthSettings:
    return OAuthSettings(given.get, options or {}, lambda name: f"p.{name}", ALLOWED)


def login(given: Mapping[str, Any], options: Mapping[str, str] | None = None) -> OAuthLogin:
    return read_login(settings(given, options))


def test_client_credentials() -> None:
    found = login({URL: IDP, **ID, **SECRET, "sasl.oauthbearer.scope": "kafka"}, {"extension_team": "a"})
    assert isinstance(found.method, ClientCredentials)
    assert (found.method.client_id, found.method.client_secret, found.method.scope) == ("app", "s3cret", "kafka")
    assert found.extensions == (("team", "a"),)
    assert "s3cret" not in f"{found!r} {found.method!r}"
    older = login({URL: IDP}, {"clientId": "app", "clientSecret": "s3cret", "scope": "kafka", "extension_team": "a"})
    librdkafka = {
        URL: IDP, "sasl.oauthbearer.method": "oidc", "sasl.oauthbearer.client.id": "app",
        "sasl.oauthbearer.client.secret": "s3cret", "sasl.oauthbearer.scope": "kafka",
        "sasl.oauthbearer.extensions": "team=a",
    }  # fmt: skip
    assert older == found == login(librdkafka)
    assert hash(older) == hash(found)


def test_other_ways_to_a_token() -> None:
    assert login({URL: "file:///run/token"}).method == TokenFile("/run/token")
    with_assertion = {URL: IDP, **ID, "sasl.oauthbearer.assertion.file": "/run/assertion"}
    assertion = login(with_assertion).method
    assert isinstance(assertion, AssertionLogin)
    assert (assertion.assertion_file, assertion.client_id, assertion.is_grant) == ("/run/assertion", "app", False)
    retriever = {"sasl.oauthbearer.jwt.retriever.class": f"{KAFKA}.JwtBearerJwtRetriever"}
    grant = login({**with_assertion, **retriever}).method
    assert isinstance(grant, AssertionLogin)
    assert (grant.client_id, grant.is_grant) == (None, True)

    def function(_config: str) -> str:
        return ""

    assert login({"oauth_cb": function, "sasl.oauthbearer.config": "x", URL: IDP}).method == TokenCallback(
        function, "x"
    )
    unsecured = {"unsecuredLoginStringClaim_sub": "alice"}
    assert login({}, unsecured).method == UnsecuredLogin((("sub", "alice"),))
    given = {"enable.sasl.oauthbearer.unsecure.jwt": True, "sasl.oauthbearer.config": "principal=alice"}
    assert login(given).method == login({}, unsecured).method


@pytest.mark.parametrize(
    ("given", "options", "said"),
    [
        ({}, {}, f"OAUTHBEARER needs a token. Set p.{URL}"),
        ({URL: "https://other/token", **ID, **SECRET}, {}, f"p.{URL}=https://other/token is not allowed"),
        ({URL: "ftp://idp/token"}, {}, "must begin with https://"),
        ({URL: "https:///token"}, {}, "has no host"),
        ({URL: "https://u:p@idp/token"}, {}, "must not contain a user name"),
        ({URL: "https://idp:x/token"}, {}, "is not a URL"),
        ({URL: "file://host/token"}, {}, "must have an absolute path"),
        ({URL: "file:///etc/passwd"}, {}, "file:///etc/passwd is not allowed"),
        ({URL: IDP}, {}, "p.sasl.oauthbearer.client.credentials.client.id is missing"),
        ({URL: IDP, **ID}, {}, "p.sasl.oauthbearer.client.credentials.client.secret is missing"),
        ({URL: IDP, "sasl.oauthbearer.assertion.file": "/etc/passwd"}, {}, "/etc/passwd is not allowed"),
        (
            {URL: IDP, "sasl.oauthbearer.jwt.retriever.class": f"{KAFKA}.JwtBearerJwtRetriever"},
            {},
            "An assertion is needed",
        ),
        ({URL: IDP, "sasl.oauthbearer.jwt.retriever.class": "a.B"}, {}, "a.B is not supported"),
        ({URL: IDP, "sasl.oauthbearer.jwt.retriever.class": f"{KAFKA}.FileJwtRetriever"}, {}, "must be a file"),
        ({"sasl.login.callback.handler.class": "a.Mine"}, {}, "a.Mine is not supported"),
        ({"sasl.login.callback.handler.class": f"{KAFKA}.OAuthBearerLoginCallbackHandler"}, {}, f"p.{URL} is missing"),
        ({"oauth_cb": "text"}, {}, "oauth_cb must be a function"),
        (
            {"sasl.login.refresh.window.factor": 0.1},
            {"unsecuredLoginStringClaim_sub": "a"},
            "p.sasl.login.refresh.window",
        ),
        ({URL: "file:///run/token"}, {"extension_auth": "x"}, "p.sasl.jaas.config"),
    ],
)
def test_wrong_settings_of_a_login_are_named(given: dict[str, Any], options: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        login(given, options)
    assert said in str(caught.value)
    assert "s3cret" not in str(caught.value)


def test_kafka_s_unsecured_handler_is_obeyed_though_a_url_is_set() -> None:
    handler = f"{KAFKA}.internals.unsecured.OAuthBearerUnsecuredLoginCallbackHandler"
    given = {URL: IDP, "sasl.login.callback.handler.class": handler}
    assert isinstance(login(given, {"unsecuredLoginStringClaim_sub": "a"}).method, UnsecuredLogin)


# ---- CVE-2025-27817


def test_nothing_is_allowed_by_default() -> None:
    with pytest.raises(ConfigError, match="BARNABAS_SASL_OAUTHBEARER_ALLOWED_URLS"):
        AllowedSources.of({}).check_url("s", IDP)
    with pytest.raises(ConfigError, match="BARNABAS_SASL_OAUTHBEARER_ALLOWED_FILES"):
        AllowedSources.of({}).check_file("s", "/etc/passwd")


@pytest.mark.parametrize(
    "environment",
    [
        {"BARNABAS_SASL_OAUTHBEARER_ALLOWED_URLS": f" a , {IDP}"},
        {"KAFKA_OPTS": f"-Xmx1g -Dorg.apache.kafka.sasl.oauthbearer.allowed.urls=a,{IDP}"},
        {"KAFKA_OPTS": f"'-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={IDP}, b' -Dx"},
    ],
)
def test_the_allowed_urls_come_from_the_environment(environment: dict[str, str]) -> None:
    allowed = AllowedSources.of(environment)
    allowed.check_url("s", IDP)
    for other in (f"{IDP}/", "https://idp/Token", "https://idp", "file:///etc/passwd", ""):
        with pytest.raises(ConfigError):
            allowed.check_url("s", other)


# ---- listeners

_DEFAULTS = {
    "sasl.oauthbearer.jwks.endpoint.refresh.ms": 3_600_000,
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms": 100,
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": 10_000,
    "sasl.oauthbearer.clock.skew.seconds": 30,
    "sasl.oauthbearer.scope.claim.name": "scope",
    "sasl.oauthbearer.sub.claim.name": "sub",
}
_HANDLER = "sasl.server.callback.handler.class"
_UNSECURED = f"{KAFKA}.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"


def validator(
    given: Mapping[str, Any], options: Mapping[str, str] | None = None
) -> UnsecuredValidator | SignedTokens | ClassOfUser:
    return read_validator(settings({**_DEFAULTS, **given}, options))


def test_signed_tokens_need_a_source_of_keys() -> None:
    found = validator({JWKS: "https://idp/keys", _HANDLER: f"{KAFKA}.OAuthBearerValidatorCallbackHandler"})
    assert isinstance(found, SignedTokens)
    assert (found.source.url, found.source.path, found.clock_skew_ms) == ("https://idp/keys", None, 30_000)
    in_file = validator({JWKS: "file:///run/token", "sasl.oauthbearer.expected.audience": ("kafka",)})
    assert isinstance(in_file, SignedTokens)
    assert (in_file.source.path, in_file.expected_audience) == ("/run/token", ("kafka",))


def test_a_class_of_a_user_checks_tokens() -> None:
    assert validator({_HANDLER: "company.tokens:Checker"}) == ClassOfUser(f"p.{_HANDLER}", "company.tokens:Checker")


def test_tokens_without_a_signature_are_accepted_only_where_that_is_configured() -> None:
    """Kafka accepts them if nothing is configured."""
    assert validator({_HANDLER: _UNSECURED}) == UnsecuredValidator()
    assert validator({}, {"unsecuredValidatorRequiredScope": "a"}) == UnsecuredValidator(required_scope=("a",))
    assert validator({}, {"unsecuredLoginStringClaim_sub": "a"}) == UnsecuredValidator()
    assert isinstance(validator({JWKS: "https://idp/keys"}, {"unsecuredLoginStringClaim_sub": "a"}), SignedTokens)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, f"Set p.{JWKS} to their URL or file"),
        ({_HANDLER: f"{KAFKA}.OAuthBearerValidatorCallbackHandler"}, f"Set p.{JWKS}"),
        ({_HANDLER: "a.B", JWKS: "https://idp/keys"}, "has no effect with"),
        ({_HANDLER: _UNSECURED, JWKS: "https://idp/keys"}, "has no effect with"),
        ({JWKS: "https://other/keys"}, "is not allowed"),
        ({JWKS: "https://idp/keys", "sasl.oauthbearer.jwks.endpoint.refresh.ms": 0}, "refresh.ms=0"),
        ({JWKS: "https://idp/keys", "sasl.oauthbearer.clock.skew.seconds": -1}, "skew.seconds=-1"),
        ({JWKS: "https://idp/keys", "sasl.oauthbearer.sub.claim.name": " "}, "sub.claim.name must not be empty"),
    ],
)
def test_wrong_settings_of_a_listener_are_named(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        validator(given)
    assert said in str(caught.value)


# ---- when a token is replaced (Kafka's ExpiringCredentialRefreshingLoginTest)


class _Half(Random):
    def random(self) -> float:
        return 0.5


@pytest.mark.parametrize(
    ("issued", "expires", "rules", "expected"),
    [
        (0, 1_000, TokenRefresh(0.8, 0.0, 0, 0), 800),
        (0, 1_000, TokenRefresh(0.8, 0.1, 0, 0), 850),
        (0, 1_000, TokenRefresh(0.8, 0.0, 900, 0), 900),
        (0, 1_000, TokenRefresh(0.8, 0.0, 0, 300), 700),
        (0, 1_000, TokenRefresh(0.8, 0.0, 600, 500), 800),
        (0, 1_000, TokenRefresh(0.8, 0.0, 500, 500), 800),
        (-9_000, 1_000, TokenRefresh(0.8, 0.0, 0, 0), 0),
        (None, 1_000, TokenRefresh(0.5, 0.0, 0, 0), 500),
        (500, 1_000, TokenRefresh(0.5, 0.0, 0, 0), 500),
    ],
)
def test_when_a_token_is_replaced(issued: int | None, expires: int, rules: TokenRefresh, expected: int) -> None:
    now = 1_000_000
    token = BearerToken("t", "a", now + expires, None if issued is None else now + issued)
    assert rules.refresh_at_ms(token, now, _Half()) == now + expected


# ---- requests to the token endpoint


def test_the_request_for_client_credentials() -> None:
    endpoint = TokenEndpoint(IDP)
    headers, body = client_credentials_request(ClientCredentials(endpoint, "app id", "s:/%", "a b"))
    assert headers["Authorization"] == "Basic YXBwIGlkOnM6LyU="
    assert headers["Content-Type"] == "application/x-www-form-urlencoded"
    assert parse_qs(body.decode()) == {"grant_type": ["client_credentials"], "scope": ["a b"]}
    headers, body = client_credentials_request(ClientCredentials(endpoint, "app id", "s:/%", urlencode_header=True))
    assert headers["Authorization"] == "Basic YXBwK2lkOnMlM0ElMkYlMjU="
    assert body == b"grant_type=client_credentials"


def test_the_request_with_an_assertion() -> None:
    claims = ClaimsOfAssertion("https://idp", "app", "alice", 300, 60, True)
    template = json.dumps({"header": {"kid": "k1"}, "payload": {"role": "r", "iss": "other"}}).encode()
    unsigned = unsigned_assertion(claims, "ES256", template, 1_000_999, "id-1")
    token = decode_token(f"{unsigned}.AAAA")
    assert token.header == {"typ": "JWT", "alg": "ES256", "kid": "k1"}
    assert token.claims == {
        "role": "r", "iat": 1000, "exp": 1300, "nbf": 940, "jti": "id-1", "aud": "https://idp", "iss": "app",
        "sub": "alice",
    }  # fmt: skip
    _, body = assertion_request(AssertionLogin(TokenEndpoint(IDP), is_grant=True, scope="s"), "a.b.c")
    assert parse_qs(body.decode()) == {
        "grant_type": ["urn:ietf:params:oauth:grant-type:jwt-bearer"], "assertion": ["a.b.c"], "scope": ["s"],
    }  # fmt: skip
    _, body = assertion_request(AssertionLogin(TokenEndpoint(IDP), client_id="app"), "a.b.c")
    assert parse_qs(body.decode()) == {
        "grant_type": ["client_credentials"], "client_assertion": ["a.b.c"], "client_id": ["app"],
        "client_assertion_type": ["urn:ietf:params:oauth:client-assertion-type:jwt-bearer"],
    }  # fmt: skip
    for wrong in (b"x", b"[]", b'{"header": 1}'):
        with pytest.raises(TokenError, match=r"template\.file"):
            unsigned_assertion(claims, "RS256", wrong, 0, "")


@pytest.mark.parametrize(
    ("body", "token"),
    [(b'{"access_token": " t "}', "t"), (b'{"id_token": "i"}', "i"), (b'{"access_token": "t", "id_token": "i"}', "t")],
)
def test_the_token_of_a_response(body: bytes, token: str) -> None:
    assert token_of_response(body) == token


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"access_token": " "}', b'{"access_token": 7}'])
def test_responses_without_a_token(body: bytes) -> None:
    with pytest.raises(TokenError):
        token_of_response(body)


def test_which_statuses_are_tried_again() -> None:
    assert [status for status in (400, 401, 403, 404, 408, 429, 500, 502, 503) if is_retriable(status)] == [
        408, 429, 500, 502, 503,
    ]  # fmt: skip
    assert describe_error(b'{"error": "invalid_client", "error_description": "no"}') == "invalid_client: no"
    assert describe_error(b"<html>") == ""
