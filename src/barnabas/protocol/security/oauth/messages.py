"""Codec: the messages of the SASL mechanism OAUTHBEARER (RFC 7628, KIP-255, KIP-342), for both ends of an exchange.

    client                                                                server
      n,[a=<user>],^Aauth=Bearer <token>^A[<key>=<value>^A]*^A        ->
                                                                      <-    (empty: the token is accepted)
                                                                      <-    {"status":"invalid_token"}
      ^A                                                              ->
                                                                      <-    SASL_AUTHENTICATION_FAILED

^A is the byte 1. The last three messages are those of a token that is refused. The pairs after `auth` are the
extensions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct, field

from barnabas.core.errors import BarnabasError

SEPARATOR: Final = "\x01"
LAST_WORD: Final = b"\x01"
"""The answer of a client to the error of the server."""
EXTENSIONS_MAX: Final = 64
"""A message with more extensions is refused before it is decoded, because anyone may send one."""
_HEADER_CHARACTERS_MAX: Final = 1024
INVALID_TOKEN: Final = "invalid_token"
INSUFFICIENT_SCOPE: Final = "insufficient_scope"

_GS2_HEADER: Final = re.compile(r"n,(?:a=(?P<authzid>(?:[\x02-\x2b\x2d-\x3c\x3e-\x7f]++|=2C|=3D)++))?,")
_KEY: Final = re.compile(r"[A-Za-z]+")
_VALUE: Final = re.compile(r"[\x21-\x7e \t\r\n]+")
_AUTH: Final = re.compile(r"(?P<scheme>\w++) ++(?P<token>[-~+/._a-zA-Z0-9]+=*)", re.ASCII)
_TOKEN: Final = re.compile(r"[-~+/._a-zA-Z0-9]+=*")
_AUTH_KEY: Final = "auth"


class OAuthMessageError(BarnabasError):
    """A message does not have the form that RFC 7628 prescribes. The text does not contain the token."""


class OAuthClientFirst(Struct, frozen=True):
    """The first message of a client."""

    token: str
    authorization_id: str = ""
    extensions: Mapping[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"OAuthClientFirst(extensions={sorted(self.extensions)}, ...)"


class OAuthRefusal(Struct, frozen=True, omit_defaults=True, rename={"openid_configuration": "openid-configuration"}):
    """The server's answer to a token that it refuses."""

    status: str
    scope: str | None = None
    """The scopes that the token must have."""
    openid_configuration: str | None = None
    """The URL of the document that describes the token's provider."""


def encode_first(first: OAuthClientFirst) -> bytes:
    """Raises OAuthMessageError if the token, or the name or value of an extension, cannot be sent."""
    if _TOKEN.fullmatch(first.token) is None:
        raise OAuthMessageError("the token has a character that a bearer token cannot have")
    check_extensions(first.extensions)
    authzid = first.authorization_id.replace("=", "=3D").replace(",", "=2C")
    pairs = {_AUTH_KEY: f"Bearer {first.token}", **first.extensions}
    texts = "".join(f"{key}={value}{SEPARATOR}" for key, value in pairs.items())
    return f"n,{f'a={authzid}' if authzid else ''},{SEPARATOR}{texts}{SEPARATOR}".encode()


def decode_first(message: bytes) -> OAuthClientFirst:
    """Raises OAuthMessageError."""
    if message.count(LAST_WORD) > EXTENSIONS_MAX + 3:
        raise OAuthMessageError(f"the client's first message has more than {EXTENSIONS_MAX} extensions")
    try:
        header, *pairs, before_last, last = message.decode("ascii").split(SEPARATOR)
    except (UnicodeDecodeError, ValueError):
        raise OAuthMessageError("the client's first message does not have the form of RFC 7628") from None
    gs2 = _GS2_HEADER.fullmatch(header) if len(header) <= _HEADER_CHARACTERS_MAX else None
    if gs2 is None or before_last or last:
        raise OAuthMessageError("the client's first message does not have the form of RFC 7628")
    extensions: dict[str, str] = {}
    for pair in pairs:
        key, _, value = pair.partition("=")
        if key in extensions:
            raise OAuthMessageError(f"the key {key[:64]!r} occurs twice in the client's first message")
        extensions[key] = value
    auth = extensions.pop(_AUTH_KEY, None)
    if auth is None:
        raise OAuthMessageError("the client's first message has no token: the key auth is missing")
    check_extensions(extensions)
    found = _AUTH.fullmatch(auth)
    if found is None:
        raise OAuthMessageError("the value of auth in the client's first message must be: Bearer TOKEN")
    if found["scheme"].lower() != "bearer":
        raise OAuthMessageError(f"the scheme in the client's first message is {found['scheme'][:64]!r}, not Bearer")
    authzid = (gs2["authzid"] or "").replace("=2C", ",").replace("=3D", "=")
    return OAuthClientFirst(found["token"], authzid, extensions)


def check_extensions(extensions: Mapping[str, str]) -> None:
    """Raises OAuthMessageError for the reserved name auth, and for names and values that RFC 7628 does not allow."""
    for key, value in extensions.items():
        if key == _AUTH_KEY or _KEY.fullmatch(key) is None:
            raise OAuthMessageError(f"the name {key[:64]!r} is not allowed for an extension: use letters, and not auth")
        if _VALUE.fullmatch(value) is None:
            raise OAuthMessageError(
                f"the value of the extension {key!r} is empty, or has a character that cannot be sent"
            )


def encode_refusal(refusal: OAuthRefusal) -> bytes:
    return msgspec.json.encode(refusal)


def decode_refusal(message: bytes) -> OAuthRefusal:
    """The server's refusal. A text that is no JSON object becomes the status."""
    try:
        found: Any = msgspec.json.decode(message)
        return msgspec.convert(found, OAuthRefusal)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return OAuthRefusal(message[:200].decode("utf-8", "replace"))
