# ruff: noqa: E501  # one row per setting reads better than folded rows
"""Table: the configs of OAUTHBEARER of the clients, with the names, defaults and meanings of Kafka 4.3 or librdkafka."""

from __future__ import annotations

from typing import Any, Final

from barnabas.core.config import InRange, OneOf, Validator

# fmt: off
# name, type, default, range, importance, description
OAUTH_ROWS: Final[list[tuple[str, str, Any, Validator | None, str, str]]] = [
    ("oauth_cb", "object", None, None, "m", "A function that returns a token: (token, expiry in seconds since 1970[, principal[, extensions]]), as in confluent-kafka. It may block, or be a coroutine function."),
    ("sasl.oauthbearer.token.endpoint.url", "str", None, None, "m", "Where tokens come from: the provider's token endpoint (https), or a file (file:///path). It must be in the environment variable BARNABAS_SASL_OAUTHBEARER_ALLOWED_URLS."),
    ("sasl.oauthbearer.client.credentials.client.id", "str", None, None, "m", "The client id of the grant client_credentials."),
    ("sasl.oauthbearer.client.credentials.client.secret", "password", None, None, "m", "The client secret of the grant client_credentials."),
    ("sasl.oauthbearer.scope", "str", None, None, "m", "The scope to request for a token."),
    ("sasl.oauthbearer.sub.claim.name", "str", "sub", None, "l", "The claim of a token that holds the name of the user."),
    ("sasl.oauthbearer.header.urlencode", "bool", False, None, "m", "Whether the client id and secret are URL-encoded in the Authorization header, as RFC 6749 demands and few providers do."),
    ("sasl.oauthbearer.jwt.retriever.class", "class", "org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever", None, "m", "DefaultJwtRetriever, ClientCredentialsJwtRetriever, JwtBearerJwtRetriever or FileJwtRetriever."),
    ("sasl.oauthbearer.assertion.algorithm", "str", "RS256", OneOf(("ES256", "RS256"), ignore_case=True), "m", "The algorithm that signs an assertion (KIP-1139)."),
    ("sasl.oauthbearer.assertion.claim.aud", "str", None, None, "m", "The audience claim of an assertion."),
    ("sasl.oauthbearer.assertion.claim.exp.seconds", "int", 300, InRange(0, 86_400), "l", "For how many seconds an assertion is valid."),
    ("sasl.oauthbearer.assertion.claim.iss", "str", None, None, "m", "The issuer claim of an assertion."),
    ("sasl.oauthbearer.assertion.claim.jti.include", "bool", False, None, "m", "Whether an assertion has a unique id."),
    ("sasl.oauthbearer.assertion.claim.nbf.seconds", "int", 60, InRange(0, 3600), "l", "From how many seconds before its creation an assertion is valid."),
    ("sasl.oauthbearer.assertion.claim.sub", "str", None, None, "m", "The subject claim of an assertion."),
    ("sasl.oauthbearer.assertion.file", "str", None, None, "m", "A file with a prepared assertion."),
    ("sasl.oauthbearer.assertion.private.key.file", "str", None, None, "m", "The PEM file with the key that signs assertions."),
    ("sasl.oauthbearer.assertion.private.key.passphrase", "password", None, None, "m", "The passphrase of that key."),
    ("sasl.oauthbearer.assertion.template.file", "str", None, None, "m", 'A JSON file {"header": ..., "payload": ...} with more members of assertions.'),
    ("sasl.oauthbearer.method", "str", None, None, "l", "librdkafka: oidc says that tokens come from sasl.oauthbearer.token.endpoint.url."),
    ("sasl.oauthbearer.client.id", "str", None, None, "l", "The client id (librdkafka's name)."),
    ("sasl.oauthbearer.client.secret", "password", None, None, "l", "The client secret (librdkafka's name)."),
    ("sasl.oauthbearer.extensions", "str", None, None, "l", "Extensions to send with a token: name=value,name=value (librdkafka's name)."),
    ("sasl.oauthbearer.config", "password", None, None, "l", "The argument of oauth_cb; or principal=NAME and more for tokens without a signature (librdkafka's name)."),
    ("enable.sasl.oauthbearer.unsecure.jwt", "bool", False, None, "l", "librdkafka: tokens without a signature are made from sasl.oauthbearer.config. For tests only."),
    ("sasl.login.callback.handler.class", "class", None, None, "m", "Kafka's OAuthBearerLoginCallbackHandler or OAuthBearerUnsecuredLoginCallbackHandler; not needed here. A function of your own is oauth_cb."),
    ("sasl.login.connect.timeout.ms", "int", None, InRange(1), "l", "How long connecting to the token endpoint may take; 10 s if not set."),
    ("sasl.login.read.timeout.ms", "int", None, InRange(1), "l", "How long the token endpoint may take to answer; 10 s if not set."),
    ("sasl.login.refresh.buffer.seconds", "int", 300, InRange(0, 3600), "l", "How long before its expiry a token is replaced at the latest."),
    ("sasl.login.refresh.min.period.seconds", "int", 60, InRange(0, 900), "l", "How long a token is used at least."),
    ("sasl.login.refresh.window.factor", "double", 0.8, InRange(0.5, 1.0), "l", "The part of its lifetime after which a token is replaced."),
    ("sasl.login.refresh.window.jitter", "double", 0.05, InRange(0.0, 0.25), "l", "The random part that is added to this."),
    ("sasl.login.retry.backoff.max.ms", "long", 10_000, InRange(0), "l", "How long the token endpoint is asked again after failures."),
    ("sasl.login.retry.backoff.ms", "long", 100, InRange(0), "l", "The wait before the first such attempt; it doubles."),
]
# fmt: on
