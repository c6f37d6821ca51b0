"""Machine: checks signed tokens (KIP-768; Kafka's BrokerJwtValidator).

The signature is checked first, so that nothing in a token is believed, or logged, which its provider has not signed.
The keys come from a port, because they are fetched over the network.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

from msgspec import Struct

from barnabas.protocol.security.oauth import signatures
from barnabas.protocol.security.oauth.signatures import PublicKey
from barnabas.protocol.security.oauth.tokens import (
    BearerToken,
    JsonWebToken,
    TokenError,
    decode_token,
    scope_claim,
    text_claim,
    time_claim_ms,
)

_CANDIDATES_MAX: Final = 8
"""A token that does not name its key is checked with at most so many keys."""
_MISSING_MS: Final = 60_000
_MISSING_MAX: Final = 16
_KEY_ID_CHARACTERS_MAX: Final = 1000


class SigningKeys(Protocol):
    """The keys of the provider, as they were fetched last."""

    def keys(self) -> Sequence[PublicKey]: ...

    def request_key(self, key_id: str) -> None:
        """Fetch the keys soon, because a token names a key that is not among them."""
        ...


class SignedValidator(Struct, frozen=True):
    """How a server checks signed tokens."""

    signing_keys: SigningKeys
    expected_audience: tuple[str, ...] = ()
    expected_issuer: str | None = None
    scope_claim: str = "scope"
    subject_claim: str = "sub"
    clock_skew_ms: int = 30_000

    def validate(self, text: str, wall_ms: int) -> BearerToken:
        """Raises TokenError."""
        token = decode_token(text)
        self._check_signature(token)
        claims, skew_ms = token.claims, self.clock_skew_ms
        expires_at_ms, issued_at_ms = time_claim_ms(claims, "exp"), time_claim_ms(claims, "iat")
        if expires_at_ms is None or issued_at_ms is None:
            raise TokenError(f"the claim {'exp' if expires_at_ms is None else 'iat'} is missing")
        if wall_ms - skew_ms >= expires_at_ms:
            raise TokenError("the token has expired")
        if expires_at_ms <= issued_at_ms:
            raise TokenError("the claim exp is not after the claim iat")
        not_before_ms = time_claim_ms(claims, "nbf")
        if not_before_ms is not None and not_before_ms > wall_ms + skew_ms:
            raise TokenError("the token is not valid yet (nbf): the clocks of its provider and the broker may differ")
        self._check_origin(claims)
        scope_claim(claims, self.scope_claim)
        return BearerToken(text, text_claim(claims, self.subject_claim), expires_at_ms, issued_at_ms)

    def _check_signature(self, token: JsonWebToken) -> None:
        algorithm, key_id = token.header.get("alg"), token.header.get("kid")
        if not isinstance(algorithm, str) or algorithm not in signatures.ALGORITHMS:
            raise TokenError(
                f"the token is not signed with one of {', '.join(signatures.ALGORITHMS)};"
                " unsecured tokens (algorithm none) are not accepted here"
            )
        if "crit" in token.header:
            raise TokenError("the token's header has critical extensions (crit), which are not supported")
        if not isinstance(key_id, str | None):
            raise TokenError("the id of the key in the token's header (kid) is not a text")
        keys = self.signing_keys.keys()
        if not keys:
            raise TokenError("the provider's keys were not fetched yet (sasl.oauthbearer.jwks.endpoint.url)")
        named = [key for key in keys if key_id is None or key.id == key_id]
        if not named and key_id is not None:
            self.signing_keys.request_key(key_id)
            raise TokenError("the token's key (kid) is not among the provider's keys; they are fetched again")
        fitting = [key for key in named if key.fits(algorithm)]
        for key in fitting[:_CANDIDATES_MAX]:
            if signatures.verify(key, algorithm, token.signed, token.signature):
                return
        raise TokenError(
            "the signature of the token is wrong" if fitting else f"the token's key is not for {algorithm}"
        )

    def _check_origin(self, claims: Mapping[str, Any]) -> None:
        """The issuer and the audience. As in Kafka, a token for an audience is refused if none is expected."""
        issuer = claims.get("iss")
        if self.expected_issuer is not None and issuer != self.expected_issuer:
            raise TokenError(
                f"the token's issuer is {_shown(issuer)}, and sasl.oauthbearer.expected.issuer={self.expected_issuer}"
            )
        audience = claims.get("aud", [])
        audiences = audience if isinstance(audience, list) else [audience]
        if not all(isinstance(item, str) for item in audiences):
            raise TokenError("the claim aud is neither a text nor a list of texts")
        if audiences and not self.expected_audience:
            raise TokenError(
                f"the token is for the audience {_shown(audience)}, and sasl.oauthbearer.expected.audience is not set"
            )
        if self.expected_audience and not set(audiences) & set(self.expected_audience):
            raise TokenError(
                f"the token's audience is {_shown(audience)}, and"
                f" sasl.oauthbearer.expected.audience={','.join(self.expected_audience)}"
            )


class MissingKeys:
    """Decides whether an unknown key is a reason to fetch the provider's keys.

    Each id is one, once in a minute; the newest 16 ids are remembered, so that forged ids cost no memory.
    """

    def __init__(self) -> None:
        self._asked: OrderedDict[str, float] = OrderedDict()

    def is_reason(self, key_id: str, now_ms: float) -> bool:
        if len(key_id) > _KEY_ID_CHARACTERS_MAX:
            return False
        asked_ms = self._asked.get(key_id)
        if asked_ms is not None and now_ms - asked_ms < _MISSING_MS:
            return False
        self._asked[key_id] = now_ms
        self._asked.move_to_end(key_id)
        if len(self._asked) > _MISSING_MAX:
            self._asked.popitem(last=False)
        return True


def _shown(value: object) -> str:
    return repr(value)[:200]
