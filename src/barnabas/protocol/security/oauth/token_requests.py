"""Codec: requests to the token endpoint of a provider (RFC 6749, RFC 7523), and its responses.

The grants are client_credentials, with a secret (KIP-768) or an assertion (KIP-1258), and jwt-bearer (KIP-1139).
No error contains a secret or a token.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote_plus, urlencode

import msgspec

from barnabas.protocol.security.oauth.logins import AssertionLogin, ClaimsOfAssertion, ClientCredentials
from barnabas.protocol.security.oauth.tokens import TokenError, encode_part

HEADERS: Final = {
    "Accept": "application/json",
    "Cache-Control": "no-cache",
    "Content-Type": "application/x-www-form-urlencoded",
}
_JWT_BEARER: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_CLIENT_ASSERTION: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
_RETRIABLE: Final = frozenset({408, 425, 429})


def client_credentials_request(login: ClientCredentials) -> tuple[Mapping[str, str], bytes]:
    """Headers and body. The secret is in a header, as RFC 6749 recommends."""
    pair = f"{login.client_id}:{login.client_secret}"
    if login.urlencode_header:
        pair = f"{quote_plus(login.client_id)}:{quote_plus(login.client_secret)}"
    form = {"grant_type": "client_credentials"}
    if login.scope:
        form["scope"] = login.scope
    authorization = f"Basic {base64.b64encode(pair.encode()).decode()}"
    return {**HEADERS, "Authorization": authorization}, urlencode(form).encode()


def assertion_request(login: AssertionLogin, assertion: str) -> tuple[Mapping[str, str], bytes]:
    """Headers and body of a request with an assertion."""
    form = {"grant_type": _JWT_BEARER, "assertion": assertion}
    if not login.is_grant:
        form = {
            "grant_type": "client_credentials",
            "client_assertion_type": _CLIENT_ASSERTION,
            "client_assertion": assertion,
        }
        if login.client_id:
            form["client_id"] = login.client_id
    if login.scope:
        form["scope"] = login.scope
    return HEADERS, urlencode(form).encode()


def unsigned_assertion(
    claims: ClaimsOfAssertion, algorithm: str, template: bytes | None, wall_ms: int, token_id: str
) -> str:
    """What an assertion signs: header and claims. `template` is a JSON document {"header": ..., "payload": ...}, whose
    members the settings replace. Raises TokenError."""
    given: Any = {}
    if template is not None:
        try:
            given = msgspec.json.decode(template)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            given = None
    head, body = (given.get("header", {}), given.get("payload", {})) if isinstance(given, dict) else (None, None)
    if not isinstance(head, dict) or not isinstance(body, dict):
        raise TokenError(
            'sasl.oauthbearer.assertion.template.file must have the form {"header": {...}, "payload": {...}}'
        )
    header = {"typ": "JWT", **head, "alg": algorithm}
    now_s = wall_ms // 1000
    payload: dict[str, Any] = {**body, "iat": now_s, "exp": now_s + claims.exp_seconds}
    payload["nbf"] = now_s - claims.nbf_seconds
    if claims.jti_include:
        payload["jti"] = token_id
    given_claims = {"aud": claims.aud, "iss": claims.iss, "sub": claims.sub}
    payload |= {name: value for name, value in given_claims.items() if value}
    return f"{encode_part(header)}.{encode_part(payload)}"


def token_of_response(body: bytes) -> str:
    """The token in the response of a token endpoint. Raises TokenError."""
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise TokenError("the response of the token endpoint is not JSON") from None
    for name in ("access_token", "id_token"):
        token = found.get(name) if isinstance(found, dict) else None
        if isinstance(token, str) and token.strip():
            return token.strip()
    raise TokenError("the response of the token endpoint has no access_token")


def is_retriable(status: int) -> bool:
    """Whether a request that was answered with this HTTP status may succeed later."""
    return status in _RETRIABLE or status >= 500


def describe_error(body: bytes) -> str:
    """The error of a token endpoint (RFC 6749, section 5.2), for a message; empty if the body has none."""
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""
    if not isinstance(found, dict):
        return ""
    texts = [found.get(name) for name in ("error", "error_description")]
    return ": ".join(text[:200] for text in texts if isinstance(text, str) and text)
