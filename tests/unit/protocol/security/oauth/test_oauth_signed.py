"""Signed tokens: Kafka's BrokerJwtValidatorTest, and what forged tokens try. The tokens are signed by joserfc."""

from __future__ import annotations

import functools
import hmac
import json
from typing import Any

import pytest
from joserfc import jws, jwt
from joserfc.jwk import ECKey, RSAKey

from barnabas.core.config import ConfigError
from barnabas.protocol.security.oauth.signatures import (
    ALGORITHMS,
    KeySetError,
    PublicKey,
    decode_keys,
    sign,
    verify,
)
from barnabas.protocol.security.oauth.signed import MissingKeys, SignedValidator
from barnabas.protocol.security.oauth.tokens import TokenError, decode_base64url
from tests.unit.protocol.security.oauth.test_oauth_unsecured import encode

NOW_MS = 1_700_000_000_000
NOW_S = NOW_MS // 1000
_CURVES = {"ES256": "P-256", "ES384": "P-384", "ES512": "P-521"}


@functools.cache
def key_for(algorithm: str, kid: str = "") -> Any:
    parameters = {"kid": kid or algorithm}
    if algorithm in _CURVES:
        return ECKey.generate_key(_CURVES[algorithm], parameters)
    return RSAKey.generate_key(2048, parameters)


def key_set(*keys: Any, **more: Any) -> bytes:
    return json.dumps({"keys": [{**key.as_dict(private=False), **more} for key in keys]}).encode()


def signed(claims: dict[str, Any] | None = None, algorithm: str = "RS256", key: Any = None, **header: Any) -> str:
    key = key or key_for(algorithm)
    full = {"sub": "alice", "iat": NOW_S - 10, "exp": NOW_S + 60, **(claims or {})}
    full = {name: value for name, value in full.items() if value is not None}
    return jwt.encode({"alg": algorithm, "kid": key.kid, **header}, full, key, algorithms=[algorithm])


class Keys:
    """The keys of a provider in a test."""

    def __init__(self, *keys: Any, **more: Any) -> None:
        self._keys = decode_keys(key_set(*keys, **more)).keys if keys else ()
        self.requested: list[str] = []

    def keys(self) -> tuple[PublicKey, ...]:
        return self._keys

    def request_key(self, key_id: str) -> None:
        self.requested.append(key_id)


def check(text: str, *keys: Any, **settings: Any) -> str:
    return SignedValidator(Keys(*(keys or (key_for("RS256"),))), **settings).validate(text, NOW_MS).principal


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_each_algorithm(algorithm: str) -> None:
    key = key_for(algorithm)
    text = signed(algorithm=algorithm)
    assert check(text, key) == "alice"
    head, claims, signature = text.split(".")
    first = "A" if signature[0] != "A" else "B"
    for forged in (f"{head}.{claims}.{first}{signature[1:]}", f"{head}.{claims}.", f"{head}.{claims}.{signature[:-4]}"):
        with pytest.raises(TokenError, match="signature of the token is wrong"):
            check(forged, key)
    with pytest.raises(TokenError, match="signature of the token is wrong"):
        check(_renamed(algorithm), key)


def _renamed(algorithm: str) -> str:
    """A token that another key has signed under the id of the right one."""
    other = key_for(algorithm, "other")
    return signed(algorithm=algorithm, key=other, kid=algorithm)


@pytest.mark.parametrize("algorithm", ["none", "None", "HS256", "RS1", "", 7, None])
def test_other_algorithms_are_refused(algorithm: object) -> None:
    claims = {"sub": "alice", "iat": NOW_S, "exp": NOW_S + 60}
    for signature in ("", "AAAA"):
        with pytest.raises(TokenError, match=r"unsecured tokens \(algorithm none\) are not accepted"):
            check(f"{encode({'alg': algorithm, 'kid': 'RS256'})}.{encode(claims)}.{signature}")


def test_a_public_key_is_no_shared_secret() -> None:
    """An HS256 signature with the public key's text as the secret (algorithm confusion)."""
    public = key_for("RS256").as_pem(private=False)
    unsigned = signed({"sub": "alice"}).rpartition(".")[0].partition(".")[2]
    unsigned = f"{encode({'alg': 'HS256', 'kid': 'RS256'})}.{unsigned}"
    forged = f"{unsigned}.{encode(hmac.digest(public, unsigned.encode(), 'sha256'))}"
    with pytest.raises(TokenError, match="is not signed with one of"):
        check(forged)


