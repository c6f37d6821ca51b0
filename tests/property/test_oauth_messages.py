"""OAUTHBEARER: what was encoded is decoded, and garbage is refused by the errors that are meant for it."""

from __future__ import annotations

import base64
import string

from hypothesis import given
from hypothesis import strategies as st

from barnabas.protocol.security.oauth.messages import (
    OAuthClientFirst,
    OAuthMessageError,
    decode_first,
    encode_first,
)
from barnabas.protocol.security.oauth.tokens import TokenError, decode_base64url, encode_base64url
from barnabas.protocol.security.oauth.unsecured import UnsecuredValidator

_PRINTABLE = "".join(chr(code) for code in range(0x21, 0x7F)) + " \t\r\n"
_NAMES = st.text(string.ascii_letters, min_size=1).filter(lambda name: name != "auth")
_FIRSTS = st.builds(
    OAuthClientFirst,
    st.from_regex(r"[-~+/._a-zA-Z0-9]+=*", fullmatch=True),
    st.text("".join(chr(code) for code in range(2, 0x80))),
    st.dictionaries(_NAMES, st.text(_PRINTABLE, min_size=1)),
)
_PIECES = st.sampled_from(
    [b"n,", b"a=x", b",", b"\x01", b"auth=", b"Bearer ", b"e30", b".", b"=", b"k=v", b"\xff", b""]
)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["sub", "exp", "iat", "scope", "alg", "x"]), inner),
    max_leaves=8,
)


@given(_FIRSTS)
def test_first_messages_are_decoded_as_they_were_encoded(first: OAuthClientFirst) -> None:
    assert decode_first(encode_first(first)) == first


@given(st.binary() | st.lists(_PIECES).map(b"".join))
def test_garbage_is_no_first_message(message: bytes) -> None:
    try:
        first = decode_first(message)
    except OAuthMessageError:
        return
    assert decode_first(encode_first(first)) == first


@given(st.binary())
def test_base64url(data: bytes) -> None:
    assert decode_base64url(encode_base64url(data), "part") == data
    assert encode_base64url(data) == base64.urlsafe_b64encode(data).decode().rstrip("=")


@given(_JSON, st.text("e30.AAAA-_!=") | st.none())
def test_tokens_of_any_claims_are_accepted_or_refused(claims: object, text: str | None) -> None:
    import json

    if text is None:
        text = f"eyJhbGciOiJub25lIn0.{encode_base64url(json.dumps(claims).encode())}."
    try:
        token = UnsecuredValidator().validate(text, 1_700_000_000_000)
    except TokenError:
        return
    assert token.expires_at_ms > 1_700_000_000_000
    assert token.principal
