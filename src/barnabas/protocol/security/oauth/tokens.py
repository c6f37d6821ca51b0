"""Codec: bearer tokens that are JSON web tokens in their compact form (RFC 7515, RFC 7519).

    base64url(header) "." base64url(claims) "." base64url(signature)

Both JSON objects are read here; signatures are checked in `signatures.py`. No error contains a part of the token.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from barnabas.core.errors import BarnabasError
from barnabas.protocol.security.oauth.messages import INSUFFICIENT_SCOPE, INVALID_TOKEN

TOKEN_CHARACTERS_MAX: Final = 65_536
"""A longer token is refused before it is decoded, because anyone may send one."""
_BASE64URL: Final = re.compile(r"[A-Za-z0-9_-]*")
_SECONDS_MAX: Final = 1e12
"""Times beyond this one, in the year 33658, are refused, so that they can be computed with."""


class TokenError(BarnabasError):
    """A token is malformed, or is refused. The text is for logs. `scope` is given if the token lacks a scope."""

    def __init__(self, reason: str, scope: str | None = None) -> None:
        super().__init__(reason)
        self.scope = scope

    @property
    def status(self) -> str:
        """The status of the answer to the client (RFC 6750, section 3.1)."""
        return INVALID_TOKEN if self.scope is None else INSUFFICIENT_SCOPE


class BearerToken(Struct, frozen=True):
    """A token, and what it says about itself."""

    text: str
    principal: str
    expires_at_ms: int
    issued_at_ms: int | None = None
    extensions: tuple[tuple[str, str], ...] = ()
    """The extensions that are sent together with the token."""

    def __repr__(self) -> str:
        return f"BearerToken(principal={self.principal!r}, expires_at_ms={self.expires_at_ms}, ...)"


class JsonWebToken(Struct, frozen=True):
    """The parts of a token."""

    header: Mapping[str, Any]
    claims: Mapping[str, Any]
    signed: bytes
    """What the signature signs."""
    signature: bytes

    def __repr__(self) -> str:
        return f"JsonWebToken(header={sorted(self.header)}, claims={sorted(self.claims)})"


def decode_token(text: str) -> JsonWebToken:
    """Raises TokenError. The signature is not checked; it is empty if the token has two parts."""
    if len(text) > TOKEN_CHARACTERS_MAX:
        raise TokenError(f"the token has {len(text)} characters, and {TOKEN_CHARACTERS_MAX} are allowed")
    parts = text.split(".", 3)
    if len(parts) not in (2, 3):
        raise TokenError("the token is not a JSON web token: it must have three parts with dots between them")
    header = _decode_object(parts[0], "header")
    claims = _decode_object(parts[1], "claims")
    signature = decode_base64url(parts[2], "signature") if len(parts) == 3 else b""
    return JsonWebToken(header, claims, f"{parts[0]}.{parts[1]}".encode(), signature)


def encode_part(value: Mapping[str, Any]) -> str:
    """A header, or claims, as a part of a token."""
    return encode_base64url(msgspec.json.encode(value))


def decode_base64url(text: object, what: str) -> bytes:
    """Raises TokenError, which names `what`."""
    if not isinstance(text, str) or _BASE64URL.fullmatch(text) is None or len(text) % 4 == 1:
        raise TokenError(f"the {what} of the token or key is not base64url")
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def encode_base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decode_object(part: str, what: str) -> dict[str, Any]:
    data = decode_base64url(part, what)
    try:
        found = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise TokenError(f"the {what} of the token is not JSON") from None
    if not isinstance(found, dict):
        raise TokenError(f"the {what} of the token is not a JSON object")
    return found


# ---- claims


def time_claim_ms(claims: Mapping[str, Any], name: str) -> int | None:
    """A claim that is a time (seconds since 1970), in milliseconds; None if it is missing. Raises TokenError."""
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < _SECONDS_MAX:
        raise TokenError(f"the claim {name} is not a time in seconds since 1970")
    return round(value * 1000)


def text_claim(claims: Mapping[str, Any], name: str) -> str:
    """A claim that must be a text that is not blank; without spaces around it. Raises TokenError."""
    value = claims.get(name)
    if value is None:
        raise TokenError(f"the claim {name} is missing")
    if not isinstance(value, str) or not value.strip():
        raise TokenError(f"the claim {name} is not a text, or is blank")
    return value.strip()


def scope_claim(claims: Mapping[str, Any], name: str) -> frozenset[str]:
    """The scopes of a token: a text with spaces, or a list of texts. Raises TokenError."""
    value = claims.get(name)
    if value is None:
        return frozenset()
    if isinstance(value, str):
        return frozenset(value.split())
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return frozenset(item.strip() for item in value if item.strip())
    raise TokenError(f"the claim {name} is neither a text nor a list of texts")


def read_token(text: str, subject_claim: str = "sub") -> BearerToken:
    """What a client reads in a token that it got: when the token expires, and whose it is. Raises TokenError."""
    claims = decode_token(text).claims
    expires_at_ms = time_claim_ms(claims, "exp")
    if expires_at_ms is None:
        raise TokenError("the claim exp is missing")
    return BearerToken(text, text_claim(claims, subject_claim), expires_at_ms, time_claim_ms(claims, "iat"))