def test_a_key_is_used_for_its_own_algorithms_only() -> None:
    text = signed(algorithm="RS256")
    with pytest.raises(TokenError, match="the token's key is not for RS256"):
        SignedValidator(Keys(key_for("RS256"), alg="PS256")).validate(text, NOW_MS)
    with pytest.raises(TokenError, match="the token's key is not for RS256"):
        check(signed(algorithm="RS256", kid="ES256"), key_for("ES256"))
    with pytest.raises(TokenError, match="the token's key is not for ES256"):
        check(signed(algorithm="ES256", kid="ES384"), key_for("ES384"))


def test_a_token_without_a_key_id_is_checked_with_every_key() -> None:
    others = [key_for("RS256", f"k{number}") for number in range(2)]
    text = jwt.encode({"alg": "RS256"}, {"sub": "a", "iat": NOW_S, "exp": NOW_S + 9}, key_for("RS256"))
    assert check(text, *others, key_for("ES256"), key_for("RS256")) == "a"
    with pytest.raises(TokenError, match="signature of the token is wrong"):
        check(text, *others)


def test_an_unknown_key_is_requested() -> None:
    keys = Keys(key_for("RS256"))
    with pytest.raises(TokenError, match="not among the provider's keys"):
        SignedValidator(keys).validate(signed(key=key_for("RS256", "new")), NOW_MS)
    assert keys.requested == ["new"]
    with pytest.raises(TokenError, match="not fetched yet"):
        SignedValidator(Keys()).validate(signed(), NOW_MS)


def test_an_unknown_key_is_a_reason_to_fetch_once_a_minute() -> None:
    missing = MissingKeys()
    assert missing.is_reason("a", 0)
    assert not missing.is_reason("a", 59_999)
    assert missing.is_reason("b", 59_999)
    assert missing.is_reason("a", 60_000)
    assert not missing.is_reason("x" * 1001, 0)
    for number in range(16):
        assert missing.is_reason(f"n{number}", 60_001)
    assert missing.is_reason("a", 60_002), "the 16 newest ids are remembered"


@pytest.mark.parametrize(
    ("claims", "settings", "said"),
    [
        ({"exp": None}, {}, "exp is missing"),
        ({"iat": None}, {}, "iat is missing"),
        ({"sub": None}, {}, "sub is missing"),
        ({"sub": "  "}, {}, "sub is not a text, or is blank"),
        ({"sub": ["a"]}, {}, "sub is not a text"),
        ({}, {"subject_claim": "user"}, "user is missing"),
        ({"scope": 7}, {}, "scope is neither a text nor a list of texts"),
        ({"exp": NOW_S - 30}, {}, "expired"),
        ({"exp": NOW_S}, {"clock_skew_ms": 0}, "expired"),
        ({"exp": NOW_S + 9, "iat": NOW_S + 9}, {}, "not after"),
        ({"nbf": NOW_S + 31}, {}, "not valid yet"),
        ({"iss": "evil"}, {"expected_issuer": "https://idp"}, "sasl.oauthbearer.expected.issuer=https://idp"),
        ({}, {"expected_issuer": "https://idp"}, "the token's issuer is None"),
        ({"iss": ["https://idp"]}, {"expected_issuer": "https://idp"}, "the token's issuer is"),
        ({"aud": "kafka"}, {}, "expected.audience is not set"),
        ({"aud": "other"}, {"expected_audience": ("kafka",)}, "sasl.oauthbearer.expected.audience=kafka"),
        ({}, {"expected_audience": ("kafka",)}, "the token's audience is"),
        ({"aud": [7]}, {"expected_audience": ("kafka",)}, "aud is neither"),
    ],
)
def test_claims_that_are_refused(claims: dict[str, Any], settings: dict[str, Any], said: str) -> None:
    with pytest.raises(TokenError, match=said):
        check(signed(claims), **settings)


@pytest.mark.parametrize(
    ("claims", "settings"),
    [
        ({"exp": NOW_S - 29, "iat": NOW_S - 60}, {}),
        ({"nbf": NOW_S + 30}, {}),
        ({"iss": "https://idp"}, {"expected_issuer": "https://idp"}),
        ({"iss": "https://idp"}, {}),
        ({"aud": "kafka"}, {"expected_audience": ("a", "kafka")}),
        ({"aud": ["b", "kafka"]}, {"expected_audience": ("kafka",)}),
        ({"scope": "a b"}, {}),
        ({"scope": ["a", "b"]}, {}),
        ({"scp": ["a"], "sub": None, "client": " alice "}, {"scope_claim": "scp", "subject_claim": "client"}),
    ],
)
def test_claims_that_are_accepted(claims: dict[str, Any], settings: dict[str, Any]) -> None:
    assert check(signed(claims), **settings) == "alice"


def test_critical_header_extensions_are_refused() -> None:
    text = jws.serialize_compact(
        {"alg": "RS256", "kid": "RS256", "crit": ["b64"], "b64": True},
        json.dumps({"sub": "alice", "iat": NOW_S, "exp": NOW_S + 60}).encode(),
        key_for("RS256"),
    )
    with pytest.raises(TokenError, match="crit"):
        check(text)


@pytest.mark.parametrize(
    ("document", "said"),
    [
        (b"", "not JSON"),
        (b"[]", "not a JSON web key set"),
        (b'{"keys": {}}', "not a JSON web key set"),
        (b'{"keys": []}', "its list is empty"),
        (b'{"keys": [7]}', "key 0: it is not a JSON object"),
        (b'{"keys": [{"kty": "oct", "k": "AAAA"}]}', "neither RSA nor EC"),
        (b'{"keys": [{"kty": "RSA", "n": "AQAB", "e": "AQAB"}]}', "2048 to 8192 bits"),
        (b'{"keys": [{"kty": "RSA", "n": "' + b"_" * 8000 + b'", "e": "AQAB"}]}', "too large"),
        (b'{"keys": [{"kty": "RSA", "e": "AQAB"}]}', "not base64url"),
        (b'{"keys": [{"kty": "EC", "crv": "secp256k1", "x": "AQ", "y": "AQ"}]}', "P-256"),
        (b'{"keys": [{"kty": "EC", "crv": "P-256", "x": "AQ", "y": "AQ"}]}', "key 0"),
        (b'{"keys": [{"kty": "RSA", "use": "enc"}]}', "not for signatures"),
        (b'{"keys": [{"kty": "RSA", "key_ops": ["sign"]}]}', "key_ops"),
        (b'{"keys": [{"kty": "RSA", "alg": "HS256"}]}', "algorithm is not supported"),
        (b'{"keys": [' + b",".join([b"{}"] * 257) + b"]}", "at most 256"),
    ],
)
def test_documents_without_a_key_that_can_be_used(document: bytes, said: str) -> None:
    with pytest.raises(KeySetError, match=said):
        decode_keys(document)


def test_keys_that_cannot_be_used_are_left_out_with_a_reason() -> None:
    rows = [key_for("RS256").as_dict(private=False), {"kty": "OKP"}, key_for("ES384").as_dict(private=False)]
    found = decode_keys(json.dumps({"keys": rows}).encode())
    assert [key.id for key in found.keys] == ["RS256", "ES384"]
    assert found.left_out == ("key 1: its type (kty) is neither RSA nor EC",)


@pytest.mark.parametrize("algorithm", ["RS256", "ES256"])
def test_what_sign_has_signed_is_verified_by_others(algorithm: str) -> None:
    key = key_for(algorithm)
    signature = sign(algorithm, key.as_pem(private=True), None, b"eyJhbGciOiJSUzI1NiJ9.e30")
    (public,) = decode_keys(key_set(key)).keys
    assert verify(public, algorithm, b"eyJhbGciOiJSUzI1NiJ9.e30", signature)
    assert not verify(public, algorithm, b"other", signature)


def test_a_private_key_that_does_not_fit_is_named() -> None:
    with pytest.raises(ConfigError, match=r"assertion.algorithm=ES256"):
        sign("ES256", key_for("RS256").as_pem(private=True), None, b"x")
    with pytest.raises(ConfigError, match=r"assertion\.private\.key\.file"):
        sign("RS256", b"no key", None, b"x")


def test_the_ecdsa_example_of_rfc_7515() -> None:
    """Appendix A.3."""
    jwk = {
        "kty": "EC", "crv": "P-256",
        "x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU", "y": "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0",
    }  # fmt: skip
    (key,) = decode_keys(json.dumps({"keys": [jwk]}).encode()).keys
    text = (
        "eyJhbGciOiJFUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ"
        ".DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q"
    )
    signing_input, _, signature = text.rpartition(".")
    assert verify(key, "ES256", signing_input.encode(), decode_base64url(signature, "signature"))
